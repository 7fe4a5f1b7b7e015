"""Search by a weighted sum on a GPU: BERTScore and cosines are computed there, the other terms on the host."""

from typing import Any, ClassVar

from metric_oracle.kernels import _device
from metric_oracle.kernels.bertscore import cuda as bertscore
from metric_oracle.kernels.bertscore.cpu import final_scores
from metric_oracle.kernels.bertscore.score import F1
from metric_oracle.kernels.cosine import cuda as cosine_kernel
from metric_oracle.kernels.sum import cpu
from metric_oracle.kernels.sum.weighted import BERTSCORE, WeightedSearch

LIBRARY = bertscore.LIBRARY


class Backend(_device.ByLibrary, cpu.Backend):
    """Weighted sums on GPUs."""

    library: ClassVar[str] = LIBRARY
    stages_of_bertscore: ClassVar[Any] = staticmethod(bertscore.stages)

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k rows with the least sum for the distinct queries numbered in `queries` into `answers`.

        Raise DeviceError if BERTScore is no term of weight below 0, the device fails, or it has no room for one query.
        """
        one = WeightedSearch(self, corpus, batch, k, answers, workspace)
        similar = [None] * len(queries)
        if one.cosine is not None:
            similar = cosine_kernel.products(corpus.parts[one.cosine], one.vectors(queries))
        values = [one.known_values(q, of_query) for q, of_query in zip(queries, similar, strict=True)]
        added = [one.bonuses(q, known) for q, known in zip(queries, values, strict=True)]
        if None in added:
            raise _device.DeviceError(
                "a composite is searched on a GPU only if BERTScore is one of its terms and has a weight below 0.",
                'Use backend "cpu".',
            )
        name: Any = one.bertscore
        part, places = batch.parts[name], batch.of(name, queries).tolist()
        items, scored = [of_query.items for of_query in added], one.sums.parts[name].scored
        work = workspace.setdefault(BERTSCORE, {})
        found = bertscore.find(corpus.parts[name], part, places, k, items, work, F1, scored)
        for q, (item, precision, recall), known, of_query in zip(queries, found, values, added, strict=True):
            f1 = final_scores(precision, recall, part.baseline)[F1]
            worst = one.rank(q, item, known, of_query, f1)
            one.check_dropped(q, q == queries.start, worst, item, known, of_query)
