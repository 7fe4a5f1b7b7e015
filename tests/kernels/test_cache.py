import ast
import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core import caching

from metric_oracle.base.locks import alone
from metric_oracle.kernels import _cache, _jit
from metric_oracle.kernels._sort import sort


def test_the_installed_numba_is_known():
    """Where this fails, read what changed in `caching.py` and `dispatcher.py` of numba/core, and adapt `_cache.py`."""
    assert _cache.unknown(numba.njit(cache=True)(sort.py_func)) == ""


def test_every_numba_that_may_be_installed_is_known():
    """CI runs this file with the oldest of them and with the newest."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    first, end = re.search(r'"numba>=0\.(\d+),<0\.(\d+)"', text).groups()
    assert {f"0.{minor}." for minor in range(int(first), int(end))} == set(_cache.KNOWN)


def test_no_other_module_uses_private_names_of_numba():
    names = {part for name in _cache._USED for part in name.split(".") if part.startswith("_")} | {"save_overload"}
    for path in Path(_jit.__file__).parents[1].rglob("*.py"):
        used = {node.attr for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)}
        assert path.samefile(_cache.__file__) == bool(names & used), path


def without_index_key(patch):
    patch.delattr(caching.Cache, "_index_key")


def with_more_to_save(patch):
    patch.setattr(caching.Cache, "save_overload", lambda self, sig, data, path: None)


def of_next_year(patch):
    patch.setattr(numba, "__version__", "0.99.0")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without_index_key, r"Numba [\d.]+ has no _cache\._index_key, which this package uses"),
        (with_more_to_save, r"Numba [\d.]+ has other parameters of _cache\.save_overload than \(self, sig, data\)"),
        (of_next_year, r"Numba 0\.99\.0 was not tested with this package"),
    ],
)
def test_an_unknown_numba_compiles_and_stores_nothing(monkeypatch, change, reason):
    """Numba's own rules would load stored code for a source that has changed."""
    change(monkeypatch)
    rest = r', so that each process compiles its kernels anew\. Run pip install "numba==0\.68\.\*"\.$'
    with pytest.warns(RuntimeWarning, match=f"^{reason}{rest}"):
        compiled = _jit.jit(sort.py_func)
    values = np.array([3, 1, 2])
    compiled(values)
    assert values.tolist() == [1, 2, 3]
    assert compiled.stats.cache_path is None


def test_kept_code_of_a_caller_ends_with_the_source_that_it_inlines(tmp_path):
    """Numba looks at the caller's file alone; a rule that changed in another file would go on as it was."""
    home = Path(_jit.__file__).parent
    shutil.copytree(home.parent, tmp_path / "metric_oracle", ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import numpy as np; from metric_oracle.kernels.cosine.cpu import score_documents as score; "
        "v = np.ones((1, 2), np.float32); out = np.empty(1); score(np.zeros(1, np.int64), v[0], v, out); "
        "print(out[0], sum(score.stats.cache_hits.values()))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "code")}

    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert run() == "1.0 0"
    assert run() == "1.0 1"
    score = tmp_path / "metric_oracle" / home.name / "cosine" / "score.py"
    changed = score.read_text().replace("return dot / math", "return -dot / math")
    assert changed != score.read_text()
    score.write_text(changed)
    assert run() == "-1.0 0"


def imports_of(path: Path) -> set[str]:
    """Return the modules of the kernels that a file imports anywhere, by its syntax tree."""
    kernels = _jit.__package__
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith(kernels)}
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            if node.module == kernels or str(node.module).startswith(f"{kernels}."):
                for name in (f"{node.module}.{alias.name}" for alias in node.names):
                    found.add(name if name in _cache._modules() else node.module)
    return found


def test_imports_are_those_of_the_syntax_tree():
    modules = {name: Path(path) for name, path in _cache._modules().items()}
    assert set(modules.values()) == set(Path(_jit.__file__).parent.rglob("*.py"))
    for module, path in modules.items():
        assert _cache._read(module)[1] == imports_of(path), module
    assert sum(len(imports_of(path)) for path in modules.values()) > 100


def test_all_compiled_functions_are_kernels():
    """What is compiled elsewhere would have to be hashed too."""
    home = Path(_jit.__file__).parent
    compiling = re.compile(r"kernels\._jit import|kernels import .*_jit|^import numba|^from numba", re.MULTILINE)
    for path in home.parent.rglob("*.py"):
        if home not in path.parents:
            assert not compiling.search(path.read_text(encoding="utf-8")), path


