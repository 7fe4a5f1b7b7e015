"""How objects show themselves: a line, or in a notebook a title and a table; never the text of a report."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a small HTML table; every cell is escaped."""
    lines = [f"<p>{escape(title)}</p>", "<table>", _row("th", header), *(_row("td", row) for row in rows), "</table>"]
    return "\n".join(lines)


def _row(tag: str, cells: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"


class OneLine:
    """A dataclass (``repr=False``) that is printed as the line that sums it up, not as all its fields."""

    def summary(self) -> str:
        """Return that line."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return the name of the class and the line."""
        return f"<{type(self).__name__}: {self.summary()}>"
