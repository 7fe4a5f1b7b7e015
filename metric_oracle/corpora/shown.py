"""How objects show themselves in a notebook: a title and a table, never the text of a report."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a small HTML table; every cell is escaped."""
    lines = [f"<p>{escape(title)}</p>", "<table>", _row("th", header), *(_row("td", row) for row in rows), "</table>"]
    return "\n".join(lines)


def _row(tag: str, cells: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
