"""Judges of oracle.toml: asked where their name is given, in the folder of the file, and not elsewhere."""

import csv
import json
import sys

import pytest

import metric_oracle as mo
from support import write

REPORTS = {"1": "no acute process", "2": "small left effusion", "3": "edema"}
WRITTEN = {"1": "no new process", "2": "small effusion", "3": "edema"}
SCRIPT = """
import json, sys
open("log", "a").write("asked ")
for line in sys.stdin:
    pair = json.loads(line)
    words = [{*pair[side].split()} for side in ("reference", "candidate")]
    print(json.dumps({"pair": pair["pair"], "score": len(words[0] - words[1])}), flush=True)
"""


def missing(pairs):
    return [len({*a.split()} - {*b.split()}) for a, b in pairs]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder of reports, a judge, and an oracle.toml that names it twice."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORACLE_PROJECT", raising=False)
    write(tmp_path / "test.csv", REPORTS)
    write(tmp_path / "model.csv", WRITTEN)
    (tmp_path / "judge.py").write_text(SCRIPT, encoding="utf-8")
    entry = f'command = "{sys.executable} judge.py"\ndirection = "lower"\nbest = 0\n'
    (tmp_path / "oracle.toml").write_text(
        f'[judges.missing]\n{entry}[judges.kept]\n{entry}version = "2"\nkeep = "kept"\nseconds-per-pair = 60\n',
        encoding="utf-8",
    )
    return tmp_path


def column(text, name):
    return [float(row[name]) for row in csv.DictReader(text.splitlines())]


def test_a_judge_is_asked_where_its_name_is_given(folder, oracle):
    assert oracle("score", "test.csv", "model.csv", "-m", "bleu", "--format", "csv")[0] == 0
    assert oracle("build-index", "test.csv", "-m", "bleu", "--out", "INDEX", "--quiet")[0] == 0
    assert oracle("rerank", "INDEX", "test.csv", "-m", "bleu", "--pool", "bleu:2")[0] == 2
    assert not (folder / "log").exists()
    code, out, err = oracle("score", "test.csv", "model.csv", "-m", "bleu,missing", "--format", "csv")
    assert code == 0, err
    assert "missing: 3 distinct pairs to judge\n" in err
    found = mo.score(REPORTS, WRITTEN, ["bleu", mo.judge(missing, direction="lower", best=0)])
    for name in found.metrics:
        assert column(out, name) == found.values(name).tolist()
    assert (folder / "log").read_text() == "asked "


