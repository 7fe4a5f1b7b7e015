"""The commands explore and report: web pages of results, from a server on this machine or in one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_given
from metric_oracle.base.declarations import OUTPUT, ROWS, SEARCH, Flag
from metric_oracle.base.errors import InputError
from metric_oracle.commands import wording
from metric_oracle.commands.command import Call, command
from metric_oracle.commands.inputs import TESTS, check_models, check_web, load_tests
from metric_oracle.commands.output import Destination, note, progress, put
from metric_oracle.commands.shared_options import Foreign
from metric_oracle.commands.tables import read_foreign_files
from metric_oracle.raters.rated_scores import ScoreFiles, Texts

app = typer.Typer(rich_markup_mode="rich")


def cases_of(
    results: Annotated[
        Sequence[str | Path],
        Doc(
            "The folder of a study, which knows its files, index and test reports; or files of results or scores, such "
            "as oracle retrieve, rerank, baseline or score wrote with --out. Only with an index can they be left out."
        ),
    ] = (),
    *,
    index: Annotated[
        str | Path | None,
        Doc(
            "Index that `results` were searched in: a folder that oracle build-index wrote. With `queries`, pages then "
            "show what the scores of its reports are based on; oracle explore also searches it for texts that are "
            "typed in."
        ),
        Flag(metavar="INDEX", panel=SEARCH),
    ] = None,
    queries: Annotated[
        Any,
        Doc(
            "Test reports, in any form that [`reports`][metric_oracle.reports] takes. By default pages show the text "
            "of a test report only if a file of scores has it."
        ),
        Flag(metavar="QUERIES", panel=SEARCH),
    ] = None,
    ratings: Annotated[
        str | Path | None,
        Doc(
            "Errors that radiologists counted, to show with the reports: a file as oracle failure-modes takes it. "
            "Needs `samples`. By default none are shown."
        ),
        Flag(metavar="RATINGS"),
    ] = None,
    samples: Texts | None = None,
    scores: ScoreFiles | None = None,
    foreign: Foreign | None = None,
    directions: option_types.Directions | None = None,
    sampled: Any = None,
    copies: Any = None,
) -> Any:
    """Return the data of the pages: results, test reports and ratings, read and joined."""
    from metric_oracle.corpora.samples import read_samples
    from metric_oracle.explorer.cases import read_cases, read_result
    from metric_oracle.explorer.copied_cases import read_copies
    from metric_oracle.explorer.rated_cases import RatedCases
    from metric_oracle.explorer.sampled_cases import SampledCases
    from metric_oracle.indexes.shards import open_index
    from metric_oracle.projects import opened_study
    from metric_oracle.raters.ratings import read_ratings

    if samples or scores:
        check_given(
            "ratings",
            ratings,
            "with `samples` or `scores`",
            "Add `ratings`.",
            got="none",
        )
    study = opened_study(Path(results[0]), tell=note) if len(results) == 1 else None
    if study is not None:
        results, index, queries = study.results, index or study.index, queries or study.tests
        if study.changed:
            note(f"changed or missing since the study was made: {', '.join(study.changed)}")
    others = [found for _, found in read_foreign_files(foreign, directions)]
    opened = None if index is None else open_index(index)
    with progress("reading results"):
        read = [read_result(result) for result in [*results, *others]]
    batch = None if queries is None else load_tests(queries, opened, *read)
    with progress("joining results"):
        tables: Any = scores or ()
        counted = ratings and RatedCases(read_ratings(ratings, samples=samples), tuple(tables))
        of_samples = None if sampled is None else SampledCases(read_samples(sampled))
        copied = None if copies is None else read_copies(copies)
        return read_cases(read, opened, batch, counted or None, of_samples, copied, say=wording.current.line)


@command(
    app,
    "oracle explore study",
    "oracle explore bleu.parquet radgraph.parquet --queries TESTS --index INDEX",
    "oracle explore r2gen.parquet oracle.parquet --queries test.csv",
    "oracle explore oracle.parquet --queries TESTS --ratings EXPORT/ratings.csv \\\n--samples EXPORT/samples.csv",
    "oracle explore oracle.parquet --queries test.csv --sampled samples.jsonl",
    "oracle explore r2gen.parquet --queries TESTS --index INDEX \\\n--copies copies.parquet",
    "oracle explore nearest.parquet --queries test.csv --images images/",
    "oracle explore --index INDEX",
    of=lambda: cases_of,
    panel=ROWS,
    reports={"queries": TESTS},
)
def explore(
    call: Call,
    *,
    sampled: Annotated[
        Path | None,
        Doc(
            "Several reports of a model for each study, to show with the test reports: JSON Lines or Parquet with "
            "lists in the column candidates, or a table with one row per sample. By default none are shown."
        ),
    ] = None,
    copies: Annotated[
        Path | None,
        Doc(
            "File that oracle overlap --pairs wrote for the test reports: .parquet, .csv or .jsonl. Pages then show "
            "the longest runs of words that reports share with training reports."
        ),
    ] = None,
    images: Annotated[
        Path | None,
        Doc(
            "Folder of images to show with the reports: a file ID.png (.jpg, .jpeg, .webp) for each id, or a folder ID "
            "of such files, of which the first by name is shown."
        ),
        Flag(metavar="FOLDER"),
    ] = None,
    port: Annotated[
        option_types.Count, Doc("Port of the web server on this machine. 0 takes a free port."), Flag(panel=OUTPUT)
    ] = 0,
) -> None:
    """Explore results in a browser: test reports, the reports found for them, and what their scores are based on.

    The pages can be opened on this machine only, under the printed address, which contains a secret key. To open them
    from another machine, forward the port with ssh -L.
    """
    check_web()
    if not call.values.get("results") and "index" not in call.values:
        raise InputError("results or index", "must be given", "neither", "Name result files, or an index with `index`.")
    _check_tests(call)
    from metric_oracle.explorer.images import Images

    folder = None if images is None else Images(images)
    from metric_oracle.web import server

    with server.listen(port) as at:
        from metric_oracle.explorer.pages import Explorer

        explorer = Explorer(call(sampled=sampled, copies=copies), images=folder)
        bound = at.getsockname()[1]
        token = server.new_token()
        app = server.guarded(explorer.routes(), port=bound, guests={token: "reader"}, say=wording.current.line)
        put(server.address(bound, token), flush=True)
        note(f"from another machine: ssh -L {bound}:127.0.0.1:{bound} THIS-HOST, then the same address. Ctrl-C ends.")
        server.serve(app, at)


@command(
    app,
    "oracle report study --out page.html",
    "oracle report bleu.parquet radgraph.parquet --queries TESTS --out page.html",
    "oracle report r2gen.parquet --no-text --out scores.html",
    of=lambda: cases_of,
    panel=ROWS,
    reports={"queries": TESTS},
    endings=(".html",),
    needs_out=True,
)
def report(call: Call, to: Destination, *, text: option_types.WithText = True) -> None:
    """Write results as one HTML page that works offline: scores, reports, and what the scores are based on.

    The file contains report text, and only its owner can read it. --no-text leaves out the reports and their ids.
    """
    check_web()
    if not call.values.get("results") or to.out is None:
        raise InputError(
            "results and out",
            "must be given",
            "one of them or none",
            "Name result files, and `out='page.html'`.",
        )
    _check_tests(call)
    from metric_oracle.explorer.report import write_report

    cases = call()
    with progress("writing"):
        write_report(cases, to.out, text=text)
    note(f"{to.out}: {len(cases.ids):,} test reports{'' if text else ', scores only'}")


def _check_tests(call: Call) -> None:
    """Raise if a model of the test reports cannot run here, or their options are given without them."""
    queries = call.values.get("queries")
    if queries is None:
        call.attach["queries"](None)
    else:
        check_models(queries)
