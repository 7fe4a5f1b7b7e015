"""Text -> representation by a model: CheXbert, RadGraph, BERT token states (extras `encoders`, `radgraph`)."""
