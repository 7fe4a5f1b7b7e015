"""RadGraph F1: entities and relations that the graphs of two reports share."""
