"""CIDEr-D: n-grams that two reports share, weighted by how rare they are."""
