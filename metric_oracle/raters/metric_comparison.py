"""Agreement of metrics with radiologists on several rated sets side by side, as a paper on a metric prints it.

For each set, and for the same set without pairs of equal texts (ReXVal* of Cho et al. 2025): the agreement with the
mean of the raters, the change between the two, differences of metrics, the raters' own agreement as a ceiling, the time
for each pair, and variants of a metric.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_left_out, check_one_of
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import identify
from metric_oracle.base.validation import Checked, public
from metric_oracle.corpora.tables import numbers_of, read_table, written
from metric_oracle.findings.cells import NOTHING, Format, Row, number
from metric_oracle.findings.figures import DASHED, LINE, MODEL, WIDTH, draw_dot, finish, new_figure
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, entry, listing, pivot, plain
from metric_oracle.findings.signature import bootstrap, signed
from metric_oracle.metrics import title_of
from metric_oracle.raters.interrater import (
    PERFECT,
    RADIOLOGISTS,
    RESAMPLES,
    accuracy_on_judgements,
    draw_raters,
    each_left_out,
    mean_over_raters,
)
from metric_oracle.raters.metric_agreement import (
    SCHEMA,
    PairedMetrics,
    ScoredRatings,
    Values,
    View,
    check_varied,
    differences_of,
    draw_resamples,
    notes_on,
    pairs_to_compare,
    view_of,
)
from metric_oracle.raters.names import (
    ACCURACY_NOTE,
    MORE_NOTES,
    SYMBOLS,
    TEST,
    TITLES,
    agreement_cell,
    kind_in_line,
    statistic_name,
)
from metric_oracle.raters.rank_correlation import (
    ACCURACY,
    JUDGEMENTS,
    STATISTICS,
    TAU,
    TIES,
    WHOLE,
    WITHIN,
    add_adjusted,
    interval_row,
    side,
)
from metric_oracle.raters.rated_scores import (
    MetricsOfPairs,
    ScoreFiles,
    Texts,
    lower_is_better,
    read_rated,
    score_texts,
)
from metric_oracle.raters.ratings import AnyRated, Rated
from metric_oracle.raters.scatter import scatter
from metric_oracle.retrieval.machine import machine
from metric_oracle.statistics import Array, difference, few_studies

AGREEMENT, CHANGE, DIFFERENCE, CEILING = "agreement", "change", "difference", "ceiling"
ABLATION, TIME = "ablation", "time"
IDENTICAL = "*"  # after the name of a set: without pairs of equal texts
_STAND_INS = {PERFECT: "a perfect metric", RADIOLOGISTS: "one radiologist"}  # names of what is no metric
_WITHIN_NAMES = {ACCURACY: "accuracy", TIES: "accuracy with ties", WITHIN: "tau-b", WHOLE: "groups in order"}


class _TableColumn(NamedTuple):
    """A column of a table: its head, and the values that the fields of its rows have, one row for each metric."""

    head: str
    what: str
    set: str
    errors: str
    statistic: str
    versus: str | None = None


@dataclass(frozen=True)
class RatedFiles(Checked):
    """The files of one rated set.

    Examples
    --------
    >>> mo.RatedFiles("ratings.csv", samples="samples.csv")
    RatedFiles(ratings='ratings.csv', scores=(), samples='samples.csv')
    """

    ratings: AnyRated
    scores: ScoreFiles = ()
    samples: Texts | None = None


@dataclass(frozen=True, repr=False)
class MetricComparison(Finding):
    """Agreement of metrics with radiologists on several rated sets.

    Attributes
    ----------
    views : list of View
    table : pyarrow.Table
        One row for each number. ``what`` is "agreement"; "change" (of a metric's agreement when pairs of equal texts
        are left out, usually a fall); "difference" (of two metrics, ``versus`` is the second); "ceiling" (agreement
        with the mean of all raters but one, averaged over the raters left out; ``radiologists`` are the raters left
        out); "ablation" (of a variant, ``versus`` is the metric); or "time" (milliseconds for each pair).
    signature : dict
        What is needed to compute the same numbers again.
    """

    views: list[View]
    table: pa.Table
    signature: dict[str, Any]

    @property
    def metrics(self) -> list[str]:
        """Metrics of all sets, in their order."""
        return list(dict.fromkeys(name for view in self.views for name in view.scores))

    @public
    def view(self, name: str) -> View:
        """Return the element of `views` with this name."""
        views = {view.name: view for view in self.views}
        check_one_of("name", name, views, "Choose a rated set.")
        return views[name]

    @public
    def select(self, what: str, **keys: str) -> list[dict[str, Any]]:
        """Return the rows of `table` of one kind (column ``what``) whose other columns have these values."""
        wanted = {"what": what, **keys}
        return [r for r in self.table.to_pylist() if all(r[name] == value for name, value in wanted.items())]

    def summary(self) -> str:
        """Return one line that says what was compared."""
        sets = ", ".join(f"{view.name} ({len(next(iter(view.errors.values()))):,} pairs)" for view in self.views)
        return f"{', '.join(self.metrics)} on {sets}"

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        return few_studies({view.name: view.studies for view in self.views})

    def tables(self) -> list[PaperTable]:
        """Return the tables of a paper on a metric, without those that would be empty.

        Agreement on every set (table 1 of Cho et al.), the change without pairs of equal texts (2), time (3), variants
        (4), and agreement with intervals on every set and view, for each kind of errors (5); then agreement within
        references, agreement next to one radiologist, and differences of metrics.
        """
        pooled = [view for view in self.views if TAU in view.statistics]
        n_kinds = max((len(view.kinds) for view in pooled), default=0)
        main = dict.fromkeys(view.statistics[0] for view in self.views)
        tables = [
            self._agreement_table([view for view in pooled if view.name == view.base]),
            *(self._change_table(view) for view in self.views if view.name != view.base),
            self._time_table(),
            self._ablation_table(),
            *(self._interval_table(pooled, number) for number in range(n_kinds)),
            self._within_table(),
            self._ceiling_table(),
            self._judgement_table(),
            *(self._difference_table(statistic) for statistic in main),
        ]
        present = [table for table in tables if table]
        present[0].notes.extend(self._notes())
        return present

    def _notes(self) -> list[str]:
        """Return the notes on sets, resamples and directions."""
        resampled = self.signature["bootstrap"]
        sets = [
            f"{view.name}: {len(next(iter(view.errors.values()))):,} pairs of {view.studies:,} studies, {view.raters} "
            f"rater{'s' if view.raters > 1 else ''}"
            for view in self.views
        ]
        raters = "and what other raters would change" if "rater" in resampled["unit"] else "the raters fixed"
        notes = [
            (
                f"{'; '.join(sets)}. 95 % percentile intervals from {resampled['resamples']:,} resamples of studies, "
                f"{raters}, seed {resampled['seed']}; positive: a better score goes with fewer errors."
            ),
            *self.warnings(),
        ]
        if any(view.name != view.base for view in self.views):
            notes.append(f"{IDENTICAL}: without pairs of equal texts, on the same resampled studies.")
        degenerate = sum(r["degenerate"] or 0 for r in self.select(AGREEMENT))
        return [*notes, *notes_on(self.signature, degenerate, "ratings")]

    @cached_property
    def _rows_of(self) -> dict[tuple[str | None, ...], list[Row]]:
        """The rows of `table` by the values that a column has of them."""
        rows_of: dict[tuple[str | None, ...], list[Row]] = {}
        for r in self.table.to_pylist():
            rows_of.setdefault(tuple(r[name] for name in _TableColumn._fields[1:]), []).append(r)
        return rows_of

    def _side_by_side(
        self,
        title: str,
        columns: Sequence[_TableColumn],
        *notes: str,
        cell: Format = agreement_cell,
        lines: Sequence[str] = (),
        ranked: bool = False,
    ) -> PaperTable | None:
        """Return a table with a line for each metric, or for each of `lines`; None if no column has a row.

        If it is `ranked`, the largest value of a column is bold and the second largest is underlined.
        """
        rows = []
        for column in columns:
            of_column = self._rows_of.get(column[1:], [])
            values = {r["value"] for r in of_column if r["value"] is not None}
            best_first = sorted(values, reverse=True) if ranked and len(of_column) > 1 else []
            for r in of_column:
                marks = {"best": r["value"] in best_first[:1], "second": r["value"] in best_first[1:2]}
                rows.append({**r, "name": _STAND_INS.get(r["metric"], r["metric"]), "head": column.head, **marks})
        names = [_STAND_INS.get(metric, metric) for metric in lines or self.metrics]
        table = pivot(title, rows, "name", "head", cell, notes, "metric", best="best", second="second", lines=names)
        return table if rows else None

    def _agreement_table(self, views: Sequence[View]) -> PaperTable | None:
        pairs = [(view, view.kinds[0]) for view in views]
        note = f"{_kinds_note(pairs)} Bold: the best of a column, underlined: the second."
        title = "Correlation with radiologists: Kendall τ-b and Spearman ρ"
        return self._side_by_side(title, _correlations(pairs), note, cell=_without_ends, ranked=True)

    def _interval_table(self, views: Sequence[View], number: int) -> PaperTable | None:
        """Return the table of the kind of errors with this number in each view."""
        pairs = [(view, view.kinds[number]) for view in views if number < len(view.kinds)]
        title = "Correlation with radiologists and 95 % confidence intervals"
        return self._side_by_side(title, _correlations(pairs), _kinds_note(pairs), ranked=True)

    def _change_table(self, view: View) -> PaperTable | None:
        kind, statistic = view.kinds[0], view.statistics[0]
        symbol = SYMBOLS.get(statistic, _WITHIN_NAMES.get(statistic))
        change = f"Δ{symbol}" if statistic in SYMBOLS else "Δ"
        columns = [
            *(_TableColumn(f"{name} {symbol}", AGREEMENT, name, kind, statistic) for name in (view.base, view.name)),
            _TableColumn(change, CHANGE, view.base, kind, statistic, view.name),
        ]
        n = [len(self.view(name).errors[kind]) for name in (view.base, view.name)]
        note = (
            f"{'Kendall τ-b' if statistic == TAU else TITLES[statistic]}; {view.name}: without {n[0] - n[1]} pairs of "
            f"equal texts, on which metrics have it easy. {change}: the change, its interval from the same resampled "
            f"studies. {_kinds_note([(view, kind)])}"
        )
        return self._side_by_side(f"Change from {view.base} to {view.name}", columns, note, lines=[*view.scores])

    def _time_table(self) -> PaperTable | None:
        rows = self.select(TIME)
        note = (
            "Time for each pair; of the metrics that were scored here all of a scoring of the whole set, texts to "
            "scores."
        )
        return listing("Time", rows, "metric", _TIME, [note], "metric") if rows else None

    def _within_table(self) -> PaperTable | None:
        columns = [
            _TableColumn(f"{view.name} {kind_in_line(kind)}, {name}", AGREEMENT, view.name, kind, statistic)
            for view in self.views
            for kind, (statistic, name) in product(view.kinds, _WITHIN_NAMES.items())
        ]
        columns = [c for c in columns if any(r["value"] is not None for r in self._rows_of.get(c[1:], []))]
        notes = [f"Between candidates for one reference alone. {ACCURACY_NOTE}"]
        notes += [text for statistic, text in MORE_NOTES.items() if statistic in {c.statistic for c in columns}]
        return self._side_by_side("Agreement within references", columns, *notes, ranked=True)

    def _ceiling_table(self) -> PaperTable | None:
        columns = [
            _TableColumn(
                f"{view.name} {kind_in_line(kind)}{less}", CEILING, view.name, kind, view.statistics[0], versus
            )
            for view in self.views
            if view.raters > 1
            for kind in view.kinds
            for versus, less in ((None, ""), (RADIOLOGISTS, ", less one radiologist"))
        ]
        statistics = " or ".join(dict.fromkeys(statistic_name(column.statistic) for column in columns))
        note = (
            f"{statistics[:1].upper()}{statistics[1:]} with the mean of all radiologists but one, averaged over the "
            "one left out, of metrics and of that radiologist: about the most that a metric can reach. The raters are "
            "fixed."
        )
        lines = [RADIOLOGISTS, *self.metrics]
        return self._side_by_side("Metrics beside one radiologist", columns, note, lines=lines)

    def _judgement_table(self) -> PaperTable | None:
        columns = [
            _TableColumn(f"{view.name} {kind_in_line(kind)}", CEILING, view.name, kind, JUDGEMENTS)
            for view in self.views
            for kind in view.kinds
        ]
        note = (
            "Share of the single judgements without a tie that agree with the metric, or with another radiologist; a "
            "tie is half. A perfect metric takes the side of the majority in every comparison: where radiologists "
            "disagree, no metric agrees with more judgements."
        )
        lines = [PERFECT, RADIOLOGISTS, *self.metrics]
        return self._side_by_side("Accuracy on single judgements", columns, note, lines=lines)

    def _difference_table(self, statistic: str) -> PaperTable | None:
        family = self.select(DIFFERENCE, statistic=statistic)
        views = {view.name for view in self.views if view.statistics[0] == statistic}
        rows = [r for r in family if r["set"] in views]
        if not rows:
            return None
        same = len(rows) == len(family)
        tests = f"these {len(rows)} tests" if same else f"the {len(family)} tests on all sets"
        note = (
            "Both metrics on the same resampled studies, with the mean of raters. p: two-sided, from the bootstrap; "
            f"adjusted by Benjamini and Hochberg over one family, {tests}, fewer if pairs of metrics are chosen. A "
            "result file, such as CSV, has the other statistics, each with a family of its own."
        )
        title = f"Difference of two metrics in {statistic_name(statistic)}"
        return listing(title, rows, _difference_name, TEST, [note])

    def _ablation_table(self) -> PaperTable | None:
        ablations = self.select(ABLATION)
        if not ablations:
            return None
        view, statistic = self.view(ablations[0]["set"]), ablations[0]["statistic"]
        # A metric stands above its variants; it has no difference from itself.
        metric_of = {r["metric"]: r["versus"] for r in ablations if r["versus"]}
        row_of = {(r["metric"], r["errors"], r["versus"]): r for r in ablations}
        for r in self.select(AGREEMENT, set=view.name, statistic=statistic):
            row_of.setdefault((r["metric"], r["errors"], None), r)
        rows = []
        for metric in dict.fromkeys(metric_of.values()):
            for name in (metric, *(variant for variant, base in metric_of.items() if base == metric)):
                cells = []
                for kind in view.kinds:
                    test = row_of.get((name, kind, metric))
                    cells.append(agreement_cell(row_of[name, kind, None]))
                    cells += [NOTHING if test is None else cell(test) for cell in TEST.values()]
                rows.append((name, [entry(cell) for cell in cells]))
        name = statistic_name(statistic)
        note = (
            f"{name[0].upper()}{name[1:]} of variants of a metric, and the difference from it on the same resampled "
            f"studies; p-values adjusted by Benjamini and Hochberg over these "
            f"{sum(r['versus'] is not None for r in ablations)} tests."
        )
        heads = [head for kind in view.kinds for head in (f"{view.name} {kind_in_line(kind)}", *TEST)]
        return PaperTable("Ablations", heads, rows, [note], "variant")

    def figure(self, width: float | None = None) -> Any:
        """Return a Matplotlib figure: for each set and kind the agreement of metrics with its interval, best first.

        A dashed line shows the agreement of one radiologist with the others. By default it is 180 millimetres wide, for
        one kind 110.
        """
        n_kinds = max(len(view.kinds) for view in self.views)
        n_metrics = max(len(view.scores) for view in self.views)
        height = len(self.views) * (18 + 4.6 * n_metrics)
        figure = new_figure(width or (110 if n_kinds == 1 else WIDTH), height)
        panels = figure.subplots(len(self.views), n_kinds, squeeze=False)
        for row, view in enumerate(self.views):
            statistic = view.statistics[0]
            rows = self.select(AGREEMENT, set=view.name, statistic=statistic)
            one_rater = self.select(CEILING, set=view.name, metric=RADIOLOGISTS, statistic=statistic)
            ceiling = {r["errors"]: r["value"] for r in one_rater}
            for column, panel in enumerate(panels[row]):
                if column >= len(view.kinds):
                    panel.set_visible(False)
                    continue
                kind = view.kinds[column]
                dots = [r for r in rows if r["errors"] == kind and r["value"] is not None]
                dots.sort(key=lambda r: -r["value"])
                for y, r in enumerate(dots):
                    draw_dot(panel, MODEL, r["value"], y, None if r["low"] is None else (r["low"], r["high"]))
                if ceiling.get(kind) is not None:
                    panel.axvline(ceiling[kind], **DASHED)
                panel.set_yticks(range(len(dots)), [plain(title_of(r["metric"])) for r in dots], parse_math=False)
                panel.set_ylim(len(dots) - 0.4, -0.6)
                panel.grid(axis="x", color=LINE, linewidth=0.4)
                panel.set_axisbelow(True)
                panel.set_title(f"{plain(view.name)}: {kind_in_line(kind)}", parse_math=False)
                if row == len(self.views) - 1:
                    names = dict.fromkeys(statistic_name(view.statistics[0]) for view in self.views)
                    label = f"{' or '.join(names)}, 95 % interval; dashed: one radiologist"
                    panel.set_xlabel(label)
        return finish(figure)

    def scatter(self) -> Any:
        """Return a Matplotlib figure of the first set: mean errors against scores, like that of an alignment."""
        view = self.views[0]
        row_of = {(r["metric"], r["errors"]): r for r in self.select(AGREEMENT, set=view.name, statistic=TAU)}
        return scatter(view.scores, view.errors, row_of, self.signature["lower_is_better"])


def _correlations(pairs: Sequence[tuple[View, str]]) -> list[_TableColumn]:
    """Return a column of tau-b and one of Spearman's rho for each view and kind."""
    return [
        _TableColumn(f"{view.name} {symbol}", AGREEMENT, view.name, kind, statistic)
        for view, kind in pairs
        for statistic, symbol in SYMBOLS.items()
    ]


