"""BERTScore: the formulas, and attacks on every bound of the cascade.

Hypothesis draws token states that are hard on bounds: exact duplicates (tokens that are the centre of their cell), one
common direction, cosines below zero, signs that mix so that F1 does not rise with its parts, vectors with few
components, near-ties below float32, stored in both formats, in many widths and lengths. What a stage claims of a pair
is held against the plain scorer, and the search against the plain scorer on every pair.
"""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metric_oracle.base.errors import ExactnessError
from metric_oracle.encoders.token_states import Tokens
from metric_oracle.indexes.bertscore import StateDocuments, TokenItem
from metric_oracle.kernels._errors import check_bounds, sample_size
from metric_oracle.kernels.bertscore import all_pairs, bounds, cpu, pair
from metric_oracle.kernels.bertscore import exact as products
from metric_oracle.kernels.bertscore.bounds import UNIT
from metric_oracle.kernels.bertscore.query import TokenBatch, TokenCorpus
from metric_oracle.kernels.bertscore.reference import precision_recall, sides
from metric_oracle.kernels.bertscore.reference import score as plain_score
from metric_oracle.kernels.bertscore.score import F1, PRECISION, RECALL, f1, rescale
from metric_oracle.kernels.contract import Answers, read_only
from metric_oracle.kernels.topk.reference import select
from metric_oracle.metrics import METRICS
from metric_oracle.retrieval.kernels import arrays_of
from support import examples

PARTS = (PRECISION, RECALL, F1)
BASELINES = (None, (0.8, 0.75, 0.78), (-0.3, -0.9, -0.5))


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


def score(candidate: Side, reference: Side, part: int = F1, scorer: Callable = plain_score) -> Any:
    """Score two sides whose tokens all have weights of their own."""
    ids = np.arange(len(candidate.states))
    item = TokenItem(reference.states, ids, reference.weights, candidate.weights, reference.baseline)
    return scorer(TokenItem(candidate.states, ids), item, part)


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


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("baseline", [None, (0.3, 0.4, 0.35)])
def test_compiled_scores_of_pairs_have_the_bits_of_the_plain_scorer(part, baseline):
    rng = np.random.default_rng(part)
    for n, m, width in [(2, 5, 8), (5, 2, 8), (3, 3, 1), (9, 4, 33), (40, 70, 384), (3, 130, 16)]:
        states = [rng.standard_normal((size, width)).astype(np.float32) for size in (n, m)]
        states[1][0] = states[0][0]  # a cosine of exactly 1
        states[1][1] = 0.0
        for weights in (np.ones, np.zeros, rng.random):
            candidate, reference = (Side(of_side, weights(len(of_side)), baseline) for of_side in states)
            assert score(candidate, reference, part, pair.score) == score(candidate, reference, part)


# ---- drawn corpora ---------------------------------------------------------------------------------------------------


class World(NamedTuple):
    index: StateDocuments
    queries: StateDocuments
    weights: np.ndarray  # of each token id
    wrong: TokenCorpus | None = None  # what stands for the arrays of the corpus

    @property
    def corpus(self) -> TokenCorpus:
        """The arrays that the kernels read."""
        return read_only(self.index.arrays(METRICS["bertscore"], self.queries) if self.wrong is None else self.wrong)


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


def batch_of(queries: StateDocuments) -> TokenBatch:
    """Return the arrays of queries; as in a search, for others would be compiled for once more."""
    return read_only(queries.translate(METRICS["bertscore"], queries))


def queries_of(states: np.ndarray, tokens: Tokens, weights: np.ndarray, weight_of_id: np.ndarray) -> StateDocuments:
    """Return queries with these token states, each of them another one."""
    rows = np.arange(len(tokens.ptr)), np.arange(len(tokens.ptr) - 1)
    return StateDocuments(states, tokens.ids, tokens.ptr, *rows, weights=weights, weight_of_id=weight_of_id)


def index_of(states: np.ndarray, tokens: Tokens, document_of_row: np.ndarray) -> StateDocuments:
    """Index states in memory."""
    description = {"encoder": {"model": "drawn"}, "special_ids": [0, 1], "baseline": None, "truncated": 0}
    return StateDocuments.from_states(states, tokens, document_of_row, description)


