"""oracle.toml: what an entry says, names in commands, and files that are wrong."""

import csv
import inspect
import json
import os

import pytest

import metric_oracle as mo
from metric_oracle.base.declarations import declarations
from metric_oracle.corpora.read import Read
from metric_oracle.projects import keys_of, write_entry
from metric_oracle.sources.keywords import OF_ENCODER, Sources
from support import write

TEXTS = {"a": "No acute process.", "b": "Small left effusion.", "c": "Stable cardiomegaly."}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder of two files with unusual columns and an oracle.toml that names them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORACLE_PROJECT", raising=False)
    header = ("Exam No.", "what was said", "more")
    rows = [(name, text, "x") for name, text in TEXTS.items()]
    write(tmp_path / "human.csv", rows, header)
    write(tmp_path / "model.csv", [(name, text.replace("No", "an"), "y") for name, text, _ in rows], header)
    (tmp_path / "oracle.toml").write_text(
        "# ours\n"
        "[reports.test]\n"
        'file = "human.csv"  # of the hospital\n'
        'id-column = "Exam No."\ntext-column = "what was said"\n\n'
        "[reports.model]\n"
        'title = "Model (ours)"\nfile = "model.csv"\nid-column = "Exam No."\ntext-column = "what was said"\n',
        encoding="utf-8",
    )
    return tmp_path


def test_a_name_is_its_file_with_its_options(folder, oracle):
    code, out, _ = oracle("score", "test", "model", "-m", "rouge-l", "--format", "csv")
    assert code == 0
    found = {row["query_id"]: float(row["rouge-l"]) for row in csv.DictReader(out.splitlines())}
    named = {"id_column": "Exam No.", "text_column": "what was said"}
    sides = [mo.reports(file, mo.Read(**named)) for file in ("human.csv", "model.csv")]
    in_python = mo.score(*sides, "rouge-l")
    assert found == dict(zip(in_python.table["query_id"].to_pylist(), in_python.values("rouge-l"), strict=True))
    sets = mo.project("oracle.toml")
    assert [*sets] == ["test", "model"]
    assert mo.score(sets["test"], sets["model"], "rouge-l").table.equals(in_python.table)


def test_a_model_is_called_by_its_title_its_name_or_the_stem_of_its_file(folder, oracle):
    assert oracle("build-index", "test", "-m", "rouge-l", "--out", "INDEX", "--quiet")[0] == 0
    write(folder / "third.csv", dict.fromkeys(TEXTS, "An effusion."))
    words = ("study", "INDEX", "test", "model", "Mine=model", "third.csv", "-m", "rouge-l", "--format", "jsonl")
    code, out, err = oracle(*words)
    assert code == 0, err
    systems = dict.fromkeys(json.loads(line)["system"] for line in out.splitlines())
    assert [*systems][:3] == ["Model (ours)", "Mine", "third"]


def test_reports_writes_an_entry_and_keeps_the_rest_of_the_file(folder, oracle):
    before = (folder / "oracle.toml").read_text(encoding="utf-8")
    words = ("reports", "third", "model.csv", "--id-column", "Exam No.", "--text-column", "what was said")
    code, out, _ = oracle(*words, "--title", "Third", "--dry-run", "--format", "jsonl")
    assert (code, json.loads(out)["reports"]) == (0, 3)
    assert (folder / "oracle.toml").read_text(encoding="utf-8") == before
    assert oracle(*words, "--title", "Third")[0] == 0
    after = (folder / "oracle.toml").read_text(encoding="utf-8")
    assert after.startswith(before.rstrip("\n"))
    assert mo.project("oracle.toml")["third"].title == "Third"
    assert oracle("reports", "third", "human.csv", *words[3:])[0] == 0  # replaced
    again = (folder / "oracle.toml").read_text(encoding="utf-8")
    assert again.startswith(before.rstrip("\n"))
    assert again.count("[reports.third]") == 1
    assert "Third" not in again


def test_reports_lists_all_and_shows_one(folder, oracle):
    _, out, _ = oracle("reports", "--format", "jsonl")
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["test", "model"]
    _, out, _ = oracle("reports", "model", "--format", "table")
    assert out.splitlines()[0].rstrip() == "model: Model (ours)"
    assert "Exam No., what was said, more" in out


