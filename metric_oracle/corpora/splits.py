"""Which reports belong to a named split: their own column, or the table that says the split of each id."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metric_oracle.corpora.tables import (
    STUDY_ID_NAMES,
    Table,
    canonical_ids,
    existing_file,
    read_table,
    shown_names,
    zeros_hint,
)
from metric_oracle.errors import InputError


def ids_of_split(
    split: str, split_file: str | Path | None, ids: Sequence[str], names: Sequence[Any] | None, path: str | Path
) -> set[str]:
    """Return the ids in the named splits.

    Parameters
    ----------
    split : names joined with "+"
    split_file : the table of splits, else `names` says them
    ids, names : of the reports, parallel
    path : of the reports, for messages
    """
    import polars as pl

    if split_file is not None:
        path = existing_file(Path(split_file), "read_reports", "split_file")
        table = read_table(path, "read_reports")
        names = table.column("split", "read_reports", "split_file")
        ids = _split_file_ids(table, set(ids))
    elif names is None:
        msg = (
            f"read_reports: split_file must be given where the reports have no column split; got {path}. "
            "Pass the split table."
        )
        raise InputError(msg)
    try:
        splits = pl.DataFrame({"id": ids, "split": list(map(str, names))}).unique(maintain_order=True)
    except UnicodeEncodeError:
        msg = f"read_reports: ids and splits must be valid Unicode; got half of a surrogate pair in {path}. Repair it."
        raise InputError(msg) from None
    several = splits.filter(pl.col("id").is_duplicated())["id"].to_list()
    if several:
        msg = (
            f"read_reports: split must be one for each study; got two for {shown_names(several[:1])} in {path}. "
            "Repair the file."
        )
        raise InputError(msg)
    known = splits["split"].unique().sort().to_list()
    wanted = split.split("+")
    for name in wanted:
        if name not in known:
            msg = (
                f"read_reports: split must be one of {shown_names(known)}; got {name!r} for {path}. "
                "Join several with +."
            )
            raise InputError(msg)
    return set(splits.filter(pl.col("split").is_in(wanted))["id"])


def _split_file_ids(table: Table, report_ids: set[str]) -> list[str]:
    """Return the id column that speaks of these reports: R2Gen's file has the Kaggle uid and its own id."""
    best: list[str] = []
    n_best = 0
    seen: set[str] = set()
    for name in table.names:
        if name.lower() in STUDY_ID_NAMES:
            cells = table.column(name, "read_reports", "split_file")
            ids = canonical_ids(cells, "read_reports", f"{name!r} in {table.path}")
            seen |= set(ids)
            n_found = len(report_ids.intersection(ids))
            if n_found > n_best:
                best, n_best = ids, n_found
    if not best:
        msg = (
            f"read_reports: split_file must share ids with the reports; got none in {table.path}. "
            f"Pass the file of this corpus.{zeros_hint(sorted(report_ids), seen)}"
        )
        raise InputError(msg)
    return best
