"""RadGraph graphs -> sets of entities and relations, for RadGraph F1 and its relatives.

Four families of features, each a set of a graph:

0. entities, (tokens, label): the entity set of Yu et al. 2023 and RG_E
1. relations, ((tokens, label), (tokens, label), type): the relation set of Yu et al. 2023
2. partial, (tokens, label, has a relation): RG_ER
3. complete, (tokens, label) of an entity without relations, else (tokens, label, type, tokens of the target) with both
   token strings lower-cased: RG_ER-bar

Tokens are compared as the model wrote them, as radgraph's tag 0.1.18 of June 2025 does; since its commit b5ab8d0,
merged in July 2026 under the same version, the package lower-cases all: `LowerCaseIndex`.
"""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from metric_oracle.corpora.radgraph_json import GraphTable
from metric_oracle.errors import InputError
from metric_oracle.indexes.features import (
    Encoded,
    FeatureUnits,
    cells_of,
    check_features,
    invert,
    load_features,
    lookup,
    pack,
    pack_queries,
    renamed,
)
from metric_oracle.indexes.graph_keys import distinct_pairs, numbered, pack_keys, renumber_keys
from metric_oracle.indexes.store import Strings, check_ids, check_offsets, read_arrays, write_arrays
from metric_oracle.kernels._build import distinct_lists, reorder
from metric_oracle.kernels._overlap import Features, Queries, SetBatch, SetCorpus
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs

FAMILIES = ("entities", "relations", "partial", "complete")


class Graph(NamedTuple):
    """The sets that the metrics compare, with their strings; see the families above."""

    entities: frozenset[Any]
    relations: frozenset[Any]
    partial: frozenset[Any]
    complete: frozenset[Any]


