import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

import metric_oracle as mo
from metric_oracle import statistics
from metric_oracle.base.errors import InputError
from metric_oracle.base.option_types import INTERVALS, Resamples
from metric_oracle.statistics import (
    Interval,
    acceptance_interval,
    adjusted,
    bootstrap_p,
    difference,
    interval,
    intervals,
    overlap,
    paired_test,
)
from metric_oracle.synthetic.example import write_example
from support import rule_of

SCORES = np.round(np.random.default_rng(5).beta(0.4, 1.2, 57), 2)  # skewed, with ties and exact zeros


@pytest.mark.parametrize("method", ["bca", "percentile"])
@pytest.mark.parametrize("held", [1000, 1 << 21])
def test_intervals_are_scipys_whatever_the_batch(monkeypatch, method, held):
    monkeypatch.setattr(statistics, "_HELD", held)
    scores = np.round(SCORES * 64) / 64  # means of which have no rounding but one: ties are ties on both sides
    theirs = stats.bootstrap(
        (scores,), np.mean, n_resamples=999, method=method, confidence_level=0.9, rng=np.random.default_rng(3)
    ).confidence_interval
    low, high, degenerate = interval(scores, method, 0.9, 999, 3)
    assert [low, high] == pytest.approx([theirs.low, theirs.high], abs=1e-15)
    assert not degenerate


def test_means_are_resampled_together_and_left_out_one_by_one():
    columns = np.array([SCORES, SCORES**2, np.ones(57)])
    found = statistics.resample_means(columns, 200, 4)
    drawn = np.random.default_rng(4).integers(0, 57, (200, 57))
    assert found.resampled == pytest.approx(columns[:, drawn].mean(axis=2).T, abs=1e-14)
    assert found.left_out[7] == pytest.approx(np.delete(columns, 7, axis=1).mean(axis=1), abs=1e-14)
    ratio = found.map(lambda means: means[..., 1] / means[..., 0])
    theirs = stats.bootstrap(
        (SCORES, SCORES**2), lambda a, b, axis: b.mean(axis=axis) / a.mean(axis=axis), n_resamples=200, paired=True,
        method="bca", rng=np.random.default_rng(4),
    ).confidence_interval  # fmt: skip
    assert ratio.interval()[:2] == pytest.approx((theirs.low, theirs.high), abs=1e-13)
    assert found.map(lambda means: np.where(means[..., 0] > 0.3, np.nan, 1.0)).interval() is None


@pytest.mark.parametrize("method", INTERVALS)
def test_columns_together_have_the_intervals_that_they_have_alone(method):
    columns = np.array([np.full(57, 0.5), SCORES, np.zeros(57), 1 - SCORES**2])
    resamples = None if method == "legacy-yu2023" else 300
    for column, found in zip(columns, intervals(columns, method, resamples=resamples, seed=2), strict=True):
        alone = interval(column, method, resamples=resamples, seed=2)
        assert found[:2] == pytest.approx(alone[:2], abs=1e-14)
        assert found.degenerate == alone.degenerate == (column.min() == column.max())


def test_percentile_interval_of_three_studies():
    # The mean of a resample of 0, 0, 1 is k / 3 with k binomial(3, 1/3): up to 0, 1/3, 2/3 in 8, 20, 26 of 27 cases.
    assert interval([0, 0, 1], "percentile", 0.8) == (0, 2 / 3, False)
    assert interval([0, 0, 1], "percentile", 0.44) == (0, 1 / 3, False)


def test_seed_and_defaults():
    assert interval(SCORES) == interval(list(SCORES), "bca", 0.95, 10_000, 0)
    assert interval(SCORES, seed=1) != interval(SCORES)
    low, high, _ = interval(SCORES)
    half = 1.96 * SCORES.std() / math.sqrt(len(SCORES))
    assert (low, high) == pytest.approx((SCORES.mean() - half, SCORES.mean() + half), abs=0.25 * half)


