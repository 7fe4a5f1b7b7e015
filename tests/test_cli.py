import ast
import errno
import io
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType

import numpy as np
import polars
import pytest
from pyarrow import csv, parquet
from rich.console import Console
from rich.text import Text

import metric_oracle as mo
from metric_oracle import cli
from metric_oracle.base.errors import ExactnessError, InputError
from metric_oracle.commands import output
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Results, read_results
from metric_oracle.findings.views import answers_table, info_table
from metric_oracle.indexes import shards
from metric_oracle.indexes.shards import open_index
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import Plan
from metric_oracle.synthetic.demo import COMMANDS
from metric_oracle.synthetic.demo import METRICS as OF_DEMO
from support import HANG, SECRET

COMPONENTS = {
    "bleu": ["precision_1", "precision_2", "brevity_penalty"],
    "rouge-l": ["precision", "recall"],
    "radgraph": None,
    "chexbert": None,
    "chexbert:labels": None,
}
FIRST = ["query_id", "rank", "row", "candidate_id", "score"]
LAST = ["n_ties", "fallback", "exact", "text"]
READ = "test reports: CSV, id study_id, column report, 12 of 12 rows\n"
COMMAND = str(Path(sys.executable).with_name("oracle"))  # that of this environment, active or not


@pytest.fixture
def tests(named, corpus):
    """Return the name of the test reports with the files beside them."""
    files = {"radgraph": "graphs", "chexbert": "embeddings", "chexbert_labels": "labels"}
    beside = {source: corpus[f"test_{file}"] for source, file in files.items()}
    return named("humans", corpus["test"], **beside, uncertain="positive")


