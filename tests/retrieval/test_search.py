import random
import re
import sys
import threading
import time
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, ExactnessError, InputError
from metric_oracle.base.operating_system import memory_in_use
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes import store
from metric_oracle.indexes.shards import open_index
from metric_oracle.kernels import _device
from metric_oracle.kernels.bleu import cuda
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.topk.exclusion import NOTHING
from metric_oracle.metrics import METRICS, SEARCHED
from metric_oracle.retrieval import thread_pool
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.fall_back import most_frequent_row
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.retrieval.restrictions import ResultLists
from metric_oracle.retrieval.result_table import fill_zeros
from metric_oracle.verification.verify import put_most_frequent_first
from support import HANG, beside
from support.calls import Calls
from support.inputs import changed
from support.sequences import subsequence

LEXICAL = ("bleu-1", "bleu-2", "bleu-3", "bleu-4", "bleu-1:coco", "bleu:coco", "rouge-l")


def reports(*texts):
    return Reports([str(i) for i in range(len(texts))], list(texts), "test")


@pytest.fixture(scope="module")
def files(corpus):
    """Return the keyword arguments that name the files of each side."""
    return {side: {**beside(corpus, side), "encoder": "fake"} for side in ("train", "test")}


@pytest.fixture(scope="module")
def index(corpus, files, tmp_path_factory, fake_encoder):
    return build_index(mo.reports(corpus["train"], **files["train"]), tmp_path_factory.mktemp("index") / "I")


@pytest.fixture(scope="module")
def queries(corpus, files):
    return mo.reports(corpus["test"], **files["test"]).load()


# Answers


@pytest.mark.parametrize("metric", SEARCHED)
def test_every_metric_equals_the_reference_backend(index, queries, metric):
    fast = retrieve(index, queries, metric, k=7, threads=2)
    slow = retrieve(index, queries, metric, k=7, backend="reference")
    assert fast.table.equals(slow.table)
    shares = fast.signature.pop("stages", {"scored": 1.0})
    fast.signature.pop("closest_call", None)
    assert sum(shares.values()) == pytest.approx(1)
    assert fast.signature == {**slow.signature, "backend": "cpu"}


def test_answers_within_a_limit_of_memory(index, queries, monkeypatch):
    """Pages go back whenever the next block may need more than is left, and the answers do not depend on it."""
    released, held = [], [1.0e9]
    monkeypatch.setattr(thread_pool, "memory_in_use", lambda: held[0])
    monkeypatch.setattr(thread_pool, "release", lambda: (released.append(held[0]), held.__setitem__(0, 0.5e9)))
    free = retrieve(index, queries, "radcliq", k=3)
    kernel = import_module("metric_oracle.kernels.sum.cpu")
    find = kernel.Backend.search

    def growing(*arguments, **options):
        held[0] += 0.3e9
        return find(*arguments, **options)

    monkeypatch.setattr(kernel.Backend, "search", growing)
    limited = retrieve(index, queries, "radcliq", k=3, threads=1, options=SearchOptions(max_memory=1.5))
    assert limited.table.equals(free.table)
    assert len(queries.ids) > 8  # three blocks
    assert released == pytest.approx([1.3e9])
    monkeypatch.setattr(thread_pool, "release", lambda: None)
    match = (
        r"^retrieve: max_memory must be at least 0\.91 GB \(memory in use without mapped files\); got 0\.1\. "
        r"Allow more memory, or search fewer queries at once\.$"
    )
    held[0] = 0.9e9
    with pytest.raises(InputError, match=match):
        retrieve(index, queries, "bleu", options=SearchOptions(max_memory=0.1))


