"""The report on copies as tables: for a terminal, Markdown, LaTeX and files of numbers."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from metric_oracle.copies.report import HUMAN, Cell, Overlap
from metric_oracle.presentation.paper_table import NOTHING, Entry, PaperTable, entry, plain, write_tables
from metric_oracle.presentation.terminal import one_line
from metric_oracle.statistics import Interval

SHOWN_PAIRS = 10


def layout(overlap: Overlap) -> list[PaperTable]:
    """Return the table of values, and that of differences from the human test reports."""
    names, compared = list(overlap.sets), [name for name in overlap.sets if name != HUMAN]
    signature = overlap.signature
    counts = "; ".join(f"{plain(name)} {overlap.distinct[name]:,} of {len(overlap.sets[name].run):,}" for name in names)
    notes = [
        (
            "Shares in %, runs in words, each with its 95 % interval over studies. A line such as rouge-l ≥ 0.9 is the "
            "share whose best training report reaches that score."
        ),
        f"Distinct reports: {counts}. A resample repeats studies, so that this has no interval.",
    ]
    if any(cell.interval is not None and cell.interval.degenerate for cell in overlap.cells.values()):
        notes.append("† All studies are alike, so that the interval says nothing.")
    if signature["masked"]:
        notes.append("Markers of de-identification were removed before the comparison; the last line counts them.")
    values = [_row(overlap, line, names, _value) for line in overlap.lines]
    title = "Overlap with the training corpus"
    if HUMAN not in overlap.sets or not compared:
        return [PaperTable(title, names, values, notes, "line")]
    lines = [line for line in overlap.lines if (HUMAN, line) in overlap.cells]
    differences = [_row(overlap, line, compared, _difference) for line in lines]
    notes.append("Human reports are often training reports: only the difference from them says that a model copies.")
    return [
        PaperTable(title, names, values, [], "line"),
        PaperTable("Difference from the human test reports, paired", compared, differences, notes, "line"),
    ]


def _row(overlap: Overlap, line: str, names: list[str], shown: Callable[[Cell, str], Entry]) -> tuple[str, list[Entry]]:
    """Return one row of a table, with a cell for each set of reports."""
    cells = [overlap.cells.get((name, line)) for name in names]
    return line, [entry(NOTHING) if cell is None else shown(cell, line) for cell in cells]


def _value(cell: Cell, line: str) -> Entry:
    """Return the cell of a value."""
    return _with_ends(cell.value, cell.interval, line, "")


def _difference(cell: Cell, line: str) -> Entry:
    """Return the cell of a difference from the human test reports."""
    return _with_ends(cell.difference, cell.difference_interval, line, "+")


def _with_ends(value: float | None, ends: Interval | None, line: str, sign: str) -> Entry:
    """Return a number with its interval on a second line; shares as percentages."""
    if value is None or value != value:
        return entry(NOTHING)
    scale, form = (1.0, f"{sign}z.0f") if line.endswith("median") else (100.0, f"{sign}z.1f")
    texts = [f"{scale * value:{form}}"]
    if ends is not None:
        texts.append("†" if ends.degenerate else f"[{scale * ends.low:{form}} {scale * ends.high:{form}}]")
    return entry("\n".join(texts))


def views(overlap: Overlap, pairs: pa.Table) -> list[object]:
    """Return what a terminal shows: the tables, then the first rows of `pairs`, which `Overlap.pairs` returned.

    If `pairs` has the texts of reports, these are shown, and the most frequent sentences of each set follow.
    """
    shown: list[object] = [*layout(overlap)]
    text = "text" in pairs.column_names
    for row in pairs.slice(0, SHOWN_PAIRS).to_pylist():
        shown.append(
            one_line(
                f"{row['set']} {row['query_id']}: {row['longest_run']} words in a row"
                f"{' of ' + row['run_id'] if row['run_id'] else ''}; nearest {row['candidate_id']}, "
                f"rouge-l {row['rouge-l']:.4f}"
            )
        )
        if text:
            shown.append(one_line(row["text"]))
    if text:
        shown += [
            one_line(f"{row['set']}: {row['reports']:,} reports have: {row['sentence']}")
            for row in overlap.sentences().to_pylist()
        ]
    return shown


def write_overlap(overlap: Overlap, path: str | Path) -> None:
    """Write the report on copies: the tables (.md, .tex) or all numbers (.csv, .parquet, .jsonl).

    Parameters
    ----------
    overlap : Overlap
        The report, of [`overlap`][metric_oracle.overlap].
    path : str or path
        File to write. An existing one is replaced only when the new one is complete.

    Raises
    ------
    InputError
        If the ending is another one, or the file cannot be written.

    Examples
    --------
    >>> index = mo.build_index("train.csv", "INDEX", metrics="rouge-l,bleu-2")
    >>> mo.write_overlap(mo.overlap(index, {"strong": "strong.csv"}, resamples=1000), "copies.md")
    """
    write_tables(Path(path), layout(overlap), overlap.table, overlap.signature)
