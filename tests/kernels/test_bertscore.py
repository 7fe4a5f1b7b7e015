"""BERTScore: the formulas, and attacks on every bound of the cascade.

Hypothesis draws token states that are hard on bounds: exact duplicates (tokens that are the centre of their cell), one
common direction, cosines below zero, signs that mix so that F1 does not rise with its parts, vectors with few
components, near-ties below float32, stored in both formats, in many widths and lengths. What a stage claims of a pair
is held against the plain scorer, and the search against the plain scorer on every pair.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metric_oracle.encoders.token_states import Tokens
from metric_oracle.indexes.bertscore import TokenQueries, TokenStateIndex
from metric_oracle.kernels.bertscore import cpu
from metric_oracle.kernels.bertscore.cpu import SLACK
from metric_oracle.kernels.bertscore.reference import precision_recall, score
from metric_oracle.kernels.bertscore.score import F1, PRECISION, RECALL, f1, rescale
from metric_oracle.kernels.topk.reference import select
from metric_oracle.retrieval.search import Found

PARTS = (PRECISION, RECALL, F1)
BASELINES = (None, (0.8, 0.75, 0.78), (-0.3, -0.9, -0.5))
# What rounding may take from a bound. The search allows SLACK for it.
ROUNDING = SLACK / 2
# Compiled code is made for read-only arrays, as those of an opened index are.
READ_ONLY = ("states", "ids", "ptr", "row_ptr", "row_id", "cell", "radius", "codes", "terms", "mean_along", "mean_off")


def examples(n: int) -> Callable[[Any], Any]:
    """Run a property on n drawn examples, the same ones every time."""
    return settings(max_examples=n, deadline=None, derandomize=True, database=None)


# ---- formulas --------------------------------------------------------------------------------------------------------


def test_f1_by_hand():
    assert f1(0.5, 0.25) == pytest.approx(1 / 3, rel=1e-15)
    assert f1(1.0, 1.0) == 1.0
    assert f1(0.0, 0.0) == f1(0.0, 0.7) == f1(0.7, 0.0) == f1(-0.7, 0.0) == 0.0
    assert f1(0.25, -0.25) == 0.0  # undefined: bert_score fills its NaN with 0
    assert f1(-0.5, -0.25) == pytest.approx(-1 / 3, rel=1e-15)
    assert f1(0.5, -0.25) == pytest.approx(-1.0, rel=1e-15)  # 2 * -0.125 / 0.25
    assert f1(0.25, -0.5) == pytest.approx(1.0, rel=1e-15)  # two bad parts give a good whole


def test_rescale_by_hand():
    assert rescale(0.9, 0.8) == pytest.approx(0.5, rel=1e-15)
    assert rescale(1.0, 0.8473319) == 1.0
    assert rescale(0.8, 0.8) == 0.0
    assert rescale(0.0, 0.8) == pytest.approx(-4.0, rel=1e-15)
    assert rescale(0.5, -1.0) == 0.75


class Side(NamedTuple):
    """What the plain scorer takes of one report."""

    states: np.ndarray
    weights: np.ndarray
    baseline: tuple[float, float, float] | None = None


def test_reference_by_hand():
    east, north, west = np.eye(2)[[0, 1, 0]] * [[1], [1], [-1]]
    candidate = Side(np.array([east, east, north], np.float32), np.array([0.0, 1.0, 3.0]))
    reference = Side(np.array([west, north, west], np.float32), np.array([0.0, 1.0, 1.0]))
    # Greatest cosines: 0, 0 and 1 for the candidate's tokens, 0, 1 and 0 for the reference's.
    assert score(candidate, reference) == (0.6, {"precision": 0.75, "recall": 0.5, "f1": 0.6})
    assert score(candidate, reference, PRECISION)[0] == 0.75
    assert score(candidate, reference, RECALL)[0] == 0.5
    rescaled = score(candidate, reference._replace(baseline=(0.5, 0.75, 0.2)), RECALL)
    assert rescaled == (-1.0, {"precision": 0.5, "recall": -1.0, "f1": (0.6 - 0.2) / 0.8})
    # No weight: 0. Two tokens, the special ones: 0 whatever their states.
    assert score(candidate._replace(weights=np.zeros(3)), reference)[1] == {"precision": 0.0, "recall": 0.5, "f1": 0.0}
    bare = Side(np.array([east, north], np.float32), np.ones(2))
    assert score(bare, bare)[0] == score(bare, reference)[0] == score(candidate, bare)[0] == 0.0
    opposite = Side(np.array([west] * 3, np.float32), np.ones(3))
    same = Side(np.array([east] * 3, np.float32), np.ones(3))
    assert score(same, opposite) == (-1.0, {"precision": -1.0, "recall": -1.0, "f1": -1.0})


def test_lengths_of_states_do_not_count():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 5)).astype(np.float32), rng.standard_normal((6, 5)).astype(np.float32)
    cosines = (a / np.linalg.norm(a, axis=1)[:, None]) @ (b / np.linalg.norm(b, axis=1)[:, None]).T
    got = precision_recall(a * 3, np.ones(4), b / 7, np.ones(6))
    assert got == pytest.approx((cosines.max(axis=1).mean(), cosines.max(axis=0).mean()), rel=1e-6)


# ---- drawn corpora ---------------------------------------------------------------------------------------------------


class World(NamedTuple):
    index: TokenStateIndex
    queries: TokenQueries
    weights: np.ndarray  # of each token id


def drawn_states(rng: np.random.Generator, kind: str, sizes: list[int], width: int, is_query: bool) -> np.ndarray:
    """Return token states of reports of some sizes."""
    n = sum(sizes)
    shared = np.random.default_rng(width)  # what both sides have in common
    common = shared.standard_normal(width)
    stems = shared.standard_normal((5, width))
    noise = rng.standard_normal((n, width))
    if kind == "random":
        states = noise
    elif kind == "common":
        states = 4 * common + noise
    elif kind == "opposite":
        states = (-1 if is_query else 1) * 2 * common + 0.5 * noise
    elif kind == "mixed":  # each report leans to one side by itself
        lean = np.repeat(rng.choice((-1.0, -0.2, 0.2, 1.0), len(sizes)), sizes)
        states = lean[:, None] * common + rng.choice((0.1, 1.0)) * noise
    elif kind == "few":  # also tokens that are the centre of their cell, and their opposites
        some = np.vstack([stems[: rng.integers(1, 4)], -stems[0]]) if rng.random() < 0.7 else stems
        states = some[rng.integers(0, len(some), n)]
    elif kind == "axes":
        states = np.eye(width)[rng.integers(0, min(width, 4), n)] * rng.choice((-1, 1), (n, 1))
    elif kind == "sparse":  # zeros, and numbers below what float16 and float32 hold in full
        tiny = rng.choice((0.0, 0.0, 1e-6, 1e-7, 1e-39, 1.0), (n, width))
        tiny[:, 0] += 0.5
        states = noise * tiny
    elif kind == "pole":  # precision -0.4 and recall about 0.4, by the special tokens: F1 falls and rises without end
        words, own, other = np.linalg.qr(shared.standard_normal((width, 3)))[0].T
        ends = np.cumsum(sizes)
        lean = 0.4 + rng.choice((-1, 1), len(sizes)) * 10.0 ** -rng.integers(1, 8, len(sizes))
        special = np.outer(lean, words) + np.outer(np.sqrt(1 - lean**2), own)
        if is_query:
            special = 0.4 * words + 0.84**0.5 * np.tile(other, (len(sizes), 1))
        states = (1 if is_query else -1) * words + rng.choice((0.0, 1e-4, 0.03)) * noise
        states[ends - sizes], states[ends - 1] = special, special
    else:  # "near": differences around float32's precision, and beneath it
        near = 10.0 ** -rng.integers(3, 9, (n, 1))
        states = stems[rng.integers(0, 3, n)] + near * noise
    return states / np.linalg.norm(states, axis=1, keepdims=True)


KINDS = ("random", "common", "opposite", "mixed", "few", "axes", "sparse", "pole", "near")


def drawn_tokens(rng: np.random.Generator, sizes: list[int]) -> Tokens:
    """Return token ids with the special ones, 0 and 1, around each report."""
    ptr = np.cumsum([0, *sizes])
    ids = rng.integers(2, 40, ptr[-1]).astype(np.int32)
    ids[ptr[:-1]], ids[ptr[1:] - 1] = 0, 1
    return Tokens(ids, ptr, 0)


def drawn_weights(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Return the weight of each token id; the special ones have none."""
    weights = np.ones(40) if kind == "off" else rng.exponential(2.0, 40)
    if kind == "zeros":
        weights[rng.random(40) < 0.6] = 0.0
    elif kind == "wild":
        weights = 10.0 ** rng.integers(-9, 9, 40)
    weights[:2] = 0.0
    return weights


