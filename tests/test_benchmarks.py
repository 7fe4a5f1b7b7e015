"""The benchmark harness: it runs, it refuses to time wrong answers, its tables are stable. No test measures time."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as harness
from benchmarks import report, workloads
from metric_oracle.kernels.bleu import cpu, reference

SMALL = ["--reports", "200", "--tests", "20"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def run(data: Path, out: Path, *names: str) -> int:
    return harness.main([*SMALL, "--data", str(data), "--out", str(out), "--only", *names])


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
