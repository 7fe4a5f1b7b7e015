"""survey create, serve, status, export."""

from functools import partial
from typing import Any

import typer

from metric_oracle.commands import COMMANDS
from metric_oracle.commands import options as o
from metric_oracle.commands.command import command, named, split_names, used
from metric_oracle.commands.groups import Group
from metric_oracle.commands.inputs import check_web
from metric_oracle.commands.output import Destination, note, put

app = typer.Typer(name="survey", cls=Group, no_args_is_help=True, rich_markup_mode="rich", help=COMMANDS["survey"].text)


@command(
    app,
    "create",
    "oracle survey create test.csv --candidates bleu=bleu.parquet \\\n"
    "--candidates radgraph=radgraph.parquet --raters anna,ben --out SURVEY",
    function="create_survey",
)
def create(
    references: o.References,
    candidates: o.Candidates,
    raters: o.Raters,
    out: o.NewFolder,
    reading: o.Reading,
    studies: o.Studies = 50,
    repeats: o.Repeats = 0,
    identical: o.Identical = "once",
    categories: o.Categories = "rexval",
    instructions: o.Instructions = None,
    unequal: o.Unequal = False,
    stratify: o.Stratify = None,
    order: o.Order = "shared",
    seed: o.Seed = 0,
) -> None:
    """Draw studies and shuffle their candidates, without names: by default 50, as in the paper."""
    from metric_oracle.survey.create import create_survey, read_strata

    strata = None if stratify is None else read_strata(stratify, reading.id_column)
    files: dict[str, Any] = dict(named(candidates, "candidates", "NAME=FILE", "=", function="create_survey"))
    survey = create_survey(
        references,
        files,
        out,
        raters=split_names(raters),
        studies=studies,
        repeats=repeats,
        identical=identical,
        categories=categories,
        instructions=instructions,
        unequal=unequal,
        stratify=strata,
        order=order,
        seed=seed,
        **used(reading),
    )
    note(f"{out}: {survey.summary()}")
    note(f"It holds report text, for its owner only. Next: oracle survey serve {out}")


@command(app, "status", "oracle survey status SURVEY", formats=("table", "jsonl"), function="survey_status")
def status(survey: o.SurveyFolder, to: Destination) -> None:
    """Say how far each rater is."""
    import json

    from metric_oracle.raters.layout import status_table
    from metric_oracle.survey.export import survey_status

    records = survey_status(survey)
    to.deliver(lambda: [status_table(records)], {"jsonl": lambda: map(json.dumps, records)})


@command(
    app,
    "export",
    "oracle survey export SURVEY --out EXPORT",
    "oracle survey export SURVEY --leave-out 'ben=stopped at 12' --out EXPORT",
    function="export_survey",
)
def export(survey: o.SurveyFolder, out: o.NewFolder, partial: o.Partial = False, leave_out: o.LeaveOut = None) -> None:
    """Write the counts as align, failure-modes, agreement and fit-composite read them; no answer is never a 0."""
    from metric_oracle.survey.export import export_survey

    reasons = dict(named(leave_out, "leave_out", "NAME=REASON", "=", function="export_survey"))
    found = export_survey(survey, out, partial=partial, leave_out=reasons)
    for warning in found.warnings():
        note(warning)
    note(f"{out}: {found.summary()}")
    put(f"oracle align {out}/ratings.csv --scores {out}/scores.csv")
    put(f"oracle failure-modes {out}/ratings.csv")
    put(f"oracle agreement {out}/ratings.csv" + f" --repeated {out}/repeats.csv" * bool(found.notes["repeated_pairs"]))


@command(app, "serve", "oracle survey serve SURVEY", "oracle survey serve SURVEY --port 8765", function="survey")
def serve(survey: o.SurveyFolder, port: o.Port = 0) -> None:
    """Show the pages of the raters, on this machine only; each rater has an address.

    The next time the addresses are the same: browsers keep counts under them that did not reach the server.
    """
    check_web("survey")
    from metric_oracle.survey.folder import open_survey
    from metric_oracle.survey.pages import serve_survey

    serve_survey(open_survey(survey), port, partial(put, flush=True))
