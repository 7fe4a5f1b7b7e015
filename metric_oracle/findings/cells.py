"""How a number is printed in a table: rounded, over its interval, as a p-value. No other module formats one.

Two layers: texts of numbers (`number`, `ends`, `over`, `p_value`), and makers of columns (`number_of`, `ends_of`, ...),
functions from a record, a row of the numbers of a result, to the text of its cell. The lines of a cell are separated by
line breaks. A value that does not exist, None or NaN, is a dash. † marks an interval that says nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

Record = Mapping[str, Any]
Format = Callable[[Record], str]

NOTHING = "–"
DAGGER = "†"
FORM = "z.4f"  # of a score
ALIKE = f"{DAGGER} The values are equal, or nearly: the interval says nothing."


def number(value: float | None, form: str = FORM, *, scale: float = 1, unit: str = "") -> str:
    """Return a number, times `scale` and with `unit` behind it, or a dash if there is none."""
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
    """Return the ends of an interval in brackets, behind its `kind`; a dash if there are none.

    The `kind`, such as "95% CI", stands where a cell has other brackets, too. † marks values that are `alike`.
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
    """Return a number over its interval; the number alone where there is no interval."""
    text = number(value, form, scale=scale, unit=unit)
    if text == NOTHING or low is None or low != low:
        return text
    return f"{text}\n{ends(low, high, form, scale=scale, alike=alike)}"


def p_value(value: float | None) -> str:
    """Return a p-value as papers print it."""
    return NOTHING if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def scientific(value: float | None) -> str:
    """Return a number as its digits and a power of ten, such as 3.79e-3, or a dash if there is none."""
    if value is None:
        return NOTHING
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits}e{int(exponent)}"


def arrow(direction: str) -> str:
    """Return the arrow behind the name of a metric: up where higher is better, down where lower is."""
    return "↑" if direction == "higher" else "↓"


def intervals_note(used: Mapping[str, Any]) -> str:
    """Return the sentence on bootstrap intervals over studies, from their entry in a signature."""
    method = {"bca": "BCa", "percentile": "percentile"}[used["method"]]
    return f"Intervals: {method} bootstrap over studies, {used['resamples']:,} resamples, seed {used['seed']}."


# Columns


def text_of(name: str) -> Format:
    """Return the column of the field `name`, a text."""

    def cell(record: Record) -> str:
        return str(record[name])

    return cell


def number_of(name: str, form: str = FORM) -> Format:
    """Return the column of the field `name`, a number."""

    def cell(record: Record) -> str:
        return number(record[name], form)

    return cell


def ends_of(low: str = "low", high: str = "high", form: str = FORM) -> Format:
    """Return the column of an interval between two fields, marked where the field `degenerate` is true."""

    def cell(record: Record) -> str:
        return ends(record[low], record[high], form, alike=bool(record.get("degenerate")))

    return cell


def over_of(name: str, low: str, high: str, form: str = FORM, *, scale: float = 1, unit: str = "") -> Format:
    """Return the column of the field `name` over the interval between two other fields."""

    def cell(record: Record) -> str:
        return over(record[name], record[low], record[high], form, scale=scale, unit=unit)

    return cell


def p_of(name: str) -> Format:
    """Return the column of a p-value, the field `name`."""

    def cell(record: Record) -> str:
        return p_value(record[name])

    return cell


def scientific_of(name: str) -> Format:
    """Return the column of the field `name`, a number, as its digits and a power of ten."""

    def cell(record: Record) -> str:
        return scientific(record[name])

    return cell
