"""The commands baseline random, most-frequent, identity, nearest and expectation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

from metric_oracle.choices import RESULTS
from metric_oracle.commands import COMMANDS
from metric_oracle.commands import old_options as o
from metric_oracle.commands.groups import Group
from metric_oracle.commands.old_command import command, given, one_metric
from metric_oracle.commands.old_inputs import load_tests, old_check_encoder
from metric_oracle.commands.options import PLAIN
from metric_oracle.commands.output import Destination, deliver_finding, progress
from metric_oracle.commands.search import show_answers

app = typer.Typer(
    name="baseline", cls=Group, no_args_is_help=True, rich_markup_mode="rich", help=COMMANDS["baseline"].text
)


@dataclass
class Shared:
    """Arguments and options of every baseline."""

    index: o.Index
    queries: o.Queries
    bertscore: o.Bertscore
    inputs: o.QueryInputs
    metric: o.Metric = o.BLEU

    def plan(self, make: Callable[..., Any], **own: Any) -> tuple[Any, Any]:
        """Make and check the plan of a baseline with `make`, and only then read the test reports; return both."""
        from metric_oracle.retrieval.options import SearchOptions

        options = SearchOptions(text=own.pop("text", True), **given(self.bertscore))
        plan = make(self.index, metric=one_metric(self.metric), options=options, **own)
        old_check_encoder(plan.scores, self.queries, self.inputs)
        return plan, load_tests(self.queries, self.inputs, plan.scores.index, metrics=[plan.scores.metric])


def _baseline(kind: str, shared: Shared, to: Destination, with_text: bool, **own: Any) -> None:
    from metric_oracle.retrieval.baselines import plan_baseline

    plan, batch = shared.plan(plan_baseline, kind=kind, text=with_text, **own)
    show_answers(to, plan.run(batch))


def _command(name: str, *examples: str, plot: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return command(app, name, *examples, endings=RESULTS, formats=PLAIN, plot=plot)


@_command("random", "oracle baseline random INDEX test.csv -m bleu --draws 10 --out random.parquet")
def random(
    shared: Shared, to: Destination, draws: o.Draws = 10, seed: o.Seed = 0, with_text: o.WithText = True
) -> None:
    """Score reports drawn at random from the corpus; every report is equally likely."""
    _baseline("random", shared, to, with_text, draws=draws, seed=seed)


@_command("most-frequent", "oracle baseline most-frequent INDEX test.csv -m rouge-l")
def most_frequent(shared: Shared, to: Destination, with_text: o.WithText = True) -> None:
    """Score the most frequent report of the corpus as the answer to every test report."""
    _baseline("most-frequent", shared, to, with_text)


@_command("identity", "oracle baseline identity INDEX test.csv -m radgraph --radgraph graphs.json")
def identity(shared: Shared, to: Destination, with_text: o.WithText = True) -> None:
    """Score each test report against itself, which is the score of a perfect prediction."""
    _baseline("identity", shared, to, with_text)


@_command(
    "nearest",
    "oracle baseline nearest INDEX test.csv -m bleu \\\n"
    "--corpus-vectors train_images.npz --query-vectors test_images.npz",
)
def nearest(
    shared: Shared,
    to: Destination,
    corpus_vectors: o.CorpusVectors,
    query_vectors: o.QueryVectors,
    corpus_vector_ids: o.CorpusVectorIds = None,
    query_vector_ids: o.QueryVectorIds = None,
    with_text: o.WithText = True,
) -> None:
    """Score the report of the nearest image, by the cosine of image embeddings, as CXR-RePaiR does."""
    vectors = {
        "corpus_vectors": (corpus_vectors, corpus_vector_ids), "query_vectors": (query_vectors, query_vector_ids),
    }  # fmt: skip
    _baseline("nearest", shared, to, with_text, **vectors)


@_command("expectation", "oracle baseline expectation INDEX test.csv -m bleu --plot chance.png", plot=True)
def expectation(shared: Shared, to: Destination) -> None:
    """Compute exact statistics of random retrieval: mean, standard deviation and quantiles of the scores.

    The statistics of a test report are over its scores with all reports of the corpus, so that nothing is drawn.
    """
    from metric_oracle.retrieval.expectation import plan_expectation

    plan, batch = shared.plan(plan_expectation)
    with progress("test reports") as step:
        statistics = plan.run(batch, step)
    deliver_finding(to, statistics)
