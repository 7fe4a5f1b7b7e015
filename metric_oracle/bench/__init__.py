"""The benchmark of searches on this machine."""
