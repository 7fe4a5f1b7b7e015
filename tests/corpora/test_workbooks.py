"""Excel workbooks as tables of reports."""

import builtins
import zipfile

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, InputError
from metric_oracle.corpora.label_tables import LABELS, read_labels
from metric_oracle.corpora.predictions import read_predictions
from metric_oracle.corpora.reports import read_reports
from metric_oracle.corpora.tables import read_table
from support import SECRET
from support.workbooks import DAY, write_workbook

pytest.importorskip("fastexcel", reason="the extra excel is not installed")


def test_cells_are_the_text_that_csv_has(tmp_path):
    rows = [
        [" study_id ", "date", "report", "n"],
        [50414267.0, (DAY, 43861), "A\nB", 0.5],
        ["5e7", (DAY, 43861.5), "1.50", 1e7],
        [5e7, "2020-01-31", True, ("t='e'", "#N/A")],
        [None] * 4,
        [" s5 ", None, "", ("t='str'", "")],
    ]
    table = read_table(write_workbook(tmp_path / "a.xlsx", {"Reports": rows}))
    assert (table.kind, table.n_rows, table.note) == ("Excel", 4, "")
    assert table.names == ["study_id", "date", "report", "n"]
    assert table.column(0).to_list() == ["50414267", "5e7", "50000000", " s5 "]
    assert table.column(1).to_list() == ["2020-01-31 00:00:00", "2020-01-31 12:00:00", "2020-01-31", None]
    assert table.column(2, is_text=True).to_list() == ["A\nB", "1.50", "true", ""]
    assert table.column(3, is_text=True).to_list() == ["0.5", "10000000", None, ""]


def test_reports_predictions_and_labels(tmp_path):
    path = write_workbook(tmp_path / "a.xlsx", {"A": [["id", "report"], [50000001, "Clear."], [2, None], [3, ""]]})
    reports = read_reports(path)
    assert (reports.ids, reports.texts) == (["50000001"], ["Clear."])
    assert reports.states == {"missing": ["2"], "empty": ["3"], "tokenless": []}
    assert reports.source == "Excel, id id, column report, 1 of 3 rows"
    found = read_predictions(path)
    assert (found.texts, found.states["empty"]) == (["Clear.", "", ""], ["2", "3"])
    cells = [[50000001, *[1.0] * 13, 0.0], [2, *[None] * 14], [3, *["-1.0"] * 13, 1]]
    labels = read_labels(write_workbook(tmp_path / "l.xlsx", {"A": [["study_id", *LABELS], *cells]}))
    assert labels.ids == ["50000001", "2", "3"]
    assert labels.values[:, 0].tolist() == [1, 0, 3]


def test_the_first_sheet_that_is_not_hidden(tmp_path):
    table = [["id", "report"], ["x", "Clear."]]
    path = write_workbook(tmp_path / "a.xlsx", {"Old": [["id"], ["y"]], "New": table, "More": []}, hidden=["Old"])
    assert read_reports(path).source == "Excel, id id, column report, sheet 2 of 3, 1 of 1 rows"
    for name, sheets in (("none.xlsx", {"A": []}), ("hidden.xlsx", {"A": table})):
        with pytest.raises(InputError, match=r"^.* has no table in its first visible sheet"):
            read_reports(write_workbook(tmp_path / name, sheets, hidden=["A"] if name == "hidden.xlsx" else ()))


def test_damaged_workbooks(tmp_path):
    path = write_workbook(tmp_path / "a.xlsx", {"A": [["id", "report"], ["x", SECRET * 999]]})
    whole = path.read_bytes()
    match = r"^.* is not a whole \.xlsx file: it is damaged, locked or of another format\. Save it again\.$"
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 64]) + whole[middle + 1 :]
    for content in (whole[:-30], whole[: len(whole) // 2], b"id,report\n", flipped):
        path.write_bytes(content)
        with pytest.raises(InputError, match=match):
            read_reports(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "no workbook")
    with pytest.raises(InputError, match=match):
        read_reports(path)


def test_a_workbook_that_would_fill_the_memory(tmp_path):
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("xl/sheet1.xml", "w") as member:
        for _ in range(128):
            member.write(bytes(1 << 20))
    with pytest.raises(InputError, match=r".* unpacks to more than 300 times its size"):
        read_reports(path)


def test_without_the_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def lacking(name, *rest, **more):
        if name == "fastexcel":
            raise ImportError
        return real(name, *rest, **more)

    path = write_workbook(tmp_path / "a.xlsx", {"A": [["id", "report"], ["x", "Clear."]]})
    monkeypatch.setattr(builtins, "__import__", lacking)
    match = r"^.*a\.xlsx needs the Python package fastexcel, which is not installed\. Run: pip install "
    with pytest.raises(BackendError, match=match):
        read_reports(path)


def with_formula(path, cell):
    """Write a workbook whose cell B3 is this XML."""
    path = write_workbook(path, {"A": [["id", "report"], ["x", "Clear."], ["y", "MARK"]]})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    old = '<c r="B3" t="inlineStr"><is><t xml:space="preserve">MARK</t></is></c>'
    assert old in members["xl/sheet1.xml"]
    members["xl/sheet1.xml"] = members["xl/sheet1.xml"].replace(old, cell)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("result", ["", "<v></v>", "<v/>"])
def test_a_formula_without_its_result_is_no_empty_report(tmp_path, result):
    path = with_formula(tmp_path / "a.xlsx", f'<c r="B3"><f>A3&amp;"."</f>{result}</c>')
    match = r"a\.xlsx has formulas without their results \(1, the first in cell B3\)\. Open it in Excel or LibreOffice"
    for read in (read_reports, mo.read_predictions):
        with pytest.raises(InputError, match=match):
            read(path)


def test_a_formula_with_its_result_is_that(tmp_path):
    path = with_formula(tmp_path / "a.xlsx", '<c r="B3" t="str"><f>A3&amp;"."</f><v>y.</v></c>')
    assert mo.read_predictions(path).texts == ["Clear.", "y."]
    path = with_formula(tmp_path / "a.xlsx", '<c r="B3" t="str"><f>""</f><v></v></c>')
    assert mo.read_predictions(path).texts == ["Clear.", ""]


def test_a_title_above_the_header_is_left_out(tmp_path):
    rows = [["id", "report"], ["x", "Clear."], ["y", "Edema."]]
    for above in ([["Reports of 2020", None]], [["Reports", None], [None, None], ["by A", None]]):
        path = write_workbook(tmp_path / "a.xlsx", {"A": [*above, *rows]})
        for read in (read_reports, mo.read_predictions):
            found = read(path)
            assert (found.ids, found.texts) == (["x", "y"], ["Clear.", "Edema."])
            assert "above the header" in found.source
    with pytest.raises(InputError, match="has no column"):
        read_reports(
            write_workbook(tmp_path / "b.xlsx", {"A": [["Reports", None], ["key", "words"], ["x", "Clear it."]]})
        )
