"""The commands survey create, serve, status and export."""

import json
from functools import partial
from typing import Annotated

import typer
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import OUTPUT, ROWS, Flag
from metric_oracle.commands.command import Call, command
from metric_oracle.commands.groups import Group
from metric_oracle.commands.inputs import TEXTS, check_web
from metric_oracle.commands.output import Destination, note, put
from metric_oracle.survey.folder import SurveyFolder

app = typer.Typer(
    name="survey",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Let radiologists count the errors in reports, on web pages, as in the survey of Yu et al.",
)


@command(
    app,
    "oracle survey create test.csv --candidates bleu=bleu.parquet \\\n"
    "--candidates radgraph=radgraph.parquet --raters anna,ben --out SURVEY",
    reports={"references": TEXTS, "candidates": TEXTS},
    name="create",
)
def create_survey(call: Call) -> None:
    """Make the survey."""
    survey = call()
    note(f"{call.values['out']}: {survey.summary()}")
    note(f"It holds report text, for its owner only. Next: oracle survey serve {call.values['out']}")


@command(
    app,
    "oracle survey status SURVEY",
    formats=("table", "jsonl"),
    name="status",
)
def survey_status(call: Call, to: Destination) -> None:
    """Show the records of the raters."""
    from metric_oracle.survey.export import status_table

    records = call()
    to.deliver(lambda: [status_table(records)], {"jsonl": lambda: map(json.dumps, records)})


@command(
    app,
    "oracle survey export SURVEY --out EXPORT",
    "oracle survey export SURVEY --leave-out 'ben=stopped at 12' --out EXPORT",
    panel=ROWS,
    name="export",
)
def export_survey(call: Call) -> None:
    """Write the files, and print commands to try on them."""
    exported, out = call(), call.values["out"]
    for warning in exported.warnings():
        note(warning)
    note(f"{out}: {exported.summary()}")
    put(f"oracle align {out}/ratings.csv --scores {out}/scores.csv")
    put(f"oracle failure-modes {out}/ratings.csv")
    put(
        f"oracle agreement {out}/ratings.csv"
        + f" --repeated {out}/repeats.csv" * bool(exported.notes["repeated_pairs"])
    )


@command(app, "oracle survey serve SURVEY", "oracle survey serve SURVEY --port 8765")
def serve(
    survey: SurveyFolder,
    *,
    port: Annotated[
        option_types.Count,
        Doc("Port of the web server on this machine. 0 takes that of the last time, or a free port the first time."),
        Flag(panel=OUTPUT),
    ] = 0,
) -> None:
    """Serve the web pages of the raters, on this machine only, and print the address of each rater.

    The addresses stay the same when the server is started again, because a browser keeps answers under them that did
    not reach the server.
    """
    check_web()
    from metric_oracle.survey.folder import open_survey
    from metric_oracle.survey.pages import serve_survey

    serve_survey(open_survey(survey), port, partial(put, flush=True))
