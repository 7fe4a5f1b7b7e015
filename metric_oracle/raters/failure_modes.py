"""Failure modes of metrics: the errors that radiologists find in the reports that a metric ranks best.

Tables S3 and S4 and figure 4 of Yu et al. (Patterns 2023). For each error category, the counts of each metric-oracle
are compared with those of every other one by a one-sided two-sample t test with pooled variance. A point is one
radiologist and one study, that is 6 x 50 = 300 points against 300. The test ignores that the points of a study are
dependent: for equal candidates it rejects up to four times too often where raters agree, and too seldom where studies
differ. A paired t test of the studies' means is therefore added, and the ratio of the two error rates with an interval
over studies.

A family of the Benjamini-Hochberg procedure is one category and one kind of errors. The paper's family has both
directions of each difference, 12 tests for four oracles, with p and 1 - p. The family by study has each difference
once, 6 two-sided tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, cycle, permutations, product
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import IN_PYTHON, Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import identify
from metric_oracle.base.validation import public
from metric_oracle.findings.cells import NOTHING, Format, Row, number_of, over, scientific_of, text_of
from metric_oracle.findings.figures import BARS, GREY, INK, LETTER, MEDIUM, WIDTH, finish, literal, new_figure
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, listing, pivot
from metric_oracle.findings.signature import signed
from metric_oracle.raters.names import KIND_TITLES, candidate_name, category_title, error_name
from metric_oracle.raters.ratings import CATEGORIES, KINDS, AnyRatings, Ratings, read_ratings
from metric_oracle.statistics import LEVEL, Array, adjusted, benjamini_hochberg, difference, few_studies, varies

DIRECTIONS = {"more": ">", "less": "<"}


@dataclass(frozen=True, repr=False)
class FailureModes(Finding):
    """Errors by candidate type and category, and the tests between candidate types.

    Attributes
    ----------
    candidates : list of str
        Candidate types, A of them, in the order of table S3 where they are ReXVal's.
    categories : list of str
        C error categories.
    means : dict of float64[A, C]
        For each kind of errors ("total", "significant"), errors of a report, mean over raters and studies.
    table : pyarrow.Table
        The tests. One row for each kind, category and directed pair: t statistic, p-value, Benjamini-Hochberg critical
        value, decision, means and numbers of points of the paper's test. The columns ``study_`` are those of the test
        of the studies' means, with the ratio of the rates a / b and its 95 % interval. This test is two-sided, the same
        for both rows of a pair; ``study_significant`` is true in the row whose direction the difference has. A t
        statistic is null if it is infinite (no variation), a ratio if a rate is 0.
    signature : dict
        What is needed to compute the same numbers again.
    """

    candidates: list[str]
    categories: list[str]
    means: dict[str, npt.NDArray[np.float64]]
    table: pa.Table
    signature: dict[str, Any]

    def summary(self) -> str:
        """Return one line that says what was compared."""
        by_paper, by_study = (sum(self.table[name].to_pylist()) for name in ("significant", "study_significant"))
        return (
            f"{self.table.num_rows} tests between {len(self.candidates)} candidate types on "
            f"{self.signature['studies']:,} studies: {by_paper} significant by the paper's test, {by_study} by study"
        )

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the tests with care."""
        return few_studies({"": self.signature["studies"]}, "intervals and tests say little")

    def tables(self) -> list[PaperTable]:
        """Return the tables of means as in table S3 of Yu et al., then one table for each family of tests (S4)."""
        rows = self.records()
        columns = _test_columns(f"critical value, FDR {self.signature['rate']:g}")
        note = f"One-sided two-sample t tests, pooled variance. {self._families()}"
        families = [
            listing(
                f"{category_title(category)}: {KIND_TITLES[kind]}",
                [row for row in rows if (row["category"], row["errors"]) == (category, kind)],
                _comparison,
                columns,
                [note, _BY_STUDY_NOTE],
            )
            for category, kind in product(self.signature["categories"], KINDS)
        ]
        return [*self._means(), *families]

    def brief(self) -> list[PaperTable]:
        """Return the tables of means, and the differences that are significant in either test."""
        rows = [r for r in self.records() if r["significant"] or r["study_significant"]]
        by_paper, by_study = (sum(r[name] for r in rows) for name in ("significant", "study_significant"))
        n = self.table.num_rows
        note = (
            f"First, second: mean errors of a report. {by_paper} of {n} one-sided t tests, by study {by_study} of "
            f"{n // 2}, at a false discovery rate of {self.signature['rate']:g} in each family. {self._families()} "
            "All tests are in the tables of chosen categories and in result files."
        )
        columns = {
            "error": text_of("category"),
            "counted": _counted,
            "first": number_of("mean_a", ".3f"),
            "second": number_of("mean_b", ".3f"),
            **_test_columns("critical"),
        }
        significant = listing("Significant differences", rows, _comparison, columns, [note, _BY_STUDY_NOTE])
        return [*self._means(), significant]

    def shown(self, tables: Sequence[PaperTable] | None = None) -> list[Any]:
        """Return what a terminal shows: every test of chosen categories, or else the significant differences."""
        is_chosen = self.signature["categories"] != self.categories
        return super().shown(tables if tables or is_chosen else self.brief())

    def _means(self) -> list[PaperTable]:
        """Return a table of mean errors for each kind of errors."""
        heads = [*map(error_name, self.categories), "Total"]
        note = f"Mean over {self.signature['raters']} radiologists and {self.signature['studies']:,} studies."
        legend = "; ".join(f"{error_name(c)}: {CATEGORIES[c]}" for c in self.categories if c in CATEGORIES)
        notes = [note, *([f"{legend}."] if legend else []), *self.warnings()]
        return [
            pivot(
                f"Radiologist evaluation in terms of {KIND_TITLES[kind]}",
                [
                    {"candidate": candidate_name(candidate), "head": head, "mean": value}
                    for candidate, row in zip(self.candidates, self.means[kind], strict=True)
                    for head, value in zip(heads, (*row, row.sum()), strict=True)
                ],
                "candidate",
                "head",
                number_of("mean", ".3f"),
                notes,
            )
            for kind in KINDS
        ]

    def _families(self) -> str:
        """Return the sentence that says over which tests p-values are adjusted."""
        size = self.signature["tests_in_family"]
        return (
            f"Benjamini-Hochberg within {self.signature['families']} families, one for each category and kind of "
            f"errors: of the paper's tests {size['paper']} in each, both directions of a difference with p and 1 - p; "
            f"by study {size['by_study']}, each difference once."
        )

    def figure(self, width: float | None = None) -> Any:
        """Return a Matplotlib figure: mean errors by category and candidate type, a star over significant differences.

        Figure 4 of Yu et al. By default it is 180 millimetres wide.
        """
        n = len(self.candidates)
        thick = 0.8 / n
        figure = new_figure(width or WIDTH, 125)
        panels = figure.subplots(len(KINDS), 1, sharex=True)
        tests = [r for r in self.records() if r["significant"]]
        for panel, (kind, label) in zip(panels, _KIND_LABELS.items(), strict=True):
            means = self.means[kind]
            centres = np.arange(len(self.categories)) + (np.arange(n)[:, None] - (n - 1) / 2) * thick
            for candidate, x, heights, (colour, hatch) in zip(
                self.candidates, centres, means, cycle(BARS), strict=False
            ):
                name = literal(candidate_name(candidate))
                edge = {"edgecolor": GREY, "linewidth": 0.5, "hatch": hatch}
                panel.bar(x, heights, thick * 0.92, label=name, color=colour, **edge)
            step = 0.06 * max(means.max(), 1e-9)
            for column, category in enumerate(self.categories):
                top = means[:, column].max()
                for row in (r for r in tests if (r["errors"], r["category"]) == (kind, category)):
                    top += step
                    ends = [centres[self.candidates.index(row[side]), column] for side in ("a", "b")]
                    panel.plot(ends, [top, top], color=INK, linewidth=0.7)
                    panel.text(sum(ends) / 2, top, "*", ha="center", va="baseline", fontsize=MEDIUM)
            panel.margins(y=0.08)
            panel.set_ylabel(fill(f"{label} of a report, mean", 32))
        panels[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=n)
        letters = max(int(0.8 * (width or WIDTH) / len(self.categories) / LETTER), 8)
        labels = [fill(literal(category_title(category)), letters) for category in self.categories]
        panels[-1].set_xticks(range(len(labels)), labels)
        note = f"* significant difference, Benjamini-Hochberg at {self.signature['rate']:g}"
        panels[-1].set_xlabel(note)
        return finish(figure)


