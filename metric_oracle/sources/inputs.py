"""Reports with their sources: what a corpus, or a batch of queries, consists of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.reports import check_options
from metric_oracle.errors import InputError
from metric_oracle.metrics import ATTACHED, REPRESENTATIONS
from metric_oracle.progress import Progress, counter, silent
from metric_oracle.sources.contract import Attachment, Source, check_unicode, ignore, name_of, source_of
from metric_oracle.sources.token_states import Encoding

# Arguments of the public functions that give sources.
ARGUMENTS = tuple(name for record in ATTACHED for name in record.arguments)


@dataclass(frozen=True)
class Model:
    """A model that is ready to make sources of texts.

    Attributes
    ----------
    kinds : tuple of str
        Names of the sources.
    run : function
        Takes the texts and a folder for finished parts, and returns an `Attachment` for each source.
    """

    kinds: tuple[str, ...]
    run: Callable[[Sequence[str], Path | None], dict[str, Attachment]]


@dataclass(frozen=True)
class Inputs:
    """Reports with their sources.

    Attributes
    ----------
    ids, texts : sequence of str
    attached : dict of str to Attachment
        By the name of the source; of prepared token states: their `TokenStateIndex`, and the unit of each report.
    encoding : Encoding or None
        What makes token states of a corpus.
    encoder : str, path or None
        Where the encoder of an index is now, for queries.
    models : tuple of Model
        What is still to be made from the texts, see `completed`.
    scratch : Path or None
        Folder for work under way, given by the build.
    section : (str or None, str)
        The section of the reports and what says so, see `corpora.reports.Reports`.
    columns : dict of str to sequence of str
        Columns that are kept with the reports: the value of each, "" where it has none.
    kept : dict or None
        Token states of queries that are kept for later searches and scores, see `encoders.token_states.encode_once`;
        None where each encodes them.
    stored : (str, int64[Q]) or None
        Checksum of the index that the reports were read from, and the row of each.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    attached: dict[str, Attachment] = field(default_factory=dict)
    encoding: Encoding | None = None
    encoder: str | Path | None = None
    models: tuple[Model, ...] = ()
    scratch: Path | None = None
    section: tuple[str | None, str] = (None, "")
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kept: dict[str, Any] | None = None
    stored: tuple[str, np.ndarray] | None = None

    def __repr__(self) -> str:
        return f"<Inputs: {len(self.ids):,} reports with {', '.join(self.attached) or 'nothing else'}>"

    def has(self, kind: str) -> bool:
        """Tell whether a representation can be made of what is here."""
        record = REPRESENTATIONS[kind]
        made = kind in self.attached or any(kind in model.kinds for model in self.models)
        return record.is_of_texts or made or (record.is_encoded and self.encoding is not None)

    def take(self, chosen: np.ndarray) -> "Inputs":
        """Return the reports at some places."""
        attached = {kind: attachment.take(chosen) for kind, attachment in self.attached.items()}
        ids, texts = [self.ids[i] for i in chosen], [self.texts[i] for i in chosen]
        columns = {name: [values[i] for i in chosen] for name, values in self.columns.items()}
        stored = None if self.stored is None else (self.stored[0], self.stored[1][chosen])
        return replace(self, ids=ids, texts=texts, attached=attached, columns=columns, stored=stored)

    def piece(self, *, is_first: bool = True) -> "Inputs":
        """Return the reports with the values that belong to them and no others; see `Source.piece`."""
        attached = {kind: source_of(kind).piece(made, is_first=is_first) for kind, made in self.attached.items()}
        return replace(self, attached=attached)

    def completed(self, scratch: Path | None = None) -> "Inputs":
        """Run the models; in `scratch` they keep finished parts, with which a killed run resumes."""
        attached = dict(self.attached)
        for model in self.models:
            attached |= model.run(self.texts, scratch)
        return replace(self, attached=attached, models=())


