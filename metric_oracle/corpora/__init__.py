"""Files that people have -> reports with ids, graphs, embeddings, labels; the synthetic corpus."""
