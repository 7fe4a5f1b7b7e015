"""Where ids come from, in every container: a record's own id before its key, an index before a place."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import read_label_table
from metric_oracle.corpora.predictions import as_predictions
from metric_oracle.corpora.reports import as_reports
from metric_oracle.corpora.usual_names import IMAGE_IDS, STUDY_IDS

TEXTS = {"50000401": "Clear lungs.", "50000402": "Small left effusion.", "50000403": "Mild edema."}
SHUFFLED = ["50000403", "50000401", "50000402"]
NAMES = sorted((STUDY_IDS | IMAGE_IDS | {"case_no", "accession"}) - {"path_to_image"})


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
    assert pairs(as_reports(rows, mo.Read(id_column="object key"))) == TEXTS
    same = {study: {name: int(study), "report": text} for study, text in TEXTS.items()}
    assert pairs(as_reports(same)) == TEXTS


@pytest.mark.parametrize("name", ["patient_id", "filename", "key"])
def test_a_column_of_codes_beside_numbers_of_rows_is_an_error(name, tmp_path, oracle):
    pandas = pytest.importorskip("pandas")
    ours, theirs = (records(ids, name, "p{}".format) for ids in (TEXTS, SHUFFLED))
    frames = [pandas.DataFrame(rows, index=[1, 2, 4]) for rows in (ours, theirs)]
    for one, other, key in ((by_key(ours), by_key(theirs), "object key"), (*frames, "index")):
        with pytest.raises(InputError, match=f"has ids in '{key}' and in '{name}', which differ, and either may be"):
            mean(one, other)
        assert mean(*(mo.reports(side, mo.Read(id_column=name)) for side in (one, other))) == 1
        assert mean(*(mo.reports(side, mo.Read(id_column=key)) for side in (one, other))) < 1
    files = [written(tmp_path / f"{side}.json", by_key(rows)) for side, rows in (("a", ours), ("b", theirs))]
    code, _, err = oracle("score", *files, "-m", "rouge-l")
    assert (code, f"in 'object key' and in '{name}'" in err) == (2, True)
    # Keys that are ids stay so, as do numbers beside what is no id of each record.
    assert as_reports(dict(zip(TEXTS, ours, strict=True))).ids == list(TEXTS)
    numbered = {str(i): {"split": "p1", "words": i, "report": text} for i, text in enumerate(TEXTS.values())}
    assert as_reports(numbered).ids == ["0", "1", "2"]


def test_a_dict_of_arrays_is_no_dict_of_texts():
    with pytest.raises(InputError, match="got dict of another layout"):
        as_reports({study: np.array([text, text]) for study, text in TEXTS.items()})


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
    assert (
        as_reports(cases, mo.Read(id_column="case")).ids
        == as_reports(cases.drop(columns="dicom_id")).ids
        == list(TEXTS)
    )
    with pytest.raises(InputError, match="no column with a usual id name"):
        as_reports(frame.drop(columns="dicom_id").reset_index(drop=True))


UNORDERED = {
    "set": lambda: {"A.", "B."},
    "frozenset": lambda: frozenset(["A.", "B."]),
    "dict_keys": lambda: dict.fromkeys(["A.", "B."]).keys(),
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


def test_a_message_about_many_columns_is_short(tmp_path, monkeypatch, oracle):
    monkeypatch.chdir(tmp_path)
    wide = {f"case{study}": {f"row{i}": "x" for i in range(3000)} for study in "ab"}
    files = [written(Path(f"{side}.json"), wide) for side in "ab"]
    code, _, err = oracle("score", *files, "-m", "rouge-l")
    assert code == 2
    assert err.count("and 2,988 more") == 2
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
            InputError, match=r"a list of 2 texts in row 2: several references or samples, or sentences of a"
        ):
            as_reports(given)


def report_rows(ids, *names):
    """Return records whose id in each column of `names` is made of the study's, as no other column's is."""
    kinds = {"study_id": str, "dicom_id": lambda i: f"d{i}", "uid": lambda i: i[-1], "id": lambda i: f"r{i}"}
    kinds |= {"image_id": kinds["dicom_id"], "study": str, "case": lambda i: f"c{i}"}
    return [{**{name: kinds[name](study) for name in names}, "report": TEXTS[study]} for study in ids]


@pytest.mark.parametrize(
    ("ours", "theirs", "joined"),
    [
        (("study_id", "dicom_id"), ("dicom_id",), "d50000401"),
        (("dicom_id",), ("study_id", "dicom_id"), "d50000401"),
        (("study_id", "id"), ("id",), "r50000401"),
        (("study_id", "DICOM_ID"), ("dicom_id",), "d50000401"),
        (("study_id", "uid"), None, None),  # which of two is not settled
    ],
)
def test_a_column_that_both_sides_have_comes_before_any_other(ours, theirs, joined, tmp_path):
    if theirs is None:
        with pytest.raises(InputError, match="several columns that can hold the ids: 'study_id', 'uid'"):
            mean(report_rows(TEXTS, *ours), TEXTS)
        return
    one = [{name.upper() if name == "dicom_id" and "DICOM_ID" in ours else name: cell for name, cell in row.items()}
           for row in report_rows(TEXTS, *map(str.lower, ours))]  # fmt: skip
    other = report_rows(SHUFFLED, *theirs)
    pl.DataFrame(one).write_csv(tmp_path / "a.csv")
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, other)))
    for references, predictions in ((one, other), (tmp_path / "a.csv", tmp_path / "b.jsonl"), (iter(one), iter(other))):
        scores = mo.score(references, predictions, "rouge-l")
        assert scores.table["query_id"].to_pylist()[0] == joined
        assert scores.mean() == {"rouge-l": 1}


def test_a_column_that_the_caller_names_for_one_side_is_looked_for_on_the_other():
    ours, theirs = report_rows(TEXTS, "study_id", "case"), report_rows(SHUFFLED, "id", "case")
    assert mean(mo.reports(ours, mo.Read(id_column="case")), theirs) == 1
    assert mean(ours, mo.reports(theirs, mo.Read(id_column="case"))) == 1


@pytest.mark.parametrize("names", [("study_id", "image_id"), ("dicom_id", "uid")])
def test_ids_of_studies_and_of_images_are_not_joined(names, oracle, tmp_path):
    ours, theirs = (
        [{name: i, "report": f"{i} edema"} for i in ids] for name, ids in zip(names, ("123", "312"), strict=True)
    )
    with pytest.raises(InputError, match=rf"must have ids of one kind; got .* in '{names[0]}' and .* in '{names[1]}'"):
        mean(ours, theirs)
    assert mean(ours, mo.reports(theirs, mo.Read(id_column=names[1]))) == 1
    for name, rows in (("a", ours), ("b", theirs)):
        pl.DataFrame(rows).write_csv(tmp_path / f"{name}.csv")
    code, _, err = oracle("score", tmp_path / "a.csv", tmp_path / "b.csv", "-m", "rouge-l")
    assert (code, "--id-column" in err) == (2, True)


def test_columns_of_two_names_are_told(oracle, tmp_path):
    for name, rows in (("a", report_rows(TEXTS, "study")), ("b", report_rows(SHUFFLED, "study_id"))):
        pl.DataFrame(rows).write_csv(tmp_path / f"{name}.csv")
    code, _, err = oracle("score", tmp_path / "a.csv", tmp_path / "b.csv", "-m", "rouge-l")
    assert code == 0
    assert "ids: study of the references is joined with study_id of the predictions" in err


def test_texts_are_paired_by_place_only_where_neither_side_has_ids(tmp_path):
    texts = ["A.", "B.", "C."]
    keyed = dict(zip("012", texts, strict=True))
    for sides in ((texts, keyed), (keyed, texts), (texts, [{"id": i, "report": t} for i, t in keyed.items()])):
        with pytest.raises(
            InputError, match=r"references and predictions must both have ids, or neither; got (no )?ids"
        ):
            mean(*sides)
    with pytest.raises(InputError, match="must both have ids, or neither"):
        mo.best_of([[text, text] for text in texts], keyed, "rouge-l")
    assert mo.best_of([[text, text] for text in texts], texts, "rouge-l").signature["n"] == 3
    with pytest.raises(InputError, match=r"texts without ids must be as many on both sides; got 3 references and 2"):
        mean(texts, texts[:2], inner=True)
    index = mo.build_index(texts, tmp_path / "INDEX", metrics="bleu,rouge-l")
    assert mo.study(index, texts, {"a": texts}, metrics="bleu").keys() >= {"a"}
    with pytest.raises(InputError, match=r"test reports and model 'a' must both have ids, or neither"):
        mo.study(index, texts, {"a": keyed}, metrics="bleu")
    with pytest.raises(InputError, match=r"references and set 'a' must both have ids, or neither"):
        mo.overlap(index, {"a": keyed}, references=texts)
    found = mo.overlap(index, {"a": texts})
    assert not found.sets["a"].is_same["id"].any()  # places of two lists are no ids
    assert mo.overlap(index, {"a": keyed}).sets["a"].is_same["id"].all()


@pytest.mark.parametrize("inner", [False, True])
def test_few_common_ids_stop_a_score(inner):
    ours = {f"s{i}": "Edema." for i in range(10)}
    theirs = {f"s{i}" if i < 3 else f"Edema of {i}": "Edema." for i in range(8)}
    match = (
        r"must share at least half of the ids of the side with fewer; got 3 of 8 in common, such as 's0', 's1', 's2' "
        r"and 's0', 's1', 's2'\. Name the column of the ids: "
    )
    with pytest.raises(InputError, match=match):
        mean(ours, theirs, inner=inner)
    reverse = dict(reversed(theirs.items()))
    with pytest.raises(InputError, match=r"and 'Edema of 7', 'Edema of 6', 'Edema of 5'\. Name"):
        mean(ours, reverse, inner=inner)
    with pytest.warns(UserWarning, match="^left out: 8 without a prediction$"):
        assert mean(ours, {i: ours[i] for i in ("s3", "s1")}, inner=True) == 1


def test_two_columns_of_one_table_without_ids_are_paired_by_row(tmp_path, oracle, named):
    pairs_ = [{"prediction": "Clear.", "reference": "Clear."}, {"prediction": "A mass.", "reference": "No mass."}]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, pairs_)))
    pl.DataFrame(pairs_).write_csv(tmp_path / "a.csv")
    for file in (path, tmp_path / "a.csv"):
        both = [named(column, file, text_column=column) for column in ("reference", "prediction")]
        code, out, err = oracle("score", *both, "-m", "rouge-l", "--format", "csv")
        assert code == 0, err
        assert pl.read_csv(out.encode())["rouge-l"].to_list() == [1, 0.5]
        assert oracle("score", file, file, "-m", "rouge-l", "--format", "csv")[:2] == (0, out)
        code, _, err = oracle("score", "reference", "reference", "-m", "rouge-l")
        assert (code, "got 'reference', 'reference' of the columns" in err) == (2, True)
    frame = pl.DataFrame(pairs_)
    sides = mo.reports(frame, mo.Read(text_column="reference")), mo.reports(frame, mo.Read(text_column="prediction"))
    assert mean(*sides) == mean(frame, frame) == 0.75
    frame = frame.rename({"prediction": "ours"})
    with pytest.raises(InputError, match=r"must be two columns of a table without ids that is given for both"):
        mean(frame, frame)
    (tmp_path / "b.csv").write_bytes((tmp_path / "a.csv").read_bytes())
    code, _, err = oracle(
        "score", named("b", tmp_path / "b.csv", text_column="reference"), "prediction", "-m", "rouge-l"
    )
    assert (code, "None of its columns can hold ids: add one, such as study_id" in err) == (2, True)


def test_reports_of_texts_have_the_rules_of_containers():
    pd = pytest.importorskip("pandas")
    made = mo.Reports.from_texts(pd.Series(["A.", "B."], index=["s2", "s1"]))
    assert pairs(made) == {"s2": "A.", "s1": "B."}
    with pytest.raises(mo.MetricOracleError, match="texts must be"):  # whose keys would be the texts
        mo.Reports.from_texts({"s2": "A.", "s1": "B."})
    assert mo.Reports.from_texts(pd.Series(["A.", "B."]), ["s2", "s1"]).ids == ["s2", "s1"]
    for texts, ids in (({"A.", "B."}, None), (["A.", "B."], {"s1", "s2"})):
        with pytest.raises(InputError, match="must be in an order; got a set"):
            mo.Reports.from_texts(texts, ids)
    with pytest.raises(InputError, match="texts must be texts alone; got a table"):
        mo.Reports.from_texts(pl.DataFrame({"id": ["s1"], "text": ["A."]}))
    with pytest.raises(InputError, match="must be in an order; got a set"):
        mo.reports(["A.", "B."], embeddings=np.eye(2), embedding_ids={"0", "1"}).load()


def test_tables_of_labels_are_joined_on_the_column_that_both_have(tmp_path):
    ours = pl.DataFrame({"study_id": ["1", "2", "3"], "id": ["c", "b", "a"], "Edema": [1, 0, 0]})
    theirs = pl.DataFrame({"id": ["a", "b", "c"], "Edema": [0, 0, 1]})
    images = theirs.select(pl.Series("dicom_id", ["3", "2", "1"]), "Edema")
    for name, frame in (("a", ours), ("b", theirs), ("c", images)):
        frame.write_csv(tmp_path / f"{name}.csv")
    score = mo.score_crg(tmp_path / "a.csv", tmp_path / "b.csv", uncertain="negative")
    assert score.levels[0].counts[:, 1:3].tolist() == [[0, 0]]
    with pytest.raises(
        InputError, match="must have ids of one kind; got studies in 'study_id' and images in 'dicom_id'"
    ):
        mo.score_crg(tmp_path / "a.csv", tmp_path / "c.csv", uncertain="negative")
