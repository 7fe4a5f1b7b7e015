"""Files that people have -> reports with ids, graphs, embeddings, labels."""
