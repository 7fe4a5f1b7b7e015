"""The commands explore and report: web pages of results, from a server on this machine or in one file."""

from collections.abc import Sequence
from typing import Any

import typer

from metric_oracle.arguments import check_given
from metric_oracle.commands import old_options as o
from metric_oracle.commands.old_command import command, named
from metric_oracle.commands.old_inputs import check_installed, check_owner, check_web, given_options, load_tests
from metric_oracle.commands.output import Destination, note, progress, put
from metric_oracle.commands.scoring import read_foreign_files
from metric_oracle.errors import InputError, option

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "explore",
    "oracle explore bleu.parquet radgraph.parquet --queries TESTS --index INDEX",
    "oracle explore r2gen.parquet oracle.parquet --queries test.csv",
    "oracle explore oracle.parquet --queries TESTS --ratings EXPORT/ratings.csv \\\n--samples EXPORT/samples.csv",
    "oracle explore oracle.parquet --queries test.csv --sampled samples.jsonl",
    "oracle explore r2gen.parquet --queries TESTS --index INDEX \\\n--copies copies.parquet",
    "oracle explore nearest.parquet --queries test.csv --images images/",
    "oracle explore --index INDEX",
)
def explore(
    inputs: o.QueryInputs,
    rated: o.Rated,
    to: Destination,
    results: o.ResultsOrIndex = None,
    index: o.ShownIndex = None,
    queries: o.ShownQueries = None,
    foreign: o.Foreign = None,
    direction: o.Direction = None,
    sampled: o.Sampled = None,
    copies: o.Copied = None,
    images: o.ImagesFolder = None,
    port: o.Port = 0,
) -> None:
    """Explore results in a browser: test reports, the reports found for them, and what their scores are based on.

    The pages can be opened on this machine only, under the printed address, which contains a secret key. To open them
    from another machine, forward the port with ssh -L.
    """
    check_web()
    if not results and index is None:
        raise InputError(
            "results or index", "must be given", "neither", f"Name result files, or an index with {option('index')}."
        )
    check_installed(inputs.files)
    from metric_oracle.explorer.images import Images

    folder = None if images is None else Images(images)
    others = _of_other_tools(foreign, direction)
    from metric_oracle.web import server

    with server.listen(port) as at:
        from metric_oracle.explorer.pages import Explorer

        read = [*(results or []), *others]
        explorer = Explorer(_cases(read, index, queries, inputs, rated, sampled, copies), images=folder)
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
    needs_out=True,
)
def report(
    inputs: o.QueryInputs,
    rated: o.Rated,
    to: Destination,
    results: o.ResultFiles = None,
    index: o.ShownIndex = None,
    queries: o.ShownQueries = None,
    foreign: o.Foreign = None,
    direction: o.Direction = None,
    with_text: o.WithText = True,
) -> None:
    """Write results as one HTML page that works offline: scores, reports, and what the scores are based on.

    The file contains report text, and only its owner can read it. --no-text leaves out the reports and their ids.
    """
    check_web()
    if not results or to.out is None:
        raise InputError(
            "results and out",
            "must be given",
            "one of them or none",
            f"Name result files, and {option('out', 'page.html')}.",
        )
    check_installed(inputs.files)
    from metric_oracle.explorer.report import write_report

    others = _of_other_tools(foreign, direction)
    cases = _cases([*results, *others], index, queries, inputs, rated)
    with progress("writing"):
        write_report(cases, to.out, text=with_text)
    note(f"{to.out}: {len(cases.ids):,} test reports{'' if with_text else ', scores only'}")


def _of_other_tools(foreign: Sequence[str] | None, direction: Sequence[str] | None) -> list[Any]:
    """Return the scores in --foreign, whose directions are those in --direction."""
    files: dict[str, list[str]] = {}
    for name, file in named(foreign, "foreign", repeatable=True):
        files.setdefault(name, []).append(file)
    directions = dict(named(direction, "direction", "NAME=higher|lower"))
    return [scores for _, scores in read_foreign_files(files, directions)]


def _cases(
    results: Any, index: Any, queries: Any, inputs: o.Inputs, rated: o.Rated, sampled: Any = None, copies: Any = None
) -> Any:
    """Return the data of the pages: results, test reports and ratings, read and joined."""
    from metric_oracle.corpora.samples import read_samples
    from metric_oracle.explorer.cases import read_cases, read_result
    from metric_oracle.explorer.copied_cases import read_copies
    from metric_oracle.explorer.rated_cases import RatedCases
    from metric_oracle.explorer.sampled_cases import SampledCases
    from metric_oracle.indexes.shards import open_index
    from metric_oracle.raters.ratings import read_ratings

    if queries is None:
        check_owner("queries", given_options(inputs))
    if rated.samples or rated.scores:
        check_given(
            "ratings",
            rated.ratings,
            f"with {option('samples')} or {option('scores')}",
            f"Add {option('ratings')}.",
            got="none",
        )
    opened = None if index is None else open_index(index)
    with progress("reading results"):
        results = [read_result(result) for result in results]
    batch = None if queries is None else load_tests(queries, inputs, opened, *results)
    with progress("joining results"):
        counted = rated.ratings and RatedCases(
            read_ratings(rated.ratings, samples=rated.samples), tuple(rated.scores or ())
        )
        samples = None if sampled is None else SampledCases(read_samples(sampled))
        copied = None if copies is None else read_copies(copies)
        return read_cases(results, opened, batch, counted or None, samples, copied)
