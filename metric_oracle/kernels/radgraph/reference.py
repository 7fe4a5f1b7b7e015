"""RadGraph F1, slow and obvious: Python sets."""

from metric_oracle.kernels.radgraph.score import NAMES, f1, mean_f1


def score(candidate, reference, *, family_a, family_b):
    """Return the F1 of one family of sets, or the mean of two, and the single values.

    Parameters
    ----------
    candidate, reference : sequences of four sets
        Entities, relations, partial, complete.
    family_a, family_b : int
        Families to compare; family_b is -1 for one family.
    """
    families = [f for f in (family_a, family_b) if f >= 0]
    values = [f1(len(candidate[f] & reference[f]), len(candidate[f]), len(reference[f])) for f in families]
    value = mean_f1(*values) if family_b >= 0 else values[0]
    return value, {NAMES[f]: v for f, v in zip(families, values, strict=True)}
