"""Distance of two sets of sentence vectors, from the mean cosines with the nearest sentence."""


def distance(precision, recall):
    """Return the mean cosine distance of sentences to the nearest one of the other report, over both directions.

    `precision` and `recall`, float or float64[n], are the mean cosines of the candidate's, and of the reference's,
    sentences with the nearest sentence of the other report.
    """
    return 1.0 - 0.5 * (precision + recall)
