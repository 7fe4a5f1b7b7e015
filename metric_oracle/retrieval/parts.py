"""Part files: the answers of some shards of a set, for any scheduler to make, and their merge.

A part has the columns of a result, `m` lines a query in the order of the queries. Lines of rank 0 come after them: the
row that RadGraph's queries get which nothing matches, where these shards have it. Its signature is that of the result
and `part`: its place, how many there are, and the documents searched.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from metric_oracle.errors import InputError
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import ShardSet
from metric_oracle.metrics import Metric
from metric_oracle.progress import Count
from metric_oracle.retrieval.answers import layout, strings
from metric_oracle.retrieval.merge import Answer, fall_back, merge
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.results import AFTER, FIXED, Results, read_part
from metric_oracle.retrieval.search import joined_stages, search
from metric_oracle.sources.inputs import Inputs

# What of a signature parts of one result need not share.
_OWN = ("part", "stages", "closest_call", "environment")


def places_of(part: str, index: Index) -> tuple[int, int, list[int]]:
    """Return place and number of parts, from 1, and the shards of this one: a run of them."""
    found = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", part)
    if not isinstance(index, ShardSet):
        msg = f"retrieve: part must be left out for an index that is no set of shards; got {part!r}. Drop it."
        raise InputError(msg)
    place, n = (int(found[1]), int(found[2])) if found else (1, 0)
    if not place <= n <= index.n_shards:
        msg = (
            f"retrieve: part must be I/N, I from 1 to N and N at most the {index.n_shards} shards; got {part!r}. "
            "Choose such numbers."
        )
        raise InputError(msg)
    return place, n, np.array_split(np.arange(index.n_shards), n)[place - 1].tolist()


def retrieve_part(
    index: Index, queries: Inputs, record: Metric, options: SearchOptions, progress: Count | None = None
) -> Results:
    """Search the shards of a set that ``options.part`` names."""
    place, n, places = places_of(str(options.part), index)
    found = search(index, queries, record, options, places=places, progress=progress)
    tables = [layout(queries.ids, found.answer, np.zeros(found.answer.rows.shape, bool), found.exact)]
    if found.answer.reserve is not None:
        # Queries that these shards match have no use for it.
        some = np.flatnonzero(found.answer.scores[:, 0] == 0.0)
        reserve = layout(queries.ids, found.answer.reserve, np.ones((len(queries.ids), 1), bool), found.exact)
        reserve = reserve.set_column(1, "rank", pa.array(np.zeros(reserve.num_rows, np.int64)))
        tables.append(reserve.take(pa.array(some)))
    described = {"place": place, "of": n, "documents": found.documents}
    return Results(pa.concat_tables(tables), {**found.signature, "part": described})


def merge_parts(paths: Sequence[str | Path]) -> Results:
    """Merge all parts of one result, in any order.

    Raises
    ------
    InputError
        If a part is missing, given twice, or of another search.
    """
    if not paths:
        msg = "merge: parts must be at least one file; got none. Name the files that retrieve --part wrote."
        raise InputError(msg)
    parts = [(Path(path), read_part(path)) for path in paths]
    parts.sort(key=lambda given: not given[1].table.num_rows)  # shards without a row that can be scored last
    _check(parts)
    first, full = parts[0][1].signature, parts[0][1].table
    if not full.num_rows:
        _altered(parts[0][0])
    ids = full["query_id"].filter(pa.array(full["rank"].to_numpy() == 1)).to_pylist()
    components = [name for name in full.column_names if name not in (*FIXED, *AFTER, "text")]
    higher = first["direction"] == "higher"
    answers = [_answer(path, part.table, ids, components) for path, part in parts if part.table.num_rows]
    merged, fallback = fall_back(merge(answers, first["k"], higher))
    if merged.rows.shape[1] != first["k"]:
        _altered(parts[0][0])
    signature = {name: value for name, value in first.items() if name not in _OWN}
    signature |= {name: first[name] for name in ("environment",) if name in first}
    stages = [
        (part.signature["part"]["documents"], {n: part.signature[n] for n in _OWN[1:3] if n in part.signature})
        for _, part in parts
    ]
    return Results(layout(ids, merged, fallback, bool(full["exact"][0].as_py())), signature | joined_stages(stages))


def _check(parts: Sequence[tuple[Path, Results]]) -> None:
    path, first = parts[0]
    n = first.signature["part"]["of"]
    place_of: dict[int, Path] = {}
    for other, part in parts:
        # A part without answers knows nothing of how the queries were encoded.
        shared = {*part.signature, *(first.signature if part.table.num_rows else ())}.difference(_OWN)
        names = sorted(name for name in shared if first.signature.get(name) != part.signature.get(name))
        if names or part.signature["part"]["of"] != n:
            msg = (
                f"merge: parts must be of one search; got {other}, which differs from {path} in "
                f"{', '.join(names) or 'the number of parts'}. Leave it out, or make it again."
            )
            raise InputError(msg)
        place = part.signature["part"]["place"]
        if place in place_of:
            msg = f"merge: each part must come once; got part {place}/{n} in {place_of[place]} and {other}. Drop one."
            raise InputError(msg)
        place_of[place] = other
    lacking = [f"{place}/{n}" for place in range(1, n + 1) if place not in place_of]
    if lacking:
        shown = ", ".join(lacking[:5]) + (", ..." if len(lacking) > 5 else "")
        msg = f"merge: all {n} parts must be given; got {len(parts)}, without {shown}. Make them with retrieve --part."
        raise InputError(msg)


def _answer(path: Path, table: pa.Table, ids: Sequence[str], components: Sequence[str]) -> Answer:
    """Return the lists of a part."""
    is_listed = table["rank"].to_numpy() > 0
    listed, kept = table.filter(pa.array(is_listed)), table.filter(pa.array(~is_listed))
    m, rest = divmod(listed.num_rows, len(ids))
    expected = pa.array(ids, pa.large_string()).take(pa.array(np.repeat(np.arange(len(ids)), max(m, 1))))
    ranks = np.tile(np.arange(1, m + 1), len(ids))
    if rest or strings(listed["query_id"]) != expected or not np.array_equal(listed["rank"].to_numpy(), ranks):
        _altered(path)
    answer = _columns(listed, (len(ids), m), components)
    if not kept.num_rows:
        return answer
    place = {query: i for i, query in enumerate(kept["query_id"].to_pylist())}
    some = kept.take(pa.array([place.get(query, 0) for query in ids]))
    return replace(answer, reserve=_columns(some, (len(ids), 1), components))


def _columns(table: pa.Table, shape: tuple[int, int], components: Sequence[str]) -> Answer:
    def column(name: str) -> np.ndarray:
        return table[name].to_numpy().reshape(shape)

    return Answer(
        column("row"),
        column("score"),
        column("n_ties"),
        {name: column(name) for name in components},
        strings(table["candidate_id"]),
        strings(table["text"].cast(pa.large_string())) if "text" in table.column_names else None,
    )


def _altered(path: Path) -> None:
    msg = f"merge: parts must be as retrieve --part wrote them; got {path} with other lines. Make it again."
    raise InputError(msg)
