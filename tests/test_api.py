"""The public functions: one input model, prepared sets, keywords, sections, models that resume."""

import inspect
import json
import re
from dataclasses import fields, replace
from typing import ClassVar

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base import validation
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import read_label_table, read_labels
from metric_oracle.corpora.read import APPLYING, Read
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.vectors import read_embeddings
from metric_oracle.encoders import token_states
from metric_oracle.indexes import bertscore
from metric_oracle.indexes.prepared import prepared_reports
from metric_oracle.indexes.radgraph import spell_graph
from metric_oracle.metrics import SEARCHED, SOURCES, get_metric
from metric_oracle.reading import OF_ENCODER
from metric_oracle.records import SourceRecord
from metric_oracle.scores.scoring import CREPE
from metric_oracle.sources import attaching
from metric_oracle.sources.keywords import Sources
from support import beside

pytestmark = pytest.mark.usefixtures("fake_encoder")


def files(corpus, side):
    return beside(corpus, side, "negative")


@pytest.fixture(scope="module")
def index(corpus, fake_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("api") / "I"
    return mo.build_index(mo.reports(corpus["train"], encoder="bert", **files(corpus, "train")), out)


@pytest.fixture(scope="module")
def prepared(corpus, fake_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("api") / "T"
    mo.build_index(mo.reports(corpus["test"], encoder="bert", **files(corpus, "test")), out)
    return out


@pytest.fixture
def no_model(monkeypatch):
    for module in (bertscore, token_states):
        monkeypatch.setattr(module, "TokenEncoder", lambda *_, **__: pytest.fail("a model ran"))


@pytest.mark.parametrize("metric", SEARCHED)
def test_a_prepared_set_gives_the_answers_of_its_files(metric, index, corpus, prepared, no_model, monkeypatch):
    found = mo.retrieve(index, prepared, metric, k=7)
    monkeypatch.undo()
    wanted = mo.retrieve(index, mo.reports(corpus["test"], **files(corpus, "test")).load(), metric, k=7)
    assert found.table.equals(wanted.table)
    wanted.signature.pop("environment", None)  # where the encoder ran: none runs for a prepared set
    assert found.signature == wanted.signature
    assert mo.verify(index, found, prepared, sample=0)["pairs"] == found.table.num_rows


def test_graphs_of_a_prepared_set_are_those_of_the_file(corpus, prepared):
    loaded = mo.reports(corpus["test"], radgraph=corpus["test_graphs"]).load().attached["radgraph"]
    stored = mo.reports(prepared).load().attached["radgraph"]
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
    mo.build_index(mo.reports(texts, mo.Read(keep_empty=True), encoder="bert", uncertain="negative", **predicted), out)
    asked = mo.reports(corpus["test"], encoder="bert", **files(corpus, "test"))
    wanted = mo.score(asked, mo.reports(texts, **predicted), [*SEARCHED], index=index, system="P")
    for module in (bertscore, token_states):
        monkeypatch.setattr(module, "TokenEncoder", lambda *_, **__: pytest.fail("a model ran"))
    found = mo.score(prepared, out, [*SEARCHED], index=index)
    assert found.table.equals(wanted.table)
    assert found.signature == wanted.signature
    assert 0 < np.mean(wanted.values("radgraph")) < 1
    assert mo.score(prepared, out).metrics == mo.score(prepared, out, mo.score(prepared, out).metrics).metrics
    # One side in files, the other prepared.
    some = ["bleu-2", "radgraph", "chexbert", "chexbert:labels"]
    mixed = mo.score(mo.reports(corpus["test"], **files(corpus, "test")), out, some)
    assert mixed.table.select(some).equals(wanted.table.select(some))


def test_what_a_prepared_set_does_not_take(index, prepared):
    match = r"^retrieve: uncertain must be 'negative' as in the index; got 'blank'\."
    queries = mo.reports(prepared).load()
    settings = {
        **queries.attached,
        "labels": replace(queries.attached["labels"], settings={"uncertain": "blank"}),
    }
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, replace(queries, attached=settings), "chexbert:labels")
    match = r"^AttachedReports\.load: section must be left out for a prepared set; got a value\. Leave out `section`\.$"
    with pytest.raises(InputError, match=match):
        mo.reports(prepared, mo.Read(section="findings")).load()
    match = r"^score: graphs of both sides must be given for metric 'radgraph'; got none\. Add `mo\.reports\("
    with pytest.raises(InputError, match=match):
        mo.score(prepared, ["a"], "radgraph", inner=True)


def test_states_whose_cut_is_not_known_are_made_again(index, prepared, monkeypatch):
    opened = mo.open_index(prepared)
    recorded = opened.content["representations"]["bertscore"]
    assert "bertscore" in prepared_reports(opened).attached
    monkeypatch.setitem(recorded, "truncated", recorded["truncated"] + 1)
    assert "bertscore" not in prepared_reports(opened).attached


CALLS = {
    "build_index": lambda **o: mo.build_index(["a"], "nowhere", **o),
    "retrieve": lambda **o: mo.retrieve("I", ["a"], "bleu", **o),
    "baseline": lambda **o: mo.baseline("I", ["a"], "random", "bleu", **o),
    "expectation": lambda **o: mo.expectation("I", ["a"], "bleu", **o),
    "verify": lambda **o: mo.verify("I", "r.csv", ["a"], **o),
    "rerank": lambda **o: mo.rerank("I", ["a"], "crepe", **o),
    "study": lambda **o: mo.study("I", ["a"], **o),
    "score": lambda **o: mo.score(["a"], ["a"], **o),
    "compute": lambda **o: mo.compute(references=["a"], predictions=["a"], **o),
    "pairwise": lambda **o: mo.pairwise(["a"], "bleu", ["a"], **o),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_earlier_versions_are_told_what_to_write(name):
    for old, new in {
        "radgraph": "mo.reports(..., radgraph=...)",
        "section": "mo.reports(..., mo.Read(section=...))",
        "predicted_chexbert_ids": "mo.reports(..., chexbert_ids=...)",
        "prevalence": "options=mo.SearchOptions(prevalence=...)",
    }.items():
        if old == "prevalence" and "options" not in inspect.signature(getattr(mo, name)).parameters:
            continue
        with pytest.raises(TypeError, match=rf"^{name}: there is no argument '{old}'\. Write `{re.escape(new)}`\.$"):
            CALLS[name](**{old: "x.json"})
    with pytest.raises(TypeError, match=r"^reports: there is no argument 'radgrph'\. Did you mean 'radgraph'\?$"):
        mo.reports(["a"], radgrph="x.json")
    for old in ("load_queries", "Model"):
        with pytest.raises(AttributeError, match=rf"has no attribute '{old}'\. Write mo\.reports\(\.\.\.\)"):
            getattr(mo, old)


def test_reports_take_the_arguments_of_the_registry():
    of_pairs = {name for source in SOURCES.values() if source.made == "pairs" for name in source.arguments}
    arguments = {name for source in SOURCES.values() for name in source.arguments} - of_pairs
    arguments |= {name for source in SOURCES.values() for name in (*source.model_arguments, *source.settings)}
    assert {*arguments, *OF_ENCODER, "device"} == Sources.__annotations__.keys()
    assert {*Sources.__annotations__, "data", "read", "tell"} == inspect.signature(mo.reports).parameters.keys()
    assert {option for options in APPLYING.values() for option in options} == {field.name for field in fields(Read)}
    assert set(CREPE.values()) == of_pairs


def test_options_are_those_of_the_search_and_of_no_other_function(index):
    with pytest.raises(
        InputError, match=r"^score: k must be left out for scores of given reports; got a value\. Leave out `k`"
    ):
        mo.score(["a"], ["a"], "bleu", options=mo.SearchOptions(k=2))
    with pytest.raises(InputError, match=r"^baseline: backend must be left out for scores without a search; got a val"):
        mo.baseline(index, ["a"], "identity", "bleu", options=mo.SearchOptions(backend="cpu"))
    options = mo.SearchOptions(k=2, text=False)
    assert mo.retrieve(index, ["a"], "bleu", options=options).table.num_rows == 2
    table = mo.retrieve(index, ["a"], "bleu", k=3, options=options).table
    assert (table.num_rows, "text" in table.column_names) == (3, False)


def test_reports_are_read_when_they_are_used_and_once(index, corpus, monkeypatch):
    tests = mo.reports("nowhere.csv", mo.Read(section="impression"))
    match = r"^retrieve: there is no file or folder nowhere\.csv\. Check the name: it is never read as text\.$"
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, tests, "bleu")
    calls = []
    graph = {"0": {"text": "no edema", "entities": {}}}
    tests = mo.reports(["no edema"], radgraph=lambda texts: calls.append(texts) or graph)
    assert calls == []
    for _ in range(2):
        assert mo.retrieve(index, tests, "bleu").table.num_rows == 1
    assert calls == [["no edema"]]
    assert tests.load(index) is tests.load(index)
    assert repr(mo.reports(corpus["test"], radgraph="x.json")).endswith("test.csv with radgraph>")


def test_the_role_of_reports_is_that_of_their_use(index):
    match = r"^score: ids must be left out for reports that are no predictions; got a value\. Leave out `ids`\.$"
    with pytest.raises(InputError, match=match):
        mo.score(mo.reports(["a"], mo.Read(ids="ids.csv")), ["a"], "bleu")
    match = r"^score: keep_empty must be left out for predictions; got a value\. Leave out `keep_empty`\.$"
    with pytest.raises(InputError, match=match):
        mo.score(["a"], mo.reports(["a"], mo.Read(keep_empty=True)), "bleu")
    match = r"layer must be left out for test reports, whose index says it; got a value\. Leave out `layer`\.$"
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, mo.reports(["a"], encoder="bert", layer=3), "bleu")
    match = r"^study: encoder must be left out for a model's reports, which the encoder of the index encodes; got a val"
    with pytest.raises(InputError, match=match):
        mo.study(index, ["a"], {"M": mo.reports(["a"], encoder="bert")}, metrics="bleu")
    match = r"^study: radgraph of a model must be a file, so that a study that was killed can go on; got dict\. Write"
    with pytest.raises(InputError, match=match):
        mo.study(index, ["a"], {"M": mo.reports(["a"], radgraph={})}, metrics="bleu")


