"""Tables of the agreement of metrics with radiologists.

`alignment_tables` has the layout of tables S2 of Yu et al. (Patterns 2023), one column for each rater.
`comparison_tables` has the layout of tables 1 to 5 of Cho et al. (2025), one column for each rated set, followed by
agreement within references, agreement next to one radiologist, and differences of metrics.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from metric_oracle.findings.cells import NOTHING
from metric_oracle.findings.tables import Entry, PaperTable, entry
from metric_oracle.raters.interrater import PERFECT, RADIOLOGISTS
from metric_oracle.raters.layout import agreement_entry, interval_lines, kind_name, p_text, rater_name
from metric_oracle.raters.metric_agreement import (
    ABLATION,
    AGREEMENT,
    CEILING,
    CHANGE,
    DIFFERENCE,
    IDENTICAL,
    MEAN,
    TIME,
    Alignment,
    MetricComparison,
    View,
)
from metric_oracle.raters.rank_correlation import ACCURACY, JUDGEMENTS, SPEARMAN, TAU, TIES, WHOLE, WITHIN

_SYMBOLS = {TAU: "τ", SPEARMAN: "ρ"}
_TITLES = {
    TAU: "Kendall tau-b",
    SPEARMAN: "Spearman rank correlation",
    WITHIN: "Kendall tau-b within studies",
    ACCURACY: "Pairwise accuracy within studies",
    TIES: "Accuracy with ties within studies",
    WHOLE: "Groups in the right order",
}
_WITHIN_NAMES = {ACCURACY: "accuracy", TIES: "accuracy with ties", WITHIN: "tau-b", WHOLE: "groups in order"}
_ACCURACY_NOTE = (
    "Accuracy: of the candidates that the radiologists tell apart, how many the metric orders alike, a tie being half; "
    "0.5 is chance."
)
_MORE_NOTES = {
    TIES: "Accuracy with ties: of all comparisons, how many have the same outcome (better, worse or tied).",
    WHOLE: "Groups in order: share of groups, such as the candidates of a study, that the metric orders correctly.",
}
Record = dict[str, Any]
Row = tuple[str, list[Entry]]


# One rated set, by rater


def alignment_tables(result: Alignment) -> list[PaperTable]:
    """Return the tables of one rated set: by rater, within studies, raters among themselves, differences of metrics."""
    records = {(r["statistic"], r["metric"], r["errors"], r["rater"]): r for r in result.table.to_pylist()}
    statistics = list(dict.fromkeys(statistic for statistic, *_ in records))
    raters = list(dict.fromkeys(rater for *_, rater in records))
    heads = ["Mean of raters" if rater == MEAN else rater_name(rater) for rater in raters]
    keys = list(product(result.scores, result.errors))
    tables = []
    for statistic in [s for s in (TAU, SPEARMAN) if s in statistics] or statistics[:1]:
        rows: list[Row] = [
            (_row_name(metric, kind), [agreement_entry(records[statistic, metric, kind, rater]) for rater in raters])
            for metric, kind in keys
        ]
        subject = "metric scores and counted errors" if TAU in statistics else "metrics"
        tables.append(PaperTable(f"{_TITLES[statistic]} of {subject}, by radiologist", heads, rows))
    within = [statistic for statistic in (WITHIN, ACCURACY, TIES, WHOLE) if statistic in statistics]
    if any(records[within[0], metric, kind, MEAN]["value"] is not None for metric, kind in keys):
        rows = [
            (_row_name(metric, kind), [agreement_entry(records[name, metric, kind, MEAN]) for name in within])
            for metric, kind in keys
        ]
        note = (
            "Within studies: between candidates for one reference alone, where a metric cannot gain by telling easy "
            f"studies from hard ones. {_ACCURACY_NOTE}"
        )
        notes = [note, *(text for name, text in _MORE_NOTES.items() if name in within)]
        heads = [_TITLES[name] for name in within]
        tables.append(PaperTable("Agreement within studies, with the mean of raters", heads, rows, notes))
    if result.raters.num_rows:
        tables.append(_raters_table(result))
    differences = [r for r in result.differences.to_pylist() if r["statistic"] == statistics[0]]
    if differences:
        tables.append(_alignment_differences(differences))
    tables[0].notes.extend(_alignment_notes(result))
    return tables


def _row_name(metric: str, kind: str) -> str:
    return f"{metric}\n{kind_name(kind)}"


def _one_line(kind: str) -> str:
    return kind_name(kind).replace("\n", " ")


def _alignment_notes(result: Alignment) -> list[str]:
    signature, bootstrap = result.signature, result.signature["bootstrap"]
    left_out = f" ({signature['left_out']:,} identical pairs left out)" if signature["left_out"] else ""
    notes = [
        (
            f"{signature['pairs']:,} pairs of {signature['studies']:,} studies{left_out}; 95 % percentile intervals "
            f"from {bootstrap['resamples']:,} resamples of studies, seed {bootstrap['seed']}, the raters fixed; "
            "positive: a better score goes with fewer errors."
        ),
        *result.warnings(),
    ]
    return [*notes, *_common_notes(signature, sum(result.table["degenerate"].to_pylist()), "counts")]


def _common_notes(signature: Mapping[str, Any], degenerate: int, rated: str) -> list[str]:
    """Return the notes on directions and on degenerate resamples."""
    notes = []
    if signature["lower_is_better"]:
        notes.append(f"Lower is better: {', '.join(signature['lower_is_better'])}.")
    if degenerate:
        notes.append(
            f"Degenerate resamples, in which all scores or all {rated} are equal: {degenerate:,} over all cells, left "
            "out of their intervals; a result file, such as CSV, has them by cell."
        )
    return notes


def _raters_table(result: Alignment) -> PaperTable:
    records = {(r["statistic"], r["errors"]): r for r in result.raters.to_pylist()}
    names = list(dict.fromkeys(name for name, _ in records))
    rows: list[Row] = [(name, [agreement_entry(records[name, kind]) for kind in result.errors]) for name in names]
    note = (
        "Leave-one-rater-out: a rater against the mean of the others, averaged over raters: about the most that a "
        "metric can reach with one rater."
    )
    if any(name.startswith("ICC") for name in names):
        note = f"ICC(A,1), ICC(A,k): absolute agreement of one rater and of the mean of all. {note}"
    heads = [_one_line(kind) for kind in result.errors]
    return PaperTable("Agreement of the radiologists with one another", heads, rows, [note])


def _alignment_differences(records: Sequence[Record]) -> PaperTable:
    rows = [
        (_row_name(f"{r['a']} − {r['b']}", r["errors"]), _test_cells({**r, "value": r["difference"]})) for r in records
    ]
    note = (
        f"Both metrics on the same resampled studies, with the mean of raters. p: two-sided, from the bootstrap; "
        f"adjusted by Benjamini and Hochberg over one family, these {len(rows)} tests: each pair of metrics once, for "
        "each count of errors. So it depends on how many metrics are compared. A result file, such as CSV, has the "
        "other statistics, each with a family of its own."
    )
    title = f"Difference of two metrics in {_in_title(records[0]['statistic'])}"
    return PaperTable(title, ["Difference", "p", "p adjusted"], rows, [note])


def _in_title(statistic: str) -> str:
    return "Kendall tau-b" if statistic == TAU else statistic


def _test_cells(record: Record) -> list[Entry]:
    """Return the difference with its interval, its p-value and its adjusted p-value."""
    difference = Entry((f"{record['value']:+z.3f}", *interval_lines(record)))
    return [difference, entry(p_text(record["p_value"])), entry(p_text(record["p_adjusted"]))]


# Several rated sets


def comparison_tables(result: MetricComparison) -> list[PaperTable]:
    """Return the tables of several rated sets.

    Agreement on every set (table 1 of Cho et al.), the change without pairs of equal texts (2), time (3), variants (4),
    and agreement with intervals on every set and view, for each kind of errors (5); then agreement within references,
    agreement next to one radiologist, and differences of metrics. Tables without content are left out.
    """
    pooled = [view for view in result.views if TAU in view.statistics]
    n_kinds = max((len(view.kinds) for view in pooled), default=0)
    main = list(dict.fromkeys(view.statistics[0] for view in result.views))
    tables = [
        _agreement_table(result, [view for view in pooled if view.name == view.base]),
        *(_change_table(result, view) for view in result.views if view.name != view.base),
        _time_table(result),
        _ablation_table(result),
        *(_interval_table(result, pooled, number) for number in range(n_kinds)),
        _within_table(result),
        _ceiling_table(result),
        _judgement_table(result),
        *(_difference_table(result, statistic) for statistic in main),
    ]
    present = [table for table in tables if table]
    present[0].notes.extend(_notes(result))
    return present


def _notes(result: MetricComparison) -> list[str]:
    bootstrap = result.signature["bootstrap"]
    sets = [
        f"{view.name}: {len(next(iter(view.errors.values()))):,} pairs of {view.studies:,} studies, {view.raters} "
        f"rater{'s' if view.raters > 1 else ''}"
        for view in result.views
    ]
    raters = "and what other raters would change" if "rater" in bootstrap["unit"] else "the raters fixed"
    notes = [
        (
            f"{'; '.join(sets)}. 95 % percentile intervals from {bootstrap['resamples']:,} resamples of studies, "
            f"{raters}, seed {bootstrap['seed']}; positive: a better score goes with fewer errors."
        ),
        *result.warnings(),
    ]
    if any(view.name != view.base for view in result.views):
        notes.append(f"{IDENTICAL}: without pairs of equal texts, on the same resampled studies.")
    degenerate = sum(r["degenerate"] or 0 for r in result.select(AGREEMENT))
    return [*notes, *_common_notes(result.signature, degenerate, "ratings")]


def _head(view: View, kind: str) -> str:
    return f"{view.name} {_one_line(kind)}"


def _by_metric(records: Sequence[Record]) -> dict[str, Record]:
    return {r["metric"]: r for r in records}


def _rows(metrics: Sequence[str], columns: Sequence[Mapping[str, Record]], intervals: bool = True) -> list[Row]:
    """Return one row for each metric. The largest value of a column is bold, the second largest is underlined."""
    rows: list[Row] = []
    ranked = [sorted({r["value"] for r in c.values() if r["value"] is not None}, reverse=True) for c in columns]
    for metric in metrics:
        cells = []
        for column, values in zip(columns, ranked, strict=True):
            record = column.get(metric)
            value = record["value"] if record is not None else None
            lines = _value(record).lines
            if not intervals and value is not None:
                lines = lines[:1]
            best_first = values if record is not None and len(column) > 1 else []
            cells.append(Entry(lines, value in best_first[:1], value in best_first[1:2]))
        rows.append((metric, cells))
    return rows


def _columns(result: MetricComparison, shown: Sequence[tuple[View, str]]) -> tuple[list[str], list[dict[str, Record]]]:
    """Return heads and records by metric: tau-b and Spearman's rho for each view and kind."""
    heads, columns = [], []
    for view, kind in shown:
        for statistic, symbol in _SYMBOLS.items():
            heads.append(f"{view.name} {symbol}")
            columns.append(_by_metric(result.select(AGREEMENT, set=view.name, errors=kind, statistic=statistic)))
    return heads, columns


