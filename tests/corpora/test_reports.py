import gzip
import json
import os
import zipfile
from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.reports import read_reports
from metric_oracle.corpora.tables import read_table
from metric_oracle.retrieval.building import build_index
from metric_oracle.scores.baselines import baseline
from metric_oracle.scores.scoring import score
from support import AT_ONCE

SPLIT_COLUMNS = "dicom_id,study_id,subject_id,split\n"
CHEXPERT_HEADER = ",path_to_image,deid_patient_id,report,section_findings,section_impression,split\n"


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def pairs(reports):
    return dict(zip(reports.ids, reports.texts, strict=True))


# IU X-ray


def test_iu_xray_impressions(iu_xray):
    reports = read_reports(iu_xray / "indiana_reports.csv")
    assert reports.counts["rows"] == 3851
    assert reports.counts["missing"] == len(reports.states["missing"]) == 31
    assert reports.counts["kept"] == len(reports.ids) == len(reports.texts) == 3820
    marks = "marks that count as words of the reports: 3 with HTML (&amp;), 1 with a heading (Findings:)"
    assert (
        reports.source == f"IU X-ray CSV, id uid, column impression, findings not taken, 3,820 of 3,851 rows; {marks}"
    )


def test_iu_xray_findings(iu_xray):
    assert read_reports(iu_xray / "indiana_reports.csv", mo.Read(section="findings")).counts["missing"] == 514


def test_iu_xray_splits(iu_xray):
    path, split_file = iu_xray / "indiana_reports.csv", iu_xray / "r2gen_split.csv"
    n_rows = {}
    for split in ("train", "val", "test", "train+val"):
        counts = read_reports(path, mo.Read(split=split, split_file=split_file)).counts
        n_rows[split] = counts["rows"] - counts["other_split"]
        assert counts["absent"] == 0
        assert n_rows[split] == sum(counts[state] for state in ("duplicate", "missing", "empty", "tokenless", "kept"))
    assert n_rows == {"train": 2069, "val": 296, "test": 590, "train+val": 2365}


# Generic tables


def test_csv_with_words_for_missing_newlines_and_quotes(tmp_path):
    path = write(
        tmp_path,
        "a.csv",
        "\ufeffstudy_id,report\r\na,NA\r\nb,None\r\nc,null\r\nd,nan\r\n"
        'e,"One\nline, ""two"""\r\nf,5" tube\r\ng,\r\nh,""',
    )
    reports = read_reports(path)
    assert pairs(reports) == {"e": 'One\nline, "two"', "f": '5" tube'}
    assert reports.states == {"missing": ["a", "b", "c", "d", "g"], "empty": ["h"], "tokenless": []}
    assert reports.source == (
        "CSV, id study_id, column report, 2 of 8 rows; words that stand for a missing report: "
        '1 "NA", 1 "None", 1 "null", 1 "nan"'
    )


def test_unnamed_index_columns_are_ignored(tmp_path):
    path = write(tmp_path, "a.csv", ",Unnamed: 0,,study_id,report\n0,0,0,s50414267,Clear.\n1,1,1,50414268.0,Normal.\n")
    assert pairs(read_reports(path)) == {"50414267": "Clear.", "50414268": "Normal."}


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv", "a.tsv", "a.tsv.gz"])
def test_csv_and_tsv_also_packed(tmp_path, name):
    content = b"id\treport\n1\tA, b.\n" if ".tsv" in name else b'id,report\n1,"A, b."\n'
    path = write(tmp_path, name, gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    assert pairs(read_reports(path)) == {"1": "A, b."}


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"study_id": [50414267.0, 12.0, 13.0], "impression": ["Clear.", None, ""]}).write_parquet(path)
    reports = read_reports(path)
    assert pairs(reports) == {"50414267": "Clear."}
    assert reports.states == {"missing": ["12"], "empty": ["13"], "tokenless": []}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"x": "Clear.", "y": NaN}'),
        ("a.json", '{"x": {"section_impression": "Clear.", "age": 5}, "y": {"section_impression": NaN}}'),
        ("a.json", '[{"id": "x", "text": "Clear."}, {"id": "y"}]'),
        ("a.jsonl", '{"id": "x", "text": "Clear."}\n\n{"id": "y", "text": null}\n'),
        ("a.ndjson", '{"id": "x", "text": "Clear."}\n{"id": "y", "text": null}'),
        ("a.json", '{"id": "x", "text": "Clear."}\n{"id": "y", "text": null}'),
    ],
)
def test_json_layouts(tmp_path, name, content):
    reports = read_reports(write(tmp_path, name, content))
    assert pairs(reports) == {"x": "Clear."}
    assert reports.states["missing"] == ["y"]


