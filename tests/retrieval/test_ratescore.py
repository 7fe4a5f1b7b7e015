"""RaTEScore over given entities: the published values, and a search that equals the plain scorer, ties and all."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.entities import TYPES
from metric_oracle.kernels.ratescore import score as score_module
from metric_oracle.kernels.ratescore.reference import score
from metric_oracle.sources.entities import as_entities
from support.entities import made_up

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/ratescore.json").read_text(encoding="utf-8"))["scores"]


def test_types_stand_in_one_order():
    assert score_module.TYPES == TYPES


def test_lists_in_parquet_are_read_by_a_process_that_has_read_nothing_else(tmp_path):
    """Arrow's functions are imported by whoever needs them, and no longer by all that reads."""
    path = write_parquet(tmp_path / "e.parquet", {"a": {"types": ["disease"], "vectors": [[1.0, 2.0]]}})
    vectors = tmp_path / "v.parquet"
    pq.write_table(pa.table({"study_id": ["a"], "embedding": pa.array([[1.0, 2.0]], pa.list_(pa.float32()))}), vectors)
    for program in (
        f"from metric_oracle.sources.entities import as_entities; as_entities({str(path)!r})",
        f"from metric_oracle.corpora.vectors import read_embeddings; read_embeddings({str(vectors)!r})",
    ):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr


def records(lists):
    return {
        f"r{i}": {"types": [kind for kind, _ in some], "vectors": [vector.tolist() for _, vector in some]}
        for i, some in enumerate(lists)
    }


def texts(n):
    return {f"r{i}": f"report {i}" for i in range(n)}


def write_parquet(path, given):
    kinds = pa.array([record["types"] for record in given.values()], pa.list_(pa.string()))
    vectors = pa.array([record["vectors"] for record in given.values()], pa.list_(pa.list_(pa.float32())))
    pq.write_table(pa.table({"study_id": list(given), "types": kinds, "vectors": vectors}), path)
    return path


@pytest.mark.parametrize("layout", ["json", "jsonl", "parquet", "memory"])
def test_the_published_values(tmp_path, layout):
    pairs = made_up()
    sides = []
    for name, lists in zip(("candidates", "references"), zip(*pairs, strict=True), strict=True):
        given, path = records(lists), tmp_path / f"{name}.{layout}"
        if layout == "json":
            path.write_text(json.dumps(given))
        elif layout == "jsonl":
            path.write_text("".join(json.dumps({"study_id": i, **record}) + "\n" for i, record in given.items()))
        elif layout == "parquet":
            write_parquet(path, given)
        sides.append(given if layout == "memory" else path)
    ids = texts(len(pairs))
    scores = mo.score(mo.reports(ids, entities=sides[1]), mo.reports(ids, entities=sides[0]), list(GOLDEN))
    for name, expected in GOLDEN.items():
        assert len(expected) == 320
        assert np.abs(scores.values(name) - expected).max() < 1e-12
        assert len(np.unique(expected)) > 200
        assert expected.count(0.5) > 20  # a side without entities


def tied(rng, n):
    """Return lists full of repetitions: few vectors, of which some are equal under unlike types, scaled or opposite."""
    pool = rng.standard_normal((5, 3)).astype(np.float32)
    pool = np.concatenate([pool, pool[:2] * np.float32(4), -pool[:1], [[0.0, -0.0, 1.0]], [[-0.0, 0.0, 1.0]]])
    lists = []
    for _ in range(n):
        size = int(rng.choice((0, 1, 1, 2, 3, 7)))
        drawn = rng.integers(0, len(pool), size)
        lists.append([(TYPES[rng.integers(len(TYPES))], pool[place].astype(np.float32)) for place in drawn])
        if rng.random() < 0.3:
            lists[-1] = lists[int(rng.integers(len(lists)))]
    return lists


@pytest.mark.parametrize("metric", GOLDEN)
def test_the_search_is_brute_force(tmp_path, metric):
    rng = np.random.default_rng(8)
    corpus, asked = tied(rng, 160), tied(rng, 40)
    index = mo.build_index(mo.reports(texts(160), entities=records(corpus)), tmp_path / "I", metrics=metric)
    table = mo.retrieve(index, mo.reports(texts(40), entities=records(asked)), metric, k=9).table

    def item(some):
        kinds = np.array([TYPES.index(kind) for kind, _ in some], np.uint8)
        return kinds, np.array([vector for _, vector in some], np.float32).reshape(len(some), 3) + np.float32(0)

    matrix = "short" if metric.endswith("short") else "long"
    found = np.array([[score(item(c), item(q), matrix=matrix)[0] for c in corpus] for q in asked])
    best = np.argsort(-found, axis=1, kind="stable")[:, :9]
    assert np.array_equal(table["row"].to_numpy().reshape(40, 9), best)
    assert np.array_equal(table["score"].to_numpy().reshape(40, 9), np.take_along_axis(found, best, axis=1))
    assert table["n_ties"].to_numpy().max() > 5
    assert len(np.unique(found)) > 50
    # A set of shards has the answers of the whole.
    shards = mo.build_index(
        mo.reports(texts(160), entities=records(corpus)), tmp_path / "S", metrics=metric, shard_rows=50
    )
    assert mo.retrieve(shards, mo.reports(texts(40), entities=records(asked)), metric, k=9).table.equals(table)


