"""Indexes of released formats, as they were written then: each opens, is whole and gives the answers of its day.

Beside each index lie the files of its queries, named by the options that take them. ``ORACLE_WRITE_FORMAT=1`` writes
another one of the current format, with all that an index can hold: for a new format, or for a new representation.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.indexes.manifest import FORMAT_VERSION
from metric_oracle.indexes.shards import open_index
from metric_oracle.metrics import REPRESENTATIONS, SEARCHED, get_metric
from metric_oracle.reading import reports
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from support import beside, write_corpus

FORMATS = Path(__file__).parents[1] / "formats"
FOLDERS = sorted(FORMATS.glob(f"format-{FORMAT_VERSION}*"))
ADDED = {"coco"}  # representations that the first indexes of this format do not have
OF_LABELS = {"chexbert:agreement": 14, "chexbert:agreement-5": 5, "srr-bert:agreement": 42, "labels:agreement": 14}
pytestmark = pytest.mark.usefixtures("fake_encoder")


def make_index(folder, scratch):
    """Write an index of a dozen reports, three queries, and the two best answers to each under every metric."""
    paths = write_corpus(scratch, 12, 3, seed=1)
    (folder / "queries").mkdir(parents=True)
    for option, path in {"reports": paths["test"], **beside(paths, "test")}.items():
        if isinstance(path, Path):
            (folder / "queries" / f"{option}{path.suffix}").write_bytes(path.read_bytes())
    build_index(reports(paths["train"], encoder="fake", **beside(paths, "train")), folder / "I")
    (folder / "answers.json").write_text(json.dumps(answers(folder, SEARCHED), indent=1) + "\n", encoding="utf-8")


def answers(folder, metrics):
    """Return what an index answers: row and score of the two best of each query, by metric."""
    index = open_index(folder / "I")
    files = {path.stem: path for path in (folder / "queries").iterdir()}
    queries = reports(files.pop("reports"), uncertain="positive", **files).load()
    tables = {metric: retrieve(index, queries, metric, k=2).table for metric in metrics}
    return {metric: [table["row"].to_pylist(), table["score"].to_pylist()] for metric, table in tables.items()}


def check(folder):
    index = open_index(folder / "I")
    assert index.manifest["format_version"] == FORMAT_VERSION
    index.verify_files()
    expected = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    lacking = [metric for metric in expected if get_metric(metric).name not in index.metrics]
    assert all(set(get_metric(metric).representations) & ADDED for metric in lacking)
    for metric in lacking:  # refused: what it was made of before gave other scores
        del expected[metric]
        match = rf"^retrieve: metric must be one of .*; got '{metric}'\. Build an index with `metrics='{metric}'`\.$"
        with pytest.raises(InputError, match=match):
            retrieve(index, ["No effusion."], metric)
    found = answers(folder, expected)
    for metric, (rows, scores) in expected.items():
        assert found[metric][0] == rows
        if "bertscore" in get_metric(metric).representations:  # the queries' states are made anew, in float32
            scores = pytest.approx(scores, rel=0, abs=1e-6)
        if labels := OF_LABELS.get(metric):  # a root in former versions, an ulp off the share of the labels
            scores = [round(labels * score) / labels for score in scores]
        assert found[metric][1] == scores, metric


@pytest.mark.skipif(os.environ.get("ORACLE_WRITE_FORMAT") != "1", reason="ORACLE_WRITE_FORMAT=1 writes an index")
def test_write(tmp_path):
    make_index(FORMATS / f"format-{FORMAT_VERSION}-{len(FOLDERS) + 1}", tmp_path)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kept_index(folder, tmp_path):
    check(shutil.copytree(folder, tmp_path / "copy"))  # a reader adds to an index what it has checked


def test_index_made_now(tmp_path):
    make_index(tmp_path / "made", tmp_path / "scratch")
    check(tmp_path / "made")


def test_every_representation_is_kept():
    held = [open_index(folder / "I").content["representations"] for folder in FOLDERS]
    with_files = {kind for kind, representation in REPRESENTATIONS.items() if representation.is_stored}
    assert set().union(*held) == with_files
