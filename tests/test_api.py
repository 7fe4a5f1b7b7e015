"""The public functions: one input model, prepared sets, keywords, sections, models that resume."""

import inspect
import json
import re
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.vectors import read_embeddings, read_label_table, read_labels
from metric_oracle.encoders import token_states
from metric_oracle.errors import InputError
from metric_oracle.indexes import bertscore
from metric_oracle.indexes.prepared import prepared_inputs
from metric_oracle.indexes.radgraph import spell_graph
from metric_oracle.metrics import SEARCHED, SOURCES, SourceRecord, get_metric
from metric_oracle.sources import inputs
from support import beside

pytestmark = pytest.mark.usefixtures("fake_encoder")


def files(corpus, side):
    return beside(corpus, side, "negative")


@pytest.fixture(scope="module")
def index(corpus, fake_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("api") / "I"
    return mo.build_index(corpus["train"], out, encoder="bert", **files(corpus, "train"))


@pytest.fixture(scope="module")
def prepared(corpus, fake_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("api") / "T"
    mo.build_index(corpus["test"], out, encoder="bert", **files(corpus, "test"))
    return out


@pytest.fixture
def no_model(monkeypatch):
    for module in (bertscore, token_states):
        monkeypatch.setattr(module, "TokenEncoder", lambda *_, **__: pytest.fail("a model ran"))


@pytest.mark.parametrize("metric", SEARCHED)
def test_a_prepared_set_gives_the_answers_of_its_files(metric, index, corpus, prepared, no_model, monkeypatch):
    found = mo.retrieve(index, prepared, metric, k=7)
    monkeypatch.undo()
    wanted = mo.retrieve(index, mo.load_queries(corpus["test"], **files(corpus, "test")), metric, k=7)
    assert found.table.equals(wanted.table)
    wanted.signature.pop("environment", None)  # where the encoder ran: none runs for a prepared set
    assert found.signature == wanted.signature
    assert mo.verify(index, found, prepared, sample=0)["pairs"] == found.table.num_rows


def test_graphs_of_a_prepared_set_are_those_of_the_file(corpus, prepared):
    loaded = mo.load_queries(corpus["test"], radgraph=corpus["test_graphs"]).attached["radgraph"]
    stored = mo.load_queries(prepared).attached["radgraph"]
    pairs = list(zip(loaded.of_row, stored.of_row, strict=True))
    assert len({int(row) for row in stored.of_row}) > 5
    for a, b in pairs:
        assert spell_graph(loaded.values, a) == spell_graph(stored.values, b)


def test_a_prepared_set_is_indexed_again(corpus, prepared, no_model, tmp_path):
    again = mo.build_index(prepared, tmp_path / "A")
    first = mo.open_index(prepared)
    assert again.content["representations"] == first.content["representations"]
    assert again.content["files"] == first.content["files"]


def test_prepared_references_and_predictions(index, corpus, prepared, no_model, tmp_path, monkeypatch):
    asked = mo.read_reports(corpus["test"])
    train = mo.read_reports(corpus["train"])
    n = len(asked.ids)
    new = dict(zip(train.ids[:n], asked.ids, strict=True))
    texts = {new[study]: text for study, text in zip(train.ids[:n], train.texts[:n], strict=True)}
    graphs = {new[k]: g for k, g in json.loads(corpus["train_graphs"].read_text()).items() if k in new}
    vectors, labels = read_embeddings(corpus["train_embeddings"]), read_labels(corpus["train_labels"])
    of_id = {new[i]: v for i, v in zip(vectors.ids, vectors.values, strict=True) if i in new}
    classes = {new[i]: v for i, v in zip(labels.ids, labels.values, strict=True) if i in new}
    table = read_label_table(corpus["train_srr"])
    rows = zip(table.ids, (table.values == 1).astype(int).tolist(), strict=True)
    sets = {new[i]: dict(zip(table.names, row, strict=True)) for i, row in rows if i in new}
    table = read_label_table(corpus["train_table"])
    rows = zip(table.ids, np.array([None, 1, 0])[table.values].tolist(), strict=True)
    stated = {new[i]: dict(zip(table.names, row, strict=True)) for i, row in rows if i in new}
    entities, sentences = (
        {new[i]: record for i, record in json.loads(corpus[f"train_{name}"].read_text()).items() if i in new}
        for name in ("entities", "sentences")
    )
    predicted = {
        "radgraph": graphs, "chexbert": of_id, "embeddings": of_id, "chexbert_labels": classes, "srr_labels": sets,
        "entities": entities, "sentences": sentences, "labels": stated,
    }  # fmt: skip
    monkeypatch.undo()
    out = tmp_path / "P"
    mo.build_index(texts, out, encoder="bert", keep_empty=True, uncertain="negative", **predicted)
    wanted = mo.score(
        corpus["test"], texts, [*SEARCHED], index=index, encoder="bert", system="P", **files(corpus, "test"),
        **{f"predicted_{name}": value for name, value in predicted.items()},
    )  # fmt: skip
    for module in (bertscore, token_states):
        monkeypatch.setattr(module, "TokenEncoder", lambda *_, **__: pytest.fail("a model ran"))
    found = mo.score(prepared, out, [*SEARCHED], index=index)
    assert found.table.equals(wanted.table)
    assert found.signature == wanted.signature
    assert 0 < np.mean(wanted.values("radgraph")) < 1
    assert mo.score(prepared, out).metrics == mo.score(prepared, out, mo.score(prepared, out).metrics).metrics
    # One side in files, the other prepared.
    some = ["bleu-2", "radgraph", "chexbert", "chexbert:labels"]
    mixed = mo.score(corpus["test"], out, some, **files(corpus, "test"))
    assert mixed.table.select(some).equals(wanted.table.select(some))


def test_what_a_prepared_set_does_not_take(index, prepared):
    match = r"^retrieve: uncertain must be 'negative' as in the index; got 'blank'\."
    queries = mo.load_queries(prepared)
    settings = {
        **queries.attached,
        "labels": replace(queries.attached["labels"], settings={"uncertain": "blank"}),
    }
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, replace(queries, attached=settings), "chexbert:labels")
    match = r"^load_queries: section must be left out for a prepared set; got a value\. Drop it\.$"
    with pytest.raises(InputError, match=match):
        mo.load_queries(prepared, section="findings")
    match = r"^score: graphs of both sides must be given for metric 'radgraph'; got none\. Add radgraph and predicted"
    with pytest.raises(InputError, match=match):
        mo.score(prepared, ["a"], "radgraph", inner=True)


def test_states_whose_cut_is_not_known_are_made_again(index, prepared, monkeypatch):
    opened = mo.open_index(prepared)
    recorded = opened.content["representations"]["bertscore"]
    assert "bertscore" in prepared_inputs(opened).attached
    monkeypatch.setitem(recorded, "truncated", recorded["truncated"] + 1)
    assert "bertscore" not in prepared_inputs(opened).attached


CALLS = {
    "build_index": lambda mo, **o: mo.build_index(["a"], "nowhere", **o),
    "load_queries": lambda mo, **o: mo.load_queries(["a"], **o),
    "retrieve": lambda mo, **o: mo.retrieve("I", ["a"], "bleu", **o),
    "baseline": lambda mo, **o: mo.baseline("I", ["a"], "random", "bleu", **o),
    "expectation": lambda mo, **o: mo.expectation("I", ["a"], "bleu", **o),
    "verify": lambda mo, **o: mo.verify("I", "r.csv", ["a"], **o),
    "score": lambda mo, **o: mo.score(["a"], ["a"], **o),
    "pairwise": lambda mo, **o: mo.pairwise(["a"], ["a"], "bleu", **o),
    "reward": lambda mo, **o: mo.reward("bleu", **o),
}


@pytest.mark.parametrize("name", CALLS)
def test_unknown_keywords(name, index, monkeypatch):
    monkeypatch.setattr("metric_oracle.api.searching.open_index", lambda path: index)
    monkeypatch.setattr("metric_oracle.api.given.open_index", lambda path: index)
    match = rf"^{name}: there is no argument 'radgrph'\. Did you mean 'radgraph'\?$"
    with pytest.raises(TypeError, match=match):
        CALLS[name](mo, radgrph="x.json")


def test_every_argument_of_the_registry_is_typed():
    from metric_oracle.api import annotating, given

    of_pairs = {name for record in SOURCES.values() if record.made == "pairs" for name in record.arguments}
    for function in (mo.score, mo.rerank):
        assert of_pairs <= inspect.signature(function).parameters.keys()
    arguments = {name for record in SOURCES.values() for name in record.arguments} - of_pairs
    assert {*annotating.MODELS, *annotating.FILES, *given.READING} == annotating.Annotating.__annotations__.keys()
    files = {name for record in SOURCES.values() for name in (*record.model_arguments, *record.settings)}
    assert files <= given.Models.__annotations__.keys()
    assert arguments <= given.Loading.__annotations__.keys()
    assert {f"predicted_{name}" for name in arguments - {"encoder"}} <= given.Sides.__annotations__.keys()
    assert set(given.LOADING) <= given.Loading.__annotations__.keys()
    assert set(given.SIDES) <= given.Sides.__annotations__.keys()
    own = inspect.signature(mo.score).parameters.keys() - {"references", "predictions", "metrics", "given"}
    assert own == given.Scoring.__annotations__.keys() - given.Compared.__annotations__.keys()


def test_loaded_queries_take_no_keywords(index, prepared):
    match = r"^retrieve: radgraph must be left out for loaded queries; got a value\. Drop it\.$"
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, mo.load_queries(prepared), "bleu", radgraph="x.json")


