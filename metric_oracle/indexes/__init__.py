"""Representations of a corpus <-> disk."""
