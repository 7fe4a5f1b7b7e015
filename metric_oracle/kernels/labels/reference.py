"""Agreement and F1 of labels that may be missing, in plain, slow Python."""

from metric_oracle.kernels.labels.score import MEASURES, agreement, f1


def score(candidate, reference, *, measure):
    """Return the agreement or the F1 of two reports, as `measure` says, and by name how many labels were compared.

    The labels, int8[L], are 1 positive, -1 negative, 0 missing. One that is missing on either side is not compared.
    """
    assert measure in MEASURES
    pairs = [(a, b) for a, b in zip(candidate.tolist(), reference.tolist(), strict=True) if a != 0 and b != 0]
    if measure == "agreement":
        value = agreement(sum(a == b for a, b in pairs), len(pairs))
    else:
        matched = sum(a == 1 and b == 1 for a, b in pairs)
        value = f1(matched, sum(a == 1 for a, _ in pairs), sum(b == 1 for _, b in pairs))
    return value, {"compared": len(pairs)}