DRIVER = """
from metric_oracle.kernels._jit import jit

def value(kind, x): ...

@jit
def run(kind, x):
    return value(kind, x)
"""
METRIC = """
from typing import NamedTuple
from metric_oracle.kernels import _driver as driver
from metric_oracle.kernels._jit import compiled_for, jit
from metric_oracle.kernels.{name} import middle

class Kind(NamedTuple):
    n: int
    {name}: {type}

@jit
def alone(x):
    return middle.twice(x)

@compiled_for(driver.value, Kind)
def value(kind, x):
    return middle.twice(x) * kind.n
"""
MIDDLE = """
from metric_oracle.kernels._jit import scalar
from metric_oracle.kernels.{name}.score import (
    factor,  # comment
)

@scalar
def twice(x):
    return factor() * x
"""
SCORE = """
from metric_oracle.kernels._jit import scalar

@scalar
def factor():
    return 2
"""
PROGRAM = """
from metric_oracle.kernels import _driver
from metric_oracle.kernels.one import cpu as one
from metric_oracle.kernels.two import cpu as two
for cpu in (one, two):
    before = sum(_driver.run.stats.cache_hits.values())
    values = cpu.alone(10), _driver.run(cpu.Kind(3, 1 if cpu is one else 1.0), 10)
    print(*values, sum(cpu.alone.stats.cache_hits.values()), sum(_driver.run.stats.cache_hits.values()) - before)
"""


@pytest.fixture
def two_metrics(tmp_path):
    """Return a function that copies the package with two small metrics, whose score is imported by way of a module."""
    package = Path(_jit.__file__).parents[1]

    def copy(name: str) -> Path:
        home = tmp_path / name
        shutil.copytree(package, home / "metric_oracle", ignore=shutil.ignore_patterns("__pycache__"))
        kernels = home / "metric_oracle" / "kernels"
        (kernels / "_driver.py").write_text(DRIVER)
        for metric in ("one", "two"):
            (kernels / metric).mkdir()
            for file, text in (("__init__", ""), ("cpu", METRIC), ("middle", MIDDLE), ("score", SCORE)):
                (kernels / metric / f"{file}.py").write_text(
                    text.format(name=metric, type={"one": "int", "two": "float"}[metric])
                )
        return home

    return copy


