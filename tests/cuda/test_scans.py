"""The kernels written with Numba's CUDA target, launched: in its simulator with tiny blocks, or on a GPU at real sizes.

    NUMBA_ENABLE_CUDASIM=1 python -m pytest -m gpu tests/cuda tests/kernels/test_search.py
    ORACLE_REQUIRE_GPU=1 python -m pytest -m gpu

Answers must be those of the CPU search, bit for bit; the general suite compares every metric with the plain scorer.
"""

import gc
import random
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from numba import config

from metric_oracle.base.errors import ExactnessError
from metric_oracle.indexes.ngrams import build_ngrams
from metric_oracle.kernels import _device, _overlap_cuda, _scan
from metric_oracle.kernels.bleu import cpu as bleu_cpu
from metric_oracle.kernels.bleu import cuda as bleu_cuda
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.rouge_l import cpu as rouge_cpu
from metric_oracle.kernels.rouge_l import cuda as rouge_cuda
from metric_oracle.metrics import get_metric
from support import as_opened

SIMULATED = bool(config.ENABLE_CUDASIM)
pytestmark = [
    pytest.mark.gpu,
    # Additions of the longest common subsequence are meant to lose their carry.
    pytest.mark.filterwarnings("ignore:overflow encountered in scalar"),
]
KERNELS = {"bleu": (bleu_cpu, bleu_cuda), "rouge-l": (rouge_cpu, rouge_cuda)}
OPTIONS = {"bleu": {"order": 2, "coco": False}, "rouge-l": {}}
KINDS = {"bleu": "ngrams", "rouge-l": "words"}
N_UNITS, N_QUERIES = (33, 3) if SIMULATED else (30_000, 300)
both = pytest.mark.parametrize("metric", KERNELS)


@pytest.fixture(autouse=True)
def lane(cuda_lane):
    cuda_lane(bleu_cuda)


class Reports:
    def __init__(self, texts):
        self.texts = texts


