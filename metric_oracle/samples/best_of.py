"""The expected best of n samples of a study, and how near selectors come to the best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_in_range
from metric_oracle.base.declarations import ROWS, Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.progress import Progress, silent
from metric_oracle.base.validation import public
from metric_oracle.corpora.samples import Samples
from metric_oracle.findings.cells import (
    ALIKE,
    Format,
    Row,
    arrow,
    ends_of,
    intervals_note,
    number_of,
    over_of,
    p_of,
)
from metric_oracle.findings.figures import (
    COLUMN,
    LINES,
    ORANGE,
    WIDTH,
    add_legend,
    draw_curve,
    finish,
    literal,
    panels,
)
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, listing
from metric_oracle.findings.results import Scores
from metric_oracle.findings.signature import signed
from metric_oracle.indexes.shards import section_of
from metric_oracle.judges.given import opened_judges, parted
from metric_oracle.judges.judge import Judge
from metric_oracle.metrics import title_of
from metric_oracle.records import Metric, sign_of
from metric_oracle.retrieval.options import DEFAULTS
from metric_oracle.retrieval.search_signature import digest
from metric_oracle.samples.matrices import (
    CountedIndex,
    MetricsOfSamples,
    OptionsOfSamples,
    SampledGroups,
    SampledReports,
    checked_metrics,
    judged_matrices,
    signature_of,
)
from metric_oracle.scores.groups import expected_scores
from metric_oracle.sides import Joined, Nouns, Sides
from metric_oracle.statistics import (
    LEVEL,
    RESAMPLES,
    Array,
    adjusted,
    difference,
    expected_best,
    first_best,
    intervals,
    paired_test,
    resample_means,
)
from metric_oracle.tables.systems import (
    CHANCE,
    GivenResults,
    aligned,
    best_of_name,
    check_signatures,
    common_metrics,
    read_system,
)

MEAN = "mean of the samples"


@dataclass(frozen=True, repr=False)
class BestOf(Finding):
    """The expected best of n samples, and selectors. Made by [`best_of`][metric_oracle.best_of].

    Parameters
    ----------
    curve : pyarrow.Table
        ``metric``, ``n``, ``studies`` (those with at least n samples), ``mean``, ``low`` and ``high`` (the ends of the
        95 % interval over studies) and ``degenerate``.
    selectors : pyarrow.Table
        ``metric``, ``selector``, ``studies``, ``mean``, ``low``, ``high``; ``share`` of the headroom with ``share_low``
        and ``share_high``; ``difference`` from the mean of the samples with ``difference_low``, ``difference_high``,
        ``p_value`` and ``p_adjusted``.
    levels : pyarrow.Table
        ``metric``, ``level`` ("corpus oracle", "chance" or the name of a system), ``studies``, ``mean``, ``low``,
        ``high`` and ``degenerate``: the means of other results for the same studies. Without such results it is empty.
    scores : dict of str to list of numpy.ndarray
        Metric -> for each study the score of each sample, float64[N].
    samples : Samples
        The samples of the studies that have a reference, in the order of the references.
    signature : dict
        What is needed to compute the same numbers again.

    Examples
    --------
    >>> best = mo.best_of("samples.jsonl", "test.csv", "rouge-l")
    >>> best.curve["n"].to_pylist()
    [1, 2, 4, 8]
    """

    curve: pa.Table
    selectors: pa.Table
    levels: pa.Table
    scores: dict[str, list[Array]]
    samples: Samples
    signature: dict[str, Any]

    def summary(self) -> str:
        """Return one line without ids and texts.

        Returns
        -------
        str
            Numbers of studies and samples, and the metrics.
        """
        n = len(self.samples.ids)
        return f"{n:,} studies, {sum(self.samples.sizes):,} samples: {', '.join(self.scores)}"

    @property
    def table(self) -> pa.Table:
        """The curve, the selectors and the levels in one table.

        Rows of the curve have ``n``, rows of selectors ``selector`` and rows of levels ``level``; a column that a row
        does not have is null.
        """
        columns = [*_NAMES, *(name for name in self.selectors.column_names if name not in _NAMES)]
        table = pa.concat_tables([self.curve, self.selectors, self.levels], promote_options="default")
        return table.select(columns)

    def tables(self) -> list[PaperTable]:
        """Return, for each metric, the expected best of n, and the selectors with their share of the headroom.

        Returns
        -------
        list of PaperTable
            Two tables for each metric. The notes stand under the last one.
        """
        tables = []
        curve, levels, selectors = (table.to_pylist() for table in (self.curve, self.levels, self.selectors))
        for metric, how in self.signature["metrics"].items():
            drawn, by_selector = (
                [row for row in rows if row["metric"] == metric] for rows in (curve + levels, selectors)
            )
            name = f"{metric} {arrow(how['direction'])}"
            title = f"Expected best of n samples, {name}"
            tables.append(listing(title, drawn, _best_or_level, _DRAWN, first="samples drawn"))
            tables.append(listing(f"Selectors, {name}", by_selector, "selector", _SELECTED, first="selector"))
        notes = [
            f"{self.summary()}.",
            (
                "The expected best of n samples drawn without replacement, in closed form; its mean is over the "
                "studies that have at least n samples."
            ),
            "Share of the headroom: (selector - mean of the samples) / (best of all samples - mean of the samples).",
            (
                f"{intervals_note(self.signature['interval'])} p: permutation test of the difference from the mean of "
                "the samples, adjusted by Benjamini and Hochberg over all tests here."
            ),
        ]
        if levels:
            notes.append(
                "Corpus oracle: the best report of the corpus; chance: the mean of all its reports or of random ones."
            )
        if any(row["degenerate"] for row in curve + levels):
            notes.append(ALIKE)
        if how_many := ", ".join(f"{count:,} {what}" for what, count in self.signature["left_out"].items()):
            notes.append(f"Left out: {how_many}.")
        tables[-1].notes.extend(notes)
        return tables

    def figure(self, width: float | None = None) -> Any:
        """Return a Matplotlib figure: for each metric the expected best of n with its interval, the levels as lines.

        Parameters
        ----------
        width : float, optional
            Width in millimetres, by default 88 for one metric and 180 for several.

        Returns
        -------
        matplotlib.figure.Figure
            One panel for each metric.
        """
        metrics = list(self.scores)
        width = width or (COLUMN if len(metrics) == 1 else WIDTH)
        grid, figure = panels(len(metrics), width, least=55, height=62)
        styles = dict(zip(dict.fromkeys(self.levels["level"].to_pylist()), cycle(LINES), strict=False))
        lines: dict[str, Any] = {}
        for axes, metric in zip(grid, metrics, strict=True):
            rows, levels = (
                [row for row in table.to_pylist() if row["metric"] == metric] for table in (self.curve, self.levels)
            )
            draw_curve(axes, rows, ORANGE, "-")
            for level in levels:
                name, (colour, dashes) = level["level"], styles[level["level"]]
                lines[name] = axes.axhline(
                    level["mean"], color=colour, linestyle=dashes, linewidth=1, label=literal(name)
                )
            axes.set_xscale("log", base=2)
            axes.set_xticks([row["n"] for row in rows], [str(row["n"]) for row in rows])
            axes.minorticks_off()
            axes.set_xlabel("samples drawn (95 % intervals)")
            axes.set_title(f"{literal(title_of(metric))}, expected best", loc="left")
        if lines:
            add_legend(figure, [*lines.values()], width)
        return finish(figure)

    @public
    def to_scores(self, n: int | None = None) -> Scores:
        """Return the expected best of n samples of each study, which [`compare`][metric_oracle.compare] takes as a row.

        Parameters
        ----------
        n : int, optional
            Number of samples drawn, by default the largest number of samples of a study.

        Returns
        -------
        Scores
            One row for each study, null where it has fewer than n samples. With ``write`` it is a file for
            ``oracle table``.

        Raises
        ------
        InputError
            If no study has n samples.

        Examples
        --------
        >>> best = mo.best_of("samples.jsonl", "test.csv", "rouge-l")
        >>> mo.compare({"strong": mo.score("test.csv", "strong.csv", "rouge-l"), "best of 8": best.to_scores()})
        <Comparison: 2 systems, 24 studies: rouge-l>
        """
        largest = max(self.samples.sizes)
        n = largest if n is None else n
        check_in_range("n", n, ge=1, le=largest)
        columns: dict[str, Any] = {"query_id": pa.array(self.samples.ids, pa.large_string())}
        for metric, how in self.signature["metrics"].items():
            sign = sign_of(how["direction"])
            columns[metric] = pa.array(
                [expected_best(of_study, n, sign) if len(of_study) >= n else None for of_study in self.scores[metric]],
                pa.float64(),
            )
        shared = ("metrics", "references", "section", "n", "version", "left_out", "samples")
        signature = {name: self.signature[name] for name in shared if name in self.signature}
        return Scores(pa.table(columns), {"kind": "scores", "system": best_of_name(n), **signature})


_NAMES = ("metric", "n", "selector", "level")
# The columns of the printed tables.
_DRAWN: dict[str, Format] = {"mean": number_of("mean"), "95 % CI": ends_of(), "studies": number_of("studies", ",")}
_SELECTED: dict[str, Format] = {
    "mean": number_of("mean"),
    "share of headroom": over_of("share", "share_low", "share_high", "z.0f", scale=100, unit=" %"),
    "difference from the mean": over_of("difference", "difference_low", "difference_high", "+z.4f"),
    "p adjusted": p_of("p_adjusted"),
}


def _best_or_level(row: Row) -> str:
    """Return the name of a row of the curve or of a level."""
    return f"best of {row['n']:,}" if "n" in row else str(row["level"])


def _first(values: Sequence[float] | Array) -> int:
    """Return the index of the greatest value, the first of equal ones."""
    return int(np.argmax(np.asarray(values)))


def chosen_by(samples: Samples, consensus: dict[str, list[int]], column: str | None) -> dict[str, list[int]]:
    """Return, for each selector (a rule that chooses one sample), the index of its choice in each study.

    The first of equal samples is chosen. `consensus` has, by metric, the index that the consensus chooses in each
    study; `column` is the name of the column that `samples.values` holds, or None.
    """
    places_by_selector = {"first sample": [0] * len(samples.ids)}
    if samples.logprobs is not None:
        places_by_selector["highest log-probability"] = [_first(values) for values in samples.logprobs]
    places_by_selector["longest"] = [_first([len(text.split()) for text in group]) for group in samples.texts]
    places_by_selector |= {f"consensus under {metric}": places for metric, places in consensus.items()}
    if column is not None and samples.values is not None:
        places_by_selector[f"highest {column}"] = [_first(values) for values in samples.values]
    return places_by_selector


_NAME = "samples"
_SAMPLED = Nouns(has_section=False)


@public
def best_of(
    candidates: SampledReports,
    references: option_types.References,
    metrics: MetricsOfSamples,
    *,
    column: Annotated[
        str | None,
        Doc(
            "Column of `candidates` with a number for each sample: also measure the choice of the sample with the "
            "greatest number. By default no column is used."
        ),
    ] = None,
    inner: option_types.Inner = False,
    results: Annotated[
        Sequence[GivenResults],
        Doc(
            "Results or scores for the same references, whose means are shown beside the curve: the corpus oracle, "
            "which [`retrieve`][metric_oracle.retrieve] returns, chance, which [`baseline`][metric_oracle.baseline] "
            "returns, or what [`score`][metric_oracle.score] returns for another model."
        ),
        Flag(panel=ROWS),
    ] = (),
    index: CountedIndex | None = None,
    options: OptionsOfSamples | None = None,
    seed: option_types.Seed = 0,
    progress: Progress | None = None,
) -> BestOf:
    """Measure how good the best of n reports of a model is expected to be, and how near selectors come to it.

    Of the N samples of a study, n are drawn without replacement; the expected best is computed in closed form, without
    simulation. Means are over studies, with BCa intervals over studies. Selectors are the first sample, the one with
    the highest log-probability, the longest, the consensus under each metric, and the greatest value of `column`.

    A model or an encoder that is given for the references makes what a metric reads for both sides. A judge has no
    consensus, of which the pairs would be many.

    Returns
    -------
    BestOf
        The curve for n = 1, 2, 4, ... N, and the selectors. The longest sample is that with the most words. The share
        of the headroom is (selector - mean) / (best of N - mean).

    Raises
    ------
    InputError
        If candidates or references cannot be read or do not share ids, fewer than two studies are left, or a metric is
        unknown or lacks what it reads. If a result is of other metrics, references or studies.

    Notes
    -----
    [`reports`][metric_oracle.reports] attaches to both sides what a metric reads in addition to the texts, to the
    candidates by text or by ids such as "50000001/0" (study, then sample).
    [`expectation`][metric_oracle.expectation] computes chance exactly.

    Examples
    --------
    >>> mo.best_of("samples.jsonl", "test.csv", "rouge-l")
    <BestOf: 24 studies, 192 samples: rouge-l>
    """
    options, step = options or DEFAULTS, silent if progress is None else progress
    names, judges = parted(metrics)
    searched, counted = checked_metrics(names or (), options, index, progress, may_be_none=bool(judges))
    others = [read_system(str(source) if isinstance(source, str | Path) else "results", source) for source in results]
    with opened_judges(judges) as asked:
        sides = Sides.of(references, {_NAME: candidates}, _SAMPLED)
        sides = sides.read(section_of(counted), as_written=lambda side, wanted: side.read_samples(column, wanted))
        sides.tell_wordless(searched)
        joined = _joined(sides, inner)
        samples = _taken(sides.written[_NAME], joined.predictions)
        chosen_truth = sides.read_truth.take(joined.references)
        queries, distinct = sides.load(_NAME, chosen_truth, samples.distinct(), step)
        groups = SampledGroups.of(samples, distinct, options, counted)
        scores: dict[str, list[Array]] = {}
        consensus: dict[str, list[int]] = {}
        for place, metric in enumerate(searched):
            step(metric.name, place, len(searched))
            scores[metric.name] = groups.scores_with(queries, metric)
            utilities = [expected_scores(matrix) for matrix in groups.matrices(metric)]
            consensus[metric.name] = [first_best(metric.sign * of_study) for of_study in utilities]
        judged = judged_matrices(asked, [[text] for text in queries.texts], samples.texts, sides.listener, step)
        scores |= {name: [of_study[:, 0] for of_study in of_judge] for name, of_judge in judged.items()}
        listed: list[Metric | Judge] = [*searched, *asked]
        places = chosen_by(samples, consensus, column)
        curve = [row for one in listed for row in _curve(one, scores[one.name], seed)]
        selectors = [row for one in listed for row in _selectors(one, scores[one.name], places, seed)]
        signature = signed(
            kind="best of n",
            metrics=groups.entries(queries, searched) | {judge.name: judge.entry for judge in asked},
            samples=signature_of(samples, sides.predictions[_NAME].data),
            references=digest(queries),
            **({"section": queries.section} if queries.section else {}),
            interval={"method": "bca", "level": LEVEL, "resamples": RESAMPLES, "seed": seed},
            left_out=joined.left_out,
            n=len(samples.ids),
        )
        tables = pa.Table.from_pylist(curve), pa.Table.from_pylist(_adjusted(selectors)), _LEVELS.empty_table()
        best = BestOf(*tables, scores, samples, signature)
        levels = _levels_of(best.to_scores(), others, seed)
        signature["results"] = [other.signature for other in others]
        return replace(best, levels=pa.Table.from_pylist(levels, _LEVELS))


def _joined(sides: Sides, inner: bool) -> Joined:
    """Join the samples with the references; raise InputError if fewer than two studies are left."""
    joined = sides.join(_NAME, inner)
    if len(joined.references) < 2:
        raise InputError(
            f"{len(joined.references)} studies have samples and a reference.",
            "One study has no interval; pass at least 2.",
        )
    return joined


def _adjusted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of `_selectors` with p-values adjusted over all of them."""
    p_values = [row["p_value"] for row in rows if row["p_value"] is not None]
    of_tested = iter(adjusted(p_values))
    return [row if row["p_value"] is None else {**row, "p_adjusted": next(of_tested)} for row in rows]


