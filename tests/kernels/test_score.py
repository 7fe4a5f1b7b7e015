"""Textbook checks of every `score.py`: both sides of all other kernel tests share these functions.

Values are worked out by hand, in the comment or the expression beside them. The searches rely on scores that rise with
each match count and on compiled results that equal the plain ones to the last bit.
"""

import itertools
import math
from fractions import Fraction

import numba
import numpy as np
import pytest

from metric_oracle.kernels.bleu.reference import score as bleu_of_tokens
from metric_oracle.kernels.bleu.score import EXACT_LENGTH, bleu, brevity, geometric_mean, precision
from metric_oracle.kernels.cosine.score import cosine
from metric_oracle.kernels.radgraph.score import f1, mean_f1
from metric_oracle.kernels.rouge_l.reference import score as rouge_of_tokens
from metric_oracle.kernels.rouge_l.score import common, rouge_l

FORMS = [pytest.param(False, id="fast_bleu"), pytest.param(True, id="coco")]

# ---- BLEU ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matches", "length", "reference_length", "order", "expected"),
    [
        ((4, 3, 2, 1), 4, 4, 4, 1.0),
        ((3, 0, 0, 0), 4, 4, 1, 0.75),
        ((3, 2, 0, 0), 4, 4, 2, math.sqrt(3 / 4 * 2 / 3)),
        ((3, 2, 1, 0), 4, 4, 3, (3 / 4 * 2 / 3 * 1 / 2) ** (1 / 3)),
        ((3, 2, 1, 0), 4, 4, 4, (3 / 4 * 2 / 3 * 1 / 2 * 0.1) ** 0.25),  # smoothed: 0.1 / 1
        ((2, 0, 0, 0), 8, 8, 2, math.sqrt(2 / 8 * 0.1 / 7)),
        ((1, 0, 0, 0), 1, 1, 2, math.sqrt(0.1)),  # no bigram in one token: 0.1 / max(0, 1)
        ((1, 0, 0, 0), 1, 1, 4, 0.1**0.75),
        ((0, 0, 0, 0), 5, 5, 2, 0.0),
        ((0, 0, 0, 0), 0, 5, 2, 0.0),
        ((0, 0, 0, 0), 0, 0, 1, 0.0),
        ((2, 0, 0, 0), 2, 3, 1, math.exp(1 - 3 / 2)),
        ((2, 0, 0, 0), 4, 3, 1, 0.5),  # longer than the reference: no penalty
    ],
)
def test_bleu_by_hand(matches, length, reference_length, order, expected):
    assert bleu(*matches, length, reference_length, order, False) == pytest.approx(expected, rel=1e-15)
    # coco: 1e-15 instead of 0.1 for "none", so only pairs without a smoothed order agree
    if all(matches[:order]) or not matches[0]:
        assert bleu(*matches, length, reference_length, order, True) == pytest.approx(expected, rel=1e-8)


def test_equal_means_of_precisions_are_equal_floats():
    """3/7 x .1/6 = 4/8 x .1/7: products of rounded precisions told them apart and broke true ties."""
    query = ("a", "b", "c", "d")
    rows = [tuple(row.split()) for row in ("a x d x b b d", "d d d a c b d x")]
    assert [bleu_of_tokens(row, query, order=2, coco=False)[0] for row in rows] == [math.sqrt(1 / 140)] * 2
    means: dict[tuple[int, Fraction], set[float]] = {}
    for length in range(1, 13):
        totals = [max(length - n, 1) for n in range(4)]
        for m in itertools.product(*(range(n == 0, total + 1) for n, total in enumerate(totals))):
            if all(after <= max(before - 1, 0) or not after for before, after in itertools.pairwise(m)):
                exact = Fraction(1)
                for order in (1, 2, 3, 4):
                    exact *= Fraction(10 * m[order - 1] or 1, 10 * totals[order - 1])
                    means.setdefault((order, exact), set()).add(geometric_mean(*m, length, order, False))
    assert len(means) > 1000
    assert all(len(floats) == 1 for floats in means.values())
    ties = [(m2, m1) for m1, m2 in itertools.product(range(1, 40), repeat=2)]
    for m1, m2 in ties:  # of one length, of the other form too
        assert bleu(m1, m2, 0, 0, 50, 60, 4, True) == bleu(m2, m1, 0, 0, 50, 60, 4, True)


