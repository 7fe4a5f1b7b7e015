"""Judgements in a folder: a killed run loses nothing but the pair under way, and damage is an error."""

import json
import subprocess
import sys

import pytest

from metric_oracle.base.errors import InputError, InUseError
from metric_oracle.base.sealed import write_json
from metric_oracle.judges import judgements
from metric_oracle.judges.judgements import RECORD, Judgements, pair_ids

# Starts a run 20 times that is killed at the pair of a random number, and once more; each answered pair is logged.
KILLED = """
import os, random, signal, sys
from metric_oracle.judges.opening import opened_judge
pairs = [(f"reference {i % 9}", f"candidate {i}") for i in range(300)]
folder, log = sys.argv[1:]
rng = random.Random(7)

def run(last):
    def judge(batch):
        nonlocal last
        if last == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        last -= 1
        with open(log, "a") as file:
            print(batch[0][1], file=file)
        return [len(batch[0][1]) / 3]

    given = {"judge": judge, "batch": 1, "name": "killed", "higher_is_better": True, "keep": folder}
    with opened_judge(given) as opened:
        return opened.score(pairs).scores

for _ in range(20):
    child = os.fork()
    if not child:
        run(rng.randrange(14))
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
assert sum(1 for _ in open(log)) > 50
print(*run(-1))
"""


def test_an_id_has_a_half_of_each_digest():
    (one, other), (same, _) = pair_ids([("a", "b"), ("b", "a")]), pair_ids([("a", "b"), ("a", "c")])
    assert one == same != other
    assert one[:32] == "ca978112ca1bbdcafac231b39a23dc4d"  # of the SHA-256 of "a"
    assert other[32:] == one[:32]
    assert len(one) == 64


def test_a_killed_run_goes_on_and_judges_no_pair_twice(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "kept"
    done = subprocess.run([sys.executable, "-c", KILLED, folder, log], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [*map(float, done.stdout.split())] == [len(f"candidate {i}") / 3 for i in range(300)]
    assert log.read_text().splitlines() == [f"candidate {i}" for i in range(300)]


def keep(folder, numbers, name="words"):
    """Keep scores by the id of their pairs, and return all that the folder then has."""
    with Judgements.open(folder, name, "1") as kept:
        for pair, score in numbers.items():
            kept.add(pair, {"score": score})
        return dict(kept.of)


def test_pieces_have_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(judgements, "PIECE", 3)
    first = keep(tmp_path / "K", {f"{i:064}": i / 7 for i in range(8)})
    assert len([*(tmp_path / "K").glob("*.jsonl")]) == 3
    next((tmp_path / "K").glob("*-00002.jsonl")).unlink()  # its pairs are judged again
    assert keep(tmp_path / "K", {}) == {pair: first[pair] for i, pair in enumerate(first) if i // 3 != 1}
    keep(tmp_path / "K", {f"{i:064}": i / 7 for i in range(3, 6)})
    assert keep(tmp_path / "K", {}) == first


def test_a_line_that_is_not_whole_is_left(tmp_path):
    """A kill leaves a piece that is not recorded, and may leave a part of its last line."""
    lines = [
        b'{"judge": "words", "version": "1"}\n',
        b'{"pair": "a", "score": 0.5}\n',
        b'{"pair": "b", "score": 1.5}\n',
    ]
    whole = b"".join(lines)
    for cut in range(len(whole) + 1):
        folder = tmp_path / str(cut)
        with Judgements.open(folder, "words", "1") as kept:
            kept.add("c", {"score": 1.0})
        (piece,) = folder.glob("*.jsonl")
        piece.write_bytes(whole[:cut])
        record = json.loads((folder / RECORD).read_text())
        record[piece.name]["sha256"] = ""
        write_json(folder / RECORD, {piece.name: record[piece.name]})
        n = whole[:cut].count(b"\n")
        wanted = {"a": {"score": 0.5}, "b": {"score": 1.5}}
        wanted = {pair: wanted[pair] for pair in ("a", "b")[: max(n - 1, 0)]}
        assert keep(folder, {}) == wanted
        assert keep(folder, {}) == wanted  # recorded now


def test_a_changed_piece_is_an_error(tmp_path):
    keep(tmp_path / "K", {"a" * 64: 0.5})
    (piece,) = (tmp_path / "K").glob("*.jsonl")
    piece.write_text(piece.read_text().replace("0.5", "0.6"))
    line = r"-00001\.jsonl was changed after it was written: its checksum is not the one in judgements\.json\. Delete"
    with pytest.raises(InputError, match=line):
        keep(tmp_path / "K", {})
    piece.unlink()
    assert keep(tmp_path / "K", {}) == {}


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    line = r"was not left by an earlier run with a judge: it holds notes\.txt\. Move it, or name another --keep\.$"
    with pytest.raises(InputError, match=line):
        keep(tmp_path, {})
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_one_run_at_a_time(tmp_path):
    with Judgements.open(tmp_path / "K", "a", ""), pytest.raises(InUseError, match=r"another run with a judge is work"):
        keep(tmp_path / "K", {})


def test_an_empty_run_leaves_no_folder(tmp_path):
    keep(tmp_path / "K", {})
    assert not (tmp_path / "K").exists()


def test_info_counts_judgements(oracle, tmp_path):
    folder = tmp_path / "K"
    ids = pair_ids([("a", "x"), ("a", "y"), ("b", "x")])
    keep(folder, dict.fromkeys(ids, 1.0))
    keep(folder, {ids[0]: 2.0}, "[other]")
    code, shown, err = oracle("info", folder, "--format", "table")
    assert (code, err) == (0, "")
    assert shown.splitlines() == [
        "[other] 1: 1 judgements of 1 references and 1 candidates",
        "words 1: 3 judgements of 2 references and 2 candidates",
    ]
    code, shown, _ = oracle("info", folder, "--check", "--format", "jsonl")
    assert code == 0
    record = {"judge": "words", "version": "1", "judgements": 3, "references": 2, "candidates": 2}
    assert json.loads(shown.splitlines()[1]) == record
    piece = next(path for path in folder.glob("*.jsonl") if "[other]" in path.read_text())
    piece.write_text(piece.read_text().replace("2.0", "3.0"))
    code, _, err = oracle("info", folder, "--check")
    assert code == 1
    assert f"info: {piece} is missing or was changed after it was written. Delete it." in err
    piece.unlink()
    assert oracle("info", folder, "--check")[0] == 1
