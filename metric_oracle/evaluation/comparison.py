"""Systems x metrics: means over the same studies with intervals, against random retrieval and the metric-oracles."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError
from metric_oracle.evaluation.statistics import (
    LEGACY,
    LEGACY_SAMPLE,
    RESAMPLES,
    Interval,
    Paired,
    adjusted,
    interval,
    overlap,
)
from metric_oracle.evaluation.statistics import paired as paired_test
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.results import Scores, read_scores

LEVEL = 0.95


@dataclass(frozen=True)
class Column:
    """One metric of a table; `n` studies, those that every system can score."""

    metric: str
    higher_is_better: bool
    n: int


@dataclass(frozen=True)
class Cell:
    """One system under one metric.

    Attributes
    ----------
    mean, minimum, maximum : float
        Over the column's studies.
    interval : Interval
        Of the mean.
    unscorable : int
        Studies that this system could not score.
    best : bool
        Whether no system has a better mean; those of oracles and of perfect answers do not count, unless only random is
        beside them.
    percent_change : float or None
        Change of the mean from random's in per cent of it, as in figure 5 of Yu et al.: positive is better; where lower
        is better, the decrease. None without a random row, and where its mean is not above 0.
    share : float or None
        Part of the way from the mean of random to the mean of the metric's oracle; None without these rows.
    """

    mean: float
    interval: Interval
    minimum: float
    maximum: float
    unscorable: int
    best: bool
    percent_change: float | None
    share: float | None


@dataclass(frozen=True)
class Difference:
    """Paired comparison of two systems under one metric.

    Attributes
    ----------
    a, b, metric : str
    difference : float
        Mean of a - b over the column's studies.
    interval : Interval
        BCa interval of it.
    p_value, p_adjusted : float
        Of the permutation test; adjusted over all differences of the table (Benjamini and Hochberg).
    overlap : bool
        Whether the two systems' intervals overlap: the rule of Yu et al. calls them different where they do not.
    """

    a: str
    b: str
    metric: str
    difference: float
    interval: Interval
    p_value: float
    p_adjusted: float
    overlap: bool


@dataclass(frozen=True)
class Comparison:
    """A table of systems and metrics.

    Attributes
    ----------
    systems : list of str
        Rows, in the order given.
    columns : list of Column
        Metrics that all systems have, in the order of the first system.
    cells : dict
        (system, metric) -> Cell.
    differences : list of Difference
    studies : int
        Studies of every system, those with unscorable values included.
    distinct_texts : dict
        System -> number of distinct texts, where its file says it.
    left_out : dict
        System -> metrics that not all systems have.
    signature : dict
        What is needed to compute the same table again.
    """

    systems: list[str]
    columns: list[Column]
    cells: dict[tuple[str, str], Cell]
    differences: list[Difference]
    studies: int
    distinct_texts: dict[str, int]
    left_out: dict[str, list[str]]
    signature: dict[str, Any]

    def records(self) -> list[dict[str, Any]]:
        """Return one flat record for each system and metric, then one for each difference, at full precision.

        In the record of a difference `versus` names the second system and `mean` is the mean difference.
        """
        records = []
        for column in self.columns:
            direction = "higher" if column.higher_is_better else "lower"
            for system in self.systems:
                cell = self.cells[system, column.metric]
                records.append(
                    _record(system, None, column.metric, direction, column.n, cell.mean, cell.interval)
                    | {
                        "minimum": cell.minimum,
                        "maximum": cell.maximum,
                        "unscorable": cell.unscorable,
                        "best": cell.best,
                        "percent_change_from_random": cell.percent_change,
                        "share_of_way_to_oracle": cell.share,
                    }
                )
        columns = {column.metric: column for column in self.columns}
        for d in self.differences:
            direction = "higher" if columns[d.metric].higher_is_better else "lower"
            records.append(
                _record(d.a, d.b, d.metric, direction, columns[d.metric].n, d.difference, d.interval)
                | {"p_value": d.p_value, "p_adjusted": d.p_adjusted, "intervals_overlap": d.overlap}
            )
        return records


def _record(
    system: str, versus: str | None, metric: str, direction: str, n: int, mean: float, ends: Interval
) -> dict[str, Any]:
    return {
        "system": system,
        "versus": versus,
        "metric": metric,
        "direction": direction,
        "n": n,
        "mean": mean,
        "interval_low": ends.low,
        "interval_high": ends.high,
        "degenerate": ends.degenerate,
        "minimum": None,
        "maximum": None,
        "unscorable": None,
        "best": None,
        "percent_change_from_random": None,
        "share_of_way_to_oracle": None,
        "p_value": None,
        "p_adjusted": None,
        "intervals_overlap": None,
    }


def compare(
    systems: Mapping[str, str | Path | Scores],
    *,
    random: str | None = None,
    oracles: Mapping[str, str] | None = None,
    perfect: str | None = None,
    paired: Sequence[tuple[str, str]] = (),
    method: str = "bca",
    resamples: int | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int], object] | None = None,
) -> Comparison:
    """Put the scores of several systems into one table.

    A mean is over the studies that ALL systems can score under that metric, so that every number of a column speaks of
    the same studies; the column's `n` and each system's unscorable studies are part of the table.

    Parameters
    ----------
    systems : mapping
        Name of the row -> scores, or a file of them.
    random : str
        Row of random retrieval, from which percentage changes count.
    oracles : mapping
        Metric -> row of its metric-oracle: with `random`, gives the share of the way.
    perfect : str
        Row of perfect answers, which like an oracle's does not compete for the best mean.
    paired : sequence of (str, str)
        Pairs of rows to test on the same studies.
    method, resamples, seed
        See :func:`metric_oracle.evaluation.statistics.interval`; the level is 0.95.
    progress : function
        Called with a name, and how many of how many intervals are done.

    Raises
    ------
    InputError
        If the systems have different signatures, references, studies or no common metric; an id occurs twice; fewer
        than two studies are left; or a metric has one and the same score everywhere.
    """
    if not systems:
        msg = "compare: systems must be at least one name with its scores; got none. Write files with oracle score."
        raise InputError(msg)
    scores = {name: read_scores(given) if isinstance(given, str | Path) else given for name, given in systems.items()}
    names = list(scores)
    given = oracles or {}
    oracles = {get_metric(metric, "compare").name: row for metric, row in given.items()}
    if len(oracles) < len(given):
        msg = f"compare: oracles must name each metric once; got {', '.join(given)}. Keep one row for each."
        raise InputError(msg)
    _check_rows(names, random, oracles, paired)
    metrics, left_out = _common_metrics(scores, oracles)
    _check_signatures(scores, metrics)
    values = _aligned(scores, metrics)

    total = len(metrics) * (len(names) + len(paired))
    done = 0

    def step(what: str) -> None:
        nonlocal done
        if progress is not None:
            progress(what, done, total)
        done += 1

    columns: list[Column] = []
    cells: dict[tuple[str, str], Cell] = {}
    tests: list[tuple[str, str, str, Paired, bool]] = []
    for metric in metrics:
        matrix = values[metric]
        complete = matrix[:, ~np.isnan(matrix).any(axis=0)]
        _check_column(metric, names, matrix, complete)
        columns.append(Column(metric, get_metric(metric, "compare").higher_is_better, complete.shape[1]))
        row = dict(zip(names, complete, strict=True))
        ends = {}
        for name in names:
            step(f"{name}, {metric}")
            ends[name] = interval(row[name], method, LEVEL, resamples, seed)
        unscorable = dict(zip(names, np.isnan(matrix).sum(axis=1).tolist(), strict=True))
        for name, cell in _cells(columns[-1], row, ends, unscorable, random, oracles, perfect).items():
            cells[name, metric] = cell
        for a, b in paired:
            step(f"{a} against {b}, {metric}")
            test = paired_test(row[a], row[b], level=LEVEL, resamples=resamples, seed=seed)
            tests.append((a, b, metric, test, overlap(ends[a], ends[b])))
    p_adjusted = adjusted([test.p_value for *_, test, _ in tests]) if tests else []
    first = scores[names[0]]
    return Comparison(
        names,
        columns,
        cells,
        [
            Difference(a, b, metric, *test, p, overlapping)
            for (a, b, metric, test, overlapping), p in zip(tests, p_adjusted, strict=True)
        ],
        first.table.num_rows,
        {
            name: int(one.signature["distinct_texts"])
            for name, one in scores.items()
            if one.signature.get("distinct_texts") is not None
        },
        left_out,
        {
            "kind": "table",
            "systems": {name: one.signature.get("system") for name, one in scores.items()},
            "metrics": {metric: first.signature["metrics"][metric] for metric in metrics},
            "references": first.signature.get("references"),
            "scores_version": first.signature.get("version"),
            "interval": {
                "method": method,
                "level": LEVEL,
                "resamples": LEGACY_SAMPLE if method == LEGACY else resamples or RESAMPLES,
                "seed": seed,
            },
            "random": random,
            "oracles": oracles,
            "paired": [list(pair) for pair in paired],
            **({"test": {"name": "permutation", "resamples": resamples or RESAMPLES, "seed": seed}} if paired else {}),
            "version": version("metric-oracle"),
        },
    )


def _cells(
    column: Column,
    row: Mapping[str, np.ndarray],
    ends: Mapping[str, Interval],
    unscorable: Mapping[str, int],
    random: str | None,
    oracles: Mapping[str, str],
    perfect: str | None,
) -> dict[str, Cell]:
    """Return the cells of one metric: its means beside each other, random and the oracle."""
    mean = {name: float(values.mean()) for name, values in row.items()}
    sign = 1 if column.higher_is_better else -1
    rated = [name for name in row if name != perfect and name not in oracles.values()]
    if not set(rated) - {random}:
        rated = list(row)
    best = max(sign * mean[name] for name in rated)
    change: dict[str, float] = {}
    share: dict[str, float] = {}
    if random is not None and mean[random] > 0:
        change = {name: sign * 100 * (mean[name] - mean[random]) / mean[random] for name in row}
    if random is not None and column.metric in oracles:
        span = _span(column.metric, mean, random, oracles[column.metric], sign)
        share = {name: (mean[name] - mean[random]) / span for name in row}
    return {
        name: Cell(
            mean[name],
            ends[name],
            float(values.min()),
            float(values.max()),
            unscorable[name],
            name in rated and sign * mean[name] == best,
            change.get(name),
            share.get(name),
        )
        for name, values in row.items()
    }


def _check_rows(
    names: list[str], random: str | None, oracles: Mapping[str, str], paired: Sequence[tuple[str, str]]
) -> None:
    """Raise unless every row that an option names is there."""
    named = {"random": [random] if random is not None else [], "oracles": [*oracles.values()]}
    named["paired"] = [name for pair in paired for name in pair]
    for argument, rows in named.items():
        for row in rows:
            if row not in names:
                msg = f"compare: {argument} must name systems of the table, {', '.join(names)}; got {row!r}. Add it."
                raise InputError(msg)
    for a, b in paired:
        if a == b:
            msg = f"compare: paired must name two systems; got {a!r} twice. Name another one."
            raise InputError(msg)
    if len({frozenset(pair) for pair in paired}) < len(paired):
        msg = "compare: paired must name each pair once; got one twice. A repeated test changes the adjusted p-values."
        raise InputError(msg)
    if oracles and random is None:
        msg = "compare: oracles must be given with random, where the way begins; got no random. Name the random row."
        raise InputError(msg)


def _common_metrics(scores: Mapping[str, Scores], oracles: Mapping[str, str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the metrics that all systems have, and each system's others."""
    for name, one in scores.items():
        if one.signature.get("kind") != "scores" or not isinstance(one.signature.get("metrics"), dict):
            msg = (
                f"compare: systems must be files of scores; got one of kind {one.signature.get('kind')!r} for {name!r}."
                " Write one with oracle score."
            )
            raise InputError(msg)
        lacking = [
            column for column in ("query_id", *one.signature["metrics"]) if one.table.column_names.count(column) != 1
        ]
        if lacking:
            msg = (
                f"compare: systems must have one column for the ids and for each metric of the signature; got none or "
                f"several of {', '.join(lacking)} for {name!r}. Write the file again with oracle score."
            )
            raise InputError(msg)
    held = {name: list(one.signature["metrics"]) for name, one in scores.items()}
    common = [metric for metric in next(iter(held.values())) if all(metric in others for others in held.values())]
    if not common:
        shown = "; ".join(f"{name}: {', '.join(metrics) or 'none'}" for name, metrics in held.items())
        msg = f"compare: systems must have a metric in common; got {shown}. Score them under the same metrics."
        raise InputError(msg)
    for metric in oracles:
        if metric not in common:
            msg = f"compare: oracles must be of metrics of the table, {', '.join(common)}; got {metric!r}. Drop it."
            raise InputError(msg)
    left_out = {name: [metric for metric in metrics if metric not in common] for name, metrics in held.items()}
    return common, {name: metrics for name, metrics in left_out.items() if metrics}