def test_the_last_blocks_of_queries_are_the_smallest(index, monkeypatch):
    kernel = import_module("metric_oracle.kernels.bleu.cpu")
    find, blocks = kernel.Backend.search, []

    def noting(self, corpus, batch, queries, *others):
        blocks.append((queries.start, queries.stop))
        find(self, corpus, batch, queries, *others)

    monkeypatch.setattr(kernel.Backend, "search", noting)
    retrieve(index, [f"effusion {i}" for i in range(2000)], "bleu", options=SearchOptions(threads=2))
    firsts, ends = zip(*sorted(blocks), strict=True)
    assert (firsts[0], ends[-1]) == (0, 2000)
    assert ends[:-1] == firsts[1:]
    sizes = np.diff([*firsts, 2000]).tolist()
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 128
    assert 32 in sizes[-6:]


def test_eight_threads_do_not_give_the_pages_back_for_ever(monkeypatch):
    """Once a block has shown what it takes, the guess for all threads does not count."""
    released, held = [], [0.1e9]
    monkeypatch.setattr(thread_pool, "memory_in_use", lambda: held[0])
    monkeypatch.setattr(thread_pool, "release", lambda: released.append(1))
    limit = thread_pool.MemoryLimit(1.0, 8)
    for _ in range(20):
        with limit.block():
            held[0] += 0.01e9
    assert held[0] == pytest.approx(0.3e9)
    assert released == []
    with limit.block(), limit.block():  # those under way may grow too
        held[0] = 0.985e9
    with limit.block():
        assert released == [1]


def test_what_one_block_took_is_not_forgotten_after_a_small_one(monkeypatch):
    released, held = [], [0.1e9]
    monkeypatch.setattr(thread_pool, "memory_in_use", lambda: held[0])
    monkeypatch.setattr(thread_pool, "release", lambda: released.append(1))
    limit = thread_pool.MemoryLimit(1.0, 1)
    with limit.block():
        held[0] += 0.3e9
    with limit.block():
        pass
    held[0] = 0.8e9
    assert released == []
    with limit.block():
        assert released == [1]


def test_overlapping_searches_leave_the_threads_of_blas_as_they_were():
    def blas_threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    thread_pool._blas.cache_clear()  # another test may have loaded a library since
    inside = []
    thread_pool._blas.cache_clear()  # another test may have loaded a library since it was asked

    def run(first: int) -> int:
        inside.append(blas_threads())
        if first == 0:  # another search begins before this one ends, and ends after it began
            thread_pool.run_blocks(lambda _: inside.append(blas_threads()) or 1, range(2), 1)
            inside.append(blas_threads())
        return 1

    with threadpool_limits(2, user_api="blas"):
        thread_pool.run_blocks(run, range(2), 1)
        assert inside == [{1}] * 5
        assert blas_threads() == {2}


@pytest.mark.parametrize("given", [{"threads": 2}, {"max_memory": 1.0}])
def test_what_a_batched_backend_would_ignore(index, queries, monkeypatch, given):
    monkeypatch.setattr(cuda.Backend, "lacking", lambda self: "")
    match = (
        rf"^retrieve: {next(iter(given))} must be left out for bleu-2 on backend 'cuda', which takes all queries at "
        r"once; got a value\. Leave out .*\.$"
    )
    with pytest.raises(InputError, match=match):
        retrieve(index, queries, "bleu", options=SearchOptions(backend="cuda", **given))


def test_limit_of_memory_that_is_none(index, queries):
    match = r"^SearchOptions: max_memory must be a number of GB above 0; got 0\. Choose one, or leave it out\.$"
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, queries, "bleu", options=mo.SearchOptions(max_memory=0))


def test_mapped_pages_are_given_back_and_come_again(index):
    states = index.representation(METRICS["bertscore"]).states
    before = states.tobytes()
    store.release()
    assert states.tobytes() == before
    assert 1e6 < memory_in_use() < 1e12


def test_progress_adds_up_to_the_queries(index, queries):
    for metric in ("bleu", "chexbert"):
        steps = Calls()
        retrieve(index, queries, metric, progress=steps)
        n = len(queries.ids)
        assert steps[0] == ("", 0, n)
        assert steps == sorted(steps)
        assert steps[-1] == ("", n, n)


