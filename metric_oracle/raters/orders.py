"""Orders of candidates: preferences between two candidates, and chains of candidates graded from better to worse.

Only candidates of one group can be compared: the two of a preference, or those of a chain. Both become grades (larger
is worse) with such groups, so that everything that reads rated sets reads them.
"""

from collections.abc import Mapping

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.tables import Table
from metric_oracle.raters.grades import Grades, assemble, texts_by_role
from metric_oracle.raters.rank_correlation import ACCURACY, TIES, WHOLE, WITHIN
from metric_oracle.raters.ratings import labels_by_role, labels_of, texts_of

PREFERENCE, ORDER = "preference", "order"  # columns, and names of the grades
CHAIN = "chain"  # column
# Grades of the candidates a and b: their mean over raters is the share of raters who prefer the other one.
_GRADES: Mapping[str, tuple[float, float]] = {"a": (0.0, 1.0), "b": (1.0, 0.0), "tie": (0.5, 0.5)}
_CANDIDATES = ("candidate_a", "candidate_b")


def read_preferences(table: Table) -> Grades:
    """Read which of two candidates each rater prefers; a row for each comparison and rater.

    Columns: ``study_id``; ``preference`` (a, b or tie); optionally ``candidate_a`` and ``candidate_b`` (names, by
    default a and b), a rater, and the texts ``reference``, ``prediction_a`` and ``prediction_b``. A comparison may be
    given the other way round for another rater. Each comparison is a group, studies may have several.
    """
    labels = _labels(table)
    candidates = _candidates(table)
    cells = table.column(PREFERENCE)
    texts = {
        name: texts_of(table, name) for name in ("reference", "prediction_a", "prediction_b") if name in table.names
    }
    first_row: dict[tuple[str, frozenset[str]], int] = {}
    row_of: dict[tuple[int, str], int] = {}
    long: dict[str, list[str]] = {name: [] for name in ("pair", "study", "candidate", "rater", "group")}
    values: list[float] = []
    rows: list[int] = []
    long_texts: dict[str, list[str | None]] = {"reference": [], "prediction": []}
    for row, (study, rater, cell) in enumerate(zip(labels["study"], labels["rater"], cells, strict=True)):
        names = (candidates[0][row], candidates[1][row])
        grades = _GRADES.get(str(cell).strip().lower())
        if grades is None:
            raise _broken(table, PREFERENCE, "hold a, b or tie in every row", "none of them", row)
        if names[0] == names[1]:
            raise _broken(table, "candidate_b", "name another candidate than candidate_a", "the same", row)
        first = first_row.setdefault((study, frozenset(names)), row)
        if row_of.setdefault((first, rater), row) != row:
            rule = "give each rater's preference between two candidates once"
            raise _broken(table, PREFERENCE, rule, f"the one of row {row_of[first, rater] + 1} again", row)
        sides = zip("ab", names, grades, strict=True)
        for side, name, grade in sides if names[0] == candidates[0][first] else [*sides][::-1]:
            other = names[1] if name == names[0] else names[0]
            group = f"{study}/{candidates[0][first]}/{candidates[1][first]}"
            long["pair"].append(f"{study}/{name}/{other}")
            for key, label in (("study", study), ("candidate", name), ("rater", rater), ("group", group)):
                long[key].append(label)
            values.append(grade)
            rows.append(row + 1)
            for key, column in (("reference", "reference"), ("prediction", f"prediction_{side}")):
                long_texts[key].append(texts[column][row] if column in texts else None)
    _check_complete(table, len(first_row), labels["rater"], "comparison")
    given_texts = {key: cells for key, cells in long_texts.items() if any(name.startswith(key) for name in texts)}
    return assemble(table, PREFERENCE, {**long, **given_texts}, values, (ACCURACY, TIES), rows)


def read_orders(table: Table) -> Grades:
    """Read candidates in a stated order; a row for each candidate, and for each rater if there are several.

    Columns: ``study_id``; ``order`` (a number, larger is worse, equal numbers are a tie); optionally ``chain`` (a study
    may have several, such as one for each kind of error), ``candidate_type`` (by default "level" and the number), a
    rater, and the texts ``reference`` and ``prediction``.
    """
    labels = _labels(table)
    values = table.numbers(ORDER)
    chains = labels_of(table, CHAIN) if CHAIN in table.names else None
    if "candidate" not in labels:
        levels = [f"level {value:g}" for value in values]
        labels["candidate"] = (
            levels if chains is None else [f"{c} {level}" for c, level in zip(chains, levels, strict=True)]
        )
    keys = [labels["study"], *([] if chains is None else [chains])]
    groups = ["/".join(key) for key in zip(*keys, strict=True)]
    labels |= {"group": groups, "pair": ["/".join(k) for k in zip(groups, labels["candidate"], strict=True)]}
    row_of: dict[tuple[str, str], int] = {}
    for row, key in enumerate(zip(labels["pair"], labels["rater"], strict=True)):
        if row_of.setdefault(key, row) != row:
            rule = "give each candidate of a chain once for each rater"
            step = "Name the candidates in a column candidate_type, or keep one row."
            raise _broken(table, ORDER, rule, f"the one of row {row_of[key] + 1} again", row, step)
    _check_complete(table, len(set(labels["pair"])), labels["rater"], "candidate")
    return assemble(table, ORDER, {**labels, **texts_by_role(table)}, values, (ACCURACY, WITHIN, WHOLE))


def _labels(table: Table) -> dict[str, list[str]]:
    """Return, by role, study, rater ("all" without a column) and, if known, candidate of each row."""
    labels = labels_by_role(table, "study", "candidate", "rater")
    if "study" not in labels:
        raise InputError(
            str(table.path),
            "must have a column study_id, as candidates are compared within a study",
            f"columns {table.header}",
            "Add or rename one.",
        )
    if not table.n_rows:
        raise InputError(str(table.path), "must have rows", "none", "Fetch the file again.")
    return {"rater": ["all"] * table.n_rows, **labels}


def _candidates(table: Table) -> list[list[str]]:
    """Return the names of the first and of the second candidate of each row, by default "a" and "b"."""
    named = [name for name in _CANDIDATES if name in table.names]
    if len(named) == 1:
        raise InputError(
            str(table.path),
            "must have both columns candidate_a and candidate_b, or neither",
            f"{named[0]}",
            "Add the other one.",
        )
    if named:
        return [labels_of(table, name) for name in _CANDIDATES]
    return [["a"] * table.n_rows, ["b"] * table.n_rows]


def _check_complete(table: Table, n: int, raters: list[str], noun: str) -> None:
    """Raise InputError unless every rater judged all `n` comparisons: a missing judgement is not a tie.

    `raters` has the rater of each row, `noun` names what is judged.
    """
    n_raters = len(set(raters))
    if table.n_rows != n * n_raters:
        raise InputError(
            str(table.path),
            f"must have one row for each {noun} and rater ({n} x {n_raters})",
            str(table.n_rows),
            "Complete it, or leave out what not all raters judged.",
        )


def _broken(table: Table, column: str, rule: str, got: str, row: int, step: str = "Repair it.") -> InputError:
    """Return the error for a cell that breaks a rule; `row` counts from 0."""
    return InputError(f"column {shown(column)} of {table.path}", f"must {rule}", f"{got} in row {row + 1}", step)