def _kinds_note(shown: Sequence[tuple[View, str]]) -> str:
    names_of: dict[str, list[str]] = {}
    for view, kind in shown:
        names_of.setdefault(_one_line(kind), []).append(view.name)
    kinds = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in names_of.items())
    return f"With the mean of raters of {kinds}."


def _agreement_table(result: MetricComparison, views: Sequence[View]) -> PaperTable | None:
    if not views:
        return None
    shown = [(view, view.kinds[0]) for view in views]
    heads, columns = _columns(result, shown)
    title = "Correlation with radiologists: Kendall τ-b and Spearman ρ"
    notes = [f"{_kinds_note(shown)} Bold: the best of a column, underlined: the second."]
    return PaperTable(title, heads, _rows(result.metrics, columns, intervals=False), notes, "metric")


def _interval_table(result: MetricComparison, views: Sequence[View], number: int) -> PaperTable:
    shown = [(view, view.kinds[number]) for view in views if number < len(view.kinds)]
    heads, columns = _columns(result, shown)
    title = "Correlation with radiologists and 95 % confidence intervals"
    return PaperTable(title, heads, _rows(result.metrics, columns), [_kinds_note(shown)], "metric")


def _change_table(result: MetricComparison, view: View) -> PaperTable:
    kind, statistic = view.kinds[0], view.statistics[0]
    sources = ((AGREEMENT, {"set": view.base}), (AGREEMENT, {"set": view.name}), (CHANGE, {"versus": view.name}))
    columns = [_by_metric(result.select(what, errors=kind, statistic=statistic, **keys)) for what, keys in sources]
    rows: list[Row] = [(metric, [_value(column.get(metric)) for column in columns]) for metric in view.scores]
    n = [len(result.view(name).errors[kind]) for name in (view.base, view.name)]
    symbol = _SYMBOLS.get(statistic, _WITHIN_NAMES.get(statistic))
    change = f"Δ{symbol}" if statistic in _SYMBOLS else "Δ"
    name = "Kendall τ-b" if statistic == TAU else _TITLES[statistic]
    note = (
        f"{name}; {view.name}: without {n[0] - n[1]} pairs of equal texts, on which metrics have it easy. "
        f"{change}: the change, its interval from the same resampled studies. {_kinds_note([(view, kind)])}"
    )
    heads = [f"{view.base} {symbol}", f"{view.name} {symbol}", change]
    return PaperTable(f"Change from {view.base} to {view.name}", heads, rows, [note], "metric")


