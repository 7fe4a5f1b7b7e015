"""The tables of a comparison of metrics, as papers on a metric print them."""

from collections.abc import Mapping, Sequence
from typing import Any

from metric_oracle.evaluation.metric_comparison import (
    ABLATION,
    AGREEMENT,
    CEILING,
    DIFFERENCE,
    FALL,
    IDENTICAL,
    RADIOLOGISTS,
    TIME,
    MetricComparison,
    View,
)
from metric_oracle.evaluation.rank_agreement import ACCURACY, SPEARMAN, TAU, WITHIN
from metric_oracle.presentation.paper_table import NOTHING, Entry, PaperTable, entry
from metric_oracle.presentation.ratings_layout import KIND_NAMES, agreement_entry, p_text

_TITLES = {
    TAU: "Kendall tau-b of metrics and the mean of radiologists",
    SPEARMAN: "Spearman rank correlation of metrics and the mean of radiologists",
}
Record = dict[str, Any]


def comparison_tables(found: MetricComparison) -> list[PaperTable]:
    """Return agreement with the time of a pair, falls, agreement within references, ceilings, differences, variants."""
    tables = [_agreement_table(found, statistic) for statistic in (TAU, SPEARMAN)]
    tables += [_fall_table(found, view) for view in found.views if view.name != view.base]
    tables += [table for table in (_within_table(found), _ceiling_table(found)) if table]
    tables += [table for table in (_difference_table(found), _ablation_table(found)) if table]
    tables[0].notes.extend(_notes(found))
    return tables


def _notes(found: MetricComparison) -> list[str]:
    bootstrap = found.signature["bootstrap"]
    sets = [
        f"{view.name}: {len(next(iter(view.errors.values()))):,} pairs of {view.studies:,} studies, {view.raters} "
        f"rater{'s' if view.raters > 1 else ''}"
        for view in found.views
    ]
    notes = [
        f"{'; '.join(sets)}. 95 % percentile intervals from {bootstrap['resamples']:,} resamples of studies"
        f"{', raters resampled too' if 'rater' in bootstrap['unit'] else ', the raters fixed'}, seed "
        f"{bootstrap['seed']}; positive: a better score goes with fewer errors. Bold: the best of a column.",
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
    metrics: Sequence[str], columns: Sequence[Mapping[str, Record]], beside: Sequence[Mapping[str, Entry]] = ()
) -> list[tuple[str, list[Entry]]]:
    """Return a row a metric; the largest value of each column of records is bold."""
    best = [max((r["value"] for r in c.values() if r["value"] is not None), default=None) for c in columns]
    rows = []
    for metric in metrics:
        cells = []
        for column, most in zip(columns, best, strict=True):
            record = column.get(metric)
            shown = entry(NOTHING) if record is None else agreement_entry(record)
            is_best = record is not None and record["value"] is not None and record["value"] == most
            cells.append(Entry(shown.lines, is_best and len(column) > 1))
        rows.append((metric, cells + [column.get(metric, entry(NOTHING)) for column in beside]))
    return rows


def _agreement_table(found: MetricComparison, statistic: str) -> PaperTable:
    records = found.select(AGREEMENT, statistic=statistic)
    places = [(view, kind) for view in found.views for kind in view.kinds]
    columns = [
        {r["metric"]: r for r in records if (r["set"], r["errors"]) == (view.name, kind)} for view, kind in places
    ]
    times = {r["metric"]: r for r in found.select(TIME)}
    beside = [{m: entry(_milliseconds(r["value"])) for m, r in times.items()}] if times and statistic == TAU else []
    heads = [_head(view, kind) for view, kind in places] + ["ms per pair"] * len(beside)
    notes = []
    if beside:
        devices = [f"{m}: {r['device']}" for m, r in times.items() if r["device"]]
        notes.append(f"Time for each pair: {'; '.join(devices) or 'device not given'}.")
    return PaperTable(_TITLES[statistic], heads, _rows(found.metrics, columns, beside), notes, "metric")


def _milliseconds(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.2g}"


def _fall_table(found: MetricComparison, view: View) -> PaperTable:
    heads, columns = [], []
    for kind in view.kinds:
        for head, records in (
            (view.base, found.select(AGREEMENT, set=view.base, errors=kind, statistic=TAU)),
            (view.name, found.select(AGREEMENT, set=view.name, errors=kind, statistic=TAU)),
            ("fall", found.select(FALL, versus=view.name, errors=kind, statistic=TAU)),
        ):
            heads.append(f"{head}, {KIND_NAMES.get(kind, kind)}".replace("\n", " "))
            columns.append({r["metric"]: r for r in records})
    rows = [(metric, [_value(column.get(metric)) for column in columns]) for metric in view.scores]
    note = (
        "Fall: Kendall tau-b on all pairs less that without pairs of equal texts, which every metric gets right; its "
        "interval from the same resampled studies. --out FILE.csv has the other statistics."
    )
    return PaperTable(f"Fall from {view.base} to {view.name}", heads, rows, [note], "metric")


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
    view = found.views[0]
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