def _without_ends(row: Row) -> str:
    return agreement_cell({**row, "low": None})


def _kinds_note(pairs: Sequence[tuple[View, str]]) -> str:
    names_of: dict[str, list[str]] = {}
    for view, kind in pairs:
        names_of.setdefault(kind_in_line(kind), []).append(view.name)
    kinds = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in names_of.items())
    return f"With the mean of raters of {kinds}."


def _difference_name(row: Mapping[str, Any]) -> str:
    return f"{row['metric']} − {row['versus']}\n{row['set']}, {kind_in_line(row['errors'])}"


def _milliseconds(row: Mapping[str, Any]) -> str:
    return number(row["value"], ",.2f" if row["value"] >= 1 else ".2g")


def _device(row: Mapping[str, Any]) -> str:
    return row["device"] or NOTHING


_TIME: dict[str, Format] = {"ms per pair": _milliseconds, "device": _device}


@public
def compare_metrics(
    sets: Annotated[
        Mapping[str, RatedFiles],
        Doc(
            "Rated sets by their names. Each has counted errors, grades, preferences between two candidates, or "
            "candidates in an order."
        ),
        Flag(metavar="NAME=FILE"),
    ],
    *,
    metrics: MetricsOfPairs | None = None,
    directions: option_types.Directions | None = None,
    paired: PairedMetrics | None = None,
    times: Annotated[
        str | Path | None,
        Doc(
            "Table with the running times of other tools: the columns metric, ms_per_pair (milliseconds) and, if "
            "known, device."
        ),
    ] = None,
    ablations: Annotated[
        Mapping[str, str | Path] | None,
        Doc(
            "Scores of the pairs in the first rated set by a variant of a metric, by the name of the variant. The "
            "column of the scores in its table has the name of the metric."
        ),
        Flag("--ablation", metavar="NAME=FILE"),
    ] = None,
    resample_raters: Annotated[
        bool,
        Doc(
            "Resample raters as well as studies, so that the intervals and p-values hold for other raters, too. By "
            "default only studies are resampled."
        ),
    ] = False,
    resamples: option_types.ResamplesOfRaters = RESAMPLES,
    seed: option_types.Seed = 0,
) -> MetricComparison:
    """Compare metrics by their agreement with radiologists, on one or several rated sets, in the tables of a paper.

    Where the texts are known, metrics of this tool are scored and timed as well, and the set without pairs of equal
    texts is added under its name with a star, on the same resampled studies. A pair of metrics is compared on the sets
    that have both, and all comparisons under one statistic are one family of tests. As in Cho et al., variants of
    metrics are compared without pairs of equal texts, where these are known.

    Returns
    -------
    MetricComparison
        Agreement of each metric on each set, with intervals, tests, ceilings and times.

    Raises
    ------
    InputError
        If there is no set, a file breaks its format, scores lack pairs, a direction is unknown, a set has fewer than
        two studies, or `resample_raters` is given for a set with one rater.

    See Also
    --------
    align : One rated set, with the agreement of each rater.

    Notes
    -----
    With `resample_raters` the intervals of the ceiling still keep the raters fixed. A few raters who weigh findings
    very differently do not show how differently others would, and such intervals are still too short.

    Examples
    --------
    >>> sets = {"example": mo.RatedFiles("ratings.csv", samples="samples.csv")}
    >>> result = mo.compare_metrics(sets, metrics=["bleu", "rouge-l"], resamples=200)
    >>> result
    <MetricComparison: bleu-2, rouge-l on example (96 pairs), example* (77 pairs)>
    >>> [round(r["value"], 3) for r in result.select("agreement", set="example", errors="total", statistic="tau-b")]
    [0.417, 0.433]
    """
    resamples, seed = int(resamples), int(seed)
    if not sets:
        raise InputError("sets", "must be at least one rated set", "none", "Give one as `sets={NAME: RATINGS}`.")
    read: dict[str, tuple[Rated, dict[str, Array]]] = {}
    sources: dict[str, Any] = {}
    measured: dict[str, float] = {}
    for name, files in sets.items():
        rated, columns, sources[name] = read_rated(files.ratings, files.scores, files.samples, metrics)
        check_varied(rated, columns)
        measured = {**_measure(rated, sources[name]), **measured}
        if len(rated.raters) < 2:
            step, got = "Leave out the set or `resample_raters=True`.", f"{len(rated.raters)} in {name}"
            of_raters = {"resample_raters": resample_raters or None}
            check_left_out(of_raters, "for sets with fewer than 2 raters", step, got=got)
        read[name] = rated, columns
    names = list(dict.fromkeys(metric for _, columns in read.values() for metric in columns))
    lower = lower_is_better(names, directions or {})
    pairs = pairs_to_compare(names, paired)
    views: list[View] = []
    parts: dict[str, ScoredRatings] = {}
    for name, (rated, columns) in read.items():
        deviations = draw_raters(len(rated.raters), resamples, seed) if resample_raters else None
        whole = ScoredRatings(rated, columns, lower, draw_resamples(rated, resamples, seed), deviations)
        for view, part in _parts(name, whole):
            parts[view] = part
            views.append(view_of(view, name, part))
    rows: list[Row] = []
    values: dict[str, Values] = {}
    for view, part in parts.items():
        of_set, values[view] = part.agreement("mean")
        rows += [{"what": AGREEMENT, "set": view, **row} for row in sorted(of_set, key=part.place)]
    first = next(iter(read))
    variants = _read_variants(ablations or {}, parts[first], names)
    rows += [
        *_changes(parts, values, views),
        *({"what": DIFFERENCE, **row} for row in differences_of(parts, values, pairs)),
        *(row for view in views if view.raters > 1 for row in _ceilings(view.name, parts[view.name])),
        *_ablations([v for v in views if v.base == first][-1], parts, values, variants),
        *_times(names, times, measured),
    ]
    signature = signed(
        command="compare-metrics",
        sets=sources,
        metrics=names,
        lower_is_better=[name for name in names if name in lower],
        paired=[list(pair) for pair in pairs],
        ablations={name: identify(Path(path)) for name, path in (ablations or {}).items()},
        times=None if times is None else identify(Path(times)),
        **({"machine": machine()} if measured else {}),
        bootstrap=bootstrap("study, and raters by the jackknife" if resample_raters else "study", resamples, seed),
    )
    return MetricComparison(views, pa.Table.from_pylist(rows, SCHEMA).drop_columns(["rater"]), signature)


