"""METEOR in plain, slow Python, with nltk's three rounds of matching."""

from collections import defaultdict

from metric_oracle.kernels.meteor.score import meteor


def score(candidate, reference):
    """Return METEOR of a candidate against one reference, and precision, recall and the number of chunks by name.

    Both are tuples with an item for each word: (word, stem, frozenset of stems), where the third entry has the stems
    that count as synonyms of a candidate's word; it is not read for the reference.
    """
    match = [-1] * len(candidate)
    rounds = ((0, lambda ours: ours[:1]), (1, lambda ours: ours[1:2]), (1, lambda ours: ours[2]))
    for part, fitting in rounds:
        free = defaultdict(list)  # places of the reference without a match, ascending, by word or stem
        for t in sorted({*range(len(reference))}.difference(match)):
            free[reference[t][part]].append(t)
        for i in reversed(range(len(candidate))):
            if match[i] < 0:
                open_places = [free[key] for key in fitting(candidate[i]) if free.get(key)]
                if open_places:
                    match[i] = max(open_places, key=lambda places: places[-1]).pop()
    matched = {(i, t) for i, t in enumerate(match) if t >= 0}
    chunks = len(matched) - sum((i - 1, t - 1) in matched for i, t in matched)
    n, c, r = len(matched), len(candidate), len(reference)
    parts = {"precision": n / max(c, 1), "recall": n / max(r, 1), "chunks": chunks}
    return meteor(n, chunks, c, r), parts