@pytest.fixture(scope="module")
def index(corpus, tmp_path_factory):
    """Return an index of everything, made by the command line."""
    out = tmp_path_factory.mktemp("index") / "I"
    command = [
        COMMAND, "build-index", corpus["train"], "--out", out, "--radgraph", corpus["train_graphs"], "--chexbert",
        corpus["train_embeddings"], "--chexbert-labels", corpus["train_labels"], "--uncertain", "positive",
    ]  # fmt: skip
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, READ.replace("test ", "").replace("12", "120"))
    assert json.loads(done.stdout)["fingerprint"] == open_index(out).fingerprint
    return out


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return an index of few reports that try to do harm to a terminal, and the file of its reports."""
    folder = tmp_path_factory.mktemp("small")
    texts = ["Heart [red]normal[/red].", "Lungs \x1b[31mclear\x1b[0m.", "No \x07bell \x9b5m [/] [bold", "Plain."]
    ids = ["[red]a[/red]", "\x1b[31mb", "c[/]", "[link=file:///etc/passwd]d"]
    records = [{"study_id": i, "report": t} for i, t in zip(ids, texts, strict=True)]
    (folder / "r.json").write_text(json.dumps(records))
    build_index(folder / "r.json", folder / "I[red]")
    return folder / "I[red]", folder / "r.json"


# From reports to verified results


@pytest.mark.parametrize("metric", COMPONENTS)
def test_the_whole_way(oracle, tests, index, tmp_path, metric):
    given = [index, tests, "--metric", metric]
    code, out, err = oracle("retrieve", *given, "-k", 5)
    assert (code, err) == (0, READ)
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) == 12 * 5
    names = list(answers[0])
    assert names[:5] == FIRST
    assert names[-4:] == LAST
    assert COMPONENTS[metric] in (None, names[5:-4])
    assert [answer["rank"] for answer in answers] == [1, 2, 3, 4, 5] * 12

    for ending in ("parquet", "csv", "jsonl"):
        path = tmp_path / f"r.{ending}"
        code, out, err = oracle("retrieve", *given, "-k", 5, "--out", path)
        assert (code, out) == (0, "")
        mean = sum(answer["score"] for answer in answers) / 60
        assert err == f"{READ}{path}: 60 answers, mean score {mean:.4f}\n"
        again = read_results(path)
        assert again.table.to_pylist() == answers
        assert ending != "jsonl" or polars.read_ndjson(path).rows(named=True) == answers  # records alone
        assert again.signature["index"] == open_index(index).fingerprint
        assert again.signature["metric"] == {"bleu": "bleu-2"}.get(metric, metric)
        assert again.signature["k"] == 5
        code, out, err = oracle("verify", index, path, tests)
        assert (code, err) == (0, READ)
        assert out == "right: 60 pairs scored again, 12 queries searched by brute force\n"


def test_info(oracle, index):
    code, out, err = oracle("info", index, "--check")
    assert (code, err) == (0, "")
    assert json.loads(out)["content"]["counts"]["reports"] == 120


def test_what_was_recognised_is_said(oracle, tmp_path):
    reports = tmp_path / "two.csv"
    reports.write_text("study_id,report,impression\n1,Lungs clear. Normal.,Normal.\n2,Small heart. Edema.,Edema.\n")
    read = "CSV, id study_id, column impression, 2 of 2 rows\n"
    assert oracle("build-index", reports, "--out", tmp_path / "I")[2] == f"reports: {read}"
    assert oracle("baseline", "identity", tmp_path / "I", reports)[2] == f"test reports: {read}"
    found = oracle("retrieve", tmp_path / "I", reports, "--text-column", "report")[2]
    unknown = "section of the tests not known: they are compared with impression. Say it by --section NAME\n"
    assert found == f"{unknown}test reports: CSV, id study_id, column report, 2 of 2 rows\n"
    assert oracle("retrieve", tmp_path / "I", reports, "--quiet")[2] == ""
    assert oracle("retrieve", tmp_path / "I", "--text", "Normal.")[2] == ""


def test_checks_end_with_1_where_an_index_is_damaged(oracle, corpus, index, tmp_path):
    """A difference that a check finds ends with 1; without a check, or without an index, it is a usage error: 2."""
    oracle("retrieve", index, corpus["test"], "--out", tmp_path / "r.csv")
    where = tmp_path / "I"
    shutil.copytree(index, where)
    checks = [["info", where, "--check"], ["verify", where, tmp_path / "r.csv", corpus["test"]]]

    def codes(name, change):
        path = where / name
        before, stamp = path.read_bytes(), path.stat()
        path.write_bytes(change(before))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        ended = [oracle(*command) for command in [*checks, ["info", where]]]
        path.write_bytes(before)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        lines = [err.removeprefix(READ) for code, _, err in ended if code]
        assert all(line.startswith(("error: info: ", "error: verify: ")) and line.count("\n") == 1 for line in lines)
        return [code for code, _, _ in ended]

    assert codes("words/features.arrow", lambda raw: raw) == [0, 0, 0]
    assert codes("words/features.arrow", lambda raw: raw[:999] + bytes([raw[999] ^ 1]) + raw[1000:]) == [1, 1, 0]
    assert codes("reports.arrow", lambda raw: raw[:-1]) == [1, 1, 2]
    assert codes("manifest.json", lambda raw: raw.replace(b'"reports": 120', b'"reports": 121')) == [1, 1, 2]
    assert codes("manifest.json", lambda raw: b"{}") == [2, 2, 2]
    assert oracle("info", tmp_path, "--check")[0] == 2


def test_a_broken_bound_ends_with_1(oracle, corpus, index, monkeypatch):
    def broken(*arguments, **options):
        raise ExactnessError("bounds", "must hold", "a broken one", "Report it.")

    monkeypatch.setattr("metric_oracle.retrieval.search.Search.results", broken)
    assert oracle("retrieve", index, corpus["test"]) == (
        1,
        "",
        f"{READ}error: retrieve: bounds must hold; got a broken one. Report it.\n",
    )


def test_text_option(oracle, index):
    code, out, _ = oracle("retrieve", index, "--text", "No pleural effusion.", "--metric", "rouge-l", "--no-text")
    (answer,) = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert answer["query_id"] == "0"
    assert list(answer) == [*FIRST, "precision", "recall", *LAST[:-1]]


def test_dropped_queries_are_noted_on_stderr(oracle, index, tmp_path):
    path = tmp_path / "q.csv"
    path.write_text('study_id,report\n1,Clear.\n2,\n3," "\n4,...\n')
    code, out, err = oracle("retrieve", index, path)
    assert code == 0
    assert len(out.splitlines()) == 1
    assert err.startswith("test reports: CSV, id study_id, column report, 1 of 4 rows; ")
    assert err.endswith("; 1 missing, left out; 1 empty, left out; 1 tokenless, left out\n")
    assert err.count("\n") == 1


def test_synth_and_build(oracle, tmp_path):
    code, out, err = oracle("synth", tmp_path / "c", "--reports", 20, "--tests", 2)
    assert (code, err) == (0, "")
    assert Path(out.splitlines()[0]).name == "train.csv"
    assert (
        oracle("build-index", tmp_path / "c/train.csv", "--out", tmp_path / "I", "--metrics", " bleu , rouge-l")[0] == 0
    )


def test_demo(oracle):
    code, out, _ = oracle("demo", "--reports", 60, "--tests", 3)
    assert code == 0
    assert "3 test reports, 60 training reports (made up)" in " ".join(out.split())
    means = {
        words[0]: [*map(float, words[1:])]
        for words in map(str.split, out.splitlines())
        if words[:1] and words[0] in OF_DEMO and len(words) == 5
    }
    assert {*means} == {*OF_DEMO}
    for best, strong, weak, chance in means.values():
        assert 1 >= best > chance
        assert 1 >= strong > weak
    text, example, score = out.rpartition("It works. ")[2].splitlines()[-3:]
    assert (text, example) == ("", "oracle example first")
    assert score.startswith("oracle score REFERENCES.csv PREDICTIONS.csv ")


def test_a_demo_leaves_its_folder_and_the_next_commands(oracle, fails, tmp_path, monkeypatch):
    code, out, err = oracle("demo", tmp_path / "try", "--reports", 60, "--tests", 3)
    assert code == 0, err
    lines = out.splitlines()[-len(COMMANDS) :]
    assert lines == list(COMMANDS)
    fails("demo", tmp_path / "try", match=r"demo: folder must be a new or empty folder; got .*try\. Name another")
    monkeypatch.chdir(tmp_path / "try")
    for line in lines:
        code, out, err = oracle(*shlex.split(line)[1:])
        assert code == 0, err


def test_pipe_closed_early(corpus, index):
    command = f"{COMMAND} retrieve {index} {corpus['train']} -k 60 | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith('{"query_id"')
    assert done.stderr == READ.replace("12", "120")


def test_list_of_commands_for_nobody():
    done = subprocess.run(["bash", "-c", f"{COMMAND} --help | (exec <&-; sleep 1)"], capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_list_of_commands_on_a_full_disk():
    done = subprocess.run(["bash", "-c", f"{COMMAND} --help > /dev/full"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_utf_8_in_every_locale(tmp_path):
    reports = tmp_path / "r.csv"
    reports.write_text("study_id,report\né,Größe normal\n", encoding="utf-8")
    build_index(reports, tmp_path / "I", metrics=["bleu"])
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [COMMAND, "retrieve", str(tmp_path / "I"), str(reports)]
    done = subprocess.run(command, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, READ.replace("12", "1").encode())
    assert json.loads(done.stdout.decode())["text"] == "Größe normal"


# Encoders


@pytest.fixture(scope="module")
def encoder(corpus, tmp_path_factory):
    """Return the folder of a tiny BERT with random weights, five layers and the words of the corpus."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("encoder")
    words = sorted(set(re.findall(r"[a-z0-9]+|[^\w\s]", corpus["train"].read_text().lower())))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=5, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=40, initializer_range=0.4,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=40).save_pretrained(folder)
    return folder


def test_from_raw_text_to_bertscore_oracles(oracle, corpus, encoder, tmp_path):
    build = ["build-index", corpus["train"], "--out", tmp_path / "I", "--metrics", "bertscore", "--encoder", encoder]
    code, out, err = oracle(*build, "--layer", 5, "--states", "float16")
    assert code == 0
    assert re.match(
        r"reports: .*\ntoken states: \d+ distinct reports, [\d,]+ tokens x 16 float16; 0\.00 GB on disk", err
    )
    record = json.loads(out)["content"]["representations"]["bertscore"]
    assert (record["encoder"]["layer"], record["storage"]) == (5, "float16")
    assert record["encoder"]["model"] == str(encoder.resolve())
    assert sorted(os.listdir(tmp_path)) == ["I"]
    cut_off = f"{READ}cut off at the encoder's longest input: 5 test reports\n"
    for metric in ("bertscore", "bertscore:precision", "bertscore:recall"):
        retrieve = ["retrieve", tmp_path / "I", corpus["test"], "--metric", metric, "-k", 3]
        code, out, err = oracle(*retrieve)
        assert (code, err) == (0, cut_off)
        answers = [json.loads(line) for line in out.splitlines()]
        assert len(answers) == 12 * 3
        assert list(answers[0]) == [*FIRST, "precision", "recall", "f1", *LAST]
        assert oracle(*retrieve, "--backend", "reference")[1] == out
        path = tmp_path / "r.parquet"
        code, out, err = oracle(*retrieve, "--idf", "corpus", "--out", path)
        assert (code, out) == (0, "")
        assert err.startswith(f"{cut_off}{path}: 36 answers, mean score ")
        assert read_results(path).signature["idf"] == "corpus"
        assert read_results(path).table.to_pylist() != answers
        code, out, err = oracle("verify", tmp_path / "I", path, corpus["test"])
        assert (code, err) == (0, READ)
        assert out == "right: 36 pairs scored again, 12 queries searched by brute force\n"


