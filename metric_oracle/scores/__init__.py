"""Scores of given pairs: predictions and references, groups of samples, baselines and what chance gives."""
