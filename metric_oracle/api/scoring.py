"""Scores of a model's reports."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metric_oracle.api.attached import AttachedReports, attached, pairs_of_one_table, read_joined
from metric_oracle.api.given import Given, given_of, names_of, opened, say, say_wordless, section_of
from metric_oracle.arguments import check_left_out, check_options
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.sections import check_sections
from metric_oracle.errors import InputError, called, option
from metric_oracle.findings.results import Scores
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import get_metric
from metric_oracle.progress import Progress
from metric_oracle.retrieval import pair_scores as _pairs
from metric_oracle.retrieval.checks import check_counted
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.pair_models import with_pair_models
from metric_oracle.sources.inputs import attached_sources
from metric_oracle.sources.pair_models import open_pair_models

# Keys of a checkpoint of CREPE, by the names of the registry.
CREPE = {"path": "crepe", "config": "crepe_config", "vocabulary": "crepe_vocabulary"}


@called("score")
def score(
    references: Given,
    predictions: Given,
    metrics: str | Sequence[str] | None = None,
    *,
    index: str | Path | Index | None = None,
    system: str | None = None,
    inner: bool = False,
    text: bool = False,
    crepe: str | Path | Mapping[str, Any] | None = None,
    options: SearchOptions | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Score a model's reports against the radiologists', joined on ids, under every metric that their sources allow.

    Parameters
    ----------
    references : path, container, AttachedReports or prepared folder
        Test reports, with what the metrics read in addition to the texts: [`reports`][metric_oracle.reports]. A model
        (a RadGraph archive, ``chexbert.pth``, RaTE-NER's folder) or an encoder serves both sides.
    predictions : path, container, AttachedReports or prepared folder
        What a model wrote. Empty reports are scored.
    metrics : str or sequence of str, optional
        Names of metrics; by default the usual ones that the sources allow.
    index : path or Index, optional
        Corpus whose document frequencies count under ``cider-d:corpus`` and ``idf="corpus"``, which need it. Its
        section is the default of the references'.
    system : str, optional
        Name of the model, by default that of its file.
    inner : bool, default False
        Score the ids that have both a reference and a prediction; otherwise an id without one of them is an error.
    text : bool, default False
        Whether the scores contain the texts of both sides.
    crepe : path or dict, optional
        Checkpoint of CREPE: a folder or its weights; or a dict of ``path``, ``config``, ``vocabulary`` and ``device``,
        where its files do not lie next to the weights.
    options : SearchOptions, optional
        `idf` and `rescale` of BERTScore. "tests" are the references, "corpus" the reports of `index`.
    progress : function, optional
        Called with the name of each step.

    Returns
    -------
    Scores
        One row for each reference; null where a pair cannot be scored.

    Raises
    ------
    InputError
        If the sides are of different sections, share no ids, or lack what a metric reads.

    Warns
    -----
    UserWarning
        If predictions are of a kind that Yu et al. compare with another section. If the references were attached with
        `tell`, this function is called with the line instead.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.score(["no acute process"], ["no acute disease"], "rouge-l").mean()
    {'rouge-l': 0.6666666666666666}
    """
    names, options = names_of(metrics), options or DEFAULTS
    records = [get_metric(name, for_scores=True) for name in names or ()]
    options.check_used(("idf", "rescale"), "scores of given reports")
    given_references = attached(references)
    written = attached(predictions).beside(given_references)
    system = system or written.name or "predictions"
    given_references, written = pairs_of_one_table(given_references, written)
    models, encoded = shared_models(given_references, written)
    corpus = None if index is None else opened(index)
    check_counted(corpus, records, options.idf)
    of_crepe = {} if crepe is None else open_crepe(crepe, models.get("device"))
    pair_models = with_pair_models(records, of_crepe)
    tell = models.get("tell")
    report = (lambda line: None) if tell is None else tell
    default, is_shown = section_of(corpus, written.data), tell is not None
    (truth, prepared), (generated, prepared_too) = read_joined(
        given_references,
        lambda side: side.read(default_section=default, is_shown=is_shown),
        written,
        lambda side, read: side.read(predictions=True, default_section=read and read[0].section, is_shown=is_shown),
    )
    report(f"references: {_counted(truth)}")
    report(f"predictions: {_counted(generated)}")
    if corpus is not None:
        check_sections(truth.known_section, corpus.section, ("references", "index"))
    step = _step_for_sections(str(truth.section), str(generated.section))
    warning = check_sections(
        truth.known_section, generated.known_section, step=step, option_of_other="predicted_section"
    )
    if warning:
        say(warning, tell)
    texts = {"references": truth.texts, "predictions": generated.texts}
    say_wordless(records or [get_metric("rouge-l")], texts, tell)
    return _pairs.score(
        truth,
        generated,
        names,
        system=system,
        inner=inner,
        files=dict(given_references.sources),
        predicted_files=own_sources(given_references, written),
        prepared=(prepared, prepared_too),
        models=models | given_of({"progress": progress}),
        encoding=None if encoded is None else encoded.open_encoding(progress),
        options=options,
        text=text,
        progress=progress,
        pair_models=pair_models,
        counted=corpus,
    )


