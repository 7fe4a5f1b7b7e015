"""Which reports and cells are missing, empty or without words: one rule for every file and container."""

import re
from collections.abc import Sequence

from metric_oracle.errors import InputError

# What pandas writes and reads for a missing value, alone in a cell. "None." with its full stop is a report.
MISSING_WORDS = frozenset(
    ("#N/A", "#N/A N/A", "#NA", "<NA>", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null")
)
_ALPHANUMERIC = re.compile(r"[^\W_]")


def is_missing(cell: object) -> bool:
    """Tell whether a cell is missing: None, NaN, pandas' NA and NaT, and the words that stand for them in texts."""
    if isinstance(cell, str):
        return cell.strip() in MISSING_WORDS
    return cell is None or (isinstance(cell, float) and cell != cell) or type(cell).__name__ in ("NAType", "NaTType")


def state_of(text: str | None) -> str:
    """Return "missing" (None or a word for it), "empty" (blank), "tokenless" (no alphanumeric character) or ""."""
    if text is None or is_missing(text):
        return "missing"
    return "" if _ALPHANUMERIC.search(text) else "tokenless" if text.strip() else "empty"


def checked_texts(texts: Sequence[object], function: str, where: str) -> list[str | None]:
    """Return texts with None for missing values that are no text; anything else that is no text is an error."""
    for place, text in enumerate(texts):
        if not isinstance(text, str) and not is_missing(text):
            msg = f"{function}: {where} must be text or None; got {type(text).__name__} at place {place}. Drop it."
            raise InputError(msg)
    return [text if isinstance(text, str) else None for text in texts]