def _levels_of(best: Scores, others: Sequence[Scores], seed: int) -> list[dict[str, Any]]:
    """Return the rows of `_levels` of all other systems; raise InputError if one occurs twice under a metric."""
    levels = [row for other in others for row in _levels(best, other, seed)]
    twice = [row for place, row in enumerate(levels) if _is_of(row, levels[:place])]
    if twice:
        raise InputError(
            "results",
            "must have each row once under each metric",
            f"{shown(twice[0]['level'])} twice under {twice[0]['metric']}",
            "Leave one of them out.",
        )
    return levels


_LEVELS = pa.schema(
    [
        ("metric", pa.string()),
        ("level", pa.string()),
        ("studies", pa.int64()),
        *((name, pa.float64()) for name in ("mean", "low", "high")),
        ("degenerate", pa.bool_()),
    ]
)


def _is_of(row: dict[str, Any], others: list[dict[str, Any]]) -> bool:
    """Return whether one of `others` is the same level (a system's mean, such as "chance") under the same metric."""
    return any(row["metric"] == other["metric"] and row["level"] == other["level"] for other in others)


def _levels(best: Scores, other: Scores, seed: int) -> list[dict[str, Any]]:
    """Return one row per metric for the scores of another system: their mean over the studies that have samples.

    `best` has the scores of these studies. Raise InputError if `other` is of other metrics, references or studies.
    """
    system = str(other.signature.get("system"))
    both = {"samples": best, system: other}
    metrics, _ = common_metrics(both, {})
    check_signatures(both, metrics)
    values, _ = aligned(both, metrics)
    rows = []
    for metric in metrics:
        of_metric = values[metric][1]
        of_metric = of_metric[~np.isnan(of_metric)]
        name = "corpus oracle" if system == f"{metric} oracle" else "chance" if system in CHANCE else system
        (ends,) = intervals(of_metric[None], seed=seed)
        rows.append(
            {"metric": metric, "level": name, "studies": len(of_metric), "mean": float(of_metric.mean())}
            | {"low": ends.low, "high": ends.high, "degenerate": ends.degenerate}
        )
    return rows


