"""Cosine of the 14 CheXbert labels."""
