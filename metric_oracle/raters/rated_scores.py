"""Scores of rated pairs, from columns of any tool's table or from the texts of the pairs, and their direction."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError, is_like_report, shown
from metric_oracle.base.files import identify
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import read_table
from metric_oracle.findings.score_names import DIRECTIONS, direction_of
from metric_oracle.metrics import ALIASES, METRICS, REPRESENTATIONS, get_metric, names_of
from metric_oracle.raters.rated_sets import read_rated_set
from metric_oracle.raters.ratings import Rated, match_pairs
from metric_oracle.records import Metric
from metric_oracle.scores.scoring import score
from metric_oracle.statistics import Array

_NO_SCORES = ("", "index", "rank", "row", "n_ties")
# What users give with a rated set.
ScoreFiles: TypeAlias = Annotated[
    str | Path | Sequence[str | Path],
    Doc(
        "Tables of scores of the rated pairs, by any tool: one row per pair, with the columns that name the pair in "
        "the ratings, and one column of numbers per metric. Files that [`score`][metric_oracle.score] wrote are such "
        "tables; the components of their metrics are left out. By default the texts of the pairs are scored."
    ),
    Flag("--scores", kind=list[Path]),
]
Texts: TypeAlias = Annotated[
    str | Path,
    Doc(
        "Texts of the rated pairs: a table like ReXVal's 50_samples_gt_and_candidates.csv, with one row per study and "
        "one column per candidate, or a table with the pair, reference and prediction. Needed to score the pairs if "
        "the file of ratings has no texts."
    ),
    Flag(metavar="FILE"),
]
MetricsOfPairs: TypeAlias = Annotated[
    str | Sequence[str],
    Doc(
        "Metrics to use: columns of the tables of scores, or metrics under which the texts of the pairs are scored, "
        "such as bleu or rouge-l, see [`list_metrics`][metric_oracle.list_metrics]; several with commas. By default "
        "all columns, or the usual metrics of texts where there are no scores."
    ),
    option_types.METRIC,
]


def read_rated(
    ratings: str | Path | Rated,
    scores: str | Path | Sequence[str | Path],
    samples: str | Path | None,
    metrics: str | Sequence[str] | None,
) -> tuple[Rated, dict[str, Array], dict[str, Any]]:
    """Read rated pairs, the scores of each metric in the order of the pairs, and their description for a signature.

    `scores` are tables with one row for each pair; without them the texts of the pairs are scored. `samples` is a file
    of these texts, where `ratings` is a file without them. `metrics` are columns, by default all; a name that is no
    column is a metric of the registry, under which the texts are scored.
    """
    if isinstance(ratings, Rated):
        check_left_out({"samples": samples}, "with Ratings", "Give them to `mo.read_ratings`.", got="both")
    rated = ratings if isinstance(ratings, Rated) else read_rated_set(ratings, samples=samples)
    paths = [Path(path) for path in ([scores] if isinstance(scores, str | Path) else scores)]
    columns: dict[str, Array] = {}
    names = absent = names_of(metrics)
    if paths or rated.references is None:
        columns, absent = _read_columns(rated, paths, names)
        if absent or not columns:
            _check_scorable(absent, rated, paths)
    described: dict[str, Any] = {"scores": [identify(path) for path in paths]}
    if absent != []:
        of_texts, scored = score_texts(rated, absent)
        columns |= of_texts
        described |= scored
    sources = {
        "ratings": identify(Path(ratings)) if isinstance(ratings, str | Path) else rated.source,
        "samples": None if samples is None else identify(Path(samples)),
        **described,
    }
    return rated, columns, sources


def _check_scorable(absent: Sequence[str], rated: Rated, paths: Sequence[Path]) -> None:
    """Raise InputError unless `absent` has names, those that are no column, and the texts can be scored under all."""
    is_known = rated.references is not None and all(ALIASES.get(name, name) in METRICS for name in absent)
    if not absent or not is_known:
        got = f"no {shown(*absent)}" if absent else "none"
        raise InputError(
            "scores",
            "must have a column of numbers for each metric",
            f"{got} in {', '.join(map(str, paths)) or 'no file'}",
            "Check the file, and the names in `metrics`.",
        )


def lower_is_better(names: Sequence[str], directions: Mapping[str, str]) -> set[str]:
    """Return the names of which lower is better, as known tools have it or `directions` say; nothing is guessed."""
    direction_by_name = {name: direction_of(name) for name in names}
    for name, direction in directions.items():
        if name not in names or direction not in DIRECTIONS:
            raise InputError(
                "directions",
                f"must be higher or lower for columns of the scores ({shown(*names)})",
                f"{shown(name)}={direction}",
                "Correct it.",
            )
        if direction_by_name[name] not in (None, direction):
            raise InputError(
                "directions",
                "must be left out for columns whose direction follows from their name",
                f"{shown(name)}={direction}, of which {direction_by_name[name]} is better",
                "Leave it out, or rename a column that holds something else.",
            )
        direction_by_name[name] = direction  # type: ignore[assignment]
    unknown = [name for name, direction in direction_by_name.items() if direction is None]
    if unknown:
        first = "NAME" if is_like_report(unknown[0]) else unknown[0]
        raise InputError(
            "directions",
            "must be given for columns whose names do not tell it",
            f"none for {shown(*unknown)}",
            f"Add `directions={{{first!r}: 'higher'}}`, or 'lower', or choose columns with `metrics`.",
        )
    return {name for name, direction in direction_by_name.items() if direction == "lower"}


def _reads_texts_alone(metric: Metric) -> bool:
    """Return whether a metric reads nothing that a user must give beside the texts."""
    sources = (REPRESENTATIONS[kind].source for kind in metric.representations)
    return not any(source.arguments for source in sources if source is not None)


def score_texts(rated: Rated, metrics: Sequence[str] | None) -> tuple[dict[str, Array], dict[str, Any]]:
    """Score the texts of the pairs under metrics that need only texts, by default the usual ones.

    Return the scores of each metric, float64[P], and the description of the metrics for a signature.
    """
    counting = [metric.name for name in metrics or () if (metric := get_metric(name)).counts_corpus]
    if counting:
        raise InputError(
            "metrics",
            "must not count the documents of a corpus, which rated pairs do not have",
            shown(counting[0]),
            "Score them with `mo.score` and an index, and pass the file as `scores`.",
        )
    needing = [name for name in metrics or () if not _reads_texts_alone(get_metric(name))]
    if needing:
        raise InputError(
            "metrics",
            "must read texts alone, which is all that rated pairs have",
            shown(needing[0]),
            "Score them with `mo.score`, and pass the file as `scores`.",
        )
    without = [
        pair
        for pair, *texts in zip(rated.pairs, rated.references or [], rated.predictions or [], strict=True)
        if None in texts
    ]
    if without:
        raise InputError(
            "samples",
            "must hold both texts of every pair to score them",
            f"{len(without)} without, first {shown(*without[:3])}",
            "Complete the file.",
        )
    sides = [
        Reports(rated.pairs, [str(text) for text in texts or []], "samples")
        for texts in (rated.references, rated.predictions)
    ]
    scores = score(sides[0], sides[1], None if metrics is None else list(metrics), system="samples")
    columns = {name: scores.table[name].to_numpy().astype(np.float64) for name in scores.metrics}
    return columns, {"scored": scores.signature["metrics"]}


def _read_columns(
    ratings: Rated, paths: Sequence[Path], wanted: Sequence[str] | None
) -> tuple[dict[str, Array], list[str]]:
    """Return the columns of numbers in the order of the rated pairs, and the names in `wanted` that no file has.

    By default all columns are `wanted` but the components of a metric.
    """
    columns: dict[str, Array] = {}
    names_wanted = None if wanted is None else {*wanted, *(ALIASES[name] for name in wanted if name in ALIASES)}
    for path in paths:
        table = read_table(path)
        rows, keys = match_pairs(ratings, table)
        for name in table.names:
            # In a file of `oracle score` the components of a metric are called <metric>.<component>.
            metric, dot, _ = name.partition(".")
            unnamed = name in _NO_SCORES or name.startswith("Unnamed:") or bool(dot and metric in table.names)
            skipped = unnamed if names_wanted is None else name not in names_wanted
            if name in keys or skipped:
                continue
            numbers = table.scores(name, may_be_words=wanted is None)
            if numbers is None:
                continue
            values = numbers.to_numpy()[rows]
            lacking = [pair for pair, value in zip(ratings.pairs, values, strict=True) if not np.isfinite(value)]
            if wanted is None and len(lacking) == len(values):
                continue  # an empty column
            if lacking:
                raise InputError(
                    "scores",
                    "must be a finite number for every pair",
                    f"none in column {shown(name)} of {path} for {len(lacking)} of {len(values)} pairs, "
                    f"first {shown(*lacking[:3])}",
                    "Complete the column, or name the columns to use with `metrics`.",
                )
            if name in columns:
                raise InputError(
                    "scores",
                    "must have each column in one file",
                    f"{shown(name)} twice, the second time in {path}",
                    "Rename one.",
                )
            columns[name] = values
    return columns, [name for name in wanted or () if name not in columns and ALIASES.get(name) not in columns]