def test_paths_are_relative_to_the_file(folder, oracle, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    words = ("score", "test", "model", "-m", "rouge-l", "--format", "jsonl")
    by_option = oracle(*words, "--project", folder / "oracle.toml")
    monkeypatch.setenv("ORACLE_PROJECT", str(folder / "oracle.toml"))
    assert by_option == oracle(*words)
    assert by_option[0] == 0
    assert oracle("reports", "new", folder / "model.csv", "--text-column", "what was said")[0] == 0
    words = ("reports", "new", folder / "model.csv", "--text-column", "what was said", "--radgraph", folder / "g.json")
    assert oracle(*words, "--dry-run")[0] == 2  # there is no such file
    assert 'file = "model.csv"' in (folder / "oracle.toml").read_text(encoding="utf-8")
    assert not os.path.exists("oracle.toml")


def test_a_study_knows_what_it_was_made_of(folder, oracle, fails, monkeypatch):
    assert oracle("build-index", "test", "-m", "rouge-l", "--out", "INDEX", "--quiet")[0] == 0
    assert oracle("study", "INDEX", "test", "model", "-m", "rouge-l", "--out", "study", "--quiet")[0] == 0
    named = ("--id-column", "Exam No.", "--text-column", "what was said")
    files = sorted(str(path) for path in (folder / "study").glob("*.parquet"))
    code, _, err = oracle("report", *files, "--queries", "human.csv", *named, "--index", "INDEX", "--out", "a.html")
    assert code == 0, err
    code, _, err = oracle("report", "study", "--out", "b.html")
    assert code == 0, err
    assert "changed" not in err
    assert (folder / "a.html").read_bytes() == (folder / "b.html").read_bytes()
    sets = mo.project("study/oracle.toml")
    assert [one.title for one in sets.values()] == ["tests", "Model (ours)"]
    assert mo.score(*sets.values(), "rouge-l").table.equals(mo.score(*mo.project().values(), "rouge-l").table)
    with (folder / "model.csv").open("a", encoding="utf-8") as file:
        file.write("z,more,x\n")
    monkeypatch.chdir(folder.parent)  # paths are from the study's folder
    _, _, err = oracle("report", folder / "study", "--out", folder / "c.html")
    assert f"changed or missing since the study was made: {folder / 'study' / '../model.csv'}" in err


def test_options_hold_for_files_without_an_entry(folder, oracle):
    named = ("--id-column", "Exam No.", "--text-column", "what was said")
    words = ("-m", "rouge-l", "--format", "jsonl")
    by_name = oracle("score", "test", "model", *words)
    for sides in (("human.csv", "model.csv"), ("test", "model.csv"), ("human.csv", "model")):
        assert oracle("score", *sides, *words, *named)[:2] == by_name[:2]


def test_options_without_a_file_that_they_hold_for(folder, fails):
    match = r"score: --id-column must be given with a file that has no entry; got names of oracle.toml alone\."
    fails("score", "test", "model", "--id-column", "more", match=match)
    match = (
        r"build-index: --radgraph, --device must be given with a file that has no entry; got names of oracle.toml "
        r"alone\. Leave them out, or change the entry: oracle reports NAME FILE\.$"
    )
    build = ("build-index", "test", "-m", "radgraph", "--radgraph", "graphs.json", "--device", "cpu", "--out", "I")
    fails(*build, match=match)


def test_a_name_that_is_also_a_file(folder, fails, oracle):
    (folder / "test").write_text("study_id,report\na,b c\n", encoding="utf-8")
    match = (
        r"score: references must be a name or a file; got test, which is both\. Write reports\.test for the name in "
        r"oracle\.toml, or \./test for the file\.$"
    )
    fails("score", "test", "model", "-m", "rouge-l", match=match)
    assert oracle("score", "reports.test", "model", "-m", "rouge-l")[0] == 0


def test_entries_take_the_parameters_of_reports():
    assert {*keys_of("reports")} == {*declarations(Read), *declarations(Sources)} - {"encoder", *OF_ENCODER}
    assert {*keys_of("encoders")} == {*OF_ENCODER}
    of_judge = inspect.signature(mo.judge).parameters.keys()
    assert {*keys_of("judges")} == of_judge - {"name", "batch"}  # the name is that of the entry, no entry is a function


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[reports.a\n", r"line 1: not TOML \(.*\)\. Mend this line\."),
        ('[reports.a]\nfile = "x"\n[reports.a]\nfile = "y"\n', r"line 3: not TOML \(.*\)\. Mend this line\."),
        ('[reports.a]\nfile = "x"\nid_column = "y"\n', r"line 3: id_column is not known\. Did you mean id-column\?"),
        ('[reports.a]\nfile = "x"\nzzzz = 1\n', r"line 3: zzzz is not known\. Known are file, title, .*\."),
        ('[report.a]\nfile = "x"\n', r"line 1: report is not known\. Did you mean reports\?"),
        ('reports = "x"\n', r"line 1: reports must be a table \[reports\.NAME\]; got str\. Write \[reports\.NAME\]\."),
        ('[reports]\nfile = "x"\n', r"line 2: file must be a table \[reports\.NAME\]; got str\."),
        ("[reports.a]\nfile = 3\n", r"line 2: file must be text in quotes; got 3\. Write it so\."),
        ('[reports.a]\nfile = ["x"]\n', r"line 2: file must be text in quotes; got a list of str\."),
        ('[reports.a]\ntitle = "x"\n', r'line 1: file must be given; got none\. Add file = "\.\.\."\.'),
        ('[reports.a]\nfile = ""\n', r"line 2: file must be given; got none\."),
        ('[reports.a]\nfile = "x"\nsection = "lungs"\n', r"line 3: section must be one of impression, .*; got 'lungs'"),
        ('[reports.a]\nfile = "x"\nuncertain = "no"\n', r"line 3: uncertain must be one of positive, .*; got 'no'"),
        ('[reports.a]\nfile = "x"\nafter-impression = "yes"\n', r"line 3: after-impression must be true or false; got"),
        ('[reports.a]\nfile = "x"\nseed = -1\n', r"line 3: seed must be an int of at least 0; got -1"),
        ('[reports.a]\nfile = "x"\nseed = 1.5\n', r"line 3: seed must be a whole number; got 1\.5"),
        ('[reports."a b"]\nfile = "x"\n', r"line 1: the name must have no blank .*; got 'a b'\. Choose another\."),
        ('[reports."a/b"]\nfile = "x"\n', r"line 1: the name must have no blank"),
        ("[encoders.b]\nlayer = 2\n", r'line 1: model must be given; got none\. Add model = "\.\.\."\.'),
        ('[encoders.b]\nmodel = "m"\nlayer = "2"\n', r"line 3: layer must be a whole number; got '2'"),
        ('[encoders.b]\nmodel = "m"\nradgraph = "2"\n', r"line 3: radgraph is not known\."),
        ("x = " + "[" * 5000, r": not TOML|line 1: not TOML"),
    ],
)
def test_wrong_files_are_one_line_each(folder, fails, text, message):
    (folder / "oracle.toml").write_text(text, encoding="utf-8")
    fails("score", "human.csv", "model.csv", "-m", "rouge-l", match=rf"score: oracle\.toml(, )?{message}")


