"""One set of rules whatever holds the reports: files, lists, dicts, Arrow, Polars, pandas, datasets."""

import json
from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.corpora.predictions import as_predictions, read_predictions
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import Reports, as_reports, read_reports
from metric_oracle.corpora.sections import check_sections
from metric_oracle.corpora.streams import can_stream, stream_reports
from metric_oracle.corpora.texts import MISSING_WORDS
from metric_oracle.retrieval.building import build_index
from metric_oracle.scores.scoring import score
from metric_oracle.sources.labels import as_labels
from support.workbooks import write_workbook

IDS = ["50000001", "x7", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
TEXTS = [
    *("No acute process.", 'A line\nand "more", twice', None, "", " \t", "___."),
    *("nan", " NULL ", "nan", "None.", "none"),  # words that stand for a missing report; two that are reports
]
KEPT = {"50000001": TEXTS[0], "x7": TEXTS[1], "9": "None.", "10": "none"}
STATES = {"missing": ["2", "6", "7", "8"], "empty": ["3", "4"], "tokenless": ["5"]}
COUNTS = {"rows": 11, "duplicate": 0, "missing": 4, "empty": 2, "tokenless": 1, "kept": 4}
NOTE = '; words that stand for a missing report: 2 "nan", 1 "NULL"'
SECRET = "Jane Doe has an effusion"


def pairs(reports):
    return dict(zip(reports.ids, reports.texts, strict=True))


class Dataset:
    """What a Hugging Face dataset offers of what is used: features, and all rows as an Arrow table."""

    features = None
    column_names = ("id", "report")

    def __init__(self, table):
        self.table = table

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def __getitem__(self, rows):
        assert rows == slice(None)
        return self.table


def csv_file(folder, separator=",", name="a.csv", encoding="utf-8"):
    cells = ["" if text is None else '"' + text.replace('"', '""') + '"' for text in TEXTS]
    lines = [f"id{separator}report", *(f"{key}{separator}{cell}" for key, cell in zip(IDS, cells, strict=True))]
    (folder / name).write_bytes("\n".join(lines).encode(encoding))
    return folder / name


def json_lines(folder):
    path = folder / "a.jsonl"
    path.write_text("\n".join(json.dumps({"id": i, "report": text}) for i, text in zip(IDS, TEXTS, strict=True)))
    return path


def workbook(folder):
    pytest.importorskip("fastexcel", reason="the extra excel is not installed")
    rows = [["id", "report"], *zip(IDS, TEXTS, strict=True)]
    return write_workbook(
        folder / "a.xlsx", {"Reports": [[50000001 if c == IDS[0] else c for c in row] for row in rows]}
    )


def json_file(folder):
    path = folder / "a.json"
    path.write_text(json.dumps(dict(zip(IDS, TEXTS, strict=True))))
    return path


def parquet_file(folder):
    parquet.write_table(arrow(folder), folder / "a.parquet")
    return folder / "a.parquet"


def arrow(folder):
    return pa.table({"id": IDS, "report": TEXTS})


def pandas(folder):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"id": IDS, "report": TEXTS}, index=range(10, 21))


