"""Copies of training reports, from a file of `oracle overlap --pairs`: the worst ones, and those of one test report."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metric_oracle.base.errors import InputError
from metric_oracle.copies.measure import LONG, NEAR, NOVELTY, masked
from metric_oracle.copies.overlap import HUMAN, LIMITS
from metric_oracle.explorer.evidence import WHOLE, Segment, common_runs, cut
from metric_oracle.findings.results import read_signed
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.ngrams import token_spans, tokenize_rouge
from metric_oracle.statistics import difference

_GRAMS, _NEW = f"n_{NOVELTY}grams", f"new_{NOVELTY}grams"
_STRINGS = ("set", "query_id", "candidate_id", "run_id", "text")
_KINDS = {
    **dict.fromkeys(("set", "query_id", "candidate_id", "run_id"), pa.large_string()),
    **dict.fromkeys(("row", "longest_run", "run_row", _GRAMS), pa.int64()),
    **dict.fromkeys((*NEAR, _NEW), pa.float64()),
    "copy": pa.bool_(),
}


@dataclass(frozen=True)
class CopiedCases:
    """Reports of several sets, each with the training reports that are nearest to it."""

    table: pa.Table  # that of `Overlap.pairs`, the longest runs first
    signature: dict[str, Any]  # signature of the file

    def check(self, ids: list[str], index: Index | None) -> None:
        """Raise InputError unless the file has one of the test reports `ids` and, if an index is given, is of it."""
        if set(ids).isdisjoint(self.table["query_id"].to_pylist()):
            raise InputError(
                "copies",
                "must have the ids of the test reports",
                "none of them",
                "Check that the files belong together.",
            )
        made_with = str(self.signature.get("index"))
        if index is not None and made_with != index.fingerprint:
            raise InputError(
                "copies",
                f"must be made with index {index.fingerprint[:12]} ({index.folder})",
                f"one made with {made_with[:12]}",
                "Pass the other index, or run `mo.overlap` with this one.",
            )

    @property
    def sets(self) -> list[str]:
        """Names of the sets, the human test reports first."""
        return sorted(set(self.table["set"].to_pylist()), key=lambda name: (name != HUMAN, name))

    def of_set(self, name: str | None) -> pa.Table:
        """Return the rows of the table that are of a set, or all if it is None."""
        return self.table if name is None else self.table.filter(pc.field("set") == name)

    def summary(self) -> list[dict[str, Any]]:
        """Return a dict for each set with its name and the numbers of its column in the table of `overlap`."""
        summed = []
        for name in self.sets:
            of_set = self.of_set(name)
            run, n_grams = of_set["longest_run"].to_numpy(), of_set[_GRAMS].to_numpy()
            n_new = np.rint(of_set[_NEW].fill_null(0.0).to_numpy() * n_grams)
            summed.append(
                {
                    "name": name,
                    "n": len(run),
                    "copies": int(of_set["copy"].to_numpy().sum()),
                    "near": int((difference(of_set[NEAR[0]].to_numpy(), LIMITS[0]) >= 0).sum()),
                    "long": int((run >= LONG).sum()),
                    "median": int(np.sort(run)[(len(run) - 1) // 2]),
                    "new": float(n_new.sum() / n_grams.sum()) if n_grams.any() else None,
                }
            )
        return summed

    def of(self, study: str, texts: Mapping[str, str | None], index: Index | None) -> list[dict[str, Any]]:
        """Return for each set what pages show of its report for the test report with the id `study`, in table order.

        That is what `shown_copy` and `_marked` return. For a file without texts, `texts` has the reports by the names
        of their sets, where they are known; `index` has the training reports.
        """
        copies = []
        for row in self.table.filter(pc.field("query_id") == study).to_pylist():
            text = row.get("text", texts.get(row["set"]))
            other = None
            if index is not None and 0 <= row["run_row"] < index.n_reports:
                other = index.take("text", np.array([row["run_row"]]))[0].as_py()
            if self.signature.get("masked"):
                text, other = (None if one is None else masked(one) for one in (text, other))
            copies.append({**shown_copy(row), **_marked(text, other, row["longest_run"])})
        return copies


def read_copies(path: str | Path) -> CopiedCases:
    """Read a file of `oracle overlap --pairs`."""
    return CopiedCases(*read_signed(Path(path), ("copies", "`pairs` of `mo.overlap`"), _STRINGS, _checked))


def _checked(table: pa.Table, signature: dict[str, Any]) -> pa.Table:
    """Return the table of `Overlap.pairs` with the right column types; raise any error if it is another table."""
    if signature["command"] != "overlap":
        raise ValueError
    for name, kind in _KINDS.items():
        column = table[name].cast(kind)
        if column.null_count and name != _NEW:
            raise ValueError
        table = table.set_column(table.column_names.index(name), pa.field(name, kind), column)
    return table


def shown_copy(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what pages show of a row of the table, without its text."""
    same = [name.removeprefix("same_") for name, value in row.items() if name.startswith("same_") and value is True]
    return {
        "set": row["set"],
        "query_id": row["query_id"],
        "run": row["longest_run"],
        "run_id": row["run_id"],
        "run_row": row["run_row"],
        "nearest_id": row["candidate_id"],
        "nearest_row": row["row"],
        "scores": {name: row[name] for name in NEAR},
        "new": row[_NEW],
        "is_copy": row["copy"],
        "same": same,
    }


def _marked(text: str | None, other: str | None, n: int) -> dict[str, Any]:
    """Return a report and a training report as segments with their longest shared run marked, which has `n` words.

    The dict has `report`, `training` and `note`. A text that is not known has no segments. The note says why nothing is
    marked; it is empty otherwise.
    """
    sides = [[] if one is None else [Segment(one)] for one in (text, other)]
    note = ""
    if text is None:
        note = "The text of this report is not known: write the file of copies with --with-text."
    elif other is None and n:
        note = "The text of the training report is not known: pass --index."
    elif other is not None:
        run = max(common_runs(tokenize_rouge(text), tokenize_rouge(other)), key=lambda run: run[2], default=(0, 0, 0))
        if run[2] != n:
            note = f"These texts share {run[2]} words in a row, not {n}: the report of the result file is another one."
        else:
            sides = [
                cut(one, [(span, Segment("", WHOLE, 1)) for span in token_spans(one, "words")[begin : begin + n]])
                for one, begin in zip((text, other), run[:2], strict=True)
            ]
    return {"report": sides[0], "training": sides[1], "note": note}
