"""CRG from counts of label errors. Plain scalar Python; the fast kernels call these very functions.

With A of T reference labels positive, Hamamci et al. (MIDL 2025) set w_TP = w_FN = (T - A) / 2A and w_FP = 1, hence
S_max = A w_TP, s = TP w_TP - FN w_FN - FP w_FP and CRG = S_max / (2 S_max - s). As TP = A - FN, that is

    CRG = 1 / (1 + 2 (FN / A + FP / (T - A))),        s / S_max = 1 - 2 (FN / A + FP / (T - A)).

If no label is positive (A = 0), or all are (T = A), none of that class can be wrong: its term is 0.
"""

from metric_oracle.kernels._jit import scalar


@scalar
def loss(false_negatives, false_positives, positives, labels):
    """Return FN / A + FP / (T - A) as numerator and denominator: integers, so that equal losses are equal numbers.

    A is `positives`, T is `labels`.
    """
    negatives = max(labels - positives, 1)
    positives = max(positives, 1)
    return false_negatives * negatives + false_positives * positives, positives * negatives


@scalar
def crg(false_negatives, false_positives, positives, labels):
    """Return CRG of a test set (equations 2 and 3 of the paper): one division of integers.

    The wrong labels are those of all reports. `positives` is A, the number of positive labels of the references, and
    `labels` T, the number of all their labels.
    """
    wrong, all_wrong = loss(false_negatives, false_positives, positives, labels)
    return all_wrong / (all_wrong + 2 * wrong)


@scalar
def contribution(false_negatives, false_positives, positives, labels, reports):
    """Return what one report contributes to s / S_max, times the number of reports: 1 if no label is wrong.

    The wrong labels are those of the report; A, `positives`, T, `labels`, and `reports` are the numbers of the whole
    reference set.
    """
    wrong, all_wrong = loss(false_negatives, false_positives, positives, labels)
    return 1.0 - 2.0 * reports * wrong / all_wrong
