"""The command overlap."""

from functools import partial
from pathlib import Path

import typer

from metric_oracle.choices import RESULTS
from metric_oracle.commands import options as o
from metric_oracle.commands.command import command
from metric_oracle.commands.output import Destination, note, page_lines, progress, table_lines
from metric_oracle.errors import InputError

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "overlap",
    "oracle overlap INDEX R2Gen=r2gen.csv --references test.csv",
    "oracle overlap INDEX R2Gen=r2gen.csv WCL=wcl.csv --references test.csv \\\n--out copies.md --pairs copies.csv",
    endings=(".md", ".tex", ".csv", ".parquet", ".jsonl"),
    formats=o.FORMATS,
    plot=True,
)
def overlap(
    index: o.Index,
    sets: o.Sets,
    to: Destination,
    references: o.HumanReports = None,
    mask: o.Mask = False,
    pairs: o.PairsFile = None,
    with_text: o.WithText = False,
    resamples: o.ResamplesOrNone = None,
    seed: o.Seed = 0,
    threads: o.Threads = None,
) -> None:
    """Measure what sets of reports copy from a training corpus, compared with the human test reports.

    The lines of the table are exact and near copies, the longest run of words shared with one training report, new
    4-grams, and how often a report is nearer to a training report than to the human report of its study.
    """
    from metric_oracle import api
    from metric_oracle.copies.layout import layout, views, write_overlap
    from metric_oracle.copies.plot import plot_overlap
    from metric_oracle.copies.report import overlap as measure
    from metric_oracle.presentation.paper_table import RENDERERS

    if pairs is not None:
        api.check_out(pairs, to.inputs, argument="pairs", endings=RESULTS)
    corpus = api.open_index(index)
    with progress("overlap") as step:
        read = {name: api.reports(Path(path), tell=note) for name, path in _named(sets)}
        human = None if references is None else api.reports(references, tell=note)
        result = measure(corpus, read, human, mask=mask, resamples=resamples, seed=seed, threads=threads, progress=step)
    listed = result.pairs(text=with_text)
    if pairs is not None:
        api.Results(listed, result.signature).write(pairs)
        note(f"{pairs}: each report and its nearest training report")
    if to.plot is not None:
        plot_overlap(result, to.plot)
        note(f"{to.plot}: {len(read)} sets")
    texts = {
        **table_lines(api.Results(result.table, result.signature)),
        **page_lines(RENDERERS, layout(result), result.signature),
    }
    to.deliver(lambda: views(result, listed), texts, result.summary(), partial(write_overlap, result))


def _named(sets: list[str]) -> list[tuple[str, str]]:
    """Return name and file of each set of reports; raise InputError if a name occurs twice."""
    result: dict[str, str] = {}
    for text in sets:
        name, mark, path = text.partition("=")
        name, path = (name, path) if mark and not Path(text).exists() else (Path(text).stem, text)
        if not name or not path or name in result:
            raise InputError(
                argument="sets",
                rule="must be FILE or NAME=FILE, each name once",
                value=repr(text),
                step="Write NAME=FILE with another name.",
            )
        result[name] = path
    return [*result.items()]
