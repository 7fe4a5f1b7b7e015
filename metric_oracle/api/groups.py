"""Scores of all pairs of candidates and references, of one group or of many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.api.attached import AttachedReports, attached, with_prepared
from metric_oracle.api.given import Given, opened
from metric_oracle.api.scoring import own_sources, shared_models
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import are_columns
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval import pair_scores as _pairs
from metric_oracle.retrieval.groups import score_groups
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.sources.inputs import Inputs, load_inputs


@dataclass(frozen=True)
class Groups:
    """Reports of one group or of several, one group after another.

    A group is, for example, the samples of one study.
    """

    reports: AttachedReports
    keys: list[Any] | None = None  # key of each group; None for the reports of one group
    sizes: np.ndarray | None = None  # int64[G], number of reports of each group; None for the reports of one group
    is_keyed: bool = False  # whether the groups were given as a dict


def groups_of(given_groups: Given, argument: str, other: Groups | None = None) -> Groups:
    """Return the groups in a list of lists of texts or a dict of lists; anything else is the reports of one group.

    Groups are in the order of those of `other`, with the same keys, if that is not None. Raise InputError for groups
    that hold no texts or have other keys; `argument` names them.
    """
    side = attached(given_groups)
    data = side.data
    keys: list[Any] | None = None
    if isinstance(data, Mapping) and are_columns(data):
        step = "Pass a dict of study id to list of texts, or a list of lists of texts."
        raise InputError(argument, "must be groups of texts", "a dict of columns", step)
    if isinstance(data, list | tuple | Mapping):
        groups = dict(data if isinstance(data, Mapping) else enumerate(data))
        if not groups or any(isinstance(group, list | tuple) for group in groups.values()):
            keys = list(groups)
    if other is not None and _distinct(keys) != _distinct(other.keys):
        value = "one group" if keys is None else f"{len(keys)} groups"
        rule = "must be one group" if other.keys is None else f"must be {len(other.keys)} groups with the same keys"
        step = "Pass candidates and references in the same form."
        raise InputError(argument, rule, value, step)
    if keys is None:
        return Groups(side)
    for key, group in groups.items():
        if not isinstance(group, list | tuple) or any(not isinstance(text, str | None) for text in group):
            step = "Pass a list of texts, a list of lists of texts, or a dict of them."
            value = f"another type in group {key!r}"
            raise InputError(argument, "must be lists of texts", value, step)
    keys = keys if other is None else other.keys or []
    ids = [f"{key}/{i}" for key in keys for i in range(len(groups[key]))]
    texts = [text for key in keys for text in groups[key]]
    reports = Reports.from_texts(texts, ids, keep_empty=True) if texts else Reports([], [], "no reports", {}, {})
    sources = {name: _by_text(value, reports.texts) for name, value in side.sources.items()}
    joined = AttachedReports(reports, side.reading, sources, side.models, side.encoding)
    return Groups(joined, keys, np.array([len(groups[key]) for key in keys], np.int64), isinstance(data, Mapping))


def _distinct(keys: Sequence[Any] | None) -> set[Any] | None:
    """Return the distinct keys of the groups, None if they have no keys."""
    return None if keys is None else set(keys)


def _by_text(value: Any, texts: Sequence[str]) -> Any:
    """Return the value of a source as it is, of a dict with one of `texts` as a key a function from texts to values."""
    if not isinstance(value, Mapping) or not any(text in value for text in texts):
        return value

    def answer(texts_asked: list[str]) -> dict[str, Any]:
        """Return the values of these texts in the form of a source: a dict from position to value."""
        return {str(i): value[text] for i, text in enumerate(texts_asked) if text in value}

    return answer


@called("pairwise")
def pairwise(
    groups: Given,
    metric: str,
    references: Given | None = None,
    *,
    index: str | Path | Index | None = None,
    options: SearchOptions | None = None,
) -> np.ndarray | list[np.ndarray] | dict[str, np.ndarray]:
    """Score every candidate of a group with every reference of that group, exactly.

    Parameters
    ----------
    groups : list of lists of texts, dict of them, list of texts, another container or AttachedReports
        Candidates. Groups may be of different sizes; texts may repeat and be empty; a missing one (None) is an error.
        A list of texts, and anything else that holds single reports, is one group. What the metric reads in addition
        to the texts is attached by [`reports`][metric_oracle.reports]; in groups it goes by the text, or by id and
        place: candidate 2 of group "a" is "a/2", and the groups of a list are "0", "1", ...
    metric : str
        Name of a metric.
    references : same as `groups`, optional
        As many groups; of dicts, those with the same id belong together. By default the candidates of a group are
        compared with one another. A model or an encoder that is attached here serves both sides.
    index : path or Index, optional
        Corpus whose document frequencies count, see [`score`][metric_oracle.score].
    options : SearchOptions, optional
        `idf` and `rescale` of BERTScore, and `threads`.

    Returns
    -------
    numpy.ndarray or list or dict of numpy.ndarray
        float64[H, R] for each group, in a list or dict as `groups` is. Row i, column j: candidate i with reference j.
        Values are the metric's own: check its direction. Each distinct text is prepared once, and each distinct pair
        of all groups is scored once.

    Raises
    ------
    InputError
        If an argument is wrong, a report is missing, or a side lacks what the metric reads.

    Notes
    -----
    Metrics whose scores depend on all references of a call (`cider-d`, `crg`, and `idf="tests"`) count those of all
    groups.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.pairwise(["no acute process", "clear"], "rouge-l")
    array([[1., 0.],
           [0., 1.]])
    >>> mo.pairwise([["no edema"], ["clear", ""]], "rouge-l", [["no edema", "edema"], ["clear"]])
    [array([[1.        , 0.66666667]]), array([[1.],
           [0.]])]
    """
    record, options = get_metric(metric), options or DEFAULTS
    options.check_used(("idf", "rescale", "threads"), "scores of given reports")
    candidates = groups_of(groups, "groups")
    truth = candidates if references is None else groups_of(references, "references", candidates)
    sizes = truth.sizes, candidates.sizes
    if sizes[0] is not None and sizes[1] is not None and not (sizes[0].sum() and sizes[1].sum()):
        matrices = [np.zeros(shape) for shape in zip(sizes[1].tolist(), sizes[0].tolist(), strict=True)]
    else:
        truth_inputs, written = _loaded(truth.reports, candidates.reports)
        n_references, n_candidates = (
            np.array([len(inputs.ids)]) if side.sizes is None else side.sizes
            for side, inputs in ((truth, truth_inputs), (candidates, written))
        )
        counted = None if index is None else opened(index)
        matrices = score_groups(truth_inputs, written, (n_references, n_candidates), record, options, counted)
    if candidates.keys is None:
        return matrices[0]
    return dict(zip(candidates.keys, matrices, strict=True)) if candidates.is_keyed else matrices


def _loaded(references: AttachedReports, candidates: AttachedReports) -> tuple[Inputs, Inputs]:
    """Return references and candidates with their sources; they are one object if `candidates` is `references`."""
    models, encoded = shared_models(references, candidates)
    encoding = None if encoded is None else encoded.open_encoding()
    written, prepared_too = _read(candidates, predictions=True)
    if references is candidates:
        loaded = load_inputs(written.ids, written.texts, encoding=encoding, **models, **references.sources)
        inputs = with_prepared(loaded.completed(), prepared_too)
        return inputs, inputs
    truth, prepared = _read(references, keep_empty=True)
    return _pairs.load_sides(
        truth,
        written,
        dict(references.sources),
        own_sources(references, candidates),
        prepared=(prepared, prepared_too),
        places=(range(len(truth.ids)), range(len(written.ids))),
        models=models,
        encoding=encoding,
    )


def _read(
    side: AttachedReports, *, predictions: bool = False, keep_empty: bool = False
) -> tuple[Reports, Inputs | None]:
    """Return what `AttachedReports.read` returns; raise InputError if a report is missing."""
    reports, prepared = side.read(predictions=predictions, keep_empty=keep_empty)
    n_missing = len(reports.states.get("missing", ()))
    if n_missing:
        raise InputError("reports", "must be texts", f"{n_missing} missing", "Leave them out.")
    return reports, prepared
