"""Scores of several systems -> their table: means over the same studies, with intervals, changes and tests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import IN_PYTHON, Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.option_types import LEGACY
from metric_oracle.base.progress import Progress, silent
from metric_oracle.base.validation import public
from metric_oracle.findings.results import Scores
from metric_oracle.findings.signature import signed
from metric_oracle.metrics import get_metric, is_higher_better
from metric_oracle.statistics import (
    LEGACY_SAMPLE,
    LEVEL,
    Resampled,
    adjusted,
    check_method,
    difference,
    effective_studies,
    n_resamples,
    overlap,
    resample_means,
)
from metric_oracle.tables.comparison import Comparison
from metric_oracle.tables.layout import Layout, ShownAs, chosen
from metric_oracle.tables.systems import (
    GivenResults,
    aligned,
    aligned_counts,
    check_signatures,
    common_metrics,
    is_yardstick,
    read_system,
)
from metric_oracle.tables.table_cells import (
    CORPUS,
    CRG,
    Cell,
    Difference,
    MetricCells,
    MetricColumn,
    Resampling,
    corpus_means,
    crg_means,
)


@public
def compare(
    systems: Annotated[
        Mapping[str, GivenResults | Sequence[GivenResults]],
        Doc(
            "Rows of the table, by name: scores or results, or the file of them, which [`score`][metric_oracle.score], "
            "[`retrieve`][metric_oracle.retrieve] or [`rerank`][metric_oracle.rerank] (the best report of each study "
            "counts), [`baseline`][metric_oracle.baseline] (several random draws count with their mean per study) or "
            "[`best_of`][metric_oracle.best_of] (the best scores) made. Several of one name are one row, whose metrics "
            "are in several files. On the command line, the folder of a study alone stands for all of its rows."
        ),
        Flag(metavar="[NAME=]FILE"),
    ],
    *,
    random: Annotated[
        str | None,
        Doc(
            "Name of the row of random retrieval. The table then shows by how many percent of its mean each other mean "
            "is better. By default it does not."
        ),
    ] = None,
    oracles: Annotated[
        Mapping[str, str] | None,
        Doc(
            "Metric, and the name of the row of its oracle. The table then shows which share of the way from random "
            "retrieval to this oracle each row covers. Needs `random`."
        ),
        Flag("--oracle", metavar="METRIC=NAME"),
    ] = None,
    perfect: Annotated[
        str | None,
        Doc(
            "Name of the row of perfect answers. It does not compete for the best mean, and neither do `random`, the "
            "oracles, and rows whose file was made by an oracle or a baseline."
        ),
        IN_PYTHON,
    ] = None,
    paired: Annotated[
        Sequence[tuple[str, str]],
        Doc(
            "Names of two rows of the table whose difference is tested on the same studies. By default none is tested."
        ),
        Flag(metavar="A,B"),
    ] = (),
    method: option_types.IntervalMethod = "bca",
    resamples: option_types.Resamples | None = None,
    seed: option_types.Seed = 0,
    layout: ShownAs | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare the scores of several systems in one table: means, 95 % intervals and ranges, as in Yu et al.

    A mean is over the studies that all systems can score under the metric, so all numbers of a column are about the
    same studies; the table has their number, and the number that each system cannot score. All systems must have equal
    signatures and references.

    Returns
    -------
    Comparison
        Means, intervals, changes and tests, with the signature. It has a table in a notebook, `to_pandas`, `to_polars`
        and `write`.

    Raises
    ------
    InputError
        If the systems have different signatures, references, studies or no common metric; an id occurs twice; or fewer
        than two studies are left under every metric.

    Notes
    -----
    With the method ``legacy-yu2023`` the resamples are those of the paired tests. See also
    [`interval`][metric_oracle.interval].

    Examples
    --------
    >>> systems = {name: mo.score("test.csv", f"{name}.csv", "bleu") for name in ("strong", "weak")}
    >>> mo.compare(systems, paired=[("strong", "weak")], resamples=1000)
    <Comparison: 2 systems, 24 studies: bleu-2>
    """
    if not systems:
        raise InputError(
            "systems",
            "must have at least one name with scores",
            "none",
            "Write files of scores with `mo.score`.",
        )
    check_method(method, None if paired else resamples)
    scores = {name: read_system(name, system) for name, system in systems.items()}
    names = list(scores)
    oracle_of = _oracles(oracles or {}, scores)
    _check_rows(names, random, oracle_of, paired)
    metrics, left_out = common_metrics(scores, oracle_of)
    check_signatures(scores, metrics)
    values, counts = aligned(scores, metrics)
    too_few = _too_few(names, values)
    used = [metric for metric in metrics if metric not in too_few]
    layout = layout or Layout()
    compared = _Compared(scores, values, counts, Resampling(method, n_resamples(resamples), seed))
    apart = {random, perfect, *oracle_of.values()}
    competing = [name for name, system in scores.items() if name not in apart and not is_yardstick(system)]

    step, done, total = silent if progress is None else progress, count(), len(used) * (1 + len(paired))
    columns: list[MetricColumn] = []
    cells: dict[tuple[str, str], Cell] = {}
    tests: list[Difference] = []
    for metric in used:
        step(metric, next(done), total)
        for resampled in compared.columns(metric):
            column = resampled.column
            of_column = resampled.cells(random, oracle_of, competing)
            columns.append(column)
            cells |= {(name, column.metric): cell for name, cell in of_column.items()}
            for a, b in paired:
                if column.metric == metric:
                    step(f"{a} against {b}, {metric}", next(done), total)
                tests.append(_tested(resampled, of_column, a, b))
    chosen(layout, names, columns, competing)  # an unknown name is an error here, not when a file is written
    p_adjusted = adjusted([test.p_value for test in tests]) if tests else []
    return Comparison(
        names,
        columns,
        cells,
        [replace(test, p_adjusted=p) for test, p in zip(tests, p_adjusted, strict=True)],
        compared.first.table.num_rows,
        {name: int(n) for name, n in compared.noted("distinct_texts").items() if n is not None},
        left_out,
        too_few,
        {name: _averaged_over(averaged) for name, averaged in compared.noted("averaged").items()},
        competing,
        [name for name in names if counts[name] is None] if CRG in used else [],
        compared.signature(used, random, oracle_of, paired, len(tests)),
        layout,
    )


