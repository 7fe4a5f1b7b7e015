"""A comparison of systems in the layout of tables S5 to S7 of Yu et al.: Markdown, LaTeX, CSV, JSON Lines.

:func:`layout` makes the cells; each writer only renders them. Rounding happens in the layout, and CSV and JSON Lines,
which come from the records, have every digit.
"""

import csv
import html
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metric_oracle.evaluation.comparison import LEVEL, Column, Comparison
from metric_oracle.evaluation.statistics import LEGACY, Interval
from metric_oracle.retrieval.results import check_out, replacing

LABELS = {
    **{f"bleu-{order}": f"BLEU-{order}" for order in (1, 2, 3, 4)},
    "rouge-l": "ROUGE-L",
    "radgraph": "RadGraph F1",
    "chexbert": "CheXbert vector similarity",
    "bertscore": "BERTScore",
    "radcliq": "RadCliQ (predicted errors)",
    "radcliq:v0": "RadCliQ-v0 (predicted errors)",
    "radcliq:preprint": "RadCliQ of the preprint (predicted errors)",
}
ENDINGS = (".md", ".tex", ".csv", ".jsonl")
NOTHING = "–"


@dataclass(frozen=True)
class Entry:
    """Text of one cell, a line each; `best` is set in bold."""

    lines: tuple[str, ...]
    best: bool = False


@dataclass(frozen=True)
class Block:
    """One table: a title, a name for each row, and entries under the columns."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[Entry]]]


def plain(text: str) -> str:
    """Return a name on one line, without control characters."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def label(column: Column) -> str:
    """Return the name of a metric with the arrow of its direction."""
    return f"{LABELS.get(column.metric, column.metric)} {'↑' if column.higher_is_better else '↓'}"


def _number(value: float) -> str:
    return f"{value:z.3f}"


def _ends(ends: Interval, legacy: bool) -> str:
    """Return an interval as the paper prints it, named for what it is."""
    name = "legacy" if legacy else f"{LEVEL:.0%} CI"
    return f"[{name} {_number(ends.low)} {_number(ends.high)}]" + ("†" if ends.degenerate else "")


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def layout(comparison: Comparison) -> tuple[list[Block], list[str]]:
    """Return the tables of a comparison and the notes under them."""
    columns, signature = comparison.columns, comparison.signature
    legacy = signature["interval"]["method"] == LEGACY
    labels = [label(column) for column in columns]

    def block(title: str, entry: Callable[[str, Column], Entry], some: list[Column]) -> Block:
        rows = [(plain(system), [entry(system, column) for column in some]) for system in comparison.systems]
        return Block(title, [label(column) for column in some], rows)

    def score(system: str, column: Column) -> Entry:
        cell = comparison.cells[system, column.metric]
        spread = f"Range [{_number(cell.minimum)}, {_number(cell.maximum)}]"
        return Entry((_number(cell.mean), _ends(cell.interval, legacy), spread), cell.best)

    def change(system: str, column: Column) -> Entry:
        value = comparison.cells[system, column.metric].percent_change
        return Entry((NOTHING if value is None else f"{value:+z.1f} %",))

    def share(system: str, column: Column) -> Entry:
        value = comparison.cells[system, column.metric].share
        return Entry((NOTHING if value is None else f"{value:z.1%}".replace("%", " %"),))

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
        some = [column for column in columns if column.metric in signature["oracles"]]
        blocks.append(block(f"Share of the way from {plain(signature['random'])} to the metric's oracle", share, some))
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
        blocks.append(Block("Paired differences on the same studies", heads, rows))
    return blocks, _notes(comparison)


def _notes(comparison: Comparison) -> list[str]:
    signature, columns = comparison.signature, comparison.columns
    how = signature["interval"]
    names = [plain(system) for system in comparison.systems]
    if how["method"] == LEGACY:
        notes = [
            f"Intervals: {LEGACY}, the t interval of the mean of one sample of {how['resamples']:,} scores with "
            f"replacement, as in the code released with Yu et al. (seed {how['seed']}). "
            "It is not a confidence interval of the average."
        ]
    else:
        method = {"bca": "BCa", "percentile": "percentile"}[how["method"]]
        notes = [f"Intervals: {method} bootstrap over studies, {how['resamples']:,} resamples, seed {how['seed']}."]
    cells = comparison.cells
    if any(cell.interval.degenerate for cell in cells.values()) or any(
        d.interval.degenerate for d in comparison.differences
    ):
        notes.append("† All values are equal: the interval has no width and says nothing.")
    beside = {*comparison.systems} - {*signature["oracles"].values(), signature["random"]}
    among = " among the systems that are no oracle" if signature["oracles"] and beside else ""
    notes.append(f"Bold: best average{among}.")
    left_out = {column.metric: comparison.studies - column.n for column in columns}
    if any(left_out.values()):
        lost = []
        for column in columns:
            counts = [
                f"{name} {cells[system, column.metric].unscorable:,}"
                for name, system in zip(names, comparison.systems, strict=True)
                if cells[system, column.metric].unscorable
            ]
            if counts:
                lost.append(f"{LABELS.get(column.metric, column.metric)}: {', '.join(counts)}")
        notes.append(
            f"Averages are over the studies that every system can score, of {comparison.studies:,}. "
            f"Unscorable: {'; '.join(lost)}."
        )
    if comparison.left_out:
        shown = "; ".join(f"{plain(name)}: {', '.join(metrics)}" for name, metrics in comparison.left_out.items())
        notes.append(f"Not in the table, because not every system has it: {shown}.")
    if signature["random"] is not None:
        undefined = [
            LABELS.get(column.metric, column.metric)
            for column in columns
            if cells[signature["random"], column.metric].percent_change is None
        ]
        if undefined:
            notes.append(f"No percentage of an average that is not above 0: {', '.join(undefined)}.")
        if any(column.metric == "radcliq" for column in columns):
            notes.append(
                "RadCliQ is centred: 0 is the average of ReXVal and not a report without errors, so its percentages "
                "are not percentages of errors."
            )
    if comparison.differences:
        notes.append(
            f"p: two-sided permutation test of the mean difference, {signature['test']['resamples']:,} resamples; "
            f"adjusted by Benjamini and Hochberg over the {len(comparison.differences)} tests of this table. Intervals "
            "of the differences: BCa. Intervals that do not overlap are the rule of Yu et al. for a significant "
            "difference; it ignores that the studies are the same."
        )
    return notes


