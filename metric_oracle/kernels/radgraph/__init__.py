"""RadGraph F1."""