def test_encoder_that_moved(oracle, fails, encoder, tmp_path):
    reports, moved = tmp_path / "r.csv", tmp_path / "moved"
    reports.write_text("study_id,report\n1,no acute process .\n2,heart size is normal .\n")
    shutil.copytree(encoder, tmp_path / "here")
    build = ["build-index", reports, "--out", tmp_path / "I", "--encoder", tmp_path / "here"]
    assert oracle(*build, "--layer", 2)[0] == 0
    retrieve = ["retrieve", tmp_path / "I", "--text", "heart normal .", "--metric", "bertscore"]
    code, expected, _ = oracle(*retrieve)
    assert code == 0
    (tmp_path / "here").rename(moved)
    match = r"retrieve: --encoder must be an existing folder or the name of a Hugging Face model; got .*here\."
    fails(*retrieve, match=match)
    assert oracle(*retrieve, "--encoder", moved) == (0, expected, "")
    (moved / "vocab.txt").write_text((moved / "vocab.txt").read_text() + "zebra\n")
    fails(
        *retrieve, "--encoder", moved, match=r"retrieve: --encoder must be the one of the index, .*; got .*moved, sha"
    )


def test_options_of_an_encoder_hold_for_a_name_as_for_its_file(oracle, encoder, tmp_path):
    """What is typed beside the name of a set is not lost, and comes before what the encoder's entry says."""
    (tmp_path / "r.csv").write_text("study_id,report\n1,no acute process .\n2,heart size is normal .\n")
    project = tmp_path / "oracle.toml"
    entry = f"[encoders.tiny]\nmodel = {json.dumps(str(encoder))}\nlayer = 2\nstates = 'float16'\n"
    project.write_text(f"[reports.train]\nfile = 'r.csv'\n{entry}")
    build = ["--project", project, "-m", "bertscore", "--out", tmp_path / "I"]
    for reports in ("train", tmp_path / "r.csv"):
        for typed, expected in (
            (["--encoder", encoder, "--layer", 5, "--states", "float32"], (5, "float32")),
            (["--encoder", "tiny"], (2, "float16")),
            (["--encoder", "tiny", "--layer", 5], (5, "float16")),
        ):
            code, out, _ = oracle("build-index", reports, *build, *typed)
            assert code == 0
            record = json.loads(out)["content"]["representations"]["bertscore"]
            assert (record["encoder"]["layer"], record["storage"]) == expected
            assert record["encoder"]["model"] == str(encoder.resolve())
            shutil.rmtree(tmp_path / "I")


def test_options_of_an_encoder(fails, corpus, encoder, tmp_path):
    before = sorted(os.listdir(corpus["train"].parent))
    build = ["build-index", corpus["train"], "--out", tmp_path / "I"]
    match = r"build-index: --layer must be given for an encoder other than distilroberta-base, .*\. Add --layer N\.$"
    fails(*build, "--encoder", encoder, match=match)
    match = rf"build-index: --layer must be from 0 to 5 \(layers of this encoder\); got 6 for {encoder}\. Change --lay"
    fails(*build, "--encoder", encoder, "--layer", 6, match=match)
    match = r"oracle build-index: --states must be one of float32, float16; got 'float8'\."
    fails(*build, "--encoder", encoder, "--layer", 5, "--states", "float8", match=match)
    match = r"build-index: --encoder must be given with --layer; got none\. Add --encoder NAME or a folder\.$"
    for layer in (5, 0):
        fails(*build, "--layer", layer, match=match)
    fails(*build, "--states", "float16", "--bf16", match=match.replace("layer", "states, --bf16"))
    absent = tmp_path / "absent"
    match = (
        rf"build-index: --encoder must be an existing folder or the name of a Hugging Face model; got {absent}\. Che"
    )
    fails(*build, "--encoder", absent, "--layer", 5, match=match)
    absent.mkdir()
    match = (
        r"build-index: --encoder must be a folder with config.json; got none in .*absent\. Save the whole model there"
    )
    fails(*build, "--encoder", absent, "--layer", 5, match=match)
    match = r"build-index: there is no file .*no\.tsv\. Check"
    fails(*build, "--encoder", encoder, "--layer", 5, "--rescale-table", tmp_path / "no.tsv", match=match)
    assert os.listdir(tmp_path) == ["absent"]
    assert sorted(os.listdir(corpus["train"].parent)) == before


def test_settings_of_bertscore_with_another_metric(fails, corpus, index):
    given = ["retrieve", index, corpus["test"], "--metric", "bleu"]
    match = r"retrieve: --idf must be left out for metric 'bleu-2'; got a value\. Leave out --idf\.$"
    fails(*given, "--idf", "corpus", match=match)
    fails(*given, "--no-rescale", match=match.replace("idf", "rescale"))
    match = r"retrieve: --metric must be one of bleu-1, .* \(what .*I holds\); got 'bertscore'\. Build an index with --"
    fails("retrieve", index, corpus["test"], "--metric", "bertscore", match=match)


# Terminals


