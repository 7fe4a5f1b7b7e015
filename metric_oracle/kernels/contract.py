"""The interface of a kernel, which is the class `Backend` of each ``kernels/<metric>/<backend>.py``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from metric_oracle.kernels.topk.exclusion import NOTHING, Exclusion
from metric_oracle.kernels.topk.reference import select


class Answers(NamedTuple):
    """The k best rows of the distinct queries of a batch, which a search writes.

    Attributes
    ----------
    rows : int64[L, k]
        Of the lists of the queries: one each, or those that `exclusion` says. -1 where there are fewer rows with a
        positive score than k, or that reach the limit.
    scores : float64[L, k]
    ties : int64[L, k]
        Corpus rows with exactly that score that the list does not leave out.
    limit : float64[Q]
        Input: rows that score worse may be left out, because k rows of other shards score this or better. Without a
        limit -inf, or inf where lower scores are better.
    exclusion : Exclusion
        Input: the rows that each list leaves out.
    """

    rows: np.ndarray
    scores: np.ndarray
    ties: np.ndarray
    limit: np.ndarray
    exclusion: Exclusion = NOTHING

    def put(self, q, documents, scores, corpus, k, sign=1.0):
        """Write the k best rows of scored documents into the lists of query `q`.

        Parameters
        ----------
        q : int
        documents : int64[n]
        scores : float64[n]
        corpus : named tuple with `row_ptr` and `row_id`
        k : int
        sign : float
            -1.0 where lower scores are better.

        Returns
        -------
        float
            Score of the k-th best row, the worst of all lists: documents that were dropped must be worse. Infinite
            where a list has fewer rows, for which none may be dropped.
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
    """Properties of a backend.

    Attributes
    ----------
    batched : bool
        One call answers all queries, as on a GPU; otherwise threads take blocks of queries.
    bound : bool
        Candidates are dropped by proven bounds, which each search compares with scores; otherwise every pair is scored.
    exact : bool
        No candidate that belongs in the list is dropped. False for a shortlist without a proven bound.
    signed : bool
        Scores may be negative and are listed all the same; otherwise rows without a positive score follow by row.
    queries_at_once : int
        Number of queries that `score_all` scores together.
    """

    batched: bool = False
    bound: bool = True
    exact: bool = True
    signed: bool = False
    queries_at_once: int = 32


class Kernel(Protocol):
    """One backend of one metric; its attributes are the metric's options in the registry.

    `corpus` and `batch` are named tuples of arrays, the corpus's and the distinct queries', which the metric's
    representation makes. Documents are its distinct representations, each of which stands for corpus rows.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    def search(self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Any) -> None:
        """Write the k best rows of the corpus for the distinct queries first .. last - 1."""

    def score_all(self, corpus: Any, batch: Any, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield the scores of all documents with each of the chosen queries: float64[D], overwritten by the next."""
        raise NotImplementedError

    def score_some(self, corpus: Any, batch: Any, chosen: Sequence[int], documents: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the scores of some documents, int64[n], with each of the chosen queries: float64[n], as `score_all`."""
        for scores in self.score_all(corpus, batch, chosen):
            yield scores[documents]

    def score_error(self, corpus: Any, batch: Any) -> float:
        """Bound the error of `score_all`; 0 where its scores have the bits of the reference."""
        return 0.0

    def score_pairs(
        self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the exact scores of pairs, float64[n], and their components."""
        raise NotImplementedError

    def pair_scores(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """Return the exact scores of pairs without their components, float64[n]; fastest query by query."""
        return self.score_pairs(corpus, batch, query, document)[0]

    def components(
        self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, scores: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the components of the scores of pairs, an array[n] each; by default none."""
        return {}

    def new_workspace(self, corpus: Any) -> Any:
        """Return the workspace of one thread."""
        return None

    def stages(self, workspaces: Sequence[Any]) -> dict[str, Any]:
        """Return the share of pairs that each stage of a finished search dropped, for the signature."""
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
