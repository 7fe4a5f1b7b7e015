"""CIDEr-D in plain, slow Python."""

from collections import Counter

from metric_oracle.kernels.cider_d.score import ORDERS, cider_d, length_penalty, similarity, split


def score(candidate, reference):
    """Return CIDEr-D of a candidate against one reference, and the similarity of each order and the penalty by name.

    Both are pairs: the tokens of a text, and a function that takes the tokens of any text and returns the weights of
    its n-grams as a dict. That of the reference is called.
    """
    candidate, _ = candidate
    words, weights_of = reference
    square = {gram: w * w for weights in (weights_of(words), weights_of(candidate)) for gram, w in weights.items()}
    similarities = []
    for n in range(1, ORDERS + 1):
        ours, theirs = _grams(candidate, n), _grams(words, n)
        counts, wanted, seen = Counter(ours), Counter(theirs), dict.fromkeys(ours, 0)
        shared = []
        for gram in ours:
            if gram in wanted and seen[gram] < wanted[gram]:
                shared.append(wanted[gram] * square[gram])
            seen[gram] += 1
        similarities.append(similarity(_sum(shared), _length(ours, counts, square), _length(theirs, wanted, square)))
    penalty = length_penalty(len(candidate), len(words))
    parts = {f"similarity_{n}": value for n, value in enumerate(similarities, 1)}
    return cider_d(*similarities, penalty), {**parts, "length_penalty": penalty}


def _grams(tokens, n):
    """Return the n-grams of a tuple of tokens in text order."""
    return [tokens[i : i + n] for i in range(len(tokens) - n + 1)]


def _length(grams, counts, square):
    """Return the squared length of the weights of a text's n-grams of one order.

    `grams` are these n-grams, `counts` their counts, and `square` has the squared weight of each.
    """
    return _sum([counts[gram] * square[gram] for gram in grams])


def _sum(terms):
    """Return the sum of the terms, which does not depend on their order."""
    sums = [0.0] * 4
    for term in terms:
        sums = [total + part for total, part in zip(sums, split(term), strict=True)]
    return sums[0] + sums[1] + sums[2] + sums[3]
