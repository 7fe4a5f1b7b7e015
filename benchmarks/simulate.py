"""What intervals and tests of evaluations are worth in made-up data: ``python -m benchmarks.simulate``.

A rated set has 50 studies with 4 candidates; a few pairs have equal texts and no error; the raters differ in how strict
they are and in how much they mind what is severe. Measured are how often the difference of two metrics' tau is found,
beside the rule of intervals that do not overlap, and how often 95 % intervals hold what a large population has: of
intervals that keep the raters, with the same six raters in all sets; of those for other raters, with raters of its own
in each set. The tests of these intervals have small parts of it. ``benchmarks.coverage`` has the other intervals, by
number of studies.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks import machine
from benchmarks.coverage import coverage
from benchmarks.machine import Row
from metric_oracle.findings.results import Scores
from metric_oracle.raters.failure_modes import study_test
from metric_oracle.raters.interrater import draw_raters, other_raters
from metric_oracle.raters.rank_correlation import DrawnStudies, accuracy, draw, side, spearman, tau_b, tau_within
from metric_oracle.statistics import bootstrap_p, resample_means
from metric_oracle.tables.compare import compare
from metric_oracle.tables.table_cells import crg_of_means

STUDIES, CANDIDATES, EQUAL = 50, 4, 0.08
RESAMPLES = 400
SIDES = [0.025, 0.975]
COVERAGE = (92.0, 97.0)
Values = dict[str, np.ndarray]


class World(NamedTuple):
    """What rated sets are drawn from.

    Attributes
    ----------
    noises : (float, float)
        Of the two metrics, each in what it alone misses.
    raters : int
    leaning : float
        How differently raters mind a kind of finding that only the second metric sees.
    same : bool
        Whether all sets have the same raters.
    """

    noises: tuple[float, float]
    raters: int = 6
    leaning: float = 0.0
    same: bool = False

    def draw(self, rng: np.random.Generator, studies: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return raters' errors int64[R, P], metrics float64[2, P] that share what they miss, and equal texts."""
        n = studies * CANDIDATES
        severity = np.repeat(rng.normal(0, 0.8, studies), CANDIDATES) + rng.normal(0, 0.9, n)
        finding, shared = rng.normal(0, 1, n), rng.normal(0, 1.44, n)
        equal = rng.random(n) < EQUAL
        traits = (np.random.default_rng(11) if self.same else rng).normal(0, 1, (3, self.raters, 1))
        strict, minding, liking = 0.3 * traits[0], 0.7 + 0.2 * traits[1], self.leaning * traits[2]
        errors = rng.poisson(np.where(equal, 0, np.exp(0.3 + strict + minding * severity + liking * finding)))
        seen = [0.0, self.leaning]
        metrics = [
            np.where(equal, 5, np.round(-severity - some * finding - shared - rng.normal(0, noise, n), 1))
            for some, noise in zip(seen, self.noises, strict=True)
        ]
        return errors, np.array(metrics), equal


def of_study(studies: int) -> list[str]:
    """Return the study of each pair."""
    return [str(study) for study in range(studies) for _ in range(CANDIDATES)]


def statistics(errors: np.ndarray, metrics: np.ndarray, equal: np.ndarray, drawn: DrawnStudies) -> Values:
    """Return what is compared, over all resamples: float64[B + S + 1] each, or longer for `other_raters`."""
    truth, (a, b) = side(-errors.sum(axis=0), drawn), (side(metric, drawn) for metric in metrics)
    first, second = tau_b(a, truth, drawn), tau_b(b, truth, drawn)
    fewer, rest = drawn.subset(~equal), -errors[:, ~equal].sum(axis=0)
    panels = [-np.delete(errors, rater, axis=0).sum(axis=0) for rater in range(len(errors))]
    apart = [
        tau_b(a, others, drawn) - tau_b(side(-own, drawn), others, drawn)
        for own, others in zip(errors, (side(panel, drawn) for panel in panels), strict=True)
    ]
    return {
        "tau": first,
        "second": second,
        "rho": spearman(a, truth, drawn),
        "within": tau_within(a, truth, drawn),
        "accuracy": accuracy(a, truth, drawn),
        "difference": second - first,
        "change": tau_b(side(metrics[0][~equal], fewer), side(rest, fewer), fewer) - first,
        "ceiling": np.mean(apart, axis=0),
    }


