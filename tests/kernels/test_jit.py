import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

from metric_oracle.kernels import _jit


def test_compiles_where_no_folder_for_compiled_code_can_be_written(monkeypatch):
    real = numba.njit

    def without_folder(**flags):
        if flags.get("cache"):
            msg = "cannot cache function 'f': no locator available for file 'f.py'"
            raise RuntimeError(msg)
        return real(**flags)

    monkeypatch.setattr(_jit, "numba", SimpleNamespace(njit=without_folder))
    assert _jit.jit(lambda x: x + 1)(2) == 3


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


@pytest.mark.parametrize(
    ("variable", "value", "match"),
    [
        (
            "NUMBA_DISABLE_JIT",
            "1",
            r"build_index: NUMBA_DISABLE_JIT is set, but the kernels run as machine code only\.",
        ),
        ("NUMBA_NUM_THREADS", "0", r"build_index: NUMBA_NUM_THREADS must be a whole number of at least 1; got '0'\."),
        (
            "NUMBA_NUM_THREADS",
            "two",
            r"build_index: NUMBA_NUM_THREADS must be a whole number of at least 1; got 'two'\.",
        ),
    ],
)
def test_settings_of_numba_that_kernels_cannot_have(corpus, tmp_path, variable, value, match):
    command = [sys.executable, "-m", "metric_oracle", "build-index", corpus["train"], "--out", tmp_path / "I"]
    done = subprocess.run(command, env={**os.environ, variable: value}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(f"error: {match}", done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


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
    _jit._keyed(SimpleNamespace(_cache=SimpleNamespace(_cache_file=file, save_overload=None)))
    assert file._load_index() == {}
