"""Failure modes of metrics: which errors radiologists find in the reports that a metric calls best.

Yu et al., Patterns 2023, tables S3 and S4 and figure 4. For each error category, every metric-oracle's counts are
compared with every other's by a one-sided two-sample t test with pooled variance; one point is one radiologist and one
study, so 6 x 50 = 300 against 300. (Points of one study are not independent, which the test does not know: a p-value is
as the paper defines it, not more.) The family of the Benjamini-Hochberg procedure is the directed pairs of one category
and one kind of errors: 12 for four oracles.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import permutations, product
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metric_oracle.corpora.raters import CATEGORIES, KINDS, ORACLES, Ratings, read_ratings
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError
from metric_oracle.evaluation.figures import new_figure, write_figure
from metric_oracle.evaluation.sheets import Sheet, fingerprint

DIRECTIONS = {"more": ">", "less": "<"}
_KIND_TITLES = {"total": "total number of errors", "significant": "number of clinically significant errors"}
_KIND_LABELS = {"total": "all errors", "significant": "clinically significant errors"}
_FUNCTION = "failure_modes"


@dataclass(frozen=True)
class FailureModes:
    """Errors by candidate type and category, and the tests between candidate types.

    Attributes
    ----------
    candidates : list of str
        Candidate types, A of them, in the order of table S3 where they are ReXVal's.
    categories : list of str
        C error categories.
    means : dict of float64[A, C]
        For each kind of errors ("total", "significant"), errors of a report, mean over raters and studies.
    tests : pyarrow.Table
        One row for each kind, category and directed pair: t statistic, p-value, Benjamini-Hochberg critical value,
        decision, means and numbers of points. The t statistic is null where it is infinite (no variation).
    signature : dict
        What is needed to compute the same numbers again.
    """

    candidates: list[str]
    categories: list[str]
    means: dict[str, npt.NDArray[np.float64]]
    tests: pa.Table
    signature: dict[str, Any]

    def sheets(self) -> list[Sheet]:
        """Return the tables of means in the layout of table S3 of Yu et al., then a table a test family, as in S4."""
        return [*self.mean_sheets(), *self.test_sheets()]

    def mean_sheets(self) -> list[Sheet]:
        """Return the two tables of means."""
        header = ["", *map(_error, self.categories), "Total"]
        note = f"Mean over {self.signature['raters']} radiologists and {self.signature['studies']:,} studies."
        legend = "; ".join(f"{_error(c)}: {CATEGORIES[c]}" for c in self.categories if c in CATEGORIES)
        return [
            Sheet(
                f"Radiologist evaluation in terms of {_KIND_TITLES[kind]}",
                header,
                [
                    [_shown(candidate), *(f"{value:.3f}" for value in (*row, row.sum()))]
                    for candidate, row in zip(self.candidates, self.means[kind], strict=True)
                ],
                [note, f"{legend}."] if legend else [note],
            )
            for kind in KINDS
        ]

    def test_sheets(self) -> list[Sheet]:
        """Return one table for each category and kind that was asked for."""
        records = self.tests.to_pylist()
        header = ["", "p-value", f"critical value, FDR {self.signature['rate']:g}", "significant"]
        found = []
        for category, kind in product(self.signature["categories"], KINDS):
            family = [r for r in records if (r["category"], r["errors"]) == (category, kind)]
            rows = [
                [
                    _comparison(r),
                    _scientific(r["p_value"]),
                    _scientific(r["critical_value"]),
                    "Y" if r["significant"] else "N",
                ]
                for r in family
            ]
            title = f"{_titled(category)}: {_KIND_TITLES[kind]}"
            note = f"One-sided two-sample t tests, pooled variance; Benjamini-Hochberg over these {len(rows)} tests."
            found.append(Sheet(title, header, rows, [note]))
        return found

    def found_sheet(self) -> Sheet:
        """Return the significant differences alone."""
        records = [r for r in self.tests.to_pylist() if r["significant"]]
        families = len(self.signature["categories"]) * len(KINDS)
        rows = [
            [
                _comparison(r),
                r["category"],
                "all" if r["errors"] == "total" else "sig.",
                f"{r['mean_a']:.3f}",
                f"{r['mean_b']:.3f}",
                _scientific(r["p_value"]),
                _scientific(r["critical_value"]),
            ]
            for r in records
        ]
        size = len(self.candidates) * (len(self.candidates) - 1)
        note = (
            f"First, second: mean errors of a report. {len(rows)} of {self.tests.num_rows} one-sided t tests, "
            f"{families} families of {size}, Benjamini-Hochberg at a false discovery rate of "
            f"{self.signature['rate']:g}; --category or --out shows all tests."
        )
        header = ["", "error", "counted", "first", "second", "p-value", "critical"]
        return Sheet("Significant differences", header, rows, [note])


def failure_modes(
    ratings: str | Path | Ratings,
    *,
    categories: Sequence[str] | None = None,
    direction: str = "more",
    rate: float = 0.01,
) -> FailureModes:
    """Compare the errors that radiologists found in the reports of several metric-oracles.

    Parameters
    ----------
    ratings : path or Ratings
        See :func:`metric_oracle.corpora.raters.read_ratings`; its pairs must have candidate types.
    categories : sequence of str
        Error categories to test; by default all.
    direction : {"more", "less"}
        How a test is written: "A > B" (A has more errors) or "A < B". The directed pairs are the same tests.
    rate : float
        False discovery rate within one category and one kind of errors.

    Returns
    -------
    FailureModes
    """
    if direction not in DIRECTIONS:
        msg = f"failure_modes: direction must be one of {', '.join(DIRECTIONS)}; got {direction!r}. Choose one."
        raise InputError(msg)
    if not 0 < rate < 1:
        msg = f"failure_modes: rate must be between 0 and 1; got {rate}. The paper takes 0.01."
        raise InputError(msg)
    rated = ratings if isinstance(ratings, Ratings) else read_ratings(ratings)
    candidates = list(dict.fromkeys(rated.candidates or ()))
    if len(candidates) < 2:
        msg = (
            f"failure_modes: ratings must hold at least 2 candidate types to compare; got {len(candidates)}. "
            "Add a column candidate_type."
        )
        raise InputError(msg)
    wanted = list(dict.fromkeys(rated.categories if categories is None else categories))
    unknown = [category for category in wanted if category not in rated.categories]
    if unknown or not wanted:
        msg = (
            f"failure_modes: categories must be among {shown_names(rated.categories)}; got "
            f"{shown_names(unknown) or 'none'}. Correct --category."
        )
        raise InputError(msg)
    points = {}  # one for each rater and study: float64[n, C]
    for kind, candidate in product(KINDS, candidates):
        of_candidate = rated.errors(kind)[[name == candidate for name in rated.candidates or ()]]
        points[kind, candidate] = of_candidate.reshape(-1, len(rated.categories)).astype(np.float64)
    few = min(len(values) for values in points.values())
    if few < 2:
        msg = (
            f"failure_modes: ratings must hold at least 2 points (rater x study) of each candidate type; got {few}. "
            "Rate more studies."
        )
        raise InputError(msg)

    pairs = list(permutations(candidates, 2))
    records: list[dict[str, Any]] = []
    for category, kind in product(wanted, KINDS):
        place = rated.categories.index(category)
        sides = [[points[kind, name][:, place] for name in side] for side in zip(*pairs, strict=True)]
        t, p_values = pooled_t_tests(sides[0], sides[1], direction)
        critical, decisions = benjamini_hochberg(p_values, rate)
        for i, (a, b) in enumerate(pairs):
            records.append(
                {
                    "errors": kind,
                    "category": category,
                    "a": a,
                    "direction": DIRECTIONS[direction],
                    "b": b,
                    "t": float(t[i]) if np.isfinite(t[i]) else None,
                    "p_value": float(p_values[i]),
                    "critical_value": float(critical[i]),
                    "significant": bool(decisions[i]),
                    "mean_a": float(sides[0][i].mean()),
                    "mean_b": float(sides[1][i].mean()),
                    "n_a": len(sides[0][i]),
                    "n_b": len(sides[1][i]),
                }
            )
    means = {kind: np.array([points[kind, name].mean(axis=0) for name in candidates]) for kind in KINDS}
    signature: dict[str, Any] = {
        "command": "failure-modes",
        "ratings": fingerprint(Path(ratings)) if isinstance(ratings, str | Path) else rated.source,
        "test": "two-sample t, pooled variance, one-sided",
        "procedure": "Benjamini-Hochberg within one category and one kind of errors",
        "rate": rate,
        "direction": direction,
        "categories": wanted,
        "pairs": len(rated.pairs),
        "studies": len(set(rated.studies)),
        "raters": len(rated.raters),
        "version": version("metric-oracle"),
    }
    return FailureModes(candidates, rated.categories, means, pa.Table.from_pylist(records), signature)


def pooled_t_tests(
    a: Sequence[npt.NDArray[np.float64]], b: Sequence[npt.NDArray[np.float64]], direction: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return t and p of one-sided tests of equal means, pooled variance, one for each pair of samples.

    Two samples without any variation and with one mean give no reason to reject: t = 0, p = 1.
    """
    from scipy.stats import ttest_ind_from_stats

    summaries = [np.array([[sample.mean(), sample.std(ddof=1), len(sample)] for sample in side]).T for side in (a, b)]
    alternative = "greater" if direction == "more" else "less"
    with np.errstate(divide="ignore", invalid="ignore"):
        t, p_values = ttest_ind_from_stats(*summaries[0], *summaries[1], equal_var=True, alternative=alternative)
    undefined = np.isnan(t)
    return np.where(undefined, 0.0, t), np.where(undefined, 1.0, p_values)


