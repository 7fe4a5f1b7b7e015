"""train-crepe."""

import typer

from metric_oracle.commands import options as o
from metric_oracle.commands.command import command
from metric_oracle.commands.inputs import check_installed
from metric_oracle.commands.output import note, progress

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "train-crepe",
    "oracle train-crepe pairs/train.csv pairs/train_candidates.csv \\\n"
    "pairs/train_errors.csv --base BiomedBERT --out my-crepe",
    "oracle score test.csv generated.csv -m crepe --crepe my-crepe",
)
def train_crepe(
    references: o.Corpus,
    predictions: o.Predictions,
    ratings: o.Ratings,
    base: o.Base,
    out: o.NewFolder,
    epochs: o.Epochs = 10,
    batch_size: o.BatchSize = 64,
    learning_rate: o.LearningRate = 2e-5,
    presence_weight: o.PresenceWeight = 0.5,
    seed: o.Seed = 0,
) -> None:
    """Train CREPE on pairs of reports whose errors of six categories are counted; oracle synth --errors makes some.

    The dual loss of Cho et al.: (1 - w) of the squared error of counts, w of the cross-entropy of presence. The folder
    has the published layout, and training.json.
    """
    from metric_oracle.encoders.crepe_training import Settings, train
    from metric_oracle.raters.counted_pairs import read_counted_pairs

    check_installed("train_crepe", o.Annotators(), base)
    found = read_counted_pairs(references, predictions, ratings, note)
    settings = Settings(epochs, batch_size, learning_rate, presence_weight, seed)
    with progress("training") as step:
        made = train(found.pairs, found.counts, base, out, settings, progress=step)
    losses = ", ".join(f"{loss:.4f}" for loss in made["losses"])
    note(f"{out}: {made['pairs']:,} pairs, mean loss of each epoch {losses}")
