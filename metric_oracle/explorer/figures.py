"""Figures with their tables, for pages and the report: systems, random retrieval, agreement with radiologists."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from metric_oracle.errors import MetricOracleError
from metric_oracle.explorer.cases import Cases
from metric_oracle.presentation.expectation_plot import draw_histogram
from metric_oracle.presentation.matplotlib_io import picture
from metric_oracle.presentation.paper_table import PaperTable, entry
from metric_oracle.raters.failure_modes import FailureModes, failure_modes
from metric_oracle.raters.layout import mean_tables, significant_table
from metric_oracle.raters.metric_agreement import Alignment, align
from metric_oracle.raters.metric_agreement_layout import alignment_tables
from metric_oracle.raters.plots import draw_alignment, draw_failure_modes
from metric_oracle.retrieval.expectation import Expectation
from metric_oracle.retrieval.results import Scores
from metric_oracle.tables.comparison import Comparison, compare
from metric_oracle.tables.comparison_layout import layout
from metric_oracle.tables.comparison_plot import draw
from metric_oracle.tables.systems import Given

ORACLE, RANDOM, IDENTITY = "oracle", "random", "identity"


@dataclass(frozen=True)
class Section:
    """One figure with tables of its numbers.

    Attributes
    ----------
    key : str
        Name in the figure's address, such as "table".
    title : str
    tables : list of PaperTable
    alt : str
        Alternative text of the figure. The numbers are in the tables.
    svg : bytes
        The figure; empty if it could not be drawn.
    lines : list of str
        Reasons why tables or the figure are missing.
    """

    key: str
    title: str
    tables: list[PaperTable] = field(default_factory=list)
    alt: str = ""
    svg: bytes = b""
    lines: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The figure as a data URL."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


def sections(cases: Cases) -> list[Section]:
    """Return all figures that can be drawn from the files and the ratings."""
    shown = []
    if any(not isinstance(file, Expectation) for file in cases.files):
        shown.append(_section("table", "Systems", lambda: compared(cases), _of_systems))
    for number, file in enumerate(file for file in cases.files if isinstance(file, Expectation)):
        metric = file.signature["metric"]
        shown.append(_section(f"chance-{number + 1}", f"Chance under {metric}", lambda file=file: file, _of_chance))  # type: ignore[misc]
    rated = cases.rated
    if rated is not None:
        ratings, scores = rated.ratings, rated.scores
        shown.append(_section("align", "Agreement with radiologists", lambda: align(ratings, scores), _of_alignment))
        shown.append(_section("failure-modes", "Failure modes", lambda: failure_modes(ratings), _of_modes))
    return shown


def _section(key: str, title: str, make: Callable[[], Any], show: Callable[[Any], tuple[Any, ...]]) -> Section:
    """Compute a figure with `make` and draw it with `show`.

    If either raises an error of this package, return a section that shows the error's message instead.
    """
    try:
        tables, alt, draw = show(made := make())
    except MetricOracleError as error:
        return Section(key, title, lines=[str(error)])
    try:
        return Section(key, title, tables, alt, picture(draw(made), "svg"))
    except MetricOracleError as error:
        return Section(key, title, tables, lines=[str(error)])


def compared(cases: Cases) -> Comparison:
    """Return the comparison of the systems of all files; files of one system under different metrics are one system."""
    rows: dict[str, list[Given]] = {}
    metrics_of_row: dict[str, set[str]] = {}
    for file in cases.files:
        if isinstance(file, Expectation):
            continue
        is_scores = isinstance(file, Scores)
        name = str(file.signature.get("system") if is_scores else file.signature.get("baseline") or ORACLE)
        metrics = set(file.signature["metrics"]) if is_scores else {str(file.signature.get("metric"))}
        number, free = 1, name
        while metrics_of_row.get(free, set()) & metrics:
            number += 1
            free = f"{name} ({number})"
        rows.setdefault(free, []).append(file)
        metrics_of_row.setdefault(free, set()).update(metrics)
    common = set.intersection(*metrics_of_row.values())
    random = RANDOM if RANDOM in rows else None
    oracles = dict.fromkeys(sorted(common), ORACLE) if random and ORACLE in rows else {}
    perfect = IDENTITY if IDENTITY in rows else None
    return compare(rows, random=random, oracles=oracles, perfect=perfect)


# For each kind of figure: its tables, its alternative text, and the function that draws it


def _of_systems(comparison: Comparison) -> tuple[Any, ...]:
    bars = "" if comparison.signature["random"] is None else " Below, bars of the change from random in per cent."
    alt = f"Forest plot: mean score and 95 % interval of {comparison.summary()}.{bars}"
    return layout(comparison), alt, draw


def _of_chance(expectation: Expectation) -> tuple[Any, ...]:
    names = [name for name in expectation.table.column_names if name not in ("query_id", "n")]
    cells = [entry(f"{expectation.table[name].to_numpy().mean():z.4f}") for name in names]
    title = f"Scores of a test report with all reports, mean over {expectation.table.num_rows:,} test reports"
    table = PaperTable(title, names, [(str(expectation.signature["metric"]), cells)])
    return [table], f"Histogram of the scores of {expectation.counts.sum():,} pairs, and their mean.", draw_histogram


def _of_alignment(alignment: Alignment) -> tuple[Any, ...]:
    alt = f"Scatter plots of counted errors against scores, with a line of least squares: {alignment.summary()}."
    return alignment_tables(alignment), alt, draw_alignment


def _of_modes(modes: FailureModes) -> tuple[Any, ...]:
    alt = f"Bars of mean errors by category and candidate type, with a star over differences: {modes.summary()}."
    return [*mean_tables(modes), significant_table(modes)], alt, draw_failure_modes
