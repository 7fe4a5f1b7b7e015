"""The package's rule since July 2026 is its older rule on graphs whose tokens were lower-cased before."""

import json
from random import Random

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports
from metric_oracle.synthetic.corpus import synthesize

VARIANTS = ("rg_e", "rg_er", "rg_er-bar")


def reports(n, prefix):
    return Reports([f"{prefix}{i}" for i in range(n)], [f"report {i}" for i in range(n)], "made up")


def graphs(n, seed, prefix):
    """Return graphs of few kinds, the case of their tokens mixed, so that lower-casing merges within and between."""
    rng = Random(seed)
    kinds = [report.graph["entities"] for report in synthesize(25, seed=7)]
    found = {}
    for i in range(n):
        entities = json.loads(json.dumps(rng.choice(kinds)))
        for entity in entities.values():
            entity["tokens"] = rng.choice((str.upper, str.lower, str.title, str))(entity["tokens"])
        if entities and rng.random() < 0.3:
            key = rng.choice(list(entities))
            entities[str(len(entities) + 1)] = {**entities[key], "tokens": entities[key]["tokens"].swapcase()}
        found[f"{prefix}{i}"] = {"entities": entities}
    return found


def lowered(some):
    return {
        key: {
            **graph,
            "entities": {name: {**e, "tokens": e["tokens"].lower()} for name, e in graph["entities"].items()},
        }
        for key, graph in some.items()
    }


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lower")
    corpus, tests = graphs(90, 1, "c"), graphs(25, 2, "t")
    found = []
    for name, change in (("mixed", lambda some: some), ("lowered", lowered)):
        for side, some in (("c", corpus), ("t", tests)):
            (folder / f"{name}_{side}.json").write_text(json.dumps(change(some)))
        index = mo.build_index(mo.reports(reports(90, "c"), radgraph=folder / f"{name}_c.json"), folder / name)
        queries = mo.reports(reports(25, "t"), radgraph=folder / f"{name}_t.json").load()
        found.append((index, queries, folder / f"{name}_t.json", folder / f"{name}_c.json"))
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_are_those_of_lowered_graphs(sides, variant):
    (index, queries, *_), (index_lowered, queries_lowered, *_) = sides
    found = mo.retrieve(index, queries, f"radgraph:{variant}-lower", k=7)
    expected = mo.retrieve(index_lowered, queries_lowered, f"radgraph:{variant}", k=7)
    for name in ("row", "score", "n_ties", "fallback"):
        assert found.table[name].to_pylist() == expected.table[name].to_pylist()
    as_written = mo.retrieve(index, queries, f"radgraph:{variant}", k=7).table["score"].to_numpy()
    assert not np.array_equal(as_written, found.table["score"].to_numpy())
    assert "since July 2026 (b5ab8d0), tokens lower-cased" in found.signature["source"]
    assert found.signature["metric"] == f"radgraph:{variant}-lower"
    slow = mo.retrieve(index, queries, f"radgraph:{variant}-lower", k=7, backend="reference")
    assert slow.table.select(["row", "score", "n_ties"]).equals(found.table.select(["row", "score", "n_ties"]))


def test_scores_of_pairs(sides):
    (*_, of_tests, of_corpus), (*_, of_tests_lowered, of_corpus_lowered) = sides
    truth, given = reports(25, "t"), reports(90, "c")
    given = Reports(truth.ids, given.texts[:25], "made up")

    def scored(one, other, names):
        made = {f"t{i}": graph for i, graph in enumerate(list(json.loads(other.read_text()).values())[:25])}
        path = other.with_name(f"{other.stem}_as_predicted.json")
        path.write_text(json.dumps(made))
        return mo.score(mo.reports(truth, radgraph=one), mo.reports(given, radgraph=path), names).table

    found = scored(of_tests, of_corpus, [f"radgraph:{v}-lower" for v in VARIANTS])
    expected = scored(of_tests_lowered, of_corpus_lowered, [f"radgraph:{v}" for v in VARIANTS])
    for variant in VARIANTS:
        assert found[f"radgraph:{variant}-lower"].to_pylist() == expected[f"radgraph:{variant}"].to_pylist()
