"""Search under a composite on a GPU: BERTScore and cosines are computed there, the other terms on the host."""

from typing import ClassVar

from metric_oracle.kernels import _device
from metric_oracle.kernels.bertscore import cuda as bertscore
from metric_oracle.kernels.bertscore.cpu import final_scores
from metric_oracle.kernels.bertscore.score import F1
from metric_oracle.kernels.contract import Capabilities
from metric_oracle.kernels.cosine import cuda as cosine_kernel
from metric_oracle.retrieval.composite import cpu
from metric_oracle.retrieval.composite.cpu import BERTSCORE, COSINE

LIBRARY = bertscore.LIBRARY


class Backend(_device.ByLibrary, cpu.Backend):
    """Composites on GPUs."""

    library: ClassVar[str] = LIBRARY
    capabilities: ClassVar[Capabilities] = Capabilities(signed=True)

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Write the k rows with the least composite for the distinct queries first .. last - 1 to `answers`.

        Raise DeviceError if BERTScore is no term of weight below 0, the device fails, or it has no room for one query.
        """
        similar, name, cosine = None, self.part(BERTSCORE), self.part(COSINE)
        if cosine is not None:
            kind = self.terms[cosine].metric.representation
            which = [batch.of(q, kind) for q in range(first, last)]
            similar = cosine_kernel.products(corpus.parts[cosine], batch.parts[kind].vectors[which])
        values, added = [], []
        for q in range(first, last):
            values.append(self.known_values(corpus, batch, q, None if similar is None else similar[q - first]))
            added.append(self.bonuses(corpus, batch, q, values[-1], answers))
            if added[-1] is None:
                raise _device.DeviceError(
                    "a composite is searched on a GPU only if BERTScore is one of its terms and has a weight below 0.",
                    'Use backend "cpu".',
                )
        part = batch.parts[BERTSCORE]
        places = [batch.of(q, BERTSCORE) for q in range(first, last)]
        found = bertscore.find(corpus.parts[name], part, places, k, [a.items for a in added], workspace, F1, {})
        for q, (item, precision, recall), known, of_query in zip(range(first, last), found, values, added, strict=True):
            f1 = final_scores(precision, recall, part.baseline)[F1]
            worst = self.rank(corpus, batch, q, k, item, known, of_query, f1, answers)
            self.check_dropped(corpus, batch, q, q == first, worst, item, known, of_query)

    def stages(self, workspaces):
        """Return, as a dict, the shares of pairs that each stage dropped and that were scored, and the closest calls.

        `workspaces` are the dicts of the threads.
        """
        return self.with_closest(bertscore.stages(workspaces))