CONTAINERS = {
    "csv": csv_file,
    "json": json_file,
    "parquet": parquet_file,
    "arrow": arrow,
    "pandas": pandas,
    "tsv": lambda folder: csv_file(folder, "\t", "a.tsv"),
    "csv, semicolons, UTF-16": lambda folder: csv_file(folder, ";", encoding="utf-16"),
    "jsonl": json_lines,
    "xlsx": workbook,
    "batch": lambda folder: arrow(folder).to_batches()[0],
    "polars": lambda folder: pl.DataFrame({"id": IDS, "report": TEXTS}),
    "dataset": lambda folder: Dataset(arrow(folder)),
    "dict": lambda folder: dict(zip(IDS, TEXTS, strict=True)),
    "dict of records": lambda folder: {key: {"report": text} for key, text in zip(IDS, TEXTS, strict=True)},
    "records": lambda folder: [{"id": key, "report": text} for key, text in zip(IDS, TEXTS, strict=True)],
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_the_same_reports_from_every_container(tmp_path, container):
    data = CONTAINERS[container](tmp_path)
    reports = as_reports(data)
    assert pairs(reports) == KEPT
    assert reports.states == STATES
    assert reports.counts == COUNTS
    assert reports.words == {"nan": 2, "NULL": 1}
    assert reports.source.endswith(NOTE)
    kept = as_reports(data, mo.Read(keep_empty=True))
    assert kept.ids == ["50000001", "x7", "3", "4", "5", "9", "10"]
    assert kept.states == STATES


@pytest.mark.parametrize("container", CONTAINERS)
def test_empty_predictions_are_kept_from_every_container(tmp_path, container):
    found = as_predictions(CONTAINERS[container](tmp_path))
    expected = {key: text for key, text in zip(IDS, TEXTS, strict=True) if key not in STATES["missing"]}
    if container.startswith(("csv", "tsv", "xlsx")):  # an empty cell may be a missing report or an empty one
        expected |= {"2": ""}
    assert pairs(found) == expected
    assert found.counts["missing"] == 3 + ("2" not in expected)
    assert found.source.endswith(NOTE)


@pytest.mark.parametrize("container", ["csv", "tsv", "csv, semicolons, UTF-16", "jsonl", "parquet"])
def test_the_same_reports_piece_by_piece(tmp_path, container):
    path = CONTAINERS[container](tmp_path)
    assert can_stream(path)
    for keep_empty in (False, True):
        whole = as_reports(path, mo.Read(keep_empty=keep_empty))
        pieces = [*stream_reports(path, 2, Read(keep_empty=keep_empty))]
        assert [text for some in pieces for text in some.texts] == whole.texts
        assert {name: sum(some.counts[name] for some in pieces) for name in COUNTS} == whole.counts
        assert sum((Counter(some.words) for some in pieces), Counter()) == whole.words
        assert {state: [i for some in pieces for i in some.states[state]] for state in STATES} == STATES


def test_words_for_missing_reports_are_told(tmp_path):
    """Whatever reads reports says how many it left out for such a word; in Python it is a warning."""
    path = CONTAINERS["jsonl"](tmp_path)
    found = []
    build_index(mo.reports(path, tell=found.append), tmp_path / "told", metrics="bleu")
    build_index(mo.reports(path, tell=found.append), tmp_path / "set", metrics="bleu", shard_rows=2)
    assert found == [f"reports: JSON Lines, id id, column report, 4 of 11 rows{NOTE}", f"{path}: {NOTE[2:]}"]
    for given in ({}, {"shard_rows": 2}):
        with pytest.warns(UserWarning, match=r'words that stand for a missing report: 2 "nan", 1 "NULL"$'):
            build_index(path, tmp_path / f"warned{len(given)}", metrics="bleu", **given)
    line = r'^test reports: .*: 2 "nan", 1 "NULL"; 4 missing, left out; 2 empty, left out; 1 tokenless, left out$'
    with pytest.warns(UserWarning, match=line):
        mo.reports(path).load()


def test_every_missing_word():
    """Those of pandas but the empty cell and numbers that are none, and NaT; in labels and ids as in reports."""
    parsers = pytest.importorskip("pandas._libs.parsers")
    assert {word for word in parsers.STR_NA_VALUES if "1." not in word} | {"NaT"} == MISSING_WORDS | {""}
    for word in MISSING_WORDS:
        assert as_reports(["Clear.", f" {word}\n"]).states["missing"] == ["1"]
        labels = {"study_id": ["1"], **{name: [word] for name in LABELS}}
        assert as_labels(pl.DataFrame(labels)).values.tolist() == [[0] * 14]
        with pytest.raises(InputError, match="there is no id in row 1 of "):
            as_reports([{"id": word, "report": "Clear."}])


def test_a_missing_section_is_no_word_of_the_other():
    rows = [{"id": 1, "findings": "nan", "impression": "I."}, {"id": 2, "findings": "NaN", "impression": "nan"}]
    joined = as_reports(
        [*rows, {"id": 3, "findings": "F.", "impression": None}], mo.Read(section="findings+impression")
    )
    assert pairs(joined) == {"1": "I.", "3": "F."}
    assert joined.words == {"NaN": 1}


COLUMNS = {
    "list": list,
    "tuple": tuple,
    "generator": iter,
    "numpy": lambda texts: np.array(texts, dtype=object),
    "arrow": pa.array,
    "chunked": lambda texts: pa.chunked_array([texts[:2], texts[2:]]),
    "polars": pl.Series,
    "pandas": lambda texts: pytest.importorskip("pandas").Series(texts),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_texts_alone(column):
    reports = as_reports(COLUMNS[column](TEXTS))
    assert pairs(reports) == {"0": TEXTS[0], "1": TEXTS[1], "9": "None.", "10": "none"}
    assert reports.states == STATES
    predictions = as_predictions(COLUMNS[column](TEXTS), mo.Read(id_column=None, section=None))
    assert predictions.ids == ["0", "1", "3", "4", "5", "9", "10"]
    assert as_reports(COLUMNS[column](TEXTS), mo.Read(section="findings")).section == "findings"


def test_a_dict_is_never_searched_by_its_keys():
    assert pairs(as_reports({"s50000001": "No acute process.", 7: "Edema."})) == {
        "50000001": "No acute process.",
        "7": "Edema.",
    }


def test_columns_have_the_rules_of_files():
    frame = pl.DataFrame(
        {"study_id": [1, 2], "findings": ["F.", "G."], "impression": ["I.", None], "split": ["a", "b"]}
    )
    assert pairs(as_reports(frame)) == {"1": "I."}
    assert pairs(as_reports(frame, mo.Read(section="findings", split="b"))) == {"2": "G."}
    assert pairs(as_reports(frame, mo.Read(text_column="findings"))) == {"1": "F.", "2": "G."}
    two = pa.table([pa.array(["1"]), pa.array(["A."]), pa.array(["B."])], ["id", "report", "report"])
    with pytest.raises(
        InputError, match=r"the pyarrow\.Table in memory has no column that is clearly .* 'report', 'report'\. Pass"
    ):
        as_reports(two)
    with pytest.raises(InputError, match=r"the polars\.DataFrame in memory has no column with a usual id name"):
        as_reports(frame.drop("study_id"))


def test_ids_of_texts():
    reports = Reports.from_texts(["A.", None, "B."], ["s50000001", 7, "x"], section="impression")
    assert pairs(reports) == {"50000001": "A.", "x": "B."}
    assert reports.states["missing"] == ["7"]
    assert (reports.section, reports.section_by) == ("impression", "caller")
    assert pairs(Reports.from_texts(["A.", ""], keep_empty=True)) == {"0": "A.", "1": ""}


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: Reports.from_texts([SECRET], ["a", "b"]),
            r"^Reports\.from_texts: there are 1 texts and 2 ids",
        ),
        (lambda: Reports.from_texts([SECRET] * 2, ["a", "a"]), "an id occurs more than once in ids: 'a'"),
        (lambda: mo.Reports.from_texts([SECRET], section="history"), "section must be one of impression, fi"),
        (lambda: Reports.from_texts([]), "there is no row in the texts"),
        (
            lambda: as_reports(["", " ", None]),
            r"^there is no usable report .* 1 missing, 2 empty,",
        ),
        (
            lambda: as_reports([SECRET, 5]),
            r"^.* must be text or None; got int at position 1",
        ),
        (
            lambda: as_reports([SECRET], mo.Read(text_column="x")),
            "text_column must be left out for texts without columns",
        ),
        (lambda: as_reports([SECRET], mo.Read(split="test")), "split must be left out for texts without columns"),
        (
            lambda: as_reports({"1": SECRET}, mo.Read(encoding="utf-8")),
            "encoding must be left out for the dict in memory",
        ),
        (
            lambda: as_predictions({"1": SECRET}, mo.Read(separator=";")),
            "separator must be left out for the dict in memory",
        ),
        (lambda: as_reports({"1": SECRET}, mo.Read(profile="mit")), "profile must be left out for the dict in memory"),
        (lambda: as_reports({"1": 5}), "must be a path, texts, a dict of id -> text, .*; got dict of another layout"),
        (lambda: as_reports({}), r"^there is no row in the dict in memory\. Check"),
        (lambda: as_reports([{"id": 1, "text": SECRET}, SECRET]), "got list of another layout"),
        (lambda: as_reports(5), r"^reports must be a path, .*; got int\. Make a list"),
        (lambda: as_reports(b"abc"), "got bytes of another layout"),
        (lambda: as_reports(np.array(SECRET)), r"got numpy\.ndarray"),
        (
            lambda: mo.reports({"1": SECRET}, mo.Read(section="x")),
            "^Read: section must be one of",
        ),
        (
            lambda: as_reports(Reports.from_texts([SECRET]), mo.Read(section="findings")),
            "section must be left out for Reports",
        ),
        (lambda: as_predictions(Reports.from_texts([SECRET]), mo.Read(seed=3)), "seed must be left out for Reports"),
        (lambda: as_predictions([SECRET], mo.Read(ids="a.json")), "ids must be left out for texts without columns"),
        (
            lambda: as_predictions([SECRET, 5]),
            "^the predictions in memory must be text or None",
        ),
    ],
)
def test_what_makes_no_sense(call, match):
    with pytest.raises(InputError, match=match) as caught:
        call()
    assert "Jane" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reports", [["A."], {"1": "A."}, "a.csv", Reports.from_texts(["A."])])
