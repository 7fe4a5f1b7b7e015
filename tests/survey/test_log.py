"""The event log of a rater: what was acknowledged is there, whatever ends the process, the disk or the power."""

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from metric_oracle.base import journal
from metric_oracle.base.errors import InputError
from metric_oracle.survey import log as survey_log
from metric_oracle.survey.log import ConflictError, Log, SaveError

SEQUENCES = int(os.environ.get("ORACLE_SURVEY_SEQUENCES", "10000"))
SHAPE = (2, 1, 3)  # candidates of the studies
CATEGORIES, SURVEY, PATH = 2, "f" * 64, Path("anna.jsonl")


def log_at(path):
    return Log(path, SHAPE, CATEGORIES, SURVEY)


def given(number, *, study=0, candidate=0, counts=((0, None), (1, 2)), base=0, **changes):
    cells = [list(some) for some in counts]
    asked = {"id": f"save-{number:05}", "study": study, "candidate": candidate, "counts": cells, "survey": SURVEY}
    return {**asked, "base": base, **changes}


def on_disk(patch, disk):
    """Let a log use functions of another `os`."""
    for module in (survey_log, journal):
        patch.setattr(module, "os", disk)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "anna.jsonl"
    path.touch()
    return path


# What a save is


def test_a_save_is_a_line(path):
    log = log_at(path)
    first = log.save(given(1))
    second = log.save(given(2, base=1, counts=((0, 0), (1, 2))))
    other = log.save(given(3, study=2, candidate=2))
    assert [one.seq for one in (first, second, other)] == [1, 2, 3]
    assert (first.open_cells, second.open_cells) == (1, 0)
    lines = path.read_bytes().split(b"\n")
    assert lines[-1] == b""
    assert [json.loads(line)["seq"] for line in lines[:-1]] == [1, 2, 3]
    assert json.loads(lines[0])["counts"] == [[0, None], [1, 2]]
    for seen in (log, log_at(path)):
        history = seen.read()
        assert history.latest == {(0, 0): second, (2, 2): other}
        assert list(history.by_id.values()) == [first, second, other]


def test_nothing_is_answered_before_it_is_saved(path):
    history = log_at(path).read()
    assert (history.latest, history.by_id, history.torn) == ({}, {}, 0)


def test_the_same_save_again_is_one(path):
    log = log_at(path)
    first = log.save(given(1))
    log.save(given(2, base=1, counts=((5, 5), (5, 5))))
    size = path.stat().st_size
    assert log.save(given(1)) == log_at(path).save(given(1)) == first
    assert path.stat().st_size == size
    with pytest.raises(InputError, match=r"^two saves of this page have the same id\. Reload"):
        log.save(given(1, counts=((9, 9), (9, 9))))


def test_a_second_tab_gets_the_other_version(path):
    log, other = log_at(path), log_at(path)
    last = log.save(given(1))
    with pytest.raises(ConflictError, match=r"^this save is not based on the last save of the candidate\. Load") as e:
        other.save(given(2, counts=((7, 7), (7, 7))))
    assert e.value.event == last
    assert other.save(given(2, base=1, counts=((7, 7), (7, 7)))).seq == 2
    with pytest.raises(ConflictError) as e:
        log.save(given(3, study=1, base=2))
    assert e.value.event is None
    assert len(path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"survey": "other"}, r"survey must be this survey"),
        ({"id": "short"}, r"id must be 8 to 64 letters, digits and hyphens"),
        ({"id": "has\nbreak"}, r"id must be 8 to 64"),
        ({"id": 12345678}, r"id must be 8 to 64"),
        ({"base": -1}, r"base must be a number of a save, from 0"),
        ({"base": None}, r"base must be a number"),
        ({"study": 3}, r"study must be a position"),
        ({"study": True}, r"study must be a position"),
        ({"study": "0"}, r"study must be a position"),
        ({"study": None}, r"study must be a position"),
        ({"study": 1, "candidate": 1}, r"candidate must be a position"),
        ({"candidate": -1}, r"candidate must be a position"),
        ({"counts": None}, r"counts must be 2 x 2 numbers from 0 to 99, or null for no answer"),
        ({"counts": [[0, 0]]}, r"counts must be 2 x 2"),
        ({"counts": [[0, 0], [0]]}, r"counts must be 2 x 2"),
        ({"counts": [[0, 0], [0, -1]]}, r"counts must be 2 x 2"),
        ({"counts": [[0, 0], [0, 100]]}, r"counts must be 2 x 2"),
        ({"counts": [[0, 0], [0, 1.0]]}, r"counts must be 2 x 2"),
        ({"counts": [[0, 0], [0, True]]}, r"counts must be 2 x 2"),
        ({"counts": [[0, 0], [0, ""]]}, r"counts must be 2 x 2"),
    ],
)
def test_what_is_no_save(path, changes, match):
    with pytest.raises(InputError, match=rf"^the page sent a save that is not valid: {match}.*\. Reload the page\.$"):
        log_at(path).save({**given(1), **changes})
    assert path.read_bytes() == b""


