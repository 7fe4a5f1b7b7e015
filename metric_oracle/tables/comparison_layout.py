"""A comparison of systems as Markdown, LaTeX, CSV or JSON Lines, in the layout of tables S5 to S7 of Yu et al.

`layout` makes the cells of Markdown and LaTeX, and rounds. CSV and JSON Lines come from the records, at full precision.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from metric_oracle.choices import LEGACY
from metric_oracle.files import replacing
from metric_oracle.findings import tables as paper_table
from metric_oracle.findings.cells import NOTHING
from metric_oracle.findings.tables import Entry, PaperTable, plain
from metric_oracle.findings.writing import check_out
from metric_oracle.metrics import METRICS
from metric_oracle.sealed import has_signature_file, replacing_signed
from metric_oracle.statistics import LEVEL, Interval
from metric_oracle.tables.comparison import Comparison
from metric_oracle.tables.table_cells import CORPUS, CRG, Column

RADCLIQS = ("radcliq", "radcliq:v0")
COSINES = ("bertscore", "chexbert", "embedding")  # and bertscore:recall, ..., but not chexbert:labels
PAIRED = "Paired differences on the same studies"
ENDINGS = (".md", ".tex", ".csv", ".jsonl")


def title(metric: str) -> str:
    """Return the name of a column as papers print it, for a metric, for corpus BLEU or for another tool's score."""
    record = METRICS.get(metric.removesuffix(CORPUS))
    if record is not None and metric.endswith(CORPUS):
        return f"{record.name.partition(':')[0].upper()} of the corpus ({record.tool})"
    return metric if record is None else record.title or metric


def label(column: Column) -> str:
    """Return the name of a metric with the arrow of its direction."""
    return f"{title(column.metric)} {'↑' if column.higher_is_better else '↓'}"


def _number(value: float) -> str:
    """Return a number as it is printed in tables."""
    return f"{value:z.3f}"


def _ends(ends: Interval, legacy: bool) -> str:
    """Return an interval with its kind, as Yu et al. print it: "[95% CI 0.123 0.456]"; † marks a degenerate one."""
    name = "legacy" if legacy else f"{LEVEL:.0%} CI"
    return f"[{name} {_number(ends.low)} {_number(ends.high)}]" + ("†" if ends.degenerate else "")


def _with_ends(value: float | None, ends: Interval | None, shown: Callable[[float], str]) -> Entry:
    """Return a table cell with a number and, on a second line, its interval. `shown` converts a number to text."""
    if value is None:
        return Entry((NOTHING,))
    return Entry((shown(value),) if ends is None else (shown(value), f"[{shown(ends.low)}, {shown(ends.high)}]"))


def _inverse(mean: float, ends: Interval) -> tuple[str, ...]:
    """Return the lines with 1/RadCliQ of the mean, as ReXrank prints it; no value unless the mean is positive."""
    if mean <= 0:
        return (f"1/mean {NOTHING}‡",)
    if ends.low <= 0:
        return (f"1/mean {_number(1 / mean)}‡",)
    return f"1/mean {_number(1 / mean)}", f"[{_number(1 / ends.high)} {_number(1 / ends.low)}]"


