"""The first contact with a GPU, see `benchmarks/smoke.py`: in Numba's simulator or on a GPU.

`kernels/test_bertscore_cuda.py` has the part that is written in Triton.
"""

from argparse import Namespace

import numpy as np
import pytest
from numba import config

from benchmarks import smoke
from metric_oracle.base.errors import ExactnessError
from metric_oracle.kernels.bleu import cuda as bleu_cuda

OPTIONS = Namespace(device="cuda", documents=20)


@pytest.mark.gpu
@pytest.mark.parametrize("check", [check for check in smoke.CHECKS if check is not smoke.bertscore])
@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
def test_numba_kernels(cuda_lane, check):
    cuda_lane(bleu_cuda)
    check(OPTIONS)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
def test_a_wrong_kernel_is_found(cuda_lane, monkeypatch):
    if not config.ENABLE_CUDASIM:
        pytest.skip("compiled code has its functions in place")
    cuda_lane(bleu_cuda)
    monkeypatch.setattr(bleu_cuda.Backend, "scores", lambda self, counts: np.full(counts.shape[-1], 0.5))
    with pytest.raises((AssertionError, ExactnessError), match=r"best score|must not lie below|must score among"):
        smoke.bleu(OPTIONS)


def test_all_checks_run_and_a_broken_one_is_told(monkeypatch, capsys):
    def broken(options):
        msg = "no room"
        raise ValueError(msg)

    def right(options):
        pass

    monkeypatch.setattr(smoke, "CHECKS", (broken, right))
    monkeypatch.setattr(smoke, "versions", lambda: ["numpy 1"])
    assert smoke.main([]) == 1
    shown = capsys.readouterr().out
    assert "broken, 0.0 s: FAILED" in shown
    assert "ValueError: no room" in shown
    assert "right, 0.0 s: right" in shown


def test_versions_beside_their_bounds(monkeypatch):
    assert not any("MUST BE" in line for line in smoke.versions() if line.startswith(("numba ", "pytest ")))
    monkeypatch.setattr(smoke.importlib.metadata, "version", lambda name: "0.1")
    assert "numba 0.1: MUST BE <0.69,>=0.68" in smoke.versions()
