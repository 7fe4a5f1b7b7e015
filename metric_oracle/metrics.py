"""The registry: every metric, representation and source by its name, collected from the folders of the kernels.

A new metric is one folder under ``kernels/``, whose ``__init__.py`` has its records (`records.py`), and one row in the
shared tests. Everything else that names a metric is derived from these records.
"""

import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from metric_oracle import kernels
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.validation import public
from metric_oracle.records import COMPOSITE, Metric, RepresentationRecord, SourceRecord, Term, linear, sign_of

# The folders in the order of help, tables and completion; others follow by name.
_ORDER = (
    *("bleu", "rouge_l", "cider_d", "meteor", "jaccard", "temporal", "radgraph", "cosine", "chexbert_labels", "labels"),
    *("ratescore", "sentences", "crg", "bertscore", "crepe", "radcliq"),
)


def _collected() -> Iterator[Metric]:
    """Yield the metrics of the folders of the kernels; a folder without any is a part that several kernels share."""
    folders = {module.name for module in pkgutil.iter_modules(kernels.__path__) if module.ispkg}
    for folder in (*_ORDER, *sorted(folders.difference(_ORDER))):
        yield from getattr(import_module(f"metric_oracle.kernels.{folder}"), "METRICS", ())


METRICS: dict[str, Metric] = {metric.name: metric for metric in _collected()}
REPRESENTATIONS: dict[str, RepresentationRecord] = {
    kind.name: kind
    for metric in METRICS.values()
    for term in metric.terms.values()
    for kind in (*term.metric.reads.parts, term.metric.reads)
}
SOURCES: dict[str, SourceRecord] = {
    kind.source.name: kind.source for kind in REPRESENTATIONS.values() if kind.source is not None
}
# Sources that are joined to the reports on their ids.
ATTACHED = tuple(source for source in SOURCES.values() if source.made == "attached")
ALIASES = {"bleu": "bleu-2", "bleu:coco": "bleu-4:coco", "bertscore:f1": "bertscore", "radcliq:v1": "radcliq"}
# Spellings of metrics in papers that differ from their names and from those in our tables.
_SPELLED = {"chexbertsimilarity": "chexbert"}
_FUNCTIONS = {"chexbert": "score_f1_chexbert", "srr": "score_f1_srr"}  # those that compute an F1 which is no metric
LARGEST = 1e100  # limit of the numbers of a composite, so that its sums are finite
# Metrics that can be terms of a composite. CRG's weights depend on the queries; only F1 of BERTScore has a bound there.
COMPOSABLE = tuple(name for name, metric in METRICS.items() if metric.composable)
# Those with an exact search.
SEARCHED = tuple(name for name, metric in METRICS.items() if metric.is_searched)


@public
def list_metrics() -> list[Metric]:
    """List the metrics: name, files that it reads, better direction, and the publication whose numbers it equals.

    Returns
    -------
    list of Metric
        Each has a name, a direction, a citation and a representation.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.list_metrics()[0].name
    'bleu-1'
    """
    return list(METRICS.values())


def shown_in(command: str) -> tuple[str, ...]:
    """Return the names of the metrics that a command uses by default, in the order of the registry."""
    return tuple(name for name, metric in METRICS.items() if command in metric.shown_in)


def folded(name: str) -> str:
    """Return the letters and digits of a name in lower case, so that ``BLEU-2`` and ``bleu_2`` are equal."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_metric(name: str) -> Metric | None:
    """Return a metric by its name, an alias, or a spelling of papers; None if it is unknown."""
    if name not in METRICS and name not in ALIASES:
        titles = {folded(metric.title): one for one, metric in METRICS.items()}
        name = {**_SPELLED, **titles, **{folded(one): one for one in (*METRICS, *ALIASES)}}.get(folded(name), "")
    return METRICS.get(ALIASES.get(name, name))


def get_metric(name: str | Metric, *, for_scores: bool = False) -> Metric:
    """Return a metric by the name that a user typed; a metric is returned unchanged.

    Raise InputError for an unknown name; with `for_scores` it may suggest metrics without a search, which only scores
    can use.
    """
    if isinstance(name, Metric):
        return name
    metric = find_metric(name)
    if metric is None and name == COMPOSITE:
        raise InputError(
            "weights",
            f"must be given for metric {COMPOSITE!r}",
            "none",
            "Pass the file that `mo.fit_composite` wrote; an index is built for the metrics of its terms.",
        )
    if metric is None:
        hint = _hint(name, for_scores)
        raise InputError("metric", "must be one of those that `mo.list_metrics` lists", shown(name), hint)
    return metric


def title_of(name: str) -> str:
    """Return the name of a metric as papers print it; a name that is not in the registry stays as it is."""
    metric = METRICS.get(name)
    return name if metric is None else metric.title or name


def is_higher_better(entry: Mapping[str, Any], metric: str) -> bool:
    """Return whether higher scores are better, as a metric's entry in a signature says; else as the registry does."""
    direction = entry.get("direction")
    return sign_of(direction) > 0 if direction else get_metric(metric).higher_is_better


