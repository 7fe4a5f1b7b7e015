"""Values of options that are several in one text: names of metrics, NAME=FILE and A,B."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from metric_oracle.base.arguments import check_path
from metric_oracle.base.errors import InputError
from metric_oracle.metrics import ALIASES, METRICS, find_metric, get_metric
from metric_oracle.records import COMPOSITE

METRIC = ("-m", "--metric", "--metrics")


def split_names(given: Sequence[str]) -> list[str]:
    """Return names that were given by repeating an option or separated by commas."""
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def one_metric(metrics: Sequence[str]) -> str:
    """Return the metric given with --metric, or the names of a sum joined by +.

    Raise InputError if there are several or none, or a name is not in the registry.
    """
    names = split_names(metrics)
    for part in [part for name in names for part in name.split("+")]:
        if part != COMPOSITE and find_metric(part) is None and not re.fullmatch(r"[\w:.-]{1,40}", part):
            raise InputError("metric", "must be a name that oracle metrics lists", "another text", "Choose one.")
        if part != COMPOSITE:
            get_metric(part)
    if len(names) != 1:
        raise InputError("metric", "must be a single one", len(names), "Run the command once for each metric.")
    return names[0]


def named(
    texts: Sequence[str] | None, argument: str, form: str = "NAME=FILE", mark: str = "=", *, repeatable: bool = False
) -> list[tuple[str, str]]:
    """Return values such as NAME=FILE of the option `argument` as pairs, split at the first `mark`; None has no pair.

    Raise InputError unless each value has the form, and each name comes once or is `repeatable`.
    """
    pairs: list[tuple[str, str]] = []
    for text in texts or ():
        name, separator, value = text.partition(mark)
        if not (name and separator and value):
            raise InputError(
                argument,
                f"must be {form}",
                repr(text),
                "Write both parts, and quote the argument if it contains spaces.",
            )
        if not repeatable and name in dict(pairs):
            raise InputError(
                argument, "must have each name once", f"{name!r} twice", "Leave one out, or give it another name."
            )
        if "FILE" in form:
            check_path(argument, value)
        pairs.append((name, value))
    return pairs


def named_files(texts: Sequence[str], argument: str) -> list[tuple[str, str]]:
    """Return values [NAME=]FILE of `argument` as pairs; by default the name is that of the file without its ending.

    A file whose name has "=" counts as FILE if it exists. Raise InputError if the name or the file is empty.
    """
    pairs = []
    for text in texts:
        name, mark, path = text.partition("=")
        name, path = (name, path) if mark and not Path(text).exists() else (Path(text).stem, text)
        if not name or not path:
            raise InputError(argument, "must be FILE or NAME=FILE", repr(text), "Write both parts.")
        pairs.append((name, path))
    return pairs


def complete_metric(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the completions of a metric's name, or of the last one after a comma, each with a description."""
    before, comma, begun = incomplete.rpartition(",")
    names = {alias: f"short for {name}" for alias, name in ALIASES.items()}
    names |= {name: record.citation for name, record in METRICS.items()}
    yield from ((before + comma + name, text) for name, text in names.items() if name.startswith(begun))
