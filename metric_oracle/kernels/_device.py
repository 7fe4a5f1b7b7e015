"""Access to GPUs: availability, memory, launches and error messages.

No other module of the kernels calls a GPU library for these. Numba's CUDA target runs the kernels over sets of features
and word sequences; torch runs the products of vectors.
"""

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numba import config as numba_config

from metric_oracle.base.errors import BackendError, install_command
from metric_oracle.kernels.contract import Capabilities

config: Any = numba_config
LANES = 32  # threads per warp; together they read one posting list
WARPS = 4  # warps per block, each with a posting list of its own. Registers allow 20; small blocks wait less
BLOCKS_PER_PROCESSOR = 32  # per launch; with many blocks, the last ones leave little of the device idle
SHARE_OF_MEMORY = 0.8  # share of a device's free memory that is used
_NO_DEVICE = 100  # the driver's error CUDA_ERROR_NO_DEVICE
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_LEAST_CAPABILITY = {"numba": (7, 5), "triton": (8, 0)}  # lowest compute capability of CUDA 13 and of Triton
_NO_ROOM = ("OUT_OF_MEMORY", "CUDA out of memory", "CUBLAS_STATUS_ALLOC_FAILED")  # errors of driver, torch, cuBLAS
_RESIDENT: dict[tuple[int, str], Any] = {}
_MAKING: dict[tuple[int, str], threading.Lock] = {}  # held by the thread that makes the data, while others wait
_ARITHMETIC_LOCK = threading.Lock()
_ARITHMETIC: list[tuple[bool, bool, str]] = []  # per thread in `plain_arithmetic`: the settings before the first


class DeviceError(BackendError):
    """A device has failed or lacks memory."""


class NoRoomError(DeviceError):
    """A GPU has too little free memory."""


class ByLibrary:
    """Base of the backends that use a GPU by means of a library: numba, torch or triton (attribute `library`)."""

    library: ClassVar[str]

    def lacking(self) -> str:
        """Return why no GPU can be used; an empty string if one can."""
        return lacking(self.library)


class OnDevice(ByLibrary):
    """Base of GPU backends that search for all queries in one call and keep no state in the memory of the host."""

    capabilities: ClassVar[Capabilities] = Capabilities(batched=True)

    def new_workspace(self, corpus: Any) -> Any:
        """Return None: these backends use no scratch arrays on the host, in contrast to CPU backends."""
        return None


# ---- availability ---------------------------------------------------------------------------------------------------


def lacking(library: str) -> str:
    """Return why `library`, "numba", "torch" or "triton", cannot use a GPU; an empty string if it can."""
    if library == "numba":
        if config.ENABLE_CUDASIM:
            return ""
        if find_spec("numba_cuda") is None:
            return f"numba-cuda is not installed ({install_command('gpu')})"
        if np.lib.NumpyVersion(np.__version__) >= "2.5.0":  # numba-cuda uses np.row_stack; its maintainers keep that
            return f'numba-cuda does not work with NumPy {np.__version__} (pip install "numpy<2.5")'
    else:
        try:
            import torch
        except ImportError:
            return "PyTorch is not installed (pip install torch)"
        if torch.version.cuda is None:
            return f"this PyTorch, {torch.__version__}, was built without CUDA"
        if library == "triton" and find_spec("triton") is None:
            return "Triton is not installed (pip install triton)"
    return _ask_driver(_LEAST_CAPABILITY.get(library, (0, 0)))


def _ask_driver(least: tuple[int, int]) -> str:
    """Return why the NVIDIA driver cannot run the kernels: no driver, no device, or too low a compute capability.

    `least` is (major, minor). The string is empty if every device has at least that capability.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver found"
    n = ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(n))
    if code == _NO_DEVICE or (code == 0 and n.value == 0):
        return "no CUDA device found"
    if code:
        return f"the NVIDIA driver answered with error {code}"
    for i in range(n.value):
        device, number = ctypes.c_int(), ctypes.c_int()
        driver.cuDeviceGet(ctypes.byref(device), i)
        capability = []
        for attribute in _CAPABILITY:
            driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
            capability.append(number.value)
        if tuple(capability) < least:
            return "GPU {} has compute capability {}.{}, below {}.{}".format(i, *capability, *least)
    return ""


# ---- torch and FAISS -------------------------------------------------------------------------------------------------


@contextmanager
def plain_arithmetic(device: str) -> Iterator[None]:
    """Context manager in which torch sums float16 and float32 products in float32: no TF32, float16 sums or autocast.

    `device` is torch's name of the device, such as "cuda". Bounds on rounding errors assume this arithmetic. The
    settings belong to the process: the first of several threads that enters makes them, and the last one that leaves
    restores the former settings.
    """
    import torch

    with _ARITHMETIC_LOCK:
        _ARITHMETIC.append(_ARITHMETIC[0] if _ARITHMETIC else _choose_arithmetic(False, False))
    try:
        with torch.inference_mode(), torch.autocast(torch.device(device).type, enabled=False):
            yield
    finally:
        with _ARITHMETIC_LOCK:
            before = _ARITHMETIC.pop()
            if not _ARITHMETIC:
                _choose_arithmetic(*before)


def _choose_arithmetic(reduced: bool, accumulated: bool, precision: str | None = None) -> tuple[bool, bool, str]:
    """Set how torch multiplies matrices on a GPU, and return the former settings in the order of the parameters.

    `reduced` and `accumulated` say whether sums of float16 products may be kept in float16. `precision` is torch's name
    of the precision of float32 products; None means full float32.
    """
    import torch

    flags = torch.backends.cuda.matmul
    # torch 2.9 and later. Once a process has set it, the older function raises.
    by_flag = hasattr(flags, "fp32_precision")
    before = (
        flags.allow_fp16_reduced_precision_reduction,
        getattr(flags, "allow_fp16_accumulation", False),  # since torch 2.7
        flags.fp32_precision if by_flag else torch.get_float32_matmul_precision(),
    )
    flags.allow_fp16_reduced_precision_reduction = reduced
    if hasattr(flags, "allow_fp16_accumulation"):
        flags.allow_fp16_accumulation = accumulated
    if by_flag:
        flags.fp32_precision = precision or "ieee"
    else:
        torch.set_float32_matmul_precision(precision or "highest")
    return before


def faiss_on_gpu() -> Any:
    """Return the module `faiss` if it is installed, built for GPUs and detects a GPU, else None."""
    try:
        import faiss
    except ImportError:
        return None
    return faiss if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0 else None


# ---- numba -----------------------------------------------------------------------------------------------------------


@contextmanager
def in_one_line() -> Iterator[None]:
    """Context manager that turns errors of driver, compiler or torch into NoRoomError or DeviceError, of one line.

    NoRoomError means that memory is exhausted: torch.OutOfMemoryError, or an error whose text says so.
    """
    try:
        yield
    except DeviceError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        if type(error).__name__ == "OutOfMemoryError" or any(sign in text for sign in _NO_ROOM):
            raise NoRoomError(text) from error
        raise DeviceError(
            "the GPU",
            "must run this metric's kernels",
            f"{type(error).__name__}: {text[:200]}",
            'Check it with nvidia-smi, or use backend "cpu".',
        ) from error


def upload(array: np.ndarray) -> Any:
    """Copy an array to the current device and return the copy; an empty array becomes one of lengths of at least 1."""
    from numba import cuda

    if array.size == 0:  # an empty array cannot be copied
        array = np.zeros([max(n, 1) for n in array.shape], array.dtype)
    with in_one_line():
        return cuda.to_device(np.ascontiguousarray(array))


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Return an uninitialised array on the current device."""
    from numba import cuda

    with in_one_line():
        return cuda.device_array(shape, dtype)


