"""Sampled means of random retrieval against the exact ones."""

import random
from dataclasses import replace

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import plan_scores
from metric_oracle.scores import sampled
from metric_oracle.scores.expectation import expectation_of
from metric_oracle.scores.sampled import sampled_means

pytestmark = pytest.mark.usefixtures("fake_encoder")
WORDS = [f"w{i}" for i in range(40)]


def made_up(rng, n, pool):
    """Return reports of all lengths; a third repeat earlier ones, and one is very frequent."""
    texts = []
    for _ in range(n):
        old = rng.random()
        text = " ".join(rng.choices(WORDS[: rng.choice((3, 12, 40))], k=rng.choice((1, 2, 3, 5, 8, 13, 20))))
        texts.append("w0 w1" if old < 0.1 else rng.choice(texts + pool) if old < 0.3 and texts + pool else text)
    return texts


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Return three indexes with their test reports."""
    folder = tmp_path_factory.mktemp("sampled")
    found = []
    for seed, (n, n_queries) in enumerate([(700, 64), (1031, 50), (611, 37)]):
        rng = random.Random(seed)
        corpus = made_up(rng, n, [])
        index = mo.build_index(mo.reports(corpus, encoder="fake"), folder / str(seed), metrics=["bertscore"])
        queries = mo.reports(made_up(rng, n_queries, corpus[:20])).load(index)
        found.append((index, replace(queries, kept={})))
    return found


@pytest.fixture(scope="module")
def exact(worlds):
    return [
        expectation_of(plan_scores(index, "bertscore"), queries).table["mean"].to_numpy() for index, queries in worlds
    ]


def estimate(index, queries, seed=0, error=0.01, threads=1):
    return sampled_means(
        plan_scores(index, "bertscore", SearchOptions(threads=threads)), queries, error=error, seed=seed
    )


@pytest.mark.parametrize("world", range(3))
@pytest.mark.parametrize("error", [0.01, 0.003])
def test_sampled_means_are_within_three_standard_errors(worlds, exact, world, error):
    found = estimate(*worlds[world], error=error)
    assert 0 < found.standard_error <= error
    assert abs(found.means.mean() - exact[world].mean()) <= 3 * found.standard_error
    assert np.abs(found.means - exact[world]).max() < 0.2
    assert found.rows < 0.6 * worlds[world][0].n_reports


def test_the_same_seed_draws_the_same_rows_in_any_number_of_threads(worlds):
    first, again, other = (estimate(*worlds[0], seed=seed, threads=n) for seed, n in ((1, 1), (1, 3), (2, 1)))
    assert first.means.tolist() == again.means.tolist()
    assert (first.standard_error, first.rows) == (again.standard_error, again.rows)
    assert first.means.tolist() != other.means.tolist()


def test_the_standard_error_is_that_of_many_samples(worlds, exact):
    """Over seeds the means scatter around the exact ones, of all test reports and of each, as the error says."""
    index, queries = worlds[0]
    found = [estimate(index, queries, seed, error=1.0) for seed in range(50)]
    distance = np.array([one.means.mean() - exact[0].mean() for one in found])
    scale = np.array([one.standard_error for one in found])
    assert 0.8 < np.std(distance / scale) < 1.25
    assert abs(distance.mean()) < 3 * scale.mean() / 50**0.5
    each = np.array([one.means for one in found]) - exact[0]
    assert np.abs(each.mean(axis=0) / (each.std(axis=0) / 50**0.5)).max() < 4.5
    # Rows that cancel: of as many rows drawn for each test report alone, the error would be several times as large.
    assert 3 * np.std(distance) < np.std(each, axis=0).mean()


def test_equal_test_reports_have_equal_means(worlds):
    index, queries = worlds[0]
    mean_of = {}
    for text, mean in zip(queries.texts, estimate(index, queries).means.tolist(), strict=True):
        assert mean_of.setdefault(text, mean) == mean
    assert len(mean_of) < len(queries.texts)


def test_small_or_precise_is_exact(worlds, tmp_path):
    index, queries = worlds[0]
    assert estimate(index, queries, error=1e-6) is None
    assert estimate(index, queries.take(np.arange(sampled.GROUPS - 1))) is None
    small = mo.build_index(mo.reports(queries.texts, encoder="fake"), tmp_path / "small", metrics=["bertscore"])
    assert estimate(small, queries) is None


def test_sets_of_shards(worlds, exact, tmp_path):
    index, queries = worlds[0]
    texts = index.take("text", np.arange(index.n_reports)).to_pylist()
    shards = mo.build_index(mo.reports(texts, encoder="fake"), tmp_path / "set", metrics=["bertscore"], shard_rows=300)
    found = estimate(shards, queries)
    assert abs(found.means.mean() - exact[0].mean()) <= 3 * found.standard_error
