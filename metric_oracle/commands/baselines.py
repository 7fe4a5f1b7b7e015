"""baseline random, most-frequent, identity, nearest, expectation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

from metric_oracle.choices import RESULTS
from metric_oracle.commands import COMMANDS
from metric_oracle.commands import options as o
from metric_oracle.commands.command import command, given, one_metric
from metric_oracle.commands.groups import Group
from metric_oracle.commands.inputs import load_tests
from metric_oracle.commands.output import Destination, deliver_results, note, progress
from metric_oracle.commands.search import PLAIN, check_encoder, show_answers

app = typer.Typer(
    name="baseline", cls=Group, no_args_is_help=True, rich_markup_mode="rich", help=COMMANDS["baseline"].text
)


@dataclass
class Asked:
    """What every baseline takes."""

    index: o.Index
    queries: o.Queries
    bertscore: o.Bertscore
    files: o.Files
    models: o.Models
    reading: o.Reading
    metric: o.Metric = o.BLEU

    def plan(self, make: Callable[..., Any], **own: Any) -> tuple[Any, Any]:
        """Return the plan of a baseline and the test reports, which are read after all checks."""
        from metric_oracle import api

        options = api.SearchOptions(text=own.pop("text", True), **given(self.bertscore))
        plan = make(self.index, metric=one_metric(self.metric, "baseline"), options=options, **own)
        check_encoder(plan.scores, self.queries, self.files)
        return plan, load_tests(self.queries, self.files, self.models, self.reading, plan.scores.index)


def _baseline(kind: str, asked: Asked, to: Destination, with_text: bool, **own: Any) -> None:
    from metric_oracle import api

    plan, batch = asked.plan(api.plan_baseline, kind=kind, text=with_text, **own)
    show_answers(to, plan.run(batch))


def _command(name: str, *examples: str, plot: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return command(app, name, *examples, endings=RESULTS, formats=PLAIN, plot=plot, function="baseline")


@_command("random", "oracle baseline random INDEX test.csv -m bleu --draws 10 --out random.parquet")
def random(asked: Asked, to: Destination, draws: o.Draws = 10, seed: o.Seed = 0, with_text: o.WithText = True) -> None:
    """Score random reports of the corpus, each row as likely as any other."""
    _baseline("random", asked, to, with_text, draws=draws, seed=seed)


@_command("most-frequent", "oracle baseline most-frequent INDEX test.csv -m rouge-l")
def most_frequent(asked: Asked, to: Destination, with_text: o.WithText = True) -> None:
    """Score the most frequent report of the corpus."""
    _baseline("most-frequent", asked, to, with_text)


@_command("identity", "oracle baseline identity INDEX test.csv -m radgraph --radgraph graphs.json")
def identity(asked: Asked, to: Destination, with_text: o.WithText = True) -> None:
    """Score each test report with itself: what a perfect prediction gets."""
    _baseline("identity", asked, to, with_text)


@_command(
    "nearest",
    "oracle baseline nearest INDEX test.csv -m bleu \\\n"
    "--corpus-vectors train_images.npz --query-vectors test_images.npz",
)
def nearest(
    asked: Asked,
    to: Destination,
    corpus_vectors: o.CorpusVectors,
    query_vectors: o.QueryVectors,
    corpus_vector_ids: o.CorpusVectorIds = None,
    query_vector_ids: o.QueryVectorIds = None,
    with_text: o.WithText = True,
) -> None:
    """Score the report of the nearest image, by the cosine of image embeddings, as CXR-RePaiR retrieves."""
    vectors = {
        "corpus_vectors": (corpus_vectors, corpus_vector_ids), "query_vectors": (query_vectors, query_vector_ids),
    }  # fmt: skip
    _baseline("nearest", asked, to, with_text, **vectors)


@_command("expectation", "oracle baseline expectation INDEX test.csv -m bleu --plot chance.png", plot=True)
def expectation(asked: Asked, to: Destination) -> None:
    """Describe the scores of each test report with all reports of the corpus: exact mean, deviation, quantiles."""
    from metric_oracle import api
    from metric_oracle.presentation.terminal import expectation_table

    plan, batch = asked.plan(api.plan_expectation)
    with progress("test reports") as step:
        found = plan.run(batch, step)
    if to.plot is not None:
        from metric_oracle.presentation.expectation_plot import plot_histogram

        plot_histogram(found, to.plot)
        note(f"{to.plot}: {found.counts.sum():,} pairs")
    mean = found.table["mean"].to_numpy().mean()
    summary = f"{found.table.num_rows:,} lines, mean score {mean:.4f}"
    deliver_results(to, found, lambda: [expectation_table(found)], summary)
