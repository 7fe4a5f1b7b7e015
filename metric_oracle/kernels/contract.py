"""The interface of a kernel, which the class `Backend` of each ``kernels/<metric>/<backend>.py`` implements."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from metric_oracle.kernels.topk.exclusion import NOTHING, Exclusion
from metric_oracle.kernels.topk.reference import select


def read_only(values: Any) -> Any:
    """Return named tuples, tuples and dicts of arrays with read-only views in place of the arrays.

    Machine code is compiled for each form of its arguments, and an array that can be written is another form. All
    arrays of a corpus and of queries are read-only, in memory as in a mapped file: each kernel is compiled once.
    """
    if isinstance(values, np.ndarray):
        if not values.flags.writeable:
            return values
        view = values.view()
        view.flags.writeable = False
        return view
    if isinstance(values, tuple):
        parts = map(read_only, values)
        return type(values)(*parts) if hasattr(values, "_fields") else tuple(parts)
    if isinstance(values, dict):
        return {key: read_only(value) for key, value in values.items()}
    return values


class Answers(NamedTuple):
    """The k best rows of the distinct queries of a batch, as arrays that a search fills.

    A query has one list of rows, or several if `exclusion` demands it: equal reports that exclude different corpus rows
    are one query. There are L lists of Q queries.
    """

    # int64[L, k]. Corpus rows of each list, best first. -1 if fewer than k rows have a positive score or reach
    # the limit.
    rows: np.ndarray
    scores: np.ndarray  # float64[L, k], their scores
    # int64[L, k], for each entry of `rows`, the number of corpus rows with exactly its score, without rows that
    # the list excludes.
    ties: np.ndarray
    # float64[Q]. Input: rows with a worse score may be left out, because k rows of other shards have this score
    # or a better one. Without such a limit -inf, or inf if lower scores are better.
    limit: np.ndarray
    exclusion: Exclusion = NOTHING  # input: the rows that each list excludes

    def put(self, q, documents, scores, corpus, k, sign=1.0):
        """Write the k best rows of scored documents into the lists of query `q`.

        Parameters
        ----------
        q : int
            Number of the distinct query.
        documents : int64[n]
        scores : float64[n]
            Exact scores of the documents.
        corpus : NamedTuple with `row_ptr` and `row_id`
            The corpus rows of each document.
        k : int
        sign : float
            -1.0 if lower scores are better.

        Returns
        -------
        float
            Score of the k-th best row, the worst of all lists. Every document that was left out must score worse.
            Infinite if a list has fewer than k rows, so that no document may be left out.
        """
        last = []
        for place in self.exclusion.lists(q):
            excluded = self.exclusion.rows_of(place)
            rows, best, ties = select(documents, sign * scores, corpus.row_ptr, corpus.row_id, k, excluded)
            for column, values in zip(self[:3], (rows, sign * best, ties), strict=True):
                column[place, : len(values)] = values
            last.append(best[-1] if len(best) == k else -np.inf)
        return sign * min(last)


@dataclass(frozen=True)
class Capabilities:
    """Properties of a backend."""

    batched: bool = False  # one call answers all queries, as on a GPU; otherwise threads take blocks of queries
    # Candidates are dropped by proven bounds, which each search compares with scores; otherwise every pair is
    # scored.
    bound: bool = True
    # No candidate that belongs in the list is dropped. False for a shortlist without a proven bound.
    exact: bool = True
    # Scores may be negative and are listed all the same; otherwise rows without a positive score follow by row.
    signed: bool = False
    queries_at_once: int = 32  # number of queries that `score_all` scores together


class Kernel(Protocol):
    """One backend of one metric; its attributes are the metric's options in the registry.

    `corpus` and `batch` are named tuples of arrays, the corpus's and the distinct queries', which the metric's
    representation makes. Documents are its distinct representations, each of which stands for corpus rows.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    def search(self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Any) -> None:
        """Write the k best rows of the corpus for the distinct queries first .. last - 1."""

    def score_all(self, corpus: Any, batch: Any, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield the scores of all documents with each of the chosen distinct queries: float64[D].

        Each array overwrites the one before.
        """
        raise NotImplementedError

    def score_some(self, corpus: Any, batch: Any, chosen: Sequence[int], documents: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the scores of `documents`, int64[n], with each of the chosen queries, as `score_all`: float64[n]."""
        for scores in self.score_all(corpus, batch, chosen):
            yield scores[documents]

    def score_error(self, corpus: Any, batch: Any) -> float:
        """Return an upper bound on the absolute error of the scores of `score_all`.

        It is 0 if they equal the reference's in every bit.
        """
        return 0.0

    def score_pairs(
        self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return exact scores of pairs of a distinct query and a document, float64[n], and their components by name."""
        raise NotImplementedError

    def pair_scores(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """Return the exact scores of pairs without their components, float64[n].

        It is fastest if the pairs are sorted by query.
        """
        return self.score_pairs(corpus, batch, query, document)[0]

    def components(
        self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, scores: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the components of the scores of pairs by name, one array[n] each; by default there are none."""
        return {}

    def new_workspace(self, corpus: Any) -> Any:
        """Return the scratch arrays of one thread, which are passed to `search`."""
        return None

    def stages(self, workspaces: Sequence[Any]) -> dict[str, Any]:
        """Return, by name, the share of all pairs that each stage of a finished search dropped.

        It is stored in the signature.
        """
        return {}

    def lacking(self) -> str:
        """Return why this machine cannot run the backend; an empty string if it can."""
        return ""


class ScoredWhole(Kernel):
    """Base of the backends without a bound: every document is scored by `score_all`, and the best are selected."""

    capabilities: ClassVar[Capabilities] = Capabilities(bound=False, signed=True)

    def search(self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Any) -> None:
        """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
        documents = np.arange(len(corpus.row_ptr) - 1)
        for q, scores in enumerate(self.score_all(corpus, batch, range(first, last)), first):
            answers.put(q, documents, scores, corpus, k)
