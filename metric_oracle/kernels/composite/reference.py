"""A composite of one pair, slow and obvious: the reference scorers of its parts."""

from typing import Any

from metric_oracle.kernels.bertscore import reference as bertscore
from metric_oracle.kernels.bleu import reference as bleu
from metric_oracle.kernels.chexbert import reference as chexbert
from metric_oracle.kernels.chexbert_labels import reference as chexbert_labels
from metric_oracle.kernels.composite.score import composite
from metric_oracle.kernels.radgraph import reference as radgraph
from metric_oracle.kernels.rouge_l import reference as rouge_l

SCORERS: dict[str, Any] = {
    "bertscore": bertscore.score,
    "bleu": bleu.score,
    "chexbert": chexbert.score,
    "chexbert_labels": chexbert_labels.score,
    "radgraph": radgraph.score,
    "rouge_l": rouge_l.score,
}


def score(candidate, reference, *, terms, intercept):
    """Return the composite and the values of its parts.

    Parameters
    ----------
    candidate, reference : dict
        Representation -> what the reference scorers of its metrics take.
    terms : dict
        Part -> what `metrics.Term` has.
    intercept : float
    """
    values = {}
    for part, t in terms.items():
        pair = candidate[t.metric.representation], reference[t.metric.representation]
        values[part] = SCORERS[t.metric.kernel](*pair, **t.metric.options)[0]
    return composite(values.values(), terms.values(), intercept), values