def _parts(name: str, whole: ScoredRatings) -> Iterator[tuple[str, ScoredRatings]]:
    """Yield the name and the pairs of each view of a set: all pairs, and if some texts are equal those that differ."""
    yield name, whole
    texts = [*(whole.rated.references or [None]), *(whole.rated.predictions or [None])]
    if None not in texts:
        differ = whole.rated.differing()
        if not differ.all():
            yield f"{name}{IDENTICAL}", whole.subset(differ)


def _changes(parts: Mapping[str, ScoredRatings], values: Mapping[str, Values], views: Sequence[View]) -> Iterator[Row]:
    """Yield the agreement without pairs of equal texts minus the agreement on all pairs."""
    for view in (view for view in views if view.name != view.base):
        for statistic, kind, metric in product(view.statistics, view.kinds, view.scores):
            change = difference(*(values[name][statistic, kind, metric] for name in (view.name, view.base)))
            keys = {"what": CHANGE, "set": view.base, "metric": metric, "versus": view.name, "errors": kind}
            yield {**keys, **parts[view.base].interval_row(change, statistic, is_difference=True)}


def _ceilings(view: str, part: ScoredRatings) -> Iterator[Row]:
    """Yield the agreement with the mean of all raters but one, averaged over the raters left out.

    There are rows for each metric, for the raters left out, and for the difference of the two. If ratings cannot be
    compared between studies, the accuracy on single judgements is added.
    """
    statistic = part.rated.statistics[0]
    function, goodness = STATISTICS[statistic], part.goodness()
    for kind in part.rated.kinds:
        by_rater = part.rated.by_rater(kind)
        values: dict[str, list[Array]] = {name: [] for name in (RADIOLOGISTS, *goodness)}
        for own, others in each_left_out(by_rater):
            panel = side(-others, part.drawn)
            values[RADIOLOGISTS].append(function(side(-own, part.drawn), panel, part.drawn))
            for name, x in goodness.items():
                values[name].append(function(x, panel, part.drawn))
        means = {name: mean_over_raters(of_raters) for name, of_raters in values.items()}
        for name, mean in means.items():
            keys = {"what": CEILING, "set": view, "metric": name, "errors": kind}
            yield {**keys, **interval_row(statistic, mean, part.drawn)}
            if name != RADIOLOGISTS:
                below = interval_row(statistic, difference(mean, means[RADIOLOGISTS]), part.drawn)
                yield {**keys, "versus": RADIOLOGISTS, **below}
        if not part.drawn.is_pooled:
            sides = [side(-own, part.drawn) for own in by_rater]
            for name, accuracy in accuracy_on_judgements(goodness, sides, part.drawn).items():
                keys = {"what": CEILING, "set": view, "metric": name, "errors": kind}
                yield {**keys, **interval_row(JUDGEMENTS, accuracy, part.drawn)}


