"""Baselines and exact expectations against plain scorers, on a corpus full of duplicates and of rows without a part."""

import json
import math
from dataclasses import replace
from functools import cache
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, ExactnessError, InputError
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.corpora.vectors import Vectors
from metric_oracle.findings.results import AFTER, FIXED, Results, read_results
from metric_oracle.indexes.build import build_index
from metric_oracle.metrics import SEARCHED, get_metric
from metric_oracle.retrieval.kernels import load_reference
from metric_oracle.sources.attaching import attach_sources
from metric_oracle.sources.token_states import load_encoder
from support.calls import Calls
from support.inputs import changed

N_ROWS = 210
QUANTILES = (0.0, 0.025, 0.05, 0.25, 1 / 3, 0.5, 0.75, 0.95, 1.0)
ONE_A_KERNEL = ("bleu", "rouge-l", "radgraph", "chexbert", "chexbert:labels", "bertscore", "radcliq")
every_metric = pytest.mark.parametrize("metric", SEARCHED)
every_kernel = pytest.mark.parametrize("metric", ONE_A_KERNEL)


@pytest.fixture(scope="module")
def world(corpus, tmp_path_factory, fake_encoder):
    """Return an index whose rows repeat and may lack a graph or an embedding, and queries that repeat."""
    sides = {}
    for side in ("train", "test"):
        read = read_reports(corpus[side])
        sides[side] = attach_sources(
            read, radgraph=corpus[f"{side}_graphs"],
            chexbert=corpus[f"{side}_embeddings"], chexbert_labels=corpus[f"{side}_labels"], uncertain="positive",
            embeddings=corpus[f"{side}_embeddings"], srr_labels=corpus[f"{side}_srr"],
            entities=corpus[f"{side}_entities"], sentences=corpus[f"{side}_sentences"], labels=corpus[f"{side}_table"],
            opened_encoder=load_encoder("fake") if side == "train" else None,
        )  # fmt: skip
    rng = np.random.default_rng(11)
    rows = rng.integers(0, 40, N_ROWS)  # every report about five times
    rows[::3] = rng.integers(0, 120, len(rows[::3]))
    train = replace(sides["train"].take(rows), ids=[f"r{i}" for i in range(N_ROWS)])
    train.attached["radgraph"].of_row[::17] = -1
    train.attached["chexbert"].of_row[::13] = -1
    queries = replace(sides["test"].take(np.r_[np.arange(12), 3, 3]), ids=[f"t{i}" for i in range(14)])
    return build_index(train, tmp_path_factory.mktemp("baselines") / "I"), queries


def scored_by_hand(world, name, **settings):
    """Return the plain scorer's scores of every query with every row that the metric can score, and those rows."""
    index, queries = world
    metric = get_metric(name)
    representation = index.representation(metric)
    encoded = representation.encode(queries, **settings)
    score = load_reference(metric)
    rows = np.flatnonzero(representation.document_of_row >= 0)
    units = representation.document_of_row[rows].tolist()
    known = {}
    for q in range(int(encoded.document_of_row.max()) + 1):
        for u in set(units):
            known[q, u] = score(representation.item(u), encoded.item(q))[0]
    return np.array([[known[q, u] for u in units] for q in encoded.document_of_row.tolist()]), rows


@pytest.fixture(scope="module")
def by_hand(world):
    """Return `scored_by_hand` of the world without settings, each metric scored once."""
    return cache(lambda metric: scored_by_hand(world, metric))


# ---- the exact expectation -------------------------------------------------------------------------------------------


