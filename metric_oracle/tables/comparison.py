"""The table of a comparison: systems and metrics, how it is printed, drawn and written, and the notes below it.

The full tables have the layout of tables S5 to S7 of Yu et al.; `paper_table` has the one for a paper, `forest` the
figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from metric_oracle.base.option_types import LEGACY
from metric_oracle.findings.cells import NOTHING, Format, Row, ends, intervals_note, number, number_of, over_of, p_of
from metric_oracle.findings.figures import WIDTH
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, entry, listing, pivot, plain
from metric_oracle.findings.signature import pool_parts
from metric_oracle.statistics import FEW, LEVEL, Interval
from metric_oracle.tables.forest import Forest
from metric_oracle.tables.layout import Chosen, Layout, chosen, is_for_paper
from metric_oracle.tables.paper_table import PaperTables
from metric_oracle.tables.systems import is_bound
from metric_oracle.tables.table_cells import CORPUS, CRG, RADCLIQS, Cell, Difference, MetricColumn, title

_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("system", "versus", "metric", "direction")),
        ("n", pa.int64()),
        *((name, pa.float64()) for name in ("mean", "interval_low", "interval_high")),
        ("degenerate", pa.bool_()),
        *((name, pa.float64()) for name in ("minimum", "maximum")),
        ("unscorable", pa.int64()),
        ("best", pa.bool_()),
        ("nonzero", pa.int64()),
        ("effective", pa.float64()),
        # in percent, and the decrease where lower is better
        *((name, pa.float64()) for name in ("percent_change_from_random", "percent_change_low", "percent_change_high")),
        # fractions: 0 at random, 1 at the oracle
        *((name, pa.float64()) for name in ("share_of_way_to_oracle", "share_low", "share_high")),
        *((name, pa.float64()) for name in ("p_value", "p_adjusted")),
        ("intervals_overlap", pa.bool_()),
    ]
)
_COSINES = ("bertscore", "chexbert", "embedding")  # and bertscore:recall, ..., but not chexbert:labels
_FORM = "z.3f"  # of a score
_CI = f"{LEVEL:.0%} CI"


def _mean_of(kind: str) -> Format:
    """Return the column of a mean: its interval of this `kind`, the range of the scores, and for RadCliQ 1/mean."""

    def cell(row: Row) -> str:
        lines = [number(row["mean"], _FORM), _interval(row, kind)]
        spread = [number(row[name], _FORM) for name in ("minimum", "maximum") if row[name] is not None]
        lines.append(f"Range [{', '.join(spread)}]" if spread else f"Range {NOTHING}")
        return "\n".join([*lines, *(_inverse(row) if row["metric"] in RADCLIQS else ())])

    return cell


def _interval(row: Row, kind: str) -> str:
    """Return the interval of a mean or of a difference; with a kind, as Yu et al. print it, unless that is empty."""
    return ends(row["interval_low"], row["interval_high"], _FORM, kind=kind, alike=row["degenerate"])


def _inverse(row: Row) -> list[str]:
    """Return the lines with 1/RadCliQ of the mean, as ReXrank prints it; no value unless the mean is positive."""
    if row["mean"] <= 0:
        return [f"1/mean {NOTHING}‡"]
    text = f"1/mean {number(1 / row['mean'], _FORM)}"
    if row["interval_low"] <= 0:
        return [f"{text}‡"]
    return [text, ends(1 / row["interval_high"], 1 / row["interval_low"], _FORM)]


def _difference(row: Row) -> str:
    """Return the cell of a paired difference; the head of the column says what its interval is."""
    return f"{number(row['mean'], f'+{_FORM}')} {_interval(row, '')}"


def _overlap(row: Row) -> str:
    """Return whether the intervals of the two systems overlap."""
    return "yes" if row["intervals_overlap"] else "no"


_CHANGE = over_of("percent_change_from_random", "percent_change_low", "percent_change_high", "+z.1f", unit=" %")
_SHARE = over_of("share_of_way_to_oracle", "share_low", "share_high", "z.1f", scale=100, unit=" %")
# The columns of the table of paired differences.
_TESTS = {
    f"Difference [{_CI}]": _difference,
    "p": p_of("p_value"),
    "p adjusted": p_of("p_adjusted"),
    "Intervals overlap": _overlap,
}


@dataclass(frozen=True, repr=False)
class Comparison(Finding):
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
    layout : Layout
        What the printed table and the figure show.
    """

    systems: list[str]
    columns: list[MetricColumn]
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
    layout: Layout = field(default_factory=Layout)

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
        """Return the warning about paired differences that rest on few studies, in a list; empty if none does."""
        return self._short([(d.metric, f"{d.a} − {d.b}", d.effective) for d in self.differences], "difference")

    def _short(self, intervals: Sequence[tuple[str, str, float]], what: str) -> list[str]:
        """Return the warning about intervals that rest on few effective studies, in a list; empty if none does.

        An interval is (metric, name, number of effective studies); it is of a mean of `what`, "score" or "difference".
        """
        enough = [column.metric for column in self.columns if column.n >= FEW]
        few = {
            metric: [f"{name} {n:.0f}" for measured, name, n in intervals if measured == metric and 0 < n < FEW]
            for metric in enough
        }
        listed = "; ".join(f"{metric}: {', '.join(names)}" for metric, names in few.items() if names)
        counted = f"Effective studies are those whose {what} is not 0, or n / skewness² if fewer"
        line = f"Too few studies for these intervals: {listed}. {counted}; below {FEW} an interval is too short."
        return [line] if listed else []

    @property
    def table(self) -> pa.Table:
        """One row for each system and metric, then one for each paired difference.

        In the row of a difference, `versus` is the second system and `mean` the mean difference.
        `percent_change_from_random` is in percent, and a decrease where lower is better, so that more is always better;
        `share_of_way_to_oracle` is a fraction, 0 at random and 1 at the oracle.
        """
        rows = []
        for column in self.columns:
            for system in self.systems:
                cell = self.cells[system, column.metric]
                rows.append(
                    _shared_cells(column, system, cell.mean, cell.interval, cell.effective)
                    | {"minimum": cell.minimum, "maximum": cell.maximum, "unscorable": cell.unscorable}
                    | {"best": cell.best, "nonzero": cell.nonzero, "percent_change_from_random": cell.percent_change}
                    | _ends("percent_change", cell.change_interval)
                    | {"share_of_way_to_oracle": cell.share, **_ends("share", cell.share_interval)}
                )
        columns = {column.metric: column for column in self.columns}
        rows += [
            _shared_cells(columns[d.metric], d.a, d.difference, d.interval, d.effective)
            | {"versus": d.b, "p_value": d.p_value, "p_adjusted": d.p_adjusted, "intervals_overlap": d.overlap}
            for d in self.differences
        ]
        return pa.Table.from_pylist(rows, _SCHEMA)

    def tables(self) -> list[PaperTable]:
        """Return the table for a paper, or the full ones, by the style of the layout; by default the full ones.

        The full ones are the means, the changes from random, the shares of the way to the oracle, and the paired
        differences. The notes stand under the last one.
        """
        return self.tables_in("")

    def tables_in(self, form: str) -> list[PaperTable]:
        """Return the tables that are printed in a form, "md" or "tex", or on a terminal, ""."""
        if is_for_paper(self.layout, form):
            return [self._paper().table(_paper_notes(self))]
        random, oracles = self.signature["random"], self.signature["oracles"]
        kind, name = _CI, f"{LEVEL:.0%} confidence interval"
        if self.signature["interval"]["method"] == LEGACY:
            kind, name = "legacy", "legacy interval"
        tables = [self._averages(f"Average, {name} and range of metric scores", _mean_of(kind))]
        means = self._means()
        if random is not None:
            title = f"Percentage change from {plain(random)}; where lower is better, percentage decrease"
            tables.append(self._by_system(title, means, _CHANGE))
        if oracles:
            means = [row for row in means if row["metric"] in oracles]
            title = f"Share of the way from {plain(random)} to the metric's oracle"
            tables.append(self._by_system(title, means, _SHARE))
        if self.differences:
            tables.append(self._tests(_TESTS))
        tables[-1].notes.extend(_notes(self))
        return tables

    def brief(self) -> list[PaperTable]:
        """Return short tables for a terminal: the means without intervals, and the paired differences."""
        tables = [self._averages("Averages", number_of("mean", _FORM))]
        if self.differences:  # without the last column, for which a terminal of 80 columns has no room
            tables.append(self._tests({head: _TESTS[head] for head in list(_TESTS)[:-1]}))
            tables[-1].notes.extend(self.short_differences())
        tables[-1].notes.extend(_bold_note(self))
        return tables

    def _means(self) -> list[dict[str, Any]]:
        """Return the records of the means."""
        return [row for row in self.records() if row["versus"] is None]

    def _by_system(self, title: str, means: list[dict[str, Any]], cell: Format, best: str = "") -> PaperTable:
        """Return a table with a row for each system and a column for each metric; see `pivot`."""
        heads = {column.metric: column.label for column in self.columns}
        table = pivot(title, means, "system", "metric", cell, named=heads.__getitem__, best=best)
        return replace(table, rows=[(plain(system), cells) for system, cells in table.rows])

    def _averages(self, title: str, cell: Format) -> PaperTable:
        """Return a table of the means, with the numbers of studies and, where they are known, of distinct texts."""
        table = self._by_system(title, self._means(), cell, best="best")
        studies = [entry(number(column.n, ",")) for column in self.columns]
        if self.distinct_texts:
            table.columns.append("Distinct texts")
            for system, (_, cells) in zip(self.systems, table.rows, strict=True):
                cells.append(entry(number(self.distinct_texts.get(system), ",")))
            studies.append(entry(""))
        table.rows.append(("Studies", studies))
        return table

    def _tests(self, columns: Mapping[str, Format]) -> PaperTable:
        """Return the table of the paired differences; `columns` has, by head, the function that prints a cell."""
        heads = {column.metric: column.label for column in self.columns}

        def name(row: Row) -> str:
            return f"{plain(row['system'])} − {plain(row['versus'])}, {heads[row['metric']]}"

        tests = [row for row in self.records() if row["versus"] is not None]
        return listing("Paired differences on the same studies", tests, name, columns)

    def figure(self, width: float | None = None) -> Any:
        """Return a Matplotlib figure: for each metric the means of the systems with their intervals.

        A band reaches from random retrieval to the metric's oracle, if they are in the table. Models, oracles and
        baselines differ in colour and form; a baseline that would squeeze the axis is an arrow at its edge.

        Returns
        -------
        matplotlib.figure.Figure
            Systems from top to bottom in the order of the table; every metric on its own scale. By default it is 180
            millimetres wide.
        """
        signature = self.signature
        kinds, oracles = signature["systems"], signature["oracles"]
        bounds = frozenset(name for name in self.systems if name in oracles.values() or is_bound(str(kinds[name])))
        forest = Forest(self._chosen, self.cells, signature["random"], oracles, bounds, self._interval_kind())
        return forest.figure(width or WIDTH)

    @property
    def _chosen(self) -> Chosen:
        """The rows and columns of the layout."""
        return chosen(self.layout, self.systems, self.columns, self.competing)

    def _interval_kind(self) -> str:
        """Return what the intervals are, in short."""
        return "legacy interval" if self.signature["interval"]["method"] == LEGACY else _CI

    def _paper(self) -> PaperTables:
        """Return what makes the table for a paper."""
        method = self.signature["interval"]["method"]
        interval = {LEGACY: "legacy intervals", "bca": f"{LEVEL:.0%} confidence intervals (BCa bootstrap over studies)"}
        name = interval.get(method, f"{LEVEL:.0%} confidence intervals ({method} bootstrap over studies)")
        shown, pools = self._chosen, self.signature.get("pools", {})
        bounds = [
            f"{plain(system)}: the best of a pool under {plain(pool['metric'])}, where it is "
            f"{_bound(self, pool['metric'])} of the oracle's average."
            for system, pool in pools.items()
            if system in shown.systems
        ]
        return PaperTables(self.layout, shown, self.cells, self.differences, self.studies, name, bounds)


