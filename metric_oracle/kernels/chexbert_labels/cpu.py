"""Cosine and agreement of labels: products with all distinct label vectors, of which a corpus has few."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels.contract import Capabilities, Kernel
from metric_oracle.kernels.topk.cpu import Best, begin, expand, insert, new_best, threshold


class LabelVectors(NamedTuple):
    """Distinct label vectors of a corpus or of queries."""

    vectors: np.ndarray  # int8[D, L]
    row_ptr: np.ndarray  # int64[D + 1], offset of the rows with each vector in `row_id`
    row_id: np.ndarray  # int64[N], corpus rows or queries


class Workspace(NamedTuple):
    """Scratch arrays of one thread; S squared lengths occur, and M is the greatest of them and of a query's, L."""

    best: Best  # the best documents so far
    labels: np.ndarray  # int8[L, D], the vectors of the corpus, label by label
    length: np.ndarray  # int64[D], number of the squared length of each vector, of the S ones in ascending order
    dot: np.ndarray  # int32[D], products of all vectors with the query
    # float64[M + 1, S, 2 M + 1], score of a query of each squared length, from 0 to M, with a vector of each squared
    # length, for each product from -M to M
    score: np.ndarray


@jit
def search_labels(corpus, vectors, first, last, k, work, answers):
    """Write the k best rows of the corpus for the queries first .. last - 1 of `vectors`, int8[Q, L], into `answers`.

    `corpus` is a `LabelVectors`, `work` a `Workspace`.

    Exactness
    ---------
    Products are integers, and scores those of the backend: a product is at most the larger squared length.

    Cost
    ----
    One multiplication and one addition for each vector and each label that is not 0 in the query, vectorised, and one
    look-up per vector.
    """
    most = work.score.shape[2] // 2
    for q in range(first, last):
        begin(work.best, answers, q)
        work.dot[:] = 0
        square = np.int64(0)
        for label in range(vectors.shape[1]):
            x = np.int32(vectors[q, label])
            square += np.int64(x * x)
            if x != 0:
                column = work.labels[label]
                for d in range(np.uint64(len(work.dot))):  # vectorised
                    work.dot[d] += x * column[d]
        score = work.score[square]
        theta = threshold(work.best, k)
        for d in range(np.uint64(len(work.dot))):
            value = score[work.length[d], work.dot[d] + most]
            if value >= theta:
                insert(np.int64(d), value, corpus.row_ptr, k, work.best)
                theta = threshold(work.best, k)
        expand(work.best, corpus.row_ptr, corpus.row_id, k, answers, q)


def cosines(dot, squares, square):
    """Return the exact cosines of label vectors, float64[...]; 0 where all labels of one are 0.

    `dot`, float64[...], are their products, `squares` the squared lengths of the documents, and `square` those of the
    queries. Each cosine is the root of one quotient of integers, so that equal cosines are equal numbers.
    """
    root = np.sqrt(dot * dot / np.maximum(squares * square, 1))  # the product is 0 if a length is
    return np.where(dot < 0, -root, root)


@dataclass(frozen=True)
class Backend(Kernel):
    """Cosine and agreement of labels on CPUs."""

    measure: str = "cosine"  # or "agreement", of the vectors of `AgreementDocuments`
    capabilities: ClassVar[Capabilities] = Capabilities(bound=False, signed=True)

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`."""
        search_labels(corpus, batch.vectors, queries.start, queries.stop, k, workspace, answers)

    def new_workspace(self, corpus):
        """Allocate the scratch arrays of one thread."""
        n_labels = corpus.vectors.shape[1]
        squares, length = np.unique(np.sum(corpus.vectors.astype(np.int64) ** 2, axis=1), return_inverse=True)
        most = max(int(squares.max(initial=0)), n_labels)  # a query may be longer than all vectors
        product, square = np.arange(-most, most + 1.0), np.arange(most + 1.0)
        score = np.empty((len(square), len(squares), len(product)))
        score[:] = self.scores((product, squares[:, None], square[:, None, None]))
        return Workspace(
            new_best(len(corpus.vectors)),
            np.ascontiguousarray(corpus.vectors.T),
            length.reshape(-1),
            np.empty(len(corpus.vectors), np.int32),
            score,
        )

    def score_all(self, corpus, batch, chosen):
        """Yield, for each of the chosen distinct queries, its scores with all documents: float64[D]."""
        # Products of so few small integers are exact in float32.
        vectors, queries = corpus.vectors.astype(np.float32), batch.vectors[list(chosen)].astype(np.float32)
        squares = np.einsum("dl,dl->d", vectors, vectors).astype(np.float64)
        for first in range(0, len(queries), self.capabilities.queries_at_once):
            block = queries[first : first + self.capabilities.queries_at_once]
            for query, dot in zip(block, block @ vectors.T, strict=True):
                yield self.scores((dot.astype(np.float64), squares, np.float64(query @ query)))

    def counts(self, corpus, batch, query, document, known=None):
        """Return products and squared lengths of the label vectors of pairs: float64[3, n], whole numbers."""
        a, b = corpus.vectors[document].astype(np.float64), batch.vectors[query].astype(np.float64)
        return [np.sum(x * y, axis=1) for x, y in ((a, b), (a, a), (b, b))]

    def scores(self, counts):
        """Return the scores of pairs, float64[n], from products and squared lengths.

        Of vectors of `AgreementDocuments` the product is the number of labels on which two agree, and each squared
        length that of all labels: the share is one division of integers, the number of `labels.score.agreement`.
        """
        if self.measure == "agreement":
            product, squares, _ = counts
            return product / np.maximum(squares, 1)
        return cosines(*counts)
