"""A command as a process: closed streams, signals, kills, and what they leave behind."""

import os
import shlex
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from metric_oracle.base.files import new_folder
from metric_oracle.findings.results import read_results
from metric_oracle.retrieval.building import build_index
from metric_oracle.scores.scoring import score
from metric_oracle.tables.study_folder import study_job
from support import HANG, write
from support.signals import signalled

ORACLE = f"{shlex.quote(sys.executable)} -m metric_oracle"


def run(line):
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=HANG)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("process")
    write(folder / "test.csv", {f"s{i}": f"Small effusion {i}." for i in range(4)})
    build_index(folder / "test.csv", folder / "I", metrics=["bleu"])
    return folder


# Streams that are closed


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("oracle", "--help"),
        ("oracle", "--version"),
        ("metrics", "metrics"),
        ("retrieve", "retrieve {0}/I {0}/test.csv -m bleu"),
    ],
)
def test_a_result_without_a_place_is_an_error(folder, name, arguments):
    done = run(f"{ORACLE} {arguments.format(folder)} >&-")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"error: {name}: files and folders must be open to this user, with room to write; got standard output (Bad "
        "file descriptor). Check it, and run this again."
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_result_in_a_file_needs_no_stream(folder, tmp_path, closed):
    out = tmp_path / "out.csv"
    done = run(f"{ORACLE} retrieve {folder}/I {folder}/test.csv -m bleu --out {out} {closed}")
    assert (done.returncode, done.stdout) == (0, "")
    assert read_results(out).mean() == 1.0
    assert sorted(os.listdir(tmp_path)) == ["out.csv", "out.csv.signature.json"]


def test_an_error_without_a_place_is_an_exit_code(folder):
    assert run(f"{ORACLE} retrieve {folder}/I none.csv -m bleu 2>&-").returncode == 2


def test_an_error_soon_after_a_file_was_read_is_an_exit_code(folder, tmp_path):
    """Arrow's threads still held the bytes of the file as the interpreter ended: half of these calls were aborted."""
    tests = folder / "test.csv"
    line = f"{ORACLE} survey create {tests} --candidates a={tests} --raters anna --studies 50000 --out {tmp_path}/S"
    assert [run(line).returncode for _ in range(4)] == [2] * 4


# Signals


