"""Sections of pages and the report: pools of judges, random retrieval, agreement with radiologists."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from metric_oracle.base.errors import MetricOracleError
from metric_oracle.explorer.cases import Cases
from metric_oracle.findings.figures import picture
from metric_oracle.findings.printed_tables import PaperTable, entry
from metric_oracle.findings.results import Results, bound_under
from metric_oracle.findings.views import pool_lines
from metric_oracle.raters.alignment import Alignment, align
from metric_oracle.raters.failure_modes import FailureModes, failure_modes
from metric_oracle.scores.expectation import Expectation
from metric_oracle.tables.systems import is_oracle, name_of_results


@dataclass(frozen=True)
class PageSection:
    """One figure with tables of its numbers, or only lines."""

    key: str  # name in the figure's address, such as "align"
    title: str
    tables: list[PaperTable] = field(default_factory=list)
    alt: str = ""  # alternative text of the figure; its numbers are in the tables
    svg: bytes = b""  # the figure; empty if it could not be drawn
    lines: list[str] = field(default_factory=list)  # what stands above, such as why the figure is missing

    @property
    def source(self) -> str:
        """The figure as a data URL."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


def sections(cases: Cases) -> list[PageSection]:
    """Return the pools in the files, and the figures of random retrieval and of the ratings.

    A figure that cannot be drawn says why.
    """
    parts, section = pools(cases), partial(_section, cases.say)
    for number, file in enumerate(file for file in cases.files if isinstance(file, Expectation)):
        metric = file.signature["metric"]
        parts.append(section(f"chance-{number + 1}", f"Chance under {metric}", lambda file=file: file, _of_chance))  # type: ignore[misc]
    rated = cases.rated
    if rated is not None:
        ratings, scores = rated.ratings, rated.scores
        parts.append(section("align", "Agreement with radiologists", lambda: align(ratings, scores), _of_alignment))
        parts.append(section("failure-modes", "Failure modes", lambda: failure_modes(ratings), _of_modes))
    return parts


def pools(cases: Cases) -> list[PageSection]:
    """Return what the files of reranked pools say of the oracle under their judge."""
    parts: list[PageSection] = []
    for file in cases.files:
        if isinstance(file, Results) and "judge" in file.signature:
            bound = f"{bound_under(file.signature['judge'])}, as reports outside the pool were not scored"
            lines = [*([] if is_oracle(file.signature) else [bound]), *pool_lines(file)]
            parts.append(
                PageSection(f"pool-{len(parts) + 1}", name_of_results(file.signature), lines=["; ".join(lines)])
            )
    return parts


def _section(
    say: Callable[[MetricOracleError], str],
    key: str,
    title: str,
    make: Callable[[], Any],
    show: Callable[[Any], tuple[list[PaperTable], str]],
) -> PageSection:
    """Return the section of the finding that `make` computes; `show` returns its tables and the text of its figure.

    The message of an error of this package, which `say` writes, becomes a line of the section, in the place of the
    figure or of everything.
    """
    try:
        finding = make()
        tables, alt = show(finding)
    except MetricOracleError as error:
        return PageSection(key, title, lines=[say(error)])
    try:
        return PageSection(key, title, tables, alt, picture(finding.figure(), "svg"))
    except MetricOracleError as error:
        return PageSection(key, title, tables, lines=[say(error)])


# For each kind of finding: its tables, and the alternative text of its figure


def _of_chance(expectation: Expectation) -> tuple[list[PaperTable], str]:
    names = [name for name in expectation.table.column_names if name not in ("query_id", "n")]
    cells = [entry(f"{expectation.table[name].to_numpy().mean():z.4f}") for name in names]
    title = f"Scores of a test report with all reports, mean over {expectation.table.num_rows:,} test reports"
    sample = expectation.sample
    if sample:
        title += f", estimated from {expectation.signature['sampled']['rows']:,} random ones each"
    table = PaperTable(title, names, [(str(expectation.signature["metric"]), cells)], [sample] if sample else [])
    return [table], f"Histogram of the scores of {expectation.counts.sum():,} pairs, and their mean."


def _of_alignment(alignment: Alignment) -> tuple[list[PaperTable], str]:
    alt = f"Scatter plots of counted errors against scores, with a line of least squares: {alignment.summary()}."
    return alignment.tables(), alt


def _of_modes(modes: FailureModes) -> tuple[list[PaperTable], str]:
    alt = f"Bars of mean errors by category and candidate type, with a star over differences: {modes.summary()}."
    return modes.brief(), alt
