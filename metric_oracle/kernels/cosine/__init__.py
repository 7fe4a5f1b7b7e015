"""Cosine of report vectors: CheXbert similarity, or that of any other embedding."""
