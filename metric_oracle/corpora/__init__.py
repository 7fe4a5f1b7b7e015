"""Readers of the files that people have: reports with ids, graphs, entities, embeddings, labels, samples."""