def test_empty_reports_mean_the_same_in_memory(index):
    given = ["", "No edema.", " . ", None]
    line = "left out: 1 missing, 1 empty, 1 tokenless (the reports in memory, 1 of 4 rows)"
    with pytest.warns(UserWarning, match=re.escape(line)) as warned:
        found = mo.retrieve(index, given, "bleu")
    assert [one.filename for one in warned] == [__file__]
    assert found.table["query_id"].to_pylist() == ["1"]
    told = []
    assert mo.load_queries(given, tell=told.append).ids == ["1"]
    assert [text.startswith(line) for text in told] == [True]
    for call in (mo.baseline, mo.expectation):
        with pytest.warns(UserWarning, match=re.escape(line)):
            call(index, given, *(["identity"] if call is mo.baseline else []), "bleu")
    with pytest.raises(InputError, match=r"^retrieve: there is no report to keep in the"):
        mo.retrieve(index, ["", "  "], "bleu")


def test_metrics_by_name(index, tmp_path):
    assert mo.score(["a b"], ["a b"], "bleu, rouge-l").metrics == ["bleu-2", "rouge-l"]
    assert mo.build_index(["a b"], tmp_path / "I", metrics="bleu").metrics[0] == "bleu-1"
    for call in (mo.score, lambda *_, **o: mo.build_index(["a"], tmp_path / "J", **o)):
        with pytest.raises(InputError, match=r"metric must be one of .*; got 'blew'\. Did you mean 'bleu'\?$"):
            call(["a"], ["a"], metrics="blew")
    assert mo.list_metrics()[0] == get_metric("bleu-1")
    assert "metrics" not in dir(mo)  # the name of the registry, which any import of it sets: one function, one name


