"""Sources joined to reports, and models that make them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.argument_checks import check_options
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress, counter, silent
from metric_oracle.corpora.reports import Reports
from metric_oracle.metrics import ATTACHED, REPRESENTATIONS
from metric_oracle.sources.contract import Attachment, Source, check_unicode, ignore, name_of, source_of
from metric_oracle.sources.token_states import OpenedEncoder

# Arguments of the public functions that give sources.
ARGUMENTS = tuple(name for source in ATTACHED for name in source.arguments)


@dataclass(frozen=True)
class Model:
    """An opened model that computes one or more sources from texts."""

    kinds: tuple[str, ...]  # names of the sources
    # Takes the texts and a folder for finished parts, and returns an `Attachment` for each source by name.
    run: Callable[[Sequence[str], Path | None], dict[str, Attachment]]


def can_make(reports: Reports, kind: str) -> bool:
    """Return whether the representation `kind` can be made from these reports and their sources."""
    representation = REPRESENTATIONS[kind]
    is_made = kind in reports.attached or any(kind in model.kinds for model in reports.models)
    return representation.is_of_texts or is_made or (representation.is_encoded and reports.opened_encoder is not None)


def piece_of(reports: Reports, *, is_first: bool = True) -> Reports:
    """Return all reports, with only the values that they use, for one shard of a corpus; see `Source.piece`."""
    attached = {
        kind: source_of(kind).piece(attachment, is_first=is_first) for kind, attachment in reports.attached.items()
    }
    return replace(reports, attached=attached)


def run_models(reports: Reports, scratch: Path | None = None) -> Reports:
    """Run the models that have not run yet; return the reports with the sources that they make.

    The models keep finished parts in `scratch`, from which an interrupted run resumes.
    """
    attached = dict(reports.attached)
    for model in reports.models:
        attached |= model.run(reports.texts, scratch)
    return replace(reports, attached=attached, models=())


def attach_sources(
    reports: Reports,
    *,
    uncertain: str | None = None,
    opened_encoder: OpenedEncoder | None = None,
    encoder: str | Path | None = None,
    radgraph_encoder: str | Path | None = None,
    vocabulary: str | Path | None = None,
    entity_encoder: str | Path | None = None,
    device: str | None = None,
    is_piece: bool = False,
    tell: Callable[[str], None] = ignore,
    progress: Progress = silent,
    **sources: Any,
) -> Reports:
    """Join sources to reports, and open the models that compute further sources, see `run_models`.

    Sources and encoder that the reports have are kept unless others are given.
    `sources` has by argument (`radgraph`, `chexbert`, `chexbert_ids`, ...) a file, a container, a model, or a function
    that takes texts and returns one value per text, in their order; None is ignored. `uncertain` is what an uncertain
    label counts as, "positive", "negative" or "blank". `opened_encoder` and `encoder` are those of `Reports`.
    `radgraph_encoder`, `vocabulary` and `entity_encoder` are further files of the models of RadGraph, CheXbert and
    RaTEScore. Models run on `device`, by default a GPU if there is one. With `is_piece`, the reports are only a part of
    those that the files belong to, so that none of them need have a value. `tell` is called with lines for the user,
    and while a model runs ``progress(source, done, total)`` with numbers of reports.

    Raise InputError if a file cannot be read or shares no id with the reports, or an option is missing.
    """
    check_options(sources, ARGUMENTS)
    sources = {name: value for name, value in sources.items() if value is not None}
    settings = {"uncertain": uncertain}
    model_options = {
        "radgraph_encoder": radgraph_encoder, "vocabulary": vocabulary, "entity_encoder": entity_encoder,
        "device": device,
    }  # fmt: skip
    ids, texts = reports.ids, reports.texts
    check_unicode(ids, ids, "ids")
    check_unicode(texts, ids, "texts")
    attached: dict[str, Attachment] = {}
    models: list[Model] = []
    for source in attached_sources():
        value, data_ids = _value(source, sources)
        if value is None:
            continue
        if source.is_model(value):
            opened = source.open(value, model_options)
            outputs = (source, *_made_too(source, sources, settings))
            names = tuple(one.name for one in outputs)
            models.append(Model(names, _Opened(opened, outputs, settings, tell, progress).run))
        elif callable(value):
            models.append(Model((source.name,), partial(_call, value, source, settings)))
        else:
            attached[source.name] = source.attach(value, data_ids, (ids, texts), settings, is_piece=is_piece)
    for kind in (*attached, *(kind for model in models for kind in model.kinds)):
        source_of(kind).check_settings(settings)
    return replace(
        reports,
        ids=list(ids),
        texts=list(texts),
        attached={**reports.attached, **attached},
        opened_encoder=opened_encoder or reports.opened_encoder,
        encoder=encoder or reports.encoder,
        models=tuple(models),
        is_loaded=True,
    )


def attached_sources() -> list[Source]:
    """Return the sources whose values are joined to reports, in the registry's order."""
    return [source_of(source.name) for source in ATTACHED]


