"""Addresses of pages: their parameters, and the test reports that these choose, in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlencode

import numpy as np
import polars as pl

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.explorer.cases import Cases

ROWS = 50  # test reports per page


@dataclass(frozen=True)
class Choice:
    """Filters and order of the test reports. The fields have the names that addresses have."""

    files: bool = False  # keep the order of the files
    turn: bool = False  # reverse the order
    fallback: bool = False  # show only test reports for which a best candidate is a fallback
    inexact: bool = False  # show only test reports for which a best candidate is not proven to be the best
    rated: bool = False  # show only test reports with a candidate that radiologists rated
    all: bool = False  # show the scores of all systems under all metrics
    ties: int | None = None  # show only test reports for which more corpus rows than this share a best score
    # Position of the column to sort by. None sorts by disagreement: the number of different reports that the oracles
    # chose, then how few words these reports share.
    sort: int | None = None
    minus: int | None = None  # sort by how much better this column is than the column `sort`, the worst first
    column: int | None = None  # show only test reports whose value in this column is from `low` to `high`
    low: float | None = None  # None for no limit
    high: float | None = None  # None for no limit
    words: str = ""  # show only test reports that have this string, or for which a best candidate has it, in any case
    label: int | None = None  # show only test reports for which this CheXbert label is positive
    # Position in `Cases.metric_names` of the metric whose scores the list shows. None for all metrics if they fit, or
    # else that of `sort`.
    under: int | None = None


FILTERS = tuple(one.name for one in fields(Choice))


@dataclass(frozen=True)
class Address:
    """The parameters of an address, without empty ones; also those that filter and order the table."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    choice: Choice = Choice()

    @property
    def filters(self) -> dict[str, str]:
        """The parameters that choose and order test reports."""
        return {name: self.parameters[name] for name in FILTERS if name in self.parameters}

    def integer(self, name: str, most: int) -> int | None:
        """Return a parameter as a whole number, None if it is not given; raise InputError if it is none to `most`."""
        text = self.parameters.get(name)
        if text is None:
            return None
        if text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= most:
            return int(text)
        raise InputError(f"{name} is not a whole number from 0 to {most}.", "Follow a link of the pages.")

    def number(self, name: str) -> float | None:
        """Return a parameter as a finite number, None if it is not given; raise InputError if it is none."""
        if name not in self.parameters:
            return None
        try:
            value = float(self.parameters[name])
        except ValueError:
            value = float("nan")
        if not np.isfinite(value):
            raise InputError(f"{name} is not a finite number.", "Correct it.")
        return value

    def page(self, path: str, filters: Mapping[str, str], total: int) -> dict[str, Any]:
        """Return which page of `total` rows is asked for, of how many, and the links to those beside it."""
        pages = max(1, -(-total // ROWS))
        asked = self.integer("page", 1 << 60)
        page = min(1 if asked is None else asked, pages) or 1
        previous = link(path, filters, page=page - 1) if page > 1 else ""
        following = link(path, filters, page=page + 1) if page < pages else ""
        return {"page": page, "pages": pages, "previous": previous, "next": following}


def read_address(parameters: Mapping[str, str], cases: Cases, searched: Sequence[str] = ()) -> Address:
    """Check the parameters of an address, and leave out the empty ones.

    Addresses refer to words of `searched` by number. A greater one is of a server that ran earlier, and is left out.
    """
    non_empty = {name: value for name, value in parameters.items() if value}
    words = non_empty.get("words", "")
    if words.isascii() and words.isdigit() and int(words[:18]) >= len(searched):
        del non_empty["words"]
    address = Address(non_empty)
    last, last_metric = len(cases.columns) - 1, len(cases.metric_names) - 1
    most = {
        "ties": 1 << 60,
        "sort": last,
        "minus": last,
        "column": last,
        "label": len(LABELS) - 1,
        "under": last_metric,
    }
    values: dict[str, Any] = {name: address.integer(name, most[name]) for name in most}
    values |= {name: address.number(name) for name in ("low", "high")}
    values |= {one.name: address.parameters.get(one.name) == "1" for one in fields(Choice) if one.default is False}
    number = address.integer("words", len(searched) - 1)
    return Address(non_empty, Choice(**values, words="" if number is None else searched[number]))


def choose(cases: Cases, choice: Choice) -> pl.DataFrame:
    """Return the rows of `Cases.frame` to show, in order."""
    predicates: list[Any] = [pl.lit(True)]
    if choice.fallback:
        predicates.append(pl.col("fallback"))
    if choice.inexact:
        predicates.append(pl.col("inexact"))
    if choice.rated:
        predicates.append(pl.col("rated"))
    if choice.ties is not None:
        predicates.append(pl.col("ties") > choice.ties)
    if choice.column is not None:
        low, high = (end if limit is None else limit for end, limit in ((-np.inf, choice.low), (np.inf, choice.high)))
        predicates.append(pl.col(cases.columns[choice.column].name).is_between(low, high))
    if choice.words:
        predicates.append(_has_words(cases, choice.words))
    if choice.label is not None and LABELS[choice.label] in cases.frame.columns:
        predicates.append(pl.col(LABELS[choice.label]))
    key = _key(cases, choice)
    # Equal keys keep the order of the files. A score that is not known comes last in both directions.
    by = {"nulls_last": True, "maintain_order": True}
    return cases.frame.filter(*predicates).sort(-key if choice.turn else key, **by)


def _key(cases: Cases, choice: Choice) -> pl.Expr:
    """Return the numbers by which test reports are sorted, the smallest first."""
    if choice.files:
        return pl.col("q")
    if choice.sort is None:
        return -(pl.col("differ") + 0.5 * pl.col("distance"))
    column = cases.columns[choice.sort]
    score = pl.col(column.name)
    better = score if choice.minus is None else score - pl.col(cases.columns[choice.minus].name)
    return -column.sign * better


def _has_words(cases: Cases, words: str) -> pl.Series:
    """Return which test reports have a string in any case, or a best candidate of theirs."""
    references = [cases.reference(q) for q in range(len(cases.ids))]
    # Half of a surrogate pair, which Polars cannot hold, is not in any words that a browser sends.
    columns = [pl.Series([text and text.encode("utf-8", "replace").decode() for text in references], dtype=pl.String)]
    for file in cases.joined:
        columns += [pl.Series(file.of_best(name)) for name in ("text", "prediction") if name in file.table.column_names]
    # Both forms of a small sigma are the lower case of one letter.
    lowered = [column.str.to_lowercase().str.replace_all("ς", "σ", literal=True) for column in columns]
    wanted = words.lower().replace("ς", "σ")
    has_words = [column.str.contains(wanted, literal=True).fill_null(False) for column in lowered]
    return pl.select(pl.any_horizontal(*has_words)).to_series()


def link(path: str, parameters: Mapping[str, str], **changes: Any) -> str:
    """Return the address with some parameters changed; a parameter that is changed to None is left out."""
    changed = {**parameters, **changes}
    query = urlencode({key: value for key, value in changed.items() if value is not None})
    return f"{path}?{query}" if query else path
