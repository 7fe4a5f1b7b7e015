"""Columns that are kept with reports, such as the patient of each study. Values are strings, "" for an empty cell."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.progress import say
from metric_oracle.corpora.tables import bare_id, written

if TYPE_CHECKING:
    import polars as pl

RESERVED = ("self", "text", "same")  # rules of exclusion, which a column of such a name would hide
_NEARLY_NONE = 20  # values of the side with fewer for each that is in common, at least
_OWN = ("row", "study_id", "distinct_id")  # columns of an index


def check_kept(names: object) -> tuple[str, ...]:
    """Return the names of the columns to keep, each once, from one name, names joined with commas, or a sequence.

    Raise InputError for anything else, and for the name of a rule of exclusion or of a column that each index has.
    """
    listed = names.split(",") if isinstance(names, str) else names
    if not isinstance(listed, Iterable) or not all(isinstance(name, str) and name.strip() for name in listed):
        raise InputError("keep", "must be names of columns", shown(names), 'Name them, such as "subject_id".')
    columns = tuple(dict.fromkeys(name.strip() for name in listed))
    reserved = [name for name in columns if name in (*RESERVED, *_OWN)]
    if reserved:
        raise InputError(
            "keep",
            f"must be other columns than {', '.join((*RESERVED, *_OWN))}",
            shown(reserved[0]),
            "Rename the column.",
        )
    return columns


def kept_values(cells: "pl.Series") -> list[str]:
    """Return the cells of a column as strings, "" for a missing one; if all are numbers, without a trailing ".0"."""
    values = written(cells).fill_null("")
    if values.str.contains(r"^(?:\d+(?:\.0)?)?$").all():
        values = values.str.strip_suffix(".0")
    return values.to_list()


def say_apart(
    name: str,
    values: Iterable[str],
    others: Iterable[str],
    tell: Callable[[str], None] | None,
    names: tuple[str, str] = ("test reports", "corpus"),
) -> None:
    """Tell that a column by which two sides are compared has no value in common, or nearly none, with some of each.

    `tell` is that of `say`, `names` what the sides are called. Patients of two splits have none in common, and so have
    those that are written in two ways.
    """
    sides = [dict.fromkeys(filter(None, side)) for side in (values, others)]
    shared = sides[0].keys() & sides[1].keys()
    fewer = min(map(len, sides))
    if not fewer or _NEARLY_NONE * len(shared) >= fewer:
        return
    first = [[value for value in side if value not in shared][:3] for side in sides]
    bare = [{bare_id(value): value for value in side if value not in shared} for side in sides]
    alike = next((key for key in bare[0] if key in bare[1]), None)
    how = "Where these are disjoint, nothing is wrong; otherwise write them in one way on both sides."
    if alike is not None:
        how = (
            f"{shown(bare[0][alike])} and {shown(bare[1][alike])} may be the same: write them in one way on both sides."
        )
    count = f"only {len(shared):,}" if shared else "no"
    say(
        f"column {shown(name)}: {count} value{'s' * (len(shared) > 1)} of {len(sides[0]):,} of the {names[0]} and "
        f"{len(sides[1]):,} of the {names[1]} in common, such as {shown(*first[0])} and {shown(*first[1])}. {how}",
        tell,
    )


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
