"""The check of every search: the plain scorer scores a sample of the listed pairs again."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np

from metric_oracle.kernels.contract import Answers
from metric_oracle.retrieval.document_pairs import Pairs, sample_of
from metric_oracle.retrieval.restrictions import ResultLists


class SampleCheck:
    """A sample of the pairs that the lists of a shard will have, evenly spread over their places."""

    def __init__(self, pairs: Pairs, lists: ResultLists, answers: Answers, size: int) -> None:
        self._pairs, self._size, self._query = pairs, size, lists.query
        self._rows, self._k = answers.rows.ravel(), answers.rows.shape[1]
        self._places = sample_of(len(self._rows), size).tolist()
        self._document_of_row = pairs.parts[0].representation.document_of_row

    def score_ahead(self, first: int, last: int) -> None:
        """Score the pairs of lists first .. last - 1 that are in the sample, while a kernel answers other queries.

        A pair of long reports takes milliseconds of plain Python; `Pairs.plain` keeps its score.
        """
        k = self._k
        for place in self._places[bisect_left(self._places, first * k) : bisect_left(self._places, last * k)]:
            row = self._rows[place]
            if row >= 0:
                self._pairs.plain(int(self._query[place // k]), int(self._document_of_row[row]))

    def compare(
        self,
        ids: Sequence[str],
        listed: tuple[np.ndarray, np.ndarray, np.ndarray],
        components: Mapping[str, np.ndarray],
    ) -> None:
        """Raise ExactnessError unless the plain scorer gives the same scores and components.

        `listed` are query, document and score of all listed pairs; `ids` are the ids of all queries, for the message.
        """
        self._pairs.check(ids, *listed, components, self._size)
