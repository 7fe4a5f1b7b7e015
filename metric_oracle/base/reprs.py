"""`repr` helpers for terminals and notebooks. They never show the text of a report."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a small HTML table; every cell is escaped."""
    lines = [f"<p>{escape(title)}</p>", "<table>", _row("th", header), *(_row("td", row) for row in rows), "</table>"]
    return "\n".join(lines)


def _row(tag: str, cells: Sequence[object]) -> str:
    """Return one row of an HTML table; `tag` is "th" or "td"."""
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"


class OneLine:
    """Base of a dataclass (with ``repr=False``) whose `repr` is a one-line summary instead of all fields."""

    def summary(self) -> str:
        """Return the one-line summary."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return the name of the class and the summary."""
        return f"<{type(self).__name__}: {self.summary()}>"
