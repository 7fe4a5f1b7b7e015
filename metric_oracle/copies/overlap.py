"""The report on copies: lines with intervals, and with the paired difference from the human test reports."""

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import READING, Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import without_nan
from metric_oracle.base.progress import Progress, silent
from metric_oracle.base.validation import public
from metric_oracle.copies.measure import (
    LONG,
    NEAR,
    NOVELTY,
    Measured,
    have_markers,
    measure,
    same_values,
    without_markers,
)
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.cells import ALIKE, Row, over
from metric_oracle.findings.figures import BASELINE, DASHED, MODEL, WIDTH, draw_dot, finish, literal, new_figure
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, pivot, plain
from metric_oracle.findings.signature import bootstrap, signed
from metric_oracle.findings.views import one_line
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import section_of
from metric_oracle.metrics import METRICS
from metric_oracle.reading import Given, say_columns_apart
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.corpus_index import corpus_of
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.scores.scoring import score
from metric_oracle.sides import Nouns, Sides
from metric_oracle.statistics import (
    Array,
    Interval,
    Resampled,
    difference,
    n_resamples,
    resample_means,
    varies,
)

HUMAN = "human"
LIMITS = (0.9, 0.8, 0.7)
N_SENTENCES = 5
SHOWN_PAIRS = 10
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("set", "line")),
        *((name, pa.float64()) for name in ("value", "low", "high", "difference", "difference_low", "difference_high")),
        ("reports", pa.int64()),
    ]
)
_NO_INTERVAL = Interval(np.nan, np.nan)
_WIDE = 4  # panels side by side in the figure


class Line(NamedTuple):
    """One line of the table, for one set of reports."""

    columns: Array  # float64[c, n], numbers of each report
    value: Callable[[Array], Array]  # returns the value of the line from the means of the columns, float64[..., c]
    method: str = "bca"  # "bca" or "percentile", method of the interval


class LineValue(NamedTuple):
    """Value of a line for a set, its interval, and the paired difference from the human test reports with its own."""

    value: float
    interval: Interval | None
    difference: float | None = None
    difference_interval: Interval | None = None


def _value(row: Row) -> str:
    """Return the text of the cell of a value; `row` is a row of `Overlap._rows`."""
    scale, form = _form(row["line"])
    return over(row["value"], row["low"], row["high"], form, scale=scale, alike=row["degenerate"])


def _difference(row: Row) -> str:
    """Return the text of the cell of a difference from the human test reports; `row` as in `_value`."""
    scale, form = _form(row["line"])
    low, high, alike = (row[f"difference_{name}"] for name in ("low", "high", "degenerate"))
    return over(row["difference"], low, high, f"+{form}", scale=scale, alike=alike)


def _form(line: str) -> tuple[float, str]:
    """Return the factor and the format of the numbers of a line: shares are percentages, medians numbers of words."""
    return (1.0, "z.0f") if line.endswith("median") else (100.0, "z.1f")


