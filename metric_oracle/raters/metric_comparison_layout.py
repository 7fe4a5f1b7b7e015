"""The tables of a comparison of metrics in the layout of Cho et al. (2025, tables 1 to 5), and what reviewers add."""

from collections.abc import Mapping, Sequence
from typing import Any

from metric_oracle.presentation.paper_table import NOTHING, Entry, PaperTable, entry
from metric_oracle.raters.layout import KIND_NAMES, agreement_entry, p_text
from metric_oracle.raters.metric_comparison import (
    ABLATION,
    AGREEMENT,
    CEILING,
    CHANGE,
    DIFFERENCE,
    IDENTICAL,
    RADIOLOGISTS,
    TIME,
    MetricComparison,
    View,
)
from metric_oracle.raters.rank_agreement import ACCURACY, SPEARMAN, TAU, WITHIN

_SYMBOLS = {TAU: "τ", SPEARMAN: "ρ"}
Record = dict[str, Any]


def comparison_tables(found: MetricComparison) -> list[PaperTable]:
    """Return the tables.

    Agreement on every set (table 1 of the paper), the change without pairs of equal texts (2), time (3), variants (4),
    agreement with intervals on every set and view, for each kind of errors (5); then agreement within references,
    beside one radiologist, and differences of metrics.
    """
    tables = [_agreement_table(found), *(_change_table(found, view) for view in found.views if view.name != view.base)]
    kinds = max((view.kinds for view in found.views), key=len)
    beside = [_time_table(found), _ablation_table(found), *(_interval_table(found, n) for n in range(len(kinds)))]
    beside += [_within_table(found), _ceiling_table(found), _difference_table(found)]
    tables += [table for table in beside if table]
    tables[0].notes.extend(_notes(found))
    return tables


def _notes(found: MetricComparison) -> list[str]:
    bootstrap = found.signature["bootstrap"]
    sets = [
        f"{view.name}: {len(next(iter(view.errors.values()))):,} pairs of {view.studies:,} studies, {view.raters} "
        f"rater{'s' if view.raters > 1 else ''}"
        for view in found.views
    ]
    raters = "and what other raters would change" if "rater" in bootstrap["unit"] else "the raters fixed"
    notes = [
        f"{'; '.join(sets)}. 95 % percentile intervals from {bootstrap['resamples']:,} resamples of studies, {raters}, "
        f"seed {bootstrap['seed']}; positive: a better score goes with fewer errors.",
        *found.warnings(),
    ]
    if any(view.name != view.base for view in found.views):
        notes.append(f"{IDENTICAL}: without pairs of equal texts, on the same resampled studies.")
    if found.signature["lower_is_better"]:
        notes.append(f"Lower is better: {', '.join(found.signature['lower_is_better'])}.")
    degenerate = sum(r["degenerate"] or 0 for r in found.select(AGREEMENT))
    if degenerate:
        notes.append(
            f"Degenerate resamples, in which all scores or all ratings are equal: {degenerate:,} over all cells, left "
            "out of their intervals; --out FILE.csv has them by cell."
        )
    return notes


def _head(view: View, kind: str) -> str:
    return f"{view.name} {KIND_NAMES.get(kind, kind)}".replace("\n", " ")


def _rows(
    metrics: Sequence[str], columns: Sequence[Mapping[str, Record]], intervals: bool = True
) -> list[tuple[str, list[Entry]]]:
    """Return a row a metric; the largest value of each column is bold, the next underlined."""
    rows: list[tuple[str, list[Entry]]] = []
    ranked = [sorted({r["value"] for r in c.values() if r["value"] is not None}, reverse=True) for c in columns]
    for metric in metrics:
        cells = []
        for column, values in zip(columns, ranked, strict=True):
            record = column.get(metric)
            shown = entry(NOTHING) if record is None else agreement_entry(record)
            lines = shown.lines if intervals or record is None or record["value"] is None else shown.lines[:1]
            places = values if record is not None and len(column) > 1 else []
            value = record["value"] if record is not None else None
            cells.append(Entry(lines, value in places[:1], value in places[1:2]))
        rows.append((metric, cells))
    return rows


def _columns(
    found: MetricComparison, places: Sequence[tuple[View, str]], statistics: Sequence[str]
) -> tuple[list[str], list[dict[str, Record]]]:
    """Return heads and records by metric, for each place a column of each statistic."""
    heads, columns = [], []
    for view, kind in places:
        for statistic in statistics:
            records = found.select(AGREEMENT, set=view.name, errors=kind, statistic=statistic)
            heads.append(f"{view.name} {_SYMBOLS[statistic]}")
            columns.append({r["metric"]: r for r in records})
    return heads, columns


def _kinds_note(places: Sequence[tuple[View, str]]) -> str:
    of_kind: dict[str, list[str]] = {}
    for view, kind in places:
        of_kind.setdefault(KIND_NAMES.get(kind, kind).replace("\n", " "), []).append(view.name)
    return f"With the mean of raters of {'; '.join(f'{kind}: {_listed(names)}' for kind, names in of_kind.items())}."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _agreement_table(found: MetricComparison) -> PaperTable:
    places = [(view, view.kinds[0]) for view in found.views if view.name == view.base]
    heads, columns = _columns(found, places, (TAU, SPEARMAN))
    title = "Correlation with radiologists: Kendall τ-b and Spearman ρ"
    notes = [f"{_kinds_note(places)} Bold: the best of a column, underlined: the second."]
    return PaperTable(title, heads, _rows(found.metrics, columns, intervals=False), notes, "metric")


def _interval_table(found: MetricComparison, number: int) -> PaperTable | None:
    places = [(view, view.kinds[number]) for view in found.views if number < len(view.kinds)]
    heads, columns = _columns(found, places, (TAU, SPEARMAN))
    title = "Correlation with radiologists and 95 % confidence intervals"
    return PaperTable(title, heads, _rows(found.metrics, columns), [_kinds_note(places)], "metric")


