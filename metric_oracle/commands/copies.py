"""The command overlap."""

import typer

from metric_oracle.choices import RESULTS, TABLES
from metric_oracle.commands import old_options as o
from metric_oracle.commands.old_command import command, named_files, used
from metric_oracle.commands.old_inputs import check_owner, written_by
from metric_oracle.commands.output import Destination, deliver_finding, note, progress
from metric_oracle.corpora.read import Read
from metric_oracle.errors import option

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "overlap",
    "oracle overlap INDEX R2Gen=r2gen.csv --references test.csv",
    "oracle overlap INDEX R2Gen=r2gen.csv WCL=wcl.csv --references test.csv \\\n--out copies.md --pairs copies.csv",
    endings=TABLES,
    formats=o.FORMATS,
    plot=True,
)
def overlap(
    index: o.Index,
    sets: o.Sets,
    to: Destination,
    of_models: o.ModelsReading,
    reading: o.Reading,
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
    from metric_oracle.copies.overlap import overlap as measure
    from metric_oracle.findings.results import Results
    from metric_oracle.findings.writing import check_out
    from metric_oracle.indexes.shards import open_index
    from metric_oracle.reading import reports

    if references is None:
        _check_reading(reading, of_models)
    if pairs is not None:
        check_out(pairs, to.inputs, argument="pairs", endings=RESULTS)
    corpus = open_index(index)
    with progress("overlap") as step:
        read = written_by(named_files(sets, "sets"), of_models, reading)
        human = None if references is None else reports(references, Read(**used(reading)), tell=note)
        result = measure(corpus, read, human, mask=mask, resamples=resamples, seed=seed, threads=threads, progress=step)
    listed = result.pairs(text=with_text)
    if pairs is not None:
        Results(listed, result.signature).write(pairs)
        note(f"{pairs}: each report and its nearest training report")
    deliver_finding(to, result, lambda: result.shown(pairs=listed))


def _check_reading(reading: o.Reading, of_models: o.ModelsReading) -> None:
    """Raise InputError if an option was given that only the human reports would read; they were not given."""
    of_sets = {"encoding", "separator"} | ({"split"} if of_models.model_ids else set())
    given = used(reading, o.Reading()).keys() - of_sets
    names = [name for name in vars(o.Reading()) if name in given]
    theirs = [option(f"model_{name}") for name in names if hasattr(of_models, f"model_{name}")]
    check_owner("references", names, f"; the sets have {', '.join(theirs)}" if theirs else "")