def draw(seed: int, kind: str, width: int, storage: str, weighing: str, n_units: int, lengths: tuple) -> World:
    """Return an index of drawn states and three queries."""
    rng = np.random.default_rng(seed)
    sizes = sorted(rng.choice(lengths[0], n_units).tolist(), reverse=True)
    tokens = drawn_tokens(rng, sizes)
    states = drawn_states(rng, kind, sizes, width, False).astype(storage)
    n_rows = n_units + rng.integers(0, n_units + 1)
    document_of_row = rng.permutation(np.r_[np.arange(n_units), rng.integers(0, n_units, n_rows - n_units)])
    index = index_of(states, tokens, document_of_row)
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
    queries = queries_of(of_queries, asked, of_query, weights)
    return World(index, queries, weights)


def exact_of(world: World) -> list[np.ndarray]:
    """Return precision and recall of every unit for each query, by the plain scorer: float64[D, 2]."""
    index, queries = world.index, world.queries
    units = [index.item(u) for u in range(len(index.ptr) - 1)]
    items = [queries.item(q) for q in range(len(queries.document_of_row))]
    return [np.array([precision_recall(*sides(c, item)) for c in units]) for item in items]


# ---- what the stages claim, and what the search finds ----------------------------------------------------------------


def check_stages(world: World, q: int, exact: np.ndarray) -> None:
    """Hold what each stage claims of every unit against its precision and recall."""
    index, encoded = world.index, world.queries
    corpus = world.corpus
    n_units = len(index.ptr) - 1
    sizes = np.diff(index.ptr)
    batch = batch_of(encoded)
    query, unit = cpu.pack_query(batch.states_of(q), batch.weights_of(q), corpus.basis, corpus.direction)
    assert np.abs(np.linalg.norm(unit, axis=1) - 1).max() < 1e-6
    units = np.arange(n_units, dtype=np.int32)
    units.flags.writeable = False
    work = cpu.new_scratch({}, corpus, n_units, len(corpus.centers), len(unit), 1)[0]
    margins = bounds.margins_of(index.states.shape[1], corpus.norm_error)
    tables = bounds.angle_tables(margins)
    bounds.fill_tables(corpus.centers @ unit.T, 0, margins.rise, work, tables)
    bounds.bound_precisions(units, corpus, work, margins)
    ranking = bounds.Ranking(F1, corpus, query, margins)
    for u in range(n_units):
        if sizes[u] == 2 or len(unit) == 2:  # 0 by definition: no bound is asked
            continue
        precision, recall = exact[u]
        has_weight = world.weights[index.ids[index.ptr[u] : index.ptr[u + 1]]].any()
        # Cells, and means.
        assert precision <= work.upper[u]
        assert not has_weight or work.lower[u] <= precision
        assert recall <= _bound_recall(u, ranking, work)
        assert bounds.bound_means(u, ranking) <= recall
        # Codes.
        args = u, work.upper[u], ranking, work
        high_precision, high_recall, *_ = _bound_by_codes(*args, True)
        *_, mixed_precision, mixed_recall = _bound_by_codes(*args, False)
        assert precision <= mixed_precision
        assert recall <= mixed_recall
        low_precision, low_recall = _bound_codes_below(u, ranking, work)
        assert low_precision <= precision <= high_precision or not has_weight
        assert low_recall <= recall <= high_recall
        # Products.
        _widen(u, corpus, work)
        assert (work.wide[: sizes[u]] == index.states[index.ptr[u] : index.ptr[u + 1]]).all()
        near_precision, near_recall = _approximate(u, corpus, query, work)
        assert abs(near_precision - precision) <= margins.product
        assert abs(near_recall - recall) <= margins.product
        # The last word.
        assert products.exact_pair(u, corpus, query, work) == (precision, recall)


@numba.njit
def _bound_recall(u, ranking, work):
    return bounds.bound_recall(u, ranking, work)


@numba.njit
def _bound_by_codes(u, precision, ranking, work, is_whole):
    known = bounds.Known(np.float64(precision), np.inf, 0.0, -np.inf, is_whole)
    return bounds.bound_by_codes(u, known, ranking, work)


@numba.njit
def _bound_codes_below(u, ranking, work):
    return bounds.bound_codes_below(u, ranking, work)


