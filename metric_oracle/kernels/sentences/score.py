"""Distance of two sets of sentence vectors, from the mean cosines with the nearest sentence."""


def distance(precision, recall):
    """Return the mean cosine distance to the nearest sentence, averaged over both directions.

    Parameters
    ----------
    precision, recall : float or float64[n]
        Mean cosine of the sentences of the candidate, and of the reference, with the nearest sentence of the other.
    """
    return 1.0 - 0.5 * (precision + recall)
