"""`oracle example` and `oracle annotate`: what they write, the other commands read."""

import csv
import doctest
import hashlib
import importlib.util
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import read_labels
from metric_oracle.corpora.radgraph_json import align_graphs, read_graphs
from metric_oracle.corpora.reports import read_reports
from metric_oracle.corpora.vectors import read_embeddings
from metric_oracle.synthetic.corpus import MODELS
from metric_oracle.synthetic.example import COMMANDS, write_example
from support import HANG, write

TESTS = Path(__file__).parent
TEXTS = {"7": "No acute process.", "3": "Edema of the left lung.", "5": "Edema of the left lung."}


def test_five_commands_from_files_to_a_table_one_of_them_killed(tmp_path):
    """Two prepared sets, three models, a study that is killed and goes on, and a table of its files."""
    folder = tmp_path / "try"
    write_example(folder)
    study = f"study INDEX TESTS {' '.join(MODELS)} -m bleu,radgraph --out STUDY"

    def start(line):
        command = [sys.executable, "-m", "metric_oracle", *shlex.split(line)]
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(line):
        process = start(line)
        out, err = process.communicate(timeout=HANG)
        assert process.returncode == 0, err
        return out

    for side, out in (("train", "INDEX"), ("test", "TESTS")):
        run(f"build-index {side}.csv --radgraph {side}_graphs.json -m bleu,radgraph --out {out}")
    killed, steps = start(study), folder / "STUDY.unfinished/steps.json"
    search = "bleu-2-oracle-reports.parquet"  # which nothing writes again once it is done

    def is_done():
        return steps.is_file() and json.loads(steps.read_text()).get(search, {}).get("sha256")

    while not is_done() and killed.poll() is None:
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    assert (killed.returncode, (folder / "STUDY").exists()) == (-signal.SIGKILL, False)
    kept = (steps.parent / search).stat().st_mtime_ns
    run(study)
    assert (folder / "STUDY" / search).stat().st_mtime_ns == kept
    with (folder / "STUDY/table.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    rows = {record["system"] for record in records}
    assert rows == {*MODELS, "bleu-2 oracle", "radgraph oracle", "most frequent", "identity", "random (expected)"}
    run(f"table {' '.join(f'{name}=STUDY/{name}.parquet' for name in MODELS)} --out table.csv")
    with (folder / "table.csv").open(newline="") as file:
        again = {(r["system"], r["metric"]): float(r["mean"]) for r in csv.DictReader(file)}
    assert len(again) == 2 * len(MODELS)
    means = {(r["system"], r["metric"]): float(r["mean"]) for r in records if not r["versus"]}  # no differences
    assert again.items() <= means.items()


def test_the_study_of_the_docstring_runs_on_an_example(tmp_path, monkeypatch):
    write_example(tmp_path / "try")
    monkeypatch.chdir(tmp_path / "try")
    _, study = mo.__doc__.split("A study compares ")
    lines = "".join(example.source for example in doctest.DocTestParser().get_examples(study))
    names = {"mo": mo}
    exec(lines, names)
    assert {"strong", "weak", "bleu-2 oracle", "radgraph oracle", "identity"} <= names["systems"].keys()
    assert Path("study/table.md").is_file()
    assert len(lines.splitlines()) <= 10
    again = mo.study("INDEX", "test.csv", {"strong": "strong.csv"}, metrics="bleu")
    assert again["strong"].table["bleu-2"].equals(names["systems"]["strong"].table["bleu-2"])


def test_the_commands_of_an_example_run(oracle, tmp_path, monkeypatch):
    code, out, err = oracle("example", tmp_path / "try")
    assert (code, err) == (0, "")
    head, _, *lines = out.splitlines()
    assert head == f"{tmp_path / 'try'}: 20 files. Try, in this folder:"
    assert lines == list(COMMANDS)
    monkeypatch.chdir(tmp_path / "try")
    for line in lines:
        code, out, err = oracle(*shlex.split(line)[1:])
        assert code == 0, (line, err)
        assert out or "--out" in line


def test_same_seed_same_example(fails, tmp_path):
    def digests(files):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    (tmp_path / "empty").mkdir()
    first = digests(write_example(tmp_path / "one", seed=3))
    assert digests(write_example(tmp_path / "empty", seed=3)) == first
    assert digests(write_example(tmp_path / "two", seed=4)) != first
    fails("example", tmp_path / "one", match=r"example: folder must be a new or empty folder; got .*one\. Name another")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "one", "two"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a tiny RadGraph archive and a tiny CheXbert checkpoint, each apart from a file that it needs."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")

    def module(name):
        spec = importlib.util.spec_from_file_location(name, TESTS / f"encoders/{name}.py")
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    folder = tmp_path_factory.mktemp("models")
    radgraph, chexbert = module("tiny_radgraph"), module("test_chexbert")
    home = radgraph.write_encoder(folder / "encoder", "radgraph")
    archive = radgraph.write_archive(folder / "radgraph.tar.gz", radgraph.files_of("radgraph", home, "not/there"))
    bert, heads, *_ = chexbert.tiny_parts()
    checkpoint = chexbert.save(folder, chexbert.tensors_of(bert, heads))
    vocabulary = (folder / "vocab.txt").rename(folder / "words.txt")
    return archive, home, checkpoint, vocabulary


