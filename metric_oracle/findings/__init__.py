"""Results -> people and files: numbers, signature, cells, tables, figures, and reading them back."""