def index_of(states: np.ndarray, tokens: Tokens, unit_of_row: np.ndarray) -> TokenStateIndex:
    """Index states in memory."""
    description = {"encoder": {"model": "drawn"}, "special_ids": [0, 1], "baseline": None, "truncated": 0}
    index = TokenStateIndex.from_states(states, tokens, unit_of_row, description)
    for name in READ_ONLY:
        getattr(index, name).flags.writeable = False
    return index


def draw(seed: int, kind: str, width: int, storage: str, weighing: str, n_units: int, lengths: tuple) -> World:
    """Return an index of drawn states and three queries."""
    rng = np.random.default_rng(seed)
    sizes = sorted(rng.choice(lengths[0], n_units).tolist(), reverse=True)
    tokens = drawn_tokens(rng, sizes)
    states = drawn_states(rng, kind, sizes, width, False).astype(storage)
    n_rows = n_units + rng.integers(0, n_units + 1)
    unit_of_row = rng.permutation(np.r_[np.arange(n_units), rng.integers(0, n_units, n_rows - n_units)])
    index = index_of(states, tokens, unit_of_row)
    weights = drawn_weights(rng, weighing)
    n_queries = 3
    asked_sizes = rng.choice(lengths[1], n_queries).tolist()
    asked = drawn_tokens(rng, asked_sizes)
    of_queries = drawn_states(rng, kind, asked_sizes, width, True).astype(storage)
    copied = int(rng.integers(n_units))  # the last query is a report of the corpus
    some = slice(tokens.ptr[copied], tokens.ptr[copied + 1])
    if sizes[copied] > 2:
        asked = Tokens(
            np.r_[asked.ids[: asked.ptr[-2]], tokens.ids[some]],
            np.r_[asked.ptr[:-1], asked.ptr[-2] + sizes[copied]],
            0,
        )
        of_queries = np.vstack([of_queries[: asked.ptr[-2]], states[some]])
    of_query = weights[asked.ids]
    for q in range(n_queries):  # a query without any weight is refused
        first = asked.ptr[q]
        if not of_query[first : asked.ptr[q + 1]].any():
            of_query[first + 1] = 0.7
    queries = TokenQueries(np.arange(n_queries), asked, of_queries, of_query, index.corpus(weights), None, index, {})
    return World(index, queries, weights)


