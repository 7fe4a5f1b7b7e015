"""What Polars' own readers do not keep of the rules of tables, and so Arrow and Python read."""

import json

import polars as pl
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.reports import as_reports, read_reports
from metric_oracle.corpora.tables import read_table
from support import SECRET


def pairs(reports):
    return dict(zip(reports.ids, reports.texts, strict=True))


def write(folder, content, name="a.csv"):
    path = folder / name
    path.write_bytes(content.encode())
    return path


def test_a_short_row_is_refused(tmp_path):
    path = write(tmp_path, f"study_id,report\ns1\ns2,{SECRET}\n")
    assert pl.read_csv(path)["report"].to_list() == [None, SECRET]
    with pytest.raises(InputError, match=r"2 columns in the header and 1 in row 2 \(the header is row 1\)\. Repair"):
        read_reports(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("study_id,report\rs1,Clear.\rs2,Edema.\r", {"s1": "Clear.", "s2": "Edema."}),
        ('study_id,report\ns1,5" tube\ns2,Edema.\n', {"s1": '5" tube', "s2": "Edema."}),
    ],
)
def test_rows_that_polars_does_not_find(tmp_path, content, expected):
    path = write(tmp_path, content)
    try:
        rows = pl.read_csv(path).rows()
    except pl.exceptions.PolarsError:
        rows = []
    assert rows != [*expected.items()]
    assert pairs(read_reports(path)) == expected


def test_an_error_of_a_cell_shows_no_text(tmp_path):
    path = write(tmp_path, f'study_id,report\ns1,"{SECRET}\n')
    with pytest.raises(pl.exceptions.PolarsError) as theirs:
        pl.read_csv(path)
    assert SECRET in str(theirs.value)
    with pytest.raises(InputError, match="has a quote that is never closed") as ours:
        read_reports(path)
    assert SECRET not in str(ours.value)


def test_times_that_polars_cannot_hold_are_no_others(tmp_path):
    times = pa.array([2**62, 0], pa.timestamp("s"))
    table = pa.table({"study_id": ["s1", "s2"], "report": ["Clear.", "Edema."], "time": times})
    assert pl.from_arrow(table)["time"].dt.year().to_list() != [None, 1970]
    assert pairs(as_reports(table)) == {"s1": "Clear.", "s2": "Edema."}  # a column that nobody asks for
    with pytest.raises(InputError, match=r"column 'time' of the pyarrow\.Table in memory has values out of range"):
        as_reports(table, keep="time")


def test_cells_of_several_types_stay_what_they_are(tmp_path):
    rows = [
        {"study_id": 1, "report": "Clear."},
        {"study_id": "s2", "report": "Edema."},
        {"study_id": 3.0, "report": "Mass."},
    ]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "a.jsonl")
    assert pl.read_ndjson(path)["study_id"].to_list() != [1, "s2", 3.0]
    assert read_table(path).column("study_id").to_list() == [1, "s2", 3.0]
    assert read_reports(path).ids == ["1", "s2", "3.0"]
    number = write(tmp_path, '{"study_id": 1, "report": "Clear."}\n{"study_id": 2, "report": NaN}\n', "b.jsonl")
    with pytest.raises(pl.exceptions.PolarsError):
        pl.read_ndjson(number)
    assert read_reports(number).states["missing"] == ["2"]


def test_half_a_surrogate_pair_among_ids_is_refused():
    with pytest.raises(InputError, match="column 'id' must be valid Unicode; got half of a surrogate pair"):
        as_reports([{"id": "\ud800", "report": "Clear."}])


def test_a_pandas_column_of_several_types_does_no_harm():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"study_id": ["s1", "s2"], "report": ["Clear.", None], "age": [45, "n/a"]})
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        pa.table(frame)
    found = mo.Reports.from_texts(frame["report"], frame["study_id"])
    assert pairs(as_reports(frame)) == pairs(found) == {"s1": "Clear."}
    assert as_reports(frame, keep="age").columns == {"age": ["45"]}