def _time_table(result: MetricComparison) -> PaperTable | None:
    records = result.select(TIME)
    if not records:
        return None
    rows = [(r["metric"], [entry(_milliseconds(r["value"])), entry(r["device"] or NOTHING)]) for r in records]
    note = (
        "Time for each pair; of the metrics that were scored here all of a scoring of the whole set, texts to scores."
    )
    return PaperTable("Time", ["ms per pair", "device"], rows, [note], "metric")


def _milliseconds(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.2g}"


def _value(record: Record | None) -> Entry:
    return entry(NOTHING) if record is None else agreement_entry(record)


def _within_table(result: MetricComparison) -> PaperTable | None:
    heads, columns, shown = [], [], set()
    for view in result.views:
        for kind, (statistic, name) in product(view.kinds, _WITHIN_NAMES.items()):
            records = result.select(AGREEMENT, set=view.name, errors=kind, statistic=statistic)
            if any(r["value"] is not None for r in records):
                heads.append(f"{_head(view, kind)}, {name}")
                columns.append(_by_metric(records))
                shown.add(statistic)
    if not columns:
        return None
    notes = [f"Between candidates for one reference alone. {_ACCURACY_NOTE}"]
    notes += [text for statistic, text in _MORE_NOTES.items() if statistic in shown]
    return PaperTable("Agreement within references", heads, _rows(result.metrics, columns), notes, "metric")


