"""ROUGE-L in plain, slow Python."""

from metric_oracle.kernels.rouge_l.score import rouge_l


def score(candidate, reference, *, coco=False):
    """Return ROUGE-L (F-measure) of a candidate against one reference, with precision and recall by name.

    Both are tuples of tokens; `coco` stands for pycocoevalcap's form instead of rouge-score's.
    """
    lcs = _lcs(candidate, reference)
    components = {
        "precision": lcs / len(candidate) if candidate else 0.0,
        "recall": lcs / len(reference) if reference else 0.0,
    }
    return rouge_l(lcs, len(candidate), len(reference), coco), components


def _lcs(a, b):
    """Return the length of the longest common subsequence of two tuples of tokens.

    Each row of the textbook table is the bits of one integer: a zero bit is a step up (Hyyrö 2004). The table itself
    would take hours for two reports of 100,000 words.
    """
    positions: dict[str, int] = {}
    for i, word in enumerate(b):
        positions[word] = positions.get(word, 0) | 1 << i
    everything = (1 << len(b)) - 1
    row = everything
    for word in a:
        matched = row & positions.get(word, 0)
        row = (row + matched | row - matched) & everything
    return len(b) - row.bit_count()
