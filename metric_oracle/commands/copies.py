"""The command overlap."""

from pathlib import Path
from typing import Annotated

import typer
from annotated_doc import Doc

from metric_oracle.base.declarations import OUTPUT, ROWS, Flag
from metric_oracle.base.option_types import RESULTS, TABLES, WithText
from metric_oracle.commands.command import Call, command
from metric_oracle.commands.inputs import TEXTS
from metric_oracle.commands.output import Destination, deliver_finding, note
from metric_oracle.commands.shared_options import FORMATS

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "oracle overlap INDEX R2Gen=r2gen.csv --references test.csv",
    "oracle overlap INDEX R2Gen=r2gen.csv WCL=wcl.csv --references test.csv \\\n--out copies.md --pairs copies.csv",
    reports={"references": TEXTS, "sets": TEXTS},
    panel=ROWS,
    endings=TABLES,
    formats=FORMATS,
    plot=True,
)
def overlap(
    call: Call,
    to: Destination,
    *,
    pairs: Annotated[
        Path | None,
        Doc("Also write each report with the training report that is nearest to it: a .parquet, .csv or .jsonl file."),
        Flag(panel=OUTPUT),
    ] = None,
    text: WithText = False,
) -> None:
    """Write the pairs, and show the first of them below the table."""
    from metric_oracle.findings.results import Results
    from metric_oracle.findings.writing import check_out

    if pairs is not None:
        check_out(pairs, to.inputs, argument="pairs", endings=RESULTS)
    result = call.tracked("overlap")
    listed = result.pairs(text=text)
    if pairs is not None:
        Results(listed, result.signature).write(pairs)
        note(f"{pairs}: each report and its nearest training report")
    deliver_finding(to, result, lambda: result.shown(pairs=listed))