def test_corpus_of_one_report(tmp_path):
    index = build_index(reports("No effusion."), tmp_path / "I")
    for metric in LEXICAL:
        table = retrieve(
            index, mo.reports(["No effusion.", "else", ""], mo.Read(keep_empty=True)), metric
        ).table.to_pylist()
        assert [answer["row"] for answer in table] == [0, 0, 0]
        assert table[0]["score"] > 0
        assert [answer["score"] for answer in table[1:]] == [0.0, 0.0]
        assert all(answer["n_ties"] == 1 for answer in table)


def test_corpus_of_one_text(tmp_path):
    index = build_index(reports(*["No pleural effusion today."] * 9), tmp_path / "I")
    for metric in LEXICAL:
        table = retrieve(index, ["No pleural effusion today.", "xyz"], metric, k=9).table.to_pylist()
        assert [answer["row"] for answer in table] == [*range(9)] * 2
        assert {answer["n_ties"] for answer in table} == {9}
    assert retrieve(index, ["xyz"], "bleu", k=9).table["score"].to_pylist() == [0.0] * 9


def test_report_of_50_000_words(tmp_path):
    rng = random.Random(0)
    texts = [" ".join(f"w{rng.randrange(5000)}" for _ in range(length)) for length in (50_000, 49_000, 3, 40)]
    index = build_index(reports(*texts), tmp_path / "I")
    for metric in LEXICAL:
        table = retrieve(index, texts, metric, text=False).table
        assert table["row"].to_pylist() == [0, 1, 2, 3]
        assert table["n_ties"].to_pylist() == [1, 1, 1, 1]
    second = retrieve(index, texts[:1], "rouge-l", k=2, text=False).table.to_pylist()[1]
    lcs = subsequence(texts[0].split(), texts[1].split())
    assert second["row"] == 1
    assert (second["precision"], second["recall"]) == (lcs / 49_000, lcs / 50_000)


def test_a_report_without_words(index):
    for text in ("", " ", "...", "\x00", "\u202e"):
        table = retrieve(index, mo.reports([text], mo.Read(keep_empty=True)), "rouge-l", k=2).table.to_pylist()
        assert [(answer["row"], answer["score"]) for answer in table] == [(0, 0.0), (1, 0.0)]


def test_rows_of_score_0_follow_in_the_order_of_rows():
    row_id = np.random.default_rng(0).permutation(5000)[:3000]
    ascending, k = np.sort(row_id).tolist(), 1000  # NumPy sorts what it parts where that is little
    listed = [ascending[i] for i in (30, 3, 200)]
    found = Answers(np.full((2, k), -1), np.zeros((2, k)), np.zeros((2, k), np.int64), np.full(2, -np.inf))
    found.rows[0, :3], found.ties[0, :3] = listed, 1
    fill_zeros(found, row_id, ResultLists(np.arange(2), np.arange(2), [2], NOTHING))
    others = [row for row in ascending if row not in listed]
    assert found.rows.tolist() == [listed + others[: k - 3], ascending[:k]]
    assert found.ties.tolist() == [[1] * 3 + [2997] * (k - 3), [3000] * k]


def test_the_report_that_is_fallen_back_to_is_listed_once(index):
    row_id = np.arange(index.n_reports)
    row = most_frequent_row(index, row_id)
    assert most_frequent_row(index, row_id[::-1]) == row  # whatever the order of the documents
    a, b, c = (other for other in range(4) if other != row) if row < 4 else range(3)
    rows = [[a, row, b], [row, a, b], [a, b, c], [a, row, b]]
    found = Answers(np.array(rows), np.zeros((4, 3)), np.ones((4, 3), np.int64), np.full(4, -np.inf))
    found.scores[3, 0] = 0.5
    fallback = np.zeros((4, 3), bool)
    put_most_frequent_first(found, fallback, row)
    assert found.rows.tolist() == [[row, a, b]] * 3 + [rows[3]]
    assert fallback.tolist() == [[True, False, False]] * 3 + [[False] * 3]


