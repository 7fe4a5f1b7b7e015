"""`oracle bench`: what it compares, measures, shows and refuses. No test looks at how long anything took."""

import io
import json
import re
import sys
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, ExactnessError, InputError
from metric_oracle.bench import timing as bench
from metric_oracle.bench.view import bench_tables, write_plot
from metric_oracle.kernels.rouge_l import cpu
from metric_oracle.reading import reports
from metric_oracle.retrieval import kernels
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from support.calls import Calls

METRICS = ["bleu-2", "rouge-l", "radgraph", "chexbert:labels"]


@pytest.fixture(scope="module")
def files(corpus):
    return {
        side: {"radgraph": corpus[f"{side}_graphs"], "chexbert_labels": corpus[f"{side}_labels"], "uncertain": "blank"}
        for side in ("train", "test")
    }


@pytest.fixture(scope="module")
def index(corpus, files, tmp_path_factory):
    return build_index(reports(corpus["train"], **files["train"]), tmp_path_factory.mktemp("bench") / "INDEX")


@pytest.fixture(scope="module")
def queries(corpus, files):
    return reports(corpus["test"], **files["test"]).load()


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None if name.endswith(".cuda") else find_spec(name))


@pytest.fixture
def no_processes(monkeypatch):
    paid = {"load_s": 0.1, "compile_s": 0.2, "prepare_s": 0.3, "peak_gb": 0.4}
    monkeypatch.setattr(bench, "run_alone", lambda *task: dict(paid))


def test_a_query_at_least_is_compared(corpus, index, no_gpu, no_processes, monkeypatch):
    asked = []
    monkeypatch.setattr(bench, "_PAIRS", 1)
    monkeypatch.setattr(bench, "check_answers", lambda *given, sample: asked.append(sample))
    bench.run_bench(index.folder, corpus["test"], metrics=["bleu"], backends=["cpu"], repetitions=1)
    assert asked == [1]


@pytest.fixture
def gpu(monkeypatch):
    """Let the CPU kernel of ROUGE-L stand in for one on a GPU; return it."""
    fake = ModuleType("metric_oracle.kernels.rouge_l.cuda")
    fake.Backend = type("Backend", (cpu.Backend,), {})
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr(kernels, "find_spec", lambda name: object() if name == fake.__name__ else find_spec(name))
    return fake


def forbid_timing(monkeypatch):
    def fail(*_):
        pytest.fail("something was timed")

    monkeypatch.setattr(bench, "timed", fail)


def shown(rows):
    console = Console(width=200, record=True, file=io.StringIO())
    for table in bench_tables(rows):
        console.print(table)
    return console.export_text()


def test_rows_of_an_index(corpus, files, index, no_gpu, no_processes):
    steps = Calls()
    rows = bench.run_bench(
        index.folder,
        mo.reports(corpus["test"], **files["test"]),
        metrics=METRICS,
        repetitions=3,
        progress=steps,
    )
    assert [(row["metric"], row["backend"]) for row in rows if "skipped" not in row] == [(m, "cpu") for m in METRICS]
    for row in rows:
        if row["backend"] == "cuda":
            assert row["skipped"].startswith('retrieve: backend "cuda" is not usable')
            continue
        assert row["reports"] == index.n_reports
        assert row["p20"] <= row["seconds"] <= row["p80"]
        assert row["pairs_per_s"] == pytest.approx(row["reports"] * row["tests"] / row["seconds"])
        assert row["queries_per_s"] == pytest.approx(row["tests"] / row["seconds"])
        assert 0 < row["encode_s"] < row["seconds"]
        assert 0 < row["search_s"] < row["seconds"]
        assert row["single_p20_ms"] <= row["single_ms"] <= row["single_p80_ms"]
        assert row["index"] == index.fingerprint
    compared = [place for place, step in enumerate(steps.steps) if step.startswith("comparing")]
    assert max(compared) < steps.steps.index("timing bleu-2 on cpu")


def test_default_metrics_are_those_of_the_index(corpus, files, index, no_gpu, no_processes):
    rows = bench.run_bench(index.folder, mo.reports(corpus["test"], **files["test"]), backends=["cpu"], repetitions=1)
    assert [row["metric"] for row in rows] == ["bleu-2", "rouge-l", "radgraph"]


def test_what_the_queries_lack_is_a_line(corpus, index, no_gpu, no_processes):
    rows = bench.run_bench(index.folder, corpus["test"], metrics=["radgraph", "bleu"], backends=["cpu"], repetitions=1)
    assert "must have a graph each" in rows[0]["skipped"]
    assert rows[1]["metric"] == "bleu-2"
    with pytest.raises(InputError, match="must have a graph each"):
        bench.run_bench(index.folder, corpus["test"], metrics=["radgraph"], repetitions=1)


