"""BERTScore: greedy cosine matching of token states, both ways."""
