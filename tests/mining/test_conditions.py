"""Searches under conditions: FactMM-RAG's rule (arXiv 2407.15268) written plainly, and all ways to answer."""

import csv
import json
import random
from fractions import Fraction

import numpy as np
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.kernels.sum import ways
from metric_oracle.synthetic.corpus import write_synthetic

N = 500


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_synthetic(tmp_path_factory.mktemp("factmm") / "corpus", N, 1, seed=4)


@pytest.fixture(scope="module")
def index(files, tmp_path_factory):
    given = {"radgraph": files["train_graphs"], "chexbert_labels": files["train_labels"], "uncertain": "negative"}
    folder = tmp_path_factory.mktemp("factmm") / "INDEX"
    return mo.build_index(mo.reports(files["train"], **given), folder, metrics="radgraph,chexbert:agreement,rouge-l")


def read(files):
    """Return the flag of each label, the entities and the relations of each report."""
    with files["train_labels"].open(encoding="utf-8", newline="") as file:
        flags = {row.pop("study_id"): [value == "1.0" for value in row.values()] for row in csv.DictReader(file)}
    sets = {}
    for study, graph in json.loads(files["train_graphs"].read_text(encoding="utf-8")).items():
        named = {key: (entity["tokens"], entity["label"]) for key, entity in graph["entities"].items()}
        relations = {
            (named[key], named[other], kind)
            for key, entity in graph["entities"].items()
            for kind, other in entity["relations"]
        }
        sets[study] = set(named.values()), relations
    return flags, sets


def f1(a, b):
    return Fraction(2 * len(a & b), len(a) + len(b) or 1)


def rule(files, ids):
    """Return (anchor, candidate, sum, RadGraph F1) of the 3 best of each anchor by the sum, both thresholds passed."""
    flags, sets = read(files)
    expected = []
    for anchor in ids:
        passed = []
        for row, other in enumerate(ids):
            agreement = Fraction(sum(a == b for a, b in zip(flags[anchor], flags[other], strict=True)), 14)
            if other != anchor and agreement >= 1:
                radgraph = sum(f1(a, b) for a, b in zip(sets[anchor], sets[other], strict=True)) / 2
                if radgraph >= Fraction(4, 10):
                    passed.append((-(radgraph + agreement), row, other, radgraph))
        expected += [(anchor, other, -minus, radgraph) for minus, _, other, radgraph in sorted(passed)[:3]]
    return expected


def test_positives_are_those_of_the_rule(index, files, tmp_path):
    options = mo.SearchOptions(k=3, where="chexbert:agreement>=1,radgraph>=0.4")
    found = mo.mine(index, "radgraph+chexbert:agreement", tmp_path / "p.parquet", options=options)
    table = parquet.read_table(found.path)
    expected = rule(files, index.strings("study_id").to_pylist())
    anchors, candidates, sums, radgraph = map(list, zip(*expected, strict=True))
    assert table["anchor_id"].to_pylist() == anchors
    assert table["candidate_id"].to_pylist() == candidates
    assert table["score"].to_pylist() == pytest.approx([float(value) for value in sums], abs=1e-15)
    assert table["radgraph"].to_pylist() == pytest.approx([float(value) for value in radgraph], abs=1e-15)
    assert 300 < len(expected) < 3 * N
    assert set(table["chexbert:agreement"].to_pylist()) == {1.0}
    assert found.signature["metric"] == "radgraph+chexbert:agreement"
    assert list(found.signature["options"]) == ["radgraph", "chexbert:agreement"]


def test_anchors_with_the_best_self_score_have_entities_and_relations(index, files, tmp_path):
    _, sets = read(files)
    whole = [row for row, study in enumerate(index.strings("study_id").to_pylist()) if all(sets[study])]
    assert 300 < len(whole) < 490
    found = mo.mine(index, "radgraph", tmp_path / "p.parquet", k=1, self_score=True)
    assert parquet.read_table(found.path)["anchor_row"].to_pylist() == whole
    assert found.counts["anchors"] == len(whole)
    assert found.counts["self-score below the best"] == index.n_reports - len(whole)
    assert found.signature["self_score"] is True
    every = mo.mine(index, "radgraph", tmp_path / "q.parquet", k=1)
    assert "self-score below the best" not in every.counts
    bad = next(study for study in sets if not all(sets[study]))
    with pytest.raises(mo.MetricOracleError, match="no anchor scores with itself as well as the best does"):
        mo.mine(index, "radgraph", tmp_path / "r.parquet", anchors=[bad], self_score=True)


SEARCHES = [
    ("radgraph+chexbert:agreement", "chexbert:agreement>=1,radgraph>=0.4", {}),
    ("radgraph+chexbert:agreement", "chexbert:agreement>0.9", {"min_score": 1.5}),
    ("radgraph", "chexbert:agreement>=0.9", {"exclude": "text"}),
    ("rouge-l", "radgraph<=0.3", {"exclude": "self,text"}),
    ("rouge-l", "radgraph>=0.5,rouge-l<1", {"exclude": "self"}),
    ("rouge-l", "radgraph>2", {}),
    ("rouge-l+radgraph", "chexbert:agreement>=1", {"exclude": "same"}),
]
# Sizes that leave one way to answer each query, or make all of them try every way.
ALONE = {"FEW": -1, "RANGE": 10**9, "DEPTH": 10**9}
WAYS = {
    "few": {**ALONE, "FEW": 10**9, "SHARE": 2},
    "condition": {**ALONE, "RANGE": 40, "SHARE": 4, "DISTINCT": 0},
    "order": {**ALONE, "DEPTH": 2, "DEEPER": 2, "SHARE": 2, "DISTINCT": 0},
    "each": {"FEW": 5, "RANGE": 3, "DEPTH": 1, "DEEPER": 3, "SHARE": 2},
}


