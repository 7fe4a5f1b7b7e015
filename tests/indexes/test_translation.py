"""Queries that one shard of a set has encoded, translated by another: the same as encoded there."""

import json

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes import ngrams
from metric_oracle.indexes.radgraph import spell_graph
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.search import Search

WORDS = ["no", "acute", "edema", "stable", ".", "Effusion", "große", "x2"]


def random_texts(seed, n, words):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(n)]


def asked_of(shard, encoded, metric):
    """Return for each query its sizes and the sets of features that a shard knows, family by family."""
    queries = shard.translate(get_metric(metric), encoded).queries
    n_families = queries.sizes.shape[1]
    features = [frozenset(queries.id[a:b].tolist()) for a, b in zip(queries.ptr[:-1], queries.ptr[1:], strict=True)]
    assert len(queries.id) == sum(map(len, features)), "unique within a query"
    assert queries.id.dtype == queries.sizes.dtype == np.int32
    return [
        (queries.sizes[q].tolist(), features[q * n_families : (q + 1) * n_families])
        for q in encoded.document_of_row.tolist()
    ]


@pytest.mark.parametrize(("metric", "n_orders"), [("bleu-4", 4), ("bleu-2", 2), ("bleu-3:coco", 3), ("rouge-l", 1)])
def test_ngrams(metric, n_orders):
    record = get_metric(metric)
    queries = ["", "unknown words alone", "no no no no no no", *random_texts(1, 40, WORDS), "no no no no no no"]
    inputs = Reports([str(i) for i in range(len(queries))], queries)
    corpora = [WORDS[:3], WORDS, WORDS[4:], ["else"]]
    shards = []
    for seed, words in enumerate(corpora):
        texts = random_texts(seed, 30, words)
        shards.append(ngrams.build_ngrams(record.representation, texts, np.arange(len(texts))))
    for of in shards:
        encoded = of.encode(inputs)
        for shard in shards:
            expected = shard.encode(inputs)
            assert asked_of(shard, encoded, metric) == asked_of(shard, expected, metric)
            assert list(encoded.items) == list(expected.items)
            arrays, wanted = (shard.translate(record, side) for side in (encoded, expected))
            assert arrays.queries.sizes.shape[1] == n_orders
            assert np.array_equal(arrays.words, wanted.words)
            assert np.array_equal(arrays.words_ptr, wanted.words_ptr)


def graph(*entities):
    made = {str(i): {"tokens": words, "label": label, "relations": []} for i, (words, label) in enumerate(entities)}
    for name in list(made)[1:]:
        made["0"]["relations"].append(["located_at", name])
    return {"entities": made}


@pytest.mark.parametrize("metric", ["radgraph", "radgraph:rg_er-lower"])
def test_graphs(tmp_path, metric):
    """The first shard knows so little that graphs of equal sizes are the same for it, which others tell apart."""
    rng = np.random.default_rng(3)
    kinds = [(word, label) for word in WORDS for label in ("OBS-DP", "OBS-DA", "ANAT-DP")]
    files = {}
    for side, n in (("train", 40), ("test", 60)):
        chosen = [[kinds[i] for i in rng.integers(0, len(kinds), rng.integers(0, 4))] for _ in range(n)]
        if side == "train":
            chosen[:10] = [[("elsewhere", "OBS-DP")]] * 10
        texts = [f"report {i}" for i in range(n)]
        graphs = {str(i): {"text": texts[i], **graph(*some)} for i, some in enumerate(chosen)}
        (tmp_path / f"{side}.json").write_text(json.dumps(graphs))
        files[side] = dict(zip(graphs, texts, strict=True)), tmp_path / f"{side}.json"
    texts, graphs = files["train"]
    many = mo.build_index(mo.reports(texts, radgraph=graphs), tmp_path / "set", metrics="radgraph", shard_rows=10)
    inputs = mo.reports(files["test"][0], radgraph=files["test"][1]).load()
    parts = [shard.representation(get_metric(metric)) for shard in many.shards()]
    assert len(parts) == 4
    known = [{repr(one) for one in asked_of(part, parts[0].encode(inputs), metric)} for part in parts]
    assert len(known[0]) < 10 < 20 < len(known[1])
    for encoded in (parts[0].encode(inputs), parts[2].encode(inputs)):
        for part in parts:
            table, graph_of_row = part.graphs_of(inputs)
            assert asked_of(part, encoded, metric) == asked_of(part, part.encode(inputs), metric)
            for q in range(len(inputs.ids)):
                assert encoded.item(int(encoded.document_of_row[q])) == spell_graph(table, int(graph_of_row[q]))


