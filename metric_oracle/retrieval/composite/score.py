"""A composite from the values of its parts: a linear regression on standardised metrics. Plain scalar Python."""


def term(value, mean, scale, weight):
    """Return what one part adds to the score."""
    return weight * ((value - mean) / scale)


def composite(values, terms, intercept):
    """Return the score of one pair, summed in the order of the terms.

    Parameters
    ----------
    values : sequence of float
        One for each term.
    terms : sequence of objects with mean, scale and weight
    intercept : float
    """
    total = intercept
    for value, t in zip(values, terms, strict=True):
        total += term(value, t.mean, t.scale, t.weight)
    return total
