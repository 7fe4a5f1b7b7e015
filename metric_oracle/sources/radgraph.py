"""The source of RadGraph annotations: graphs of the entities of a report and the relations between them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.radgraph_json import GraphTable, align_graphs, graph_table, read_graphs, with_text_keys
from metric_oracle.sources.contract import Attachment, Source, check_unicode, name_of


def as_graphs(file_or_data: Any) -> GraphTable:
    """Return RadGraph annotations from a file, a dict id -> graph, a dict position -> graph, or a list of graphs.

    Raise InputError for anything else.
    """
    if isinstance(file_or_data, GraphTable):
        return file_or_data
    if isinstance(file_or_data, str | Path):
        return read_graphs(file_or_data)
    graphs = file_or_data
    if isinstance(graphs, list | tuple):
        graphs = {str(place): graph for place, graph in enumerate(graphs)}
    try:
        graphs = with_text_keys(dict(graphs))
        are_graphs = all(isinstance(graph, dict) for graph in graphs.values())
    except (TypeError, ValueError):
        are_graphs = False
    if not are_graphs:
        raise InputError(
            "graphs",
            "must be a RadGraph file, a dict of id -> graph or a list of graphs",
            name_of(file_or_data),
            "Pass what RadGraph returns.",
        )
    table = graph_table(graphs.items(), name_of(file_or_data))
    # Positions without texts to join on are the ids of a list.
    return table if any(text is not None for text in table.texts) else replace(table, keyed_by="study")


def _json(output: Mapping[str, Any], ids: Sequence[str]) -> bytes:
    """Return the content of a JSON file of annotations by id."""
    return json.dumps({study: output[str(i)] for i, study in enumerate(ids)}).encode()


class RadGraphSource(Source):
    """Graphs, from JSON files or computed by the model in a RadGraph archive.

    The output of `run` is a dict, whose key "i" has the graph of text i.
    """

    endings: ClassVar[Mapping[str, Callable[[Any, Sequence[str]], bytes]]] = {".json": _json}

    def read(self, file_or_data: Any, data_ids: Any) -> GraphTable:
        """Return annotations; see `as_graphs`."""
        return as_graphs(file_or_data)

    def join(
        self, table: Any, reports: tuple[Sequence[str], Sequence[str]], table_name: str, is_piece: bool
    ) -> np.ndarray:
        """Join graphs to reports on their ids or, if the table has none, by order or text; see `align_graphs`."""
        for strings in (table.tokens, table.relation_types):
            check_unicode(strings, None, f"entities and relations of {table_name}")
        return align_graphs(table, *reports, some=is_piece)

    def values_of(self, table: Any, settings: Mapping[str, Any]) -> GraphTable:
        """Return the table unchanged."""
        return table

    def attach_answer(self, answer: Any, n_texts: int, settings: Mapping[str, Any]) -> Attachment:
        """Return the graphs that a user's function returned, a list or a dict by position; some texts may have none."""
        graphs = as_graphs(answer)
        place_of = {key: place for place, key in enumerate(graphs.keys)}
        return Attachment(graphs, np.array([place_of.get(str(i), -1) for i in range(n_texts)], np.int64))

    def is_model(self, file_or_model: Any) -> bool:
        """Return whether it is the path of an archive (.tar.gz, .tgz) or of a folder with config.json."""
        if not isinstance(file_or_model, str | Path):
            return False
        is_archive = str(file_or_model).lower().endswith((".tar.gz", ".tgz"))
        return is_archive or (Path(file_or_model) / "config.json").is_file()

    def open(self, model_path: Any, model_options: Mapping[str, Any]) -> Any:
        """Open a RadGraph archive or its unpacked folder; `model_options` may have `radgraph_encoder` and `device`."""
        from metric_oracle.encoders.radgraph import RadGraph

        device = model_options.get("device") or "auto"
        return RadGraph(model_path, encoder=model_options.get("radgraph_encoder"), device=device)

    def call(self, model: Any, texts: Sequence[str], **keywords: Any) -> dict[str, Any]:
        """Annotate texts; see the class."""
        return model.annotate(texts, **keywords)

    def attachment(
        self, output: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return the graphs, one for each text."""
        return Attachment(as_graphs(output), np.arange(n_texts), made_by=signature)

    def answer(self, output: Any) -> Any:
        """Return the graphs by position, unchanged."""
        return output

    def restore(
        self, representation: Any, document_of_row: np.ndarray, manifest_entry: Mapping[str, Any], index: Any
    ) -> Attachment:
        """Return graphs whose features (entities, relations, partial, complete) are exactly those that are stored.

        The original graphs are not stored. A rebuilt graph has one mention for each entity that begins a relation and
        one for each that begins none, as the partial features have them. Relations begin at the former and end at
        either; the complete features follow from both.
        """
        features = representation.features
        unit = np.repeat(np.arange(len(features.fwd_ptr) - 1), np.diff(features.fwd_ptr))
        feature = np.asarray(features.fwd_id)
        family = np.searchsorted(representation.family_ptr, feature, side="right") - 1
        keys = representation.keys[feature]
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
            schema=representation.schema,
            texts=[None] * n_documents,
            tokens=list(representation.tokens),
            labels=list(representation.labels),
            relation_types=list(representation.relation_types),
            entity_ptr=entity_ptr.astype(np.int64),
            entity_token=(entity >> 5).astype(np.int32),
            entity_label=(entity & 31).astype(np.int32),
            relation_ptr=np.concatenate([[0], np.cumsum(np.bincount(of_relation, minlength=n_documents))]).astype(
                np.int64
            ),
            relation_source=(source - entity_ptr[of_relation]).astype(np.int32),
            relation_target=(target - entity_ptr[of_relation]).astype(np.int32),
            relation_type=(relation & 15).astype(np.int32),
            n_dangling=manifest_entry["dangling_relations"],
            path=str(index.folder),
        )
        return Attachment(graphs, document_of_row, made_by=manifest_entry.get("encoder", {}))

    def piece(self, attachment: Attachment, *, is_first: bool) -> Attachment:
        """Return the graphs that the reports use; the count of relations without a target stays in the first shard."""
        piece = super().piece(attachment, is_first=is_first)
        return piece if is_first else replace(piece, values=replace(piece.values, n_dangling=0))