def _shared_cells(
    column: MetricColumn, system: str, mean: float, interval: Interval, effective: float
) -> dict[str, Any]:
    """Return the cells of a row for a mean or for a difference; `effective` is the effective number of studies."""
    return {
        "system": system,
        "metric": column.metric,
        "direction": column.direction,
        "n": column.n,
        "mean": mean,
        **_ends("interval", interval),
        "degenerate": interval.degenerate,
        "effective": effective,
    }


def _ends(name: str, interval: Interval | None) -> dict[str, float]:
    """Return the ends of an interval as ``<name>_low`` and ``<name>_high``; nothing where there is no interval."""
    return {} if interval is None else {f"{name}_low": interval.low, f"{name}_high": interval.high}


# The notes under the tables


def _notes(comparison: Comparison) -> list[str]:
    """Return the notes under the tables: methods, missing values, and what each metric's numbers mean."""
    notes = [_interval_note(comparison.signature["interval"])]
    intervals = [cell.interval for cell in comparison.cells.values()] + [d.interval for d in comparison.differences]
    if any(interval.degenerate for interval in intervals):
        notes.append("† The values are equal, or nearly, or too few for a test: the interval says nothing.")
    notes += _bold_note(comparison)
    notes += _left_out(comparison)
    notes += _warnings(comparison)
    notes += _pool_notes(comparison)
    if comparison.signature["random"] is not None:
        notes += _percentage_notes(comparison)
    notes += _metric_notes(comparison)
    if comparison.differences:
        notes.append(_test_note(comparison))
    return notes