def test_gpu_beside_cpu(corpus, index, gpu, no_processes):
    rows = bench.run_bench(index.folder, corpus["test"], metrics=["rouge-l", "bleu"], repetitions=1)
    assert [(row["metric"], row["backend"]) for row in rows if "skipped" not in row] == [
        ("rouge-l", "cpu"), ("rouge-l", "cuda"), ("bleu-2", "cpu"),
    ]  # fmt: skip
    rows[-2] |= {"gpu_peak_gb": 1.5, "seconds": rows[-3]["seconds"] / 4}
    text = shown(rows)
    assert "CPU/GPU" in text
    assert re.search(r"rouge-l +cuda .* 4 *\n", text)
    assert re.search(r"rouge-l +cuda .* 0\.40 +1\.50 *\n", text)
    assert re.search(r"bleu-2 +cpu .* 0\.40 *\n", text)
    assert text.count("not measured: bleu-2 on cuda: retrieve:") == 1


def test_no_timing_where_backends_differ(corpus, index, gpu, monkeypatch):
    def miscount(self, corpus, batch, queries, k, answers, workspace):
        cpu.Backend.search(self, corpus, batch, queries, k, answers, workspace)
        answers.ties[queries] += 1

    gpu.Backend.search = miscount
    forbid_timing(monkeypatch)
    with pytest.raises(ExactnessError, match=r"backends cpu and cuda differ in n_ties of rouge-l\. This is a defect"):
        bench.run_bench(index.folder, corpus["test"], metrics=["rouge-l"])


def test_no_timing_where_the_reference_differs(corpus, index, no_gpu, monkeypatch):
    find = cpu.Backend.search

    def lose_the_best(self, corpus, batch, queries, k, answers, workspace):
        find(self, corpus, batch, queries, k, answers, workspace)
        if k > 1:
            answers.rows[queries, 0], answers.scores[queries, 0] = answers.rows[queries, 1], answers.scores[queries, 1]

    monkeypatch.setattr(cpu.Backend, "search", lose_the_best)
    forbid_timing(monkeypatch)
    with pytest.raises(ExactnessError, match="must be 5 different rows, ordered by score, then by row"):
        bench.run_bench(index.folder, corpus["test"], metrics=["rouge-l"])


@pytest.mark.parametrize("metric", METRICS)
def test_a_query_alone_is_answered_alike(index, queries, metric):
    for i in range(len(queries.ids)):
        one = bench.alone(queries, i)
        expected = retrieve(index, queries.take(np.array([i])), metric, k=3).table
        assert retrieve(index, one, metric, k=3).table.equals(expected)
        assert len(one.attached["labels"].values) == 1
        graphs = one.attached["radgraph"].values
        assert len(graphs.keys) == len(graphs.entity_ptr) - 1 == 1
        assert len(graphs.tokens) <= len(graphs.entity_token)


def test_single_queries_differ(queries):
    some = bench.single_queries(queries, 3)
    assert len({one.texts[0] for one in some}) == len(some) <= 3 + bench.SINGLE_WARM_UP
    assert bench.after_warm_up(range(12)) == [10, 11]
    assert bench.after_warm_up([7]) == [7]


def test_spread():
    assert bench.spread([3.0]) == (3.0, 3.0)
    assert bench.spread([5.0, 1.0, 4.0, 2.0, 3.0, 6.0]) == (2.0, 5.0)


def test_a_process_tells_apart_what_is_paid_once(corpus, files, index):
    found = bench.run_alone(index.folder, mo.reports(corpus["test"], **files["test"]), "radgraph")
    assert found.keys() == {"load_s", "compile_s", "prepare_s", "peak_gb"}
    assert found["load_s"] > 0
    assert min(found["compile_s"], found["prepare_s"]) >= 0
    assert 0.05 < found["peak_gb"] < 5


def test_a_process_that_fails(corpus, tmp_path):
    with pytest.raises(BackendError, match=r"the process that measures bleu with backend cpu ended with code 1 \("):
        bench.run_alone(tmp_path / "none", corpus["test"], "bleu")


def test_synthetic_corpus_from_the_command_line(oracle, tmp_path, no_gpu):
    pytest.importorskip("matplotlib")
    out, plot = tmp_path / "rows.jsonl", tmp_path / "bench.png"
    size = ["--reports", 60, "--tests", 5, "--repetitions", 2, "--metrics", "rouge-l, radgraph"]
    code, text, error = oracle("bench", *size, "--out", out, "--plot", plot)
    assert (code, text, error) == (0, "", f"{out}: 4 rows\n")
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    measured = [row for row in rows if "skipped" not in row]
    assert [row["metric"] for row in measured] == ["rouge-l", "radgraph"]
    for row in rows:
        assert {"machine", "versions", "time"} <= row.keys()
    assert (measured[0]["reports"], measured[0]["tests"], measured[0]["repetitions"]) == (60, 5, 2)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".*"))
    table = shown(rows)
    assert "5 test reports x 60 reports: rouge-l, radgraph" in table
    assert "answers equal to the reference's" in table
    assert max(map(len, table.splitlines()[:8])) <= 80


