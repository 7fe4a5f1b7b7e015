"""What a corpus, or a batch of queries, brings: texts, and graphs, embeddings and labels joined to them on ids."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metric_oracle.corpora.attached import as_graphs, as_label_sets, as_labels, as_vectors, name_of
from metric_oracle.corpora.entities import EntityTable, as_entities
from metric_oracle.corpora.radgraph_json import GraphTable, align_graphs
from metric_oracle.corpora.reports import check_options
from metric_oracle.corpora.tables import canonical_ids, existing_file, shown_names, zeros_hint
from metric_oracle.corpora.text_files import read_text
from metric_oracle.errors import InputError
from metric_oracle.metrics import REPRESENTATIONS, Representation

if TYPE_CHECKING:  # models are imported by what opens them
    from metric_oracle.encoders.chexbert import CheXbert
    from metric_oracle.encoders.radgraph import RadGraph
    from metric_oracle.encoders.ratescore import EntityModels
    from metric_oracle.encoders.token_states import TokenEncoder


def _ignore(*values: Any) -> None:
    pass


@dataclass(frozen=True)
class Encoding:
    """How token states are made.

    Attributes
    ----------
    encoder : TokenEncoder
    storage : dtype
        float16 or float32, of the states on disk.
    baseline : (precision, recall, f1) of random pairs under this encoder, or None
    max_memory : float or None
        GB that building may hold beside the model and mapped files.
    tell : function
        Called with lines for people: what the work will take, what was cut off.
    advance : function
        Called with the numbers of finished tokens and of all.
    """

    encoder: "TokenEncoder"
    storage: np.dtype = field(default_factory=lambda: np.dtype(np.float32))
    baseline: tuple[float, float, float] | None = None
    max_memory: float | None = None
    tell: Callable[[str], None] = _ignore
    advance: Callable[[int, int], None] = _ignore


@dataclass(frozen=True)
class Attachment:
    """What is given for reports besides their texts: graphs, embeddings or labels.

    Attributes
    ----------
    values : GraphTable, EntityTable, float32[n, d] or uint8[n, L]
        Of labels: CheXbert classes 0 blank, 1 positive, 2 negative, 3 uncertain; of SRR-BERT's, 1 for those there.
    of_row : int64[N]
        Place of each report among the values, -1 for none.
    settings : dict
        What changes their meaning; of labels: `uncertain`, what an uncertain label counts as; of SRR-BERT's: `schema`,
        what tells one set of names from others.
    made_by : dict
        Signature of the model that made them from the texts here; empty where they were given.
    are_unit : bool
        Whether vectors are those of an index, of length 1 but for rounding.
    """

    values: Any
    of_row: np.ndarray
    settings: Mapping[str, Any] = field(default_factory=dict)
    made_by: Mapping[str, Any] = field(default_factory=dict)
    are_unit: bool = False

    @property
    def both(self) -> tuple[Any, np.ndarray]:
        """Values and each report's place among them."""
        return self.values, self.of_row

    def take(self, chosen: np.ndarray) -> "Attachment":
        """Return those of some of the reports."""
        return replace(self, of_row=self.of_row[chosen])

    def used(self) -> "Attachment":
        """Return it with the values that reports have, and no others; token states stay, in their file."""
        if not isinstance(self.values, GraphTable | EntityTable | np.ndarray):
            return self
        chosen, place = np.unique(self.of_row[self.of_row >= 0], return_inverse=True)
        of_row = np.full(len(self.of_row), -1, np.int64)
        of_row[self.of_row >= 0] = place.reshape(-1)
        values = self.values[chosen] if isinstance(self.values, np.ndarray) else self.values.take(chosen)
        return replace(self, values=values, of_row=of_row)

    def parts(self) -> list[Any]:
        """Return all arrays, and lists and strings, that it consists of, for a digest."""
        values = (
            [getattr(self.values, f.name) for f in fields(self.values)] if is_dataclass(self.values) else [self.values]
        )
        return [self.of_row, *values, dict(self.settings), dict(self.made_by)]


