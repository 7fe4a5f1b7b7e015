"""Oracles of real reports (IU X-ray, R2Gen's split) against a plain brute force that shares no code with the package.

The brute force below has its own tokenisers, n-gram counts, common subsequence and formulas; it only skips a distinct
text whose word overlap cannot reach the best score so far. Texts and ids come from the package's reader, whose own
tests check it.
"""

import math
import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.pools.rerank import rerank
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.scores.expectation import expectation
from metric_oracle.tables.study import study
from support.sequences import subsequence

# One impression of IU X-ray has a heading, which is said.
pytestmark = pytest.mark.filterwarnings("ignore:.*marks that count as words")


@pytest.fixture(scope="module", params=["impression", "findings"])
def world(request, iu_xray, tmp_path_factory):
    """Return training reports, test reports, and the index of the training reports."""
    train, test = (
        read_reports(
            iu_xray / "indiana_reports.csv",
            Read(section=request.param, split=split, split_file=iu_xray / "r2gen_split.csv", keep_empty=True),
        )
        for split in ("train+val", "test")
    )
    assert 1500 < len(train.texts) <= 2365
    assert 350 < len(test.texts) <= 590
    index = build_index(train, tmp_path_factory.mktemp(request.param) / "index", metrics=["bleu", "rouge-l"])
    return train, test, index


def words_of_bleu(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.lower().replace(".", " .").split(" ") if word != "")


def words_of_rouge(text: str) -> tuple[str, ...]:
    return tuple(re.findall("[a-z0-9]+", text.lower()))


@cache
def grams(words: tuple[str, ...], order: int) -> Counter:
    return Counter(zip(*(words[i:] for i in range(order)), strict=False))


def bleu_score(candidate: tuple[str, ...], reference: tuple[str, ...], order: int) -> float:
    """BLEU as the paper of the metric oracles has it: a precision without a match is 0.1 / n."""
    logs = []
    for n in range(1, order + 1):
        theirs = grams(candidate, n)
        matched = sum(min(count, theirs[gram]) for gram, count in grams(reference, n).items() if gram in theirs)
        if n == 1 and matched == 0:
            return 0.0
        logs.append(math.log(max(matched, 0.1) / max(len(candidate) - n + 1, 1)))
    penalty = 0.0 if len(candidate) > len(reference) else 1 - len(reference) / len(candidate)
    return math.exp(penalty + sum(logs) / order)


def rouge_score(candidate: tuple[str, ...], reference: tuple[str, ...], order: int) -> float:
    both = len(candidate) + len(reference)
    return 2 * subsequence(candidate, reference) / both if both else 0.0


def best_of(train: list[str], test: list[str], tokenize, score, order: int, bound) -> list[tuple[int, float, int]]:
    """Return for each test text the lowest best row, its score, and how many rows score the same."""
    rows: dict[tuple, list[int]] = {}
    for row, text in enumerate(train):
        rows.setdefault(tokenize(text), []).append(row)
    candidates = list(rows)
    lengths = np.array([len(words) for words in candidates])
    vocabulary = {word: i for i, word in enumerate({word for words in candidates for word in words})}
    counts = np.zeros((len(vocabulary), len(candidates)), np.int64)
    for c, words in enumerate(candidates):
        for word in words:
            counts[vocabulary[word], c] += 1
    known: dict[str, tuple[int, float, int]] = {}
    for text in test:
        if text in known:
            continue
        reference = tokenize(text)
        matched = np.zeros(len(candidates), np.int64)
        for word, count in Counter(reference).items():
            if word in vocabulary:
                matched += np.minimum(counts[vocabulary[word]], count)
        limits = bound(matched, lengths, len(reference), order)
        best, scores = 0.0, {}
        for c in np.argsort(-limits).tolist():
            if limits[c] < best - 1e-9:
                break
            scores[c] = score(candidates[c], reference, order)
            best = max(best, scores[c])
        if best == 0:
            known[text] = (0, 0.0, len(train))
            continue
        # Mathematically equal scores may differ in the last bits here; real differences are far larger.
        winners = [row for c, s in scores.items() if s > best - 1e-12 for row in rows[candidates[c]]]
        known[text] = (min(winners), best, len(winners))
    return [known[text] for text in test]


def bound_of_bleu(matched: np.ndarray, lengths: np.ndarray, reference_length: int, order: int) -> np.ndarray:
    """Unigram matches and penalty are known; an order above has at most as many matches, and at most all of its own."""
    penalty = np.minimum(0.0, 1 - reference_length / np.maximum(lengths, 1))
    limit = np.where(matched > 0, np.exp(penalty), 0.0)
    for n in range(1, order + 1):
        limit *= np.minimum(1.0, matched / np.maximum(lengths - n + 1, 1)) ** (1 / order)
    return limit


def bound_of_rouge(matched: np.ndarray, lengths: np.ndarray, reference_length: int, order: int) -> np.ndarray:
    return 2 * matched / np.maximum(lengths + reference_length, 1)


def check(world, metric: str, tokenize, score, order: int, bound) -> None:
    train, test, index = world
    table = retrieve(index, test, metric, threads=2).table
    got = list(zip(*(table[name].to_pylist() for name in ("row", "score", "n_ties")), strict=True))
    expected = best_of(train.texts, test.texts, tokenize, score, order, bound)
    assert [answer[0] for answer in got] == [answer[0] for answer in expected]
    assert [answer[2] for answer in got] == [answer[2] for answer in expected]
    assert [answer[1] for answer in got] == pytest.approx([answer[1] for answer in expected], abs=1e-12, rel=0)
    assert max(answer[2] for answer in got) > 1
    assert len({answer[0] for answer in got}) > 100


