"""Agreement of radiologists with one another and with themselves, and what other radiologists would change.

Figure S3 of Yu et al. (Patterns 2023) prints an intraclass correlation for each metric-oracle and does not name its
form. Here it is that of the two-way model with random raters and absolute agreement: ICC(A,1) of a single rater and
ICC(A,k) of the mean of all raters (McGraw and Wong, Psychological Methods 1996). Shrout and Fleiss (1979) call them
ICC(2,1) and ICC(2,k).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import identify
from metric_oracle.base.validation import public
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, pivot
from metric_oracle.findings.signature import bootstrap, signed
from metric_oracle.raters.names import agreement_cell, candidate_name, kind_name, rater_name
from metric_oracle.raters.rank_correlation import (
    RATED,
    STATISTICS,
    TAU,
    DrawnStudies,
    Side,
    draw,
    interval_row,
    share,
    side,
    sum_of_raters,
    sum_within,
)
from metric_oracle.raters.ratings import KINDS, AnyRatings, Ratings, read_ratings
from metric_oracle.statistics import FEW, Array, difference, few_studies

RESAMPLES = 1000  # as in Yu et al.
ICC = ("ICC(A,1)", "ICC(A,k)")
LEFT_OUT = "leave-one-rater-out "  # before the name of a statistic
BETWEEN, ALL = "between raters", "all"
EXACT, SHIFT = "exact agreement", "mean difference"
RADIOLOGISTS, PERFECT = "radiologists", "perfect metric"  # instead of a metric
_FUNCTION = "agreement"
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("candidate", "errors", "rater", "statistic")),
        *((name, pa.float64()) for name in ("value", "low", "high", "bca_low", "bca_high", "effective")),
        ("degenerate", pa.int64()),
    ]
)


@dataclass(frozen=True, repr=False)
class Agreement(Finding):
    """Agreement of raters.

    Attributes
    ----------
    table : pyarrow.Table
        One row for each candidate type ("all": all together), kind of errors, rater ("between raters", or the rater who
        is compared with himself) and statistic. Columns: ``value``, the ends of its percentile and BCa intervals over
        studies, ``effective`` (the number of studies that the interval rests on, see
        `statistics.effective_studies`) and ``degenerate`` (resamples without a value). A value that
        does not exist is null: of equal counts, or where the denominator of an ICC is not positive.
    signature : dict
        What is needed to compute the same numbers again.
    """

    table: pa.Table
    signature: dict[str, Any]

    def summary(self) -> str:
        """Return one line that says what was compared."""
        counts = self.signature
        again = f"; {counts['repeated_pairs']} pairs rated twice" if counts["repeated_pairs"] else ""
        return f"{counts['pairs']:,} pairs of {counts['studies']:,} studies, {counts['raters']} raters{again}"

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the numbers with care."""
        if warning := few_studies({"": self.signature["studies"]}):
            return warning
        few = [row["effective"] for row in self.records() if 0 < (row["effective"] or 0) < FEW]
        if not few:
            return []
        subject = "interval rests" if len(few) == 1 else "intervals rest"
        return [
            (
                f"{len(few)} {subject} on fewer than {FEW} effective studies (the least on {min(few):.0f}, see the "
                "column `effective`) and are too short: a few studies with many errors decide them."
            )
        ]

    def tables(self) -> list[PaperTable]:
        """Return the agreement of the raters with one another, by candidate type, and with themselves."""
        tables = []
        for is_between, key, name_of in ((True, "candidate", candidate_name), (False, "rater", rater_name)):
            title = f"Agreement of the radiologists with {'one another' if is_between else 'themselves'}"
            rows = [
                {**row, "row": f"{name_of(row[key])}\n{kind_name(row['errors'])}"}
                for row in self.records()
                if (row["rater"] == BETWEEN) == is_between
            ]
            if rows:
                tables.append(pivot(title, rows, "row", "statistic", agreement_cell))
        resampled = self.signature["bootstrap"]
        tables[0].notes.extend(
            [
                (
                    "ICC(A,1), ICC(A,k): intraclass correlations of one rater and of the mean of all, two-way model, "
                    "random raters, absolute agreement (McGraw and Wong 1996); ICC(2,1), ICC(2,k) of Shrout and "
                    "Fleiss. Exact agreement: how often two raters count the same number of errors."
                ),
                (
                    f"{self.summary()}; 95 % percentile intervals from {resampled['resamples']:,} resamples of "
                    f"studies, seed {resampled['seed']}, the raters fixed."
                ),
                *self.warnings(),
            ]
        )
        return tables


