"""Text files as people have them: encodings, separators, headers, packed files."""

import gzip
from itertools import chain
from pathlib import Path

import polars as pl
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora import streams, text_files
from metric_oracle.corpora.predictions import read_predictions
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import read_reports
from metric_oracle.corpora.streams import can_stream, stream_reports
from metric_oracle.corpora.tables import read_table
from support import SECRET

TEXTS = {"a": "Größe “normal” – 5 µm.", "b": 'Quoted; "twice",\nand\ttabs | bars.', "c": "Clear."}
ALL = {"utf-8": "", "utf-8-sig": "", "cp1252": "cp1252", "utf-16": "utf-16", "utf-32": "utf-32"}


def table(separator=",", texts=TEXTS, header=("study_id", "report")):
    rows = [header, *((key, '"' + text.replace('"', '""') + '"') for key, text in texts.items())]
    return "".join(separator.join(row) + "\r\n" for row in rows)


def both(path, **options):
    """Read a file whole and piece by piece; check that both are alike."""
    whole = read_reports(path, Read(**options))
    assert can_stream(path, Read(**options))
    pieces = [*stream_reports(path, 2, Read(**options))]
    assert [*chain(*(some.ids for some in pieces))] == whole.ids
    assert [*chain(*(some.texts for some in pieces))] == whole.texts
    head = whole.source.rpartition(",")[0]
    assert all(some.source.startswith(head) for some in pieces)
    return whole


def refused(path, match, **options):
    """Check that a file is refused with the same words whole and piece by piece."""
    ways = {
        "read_reports: ": lambda: read_reports(path, Read(**options)),
        "": lambda: [*stream_reports(path, 2, Read(**options))],
    }
    for name, read in ways.items():
        with pytest.raises(InputError, match=rf"^{name}{match}") as caught:
            read()
        assert SECRET.split()[0] not in str(caught.value)


@pytest.mark.parametrize("at_once", [1, 100])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ALL)
def test_what_spreadsheets_write(tmp_path, monkeypatch, encoding, separator, at_once):
    monkeypatch.setattr(streams, "AT_ONCE", at_once)
    for name in ("a.csv", "a.csv.gz", "a.tsv"):
        raw = table(separator).encode(encoding)
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
        reports = both(tmp_path / name)
        assert dict(zip(reports.ids, reports.texts, strict=True)) == TEXTS
        note = f"read as {ALL[encoding]}"
        assert (note in reports.source) == bool(ALL[encoding])
        given = both(tmp_path / name, encoding=encoding, separator="tab" if separator == "\t" else separator)
        assert given.texts == reports.texts
        assert read_predictions(tmp_path / name, mo.Read(encoding=encoding, separator=separator)).texts == reports.texts


@pytest.mark.parametrize("ending", ["json", "jsonl"])
@pytest.mark.parametrize("encoding", ALL)
def test_json_has_the_same_encodings(tmp_path, ending, encoding):
    path = tmp_path / f"a.{ending}"
    record = '{"id": "x", "text": "Größe “normal”."}'
    path.write_bytes((f"{record}\n" if ending == "jsonl" else f"[{record}]").encode(encoding))
    read = both if ending == "jsonl" else read_reports
    assert read(path).texts == ["Größe “normal”."]
    assert (ALL[encoding] in read(path).source) or not ALL[encoding]


def test_lines_in_another_encoding_are_named(tmp_path):
    lines = ["study_id,report", "a,Größe normal.", f"b,{SECRET} größer.", "c,Clear.", "d,Ödem."]
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n".join(line.encode("cp1252" if line[0] == "b" else "utf-8") for line in lines))
    rule = r".*a\.csv has UTF-8 in "
    refused(
        path,
        rule + r"2 of its lines and another encoding in line 3\. Repair the file; "
        r"`.*mo\.Read\(encoding=NAME\)\)?` can name the encoding of a table of reports\.$",
    )
    assert both(path, encoding="cp1252").texts[0] == "GrÃ¶ÃŸe normal."  # as it was asked for
    many = "\n".join(["study_id,report", *(f"{place},Größe" for place in range(1_500))])
    path.write_bytes(many.encode("cp1252") + "\nz,Größe".encode())
    refused(
        path, rule + r"1 of its lines and another encoding in lines 2, 3, 4, 5, 6, \.\.\. \(1,500 in all\)\. Repair"
    )
    path.write_bytes("study_id,report\na,Größe\nb,Größe".encode()[:-2])  # cut within a letter
    refused(path, rule + r"1 of its lines and another encoding in line 3\.")


