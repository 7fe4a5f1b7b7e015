"""Columns that are known by their names: what people call ids and texts, and that nothing is guessed."""

import polars as pl
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora import usual_names
from metric_oracle.corpora.reports import as_reports
from support import write

TEXTS = ["No edema is seen.", "Large left effusion.", "Heart size is normal."]
OTHERS = ["Clear lungs.", "Some other words.", "One more report."]
IDS = ["a7", "b8", "c9"]
SPLITS = [("a7", "a7", "test"), ("", "b8", "test"), ("a7", "c9", "train")]  # a patient's number may be missing


def table(tmp_path, header, *columns):
    return write(tmp_path / "t.csv", zip(*columns, strict=True), header)


@pytest.mark.parametrize(
    "name",
    [
        "case_no",
        "Case_No",
        "case-no",
        "CaseID",
        "case",
        "accession",
        "Accession_Number",
        "exam_id",
        "uid",
        "study",
        "report_id",
        "Case No.",
        "Accession Number",
        "StudyID",
        "ExamNo",
        "Exam No.",
        "sampleId",
    ],
)
def test_ids_have_many_names(tmp_path, name):
    assert mo.read_reports(table(tmp_path, (name, "report"), IDS, TEXTS)).ids == IDS
    read = mo.read_predictions(table(tmp_path, ("subject_id", "report", name), [1, 1, 1], TEXTS, IDS))
    assert (read.ids, read.texts) == (IDS, TEXTS)


@pytest.mark.parametrize(
    "name",
    [
        "finding",
        "findings",
        "findings_text",
        "impression",
        "reference",
        "ground_truth",
        "gt",
        "target",
        "label_text",
        "report",
        "Report_Text",
    ],
)
def test_references_have_many_names(tmp_path, name):
    """Beside a column of what a model wrote, and alone."""
    if "report" not in name.lower():
        both = table(tmp_path, ("case_no", "generated_report", name), IDS, OTHERS, TEXTS)
        assert mo.read_reports(both).texts == TEXTS
    assert mo.read_reports(table(tmp_path, ("case_no", "age", name), IDS, [1, 2, 3], TEXTS)).texts == TEXTS


@pytest.mark.filterwarnings("ignore:(references|predictions):UserWarning")  # that a column was chosen
@pytest.mark.parametrize(
    "name",
    [
        "generated",
        "generated_report",
        "generated_findings",
        "prediction",
        "predicted",
        "output",
        "response",
        "answer",
        "hypothesis",
        "Model Output",
        "Report Generated",
    ],
)
def test_predictions_have_many_names(tmp_path, name):
    """The references beside them are not taken for them, whatever they are called."""
    for other in ("finding", "reference", "ground_truth", "report"):
        both = table(tmp_path, ("case_no", other, name), IDS, OTHERS, TEXTS)
        assert mo.read_predictions(both).texts == TEXTS
        frame = pl.read_csv(both)
        assert mo.score(frame, frame, "rouge-l").table.num_rows == 3 if other != "report" else True


def test_the_section_follows_from_the_name(tmp_path):
    """Of one section column it is known; the impression is the default only where the file has it."""
    for name, section in (("finding", "findings"), ("Findings Text", "findings"), ("Impressions", "impression")):
        read = mo.read_reports(table(tmp_path, ("case_no", "age", name), IDS, [1, 2, 3], TEXTS))
        assert (read.texts, read.section, read.section_by) == (TEXTS, section, "column")
    both = table(tmp_path, ("case_no", "finding", "impression"), IDS, OTHERS, TEXTS)
    assert mo.read_reports(both).texts == TEXTS
    assert mo.read_reports(both, mo.Read(section="findings")).texts == OTHERS
    alone = table(tmp_path, ("case_no", "finding"), IDS, TEXTS)
    with pytest.raises(InputError, match="no column that is clearly the impression; candidates are 'finding'"):
        mo.read_reports(alone, mo.Read(section="impression"))
    assert mo.read_predictions(table(tmp_path, ("id", "generated_findings"), IDS, TEXTS)).section == "findings"


def test_the_other_one_of_two_columns_has_the_texts(tmp_path):
    """Once the ids are known, and if the cells are several words; an index that pandas wrote is no column."""
    own = table(tmp_path, ("case_no", "dictated"), IDS, TEXTS)
    assert mo.read_reports(own).texts == mo.read_predictions(own).texts == TEXTS
    assert mo.read_samples(own).texts == [[text] for text in TEXTS]
    own = table(tmp_path, ("", "nr", "dictated"), [0, 1, 2], IDS, TEXTS)
    assert mo.read_reports(own, mo.Read(id_column="nr")).texts == TEXTS
    assert mo.read_predictions(own, mo.Read(id_column="nr")).texts == TEXTS
    for columns in ((IDS, [1, 0, 1]), (IDS, ["a/b.png", "c.png", "d.png"])):
        own = table(tmp_path, ("case_no", "dictated"), *columns)
        with pytest.raises(InputError, match="has no column that is clearly the impression"):
            mo.read_reports(own)
        with pytest.raises(InputError, match="has no column that is clearly the predictions"):
            mo.read_predictions(own)


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (("case_no", "accession", "finding"), "several columns that can hold the ids: 'case_no', 'accession'"),
        (("id", "case_no", "finding"), "several columns that can hold the ids: 'id', 'case_no'"),
        (("case_no", "finding", "reference"), "clearly the impression; candidates are 'finding', 'reference'"),
        (("case_no", "report", "generated"), "clearly the impression; candidates are 'report', 'generated'"),
        (("case_no", "output", "response"), "clearly the impression; candidates are 'output', 'response'"),
        (("case_no", "dictated", "typed"), "has no column that is clearly the impression"),
    ],
)
def test_nothing_is_guessed(tmp_path, header, match):
    with pytest.raises(InputError, match=match):
        mo.read_reports(table(tmp_path, header, IDS, TEXTS, OTHERS))


