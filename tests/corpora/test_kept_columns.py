"""Columns that are kept with reports: from every container and file into indexes, sets and back."""

import json
from contextlib import nullcontext

import numpy as np
import polars as pl
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import IndexFormatError, InputError
from metric_oracle.corpora.texts import folded
from support import write

ROWS = {
    "study_id": ["s1", "s2", "s3", "s4", "s5"],
    "report": ["clear lungs", "no effusion", "clear lungs", "", "small effusion"],
    "subject_id": [10, 11, 10, 12, None],
    "view": ["PA", "nan", " AP ", "PA", "LL"],
}
SUBJECTS, VIEWS = ["10", "11", "10", ""], ["PA", "", "AP", "LL"]


def files(folder):
    frame = pl.DataFrame(ROWS)
    frame.write_csv(folder / "reports.csv")
    frame.write_parquet(folder / "reports.parquet")
    (folder / "reports.jsonl").write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))
    return [folder / f"reports.{ending}" for ending in ("csv", "parquet", "jsonl")]


def test_every_file_and_container_keeps_the_same_values(tmp_path):
    pytest.importorskip("pandas")
    frame = pl.DataFrame(ROWS)
    given = [*files(tmp_path), frame, frame.to_arrow(), frame.to_pandas(), frame.to_dicts()]
    fingerprints = set()
    for i, reports in enumerate(given):
        index = mo.build_index(reports, tmp_path / f"{i}", metrics="bleu", keep="subject_id,view")
        assert index.columns == ["subject_id", "view"]
        assert index.strings("subject_id").to_pylist() == SUBJECTS
        assert index.take("view", np.array([3, 0, 2])).to_pylist() == ["LL", "PA", "AP"]
        fingerprints.add(index.fingerprint)
        index.verify_files()
    assert len(fingerprints) == 1
    bare = mo.build_index(frame, tmp_path / "bare", metrics="bleu")
    assert bare.columns == []
    assert bare.fingerprint not in fingerprints
    other = mo.build_index(frame, tmp_path / "other", metrics="bleu", keep=["view"])
    assert other.fingerprint not in {*fingerprints, bare.fingerprint}


@pytest.mark.parametrize("ending", [0, 1, 2])
def test_sets_keep_columns_shard_by_shard(tmp_path, ending):
    index = mo.build_index(files(tmp_path)[ending], tmp_path / "set", metrics="bleu", keep=["subject_id"], shard_rows=3)
    assert index.n_shards == 2
    assert index.columns == ["subject_id"]
    assert index.take("subject_id", np.arange(4)).to_pylist() == SUBJECTS
    cut = mo.build_index(pl.DataFrame(ROWS), tmp_path / "cut", metrics="bleu", keep=["subject_id"], shard_rows=3)
    assert cut.fingerprint == index.fingerprint


def test_a_prepared_set_brings_its_columns_back(tmp_path):
    index = mo.build_index(pl.DataFrame(ROWS), tmp_path / "index", metrics="bleu", keep=["subject_id", "view"])
    assert mo.reports(index).load().columns == {"subject_id": SUBJECTS, "view": VIEWS}
    again = mo.build_index(index, tmp_path / "again", metrics="bleu")
    assert again.fingerprint == index.fingerprint
    fewer = mo.build_index(index, tmp_path / "fewer", metrics="bleu", keep="view")
    assert fewer.columns == ["view"]
    with pytest.raises(InputError, match="the reports, which were read before, have no column 'split'"):
        mo.build_index(index, tmp_path / "none", metrics="bleu", keep="split")


def test_a_damaged_column_is_seen(tmp_path):
    index = mo.build_index(pl.DataFrame(ROWS), tmp_path / "index", metrics="bleu", keep=["subject_id"])
    path = index.folder / "columns.arrow"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IndexFormatError, match=r"columns\.arrow must have"):
        mo.open_index(index.folder)


def test_several_values_of_one_id_are_an_error(tmp_path):
    rows = {"study_id": ["a", "a"], "report": ["x y", "x y"], "subject_id": ["1", "2"]}
    pl.DataFrame(rows).write_csv(tmp_path / "reports.csv")
    for shard_rows in (None, 1):
        with pytest.raises(InputError, match="has an id with several values of 'subject_id': 'a'"):
            mo.build_index(
                tmp_path / "reports.csv", tmp_path / f"{shard_rows}", keep="subject_id", shard_rows=shard_rows
            )


def test_names_of_columns_are_checked(tmp_path):
    for keep, match in (
        ("self", "keep must be other columns than self, text, same"),
        ("study_id", "keep must be other columns than"),
        ([""], "keep must be names of columns"),
        ("age", "has no column 'age'"),
    ):
        with pytest.raises(InputError, match=match):
            mo.build_index(pl.DataFrame(ROWS), tmp_path / "index", keep=keep)
    with pytest.raises(InputError, match="keep must be left out for texts without columns"):
        mo.build_index(["clear"], tmp_path / "index", keep="age")


def test_folded_texts_differ_in_words_alone():
    assert folded("  No\tACUTE\n process. ") == folded("no acute process.") == "no acute process."
    assert folded("ﬁne ½") == folded("FINE 1⁄2")  # a ligature, a fraction
    assert folded("Straße") == folded("STRASSE")
    assert folded("no acute process") != folded("no acute process.")


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ("p1000000{}", "1000000{}", "'10000000' and 'p10000000' may be the same"),
        ("000{}", "{}", "'0' and '0000' may be the same"),
        ("P-{}", "p-{}", "'p-0' and 'P-0' may be the same"),
        ("a{}1", "b{}2", "otherwise write them in one way"),
        ("{}", "{}", None),
    ],
)
def test_patients_without_a_value_in_common_are_told(tmp_path, oracle, ours, theirs, told):
    """The patient's own report would be found, and no leakage: three values of each side are shown."""
    texts = ["clear lungs no effusion", "mild edema today", "small left effusion", "normal heart size"]
    sides = {
        name: write(
            tmp_path / f"{name}.csv",
            [(first + i, spelled.format(i), text) for i, text in enumerate(texts)],
            ("study_id", "subject_id", "report"),
        )
        for name, first, spelled in (("train", 100, ours), ("test", 200, theirs))
    }
    index = mo.build_index(
        sides["train"], tmp_path / "IX", metrics=["rouge-l", "bleu-2", "jaccard:3"], keep="subject_id"
    )
    for command in (
        ["retrieve", tmp_path / "IX", sides["test"], "-m", "rouge-l", "--exclude", "subject_id"],
        ["overlap", tmp_path / "IX", sides["test"], "--references", sides["test"]],
    ):
        code, _, err = oracle(*map(str, command))
        assert code == 0, err
        assert ("column 'subject_id': no value of 4 of the test reports and 4 of the corpus in common" in err) == bool(
            told
        )
        assert (told or "") in err
    options = mo.SearchOptions(exclude=["subject_id"])
    with pytest.warns(UserWarning, match="column 'subject_id': no value") if told else nullcontext():
        best = mo.retrieve(index, sides["test"], "rouge-l", options=options).table["score"].to_pylist()
    assert (max(best) == 1) == bool(told)


def test_numbers_lose_their_point_only_where_all_values_are_numbers():
    texts = ["No edema.", "Edema.", "Clear."]
    for values, kept in ((["1.0", "2", ""], ["1", "2", ""]), (["1.0", "B.0", "2"], ["1.0", "B.0", "2"])):
        table = pl.DataFrame({"study_id": ["x", "y", "z"], "report": texts, "ward": values})
        assert mo.reports(table).load(keep=["ward"]).columns["ward"] == kept