@pytest.mark.parametrize(("by", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
@pytest.mark.parametrize("command", [("synth", "c", "--reports", "200"), ("example", "c")])
def test_a_signal_leaves_nothing(tmp_path, command, by, code):
    """While a folder is written beside its place: a corpus, an example."""
    if signal.getsignal(by) is signal.SIG_IGN:
        pytest.skip("the tests run under nohup, and so do their commands")
    assert signalled(by, "open", "/test.csv", *command, cwd=tmp_path).returncode == code
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("by", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_a_callback_ends_the_process_too(by, code):
    """Python drops what is raised in the callback of a weak reference, such as those of its imports."""
    if signal.getsignal(by) is signal.SIG_IGN:
        pytest.skip("the tests run under nohup, and so do their commands")
    program = f"""
import os, time, weakref
from metric_oracle.commands import terminal

class Held: pass

terminal.own_process()
with terminal.interruptible():
    held = Held()
    reference = weakref.ref(held, lambda _: os.kill(os.getpid(), {int(by)}))
    del held
    time.sleep(600)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG)
    assert (done.returncode, done.stderr) == (code, "")


SIGNALLED = """
import functools, os, sys
from metric_oracle import __main__
from metric_oracle.commands import terminal

number, nth, where = map(int, sys.argv[1:4])
sys.argv[1:] = sys.argv[4:]
code = functools.cached_property.__set_name__.__code__

def trace(frame, event, argument):
    global nth
    if event == "call" and frame.f_code is code:
        nth -= 1
        if nth == 0:
            sys.setprofile(None)
            os.kill(os.getpid(), number)

terminal.own_process()
if where:
    sys.setprofile(trace)
else:  # what a compiled call makes of the exception of a handler
    from metric_oracle import cli
    def retrieve(*arguments, **keywords):
        try:
            os.kill(os.getpid(), number)
        except BaseException as error:
            raise SystemError("CPUDispatcher(<function f>) returned a result with an exception set") from error
    cli.app = retrieve
__main__.main()
"""


@pytest.mark.parametrize(("by", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
@pytest.mark.parametrize(("nth", "where"), [(1, 1), (9, 1), (0, 0)])
def test_a_signal_whose_exception_is_replaced_ends_the_process_too(folder, by, code, nth, where):
    """Python puts RuntimeError in its place while it makes a class, and compiled code SystemError."""
    if signal.getsignal(by) is signal.SIG_IGN:
        pytest.skip("the tests run under nohup, and so do their commands")
    command = ["retrieve", f"{folder}/I", f"{folder}/test.csv", "-m", "bleu", "-q"]
    program = [sys.executable, "-c", SIGNALLED, str(int(by)), str(nth), str(where), *command]
    done = subprocess.run(program, capture_output=True, text=True, timeout=HANG)
    line = "error: oracle: the command must run to its end; got an interruption. Run it again: a build resumes.\n"
    assert (done.returncode, done.stderr) == (code, line if by == signal.SIGINT else "")


# The environment


run_once = cache(run)


@pytest.mark.parametrize("command", ["--help", "info {0}/I --format table", "retrieve {0}/I {0}/test.csv -m bleu"])
@pytest.mark.parametrize(
    "setting", ["COLUMNS=²", "LINES=²", "COLUMNS=99999999999", "NUMBA_OPT=zz", "ORACLE_PROGRESS=²"]
)
def test_values_of_the_environment_that_are_none(folder, command, setting):
    line = f"{ORACLE} {command.format(folder)}"
    plain, done = run_once(line), run(f"{setting} {line}")
    assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert done.returncode == 0


@pytest.mark.parametrize("backend", ["module://matplotlib_inline.none", "none", "pdf"])
def test_a_figure_needs_no_backend(folder, tmp_path, backend):
    """A notebook's kernel names one to the commands that are run in it; Matplotlib fails if it is not installed."""
    pytest.importorskip("matplotlib")
    out = tmp_path / "p.png"
    scored = score(folder / "test.csv", folder / "test.csv", "bleu")
    scored.write(tmp_path / "s.csv")
    done = run(f"MPLBACKEND={backend} {ORACLE} table a={tmp_path}/s.csv --plot {out} --quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_full_disk_names_the_file(tmp_path):
    """The system's error names none; a limit of the size of files stands for the disk."""
    done = run(f"trap '' XFSZ; ulimit -f 4; {ORACLE} example {tmp_path}/c")
    assert done.returncode == 2
    assert f"with room to write; got {tmp_path}/c (File too large). Check it" in done.stderr


@pytest.mark.parametrize("make", [new_folder, lambda out: study_job(None)])
def test_a_signal_as_a_folder_appears_leaves_nothing(tmp_path, monkeypatch, make):
    """The handler of a signal that arrives during mkdir runs before the next line."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make_folder = Path.mkdir

    def mkdir(folder, *arguments, **keywords):
        make_folder(folder, *arguments, **keywords)
        raise SystemExit(143)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(SystemExit), make(tmp_path / "c"):
        pass
    assert os.listdir(tmp_path) == []


def test_a_process_that_ignores_hangups_goes_on(tmp_path):
    nohup = ("bash", "-c", "trap '' HUP; exec \"$@\"", "nohup")
    done = signalled(signal.SIGHUP, "open", "/test.csv", "example", "c", cwd=tmp_path, under=nohup)
    assert done.returncode == 0
    assert (tmp_path / "c/train.csv").is_file()


@pytest.mark.parametrize("command", [("synth", "c", "--reports", "200"), ("example", "c")])
def test_a_killed_command_leaves_what_the_next_one_removes(oracle, tmp_path, command):
    assert signalled(signal.SIGKILL, "open", "/test.csv", *command, cwd=tmp_path).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".c.unfinished-")
    assert not left.name.endswith(left.name.split("-")[1] * 2)
    assert oracle("example", tmp_path / "c")[0] == 0
    assert os.listdir(tmp_path) == ["c"]


@pytest.mark.parametrize("command", ["example", "synth", "demo"])
def test_the_current_folder_is_not_replaced(fails, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    argument = "out" if command == "synth" else "folder"
    match = rf"{command}: {argument} must be a new or empty folder; got the current folder\. Name another folder\.$"
    fails(command, ".", match=match)


@pytest.mark.parametrize("words", [["score", "--bogus"], ["bogus"], ["score", "no.csv", "no.csv"], ["info", "no"]])
def test_an_error_has_its_code_where_it_cannot_be_printed(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "metric_oracle", *words], stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, done.stdout) == (2, b"")
