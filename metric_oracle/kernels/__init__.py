"""Kernels: exact searches and scores of each metric, which take and return NumPy arrays. See README.md."""
