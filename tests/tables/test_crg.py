"""`oracle crg`: label files of any names, joined on ids, to counts and the score; every error line."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import LABELS, read_label_table
from metric_oracle.findings.writing import check_out
from metric_oracle.tables.crg import score_crg

COUNTS = {"RadFM": (550, 9985, 1766, 42401, 0.335), "CT2Rep": (1561, 8974, 1804, 42363, 0.359),
          "CT-CHAT": (2224, 8311, 3081, 41086, 0.368), "Merlin": (1504, 9031, 2694, 41473, 0.352)}  # fmt: skip
CT_RATE = [f"class {i}" for i in range(18)]


def write(path, ids, names, values, id_name="study_id"):
    """Write labels; values are cells."""
    lines = [",".join([id_name, *names])]
    lines += [",".join([str(i), *map(str, row)]) for i, row in zip(ids, values, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("model", COUNTS)
def test_table_2_from_files(tmp_path, model):
    """18 classes of 3,039 scans with the counts of the paper's Table 2, in any arrangement."""
    tp, fn, fp, tn, printed = COUNTS[model]
    cells = np.random.default_rng(0).permutation(np.repeat(np.arange(4), (tp, fn, fp, tn))).reshape(-1, 18)
    ids = [f"scan_{i}" for i in range(len(cells))]
    reference = write(tmp_path / "r.csv", ids, CT_RATE, np.isin(cells, (0, 1)).astype(int), "VolumeName")
    predicted = write(
        tmp_path / "p.csv", ids[::-1], CT_RATE[::-1], np.isin(cells, (0, 2)).astype(int)[::-1, ::-1], "VolumeName"
    )
    scored = score_crg(reference, predicted, uncertain="negative", id_column="VolumeName")
    assert scored.levels[0].counts.sum(axis=0).tolist() == [tp, fn, fp, tn]
    assert scored.score == pytest.approx(printed, abs=0.0015)
    assert scored.reports == 3039


def test_counts_of_each_label(tmp_path):
    reference = write(tmp_path / "r.csv", "abcd", ["x", "y"], [(1, 0), (1, ""), (0, 1), (-1, 1)])
    predicted = write(tmp_path / "p.csv", "dcbae", ["y", "x"], [("", 1), (1, 1), (0, 1), (-1, 1), (1, 1)])
    for uncertain, x, y, positives, wrong in (("positive", [3, 0, 1, 0], [1, 1, 1, 1], 5, (1, 2)),
                                              ("negative", [2, 0, 2, 0], [1, 1, 0, 2], 4, (1, 2)),
                                              ("blank", [2, 0, 2, 0], [1, 1, 0, 2], 4, (1, 2))):  # fmt: skip
        with pytest.warns(UserWarning, match="^predictions without a reference, not used: 1$"):
            scored = score_crg(reference, predicted, uncertain=uncertain)
        assert scored.levels[0].counts.tolist() == [x, y]
        assert scored.score == pytest.approx(1 / (1 + 2 * (wrong[0] / positives + wrong[1] / (8 - positives))))
        assert (scored.reports, scored.unused) == (4, 1)
        assert scored.signature["uncertain"] == uncertain
        *labels, total = scored.table.to_pylist()
        assert [row["label"] for row in labels] == ["x", "y"]
        assert [row["crg"] for row in labels] == [None, None]
        assert total.pop("low") <= total["crg"] <= total.pop("high")
    assert total == {
            "level": "labels", "label": "all", "crg": scored.score,
            **dict(zip(("tp", "fn", "fp", "tn"),
                       [a + b for a, b in zip(x, y, strict=True)], strict=True)),
        }  # fmt: skip


@pytest.mark.parametrize("value", [0, 1])
def test_trivial_reports_have_exactly_a_third(tmp_path, value):
    truth = np.random.default_rng(1).integers(0, 2, (37, 5))
    reference = write(tmp_path / "r.csv", range(37), "abcde", truth)
    predicted = write(tmp_path / "p.csv", range(37), "abcde", np.full((37, 5), value))
    assert score_crg(reference, predicted, uncertain="blank").score == 1 / 3


