"""Pairs of reports with errors counted by category, the training data of CREPE."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from metric_oracle.corpora.predictions import read_predictions
from metric_oracle.corpora.reports import read_reports
from metric_oracle.errors import InputError
from metric_oracle.raters.ratings import read_ratings
from metric_oracle.retrieval.pair_models import COMPONENTS
from metric_oracle.retrieval.pairs import join_ids
from metric_oracle.statistics import Array


class CountedPairs(NamedTuple):
    """Pairs of texts (reference, candidate), and their errors of categories A to F, float64[n, 6]."""

    pairs: list[tuple[str, str]]
    counts: Array


def read_counted_pairs(references: Path, predictions: Path, ratings: Path, tell: Callable[[str], None]) -> CountedPairs:
    """Return the rated pairs, joined on ids, with the mean of their raters' counts.

    Parameters
    ----------
    references, predictions : path
        Tables of reports.
    ratings : path
        Counted errors of six categories, see `read_ratings`.
    tell : function
        Called with a line that says what is left out.
    """
    reference_reports, predicted_reports = read_reports(references), read_predictions(predictions)
    rated = read_ratings(ratings)
    if len(rated.categories) != len(COMPONENTS):
        raise InputError(
            argument="ratings",
            rule="must have six categories of errors, A to F",
            value=f"{len(rated.categories)} in {ratings}",
            step="Leave out, or join, the others.",
        )
    rows, predicted_rows, _ = join_ids(reference_reports, predicted_reports, True, tell, "train_crepe")
    row_of = {pair: row for row, pair in enumerate(rated.pairs)}
    counted = [
        (row, predicted_row, row_of[reference_reports.ids[row]])
        for row, predicted_row in zip(rows, predicted_rows, strict=True)
        if reference_reports.ids[row] in row_of
    ]
    if not counted:
        raise InputError(
            argument="ratings",
            rule="must be of these pairs",
            value=f"none of {len(rows)} in {ratings}",
            step="Check the ids.",
        )
    if len(counted) < len(rows):
        tell(f"left out: {len(rows) - len(counted):,} pairs without counts")
    counts = rated.errors("total").mean(axis=1)[[rated_row for *_, rated_row in counted]]
    return CountedPairs([(reference_reports.texts[a], predicted_reports.texts[b]) for a, b, _ in counted], counts)