def is_model(argument: str, file_or_model: Any) -> bool:
    """Return whether what was given for the argument of a source names a model to run; False for other arguments."""
    return any(source.is_model(file_or_model) for source in attached_sources() if source.argument == argument)


def read_sources(by_argument: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given for the arguments of sources with all files read; models and functions stay as they are.

    Ids that were given apart are then in the table of their source.
    """
    read = dict(by_argument)
    for source in attached_sources():
        value, data_ids = _value(source, by_argument)
        if value is None or callable(value) or source.is_model(value):
            continue
        for name in source.record.arguments[1:]:
            read.pop(name, None)
        read[source.argument] = source.read(value, data_ids)
    return read


def _value(source: Source, by_argument: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return what was given for a source, and for its ids, each None if nothing was; raise InputError for ids alone."""
    value = by_argument.get(source.argument)
    for name in source.record.arguments[1:]:
        data_ids = by_argument.get(name)
        if value is None and data_ids is not None:
            raise InputError(
                source.argument,
                f"must be given with `{name}`",
                "None",
                f"Add the {source.record.plural} of {name_of(data_ids)}.",
            )
        return value, data_ids
    return value, None


def _made_too(source: Source, by_argument: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Source]:
    """Return the other sources that a source's model computes as well, so that the model runs once.

    They are those for which nothing else was given and whose settings were given.
    """
    return [
        other
        for other in attached_sources()
        if other.record.made_by == source.name
        and other.argument not in by_argument
        and all(settings.get(name) is not None for name in other.record.settings)
    ]


@dataclass(frozen=True)
class _Opened:
    """An opened model, and what is made of its output."""

    model: Any
    sources: Sequence[Source]  # the first one opened the model
    settings: Mapping[str, Any]
    tell: Callable[[str], None]
    progress: Progress

    def run(self, texts: Sequence[str], scratch: Path | None) -> dict[str, Attachment]:
        """Run the model, and return the attachment of each source, by its name."""
        first, n = self.sources[0], len(texts)
        count = counter(self.progress, first.name, n)
        output = first.run(self.model, texts, tell=self.tell, progress=count, scratch=scratch)
        return {one.name: one.attachment(output, n, self.settings, self.model.signature) for one in self.sources}


def _call(
    function_of_texts: Callable[[list[str]], Any],
    source: Source,
    settings: Mapping[str, Any],
    texts: Sequence[str],
    scratch: Path | None,
) -> dict[str, Attachment]:
    """Call a user's function with the distinct texts, in the order of first appearance; return the attachment by name.

    `scratch` is not used: what such a function has answered is not kept.
    """
    place: dict[str, int] = {}
    of_text = np.array([place.setdefault(text, len(place)) for text in texts], np.int64)
    answer = function_of_texts(list(place))
    return {source.name: source.attach_answer(answer, len(place), settings).take(of_text)}
