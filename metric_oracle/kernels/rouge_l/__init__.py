"""ROUGE-L: the longest common subsequence of the words of two reports."""