def run_program(home: Path, stored: Path) -> list[str]:
    # Python takes stored bytecode for current by size and time of its source, which the tests keep.
    environment = {
        **os.environ,
        "PYTHONPATH": str(home),
        "NUMBA_CACHE_DIR": str(stored),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=home, env=environment, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_an_edit_of_one_metric_compiles_that_metric_alone(two_metrics, tmp_path):
    """Values of the function itself and of a driver that is compiled for its tuple; what was loaded of either."""
    home, stored = two_metrics("a"), tmp_path / "stored"
    kernels = home / "metric_oracle" / "kernels"
    assert run_program(home, stored) == ["20 60 0 0", "20 60 0 0"]
    assert run_program(home, stored) == ["20 60 1 1", "20 60 1 1"]
    (kernels / "one" / "score.py").write_text(SCORE.replace("2", "5"))  # imported by the module that is imported
    assert run_program(home, stored) == ["50 150 0 0", "20 60 1 1"]
    assert run_program(home, stored) == ["50 150 1 1", "20 60 1 1"]
    (kernels / "bleu" / "cpu.py").write_text((kernels / "bleu" / "cpu.py").read_text() + "\n# another metric\n")
    (home / "metric_oracle" / "base" / "errors.py").write_text(
        (home / "metric_oracle" / "base" / "errors.py").read_text() + "\n#\n"
    )
    assert run_program(home, stored) == ["50 150 1 1", "20 60 1 1"]
    (kernels / "_driver.py").write_text(DRIVER.replace("return value", "return 1 + value"))
    assert run_program(home, stored) == ["50 151 0 0", "20 61 0 0"]
    files = [path.name for path in stored.rglob("*.nbc") if ".run" in path.name]
    assert len(files) == 2, "what is no longer current is overwritten"


def test_two_versions_of_the_package_do_not_mix(two_metrics, tmp_path):
    homes, stored = [two_metrics("a"), two_metrics("b")], tmp_path / "stored"
    score = homes[1] / "metric_oracle" / "kernels" / "one" / "score.py"
    score.write_text(SCORE.replace("2", "5"))
    for hits in (0, 1, 1):
        assert run_program(homes[0], stored) == [f"20 60 {hits} {hits}", f"20 60 {hits} {hits}"]
        assert run_program(homes[1], stored) == [f"50 150 {hits} {hits}", f"20 60 {hits} {hits}"]
    # One folder that holds one version after the other, as after a checkout; the time stamps need not change.
    for text, value in ((SCORE, "20 60"), (SCORE.replace("2", "5"), "50 150")):
        stamp = score.stat()
        score.write_text(text)
        os.utime(score, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        assert run_program(homes[1], stored)[0].startswith(value)


def test_a_full_disk_keeps_no_code(tmp_path):
    """A disk that is full when machine code is saved: the search goes on with the code that it has."""
    program = (
        "import numba.core.caching as caching, errno\n"
        "def full(self, name, data): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "caching.IndexDataCacheFile._save_data = full\n"
        "import numpy as np; from metric_oracle.kernels._sort import sort\n"
        "values = np.array([3, 1, 2]); sort(values); print(values)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1 2 3]\n", "")


def test_kept_code_is_loaded_without_the_compiler(tmp_path):
    """Numba prepares its compiler for it, which takes as long as its import; what has to be compiled still can be."""
    program = (
        "import sys; import numpy as np, numba; from metric_oracle.kernels._sort import sort; "
        "values = np.array([3, 1, 2]); sort(values); "
        "print(values, sum(sort.stats.cache_hits.values()), 'scipy.linalg' in sys.modules); "
        "print(numba.njit(lambda a: np.dot(a, a).sum())(np.eye(3)))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for hits in (0, 1):
        shown = subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
        ).stdout
        assert shown.split("\n")[:2] == [f"[1 2 3] {hits} {not hits}", "3.0"]


def test_kept_code_for_a_class_that_is_gone_is_compiled_again():
    """Numba unpickles the types of all kept versions before it looks whether they are of this source."""

    def load():
        msg = "Can't get attribute 'Scratch' on module 'metric_oracle.kernels._overlap'"
        raise AttributeError(msg)

    file = SimpleNamespace(_source_stamp=(1, 2), _index_path="i", _data_name_pattern="d", _load_index=load)
    stored = SimpleNamespace(_cache_file=file, save_overload=None, _index_key=None)
    _cache._key(SimpleNamespace(_cache=stored, py_func=load))
    assert file._load_index() == {}


def test_processes_that_need_one_function_compile_it_once(tmp_path):
    """Two processes call a function at the same time for two types: each type is compiled by one of them and stored."""
    program = (
        "import sys, numpy as np; from metric_oracle.kernels._sort import sort; sys.stdin.readline()\n"
        "for kind in (np.int64, np.float64):\n"
        "    values = np.array([3, 1, 2], kind); sort(values); assert values.tolist() == [1, 2, 3]\n"
        "print(sum(sort.stats.cache_misses.values()), sum(sort.stats.cache_hits.values()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    counts = np.array([process.communicate()[0].split() for process in processes], int)
    assert counts.sum(axis=0).tolist() == [2, 2]
    done = subprocess.run(command, env=environment, input="go\n", capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "2"]
    assert not list(tmp_path.rglob("*.lock"))


def test_a_lock_that_was_removed_is_taken_again(tmp_path):
    """A process that waited for a file which its holder then removed must not share the lock with a later process."""
    path = tmp_path / "code.lock"
    with alone(path):
        pass
    assert not path.exists()
    with path.open("ab"):  # as a process that waits
        path.unlink()
        with alone(path), pytest.raises(FileExistsError):
            path.touch(exist_ok=False)


def test_a_lock_that_is_needed_is_not_gone_without(tmp_path, monkeypatch):
    """Where a file system has no locks, code is not stored, but files are written."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No locks available"), alone(tmp_path / "code.lock", is_needed=True):
        pytest.fail("no lock")
    with alone(tmp_path / "other.lock"):
        pass
    assert len(os.listdir("/proc/self/fd")) == before
