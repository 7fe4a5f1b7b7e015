"""Cosine of report vectors: CheXbert embeddings, or those of any other model."""