def on_terminal(*command):
    """Run a command on a pseudo-terminal and return its exit code and what it would show."""
    main, other = pty.openpty()
    environment = {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    process = subprocess.Popen([*map(str, command)], stdout=other, stderr=subprocess.PIPE, env=environment)
    os.close(other)
    shown = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(main)
    _, err = process.communicate()
    return process.returncode, shown.decode(), err.decode()


def without_style(shown):
    """Drop the escapes that Rich itself writes: bold, dim, colour."""
    return re.sub(r"\x1b\[[\d;]*m", "", shown)


def test_answers_on_a_terminal(small):
    index, reports = small
    code, shown, err = on_terminal(COMMAND, "retrieve", index, reports, "-k", 2, "--metric", "rouge-l")
    assert (code, err) == (0, "test reports: JSON, id study_id, column report, 4 of 4 rows\n")
    plain = without_style(shown)
    assert "rouge-l oracle" in plain
    assert "Heart [red]normal[/red]." in plain
    assert "Lungs \ufffd[31mclear\ufffd[0m." in plain
    assert "No \ufffdbell \ufffd5m [/] [bold" in plain
    assert all(name in plain for name in ("[red]a[/red]", "\ufffd[31mb", "c[/]", "[link=file:///etc/passwd]d"))
    assert "4 test reports, mean best score 1.0000" in plain


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_records_on_a_terminal(small, form):
    """Nothing that a terminal obeys reaches it, and a pipe gets the texts as they are."""
    command = [COMMAND, "retrieve", *small, "--metric", "rouge-l", "--format", form]
    code, shown, _ = on_terminal(*command)
    assert code == 0
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown.replace("\r\n", "\n"))
    escape = r"\u00" if form == "jsonl" else r"\x"  # JSON has its own for some
    assert rf"Lungs {escape}1b[31mclear{escape}1b[0m." in shown
    assert rf"No {escape}07bell \x9b5m [/] [bold" in shown
    piped = subprocess.run([*map(str, command)], capture_output=True, check=True).stdout.decode()
    read = polars.read_ndjson if form == "jsonl" else polars.read_csv
    assert "No \x07bell \x9b5m [/] [bold" in read(piped.encode())["text"].to_list()


def test_notes_and_paths_let_no_control_character_through(tmp_path, small):
    queries = tmp_path / "q\x1b[31m.csv"
    queries.write_text("study_id,re\x07port\n1,Lungs clear.\n2,nan\n")
    asked = ["retrieve", small[0], queries, "--text-column", "re\x07port", "--metric", "rouge-l"]
    code, shown, err = on_terminal(COMMAND, *asked, "--out", tmp_path / "o\x1b.csv")
    assert (code, shown) == (0, "")
    assert r"column re\x07port" in err
    assert r"o\x1b.csv: 1 answers" in err
    code, shown, _ = on_terminal(COMMAND, "example", tmp_path / "e\x1b")
    assert (code, "e\\x1b: " in shown, "\x1b" in shown) == (0, True, False)


def test_every_line_of_a_command_is_spelled_out():
    """Commands print by `put`, `note`, `error` and `show`, which know a terminal; the list of commands is fixed."""
    folder = Path(output.__file__).parent
    found = {
        path.name: sum(
            isinstance(node, ast.Name) and node.id == "print" for node in ast.walk(ast.parse(path.read_text()))
        )
        for path in folder.glob("*.py")
    }
    assert {name: n for name, n in found.items() if n} == {"output.py": 2, "listing.py": 1}
    console = output._console(file=io.StringIO(), width=40)
    console.print("a\x1b[31mb\x07\x9b", Text("c\x1b]0;d"), style="bold")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", console.file.getvalue())


def test_info_on_a_terminal(small):
    code, shown, err = on_terminal(COMMAND, "info", small[0])
    assert (code, err) == (0, "")
    assert "I[red]" in without_style(shown).replace("\r\n", "")
    assert "fingerprint" in shown


def test_tables_let_no_control_character_through(small):
    results = mo.retrieve(small[0], small[1], "bleu", k=2)
    for table in (answers_table(results), info_table(open_index(small[0]))):
        console = Console(file=io.StringIO(), force_terminal=False, width=200)
        console.print(table)
        shown = console.file.getvalue()
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)


def test_table_shows_the_first_queries_only():
    texts = [f"report {i}" for i in range(30)]
    corpus = Reports([str(i) for i in range(30)], texts, "test")
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        index = build_index(corpus, Path(folder) / "I", metrics=["bleu"])
        console = Console(file=io.StringIO(), width=200)
        console.print(answers_table(mo.retrieve(index, texts, "bleu", text=False)))
    assert "shown: the first 20; a file has all" in console.file.getvalue()


# Errors: one line, exit code 2


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["frobnicate"], r"oracle: no such command 'frobnicate'\. See \"oracle --help\"\.$"),
        (["retreive"], r"oracle: no such command 'retreive'\. Did you mean retrieve\?$"),
        (
            ["build-index"],
            r"oracle build-index: REPORTS is missing\. See \"oracle build-index --help\"\.$",
        ),
        (["build-index", "r.csv"], r"oracle build-index: --out is missing\. See"),
        (
            ["retrieve", "I", "q.csv", "-k", "many"],
            r"oracle retrieve: --top-k must be an integer; got 'many'\.",
        ),
        (
            ["retrieve", "I", "q.csv", "--max-memory", "all"],
            r"oracle retrieve: --max-memory must be a number; got 'all",
        ),
        (
            ["retrieve", "I", "q.csv", "--backend", "gpu"],
            r"oracle retrieve: --backend must be one of auto, cpu, cuda, r",
        ),
        (["annotate", "q.csv", "--device", "gpu"], r"oracle annotate: --device must be one of cpu, cuda; got"),
        (["retrieve", "I", "q.csv", "--wrong"], r"oracle retrieve: no such option --wrong\. See"),
        (["retrieve", "I", "q.csv", "--zz zz"], r"oracle retrieve: no such option '--zz zz'\. See"),
        (
            ["retrieve", "I", "q.csv", "--idff"],
            r"oracle retrieve: no such option --idff\. Did you mean --idf",
        ),
        (
            ["retrieve", "I", "q.csv", "-k"],
            r"oracle: -k needs a value\. See",
        ),
        (
            ["retrieve", "I", "q.csv", *SECRET.split()],
            r"oracle retrieve: too many arguments; it takes 2\. Put a text with blanks in quotes\.",
        ),
        (
            ["retrieve", "I", "q.csv", "-k", "0"],
            r"retrieve: -k must be an int of at least 1; got 0\. Ch",
        ),
        (
            ["retrieve", "I", "q.csv", "--threads", "0"],
            r"retrieve: --threads must be an int of at least 1; g",
        ),
        (
            ["verify", "I", "r.csv", "q.csv", "--sample", "-1"],
            r"verify: --sample must be an int of at least 0",
        ),
        (
            ["verify", "I", "r.csv", "q.csv", "--seed", "-1"],
            r"verify: --seed must be an int of at least 0; got",
        ),
        (["demo", "--seed", "-1"], r"demo: --seed must be an int of at least 0; got -1\. Choose another number\.$"),
        (["synth", "x", "--reports", "0"], r"synth: --reports must be an int of at least 1; got 0\."),
        (["demo", "--tests", "0"], r"demo: --tests must be an int of at least 1; got 0\."),
        (["baseline"], None),
    ],
)
def test_usage_errors_are_one_line(oracle, fails, arguments, match):
    if match is None:  # help, as for no command at all
        code, out, err = oracle(*arguments)
        assert (code, err) == (2, "")
        assert "Usage: oracle baseline" in out
    else:
        fails(*arguments, match=match)


