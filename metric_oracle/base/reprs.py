"""`repr` helpers for terminals and notebooks. They never show the text of a report."""

from collections.abc import Iterable
from html import escape


def html_block(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """Return a title above lines of names and texts, as HTML without colours of its own; all is escaped."""
    cell = "text-align: left; vertical-align: top"
    lines = [
        f'<tr><th scope="row" style="{cell}; font-weight: normal">{escape(name)}</th>'
        f'<td style="{cell}; overflow-wrap: anywhere">{escape(str(text))}</td></tr>'
        for name, text in facts
    ]
    caption = f'<caption style="text-align: left; font-weight: bold">{escape(title)}</caption>'
    return "\n".join(["<table>", caption, "<tbody>", *lines, "</tbody>", "</table>"])


class OneLine:
    """Base of a dataclass (with ``repr=False``) whose `repr` is a one-line summary instead of all fields."""

    def summary(self) -> str:
        """Return the one-line summary."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return the name of the class and the summary."""
        return f"<{type(self).__name__}: {self.summary()}>"
