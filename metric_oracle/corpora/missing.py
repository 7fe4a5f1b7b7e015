"""The three states of a report without content: missing, empty, tokenless. Files and memory have the same rules."""

import re
from collections.abc import Sequence

from metric_oracle.base.errors import InputError

# What pandas writes and reads for a missing value, alone in a cell. "None." with its full stop is a report.
MISSING_WORDS = frozenset(
    ("#N/A", "#N/A N/A", "#NA", "<NA>", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null")
)
_ALPHANUMERIC = re.compile(r"[^\W_]")


def is_missing(cell: object) -> bool:
    """Return whether a cell is missing: None, NaN, pandas' NA and NaT, or a word for a missing value such as "nan"."""
    if isinstance(cell, str):
        return cell.strip() in MISSING_WORDS
    return cell is None or (isinstance(cell, float) and cell != cell) or type(cell).__name__ in ("NAType", "NaTType")


def state_of(text: str | None) -> str:
    """Return the state of a text: "missing" (None or a word such as "nan"), "empty" (blank), "tokenless", or "".

    A tokenless text has no letter or digit; "" means that it has content.
    """
    if text is None or is_missing(text):
        return "missing"
    return "" if _ALPHANUMERIC.search(text) else "tokenless" if text.strip() else "empty"


def checked_texts(texts: Sequence[object], where: str) -> list[str | None]:
    """Return strings as they are, and None for other missing values; `where` names the texts in messages.

    Raise InputError for any other value. A string such as "nan" stays, although `is_missing` says that it is missing.
    """
    if {str}.issuperset(map(type, texts)):
        return list(texts)  # type: ignore[arg-type]
    for position, text in enumerate(texts):
        if not isinstance(text, str) and not is_missing(text):
            raise InputError(
                where,
                "must be text or None",
                f"{type(text).__name__} at position {position}",
                "Convert it to text, or pass None for a missing report.",
            )
    return [text if isinstance(text, str) else None for text in texts]
