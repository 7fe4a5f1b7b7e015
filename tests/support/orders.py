"""Files in another order: what is joined by id has the same answer in whatever order rows and columns stand."""

import csv
from collections.abc import Callable
from pathlib import Path


def in_another_order(path: Path, keep: Callable[[dict[str, str]], bool] = lambda row: True) -> Path:
    """Write a CSV from its last row and column to its first beside it, or only the rows to keep, and return the path.

    A test gives every second file so: the order of the first one, or a place for an id, then gives another answer.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if keep(row)]
    names = [*rows[0]][::-1]
    place = path.with_name(f"{path.stem}-in-another-order.csv")
    with place.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows[::-1])
    return place