def test_legacy_interval_by_hand():
    drawn = [float(x) for x in np.random.default_rng(7).choice(SCORES, 5000)]
    mean = sum(drawn) / 5000
    deviation = math.sqrt(sum((x - mean) ** 2 for x in drawn) / 4999)
    half = 1.960438640 * deviation / math.sqrt(5000)  # the 97.5 % point of Student's t with 4,999 degrees of freedom
    found = interval(SCORES, "legacy-yu2023", seed=7)
    # The half-width, and not the ends alone: beside the mean an error of it would not be seen.
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-8)
    assert (found.high + found.low) / 2 == pytest.approx(mean, rel=1e-12)
    assert not found.degenerate
    # Ten times the studies, the same width: it is no interval of the mean.
    again = interval(np.tile(SCORES, 10), "legacy-yu2023", seed=7)
    assert again.high - again.low == pytest.approx(found.high - found.low, rel=0.1)


def test_coverage():
    # Exponential scores of 60 studies, mean 1: 950 of 1,000 intervals should hold it, with a standard error of 7. At
    # this skewness bootstraps hold it one or two times in a hundred less often.
    rng = np.random.default_rng(11)
    held = dict.fromkeys(INTERVALS, 0)
    for repetition in range(1000):
        scores = rng.exponential(size=60)
        for method in INTERVALS:
            resamples = None if method == "legacy-yu2023" else 400
            low, high, _ = interval(scores, method, resamples=resamples, seed=repetition)
            held[method] += low <= 1 <= high
    assert 915 <= held["percentile"] <= 970
    assert 915 <= held["bca"] <= 970
    assert held["legacy-yu2023"] < 300


@pytest.mark.parametrize("method", INTERVALS)
def test_equal_scores_have_a_degenerate_interval(method):
    assert interval([0.1] * 7, method) == Interval(0.1, 0.1, degenerate=True)


@pytest.mark.parametrize("values", [[0] * 9 + [1e-200], [1.0] * 11 + [1 - 1.1e-16]])
def test_scores_that_hardly_differ_have_a_degenerate_interval(values):
    low, high, degenerate = interval(values)
    assert degenerate
    assert min(values) <= low <= high <= max(values)


def test_legacy_sample_without_the_one_other_value():
    scores = np.zeros(200_000)
    scores[0] = 1
    assert interval(scores, "legacy-yu2023", seed=0) == (0, 0, True)


@pytest.mark.parametrize(
    ("values", "options", "match"),
    [
        ([0.5], {}, "values must be one number for each of at least 2 studies; got 1. Pass a one-dim"),
        ([], {}, "values must be one number for each of at least 2 studies; got 0. "),
        (np.ones((2, 2)), {}, r"values must be .* of at least 2 studies; got an array of shape \(2, 2\). "),
        (np.array(["a b", "c d"]), {}, r"values must be .* of at least 2 studies; got no numbers\. "),
        ([1, math.nan, math.inf], {}, "values must be finite; got NaN or infinity in 2 of 3 studies. Leave out"),
        (SCORES, {"method": "BCa"}, "method must be one of bca, percentile, legacy-yu2023; got 'BCa'. Choose"),
        (SCORES, {"level": 95}, "level must be a number between 0 and 1; got 95. The usual"),
        (SCORES, {"resamples": 99}, "resamples must be an int from 100 to 1000000; got 99. The default is 10000."),
        (SCORES, {"resamples": True}, rf"resamples {rule_of(Resamples)}; got True\. "),
        (SCORES, {"resamples": 1e4}, rf"resamples {rule_of(Resamples)} or None; got 10000\.0\. The call"),
        (
            SCORES,
            {"method": "legacy-yu2023", "resamples": 5000},
            "resamples must be left out with legacy-yu2023, which draws one sample of 5,000; got 5000. Leave out",
        ),
    ],
)
def test_bad_input_of_interval(values, options, match):
    with pytest.raises(InputError, match="^interval: " + match):
        mo.interval(values, **options)