NAME = "my name (2)"
LONG = "; ".join([f"{SECRET} on the left"] * 20)
LINES = f"{SECRET}\non the left"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["retrieve", "I", "{}"], r"retrieve: queries must be an existing file or folder; got {}\. Check the name"),
        (["retrieve", "{}", "q.csv"], r"retrieve: index must be an existing file or folder; got {}\. Check the"),
        (
            ["build-index", "{}", "--out", "I"],
            r"build-index: reports must be an existing file or folder; got {}\. Check",
        ),
        (["score", "{}", "p.csv"], r"score: references must be an existing file or folder; got {}\. Check"),
        (
            ["reports", "a", "q.csv", "--radgraph", "{}"],
            r"reports: --radgraph must be an existing file or .*; got {}\.",
        ),
        (["retrieve", "I", "q.csv", "-m", "{}"], r"retrieve: --metric must be one of those that oracle .*; got {}\. C"),
        (["retrieve", "I", "q.csv", "--section", "{}"], r"oracle retrieve: --section must be one of .*; got {}\. See"),
        (["retrieve", "I", "q.csv", "--format", "{}"], r"oracle retrieve: --format must be one of .*; got {}\. See"),
        (["retrieve", "I", "q.csv", "-k", "{}"], r"oracle retrieve: --top-k must be an integer; got {}\. See"),
        (["retrieve", "I", "q.csv", "--top-k={}"], r"oracle retrieve: --top-k must be an integer; got {}\. See"),
        (["{}"], r"oracle: no such command {}\. See"),
        (["baseline", "{}"], r"oracle baseline: no such command {}\. See"),
    ],
)
def test_a_name_is_shown_and_a_text_described(fails, arguments, rule):
    """Blanks do not make a text of a name; a line break or more than 200 characters do."""
    for text in (LONG, LINES):
        fails(*(word.format(text) for word in arguments), match=rule.format(rf"a text of {len(text)} characters"))
    if "existing file" not in rule:  # that there is no such file is said by who reads it, see below
        fails(*(word.format(NAME) for word in arguments), match=rule.format(re.escape(repr(NAME))))
        wide = "双肺纹理清晰 " * 20
        fails(*(word.format(wide) for word in arguments), match=rule.format(re.escape(repr(f"{wide[:80]}..."))))


def test_a_missing_file_is_named(fails, index):
    for name in ("missing file.csv", "no file of this name, 双肺纹理清晰"):
        step = "Check the name: it is never read as text"
        fails("retrieve", index, name, match=rf"retrieve: there is no file or folder {name}\. {step}")
        fails("score", name, name, match=rf"score: there is no file or folder {name}\. {step}")
    fails("info", "my index", match=r"info: .*my index")


@pytest.mark.parametrize(
    "line",
    [
        "score a.csv b.csv -m bleu rouge-l",
        "build-index -m bleu rouge-l a.csv --out I",
        "consensus -m bleu, rouge-l",
    ],
)
def test_metrics_with_blanks_between_them(fails, line):
    fails(*line.split(), match=r".*\. Write several metrics with commas: -m bleu,rouge-l\.$")


def test_all_is_checked_before_the_first_file(fails, named, corpus, index, tmp_path, monkeypatch):
    """Whatever can be wrong without a file is said before one is opened: the index and the queries are not there."""
    asked = ["retrieve", tmp_path / "no", tmp_path / "no.csv"]
    fails(*asked, "-m", "bleu,rouge-l", match=r"retrieve: --metric must be a single one; got 2\. Run the command once")
    fails(*asked, "-m", "bluu", match=r"retrieve: --metric must be one of .*; got 'bluu'\. Did you mean 'bleu'\?")
    fails(*asked, "--out", tmp_path / "r.txt", match=r"retrieve: --out must end with \.parquet, \.csv or \.jsonl; got")
    fails(
        *asked, "--weights", tmp_path / "w.json", match=r"retrieve: --weights must be left out for metric 'bleu'; got"
    )
    fails(
        *asked, "--max-memory", "-3", match=r"retrieve: --max-memory must be a number of GB above 0; got -3\.0\. Choose"
    )
    fails(
        *asked,
        "--idf",
        "corpus",
        match=r"retrieve: --idf must be left out for metric 'bleu-2'; got a value\. Leave out --idf",
    )
    fails(
        "baseline", "random", *asked[1:], "--no-rescale",
        match=r"baseline [a-z-]+: --rescale must be left out for metric 'bleu-2'; got a value\. Leave out --rescale",
    )  # fmt: skip
    if find_spec("torch"):
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        (tmp_path / "graphs.tar.gz").write_bytes(b"")
        model = ["--radgraph", tmp_path / "graphs.tar.gz", "--device", "cuda"]
        (tmp_path / "empty.csv").write_bytes(b"")
        named("no", tmp_path / "empty.csv", radgraph=tmp_path / "graphs.tar.gz", device="cuda")
        match = r'{}: device "cuda" is not usable: no CUDA device found\. Use "cpu" or "auto"\.'
        fails("build-index", tmp_path / "no.csv", "--out", tmp_path / "J", *model, match=match.format("build-index"))
        fails("score", "no", tmp_path / "no.csv", match=match.format("score"))
        fails("retrieve", index, "no", match=match.format("retrieve"))
    build = ["build-index", corpus["train"], "--out", index]
    monkeypatch.setattr("metric_oracle.corpora.reports.read_reports", lambda *a, **o: pytest.fail("read"))
    fails(*build, match=r"build-index: --out must be a new folder; got .*, which exists\. Remove it or name another")
    fails(
        *build[:-1], tmp_path / "I", "-m", "bluu", match=r"build-index: --metric must be one of .*Did you mean 'bleu'"
    )


def test_outputs_that_are_inputs(fails, corpus, index, tmp_path):
    """Every file that a command reads is safe from --out: the table of weights and the encoder's files, too."""
    copy = tmp_path / "idf.csv"
    copy.write_text("token,weight\n")
    given = ["retrieve", index, corpus["test"], "--out", copy]
    match = r"retrieve: --out must be another file than the inputs; got .*, which is one\. Name another file\."
    for option in ("--idf", "--encoder"):
        fails(*given, option, copy, match=match)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    fails("bench", index, rows, "--out", rows, match=match.replace("retrieve", "bench"))