def _paper_notes(comparison: Comparison) -> list[str]:
    """Return the notes of the table for a paper: those on the numbers that are in it, for who writes the paper."""
    notes = [_interval_note(comparison.signature["interval"])]
    notes += [*_left_out(comparison), *_warnings(comparison), *_pool_notes(comparison), *_whole_notes(comparison)]
    return [*notes, _test_note(comparison)] if comparison.differences else notes


def _interval_note(used: Mapping[str, Any]) -> str:
    """Return the note on the intervals, from their entry in the signature."""
    if used["method"] == LEGACY:
        return (
            f"Intervals: {LEGACY}, the t interval of the mean of one sample of {used['resamples']:,} scores with "
            f"replacement, as in the code released with Yu et al. (seed {used['seed']}); that code prints the mean "
            "of the sample, the middle of the interval, and this table the average of all scores, which may lie "
            "outside. It is not a confidence interval of the average."
        )
    return intervals_note(used)


def _bound(comparison: Comparison, metric: str) -> str:
    """Return which bound of an oracle's average that of a pool is, under a metric or a judge."""
    directions = {column.metric: column.direction for column in comparison.columns}
    return {"higher": "a lower bound", "lower": "an upper bound"}.get(directions.get(metric, ""), "a bound")


def _pool_notes(comparison: Comparison) -> list[str]:
    """Return the notes on rows that are the best of pools under a judge: they are bounds of its oracle, and cost."""
    notes = []
    for name, pool in comparison.signature.get("pools", {}).items():
        parts, bound = ", ".join(pool_parts(pool)), _bound(comparison, pool["metric"])
        of_study = f", and {pool['of_study']:,} for all rows of the study" if "of_study" in pool else ""
        late = f" {100 * pool['late']:.1f} % of the best are in the last tenth of the pool." if "late" in pool else ""
        notes.append(
            f"{plain(name)}: for each study the best under {plain(pool['metric'])} of a pool ({parts}). Others were "
            f"not judged, so that the average is {bound} of the oracle's. {pool['pairs']:,} distinct pairs were judged "
            f"for it{of_study}.{late}"
        )
    return notes