_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$!])")


def _markdown_text(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", html.escape(plain(text), quote=False))


def markdown(comparison: Comparison) -> str:
    """Return the tables as Markdown; the signature is in a comment at the end."""
    blocks, notes = layout(comparison)
    lines = []
    for block in blocks:
        lines += [f"**{_markdown_text(block.title)}**", ""]
        lines.append("| | " + " | ".join(map(_markdown_text, block.columns)) + " |")
        lines.append("|---|" + "---|" * len(block.columns))
        for name, entries in block.rows:
            cells = []
            for entry in entries:
                # Numbers and names of metrics: nothing in them but < means anything to Markdown.
                first, *others = (html.escape(line, quote=False) for line in entry.lines)
                cells.append(" ".join([f"**{first}**" if entry.best else first, *others]))
            lines.append(f"| {_markdown_text(name)} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += [f"- {_markdown_text(note)}" for note in notes]
    # No name can end the comment.
    signature = json.dumps(comparison.signature).replace("<", "\\u003c").replace(">", "\\u003e")
    return "\n".join([*lines, "", f"<!-- signature: {signature} -->", ""])


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "−": "$-$",
        "–": "--",
        "†": r"\textdagger{}",
        **{c: "\\" + c for c in "{}$&#%_"},
    }
)
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def _latex_text(text: str) -> str:
    return plain(text).translate(_LATEX)


def latex(comparison: Comparison) -> str:
    r"""Return the tables as LaTeX for booktabs; the signature is in a comment at the end.

    The lines of a cell are rows of the tabular, so that no package but booktabs is needed.
    """
    blocks, notes = layout(comparison)
    lines = [r"% \usepackage{booktabs}"]
    for block in blocks:
        lines += [
            r"\begin{table}",
            r"\centering\footnotesize",
            rf"\caption{{{_latex_text(block.title)}}}",
            rf"\begin{{tabular}}{{l{'c' * len(block.columns)}}}",
            r"\toprule",
            " & ".join(["", *map(_latex_text, block.columns)]) + r" \\",
        ]
        tall = any(len(entry.lines) > 1 for _, entries in block.rows for entry in entries)
        for place, (name, entries) in enumerate(block.rows):
            # After \\ and \midrule a bracket or a star would be their argument.
            start = "{}" if plain(name).startswith(("[", "*")) else ""
            height = max(len(entry.lines) for entry in entries)
            lines.append(r"\midrule" if place == 0 else r"\addlinespace" if tall else "")
            for row in range(height):
                cells = [start + _latex_text(name) if row == 0 else ""]
                for entry in entries:
                    text = _latex_text(entry.lines[row]) if row < len(entry.lines) else ""
                    text = _MINUS.sub("$-$", text)
                    cells.append(rf"\textbf{{{text}}}" if entry.best and row == 0 else text)
                lines.append(" & ".join(cells) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        if block is blocks[-1]:
            lines += [rf"\par\smallskip\raggedright {_latex_text(note)}" for note in notes]
        lines += [r"\end{table}", ""]
    lines.append(f"% signature: {json.dumps(comparison.signature)}")
    return "\n".join(line for line in lines if line) + "\n"


def csv_text(comparison: Comparison) -> str:
    """Return the records as CSV, every digit kept."""
    records = comparison.records()
    file = io.StringIO()
    writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return file.getvalue()


def jsonl(comparison: Comparison) -> str:
    """Return the signature record, then one line a record."""
    records = [{"signature": comparison.signature}, *comparison.records()]
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


RENDER = {"md": markdown, "tex": latex, "csv": csv_text, "jsonl": jsonl}


def write(comparison: Comparison, path: str | Path) -> None:
    """Write Markdown, LaTeX, CSV or JSON Lines by the ending of `path`, beside it first and then renamed.

    The signature is a comment of Markdown and LaTeX, the first record of JSON Lines, and lies beside a CSV file as
    ``<path>.signature.json``.
    """
    path = Path(path)
    check_out(path, function="table", endings=ENDINGS)
    texts = {path: RENDER[path.suffix.lower()[1:]](comparison)}
    if path.suffix.lower() == ".csv":
        texts[path.with_name(path.name + ".signature.json")] = json.dumps(comparison.signature, indent=2) + "\n"
    with replacing("table", *texts) as besides:
        for beside, text in zip(besides, texts.values(), strict=True):
            beside.write_bytes(text.encode("utf-8", "surrogateescape"))
