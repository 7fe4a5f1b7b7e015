"""A prepared set of reports: an index whose texts, graphs, vectors, labels and token states are inputs again.

What comes back gives the answers of the files that it was built from, bit for bit. So each set of reports is prepared
once, and no model runs again.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from metric_oracle.corpora.radgraph_json import GraphTable
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Attachment, Inputs
from metric_oracle.metrics import REPRESENTATIONS


def prepared_inputs(index: Index) -> Inputs:
    """Return the reports of an index with everything that was stored for them."""
    attached = {}
    for kind, recorded in index.content["representations"].items():
        if REPRESENTATIONS[kind].source != "text":
            part = index.part(kind)
            of_row = np.full(index.n_reports, -1, np.int64)
            of_row[: len(part.unit_of_row)] = part.unit_of_row
            found = _TAKEN.get(kind, _vectors)(part, of_row, recorded, index)
            if found is not None:
                attached[kind] = found
    ids, texts = (index.strings(column).to_pylist() for column in ("study_id", "text"))
    return Inputs(ids, texts, attached, section=index.section)


def _vectors(part: Any, of_row: np.ndarray, recorded: dict[str, Any], index: Index) -> Attachment:
    # A copy: the mapped file is gone once the index is closed.
    return Attachment(np.array(part.vectors), of_row, made_by=recorded.get("encoder", {}), are_unit=True)


def _labels(part: Any, of_row: np.ndarray, recorded: dict[str, Any], index: Index) -> Attachment:
    """Return the classes that the stored values stand for: an uncertain one is what it was counted as."""
    classes = np.select([part.vectors == 1, part.vectors == -1], [1, 2], 0).astype(np.uint8)
    return Attachment(classes, of_row, {part.setting: part.meaning}, recorded.get("encoder", {}))


def _states(part: Any, of_row: np.ndarray, recorded: dict[str, Any], index: Index) -> Attachment | None:
    """Return the token states, if it is known which texts the encoder cut off: all of the greatest length, or none."""
    lengths = np.diff(part.ptr)[of_row]
    longest = int(lengths.max()) if recorded["truncated"] else -1
    cut = len(np.unique(index.reports["distinct_id"].to_numpy()[lengths == longest]))
    if cut != recorded["truncated"]:
        return None
    return Attachment(part, of_row, {"cut_length": longest}, recorded["encoder"])


def _graphs(part: Any, of_row: np.ndarray, recorded: dict[str, Any], index: Index) -> Attachment:
    """Return graphs that have the stored sets of entities, relations, partial and complete features, and no others.

    There is a mention for each entity with a relation of its own and one for each without, as `partial` has them.
    Relations begin at the former and end at either; what `complete` holds follows from both.
    """
    features = part.features
    unit = np.repeat(np.arange(len(features.fwd_ptr) - 1), np.diff(features.fwd_ptr))
    feature = np.asarray(features.fwd_id)
    family = np.searchsorted(part.family_ptr, feature, side="right") - 1
    keys = part.keys[feature]
    # Keys of `indexes.graph_keys.pack_keys`: an entity has 29 bits, and in `partial` one more for its relations.
    n_units, shift = len(features.fwd_ptr) - 1, 30
    mention = np.sort(unit[family == 2] << shift | keys[family == 2])
    entity_ptr = np.searchsorted(mention, np.arange(n_units + 1) << shift)
    of_relation, relation = unit[family == 1], keys[family == 1]
    source = np.searchsorted(mention, of_relation << shift | (relation >> 33) << 1 | 1)
    target = np.searchsorted(mention, of_relation << shift | (relation >> 4 & (1 << 29) - 1) << 1)
    entity = (mention & (1 << shift) - 1) >> 1
    graphs = GraphTable(
        keys=[str(place) for place in range(n_units)],
        keyed_by="position",
        schema=part.schema,
        texts=[None] * n_units,
        tokens=list(part.tokens),
        labels=list(part.labels),
        relation_types=list(part.relation_types),
        entity_ptr=entity_ptr.astype(np.int64),
        entity_token=(entity >> 5).astype(np.int32),
        entity_label=(entity & 31).astype(np.int32),
        relation_ptr=np.concatenate([[0], np.cumsum(np.bincount(of_relation, minlength=n_units))]).astype(np.int64),
        relation_source=(source - entity_ptr[of_relation]).astype(np.int32),
        relation_target=(target - entity_ptr[of_relation]).astype(np.int32),
        relation_type=(relation & 15).astype(np.int32),
        n_dangling=recorded["dangling_relations"],
        path=str(index.folder),
    )
    return Attachment(graphs, of_row, made_by=recorded.get("encoder", {}))


def _entities(part: Any, of_row: np.ndarray, recorded: dict[str, Any], index: Index) -> Attachment:
    return Attachment(part.table(), of_row, made_by=recorded.get("encoder", {}))


_TAKEN: dict[str, Callable[..., Attachment | None]] = {
    "radgraph": _graphs, "labels": _labels, "srr": _labels, "entities": _entities, "bertscore": _states,
}  # fmt: skip
