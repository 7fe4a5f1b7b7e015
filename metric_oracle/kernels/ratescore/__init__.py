"""RaTEScore of entities and their vectors, which are computed before: no model runs here."""
