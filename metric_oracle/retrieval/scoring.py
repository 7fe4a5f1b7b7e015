"""Scores of a model's reports: references and predictions, joined on ids."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias, Unpack

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import choices
from metric_oracle.base.arguments import check_left_out, check_options, given_of
from metric_oracle.base.declared import PREDICTED, Flag, Uses
from metric_oracle.base.errors import InputError, called, if_taken, option, shown
from metric_oracle.base.progress import Progress, say, silent
from metric_oracle.corpora.joining import PLACE, check_joined, check_two_columns
from metric_oracle.corpora.reports import ALL_SPLITS, Reports
from metric_oracle.corpora.sections import check_sections
from metric_oracle.corpora.tables import ids_hint
from metric_oracle.findings.results import Scores
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.memory import MemoryIndex
from metric_oracle.indexes.shards import opened, section_of
from metric_oracle.judges.judge import Judge
from metric_oracle.judges.opening import JudgeOptions, asked_judge
from metric_oracle.judges.pair_models import PairModel, with_pair_models
from metric_oracle.metrics import ATTACHED, METRICS, REPRESENTATIONS, get_metric, names_of
from metric_oracle.reading import AttachedReports, Given, attached, pairs_of_one_table, read_joined, say_wordless
from metric_oracle.retrieval.checks import check_counted, with_frequencies
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.pair_scores import DEFAULT_METRICS, NO_MODELS, score_rows, with_judge
from metric_oracle.sources.attaching import attach_sources, attached_sources, can_make, is_model, run_models
from metric_oracle.sources.contract import ignore
from metric_oracle.sources.pair_models import open_pair_models
from metric_oracle.sources.token_states import OpenedEncoder

# R2Gen's id of an IU X-ray study; the number is its uid in the Kaggle tables.
_IU_XRAY = re.compile(r"CXR(\d+)(?:_IM-.*)?")
# Keys of a checkpoint of CREPE, by the names of the registry.
CREPE = {"path": "crepe", "config": "crepe_config", "vocabulary": "crepe_vocabulary"}


# Both sides of a score, and the corpus whose reports are counted.
References: TypeAlias = Annotated[
    Given,
    Doc(
        "Reference reports, which radiologists wrote: in any form that [`reports`][metric_oracle.reports] takes. A "
        "model or an encoder that is given for them serves the predictions, too."
    ),
]
Predictions: TypeAlias = Annotated[
    Given,
    Doc(
        "Reports that a model wrote: in any form that [`reports`][metric_oracle.reports] takes, or a file as the code "
        "of R2Gen, CvT2DistilGPT2, M2 Trans, CXR-RePaiR, CXR-ReDonE or ReXrank writes it. Empty reports are scored."
    ),
]
Counted: TypeAlias = Annotated[
    str | Path | Index,
    Doc(
        "Index whose document frequencies the metric cider-d:corpus and `idf` corpus use, which need it: a folder that "
        "[`build_index`][metric_oracle.build_index] wrote. Its section is the default of the references'."
    ),
    Flag(metavar="INDEX"),
]
OfBertscore: TypeAlias = Annotated[
    SearchOptions,
    Doc(
        "Options of BERTScore, `idf` and `rescale`: see [`SearchOptions`][metric_oracle.SearchOptions]. For ``tests`` "
        "the references are counted, for ``corpus`` the reports of `index`."
    ),
    Uses("idf", "rescale"),
]


@called("score")
def score(
    references: References,
    predictions: Predictions,
    metrics: choices.Metrics | None = None,
    *,
    index: Counted | None = None,
    system: Annotated[
        str | None,
        Doc("Name of the model that wrote the predictions. By default that of their file without its ending."),
        Flag(panel=PREDICTED),
    ] = None,
    inner: choices.Inner = False,
    text: choices.WithText = False,
    crepe: choices.Crepe | None = None,
    options: OfBertscore | None = None,
    progress: Progress | None = None,
    **judge: Unpack[JudgeOptions],
) -> Scores:
    """Score a model's reports against the radiologists' reports of the same studies, joined on ids.

    The scores of a judge, given by `judge` or `judged`, are one more metric.

    Returns
    -------
    Scores
        One row for each reference; null where a pair cannot be scored.

    Raises
    ------
    InputError
        If the sides are of different sections, share less than half of the ids of the side with fewer, or lack what a
        metric reads.

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
    with asked_judge(judge) as asked:
        default, is_shown = section_of(corpus, written.data), tell is not None
        truth, generated = read_joined(
            given_references,
            lambda side: side.read(default_section=default, is_shown=is_shown),
            written,
            lambda side, read: side.read(
                predictions=True, default_section=None if read is None else read.section, is_shown=is_shown
            ),
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
        return score_sides(
            truth,
            generated,
            names,
            system=system,
            inner=inner,
            files=dict(given_references.sources),
            predicted_files=own_sources(given_references, written),
            models=models | given_of({"progress": progress}),
            opened_encoder=None if encoded is None else encoded.open_encoder(progress),
            options=options,
            text=text,
            progress=progress,
            pair_models=pair_models,
            judge=asked,
            counted=corpus,
        )


def _step_for_sections(section: str, predicted: str) -> str:
    """Return the advice for references of the section `section` and predictions of the section `predicted`."""
    step = f"Pass {option('section', predicted, python=f'mo.reports(references, read=mo.Read(section={predicted}))')}"
    by_caller = option("predicted_section", section, python=f"mo.reports(predictions, read=mo.Read(section={section}))")
    return f"{step}, or {by_caller} where that is what the model writes"


@called("compute")
def compute(
    *,
    predictions: Predictions,
    references: References,
    metrics: choices.Metrics | None = None,
    index: Counted | None = None,
    inner: choices.Inner = False,
    crepe: choices.Crepe | None = None,
    options: OfBertscore | None = None,
) -> dict[str, float]:
    """Return the mean score of predictions under each metric, as the `evaluate` library's metrics do.

    In lists, the reports at the same position belong together. [`score`][metric_oracle.score] also gives the score of
    each report.

    Returns
    -------
    dict of str to float
        Mean of each metric over the pairs that it can score.

    Raises
    ------
    InputError
        If the sides are of different sections, share less than half of the ids of the side with fewer, or lack what a
        metric reads.

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
        check_left_out({name: side.of_encoder.get(name) for name in ("states", "bf16")}, "for scores")
    named_twice = references.models.keys() & predictions.models.keys()
    differing = [name for name in named_twice if references.models[name] != predictions.models[name]]
    if references.of_encoder and predictions.of_encoder and references.of_encoder != predictions.of_encoder:
        differing.append("encoder")
    if differing:
        raise InputError(
            differing[0], "must be the same for both sides", "two different values", "Pass it with the references only."
        )
    encoded = next((side for side in (references, predictions) if side.of_encoder), None)
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


def score_sides(
    references: Reports,
    predictions: Reports,
    metrics: Sequence[str] | None = None,
    *,
    system: str,
    inner: bool = False,
    files: Mapping[str, Any] | None = None,
    predicted_files: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
    opened_encoder: OpenedEncoder | None = None,
    options: SearchOptions = DEFAULTS,
    text: bool = False,
    progress: Progress | None = None,
    pair_models: Mapping[str, PairModel] = NO_MODELS,
    judge: Judge | None = None,
    counted: Index | None = None,
) -> Scores:
    """Score a model's predictions against the reports, joined on ids; empty predictions are scored too.

    The scores are in the order of the references. With `inner` only the ids that both have are scored; otherwise an id
    that only one has is an error. The entry ``left_out`` of the signature has the number of reports left out, by
    reason.

    `files` and `predicted_files` are the sources of each side, keyed by the names of their arguments; a model among
    `files` (a RadGraph archive, chexbert.pth) is run on both. `models` are other keyword arguments of
    `attach_sources`, such as `uncertain`. Token weights of idf "tests" come from the references, those of "corpus", and
    other document frequencies, from `counted`. The rest is as in `score_rows`.
    """
    own, predicted, models = dict(files or {}), dict(predicted_files or {}), dict(models or {})
    tell = models.get("tell", ignore)
    held = {*references.attached}, {*predictions.attached}
    _check_files(metrics, own, predicted, held, models.get("uncertain"), opened_encoder)
    names = None if metrics is None else [get_metric(name, for_scores=True).name for name in metrics]
    records = [METRICS[name] for name in names or ()]
    check_counted(counted, records, options.idf)
    pair_models = with_pair_models(records, pair_models)
    asked, answered, left_out = join_ids(references, predictions, inner, tell)
    order = sorted(answered)  # so that sources in the order of the predictions still fit
    queries, corpus = load_sides(
        references,
        predictions,
        own,
        predicted,
        places=(asked, order),
        models=models,
        opened_encoder=opened_encoder,
    )
    row_of = {prediction: row for row, prediction in enumerate(order)}
    rows = np.array([row_of[i] for i in answered], np.int64)
    pairs = [(text, corpus.texts[row]) for text, row in zip(queries.texts, rows, strict=True)]
    if judge is not None:
        judge.check_cost(len({*pairs}), judge.n_kept({*pairs}), tell)
    usual = [name for name in DEFAULT_METRICS if all(can_make(corpus, kind) for kind in METRICS[name].representations)]
    built = [name for name in (usual if names is None else names) if METRICS[name].is_searched]
    index = MemoryIndex(corpus, built, progress=silent if progress is None else progress)
    scores = score_rows(
        with_frequencies(index, counted, records, options.idf),
        queries,
        rows,
        names,
        system=system,
        options=options,
        text=text,
        progress=progress,
        pair_models=pair_models,
    )
    if judge is not None:
        scores = with_judge(scores, judge, pairs, progress)
    n_cut = max(record.get("truncated_queries", 0) for record in scores.signature["metrics"].values())
    if n_cut:
        tell(f"cut off at the encoder's longest input: {n_cut:,} references")
    noted = scores.signature.get("noted", {}).values()
    n_cut = max((described.get("truncated_pairs", 0) for described in noted), default=0)
    if n_cut:
        tell(f"cut off at the longest input of a model that reads both reports: {n_cut:,} pairs")
    return replace(scores, signature={**scores.signature, "left_out": left_out})


def load_sides(
    references: Reports,
    predictions: Reports,
    files: dict[str, Any],
    predicted_files: dict[str, Any],
    *,
    places: tuple[Sequence[int], Sequence[int]],
    models: Mapping[str, Any],
    opened_encoder: OpenedEncoder | None,
) -> tuple[Reports, Reports]:
    """Return the chosen references and predictions as Reports with their sources; `score` describes the arguments.

    `places` are the positions of the chosen reports in `references` and in `predictions`.
    """
    sides = [reports.take(chosen) for reports, chosen in zip((references, predictions), places, strict=True)]
    shared = {name: files[name] for name in _models(files) if name not in predicted_files}
    own = [{name: value for name, value in files.items() if name not in shared}, predicted_files]
    shared = {name: model for name, model in shared.items() if not all(name in side.attached for side in sides)}
    loaded = [
        run_models(attach_sources(side, opened_encoder=opened_encoder, **models, **given))
        for side, given in zip(sides, own, strict=True)
    ]
    if shared:  # each model runs once for both sides
        texts = [*sides[0].texts, *sides[1].texts]
        both = run_models(attach_sources(Reports([str(i) for i in range(len(texts))], texts), **models, **shared))
        n = len(sides[0].texts)
        for i, rows in enumerate((np.arange(n), np.arange(n, len(texts)))):
            loaded[i] = replace(loaded[i], attached={**both.take(rows).attached, **loaded[i].attached})
    # One section for both: `score` has compared them.
    section = references.known_section if references.section else predictions.known_section
    return replace(loaded[0], section=section[0], section_by=section[1]), loaded[1]


def _models(files: Mapping[str, Any]) -> list[str]:
    """Return the names of those `files` that are a model to run, not a file of finished values."""
    return [name for name, value in files.items() if is_model(name, value)]


def _check_files(
    metrics: Sequence[str] | None,
    files: dict[str, Any],
    predicted_files: dict[str, Any],
    prepared_kinds: tuple[set[str], ...],
    uncertain: str | None,
    opened_encoder: OpenedEncoder | None,
) -> None:
    """Raise InputError unless references and predictions have the sources of the metrics, None for the default ones.

    `prepared_kinds` are the representations that each side has from a prepared folder. A source must be given for both
    sides, whatever the metrics. With `uncertain` a CheXbert model gives labels too; the encoder token states.
    """
    models = _models(files)
    given = {kind for kind, record in REPRESENTATIONS.items() if record.is_of_texts}
    # Token states of the references are made with the encoder of the predictions'.
    is_encoded = opened_encoder is not None
    given |= {kind for kind, r in REPRESENTATIONS.items() if r.is_encoded and (is_encoded or kind in prepared_kinds[1])}
    for source in ATTACHED:
        kind, name = source.name, source.arguments[0]
        of_chexbert = kind == "labels" and uncertain is not None and "chexbert" in models
        both = name in models or (of_chexbert and name not in files and name not in predicted_files)
        sides = [
            name in given_files or kind in kinds or both
            for given_files, kinds in zip((files, predicted_files), prepared_kinds, strict=True)
        ]
        if any(sides) and not all(sides) and (name in files or name in predicted_files):
            lacking = "references" if sides[1] else "predictions"
            raise InputError(
                source.plural, "must be given for both sides", f"none for the {lacking}", f"Add {source.both_sides}."
            )
        given |= {kind} if all(sides) else set()
    for typed in metrics or ():
        record = get_metric(typed, for_scores=True)
        for kind in record.representations:
            needs = REPRESENTATIONS[kind].source
            if needs is not None and kind not in given and record.is_searched:
                raise InputError(
                    f"{needs.plural} of both sides",
                    f"must be given for metric {record.name!r}",
                    "none",
                    f"Add {needs.both_sides}.",
                )


def join_ids(
    references: Reports, predictions: Reports, inner: bool, tell: Callable[[str], None]
) -> tuple[list[int], list[int], dict[str, int]]:
    """Join references and predictions on ids.

    Return the positions of the references and of the predictions of each pair, in the order of the references, and the
    numbers of reports left out, by reason. Raise InputError if less than half of the shorter side is in both, if no id
    has a text on both sides, if texts that are joined by their place differ in number, or, unless `inner` is true, if a
    report is left out for another reason than a missing or empty reference. `tell` gets notes.
    """
    check_joined(references.ids_from, predictions.ids_from, tell)
    check_two_columns(references, predictions)
    if references.ids_from == predictions.ids_from == PLACE:
        lengths = [reports.counts.get("rows", len(reports.ids)) for reports in (references, predictions)]
        if lengths[0] != lengths[1]:
            raise InputError(
                "texts without ids",
                "must be as many on both sides",
                f"{lengths[0]} references and {lengths[1]} predictions",
                "They belong together by their place: complete the shorter list, or pass ids.",
            )
    usable = set(references.ids)
    unusable = {study: state for state, studies in references.states.items() for study in studies}
    unusable = {study: state for study, state in unusable.items() if study not in usable}
    missing = set(predictions.states.get("missing", ()))
    keys = list(references.ids), list(predictions.ids)
    if not set(keys[0]) & set(keys[1]):
        plain = [[_IU_XRAY.sub(r"\1", key) for key in side] for side in keys]
        if set(plain[0]) & set(plain[1]) and all(len(set(side)) == len(side) for side in plain):
            tell("ids such as CXR1_IM-0001 are read as 1")
            keys = plain[0], plain[1]
            unusable, missing = (
                {_IU_XRAY.sub(r"\1", key): state for key, state in unusable.items()},
                {_IU_XRAY.sub(r"\1", key) for key in missing},
            )
    prediction_of = {key: i for i, key in enumerate(keys[1])}
    answered = [i for i, key in enumerate(keys[0]) if key in prediction_of]
    reference_ids = set(keys[0])
    apart = {
        "without a prediction": [key for key in keys[0] if key not in prediction_of and key not in missing],
        "with a missing prediction": [key for key in keys[0] if key in missing],
        "without a reference": [key for key in keys[1] if key not in reference_ids and key not in unusable],
        "with a missing or empty reference": [key for key in keys[1] if key in unusable],
    }
    left_out = {what: len(ids) for what, ids in apart.items() if ids}
    n_shared = len((reference_ids | unusable.keys()) & (prediction_of.keys() | missing))
    n_fewer = min(len(reference_ids | unusable.keys()), len(prediction_of.keys() | missing))
    if not answered and n_shared and 2 * n_shared >= n_fewer:
        raise InputError(
            "references and predictions",
            "must both have a text for at least one id",
            f"none for the {n_shared} in common",
            "Check which columns the texts are read from.",
        )
    if not answered or 2 * n_shared < n_fewer:
        examples = " and ".join(
            f"{shown(*ids[:3])}{f' (column {source.name})' if source.by in ('name', 'caller') else ''}"
            for ids, source in zip(keys, (references.ids_from, predictions.ids_from), strict=True)
        )
        columns = f"{option('id_column', 'NAME')} and {option('predicted_id_column', 'NAME')}"
        of_images = f", or {option('metadata')} where the predictions are of images"
        raise InputError(
            "references and predictions",
            "must share at least half of the ids of the side with fewer",
            f"{f'{n_shared} of {n_fewer}' if n_shared else 'none'} in common, such as {examples}",
            f"Pass {columns}{if_taken('metadata', of_images)}.{ids_hint(*keys)}",
        )
    unscorable = "with a missing or empty reference"
    if left_out.keys() - {unscorable} and not inner:
        listed = " and ".join(f"{len(ids)} {what} ({shown(*ids[:3])})" for what, ids in apart.items() if ids)
        of_split = f" The references are of all splits: {option('split', 'test')} takes those of the tests."
        hint = (
            of_split if f", {ALL_SPLITS}, " in references.source and apart["without a prediction"] else ids_hint(*keys)
        )
        raise InputError(
            f"{len(keys[0])} references and {len(keys[1])} predictions",
            "must have the same ids",
            listed,
            f"Complete them, or pass {option('inner', True)} to score the ids that have both.{hint}",
        )
    if left_out:
        tell("left out: " + ", ".join(f"{count:,} {what}" for what, count in left_out.items()))
    return answered, [prediction_of[keys[0][i]] for i in answered], left_out