@pytest.mark.parametrize(("order", "length"), list(enumerate(EXACT_LENGTH, 1)))
def test_products_are_exact_up_to_the_stated_length(order, length):
    def denominator(length: int) -> int:
        return math.prod((length - n) * (10 if n else 1) for n in range(order))

    assert denominator(length) <= 2**53 < denominator(length + 1)
    if order > 1:  # then a mean is the root of the one nearest float to the exact fraction
        root = {2: math.sqrt, 3: lambda x: x ** (1 / 3), 4: lambda x: math.sqrt(math.sqrt(x))}[order]
        for m1 in (1, 2, 3, 7, length // 3, length):
            assert geometric_mean(m1, 0, 0, 0, length, order, False) == root(m1 / denominator(length))
    # beyond it products are rounded, alike in compiled and plain Python, and nothing overflows
    lengths = np.array([[length + 1, 9], [2**31 - 5, 2**31 - 1]]) if order > 1 else np.array([[2**31 - 5, 2**31 - 1]])
    matches = np.array([[c - 1, c // 2, c // 3, 0] for c in lengths[:, 0]])
    out = np.empty(len(matches))
    _compiled_bleu(matches, lengths, order, False, out)
    plain = [bleu(*m, *both, order, False) for m, both in zip(matches.tolist(), lengths.tolist(), strict=True)]
    assert out.tolist() == plain
    assert all(0 < value < 1 for value in plain)


def test_bleu_of_an_identical_pair():
    for order in (1, 2, 3, 4):
        assert bleu(30, 29, 28, 27, 30, 30, order, False) == 1.0
        assert bleu(30, 29, 28, 27, 30, 30, order, True) < 1.0
    # orders 1 and 2: each precision is n / (n + 1e-9), the penalty exp(1 - (n + 1e-9) / n)
    expected = math.sqrt(4 / (4 + 1e-9) * 3 / (3 + 1e-9)) * math.exp(-1e-9 / 4)
    assert bleu(4, 3, 0, 0, 4, 4, 2, True) == pytest.approx(expected, rel=1e-15)
    # the value of pycocoevalcap 1.2 that the documentation quotes: BLEU-4 of four tokens with themselves
    assert bleu(4, 3, 2, 1, 4, 4, 4, True) == pytest.approx(0.99999999923, abs=5e-12)


@pytest.mark.parametrize("coco", FORMS)
def test_a_report_without_a_common_word_scores_zero_and_any_common_word_more(coco):
    for order in (1, 2, 3, 4):
        assert bleu(0, 0, 0, 0, 7, 5, order, coco) == 0.0
        for length in (1, 2, 3, 7, 400):
            assert bleu(1, 0, 0, 0, length, 5, order, coco) > 0.0


def test_brevity_penalty_edges():
    assert brevity(5, 5, False) == 1.0
    assert brevity(6, 5, False) == 1.0
    assert brevity(4, 5, False) == math.exp(-0.25)
    assert brevity(1, 100, False) == math.exp(-99)
    assert brevity(3, 0, False) == brevity(3, 0, True) == 1.0
    assert brevity(6, 5, True) == 1.0
    assert brevity(5, 5, True) == pytest.approx(1 - 1e-9 / 5, abs=1e-15)
    assert brevity(5, 5, True) < 1.0
    assert brevity(4, 5, True) == pytest.approx(math.exp(-0.25), rel=1e-9)


@pytest.mark.parametrize("coco", FORMS)
def test_brevity_penalty_rises_with_the_length(coco):
    for reference_length in (1, 2, 7, 50):
        values = [brevity(length, reference_length, coco) for length in range(1, reference_length + 3)]
        assert values == sorted(values)
        assert len(set(values[:reference_length])) == reference_length
        assert values[0] > 0
        assert values[-1] == 1.0


def test_precision_smoothing():
    assert precision(3, 4, False) == 0.75
    assert precision(0, 4, False) == 0.1 / 4
    assert precision(0, 0, False) == 0.1
    assert precision(0, 4, True) == 1e-15 / (4 + 1e-9)
    assert precision(0, 0, True) == 1e-15 / 1e-9
    assert precision(3, 4, True) == (3 + 1e-15) / (4 + 1e-9)


@pytest.mark.parametrize("coco", FORMS)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_bleu_rises_with_every_match_that_counts(order, coco):
    """The bounds count on it: one match more of an order never lowers the score."""
    for length in (1, 2, 3, 4, 5, 9):
        most = [max(length - n, 0) for n in range(4)]
        for matches in itertools.product(*(range(m + 1) for m in most)):
            for n in range(4):
                if matches[n] < most[n]:
                    more = (*matches[:n], matches[n] + 1, *matches[n + 1 :])
                    before, after = (bleu(*m, length, 6, order, coco) for m in (matches, more))
                    assert after > before if n < order and (n == 0 or matches[0]) else after == before


@pytest.mark.parametrize(
    ("hypothesis", "bigram", "trigram"),
    [
        ("It is a guide to action which ensures that the military always obeys the commands of the party",
         0.7453559924999299, 0.6240726901657495),
        ("he read the book because he was interested in world history", 0.0191380231127159, 0.013720869575946234),
    ],
)  # fmt: skip
def test_bleu_of_the_readme_of_fast_bleu(hypothesis, bigram, trigram):
    """The two examples of fast_bleu 0.0.90's README, which have three references.

    fast_bleu clips by the largest count in any reference and takes the closest reference length. The functions here
    take counts, so the example is worked out beside them.
    """
    texts = (
        "It is a guide to action that ensures that the military will forever heed Party commands",
        "It is the guiding principle which guarantees the military forces always being under the command of the Party",
        "It is the practical guide for the army always to heed the directions of the party",
    )
    references = [text.split() for text in texts]
    words = hypothesis.split()

    def grams(tokens: list[str], n: int) -> list[tuple]:
        return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]

    matches = []
    for n in (1, 2, 3):
        own = grams(words, n)
        most = {g: max(grams(r, n).count(g) for r in references) for g in set(own)}
        matches.append(sum(min(own.count(g), most[g]) for g in set(own)))
    closest = min((abs(len(r) - len(words)), len(r)) for r in references)[1]
    assert bleu(*matches, 0, len(words), closest, 2, False) == pytest.approx(bigram, rel=1e-13)
    # its weights are float32: 1/3 is off by 1e-8
    assert bleu(*matches, 0, len(words), closest, 3, False) == pytest.approx(trigram, rel=1e-6)


def test_bleu_reference_clips_counts():
    score, components = bleu_of_tokens(("the",) * 7, ("the", "cat", "is", "on", "the", "mat"), order=1, coco=False)
    assert score == 2 / 7  # Papineni et al., section 2.1.1
    assert components == {"precision_1": 2 / 7, "brevity_penalty": 1.0}
    score, components = bleu_of_tokens(("a", "b"), ("a", "b", "a", "b"), order=2, coco=False)
    assert score == pytest.approx(math.exp(-1))
    assert components == {"precision_1": 1.0, "precision_2": 1.0, "brevity_penalty": math.exp(-1)}


# ---- ROUGE-L, RadGraph, CheXbert -------------------------------------------------------------------------------------


def test_rouge_l_by_hand():
    assert rouge_l(0, 0, 0) == rouge_l(0, 3, 4) == 0.0
    assert rouge_l(5, 5, 5) == 1.0
    assert rouge_l(3, 4, 8) == 0.5  # precision 3/4, recall 3/8
    # Lin 2004: "police kill the gunman" against "police killed the gunman": 3 of 4 words in order
    lin = [
        tuple(text.split()) for text in ("police killed the gunman", "police kill the gunman", "the gunman kill police")
    ]
    assert rouge_of_tokens(lin[1], lin[0])[0] == 0.75
    assert rouge_of_tokens(lin[2], lin[0])[0] == 0.5
    assert rouge_of_tokens(("a", "b", "c"), ("b", "x", "c", "a", "y")) == (0.5, {"precision": 2 / 3, "recall": 2 / 5})
    assert rouge_of_tokens((), ("a",)) == (0.0, {"precision": 0.0, "recall": 0.0})


def test_rouge_l_of_coco_by_hand():
    assert rouge_l(0, 0, 0, True) == rouge_l(0, 3, 4, True) == 0.0
    assert rouge_l(5, 5, 5, True) == 1.0
    assert rouge_l(3, 4, 8, True) == 183 / 388  # 2.44 x 3 / (4 + 1.44 x 8)
    assert rouge_l(3, 8, 4, True) == 183 / 344
    assert common(rouge_l(7, 9, 11, True), 9, 11, True) == pytest.approx(7)


def test_f1_by_hand():
    assert f1(0, 0, 0) == f1(0, 3, 0) == f1(0, 0, 3) == 0.0
    assert f1(4, 4, 4) == 1.0
    assert f1(2, 3, 4) == 4 / 7  # precision 2/3, recall 1/2
    assert mean_f1(2, 3 + 4, 0, 0) == 2 / 7  # no relation anywhere counts as 0
    assert mean_f1(0, 0, 0, 0) == mean_f1(0, 5, 0, 3) == 0.0
    assert mean_f1(4, 8, 3, 6) == 1.0
    assert mean_f1(2, 7, 1, 4) == 15 / 28  # (4/7 + 1/2) / 2


@pytest.mark.parametrize("function", [rouge_l, f1])
def test_f_measures_rise_with_matches_and_fall_with_sizes(function):
    for size, reference in itertools.product(range(1, 9), repeat=2):
        values = [function(matched, size, reference) for matched in range(min(size, reference) + 1)]
        assert values == sorted(set(values))
        for matched in range(1, min(size, reference) + 1):
            assert function(matched, size, reference) == function(matched, reference, size)
            assert function(matched, size + 1, reference) < function(matched, size, reference)
            p, r = matched / size, matched / reference
            assert function(matched, size, reference) == pytest.approx(2 * p * r / (p + r), rel=1e-14)


def test_equal_fractions_are_equal_floats():
    """Otherwise true ties would be broken by rounding: 2/5 from 1 of (2, 3), 2 of (4, 6), 3 of (7, 8), ..."""
    for function in (rouge_l, f1):
        assert len({function(m, 2 * m + d, 3 * m - d) for m in range(1, 200) for d in (0, m // 3)}) == 1
    means: dict[Fraction, set[float]] = {}
    for a, b in itertools.product(range(15), repeat=2):
        for sizes_a, sizes_b in itertools.product(range(15, 40), repeat=2):
            exact = Fraction(a, sizes_a) + Fraction(b, sizes_b)
            means.setdefault(exact, set()).add(mean_f1(a, sizes_a, b, sizes_b))
    assert all(floats == {float(exact)} for exact, floats in means.items())


def test_cosine_by_hand():
    assert cosine(0.0, 0.0, 1.0) == cosine(0.0, 1.0, 0.0) == cosine(0.0, 0.0, 0.0) == 0.0
    assert cosine(11.0, 5.0, 25.0) == 11 / math.sqrt(125)  # (1, 2) and (3, 4)
    assert cosine(-7, 7, 7) == -1.0
    for square in (0.1, 3.0, 1 / 3, 1e-150, 7e100):
        assert cosine(square, square, square) == 1.0


# ---- compiled and plain ----------------------------------------------------------------------------------------------


@numba.njit(error_model="numpy")
def _compiled_bleu(matches, lengths, order, coco, out):
    for i in range(len(matches)):
        m = matches[i]
        out[i] = bleu(m[0], m[1], m[2], m[3], lengths[i, 0], lengths[i, 1], order, coco)


@pytest.mark.parametrize("coco", FORMS)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_compiled_bleu_equals_plain_bleu_bit_for_bit(order, coco):
    rng = np.random.default_rng(order)
    lengths = rng.integers(1, 60, (20_000, 2))
    lengths[:2500] = list(itertools.product(range(1, 51), repeat=2))
    totals = np.maximum(lengths[:, :1] - np.arange(4), 0)
    matches = rng.integers(0, totals + 1)
    matches[::7, 1:] = 0
    out = np.empty(len(matches))
    _compiled_bleu(matches, lengths, order, coco, out)
    plain = [bleu(*m, *length, order, coco) for m, length in zip(matches.tolist(), lengths.tolist(), strict=True)]
    assert out.tolist() == plain
    means = [
        geometric_mean(*m, length[0], order, coco) for m, length in zip(matches.tolist(), lengths.tolist(), strict=True)
    ]
    assert all(score <= mean for score, mean, m in zip(plain, means, matches, strict=True) if m[0])


@numba.njit(error_model="numpy")
def _compiled_f1(counts, out):
    for i in range(len(counts)):
        a, b, c = counts[i]
        out[i, 0] = f1(a, b, c)
        out[i, 1] = rouge_l(a, b, c)
        out[i, 2] = mean_f1(a, b + c, a, c + 3)


def test_compiled_f_measures_equal_plain_ones_bit_for_bit():
    counts = np.array([[a, b, c] for a, b, c in itertools.product(range(28), repeat=3) if a <= min(b, c)])
    out = np.empty((len(counts), 3))
    _compiled_f1(counts, out)
    plain = [[f1(a, b, c), rouge_l(a, b, c), mean_f1(a, b + c, a, c + 3)] for a, b, c in counts.tolist()]
    assert out.tolist() == plain


@numba.njit(error_model="numpy")
def _compiled_cosine(values, out):
    for i in range(len(values)):
        out[i] = cosine(values[i, 0], values[i, 1], values[i, 2])


def test_compiled_cosine_equals_plain_cosine_bit_for_bit():
    rng = np.random.default_rng(3)
    values = np.vstack([rng.uniform(0, 2, (5000, 3)), [[0, 0, 1], [0, 1, 0], [0, 0, 0]]])
    whole = np.array(list(itertools.product(range(-14, 15), range(15), range(15))), np.float64)
    for table in (values, whole):
        out = np.empty(len(table))
        _compiled_cosine(table, out)
        assert out.tolist() == [cosine(*row) for row in table.tolist()]
