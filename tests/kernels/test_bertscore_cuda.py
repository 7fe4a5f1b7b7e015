"""BERTScore on a device: its answers against the CPU search and the plain scorer, bit for bit, and its bound attacked.

Every test runs the kernel's code on torch's CPU device, and on a GPU where there is one. ORACLE_REQUIRE_GPU=1 makes a
missing GPU a failure.
"""

import gc
import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metric_oracle.encoders.token_states import Tokens
from metric_oracle.indexes.bertscore import TokenQueries, TokenStateIndex
from metric_oracle.kernels import _device
from metric_oracle.kernels.bertscore import cpu, cuda
from metric_oracle.kernels.bertscore.reference import score
from metric_oracle.kernels.bertscore.score import F1, PRECISION, RECALL, f1
from metric_oracle.kernels.topk.reference import select
from metric_oracle.retrieval.search import Found

torch = pytest.importorskip("torch")
PARTS = (PRECISION, RECALL, F1)
KINDS = ("random", "common", "opposite", "mixed", "few", "near")
N_IDS = 30
REQUIRED = os.environ.get("ORACLE_REQUIRE_GPU") == "1"
DEVICES = ["cpu", *([pytest.param("cuda", marks=pytest.mark.gpu)] if REQUIRED or cuda.is_usable() else [])]
# Compiled code is made for read-only arrays, as those of an opened index are.
READ_ONLY = ("states", "ids", "ptr", "row_ptr", "row_id", "cell", "radius", "codes", "terms", "mean_along", "mean_off")


@pytest.fixture(autouse=True, params=DEVICES)
def device(request, monkeypatch):
    monkeypatch.setattr(cuda, "DEVICE", request.param)
    return request.param


# ---- made-up token states --------------------------------------------------------------------------------------------


class World(NamedTuple):
    index: TokenStateIndex
    queries: TokenQueries

    @property
    def n(self) -> int:
        return len(self.queries.which)


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
    unit_of_row = rng.permutation(np.r_[np.arange(n_units), rng.integers(0, n_units, n_rows - n_units)])
    description = {"encoder": {"model": "made up"}, "special_ids": [0, 1], "baseline": None, "truncated": 0}
    index = TokenStateIndex.from_states(states, tokens, unit_of_row, description)
    for name in READ_ONLY:
        getattr(index, name).flags.writeable = False
    copied = slice(tokens.ptr[0], tokens.ptr[1])
    own = make_tokens(rng, list(asked))
    queries = Tokens(np.r_[own.ids, tokens.ids[copied]], np.r_[own.ptr, own.ptr[-1] + sizes[0]], 0)
    of_queries = np.vstack([make_states(rng, kind, list(asked), width, True).astype(storage), states[copied]])
    weights = make_weights(rng, weighing)
    of_query = weights[queries.ids]
    of_query[queries.ptr[:-1] + 1] += 0.5  # a query without any weight is refused
    n = len(asked) + 1
    return World(
        index, TokenQueries(np.arange(n), queries, of_queries, of_query, index.corpus(weights), baseline, index, {})
    )


def found_by(kernel, world: World, k: int, part: int, work=None) -> Found:
    n = world.n
    found = Found(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64))
    kernel.search(world.index, world.queries, 0, n, k, found, {} if work is None else work, part=part)
    return found


def plain_scores(world: World, part: int) -> np.ndarray:
    """Return the score of every query and unit by the plain scorer."""
    index, queries = world
    units = [queries.candidate(u) for u in range(len(index.ptr) - 1)]
    return np.array([[score(c, queries.item(q), part)[0] for c in units] for q in range(world.n)])


def assert_same(one: Found, two: Found) -> None:
    for a, b in zip(one, two, strict=True):
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


