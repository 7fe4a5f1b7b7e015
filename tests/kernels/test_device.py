"""What is said where there is no GPU, and the searches through torch and FAISS; nothing here needs a device."""

import ctypes
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from metric_oracle.base.errors import ExactnessError, install_command
from metric_oracle.kernels import _device
from metric_oracle.kernels.chexbert_labels import cpu as labels_cpu
from metric_oracle.kernels.chexbert_labels import cuda as labels_cuda
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.cosine import cpu as cosine_cpu
from metric_oracle.kernels.cosine import cuda as cosine_cuda
from metric_oracle.kernels.topk.reference import select

WIDTH = 24


class Driver:
    """A stand-in for libcuda."""

    def __init__(self, code=0, n=0, capabilities=((9, 0),) * 2):
        self.code, self.n, self.capabilities = code, n, capabilities

    def cuInit(self, flags):  # noqa: N802 - the driver's name
        return self.code

    def cuDeviceGetCount(self, pointer):  # noqa: N802
        pointer._obj.value = self.n
        return 0

    def cuDeviceGet(self, pointer, i):  # noqa: N802
        pointer._obj.value = i

    def cuDeviceGetAttribute(self, pointer, attribute, device):  # noqa: N802
        pointer._obj.value = self.capabilities[device.value][attribute - 75]


def install(monkeypatch, driver) -> None:
    """Let a driver be found, and every library that would use it."""

    def load(name):
        assert name == "libcuda.so.1"
        if driver is None:
            raise OSError
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(_device, "find_spec", lambda name: name)
    monkeypatch.setattr(_device.config, "ENABLE_CUDASIM", 0)
    monkeypatch.setattr(np, "__version__", "2.4.6")
    version = SimpleNamespace(cuda="13.0")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=version, __version__="2.13.0"))


@pytest.mark.parametrize("library", ["numba", "torch"])
@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (None, "no NVIDIA driver found"),
        (Driver(n=0), "no CUDA device found"),
        (Driver(code=100), "no CUDA device found"),
        (Driver(code=999), "the NVIDIA driver answered with error 999"),
        (Driver(n=2), ""),
    ],
)
def test_a_driver_is_asked(monkeypatch, library, driver, reason):
    install(monkeypatch, driver)
    assert _device.lacking(library) == reason


def test_old_devices_are_told(monkeypatch):
    install(monkeypatch, Driver(n=2, capabilities=((9, 0), (7, 0))))
    assert _device.lacking("numba") == "GPU 1 has compute capability 7.0, below 7.5"
    assert _device.lacking("triton") == "GPU 1 has compute capability 7.0, below 8.0"
    assert _device.lacking("torch") == ""
    install(monkeypatch, Driver(n=1, capabilities=((7, 5),)))
    assert _device.lacking("numba") == ""


def test_libraries_are_asked(monkeypatch):
    install(monkeypatch, Driver(n=1))
    monkeypatch.setattr(np, "__version__", "2.5.0")
    assert _device.lacking("numba") == 'numba-cuda does not work with NumPy 2.5.0 (pip install "numpy<2.5")'
    monkeypatch.setattr(_device, "find_spec", lambda name: None)
    assert _device.lacking("numba") == f"numba-cuda is not installed ({install_command('gpu')})"
    cpu_only = SimpleNamespace(version=SimpleNamespace(cuda=None), __version__="2.13.0+cpu")
    monkeypatch.setitem(sys.modules, "torch", cpu_only)
    assert _device.lacking("torch") == "this PyTorch, 2.13.0+cpu, was built without CUDA"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert _device.lacking("torch") == "PyTorch is not installed (pip install torch)"
    assert labels_cuda.Backend().lacking()


