"""What people install: built from the checkout, and run without it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from support import parse_command

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, BUILD = SETTINGS["project"], SETTINGS["tool"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the sdist, and the wheel that was built from it."""
    pytest.importorskip("build")
    pytest.importorskip("hatch_vcs")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], check=True)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture
def checkout(tmp_path):
    """Return a function that runs git in a new repository that has this pyproject.toml."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    pytest.importorskip("hatch_vcs")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    named = {f"GIT_{role}_{key}": "nobody@nowhere" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    environment = {**os.environ, **named, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=tmp_path, env=environment, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    git.folder = tmp_path
    return git


def version_of(folder):
    command = [sys.executable, "-m", "hatchling", "version"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_the_version_is_that_of_the_tag(checkout):
    commit = ["commit", "--allow-empty", "-m", "later"]
    fallback = BUILD["hatch"]["version"]["fallback-version"]
    following = re.escape(Version(fallback).base_version)
    assert re.fullmatch(rf"{following}\.dev1\+g[0-9a-f]+", version_of(checkout.folder))  # no tag
    checkout("tag", "v0.3.0")
    assert version_of(checkout.folder) == "0.3.0"
    checkout(*commit)
    assert re.fullmatch(r"0\.3\.1\.dev1\+g[0-9a-f]+", version_of(checkout.folder))
    checkout("tag", "v0.4.0.dev0")
    checkout(*commit)
    assert re.fullmatch(r"0\.4\.0\.dev1\+g[0-9a-f]+", version_of(checkout.folder))
    (checkout.folder / "README.md").write_text("changed")
    assert re.fullmatch(r"0\.4\.0\.dev1\+g[0-9a-f]+\.d\d{8}", version_of(checkout.folder))
    shutil.rmtree(checkout.folder / ".git")
    assert version_of(checkout.folder) == fallback


def test_files_agree_on_the_version():
    """CITATION.cff names the latest release, which is this one or the one before this development version."""
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    fallback = BUILD["hatch"]["version"]["fallback-version"]
    installed = Version(version(PROJECT["name"]))
    assert not Version(cited).is_prerelease
    assert Version(fallback).is_devrelease
    assert Version(cited) < Version(fallback)
    assert Version(cited) < installed if installed.is_devrelease else Version(cited) == installed


def test_the_wheel_has_the_version_of_the_sdist(built):
    versions = [re.match(r"metric_oracle-(.*?)(?:-py3|\.tar\.gz)", path.name)[1] for path in built]
    assert versions[0] == versions[1]


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
    code = "import metric_oracle; print(metric_oracle.__file__, metric_oracle.__version__)"
    (built_version,) = re.findall(r"metric_oracle-(.*?)-py3", built[1].name)
    for arguments, said in (
        (["-c", code], str(home)),
        (["-c", code], f" {built_version}\n"),
        (["-m", "metric_oracle", "--version"], f"{PROJECT['name']} {built_version}"),
        (["-m", "metric_oracle", "--help"], "build-index"),
        (["-m", "metric_oracle", "metrics"], '"metric": "bleu-2"'),
    ):
        run = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert said in run.stdout


def test_citation_and_paper_name_the_same_authors_works_and_figures():
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "type", "version", "abstract", "keywords", "references"} <= set(cited)
    assert [author["name"] for author in cited["authors"]] == [author["name"] for author in PROJECT["authors"]]
    assert (cited["title"], cited["license"]) == (PROJECT["name"], PROJECT["license"])
    _, head, text = (ROOT / "paper/paper.md").read_text(encoding="utf-8").split("---\n", 2)
    paper = yaml.safe_load(head)
    assert [author["name"] for author in paper["authors"]] == [author["name"] for author in cited["authors"]]
    bibliography = (ROOT / "paper" / paper["bibliography"]).read_text(encoding="utf-8")
    works = re.findall(r"^@\w+\{(\w+),", bibliography, re.MULTILINE)
    assert sorted(works) == sorted(set(re.findall(r"@(\w+\d{4}\w+)", text)))
    # Every time in the paper is one that the harness wrote.
    measured = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    times = re.findall(r"[\d.,]*\d s\b", " ".join(text.split()))
    assert len(times) > 5
    assert [time for time in times if f"| {time}" not in measured] == []


def test_the_container_names_what_there_is():
    """No image is built here, as in `.ci/container`: what the file takes from pyproject.toml exists."""
    text = (ROOT / "containers/Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^ARG EXTRAS=\"(.*)\"$", text, re.MULTILINE)
    mentioned = {*extras.split(","), *re.findall(r"\*,(\w+),\*", text)}
    assert mentioned <= set(PROJECT["optional-dependencies"])
    assert re.search(r"^ARG VERSION$", text, re.MULTILINE)
    assert not {"cpu", "gpu"} <= mentioned
    assert all(target == "oracle" for target in re.findall(r"^ENTRYPOINT \[\"(\w+)\"\]$", text, re.MULTILINE))
    build, run = re.findall(r"^# (docker .*)$", text, re.MULTILINE)
    assert "-f containers/Dockerfile" in build
    parse_command(shlex.split(run.partition(build.split()[-2])[2]))