@pytest.mark.parametrize(("metric", "where", "more"), SEARCHES)
def test_every_way_gives_the_answer_of_scoring_all(index, metric, where, more, monkeypatch):
    queries = mo.reports(index).load().take(range(0, 400, 3))

    def answers(**sizes):
        for name, size in sizes.items():
            monkeypatch.setattr(ways, name, size)
        found = mo.retrieve(index, queries, metric, k=3, options=mo.SearchOptions(where=where, **more))
        return found.table, found.signature

    expected = answers(**ALONE, DISTINCT=0)
    assert where == "radgraph>2" or expected[0].num_rows > 50
    for sizes in WAYS.values():
        monkeypatch.undo()
        assert answers(**sizes) == expected


def counted(monkeypatch, way):
    """Return a list that gets the number of queries that each call of a way answers."""
    answered, method = [], getattr(ways.ConditionalSearch, way)

    def counting(self, queries):
        left = method(self, queries)
        answered.append(len(queries) - len(left))
        return left

    monkeypatch.setattr(ways.ConditionalSearch, way, counting)
    return answered


@pytest.mark.parametrize("way", ["_of_few", "_of_condition", "_of_order"])
def test_each_way_answers_queries(index, way, monkeypatch):
    """The searches above reach all ways: each leaves fewer queries than it gets."""
    sizes = WAYS[way.removeprefix("_of_")]
    for name, size in sizes.items():
        monkeypatch.setattr(ways, name, size)
    answered = counted(monkeypatch, way)
    where = {"_of_few": "chexbert:agreement>=1", "_of_condition": "radgraph>=0.8", "_of_order": "radgraph>=0.2"}[way]
    mo.retrieve(index, mo.reports(index).load().take(range(60)), "rouge-l", options=mo.SearchOptions(where=where))
    assert sum(answered) > 30


# What the searches above do not have: a metric of few documents in a sum, rounding, unequal limits


def drawn(n, seed):
    """Return texts of few words and labels of three findings, which have few distinct rows."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices("abcdefgh", k=rng.randint(1, 5))) for _ in range(n)]
    return texts, [{f"finding {place}": rng.randint(0, 1) for place in range(3)} for _ in texts]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Return an index and a set of shards of 400 reports, and 60 queries of which many have one text."""
    texts, labels = drawn(400, 1)
    folder = tmp_path_factory.mktemp("labelled")
    reports = mo.reports(texts, labels=labels)
    made = [
        mo.build_index(reports, folder / name, metrics="rouge-l,labels:f1", shard_rows=rows)
        for name, rows in (("INDEX", None), ("SET", 90))
    ]
    asked, of_asked = drawn(60, 2)
    return made, mo.reports([asked[i % 12] for i in range(60)], labels=of_asked).load()


def test_a_sum_with_a_metric_of_few_documents(labelled, monkeypatch):
    """A report that the list of the other metric does not hold yet may still gain its best score under this one."""
    (index, _), queries = labelled

    def answers(**sizes):
        for name, size in sizes.items():
            monkeypatch.setattr(ways, name, size)
        return mo.retrieve(index, queries, "rouge-l+labels:agreement", k=2).table

    expected = answers(**ALONE, DISTINCT=0)
    monkeypatch.undo()
    answered = counted(monkeypatch, "_of_order")
    assert answers(DEPTH=2, DEEPER=2) == expected
    assert sum(answered) > 20


def test_queries_of_one_text_have_limits_of_their_own(labelled, monkeypatch):
    """What an earlier shard gave to one query must not leave out what another one with the same text still lacks."""
    (index, shards), queries = labelled

    def answers(searched, **sizes):
        for name, size in sizes.items():
            monkeypatch.setattr(ways, name, size)
        options = mo.SearchOptions(where="labels:agreement>=1")
        return mo.retrieve(searched, queries, "rouge-l", k=2, options=options).table

    expected = answers(index, **ALONE, DISTINCT=0)
    monkeypatch.undo()
    answered = counted(monkeypatch, "_of_order")
    assert answers(shards, **WAYS["order"]) == expected
    assert sum(answered) > 20


def test_products_decide_no_condition_and_no_order(tmp_path, monkeypatch):
    """Cosines that differ by rounding alone: a product is rounded otherwise than the score."""
    rng = np.random.default_rng(5)
    vector = rng.uniform(0.1, 1, 48).astype(np.float32)
    vectors = np.array([rng.permutation(vector) for _ in range(400)])
    corpus = mo.reports([f"word {i}" for i in range(400)], embeddings=vectors)
    asked = mo.reports(["word"], embeddings=np.ones((1, 48), np.float32))
    pairs = (
        mo.score(mo.reports(["word"] * 400, embeddings=np.ones((400, 48), np.float32)), corpus, "embedding")
        .table["embedding"]
        .to_numpy()
    )
    assert len(np.unique(pairs)) > 3
    assert np.ptp(pairs) < 1e-14
    index = mo.build_index(corpus, tmp_path / "I", metrics="rouge-l,embedding")
    for name, size in {**ALONE, "DISTINCT": 0}.items():
        monkeypatch.setattr(ways, name, size)
    found = mo.retrieve(index, asked, "embedding+rouge-l", k=5).table
    assert found["row"].to_pylist() == np.lexsort((np.arange(400), -(pairs + 2 / 3)))[:5].tolist()
    for value in np.unique(pairs).tolist():
        options = mo.SearchOptions(where=f"embedding>={value!r}")
        found = mo.retrieve(index, asked, "rouge-l", k=400, options=options).table
        assert found["row"].to_pylist() == np.flatnonzero(pairs >= value).tolist()
