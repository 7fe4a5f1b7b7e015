"""What Polars' own readers do not keep of the rules of tables, and so Arrow and Python read."""

import json
from importlib.util import find_spec

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora import streams
from metric_oracle.corpora.reports import as_reports, read_reports
from metric_oracle.corpora.tables import read_table
from support import SECRET, assert_refused


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


# Rows that repeat the header


HEADED = ["study_id,report", "1,Clear lungs.", "2,Mild edema.", "study_id,report", "3,Effusion.", " study_id , report "]


@pytest.mark.filterwarnings("ignore:(references|predictions):UserWarning")  # the rows that are left out
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_rows_that_repeat_the_header_are_left_out(tmp_path, monkeypatch, ending):
    rows = [line.split(",") for line in HEADED]
    path, frame = tmp_path / f"a.{ending}", pl.DataFrame(rows[1:], schema=rows[0], orient="row")
    if ending in ("csv", "tsv"):
        path.write_text("\n".join(HEADED).replace(",", "\t" if ending == "tsv" else ","))
    else:
        {"jsonl": frame.write_ndjson, "json": frame.write_json, "parquet": frame.write_parquet}[ending](path)
    texts = ["Clear lungs.", "Mild edema.", "Effusion."]
    for read in (mo.read_reports, mo.read_predictions):
        found = read(path)
        assert (found.ids, found.texts) == (["1", "2", "3"], texts)
        assert "without 2 rows that repeat the header" in found.source
        assert "3 of 3 rows" in found.source
    other = frame.to_pandas() if find_spec("pandas") else frame.to_arrow()
    assert mo.score(frame, other, "rouge-l").table["query_id"].to_pylist() == ["1", "2", "3"]
    if ending not in ("json", "parquet"):
        monkeypatch.setattr(streams, "AT_ONCE", 1)
        assert [text for piece in streams.stream_reports(path, 1) for text in piece.texts] == texts


def test_samples_and_columns_alone_repeat_the_header(tmp_path):
    (tmp_path / "s.csv").write_text("id,sample,report\n1,0,A b.\nid,sample,report\n1,1,B c.\n2,0,C d.\n2,1,D e.\n")
    found = mo.read_samples(tmp_path / "s.csv")
    assert (found.ids, found.texts) == (["1", "2"], [["A b.", "B c."], ["C d.", "D e."]])
    assert "without 1 row that repeats the header" in found.source
    (tmp_path / "p.csv").write_text("report\nClear.\nreport\nEdema.\n")
    (tmp_path / "ids.txt").write_text("a\nb\n")
    found = mo.read_predictions(tmp_path / "p.csv", mo.Read(ids=tmp_path / "ids.txt"))
    assert (found.texts, "without 1 row that repeats the header" in found.source) == (["Clear.", "Edema."], True)


def test_a_header_in_another_order_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("study_id,report\n1,Clear.\nreport,study_id\nEdema.,2\n")
    match = (
        r"has the names of the columns again in row 2, in another order\. Put the parts together by the names of their"
    )
    for read in (mo.read_reports, mo.read_predictions):
        with pytest.raises(InputError, match=match):
            read(tmp_path / "a.csv")


# Tables without rows


def test_tables_without_rows(tmp_path, oracle):
    frame = pl.DataFrame({"study_id": ["1"], "report": ["Clear."]}).clear()
    (tmp_path / "h.csv").write_text("study_id,report\n")
    (tmp_path / "c.json").write_text('{"study_id": [], "report": []}')
    (tmp_path / "e.json").write_text("[]")
    frame.cast(pl.Null).write_parquet(tmp_path / "e.parquet")
    files = [tmp_path / name for name in ("h.csv", "c.json", "e.json", "e.parquet")]
    frames = [frame.to_pandas()] if find_spec("pandas") else []
    for empty in (*files, frame, *frames, frame.to_arrow(), frame.to_dict(as_series=False), {}, []):
        for call in (
            lambda given: mo.score(given, {"1": "Clear."}, "rouge-l"),
            lambda given: mo.score({"1": "Clear."}, given, "rouge-l"),
            lambda given: mo.build_index(given, tmp_path / "INDEX", metrics="rouge-l"),
        ):
            with pytest.raises(InputError, match=r"(has|is) no row.*\. Check what wrote or filtered it\.$"):
                call(empty)
    for path in files:
        words = ["build-index", path, "--out", tmp_path / "SET", "-m", "rouge-l", "--shard-rows", "1"]
        assert_refused(oracle(*words), r".* no row.*\. Check what wrote or filtered it", "")


# Texts as bytes


def test_binary_columns_of_texts_are_read(tmp_path):
    table = pa.table(
        {"study_id": pa.array([b"1", b"2"]), "report": pa.array(["Œdème.".encode(), None], pa.large_binary())}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    for given in (tmp_path / "a.parquet", table, pl.from_arrow(table)):
        found = mo.reports(given).read()
        assert (found.ids, found.texts, found.states["missing"]) == (["1"], ["Œdème."], ["2"])
    table = pa.table({"study_id": ["1"], "report": ["A."], "image": pa.array([b"\xff\xd8"])})
    assert as_reports(table).texts == ["A."]
    with pytest.raises(InputError, match="has bytes instead of text in row 1"):
        as_reports(table, mo.Read(text_column="image"))