def _comparison(row: Row) -> str:
    return f"{candidate_name(row['a'])} {row['direction']} {candidate_name(row['b'])}"


def _counted(row: Row) -> str:
    return "all" if row["errors"] == "total" else "sig."


def _significant(row: Row) -> str:
    return "Y" if row["significant"] else "N"


def _significant_by_study(row: Row) -> str:
    return NOTHING if row["study_p_value"] is None else "Y" if row["study_significant"] else "N"


def _ratio(row: Row) -> str:
    return over(row["rate_ratio"], row["ratio_low"], row["ratio_high"], ".2f").replace("\n", " ")


def _test_columns(critical: str) -> dict[str, Format]:
    """Return the columns of a test; `critical` is the head of the critical value."""
    return {
        "p-value": scientific_of("p_value"),
        critical: scientific_of("critical_value"),
        "significant": _significant,
        "rate ratio": _ratio,
        "p by study": scientific_of("study_p_value"),
        "significant by study": _significant_by_study,
    }


_BY_STUDY_NOTE = (
    "By study: paired t tests of the studies' means, two-sided, so that both rows of a pair have one p and Y stands in "
    "the row that it speaks for; rate ratio: errors of the first by those of the second, 95 % interval over studies. "
    "The paper's test takes each rater's count for independent, and errs in either direction where raters agree or "
    "studies differ."
)
_KIND_LABELS = {"total": "all errors", "significant": "clinically significant errors"}


