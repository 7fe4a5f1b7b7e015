"""Tables as in a paper, with rounded cells: for a terminal of any width, in Markdown and in LaTeX.

All Markdown and LaTeX of the package is made here, and here alone names are escaped. On a terminal, no line of a cell
is ever broken or cut, because a number that is cut is a wrong number. A table that is too wide is shown in several
parts, one below the other, each with the names of the rows.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metric_oracle.findings.cells import NOTHING, Format, Row
from metric_oracle.findings.signature import short_signature


@dataclass(frozen=True)
class Entry:
    """The lines of one cell. If it is `best`, the first line is printed in bold; if it is `second`, underlined."""

    lines: tuple[str, ...]
    best: bool = False
    second: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A printed table."""

    title: str
    columns: list[str]  # heads of the columns, without the column of names
    rows: list[tuple[str, list[Entry]]]  # a name and its cells; the name may have several lines
    notes: list[str] = field(default_factory=list)  # sentences below the table
    first: str = ""  # head of the column of names

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Yield the table for Rich, in parts that fit the width of the console, and its notes."""
        yield from _rich(self, options.max_width)


def entry(text: str, best: bool = False, second: bool = False) -> Entry:
    """Return a cell with the lines of a text."""
    return Entry(tuple(text.split("\n")), best, second)


def listing(
    title: str,
    rows: Iterable[Row],
    name: str | Format,
    columns: Mapping[str, Format],
    notes: Sequence[str] = (),
    first: str = "",
) -> PaperTable:
    """Return a table of rows: the name of each (a field, or a function of it) and a cell in each column.

    `columns` has the function that prints a cell by the head of its column; `first` is the head of the names.
    """
    cells = [
        (row[name] if isinstance(name, str) else name(row), [entry(cell(row)) for cell in columns.values()])
        for row in rows
    ]
    return PaperTable(title, [*columns], cells, [*notes], first)


def pivot(
    title: str,
    rows: Iterable[Row],
    down: str,
    across: str,
    cell: Format,
    notes: Sequence[str] = (),
    first: str = "",
    *,
    named: Callable[[str], str] = str,
    best: str = "",
    second: str = "",
    lines: Sequence[str] = (),
) -> PaperTable:
    """Return a table with a line for each value of the field `down` and a column for each of `across`, in their order.

    `cell` prints a row, and `named` makes the head of a column from the value of its field. A line and a column without
    a row have a dash; of several rows the last counts. Cells of rows whose field `best` is true are bold, and those
    whose field `second` is true underlined; without a name of that field none are. There is a line for each of `lines`
    where these are given. `first` is the head of the column of names.
    """

    def entry_of(row: Row | None) -> Entry:
        if row is None:
            return entry(NOTHING)
        return entry(cell(row), bool(best and row[best]), bool(second and row[second]))

    row_at = {(row[down], row[across]): row for row in rows}
    names, heads = (list(dict.fromkeys(values)) for values in zip(*row_at, strict=True)) if row_at else ([], [])
    cells = [(name, [entry_of(row_at.get((name, head))) for head in heads]) for name in lines or names]
    return PaperTable(title, [*map(named, heads)], cells, [*notes], first)


def plain(text: str) -> str:
    """Return a text on one line: a blank for each run of white space, U+FFFD for a character that cannot be printed."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


# A terminal

_BETWEEN, _EDGES = 3, 2  # characters between two columns, and at both edges together
_MIN_NAME_WIDTH = 8  # of the column of names


