"""What Linux alone has, and the other way beside it: each alone, and a core of the package without Linux's ways.

Only Linux runs these tests. They take away what macOS lacks, by name, and do not show that the package runs on macOS.
"""

import json
import mmap
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from metric_oracle import cluster
from metric_oracle.base import operating_system
from metric_oracle.base.operating_system import (
    command_line,
    cpuinfo,
    memory_in_use,
    n_threads,
    peak_memory,
    processor_family,
    processor_name,
    release_pages,
    reserve,
)
from metric_oracle.synthetic.example import write_example
from support import HANG

BLOCK = 1 << 27  # bytes that a test takes or maps, more than all else that changes meanwhile
PS = shutil.which("ps")

# ---- a core of the package -------------------------------------------------------------------------------------------

# As on macOS: names are missing, nothing is below /proc, `ru_maxrss` has bytes. Other packages miss the names, too, but
# are not told of another system: they would load what only that has. Kernels are compiled for the processor there is.
MACOS = """
import mmap, os, resource, select, sys, types

PREFIXES = {
    os: ("sched_", "posix_f", "fdatasync", "memfd_", "eventfd", "pidfd_", "splice", "copy_file_range", "getrandom",
         "O_DIRECT$", "O_TMPFILE", "O_PATH", "O_LARGEFILE", "O_NOATIME", "O_RSYNC"),
    mmap: ("MADV_", "MAP_POPULATE"),
    select: ("epoll", "EPOLL"),
}
for module, prefixes in PREFIXES.items():
    for name in dir(module):
        if (name + "$").startswith(prefixes):
            delattr(module, name)
os.process_cpu_count = os.cpu_count  # as Python 3.13 has it there

from metric_oracle.base import operating_system
from metric_oracle.kernels import _target

tried = set()

def without_proc(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | bytes):
        path = os.fsdecode(arguments[0])
        if path.split("/")[:2] == ["", "proc"] and path != "/proc/self/maps":  # which threadpoolctl reads
            tried.add(path)
            raise FileNotFoundError(2, "No such file or directory", path)

sys.addaudithook(without_proc)

def getrusage(who, usage=resource.getrusage):
    fields = [*usage(who)]
    fields[2] *= 1024
    return resource.struct_rusage(fields)

resource.getrusage = getrusage
operating_system.platform = types.SimpleNamespace(machine=lambda: "arm64", processor=lambda: "arm")
operating_system.sys = types.SimpleNamespace(platform="darwin")
"""

# States of BERTScore are of a stand-in for an encoder, as in the fixture `fake_encoder`. A limit just above the memory
# in use has the pages of the index released before blocks of queries.
CORE = """
import json, sys
import metric_oracle as mo
from metric_oracle.__main__ import main
from metric_oracle.base.operating_system import memory_in_use, peak_memory
from metric_oracle.encoders import token_states
from metric_oracle.indexes import bertscore
from metric_oracle.retrieval.machine import machine
from support.encoder import FakeEncoder

def oracle(*words):
    sys.argv = ["oracle", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code

bertscore.TokenEncoder = token_states.TokenEncoder = FakeEncoder
token_states._digest = lambda encoder, *rest: repr((encoder.signature, *rest))
METRICS = ["bleu", "rouge-l", "bertscore"]
index = mo.build_index(mo.reports("train.csv", encoder="fake"), "INDEX", metrics=METRICS)
answers = {"files": index.content["files"]}
for metric in METRICS:
    found = mo.retrieve(index, "test.csv", metric, k=3)
    limit = mo.SearchOptions(threads=2, max_memory=1.2 * memory_in_use() / 1e9)
    limited = mo.retrieve(index, "test.csv", metric, k=3, options=limit)
    assert limited.table.equals(found.table), metric
    scores = mo.score(mo.reports("test.csv", encoder="fake"), "weak.csv", metric)
    answers[metric] = found.table.to_pylist(), scores.table.to_pylist()
oracle("study", "INDEX", "test.csv", "weak=weak.csv", "-m", "bleu,rouge-l", "--out", "STUDY")
answers["study"] = open("STUDY/table.csv", encoding="utf-8").read()
oracle("retrieve", "INDEX", "test.csv", "-m", "bleu", "--out", "found.csv")
oracle("verify", "INDEX", "found.csv", "test.csv")
told = {"machine": machine(), "memory": memory_in_use(), "peak": peak_memory()}
print(json.dumps([answers, told, sorted(globals().get("tried", []))]))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the folder of a small example."""
    folder = tmp_path_factory.mktemp("systems") / "try"
    write_example(folder, 180, 8)
    return folder