def by_raters(errors: np.ndarray, metrics: np.ndarray, drawn: DrawnStudies, seed: int) -> Values:
    """Return tau of the first metric and the difference of the two, as other raters would have them."""
    n = drawn.studies.shape[1]
    fewer = drawn.left_out
    taus = []
    for metric in metrics:
        parts = [tau_b(side(metric, drawn), side(-errors.sum(axis=0), drawn), drawn)]
        of_metric = side(metric, fewer)
        for rater in range(len(errors)):
            panel = side(-np.delete(errors, rater, axis=0).sum(axis=0), fewer)
            parts.append(tau_b(of_metric, panel, fewer))
        taus.append(np.concatenate(parts))
    draws = draw_raters(len(errors), RESAMPLES, seed)
    return {"tau": other_raters(taus[0], draws, n), "difference": other_raters(taus[1] - taus[0], draws, n)}


def population(world: World, repeats: int, studies: int = 60) -> dict[str, float]:
    """Return what a large population has: the mean over many sets, each with raters of its own."""
    rng = np.random.default_rng(7)
    drawn = draw(of_study(studies), 1, 0)
    whole = DrawnStudies(drawn.studies[-1:], drawn.study, drawn.group)
    found = [statistics(*world.draw(rng, studies), whole) for _ in range(repeats)]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def rated_sets(world: World, n: int) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray, DrawnStudies]]:
    """Yield the seed, a set and its resamples."""
    for seed in range(n):
        yield seed, *world.draw(np.random.default_rng([seed, 1]), STUDIES), draw(of_study(STUDIES), RESAMPLES, seed)


def holds(resampled: np.ndarray, value: float) -> bool:
    """Tell whether the percentile interval of resamples holds a value."""
    low, high = np.quantile(resampled[:RESAMPLES], SIDES)
    return bool(low <= value <= high)


def row(name: str, title: str, hits: Sequence[bool], least: float | None, most: float | None) -> Row:
    """Return a row: how many percent of the sets."""
    value = 100 * float(np.mean(hits))
    met = None if least is None and most is None else (least or 0) <= value <= (100 if most is None else most)
    return {"name": name, "title": title, "value": value, "unit": "%", "sets": len(hits), "least": least, "most": most,
            "met": met}  # fmt: skip


def differences(n: int) -> Iterator[Row]:
    """Yield how often two metrics are told apart, and coverage of all that is compared, the raters as they are."""
    apart, alike = World((1.5, 0.4), same=True), World((0.8, 0.8), same=True)
    expected = population(apart, n)
    found: list[bool] = []
    by_rule: list[bool] = []
    inside: dict[str, list[bool]] = {name: [] for name in expected}
    for _, errors, metrics, equal, drawn in rated_sets(apart, n):
        values = statistics(errors, metrics, equal, drawn)
        for name, hits in inside.items():
            hits.append(holds(values[name], expected[name]))
        found.append(bootstrap_p(values["difference"][:RESAMPLES]) < 0.05)
        ends = [np.quantile(values[name][:RESAMPLES], SIDES) for name in ("tau", "second")]
        by_rule.append(bool(ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]))
    taus = f"tau {expected['tau']:.2f} and {expected['second']:.2f}"
    yield row("found", f"Two metrics that differ ({taus}) told apart by their difference", found, 70, None)
    yield row("found-by-overlap", "The same told apart by intervals that do not overlap", by_rule, None, None)
    false = []
    for _, errors, metrics, _, drawn in rated_sets(alike, n):
        truth = side(-errors.sum(axis=0), drawn)
        a, b = (tau_b(side(metric, drawn), truth, drawn) for metric in metrics)
        false.append(bootstrap_p((b - a)[:RESAMPLES]) < 0.05)
    yield row("found-falsely", "Two metrics that are equally good told apart", false, None, 7)
    for name, title in (
        ("tau", "tau-b"),
        ("rho", "Spearman's rho"),
        ("within", "tau-b within studies"),
        ("accuracy", "pairwise accuracy"),
        ("difference", "difference of two metrics' tau"),
        ("change", "change of tau without pairs of equal texts"),
        ("ceiling", "tau less that of a radiologist left out"),
    ):
        yield row(f"coverage-{name}", f"95 % interval holds: {title}", inside[name], *COVERAGE)


