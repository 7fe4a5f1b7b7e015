"""Texts of reports: whether one has content, the form in which texts are compared, and marks that are no words.

A report without content is missing, empty or tokenless. Files and memory have the same rules.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.sections import headings_of

# What pandas writes and reads for a missing value, alone in a cell. "None." with its full stop is a report.
MISSING_WORDS = frozenset(
    ("#N/A", "#N/A N/A", "#NA", "<NA>", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null")
)
_ALPHANUMERIC = re.compile(r"[^\W_]")

# Marks of files and programs within texts, such as ``['...']``, which count as words: counted for a note. Texts stay
# as they are, because a model may have written the marks.
_QUOTES = "'\"`´\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a"
# `"A" and "B"` begins and ends with a quote, too, but closes one before it opens the next.
_TWO_QUOTATIONS = rf"(?!.[^{_QUOTES}]*[{_QUOTES}][\s,.;:](?:.*[\s(])?[{_QUOTES}][^\s{_QUOTES}])"
_WHOLE = (
    ("as written bytes (b'...')", r"\s*[bur](['\"]).*\1\s*"),
    (
        "as a written list (['...'])",
        r"\s*(?:(?:\w{1,12}\()?[\[({]+|np\.\w{1,12}\()\s*[bur]?['\"].*[\])}]+\s*|.*\bdtype: \w+\s*",
    ),
    ("in brackets, as a written list", r"\s*\[[^\[\]]*\]\s*"),
    ("in quotes", rf"\s*=?(?=[{_QUOTES}]){_TWO_QUOTATIONS}[{_QUOTES}].*[{_QUOTES}]\s*"),
)
_WITHIN = (
    # "left\right" and "and\or" are no escapes.
    (
        r"with escapes (\n, \")",
        r"\\(?:n|[rt](?![a-z])|[\"'/\\\s]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|$)|\"\"|_x000[9AaDd]_",
    ),
    (
        "with HTML (&amp;)",
        r"&(?:[a-z]{2,6}|#\d{1,5}|#x[0-9a-fA-F]{1,4});|</?(?i:br|p|div|b|i|u|em|strong|span|ul|ol|li|h\d)\s*/?>",
    ),
    # A turn of a chat, or a part of an answer.
    (
        "with a template of a model (ASSISTANT:)",
        (
            r"\[/?INST\]|<</?SYS>>|</?(?:think|thinking|reasoning|answer|solution|output|response|report)>|\\boxed\{"
            r"|\b(?:ASSISTANT|USER|HUMAN|SYSTEM|GPT|BOT)\s*:"
            r"|(?m:^[ \t#*]*(?:Assistant|User|Human|System|Instruction|Input|Output|Response|Answer)[*\s]*:)"
        ),
    ),
    # A word in angle or square brackets (<end_of_turn>, [UNK]) that stands for nothing left out (<XXXX>); startseq;
    # and what joins parts of words.
    (
        "with tokens of a model (</s>)",
        (
            r"</?(?!X+>|script>)[A-Za-z_][\w-]*>|<[|\uff5c][^<>\n]{1,40}[|\uff5c]>|<0x[0-9A-F]{2}>|\[(?:[A-Z]{3,6}|gMASK|unused\d+)\]"
            r"|\b(?:start|end|begin|stop)_?(?:seq|sequence|token)\b|[\u0120\u010a\u2581]|(?:^|(?<=\s))##\w|\w@@(?!\S)"
        ),
    ),
)
_PATTERNS = [(kind, re.compile(rf"(?:{pattern})\Z", re.DOTALL)) for kind, pattern in _WHOLE]
_SEARCHED = [(kind, re.compile(pattern)) for kind, pattern in _WITHIN]

# A quick look, because reports rarely have any: what each of `_PATTERNS` needs, and each of `_SEARCHED`.
_QUOTE_OR_LIST, _DTYPE = re.compile(rf"[{_QUOTES}\[]"), "dtype: "
_CHARACTER = re.compile(r"[\\\"<\[&#@:\u0120\u010a\u2581]|_x000|seq|token")
_DECOMPOSED = "with letters and their accents apart (Unicode NFD)"
_HEADED = "with a heading (Findings:)"  # where most texts have both, they were cut


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


def folded(text: str) -> str:
    """Return a text without differences of case, white space and Unicode form (NFKC)."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def count_marks(texts: Iterable[str]) -> Counter[str]:
    """Return kind of mark -> number of texts that stand in it or have it within; each text counts for one kind."""
    counts: Counter[str] = Counter()
    for text in texts:
        kind = None
        if _QUOTE_OR_LIST.search(text) or _DTYPE in text:
            kind = next((kind for kind, pattern in _PATTERNS if pattern.match(text)), None)
        if kind is None and _CHARACTER.search(text):
            kind = next((kind for kind, pattern in _SEARCHED if pattern.search(text)), None)
        if kind is None and headings_of(text):
            kind = _HEADED
        if kind is None and not text.isascii() and not unicodedata.is_normalized("NFC", text):
            kind = _DECOMPOSED
        if kind is not None:
            counts[kind] += 1
    return counts


def remarks(words: Counter[str], marks: Counter[str]) -> str:
    """Return a note on words that stood for missing reports, such as "nan", and on marks within texts; "" without.

    `words` counts the reports by word, and `marks` by the kinds of `count_marks`.
    """
    listed = ", ".join(f'{count:,} "{word}"' for word, count in words.most_common())
    marked = ", ".join(f"{count:,} {kind}" for kind, count in marks.most_common())
    notes = [f"words that stand for a missing report: {listed}"] if words else []
    return "; ".join(notes + ([f"marks that count as words of the reports: {marked}"] if marks else []))
