"""Cells and tables of the site's pages, and what a run's rows say of their corpus and machine."""

from collections.abc import Sequence

from benchmarks.data import CORPORA
from benchmarks.machine import Row
from metric_oracle.bench.timing import seconds_text

REAL = 2365  # reports of IU X-ray's training side


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, nothing where it has no rows."""
    if not rows:
        return ""
    lines = [header, ["---"] * len(header), *[[escaped(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escaped(text: str) -> str:
    """Keep a text in its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def number(value: float) -> str:
    """Return three significant digits, or an integer with separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def value(amount: float, row: Row) -> str:
    """Return a number with the row's unit."""
    return f"{number(amount)} {row['unit']}"


def noted(row: Row) -> str:
    """Return a row's value, with its note."""
    return value(row["value"], row) + (f" ({row['note']})" if "note" in row else "")


def spread(row: Row) -> str:
    """Return the 20th and the 80th percentile."""
    return "one run" if row["repetitions"] == 1 else f"{number(row['p20'])} to {number(row['p80'])}"


def seconds(amount: float | None) -> str:
    """Return seconds, or milliseconds below one, nothing for None."""
    return "" if amount is None else seconds_text(amount)


def rate(amount: float) -> str:
    """Return a number of pairs a second."""
    return f"{amount / 1e6:,.0f} million" if amount >= 1e7 else f"{amount:,.0f}"


def goal(row: Row) -> str:
    """Return a row's goal, where it has one."""
    return "" if row["goal"] is None else f"{row['sense']} {value(row['goal'], row)}"


def met(row: Row) -> str:
    """Return whether a row's goal was met, where it has one."""
    return {True: "yes", False: "**no**", None: ""}[row["met"]]


def where(row: Row) -> str:
    """Return processor, cores and instructions, which earlier rows do not have."""
    computer = row["machine"]
    simd = f", {computer['simd']}" if "simd" in computer else ""
    simd += " and AMX" if computer.get("amx") else ""
    name = computer["cpu"].replace("(R)", "").replace("(TM)", "").removesuffix(" Processor")
    return f"{escaped(name)}, {computer['cores']} cores{simd}"


def size(row: Row) -> str:
    """Return how many reports of what were searched for how many."""
    kinds = {"synthetic": "synthetic reports", "iu-xray": "reports of IU X-ray"}
    if row.get("corpus") == "iu-xray" and row["reports"] > REAL:
        kinds["iu-xray"] += ", real ones and others recombined from their sentences"
    return f"{row['tests']:,} test reports x {row['reports']:,} {kinds[row.get('corpus', CORPORA[0])]}"
