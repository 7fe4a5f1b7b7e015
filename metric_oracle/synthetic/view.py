"""View of the demo for a terminal."""

from typing import Any

from rich.padding import Padding
from rich.text import Text

from metric_oracle.findings.printed_tables import PaperTable, entry
from metric_oracle.findings.views import one_line
from metric_oracle.synthetic.demo import DemoOutcome, encoder_command


def demo_tables(outcome: DemoOutcome) -> list[Any]:
    """Return the demo's table of metrics, then the lines of the example: a test report and its oracle reports."""
    rows = [
        (
            row.metric,
            [
                entry(f"{row.reports:,}"),
                entry(f"{row.oracle:.4f}"),
                entry(f"{row.random:.4f}"),
                entry(f"{row.pairs_per_second:,.0f}"),
            ],
        )
        for row in outcome.metrics
    ]
    notes = []
    if any(row.metric == "chexbert" for row in outcome.metrics):
        notes.append("chexbert: stand-in embeddings made from the gold labels")
    if any(row.metric == "bertscore" for row in outcome.metrics):
        notes.append("bertscore, radcliq: a sample, encoded with MiniLM and not rescaled; for RadCliQ lower is better")
    if outcome.skipped:
        notes.append(f"not run: {', '.join(outcome.skipped)}, which need a model. To install it: {encoder_command()}")
    title = f"Oracles of {outcome.tests:,} test reports in {outcome.reports:,} synthetic reports"
    heads = ["reports", "mean oracle score", "mean random score", "pairs per second"]
    example: list[Any] = [Text("One test report and its oracle reports", style="bold"), Text("")]
    example += [Padding(one_line(outcome.example), (0, 0, 0, 2)), Text("")]
    for row in outcome.metrics:
        example.append(Text(f"{row.metric}  {row.top[0]:.4f}"))
        example.append(Padding(one_line(row.top[1]), (0, 0, 0, 2)))
    return [PaperTable(title, heads, rows, notes, "metric"), *example]