def _taken(samples: Samples, places: Sequence[int]) -> Samples:
    """Return the samples of the studies with these indices."""

    def taken(column: Any) -> Any:
        """Return the values of one attribute for these studies."""
        return None if column is None else [column[place] for place in places]

    return Samples(
        taken(samples.ids),
        taken(samples.texts),
        taken(samples.names),
        samples.source,
        taken(samples.logprobs),
        taken(samples.values),
        samples.section,
    )


def points(largest: int) -> list[int]:
    """Return the numbers of samples at which the curve is computed: 1, 2, 4, ... and the largest."""
    return sorted({*(1 << power for power in range(largest.bit_length())), largest})


def _curve(scorer: Metric | Judge, scores: list[Array], seed: int) -> list[dict[str, Any]]:
    """Return a row for each n of `points`: the mean over the studies with n samples or more; `scores` by study.

    There is no row for an n that fewer than two studies have.
    """
    rows = []
    for n in points(max(map(len, scores))):
        values = np.array([expected_best(of_study, n, scorer.sign) for of_study in scores if len(of_study) >= n])
        if len(values) > 1:
            (ends,) = intervals(values[None], seed=seed)
            rows.append(
                {"metric": scorer.name, "n": n, "studies": len(values), "mean": float(values.mean())}
                | {"low": ends.low, "high": ends.high, "degenerate": ends.degenerate}
            )
    return rows


