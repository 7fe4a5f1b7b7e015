"""RaTEScore of two lists of entities with their vectors.

The models that find and encode entities run elsewhere, before.
"""
