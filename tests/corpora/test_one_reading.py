"""One reading or none: a column, an id or a list is taken without asking only if nothing else can be meant."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.reports import as_reports
from support import write

IDS = ["50000401", "50000402", "50000403"]
HUMAN = ["No acute process.", "Small left pleural effusion.", "Mild edema is seen."]
MODEL = ["No acute disease.", "Small effusion.", "Mild pulmonary edema."]

REFERENCES = ["reference", "gt_report", "Ground Truth", "gold", "target", "report", "findings", "written_by_doctor"]
KNOWN = ["candidate", "hyps", "Hyp", "pred_report", "pred_findings", "filtered_resps", "llm_output", "predict"]
UNKNOWN = ["what_it_said", "system 3", "dictated", "ours"]


def table(tmp_path, header, *columns, name="t.csv"):
    return write(tmp_path / name, zip(*columns, strict=True), header)


def mean(*sides):
    return mo.score(*sides, "rouge-l").mean()["rouge-l"]


def human_mean():
    return mean(dict(zip(IDS, HUMAN, strict=True)), dict(zip(IDS, MODEL, strict=True)))


@pytest.mark.filterwarnings("ignore:(references|predictions):UserWarning")  # that a column was chosen
@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("generated", KNOWN + UNKNOWN)
def test_a_reference_is_never_taken_for_the_prediction(tmp_path, reference, generated):
    """Of one table for both sides, and of the table as predictions: the right columns are read, or none is."""
    both = table(tmp_path, ("study_id", reference, generated), IDS, HUMAN, MODEL)
    refs = table(tmp_path, ("study_id", "report"), IDS, HUMAN, name="refs.csv")
    frame = pl.read_csv(both)
    forms = (both, frame, frame.to_arrow(), frame.to_dicts())
    for one, other in [*((form, form) for form in forms), *((refs, form) for form in forms)]:
        if generated in KNOWN:
            if reference in ("written_by_doctor", "report") and one is other:  # the model may have written it
                with pytest.raises(InputError, match=f"candidates are '{reference}'"):
                    mean(one, other)
                continue
            assert mean(one, other) == human_mean()
        else:
            with pytest.raises(InputError) as caught:
                mean(one, other)
            assert "candidates are" in str(caught.value)
            assert generated.split()[0] in str(caught.value)
            assert not any(text in str(caught.value) for text in HUMAN + MODEL)


@pytest.mark.parametrize("command", ["score", "study", "overlap"])
def test_commands_stop_and_give_the_option_to_paste(tmp_path, oracle, command):
    both = table(tmp_path, ("study_id", "reference", "ours"), IDS, HUMAN, MODEL)
    refs = table(tmp_path, ("study_id", "report"), IDS, HUMAN, name="refs.csv")
    index = tmp_path / "INDEX"
    mo.build_index(refs, index, metrics=["rouge-l", "bleu-2", "jaccard:3"])
    arguments = {
        "score": ["score", both, both, "-m", "rouge-l"],
        "study": ["study", index, both, f"A={both}", "-m", "rouge-l", "--out", tmp_path / "S"],
        "overlap": ["overlap", index, both, "--references", refs],
    }[command]
    code, out, err = oracle(*map(str, arguments))
    assert (code, out) == (2, "")
    assert "candidates are 'ours', 'reference'" in err
    assert "--text-column ours" in err


def test_samples_are_never_the_reference(tmp_path, oracle):
    rows = [
        {"study_id": study, "reference": text, "tries": [text, other]}
        for study, text, other in zip(IDS, HUMAN, MODEL, strict=True)
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = oracle("best-of", str(path), str(path), "-m", "rouge-l")
    assert code == 2
    assert "candidates are 'tries', 'reference'. Say how it is read: oracle reports NAME " in err
    assert "s.jsonl --text-column tries; columns" in err
    assert [*mo.read_samples(path, mo.Read(text_column="tries")).texts[0]] == [HUMAN[0], MODEL[0]]


@pytest.mark.filterwarnings("ignore:(references|predictions):UserWarning")  # that a column was chosen
def test_both_sides_are_not_one_column(tmp_path):
    """A table with one column of reports can only be meant for itself; so can a column that is named."""
    alone = table(tmp_path, ("study_id", "report"), IDS, HUMAN)
    assert mean(alone, alone) == 1
    two = table(tmp_path, ("study_id", "output", "answer"), IDS, HUMAN, MODEL, name="two.csv")
    with pytest.raises(InputError, match="candidates are 'output', 'answer'"):
        mean(two, two)
    named = mo.reports(two, mo.Read(text_column="output"))
    assert mean(named, named) == 1
    sections = pl.DataFrame({"study_id": IDS, "findings": HUMAN, "impression": MODEL})
    assert mean(sections, sections) == 1
    for frame in (
        pl.DataFrame({"study_id": IDS, "answer": HUMAN, "words": [1, 2, 3]}),
        pa.table({"id": IDS, "gt": HUMAN}),
    ):
        assert mean(frame, frame) == 1


@pytest.mark.filterwarnings("ignore:(references|predictions):UserWarning")  # that a column was chosen
def test_of_both_sections_the_wanted_one_is_read(tmp_path):
    """Predictions in columns of both sections follow the references; names with a prefix mean a section, too."""
    refs = pl.DataFrame({"study_id": IDS, "findings": HUMAN, "impression": MODEL})
    written = refs.rename({"findings": "pred_findings", "impression": "pred_impression"})
    for predictions in (refs, written, table(tmp_path, written.columns, IDS, HUMAN, MODEL)):
        for section, texts in (("findings", HUMAN), ("impression", MODEL)):
            read = (
                mo.read_predictions(predictions, mo.Read(section=section))
                if not hasattr(predictions, "columns")
                else None
            )
            assert read is None or (read.texts, read.section) == (texts, section)
            side = mo.reports(refs, mo.Read(section=section))
            assert mo.score(side, predictions, "rouge-l", text=True).table["prediction"].to_pylist() == texts
    both = table(tmp_path, ("study_id", "gt_findings", "pred_findings"), IDS, HUMAN, MODEL, name="both.csv")
    assert mean(both, both) == human_mean()


@pytest.mark.parametrize(
    "names", [["train-0.csv", "train-1.csv"], ["a/b.jsonl.gz"], [Path("a.csv")], ["x.TXT", "y.npz"], [Path("reports")]]
)
def test_names_of_files_are_no_reports(tmp_path, names):
    for call in (
        lambda: mo.build_index(names, tmp_path / "IX", metrics="rouge-l"),
        lambda: mo.score(names, names, "rouge-l"),
        lambda: mo.score(["Clear lungs."] * len(names), names, "rouge-l"),
    ):
        with pytest.raises(InputError, match=r"must be one file, or texts; got a list of . names of files"):
            call()
    assert mo.read_samples([["Clear.", "Edema."]]).sizes == [2]
    assert mean(["Compared with a.csv"], ["Compared with a.csv"]) == 1


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_a_key_twice_is_an_error(tmp_path, ending):
    path = tmp_path / f"p.{ending}"
    for text in ('{"study_id": "1", "report": "Clear.", "report": "Edema."}\n', '[{"id": "1", "gt": "x", "gt": "y"}]'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"there is a key more than once in .*: '(report|gt)'"):
            mo.read_reports(path)


def test_one_table_given_twice_is_paired_by_row(tmp_path, oracle, named):
    """Also where a column of codes, of no usual name, might be ids: both sides are the same rows."""
    path = table(tmp_path, ("nr", "ref", "hyp"), ["CXR1", "CXR2", "CXR3"], HUMAN, MODEL)
    both = [named(column, path, text_column=column) for column in ("ref", "hyp")]
    code, out, err = oracle("score", *both, "-m", "rouge-l")
    assert code == 0, err
    scores = [json.loads(line)["rouge-l"] for line in out.splitlines()]
    assert sum(scores) / 3 == human_mean()


def test_records_beside_what_is_said_of_all_of_them(tmp_path):
    """As evaluation tools write them: the only list of records in the object is the table."""
    records = [{"study_id": study, "report": text} for study, text in zip(IDS, HUMAN, strict=True)]
    for more in ({}, {"model": "m", "n": 3, "done": True, "config": {"k": 1}}):
        path = tmp_path / "r.json"
        path.write_text(json.dumps({**more, "results": records}))
        assert mo.read_reports(path).texts == HUMAN
    path.write_text(json.dumps({"model": "m", "results": records, "others": [1, 2]}))
    with pytest.raises(InputError, match="has a list of 3 parts in row 2"):
        mo.read_reports(path)


def test_ids_with_letters_and_zeros_before_the_number_get_an_advice_that_names_both():
    ours = dict(zip(["CXR00978", "CXR00979"], HUMAN, strict=False))
    theirs = dict(zip(["978", "979"], MODEL, strict=False))
    with pytest.raises(InputError, match=r"before the number \('CXR00978', '978'\): write them in one way"):
        mean(ours, theirs)


def test_a_column_of_studies_joins_before_one_of_images():
    """Both files have an accession and an image; the images of the second are in another order."""
    accessions, images = ["a1", "a2", "a3"], ["x", "y", "z"]
    ours = pl.DataFrame({"study_id": IDS, "accession": accessions, "dicom_id": images, "report": HUMAN})
    theirs = pl.DataFrame({"accession": accessions, "dicom_id": [*images[1:], images[0]], "report": HUMAN})
    assert mean(ours, theirs) == 1


def test_places_in_two_lists_are_no_ids_in_common(tmp_path):
    index = mo.build_index(HUMAN, tmp_path / "IX", metrics=["rouge-l", "bleu-2", "jaccard:3"])
    same = [mo.overlap(index, {"m": given}, resamples=1000).cells for given in (MODEL, {"0": MODEL[0], "9": MODEL[1]})]
    shares = [[cell.value for (_, name), cell in cells.items() if name == "same id"] for cells in same]
    assert shares == [[0], [0.5]]


@pytest.mark.parametrize("name", ["report", "findings", "reference"])
def test_beside_kept_words_a_usual_name_is_of_the_references_and_not_of_a_model(tmp_path, name):
    path = table(tmp_path, ("study_id", "comments", name), IDS, MODEL, HUMAN)
    reports = as_reports(path, mo.Read(section="findings") if name == "findings" else mo.Read(), keep="comments")
    assert (reports.texts, [*reports.columns["comments"]]) == (HUMAN, MODEL)
    with pytest.raises(InputError, match="candidates are 'comments'"):
        mean(dict(zip(IDS, HUMAN, strict=True)), path)