def exact_of(world: World) -> list[np.ndarray]:
    """Return precision and recall of every unit for each query, by the plain scorer: float64[D, 2]."""
    index, queries = world.index, world.queries
    units = [queries.candidate(u) for u in range(len(index.ptr) - 1)]
    items = [queries.item(q) for q in range(len(queries.which))]
    return [
        np.array([precision_recall(c.states, c.weights, item.states, item.weights) for c in units]) for item in items
    ]


# ---- what the stages claim, and what the search finds ----------------------------------------------------------------


def check_bounds(world: World, q: int, exact: np.ndarray) -> None:
    """Hold what each stage claims of every unit against its precision and recall."""
    index, encoded = world.index, world.queries
    corpus = encoded.corpus
    n_units = len(index.ptr) - 1
    sizes = np.diff(index.ptr)
    query, unit = cpu.pack_query(encoded.states_of(q), encoded.weights_of(q), index.basis, index.direction)
    assert np.abs(np.linalg.norm(unit, axis=1) - 1).max() < 1e-6
    items = cpu.Items(np.arange(n_units, dtype=np.int32), np.zeros(n_units, np.float32), 0.0, True, index.row_ptr)
    work, _ = cpu._room({}, corpus, n_units, len(index.centers), len(unit), 1)
    cpu._fill_tables(index.centers @ unit.T, work, cpu._DOWN, cpu._UP)
    cpu._bound_precision(items, corpus, work, cpu._ABOVE, cpu._BELOW)
    error = corpus.norm_error + (index.states.shape[1] + 8) * 2.0**-24 * 1.01
    for u in range(n_units):
        if sizes[u] == 2 or len(unit) == 2:  # 0 by definition: no bound is asked
            continue
        precision, recall = exact[u]
        has_weight = world.weights[index.ids[index.ptr[u] : index.ptr[u + 1]]].any()
        # Cells, and means.
        assert precision <= work.upper[u] + ROUNDING
        assert not has_weight or work.lower[u] <= precision + ROUNDING
        assert recall <= cpu._bound_recall(u, corpus, query, work, cpu._ABOVE) + ROUNDING
        along, off = query.scalars[2:4].astype(np.float64)
        assert along * corpus.mean_along[u] - off * corpus.mean_off[u] <= recall + ROUNDING
        # Codes.
        high_precision, high_recall = cpu._bound_codes(u, corpus, query, work)
        low_precision, low_recall = cpu._bound_codes_below(u, corpus, query, work)
        assert low_precision - ROUNDING <= precision <= high_precision + ROUNDING or not has_weight
        assert low_recall - ROUNDING <= recall <= high_recall + ROUNDING
        # Products.
        cpu._widen(u, corpus, work)
        assert (work.wide[: sizes[u]] == index.states[index.ptr[u] : index.ptr[u + 1]]).all()
        near_precision, near_recall = cpu._approximate(u, corpus, query, work)
        assert abs(near_precision - precision) <= error + ROUNDING
        assert abs(near_recall - recall) <= error + ROUNDING
        # The last word.
        assert cpu._exact_pair(u, corpus, query, work) == (precision, recall)


