"""Search, results, verification, baselines."""
