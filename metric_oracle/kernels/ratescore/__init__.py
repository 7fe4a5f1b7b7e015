"""RaTEScore over given entities and their vectors."""
