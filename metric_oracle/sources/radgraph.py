"""The source of RadGraph annotations: graphs of the entities of a report and the relations between them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.corpora.radgraph_json import GraphTable, align_graphs, graphs_in_memory, read_graphs, with_text_keys
from metric_oracle.errors import InputError
from metric_oracle.sources.contract import Attachment, Source, check_unicode, name_of


def as_graphs(given: Any) -> GraphTable:
    """Return RadGraph annotations from a file, a dict id -> graph, a dict position -> graph, or a list of graphs."""
    if isinstance(given, GraphTable):
        return given
    if isinstance(given, str | Path):
        return read_graphs(given)
    graphs = {str(place): graph for place, graph in enumerate(given)} if isinstance(given, list | tuple) else given
    try:
        graphs = with_text_keys(dict(graphs))
        are_graphs = all(isinstance(graph, dict) for graph in graphs.values())
    except (TypeError, ValueError):
        are_graphs = False
    if not are_graphs:
        raise InputError(
            "graphs",
            "must be a RadGraph file, a dict of id -> graph or a list of graphs",
            name_of(given),
            "Pass what RadGraph returns.",
        )
    table = graphs_in_memory(graphs, name_of(given))
    # Positions without texts to join on are the ids of a list.
    return table if any(text is not None for text in table.texts) else replace(table, keyed_by="study")


def _json(made: Mapping[str, Any], ids: Sequence[str]) -> bytes:
    """Return the content of a JSON file of annotations."""
    return json.dumps({study: made[str(i)] for i, study in enumerate(ids)}).encode()


class RadGraphSource(Source):
    """Graphs, from JSON files or computed by the model in a RadGraph archive."""

    endings: ClassVar[Mapping[str, Callable[[Any, Sequence[str]], bytes]]] = {".json": _json}

    def read(self, value: Any, value_ids: Any) -> GraphTable:
        """Read annotations; see `as_graphs`."""
        return as_graphs(value)

    def join(self, table: Any, reports: tuple[Sequence[str], Sequence[str]], name: str, is_piece: bool) -> np.ndarray:
        """Join graphs to reports on their ids, or on their texts if the file has no ids."""
        for strings in (table.tokens, table.relation_types):
            check_unicode(strings, None, f"entities and relations of {name}")
        return align_graphs(table, *reports, some=is_piece)

    def values_of(self, table: Any, settings: Mapping[str, Any]) -> GraphTable:
        """Return the table unchanged."""
        return table

    def attach_answer(self, answer: Any, n_texts: int, settings: Mapping[str, Any]) -> Attachment:
        """Return the graphs that a user's function returned, by position; some texts may have none."""
        graphs = as_graphs(answer)
        place_of = {key: place for place, key in enumerate(graphs.keys)}
        return Attachment(graphs, np.array([place_of.get(str(i), -1) for i in range(n_texts)], np.int64))

    def is_model(self, value: Any) -> bool:
        """Return whether a value is a RadGraph archive, or its unpacked folder, not a file of annotations."""
        if not isinstance(value, str | Path):
            return False
        return str(value).lower().endswith((".tar.gz", ".tgz")) or (Path(value) / "config.json").is_file()

    def open(self, value: Any, files: Mapping[str, Any]) -> Any:
        """Open the model in a RadGraph archive."""
        from metric_oracle.encoders.radgraph import RadGraph

        device = files.get("device") or "auto"
        return RadGraph(value, encoder=files.get("radgraph_encoder"), device=device)

    def call(self, model: Any, texts: Sequence[str], **keywords: Any) -> dict[str, Any]:
        """Annotate texts; the key "i" of the returned dict has the graph of text i."""
        return model.annotate(texts, **keywords)

    def attachment(
        self, made: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return the graphs that the model computed as the attachment of the texts."""
        return Attachment(as_graphs(made), np.arange(n_texts), made_by=signature)

    def answer(self, made: Any) -> Any:
        """Return the graphs that the model computed, by position."""
        return made

    def restore(self, part: Any, of_row: np.ndarray, recorded: Mapping[str, Any], index: Any) -> Attachment:
        """Return graphs whose features (entities, relations, partial, complete) are exactly those that are stored.

        The original graphs are not stored. A rebuilt graph has one mention for each entity that begins a relation and
        one for each that begins none, as the partial features have them. Relations begin at the former and end at
        either; the complete features follow from both.
        """
        features = part.features
        unit = np.repeat(np.arange(len(features.fwd_ptr) - 1), np.diff(features.fwd_ptr))
        feature = np.asarray(features.fwd_id)
        family = np.searchsorted(part.family_ptr, feature, side="right") - 1
        keys = part.keys[feature]
        # Keys of `indexes.graph_keys.pack_keys`: an entity has 29 bits, and in `partial` one more for its relations.
        n_documents, shift = len(features.fwd_ptr) - 1, 30
        mention = np.sort(unit[family == 2] << shift | keys[family == 2])
        entity_ptr = np.searchsorted(mention, np.arange(n_documents + 1) << shift)
        of_relation, relation = unit[family == 1], keys[family == 1]
        source = np.searchsorted(mention, of_relation << shift | (relation >> 33) << 1 | 1)
        target = np.searchsorted(mention, of_relation << shift | (relation >> 4 & (1 << 29) - 1) << 1)
        entity = (mention & (1 << shift) - 1) >> 1
        graphs = GraphTable(
            keys=[str(place) for place in range(n_documents)],
            keyed_by="position",
            schema=part.schema,
            texts=[None] * n_documents,
            tokens=list(part.tokens),
            labels=list(part.labels),
            relation_types=list(part.relation_types),
            entity_ptr=entity_ptr.astype(np.int64),
            entity_token=(entity >> 5).astype(np.int32),
            entity_label=(entity & 31).astype(np.int32),
            relation_ptr=np.concatenate([[0], np.cumsum(np.bincount(of_relation, minlength=n_documents))]).astype(
                np.int64
            ),
            relation_source=(source - entity_ptr[of_relation]).astype(np.int32),
            relation_target=(target - entity_ptr[of_relation]).astype(np.int32),
            relation_type=(relation & 15).astype(np.int32),
            n_dangling=recorded["dangling_relations"],
            path=str(index.folder),
        )
        return Attachment(graphs, of_row, made_by=recorded.get("encoder", {}))

    def piece(self, attachment: Attachment, *, is_first: bool) -> Attachment:
        """Return the graphs of one shard.

        Relations without a target, counted over the whole file, are counted in the first shard.
        """
        piece = super().piece(attachment, is_first=is_first)
        return piece if is_first else replace(piece, values=replace(piece.values, n_dangling=0))