def test_a_device_that_stays_is_shared_out(monkeypatch):
    done = []
    monkeypatch.setattr(_device, "devices", lambda library: [nullcontext()] * 4)
    _device.share("numba", 10, lambda *run: done.append(run))
    assert sorted(done) == [(0, 0, 2), (1, 2, 5), (2, 5, 7), (3, 7, 10)]
    done.clear()
    _device.share("numba", 2, lambda *run: done.append(run))
    assert sorted(done) == [(0, 0, 1), (1, 1, 2)]
    done.clear()
    _device.share("numba", 0, lambda *run: done.append(run))
    assert done == [(0, 0, 0)]


# ---- CheXbert --------------------------------------------------------------------------------------------------------

torch = pytest.importorskip("torch")


class Vectors:
    """An opened representation, with repeated rows."""

    def __init__(self, vectors, seed=0):
        self.vectors = vectors
        n = len(vectors)
        rng = np.random.default_rng(seed)
        unit = rng.permutation(np.r_[np.arange(n), rng.integers(0, n, n // 2)])
        self.row_ptr = np.r_[0, np.cumsum(np.bincount(unit, minlength=n))]
        self.row_id = np.argsort(unit, kind="stable").astype(np.int64)


def unit_vectors(rng, n, kind):
    """Return distinct unit vectors: "few" in tight clusters, so that float32 cannot order them."""
    wide = rng.standard_normal((n, WIDTH))
    if kind == "few":
        wide = wide[rng.integers(0, 3, n)] + 1e-7 * rng.standard_normal((n, WIDTH))
    return (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)


def answers(search, index, vectors, k) -> Answers:
    n = len(vectors)
    found = Answers(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64), np.full(n, -np.inf))
    search(index, SimpleNamespace(vectors=vectors), range(n), k, found, None)
    return found


def assert_same(one: Answers, two: Answers) -> None:
    for a, b in zip(one[:3], two[:3], strict=True):
        np.testing.assert_array_equal(a, b)


def all_products(index, queries, n):
    """Do what FAISS does, with every unit."""
    products = queries @ index.vectors.T
    order = np.argsort(-products, axis=1, kind="stable")[:, :n]
    return np.take_along_axis(products, order, axis=1), order


@pytest.fixture(params=["random", "few"])
def embeddings(request):
    rng = np.random.default_rng(4)
    vectors = unit_vectors(rng, 150, request.param)
    vectors.flags.writeable = False
    return Vectors(vectors), np.vstack([unit_vectors(rng, 7, request.param), vectors[:2], -vectors[:1]])


def test_chexbert(embeddings, cuda_lane, monkeypatch):
    cuda_lane(cosine_cuda)
    monkeypatch.setattr(_device, "faiss_on_gpu", lambda: None)
    index, queries = embeddings
    whole = Vectors(index.vectors)
    for k in (1, 5, 40, len(index.row_id)):
        expected = answers(by_brute_force, whole, queries, k)
        assert_same(answers(cosine_cuda.Backend().search, index, queries, k), expected)


def by_brute_force(index, encoded, queries, k, found, work):
    """Leave nothing to a bound."""
    units, scores = np.arange(len(index.vectors)), np.empty(len(index.vectors))
    for q in queries:
        cosine_cpu.score_documents(units, encoded.vectors[q], index.vectors, scores)
        found.rows[q], found.scores[q], found.ties[q] = select(units, scores, index.row_ptr, index.row_id, k)


def test_products_are_halved_where_memory_ends(embeddings, cuda_lane, monkeypatch):
    cuda_lane(cosine_cuda)
    monkeypatch.setattr(_device, "faiss_on_gpu", lambda: None)
    index, queries = embeddings
    expected = answers(cosine_cuda.Backend().search, index, queries, 3)
    topk, tried = torch.Tensor.topk, []

    def full(product, *args, **options):
        tried.append(len(product))
        if len(product) > 2:
            raise torch.OutOfMemoryError
        return topk(product, *args, **options)

    monkeypatch.setattr(torch.Tensor, "topk", full)
    assert_same(answers(cosine_cuda.Backend().search, index, queries, 3), expected)
    assert tried[:3] == [10, 5, 2]
    monkeypatch.setattr(cosine_cuda, "_put", lambda array: exec("raise torch.OutOfMemoryError", {"torch": torch}))
    rule = r"^the GPU must have room for the embeddings, 0\.00 GB, and one query; got too little\. "
    with pytest.raises(_device.DeviceError, match=rule):
        answers(cosine_cuda.Backend().search, Vectors(index.vectors.copy()), queries, 3)


def test_what_torch_raises_is_one_line(embeddings, cuda_lane, monkeypatch):
    cuda_lane(cosine_cuda)
    monkeypatch.setattr(_device, "faiss_on_gpu", lambda: None)
    index, queries = embeddings
    assert_device_error(monkeypatch, "topk", lambda: answers(cosine_cuda.Backend().search, index, queries, 3))


def assert_device_error(monkeypatch, method, search) -> None:
    """Let a method of tensors fail as cuBLAS or the driver do."""
    for text, rule in (
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling\n`cublasCreate(handle)`", "have room for .*one query"),
        ("CUDA error: an illegal memory access was\nencountered", "run this metric's kernels; got RuntimeError: CUDA "),
    ):

        def fail(*args, text=text, **options):
            raise RuntimeError(text)

        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, method, fail)
            with pytest.raises(_device.DeviceError, match=f"^the GPU must {rule}.*$"):
                search()


def test_memory_that_torch_keeps_is_given_back(monkeypatch):
    called = []
    gpu = SimpleNamespace(is_available=lambda: True, empty_cache=lambda: called.append(1))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=gpu))
    _device.release_unused()
    assert called == [1]
    gpu.is_available = lambda: False
    monkeypatch.delitem(sys.modules, "torch")
    _device.release_unused()
    assert called == [1]


