"""Pairs of reports whose errors are counted by category: what CREPE is trained on."""

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
    """Pairs of (reference, candidate), and their errors of categories A to F: float64[n, 6]."""

    pairs: list[tuple[str, str]]
    counts: Array


def read_counted_pairs(references: Path, predictions: Path, ratings: Path, tell: Callable[[str], None]) -> CountedPairs:
    """Return the pairs that are rated, joined on ids, with the mean of their raters' counts.

    Parameters
    ----------
    references, predictions : path
        Tables of reports.
    ratings : path
        Of six categories, see `raters.ratings.read_ratings`.
    tell : function
        Called with what is left out.
    """
    asked, written = read_reports(references), read_predictions(predictions)
    rated = read_ratings(ratings)
    if len(rated.categories) != len(COMPONENTS):
        msg = (
            f"train_crepe: ratings must have six categories of errors, A to F; got {len(rated.categories)} in "
            f"{ratings}. Leave out, or join, the others."
        )
        raise InputError(msg)
    of_references, of_predictions, _ = join_ids(asked, written, True, tell, "train_crepe")
    place = {pair: row for row, pair in enumerate(rated.pairs)}
    known = [
        (a, b, place[asked.ids[a]]) for a, b in zip(of_references, of_predictions, strict=True) if asked.ids[a] in place
    ]
    if not known:
        msg = (
            f"train_crepe: ratings must be of these pairs; got none of {len(of_references)} in {ratings}. "
            "Check the ids."
        )
        raise InputError(msg)
    if len(known) < len(of_references):
        tell(f"left out: {len(of_references) - len(known):,} pairs without counts")
    counts = rated.errors("total").mean(axis=1)[[row for _, _, row in known]]
    return CountedPairs([(asked.texts[a], written.texts[b]) for a, b, _ in known], counts)
