"""The commands survey create, serve, status and export."""

from functools import partial

import typer

from metric_oracle.commands import COMMANDS
from metric_oracle.commands import options as o
from metric_oracle.commands.command import command, named, split_names, used
from metric_oracle.commands.groups import Group
from metric_oracle.commands.inputs import check_web, written_by
from metric_oracle.commands.output import Destination, note, put

app = typer.Typer(name="survey", cls=Group, no_args_is_help=True, rich_markup_mode="rich", help=COMMANDS["survey"].text)


@command(
    app,
    "create",
    "oracle survey create test.csv --candidates bleu=bleu.parquet \\\n"
    "--candidates radgraph=radgraph.parquet --raters anna,ben --out SURVEY",
)
def create(
    references: o.References,
    candidates: o.Candidates,
    raters: o.Raters,
    out: o.NewFolder,
    of_models: o.ModelsReading,
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
    """Draw studies for a survey, and shuffle their candidates, whose origin raters do not see."""
    from metric_oracle.reading import reports
    from metric_oracle.survey.create import SurveyOptions, create_survey, read_strata

    strata = None if stratify is None else read_strata(stratify, reading.id_column)
    files = written_by(named(candidates, "candidates"), of_models, reading)
    options = SurveyOptions(
        studies=studies,
        seed=seed,
        repeats=repeats,
        identical=identical,
        categories=categories,
        instructions=instructions,
        unequal=unequal,
        stratify=strata,
        order=order,
    )
    tests = reports(references, **used(reading, o.Reading()), tell=note)
    survey = create_survey(tests, files, out, raters=split_names(raters), options=options)
    note(f"{out}: {survey.summary()}")
    note(f"It holds report text, for its owner only. Next: oracle survey serve {out}")


@command(app, "status", "oracle survey status SURVEY", formats=("table", "jsonl"))
def status(survey: o.SurveyFolder, to: Destination) -> None:
    """Show how many studies each rater has finished."""
    import json

    from metric_oracle.survey.export import status_table, survey_status

    records = survey_status(survey)
    to.deliver(lambda: [status_table(records)], {"jsonl": lambda: map(json.dumps, records)})


@command(
    app,
    "export",
    "oracle survey export SURVEY --out EXPORT",
    "oracle survey export SURVEY --leave-out 'ben=stopped at 12' --out EXPORT",
)
def export(survey: o.SurveyFolder, out: o.NewFolder, partial: o.Partial = False, leave_out: o.LeaveOut = None) -> None:
    """Write the counted errors in files that align, failure-modes, agreement and fit-composite read.

    A missing answer is never counted as 0 errors.
    """
    from metric_oracle.survey.export import export_survey

    reasons = dict(named(leave_out, "leave_out", "NAME=REASON"))
    exported = export_survey(survey, out, partial=partial, leave_out=reasons)
    for warning in exported.warnings():
        note(warning)
    note(f"{out}: {exported.summary()}")
    put(f"oracle align {out}/ratings.csv --scores {out}/scores.csv")
    put(f"oracle failure-modes {out}/ratings.csv")
    put(
        f"oracle agreement {out}/ratings.csv"
        + f" --repeated {out}/repeats.csv" * bool(exported.notes["repeated_pairs"])
    )


@command(app, "serve", "oracle survey serve SURVEY", "oracle survey serve SURVEY --port 8765")
def serve(survey: o.SurveyFolder, port: o.SurveyPort = 0) -> None:
    """Serve the web pages of the raters, on this machine only, and print the address of each rater.

    The addresses stay the same when the server is started again, because a browser keeps answers under them that did
    not reach the server.
    """
    check_web()
    from metric_oracle.survey.folder import open_survey
    from metric_oracle.survey.pages import serve_survey

    serve_survey(open_survey(survey), port, partial(put, flush=True))