def test_of_equal_vectors_the_first_counts():
    """By hand: one entity, its twin twice under unlike types."""
    vector = np.array([[1.0, 2.0]], np.float32)
    one = np.array([2], np.uint8), vector
    for kinds, factor in (([2, 4], 1.0), ([4, 2], 0.8716553966489615)):
        two = np.array(kinds, np.uint8), np.repeat(vector, 2, axis=0)
        value, parts = score(two, one, matrix="long")
        assert parts["precision"] == pytest.approx(factor, rel=1e-15)  # of disease with the first of the two
        weights = {2: 0.8460555030578727, 4: 0.10073046076318157}
        recall = sum(weights[k] * (1.0 if k == 2 else 0.8716553966489615) for k in kinds) / sum(weights.values())
        assert parts["recall"] == pytest.approx(recall, rel=1e-14)
        assert value == pytest.approx(2 * factor * recall / (factor + recall), rel=1e-14)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"r0": {"types": ["anatomy"]}},
            r"entities must have the columns types and vectors, a list each; got columns ",
        ),
        ([1, 2], r"entities must have the columns types and vectors, a list each; got a list in memory\."),
        (
            {"r0": {"types": ["organ"], "vectors": [[1.0]]}},
            r"entities must have types of abnormality, anatomy, disease, ",
        ),
        ({"r0": {"types": "anatomy", "vectors": [[1.0]]}}, r"entities must have types of "),
        (
            {"r0": {"types": ["anatomy"], "vectors": [[1.0], [2.0]]}},
            r"entities must have types of .* a vector of one .*; got another number",
        ),
        (
            {"r0": {"types": ["anatomy"] * 2, "vectors": [[1.0], [2.0, 3.0]]}},
            r"entities must have types of .*; got vectors of several",
        ),
        (
            {"r0": {"types": ["anatomy"], "vectors": [["x"]]}},
            r"entities must have types of .*; got cells that are no such",
        ),
        (
            {"r0": {"types": ["anatomy"], "vectors": [[0.0]]}},
            r"vectors of entities must be finite and other than zero; got a zero vector, NaN or infinity",
        ),
        ({"r0": {"types": ["anatomy"], "vectors": [[float("nan")]]}}, r"vectors of entities must be finite and other "),
    ],
)
def test_entities_that_cannot_be(given, line):
    with pytest.raises(InputError, match=rf"^AttachedReports\.load: {line}"):
        mo.reports({"r0": "text"}, entities=given).load()


def test_widths_that_differ(tmp_path):
    one, other = ({"r0": {"types": ["anatomy"], "vectors": [[1.0] * n]}} for n in (2, 3))
    index = mo.build_index(mo.reports(texts(1), entities=one), tmp_path / "I", metrics="ratescore")
    match = r"^retrieve: vectors of entities must have the index's width 2; got 3\. Encode queries and corpus with one"
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, mo.reports(texts(1), entities=other), "ratescore")
    nothing = {"r0": {"types": [], "vectors": []}}
    assert mo.retrieve(index, mo.reports(texts(1), entities=nothing), "ratescore").table["score"].to_pylist() == [0.5]
    empty = mo.build_index(mo.reports(texts(1), entities=nothing), tmp_path / "E", metrics="ratescore")
    assert mo.retrieve(empty, mo.reports(texts(1), entities=other), "ratescore").table["score"].to_pylist() == [0.5]
    assert as_entities(nothing).ptr.tolist() == [0, 0]


def test_the_column_of_the_command(tmp_path, oracle, named):
    pairs = made_up()[:9]
    (tmp_path / "r.csv").write_text("study_id,report\n" + "".join(f"r{i},text {i}\n" for i in range(9)))
    sides = [
        write_parquet(tmp_path / f"{name}.parquet", records(lists))
        for name, lists in zip("cr", zip(*pairs, strict=True), strict=True)
    ]
    both = [named(name, tmp_path / "r.csv", entities=side) for name, side in zip("rc", sides[::-1], strict=True)]
    code, shown, err = oracle("score", *both, "-m", "ratescore", "--format", "csv")
    assert code == 0, err
    values = [float(line.split(",")[1]) for line in shown.splitlines()[1:10]]
    assert values == pytest.approx(GOLDEN["ratescore"][:9], abs=1e-12)
