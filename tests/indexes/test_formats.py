"""Indexes of released formats, as they were written then: each opens, is whole and gives the answers of its day."""

import json
from pathlib import Path

import pytest

from metric_oracle import api
from metric_oracle.indexes.manifest import FORMAT_VERSION
from tests.formats.make_index import answers, make_index

FOLDERS = sorted((Path(__file__).parents[1] / "formats").glob(f"format-{FORMAT_VERSION}"))


def check(folder):
    index = api.open_index(folder / "I")
    assert index.manifest["format_version"] == FORMAT_VERSION
    index.verify_files()
    assert answers(folder) == json.loads((folder / "answers.json").read_text())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kept_index(folder):
    check(folder)


def test_index_made_now(tmp_path):
    check(make_index(tmp_path))
