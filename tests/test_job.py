"""Jobs that resume: kills, damage, other inputs, two processes, foreign files, names that climb out."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from metric_oracle.base.checksum import read_sealed, write_sealed
from metric_oracle.base.errors import InputError, InUseError
from metric_oracle.base.files import move_folder, new_folder, write_bytes
from metric_oracle.base.job import Job, working
from metric_oracle.base.locks import LOCK
from support import HANG
from support.power import Power, kinds_of

NAMES = ("a", "b", "c")


def run(folder, made_of="x", names=NAMES, content=b"content of "):
    """Make the pieces that the job of a folder lacks; return their names."""
    made = []
    with Job.open(folder, "record.json", "test") as job:
        job.keep(dict.fromkeys(names, made_of))
        job.claim(*names, made_of=made_of)
        for name in names:
            if not job.holds(name):
                write_bytes(folder / name, content + name.encode())
                job.record(name)
                made.append(name)
        assert all(map(job.holds, names))
    return made


def test_finished_pieces_are_kept(tmp_path):
    folder = tmp_path / "work"
    assert run(folder) == [*NAMES]
    assert run(folder) == []
    assert {path.name for path in folder.iterdir()} == {*NAMES, "record.json", LOCK}
    assert read_sealed(folder / "record.json", "").keys() == {*NAMES}


def test_a_note_comes_back(tmp_path):
    note = {"reports": 3, "of": ["a"]}
    with Job.open(tmp_path / "work", "record.json", "test") as job:
        job.claim("a", "b", made_of="x")
        (job.folder / "a").write_text("a")
        job.record("a", note=note)
    pieces = Job(tmp_path / "work", "record.json").pieces
    assert (pieces["a"].note, pieces["b"].note, pieces["b"].sha256) == (note, None, "")


@pytest.mark.parametrize("damage", ["altered", "cut", "empty", "gone", "another"])
def test_a_damaged_piece_is_made_again(tmp_path, damage):
    run(tmp_path)
    path = tmp_path / "b"
    if damage == "gone":
        path.unlink()
    elif damage == "another":
        shutil.copy(tmp_path / "a", path)
    else:
        path.write_bytes({"altered": b"content of B", "cut": b"content", "empty": b""}[damage])
    assert run(tmp_path) == ["b"]
    assert path.read_bytes() == b"content of b"


def test_pieces_of_other_inputs_are_made_again(tmp_path):
    run(tmp_path)
    assert run(tmp_path, "y") == [*NAMES]
    assert run(tmp_path, "y", NAMES[:2]) == []
    assert not (tmp_path / "c").exists()
    with Job.open(tmp_path, "record.json", "test") as job:
        job.claim("a", made_of="z")
        assert not job.holds("a")
        assert job.holds("b")


def test_what_another_process_has_changed_since_the_record_is_not_held(tmp_path):
    """The record of one job is not believed for the file of another."""
    run(tmp_path / "one")
    run(tmp_path / "two", content=b"others of ")
    shutil.copy(tmp_path / "one/record.json", tmp_path / "two/record.json")
    assert run(tmp_path / "two") == [*NAMES]


KILLED = """
import os, signal, sys
from pathlib import Path
from metric_oracle.base.files import write_bytes
from metric_oracle.base.job import Job
folder, target, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def hook(event, arguments):
    global number
    if event == "os.rename" and Path(arguments[1]).name == target:
        number -= 1
        if not number:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
with Job.open(folder, "record.json", "test") as job:
    job.keep(dict.fromkeys("abc", "x"))
    job.claim(*"abc", made_of="x")
    for name in "abc":
        if not job.holds(name):
            write_bytes(folder / name, b"content of " + name.encode())
            job.record(name)
"""


@pytest.mark.parametrize(
    ("target", "number", "left"),
    [("record.json", 1, "abc"), ("a", 1, "abc"), ("record.json", 2, "abc"), ("b", 1, "bc"), ("record.json", 4, "c")],
)
def test_killed_between_write_and_rename(tmp_path, target, number, left):
    """Before the rename of a piece or of the record: what was recorded is kept, and no half file stays."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "work"), target, str(number)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len([*(tmp_path / "work").glob(f".{target}.*.tmp")]) == 1
    assert run(tmp_path / "work") == [*left]
    assert {path.name for path in (tmp_path / "work").iterdir()} == {*NAMES, "record.json", LOCK}
    for name in NAMES:
        assert (tmp_path / "work" / name).read_bytes() == b"content of " + name.encode()


