import gzip
import json
import os
import random
import re
import subprocess
import sys

import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.predictions import read_predictions
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import read_reports

SECRET = "Zzsecret finding"  # stands for report text, which no message may quote
DICOM = [f"{i:08x}-00000000-00000000-00000000-00000000" for i in range(9)]


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file and gives its path."""

    def make(name, content):
        path = tmp_path / name
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return make


def fails(match, *arguments, **options):
    """Check that reading ends in one line that matches and tells nothing of the reports."""
    with pytest.raises(InputError, match=rf"^read_predictions: {match}") as caught:
        read_predictions(*arguments, Read(**options))
    assert "\n" not in str(caught.value)
    assert SECRET.split()[0] not in str(caught.value)


def read(*arguments, **options):
    reports = read_predictions(*arguments, Read(**options))
    return dict(zip(reports.ids, reports.texts, strict=True)), reports


@pytest.fixture
def annotation(write):
    """Return R2Gen's annotation.json of IU X-ray: two images a report, one split after the other."""
    items = {
        split: [
            {"id": f"CXR{n}_IM-{n:04}", "report": f"Report {n}.", "image_path": [f"CXR{n}/0.png", f"CXR{n}/1.png"]}
            for n in numbers
        ]
        for split, numbers in (("train", [1, 2]), ("val", [3]), ("test", [9, 4, 7]))
    }
    return write("annotation.json", json.dumps(items))


# One reader for every model's files


def test_r2gen(write, annotation):
    path = write("res.csv", 'no acute disease .\n"heart , lungs normal ."\n""\n')
    texts, reports = read(path, ids=annotation)
    assert texts == {"CXR9_IM-0009": "no acute disease .", "CXR4_IM-0004": "heart , lungs normal .", "CXR7_IM-0007": ""}
    assert reports.states == {"missing": [], "empty": ["CXR7_IM-0007"], "tokenless": []}
    assert reports.source == ("CSV of one column without header, in the order of annotation.json, id id, 3 of 3 rows")


