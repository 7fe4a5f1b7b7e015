"""Figures and the tables that say the same: of systems, of chance, of radiologists; for pages and for the report."""

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
    """One figure with what it shows in numbers.

    Attributes
    ----------
    key : str
        Of its address.
    title : str
    tables : list of PaperTable
    alt : str
        What the picture is, for those who do not see it; the numbers are in the tables.
    svg : bytes
        Empty where it could not be drawn.
    lines : list of str
        Why something is lacking.
    """

    key: str
    title: str
    tables: list[PaperTable] = field(default_factory=list)
    alt: str = ""
    svg: bytes = b""
    lines: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The picture as an address that holds it."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


def sections(cases: Cases) -> list[Section]:
    """Return what the files, and the ratings where there are some, can be drawn of."""
    found = []
    if any(not isinstance(file, Expectation) for file in cases.files):
        found.append(_section("table", "Systems", lambda: compared(cases), _of_systems))
    for number, file in enumerate(file for file in cases.files if isinstance(file, Expectation)):
        metric = file.signature["metric"]
        found.append(_section(f"chance-{number + 1}", f"Chance under {metric}", lambda file=file: file, _of_chance))  # type: ignore[misc]
    rated = cases.rated
    if rated is not None:
        ratings, scores = rated.ratings, rated.scores
        found.append(_section("align", "Agreement with radiologists", lambda: align(ratings, scores), _of_alignment))
        found.append(_section("failure-modes", "Failure modes", lambda: failure_modes(ratings), _of_modes))
    return found


def _section(key: str, title: str, make: Callable[[], Any], show: Callable[[Any], tuple[Any, ...]]) -> Section:
    """Return a section; where its numbers or its picture cannot be made, why."""
    try:
        tables, alt, draw = show(made := make())
    except MetricOracleError as error:
        return Section(key, title, lines=[str(error)])
    try:
        return Section(key, title, tables, alt, picture(draw(made), "svg"))
    except MetricOracleError as error:
        return Section(key, title, tables, lines=[str(error)])


def compared(cases: Cases) -> Comparison:
    """Return the table of all files: the oracles of several metrics are one row, and so are other files of a name."""
    rows: dict[str, list[Given]] = {}
    held: dict[str, set[str]] = {}
    for file in cases.files:
        if isinstance(file, Expectation):
            continue
        is_scores = isinstance(file, Scores)
        name = str(file.signature.get("system") if is_scores else file.signature.get("baseline") or ORACLE)
        metrics = set(file.signature["metrics"]) if is_scores else {str(file.signature.get("metric"))}
        number, free = 1, name
        while held.get(free, set()) & metrics:
            number += 1
            free = f"{name} ({number})"
        rows.setdefault(free, []).append(file)
        held.setdefault(free, set()).update(metrics)
    common = set.intersection(*held.values())
    random = RANDOM if RANDOM in rows else None
    oracles = dict.fromkeys(sorted(common), ORACLE) if random and ORACLE in rows else {}
    perfect = IDENTITY if IDENTITY in rows else None
    return compare(rows, random=random, oracles=oracles, perfect=perfect)


# What each shows: tables, words for the picture, and how it is drawn


def _of_systems(found: Comparison) -> tuple[Any, ...]:
    bars = "" if found.signature["random"] is None else " Below, bars of the change from random in per cent."
    alt = f"Forest plot: mean score and 95 % interval of {found.summary()}.{bars}"
    return layout(found), alt, draw


def _of_chance(found: Expectation) -> tuple[Any, ...]:
    names = [name for name in found.table.column_names if name not in ("query_id", "n")]
    cells = [entry(f"{found.table[name].to_numpy().mean():z.4f}") for name in names]
    title = f"Scores of a test report with all reports, mean over {found.table.num_rows:,} test reports"
    table = PaperTable(title, names, [(str(found.signature["metric"]), cells)])
    return [table], f"Histogram of the scores of {found.counts.sum():,} pairs, and their mean.", draw_histogram


def _of_alignment(found: Alignment) -> tuple[Any, ...]:
    alt = f"Scatter plots of counted errors against scores, with a line of least squares: {found.summary()}."
    return alignment_tables(found), alt, draw_alignment


def _of_modes(found: FailureModes) -> tuple[Any, ...]:
    alt = f"Bars of mean errors by category and candidate type, with a star over differences: {found.summary()}."
    return [*mean_tables(found), significant_table(found)], alt, draw_failure_modes