def _check_signatures(scores: Mapping[str, Scores], metrics: list[str]) -> None:
    """Raise if two systems were scored against other references, by another version, or under other options."""
    (first, one), *others = scores.items()
    for name, other in others:
        pairs = [(key, one.signature.get(key), other.signature.get(key)) for key in ("references", "version")]
        pairs += [(m, one.signature["metrics"][m], other.signature["metrics"][m]) for m in metrics]
        for what, mine, theirs in pairs:
            where, a, b = _difference(what, mine, theirs)
            if a != b:
                msg = (
                    f"compare: systems must have the same signature; got another {where} for {name!r} ({_shown(b)}) "
                    f"than for {first!r} ({_shown(a)}). Score both again in the same way."
                )
                raise InputError(msg)


def _difference(what: str, a: Any, b: Any) -> tuple[str, Any, Any]:
    """Go down to the first entry that differs; return its name and the two values."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if a.get(key) != b.get(key):
                return _difference(f"{what}, {key}", a.get(key), b.get(key))
    return what, a, b


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _aligned(scores: Mapping[str, Scores], metrics: list[str]) -> dict[str, np.ndarray]:
    """Join the systems on the ids.

    Returns
    -------
    dict
        Metric -> float64[systems, studies] in the order of the first system's studies, NaN where unscorable.
    """
    order: dict[str, int] | None = None
    first = next(iter(scores))
    rows: dict[str, list[np.ndarray]] = {metric: [] for metric in metrics}
    for name, one in scores.items():
        ids = [str(i) for i in one.table["query_id"].to_pylist()]
        place = {i: row for row, i in enumerate(ids)}
        if len(place) < len(ids):
            seen: set[str] = set()
            twice = [i for i in ids if i in seen or seen.add(i)]  # type: ignore[func-returns-value]
            msg = (
                f"compare: systems must have each study once; got {len(twice)} repeated ids for {name!r} "
                f"({shown_names(twice[:3])}). Drop the repetitions."
            )
            raise InputError(msg)
        order = place if order is None else order
        if place.keys() != order.keys():
            only = [[i for i in order if i not in place], [i for i in place if i not in order]]
            msg = (
                f"compare: systems must be scored on the same studies; got {len(only[0])} ids only in {first!r} "
                f"({shown_names(only[0][:3])}) and {len(only[1])} only in {name!r} ({shown_names(only[1][:3])}). "
                "Score both on the same references."
            )
            raise InputError(msg)
        where = np.array([place[i] for i in order], np.int64)
        for metric in metrics:
            column = one.table[metric]
            values = column.to_numpy().astype(np.float64)
            if not np.isfinite(values[~np.isnan(values)]).all() or np.isnan(values).sum() > column.null_count:
                msg = (
                    f"compare: scores must be numbers, or missing where a study is unscorable; got NaN or infinity "
                    f"under {metric} for {name!r}. Score it again."
                )
                raise InputError(msg)
            rows[metric].append(values[where])
    if order is None or len(order) < 2:
        msg = (
            f"compare: systems must have at least 2 studies; got {len(order or ())}. "
            "One study has no interval; score more."
        )
        raise InputError(msg)
    return {metric: np.array(held) for metric, held in rows.items()}


def _check_column(metric: str, names: list[str], matrix: np.ndarray, complete: np.ndarray) -> None:
    """Raise unless a metric has studies to compare, and scores that differ."""
    if complete.shape[1] < 2:
        unscorable = np.isnan(matrix).sum(axis=1)
        shown = ", ".join(f"{name} {n}" for name, n in zip(names, unscorable, strict=True) if n)
        msg = (
            f"compare: {metric} must have at least 2 studies that every system can score; got {complete.shape[1]} of "
            f"{matrix.shape[1]} (unscorable: {shown}). Score without this metric, or leave a system out."
        )
        raise InputError(msg)
    if complete.min() == complete.max():
        msg = (
            f"compare: scores must differ somewhere; got {complete.flat[0]:g} under {metric} for every study of "
            f"every system. Score without this metric."
        )
        raise InputError(msg)


def _span(metric: str, mean: Mapping[str, float], random: str, oracle: str, sign: int) -> float:
    """Return the way from random to the oracle."""
    span = mean[oracle] - mean[random]
    if sign * span <= 0:
        msg = (
            f"compare: the oracle must be better than random; got {mean[oracle]:.4g} for {oracle!r} and "
            f"{mean[random]:.4g} for {random!r} under {metric}. Name the right rows."
        )
        raise InputError(msg)
    return span