@numba.njit
def _widen(u, corpus, work):
    products.widen(u, corpus, work)


@numba.njit
def _approximate(u, corpus, query, work):
    return products.approximate(u, corpus, query, work)


def check_search(world: World, exact: list[np.ndarray], ks: tuple[int, ...]) -> None:
    """Compare rows, scores and ties of every part, with and without a baseline, with all pairs' own scores."""
    index, corpus = world.index, world.corpus
    n_units, n = len(index.ptr) - 1, len(exact)
    for baseline in BASELINES:
        encoded = replace(world.queries, baseline=baseline)
        for part in PARTS:
            of_query = []
            for pairs in exact:
                scores = [((p, r, f1(p, r))[part]) for p, r in pairs.tolist()]
                of_query.append(np.array([rescale(s, baseline[part]) if baseline else s for s in scores]))
            if part == F1:
                assert plain_score(index.item(0), encoded.item(0), part)[0] == of_query[0][0]
            whole = [select(np.arange(n_units), some, index.row_ptr, index.row_id, max(ks)) for some in of_query]
            for k in ks[1::2] if baseline else ks:
                m = min(k, len(index.row_id))
                found = Answers(np.full((n, m), -7), np.full((n, m), np.nan), np.full((n, m), -7), np.full(n, -np.inf))
                kernel, work = cpu.Backend(part), {}
                kernel.search(corpus, batch_of(encoded), range(n - 1), m, found, work)
                kernel.search(corpus, batch_of(encoded), range(n - 1, n), m, found, work)
                for q in range(n):
                    got = found.rows[q], found.scores[q], found.ties[q]
                    for one, two in zip(got, whole[q], strict=True):
                        assert one.tolist() == two[:m].tolist(), (part, baseline, k, q)


def check_all_pairs(world: World, exact: list[np.ndarray]) -> None:
    """Compare what describes random retrieval with the plain scorer, within the error that is stated."""
    for part, baseline in ((PRECISION, None), (RECALL, BASELINES[1]), (F1, None), (F1, BASELINES[2])):
        encoded, kernel = replace(world.queries, baseline=baseline), cpu.Backend(part)
        corpus, batch = world.corpus, batch_of(encoded)
        error = kernel.score_error(corpus, batch)
        assert error < (2e-6 if baseline is None else 1e-5)
        for scores, pairs in zip(kernel.score_all(corpus, batch, range(len(exact))), exact, strict=True):
            expected = [(p, r, f1(p, r))[part] for p, r in pairs.tolist()]
            expected = [rescale(x, baseline[part]) for x in expected] if baseline else expected
            assert np.abs(scores - expected).max() <= error


def check(shape: tuple, seed: int, kind: str, width: int, storage: str, weighing: str) -> None:
    n_units, lengths, asked, widest = shape
    world = draw(seed, kind, min(width, widest), storage, weighing, n_units, (lengths, asked))
    exact = exact_of(world)
    for q, pairs in enumerate(exact):
        check_stages(world, q, pairs)
    check_all_pairs(world, exact)
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


@pytest.mark.parametrize("k", [1, 7, 400])
def test_tiles_find_what_the_whole_does(k, monkeypatch):
    """The scratch of a thread is that of one tile, and ties across tiles keep their order."""
    world = draw(5, "few", 33, "float16", "idf", 150, ((2, 3, 5, 8), (3, 5, 7)))
    exact = exact_of(world)
    monkeypatch.setattr(cpu, "TILE", 64)
    check_search(world, exact, (k,))
    work = searched(world, min(k, 150))[1]
    assert work["scratch"].upper.shape[0] == work["answers"].item.shape[0] == 64