def test_levels_are_averaged(tmp_path):
    """CRG-1 of general classes and CRG-2 of type and side of one of them, as the paper sets it out."""
    general = ["lung opacity", "nodule"]
    fine = [f"{kind} {side}" for kind in ("consolidation", "GGO") for side in ("left", "right")]
    rng = np.random.default_rng(3)
    truth, given = rng.integers(0, 2, (2, 50, 6))
    reference = write(tmp_path / "r.csv", range(50), [*general, *fine], truth)
    predicted = write(tmp_path / "p.csv", range(50), [*general, *fine], given)
    one, two = (
        score_crg(reference, predicted, uncertain="blank", levels={"x": names}).score for names in (general, fine)
    )
    both = score_crg(reference, predicted, uncertain="blank", levels={"CRG-1": general, "CRG-2": fine})
    assert one != two
    assert both.score == (one + two) / 2
    assert [row["crg"] for row in both.table.to_pylist() if row["crg"] is not None] == [one, two, both.score]
    assert both.table.to_pylist()[-1]["level"] == "mean"
    assert both.signature["levels"] == {"CRG-1": general, "CRG-2": fine}


def test_chexbert_files_in_either_form_without_no_finding(tmp_path):
    rows = np.zeros((3, 14), int)
    rows[0, 3], rows[1, 13], rows[2, 9] = 1, 1, 3
    cells = np.array(["", "1", "0", "-1"])[rows]
    reference = write(tmp_path / "r.csv", [50000001, 50000002, 50000003], LABELS, cells)
    snake = [label.lower().replace(" ", "_") for label in LABELS]
    predicted = write(tmp_path / "p.csv", ["s50000001", "s50000002", "s50000003"], snake, rows)
    scored = score_crg(reference, predicted, uncertain="positive")
    assert scored.levels[0].labels == list(LABELS[:13])
    assert scored.levels[0].counts.sum(axis=0).tolist() == [2, 0, 0, 37]
    assert scored.score == 1.0


