"""RadCliQ of one pair, slow and obvious: the reference scorers of its parts."""

from metric_oracle.kernels.bertscore import reference as bertscore
from metric_oracle.kernels.bleu import reference as bleu
from metric_oracle.kernels.chexbert import reference as chexbert
from metric_oracle.kernels.radcliq.score import PARTS, radcliq, table
from metric_oracle.kernels.radgraph import reference as radgraph

SCORERS = {
    "radgraph": lambda a, b: radgraph.score(a, b, family_a=0, family_b=1)[0],
    "bertscore": lambda a, b: bertscore.score(a, b)[0],
    "chexbert": lambda a, b: chexbert.score(a, b)[0],
    "bleu": lambda a, b: bleu.score(a, b, order=2, coco=False)[0],
}


def score(candidate, reference, *, variant):
    """Return RadCliQ and the values of its parts.

    Parameters
    ----------
    candidate, reference : dict
        Part -> what its reference scorer takes.
    variant : {"v0", "v1", "preprint"}
    """
    values = {part: SCORERS[part](candidate[part], reference[part]) for part in PARTS if part in reference}
    constants, intercept = table(variant)
    return radcliq(*(values.get(part, 0.0) for part in PARTS), constants, intercept), values