@dataclass(frozen=True)
class Model:
    """A model that is ready to make attachments of texts; `run` takes the texts and a folder for finished parts."""

    kinds: tuple[str, ...]
    run: Callable[[Sequence[str], Path | None], dict[str, Attachment]]


@dataclass(frozen=True)
class Inputs:
    """Reports with everything that was given for them.

    Attributes
    ----------
    ids, texts : sequence of str
    attached : dict of str to Attachment
        By representation; of prepared token states: their `TokenStateIndex`, and the unit of each report.
    encoding : Encoding or None
        What makes token states of a corpus.
    encoder : str, path or None
        Where the encoder of an index is now, for queries.
    models : tuple of Model
        What is still to be made from the texts, see :meth:`completed`.
    scratch : Path or None
        Folder for work under way, given by the build.
    section : (str or None, str)
        The section of the reports and what says so, see :class:`metric_oracle.corpora.reports.Reports`.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    attached: dict[str, Attachment] = field(default_factory=dict)
    encoding: Encoding | None = None
    encoder: str | Path | None = None
    models: tuple[Model, ...] = ()
    scratch: Path | None = None
    section: tuple[str | None, str] = (None, "")

    def __repr__(self) -> str:
        return f"<Inputs: {len(self.ids):,} reports with {', '.join(self.attached) or 'nothing else'}>"

    def has(self, kind: str) -> bool:
        """Tell whether a representation can be made of what is here."""
        source = REPRESENTATIONS[kind].source
        made = kind in self.attached or any(kind in model.kinds for model in self.models)
        return source == "text" or made or (source == "encoder" and self.encoding is not None)

    def take(self, chosen: np.ndarray) -> "Inputs":
        """Return some of the reports."""
        attached = {kind: attachment.take(chosen) for kind, attachment in self.attached.items()}
        ids, texts = [self.ids[i] for i in chosen], [self.texts[i] for i in chosen]
        return replace(self, ids=ids, texts=texts, attached=attached)

    def completed(self, scratch: Path | None = None) -> "Inputs":
        """Run the models; in `scratch` they keep finished parts, with which a killed run resumes."""
        attached = dict(self.attached)
        for model in self.models:
            attached |= model.run(self.texts, scratch)
        return replace(self, attached=attached, models=())


def load_inputs(
    ids: Sequence[str],
    texts: Sequence[str],
    function: str,
    *,
    uncertain: str | None = None,
    labels: Any = None,
    encoding: Encoding | None = None,
    encoder: str | Path | None = None,
    radgraph_encoder: str | Path | None = None,
    vocabulary: str | Path | None = None,
    entity_encoder: str | Path | None = None,
    device: str | None = None,
    some: bool = False,
    tell: Callable[[str], None] = _ignore,
    advance: Callable[[int, int], None] = _ignore,
    **given: Any,
) -> Inputs:
    """Join what is given beside the reports with them, and open the models that make the rest.

    Parameters
    ----------
    ids, texts : sequences of str
    function : str
        Name for error messages.
    uncertain : {"positive", "negative", "blank"}
        What an uncertain label counts as; required with labels.
    labels
        The same as ``chexbert_labels``.
    encoding, encoder
        Passed on, see :class:`Inputs`.
    radgraph_encoder, vocabulary, entity_encoder : path
        Files that RadGraph and CheXbert models, and those that find entities, need beside their own, see
        `encoders.radgraph`, `encoders.chexbert` and `encoders.ratescore`.
    device : {"cpu", "cuda"}
        Where models run, by default "cuda" where there is one.
    some : bool
        Whether the reports are a part of those that files and arrays speak of: then none of them need be there, and
        only what belongs to them is kept.
    tell, advance
        See :class:`Encoding`; reports instead of tokens.
    **given
        The arguments of the registry's representations (`radgraph`, `chexbert`, `chexbert_ids`, ...): what
        :mod:`metric_oracle.corpora.attached` takes; a model (a RadGraph archive, chexbert.pth, RaTE-NER's folder); or a
        function from texts to graphs, vectors or classes in their order.

    Returns
    -------
    Inputs
        With its models, which are opened and not yet run.
    """
    if labels is not None:
        given["chexbert_labels"] = labels
    check_options(given, ARGUMENTS, function)
    given = {name: value for name, value in given.items() if value is not None}
    check_unicode(ids, ids, function, "ids")
    check_unicode(texts, ids, function, "texts")
    attached: dict[str, Attachment] = {}
    models: list[Model] = []
    for record in ATTACHED:
        name, *beside = record.arguments
        value, of_ids = given.get(name), given.get(beside[0]) if beside else None
        if value is None and of_ids is not None:
            msg = (
                f"{function}: {name} must be given with {beside[0]}; got None. "
                f"Add the {record.plural} of {name_of(of_ids)}."
            )
            raise InputError(msg)
        if value is None:
            continue
        settings = {"uncertain": uncertain} if record.name == "labels" else {}
        if record.name == "radgraph" and is_model("radgraph", value):
            from metric_oracle.encoders.radgraph import RadGraph

            opened = RadGraph(value, encoder=radgraph_encoder, device=device or "auto", function=function)
            models.append(Model(("radgraph",), partial(_annotate, opened, function, advance)))
        elif record.name == "chexbert" and is_model("chexbert", value):
            from metric_oracle.encoders.chexbert import CheXbert

            model = CheXbert(value, vocabulary=vocabulary, device=device or "auto", function=function)
            of_labels = uncertain if "chexbert_labels" not in given else None
            kinds = ("chexbert",) if of_labels is None else ("chexbert", "labels")
            models.append(Model(kinds, partial(_embed, model, of_labels, tell, advance)))
        elif record.name == "entities" and is_model("entities", value):
            from metric_oracle.encoders.ratescore import EntityModels

            finder = EntityModels(value, encoder=entity_encoder, device=device or "auto", function=function)
            models.append(Model(("entities",), partial(_recognise, finder, tell, advance)))
        elif callable(value):
            models.append(Model((record.name,), partial(_call, value, record, settings, function)))
        else:
            attached[record.name] = _attach(record, value, of_ids, ids, texts, settings, function, some)
    if some:
        attached = {kind: attachment.used() for kind, attachment in attached.items()}
    kinds_given = {*attached, *(kind for model in models for kind in model.kinds)}
    if ("labels" in kinds_given or "chexbert_labels" in given) and uncertain not in UNCERTAIN:
        msg = (
            f"{function}: uncertain must be positive, negative or blank where labels are given; got {uncertain!r}. "
            "Say what an uncertain label counts as: it changes the score and is recorded."
        )
        raise InputError(msg)
    return Inputs(list(ids), list(texts), attached, encoding, encoder, tuple(models))


UNCERTAIN = ("positive", "negative", "blank")
ATTACHED = tuple(record for record in REPRESENTATIONS.values() if record.source == "attachment")
ARGUMENTS = tuple(name for record in ATTACHED for name in record.arguments)


_READERS = {"radgraph": as_graphs, "entities": as_entities, "srr": as_label_sets, "labels": as_labels}


def read_source(record: Representation, value: Any, of_ids: Any, function: str) -> Any:
    """Read what a user gives for a representation; a table that was read before is returned as it is.

    Parameters
    ----------
    record : Representation
        Of the kind "attachment".
    value : path or container
    of_ids : path, sequence or None
        Ids of the rows of an array of vectors.
    function : str
        Name for error messages.

    Returns
    -------
    GraphTable, EntityTable, LabelSets, Labels or Vectors
    """
    reader = _READERS.get(record.name)
    return as_vectors(value, of_ids, function) if reader is None else reader(value, function)


def _attach(
    record: Representation, value: Any, of_ids: Any, ids: Sequence[str], texts: Sequence[str],
    settings: dict[str, Any], function: str, some: bool = False,
) -> Attachment:  # fmt: skip
    """Join graphs, labels or vectors with the reports."""
    table = read_source(record, value, of_ids, function)
    if record.name == "radgraph":
        graphs = table
        for strings in (graphs.tokens, graphs.relation_types):
            check_unicode(strings, None, function, f"entities and relations of {name_of(value)}")
        return Attachment(graphs, align_graphs(graphs, ids, texts, some=some))
    if table.ids is not None:
        of_row = _join(ids, table.ids, function, record.plural, value, some)
        if record.name == "entities":
            return Attachment(table, of_row)
        return Attachment(table.values, of_row, {"schema": table.schema} if record.name == "srr" else settings)
    if len(table.values) != len(ids):
        msg = (
            f"{function}: labels without ids must be as many as the reports, {len(ids)}; got {len(table.values)} "
            f"in {name_of(value)}. Add a study_id column."
        )
        raise InputError(msg)
    return Attachment(table.values, np.arange(len(ids)), settings)


def is_model(name: str, value: Any) -> bool:
    """Tell a model's file from what a model made: a RadGraph archive or its folder, chexbert.pth, RaTE-NER's folder."""
    if not isinstance(value, str | Path):
        return False
    if name == "entities":
        return Path(value).is_dir()
    return is_archive(value) if name == "radgraph" else name == "chexbert" and Path(value).suffix.lower() == ".pth"


def is_archive(path: str | Path) -> bool:
    """Tell a RadGraph model from annotations: a .tar.gz file, or the folder of one."""
    return str(path).lower().endswith((".tar.gz", ".tgz")) or (Path(path) / "config.json").is_file()


def _annotate(
    model: "RadGraph", function: str, advance: Callable[[int, int], None], texts: Sequence[str], scratch: Path | None
) -> dict[str, Attachment]:
    """Run RadGraph; graph i is that of text i."""
    found = model.annotate(texts, progress=_total(advance, len(texts)), scratch=scratch)
    return {"radgraph": Attachment(as_graphs(found, function), np.arange(len(texts)), made_by=model.signature)}


def _embed(
    model: "CheXbert", uncertain: str | None, tell: Callable[[str], None], advance: Callable[[int, int], None],
    texts: Sequence[str], scratch: Path | None,
) -> dict[str, Attachment]:  # fmt: skip
    """Run CheXbert, which gives labels too."""
    embeddings, classes, n_truncated = model.encode(texts, progress=_total(advance, len(texts)), scratch=scratch)
    if n_truncated:
        tell(f"{n_truncated:,} of {len(texts):,} reports are longer than CheXbert takes: their ends are cut off")
    every = np.arange(len(texts))
    made = {"chexbert": Attachment(embeddings, every, made_by=model.signature)}
    if uncertain is not None:
        made["labels"] = Attachment(classes, every, {"uncertain": uncertain}, model.signature)
    return made


def _recognise(
    model: "EntityModels", tell: Callable[[str], None], advance: Callable[[int, int], None],
    texts: Sequence[str], scratch: Path | None,
) -> dict[str, Attachment]:  # fmt: skip
    """Find entities and their vectors."""
    found = model.recognise(texts, progress=_total(advance, len(texts)), scratch=scratch)
    if found.n_truncated:
        tell(found.cut_off())
    return {"entities": Attachment(found.table, found.of_row, made_by=model.signature)}


def _call(
    model: Callable[[list[str]], Any], record: Representation, settings: dict[str, Any], function: str,
    texts: Sequence[str], scratch: Path | None,
) -> dict[str, Attachment]:  # fmt: skip
    """Run a function of the caller: what it returns is in the order of the texts."""
    found, every = model(list(texts)), [str(place) for place in range(len(texts))]
    if record.name == "radgraph":
        graphs = as_graphs(found, function)
        place_of = {key: place for place, key in enumerate(graphs.keys)}
        return {"radgraph": Attachment(graphs, np.array([place_of.get(key, -1) for key in every], np.int64))}
    if len(found) != len(texts):
        msg = (
            f"{function}: {record.plural} of a function must be as many as the texts, {len(texts)}; got {len(found)}. "
            "Return one row for each, in their order."
        )
        raise InputError(msg)
    return {record.name: _attach(record, found, None, every, texts, settings, function)}


def _total(advance: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """Turn calls with the number of new reports into calls with the number of all so far."""
    done = 0

    def add(n: int) -> None:
        nonlocal done
        done += n
        advance(done, total)

    return add


def load_encoding(
    encoder: str | Path,
    function: str,
    *,
    layer: int | None = None,
    states: str | None = None,
    bf16: bool = False,
    rescale_table: str | Path | None = None,
    device: str | None = None,
    max_memory: float | None = None,
    tell: Callable[[str], None] = _ignore,
    advance: Callable[[int, int], None] = _ignore,
) -> Encoding:
    """Open an encoder of token states.

    Parameters
    ----------
    encoder : str or path
        Hugging Face name or local folder.
    function : str
        Name for error messages.
    layer : int
        By default the published one of the encoder.
    states : {"float32", "float16"}
        How states are stored, by default float32; float16 takes half the room and moves scores by about 1.5e-5.
    bf16 : bool
        Run the encoder in bfloat16: faster, and other states.
    rescale_table : path
        bert_score's table of baselines of this encoder (LAYER, P, R, F); the published one of distilroberta-base is
        built in.
    device : {"cpu", "cuda"}
        By default "cuda" where there is one.
    max_memory, tell, advance
        See :class:`Encoding`.
    """
    states = states or "float32"
    if states not in ("float32", "float16"):
        msg = f"{function}: states must be float32 or float16; got {states!r}. Choose one."
        raise InputError(msg)
    from metric_oracle.encoders.token_states import PUBLISHED, TokenEncoder

    opened = TokenEncoder(
        encoder, layer=layer, device=device or "auto", dtype="bfloat16" if bf16 else "float32", function=function
    )
    known = PUBLISHED.get(str(encoder), (0, {}))[1].get(opened.layer)
    chosen = known if rescale_table is None else _read_baseline(Path(rescale_table), opened.layer, function)
    check_max_memory(max_memory, function)
    return Encoding(opened, np.dtype(states), chosen, max_memory=max_memory, tell=tell, advance=advance)


def check_max_memory(max_memory: float | None, function: str) -> None:
    """Raise unless a limit of memory is a number above 0."""
    if max_memory is not None and (isinstance(max_memory, bool) or not 0 < max_memory < np.inf):
        msg = f"{function}: max_memory must be a number of GB above 0; got {max_memory!r}. Choose one, or leave it out."
        raise InputError(msg)


def _read_baseline(path: Path, layer: int, function: str) -> tuple[float, float, float]:
    """Return precision, recall and f1 of a layer from a table of bert_score."""
    lines = read_text(existing_file(path, function), function)[0].splitlines()
    # bert_score's .tsv files have commas.
    for row in csv.DictReader(lines, delimiter="\t" if lines and "\t" in lines[0] else ","):
        try:
            number, *values = (float(row[name]) for name in ("LAYER", "P", "R", "F"))
        except (KeyError, TypeError, ValueError):
            continue
        if number == layer and all(-1 < value < 1 for value in values):
            return values[0], values[1], values[2]
    msg = (
        f"{function}: rescale_table must have numbers below 1 for layer {layer} in columns LAYER, P, R, F; got none in "
        f"{path}. Pass bert_score's table of this encoder."
    )
    raise InputError(msg)


def check_unicode(strings: Sequence[str], ids: Sequence[str] | None, function: str, what: str) -> None:
    """Raise where a string holds half of a surrogate pair, which JSON allows and no file of an index can hold."""
    for place, string in enumerate(strings):
        try:
            string.encode()
        except UnicodeEncodeError:
            where = "one" if ids is None else f"that of report {shown_names([ids[place]])}"
            msg = f"{function}: {what} must be valid Unicode; got half of a surrogate pair in {where}. Repair the file."
            raise InputError(msg) from None


def _join(ids: Sequence[str], keys: Sequence[str], function: str, what: str, given: Any, some: bool) -> np.ndarray:
    place = {key: i for i, key in enumerate(keys)}
    joined = np.array([place.get(i, -1) for i in canonical_ids(ids, function, "ids")], np.int64)
    if len(joined) and joined.max() < 0 and not some:
        msg = (
            f"{function}: {what} must share ids with the reports; got none of {len(ids)} report ids among "
            f"{len(keys)} in {name_of(given)}. Pass the file that belongs to these reports.{zeros_hint(ids, keys)}"
        )
        raise InputError(msg)
    return joined
