"""explore, report: pages over results, on this machine or in one file."""

from typing import Any

import typer

from metric_oracle.commands import options as o
from metric_oracle.commands.command import command, used
from metric_oracle.commands.inputs import check_installed, check_web, load_tests
from metric_oracle.commands.output import Destination, note, progress, put
from metric_oracle.commands.scoring import read_foreign_files
from metric_oracle.errors import InputError

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "explore",
    "oracle explore bleu.parquet radgraph.parquet --queries TESTS --index INDEX",
    "oracle explore r2gen.parquet oracle.parquet --queries test.csv",
    "oracle explore oracle.parquet --queries TESTS --ratings EXPORT/ratings.csv \\\n--samples EXPORT/samples.csv",
    "oracle explore --index INDEX",
)
def explore(
    files: o.Files,
    models: o.Models,
    reading: o.Reading,
    rated: o.Rated,
    to: Destination,
    results: o.ResultFiles = None,
    index: o.IndexOption = None,
    queries: o.QueriesOption = None,
    foreign: o.Foreign = None,
    direction: o.Direction = None,
    port: o.Port = 0,
) -> None:
    """Look at results in a browser: each test report with its oracles, their scores and what each metric saw.

    The pages are for this machine alone; the address that is printed has the key to them. From another machine: ssh -L.
    """
    check_web("explore")
    if not results and index is None:
        msg = "explore: results or index must be given; got neither. Name result files, or an index with --index."
        raise InputError(msg)
    check_installed("explore", files)
    others = [scores for _, scores in read_foreign_files(foreign, direction, "explore")]
    from metric_oracle.web import server

    with server.listen(port, "explore") as at:
        from metric_oracle.explorer.pages import Explorer

        read = [*(results or []), *others]
        explorer = Explorer(_cases(read, index, queries, files, models, reading, rated, "explore"))
        bound = at.getsockname()[1]
        token = server.new_token()
        app = server.guarded(explorer.routes(), port=bound, guests={token: "reader"})
        put(server.address(bound, token), flush=True)
        note(f"from another machine: ssh -L {bound}:127.0.0.1:{bound} THIS-HOST, then the same address. Ctrl-C ends.")
        server.serve(app, at)


@command(
    app,
    "report",
    "oracle report bleu.parquet radgraph.parquet --queries TESTS --out page.html",
    "oracle report r2gen.parquet --no-text --out scores.html",
    endings=(".html",),
)
def report(
    files: o.Files,
    models: o.Models,
    reading: o.Reading,
    rated: o.Rated,
    to: Destination,
    results: o.ResultFiles = None,
    index: o.IndexOption = None,
    queries: o.QueriesOption = None,
    foreign: o.Foreign = None,
    direction: o.Direction = None,
    with_text: o.WithText = True,
) -> None:
    """Write results as one page for a browser, which loads nothing: scores, and the reports with what each metric saw.

    Only its owner can read the file. --no-text leaves out reports and ids.
    """
    check_web("report")
    if not results or to.out is None:
        msg = "report: results and out must be given; got one of them or none. Name result files, and --out page.html."
        raise InputError(msg)
    check_installed("report", files)
    from metric_oracle.explorer.report import write_report

    others = [scores for _, scores in read_foreign_files(foreign, direction, "report")]
    cases = _cases([*results, *others], index, queries, files, models, reading, rated, "report")
    with progress("writing"):
        write_report(cases, to.out, text=with_text)
    note(f"{to.out}: {len(cases.ids):,} test reports{'' if with_text else ', scores only'}")


def _cases(
    results: Any,
    index: Any,
    queries: Any,
    files: o.Files,
    models: o.Models,
    reading: o.Reading,
    rated: o.Rated,
    function: str,
) -> Any:
    """Read what the pages show."""
    from metric_oracle import api
    from metric_oracle.explorer.cases import read_cases, read_result
    from metric_oracle.explorer.rated_cases import RatedCases
    from metric_oracle.raters.ratings import read_ratings

    beside = {**used(files), **used(models), **used(reading, o.Reading())}
    if queries is None and beside:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in beside)
        msg = f"{function}: queries must be given with {names}; got none. Add --queries, whose reports they belong to."
        raise InputError(msg)
    if rated.ratings is None and (rated.samples or rated.scores):
        msg = f"{function}: ratings must be given with samples or scores; got none. Add --ratings."
        raise InputError(msg)
    opened = None if index is None else api.open_index(index)
    with progress("reading results"):
        results = [read_result(one, function) for one in results]
    batch = None if queries is None else load_tests(queries, files, models, reading, opened, *results)
    with progress("joining results"):
        counted = rated.ratings and RatedCases(
            read_ratings(rated.ratings, samples=rated.samples), tuple(rated.scores or ())
        )
        return read_cases(results, opened, batch, function, counted or None)
