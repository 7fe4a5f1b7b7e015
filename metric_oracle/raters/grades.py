"""Graded reports: ReFiSco's severity of each line, and any table with one number for each pair and rater.

Every grade becomes a number for each rater and pair that is larger where the report is worse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.tables import Table, canonical_ids, check_unique, written
from metric_oracle.raters.rank_correlation import RATED
from metric_oracle.raters.ratings import Rated, arranged, cells_of_pairs, codes_of, labels_by_role, texts_of

# The scale of ReFiSco's README and notebook, adapted from the ACR's RADPEER.
SEVERITIES = ("No error", "Not actionable", "Actionable nonurgent error", "Urgent error", "Emergent error")
# Grades of a report from its lines: the count of Cho et al. (2025), and ReFiSco's own MES and AES.
LINES, MAXIMUM, AVERAGE = "lines with an error", "maximum severity", "average severity"
# Version 0 (github.com/rajpurkarlab/ReFiSco-v0) and version 1 (header in github.com/rajpurkarlab/FineRadScore).
REFISCO = (
    {"study": "id", "candidate": "source", "rater": "annotator", "severity": "score", "original": "impression_original",
     "edited": "impression_edited"},
    {"study": "study_id", "candidate": "report_type", "rater": "annotator_id", "severity": "error_clinical_severity",
     "original": "original_line", "edited": "corrected_line"},
)  # fmt: skip
WORSE, BETTER = "errors", "quality"  # columns of grades: larger is worse, larger is better
_DIGITS = 12  # means of equal grades in another order differ by floating-point error, and ties are frequent


@dataclass(frozen=True, repr=False)
class Grades(Rated):
    """Grades of every pair."""

    pairs: list[str]
    studies: list[str]
    candidates: list[str] | None
    raters: list[str]
    grades: Mapping[str, npt.NDArray[np.float64]]  # kind -> float64[R, P], larger is worse
    source: str
    study_ids: list[str] | None = None
    references: list[str | None] | None = None
    predictions: list[str | None] | None = None
    groups: list[str] | None = None
    statistics: tuple[str, ...] = RATED

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the grades."""
        return tuple(self.grades)

    def by_rater(self, kind: str) -> npt.NDArray[np.float64]:
        """Return the grades of one of `kinds`, of each rater for each pair: float64[R, P]."""
        return self.grades[kind]

    def _taken(self, pairs: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Return grades and groups of the pairs at the positions `pairs`, as keyword arguments."""
        groups = None if self.groups is None else [self.groups[i] for i in pairs]
        return {"grades": {kind: values[:, pairs] for kind, values in self.grades.items()}, "groups": groups}


def read_refisco(table: Table) -> Grades:
    """Read ReFiSco, version 0 or 1. Each annotation is a pair of its own with one rater.

    Its prediction consists of the lines that the rater saw, its reference of the lines as that rater corrected them.
    """
    names = next(names for names in REFISCO if set(names.values()) <= set(table.names))
    cells = {role: table.column(name) for role, name in names.items()}
    keys = [
        canonical_ids(cells[role], f"column {shown(names[role])} of {table.path}", mimic=role == "study")
        for role in ("study", "candidate", "rater")
    ]
    rows_of: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*keys, strict=True)):
        rows_of.setdefault(key, []).append(row)
    code_of = {name.lower(): value for value, name in enumerate(SEVERITIES)}
    code_of |= {text: value for value in range(len(SEVERITIES)) for text in (str(value), f"{value}.0")}
    severity = codes_of(table, names["severity"], f"{', '.join(SEVERITIES)}, or 0 to 4,", code_of)
    if not severity:
        raise InputError(str(table.path), "must have rows", "none", "Fetch the file again.")
    texts = {role: written(cells[role]).fill_null("").to_list() for role in ("original", "edited")}
    by_pair = [np.array([severity[row] for row in rows], np.float64) for rows in rows_of.values()]
    lines = [[_corrected(texts["original"][row], texts["edited"][row]) for row in rows] for rows in rows_of.values()]
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


def _corrected(before: str, after: str) -> tuple[str, str]:
    """Return a line before and after its correction; "" is no line. An unchanged line has "[no edit]" or a blank."""
    if "[delete]" in after:
        return before, ""
    return before, before if after in ("", "[no edit]") else after


def read_grades(table: Table) -> Grades:
    """Read one number for each pair and rater, in the column ``errors`` or ``quality``, of which lower is worse."""
    columns = [name for name in (WORSE, BETTER) if name in table.names]
    if len(columns) > 1:
        raise InputError(str(table.path), "must have errors or quality", "both columns", "Keep or rename one.")
    labels = labels_by_role(table, "pair", "study", "candidate", "rater")
    if "pair" not in labels:
        if "study" not in labels:
            raise InputError(
                str(table.path),
                "must say the pair of each row by a column pair_id, or by study_id and candidate_type",
                f"columns {table.header}",
                "Add or rename one.",
            )
        sides = [labels[role] for role in ("study", "candidate") if role in labels]
        labels["pair"] = ["/".join(key) for key in zip(*sides, strict=True)]
    numbers = table.numbers(columns[0])
    values = -numbers if columns[0] == BETTER else numbers
    return assemble(table, columns[0], {**labels, **texts_by_role(table)}, values)


def texts_by_role(table: Table) -> dict[str, list[str | None]]:
    """Return the cells of the columns ``reference`` and ``prediction``, by name, where the table has them."""
    return {name: texts_of(table, name) for name in ("reference", "prediction") if name in table.names}


def assemble(
    table: Table,
    kind: str,
    labels: Mapping[str, Sequence[Any]],
    values: Sequence[float] | npt.NDArray[np.float64],
    statistics: tuple[str, ...] = RATED,
    rows: Sequence[int] | None = None,
) -> Grades:
    """Return grades given by row, after a check that each rater graded each pair once.

    `kind` is the name of the grade. `labels` have ``pair`` of each row, and if known ``study``, ``candidate``,
    ``rater``, ``group`` and the texts ``reference`` and ``prediction``; without raters there is one. `values` are
    larger where a report is worse. `rows` are the numbers of the rows in the file, from 1, for messages; by default the
    rows are those of the file.
    """
    rows = range(1, len(values) + 1) if rows is None else rows
    pair_of_row = labels["pair"]
    raters = labels.get("rater") or ["all"] * len(pair_of_row)
    pairs, names = list(dict.fromkeys(pair_of_row)), sorted(set(raters))
    check_unique(
        [f"{pair}, rater {rater}" for pair, rater in zip(pair_of_row, raters, strict=True)], f"the rows of {table.path}"
    )
    if len(pair_of_row) != len(pairs) * len(names) or not pairs:
        raise InputError(
            str(table.path),
            f"must have one row for each pair and rater ({len(pairs)} x {len(names)})",
            f"{len(pair_of_row)}",
            "Complete it: an absent grade is no grade.",
        )
    array, _ = arranged((names, pairs), (raters, pair_of_row), np.array(values, np.float64))

    def by_pair(name: str, cells: Sequence[Any] | None) -> Any:
        """Return the value of each pair from the cells of its rows, which must agree; without cells None."""
        if cells is None:
            return None
        cell_of, other = cells_of_pairs(pair_of_row, cells)
        if other is not None:
            raise InputError(
                f"the {name} of each pair in {table.path}",
                "must be the same in all its rows",
                f"two for pair {shown(pair_of_row[other])}, the second in row {rows[other]}",
                "Repair it.",
            )
        return [*cell_of.values()]

    studies = by_pair("study", labels.get("study", pair_of_row))
    return Grades(
        pairs,
        studies,
        by_pair("candidate", labels.get("candidate")),
        names,
        {kind: array},
        f"one number a pair: {len(pairs):,} pairs, {len(set(studies)):,} studies, {len(names)} raters",
        references=by_pair("reference", labels.get("reference")),
        predictions=by_pair("prediction", labels.get("prediction")),
        groups=by_pair("group", labels.get("group")),
        statistics=statistics,
    )