def test_what_is_neither_is_not_guessed(tmp_path):
    path = tmp_path / "a.csv"
    rule = r".*a\.csv is not a text file in UTF-8, UTF-16 or cp1252\. Save the file in UTF-8"
    for encoding, text in (("cp1251", "Легкие чистые."), ("shift-jis", "肺野清明"), ("cp1252", "")):
        raw = f"study_id,report\na,{text}\n".encode(encoding)
        path.write_bytes(raw if text else raw.replace(b"a,", b"a,\x81\x8d"))
        refused(path, rule)
        if text:
            assert both(path, encoding=encoding).texts == [text]
    path.write_bytes(table().encode("cp1252") * 9 + b"x,\x81\n")
    refused(path, rule)
    path.write_bytes(b"study_id,report\na,\xff\x01\n")
    refused(path, r".*a\.csv is a binary file, which its ending does not say\. Rename")
    nul = b"study_id,report\na,b\0c\n"
    for content in (nul, b"study_id,report\na,\xff\0\n", nul.decode().encode("utf-16")):
        path.write_bytes(content)
        refused(
            path, r".*a\.csv has a NUL byte in line 2, which no text has\. Delete it, or convert the file: it may be"
        )


@pytest.mark.parametrize("encoding", ["klingon", "base64", "a\0b", ""])
def test_names_of_encodings(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_text(table())
    refused(
        path, "encoding must be the name of a text encoding, such as utf-8, utf-16 or cp1252; got ", encoding=encoding
    )


def test_an_encoding_that_the_file_does_not_have(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(table().encode("cp1252"))
    refused(path, r".*a\.csv is not in utf-8: it has bytes that utf-8 does not\. Save", encoding="utf-8")
    refused(path, r".*a\.csv is not in ascii: it has bytes that ascii does not\. Save", encoding="ascii")
    controls = r".*a\.csv is not in iso8859-1, which makes control characters of some bytes\. Try cp1252\."
    refused(path, controls, encoding="latin-1")
    path.write_bytes(table().encode("utf-8-sig"))
    path.write_text(table())
    refused(path, r".*a\.csv is in UTF-8, not in cp1252\. Leave `encoding` out\.", encoding="windows-1252")
    path.write_bytes(table().encode("utf-8-sig"))
    mark = r".*a\.csv has the byte-order mark of utf-8, not of cp1252\. Leave `encoding` out\."
    refused(path, mark, encoding="cp1252")
    path.write_bytes(b"\xef\xbb\xbf" + table().encode("cp1252"))
    refused(path, r".*a\.csv is not in utf-8-sig: it has bytes that utf-8-sig does not\. Save")
    path.write_bytes(table().encode("utf-16-le"))
    assert both(path, encoding="utf-16-le").texts == [*TEXTS.values()]


@pytest.mark.parametrize("separator", ["ab", "", '"', "\n", "a", "1", "é"])
def test_separators_are_characters(tmp_path, separator):
    path = tmp_path / "a.csv"
    path.write_text(table())
    refused(
        path, "separator must be tab or one ASCII character other than letters, digits, quotes", separator=separator
    )


def test_a_separator_that_the_header_does_not_tell(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("study_id:report\na:No; edema\n")
    refused(path, r".*a\.csv.* has no column with a usual id name", separator=None)
    assert both(path, separator=":").texts == ["No; edema"]
    path.write_text("study_id;report;a,b\na;No edema\n")
    rows = r".* has rows that cannot be read: 3 columns in the header and 2 in row 2"
    refused(path, rows)
    path.write_text("report\na,b,c\n")
    refused(path, r".* has rows that cannot be read: 1 column in the header and 3 in row 2")


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet", "a.xlsx"])
def test_options_of_text_are_for_text(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match=r"^read_reports: separator must be left out for .* files; got a value for "):
        read_reports(tmp_path / name, mo.Read(separator=";"))
    if "json" not in name:
        with pytest.raises(InputError, match=r"^read_reports: encoding, separator must be left out for .* files;"):
            read_reports(tmp_path / name, mo.Read(separator=";", encoding="utf-8"))
    (tmp_path / "a.txt").write_text("Clear.\n")
    with pytest.raises(InputError, match=r"separator must be left out for text with one report per line; got ';' for "):
        read_predictions(tmp_path / "a.txt", mo.Read(separator=";"))


@pytest.mark.filterwarnings("ignore:(references|predictions):UserWarning")  # the encoding
def test_both_sides_of_a_score(tmp_path):
    references, predictions = tmp_path / "a.csv", tmp_path / "b.csv"
    for path in (references, predictions):
        path.write_bytes("study_id:report\n1:Ödem.\n".encode("cp1252"))
    reading = mo.Read(separator=":", encoding="cp1252")
    asked = mo.reports(references, reading)
    assert mo.score(asked, mo.reports(predictions, reading), "bleu-1").mean() == {"bleu-1": 1}
    lines, parquet = tmp_path / "b.jsonl", tmp_path / "b.parquet"
    lines.write_bytes('{"study_id": 1, "report": "Ödem."}'.encode("cp1252"))
    pl.DataFrame({"study_id": ["1"], "report": ["Ödem."]}).write_parquet(parquet)
    for written in (mo.reports(lines, mo.Read(encoding="cp1252")), parquet, {"1": "Ödem."}):
        assert mo.score(asked, written, "bleu-1").mean() == {"bleu-1": 1}


def test_predictions_without_header_keep_their_semicolons(tmp_path):
    ids, path = tmp_path / "ids.txt", tmp_path / "p.csv"
    path.write_text("no edema ; no effusion\nclear .\n")
    ids.write_text("1\n2\n")
    assert read_predictions(path, mo.Read(ids=ids)).texts == ["no edema ; no effusion", "clear ."]
    path.write_text("study_id;report\n1;no edema\n2;clear .\n")
    assert read_predictions(path).ids == ["1", "2"]
    path.write_text("study_id;report\n1;no edema\n2;clear; .\n")
    with pytest.raises(InputError, match=r"has no ids \(CSV of one column"):
        read_predictions(path)
    path.write_text("study_id;report\n1;no edema\n2;clear; .\n" + "x" * 200_000)
    with pytest.raises(InputError):
        read_predictions(path)


def test_names_of_columns(tmp_path):
    """Blanks around a name are none of it; names of several words are shown where the row is surely a header."""
    path = tmp_path / "a.csv"
    path.write_text(" study_id ;report\t; Other Words \na;Clear.;x\n")
    assert both(path).texts == ["Clear."]
    assert both(path, text_column="Other Words").texts == ["x"]
    for header, shown in (
        ("Accession Number,Report Text (final),n", r"'Accession Number', 'Report Text \(final\)', 'n'"),
        ("study_id,Report 1 of 2,words", "'study_id', 'Report 1 of 2', 'words'"),
        ("study_id,Report No. 1,words", "'study_id', 'Report No. 1', 'words'"),
        ("Accession No,T1,2nd text", "'Accession No', 'T1', '2nd text'"),
        ("s50000001,No acute process,words", "'s50000001', a text of 16 characters, 'words'"),
        ("No acute process", "a text of 16 characters"),
    ):
        (tmp_path / "b.csv").write_text(f"{header}\n{','.join('x' * len(header.split(',')))}\n")
        with pytest.raises(InputError, match=rf"olumns: {shown}\.$"):
            read_reports(tmp_path / "b.csv", mo.Read(id_column="nr"))


@pytest.mark.parametrize(
    "rows", ["r1,No acute process.\nr2,Small effusion.", "a,No acute process.\nb,No acute process."]
)
def test_the_first_report_of_a_file_without_header_is_not_shown(tmp_path, rows):
    path = tmp_path / "a.csv"
    path.write_text(f"{rows}\n")
    with pytest.raises(InputError, match=r"olumns: '[ra]1?', a text of 17 characters\.$"):
        read_reports(path, mo.Read(id_column="nr"))


def test_packed_files_that_would_fill_the_memory(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"study_id,report\n" + bytes(1 << 27)))
    with pytest.raises(InputError, match=r"^.* unpacks to more than 300 times its size"):
        read_reports(path)
    path.write_bytes(gzip.compress(b"id,report\n" + b"".join(b"%d,No acute process.\n" % i for i in range(99_999)), 9))
    assert len(read_reports(path).ids) == 99_999


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_alone(tmp_path, encoding):
    for name, read in (("a.csv", read_reports), ("a.csv", read_predictions), ("a.json", read_reports)):
        (tmp_path / name).write_bytes("\n".encode(encoding))
        with pytest.raises(InputError, match=r".* is empty\. Fetch it again"):
            read(tmp_path / name)


def test_large_text_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "PIECE", 7)
    path = tmp_path / "a.csv"
    path.write_bytes(table().encode())
    assert "".join(text_files.text_pieces(path)) == table()
    assert text_files.stream_encoding(path) == "utf-8"
    (tmp_path / "b.csv").write_bytes(table().encode("utf-16"))
    assert [*text_files.text_pieces(tmp_path / "b.csv")] == [table()]
    assert read_table(path).n_rows == 3


def test_a_file_that_does_not_fit_into_memory(tmp_path, monkeypatch):
    def full(path):
        raise MemoryError

    path = tmp_path / "a.csv"
    path.write_text(table())
    monkeypatch.setattr(Path, "read_bytes", full)
    with pytest.raises(InputError, match=r"^.*a\.csv does not fit into memory\. Split the file\.$"):
        read_reports(path)
