from types import SimpleNamespace

import numba

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
