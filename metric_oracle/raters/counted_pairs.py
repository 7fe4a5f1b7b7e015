"""Pairs of reports with errors counted by category, and the training of CREPE on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from annotated_doc import Doc

from metric_oracle.base import choices
from metric_oracle.base.declared import FILES, Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress
from metric_oracle.corpora.tables import together
from metric_oracle.encoders.crepe_training import TrainingSettings, train
from metric_oracle.judges.pair_models import COMPONENTS
from metric_oracle.raters.ratings import AnyRatings, Ratings, read_ratings
from metric_oracle.reading import Given, attached
from metric_oracle.retrieval.scoring import join_ids
from metric_oracle.statistics import Array


def read_counted_pairs(
    references: Given, predictions: Given, ratings: AnyRatings, tell: Callable[[str], None]
) -> tuple[list[tuple[str, str]], Array]:
    """Return rated pairs of texts (reference, candidate), and their errors of categories A to F, float64[n, 6].

    They are joined on ids; the errors are the mean of the raters. The ratings must have six categories; `tell` is
    called with a line for each reason why pairs are left out.
    """
    given = attached(references)
    reference_reports, predicted_reports = together(
        given.read,
        lambda found: (
            attached(predictions).beside(given).read(predictions=True, default_section=found and found.section)
        ),
    )
    rated = ratings if isinstance(ratings, Ratings) else read_ratings(ratings)
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
    return [(reference_reports.texts[a], predicted_reports.texts[b]) for a, b, _ in counted], counts


def train_crepe(
    references: choices.References,
    predictions: choices.Predictions,
    ratings: AnyRatings,
    base: Annotated[
        str | Path,
        Doc(
            "Encoder that the training starts from: a folder, or the name of a Hugging Face model, which is downloaded."
        ),
        Flag("--base", metavar="MODEL", panel=FILES, kind=str),
    ],
    out: choices.NewFolder,
    *,
    options: Annotated[TrainingSettings | None, Doc("Settings of the training; by default those of the paper.")] = None,
    tell: Callable[[str], None],
    progress: Progress | None = None,
) -> dict[str, Any]:  # what training.json has: the settings, the number of pairs, the mean loss of each epoch
    """Read pairs and their counted errors, train CREPE on them, and return the record of the training."""
    pairs, counts = read_counted_pairs(references, predictions, ratings, tell)
    return train(pairs, counts, base, Path(out), options or TrainingSettings(), progress=progress)
