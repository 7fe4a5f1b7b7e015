"""METEOR in plain, slow Python, with nltk's three rounds of matching."""

from metric_oracle.kernels.meteor.score import meteor


def score(candidate, reference):
    """Return METEOR of a candidate against one reference, and the counts from which it is computed.

    Parameters
    ----------
    candidate, reference : tuple of (word, stem, frozenset of stems)
        One item per word. The third entry holds the stems that count as synonyms of a candidate's word; it is not read
        for the reference.
    """
    free = list(range(len(reference)))  # places of the reference without a match
    match = [-1] * len(candidate)
    rounds = (
        lambda ours, theirs: ours[0] == theirs[0],
        lambda ours, theirs: ours[1] == theirs[1],
        lambda ours, theirs: theirs[1] in ours[2],
    )
    for fits in rounds:
        for i in reversed(range(len(candidate))):
            last = next((t for t in reversed(free) if match[i] < 0 and fits(candidate[i], reference[t])), -1)
            if last >= 0:
                match[i] = last
                free.remove(last)
    matched = [(i, t) for i, t in enumerate(match) if t >= 0]
    chunks = len(matched) - sum((i - 1, t - 1) in matched for i, t in matched)
    n, c, r = len(matched), len(candidate), len(reference)
    parts = {"precision": n / max(c, 1), "recall": n / max(r, 1), "chunks": chunks}
    return meteor(n, chunks, c, r), parts