def test_a_limit_for_queries_that_are_one_for_a_shard(tmp_path):
    """Scores of other shards, which tell them apart, must not keep rows from the query that has worse ones."""
    p, a, b, x, y = ((word, "OBS-DP") for word in "pabxy")
    train = {"0": [a, x], "1": [p], "2": [x], "3": [y]}
    for side, entities in (("train", train), ("test", {"b": [b, x], "a": [a, x]})):
        graphs = {study: {"text": f"report {study}", **graph(*some)} for study, some in entities.items()}
        (tmp_path / f"{side}.json").write_text(json.dumps(graphs))
    texts = {study: f"report {study}" for study in train}
    many = mo.build_index(
        mo.reports(texts, radgraph=tmp_path / "train.json"), tmp_path / "set", metrics="radgraph:rg_e", shard_rows=2
    )
    asked = mo.reports({"b": "report b", "a": "report a"}, radgraph=tmp_path / "test.json").load()
    metric, options = get_metric("radgraph:rg_e"), mo.SearchOptions(backend="cpu")
    shard = many.shard(1).representation(metric)
    one, other = asked_of(shard, shard.encode(asked), metric.name)
    assert one == other
    for queries in (asked, asked.take(np.array([1, 0]))):
        search = Search(many, queries, metric, options)
        first = search.best_rows([0])
        assert dict(zip(queries.ids, first.scores[:, 0].tolist(), strict=True)) == {"a": 1.0, "b": 0.5}
        second = search.best_rows([1], first.scores[:, -1])
        place = queries.ids.index("b")
        assert (second.rows[place, 0], second.scores[place, 0]) == (2, 2 / 3)


@pytest.mark.parametrize("function", ["distinct_sequences", "index_queries"])
def test_texts_are_tokenized_and_indexed_once(corpus, tmp_path, monkeypatch, function):
    many = mo.build_index(corpus["train"], tmp_path / "set", metrics="rouge-l", shard_rows=40)
    queries = mo.reports(corpus["test"]).load()
    asked = []
    once = getattr(ngrams, function)
    monkeypatch.setattr(ngrams, function, lambda *given: asked.append(given) or once(*given))
    mo.retrieve(many, queries, "rouge-l")
    assert len(asked) == 1


@pytest.mark.parametrize("metric", ["rouge-l", "radgraph"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_reports_of_a_shard_are_queries_of_all_shards(tmp_path, metric, place):
    """Those of the first shard are its documents there; the other shards encode them, as they do those of files."""
    texts = random_texts(7, 40, WORDS)
    made = {
        str(i): {"text": text, **graph(*((word, "OBS-DP") for word in text.split()))} for i, text in enumerate(texts)
    }
    (tmp_path / "graphs.json").write_text(json.dumps(made))
    reports = mo.reports(dict(zip(made, texts, strict=True)), radgraph=tmp_path / "graphs.json")
    many = mo.build_index(reports, tmp_path / "set", metrics=metric, shard_rows=10)
    asked = mo.reports(many.shard(place).folder)
    wanted = mo.retrieve(many, reports.load().take(np.arange(10 * place, 10 * place + 10)), metric, k=5)
    assert mo.retrieve(many, asked, metric, k=5).table.equals(wanted.table)


def test_what_no_corpus_changes_is_kept(corpus, tmp_path):
    labels = {"chexbert_labels": corpus["train_labels"], "uncertain": "positive"}
    many = mo.build_index(
        mo.reports(corpus["train"], **labels), tmp_path / "set", metrics="temporal,chexbert:labels", shard_rows=60
    )
    asked = {"chexbert_labels": corpus["test_labels"], "uncertain": "positive"}
    inputs = mo.reports(corpus["test"], **asked).load()
    one, other = many.shards()
    for metric in map(get_metric, ("temporal", "chexbert:labels", "chexbert:agreement", "crg")):
        encoded = one.representation(metric).encode(inputs)
        batch, wanted = (shard.representation(metric).translate(metric, encoded) for shard in (one, other))
        assert all(mine is theirs for mine, theirs in zip(batch, wanted, strict=True))
        again = other.representation(metric).encode(inputs)
        assert np.array_equal(again.document_of_row, encoded.document_of_row)