def run_core(folder, program):
    """Return what a program prints in a process of its own, on copies of files: lines, and the last one as JSON."""
    shutil.copytree(folder.parent / "try", folder)
    command = [sys.executable, "-c", f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n{program}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=HANG)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    return lines, *json.loads(last)


def test_a_core_of_the_package_without_what_linux_alone_has(files):
    lines, answers, here, _ = run_core(files.with_name("here"), CORE)
    other_lines, other_answers, other, tried = run_core(files.with_name("other"), MACOS + CORE)
    assert other_answers == answers
    assert other_lines == lines
    assert {*tried} >= {"/proc/cpuinfo", "/proc/self/statm", "/proc/self/status"}
    assert other["machine"] == {**here["machine"], "cpu": "arm", "cores": os.cpu_count()}
    assert 5e7 < other["memory"] < 1.1 * other["peak"] < 2e10  # bytes, not units of 1024


# ---- each way alone --------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """Take away what Linux alone has; units are those of macOS."""
    monkeypatch.setattr(operating_system, "_PROC", tmp_path / "proc")
    for module, name in ((os, "sched_getaffinity"), (os, "posix_fallocate"), (mmap, "MADV_DONTNEED")):
        monkeypatch.delattr(module, name)
    monkeypatch.setattr(os, "process_cpu_count", os.cpu_count, raising=False)  # as Python 3.13 has it there
    usage = resource.getrusage
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=usage(who).ru_maxrss * 1024))
    monkeypatch.setattr(operating_system, "sys", SimpleNamespace(platform="darwin"))


@pytest.fixture(params=["here", "elsewhere"])
def way(request):
    """Have a test run twice, with Linux's way and with the portable one."""
    if request.param == "elsewhere":
        request.getfixturevalue("elsewhere")
    return request.param


def told(*names):
    """Return how many bytes of some kinds Linux says that this process has in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(tuple(f"{name}:" for name in names)))


@pytest.fixture
def fake_ps(monkeypatch, tmp_path):
    """Return a function that puts a script in the place of `ps`; without one there is no `ps`."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def put(script):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/ps").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin/ps").chmod(0o755)

    return put


def test_cores_that_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert n_threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert n_threads() == len(allowed)


@pytest.mark.parametrize(("counted", "cores"), [(7, 7), (None, 1)])
@pytest.mark.usefixtures("elsewhere")
def test_cores_of_the_machine(monkeypatch, counted, cores):
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert n_threads() == cores


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("x86_64", "x86_64"),
        ("AMD64", "x86_64"),
        ("aarch64", "arm64"),
        ("arm64", "arm64"),
        ("ppc64le", "ppc64le"),
    ],
)
def test_one_name_for_each_family_of_processors(monkeypatch, name, family):
    monkeypatch.setattr(platform, "machine", lambda: name)
    assert processor_family() == family


def test_the_name_of_the_processor(monkeypatch, tmp_path):
    monkeypatch.setattr(operating_system, "_PROC", tmp_path)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert (cpuinfo(), processor_name()) == ("", "arm")
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert processor_name() == "arm64"
    (tmp_path / "cpuinfo").write_bytes(b"processor\t: 0\nmodel name\t: Made-up\xae 9 @ 2:1 GHz\n")
    assert processor_name() == "Made-up\ufffd 9 @ 2:1 GHz"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nCPU part\t: 0xd0c\n")  # Linux on Arm
    assert processor_name() == "arm64"


