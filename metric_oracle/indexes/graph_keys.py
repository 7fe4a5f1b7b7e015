"""Keys of the features of RadGraph graphs: an int64 packs the places of strings in vocabularies."""

from collections.abc import Mapping, Sequence

import numpy as np

from metric_oracle.corpora.radgraph_json import GraphTable
from metric_oracle.errors import InputError
from metric_oracle.kernels._build import reorder


def pack_keys(
    graphs: GraphTable,
    chosen: np.ndarray,
    tokens: Mapping[str, int],
    labels: Mapping[str, int],
    types: Mapping[str, int],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each family the distinct (graph, key) pairs of the `chosen` graphs, numbered in that order.

    A key packs vocabulary positions into an int64. Strings outside the vocabulary get numbers of their own behind it,
    so that sets keep their sizes; such keys are in no index.
    """
    token = _numbers(graphs.tokens, tokens)
    lower = _numbers([t.lower() for t in graphs.tokens], tokens)
    label = _numbers(graphs.labels, labels)
    kind = _numbers(graphs.relation_types, types)
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
        distinct_pairs(graph_of_entity, entity[entity_of]),
        distinct_pairs(graph_of_relation, relation),
        distinct_pairs(graph_of_entity, entity[entity_of] << 1 | related[entity_of]),
        distinct_pairs(
            np.concatenate([graph_of_entity[plain], graph_of_relation]),
            np.concatenate([entity[entity_of][plain] << 1, complete << 1 | 1]),
        ),
    ]


def numbered(strings: Sequence[str]) -> dict[str, int]:
    """Return the place of each string."""
    return {s: i for i, s in enumerate(strings)}


def _numbers(strings: Sequence[str], vocabulary: Mapping[str, int]) -> np.ndarray:
    """Return numbers in the vocabulary; equal strings outside it share a number from its end on."""
    extra: dict[str, int] = {}
    number = [vocabulary.get(s, -1) for s in strings]
    for i, s in enumerate(strings):
        if number[i] < 0:
            number[i] = extra.setdefault(s, len(vocabulary) + len(extra))
    return np.array(number, np.int64)


def distinct_pairs(graph: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop repeated (graph, key) pairs."""
    order = np.lexsort((key, graph))
    graph, key = graph[order], key[order]
    new = np.ones(len(key), bool)
    new[1:] = (graph[1:] != graph[:-1]) | (key[1:] != key[:-1])
    return graph[new], key[new]


def renumber_keys(family: int, keys: np.ndarray, token: np.ndarray, label: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """Return the keys of a family, packed as in `pack_keys`, with other numbers for tokens, labels and types.

    Where one of these is -1 a key is negative.
    """

    def entity(packed: np.ndarray) -> np.ndarray:
        return token[packed >> 5] << 5 | label[packed & 31]

    if family == 0:
        return entity(keys)
    if family == 1:
        return (entity(keys >> 33) << 29 | entity(keys >> 4 & (1 << 29) - 1)) << 4 | kind[keys & 15]
    if family == 2:
        return entity(keys >> 1) << 1 | keys & 1
    found = np.empty(len(keys), np.int64)
    is_plain = keys & 1 == 0
    found[is_plain] = entity(keys[is_plain] >> 1) << 1
    related = keys[~is_plain] >> 1
    packed = (entity(related >> 28) << 4 | kind[related >> 24 & 15]) << 24 | token[related & (1 << 24) - 1]
    found[~is_plain] = packed << 1 | 1
    return found
