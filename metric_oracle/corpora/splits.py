"""Find the ids of the reports of a split, from a column of the reports or from a separate table of splits."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.tables import (
    Table,
    canonical_ids,
    existing_file,
    ids_hint,
    read_table,
    written,
)
from metric_oracle.corpora.usual_names import id_columns

if TYPE_CHECKING:
    import polars as pl


def ids_of_split(
    split: str, split_file: str | Path | None, ids: Sequence[str], split_of: "pl.Series | None", path: str | Path
) -> set[str]:
    """Return the ids in the splits that `split` names, joined with "+".

    Raise InputError if there is no such split, or an id has two. Splits are read from `split_file`, which may have ids
    of other reports, or if it is None from `split_of`, the split of each of the reports `ids`. `path` names the file of
    the reports in messages.
    """
    import polars as pl

    if split_file is not None:
        path = existing_file(Path(split_file))
        table = read_table(path)
        split_of = written(table.column("split"))
        ids = _split_file_ids(table, set(ids))
    elif split_of is None:
        raise InputError(
            f"{path} has no column split.", "Pass the table of splits as `mo.reports(..., mo.Read(split_file=FILE))`."
        )
    splits = pl.DataFrame({"id": ids, "split": split_of.fill_null("None")}).unique(maintain_order=True)
    ambiguous = splits.filter(pl.col("id").is_duplicated())["id"].to_list()
    if ambiguous:
        raise InputError(f"{path} has two splits for study {shown(*ambiguous[:1])}.", "Repair the file.")
    names = splits["split"].unique().sort().to_list()
    wanted = split.split("+")
    for name in wanted:
        if name not in names:
            raise InputError(
                "split",
                f"must be one of {shown(*names)}",
                f"{shown(name)} for {path}",
                "Name one of these, or several joined with +.",
            )
    return set(splits.filter(pl.col("split").is_in(wanted))["id"])


def _split_file_ids(table: Table, report_ids: set[str]) -> list[str]:
    """Return the ids of a table of splits; raise InputError if it has none of the reports.

    If several columns may hold ids, the one with most ids of the reports is used, and one that is not of studies only
    if no other has any.
    """
    best: list[str] = []
    n_best = 0
    seen: set[str] = set()
    for kind, name in ((kind, name) for kind, names in id_columns(table.names) for name in names):
        if best and kind != "studies":
            break
        ids = canonical_ids(table.column(name), f"{shown(name)} in {table.path}")
        seen |= set(ids)
        n_found = len(report_ids.intersection(ids))
        if n_found > n_best:
            best, n_best = ids, n_found
    if not best:
        raise InputError(
            f"{table.path} has none of the ids of the reports.",
            f"Pass the table of splits of this corpus.{ids_hint(sorted(report_ids), seen)}",
        )
    return best
