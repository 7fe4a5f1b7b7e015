"""Exact search of an index, results and their files, verification of results, and baselines."""
