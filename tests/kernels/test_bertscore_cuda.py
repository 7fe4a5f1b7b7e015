"""BERTScore on a device: its answers against the CPU search and the plain scorer, bit for bit, and its bound attacked.

TRITON_INTERPRET=1 runs the kernel in Triton's interpreter, on torch's CPU device; without it a GPU does, where there is
one. ORACLE_REQUIRE_GPU=1 makes a missing GPU a failure.
"""

import gc
import os
import subprocess
import sys
import threading
from argparse import Namespace
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import smoke
from metric_oracle.base.errors import ExactnessError
from metric_oracle.encoders.token_states import Tokens
from metric_oracle.indexes.bertscore import StateDocuments
from metric_oracle.indexes.store import map_file, write_files
from metric_oracle.kernels import _device
from metric_oracle.kernels.bertscore import cpu, cuda
from metric_oracle.kernels.bertscore.projections import EXACT
from metric_oracle.kernels.bertscore.query import TokenBatch, TokenCorpus
from metric_oracle.kernels.bertscore.reference import score
from metric_oracle.kernels.bertscore.score import F1, PRECISION, RECALL, f1
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.topk.reference import select
from metric_oracle.metrics import METRICS
from support import HANG, as_opened, examples
from support.interpreted import run_once

torch = pytest.importorskip("torch")
REQUIRED = os.environ.get("ORACLE_REQUIRE_GPU") == "1"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton") is not None
ON_GPU = not INTERPRETED and (REQUIRED or not cuda.Backend().lacking())
on_a_device = pytest.mark.skipif(
    not (INTERPRETED or ON_GPU),
    reason="there is no CUDA device; TRITON_INTERPRET=1 runs this in Triton's interpreter",
)
PARTS = (PRECISION, RECALL, F1)
KINDS = ("random", "common", "opposite", "mixed", "few", "near")
N_IDS = 30
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu) if ON_GPU else "cpu"]


@pytest.fixture(autouse=True, params=DEVICES)
def device(request, monkeypatch):
    monkeypatch.setattr(cuda, "DEVICE", request.param)
    if INTERPRETED:
        run_once(monkeypatch)
    return request.param


# ---- made-up token states --------------------------------------------------------------------------------------------


class World(NamedTuple):
    index: StateDocuments
    queries: StateDocuments

    @property
    def corpus(self) -> TokenCorpus:
        """The arrays that the kernels read."""
        return self.index.arrays(METRICS["bertscore"], self.queries)

    @property
    def n(self) -> int:
        return len(self.queries.document_of_row)


def batch_of(queries: StateDocuments) -> TokenBatch:
    """Return the arrays of queries."""
    return queries.translate(METRICS["bertscore"], queries)


def make_states(rng: np.random.Generator, kind: str, sizes: list[int], width: int, is_query: bool) -> np.ndarray:
    n = sum(sizes)
    shared = np.random.default_rng(width)  # what both sides have in common
    common, stems = shared.standard_normal(width), shared.standard_normal((4, width))
    noise = rng.standard_normal((n, width))
    if kind == "random":
        states = noise
    elif kind == "common":  # as encoders give them: all cosines are high
        states = 4 * common + noise
    elif kind == "opposite":  # all cosines are negative
        states = (-3 if is_query else 3) * common + 0.3 * noise
    elif kind == "mixed":  # each report leans to one side: signs of precision and recall differ
        states = np.repeat(rng.choice((-1.0, -0.2, 0.2, 1.0), len(sizes)), sizes)[:, None] * common + 0.5 * noise
    elif kind == "few":  # ties everywhere
        states = np.vstack([stems, -stems[:1]])[rng.integers(0, 5, n)]
    else:  # "near": differences below float16, and below float32
        states = stems[rng.integers(0, 3, n)] + 10.0 ** -rng.integers(3, 9, (n, 1)) * noise
    return states / np.linalg.norm(states, axis=1, keepdims=True)


def make_tokens(rng: np.random.Generator, sizes: list[int]) -> Tokens:
    """Return token ids with the special ones, 0 and 1, around each report."""
    ptr = np.cumsum([0, *sizes])
    ids = rng.integers(2, N_IDS, ptr[-1]).astype(np.int32)
    ids[ptr[:-1]], ids[ptr[1:] - 1] = 0, 1
    return Tokens(ids, ptr, 0)