def make_texts(rng: random.Random, n: int, lengths: tuple[int, ...], vocabulary: int, more: tuple[str, ...] = ()):
    words = [*(f"w{i}" for i in range(vocabulary)), *more]
    texts = [" ".join(rng.choices(words, k=rng.choice(lengths))) for _ in range(n)]
    return [*texts, *rng.choices(texts, k=n // 3)]  # repeated rows


def make_index(metric: str, texts: list[str]):
    distinct = list(dict.fromkeys(texts))
    of_row = np.array([distinct.index(text) for text in texts]) if len(texts) < 1000 else None
    if of_row is None:
        place = {text: i for i, text in enumerate(distinct)}
        of_row = np.array([place[text] for text in texts])
    return as_opened(build_ngrams(KINDS[metric], distinct, of_row))


def make_world(
    metric: str, seed: int, lengths=(0, 1, 2, 3, 5, 8, 13), vocabulary: int = 4, asked=None, n_queries: int = N_QUERIES
):
    rng = random.Random(seed)
    texts = make_texts(rng, N_UNITS, lengths, vocabulary, ("corpus-only",))
    index = make_index(metric, texts)
    own = make_texts(rng, n_queries, asked or lengths, vocabulary, ("query-only",))
    return index, index.encode(Reports([*own, "", "query-only", texts[0]]))


def found_by(kernel, index, encoded, k: int, **options) -> Answers:
    n = int(encoded.document_of_row.max()) + 1
    found = Answers(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64), np.full(n, -np.inf))
    backend = kernel.Backend(**options)
    metric = get_metric("rouge-l" if kernel in KERNELS["rouge-l"] else f"bleu-{options['order']}")
    corpus = index.arrays(metric, encoded)
    backend.search(corpus, index.translate(metric, encoded), range(n), k, found, backend.new_workspace(corpus))
    return found


def assert_same(metric: str, index, encoded, ks=(3,), **options) -> None:
    cpu, cuda = KERNELS[metric]
    options = options or OPTIONS[metric]
    for k in ks:
        k = k or len(index.row_id)
        expected = found_by(cpu, index, encoded, k, **options)
        for one, two in zip(found_by(cuda, index, encoded, k, **options)[:3], expected[:3], strict=True):
            np.testing.assert_array_equal(one, two)


# ---- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coco", [False, True])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_bleu(order, coco):
    assert_same("bleu", *make_world("bleu", order), ks=(2, None), order=order, coco=coco)


@pytest.mark.parametrize("vocabulary", [1, 5, 40])
def test_rouge_l(vocabulary):
    assert_same("rouge-l", *make_world("rouge-l", vocabulary, vocabulary=vocabulary), ks=(2, None))


@pytest.mark.parametrize(("asked", "vocabulary"), [((63, 64, 65), 3), ((64, 128, 129, 150, 7), 60), ((200, 310), 2)])
def test_long_queries_of_rouge_l(asked, vocabulary):
    # 64 known words are the most that one block of bits holds; words that the corpus lacks take no place.
    world = make_world("rouge-l", 50, lengths=(1, 6, 30, 70), vocabulary=vocabulary, asked=asked)
    assert_same("rouge-l", *world, ks=(5,))


@both
def test_one_document_and_one_query(metric):
    index = make_index(metric, ["a b c b"])
    for text in ("a b", "c", "", "unknown", "a b c b"):
        assert_same(metric, index, index.encode(Reports([text])), ks=(1,))


@both
@pytest.mark.parametrize("texts", [[""], ["", "", "a"], ["a"] * 9, ["a a a", "a a", "a", "a a"]])
def test_corpora_of_next_to_nothing(metric, texts):
    index = make_index(metric, texts)
    assert_same(metric, index, index.encode(Reports(["a", "a a b", "", "a a a a"])), ks=(2, None))


@both
def test_more_answers_than_a_tile_holds_documents(metric):
    tile = _overlap_cuda.WORDS // 2 if metric == "bleu" else rouge_cuda.TILE
    index, encoded = make_world(metric, 7)
    k = min(tile + 3, len(index.row_id))
    assert k > tile
    assert_same(metric, index, encoded, ks=(k,))


@both
def test_every_size_around_that_of_a_tile(metric):
    rng = random.Random(8)
    tile = _overlap_cuda.WORDS // 2 if metric == "bleu" else rouge_cuda.TILE
    words = [f"w{i}" for i in range(12)]
    for n in (tile - 1, tile, tile + 1, 2 * tile + 1):
        texts = [" ".join(rng.choices(words, k=6)) + f" n{i}" for i in range(n)]
        index = make_index(metric, texts)
        assert_same(metric, index, index.encode(Reports(texts[-1:])), ks=(2,))


@both
def test_a_device_may_round_otherwise(metric, monkeypatch):
    if not SIMULATED:
        pytest.skip("a compiled kernel cannot be made to round otherwise")
    module, name = (bleu_cuda, "bleu") if metric == "bleu" else (rouge_cuda, "rouge_l")
    plain = getattr(module, name)
    index, encoded = make_world(metric, 9, n_queries=1)
    assert_same(metric, index, encoded)  # compiles what runs on the host with the plain score
    noise = random.Random(10)
    # Both far enough apart that bins tell: an error of 2 ** -6 and the margin for it.
    monkeypatch.setattr(module, name, lambda *args: plain(*args) * (1 + noise.choice((-1, 1)) * 2.0**-6))
    monkeypatch.setattr(_scan, "BINS", 1 << 8)
    monkeypatch.setattr(_scan, "MARGIN", 1 + 2.0**-4)
    monkeypatch.setattr(_overlap_cuda, "WORDS", 2)  # a tile for each document: its peak has to reach the bin too
    monkeypatch.setattr(rouge_cuda, "TILE", 1)
    assert_same(metric, index, encoded, ks=(1, 2, 4))


@both
@pytest.mark.parametrize("dropped", [False, True])
def test_a_bound_below_a_score_is_caught(metric, monkeypatch, dropped):
    if not SIMULATED:
        pytest.skip("a compiled kernel cannot be made to score otherwise")
    module, name = (bleu_cuda, "bleu") if metric == "bleu" else (rouge_cuda, "rouge_l")
    plain, bin_of = getattr(module, name), _scan.bin_of
    rng = random.Random(20)
    texts = [" ".join(rng.choices("abcdefgh", k=6)) for _ in range(40)]
    index = make_index(metric, texts)
    encoded = index.encode(Reports(texts[1:4]))  # of 40 documents, the witness of query q is document q + 1: itself
    assert_same(metric, index, encoded, ks=(1,))  # compiles what runs on the host with the plain score

    if dropped:  # the best reports fall into the lowest bin: the witnesses tell
        monkeypatch.setattr(_scan, "bin_of", lambda score: bin_of(score if score < 0.3 else 0.0))
    else:  # all reports fall alike, and the best are recorded
        monkeypatch.setattr(module, name, lambda *args: plain(*args) * 0.999)
    message = "no dropped candidate must score" if dropped else "the bound of stage 'scores of the GPU' must not lie"
    with pytest.raises(ExactnessError, match=message):
        found_by(KERNELS[metric][1], index, encoded, 1, **OPTIONS[metric])


def test_bins_keep_order():
    if not SIMULATED:
        pytest.skip("bin_of is compiled into kernels")
    rng = np.random.default_rng(11)
    scores = np.sort(np.r_[0.0, 1.0, 1 + 1e-12, rng.random(500), rng.random(500) ** 20, 5e-324, 1e-60])
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(_scan, "BINS", 2048)
        bins = [_scan.bin_of.fn(float(s)) for s in scores]
    assert bins == sorted(bins)
    assert (bins[0], bins[-1]) == (0, 2047)
    assert len(set(bins)) > 500


# ---- memory ----------------------------------------------------------------------------------------------------------


@both
def test_records_that_find_no_room_are_written_again(metric, monkeypatch):
    monkeypatch.setattr(_scan, "RECORDS", 1)
    index, encoded = make_world(metric, 12, vocabulary=1)  # ties everywhere
    runs = []
    launch = _device.launch
    monkeypatch.setattr(_device, "launch", lambda kernel, *rest: runs.append(kernel) or launch(kernel, *rest))
    assert_same(metric, index, encoded, ks=(2,))
    assert len(runs) == 4  # scores, bins, records and once more


@both
@pytest.mark.parametrize("share", [0.5, 0.15])
def test_a_corpus_beyond_the_memory_goes_through_in_pieces(metric, monkeypatch, share):
    index, encoded = make_world(metric, 13)
    scan = scan_of(metric, index, encoded)
    total = scan.document_bytes() * (len(index.row_ptr) - 1)
    monkeypatch.setattr(_device, "free_bytes", lambda: share * total)
    pieces = []
    put = type(scan).put_documents
    monkeypatch.setattr(type(scan), "put_documents", lambda self, *piece: pieces.append(piece) or put(self, *piece))
    assert_same(metric, index, encoded, ks=(6,))
    assert len(set(pieces)) >= 1 / share
    assert not _device.is_resident(index, f"{scan.name} on 0")


def scan_of(metric: str, index, encoded):
    """Return the scan that a search makes."""
    corpus, batch = index.arrays(get_metric(metric), encoded), index.translate(get_metric(metric), encoded)
    if metric == "rouge-l":
        return rouge_cuda.SequenceScan(corpus, batch)
    families = _overlap_cuda.ComparedFamilies(0, 2, 0)
    return _overlap_cuda.OverlapScan(corpus, batch.queries, families, bleu_cuda.scan_bleu, None)


@both
def test_batches_and_then_pieces_are_halved_where_memory_ends(metric, monkeypatch):
    index, encoded = make_world(metric, 14)
    empty, upload = _device.empty, _device.upload
    monkeypatch.setattr(_device, "empty", lambda shape, dtype: no_room(np.prod(shape) > 200) or empty(shape, dtype))
    monkeypatch.setattr(_device, "upload", lambda array: no_room(array.size > 2500) or upload(array))
    monkeypatch.setattr(_scan, "RECORDS", 20)
    if not SIMULATED:
        pytest.skip("sizes are those of the simulator's corpus")
    assert_same(metric, index, encoded, ks=(2,))


def no_room(is_full) -> None:
    if is_full:
        msg = "[CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc"
        raise _device.NoRoomError(msg)


@both
def test_too_little_memory_is_said(metric, monkeypatch):
    index, encoded = make_world(metric, 15)
    tried = []
    monkeypatch.setattr(_device, "empty", lambda shape, dtype: tried.append(shape) or no_room(True))
    rule = r'^the GPU must have room for one query and a part of the corpus; got too little\. .*"cpu"\.$'
    with pytest.raises(_device.DeviceError, match=rule):
        found_by(KERNELS[metric][1], index, encoded, 1, **OPTIONS[metric])
    assert len(tried) > 5


@both
def test_the_corpus_goes_up_once_and_leaves_with_its_index(metric, monkeypatch):
    index, encoded = make_world(metric, 16)
    scan = type(scan_of(metric, index, encoded))
    uploads = []
    put = scan.put_documents
    monkeypatch.setattr(scan, "put_documents", lambda *args: uploads.append(1) or put(*args))
    before = len(_device._RESIDENT)
    for k in (1, 2, 3):
        found_by(KERNELS[metric][1], index, encoded, k, **OPTIONS[metric])
    assert len(uploads) == 1
    assert len(_device._RESIDENT) == before + 1
    del index, encoded
    gc.collect()
    assert len(_device._RESIDENT) == before


# ---- devices ---------------------------------------------------------------------------------------------------------


@both
def test_several_devices_share_the_queries(metric, monkeypatch):
    lock, used = threading.Lock(), set()
    launch = _device.launch

    def one_at_a_time(*args):
        used.add(threading.current_thread().name)
        with lock:  # the simulator runs one kernel at a time
            launch(*args)

    monkeypatch.setattr(_device, "launch", one_at_a_time)
    monkeypatch.setattr(_device, "devices", lambda library: [nullcontext()] * 3)
    index, encoded = make_world(metric, 18)
    assert_same(metric, index, encoded, ks=(3,))
    assert len(used) == 3
    alone = index.encode(Reports(["w1 w2"]))
    assert_same(metric, index, alone, ks=(3,))


@both
def test_a_device_that_fails_is_said(metric, monkeypatch):
    index, encoded = make_world(metric, 19)
    monkeypatch.setattr(_device, "devices", lambda library: [nullcontext()] * 2)

    def fail(kernel, *args):
        with _device.in_one_line():
            msg = "[700] Call to cuCtxSynchronize results in\nCUDA_ERROR_ILLEGAL_ADDRESS"
            raise RuntimeError(msg)

    monkeypatch.setattr(_device, "launch", fail)
    rule = (
        r"^the GPU must run this metric's kernels; got RuntimeError: \[700\] Call to cuCtxSynchronize "
        r'results in CUDA_ERROR_ILLEGAL_ADDRESS\. Check it with nvidia-smi, or use backend "cpu"\.$'
    )
    with pytest.raises(_device.DeviceError, match=rule):
        found_by(KERNELS[metric][1], index, encoded, 1, **OPTIONS[metric])
