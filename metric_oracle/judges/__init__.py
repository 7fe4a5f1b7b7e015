"""Judges: whatever reads a reference and a candidate together and gives a score."""
