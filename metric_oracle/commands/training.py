"""The command train-crepe."""

from collections.abc import Callable
from typing import Any

import typer

from metric_oracle.commands.command import Call, command
from metric_oracle.commands.inputs import TEXTS
from metric_oracle.commands.output import note

app = typer.Typer(rich_markup_mode="rich")


def _train_crepe() -> Callable[..., Any]:
    """Return the function that `oracle train-crepe` calls; it is not one of the public names of the package."""
    from metric_oracle.raters.counted_pairs import train_crepe

    return train_crepe


@command(
    app,
    "oracle train-crepe pairs/train.csv pairs/train_candidates.csv \\\n"
    "pairs/train_errors.csv --base BiomedBERT --out my-crepe",
    "oracle score test.csv generated.csv -m crepe --crepe my-crepe",
    of=_train_crepe,
    reports={"references": TEXTS, "predictions": TEXTS},
)
def train_crepe(call: Call) -> None:
    """Train CREPE on pairs of reports whose errors were counted in six categories.

    oracle synth --errors writes such pairs. The loss is that of Cho et al.: (1 - W) times the squared error of the
    counts, plus W times the cross-entropy of the presence of errors; `presence_weight` sets W. The new folder has the
    layout of the published checkpoint, and a record of the training in training.json.
    """
    from metric_oracle.sources.availability import check_installed

    check_installed([call.values["base"]])
    record = call.tracked("training")
    losses = ", ".join(f"{loss:.4f}" for loss in record["losses"])
    note(f"{call.values['out']}: {record['pairs']:,} pairs, mean loss of each epoch {losses}")
