"""What the scores of a judge over pools say of the whole corpus, and how far they can be trusted.

A judge has no bound, so that only the reports of a pool are scored: the best lists of exact searches under cheap
metrics, and reports drawn at random. The best score of a pool is a lower bound of the oracle under the judge, an upper
one where lower scores are better. What is left out is measured in four ways: by the curve over the size of the pool, by
where in the pool the best scores are, by the random reports that beat the lists, and by how well each cheap metric
orders the pool.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metric_oracle.findings.cells import ALIKE, Format, Row, arrow, ends_of, intervals_note, number, number_of
from metric_oracle.findings.figures import BLUE, GREY, draw_curve, finish, literal, new_figure
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, listing
from metric_oracle.findings.results import bound_under
from metric_oracle.findings.signature import signed
from metric_oracle.metrics import title_of
from metric_oracle.records import sign_of
from metric_oracle.statistics import LEVEL, RESAMPLES, Array, difference, expected_best, intervals

LATE = 0.05  # share of best scores in the last tenth of the pool above which the pool is too small; by chance it is 0.1
RANDOM = "random"


class JudgedPool(NamedTuple):
    """The scores of the pool of one test report."""

    scores: Array  # float64[n], the judge's for the reports of the best lists, in the order of the pool
    drawn: Array  # float64[R], the judge's for reports drawn at random from the corpus, whether in a list or not
    is_listed: npt.NDArray[np.bool_]  # bool[M, n], whether the best list of each cheap metric has the report
    cheap: Array  # float64[M, n], scores of the cheap metrics, NaN where one cannot score the report
    is_whole: bool = False  # whether the lists and the random reports are all reports of the corpus


@dataclass(frozen=True, repr=False)
class PooledOracle(Finding):
    """The best scores of pools under a judge: a bound of its oracle, and how far it can be trusted."""

    # drawn (false: the first n reports of the pool; true: n of the random reports, in expectation), n, mean (the best
    # score, over the test reports), low and high (its 95 % interval), degenerate
    curve: pa.Table
    # list (a metric, or "random"), mean (the best score of this list alone), has_best (share of test reports with a
    # best report in it), alone (share for which no other list has one), tau (rank correlation of the metric with the
    # judge over the pool; positive means that both find the same reports good)
    lists: pa.Table
    # query_id, best (score), place (in the pool, from 1), pool (number of reports), certified (no score can be better),
    # beating (number of random reports that beat the lists), limit (upper limit at 95 % of the share of the corpus that
    # does); null without random reports
    reports: pa.Table
    # `limit` is the upper limit, at 95 %, of the mean over test reports of the share of the corpus that beats the lists
    signature: dict[str, Any]

    @property
    def table(self) -> pa.Table:
        """The curve, the lists and the test reports in one table; a column that a row does not have is null."""
        return pa.concat_tables([self.curve, self.lists, self.reports], promote_options="default")

    @property
    def late(self) -> float:
        """The share of test reports whose best score is first reached in the last tenth of their pool."""
        places, sizes = (self.reports[name].to_numpy() for name in ("place", "pool"))
        return float((10 * places > 9 * sizes).mean())

    def summary(self) -> str:
        """Return one line: the mean best score, of how many test reports, and that it is a bound."""
        best = self.reports["best"].to_numpy()
        of_judge = bound_under(self.signature["judge"])
        return f"mean best score {best.mean():z.4f} over {len(best):,} test reports, {of_judge}"

    def warnings(self) -> list[str]:
        """Return a sentence if the pool is too small."""
        if self.late <= LATE:
            return []
        return [
            f"The pool is too small: {100 * self.late:.0f} % of the best scores are first reached in its last tenth."
        ]

    def tables(self) -> list[PaperTable]:
        """Return the curve, and what each list contributes; the notes stand under the second."""
        judge, reports = self.signature["judge"], self.reports
        name, n, bound = f"{judge['name']} {arrow(judge['direction'])}", reports.num_rows, bound_under(judge)
        notes = [
            f"{bound[0].upper()}{bound[1:]}: reports outside the pool were not scored.",
            *self.warnings(),
            f"{100 * self.late:.1f} % of the best scores are first reached in the last tenth of the pool.",
        ]
        if (limit := self.signature["limit"]) is not None:
            beating, largest = sum(reports["beating"].to_pylist()), max(reports["limit"].to_pylist())
            notes.append(
                f"{beating:,} of {n * self.signature['draws']:,} random reports score better than all reports of the "
                f"lists. So, at 95 %, at most {100 * limit:.2g} % of the corpus do, on average over the test reports, "
                f"and at most {100 * largest:.2g} % for each one alone (Clopper-Pearson)."
            )
        if judge["best"] is not None:
            reached = reports["best"].to_pylist().count(judge["best"])
            notes.append(f"Certified: {reached:,} of {n:,} test reports reach {judge['best']:g}, the best score.")
        notes.append(f"{intervals_note(self.signature['interval'])} tau: tau-b within test reports, over the pool.")
        if any(self.curve["degenerate"].to_pylist()):
            notes.append(ALIKE)
        return [
            listing(f"Best score of the pool, {name}", self.curve.to_pylist(), _named, _CURVE, first="reports"),
            listing(f"What each list finds, {name}", self.lists.to_pylist(), "list", _LISTS, notes, "list"),
        ]

    def figure(self, width: float | None = None) -> Any:
        """Return a Matplotlib figure: the mean best score by the size of the pool, and that of random reports.

        By default it is 110 millimetres wide.
        """
        figure = new_figure(width or 110, 70)
        axes = figure.subplots()
        pool, random = (False, BLUE, "-", "first n of the pool"), (True, GREY, ":", "best of n random reports")
        for drawn, colour, dashes, label in (pool, random):
            rows = [row for row in self.curve.to_pylist() if row["drawn"] is drawn]
            if rows:
                draw_curve(axes, rows, colour, dashes, label)
        axes.set_xscale("log")
        ticks = sorted({row["n"] for row in self.curve.to_pylist()})
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.minorticks_off()
        axes.set_xlabel("reports scored by the judge (95 % intervals)")
        axes.set_title(f"{literal(title_of(self.signature['judge']['name']))}, best score", loc="left")
        axes.legend()
        return finish(figure)


def pooled_oracle(
    ids: Sequence[str],
    pools: Sequence[JudgedPool],
    metrics: Mapping[str, float],
    judge: Mapping[str, Any],
    *,
    seed: int = 0,
    **entries: Any,
) -> PooledOracle:
    """Return what the judged pools of the test reports `ids` say.

    `metrics` are those of the lists, with their `sign`. `judge` has its ``name``, ``direction``
    ("higher" or "lower") and ``best``, the best possible score or None. All pools have the same number of random
    reports. `seed` is that of the intervals; `entries` are further ones of the signature.
    """
    sign = sign_of(judge["direction"])
    pools = [pool._replace(scores=sign * pool.scores, drawn=sign * pool.drawn) for pool in pools]
    reached = [np.maximum.accumulate(np.concatenate([pool.scores, pool.drawn])) for pool in pools]
    best = np.array([of_pool[-1] for of_pool in reached])
    sizes = np.array([len(of_pool) for of_pool in reached])
    draws = len(pools[0].drawn)
    curves = {
        False: {n: [of_pool[min(n, len(of_pool)) - 1] for of_pool in reached] for n in points(int(sizes.max()))},
        True: {n: [expected_best(pool.drawn, n) for pool in pools] for n in points(draws)},
    }
    curve = [row for drawn, columns in curves.items() for row in _curve(drawn, columns, sign, seed)]
    beating = [int((pool.drawn > pool.scores.max(initial=-np.inf)).sum()) if len(pool.scores) else 0 for pool in pools]
    limit = np.inf if judge["best"] is None else sign * judge["best"]
    limits = {k: upper_limit(k, draws) for k in set(beating)} if draws else {}
    of_reports = {
        "query_id": pa.array(ids, pa.large_string()),
        "best": sign * best,
        "place": np.array([int(np.argmax(of_pool)) + 1 for of_pool in reached]),
        "pool": sizes,
        "certified": np.array([pool.is_whole for pool in pools]) | (best >= limit),
        "beating": pa.array(beating if draws else [None] * len(pools), pa.int64()),
        "limit": pa.array([limits.get(k) for k in beating], pa.float64()),
    }
    are_listed = bool(metrics) and draws > 0
    signature = signed(
        kind="pooled oracle",
        judge=dict(judge),
        **entries,
        draws=draws,
        limit=upper_limit(sum(beating), draws * len(pools)) if are_listed else None,
        interval={"method": "bca", "level": LEVEL, "resamples": RESAMPLES, "seed": seed},
    )
    rows = [_of_list(place, name, pools, best, sign) for place, name in enumerate(metrics)]
    for row, (place, of_metric) in zip(rows, enumerate(metrics.values()), strict=True):
        row["tau"] = tau_within(pools, place, of_metric)
    if draws:
        rows.append({**_of_list(len(metrics), RANDOM, pools, best, sign), "tau": None})
    return PooledOracle(
        pa.Table.from_pylist(curve), pa.Table.from_pylist(rows, _OF_LISTS), pa.table(of_reports), signature
    )


def points(largest: int) -> list[int]:
    """Return the sizes of a pool at which the curve is computed: 1, 2, 5, 10, 20, 50, ... and the largest."""
    steps = (step * 10**power for power in range(len(str(largest))) for step in (1, 2, 5))
    return [*(n for n in steps if n < largest), largest] if largest else []


def upper_limit(hits: int, n: int) -> float:
    """Return the upper limit, at the level `LEVEL`, of a proportion of which `hits` of n draws are (Clopper-Pearson).

    Without a hit it is 1 - 0.05^(1/n), about 3 / n, the rule of three. If the draws have different probabilities, as
    those of different test reports, it is a limit of their mean: the number of hits then varies less than with equal
    ones (Hoeffding, Annals of Mathematical Statistics 27, 1956).
    """
    from scipy.stats import beta

    return 1.0 if hits == n else float(beta.ppf(LEVEL, hits + 1, n - hits))


def tau_within(pools: Sequence[JudgedPool], place: int, sign: float) -> float | None:
    """Return Kendall's tau-b of judge and cheap metric over the comparisons inside pools; None if one is constant.

    `place` is that of the metric among those of the lists; `sign` is -1 where its lower scores are better.
    """
    agreeing = of_judge = of_metric = 0.0
    for pool in pools:
        is_known = ~np.isnan(pool.cheap[place])
        x, y = pool.scores[is_known], sign * pool.cheap[place][is_known]
        first, second = np.triu_indices(len(x), 1)
        x, y = (np.sign(difference(of[first], of[second])) for of in (x, y))
        agreeing, of_judge, of_metric = agreeing + x @ y, of_judge + x @ x, of_metric + y @ y
    return float(agreeing / np.sqrt(of_judge * of_metric)) if of_judge * of_metric else None


def _curve(drawn: bool, columns: Mapping[int, Sequence[float]], sign: float, seed: int) -> list[dict[str, Any]]:
    """Return the rows of a curve; `columns` has, by number of reports, the best of so many for each test report."""
    values = sign * np.array([*columns.values()])
    ends = intervals(values, seed=seed) if columns else []
    return [
        {"drawn": drawn, "n": n, "mean": float(of_n.mean())}
        | {"low": of_mean.low, "high": of_mean.high, "degenerate": of_mean.degenerate}
        for n, of_n, of_mean in zip(columns, values, ends, strict=True)
    ]


def _of_list(place: int, name: str, pools: Sequence[JudgedPool], best: Array, sign: float) -> dict[str, Any]:
    """Return the row of a list: its own best, and how often it has the best of the pool, float64[Q], or alone has it.

    `place` is that of the metric among those of the lists, or their number for the random reports.
    """
    by_list = np.array(
        [
            [*(pool.scores[is_in].max(initial=-np.inf) for is_in in pool.is_listed), pool.drawn.max(initial=-np.inf)]
            for pool in pools
        ]
    )
    has_best = by_list == best[:, None]
    own = by_list[:, place]
    return {
        "list": name,
        "mean": float(sign * own.mean()) if np.isfinite(own).all() else None,
        "has_best": float(has_best[:, place].mean()),
        "alone": float((has_best[:, place] & (has_best.sum(axis=1) == 1)).mean()),
    }


_OF_LISTS = pa.schema([("list", pa.string()), *((name, pa.float64()) for name in ("mean", "has_best", "alone", "tau"))])


def _percent_of(name: str) -> Format:
    """Return the function that prints the field `name` of a row, a share, in percent."""

    def cell(row: Row) -> str:
        return number(row[name], ".1f", scale=100)

    return cell


# The columns of the printed tables.
_CURVE: dict[str, Format] = {"mean best": number_of("mean"), "95 % CI": ends_of()}
_LISTS: dict[str, Format] = {
    "mean best of the list": number_of("mean"),
    "has the best (%)": _percent_of("has_best"),
    "alone has it (%)": _percent_of("alone"),
    "tau with the judge": number_of("tau", "z.3f"),
}


def _named(row: Row) -> str:
    """Return the name of a row of the curve."""
    return f"best of {row['n']:,} random" if row["drawn"] else f"first {row['n']:,}"
