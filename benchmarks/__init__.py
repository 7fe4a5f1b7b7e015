"""Timings of the oracles beside published scorers, after a correctness gate. Run ``python -m benchmarks``."""