def _percentage_notes(comparison: Comparison) -> list[str]:
    """Return the notes on changes from random retrieval and on shares of the oracle's gain."""
    signature, columns, cells = comparison.signature, comparison.columns, comparison.cells
    notes = []
    undefined = [
        title(column.metric) for column in columns if cells[signature["random"], column.metric].percent_change is None
    ]
    if undefined:
        notes.append(f"No percentage of an average that is not above 0: {', '.join(undefined)}.")
    lost = [
        title(column.metric)
        for column in columns
        if column.metric in signature["oracles"] and cells[signature["random"], column.metric].share is None
    ]
    if lost:
        notes.append(f"No share where the oracle is not better than random: {', '.join(lost)}.")
    if signature["interval"]["method"] != LEGACY:
        notes.append(
            "Intervals of changes and shares: the same resamples, all rows together; none for rows that are fixed "
            "at 0 or 100 %, and where some resample has no such number."
        )
    if any(column.metric.startswith("radcliq") for column in columns):
        notes.append(
            "RadCliQ is centred: 0 is not a report without errors (of v1 it is the average of ReXVal), so its "
            "percentages are not percentages of errors."
        )
    cosines = [
        title(column.metric)
        for column in columns
        if column.metric.startswith(_COSINES) and "chexbert:" not in column.metric
    ]
    if cosines:
        notes.append(
            f"{', '.join(cosines)}: the cosine of unrelated reports is far from 0, so its percentages are not "
            "percentages of what reports share."
        )
    return notes


def _metric_notes(comparison: Comparison) -> list[str]:
    """Return the notes on RadCliQ, and on metrics of which whole sets of reports have a value."""
    notes = []
    if {column.metric for column in comparison.columns} & {*RADCLIQS}:
        notes.append(
            "1/mean: 1/RadCliQ as ReXrank prints it, of the mean and no mean of 1/RadCliQ, larger is better. ‡ None "
            "where the mean, or an end of its interval, is not above 0: predicted errors are centred and may lie below."
        )
    return [*notes, *_whole_notes(comparison)]


