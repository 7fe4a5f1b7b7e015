"""Fixtures that several test folders share."""

import csv
import json
import os
import shutil
import sys
import tempfile
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from numba import config
from threadpoolctl import threadpool_limits

import metric_oracle as mo
from metric_oracle import cli
from metric_oracle.encoders import token_states
from metric_oracle.indexes import stems
from metric_oracle.kernels import _device, _jit
from metric_oracle.projects import FIRST, write_entry
from metric_oracle.retrieval import kernels
from support import PROFILE, PROFILES, assert_refused, lacking, write_corpus
from support.encoder import FakeEncoder
from support.interpreted import run_once
from support.small import AS_SHIPPED, as_in_a_new_process

# Threads that wait for those of another worker spin. Tests of several threads ask for them; PyTorch is not loaded yet.
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if IS_WORKER:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# No line of progress in what commands say, however long this machine takes to compile.
os.environ["ORACLE_PROGRESS"] = "1000000"

if find_spec("numba_cuda"):
    # Importing numba-cuda 0.30 uses what NumPy 2.5 has deprecated, and warnings are errors in tests.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import_module("numba.cuda")

for name in mo.__all__:  # the classes that public functions name check their arguments from now on
    getattr(mo, name)

for name, profile in PROFILES.items():
    settings.register_profile(name, profile)
settings.load_profile(PROFILE)


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_blas():
    """Keep NumPy's products on one thread where workers share the processors, as those of PyTorch above."""
    with threadpool_limits(1 if IS_WORKER else None, user_api="blas"):
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """Let nothing wait until the disk has it: no power cut is survived here. `support.power` tells what would be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled():
    """Have kernels do small work too, as on a machine where they are stored; see `small_work`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in AS_SHIPPED:
            patch.setattr(kernels, name, -1.0)
        patch.setattr(_jit, "FEW", -1)
        yield


@pytest.fixture
def small_work():
    """Let plain scorers do small work, as in a new process."""
    with as_in_a_new_process():
        yield