@dataclass(frozen=True)
class GraphIndex(FeatureUnits):
    """Graph features of a corpus; units are distinct graphs by ascending entities + relations, then entities.

    Attributes
    ----------
    features : Features
    tokens, labels, relation_types : sequences of str
        Distinct strings in code-point order; `tokens` holds the lower-cased forms too.
    keys : int64[V]
        Ascending within each family; the position is the feature id.
    family_ptr : int64[5]
    schema : str
        Label schema, "radgraph" or "radgraph-xl".
    n_dangling : int
        Relations to no entity that were left out; known while building, then in the manifest.
    """

    features: Features
    tokens: Sequence[str]
    labels: Sequence[str]
    relation_types: Sequence[str]
    keys: np.ndarray
    family_ptr: np.ndarray
    schema: str
    n_dangling: int = 0
    data_files: ClassVar[tuple[str, ...]] = ("graphs.arrow",)
    derived_files: ClassVar[tuple[str, ...]] = ("postings.arrow",)

    @cached_property
    def numbers(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Tokens, labels and relation types as dictionaries, made at the first query."""
        return numbered(self.tokens), numbered(self.labels), numbered(self.relation_types)

    @cached_property
    def _strings(self) -> tuple[list[str], list[str], list[str]]:
        return list(self.tokens), list(self.labels), list(self.relation_types)

    @cached_property
    def _cells(self) -> dict[tuple[int, int], np.ndarray]:
        return {}

    def cells(self, family_a: int, family_b: int) -> np.ndarray:
        """Return runs of units of similar sizes for a metric of these families (family_b -1: of one)."""
        if (family_a, family_b) not in self._cells:
            sizes = self.features.sizes
            finest = _sort_key(sizes)
            key = finest if family_b >= 0 else finest[0]
            self._cells[family_a, family_b] = cells_of(key, sizes[family_a], sizes[max(family_b, family_a)], finest)
        return self._cells[family_a, family_b]

    def corpus(self, metric: Metric, encoded: Encoded) -> SetCorpus:
        """Return what the kernels take: cells of the sizes that the metric's families have."""
        options: dict[str, Any] = dict(metric.options)
        return SetCorpus(self.features, self.cells(options["family_a"], options["family_b"]))

    def item(self, unit: int) -> Graph:
        """Return the sets of a unit, spelled out."""
        ids = self.features.fwd_id[self.features.fwd_ptr[unit] : self.features.fwd_ptr[unit + 1]]
        family = np.searchsorted(self.family_ptr, ids, side="right") - 1
        keys = self.keys[ids]
        return Graph(*(frozenset(self._spell(f, int(k)) for k in keys[family == f]) for f in range(len(FAMILIES))))

    def _entity(self, key: int) -> tuple[str, str]:
        tokens, labels, _ = self._strings
        return tokens[key >> 5], labels[key & 31]

    def _spell(self, family: int, key: int) -> tuple[Any, ...]:
        """Undo the packing of `pack_keys`."""
        tokens, _, types = self._strings
        if family == 0:
            return self._entity(key)
        if family == 1:
            source, target = self._entity(key >> 33), self._entity(key >> 4 & (1 << 29) - 1)
            return source, target, types[key & 15]
        if family == 2:
            return (*self._entity(key >> 1), bool(key & 1))
        if not key & 1:
            return self._entity(key >> 1)
        key >>= 1
        return (*self._entity(key >> 28), types[key >> 24 & 15], tokens[key & (1 << 24) - 1])

    def encode(self, inputs: Inputs) -> "GraphQueries":
        """Look up the features of the queries' graphs; every query has one."""
        graphs, graph_of_row = inputs.attached["radgraph"].both
        graphs = self.as_compared(graphs)
        queries = encode_graphs(graphs, graph_of_row, self)
        # Queries with the same known features and sizes have the same answers.
        bounds = queries.ptr[:: len(FAMILIES)]
        seen: dict[bytes, int] = {}
        which = np.fromiter(
            (
                seen.setdefault(queries.sizes[q].tobytes() + queries.id[begin:end].tobytes(), len(seen))
                for q, (begin, end) in enumerate(pairwise(bounds.tolist()))
            ),
            np.int64,
            len(queries.sizes),
        )
        example = np.unique(which, return_index=True)[1]
        lengths = np.diff(queries.ptr).reshape(-1, len(FAMILIES))[example]
        distinct = Queries(
            np.concatenate([[0], np.cumsum(lengths)]), reorder(bounds, queries.id, example)[1], queries.sizes[example]
        )
        return GraphQueries(which, graphs, graph_of_row, graph_of_row[example], distinct)

    def encode_again(self, inputs: Inputs, encoded: "GraphQueries | None", **settings: Any) -> "GraphQueries":
        """Find the features of queries that another shard has encoded, each once."""
        if encoded is None:
            return self.encode(inputs)
        asked = encoded.asked
        example = asked.row_id[asked.row_ptr[:-1]]
        queries = renamed(asked.features, self.places_of(asked))
        return GraphQueries(
            asked.unit_of_row, encoded.graphs, encoded.graph_of_query, encoded.graph_of_query[example], queries
        )

    def places_of(self, other: "GraphIndex") -> np.ndarray:
        """Return the ids here of the features of another index, -1 for those that are not here: int64[V]."""
        strings = zip(self.numbers, (other.tokens, other.labels, other.relation_types), strict=True)
        places = [np.array([own.get(string, -1) for string in of_other], np.int64) for own, of_other in strings]
        found = []
        for f, (begin, end) in enumerate(pairwise(other.family_ptr.tolist())):
            keys = self.keys[self.family_ptr[f] : self.family_ptr[f + 1]]
            place = lookup(keys, renumber_keys(f, np.asarray(other.keys[begin:end]), *places))
            found.append(np.where(place >= 0, place + self.family_ptr[f], -1))
        return np.concatenate(found)

    def as_compared(self, graphs: GraphTable) -> GraphTable:
        """Return graphs with their tokens as they are compared: as the model wrote them."""
        return graphs

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Sequence[str], row_text: np.ndarray) -> "GraphIndex":
        """Index the graphs of a corpus; see `build_graphs`."""
        return build_graphs(*inputs.attached[kind].both)

    def counts(self) -> dict[str, Any]:
        """Return what the manifest records."""
        return {"dangling_relations": self.n_dangling, "schema": self.schema}

    def save(self, folder: Path) -> None:
        """Write the representation into a folder."""
        features = self.features._asdict()
        postings = {name: features.pop(name) for name in ("post_ptr", "post_unit", "skip_slot", "skip")}
        own = {name: getattr(self, name) for name in ("tokens", "labels", "relation_types", "keys", "family_ptr")}
        write_arrays(folder / "graphs.arrow", {**features, **own, "schema": [self.schema]})
        write_arrays(folder / "postings.arrow", postings)

    @classmethod
    def load(cls, kind: str, files: Mapping[str, mmap.mmap]) -> "GraphIndex":
        """Open a saved representation."""
        columns = read_arrays(files["graphs.arrow"]) | read_arrays(files["postings.arrow"])
        opened = cls(features=load_features(columns), schema=columns.pop("schema")[0], **columns)
        check_offsets(opened.family_ptr, opened.keys)
        opened._check_keys()
        return opened

    def _check_keys(self) -> None:
        """Raise ValueError where a key, packed by `pack_keys`, names a string that is not there."""
        entity, relation, partial, complete = np.split(self.keys, self.family_ptr[1:-1])
        related = complete[complete & 1 == 1] >> 1
        plain = complete[complete & 1 == 0] >> 1
        for key in (entity, relation >> 33, relation >> 4 & (1 << 29) - 1, partial >> 1, plain, related >> 28):
            check_ids(key >> 5, len(self.tokens))
            check_ids(key & 31, len(self.labels))
        check_ids(related & (1 << 24) - 1, len(self.tokens))
        for kind in (relation & 15, related >> 24 & 15):
            check_ids(kind, len(self.relation_types))


