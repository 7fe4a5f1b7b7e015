"""The form in which texts are compared: equal up to case, white space and Unicode form."""

import unicodedata


def folded(text: str) -> str:
    """Return a text without differences of case, white space and Unicode form (NFKC)."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())
