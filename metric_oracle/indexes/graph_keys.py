"""Keys of the features of RadGraph graphs: the numbers of a feature's strings, packed into an int64."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.radgraph_json import GraphTable
from metric_oracle.kernels._build import reorder
from metric_oracle.kernels._graph_keys import sort_distinct


def pack_keys(
    graphs: GraphTable,
    positions: np.ndarray,
    tokens: Mapping[str, int],
    labels: Mapping[str, int],
    types: Mapping[str, int],
    families: Collection[int] = range(4),
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the distinct (graph, key) pairs of each family of features, two arrays each; see `indexes.radgraph`.

    `positions` has the positions of the graphs in the table, int64[n]; in the result they are numbered from 0 in this
    order. `tokens`, `labels` and `types` have the number of each entity string, label and relation type. Strings that
    they lack get numbers after the last one, so that sets keep their sizes. No index has a key with such a number.
    A family that is not in `families` has no pair. Raise InputError if there are more strings than a key has bits for.
    """
    token = _numbers(graphs.tokens, tokens)
    lower = _numbers([t.lower() for t in graphs.tokens], tokens)
    label = _numbers(graphs.labels, labels)
    kind = _numbers(graphs.relation_types, types)
    if max(token.max(initial=0), lower.max(initial=0)) >> 24 or label.max(initial=0) >> 5 or kind.max(initial=0) >> 4:
        raise InputError(
            "graphs",
            "must have at most 2**24 entity strings, 32 labels and 16 relation types",
            f"{len(graphs.tokens)}, {len(graphs.labels)} and {len(graphs.relation_types)}",
            "Check the graph file.",
        )

    n_entities, n_relations = len(graphs.entity_token), len(graphs.relation_type)
    entity_ptr, entity_of = reorder(graphs.entity_ptr, np.arange(n_entities, dtype=np.int32), positions)
    graph_of_entity = np.repeat(np.arange(len(positions)), np.diff(entity_ptr))
    relation_ptr, relation_of = reorder(graphs.relation_ptr, np.arange(n_relations, dtype=np.int32), positions)
    graph_of_relation = np.repeat(np.arange(len(positions)), np.diff(relation_ptr))
    first = graphs.entity_ptr[:-1][positions][graph_of_relation]
    source = first + graphs.relation_source[relation_of]
    target = first + graphs.relation_target[relation_of]

    # Bits of a key: 24 for a token, 5 for a label, 4 for a relation type. The widths are fixed, so that the keys of an
    # index and those of queries are comparable.
    entity = token[graphs.entity_token] << 5 | label[graphs.entity_label]
    lowered = lower[graphs.entity_token] << 5 | label[graphs.entity_label]
    related = np.zeros(len(entity), bool)
    related[source] = True
    plain = ~related[entity_of]
    relation_kind = kind[graphs.relation_type[relation_of]]
    relation = (entity[source] << 29 | entity[target]) << 4 | relation_kind
    complete = (lowered[source] << 4 | relation_kind) << 24 | lower[graphs.entity_token[target]]
    # Plain entities and relations share the family "complete": even keys are plain, odd keys are relations.
    pairs = [
        (graph_of_entity, entity[entity_of]),
        (graph_of_relation, relation),
        (graph_of_entity, entity[entity_of] << 1 | related[entity_of]),
        (
            np.concatenate([graph_of_entity[plain], graph_of_relation]),
            np.concatenate([entity[entity_of][plain] << 1, complete << 1 | 1]),
        ),
    ]
    empty = np.empty(0, np.int64)
    return [distinct_pairs(*pair) if f in families else (empty, empty) for f, pair in enumerate(pairs)]


def numbered(strings: Sequence[str]) -> dict[str, int]:
    """Return a dict from each of the distinct strings to its position."""
    return {s: i for i, s in enumerate(strings)}


def _numbers(strings: Sequence[str], vocabulary: Mapping[str, int]) -> np.ndarray:
    """Return the number of each string, int64[n]; strings outside the vocabulary get numbers after its last."""
    extra: dict[str, int] = {}
    number = [vocabulary.get(s, -1) for s in strings]
    for i, s in enumerate(strings):
        if number[i] < 0:
            number[i] = extra.setdefault(s, len(vocabulary) + len(extra))
    return np.array(number, np.int64)


def distinct_pairs(graph: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (graph, key) pairs, int64[n] each, sorted by graph and then by key, each once."""
    order = None if np.all(graph[1:] >= graph[:-1]) else np.argsort(graph, kind="stable")
    graph, key = (values.copy() if order is None else values[order] for values in (graph, key))
    n = sort_distinct(graph, key)
    return graph[:n], key[:n]


def renumber_keys(
    family: int, keys: np.ndarray, new_token: np.ndarray, new_label: np.ndarray, new_type: np.ndarray
) -> np.ndarray:
    """Return the keys of `pack_keys` after tokens, labels and relation types were numbered anew: int64[n].

    `family` is a place in `indexes.radgraph.FAMILIES`. The last three arrays have the new number of each token, label
    and relation type. If one is -1, the keys that contain it become negative.
    """

    def entity(packed: np.ndarray) -> np.ndarray:
        """Return packed pairs of a token and a label with their new numbers."""
        return new_token[packed >> 5] << 5 | new_label[packed & 31]

    if family == 0:
        return entity(keys)
    if family == 1:
        return (entity(keys >> 33) << 29 | entity(keys >> 4 & (1 << 29) - 1)) << 4 | new_type[keys & 15]
    if family == 2:
        return entity(keys >> 1) << 1 | keys & 1
    new_keys = np.empty(len(keys), np.int64)
    is_plain = keys & 1 == 0
    new_keys[is_plain] = entity(keys[is_plain] >> 1) << 1
    related = keys[~is_plain] >> 1
    packed = (entity(related >> 28) << 4 | new_type[related >> 24 & 15]) << 24 | new_token[related & (1 << 24) - 1]
    new_keys[~is_plain] = packed << 1 | 1
    return new_keys