def test_unknown_options_are_type_errors_of_the_public_function(reports):
    match = r"^reports: there is no argument 'sectoin'\. Its arguments are data, read, tell, radgraph"
    with pytest.raises(TypeError, match=match):
        mo.reports(reports, sectoin="findings")
    with pytest.raises(TypeError, match=r"^Read: there is no argument 'sectoin'\. Did you mean 'section'\?$"):
        mo.reports(reports, mo.Read(sectoin="findings"))
    match = r"^reports: there is no argument 'section'\. Write `mo\.Read\(section=\.\.\.\)`\.$"
    with pytest.raises(TypeError, match=match):
        mo.reports(reports, section="findings")


def test_reports_stay_as_they_are():
    reports = Reports.from_texts(["A."])
    assert as_reports(reports, mo.Read(section=None, split=None)) is reports
    assert as_predictions(reports, mo.Read(seed=0)) is reports


# Sections

BOTH = 'study,impression,findings\n1,I.,F.\n2,,F.\n3,I.,\n4,,\n5,"",\n6,I., \n'


def test_findings_and_impression_are_joined(tmp_path):
    path = tmp_path / "mimic_cxr_sectioned.csv"
    path.write_text(BOTH)
    reports = read_reports(path, mo.Read(section="findings+impression"))
    assert pairs(reports) == {"1": "F. I.", "2": "F.", "3": "I.", "6": "I."}
    assert reports.states == {"missing": ["4"], "empty": ["5"], "tokenless": []}
    assert "column findings + impression" in reports.source
    assert (reports.section, reports.section_by) == ("findings+impression", "column")
    assert pairs(as_reports(pl.read_csv(path), mo.Read(section="findings+impression")))["1"] == "F. I."


