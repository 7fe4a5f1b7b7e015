"""Where ids come from, in every container: a record's own id before its key, an index before a place."""

import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.corpora.predictions import as_predictions
from metric_oracle.corpora.reports import as_reports
from metric_oracle.corpora.tables import IMAGE_ID_NAMES, STUDY_ID_NAMES
from metric_oracle.corpora.vectors import read_label_table
from metric_oracle.errors import InputError

TEXTS = {"50000401": "Clear lungs.", "50000402": "Small left effusion.", "50000403": "Mild edema."}
SHUFFLED = ["50000403", "50000401", "50000402"]
NAMES = [name for name in (*STUDY_ID_NAMES, *IMAGE_ID_NAMES) if name != "path_to_image"]


def pairs(reports):
    return dict(zip(reports.ids, reports.texts, strict=True))


def mean(references, predictions, **more):
    return mo.score(references, predictions, "rouge-l", **more).mean()["rouge-l"]


def records(ids, name="study_id", kind=int):
    return [{name: kind(study), "report": TEXTS[study]} for study in ids]


def by_key(rows):
    return {str(place): row for place, row in enumerate(rows)}


def written(path, data):
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_records_own_id_comes_before_its_key(name, tmp_path, oracle):
    ours, theirs = (by_key(records(ids, name)) for ids in (TEXTS, SHUFFLED))
    assert as_reports(ours).ids == list(TEXTS)
    assert mean(ours, theirs) == 1
    assert mean(records(TEXTS, name, str), theirs) == 1
    files = [written(tmp_path / f"{side}.json", data) for side, data in (("a", ours), ("b", theirs))]
    code, out, _ = oracle("score", *files, "-m", "rouge-l", "--format", "csv")
    assert code == 0
    assert pl.read_csv(out.encode())["rouge-l"].to_list() == [1, 1, 1]
    assert mo.build_index(files[0], tmp_path / "INDEX", metrics="bleu").take("study_id", np.arange(3)).to_pylist() == [
        *TEXTS
    ]


def test_images_of_one_study_are_one_study(tmp_path):
    ours = {"d1": {"study_id": 1, "report": "Clear."}, "d2": {"study_id": "1", "report": "Clear."}}
    ours |= {"d3": {"study_id": 2, "report": "Edema."}}
    theirs = {key: {**ours[key], "report": "Clear."} for key in ("d3", "d2", "d1")}
    for given in (ours, written(tmp_path / "a.json", ours)):
        assert pairs(as_reports(given)) == {"1": "Clear.", "2": "Edema."}
        assert mean(given, theirs) == 0.5
    with pytest.raises(InputError, match="1 ids with several texts: '1'"):
        as_predictions({**theirs, "d1": {"study_id": 1, "report": "Edema."}})


def test_labels_of_an_object_are_joined_on_the_records_own_id(tmp_path):
    rows = {"0": {"study_id": 50000403, "Edema": 1}, "1": {"study_id": 50000401, "Edema": 0}}
    assert read_label_table(written(tmp_path / "a.json", rows)).ids == ["50000403", "50000401"]


@pytest.mark.parametrize("own", [{"image_id": "x"}, {"id": None}])
def test_an_id_that_may_be_another_kind_than_the_key_is_an_error(own, tmp_path):
    rows = {
        study: {name: value or place for name, value in own.items()} | {"report": text}
        for place, (study, text) in enumerate(TEXTS.items())
    }
    name = next(iter(own))
    with pytest.raises(
        InputError,
        match=rf"ids in 'object key' and in '{name}', which differ.* of the studies\. Pass one of these names",
    ):
        as_reports(rows)
    assert pairs(as_reports(rows, id_column="object key")) == TEXTS
    same = {study: {name: int(study), "report": text} for study, text in TEXTS.items()}
    assert pairs(as_reports(same)) == TEXTS


def test_the_index_of_a_series_comes_before_its_place():
    pd = pytest.importorskip("pandas")
    ours = pd.Series(list(TEXTS.values()), index=pd.Index([*map(int, TEXTS)], name="study_id"))
    theirs = ours.iloc[[2, 0, 1]]
    assert mean(ours, theirs) == 1
    assert mean(theirs, TEXTS) == 1
    assert mo.compute(predictions=theirs, references=ours, metrics="rouge-l") == {"rouge-l": 1}
    assert as_reports(theirs).ids == as_predictions(theirs).ids == SHUFFLED
    assert as_reports(theirs.reset_index(drop=True)).ids == ["0", "1", "2"]
    assert as_reports(theirs.reset_index(drop=True).iloc[1:]).ids == ["1", "2"]
    mixed = pd.Series(["A.", "B."], index=[7, "50000401"])
    assert pairs(as_reports(mixed)) == {"7": "A.", "50000401": "B."}
    twice = pd.Series(["A.", "A.", "B."], index=["s1", "s1", "s2"])
    assert pairs(as_reports(twice)) == {"s1": "A.", "s2": "B."}
    groups = pd.Series([["A.", "B."], ["C."]], index=["s1", "s2"])
    assert mo.read_samples(groups).ids == ["s1", "s2"]
    with pytest.raises(InputError, match="there is no id in row 1 of"):
        as_reports(pd.Series(["A."], index=pd.MultiIndex.from_tuples([("p1", "s1")])))


