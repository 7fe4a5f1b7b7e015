"""RadCliQ search: three parts are cheap for every candidate; with them BERTScore's own bounds bound the composite.

RadCliQ falls as BERTScore rises, so the least RadCliQ is the greatest F1 plus a bonus that the other parts give.
"""

from functools import partial
from typing import Any

import numpy as np

from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.bertscore.score import F1
from metric_oracle.kernels.bleu import cpu as bleu
from metric_oracle.kernels.chexbert import cpu as chexbert
from metric_oracle.kernels.radcliq.score import PARTS, radcliq, table, term
from metric_oracle.kernels.radgraph import cpu as radgraph
from metric_oracle.kernels.topk.reference import select

STAGES = bertscore.STAGES
SCORERS_OF_ALL: dict[str, Any] = {
    "radgraph": partial(radgraph.score_all, family_a=0, family_b=1),
    "bertscore": bertscore.score_all,
    "chexbert": chexbert.score_all,
    "bleu": partial(bleu.score_all, order=2, coco=False),
}


def search(index, encoded, first, last, k, found, work, *, variant):
    """Find the k rows with the least RadCliQ for the distinct queries first .. last - 1."""
    constants, intercept = table(variant)
    similar = _similarities(index, encoded, first, last)
    for q in range(first, last):
        values = _overlaps(index, encoded, q)
        if "chexbert" in index.parts:
            values["chexbert"] = similar[q - first]
        others = np.full(len(index.row_ptr) - 1, intercept)
        for part, (mean, scale, weight) in zip(PARTS, constants, strict=True):
            if part in values:
                others += term(values[part], mean, scale, weight)[index.unit[part]]
        item, parts = _finalists(index, encoded, q, k, others, constants, work)
        exact = _scores(index, encoded, q, item, parts, values, variant)
        scores = -exact.pop("score")
        for i, *found_parts in zip(item.tolist(), *(column.tolist() for column in exact.values()), strict=True):
            encoded.scored[q, i] = found_parts
        rows, best, ties = select(item, scores, index.row_ptr, index.row_id, k)
        found.rows[q], found.scores[q], found.ties[q] = rows, -best, ties


def _finalists(index, encoded, q, k, others, constants, work):
    """Return the items that may be among the k best, and their exact BERTScore (None where it has no weight)."""
    if "bertscore" not in index.parts:
        n = len(others)
        kept = others <= np.partition(others, min(k, n) - 1)[min(k, n) - 1]
        return np.flatnonzero(kept), None
    queries = encoded.parts["bertscore"]
    _, scale, weight = constants[PARTS.index("bertscore")]
    slope = -weight / scale
    if queries.baseline is not None:
        slope /= 1.0 - queries.baseline[F1]
    # `others` are right within the rounding of a float32 cosine.
    error = 0.0
    if "chexbert" in index.parts:
        _, scale, weight = constants[PARTS.index("chexbert")]
        error = abs(weight / scale) * chexbert.screen_error(index.parts["chexbert"].vectors.shape[1]) / slope
    bonus = (-others / slope + error).astype(np.float32)
    items = bertscore.Items(index.unit["bertscore"], bonus, 2 * error + 1e-5, False, index.row_ptr)
    item, precision, recall = bertscore.find(
        index.parts["bertscore"], queries, encoded.of(q, "bertscore"), k, items, work, F1
    )
    return item, bertscore.final_scores(precision, recall, queries.baseline)[F1]


def _overlaps(index, encoded, q):
    """Return the exact values of RadGraph F1 and BLEU-2 for every unit of theirs, as far as they count."""
    return {part: next(_score_part(part, index, encoded, [q])) for part in ("radgraph", "bleu") if part in index.parts}


def _score_part(part, index, encoded, chosen):
    """Yield the values of a part for every unit of it: float64[...] for each of some distinct queries."""
    places = [encoded.of(q, part) for q in chosen]
    return SCORERS_OF_ALL[part](index.parts[part], encoded.parts[part], places)