def test_verify_ends_with_1_where_a_score_differs(oracle, fails, corpus, index, tmp_path):
    path = tmp_path / "r.jsonl"
    assert oracle("retrieve", index, corpus["test"], "--out", path)[0] == 0
    found = read_results(path)
    altered = [{**row, "score": 0.123} if i == 0 else row for i, row in enumerate(found.table.to_pylist())]
    Results(found.table.from_pylist(altered, found.table.schema), found.signature).write(path)
    code, out, err = oracle("verify", index, path, corpus["test"])
    assert (code, out) == (1, "")
    assert re.match(
        r"error: verify: the score of query '\d+' and row \d+ must be [\d.]+; got 0\.123\.", err.removeprefix(READ)
    )
    path.write_text(path.read_text().replace("0.123", "0.124"))
    fails("verify", index, path, corpus["test"], match=r"verify: results must be the table that its signature")


def test_metrics(oracle):
    from metric_oracle.metrics import ALIASES, METRICS

    code, out, err = oracle("metrics")
    records = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [record["metric"] for record in records] == list(METRICS)
    assert {alias for record in records for alias in record["also"].split(", ") if alias} == set(ALIASES)
    found = {record["metric"]: record for record in records}
    assert found["radcliq"]["better"] == "lower"
    assert found["bleu-2"]["reads"] == "the reports"
    assert "--radgraph" in found["radcliq"]["reads"]
    assert "--encoder" in found["radcliq"]["reads"]
    code, shown, _ = oracle("metrics", "--format", "table")
    assert code == 0
    assert all(name in shown for name in METRICS)
    assert oracle("metrics", "--format", "csv")[1].startswith("metric,also,better,reads,equals\nbleu-1,")


def test_formats_and_quiet(oracle, corpus, index, tmp_path):
    given = ["retrieve", index, corpus["test"]]
    lines = oracle(*given)[1].splitlines()
    code, out, _ = oracle(*given, "--format", "csv")
    assert code == 0
    assert len(out.splitlines()) >= len(lines)
    assert out.startswith('"query_id","rank","row","candidate_id","score"')
    code, out, _ = oracle(*given, "--format", "table")
    assert "bleu-2 oracle" in out
    assert "signature: bleu-2|cxr-report-metric|idx:" in out.replace("\n", "")  # wrapped where the version is long
    assert "brevity_penalty" not in out
    assert "brevity_penalty" in oracle(*given, "--format", "table", "--components")[1]
    path = tmp_path / "r.csv"
    assert oracle(*given, "--out", path, "--quiet") == (0, "", "")
    code, out, err = oracle(*given, "--out", path, "--format", "jsonl")
    assert out.splitlines() == lines
    assert err.startswith(f"{READ}{path}: 12 answers, mean score ")


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "metric_oracle", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("metric-oracle ")


def test_compiling_is_known():
    from numba import njit
    from numba.extending import overload

    from metric_oracle.commands.output import is_compiling

    def one():
        return 1

    told = []

    @overload(one)  # called by the compiler
    def choose():
        told.append(is_compiling())
        return one

    @njit
    def two():
        return one() + 1

    assert not is_compiling()
    assert (two(), set(told)) == (2, {True})
    told.clear()
    assert (two(), told, is_compiling()) == (2, [], False)


@pytest.mark.parametrize(
    ("waits", "known"), [("metric_oracle.kernels._cache", True), ("metric_oracle.projects", False)]
)
def test_waiting_for_a_process_that_compiles_the_same_is_compiling(tmp_path, waits, known):
    from metric_oracle.base.locks import alone
    from metric_oracle.commands.output import is_compiling

    def wait():
        with alone(lock):
            pass

    lock = tmp_path / "code.lock"
    waiting = FunctionType(wait.__code__, {**globals(), "__name__": waits}, closure=wait.__closure__)
    thread = threading.Thread(target=waiting)
    with alone(lock):
        thread.start()
        while all(frame.f_code.co_name != "open_locked" for frame in sys._current_frames().values()):
            time.sleep(0.001)
        assert is_compiling() == known
    thread.join()
    assert not is_compiling()


def test_a_file_gets_lines_of_progress(oracle, index, monkeypatch):
    """Each 30 seconds; here all the time, and each step waits until it is told."""
    from metric_oracle.commands import output

    described, note, told = output._described, output.note, threading.Event()

    def wait(*step):
        for _ in range(2 if begun else 0):  # a line may be on its way
            told.clear()
            assert told.wait(HANG)
        begun.append(step)
        return described(*step)

    begun = []
    monkeypatch.setenv("ORACLE_PROGRESS", "0.001")
    monkeypatch.setattr(output, "note", lambda line: (note(line), told.set()))
    monkeypatch.setattr(output, "_described", wait)
    code, _, err = oracle("retrieve", index, "--text", "No effusion.", "-m", "bleu")
    lines = [line for line in err.splitlines() if re.match(r"[0-9.]+ s: ", line)]
    assert code == 0
    shown = [line.partition(" s: ")[2].removesuffix(output._COMPILING) for line in lines]
    assert list(dict.fromkeys(shown))[:2] == ["test reports", "test reports, 0 of 1"]


def test_queries_and_text(fails, corpus, index):
    match = r"retrieve: give either QUERIES or --text; got both\. Name a file, or one report in quotes\.$"
    fails("retrieve", index, corpus["test"], "--text", SECRET, match=match)
    fails("retrieve", index, match=r"retrieve: give either QUERIES or --text; got neither\.")
    match = r"retrieve: options of a file must be left out with --text; got --text-column, --split\. Leave them out\.$"
    fails("retrieve", index, "--text", SECRET, "--split", "test", "--text-column", "report", match=match)