# Two systems


def test_permutation_test_by_hand():
    # All 8 assignments: only +++ and --- are as far from 0 as 6 / 3.
    difference, ends, p = paired_test([2, 4, 6], [1, 2, 3])
    assert (difference, p) == (2, 0.25)
    assert ends == (1, 3, True)  # no difference is rejected: 2 of 8 assignments are at least as far from it


def test_the_interval_is_what_the_permutation_test_does_not_reject():
    """SciPy's test of the differences less d, all 1,024 assignments, for d around each end."""
    differences = np.round(np.random.default_rng(3).normal(0.4, 1, 10), 3)
    differences[[2, 7]] = 0
    _, (low, high, degenerate), p = paired_test(differences, np.zeros(10))

    def theirs(d):
        return stats.permutation_test((differences - d,), np.mean, permutation_type="samples").pvalue

    assert p == theirs(0)
    assert not degenerate
    for inside, outside in ((low + 1e-9, low - 1e-9), (high - 1e-9, high + 1e-9)):
        assert theirs(inside) > 0.05 >= theirs(outside)
    assert low < differences.mean() < high


@pytest.mark.parametrize(("n", "level"), [(9, 0.95), (9, 0.8), (40, 0.95), (40, 0.5)])
def test_interval_and_p_value_agree(n, level):
    """Few differences that are not 0, ties, and differences that are nearly significant."""
    rng = np.random.default_rng(n)
    agreed = set()
    for seed in range(200):
        differences = np.round(np.where(rng.random(n) < rng.random(), rng.normal(rng.random(), 1, n), 0), 1)
        if np.ptp(differences):
            _, (low, high, _), p = paired_test(differences, np.zeros(n), level=level, resamples=600, seed=seed)
            assert (low <= 0 <= high) == (p > 1 - level + 1e-9)
            agreed.add(p > 1 - level)
    assert agreed == {True, False}


def test_no_rounding_moves_the_ends_of_an_interval():
    """Of 999 subsets the ends are the 50th from either side, though (1 - 0.9) / 2 * 1000 is a bit less than 50."""
    differences = np.random.default_rng(6).normal(0.05, 0.3, 40)
    low, high, _ = paired_test(differences, np.zeros(40), level=0.9, resamples=999).interval
    for inside, outside in ((low + 1e-9, low - 1e-9), (high - 1e-9, high + 1e-9)):
        assert paired_test(differences - inside, np.zeros(40), resamples=999).p_value == pytest.approx(0.102)
        assert paired_test(differences - outside, np.zeros(40), resamples=999).p_value == pytest.approx(0.1)


def test_three_differences_of_a_hundred_are_no_evidence():
    """A BCa interval of these is [0.005, 0.068], though 3 differences give no p-value below 0.25."""
    differences = np.zeros(100)
    differences[[3, 30, 60]] = [0.5, 1, 0.8]
    found = paired_test(differences, np.zeros(100))
    assert found.interval.low == 0
    assert found.p_value == pytest.approx(0.25, abs=0.02)
    assert interval(differences).low > 0


@pytest.mark.parametrize("share", [0.03, 0.06, 0.12, 0.3, 1])
def test_coverage_of_differences_of_which_few_are_not_0(share):
    """Symmetric, so that the test has its size whatever the shape: 0 is in 95 of 100 intervals or more."""
    rng = np.random.default_rng(12)
    held = []
    for seed in range(400):
        differences = np.where(rng.random(100) < share, rng.standard_t(3, 100), 0)
        low, high, _ = paired_test(differences, np.zeros(100), resamples=400, seed=seed).interval
        held.append(low <= 0 <= high)
    assert np.mean(held) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400)


