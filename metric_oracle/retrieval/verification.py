"""Check a result file: every pair scored again by the reference, a sample of queries searched by brute force."""

from importlib import import_module

import numpy as np

from metric_oracle.errors import ExactnessError, InputError
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.results import Results
from metric_oracle.retrieval.search import check_queries, retrieve, rows_of, subset, units_of_rows


def verify(index: Index, results: Results, queries: Inputs, *, sample: int = 20, seed: int = 0) -> dict[str, int]:
    """Score all pairs of a result again and search `sample` of its queries with the reference backend.

    Raises
    ------
    InputError
        If the result belongs to another index, or to other queries.
    ExactnessError
        If a score, a row, a tie count or the order differs.
    """
    signature = results.signature
    if signature.get("index") != index.fingerprint:
        msg = (
            f"verify: results must belong to this index, fingerprint {index.fingerprint[:12]}; got "
            f"{str(signature.get('index'))[:12]}. Pass the index that they were made with."
        )
        raise InputError(msg)
    record = get_metric(str(signature.get("metric")), "verify")
    place = {query: i for i, query in enumerate(queries.ids)}
    columns = {
        name: results.table[name].to_pylist() for name in ("query_id", "rank", "row", "score", "n_ties", "fallback")
    }
    unknown = sorted({query for query in columns["query_id"] if query not in place})
    if unknown:
        msg = (
            f"verify: results must be of these queries; got {len(unknown)} query ids that are not among them "
            f"({', '.join(unknown[:3])}). Pass the queries that they were made with."
        )
        raise InputError(msg)
    listed = sorted({place[query] for query in columns["query_id"]})
    batch = subset(queries, np.array(listed, np.int64))
    check_queries(batch, record, index)
    position = {query: i for i, query in enumerate(batch.ids)}

    representation = index.representation(record)
    row_ptr, row_id = rows_of(representation)
    unit_of_row = units_of_rows(row_ptr, row_id)
    encoded = representation.encode(batch)
    score = import_module(f"metric_oracle.kernels.{record.kernel}.reference").score
    for query, row, value in zip(columns["query_id"], columns["row"], columns["score"], strict=True):
        unit = int(unit_of_row[row]) if 0 <= row < len(unit_of_row) else -1
        again = None
        if unit >= 0:
            again = score(
                representation.item(unit), encoded.item(int(encoded.which[position[query]])), **record.options
            )[0]
        if again != value:
            msg = (
                f"verify: the score of query {query} and row {row} must be {again!r}; got {value!r}. "
                "The results were altered, or are of another version: retrieve again."
            )
            raise ExactnessError(msg)

    chosen = np.sort(np.random.default_rng(seed).permutation(len(listed))[:sample])
    expected = retrieve(
        index, subset(batch, chosen), record.name, k=int(signature["k"]), backend="reference", text=False
    ).table
    wanted = {batch.ids[i] for i in chosen}
    got = [
        answer
        for answer in zip(*(columns[name] for name in ("query_id", "rank", "row", "n_ties", "fallback")), strict=True)
        if answer[0] in wanted
    ]
    order = {batch.ids[i]: i for i in chosen}
    got.sort(key=lambda answer: (order[answer[0]], answer[1]))
    right = list(
        zip(*(expected[name].to_pylist() for name in ("query_id", "rank", "row", "n_ties", "fallback")), strict=True)
    )
    if got != right:
        first = next((a[0] for a, b in zip(got, right, strict=False) if a != b), "?")
        msg = (
            f"verify: the answers of query {first} must be those of a brute-force search; got others. "
            "The results were altered, or are of another version: retrieve again."
        )
        raise ExactnessError(msg)
    return {"pairs": len(columns["row"]), "queries": len(chosen)}