def make_weights(rng: np.random.Generator, weighing: str) -> np.ndarray:
    weights = np.ones(N_IDS) if weighing == "off" else rng.exponential(2.0, N_IDS)
    if weighing == "zeros":
        weights[rng.random(N_IDS) < 0.7] = 0.0
    if weighing != "special":
        weights[:2] = 0.0
    return weights


def make_world(
    seed: int, kind: str, storage: str = "float16", weighing: str = "off", width: int = 12, n_units: int = 40,
    asked: tuple[int, ...] = (7, 5, 5, 5, 3), lengths: tuple[int, ...] = (2, 3, 4, 5, 6, 9), baseline=None,
) -> World:  # fmt: skip
    """Return a corpus with repeated rows, and queries of some lengths; the last query is a report of the corpus."""
    rng = np.random.default_rng(seed)
    sizes = sorted(rng.choice(lengths, n_units).tolist(), reverse=True)
    tokens = make_tokens(rng, sizes)
    states = make_states(rng, kind, sizes, width, False).astype(storage)
    n_rows = n_units + int(rng.integers(1, n_units))
    document_of_row = rng.permutation(np.r_[np.arange(n_units), rng.integers(0, n_units, n_rows - n_units)])
    description = {"encoder": {"model": "made up"}, "special_ids": [0, 1], "baseline": None, "truncated": 0}
    index = StateDocuments.from_states(states, tokens, document_of_row, description)
    as_opened(index)
    copied = slice(tokens.ptr[0], tokens.ptr[1])
    own = make_tokens(rng, list(asked))
    queries = Tokens(np.r_[own.ids, tokens.ids[copied]], np.r_[own.ptr, own.ptr[-1] + sizes[0]], 0)
    of_queries = np.vstack([make_states(rng, kind, list(asked), width, True).astype(storage), states[copied]])
    weights = make_weights(rng, weighing)
    of_query = weights[queries.ids]
    of_query[queries.ptr[:-1] + 1] += 0.5  # a query without any weight is refused
    n = len(asked) + 1
    rows = np.arange(n + 1), np.arange(n)
    asked_of = {"weights": of_query, "weight_of_id": weights, "baseline": baseline}
    return World(index, StateDocuments(of_queries, queries.ids, queries.ptr, *rows, **asked_of))


def found_by(kernel, world: World, k: int, part: int, work=None) -> Answers:
    n = world.n
    found = Answers(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64), np.full(n, -np.inf))
    kernel.Backend(part).search(world.corpus, batch_of(world.queries), range(n), k, found, {} if work is None else work)
    return found


