"""Promises of the search that no answer shows: memory on many threads, screens that keep near ties, the self-check."""

import random
from importlib import import_module

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import ExactnessError
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.vectors import Vectors
from metric_oracle.kernels.cosine.score import cosine
from metric_oracle.retrieval import thread_pool
from metric_oracle.retrieval.document_pairs import Pairs

WORDS = [
    "no",
    "acute",
    "pleural",
    "effusion",
    "edema",
    "heart",
    "size",
    "is",
    "normal",
    "stable",
    "left",
    "right",
    "small",
]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    rng = random.Random(9)
    texts = [" ".join(rng.choices(WORDS, k=rng.randrange(1, 12))) for _ in range(90)]
    reports = Reports([f"r{i}" for i in range(90)], texts, "test")
    return mo.build_index(reports, tmp_path_factory.mktemp("index") / "I", metrics=["bleu"])


@pytest.fixture(scope="module")
def queries():
    rng = random.Random(10)
    return [" ".join(rng.choices(WORDS, k=rng.randrange(3, 12))) + f" q{i}" for i in range(50)]


@pytest.mark.parametrize(("threads", "releases"), [(1, False), (2, True), (3, True)])
def test_max_memory_has_room_for_every_thread(index, queries, monkeypatch, threads, releases):
    """A block may take an eighth of the limit before it is known what one takes: 0.8 + 0.125 n, of 1."""
    held, released = [0.8e9], []

    def release():
        released.append(held[0])

    monkeypatch.setattr(thread_pool, "memory_in_use", lambda: held[0])
    monkeypatch.setattr(thread_pool, "release", release)
    limited = mo.retrieve(index, queries, "bleu", k=2, threads=threads, options=mo.SearchOptions(max_memory=1.0))
    assert bool(released) == releases
    assert limited.table.equals(mo.retrieve(index, queries, "bleu", k=2, threads=threads).table)


def test_nearest_keeps_what_rounding_cannot_tell_apart(index, queries):
    """Vectors of the same numbers in other orders have one cosine with a constant vector, but for its last bits.

    The screen's product sums in another order than the exact cosine; the answer is the greatest exact one.
    """
    rng = np.random.default_rng(8)
    values = rng.standard_normal(61).astype(np.float32)
    values *= np.sign(values.sum())
    vectors = Vectors([f"r{i}" for i in range(90)], np.stack([rng.permutation(values) for _ in range(90)]))
    asked = Vectors(["0", "1"], np.ones((2, 61), np.float32) * np.float32([[1], [3]]))
    found = mo.baseline(index, queries[:2], "nearest", "bleu", corpus_vectors=vectors, query_vectors=asked)

    def unit(vector):
        return (vector / np.linalg.norm(vector.astype(np.float64))).astype(np.float32).astype(float).tolist()

    def exact(a, b):
        total = of_a = of_b = 0.0
        for x, y in zip(a, b, strict=True):
            total, of_a, of_b = total + x * y, of_a + x * x, of_b + y * y
        return cosine(total, of_a, of_b)

    rows = [unit(vector) for vector in vectors.values]
    for query, row in zip(asked.values, found.table["row"].to_pylist(), strict=True):
        cosines = [exact(candidate, unit(query)) for candidate in rows]
        assert len(set(cosines)) > 3
        assert max(cosines) - min(cosines) < 1e-6
        assert row == cosines.index(max(cosines))


# The self-check


def test_a_hundred_pairs_are_checked_evenly_spread(index, queries, monkeypatch):
    """Of 50 queries x 10 answers, a hundred are scored again by the plain scorer, every fifth or so."""
    reference = import_module("metric_oracle.kernels.bleu.reference")
    real, checked = reference.score, []
    monkeypatch.setattr(reference, "score", lambda *pair, **options: (checked.append(pair), real(*pair, **options))[1])
    table = mo.retrieve(index, queries, "bleu", k=10, threads=1).table
    assert len(checked) == 100
    words = [tuple(text.split()) for text in queries]
    of_query = [words.index(query) for _, query in checked]
    assert table.num_rows == 500
    assert [of_query.count(i) for i in range(50)] == [2] * 50


@pytest.mark.parametrize("k", [1, 3])
def test_the_sample_is_scored_while_the_search_goes_on(index, queries, monkeypatch, k):
    """The plain scorer is called for each pair of the sample once, and before the last block has been searched."""
    events = []
    plain, search = Pairs.plain, import_module("metric_oracle.kernels.bleu.cpu").Backend.search

    def note(self, q, unit):
        events.append((q, unit))
        return plain(self, q, unit)

    def search_and_note(self, *args):
        events.append(args[2].start)  # first query of a block
        search(self, *args)

    monkeypatch.setattr(Pairs, "plain", note)
    monkeypatch.setattr("metric_oracle.kernels.bleu.cpu.Backend.search", search_and_note)
    mo.retrieve(index, queries, "bleu", k=k, threads=1)
    blocks = [event for event in events if isinstance(event, int)]
    pairs = [event for event in events if isinstance(event, tuple)]
    n = min(100, 50 * k)
    assert len(blocks) > 1
    assert len(pairs) == 2 * n  # once while it is scored, once when it is compared
    assert pairs[:n] == pairs[n:]
    assert events.index(blocks[-1]) > events.index(pairs[0])


@pytest.mark.parametrize("wrong", range(0, 50, 7))
def test_one_wrong_score_among_fifty_answers_is_found(index, queries, monkeypatch, wrong):
    cpu = import_module("metric_oracle.kernels.bleu.cpu")
    real = cpu.Backend.search

    def search_wrongly(self, corpus, batch, queries, k, answers, workspace):
        real(self, corpus, batch, queries, k, answers, workspace)
        if wrong in queries:
            answers.scores[wrong] = np.nextafter(answers.scores[wrong], 0)

    monkeypatch.setattr(cpu.Backend, "search", search_wrongly)
    with pytest.raises(
        ExactnessError,
        match=r"^retrieve: bleu-2 of row \d+ must be .*, as the plain scorer computes it; .*\. This is a def",
    ):
        mo.retrieve(index, queries, "bleu")