@every_metric
def test_expectation_is_the_mean_of_all_rows(world, by_hand, metric):
    matrix, rows = by_hand(metric)
    found = mo.expectation(*world, metric, quantiles=QUANTILES)
    error = found.signature["error"]
    in_float32 = {"bertscore", "sentences"} & set(get_metric(metric).representations)
    assert error < (1e-5 if in_float32 else 1e-12)
    if metric.startswith(("bleu", "rouge", "radgraph")):
        assert error == 0.0
    table = found.table
    names = ["q00", "q02.5", "q05", "q25", "q33.33333333", "q50", "q75", "q95", "q100"]
    assert table.column_names == ["query_id", "mean", "sd", "min", *names, "max", "n"]
    assert table["query_id"].to_pylist() == world[1].ids
    assert set(table["n"].to_pylist()) == {len(rows)}
    expected = {"mean": matrix.mean(axis=1), "sd": matrix.std(axis=1)}
    for name, values in expected.items():
        assert np.abs(table[name].to_numpy() - values).max() <= 1e-12 + 2 * error
    expected = {"min": matrix.min(axis=1), "max": matrix.max(axis=1)}
    expected |= dict(zip(names, np.quantile(matrix, QUANTILES, axis=1, method="inverted_cdf"), strict=True))
    for name, values in expected.items():
        assert np.abs(table[name].to_numpy() - values).max() <= error
    assert found.counts.sum() == matrix.size
    if error == 0:
        assert found.counts.tolist() == np.histogram(matrix, found.edges)[0].tolist()
    assert found.edges[0] <= matrix.min() + error
    assert found.edges[-1] >= matrix.max() - error


def test_duplicates_weigh_as_rows(tmp_path):
    reports = Reports(["a", "b", "c", "d"], ["no effusion", "no effusion", "no effusion", "edema"], "test")
    index = mo.build_index(reports, tmp_path / "I")
    table = mo.expectation(index, ["no effusion"], "rouge-l", quantiles=[0.25, 0.26]).table.to_pylist()[0]
    assert (table["mean"], table["q25"], table["q26"], table["n"]) == (0.75, 0.0, 1.0, 4)
    assert table["sd"] == pytest.approx(np.std([1, 1, 1, 0]), abs=1e-15)


def test_a_corpus_of_one_report(tmp_path):
    index = mo.build_index(Reports(["a"], ["no effusion"], "test"), tmp_path / "I")
    # pycocoevalcap's constants for two words of two: no trigram, and a reference longer by 1e-9.
    precisions = [(m + 1e-15) / (n + 1e-9) for m, n in ((2, 2), (1, 1), (0, 0), (0, 0))]
    coco = math.prod(precisions) ** 0.25 * math.exp(1 - (2 + 1e-9) / (2 + 1e-15))
    for metric, same in (("bleu", 1.0), ("rouge-l", 1.0), ("bleu-4:coco", coco)):
        found = mo.expectation(index, mo.reports(["no effusion", "else", ""], mo.Read(keep_empty=True)), metric)
        score = mo.retrieve(index, ["no effusion"], metric).table["score"][0].as_py()
        assert score == pytest.approx(same, rel=1e-12)
        for record, value in zip(found.table.to_pylist(), (score, 0.0, 0.0), strict=True):
            numbers = [record[name] for name in ("mean", "min", "q05", "q50", "q95", "max")]
            assert numbers == [value] * 6
            assert (record["sd"], record["n"]) == (0.0, 1)
        drawn = mo.baseline(index, ["no effusion"], "random", metric, draws=3).table
        assert drawn["row"].to_pylist() == [0, 0, 0]
        assert drawn["score"].to_pylist() == [score] * 3


def test_queries_of_many_words(tmp_path):
    rng = np.random.default_rng(5)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 40, n)) for n in (0, 1, 2, 63, 64, 65, 66, 130, 300, 300, 301)]
    index = mo.build_index(Reports([str(i) for i in range(11)], texts, "test"), tmp_path / "I")
    queries = mo.reports(texts[1:]).load()
    for metric in ("bleu", "bleu-4", "rouge-l"):
        matrix, _ = scored_by_hand((index, queries), metric)
        found = mo.expectation(index, queries, metric, quantiles=[i / 20 for i in range(21)]).table
        assert np.abs(found["mean"].to_numpy() - matrix.mean(axis=1)).max() < 1e-14
        for p in range(0, 101, 5):
            expected = np.quantile(matrix, p / 100, axis=1, method="inverted_cdf").tolist()
            assert found[f"q{p:02}"].to_pylist() == expected


