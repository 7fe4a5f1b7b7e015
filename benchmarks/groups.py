"""Scores of groups of reports, and rewards, call included: ``python -m benchmarks.groups``.

First each metric must give the numbers of `mo.score` for every pair of some small groups; otherwise nothing is timed,
and the exit code is 1. Graphs are given. Values are medians after two calls that are not counted. Below ours are the
tools that others score groups with, under their own metrics and on fewer pairs: compare pairs a second. A peer that
scores batches is timed only if it gives sacrebleu's numbers.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import metric_oracle as mo
from benchmarks import machine
from metric_oracle.base.operating_system import n_threads
from metric_oracle.bench.timing import repeated, spread
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.synthetic.corpus import write_synthetic

SEED = 0
METRICS = ("bleu-2", "rouge-l", "radgraph")
GROUPS, SIZE = 2192, 16  # test reports of MIMIC-CXR, samples of each
LARGE = 1024
STEP = (64, 8)  # prompts and completions of a training step
# Seconds of a call on two cores: those of lexical metrics, of RadGraph F1.
GOALS = {"one-group": None, "large": (0.3, 0.3), "groups": (1.0, 1.0), "step": (0.01, 0.02), "consensus": None}


PEER_PAIRS = {"large": (1, 128), "groups": (128, SIZE)}  # groups that a peer gets, and reports in each


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and measure; return the exit code."""
    options = _options(arguments)
    with TemporaryDirectory() as folder:
        texts, graphs = _reports(Path(folder), options.groups * SIZE)
    for metric in METRICS:
        if not _is_right(metric, texts, graphs):
            print(f"{metric}: the scores are not those of mo.score; nothing is timed")
            return 1
    results = machine.Results("groups", options.out, seed=SEED)
    for metric in METRICS:
        for name, call, pairs in _calls(metric, texts, graphs, options.groups):
            repeated(call, 2)
            seconds = repeated(call, options.repetitions)
            goal = GOALS[name] if options.groups == GROUPS else None
            columns = {"goal": None if goal is None else goal[metric == "radgraph"], "cores": n_threads()}
            _add(results, f"{name}-{metric}", seconds, pairs, **columns)
    for peer, (build, cores) in PEERS.items():
        for name, (n_groups, size) in PEER_PAIRS.items():
            groups = [texts[first : first + size] for first in range(0, n_groups * size, size)]
            try:
                call = build(groups)
                agrees = _agrees(peer, call, groups)
            except ImportError as error:
                results.add({"name": f"{name}-{peer}", "skipped": f"{error.name} is not installed"})
                print(f"{name}-{peer}: not measured: {error.name} is not installed")
                continue
            if not agrees:
                results.add({"name": f"{name}-{peer}", "skipped": "its scores are not those of sacrebleu"})
                print(f"{name}-{peer}: not measured: its scores are not those of sacrebleu")
                continue
            seconds = repeated(call, min(options.repetitions, 3))
            _add(results, f"{name}-{peer}", seconds, n_groups * size**2, goal=None, cores=cores or n_threads())
    print(f"rows: {results.path}")
    return 0


def _add(results: machine.Results, name: str, seconds: Sequence[float], pairs: int, **columns: Any) -> None:
    """Write a row, and show it."""
    row = results.add(
        {
            "name": name,
            "value": median(seconds),
            "unit": "s",
            "spread": spread(seconds),
            "pairs": pairs,
            "pairs_per_s": pairs / median(seconds),
            "repetitions": len(seconds),
            **columns,
        }
    )
    line = "{name}: {value:.4f} s, goal {goal}, {pairs} pairs ({pairs_per_s:,.0f} a second) on {cores} cores"
    print(line.format(**row), flush=True)


def _fastchrf(groups: list[list[str]]) -> Callable[[], Any]:
    """ChrF, in Rust, all groups in one call."""
    from fastchrf import pairwise_chrf

    return lambda: pairwise_chrf(groups, groups)


def _mbrs(groups: list[list[str]]) -> Callable[[], Any]:
    """Sentence BLEU by sacrebleu, in a pool of processes for each group."""
    from mbrs.metrics import MetricBLEU

    metric = MetricBLEU(MetricBLEU.Config(num_workers=n_threads()))
    return lambda: [metric.pairwise_scores(group, group) for group in groups]


def _sacrebleu(groups: list[list[str]]) -> Callable[[], Any]:
    """Sentence BLEU, pair by pair."""
    from sacrebleu.metrics import BLEU

    score = BLEU(effective_order=True).sentence_score
    return lambda: [score(one, [other]).score for group in groups for one in group for other in group]


