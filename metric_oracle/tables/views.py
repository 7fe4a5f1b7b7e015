"""Tables of CRG and F1 for a terminal."""

from typing import Any

from rich.console import Group

from metric_oracle.findings.signature import signature_line as signed
from metric_oracle.findings.tables import PaperTable, entry, plain
from metric_oracle.tables.crg import COUNTS, CRG
from metric_oracle.tables.f1_chexbert import F1


def crg_table(scored: CRG) -> Group:
    """Return a table with the counts of each label, and the score of each level with its interval."""
    rows = []
    for row in scored.records():
        counts = [entry("" if row[name] is None else f"{row[name]:,}") for name in COUNTS]
        ends = "" if row["crg"] is None else f"[{row['low']:.4f} {row['high']:.4f}]"
        cells = [*counts, entry("" if row["crg"] is None else f"{row['crg']:.4f}"), entry(ends)]
        rows.append((f"{plain(row['level'])}: {plain(row['label'])}", cells))
    notes = [
        (
            f"{scored.reports:,} reports; an uncertain label counts as {scored.signature['uncertain']}; trivial "
            "answers have 0.3333"
        ),
        "95 % BCa intervals over reports, each resample with its own prevalence",
        *scored.warnings(),
        signed(scored.signature),
    ]
    heads = [*(name.upper() for name in COUNTS), "CRG", "95 % CI"]
    return Group(PaperTable("CRG", heads, rows, notes, "label"))


def f1_table(scored: F1) -> Group:
    """Return a table of F1 with intervals: one row per label set and policy, one column per average."""
    rows: dict[str, list[Any]] = {}
    for (labels, uncertain, _), (value, ends) in scored.values.items():
        cells = rows.setdefault(f"{labels} labels, uncertain {uncertain}", [])
        cells.append(entry(f"{value:.4f}\n[{ends.low:.4f} {ends.high:.4f}]"))
    averages = list(dict.fromkeys(average for _, _, average in scored.values))
    policies = scored.signature["uncertain"]
    if isinstance(policies, dict):
        policies = "; ".join(f"{name} ({users})" for name, users in policies.items())
    notes = [
        f"{scored.reports:,} reports; an uncertain label counts as {policies}",
        "95 % BCa intervals over studies",
        *scored.warnings(),
        signed(scored.signature),
    ]
    return Group(PaperTable(scored.title, averages, list(rows.items()), notes, "labels"))
