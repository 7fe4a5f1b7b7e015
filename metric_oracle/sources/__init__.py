"""Sources: what metrics read in addition to the text, such as graphs or labels. One class and one file for each."""
