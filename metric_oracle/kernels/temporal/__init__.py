"""Temporal F1: which words of change two reports share."""
