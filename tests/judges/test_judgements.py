"""Judgements in a folder: a killed run loses nothing but the pair under way, and damage is an error."""

import hashlib
import json
import resource
import subprocess
import sys
import warnings

import pytest

from metric_oracle.base.checksum import write_sealed
from metric_oracle.base.errors import InputError, InUseError
from metric_oracle.judges import judgements
from metric_oracle.judges.judgements import RECORD, Judgements, pair_ids

# Starts a run 20 times that is killed at the pair of a random number, and once more; each answered pair is logged.
KILLED = """
import os, random, signal, sys
import metric_oracle as mo
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

    with mo.judge(judge, name="killed", direction="higher", keep=folder, batch=1).opened() as opened:
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
    with pytest.warns(UserWarning, match=r"-00002\.jsonl is missing: the pairs of its 3 answers are judged again\.$"):
        assert keep(tmp_path / "K", {}) == {pair: first[pair] for i, pair in enumerate(first) if i // 3 != 1}
    keep(tmp_path / "K", {f"{i:064}": i / 7 for i in range(3, 6)})
    assert keep(tmp_path / "K", {}) == first


def killed(folder, numbers, name="words"):
    """Keep scores as a process that is killed does; return the piece that it leaves."""
    with Judgements.open(folder, name, "1") as kept:
        for pair, score in numbers.items():
            kept.add(pair, {"score": score})
        kept._file = -1
    (piece,) = folder.glob("*.jsonl")
    return piece


def test_a_line_that_is_not_whole_is_left(tmp_path):
    """A kill leaves a piece that is not recorded, and may leave a part of its last line."""
    whole = killed(tmp_path / "K", {"a": 0.5, "b": 1.5}).read_bytes()
    wanted = {"a": {"score": 0.5}, "b": {"score": 1.5}}
    for cut in range(len(whole) + 1):
        folder = tmp_path / str(cut)
        piece = killed(folder, {"c": 1.0})
        piece.write_bytes(whole[:cut])
        n = whole[: cut + 1].count(b"\n") if whole[cut : cut + 1] == b"\n" else whole[:cut].count(b"\n")
        left = {
            pair: wanted[pair] for pair in ("a", "b")[: max(n - 1, 0)]
        }  # also without its line feed a line is whole
        assert keep(folder, {}) == left
        assert keep(folder, {}) == left  # recorded now


@pytest.mark.parametrize("is_killed", [False, True])
def test_damage_in_a_line_costs_that_line_and_is_told(tmp_path, is_killed):
    """Wherever a bit flips: no other number is read, and the other answers are."""
    numbers = {"a" * 64: 0.125, "b" * 64: 0.25, "c" * 64: 0.5}
    folder = tmp_path / "K"
    if is_killed:
        killed(folder, numbers)
    else:
        keep(folder, numbers)
    (piece,) = folder.glob("*.jsonl")
    content, record = piece.read_bytes(), (folder / RECORD).read_bytes()
    wanted = {pair: {"score": score} for pair, score in numbers.items()}
    ends = [place for place, byte in enumerate(content) if byte == 10]
    for bit in [*range(0, 8 * len(content), 11), 8 * ends[-1]]:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        piece.write_bytes(flipped)
        (folder / RECORD).write_bytes(record)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = keep(folder, {})
        assert found.items() <= wanted.items()
        line = content[: bit // 8].count(b"\n")
        lost = set() if bit // 8 in ends or not line else {sorted(wanted)[line - 1]}
        assert wanted.keys() - found.keys() == lost
        assert len(told) == 1
        assert all(f"{piece} was changed after it was written: line {line + 1} " in str(one.message) for one in told)


def test_what_is_lost_is_judged_again_and_kept(tmp_path):
    keep(tmp_path / "K", {"a" * 64: 0.5, "b" * 64: 0.75})
    (piece,) = (tmp_path / "K").glob("*.jsonl")
    piece.write_text(piece.read_text().replace("0.5", "0.6"))
    line = (
        r"-00001\.jsonl was changed after it was written: line 2 is damaged; the other answers are kept\. The pairs of "
        r"those that are lost are judged again\.$"
    )
    with pytest.warns(UserWarning, match=line):
        assert keep(tmp_path / "K", {"a" * 64: 0.5}) == {"a" * 64: {"score": 0.5}, "b" * 64: {"score": 0.75}}
    with pytest.warns(UserWarning, match=line):
        assert len(keep(tmp_path / "K", {})) == 2


@pytest.mark.parametrize("is_killed", [False, True])
def test_lines_that_are_missing_or_of_another_judge_are_told(tmp_path, is_killed):
    numbers = {f"{i:064}": i / 8 for i in range(4)}
    make = killed if is_killed else keep
    for name in ("words", "others"):
        make(tmp_path / name, numbers, name)
    (piece,), (other,) = ((tmp_path / name).glob("*.jsonl") for name in ("words", "others"))
    lines = piece.read_bytes().splitlines(keepends=True)
    record = (tmp_path / "words" / RECORD).read_bytes()
    cases = [
        (lines[:2] + lines[3:], 3, "line 3 does not follow the line before it"),
        ([*lines[:3], lines[4], lines[3]], 4, "line 4 does not follow the line before it, line 5 does not"),
        (
            other.read_bytes().splitlines(keepends=True),
            0,
            "line 1 is damaged, line 2 is damaged, line 3 is damaged and 2",
        ),
    ]
    if not is_killed:
        cases.append((lines[:-2], 2, "2 lines are missing at the end;"))
    for content, n, what in cases:
        piece.write_bytes(b"".join(content))
        (tmp_path / "words" / RECORD).write_bytes(record)
        with pytest.warns(UserWarning, match=f"changed after it was written: {what}"):
            found = keep(tmp_path / "words", {})
        assert len(found) == n
        assert all(found[pair] == {"score": numbers[pair]} for pair in found)


def test_answers_of_an_earlier_version_are_read(tmp_path):
    """Its lines have no checksum: those of a piece with one on record are read, those of a killed run are not."""
    lines = [{"judge": "words", "version": "1"}, {"pair": "a", "score": 0.5}, {"pair": "b", "score": 1.5}]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    for folder, is_finished in ((tmp_path / "whole", True), (tmp_path / "killed", False)):
        piece = killed(folder, {"c": 1.0})
        piece.write_text(content)
        record = json.loads((folder / RECORD).read_text())[piece.name]
        sha = hashlib.sha256(content.encode()).hexdigest() if is_finished else ""
        write_sealed(folder / RECORD, {piece.name: {**record, "sha256": sha}})
        if is_finished:
            assert keep(folder, {}) == {"a": {"score": 0.5}, "b": {"score": 1.5}}
            continue
        with pytest.warns(UserWarning, match=r"line 1 is damaged, line 2 is damaged, line 3 is damaged; the other"):
            assert keep(folder, {}) == {}


def test_a_write_that_is_cut_short_costs_its_own_answer(tmp_path):
    """As on a disk that fills up; the answers before and after it are kept."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    kept = {}
    with Judgements.open(tmp_path / "K", "words", "1") as judged:
        for i in range(20):
            judged.add(f"{i:064}", {"score": i / 8})
            kept[f"{i:064}"] = {"score": i / 8}
            (piece,) = (tmp_path / "K").glob("*.jsonl")
            resource.setrlimit(resource.RLIMIT_FSIZE, (piece.stat().st_size + 7 * i, hard))
            try:
                with pytest.raises(OSError, match=rf"File too large: '{piece}'"):
                    judged.add("f" * 64, {"score": 9.0})
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert judged.of == kept
    assert keep(tmp_path / "K", {}) == kept


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    line = r"was not left by an earlier run with a judge: it holds notes\.txt\. Move it, or name another `keep`\.$"
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
    assert f"info: {piece} was changed after it was written: line 2 is damaged; the other answers are kept. A " in err
    piece.unlink()
    assert oracle("info", folder, "--check")[0] == 1