def benjamini_hochberg(
    p_values: Sequence[float] | npt.NDArray[np.float64], rate: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the critical value of each p-value, and whether it is significant (Benjamini and Hochberg, 1995).

    Parameters
    ----------
    p_values : float64[m]
        Of one family.
    rate : float
        False discovery rate.

    Returns
    -------
    critical : float64[m]
        rank x rate / m; equal p-values are ranked in the order given.
    significant : bool[m]
        True up to the largest p-value that does not exceed its critical value.
    """
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values, kind="stable")
    by_rank = np.arange(1, len(order) + 1) * rate / len(order)
    passing = np.flatnonzero(p_values[order] <= by_rank)
    critical = np.empty(len(order))
    critical[order] = by_rank
    significant = np.zeros(len(order), np.bool_)
    significant[order[: passing[-1] + 1 if len(passing) else 0]] = True
    return critical, significant


def plot_failure_modes(found: FailureModes, path: str | Path) -> None:
    """Draw mean errors by category and candidate type, with a star over significant differences: figure 4 of Yu et al.

    Parameters
    ----------
    found : FailureModes
    path : path
        Ends with .png, .svg or .pdf.
    """
    n = len(found.candidates)
    width = 0.8 / n
    figure = new_figure(_FUNCTION, max(1.6 * len(found.categories), 6), 7)
    panels = figure.subplots(len(KINDS), 1, sharex=True)
    tests = [r for r in found.tests.to_pylist() if r["significant"]]
    for panel, kind in zip(panels, KINDS, strict=True):
        means = found.means[kind]
        places = np.arange(len(found.categories)) + (np.arange(n)[:, None] - (n - 1) / 2) * width
        for candidate, x, heights in zip(found.candidates, places, means, strict=True):
            panel.bar(x, heights, width * 0.92, label=_shown(candidate))
        step = 0.06 * max(means.max(), 1e-9)
        for place, category in enumerate(found.categories):
            top = means[:, place].max()
            for record in (r for r in tests if (r["errors"], r["category"]) == (kind, category)):
                top += step
                ends = [places[found.candidates.index(record[side]), place] for side in ("a", "b")]
                panel.plot(ends, [top, top], color="black", linewidth=0.9)
                panel.text(sum(ends) / 2, top, "*", ha="center", va="baseline", fontsize=10)
        panel.margins(y=0.08)
        panel.set_ylabel(f"{_KIND_LABELS[kind]} of a report, mean", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, ncols=n, fontsize=9)
    labels = [fill(_titled(category), 22) for category in found.categories]
    panels[-1].set_xticks(range(len(labels)), labels, fontsize=8)
    panels[-1].set_xlabel(f"* significant difference, Benjamini-Hochberg at {found.signature['rate']:g}", fontsize=8)
    write_figure(Path(path), figure, _FUNCTION)


def _shown(candidate: str) -> str:
    return ORACLES.get(candidate, candidate)


def _error(category: str) -> str:
    return f"Error {category}" if category.isdecimal() else category


def _titled(category: str) -> str:
    return f"{_error(category)} ({CATEGORIES[category]})" if category in CATEGORIES else _error(category)


def _comparison(record: dict[str, Any]) -> str:
    return f"{_shown(record['a'])} {record['direction']} {_shown(record['b'])}"


def _scientific(value: float) -> str:
    """Write a number as the paper does: 3.79e-3."""
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits}e{int(exponent)}"