def test_annotate(oracle, models, tmp_path):
    archive, home, checkpoint, vocabulary = models
    reports = write(tmp_path / "r.csv", {**TEXTS, "9": " "})
    read = read_reports(reports)
    command = ["annotate", reports, "--device", "cpu"]

    path = tmp_path / "graphs.json"
    code, out, err = oracle(*command, "--radgraph", archive, "--radgraph-encoder", home, "--out", path)
    assert (code, out) == (0, "")
    assert err.splitlines()[-1] == f"{path}: 3 reports"
    assert align_graphs(read_graphs(path), read.ids, read.texts).tolist() == [0, 1, 2]
    assert {graph["text"] for graph in json.loads(path.read_text()).values()}
    signature = json.loads((tmp_path / "graphs.json.signature.json").read_text())
    assert signature["archive"] == archive.name

    given = [*command, "--chexbert", checkpoint, "--vocabulary", vocabulary, "--out"]
    assert oracle(*given, tmp_path / "e.npz")[0] == 0
    vectors = read_embeddings(tmp_path / "e.npz")
    assert vectors.ids == list(TEXTS)
    assert (vectors.values[1] == vectors.values[2]).all()
    assert oracle(*given, tmp_path / "l.csv")[0] == 0
    labels = read_labels(tmp_path / "l.csv")

    from metric_oracle.encoders.chexbert import CheXbert

    embeddings, classes, _ = CheXbert(checkpoint, vocabulary=vocabulary).encode(list(TEXTS.values()))
    assert np.array_equal(vectors.values, embeddings)
    assert labels.ids == list(TEXTS)
    assert np.array_equal(labels.values, classes)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("e.npz", "e.npz.signature.json", "graphs.json", "graphs.json.signature.json"),
        *("l.csv", "l.csv.signature.json", "r.csv"),
    ]


