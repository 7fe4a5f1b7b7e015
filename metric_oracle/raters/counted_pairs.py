"""Pairs of reports with errors counted by category, and the training of CREPE on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from metric_oracle.corpora.predictions import as_predictions
from metric_oracle.corpora.reports import Reports, as_reports
from metric_oracle.errors import InputError
from metric_oracle.progress import Progress
from metric_oracle.raters.ratings import read_ratings
from metric_oracle.retrieval.pair_models import COMPONENTS
from metric_oracle.retrieval.pairs import join_ids
from metric_oracle.statistics import Array


class CountedPairs(NamedTuple):
    """Pairs of texts (reference, candidate), and their errors of categories A to F, float64[n, 6]."""

    pairs: list[tuple[str, str]]
    counts: Array


def read_counted_pairs(
    references: Path | Reports, predictions: Path | Reports, ratings: Path, tell: Callable[[str], None]
) -> CountedPairs:
    """Return the rated pairs, joined on ids, with the mean of their raters' counts.

    Parameters
    ----------
    references, predictions : path or Reports
        Tables of reports.
    ratings : path
        Counted errors of six categories, see `read_ratings`.
    tell : function
        Called with a line that says what is left out.
    """
    reference_reports = as_reports(references)
    predicted_reports = as_predictions(predictions, wanted=reference_reports.section)
    rated = read_ratings(ratings)
    if len(rated.categories) != len(COMPONENTS):
        raise InputError(
            "ratings",
            "must have six categories of errors, A to F",
            f"{len(rated.categories)} in {ratings}",
            "Leave out, or join, the others.",
        )
    rows, predicted_rows, _ = join_ids(reference_reports, predicted_reports, True, tell)
    row_of = {pair: row for row, pair in enumerate(rated.pairs)}
    counted = [
        (row, predicted_row, row_of[reference_reports.ids[row]])
        for row, predicted_row in zip(rows, predicted_rows, strict=True)
        if reference_reports.ids[row] in row_of
    ]
    if not counted:
        raise InputError("ratings", "must be of these pairs", f"none of {len(rows)} in {ratings}", "Check the ids.")
    if len(counted) < len(rows):
        tell(f"left out: {len(rows) - len(counted):,} pairs without counts")
    counts = rated.errors("total").mean(axis=1)[[rated_row for *_, rated_row in counted]]
    return CountedPairs([(reference_reports.texts[a], predicted_reports.texts[b]) for a, b, _ in counted], counts)


def train_crepe(
    references: Path | Reports,
    predictions: Path | Reports,
    ratings: Path,
    base: str | Path,
    out: Path,
    *,
    epochs: int = 10,
    batch_size: int = 64,
    learning_rate: float = 2e-5,
    presence_weight: float = 0.5,
    seed: int = 0,
    tell: Callable[[str], None],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train CREPE on rated pairs, and write its checkpoint.

    Parameters
    ----------
    references, predictions : path or Reports
        Tables of reports.
    ratings : path
        Counted errors of six categories, see `read_ratings`.
    base : str or path
        Encoder that the training starts from: a folder, or the name of a Hugging Face model.
    out : path
        New folder for the checkpoint.
    epochs : int
        Number of passes over the pairs.
    batch_size : int
        Number of pairs in each optimization step.
    learning_rate : float
        Peak learning rate.
    presence_weight : float
        Weight of the loss for the presence of errors, from 0 to 1.
    seed : int
        Seed of the new layers, of dropout, and of the order of the pairs.
    tell : function
        Called with a line that says what is left out.
    progress : function, optional
        Called with the epoch, the number of its finished pairs and that of all.

    Returns
    -------
    dict
        What training.json of the checkpoint contains: the settings, the number of ``pairs``, and the mean loss of each
        epoch in ``losses``.

    Raises
    ------
    InputError
        If a file cannot be read, the pairs or the base cannot be used, or the loss is not finite.
    """
    from metric_oracle.encoders.crepe_training import Settings, train

    rated = read_counted_pairs(references, predictions, ratings, tell)
    settings = Settings(epochs, batch_size, learning_rate, presence_weight, seed)
    return train(rated.pairs, rated.counts, base, out, settings, progress=progress)