def test_two_processes_at_once(tmp_path):
    folder, go_on = tmp_path / "work", threading.Event()
    inside = threading.Event()

    def hold():
        with Job.open(folder, "record.json", "test") as job:
            job.claim("a", made_of="x")
            inside.set()
            assert go_on.wait(HANG)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(HANG)
    with pytest.raises(InUseError, match=rf"^another test is working in {folder}\. Wait for it to end\.$"):
        run(folder)
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, pathlib\nfrom metric_oracle.base.job import working\n"
        "with working(pathlib.Path(sys.argv[1]), 'test'):\n    pass\n"
    )
    done = subprocess.run([sys.executable, program, str(folder)], check=False, capture_output=True, text=True)
    assert "InUseError: another test is working in" in done.stderr
    go_on.set()
    thread.join()
    assert run(folder) == [*NAMES]


@pytest.mark.parametrize("end", ["renamed", "removed", "made again"])
def test_a_process_that_opened_the_lock_as_another_ended_does_not_work_on_it(tmp_path, monkeypatch, end):
    folder, flock = tmp_path / "work", fcntl.flock

    def late(file, kind):
        monkeypatch.undo()
        folder.rename(tmp_path / "out")
        if end != "renamed":
            shutil.rmtree(tmp_path / "out")
        if end == "made again":
            folder.mkdir()
            (folder / LOCK).touch()
        flock(file, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(InUseError, match=r"^another test is working in .*work\. Wait for it to end\.$"):
        run(folder)
    assert run(folder) == [*NAMES]


def test_a_folder_without_a_piece_is_removed(tmp_path):
    def stopped():
        with working(tmp_path / "work", "test"):
            assert os.listdir(tmp_path / "work") == [LOCK]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert os.listdir(tmp_path) == []
    with working(tmp_path / "work", "test"):
        (tmp_path / "work/mine").touch()
    assert sorted(os.listdir(tmp_path / "work")) == [LOCK, "mine"]


def test_the_folder_of_the_next_process_stays(tmp_path):
    with working(tmp_path / "work", "test"):
        (tmp_path / "work").rename(tmp_path / "out")
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / LOCK).touch()
    assert os.listdir(tmp_path / "work") == [LOCK]


@pytest.mark.parametrize("name", ["mine", "d/mine", ".mine.1.tmp", ".a.tmp", "record.json", "A"])
@pytest.mark.parametrize("is_job", [True, False])
def test_foreign_files_stay(tmp_path, name, is_job):
    folder = tmp_path / "work"
    if is_job:
        run(folder)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("precious")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    first = Path(name).parts[0]
    reason = f"its {name} cannot be read" if is_job and name == "record.json" else f"it holds {first}"
    match = rf"^{folder} was not left by an earlier test: {reason}\. Move it, or name another `out`\.$"
    with pytest.raises(InputError, match=match):
        run(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["../mine", "/mine", "d/../../mine", "", "."])
def test_a_piece_is_inside_of_its_folder(tmp_path, name):
    """Asked for, or in a record with a right checksum: neither written, believed nor removed."""
    (tmp_path / "mine").write_text("precious")
    folder = tmp_path / "work"
    with (
        Job.open(folder, "record.json", "test") as job,
        pytest.raises(InputError, match=r"^the name of a piece must be inside its folder; got '.*'\. Name another\.$"),
    ):
        job.claim(name, made_of="x")
    run(folder)
    content = read_sealed(folder / "record.json", "")
    write_sealed(folder / "record.json", {**content, name: {"made_of": "y", "sha256": ""}})
    job = Job(folder, "record.json")
    assert (job.is_damaged, job.pieces) == (True, {})
    with pytest.raises(InputError, match=r"its record\.json cannot be read\. Move it"):
        run(folder)
    assert (tmp_path / "mine").read_text() == "precious"


