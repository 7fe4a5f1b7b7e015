"""train-crepe."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from metric_oracle.commands import options as o
from metric_oracle.commands.command import command
from metric_oracle.commands.inputs import check_installed
from metric_oracle.commands.output import note, progress
from metric_oracle.errors import InputError
from metric_oracle.metrics import get_metric

app = typer.Typer(rich_markup_mode="rich")


@command(
    app, "train-crepe",
    "oracle train-crepe pairs/train.csv pairs/train_candidates.csv \\\n"
    "pairs/train_errors.csv --base BiomedBERT --out my-crepe",
    "oracle score test.csv generated.csv -m crepe --crepe my-crepe",
    panel="Tools",
)  # fmt: skip
def train_crepe(
    references: o.Corpus, predictions: o.Predictions, ratings: o.Ratings, base: o.Base, out: o.NewFolder,
    epochs: o.Epochs = 3, batch_size: o.BatchSize = 16, learning_rate: o.LearningRate = 2e-5,
    presence_weight: o.PresenceWeight = 0.5, seed: o.Seed = 0,
) -> None:  # fmt: skip
    """Train CREPE on pairs of reports whose errors of six categories are counted; oracle synth --errors makes some.

    The dual loss of Cho et al.: (1 - w) of the squared error of counts, w of the cross-entropy of presence. The folder
    has the published layout, and training.json.
    """
    from metric_oracle.encoders.crepe_training import Settings, train

    check_installed("train_crepe", o.Annotators(), [get_metric("crepe")])
    pairs, counts = read_pairs(references, predictions, ratings, note)
    settings = Settings(epochs, batch_size, learning_rate, presence_weight, seed)
    with progress("training") as step:
        made = train(pairs, counts, base, out, settings, progress=step)
    losses = ", ".join(f"{loss:.4f}" for loss in made["losses"])
    note(f"{out}: {made['pairs']:,} pairs, mean loss of each epoch {losses}")


def read_pairs(
    references: Path, predictions: Path, ratings: Path, tell: Callable[[str], None]
) -> tuple[list[tuple[str, str]], Any]:
    """Return the pairs of texts whose errors are counted, and the mean of the raters' counts: float64[n, 6]."""
    from metric_oracle.corpora.predictions import read_predictions
    from metric_oracle.corpora.raters import read_ratings
    from metric_oracle.corpora.reports import read_reports
    from metric_oracle.encoders.crepe import CATEGORIES
    from metric_oracle.retrieval.pairs import join_ids

    asked, written = read_reports(references), read_predictions(predictions)
    rated = read_ratings(ratings)
    if len(rated.categories) != len(CATEGORIES):
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
    return [(asked.texts[a], written.texts[b]) for a, b, _ in known], counts
