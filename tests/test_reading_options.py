"""Every command that reads reports can be told how: its own column names, in one call, for one file or several."""

import json

import pytest

import metric_oracle as mo
from support import assert_refused, write

TEXTS = {f"a{i}": f"Finding {i} of the left lung is stable." for i in range(6)}
MADE = {study: f"A finding of the left lung {study}." for study in TEXTS}


@pytest.fixture
def own(tmp_path):
    """Return a folder of files whose columns have no usual names, three columns each, and an index of one."""
    for name, texts, header in (
        ("refs", TEXTS, ("nr", "typed", "n")),
        ("a", MADE, ("key", "made", "n")),
        ("b", dict(reversed(MADE.items())), ("key", "made", "n")),
        ("c", MADE, ("key", "drawn", "n")),
    ):
        write(tmp_path / f"{name}.csv", [(*row, 1) for row in texts.items()], header)
    mo.build_index(mo.reports(tmp_path / "refs.csv", mo.Read(id_column="nr", text_column="typed")), tmp_path / "I")
    write(tmp_path / "good.csv", TEXTS)
    write(tmp_path / "made.csv", MADE)
    return tmp_path


REFERENCES = ("--id-column", "nr", "--text-column", "typed")
MADE_BY = {"id_column": "key", "text_column": "made"}


def test_each_file_is_told_once(own, oracle, named):
    models = [named(name.upper(), own / f"{name}.csv", **MADE_BY) for name in "ab"]
    models.append(named("C", own / "c.csv", id_column="key", text_column="drawn"))
    words = ("study", own / "I", own / "refs.csv", *models, *REFERENCES, "-m", "rouge-l")
    code, out, _ = oracle(*words)
    means = {r["system"]: r["mean"] for r in map(json.loads, out.splitlines()) if not r["versus"]}
    wanted = mo.score(own / "good.csv", own / "made.csv", "rouge-l").mean()["rouge-l"]
    assert (code, means["A"], means["B"], means["C"]) == (0, wanted, wanted, wanted)
    named("humans", own / "refs.csv", id_column="nr", text_column="typed")
    assert oracle("study", own / "I", "humans", *models, "-m", "rouge-l")[1] == out


def test_overlap_and_surveys_take_any_columns(own, oracle, named):
    written, humans = (
        named("A", own / "a.csv", **MADE_BY),
        named("H", own / "refs.csv", id_column="nr", text_column="typed"),
    )
    code, out, _ = oracle("overlap", own / "I", written, "--references", humans)
    assert code == 0
    assert out == oracle("overlap", own / "I", f"A={own / 'made.csv'}", "--references", own / "good.csv")[1]
    survey = ("--raters", "ann", "--studies", 3)
    code, *_ = oracle("survey", "create", humans, "--candidates", f"A={written}", *survey, "--out", own / "S")
    assert code == 0
    oracle("survey", "create", own / "good.csv", "--candidates", f"A={own / 'made.csv'}", *survey, "--out", own / "W")
    shown, wanted = (json.loads((own / name / "survey.json").read_text())["studies"] for name in "SW")
    assert shown == wanted


@pytest.mark.parametrize(
    "command",
    [
        "score {refs} {a}",
        "study {I} {refs} A={a}",
        "overlap {I} {a} --references {refs}",
        "survey create {refs} --candidates A={a} --raters ann --out {S}",
        "best-of {a} {refs}",
    ],
)
def test_one_message_has_the_lines_to_paste(own, oracle, command, monkeypatch):
    """One failing call, then a line for each file, as the message has it, and the names in the places of the files."""
    monkeypatch.chdir(own)
    files = {"refs": "refs.csv", "a": "a.csv", "I": "I", "S": "S"}
    match = (
        r".*refs\.csv has no .*, and a\.csv has no .*\. Say how they are read: "
        r"oracle reports NAME .*\.csv --id-column NAME --text-column NAME; oracle reports NAME .*\.csv "
        r"--id-column NAME --text-column NAME; columns of .*'key'"
    )
    words = command.format(**files).split()
    assert_refused(oracle(*words), match, notes="(reports|test reports|references): ")
    assert oracle("reports", "H", "refs.csv", "--id-column", "nr", "--text-column", "typed")[0] == 0
    assert oracle("reports", "A", "a.csv", "--id-column", "key", "--text-column", "made")[0] == 0
    more = {"survey": ("--studies", 3), "best-of": ("-m", "rouge-l"), "study": ("-m", "rouge-l")}
    words = command.format(**{**files, "refs": "H", "a": "A"}).split()
    assert oracle(*words, *more.get(words[0], ()))[0] == 0


def test_names_of_models_are_checked(own, oracle):
    match = r"(overlap|study): two files have the name 'a'\. Write NAME=FILE with another name\."
    both = (own / "a.csv", f"a={own / 'b.csv'}")
    assert_refused(oracle("overlap", own / "I", *both), match)
    assert_refused(oracle("study", own / "I", own / "good.csv", *both), match)
