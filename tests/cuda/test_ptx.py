"""Every CUDA kernel compiled for the types that the searches launch it with; no GPU, but NVIDIA's compiler, or Triton.

ORACLE_REQUIRE_NVRTC=1, as in CI, makes a missing compiler a failure.
"""

import os
import re
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from numba import config, cuda, typeof

import metric_oracle as mo
from metric_oracle.kernels import _device
from metric_oracle.kernels.contract import Answers
from metric_oracle.metrics import METRICS, get_metric
from metric_oracle.retrieval.kernels import load_kernel

SHARED_BYTES = 48 * 1024  # that a block gets without asking for more
NUMBA_METRICS = [name for name, metric in METRICS.items() if metric.kernel in ("bleu", "rouge_l", "radgraph")]


@pytest.fixture(scope="module")
def compiler():
    """Skip where kernels cannot be compiled."""
    if config.ENABLE_CUDASIM:
        pytest.skip("the simulator compiles nothing")
    reason = "" if find_spec("numba_cuda") else "numba-cuda is not installed"
    if not reason:
        try:
            cuda.compile_ptx(lambda x: x + 1, (typeof(1),), device=True, cc=(9, 0))
        except Exception as error:  # whatever it raises where a library of CUDA is not there
            reason = f"NVIDIA's compiler is not installed: {type(error).__name__}"
    if reason and os.environ.get("ORACLE_REQUIRE_NVRTC") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def launches(compiler, corpus, tmp_path_factory) -> dict:
    """Return the kernels and the types of their arguments, as the searches launch them; nothing runs."""
    folder = tmp_path_factory.mktemp("ptx")
    long_text = " ".join(["No", "acute", "disease", "heart"] * 40)
    index = mo.build_index(mo.reports(corpus["train"], radgraph=corpus["train_graphs"]), folder / "index")
    queries = mo.reports(corpus["test"], radgraph=corpus["test_graphs"]).load()
    queries.texts[0] = long_text  # more than one block of words
    held = [name for name in NUMBA_METRICS if name in index.metrics]  # what needs files of its own launches the same
    seen = {}

    def note(kernel, grid, *args):
        seen.setdefault((kernel.py_func.__qualname__, kernel), set()).add(tuple(map(typeof, args)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_device, "launch", note)
        patch.setattr(_device, "upload", lambda array: np.array(array, order="C"))
        patch.setattr(_device, "empty", np.zeros)
        patch.setattr(_device, "download", lambda array: array)
        patch.setattr(_device, "free_bytes", lambda: 1e12)
        patch.setattr(_device, "n_blocks", lambda: 9)
        patch.setattr(_device, "devices", lambda library: [nullcontext()])
        for name in held:
            metric = get_metric(name)
            representation = index.representation(metric)
            encoded = representation.encode(queries)
            n = int(encoded.document_of_row.max()) + 1
            sides = representation.arrays(metric, encoded), representation.translate(metric, encoded)
            answers = Answers(*(np.zeros((n, 3), t) for t in (np.int64, np.float64, np.int64)), np.full(n, -np.inf))
            load_kernel(metric, "cuda").search(*sides, range(n), 3, answers, None)
    return seen


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_every_kernel_compiles(launches, capability, monkeypatch):
    # What a kernel calls is compiled for the current device.
    device = SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(sys.modules["numba.cuda.dispatcher"], "get_current_device", lambda: device)
    assert len(launches) == 4
    for (name, kernel), signatures in launches.items():
        assert len(signatures) == 1, f"{name} is compiled for several types"
        for signature in signatures:
            ptx, _ = cuda.compile_ptx(kernel.py_func, signature, cc=capability)
            assert ".visible .entry" in ptx
            assert f".target sm_{capability[0]}{capability[1]}" in ptx
            shared = [int(size) for size in re.findall(r"\.shared [^\[]*\[(\d+)\]", ptx)]
            assert sum(shared) <= SHARED_BYTES
            assert (".atom" in ptx or "atom." in ptx or "red." in ptx) == ("find_least" not in name)


def test_every_kernel_keeps_its_code_in_files_of_its_own(launches):
    """Processes that begin at once would overwrite one another's entries in an index that several kernels share."""
    files = [kernel._cache._cache_file for _, kernel in launches]
    for of_file in ("_index_path", "_data_name_pattern"):
        assert len({getattr(file, of_file) for file in files}) == len(files) == 4


def test_a_small_grid_brings_no_warning(compiler):
    """numba-cuda warns of fewer than 128 blocks, before it needs a device; here warnings are errors."""

    class Unlaunched:
        def __getitem__(self, shape):
            cuda.jit(lambda x: None)[shape]
            return lambda *args: None

    _device.launch(Unlaunched(), (1, 1))


TYPES = {  # of what the search hands to the Triton kernel
    "codes": "*fp16", "ptr": "*i64", "weights": "*fp32", "first": "i32", "query_codes": "*fp16",
    "query_weights": "*fp32", "tiles": "*i32", "n_tiles": "i32", "precision": "*fp32", "recall": "*fp32",
    "n_documents": "i32",
}  # fmt: skip


@pytest.mark.parametrize(("capability", "most_kb"), [(80, 163), (86, 99), (90, 227)])
@pytest.mark.parametrize("width", [16, 128])
def test_the_triton_kernel_compiles(capability, most_kb, width):
    """To a cubin: registers and shared memory are known then; as it is launched, with pointers divisible by 16."""
    if find_spec("triton") is None and os.environ.get("ORACLE_REQUIRE_NVRTC") == "1":
        pytest.fail("Triton is not installed")
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    from metric_oracle.kernels.bertscore.segment_maxima import _segment_maxima, launches

    lengths = np.array([16384, 1025, 1024, 512, 256, 128, 64, 32, 16])
    sizes = list(launches(lengths, width))
    assert [constants["ROWS"] for _, _, constants, _ in sizes] == lengths[2:].tolist()
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(TYPES.values()) if kind.startswith("*")}
    for _, _, constants, options in sizes:
        types = TYPES | dict.fromkeys(constants, "constexpr")
        source = triton.compiler.ASTSource(_segment_maxima, types, constants, aligned)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        assert f".target sm_{capability}" in compiled.asm["ptx"]
        assert "mma" in compiled.asm["ptx"]  # tensor cores
        assert compiled.metadata.shared <= most_kb * 1024
        assert len(compiled.asm["cubin"]) > 0


def test_the_triton_kernel_is_compiled_once_for_each_size():
    """Numbers of documents and tiles, which change with every block of queries, do not choose another compilation."""
    pytest.importorskip("triton")
    from metric_oracle.kernels.bertscore.segment_maxima import _segment_maxima

    varying = {name for name, kind in TYPES.items() if not kind.startswith("*")}
    assert {parameter.name for parameter in _segment_maxima.params if parameter.do_not_specialize} == varying