def test_arguments_swapped_or_wrong(fails, corpus, index, tmp_path):
    train, test, out = corpus["train"], corpus["test"], tmp_path / "I"
    fails("retrieve", test, index, match=r"retrieve: index must be a folder with manifest.json; got .*test.csv\.")
    fails("info", tmp_path / "nowhere", match=r"info: index must be a folder with manifest.json")
    fails("info", index / "manifest.json", match=r"info: index must be a folder with manifest.json")
    fails("verify", index, test, test, match=r"verify: results must be a file that oracle retrieve wrote, with its sig")
    fails("build-index", index, "--out", index, match=r"build-index: --out must be a new folder")
    fails("build-index", index.parent, "--out", out, match=r"build-index: .* holds no report files such as p10/")
    fails("build-index", train, "--radgraph", train, "--out", out, match=r"build-index: .* is not a whole JSON object")
    fails(
        "build-index", train, "--radgraph", tmp_path, "--out", out, match=r"build-index: .* is a folder, where a file"
    )
    match = r"build-index: ids of the reports must occur among the study ids of .*\.json; got none of 120 reports\."
    fails("build-index", train, "--radgraph", corpus["test_graphs"], "--out", out, match=match)
    match = (
        r"build-index: .* holds RadGraph graphs, not reports\. Name a file of reports, and pass the graphs as "
        r"--radgraph FILE\.$"
    )
    fails("build-index", corpus["train_graphs"], "--out", out, match=match)
    fails(
        "build-index",
        train,
        "--chexbert",
        train,
        "--out",
        out,
        match=r"build-index: .* must be one of .npy",
    )
    match = r"build-index: .* lacks columns of the 14 CheXbert labels"
    fails("build-index", train, "--chexbert-labels", train, "--uncertain", "blank", "--out", out, match=match)
    fails(
        "build-index",
        train,
        "--metrics",
        "bluu",
        "--out",
        out,
        match=r"build-index: --metric must be one of .*Did you m",
    )
    match = r"build-index: graphs of the reports must be given for metric 'radgraph'; got none\. Add --radgraph GRAPHS"
    fails("build-index", train, "--metrics", "radgraph", "--out", out, match=match)
    fails(
        "build-index", train, "--out", train, match=r"build-index: --out must be a new folder; got .*, which exists\."
    )
    fails("synth", train, match=r"synth: out must be a new or empty folder; got")
    fails("synth", train / "x", match=r"synth: .*x cannot be made: a file is in the way\.")
    assert not os.listdir(tmp_path)


def damaged_files(folder):
    """Yield reports files that cannot be read, and the rule that each breaks."""
    noise = np.random.default_rng(0).bytes(3000)
    foreign = ".* is a binary file, which its ending does not say"
    for ending in ("csv", "tsv", "json", "jsonl"):
        yield f"n.{ending}", noise, foreign
        yield f"e.{ending}", b"", ".* is empty"
    yield "n.parquet", noise, ".* is not a whole Parquet file"
    yield "n.zip", noise, ".* is not a whole zip file"
    yield "n.csv.gz", noise, ".* is not a whole gzip file"
    yield "n.docx", noise, ".* is not a table by its ending, which must be one of .csv, .tsv"
    text = SECRET.encode()
    nul = ".* has a NUL byte in line 1, which no text has"
    yield "utf16.csv", f"study_id,report\n1,{SECRET}\n".encode("utf-16-le"), nul  # without a byte-order mark
    yield "one.csv", b"report\n" + text, ".* has no column with a usual id name"
    yield "ids.csv", b"study_id\n1\n", ".* has no column that is clearly the impression"
    yield "header.csv", b"study_id,report\n", "there is no row in "
    yield "none.csv", text, ".* has no column with a usual id name"
    yield "twice.csv", b"study_id,report\n1," + text + b"\n1,other\n", ".* has 1 ids with several texts"
    yield (
        "rows.csv",
        b"study_id,report\n1," + text + b",x\n",
        ".* has rows that cannot be read: 2 columns in the header",
    )
    yield (
        "quote.csv",
        b'study_id,report\n1,"' + text + b"\n",
        ".* has (?:rows that cannot be read|a quote that is never)",
    )
    rule = ".* is not readable JSON: a number or the nesting is too large"
    yield "deep.json", b"[" * 100_000, rule
    yield "number.json", b'[{"study_id": ' + b"1" * 5000 + b"}]", rule
    yield "deep.jsonl", b"[" * 100_000, ".* has no JSON object in line 1"
    yield "number.jsonl", b'{"study_id": ' + b"1" * 5000 + b"}", ".* has no JSON object in line 1"
    yield "list.json", b'[{"study_id": [1], "report": "' + text + b'"}]', "there is no id in row 1 of 'study_id' in "
    yield "half.json", b'[{"study_id": "1", "report": "' + text + rb' \ud800"}]', "texts must be valid Unicode"
    with zipfile.ZipFile(folder / "z", "w") as archive:
        archive.writestr("../../p10/s50414267.txt", SECRET)
    yield (
        "climbs.zip",
        (folder / "z").read_bytes(),
        ".* has a member whose path leads out of the archive",
    )


def test_damaged_reports(fails, tmp_path):
    for name, content, rule in damaged_files(tmp_path):
        (tmp_path / name).write_bytes(content)
        match = rf"build-index: {rule}"
        fails("build-index", tmp_path / name, "--out", tmp_path / "I", match=match)
    assert not (tmp_path / "I").exists()


def test_damaged_embeddings(fails, corpus, tmp_path):
    noise = np.random.default_rng(0).bytes(3000)
    rules = {".npy": "is not a whole .npy", ".npz": "is not a whole .npz", ".csv": "is not a file of vectors"}
    for ending, rule in rules.items():
        path = tmp_path / f"n{ending}"
        path.write_bytes(noise)
        match = rf"build-index: .* {rule}"
        fails("build-index", corpus["train"], "--chexbert", path, "--out", tmp_path / "I", match=match)
    (tmp_path / "n.parquet").write_bytes(noise)
    match = r"build-index: .*n\.parquet is not a whole Parquet file"
    fails("build-index", corpus["train"], "--chexbert", tmp_path / "n.parquet", "--out", tmp_path / "I", match=match)


