"""Scores of a model's reports."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from metric_oracle.api.given import (
    ARGUMENTS,
    MODELS,
    READING,
    SIDES,
    Compared,
    Given,
    names_of,
    opened,
    predicted,
    reports_of,
    say,
    section_of,
    split,
)
from metric_oracle.corpora.reports import JOINED, Reports, check_options
from metric_oracle.corpora.sections import check_sections
from metric_oracle.corpora.tables import BINARY, ENDINGS, SEPARATED
from metric_oracle.corpora.text_files import file_ending
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import load_encoding
from metric_oracle.metrics import get_metric
from metric_oracle.progress import Progress
from metric_oracle.retrieval import pairs as _pairs
from metric_oracle.retrieval.checks import check_counted
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.pair_models import with_pair_models
from metric_oracle.retrieval.results import Scores
from metric_oracle.sources.pair_models import open_pair_models


@called("score")
def score(
    references: Given,
    predictions: Given,
    metrics: str | Sequence[str] | None = None,
    *,
    index: str | Path | Index | None = None,
    system: str | None = None,
    inner: bool = False,
    encoder: str | Path | None = None,
    layer: int | None = None,
    rescale_table: str | Path | None = None,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    crepe: str | Path | None = None,
    crepe_config: str | Path | None = None,
    crepe_vocabulary: str | Path | None = None,
    text: bool = False,
    ids: str | Path | None = None,
    metadata: str | Path | None = None,
    seed: int = 0,
    after_impression: bool = False,
    predicted_id_column: str | None = None,
    predicted_text_column: str | None = None,
    predicted_section: str | None = None,
    progress: Progress | None = None,
    **given: Unpack[Compared],
) -> Scores:
    """Score a model's reports against the radiologists', joined on ids, under every metric that the files allow.

    Parameters
    ----------
    references : path or container
        Test reports, as for :func:`load_queries`, or a folder of :func:`build_index` with what is inside.
    predictions : path or container
        What a model wrote, see :func:`metric_oracle.read_predictions`, or such a folder.
    metrics : str or sequence of str
        Names of the registry; by default the usual ones that the given files allow.
    index : path or Index
        Corpus whose document frequencies count under ``cider-d:corpus`` and ``idf="corpus"``, which need it; its
        section is the default of `section`.
    system : str
        Name of the model, by default that of its file.
    inner : bool
        Score the ids that have both a reference and a prediction; otherwise an id without one of them is an error.
    radgraph, chexbert, chexbert_ids, chexbert_labels, entities
        Of the references, and with ``predicted_`` before the name of the predictions, as in :func:`build_index`. A
        model (a RadGraph archive, chexbert.pth, RaTE-NER's folder) is given once, for both.
    uncertain, encoder, layer, rescale_table, radgraph_encoder, vocabulary, entity_encoder, device
        As in :func:`build_index`.
    idf, rescale
        As in :func:`retrieve`; "tests" are the references, "corpus" the reports of `index`.
    crepe, crepe_config, crepe_vocabulary : path
        Checkpoint of CREPE, a folder or its weights, and its other files where they do not lie beside the weights.
    text : bool
        Whether the scores carry the texts of both sides.
    section, id_column, text_column, split, split_file, profile, keep_empty, encoding, separator
        How the references are read, see :func:`metric_oracle.read_reports`.
    ids, metadata, seed, after_impression, predicted_id_column, predicted_text_column, predicted_section
        How the predictions are read, see :func:`metric_oracle.read_predictions`; its `split`, `encoding` and
        `separator` are those of the references.
    tell, progress
        Called with lines for people, with finished and all items of a model's work, and with the name of each step.

    Returns
    -------
    Scores
        One row a reference; null where a pair cannot be scored.

    Raises
    ------
    InputError
        If the sides are of different sections, share no ids, or lack what a metric reads.

    Warns
    -----
    UserWarning
        If Yu et al. compare such predictions with another section; `tell` gets the line instead, where it is given.
    """
    check_options(given, (*READING, *SIDES), "score")
    names = names_of(metrics)
    records = [get_metric(name, "score") for name in names or ()]
    corpus = None if index is None else opened(index)
    asked = split({"layer": layer, "rescale_table": rescale_table})
    if encoder is None and asked:
        msg = f"score: encoder must be given with {', '.join(asked)}; got None. Add --encoder NAME or a folder."
        raise InputError(msg)
    check_counted(corpus, records, idf, "score")
    of_crepe = split({"crepe": crepe, "crepe_config": crepe_config, "crepe_vocabulary": crepe_vocabulary})
    pair_models = with_pair_models(records, open_pair_models(of_crepe, "score", given.get("device")), "score")
    tell = given.get("tell")
    told = tell or (lambda line: None)
    reading = split(given, READING)
    asked_reports, prepared = reports_of(references, "score", reading, like=section_of(corpus, predictions))
    told(f"references: {_counted(asked_reports)}")
    written, prepared_too = reports_of(
        predictions,
        "score",
        split(
            {
                "ids": ids, "split": reading.get("split") if ids is not None else None, "metadata": metadata,
                "seed": seed, "after_impression": after_impression or None, "id_column": predicted_id_column,
                "text_column": predicted_text_column, "section": predicted_section, **_of_text(predictions, reading),
            }
        ),
        predictions=True,
    )  # fmt: skip
    told(f"predictions: {_counted(written)}")
    if corpus is not None:
        check_sections("score", asked_reports.said, corpus.section, ("references", "index"))
    step = f"Pass --section {written.section}"
    step += ", --after-impression" if (asked_reports.section, written.section) == ("impression", JOINED) else ""
    step += f", or --predicted-section {asked_reports.section} where that is what the model writes"
    warning = check_sections("score", asked_reports.said, written.said, step=step)
    if warning:
        say(warning, tell)
    of_models = split(given, ("device", "tell")) | split({"progress": progress})
    encoding = None if encoder is None else load_encoding(encoder, "score", **asked, **of_models)
    if system is None:
        system = Path(predictions).name.partition(".")[0] if isinstance(predictions, str | Path) else "predictions"
    return _pairs.score(
        asked_reports,
        written,
        names,
        system=system,
        inner=inner,
        files=split(given, ARGUMENTS),
        predicted_files=predicted(given),
        prepared=(prepared, prepared_too),
        models=split(given, MODELS) | split({"progress": progress}),
        encoding=encoding,
        options=SearchOptions(idf=idf, rescale=rescale),
        text=text,
        progress=progress,
        pair_models=pair_models,
        counted=corpus,
    )


def _of_text(predictions: Given, reading: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return how the text of the references is read, as far as the predictions are such a file, too."""
    if not isinstance(predictions, str | Path) or not Path(predictions).is_file():
        return {}
    kind = ENDINGS.get(file_ending(Path(predictions)))
    names = ["encoding"] * (kind not in BINARY) + ["separator"] * (kind in SEPARATED)
    return {name: (reading or {}).get(name) for name in names}


def _counted(reports: Reports) -> str:
    """Say what was read of one side, and what of it is no report with words."""
    kept = set(reports.ids)
    found = []
    for state, studies in reports.states.items():
        n_kept = sum(study in kept for study in studies)
        found += [f"{n_kept:,} {state}, scored as such"] * (n_kept > 0)
        found += [f"{len(studies) - n_kept:,} {state}, left out"] * (len(studies) > n_kept)
    return "; ".join(filter(None, [reports.source, *found]))