def test_sections_that_differ():
    sides = [Reports.from_texts(["a b"], section=section) for section in ("impression", "findings")]
    with pytest.raises(InputError, match=r"^score: references and predictions must be of one section; got impression"):
        mo.score(*sides, "bleu")
    paper = Reports(*["0"], ["a b"], "R2Gen", {}, {}, "findings+impression", "paper")
    with pytest.warns(UserWarning, match=r"^the references are of section impression, but Yu et al"):
        assert mo.score(sides[0], paper, "bleu").mean() == {"bleu-2": 1.0}
    told = []
    mo.score(sides[0], paper, "bleu", tell=told.append)
    assert [line.partition(":")[0] for line in told[:2]] == ["references", "predictions"]
    assert told[2].startswith("the references are of section impression, but Yu et al")
    frame = {"study_id": ["0"], "impression": ["a b"]}
    import polars

    with pytest.raises(InputError, match=r"got findings \(by caller\) and impression \(by column\)"):
        mo.score(sides[1], polars.DataFrame(frame), "bleu")
    assert mo.score(sides[1], polars.DataFrame(frame), "bleu", predicted_section="findings").mean() == {"bleu-2": 1}


def test_a_prepared_set_keeps_its_section(tmp_path):
    mo.build_index(Reports.from_texts(["a b"], section="findings"), tmp_path / "F", metrics="bleu")
    with pytest.raises(InputError, match=r"must be of one section; got findings \(by caller\) and impression"):
        mo.score(tmp_path / "F", Reports.from_texts(["a b"], section="impression"), "bleu")


