"""Pairs of reports with errors counted by category, and the training of CREPE on them."""

from pathlib import Path
from typing import Annotated, Any

from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import FILES, Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress
from metric_oracle.encoders.crepe_training import TrainingSettings, train
from metric_oracle.judges.pair_models import COMPONENTS
from metric_oracle.raters.ratings import AnyRatings, Ratings, read_ratings
from metric_oracle.reading import Given
from metric_oracle.sides import Sides
from metric_oracle.statistics import Array

_NAME = "predictions"


def read_counted_pairs(
    references: Given, predictions: Given, ratings: AnyRatings
) -> tuple[list[tuple[str, str]], Array]:
    """Return rated pairs of texts (reference, candidate), and their errors of categories A to F, float64[n, 6].

    They are joined on ids; the errors are the mean of the raters. The ratings must have six categories.
    """
    sides = Sides.of(references, {_NAME: predictions}).read()
    rated = ratings if isinstance(ratings, Ratings) else read_ratings(ratings)
    if len(rated.categories) != len(COMPONENTS):
        raise InputError(
            "ratings",
            "must have six categories of errors, A to F",
            f"{len(rated.categories)} in {ratings}",
            "Join or leave out the others, or give a file with all six.",
        )
    truth, written, joined = sides.read_truth, sides.written[_NAME], sides.join(_NAME, inner=True)
    row_of = {pair: row for row, pair in enumerate(rated.pairs)}
    counted = [
        (row, predicted_row, row_of[truth.ids[row]])
        for row, predicted_row in zip(joined.references, joined.predictions, strict=True)
        if truth.ids[row] in row_of
    ]
    if not counted:
        raise InputError(
            "ratings", "must be of these pairs", f"none of {len(joined.references)} in {ratings}", "Check the ids."
        )
    if len(counted) < len(joined.references):
        sides.tell(f"left out: {len(joined.references) - len(counted):,} pairs without counts")
    counts = rated.errors("total").mean(axis=1)[[rated_row for *_, rated_row in counted]]
    return [(truth.texts[a], written.texts[b]) for a, b, _ in counted], counts


def train_crepe(
    references: option_types.References,
    predictions: option_types.Predictions,
    ratings: AnyRatings,
    base: Annotated[
        str | Path,
        Doc(
            "Encoder that the training starts from: a folder, or the name of a Hugging Face model, which is downloaded."
        ),
        Flag("--base", metavar="MODEL", panel=FILES, kind=str),
    ],
    out: option_types.NewFolder,
    *,
    options: Annotated[TrainingSettings | None, Doc("Settings of the training; by default those of the paper.")] = None,
    progress: Progress | None = None,
) -> dict[str, Any]:  # what training.json has: the settings, the number of pairs, the mean loss of each epoch
    """Read pairs and their counted errors, train CREPE on them, and return the record of the training."""
    pairs, counts = read_counted_pairs(references, predictions, ratings)
    return train(pairs, counts, base, Path(out), options or TrainingSettings(), progress=progress)