@public
def agreement(
    ratings: AnyRatings,
    repeated: Annotated[
        str | Path | Ratings | None,
        Doc(
            "Errors that the same raters counted in the studies that each saw twice: the file repeats.csv that "
            "[`export_survey`][metric_oracle.export_survey] wrote. By default raters are not compared with themselves."
        ),
        Flag("--repeated"),
    ] = None,
    *,
    resamples: option_types.ResamplesOfRaters = RESAMPLES,
    seed: option_types.Seed = 0,
) -> Agreement:
    """Measure how well radiologists agree with one another, and with themselves where they rated a study twice.

    The result has intraclass correlations for all pairs and for each candidate type: ICC(A,1) of one rater and ICC(A,k)
    of the mean of all, in the two-way model with random raters and absolute agreement, also called ICC(2,1) and
    ICC(2,k). Intervals are from resampled studies; the raters are fixed. With one rater, `repeated` must be given.

    Returns
    -------
    Agreement
        ICC(A,1), ICC(A,k) and ``exact agreement``, the share of pairs in which two raters counted the same number of
        errors. For a rater compared with himself also ``mean difference``, the second count minus the first.

    Raises
    ------
    InputError
        If there are fewer than two raters and no `repeated`, if `repeated` has other pairs or raters than `ratings`, or
        if a file or an option breaks its rule.

    Examples
    --------
    >>> result = mo.agreement("ratings.csv", resamples=200)
    >>> result
    <Agreement: 96 pairs of 24 studies, 3 raters>
    >>> [(r["statistic"], round(r["value"], 3)) for r in result.records()[:3]]
    [('ICC(A,1)', 0.645), ('ICC(A,k)', 0.845), ('exact agreement', 0.17)]
    """
    rated = ratings if isinstance(ratings, Ratings) else read_ratings(ratings)
    again = repeated if isinstance(repeated, Ratings) or repeated is None else read_ratings(repeated)
    if len(rated.raters) < 2 and again is None:
        raise InputError(
            "ratings", "must be of at least 2 raters", f"{len(rated.raters)}", "Add raters, or `repeated`."
        )
    n_resamples = int(resamples)
    rows: list[dict[str, Any]] = []
    candidates = [ALL, *dict.fromkeys(rated.candidates or ())]
    for candidate in candidates if len(rated.raters) > 1 else ():
        part = rated if candidate == ALL else rated.subset(np.array([c == candidate for c in rated.candidates or ()]))
        for kind in KINDS:
            keys = {"candidate": candidate, "errors": kind, "rater": BETWEEN}
            counts = part.errors(kind).sum(axis=2).T
            rows += [{**keys, **row} for row in _statistic_rows(counts, part.studies, n_resamples, seed)]
    for rater, first, second, studies, kind in _twice(rated, again) if again is not None else ():
        keys = {"candidate": ALL, "errors": kind, "rater": rater}
        both = np.array([first, second])
        rows += [{**keys, **row} for row in _statistic_rows(both, studies, n_resamples, seed, is_one_rater=True)]
    signature = signed(
        command=_FUNCTION,
        ratings=identify(Path(ratings)) if isinstance(ratings, str | Path) else rated.source,
        repeated=identify(Path(repeated)) if isinstance(repeated, str | Path) else again and again.source,
        icc="two-way random raters, absolute agreement (McGraw and Wong 1996); ICC(2,1), ICC(2,k) of Shrout, Fleiss",
        pairs=len(rated.pairs),
        studies=len(set(rated.studies)),
        raters=len(rated.raters),
        repeated_pairs=0 if again is None else len(again.pairs),
        bootstrap=bootstrap("study", n_resamples, seed),
    )
    return Agreement(pa.Table.from_pylist(rows, _SCHEMA), signature)


