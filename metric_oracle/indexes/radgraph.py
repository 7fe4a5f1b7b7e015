"""Representation of RadGraph F1 and its variants: sets of entities and relations of RadGraph graphs.

A graph has one set of features in each of four families:

0. entities, (tokens, label): the entity set of Yu et al. 2023, and RG_E of the radgraph package
1. relations, ((tokens, label), (tokens, label), type): the relation set of Yu et al. 2023
2. partial, (tokens, label, has a relation): RG_ER
3. complete: RG_ER-bar. An entity without relations is (tokens, label). A relation is (tokens, label, type, tokens of
   the target), with both token strings in lower case.

Tokens are compared as the model wrote them. The radgraph package did so in its tag 0.1.18 of June 2025. Since its
commit b5ab8d0, merged in July 2026 under the same version number, it lower-cases all tokens; see `LowerCaseIndex`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.radgraph_json import GraphTable
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Corpus, Documents, StoredDocuments
from metric_oracle.indexes.features import (
    FeatureDocuments,
    ForwardLists,
    Mapped,
    as_queries,
    buckets_of,
    check_features,
    invert,
    load_features,
    lookup,
    pack,
    without_postings,
)
from metric_oracle.indexes.graph_keys import distinct_pairs, numbered, pack_keys, renumber_keys
from metric_oracle.indexes.lists import distinct_in_order, numbered_anew, offsets_of, ranks_of
from metric_oracle.indexes.store import Columns, Stored, Strings, check_ids, check_offsets, read_arrays
from metric_oracle.kernels._build import distinct_lists
from metric_oracle.kernels._overlap import Features, SetBatch, SetCorpus
from metric_oracle.records import Metric

FAMILIES = ("entities", "relations", "partial", "complete")


class Graph(NamedTuple):
    """The sets of one graph, with strings in place of numbers; see the families above."""

    entities: frozenset[Any]
    relations: frozenset[Any]
    partial: frozenset[Any]
    complete: frozenset[Any]


@dataclass(frozen=True)
class GraphIndex(FeatureDocuments, StoredDocuments):
    """Features of the distinct graphs of a corpus, sorted by number of entities and relations, then of entities."""

    features: Features  # those of the four families one after another
    tokens: Sequence[str]  # distinct, in code-point order, among them the lower-case form of each token
    labels: Sequence[str]  # distinct, in code-point order
    relation_types: Sequence[str]  # distinct, in code-point order
    # int64[V], keys of `graph_keys.pack_keys`, ascending within each family. The id of a feature is its position.
    keys: np.ndarray
    family_ptr: np.ndarray  # int64[5], first feature id of each family, and the number of features
    schema: str  # label schema, such as "radgraph" or "radgraph-xl"
    # Number of relations left out because their target is missing. Set while building; later the manifest has it.
    n_dangling: int = 0
    items: Sequence[Graph] | None = None  # of queries, see `FeatureDocuments`
    data_files: ClassVar[tuple[str, ...]] = ("graphs.arrow",)
    derived_files: ClassVar[tuple[str, ...]] = ("postings.arrow",)
    empty: ClassVar[Graph] = Graph(*(frozenset() for _ in FAMILIES))

    @cached_property
    def numbers(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """The number of each token, label and relation type, made at the first query."""
        return numbered(self.tokens), numbered(self.labels), numbered(self.relation_types)

    @cached_property
    def _strings(self) -> tuple[list[str], list[str], list[str]]:
        """The vocabularies as lists: tokens, labels and relation types."""
        return list(self.tokens), list(self.labels), list(self.relation_types)

    @cached_property
    def _buckets(self) -> dict[tuple[int, int], np.ndarray]:
        """The length buckets of pairs of families that were used so far."""
        return {}

    def buckets(self, family_a: int, family_b: int) -> np.ndarray:
        """Return the length buckets of `buckets_of` for a metric of these families; `family_b` is -1 for one alone."""
        if (family_a, family_b) not in self._buckets:
            sizes = self.features.sizes
            finest = _sort_key(sizes)
            key = finest if family_b >= 0 else finest[0]
            self._buckets[family_a, family_b] = buckets_of(key, sizes[family_a], sizes[max(family_b, family_a)], finest)
        return self._buckets[family_a, family_b]

    def arrays(self, metric: Metric, queries: Documents) -> SetCorpus:
        """Return the arrays that the kernels read, with length buckets for the families of the metric."""
        options: dict[str, Any] = dict(metric.options)
        return SetCorpus(self.features, self.buckets(options["family_a"], options["family_b"]))

    def item(self, document: int) -> Graph:
        """Return the sets of a document."""
        if self.items is not None:
            return self.items[document]
        ids = self.features.fwd_id[self.features.fwd_ptr[document] : self.features.fwd_ptr[document + 1]]
        family = np.searchsorted(self.family_ptr, ids, side="right") - 1
        keys = self.keys[ids]
        return Graph(*(frozenset(self._spell(f, int(k)) for k in keys[family == f]) for f in range(len(FAMILIES))))

    def _entity(self, key: int) -> tuple[str, str]:
        """Return token and label of an entity from the key that it has in the family "entities"."""
        tokens, labels, _ = self._strings
        return tokens[key >> 5], labels[key & 31]

    def _spell(self, family: int, key: int) -> tuple[Any, ...]:
        """Return the element of the set `family` of a `Graph` that a key stands for."""
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

    def encode(self, reports: Reports) -> "GraphIndex":
        """Collect the features of the queries' graphs; every query must have a graph.

        Raise InputError if the graphs have another label schema than the index.
        """
        graphs, graph_of_row = self.graphs_of(reports)
        if graphs.schema != self.schema and len(graphs.labels):
            raise InputError(
                "the queries' graphs",
                f"must have the index's label schema {self.schema!r}",
                repr(graphs.schema),
                "Annotate both with one RadGraph model.",
            )
        return index_queries(graphs, graph_of_row)

    def own(self, rows: np.ndarray) -> Self:
        """Return the documents of the rows, without packing the features of their graphs."""
        documents, which = distinct_in_order(self.document_of_row[rows])
        return replace(self, features=self.features_of(documents, which), items=Mapped(documents, self.item))

    def translate(self, metric: Metric, queries: Documents) -> SetBatch:
        """Return the sets of queries, with the numbers of this corpus; each distinct feature is looked up once."""
        assert isinstance(queries, GraphIndex)
        ids = queries.features.fwd_id
        if queries.family_ptr is not self.family_ptr:  # else they are rows of this corpus, see `own`
            ids = self.ids_of(queries)[ids]
        return SetBatch(as_queries(queries.features, ids))

    def graphs_of(self, reports: Reports) -> tuple[GraphTable, np.ndarray]:
        """Return the graphs of reports, with the tokens in the form that is compared, and which each report has."""
        graphs, graph_of_row = reports.attached["radgraph"].both
        return self.as_compared(graphs), graph_of_row

    def ids_of(self, other: "GraphIndex") -> np.ndarray:
        """Return the id in this index of each feature of another index, -1 if this index lacks it: int64[V]."""
        vocabularies = zip(self.numbers, (other.tokens, other.labels, other.relation_types), strict=True)
        numbers = [np.array([number.get(s, -1) for s in strings], np.int64) for number, strings in vocabularies]
        ids = []
        for f, (begin, end) in enumerate(pairwise(other.family_ptr.tolist())):
            keys = self.keys[self.family_ptr[f] : self.family_ptr[f + 1]]
            position = lookup(keys, renumber_keys(f, np.asarray(other.keys[begin:end]), *numbers))
            ids.append(np.where(position >= 0, position + self.family_ptr[f], -1))
        return np.concatenate(ids)

    def as_compared(self, graphs: GraphTable) -> GraphTable:
        """Return graphs with the tokens in the form that is compared: unchanged, as the model wrote them."""
        return graphs

    @classmethod
    def build(cls, kind: str, corpus: Corpus) -> "GraphIndex":
        """Index the graphs of the reports, without their texts.

        If all readers compare graphs, there are no posting lists, and the families of these metrics alone.
        """
        graphs, readers = corpus.reports.attached[kind].both, corpus.readers
        if readers is None or not all(m.representation == kind and m.kernel == "radgraph" for m in readers):
            return build_graphs(*graphs)
        families = {int(str(metric.options[name])) for metric in readers for name in ("family_a", "family_b")}
        return build_graphs(*graphs, families=families, is_searched=False)

    def counts(self) -> dict[str, Any]:
        """Return the number of relations left out, and the label schema."""
        return {"dangling_relations": self.n_dangling, "schema": self.schema}

    def files(self) -> Iterator[tuple[str, Columns]]:
        """Yield the features, their keys and vocabularies, and the posting lists apart, which follow from them."""
        features = self.features._asdict()
        postings = {name: features.pop(name) for name in ("post_ptr", "post_unit", "skip_slot", "skip")}
        arrays = {name: getattr(self, name) for name in ("tokens", "labels", "relation_types", "keys", "family_ptr")}
        yield "graphs.arrow", {**features, **arrays, "schema": [self.schema]}
        yield "postings.arrow", postings

    @classmethod
    def load(cls, kind: str, stored: Mapping[str, Stored]) -> "GraphIndex":
        """Open the features, their keys and vocabularies, and the posting lists."""
        columns = read_arrays(stored["graphs.arrow"]) | read_arrays(stored["postings.arrow"])
        opened = cls(features=load_features(columns), schema=columns.pop("schema")[0], **columns)
        check_offsets(opened.family_ptr, opened.keys)
        opened._check_keys()
        return opened

    def _check_keys(self) -> None:
        """Raise ValueError if a key, packed by `pack_keys`, contains the number of a string that does not exist."""
        entity, relation, partial, complete = np.split(self.keys, self.family_ptr[1:-1])
        related = complete[complete & 1 == 1] >> 1
        plain = complete[complete & 1 == 0] >> 1
        for key in (entity, relation >> 33, relation >> 4 & (1 << 29) - 1, partial >> 1, plain, related >> 28):
            check_ids(key >> 5, len(self.tokens))
            check_ids(key & 31, len(self.labels))
        check_ids(related & (1 << 24) - 1, len(self.tokens))
        for kind in (relation & 15, related >> 24 & 15):
            check_ids(kind, len(self.relation_types))

    @classmethod
    def _of_features(
        cls,
        pairs: Sequence[tuple[np.ndarray, np.ndarray]],
        n_graphs: int,
        graph_of_row: np.ndarray,
        strings: tuple[Sequence[str], Sequence[str], Sequence[str]],
        schema: str,
        n_dangling: int = 0,
        *,
        is_searched: bool = True,
    ) -> Self:
        """Index graphs by their features: the (graph, key) pairs of each family, as `pack_keys` returns them.

        `graph_of_row` has the graph of each row, -1 for a row without one: int64[N]. `strings` are the vocabularies of
        the keys: tokens, labels and relation types. Without `is_searched` there are no posting lists.
        """
        keys, graphs, features = [], [], []
        family_ptr = np.zeros(len(FAMILIES) + 1, np.int64)
        for f, (graph, key) in enumerate(pairs):
            distinct, feature = np.unique(key, return_inverse=True)
            keys.append(distinct)
            graphs.append(graph)
            features.append(feature + family_ptr[f])
            family_ptr[f + 1] = family_ptr[f] + len(distinct)
        check_features(int(family_ptr[-1]))
        lists = pack(np.concatenate(graphs), np.concatenate(features), n_graphs, family_ptr)

        document, example = distinct_lists(lists.fwd_ptr, lists.fwd_id)
        order = np.lexsort(_sort_key(lists.sizes[:, example])[::-1])
        lists = lists.take(example[order])
        document_of_row = numbered_anew(graph_of_row, ranks_of(order)[document])
        if is_searched:
            indexed_features = invert(lists, _sort_key(lists.sizes), document_of_row, int(family_ptr[-1]))
        else:
            indexed_features = without_postings(lists, document_of_row, int(family_ptr[-1]))
        return cls(indexed_features, *strings, np.concatenate(keys), family_ptr, schema, n_dangling)


def spell_graph(graphs: GraphTable, g: int) -> Graph:
    """Return the sets of the graph at position `g` of the table, made from its entities and relations."""
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
    """Return the keys by which documents are sorted, int32[2, D]: entities + relations, then entities.

    `sizes` has the number of features of each family in each document: int32[4, D].
    """
    return np.stack([sizes[0] + sizes[1], sizes[0]])


def build_graphs(
    graphs: GraphTable,
    graph_of_row: np.ndarray,
    *,
    families: Collection[int] = range(len(FAMILIES)),
    is_searched: bool = True,
) -> GraphIndex:
    """Index the graphs of a corpus; `graph_of_row` has the position of each row's graph, -1 for none: int64[N].

    Features of other families than `families` are left out. Without `is_searched` there are no posting lists.
    """
    used, which = np.unique(graph_of_row[graph_of_row >= 0], return_inverse=True)
    used_of_row = np.full(len(graph_of_row), -1, np.int64)
    used_of_row[graph_of_row >= 0] = which
    tokens = sorted(set(graphs.tokens) | {t.lower() for t in graphs.tokens})
    strings = Strings(tokens), sorted(graphs.labels), sorted(graphs.relation_types)
    token, label, kind = (numbered(vocabulary) for vocabulary in (tokens, *strings[1:]))
    pairs = pack_keys(graphs, used, token, label, kind, families)
    return GraphIndex._of_features(
        pairs, len(used), used_of_row, strings, graphs.schema, graphs.n_dangling, is_searched=is_searched
    )


def index_queries(graphs: GraphTable, graph_of_row: np.ndarray) -> GraphIndex:
    """Return the graphs of queries without posting lists; `graph_of_row` has the position of each query's graph.

    A feature has another id in each graph: to look up all of them takes less time than to find the distinct ones.
    """
    used, graph_of_row = distinct_in_order(graph_of_row)  # whatever the order of the table
    if not np.array_equal(used, np.arange(len(graphs.keys))):
        graphs = graphs.take(used)
    tokens = sorted({*graphs.tokens, *(token.lower() for token in graphs.tokens)})
    strings = tokens, sorted(graphs.labels), sorted(graphs.relation_types)
    token, label, kind = (numbered(vocabulary) for vocabulary in strings)
    graph, key = zip(*pack_keys(graphs, np.arange(len(used)), token, label, kind), strict=True)
    sizes = np.stack([np.bincount(of_family, minlength=len(used)) for of_family in graph]).astype(np.int32)
    keys, by_graph = np.concatenate(key), np.argsort(np.concatenate(graph), kind="stable").astype(np.int32)
    fwd_ptr, sorted_keys = offsets_of(sizes.sum(axis=0)), keys[by_graph]
    seen: dict[bytes, int] = {}
    which = np.fromiter(
        (
            seen.setdefault(sizes[:, g].tobytes() + sorted_keys[begin:end].tobytes(), len(seen))
            for g, (begin, end) in enumerate(pairwise(fwd_ptr.tolist()))
        ),
        np.int64,
        len(used),
    )
    example = np.unique(which, return_index=True)[1]
    lists = ForwardLists(fwd_ptr, by_graph, sizes).take(example)
    return GraphIndex(
        without_postings(lists, which[graph_of_row], 0),
        *strings,
        keys,
        offsets_of(np.array([len(of_family) for of_family in key])),
        graphs.schema,
        items=Mapped(example, partial(spell_graph, graphs)),
    )


class LowerCaseIndex(GraphIndex):
    """Features of graphs with all tokens lower-cased, as the radgraph package compares them since July 2026.

    It has no files of its own: the features follow from those of `GraphIndex`, whose vocabulary `tokens` also has the
    lower-case form of each token.
    """

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "LowerCaseIndex":
        """Lower-case the tokens of `parts["radgraph"]`, and merge features and documents that become equal."""
        index: GraphIndex = parts["radgraph"]
        number, _, _ = index.numbers
        lower = np.array([number[token.lower()] for token in index.tokens], np.int64)
        label, kind = np.arange(len(index.labels)), np.arange(len(index.relation_types))
        fwd_ptr, fwd_id = index.features.fwd_ptr, index.features.fwd_id
        documents = np.repeat(np.arange(len(fwd_ptr) - 1), np.diff(fwd_ptr))
        pairs = []
        for f, (begin, end) in enumerate(pairwise(index.family_ptr.tolist())):
            keys = renumber_keys(f, np.asarray(index.keys[begin:end]), lower, label, kind)
            is_of_family = (fwd_id >= begin) & (fwd_id < end)
            pairs.append(distinct_pairs(documents[is_of_family], keys[fwd_id[is_of_family] - begin]))
        strings = index.tokens, index.labels, index.relation_types
        return cls._of_features(pairs, len(fwd_ptr) - 1, index.document_of_row, strings, index.schema)

    def as_compared(self, graphs: GraphTable) -> GraphTable:
        """Return graphs with the tokens in the form that is compared: in lower case."""
        return replace(graphs, tokens=[token.lower() for token in graphs.tokens])