def test_fallback_where_the_first_row_of_every_text_has_no_graph(corpus, tmp_path):
    import json

    entity = {"tokens": "effusion", "label": "OBS-DP", "relations": []}
    graph = {"text": "a b", "entities": {"1": entity}}
    (tmp_path / "g.json").write_text(json.dumps({"x2": graph, "x3": graph}))
    (tmp_path / "q.json").write_text(json.dumps({"q": {"text": "c", "entities": {"1": {**entity, "tokens": "heart"}}}}))
    corpus = Reports(["x0", "x1", "x2", "x3"], ["a b", "a b", "a b", "a b"], "test")
    index = build_index(mo.reports(corpus, radgraph=tmp_path / "g.json"), tmp_path / "I")
    query = Reports(["q"], ["c"], "test")
    answer = retrieve(index, mo.reports(query, radgraph=tmp_path / "q.json"), "radgraph").table.to_pylist()
    assert [(a["row"], a["score"], a["fallback"]) for a in answer] == [(2, 0.0, True)]


# Refusals


CALL = r"The call is retrieve\(index, queries, metric, \.\.\.\)"


@pytest.mark.parametrize(
    ("k", "rule", "got", "step"),
    [
        *(
            (k, r"an int from 1 to 120 \(reports that bleu-2 can score\)", k, "Choose another number")
            for k in (0, -1, 121, 10**30)
        ),
        (True, "an int", "True", "Choose another number"),
        (1.0, "an int or None", r"1\.0", CALL),
        ("1", "an int or None", "a str", CALL),
    ],
)
def test_k(index, queries, k, rule, got, step):
    with pytest.raises(InputError, match=rf"^retrieve: k must be {rule}; got {got}\. {step}\.$"):
        retrieve(index, queries, "bleu", k=k)


@pytest.mark.parametrize("threads", [0, -3, True])
def test_threads(index, queries, threads):
    match = rf"^retrieve: threads must be an int of at least 1; got {threads!r}\. Leave it out to use all cores\.$"
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, queries, "bleu", threads=threads)


def test_more_threads_than_any_machine_has(index, queries):
    for metric in ("bleu", "chexbert", "bertscore", "radcliq"):
        table = retrieve(index, queries, metric, threads=10**12).table
        assert table.equals(retrieve(index, queries, metric, threads=1).table)


@pytest.mark.parametrize(
    ("metric", "hint"),
    [
        ("bluu", r"Did you mean 'bleu'\?"),
        ("radgraf", r"Did you mean 'radgraph'\?"),
        ("rouge", r"Did you mean 'rouge-l'\?"),
        ("meteor", r"Did you mean 'meteor:nltk' or 'meteor:nltk-stems'\?"),
        ("green", r"Choose one \(docs.*"),
        ("bleu,rouge-l", r"Name one metric\."),
        ("xyz", r"Choose one \(docs.*"),
        ("", r"Choose one \(docs.*"),
    ],
)
def test_unknown_metric(index, queries, metric, hint):
    with pytest.raises(
        InputError,
        match=rf"^retrieve: metric must be one of those that `mo\.list_metrics` lists; got '{metric}'\. {hint}$",
    ):
        retrieve(index, queries, metric)


def test_unknown_backend(index, queries):
    match = r"^retrieve: backend must be one of auto, cpu, cuda, reference; got 'gpu'\. Choose one\.$"
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, queries, "bleu", backend="gpu")


def test_a_metric_without_cuda_kernels(index, queries):
    match = r'^retrieve: backend "cuda" is not usable: crg has no CUDA kernels\. Use "cpu", or "auto"\.$'
    with pytest.raises(BackendError, match=match):
        retrieve(index, queries, "crg", backend="cuda")


