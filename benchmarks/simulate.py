"""What intervals and tests of a comparison of metrics are worth in simulated rated sets.

    python -m benchmarks.simulate [WORLDS]

A set has 50 studies with 4 candidates, rated by 6 radiologists; a few pairs have equal texts and no error. Printed are
how often the difference of two metrics' tau is found, beside the rule of intervals that do not overlap, and how often
95 % intervals hold what a large population has. Tests of `alignment` and `metric_comparison` have small parts of it.
"""

import sys

import numpy as np

from metric_oracle.evaluation.rank_agreement import Resamples, draw, side, tau_b
from metric_oracle.statistics import bootstrap_p

CANDIDATES, RATERS, EQUAL = 4, 6, 0.08
RESAMPLES = 400
SIDES = [0.025, 0.975]


def world(rng, studies, noises):
    """Return raters' errors int64[R, P], metrics float64[m, P] that share a part of what they miss, and equal texts."""
    n = studies * CANDIDATES
    severity = np.repeat(rng.normal(0, 0.8, studies), CANDIDATES) + rng.normal(0, 0.9, n)
    equal = rng.random(n) < EQUAL
    strict = rng.normal(0, 0.3, (RATERS, 1))
    errors = rng.poisson(np.where(equal, 0, np.exp(0.3 + 0.7 * severity + strict)))
    shared = rng.normal(0, 1.3, n)
    metrics = [np.where(equal, 5, np.round(-severity - shared - rng.normal(0, noise, n), 1)) for noise in noises]
    return errors, np.array(metrics), equal


def taus(errors, metrics, drawn, kept=None):
    """Return tau-b of each metric with the sum over raters in every resample."""
    kept = np.ones(errors.shape[1], bool) if kept is None else kept
    some = Resamples(drawn.studies, drawn.member[kept], drawn.pairs[:, kept])
    truth = side(-errors.sum(axis=0)[kept], some)
    return np.array([tau_b(side(one[kept], some), truth, some) for one in metrics])


def of_study(studies):
    """Return the study of each pair."""
    return [str(s) for s in range(studies) for _ in range(CANDIDATES)]


def truth_of(noises, seed, repeats=20, studies=120):
    """Return tau of each metric on all pairs and without equal texts, in a large population."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(repeats):
        errors, metrics, equal = world(rng, studies, noises)
        drawn = draw(of_study(studies), 1, 0)
        whole = Resamples(drawn.studies[-1:], drawn.member, drawn.pairs[-1:])
        found.append([taus(errors, metrics, whole)[:, -1], taus(errors, metrics, whole, ~equal)[:, -1]])
    return np.mean(found, axis=0)


def main(worlds=100):
    """Print what was found in some worlds."""
    for noises, name in (((1.3, 0.45), "two metrics that differ"), ((0.8, 0.8), "two metrics alike")):
        expected = truth_of(noises, 7)
        found = apart = 0
        inside = dict.fromkeys(("tau", "difference", "change to the set without equal texts", "raters drawn too"), 0)
        for seed in range(worlds):
            rng = np.random.default_rng([seed, 1])
            errors, metrics, equal = world(rng, 50, noises)
            drawn = draw(of_study(50), RESAMPLES, seed)
            whole, fewer = taus(errors, metrics, drawn), taus(errors, metrics, drawn, ~equal)
            ends = np.quantile(whole[:, :RESAMPLES], SIDES, axis=1)
            found += bootstrap_p(whole[1, :RESAMPLES] - whole[0, :RESAMPLES]) < 0.05
            apart += bool(ends[0, 1] > ends[1, 0] or ends[0, 0] > ends[1, 1])
            raters = np.random.default_rng([seed, 2]).integers(0, RATERS, (10, RATERS))
            both = np.concatenate(
                [
                    taus(errors[some], metrics[:1], Resamples(drawn.studies[i::10], drawn.member, drawn.pairs[i::10]))[
                        0
                    ]
                    for i, some in enumerate(raters)
                ]
            )
            for key, value, resampled in (
                ("tau", expected[0, 0], whole[0, :RESAMPLES]),
                ("difference", expected[0, 1] - expected[0, 0], (whole[1] - whole[0])[:RESAMPLES]),
                ("change to the set without equal texts", expected[1, 0] - expected[0, 0],
                 (fewer - whole)[0, :RESAMPLES]),
                ("raters drawn too", expected[0, 0], both),
            ):  # fmt: skip
                low, high = np.quantile(resampled, SIDES)
                inside[key] += bool(low <= value <= high)
        shown = ", ".join(f"{value:.3f}" for value in expected[0])
        print(f"{name}: tau {shown}, {worlds} worlds")
        print(f"  difference found {100 * found / worlds:.0f} %, intervals apart {100 * apart / worlds:.0f} %")
        print("  95 % intervals hold: " + ", ".join(f"{key} {100 * n / worlds:.1f} %" for key, n in inside.items()))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
