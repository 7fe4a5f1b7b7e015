"""RadGraph graphs -> sets of entities and relations, for RadGraph F1 and its relatives.

Four families of features, each a set of a graph (stack.md and formats.md of the project's notes hold the sources):

0. entities, (tokens, label): the entity set of Yu et al. 2023 and RG_E
1. relations, ((tokens, label), (tokens, label), type): the relation set of Yu et al. 2023
2. partial, (tokens, label, has a relation): RG_ER
3. complete, (tokens, label) of an entity without relations, else (tokens, label, type, tokens of the target) with both
   token strings lower-cased: RG_ER-bar
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metric_oracle.corpora.radgraph_json import GraphTable
from metric_oracle.errors import InputError
from metric_oracle.indexes.features import invert, lookup, pack, pack_queries, reorder
from metric_oracle.kernels._overlap import Features, Queries

FAMILIES = ("entities", "relations", "partial", "complete")


class GraphIndex(NamedTuple):
    """Graph features of a corpus; units are distinct graphs by ascending entities + relations, then entities.

    Attributes
    ----------
    features : Features
    tokens, labels, relation_types : list of str
        Distinct strings in code-point order; `tokens` holds the lower-cased forms too.
    keys : int64[V]
        Ascending within each family; the position is the feature id.
    family_ptr : int64[5]
    schema : str
        Label schema, "radgraph" or "radgraph-xl".
    """

    features: Features
    tokens: list[str]
    labels: list[str]
    relation_types: list[str]
    keys: np.ndarray
    family_ptr: np.ndarray
    schema: str


def _positions(strings: Sequence[str], sorted_strings: Sequence[str]) -> np.ndarray:
    """Return the position of each string in `sorted_strings`, -1 where it is not there."""
    place = {s: i for i, s in enumerate(sorted_strings)}
    return np.array([place.get(s, -1) for s in strings], np.int64)


def _pairs(
    graphs: GraphTable, chosen: np.ndarray, tokens: Sequence[str], labels: Sequence[str], types: Sequence[str]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each family the distinct (graph, key) pairs of the `chosen` graphs, numbered in that order.

    A key packs vocabulary positions into an int64. Strings outside the vocabulary get numbers of their own behind it, so
    that sets keep their sizes; such keys are in no index.
    """
    token = _extended(graphs.tokens, tokens)
    lower = _extended([t.lower() for t in graphs.tokens], tokens)
    label = _extended(graphs.labels, labels)
    kind = _extended(graphs.relation_types, types)
    if max(token.max(initial=0), lower.max(initial=0)) >> 24 or label.max(initial=0) >> 5 or kind.max(initial=0) >> 4:
        msg = (
            "build_index: graphs must have at most 2**24 entity strings, 32 labels and 16 relation types; got "
            f"{len(graphs.tokens)}, {len(graphs.labels)} and {len(graphs.relation_types)}. Check the graph file."
        )
        raise InputError(msg)

    entity_ptr, entity_of = reorder(graphs.entity_ptr, np.arange(len(graphs.entity_token)), chosen)
    graph_of_entity = np.repeat(np.arange(len(chosen)), np.diff(entity_ptr))
    relation_ptr, relation_of = reorder(graphs.relation_ptr, np.arange(len(graphs.relation_type)), chosen)
    graph_of_relation = np.repeat(np.arange(len(chosen)), np.diff(relation_ptr))
    first = graphs.entity_ptr[:-1][chosen][graph_of_relation]
    source = first + graphs.relation_source[relation_of]
    target = first + graphs.relation_target[relation_of]

    # Bits of a key: token 24, label 5; relation type 4. Widths are fixed, so index and queries pack alike.
    entity = token[graphs.entity_token] << 5 | label[graphs.entity_label]
    lowered = lower[graphs.entity_token] << 5 | label[graphs.entity_label]
    related = np.zeros(len(entity), bool)
    related[source] = True
    plain = ~related[entity_of]
    relation_kind = kind[graphs.relation_type[relation_of]]
    relation = (entity[source] << 29 | entity[target]) << 4 | relation_kind
    complete = (lowered[source] << 4 | relation_kind) << 24 | lower[graphs.entity_token[target]]
    # Plain entities and relations share the family "complete": even keys are plain, odd keys are relations.
    return [
        _distinct(graph_of_entity, entity[entity_of]),
        _distinct(graph_of_relation, relation),
        _distinct(graph_of_entity, entity[entity_of] << 1 | related[entity_of]),
        _distinct(
            np.concatenate([graph_of_entity[plain], graph_of_relation]),
            np.concatenate([entity[entity_of][plain] << 1, complete << 1 | 1]),
        ),
    ]


