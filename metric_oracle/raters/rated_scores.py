"""Scores of rated pairs: columns of any tool's table, or metrics of the texts of the pairs; and which way is better."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import existing_file, number_of, read_table, shown_names
from metric_oracle.errors import InputError
from metric_oracle.files import identify
from metric_oracle.metrics import ALIASES, METRICS, get_metric
from metric_oracle.raters.rated_sets import read_rated_set
from metric_oracle.raters.ratings import Rated, match_pairs
from metric_oracle.retrieval import pairs
from metric_oracle.statistics import Array
from metric_oracle.tables.score_names import DIRECTIONS, direction_of

_NO_SCORES = ("", "index", "rank", "row", "n_ties")


def read_rated(
    ratings: str | Path | Rated,
    scores: str | Path | Sequence[str | Path],
    samples: str | Path | None,
    metrics: Sequence[str] | None,
    function: str,
) -> tuple[Rated, dict[str, Array], dict[str, Any]]:
    """Read rated pairs and their scores.

    Parameters
    ----------
    ratings : path or Rated
    scores : path or sequence of paths
        Tables with one row a pair; where there is none, the texts of the pairs are scored.
    samples : path
        Texts of the pairs, where `ratings` is a path that does not hold them.
    metrics : sequence of str
        Columns; what is none is a metric of the registry, under which the texts are scored. By default all columns.
    function : str
        Name for error messages.

    Returns
    -------
    ratings : Rated
    columns : dict of float64[P]
        Scores of each metric, in the order of the pairs.
    sources : dict
        What a signature says of the files.
    """
    if samples is not None and isinstance(ratings, Rated):
        msg = f"{function}: samples must be left out with Ratings; got both. Give them to read_ratings."
        raise InputError(msg)
    rated = ratings if isinstance(ratings, Rated) else read_rated_set(ratings, samples=samples)
    paths = [Path(path) for path in ([scores] if isinstance(scores, str | Path) else scores)]
    columns: dict[str, Array] = {}
    absent: list[str] | None
    if paths or rated.references is None:
        columns, absent = _read_columns(rated, paths, metrics, function)
        if absent or not columns:
            _check_scorable(absent, rated, paths, function)
    else:
        absent = None if metrics is None else list(metrics)
    made: dict[str, Any] = {"scores": [identify(path) for path in paths]}
    if absent != []:
        of_texts, scored = score_texts(rated, absent, function)
        columns |= of_texts
        made |= scored
    sources = {
        "ratings": identify(Path(ratings)) if isinstance(ratings, str | Path) else rated.source,
        "samples": None if samples is None else identify(Path(samples)),
        **made,
    }
    return rated, columns, sources


def _check_scorable(absent: Sequence[str], rated: Rated, paths: Sequence[Path], function: str) -> None:
    """Raise unless what no file has a column of is a metric that the texts can be scored under."""
    known = rated.references is not None and all(ALIASES.get(name, name) in METRICS for name in absent)
    if not absent or not known:
        got = f"no {shown_names(absent) or '(withheld)'}" if absent else "none"
        msg = (
            f"{function}: scores must have a column of numbers for each metric; got {got} in "
            f"{', '.join(map(str, paths)) or 'no file'}. Check the file, and the names after --metric."
        )
        raise InputError(msg)


def lower_is_better(names: Sequence[str], directions: Mapping[str, str], function: str) -> set[str]:
    """Return the columns where a lower score is better: known by their names, or said by the caller; never guessed."""
    known = {name: direction_of(name) for name in names}
    for name, direction in directions.items():
        if name not in names or direction not in DIRECTIONS:
            msg = (
                f"{function}: direction must be NAME=higher or NAME=lower, of columns of the scores "
                f"({shown_names(names)}); got {shown_names([name]) or repr(name)}={direction}. Correct it."
            )
            raise InputError(msg)
        if known[name] not in (None, direction):
            msg = (
                f"{function}: direction must be left out where a name says it; got {name!r}={direction}, of which "
                f"{known[name]} is better. Drop it, or rename a column that holds something else."
            )
            raise InputError(msg)
        known[name] = direction  # type: ignore[assignment]
    unknown = [name for name, direction in known.items() if direction is None]
    if unknown:
        first = shown_names(unknown[:1]).strip("'")
        msg = (
            f"{function}: direction must be given for columns that no known tool owns; got none for "
            f"{shown_names(unknown)}. Add --direction {first}=higher or {first}=lower, or choose columns with --metric."
        )
        raise InputError(msg)
    return {name for name, direction in known.items() if direction == "lower"}


def score_texts(rated: Rated, metrics: Sequence[str] | None, function: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Score the texts of the pairs under metrics that need nothing else; return also what a signature says of them."""
    counting = [record.name for name in metrics or () if (record := get_metric(name, function)).counts_corpus]
    if counting:
        msg = (
            f"{function}: metric must not count the documents of a corpus, which rated pairs do not have; got "
            f"{counting[0]!r}. Score them with oracle score --index INDEX, and pass the file as scores."
        )
        raise InputError(msg)
    lacking = [
        pair
        for pair, *texts in zip(rated.pairs, rated.references or [], rated.predictions or [], strict=True)
        if None in texts
    ]
    if lacking:
        msg = (
            f"{function}: samples must hold both texts of every pair to score them; got {len(lacking)} without, first "
            f"{shown_names(lacking[:3])}. Complete the file."
        )
        raise InputError(msg)
    sides = [
        Reports(rated.pairs, [str(text) for text in texts or []], "samples", {}, {})
        for texts in (rated.references, rated.predictions)
    ]
    found = pairs.score(sides[0], sides[1], None if metrics is None else list(metrics), system="samples")
    columns = {name: found.table[name].to_numpy().astype(np.float64) for name in found.metrics}
    return columns, {"scored": found.signature["metrics"]}


