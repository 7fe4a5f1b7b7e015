"""The interface of a kernel, which the class `Backend` of each ``kernels/<metric>/<backend>.py`` implements."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from metric_oracle.kernels.topk.exclusion import NOTHING, Exclusion
from metric_oracle.kernels.topk.reference import select


def read_only(values: Any) -> Any:
    """Return an array, or a tuple, named tuple or dict of arrays, with a read-only view in place of each array.

    Whatever else `values` is or contains stays as it is. Machine code is compiled for each form of its arguments, and
    an array that can be written is another form. All arrays of a corpus and of queries are read-only, in memory as in a
    mapped file: each kernel is compiled once.
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

    rows: np.ndarray  # int64[L, k], corpus rows of each list, best first; -1 where there are fewer
    scores: np.ndarray  # float64[L, k], their scores
    # int64[L, k], for each of these rows, how many rows have exactly its score, without rows that the list excludes
    ties: np.ndarray
    # float64[Q], input: rows with a worse score may be left out, because k rows of other shards have this score or a
    # better one; -inf if there is no such limit, inf if lower scores are better
    limit: np.ndarray
    exclusion: Exclusion = NOTHING  # input: the rows that each list excludes
    threads: int = 1  # input: threads that one query may use; more than 1 for kernels that split queries alone

    @classmethod
    def to_fill(cls, n_lists: int, k: int, limit: np.ndarray) -> "Answers":
        """Return answers without rows, for a search to fill."""
        shape = n_lists, k
        return cls(np.full(shape, -1, np.int64), np.zeros(shape), np.zeros(shape, np.int64), limit)

    def put(self, q, documents, scores, corpus, k, sign=1.0):
        """Write the k best rows of scored documents into the lists of query `q`, and return the score of the k-th best.

        `documents` is int64[n], `scores` has their exact scores, float64[n], and `corpus` their rows, as `row_ptr` and
        `row_id`; `sign` is -1.0 if lower scores are better. Of several lists the worst k-th score is returned: every
        document that was left out must score worse. If a list has fewer than k rows it is -inf, or inf if lower scores
        are better, so that no document may be left out; the list's other entries stay as they are.
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
    # candidates are dropped by proven bounds, which each search checks; otherwise every pair is scored
    bound: bool = True
    exact: bool = True  # no candidate that belongs in the list is dropped; False for a shortlist without a proven bound
    # scores may be negative and are listed all the same; otherwise rows without a positive score follow by row
    signed: bool = False
    splits: bool = False  # one query is split among threads that have no query of their own, see `Answers.threads`
    queries_at_once: int = 32  # number of queries that `score_all` scores together


class Kernel(Protocol):
    """One backend of one metric; its attributes are the metric's options in the registry.

    `corpus` and `batch` are named tuples of arrays, the corpus's and the distinct queries', which the metric's
    representation makes. Documents are its distinct representations, each of which stands for corpus rows.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    def search(self, corpus: Any, batch: Any, queries: range, k: int, answers: Answers, workspace: Any) -> None:
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`.

        The numbers follow one another. `workspace` is what `new_workspace` returned to this thread.
        """

    def counts(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, known: Any = None) -> Any:
        """Return what scores and components of pairs follow from, such as numbers of shared words.

        The i-th pair consists of the distinct query ``query[i]`` and the document ``document[i]``, both int64[n].
        `known` is None or has the exact scores of the pairs, float64[n], from which the counts may be taken.
        """
        raise NotImplementedError

    def scores(self, counts: Any) -> np.ndarray:
        """Return the exact scores of pairs, float64[n], from their counts."""
        raise NotImplementedError

    def components(self, counts: Any) -> dict[str, np.ndarray]:
        """Return the components of the scores of pairs by name, an array[n] each, from their counts."""
        return {}

    def score_pairs(
        self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the exact scores of pairs, float64[n], and their components by name; the pairs are as in `counts`."""
        counts = self.counts(corpus, batch, query, document)
        return self.scores(counts), self.components(counts)

    def score_all(self, corpus: Any, batch: Any, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield, for each of the distinct queries numbered in `chosen`, its scores with all documents: float64[D].

        An array may be overwritten by the next. By default they are scored as pairs; a kernel that reads inverted lists
        or multiplies matrices has a scan of its own.
        """
        documents = np.arange(len(corpus.row_ptr) - 1)
        for q in chosen:
            yield self.scores(self.counts(corpus, batch, np.full(len(documents), q), documents))

    def score_some(self, corpus: Any, batch: Any, chosen: Sequence[int], documents: np.ndarray) -> Iterator[np.ndarray]:
        """Yield, as `score_all`, the scores of `documents`, int64[n], with each of the chosen queries: float64[n]."""
        for scores in self.score_all(corpus, batch, chosen):
            yield scores[documents]

    def score_error(self, corpus: Any, batch: Any) -> float:
        """Return an upper bound on the absolute error of the scores of `score_all`: 0 if all their bits are right."""
        return 0.0

    def new_workspace(self, corpus: Any) -> Any:
        """Return the scratch arrays of one thread for searches of this corpus, which are passed to `search`."""
        return None

    def stages(self, workspaces: Sequence[Any]) -> dict[str, Any]:
        """Return the shares of all pairs that each stage of a search dropped and that were scored, and closest calls.

        They are computed from the workspaces of its threads; the dict is empty if nothing is counted, as by default.
        """
        return {}

    def lacking(self) -> str:
        """Return why this machine cannot run the backend; an empty string if it can."""
        return ""


class ScoredWhole(Kernel):
    """Base of the backends without a bound: every document is scored by `score_all`, and the best are selected."""

    capabilities: ClassVar[Capabilities] = Capabilities(bound=False, signed=True)
    sign: float = 1.0  # -1.0 if lower scores are better

    def search(self, corpus: Any, batch: Any, queries: range, k: int, answers: Answers, workspace: Any) -> None:
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`."""
        documents = np.arange(len(corpus.row_ptr) - 1)
        for q, scores in zip(queries, self.score_all(corpus, batch, queries), strict=True):
            answers.put(q, documents, scores, corpus, k, self.sign)
