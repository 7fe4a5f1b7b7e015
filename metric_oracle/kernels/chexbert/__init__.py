"""CheXbert vector similarity."""
