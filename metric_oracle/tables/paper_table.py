"""The table of a comparison as a paper prints it: a line for each system, oracles and baselines below a rule."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from metric_oracle.findings.cells import number
from metric_oracle.findings.printed_tables import Entry, PaperTable, Print, plain
from metric_oracle.statistics import difference
from metric_oracle.tables.layout import BELOW, BESIDE, NONE, Chosen, Layout, head
from metric_oracle.tables.table_cells import Cell, Difference, MetricColumn, title

ALIKE = "≈"  # not different from the best
_DIGITS = 3
_LIMIT = 0.05  # of the p-value of a difference


@dataclass(frozen=True)
class PaperTables:
    """What makes the table for a paper of a comparison."""

    layout: Layout
    chosen: Chosen
    cells: Mapping[tuple[str, str], Cell]  # by system and metric
    tests: Sequence[Difference]
    studies: int  # of each system, with those that it cannot score
    interval: str  # what the intervals are, such as "95% confidence intervals"
    bounds: Sequence[str]  # a sentence on each row that is a bound of an oracle

    def table(self, notes: Iterable[str]) -> PaperTable:
        """Return the table; `notes` are for who writes the paper."""
        where, names = self.layout.intervals or BELOW, self.chosen.names
        heads = [head(column, column.metric in self.chosen.percent) for column in self.chosen.columns]
        columns = [self._column(column, with_interval=where != NONE) for column in self.chosen.columns]
        rows = [
            (plain(names.get(name, name)), list(cells))
            for name, *cells in zip(self.chosen.systems, *columns, strict=True)
        ]
        rule = len(self.chosen.models)
        how = Print([*self._legend(where)], rule, beside=where == BESIDE)
        return PaperTable(self._title(), heads, rows, [*notes], print=how)

    def _column(self, column: MetricColumn, *, with_interval: bool) -> list[Entry]:
        """Return the cells of a column, one for each system, in the order of the rows."""
        metric, is_percent = column.metric, column.metric in self.chosen.percent
        scale, digits = (100, -2) if is_percent else (1, 0)
        form = f"z.{max(0, (self.layout.digits or _DIGITS) + digits)}f"
        best, second, alike = self._marks[metric]
        entries = []
        for name in self.chosen.systems:
            cell = self.cells[name, metric]
            lines = [number(cell.mean, form, scale=scale)]
            if with_interval and not cell.interval.degenerate:
                low, high = (number(end, form, scale=scale) for end in cell.interval[:2])
                lines.append(f"[{low}, {high}]")
            mark = ALIKE if name in alike else ""
            entries.append(Entry(tuple(lines), name in best, name in second, mark))
        return entries

    @cached_property
    def _marks(self) -> dict[str, tuple[list[str], list[str], list[str]]]:
        """The systems that are marked in each column, by its metric, see `_marked`."""
        return {column.metric: self._marked(column) for column in self.chosen.columns}

    def _marked(self, column: MetricColumn) -> tuple[list[str], list[str], list[str]]:
        """Return which systems have the best and the second-best mean, and which are not different from the best.

        Only those that compete are marked, and only where there are two. If several are the best, none is the second.
        """
        models = self.chosen.models
        if len(models) < 2:
            return [], [], []
        of = {name: column.sign * self.cells[name, column.metric].mean for name in models}
        best = _greatest(of)
        rest = {name: mean for name, mean in of.items() if name not in best}
        second = _greatest(rest) if len(best) == 1 else []
        p_values = [self._p_values(column, name, best) for name in rest]
        alike = [name for name, p in zip(rest, p_values, strict=True) if any(value > _LIMIT for value in p)]
        return best, second, alike

    def _p_values(self, column: MetricColumn, name: str, others: Sequence[str]) -> list[float]:
        """Return the adjusted p-values of the tests of a system with others in a column, as far as there are any."""
        return [
            test.p_adjusted
            for test in self.tests
            if test.metric == column.metric and any({test.a, test.b} == {name, other} for other in others)
        ]

    def _title(self) -> str:
        """Return what the table shows, and on how many studies."""
        columns = self.chosen.columns
        most = max(column.n for column in columns)
        fewer = [f"{title(column.metric)} on {column.n:,}" for column in columns if column.n < most]
        unscored = f" of {self.studies:,}" if most < self.studies else ""
        but = f" ({', '.join(fewer)})" if fewer else ""
        return f"Average scores on {most:,}{unscored} studies{but}"

    def _legend(self, where: str) -> Iterable[str]:
        """Yield the sentences of the caption behind the title."""
        if where != NONE:
            yield f"{'Below' if where == BELOW else 'Beside'} the scores: {self.interval}."
        marks = self._marks.values()
        if any(best for best, _, _ in marks):
            parts = ["Bold: best"]
            parts += ["underlined: second best"] if any(second for _, second, _ in marks) else []
            yield f"{', '.join(parts)}."
        if any(alike for _, _, alike in marks):
            yield f"{ALIKE}: not different from the best (paired test, adjusted p above {_LIMIT})."
            untested = self._untested()
            if untested:
                yield f"Not tested against the best of each column: {', '.join(map(plain, untested))}."
        if self.chosen.models and self.chosen.yardsticks:
            yield "Oracles and baselines come last and do not compete."
        yield from self.bounds

    def _untested(self) -> list[str]:
        """Return the systems that no test compares with the best of some column."""
        found = dict.fromkeys(
            name
            for column in self.chosen.columns
            for name in self.chosen.models
            if name not in (best := self._marks[column.metric][0]) and not self._p_values(column, name, best)
        )
        return [*found]


def _greatest(means: Mapping[str, float]) -> list[str]:
    """Return the names with the greatest mean; means that differ by rounding are equal."""
    greatest = max(means.values())
    return [name for name, mean in means.items() if difference(mean, greatest) == 0]