def test_json_lines_keep_line_separators_inside_a_text(tmp_path):
    path = write(tmp_path, "a.jsonl", json.dumps({"id": 1, "text": "A\u2028b."}, ensure_ascii=False))
    assert read_reports(path).texts == ["A\u2028b."]


def test_states_and_keep_empty(tmp_path):
    path = write(tmp_path, "a.csv", "id,report\n1,\n2,  \n3,___.\n4,Clear.\n")
    dropped = read_reports(path)
    assert dropped.ids == ["4"]
    assert dropped.states == {"missing": ["1"], "empty": ["2"], "tokenless": ["3"]}
    kept = read_reports(path, mo.Read(keep_empty=True))
    assert pairs(kept) == {"2": "  ", "3": "___.", "4": "Clear."}
    assert kept.counts["kept"] == 3


def test_ids_stay_strings(tmp_path):
    mixed = write(tmp_path, "a.csv", "id,report\n007,A.\nx12.0,B.\n12.0,C.\n")
    assert read_reports(mixed).ids == ["007", "x12.0", "12.0"]
    other = write(tmp_path, "d.csv", "id,report\ns12345678,A.\n12345678.0,B.\n")
    assert read_reports(other).ids == ["s12345678", "12345678.0"]
    truth = write(tmp_path, "e.json", '[{"id": "true", "text": "A."}, {"id": true, "text": "B."}]')
    with pytest.raises(InputError, match=r"there is no id in row 2 of 'id' in .*e\.json"):
        read_reports(truth)
    numbers = write(tmp_path, "b.csv", "id,report\n007,A.\n12.0,B.\n40414267.0,C.\n")
    assert read_reports(numbers).ids == ["007", "12", "40414267"]
    mimic = write(tmp_path, "c.csv", "id,report\ns50414267,A.\n50414268.0,B.\np10/p10000032/s50414269.txt,C.\n")
    assert read_reports(mimic).ids == ["50414267", "50414268", "50414269"]


def test_rows_of_one_study_with_one_text_collapse(tmp_path):
    path = write(tmp_path, "a.csv", "dicom_id,study_id,subject_id,report\nd1,1,9,A.\nd2,1,9,A.\nd3,2,9,B.\n")
    reports = read_reports(path)
    assert pairs(reports) == {"1": "A.", "2": "B."}
    assert reports.counts["duplicate"] == 1


def test_section_decides_between_columns(tmp_path):
    path = write(tmp_path, "a.csv", "id,findings,impression,report\n1,F.,I.,R.\n")
    assert read_reports(path).texts == ["I."]
    assert read_reports(path, mo.Read(section="findings")).texts == ["F."]
    assert read_reports(path, mo.Read(text_column="report")).texts == ["R."]


def test_annotations_of_r2gen_for_mimic_cxr(tmp_path):
    """Its `id` is the image, and one study has several."""
    items = [
        {"id": image, "study_id": study, "subject_id": 1, "report": text, "image_path": [f"{image}.jpg"]}
        for image, study, text in (("d1", 50000001, "A."), ("d2", 50000001, "A."), ("d3", 50000002, "B."))
    ]
    path = write(tmp_path, "annotation.json", json.dumps({"train": items[2:], "test": items[:2]}))
    assert pairs(read_reports(path)) == {"50000001": "A.", "50000002": "B."}
    assert pairs(read_reports(path, mo.Read(split="test"))) == {"50000001": "A."}