@pytest.mark.parametrize(("metric", "order"), [("bleu", 2), ("bleu-4", 4)])
def test_bleu_oracles(world, metric, order):
    check(world, metric, words_of_bleu, bleu_score, order, bound_of_bleu)


def test_rouge_oracles(world):
    check(world, "rouge-l", words_of_rouge, rouge_score, 0, bound_of_rouge)


def test_the_splits_share_no_study_and_texts_repeat(world):
    train, test, _ = world
    assert not set(train.ids) & set(test.ids)
    assert len(set(train.texts)) < len(train.texts)
    assert set(train.texts) & set(test.texts)


# Random retrieval


@pytest.mark.parametrize(("metric", "order"), [("bleu", 2), ("bleu-4", 4), ("rouge-l", 0)])
def test_expectations_are_means_over_all_pairs(world, metric, order):
    train, test, index = world
    n = 40 if np.mean([len(text) for text in train.texts]) < 150 else 8  # findings are long
    ids, texts = [*test.ids[:n], "again"], [*test.texts[:n], test.texts[0]]
    test = Reports(ids, texts, test.source)
    tokenize, score = (words_of_rouge, rouge_score) if metric == "rouge-l" else (words_of_bleu, bleu_score)
    words = [tokenize(text) for text in train.texts]
    times = Counter(words)
    candidates, rows = list(times), np.array(list(times.values()))
    found = expectation(index, test, metric, bins=64)
    known: dict[tuple, np.ndarray] = {}
    every = []
    for record, text in zip(found.table.to_pylist(), test.texts, strict=True):
        reference = tokenize(text)
        if reference not in known:
            known[reference] = np.array([score(candidate, reference, order) for candidate in candidates])
        scores = np.repeat(known[reference], rows)
        every.append(scores)
        assert record["mean"] == pytest.approx(scores.mean(), abs=1e-12, rel=0)
        assert record["sd"] == pytest.approx(scores.std(), abs=1e-12, rel=0)
        for name, p in (("q05", 0.05), ("q25", 0.25), ("q50", 0.5), ("q75", 0.75), ("q95", 0.95)):
            expected = np.quantile(scores, p, method="inverted_cdf")
            assert record[name] == pytest.approx(expected, abs=1e-12, rel=0)
        assert (record["min"], record["max"]) == pytest.approx((scores.min(), scores.max()), abs=1e-12)
        assert record["n"] == len(train.texts)
    # A score on an edge may fall on either side of it by the last bit of the formula here.
    counts, _ = np.histogram(np.concatenate(every) + 1e-12, np.r_[found.edges[:-1], found.edges[-1] + 1e-9])
    assert found.counts.tolist() == counts.tolist()


def sequences(pairs):
    """Return ROUGE-L of each pair."""
    scores = []
    for reference, candidate in pairs:
        a, b = words_of_rouge(reference), words_of_rouge(candidate)
        n = subsequence(a, b)
        scores.append(2 * (n / len(b)) * (n / len(a)) / (n / len(b) + n / len(a)) if n else 0.0)
    return scores


def test_the_pooled_oracle_of_a_judge_is_the_exact_one(world):
    """The judge is ROUGE-L, computed here; its own best list is in the pool, so that nothing is missed."""
    _, test, index = world
    few = test.take(np.arange(0, len(test.ids), 12))
    exact = retrieve(index, few, "rouge-l").table["score"].to_numpy()
    judge = mo.judge(sequences, direction="higher", best=1.0)
    found = rerank(index, few, judge, pool="bleu:3,rouge-l:5,random:5")
    assert found.table["score"].to_numpy() == pytest.approx(exact, abs=1e-12)
    certified = found.table["certified"].to_numpy(zero_copy_only=False)
    assert certified.tolist() == (exact == 1.0).tolist()
    assert 0 < certified.sum() < len(exact)
    without = rerank(index, few, judge, pool="bleu:3")
    assert (without.table["score"].to_numpy() <= exact + 1e-12).all()
    assert without.table["score"].to_numpy().mean() < exact.mean()


def test_a_study_under_a_judge_is_that_under_its_metric(world):
    """The judge is ROUGE-L, computed here: each cell is that of ROUGE-L, and chance that of the whole corpus."""
    _, test, index = world
    few = test.take(np.arange(0, len(test.ids), 12))
    written = dict(zip(few.ids, reversed(few.texts), strict=True))
    judge = mo.judge(sequences, direction="higher", best=1.0)
    pool = "bleu:3,rouge-l:5,random:5"
    systems = study(index, few, {"model": written}, metrics=["bleu", "rouge-l", judge], pool=pool)
    best = systems.pop("sequences of a pool")
    for scores in systems.values():
        assert scores.table["sequences"].to_numpy() == pytest.approx(scores.table["rouge-l"].to_numpy(), abs=1e-9)
    exact = systems["rouge-l oracle"].table["sequences"].to_numpy()
    assert best.table["sequences"].to_numpy() == pytest.approx(exact, abs=1e-12)
    sampled = study(index, few, metrics=["bleu", judge], pool="bleu:3,random:20")["random (expected)"]
    error = sampled.signature["averaged"]["sampled"]["sequences"]["standard_error"]
    mean = systems["random (expected)"].table["rouge-l"].to_numpy().mean()
    assert 0 < abs(sampled.table["sequences"].to_numpy().mean() - mean) < 3 * error
    assert error < 0.005
