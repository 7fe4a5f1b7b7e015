"""Ids that lost digits, that are written in two forms of Unicode, or that are those of images."""

import unicodedata

import polars as pl
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.predictions import as_predictions
from metric_oracle.corpora.reports import as_reports
from support import write
from support.workbooks import write_workbook

TEXTS = ["No edema is seen.", "Small left effusion."]


@pytest.mark.parametrize(
    "ids",
    [
        [1.2345678901234567e19, 1.2345678901234568e18],
        ["1.2345678901234567e+19", "12345678901234568.0"],
        ["1.23457E+16", "1.23458E+16"],
        ["1.0", "12345678901234568.0"],
    ],
)
def test_ids_that_became_floats_are_refused(ids):
    for read in (as_reports, as_predictions):
        with pytest.raises(InputError, match=r"an id in row [12] of .* that became a float.*column as text"):
            read(pl.DataFrame({"study_id": ids, "report": TEXTS}))


@pytest.mark.parametrize(
    "ids",
    [
        ["12345678901234567890", "12345678901234567891"],
        [12345678901234567, 12345678901234568],
        [50000401.0, 50000402.0],
        ["12e34", "ab-1"],
        ["1e5", "2e5"],
    ],
)
def test_other_ids_stay(ids):
    found = as_reports(pl.DataFrame({"study_id": ids, "report": TEXTS})).ids
    assert found == [str(key).removesuffix(".0") for key in ids]


def test_ids_in_two_forms_of_unicode_are_one():
    ids = ["Müller-1", "Jiménez-2"]
    apart = [unicodedata.normalize("NFD", key) for key in ids]
    one, other = (dict(zip(keys, TEXTS, strict=True)) for keys in (ids, apart))
    assert mo.score(one, other, "rouge-l").mean()["rouge-l"] == 1


def test_images_of_other_data_sets_get_no_advice_of_mimics(tmp_path, fails):
    rows = [("a", "CXR1_IM-0001-3001"), ("b", "CXR1_IM-0001-3001")]
    predictions = write(tmp_path / "p.csv", rows, ("report", "image_id"))
    references = write(tmp_path / "r.csv", [("1", "a b"), ("2", "c d")], ("study_id", "findings"))
    with pytest.raises(InputError, match=r"1 ids with several texts: .*\. Keep one image for each study\."):
        as_predictions(predictions)
    write(predictions, [("a", "x_IM-1"), ("b", "x_IM-2")], ("report", "image_id"))
    with pytest.raises(InputError) as caught:
        mo.score(references, predictions, "rouge-l", section="findings")
    assert "metadata" not in str(caught.value)


@pytest.mark.parametrize("nothing", [None, "", "nan"])
def test_a_reference_without_a_text_is_not_meant(nothing):
    records = [
        {"id": str(i), "reference": nothing, "ground_truth": text, "prediction": "a b"} for i, text in enumerate(TEXTS)
    ]
    assert as_reports(records).texts == TEXTS
    with pytest.raises(InputError, match="candidates are 'reference', 'ground_truth'"):
        as_reports([{**record, "reference": "c d"} for record in records])


def test_texts_line_by_line_get_the_way_that_exists(tmp_path, oracle):
    for name in ("refs.txt", "hyps.txt"):
        (tmp_path / name).write_text("\n".join(TEXTS) + "\n")
    code, _, err = oracle("score", tmp_path / "refs.txt", tmp_path / "hyps.txt", "-m", "rouge-l")
    assert code == 2
    assert "columns reference and prediction of one CSV file, given for both sides; in Python, as two lists" in err
    rows = zip(TEXTS, reversed(TEXTS), strict=True)
    both = write(tmp_path / "both.csv", rows, ("reference", "prediction"))
    assert oracle("score", both, both, "-m", "rouge-l")[0] == 0
    assert mo.score(both, both, "rouge-l").mean()["rouge-l"] == 0
    write(both, [("a b", "a c")], ("ours", "prediction"))
    code, _, err = oracle("score", both, both, "-m", "rouge-l")
    assert (code, "no column" in err) == (2, True)
    write(both, [("a b", "a c")], ("reference", "ours"))
    code, _, err = oracle("score", both, both, "-m", "rouge-l")
    assert code == 2
    assert "got 'reference', 'no column' of the columns 'reference', 'ours'" in err


def test_long_numbers_of_a_workbook_are_refused_and_texts_stay(tmp_path):
    pytest.importorskip("fastexcel", reason="the extra excel is not installed")
    for ids in ([12345678901234567890, 5], [12345678901234568, 12345678901234600]):
        rows = [["study_id", "report"], *map(list, zip(ids, TEXTS, strict=True))]
        with pytest.raises(InputError, match=r"an id in row 1 of .* that became a float"):
            as_reports(write_workbook(tmp_path / "a.xlsx", {"A": rows}))
    for ids in (["12345678901234567890", "12345678901234567891"], [50000401, 50000402]):
        rows = [["study_id", "report"], *map(list, zip(ids, TEXTS, strict=True))]
        assert as_reports(write_workbook(tmp_path / "a.xlsx", {"A": rows})).ids == [*map(str, ids)]