def names_of(metrics: str | Sequence[str] | None) -> list[str] | None:
    """Return a list of metric names from a name, several names separated by commas, or a sequence; None from None."""
    if metrics is None:
        return None
    if not isinstance(metrics, str) and not all(isinstance(name, str) for name in metrics):
        raise InputError("metrics", "must be names of metrics", "a judge", "`mo.rerank` takes judges.")
    return [name.strip() for name in metrics.split(",")] if isinstance(metrics, str) else list(metrics)


def _hint(typed: str, for_scores: bool) -> str:
    """Return the next step of the error message for an unknown name; see `get_metric`."""
    if "," in typed:
        return "Name one metric."
    bare = folded(typed)
    function = next((function for name, function in _FUNCTIONS.items() if name in bare and "f1" in bare), None)
    if function is not None:
        return f"`mo.{function}` computes it, from files of labels."
    # A name such as "meteor" is only the first part of names; metrics without a search are suggested only for scores.
    near = [
        name
        for name, metric in METRICS.items()
        if folded(name.partition(":")[0]) == bare and (metric.is_searched or for_scores)
    ] or get_close_matches(typed.lower(), [*METRICS, *ALIASES], n=1, cutoff=0.7)
    if not near:
        return "Choose one (docs/coming-from.md has other names), or name a judge in oracle.toml."
    return f"Did you mean {' or '.join(map(repr, near))}?"


def check_searched(metric: Metric) -> None:
    """Raise InputError for a metric without an exact search."""
    if not metric.is_searched:
        # Reranking needs a model that counts errors, whose checkpoint the user gives.
        source = metric.reads.source
        is_reranked = source is not None and source.arguments
        other = ", or `mo.rerank` for the best of a pool" if is_reranked else ""
        raise InputError(
            "metric",
            "must be one with an exact search",
            f"{metric.name!r}, whose model reads reference and candidate at once",
            f"Use `mo.score`{other}.",
        )


def composite(
    name: str, terms: Mapping[str, tuple[float, float, float]], intercept: float, citation: str, **described: Any
) -> Metric:
    """Return a linear composite; see `records.linear`.

    `terms` has (mean, scale, weight) by the name of a metric. Raise InputError if a metric is unknown, occurs twice or
    cannot be a term, or a number is too large, a scale not above 0 or a weight 0.
    """
    metrics = [get_metric(part) for part in terms]
    parts = [metric.name for metric in metrics]
    foreign = [part for part in parts if part not in COMPOSABLE]
    if foreign or not parts or len(set(parts)) < len(parts):
        got = shown(foreign[0]) if foreign else "none" if not parts else "one twice"
        raise InputError("terms", f"must be among {', '.join(COMPOSABLE)}, each once", got, "Choose others.")
    numbers = list(terms.values())
    for part, (mean, scale, weight) in zip(parts, numbers, strict=True):
        sizes = scale, abs(weight), (1 + abs(mean)) / (scale or 1), abs(weight) / (scale or 1) * (1 + abs(mean))
        # A weight of 0 would make the search compute values that have no effect.
        if not (scale > 0 and weight != 0 and all(size < LARGEST for size in sizes)):
            raise InputError(
                "mean, scale and weight",
                f"must be below {LARGEST:g} (mean and weight also over scale), scale above 0 and weight other than 0",
                f"{mean!r}, {scale!r} and {weight!r} for {part!r}",
                "Fit it again, or leave the metric out.",
            )
    if not abs(intercept) < LARGEST:
        raise InputError("intercept", f"must be below {LARGEST:g}", repr(intercept), "Fit the composite again.")
    added = [Term(metric, *row) for metric, row in zip(metrics, numbers, strict=True)]
    return linear(name, added, intercept, citation, **described)
