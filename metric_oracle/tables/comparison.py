"""Tables of systems: means over the same studies with intervals, changes from random, shares of the oracle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.choices import LEGACY
from metric_oracle.corpora.shown import OneLine, html_table
from metric_oracle.errors import InputError, as_called, called, option
from metric_oracle.findings.finding import Frames
from metric_oracle.findings.results import Scores
from metric_oracle.metrics import get_metric
from metric_oracle.progress import Progress
from metric_oracle.statistics import (
    FEW,
    LEGACY_SAMPLE,
    LEVEL,
    Interval,
    adjusted,
    check_method,
    checked_resamples,
    difference,
    effective_studies,
    overlap,
)
from metric_oracle.tables.systems import (
    Given,
    aligned,
    aligned_counts,
    check_signatures,
    common_metrics,
    is_yardstick,
    read_system,
)
from metric_oracle.tables.table_cells import CORPUS, CRG, Cell, Column, MetricCells, corpus_means, means_of


@dataclass(frozen=True)
class Difference:
    """Paired comparison of two systems under one metric."""

    a: str  # names of the two rows and of the column
    b: str
    metric: str
    difference: float  # mean of a - b over the column's studies
    # The differences that the test does not reject. It contains 0 if and only if the p-value is above 0.05.
    interval: Interval
    # P-value of the permutation test (for CRG and corpus BLEU, of the bootstrap), and the same adjusted over all
    # differences of the table (Benjamini and Hochberg).
    p_value: float
    p_adjusted: float
    overlap: bool  # Whether the two systems' intervals overlap. Yu et al. call two systems different if they do not.
    effective: float  # effective number of studies behind the test, see `statistics.effective_studies`


@dataclass(frozen=True, repr=False)
class Comparison(OneLine, Frames):
    """A table of systems and metrics.

    Attributes
    ----------
    systems : list of str
        Rows, in the order given.
    columns : list of Column
        Metrics that all systems have, in the order of the first system.
    cells : dict
        (system, metric) -> Cell.
    differences : list of Difference
        Paired tests.
    studies : int
        Number of studies of each system, including those that it cannot score.
    distinct_texts : dict
        System -> number of distinct texts, for systems whose file has it.
    left_out : dict
        System -> its metrics that other systems lack.
    too_few : dict
        Metric that is left out of the table -> number of studies that every system can score, 0 or 1.
    averaged : dict
        System whose scores are means -> what they are means over, such as "10 random reports".
    competing : list of str
        Systems among which the best mean is marked: all but oracles, baselines and perfect answers.
    fixed_weights : list of str
        Systems whose file has no counts of labels. Their CRG keeps the prevalence of the test set in each resample.
    signature : dict
        Everything that is needed to compute the same table again.
    """

    systems: list[str]
    columns: list[Column]
    cells: dict[tuple[str, str], Cell]
    differences: list[Difference]
    studies: int
    distinct_texts: dict[str, int]
    left_out: dict[str, list[str]]
    too_few: dict[str, int]
    averaged: dict[str, str]
    competing: list[str]
    fixed_weights: list[str]
    signature: dict[str, Any]

    def summary(self) -> str:
        """Return one line with the numbers of systems and studies, and the metrics."""
        names = ", ".join(column.metric for column in self.columns)
        n = len(self.systems)
        return f"{n} system{'s' if n > 1 else ''}, {self.studies:,} studies: {names}"

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        lines = []
        few = [f"{column.metric} {column.n}" for column in self.columns if column.n < FEW]
        if few:
            lines.append(f"Fewer than {FEW} studies ({', '.join(few)}): the intervals are too short.")
        cells = [(metric, system, cell.effective) for (system, metric), cell in self.cells.items()]
        return [*lines, *self._short(cells, "score"), *self.short_differences()]

    def short_differences(self) -> list[str]:
        """Return a list with the warning about paired differences that rest on few studies; empty if there is none."""
        return self._short([(d.metric, f"{d.a} − {d.b}", d.effective) for d in self.differences], "difference")

    def _short(self, intervals: Sequence[tuple[str, str, float]], what: str) -> list[str]:
        """Return the warning that some intervals rest on a small effective number of studies.

        An empty list if none does.
        """
        enough = [column.metric for column in self.columns if column.n >= FEW]
        few = {
            metric: [f"{name} {n:.0f}" for measured, name, n in intervals if measured == metric and 0 < n < FEW]
            for metric in enough
        }
        shown = "; ".join(f"{metric}: {', '.join(names)}" for metric, names in few.items() if names)
        counted = f"Effective studies are those whose {what} is not 0, or n / skewness² if fewer"
        line = f"Too few studies for these intervals: {shown}. {counted}; below {FEW} an interval is too short."
        return [line] if shown else []

    @property
    def table(self) -> pa.Table:
        """The records as a table: one row for each system and metric, then one for each paired difference."""
        records = self.records()
        return pa.table(
            {name: pa.array([row[name] for row in records], _KINDS.get(name, pa.float64())) for name in records[0]}
        )

    def write(self, path: str | Path) -> None:
        """Write Markdown, LaTeX, CSV or JSON Lines by the ending of `path`, see `write_table`."""
        from metric_oracle.tables.comparison_layout import write  # which lays out this class

        write(self, path)

    def _repr_html_(self) -> str:
        """Return the means with their intervals as a table: a row for each system, a column for each metric."""
        rows = []
        for system in self.systems:
            cells = [self.cells[system, column.metric] for column in self.columns]
            shown = (f"{one.mean:z.3f} [{one.interval.low:z.3f}, {one.interval.high:z.3f}]" for one in cells)
            rows.append((system, *shown))
        return html_table(repr(self)[1:-1], ("system", *(column.metric for column in self.columns)), rows)

    def records(self) -> list[dict[str, Any]]:
        """Return one flat record per system and metric, then one per difference, at full precision.

        In the record of a difference, `versus` is the second system and `mean` the mean difference.
        """
        records = []
        for column in self.columns:
            direction = "higher" if column.higher_is_better else "lower"
            for system in self.systems:
                cell = self.cells[system, column.metric]
                records.append(
                    _record(system, None, column.metric, direction, column.n, cell.mean, cell.interval)
                    | {
                        "minimum": cell.minimum,
                        "maximum": cell.maximum,
                        "unscorable": cell.unscorable,
                        "best": cell.best,
                        "nonzero": cell.nonzero,
                        "effective": cell.effective,
                        "percent_change_from_random": cell.percent_change,
                        **_ends("percent_change", cell.change_interval),
                        "share_of_way_to_oracle": cell.share,
                        **_ends("share", cell.share_interval),
                    }
                )
        columns = {column.metric: column for column in self.columns}
        for d in self.differences:
            direction = "higher" if columns[d.metric].higher_is_better else "lower"
            records.append(
                _record(d.a, d.b, d.metric, direction, columns[d.metric].n, d.difference, d.interval)
                | {
                    "effective": d.effective,
                    "p_value": d.p_value,
                    "p_adjusted": d.p_adjusted,
                    "intervals_overlap": d.overlap,
                }
            )
        return records


_KINDS = {
    **dict.fromkeys(("system", "versus", "metric", "direction"), pa.string()),
    **dict.fromkeys(("n", "unscorable", "nonzero"), pa.int64()),
    **dict.fromkeys(("degenerate", "best", "intervals_overlap"), pa.bool_()),
}  # of the columns of `Comparison.table`; the others are numbers


def _ends(name: str, ends: Interval | None) -> dict[str, float | None]:
    """Return the ends and properties of an interval as columns of a record; None for a missing interval."""
    return {f"{name}_low": ends and ends.low, f"{name}_high": ends and ends.high}


def _record(
    system: str, versus: str | None, metric: str, direction: str, n: int, mean: float, ends: Interval
) -> dict[str, Any]:
    """Return one flat record of the table; `versus` is the second system of a difference, else None."""
    return {
        "system": system,
        "versus": versus,
        "metric": metric,
        "direction": direction,
        "n": n,
        "mean": mean,
        "interval_low": ends.low,
        "interval_high": ends.high,
        "degenerate": ends.degenerate,
        "minimum": None,
        "maximum": None,
        "unscorable": None,
        "best": None,
        "nonzero": None,
        "effective": None,
        "percent_change_from_random": None,
        **_ends("percent_change", None),
        "share_of_way_to_oracle": None,
        **_ends("share", None),
        "p_value": None,
        "p_adjusted": None,
        "intervals_overlap": None,
    }


@called("compare")
def compare(
    systems: Mapping[str, Given | Sequence[Given]],
    *,
    random: str | None = None,
    oracles: Mapping[str, str] | None = None,
    perfect: str | None = None,
    paired: Sequence[tuple[str, str]] = (),
    method: str = "bca",
    resamples: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Put the scores of several systems into one table.

    A mean is over the studies that all systems can score under the metric, so all numbers of a column are about the
    same studies. The table has their number, and the number that each system cannot score.

    Parameters
    ----------
    systems : mapping
        Name of the row -> scores, or a file of them, from [`score`][metric_oracle.score],
        [`retrieve`][metric_oracle.retrieve] (the best report of each query counts) or
        [`baseline`][metric_oracle.baseline] (several random draws count with their mean per study). A sequence of these
        is one row whose metrics are in several files.
    random : str, optional
        Row of random retrieval; the table then has each row's percentage change from it.
    oracles : mapping, optional
        Metric -> row of its metric-oracle. Needs `random`; the table then has each row's share of the way from random
        to the oracle.
    perfect : str, optional
        Row of perfect answers. It does not compete for the best mean, and neither do `random`, the oracles, and rows
        whose file was made by an oracle or a baseline.
    paired : sequence of (str, str)
        Pairs of rows to test on the same studies.
    method : {"bca", "percentile", "legacy-yu2023"}
        Kind of interval, see [`interval`][metric_oracle.interval]; the level is 0.95. With ``legacy-yu2023`` the
        resamples are those of the paired tests.
    resamples : int, optional
        Number of bootstrap resamples of the studies, by default 10,000.
    seed : int
        Seed of the resamples.
    progress : callable, optional
        Called as ``progress(step, done, total)``.

    Returns
    -------
    Comparison
        Means, intervals, changes and tests, with the signature. It has a table in a notebook, `to_pandas`, `to_polars`,
        and `write`, which is [`write_table`][metric_oracle.write_table].

    Raises
    ------
    InputError
        If the systems have different signatures, references, studies or no common metric; an id occurs twice; or fewer
        than two studies are left under every metric.

    Examples
    --------
    >>> systems = {name: mo.score("test.csv", f"{name}.csv", "bleu") for name in ("strong", "weak")}
    >>> mo.compare(systems, paired=[("strong", "weak")], resamples=1000)
    <Comparison: 2 systems, 24 studies: bleu-2>
    """
    if not systems:
        raise InputError(
            "systems",
            "must have at least one name with scores",
            "none",
            f"Write files of scores with {as_called('score')}.",
        )
    check_method(method, None if paired else resamples)
    n_resamples = checked_resamples(resamples)
    scores = {name: read_system(name, given) for name, given in systems.items()}
    names = list(scores)
    given = oracles or {}
    oracles = {get_metric(metric).name: row for metric, row in given.items()}
    if len(oracles) < len(given):
        raise InputError("oracles", "must name each metric once", ", ".join(given), "Keep one row for each.")
    _check_rows(names, random, oracles, paired)
    metrics, left_out = common_metrics(scores, oracles)
    check_signatures(scores, metrics)
    values, counts = aligned(scores, metrics)
    too_few = _too_few(names, values)
    apart = {random, perfect, *oracles.values()}
    competing = [name for name, system in scores.items() if name not in apart and not is_yardstick(system)]

    used = [metric for metric in metrics if metric not in too_few]
    total = len(used) * (1 + len(paired))
    done = 0

    def report(what: str) -> None:
        """Report one step of the work."""
        nonlocal done
        if progress is not None:
            progress(what, done, total)
        done += 1

    columns: list[Column] = []
    cells: dict[tuple[str, str], Cell] = {}
    tests: list[tuple[str, str, str, float, Interval, float, bool, float]] = []
    averaged = {name: system.signature["averaged"] for name, system in scores.items() if "averaged" in system.signature}
    for metric in used:
        report(metric)
        matrix = values[metric]
        complete = ~np.isnan(matrix).any(axis=0)
        row = dict(zip(names, matrix[:, complete], strict=True))
        entry = scores[names[0]].signature["metrics"][metric]
        is_higher = entry["direction"] == "higher" if "direction" in entry else get_metric(metric).higher_is_better
        columns.append(Column(metric, is_higher, int(complete.sum())))
        means = means_of(metric, scores, row, counts, complete, n_resamples, seed)
        ranges = {name: system["ranges"].get(metric) for name, system in averaged.items()}
        unscorable = dict(zip(names, np.isnan(matrix).sum(axis=1).tolist(), strict=True))
        of_metric = MetricCells(columns[-1], row, means, method, seed, ranges, unscorable)
        for name, cell in of_metric.cells(random, oracles, competing).items():
            cells[name, metric] = cell
        for a, b in paired:
            report(f"{a} against {b}, {metric}")
            ends = [cells[name, metric].interval for name in (a, b)]
            result = of_metric.difference(a, b, n_resamples)
            tests.append((a, b, metric, *result, overlap(*ends), effective_studies(difference(row[a], row[b]))))
        of_reports = None if method == LEGACY else aligned_counts(scores, metric, complete)
        if of_reports is not None:  # in addition to the mean over reports, corpus BLEU as pycocoevalcap prints it
            columns.append(Column(f"{metric}{CORPUS}", is_higher, columns[-1].n))
            means = corpus_means([*of_reports.values()], n_resamples, seed)
            of_corpus = MetricCells(columns[-1], row, means, method, seed, ranges, unscorable)
            corpus_cells = of_corpus.cells(random, {}, competing)
            cells |= {(name, columns[-1].metric): cell for name, cell in corpus_cells.items()}
            for a, b in paired:
                ends = [corpus_cells[name].interval for name in (a, b)]
                result = of_corpus.difference(a, b, n_resamples)
                tests.append(
                    (a, b, columns[-1].metric, *result, overlap(*ends), effective_studies(difference(row[a], row[b])))
                )
    sampled = {name: system["sampled"] for name, system in averaged.items() if "sampled" in system}
    p_adjusted = adjusted([test[5] for test in tests]) if tests else []
    first = scores[names[0]]
    whole = {metric: sets for metric in used if (sets := _of_whole_sets(scores, metric, values[metric]))}
    sections = [system.signature["section"] for system in scores.values() if "section" in system.signature]
    foreign = {name: system.signature["foreign"] for name, system in scores.items() if "foreign" in system.signature}
    return Comparison(
        names,
        columns,
        cells,
        [Difference(*test[:6], p, *test[6:]) for test, p in zip(tests, p_adjusted, strict=True)],
        first.table.num_rows,
        {
            name: int(system.signature["distinct_texts"])
            for name, system in scores.items()
            if system.signature.get("distinct_texts") is not None
        },
        left_out,
        too_few,
        {name: _averaged_over(system) for name, system in averaged.items()},
        competing,
        [name for name in names if counts[name] is None] if CRG in used else [],
        {
            "kind": "table",
            "systems": {name: system.signature.get("system") for name, system in scores.items()},
            "metrics": {metric: first.signature["metrics"][metric] for metric in used},
            "references": first.signature.get("references"),
            **({"section": sections[0]} if sections else {}),
            **({"of_whole_sets": whole} if whole else {}),
            **({"sampled": sampled} if sampled else {}),
            "scores_version": first.signature.get("version"),
            "interval": {
                "method": method,
                "level": LEVEL,
                "resamples": LEGACY_SAMPLE if method == LEGACY else n_resamples,
                "seed": seed,
            },
            "random": random,
            "oracles": oracles,
            "paired": [list(pair) for pair in paired],
            **({"foreign": foreign} if foreign else {}),
            **({"test": {"name": "permutation", "resamples": n_resamples, "seed": seed}} if paired else {}),
            **({"adjusted_over": len(tests)} if paired else {}),
            "version": version("metric-oracle"),
        },
    )


