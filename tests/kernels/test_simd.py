"""The inner loops of every instruction set that this processor has against NumPy, and how a set is chosen.

Arm's loops are compiled for it and read as assembly. A whole search on each set runs in a process of its own.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest
from llvmlite import ir

from metric_oracle.kernels import _target
from metric_oracle.kernels._llvm import WIDTHS
from metric_oracle.kernels._simd import (
    LANES,
    count_ones,
    dot,
    dot_error,
    exact_products,
    exact_squares,
    lanes_at_once,
    make_dots,
    make_products,
    make_widen,
)
from metric_oracle.kernels._simd_codes import (
    SINE_ERROR,
    add_sines,
    candidates,
    code_tokens,
    make_bounds,
    make_near,
    mean_recall,
)
from metric_oracle.kernels.bertscore import all_pairs
from metric_oracle.kernels.bertscore.bounds import STEP, UNIT, margins_of
from metric_oracle.kernels.bertscore.query import lanes_of

PATHS = {path.name: path for path in (*_target._X86, *_target._ARM)}
HERE = _target.usable_names()
MARGIN = margins_of(384, 0.0).code
BLOCKS = tuple(lanes // 16 for lanes in WIDTHS)


@cache
def compiled(name: str) -> Any:
    """Compile the loops of one path."""
    bounds, dots = make_bounds(PATHS[name]), make_dots(PATHS[name])

    @numba.njit
    def run(
        n_lanes, query, steps, lanes, unit, slack, table, codes, cell, terms, w, n, rows, columns, floats, pads, tokens
    ):
        bounds(n_lanes, query, steps, lanes, unit, slack, table, codes, cell, terms, w, n, 0, rows[0], columns[0])
        dots(n_lanes, floats, 4 * steps, pads, tokens, n, rows[1], columns[1])

    return run


def test_passes_of_a_query_have_the_numbers_of_lanes_that_are_compiled():
    """The fewest that hold the tokens of a pass."""
    assert WIDTHS[-1] == LANES
    for n in range(1, 3 * LANES + 1):
        passes = [min(n - first, LANES) for first in range(0, n, LANES)]
        assert [lanes_of(n, p) for p in range(len(passes))] == [min(w for w in WIDTHS if w >= m) for m in passes]


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def starts_of(sums: np.ndarray, name: str) -> np.ndarray:
    """Return where the sums of a path begin: at what 128 added to each byte of a report adds, unless it is signed."""
    return (0 if PATHS[name].is_signed else -128) * sums


@pytest.mark.parametrize("n_tokens", [1, 5, 6, 7, 12, 13, 24, 77])
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("name", HERE)
def test_loops_equal_numpy(name, blocks, n_tokens):
    """Small whole numbers and powers of two: every sum is exact, so any difference is a defect."""
    rng = np.random.default_rng(n_tokens)
    lanes = 16 * blocks
    most = PATHS[name].query_range
    for width in (4, 12, 64):
        query = rng.integers(-most, most + 1, (width, lanes)).astype(np.int8)
        codes = rng.integers(-128, 128, (n_tokens, width))
        if n_tokens == 7:
            query[:], codes[:] = most, 127  # the greatest sums
        elif n_tokens == 13:
            query[:], codes[:] = -most, 127
        sums = codes @ query.astype(np.int64)
        table = rng.integers(-UNIT, UNIT + 1, (5, lanes)).astype(np.int16)
        cell = rng.integers(0, 5, n_tokens).astype(np.uint16)
        terms = (2.0 ** rng.integers(-3, 1, (n_tokens, 5))).astype(np.float32)
        rest = rng.integers(0, 9, lanes).astype(np.float32)
        unit, slack = np.float32(0.5), np.float32(4)
        expected = (
            table[cell] * terms[:, :1]
            + sums * (unit * terms[:, 1:2])
            + rest * terms[:, 2:3]
            + terms[:, 3:4]
            + slack * terms[:, 4:]
        )
        steps = width // 4
        packed = np.ascontiguousarray(query.reshape(steps, 4, lanes).swapaxes(1, 2))
        head = np.r_[starts_of(query.sum(axis=0, dtype=np.int32), name), rest.view(np.int32)]
        bytes_of_tokens = (codes + 128).astype(np.uint8)
        floats = rng.integers(-50, 51, (width, lanes)).astype(np.float32)
        pads = np.zeros(lanes, np.float32)
        pads[lanes - 3 :] = -1e30
        tokens = rng.integers(-50, 51, (n_tokens, width)).astype(np.float32)
        # Bounds have a place before them for the weighted sum and room after them.
        room = np.full(1 + n_tokens + 16, -1e30, np.float32)
        rows = [room[1 : 1 + n_tokens], np.full(n_tokens, -1e30, np.float32)]
        columns = np.full((2, lanes), -1e30, np.float32)
        for row in rows:
            row[0] = 2.0**20  # what stands there is kept where it is greater
        columns[:, 1] = 2e9
        weights = np.r_[rng.integers(0, 3, n_tokens), [1e30] * 16].astype(np.float32)
        at_once = lanes_at_once(lanes, PATHS[name])
        parts = np.ascontiguousarray(floats.reshape(width, -1, at_once).swapaxes(0, 1))
        compiled(name)(
            lanes, address(packed), steps, address(head), unit, slack, address(table), address(bytes_of_tokens),
            address(cell), address(terms), address(weights), n_tokens, np.array([address(room), address(rows[1])]),
            np.array([address(column) for column in columns]), address(parts), address(pads), address(tokens),
        )  # fmt: skip
        products = tokens @ floats
        products[:, lanes - 3 :] = -1e30
        for values, row, column in zip((expected, products), rows, columns, strict=True):
            want_row, want_column = values.max(axis=1), values.max(axis=0)
            want_row[0], want_column[1] = 2.0**20, 2e9
            assert row.tolist() == want_row.tolist()
            assert column.tolist() == want_column.tolist()
        assert room[0] == pytest.approx(float(weights[:n_tokens] @ room[1 : 1 + n_tokens]), rel=1e-5)


def drawn_bounds(name: str, blocks: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run the bounds of one path over numbers that round; return maxima both ways and exact values, a row a token."""
    rng = np.random.default_rng(blocks)
    lanes, width, n_tokens = 16 * blocks, 64, 501
    packed = rng.integers(-most, most + 1, (width // 4, lanes, 4)).astype(np.int8)
    head = np.r_[
        starts_of(packed.sum(axis=(0, 2), dtype=np.int32), name),
        rng.random(lanes, np.float32).view(np.int32),
    ]
    codes = rng.integers(0, 256, (n_tokens, width)).astype(np.uint8)
    table = rng.integers(-UNIT, UNIT + 1, (9, lanes)).astype(np.int16)
    cell = rng.integers(0, 9, n_tokens).astype(np.uint16)
    terms = (rng.random((n_tokens, 5)) * [1 / UNIT, 0.01, 0.3, 0.1, 0.2]).astype(np.float32)
    room = np.full((2, 1 + n_tokens + 16), -1e30, np.float32)
    columns = np.full((2, lanes), -1e30, np.float32)
    weights = np.ones(n_tokens + 16, np.float32)
    floats, tokens = np.zeros((width, lanes), np.float32), np.zeros((n_tokens, width), np.float32)
    unit, slack = np.float32(0.0071), np.float32(0.031)
    compiled(name)(
        lanes, address(packed), width // 4, address(head), unit, slack, address(table), address(codes), address(cell),
        address(terms), address(weights), n_tokens, np.array([address(r) for r in room]),
        np.array([address(column) for column in columns]), address(floats), address(np.zeros(lanes, np.float32)),
        address(tokens),
    )  # fmt: skip
    sums = (codes.astype(np.int64) - 128) @ packed.swapaxes(1, 2).reshape(width, lanes).astype(np.int64)
    wide = terms.astype(np.float64)
    near = (
        table[cell] * wide[:, :1] + sums * (float(unit) * wide[:, 1:2])
        + head[lanes:].view(np.float32) * wide[:, 2:3] + wide[:, 3:4] + float(slack) * wide[:, 4:]
    )  # fmt: skip
    return room[0, 1 : 1 + n_tokens], columns[0], near


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("name", HERE)
def test_bounds_round_no_further_than_their_slack(name, blocks):
    row, column, near = drawn_bounds(name, blocks, PATHS[name].query_range)
    assert np.abs(row - near.max(axis=1)).max() < MARGIN
    assert np.abs(column - near.max(axis=0)).max() < MARGIN


@pytest.mark.parametrize("blocks", BLOCKS)
def test_bounds_of_all_paths_are_the_same_bits(blocks):
    """Those that multiply and add in one rounding; the portable one has no such instruction."""
    fused = [name for name in HERE if name != "portable"]
    both = [drawn_bounds(name, blocks, 63)[:2] for name in fused]
    assert len({(row.tobytes(), column.tobytes()) for row, column in both}) <= 1


@cache
def products_of(name: str, blocks: int) -> Any:
    products = make_products(blocks, PATHS[name])

    @numba.njit
    def run(codes, n_steps, queries, n_queries, out, stride, greatest):
        products(codes, n_steps, queries, n_queries, out, stride, greatest)

    return run


@pytest.mark.parametrize("n_queries", [1, 2, 5, 12, 13, 40])
@pytest.mark.parametrize("name", HERE)
def test_products_equal_numpy(name, n_queries):
    rng = np.random.default_rng(n_queries)
    for blocks in (1, 4):
        codes = rng.integers(-50, 51, (20, 16 * blocks)).astype(np.float32)
        queries = rng.integers(-50, 51, (n_queries, 20)).astype(np.float32)
        out = np.zeros((n_queries, 16 * blocks + 3), np.float32)
        greatest = np.zeros(n_queries, np.float32)
        products_of(name, blocks)(
            address(codes), 20, address(queries), n_queries, address(out), 4 * out.shape[1], address(greatest)
        )
        expected = queries @ codes
        assert out[:, :-3].tolist() == expected.tolist()
        assert not out[:, -3:].any()
        assert greatest.tolist() == expected.max(axis=1).tolist()


@numba.njit
def _count_ones(bits):
    return count_ones(bits)


def test_bits_are_counted():
    drawn = np.random.default_rng(1).integers(0, 2**64, 200, dtype=np.uint64)
    for x in (*drawn, np.uint64(0), np.uint64(2**64 - 1)):
        assert _count_ones(x) == int(x).bit_count()


@numba.njit
def _exact(query, width, tokens, n_tokens, products, squares):
    exact_products(query, width, tokens, n_tokens, products)
    exact_squares(tokens, width, n_tokens, squares)


@pytest.mark.parametrize("n_tokens", [1, 2, 7, 8, 9, 12, 13, 40])
def test_float64_products_and_squares_are_added_in_order(n_tokens):
    rng = np.random.default_rng(n_tokens)
    query, tokens = rng.normal(size=(37, 16)), rng.normal(size=(n_tokens, 37))
    products, squares = np.full((n_tokens + 1, 16), np.nan), np.full(n_tokens + 1, np.nan)
    _exact(address(query), 37, address(tokens), n_tokens, address(products), address(squares))
    expected, lengths = np.zeros((n_tokens, 16)), np.zeros(n_tokens)
    for x, q in zip(tokens.T, query, strict=True):
        expected += np.multiply.outer(x, q)
        lengths += x * x
    assert products[:-1].tolist() == expected.tolist()
    assert squares[:-1].tolist() == lengths.tolist()
    assert np.isnan(np.append(products[-1], squares[-1])).all()


@numba.njit
def _mean_recall(lanes, table, cell, radius, n_tokens, column, weights):
    return mean_recall(lanes, table, cell, radius, n_tokens, column, weights)


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("n_tokens", [0, 1, 2, 9, 100])
def test_recall_is_the_mean_of_the_greater_of_a_column_and_of_cosines(n_tokens, blocks):
    rng = np.random.default_rng(n_tokens)
    table = rng.integers(0, 256, (30, 16 * blocks)).astype(np.uint8)
    cell = rng.integers(0, 30, n_tokens).astype(np.uint16)
    radius = rng.choice((0, 1, 40, 255), n_tokens).astype(np.uint8)
    column = rng.uniform(-1, 1, 16 * blocks).astype(np.float32)
    column[::5] = -1e30
    weights = rng.dirichlet(np.ones(16 * blocks)).astype(np.float32)
    lowest = np.maximum(table[cell].astype(int) - radius[:, None], 0).min(axis=0, initial=255)
    expected = weights @ np.maximum(column.astype(np.float64), np.cos(lowest * STEP))
    got = _mean_recall(16 * blocks, *map(address, (table, cell, radius)), n_tokens, address(column), address(weights))
    assert got == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize("blocks", BLOCKS)
def test_no_cosine_of_an_angle_byte_is_too_small(blocks):
    """All 256 of them; each is raised by less than 1e-6 of its angle."""
    lanes = 16 * blocks
    table = np.resize(np.arange(256, dtype=np.uint8), (-(-256 // lanes), lanes))
    cell, radius = np.arange(len(table), dtype=np.uint16), np.zeros(1)
    column = np.full(lanes, -1e30, np.float32)
    for steps in range(256):
        weights = np.zeros(lanes, np.float32)
        weights[steps % lanes] = 1.0
        at_cell = address(cell) + 2 * (steps // lanes)
        got = _mean_recall(lanes, address(table), at_cell, address(radius), 1, address(column), address(weights))
        assert -SINE_ERROR <= got - np.cos(steps * STEP) <= SINE_ERROR + 2.3e-6


@numba.njit
def _sines(table, cell, radius, weights, n_tokens, out):
    add_sines(table, cell, radius, weights, n_tokens, out)


@pytest.mark.parametrize("n_tokens", [*range(1, 10), 16, 17, 100])
def test_sines_bound_those_of_numpy(n_tokens):
    """Never less than the cosines of the nearest angles, nor more than those of the farthest, but for their error."""
    rng = np.random.default_rng(n_tokens)
    table = rng.uniform(-1.7, 1.7, (30, 2)).astype(np.float32)
    cell = rng.integers(0, 30, n_tokens).astype(np.uint16)
    radius = rng.choice((0, 1, 40, 254, 255), n_tokens).astype(np.uint8)
    weights = rng.choice((0.0, 0.3, 1.0, 7.0), n_tokens + 8).astype(np.float32)
    out = np.full(2, 5.0, np.float32)
    _sines(address(table), address(cell), address(radius), address(weights), n_tokens, address(out))
    angle = np.where(radius == 255, 4.0, radius * np.pi / 360)
    some = weights[:n_tokens].astype(np.float64)
    error = (SINE_ERROR + n_tokens * 2.0**-23) * some.sum()
    for column, sign in enumerate((1, -1)):
        expected = some @ np.sin(np.clip(table[cell, column] + sign * angle, -np.pi / 2, np.pi / 2))
        assert -error <= sign * (out[column] - expected) <= error + 1e-5 * some.sum()


@cache
def near_of(name: str) -> Any:
    near = make_near(PATHS[name])

    @numba.njit
    def run(n_lanes, query, steps, lanes, codes, terms, n_tokens, out, row, column):
        near(n_lanes, query, steps, lanes, codes, terms, n_tokens, out, row, column)

    @numba.njit
    def choose(n_lanes, products, low, margin, column, out):
        return candidates(n_lanes, products, low, margin, column, out)

    return run, choose


@pytest.mark.parametrize("n_tokens", [1, 6, 13, 25])
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("name", HERE)
def test_near_products_and_candidates_equal_numpy(name, blocks, n_tokens):
    """Powers of two as steps and margins: nothing rounds. Equal products are many, and each may be a maximum."""
    rng = np.random.default_rng(n_tokens)
    lanes, width = 16 * blocks, 12
    query = rng.integers(-3, 4, (width, lanes)).astype(np.int8)
    codes = rng.integers(-3, 4, (n_tokens, width))
    steps = (2.0 ** rng.integers(-3, 1, lanes)).astype(np.float32)
    terms = (2.0 ** rng.integers(-3, 1, (n_tokens, 2))).astype(np.float32)
    expected = ((codes @ query.astype(np.int64)) * steps * terms[:, :1]).astype(np.float32)
    packed = np.ascontiguousarray(query.reshape(width // 4, 4, lanes).swapaxes(1, 2))
    head = np.r_[starts_of(query.sum(axis=0, dtype=np.int32), name), steps.view(np.int32)]
    out, row, column = np.empty((n_tokens, lanes), np.float32), np.full(n_tokens, -1e30, np.float32), steps - 1e30
    row[0], column[1] = 2.0**20, 2e9  # what stands there is kept where it is greater
    run, choose = near_of(name)
    bytes_of_tokens = (codes + 128).astype(np.uint8)
    run(
        lanes, address(packed), width // 4, address(head), address(bytes_of_tokens), address(terms), n_tokens,
        address(out), address(row), address(column),
    )  # fmt: skip
    assert out.tolist() == expected.tolist()
    lowered = (expected - terms[:, 1:]).max(axis=0)
    assert row[1:].tolist() == expected.max(axis=1)[1:].tolist()
    assert column[2:].tolist() == lowered[2:].tolist()
    assert (row[0], column[1]) == (2.0**20, 2e9)
    chosen = np.empty(lanes, np.int64)
    for t in range(n_tokens):
        low, margin = row[t] - 2 * terms[t, 1], terms[t, 1]
        n = choose(lanes, address(out[t]), low, margin, address(column), address(chosen))
        wanted = np.flatnonzero((expected[t] >= low) | (expected[t] + margin >= column))
        assert chosen[:n].tolist() == wanted.tolist()


@numba.njit
def _code(tokens, n_groups, n_turned, n_tokens, codes, measured):
    code_tokens(tokens, n_groups, n_turned, n_tokens, codes, measured)


@pytest.mark.parametrize(("width", "n_turned"), [(128, 8), (384, 8), (384, 1), (256, 16), (1024, 64)])
def test_codes_of_tokens_stand_for_the_turned_tokens(width, n_turned):
    """All groups of numbers are multiplied by Hadamard's matrix, and what the codes leave out is as long as it says."""
    rng = np.random.default_rng(width)
    tokens = rng.standard_normal((7, width)).astype(np.float32)
    tokens[0] = 0.0
    tokens[1] = np.eye(width)[5]
    tokens[2, 3] = 90.0
    matrix = np.ones((1, 1))
    while len(matrix) < 16 * n_turned:
        matrix = np.kron([[1, 1], [1, -1]], matrix)
    turned = (tokens.astype(np.float64).reshape(-1, len(matrix)) @ matrix).reshape(tokens.shape)
    given, codes, measured = tokens.copy(), np.full((8, width), 7, np.uint8), np.zeros((7, 3))
    _code(address(given), width // 16, n_turned, 7, address(codes), address(measured))
    assert np.abs(given - turned).max() <= 1e-6 * np.abs(turned).max()
    assert (codes[7] == 7).all()
    stands_for = measured[:, 1:2] * (codes[:7].astype(float) - 128)
    assert measured[:, 0] == pytest.approx((tokens.astype(np.float64) ** 2).sum(axis=1), rel=1e-12)
    assert measured[:, 2] == pytest.approx(((turned - stands_for) ** 2).sum(axis=1), rel=1e-3, abs=1e-9)
    assert (np.abs(turned - stands_for) <= 0.501 * measured[:, 1:2] + 1e-6).all()
    assert codes[1].min() == 1
    assert codes[1].max() == 255


@pytest.mark.parametrize("width", [128, 384, 8192])
def test_queries_are_turned_as_reports_are(width):
    tokens = np.random.default_rng(width).standard_normal((2, width)).astype(np.float32)
    given, codes, measured = tokens.copy(), np.empty((2, width), np.uint8), np.empty((2, 3))
    n_turned = all_pairs._n_turned(width)
    _code(address(given), width // 16, n_turned, 2, address(codes), address(measured))
    turned = all_pairs._turn(tokens.astype(np.float64)) * np.sqrt(16 * n_turned)
    assert np.abs(given - turned).max() <= 1e-6 * np.abs(turned).max()


@numba.njit
def _dot(a, b, n):
    return dot(a, b, n)


def test_products_of_vectors_err_as_little_at_any_width():
    rng = np.random.default_rng(0)
    for n in (1, 63, 64, 384, 385, 768, 1024, 8192):
        a, b = (x / np.linalg.norm(x) for x in np.abs(rng.standard_normal((2, n))))
        a, b = a.astype(np.float32), b.astype(np.float32)
        exact = float((a.astype(np.longdouble) * b).sum())
        assert abs(_dot(address(a), address(b), n) - exact) <= dot_error(n, 1.001) < 3.6e-7


@cache
def widened_by(name: str) -> Any:
    widen = make_widen(PATHS[name])

    @numba.njit
    def run(source, target, n):
        widen(source, target, n)

    return run


@pytest.mark.parametrize("first", [0, 1, 5])
@pytest.mark.parametrize("name", HERE)
def test_widen_equals_numpy(name, first):
    """Every float16 number, from places of any alignment and in any count; nothing is written behind the last."""
    every = np.arange(1 << 16, dtype=np.uint16)
    every = every[~np.isnan(every.view(np.float16))]
    for n in (0, 1, 2, 15, 16, 17, 31, 33, 384, 999, len(every) - first):
        wide = np.full(n + 1, 7.5, np.float32)
        widened_by(name)(address(every[first:]), address(wide), n)
        assert wide[:n].tobytes() == every[first : first + n].view(np.float16).astype(np.float32).tobytes()
        assert wide[n] == 7.5


# ---- the choice ------------------------------------------------------------------------------------------------------

AVX2 = "+avx2,+fma,+f16c"
AVX512 = f"{AVX2},+avx512f,+avx512bw,+avx512dq,+avx512vl"


@pytest.mark.parametrize(
    ("cpu", "features", "family", "names"),
    [
        ("generic", "", "x86_64", ["portable"]),
        ("haswell", AVX2, "x86_64", ["avx2", "portable"]),
        ("haswell", "+avx2,+fma,-f16c", "x86_64", ["portable"]),
        ("alderlake", f"{AVX2},+avxvnni,-avx512f", "x86_64", ["avx-vnni", "avx2", "portable"]),
        ("skylake-avx512", f"{AVX512},-avx512vnni", "x86_64", ["avx512", "avx2", "portable"]),
        (
            "rocketlake", f"{AVX512},+avx512vnni,+avxvnni", "x86_64",
            ["avx512-vnni", "avx512", "avx-vnni", "avx2", "portable"],
        ),
        ("neoverse-n1", "+neon,+dotprod", "arm64", ["neon-dotprod", "neon", "portable"]),
        ("cortex-a72", "", "arm64", ["neon", "portable"]),
        ("apple-m1", "", "arm64", ["neon-dotprod", "neon", "portable"]),
        ("apple-m1", "-dotprod", "arm64", ["neon", "portable"]),
        ("power9", "+avx2,+fma,+f16c", "ppc64le", ["portable"]),
    ],
)  # fmt: skip
def test_paths_of_a_target(cpu, features, family, names):
    assert [path.name for path in _target.usable(cpu, features, family)] == names


@pytest.mark.parametrize(
    ("cores", "names"),
    [
        ([], ["neon", "portable"]),
        (["fp asimd asimdhp"], ["neon", "portable"]),
        (["fp asimd asimddp", "fp asimd asimddp sve"], ["neon-dotprod", "neon", "portable"]),
        (["fp asimd asimddp", "fp asimd"], ["neon", "portable"]),  # a process may move to the lesser core
    ],
)
def test_products_of_bytes_that_only_linux_lists_are_used(cores, names):
    """LLVM's list of an Arm server has no `dotprod`, so that its fastest path was never taken."""
    cpuinfo = "\n".join(f"processor\t: {i}\nFeatures\t: {core}\nCPU part\t: 0xd0c" for i, core in enumerate(cores))
    features = _target.complete("+crc,+lse,+neon", cpuinfo)
    assert [path.name for path in _target.usable("generic", features, "arm64")] == names


SEARCH = """
import sys
import numpy as np
from metric_oracle.encoders.token_states import Tokens
from metric_oracle.indexes.bertscore import StateDocuments
from metric_oracle.kernels import _target
from metric_oracle.kernels.bertscore import cpu
from metric_oracle.kernels.contract import Answers as Found
from metric_oracle.retrieval.kernels import arrays_of

rng = np.random.default_rng(0)
sizes = np.sort(rng.integers(3, 40, 120))[::-1]
sizes[0] = 70
ptr = np.r_[0, np.cumsum(sizes)]
stems = rng.standard_normal((60, 96)) + 2
states = stems[rng.integers(0, 60, ptr[-1])] + 0.2 * rng.standard_normal((ptr[-1], 96))
states = (states / np.linalg.norm(states, axis=1, keepdims=True)).astype(np.float16)
tokens = Tokens(rng.integers(2, 40, ptr[-1]).astype(np.int32), ptr, 0)
description = {"encoder": {"model": "drawn"}, "special_ids": [0, 1], "baseline": None, "truncated": 0}
index = StateDocuments.from_states(states, tokens, np.arange(120) % 110, description)
asked = Tokens(tokens.ids[: ptr[3]], ptr[:4], 0)
queries = StateDocuments(
    states[: ptr[3]], asked.ids, asked.ptr, np.arange(4), np.arange(3), weights=np.ones(ptr[3]),
    weight_of_id=index.weights_off(len(index.frequency)),
)
found = Found(np.zeros((3, 4), np.int64), np.zeros((3, 4)), np.zeros((3, 4), np.int64), np.full(3, -np.inf))
work = {}
corpus, batch = arrays_of(None, index, queries)
cpu.Backend().search(corpus, batch, range(3), 4, found, work)
print(_target.path().name, cpu.stages([work])["scored"] < 0.5, end=" ")
print(b"".join(x.tobytes() for x in found[:4]).hex())
print(*np.concatenate([x[:20] for x in cpu.Backend().score_all(corpus, batch, range(3))]).tolist())
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if name != _target.VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", program], env={**kept, **environment}, capture_output=True, text=True, check=False
    )


@cache
def answers(**environment: str) -> list[str]:
    ended = run(SEARCH, **environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


# Of the other paths one for each width of registers, the oldest: with that of this machine they have all widths and
# ranges of codes. The loops of all paths are compared with NumPy above.
OLDER = {
    PATHS[name].register_bytes: name for name in HERE if PATHS[name].register_bytes < PATHS[HERE[0]].register_bytes
}


@pytest.mark.parametrize("name", OLDER.values())
def test_a_search_on_older_paths_finds_the_same(name):
    got, own = answers(ORACLE_SIMD=name), answers()
    assert [got[:2], own[:2]] == [[name, "True"], [HERE[0], "True"]]
    assert got[2] == own[2]
    # Of all pairs, products without a fused addition round otherwise.
    apart = np.abs(np.array(got[3:], float) - np.array(own[3:], float)).max()
    assert apart <= (2e-6 if name == "portable" else 0.0)


def test_the_least_target_of_the_compiler_is_taken_as_it_is():
    """Code for instructions that the target lacks ended the process; float16 became a call that nobody answers."""
    got = answers(NUMBA_CPU_NAME="generic")
    assert got[0] == "portable"
    assert got[2] == answers()[2]


@pytest.mark.skipif("avx2" not in HERE, reason="not a processor with AVX2")
def test_a_lesser_target_of_the_compiler_is_taken_as_it_is():
    """The loops run for it, as above; the rest of a search asks for no instruction by name."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-k", "equal_numpy or equals_numpy"]
    target = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "+avx2,+fma,-f16c"}
    ended = subprocess.run([*command, __file__], env={**os.environ, **target}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    assert {name for name in PATHS if re.search(rf"[-\[]{name}[-\]].* PASSED", ended.stdout)} == {"portable"}


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("avx9", f"must be {', '.join(_target.PATHS)}; got 'avx9'"),
        (
            "avx2" if "neon" in HERE else "neon",
            f"must be one that this processor has, {', '.join(HERE)}; got '{'avx2' if 'neon' in HERE else 'neon'}'",
        ),
    ],
)
def test_a_path_that_is_not_there_is_one_line(name, rule):
    program = (
        "from metric_oracle.kernels import _target\ntry:\n    _target.path()\nexcept ValueError as e:\n    print(e)"
    )
    ended = run(program, ORACLE_SIMD=name)
    assert ended.stdout == f"ORACLE_SIMD {rule}. Choose one, or unset the variable.\n", ended.stderr


# ---- assembly --------------------------------------------------------------------------------------------------------


class _Context:
    """What the loops ask of Numba."""

    def get_dummy_value(self) -> None:
        return None


def instructions(intrinsic: Any, n_arguments: int, floats: tuple[int, ...], name: str, triple: str) -> Counter:
    """Compile a loop for a path of any processor; return how often each instruction occurs."""
    path = PATHS[name]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = triple
    kinds = [ir.FloatType() if i in floats else ir.IntType(64) for i in range(n_arguments)]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "loop")
    builder = ir.IRBuilder(function.append_basic_block())
    _, code = intrinsic._defn(None, *[None] * n_arguments)
    code(_Context(), builder, None, list(function.args))
    builder.ret_void()
    features = ",".join(f"+{need}" for need in path.needs)
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=path.cpu, features=features, opt=3)
    parsed = llvm.parse_assembly(str(module))
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(parsed, passes)
    return Counter(re.findall(r"^\t(?:\{vex\}\t)?([a-z][a-z0-9]*)", target.emit_assembly(parsed), re.MULTILINE))


ARM, INTEL = "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("name", "triple", "multiply", "foreign"),
    [
        ("neon-dotprod", ARM, "sdot", ("mul", "sadalp")),
        ("neon", ARM, "sadalp", ("sdot", "udot", "usdot")),
        ("avx2", INTEL, "vpmaddubsw", ("vpdpbusd", "vpmulld")),
        ("avx-vnni", INTEL, "vpdpbusd", ("vpmaddubsw", "vpmulld")),
        ("avx512", INTEL, "vpmaddubsw", ("vpdpbusd", "vpmulld")),
        ("avx512-vnni", INTEL, "vpdpbusd", ("vpmaddubsw", "vpmulld")),
        ("portable", INTEL, "pmullw", ("pmulld", "pmaddubsw", "vpdpbusd")),
    ],
)
def test_products_of_bytes_take_the_instruction_of_their_path(name, triple, multiply, foreign):
    found = instructions(make_bounds(PATHS[name]), 15, (4, 5), name, triple)
    assert found[multiply]
    assert not any(found[other] for other in foreign)


@pytest.mark.parametrize("name", ["neon", "neon-dotprod"])
def test_other_loops_compile_for_arm(name):
    assert instructions(make_dots(PATHS[name]), 8, (), name, ARM)["fmla"]
    assert instructions(make_products(4, PATHS[name]), 7, (), name, ARM)["fmla"]
    assert instructions(make_widen(PATHS[name]), 3, (), name, ARM)["fcvtl"]