@pytest.mark.parametrize("storage", ["float16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_same_answers_as_the_plain_scorer(kind, storage):
    assert_exact(make_world(KINDS.index(kind), kind, storage))


@pytest.mark.parametrize("weighing", ["idf", "zeros", "special"])
@pytest.mark.parametrize("kind", ["common", "mixed"])
def test_weights_of_tokens_count(kind, weighing):
    assert_exact(make_world(11, kind, weighing=weighing), ks=(2,))


@pytest.mark.parametrize("baseline", [(0.8, 0.75, 0.78), (-0.3, -0.9, -0.5)])
def test_rescaled_scores(baseline):
    # Rescaling may make equal what differs by a rounding: those are ties.
    assert_exact(make_world(12, "few", baseline=baseline), ks=(1, 4))
    assert_exact(make_world(13, "near", "float32", baseline=baseline), ks=(1, 4))


@pytest.mark.parametrize("part", PARTS)
def test_long_queries_and_reports(part):
    world = make_world(14, "common", n_units=9, asked=(150, 65, 65, 3), lengths=(2, 3, 70, 140))
    assert_exact(world, ks=(1, 2), parts=(part,))


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


def test_one_unit():
    assert_exact(make_world(17, "random", n_units=2, lengths=(5,)), ks=(1, None))


@pytest.mark.parametrize("cells", [1, 60, 700, 5000])
@pytest.mark.parametrize("storage", ["float16", "float32"])
def test_small_pieces_give_the_same(monkeypatch, storage, cells):
    world = make_world(18, "mixed", storage, "idf")
    whole = found_by(cuda, world, 5, F1)
    monkeypatch.setattr(cuda, "CELLS", cells)
    cut = make_world(18, "mixed", storage, "idf")
    assert_same(found_by(cuda, cut, 5, F1), whole)
    assert_same(whole, found_by(cpu, world, 5, F1))


def test_most_pairs_are_dropped_on_the_device():
    # Reports of one topic each: the bound, about 0.001, separates them.
    world = make_world(19, "random", width=32, n_units=400, lengths=(4, 6, 8))
    work: dict = {}
    found = found_by(cuda, world, 1, F1, work)
    assert_same(found, found_by(cpu, world, 1, F1))
    shares = cuda.stages([work, {}])
    assert list(shares) == ["float16", "float32", "scored"]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["float16"] > 0.98


def test_threads_take_turns_on_the_device():
    world = make_world(20, "common", asked=(6, 6, 5, 5, 5, 4, 3))
    n, k = world.n, 4
    found = Found(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64))
    threads = [
        threading.Thread(target=cuda.search, args=(world.index, world.queries, q, q + 1, k, found, {}))
        for q in range(n)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(found, found_by(cpu, world, k, F1))


def test_the_components_are_those_of_the_cpu():
    assert cuda.components is cpu.components
    assert cuda.new_work is cpu.new_work


# ---- the bound -------------------------------------------------------------------------------------------------------


def examples(n: int):
    """Run a property on n drawn examples, the same ones every time."""
    return settings(max_examples=n, deadline=None, derandomize=True, database=None)


def product_errors(states: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how far each float16 product is from its cosine, and the bound on it: float64[T, n]."""
    with _device.plain_arithmetic(cuda.DEVICE):
        on_device = [torch.from_numpy(x).to(cuda.DEVICE) for x in (states, query)]
        product = (on_device[0].half() @ on_device[1].half().T).double().cpu().numpy()
        errors = [cuda._rounding(x).cpu().numpy() for x in on_device]
    wide = [x.astype(np.longdouble) for x in (states, query)]
    wide = [x / np.sqrt((x * x).sum(axis=1, keepdims=True)) for x in wide]
    cosine = (wide[0] @ wide[1].T).astype(np.float64)
    return np.abs(product - cosine), cuda.product_error(errors[0][:, None], errors[1], states.shape[1])


@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from((*KINDS, "positive", "sparse")),
    width=st.sampled_from((1, 2, 3, 8, 17, 64, 384, 768, 1024)),
    storage=st.sampled_from(("float16", "float32")),
    length=st.sampled_from((1.0, 1.0, 0.93, 1.4)),
)
def test_products_are_within_their_bound(seed, kind, width, storage, length):
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
    error, bound = product_errors(*(x.astype(storage) for x in sides))
    assert (error <= bound).all()


def test_the_bound_is_no_wider_than_it_must_be():
    # A vector and itself: a cosine just below 1, so that float16 may round it by half a step; 2 ** -12 here.
    rng = np.random.default_rng(21)
    states = make_states(rng, "random", [3000], 64, False).astype(np.float16)
    error, bound = product_errors(states, states[:400])
    assert error.max() > 0.2 * bound.max()
    assert bound.max() < 1e-3
    # float32 states are rounded to float16, a norm of about 2e-4 each.
    error, bound = product_errors(states.astype(np.float32) * np.float32(0.9999), states[:400].astype(np.float32))
    assert bound.max() < 2e-3


@pytest.mark.parametrize("storage", ["float16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_between_their_bounds(kind, storage):
    world = make_world(22, kind, storage, "zeros", asked=(5, 5, 5))  # some units have no weight at all
    index, queries = world
    weights = queries.corpus.weight_of_id[index.ids]
    totals = np.add.reduceat(weights, index.ptr[:-1])
    assert (totals == 0).any()
    with _device.plain_arithmetic(cuda.DEVICE):
        resident = cuda._resident(index)
        on_device = [torch.from_numpy(x).to(cuda.DEVICE) for x in (weights, totals)]
        products = cuda._products(resident, index.ptr, *on_device, queries, 0, 3)
        for part in PARTS:
            lower, upper = (x.cpu().numpy() for x in cuda.bounds(*products, resident.scorable, part))
            scores = plain_scores(world, part)[:3]
            slack = 1e-12 * (1 + np.abs(scores))
            assert (lower - slack <= scores).all()
            assert (scores <= upper + slack).all()
            is_weighty = np.broadcast_to(totals > 0, upper.shape)
            assert np.isfinite(upper[is_weighty]).mean() > 0.9


parts_of_scores = st.floats(-1, 1) | st.sampled_from((0.0, 1e-5, -1e-5, 0.3, -0.3, 1.0, -1.0))


@examples(400)
@given(
    p=parts_of_scores, r=parts_of_scores, dp=st.floats(-1, 1), dr=st.floats(-1, 1), e=st.sampled_from((1e-9, 1e-3, 0.2))
)
def test_f1_lies_between_two_corners(p, r, dp, dr, e):
    error = torch.full((1, 1), e, dtype=torch.float64)
    box = (torch.full((1, 1), x, dtype=torch.float64) for x in (p, r))
    lower, upper = (float(x) for x in cuda.bounds(*box, error, torch.ones(1, dtype=torch.bool), F1))
    value = f1(p + dp * e * 0.999, r + dr * e * 0.999)
    assert lower - 1e-12 * (1 + abs(value)) <= value <= upper + 1e-12 * (1 + abs(value))
    assert np.isfinite(upper) == (abs(p + r) > 2 * e)


def test_the_threshold_counts_rows():
    rows = torch.tensor([3, 1, 1, 1])
    lower = torch.tensor([[0.9, 0.5, 0.7, 0.1]], dtype=torch.float64)
    upper = lower + 0.05
    kept = [sorted(next(iter(cuda._survivors(lower, upper, rows, k)))[0].tolist()) for k in (1, 3, 4, 5, 6)]
    assert kept == [[0], [0], [0, 2], [0, 1, 2], [0, 1, 2, 3]]
    # Units of which nothing is known are kept, and hide nobody.
    upper[0, 3], lower[0, 3] = np.inf, -np.inf
    units, bound = next(iter(cuda._survivors(lower, upper, rows, 4)))
    assert units.tolist() == [3, 0, 2]
    assert bound.tolist() == [np.inf, 0.9 + 0.05, 0.7 + 0.05]


# ---- the device ------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_the_gpu_has_run(device):
    if not cuda.is_usable() and not REQUIRED:
        pytest.skip("there is no CUDA device: every test of this file ran on torch's CPU device alone")
    assert cuda.is_usable()


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


def test_pieces_are_halved_where_memory_ends(monkeypatch):
    world = make_world(24, "common", n_units=30)
    products, tried = cuda._products, []

    def full(resident, *rest):
        tried.append(resident.cells)
        if resident.cells > 2000:
            raise torch.OutOfMemoryError
        return products(resident, *rest)

    monkeypatch.setattr(cuda, "_products", full)
    assert_same(found_by(cuda, world, 3, F1), found_by(cpu, world, 3, F1))
    assert tried[:3] == [cuda.CELLS, cuda.CELLS // 2, cuda.CELLS // 4]
    assert tried[-1] == 1024  # kept for the queries after
    assert tried.count(2048) == 1


@pytest.mark.parametrize("at", ["_products", "_upload"])
def test_too_little_memory_is_said(monkeypatch, at):
    def full(*rest):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(cuda, at, full)
    rule = (
        'retrieve: the GPU must have room for .* states, 0.00 GB, and one query; got too little. .* use backend "cpu"'
    )
    with pytest.raises(_device.DeviceError, match=rule):
        found_by(cuda, make_world(25, "random"), 1, F1)


def test_sums_are_float32_and_the_settings_stay(monkeypatch):
    flags = torch.backends.cuda.matmul
    inside = []
    screen = cuda._screen

    def look(*rest):
        inside.append(flags.allow_fp16_reduced_precision_reduction)
        return screen(*rest)

    monkeypatch.setattr(cuda, "_screen", look)
    world = make_world(26, "random")
    expected = found_by(cpu, world, 2, F1)
    for chosen in (True, False):
        flags.allow_fp16_reduced_precision_reduction = chosen
        with torch.autocast(cuda.DEVICE, dtype=torch.bfloat16):
            assert_same(found_by(cuda, world, 2, F1), expected)
        assert flags.allow_fp16_reduced_precision_reduction == chosen
    flags.allow_fp16_reduced_precision_reduction = True
    assert inside == [False, False]


def test_an_open_file_serves(tmp_path):
    world = make_world(27, "common", "float32")
    world.index.save(tmp_path)
    opened = TokenStateIndex.load(tmp_path)
    queries = replace(world.queries, corpus=opened.corpus(world.queries.corpus.weight_of_id), index=opened)
    assert_same(found_by(cuda, World(opened, queries), 3, F1), found_by(cpu, world, 3, F1))


def test_torch_is_imported_when_used(monkeypatch):
    code = "import sys, metric_oracle.kernels.bertscore.cuda; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not cuda.is_usable()
