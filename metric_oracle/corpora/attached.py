"""Graphs, vectors and labels of reports, in files or in memory.

What is in memory has the shape of what the tools return: the dictionary that RadGraph gives, an array, a dict by id, a
table. Where neither ids nor texts say which report something belongs to, the places "0", "1", ... do, which are the ids
of reports in a list.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.radgraph_json import GraphTable, parse_graphs, read_graphs
from metric_oracle.corpora.tables import canonical_ids, check_unique
from metric_oracle.corpora.vectors import (
    LABELS,
    Labels,
    Vectors,
    checked_vectors,
    label_table_of,
    labels_of_table,
    read_embeddings,
    read_label_table,
    read_labels,
)
from metric_oracle.errors import InputError


@dataclass(frozen=True)
class LabelSets:
    """Sets of labels of any names.

    Attributes
    ----------
    ids : list of str
    values : uint8[n, L]
        1 for the labels that a report has; columns in the order of their names.
    schema : str
        What tells these names from others.
    """

    ids: list[str]
    values: npt.NDArray[np.uint8]
    schema: str


def name_of(given: Any) -> str:
    """Return what an error line calls something that was given: its path, or that it is in memory."""
    return str(given) if isinstance(given, str | Path) else f"the {type(given).__name__} in memory"


def as_graphs(given: Any, function: str) -> GraphTable:
    """Return RadGraph annotations: a file, or a dict id -> graph, position -> graph, or a list of graphs."""
    if isinstance(given, GraphTable):
        return given
    if isinstance(given, str | Path):
        return read_graphs(given)
    graphs = {str(place): graph for place, graph in enumerate(given)} if isinstance(given, list | tuple) else given
    try:
        text = json.dumps(dict(graphs))
    except (TypeError, ValueError):
        msg = (
            f"{function}: graphs must be a RadGraph file, a dict of id -> graph or a list of graphs; got "
            f"{name_of(given)}. Pass what RadGraph returns."
        )
        raise InputError(msg) from None
    table = parse_graphs([text], name_of(given))
    # Positions without texts to join on are the ids of a list.
    return table if any(text is not None for text in table.texts) else replace(table, keyed_by="study")


def as_vectors(given: Any, ids: Any, function: str) -> Vectors:
    """Return vectors with ids: a file, a dict id -> vector, or an array float[n, d] whose ids are given beside it."""
    if isinstance(given, Vectors):
        return given
    if isinstance(given, str | Path):
        return read_embeddings(given, ids=ids)
    if isinstance(given, Mapping):
        if ids is not None:
            msg = f"{function}: ids must be left out for a dict of id -> vector; got a value. Drop them."
            raise InputError(msg)
        ids, given = list(given), list(given.values())
    try:
        values = np.asarray(given)
        keys = list(map(str, range(len(values)))) if ids is None else canonical_ids(_listed(ids), function, "ids")
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        msg = f"{function}: vectors must be an array of one row a report; got {name_of(given)}. Stack the vectors."
        raise InputError(msg) from None
    return Vectors(keys, checked_vectors(values, keys, "memory", "ids"))


def _listed(ids: Any) -> list[Any]:
    if isinstance(ids, str | Path) or not isinstance(ids, Iterable):
        raise TypeError
    return list(ids)


def as_labels(given: Any, function: str) -> Labels:
    """Return CheXbert labels: a file or table, a dict id -> 14 classes, or classes 0 to 3 as int[n, 14] by place."""
    if isinstance(given, Labels):
        return given
    if isinstance(given, str | Path):
        return read_labels(given)
    ids, values = None, given
    if isinstance(given, Mapping) and not set(LABELS) <= given.keys():
        ids = canonical_ids(list(given), function, "the ids of the labels")
        check_unique(ids, function, "the ids of the labels")
        values = list(given.values())
    elif hasattr(given, "columns"):
        table, _ = in_memory(given, function)
        if table is not None:
            return labels_of_table(table)
    try:
        classes = np.asarray(values)
        is_right = (
            classes.dtype.kind in "iu" and classes.shape[1:] == (len(LABELS),) and np.isin(classes, range(4)).all()
        )
    except (TypeError, ValueError):
        is_right = False
    if not is_right:
        msg = (
            f"{function}: labels must be a file, a table or {len(LABELS)} classes from 0 to 3 for each report; got "
            f"{name_of(given)} with others. Pass 0 blank, 1 positive, 2 negative, 3 uncertain."
        )
        raise InputError(msg)
    return Labels(ids, classes.astype(np.uint8))


def as_label_sets(given: Any, function: str) -> LabelSets:
    """Return which labels reports have: a table with a column for each label, 1 or 0, such as SRR-BERT's.

    It is a file, or what `corpora.containers.in_memory` takes; without ids, rows are by place.
    """
    if isinstance(given, LabelSets):
        return given
    if isinstance(given, str | Path):
        table = read_label_table(given)
    else:
        found, _ = in_memory(given, function)
        if found is None:
            msg = (
                f"{function}: SRR labels must be a table with a column for each label; got {name_of(given)}. Pass one."
            )
            raise InputError(msg)
        table = label_table_of(found, by_place=True)
    is_uncertain = (table.values == 3).any(axis=0)
    if is_uncertain.any():
        msg = (
            f"{function}: SRR labels must be 1, 0 or empty; got -1 in {int(is_uncertain.sum())} of "
            f"{len(table.names)} columns of {name_of(given)}. Make a column of each status, as SRR-BERT has it."
        )
        raise InputError(msg)
    order = sorted(range(len(table.names)), key=table.names.__getitem__)
    names = "\n".join(table.names[place] for place in order)
    schema = f"{len(order)} labels, sha256 {sha256(names.encode()).hexdigest()[:12]}"
    return LabelSets(table.ids, (table.values[:, order] == 1).astype(np.uint8), schema)
