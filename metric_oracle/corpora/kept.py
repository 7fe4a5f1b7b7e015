"""Columns that are kept with reports, such as the patient of each study. Values are strings, "" for an empty cell."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.tables import written

if TYPE_CHECKING:
    import polars as pl

RESERVED = ("self", "text", "same")  # rules of exclusion, which a column of such a name would hide
_OWN = ("row", "study_id", "distinct_id")  # columns of an index


def check_kept(names: object) -> tuple[str, ...]:
    """Return the names of the columns to keep, each once, from one name, names joined with commas, or a sequence.

    Raise InputError for anything else, and for the name of a rule of exclusion or of a column that each index has.
    """
    listed = names.split(",") if isinstance(names, str) else names
    if not isinstance(listed, Iterable) or not all(isinstance(name, str) and name.strip() for name in listed):
        raise InputError("keep", "must be names of columns", shown(names), 'Name them, such as "subject_id".')
    kept = tuple(dict.fromkeys(name.strip() for name in listed))
    reserved = [name for name in kept if name in (*RESERVED, *_OWN)]
    if reserved:
        raise InputError(
            "keep",
            f"must be other columns than {', '.join((*RESERVED, *_OWN))}",
            shown(reserved[0]),
            "Rename the column.",
        )
    return kept


def kept_values(cells: "pl.Series") -> list[str]:
    """Return the cells of a column as strings, "" for a missing one; if all are numbers, without a trailing ".0"."""
    values = written(cells).fill_null("")
    if values.str.contains(r"^(?:\d+(?:\.0)?)?$").all():
        values = values.str.strip_suffix(".0")
    return values.to_list()


def values_of_ids(name: str, ids: Sequence[str], values: Sequence[str], where: object) -> dict[str, str]:
    """Return id -> value in the column `name`, from the ids and values of all rows; `where` is for the message.

    Rows with the same id are images of one study; raise InputError if their values differ.
    """
    value_of_id: dict[str, str] = {}
    for study, value in zip(ids, values, strict=True):
        if value_of_id.setdefault(study, value) != value:
            raise InputError(
                f"{where} has an id with several values of {shown(name)}: {shown(study)}.",
                "Keep one value for each id, or another column.",
            )
    return value_of_id