def _selectors(
    scorer: Metric | Judge, scores: list[Array], places_of: dict[str, list[int]], seed: int
) -> list[dict[str, Any]]:
    """Return rows for the mean of all samples, for each selector, and for the best of all samples.

    `scores` has float64[N] for each study, `places_of` what `chosen_by` returned. `p_adjusted` is None in all rows.
    """
    values = {MEAN: np.array([of_study.mean() for of_study in scores])}
    for name, places in places_of.items():
        values[name] = np.array([of_study[place] for of_study, place in zip(scores, places, strict=True)])
    values["best of all samples"] = np.array([scorer.best_of(of_study) for of_study in scores])
    columns = np.array([*values.values()])
    means, ends = resample_means(columns, RESAMPLES, seed), intervals(columns, seed=seed)
    rows = []
    for place, (name, of_selector) in enumerate(values.items()):

        def share(averages: Array, place: int = place) -> Array:
            headroom = difference(averages[..., -1], averages[..., 0])
            gain = difference(averages[..., place], averages[..., 0])
            return np.divide(gain, headroom, out=np.full_like(gain, np.nan), where=scorer.sign * headroom > 0)

        shares = means.map(share)
        is_fixed = place in (0, len(values) - 1)
        of_share = None if is_fixed else shares.interval()
        row: dict[str, Any] = {
            "metric": scorer.name,
            "selector": name,
            "studies": len(of_selector),
            "mean": float(of_selector.mean()),
        }
        row |= {"low": ends[place].low, "high": ends[place].high, "degenerate": ends[place].degenerate}
        row["share"] = float(shares.value) if np.isfinite(shares.value) else None
        row |= {"share_low": of_share and of_share.low, "share_high": of_share and of_share.high}
        names = ("difference", "difference_low", "difference_high", "p_value", "p_adjusted")
        row |= dict.fromkeys(names)
        if place:
            gain, ends_of_gain, p = paired_test(of_selector, values[MEAN], RESAMPLES, seed)
            row["difference"], row["difference_low"], row["difference_high"] = gain, *ends_of_gain[:2]
            # The best of all samples is no selector: it is never below the mean, so its test would mean nothing.
            row["p_value"] = None if is_fixed else p
        rows.append(row)
    return rows
