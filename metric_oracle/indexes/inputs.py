"""What a corpus, or a batch of queries, brings: texts, and graphs, embeddings and labels joined to them on ids."""

import csv
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.radgraph_json import GraphTable, align_graphs, read_graphs
from metric_oracle.corpora.tables import canonical_ids, existing_file, read_text, shown_names
from metric_oracle.corpora.vectors import read_embeddings, read_labels
from metric_oracle.encoders.chexbert import CheXbert
from metric_oracle.encoders.radgraph import RadGraph
from metric_oracle.encoders.token_states import PUBLISHED, TokenEncoder
from metric_oracle.errors import InputError
from metric_oracle.metrics import REPRESENTATIONS


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
    scratch : Path or None
        Folder for finished parts of the work, given by the build.
    max_memory : float or None
        GB that building may hold beside the model and mapped files.
    tell : function
        Called with lines for people: what the work will take, what was cut off.
    advance : function
        Called with the numbers of finished tokens and of all.
    """

    encoder: TokenEncoder
    storage: np.dtype = field(default_factory=lambda: np.dtype(np.float32))
    baseline: tuple[float, float, float] | None = None
    scratch: Path | None = None
    max_memory: float | None = None
    tell: Callable[[str], None] = _ignore
    advance: Callable[[int, int], None] = _ignore


@dataclass(frozen=True)
class Attachment:
    """What is given for reports besides their texts: graphs, embeddings or labels.

    Attributes
    ----------
    values : GraphTable, float32[n, d] or uint8[n, 14]
        Of labels: CheXbert classes 0 blank, 1 positive, 2 negative, 3 uncertain.
    of_row : int64[N]
        Place of each report among the values, -1 for none.
    settings : dict
        What changes their meaning; of labels: `uncertain`, what an uncertain label counts as.
    made_by : dict
        Signature of the model that made them from the texts here; empty where they were given.
    """

    values: Any
    of_row: np.ndarray
    settings: Mapping[str, Any] = field(default_factory=dict)
    made_by: Mapping[str, Any] = field(default_factory=dict)

    @property
    def both(self) -> tuple[Any, np.ndarray]:
        """Values and each report's place among them."""
        return self.values, self.of_row

    def take(self, chosen: np.ndarray) -> "Attachment":
        """Return those of some of the reports."""
        return replace(self, of_row=self.of_row[chosen])

    def parts(self) -> list[Any]:
        """Return all arrays, and lists and strings, that it consists of, for a digest."""
        values = (
            [getattr(self.values, f.name) for f in fields(self.values)] if is_dataclass(self.values) else [self.values]
        )
        return [self.of_row, *values, dict(self.settings), dict(self.made_by)]


@dataclass(frozen=True)
class Inputs:
    """Reports with everything that was given for them.

    Attributes
    ----------
    ids, texts : list of str
    attached : dict of str to Attachment
        By representation.
    encoding : Encoding or None
        What makes token states of a corpus.
    encoder : str, path or None
        Where the encoder of an index is now, for queries.
    """

    ids: list[str]
    texts: list[str]
    attached: dict[str, Attachment] = field(default_factory=dict)
    encoding: Encoding | None = None
    encoder: str | Path | None = None

    def has(self, kind: str) -> bool:
        """Tell whether a representation can be made of what is here."""
        source = REPRESENTATIONS[kind].source
        return source == "text" or (self.encoding is not None if source == "encoder" else kind in self.attached)

    def take(self, chosen: np.ndarray) -> "Inputs":
        """Return some of the reports."""
        attached = {kind: attachment.take(chosen) for kind, attachment in self.attached.items()}
        ids, texts = [self.ids[i] for i in chosen], [self.texts[i] for i in chosen]
        return replace(self, ids=ids, texts=texts, attached=attached)


