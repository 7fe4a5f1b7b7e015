import numpy as np

from metric_oracle.kernels.rouge_l.reference import _lcs


def _table(a, b):
    """Return the longest common subsequence by the textbook."""
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if x == y else max(above, row[j])
            diagonal = above
    return row[-1]


def test_reference_subsequence_is_the_textbooks():
    rng = np.random.default_rng(0)
    for _ in range(400):
        n_words = int(rng.choice([1, 2, 4, 30]))
        a, b = (tuple(rng.integers(n_words, size=rng.integers(90)).tolist()) for _ in range(2))
        assert _lcs(a, b) == _table(a, b)