@pytest.mark.parametrize("settings", [{"idf": "tests"}, {"idf": "corpus", "rescale": True}, {"rescale": True}])
@pytest.mark.parametrize("metric", ["bertscore", "bertscore:recall", "radcliq"])
def test_weights_and_baseline_of_bertscore(world, metric, settings, monkeypatch):
    index, _ = world
    states = index.representation(get_metric("bertscore"))
    monkeypatch.setitem(states.description, "baseline", (0.31, 0.32, 0.33))
    matrix, _ = scored_by_hand(world, metric, **settings)
    found = mo.expectation(*world, metric, options=mo.SearchOptions(**settings))
    assert found.signature["idf"] == settings.get("idf", "off")
    assert found.signature["rescaled"]
    assert np.abs(found.table["mean"].to_numpy() - matrix.mean(axis=1)).max() <= found.signature["error"] + 1e-12
    drawn = mo.baseline(*world, "random", metric, options=mo.SearchOptions(**settings))
    expected = np.take_along_axis(matrix, _places(world, metric, drawn), axis=1)
    assert drawn.table["score"].to_pylist() == expected.ravel().tolist()


def test_float16_states(corpus, fake_encoder, tmp_path):
    some = read_reports(corpus["train"])
    index = mo.build_index(mo.reports(some, encoder="fake", states="float16"), tmp_path / "I", metrics=["bertscore"])
    queries = mo.reports(corpus["test"], encoder="fake").load()
    matrix, _ = scored_by_hand((index, queries), "bertscore")
    found = mo.expectation(index, queries, "bertscore")
    assert np.abs(found.table["mean"].to_numpy() - matrix.mean(axis=1)).max() <= found.signature["error"] + 1e-12
    assert np.abs(found.table["max"].to_numpy() - matrix.max(axis=1)).max() <= found.signature["error"]


@pytest.mark.parametrize("bins", [2, 3, 7, 64, 128, 1000, 1024])
def test_bins(world, by_hand, bins):
    for metric in ("bleu", "radcliq:preprint", "chexbert:labels"):
        matrix, _ = by_hand(metric)
        found = mo.expectation(*world, metric, bins=bins)
        widths = np.diff(found.edges)
        assert len(found.counts) == len(widths) <= bins
        assert set(widths.tolist()) == {widths[0]}
        assert np.frexp(widths[0])[0] == 0.5  # a power of two
        assert found.counts.tolist() == np.histogram(matrix, found.edges)[0].tolist()
        if widths[0] > 2.0**-10:
            half = widths[0] / 2
            assert np.ceil(matrix.max() / half) - np.floor(matrix.min() / half) > bins
    found = mo.expectation(*world, "bleu", bins=128)
    assert (found.edges[0], found.edges[-1], len(found.counts)) == (0.0, 1.0, 128)


def test_the_answer_does_not_depend_on_threads_or_blocks(world, monkeypatch):
    found = mo.expectation(*world, "radgraph")
    kernel = import_module("metric_oracle.kernels.radgraph.cpu").Backend
    monkeypatch.setattr(kernel, "capabilities", replace(kernel.capabilities, queries_at_once=1))
    for n in (1, 3):
        monkeypatch.setattr("metric_oracle.scores.expectation.n_threads", lambda n=n: n)
        again = mo.expectation(*world, "radgraph")
        assert again.table.equals(found.table)
        assert again.edges.tolist() == found.edges.tolist()
        assert again.counts.tolist() == found.counts.tolist()


def test_progress_adds_up_to_the_queries(world):
    for metric in ("bleu", "chexbert"):
        steps = Calls()
        mo.expectation(*world, metric, progress=steps)
        assert steps[0] == ("", 0, 14)
        assert steps == sorted(steps)
        assert steps[-1] == ("", 14, 14)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_expectations_are_written(world, tmp_path, ending):
    from pyarrow import csv, parquet

    found = mo.expectation(*world, "bleu")
    path = tmp_path / f"e{ending}"
    found.write(path)
    if ending == ".parquet":
        table = parquet.read_table(path)
        signature = json.loads(table.schema.metadata[b"metric_oracle.signature"])
    else:
        signature = json.loads((tmp_path / f"e{ending}.signature.json").read_text())
    assert len(signature.pop("table_sha256")) == len(signature.pop("signature_sha256")) == 64
    if ending == ".csv":
        table = csv.read_csv(path)
    if ending == ".jsonl":
        table = pa.Table.from_pylist(list(map(json.loads, path.read_text().splitlines())))
        assert path.read_text().splitlines() == list(found.json_lines())
    assert table.to_pylist() == found.table.to_pylist()
    histogram = signature.pop("histogram")
    assert (histogram["edges"], histogram["counts"]) == (found.edges.tolist(), found.counts.tolist())
    assert signature == found.signature
    assert signature["baseline"] == "expectation"
    assert signature["index"] == world[0].fingerprint
    with pytest.raises(InputError, match=r"^read_results: results must be a file that `mo\.retrieve` wrote"):
        read_results(path)


