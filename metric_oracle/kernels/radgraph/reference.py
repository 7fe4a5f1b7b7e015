"""RadGraph F1 in plain, slow Python."""

from metric_oracle.kernels.radgraph.score import NAMES, f1, mean_f1


def score(candidate, reference, *, family_a, family_b):
    """Return the F1 of one family of sets, or the mean of two F1, and the F1 of each family by name.

    `candidate` and `reference` have the four families of a graph: entities, relations, and the sets of RG_ER (partial)
    and RG_ER-bar (complete). `family_a` and `family_b` are the indices of those to compare; `family_b` is -1 for one.
    """
    families = [f for f in (family_a, family_b) if f >= 0]
    counts = [(len(candidate[f] & reference[f]), len(candidate[f]), len(reference[f])) for f in families]
    values = [f1(*c) for c in counts]
    value = values[0]
    if family_b >= 0:
        (match_a, size_a, n_a), (match_b, size_b, n_b) = counts
        value = mean_f1(match_a, size_a + n_a, match_b, size_b + n_b)
    return value, {NAMES[f]: v for f, v in zip(families, values, strict=True)}
