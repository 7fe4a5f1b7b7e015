"""The run on a GPU: a broken step costs only itself, what is done is not done again. No test needs a GPU."""

import json
import os
import select
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu, machine
from support import AT_ONCE, HANG


def steps_of(*steps):
    return lambda out, *, rehearsal: [
        gpu.Step(name, seconds, needs, command) for name, seconds, needs, command in steps
    ]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Give the run on a GPU a folder of its own."""
    for name, place in (("WORK", ""), ("SITE", "site"), ("DONE", "done.json"), ("COMMIT", "commit.json")):
        monkeypatch.setattr(gpu, name, tmp_path / place)
    monkeypatch.delenv("OUT", raising=False)
    return tmp_path


def test_a_broken_step_on_a_gpu_costs_only_itself_and_what_is_done_is_not_done_again(work, monkeypatch, capfd):
    count = ("-c", f"open({str(work / 'runs')!r}, 'a').write('x')")
    monkeypatch.setattr(
        gpu,
        "steps",
        steps_of(
            ("absent", HANG, (), ("no-such-program",)),
            ("broken", HANG, (), ("-c", "raise SystemExit('out of room')")),
            ("slow", 1, (), ("-c", "import time; time.sleep(600)")),
            ("waits", HANG, ("no_such_module",), count),
            ("last", HANG, ("json",), count),
        ),
    )
    out = work / "out"
    assert gpu.main(["--out", str(out)]) == 1
    shown = capfd.readouterr().out
    for line in (
        "absent: exit 127",
        "out of room",
        "broken: exit 1",
        "slow: exit None",
        "waits: later; lacking no_such",
    ):
        assert line in shown
    assert (out / "broken.log").read_text() == "out of room\n"
    assert (work / "runs").read_text() == "x"
    done = json.loads((out / "steps.json").read_text())
    assert {name: step["exit"] for name, step in done.items()} == {"absent": 127, "broken": 1, "slow": None, "last": 0}

    # What time has cut short is tried again, after all others.
    assert gpu.main(["--out", str(out)]) == 1
    shown = capfd.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in shown if line] == ["waits", "slow"]
    assert gpu.main(["--out", str(out), "--again", "last"]) == 1
    assert (work / "runs").read_text() == "xx"


def test_a_step_begins_where_half_of_its_limit_is_left(work, monkeypatch, capfd):
    monkeypatch.setattr(gpu, "steps", steps_of(("long", 60, (), ()), ("short", 35, (), ())))
    runs = []

    def run(step, seconds, options):
        runs.append((step.name, seconds))
        return {"exit": None if seconds < 60 else 0, "seconds": 0.0}

    monkeypatch.setattr(gpu, "_run", run)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: 0.0)
    assert gpu.main(["--out", str(work / "out"), "--limit", "17"]) == 0
    assert capfd.readouterr().out.splitlines() == ["long: later; no time is left", "short: later; no time is left"]
    for limit, expected in ((29, [("short", 29)]), (50, [("long", 50), ("short", 35)]), (60, [("long", 60)])):
        gpu.main(["--out", str(work / "out"), "--limit", str(limit)])
        assert runs[: len(expected)] == expected
        runs.clear()


def test_installing_counts_as_time(work, monkeypatch, capfd):
    clock = [0.0]
    monkeypatch.setattr(gpu, "steps", steps_of(("long", 60, (), ())))
    monkeypatch.setattr(gpu.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(gpu, "_install", lambda: clock.__setitem__(0, 80.0))
    assert gpu.main(["--out", str(work / "out"), "--limit", "100"]) == 0
    assert capfd.readouterr().out == "long: later; no time is left\n"


@AT_ONCE
@pytest.mark.parametrize("is_cut_short", [False, True])
def test_children_of_a_step_end_with_it(work, monkeypatch, is_cut_short):
    """Also those of a step that ends by itself, and of one that time cuts short."""
    os.mkfifo(work / "held")
    end = os.open(work / "held", os.O_RDONLY | os.O_NONBLOCK)
    child = f"""