def test_results_of_a_search_are_read(tmp_path):
    path = write(tmp_path, "r.csv", "query_id,rank,row,candidate_id,score,text\ns50000001,1,3,x,0.5,A.\n")
    assert pairs(read_reports(path)) == {"50000001": "A."}


def test_id_column_can_be_named(tmp_path):
    path = write(tmp_path, "a.csv", "id,uid,report\nx,1,A.\n")
    assert read_reports(path, mo.Read(id_column="uid")).ids == ["1"]


def test_mimic_cxr_sectioned_with_and_without_split(tmp_path):
    rows = 's50000001,"Two\nlines.",F.,,\ns50000002,,F.,,\ns50000003,Clear.,,,\n'
    path = write(tmp_path, "mimic_cxr_sectioned.csv", "study,impression,findings,last_paragraph,comparison\n" + rows)
    split_rows = (
        "d1,50000001,1,train\nd2,50000001,1,train\nd3,50000002,1,validate\nd4,50000003,1,test\nd5,50000009,1,test\n"
    )
    split_file = write(tmp_path, "split.csv.gz", gzip.compress((SPLIT_COLUMNS + split_rows).encode()))
    assert read_reports(path).source.startswith("mimic_cxr_sectioned CSV")
    assert pairs(read_reports(path)) == {"50000001": "Two\nlines.", "50000003": "Clear."}
    corpus = read_reports(path, mo.Read(split="train+validate", split_file=split_file))
    assert corpus.ids == ["50000001"]
    assert corpus.counts == {
        "rows": 3,
        "other_split": 1,
        "absent": 0,
        "duplicate": 0,
        "missing": 1,
        "empty": 0,
        "tokenless": 0,
        "kept": 1,
    }
    assert read_reports(path, mo.Read(split="test", split_file=split_file)).counts["absent"] == 1


def test_chexpert_plus_takes_the_first_image_of_a_study(tmp_path):
    rows = (
        "0,train/patient1/study5/view2_lateral.jpg,patient1,R,,Dated Monday.,train\n"
        "1,train/patient1/study5/view1_frontal.jpg,patient1,R,,Dated Sunday.,train\n"
        '2,train/patient2/study1/view1_frontal.jpg,patient2,R,F,"\nCLEAR.",train\n'
        "3,valid/patient3/study1/view1_frontal.jpg,patient3,R,F,Normal.,valid\n"
    )
    path = write(tmp_path, "df_chexpert_plus_240401.csv", CHEXPERT_HEADER + rows)
    reports = read_reports(path)
    assert pairs(reports) == {
        "patient1_study5": "Dated Sunday.",
        "patient2_study1": "\nCLEAR.",
        "patient3_study1": "Normal.",
    }
    assert reports.counts["disagreeing"] == 1
    assert reports.counts["duplicate"] == 1
    assert reports.source.startswith("CheXpert Plus CSV")
    assert read_reports(path, mo.Read(split="valid")).ids == ["patient3_study1"]
    assert read_reports(path, mo.Read(split="train")).counts["other_split"] == 1
    assert read_reports(path, mo.Read(section="findings")).counts["missing"] == 1


# Files that are none


@AT_ONCE
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.json", "a.jsonl", "a.zip"])
def test_a_pipe_is_refused_at_once(tmp_path, name):
    os.mkfifo(tmp_path / name)
    match = rf"^read_reports: {tmp_path / name} is a pipe or device\. Write it to a file"
    with pytest.raises(InputError, match=match):
        read_reports(tmp_path / name)
    with pytest.raises(InputError, match=r"a\..* is a pipe or device\. Write it"):
        read_reports(good(tmp_path), mo.Read(split="test", split_file=tmp_path / name))


