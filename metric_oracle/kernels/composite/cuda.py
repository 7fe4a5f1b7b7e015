"""Search under a composite on a GPU: BERTScore and the cosines of embeddings there, the short sums on the host."""

from metric_oracle.kernels import _device
from metric_oracle.kernels.bertscore import cuda as bertscore
from metric_oracle.kernels.bertscore.cpu import final_scores
from metric_oracle.kernels.bertscore.score import F1
from metric_oracle.kernels.chexbert import cuda as chexbert
from metric_oracle.kernels.composite.cpu import bonuses, components, known_values, new_work, rank

__all__ = ["components", "is_usable", "new_work", "search", "stages"]

LIBRARY = bertscore.LIBRARY
stages = bertscore.stages
is_usable = bertscore.is_usable


def search(index, encoded, first, last, k, found, work, *, terms, intercept):
    """Find the k rows with the least composite for the distinct queries first .. last - 1.

    Raises
    ------
    DeviceError
        If the composite leaves nothing to a GPU, or as BERTScore's search says.
    """
    part = encoded.parts.get("bertscore")
    similar = None
    if "chexbert" in index.parts:
        which = [encoded.of(q, "chexbert") for q in range(first, last)]
        similar = chexbert.products(index.parts["chexbert"], encoded.parts["chexbert"].vectors[which])
    values, items = [], []
    for q in range(first, last):
        values.append(known_values(index, encoded, q, terms, None if similar is None else similar[q - first]))
        items.append(bonuses(index, encoded, values[-1], terms, intercept))
        if items[-1] is None:
            msg = (
                "retrieve: a composite must have BERTScore among its parts, with a weight below 0, to be searched on a "
                'GPU; got one whose other parts decide. Use backend "cpu".'
            )
            raise _device.DeviceError(msg)
    places = [encoded.of(q, "bertscore") for q in range(first, last)]
    answers = bertscore.find(index.parts["bertscore"], part, places, k, items, work, F1)
    for q, (item, precision, recall) in zip(range(first, last), answers, strict=True):
        f1 = final_scores(precision, recall, part.baseline)[F1]
        rank(index, encoded, q, k, item, values[q - first], f1, found, terms, intercept)