def test_what_was_counted_is_told():
    told = []
    scores = mo.score(["a b", "", None, "c"], ["a b", "x", "y", ""], "bleu", tell=told.append)
    assert told[0].endswith("1 missing, left out; 1 empty, left out")
    assert told[1].endswith("1 empty, scored as such")
    assert scores.table["query_id"].to_pylist() == ["0", "3"]
    assert scores.signature["left_out"] == {"with a missing or empty reference": 2}
    with pytest.raises(InputError, match="1 without a prediction"):
        mo.score(["a b", "c d"], ["a b"], "bleu")


class KilledRadGraph:
    """A stand-in for RadGraph that keeps one part, and dies at its first run."""

    signature: ClassVar = {"model": "fake", "sha256": "0" * 64}
    calls: ClassVar = []

    def __init__(self, archive, *, encoder=None, device="auto", function=""):
        self.encoder = encoder

    def annotate(self, texts, *, progress=None, scratch=None):
        scratch.mkdir(exist_ok=True)
        part = scratch / "radgraph-000000.part"
        self.calls.append((self.encoder, scratch.parent.name, part.is_file()))
        if not part.is_file():
            part.write_text("kept")
            raise KeyboardInterrupt
        return {str(i): {"text": text, "entities": {}} for i, text in enumerate(texts)}


def test_model_runs_of_a_killed_build_resume(tmp_path, monkeypatch):
    monkeypatch.setattr("metric_oracle.encoders.radgraph.RadGraph", KilledRadGraph)
    options = {"radgraph": tmp_path / "radgraph.tar.gz", "radgraph_encoder": "somewhere", "metrics": "radgraph"}
    with pytest.raises(KeyboardInterrupt):
        mo.build_index(["a", "b"], tmp_path / "I", **options)
    index = mo.build_index(["a", "b"], tmp_path / "I", **options)
    assert KilledRadGraph.calls == [("somewhere", "I.building", False), ("somewhere", "I.building", True)]
    assert index.content["representations"]["radgraph"]["encoder"] == KilledRadGraph.signature
    assert {path.name for path in index.folder.iterdir()} == {
        "reports.arrow", "distinct.arrow", "radgraph", "manifest.json", "stamps.json",
    }  # fmt: skip


def test_a_source_of_vectors_needs_its_record_only(monkeypatch):
    record = SourceRecord(
        "image", "metric_oracle.sources.embeddings:VectorSource", "an image", "images", ("images", "image_ids"),
        "--images FILE",
    )  # fmt: skip
    monkeypatch.setitem(SOURCES, "image", record)
    monkeypatch.setattr(inputs, "ATTACHED", (*inputs.ATTACHED, record))
    monkeypatch.setattr(inputs, "ARGUMENTS", (*inputs.ARGUMENTS, *record.arguments))
    given = {"images": np.eye(3), "image_ids": ["b", "c", "a"]}
    found = inputs.load_inputs(["a", "b"], ["x", "y"], "f", **given).attached["image"]
    assert found.values[found.of_row].tolist() == [[0, 0, 1], [1, 0, 0]]
    made = inputs.load_inputs(["a", "b"], ["x", "y"], "f", images=lambda texts: np.eye(2)).completed()
    assert made.attached["image"].of_row.tolist() == [0, 1]
    match = r"^f: images must share ids with the reports; got none of 1 report ids among 3 in the ndarray in memory\."
    with pytest.raises(InputError, match=match):
        inputs.load_inputs(["z"], ["x"], "f", **given)
    with pytest.raises(TypeError, match=r"^f: there is no argument 'imags'\. Did you mean 'image"):
        inputs.load_inputs(["z"], ["x"], "f", imags=1)