@AT_ONCE
def test_a_pipe_among_report_files_is_refused_at_once(tmp_path):
    make_folder(tmp_path)
    os.mkfifo(tmp_path / "files/p10/p10000032/s50000009.txt")
    with pytest.raises(InputError, match=r"^.*s50000009\.txt is not a regular file"):
        read_reports(tmp_path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl"])
@pytest.mark.parametrize("content", ["\ufeff", "\ufeff\r\n", "\ufeff \n\n"])
def test_a_byte_order_mark_is_no_content(tmp_path, name, content):
    with pytest.raises(InputError, match=r"^.* is empty\. Fetch it again"):
        read_reports(write(tmp_path, name, content))


def test_parquet_of_times_out_of_range(tmp_path):
    path = tmp_path / "a.parquet"
    texts = pa.array(["A.", "B."])
    for column in (
        pa.array([2**62, 0], pa.timestamp("us")),
        pa.array([2**30, 0], pa.date32()),
        pa.array([0, 1], pa.timestamp("us", "Nowhere/At_all")),
    ):
        for names in (["id", "text"], ["text", "id"]):
            parquet.write_table(pa.table([column, texts], names), path)
            with pytest.raises(InputError, match=rf"column '{names[0]}' of {path} has values out of range of "):
                read_reports(path)


# MIMIC-CXR report files

MIMIC = {
    "files/p10/p10000032/s50000002.txt": " FINDINGS: Lungs clear.\n IMPRESSION: No acute\n process.\n",
    "files/p10/p10000032/s50000001.txt": " FINDINGS: Only these.\n",
    "files/p11/p11000033/s50000003.txt": " WET READ: x\n FINDINGS: Heart.\n CONCLUSION: Normal.\n IMPRESSION: Fine.\n",
}
SPLIT = SPLIT_COLUMNS + "a,50000001,1,train\nb,50000002,1,train\nc,50000003,2,test\n"


def make_folder(folder):
    for name, text in MIMIC.items():
        write(folder, name, text)
    write(folder, "files/index.html", "x")
    return folder


def make_zip(folder, members=MIMIC):
    path = folder / "mimic-cxr-reports.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize("make", [make_folder, make_zip, lambda folder: make_folder(folder) / "files"])
def test_mimic_report_files(tmp_path, make):
    path = make(tmp_path / "reports" if make is not make_zip else tmp_path)
    split_file = write(tmp_path, "mimic-cxr-2.0.0-split.csv", SPLIT)
    reports = read_reports(path)
    assert pairs(reports) == {"50000002": "No acute process.", "50000003": "Fine."}
    assert reports.states["missing"] == ["50000001"]
    assert reports.source == "MIMIC-CXR report files, profile yu2023, section impression, 2 of 3 rows"
    train = read_reports(path, mo.Read(split="train", split_file=split_file))
    assert pairs(train) == {"50000002": "No acute process."}
    assert train.counts["other_split"] == 1
    assert read_reports(path, mo.Read(split="train+test", split_file=split_file)).counts["kept"] == 2


def test_mimic_profile_mit(tmp_path):
    path = make_zip(tmp_path)
    assert pairs(read_reports(path, mo.Read(profile="mit")))["50000002"] == "No acute\n process."
    assert pairs(read_reports(path, mo.Read(profile="mit", section="findings")))["50000003"] == "Heart."


@pytest.mark.parametrize("name", ["../p10/s50000001.txt", "/p10/s50000001.txt", "C:\\p10\\s50000001.txt", "a/../../x"])
def test_zip_members_that_climb_out_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"has a member whose path leads out of the archive"):
        read_reports(make_zip(tmp_path, {**MIMIC, name: "x"}))


def test_zip_with_a_damaged_member_names_it(tmp_path):
    path = make_zip(tmp_path)
    raw = bytearray(path.read_bytes())
    start = raw.index(b"s50000002.txt") + len("s50000002.txt")
    raw[start : start + 20] = b"\xff" * 20
    path.write_bytes(raw)
    with pytest.raises(
        InputError,
        match=r"has a member that cannot be unpacked, files/p10/p10000032/s50000002\.txt: it is damaged or encrypted\.",
    ):
        read_reports(path)