# Peers, and the cores that they use, None for all that ours may use.
PEERS: dict[str, tuple[Callable[[list[list[str]]], Callable[[], Any]], int | None]] = {
    "fastchrf": (_fastchrf, None),
    "mbrs": (_mbrs, None),
    "sacrebleu": (_sacrebleu, 1),
}


def _agrees(peer: str, call: Callable[[], Any], groups: list[list[str]]) -> bool:
    """Return whether a peer gives the scores that sacrebleu has for the first reports of the first group.

    sacrebleu scores pair by pair, and is the measure of the others: it agrees by definition.
    """
    scores = call()
    if peer == "sacrebleu":
        return True
    from sacrebleu.metrics import BLEU, CHRF

    scorer = CHRF() if peer == "fastchrf" else BLEU(effective_order=True)
    few = groups[0][:8]
    wanted = [[scorer.sentence_score(one, [other]).score for other in few] for one in few]
    return np.allclose(np.asarray(scores[0])[: len(few), : len(few)], wanted, rtol=1e-6, atol=1e-6)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.groups", description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=GROUPS, help=f"of {SIZE} reports, at least 128 (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=7, help="of each call (%(default)s)")
    machine.add_out(parser, "groups")
    return parser.parse_args(arguments)


def _reports(folder: Path, n: int) -> tuple[list[str], dict[str, Any]]:
    """Return synthetic impressions as often as they occur, and the graph of each distinct one."""
    paths = write_synthetic(folder, n, 2, seed=SEED)
    reports = read_reports(paths["train"])
    of_id = json.loads(paths["train_graphs"].read_text(encoding="utf-8"))
    order = np.random.default_rng(SEED).permutation(n) % len(reports.texts)
    graphs = {text: of_id[study] for study, text in zip(reports.ids, reports.texts, strict=True) if study in of_id}
    return [reports.texts[place] for place in order], graphs


def _attached(metric: str, groups: Any, graphs: dict[str, Any]) -> Any:
    return mo.reports(groups, radgraph=graphs) if metric == "radgraph" else groups


def _is_right(metric: str, texts: list[str], graphs: dict[str, Any]) -> bool:
    """Tell whether every pair of some small groups has the score of `mo.score`."""
    groups = [texts[first : first + 8] for first in range(0, 64, 8)]
    pairs = [(one, other) for group in groups for one in group for other in group]
    sides = (Reports.from_texts([pair[place] for pair in pairs], keep_empty=True) for place in (1, 0))
    given: dict[str, Any] = {"radgraph": lambda some: _graphs_of(some, graphs)} if metric == "radgraph" else {}
    truth, written = (mo.reports(side, **given) for side in sides)
    wanted = mo.score(truth, written, metric).table[metric].to_numpy()
    own: Any = mo.pairwise(_attached(metric, groups, graphs), metric)
    both: Any = mo.pairwise(_attached(metric, groups, graphs), metric, _attached(metric, groups, graphs))
    return all(np.array_equal(np.concatenate([m.ravel() for m in found]), wanted) for found in (own, both))


def _graphs_of(texts: Sequence[str], graphs: dict[str, Any]) -> dict[str, Any]:
    return {str(place): graphs[text] for place, text in enumerate(texts)}


def _calls(
    metric: str, texts: list[str], graphs: dict[str, Any], n_groups: int
) -> list[tuple[str, Callable[[], Any], int]]:
    """Return name, call and number of pairs of what is timed."""
    groups = [texts[first : first + SIZE] for first in range(0, n_groups * SIZE, SIZE)]
    sides = [_attached(metric, [texts[first : first + LARGE]], graphs) for first in (0, LARGE)]
    n_prompts, n_completions = STEP
    completions = texts[: n_prompts * n_completions]
    truth = [text for text in texts[-n_prompts:] for _ in range(n_completions)]
    sources = {"radgraph": lambda some: _graphs_of(some, graphs)} if metric == "radgraph" else {}
    rewarded, consensus = mo.reward(metric, sources=sources), mo.consensus_reward(metric, sources=sources)
    prompts = [str(place // n_completions) for place in range(len(completions))]
    return [
        ("one-group", lambda: mo.pairwise(_attached(metric, groups[:1], graphs), metric), SIZE**2),
        ("large", lambda: mo.pairwise(sides[0], metric, sides[1]), LARGE**2),
        ("groups", lambda: mo.pairwise(_attached(metric, groups, graphs), metric), n_groups * SIZE**2),
        ("step", lambda: rewarded(prompts, completions, reference=truth), len(completions)),
        ("consensus", lambda: consensus(prompts, completions), len(completions) * n_completions),
    ]


if __name__ == "__main__":
    sys.exit(main())
