"""Which ids of two sets of reports belong together: where the ids come from, and what may be joined."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.tables import Table
from metric_oracle.corpora.usual_names import (
    OF_REPORTS,
    SECTIONS,
    TEXTS,
    bare_name,
    id_columns,
    kind_of_ids,
    section_of_column,
)


class IdSource(NamedTuple):
    """Where the ids of reports come from, and their texts."""

    name: str = ""  # the column, or what the keys are called
    by: str = ""  # "name" (a usual one), "caller", "key", "place" (there are no ids), or "" where that is not known
    columns: tuple[str, ...] = ()  # all columns of the table, of which another can be chosen
    texts: str = ""  # the column of the texts where its name told it; "" for one that the caller named

    @property
    def described(self) -> str:
        """The source for a message."""
        return "no ids" if self.by == "place" else f"ids in {shown(self.name)}" if self.name else "ids"


UNKNOWN, PLACE = IdSource(), IdSource("place", "place")


def source_of_ids(table: Table, name: str, id_column: str | None) -> IdSource:
    """Return the source of the ids that `Table.id_cells(id_column)` returned with the name `name`."""
    is_key = table.keys is not None and name == table.keys.name
    by = "caller" if id_column is not None else "key" if is_key else "name"
    return IdSource(name, by, tuple(table.names))


def shared_column(one: IdSource, other: IdSource) -> tuple[str, str] | None:
    """Return the name of a column of ids that both tables have, as each writes it; None if there is none.

    None too if both were read by it already, or the caller named both columns. One that the caller named for one side
    is the only choice; otherwise the order is that of `id_columns`, and one that is neither of studies nor of images is
    shared only if one side was read by it.
    """
    free = [source.by in ("name", "key") and bool(source.columns) for source in (one, other)]
    if bare_name(one.name) == bare_name(other.name) or not any(free):
        return None
    first, second = ({bare_name(name): name for name in source.columns} for source in (one, other))
    if all(free):
        read_by = (bare_name(one.name), bare_name(other.name))
        by_kind = [(kind, bare_name(name)) for kind, names in id_columns(one.columns) for name in names]
        usual = [name for kind, name in by_kind if kind in OF_REPORTS or name in read_by]
    else:
        usual = [bare_name((other if free[0] else one).name)]
    return next(((first[name], second[name]) for name in usual if name in first and name in second), None)


class _Side(Protocol):
    """Reports, or samples, of which each id has a list of texts."""

    @property
    def ids(self) -> Sequence[str]: ...
    @property
    def texts(self) -> Sequence[Any]: ...
    @property
    def ids_from(self) -> IdSource: ...


def check_two_columns(one: _Side, other: _Side, names: tuple[str, str] = ("references", "predictions")) -> None:
    """Raise InputError if both sides were read from one column of a table that has another column of reports.

    A table with one column of reports can only be meant to be compared with itself. Two tables are one if columns and
    texts are the same. A column that the caller named for either side is meant.
    """
    column = one.ids_from.texts
    if not column or one.ids_from[2:] != other.ids_from[2:]:
        return
    # The other section of a report is not another report.
    usual = TEXTS - frozenset().union(*SECTIONS.values()) if section_of_column(column) else TEXTS
    rest = [name for name in one.ids_from.columns if name != column and bare_name(name) in usual]
    texts = dict(zip(one.ids, one.texts, strict=True))
    others = zip(other.ids, other.texts, strict=True)
    are_equal = [text in (texts[study], [texts[study]]) for study, text in others if study in texts]
    if rest and are_equal and all(are_equal):
        raise InputError(
            f"{names[0]} and {names[1]}",
            "must be two columns",
            f"{shown(column)} for both, of the candidates {shown(column, *rest)}",
            f"Name the other one: `mo.reports(..., mo.Read(text_column={rest[0]!r}))` for the {names[0]}, or "
            f"`mo.reports(predictions, mo.Read(text_column={rest[0]!r}))` for the {names[1]}.",
        )


def check_joined(
    one: IdSource,
    other: IdSource,
    tell: Callable[[str], None],
    names: tuple[str, str] = ("references", "predictions"),
    are_reports: bool = True,
) -> None:
    """Raise InputError if of two sources only one has ids, or one those of studies and one those of images.

    `tell` is called with a line for the user if the columns have two names; `names` is what they are called. Files that
    are no reports are read by an argument `id_column`, without metadata.
    """
    if one.by and other.by and (one.by == "place") != (other.by == "place"):
        raise InputError(
            f"{names[0]} and {names[1]}",
            "must both have ids, or neither",
            f"{one.described} and {other.described}",
            "Pass ids with both, such as a dict of id -> text, or two lists of texts in one order.",
        )
    if not (one.by == other.by == "name") or bare_name(one.name) == bare_name(other.name):
        return
    kinds = [kind_of_ids(source.name) for source in (one, other)]
    if None not in kinds and kinds[0] != kinds[1]:
        named = "`mo.reports(..., mo.Read(id_column=NAME))`" if are_reports else "`id_column=NAME`"
        is_taken = are_reports and "dicom_id" in (bare_name(one.name), bare_name(other.name))  # of MIMIC-CXR
        of_images = (
            ", or pass `mo.reports(..., mo.Read(metadata=FILE))`, which joins images to studies" if is_taken else ""
        )
        raise InputError(
            f"{names[0]} and {names[1]}",
            "must have ids of one kind",
            f"{kinds[0]} in {shown(one.name)} and {kinds[1]} in {shown(other.name)}",
            f"Name the columns whose values are the same: {named}{of_images}.",
        )
    tell(f"ids: {one.name} of the {names[0]} is joined with {other.name} of the {names[1]}")
