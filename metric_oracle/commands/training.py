"""The command train-crepe."""

import typer

from metric_oracle.commands import old_options as o
from metric_oracle.commands.old_command import command, used
from metric_oracle.commands.old_inputs import check_installed, written
from metric_oracle.commands.output import note, progress
from metric_oracle.corpora.read import Read

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "train-crepe",
    "oracle train-crepe pairs/train.csv pairs/train_candidates.csv \\\n"
    "pairs/train_errors.csv --base BiomedBERT --out my-crepe",
    "oracle score test.csv generated.csv -m crepe --crepe my-crepe",
)
def train_crepe(
    references: o.References,
    predictions: o.Predictions,
    ratings: o.Ratings,
    base: o.Base,
    out: o.NewFolder,
    predicted: o.PredictedReading,
    reading: o.Reading,
    epochs: o.Epochs = 10,
    batch_size: o.BatchSize = 64,
    learning_rate: o.LearningRate = 2e-5,
    presence_weight: o.PresenceWeight = 0.5,
    seed: o.Seed = 0,
) -> None:
    """Train CREPE on pairs of reports whose errors were counted in six categories.

    oracle synth --errors writes such pairs. The loss is that of Cho et al.: (1 - W) times the squared error of the
    counts, plus W times the cross-entropy of the presence of errors; --presence-weight sets W. The new folder has the
    layout of the published checkpoint, and a record of the training in training.json.
    """
    from metric_oracle.corpora.tables import together
    from metric_oracle.raters import counted_pairs
    from metric_oracle.reading import reports

    check_installed(o.Annotators(), base)
    tests = reports(references, Read(**used(reading)))
    model = written(predictions, predicted, reading).beside(tests)
    read = together(tests.read, lambda read: model.read(predictions=True, default_section=read and read[0].section))
    with progress("training") as step:
        record = counted_pairs.train_crepe(
            read[0][0],
            read[1][0],
            ratings,
            base,
            out,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            presence_weight=presence_weight,
            seed=seed,
            tell=note,
            progress=step,
        )
    losses = ", ".join(f"{loss:.4f}" for loss in record["losses"])
    note(f"{out}: {record['pairs']:,} pairs, mean loss of each epoch {losses}")