def test_faiss_serves_where_it_is_built_for_gpus(embeddings, monkeypatch):
    index, queries = embeddings
    asked = []

    def search(vectors, n):
        asked.append(n)
        return all_products(index, vectors, n)

    copies = []
    faiss = SimpleNamespace(
        StandardGpuResources=None,
        get_num_gpus=lambda: 1,
        IndexFlatIP=lambda width: ("empty", width),
        index_cpu_to_all_gpus=lambda empty: SimpleNamespace(search=search, add=lambda x: copies.append((empty, x))),
    )
    monkeypatch.setitem(sys.modules, "faiss", faiss)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not cosine_cuda.Backend().lacking()
    expected = answers(by_brute_force, index, queries, 2)
    assert_same(answers(cosine_cuda.Backend().search, index, queries, 2), expected)
    assert_same(answers(cosine_cuda.Backend().search, index, queries, 2), expected)
    assert asked[0] == 32
    assert copies == [(("empty", WIDTH), index.vectors)]
    monkeypatch.setattr(cosine_cuda, "FAISS_MOST", 31)
    rule = (
        r"^PyTorch must be there for more than 31 neighbours on a GPU; got 32 and FAISS alone, PyTorch is "
        r'not installed .*\. Install it, ask for fewer with k, or use backend "cpu"\.$'
    )
    with pytest.raises(_device.DeviceError, match=rule):
        answers(cosine_cuda.Backend().search, index, queries, 2)


def test_faiss_for_processors_is_left_alone():
    if hasattr(pytest.importorskip("faiss"), "StandardGpuResources"):
        pytest.skip("this FAISS is built for GPUs")
    assert _device.faiss_on_gpu() is None


def test_arithmetic_that_was_chosen_by_either_interface_comes_back():
    """The older one of torch raises where the newer one was used."""
    flags = torch.backends.cuda.matmul
    for choose in (
        lambda: setattr(flags, "fp32_precision", "tf32"),
        lambda: torch.set_float32_matmul_precision("high"),
    ):
        before = flags.fp32_precision
        choose()
        try:
            with _device.plain_arithmetic("cpu"):
                assert flags.fp32_precision == "ieee"
            assert flags.fp32_precision == "tf32"
        finally:
            torch.set_float32_matmul_precision("highest")
            flags.fp32_precision = before