@pytest.mark.parametrize("metric", ["bleu", "rouge-l", "radgraph", "chexbert", "chexbert:labels", "bertscore"])
def test_no_gpu(index, queries, metric, monkeypatch):
    for reason in ("no CUDA device found", "no NVIDIA driver found"):
        monkeypatch.setattr(_device, "lacking", lambda library, reason=reason: reason)
        match = rf'^retrieve: backend "cuda" is not usable: {reason}\. Use "cpu", or "auto"\.$'
        with pytest.raises(BackendError, match=match):
            retrieve(index, queries, metric, backend="cuda")


def test_a_gpu_that_fails(index, queries, monkeypatch):
    def fail(*args, **options):
        raise _device.DeviceError("the GPU", "must last", "less", "Use another.")

    monkeypatch.setattr(cuda.Backend, "lacking", lambda self: "")
    monkeypatch.setattr(cuda.Backend, "search", fail)
    with pytest.raises(BackendError, match=r"^retrieve: the GPU must last; got less\. Use another\.$"):
        retrieve(index, queries, "bleu", backend="cuda")


def test_no_queries(index):
    match = r"^retrieve: queries must be at least one report; got 0\. Check the file and the section\.$"
    with pytest.raises(InputError, match=match):
        retrieve(index, Reports([], []), "bleu")
    with pytest.raises(InputError, match=r"^retrieve: there is no row in the"):
        retrieve(index, [], "bleu")


@pytest.mark.parametrize("value", [5, b"x"])
def test_queries_that_are_no_texts(index, value):
    match = (
        r"^retrieve: the reports in memory must be text or None; got (int|bytes) at position 1\. "
        r"Convert it to text, or pass None for a missing report\.$"
    )
    with pytest.raises(InputError, match=match):
        retrieve(index, ["a", value], "bleu")


NEEDS = [
    ("radgraph", "radgraph", "a graph", "`mo.reports(..., radgraph=GRAPHS.json)`"),
    ("chexbert", "chexbert", "an embedding", "`mo.reports(..., chexbert=FILE)`"),
    (
        "chexbert:labels",
        "labels",
        "labels",
        "`mo.reports(..., chexbert_labels=FILE, uncertain=positive|negative|blank)`",
    ),
]


@pytest.mark.parametrize(("metric", "kind", "what", "option"), NEEDS)
def test_queries_without_what_the_metric_reads(index, queries, metric, kind, what, option):
    match = rf"^retrieve: queries must have {what} each for metric '{metric}'; got none\. Add {re.escape(option)}\.$"
    with pytest.raises(InputError, match=match):
        retrieve(index, queries.texts, metric)
    ids = ["case 1 of 12", *queries.ids[1:]]
    for lacking in (1, 3, 4):
        of_row = queries.attached[kind].of_row.copy()
        of_row[:lacking] = -1
        shown = ", ".join([*map(repr, ids[:3])][:lacking]) + (", ..." if lacking > 3 else "")
        match = (
            rf"^retrieve: queries must have {what} each for metric '{metric}'; got {lacking} of 12 without "
            rf"\({re.escape(shown)}\)\. Add them to the file or leave these queries out\.$"
        )
        with pytest.raises(InputError, match=match):
            retrieve(index, changed(replace(queries, ids=ids), kind, of_row=of_row), metric)


def test_uncertain_of_another_meaning(index, queries):
    for uncertain in ("blank", None):
        match = (
            rf"^retrieve: uncertain must be 'positive' as in the index; got {uncertain!r}\. Pass the same value or bui"
        )
        with pytest.raises(InputError, match=match):
            retrieve(index, changed(queries, "labels", settings={"uncertain": uncertain}), "chexbert:labels")