def test_a_judge_runs_in_the_folder_of_its_file(folder, oracle, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    words = ("score", folder / "test.csv", folder / "model.csv", "-m", "kept", "--format", "csv")
    code, out, err = oracle(*words, "--project", folder / "oracle.toml")
    assert code == 0, err
    assert "kept: 3 distinct pairs to judge; about 3.0 min\n" in err
    assert column(out, "kept") == missing(zip(REPORTS.values(), WRITTEN.values(), strict=True))
    monkeypatch.setenv("ORACLE_PROJECT", str(folder / "oracle.toml"))
    code, again, err = oracle(*words)
    assert (code, again) == (0, out)
    assert "kept: 0 distinct pairs to judge, and 3 that are kept; about 0 s\n" in err
    judges = mo.project(folder / "oracle.toml").judges
    found = mo.score(REPORTS, WRITTEN, [judges["missing"], judges["kept"]])
    assert found.values("missing").tolist() == found.values("kept").tolist() == column(out, "kept")
    assert found.signature["metrics"]["kept"]["version"] == "2"
    assert (folder / "log").read_text() == "asked asked "
    assert (folder / "kept").is_dir()


def test_commands_take_a_judge_by_its_name(folder, oracle):
    """Each writes what its function gives for the judge as Python describes it."""
    judge = mo.judge(missing, name="missing", direction="lower", best=0)
    index = mo.build_index(REPORTS, "INDEX", metrics="bleu")
    samples = {study: [text, "edema"] for study, text in WRITTEN.items()}
    (folder / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
    cases = [
        (("best-of", "samples.json", "test.csv", "-m", "missing"), mo.best_of(samples, REPORTS, judge)),
        (("rerank", "INDEX", "test.csv", "-m", "missing", "--pool", "bleu:2"),
         mo.rerank(index, REPORTS, judge, pool="bleu:2")),
        (("baseline", "expectation", "INDEX", "test.csv", "-m", "missing,bleu", "--draws", "3"),
         mo.expectation(index, REPORTS, [judge, "bleu"], draws=3)),
    ]  # fmt: skip
    for words, expected in cases:
        code, _, err = oracle(*words, "--out", "found.jsonl")
        assert code == 0, err
        expected.write("expected.jsonl")
        assert (folder / "found.jsonl").read_text() == (folder / "expected.jsonl").read_text()
    code, _, err = oracle("consensus", "samples.json", "-m", "missing,bleu", "--out", "chosen.csv")
    assert code == 0, err
    paths = mo.consensus(samples, ["bleu", judge]).write(folder / "again.csv")
    assert [path.name for path in paths] == ["again-bleu-2.csv", "again-missing.csv"]
    for path in paths:
        assert (folder / path.name.replace("again", "chosen")).read_text() == path.read_text()


def test_a_study_says_which_judges_it_had(folder, oracle):
    mo.build_index(REPORTS, "INDEX", metrics="bleu")
    words = ("study", "INDEX", "test.csv", "model.csv", "-m", "bleu,kept,missing", "--pool", "bleu:2", "--out", "study")
    code, out, err = oracle(*words)
    assert code == 0, err
    assert "missing of a pool" in out
    assert "kept of a pool" in out
    asked, of_study = mo.project().judges, mo.project("study/oracle.toml").judges
    assert [*of_study] == ["kept", "missing"]
    for name, judge in of_study.items():
        *program, file = judge.command
        assert (program, judge.direction, judge.best) == ([*asked[name].command[:-1]], "lower", 0)
        assert (judge.folder / file).resolve() == folder / asked[name].command[-1]  # it is found from there
        assert judge.version == asked[name].version
    assert of_study["kept"].keep.resolve() == folder / "kept"
    code, _, err = oracle("report", "study", "--out", "page.html")
    assert code == 0, err


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ('[judges.x]\ncommand = "true"\n', r'line 1: direction must be given for a judge whose name is not that of a '
         r'known tool; got none for \'x\'\. Add direction = "higher" or direction = "lower"\.$'),
        ('[judges.x]\ncommand = "true"\ndirecton = "higher"\n', r"line 3: directon is not known\. Did you mean direct"),
        ('[judges.x]\ncommand = "true"\nbatch = 3\n', r"line 3: batch is not known\. Known are command, files, direct"),
        ('[judges.x]\nfile = "x.csv"\n', r"line 2: file is not known\. Did you mean files\?$"),
        ('[judge.x]\ncommand = "true"\n', r"line 1: judge is not known\. Did you mean judges\?$"),
        ('judges = "x"\n', r"line 1: judges must be a table \[judges\.NAME\]; got str\. Write \[judges\.NAME\]\.$"),
        ('[judges.x]\ncommand = 3\n', r"line 2: command must be text in quotes; got 3\. Write it so\.$"),
        ('[judges.x]\nfiles = [3]\n', r"line 2: files must be text in quotes; got a list of int\. Write it so\.$"),
        ('[judges.x]\ndirection = "up"\n', r"line 2: direction must be one of higher, lower; got 'up'\. Choose one\.$"),
        ('[judges.x]\nbest = "1"\n', r"line 2: best must be a number; got '1'\. Write it so\.$"),
        ('[judges.x]\nmost = 0\n', r"line 2: most must be an int of at least 1; got 0\. Choose another number\.$"),
        ('[judges.x]\nmost = 1.5\n', r"line 2: most must be a whole number; got 1\.5\. Write it so\.$"),
        ('[judges.x]\nseconds-per-pair = 0\n', r"line 2: seconds-per-pair must be a number above 0; got 0\. Choose an"),
        ('[judges.x]\nseconds_per_pair = 1\n', r"line 2: seconds_per_pair is not known\. Did you mean seconds-per-pai"),
        ('[judges.x]\ndirection = "lower"\ncommand = " "\n', r"line 3: command must name a program, with each quote c"),
        ('[judges.x]\ndirection = "lower"\ntimeout = 3\n', r"line 3: timeout must be left out for a judge that is no"),
        ('[judges.x]\ncommand = "true"\nfiles = "x.csv"\n', r"line 1: x: give command or files, and not both\. A comm"),
        ('[judges.green_score]\ncommand = "true"\ndirection = "lower"\n', r"line 3: direction must be that of the kno"),
        ('[judges.bleu]\ncommand = "true"\ndirection = "higher"\n', r"line 1: name must be printable, without a comma, "
         r"and that of no metric and no column of this tool; got 'bleu'\. Choose another\.$"),
        ('[judges."a,b"]\ncommand = "true"\n', r"line 1: the name must have no blank and none of .*; got 'a,b'\. Choo"),
    ],
)  # fmt: skip
def test_entries_that_describe_no_judge_are_one_line(folder, fails, entry, line):
    (folder / "oracle.toml").write_text(entry, encoding="utf-8")
    fails("score", "test.csv", "model.csv", "-m", "bleu", match=rf"score: oracle\.toml, {line}")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("score test.csv model.csv -m bleu,mising", r"score: --metrics must be metrics, or judges that oracle\.toml "
         r"names; got 'mising'\. Did you mean 'missing'\?$"),
        ("score test.csv model.csv -m bleu,zzz", r"score: --metric must be one of those that oracle metrics lists; "
         r"got 'zzz'\. Choose one \(docs/coming-from\.md has other names\), or name a judge in oracle\.toml\.$"),
        ("score test.csv model.csv -m missing,missing", r"score: --metrics must have each judge once; got 'missing'\."),
        ("rerank INDEX test.csv -m missing,kept --pool all", r"rerank: --metrics? must have one judge; got 2\. Make o"),
        ("build-index test.csv -m bleu,missing --out new", r"build-index: --metrics must be names of metrics; got a j"),
        ("retrieve INDEX test.csv -m missing", r"retrieve: --metric must be one of those that oracle metrics lists; g"),
        ("mine INDEX -m missing --out mined.parquet", r"mine: --metric must be one of those that oracle metrics lists"),
    ],
)  # fmt: skip
def test_names_that_a_command_does_not_take(folder, fails, words, line):
    mo.build_index(REPORTS, "INDEX", metrics="bleu")
    fails(*words.split(), match=line)
    assert not (folder / "log").exists()
