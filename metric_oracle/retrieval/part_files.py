"""Part files: the results of a search of some shards of a set, and their merge into the result of the whole corpus.

So the jobs of any scheduler can share a search. A part file has the columns of a result, with m lines per query, in the
order of the queries. Lines of rank 0 may follow: the fall-back report of RadGraph, for queries that nothing matches, if
these shards have it. The signature of a part is that of the result with the entry `part`: its number, the number of
parts, and the number of documents searched.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from metric_oracle.base import option_types
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.progress import Advance
from metric_oracle.base.validation import public
from metric_oracle.findings.results import AFTER, FIXED, Results, read_part
from metric_oracle.indexes.index import Index
from metric_oracle.records import sign_of
from metric_oracle.retrieval.fall_back import fall_back
from metric_oracle.retrieval.merge import BestRows, merge_best
from metric_oracle.retrieval.result_table import layout, listed, strings
from metric_oracle.retrieval.search import Search
from metric_oracle.retrieval.search_signature import joined_stages

# Entries of the signature in which the parts of a result may differ.
_OWN = ("part", "stages", "closest_call", "environment")


def shards_of(part: str, index: Index) -> tuple[int, int, list[int]]:
    """Return what `members_of` does of the shards of an index; raise InputError if it has none."""
    index.check_is_set({"part": part}, got=shown(part))
    return members_of(part, index.n_shards, "shards")


def members_of(part: str, n: int, what: str) -> tuple[int, int, list[int]]:
    """Parse a part such as "3/16" of n things: return its number (from 1), the number of parts, and which it has.

    The last are numbers from 0. Raise InputError if it is no such text, or the things, of the name `what`, are too few.
    """
    matched = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", part)
    number, n_parts = (int(matched[1]), int(matched[2])) if matched else (1, 0)
    if not number <= n_parts <= n:
        raise InputError(
            "part", f"must be I/N, I from 1 to N and N at most the {n:,} {what}", shown(part), "Choose such numbers."
        )
    return number, n_parts, np.array_split(np.arange(n), n_parts)[number - 1].tolist()


def retrieve_part(search: Search, progress: Advance | None = None) -> Results:
    """Search the shards of a set that ``options.part`` names; return what their part file holds, see the module."""
    ids = search.queries.ids
    number, n, shards = shards_of(str(search.options.part), search.index)
    best = search.best_rows(shards, progress=progress)
    tables = [layout(ids, best, np.zeros(best.rows.shape, bool), best.exact)]
    if best.reserve is not None:
        # Only queries without a match in these shards may need the fall-back report.
        unmatched = np.flatnonzero(best.scores[:, 0] == 0.0)
        reserve = layout(ids, best.reserve, np.ones((len(ids), 1), bool), best.exact)
        reserve = reserve.set_column(1, "rank", pa.array(np.zeros(reserve.num_rows, np.int64)))
        tables.append(reserve.take(pa.array(unmatched)))
    described = {"place": number, "of": n, "documents": best.documents}
    return Results(pa.concat_tables(tables), {**search.signature_of(best), "part": described})


@public
def merge(parts: option_types.Parts) -> Results:
    """Join the results of all parts of one search of a shard set by [`retrieve`][metric_oracle.retrieve], in any order.

    Returns
    -------
    Results
        The result of a search of the whole set.

    Raises
    ------
    InputError
        If a part is missing, is given twice or belongs to another search.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> index = mo.build_index("train.csv", "SET", metrics="bleu", shard_rows=100)
    >>> for part in ("1/2", "2/2"):
    ...     found = mo.retrieve(index, "test.csv", "bleu", options=mo.SearchOptions(part=part))
    ...     found.write(f"part-{part[0]}.parquet")
    >>> mo.merge(["part-1.parquet", "part-2.parquet"]).table.num_rows
    24
    """
    if not parts:
        raise InputError("parts", "must be at least one file", "none", "Name the files of all parts of a search.")
    read = [(Path(path), read_part(path)) for path in parts]
    read.sort(key=lambda one: not one[1].table.num_rows)  # parts without rows last
    _check_parts(read)
    first, full = read[0][1].signature, read[0][1].table
    if not full.num_rows:
        _altered(read[0][0])
    ids = full["query_id"].filter(pa.array(full["rank"].to_numpy() == 1)).to_pylist()
    components = [name for name in full.column_names if name not in (*FIXED, *AFTER, "text")]
    of_parts = [_best_rows(path, part.table, ids, components) for path, part in read if part.table.num_rows]
    merged, fallback = fall_back(merge_best(of_parts, first["k"], sign_of(first["direction"])))
    if merged.rows.shape[1] != first["k"]:
        _altered(read[0][0])
    signature = {name: value for name, value in first.items() if name not in _OWN}
    signature |= {name: first[name] for name in ("environment",) if name in first}
    stages = [
        (part.signature["part"]["documents"], {n: part.signature[n] for n in _OWN[1:3] if n in part.signature})
        for _, part in read
    ]
    table = listed(layout(ids, merged, fallback, bool(full["exact"][0].as_py())))
    return Results(table, signature | joined_stages(stages))


def _check_parts(parts: Sequence[tuple[Path, Results]]) -> None:
    """Raise InputError unless `parts`, files and their contents, are all parts of one search, each once."""
    path, first = parts[0]
    n = first.signature["part"]["of"]
    path_of: dict[int, Path] = {}
    for other, part in parts:
        # A part without rows has no entries about the encoding of the queries.
        shared = {*part.signature, *(first.signature if part.table.num_rows else ())}.difference(_OWN)
        names = sorted(name for name in shared if first.signature.get(name) != part.signature.get(name))
        if names or part.signature["part"]["of"] != n:
            raise InputError(
                "parts",
                "must be of one search",
                f"{other}, which differs from {path} in {', '.join(names) or 'the number of parts'}",
                "Leave it out, or make it again.",
            )
        number = part.signature["part"]["place"]
        if number in path_of:
            raise InputError(
                "each part",
                "must come once",
                f"part {number}/{n} in {path_of[number]} and {other}",
                "Leave one of them out.",
            )
        path_of[number] = other
    lacking = [f"{number}/{n}" for number in range(1, n + 1) if number not in path_of]
    if lacking:
        some = ", ".join(lacking[:5]) + (", ..." if len(lacking) > 5 else "")
        raise InputError(f"all {n} parts", "must be given", f"{len(parts)}, without {some}", "Search these parts, too.")


def _best_rows(path: Path, table: pa.Table, ids: Sequence[str], components: Sequence[str]) -> BestRows:
    """Return the best rows in a part file's table; raise InputError unless its lines are those of the queries `ids`.

    `components` are the names of the columns of components.
    """
    is_listed = table["rank"].to_numpy() > 0
    lines, reserve_lines = table.filter(pa.array(is_listed)), table.filter(pa.array(~is_listed))
    m, rest = divmod(lines.num_rows, len(ids))
    expected = pa.array(ids, pa.large_string()).take(pa.array(np.repeat(np.arange(len(ids)), max(m, 1))))
    ranks = np.tile(np.arange(1, m + 1), len(ids))
    if rest or strings(lines["query_id"]) != expected or not np.array_equal(lines["rank"].to_numpy(), ranks):
        _altered(path)
    best = _columns(lines, (len(ids), m), components)
    if not reserve_lines.num_rows:
        return best
    line_of = {query: i for i, query in enumerate(reserve_lines["query_id"].to_pylist())}
    by_query = reserve_lines.take(pa.array([line_of.get(query, 0) for query in ids]))
    return replace(best, reserve=_columns(by_query, (len(ids), 1), components))


def _columns(table: pa.Table, shape: tuple[int, int], components: Sequence[str]) -> BestRows:
    """Return the columns of a table as `BestRows` of the shape (queries, lines per query) without fall-back."""

    def column(name: str) -> np.ndarray:
        """Return a column as an array of the shape."""
        return table[name].to_numpy().reshape(shape)

    return BestRows(
        column("row"),
        column("score"),
        column("n_ties"),
        {name: column(name) for name in components},
        strings(table["candidate_id"]),
        strings(table["text"].cast(pa.large_string())) if "text" in table.column_names else None,
    )


def _altered(path: Path) -> None:
    """Raise InputError, because a part file was changed after it was written."""
    raise InputError(
        "parts",
        "must be unchanged since `mo.retrieve` wrote them",
        f"{path}, whose lines were changed",
        "Search this part again.",
    )
