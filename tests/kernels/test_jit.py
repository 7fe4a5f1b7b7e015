import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
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


def test_a_function_may_allocate_whoever_compiles_it_first():
    @_jit.jit
    def copy(values):
        return values.copy()

    @_jit.jit
    def double(values):
        return 2 * copy(values).sum()

    @_jit.inner
    def borrow(values):
        return double(values)

    @_jit.jit
    def first(values):
        return borrow(values)

    assert first(np.arange(3)) == 6


def test_functions_that_count_no_references_give_and_get_no_arrays():
    """An array would be freed while it is used, or never."""

    @_jit.jit
    def copy(values):
        return values.copy()

    @_jit.inner
    def same(values):
        return values

    @_jit.inner
    def parts(values):
        return 0, (values, values[1:])

    @_jit.inner
    def borrow(values):
        return copy(values).sum()

    for function in (same, parts, borrow):

        def call(values):
            return function(values)  # noqa: B023

        with pytest.raises(TypeError, match=rf"{function.__name__} is @inner: it must not return arrays"):
            _jit.jit(call)(np.arange(3))

    @_jit.inner
    def allocate(n):
        return np.zeros(n).sum()

    def call(n):
        return allocate(n)

    with pytest.raises(Exception, match="Only accept returning of array"):
        _jit.jit(call)(3)


@pytest.mark.parametrize(
    ("variable", "value", "match"),
    [
        (
            "NUMBA_DISABLE_JIT",
            "1",
            r"build-index: NUMBA_DISABLE_JIT is set, but the kernels run as machine code only\.",
        ),
        ("NUMBA_NUM_THREADS", "0", r"build-index: NUMBA_NUM_THREADS must be a whole number of at least 1; got '0'\."),
        (
            "NUMBA_NUM_THREADS",
            "two",
            r"build-index: NUMBA_NUM_THREADS must be a whole number of at least 1; got 'two'\.",
        ),
    ],
)
def test_settings_of_numba_that_kernels_cannot_have(corpus, tmp_path, variable, value, match):
    command = [sys.executable, "-m", "metric_oracle", "build-index", corpus["train"], "--out", tmp_path / "I"]
    done = subprocess.run(command, env={**os.environ, variable: value}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(f"error: {match}", done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


FORMS = Path(__file__).parents[1] / "support" / "forms.py"


def test_each_function_is_compiled_for_one_form_of_its_arrays(tmp_path):
    """Small, large, empty and prepared corpora, and reports in memory, take the same machine code."""
    command = [sys.executable, "-W", "ignore", str(FORMS), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FORMS.parents[1]), *sys.path])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