def test_graphs_of_another_schema(index, queries):
    graphs = replace(queries.attached["radgraph"].values, schema="radgraph-xl")
    match = (
        r"^retrieve: the queries' graphs must have the index's label schema 'radgraph'; got 'radgraph-xl'\. Annotate bo"
    )
    with pytest.raises(InputError, match=match):
        retrieve(index, changed(queries, "radgraph", values=graphs), "radgraph")


def test_embeddings_of_another_width(index, queries):
    narrow = np.ascontiguousarray(queries.attached["chexbert"].values[:, :3])
    match = r"^retrieve: embeddings must have the index's width 7; got 3\. Encode queries and corpus with one model\.$"
    with pytest.raises(BackendError, match=match):
        retrieve(index, changed(queries, "chexbert", values=narrow), "chexbert")


def test_embeddings_that_are_not_numbers(index, queries, corpus, tmp_path):
    path = tmp_path / "e.npz"
    values = queries.attached["chexbert"].values.copy()
    values[2, 1] = np.nan
    np.savez(path, ids=np.array(queries.ids), v=values)
    with pytest.raises(InputError, match=r"^retrieve: every vector must be finite; got row 3 \(id '\d+'\)"):
        retrieve(index, mo.reports(corpus["test"], chexbert=path), "chexbert")


def test_faiss_is_not_needed(index, queries, corpus, oracle, named, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr("metric_oracle.sources.availability.find_spec", lambda name: None if name == "faiss" else True)
    fresh = open_index(index.folder)
    assert retrieve(fresh, queries, "chexbert").table.num_rows == 12
    assert retrieve(fresh, queries, "bleu").table.num_rows == 12
    named("asked", corpus["test"], chexbert=corpus["test_embeddings"])
    code, out, err = oracle("retrieve", index.folder, "asked", "-m", "chexbert")
    assert (code, out.count("\n"), err.count("\n")) == (0, 12, 1), err


def test_products_stay_on_the_threads_of_the_pool():
    def blas_threads():
        return {x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas" and "numpy" in x["filepath"]}

    def run(first):
        inside.append(blas_threads())
        return 1

    inside = []
    with threadpool_limits(2, user_api="blas"):
        thread_pool.run_blocks(run, range(3), 2)
        assert inside == [{1}] * 3
        assert blas_threads() == {2}
        with pytest.raises(ZeroDivisionError):
            thread_pool.run_blocks(lambda first: 1 // 0, range(3), 2)
        assert blas_threads() == {2}


def test_a_wrong_score_is_an_error(index, queries, monkeypatch):
    from metric_oracle.kernels.bleu import cpu

    real = cpu.Backend.search

    def wrong(self, corpus, batch, queries, k, answers, workspace):
        real(self, corpus, batch, queries, k, answers, workspace)
        answers.scores[queries] += 2**-50

    monkeypatch.setattr(cpu.Backend, "search", wrong)
    match = (
        r"^retrieve: .*bleu-2.* of row \d+ must .*\. This is a defect: please report it with the index fingerprint\.$"
    )
    with pytest.raises(ExactnessError, match=match):
        retrieve(index, queries, "bleu")


@pytest.mark.parametrize("in_main", [True, False])
def test_an_error_in_one_block_ends_the_others(index, monkeypatch, in_main):
    from metric_oracle.kernels.bleu import cpu

    begun, failing, before = [], threading.Event(), threading.active_count()

    def broken(*args, **options):
        begun.append(1)
        if (threading.current_thread() is threading.main_thread()) == in_main:
            failing.set()
            raise KeyboardInterrupt
        assert failing.wait(HANG)
        time.sleep(0.05)  # the other thread gives up what is left

    monkeypatch.setattr(cpu.Backend, "search", broken)
    with pytest.raises(KeyboardInterrupt):
        retrieve(index, [f"a b {i}" for i in range(32 * 40)], "bleu", threads=2)
    assert len(begun) < 40
    assert threading.active_count() <= before