def check_search(world: World, exact: list[np.ndarray], ks: tuple[int, ...]) -> None:
    """Compare rows, scores and ties of every part, with and without a baseline, with all pairs' own scores."""
    index = world.index
    n_units, n = len(index.ptr) - 1, len(exact)
    for baseline in BASELINES:
        encoded = replace(world.queries, baseline=baseline)
        for part in PARTS:
            of_query = []
            for pairs in exact:
                scores = [((p, r, f1(p, r))[part]) for p, r in pairs.tolist()]
                of_query.append(np.array([rescale(s, baseline[part]) if baseline else s for s in scores]))
            if part == F1:
                assert score(encoded.candidate(0), encoded.item(0), part)[0] == of_query[0][0]
            for k in ks:
                m = min(k, len(index.row_id))
                found = Found(np.full((n, m), -7), np.full((n, m), np.nan), np.full((n, m), -7))
                work = cpu.new_work(index)
                cpu.search(index, encoded, 0, n - 1, m, found, work, part=part)
                cpu.search(index, encoded, n - 1, n, m, found, work, part=part)
                for q in range(n):
                    expected = select(np.arange(n_units), of_query[q], index.row_ptr, index.row_id, m)
                    got = found.rows[q], found.scores[q], found.ties[q]
                    for one, two in zip(got, expected, strict=True):
                        assert one.tolist() == two.tolist(), (part, baseline, k, q)


def check(shape: tuple, seed: int, kind: str, width: int, storage: str, weighing: str) -> None:
    n_units, lengths, asked, widest = shape
    world = draw(seed, kind, min(width, widest), storage, weighing, n_units, (lengths, asked))
    exact = exact_of(world)
    for q, pairs in enumerate(exact):
        check_bounds(world, q, pairs)
    check_search(world, exact, (1, 3, 10, len(world.index.row_id)))