def filled(shape: int | tuple[int, ...], value: int, dtype: Any) -> Any:
    """Return an array on the current device with `value` everywhere."""
    return upload(np.full(shape, value, dtype))


def download(array: Any) -> np.ndarray:
    """Return a copy on the host of an array on a device, after all kernels that were launched before have ended."""
    with in_one_line():
        return array.copy_to_host()


def launch(kernel: Any, grid: tuple[int, int], *args: Any) -> None:
    """Start a CUDA kernel with arguments `args` on a grid, (x, y), of blocks of `WARPS` warps.

    It may still run when this function returns.
    """
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a single query has few blocks
    with in_one_line():
        kernel[grid, (LANES, WARPS)](*args)


def release_unused() -> None:
    """Release the GPU memory that torch caches but does not use, so that Numba can allocate it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def free_bytes() -> float:
    """Return how many bytes the kernels may use on the current device: a fixed share of its free memory."""
    from numba import cuda

    with in_one_line():
        # The simulator reports no memory.
        return SHARE_OF_MEMORY * min(cuda.current_context().get_memory_info().free, 1 << 50)


def n_blocks() -> int:
    """Return how many CUDA blocks to launch so that every multiprocessor of the current device is busy."""
    from numba import cuda

    with in_one_line():
        # The simulator has no such attribute.
        return BLOCKS_PER_PROCESSOR * getattr(cuda.current_context().device, "MULTIPROCESSOR_COUNT", 1)


def devices(library: str) -> list[AbstractContextManager]:
    """Return a context manager for each GPU, which makes it the current device of `library` ("numba" or "torch").

    Where torch finds none, there is one that does nothing.
    """
    if library == "torch":
        import torch

        return [torch.cuda.device(i) for i in range(torch.cuda.device_count())] or [nullcontext()]
    from numba import cuda

    with in_one_line():
        return list(cuda.gpus)


# ---- sharing and keeping ---------------------------------------------------------------------------------------------


def share(library: str, n: int, work: Callable[[int, int, int], None]) -> None:
    """Divide n queries among the GPUs and call ``work(device, first, last)`` for each share, queries first .. last - 1.

    With several GPUs each call has a thread of its own; with one GPU the caller's thread does the work. The GPU is the
    current device of `library`. The error of the first device that failed is raised after all have ended.
    """
    contexts = devices(library)[: max(n, 1)]
    edges = np.linspace(0, n, len(contexts) + 1).astype(int).tolist()

    def run(i: int) -> None:
        """Call `work` for the i-th share, with the i-th GPU as the current one."""
        with contexts[i]:
            work(i, edges[i], edges[i + 1])

    if len(contexts) == 1:
        run(0)
        return
    with ThreadPoolExecutor(len(contexts)) as pool:
        for done in [pool.submit(run, i) for i in range(len(contexts))]:
            done.result()


def resident(owner: Any, name: str, make: Callable[[], Any]) -> Any:
    """Return data on a device, named `name` (data and device), which `make` copies there and returns at the first call.

    They are kept until `owner`, an array that lives as long as an opened representation, is deleted. So each search of
    an opened index uses the copy that the first one made.
    """
    key = id(owner), name
    with _MAKING.setdefault(key, threading.Lock()):
        if key not in _RESIDENT:
            _RESIDENT[key] = make()
            for of_key in (_RESIDENT, _MAKING):
                weakref.finalize(owner, of_key.pop, key, None).atexit = False
        return _RESIDENT[key]


def is_resident(owner: Any, name: str) -> bool:
    """Return whether `resident` keeps data on a device under this owner and name."""
    return (id(owner), name) in _RESIDENT


def forget(owner: Any, name: str) -> None:
    """Delete the data that `resident` keeps on a device under this owner and name."""
    _RESIDENT.pop((id(owner), name), None)
