"""Search for the least distance of sets of sentence vectors: BERTScore's search, with sentences for tokens."""

from dataclasses import dataclass

from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.bertscore.score import MEAN
from metric_oracle.kernels.sentences.score import distance

# Two means of cosines may differ by less than this and still round to the same distance, and so tie.
ROUNDING = 2.0**-50


@dataclass(frozen=True)
class Backend(bertscore.Backend):
    """Distances of sets of sentence vectors on CPUs; lower is better.

    BERTScore's search finds the greatest means of precision and recall, and the distance falls as that mean rises.
    """

    part: int = MEAN

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k rows with the least distance for the distinct queries numbered in `queries` into `answers`."""
        n = len(corpus.row_ptr) - 1
        if not n:
            return
        items = bertscore.every_document(corpus.row_ptr, ROUNDING)
        every = bertscore.items_of(items, queries, (1.0 - answers.limit[queries] - ROUNDING).tolist(), answers)
        with bertscore.sharing_threads(answers) as executor:
            for q, of_query in zip(queries, every, strict=True):
                item, precision, recall = bertscore.find(
                    corpus, batch, q, k, of_query, workspace, MEAN, self.scored, answers.threads, executor
                )
                answers.put(q, item, distance(precision, recall), corpus, k, -1.0)

    def score_some(self, corpus, batch, chosen, documents):
        """Yield the distances of `documents` from each of the chosen queries, within `score_error`: float64[n]."""
        for means in super().score_some(corpus, batch, chosen, documents):
            yield 1.0 - means

    def score_error(self, corpus, batch):
        """Return an upper bound on the absolute error of the distances of `score_some`."""
        return super().score_error(corpus, batch) + ROUNDING

    def scores(self, counts):
        """Return the distances of pairs: float64[n]."""
        precision, recall, _ = counts
        return distance(precision, recall)

    def components(self, counts):
        """Return, as "precision" and "recall", the mean cosines of pairs in both directions: float64[n] each."""
        precision, recall, _ = counts
        return {"precision": precision, "recall": recall}