def test_subset_means_are_all_or_drawn():
    values = np.array([3.0, 0.0, -1.0])
    subsets = [[3], [0], [3, 0], [-1], [3, -1], [0, -1], [3, 0, -1]]
    assert statistics.subset_means(values, 8, 0) == pytest.approx([np.mean(subset) for subset in subsets], abs=1e-15)
    drawn = statistics.subset_means(values, 7, 0)
    assert len(drawn) == 7
    assert all(any(abs(mean - np.mean(subset)) < 1e-12 for subset in [[0], *subsets]) for mean in drawn)
    normal = np.random.default_rng(1).normal(size=50)
    assert statistics.subset_means(normal, 500, 1).std() == pytest.approx(normal.std() / math.sqrt(50), rel=0.1)


def test_effective_studies_by_hand():
    assert statistics.effective_studies(np.zeros(50)) == 0
    assert statistics.effective_studies(np.full(50, 0.3)) == 50
    assert statistics.effective_studies(np.array([-1.0, 1, -2, 2] + 46 * [0.0])) == 4  # not skewed
    some = np.r_[np.ones(7), np.zeros(93)]
    skewness = 0.86 / math.sqrt(0.07 * 0.93)
    assert statistics.effective_studies(some) == 7
    assert statistics.effective_studies(1 - some) == pytest.approx(100 / skewness**2)
    exponential = np.random.default_rng(0).exponential(size=1000)
    assert statistics.effective_studies(exponential) == pytest.approx(1000 / stats.skew(exponential) ** 2)


def test_permutation_test_with_ties():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 4, (2, 8))
    sums = np.array([sum(s * d for s, d in zip(signs, a - b, strict=True)) for signs in product((1, -1), repeat=8)])
    assert sum(a - b) != 0
    share = min((sums >= sum(a - b)).mean(), (sums <= sum(a - b)).mean())
    assert paired_test(a, b).p_value == pytest.approx(2 * share)


