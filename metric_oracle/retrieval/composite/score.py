"""A composite from the values of its terms: a linear regression on standardised metrics. Plain scalar Python."""


def term(value, mean, scale, weight):
    """Return the summand of one term: its standardised value times its weight."""
    return weight * ((value - mean) / scale)


def composite(values, terms, intercept):
    """Return the composite of one pair: the intercept, then the terms, summed in their order.

    Parameters
    ----------
    values : sequence of float
        Value of the metric of each term.
    terms : sequence of objects with mean, scale and weight
    intercept : float
    """
    total = intercept
    for value, t in zip(values, terms, strict=True):
        total += term(value, t.mean, t.scale, t.weight)
    return total