def _statistic_rows(
    counts: npt.NDArray[np.int64], studies: list[str], resamples: int, seed: int, *, is_one_rater: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield a row for each statistic of int64[k, P], counts of k raters, or first and second counts of one rater."""
    drawn = draw(studies, resamples, seed)
    n = np.maximum(drawn.pairs.sum(axis=1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # a single pair has no variance
        single, mean = intraclass(counts, drawn.pairs)
    equal = np.mean([a == b for a, b in combinations(counts, 2)], axis=0)
    values = {ICC[0]: single, ICC[1]: mean, EXACT: drawn.pairs @ equal / n}
    if is_one_rater:
        del values[ICC[1]]
        values[SHIFT] = drawn.pairs @ (counts[1] - counts[0]) / n
    for statistic, of_resample in values.items():
        yield interval_row(statistic, of_resample, drawn)


def _twice(
    rated: Ratings, again: Ratings
) -> Iterator[tuple[str, npt.NDArray[np.int64], npt.NDArray[np.int64], list[str], str]]:
    """Yield rater, first counts, second counts, studies and kind of the pairs rated again, for each rater and kind."""
    row_of = {pair: row for row, pair in enumerate(rated.pairs)}
    for noun, rated_names, repeated in (("pairs", row_of, again.pairs), ("raters", rated.raters, again.raters)):
        foreign = [name for name in repeated if name not in rated_names]
        if foreign:
            raise InputError(
                "repeated", f"must be {noun} of the ratings", shown(*foreign), "Give both files of one export."
            )
    rows = [row_of[pair] for pair in again.pairs]
    for i, rater in enumerate(again.raters):
        column = rated.raters.index(rater)
        for kind in KINDS:
            first = rated.errors(kind)[rows, column].sum(axis=1)
            second = again.errors(kind)[:, i].sum(axis=1)
            yield rater, first, second, again.studies, kind


def raters_among_themselves(
    by_rater: npt.NDArray[Any], drawn: DrawnStudies, statistics: Sequence[str] = RATED
) -> list[dict[str, Any]]:
    """Return a row for each statistic of the agreement of R >= 2 raters with one another.

    `by_rater`, number[R, P], has the errors that each counted in each pair, or grades. The agreement of each rater with
    the mean of the others, averaged over raters, is a ceiling: no metric can be expected to agree with a radiologist
    better than the mean of the other radiologists does. Intraclass correlations are added where `statistics` has
    tau-b, that is where ratings can be compared between studies.
    """
    values: dict[str, Array] = {}
    if TAU in statistics:
        values.update(zip(ICC, intraclass(by_rater, drawn.pairs), strict=True))
    sides = [(side(own, drawn), side(others, drawn)) for own, others in each_left_out(by_rater)]
    for name in statistics:
        values[LEFT_OUT + name] = mean_over_raters([STATISTICS[name](own, others, drawn) for own, others in sides])
    return [interval_row(name, of_resample, drawn) for name, of_resample in values.items()]


def accuracy_on_judgements(
    metrics: Mapping[str, Side], raters: Sequence[Side], drawn: DrawnStudies
) -> dict[str, Array]:
    """Return which share of single judgements agrees with each metric, with another rater, and with a perfect metric.

    A judgement is what one of the `raters`, at least two, says of one comparison inside a group, without a tie. A tie
    of the metric, or of the other rater, counts as half. A perfect metric takes the side of the majority in every
    comparison; where raters disagree, no metric agrees with more judgements. The shares, one for each resample, have
    the keys `PERFECT`, `RADIOLOGISTS` and the names of `metrics`; they are NaN where there is no judgement.
    """
    judged = np.array([rater.within for rater in raters])
    votes, counted = judged.sum(axis=0), np.abs(judged).sum(axis=0)
    agreeing = {
        PERFECT: np.abs(votes),
        RADIOLOGISTS: (votes**2 - counted) / (len(raters) - 1),
        **{name: metric.within * votes for name, metric in metrics.items()},
    }
    total = sum_within(counted, drawn)
    return {name: (1 + share(sum_within(pairs, drawn), total)) / 2 for name, pairs in agreeing.items()}


def each_left_out(by_rater: npt.NDArray[Any]) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Yield, for each rater, the rater's numbers for all pairs, number[P], and the sum of the other raters' numbers."""
    for i, own in enumerate(by_rater):
        yield own, sum_of_raters(np.delete(by_rater, i, axis=0))


def mean_over_raters(values: Sequence[Array]) -> Array:
    """Return the mean over raters, float64[R, B] -> float64[B]. A rater without a value in a resample is left out."""
    array = np.array(values)
    exists = np.isfinite(array)
    n = exists.sum(axis=0)
    sums = np.where(exists, array, 0).sum(axis=0)
    return np.divide(sums, n, out=np.full(len(sums), np.nan), where=n > 0)


def intraclass(counts: npt.NDArray[Any], times: Array) -> tuple[Array, Array]:
    """Return ICC(A,1) of a single rater and ICC(A,k) of the mean of k raters, two float64[B].

    Two-way model, random raters, absolute agreement (McGraw and Wong, Psychological Methods 1996, table 4). `counts`,
    number[k, P], has the errors of each rater and pair; `times`, float64[B, P], how often each pair occurs in each
    resample. A coefficient is NaN where nothing varies or its denominator is not positive.
    """
    k, x = len(counts), counts.T.astype(np.float64)
    n = times.sum(axis=1)
    rater_means = times @ x / n[:, None]
    mean = rater_means.mean(axis=1)
    sum_rows = k * (times @ (x.mean(axis=1) ** 2) - n * mean**2)
    sum_raters = n * ((rater_means - mean[:, None]) ** 2).sum(axis=1)
    sum_all = times @ (x**2).sum(axis=1) - n * k * mean**2
    rows, raters = sum_rows / (n - 1), sum_raters / (k - 1)
    rest = (sum_all - sum_rows - sum_raters) / ((n - 1) * (k - 1))
    varies = sum_all > 1e-9 * (1 + (x**2).sum())  # below that there is only floating-point error

    def ratio(denominator: Array) -> Array:
        """Return the coefficient with this denominator, NaN where nothing varies or it is not positive."""
        exists = varies & (denominator > 0)
        return np.divide(rows - rest, denominator, out=np.full_like(rows, np.nan), where=exists)

    return ratio(rows + (k - 1) * rest + k * (raters - rest) / n), ratio(rows + (raters - rest) / n)


def draw_raters(n_raters: int, resamples: int, seed: int) -> Array:
    """Draw the weight of each of R >= 2 raters in the deviation of a panel: float64[B, R], t with R - 1 degrees."""
    rng = np.random.default_rng([seed, 1])  # not the stream of the studies, which the same seed would tie to the raters
    normal = rng.standard_normal((resamples, n_raters))
    return normal / np.sqrt(rng.chisquare(n_raters - 1, (resamples, 1)) / (n_raters - 1))


def other_raters(values: Array, draws: Array, n_studies: int) -> Array:
    """Return the values of a statistic on resamples of studies and of raters.

    Raters are not drawn with replacement: a panel that contains a rater twice is noisier than a panel of R raters, so
    that agreement with it is too low. The variance between panels is that of the jackknife over raters, less the part
    that comes from single studies, which the resampled studies contain already (for a mean: the component of raters in
    a two-way analysis of variance; Cameron, Gelbach and Miller, J Bus Econ Stat 2011, on two-way clustering).

    `values`, float64[B + S + 1 + R * (S + 1)], has the statistic on the resamples, without each study, and on all
    studies; then, for each rater left out, without each study and on all studies. `draws` are from `draw_raters`. Of
    the result, float64[B + S + 1], the resamples are NaN if the statistic does not exist without some rater or study.
    """
    n_resamples, n_raters = draws.shape
    moved, tail = values[: n_resamples + n_studies + 1].copy(), values[n_resamples + n_studies + 1 :]
    without = tail.reshape(n_raters, n_studies + 1)
    deviations = difference(without[:, -1], without[:, -1].mean())
    between = (n_raters - 1) / n_raters * (deviations**2).sum()
    # What leaving out a rater and a study changes beyond the two changes taken separately.
    both = without[:, :-1] - moved[n_resamples:-1]
    both = both - both.mean(axis=0) - both.mean(axis=1, keepdims=True) + both.mean()
    from_studies = (n_studies - 1) * (n_raters - 1) / (n_studies * n_raters) * (both**2).sum()
    share = 0.0 if between == 0 else np.sqrt(np.maximum(0, 1 - from_studies / between))
    moved[:n_resamples] += share * np.sqrt((n_raters - 1) / n_raters) * (draws @ deviations)
    return moved
