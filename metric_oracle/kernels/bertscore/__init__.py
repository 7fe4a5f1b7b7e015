"""BERTScore: matching of the tokens of two reports by the cosine of their vectors from a language model."""
