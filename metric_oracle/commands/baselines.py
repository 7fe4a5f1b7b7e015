"""The commands of `oracle baseline`: random, most-frequent, identity, nearest and expectation."""

from collections.abc import Callable
from typing import Any

import typer

import metric_oracle
from metric_oracle.base.option_types import OF_BASELINES, RESULTS
from metric_oracle.commands.command import REQUIRED, Call, command
from metric_oracle.commands.groups import Group
from metric_oracle.commands.inputs import TESTS, with_ids
from metric_oracle.commands.output import Destination, deliver_finding
from metric_oracle.commands.search import show_answers
from metric_oracle.commands.shared_options import PLAIN, CorpusVectorIds, QueryVectorIds

app = typer.Typer(
    name="baseline",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Score baselines: random reports, the most frequent report, a perfect prediction, the nearest image.",
)


def _command(kind: str, *examples: str, **defaults: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the body of a kind of baseline, a command without the arguments of the other kinds."""
    own = OF_BASELINES.get(kind, ())
    others = [name for names in OF_BASELINES.values() for name in names if name not in own]
    return command(
        app,
        *examples,
        name=kind,
        of=lambda: metric_oracle.baseline,
        reports={"queries": TESTS},
        endings=RESULTS,
        formats=PLAIN,
        fixed={"kind": kind, **dict.fromkeys(others)},
        metric="bleu",
        **defaults,
    )


@_command("random", "oracle baseline random INDEX test.csv -m bleu --draws 10 --out random.parquet", draws=10, seed=0)
def random(call: Call, to: Destination) -> None:
    """Score reports drawn at random from the corpus; every report is equally likely."""
    _show(call, to)


@_command("most-frequent", "oracle baseline most-frequent INDEX test.csv -m rouge-l")
def most_frequent(call: Call, to: Destination) -> None:
    """Score the most frequent report of the corpus as the answer to every test report."""
    _show(call, to)


@_command("identity", "oracle baseline identity INDEX test -m radgraph")
def identity(call: Call, to: Destination) -> None:
    """Score each test report against itself, which is the score of a perfect prediction."""
    _show(call, to)


@_command(
    "nearest",
    "oracle baseline nearest INDEX test.csv -m bleu \\\n"
    "--corpus-vectors train_images.npz --query-vectors test_images.npz",
    corpus_vectors=REQUIRED,
    query_vectors=REQUIRED,
)
def nearest(
    call: Call,
    to: Destination,
    *,
    corpus_vector_ids: CorpusVectorIds = None,
    query_vector_ids: QueryVectorIds = None,
) -> None:
    """Score the report of the nearest image, by the cosine of image embeddings, as CXR-RePaiR does."""
    _show(call, to, **with_ids(call.values, corpus_vectors=corpus_vector_ids, query_vectors=query_vector_ids))


def _show(call: Call, to: Destination, **own: Any) -> None:
    """Show the results of a baseline."""
    show_answers(to, call.tracked("test reports", **own))


@command(
    app,
    "oracle baseline expectation INDEX test.csv -m bleu --plot chance.png",
    reports={"queries": TESTS},
    endings=RESULTS,
    formats=PLAIN,
    plot=True,
    metric="bleu",
)
def expectation(call: Call, to: Destination) -> None:
    """Show the statistics."""
    deliver_finding(to, call.tracked("test reports"))
