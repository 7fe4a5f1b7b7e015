"""Columns that are kept with reports, such as the patient of each study. Values are strings, "" for an empty cell."""

import re
from collections.abc import Iterable, Sequence

from metric_oracle.corpora.missing import is_missing
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError

RESERVED = ("self", "text", "same")  # rules of exclusion, which a column of such a name would hide
_OWN = ("row", "study_id", "distinct_id")  # columns of an index


def check_kept(names: object) -> tuple[str, ...]:
    """Return the names of the columns to keep, each once, from one name, names joined with commas, or a sequence.

    Raise InputError for anything else, and for the name of a rule of exclusion or of a column that each index has.
    """
    listed = names.split(",") if isinstance(names, str) else names
    if not isinstance(listed, Iterable) or not all(isinstance(name, str) and name.strip() for name in listed):
        raise InputError("keep", "must be names of columns", repr(names), 'Name them, such as "subject_id".')
    kept = tuple(dict.fromkeys(name.strip() for name in listed))
    reserved = [name for name in kept if name in (*RESERVED, *_OWN)]
    if reserved:
        raise InputError(
            "keep",
            f"must be other columns than {', '.join((*RESERVED, *_OWN))}",
            repr(reserved[0]),
            "Rename the column.",
        )
    return kept


def kept_values(cells: Iterable[object]) -> list[str]:
    """Return the cells of a column as strings, "" for a missing one; if all are numbers, without a trailing ".0"."""
    values = ["" if is_missing(cell) else str(cell).strip() for cell in cells]
    if all(re.fullmatch(r"\d+(?:\.0)?|", value) for value in values):
        values = [value.removesuffix(".0") for value in values]
    return values


def values_of_ids(name: str, ids: Sequence[str], values: Sequence[str], where: object) -> dict[str, str]:
    """Return id -> value in the column `name`, from the ids and values of all rows; `where` is for the message.

    Rows with the same id are images of one study; raise InputError if their values differ.
    """
    value_of_id: dict[str, str] = {}
    for study, value in zip(ids, values, strict=True):
        if value_of_id.setdefault(study, value) != value:
            raise InputError(
                f"{where} has an id with several values of {name!r}: {shown_names([study])}.",
                "Keep one value for each id, or another column.",
            )
    return value_of_id