def _ceiling_table(result: MetricComparison) -> PaperTable | None:
    records = [r for r in result.select(CEILING) if r["statistic"] != JUDGEMENTS]
    if not records:
        return None
    heads, columns, shown = [], [], []
    for view in result.views:
        for kind in view.kinds:
            of_kind = [r for r in records if (r["set"], r["errors"]) == (view.name, kind)]
            if of_kind:
                heads += [_head(view, kind), f"{_head(view, kind)}, less one radiologist"]
                columns += [_by_metric([r for r in of_kind if r["versus"] == other]) for other in (None, RADIOLOGISTS)]
                shown.append(_in_title(view.statistics[0]))
    names = ((RADIOLOGISTS, "one radiologist"), *zip(result.metrics, result.metrics, strict=True))
    rows: list[Row] = [(title, [_value(column.get(name)) for column in columns]) for name, title in names]
    statistics = " or ".join(dict.fromkeys(shown))
    note = (
        f"{statistics[0].upper()}{statistics[1:]} with the mean of all radiologists but one, averaged over the one "
        "left out, of metrics and of that radiologist: about the most that a metric can reach. The raters are fixed."
    )
    return PaperTable("Metrics beside one radiologist", heads, rows, [note], "metric")


def _judgement_table(result: MetricComparison) -> PaperTable | None:
    records = result.select(CEILING, statistic=JUDGEMENTS)
    shown = list(dict.fromkeys((r["set"], r["errors"]) for r in records))
    if not shown:
        return None
    heads = [_head(result.view(name), kind) for name, kind in shown]
    columns = [_by_metric([r for r in records if (r["set"], r["errors"]) == key]) for key in shown]
    names = ((PERFECT, "a perfect metric"), (RADIOLOGISTS, "one radiologist"), *((m, m) for m in result.metrics))
    rows: list[Row] = [(title, [_value(column.get(name)) for column in columns]) for name, title in names]
    note = (
        "Share of the single judgements without a tie that agree with the metric, or with another radiologist; a tie "
        "is half. A perfect metric takes the side of the majority in every comparison: where radiologists disagree, no "
        "metric agrees with more judgements."
    )
    return PaperTable("Accuracy on single judgements", heads, rows, [note], "metric")