@dataclass(frozen=True)
class _Compared:
    """The scores of the systems, and how they are resampled."""

    scores: Mapping[str, Scores]  # by system, in the order of the table
    values: Mapping[str, np.ndarray]  # by metric, float64[systems, studies], NaN where a system cannot score the study
    counts: Mapping[str, np.ndarray | None]  # by system, CRG's counts of all studies, float64[3, studies], or None
    resampling: Resampling

    @property
    def first(self) -> Scores:
        """The scores of the first system: whatever systems share is read from them."""
        return next(iter(self.scores.values()))

    def noted(self, name: str) -> dict[str, Any]:
        """Return the entry `name` of the signature of each system that has it."""
        return {system: of.signature[name] for system, of in self.scores.items() if name in of.signature}

    def columns(self, metric: str) -> Iterator[MetricCells]:
        """Yield the columns of a metric: the mean over the reports and, if BLEU has counts, the BLEU of the corpus."""
        matrix = self.values[metric]
        complete = ~np.isnan(matrix).any(axis=0)
        row = dict(zip(self.scores, matrix[:, complete], strict=True))
        is_higher = is_higher_better(self.first.signature["metrics"][metric], metric)
        ranges = {name: averaged["ranges"].get(metric) for name, averaged in self.noted("averaged").items()}
        unscorable = dict(zip(self.scores, np.isnan(matrix).sum(axis=1).tolist(), strict=True))
        column = MetricColumn(metric, is_higher, int(complete.sum()))
        cells = MetricCells(column, row, self._means(metric, row, complete), self.resampling, ranges, unscorable)
        yield cells
        of_reports = None if self.resampling.method == LEGACY else aligned_counts(self.scores, metric, complete)
        if of_reports is not None:  # in addition to the mean over reports, corpus BLEU as pycocoevalcap prints it
            means = corpus_means([*of_reports.values()], self.resampling)
            yield replace(cells, column=replace(column, metric=f"{metric}{CORPUS}"), means=means)

    def _means(self, metric: str, row: Mapping[str, np.ndarray], complete: np.ndarray) -> Resampled:
        """Return the means of the systems under a metric, resampled together; under CRG, their CRG.

        `complete`, bool[studies], marks the studies that every system can score; `row` has their scores by system.
        """
        if metric != CRG:
            return resample_means(np.array([*row.values()]), self.resampling.resamples, self.resampling.seed)
        entries = {name: system.signature["metrics"][metric].get("prevalence") for name, system in self.scores.items()}
        of_complete = {name: None if of is None else of[:, complete] for name, of in self.counts.items()}
        return crg_means(row, entries, of_complete, self.resampling)

    def signature(
        self,
        metrics: Sequence[str],
        random: str | None,
        oracles: Mapping[str, str],
        paired: Sequence[tuple[str, str]],
        n_tests: int,
    ) -> dict[str, Any]:
        """Return what is needed to compute the same table again."""
        first, how = self.first.signature, self.resampling
        whole = {
            metric: sets for metric in metrics if (sets := _of_whole_sets(self.scores, metric, self.values[metric]))
        }
        sampled = {name: of["sampled"] for name, of in self.noted("averaged").items() if "sampled" in of}
        sections, pools, foreign = (self.noted(name) for name in ("section", "pool", "foreign"))
        size = LEGACY_SAMPLE if how.method == LEGACY else how.resamples
        return signed(
            kind="table",
            systems={name: system.signature.get("system") for name, system in self.scores.items()},
            metrics={metric: first["metrics"][metric] for metric in metrics},
            references=first.get("references"),
            **({"section": next(iter(sections.values()))} if sections else {}),
            **({"of_whole_sets": whole} if whole else {}),
            **({"sampled": sampled} if sampled else {}),
            **({"pools": pools} if pools else {}),
            scores_version=first.get("version"),
            interval={"method": how.method, "level": LEVEL, "resamples": size, "seed": how.seed},
            random=random,
            oracles=oracles,
            paired=[list(pair) for pair in paired],
            **({"foreign": foreign} if foreign else {}),
            **({"test": {"name": "permutation", "resamples": how.resamples, "seed": how.seed}} if paired else {}),
            **({"adjusted_over": n_tests} if paired else {}),
        )