def test_other_columns_that_are_no_labels(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(",subject_id,dicom_id,study_id,Unnamed: 0,x\n0,10,d,a,7,1\n1,11,e,b,8,\n")
    table = read_label_table(path)
    assert (table.ids, table.names, table.values.tolist()) == (["a", "b"], ["x"], [[1], [0]])


def test_files_written_and_read(tmp_path):
    reference = write(tmp_path / "r.csv", "ab", ["x", "y"], [(1, 0), (0, 1)])
    scored = score_crg(reference, reference, uncertain="blank")
    for ending in ("parquet", "csv", "jsonl"):
        scored.write(tmp_path / f"o.{ending}")
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert rows == scored.table.to_pylist()
    for ending in ("csv", "jsonl"):
        signature = json.loads((tmp_path / f"o.{ending}.signature.json").read_text())
        assert {name: signature[name] for name in scored.signature} == scored.signature


def test_the_table_for_people(tmp_path):
    reference = write(tmp_path / "r.csv", "ab", ["[red]x", "y"], [(1, 0), (0, 1)])
    console = Console(width=120, record=True, file=io.StringIO())
    for part in score_crg(reference, reference, uncertain="blank").shown():
        console.print(part)
    text = console.export_text()
    assert "[red]x" in text
    assert re.search(r"labels: all +2 +0 +0 +2 +1\.0000 +\[1\.0000 1\.0000\]", text)
    assert "2 reports; an uncertain label counts as blank" in text
    assert "Fewer than 20 reports (2): the intervals are too short." in text


# Errors


@pytest.fixture
def files(tmp_path):
    return [write(tmp_path / name, "abc", ["x", "y"], [(1, 0), (0, 1), (1, 1)]) for name in ("r.csv", "p.csv")]


@pytest.mark.parametrize(
    ("uncertain", "rule"),
    [(None, "a string"), *((text, "one of positive, negative, blank") for text in ("", "maybe"))],
)
def test_uncertain_must_be_said(files, uncertain, rule):
    step = "The call is" if uncertain is None else "Say what an uncertain label counts as"
    match = rf"^score_crg: uncertain must be {rule}; got {uncertain!r}\. {step}"
    with pytest.raises(InputError, match=match):
        mo.score_crg(*files, uncertain=uncertain)


def test_levels_of_the_command(oracle, files):
    lines = [["--level", "one=x, y", "--level", "two=y"], ["--level", "one=x", "--level", "one=y", "--level", "two=y"]]
    for line in lines:
        code, out, _ = oracle("crg", *files, "--uncertain", "blank", *line, "--format", "jsonl")
        rows = [json.loads(row) for row in out.splitlines()]
        assert code == 0
        assert [(row["level"], row["label"]) for row in rows if row["label"] != "all"] == [
            ("one", "x"), ("one", "y"), ("two", "y"),
        ]  # fmt: skip
    assert oracle("crg", *files, "--uncertain", "blank", "--level", "x")[2] == (
        "error: crg: --level must be NAME=COLUMN,...; got 'x'. Write both parts, and quote the argument if it contains "
        "spaces.\n"
    )


def test_references_without_predictions(files):
    write(files[1], "cx", ["x", "y"], [(1, 0), (0, 1)])
    match = r"^score_crg: .* has no labels for 2 of 3 reference reports \('a', 'b'\)\. Add"
    with pytest.raises(InputError, match=match):
        score_crg(*files, uncertain="blank")


def test_predictions_without_a_label(files):
    write(files[1], "abc", ["x", "z"], [(1, 0), (0, 1), (0, 0)])
    match = r"^score_crg: .* lacks 1 of the 2 labels of the reference \('y'\)\. Ren"
    with pytest.raises(InputError, match=match):
        score_crg(*files, uncertain="blank")


@pytest.mark.parametrize(
    ("labels", "unknown"), [([], 0), (["x", "z"], 1), (["x", "x"], 0), (["No Finding"], 1), (["no_finding"], 1)]
)
def test_levels_of_other_labels(files, labels, unknown):
    match = (
        r"^score_crg: level 'l' must have labels of the reference, each once and No Finding left out; got "
        rf"{len(labels)} labels, {unknown} of them unknown\. Labels in .*: 'x', 'y'\.$"
    )
    with pytest.raises(InputError, match=match):
        score_crg(*files, uncertain="blank", levels={"l": labels})


def test_no_label_but_no_finding(tmp_path):
    path = write(tmp_path / "r.csv", "ab", ["No Finding"], [(1,), (0,)])
    with pytest.raises(
        InputError, match=r"^score_crg: level 'labels' must have labels of the reference, .*; got 0 labels"
    ):
        score_crg(path, path, uncertain="blank")


@pytest.mark.parametrize("cell", ["2", "yes", "0.5", "inf"])
def test_cells_that_are_no_labels(tmp_path, cell):
    path = write(tmp_path / "r.csv", "ab", ["x", "y"], [(1, 0), (1, cell)])
    match = r"^score_crg: label column 2 \('y'\) of .* must hold 1, 0, -1 or empty; got another value in row 2\. Repair"
    with pytest.raises(InputError, match=match):
        score_crg(path, path, uncertain="blank")


def test_a_label_with_blanks_is_named_and_a_report_is_not(tmp_path):
    path = write(tmp_path / "r.csv", "ab", ["Small left effusion"], [("x",), ("y",)])
    with pytest.raises(InputError, match=r"^score_crg: label column 1 \('Small left effusion'\) of .* must hold"):
        score_crg(path, path, uncertain="blank")
    path = write(tmp_path / "r.csv", "ab", ["Small left effusion. " * 10], [("x",), ("y",)])
    match = r"^score_crg: label column 1 \(a text of 209 characters\) of .* must hold"
    with pytest.raises(InputError, match=match):
        score_crg(path, path, uncertain="blank")


@pytest.mark.parametrize("names", [["x"], LABELS])
def test_labels_without_ids(fails, tmp_path, names):
    """A table of labels has no entry in oracle.toml, so that a message to a user names none."""
    path = tmp_path / "r.csv"
    path.write_text(",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n")
    said = r"{}: .* has no column of ids\. Pass {}; columns: .*\.$"
    with pytest.raises(InputError, match="^" + said.format("score_crg", "`id_column=NAME`")):
        mo.score_crg(path, path, uncertain="blank")
    words = ("crg", path, path, "--uncertain", "blank")
    fails(*words, match=said.format("crg", "--id-column NAME"))


@pytest.mark.parametrize(("text", "n"), [("study_id,x\n", "0 and 1"), ("study_id\na\n", "1 and 0")])
def test_labels_without_content(tmp_path, text, n):
    path = tmp_path / "r.csv"
    path.write_text(text)
    match = rf"^score_crg: .* must have at least one report and one label; it has {n}\. Check the file\.$"
    with pytest.raises(InputError, match=match):
        score_crg(path, path, uncertain="blank")


def test_ids_twice(tmp_path):
    path = write(tmp_path / "r.csv", "aa", ["x"], [(1,), (0,)])
    with pytest.raises(InputError, match=r"^score_crg: an id occurs more than once in .*: 'a'\."):
        score_crg(path, path, uncertain="blank")


def test_out_of_another_name(tmp_path):
    with pytest.raises(InputError, match=r"^out must end with \.parquet, \.csv or \.jsonl; got .*o\.txt\."):
        check_out(tmp_path / "o.txt")
