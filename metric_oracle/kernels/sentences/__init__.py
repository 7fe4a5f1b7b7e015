"""Distance of two sets of sentence vectors; see README.md."""
