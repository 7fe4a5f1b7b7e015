"""The functions that are interpreted where there is little to do give what their machine code gives, types included."""

import copy
import re
from importlib import import_module
from inspect import getclosurevars
from pathlib import Path

import numpy as np
import pytest

from metric_oracle.kernels import _jit
from metric_oracle.kernels._compiling import check_may_compile
from metric_oracle.kernels._distribution import new_scratch
from metric_oracle.kernels._groups import Cells
from metric_oracle.kernels._jit import uncompiled

FOLDER = Path(_jit.__file__).parent
FOUND = {
    (path.stem, name)
    for path in FOLDER.glob("*.py")
    for name in re.findall(r"^@.*\blinear\b.*\ndef (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def lists(rng, n, width=9, values=7):
    """Return offsets and values of n ragged lists; many are equal, some empty."""
    sizes = rng.integers(width, size=n)
    ptr = np.cumsum([0, *sizes])
    return ptr, rng.integers(values, size=ptr[-1]).astype(np.int32)


def features(rng, n):
    """Return the offsets of n documents, which ascend by size, their distinct features, and the number of features."""
    sizes = np.sort(rng.integers(12, size=n))
    ptr = np.cumsum([0, *sizes])
    drawn = [np.sort(rng.choice(40, size, replace=False)) for size in sizes]
    return ptr, np.concatenate([np.empty(0, np.int32), *drawn]).astype(np.int32), 40


def reorder(rng, n):
    return *lists(rng, n), rng.permutation(n)[: n // 2 + 1]


def distinct_lists(rng, n):
    return lists(rng, n)


def posting_offsets(rng, n):
    _, ids, size = features(rng, n)
    return ids, size


def invert_lists(rng, n):
    ptr, ids, size = features(rng, n)
    return ptr, ids, np.cumsum([0, *np.bincount(ids, minlength=size)]), 5, size - 3


def note_buckets(rng, n):
    ptr, ids, size = features(rng, n)
    post_ptr = np.cumsum([0, *np.bincount(ids, minlength=size)])
    document = np.repeat(np.arange(n), np.diff(ptr))[np.argsort(ids, kind="stable")].astype(np.int32)
    slots = np.where(np.arange(size) % 3 == 0, np.arange(size) // 3, -1).astype(np.int32)
    buckets = np.sort(rng.integers(4, size=n))
    first, last = 2, size - 1
    skip = np.full((size // 3 + 1, 5), -7, np.int32)
    return post_ptr, document[post_ptr[first] : post_ptr[last]], first, last, buckets, slots, skip


def number_grams(rng, n):
    ptr, words = lists(rng, n, 40, 30)
    return ptr, words, words.copy(), 2, 30, 10_000


def place_features(rng, n):
    ptr, gram = lists(rng, n, 40, 30)
    order, sizes = 1, np.diff(ptr)
    place = np.cumsum([0, *sizes])[:-1]
    return ptr, gram, rng.permutation(30).astype(np.int32), order, place, np.zeros(int(sizes.sum()), np.int32), 11, 999


def number_rows(rng, n):
    return rng.integers(3, size=(n, 3)).astype(np.uint8), int(2 * n).bit_length() + 1


def split_tokens(rng, n):
    texts = ["".join(rng.choice([*"abcdefgh é.-"], size=rng.integers(60))).encode() for _ in range(n)]
    role = np.zeros(256, np.uint8)
    role[[*b" "]], role[[*b".-"]] = 1, 2
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)]), role


def sort_distinct(rng, n):
    graph = np.sort(rng.integers(n // 20 + 1, size=n))
    return graph, rng.integers(50, size=n)


def summarise(rng, n):
    scores = rng.choice([0.0, 0.5, 0.25, *rng.random(20), *(rng.random(20) * 1e-9)], size=n)
    rows = rng.integers(1, 5, size=n)
    ranks = np.unique(rng.integers(1, rows.sum() + 1, size=5))
    return scores, rows, ranks, new_scratch(n), np.zeros(4 + len(ranks))


def _cells(rng, n, is_symmetric):
    sizes = rng.integers(1, 6, size=n)
    ptr = np.cumsum([0, *sizes])
    document = rng.integers(-1, 8, size=ptr[-1])
    query = np.where(document < 0, 0, document)
    columns = np.argsort(query, kind="stable")
    return Cells(
        ptr, ptr, np.cumsum([0, *sizes**2]), np.repeat(np.arange(n), sizes), document,
        document if is_symmetric else np.full(ptr[-1], -1), np.searchsorted(query[columns], np.arange(9)), columns,
    )  # fmt: skip


def distinct_pairs(rng, n):
    cells = _cells(rng, n, is_symmetric=n % 2 == 0)
    return cells, 1, 8, 8, *np.zeros((4, int(cells.cell_ptr[-1])), np.int64)


def mirror_cells(rng, n):
    cells = _cells(rng, n, is_symmetric=True)
    return cells, rng.random(int(cells.cell_ptr[-1]))


def flat(values):
    """Yield the arrays and numbers of what a function took or returned, in order."""
    if isinstance(values, tuple):
        for value in values:
            yield from flat(value)
    elif values is not None:
        yield np.asarray(values)


@pytest.mark.parametrize(("module", "name"), sorted(FOUND))
@pytest.mark.parametrize("n", [1, 2, 300])
def test_the_interpreter_and_the_machine_code_agree(module, name, n):
    function = getattr(import_module(f"metric_oracle.kernels.{module}"), name)
    arguments = globals()[name](np.random.default_rng(n), n)
    for scratch in (arg for arg in arguments if hasattr(arg, "counts")):
        for array in scratch:  # parts are left as they are
            array[:] = 0
    plain = getclosurevars(function).nonlocals["plain"]
    ways = [uncompiled(function.__wrapped__), *([] if plain is None else [plain])]
    copies = [copy.deepcopy(arguments) for _ in ways]
    compiled = function(*arguments)  # `compiled` in conftest.py: nothing counts as little
    for way, others in zip(ways, copies, strict=True):
        with np.errstate(over="ignore"):
            found = [*flat((way(*others), others))]
        for one, other in zip(flat((compiled, arguments)), found, strict=True):
            end = int(compiled) if name == "sort_distinct" and one.ndim else None  # what follows is undefined
            assert np.array_equal(one[:end] if one.ndim else one, other[:end] if other.ndim else other)
            assert one.dtype == other.dtype if one.ndim else one.dtype.kind == other.dtype.kind


def test_little_is_interpreted_and_the_rest_compiled(monkeypatch):
    """A function that is not stored is called by the interpreter until it has taken FEW elements."""
    calls = []

    def add(values):
        calls.append("interpreted")
        return int(values.sum())

    def absent(*arguments):
        check_may_compile()
        calls.append("compiled")
        return -1

    monkeypatch.setattr(_jit, "FEW", 10)
    monkeypatch.setattr(_jit, "jit", lambda function: absent)
    function = _jit.linear(add)
    assert [function(np.ones(4, np.int64)) for _ in range(4)] == [4, 4, -1, -1]
    assert calls == ["interpreted", "interpreted", "compiled", "compiled"]
    monkeypatch.setattr(_jit, "jit", lambda function: lambda values: -1)  # it is stored
    assert _jit.linear(add)(np.ones(4, np.int64)) == -1
