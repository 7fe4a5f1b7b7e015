"""Columns of other tools in tables and on pages: joined by id, their direction stated and never guessed."""

import csv
import io
import json

import numpy as np
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.explorer.cases import read_cases
from metric_oracle.scores.scoring import score
from metric_oracle.tables.compare import compare
from metric_oracle.tables.foreign import read_foreign

REPORTS = {f"s{50000000 + i}": f"report {i % 5} of {i}" for i in range(30)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write scores of two systems, and of each a table of another tool in another order."""
    folder, rng = tmp_path_factory.mktemp("foreign"), np.random.default_rng(2)
    rows = [f"{key},{text}" for key, text in REPORTS.items()]
    (folder / "test.csv").write_text("study_id,report\n" + "\n".join(rows))
    values = {}
    for name, best in (("a", 0.9), ("b", 0.5)):
        rows = [f"{key},report {i % 4} here" for i, key in enumerate(REPORTS)]
        (folder / f"{name}.csv").write_text("study_id,report\n" + "\n".join(rows))
        scores = score(folder / "test.csv", folder / f"{name}.csv", ["bleu", "rouge-l"], system=name)
        scores.write(folder / f"{name}.parquet")
        green = np.round(best * rng.random(30), 2)
        values[name] = green
        lines = ["Unnamed: 0,study_id,green_score,finerad,note,age"]
        lines += [f"{i},{key},{green[i]},{round(5 - green[i], 2)},words,{40 + i}" for i, key in enumerate(REPORTS)]
        order = rng.permutation(30) + 1
        (folder / f"{name}_green.csv").write_text("\n".join([lines[0], *(lines[i] for i in order)]))
    return folder, values


LOWER = {"finerad": "lower"}


def systems(folder, directions=LOWER):
    return {
        name: [folder / f"{name}.parquet", read_foreign(name, folder / f"{name}_green.csv", directions)]
        for name in "ab"
    }


def test_means_and_intervals_of_another_tool(files):
    folder, values = files
    scores = read_foreign("a", folder / "a_green.csv", LOWER)
    assert scores.mean()["green_score"] == pytest.approx(values["a"].mean(), abs=1e-12)
    assert list(scores.interval(resamples=200)) == ["green_score", "finerad"]
    assert "green_score" in repr(scores)


def test_a_table_with_columns_of_another_tool(files):
    folder, values = files
    found = compare(systems(folder), paired=[("a", "b")], resamples=200)
    assert [column.metric for column in found.columns] == ["bleu-2", "rouge-l", "green_score", "finerad"]
    assert [column.higher_is_better for column in found.columns] == [True, True, True, False]
    for name in "ab":
        assert found.cells[name, "green_score"].mean == pytest.approx(values[name].mean(), abs=1e-12)
        assert found.cells[name, "finerad"].mean == pytest.approx(np.round(5 - values[name], 2).mean(), abs=1e-12)
    assert found.cells["a", "green_score"].best
    assert found.cells["a", "finerad"].best  # less is better
    assert [file["file"] for file in found.signature["foreign"]["b"]] == ["b_green.csv"]
    assert len(found.signature["foreign"]["a"][0]["sha256"]) == 64
    titles = found.tables()[0].columns
    assert titles[2:4] == ["green_score ↑", "finerad ↓"]
    # Direction unknown: not in the table.
    assert [c.metric for c in compare(systems(folder, {}), resamples=200).columns][2:] == ["green_score"]


def test_what_the_tool_could_not_score_is_unscorable(files, tmp_path):
    folder, _ = files
    rows = [*csv.reader(io.StringIO((folder / "a_green.csv").read_text()))]
    place = rows[0].index("green_score")
    rows[3][place], rows[9][place] = "", "nan"
    path = tmp_path / "a.csv"
    path.write_text("\n".join(map(",".join, rows)))
    given = systems(folder)
    given["a"][1] = read_foreign("a", path, LOWER)
    found = compare(given, resamples=200)
    assert found.cells["a", "green_score"].unscorable == 2
    assert next(c for c in found.columns if c.metric == "green_score").n == 28


def test_only_columns_of_another_tool(files):
    folder, values = files
    found = compare({name: read_foreign(name, folder / f"{name}_green.csv") for name in "ab"}, resamples=200)
    assert found.cells["b", "green_score"].mean == pytest.approx(values["b"].mean(), abs=1e-12)


def test_other_studies_are_refused(files, tmp_path):
    folder, _ = files
    path = tmp_path / "some.csv"
    path.write_text("\n".join((folder / "a_green.csv").read_text().split("\n")[:-1]))
    given = systems(folder)
    given["a"][1] = read_foreign("a", path, LOWER)
    with pytest.raises(InputError, match=r"^compare: the files of 'a' have different ids"):
        compare(given)


@pytest.mark.parametrize(
    ("content", "directions", "match"),
    [
        ("green_score\n1\n", {}, r".* has no column of ids, such as study_id; columns: 'green_score'"),
        ("id,x\na,1\n", {}, r".* has no column of numbers whose direction is known; columns: 'id', 'x'"
         r".*\. Add `directions=\{NAME: 'higher'\}`, or 'lower'\.$"),
        ("id,green\na,\n", {}, r".* has no column of numbers whose direction is known"),
        *(
            (
                f"id;green\na;0.5\nb;{cell}\n", {}, r"column 'green' must hold numbers such as 0\.25, and nothing "
                rf"where there is none; got {kind} in row 2 of .*f\.csv\. Write 0\.25 for 0,25 or 25%, and empty",
            )
            for cell, kind in (("word", "text"), ("0,25", "a decimal comma"), ("1.234,5", "a decimal comma"),
                               ("25 %", "a percent sign"), ("3/10", "a number with more behind it"), ("-", "text"))
        ),
        ("id,x\na,word\n", {"x": "higher"}, r"column 'x' must hold numbers .*; got text in row 1 of"),
        ("id,green\na,1\na,2\n", {}, r"an id occurs more than once in the ids of .*: 'a'"),
        ("id,green\na,1\n", {"green": "lower"}, r"directions must be higher or lower, and that of the metric if the "
         r"column has the name of a known one; got 'green'=lower, of which higher is better\. Correct it\.$"),
        ("id,x\na,1\n", {"x": "up"}, r"directions must be higher or lower, .*; got 'x'=up\. Correct it\.$"),
    ],
)  # fmt: skip
def test_refused(tmp_path, content, directions, match):
    (tmp_path / "f.csv").write_text(content)
    with pytest.raises(InputError, match=rf"^read_foreign: {match}"):
        read_foreign("x", tmp_path / "f.csv", directions)


def test_cells_without_content_are_unscorable(tmp_path):
    (tmp_path / "f.csv").write_text('id;green;note\na;0.5;word\nb;;word\nc;" ";1,5\nd;nan;\ne;N/A;\nf;1;\n')
    assert read_foreign("x", tmp_path / "f.csv").table["green"].to_pylist() == [0.5, None, None, None, None, 1.0]


def test_table_command(oracle, fails, files, tmp_path):
    folder, values = files
    out = tmp_path / "t.csv"
    given = ["table", *(f"{name}={folder}/{name}.parquet" for name in "ab")]
    foreign = [word for name in "ab" for word in ("--foreign", f"{name}={folder}/{name}_green.csv")]
    code, _, err = oracle(*given, *foreign, "--direction", "finerad=lower", "--resamples", 200, "--out", out)
    assert (code, err) == (0, f"{out}: 2 systems, 30 studies: bleu-2, rouge-l, green_score, finerad\n")
    with out.open(newline="") as file:
        means = {(r["system"], r["metric"]): (r["mean"], r["direction"]) for r in csv.DictReader(file)}
    assert float(means["a", "green_score"][0]) == pytest.approx(values["a"].mean(), abs=1e-12)
    assert means["a", "finerad"][1] == "lower"
    assert json.loads((tmp_path / "t.csv.signature.json").read_text())["foreign"].keys() == {"a", "b"}
    fails(
        *given,
        "--direction",
        "x=lower",
        match=r"table: --direction must be given with scores of another tool; got none\. Add --foreign NAME=FILE, or",
    )


def test_cases_have_columns_of_another_tool(files, tmp_path):
    folder, values = files
    found = read_cases([folder / "a.parquet", read_foreign("a", folder / "a_green.csv", LOWER)])
    names = [column.name for column in found.columns]
    assert names == ["bleu-2 of a", "rouge-l of a", "green_score of a", "finerad of a"]
    assert found.columns[2].values == pytest.approx(values["a"])
    assert not found.columns[3].higher_is_better
    assert len(found.ids) == 30
    (tmp_path / "other.csv").write_text("id,green\nx1,1\nx2,0\n")
    match = r"^foreign scores have none of the ids of 30 test reports: ids here are like '50000000', theirs like "
    with pytest.raises(InputError, match=match + r"'x1'\. Join them by the same ids\.$"):
        read_cases([folder / "a.parquet", read_foreign("a", tmp_path / "other.csv")])


def test_report_command(oracle, files, tmp_path):
    pytest.importorskip("jinja2")
    folder, values = files
    out = tmp_path / "page.html"
    code, _, err = oracle(
        "report", folder / "a.parquet", "--foreign", f"a={folder}/a_green.csv", "--no-text", "--out", out
    )
    assert (code, err) == (0, f"{out}: 30 test reports, scores only\n")
    assert "green_score of a" in out.read_text()
    assert f"{values['a'].mean():.3f}" in out.read_text()