# ---- random, most frequent, identity ---------------------------------------------------------------------------------


def _places(world, metric, results):
    """Return where the listed rows stand among those that the metric can score: int64[Q, k]."""
    rows = np.flatnonzero(world[0].representation(get_metric(metric)).document_of_row >= 0)
    return np.searchsorted(rows, results.table["row"].to_numpy()).reshape(-1, results.signature["k"])


@every_metric
def test_random_scores_are_the_reference_s(world, by_hand, metric, tmp_path):
    results = mo.baseline(*world, "random", metric, draws=5, seed=2)
    table = results.table
    matrix, rows = by_hand(metric)
    assert table.column_names[:5] == list(FIXED)
    assert tuple(table.column_names[-4:]) == (*AFTER, "text")
    assert table.column_names == mo.retrieve(*world, metric).table.column_names
    assert table.schema.equals(mo.retrieve(*world, metric).table.schema)
    assert table["rank"].to_pylist() == [1, 2, 3, 4, 5] * 14
    assert table["query_id"].to_pylist() == [i for i in world[1].ids for _ in range(5)]
    drawn = table["row"].to_numpy()
    assert np.isin(drawn, rows).all()
    assert len(set(drawn.tolist())) > 30
    expected = np.take_along_axis(matrix, _places(world, metric, results), axis=1)
    assert table["score"].to_pylist() == expected.ravel().tolist()
    assert table["candidate_id"].to_pylist() == [f"r{row}" for row in drawn]
    assert table["text"].to_pylist() == world[0].reports["text"].take(drawn).to_pylist()
    units = world[0].representation(get_metric(metric)).document_of_row
    assert table["n_ties"].to_pylist() == [int((units == units[row]).sum()) for row in drawn]
    results.write(tmp_path / "r.parquet")
    assert mo.verify(world[0], tmp_path / "r.parquet", world[1]) == {"pairs": 70, "queries": 0}


def test_random_is_reproducible(world):
    few, many = (mo.baseline(*world, "random", "bleu", draws=n, seed=7).table for n in (3, 8))
    again = mo.baseline(*world, "random", "bleu", draws=3, seed=7)
    other = mo.baseline(*world, "random", "bleu", draws=3, seed=8)
    assert again.table.equals(few)
    assert (again.signature["seed"], again.signature["draws"], again.signature["baseline"]) == (7, 3, "random")
    assert other.table["row"].to_pylist() != few["row"].to_pylist()
    rows = many["row"].to_numpy().reshape(-1, 8)[:, :3]
    assert rows.ravel().tolist() == few["row"].to_pylist()
    same = mo.baseline(*world, "random", "rouge-l", draws=3, seed=7).table  # scores the same rows
    assert same["row"].to_pylist() == few["row"].to_pylist()
    assert rows[3].tolist() != rows[12].tolist()  # equal queries have draws of their own


@every_kernel
def test_random_draws_approach_the_expectation(world, metric):
    draws = 400
    scores = (
        mo.baseline(*world, "random", metric, draws=draws, seed=1, options=mo.SearchOptions(text=False))
        .table["score"]
        .to_numpy()
    )
    found = mo.expectation(*world, metric).table
    spread = np.sqrt((found["sd"].to_numpy() ** 2).sum() / draws) / 14
    assert spread > 0
    assert abs(scores.mean() - found["mean"].to_numpy().mean()) < 4 * spread
    by_query = np.abs(scores.reshape(14, draws).mean(axis=1) - found["mean"].to_numpy())
    assert (by_query <= 4 * found["sd"].to_numpy() / np.sqrt(draws)).all()


