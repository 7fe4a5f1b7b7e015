import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.base.errors import InputError

SECRET = "Zzsecret finding"  # stands for report text, which no message may quote
GROUPS = {"s1": ["No edema.", "", "No edema."], "s2": ["Clear."]}
LOGPROBS = {"s1": [-1.5, -2.0, -0.25], "s2": [-3.0]}


def write(folder, name, *lines):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def records():
    return [{"id": study, "candidates": group, "logprobs": LOGPROBS[study]} for study, group in GROUPS.items()]


def check(samples, *, logprobs=True):
    assert dict(zip(samples.ids, samples.texts, strict=True)) == GROUPS
    assert samples.names == [["0", "1", "2"], ["0"]]
    assert samples.logprobs == (list(LOGPROBS.values()) if logprobs else None)
    assert samples.sizes == [3, 1]


def test_json_lines(tmp_path):
    path = write(tmp_path, "samples.jsonl", *map(json.dumps, records()))
    check(mo.read_samples(path))
    assert repr(mo.read_samples(path)) == f"<Samples: 2 studies, 1 to 3 samples each; {path}>"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_with_a_row_for_each_sample(tmp_path, kind):
    rows = [
        {"id": study, "sample": place, "report": text, "logprob": LOGPROBS[study][place]}
        for study, group in GROUPS.items()
        for place, text in enumerate(group)
    ]
    frame = pl.DataFrame([rows[0], rows[3], rows[1], rows[2]])  # rows of one study need not stand together
    path = tmp_path / f"samples.{kind}"
    getattr(frame, f"write_{kind}")(path)
    check(mo.read_samples(path))
    path.unlink()
    getattr(frame.drop("sample", "logprob"), f"write_{kind}")(path)
    check(mo.read_samples(path), logprobs=False)


def test_frames_datasets_and_columns_of_lists(tmp_path):
    pd = pytest.importorskip("pandas")
    for data in (pa.Table.from_pylist(records()), pl.DataFrame(records()), pd.DataFrame(records()), records()):
        check(mo.read_samples(data))
    of_arrays = pd.DataFrame(records())
    of_arrays["candidates"] = [np.array(group, object) for group in of_arrays["candidates"]]
    of_arrays["logprobs"] = [np.array(group) for group in of_arrays["logprobs"]]
    check(mo.read_samples(of_arrays))
    parquet.write_table(pa.Table.from_pylist(records()), tmp_path / "samples.parquet")
    check(mo.read_samples(tmp_path / "samples.parquet"))
    datasets = pytest.importorskip("datasets")
    check(mo.read_samples(datasets.Dataset.from_list(records())))


def test_dicts_and_lists_in_memory():
    check(mo.read_samples(GROUPS), logprobs=False)
    samples = mo.read_samples(list(GROUPS.values()))
    assert (samples.ids, samples.texts) == (["0", "1"], list(GROUPS.values()))
    assert mo.read_samples(samples) is samples


def test_columns_can_be_named(tmp_path):
    rows = [{"key": "a", "draws": ["x", "y"], "judge": [1, 0.5]}, {"key": "b", "draws": ["z"], "judge": [2]}]
    samples = mo.read_samples(rows, mo.Read(id_column="key", text_column="draws", section="findings"), column="judge")
    assert (samples.ids, samples.texts, samples.values) == (["a", "b"], [["x", "y"], ["z"]], [[1.0, 0.5], [2.0]])
    assert (samples.logprobs, samples.section) == (None, ("findings", "caller"))
    path = write(tmp_path, "long.csv", "id;impression;judge", "a;x;1", "b;z;2", "a;y;0.5")
    samples = mo.read_samples(path, mo.Read(separator=";"), column="judge")
    assert (samples.texts, samples.values) == ([["x", "y"], ["z"]], [[1.0, 0.5], [2.0]])
    assert samples.section == ("impression", "column")


def test_words_for_missing_reports_are_failures(tmp_path):
    samples = mo.read_samples({"a": ["nan", "None", "Clear."]})
    assert samples.texts == [["", "", "Clear."]]
    assert "2 words for a missing report count as empty reports" in samples.source
    path = write(tmp_path, "long.csv", "id,report", "a,", "a,Clear.", 'a,""')
    assert mo.read_samples(path).texts == [["", "Clear.", ""]]