def _read_variants(
    ablations: Mapping[str, str | Path], part: ScoredRatings, names: Sequence[str]
) -> dict[str, tuple[str, Array]]:
    """Return the metric and the scores of each variant, by its name; `names` are all metrics, for a message."""
    variants = {}
    for variant, path in ablations.items():
        table = read_table(Path(path))
        columns = [name for name in part.scores if name in table.names]
        if len(columns) != 1:
            raise InputError(
                "ablations",
                f"must have one of the metrics as a column ({shown(*names)})",
                f"{shown(*columns) or 'none'} in {path}",
                "Give the column of the variant the name of the metric.",
            )
        _, scores, _ = read_rated(part.rated, path, None, columns)
        variants[variant] = (columns[0], scores[columns[0]])
    return variants


def _ablations(
    view: View,
    parts: Mapping[str, ScoredRatings],
    values: Mapping[str, Values],
    variants: Mapping[str, tuple[str, Array]],
) -> Iterator[Row]:
    """Yield the agreement of each variant and its difference from the metric. The differences are one family."""
    whole, statistic = parts[view.base], view.statistics[0]
    family = []
    for variant, (metric, scores) in variants.items():
        alone = ScoredRatings(whole.rated, {metric: scores}, whole.lower, whole.drawn, whole.deviations)
        part = dict(_parts(view.base, alone))[view.name]
        rows, of_variant = part.agreement("mean")
        of_kind = {r["errors"]: r for r in rows if r["statistic"] == statistic}
        for kind in view.kinds:
            key = statistic, kind, metric
            names = {"what": ABLATION, "set": view.name, "metric": variant, "errors": kind}
            yield {**of_kind[kind], **names}
            row = part.difference(difference(of_variant[key], values[view.name][key]), statistic)
            if row is not None:
                family.append({**names, "versus": metric, **row})
    add_adjusted(family)
    yield from family