import time
held = open({str(work / "held")!r}, "w", 1)
held.write("begun\\n")
print("begun", flush=True)
time.sleep(600)
"""
    parent = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE).stdout.readline()
time.sleep({600 * is_cut_short})
"""

    def time_is_up(process, seconds=None):
        if seconds is not None:
            select.select([end], [], [])  # its child has begun
            raise subprocess.TimeoutExpired(process.args, seconds)
        return wait(process)

    wait = subprocess.Popen.wait
    if is_cut_short:
        monkeypatch.setattr(subprocess.Popen, "wait", time_is_up)
    monkeypatch.setattr(gpu, "steps", steps_of(("parent", HANG, (), ("-c", parent))))
    assert gpu.main(["--out", str(work / "out")]) == is_cut_short
    os.set_blocking(end, True)
    with open(end) as held:  # ends when nobody holds the other end
        assert held.read() == "begun\n"


def test_what_there_is_goes_back_after_every_step(work, monkeypatch):
    """A call that the machine ends before this program does brings back the steps before."""
    back = work / "back"
    back.mkdir()
    monkeypatch.setenv("OUT", str(back))
    seen = []

    def look(out):
        real(out)
        with tarfile.open(back / "gpu.tgz") as tar:
            seen.append({Path(name).name for name in tar.getnames()} & {"a.log", "b.log", "steps.json"})

    real = gpu._hand_back
    monkeypatch.setattr(gpu, "_hand_back", look)
    monkeypatch.setattr(gpu, "steps", steps_of(*((name, 20, (), ("-c", "print(1)")) for name in "ab")))
    assert gpu.main(["--out", str(work / "out")]) == 0
    assert seen == [{"a.log", "steps.json"}, {"a.log", "b.log", "steps.json"}]


def test_the_steps_fit_a_lease(tmp_path):
    steps = gpu.steps(tmp_path, rehearsal=False)
    names = [step.name for step in steps]
    assert names[:3] == ["device", "smoke", "bertscore"]
    assert names.index("bertscore") < names.index("peers") < names.index("profile-data")
    assert sum(step.seconds for step in steps if not step.name.startswith("profile")) <= 25 * 60
    assert all(step.seconds <= 9 * 60 for step in steps)
    for step in steps:
        if step.name.startswith("profile") and step.command[0] == "ncu":
            place = step.command.index("--clock-control")
            assert step.command[place + 1] == "none"  # the card is shared


def test_cuda_is_found_where_the_compiler_lies(tmp_path, monkeypatch):
    """numba-cuda looks for libNVVM in CUDA_HOME, and not where a wheel of NVRTC is."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    nvcc = tmp_path / "cuda/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch()
    monkeypatch.setattr(gpu.shutil, "which", lambda name: str(nvcc))
    assert gpu._cuda_home() != tmp_path / "cuda"
    (tmp_path / "cuda/nvvm").mkdir()
    assert gpu._environment(rehearsal=False)["CUDA_HOME"] == str(tmp_path / "cuda")
    monkeypatch.setenv("CUDA_PATH", "elsewhere")
    assert gpu._cuda_home() is None


def test_versions_are_looked_at(work, monkeypatch):
    assert gpu._lacking(("numpy", "pytest", "no_such_module")) == ["no_such_module"]
    requirements = pytest.importorskip("packaging.requirements")
    bounds = {name: requirements.Requirement(f"{name}>=99").specifier for name in ("numpy", "numba")}
    monkeypatch.setattr(gpu, "_bounds", lambda: bounds)
    # Numba cannot be carried: what is there is tried.
    assert gpu._lacking(("numpy", "numba")) == [f"numpy>=99 (found {np.__version__})"]


def test_the_commit_is_carried(work, monkeypatch):
    carried = work / "carry/1"
    carried.mkdir(parents=True)
    (carried / "commit.json").write_text('{"commit": "abc", "dirty": false}')
    gpu._install()
    monkeypatch.setenv("ORACLE_COMMIT", gpu._environment(rehearsal=True)["ORACLE_COMMIT"])
    monkeypatch.setattr(machine, "ROOT", work)
    assert machine.commit() == {"commit": "abc", "dirty": False}


def test_carried_packages_are_installed_once(work, monkeypatch):
    carried = work / "carry/1"
    (carried / gpu.ENCODER).mkdir(parents=True)
    (carried / gpu.ENCODER / "__init__.py").write_text("")
    (carried / "made-1-py3-none-any.whl").write_text("")
    called = []
    monkeypatch.setattr(gpu.subprocess, "run", lambda command, **_: called.append(command))
    gpu._install()
    gpu._install()
    (command,) = called
    assert command[-1] == str(carried / "made-1-py3-none-any.whl")
    assert "--no-index" in command
    assert gpu._lacking((gpu.ENCODER,)) == []