def test_distinct_texts_are_reports_with_ids_of_samples():
    reports = mo.read_samples({"a": ["x", "y", "x", ""], "b": ["y", "", "z"]}).distinct()
    assert (reports.ids, reports.texts) == (["a/0", "a/1", "a/3", "b/2"], ["x", "y", "", "z"])
    assert reports.counts == {"rows": 7, "duplicate": 3, "kept": 4}


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        (['{"id": "a", "candidates": ["x"]}', "", '{"id": "a", "candidates": ["x"]}'],
         r"line 3 of .*samples\.jsonl has id 'a' again, after line 1 of .*\. Keep one row for each study\."),
        (['{"id": "a", "candidates": ["x"]}', "", '{"id": "b", "candidates": []}'],
         r"line 3 of .*samples\.jsonl has no list of candidates for id 'b'\. Write a list of at least one"),
        (['{"id": "a", "candidates": ["x"]}', '{"id": "b"}'], r"line 2 of .* has no list of candidates for id"),
        (['{"id": "a", "candidates": ["x", 3]}'], r"line 1 of .* has no text as candidate 2: it is int\. Write an"),
        (['{"id": "a", "candidates": ["x", null]}'], r"line 1 of .* has no text as candidate 2: it is missing\. "),
        (['{"id": "a", "candidates": ["x", "y"], "logprobs": [-1]}'],
         r"line 1 of .* has 2 candidates, and 1 numbers in column 'logprobs'\. Write one number for each candidate\."),
        (['{"id": "a", "candidates": ["x"], "logprobs": [-1]}', '{"id": "b", "candidates": ["x"]}'],
         r"line 2 of .* has 1 candidates, and no list in column 'logprobs'\. "),
        (['{"id": "a", "candidates": ["x"], "logprobs": [-Infinity]}'],
         r"line 1 of .* has no finite number in column 'logprobs'\. Complete the column, or leave it out\."),
        (['{"id": "a", "candidates": ["x"], "logprobs": [true]}'], r"line 1 of .* has no finite number in column"),
        (['{"candidates": ["x"]}'],
         r".* a usual id name\. Pass `mo\.Read\(id_column=NAME\)`; columns: "),
        (['{"id": "a", "drawn": ["x"], "others": ["x"]}'],
         r".* candidates are 'drawn', 'others'\. Pass `mo\.Read\(text_column='drawn'"),
        (['{"id": "a", "report": "x", "text": "y"}'],
         r".*clearly the sampled reports; candidates are 'report', 'text'\. Pass "
         r"`mo\.Read\(text_column='report'\)`; columns: "),
        (['{"id": "a", "sample": 1, "report": "x"}', '{"id": "a", "sample": 1, "report": "y"}'],
         r"line 2 of .* has sample '1' of id 'a' again, after line 1 of .*\. Keep one row for each sample\."),
        (['{"id": "a", "report": "x"}', '{"id": "a", "report": null}'],
         r"line 2 of .* has no text as the report: it is missing\. "),
        (['{"id": "a", "report": "x", "logprob": "low"}'],
         r"column 'logprob' must hold a finite number in every row; got none in line 1 of .*\. Complete"),
    ],
)  # fmt: skip
def test_errors_name_file_and_line(tmp_path, lines, match):
    path = write(tmp_path, "samples.jsonl", *[line.replace('"x"', json.dumps(SECRET)) for line in lines])
    with pytest.raises(InputError, match=rf"^read_samples: {match}") as caught:
        mo.read_samples(path)
    assert "\n" not in str(caught.value)
    assert SECRET.split()[0] not in str(caught.value)


def test_rows_of_other_tables_are_named_by_number(tmp_path):
    path = write(tmp_path, "long.csv", "id,sample,report", "a,1,x", "b,1,x", "a,1,y")
    with pytest.raises(InputError, match=r"row 3 of .*long\.csv has sample '1' of id 'a' again, after row 1 of "):
        mo.read_samples(path)


def test_other_containers_are_refused():
    with pytest.raises(InputError, match=r"the polars.DataFrame in memory has no samples\. Check the file\."):
        mo.read_samples(pl.DataFrame({"id": [], "candidates": []}))
    with pytest.raises(InputError, match=r"candidates must be a list of reports for each study; got a list of texts"):
        mo.read_samples(["x", "y"])
    with pytest.raises(InputError, match=r"separator must be left out for samples in memory"):
        mo.read_samples(GROUPS, mo.Read(separator=","))
    with pytest.raises(InputError, match=r"column must be left out for samples that are read"):
        mo.read_samples(mo.read_samples(GROUPS), column="judge")
    with pytest.raises(InputError, match=r"section must be one of"):
        mo.read_samples(GROUPS, mo.Read(section="history"))
    with pytest.raises(InputError, match=r"there is no file"):
        mo.read_samples("absent.jsonl")
