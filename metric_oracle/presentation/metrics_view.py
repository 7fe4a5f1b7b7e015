"""The list of metrics as a view for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text


def metrics_view(records: Sequence[Mapping[str, str]]) -> list[Any]:
    """Return a view of the metrics: names, direction, inputs, and the published tool with equal numbers.

    Parameters
    ----------
    records : sequence of mapping
        ``metric``, ``also`` (other names), ``better`` (direction), ``reads`` (inputs) and ``equals`` (published tool).
    """
    shown: list[Any] = []
    for record in records:
        head = Text(record["metric"], style="bold")
        head.append(f"  (also {record['also']})" if record["also"] else "", style="not bold")
        head.append(f"  {record['better']} is better", style="not bold dim")
        reads = Text(f"reads {record['reads']}", overflow="fold")
        shown += [head, Padding(reads, (0, 0, 0, 2)), Padding(Text(record["equals"], style="dim"), (0, 0, 0, 2))]
    return shown