def test_zip_with_a_member_that_would_fill_the_memory(tmp_path):
    path = make_zip(tmp_path, {**MIMIC, "files/p12/s50000009.txt": "IMPRESSION: x" + "\0" * (1 << 27)})
    with pytest.raises(InputError, match=r"^.* unpacks to more than 300 times its size"):
        read_reports(path)


def test_zip_with_two_members_of_one_name(tmp_path):
    path = make_zip(tmp_path)
    name = next(iter(MIMIC))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(name, " IMPRESSION: Other.\n")
    with pytest.raises(InputError, match=rf"{path} has two members called {name}"):
        read_reports(path)


def test_cut_zip_is_refused(tmp_path):
    path = make_zip(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="is not a whole zip file: it is damaged, cut short or of another format"):
        read_reports(path)


def test_folder_without_reports_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no report files such as"):
        read_reports(tmp_path)


def test_columns_make_no_sense_for_report_files(tmp_path):
    path = make_zip(tmp_path)
    for name in ("id_column", "text_column", "encoding", "separator"):
        with pytest.raises(
            InputError, match=rf"^read_reports: {name} must be left out for report files; got a value for .*\.zip\."
        ):
            read_reports(path, mo.Read(**{name: "report"}))


def test_yu2023_has_no_findings(tmp_path):
    match = (
        r'section must be "impression" for profile yu2023; .*\. Use '
        r"`mo\.Read\(profile='mit'\)`\.$"
    )
    with pytest.raises(InputError, match=match):
        read_reports(make_zip(tmp_path), mo.Read(section="findings"))


def test_report_files_need_a_split_file(tmp_path):
    with pytest.raises(InputError, match=r"has no column split\. Pass the table of splits"):
        read_reports(make_zip(tmp_path), mo.Read(split="train"))


# Errors


def good(folder):
    return write(folder, "good.csv", "id,report\n1,A.\n")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"section": "history"}, r"section must be one of impression, findings, findings\+impression; got 'history'"),
        ({"profile": "ifcc"}, "profile must be one of yu2023, mit; got 'ifcc'"),
        ({"split_file": "x.csv"}, r"`split_file` needs `split`\. Name the rows"),
        ({"split": "test", "split_file": "absent.csv"}, "there is no file absent.csv"),
        ({"id_column": "nr"}, "has no column 'nr'.*Columns: 'id', 'report'"),
        ({"text_column": "txt"}, "has no column 'txt'"),
    ],
)
def test_bad_options(tmp_path, options, match):
    with pytest.raises(InputError, match=match):
        mo.read_reports(good(tmp_path), mo.Read(**options))


