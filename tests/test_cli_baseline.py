"""`oracle baseline`: what goes in, what comes out, what is refused."""

import io
import json
import sys

import numpy as np
import pytest
from rich.console import Console

import metric_oracle as mo
from metric_oracle.base.option_types import Draws
from metric_oracle.findings.figures import check_plot
from metric_oracle.findings.results import read_results
from metric_oracle.findings.views import answers_table
from metric_oracle.reading import reports
from metric_oracle.retrieval.building import build_index
from metric_oracle.scores.baselines import baseline
from support import rule_of

KINDS = ("random", "most-frequent", "identity", "nearest", "expectation")
READ = "test reports: CSV, id study_id, column report, 12 of 12 rows\n"


@pytest.fixture(scope="module")
def index(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("index") / "I"
    return build_index(reports(corpus["train"], radgraph=corpus["train_graphs"]), out).folder


@pytest.fixture
def given(corpus, index, named):
    """Return the arguments that every kind takes."""
    return [index, named("humans", corpus["test"], radgraph=corpus["test_graphs"]), "--metric", "radgraph"]


def vectors(corpus):
    return ["--corpus-vectors", corpus["train_embeddings"], "--query-vectors", corpus["test_embeddings"]]


def rendered(*parts):
    console = Console(file=io.StringIO(), width=160)
    for part in parts:
        console.print(part)
    return console.file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_from_reports_to_verified_results(oracle, corpus, index, given, tmp_path, kind):
    own = {"random": ["--draws", 4, "--seed", 3], "nearest": vectors(corpus)}.get(kind, [])
    code, out, err = oracle("baseline", kind, *given, *own)
    assert (code, err) == (0, READ)
    lines = [json.loads(line) for line in out.splitlines()]
    assert len(lines) == 12 * (4 if kind == "random" else 1)
    code, out, err = oracle("baseline", kind, *given, *own, "--out", tmp_path / "b.parquet")
    assert (code, out) == (0, "")
    assert err.startswith(f"{READ}{tmp_path / 'b.parquet'}: {len(lines)} lines, mean score ")
    if kind != "expectation":
        written = read_results(tmp_path / "b.parquet")
        assert written.table.to_pylist() == lines
        assert (written.signature["baseline"], written.signature["metric"]) == (kind, "radgraph")
        command = ["verify", index, tmp_path / "b.parquet", "humans"]
        code, out, err = oracle(*command, *(vectors(corpus) if kind == "nearest" else []))
        assert (code, err) == (0, READ)
        assert out == f"right: {len(lines)} pairs scored again, 0 queries searched by brute force\n"
        code, out, _ = oracle("baseline", kind, *given, *own, "--no-text")
        assert "text" not in json.loads(out.splitlines()[0])


def test_files_that_nearest_takes(oracle, corpus, given, tmp_path):
    arguments = []
    for name, side in (("corpus", "train"), ("query", "test")):
        archive = np.load(corpus[f"{side}_embeddings"])
        np.save(tmp_path / f"{name}.npy", archive["embeddings"])
        (tmp_path / f"{name}.txt").write_text("\n".join(archive["ids"].tolist()))
        arguments += [f"--{name}-vectors", tmp_path / f"{name}.npy", f"--{name}-vector-ids", tmp_path / f"{name}.txt"]
    assert oracle("baseline", "nearest", *given, *arguments) == oracle("baseline", "nearest", *given, *vectors(corpus))


@pytest.mark.parametrize("kind", KINDS)
def test_help_has_the_options_of_files(oracle, kind):
    code, out, _ = oracle("baseline", kind, "--help")
    assert code == 0
    for option in ("index", "queries", "--metric", "--out", "--split", "--encoder", "--idf"):
        assert option in out.lower()
    assert ("--draws" in out, "--plot" in out) == (kind in ("random", "expectation"), kind == "expectation")


def test_tables(corpus, index):
    batch = reports(corpus["test"], radgraph=corpus["test_graphs"]).load()
    results = baseline(index, batch, "random", "radgraph", draws=3, seed=5)
    shown = rendered(answers_table(results))
    assert "radgraph random" in shown
    of_draws = results.table["score"].to_numpy().reshape(12, 3).mean(axis=0)
    assert f"12 test reports, mean score {of_draws.mean():.4f}" in shown
    assert f"draws: 3, seed 5, their means {of_draws.min():.4f} to {of_draws.max():.4f}" in shown
    shown = rendered(answers_table(baseline(index, batch, "identity", "radgraph")))
    assert "radgraph identity" in shown
    found = mo.expectation(index, batch, "radgraph")
    shown = rendered(*found.shown())
    assert f"12 test reports x 120 reports, mean score {found.table['mean'].to_numpy().mean():.4f}" in shown
    assert all(name in shown for name in ("mean", "sd", "q05", "q95", "max"))
    assert "error" not in shown


@pytest.mark.parametrize("ending", [".png", ".svg", ".SVG"])
def test_plot(oracle, given, tmp_path, ending):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"p{ending}"
    code, out, err = oracle("baseline", "expectation", *given, "--plot", path)
    assert (code, err) == (0, f"{READ}{path}: 12 lines, mean score 0.0456\n")
    assert len(out.splitlines()) == 12
    begin = path.read_bytes()
    assert begin.startswith(b"\x89PNG" if ending == ".png" else b"<?xml")
    assert list(tmp_path.iterdir()) == [path]


def test_plot_shows_counts_and_mean(corpus, index, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    batch = reports(corpus["test"]).load()
    found = mo.expectation(index, batch, "bleu")
    drawn = []
    real = matplotlib.figure.Figure.savefig
    monkeypatch.setattr(
        matplotlib.figure.Figure, "savefig", lambda figure, *a, **o: (drawn.append(figure), real(figure, *a, **o))
    )
    found.write(tmp_path / "p.png")
    axes = drawn[0].axes[0]
    values, edges, _ = axes.patches[0].get_data()
    assert values.tolist() == pytest.approx((100 * found.counts / (12 * 120)).tolist())
    assert edges.tolist() == found.edges.tolist()
    assert axes.lines[0].get_xdata()[0] == found.table["mean"].to_numpy().mean()


# Refusals


def test_where_a_plot_may_go(fails, corpus, given, tmp_path):
    pytest.importorskip("matplotlib")
    expectation = ["baseline", "expectation", *given]
    for name in ("p", "p.gif", "p.jpeg"):
        match = r"baseline [a-z-]+: --plot must end with \.png, \.svg or \.pdf; got .*\. Name one of these formats\."
        fails(*expectation, "--plot", tmp_path / name, match=match)
    (tmp_path / "d.png").mkdir()
    match = r"baseline [a-z-]+: --plot must be in an existing folder; got .*none/p\.png\. Make the folder first\."
    fails(*expectation, "--plot", tmp_path / "none/p.png", match=match)
    fails(
        *expectation,
        "--plot",
        tmp_path / "d.png",
        match=r"baseline [a-z-]+: --plot must be a file; got the folder .*d\.png\. Name a file in it\.$",
    )
    copy = tmp_path / "reports.png"
    copy.write_bytes(corpus["test"].read_bytes())
    match = r"baseline [a-z-]+: --plot must be another file than the inputs; got .*, which is one\. Name another file\."
    fails("baseline", "expectation", given[0], copy, "--plot", copy, match=match)
    assert copy.read_bytes() == corpus["test"].read_bytes()


@pytest.mark.parametrize("kind", ["random", "expectation"])
def test_where_results_may_go(fails, corpus, given, tmp_path, kind):
    copy = tmp_path / "test.csv"
    copy.write_bytes(corpus["test"].read_bytes())
    match = r"baseline [a-z-]+: --out must be another file than the inputs; got .*, which is one\. Name another file\."
    fails("baseline", kind, given[0], copy, "--out", copy, match=match)
    fails(
        "baseline", kind, *given, "--out", tmp_path / "x.txt", match=r"baseline [a-z-]+: --out must end with \.parquet"
    )
    assert copy.read_bytes() == corpus["test"].read_bytes()


def test_matplotlib_absent(fails, given, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    match = r"a plot needs the Python package matplotlib, which is not installed\. Run: pip install "
    fails("baseline", "expectation", *given, "--plot", tmp_path / "p.png", match=f"baseline expectation: {match}")
    with pytest.raises(Exception, match=f"^{match}"):
        check_plot(tmp_path / "p.png")


def test_values_of_options(fails, given):
    for draws in (0, 10001):
        match = rf"baseline random: --draws {rule_of(Draws)}; got {draws}\."
        fails("baseline", "random", *given, "--draws", draws, match=match)
    fails("baseline", "random", *given, "--seed", -1, match=r"baseline random: --seed must be an int of at le")
