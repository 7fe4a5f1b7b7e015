"""Reports that are read piece by piece, against the whole file."""

import csv
import gzip
import json
from itertools import chain

import polars as pl
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.corpora import streams
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import read_reports
from metric_oracle.corpora.streams import can_stream, stream_reports
from support import SECRET, write

ROWS = [
    ("a", "No edema."), ("b", ""), ("c", 'Lines, "quotes"\nand breaks.'), ("c", 'Lines, "quotes"\nand breaks.'),
    ("i", "Clear."), ("d", "."), ("i", "Clear."), ("e", "Opacity\r\nright."), ("f", "Ünïcode\u2028line"),
    ("g", "New."), ("g", "New."), ("h", " "),
]  # fmt: skip


def files(folder):
    rows = [(i, text) for i, text in ROWS]
    table = write(folder / "reports.csv", rows)
    frame = pl.DataFrame(rows, ["study_id", "report"], orient="row")
    frame.write_csv(folder / "reports.tsv", separator="\t")
    frame.write_parquet(folder / "reports.parquet", row_group_size=3)
    lines = "".join(json.dumps({"study_id": i, "report": text}, ensure_ascii=False) + "\n" for i, text in rows)
    (folder / "reports.jsonl").write_text(lines, encoding="utf-8")
    (folder / "reports.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + table.read_bytes()))
    return [folder / f"reports.{ending}" for ending in ("csv", "tsv", "parquet", "jsonl", "csv.gz")]


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@pytest.mark.parametrize("keep_empty", [False, True])
def test_pieces_are_the_whole(tmp_path, monkeypatch, at_once, keep_empty):
    monkeypatch.setattr(streams, "AT_ONCE", at_once)
    for path in files(tmp_path):
        whole = read_reports(path, Read(keep_empty=keep_empty))
        for n in (1, 2, 3, 50):
            assert can_stream(path)
            found = [*stream_reports(path, n, Read(keep_empty=keep_empty))]
            assert [len(some.ids) for some in found[:-1]] == [n] * (len(found) - 1)
            assert [*chain(*(some.ids for some in found))] == whole.ids
            assert [*chain(*(some.texts for some in found))] == whole.texts
            for name, count in whole.counts.items():
                assert sum(some.counts[name] for some in found) == count
            assert {(some.section, some.section_by) for some in found} == {(whole.section, whole.section_by)}


@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_quotes_within_cells_do_not_mislead_where_a_piece_ends(tmp_path, monkeypatch, at_once, end):
    monkeypatch.setattr(streams, "AT_ONCE", at_once)
    rows = ['a,5" tube', 'b,"No edema.', "", 'Clear."', 'c,"The ""old""', 'line."', 'd,6"', "", "e,Clear.", 'f,x"y']
    rows += ['g, "blank before"', "h,Old.", "i,y"]
    path = tmp_path / "a.csv"
    path.write_bytes(end.join(["study_id,report", *rows, ""]).encode())
    whole = read_reports(path)
    assert len(whole.ids) == 9
    pieces = [*stream_reports(path, 2)]
    assert [text for some in pieces for text in some.texts] == whole.texts
    assert [study for some in pieces for study in some.ids] == whole.ids


def test_what_cannot_be_read_in_pieces(tmp_path):
    (tmp_path / "a.json").write_text('{"a": "No edema."}')
    images = write(tmp_path / "images.csv", [("train/patient1/study1/view1.jpg", "x")], ("path_to_image", "report"))
    for path in (tmp_path, tmp_path / "a.json", tmp_path / "none.csv", images):
        assert not can_stream(path)


def refused(path, match):
    with pytest.raises(InputError, match=match) as caught:
        [*stream_reports(path, 2)]
    assert SECRET.split()[0] not in str(caught.value)


def test_damage_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "AT_ONCE", 2)
    several = write(tmp_path / "several.csv", [("a", SECRET), ("b", "x"), ("a", "other")])
    refused(several, r"^.* has one id with several texts: 'a'\. Keep")
    (tmp_path / "empty.jsonl").write_text("")
    refused(tmp_path / "empty.jsonl", r"^.*empty\.jsonl holds no report\. Check")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"study_id,report\n" + b"a,No edema.\n" * 999)[:-20])
    refused(tmp_path / "cut.csv.gz", r"^.* is not a whole gzip file: it is damaged or cut short\. Fetch")
    (tmp_path / "cut.parquet").write_bytes(files(tmp_path)[2].read_bytes()[:-9])
    refused(tmp_path / "cut.parquet", r"^.* is not a whole Parquet file: it is damaged, cut short")
    (tmp_path / "open.csv").write_text(f'study_id,report\na,x\nb,y\nc,"{SECRET}\n')
    refused(tmp_path / "open.csv", r"^.*open\.csv \(rows 3 to 3 below the header\) has a quote that is never closed")
    (tmp_path / "long.csv").write_text(f"study_id,report\na,{'x' * 200_000}\n")
    assert len(next(stream_reports(tmp_path / "long.csv", 2)).texts[0]) == 200_000
    monkeypatch.setattr(streams, "LONGEST", 100_000)
    csv.field_size_limit(100_000)
    refused(tmp_path / "long.csv", r"^.*long\.csv has a row that cannot be parsed: row")
    (tmp_path / "torn.jsonl").write_text('{"study_id": "a", "report": "x"}\n\n{"study_id"\n')
    refused(tmp_path / "torn.jsonl", r"^.*torn\.jsonl \(from line 3\) has no JSON object in line 1\. Each")
