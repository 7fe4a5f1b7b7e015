"""Access to GPUs: availability, memory, launches and error messages. No other module asks for a device.

Numba's CUDA target runs the kernels over sets and sequences, torch the products of vectors.
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

from metric_oracle.errors import BackendError, install_command
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
    """A device has no memory left."""


class ByLibrary:
    """Base of the backends that use a GPU through a library."""

    library: ClassVar[str]

    def lacking(self) -> str:
        """Return why no GPU can be used; an empty string if one can."""
        return lacking(self.library)


class OnDevice(ByLibrary):
    """Base of GPU backends that take all queries in one call and keep no state on the host."""

    capabilities: ClassVar[Capabilities] = Capabilities(batched=True)

    def new_workspace(self, corpus: Any) -> Any:
        """Return None: threads of the host need no workspace."""
        return None


# ---- availability ---------------------------------------------------------------------------------------------------


def lacking(library: str) -> str:
    """Return why a library cannot use a GPU; an empty string if it can.

    Parameters
    ----------
    library : {"numba", "torch", "triton"}
    """
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
    """Return what the NVIDIA driver lacks; an empty string if all devices have at least this compute capability."""
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
    """Have torch sum products of float16 and float32 in float32, whatever the settings of the process are.

    The setting holds for the process: the first of several threads makes it, the last one restores it.
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
    """Set how torch multiplies float16 and float32, the latter by default in full; return the former settings."""
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
    """Return FAISS if it is installed, built for GPUs and detects one, else None."""
    try:
        import faiss
    except ImportError:
        return None
    return faiss if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0 else None


# ---- numba -----------------------------------------------------------------------------------------------------------


@contextmanager
def in_one_line() -> Iterator[None]:
    """Convert errors of the driver, the compiler or torch into errors of one line.

    Raises
    ------
    NoRoomError
        If memory is exhausted: torch.OutOfMemoryError, or an error that names it.
    DeviceError
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
            argument="the GPU",
            rule="must run this metric's kernels",
            value=f"{type(error).__name__}: {text[:200]}",
            step='Check it with nvidia-smi, or use backend "cpu".',
        ) from error


def upload(array: np.ndarray) -> Any:
    """Copy an array to the device."""
    from numba import cuda

    if array.size == 0:  # an empty array cannot be copied
        array = np.zeros([max(n, 1) for n in array.shape], array.dtype)
    with in_one_line():
        return cuda.to_device(np.ascontiguousarray(array))


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Return an uninitialised array on the device."""
    from numba import cuda

    with in_one_line():
        return cuda.device_array(shape, dtype)


def filled(shape: int | tuple[int, ...], value: int, dtype: Any) -> Any:
    """Return an array on the device with one value everywhere."""
    return upload(np.full(shape, value, dtype))


def download(array: Any) -> np.ndarray:
    """Copy an array from the device, after everything that was launched before."""
    with in_one_line():
        return array.copy_to_host()


def launch(kernel: Any, grid: tuple[int, int], *args: Any) -> None:
    """Start a kernel with blocks of `WARPS` warps; it may still run on return."""
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a single query has few blocks
    with in_one_line():
        kernel[grid, (LANES, WARPS)](*args)


def release_unused() -> None:
    """Release the memory that torch caches, which Numba cannot use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def free_bytes() -> float:
    """Return the free memory of the current device in bytes."""
    from numba import cuda

    with in_one_line():
        # The simulator reports no memory.
        return SHARE_OF_MEMORY * min(cuda.current_context().get_memory_info().free, 1 << 50)


def n_blocks() -> int:
    """Return how many blocks keep the current device busy."""
    from numba import cuda

    with in_one_line():
        # The simulator has no such attribute.
        return BLOCKS_PER_PROCESSOR * getattr(cuda.current_context().device, "MULTIPROCESSOR_COUNT", 1)


def devices(library: str) -> list[AbstractContextManager]:
    """Return a context for each GPU, in which it is the current one."""
    if library == "torch":
        import torch

        return [torch.cuda.device(i) for i in range(torch.cuda.device_count())] or [nullcontext()]
    from numba import cuda

    with in_one_line():
        return list(cuda.gpus)


# ---- sharing and keeping ---------------------------------------------------------------------------------------------


def share(library: str, n: int, work: Callable[[int, int, int], None]) -> None:
    """Divide n queries among the GPUs and call `work(device, first, last)` in a thread for each.

    Raises
    ------
    DeviceError
        The error of the first device that failed, after all have ended.
    """
    contexts = devices(library)[: max(n, 1)]
    edges = np.linspace(0, n, len(contexts) + 1).astype(int).tolist()

    def run(i: int) -> None:
        with contexts[i]:
            work(i, edges[i], edges[i + 1])

    if len(contexts) == 1:
        run(0)
        return
    with ThreadPoolExecutor(len(contexts)) as pool:
        for done in [pool.submit(run, i) for i in range(len(contexts))]:
            done.result()


def resident(owner: Any, name: str, make: Callable[[], Any]) -> Any:
    """Return the data that `make` copied to a device: once for each owner and name, and for the life of the owner.

    Parameters
    ----------
    owner : ndarray
        An array of an opened representation, which lives as long as the representation.
    name : str
        Name of the data and the device.
    """
    key = id(owner), name
    with _MAKING.setdefault(key, threading.Lock()):
        if key not in _RESIDENT:
            _RESIDENT[key] = make()
            for of_key in (_RESIDENT, _MAKING):
                weakref.finalize(owner, of_key.pop, key, None).atexit = False
        return _RESIDENT[key]


def is_resident(owner: Any, name: str) -> bool:
    """Return whether `resident` holds data for an owner."""
    return (id(owner), name) in _RESIDENT


def forget(owner: Any, name: str) -> None:
    """Free the data that `resident` holds for an owner."""
    _RESIDENT.pop((id(owner), name), None)