@every_metric
def test_the_most_frequent_report(world, by_hand, metric):
    index, queries = world
    rows = np.flatnonzero(index.representation(get_metric(metric)).document_of_row >= 0)
    texts = index.reports["text"].to_pylist()
    row = max(rows.tolist(), key=lambda row: (texts.count(texts[row]), -row))
    results = mo.baseline(index, queries, "most-frequent", metric)
    matrix, _ = by_hand(metric)
    assert results.table["row"].to_pylist() == [row] * 14
    assert results.table["score"].to_pylist() == matrix[:, rows.tolist().index(row)].tolist()
    assert results.signature["baseline"] == "most-frequent"
    assert mo.verify(index, results, queries) == {"pairs": 14, "queries": 0}


@every_metric
def test_identity(world, metric, tmp_path):
    index, queries = world
    results = mo.baseline(index, queries, "identity", metric)
    table = results.table
    assert table.schema.equals(mo.retrieve(index, queries, metric).table.schema)
    assert table["candidate_id"].to_pylist() == table["query_id"].to_pylist() == queries.ids
    assert table["text"].to_pylist() == queries.texts
    assert set(table["row"].to_pylist()) == {-1}
    assert set(table["n_ties"].to_pylist()) == {0}
    # The same reports as a corpus: the scores of the pairs of equal rows.
    again = build_index(
        replace(queries, opened_encoder=load_encoder("fake"), encoder=None), tmp_path / "I", metrics=[metric]
    )
    matrix, rows = scored_by_hand((again, queries), metric)
    assert len(rows) == 14
    assert table["score"].to_pylist() == np.diag(matrix).tolist()
    results.write(tmp_path / "i.csv")
    assert mo.verify(index, tmp_path / "i.csv", queries) == {"pairs": 14, "queries": 0}


def test_a_perfect_pair_has_the_published_minimum(world):
    scores = mo.baseline(*world, "identity", "radcliq").table
    perfect = scores["radgraph"].to_numpy() == 1
    assert perfect.any()
    assert scores["score"].to_numpy()[perfect] == pytest.approx(-1.4407, abs=5e-5)


def test_identity_of_a_report_without_entities(world, tmp_path):
    graph = {"text": "c", "entities": {}}
    (tmp_path / "g.json").write_text(json.dumps({"q": graph}))
    query = Reports(["q"], ["c"], "test")
    answer = mo.baseline(
        world[0], mo.reports(query, radgraph=tmp_path / "g.json"), "identity", "radgraph"
    ).table.to_pylist()
    assert [(a["score"], a["row"]) for a in answer] == [(0.0, -1)]


def test_results_without_text(world):
    for kind in ("random", "most-frequent", "identity"):
        assert "text" not in mo.baseline(*world, kind, "bleu", options=mo.SearchOptions(text=False)).table.column_names


def test_distinct_pairs_are_scored_once(world, monkeypatch):
    from metric_oracle.kernels.bleu import cpu

    seen = []
    real = cpu.Backend.counts

    def spy(self, corpus, batch, query, unit):
        seen.extend(zip(query.tolist(), unit.tolist(), strict=True))
        return real(self, corpus, batch, query, unit)

    monkeypatch.setattr(cpu.Backend, "counts", spy)
    assert mo.baseline(*world, "random", "bleu", draws=300).table.num_rows == 14 * 300
    assert len(seen) == len(set(seen)) < 14 * 300


# ---- nearest neighbours ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vectors(world):
    """Return image embeddings of most rows, some of them equal in direction, and of all queries."""
    rng = np.random.default_rng(4)
    corpus = rng.standard_normal((N_ROWS, 9)).astype(np.float32)
    corpus[50:80] = 2 * corpus[20:50]
    asked = corpus[20:34] + np.float32(0.01) * rng.standard_normal((14, 9)).astype(np.float32)
    asked[:3] = 4 * corpus[60:63]
    kept = np.r_[0:190, 200:210]
    order = rng.permutation(len(kept))
    return (
        Vectors([f"r{i}" for i in kept[order]], corpus[kept[order]]),
        Vectors(world[1].ids[::-1], np.ascontiguousarray(asked[::-1])),
    )