@pytest.mark.filterwarnings("ignore:ids:UserWarning")  # study_id is joined with id
def test_annotate_several_reports_for_each_study(oracle, models, tmp_path, monkeypatch):
    archive, home, checkpoint, vocabulary = models
    first, second, *_ = TEXTS.values()
    samples = {"50000001": [first, "", second, first], "a": [second, first]}
    truth = {"a": first, "50000001": second}  # in another order: its distinct texts come from other studies
    rows = [{"id": study, "candidates": group} for study, group in samples.items()]
    monkeypatch.chdir(tmp_path)
    Path("s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write(tmp_path / "t.csv", truth)
    for reports in ("s.jsonl", "t.csv"):
        made = [reports, "--device", "cpu", "--out"]
        of_radgraph = ["--radgraph", archive, "--radgraph-encoder", home]
        code, _, err = oracle("annotate", *made, f"{reports}.json", *of_radgraph)
        assert code == 0, err
        assert err.splitlines()[-1] == f"{reports}.json: {6 if reports == 's.jsonl' else 2} reports"
        of_chexbert = ["--chexbert", checkpoint, "--vocabulary", vocabulary]
        assert oracle("annotate", *made, f"{reports}.npz", *of_chexbert)[0] == 0
    assert read_embeddings(Path("s.jsonl.npz")).ids[:2] == ["50000001/0", "50000001/1"]
    names = "radgraph,chexbert"
    files = [{"radgraph": f"{side}.json", "chexbert": f"{side}.npz"} for side in ("s.jsonl", "t.csv")]
    model = {"radgraph": archive, "radgraph_encoder": home, "chexbert": checkpoint, "vocabulary": vocabulary}
    own = mo.consensus(mo.reports("s.jsonl", **model, device="cpu"), names)
    found = mo.consensus(mo.reports("s.jsonl", **files[0]), names)
    for metric in found.chosen:
        assert [of.tolist() for of in found.matrices[metric]] == [of.tolist() for of in own.matrices[metric]]
    best = mo.best_of(mo.reports("s.jsonl", **files[0]), mo.reports("t.csv", **files[1]), names)
    whole = mo.best_of("s.jsonl", mo.reports("t.csv", **model, device="cpu"), names)
    assert best.curve.equals(whole.curve)
    # One row for each sample is read, too; a column `sample` of single reports is a column like any other.
    long = [
        {"id": study, "sample": i, "report": text} for study, group in samples.items() for i, text in enumerate(group)
    ]
    Path("long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in long))
    assert mo.annotate(mo.reports("long.jsonl", **{**model, "chexbert": None, "vocabulary": None}), "long.json") == 6
    assert json.loads(Path("long.json").read_text()) == json.loads(Path("s.jsonl.json").read_text())
    Path("single.jsonl").write_text(json.dumps({"id": "x", "sample": 3, "report": first}) + "\n")
    mo.annotate(mo.reports("single.jsonl", radgraph=archive, radgraph_encoder=home), "single.json")
    assert align_graphs(read_graphs(Path("single.json")), ["x"], [first]).tolist() == [0]
    with pytest.raises(InputError, match=r"^annotate: split must be left out for samples"):
        mo.annotate(mo.reports("s.jsonl", mo.Read(split="test"), radgraph=archive, radgraph_encoder=home), "x.json")


def test_annotate_refuses(fails, tmp_path):
    reports = write(tmp_path / "r.csv", TEXTS)
    out = ["--out", tmp_path / "g.json"]
    match = r"annotate: exactly one of --radgraph, --chexbert, --entities must be given; got 0\. Pass one model at a"
    fails("annotate", reports, *out, match=match)
    both = ["--radgraph", "r.tar.gz", "--chexbert", "chexbert.pth"]
    fails("annotate", reports, *both, *out, match=match.replace("0", "2"))
    match = (
        r"annotate: --radgraph must be a RadGraph model \(\.tar\.gz\); got g\.json\. Pass the model itself, not a file"
    )
    fails("annotate", reports, "--radgraph", "g.json", *out, match=match)
    match = r"annotate: --out must end with \.npz or \.csv for this model; got .*g\.json\. Name such a file\.$"
    fails("annotate", reports, "--chexbert", "chexbert.pth", *out, match=match)
    match = r"annotate: --out must be given; got none\. Add --out FILE\.$"
    fails("annotate", reports, "--radgraph", "r.tar.gz", match=match)
    match = r"annotate: --out must be another file than the inputs; got .*, which is one\."
    (tmp_path / "x.json").write_text("{}")
    fails("annotate", tmp_path / "x.json", "--radgraph", "r.tar.gz", "--out", tmp_path / "x.json", match=match)