@dataclass(frozen=True)
class GraphQueries(Encoded):
    """Distinct graphs of a batch of queries.

    Attributes
    ----------
    which : int64[Q]
        Distinct graph of each query.
    graphs : GraphTable
    graph_of_query : int64[Q]
        Position of each query's graph in the table.
    chosen : int64[n]
        Position of each distinct graph; graphs that differ only in what the corpus lacks are one.
    queries : Queries
    """

    which: np.ndarray
    graphs: GraphTable
    graph_of_query: np.ndarray
    chosen: np.ndarray
    queries: Queries

    @property
    def batch(self) -> SetBatch:
        """What the kernels take."""
        return SetBatch(self.queries)

    @cached_property
    def asked(self) -> GraphIndex:
        """The queries as a corpus of their own, with all their features."""
        return build_graphs(self.graphs, self.graph_of_query)

    def item(self, q: int) -> Graph:
        """Return the sets of a distinct graph, straight from its mentions and relations."""
        return spell_graph(self.graphs, int(self.chosen[q]))


def spell_graph(graphs: GraphTable, g: int) -> Graph:
    """Return the sets of one graph, straight from its mentions and relations."""
    begin, end = graphs.entity_ptr[g], graphs.entity_ptr[g + 1]
    entities = [
        (graphs.tokens[t], graphs.labels[label])
        for t, label in zip(graphs.entity_token[begin:end], graphs.entity_label[begin:end], strict=True)
    ]
    begin, end = graphs.relation_ptr[g], graphs.relation_ptr[g + 1]
    relations = [
        (int(s), int(t), graphs.relation_types[k])
        for s, t, k in zip(
            graphs.relation_source[begin:end],
            graphs.relation_target[begin:end],
            graphs.relation_type[begin:end],
            strict=True,
        )
    ]
    related = {source for source, _, _ in relations}
    plain = [entity for i, entity in enumerate(entities) if i not in related]
    return Graph(
        frozenset(entities),
        frozenset((entities[s], entities[t], kind) for s, t, kind in relations),
        frozenset((*entity, i in related) for i, entity in enumerate(entities)),
        frozenset(plain)
        | {(entities[s][0].lower(), entities[s][1], kind, entities[t][0].lower()) for s, t, kind in relations},
    )


def _sort_key(sizes: np.ndarray) -> np.ndarray:
    """Return what units are sorted by: entities + relations, then entities."""
    return np.stack([sizes[0] + sizes[1], sizes[0]])


def build_graphs(graphs: GraphTable, graph_of_row: np.ndarray) -> GraphIndex:
    """Index the graphs of a corpus.

    Parameters
    ----------
    graphs : GraphTable
    graph_of_row : int64[N]
        Position of each row's graph, -1 for a row without one.
    """
    used, which = np.unique(graph_of_row[graph_of_row >= 0], return_inverse=True)
    row_graph = np.full(len(graph_of_row), -1, np.int64)
    row_graph[graph_of_row >= 0] = which
    tokens = sorted(set(graphs.tokens) | {t.lower() for t in graphs.tokens})
    strings = Strings(tokens), sorted(graphs.labels), sorted(graphs.relation_types)
    pairs = pack_keys(graphs, used, *(numbered(some) for some in (tokens, *strings[1:])))
    return _indexed(GraphIndex, pairs, len(used), row_graph, strings, graphs.schema, graphs.n_dangling)