@pytest.mark.skipif(PS is None, reason="there is no ps")
def test_memory_in_use_is_what_is_held_now(way):
    before = memory_in_use()
    assert before == pytest.approx(told("VmRSS"), rel=0.05)
    block = np.ones(BLOCK // 8)
    more = memory_in_use()
    assert more - before > 0.9 * BLOCK
    del block
    now = memory_in_use()
    assert more - now > 0.9 * BLOCK  # it falls again, which the peak does not
    assert peak_memory() > 0.99 * more
    assert peak_memory() - now > 0.9 * BLOCK


@pytest.mark.usefixtures("elsewhere")
def test_what_ps_tells(fake_ps):
    assert memory_in_use() == pytest.approx(peak_memory(), rel=0.01)  # without ps
    assert command_line(7) == ""
    fake_ps(f"""
case "$*" in
    "-ww -o rss= -p {os.getpid()}") echo "  4321" ;;
    "-ww -o args= -p 7") echo "ray::task  one " ;;
    *) exit 1 ;;
esac""")
    assert memory_in_use() == 4321 * 1024
    assert command_line(7) == "ray::task  one"


def test_peak_of_memory_without_proc(monkeypatch, way):
    """Systems differ in the unit of `ru_maxrss`."""

    def most():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if way == "elsewhere" else 1024)

    monkeypatch.setattr(operating_system, "_PROC", Path("nowhere"))
    before = most()
    assert before <= peak_memory() <= most()


def test_peak_of_memory_is_that_of_the_process_itself():
    """`ru_maxrss` begins at what the parent had in memory when it started the process."""
    block = np.ones(BLOCK // 8)
    program = "from metric_oracle.base.operating_system import peak_memory as peak; print(peak())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    del block
    assert 1 << 22 < int(done.stdout) < BLOCK


def test_pages_are_released_and_read_again(tmp_path, way):
    content = np.arange(BLOCK // 8).tobytes()
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for release, part in ((release_pages, 1), (partial(release_pages, first=BLOCK // 2, size=BLOCK // 4), 1 / 4)):
            assert mapped[:] == content
            held = told("RssFile", "RssShmem")
            release(mapped)
            released = held - told("RssFile", "RssShmem")
            assert released == pytest.approx(part * BLOCK if way == "here" else 0, abs=BLOCK / 16)
        assert mapped[:] == content


@pytest.mark.parametrize("held", [0, 1, 2500, 5000, 9000])
def test_reserved_files_have_their_size_and_their_room(tmp_path, monkeypatch, way, held):
    monkeypatch.setattr(operating_system, "_PIECE", 1024)
    with (tmp_path / "file").open("w+b", buffering=0) as file:
        file.write(b"x" * held)
        reserve(file.fileno(), 5000)
        file.seek(0)
        assert file.read() == (b"x" * held).ljust(5000, b"\0")[:5000]
        os.fsync(file.fileno())
        assert os.fstat(file.fileno()).st_blocks * 512 >= 5000  # a file of holes has none


@pytest.mark.usefixtures("elsewhere")
def test_a_write_of_zeros_that_stops_early_goes_on(tmp_path, monkeypatch):
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, place: write(file, content[:7], place))
    with (tmp_path / "file").open("w+b") as file:
        reserve(file.fileno(), 100)
    assert (tmp_path / "file").read_bytes() == bytes(100)


@pytest.mark.usefixtures("way")
def test_a_disk_without_room_is_an_error(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (tmp_path / "file").open("w+b", buffering=0) as file:
        file.write(b"x" * 100)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                reserve(file.fileno(), 1 << 20)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        file.seek(0)
        assert file.read(100) == b"x" * 100


@contextmanager
def running(*words):
    """Start a process with further words in its command line, which waits for the end of the body."""
    program = [sys.executable, "-c", "print(flush=True) or input()", *words]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # it has its command line
        yield process
        process.communicate(b"\n")


@pytest.mark.skipif(PS is None, reason="there is no ps")
@pytest.mark.usefixtures("way")
def test_command_lines_of_processes():
    with running("ray::a", "b") as process:
        assert command_line(process.pid).split()[-4:] == ["or", "input()", "ray::a", "b"]
    assert command_line(process.pid) == ""


@pytest.mark.skipif(PS is None, reason="there is no ps")
@pytest.mark.usefixtures("way")
def test_workers_alone_are_killed():
    for word, code in (("ray::task", -signal.SIGKILL), ("other", 0)):
        with running(word) as process:
            cluster.end(process.pid)
        assert process.returncode == code
        cluster.end(process.pid)  # there is no such process any more
