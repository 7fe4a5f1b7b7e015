"""Search under a composite: all parts but BERTScore are cheap for every candidate; its bounds do the rest.

Lower is better. Where the composite falls as BERTScore rises, the least composite is the greatest F1 plus a bonus that
the other parts give. The README of this folder says how it stays exact for other signs.
"""

from typing import Any

import numpy as np

from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.bertscore.score import F1
from metric_oracle.kernels.bleu import cpu as bleu
from metric_oracle.kernels.chexbert import cpu as chexbert
from metric_oracle.kernels.chexbert_labels import cpu as chexbert_labels
from metric_oracle.kernels.composite.score import composite, term
from metric_oracle.kernels.radgraph import cpu as radgraph
from metric_oracle.kernels.rouge_l import cpu as rouge_l
from metric_oracle.kernels.topk.reference import select

STAGES = bertscore.STAGES
# Kernels whose scores of all units cost little, and are exact; and the others.
CHEAP: dict[str, Any] = {
    "bleu": bleu, "chexbert_labels": chexbert_labels, "radgraph": radgraph, "rouge_l": rouge_l,
}  # fmt: skip
KERNELS: dict[str, Any] = {**CHEAP, "bertscore": bertscore, "chexbert": chexbert}
ROUNDING = 1e-12  # of sums of a handful of float64 numbers, relative to the largest
STEEPEST = 1e30  # composites over slope beyond which a bonus would leave float32's range


def search(index, encoded, first, last, k, found, work, *, terms, intercept):
    """Find the k rows with the least composite for the distinct queries first .. last - 1."""
    similar = _similarities(index, encoded, first, last)
    for q in range(first, last):
        values = known_values(index, encoded, q, terms, None if similar is None else similar[q - first])
        items = bonuses(index, encoded, values, terms, intercept)
        if items is None:
            item, f1 = _least(index, encoded, q, k, values, terms, intercept)
        else:
            item, precision, recall = bertscore.find(
                index.parts["bertscore"], encoded.parts["bertscore"], encoded.of(q, "bertscore"), k, items, work, F1
            )
            f1 = bertscore.final_scores(precision, recall, encoded.parts["bertscore"].baseline)[F1]
        rank(index, encoded, q, k, item, values, f1, found, terms, intercept)


def known_values(index, encoded, q, terms, similar):
    """Return the values of the cheap parts for every unit of theirs; `similar` holds float32 cosines of embeddings."""
    values = _cheap(index, encoded, q, terms)
    if similar is not None:
        values["chexbert"] = similar.astype(np.float64)
    return values


def bonuses(index, encoded, values, terms, intercept):
    """Return what the other parts add to BERTScore, for its search; None where its bounds are of no use."""
    if "bertscore" not in terms:
        return None
    error = _cosine_error(index, terms)
    others, size = _sums(index, values, terms, intercept)
    t, baseline = terms["bertscore"], encoded.parts["bertscore"].baseline
    slope = -t.weight / t.scale
    if baseline is not None:
        slope /= 1.0 - baseline[F1]
    size += abs(t.weight / t.scale) * (1.0 + abs(t.mean))
    if slope <= 0.0 or size >= STEEPEST * slope:
        return None
    bonus = (others.min() - others) / slope
    # The last is for the rounding of the bonus to float32.
    error = ((error + ROUNDING * size) / slope - bonus.min() * 2.0**-23) * (1.0 + 1e-6)
    return bertscore.Items(
        index.unit["bertscore"], (bonus + error).astype(np.float32), 2 * error + 1e-5, False, index.row_ptr
    )


def _least(index, encoded, q, k, values, terms, intercept):
    """Return the items that may be among the k best by the values of all parts, and their BERTScore if it is one.

    BERTScore's bounds are from above: where a high one is no merit, all pairs are scored. `values` gets them.
    """
    if "bertscore" in terms:
        values["bertscore"] = _f1(index, encoded, q, np.arange(len(index.parts["bertscore"].row_ptr) - 1))
    sums, size = _sums(index, values, terms, intercept)
    error = _cosine_error(index, terms)
    if error:  # otherwise these are the very sums of the reference
        error += ROUNDING * size
    m = min(k, len(sums))
    item = np.flatnonzero(sums <= np.partition(sums, m - 1)[m - 1] + 2 * error)
    return item, values["bertscore"][index.unit["bertscore"][item]] if "bertscore" in terms else None


def _cosine_error(index, terms):
    """Bound the error of sums that comes from float32 cosines of embeddings."""
    if "chexbert" not in terms:
        return 0.0
    t = terms["chexbert"]
    return abs(t.weight / t.scale) * chexbert.screen_error(index.parts["chexbert"].vectors.shape[1])


def rank(index, encoded, q, k, item, values, f1, found, terms, intercept):
    """Score items by the exact values of all parts and write the k best rows."""
    exact = _exact(index, encoded, q, item, values, f1, terms)
    scores = _scores(exact, terms, intercept)
    for i, *parts in zip(item.tolist(), *(column.tolist() for column in exact.values()), strict=True):
        encoded.scored[q, i] = parts
    rows, best, ties = select(item, -scores, index.row_ptr, index.row_id, k)
    found.rows[q], found.scores[q], found.ties[q] = rows, -best, ties