def test_what_both_sides_share_is_the_same():
    sides = [mo.reports(["a"], uncertain=uncertain) for uncertain in ("positive", "negative")]
    match = (
        r"^score: uncertain must be the same for both sides; got two different values\. Pass it with the references "
        r"only\.$"
    )
    with pytest.raises(InputError, match=match):
        mo.score(*sides, "bleu")


def test_only_reports_have_more_than_ten_parameters():
    """Everything that belongs to reports is given to `reports`, and nowhere else; what describes a judge to `judge`."""
    of_judge = {"keep", "pool", "tell"}
    functions = {name: getattr(mo, name) for name in mo.__all__ if inspect.isfunction(getattr(mo, name))}
    own = {name: validation._known(function).keys() - of_judge for name, function in functions.items()}
    many = {name for name, parameters in own.items() if len(parameters) > 10}
    assert many == {"reports"}


def test_loaded_reports_take_no_sources(index, prepared):
    match = (
        r"^reports: radgraph must be left out for reports that have .* sources; got a value\. Leave out `radgraph`\.$"
    )
    with pytest.raises(InputError, match=match):
        mo.reports(mo.reports(prepared).load(), radgraph="x.json")


def test_empty_reports_mean_the_same_in_memory(index):
    given = ["", "No edema.", " . ", None]
    left_out = "; ".join(f"1 {state}, left out" for state in ("missing", "empty", "tokenless"))
    line = f"test reports: the reports in memory, 1 of 4 rows; {left_out}"
    with pytest.warns(UserWarning, match=re.escape(line)) as warned:
        found = mo.retrieve(index, given, "bleu")
    assert [one.filename for one in warned] == [__file__]
    assert found.table["query_id"].to_pylist() == ["1"]
    told = []
    assert mo.reports(given, tell=told.append).load().ids == ["1"]
    assert [text.startswith(line) for text in told] == [True]
    for call in (mo.baseline, mo.expectation):
        with pytest.warns(UserWarning, match=re.escape(line)):
            call(index, given, *(["identity"] if call is mo.baseline else []), "bleu")
    with pytest.raises(InputError, match=r"^retrieve: there is no usable report in the"):
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
    sides = [Reports.from_texts(["a b"], ["0"], section=section) for section in ("impression", "findings")]
    with pytest.raises(InputError, match=r"^score: references and predictions must be of one section; got impression"):
        mo.score(*sides, "bleu")
    paper = Reports(["0"], ["a b"], "R2Gen", section="findings+impression", section_by="paper")
    with pytest.warns(UserWarning, match=r"^the references are of section impression, but Yu et al"):
        assert mo.score(sides[0], paper, "bleu").mean() == {"bleu-2": 1.0}
    told = []
    mo.score(mo.reports(sides[0], tell=told.append), paper, "bleu")
    assert [line.partition(":")[0] for line in told[:2]] == ["references", "predictions"]
    assert told[2].startswith("the references are of section impression, but Yu et al")
    frame = {"study_id": ["0"], "impression": ["a b"]}
    import polars

    with pytest.raises(InputError, match=r"got findings \(by caller\) and impression \(by column\)"):
        mo.score(sides[1], polars.DataFrame(frame), "bleu")
    assert mo.score(sides[1], mo.reports(polars.DataFrame(frame), mo.Read(section="findings")), "bleu").mean() == {
        "bleu-2": 1
    }


