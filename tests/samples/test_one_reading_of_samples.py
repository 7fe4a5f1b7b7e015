"""Samples are read in one way, or not at all."""

import polars as pl
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError


@pytest.mark.parametrize(
    "cells", [["['No edema.', 'Edema.']", "['Clear.']"], ['["No edema."]', '["A", "B"]'], ["['a b'\n 'c']", "['d']"]]
)
@pytest.mark.parametrize("column", ["candidates", "prediction"])
def test_lists_that_became_texts_are_no_samples(tmp_path, cells, column):
    path = tmp_path / "s.csv"
    pl.DataFrame({"study_id": ["1", "2"], column: cells}).write_csv(path)
    with pytest.raises(InputError, match=r"has lists that were written as text\. Write the file as JSON Lines") as told:
        mo.read_samples(path)
    assert "edema" not in str(told.value)


def rows(*pairs):
    return pl.DataFrame({"study_id": [study for study, _ in pairs], "prediction": [text for _, text in pairs]})


def test_rows_that_fill_a_last_batch_are_no_samples():
    first = [("1", "a b"), ("1", "a c"), ("2", "d e"), ("2", "d f"), ("3", "g"), ("3", "h")]
    assert mo.read_samples(rows(*first)).sizes == [2, 2, 2]
    with pytest.raises(InputError, match=r"the last 2 rows of .* repeat samples of studies above"):
        mo.read_samples(rows(*first, ("1", "a b"), ("1", "a c")))
    assert mo.read_samples(rows(*first, ("1", "new"))).sizes == [3, 2, 2]
    assert mo.read_samples(rows(("1", "a"), ("1", "a"), ("2", "b"))).sizes == [2, 1]
