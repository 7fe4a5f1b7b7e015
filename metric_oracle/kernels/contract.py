"""What a kernel is: arrays in, arrays out. Each ``kernels/<metric>/<backend>.py`` has one, its class `Backend`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from metric_oracle.kernels.topk.reference import select


class Answers(NamedTuple):
    """The k best rows of the distinct queries of a batch, which a search fills in.

    Attributes
    ----------
    rows : int64[Q, k]
        -1 where there are fewer rows with a positive score than k, or that reach the limit.
    scores : float64[Q, k]
    ties : int64[Q, k]
        Corpus rows with that very score.
    limit : float64[Q]
        Given: rows that score worse may be left out, since k rows of other corpora score this or better. -inf where
        there are none; inf where lower scores are better.
    """

    rows: np.ndarray
    scores: np.ndarray
    ties: np.ndarray
    limit: np.ndarray

    def put(self, q, best):
        """Write the answers of query `q`: rows, scores and ties, k or fewer."""
        for column, values in zip(self[:3], best, strict=True):
            column[q, : len(values)] = values


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do.

    Attributes
    ----------
    batched : bool
        One call answers all queries, as a GPU wants it; otherwise a thread pool hands out blocks of queries.
    bound : bool
        Candidates are dropped by proven bounds, which are compared with the scores; otherwise every pair is scored.
    exact : bool
        Nothing that could be listed is dropped. A shortlist that no bound proves is none.
    signed : bool
        Scores may be negative and are listed all the same; otherwise rows without a positive score follow by row.
    queries_at_once : int
        Queries whose scores with all documents `score_all` makes together.
    """

    batched: bool = False
    bound: bool = True
    exact: bool = True
    signed: bool = False
    queries_at_once: int = 32


class Kernel(Protocol):
    """One backend of one metric; its attributes are the metric's options in the registry.

    `corpus` and `batch` are named tuples of arrays, the corpus's and the distinct queries', which the metric's
    representation makes. Documents are the distinct units of a representation, each of which stands for corpus rows.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    def search(self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Any) -> None:
        """Write the k best rows of the corpus for the distinct queries first .. last - 1."""

    def score_all(self, corpus: Any, batch: Any, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield the scores of all documents with each of some distinct queries: float64[D], overwritten by the next."""
        raise NotImplementedError

    def score_error(self, corpus: Any, batch: Any) -> float:
        """Bound the error of what `score_all` yields; 0 where scores are the reference's to the last bit."""
        return 0.0

    def score_pairs(
        self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the exact scores of pairs, float64[n], and their components."""
        raise NotImplementedError

    def components(
        self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, scores: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return what the scores of pairs are made of, an array[n] each; by default nothing."""
        return {}

    def new_workspace(self, corpus: Any) -> Any:
        """Return the workspace of one thread."""
        return None

    def stages(self, workspaces: Sequence[Any]) -> dict[str, Any]:
        """Return what the signature records of a finished search: the share of pairs that each stage dropped."""
        return {}

    def lacking(self) -> str:
        """Say what keeps the backend from being used on this machine; nothing where it can be."""
        return ""


class ScoredWhole(Kernel):
    """What the backends have in common that drop nothing: every document is scored, the best are selected."""

    capabilities: ClassVar[Capabilities] = Capabilities(bound=False, signed=True)

    def search(self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Any) -> None:
        """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
        units = np.arange(len(corpus.row_ptr) - 1)
        for q, scores in enumerate(self.score_all(corpus, batch, range(first, last)), first):
            answers.put(q, select(units, scores, corpus.row_ptr, corpus.row_id, k))