def _averaged_over(averaged: Mapping[str, Any]) -> str:
    """Return a phrase on what the scores of a system are means over, with the standard errors of sampled means."""
    sampled = averaged.get("sampled", {})
    estimates = [
        f"under {metric} an estimate from {entry['rows']:,} of them for each test report "
        f"(standard error of the average {entry['standard_error']:.1g}, seed {entry['seed']})"
        for metric, entry in sampled.items()
    ]
    return ", ".join([str(averaged["over"]), *estimates])


def _of_whole_sets(scores: Mapping[str, Scores], metric: str, values: np.ndarray) -> dict[str, float]:
    """Return, by system, the value that another program gave for its whole set of reports, if no report is left out."""
    if np.isnan(values).any():
        return {}
    noted = {name: system.signature.get("noted", {}).get(metric, {}).get("corpus") for name, system in scores.items()}
    return {name: value for name, value in noted.items() if value is not None}


def _too_few(names: list[str], values: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the metrics for which fewer than two studies are scored for every system; raise if that is all of them."""
    n = {metric: int((~np.isnan(matrix).any(axis=0)).sum()) for metric, matrix in values.items()}
    if max(n.values()) < 2:
        metric, matrix = next(iter(values.items()))
        unscorable = np.isnan(matrix).sum(axis=1)
        shown = ", ".join(f"{name} {count}" for name, count in zip(names, unscorable, strict=True) if count)
        raise InputError(
            f"{metric} has {n[metric]} of {matrix.shape[1]} studies that every system can score (unscorable: {shown}), "
            "and needs 2.",
            "Score without this metric, or leave a system out.",
        )
    return {metric: count for metric, count in n.items() if count < 2}


def _check_rows(
    names: list[str], random: str | None, oracles: Mapping[str, str], paired: Sequence[tuple[str, str]]
) -> None:
    """Raise InputError unless `random`, `oracles` and `paired` name rows of the table.

    `oracles` also need `random`, and each pair must have two different rows and occur once.
    """
    named = {"random": [random] if random is not None else [], "oracles": [*oracles.values()]}
    named["paired"] = [name for pair in paired for name in pair]
    for argument, rows in named.items():
        for row in rows:
            if row not in names:
                raise InputError(argument, f"must name systems of the table, {', '.join(names)}", repr(row), "Add it.")
    for a, b in paired:
        if a == b:
            raise InputError("paired", "must name two systems", f"{a!r} twice", "Name another one.")
    if len({frozenset(pair) for pair in paired}) < len(paired):
        raise InputError("paired names a pair twice.", "Name it once: a repeated test changes the adjusted p-values.")
    if oracles and random is None:
        raise InputError(
            "oracles need the row of random reports, at which the share of the way to the oracle begins.",
            f"Name it with {option('random', 'NAME')}.",
        )