def test_r2gen_mimic_has_an_item_an_image(write):
    items = [
        {"id": DICOM[i], "study_id": 50000000 + i // 2, "subject_id": 1, "report": "x", "image_path": ["a"], "split": s}
        for i, s in enumerate(["test"] * 4)
    ]
    ids = write("annotation.json", json.dumps({"train": [{**items[0], "id": "other"}], "val": [], "test": items}))
    views = write(
        "metadata.csv.gz",
        "dicom_id,study_id,ViewPosition\n"
        + "".join(f"{DICOM[i]},{50000000 + i // 2},{v}\n" for i, v in enumerate(["LATERAL", "PA", "AP", "LL"])),
    )
    path = write("res.csv", "a\nb\nc\nd\n")
    texts, reports = read(path, ids=ids, metadata=views)
    assert texts == {"50000000": "b", "50000001": "c"}
    assert reports.counts["duplicate"] == 2
    fails(
        r".* has 2 ids with several texts: '50000000', '50000001'. Pass `mo\.Read\(meta",
        path,
        ids=ids,
    )


def test_annotation_is_a_table_of_reports(annotation):
    reports = read_reports(annotation, Read(split="test"))
    assert reports.ids == ["CXR9_IM-0009", "CXR4_IM-0004", "CXR7_IM-0007"]
    assert reports.texts == ["Report 9.", "Report 4.", "Report 7."]


def test_blank_lines_are_reports(write):
    ids = write("ids.txt", "a\nb\nc\nd\n")
    for name, content in (
        ("res.csv", "\none\n\ntwo\n"),
        ("res.csv", '""\n"one"\n""\r\ntwo'),
        ("gen.txt", "\none\n\ntwo\n"),
        ("gen.tok", "\r\none\r\n\r\ntwo\r\n"),
        ("gen.txt.gz", "\none\n\ntwo"),
    ):
        assert read(write(name, content), ids=ids)[0] == {"a": "", "b": "one", "c": "", "d": "two"}


def test_cvt2distilgpt2(write):
    path = write("test_reports_epoch-0.csv", f"report,dicom_id\nheart size normal,{DICOM[0]}\nno edema,{DICOM[1]}\n")
    texts, reports = read(path)
    assert texts == {DICOM[0]: "heart size normal", DICOM[1]: "no edema"}
    assert reports.source == "CvT2DistilGPT2 CSV, column report, id dicom_id, 2 of 2 rows"


def test_m2_trans_samples(write):
    path = write("test_1-2_samples.txt.gz", "50000001__02aa 0.5 no edema .\n50000002__03bb -1.5e-3 \n50000003__04cc 1")
    texts, reports = read(path)
    assert texts == {"50000001": "no edema .", "50000002": "", "50000003": ""}
    assert reports.source.startswith("M2 Trans samples, id first field")


def test_m2_trans_samples_of_two_images(write):
    path = write("s.txt", f"50000001__{DICOM[0]} 0.5 a\n50000001__{DICOM[1]} 0.25 b\n")
    views = write("m.csv", f"dicom_id,study_id,ViewPosition\n{DICOM[0]},50000001,LL\n{DICOM[1]},50000001,AP\n")
    fails(r".* has 1 ids with several texts: .* Pass `mo\.Read\(metadata='mimic", path)
    assert read(path, metadata=views)[0] == {"50000001": "b"}


def test_m2_trans_converted(write):
    path = write("gen.csv", "DOC_ID,Report Generated\n7,no edema\n8,clear\n")
    texts, reports = read(path)
    assert texts == {"7": "no edema", "8": "clear"}
    assert reports.source == "M2 Trans CSV, column Report Generated, id DOC_ID, 2 of 2 rows"


@pytest.mark.parametrize("header", ["report", "Report Impression", "filtered"])
def test_cxr_repair_and_redone(write, header):
    path = write("generated_reports.csv", f'{header}\n"No edema. "\n\n"Clear, normal."\n')
    ids = write(
        "reports.csv",
        "dicom_id,study_id,subject_id,report\n" + "".join(f"{DICOM[i]},5000000{i},1,{SECRET}\n" for i in range(3)),
    )
    texts, reports = read(path, ids=ids)
    assert texts == {"50000000": "No edema. ", "50000001": "", "50000002": "Clear, normal."}
    assert reports.source.startswith(f"CSV with the column {header} alone, in the order of reports.csv, id study_id")


def test_saved_pandas_index_is_no_id(write):
    path = write("generated.csv", ",report\n0,a\n1,b\n")
    assert read(path, ids=write("ids.csv", "study_id\nx\ny\n"))[0] == {"x": "a", "y": "b"}


def test_rexrank(write):
    content = (
        '{"50000001": {"report": "Findings: x", "section_findings": NaN, "image_path": ["/p10/1.jpg"],'
        ' "model_prediction": "Findings:Heart normal. Impression:No edema."},'
        ' "50000002": {"report": "y", "section_findings": "z", "model_prediction": "Clear."},'
        ' "50000003": {"report": "y", "section_findings": "z", "model_prediction": NaN}}'
    )
    path = write("submission.json", content)
    texts, reports = read(path)
    assert texts == {"50000001": "Findings:Heart normal. Impression:No edema.", "50000002": "Clear."}
    assert reports.states["missing"] == ["50000003"]
    noted = "; marks that count as words of the reports: 1 with a heading (Findings:)"
    assert reports.source == f"ReXrank JSON, column model_prediction, id object key, 2 of 3 rows{noted}"
    texts, reports = read(path, after_impression=True)
    assert texts == {"50000001": "No edema."}
    assert reports.states["missing"] == ["50000002", "50000003"]


def test_what_follows_the_first_impression_is_taken_whole(write):
    path = write("p.csv", "study_id,report\n1,Findings: a. Impression: b. Impression: c.\n")
    assert read(path, after_impression=True)[0] == {"1": "b. Impression: c."}


def test_cxr_report_metric_and_generic_tables(write):
    assert read(write("p.csv", "study_id,report\ns50000001,a\n50000002.0,b\n"))[0] == {"50000001": "a", "50000002": "b"}
    assert read(write("p.json", '{"x": "a", "y": ""}'))[0] == {"x": "a", "y": ""}
    assert read(write("p.jsonl", '{"uid": 1, "prediction": "a", "report": "r"}\n'))[0] == {"1": "a"}
    assert read(write("p.tsv", "case\thyp\n1\ta\n"), id_column="case", text_column="hyp")[0] == {"1": "a"}


def test_chexpert_plus_takes_the_first_image(write):
    rows = "valid/patient1/study2/view2_lateral.jpg,b\nvalid/patient1/study2/view1_frontal.jpg,a\n"
    assert read(write("p.csv", "path_to_image,report\n" + rows))[0] == {"patient1_study2": "a"}


def test_three_states_are_told_apart(write):
    texts, reports = read(write("p.jsonl", '{"id":1,"text":null}\n{"id":2,"text":" "}\n{"id":3,"text":"."}\n'))
    assert texts == {"2": " ", "3": "."}
    assert reports.states == {"missing": ["1"], "empty": ["2"], "tokenless": ["3"]}


def test_equal_texts_of_one_id_are_one(write):
    texts, reports = read(write("p.csv", "study_id,report\n1,a\n1,a\n2,b\n"))
    assert texts == {"1": "a", "2": "b"}
    assert reports.counts["duplicate"] == 1


# From images to studies


VIEWS = ["AP", "PA", "LATERAL", "", "LL", "", "LATERAL", "AP AXIAL", ""]
CODES = ["", "", "lateral", "antero-posterior", "", "", "lateral", "", "Erect"]
STUDIES = [1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.fixture
def views(write):
    rows = zip(DICOM, STUDIES, VIEWS, CODES, strict=True)
    text = "dicom_id,subject_id,study_id,ViewPosition,ViewCodeSequence_CodeMeaning\n"
    return write("mimic-cxr-2.0.0-metadata.csv.gz", text + "".join(f"{d},7,{s},{v},{c}\n" for d, s, v, c in rows))


def collapsed(write, views, order, seed=0):
    path = write("p.csv", "report,dicom_id\n" + "".join(f"text {i},{DICOM[i]}\n" for i in order))
    return read(path, metadata=views, seed=seed)[0]


def test_a_frontal_image_is_preferred(write, views):
    found = [collapsed(write, views, range(9), seed) for seed in range(40)]
    assert {texts["1"] for texts in found} == {"text 0", "text 1"}
    assert {texts["2"] for texts in found} == {"text 3"}  # its view is recovered from the code
    assert {texts["3"] for texts in found} == {"text 6", "text 7", "text 8"}
    assert 8 < sum(texts["1"] == "text 0" for texts in found) < 32


def test_the_choice_depends_on_the_seed_and_the_study_alone(write, views):
    order = list(range(9))
    whole = collapsed(write, views, order, 5)
    random.Random(1).shuffle(order)
    assert collapsed(write, views, order, 5) == whole
    assert collapsed(write, views, [i for i in order if STUDIES[i] != 2], 5) == {k: whole[k] for k in ("1", "3")}


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_choice_is_that_of_any_process(write, views, hash_seed):
    """Texts in a set have another order in each process."""
    path = write("p.csv", "report,dicom_id\n" + "".join(f"{i},{image}\n" for i, image in enumerate(DICOM)))
    program = (
        "import sys; from metric_oracle.corpora.predictions import read_predictions\n"
        "from metric_oracle.corpora.read import Read\n"
        "for seed in range(9):\n"
        "    print(end=''.join(read_predictions(sys.argv[1], Read(metadata=sys.argv[2], seed=seed)).texts) + ' ')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path, views], env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["038", "137", "037", "138", "138", "036", "038", "037", "036"]


def test_metadata_that_does_not_fit(write, views):
    path = write("p.csv", f"report,dicom_id\n{SECRET},{DICOM[0]}\na,zz-1\nb,zz-2\n")
    fails(
        ".* lacks 2 images of the predictions: 'zz-1', 'zz-2'. Pass the metadata",
        path,
        metadata=views,
    )
    path = write("p.csv", f"study_id,report\n1,{SECRET}\n")
    fails(
        r"metadata must be left out for predictions without image ids; got .* for .*p.csv. Leave out `metadata`\.$",
        path,
        metadata=views,
    )
    again = ".*p.csv has image '00000000-.*' with two texts, or in another study than the metadata. Repair"
    fails(again, write("p.csv", f"study_id,dicom_id,report\n2,{DICOM[0]},{SECRET}\n"), metadata=views)
    fails(again, write("p.csv", f"dicom_id,report\n{DICOM[0]},{SECRET}\n{DICOM[0]},b\n"), metadata=views)
    path = write("p.csv", f"dicom_id,report\n{DICOM[0]},{SECRET}\n")
    fails("there is no file .*no.csv. Check", path, metadata=views.with_name("no.csv"))
    fails(
        ".*v.csv has no column 'ViewPosition'. Columns",
        path,
        metadata=write("v.csv", f"dicom_id,study_id\n{DICOM[0]},1\n"),
    )


# Lines for people


def test_ids_that_lack_or_are_too_many(write, annotation):
    path = write("res.csv", f"{SECRET}\nb\n")
    fails(
        r".*res.csv has no ids \(CSV of one col.*\)\. Pass `mo\.Read\(ids=FILE\)`",
        path,
    )
    fails(
        r".*res\.csv has 2 predictions \(CSV of .*\), and .*annotation\.json has 3 ids\. Pass the file",
        path,
        ids=annotation,
    )
    fails(
        r".*p\.csv has ids, and .*annotation\.json is given for them \(CSV, column report\)\. Drop `ids`\.$",
        write("p.csv", f"study_id,report\n1,{SECRET}\n"),
        ids=annotation,
    )
    fails(r"there is no file .*no.txt", path, ids=path.with_name("no.txt"))
    fails(
        r".*ids.csv has no column with a usual id name; columns: 'a', 'b'\. Rename the column with the ids "
        r"to study_id\.",
        path,
        ids=write("ids.csv", "a,b\n1,2\n"),
    )
    fails(
        r".*ids\.csv has no row of split 'test' in its column split: 'train'\. Name another with",
        path,
        ids=write("ids.csv", "id,split\n1,train\n"),
    )


def test_damaged_and_cut_files(write):
    fails("there is no file .*no.csv", write("a.csv", "x").with_name("no.csv"))
    fails(
        r".*res\.csv has a quote that is never closed, in row 2\. Close the quote, or fetch",
        write("res.csv", f'a\n"{SECRET}'),
    )
    fails(
        r".*res.csv has 2 cells in row 3 and one in its first row\. Quote",
        write("res.csv", f"a\nb\n{SECRET},c\n"),
    )
    fails(
        ".*s.txt has a line that is not `id score text` as the first one is: line 2. Correct the line",
        write("s.txt", f"1 0.5 a\n2 {SECRET}\n"),
    )
    fails(".*cut.txt.gz is not a whole gzip file: it is damaged or cut short", _cut(write))
    fails(".*p.csv has a quote that is never closed", write("p.csv", f'study_id,report\n1,"{SECRET}'))
    fails(r".* is empty\. Fetch it again", write("p.csv", "\n"))
    fails(".*p.docx is not a table by its ending, which must be one of", write("p.docx", "x"))


def _cut(write):
    path = write("cut.txt.gz", "1 0.5 a\n" * 50)
    path.write_bytes(path.read_bytes()[:-9])
    return path


def test_columns_that_are_not_clear(write):
    path = write("p.csv", f"study_id,report,text\n1,{SECRET},b\n")
    fails(
        r".*p.csv has no column that is clearly the predictions; candidates are 'report', 'text'. "
        r"Pass `mo\.Read\(text_column='report'\)`; columns: 'study_id', 'report', 'text'",
        path,
    )
    fails(r".*p\.csv has no column that is clearly the predictions\. Pass", write("p.csv", "study_id,a\n1,b\n"))
    step = r"Pass `mo\.Read\(id_column=NAME, text_column=NAME\)`; columns: 'nr', 'words'\."
    fails(f".*p.csv has no column that is clearly the predictions\\. {step}", write("p.csv", "nr,words\n1,b\n"))
    fails(
        r".*p\.csv has no ids \(CSV, column report\)\. Pass `mo\.Read\(id_column=NAME\)`; "
        r"columns: 'nr', 'report'\. If none of them has ids, pass `mo\.Read\(ids=FILE\)` with "
        r"one id per row, in the same order\.",
        write("p.csv", "nr,report\n1,b\n"),
    )
    fails(
        ".*p.csv has several columns that can hold the ids: 'study_id', 'uid'. Pass",
        write("p.csv", f"study_id,uid,report\n1,1,{SECRET}\n"),
    )
    fails(".*p.csv has no column 'no'. Columns", path, text_column="no")
    fails(
        r"column 'report' of .* has int instead of text in row 1. Pass `mo\.Read\(text_column=",
        write("p.json", '{"a": {"report": 5}}'),
    )
    fails(
        ".*p.csv has 1 ids with several texts: '1'. Keep one row for each id",
        write("p.csv", f"study_id,report\n1,{SECRET}\n1,b\n"),
    )
    for options in ({"id_column": "a"}, {"text_column": "a"}):
        for name, content in (("p.csv", "one\ntwo\n"), ("p.txt", "one\ntwo\n")):
            fails(
                r"`id_column` and `text_column` must be left out where the predictions have no "
                "such columns; got 'a' for",
                write(name, content),
                **options,
            )
    fails(
        r"there is no usable report in .* \(2 rows, 0 duplicate, 2 missing, .*\)",
        write("p.json", '{"1": null, "2": NaN}'),
    )


def test_the_only_column_may_be_named(write):
    path = write("p.csv", "hyp\none\n")
    assert read(path, text_column="hyp", ids=write("i.txt", "a\n"))[0] == {"a": "one"}
    assert re.fullmatch(
        "CSV with the column hyp alone, .*", read(path, text_column="hyp", ids=write("i.txt", "a\n"))[1].source
    )
