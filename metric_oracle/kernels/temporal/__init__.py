"""Temporal F1: keywords of change over time, such as "increased", that two reports share."""
