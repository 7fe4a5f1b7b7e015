"""Searches under conditions: FactMM-RAG's rule (arXiv 2407.15268) written plainly, and all ways to answer."""

import csv
import json
from fractions import Fraction

import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.retrieval.joint import ways
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


@pytest.mark.parametrize("way", ["_of_few", "_of_condition", "_of_order"])
def test_each_way_answers_queries(index, way, monkeypatch):
    """The searches above reach all ways: each leaves fewer queries than it gets."""
    sizes = WAYS[way.removeprefix("_of_")]
    for name, size in sizes.items():
        monkeypatch.setattr(ways, name, size)
    answered, method = [], getattr(ways.Block, way)

    def counting(self, queries):
        left = method(self, queries)
        answered.append(len(queries) - len(left))
        return left

    monkeypatch.setattr(ways.Block, way, counting)
    where = {"_of_few": "chexbert:agreement>=1", "_of_condition": "radgraph>=0.8", "_of_order": "radgraph>=0.2"}[way]
    mo.retrieve(index, mo.reports(index).load().take(range(60)), "rouge-l", options=mo.SearchOptions(where=where))
    assert sum(answered) > 30