def test_iu_xray_findings_and_impression(iu_xray):
    joined = read_reports(iu_xray / "indiana_reports.csv", mo.Read(section="findings+impression"))
    assert joined.counts["missing"] == 25
    apart = [
        pairs(read_reports(iu_xray / "indiana_reports.csv", mo.Read(section=name)))
        for name in ("findings", "impression")
    ]
    for study, text in pairs(joined).items():
        assert text == " ".join(side[study] for side in apart if study in side)


def test_findings_and_impression_of_report_files(tmp_path):
    (tmp_path / "s50000001.txt").write_text("\n FINDINGS: Heart.\n IMPRESSION: No acute\n process.\n")
    (tmp_path / "s50000002.txt").write_text("\n FINDINGS: Only these.\n")
    reports = read_reports(tmp_path, mo.Read(profile="mit", section="findings+impression"))
    assert pairs(reports) == {"50000001": "Heart. No acute\n process.", "50000002": "Only these."}
    with pytest.raises(InputError, match=r'section must be "impression" for profile yu2023; got \'findings\+impr'):
        read_reports(tmp_path, mo.Read(section="findings+impression"))


def test_a_table_without_one_of_the_sections_cannot_be_joined():
    match = "no column that is clearly the findings.impression; candidates are 'impression'"
    with pytest.raises(InputError, match=match):
        as_reports({"1": {"impression": "I."}}, mo.Read(section="findings+impression"))


@pytest.mark.parametrize(
    ("record", "options", "section"),
    [
        ({"impression": "I."}, {}, ("impression", "column")),
        ({"findings": "F."}, {"section": "findings"}, ("findings", "column")),
        ({"findings": "F.", "report": "R."}, {"text_column": "findings"}, ("findings", "column")),
        ({"report": "R."}, {}, (None, "")),
    ],
)
def test_reports_know_their_section(record, options, section):
    reports = as_reports({"1": record}, mo.Read(**options))
    assert (reports.section, reports.section_by) == section


JOINTLY = "Findings: Heart normal.\nImpression: Normal."


@pytest.mark.parametrize(
    ("name", "content", "options", "section"),
    [
        ("p.csv", f'id,model_prediction\n1,"{JOINTLY}"\n2,\n', {}, ("findings+impression", "headers")),
        ("p.csv", f'id,model_prediction\n1,"{JOINTLY}"\n', {"after_impression": True}, ("impression", "headers")),
        ("p.csv", f'id,model_prediction\n1,"{JOINTLY}"\n', {"section": "findings"}, ("findings", "headers")),
        ("p.csv", "id,model_prediction\n1,Normal.\n", {"section": "findings"}, ("findings", "caller")),
        ("p.csv", "id,model_prediction\n1,Normal.\n", {}, (None, "")),
        ("p.csv", "id,impression\n1,Normal.\n", {}, ("impression", "column")),
        ("p.csv", "report,dicom_id\nNormal.,1\n", {}, ("findings+impression", "paper")),
        ("p.csv", "normal .\nclear .\n", {"ids": "ids.txt"}, ("findings+impression", "paper")),
        ("p.csv", "report\nNormal.\nB.\n", {"ids": "ids.txt"}, (None, "")),
    ],
)
def test_predictions_know_their_section(tmp_path, monkeypatch, name, content, options, section):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.txt").write_text("1\n2\n")
    (tmp_path / name).write_text(content)
    found = read_predictions(name, mo.Read(**options))
    assert (found.section, found.section_by) == section