def _p(value: float) -> str:
    """Return a p-value as it is printed in tables."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def layout(comparison: Comparison) -> list[PaperTable]:
    """Return the tables of a comparison. The last one has the notes."""
    columns, signature = comparison.columns, comparison.signature
    legacy = signature["interval"]["method"] == LEGACY
    labels = [label(column) for column in columns]

    def block(title: str, entry: Callable[[str, Column], Entry], shown_columns: list[Column]) -> PaperTable:
        """Return a table with one row per system and one column per metric, whose cells `entry` makes."""
        rows = [(plain(system), [entry(system, column) for column in shown_columns]) for system in comparison.systems]
        return PaperTable(title, [label(column) for column in shown_columns], rows)

    def score(system: str, column: Column) -> Entry:
        """Return the cell with a mean and its interval."""
        cell = comparison.cells[system, column.metric]
        ends = [_number(end) for end in (cell.minimum, cell.maximum) if end is not None]
        spread = f"Range [{', '.join(ends)}]" if ends else f"Range {NOTHING}"
        inverse = _inverse(cell.mean, cell.interval) if column.metric in RADCLIQS else ()
        return Entry((_number(cell.mean), _ends(cell.interval, legacy), spread, *inverse), cell.best)

    def change(system: str, column: Column) -> Entry:
        """Return the cell with the percentage change from random retrieval."""
        cell = comparison.cells[system, column.metric]
        return _with_ends(cell.percent_change, cell.change_interval, lambda value: f"{value:+z.1f} %")

    def share(system: str, column: Column) -> Entry:
        """Return the cell with the share of the way from random retrieval to the oracle."""
        cell = comparison.cells[system, column.metric]
        return _with_ends(cell.share, cell.share_interval, lambda value: f"{100 * value:z.1f} %")

    kind = "legacy interval" if legacy else f"{LEVEL:.0%} confidence interval"
    scores = block(f"Average, {kind} and range of metric scores", score, columns)
    scores.rows.append(("Studies", [Entry((f"{column.n:,}",)) for column in columns]))
    if comparison.distinct_texts:
        scores.columns.append("Distinct texts")
        for system, (_, entries) in zip(comparison.systems, scores.rows, strict=False):
            n = comparison.distinct_texts.get(system)
            entries.append(Entry((NOTHING if n is None else f"{n:,}",)))
        scores.rows[-1][1].append(Entry(("",)))
    blocks = [scores]
    if signature["random"] is not None:
        title = f"Percentage change from {plain(signature['random'])}; where lower is better, percentage decrease"
        blocks.append(block(title, change, columns))
    if signature["oracles"]:
        shown_columns = [column for column in columns if column.metric in signature["oracles"]]
        blocks.append(
            block(f"Share of the way from {plain(signature['random'])} to the metric's oracle", share, shown_columns)
        )
    if comparison.differences:
        names = dict(zip([column.metric for column in columns], labels, strict=True))
        rows = [
            (
                f"{plain(d.a)} − {plain(d.b)}, {names[d.metric]}",
                [
                    Entry((f"{d.difference:+z.3f} {_ends(d.interval, legacy=False)}",)),
                    Entry((_p(d.p_value),)),
                    Entry((_p(d.p_adjusted),)),
                    Entry(("yes" if d.overlap else "no",)),
                ],
            )
            for d in comparison.differences
        ]
        heads = [f"Mean difference [{LEVEL:.0%} CI]", "p", "p adjusted", "Intervals overlap"]
        blocks.append(PaperTable(PAIRED, heads, rows))
    blocks[-1].notes.extend(_notes(comparison))
    return blocks


def brief(comparison: Comparison) -> list[PaperTable]:
    """Return the tables for a terminal: averages without intervals, and the paired differences."""
    scores, *more_tables = layout(comparison)
    averages = [(name, [Entry(cell.lines[:1], cell.best) for cell in entries]) for name, entries in scores.rows]
    tables = [replace(scores, title="Averages", rows=averages, notes=[])]
    for block in more_tables:
        if block.title == PAIRED:  # without the last column, for which a terminal of 80 columns has no room
            rows = [(name, entries[:-1]) for name, entries in block.rows]
            tables.append(replace(block, columns=block.columns[:-1], rows=rows, notes=comparison.short_differences()))
    tables[-1].notes.extend(_bold_note(comparison))
    return tables


def _notes(comparison: Comparison) -> list[str]:
    """Return the notes under the tables: methods, missing values, and what each metric's numbers mean."""
    notes = [_interval_note(comparison.signature["interval"])]
    intervals = [cell.interval for cell in comparison.cells.values()] + [d.interval for d in comparison.differences]
    if any(interval.degenerate for interval in intervals):
        notes.append("† The values are equal, or nearly, or too few for a test: the interval says nothing.")
    notes += _bold_note(comparison)
    notes += _left_out(comparison)
    notes += _warnings(comparison)
    if comparison.signature["random"] is not None:
        notes += _percentage_notes(comparison)
    notes += _metric_notes(comparison)
    if comparison.differences:
        notes.append(_test_note(comparison))
    return notes


def _interval_note(used: Mapping[str, Any]) -> str:
    """Return the note on the intervals, from their entry in the signature."""
    if used["method"] == LEGACY:
        return (
            f"Intervals: {LEGACY}, the t interval of the mean of one sample of {used['resamples']:,} scores with "
            f"replacement, as in the code released with Yu et al. (seed {used['seed']}); that code prints the mean "
            "of the sample, the middle of the interval, and this table the average of all scores, which may lie "
            "outside. It is not a confidence interval of the average."
        )
    method = {"bca": "BCa", "percentile": "percentile"}[used["method"]]
    return f"Intervals: {method} bootstrap over studies, {used['resamples']:,} resamples, seed {used['seed']}."


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
        label(column)[:-2]
        for column in columns
        if column.metric.startswith(COSINES) and "chexbert:" not in column.metric
    ]
    if cosines:
        notes.append(
            f"{', '.join(cosines)}: the cosine of unrelated reports is far from 0, so its percentages are not "
            "percentages of what reports share."
        )
    return notes