def load_inputs(
    ids: Sequence[str],
    texts: Sequence[str],
    function: str,
    *,
    radgraph: str | Path | None = None,
    chexbert: str | Path | None = None,
    chexbert_ids: str | Path | None = None,
    labels: str | Path | None = None,
    uncertain: str | None = None,
    encoding: Encoding | None = None,
    encoder: str | Path | None = None,
    device: str | None = None,
    tell: Callable[[str], None] = _ignore,
    advance: Callable[[int, int], None] = _ignore,
) -> Inputs:
    """Read the files given beside the reports and join them.

    Parameters
    ----------
    ids, texts : sequences of str
    function : str
        Name for error messages.
    radgraph : path
        RadGraph JSON in any known layout, or a published model archive (.tar.gz, or the folder of one).
    chexbert, chexbert_ids : path
        CheXbert embeddings, and their ids where the file has none; or the checkpoint chexbert.pth.
    labels : path
        CheXbert labels.
    uncertain : {"positive", "negative", "blank"}
        What an uncertain label counts as; required with labels.
    encoding, encoder
        Passed on, see :class:`Inputs`.
    device : {"cpu", "cuda"}
        Where models run, by default "cuda" where there is one.
    tell, advance
        See :class:`Encoding`; reports instead of tokens.
    """
    if chexbert_ids is not None and chexbert is None:
        msg = f"{function}: chexbert must be given with chexbert_ids; got None. Add the embeddings of {chexbert_ids}."
        raise InputError(msg)
    _check_unicode(ids, ids, function, "ids")
    _check_unicode(texts, ids, function, "texts")
    attached: dict[str, Attachment] = {}
    every = np.arange(len(ids))
    if radgraph is not None and is_archive(radgraph):
        graphs, made_by = _annotate(radgraph, texts, function, device or "auto", advance)
        attached["radgraph"] = Attachment(graphs, every, made_by=made_by)
    elif radgraph is not None:
        graphs = read_graphs(radgraph)
        for strings in (graphs.tokens, graphs.relation_types):
            _check_unicode(strings, None, function, f"entities and relations of {radgraph}")
        attached["radgraph"] = Attachment(graphs, align_graphs(graphs, ids, texts))
    if chexbert is not None and Path(chexbert).suffix.lower() == ".pth":
        model = CheXbert(chexbert, device=device or "auto", function=function)
        embeddings, classes, n_truncated = model.encode(texts, progress=_total(advance, len(texts)))
        if n_truncated:
            tell(f"{n_truncated:,} of {len(texts):,} reports are longer than CheXbert takes: their ends are cut off")
        attached["chexbert"] = Attachment(embeddings, every, made_by=model.signature)
        if labels is None and uncertain is not None:
            attached["labels"] = Attachment(classes, every, {"uncertain": uncertain}, model.signature)
    elif chexbert is not None:
        vectors = read_embeddings(chexbert, ids=chexbert_ids)
        attached["chexbert"] = Attachment(vectors.values, _join(ids, vectors.ids, function, "embeddings", chexbert))
    if (labels is not None or "labels" in attached) and uncertain not in ("positive", "negative", "blank"):
        msg = (
            f"{function}: uncertain must be positive, negative or blank where labels are given; got {uncertain!r}. "
            "Say what an uncertain label counts as: it changes the score and is recorded."
        )
        raise InputError(msg)
    if labels is not None:
        table = read_labels(labels)
        if table.ids is not None:
            label_of_row = _join(ids, table.ids, function, "labels", labels)
        elif len(table.values) == len(ids):
            label_of_row = every
        else:
            msg = (
                f"{function}: labels without ids must be as many as the reports, {len(ids)}; got {len(table.values)} "
                f"in {labels}. Add a study_id column."
            )
            raise InputError(msg)
        attached["labels"] = Attachment(table.values, label_of_row, {"uncertain": uncertain})
    return Inputs(list(ids), list(texts), attached, encoding, encoder)


def is_archive(path: str | Path) -> bool:
    """Tell a RadGraph model from annotations: a .tar.gz file, or the folder of one."""
    return str(path).lower().endswith((".tar.gz", ".tgz")) or (Path(path) / "config.json").is_file()


def _annotate(
    archive: str | Path, texts: Sequence[str], function: str, device: str, advance: Callable[[int, int], None]
) -> tuple[GraphTable, dict[str, Any]]:
    """Run a RadGraph model; graph i is that of text i."""
    model = RadGraph(archive, device=device, function=function)
    found = model.annotate(texts, progress=_total(advance, len(texts)))
    # Through the reader of the package's own files, in a folder that only this user can enter.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "annotations.json"
        path.write_text(json.dumps(found), encoding="utf-8")
        return read_graphs(path), model.signature


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
    baseline: str | Path | None = None,
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
    baseline : path
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
    opened = TokenEncoder(
        encoder, layer=layer, device=device or "auto", dtype="bfloat16" if bf16 else "float32", function=function
    )
    known = PUBLISHED.get(str(encoder), (0, {}))[1].get(opened.layer)
    chosen = known if baseline is None else _read_baseline(Path(baseline), opened.layer, function)
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
        f"{function}: baseline must have numbers below 1 for layer {layer} in columns LAYER, P, R, F; got none in "
        f"{path}. Pass bert_score's table of this encoder."
    )
    raise InputError(msg)


def _check_unicode(strings: Sequence[str], ids: Sequence[str] | None, function: str, what: str) -> None:
    """Raise where a string holds half of a surrogate pair, which JSON allows and no file of an index can hold."""
    for place, string in enumerate(strings):
        try:
            string.encode()
        except UnicodeEncodeError:
            where = "one" if ids is None else f"that of report {shown_names([ids[place]])}"
            msg = f"{function}: {what} must be valid Unicode; got half of a surrogate pair in {where}. Repair the file."
            raise InputError(msg) from None


def _join(ids: Sequence[str], keys: Sequence[str], function: str, what: str, path: str | Path) -> np.ndarray:
    place = {key: i for i, key in enumerate(keys)}
    joined = np.array([place.get(i, -1) for i in canonical_ids(ids, function, "ids")], np.int64)
    if len(joined) and joined.max() < 0:
        msg = (
            f"{function}: {what} must share ids with the reports; got none of {len(ids)} report ids among "
            f"{len(keys)} in {path}. Pass the file that belongs to these reports."
        )
        raise InputError(msg)
    return joined
