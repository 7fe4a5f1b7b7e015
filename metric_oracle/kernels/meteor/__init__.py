"""METEOR: words that two reports share, by form, stem and synonym, and in how few pieces."""
