"""BERTScore from precision and recall. Plain scalar Python, which the fast kernels compile."""

from metric_oracle.kernels._jit import scalar

PRECISION, RECALL, F1, MEAN = 0, 1, 2, 3


@scalar
def f1(precision, recall):
    """Return the harmonic mean as bert_score computes it, also of negative values; 0 if it is undefined."""
    if precision + recall == 0.0:
        return 0.0
    return 2.0 * precision * recall / (precision + recall)


@scalar
def mean(precision, recall):
    """Return the arithmetic mean, from which the distance of sets of sentence vectors follows."""
    return 0.5 * (precision + recall)


@scalar
def rescale(value, baseline):
    """Return a score relative to the encoder's baseline (Zhang et al., ICLR 2020, section 6)."""
    return (value - baseline) / (1.0 - baseline)
