"""What metrics read in addition to the text: one class and one file for each source."""
