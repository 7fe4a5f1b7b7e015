"""Distances of sets of sentence vectors: hand values, every layout, and a search that equals the plain scorer."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import ExactnessError, InputError
from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.sentences.reference import score
from metric_oracle.retrieval.kernels import arrays_of, load_kernel
from metric_oracle.sources.sentences import as_sentences


def texts(n):
    return {f"r{i}": f"report {i}" for i in range(n)}


def drawn(rng, n, width=3, share=0.3):
    """Return sets full of ties: few vectors, scaled or opposite copies, the same sets in another order, empty sets."""
    pool = rng.standard_normal((6, width))
    pool = np.concatenate([pool, pool[:2] * 4, -pool[:1], pool[:2] + 1e-7]).astype(np.float32)
    sets = []
    for _ in range(n):
        size = int(rng.choice((0, 1, 1, 2, 3, 5, 8)))
        sets.append(pool[rng.integers(0, len(pool), size)])
        if rng.random() < share:
            sets[-1] = rng.permutation(sets[int(rng.integers(len(sets)))])
    return sets


def unit(vectors):
    """Return vectors as an index stores them: float32, of length 1, in a fixed order."""
    wide = vectors.astype(np.float64)
    rounded = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32) + np.float32(0)
    return rounded[np.lexsort(rounded.view(np.uint32).T[::-1])]


def test_values_by_hand():
    a, b = np.array([[1.0, 0.0]], np.float32), np.array([[0.0, 1.0]], np.float32)
    both, none = np.concatenate([a, b]), np.empty((0, 2), np.float32)
    assert score(a, a) == (0.0, {"precision": 1.0, "recall": 1.0})
    assert score(a, b) == (1.0, {"precision": 0.0, "recall": 0.0})
    assert score(a, -a) == (2.0, {"precision": -1.0, "recall": -1.0})
    assert score(a, both) == (0.25, {"precision": 1.0, "recall": 0.5})
    assert score(both, a) == (0.25, {"precision": 0.5, "recall": 1.0})
    assert score(np.repeat(both, [3, 1], axis=0), a) == (0.125, {"precision": 0.75, "recall": 1.0})
    for pair in ((none, a), (a, none), (none, none)):
        assert score(*pair) == (1.0, {"precision": 0.0, "recall": 0.0})


def test_the_distance_orders_pairs_as_the_chamfer_distance_of_unit_vectors():
    rng = np.random.default_rng(4)
    sets = [unit(x) for x in drawn(rng, 60) if len(x)]
    for a in sets[:8]:
        for b in sets:
            squares = ((a[:, None].astype(np.float64) - b[None]) ** 2).sum(axis=2)
            chamfer = squares.min(axis=1).mean() + squares.min(axis=0).mean()
            assert 4 * score(a, b)[0] == pytest.approx(chamfer, abs=2e-6)
            assert score(a, b)[0] == score(b, a)[0]


@pytest.mark.parametrize("width", [1, 2, 3, 19, 128, 200])
def test_the_search_is_brute_force(tmp_path, width):
    rng = np.random.default_rng(width)
    corpus, asked = drawn(rng, 160, width), drawn(rng, 40, width)
    index = mo.build_index(mo.reports(texts(160), sentences=corpus_of(corpus)), tmp_path / "I", metrics="sentences")
    table = mo.retrieve(index, mo.reports(texts(40), sentences=corpus_of(asked)), "sentences", k=9).table
    scores = np.array([[score(unit(c), unit(q))[0] for c in corpus] for q in asked])
    best = np.argsort(scores, axis=1, kind="stable")[:, :9]
    assert np.array_equal(table["row"].to_numpy().reshape(40, 9), best)
    assert np.array_equal(table["score"].to_numpy().reshape(40, 9), np.take_along_axis(scores, best, axis=1))
    listed = table["score"].to_numpy()[::9]
    assert np.array_equal(table["n_ties"].to_numpy()[::9], (scores == listed[:, None]).sum(axis=1))
    assert table["n_ties"].to_numpy().max() > 3
    reference = mo.retrieve(
        index, mo.reports(texts(40), sentences=corpus_of(asked)), "sentences", k=9, backend="reference"
    )
    assert reference.table.equals(table)
    # A set of shards has the answers of the whole.
    shards = mo.build_index(
        mo.reports(texts(160), sentences=corpus_of(corpus)), tmp_path / "S", metrics="sentences", shard_rows=50
    )
    assert mo.retrieve(shards, mo.reports(texts(40), sentences=corpus_of(asked)), "sentences", k=9).table.equals(table)


def corpus_of(sets):
    return {f"r{i}": vectors for i, vectors in enumerate(sets)}


def test_distances_that_round_to_one_value_tie(tmp_path):
    """Means of cosines below a half are finer than distances: of two that round to one distance the lower row wins."""
    rng = np.random.default_rng(1)
    query = np.array([[1.0, 0.0]], np.float32)
    near = [np.array([[1e-10 * (1 + i * 2.0**-20), 1.0]], np.float32) for i in rng.integers(0, 40, 300)]
    means = [score(unit(x), query)[1]["recall"] for x in near]
    scores = np.array([score(unit(x), query)[0] for x in near])
    assert len(np.unique(means)) > len(np.unique(scores))
    index = mo.build_index(mo.reports(texts(300), sentences=corpus_of(near)), tmp_path / "I", metrics="sentences")
    table = mo.retrieve(index, mo.reports({"q": "x"}, sentences={"q": query}), "sentences", k=40).table
    assert table["row"].to_pylist() == np.argsort(scores, kind="stable")[:40].tolist()
    assert table["score"].to_pylist() == np.sort(scores)[:40].tolist()


def test_most_candidates_are_dropped_by_bounds_and_a_broken_bound_is_an_error(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    centers = rng.standard_normal((40, 48))
    sets = [centers[rng.integers(0, 40, rng.integers(1, 7))] + rng.normal(0, 0.05, 48) for _ in range(2000)]
    index = mo.build_index(mo.reports(texts(2000), sentences=corpus_of(sets)), tmp_path / "I", metrics="sentences")
    asked = {"texts": texts(30), "sentences": corpus_of(sets[:30])}
    found = mo.retrieve(index, mo.reports(asked["texts"], sentences=asked["sentences"]), "sentences")
    assert found.table["row"].to_pylist() == list(range(30))
    assert found.signature["direction"] == "lower"
    assert found.signature["stages"]["scored"] < 0.2
    assert min(found.signature["closest_call"].values()) >= 0
    real = bertscore.margins_of
    monkeypatch.setattr(bertscore, "margins_of", lambda *of: real(*of)._replace(code=-0.5, cells=-0.5, product=-0.5))
    with pytest.raises(ExactnessError, match=r"^retrieve: "):
        mo.retrieve(index, mo.reports(asked["texts"], sentences=asked["sentences"]), "sentences")


def test_random_scores_are_within_their_error(tmp_path):
    rng = np.random.default_rng(3)
    corpus, asked = drawn(rng, 90, 7), drawn(rng, 12, 7)
    index = mo.build_index(mo.reports(texts(90), sentences=corpus_of(corpus)), tmp_path / "I", metrics="sentences")
    inputs = mo.reports(texts(12), sentences=corpus_of(asked)).load()
    part, kernel = index.part("sentences"), load_kernel(mo.metrics.METRICS["sentences"], "cpu")
    encoded = part.encode(inputs)
    sets, batch = arrays_of(mo.metrics.METRICS["sentences"], part, encoded)
    chosen = range(int(encoded.document_of_row.max()) + 1)
    error = kernel.score_error(sets, batch)
    assert error < 1e-6
    for q, scores in zip(chosen, kernel.score_all(sets, batch, chosen), strict=True):
        exact = [score(part.item(d), encoded.item(q))[0] for d in range(len(scores))]
        assert np.abs(scores - exact).max() <= error


def layouts(sets, folder):
    """Yield what a user may give for sets of vectors, of which the .npz file cannot name those without a sentence."""
    ids = [f"r{i}" for i in range(len(sets))]
    lists = [vectors.tolist() for vectors in sets]
    records = {i: {"vectors": some} for i, some in zip(ids, lists, strict=True)}
    table = pa.table({"study_id": ids, "vectors": pa.array(lists, pa.list_(pa.list_(pa.float32())))})
    path = folder / "s.json"
    path.write_text(json.dumps(records))
    yield "json", path
    path = folder / "s.jsonl"
    path.write_text("".join(json.dumps({"study_id": i, "vectors": some}) + "\n" for i, some in records_of(ids, lists)))
    yield "jsonl", path
    path = folder / "s.parquet"
    pq.write_table(table, path)
    yield "parquet", path
    yield "arrow", table
    yield "records", records
    yield "arrays", dict(zip(ids, sets, strict=True))
    path = folder / "s.npz"
    owner = np.repeat(ids, [len(vectors) for vectors in sets])
    order = np.random.default_rng(0).permutation(len(owner))
    np.savez(path, ids=owner[order], vectors=np.concatenate(sets)[order])
    yield "npz", path


def records_of(ids, lists):
    return zip(ids, lists, strict=True)


def test_every_layout_gives_the_same_sets(tmp_path):
    sets = drawn(np.random.default_rng(5), 30)
    assert any(not len(vectors) for vectors in sets)
    asked = corpus_of(drawn(np.random.default_rng(6), 9))
    answers = {}
    for name, given in layouts(sets, tmp_path):
        index = mo.build_index(mo.reports(texts(30), sentences=given), tmp_path / name, metrics="sentences")
        answers[name] = mo.retrieve(index, mo.reports(texts(9), sentences=asked), "sentences", k=5).table
        if name != "npz":
            assert answers[name].equals(answers["json"])
            assert len(index.part("sentences").row_id) == 30
    # Of an .npz file, a report without a sentence is one that nothing was given for.
    assert index.part("sentences").row_id.max() < 30
    assert len(index.part("sentences").row_id) == sum(len(vectors) > 0 for vectors in sets)
    alone = mo.build_index(mo.reports(["x", "y"], sentences=[sets[1], []]), tmp_path / "listed", metrics="sentences")
    assert alone.part("sentences").counts()["sentences"] == len(sets[1])


def test_sentences_from_a_function_of_the_texts(tmp_path):
    """The encoder of the user splits each text and returns an array for it."""
    words = {word: np.eye(5, dtype=np.float32)[i] for i, word in enumerate("abcde")}

    def encode(reports):
        return [np.array([words[s] for s in report.split()], np.float32).reshape(-1, 5) for report in reports]

    corpus = {"1": "a b", "2": "c", "3": "b a", "4": "d e a"}
    index = mo.build_index(mo.reports(corpus, sentences=encode), tmp_path / "I", metrics="sentences")
    found = mo.retrieve(index, mo.reports({"q": "b a", "p": "c c"}, sentences=encode), "sentences", k=2).table
    assert found["candidate_id"].to_pylist()[:3] == ["1", "3", "2"]
    assert found["score"].to_pylist()[:3] == [0.0, 0.0, 0.0]
    reward = mo.reward("sentences", sources={"sentences": encode})
    assert reward(["?"] * 3, ["a b", "a", "c"], reference=["b a", "a b", "d"]) == [0.0, -0.25, -1.0]


def test_scores_of_pairs(tmp_path):
    sets = drawn(np.random.default_rng(7), 24)
    ids = texts(24)
    found = mo.score(
        mo.reports(ids, sentences=corpus_of(sets)), mo.reports(ids, sentences=corpus_of(sets[::-1])), "sentences"
    )
    wanted = [score(unit(a), unit(b))[0] for a, b in zip(sets[::-1], sets, strict=True)]
    assert found.values("sentences").tolist() == wanted


def test_a_shard_without_any_sentence_vectors(tmp_path):
    sets = {f"r{i}": np.eye(3, dtype=np.float32)[i % 3 : i % 3 + 1] for i in range(4)}
    shards = mo.build_index(mo.reports(texts(12), sentences=sets), tmp_path / "S", metrics="sentences", shard_rows=4)
    found = mo.retrieve(shards, mo.reports({"q": "x"}, sentences={"q": np.eye(3)[:1]}), "sentences", k=4).table
    assert found["row"].to_pylist() == [0, 3, 1, 2]
    assert found["n_ties"].to_pylist() == [2, 2, 2, 2]


LAYOUT = r"sentences must be an \.npz file with ids and one vector for each sentence, a table with a column vectors "


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"r0": {"vector": [1.0]}}, LAYOUT),
        ({"r0": {"vectors": [1.0]}}, LAYOUT),
        ({"r0": {"vectors": [[1.0], [1.0, 2.0]]}}, LAYOUT),
        ({"r0": {"vectors": [["x"]]}}, LAYOUT),
        ({"r0": [[1.0], [1.0, 2.0]]}, LAYOUT),
        ({"r0": [1.0, 2.0]}, LAYOUT),
        ({"r0": np.eye(2), "r1": np.eye(3)}, LAYOUT),
        (["text"], LAYOUT),
        (
            {"r0": [[1.0, 2.0]], "r1": [[3.0, 0.0], [0.0, 0.0]]},
            r"sentence vectors must be finite and not zero; got one that is not for report 'r1' in the dict in ",
        ),
        (
            {"r0": [[np.nan, 2.0]]},
            r"sentence vectors must be finite and not zero; got one that is not for report 'r0",
        ),
        (
            {"r0": [[1e300, 2.0]]},
            r"sentence vectors must be finite and not zero; got one that is not for report 'r0",
        ),
        ([[[1.0]], [[0.0]]], r"sentence vectors must be finite .* for report '1' in the list in memory\. Encode its "),
        ({"7": [[1.0]], " 7": [[1.0]]}, r"the ids of the dict in memory"),
        ({"x9": [[1.0]]}, r"sentences must share ids with the reports; got none of 2 report ids among 1 in "),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, given, line):
    with pytest.raises(InputError, match=f"^build_index: .*{line}") as caught:
        mo.build_index(mo.reports(texts(2), sentences=given), tmp_path / "I", metrics="sentences")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    path = tmp_path / "s.npz"
    np.savez(path, vectors=np.eye(2))
    with pytest.raises(InputError, match=f"^{LAYOUT}.*{re.escape(str(path))}"):
        as_sentences(path)
    np.savez(path, ids=np.array(["a", "b", "c"]), vectors=np.eye(2))
    with pytest.raises(InputError, match=f"^{LAYOUT}"):
        as_sentences(path)
    with pytest.raises(InputError, match=r"^there is no file .*none\.npz\. Check the name\.$"):
        as_sentences(tmp_path / "none.npz")


def test_widths_must_agree(tmp_path):
    index = mo.build_index(mo.reports({"a": "x"}, sentences={"a": np.eye(3)}), tmp_path / "I", metrics="sentences")
    with pytest.raises(InputError, match=r"retrieve: sentence vectors must have the index's width 3; got 2\. Encode "):
        mo.retrieve(index, mo.reports({"q": "x"}, sentences={"q": np.eye(2)}), "sentences")
    # Queries without any sentence have no width.
    found = mo.retrieve(index, mo.reports({"q": "x"}, sentences={"q": []}), "sentences").table
    assert found["score"].to_pylist() == [1.0]
    with pytest.raises(InputError, match=r"build_index: sentence vectors must have at most 8,192 components, and "):
        mo.build_index(mo.reports({"a": "x"}, sentences={"a": np.ones((1, 8193))}), tmp_path / "W", metrics="sentences")


def test_a_corpus_of_reports_without_sentences(tmp_path):
    index = mo.build_index(
        mo.reports({"a": "x", "b": "y"}, sentences={"a": [], "b": []}), tmp_path / "I", metrics="sentences"
    )
    found = mo.retrieve(index, mo.reports({"q": "x"}, sentences={"q": [[2.0, 1.0]]}), "sentences", k=2).table
    assert found["score"].to_pylist() == [1.0, 1.0]
    assert found["row"].to_pylist() == [0, 1]