OTHER_PARTS = [{"made_of": "x", "sha256": "", "parts": parts} for parts in (5, [5], [[0, "a", ""]])]


@pytest.mark.parametrize("entry", [5, [], {}, {"made_of": "x"}, None, *OTHER_PARTS])
def test_a_record_of_another_form(tmp_path, entry):
    run(tmp_path)
    write_sealed(tmp_path / "record.json", {"a": entry})
    job = Job(tmp_path, "record.json")
    assert (job.is_damaged, job.pieces, job.holds("a")) == (True, {}, False)
    (tmp_path / "record.json").write_text(json.dumps([1]))
    assert Job(tmp_path, "record.json").is_damaged
    (tmp_path / "record.json").unlink()
    assert not Job(tmp_path, "record.json").is_damaged


def grown(folder, *parts, made_of="x"):
    """Write the parts of a piece that the job of a folder lacks, each of ten bytes; return which were written."""
    job, written = Job(folder, "record.json"), []
    job.claim("a", made_of=made_of)
    with (folder / "a").open("r+b" if (folder / "a").exists() else "w+b") as file:
        file.truncate(30)
        for part in parts:
            if not job.holds_part("a", 10 * part, 10 * part + 10):
                file.seek(10 * part)
                file.write(b"part %5d" % part)
                file.flush()
                job.record_part("a", 10 * part, 10 * part + 10)
                written.append(part)
            assert job.holds_part("a", 10 * part, 10 * part + 10)
    return written


def test_a_piece_that_grows(tmp_path):
    assert grown(tmp_path, 0, 2) == [0, 2]
    assert grown(tmp_path, 0, 1, 2) == [1]
    assert (tmp_path / "a").read_bytes() == b"part     0part     1part     2"
    job = Job(tmp_path, "record.json")
    assert not job.holds("a")
    assert not job.holds_part("a", 0, 20)  # other bounds
    content = bytearray((tmp_path / "a").read_bytes())
    content[12] ^= 1
    (tmp_path / "a").write_bytes(content)
    assert grown(tmp_path, 0, 1, 2) == [1]
    (tmp_path / "a").write_bytes(content[:15])
    assert grown(tmp_path, 0, 1, 2) == [1, 2]
    assert grown(tmp_path, 0, 1, 2, made_of="y") == [0, 1, 2]
    job = Job(tmp_path, "record.json")
    job.record("a")
    assert Job(tmp_path, "record.json").holds("a")
    assert not job.pieces["a"].parts


def test_pieces_that_are_folders(tmp_path):
    """They are claimed alone; `remove` removes them and what is in them, and nothing that is not on record."""
    with Job.open(tmp_path / "work", "record.json", "test") as job:
        job.claim("f", made_of="x")
        (job.folder / "f").mkdir()
        (job.folder / "f/part").write_text("part")
        assert not job.holds("f")
    with Job.open(tmp_path / "work", "record.json", "test") as job:
        job.keep({"f": "x"})
        assert (job.folder / "f/part").is_file()
        (job.folder / "g").touch()
        job.remove("f", "g")
        assert sorted(os.listdir(job.folder)) == [LOCK, "g", "record.json"]


def test_a_part_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    power, replace = Power(monkeypatch, tmp_path), Path.replace

    def replaced(self, target):
        assert power.kept[self.stat().st_ino] == self.read_bytes()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replaced)
    assert run(tmp_path / "work") == [*NAMES]


@pytest.mark.parametrize("make", ["job", "new"])
def test_a_folder_is_on_the_disk_when_it_has_its_name(tmp_path, monkeypatch, make):
    root = tmp_path / "root"
    root.mkdir()
    with monkeypatch.context() as patch:
        power = Power(patch, root)
        if make == "job":
            with Job.open(root / "work", "record.json", "test") as job:
                (job.folder / "d").mkdir()
                (job.folder / "d/a").write_text("a")
                move_folder(job.folder, root / "out")
        else:
            with new_folder(root / "out") as folder:
                (folder / "d").mkdir()
                (folder / "d/a").write_text("a")
        power.cut(tmp_path / "cut", kinds_of(root))
    assert (tmp_path / "cut/out/d/a").read_text() == "a"