class LowerCaseIndex(GraphIndex):
    """The same graphs with all tokens lower-cased, as the radgraph package compares them since July 2026.

    It has no files of its own: the stored features follow from the tokens' lower-cased forms, which an index has.
    """

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "LowerCaseIndex":
        """Lower-case the tokens of every feature and merge what is equal then."""
        index: GraphIndex = parts["radgraph"]
        number, _, _ = index.numbers
        lower = np.array([number[token.lower()] for token in index.tokens], np.int64)
        label, kind = np.arange(len(index.labels)), np.arange(len(index.relation_types))
        fwd_ptr, fwd_id = index.features.fwd_ptr, index.features.fwd_id
        units = np.repeat(np.arange(len(fwd_ptr) - 1), np.diff(fwd_ptr))
        pairs = []
        for f, (begin, end) in enumerate(pairwise(index.family_ptr.tolist())):
            keys = renumber_keys(f, np.asarray(index.keys[begin:end]), lower, label, kind)
            inside = (fwd_id >= begin) & (fwd_id < end)
            pairs.append(distinct_pairs(units[inside], keys[fwd_id[inside] - begin]))
        strings = index.tokens, index.labels, index.relation_types
        found = _indexed(cls, pairs, len(fwd_ptr) - 1, index.unit_of_row, strings, index.schema)
        for array in found.features:
            array.flags.writeable = False  # as in a mapped file: else the search is compiled once more
        return found

    def as_compared(self, graphs: GraphTable) -> GraphTable:
        """Return graphs with their tokens as they are compared: lower-cased."""
        return replace(graphs, tokens=[token.lower() for token in graphs.tokens])


Graphs = TypeVar("Graphs", bound=GraphIndex)


def _indexed(
    kind: type[Graphs],
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    n_graphs: int,
    row_graph: np.ndarray,
    strings: tuple[Sequence[str], Sequence[str], Sequence[str]],
    schema: str,
    n_dangling: int = 0,
) -> Graphs:
    """Index graphs by the (graph, key) pairs of each family.

    Parameters
    ----------
    kind : class
    pairs : of int64[...] and int64[...], a pair of arrays for each family
    n_graphs : int
    row_graph : int64[N]
        Graph of each row, -1 for none.
    strings : tokens, labels and relation types
    schema : str
    n_dangling : int
    """
    keys, units, features = [], [], []
    family_ptr = np.zeros(len(FAMILIES) + 1, np.int64)
    for f, (graph, key) in enumerate(pairs):
        distinct, feature = np.unique(key, return_inverse=True)
        keys.append(distinct)
        units.append(graph)
        features.append(feature + family_ptr[f])
        family_ptr[f + 1] = family_ptr[f] + len(distinct)
    check_features(int(family_ptr[-1]))
    fwd_ptr, fwd_id, sizes = pack(np.concatenate(units), np.concatenate(features), n_graphs, family_ptr)

    unit, example = distinct_lists(fwd_ptr, fwd_id)
    sizes = sizes[:, example]
    order = np.lexsort(_sort_key(sizes)[::-1])
    sizes = sizes[:, order]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    fwd_ptr, fwd_id = reorder(fwd_ptr, fwd_id, example[order])
    unit_of_row = np.where(row_graph >= 0, rank[unit[row_graph]] if len(unit) else -1, -1)
    found = invert(fwd_ptr, fwd_id, sizes, _sort_key(sizes), unit_of_row, int(family_ptr[-1]))
    return kind(found, *strings, np.concatenate(keys), family_ptr, schema, n_dangling)


def encode_graphs(graphs: GraphTable, chosen: np.ndarray, index: GraphIndex) -> Queries:
    """Look up the features of query graphs.

    Parameters
    ----------
    graphs : GraphTable
    chosen : int64[Q]
        Positions of the query graphs.
    index : GraphIndex
    """
    if graphs.schema != index.schema and len(graphs.labels):
        msg = (
            f"retrieve: the queries' graphs must have the index's label schema {index.schema!r}; "
            f"got {graphs.schema!r}. Annotate both with one RadGraph model."
        )
        raise InputError(msg)
    queries, features = [], []
    sizes = np.zeros((len(chosen), len(FAMILIES)), np.int64)
    for f, (graph, key) in enumerate(pack_keys(graphs, chosen, *index.numbers)):
        begin, end = index.family_ptr[f], index.family_ptr[f + 1]
        found = lookup(index.keys[begin:end], key)
        queries.append(graph)
        features.append(np.where(found >= 0, found + begin, -1))
        sizes[:, f] = np.bincount(graph, minlength=len(chosen))
    return pack_queries(np.concatenate(queries), np.concatenate(features), sizes, index.family_ptr)
