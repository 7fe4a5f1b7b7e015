"""Exact search of an index, or of a set of shards."""
