"""Reports that raters graded: ReFiSco's severity of each line, and any table with one number a pair.

Beside counted errors (`raters`) the rated sets of the field have severities and grades. Each becomes a number for each
rater and pair that is larger where the report is worse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.corpora.tables import (
    Table,
    canonical_ids,
    check_unique,
    existing_file,
    is_missing,
    number_of,
    read_table,
)
from metric_oracle.errors import InputError
from metric_oracle.raters.ratings import Rated, labels_of, name_of, read_ratings, texts_of, with_texts

# The scale of ReFiSco's README and notebook, after the ACR's RADPEER.
SEVERITIES = ("No error", "Not actionable", "Actionable nonurgent error", "Urgent error", "Emergent error")
# What ReFiSco's lines make of a report: as Cho et al. (2025) count them, and ReFiSco's own MES and AES.
LINES, MAXIMUM, AVERAGE = "lines with an error", "maximum severity", "average severity"
# Version 0 (github.com/rajpurkarlab/ReFiSco-v0) and version 1 (header in github.com/rajpurkarlab/FineRadScore).
_REFISCO = (
    {"study": "id", "candidate": "source", "rater": "annotator", "severity": "score", "original": "impression_original",
     "edited": "impression_edited"},
    {"study": "study_id", "candidate": "report_type", "rater": "annotator_id", "severity": "error_clinical_severity",
     "original": "original_line", "edited": "corrected_line"},
)  # fmt: skip
_WORSE, _BETTER = "errors", "quality"  # names of the one number of a pair: larger is worse, larger is better
_DIGITS = 12  # means of equal grades in another order differ by rounding, and ties are many
_FUNCTION = "read_rated_set"


@dataclass(frozen=True)
class Grades(Rated):
    """Grades of every pair.

    Attributes
    ----------
    grades : dict of float64[R, P]
        Kind -> what each rater says of each pair, larger is worse; the other attributes are those of `Rated`.
    """

    pairs: list[str]
    studies: list[str]
    candidates: list[str] | None
    raters: list[str]
    grades: Mapping[str, npt.NDArray[np.float64]]
    source: str
    study_ids: list[str] | None = None
    references: list[str | None] | None = None
    predictions: list[str | None] | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the grades."""
        return tuple(self.grades)

    def by_rater(self, kind: str) -> npt.NDArray[np.float64]:
        """Return the grades float64[R, P] of a kind."""
        return self.grades[kind]

    def _taken(self, kept: npt.NDArray[np.int64]) -> dict[str, Any]:
        return {"grades": {kind: values[:, kept] for kind, values in self.grades.items()}}


def read_rated_set(path: str | Path, *, samples: str | Path | None = None) -> Rated:
    """Read a rated set from a file whose layout follows from its header.

    Parameters
    ----------
    path : str or path
        One of three kinds. Counted errors in any layout of [`read_ratings`][metric_oracle.read_ratings]. ReFiSco
        version 0 or 1, a row for each line of a report: the number of lines with an error (as Cho et al. 2025 count),
        the maximum
        (MES) and the average (AES) of their severities from 0 to 4. Or a table with one row for each pair (or pair and
        rater) and a number: ``errors`` where larger is worse, ``quality`` where larger is better, such as RaTE-Eval's
        errors of each sentence. Such a table may have the texts: ``reference`` and ``prediction``.
    samples : str or path, optional
        The texts, where `path` does not have them.

    Returns
    -------
    Rated
        In ReFiSco each annotation is a pair of its own, with one rater: its prediction consists of the lines that the
        rater saw, its reference of the lines as that rater corrected them.

    Raises
    ------
    InputError
        If a file cannot be read, a column is missing, a cell is not a number of its range, or pairs lack texts.

    Examples
    --------
    >>> rated = mo.read_rated_set("ratings.csv", samples="samples.csv")
    >>> len(rated.pairs)
    96
    """
    table = read_table(existing_file(Path(path), _FUNCTION), _FUNCTION)
    layout = next((names for names in _REFISCO if set(names.values()) <= set(table.names)), None)
    number = [name for name in (_WORSE, _BETTER) if name in table.names]
    counted = {"category", "error_category"} & {name.lower() for name in table.names}
    if layout is None and (not number or counted):
        return read_ratings(path, samples=samples)
    found = _read_grades(table, number) if layout is None else _read_refisco(table, layout)
    if samples is not None:
        found = with_texts(found, read_table(existing_file(Path(samples), _FUNCTION, "samples"), _FUNCTION))
    return found


