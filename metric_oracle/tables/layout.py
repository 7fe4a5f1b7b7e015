"""What the printed table and the figure of a comparison show: style, digits, rows and columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_doc import Doc
from annotated_types import Interval

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.declarations import PRINTED, Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.validation import Checked
from metric_oracle.metrics import find_metric
from metric_oracle.tables.systems import BASELINES, oracle_name
from metric_oracle.tables.table_cells import MetricColumn, title

PAPER, FULL = "paper", "full"
BELOW, BESIDE, NONE = "below", "beside", "none"


@dataclass(frozen=True)
class Layout(Checked, call="layout=mo.Layout({})"):
    """What a printed table of systems shows. Files of numbers (``.csv``, ``.parquet``, ``.jsonl``) have everything.

    Examples
    --------
    >>> scores = {name: mo.score("test.csv", f"{name}.csv", "bleu,rouge-l") for name in ("strong", "fair", "weak")}
    >>> mo.compare(scores, layout=mo.Layout(digits=2, rows=["strong", "weak"])).write("paper.tex")
    """

    style: Annotated[
        Literal["paper", "full"] | None,
        Doc(
            "Style of the printed table: {}. paper is one table as papers have it, with a line for each system; full "
            "has ranges, and in further tables changes from random retrieval and tests. By default paper in .tex "
            "files, and wherever another option of the table for a paper is given; otherwise full."
        ),
        Flag(panel=PRINTED),
    ] = None
    digits: Annotated[
        Annotated[int, Interval(ge=1, le=9)] | None,
        Doc("Decimal places of scores in the table for a paper; of percentages two fewer. By default 3."),
        Flag(panel=PRINTED),
    ] = None
    percent: Annotated[
        Sequence[str],
        Doc("Metrics whose scores are printed times 100 in the table for a paper. By default none are."),
        Flag(metavar="METRIC", panel=PRINTED),
    ] = ()
    intervals: Annotated[
        Literal["below", "beside", "none"] | None,
        Doc(
            "Where the table for a paper has the intervals: {}. below is a line in small type below the score, beside "
            "a column of their own. By default below."
        ),
        Flag(panel=PRINTED),
    ] = None
    rows: Annotated[
        Sequence[str],
        Doc(
            "Systems in the table for a paper and in the figure, in this order; oracles and baselines come last. By "
            "default all."
        ),
        Flag(panel=PRINTED),
    ] = ()
    columns: Annotated[
        Sequence[str],
        Doc("Metrics in the table for a paper and in the figure, in this order. By default all."),
        Flag(metavar="METRIC", panel=PRINTED),
    ] = ()
    without: Annotated[
        Sequence[str],
        Doc("Systems that the table for a paper and the figure leave out, such as identity. By default none."),
        Flag(panel=PRINTED),
    ] = ()

    def __post_init__(self) -> None:
        if self.style == FULL:
            check_left_out(_of_paper(self), 'with style "full"')


def _of_paper(layout: Layout) -> dict[str, object]:
    """Return the given options that only the table for a paper has, by name."""
    return {name: value for name, value in vars(layout).items() if name != "style" and value}


def is_for_paper(layout: Layout, form: str) -> bool:
    """Return whether the table for a paper is printed in a form, "md" or "tex", or on a terminal, ""."""
    return layout.style == PAPER or (layout.style is None and (form == "tex" or bool(_of_paper(layout))))


ShownAs = Annotated[
    Layout,
    Doc(
        "What the printed table and the figure show, see [`Layout`][metric_oracle.Layout]. By default all rows and "
        "columns."
    ),
]


@dataclass(frozen=True)
class Chosen:
    """The rows and columns that a table for a paper and a figure show."""

    models: list[str]  # systems that compete
    yardsticks: list[str]  # oracles and baselines
    columns: list[MetricColumn]
    percent: frozenset[str]  # names of the columns that are printed times 100
    names: Mapping[str, str]  # how a paper names oracles and baselines

    @property
    def systems(self) -> list[str]:
        """All rows, from top to bottom."""
        return [*self.models, *self.yardsticks]


def chosen(
    layout: Layout,
    systems: Sequence[str],
    columns: Sequence[MetricColumn],
    competing: Sequence[str],
) -> Chosen:
    """Return what a layout shows of a table; raise InputError for a name that the table lacks, and if nothing is left.

    `systems`, `columns` and those `competing` for the best mean are all of the table, in its order.
    """
    rows = _named("rows", layout.rows, systems, "systems", str) or [*systems]
    without = _named("without", layout.without, systems, "systems", str)
    rows = [name for name in rows if name not in without]
    if not rows:
        raise InputError("without", "must leave a system", "every row", "Leave fewer out.")
    names = [column.metric for column in columns]
    of_name = {column.metric: column for column in columns}
    order = _named("columns", layout.columns, names, "metrics", _metric) or names
    percent = _named("percent", layout.percent, names, "metrics", _metric)
    models = [name for name in rows if name in competing]
    yardsticks = [name for name in rows if name not in competing]
    shown_as = {oracle_name(name): oracle_name(title(name)) for name in names}
    shown_as |= {name: name.capitalize() for name in BASELINES}
    return Chosen(models, yardsticks, [of_name[name] for name in order], frozenset(percent), shown_as)


def _named(
    argument: str, given: Sequence[str], known: Sequence[str], what: str, full: Callable[[str], str]
) -> list[str]:
    """Return the given names in full; raise InputError for one that the table does not have, or that comes twice."""
    names = [name if name in known else full(name) for name in given]
    for place, name in enumerate(names):
        if name not in known:
            step = f"Name {what} of the table, or leave `{argument}` out."
            raise InputError(argument, f"must name {what} of the table, {shown(*known)}", shown(name), step)
        if name in names[:place]:
            raise InputError(argument, "must have each name once", f"{shown(name)} twice", "Leave one out.")
    return names


def _metric(name: str) -> str:
    """Return the full name of a metric, such as bleu-2 for bleu; another name stays as it is."""
    metric = find_metric(name)
    return name if metric is None else metric.name


def head(column: MetricColumn, is_percent: bool) -> str:
    """Return the head of a column: the name of its metric, the unit and the arrow of its direction."""
    return column.label.replace(title(column.metric), f"{title(column.metric)} (%)", 1) if is_percent else column.label