# ---- labels ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def labels():
    rng = np.random.default_rng(5)
    vectors = np.unique(rng.choice((-1, 0, 0, 1), (90, 14)).astype(np.int8), axis=0)
    vectors = np.vstack([vectors, np.zeros((1, 14), np.int8)])
    vectors.flags.writeable = False
    return Vectors(vectors), np.vstack([vectors[3:9], -vectors[4:6], np.zeros((1, 14), np.int8)])


def test_labels(labels, cuda_lane, monkeypatch):
    cuda_lane(labels_cuda)
    index, queries = labels
    corpus, backend = labels_cpu.LabelVectors(index.vectors, index.row_ptr, index.row_id), labels_cpu.Backend()

    def on_cpu(_, *asked):
        backend.search(corpus, *asked[:-1], backend.new_workspace(corpus))

    for cells in (labels_cuda.CELLS, 1, 200):
        monkeypatch.setattr(labels_cuda, "CELLS", cells)
        for k in (1, 6, 50, len(index.row_id)):
            expected = answers(on_cpu, index, queries, k)
            assert_same(answers(labels_cuda.Backend().search, index, queries, k), expected)


def test_what_torch_raises_of_labels_is_one_line(labels, cuda_lane, monkeypatch):
    cuda_lane(labels_cuda)
    index, queries = labels
    assert_device_error(monkeypatch, "topk", lambda: answers(labels_cuda.Backend().search, index, queries, 1))


@pytest.mark.parametrize("dropped", [False, True])
def test_labels_that_a_device_scores_otherwise_are_caught(labels, cuda_lane, monkeypatch, dropped):
    cuda_lane(labels_cuda)
    index, queries = labels
    sqrt = torch.sqrt

    def otherwise(values):
        norms = sqrt(values)
        if dropped:  # most reports seem far from every query
            norms[:, : norms.shape[1] * 3 // 4] *= 100
        return norms if dropped else norms * 1.001

    monkeypatch.setattr(torch, "sqrt", otherwise)
    rule = "no dropped candidate must score" if dropped else "the bound of stage 'float64' must not lie below"
    with pytest.raises(ExactnessError, match=f"^{rule}"):
        answers(labels_cuda.Backend().search, index, queries, 1)


def test_scores_are_halved_where_memory_ends(labels, cuda_lane, monkeypatch):
    cuda_lane(labels_cuda)
    index, queries = labels
    expected = answers(labels_cuda.Backend().search, index, queries, 3)
    sqrt, least, tried = torch.sqrt, [4], []

    def full(values):
        tried.append(len(values))
        if len(values) > least[0]:
            raise torch.OutOfMemoryError
        return sqrt(values)

    monkeypatch.setattr(torch, "sqrt", full)
    assert_same(answers(labels_cuda.Backend().search, index, queries, 3), expected)
    assert tried == [9, 4, 4, 1]
    least[0] = 0
    rule = r"^the GPU must have room for the scores of one query; got too little\. Free its memory, "
    with pytest.raises(_device.DeviceError, match=rule):
        answers(labels_cuda.Backend().search, index, queries, 3)


# ---- what stays on a device ------------------------------------------------------------------------------------------


def test_threads_that_want_the_same_thing_wait_for_the_one_that_makes_it():
    class Owner:
        pass

    made, begin = [], threading.Barrier(8)

    def make():
        time.sleep(0.05)
        made.append(1)
        return object()

    owner = Owner()

    def ask(name):
        begin.wait()
        return _device.resident(weak(), name, make)

    weak = weakref.ref(owner)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, ["a", "b"] * 4))
    assert len(made) == 2
    assert len(set(map(id, found))) == 2
    key = id(owner), "a"
    assert _device.is_resident(owner, "a")
    del owner
    assert key not in _device._RESIDENT
    assert key not in _device._MAKING


def test_no_faiss_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert _device.faiss_on_gpu() is None
