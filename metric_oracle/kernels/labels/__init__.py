"""Agreement and F1 of labels that may be missing."""
