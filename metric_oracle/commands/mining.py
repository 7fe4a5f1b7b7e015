"""The commands mine and pairs."""

import json
from functools import partial
from typing import Any

import typer

from metric_oracle.commands import options as o
from metric_oracle.commands.command import command, given, one_metric, used
from metric_oracle.commands.output import Destination, progress

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "mine",
    "oracle mine INDEX -m radgraph -k 3 --min-score 0.4 --out positives.parquet",
    'oracle mine INDEX -m rouge-l -k 5 --where "radgraph<=0.2" \\\n--exclude text,subject_id --out negatives.parquet',
    endings=(".parquet",),
    needs_out=True,
    formats=("table", "jsonl"),
)
def mine(
    index: o.Index,
    bertscore: o.Bertscore,
    selection: o.Selection,
    running: o.Running,
    to: Destination,
    *,
    metric: o.Summed = o.BLEU,
    k: o.NCandidates = 1,
    searching: o.Searching,
    anchors: o.Anchors = None,
    part: o.Part = None,
    self_score: o.SelfScore = False,
    with_text: o.WithText = False,
) -> None:
    """Find, for every report of an index, the best-scoring other reports of this index, as pairs to train on.

    A report is never its own candidate. An interrupted run resumes when the same command runs again.
    """
    from metric_oracle.indexes.shards import open_index
    from metric_oracle.mining.mine import mine as run
    from metric_oracle.mining.selection import Selection
    from metric_oracle.retrieval.options import SearchOptions

    out = to.file()
    options = SearchOptions(k, part=part, **used(searching, o.Searching()), **given(bertscore), **given(running))
    with progress("anchors") as step:
        mined = run(
            open_index(index),
            one_metric(metric),
            out,
            anchors=anchors,
            self_score=self_score,
            text=with_text,
            selection=Selection(**given(selection)),
            options=options,
            progress=step,
        )
    report(to, mined)


@command(
    app,
    "pairs",
    "oracle pairs positives.parquet negatives.parquet --shape triplet \\\n--index INDEX --out triplets.parquet",
    "oracle pairs positives.parquet --shape trec --index INDEX --out qrels.txt",
    endings=(".parquet", ".txt", ".qrels"),
    needs_out=True,
    formats=("table", "jsonl"),
)
def pairs(
    positives: o.Positives, shape: o.Shape, to: Destination, negatives: o.Negatives = None, index: o.MinedIndex = None
) -> None:
    """Write mined pairs in the shape that a training library reads: triplets, n-tuples, labelled pairs or lists.

    Negatives whose text is that of their positive or of their anchor are left out and counted.
    """
    from metric_oracle.indexes.shards import open_index
    from metric_oracle.mining.pairs import pairs as write

    out = to.file()
    corpus = None if index is None else open_index(index)
    with progress("blocks") as step:
        written = write(positives, negatives, shape=shape, out=out, index=corpus, progress=step)
    _deliver(to, partial(_view, written.counts), written.counts, written.summary())


def report(to: Destination, mined: Any) -> None:
    """Print that a file of mined pairs was written, its counts, and how many candidates each rule left out."""

    def view() -> list[str]:
        """Return the counts as lines."""
        of_sample = dict(mined.skipped)
        n, whole = of_sample.pop("anchors", 0), of_sample.pop("candidates", 0)
        width = max(map(len, of_sample), default=0)
        shares = [f"{name:<{width}}  {count:>14,}  {count / whole:>7.2%}" for name, count in of_sample.items()]
        title = f"{whole:,} candidates of {n:,} anchors, by the first rule that leaves them out:"
        return [*_view({**mined.counts, **mined.scores}), "", title, *shares]

    _deliver(to, view, mined.lines, mined.summary())


def _deliver(to: Destination, view: Any, lines: Any, summary: str) -> None:
    """Print that a file was written, with `summary`, and its numbers by name: what `view` returns, or JSON."""
    to.deliver(view, {"jsonl": lambda: [json.dumps(lines)]}, summary, lambda path: None, view)


def _view(lines: Any) -> list[str]:
    width = max(map(len, lines), default=0)
    return [f"{name:<{width}}  {_shown(value):>14}" for name, value in lines.items()]


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:z.4f}"
