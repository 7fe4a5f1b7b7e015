"""What a terminal shows, as HTML for a notebook.

Nothing has a colour of its own: texts and lines have that of the page around them, dark or light.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain, groupby
from typing import Any

from metric_oracle.findings.printed_tables import Entry, PaperTable, plain

_WIDTH = 100  # characters of a line that is no part of a table
_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_TITLE = "margin: 0.5em 0 0; font-weight: bold"
_CELL = "padding: 0.15em 0.6em; vertical-align: top; white-space: pre"
_NAME = f"{_CELL}; text-align: left; font-weight: normal"
_NUMBER = f"{_CELL}; text-align: right"
_RULE = "; border-top: 1px solid"
_LINES = "overflow-x: auto; font-family: var(--jp-code-font-family, monospace)"
_NOTE = "margin: 0; max-width: 60em; opacity: 0.75"
_MARKUP = {"bold": "font-weight: bold", "dim": "opacity: 0.75", "underline": "text-decoration: underline"}


class InNotebook:
    """Base of results that a notebook shows as a terminal does."""

    def shown(self) -> Sequence[Any]:
        """Return what a terminal shows: printed tables, and texts of Rich."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return html(self.shown())


def html(parts: Iterable[Any]) -> str:
    """Return printed tables and texts of Rich, also in groups, as HTML."""
    found: list[str] = []
    for is_table, some in groupby(_flat(parts), lambda part: isinstance(part, PaperTable)):
        own = [*some]
        found += chain.from_iterable(map(_table, own)) if is_table else [_lines(own)]
    return "\n".join(["<div>", *found, "</div>"])


def _flat(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the parts, and those of groups of them."""
    for part in parts:
        yield from _flat(part.renderables) if hasattr(part, "renderables") else [part]


def _table(table: PaperTable) -> Iterator[str]:
    """Yield the lines of a table, with the sentences below it."""
    lines = [table.lines(i) for i in range(len(table.columns))]
    title = escape(plain(table.title))
    yield f'<p style="{_TITLE}">{title}</p>'
    yield f'<div style="overflow-x: auto"><table style="{_TABLE}" aria-label="{title}">'
    yield "<thead>"
    heads = "".join(f'<th scope="col" style="{_NUMBER}">{escape(plain(head))}</th>' for head in table.columns)
    yield f'<tr><th scope="col" style="{_NAME}">{escape(plain(table.first))}</th>{heads}</tr>'
    yield "</thead>"
    yield "<tbody>"
    for i, (name, cells) in enumerate(table.rows):
        rule = _RULE if i == 0 or (table.print is not None and i == table.print.rule) else ""
        label = "<br>".join(escape(plain(line)) for line in name.split("\n"))
        texts = [_cell(cell, of_column[i]) for cell, of_column in zip(cells, lines, strict=True)]
        row = "".join(f'<td style="{_NUMBER}{rule}">{text}</td>' for text in texts)
        yield f'<tr><th scope="row" style="{_NAME}{rule}">{label}</th>{row}</tr>'
    yield "</tbody>"
    yield "</table></div>"
    yield from (f'<p style="{_NOTE}">{escape(plain(note))}</p>' for note in table.sentences)


def _cell(cell: Entry, lines: Sequence[str]) -> str:
    """Return the lines of a cell; the number has the style of the cell."""
    number = escape(plain(cell.lines[0]))
    first = escape(lines[0]).removeprefix(number)
    tag = "b" if cell.best else "u" if cell.second else ""
    marked = f"<{tag}>{number}</{tag}>" if tag else number
    return "<br>".join([marked + first, *map(escape, lines[1:])])


def _lines(parts: Iterable[Any]) -> str:
    """Return texts of Rich as lines of equally wide characters, folded as on a terminal."""
    import io

    from rich.console import Console

    console = Console(width=_WIDTH, file=io.StringIO(), legacy_windows=False)
    texts = []
    for part in parts:
        for segment in (segment for line in console.render_lines(part, pad=False, new_lines=True) for segment in line):
            styles = [css for name, css in _MARKUP.items() if segment.style and getattr(segment.style, name)]
            text = escape(segment.text)
            texts.append(f'<span style="{"; ".join(styles)}">{text}</span>' if styles else text)
    return f'<pre style="{_LINES}">{"".join(texts).rstrip()}</pre>'
