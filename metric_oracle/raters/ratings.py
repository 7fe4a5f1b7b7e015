"""Rated pairs of reports, and the errors that radiologists counted in them: ReXVal, similar sets, plain tables.

The counts of every layout become one array over pairs, raters, error categories and clinical significance. Its order
does not depend on the order of the rows. The design must be complete: an absent cell is an error, never 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.validation import public
from metric_oracle.corpora.tables import (
    Table,
    canonical_ids,
    check_unique,
    is_missing,
    numbers_of,
    read_table,
    written,
)
from metric_oracle.raters.rank_correlation import RATED

if TYPE_CHECKING:
    import polars as pl

# Metric-oracles of ReXVal in the order of table S3 of Yu et al., with their names in the paper.
ORACLES = {"bleu": "BLEU", "s_emb": "CheXbert", "bertscore": "BERTScore", "radgraph": "RadGraph"}
# Meanings of ReXVal's categories. RadEvalX has the same six and two more.
CATEGORIES = {
    "1": "false prediction of finding",
    "2": "omission of finding",
    "3": "incorrect location/position of finding",
    "4": "incorrect severity of finding",
    "5": "mention of comparison that is not in the reference",
    "6": "omission of comparison describing a change",
}
KINDS = ("total", "significant")

_NAMES = {
    "pair": ("pair_id", "pair"),
    "study": ("study_number", "study_id", "study"),
    "candidate": ("candidate_type", "origin", "system"),
    "rater": ("rater_index", "rater_id", "rater", "radiologist"),
    "category": ("error_category", "category"),
    "significance": ("clinically_significant", "significant", "significance"),
    "count": ("num_errors", "count", "errors"),
}
_TEXT_NAMES = {"reference": ("reference", "gt_report"), "prediction": ("prediction", "candidate")}
_ID_NAMES = ("query_id", "id", "uid", "doc_id", "report_id")
# RadEvalX: a row for each report, rater and significance; a column for each of its eight categories.
_RADEVALX = ("one", "two", "three", "four", "five", "six", "seven", "eight")
_ANNOTATORS = ("annotator", "annotator_id", "reader")
_TRUTH = {"true": 1, "1": 1, "1.0": 1, "yes": 1, "false": 0, "0": 0, "0.0": 0, "no": 0}
RatedSet = TypeVar("RatedSet", bound="Rated")


class Rated:
    """Rated pairs of a reference and a candidate report, whatever the raters wrote down.

    This is the common form of all rated sets: counted errors, severities, grades, preferences and orders.

    Attributes
    ----------
    pairs : list of str
        Unique ids of the P pairs: those of the file, else "study/candidate", else the study.
    studies : list of str
        Study of each pair, the unit of resampling. The studies of ReXVal are row numbers of its samples file, from 0.
    candidates : list of str or None
        Candidate type of each pair, such as the metric whose oracle it is; None if the file has none.
    raters : list of str
        Names of the R raters.
    source : str
        One line that says which layout was recognised and how much was read.
    study_ids : list of str or None
        Study id of each pair in the samples file, if studies are numbers.
    references, predictions : list of (str or None), or None
        The two texts of each pair, unchanged; None within a list is a missing text.
    groups : list of str or None
        Group of each pair within which it is compared with others; None: its study.
    statistics : tuple of str
        Names of the rank statistics that the ratings allow. The first one is the one of tests, ceilings and figures.
        Without ``tau-b``, pairs of different groups cannot be compared.
    """

    pairs: list[str]
    studies: list[str]
    candidates: list[str] | None
    raters: list[str]
    source: str
    study_ids: list[str] | None
    references: list[str | None] | None
    predictions: list[str | None] | None
    groups: list[str] | None = None
    statistics: tuple[str, ...] = RATED

    def __repr__(self) -> str:
        # Without texts, which are patient data.
        return f"<{type(self).__name__}: {len(self.pairs):,} pairs, {len(self.raters)} raters; {self.source}>"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the numbers that the raters give to a pair. Each is larger where the report is worse."""
        raise NotImplementedError

    @public
    def by_rater(self, kind: str) -> npt.NDArray[Any]:
        """Return the number of one kind that each rater gives to each pair, number[R, P]."""
        raise NotImplementedError

    def _taken(self, pairs: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Return the fields of a subclass for the pairs at the positions `pairs`, as keyword arguments."""
        raise NotImplementedError

    def subset(self, is_in: npt.NDArray[np.bool_]) -> Self:
        """Return the rated set with only the pairs where `is_in`, bool[P], is true."""
        pairs = np.flatnonzero(is_in)

        def take(items: Any) -> Any:
            """Return the items of the chosen pairs; None stays None."""
            return None if items is None else [items[i] for i in pairs]

        names = ("pairs", "studies", "candidates", "study_ids", "references", "predictions")
        return replace(self, **{name: take(getattr(self, name)) for name in names}, **self._taken(pairs))  # type: ignore[type-var]

    def differing(self) -> npt.NDArray[np.bool_]:
        """Return whether the two texts of each pair differ in more than white space, bool[P].

        ReXVal* of Cho et al. (2025) has only pairs whose texts differ.
        """
        if self.references is None or self.predictions is None:
            raise InputError(
                "samples",
                "must be given to find identical pairs",
                "None",
                "Add the file with the texts as `samples`, such as 50_samples_gt_and_candidates.csv.",
            )
        texts = list(zip(self.references, self.predictions, strict=True))
        without = [pair for pair, both in zip(self.pairs, texts, strict=True) if None in both]
        if without:
            raise InputError(
                "samples",
                "must hold both texts of every pair to find identical ones",
                f"{len(without)} without, first {shown(*without[:3])}",
                "Complete the file.",
            )
        return np.array([str(a).split() != str(b).split() for a, b in texts])

    def without_identical(self) -> Self:
        """Return the pairs whose two texts differ in more than white space."""
        return self.subset(self.differing())


@dataclass(frozen=True, repr=False)
class Ratings(Rated):
    """Counted errors of every pair.

    Attributes
    ----------
    categories : list of str
        C error categories; the other attributes are those of `Rated`.
    counts : int64[P, R, C, 2]
        Errors; the last axis is clinical significance: insignificant, significant.
    """

    pairs: list[str]
    studies: list[str]
    candidates: list[str] | None
    raters: list[str]
    categories: list[str]
    counts: npt.NDArray[np.int64]
    source: str
    study_ids: list[str] | None = None
    references: list[str | None] | None = None
    predictions: list[str | None] | None = None

    kinds = KINDS

    @public
    def errors(self, kind: str) -> npt.NDArray[np.int64]:
        """Return errors as int64[P, R, C]: all ("total"), or the clinically significant ones ("significant")."""
        return self.counts[..., 1] if kind == "significant" else self.counts.sum(axis=-1)

    @public
    def by_rater(self, kind: str) -> npt.NDArray[np.int64]:
        """Return the errors that each rater counted in each pair as int64[R, P]."""
        return self.errors(kind).sum(axis=2).T

    def _taken(self, pairs: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Return the counts of the pairs at the positions `pairs`, as keyword arguments."""
        return {"counts": self.counts[pairs]}


_COUNTED = (
    "Errors that radiologists counted: the published table of ReXVal, GREEN or RadEvalX, or a table with one row per "
    "pair, rater, error category and significance"
)
# Counted errors, and any rated set, as users give them.
AnyRatings: TypeAlias = Annotated[str | Path | Ratings, Doc(f"{_COUNTED}.")]
AnyRated: TypeAlias = Annotated[
    str | Path | Rated,
    Doc(
        f"{_COUNTED}; or the table of ReFiSco; or a table of grades (a column errors or quality), of preferences "
        "between two candidates, or of candidates in an order."
    ),
]


@public
def read_ratings(path: str | Path, *, samples: str | Path | None = None) -> Ratings:
    """Read the errors that radiologists counted, from a file whose layout follows from its header.

    Parameters
    ----------
    path : str or path
        ReXVal's ``6_valid_raters_per_rater_error_categories.csv``, GREEN's table of it
        (``total_mean_error_radiologist_categories.csv``), RadEvalX's (``report_id``, ``error_type``, ``one`` to
        ``eight``, and a rater), or any table with one row for each pair, rater, error category and significance. The
        pair is a column ``pair_id``, or ``study_id`` (or ``study_number``) with ``candidate_type``, or the study alone.
    samples : str or path, optional
        The texts: ReXVal's ``50_samples_gt_and_candidates.csv``, or a table with the pair, ``reference`` and
        ``prediction``.

    Returns
    -------
    Ratings
        Pairs, raters, categories and the counts of each.

    Raises
    ------
    InputError
        If a file cannot be read, a column is missing, a count is not a whole number, or a pair lacks a rater or a text.

    Examples
    --------
    >>> ratings = mo.read_ratings("ratings.csv")
    >>> ratings.counts.shape
    (96, 3, 6, 2)
    """
    ratings = ratings_of_table(read_table(Path(path)))
    if samples is None:
        return ratings
    return with_texts(ratings, read_table(Path(samples)))


def ratings_of_table(table: Table) -> Ratings:
    """Read counted errors from a table in any layout of `read_ratings`."""
    if {"study_number", "error_category", "sig_mean_errors", "insig_mean_errors"} <= set(table.names):
        return _read_green(table)
    if {"report_id", "error_type", *_RADEVALX} <= set(table.names):
        return _read_radevalx(table)
    return _read_long(table)


def match_pairs(ratings: Rated, table: Table) -> tuple[npt.NDArray[np.int64], set[str]]:
    """Return the row of each pair in a table about the same pairs, int64[P], and the columns that name the pair.

    A column ``pair_id`` or ``pair`` names the pair; else study and candidate type; else the only id column. A column
    ``study_number`` has ReXVal's row numbers; another study column has the ids of the samples file, if that was read.
    """
    where = f"the pairs of {table.path}"
    rated = ratings.pairs
    if ratings.groups is not None:  # a report may be in several groups
        rated = _join_ids(ratings.studies, ratings.candidates or [])
    name = name_of(table, "pair")
    study, candidate = (name_of(table, role) for role in ("study", "candidate"))
    if not name and study and candidate and ratings.candidates is not None:
        by_number = study.lower() == "study_number" or ratings.study_ids is None
        rated = _join_ids(ratings.studies if by_number else ratings.study_ids or [], ratings.candidates)
        ids = _join_ids(labels_of(table, study, mimic=True), labels_of(table, candidate))
        names = {study, candidate}
        if ratings.groups is None:
            check_unique(rated, "ratings joined by study and candidate type")
    else:
        named = [name] if name else [study] if study else [n for n in table.names if n.lower() in _ID_NAMES]
        if len(named) != 1 or named[0] is None:
            raise InputError(
                str(table.path),
                "must say the pair of each row by a column pair_id, or by study_id and candidate_type",
                f"columns {table.header}",
                "Add or rename one.",
            )
        ids, names = labels_of(table, named[0], mimic=named[0] == study), {named[0]}
    check_unique(ids, where)
    row_of = {pair: row for row, pair in enumerate(ids)}
    if row_of.keys().isdisjoint(rated):
        raise InputError(
            where,
            "must contain ids of the rated pairs",
            f"none of {len(rated)}: ids there are like {shown(*ids[:1])}, rated pairs like {shown(*rated[:1])}",
            "Join them by the same ids.",
        )
    for names_of_pairs, rule, got in (
        (sorted(row_of.keys() - set(rated)), "must be among the rated ones", "{} that are not"),
        ([pair for pair in rated if pair not in row_of], "must be all the rated ones", "none for {} of them"),
    ):
        if names_of_pairs:
            raise InputError(
                where,
                rule,
                f"{got.format(len(names_of_pairs))}, first {shown(*names_of_pairs[:3])}",
                "Repair the file, or check that it is of these ratings.",
            )
    return np.array([row_of[pair] for pair in rated], np.int64), names


def _read_long(table: Table) -> Ratings:
    """Read a table with one row for each pair, rater, category and significance."""
    names = {role: name_of(table, role) for role in _NAMES}
    absent = [role for role in ("rater", "category", "significance", "count") if names[role] is None]
    if names["pair"] is None and names["study"] is None:
        absent.insert(0, "pair")
    if absent:
        raise InputError(
            "ratings",
            "must have a column for each of pair or study, rater, category, significance and count",
            f"none for {', '.join(absent)} in {table.path}",
            f"Name it like {' or like '.join(_NAMES[role][0] for role in absent)}.",
        )
    labels = labels_by_role(table, "pair", "study", "candidate", "rater", "category")
    significant = codes_of(table, str(names["significance"]), "true or false", _TRUTH)
    count = _counts(table, str(names["count"]))
    return _assemble(table, "counts by row", labels, significant, count)


def _read_green(table: Table) -> Ratings:
    """Read GREEN's table by position: its two blocks of raters have equal names, or pandas' `0.1` in the second."""
    ends = [table.names.index(name) for name in ("error_category", "sig_mean_errors", "insig_mean_errors")]
    blocks = [range(a + 1, b) for a, b in pairwise(ends)]
    raters = [[table.names[column].strip().removesuffix(".1") for column in block] for block in blocks]
    if not raters[0] or raters[0] != raters[1]:
        raise InputError(
            "ratings",
            "must have the same raters before sig_mean_errors and before insig_mean_errors",
            f"{len(raters[0])} and {len(raters[1])} columns, or other names, in {table.path}",
            "Fetch the file again.",
        )
    check_unique(raters[0], f"the raters of {table.path}")
    once = labels_by_role(table, "study", "candidate", "category")
    labels: dict[str, list[str]] = {role: [] for role in (*once, "rater")}
    significant: list[int] = []
    count: list[int] = []
    for is_significant, block in zip((1, 0), blocks, strict=True):
        for rater, column in zip(raters[0], block, strict=True):
            for role, cells in once.items():
                labels[role] += cells
            labels["rater"] += [rater] * table.n_rows
            significant += [is_significant] * table.n_rows
            count += _counts(table, column)
    return _assemble(table, "GREEN's columns of raters", labels, significant, count)


def _read_radevalx(table: Table) -> Ratings:
    """Read RadEvalX's counts. Without a column of raters, each report has one row for each significance."""
    name = next((n for n in table.names if n.lower() in (*_NAMES["rater"], *_ANNOTATORS)), None)
    by_row = {
        "study": labels_of(table, "report_id"),
        "rater": ["all"] * table.n_rows if name is None else labels_of(table, name),
    }
    significant = codes_of(table, "error_type", "significant or insignificant", {"significant": 1, "insignificant": 0})
    labels: dict[str, list[str]] = {role: cells * len(_RADEVALX) for role, cells in by_row.items()} | {
        "category": [str(n) for n in range(1, len(_RADEVALX) + 1) for _ in range(table.n_rows)]
    }
    count = [n for column in _RADEVALX for n in _counts(table, column)]
    return _assemble(table, "RadEvalX's columns of categories", labels, significant * len(_RADEVALX), count)


def _assemble(
    table: Table, layout: str, labels: dict[str, list[str]], significant: list[int], count: list[int]
) -> Ratings:
    """Return the counts of the rows of a table, after a check that each cell of the design occurs once.

    `labels` have the cells of each row by role, `significant` is 1 or 0, `layout` names the layout in `source`.
    """
    if not count:
        raise InputError("ratings", "must have rows", f"none in {table.path}", "Fetch the file again.")
    by_candidate = "pair" not in labels and "candidate" in labels
    if by_candidate:
        labels["pair"] = _join_ids(labels["study"], labels["candidate"])
    elif "pair" not in labels:
        labels["pair"] = labels["study"]
    labels.setdefault("study", labels["pair"])  # without studies, each pair is a study
    described = [*zip(*(labels[role] for role in ("study", "candidate") if role in labels), strict=True)]
    of_pair, other = cells_of_pairs(labels["pair"], described)
    if other is not None:
        raise InputError(
            f"every pair of {table.path}",
            "must be of one study and one candidate type",
            f"several for {shown(labels['pair'][other])}",
            "Repair the file.",
        )

    candidates = _candidate_order(labels["candidate"]) if "candidate" in labels else []
    studies = _ordered(labels["study"])
    if by_candidate:  # a pair without any row is absent, too
        of_pair = {f"{study}/{candidate}": (study, candidate) for study in studies for candidate in candidates}
        pairs = list(of_pair)
    else:
        positions = [{label: i for i, label in enumerate(axis)} for axis in (studies, candidates)]
        natural = {pair: i for i, pair in enumerate(_ordered(of_pair))}
        pairs = sorted(natural, key=lambda pair: (*map(dict.get, positions, of_pair[pair]), natural[pair]))
    axes = (pairs, _ordered(labels["rater"]), _ordered(labels["category"]))
    rows: list[Sequence[Any]] = [*(labels[role] for role in ("pair", "rater", "category")), significant]
    counts, times = arranged((*axes, [0, 1]), rows, np.array(count, np.int64))
    if (times != 1).any():
        i, j, k, s = (int(part) for part in np.argwhere(times != 1)[0])
        got = f"{times[i, j, k, s]} rows" if times[i, j, k, s] else "none"
        raise InputError(
            str(table.path),
            f"must have one row for each pair, rater, category and significance ({times.size:,})",
            f"{got} for pair {shown(axes[0][i])}, rater {shown(axes[1][j])}, category "
            f"{shown(axes[2][k])}, {('insignificant', 'significant')[s]} ({(times == 0).sum():,} absent, "
            f"{(times > 1).sum():,} doubled)",
            "Repair the file: no error is a row with 0.",
        )
    source = (
        f"{layout}: {len(pairs):,} pairs, {len(studies):,} studies, {len(axes[1])} raters, {len(axes[2])} error "
        f"categories, {counts.sum():,} errors"
    )
    return Ratings(
        pairs,
        [of_pair[pair][0] for pair in pairs],
        [of_pair[pair][1] for pair in pairs] if candidates else None,
        axes[1],
        axes[2],
        counts,
        source,
    )


def cells_of_pairs(pair_of_row: Sequence[str], cells: Sequence[Any]) -> tuple[dict[str, Any], int | None]:
    """Return the cell of each pair, and the first row with another cell than earlier rows of its pair, or None.

    A cell may be None in some rows of a pair; the pair has the cell of the others.
    """
    cell_of: dict[str, Any] = {}
    other = None
    for row, (pair, cell) in enumerate(zip(pair_of_row, cells, strict=True)):
        if cell_of.get(pair) is None:
            cell_of[pair] = cell
        elif other is None and cell is not None and cell != cell_of[pair]:
            other = row
    return cell_of, other


def arranged(
    axes: Sequence[Sequence[Any]], labels: Sequence[Sequence[Any]], values: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return values given by row as an array, and the number of rows of each of its cells; without rows it is 0.

    `axes` has the labels of each axis, `labels` the label of each row on each axis.
    """
    codes = []
    for axis, of_rows in zip(axes, labels, strict=True):
        code = {label: i for i, label in enumerate(axis)}
        codes.append([code[label] for label in of_rows])
    shape = tuple(map(len, axes))
    array, times = np.zeros(shape, values.dtype), np.zeros(shape, np.int64)
    array[tuple(codes)] = values
    np.add.at(times, tuple(codes), 1)
    return array, times


def with_texts(ratings: RatedSet, table: Table) -> RatedSet:
    """Return the rated set with the texts of a samples file; raise InputError if it does not fit."""
    types = set(ratings.candidates or ())
    if "gt_report" in table.names and types and types <= set(table.names):
        numbers = {str(row) for row in range(table.n_rows)}
        if set(ratings.studies) != numbers:
            raise InputError(
                "samples",
                "must have one row for each study_number from 0",
                f"{table.n_rows} rows in {table.path} for {len(set(ratings.studies))} studies",
                "Use the samples file of these ratings.",
            )
        ids = canonical_ids(table.column("study_id"), f"the studies of {table.path}")
        check_unique(ids, f"the studies of {table.path}")
        columns = {name: texts_of(table, name) for name in ("gt_report", *types)}
        numbered = [(int(study), kind) for study, kind in zip(ratings.studies, ratings.candidates or (), strict=True)]
        return replace(  # type: ignore[type-var]
            ratings,
            study_ids=[ids[row] for row, _ in numbered],
            references=[columns["gt_report"][row] for row, _ in numbered],
            predictions=[columns[kind][row] for row, kind in numbered],
        )
    columns_of = {role: [n for n in table.names if n.lower() in names] for role, names in _TEXT_NAMES.items()}
    if any(len(names) != 1 for names in columns_of.values()):
        raise InputError(
            "samples",
            "must have the columns gt_report and one for each candidate type, or the pair, reference and prediction",
            f"columns {table.header} in {table.path}",
            "Rename them.",
        )
    rows, _ = match_pairs(ratings, table)
    references, predictions = (texts_of(table, names[0]) for names in columns_of.values())
    return replace(  # type: ignore[type-var]
        ratings, references=[references[row] for row in rows], predictions=[predictions[row] for row in rows]
    )


def texts_of(table: Table, name: str) -> list[str | None]:
    """Return the cells of a column as texts; a missing text is None."""
    cells = table.column(name, is_text=True)
    return [None if is_missing(cell) else str(cell) for cell in cells]


def name_of(table: Table, role: str) -> str | None:
    """Return the column with a name of this role, or None; raise InputError if there are several."""
    names = [name for name in table.names if name.lower() in _NAMES[role]]
    if len(names) > 1:
        raise InputError(str(table.path), f"must have one column for the {role}", shown(*names), "Keep or rename one.")
    return names[0] if names else None


def labels_by_role(table: Table, *roles: str) -> dict[str, list[str]]:
    """Return, by role, the cells of the columns with these roles, as text; roles that no column has are left out."""
    names = {role: name_of(table, role) for role in roles}
    return {role: labels_of(table, name, mimic=role == "study") for role, name in names.items() if name is not None}


def labels_of(table: Table, name: str, *, mimic: bool = False) -> list[str]:
    """Return the ids of a column as text. With `mimic`, study ids of MIMIC-CXR lose their prefix."""
    return canonical_ids(table.column(name), f"column {shown(name)} of {table.path}", mimic=mimic)


def codes_of(table: Table, name: str, rule: str, code_of: Mapping[str, int]) -> list[int]:
    """Return the codes of the words in a column, in lower case; raise InputError, with `rule`, for a word without."""
    words = written(table.column(name)).str.to_lowercase()
    return _in_every_row(table, name, rule, words.replace_strict(code_of, default=None))


def _counts(table: Table, name: str | int) -> list[int]:
    """Return a column of counts; raise InputError for anything but a whole number."""
    counts = numbers_of(table.column(name))
    counts = counts.set((counts < 0) | (counts >= 1e9) | (counts != counts.floor()), None)
    return _in_every_row(table, name, "a whole number from 0", counts)


def _in_every_row(table: Table, name: str | int, rule: str, values: "pl.Series") -> list[int]:
    """Return the values of a column as integers; raise InputError, with `rule`, if a row has none."""
    if values.null_count():
        called = table.names[name] if isinstance(name, int) else name
        raise InputError(
            f"column {shown(called)} of {table.path}",
            f"must hold {rule} in every row",
            f"none in row {(values.is_null().arg_max() or 0) + 1}",
            "Repair it.",
        )
    return [int(value) for value in values]


def _join_ids(studies: Iterable[str], candidates: Iterable[str]) -> list[str]:
    """Return the ids "study/candidate" of pairs."""
    return [f"{study}/{candidate}" for study, candidate in zip(studies, candidates, strict=True)]


def _ordered(labels: Iterable[str]) -> list[str]:
    """Return the distinct labels, in numerical order if all are numbers, else in alphabetical order."""
    distinct = sorted(set(labels))
    return sorted(distinct, key=int) if all(label.isdecimal() for label in distinct) else distinct


def _candidate_order(labels: Iterable[str]) -> list[str]:
    """Return the distinct candidate types, in the order of table S3 of Yu et al. if they are ReXVal's."""
    distinct = set(labels)
    return [name for name in ORACLES if name in distinct] if distinct <= set(ORACLES) else _ordered(distinct)