def _change_table(found: MetricComparison, view: View) -> PaperTable:
    kind = view.kinds[0]
    columns = [
        {r["metric"]: r for r in found.select(what, errors=kind, statistic=TAU, **keys)}
        for what, keys in (
            (AGREEMENT, {"set": view.base}), (AGREEMENT, {"set": view.name}), (CHANGE, {"versus": view.name}),
        )
    ]  # fmt: skip
    rows = [(metric, [_value(column.get(metric)) for column in columns]) for metric in view.scores]
    n = [len(found.view(name).errors[kind]) for name in (view.base, view.name)]
    note = (
        f"Kendall τ-b; {view.name}: without {n[0] - n[1]} pairs of equal texts, on which metrics have it easy. Δτ: the "
        f"change, its interval from the same resampled studies. {_kinds_note([(view, kind)])}"
    )
    title = f"Change from {view.base} to {view.name}"
    return PaperTable(title, [f"{view.base} τ", f"{view.name} τ", "Δτ"], rows, [note], "metric")


def _time_table(found: MetricComparison) -> PaperTable | None:
    records = found.select(TIME)
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


def _within_table(found: MetricComparison) -> PaperTable | None:
    heads, columns = [], []
    for view in found.views:
        for kind in view.kinds:
            for statistic, name in ((ACCURACY, "accuracy"), (WITHIN, "tau-b")):
                records = found.select(AGREEMENT, set=view.name, errors=kind, statistic=statistic)
                if any(r["value"] is not None for r in records):
                    heads.append(f"{_head(view, kind)}, {name}")
                    columns.append({r["metric"]: r for r in records})
    if not columns:
        return None
    note = (
        "Between candidates for one reference alone. Accuracy: of the candidates that the radiologists tell apart, how "
        "many the metric orders alike, a tie being half; 0.5 is chance."
    )
    return PaperTable("Agreement within references", heads, _rows(found.metrics, columns), [note], "metric")


def _ceiling_table(found: MetricComparison) -> PaperTable | None:
    records = found.select(CEILING)
    if not records:
        return None
    heads, columns = [], []
    for view in found.views:
        for kind in view.kinds:
            some = [r for r in records if (r["set"], r["errors"]) == (view.name, kind)]
            if some:
                heads += [_head(view, kind), f"{_head(view, kind)}, less one radiologist"]
                columns += [{r["metric"]: r for r in some if r["versus"] == versus} for versus in (None, RADIOLOGISTS)]
    rows = [(name, [_value(column.get(name)) for column in columns]) for name in ("one radiologist", *found.metrics)]
    rows[0] = ("one radiologist", [_value(column.get(RADIOLOGISTS)) for column in columns])
    note = (
        "Kendall tau-b with the mean of all radiologists but one, averaged over the one left out, of metrics and of "
        "that radiologist: about the most that a metric can reach. The raters are fixed."
    )
    return PaperTable("Metrics beside one radiologist", heads, rows, [note], "metric")


def _test_cells(record: Record) -> list[Entry]:
    ends = [] if record["low"] is None else [f"[{record['low']:z.3f} {record['high']:z.3f}]"]
    return [
        Entry((f"{record['value']:+z.3f}", *ends)),
        entry(p_text(record["p_value"])),
        entry(p_text(record["p_adjusted"])),
    ]


def _difference_table(found: MetricComparison) -> PaperTable | None:
    records = found.select(DIFFERENCE, statistic=TAU)
    if not records:
        return None
    rows = [
        (
            f"{r['metric']} − {r['versus']}\n{r['set']}, {KIND_NAMES.get(r['errors'], r['errors'])}".replace(
                "and\n", "and "
            ),
            _test_cells(r),
        )
        for r in records
    ]
    note = (
        "Both metrics on the same resampled studies, with the mean of raters. p: two-sided, from the bootstrap; "
        f"adjusted by Benjamini and Hochberg over one family, these {len(rows)} tests, which --paired chooses. --out "
        "FILE.csv has the other statistics, a family each."
    )
    return PaperTable("Difference of two metrics in Kendall tau-b", ["difference", "p", "p adjusted"], rows, [note])


def _ablation_table(found: MetricComparison) -> PaperTable | None:
    records = found.select(ABLATION)
    if not records:
        return None
    view = found.view(records[0]["set"])
    of_variant = {(r["metric"], r["errors"], r["versus"]): r for r in records}
    metric_of = {r["metric"]: r["versus"] for r in records if r["versus"]}
    heads = [h for kind in view.kinds for h in (_head(view, kind), "difference", "p", "p adjusted")]
    rows = []
    for metric in dict.fromkeys(metric_of.values()):
        own = {r["errors"]: r for r in found.select(AGREEMENT, set=view.name, metric=metric, statistic=TAU)}
        rows.append((metric, [c for kind in view.kinds for c in (_value(own[kind]), *[entry(NOTHING)] * 3)]))
        for variant in (name for name, of in metric_of.items() if of == metric):
            cells: list[Entry] = []
            for kind in view.kinds:
                test = of_variant.get((variant, kind, metric))
                cells.append(_value(of_variant.get((variant, kind, None))))
                cells += [entry(NOTHING)] * 3 if test is None else _test_cells(test)
            rows.append((variant, cells))
    tests = sum(r["versus"] is not None for r in records)
    note = (
        "Kendall tau-b of variants of a metric, and the difference from it on the same resampled studies; p-values "
        f"adjusted by Benjamini and Hochberg over these {tests} tests."
    )
    return PaperTable("Ablations", heads, rows, [note], "variant")
