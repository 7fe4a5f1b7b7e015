"""Both sides of a comparison: by which columns they are read, and how many ids they must share."""

import polars as pl
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError

IDS, HUMAN, MODEL = ["a", "b", "c"], ["No edema.", "Small effusion.", "Clear."], ["Edema.", "An effusion.", "Clear."]


def mean(references, predictions, **options):
    return mo.score(references, predictions, "rouge-l", **options).mean()["rouge-l"]


def frame(**columns):
    return pl.DataFrame(columns)


@pytest.mark.filterwarnings("ignore:predictions:UserWarning")  # that a column was chosen
def test_a_column_of_the_model_comes_before_that_of_the_references():
    references = mo.reports(frame(id=IDS, report=HUMAN), mo.Read(text_column="report"))
    both = frame(id=IDS, report=HUMAN, prediction=MODEL)
    assert mean(references, both) == mean(references, frame(id=IDS, prediction=MODEL)) < 1


def test_exactly_half_of_the_ids_of_the_smaller_side_are_enough():
    references = dict(zip(IDS, HUMAN, strict=True))
    with pytest.warns(UserWarning, match=r"left out: 2 without a prediction, 1 without a reference"):
        assert mean(references, {"b": HUMAN[1], "z": "x"}, inner=True) == 1
    with pytest.raises(InputError, match=r"must share at least half of the ids .*; got 1 of 3 in common"):
        mean(references, {"b": HUMAN[1], "y": "x", "z": "x"}, inner=True)


def test_one_column_of_a_table_without_ids_is_never_both_sides():
    table = frame(ours=HUMAN, theirs=MODEL)
    sides = {name: mo.reports(table, mo.Read(text_column=name)) for name in table.columns}
    assert mean(sides["ours"], sides["theirs"]) == mean(HUMAN, MODEL)
    with pytest.raises(InputError, match=r"must be two columns of a table without ids that is given for both"):
        mean(sides["ours"], sides["ours"])