@public
def failure_modes(
    ratings: AnyRatings,
    *,
    categories: Annotated[
        Sequence[str] | None,
        Doc("Error categories to test, by their names or numbers in `ratings`. By default all are tested."),
        Flag("--category", metavar="N", kind=list[str]),
    ] = None,
    direction: Annotated[
        Literal["more", "less"],
        Doc('How a test is written: "A > B" (A has more errors) or "A < B". The tests are the same.'),
        IN_PYTHON,
    ] = "more",
    rate: Annotated[
        option_types.Rate,
        Doc(
            "Level at which the false discovery rate of the tests within one category and one kind of errors is "
            "controlled, between 0 and 1."
        ),
        Flag(metavar="Q"),
    ] = 0.01,
) -> FailureModes:
    """Compare the errors that radiologists counted in the reports of several metric-oracles, by error category.

    The pairs must have candidate types. Each category is tested for all errors and for the clinically significant ones.
    The command shows the means on a terminal, and the significant differences or, with `categories`, every test; a file
    contains all tests.

    Returns
    -------
    FailureModes
        Mean errors by candidate type and category, and the tests between candidate types.

    Raises
    ------
    InputError
        If the file cannot be read, pairs have no candidate types, there is no such category, or an option breaks its
        rule.

    Examples
    --------
    >>> mo.failure_modes("ratings.csv").candidates
    ['bleu', 's_emb', 'bertscore', 'radgraph']
    """
    rated = ratings if isinstance(ratings, Ratings) else read_ratings(ratings)
    candidates = _candidates(rated)
    wanted = _wanted(rated, categories)
    points = _points(rated, candidates)
    means_of = _study_means(rated, candidates)
    rows: list[dict[str, Any]] = []
    for category, kind in product(wanted, KINDS):
        column = rated.categories.index(category)
        family = _Family(
            category,
            kind,
            {name: points[kind, name][:, column] for name in candidates},
            {name: means_of[kind, name][:, column] for name in candidates},
        )
        rows += family.tests(direction, rate)
    means = {kind: np.array([points[kind, name].mean(axis=0) for name in candidates]) for kind in KINDS}
    n_tests = len(list(permutations(candidates, 2)))
    signature = signed(
        command="failure-modes",
        ratings=identify(Path(ratings)) if isinstance(ratings, str | Path) else rated.source,
        test="two-sample t, pooled variance, one-sided",
        test_by_study="paired t of the means of studies, two-sided",
        procedure="Benjamini-Hochberg within one category and one kind of errors",
        families=2 * len(wanted),
        tests_in_family={"paper": n_tests, "by_study": n_tests // 2},
        rate=rate,
        direction=direction,
        categories=wanted,
        pairs=len(rated.pairs),
        studies=len(set(rated.studies)),
        raters=len(rated.raters),
    )
    return FailureModes(candidates, rated.categories, means, pa.Table.from_pylist(rows, _SCHEMA), signature)


def _candidates(rated: Ratings) -> list[str]:
    """Return the candidate types of the ratings; raise InputError if there are fewer than two."""
    candidates = list(dict.fromkeys(rated.candidates or ()))
    if len(candidates) < 2:
        raise InputError(
            "ratings",
            "must hold at least 2 candidate types to compare",
            f"{len(candidates)}",
            "Add a column candidate_type.",
        )
    return candidates


def _wanted(rated: Ratings, categories: Sequence[str] | None) -> list[str]:
    """Return the categories to test, each once; raise InputError if there is none, or one that nobody rated."""
    wanted = list(dict.fromkeys(rated.categories if categories is None else categories))
    unknown = [category for category in wanted if category not in rated.categories]
    if unknown or not wanted:
        raise InputError(
            "categories",
            f"must be among {shown(*rated.categories)}",
            f"{shown(*unknown) or 'none'}",
            "Correct `categories`.",
        )
    return wanted


def _points(rated: Ratings, candidates: Sequence[str]) -> dict[tuple[str, str], Array]:
    """Return the errors of each kind and candidate, float64[n, C] with a row for each rater and study."""
    points = {}
    for kind, candidate in product(KINDS, candidates):
        of_candidate = rated.errors(kind)[[name == candidate for name in rated.candidates or ()]]
        points[kind, candidate] = of_candidate.reshape(-1, len(rated.categories)).astype(np.float64)
    few = min(len(values) for values in points.values())
    if few < 2:
        raise InputError(
            "ratings",
            "must hold at least 2 points (rater x study) of each candidate type",
            str(few),
            "Rate more studies.",
        )
    return points


@dataclass(frozen=True)
class _Family:
    """The errors of one category and one kind, whose tests are adjusted together."""

    category: str
    kind: str
    points: dict[str, Array]  # by candidate, float64[n], one for each rater and study
    means: dict[str, Array]  # by candidate, float64[S], means over raters, of the studies that have all candidates

    def tests(self, direction: str, rate: float) -> list[dict[str, Any]]:
        """Return a row of the table for each directed pair of candidates: the paper's test, then that by study."""
        pairs = list(permutations(self.points, 2))
        sides = [[self.points[name] for name in side] for side in zip(*pairs, strict=True)]
        t, p_values = pooled_t_tests(sides[0], sides[1], direction)
        critical, decisions = benjamini_hochberg(p_values, rate)
        p_by_study = self._p_by_study()
        return [
            {
                "errors": self.kind,
                "category": self.category,
                "a": a,
                "direction": DIRECTIONS[direction],
                "b": b,
                "t": float(t[i]) if np.isfinite(t[i]) else None,
                "p_value": float(p_values[i]),
                "critical_value": float(critical[i]),
                "significant": bool(decisions[i]),
                "mean_a": float(self.points[a].mean()),
                "mean_b": float(self.points[b].mean()),
                "n_a": len(self.points[a]),
                "n_b": len(self.points[b]),
                **study_test(self.means[a], self.means[b]),
                "study_p_adjusted": (p := p_by_study.get(frozenset((a, b)))),
                "study_significant": p is not None and p <= rate and self._has_more(a, b, direction),
            }
            for i, (a, b) in enumerate(pairs)
        ]

    def _p_by_study(self) -> dict[frozenset[str], float]:
        """Return the adjusted p-value of each difference, by its two candidates; empty without two studies."""
        pairs = [*combinations(self.means, 2)]
        p_values = [study_test(self.means[a], self.means[b])["study_p_value"] for a, b in pairs]
        defined = [p for p in p_values if p is not None]  # all of them, or none
        return dict(zip(map(frozenset, pairs), adjusted(defined), strict=True)) if defined else {}

    def _has_more(self, a: str, b: str, direction: str) -> bool:
        """Return whether the studies' means have the direction that is tested."""
        more, fewer = (self.means[name].sum() for name in ((a, b) if direction == "more" else (b, a)))
        return bool(difference(more, fewer) > 0)


def pooled_t_tests(
    a: Sequence[npt.NDArray[np.float64]], b: Sequence[npt.NDArray[np.float64]], direction: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return t statistics and p-values of one-sided t tests with pooled variance, one for each pair of samples.

    Two samples without variation and with equal means give no reason to reject: t = 0, p = 1.
    """
    from scipy.stats import ttest_ind_from_stats

    summaries = [np.array([[sample.mean(), sample.std(ddof=1), len(sample)] for sample in side]).T for side in (a, b)]
    alternative = "greater" if direction == "more" else "less"
    with np.errstate(divide="ignore", invalid="ignore"):
        t, p_values = ttest_ind_from_stats(*summaries[0], *summaries[1], equal_var=True, alternative=alternative)
    undefined = np.isnan(t)
    return np.where(undefined, 0.0, t), np.where(undefined, 1.0, p_values)


def study_test(a: Array, b: Array) -> dict[str, float | None]:
    """Compare two candidate types by the mean errors of each study's report over raters, two float64[S].

    Return the paired t statistic, its two-sided p-value, and the ratio of the means with its 95 % interval, as the
    columns `_BY_STUDY`. The interval is that of the logarithm, linearised in the studies, with Student's t (a Poisson
    model with errors clustered by study has the same one, up to its factor for few clusters). All values are None for
    fewer than two studies. If all studies have the same difference, and not 0, t is None and p is 0. The ratio is None
    where a side has no errors.
    """
    from scipy.stats import t as student

    result: dict[str, float | None] = dict.fromkeys(_BY_STUDY)
    if len(a) < 2:
        return result
    n, by_study = len(a), difference(a, b)
    mean, spread = float(by_study.mean()), float(by_study.std(ddof=1))
    if varies(by_study, max(np.abs(a).max(), np.abs(b).max())):
        t = mean / (spread / np.sqrt(n))
        p_value = float(2 * student.sf(abs(t), n - 1))
    else:
        t, p_value = (None, 0.0) if mean else (0.0, 1.0)
    result |= {"study_t": t, "study_p_value": p_value}
    if a.any() and b.any():
        ratio = a.mean() / b.mean()
        influence = a / a.mean() - b / b.mean()
        half = student.ppf((1 + LEVEL) / 2, n - 1) * np.sqrt((influence**2).sum() / (n * (n - 1)))
        ends = ratio * np.exp([-half, half])
        result |= {"rate_ratio": float(ratio), "ratio_low": float(ends[0]), "ratio_high": float(ends[1])}
    return result


def _study_means(rated: Ratings, candidates: Sequence[str]) -> dict[tuple[str, str], Array]:
    """Return the mean errors of each candidate by study, float64[S, C], for the studies that have all candidates."""
    of_pair = list(zip(rated.studies, rated.candidates or (), strict=True))
    have = [{study for study, name in of_pair if name == candidate} for candidate in candidates]
    shared = [study for study in dict.fromkeys(rated.studies) if all(study in studies for studies in have)]
    means = {}
    for kind in KINDS:
        errors = rated.errors(kind).mean(axis=1)
        for candidate in candidates:
            rows = [[i for i, pair in enumerate(of_pair) if pair == (study, candidate)] for study in shared]
            means[kind, candidate] = np.array([errors[of_study].mean(axis=0) for of_study in rows])
    return means


_BY_STUDY = ("study_t", "study_p_value", "rate_ratio", "ratio_low", "ratio_high")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("errors", "category", "a", "direction", "b")),
        *((name, pa.float64()) for name in ("t", "p_value", "critical_value")),
        ("significant", pa.bool_()),
        *((name, pa.float64()) for name in ("mean_a", "mean_b")),
        *((name, pa.int64()) for name in ("n_a", "n_b")),
        *((name, pa.float64()) for name in _BY_STUDY),
        ("study_p_adjusted", pa.float64()),
        ("study_significant", pa.bool_()),
    ]
)
