"""Jaccard coefficient of the sets of word n-grams of two reports."""