def _read_refisco(table: Table, names: Mapping[str, str]) -> Grades:
    cells = {role: table.column(name, _FUNCTION, name) for role, name in names.items()}
    keys = [
        canonical_ids(cells[role], _FUNCTION, f"column {names[role]!r} of {table.path}", mimic=role == "study")
        for role in ("study", "candidate", "rater")
    ]
    rows_of: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*keys, strict=True)):
        rows_of.setdefault(key, []).append(row)
    severity = [_severity(cell) for cell in cells["severity"]]
    bad = [row for row, value in enumerate(severity) if value is None]
    if bad or not severity:
        msg = (
            f"{_FUNCTION}: column {names['severity']!r} must hold {', '.join(SEVERITIES)}, or 0 to 4, in every row; "
            f"got {f'something else in row {bad[0] + 1}' if bad else 'no rows'} of {table.path}. Repair it."
        )
        raise InputError(msg)
    by_pair = [np.array([severity[row] for row in rows], np.float64) for rows in rows_of.values()]
    lines = [[_corrected(cells["original"][row], cells["edited"][row]) for row in rows] for rows in rows_of.values()]
    studies = [study for study, *_ in rows_of]
    return Grades(
        ["/".join(key) for key in rows_of],
        studies,
        [candidate for _, candidate, _ in rows_of],
        ["the annotator"],
        {
            LINES: np.array([[np.count_nonzero(values) for values in by_pair]], np.float64),
            MAXIMUM: np.array([[values.max() for values in by_pair]]),
            AVERAGE: np.array([[round(float(values.mean()), _DIGITS) for values in by_pair]]),
        },
        f"ReFiSco: {len(rows_of):,} annotated reports, {len(set(studies)):,} studies, {table.n_rows:,} lines",
        references=[" ".join(edited for _, edited in pair if edited) for pair in lines],
        predictions=[" ".join(original for original, _ in pair if original) for pair in lines],
    )


def _severity(cell: object) -> int | None:
    text = str(cell).strip().lower()
    known = {name.lower(): value for value, name in enumerate(SEVERITIES)}
    known |= {text: value for value in range(len(SEVERITIES)) for text in (str(value), f"{value}.0")}
    return known.get(text)


def _corrected(original: object, edited: object) -> tuple[str, str]:
    """Return a line before and after its correction, "" where there is none: no edit is written, or left blank."""
    before = "" if is_missing(original) else str(original).strip()
    after = "" if is_missing(edited) else str(edited).strip()
    if "[delete]" in after:
        return before, ""
    return before, before if after in ("", "[no edit]") else after


def _read_grades(table: Table, number: Sequence[str]) -> Grades:
    """Read one number a pair, or a pair and rater."""
    if len(number) > 1:
        msg = f"{_FUNCTION}: {table.path} must have errors or quality; got both columns. Keep or rename one."
        raise InputError(msg)
    labels = {
        role: labels_of(table, name, _FUNCTION, mimic=role == "study")
        for role in ("pair", "study", "candidate", "rater")
        if (name := name_of(table, role, _FUNCTION)) is not None
    }
    pair_of_row = labels.get("pair")
    if pair_of_row is None and "study" in labels:
        sides = [labels[role] for role in ("study", "candidate") if role in labels]
        pair_of_row = ["/".join(key) for key in zip(*sides, strict=True)]
    if pair_of_row is None:
        msg = (
            f"{_FUNCTION}: {table.path} must say the pair of each row by a column pair_id, or by study_id and "
            f"candidate_type; got columns {table.header}. Add or rename one."
        )
        raise InputError(msg)
    raters = labels.get("rater", ["all"] * table.n_rows)
    first = {pair: row for row, pair in reversed([*enumerate(pair_of_row)])}
    pairs, names = list(dict.fromkeys(pair_of_row)), sorted(set(raters))
    check_unique(
        [f"{pair}, rater {rater}" for pair, rater in zip(pair_of_row, raters, strict=True)],
        _FUNCTION,
        f"the rows of {table.path}",
    )
    if len(pair_of_row) != len(pairs) * len(names) or not pairs:
        msg = (
            f"{_FUNCTION}: {table.path} must have one row for each pair and rater ({len(pairs)} x {len(names)}); got "
            f"{len(pair_of_row)}. Complete it: an absent grade is no grade."
        )
        raise InputError(msg)
    values = np.full((len(names), len(pairs)), np.nan)
    place = [{name: i for i, name in enumerate(some)} for some in (names, pairs)]
    for row, (rater, pair, cell) in enumerate(
        zip(raters, pair_of_row, table.column(number[0], _FUNCTION, number[0]), strict=True)
    ):
        value = number_of(cell)
        if not np.isfinite(value):
            msg = (
                f"{_FUNCTION}: column {number[0]!r} of {table.path} must hold a finite number in every row; got "
                f"something else in row {row + 1}. Repair it."
            )
            raise InputError(msg)
        values[place[0][rater], place[1][pair]] = value

    def of(cells: Sequence[Any] | None) -> Any:
        return None if cells is None else [cells[first[pair]] for pair in pairs]

    texts = [of(texts_of(table, name)) if name in table.names else None for name in ("reference", "prediction")]
    studies = of(labels.get("study", pair_of_row))
    return Grades(
        pairs,
        studies,
        of(labels.get("candidate")),
        names,
        {number[0]: -values if number[0] == _BETTER else values},
        f"one number a pair: {len(pairs):,} pairs, {len(set(studies)):,} studies, {len(names)} raters",
        references=texts[0],
        predictions=texts[1],
    )