def test_the_index_of_a_frame_is_a_column_of_ids():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"dicom_id": ["a", "b", "c"], "report": list(TEXTS.values())}, index=[*map(int, TEXTS)])
    assert as_reports(frame.rename_axis("study_id")).ids == list(TEXTS)
    assert as_reports(frame).ids == ["a", "b", "c"]
    assert pairs(as_reports(frame.drop(columns="dicom_id").iloc[[2, 0, 1]])) == {i: TEXTS[i] for i in SHUFFLED}
    cases = frame.rename_axis("case")
    assert as_reports(cases, id_column="case").ids == as_reports(cases.drop(columns="dicom_id")).ids == list(TEXTS)
    with pytest.raises(InputError, match="no column with a usual id name"):
        as_reports(frame.drop(columns="dicom_id").reset_index(drop=True))


UNORDERED = {
    "set": lambda: {"A.", "B."},
    "frozenset": lambda: frozenset(["A.", "B."]),
    "dict_keys": lambda: dict.fromkeys(["A.", "B."]).keys(),
    "generator": lambda: (text for text in {"A.", "B."}),
    "map": lambda: map(str.strip, {"A.", "B."}),
    "set_iterator": lambda: iter({"A.", "B."}),
}


@pytest.mark.parametrize("kind", UNORDERED)
def test_a_container_without_an_order_is_refused(kind):
    with pytest.raises(InputError, match=f"reports must be in an order; got a {kind}. Pass a list"):
        as_reports(UNORDERED[kind]())
    with pytest.raises(InputError, match="must be in an order"):
        mo.score(["A.", "B."], UNORDERED[kind](), "rouge-l")


def test_a_generator_can_be_read_twice():
    assert mean((text for text in TEXTS.values()), dict(zip("012", TEXTS.values(), strict=True)).values()) == 1


def test_a_dict_of_columns_is_a_table_of_reports_and_no_dict_of_studies():
    columns = {"study_id": [*map(int, SHUFFLED)], "report": [TEXTS[i] for i in SHUFFLED]}
    for given in (columns, {name: pa.array(cells) for name, cells in columns.items()}):
        assert mean(TEXTS, given) == 1
    for call in (
        lambda: mo.read_samples(columns),
        lambda: mo.consensus(columns, "rouge-l"),
        lambda: mo.best_of(columns, TEXTS, "rouge-l"),
    ):
        with pytest.raises(InputError, match=r"candidates must have study ids as keys where .*; got a dict of columns"):
            call()
    with pytest.raises(InputError, match=r"^pairwise: groups must be groups of texts; got a dict of columns"):
        mo.pairwise(columns, "rouge-l")
    with pytest.raises(InputError, match=r"a dict of columns must have lists of one length; got 2 to 3 cells in the"):
        as_reports({**columns, "report": ["A.", "B."]})


ORIENTS = {
    "records": lambda ids, index: records(ids),
    "index": lambda ids, index: dict(zip(index, records(ids), strict=True)),
    "list": lambda ids, index: {"study_id": ids, "report": [TEXTS[i] for i in ids]},
    "columns": lambda ids, index: {
        "study_id": dict(zip(index, ids, strict=True)),
        "report": {key: TEXTS[study] for key, study in zip(index, ids, strict=True)},
    },
    "split": lambda ids, index: {
        "columns": ["study_id", "report"],
        "index": index,
        "data": [[study, TEXTS[study]] for study in ids],
    },
    "table": lambda ids, index: {"schema": {"fields": []}, "data": records(ids)},
}


@pytest.mark.parametrize("index", ["012", "752"])
@pytest.mark.parametrize("orient", ORIENTS)
def test_what_pandas_writes_as_json_is_read_in_every_layout(orient, index, tmp_path):
    data = ORIENTS[orient](SHUFFLED, list(index))
    for given in (data, written(tmp_path / "a.json", data)):
        if isinstance(given, list):
            given = pl.DataFrame(given)
        assert pairs(as_reports(given)) == {i: TEXTS[i] for i in SHUFFLED}
        assert mean(TEXTS, given) == 1


def test_an_index_of_ids_alone_is_read_from_json(tmp_path):
    columns = {"report": TEXTS}
    assert pairs(as_reports(written(tmp_path / "a.json", columns))) == TEXTS
    split = {"columns": ["report"], "index": list(TEXTS), "data": [[text] for text in TEXTS.values()]}
    assert pairs(as_reports(written(tmp_path / "b.json", split))) == TEXTS


def test_a_message_about_many_columns_is_short(tmp_path, oracle):
    wide = {f"case{study}": {f"row{i}": "x" for i in range(3000)} for study in "ab"}
    code, _, err = oracle("score", written(tmp_path / "a.json", wide), "test.csv", "-m", "rouge-l")
    assert code == 2
    assert "and 2,980 more" in err
    assert len(err) < 600


def test_a_list_of_one_text_is_that_text(tmp_path):
    lists = {study: [text] for study, text in TEXTS.items()}
    for given in (lists, written(tmp_path / "a.json", lists), [{"id": i, "report": text} for i, text in lists.items()]):
        assert pairs(as_reports(given)) == pairs(as_predictions(given)) == TEXTS
    assert mean([["A."], ["B."]], ["A.", "B."]) == 1
    lists["50000402"].append("Another.")
    samples = mo.read_samples(written(tmp_path / "b.json", lists))
    assert samples.sizes == [1, 2, 1]
    for given in (lists, tmp_path / "b.json", list(lists.values())):
        with pytest.raises(
            InputError, match=r"a list of 2 texts in row 2: several references or samples\. Keep one text"
        ):
            as_reports(given)