def _sums(index, values, terms, intercept):
    """Sum the terms whose values are there, in their order.

    Returns
    -------
    total : float64[D]
        Of every item.
    size : float
        Bound on the absolute values of all partial sums.
    """
    total = np.full(len(index.row_ptr) - 1, intercept)
    size = abs(intercept)
    for part, t in terms.items():
        if part in values:
            of_unit = term(values[part], t.mean, t.scale, t.weight)
            total += of_unit[index.unit[t.metric.representation]]
            size += np.abs(of_unit).max()
    return total, size


def _cheap(index, encoded, q, terms):
    """Return the exact values of the cheap parts for every unit of theirs."""
    values = {}
    for part, t in terms.items():
        if t.metric.kernel in CHEAP:
            values[part] = next(_score_part(t.metric, index, encoded, [q]))
    return values


def _score_part(metric, index, encoded, chosen):
    """Yield the values of a part for every unit of it: float64[...] for each of some distinct queries."""
    kind = metric.representation
    places = [encoded.of(q, kind) for q in chosen]
    return KERNELS[metric.kernel].score_all(index.parts[kind], encoded.parts[kind], places, **metric.options)


def _similarities(index, encoded, first, last):
    """Return float32 cosines of each query with every distinct embedding."""
    if "chexbert" not in index.parts:
        return None
    which = [encoded.of(q, "chexbert") for q in range(first, last)]
    queries, corpus = encoded.parts["chexbert"].vectors[which], index.parts["chexbert"].vectors
    # A product of matrices would first copy the corpus into its own layout.
    return (corpus @ queries[0])[None] if len(queries) == 1 else queries @ corpus.T


def _f1(index, encoded, q, units):
    """Return the exact BERTScore of some units."""
    which = np.full(len(units), encoded.of(q, "bertscore"))
    return bertscore.components(index.parts["bertscore"], encoded.parts["bertscore"], which, units, None)["f1"]


def _exact(index, encoded, q, item, values, f1, terms):
    """Return the exact values of the parts for some items: float64[n] each."""
    exact = {}
    for part, t in terms.items():
        kind = t.metric.representation
        units = index.unit[kind][item].astype(np.int64)
        if part == "bertscore":
            exact[part] = f1
        elif part == "chexbert":
            exact[part] = np.empty(len(item))
            vectors = index.parts[kind].vectors
            chexbert.score_units(units, encoded.parts[kind].vectors[encoded.of(q, kind)], vectors, exact[part])
        else:
            exact[part] = values[part][units]
    return exact


def _scores(exact, terms, intercept):
    """Return the composite of items from the exact values of their parts: float64[n]."""
    rows = zip(*(column.tolist() for column in exact.values()), strict=True)
    return np.array([composite(row, terms.values(), intercept) for row in rows])


def score_all(index, encoded, chosen, *, terms, intercept):
    """Yield the composite of every item for each of some distinct queries: float64[D], right within `all_error`."""
    out = np.empty(len(index.row_ptr) - 1)
    streams = [_score_part(t.metric, index, encoded, chosen) for t in terms.values()]
    for values in zip(*streams, strict=True):
        out[:] = intercept
        for t, value in zip(terms.values(), values, strict=True):
            out += term(value, t.mean, t.scale, t.weight)[index.unit[t.metric.representation]]
        yield out


def all_error(index, encoded, *, terms, intercept):
    """Bound the error of what :func:`score_all` yields: that of its parts, weighted."""
    error = 0.0
    for t in terms.values():
        if t.metric.kernel not in CHEAP:
            kind, options = t.metric.representation, t.metric.options
            of_part = KERNELS[t.metric.kernel].all_error(index.parts[kind], encoded.parts[kind], **options)
            error += abs(t.weight / t.scale) * of_part
    return error


def score_pairs(index, encoded, query, unit, *, terms, intercept):
    """Return the score of pairs of a distinct query and an item, float64[n], and the values of their parts."""
    values = components(index, encoded, query, unit, None, terms=terms, intercept=intercept)
    return _scores(values, terms, intercept), values


def new_work(index):
    """Return room for the scratch of one thread, made at its first query."""
    return bertscore.new_work(index)


def stages(works):
    """Return the share of pairs that each stage dropped, and the share that was scored in float64."""
    return bertscore.stages(works)


def components(index, encoded, query, unit, scores, *, terms, intercept):
    """Return the values of the parts for pairs of a distinct query and an item."""
    out = {part: np.empty(len(query)) for part in terms}
    pairs = list(zip(query.tolist(), unit.tolist(), strict=True))
    known = np.array([pair in encoded.scored for pair in pairs])
    kept = np.array([encoded.scored[pair] for pair in pairs if pair in encoded.scored]).reshape(-1, len(out))
    for column, values in zip(out.values(), kept.T, strict=True):
        column[known] = values
    for q in np.unique(query[~known]).tolist():
        some = np.flatnonzero((query == q) & ~known)
        f1 = None
        if "bertscore" in terms:
            f1 = _f1(index, encoded, q, index.unit["bertscore"][unit[some]].astype(np.int64))
        exact = _exact(index, encoded, q, unit[some], _cheap(index, encoded, q, terms), f1, terms)
        for part, column in out.items():
            column[some] = exact[part]
    return out