def test_lanes_without_a_token_claim_nothing():
    """They once stood for cosines of 0 where a token is the centre of its cell: the best report here was dropped."""
    a, b, c, d = np.eye(8)[:4]
    best = np.stack([a, b, b, a])  # precision -0.15 and recall 0.13, so an F1 of 2.4
    reports = [np.stack([a] * 200)] * 5 + [np.stack([b] * 200)] * 5 + [best]
    asked = np.stack([0.5 * a - 0.8 * b + 0.11**0.5 * c, 0.5 * a - 0.8 * b + 0.11**0.5 * d, -0.6 * a - 0.8 * b])
    ptr = np.cumsum([0, *map(len, reports)])
    tokens = Tokens(np.full(ptr[-1], 5, np.int32), ptr, 0)
    index = index_of(np.vstack(reports).astype(np.float32), tokens, np.arange(11))
    assert len(index.screens["centers"]) == 2
    weights = np.ones(6)
    asked_tokens = Tokens(np.full(3, 5, np.int32), np.array([0, 3]), 0)
    queries = queries_of(asked.astype(np.float32), asked_tokens, np.ones(3), weights)
    world = World(index, queries, weights)
    exact = exact_of(world)
    assert np.argmax([f1(*pair) for pair in exact[0].tolist()]) == 10
    check_stages(world, 0, exact[0])
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
    weight_of_id = index.weights_off(len(index.frequency))
    queries = queries_of(states[:6], asked, (asked.ids > 1) * 1.0, weight_of_id)
    work: dict = {}
    found = Answers(np.full((1, 1), -7), np.zeros((1, 1)), np.zeros((1, 1), np.int64), np.full(1, -np.inf))
    corpus, batch = arrays_of(METRICS["bertscore"], index, queries)
    cpu.Backend().search(corpus, batch, range(1), 1, found, work)
    shares = cpu.stages([work, {}])
    closest = shares.pop("closest_call")
    assert list(shares) == [*cpu.STAGES, "scored"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert list(closest) == list(cpu.STAGES)
    assert min(closest.values()) >= 0
    assert shares["scored"] < 0.05
    assert cpu.stages([]) == {"scored": 1.0}  # nothing was bounded


# ---- bounds are checked by the search itself -------------------------------------------------------------------------


WIDTH, NOISE = 200, 0.4  # more than codes hold: they leave some to the products


def leaning_world(n_units: int) -> World:
    """Return reports around a common direction, so that F1 rises with its parts and every stage drops some."""
    rng = np.random.default_rng(8)
    sizes = sorted(rng.integers(3, 12, n_units).tolist(), reverse=True)
    common, stems = rng.standard_normal(WIDTH), rng.standard_normal((60, WIDTH))
    states = common + stems[rng.integers(0, 60, sum(sizes))] + NOISE * rng.standard_normal((sum(sizes), WIDTH))
    states = (states / np.linalg.norm(states, axis=1, keepdims=True)).astype(np.float32)
    tokens = drawn_tokens(rng, sizes)
    index = index_of(states, tokens, np.arange(n_units))
    asked = common + stems[rng.integers(0, 60, 7)] + NOISE * rng.standard_normal((7, WIDTH))
    asked[0] = states[0]
    asked_tokens = drawn_tokens(rng, [7])
    weights = (asked_tokens.ids > 1) * 1.0
    weight_of_id = index.weights_off(len(index.frequency))
    queries = queries_of(asked.astype(np.float32), asked_tokens, weights, weight_of_id)
    return World(index, queries, weight_of_id)


def searched(world: World, k: int, threads: int = 1) -> tuple[Answers, dict]:
    n = len(world.queries.document_of_row)
    found = Answers(np.full((n, k), -7), np.full((n, k), np.nan), np.full((n, k), -7), np.full(n, -np.inf))
    work: dict = {}
    given = found._replace(threads=threads)
    cpu.Backend().search(world.corpus, batch_of(world.queries), range(n), k, given, work)
    return found, work


def planted(world: World, stage: str, tokens: np.ndarray) -> World:
    """Return the world with bounds of a stage that lie below the scores of the reports of some tokens."""
    corpus = world.corpus
    if stage == "cells":  # in a cell on the other side, as if they were its centre
        cell, radius = corpus.cell.copy(), corpus.radius.copy()
        cell[tokens], radius[tokens] = len(corpus.centers), 0
        centers = np.vstack([corpus.centers, -corpus.direction])
        wrong = corpus._replace(cell=cell, radius=radius, centers=centers)
    elif stage == "codes":
        terms = corpus.terms.copy()
        terms[tokens, 2:] = [0.0, -0.3, 0.0]
        wrong = corpus._replace(terms=terms)
    else:  # of all reports at once
        wrong = corpus._replace(norm_error=-0.2)
    return world._replace(wrong=wrong)


@pytest.mark.parametrize("stage", cpu.STAGES)
def test_a_bound_below_a_score_that_another_way_admits_is_an_error(stage, monkeypatch):
    """All rows are asked for: nothing is dropped, the answer would be right, and the search stops all the same."""
    monkeypatch.setattr(cpu, "STARTS", 10)  # the warm start sees no float32 products: most are to come after them
    monkeypatch.setattr(cpu, "MOST_STARTS", 0)
    world = leaning_world(300)
    searched(world, 300)
    rule = rf"^the bound of stage '{stage}' must not lie below a score; got one [\d.e-]+ below\. This is"
    with pytest.raises(ExactnessError, match=rule):
        searched(planted(world, stage, np.arange(world.index.ptr[3], world.index.ptr[4])), 300)


@pytest.mark.parametrize("share", [-1, 0])
def test_codes_that_stand_for_other_states_are_an_error(share, monkeypatch):
    """Of all pairs: where codes are wrong, best matches are dropped, and the cosines that are computed tell."""
    world = leaning_world(40)
    kernel, queries, pack = cpu.Backend(), world.queries, all_pairs.pack
    assert len(list(kernel.score_all(world.corpus, batch_of(queries), [0]))) == 1

    def wrong(batch, places):
        packed = pack(batch, places)
        return packed._replace(codes=share * packed.codes)

    monkeypatch.setattr(all_pairs, "pack", wrong)
    rule = r"^the bound of stage 'codes' must not lie below a score; got one [\d.e-]+ below\. This is"
    with pytest.raises(ExactnessError, match=rule):
        next(kernel.score_all(world.corpus, batch_of(queries), [0]))


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_that_share_a_query_change_nothing(threads):
    """Neither the answers nor what each stage dropped, nor the closest calls."""
    world = leaning_world(600)
    alone, work = searched(world, 3)
    shared, of_threads = searched(world, 3, threads)
    assert len(of_threads["team"]) == threads
    for one, other in zip(alone[:3], shared[:3], strict=True):
        assert one.tobytes() == other.tobytes()
    for name in ("counts", "closest"):
        assert work[name].tobytes() == of_threads[name].tobytes()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("stage", cpu.STAGES)
def test_bounds_below_the_scores_of_dropped_reports_are_an_error(stage, threads):
    """Whatever the right search scores keeps its bounds: only the sample of what is dropped can show it."""
    world = leaning_world(300)
    _, work = searched(world, 1)
    answers = work["answers"]
    untouched = np.ones(300, bool)
    untouched[answers.item[: answers.state[0]]] = False
    tokens = np.flatnonzero(np.repeat(untouched, np.diff(world.index.ptr)))
    with pytest.raises(ExactnessError, match=rf"the bound of stage '{stage}' must not lie below a score"):
        searched(planted(world, stage, tokens), 1, threads)


@pytest.mark.parametrize(("n_queries", "n_of_all", "n_kept"), [(1, 64, 16), (10, 7, 2), (64, 1, 1), (3000, 1, 1)])
def test_the_sample_of_a_query_grows_as_they_become_fewer(n_queries, n_of_all, n_kept):
    work, found = SimpleNamespace(kept=np.arange(5000, 5050)), SimpleNamespace(state=np.array([0, 0, 0, 50, -1]))
    items = SimpleNamespace(document=np.arange(1000), alone=True)
    sample = cpu._sample(0, sample_size(n_queries), items, work, found)
    assert len(sample) == n_of_all + n_kept
    assert (sample < 1000).sum() == n_of_all
    found.state[3] = 0  # the cells kept nothing: a query alone is checked all the same
    assert len(cpu._sample(0, sample_size(n_queries), items, work, found)) == (n_of_all if n_of_all > 1 else 0)


@pytest.mark.parametrize(("alone", "checked"), [(True, [0, 8]), (False, list(range(16)))])
def test_one_query_in_eight_is_checked_and_every_one_of_a_composite(alone, checked):
    """Of a small corpus: the chance that another query is checked is one in 500 here."""
    work, found = SimpleNamespace(kept=np.arange(50)), SimpleNamespace(state=np.array([0, 0, 0, 50, -1]))
    items = SimpleNamespace(document=np.arange(1000), alone=alone)
    assert [q for q in range(16) if len(cpu._sample(q, 1, items, work, found))] == checked


def test_a_dropped_report_that_belongs_among_the_best_is_counted():
    """With the threshold of a search put down below everything, whatever of the sample was dropped should not be."""
    world = leaning_world(300)
    index, corpus = world.index, world.corpus
    _, work = searched(world, 1)
    answers, scratch = work["answers"], work["scratch"]
    assert work["counts"][4] == 0
    scored = answers.item[: answers.state[0]]
    dropped = np.setdiff1d(np.arange(300), scored)
    answers.threshold[0], answers.state[4] = -2.0, -1
    items = cpu.every_document(index.row_ptr)
    margins = bounds.margins_of(WIDTH, corpus.norm_error)
    query, _ = cpu.pack(corpus, batch_of(world.queries), 0)
    sample = np.r_[dropped[:5], scored[:2]].astype(np.int64)
    ranking = bounds.Ranking(F1, corpus, query, margins)
    cpu._TileSearch(ranking, 1, items, [scratch], answers, None).check(sample)
    assert work["counts"][4] == 5
    rule = r"^no dropped candidate must score among the best; got 5 of a sample\. This is a defect"
    with pytest.raises(ExactnessError, match=rule):
        check_bounds({}, int(work["counts"][4]))


def test_scores_that_round_above_one_keep_their_ties():
    """The cells say 1 at most, and nothing is said of a float64 cosine of parallel states, which may round to more."""
    rng = np.random.default_rng(0)
    while True:
        asked = rng.standard_normal((1, 3)).astype(np.float32)
        state = asked * np.float32(3)
        one = precision_recall(np.repeat(state, 3, 0), np.ones(3), np.repeat(asked, 3, 0), np.ones(3))
        if one[0] > 1 and one[1] > 1 and f1(*one) > 1:
            break
    n = 40
    ids = np.tile(np.arange(2, 5, dtype=np.int32), n)
    ids[::3] = np.arange(n) + 5  # other tokens, the same states
    index = index_of(np.repeat(state, 3 * n, 0), Tokens(ids, np.arange(0, 3 * n + 1, 3), 0), np.arange(n))
    asked_tokens = Tokens(ids[:3], np.array([0, 3]), 0)
    queries = queries_of(np.repeat(asked, 3, 0), asked_tokens, np.ones(3), np.ones(60))
    found, _ = searched(World(index, queries, np.ones(60)), 1)
    assert found.rows.tolist() == [[0]]
    assert found.ties.tolist() == [[n]]
    assert found.scores[0, 0] > 1


# ---- margins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 384, 768, 1024, bounds.WIDEST])
def test_entries_of_the_table_lie_above_their_cosines(width):
    """Cosines wrong by as much as a float32 product may be, both ways."""
    margins = bounds.margins_of(width, 0.0)
    tables = bounds.angle_tables(margins)
    cosines = np.r_[np.linspace(-1, 1, 4001), np.cos(np.arange(361) * bounds.STEP)]
    off = (margins.error - 2.0**-8) / UNIT
    for sign in (-1, 1):
        near = (cosines + sign * off).astype(np.float32)[:, None]
        work = cpu.new_scratch({}, leaning_world(30).corpus, 1, len(near), 1, 1)[0]
        bounds.fill_tables(near, 0, margins.rise, work, tables)
        entry = work.table[0, : 32 * len(near) : 32] / UNIT
        assert (entry >= cosines).all()
        assert (entry <= cosines + margins.below).all()
        angle = np.arccos(cosines) / bounds.STEP
        assert (work.angle[0, : 32 * len(near) : 32] <= angle + 1e-9).all()
        least, most = (np.pi / 2 - work.ends[:, i].astype(np.float64) for i in range(2))
        assert (least <= angle * bounds.STEP).all()
        assert (most >= angle * bounds.STEP).all()
        assert (most - least).max() < 0.2  # where cosines are flat, at 0 and 180 degrees


def test_margins_grow_with_width_and_length():
    one, two = bounds.margins_of(384, 0.0), bounds.margins_of(4096, 0.0)
    assert two.product > 10 * one.product > 0
    assert two.rise > one.rise
    assert one.token * bounds.LONGEST > one.code > one.cells > one.exact > 0
    assert bounds.margins_of(384, 5e-4).product > 5e-4