@every_kernel
def test_nearest(world, by_hand, vectors, metric):
    index, queries = world
    corpus_vectors, query_vectors = vectors
    results = mo.baseline(
        index, queries, "nearest", metric, corpus_vectors=corpus_vectors, query_vectors=query_vectors
    )  # fmt: skip
    rows = np.flatnonzero(index.representation(get_metric(metric)).document_of_row >= 0).tolist()
    of_id = dict(zip(corpus_vectors.ids, corpus_vectors.values.astype(np.float64), strict=True))
    matrix, _ = by_hand(metric)
    chosen = []
    for query in queries.ids:
        x = query_vectors.values[query_vectors.ids.index(query)].astype(np.float64)
        cosine = {row: of_id[f"r{row}"] @ x / np.linalg.norm(of_id[f"r{row}"]) for row in rows if f"r{row}" in of_id}
        best = max(cosine.values())
        chosen.append(min(row for row, value in cosine.items() if value > best - 1e-6 * abs(best)))
    assert results.table["row"].to_pylist() == chosen
    assert results.table["score"].to_pylist() == [matrix[q, rows.index(row)] for q, row in enumerate(chosen)]
    assert results.signature["rows_with_vectors"] == sum(f"r{row}" in of_id for row in rows)
    with pytest.warns(UserWarning, match=r"^not verified: which rows are nearest, for which both sides' image vectors"):
        assert mo.verify(index, results, queries) == {"pairs": 14, "queries": 0}
    given = {"corpus_vectors": corpus_vectors, "query_vectors": query_vectors}
    assert mo.verify(index, results, queries, **given) == {"pairs": 14, "queries": 0}
    assert set(chosen) & set(range(20, 34))  # the lower one of two equal directions


def test_rows_that_are_not_nearest(world, vectors):
    index, queries = world
    given = dict(zip(("corpus_vectors", "query_vectors"), vectors, strict=True))
    right = mo.baseline(index, queries, "nearest", "bleu", **given)
    order = np.random.default_rng(5).permutation(len(vectors[0].ids))
    moved = Vectors([vectors[0].ids[i] for i in order], vectors[0].values[order])
    assert mo.verify(index, right, queries, **{**given, "corpus_vectors": moved}) == {"pairs": 14, "queries": 0}
    turned = Vectors(vectors[1].ids, vectors[1].values[::-1].copy())
    other = mo.baseline(index, queries, "nearest", "bleu", **{**given, "query_vectors": turned})
    assert other.table["row"].to_pylist() != right.table["row"].to_pylist()
    passed_off = Results(other.table, right.signature)
    with pytest.warns(UserWarning, match="not verified"):
        mo.verify(index, passed_off, queries)
    match = r"^verify: the rows of query 't\d+' differ from those of baseline 'nearest'\."
    check_refused(match, mo.verify, index, passed_off, queries, **given, error=ExactnessError)
    match = r"^verify: query_vectors must be those that the rows were chosen by, SHA-256 [0-9a-f]{12}; got [0-9a-f]+"
    check_refused(match, mo.verify, index, other, queries, **given)
    old = {name: value for name, value in right.signature.items() if name != "vectors"}
    match = r"^verify: corpus_vectors must be those that the rows were chosen by, SHA-256 none; got [0-9a-f]{12}\. Pass"
    check_refused(match, mo.verify, index, Results(right.table, old), queries, **given)
    match = r"^verify: query_vectors must be given for kind 'nearest'; got None\. Pass a file of embeddings\.$"
    check_refused(match, mo.verify, index, right, queries, corpus_vectors=vectors[0])
    for kind, what in (("identity", "baseline 'identity'"), (None, "an oracle's answers")):
        found = mo.baseline(index, queries, kind, "bleu") if kind else mo.retrieve(index, queries, "bleu")
        match = rf"^verify: vectors must be left out for {what}; got a value\. Leave them out: only results of baseline"
        check_refused(match, mo.verify, index, found, queries, **given)