# What breaks


def test_a_torn_line_is_cut_off(path):
    first = log_at(path).save(given(1))
    whole, beside = path.read_bytes(), log_at(path).beside
    acknowledged = beside.read_bytes()
    log_at(path).save(given(2, base=1))
    second = path.read_bytes()[len(whole) :]
    zeros = second[: len(second) // 2] + b"\0" * 9 + b"\n"
    for torn in (*(second[:n] for n in range(1, len(second))), zeros, b"\0" * len(second)):
        path.write_bytes(whole + torn)
        beside.write_bytes(acknowledged)
        log = log_at(path)
        assert log.read().torn == len(torn)
        assert path.read_bytes() == whole + torn  # a reader changes nothing
        assert log.recover() == len(torn)
        assert log.recover() == 0
        assert path.read_bytes() == whole
        assert list(log.read().by_id.values()) == [first]
        path.write_bytes(whole + torn)
        assert log.save(given(2, base=1)).seq == 2
        assert len(log_at(path).read().by_id) == 2
        path.write_bytes(whole + torn)
        with damaged(path):  # an acknowledged line is never torn
            log_at(path).recover()


def damaged(path):
    return pytest.raises(
        SaveError,
        match=r"^the log of a rater was changed or moved: .* is damaged in line \d\. Stop the",
    )


def test_an_altered_log_is_no_log(path):
    log = log_at(path)
    for i in range(3):
        log.save(given(i, base=i))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(
        SaveError, match=r"changed or moved: .*anna\.jsonl has \d+ bytes of \d+\. Stop the server, and restore"
    ):
        log.save(given(9, base=3))
    # A line of another log, a line twice, a line that is none, a block of zeros: none of them is a write cut short.
    for content in (lines[0] + lines[2], lines[0] * 2, lines[0] + b"x\n", lines[0] + b"x\n" + lines[1], bytes(4096)):
        path.write_bytes(content)
        for use in (Log.read, Log.recover, lambda log: log.save(given(9, base=3))):
            with damaged(path):
                use(log_at(path))
        assert path.read_bytes() == content
    path.unlink()
    with pytest.raises(SaveError, match=r"^the log of a rater was changed or moved: .*No such file"):
        log.save(given(9, base=3))
    assert not path.exists()


def test_every_flipped_bit_is_noticed(path):
    """Wherever it is, in an acknowledged line: nothing is cut off as torn, and no other number is read."""
    log = log_at(path)
    for i in range(3):
        log.save(given(i, base=i))
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with damaged(path):
            log_at(path).recover()
        assert path.stat().st_size == len(content)


def test_a_changed_digit_is_noticed(path):
    log_at(path).save(given(1))
    content = path.read_bytes()
    for old, new in ((b"[[0,null],[1,2]]", b"[[0,null],[1,3]]"), (b'"study":0', b'"study":2'), (b"T", b" ")):
        path.write_bytes(content.replace(old, new, 1))
        assert path.read_bytes() != content
        with damaged(path):
            log_at(path).read()


def former(path, with_checksum):
    """Save twice, and make of the log one of an earlier version; return its bytes and the events."""
    log = log_at(path)
    events = [log.save(given(i, base=i)) for i in range(2)]
    old = b""
    for line in path.read_bytes().splitlines():
        record = {name: value for name, value in json.loads(line).items() if name not in ("rater", "after", "check")}
        body = json.dumps(record, separators=(",", ":")).removesuffix("}").encode()
        check = b',"check":"' + hashlib.sha256(body).hexdigest()[:16].encode() + b'"' if with_checksum else b""
        old += body + check + b"}\n"
    path.write_bytes(old)
    log.beside.unlink()
    return old, events


@pytest.mark.parametrize("with_checksum", [False, True])
def test_a_log_of_an_earlier_version_goes_on(path, with_checksum):
    """Its lines have a checksum of their own, or none; those that follow have that of this version."""
    old, events = former(path, with_checksum)
    assert list(log_at(path).read().by_id.values()) == events
    path.write_bytes(old + b'{"id":"sav')
    log = log_at(path)
    assert (log.read().torn, log.read().is_unsure) == (10, False)
    assert log.save(given(2, base=2)).seq == 3
    assert list(log_at(path).read().by_id.values())[:2] == events
    whole = path.read_bytes()
    assert whole.startswith(old)
    assert json.loads(whole.splitlines()[2])["rater"] == "anna"
    log.beside.unlink()
    for bad in (old[:-1] + b"\x0b\n", old.replace(b'"survey"', b'"rurvey"'), old.replace(b'"seq":2', b'"seq":3'),
                whole.replace(b"save-00001", b"save-00009"), whole + old):  # fmt: skip
        path.write_bytes(bad)
        with damaged(path):
            log_at(path).recover()


def test_the_log_of_another_rater_is_none_of_this_one(tmp_path):
    paths = [tmp_path / "anna.jsonl", tmp_path / "ben.jsonl"]
    for path in paths:
        path.touch()
        log_at(path).save(given(1))
    content = [path.read_bytes() for path in paths]
    beside = [log_at(path).beside.read_bytes() for path in paths]
    for with_record in (False, True):
        for path, other, record in zip(paths, content[::-1], beside[::-1], strict=True):
            path.write_bytes(other)
            if with_record:
                log_at(path).beside.write_bytes(record)
            with damaged(path):
                log_at(path).read()
    assert [path.read_bytes() for path in paths] == content[::-1]


def test_lines_that_are_cut_off_are_missed(path):
    """Of the end, or of all; also where an older file of the same rater stands in place of the log."""
    log = log_at(path)
    for i in range(3):
        log.save(given(i, base=i))
    lines = path.read_bytes().splitlines(keepends=True)
    for n in range(3):
        path.write_bytes(b"".join(lines[:n]))
        with pytest.raises(SaveError, match=rf"anna\.jsonl has {n} of 3 acknowledged saves\. Stop the server, and"):
            log_at(path).read()
    path.write_bytes(b"")
    log.beside.rename(path.with_name("aside"))
    other = log_at(path)
    for i in range(3):
        other.save(given(i + 5, base=i))
    path.with_name("aside").rename(log.beside)
    with pytest.raises(SaveError, match=r"has other saves than those that were acknowledged, up to line 3\."):
        log_at(path).read()


def test_a_record_that_is_lost_or_damaged_is_told(path):
    log = log_at(path)
    last = log.save(given(1))
    content = log.beside.read_bytes()
    assert not log_at(path).read().is_unsure
    for bad in (None, b"", content.replace(b'"lines": 1', b'"lines": 0'), content.replace(b"anna", b"anne")):
        log.beside.unlink() if bad is None else log.beside.write_bytes(bad)
        history = log_at(path).read()
        assert (history.is_unsure, history.latest) == (True, {(0, 0): last})
    assert log_at(path).recover() == 0  # and written anew
    assert log.beside.read_bytes() == content


def test_a_full_disk(path, monkeypatch):
    """Half of a line gets there: the save fails, the file is as before, and the same save goes well afterwards."""
    log = log_at(path)
    log.save(given(1))
    before = path.read_bytes()

    def full(file, raw, at):
        if at > len(before):
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwrite(file, raw[:7], at)

    on_disk(monkeypatch, SimpleNamespace(**{**vars(os), "pwrite": full}))
    with pytest.raises(SaveError, match=r"^the save did not reach the disk: .* \(No space left on device\)\. Make"):
        log.save(given(2, base=1))
    assert path.read_bytes() == before
    monkeypatch.undo()
    assert log.save(given(2, base=1)).seq == 2


def test_threads_and_tabs(path):
    logs = [log_at(path), log_at(path)]
    won = []

    def rate(which):
        for number in range(20):
            try:
                logs[which % 2].save(given(1000 * which + number, base=len(won) and won[-1]))
                won.append(log_at(path).read().latest[0, 0].seq)
            except ConflictError:
                pass

    threads = [threading.Thread(target=rate, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = list(log_at(path).read().by_id.values())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len(won) == len(events) > 0


# Kills, power cuts, full disks, restarts


class Killed(BaseException):
    """The process is gone."""


class Disk:
    """A disk with one file, which fails, kills and forgets at any call, as a seed says."""

    def __init__(self, rng):
        self.rng, self.content, self.synced, self.beside = rng, b"", b"", None

    def __getattr__(self, name):
        return getattr(os, name)

    def _may(self, share):
        if self.rng.random() < share:
            raise Killed
        if self.rng.random() < share:
            raise OSError(errno.ENOSPC, "No space left on device")

    def open(self, path, flags):
        return 3

    def close(self, file):
        pass

    def fstat(self, file):
        return SimpleNamespace(st_size=len(self.content))

    def pread(self, file, n, at):
        return self.content[at : at + n]

    def pwrite(self, file, raw, at):
        self._may(0.05)
        n = self.rng.randint(1, len(raw)) if self.rng.random() < 0.2 else len(raw)
        self.content = self.content[:at] + raw[:n] + self.content[at + n :]
        self._may(0.05)
        return n

    def ftruncate(self, file, size):
        self._may(0.05)
        self.content = self.content[:size]

    def fsync(self, file):
        self._may(0.05)
        self.synced = self.content
        self._may(0.05)

    def write_sealed(self, path, content):
        self._may(0.02)
        self.beside = {**content}
        self._may(0.02)

    def read_sealed(self, path, step):
        if self.beside is None:
            raise InputError("it is missing.", step)
        return {**self.beside}

    def exists(self):
        return self.beside is not None

    def power_cut(self):
        """Keep what was synced, and of the rest a part, some of it as zeros; or what was there before a cut."""
        if not self.content.startswith(self.synced):
            self.content = self.rng.choice([self.synced, self.content])
        else:
            rest = self.content[len(self.synced) :][: self.rng.randint(0, len(self.content) - len(self.synced))]
            zeros = self.rng.randint(0, len(rest)) if self.rng.random() < 0.3 else 0
            rest = rest[: len(rest) - zeros] + bytes(zeros)
            self.content = self.synced + rest + (b"\n" if zeros and self.rng.random() < 0.5 else b"")
        self.synced = self.content


def campaign(patch, seed):
    """Save at random on a disk that fails; return how many saves were acknowledged and how often all was restarted."""
    rng = random.Random(seed)
    disk = Disk(rng)
    on_disk(patch, disk)
    for name in ("read_sealed", "write_sealed"):
        patch.setattr(survey_log, name, getattr(disk, name))
    patch.setattr(Log, "beside", disk)
    log, acknowledged, shown, pending, restarts = log_at(PATH), {}, {}, [], 0
    for number in range(rng.randint(1, 7)):
        place = rng.choice([(0, 0), (0, 1), (2, 2)])
        if not pending:
            counts = [rng.choice([[None, 0], [1, 99], [None, None]]) for _ in range(CATEGORIES)]
            pending = [given(number, study=place[0], candidate=place[1], counts=counts, base=shown.get(place, 0))]
        try:
            event = log.save(pending[0])
        except SaveError:
            continue  # the page sends it again
        except Killed:
            restarts += 1
            if rng.random() < 0.5:
                disk.power_cut()
            log = log_at(PATH)
            if rng.random() < 0.5:
                try:
                    log.recover()
                except (SaveError, Killed):
                    log = log_at(PATH)
                else:  # the page is loaded anew, and what is seen is safe
                    shown = {place: event.seq for place, event in log.read().latest.items()}
                    pending = []
            continue
        asked = pending.pop()
        assert (event.id, event.counts, event.study, event.candidate) == tuple(
            asked[name] for name in ("id", "counts", "study", "candidate")
        )
        acknowledged[event.id] = event
        shown[event.study, event.candidate] = event.seq
    disk.power_cut()
    history = log_at(PATH).read()
    assert all(history.by_id.get(name) == event for name, event in acknowledged.items())
    assert [event.seq for event in history.by_id.values()] == list(range(1, len(history.by_id) + 1))
    for place, seq in shown.items():
        assert history.latest[place].seq >= seq
    return len(acknowledged), restarts


def test_no_acknowledged_save_is_ever_lost(monkeypatch):
    """ORACLE_SURVEY_SEQUENCES sets how many random sequences of saves, kills, power cuts and full disks there are."""
    monkeypatch.setattr(survey_log, "fcntl", SimpleNamespace(LOCK_SH=1, LOCK_EX=2, flock=lambda file, kind: None))
    found = [campaign(monkeypatch, seed) for seed in range(SEQUENCES)]
    monkeypatch.undo()
    assert sum(saved for saved, _ in found) > 2 * SEQUENCES
    assert sum(restarts for _, restarts in found) > SEQUENCES / 4


WRITER = """
import sys
from pathlib import Path
from metric_oracle.survey.log import Log
log = Log(Path(sys.argv[1]), (2, 1, 3), 2, "f" * 64)
log.recover()
last = log.read().latest.get((0, 0))
seq = last.seq if last else 0
while True:
    asked = {"id": f"save-{seq:05}", "study": 0, "candidate": 0, "counts": [[seq % 100] * 2] * 2, "survey": "f" * 64}
    seq = log.save({**asked, "base": seq}).seq
    print(seq, flush=True)
"""


def test_lines_of_a_killed_process_are_synced_before_they_are_used(path, monkeypatch):
    """The page sends a save again that a killed process wrote but did not sync: the answer waits for the disk."""
    log, killed = log_at(path), log_at(path)
    log.save(given(1))
    killed.recover()

    def gone(file):
        raise Killed

    on_disk(monkeypatch, SimpleNamespace(**{**vars(os), "fsync": gone}))
    with pytest.raises(Killed):
        killed.save(given(2, base=1))
    assert path.read_bytes().count(b"\n") == 2
    synced = []
    on_disk(monkeypatch, SimpleNamespace(**{**vars(os), "fsync": synced.append}))
    assert log.save(given(2, base=1)).seq == 2
    assert len(synced) == 1
    assert log.save(given(2, base=1)).seq == 2
    assert len(synced) == 1


def test_a_process_that_is_killed(path):
    told = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(random.Random(told).randint(3, 30)):
                told = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            told = max([told, *(int(line) for line in writer.stdout.read().splitlines())])
        with path.open("ab") as file:
            file.write(b'{"id":"sav')  # as if the kill had torn a line
        history = log_at(path).read()
        assert len(history.by_id) >= told
        assert history.latest[0, 0].counts[0][0] == (len(history.by_id) - 1) % 100