def test_headers_of_both_sections_are_no_words_of_a_prediction(tmp_path):
    texts = [JOINTLY, "FINDINGS : Heart normal. IMPRESSION:\nNormal.", "", "Impression: alone.", None]
    records = [{"id": str(i), "model_prediction": text} for i, text in enumerate([*texts, JOINTLY])]
    (tmp_path / "p.json").write_text(json.dumps(records))
    found = read_predictions(tmp_path / "p.json")
    assert found.texts == [*["Heart normal. Normal."] * 2, "", "Impression: alone.", "Heart normal. Normal."]
    assert ", without Findings: and Impression:, " in found.source
    references = as_reports(
        {i: {"findings": "Heart normal.", "impression": "Normal."} for i in ("0", "1")},
        mo.Read(section="findings+impression"),
    )
    noted = r"1 with a heading \(Findings:\)|^left out: 3 without a reference$"
    with pytest.warns(UserWarning, match=noted):
        scored = score(references, found, ["bleu", "rouge-l"], inner=True)
    assert scored.table["bleu-2"].to_pylist() == scored.table["rouge-l"].to_pylist() == [1.0, 1.0]
    as_findings = read_predictions(tmp_path / "p.json", mo.Read(section="findings"))
    assert as_findings.texts == ["Heart normal.", "Heart normal.", "", "Heart normal."]
    assert as_findings.states["missing"] == ["3", "4"]
    assert ", what follows Findings:, " in as_findings.source


def test_sections_of_two_sides():
    impression, both = ("impression", "column"), ("findings+impression", "headers")
    for one, other in ((impression, impression), (impression, (None, "")), ((None, ""), impression)):
        assert check_sections(one, other) is None
    assert check_sections((None, ""), both) == (
        "the predictions hold findings and impression under their names, and the section of the references is not "
        "known: both are compared. Pass `mo.reports(..., mo.Read(section='findings'))` or "
        "`mo.reports(..., mo.Read(section='impression'))` to compare one"
    )
    assert check_sections(both, (None, "")).startswith("the references hold findings and impression under their names")
    match = (
        r"^references and predictions must be of one section; got impression \(by column\) and "
        r"findings\+impression \(by headers\)\. Wait\.$"
    )
    with pytest.raises(InputError, match=match):
        check_sections(impression, both, step="Wait")
    with pytest.raises(
        InputError,
        match=r"^test reports and index must .* Pass `mo\.reports\(\.\.\., mo\.Read\(section='findings'\)\)`\.$",
    ):
        check_sections(impression, ("findings", "caller"), ("test reports", "index"))
    warning = check_sections(impression, ("findings+impression", "paper"))
    assert warning == (
        "the references are of section impression, but Yu et al. (2023) compare such predictions with "
        "findings+impression: pass `mo.reports(..., mo.Read(section='findings+impression'))`, or say by "
        "`mo.reports(predictions, mo.Read(section='impression'))` what the model writes"
    )


# An empty generated report


@pytest.mark.parametrize("cell", ["", '""', '" "'])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_an_empty_cell_of_predictions_is_an_empty_report(tmp_path, cell, ending):
    path = tmp_path / f"p.{ending}"
    path.write_text(f"study_id,report\n1,Normal.\n2,{cell}\n".replace(",", "\t" if ending == "tsv" else ","))
    found = read_predictions(path)
    assert found.ids == ["1", "2"]
    assert not found.texts[1].strip()
    assert found.states == {"missing": [], "empty": ["2"], "tokenless": []}
    empty = read_predictions(path, mo.Read(after_impression=True, section="impression")).states
    assert empty == {"missing": ["1"], "empty": ["2"], "tokenless": []}


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["b", "a", "c"])])
def test_categories_of_polars_are_their_texts(kind):
    frame = pl.DataFrame({"study_id": pl.Series(["b", "a"], dtype=kind), "report": ["one", "two"]})
    assert as_reports(frame, Read()).ids == ["b", "a"]
