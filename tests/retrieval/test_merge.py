"""The merge of lists of shards against one list of everything, by the tie rule's plain reference."""

from functools import reduce

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metric_oracle.kernels.topk.reference import select
from metric_oracle.retrieval.fall_back import fall_back
from metric_oracle.retrieval.merge import BestRows, merge_best, side_by_side
from support import examples


def listed(scores: np.ndarray, rows: np.ndarray, k: int, higher: bool) -> BestRows:
    """Return the k best of some rows with their scores for each query: float64[Q, n]."""
    k = min(k, len(rows))
    sign = 1.0 if higher else -1.0
    found = [select(np.arange(len(rows)), sign * s, np.arange(len(rows) + 1), rows, k) for s in scores]
    best, values, ties = (np.stack(column) for column in zip(*found, strict=True))
    names = pa.array([f"id {row}" for row in best.ravel().tolist()], pa.large_string())
    return BestRows(best, sign * values, ties, {"half": sign * values / 2, "row": 10 * best}, names, names)


def equal(one: BestRows, other: BestRows) -> bool:
    arrays = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("rows", "scores", "ties"))
    parts = all(np.array_equal(one.components[name], other.components[name]) for name in ("half", "row"))
    return arrays and parts and one.ids == other.ids and one.texts == other.texts


@st.composite
def corpora(draw):
    """Draw scores full of ties, as corpus rows in ragged shards, one of them perhaps of one row; and k."""
    n = draw(st.integers(1, 24))
    values = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0]), min_size=n, max_size=n)
    scores = np.array(draw(st.lists(values, min_size=1, max_size=3)))
    ends = draw(st.lists(st.integers(1, n), max_size=6, unique=True).map(sorted))
    cuts = [c for c in np.split(np.arange(n), ends) if len(c)]
    return scores, cuts, draw(st.integers(1, n)), draw(st.booleans())


@examples(150)
@given(corpora())
def test_merged_lists_are_the_list_of_the_whole(drawn):
    scores, cuts, k, higher = drawn
    whole = listed(scores, np.arange(scores.shape[1]), k, higher)
    parts = [listed(scores[:, rows], rows, k, higher) for rows in cuts]
    sign = 1.0 if higher else -1.0
    assert equal(merge_best(parts, k, sign), whole)
    assert equal(reduce(lambda one, other: merge_best([one, other], k, sign), parts), whole)
    assert equal(merge_best(parts[::-1], k, sign), whole)  # the order of the parts says nothing


def test_the_reserve_comes_first_where_nothing_matches():
    scores = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.0]])
    parts = [listed(scores[:, rows], rows, 3, True) for rows in (np.array([0, 1]), np.array([2, 3]))]
    reserve = listed(np.zeros((2, 1)), np.array([3]), 1, True)
    first, second = parts
    second = BestRows(**{**vars(second), "reserve": reserve})
    for some in ([first, second], [second, first]):
        found, fallback = fall_back(merge_best(some, 3, 1.0))
        assert found.rows.tolist() == [[3, 0, 1], [1, 0, 2]]
        assert found.scores.tolist() == [[0, 0, 0], [0.5, 0, 0]]
        assert found.ties.tolist() == [[4, 4, 4], [1, 3, 3]]
        assert found.ids.to_pylist() == ["id 3", "id 0", "id 1", "id 1", "id 0", "id 2"]
        assert found.components["row"].tolist() == [[30, 0, 10], [10, 0, 20]]
        assert fallback.tolist() == [[True, False, False], [False, False, False]]
    found, fallback = fall_back(first)
    assert equal(found, first)
    assert not fallback.any()


def test_lists_lie_side_by_side_query_by_query():
    one, other = (
        listed(np.array([[3.0, 2.0], [2.0, 3.0]]), rows, k, True)
        for rows, k in ((np.array([0, 1]), 2), (np.array([5, 6]), 1))
    )
    both = side_by_side([one, other])
    assert both.rows.tolist() == [[0, 1, 5], [1, 0, 6]]
    assert both.ids.to_pylist() == ["id 0", "id 1", "id 5", "id 1", "id 0", "id 6"]
