"""Agreement and F1 of two reports' labels, each of which is positive, negative or missing."""
