"""A corpus searched against itself, and the views of it that training libraries read."""
