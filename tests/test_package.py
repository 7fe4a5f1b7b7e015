"""What people install: built from the checkout, and run without it."""

import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

from support import parse_command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the sdist, and the wheel that was built from it."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], check=True)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def test_files_agree_on_the_version():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", cited, re.MULTILINE) == [PROJECT["version"]]


def test_both_names_of_the_command_are_one_function():
    assert set(PROJECT["scripts"]) == {"oracle", PROJECT["name"]}
    (target,) = set(PROJECT["scripts"].values())
    module, _, name = target.partition(":")
    assert callable(getattr(import_module(module), name))


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    ours = [path for path in (ROOT / "metric_oracle").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert names == {path.relative_to(ROOT).as_posix() for path in ours}
    assert {"metric_oracle/py.typed", "metric_oracle/web/templates/base.html"} <= names


def test_the_sdist_can_be_tested_and_cited(built):
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "docs/index.md", "tests/test_package.py"} <= names


def test_an_installed_wheel_runs_outside_the_checkout(built, tmp_path):
    """Its dependencies are those of this environment; `.ci/run` installs it with them into an empty one."""
    home = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", home, built[1]]
    subprocess.run(install, check=True)
    environment = {**os.environ, "PYTHONPATH": str(home)}
    code = "import metric_oracle; print(metric_oracle.__file__)"
    for arguments, said in (
        (["-c", code], str(home)),
        (["-m", "metric_oracle", "--version"], f"{PROJECT['name']} {PROJECT['version']}"),
        (["-m", "metric_oracle", "--help"], "build-index"),
        (["-m", "metric_oracle", "metrics"], '"metric": "bleu-2"'),
    ):
        run = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert said in run.stdout


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_containers_name_what_there_is(name):
    """No image is built here: what a file takes from the checkout and from pyproject.toml exists."""
    text = (ROOT / f"containers/{name}.Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^ARG EXTRAS=\"(.*)\"$", text, re.MULTILINE)
    mentioned = {*extras.split(","), *re.findall(r"\*,(\w+),\*", text)}
    assert mentioned <= set(PROJECT["optional-dependencies"])
    assert not {"cpu", "gpu"} <= mentioned
    for python in re.findall(r"^FROM python:([\d.]+)", text, re.MULTILINE):
        assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    assert all(target == "oracle" for target in re.findall(r"^ENTRYPOINT \[\"(\w+)\"\]$", text, re.MULTILINE))
    build, run = re.findall(r"^# (docker .*)$", text, re.MULTILINE)
    assert f"-f containers/{name}.Dockerfile" in build
    parse_command(shlex.split(run.partition(build.split()[-2])[2]))