def _difference_table(result: MetricComparison, statistic: str) -> PaperTable | None:
    family = result.select(DIFFERENCE, statistic=statistic)
    views = {view.name for view in result.views if view.statistics[0] == statistic}
    records = [r for r in family if r["set"] in views]
    if not records:
        return None
    rows = [(f"{r['metric']} − {r['versus']}\n{r['set']}, {_one_line(r['errors'])}", _test_cells(r)) for r in records]
    tests = f"these {len(rows)} tests" if len(rows) == len(family) else f"the {len(family)} tests on all sets"
    note = (
        "Both metrics on the same resampled studies, with the mean of raters. p: two-sided, from the bootstrap; "
        f"adjusted by Benjamini and Hochberg over one family, {tests}, fewer if pairs of "
        "metrics are chosen. A result file, such as CSV, has the other statistics, each with a family of its own."
    )
    title = f"Difference of two metrics in {_in_title(statistic)}"
    return PaperTable(title, ["difference", "p", "p adjusted"], rows, [note])


def _ablation_table(result: MetricComparison) -> PaperTable | None:
    records = result.select(ABLATION)
    if not records:
        return None
    view, statistic = result.view(records[0]["set"]), records[0]["statistic"]
    record_of = {(r["metric"], r["errors"], r["versus"]): r for r in records}
    metric_of = {r["metric"]: r["versus"] for r in records if r["versus"]}
    heads = [h for kind in view.kinds for h in (_head(view, kind), "difference", "p", "p adjusted")]
    rows: list[Row] = []
    for metric in dict.fromkeys(metric_of.values()):
        whole = {r["errors"]: r for r in result.select(AGREEMENT, set=view.name, metric=metric, statistic=statistic)}
        rows.append((metric, [cell for kind in view.kinds for cell in (_value(whole[kind]), *[entry(NOTHING)] * 3)]))
        for variant in (name for name, base in metric_of.items() if base == metric):
            cells: list[Entry] = []
            for kind in view.kinds:
                test = record_of.get((variant, kind, metric))
                cells.append(_value(record_of.get((variant, kind, None))))
                cells += [entry(NOTHING)] * 3 if test is None else _test_cells(test)
            rows.append((variant, cells))
    tests = sum(r["versus"] is not None for r in records)
    name = _in_title(statistic)
    note = (
        f"{name[0].upper()}{name[1:]} of variants of a metric, and the difference from it on the same resampled "
        f"studies; p-values adjusted by Benjamini and Hochberg over these {tests} tests."
    )
    return PaperTable("Ablations", heads, rows, [note], "variant")
