"""Runs of CheXbert and RadGraph over reports: killed and resumed, damaged parts, no network."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from metric_oracle.encoders import chexbert, radgraph

ENCODERS = Path(__file__).parent
WORDS = ["no", "acute", "process", "mild", "edema", "worse", "than", "before", ".", ","]
RNG = np.random.default_rng(4)
TEXTS = [" ".join(RNG.choice(WORDS, n)) for n in RNG.integers(0, 12, 40)]
PART = 40


def module(name):
    spec = importlib.util.spec_from_file_location(name, ENCODERS / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


# The first argument names the model, then its files, the scratch folder and the number of finished texts to end at.
CHILD = f"""
import os, signal, sys
from pathlib import Path
name, model, encoder, scratch, last = sys.argv[1:]
from metric_oracle.encoders import chexbert, radgraph
texts, done = {TEXTS!r}, 0

def progress(n):
    global done
    done += n
    if last and done >= int(last):
        os.kill(os.getpid(), signal.SIGKILL)

if name == "chexbert":
    chexbert.CheXbert.part_size = {{"cpu": {PART}}}
    run = chexbert.CheXbert(model, device="cpu").encode
else:
    radgraph.RadGraph.part_size = {{"cpu": {PART}}}
    run = radgraph.RadGraph(model, encoder=encoder, device="cpu").annotate
run(texts, progress=progress, scratch=Path(scratch) if scratch else None)
print(done)
"""


class Run:
    """A tiny model of one kind, its texts, and how often it ran on a report or a batch."""

    def __init__(self, name, folder):
        self.name, self.scratch, self.encoder = name, folder / "made" / "scratch", folder / "encoder"
        if name == "chexbert":
            tiny = module("test_chexbert")
            self.model = tiny.save(folder, tiny.tensors_of(*tiny.tiny_parts()))
            self.call = chexbert.CheXbert(self.model, device="cpu").encode
        else:
            tiny = module("tiny_radgraph")
            tiny.write_encoder(self.encoder, "radgraph")
            self.model = tiny.write_archive(folder / "radgraph.tar.gz", tiny.files_of("radgraph", self.encoder))
            self.call = radgraph.RadGraph(self.model, encoder=self.encoder, device="cpu").annotate
        self.expected = self.bytes_of(self.call(TEXTS))

    @staticmethod
    def bytes_of(found):
        return json.dumps(found).encode() if isinstance(found, dict) else b"".join(x.tobytes() for x in found[:2])

    def resume(self, texts=TEXTS):
        """Return the result as bytes, and the number of parts that the model ran on."""
        with pytest.MonkeyPatch.context() as patch:
            cls = self.call.__self__.__class__
            n_packed, pack = [], cls._pack
            patch.setattr(cls, "part_size", {"cpu": PART})
            patch.setattr(cls, "_pack", lambda *args: n_packed.append(1) or pack(*args))
            found = self.call(texts, scratch=self.scratch)
        return self.bytes_of(found), len(n_packed)

    def child(self, last, scratch, **environment):
        arguments = [self.name, self.model, self.encoder, scratch, last]
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
        return subprocess.run(
            [sys.executable, "-c", environment.pop("CODE", CHILD), *map(str, arguments)],
            capture_output=True, text=True, check=False, env=environment,
        )  # fmt: skip

    def files(self):
        return sorted(self.scratch.glob("*.part"))


@pytest.fixture(scope="module", params=["chexbert", "radgraph"])
def made(request, tmp_path_factory):
    return Run(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def run(made, tmp_path):
    made.scratch = tmp_path / "made" / "scratch"
    return made


def test_a_killed_run_resumes(run):
    """After SIGKILL in the middle: what was finished is kept, and the bytes are those of an unbroken run."""
    ended = run.child(20, run.scratch)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    n_kept = len(run.files())
    assert n_kept > 1
    found, n_ran = run.resume()
    assert found == run.expected
    n_parts = len(run.files())
    assert n_ran == n_parts - n_kept > 1
    assert run.resume() == (run.expected, 0)


def test_damaged_parts_are_made_again(run):
    found, n_parts = run.resume()
    assert found == run.expected
    assert n_parts == len(run.files()) > 3
    first, second, third, *_ = run.files()
    raw = bytearray(first.read_bytes())
    raw[-1] ^= 1
    first.write_bytes(raw)
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(run.files()[3].read_bytes())
    assert run.resume() == (run.expected, 3)
    third.unlink()
    first.write_bytes(b"")
    assert run.resume() == (run.expected, 2)


def test_parts_of_another_run_do_not_count(run):
    _, n_parts = run.resume()
    others = [*TEXTS[:-1], "no edema , no edema"]
    found, n_ran = run.resume(others)
    assert n_ran >= n_parts
    assert found == run.bytes_of(run.call(others))
    model = run.call.__self__
    assert run.resume(others)[1] == 0
    signature = model._signature
    model._signature = signature | {"torch": "0.0"}
    try:
        assert run.resume(others)[1] == n_ran
    finally:
        model._signature = signature


def test_parts_of_another_machine_do_not_count(run):
    """Other instructions may give other last bits."""
    _, n_parts = run.resume()
    model = run.call.__self__
    environment = model._environment
    for change in ({"instructions": "AVX3000"}, {"device": "H200"}, {"batch_tokens": 1}):
        model._environment = environment | change
        try:
            assert run.resume() == (run.expected, n_parts)
        finally:
            model._environment = environment


def test_the_order_of_texts_keeps_parts(run):
    run.resume()
    found, n_ran = run.resume(TEXTS[::-1])
    assert n_ran == 0
    assert found == run.bytes_of(run.call(TEXTS[::-1]))


def test_nothing_is_downloaded(run):
    """Without HF_HUB_OFFLINE and with every socket refused, models run and nothing asked for a connection."""
    guard = """
import socket, sys
def refuse(*arguments, **options):
    print("asked for the network", file=sys.stderr, flush=True)
    raise OSError
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
"""
    offline = {"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": ""}
    ended = run.child("", "", CODE=guard + CHILD, **offline)
    assert (ended.returncode, ended.stdout) == (0, f"{len(TEXTS)}\n"), ended.stderr
    assert "network" not in ended.stderr
