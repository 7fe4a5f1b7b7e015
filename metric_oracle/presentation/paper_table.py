"""Tables as a paper prints them, cells already rounded: for a terminal of any width, Markdown and LaTeX.

This is the only Markdown and the only LaTeX of the package, and the only place that makes names harmless. On a terminal
no line of a cell is ever broken or cut: a number that is cut would be another number. What does not fit beside each
other goes under each other, in parts that repeat the names of the rows.
"""

import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from metric_oracle.choices import RESULTS, TABLES
from metric_oracle.files import replacing
from metric_oracle.presentation.short_signature import short_signature
from metric_oracle.retrieval.results import Results, check_out

NOTHING = "–"


@dataclass(frozen=True)
class Entry:
    """Text of one cell, a line each; `best` sets the first in bold, `second` underlines it."""

    lines: tuple[str, ...]
    best: bool = False
    second: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A printed table.

    Attributes
    ----------
    title : str
    columns : list of str
        Heads of the columns, without that of the names.
    rows : list of (str, list of Entry)
        A name and its cells; the name may have several lines.
    notes : list of str
        Sentences below the table.
    first : str
        Head of the column of names.
    """

    title: str
    columns: list[str]
    rows: list[tuple[str, list[Entry]]]
    notes: list[str] = field(default_factory=list)
    first: str = ""

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Yield what Rich prints at the width of a console: parts that fit, and the notes."""
        yield from _rich(self, options.max_width)


def entry(text: str, best: bool = False) -> Entry:
    """Return a cell with the lines of a text."""
    return Entry(tuple(text.split("\n")), best)


def plain(text: str) -> str:
    """Return a text on one line, without control characters."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


# A terminal

_BETWEEN, _EDGES = 3, 2  # characters between two columns, and at both edges
_LEAST = 8  # of the column of names


def _rich(table: PaperTable, width: int) -> Iterator[Any]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def needed(head: str, entries: list[Entry]) -> int:
        words = plain(head).split() or [""]
        return max(len(part) for part in (*words, *(plain(line) for one in entries for line in one.lines)))

    widths = [needed(head, [cells[place] for _, cells in table.rows]) for place, head in enumerate(table.columns)]
    names = [plain(line) for name, _ in table.rows for line in name.split("\n")] + [plain(table.first)]
    longest, word = max(map(len, names)), max(len(word) for name in names for word in name.split() or [""])
    room = max(width - _EDGES - _BETWEEN - max(widths, default=0), _LEAST)
    stub = min(longest, max(width // 3, word), room)
    begin = 0
    while begin < max(len(table.columns), 1):
        end, left = begin + 1, width - _EDGES - stub - _BETWEEN - (widths[begin] if widths else 0)
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
        part.add_column(Text(plain(table.first)), min_width=stub, max_width=stub, overflow="fold")
        for head, least in zip(table.columns[begin:end], widths[begin:end], strict=True):
            part.add_column(Text(plain(head)), justify="right", min_width=least, max_width=least, overflow="fold")
        for name, cells in table.rows:
            texts = [
                Text("\n").join(
                    Text(plain(line), style=_style(one) if place == 0 else "") for place, line in enumerate(one.lines)
                )
                for one in cells[begin:end]
            ]
            label = Text("\n".join(map(plain, name.split("\n"))))
            part.add_row(label, *texts, end_section=max((len(one.lines) for one in cells), default=1) > 1)
        yield part
        begin = end
    yield from (Text(plain(note), style="dim") for note in table.notes)


def _style(one: Entry) -> str:
    return "bold" if one.best else "underline" if one.second else ""


# Markdown

_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$!])")


def _markdown_text(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", html.escape(plain(text), quote=False))


def _markdown_cell(line: str) -> str:
    """Return a line of a cell; the brackets of an interval stay readable, as no link follows from them."""
    text = _markdown_text(line)
    return text if "](" in line else text.replace(r"\[", "[").replace(r"\]", "]")


def markdown(tables: Sequence[PaperTable], signature: dict[str, Any]) -> str:
    """Return tables as Markdown; the signature is in a comment at the end, and in one line above it."""
    lines = []
    for table in tables:
        lines += [f"**{_markdown_text(table.title)}**", ""]
        lines.append("| " + " | ".join(map(_markdown_text, [table.first, *table.columns])) + " |")
        lines.append("|---|" + "--:|" * len(table.columns))
        for name, cells in table.rows:
            shown = []
            for one in cells:
                first, *others = map(_markdown_cell, one.lines)
                marked = f"**{first}**" if one.best else f"<u>{first}</u>" if one.second else first
                shown.append(" ".join([marked, *others]))
            lines.append(f"| {_markdown_text(name)} | " + " | ".join(shown) + " |")
        lines.append("")
        lines += [f"- {_markdown_text(note)}" for note in table.notes]
        lines += [""] if table.notes else []
    lines.append(f"Signature: {_markdown_text(short_signature(signature))}")
    # No name can end the comment.
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
    r"""Return tables as LaTeX for booktabs; the signature is in a comment at the end, and in one line above it.

    The lines of a cell are rows of the tabular, so that no package but booktabs is needed.
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
        tall = any(len(one.lines) > 1 for _, cells in table.rows for one in cells)
        for place, (name, cells) in enumerate(table.rows):
            names = name.split("\n")
            lines.append(r"\midrule" if place == 0 else r"\addlinespace" if tall else "")
            for row in range(max(len(names), *(len(one.lines) for one in cells), 1)):
                label = names[row] if row < len(names) else ""
                # After \\ and \midrule a bracket or a star would be their argument.
                texts = [("{}" if plain(label).startswith(("[", "*")) else "") + _latex_text(label)]
                for one in cells:
                    text = _latex_text(one.lines[row]) if row < len(one.lines) else ""
                    text = _MINUS.sub("$-$", text)
                    mark = "" if row else "textbf" if one.best else "underline" if one.second else ""
                    texts.append(rf"\{mark}{{{text}}}" if mark else text)
                lines.append(" & ".join(texts) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip\raggedright {_latex_text(note)}" for note in table.notes]
        if table is tables[-1]:
            lines.append(rf"\par\smallskip\raggedright Signature: {_latex_text(short_signature(signature))}")
        lines += [r"\end{table}", ""]
    lines.append(f"% signature: {json.dumps(signature)}")
    return "\n".join(line for line in lines if line) + "\n"


def write_tables(
    path: Path, tables: Sequence[PaperTable], data: pa.Table, signature: dict[str, Any], function: str
) -> None:
    """Write the tables (.md, .tex) or the table of all numbers (.csv, .parquet, .jsonl), by the ending of `path`."""
    check_out(path, function=function, endings=TABLES)
    if path.suffix.lower() in RESULTS:
        Results(data, signature).write(path, function=function)
        return
    text = (markdown if path.suffix.lower() == ".md" else latex)(tables, signature)
    with replacing(function, path) as (beside,):
        beside.write_bytes(text.encode("utf-8", "surrogateescape"))


def sources_line(signature: dict[str, Any]) -> str:
    """Return one line that names the input files of a result by name and checksum, and the version."""
    sets = signature["sets"].values() if "sets" in signature else [signature]
    inputs = [one for of in sets for one in (of["ratings"], of.get("samples"), *of.get("scores", []))]
    named = [f"{i['file']} ({i['sha256'][:12]})" if isinstance(i, dict) else i for i in inputs if i]
    return "; ".join([*named, f"metric-oracle {signature['version']}"])
