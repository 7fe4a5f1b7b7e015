"""Results -> people: views for a terminal, Markdown and LaTeX, pictures."""
