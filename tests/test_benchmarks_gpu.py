"""The run on a GPU: a broken step costs only itself, what is done is not done again. No test needs a GPU."""

import json

import pytest

from benchmarks import gpu


def steps_of(*steps):
    return lambda out, *, rehearsal: [
        gpu.Step(name, seconds, needs, command) for name, seconds, needs, command in steps
    ]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Give the run on a GPU a folder of its own."""
    for name, place in (("WORK", ""), ("SITE", "site"), ("DONE", "done.json")):
        monkeypatch.setattr(gpu, name, tmp_path / place)
    return tmp_path


def test_a_broken_step_on_a_gpu_costs_only_itself_and_what_is_done_is_not_done_again(work, monkeypatch, capfd):
    count = ("-c", f"open({str(work / 'runs')!r}, 'a').write('x')")
    monkeypatch.setattr(
        gpu,
        "steps",
        steps_of(
            ("absent", 20, (), ("no-such-program",)),
            ("broken", 20, (), ("-c", "raise SystemExit('out of room')")),
            ("slow", 1, (), ("-c", "import time; time.sleep(60)")),
            ("waits", 20, ("no_such_module",), count),
            ("last", 20, ("json",), count),
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

    assert gpu.main(["--out", str(out)]) == 0
    assert capfd.readouterr().out == "waits: later; lacking no_such_module\n"
    assert gpu.main(["--out", str(out), "--again", "last"]) == 0
    assert (work / "runs").read_text() == "xx"


def test_a_step_that_the_whole_limit_cut_short_begins_again(work, monkeypatch, capfd):
    monkeypatch.setattr(gpu, "steps", steps_of(("long", 60, (), ()), ("short", 35, (), ())))
    runs = []

    def run(step, seconds, options):
        runs.append((step.name, seconds))
        return {"exit": None, "seconds": 0.0}

    monkeypatch.setattr(gpu, "_run", run)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: 0.0)
    assert gpu.main(["--out", str(work / "out"), "--limit", "10"]) == 0
    assert capfd.readouterr().out.splitlines() == ["long: later; no time is left", "short: later; no time is left"]
    for expected in ([("long", 50), ("short", 35)], [("long", 50)]):
        assert gpu.main(["--out", str(work / "out"), "--limit", "50"]) == 1
        assert runs == expected
        runs.clear()


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
    assert gpu._found(gpu.ENCODER)
