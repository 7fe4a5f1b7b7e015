"""The table of answers, laid out in Arrow, against plain Python."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.store import FEW, to_arrow
from metric_oracle.kernels.bleu.score import brevity, precision
from metric_oracle.kernels.contract import Answers
from metric_oracle.metrics import METRICS
from metric_oracle.retrieval.fall_back import fall_back
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.retrieval.merge import BestRows
from metric_oracle.retrieval.result_table import layout
from metric_oracle.retrieval.search_signature import digest
from metric_oracle.verification.verify import put_most_frequent_first


def answer(n: int, k: int, seed: int = 0) -> BestRows:
    """Return k of ten rows for each query; those of a third of the queries all have score 0."""
    rng = np.random.default_rng(seed)
    rows = np.argsort(rng.random((n, 10)), axis=1)[:, :k]
    scores = np.where(np.arange(n)[:, None] % 3 == 0, 0.0, 1.0 - np.arange(k) / 10)
    strings = to_arrow([f"é{row}" for row in rows.ravel()])
    ties = rng.integers(1, 9, (n, k))
    return BestRows(rows, scores, ties, {"half": scores / 2}, strings, strings)


@pytest.mark.parametrize("n", [0, 3, FEW // 2, FEW + 1])
@pytest.mark.parametrize("k", [1, 3])
def test_the_table_is_that_of_plain_python(n, k):
    given, ids = answer(n, k), [f"ü {i % 7}" for i in range(n)]
    table = layout(ids, given, given.scores == 1.0, True)
    plain = {
        "query_id": pa.array([name for name in ids for _ in range(k)], pa.large_string()),
        "rank": pa.array([rank + 1 for _ in range(n) for rank in range(k)], pa.int64()),
        "row": pa.array(given.rows.ravel().tolist(), pa.int64()),
        "candidate_id": pa.array([f"é{row}" for row in given.rows.ravel()], pa.large_string()),
        "score": pa.array(given.scores.ravel().tolist(), pa.float64()),
        "half": pa.array((given.scores / 2).ravel().tolist(), pa.float64()),
        "n_ties": pa.array(given.ties.ravel().tolist(), pa.int64()),
        "fallback": pa.array((given.scores == 1.0).ravel().tolist(), pa.bool_()),
        "exact": pa.array([True] * (n * k), pa.bool_()),
        "text": pa.array([f"é{row}" for row in given.rows.ravel()], pa.large_string()),
    }
    assert table.equals(pa.table(plain))
    assert all(column.num_chunks <= 1 for column in table.columns)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_fall_back_report_comes_first(k):
    """Row 4 is in some of the lists without a positive score, at any place, and in others it is not."""
    given, n = answer(60, k), 60
    reserve = BestRows(np.full((n, 1), 4), np.zeros((n, 1)), np.ones((n, 1), np.int64), {"half": np.zeros((n, 1))})
    strings = to_arrow(["é4"] * n)
    reserve = BestRows(**{**vars(reserve), "ids": strings, "texts": strings})
    found, fallback = fall_back(BestRows(**{**vars(given), "reserve": reserve}))
    plain = Answers(given.rows.copy(), given.scores, given.ties, np.zeros(n))
    expected = np.zeros((n, k), np.bool_)
    put_most_frequent_first(plain, expected, 4)
    assert np.array_equal(found.rows, plain.rows)
    assert np.array_equal(fallback, expected)
    assert expected.any(axis=1).sum() == 20
    assert found.ids.to_pylist() == found.texts.to_pylist() == [f"é{row}" for row in plain.rows.ravel()]


def test_the_digest_of_reports_is_that_of_each_string_with_its_length(monkeypatch):
    ids, texts = ["b", "a", "ä", "a b"], ["no change", "", "\ud800 edema", "é" * 7]
    plain = hashlib.sha256()
    for pair in sorted(zip(ids, texts, strict=True)):
        for string in pair:
            raw = string.encode("utf-8", "surrogatepass")
            plain.update(str(len(raw)).encode() + b":" + raw)
    assert digest(Reports(ids, texts)) == plain.hexdigest()
    monkeypatch.setattr("metric_oracle.retrieval.search_signature.BATCH", 3)
    assert digest(Reports(ids, texts)) == plain.hexdigest()


@pytest.mark.parametrize("name", ["bleu-1", "bleu-4", "bleu-3:coco"])
def test_components_of_bleu_are_those_of_each_pair(name):
    """Also of candidates without tokens, without a common word, and shorter than the order."""
    rng = np.random.default_rng(1)
    kernel, n = load_kernel(METRICS[name], "cpu"), 400
    length, asked = rng.integers(0, 7, n), rng.integers(0, 7, n)
    matched = np.minimum(rng.integers(0, 5, (4, n)), np.maximum(length - np.arange(4)[:, None], 0))
    n_grams = [np.maximum(n_words - np.arange(4)[:, None], 0) for n_words in (length, asked)]
    counts = np.stack([matched, *n_grams], axis=1)[: kernel.order].reshape(-1, n)
    found = kernel.components(counts)
    for i in range(n):
        m, h = matched[:, i].tolist(), int(length[i])
        for order in range(1, kernel.order + 1):
            expected = precision(m[order - 1], max(h - order + 1, 0), kernel.coco) if m[0] else 0.0
            assert found[f"precision_{order}"][i] == expected
        assert found["brevity_penalty"][i] == (brevity(h, int(asked[i]), kernel.coco) if h else 0.0)
    assert [values.dtype for values in found.values()] == [np.float64] * len(found)
    empty = kernel.components(counts[:, :0])
    assert [values.dtype for values in empty.values()] == [np.float64] * len(found)
