"""METEOR: words that two reports share, as equal words, equal stems or synonyms, and into how few pieces they fall."""