@dataclass(frozen=True, repr=False)
class Overlap(Finding):
    """Copies and near copies of a training corpus in sets of reports.

    Attributes
    ----------
    sets : dict of str to Measured
        Numbers of each report, by the name of the set; ``human`` are the human test reports.
    cells : dict of (str, str) to Cell
        By set and line. Lines that are counted otherwise for the human reports have no difference.
    distinct : dict of str to int
        Distinct texts of each set.
    signature : dict
        What is needed to compute the same numbers again.
    """

    sets: dict[str, Measured]
    cells: dict[tuple[str, str], LineValue]
    distinct: dict[str, int]
    signature: dict[str, Any]

    @property
    def lines(self) -> list[str]:
        """Names of the lines."""
        return list(dict.fromkeys(line for _, line in self.cells))

    @property
    def table(self) -> pa.Table:
        """Columns set, line, value, low, high, difference, difference_low, difference_high, reports."""
        return without_nan(pa.Table.from_pylist(self._rows(), _SCHEMA))

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows of the numbers, each also with `degenerate` of its interval and of that of the difference."""
        rows = []
        for (name, line), cell in self.cells.items():
            ends, of_difference = cell.interval or _NO_INTERVAL, cell.difference_interval or _NO_INTERVAL
            row = {"set": name, "line": line, "value": cell.value, "low": ends.low, "high": ends.high}
            row |= {"degenerate": ends.degenerate, "difference": cell.difference, "reports": len(self.sets[name].run)}
            row |= {"difference_low": of_difference.low, "difference_high": of_difference.high}
            rows.append(row | {"difference_degenerate": of_difference.degenerate})
        return rows

    def tables(self) -> list[PaperTable]:
        """Return the table of values and, with human test reports and another set, that of differences from them."""
        cells, compared = self._rows(), [name for name in self.sets if name != HUMAN]
        counts = "; ".join(
            f"{plain(name)} {self.distinct[name]:,} of {len(self.sets[name].run):,}" for name in self.sets
        )
        notes = [
            (
                "Shares in %, runs in words, each with its 95 % interval over studies. A line such as rouge-l ≥ 0.9 is "
                "the share whose best training report reaches that score."
            ),
            f"Distinct reports: {counts}. A resample repeats studies, so that this has no interval.",
        ]
        if any(cell["degenerate"] for cell in cells):
            notes.append(ALIKE)
        if self.signature["masked"]:
            notes.append("Markers of de-identification were removed before the comparison; the last line counts them.")
        values = pivot("Overlap with the training corpus", cells, "line", "set", _value, first="line")
        if HUMAN not in self.sets or not compared:
            return [replace(values, notes=notes)]
        of_human = {cell["line"] for cell in cells if cell["set"] == HUMAN}
        others = [cell for cell in cells if cell["set"] != HUMAN and cell["line"] in of_human]
        notes.append(
            "Human reports are often training reports: only the difference from them says that a model copies."
        )
        title = "Difference from the human test reports, paired"
        return [values, pivot(title, others, "line", "set", _difference, notes, "line")]

    def shown(self, tables: Sequence[PaperTable] | None = None, pairs: pa.Table | None = None) -> list[Any]:
        """Return what a terminal shows: the tables, and the first rows of `pairs`, which the method `pairs` returned.

        If `pairs` has the texts of reports, these are shown, and the most frequent sentences of each set follow.
        """
        lines = super().shown(tables)
        has_text = pairs is not None and "text" in pairs.column_names
        for row in () if pairs is None else pairs.slice(0, SHOWN_PAIRS).to_pylist():
            of_run = f" of {row['run_id']}" if row["run_id"] else ""
            lines.append(
                one_line(
                    f"{row['set']} {row['query_id']}: {row['longest_run']} words in a row{of_run}; "
                    f"nearest {row['candidate_id']}, rouge-l {row['rouge-l']:.4f}"
                )
            )
            lines += [one_line(row["text"])] if has_text else []
        for row in self.sentences().to_pylist() if has_text else ():
            lines.append(one_line(f"{row['set']}: {row['reports']:,} reports have: {row['sentence']}"))
        return lines

    def figure(self, width: float | None = None) -> Any:
        """Return a Matplotlib figure: the shares of each line; a dashed line is that of the human test reports.

        By default it is 180 millimetres wide.
        """
        lines = [line for line in self.lines if not line.endswith("median")]
        names = list(self.sets)
        rows = -(-len(lines) // _WIDE)
        figure = new_figure(width or WIDTH, rows * (16 + 4.6 * len(names)))
        grid = figure.subplots(rows, _WIDE, squeeze=False, sharey=True).ravel()
        for axes, line in zip(grid, lines, strict=False):
            for y, name in enumerate(names):
                cell = self.cells.get((name, line))
                if cell is None or cell.value != cell.value:
                    continue
                ends = None if cell.interval is None else (100 * cell.interval.low, 100 * cell.interval.high)
                draw_dot(axes, BASELINE if name == HUMAN else MODEL, 100 * cell.value, y, ends)
            if (HUMAN, line) in self.cells:
                axes.axvline(100 * self.cells[HUMAN, line].value, zorder=0, **DASHED)
            axes.set_title(fill(line, 26))
            axes.set_xlabel("% of reports" if "grams" not in line else "% of n-grams")
            axes.margins(y=0.6 / max(len(names), 2))
            if axes.get_xlim()[1] < 1:  # nothing but zeros
                axes.set_xlim(-0.5, 10)
        for axes in grid[len(lines) :]:
            axes.set_visible(False)
        for axes in grid[::_WIDE]:
            axes.set_yticks(range(len(names)), [literal(plain(name)) for name in names])
        grid[0].invert_yaxis()
        return finish(figure)

    @public
    def pairs(self, text: bool = False) -> pa.Table:
        """Return every report and its nearest training report by ROUGE-L, the worst copies first.

        Parameters
        ----------
        text : bool
            Whether the texts of the reports are a column. Texts of training reports are in the index.

        Returns
        -------
        pyarrow.Table
            Columns set, query_id; candidate_id, row and n_ties of the nearest training report by ROUGE-L; the score of
            the best training report under each of the three metrics; longest_run in words, and run_id and run_row of
            the first training report that has it, "" and -1 where no word is shared; n_4grams, the number of 4-grams;
            new_4grams, the share of them that no training report has, null where there are none; copy, same_id,
            ``same_`` and the name of each column that both sides have; and text. Sorted by the longest run and
            then by ROUGE-L.
        """
        parts = []
        for name, numbers in self.sets.items():
            columns: dict[str, Any] = {"set": [name] * len(numbers.run), "query_id": numbers.reports.ids}
            columns |= {column: numbers.nearest[column] for column in numbers.nearest.column_names}
            columns |= dict(numbers.best) | {"longest_run": numbers.run}
            columns |= {column: numbers.run_report[column] for column in numbers.run_report.column_names}
            has_grams = numbers.n_grams > 0
            new = pa.array(numbers.n_new / np.maximum(numbers.n_grams, 1), mask=~has_grams)
            columns |= {f"n_{NOVELTY}grams": numbers.n_grams, f"new_{NOVELTY}grams": new, "copy": numbers.is_copy}
            columns |= {f"same_{column}": same for column, same in numbers.is_same.items()} | (
                {"text": numbers.reports.texts} if text else {}
            )
            parts.append(pa.table(columns))
        joined = pa.concat_tables(parts)
        return joined.sort_by([("longest_run", "descending"), ("rouge-l", "descending")])

    def sentences(self) -> pa.Table:
        """Return the most frequent sentences of each set: columns set, reports, share, sentence."""
        rows = [
            (name, count, count / len(numbers.reports.ids), sentence)
            for name, numbers in self.sets.items()
            for sentence, count in numbers.sentences(N_SENTENCES)
        ]
        names = ("set", "reports", "share", "sentence")
        return pa.table([list(column) for column in zip(*rows, strict=True)], names=names)

    def summary(self) -> str:
        """Return one line: the exact copies of each set."""
        shares = ", ".join(f"{name} {self.cells[name, 'copy: text'].value:.1%}" for name in self.sets)
        return f"exact copies {shares}; {self.signature['reports']:,} reports each"


_OF_SETS = Nouns(prediction="set {shown}", may_have_more=True)


@public
def overlap(
    corpus: Annotated[
        str | Path | Index | Any,
        Doc(
            "Index or shard set of the training reports: a folder that [`build_index`][metric_oracle.build_index] "
            "wrote for rouge-l and bleu-2; in Python also reports. A column that the index and the references have, "
            "such as subject_id, gets a line: the share of reports whose value a training report has, too."
        ),
        Flag(metavar="INDEX"),
    ],
    sets: Annotated[
        Mapping[str, Given],
        Doc(
            "Sets of reports that models wrote, by their names in the table: each in any form that "
            "[`reports`][metric_oracle.reports] takes."
        ),
        Flag(metavar="[NAME=]FILE"),
    ],
    references: Annotated[
        Given | None,
        Doc(
            "Human test reports, with which each set of reports is compared: in any form that "
            "[`reports`][metric_oracle.reports] takes. Each set must have a report for each of their ids. By default "
            "the sets are measured without such a comparison, and need not have the same ids."
        ),
        Flag("--references"),
    ] = None,
    *,
    mask: Annotated[
        bool,
        Doc(
            "Remove markers of de-identification (___, XXXX, [** **], dates) from all reports before they are "
            "compared. The corpus is then indexed again, in a temporary folder."
        ),
        Flag(panel=READING),
    ] = False,
    resamples: option_types.Resamples | None = None,
    seed: option_types.Seed = 0,
    threads: option_types.Threads | None = None,
    progress: Progress | None = None,
) -> Overlap:
    """Measure what sets of reports copy from a training corpus, compared with the human test reports.

    The lines of the table are exact and near copies, the longest run of words shared with one training report, new
    4-grams, and how often a report is nearer to a training report than to the human report of its study.

    Returns
    -------
    Overlap
        The table, the nearest training report of every report, and the signature.

    Raises
    ------
    InputError
        If the index lacks a metric, a set lacks a report, or there is no set.

    Examples
    --------
    >>> index = mo.build_index("train.csv", "INDEX", metrics="rouge-l,bleu-2")
    >>> result = mo.overlap(index, {"strong": "strong.csv"}, "test.csv", resamples=1000)
    >>> round(result.cells["strong", "copy: text"].value, 3)
    0.042
    """
    resamples = n_resamples(resamples)
    step = silent if progress is None else progress
    near = [METRICS[name] for name in NEAR]
    index = corpus_of(corpus, near, progress)
    for metric in near:
        index.check_holds(metric)
    if not sets and references is None:
        raise InputError("there must be a set of reports; got none.", "Name the reports of a model, or references.")
    if HUMAN in sets and references is not None:
        raise InputError("sets", f"must not contain {HUMAN!r}", HUMAN, "That is the name of the references.")
    texts_of = _read_sets(index, sets, references)
    marked = {name: have_markers(reports.texts) for name, reports in texts_of.items()}
    with tempfile.TemporaryDirectory() as folder:
        compared, searched = texts_of, index
        if mask:
            step("index without markers", None, None)
            compared = {name: without_markers(reports) for name, reports in texts_of.items()}
            ids, texts = (
                [string for shard in index.shards() for string in shard.strings(column).to_pylist()]
                for column in ("study_id", "text")
            )
            corpus_reports = Reports(ids, texts, "a corpus")
            searched = build_index(
                without_markers(corpus_reports), Path(folder) / "INDEX", metrics=["rouge-l", "bleu-2"]
            )
        measured = {}
        for name, reports in compared.items():
            step(name, None, None)
            same = same_values(index, reports)
            measured[name] = measure(searched, reports, same, marked[name], SearchOptions(text=False, threads=threads))
    if references is not None:
        for name, numbers in measured.items():
            if name != HUMAN:
                measured[name] = _with_truth(numbers, measured[HUMAN])
    step("intervals", None, None)
    signature: dict[str, Any] = {
        "command": "overlap",
        "index": index.fingerprint,
        "section": index.section[0],
        "metrics": {name: {} for name in NEAR},
        "limits": list(LIMITS),
        "masked": mask,
        "reports": max(len(numbers.run) for numbers in measured.values()),
        "sets": {},
        "bootstrap": bootstrap("study", resamples, seed),
    }
    distinct = {name: len(set(numbers.folded_texts)) for name, numbers in measured.items()}
    return Overlap(measured, _cells(measured, resamples, seed), distinct, signed(**signature))


def _read_sets(index: Index, sets: Mapping[str, Given], references: Given | None) -> dict[str, Reports]:
    """Return the reports of each set by name: with references these as `HUMAN`, and the others in their order.

    Raise InputError if a set has no report for a reference. Reports that are left out are told.
    """
    sides = Sides.of(references, sets, _OF_SETS)
    tests, kept_in_both = sides.references, list[str]()
    if tests is not None and index.columns:
        kept_in_both = [name for name in tests.column_names() if name in index.columns]
    sides = sides.read(section_of(index), keep=[] if tests is None or isinstance(tests.data, Reports) else kept_in_both)
    if tests is None:
        return {**sides.written}
    human = sides.read_truth
    read = {HUMAN: replace(human, columns={name: human.columns[name] for name in kept_in_both})}
    say_columns_apart(index, read[HUMAN], kept_in_both, sides.listener)
    for name, reports in sides.written.items():
        rows = sides.join(name).predictions
        texts = [reports.texts[row] for row in rows]
        read[name] = replace(read[HUMAN], texts=texts, source=reports.source, counts={}, states={})
    return read


def _with_truth(numbers: Measured, human: Measured) -> Measured:
    """Return `numbers` with `is_nearer`; the reports of `human`, the human ones, are of the same studies in order."""
    written, truth = (replace(one.reports, is_loaded=True) for one in (numbers, human))  # they were read, and told of
    with_truth = score(written, truth, list(NEAR)).table
    nearer = {name: difference(numbers.best[name], with_truth[name].to_numpy()) > 0 for name in NEAR}
    return replace(numbers, is_nearer=nearer)


def _share(values: np.ndarray) -> Line:
    """Return the line whose value is a share: the mean of `values`, bool[n], one for each report."""
    return Line(np.asarray(values, np.float64)[None, :], lambda means: means[..., 0])


def _ratio(above: np.ndarray, below: np.ndarray) -> Line:
    """Return the line whose value is the sum of `above`, int64[n], divided by that of `below`; NaN if that is 0."""

    def value(means: Array) -> Array:
        return np.divide(means[..., 0], means[..., 1], out=np.full(means.shape[:-1], np.nan), where=means[..., 1] > 0)

    return Line(np.array([above, below], np.float64), value)


def _median(values: np.ndarray) -> Line:
    """Return the line of the median of `values`, int64[n], the lower one if n is even.

    It follows from means, as every line does: from the shares of reports that have at most each value.
    """
    levels = np.unique(values)

    def value(means: Array) -> Array:
        return levels[np.argmax(means >= 0.5 - 1e-9, axis=-1)].astype(np.float64)

    return Line((values[None, :] <= levels[:, None]).astype(np.float64), value, "percentile")


def lines_of(numbers: Measured) -> dict[str, Line]:
    """Return the lines of a set by name."""
    texts = numbers.folded_texts
    frequent, _ = Counter(texts).most_common(1)[0]
    lines = {"copy: text": _share(numbers.is_copy), "copy: tokens": _share(numbers.best["rouge-l"] == 1.0)}
    lines |= {
        f"{name} ≥ {limit}": _share(difference(numbers.best[name], limit) >= 0) for name in NEAR for limit in LIMITS
    }
    lines["longest run, median"] = _median(numbers.run)
    lines[f"longest run ≥ {LONG}"] = _share(numbers.run >= LONG)
    lines[f"new {NOVELTY}-grams"] = _ratio(numbers.n_new, numbers.n_grams)
    lines["most frequent report"] = _share(np.array([text == frequent for text in texts]))
    lines |= {f"nearer to training: {name}": _share(values) for name, values in numbers.is_nearer.items()}
    lines |= {f"same {name}": _share(values) for name, values in numbers.is_same.items()}
    return lines | {"marker": _share(numbers.is_marked)}


def _cells(measured: Mapping[str, Measured], resamples: int, seed: int) -> dict[tuple[str, str], LineValue]:
    """Return all cells by set and line; with human reports the studies of all sets are drawn together."""
    lines = {name: lines_of(numbers) for name, numbers in measured.items()}
    alike = [list(measured)] if HUMAN in measured else [[name] for name in measured]
    cells = {}
    for names in alike:
        columns = [line.columns for name in names for line in lines[name].values()]
        means = _means(np.concatenate(columns), resamples, seed)
        parts, begin = {}, 0
        for name in names:
            for label, line in lines[name].items():
                parts[name, label] = means.map(_slice(begin, len(line.columns), line.value))
                begin += len(line.columns)
        for (name, label), part in parts.items():
            method, human = lines[name][label].method, parts.get((HUMAN, label))
            cell = LineValue(float(part.value), _interval(part, method))
            if human is not None and name != HUMAN:
                between = part - human
                cell = cell._replace(difference=float(between.value), difference_interval=_interval(between, method))
            cells[name, label] = cell
    return cells


def _slice(begin: int, size: int, value: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return `value` as a function of all columns, of which it takes those from `begin` to `begin + size`."""
    return lambda means: value(means[..., begin : begin + size])


def _means(columns: Array, resamples: int, seed: int) -> Resampled:
    """Return the means of columns, float64[c, n], and their resamples; those of a single report are all equal."""
    return resample_means(np.repeat(columns, 2, axis=1) if columns.shape[1] < 2 else columns, resamples, seed)


def _interval(part: Resampled, method: str) -> Interval | None:
    """Return the interval of one line by `method`; None if the value, or that of a resample, is not finite.

    Without variation both ends are the value, and the interval is degenerate.
    """
    if not np.isfinite(part.value):
        return None
    if not varies(part.resampled):
        return Interval(float(part.value), float(part.value), degenerate=True)
    return part.interval(method)
