"""ROUGE-L, slow and obvious."""

from metric_oracle.kernels.rouge_l.score import rouge_l


def score(candidate, reference):
    """Return ROUGE-L (F-measure) of a candidate against one reference, and its components.

    Parameters
    ----------
    candidate, reference : tuple of str
        Tokens.
    """
    lcs = _lcs(candidate, reference)
    components = {
        "precision": lcs / len(candidate) if candidate else 0.0,
        "recall": lcs / len(reference) if reference else 0.0,
    }
    return rouge_l(lcs, len(candidate), len(reference)), components


def _lcs(a, b):
    """Return the length of the longest common subsequence by the textbook table, one row at a time."""
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if x == y else max(above, row[j])
            diagonal = above
    return row[-1]