def test_a_pipe_gets_json_lines(oracle, corpus, index, no_gpu, no_processes):
    code, text, error = oracle("bench", index.folder, corpus["test"], "--metrics", "bleu", "--repetitions", 1)
    assert code == 0
    assert error.startswith("test reports: ")
    assert error.count("\n") == 1
    assert [json.loads(line)["backend"] for line in text.splitlines()] == ["cuda", "cpu"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.00012345, "0.123 ms"), (0.9, "900 ms"), (1.0, "1 s"), (1234.5, "1,234 s")]
)
def test_seconds_for_people(value, text):
    assert bench.seconds_text(value) == text


def test_the_encoding_of_a_search_is_timed(index, queries):
    measured = bench.study(index, queries, "radgraph")
    assert 0 < measured.encode < measured.total
    assert measured.search == measured.total - measured.encode
    assert 0 < measured.distinct <= len(queries.ids)


def test_what_is_not_installed_is_a_line(monkeypatch, no_gpu, no_processes):
    monkeypatch.setattr(bench, "find_encoder", lambda: None)
    rows = bench.run_bench(metrics=["bleu", "bertscore"], reports=40, tests=4, repetitions=1, backends=["cpu"])
    assert [row["metric"] for row in rows] == ["bertscore", "bleu-2"]
    assert rows[0]["skipped"].startswith("not installed: pip install")
    with pytest.raises(BackendError, match="nothing can be measured: not installed: pip install"):
        bench.run_bench(metrics=["bertscore"], reports=40, tests=4)


def test_token_states_get_a_smaller_corpus(monkeypatch, fake_encoder, no_gpu, no_processes):
    monkeypatch.setattr(bench, "find_encoder", lambda: "fake")
    monkeypatch.setattr(bench, "MAX_ENCODED", 30)
    rows = bench.run_bench(metrics=["bleu", "bertscore"], reports=40, tests=4, repetitions=1, backends=["cpu"])
    assert [(row["metric"], row["reports"], row["tests"]) for row in rows] == [("bleu-2", 40, 4), ("bertscore", 30, 4)]


def test_plot_has_every_bar(tmp_path):
    pytest.importorskip("matplotlib")
    row = {"reports": 100, "tests": 10, "seconds": 1.0, "p20": 0.9, "p80": 1.2, "pairs_per_s": 1000.0, "single_ms": 2.0}
    rows = [row | {"metric": m, "backend": b} for m in ("bleu-2", "radgraph") for b in ("cpu", "cuda")]
    write_plot(tmp_path / "bench.svg", [*rows[1:], {"metric": "rouge-l", "backend": "cpu", "skipped": "no"}])
    text = (tmp_path / "bench.svg").read_text(encoding="utf-8")
    assert text.count("<!-- 0.001 M/s, 2 ms -->") == 3
    assert "<!-- radgraph -->" in text
    assert "rouge-l" not in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["INDEX"], "bench: index and queries must be given together; got an index alone. Add the other"),
        (["--metrics", "bleurt"], "bench: --metric must be one of"),
        (["--backends", "gpu,cpu"], "bench: --backends must be one of cpu, cuda; got 'gpu'. Choose one."),
        (["--repetitions", "0"], "bench: --repetitions must be an int of at least 1; got 0. Choose another number."),
        (["--reports", "0"], "bench: --reports must be an int of at least 1; got 0. Choose another number."),
        (
            ["INDEX", "test.csv", "--tests", "5"],
            "bench: --reports and --tests must be left out with an index; got a size.",
        ),
        (
            ["--split", "test"],
            "bench: queries must be given with --split; got none. Add the file of reports that they belong to.",
        ),
        (["--out", "rows.csv"], "bench: --out must end with .jsonl; got rows.csv. Name such a file."),
        (["--out", "nowhere/rows.jsonl"], "bench: --out must be in an existing folder; got nowhere/rows.jsonl."),
        (["--plot", "bench.txt"], "bench: --plot must end with .png, .svg or .pdf; got bench.txt."),
    ],
)
def test_errors_are_one_line(oracle, monkeypatch, tmp_path, arguments, line):
    monkeypatch.chdir(tmp_path)
    code, out, error = oracle("bench", *arguments)
    assert (code, out) == (2, "")
    assert error.startswith(f"error: {line}")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_queries_without_an_index_and_no_backend(corpus):
    with pytest.raises(InputError, match="got queries alone"):
        bench.run_bench(queries=corpus["test"])
    with pytest.raises(InputError, match=r"backends must be one of cpu, cuda; got none\. Choose"):
        bench.run_bench(backends=[])


def test_matplotlib_is_missed_before_the_work(oracle, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(bench, "run_bench", lambda *_, **__: pytest.fail("work began"))
    code, _, error = oracle("bench", "--plot", tmp_path / "bench.png")
    assert code == 2
    assert error.startswith("error: bench: a plot needs the Python package matplotlib, which is not installed. Run: ")


def test_gpu_alone_where_there_is_none(corpus, index, no_gpu):
    with pytest.raises(BackendError, match='backend "cuda" is not usable'):
        bench.run_bench(index.folder, corpus["test"], metrics=["bleu"], backends=["cuda"])
