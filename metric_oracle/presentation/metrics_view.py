"""The list of metrics as a view for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text


def metrics_view(records: Sequence[Mapping[str, str]]) -> list[Any]:
    """Return a view of the metrics that fits a screen: their names, grouped by what they read.

    Parameters
    ----------
    records : sequence of mapping
        ``metric``, ``also`` (other names), ``better`` (direction), ``reads`` (inputs) and ``equals`` (published tool).
    """
    names_of: dict[str, list[str]] = {}
    for record in records:
        also = f" (also {record['also']})" if record["also"] else ""
        low = " ↓" if record["better"] == "lower" else ""
        names_of.setdefault(record["reads"], []).append(record["metric"] + also + low)
    shown: list[Any] = []
    for reads, names in names_of.items():
        shown += [
            Text(f"reads {reads}", style="bold", overflow="fold"),
            Padding(Text(", ".join(names), overflow="fold"), (0, 0, 0, 2)),
        ]
    last = "↓: lower is better. The published tool that each equals: --format jsonl or csv, and docs/metrics.md."
    return [*shown, Text(last, style="dim")]
