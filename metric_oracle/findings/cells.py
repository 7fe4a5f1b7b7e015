"""How a number is printed in a table: rounded, over its interval, as a p-value. No other module formats one.

Two layers: texts of numbers (`number`, `ends`, `over`, `p_value`), and makers of columns (`number_of`, `ends_of`, ...),
functions from a row, a row of the numbers of a result, to the text of its cell. The lines of a cell are separated by
line breaks. A value that does not exist, None or NaN, is a dash. † marks an interval that says nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]
Format = Callable[[Row], str]

NOTHING = "–"
DAGGER = "†"
FORM = "z.4f"  # of a score
ALIKE = f"{DAGGER} The values are equal, or nearly: the interval says nothing."


def number(value: float | None, form: str = FORM, *, scale: float = 1, unit: str = "") -> str:
    """Return the text of a number, times `scale` and with `unit` behind it; a dash for None or NaN.

    `form` is a format such as ".3f".
    """
    return NOTHING if value is None or value != value else f"{scale * value:{form}}{unit}"


def ends(
    low: float | None,
    high: float | None,
    form: str = FORM,
    *,
    scale: float = 1,
    kind: str = "",
    alike: bool = False,
) -> str:
    """Return the text of the ends of an interval, times `scale`, in brackets: "[0.1 0.2]"; a dash for None or NaN.

    `form` is a format such as ".3f". `kind`, such as "95% CI", is put before the ends where a cell has other brackets,
    too. `alike` marks the interval with a dagger, because the values are equal and it says nothing.
    """
    if low is None or high is None or low != low:
        return NOTHING
    return f"[{kind}{' ' if kind else ''}{scale * low:{form}} {scale * high:{form}}]{DAGGER if alike else ''}"


def over(
    value: float | None,
    low: float | None,
    high: float | None,
    form: str = FORM,
    *,
    scale: float = 1,
    unit: str = "",
    alike: bool = False,
) -> str:
    """Return the text of a number with its interval in a second line, or alone where there is none.

    `form` is a format such as ".3f". None and NaN give a dash. The number and the ends are multiplied by `scale`, and
    `unit` is put behind the number. `alike` marks the interval with a dagger.
    """
    text = number(value, form, scale=scale, unit=unit)
    if text == NOTHING or low is None or low != low:
        return text
    return f"{text}\n{ends(low, high, form, scale=scale, alike=alike)}"


def p_value(value: float | None) -> str:
    """Return the text of a p-value: to three decimals, "<0.001" below that, a dash for None."""
    return NOTHING if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def scientific(value: float | None) -> str:
    """Return the text of a number as three digits and a power of ten, such as 3.79e-3; a dash for None."""
    if value is None:
        return NOTHING
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits}e{int(exponent)}"


def arrow(direction: str) -> str:
    """Return the arrow behind the name of a metric: up if `direction` is "higher", the better one, else down."""
    return "↑" if direction == "higher" else "↓"


def intervals_note(used: Mapping[str, Any]) -> str:
    """Return the sentence on bootstrap intervals over studies, from their entry: method, resamples and seed."""
    method = {"bca": "BCa", "percentile": "percentile"}[used["method"]]
    return f"Intervals: {method} bootstrap over studies, {used['resamples']:,} resamples, seed {used['seed']}."


# Columns


def text_of(name: str) -> Format:
    """Return the function that prints the field `name` of a row, whatever its type, as text."""

    def cell(row: Row) -> str:
        return str(row[name])

    return cell


def number_of(name: str, form: str = FORM) -> Format:
    """Return the function that prints the field `name` of a row, a number, by the format `form`; see `number`."""

    def cell(row: Row) -> str:
        return number(row[name], form)

    return cell


def ends_of(low: str = "low", high: str = "high", form: str = FORM) -> Format:
    """Return the function that prints an interval of a row, whose ends are the fields `low` and `high`; see `ends`.

    A dagger marks it where the row's field `degenerate` is true.
    """

    def cell(row: Row) -> str:
        return ends(row[low], row[high], form, alike=bool(row.get("degenerate")))

    return cell


def over_of(name: str, low: str, high: str, form: str = FORM, *, scale: float = 1, unit: str = "") -> Format:
    """Return the function that prints the field `name` of a row over the interval of two fields; see `over`.

    The fields `low` and `high` are its ends. No dagger marks it.
    """

    def cell(row: Row) -> str:
        return over(row[name], row[low], row[high], form, scale=scale, unit=unit)

    return cell


def p_of(name: str) -> Format:
    """Return the function that prints the field `name` of a row, a p-value; see `p_value`."""

    def cell(row: Row) -> str:
        return p_value(row[name])

    return cell


def scientific_of(name: str) -> Format:
    """Return the function that prints the field `name` of a row as digits and a power of ten; see `scientific`."""

    def cell(row: Row) -> str:
        return scientific(row[name])

    return cell