def test_a_prepared_set_keeps_its_section(tmp_path):
    mo.build_index(Reports.from_texts(["a b"], section="findings"), tmp_path / "F", metrics="bleu")
    with pytest.raises(InputError, match=r"must be of one section; got findings \(by caller\) and impression"):
        mo.score(tmp_path / "F", Reports.from_texts(["a b"], section="impression"), "bleu")


def test_what_was_counted_is_told():
    told = []
    scores = mo.score(mo.reports(["a b", "", None, "c"], tell=told.append), ["a b", "x", "y", ""], "bleu")
    assert told[0].endswith("1 missing, left out; 1 empty, left out")
    assert told[1].endswith("1 empty, scored as such")
    assert scores.table["query_id"].to_pylist() == ["0", "3"]
    assert scores.signature["left_out"] == {"with a missing or empty reference": 2}
    with pytest.raises(InputError, match="must be as many on both sides; got 2 references and 1 predictions"):
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
    options = {"radgraph": tmp_path / "radgraph.tar.gz", "radgraph_encoder": "somewhere"}
    with pytest.raises(KeyboardInterrupt):
        mo.build_index(mo.reports(["a", "b"], **options), tmp_path / "I", metrics="radgraph")
    index = mo.build_index(mo.reports(["a", "b"], **options), tmp_path / "I", metrics="radgraph")
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
    monkeypatch.setattr(attaching, "ATTACHED", (*attaching.ATTACHED, record))
    monkeypatch.setattr(attaching, "ARGUMENTS", (*attaching.ARGUMENTS, *record.arguments))
    given = {"images": np.eye(3), "image_ids": ["b", "c", "a"]}
    found = attaching.attach_sources(Reports(["a", "b"], ["x", "y"]), **given).attached["image"]
    assert found.values[found.of_row].tolist() == [[0, 0, 1], [1, 0, 0]]
    made = attaching.run_models(
        attaching.attach_sources(Reports(["a", "b"], ["x", "y"]), images=lambda texts: np.eye(2))
    )
    assert made.attached["image"].of_row.tolist() == [0, 1]
    match = r"^images must share ids with the reports; got none of 1 report ids among 3 in the ndarray in memory\."
    with pytest.raises(InputError, match=match):
        attaching.attach_sources(Reports(["z"], ["x"]), **given)
    with pytest.raises(TypeError, match=r"^there is no argument 'imags'\. Did you mean 'images'\?$"):
        attaching.attach_sources(Reports(["z"], ["x"]), imags=1)
