"""A weighted sum of the scores of other metrics, each standardised. Plain scalar Python."""


def term(value, mean, scale, weight):
    """Return the summand of one term: its value, a number or an array, standardised and times its weight."""
    return weight * ((value - mean) / scale)


def composite(values, terms, intercept):
    """Return the sum of the intercept and of the terms, in their order; each has a value, a number or an array."""
    total = intercept
    for value, t in zip(values, terms, strict=True):
        total += term(value, t.mean, t.scale, t.weight)
    return total
