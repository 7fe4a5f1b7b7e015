"""Copies and leakage: compare sets of reports with a training corpus."""