def load_inputs(
    ids: Sequence[str],
    texts: Sequence[str],
    *,
    uncertain: str | None = None,
    encoding: Encoding | None = None,
    encoder: str | Path | None = None,
    radgraph_encoder: str | Path | None = None,
    vocabulary: str | Path | None = None,
    entity_encoder: str | Path | None = None,
    device: str | None = None,
    is_piece: bool = False,
    tell: Callable[[str], None] = ignore,
    progress: Progress = silent,
    **given: Any,
) -> Inputs:
    """Join sources to reports, and open the models that make the others.

    Parameters
    ----------
    ids, texts : sequences of str
    uncertain : {"positive", "negative", "blank"}
        What an uncertain label counts as; required with CheXbert labels.
    encoding, encoder
        Passed on, see `Inputs`.
    radgraph_encoder, vocabulary, entity_encoder : path
        Other files of RadGraph, CheXbert and RaTEScore's models, see `encoders.radgraph`, `encoders.chexbert` and
        `encoders.ratescore`.
    device : {"cpu", "cuda"}
        Where models run; by default a GPU if there is one.
    is_piece : bool
        Whether the reports are a part of those that files and arrays belong to: none of them need be there.
    tell : function
        Called with lines for people.
    progress : function
        Called as ``progress(source, done, total)`` with numbers of reports, while a model runs.
    **given
        The arguments of the registry's sources (`radgraph`, `chexbert`, `chexbert_ids`, ...): a file, a container, a
        model, or a function from texts to values in their order.

    Returns
    -------
    Inputs
        With its models, which are opened and not yet run.

    Raises
    ------
    InputError
        If a file cannot be read, shares no id with the reports, or a setting is missing.
    """
    check_options(given, ARGUMENTS)
    given = {name: value for name, value in given.items() if value is not None}
    settings = {"uncertain": uncertain}
    files = {
        "radgraph_encoder": radgraph_encoder, "vocabulary": vocabulary, "entity_encoder": entity_encoder,
        "device": device,
    }  # fmt: skip
    check_unicode(ids, ids, "ids")
    check_unicode(texts, ids, "texts")
    attached: dict[str, Attachment] = {}
    models: list[Model] = []
    for source in attached_sources():
        value, value_ids = _value(source, given)
        if value is None:
            continue
        if source.is_model(value):
            opened = source.open(value, files)
            made = (source, *_made_too(source, given, settings))
            run = partial(_run, opened, made, settings, tell, progress)
            models.append(Model(tuple(one.name for one in made), run))
        elif callable(value):
            models.append(Model((source.name,), partial(_call, value, source, settings)))
        else:
            attached[source.name] = source.attach(value, value_ids, (ids, texts), settings, is_piece=is_piece)
    for kind in (*attached, *(kind for model in models for kind in model.kinds)):
        source_of(kind).check_settings(settings)
    return Inputs(list(ids), list(texts), attached, encoding, encoder, tuple(models))


def attached_sources() -> list[Source]:
    """Return the sources that are joined to reports, in the registry's order."""
    return [source_of(record.name) for record in ATTACHED]


def is_model(argument: str, value: Any) -> bool:
    """Tell whether an argument of the public functions names a model, and not what a model made."""
    return any(source.is_model(value) for source in attached_sources() if source.argument == argument)


def read_sources(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with all files read; models and functions stay as they are."""
    found = dict(given)
    for source in attached_sources():
        value, value_ids = _value(source, given)
        if value is None or callable(value) or source.is_model(value):
            continue
        for name in source.record.arguments[1:]:
            found.pop(name, None)
        found[source.argument] = source.read(value, value_ids)
    return found


def _value(source: Source, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the value that is given for a source, and its ids; None where there is none."""
    value = given.get(source.argument)
    for name in source.record.arguments[1:]:
        value_ids = given.get(name)
        if value is None and value_ids is not None:
            raise InputError(
                argument=source.argument,
                rule=f"must be given with {name}",
                value="None",
                step=f"Add the {source.record.plural} of {name_of(value_ids)}.",
            )
        return value, value_ids
    return value, None


def _made_too(source: Source, given: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Source]:
    """Return the other sources that a model makes, if they are not given and how they count is said."""
    return [
        other
        for other in attached_sources()
        if other.record.made_by == source.name
        and other.argument not in given
        and all(settings.get(name) is not None for name in other.record.settings)
    ]


def _run(
    model: Any,
    made: Sequence[Source],
    settings: Mapping[str, Any],
    tell: Callable[[str], None],
    progress: Progress,
    texts: Sequence[str],
    scratch: Path | None,
) -> dict[str, Attachment]:
    """Run a model for its sources, the first of which opened it."""
    count = counter(progress, made[0].name, len(texts))
    answer = made[0].run(model, texts, tell=tell, progress=count, scratch=scratch)
    return {source.name: source.attachment(answer, len(texts), settings, model.signature) for source in made}


def _call(
    function_of_texts: Callable[[list[str]], Any],
    source: Source,
    settings: Mapping[str, Any],
    texts: Sequence[str],
    scratch: Path | None,
) -> dict[str, Attachment]:
    """Run a function of the caller, on the distinct texts in the order of their first places."""
    place: dict[str, int] = {}
    of_text = np.array([place.setdefault(text, len(place)) for text in texts], np.int64)
    answer = function_of_texts(list(place))
    return {source.name: source.attach_answer(answer, len(place), settings).take(of_text)}