def test_nearest_from_files(world, vectors, tmp_path):
    for name, side in zip(("corpus", "query"), vectors, strict=True):
        np.save(tmp_path / f"{name}.npy", side.values)
        (tmp_path / f"{name}.txt").write_text("\n".join(side.ids))
    np.savez(tmp_path / "query.npz", ids=np.array(vectors[1].ids), v=vectors[1].values)
    from_files = mo.baseline(
        *world,
        "nearest",
        "bleu",
        corpus_vectors=(tmp_path / "corpus.npy", tmp_path / "corpus.txt"),
        query_vectors=tmp_path / "query.npz",
    )
    direct = mo.baseline(*world, "nearest", "bleu", corpus_vectors=vectors[0], query_vectors=vectors[1])
    assert from_files.table.equals(direct.table)
    assert from_files.signature == direct.signature


# ---- refusals --------------------------------------------------------------------------------------------------------


def check_refused(match, function, *args, error=InputError, **options):
    with pytest.raises(error, match=match):
        function(*args, **options)


@pytest.mark.parametrize("draws", [0, -1, 10_001, True])
def test_draws(world, draws):
    match = rf"^baseline: draws must be an int from 1 to 10000; got {draws!r}\. Choose another number\.$"
    check_refused(match, mo.baseline, *world, "random", "bleu", draws=draws)


@pytest.mark.parametrize("seed", [-1, True])
def test_seed(world, seed):
    match = rf"^baseline: seed must be an int of at least 0; got {seed!r}\. Choose another number\.$"
    check_refused(match, mo.baseline, *world, "random", "bleu", seed=seed)


def test_kind(world):
    match = r"^baseline: kind must be one of random, most-frequent, identity, nearest; got 'ranodm'\. Choose one\.$"
    check_refused(match, mo.baseline, *world, "ranodm", "bleu")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("identity", {"seed": 1}),
        ("most-frequent", {"draws": 1, "seed": 0}),
        ("random", {"corpus_vectors": "x.npy"}),
        ("nearest", {"seed": 0}),
    ],
)
def test_options_of_another_kind(world, kind, options):
    names = ", ".join(options)
    match = rf"^baseline: {names} must be left out for kind '{kind}'; got a value\. Leave out "
    check_refused(match, mo.baseline, *world, kind, "bleu", **options)


def test_nearest_without_files(world, vectors, tmp_path):
    np.savez(tmp_path / "v.npz", ids=np.array(vectors[0].ids), v=vectors[0].values)
    match = r"^baseline: corpus_vectors must be given for kind 'nearest'; got None\. Pass a file of embeddings\.$"
    check_refused(match, mo.baseline, *world, "nearest", "bleu", query_vectors=tmp_path / "v.npz")
    match = match.replace("corpus", "query")
    check_refused(match, mo.baseline, *world, "nearest", "bleu", corpus_vectors=tmp_path / "v.npz")


def test_vectors_that_do_not_fit(world, vectors):
    index, queries = world
    corpus, asked = vectors

    def refused(match, corpus=corpus, asked=asked, metric="bleu"):
        check_refused(
            match, mo.baseline, index, queries, "nearest", metric, corpus_vectors=corpus, query_vectors=asked
        )  # fmt: skip

    fewer = Vectors(asked.ids[:-2], asked.values[:-2])
    refused(
        r"^baseline: query_vectors must have a vector for each query; got 2 of 14 without \('t0', 't1'\)\. Add them to",
        asked=fewer,
    )
    foreign = Vectors([f"x{i}" for i in range(3)], corpus.values[:3])
    refused(
        r"^baseline: corpus_vectors must share ids with the reports; got none of 210 report ids among 3\. Pass", foreign
    )
    refused(
        r"^baseline: query_vectors must share ids with the reports; got none of 14 report ids among 3\. Pass",
        asked=foreign,
    )
    narrow = Vectors(asked.ids, np.ascontiguousarray(asked.values[:, :5]))
    refused(r"^baseline: query_vectors must have the width of the corpus's, 9; got 5\. Encode both with", asked=narrow)
    bare = Vectors(["r0", "r17"], corpus.values[:2])  # rows without a graph
    refused(
        r"^baseline: corpus_vectors must have a vector for at least one report that .* can score; got none\. Pass the",
        bare,
        metric="radgraph",
    )


@pytest.mark.parametrize("bins", [0, 1, -1, 1025, True])
def test_number_of_bins(world, bins):
    match = rf"^expectation: bins must be an int from 2 to 1024; got {bins!r}\. Choose another number\.$"
    check_refused(match, mo.expectation, *world, "bleu", bins=bins)


