"""Repeat a result by brute force."""
