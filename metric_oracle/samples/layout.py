"""Tables of consensus and of the best of n. Numbers are rounded only here."""

from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.presentation.paper_table import NOTHING, PaperTable, entry, write_tables
from metric_oracle.presentation.terminal import signed
from metric_oracle.samples.best_of import BestOf
from metric_oracle.samples.consensus import Consensus


def consensus_table(consensus: Consensus) -> PaperTable:
    """Return, for each metric, the mean expected score of the chosen samples and of all samples."""
    signature, sizes = consensus.signature, consensus.samples.sizes
    rows = []
    for metric, how in signature["metrics"].items():
        groups = [group for group in consensus.utilities[metric] if len(group) > 1]
        places = [place for place, size in zip(consensus.chosen[metric], sizes, strict=True) if size > 1]
        cells = [NOTHING, NOTHING]
        if groups:
            chosen = np.mean([group[place] for group, place in zip(groups, places, strict=True)])
            cells = [f"{chosen:z.4f}", f"{np.mean([group.mean() for group in groups]):z.4f}"]
        changed = sum(place > 0 for place in consensus.chosen[metric])
        rows.append((metric, [entry(cell) for cell in (*cells, f"{changed:,}", how["direction"])]))
    notes = [f"{consensus.summary()}; expected scores are with the other samples of a study as references"]
    single = sum(size == 1 for size in sizes)
    if single:
        notes.append(f"studies with one sample, which is chosen and has no expected score: {single:,}")
    if signature["weights"] != "equal":
        notes.append(f"weights of the other samples: {signature['weights']}")
    heads = ["chosen samples", "all samples", "not the first", "better"]
    return PaperTable("Mean expected score", heads, rows, [*notes, signed(signature)], "metric")


def best_of_tables(best: BestOf) -> list[PaperTable]:
    """Return, for each metric, the expected best of n, and the selectors with their share of the headroom."""
    signature = best.signature
    tables = []
    for metric, how in signature["metrics"].items():
        arrow = "↑" if how["direction"] == "higher" else "↓"
        curve = [row for row in best.curve.to_pylist() if row["metric"] == metric]
        rows = [
            (f"best of {row['n']:,}", [entry(f"{row['mean']:z.4f}"), _ends(row), entry(f"{row['studies']:,}")])
            for row in curve
        ]
        rows += [
            (row["level"], [entry(f"{row['mean']:z.4f}"), _ends(row), entry(f"{row['studies']:,}")])
            for row in best.levels.to_pylist()
            if row["metric"] == metric
        ]
        heads = ["mean", "95 % CI", "studies"]
        tables.append(PaperTable(f"Expected best of n samples, {metric} {arrow}", heads, rows, [], "samples drawn"))
        rows = []
        for row in best.selectors.to_pylist():
            if row["metric"] == metric:
                cells = [entry(f"{row['mean']:z.4f}"), _share(row), _difference(row)]
                cells.append(entry(NOTHING if row["p_adjusted"] is None else _p(row["p_adjusted"])))
                rows.append((row["selector"], cells))
        heads = ["mean", "share of headroom", "difference from the mean", "p adjusted"]
        tables.append(PaperTable(f"Selectors, {metric} {arrow}", heads, rows, [], "selector"))
    how = signature["interval"]
    notes = [
        f"{best.summary()}.",
        (
            "The expected best of n samples drawn without replacement, in closed form; its mean is over the studies "
            "that have at least n samples."
        ),
        "Share of the headroom: (selector - mean of the samples) / (best of all samples - mean of the samples).",
        (
            f"Intervals: BCa bootstrap over studies, {how['resamples']:,} resamples, seed {how['seed']}. p: "
            "permutation test of the difference from the mean of the samples, adjusted by Benjamini and Hochberg over "
            "all tests here."
        ),
    ]
    if best.levels.num_rows:
        notes.append(
            "Corpus oracle: the best report of the corpus; chance: the mean of all its reports or of random ones."
        )
    if any(row["degenerate"] for table in (best.curve, best.levels) for row in table.to_pylist()):
        notes.append("† The values are equal, or nearly: the interval says nothing.")
    if how_many := ", ".join(f"{count:,} {what}" for what, count in signature["left_out"].items()):
        notes.append(f"Left out: {how_many}.")
    tables[-1].notes.extend(notes)
    return tables


def _ends(row: dict[str, Any]) -> Any:
    """Return the cell of an interval."""
    return entry(f"[{row['low']:z.4f} {row['high']:z.4f}]{'†' if row['degenerate'] else ''}")


def _share(row: dict[str, Any]) -> Any:
    """Return the cell of a share of the headroom."""
    if row["share"] is None:
        return entry(NOTHING)
    ends = "" if row["share_low"] is None else f"\n[{100 * row['share_low']:z.0f}, {100 * row['share_high']:z.0f}]"
    return entry(f"{100 * row['share']:z.0f} %{ends}")


def _difference(row: dict[str, Any]) -> Any:
    """Return the cell of a difference from the mean of the samples."""
    if row["difference"] is None:
        return entry(NOTHING)
    return entry(f"{row['difference']:+z.4f}\n[{row['difference_low']:+z.4f}, {row['difference_high']:+z.4f}]")


def _p(value: float) -> str:
    """Return a p-value as it is printed in tables."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def write_best_of(best: BestOf, path: str | Path) -> None:
    """Write the expected best of n and the selectors: as tables, or as all numbers, by the ending of the path.

    Parameters
    ----------
    best : BestOf
        What [`best_of`][metric_oracle.best_of] returned.
    path : str or path
        File that ends in ``.md`` or ``.tex`` (tables), or ``.csv``, ``.parquet`` or ``.jsonl`` (numbers, unrounded).

    Raises
    ------
    InputError
        If the ending is another one, or the file cannot be written.

    Examples
    --------
    >>> mo.write_best_of(mo.best_of("samples.jsonl", "test.csv", "rouge-l"), "best.md")
    """
    results = best.to_results()
    write_tables(Path(path), best_of_tables(best), results.table, results.signature)
