"""Values that a user gave: whether one can be report text, which is patient data, and how messages leave it out.

Reports get into every argument: as the path of a file, as a name, as an option. One rule says what can be a report,
for the command line and Python, and `called` in `errors` applies it to every message.
"""

import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

LONGEST = 60  # characters of a name that messages show
_FILE = re.compile(r"\S{1,60}\.[A-Za-z0-9]{1,8}")  # ends as the name of a file does
_LABEL = re.compile(r"(?=.{1,60}$)[\w(][\w()/#%&+:-]*(?: [\w()/#%&+:-]+){1,4}")
_REASONS = ("leave_out", "--leave-out")  # why a rater is left out
_NAME_BYTES, _PATH_BYTES = 255, 4095  # of Linux and macOS


class Hidden(NamedTuple):
    """A text that messages do not show, and what stands for it."""

    text: str
    instead: str


def is_possible_path(text: str) -> bool:
    """Return whether the system could have a file at this path."""
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return b"\0" not in raw and len(raw) <= _PATH_BYTES and max(map(len, raw.split(b"/"))) <= _NAME_BYTES


def is_text(value: str, *, may_be_report: bool = False) -> bool:
    """Return whether a value can be report text, which messages must not show.

    A value with white space, with more than `LONGEST` characters or in a script without capitals, such as Chinese, can
    be, unless it ends as a file name does. Of a path only the part that does not exist is looked at, and of NAME=FILE
    only NAME where FILE exists. With `may_be_report`, in the place of reports, so can a word without slash or ending.
    """
    if not value or _is_name(value, may_be_report):
        return False
    if not is_possible_path(value):
        return True
    name, mark, file = value.partition("=")
    if mark and os.path.lexists(file) and (_is_name(name, False) or _LABEL.fullmatch(name)):
        return False
    parts = PurePath(value).parts
    n = len(parts)
    while n and not os.path.lexists(PurePath(*parts[:n])):
        n -= 1
    rest = os.path.join("", *parts[n:])
    return n < len(parts) and not _is_name(rest, may_be_report and n == 0)


def _is_name(value: str, may_be_report: bool) -> bool:
    """Return whether a value is a name by its characters and its length; see `is_text`."""
    if len(value) > LONGEST or re.search(r"\s", value):
        return False
    if _FILE.fullmatch(value):
        return True
    return not (may_be_report and "/" not in value) and all(unicodedata.category(c) != "Lo" for c in value)


def texts_in(argument: str, value: Any) -> Iterator[Hidden]:
    """Yield, as `Hidden`, those strings and paths in an argument's value that can be report text, and parts that can.

    Names of systems (keys, and NAME of NAME=FILE) and reasons may be a few words.
    """
    given = [(text, is_label or argument in _REASONS) for text, is_label in _strings(value)]
    for i, (text, is_label) in enumerate(given, 1):
        instead = f"<text {i} given as {argument}>" if len(given) > 1 else f"<text given as {argument}>"
        for part in dict.fromkeys([text, *_parts(text)]):
            if part and is_text(part) and not (is_label and _LABEL.fullmatch(part)):
                yield Hidden(part, instead)


def _strings(value: Any) -> Iterator[tuple[str, bool]]:
    """Yield the strings and paths in a value, also within dicts and other containers, and whether each is a key."""
    if isinstance(value, str | PurePath):
        yield str(value), False
    elif isinstance(value, Mapping):
        for key, content in value.items():
            yield from ((text, True) for text, _ in _strings(key))
            yield from _strings(content)
    elif hasattr(value, "dtype") and hasattr(value, "tolist"):  # an array, or a column of pandas
        if value.dtype.kind not in "biufcmM":
            yield from _strings(value.tolist())
    elif isinstance(value, Collection) and not isinstance(value, range | bytes | bytearray | memoryview):
        for item in value:
            yield from _strings(item)


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a typed value that a message may show alone: of a list, of NAME=FILE, of a path."""
    for item in (text, *text.split(",")):
        name, mark, rest = item.partition("=")
        for part in (item, rest) if mark and _LABEL.fullmatch(name) else (item, name, rest):
            path = PurePath(part)
            yield from (part.strip(), str(path), *path.parts, path.stem)


def without(line: str, hidden: Iterable[Hidden]) -> str:
    """Return a message in which what stands for each hidden text replaces it, together with quotes around it."""
    folded = _folded(line)
    within = [(text, instead) for text, instead in hidden if any(_folded(form) in folded for form in _forms(text))]
    for text, instead in sorted(within, key=lambda found: -len(found[0])):
        line = _pattern(text).sub(lambda _, instead=instead: instead, line)  # type: ignore[misc]
    return line


def _folded(text: str) -> str:
    """Return a text in which letters are equal that a pattern takes for equal without regard to case."""
    return text.replace("İ", "i").lower().upper()


def _forms(text: str) -> dict[str, None]:
    """Return a text as messages write it: as it is, and as `repr` does."""
    return dict.fromkeys((text, repr(text)[1:-1]))


def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a text in a message."""
    forms = "|".join(map(re.escape, _forms(text)))
    return re.compile(rf"(?<!\w)(?:'(?:{forms})'|\"(?:{forms})\"|(?:{forms}))(?!\w)", re.IGNORECASE)
