"""How often the 95 % intervals of the package hold the true value, by number of studies and shape of the data.

A part of ``benchmarks.simulate``. Every interval is made by the function that makes the printed one. Sets in which the
interval is marked as degenerate (all values equal) are left out. Beside the coverage stands how many of the other sets
a printed table warns of.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np

from benchmarks.machine import Row
from metric_oracle.findings.corpus_bleu import corpus_bleu
from metric_oracle.pools.rerank import binomial_interval
from metric_oracle.raters.failure_modes import study_test
from metric_oracle.raters.interrater import ICC, intraclass
from metric_oracle.raters.rank_correlation import (
    RATED,
    STATISTICS,
    DrawnStudies,
    difference_row,
    draw,
    interval_row,
    side,
)
from metric_oracle.statistics import (
    FEW,
    Array,
    Interval,
    acceptance_interval,
    effective_studies,
    intervals,
    paired_test,
    resample_means,
)
from metric_oracle.tables.f1_chexbert import FEW_POSITIVE, SRR_AVERAGES, f1_scores
from metric_oracle.tables.label_scores import scored
from metric_oracle.tables.table_cells import MetricCells, MetricColumn, Resampling, corpus_means, crg_of_means

SIZES = (10, 20, 50, 100, 200, 500, 2000)
RESAMPLES = 1000
_BLOCK = 50  # sets of scores that share their resamples
_LARGEST_RATED = 100  # studies with four pairs each: all pairs are compared with all
_LARGE = 200_000  # reports that stand for all there are
_LABELS = np.geomspace(0.02, 0.4, 14)  # how often a label is positive
_DIFFERENCE, _EXACT = "difference of two metrics' tau-b", "exact agreement of raters"


class Outcome(NamedTuple):
    """Of one set: whether the interval holds the true value, and whether a warning stands beside it."""

    holds: bool
    is_warned: bool


Case = Callable[[int, int], Iterator[Outcome]]  # of so many studies and so many sets
Values = Callable[[np.random.Generator, tuple[int, int]], Array]


def outcome(ends: Interval | None, truth: float, effective: float) -> Iterator[Outcome]:
    """Yield the outcome of a set, nothing where its interval is marked or does not exist."""
    if ends is not None and not ends.degenerate:
        yield Outcome(ends.low <= truth <= ends.high, effective < FEW)


# Means of scores, and of paired differences


def _mixed(share: float, values: Values) -> Values:
    """Return values of which a share are drawn; the others are 0."""
    return lambda rng, size: np.where(rng.random(size) < share, values(rng, size), 0)


def _beta(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    return rng.beta(1.2, 2, size)  # with mean 0.375


def _t(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    return rng.standard_t(3, size)


def _normal(mean: float) -> Values:
    return lambda rng, size: rng.normal(mean, 1, size)


def _log_normal(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    return np.exp(rng.normal(0, 1, size))


SCORES: dict[str, tuple[Values, float]] = {  # and their mean
    "beta (0.4, 1.2)": (lambda rng, size: rng.beta(0.4, 1.2, size), 0.25),
    "five values, many ties": (lambda rng, size: rng.binomial(4, 0.3, size) / 4, 0.3),
    "0 or 1, 30 % ones": (lambda rng, size: rng.binomial(1, 0.3, size).astype(np.float64), 0.3),
    "50 % zeros": (_mixed(0.5, _beta), 0.5 * 0.375),
    "90 % zeros": (_mixed(0.1, _beta), 0.1 * 0.375),
    "97 % zeros": (_mixed(0.03, _beta), 0.03 * 0.375),
    "97 % ones": (lambda rng, size: 1 - _mixed(0.03, _beta)(rng, size), 1 - 0.03 * 0.375),
    "exponential": (lambda rng, size: rng.exponential(size=size), 1.0),
    "log-normal": (_log_normal, float(np.exp(0.5))),
    "heavy tails (t, 3 degrees of freedom)": (_t, 0.0),
}
DIFFERENCES: dict[str, tuple[Values, float]] = {
    **{f"{share} % not 0, mean 0": (_mixed(share / 100, _normal(0)), 0.0) for share in (3, 6, 12, 30, 100)},
    "12 % not 0, heavy tails, mean 0": (_mixed(0.12, _t), 0.0),
    "heavy tails, mean 0": (_t, 0.0),
    **{f"{share} % not 0, mean above 0": (_mixed(share / 100, _normal(0.5)), share / 200) for share in (12, 30)},
    **{f"{share} % not 0, all above 0": (_mixed(share / 100, _beta), share / 100 * 0.375) for share in (3, 12, 30)},
    "log-normal, all above 0": SCORES["log-normal"],
}


def of_mean(values: Values, truth: float, method: str, n: int, sets: int) -> Iterator[Outcome]:
    """Yield intervals of the mean of n scores."""
    for begin in range(0, sets, _BLOCK):
        columns = values(np.random.default_rng([begin, n]), (min(_BLOCK, sets - begin), n))
        for column, ends in zip(columns, intervals(columns, method, resamples=RESAMPLES, seed=begin), strict=True):
            yield from outcome(ends, truth, effective_studies(column))


def of_difference(values: Values, truth: float, n: int, sets: int) -> Iterator[Outcome]:
    """Yield intervals of the mean of n paired differences."""
    for seed in range(sets):
        (column,) = values(np.random.default_rng([seed, n]), (1, n))
        yield from outcome(
            paired_test(column, np.zeros(len(column)), RESAMPLES, seed).interval, truth, effective_studies(column)
        )


# What follows from several means


def of_ratio(name: str, n: int, sets: int) -> Iterator[Outcome]:
    """Yield intervals of the share of the way to an oracle, or of the change from random retrieval."""
    for seed in range(sets):
        rng = np.random.default_rng([seed, n])
        common = rng.gamma(2, 0.05, n)
        row = {name: common + up + rng.normal(0, 0.05, n) for name, up in (("r", 0.1), ("a", 0.3), ("o", 0.5))}
        means, how = resample_means(np.array([*row.values()]), RESAMPLES, seed), Resampling("bca", RESAMPLES, seed)
        cells = MetricCells(MetricColumn("bleu-2", True, n), row, means, how, {}, dict.fromkeys(row, 0))
        cell = cells.cells("r", {"bleu-2": "o"}, ())["a"]
        ends, truth = (cell.share_interval, 0.5) if name == "share" else (cell.change_interval, 100.0)
        yield from outcome(ends, truth, cell.effective)


def of_rates(rate: float, n: int, sets: int) -> Iterator[Outcome]:
    """Yield intervals of the ratio of two candidates' errors, the second with `rate` a report for each of 6 raters."""
    for seed in range(sets):
        rng = np.random.default_rng([seed, n])
        shared = np.exp(rng.normal(-0.2, 0.6, (n, 1)))
        counts = [rng.poisson(times * shared.repeat(6, axis=1)).mean(axis=1) for times in (1.5 * rate, rate)]
        test = study_test(*counts)
        low, high = test["ratio_low"], test["ratio_high"]
        yield from outcome(None if low is None or high is None else Interval(low, high), 1.5, n)


