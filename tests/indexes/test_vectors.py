"""Vectors on disk and in memory: aligned, read-only, distinct; FAISS for those who ask."""

import sys

import numpy as np
import pytest

from metric_oracle.base.errors import BackendError
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Corpus
from metric_oracle.indexes.embeddings import EmbeddingDocuments
from metric_oracle.indexes.labels import LabelDocuments
from metric_oracle.indexes.lists import group_rows
from metric_oracle.indexes.store import ALIGNMENT, map_file, read_arrays, write_arrays, write_files
from metric_oracle.indexes.vectors import distinct_rows, in_order_of_use
from metric_oracle.kernels.cosine.codes import unit_vectors
from metric_oracle.sources.contract import Attachment


@pytest.fixture
def index(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((70, 33)).astype(np.float32)
    vectors[10:20] = 4 * vectors[:10]  # other lengths, the same directions
    folder = tmp_path / "chexbert"
    folder.mkdir()
    given = Reports([], [], attached={"chexbert": Attachment(vectors, np.arange(70))})
    write_files(folder, EmbeddingDocuments.build("chexbert", Corpus(given, [], np.empty(0))).files())
    return EmbeddingDocuments.load("chexbert", {path.name: map_file(path) for path in folder.iterdir()})


def test_stored_vectors_are_aligned_and_read_only(index):
    assert index.vectors.shape == (60, 33)
    for array in (index.vectors, index.codes, index.basis, index.measured, index.row_ptr, index.row_id):
        assert array.ctypes.data % ALIGNMENT == 0
        assert array.flags.aligned
        assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        index.vectors[0, 0] = 1
    assert (
        list(index.vectors[index.document_of_row[:10]].ravel() - index.vectors[index.document_of_row[10:20]].ravel())
        is not None
    )
    np.testing.assert_array_equal(index.document_of_row[:10], index.document_of_row[10:20])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 33])
def test_arrays_of_a_file_begin_at_lines_of_the_cache(n, tmp_path):
    columns = {
        "words": ["a", "", "bcd"][: n % 4],
        "x": np.random.default_rng(n).random((n, 5), np.float32),
        "bytes": np.arange(n, dtype=np.int8),
        "more words": ["q"] * n,
        "halves": np.ones(n, np.float16),
        "one": np.array([0.5]),
    }
    write_arrays(tmp_path / "a.arrow", columns)
    got = read_arrays(map_file(tmp_path / "a.arrow"))
    assert got.keys() == columns.keys()
    for name, values in columns.items():
        if isinstance(values, list):
            assert list(got[name]) == values
        else:
            assert (got[name].dtype, got[name].shape) == (values.dtype, values.shape)
            np.testing.assert_array_equal(got[name], values)
            assert not values.size or got[name].ctypes.data % ALIGNMENT == 0


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_distinct_rows_are_those_of_a_dictionary(dtype):
    rng = np.random.default_rng(2)
    for n, width, span in ((0, 3, 2), (1, 1, 2), (500, 3, 2), (2000, 14, 1), (3000, 768, 40), (300, 768, 1)):
        # Few bits in high places: the numbers of a hash that are easily lost.
        values = (2.0 ** rng.integers(0, 7, (n, width)) * rng.integers(0, span + 1, (n, width)).clip(0, 1)).astype(
            dtype
        )
        values[n // 2 :] = values[rng.permutation(n)[: n - n // 2]]
        seen: dict[bytes, int] = {}
        expected = [seen.setdefault(row.tobytes(), len(seen)) for row in values]
        first, which = distinct_rows(values)
        assert which.tolist() == expected
        assert first.tolist() == [expected.index(i) for i in range(len(seen))]


def test_reports_number_their_vectors_in_the_order_of_first_use():
    used, place = in_order_of_use(np.array([5, -1, 2, 5, 9, 2, -1]))
    assert used.tolist() == [5, 2, 9]
    assert place.tolist() == [0, -1, 1, 0, 2, 1, -1]
    assert in_order_of_use(np.full(3, -1))[1].tolist() == [-1] * 3


def test_rows_ascend_within_a_unit():
    document_of_row = np.random.default_rng(2).integers(-1, 5, 1000)
    row_ptr, row_id = group_rows(document_of_row, 5)
    for unit in range(5):
        assert row_id[row_ptr[unit] : row_ptr[unit + 1]].tolist() == np.flatnonzero(document_of_row == unit).tolist()


def test_embeddings_are_numbered_by_rows_and_unused_ones_left_out():
    vectors = np.array([[9, 9], [0, 2], [4, 0], [0, 1], [1, 1]], np.float32)
    given = Reports([], [], attached={"embedding": Attachment(vectors, np.array([3, -1, 4, 1, 2]))})
    index = EmbeddingDocuments.build("embedding", Corpus(given, [], np.empty(0)))
    np.testing.assert_allclose(index.vectors, [[0, 1], [0.5**0.5] * 2, [1, 0]], rtol=1e-7)
    assert index.document_of_row.tolist() == [0, -1, 1, 0, 2]
    assert [index.row_id[a:b].tolist() for a, b in zip(index.row_ptr, index.row_ptr[1:], strict=False)] == [
        [0, 3],
        [2],
        [4],
    ]


def test_unit_vectors_of_a_prepared_set_keep_their_bits():
    vectors = unit_vectors(np.random.default_rng(1).standard_normal((3000, 8)).astype(np.float32))
    assert (unit_vectors(vectors) != vectors).any()
    given = Reports([], [], attached={"embedding": Attachment(vectors, np.arange(3000), are_unit=True)})
    np.testing.assert_array_equal(
        EmbeddingDocuments.build("embedding", Corpus(given, [], np.empty(0))).vectors, vectors
    )


def test_faiss_over_the_vectors(index, monkeypatch):
    pytest.importorskip("faiss")
    flat = index.faiss()
    assert (flat.ntotal, flat.d) == index.vectors.shape
    products, documents = flat.search(index.vectors[:5].copy(), 1)
    assert documents[:, 0].tolist() == list(range(5))
    np.testing.assert_allclose(products, 1, atol=1e-5)
    classes = np.array([[1] * 9 + [0] * 5, [0] * 14, [1] + [0] * 13], np.uint8)
    given = Reports([], [], attached={"labels": Attachment(classes, np.arange(3), {"uncertain": "blank"})})
    products, documents = (
        LabelDocuments.build("labels", Corpus(given, [], np.empty(0)))
        .faiss()
        .search(np.eye(14, dtype=np.float32)[:1], 3)
    )
    assert documents[0].tolist() == [2, 0, 1]
    np.testing.assert_allclose(products[0], [1, 1 / 3, 0], atol=1e-6)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(BackendError, match=r"^an index of vectors needs the Python package faiss, "):
        index.faiss()
