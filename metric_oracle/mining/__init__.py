"""Mining of pairs: a corpus searched against itself, and the pairs in the shapes that training libraries read."""
