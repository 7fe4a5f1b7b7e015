"""BLEU in plain, slow Python."""

from collections import Counter

from metric_oracle.kernels.bleu.score import bleu, brevity, precision


def score(candidate, reference, *, order, coco):
    """Return BLEU of a candidate against one reference, two tuples of tokens, and its components by name.

    `order` is 1 to 4; `coco` stands for pycocoevalcap's form instead of fast_bleu's.
    """
    matches = [_matches(candidate, reference, n) if n <= order else 0 for n in (1, 2, 3, 4)]
    length = len(candidate)
    components = {
        f"precision_{n}": precision(matches[n - 1], max(length - n + 1, 0), coco) if matches[0] else 0.0
        for n in range(1, order + 1)
    }
    components["brevity_penalty"] = brevity(length, len(reference), coco) if length else 0.0
    return bleu(*matches, length, len(reference), order, coco), components


def _matches(candidate, reference, n):
    """Return the number of matches of n-grams of `n` tokens; each n-gram of the reference matches once at most."""
    free = Counter(_ngrams(reference, n))
    matches = 0
    for gram in _ngrams(candidate, n):
        times = free.get(gram, 0)
        if times:
            free[gram] = times - 1
            matches += 1
    return matches


def _ngrams(tokens, n):
    """Return the n-grams of `n` tokens in text order: tuples, or for one token the tokens themselves."""
    return tokens if n == 1 else zip(*[tokens[i:] for i in range(n)], strict=False)