# Units, tokens of theirs and of queries, and the greatest width.
SHORT = {
    "one": (1, (2, 3, 7), (3, 4, 20), 384),
    "two": (2, (2, 3, 7), (3, 4, 20), 384),
    "barest": (17, (2, 3), (3,), 200),
    "medium": (17, (2, 3, 5, 15, 16, 17), (3, 5, 15, 16, 17, 33), 200),
}
LONG = {
    "many": (300, (2, 3, 4, 5, 6), (3, 5, 7), 65),
    "over 64": (5, (3, 48, 64, 65, 66), (3, 49, 64, 65, 70), 200),
    "over 128": (3, (2, 127, 128, 129, 140), (64, 128, 129, 131), 65),
}
SETTING = {
    "seed": st.integers(0, 2**32),
    "width": st.sampled_from((3, 8, 31, 64, 65, 200, 384)),
    "storage": st.sampled_from(("float32", "float16")),
    "weighing": st.sampled_from(("off", "idf", "zeros", "wild")),
}


@pytest.mark.parametrize("shape", SHORT)
@examples(60)
@given(kind=st.sampled_from(KINDS), **SETTING)
def test_bounds_hold_and_the_search_finds_the_best(shape, seed, kind, width, storage, weighing):
    check(SHORT[shape], seed, kind, width, storage, weighing)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", LONG)
@examples(5)
@given(**SETTING)
def test_bounds_hold_and_the_search_finds_the_best_of_more(shape, seed, kind, width, storage, weighing):
    check(LONG[shape], seed, kind, width, storage, weighing)


def test_lanes_without_a_token_claim_nothing():
    """They once stood for cosines of 0 where a token is the centre of its cell: the best report here was dropped."""
    a, b, c, d = np.eye(8)[:4]
    best = np.stack([a, b, b, a])  # precision -0.15 and recall 0.13, so an F1 of 2.4
    reports = [np.stack([a] * 200)] * 5 + [np.stack([b] * 200)] * 5 + [best]
    asked = np.stack([0.5 * a - 0.8 * b + 0.11**0.5 * c, 0.5 * a - 0.8 * b + 0.11**0.5 * d, -0.6 * a - 0.8 * b])
    ptr = np.cumsum([0, *map(len, reports)])
    tokens = Tokens(np.full(ptr[-1], 5, np.int32), ptr, 0)
    index = index_of(np.vstack(reports).astype(np.float32), tokens, np.arange(11))
    assert len(index.centers) == 2
    weights = np.ones(6)
    asked_tokens = Tokens(np.full(3, 5, np.int32), np.array([0, 3]), 0)
    corpus = index.corpus(weights)
    queries = TokenQueries(np.array([0]), asked_tokens, asked.astype(np.float32), np.ones(3), corpus, None, index, {})
    world = World(index, queries, weights)
    exact = exact_of(world)
    assert np.argmax([f1(*pair) for pair in exact[0].tolist()]) == 10
    check_bounds(world, 0, exact[0])
    check_search(world, exact, (1, 3, 11))


def test_the_stages_drop_what_they_can():
    """Bounds that let everything pass would screen nothing."""
    rng = np.random.default_rng(3)
    sizes = sorted(rng.integers(3, 9, 600).tolist(), reverse=True)
    common = rng.standard_normal(48)
    stems = common + rng.standard_normal((40, 48))
    states = stems[rng.integers(0, 40, sum(sizes))] + 0.05 * rng.standard_normal((sum(sizes), 48))
    states = (states / np.linalg.norm(states, axis=1, keepdims=True)).astype(np.float32)
    index = index_of(states, drawn_tokens(rng, sizes), np.arange(600))
    asked = drawn_tokens(rng, [6])
    queries = TokenQueries(np.array([0]), asked, states[:6], (asked.ids > 1) * 1.0, index._corpus_off, None, index, {})
    work = cpu.new_work(index)
    found = Found(np.full((1, 1), -7), np.zeros((1, 1)), np.zeros((1, 1), np.int64))
    cpu.search(index, queries, 0, 1, 1, found, work)
    shares = cpu.stages([work, {}])
    assert list(shares) == [*cpu.STAGES, "scored"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["scored"] < 0.05
    assert cpu.stages([]) == {"scored": 1.0}  # nothing was bounded