def test_rounding_decides_no_tie():
    """Tenths cancel but for rounding, where whole numbers cancel exactly."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        whole = rng.integers(-4, 5, 9)
        assert paired_test(whole / 10, np.zeros(9)).p_value == paired_test(whole, np.zeros(9)).p_value


@pytest.mark.parametrize(
    "differences", [[0, -0.05, 0.06, -0.02, 0, 0, -0.01, 0.02], [0.1, 0.2, -0.3], [0.7, -0.1, -0.6]]
)
def test_a_difference_of_zero_has_no_evidence(differences):
    """Nothing is nearer to 0 than their sum, which rounding alone keeps from it."""
    assert paired_test(differences, [0] * len(differences)).p_value == 1
    assert paired_test([0] * len(differences), differences, resamples=100).p_value == 1


def test_bootstrap_p_by_hand():
    assert statistics.bootstrap_p(np.array([1.0, 2.0, 3.0])) == 2 * 1 / 4
    for values in ([-1.0, 0.0, 3.0], [-1.0, -1.0, 0.0], [0.0, 1.0, 1.0]):  # 0 itself is on either side
        assert statistics.bootstrap_p(np.array(values)) == 1
    assert statistics.bootstrap_p(np.r_[np.ones(97), -np.ones(2)]) == pytest.approx(2 * 3 / 100)


def test_paired_is_antisymmetric_and_cannot_go_below_the_resamples():
    better = SCORES + 0.1 + 0.01 * np.arange(57) % 3
    one, other = paired_test(better, SCORES, resamples=999), paired_test(SCORES, better, resamples=999)
    assert one.difference == -other.difference > 0
    assert one.p_value == other.p_value == 2 / 1000


def test_identical_systems():
    assert paired_test(SCORES, SCORES, resamples=100) == (0, (0, 0, True), 1)


def test_p_values_are_uniform_where_systems_are_equal():
    rng = np.random.default_rng(2)
    found = [paired_test(*rng.exponential(size=(2, 30)), resamples=200, seed=i).p_value for i in range(300)]
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_benjamini_hochberg_by_hand():
    assert adjusted([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])


def test_overlap_is_the_papers_rule():
    # RadCliQ in table S5: BERTScore against RadGraph, BLEU against CheXbert.
    assert not overlap(Interval(-0.129, -0.062), Interval(-0.051, 0.009))
    assert not overlap(Interval(-0.051, 0.009), Interval(-0.129, -0.062))
    assert overlap(Interval(0.044, 0.118), Interval(0.017, 0.086))
    assert overlap(Interval(0, 1), Interval(1, 2))


@pytest.mark.parametrize("size", [1e-200, 1e-7, 1.0, 3.3e5])
def test_equal_means_differ_by_nothing(size):
    """Means of equal numbers, summed in several ways, against the numbers."""
    scores = size * np.random.default_rng(0).uniform(-1, 1, 40)
    means = np.array([sum([score] * n) / n for score, n in zip(scores, range(3, 43), strict=True)])
    assert (means != scores).any()
    assert (difference(means, scores) == 0).all()
    for a, b in ((means, scores), (scores, means)):
        assert paired_test(a, b) == (0.0, (0.0, 0.0, True), 1.0)
    by_study = difference(scores * (1 + 1e-9), scores)
    assert (by_study == scores * (1 + 1e-9) - scores).all()


def test_means_that_differ_by_rounding_alone_do_not_vary():
    values = np.array([0.1, (0.1 + 0.1 + 0.1) / 3, 0.1, sum([0.1] * 6) / 6])
    assert len({*values}) > 1
    assert interval(values).degenerate
    a, b = (Interval(value, value, degenerate=True) for value in (min(values), max(values)))
    assert overlap(a, b)
    assert overlap(b, a)
    assert not overlap(a, Interval(0.4, 0.5))


@pytest.mark.parametrize("resamples", [1_000_001, 2**63])
def test_resamples_have_a_maximum(resamples, example, fails):
    match = rf"resamples {rule_of(Resamples)}; got {resamples}\. The default is 1000"
    scores, files = mo.score("test.csv", "strong.csv", "bleu"), ("ratings.csv", "samples.csv")
    scores.write("s.parquet")
    index = mo.build_index("train.csv", "INDEX", metrics="rouge-l,bleu")
    for call in (
        lambda: mo.interval([1, 2, 3], resamples=resamples),
        lambda: scores.interval(resamples=resamples),
        lambda: mo.compare({"a": scores}, resamples=resamples),
        lambda: mo.overlap(index, {"a": "strong.csv"}, resamples=resamples),
        lambda: mo.align(files[0], samples=files[1], metrics=["bleu"], resamples=resamples),
        lambda: mo.compare_metrics({"R": mo.RatedFiles(files[0], samples=files[1])}, resamples=resamples),
        lambda: mo.agreement(files[0], resamples=resamples),
        lambda: mo.score_crg("test_labels.csv", "strong_labels.csv", uncertain="positive", resamples=resamples),
        lambda: mo.score_f1_chexbert("test_labels.csv", "strong_labels.csv", resamples=resamples),
    ):
        with pytest.raises(InputError, match=match):
            call()
    for command in (
        ("table", "a=s.parquet"),
        ("overlap", "INDEX", "s=strong.csv"),
        ("align", files[0], "--samples", files[1], "-m", "bleu"),
        ("compare-metrics", f"R={files[0]}", "--samples", f"R={files[1]}", "-m", "bleu"),
        ("agreement", files[0]),
    ):
        fails(*command, "--resamples", resamples, match=rf"{command[0]}: --{match}", notes=".*")


@pytest.fixture
def example(tmp_path, monkeypatch):
    write_example(tmp_path / "example")
    monkeypatch.chdir(tmp_path / "example")


def test_the_fewest_resamples_that_can_reject_a_value():
    """Twice 1 of 40 is 0.05, which is rejected; with 38 resamples the least p-value is above it."""
    assert acceptance_interval(np.arange(39.0)) == (0.0, 38.0, False)
    assert acceptance_interval(np.arange(38.0)).degenerate
    assert bootstrap_p(np.arange(39.0) + 1) == 0.05