def found_by_threads(world: World, k: int, backend=None) -> Answers:
    """Search on a GPU with one thread for each query, and a backend of its own unless one is given."""
    n = world.n
    found = Answers(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64), np.full(n, -np.inf))
    threads = [
        threading.Thread(
            target=(backend or cuda.Backend()).search,
            args=(world.corpus, batch_of(world.queries), range(q, q + 1), k, found, {}),
        )
        for q in range(n)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def plain_scores(world: World, part: int) -> np.ndarray:
    """Return the score of every query and unit by the plain scorer."""
    index, queries = world
    units = [index.item(u) for u in range(len(index.ptr) - 1)]
    return np.array([[score(c, queries.item(q), part)[0] for c in units] for q in range(world.n)])


def assert_same(one: Answers, two: Answers) -> None:
    for a, b in zip(one[:3], two[:3], strict=True):
        np.testing.assert_array_equal(a, b)


def assert_exact(world: World, ks=(1, 3, None), parts=PARTS) -> None:
    """Check the answers against the plain scorer and the CPU search."""
    index = world.index
    for part in parts:
        scores = plain_scores(world, part)
        for wanted in ks:
            k = wanted or len(index.row_id)
            found = found_by(cuda, world, k, part)
            for q in range(world.n):
                rows, best, ties = select(np.arange(len(index.ptr) - 1), scores[q], index.row_ptr, index.row_id, k)
                np.testing.assert_array_equal(found.rows[q], rows)
                np.testing.assert_array_equal(found.scores[q], best)
                np.testing.assert_array_equal(found.ties[q], ties)
            assert_same(found, found_by(cpu, world, k, part))


# ---- answers ---------------------------------------------------------------------------------------------------------


@on_a_device
@pytest.mark.parametrize("storage", ["float16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_same_answers_as_the_plain_scorer(kind, storage):
    assert_exact(make_world(KINDS.index(kind), kind, storage))


@on_a_device
@pytest.mark.parametrize("weighing", ["idf", "zeros", "special"])
@pytest.mark.parametrize("kind", ["common", "mixed"])
def test_weights_of_tokens_count(kind, weighing):
    assert_exact(make_world(11, kind, weighing=weighing), ks=(2,))


@on_a_device
@pytest.mark.parametrize("baseline", [(0.8, 0.75, 0.78), (-0.3, -0.9, -0.5)])
def test_rescaled_scores(baseline):
    # Rescaling may make equal what differs by a rounding: those are ties.
    assert_exact(make_world(12, "few", baseline=baseline), ks=(1, 4))
    assert_exact(make_world(13, "near", "float32", baseline=baseline), ks=(1, 4))


@on_a_device
@pytest.mark.parametrize("part", PARTS)
def test_long_queries_and_reports(part):
    world = make_world(14, "common", n_units=9, asked=(150, 65, 65, 3), lengths=(2, 3, 70, 140))
    assert_exact(world, ks=(1, 2), parts=(part,))


@on_a_device
@pytest.mark.parametrize("most_rows", [1, 5, 69])
def test_reports_that_are_too_long_for_the_kernel_are_scored_on_the_host(monkeypatch, most_rows):
    from metric_oracle.kernels.bertscore import segment_maxima

    monkeypatch.setattr(segment_maxima, "MOST_ROWS", most_rows)
    monkeypatch.setattr(cuda, "LISTED", 5)
    # A world of its own: `run_once` does not know of MOST_ROWS.
    assert_exact(make_world(28 + most_rows, "common", lengths=(2, 3, 5, 6, 70), n_units=30), ks=(1, 4))


@on_a_device
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["random", "opposite"])
def test_two_tokens_score_zero(kind, part):
    # Every report, or the query, is its two special tokens: the score is 0 by definition, whatever the states.
    assert_exact(make_world(15, kind, lengths=(2,), n_units=6), ks=(1, None), parts=(part,))
    world = make_world(16, kind, asked=(4, 2, 2), n_units=12)
    found = found_by(cuda, world, 3, part)
    assert (found.scores[1:3] == 0).all()
    assert (found.ties[1:3] == len(world.index.row_id)).all()
    np.testing.assert_array_equal(found.rows[1], [0, 1, 2])


@on_a_device
def test_one_unit():
    assert_exact(make_world(17, "random", n_units=2, lengths=(5,)), ks=(1, None))


@on_a_device
@pytest.mark.parametrize(("name", "value"), [("CELLS", 1), ("CELLS", 90), ("LISTED", 1), ("MORE", 3), ("BLOCK", 7)])
@pytest.mark.parametrize("storage", ["float16", "float32"])
def test_small_steps_give_the_same(monkeypatch, storage, name, value):
    monkeypatch.setattr(cuda, "LISTED", 5)
    monkeypatch.setattr(cuda, "MORE", 2)
    monkeypatch.setattr(cuda, name, value)
    world = make_world(18, "mixed", storage, "idf")
    assert_same(found_by(cuda, world, 1, F1), found_by(cpu, world, 1, F1))
    assert_same(found_by(cuda, world, 5, F1), found_by(cpu, world, 5, F1))


@on_a_device
@pytest.mark.parametrize("room", [1, 2500, 6000])
def test_a_corpus_without_room_goes_through_in_pieces(monkeypatch, room):
    monkeypatch.setattr(cuda, "_room_bytes", lambda: room)
    world = make_world(18, "mixed", weighing="idf")
    work: dict = {}
    assert_same(found_by(cuda, world, 5, F1, work), found_by(cpu, world, 5, F1))
    pieces = cuda._device.resident(world.index.row_ptr, f"token codes on {cuda.DEVICE} 0", None).pieces
    n_units = len(world.index.ptr) - 1
    assert {1: len(pieces) == n_units, 2500: 4 < len(pieces) < n_units, 6000: 1 < len(pieces) < 9}[room]
    assert all(piece.codes.device.type == "cpu" for piece in pieces)
    shares = cuda.stages([work])
    assert min(shares.pop("closest_call").values()) > 0
    assert sum(shares.values()) == pytest.approx(1)


@on_a_device
def test_several_devices_share_the_queries(monkeypatch):
    used = []
    best_bounds = cuda._best_bounds

    def slow(resident, *rest):
        used.append(threading.get_ident())
        barrier.wait(HANG)  # both devices are at work
        with one_interpreter:
            return list(best_bounds(resident, *rest))

    barrier = threading.Barrier(2)
    one_interpreter = threading.Lock()  # Triton's holds what it runs in its module
    monkeypatch.setattr(cuda, "_IDLE", {})
    monkeypatch.setattr(cuda._device, "devices", lambda library: [nullcontext(), nullcontext()])
    monkeypatch.setattr(cuda, "_best_bounds", slow)
    world = make_world(20, "common", asked=(6, 6, 5))
    monkeypatch.setattr(cuda, "LISTED", 10**6)
    assert_same(found_by_threads(world, 2), found_by(cpu, world, 2, F1))
    assert len(used) == world.n
    kept = [key for key in _device._RESIDENT if key[0] == id(world.corpus.row_ptr)]
    assert len(kept) == 2


@on_a_device
def test_most_pairs_are_dropped_on_the_device():
    # Nothing is left out of so few dimensions: the bound, about 0.001, separates the reports.
    world = make_world(19, "random", width=32, n_units=200, lengths=(4, 6, 8))
    work: dict = {}
    found = found_by(cuda, world, 1, F1, work)
    assert_same(found, found_by(cpu, world, 1, F1))
    shares = cuda.stages([work, {}])
    closest = shares.pop("closest_call")
    assert list(shares) == ["projection", "float32", "scored"]
    assert set(closest) <= set(cuda.STAGES)
    assert closest["projection"] >= 0
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["projection"] > 0.96


@on_a_device
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_a_bound_below_a_score_is_caught(monkeypatch, part, dropped):
    # Of all reports alike, so that the best are listed all the same; or of every other one, so that those are dropped.
    upper_bounds = cuda.upper_bounds
    world = make_world(21, "random", n_units=60, lengths=(5, 6))

    def lowered(*args):
        bounds = upper_bounds(*args)
        falls = torch.zeros_like(bounds)
        falls[:, :: 2 if dropped else 1] = 3.0 if dropped else 0.5
        return bounds - falls

    monkeypatch.setattr(cuda, "upper_bounds", lowered)
    message = "no dropped candidate must score" if dropped else "the bound of stage 'projection' must not lie below"
    with pytest.raises(ExactnessError, match=message):
        found_by(cuda, world, 20, part)


@on_a_device
def test_threads_take_turns_on_the_device():
    world = make_world(20, "common", asked=(6, 6, 5, 5, 5, 4, 3))
    assert_same(found_by_threads(world, 4), found_by(cpu, world, 4, F1))


def test_the_components_are_those_of_the_cpu():
    assert cuda.Backend.components is cpu.Backend.components
    assert cuda.Backend.new_workspace is cpu.Backend.new_workspace


# ---- the bound -------------------------------------------------------------------------------------------------------


def products_of_codes(states: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return products of codes, those of their last coordinates, cosines, float64[T, n], and the bound on the error."""
    sides = [torch.from_numpy(x).to(cuda.DEVICE) for x in (states, query)]
    basis = cuda._basis(states)
    codes, errors = zip(*(cuda._codes(x, basis) for x in sides), strict=True)
    product = (codes[0].float() @ codes[1].float().T).double().cpu().numpy()
    last = [x[:, -1].double().cpu().numpy() for x in codes]
    wide = [x.astype(np.longdouble) for x in (states, query)]
    wide = [x / np.maximum(np.sqrt((x * x).sum(axis=1, keepdims=True)), 1e-300) for x in wide]
    error = cuda.code_error(*errors, codes[0].shape[1], 1)
    return product, np.outer(*last), (wide[0] @ wide[1].T).astype(np.float64), error


@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from((*KINDS, "positive", "sparse")),
    width=st.sampled_from((1, 2, 3, 8, 16, 17, 64, 127, 128, 384, 768)),
    storage=st.sampled_from(("float16", "float32")),
    length=st.sampled_from((1.0, 1.0, 0.93, 1.4, 0.0)),
)
def test_cosines_lie_below_products_of_codes(seed, kind, width, storage, length):
    rng = np.random.default_rng(seed)
    if kind == "positive":  # no product cancels another: sums as large as they get
        states, query = rng.random((40, width)) + 1e-3, rng.random((9, width)) + 1e-3
    elif kind == "sparse":  # numbers below what float16 holds in full
        states, query = (
            rng.standard_normal((m, width)) * rng.choice((0, 1e-6, 1e-8, 1.0), (m, width)) for m in (40, 9)
        )
        states[:, 0] += 0.5
        query[:, 0] += 0.5
    else:
        states, query = make_states(rng, kind, [40], width, False), make_states(rng, kind, [9], width, True)
    sides = [length * x / np.linalg.norm(x, axis=1, keepdims=True) for x in (states, query)]
    product, rests, cosine, error = products_of_codes(*(x.astype(storage) for x in sides))
    assert (cosine <= product + error).all()
    assert (cosine >= product - 2 * rests - error).all()


def test_the_bound_is_no_wider_than_it_must_be():
    # Where the projection leaves nothing out, float16 coordinates are all that is lost.
    rng = np.random.default_rng(21)
    states = make_states(rng, "common", [3000], 64, False).astype(np.float16)
    product, _, cosine, error = products_of_codes(states, states[:400])
    assert error < 1.5e-3
    assert np.abs(product - cosine).max() < error
    # Where it leaves out half, that half is all that is lost.
    states = make_states(rng, "common", [3000], 384, False).astype(np.float16)
    product, rests, cosine, error = products_of_codes(states, states[:400])
    assert rests.max() < 0.7
    assert (np.abs(product - rests - cosine) <= rests + error).all()


@on_a_device
@pytest.mark.parametrize("storage", ["float16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_below_their_bounds(kind, storage):
    world = make_world(22, kind, storage, "zeros", width=24, asked=(5, 5, 4))  # some units have no weight at all
    index, queries = world
    assert (np.add.reduceat(queries.weight_of_id[index.ids], index.ptr[:-1]) == 0).any()
    n = len(index.row_ptr) - 1
    items = cpu.every_document(index.row_ptr)
    for part in PARTS:
        scores = plain_scores(world, part)
        lists = cuda._listed(world.corpus, batch_of(queries), [(q, items) for q in range(world.n)], n, part)
        for (item, bound), score_of in zip(lists, scores, strict=True):
            assert sorted(item) == list(range(n))
            assert (np.diff(bound) <= 0).all()
            assert (score_of[item] <= bound + 1e-12 * (1 + np.abs(score_of[item]))).all()


@on_a_device
@pytest.mark.parametrize("width", [16, 128])
def test_the_kernel_takes_the_greatest_products(width):
    """Reports of every size of launch, one token and whole powers of 2 among them, against NumPy."""
    from metric_oracle.kernels.bertscore.segment_maxima import launches, segment_maxima

    rng = np.random.default_rng(24)
    lengths = np.array([1100, 1024, 600, 512, 300, 130, 128, 65, 64, 64, 40, 33, 32, 31, 17, 16, 16, 9, 2, 1])
    asked = np.array([1, 31, 32, 33, 64, 100])
    codes, query_codes = (rng.uniform(-1, 1, (n, width)).astype(np.float16) for n in (lengths.sum(), asked.sum()))
    weights, query_weights = (rng.random(len(x)).astype(np.float32) for x in (codes, query_codes))
    sizes = list(launches(lengths, width))
    assert [lengths[first] for first, *_ in sizes] == [1024, 512, 130, 128, 64, 32, 16]
    assert sizes[-1][1] == len(lengths)
    assert [constants["SLICE"] for *_, constants, _ in sizes] == [
        min(width, n) for n in (16, 32, 64, 128, 128, 128, 128)
    ]
    cut, query_cut = np.cumsum(lengths)[:-1], np.cumsum(asked)[:-1]
    block = cuda._block(
        cuda.Resident(torch.eye(width, width - 1, dtype=torch.float64, device=cuda.DEVICE), [], 0.0, 1),
        np.split(query_codes, query_cut), np.split(query_weights.astype(np.float64), query_cut),
    )  # fmt: skip
    assert block.codes.shape == (32 * (1 + 1 + 1 + 2 + 2 + 4), width)
    put = [torch.from_numpy(x).to(cuda.DEVICE) for x in (codes, np.r_[0, np.cumsum(lengths)], weights)]
    precision, recall = (torch.full((6, len(lengths)), np.nan, device=cuda.DEVICE) for _ in "pr")
    segment_maxima(put[0], put[1], lengths, put[2], block.codes, block.weights, block.tiles, precision, recall)
    first = 0
    for q, n in enumerate(asked):
        tiles = block.codes[32 * first : 32 * first + n].double().cpu().numpy()
        share = block.weights[32 * first : 32 * first + n].double().cpu().numpy()
        assert share.sum() == pytest.approx(1)
        first += -(-n // 32)
        for u, (c, w) in enumerate(zip(np.split(codes, cut), np.split(weights, cut), strict=True)):
            if len(c) > 1024:  # more than the kernel takes
                assert precision[q, u].isnan()
                continue
            product = c.astype(np.float64) @ tiles.T
            assert float(precision[q, u]) == pytest.approx(product.max(1) @ w, rel=1e-5)
            assert float(recall[q, u]) == pytest.approx(product.max(0) @ share, rel=1e-5)


@on_a_device
def test_the_first_contact_with_a_gpu(device):
    """What `benchmarks/smoke.py` asks of the kernel; its other parts are in `cuda/test_smoke.py`."""
    smoke.bertscore(Namespace(device=device))


parts_of_scores = st.floats(-1, 1) | st.sampled_from((0.0, 1e-5, -1e-5, 0.3, -0.3, 1.0, -1.0))


@examples(400)
@given(
    p=parts_of_scores, r=parts_of_scores, dp=st.floats(0, 1), dr=st.floats(0, 1), e=st.sampled_from((1e-9, 1e-3, 0.2)),
    spread=st.sampled_from((0.0, 0.01, 0.5)),
)  # fmt: skip
def test_f1_lies_below_its_corner_where_the_sign_is_sure(p, r, dp, dr, e, spread):
    box = (torch.full((1, 1), x, dtype=torch.float64) for x in (p, r))
    upper = float(cuda.upper_bounds(*box, e, torch.full((1, 1), spread, dtype=torch.float64), F1))
    # What the codes stand for: no more than they say and the slack, no less than what the spread takes away.
    precision, recall = p + e - dp * (2 * e + spread / 2), r + e - dr * (2 * e + spread / 2)
    value = f1(precision, recall)
    assert value <= upper + 1e-12 * (1 + abs(value))
    low, high = p + r - 2 * e - spread, p + r + 2 * e
    assert np.isfinite(upper) == (low >= EXACT or high <= -EXACT) or min(abs(low), abs(high)) < 1e-10


# ---- the device ------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_the_gpu_has_run(device):
    if cuda.Backend().lacking() and not REQUIRED:
        pytest.skip("there is no CUDA device: every test of this file ran on torch's CPU device alone")
    assert not cuda.Backend().lacking()


@on_a_device
def test_the_corpus_goes_up_once(monkeypatch):
    uploads = []
    upload = cuda._upload
    monkeypatch.setattr(cuda, "_upload", lambda index: uploads.append(1) or upload(index))
    world = make_world(23, "random")
    before = len(_device._RESIDENT)
    for k in (1, 2, 3):
        found_by(cuda, world, k, F1)
    assert uploads == [1]
    assert len(_device._RESIDENT) == before + 1
    del world
    gc.collect()
    assert len(_device._RESIDENT) == before


@on_a_device
def test_threads_share_the_lists_of_a_block(monkeypatch):
    """The device is asked once for each block, whichever thread comes first, and nothing of a block stays."""
    monkeypatch.setattr(cuda, "AHEAD", 3)
    world = make_world(20, "common", asked=(6, 6, 5, 5, 5, 4, 3))
    best_bounds, tried = cuda._best_bounds, []

    def noted(resident, corpus, batch, asked, *rest):
        tried.append([q for q, _ in asked])
        return best_bounds(resident, corpus, batch, asked, *rest)

    monkeypatch.setattr(cuda, "_best_bounds", noted)
    backend = cuda.Backend()
    assert_same(found_by_threads(world, 4, backend), found_by(cpu, world, 4, F1))
    assert sorted(tried) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert not backend.lists._blocks


def test_long_lists_are_made_for_fewer_queries(monkeypatch):
    monkeypatch.setattr(cuda, "ENTRIES", 100)
    for listed, expected in ((1000, [0]), (50, [0, 1]), (10, list(range(8)))):
        asked = []
        cuda.SharedLists().take(0, 8, listed, lambda places, asked=asked: asked.extend(places) or [None] * len(places))
        assert asked == expected


@on_a_device
def test_an_error_of_a_block_reaches_all_threads(monkeypatch):
    def fail(*rest):
        raise RuntimeError

    monkeypatch.setattr(cuda, "_best_bounds", fail)
    world, backend, raised = make_world(20, "common", asked=(6, 6, 5)), cuda.Backend(), []
    found = Answers(*np.zeros((3, world.n, 1)), np.full(world.n, -np.inf))

    def search(q):
        try:
            backend.search(world.corpus, batch_of(world.queries), range(q, q + 1), 1, found, {})
        except _device.DeviceError as error:
            raised.append(error)

    threads = [threading.Thread(target=search, args=(q,)) for q in range(world.n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(raised) == world.n


@on_a_device
def test_weights_are_laid_out_once(monkeypatch):
    """What they make of the corpus stays on the device until other weights come."""
    made, weigh = [], cuda._weigh
    monkeypatch.setattr(cuda, "_weigh", lambda piece, weights: made.append(1) or weigh(piece, weights))
    world = make_world(29, "common", weighing="idf")
    for _ in range(2):
        assert_same(found_by(cuda, world, 3, F1), found_by(cpu, world, 3, F1))
    assert made == [1]
    others = world.queries.weight_of_id[::-1].copy()
    world = World(world.index, replace(world.queries, weight_of_id=others))
    assert_same(found_by(cuda, world, 3, F1), found_by(cpu, world, 3, F1))
    assert made == [1, 1]


@on_a_device
def test_the_slack_is_that_of_the_longest_report(monkeypatch):
    """Not that of all the queries beside it, or large blocks would loosen the bound."""
    asked, code_error = [], cuda.code_error
    monkeypatch.setattr(cuda, "code_error", lambda *args: asked.append(args[-1]) or code_error(*args))
    found_by(cuda, make_world(30, "common", asked=(9, 7, 7, 5), lengths=(2, 3, 4, 8)), 1, F1)
    assert asked == [9]


@on_a_device
def test_blocks_are_halved_where_memory_ends(monkeypatch):
    world = make_world(24, "common", n_units=30, asked=(7, 5, 5, 5, 3, 3, 9))
    bounds, tried = cuda._best_bounds, []

    def full(resident, corpus, batch, asked, *rest):
        tried.append(len(asked))
        if len(asked) > 2:
            raise torch.OutOfMemoryError
        return bounds(resident, corpus, batch, asked, *rest)

    monkeypatch.setattr(cuda, "_best_bounds", full)
    assert_same(found_by(cuda, world, 3, F1), found_by(cpu, world, 3, F1))
    assert tried == [8, 4, 2, 2, 2, 2]  # what was found out is kept


@pytest.mark.parametrize("at", ["_best_bounds", "_upload"])
def test_too_little_memory_is_said(monkeypatch, at):
    def full(*rest):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(cuda, at, full)
    rule = (
        r"^the GPU must have room for some of the corpus's token codes and one query; got too little\. "
        r'Free its memory, or use backend "cpu"\.$'
    )
    with pytest.raises(_device.NoRoomError, match=rule):
        found_by(cuda, make_world(25, "random"), 1, F1)


def test_a_kernel_that_does_not_start_is_said(monkeypatch):
    def fail(*rest):
        msg = "out of resource: shared memory,\nRequired: 300000"
        raise RuntimeError(msg)

    monkeypatch.setattr(cuda, "_best_bounds", fail)
    rule = (
        r"^the GPU must run this metric's kernels; got RuntimeError: out of resource: shared memory, "
        r'Required: 300000\. Check it with nvidia-smi, or use backend "cpu"\.$'
    )
    for _ in range(2):  # the device is given back
        with pytest.raises(_device.DeviceError, match=rule):
            found_by(cuda, make_world(25, "random"), 1, F1)


@on_a_device
def test_an_open_file_serves(tmp_path):
    world = make_world(27, "common", "float32")
    write_files(tmp_path, world.index.files())
    opened = StateDocuments.load("bertscore", {path.name: map_file(path) for path in tmp_path.iterdir()})
    assert_same(found_by(cuda, World(opened, world.queries), 3, F1), found_by(cpu, world, 3, F1))


def test_torch_is_imported_when_used(monkeypatch):
    code = "import sys, metric_oracle.kernels.bertscore.cuda; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cuda.Backend().lacking()
