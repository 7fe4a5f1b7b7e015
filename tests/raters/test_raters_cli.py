import csv
import json
import re

import pytest


def test_align(oracle, rated, tmp_path):
    given = ["align", rated.long, "--scores", rated.scores, "--seed", 3]
    code, out, err = oracle(*given, "--metric", "bleu", "--metric", "crepe", "--resamples", 100)
    assert (code, err) == (0, "")
    records = [json.loads(line) for line in out.splitlines()]
    by_rater, among, differences = 2 * 2 * 7 * 4, 2 * 6, 4 * 2
    assert len(records) == by_rater + among + differences
    assert list(records[0]) == [
        "metric", "versus", "errors", "rater", "statistic", "value", "low", "high", "bca_low", "bca_high", "p_value",
        "p_adjusted", "degenerate",
    ]  # fmt: skip
    assert {record["versus"] for record in records} == {None, "crepe"}

    path, plot = tmp_path / "t.md", tmp_path / "p.png"
    code, out, err = oracle(
        *given,
        "--direction",
        "poor=higher",
        "--samples",
        rated.samples,
        "--without-identical",
        "--out",
        path,
        "--plot",
        plot,
    )
    assert (code, out) == (0, "")
    summary = "189 pairs of 50 studies, 6 raters: bleu, poor, RadCliQ-v1, crepe"
    assert err == f"{plot}: {summary}\n{path}: {summary}\n"
    assert "189 pairs of 50 studies (11 identical pairs left out)" in path.read_text()
    assert plot.stat().st_size > 10_000


def test_failure_modes(oracle, rated, tmp_path):
    code, out, err = oracle("failure-modes", rated.green)
    assert (code, err) == (0, "")
    records = [json.loads(line) for line in out.splitlines()]
    assert len(records) == 144
    path = tmp_path / "t.csv"
    given = ["failure-modes", rated.long, "--category", 1, "--rate", 0.05, "--out", path]
    code, out, err = oracle(*given, "--plot", tmp_path / "p.svg")
    assert (code, out) == (0, "")
    drawn, written = err.splitlines()
    for line, file in ((drawn, tmp_path / "p.svg"), (written, path)):
        assert line.startswith(f"{file}: 24 tests between 4 candidate types on 50 studies: ")
    with path.open(newline="") as file:
        assert {row["direction"] for row in csv.DictReader(file)} == {">"}
    assert json.loads((tmp_path / "t.csv.signature.json").read_text())["categories"] == ["1"]


def test_on_a_terminal(oracle, rated, monkeypatch):
    monkeypatch.setenv("COLUMNS", "170")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    code, out, err = oracle("align", rated.long, "--scores", rated.scores, "--metric", "bleu", "--resamples", 100)
    assert code == 0
    out = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert re.search(r"Rater 0 +Rater 1 .* Rater 5 +raters", out)  # "Mean of" is the line above
    assert "signature: align|bleu|ratings:" in out
    assert "100 resamples of studies, seed 0" in " ".join(out.split())
    assert re.fullmatch(r"long\.csv \([0-9a-f]{12}\); scores\.csv \([0-9a-f]{12}\); metric-oracle [\w.+]+\n", err)
    code, out, err = oracle("failure-modes", rated.long)
    assert "Error 1: false prediction of finding" in out
    assert "BLEU > RadGraph" in out
    assert out.count("p-value") == 1
    code, out, _ = oracle("failure-modes", rated.long, "--category", 2)
    assert out.count("p-value") == 2


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (
            ["align", "LONG", "--scores", "SCORES", "--out", "t.doc"],
            r"align: --out must end with \.md, \.tex, \.csv, \.parque",
        ),
        (
            ["align", "LONG", "--scores", "SCORES", "--out", "LONG"],
            r"align: --out must be another file than the inputs; got",
        ),
        (
            ["align", "LONG", "--scores", "SCORES", "--plot", "none/p.png"],
            r"align: --plot must be in an existing folder; got",
        ),
        (
            ["align", "SCORES", "--scores", "SCORES"],
            r"align: ratings must have a column for each of pair or study,",
        ),
        (
            ["align", "LONG", "--scores", "SCORES"],
            r"align: --direction must be given for columns whose names do not tell it;",
        ),
        (
            ["align", "LONG", "--scores", "SCORES", "--direction", "poor"],
            r"align: --direction must be NAME=higher\|lower; got 'poor'\. Write both parts",
        ),
        (["align", "LONG", "--scores", "LONG"], r"align: an id occurs more than once in the pairs of .*: '0/bleu'"),
        (
            ["align", "LONG", "--scores", "SCORES", "--direction", "poor=lower", "--without-identical"],
            r"align: --samples must be given to find identical",
        ),
        (
            ["failure-modes", "SCORES"],
            r"failure-modes: ratings must have a column for each of pair or study, rater, categ",
        ),
        (
            ["failure-modes", "LONG", "--plot", "p.bmp"],
            r"failure-modes: --plot must end with \.png, \.svg or \.pdf; got p\.",
        ),
        (
            ["failure-modes", "none.csv"],
            r"failure-modes: there is no file none\.csv\. Check the name\.",
        ),
    ],
)
def test_errors_are_one_line(oracle, rated, tmp_path, monkeypatch, arguments, match):
    monkeypatch.chdir(tmp_path)
    before = rated.long.read_bytes()
    files = {"LONG": rated.long, "SCORES": rated.scores}
    code, out, err = oracle(*(files.get(argument, argument) for argument in arguments))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.match("error: " + match, err), err
    assert list(tmp_path.iterdir()) == []
    assert rated.long.read_bytes() == before


@pytest.mark.parametrize("command", ["align", "failure-modes"])
def test_help_teaches_by_example(oracle, command):
    code, out, _ = oracle(command, "--help")
    assert code == 0
    assert f"oracle {command} 6_valid_raters_per_rater_error_categories.csv" in " ".join(out.split())
