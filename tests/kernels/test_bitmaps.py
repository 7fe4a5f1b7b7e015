"""Posting lists as bits: the same counts as from postings. Searches with them are in `test_bounds.py`."""

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.indexes.features import ForwardLists, invert
from metric_oracle.kernels import _bitmaps as bitmaps_of
from metric_oracle.kernels import _overlap_counts as counts_of
from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._overlap import Features

AT_ONCE = -(2**62)  # as if its postings had been read very often


@jit
def row_of_bits(feature, n_postings, index, bitmaps):
    return bitmaps_of.row_of_bits(feature, n_postings, index, bitmaps)


@jit
def count_bits(row, first, end, count, bitmaps):
    bitmaps_of.count_bits(row, first, end, count, bitmaps)


@jit
def count_bytes(count, begin, end, least):
    return counts_of._count_bytes(count, begin, end, least)


@jit
def next_at_least(count, begin, end, least):
    return counts_of._next_at_least(count, begin, end, least)


def features_with(share: float, n_documents: int) -> tuple[Features, np.ndarray]:
    """Return features in one length bucket and which document has which: bool[D, 3]. The last has only the first."""
    has = np.random.default_rng(n_documents).random((n_documents, 3)) < share
    has[-1] = True, False, False
    document, feature = np.nonzero(has)
    ptr = np.concatenate([[0], np.cumsum(has.sum(axis=1))])
    sizes = has.sum(axis=1, dtype=np.int32)[None, :]
    of_one_size, rows = np.zeros(n_documents, np.int32), np.arange(n_documents)
    assert (np.diff(document) >= 0).all()
    return invert(ForwardLists(ptr, feature.astype(np.int32), sizes), of_one_size, rows, 3), has


@pytest.mark.parametrize("n_documents", [63, 64, 65, 128, 1000])
def test_bits_count_what_postings_count(n_documents):
    index, has = features_with(0.5, n_documents)
    bitmaps = bitmaps_of.new_bitmaps(index)
    bitmaps.row[:] = AT_ONCE
    bitmaps.bits[:] = 12345  # whatever the memory held before
    rows = [row_of_bits(v, 1, index, bitmaps) for v in range(3)]
    assert rows == [0, 1, 2]
    edges = sorted(
        {0, 1, 31, 62, 63, 64, 65, 127, 128, 500, n_documents - 1, n_documents} & set(range(n_documents + 1))
    )
    for v, row in enumerate(rows):
        for first in edges:
            for end in edges:
                if first < end:
                    count = np.full(bitmaps_of.WORD * bitmaps_of.n_words(n_documents), 7, np.uint8)
                    expected = count.copy()
                    expected[first:end] += has[first:end, v]
                    count_bits(row, first, end, count, bitmaps)
                    np.testing.assert_array_equal(count, expected)


@pytest.mark.parametrize("least", [1, 3, 255])
def test_counts_of_a_bucket_are_compared_word_by_word(least):
    count = np.zeros(5 * bitmaps_of.WORD, np.uint8)
    rng = np.random.default_rng(least)
    count[:300] = rng.choice([0, least - 1, least, 255], 300, p=[0.5, 0.48, 0.01, 0.01])
    edges = [0, 1, 31, 62, 63, 64, 65, 127, 128, 129, 192, 250, 255, 256, 257, 299, 300]
    for begin in edges:
        for end in edges:
            if begin <= end:
                places = begin + np.flatnonzero(count[begin:end] >= least)
                assert count_bytes(count, begin, end, least) == len(places)
                assert next_at_least(count, begin, end, least) == min([*places.tolist(), end])


def test_a_list_gets_bits_once_it_is_read_often():
    index, has = features_with(0.5, 1000)
    bitmaps, n = bitmaps_of.new_bitmaps(index), has.sum(axis=0).tolist()
    rows = [row_of_bits(v, n[v], index, bitmaps) for _ in range(bitmaps_of.READS + 2) for v in (2, 0)]
    assert rows == [-1, -1] * bitmaps_of.READS + [0, 1] * 2
    assert [row_of_bits(1, n[1] // 2, index, bitmaps) for _ in range(2 * bitmaps_of.READS)] == [-1] * 8
    assert bitmaps.n[0] == 2


def test_other_lists_get_no_bits():
    sparse, has = features_with(0.5 / bitmaps_of.DENSEST, 1000)
    assert (has.sum(axis=0) >= 4).all()  # a place in the skip table
    dense, _ = features_with(0.5, 1000)
    short = dense._replace(skip_slot=np.full(3, -1, np.int32))
    for index in (sparse, short):
        bitmaps = bitmaps_of.new_bitmaps(index)
        bitmaps.row[:] = AT_ONCE
        assert all(row_of_bits(v, 1, index, bitmaps) < 0 for v in range(3))
    full = bitmaps_of.new_bitmaps(dense)._replace(bits=np.zeros((1, 16), np.uint64))
    full.row[:] = AT_ONCE
    assert [row_of_bits(v, 1, dense, full) for v in (0, 1, 0)] == [0, -1, 0]


def test_lists_with_bits_and_more_matches_than_a_byte_counts(tmp_path):
    """Long reports of one length that share nearly all words: lists get bits, and counts do not start anew at 256."""
    rng = np.random.default_rng(0)
    vocabulary = np.array([f"w{i}" for i in range(320)])
    corpus, tests = ([" ".join(rng.permutation(vocabulary)[:290]) for _ in range(n)] for n in (150, 24))
    index = mo.build_index(corpus, tmp_path / "I", metrics="jaccard:1,bleu-1")
    for metric in ("jaccard:1", "bleu-1"):
        scores = mo.pairwise(corpus, metric, tests).T
        found = mo.retrieve(index, tests, metric, options=mo.SearchOptions(k=5, threads=1)).table
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        assert np.array_equal(found["row"].to_numpy().reshape(-1, 5), expected)
        assert np.array_equal(found["score"].to_numpy(), np.take_along_axis(scores, expected, axis=1).ravel())