def test_absent_file_is_never_text(tmp_path):
    with pytest.raises(InputError, match="there is no file or folder"):
        read_reports(tmp_path / "no acute process")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.txt", "Clear.", r"a\.txt has a report a line, and reports of radiologists need ids"),
        ("a.parquet.gz", "x", r"its ending, which must be one of \.csv"),
        ("a.csv", "", r"is empty\. Fetch it again"),
        ("a.csv", "\r\n \n", r"is empty\. Fetch it again"),
        ("a.csv", "id,report\n", r"there is no row in .*a\.csv\. Check what wrote or filtered it"),
        ("a.csv", "id,report\n1,\n", r"no usable report in .*1 missing"),
        ("a.csv", b"id,report\n1,\x00\n", "has a NUL byte in line 2, which no text has"),
        ("a.csv", gzip.compress(b"id,report\n1,A.\n", mtime=0), "is a binary file, which its ending does not say"),
        ("a.csv", b"id,report\n1,\xff\x01\n", "is a binary file, which its ending does not say"),
        (
            "a.csv.gz",
            gzip.compress(b"id,report\n1,A.\n", mtime=0)[:-6],
            "is not a whole gzip file: it is damaged or cut short",
        ),
        ("a.csv.gz", b"id,report\n1,A.\n", "is not a whole gzip file: it is damaged or cut short"),
        ("a.parquet", b"PAR1 and more", "is not a whole Parquet file"),
        ("a.json", '{"x": "A.", ', "is not valid JSON: it is broken at line 1 column"),
        ("a.json", '{"x": "A.", "x": "B."}', "there is a key more than once in objects in .*: 'x'"),
        ("a.json", '{"train": [], "test": []}', "is not a JSON object of texts, an object of objects"),
        ("a.json", '["A."]', "is not a JSON object of texts, an object of objects"),
        ("a.json", "[]", r"a\.json has no row\. Check what wrote or filtered it"),
        ("a.jsonl", '{"id": 1, "text": "A."}\nA.\n', "has no JSON object in line 2"),
        ("a.csv", 'id,report\n1,A.\n2,"B.\n3,C.\n', "has a quote that is never closed"),
        (
            "a.csv",
            "id,report\n1,A.\n2,B,C\n",
            r"has rows that cannot be read: 2 columns in the header and 3 in row 3 \(",
        ),
        ("a.csv", 'id,"report\n1,A.\n2,B\n', "cannot be read: they do not parse|has a quote that is never"),
        (
            "a.csv",
            "id,report\n1,A.\n,B.\n",
            "there is no id in row 2 of 'id' in ",
        ),
        ("a.csv", "id,report\n1,A.\n1,B.\n2,A.\n2,A\n", "has 2 ids with several texts: '1', '2'"),
        ("a.csv", "id,uid,report\n1,2,A.\n", "has several columns that can hold the ids: 'id', 'uid'"),
        (
            "a.csv",
            "nr,report\n1,A.\n",
            r".*a\.csv has no column with a usual id name\. Pass "
            r"`mo\.Read\(id_column=NAME\)`; columns",
        ),
        (
            "a.csv",
            "nr,words\n1,A.\n",
            r".*a\.csv has .*\. Pass "
            r"`mo\.Read\(id_column=NAME, text_column=NAME\)`; columns",
        ),
        (
            "a.csv",
            "id,report,prediction\n1,A.,B.\n",
            "no column that is clearly the .*; candidates are 'report', 'prediction'",
        ),
        (
            "a.csv",
            "id,report,findings\n1,A.,B.\n",
            "no column that is clearly the impression; candidates are 'report', 'findings'",
        ),
        ("a.csv", "id,words\n1,A.\n", r"has no column that is clearly the impression\. Pass"),
        ("a.csv", "id,report,report\n1,A.,B.\n", "no column that is clearly the"),
        ("a.json", '{"x": {"text": 5}}', "column 'text' of .* has int instead of text in row 1"),
        ("a.csv", "path_to_image,impression\nview1.jpg,A.\n", "no path such as train/patient1/study1/view1.jpg in row"),
    ],
)
def test_bad_files(tmp_path, name, content, match):
    with pytest.raises(InputError, match=match) as caught:
        read_reports(write(tmp_path, name, content))
    assert "\n" not in str(caught.value)


def test_messages_never_show_a_text(tmp_path):
    secret = "Jane Doe has an effusion"
    headless = write(tmp_path, "a.csv", f"s50000001,{secret}\ns50000002,{secret}\n")
    ragged = write(tmp_path, "b.csv", f"id,report\n1,{secret},x\n")
    for path in (
        headless,
        ragged,
        write(tmp_path, "c.csv", f"id,report\n{secret},A\n{secret},B\n"),
        write(tmp_path, "d.jsonl", secret),
    ):
        with pytest.raises(InputError) as caught:
            read_reports(path)
        assert "Jane" not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_column_of_reports_is_no_column_of_ids(tmp_path):
    path = write(
        tmp_path, "a.csv", "nr,impression\n1,No acute cardiopulmonary process.\n2,There is no effusion today.\n"
    )
    match = (
        r"there are sentences in place of ids in 'impression' in .*a\.csv\. Give the ids, or name "
        r"another column of ids\.$"
    )
    with pytest.raises(InputError, match=match):
        mo.read_reports(path, mo.Read(id_column="impression", text_column="impression"))
    path = write(tmp_path, "b.csv", "nr,impression\nCase of 1 May,No edema.\nThe case of 2 May,Clear.\n")
    assert mo.read_reports(path, mo.Read(id_column="nr")).ids == ["Case of 1 May", "The case of 2 May"]