def test_files_that_are_no_text(folder, fails):
    path = folder / "oracle.toml"
    words = ("score", "human.csv", "model.csv", "-m", "rouge-l")
    path.write_bytes(b'[reports.a]\nfile = "\xff"\n')
    fails(*words, match=r"score: oracle\.toml, line 2: not UTF-8\. Save the file as UTF-8\.$")
    path.write_text("#" * (2**20 + 1), encoding="utf-8")
    fails(*words, match=r"score: oracle\.toml has more than 1 MiB\. Name the file that names your reports\.$")
    path.unlink()
    path.mkdir()
    match = r"score: --project must be a file such as oracle\.toml; got oracle\.toml, a folder\. Check the name\.$"
    fails(*words, match=match)
    fails(*words, "--project", "no.toml", match=r"score: --project must be .*; got no\.toml, no such file\. Check the")


def test_an_entry_that_is_not_used_is_not_opened(folder, oracle):
    with (folder / "oracle.toml").open("a", encoding="utf-8") as file:
        file.write('[reports.gone]\nfile = "gone.csv"\nradgraph = "gone.json"\n')
    assert oracle("score", "test", "model", "-m", "rouge-l")[0] == 0


def test_two_writers_of_one_file_leave_both_entries(folder):
    for name in ("x", "y"):
        write_entry(folder / "oracle.toml", name, {"file": f"{name}.csv"})
    assert [*mo.project("oracle.toml")] == ["test", "model", "x", "y"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "score human.csv model.csv --predicted-id-column exam --predicted-text-column hyp",
            "no such option --predicted-id-column. It is said once now: oracle reports NAME FILE --id-column exam "
            "--text-column hyp, and give the name in the place of the file.",
        ),
        (
            "study I human.csv --model A=a.csv --model-radgraph A=a.json --model-id-column exam",
            "no such option --model. It is said once now: oracle reports A FILE --radgraph a.json; oracle reports NAME "
            "FILE --id-column exam; give A=a.csv after the test reports, and give the name in the place of the file.",
        ),
        (
            "rerank I human.csv --judge judge.sh --name green --direction higher --best 1 --judge-version 2 --most 9",
            'no such option --judge. It is said once now: write command = "judge.sh", direction = "higher", best = 1, '
            'version = "2", most = 9 below [judges.green] in oracle.toml, and give -m METRIC,green.',
        ),
        (
            "score human.csv model.csv --judged a.csv --judged b.csv --keep kept --timeout 5 --seconds-per-pair 2",
            'no such option --judged. It is said once now: write files = ["a.csv", "b.csv"], keep = "kept", timeout = '
            "5, seconds-per-pair = 2 below [judges.NAME] in oracle.toml, and give -m METRIC,NAME.",
        ),
        (
            "score human.csv model.csv --crepe crepe --crepe-config config.json",
            "no such option --crepe-config. It is said once now: put the file beside the weights of CREPE.",
        ),
        (
            "retrieve I human.csv --layer 5 --bf16",
            "no such option --layer. It is said once now: write layer = 5, bf16 = true below [encoders.NAME] in "
            "oracle.toml.",
        ),
    ],
)
def test_former_options_name_what_to_type(folder, oracle, words, said):
    code, out, err = oracle(*words.split())
    command = words.split()[0]
    assert (code, out, err) == (2, "", f"error: oracle {command}: {said}\n")