def _oracles(row_of: Mapping[str, str], scores: Mapping[str, Scores]) -> dict[str, str]:
    """Return metric -> row of its oracle, with the names of columns; raise InputError if a metric occurs twice."""
    columns_of = next(iter(scores.values())).signature.get("metrics", ())  # also of judges and other tools
    oracles = {metric if metric in columns_of else get_metric(metric).name: row for metric, row in row_of.items()}
    if len(oracles) < len(row_of):
        raise InputError("oracles", "must name each metric once", ", ".join(row_of), "Keep one row for each.")
    return oracles


def _tested(column: MetricCells, cells: Mapping[str, Cell], a: str, b: str) -> Difference:
    """Return the test of two systems in one column, whose cells are given; its p-value is not yet adjusted."""
    test = column.difference(a, b)
    is_overlap = overlap(cells[a].interval, cells[b].interval)
    n_effective = effective_studies(difference(column.row[a], column.row[b]))
    return Difference(a, b, column.column.metric, *test, test.p_value, is_overlap, n_effective)


def _averaged_over(averaged: Mapping[str, Any]) -> str:
    """Return a phrase on what the scores of a system are means over, from the entry ``averaged`` of its signature."""
    sampled = averaged.get("sampled", {})
    estimates = [
        f"under {metric} an estimate from {entry['rows']:,} of them for each test report "
        f"(standard error of the average {_error_of(entry)}, seed {entry['seed']})"
        for metric, entry in sampled.items()
    ]
    return ", ".join([str(averaged["over"]), *estimates])


def _error_of(entry: Mapping[str, Any]) -> str:
    """Return the standard error of a sample as text; it is not known where all scores are equal."""
    return f"{entry['standard_error']:.1g}" if entry["standard_error"] else "not known, as scores are equal"


def _of_whole_sets(scores: Mapping[str, Scores], metric: str, values: np.ndarray) -> dict[str, float]:
    """Return, by system, the value that another program gave for its whole set of reports; empty if one is left out.

    A report is left out where `values`, float64[systems, studies], has a NaN.
    """
    if np.isnan(values).any():
        return {}
    noted = {name: system.signature.get("noted", {}).get(metric, {}).get("corpus") for name, system in scores.items()}
    return {name: value for name, value in noted.items() if value is not None}


def _too_few(names: list[str], values: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return, for metrics with fewer than two studies that every system can score, the number of these studies.

    `values` has float64[systems, studies] for each metric, NaN for unscorable studies, systems in the order of `names`.
    Raise InputError if no other metric is left.
    """
    n = {metric: int((~np.isnan(matrix).any(axis=0)).sum()) for metric, matrix in values.items()}
    if max(n.values()) < 2:
        metric, matrix = next(iter(values.items()))
        unscorable = np.isnan(matrix).sum(axis=1)
        text = ", ".join(f"{name} {count}" for name, count in zip(names, unscorable, strict=True) if count)
        raise InputError(
            f"{metric} has {n[metric]} of {matrix.shape[1]} studies that every system can score (unscorable: {text}), "
            "and needs 2.",
            "Score without this metric, or leave a system out.",
        )
    return {metric: count for metric, count in n.items() if count < 2}


def _check_rows(
    names: list[str], random: str | None, oracles: Mapping[str, str], paired: Sequence[tuple[str, str]]
) -> None:
    """Raise InputError unless `random`, `oracles` and `paired` name rows of the table.

    `oracles` also need `random`, and each pair must have two different rows and occur once.
    """
    named = {"random": [random] if random is not None else [], "oracles": [*oracles.values()]}
    named["paired"] = [name for pair in paired for name in pair]
    for argument, rows in named.items():
        for row in rows:
            if row not in names:
                step = "Correct the name, or add a system of that name to the table."
                raise InputError(argument, f"must name systems of the table, {shown(*names)}", shown(row), step)
    for a, b in paired:
        if a == b:
            raise InputError("paired", "must name two systems", f"{shown(a)} twice", "Name another one.")
    if len({frozenset(pair) for pair in paired}) < len(paired):
        raise InputError("`paired` names a pair twice.", "Name it once: a repeated test changes the adjusted p-values.")
    if oracles and random is None:
        raise InputError(
            "`oracles` need the row of random reports, at which the share of the way to the oracle begins.",
            "Name it with `random=NAME`.",
        )
