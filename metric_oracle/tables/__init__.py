"""Scores of systems -> tables, comparisons and studies."""