def _step_for_sections(section: str, predicted: str) -> str:
    """Return the advice for references of the section `section` and predictions of the section `predicted`."""
    step = f"Pass {option('section', predicted, python=f'mo.reports(references, section={predicted})')}"
    by_caller = option("predicted_section", section, python=f"mo.reports(predictions, section={section})")
    return f"{step}, or {by_caller} where that is what the model writes"


@called("compute")
def compute(
    *,
    predictions: Given,
    references: Given,
    metrics: str | Sequence[str] | None = None,
    index: str | Path | Index | None = None,
    inner: bool = False,
    crepe: str | Path | Mapping[str, Any] | None = None,
    options: SearchOptions | None = None,
) -> dict[str, float]:
    """Return the mean score of predictions under each metric, as the `evaluate` library's metrics do.

    Parameters
    ----------
    predictions, references : list of texts, another container or AttachedReports
        In lists, the reports at the same position belong together.
    metrics : str or sequence of str, optional
        By default the usual ones that the sources allow.
    index, inner, crepe, options : optional
        See [`score`][metric_oracle.score], which also gives the score of each report.

    Returns
    -------
    dict of str to float
        Mean of each metric over the pairs that it can score.

    Raises
    ------
    InputError
        If the sides are of different sections, share no ids, or lack what a metric reads.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.compute(predictions=["no acute disease"], references=["no acute process"], metrics="rouge-l")
    {'rouge-l': 0.6666666666666666}
    """
    return score(references, predictions, metrics, index=index, inner=inner, crepe=crepe, options=options).mean()


def open_crepe(crepe: str | Path | Mapping[str, Any], device: str | None = None) -> dict[str, Any]:
    """Return the opened model of a checkpoint of CREPE in a dict, by the name of its representation.

    `crepe` is a path, or a dict as in `score`, whose entry "device" comes before `device`. Raise InputError if it does
    not name a checkpoint, or its files are not one.
    """
    given = dict(crepe) if isinstance(crepe, Mapping) else {"path": crepe}
    check_options(given, (*CREPE, "device"))
    if given.get("path") is None:
        others = [option(CREPE[name], python=repr(name)) for name in given_of(given, ("config", "vocabulary"))]
        raise InputError(
            "crepe",
            "must name a checkpoint",
            f"{' and '.join(others)} alone" if others else "none",
            "Add " + option("crepe", "FOLDER", python="'path': FOLDER") + ".",
        )
    named = {CREPE[name]: value for name, value in given_of(given).items() if name in CREPE}
    return open_pair_models(named, str(given["device"]) if given.get("device") else device)


def shared_models(
    references: AttachedReports, predictions: AttachedReports
) -> tuple[dict[str, Any], AttachedReports | None]:
    """Return the options of models that serve both sides, and the side that names the encoder, None if neither does.

    Raise InputError if the sides differ in one, or `states` or `bf16` is given, which scores do not have.
    """
    for side in (references, predictions):
        check_left_out({name: side.encoding.get(name) for name in ("states", "bf16")}, "for scores")
    named_twice = references.models.keys() & predictions.models.keys()
    differing = [name for name in named_twice if references.models[name] != predictions.models[name]]
    if references.encoding and predictions.encoding and references.encoding != predictions.encoding:
        differing.append("encoder")
    if differing:
        raise InputError(
            differing[0], "must be the same for both sides", "two different values", "Pass it with the references only."
        )
    encoded = next((side for side in (references, predictions) if side.encoding), None)
    return {**predictions.models, **references.models}, encoded


def own_sources(references: AttachedReports, predictions: AttachedReports) -> dict[str, Any]:
    """Return the sources of the predictions by argument, without models that the references have: these serve both."""
    shared = {
        source.argument
        for source in attached_sources()
        if source.is_model(predictions.sources.get(source.argument))
        and str(references.sources.get(source.argument)) == str(predictions.sources[source.argument])
    }
    return {name: value for name, value in predictions.sources.items() if name not in shared}


def _counted(reports: Reports) -> str:
    """Return a line on reports: where they come from, and how many are missing, empty or without a token."""
    kept = set(reports.ids)
    notes = []
    for state, studies in reports.states.items():
        n_kept = sum(study in kept for study in studies)
        notes += [f"{n_kept:,} {state}, scored as such"] * (n_kept > 0)
        notes += [f"{len(studies) - n_kept:,} {state}, left out"] * (len(studies) > n_kept)
    return "; ".join(filter(None, [reports.source, *notes]))
