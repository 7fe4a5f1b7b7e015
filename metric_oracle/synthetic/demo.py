"""The demonstration: the example's files in any size, and how good the best report of a corpus can be."""

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.progress import Progress, silent
from metric_oracle.findings.printed_tables import PaperTable, entry
from metric_oracle.findings.views import one_line
from metric_oracle.projects import FILE, project
from metric_oracle.reading import loaded
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.scores.expectation import expectation
from metric_oracle.scores.scoring import score
from metric_oracle.synthetic import example

METRICS = ("bleu", "rouge-l", "radgraph", "chexbert:labels")
MODELS = ("strong", "weak")  # of those in the example
# Commands to try in the folder that the demonstration leaves; its index is built.
COMMANDS = tuple(line for line in example.COMMANDS if "build-index" not in line)


@dataclass(frozen=True)
class MetricOutcome:
    """One row of the demo's table: mean scores under a metric."""

    metric: str
    oracle: float  # of the best report of the corpus for each test report
    models: dict[str, float]  # of what each model wrote, by name
    random: float  # of all reports of the corpus, from which random retrieval draws
    top: tuple[float, str]  # score and text of the best report for the test report that is shown


@dataclass(frozen=True)
class DemoOutcome:
    """Results of the demo."""

    reports: int  # number of reports in the corpus
    tests: int  # number of test reports
    example: str  # text of the test report that is shown
    metrics: list[MetricOutcome]


def run_demo(
    n_reports: int, n_tests: int, *, seed: int = 0, folder: Path | None = None, progress: Progress | None = None
) -> DemoOutcome:
    """Write the example with `n_reports` and `n_tests` reports, index it, search and score it under each metric.

    `folder` must be new or empty; afterwards it has the files of `write_example` and the index, on which `COMMANDS` can
    be run. By default it is a temporary one. `progress` is called as ``progress(step, None, None)``.
    """
    step = silent if progress is None else progress
    with tempfile.TemporaryDirectory(prefix="oracle-demo-") if folder is None else nullcontext(folder) as folder_name:
        folder = Path(folder_name)
        step("making a synthetic corpus", None, None)
        example.write_example(folder, n_reports, n_tests, seed=seed)
        sets = project(folder / FILE)
        step("building the index", None, None)
        index = build_index(sets["train"], folder / "INDEX")
        queries = loaded(sets["test"], index)
        # The report to show is of medium length.
        shown = int(np.argsort([len(text) for text in queries.texts])[n_tests * 2 // 3])
        outcomes = []
        for metric in METRICS:
            step(f"the best reports under {metric}", None, None)
            best = retrieve(index, queries, metric)
            step(f"models and random reports under {metric}", None, None)
            models = {name: score(sets["test"], sets[name], metric).mean() for name in MODELS}
            means = expectation(index, queries, metric).table["mean"].to_numpy()
            outcomes.append(
                MetricOutcome(
                    metric,
                    best.mean(),
                    {name: mean for name, of_model in models.items() for mean in of_model.values()},
                    float(means.mean()),
                    (best.table["score"][shown].as_py(), best.table["text"][shown].as_py()),
                )
            )
        return DemoOutcome(n_reports, n_tests, queries.texts[shown], outcomes)


def demo_tables(outcome: DemoOutcome) -> list[Any]:
    """Return the demo's table of metrics, then the lines of the example: a test report and its best reports."""
    from rich.padding import Padding
    from rich.text import Text

    rows = [
        (row.metric, [entry(f"{value:.3f}") for value in (row.oracle, *row.models.values(), row.random)])
        for row in outcome.metrics
    ]
    title = f"{outcome.tests:,} test reports, {outcome.reports:,} training reports (made up)"
    heads = ["best training report", *(f"{name} model" for name in outcome.metrics[0].models), "random training report"]
    note = (
        "Mean scores. The best training report of each test report, under each metric, is found by an exact search: no "
        "method that retrieves a report can have a higher mean."
    )
    example: list[Any] = [Text(""), Text("One test report and its best training reports", style="bold"), Text("")]
    example += [Padding(one_line(outcome.example), (0, 0, 0, 2)), Text("")]
    scores_of: dict[str, list[str]] = {}  # text -> the metrics that find it
    for row in outcome.metrics:
        scores_of.setdefault(row.top[1], []).append(f"{row.metric}  {row.top[0]:.3f}")
    for text, scores in scores_of.items():
        example += [Text(", ".join(scores)), Padding(one_line(text), (0, 0, 0, 2))]
    return [PaperTable(title, heads, rows, [note], "metric"), *example]