def _extended(strings: Sequence[str], vocabulary: Sequence[str]) -> np.ndarray:
    """Return positions in the vocabulary; equal strings outside it share a number from its end on."""
    extra: dict[str, int] = {}
    place = _positions(strings, vocabulary)
    for i in np.flatnonzero(place < 0):
        place[i] = extra.setdefault(strings[i], len(vocabulary) + len(extra))
    return place


def _distinct(graph: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop repeated (graph, key) pairs."""
    order = np.lexsort((key, graph))
    graph, key = graph[order], key[order]
    new = np.ones(len(key), bool)
    new[1:] = (graph[1:] != graph[:-1]) | (key[1:] != key[:-1])
    return graph[new], key[new]


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
    labels, types = sorted(graphs.labels), sorted(graphs.relation_types)
    keys, units, features = [], [], []
    family_ptr = np.zeros(len(FAMILIES) + 1, np.int64)
    for f, (graph, key) in enumerate(_pairs(graphs, used, tokens, labels, types)):
        distinct, feature = np.unique(key, return_inverse=True)
        keys.append(distinct)
        units.append(graph)
        features.append(feature + family_ptr[f])
        family_ptr[f + 1] = family_ptr[f] + len(distinct)
    fwd_ptr, fwd_id, sizes = pack(np.concatenate(units), np.concatenate(features), len(used), family_ptr)

    # Equal graphs become one unit.
    seen: dict[bytes, int] = {}
    buffer = fwd_id.tobytes()
    bounds = (fwd_ptr * fwd_id.itemsize).tolist()
    unit = np.fromiter(
        (seen.setdefault(buffer[b:e], len(seen)) for b, e in zip(bounds[:-1], bounds[1:], strict=True)),
        np.int64,
        len(used),
    )
    example = np.zeros(len(seen), np.int64)
    example[unit[::-1]] = np.arange(len(used))[::-1]
    order = np.lexsort((sizes[0, example], sizes[0, example] + sizes[1, example]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    fwd_ptr, fwd_id = reorder(fwd_ptr, fwd_id, example[order])
    unit_of_row = np.where(row_graph >= 0, rank[unit[row_graph]] if len(unit) else -1, -1)
    return GraphIndex(
        invert(fwd_ptr, fwd_id, sizes[:, example[order]], unit_of_row, int(family_ptr[-1])),
        tokens,
        labels,
        types,
        np.concatenate(keys),
        family_ptr,
        graphs.schema,
    )


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
            f"retrieve: the queries' graphs must have the index's label schema {index.schema!r}; got {graphs.schema!r}. "
            "Annotate both with one RadGraph model."
        )
        raise InputError(msg)
    queries, features = [], []
    sizes = np.zeros((len(chosen), len(FAMILIES)), np.int64)
    for f, (graph, key) in enumerate(_pairs(graphs, chosen, index.tokens, index.labels, index.relation_types)):
        begin, end = index.family_ptr[f], index.family_ptr[f + 1]
        found = lookup(index.keys[begin:end], key)
        queries.append(graph)
        features.append(np.where(found >= 0, found + begin, -1))
        sizes[:, f] = np.bincount(graph, minlength=len(chosen))
    return pack_queries(np.concatenate(queries), np.concatenate(features), sizes, index.family_ptr)
