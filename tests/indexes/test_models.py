"""Models instead of files: an index from a RadGraph archive and a CheXbert checkpoint, and queries through the same."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.reports import Reports
from metric_oracle.encoders.chexbert import CheXbert
from metric_oracle.encoders.radgraph import RadGraph

pytest.importorskip("transformers")
ENCODERS = Path(__file__).parents[1] / "encoders"
# The tiny RadGraph finds entities in the last two, and relations in the last.
TEXTS = [
    "No acute process.", "Edema of the left lung.", "No acute process.", "Large effusion", "edema",
    "Lungs are clear.", "Stable left pleural effusion and mild edema without pneumothorax.",
]  # fmt: skip


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, ENCODERS / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a RadGraph archive whose encoder is a local folder, and a CheXbert checkpoint, both tiny."""
    folder = tmp_path_factory.mktemp("models")
    radgraph, chexbert = module("tiny_radgraph"), module("test_chexbert")
    encoder = radgraph.write_encoder(folder / "encoder", "radgraph")
    archive = radgraph.write_archive(folder / "radgraph.tar.gz", radgraph.files_of("radgraph", encoder, str(encoder)))
    paths = []
    for name in ("one", "two"):
        bert, heads, *_ = chexbert.tiny_parts()
        if name == "two":
            heads[0].weight.data += 1
        (folder / name).mkdir()
        paths.append(chexbert.save(folder / name, chexbert.tensors_of(bert, heads)))
    return archive, *paths


@pytest.fixture(scope="module")
def index(models, tmp_path_factory):
    archive, checkpoint, _ = models
    reports = Reports([str(i) for i in range(len(TEXTS))], TEXTS, "made up")
    out = tmp_path_factory.mktemp("index") / "I"
    return mo.build_index(mo.reports(reports, radgraph=archive, chexbert=checkpoint, uncertain="positive"), out)


def test_the_index_holds_what_the_models_say(index, models):
    archive, checkpoint, _ = models
    assert {"radgraph", "chexbert", "chexbert:labels"} <= set(index.metrics)
    kinds = index.content["representations"]
    assert kinds["radgraph"]["encoder"] == RadGraph(archive).signature
    assert kinds["chexbert"]["encoder"] == kinds["labels"]["encoder"] == CheXbert(checkpoint).signature
    assert kinds["chexbert"]["rows"] == len(TEXTS)
    assert kinds["chexbert"]["units"] == len(set(TEXTS))


def test_a_report_finds_itself(index, models):
    archive, checkpoint, _ = models
    queries = mo.reports(TEXTS, radgraph=archive, chexbert=checkpoint, uncertain="positive").load()
    answers = mo.retrieve(index, queries, "chexbert").table
    assert np.allclose(answers["score"].to_numpy(), 1, atol=1e-6)
    graphs = [graph["entities"].values() for graph in RadGraph(archive).annotate(TEXTS).values()]
    # Half for the entities, half for the relations of them, where there are any.
    own = [0.5 * bool(entities) + 0.5 * any(entity["relations"] for entity in entities) for entities in graphs]
    assert own == [0, 0, 0, 0, 0, 0.5, 1]
    assert mo.retrieve(index, queries, "radgraph").table["score"].to_pylist() == own


def test_another_model_is_refused(index, models):
    match = r"^retrieve: embeddings must come from the model of the index, sha256 [0-9a-f]{12}; got [0-9a-f]{12}\. Pass"
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, mo.reports(TEXTS, chexbert=models[2]).load(), "chexbert")


def test_a_missing_model_is_one_line(tmp_path):
    archive, checkpoint = tmp_path / "radgraph.tar.gz", tmp_path / "chexbert.pth"
    match = (
        rf"^AttachedReports\.load: archive must be an existing \.tar\.gz file or folder; got {archive}\. "
        r"Check the name\.$"
    )
    with pytest.raises(InputError, match=match):
        mo.reports(TEXTS, radgraph=archive).load()
    match = rf"^AttachedReports\.load: there is no file {checkpoint}\. Check the name\.$"
    with pytest.raises(InputError, match=match):
        mo.reports(TEXTS, chexbert=checkpoint).load()
