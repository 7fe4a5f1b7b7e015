"""The commands of a survey; what they call is tested in survey/ and web/."""

import json
import sys

import pytest

from metric_oracle.survey.folder import open_survey
from support import write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "test.csv", {f"s{i}": f"Effusion {i}." for i in range(4)})
    for name in ("one", "two"):
        write(tmp_path / f"{name}.csv", {f"s{i}": f"{name} effusion {i}." for i in range(4)})
    return tmp_path


CREATE = ("survey", "create", "test.csv", "--candidates", "one=one.csv", "--candidates", "two=two.csv", "--studies", 4)


def test_from_creation_to_export(oracle, folder, monkeypatch):
    code, out, err = oracle(*CREATE, "--raters", "anna,ben", "--out", "SURVEY", "--seed", 3)
    assert (code, out) == (0, "")
    assert err.startswith("SURVEY: 4 studies, 8 candidates, 6 categories, 96 cells a rater; raters: anna, ben\n")
    assert err.endswith("Next: oracle survey serve SURVEY\n")
    survey = open_survey("SURVEY")
    for place in range(4):
        for i in range(2):
            asked = {"id": f"save-{place}-{i}", "study": place, "candidate": i, "counts": [[i, 0]] * 6, "base": 0}
            survey.log("anna").save({**asked, "survey": survey.fingerprint})
    code, out, err = oracle("survey", "status", "SURVEY")
    assert (code, err) == (0, "")
    assert [json.loads(line)["open_cells"] for line in out.splitlines()] == [0, 96]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shown = oracle("survey", "status", "SURVEY")[1]
    assert "4 of 4" in shown
    assert "0 of 4" in shown
    code, out, err = oracle("survey", "export", "SURVEY", "--out", "EXPORT", "--leave-out", "ben=on leave")
    assert code == 0
    assert err == "ben is left out: on leave.\nEXPORT: 8 pairs of 4 studies, 1 raters: anna\n"
    assert out.splitlines()[:2] == [
        "oracle align EXPORT/ratings.csv --scores EXPORT/scores.csv", "oracle failure-modes EXPORT/ratings.csv"
    ]  # fmt: skip
    assert (folder / "EXPORT/scores.csv").is_file()
    code, _, err = oracle("failure-modes", "EXPORT/ratings.csv", "--out", "t.csv")
    assert code == 0, err


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((*CREATE, "--raters", "a", "--out", "."), r"survey create: --out must be a new folder; got"),
        (
            (*CREATE[:3], "--candidates", "one", "--raters", "a", "--out", "S"),
            r"survey create: --candidates must be NAME=F",
        ),
        (
            (*CREATE, "--raters", "a b", "--out", "S"),
            r"survey create: --raters must have different names of letters, digits, - and _",
        ),
        (
            (*CREATE, "--raters", "a", "--stratify", "kinds.csv", "--out", "S"),
            r"survey create: there is no file kinds\.csv\. Check",
        ),
        (
            ("survey", "status", "none"),
            r"survey status: .*survey\.json is missing or not readable",
        ),
        (("survey", "export", ".", "--out", "E"), r"survey export: .*survey\.json is missing or not readable"),
        (("survey", "serve", "none"), r"survey serve: none/survey\.json is missing or not readable"),
    ],
)
def test_errors_are_one_line(fails, folder, arguments, match):
    fails(*arguments, match=match)


def test_strata_of_a_file(oracle, folder):
    write(folder / "kinds.csv", [(f"s{i}", "ab"[i % 2]) for i in range(4)], ("id", "kind"))
    line = [*CREATE[:-1], 2, "--raters", "anna", "--stratify", "kinds.csv", "--out", "S"]
    assert oracle(*line)[0] == 0
    studies = json.loads((folder / "S/key.json").read_text())["studies"]
    assert sorted(study["stratum"] for study in studies) == ["a", "b"]


def test_pages_want_their_libraries(fails, folder, monkeypatch):
    monkeypatch.setattr("metric_oracle.commands.inputs.find_spec", lambda name: None if name == "jinja2" else sys)
    match = r"survey serve: a page needs the Python package jinja2, which is not installed\. Run: pip install "
    fails("survey", "serve", "SURVEY", match=match)