@pytest.mark.parametrize(
    ("split", "content", "match"),
    [
        ("dev", "id,split\n1,test\n", "split must be one of 'test'; got 'dev'"),
        ("test+dev", "id,split\n1,test\n", "split must be one of 'test'; got 'dev'"),
        ("test", "id,split\n1,test\n1,train\n", "has two splits for study '1'"),
        ("test", "id,split\n9,test\n", "has none of the ids of the reports"),
        ("test", "id,part\n1,test\n", "has no column 'split'"),
    ],
)
def test_bad_split_files(tmp_path, split, content, match):
    with pytest.raises(InputError, match=match):
        read_reports(good(tmp_path), mo.Read(split=split, split_file=write(tmp_path, "split.csv", content)))


def test_a_column_name_must_occur_once(tmp_path):
    path = write(tmp_path, "a.csv", "id,report,report\n1,A.,B.\n")
    with pytest.raises(InputError, match="has several columns 'report'"):
        read_reports(path, mo.Read(text_column="report"))


def test_leading_blank_lines_and_repeated_names_do_not_shift_columns(tmp_path):
    table = read_table(write(tmp_path, "a.csv", "\r\n\nid,x,x\n1,2,3\n\n4,5,6"))
    assert table.names == ["id", "x", "x"]
    assert [column.to_list() for column in table.columns] == [["1", "4"], ["2", "5"], ["3", "6"]]


def test_large_cells_are_read(tmp_path):
    text = "word " * 400_000
    path = write(tmp_path, "a.csv", f'id,report\n1,"{text}"\n2,B.\n')
    assert Counter(map(len, read_reports(path).texts)) == {len(text): 1, 2: 1}


def test_ids_that_lost_their_zeros(tmp_path):
    """Spreadsheets make 12 of 0012: a file that joins but for that says so."""
    reports, split = write(tmp_path, "r.csv", "id,report\n0012,A b.\n0013,B c.\n"), "id,split\n12,test\n13,test\n"
    hint = r"\. Ids differ by leading zeros, which spreadsheets drop \('0012', '12'\): write them as text\.$"
    with pytest.raises(InputError, match="has none of the ids of the reports.*" + hint):
        read_reports(reports, mo.Read(split="test", split_file=write(tmp_path, "split.csv", split)))
    with pytest.raises(InputError, match="must share at least half of .*; got none in common.*" + hint):
        score(reports, {"12": "A b.", "13": "B c."}, "bleu")
    with pytest.raises(InputError, match=r"must have the same ids; got .*\('0012', '12'\): write them as text\.$"):
        score(reports, {"12": "A b.", "0013": "B c."}, "bleu")
    vectors = {"12": np.ones(2, np.float32), "13": np.ones(2, np.float32)}
    with pytest.raises(
        InputError, match=r"must share ids with the reports; got none of 2 report ids among 2" + ".*" + hint
    ):
        mo.reports(reports, chexbert=vectors).load()
    with pytest.raises(
        InputError, match=r"^baseline: .* must share ids with the reports; got none of 2 report ids" + ".*" + hint
    ):
        baseline(
            build_index(reports, tmp_path / "I", metrics="bleu"),
            reports,
            "nearest",
            "bleu",
            **dict.fromkeys(("corpus_vectors", "query_vectors"), vectors),
        )
