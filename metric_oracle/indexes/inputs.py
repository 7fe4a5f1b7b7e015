"""What a corpus, or a batch of queries, brings: texts, and graphs, embeddings and labels joined to them on ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from metric_oracle.corpora.radgraph_json import GraphTable, align_graphs, read_graphs
from metric_oracle.corpora.tables import canonical_ids, shown_names
from metric_oracle.corpora.vectors import read_embeddings, read_labels
from metric_oracle.errors import InputError


@dataclass(frozen=True)
class Inputs:
    """Reports with everything that was given for them.

    Attributes
    ----------
    ids, texts : list of str
    graphs : GraphTable or None
    graph_of_row : int64[N] or None
        Position of each report's graph, -1 for none; likewise for embeddings and labels.
    embeddings : float32[n, d] or None
    embedding_of_row : int64[N] or None
    labels : uint8[n, 14] or None
        CheXbert classes 0 blank, 1 positive, 2 negative, 3 uncertain.
    label_of_row : int64[N] or None
    uncertain : str or None
        What an uncertain label counts as.
    """

    ids: list[str]
    texts: list[str]
    graphs: GraphTable | None = None
    graph_of_row: np.ndarray | None = None
    embeddings: np.ndarray | None = None
    embedding_of_row: np.ndarray | None = None
    labels: np.ndarray | None = None
    label_of_row: np.ndarray | None = None
    uncertain: str | None = None


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
) -> Inputs:
    """Read the files given beside the reports and join them.

    Parameters
    ----------
    ids, texts : sequences of str
    function : str
        Name for error messages.
    radgraph : path
        RadGraph JSON in any known layout.
    chexbert, chexbert_ids : path
        CheXbert embeddings, and their ids where the file has none.
    labels : path
        CheXbert labels.
    uncertain : {"positive", "negative", "blank"}
        What an uncertain label counts as; required with labels.
    """
    if chexbert_ids is not None and chexbert is None:
        msg = f"{function}: chexbert must be given with chexbert_ids; got None. Add the embeddings of {chexbert_ids}."
        raise InputError(msg)
    _check_unicode(ids, ids, function, "ids")
    _check_unicode(texts, ids, function, "texts")
    graphs = graph_of_row = embeddings = embedding_of_row = classes = label_of_row = None
    if radgraph is not None:
        graphs = read_graphs(radgraph)
        for strings in (graphs.tokens, graphs.relation_types):
            _check_unicode(strings, None, function, f"entities and relations of {radgraph}")
        graph_of_row = align_graphs(graphs, ids, texts)
    if chexbert is not None:
        vectors = read_embeddings(chexbert, ids=chexbert_ids)
        embeddings = vectors.values
        embedding_of_row = _join(ids, vectors.ids, function, "embeddings", chexbert)
    if labels is not None:
        if uncertain not in ("positive", "negative", "blank"):
            msg = (
                f"{function}: uncertain must be positive, negative or blank where labels are given; got {uncertain!r}. "
                "Say what an uncertain label counts as: it changes the score and is recorded."
            )
            raise InputError(msg)
        table = read_labels(labels)
        classes = table.values
        if table.ids is not None:
            label_of_row = _join(ids, table.ids, function, "labels", labels)
        elif len(classes) == len(ids):
            label_of_row = np.arange(len(ids))
        else:
            msg = (
                f"{function}: labels without ids must be as many as the reports, {len(ids)}; got {len(classes)} in "
                f"{labels}. Add a study_id column."
            )
            raise InputError(msg)
    return Inputs(
        list(ids),
        list(texts),
        graphs,
        graph_of_row,
        embeddings,
        embedding_of_row,
        classes,
        label_of_row,
        uncertain if labels is not None else None,
    )


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