def raters(n: int) -> Iterator[Row]:
    """Yield coverage of intervals for other raters; the last raters weigh findings very differently."""
    for world, what, goal in (
        (World((1.5, 0.4), 2), "2 raters", COVERAGE),
        (World((1.5, 0.4), 4), "4 raters", COVERAGE),
        (World((1.5, 0.4), 6), "6 raters", COVERAGE),
        (World((1.0, 0.4), 4, 0.8), "4 raters who weigh findings very differently", (None, None)),
    ):
        expected = population(world, n)
        inside: dict[str, list[bool]] = {"tau": [], "difference": []}
        fixed: list[bool] = []
        for seed, errors, metrics, _, drawn in rated_sets(world, n):
            values = by_raters(errors, metrics, drawn, seed)
            for name, hits in inside.items():
                hits.append(holds(values[name], expected[name]))
            if world.leaning:
                truth = side(-errors.sum(axis=0), drawn)
                a, b = (tau_b(side(metric, drawn), truth, drawn) for metric in metrics)
                fixed.append(holds(b - a, expected["difference"]))
        key = f"{world.raters}-leaning" if world.leaning else f"{world.raters}"
        for name, title in (("tau", "tau-b"), ("difference", "difference of two metrics' tau")):
            yield row(f"raters-{key}-{name}", f"For other raters, {what}: {title}", inside[name], *goal)
        if fixed:
            title = f"The raters fixed, {what}: difference of two metrics' tau"
            yield row(f"raters-{key}-fixed", title, fixed, *goal)


def made(values: np.ndarray) -> Scores:
    """Return scores as a file of `oracle score` has them."""
    ids = [f"s{i}" for i in range(len(values))]
    signature = {"kind": "scores", "system": "x", "metrics": {"bleu-2": {"options": {"order": 2}}}, "references": "0"}
    return Scores(pa.table({"query_id": ids, "bleu-2": values}), signature | {"n": len(ids), "version": "0"})


def tables(n: int) -> Iterator[Row]:
    """Yield coverage of what a table and the failure modes print beside means."""
    inside: dict[str, list[bool]] = {"share": [], "percent-change": [], "ratio": [], "crg": []}
    labels, rate, wrong = 13, 0.25, 0.2
    big = labelled(np.random.default_rng(5), 400_000, labels, rate, wrong)
    crg = float(crg_of_means(big.mean(axis=1), labels))
    for seed in range(n):
        rng = np.random.default_rng([seed, 3])
        common = rng.gamma(2, 0.05, 60)
        values = {name: common + up + rng.normal(0, 0.05, 60) for name, up in (("r", 0.1), ("a", 0.3), ("o", 0.5))}
        scores = {name: made(column) for name, column in values.items()}
        cell = compare(scores, random="r", oracles={"bleu-2": "o"}, resamples=RESAMPLES, seed=seed).cells["a", "bleu-2"]
        for name, ends, value in (("share", cell.share_interval, 0.5), ("percent-change", cell.change_interval, 100.0)):
            inside[name].append(ends is not None and ends.low <= value <= ends.high)
        shared = np.exp(rng.normal(-0.2, 0.6, (50, 1)))
        counts = [rng.poisson(times * shared.repeat(6, axis=1)).mean(axis=1) for times in (1.5, 1.0)]
        found = study_test(*counts)
        inside["ratio"].append(bool((found["ratio_low"] or 0) <= 1.5 <= (found["ratio_high"] or 0)))
        means = resample_means(labelled(rng, 60, labels, rate, wrong), RESAMPLES, seed)
        interval = means.map(lambda some: crg_of_means(some, labels)).interval()
        inside["crg"].append(interval is not None and interval.low <= crg <= interval.high)
    for name, title in (
        ("share", "share of the way to an oracle, 60 studies"),
        ("percent-change", "change from random retrieval in percent, 60 studies"),
        ("ratio", "ratio of two candidates' errors by study"),
        ("crg", "CRG, 60 reports"),
    ):
        yield row(f"coverage-{name}", f"95 % interval holds: {title}", inside[name], *COVERAGE)


def labelled(rng: np.random.Generator, n: int, labels: int, rate: float, wrong: float) -> np.ndarray:
    """Return positive labels, false negatives and false positives of each report, float64[3, n]: they cluster."""
    truth = rng.random((n, labels)) < rate * rng.gamma(1, 1, (n, 1))
    given = truth ^ (rng.random((n, labels)) < wrong)
    return np.array([cells.sum(axis=1) for cells in (truth, truth & ~given, ~truth & given)], np.float64)


PARTS: tuple[Callable[[int], Iterator[Row]], ...] = (differences, raters, tables, coverage)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate; return the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.simulate", description=__doc__)
    parser.add_argument("--sets", type=int, default=400, help="of each kind (%(default)s)")
    machine.add_out(parser, "simulation")
    options = parser.parse_args(arguments)
    results = machine.Results("simulation", options.out)
    for part in PARTS:
        for one in part(options.sets):
            print(f"{one['title']}: {one['value']:.1f} %", flush=True)
            results.add(one)
    print(f"rows: {results.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