def test_altered_bytes_of_binary_files_are_never_a_traceback(corpus, tmp_path):
    """Readers of NumPy, zip and Parquet files meet bytes that no writer makes: an error, or what can be true.

    zip and npz carry checksums of their content; of the others as many rows as ids are left, and numbers are numbers.
    """
    import pyarrow as pa

    from metric_oracle.base.errors import MetricOracleError
    from metric_oracle.corpora.reports import read_reports
    from metric_oracle.corpora.vectors import read_embeddings

    rng = np.random.default_rng(5)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("files/p10/p1/s50414267.txt", " IMPRESSION: clear")
    parquet.write_table(pa.table({"study_id": ["1", "2"], "report": ["a b", "c d"]}), tmp_path / "a.parquet")
    np.save(tmp_path / "a.npy", np.ones((3, 4), np.float32))
    np.savez(tmp_path / "a.npz", ids=np.array(["1", "2"]), v=np.ones((2, 3), np.float32))
    (tmp_path / "ids.txt").write_text("1\n2\n3")
    readers = {
        "a.zip": read_reports,
        "a.parquet": read_reports,
        "a.npz": read_embeddings,
        "a.npy": lambda path: read_embeddings(path, ids=tmp_path / "ids.txt"),
    }
    for name, read in readers.items():
        whole = (tmp_path / name).read_bytes()
        path, n_errors = tmp_path / f"x{name}", 0
        for _ in range(300):
            content = bytearray(whole)
            content[rng.integers(len(content))] = rng.integers(256)
            if rng.random() < 0.2:
                del content[rng.integers(len(content)) :]
            path.write_bytes(content)
            try:
                found = read(path)
            except MetricOracleError:
                n_errors += 1
                continue
            assert len(set(found.ids)) == len(found.ids)
            if name.endswith((".npy", ".npz")):
                assert found.values.dtype == np.float32
                assert found.values.shape[0] == len(found.ids)
                assert np.isfinite(found.values).all()
            else:
                assert len(found.texts) == len(found.ids)
                assert all(isinstance(text, str) and text for text in found.texts)
            if name == "a.npz":
                assert (found.ids, found.values.tolist()) == (["1", "2"], [[1.0] * 3] * 2)
            if name == "a.zip":
                assert found.texts == ["clear"]
        assert n_errors > 30, name


def test_results_files(fails, corpus, index, tmp_path):
    fails("verify", index, tmp_path, corpus["test"], match=r"verify: results must be an existing file; got")
    for name in ("r.csv", "r.parquet", "r.jsonl", "r.txt"):
        (tmp_path / name).write_bytes(b"x" * 100)
        fails(
            "verify",
            index,
            tmp_path / name,
            corpus["test"],
            match=r"verify: results must be a file that oracle retrieve wrote",
        )


def test_out_is_checked_before_the_work(fails, corpus, index, tmp_path, monkeypatch):
    monkeypatch.setattr(Plan, "search", lambda *args, **kwargs: pytest.fail("searched"))
    test = tmp_path / "test.csv"
    test.write_bytes(corpus["test"].read_bytes())
    fails(
        "retrieve", index, test, "--out", tmp_path / "r.txt", match=r"retrieve: --out must end with .parquet, .csv or"
    )
    fails(
        "retrieve", index, test, "--out", tmp_path / "no/r.csv", match=r"retrieve: --out must be in an existing folder"
    )
    fails(
        "retrieve",
        index,
        test,
        "--out",
        test,
        match=r"retrieve: --out must be another file than the inputs; got .*, whic",
    )
    assert test.read_bytes() == corpus["test"].read_bytes()


def test_closed_files(fails, index, open_folder, request, corpus):
    table = csv.read_csv(corpus["train"], parse_options=csv.ParseOptions(newlines_in_values=True))
    (open_folder / "r.csv").write_bytes(corpus["train"].read_bytes())
    parquet.write_table(table, open_folder / "r.parquet")
    (open_folder / "r.zip").write_bytes(b"")
    (open_folder / "e.npy").write_bytes(b"")
    (open_folder / "I").mkdir()
    for path in open_folder.iterdir():
        path.chmod(0)
    closed = r"[a-z-]+: files and folders must be open to this user, with room to write; got .* \(Permission denied\)\."
    request.getfixturevalue("unprivileged")
    for name in ("r.csv", "r.parquet", "r.zip"):
        fails("build-index", open_folder / name, "--out", open_folder / "new", match=closed)
    fails("info", open_folder / "I", match=closed)
    fails("synth", open_folder / "I/x", "--reports", 2, "--tests", 1, match=closed)


def test_control_characters_of_names_are_spelled_out(fails):
    fails("info", "a\x07b\x1b[31m", match=r"info: index must be a folder .*; got a\\x07b\\x1b\[31m\. Build")


def test_paths_of_dots_are_named_in_full(fails, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    for path, shown in ((".", tmp_path / "a"), ("..", tmp_path), ("../a/..", tmp_path)):
        fails("info", path, match=rf"info: index must be a folder with manifest\.json; got {shown}\. Build one")
    fails("table", f"a={tmp_path}", "--out", ".", match=rf"table: .*{tmp_path / 'a'}\. ")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            MemoryError(),
            2,
            "error: oracle: the data must fit into memory; got more. Use fewer reports, or a machine with",
        ),
        (
            KeyboardInterrupt(),
            130,
            "error: oracle: the command must run to its end; got an interruption. Run it again: a",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "x"),
            2,
            "error: info: files and folders must be open to this",
        ),
        (
            OSError("odd"),
            2,
            "error: oracle: files and folders must be open to this user, with room to write; got one (OSEr",
        ),
        (
            InputError("a", "must be b", "c", "Do d."),
            2,
            "error: info: a must be b; got c. Do d.",
        ),
    ],
)
def test_errors_from_inside(oracle, index, monkeypatch, error, code, line):
    def broken(path):
        raise error

    monkeypatch.setattr(shards, "open_index", broken)
    got, out, err = oracle("info", index)
    assert (got, out) == (code, "")
    assert err.startswith(line)
    assert err.count("\n") == 1
    if not isinstance(error, KeyboardInterrupt):
        monkeypatch.setenv("ORACLE_DEBUG", "1")
        monkeypatch.setattr(sys, "argv", ["oracle", "info", str(index)])
        with pytest.raises((type(error), InputError)) as caught:
            cli.main()
        assert error in (caught.value, caught.value.__cause__)


def test_debug_shows_the_traceback(tmp_path):
    environment = {**os.environ, "ORACLE_DEBUG": "1"}
    command = [COMMAND, "info", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "IndexFormatError" in done.stderr


def test_interruption_inside_a_callback():
    """LLVM calls back into Python while it compiles; Python prints and drops an exception that is raised there."""
    program = (
        "import ctypes, signal, time\n"
        "from metric_oracle import cli\n"
        "def compile(*args, **options):\n"
        "    ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()\n"
        "    time.sleep(600)\n"
        "cli.app = compile\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("error: oracle: the command must run to its end; got an interruption.")
    assert len(done.stderr.splitlines()) == 1


def test_interruption_of_a_running_command(tmp_path):
    process = subprocess.Popen(
        [COMMAND, "synth", str(tmp_path / "c"), "--reports", "50000000", "--tests", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not os.listdir(tmp_path):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG)
    assert (process.returncode, out) == (130, "")
    assert (
        err.strip()
        == "error: oracle: the command must run to its end; got an interruption. Run it again: a build resumes."
    )
    assert not os.listdir(tmp_path)
