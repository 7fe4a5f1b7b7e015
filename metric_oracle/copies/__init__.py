"""Copies and leakage: sets of reports against a training corpus."""