@pytest.fixture(scope="session", autouse=True)
def wordnet():
    """Put the synonyms of the golden values, and some for made-up words, in the place of WordNet; see `golden/`."""
    golden = json.loads((Path(__file__).parent / "golden/meteor_cider.json").read_text(encoding="utf-8"))
    known = {**golden["synonyms"], "w0": ["stabl", "w1"], "new": ["w1", "only-test"], "only-train": ["w0", "new"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stems, "wordnet_synonyms", lambda: lambda word: known.get(word, ()))
        yield


@pytest.fixture(scope="session")
def iu_xray() -> Path:
    """Return the folder of the public IU X-ray files, which lie beside the repository and never in it."""
    folder = Path(__file__).parents[1].parent / "shared/data/iu_xray"
    if not folder.is_dir():
        lacking(f"the IU X-ray files are not at {folder}")
    return folder


@pytest.fixture
def iu_files(iu_xray, tmp_path) -> Path:
    """Return a folder with what docs/iu-xray.md has the reader download; of annotation.json the ids and splits."""
    shutil.copy(iu_xray / "indiana_reports.csv", tmp_path)
    items: dict[str, list[dict[str, str]]] = {}
    with (iu_xray / "r2gen_split.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            items.setdefault(row["split"], []).append({"id": row["id"]})
    (tmp_path / "annotation.json").write_text(json.dumps(items), encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> dict[str, Path]:
    """Return the files of a small synthetic corpus: reports, graphs, labels and stand-in embeddings of both splits."""
    return write_corpus(tmp_path_factory.mktemp("synthetic"), 120, 12, seed=3)


class Rated(NamedTuple):
    """A made-up complete design of ReXVal's shape in every file layout, and its counts as they were drawn."""

    folder: Path
    long: Path  # study_number, candidate_type, error_category, rater_index, clinically_significant, num_errors
    green: Path  # the same counts, raters in columns of equal names
    samples: Path  # study_id, gt_report, one column for each candidate type
    scores: Path  # study_number, candidate_type, four columns of scores
    counts: np.ndarray  # int64[50, 4, 6, 6, 2]: study, candidate, rater, category, significance


RATED_CANDIDATES = ("bleu", "s_emb", "bertscore", "radgraph")


@pytest.fixture(scope="session")
def rated(tmp_path_factory) -> Rated:
    """Write a rated design from random numbers: 50 x 4 x 6 x 6 x 2 = 14,400 counts, most 0, 11 equal pairs."""
    folder = tmp_path_factory.mktemp("rated")
    rng = np.random.default_rng(8)
    rate = rng.gamma(1.2, 0.12, (50, 4, 1, 1, 1)) * np.array([2, 1, 1, 0.5]).reshape(1, 4, 1, 1, 1)
    rate = rate * np.array([3, 2, 1, 0.7, 0.5, 0.4]).reshape(1, 1, 1, 6, 1)
    identical = np.zeros((50, 4), bool)
    identical.flat[rng.permutation(200)[:11]] = True
    counts = rng.poisson(np.where(identical[..., None, None, None], 0, rate).repeat(6, 2).repeat(2, 4))
    cells = list(np.ndindex(counts.shape))
    paths = [folder / f"{name}.csv" for name in ("long", "green", "samples", "scores")]

    lines = ["study_number,candidate_type,error_category,rater_index,clinically_significant,num_errors"]
    lines += [f"{s},{RATED_CANDIDATES[c]},{k + 1},{r},{bool(g)},{counts[s, c, r, k, g]}" for s, c, r, k, g in cells]
    paths[0].write_text("\n".join(lines) + "\n")

    raters = ",".join("012345")
    lines = [
        f"study_number,origin,error_category,{raters},sig_mean_errors,{raters},insig_mean_errors,total_mean_errors"
    ]
    for s, c, k in np.ndindex(50, 4, 6):
        blocks = [counts[s, c, :, k, g] for g in (1, 0)]
        texts = [",".join([*map(str, block), f"{block.mean():.4f}"]) for block in blocks]
        lines.append(f"{s},{RATED_CANDIDATES[c]},{k + 1},{','.join(texts)},{sum(b.mean() for b in blocks):.4f}")
    paths[1].write_text("\n".join(lines) + "\n")

    lines = ["study_id,gt_report," + ",".join(RATED_CANDIDATES)]
    for s in range(50):
        texts = [f"Made up {s}." if identical[s, c] else f"Other text {s} {c}." for c in range(4)]
        lines.append(f'{50000000 + s},"Made  up\n {s}.",' + ",".join(texts))
    paths[2].write_text("\n".join(lines) + "\n")

    # Coarse, so that scores tie.
    good = np.round(-counts.sum(axis=(2, 3, 4)) / 6 + rng.normal(0, 0.8, (50, 4)), 1)
    poor = np.round(rng.normal(0, 1, (50, 4)), 1)
    lines = ["study_number,candidate_type,bleu,poor,RadCliQ-v1,crepe,note"]
    for s, c in [*np.ndindex(50, 4)][::-1]:  # in another order than the ratings
        numbers = f"{good[s, c]},{poor[s, c]},{-good[s, c]},{-good[s, c]}"
        lines.append(f"{s},{RATED_CANDIDATES[c]},{numbers},word")
    paths[3].write_text("\n".join(lines) + "\n")
    return Rated(folder, *paths, counts)


@pytest.fixture
def oracle(monkeypatch, capsys):
    """Return a function that runs a command in this process and gives exit code, stdout and stderr."""
    monkeypatch.delenv("ORACLE_DEBUG", raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["oracle", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def named(tmp_path_factory, monkeypatch):
    """Return a function that names a file of reports in the oracle.toml that the test's commands read.

    It takes the name, the file and what the entry says, by names of arguments, and returns the name. With `kind`
    "encoders" it names an encoder, of which the file is the model; with "judges" a judge, which has no such file.
    """
    place = tmp_path_factory.mktemp("names") / "oracle.toml"

    def run(name, file=None, kind="reports", **said):
        monkeypatch.setenv("ORACLE_PROJECT", str(place))
        said = {key: str(value) if isinstance(value, Path) else value for key, value in said.items()}
        first = {} if file is None else {FIRST[kind]: str(file)}
        write_entry(place, name, {**first, **{key.replace("_", "-"): said[key] for key in said}}, kind)
        return name

    return run


@pytest.fixture
def fails(oracle):
    """Return a function that runs a command which must end in one line and exit code 2, see `assert_refused`.

    What was recognised of its reports may stand before that line.
    """

    def run(*arguments, match, notes=r"(test )?reports: "):
        assert_refused(oracle(*arguments), match, notes)

    return run


@pytest.fixture
def unprivileged():
    """Let file permissions count for the super-user too."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """Return a folder that every user of the machine can enter; those of tmp_path are closed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture(scope="module")
def fake_encoder():
    """Let every encoder of token states that a test opens be a fake one, and return its class."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("indexes.bertscore", "encoders.token_states"):  # the first imports from the second
            patch.setattr(f"metric_oracle.{module}.TokenEncoder", FakeEncoder)
        if find_spec("torch") is None:  # the digest of an encoding has torch's number of threads
            patch.setattr(token_states, "_digest", lambda encoder, *rest: repr((encoder.signature, *rest)))
        yield FakeEncoder


@pytest.fixture
def cuda_lane(monkeypatch):
    """Return a function that lets a metric's CUDA backend run where it can: on a GPU, in Numba's simulator with tiny
    blocks, or on torch's CPU device, with Triton's interpreter where it has a Triton kernel. It skips what cannot run;
    ORACLE_REQUIRE_GPU=1 makes that a failure.
    """

    def run_here(kernel):
        reason = _device.lacking(kernel.LIBRARY)
        if config.ENABLE_CUDASIM and kernel.LIBRARY == "numba":
            tiny = {
                "LANES": 2,
                "WARPS": 2,
                "BINS": 37,
                "WORDS": 36,
                "THREADS": 4,
                "TILE": 13,
                "BLOCKS_PER_PROCESSOR": 9,
            }
            homes = ("_device", "_scan", "_overlap_cuda", "rouge_l.cuda")
            for module in (import_module(f"metric_oracle.kernels.{home}") for home in homes):
                for name in tiny.keys() & vars(module).keys():
                    monkeypatch.setattr(module, name, tiny[name])
        elif reason and os.environ.get("ORACLE_REQUIRE_GPU") == "1":
            pytest.fail(reason)
        elif reason and find_spec(kernel.LIBRARY) and (kernel.LIBRARY == "torch" or os.environ.get("TRITON_INTERPRET")):
            for home in ("bertscore", "cosine", "chexbert_labels"):
                monkeypatch.setattr(f"metric_oracle.kernels.{home}.cuda.DEVICE", "cpu")
            if kernel.LIBRARY == "triton":
                run_once(monkeypatch)
            monkeypatch.setattr(_device, "lacking", lambda library: "")
        elif reason:
            switch = "TRITON_INTERPRET=1" if kernel.LIBRARY == "triton" else "NUMBA_ENABLE_CUDASIM=1"
            pytest.skip(f"{reason}; {switch} runs this without one")

    return run_here