@pytest.mark.parametrize("p", [-0.1, 1.001, float("nan"), True])
def test_quantiles(world, p):
    match = rf"^expectation: quantiles must be numbers from 0 to 1; got {p!r}\. Leave it out\.$"
    check_refused(match, mo.expectation, *world, "bleu", quantiles=[0.5, p])


@pytest.mark.parametrize("p", ["0.5", None])
def test_quantiles_of_another_type(world, p):
    match = r"^expectation: quantiles must be a list of numbers; got a list of .* The call is expectation\(index, "
    check_refused(match, mo.expectation, *world, "bleu", quantiles=[0.5, p])


def test_quantiles_that_are_equal(world):
    match = r"^expectation: quantiles must differ; got two that are called q05\. Leave one out\.$"
    check_refused(match, mo.expectation, *world, "bleu", quantiles=[0.05, 0.5, 0.05])


def test_no_quantiles(world):
    found = mo.expectation(*world, "bleu", quantiles=[])
    assert found.table.column_names == ["query_id", "mean", "sd", "min", "max", "n"]


def test_what_every_search_refuses(world):
    index, queries = world
    calls = [lambda q, m, kind=kind, **o: mo.baseline(index, q, kind, m, **o) for kind in ("random", "identity")]
    calls.append(lambda q, m, **o: mo.expectation(index, q, m, **o))
    for call in calls:
        check_refused(r"^(baseline|expectation): there is no row in the", call, [], "bleu")
        check_refused(r"^(baseline|expectation): metric must be one of .*; got 'bluu'\. Did you", call, queries, "bluu")
        check_refused(
            r"^(baseline|expectation): queries must have a graph each for metric 'radgraph'", call, ["a"], "radgraph"
        )
        check_refused(
            r"^(baseline|expectation): idf must be left out for metric 'bleu-2'; got a value\. Leave out", call,
            queries, "bleu", options=mo.SearchOptions(idf="off"),
        )  # fmt: skip
        narrow = changed(queries, "chexbert", values=np.ascontiguousarray(queries.attached["chexbert"].values[:, :3]))
        check_refused(
            r"^(baseline|expectation): embeddings must have the index's width",
            call,
            narrow,
            "chexbert",
            error=BackendError,
        )


def test_a_metric_that_the_index_lacks(tmp_path):
    index = mo.build_index(Reports(["a"], ["no effusion"], "test"), tmp_path / "I", metrics=["bleu"])
    match = r"^(baseline|expectation): metric must be one of bleu-1, .* \(what .* holds\); got 'rouge-l'\."
    check_refused(match, mo.expectation, index, ["a"], "rouge-l")
    check_refused(match, mo.baseline, index, ["a"], "random", "rouge-l")


def test_altered_baselines(world):
    index, queries = world

    def altered(results, column, place, value):
        values = results.table[column].to_pylist()
        values[place] = value
        at = results.table.column_names.index(column)
        table = results.table.set_column(at, column, pa.array(values, results.table[column].type))
        return Results(table, results.signature)

    drawn = mo.baseline(index, queries, "random", "bleu", draws=2)
    same = mo.baseline(index, queries, "identity", "bleu")
    score = r"^verify: the score of query 't\d+' and row -?\d+ must be .*; got .*\. The results were altered"
    check_refused(
        score, mo.verify, index, altered(drawn, "score", 3, 0.123), queries, error=ExactnessError
    )  # fmt: skip
    check_refused(score, mo.verify, index, altered(drawn, "row", 3, -1), queries, error=ExactnessError)
    check_refused(score, mo.verify, index, altered(same, "row", 3, 4), queries, error=ExactnessError)
    ranks = r"^verify: the answers of query 't1' must have the ranks 1 to 2, each once; got .*\. The results were cut"
    check_refused(ranks, mo.verify, index, altered(drawn, "rank", 3, 1), queries, error=ExactnessError)
    for results, column in ((drawn, "candidate_id"), (same, "candidate_id"), (same, "text")):
        match = rf"^verify: {column} of query 't\d+' and row -?\d+ differs from that of the index\. The results we"
        check_refused(match, mo.verify, index, altered(results, column, 2, "x"), queries, error=ExactnessError)
