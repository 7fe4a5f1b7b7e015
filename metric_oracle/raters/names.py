"""How tables and pages name kinds of errors, raters, candidates, categories and statistics; the cells of agreement."""

from metric_oracle.findings.cells import Format, Row, ends, number, over, p_of
from metric_oracle.raters.rank_correlation import ACCURACY, SPEARMAN, TAU, TIES, WHOLE, WITHIN
from metric_oracle.raters.ratings import CATEGORIES, ORACLES

KIND_TITLES = {"total": "total number of errors", "significant": "number of clinically significant errors"}
_KIND_NAMES = {"total": "sig. and\ninsig. errors", "significant": "sig. errors"}
_FORM = "z.3f"


def kind_name(kind: str) -> str:
    """Return the name of a kind of errors or grades in tables, in one or two lines."""
    return _KIND_NAMES.get(kind, kind)


def kind_in_line(kind: str) -> str:
    """Return the name of a kind of errors or grades in tables, in one line."""
    return kind_name(kind).replace("\n", " ")


def rater_name(rater: str) -> str:
    """Return the name of a rater, such as "Rater 3" for "3"."""
    return f"Rater {rater}" if rater.isdecimal() else rater


def candidate_name(candidate: str) -> str:
    """Return the name of a candidate type, for ReXVal's that of the paper."""
    return ORACLES.get(candidate, candidate)


def error_name(category: str) -> str:
    """Return the short name of an error category, such as "Error 3" for "3"."""
    return f"Error {category}" if category.isdecimal() else category


def category_title(category: str) -> str:
    """Return the short name of an error category, with its meaning if it is one of ReXVal's."""
    return f"{error_name(category)} ({CATEGORIES[category]})" if category in CATEGORIES else error_name(category)


def agreement_cell(row: Row) -> str:
    """Return the value over its percentile interval, or "undefined" if all scores or all ratings are equal."""
    if row["value"] is None:
        return "undefined\n(all equal)"
    return over(row["value"], row["low"], row["high"], _FORM)


def _difference_cell(row: Row) -> str:
    return f"{number(row['value'], f'+{_FORM}')}\n{ends(row['low'], row['high'], _FORM)}"


# Columns of the tests of a difference.
TEST: dict[str, Format] = {"difference": _difference_cell, "p": p_of("p_value"), "p adjusted": p_of("p_adjusted")}


# Statistics

SYMBOLS = {TAU: "τ", SPEARMAN: "ρ"}
TITLES = {
    TAU: "Kendall tau-b",
    SPEARMAN: "Spearman rank correlation",
    WITHIN: "Kendall tau-b within studies",
    ACCURACY: "Pairwise accuracy within studies",
    TIES: "Accuracy with ties within studies",
    WHOLE: "Groups in the right order",
}
ACCURACY_NOTE = (
    "Accuracy: of the candidates that the radiologists tell apart, how many the metric orders alike, a tie being half; "
    "0.5 is chance."
)
MORE_NOTES = {
    TIES: "Accuracy with ties: of all comparisons, how many have the same outcome (better, worse or tied).",
    WHOLE: "Groups in order: share of groups, such as the candidates of a study, that the metric orders correctly.",
}


def statistic_name(statistic: str) -> str:
    """Return the name of a statistic within a sentence."""
    return TITLES[TAU] if statistic == TAU else statistic