def _labelled(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of n reports and what a model says of them, bool[n, 14]; positive labels cluster in reports."""
    truth = rng.random((n, 14)) < _LABELS * rng.gamma(2, 0.5, (n, 1))
    return truth, rng.random((n, 14)) < np.where(truth, 0.7, 0.3 * _LABELS)


def _of_labels(truth: np.ndarray, given: np.ndarray, seed: int, resamples: int) -> dict[str, tuple[float, Interval]]:
    def crg(means: np.ndarray) -> np.ndarray:
        return crg_of_means(means, labels=14)[..., None]

    counts = [cells.sum(axis=1) for cells in (truth, truth & ~given, ~truth & given)]
    (of_crg,) = scored(np.array(counts, np.float64), crg, resamples, seed)
    of_f1 = f1_scores(truth, given, {"14": range(14)}, SRR_AVERAGES, resamples, seed)
    return {"CRG": of_crg, **{f"F1, {name}": one for (_, name), one in of_f1.items()}}


def of_labels(n: int, sets: int) -> Iterator[tuple[str, Outcome]]:
    """Yield intervals of CRG, and of the averages of F1 over 14 labels."""
    expected = _of_labels(*_labelled(np.random.default_rng(5), _LARGE), 0, 1)
    for seed in range(sets):
        truth, given = _labelled(np.random.default_rng([seed, n]), n)
        for name, (_, ends) in _of_labels(truth, given, seed, RESAMPLES).items():
            is_rare = "macro" in name and truth.sum(axis=0).min() < FEW_POSITIVE
            for one in outcome(ends, expected[name][0], 0 if is_rare else n):
                yield f"{name} of 14 labels, 2 to 40 % positive", one


def _counts(rng: np.random.Generator, n: int) -> Array:
    """Return the counts of BLEU-2 of two systems' reports, float64[2, 6, n]."""
    length, reference = rng.poisson(15, (2, n)) + 5
    skill = rng.beta(2, 3, n)
    matches = [rng.binomial(length, skill) for _ in range(2)]
    pairs = [rng.binomial(np.maximum(one - 1, 0), 0.6) for one in matches]
    both = [[one, two, length, length - 1, length, reference] for one, two in zip(matches, pairs, strict=True)]
    return np.array(both, np.float64)


def of_corpus(name: str, n: int, sets: int) -> Iterator[Outcome]:
    """Yield intervals of corpus BLEU, or of the difference of two systems that are equally good."""
    expected = float(corpus_bleu(_counts(np.random.default_rng(5), _LARGE)[0].sum(axis=1)))
    for seed in range(sets):
        means = corpus_means([*_counts(np.random.default_rng([seed, n]), n)], Resampling("bca", RESAMPLES, seed))
        if name == "corpus":
            yield from outcome(means.map(lambda both: both[..., 0]).interval(), expected, n)
        else:
            between = means.map(lambda both: both[..., 0] - both[..., 1])
            yield from outcome(acceptance_interval(between.resampled), 0, n)


def of_recall(recall: float, n: int, sets: int) -> Iterator[Outcome]:
    """Yield intervals of the share of n audited queries with a best report in the pool."""
    for hits in np.random.default_rng(n).binomial(n, recall, sets).tolist():
        yield Outcome((ends := binomial_interval(hits, n))[0] <= recall <= ends[1], False)


# Agreement with radiologists, and among them


def _rated(rng: np.random.Generator, studies: int) -> tuple[np.ndarray, np.ndarray]:
    """Return errors int64[6, P] of the same six raters, and two metrics float64[2, P], of 4 pairs a study."""
    n = 4 * studies
    severity = np.repeat(rng.normal(0, 0.8, studies), 4) + rng.normal(0, 0.9, n)
    strict, minding = np.random.default_rng(11).normal(0, 1, (2, 6, 1))
    errors = rng.poisson(np.exp(0.3 + 0.3 * strict + (0.7 + 0.2 * minding) * severity))
    shared = rng.normal(0, 1.44, n)
    return errors, np.array([np.round(-severity - shared - rng.normal(0, noise, n), 1) for noise in (1.5, 0.4)])


def _agreements(errors: np.ndarray, metrics: np.ndarray, drawn: DrawnStudies) -> Iterator[tuple[str, Array]]:
    truth = side(-errors.sum(axis=0), drawn)
    first, second = (side(metric, drawn) for metric in metrics)
    for name in RATED:
        yield name, STATISTICS[name](first, truth, drawn)
    yield _DIFFERENCE, STATISTICS["tau-b"](second, truth, drawn) - STATISTICS["tau-b"](first, truth, drawn)
    yield from zip(ICC, intraclass(errors, drawn.pairs), strict=True)
    same = np.mean([a == b for a, b in combinations(errors, 2)], axis=0)
    yield _EXACT, drawn.pairs @ same / drawn.pairs.sum(axis=1)


def rated(sets: int) -> Iterator[Row]:
    """Yield the rows of all statistics of rated sets, which share the sets."""
    sizes = [n for n in SIZES if n <= _LARGEST_RATED]
    outcomes: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    for n in sizes:
        for seed in range(sets):
            drawn = draw([str(study) for study in range(n) for _ in range(4)], RESAMPLES, seed)
            for name, values in _agreements(*_rated(np.random.default_rng([seed, n]), n), drawn):
                one = difference_row(values, RESAMPLES) if name == _DIFFERENCE else interval_row(name, values, drawn)
                if one is not None and one["low"] is not None:
                    effective = one["effective"] if name in (*ICC, _EXACT) else n
                    ends = one["low"], one["high"], effective, float(values[-1])
                    outcomes.setdefault((name, n), []).append(ends)
    for (name, n), of_sets in outcomes.items():
        truth = float(np.mean([value for *_, value in outcomes[name, max(sizes)]]))
        hits = [Outcome(low <= truth <= high, min(n, effective) < FEW) for low, high, effective, _ in of_sets]
        yield row("Rated sets, percentile", name, n, hits)


# All


def cases() -> Iterator[tuple[str, str, Case]]:
    """Yield the kind of interval, the shape of the data and what draws sets of it."""
    for method in ("bca", "percentile"):
        kind = f"Mean of scores, {'BCa (the default)' if method == 'bca' else 'percentile'}"
        for shape, (values, truth) in SCORES.items():
            yield kind, shape, partial(of_mean, values, truth, method)
    for shape, (values, truth) in DIFFERENCES.items():
        yield "Paired difference", shape, partial(of_difference, values, truth)
    other = "Other numbers of tables, BCa"
    yield other, "share of the way to an oracle", partial(of_ratio, "share")
    yield other, "change from random retrieval", partial(of_ratio, "change")
    yield other, "BLEU-2 of the corpus", partial(of_corpus, "corpus")
    others = "Other intervals"
    yield others, "difference of two systems' BLEU-2 of the corpus", partial(of_corpus, "difference")
    for rate in (1.0, 0.1):
        yield others, f"ratio of two candidates' errors, {rate:g} a report", partial(of_rates, rate)
    for recall in (0.8, 0.98):
        yield others, f"recall of a pool of {100 * recall:.0f} %", partial(of_recall, recall)


def row(kind: str, shape: str, n: int, outcomes: Sequence[Outcome]) -> Row:
    """Return a row: how many percent of the intervals hold the true value, and how many have a warning."""
    held, warned = (100 * float(np.mean(part)) for part in zip(*outcomes, strict=True))
    return {"name": f"{kind}: {shape}, {n}", "title": f"{kind}: {shape}, {n} studies", "kind": kind, "shape": shape,
            "n": n, "value": held, "warned": warned, "unit": "%", "sets": len(outcomes)}  # fmt: skip


def coverage(sets: int) -> Iterator[Row]:
    """Yield a row for each kind of interval, shape of the data and number of studies."""
    for kind, shape, case in cases():
        for n in SIZES:
            outcomes = list(case(n, sets))
            if outcomes:
                yield row(kind, shape, n, outcomes)
    for n in SIZES:
        of_shape: dict[str, list[Outcome]] = {}
        for shape, one in of_labels(n, sets):
            of_shape.setdefault(shape, []).append(one)
        yield from (row("Labels, BCa", shape, n, outcomes) for shape, outcomes in of_shape.items())
    yield from rated(sets)