def _rich(table: PaperTable, width: int) -> Iterator[Any]:
    """Yield the parts of a table for a terminal of `width` characters, then its notes."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def column_width(head: str, entries: list[Entry]) -> int:
        words = plain(head).split() or [""]
        return max(len(part) for part in (*words, *(plain(line) for cell in entries for line in cell.lines)))

    widths = [column_width(head, [cells[i] for _, cells in table.rows]) for i, head in enumerate(table.columns)]
    names = [plain(line) for name, _ in table.rows for line in name.split("\n")] + [plain(table.first)]
    longest, word = max(map(len, names)), max(len(word) for name in names for word in name.split() or [""])
    available = max(width - _EDGES - _BETWEEN - max(widths, default=0), _MIN_NAME_WIDTH)
    name_width = min(longest, max(width // 3, word), available)
    room = width - _EDGES - sum(widths) - _BETWEEN * len(widths)
    if max(word, _MIN_NAME_WIDTH) <= room < name_width:  # folded names rather than a table in two parts
        name_width = room
    begin = 0
    while begin < max(len(table.columns), 1):
        end, left = begin + 1, width - _EDGES - name_width - _BETWEEN - (widths[begin] if widths else 0)
        while end < len(table.columns) and left >= widths[end] + _BETWEEN:
            left -= widths[end] + _BETWEEN
            end += 1
        part = Table(
            title=Text(plain(table.title)) if begin == 0 else None,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
        )
        part.add_column(Text(plain(table.first)), min_width=name_width, max_width=name_width, overflow="fold")
        for head, column in zip(table.columns[begin:end], widths[begin:end], strict=True):
            part.add_column(Text(plain(head)), justify="right", min_width=column, max_width=column, overflow="fold")
        for name, cells in table.rows:
            texts = [
                Text("\n").join(
                    Text(plain(line), style=_style(cell) if i == 0 else "") for i, line in enumerate(cell.lines)
                )
                for cell in cells[begin:end]
            ]
            label = Text("\n".join(map(plain, name.split("\n"))))
            part.add_row(label, *texts, end_section=max((len(cell.lines) for cell in cells), default=1) > 1)
        yield part
        begin = end
    yield from (Text(plain(note), style="dim") for note in table.notes)


def _style(cell: Entry) -> str:
    return "bold" if cell.best else "underline" if cell.second else ""


# Markdown

_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$!])")


def _markdown_text(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", html.escape(plain(text), quote=False))


def _markdown_cell(line: str) -> str:
    """Return a line of a cell. Brackets, as of intervals, are not escaped unless they could begin a link."""
    text = _markdown_text(line)
    return text if "](" in line else text.replace(r"\[", "[").replace(r"\]", "]")


def markdown(tables: Sequence[PaperTable], signature: dict[str, Any]) -> str:
    """Return tables as Markdown. At the end is the signature, in one short line and in full in a comment."""
    lines = []
    for table in tables:
        lines += [f"**{_markdown_text(table.title)}**", ""]
        lines.append("| " + " | ".join(map(_markdown_text, [table.first, *table.columns])) + " |")
        lines.append("|---|" + "--:|" * len(table.columns))
        for name, cells in table.rows:
            texts = []
            for cell in cells:
                first, *others = map(_markdown_cell, cell.lines)
                marked = f"**{first}**" if cell.best else f"<u>{first}</u>" if cell.second else first
                texts.append(" ".join([marked, *others]))
            lines.append(f"| {_markdown_text(name)} | " + " | ".join(texts) + " |")
        lines.append("")
        lines += [f"- {_markdown_text(note)}" for note in table.notes]
        lines += [""] if table.notes else []
    lines.append(f"Signature: {_markdown_text(short_signature(signature))}")
    # Escaped, so that no name can end the comment.
    full = json.dumps(signature).replace("<", "\\u003c").replace(">", "\\u003e")
    return "\n".join([*lines, "", f"<!-- signature: {full} -->", ""])


# LaTeX

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
        "‡": r"\textdaggerdbl{}",
        **{c: "\\" + c for c in "{}$&#%_"},
    }
)
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def _latex_text(text: str) -> str:
    return plain(text).translate(_LATEX)


def latex(tables: Sequence[PaperTable], signature: dict[str, Any]) -> str:
    r"""Return tables as LaTeX. At the end is the signature, in one short line and in full in a comment.

    The lines of a cell are separate rows of the tabular, so that booktabs is the only package needed.
    """
    lines = [r"% \usepackage{booktabs}"]
    for table in tables:
        lines += [
            r"\begin{table}",
            r"\centering\footnotesize",
            rf"\caption{{{_latex_text(table.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"\toprule",
            " & ".join(map(_latex_text, [table.first, *table.columns])) + r" \\",
        ]
        is_tall = any(len(cell.lines) > 1 for _, cells in table.rows for cell in cells)
        for i, (name, cells) in enumerate(table.rows):
            names = name.split("\n")
            lines.append(r"\midrule" if i == 0 else r"\addlinespace" if is_tall else "")
            for row in range(max(len(names), *(len(cell.lines) for cell in cells), 1)):
                label = names[row] if row < len(names) else ""
                # Directly after \\ or \midrule, a bracket or a star would be read as an argument.
                texts = [("{}" if plain(label).startswith(("[", "*")) else "") + _latex_text(label)]
                for cell in cells:
                    text = _latex_text(cell.lines[row]) if row < len(cell.lines) else ""
                    text = _MINUS.sub("$-$", text)
                    mark = "" if row else "textbf" if cell.best else "underline" if cell.second else ""
                    texts.append(rf"\{mark}{{{text}}}" if mark else text)
                lines.append(" & ".join(texts) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip\raggedright {_latex_text(note)}" for note in table.notes]
        if table is tables[-1]:
            lines.append(rf"\par\smallskip\raggedright Signature: {_latex_text(short_signature(signature))}")
        lines += [r"\end{table}", ""]
    lines.append(f"% signature: {json.dumps(signature)}")
    return "\n".join(line for line in lines if line) + "\n"


RENDERERS = {"md": markdown, "tex": latex}