def _similarities(index, encoded, first, last):
    """Return float32 cosines of each query with every distinct embedding."""
    if "chexbert" not in index.parts:
        return None
    which = [encoded.of(q, "chexbert") for q in range(first, last)]
    queries, corpus = encoded.parts["chexbert"].vectors[which], index.parts["chexbert"].vectors
    # A product of matrices would first copy the corpus into its own layout.
    return (corpus @ queries[0])[None] if len(queries) == 1 else queries @ corpus.T


def _scores(index, encoded, q, item, f1, values, variant):
    """Return the exact values of the parts for some items, and RadCliQ as "score": float64[n] each."""
    exact = {}
    for part in index.parts:
        if part == "bertscore":
            exact[part] = f1
        elif part == "chexbert":
            exact[part] = np.empty(len(item))
            vectors = index.parts[part].vectors
            query = encoded.parts[part].vectors[encoded.of(q, part)]
            chexbert.score_units(index.unit[part][item].astype(np.int64), query, vectors, exact[part])
        else:
            exact[part] = values[part][index.unit[part][item]]
    constants, intercept = table(variant)
    columns = [exact.get(part, np.zeros(len(item))).tolist() for part in PARTS]
    exact["score"] = np.array([radcliq(*row, constants, intercept) for row in zip(*columns, strict=True)])
    return exact


def score_all(index, encoded, chosen, *, variant):
    """Yield RadCliQ of every item for each of some distinct queries: float64[D], right within `all_error`."""
    constants, intercept = table(variant)
    parts = [part for part in PARTS if part in index.parts]
    out = np.empty(len(index.row_ptr) - 1)
    for values in zip(*(_score_part(part, index, encoded, chosen) for part in parts), strict=True):
        out[:] = intercept
        for part, value in zip(parts, values, strict=True):
            out += term(value, *constants[PARTS.index(part)])[index.unit[part]]
        yield out


def all_error(index, encoded, *, variant):
    """Bound the error of what :func:`score_all` yields: that of its parts, weighted."""
    constants, _ = table(variant)
    error = 0.0
    for part, kernel in (("bertscore", bertscore), ("chexbert", chexbert)):
        if part in index.parts:
            _, scale, weight = constants[PARTS.index(part)]
            error += abs(weight / scale) * kernel.all_error(index.parts[part], encoded.parts[part])
    return error


def score_pairs(index, encoded, query, unit, *, variant):
    """Return the score of pairs of a distinct query and an item, float64[n], and the values of their parts."""
    values = components(index, encoded, query, unit, None, variant=variant)
    columns = [values.get(part, np.zeros(len(query))).tolist() for part in PARTS]
    constants, intercept = table(variant)
    return np.array([radcliq(*row, constants, intercept) for row in zip(*columns, strict=True)]), values


def new_work(index):
    """Return room for the scratch of one thread, made at its first query."""
    return bertscore.new_work(index)


def stages(works):
    """Return the share of pairs that each stage dropped, and the share that was scored in float64."""
    return bertscore.stages(works)


def components(index, encoded, query, unit, scores, *, variant):
    """Return the values of the parts for pairs of a distinct query and an item."""
    out = {part: np.empty(len(query)) for part in index.parts}
    pairs = list(zip(query.tolist(), unit.tolist(), strict=True))
    known = np.array([pair in encoded.scored for pair in pairs])
    kept = np.array([encoded.scored[pair] for pair in pairs if pair in encoded.scored]).reshape(-1, len(out))
    for column, values in zip(out.values(), kept.T, strict=True):
        column[known] = values
    for q in np.unique(query[~known]).tolist():
        some = np.flatnonzero((query == q) & ~known)
        values = _overlaps(index, encoded, q)
        f1 = None
        if "bertscore" in index.parts:
            which = np.full(len(some), encoded.of(q, "bertscore"))
            units = index.unit["bertscore"][unit[some]].astype(np.int64)
            f1 = bertscore.components(index.parts["bertscore"], encoded.parts["bertscore"], which, units, scores)["f1"]
        exact = _scores(index, encoded, q, unit[some], f1, values, variant)
        for part, column in out.items():
            column[some] = exact[part]
    return out