def test_a_study_id_is_before_other_ids(tmp_path):
    own = table(tmp_path, ("case_no", "study_id", "report"), OTHERS, IDS, TEXTS)
    assert mo.read_reports(own).ids == mo.read_predictions(own).ids == IDS


@pytest.fixture
def patients(monkeypatch):
    """Add a kind of ids, as one line of usual_names would."""
    monkeypatch.setattr(usual_names, "ID_NAMES", (*usual_names.ID_NAMES, ("patients", frozenset({"mrn"}))))


@pytest.mark.usefixtures("patients")
@pytest.mark.filterwarnings("error")  # nothing is told of a patient's number beside an id
@pytest.mark.parametrize("name", ["Accession", "study_id", "ExamNo", "dicom_id", "id"])
def test_a_new_kind_of_ids_comes_last(tmp_path, name):
    own = table(tmp_path, ("MRN", name, "report"), ["p1", "p1", "p2"], IDS, TEXTS)
    assert mo.read_reports(own).ids == mo.read_predictions(own).ids == IDS
    keyed = {key: {"MRN": "p1", "report": text} for key, text in zip(IDS, TEXTS, strict=True)}
    assert as_reports(keyed).ids == IDS
    alone = table(tmp_path, ("MRN", "report"), IDS, TEXTS)
    assert mo.read_reports(alone).ids == mo.read_predictions(alone).ids == IDS


@pytest.mark.usefixtures("patients")
def test_a_new_kind_of_ids_is_shared_where_a_side_has_nothing_else(tmp_path):
    truth = pl.DataFrame({"Accession": IDS, "MRN": ["p1", "p2", "p3"], "report": TEXTS})
    of_patients = pl.DataFrame({"mrn": ["p3", "p2", "p1"], "report": TEXTS[::-1]})
    assert mo.score(truth, of_patients, "rouge-l").mean() == {"rouge-l": 1.0}
    of_studies = pl.DataFrame({"study_id": IDS, "MRN": ["p1", "p1", "p1"], "report": TEXTS})
    with pytest.warns(UserWarning, match="study_id"):
        assert mo.score(truth, of_studies, "rouge-l").mean() == {"rouge-l": 1.0}
    reports = mo.Read(split="test", split_file=write(tmp_path / "s.csv", SPLITS, ("MRN", "accession", "split")))
    assert mo.read_reports(table(tmp_path, ("accession", "report"), IDS, TEXTS), reports).ids == IDS[:2]


def test_no_name_is_listed_in_two_spellings():
    listed = usual_names.IDS | usual_names.TEXTS
    assert len({name.replace("_", "") for name in listed}) == len(listed)
    assert {*map(usual_names.bare_name, listed)} == listed


def test_columns_of_the_references_count_for_the_predictions(tmp_path):
    """Where the predictions have them, are not told otherwise, and have no column that is clearly a model's."""
    refs = write(tmp_path / "r.csv", zip(IDS, TEXTS, OTHERS, strict=True), ("nr", "typed", "other"))
    same = write(tmp_path / "s.csv", zip(IDS, OTHERS, TEXTS, strict=True), ("nr", "other", "typed"))
    clear = write(tmp_path / "c.csv", zip(IDS, OTHERS, TEXTS, strict=True), ("nr", "typed", "generated"))
    given = mo.reports(refs, mo.Read(id_column="nr", text_column="typed"))
    for predictions in (same, clear, pl.read_csv(same)):
        assert mo.score(given, predictions, "rouge-l").mean() == {"rouge-l": 1.0}
    own = mo.reports(same, mo.Read(text_column="other"))
    assert mo.score(given, own, "rouge-l").mean()["rouge-l"] < 1
    match = (
        r"r\.csv has no .* predictions; candidates are 'typed', 'other'\. Say how it is read: "
        r"`mo\.reports\('.*r\.csv', mo\.Read\(id_column='nr', text_column='typed'\)\)`; columns"
    )
    with pytest.raises(InputError, match=match):
        mo.score(given, refs, "rouge-l")
    with pytest.raises(InputError, match=r"r\.csv has no column .* usual id name, and .*s\.csv has no .* predictions"):
        mo.score(refs, same, "rouge-l")


@pytest.mark.parametrize(
    "names", [("case_no", "SampleID"), ("study_id", "StudyID"), ("uid", "StudyID"), ("dicom_id", "DicomID")]
)
def test_a_name_with_its_underscores_comes_before_one_without(tmp_path, names):
    """Such files were read before names without underscores were known; what was passed over is told."""
    path = tmp_path / "a.csv"
    for first, other in (names, names[::-1]):
        path.write_text(f"{first},{other},report\n1,2,No acute process.\n3,4,Small effusion.\n")
        found = []
        read = mo.reports(path, tell=found.append).load()
        assert read.ids == (["1", "3"] if first == names[0] else ["2", "4"])
        assert any(names[0] in line for line in found), found