def _metric_notes(comparison: Comparison) -> list[str]:
    """Return the notes on RadCliQ, and on metrics of which whole sets of reports have a value."""
    signature, columns = comparison.signature, comparison.columns
    notes = []
    if {column.metric for column in columns} & {*RADCLIQS}:
        notes.append(
            "1/mean: 1/RadCliQ as ReXrank prints it, of the mean and no mean of 1/RadCliQ, larger is better. ‡ None "
            "where the mean, or an end of its interval, is not above 0: predicted errors are centred and may lie below."
        )
    if any(column.metric.endswith(CORPUS) for column in columns):
        notes.append(
            "BLEU of the corpus: counts added over the reports, as pycocoevalcap and papers after R2Gen print it; each "
            "resample adds its own. A report has none, so there is no range."
        )
    for metric, of_systems in signature.get("of_whole_sets", {}).items():
        shown = ", ".join(f"{plain(name)} {_number(value)}" for name, value in of_systems.items())
        notes.append(
            f"{metric} of the corpus, from the counts of all reports, as papers print it; no mean, and without an "
            f"interval: {shown}."
        )
    if CRG in {column.metric for column in columns}:
        notes.append(
            "CRG: of the whole test set, 1 / (2 - average contribution of a report); each resample of studies has its "
            "own prevalence. A report has no CRG, so there is no range."
        )
        if comparison.fixed_weights:
            shown = ", ".join(map(plain, comparison.fixed_weights))
            notes.append(f"CRG without counts of labels, the prevalence fixed in each resample: {shown}.")
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
        shown = "; ".join(f"{plain(name)}: {', '.join(metrics)}" for name, metrics in comparison.left_out.items())
        notes.append(f"Not in the table, because not every system has it: {shown}.")
    if comparison.too_few:
        shown = ", ".join(f"{metric} ({n})" for metric, n in comparison.too_few.items())
        notes.append(f"Not in the table, because fewer than 2 studies have it of every system: {shown}.")
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


def csv_text(comparison: Comparison) -> str:
    """Return the records as CSV, at full precision."""
    records = comparison.records()
    file = io.StringIO()
    writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return file.getvalue()


def jsonl(comparison: Comparison) -> str:
    """Return the records as JSON Lines, one record per line."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in comparison.records())


def markdown(comparison: Comparison) -> str:
    """Return the tables as Markdown."""
    return paper_table.markdown(layout(comparison), comparison.signature)


def latex(comparison: Comparison) -> str:
    """Return the tables as LaTeX with the package booktabs."""
    return paper_table.latex(layout(comparison), comparison.signature)


RENDER = {"md": markdown, "tex": latex, "csv": csv_text, "jsonl": jsonl}


def write(comparison: Comparison, path: str | Path) -> None:
    """Write a table as Markdown, LaTeX, CSV or JSON Lines, chosen by the ending of the path.

    The signature is a comment in Markdown and LaTeX, and the file ``<path>.signature.json`` next to CSV and JSON Lines.
    An existing file is replaced only when the new one is complete.

    Parameters
    ----------
    comparison : Comparison
        The table: a return value of [`compare`][metric_oracle.compare] or
        [`compare_study`][metric_oracle.compare_study].
    path : str or path
        File that ends in ``.md``, ``.tex``, ``.csv`` or ``.jsonl``.

    Raises
    ------
    InputError
        If the ending is another one, or the file cannot be written.

    Examples
    --------
    >>> systems = {name: mo.score("test.csv", f"{name}.csv", "bleu") for name in ("strong", "weak")}
    >>> mo.write_table(mo.compare(systems, resamples=1000), "table.tex")
    """
    path = Path(path)
    check_out(path, endings=ENDINGS)
    text = RENDER[path.suffix.lower()[1:]](comparison)
    with replacing_signed(path, comparison.signature) if has_signature_file(path) else replacing(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", "surrogateescape"))