def _read_columns(
    ratings: Rated, paths: Sequence[Path], wanted: Sequence[str] | None, function: str
) -> tuple[dict[str, Array], list[str]]:
    """Read the columns of numbers, each in the order of the rated pairs; return also the names that no file has.

    Components of a metric are no columns.
    """
    columns: dict[str, Array] = {}
    asked = None if wanted is None else {*wanted, *(ALIASES[name] for name in wanted if name in ALIASES)}
    for path in paths:
        table = read_table(existing_file(path, function, "scores"), function)
        rows, keys = match_pairs(ratings, table, function)
        for name in table.names:
            # A file of `oracle score` has what a metric is made of as <metric>.<component>.
            metric, dot, _ = name.partition(".")
            unnamed = name in _NO_SCORES or name.startswith("Unnamed:") or bool(dot and metric in table.names)
            skipped = unnamed if asked is None else name not in asked
            if name in keys or skipped:
                continue
            cells = table.column(name, function, "scores")
            values = np.array([number_of(cells[row]) for row in rows])
            lacking = [pair for pair, value in zip(ratings.pairs, values, strict=True) if not np.isfinite(value)]
            if wanted is None and len(lacking) == len(values):
                continue  # a column of text
            if lacking:
                msg = (
                    f"{function}: scores must be a finite number for every pair; got none in column "
                    f"{shown_names([name])} of {path} for {len(lacking)}, first {shown_names(lacking[:3])}. Complete "
                    "it, or choose the other columns with --metric."
                )
                raise InputError(msg)
            if name in columns:
                msg = (
                    f"{function}: scores must have each column in one file; got {shown_names([name])} twice, the "
                    f"second time in {path}. Rename one."
                )
                raise InputError(msg)
            columns[name] = values
    return columns, [name for name in wanted or () if name not in columns and ALIASES.get(name) not in columns]


def drop_identical(rated: Rated, columns: Mapping[str, Array], function: str) -> tuple[Rated, dict[str, Array], int]:
    """Leave out pairs of equal texts; return also how many there were."""
    kept = rated.differing(function)
    return rated.subset(kept), {name: values[kept] for name, values in columns.items()}, int((~kept).sum())
