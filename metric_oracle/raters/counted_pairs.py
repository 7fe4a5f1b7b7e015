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
from metric_oracle.retrieval.scoring import join_ids
from metric_oracle.statistics import Array


class CountedPairs(NamedTuple):
    """Pairs of texts (reference, candidate), and their errors of categories A to F, float64[n, 6]."""

    pairs: list[tuple[str, str]]
    counts: Array


def read_counted_pairs(
    references: Path | Reports, predictions: Path | Reports, ratings: Path, tell: Callable[[str], None]
) -> CountedPairs:
    """Return the pairs of references and predictions that were rated, joined on ids, with the mean of their raters.

    `ratings` is a file of counted errors of six categories, see `read_ratings`; `tell` is called with a line for each
    reason why pairs are left out.
    """
    reference_reports = as_reports(references)
    predicted_reports = as_predictions(predictions, wanted=reference_reports.section)
    rated = read_ratings(ratings)
    if len(rated.categories) != len(COMPONENTS):
        raise InputError(
            "ratings",
            "must have six categories of errors, A to F",
            f"{len(rated.categories)} in {ratings}",
            "Join or leave out the others, or give a file with all six.",
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
    """Train CREPE on the pairs of `read_counted_pairs`, write its checkpoint to the new folder `out`, and describe it.

    `base` is the encoder that the training starts from, a folder or the name of a Hugging Face model. `batch_size` is
    the number of pairs in each optimization step, `learning_rate` the peak, `presence_weight` the weight (0 to 1) of
    the loss for the presence of errors. `progress` is called with the epoch, the number of its finished pairs and that
    of all. The result is what training.json of the checkpoint contains: the settings, the number of ``pairs``, and the
    mean loss of each epoch in ``losses``.
    """
    from metric_oracle.encoders.crepe_training import TrainingSettings, train

    rated = read_counted_pairs(references, predictions, ratings, tell)
    settings = TrainingSettings(epochs, batch_size, learning_rate, presence_weight, seed)
    return train(rated.pairs, rated.counts, base, out, settings, progress=progress)