def _measure(rated: Rated, source: Mapping[str, Any]) -> dict[str, float]:
    """Return the milliseconds per pair of each metric that `source` says was computed here, timed one by one."""
    measured = {}
    for metric in source.get("scored", {}):
        begin = time.perf_counter()
        score_texts(rated, [metric])  # the first scoring has compiled and loaded everything
        measured[metric] = 1000 * (time.perf_counter() - begin) / len(rated.pairs)
    return measured


def _times(names: Sequence[str], path: str | Path | None, measured: Mapping[str, float]) -> Iterator[Row]:
    """Yield a row with the time per pair of each metric: that of the table at `path`, else that in `measured`."""
    time_of: dict[str, tuple[float, str | None]] = {}
    if path is not None:
        table = read_table(Path(path))
        names_of_devices = ["device"] if "device" in table.names else []
        metrics, *others = (written(table.column(name)).to_list() for name in ("metric", *names_of_devices))
        devices = others[0] if others else [None] * table.n_rows
        times = numbers_of(table.column("ms_per_pair")).to_numpy()
        for row, (metric, value, device) in enumerate(zip(metrics, times.tolist(), devices, strict=True), start=1):
            if not 0 < value < np.inf or str(metric) not in names or str(metric) in time_of:
                if str(metric) in time_of:
                    got = f"a second time of {shown(str(metric))}"
                else:
                    got = "no time above 0" if str(metric) in names else "another metric"
                raise InputError(
                    "times",
                    f"must have each metric ({shown(*names)}) at most once, with milliseconds above 0 in ms_per_pair",
                    f"{got} in row {row} of {path}",
                    "Correct or delete this row.",
                )
            time_of[str(metric)] = value, device
    device = f"{machine()['cores']} cores" if measured else None
    for metric in names:
        if metric in time_of or metric in measured:
            value, on_device = time_of.get(metric) or (measured[metric], device)
            yield {"what": TIME, "metric": metric, "value": value, "device": on_device}