def _whole_notes(comparison: Comparison) -> list[str]:
    """Return the notes on metrics that score a whole set of reports at once."""
    signature, columns = comparison.signature, comparison.columns
    notes = []
    if any(column.metric.endswith(CORPUS) for column in columns):
        notes.append(
            "BLEU of the corpus: counts added over the reports, as pycocoevalcap and papers after R2Gen print it; each "
            "resample adds its own. A report has none, so there is no range."
        )
    for metric, of_systems in signature.get("of_whole_sets", {}).items():
        values = ", ".join(f"{plain(name)} {number(value, _FORM)}" for name, value in of_systems.items())
        notes.append(
            f"{metric} of the corpus, from the counts of all reports, as papers print it; no mean, and without an "
            f"interval: {values}."
        )
    if CRG in {column.metric for column in columns}:
        notes.append(
            "CRG: of the whole test set, 1 / (2 - average contribution of a report); each resample of studies has its "
            "own prevalence. A report has no CRG, so there is no range."
        )
        if comparison.fixed_weights:
            values = ", ".join(map(plain, comparison.fixed_weights))
            notes.append(f"CRG without counts of labels, the prevalence fixed in each resample: {values}.")
    return notes


def _test_note(comparison: Comparison) -> str:
    """Return the note on the tests of differences between systems."""
    signature, columns = comparison.signature, comparison.columns
    whole = any(column.metric == CRG or column.metric.endswith(CORPUS) for column in columns)
    return (
        f"p: two-sided permutation test of the mean difference, {signature['test']['resamples']:,} resamples"
        f"{'; of a whole test set, the bootstrap over studies' if whole else ''}. The interval of a difference "
        "has what its test does not reject, so it holds 0 where p is above 0.05. Adjusted p: by Benjamini and "
        f"Hochberg over one family, the {len(comparison.differences)} tests of this table: "
        f"{_counted(len(signature['paired']), 'pair')} of systems, each once, under "
        f"{_counted(len(columns), 'metric')}. Intervals that do not overlap are the rule of Yu et al. for a "
        "significant difference; it ignores that the studies are the same."
    )


def _counted(n: int, noun: str) -> str:
    """Return a number with a noun in singular or plural."""
    return f"{n:,} {noun}{'s' if n > 1 else ''}"


def _bold_note(comparison: Comparison) -> list[str]:
    """Return the note on which average is bold."""
    if not comparison.competing:
        return []
    is_every = len(comparison.competing) == len(comparison.systems)
    return [f"Bold: best average{'' if is_every else ' of the systems that are no oracle and no baseline'}."]


def _left_out(comparison: Comparison) -> list[str]:
    """Return the notes on studies and metrics that are not in the table."""
    notes, cells, columns = [], comparison.cells, comparison.columns
    if any(column.n < comparison.studies for column in columns):
        lost = []
        for column in columns:
            counts = [
                f"{plain(system)} {cells[system, column.metric].unscorable:,}"
                for system in comparison.systems
                if cells[system, column.metric].unscorable
            ]
            if counts:
                lost.append(f"{title(column.metric)}: {', '.join(counts)}")
        notes.append(
            f"Averages are over the studies that every system can score, of {comparison.studies:,}. "
            f"Unscorable: {'; '.join(lost)}."
        )
    if comparison.left_out:
        listed = "; ".join(f"{plain(name)}: {', '.join(metrics)}" for name, metrics in comparison.left_out.items())
        notes.append(f"Not in the table, because not every system has it: {listed}.")
    if comparison.too_few:
        listed = ", ".join(f"{metric} ({n})" for metric, n in comparison.too_few.items())
        notes.append(f"Not in the table, because fewer than 2 studies have it of every system: {listed}.")
    return notes


def _warnings(comparison: Comparison) -> list[str]:
    """Return the notes on intervals and ranges that need care."""
    notes = comparison.warnings()
    for name, over in comparison.averaged.items():
        notes.append(
            f"{plain(name)}: the score of a study is its mean over {over}; the range is that of the single scores "
            f"({NOTHING} where they are not known). Its interval is over studies and has no draw in it, so it is "
            "narrower than that of one random report for each study: that intervals do not overlap is not the paper's "
            "comparison here."
        )
    return notes
