"""Expected scores of random retrieval: exact means over the whole corpus, deviations, quantiles and a histogram.

Under a judge, which cannot score the whole corpus, the means are estimated from a sample (`controlled`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from annotated_doc import Doc
from annotated_types import Gt, Interval

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.declarations import IN_PYTHON, Flag, Uses
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import package_version
from metric_oracle.base.operating_system import n_threads
from metric_oracle.base.option_types import RESULTS, Millimetres
from metric_oracle.base.progress import Progress, counter
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.cells import number_of
from metric_oracle.findings.figures import ORANGE, finish, literal, new_figure
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, listing
from metric_oracle.findings.results import read_signed
from metric_oracle.findings.writing import write_numbers
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.judges.given import GivenJudge, one_judge
from metric_oracle.judges.judge import Judge
from metric_oracle.metrics import get_metric, title_of
from metric_oracle.reading import Queries, attached, loaded
from metric_oracle.retrieval.checks import section_entry
from metric_oracle.retrieval.corpus_index import corpus_of
from metric_oracle.retrieval.options import DEFAULTS, SETTINGS, SearchOptions
from metric_oracle.retrieval.plan import Plan, plan_scores
from metric_oracle.retrieval.search_signature import digest, signature
from metric_oracle.retrieval.thread_pool import in_queries, run_blocks
from metric_oracle.scores.baselines import DRAWS, SEED, drawn_rows
from metric_oracle.scores.controlled import ControlledMeans, controlled_means
from metric_oracle.scores.sampled import ROUNDS, SPARE

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS_OF_STUDY = 128
SHOWN_QUERIES = 20
FINEST = -10  # exponent of the smallest width of a bin, 2**-10
FREEDOM = 400  # fewest degrees of freedom with which a standard error ends a sample; fewer estimate it badly


@dataclass(frozen=True, repr=False)
class Expectation(Finding):
    """Statistics of the scores of every query with all corpus rows.

    Attributes
    ----------
    table : pyarrow.Table
        Columns query_id, mean, sd (with n as the divisor), min, one per quantile (q05, ...), max, and n, the number of
        corpus rows that the metric can score. Under a judge, mean is an estimate, and there are only query_id, mean
        and n.
    edges : float64[B + 1]
        Edges of the bins of a histogram of all scores; under a judge, of those of the sample.
    counts : int64[B]
        Number of pairs in each bin. A bin includes its lower edge, the last bin both edges.
    signature : dict
        Record of everything needed to compute the same numbers again. Its entry `error` bounds the error of each score;
        it is 0 if scores equal those of the plain scorer. Under a judge, its entry `sampled` has the standard error of
        the mean over all test reports; that without correction (`plain_error`, of `plain_mean`); the number of random
        reports for each (`rows`), of distinct `pairs`, and the slope of each metric.
    """

    table: pa.Table
    edges: np.ndarray
    counts: np.ndarray
    signature: dict[str, Any]

    def summary(self) -> str:
        """Return one line: the number of queries and the mean score."""
        return f"{self.table.num_rows:,} lines, mean score {self.table['mean'].to_numpy().mean():z.4f}"

    @property
    def sample(self) -> str:
        """How the means under a judge were estimated; empty without a judge."""
        sampled = self.signature.get("sampled")
        if sampled is None:
            return ""
        error = f"standard error {sampled['standard_error']:.1g}"
        if not sampled["standard_error"]:
            error = "standard error not known, as the random reports of each test report have equal scores"
        return (
            f"{error}; {sampled['pairs']:,} pairs were judged; without the "
            f"correction by the exact means of {', '.join(sampled['slopes'])} the mean would be "
            f"{sampled['plain_mean']:z.4f}, standard error {sampled['plain_error']:.1g}"
        )

    def tables(self) -> list[PaperTable]:
        """Return the score distributions of the first queries, and the mean over all queries."""
        columns = {name: number_of(name) for name in self.table.column_names if name not in ("query_id", "n")}
        n, n_rows = self.table.num_rows, self.table["n"][0].as_py()
        lines = [f"{n:,} test reports x {n_rows:,} reports, mean score {self.table['mean'].to_numpy().mean():z.4f}"]
        if self.sample:
            lines.append(self.sample)
        elif self.signature["error"] > 0:
            lines.append(f"error of a score at most {self.signature['error']:.1e}")
        if n > SHOWN_QUERIES:
            lines.append(f"shown: the first {SHOWN_QUERIES}; a file has all")
        how = "exact over the corpus"
        if self.sample:
            how = f"from {self.signature['sampled']['rows']:,} for each test report"
        title = f"{self.signature['metric']} of a random report: {how}"
        rows = self.table.slice(0, SHOWN_QUERIES).to_pylist()
        return [listing(title, rows, "query_id", columns, ["; ".join(lines)], "query")]

    def figure(self, width: float | None = None) -> Any:
        """Return a Matplotlib figure: the share of all pairs in each bin of scores, and the mean.

        By default it is 110 millimetres wide.
        """
        means, n_rows = self.table["mean"].to_numpy(), self.table["n"][0].as_py()
        figure = new_figure(width or 110, 65)
        axes = figure.subplots()
        axes.stairs(100 * self.counts / self.counts.sum(), self.edges, fill=True, color="#b9c3cf")
        axes.axvline(means.mean(), color=ORANGE, linewidth=1, label=f"mean {means.mean():z.4f}")
        axes.set_xlim(self.edges[0], self.edges[-1])
        axes.set_xlabel(
            f"{literal(title_of(self.signature['metric']))} of a test report and a random report of the corpus"
        )
        axes.set_ylabel("pairs (%)")
        drawn = f"{self.signature['sampled']['rows']:,} random" if self.sample else f"{n_rows:,}"
        axes.set_title(f"{len(means):,} test reports x {drawn} reports", loc="left")
        axes.legend()
        return finish(figure)

    @public
    def write(self, path: str | Path, width: Millimetres | None = None) -> None:
        """Write tables, numbers or figure, as other results do; with numbers, the signature has the histogram."""
        path = Path(path)
        if path.suffix.lower() not in RESULTS:
            super().write(path, width)
            return
        check_left_out({"width": width}, "for a file that is no figure")
        histogram = {"edges": self.edges.tolist(), "counts": self.counts.tolist()}
        write_numbers(path, self.table, {**self.signature, "histogram": histogram})


def expectation_of(
    plan: Plan,
    queries: Reports,
    *,
    quantiles: Sequence[float] = QUANTILES,
    bins: int = BINS_OF_STUDY,
    progress: Progress | None = None,
) -> Expectation:
    """Return statistics of the scores of every query with all corpus rows, from which random retrieval draws.

    Every row has the same weight, so a text counts as often as it occurs. Nothing is sampled. Only the scores of a few
    queries are in memory at a time. `progress` has numbers of queries.

    The p-quantile is the lowest score that at least p of the rows do not exceed: NumPy's method "inverted_cdf". The
    width of the bins is the smallest power of two with which `bins` are enough: at least 2, because 0 is always an
    edge.

    `signature["error"]` bounds the error of a score. CheXbert's comes from float64 products, BERTScore's from short
    sums in float32 (7.2e-7 before scores are rescaled); other metrics have none. Summation adds less than 1e-13 of the
    size of the scores, so means and deviations over a shard set may differ that much from those of one index.
    """
    from metric_oracle.kernels._distribution import new_scratch, summarise

    pairs, names = plan.pairs(queries), _quantile_names(quantiles)
    rows, n_rows = np.diff(pairs.row_ptr), int(pairs.row_ptr[-1])
    ranks = np.array([max(math.ceil(n_rows * p), 1) for p in quantiles], np.int64)
    times = np.bincount(pairs.which)  # queries of each distinct one
    statistics_of = np.empty((len(times), 4 + len(ranks)))
    size = pairs.scanned.kernel.capabilities.queries_at_once
    idle: list[Any] = []
    histograms: list[_Bins] = []

    def run(first: int) -> int:
        """Describe the scores of a block of distinct queries, which begins at number `first`; return its size."""
        last = min(first + size, len(times))
        room = idle.pop() if idle else new_scratch(len(rows))
        of_block: list[_Bins] = []
        for q, of_query in zip(range(first, last), pairs.scan(range(first, last)), strict=True):
            exponent, lowest, n = summarise(of_query, rows, ranks, room, statistics_of[q])
            of_block.append(_Bins(exponent, lowest, room.counts[0, :n] * times[q]))
        histograms.append(reduce(_added_bins, of_block))
        idle.append(room)
        return last - first

    threads = plan.options.threads or n_threads()
    count = counter(progress, "", len(queries.ids))
    run_blocks(run, range(0, len(times), size), threads, in_queries(count, len(times), len(pairs.which)))
    total = reduce(_added_bins, histograms)
    edges, counts = _histogram(total, float(statistics_of[:, 2].min()), float(statistics_of[:, 3].max()), bins)
    mean, sd, least, greatest, *columns = statistics_of[pairs.which].T
    table = pa.table(
        {
            "query_id": pa.array(queries.ids, pa.large_string()),
            "mean": mean,
            "sd": sd,
            "min": least,
            **dict(zip(names, columns, strict=True)),
            "max": greatest,
            "n": np.full(len(mean), n_rows),
        }
    )
    entries = signature(plan.index, queries, plan.metric, "cpu", 1)
    del entries["k"], entries["ties"]
    described = {
        "baseline": "expectation",
        "quantiles": [float(p) for p in quantiles],
        "quantile_method": "inverted_cdf",
        "error": pairs.error,
    }
    return Expectation(table, edges, counts, {**entries, **pairs.settings, **described})


@dataclass(frozen=True)
class RandomPairs:
    """Queries with random rows of a corpus: for each as many as are judged at most, those of the baseline random."""

    index: Index
    queries: Reports
    seed: int
    rows: np.ndarray  # int64[Q, R], corpus rows of each query

    @classmethod
    def of(cls, index: Index, queries: Reports, draws: int, seed: int) -> "RandomPairs":
        """Draw the rows of each query."""
        rows = drawn_rows(np.arange(index.n_reports), len(queries.ids), seed, draws)
        return cls(index, queries, seed, rows)

    @cached_property
    def texts(self) -> list[list[tuple[str, str]]]:
        """The texts of the pairs of each query."""
        distinct, place = np.unique(self.rows, return_inverse=True)
        texts = self.index.take("text", distinct).to_pylist()
        by_query = zip(self.queries.texts, place.reshape(self.rows.shape), strict=True)
        return [[(text, texts[i]) for i in of_query.tolist()] for text, of_query in by_query]

    def check_cost(self, judge: Judge, tell: Callable[[str], None] | None = None) -> None:
        """Tell what it costs to judge all pairs; raise InputError if they are too many."""
        every = [*{pair for of_query in self.texts for pair in of_query}]
        judge.check_cost(len(every), judge.n_kept(every), tell)


@dataclass(frozen=True)
class Control:
    """A metric whose exact means over the corpus correct an estimate under a judge."""

    plan: Plan
    means: np.ndarray | None = None  # float64[Q], of each query, if they are known already

    def deviations(self, pairs: RandomPairs, progress: Progress | None) -> np.ndarray:
        """Return the metric's scores of the pairs less its exact means: float64[Q, R].

        They are 0 for rows that the metric cannot score, so that their expectation is 0 in any case.
        """
        means = self.means
        if means is None:
            means = expectation_of(self.plan, pairs.queries, progress=progress).table["mean"].to_numpy()
        query = np.repeat(np.arange(len(pairs.rows)), pairs.rows.shape[1])
        scores = self.plan.pairs(pairs.queries).score_corpus_rows(query, pairs.rows.ravel())
        deviations = scores - means[query]
        return np.where(np.isnan(deviations), 0.0, deviations).reshape(pairs.rows.shape)


def judged_expectation(
    pairs: RandomPairs,
    judge: Judge,
    controls: Sequence[Control] = (),
    *,
    error: float = 0.0,
    bins: int = BINS_OF_STUDY,
    progress: Progress | None = None,
) -> Expectation:
    """Return the means of a judge's scores of each query with all corpus rows, estimated from random rows.

    No more of the pairs are judged than are needed for the standard error `error` of the mean over all queries. Steps
    of `progress` are the names of the metrics and of the judge.
    """
    index, queries = pairs.index, pairs.queries
    deviations = np.empty((len(controls), *pairs.rows.shape))
    for of_control, control in zip(deviations, controls, strict=True):
        of_control[:] = control.deviations(pairs, progress)
    sample = _judged(pairs, judge, deviations, error, progress)
    scores, estimate = sample.scores, sample.estimate
    table = pa.table(
        {
            "query_id": pa.array(queries.ids, pa.large_string()),
            "mean": estimate.means,
            "n": np.full(len(queries.ids), index.n_reports),
        }
    )
    below = np.floor(np.ldexp(scores.ravel(), -FINEST)).astype(np.int64)
    fine = _Bins(FINEST, int(below.min()), np.bincount(below - below.min()))
    edges, counts = _histogram(fine, float(scores.min()), float(scores.max()), bins)
    slopes = zip(controls, estimate.slopes, strict=True)
    entries = {
        "metric": judge.name,
        "source": f"the judge {judge.name}",
        "direction": judge.direction,
        "judge": judge.recorded,
        "index": index.fingerprint,
        **section_entry(index, queries),
        "version": package_version(),
        "references": digest(queries),
        "baseline": "expectation",
        "sampled": {
            "standard_error": estimate.standard_error,
            "rows": scores.shape[1],
            "seed": pairs.seed,
            "pairs": sample.n_pairs,
            "plain_mean": float(estimate.plain.mean()),
            "plain_error": estimate.plain_error,
            "slopes": {control.plan.metric.name: float(slope) for control, slope in slopes},
        },
        **sample.notes,
    }
    return Expectation(table, edges, counts, entries)


class _Judged(NamedTuple):
    """The random pairs that a judge scored, and what follows from their scores."""

    scores: np.ndarray  # float64[Q, R], of as many rows of each query
    estimate: ControlledMeans
    n_pairs: int  # distinct pairs
    notes: dict[str, Any]  # of the judge, for the signature


def _judged(
    pairs: RandomPairs, judge: Judge, deviations: np.ndarray, error: float, progress: Progress | None
) -> _Judged:
    """Judge some rows of each query, then more, until the standard error is `error` (0: all rows).

    `deviations` are those of the controls, float64[M, Q, R].
    """
    n_queries, draws = pairs.rows.shape
    n_drawn = draws if error == 0 else min(max(ROUNDS, 1 + math.ceil(FREEDOM / n_queries)), draws)
    score_of, notes = dict[tuple[str, str], float](), dict[str, Any]()
    while True:
        drawn = [of_query[:n_drawn] for of_query in pairs.texts]
        new = [*{pair: None for of_query in drawn for pair in of_query if pair not in score_of}]
        judgements = judge.score(new, counter(progress, judge.name, len(new)))
        score_of |= zip(new, judgements.scores.tolist(), strict=True)
        notes |= judgements.notes
        scores = np.array([[score_of[pair] for pair in of_query] for of_query in drawn])
        estimate = controlled_means(scores, deviations[:, :, :n_drawn])
        if n_drawn == draws or 0 < estimate.standard_error <= error:
            return _Judged(scores, estimate, len(score_of), notes)
        wanted = SPARE * n_drawn * (estimate.standard_error / error) ** 2 or 2 * n_drawn  # of equal scores, more
        n_drawn = min(max(math.ceil(wanted), n_drawn + 1), draws)


def read_expectation(path: str | Path) -> Expectation:
    """Read the file that `Expectation.write` wrote."""
    names = ("expectation", "`mo.expectation`")
    table, signature = read_signed(Path(path), names, ("query_id",), _with_column_types)
    histogram = signature.pop("histogram")
    return Expectation(table, np.array(histogram["edges"]), np.array(histogram["counts"], np.int64), signature)


def _with_column_types(table: pa.Table, signature: dict[str, Any]) -> pa.Table:
    """Return the table with the column types that CSV does not record; raise ValueError if it is not an expectation."""
    edges, counts = (np.array(signature["histogram"][name], float) for name in ("edges", "counts"))
    whole = table.num_rows > 0 and len(edges) == len(counts) + 1 and counts.sum() > 0
    is_named = signature["baseline"] == "expectation" and table.column_names[:2] == ["query_id", "mean"]
    if not (is_named and whole) or any(table[name].null_count for name in ("query_id", "mean", "n")):
        raise ValueError
    table = table.set_column(0, pa.field("query_id", pa.large_string()), table["query_id"].cast(pa.large_string()))
    return table.set_column(1, pa.field("mean", pa.float64()), table["mean"].cast(pa.float64()))


def _quantile_names(quantiles: Sequence[float]) -> list[str]:
    """Return the column name of each quantile, such as q05 or q97.5; raise InputError for a wrong or repeated one."""
    names = []
    for p in quantiles:
        if isinstance(p, bool) or not isinstance(p, float | int | np.floating) or not 0 <= p <= 1:
            raise InputError("quantiles", "must be numbers from 0 to 1", shown(p), "Leave it out.")
        whole, point, rest = f"{100 * p:.10g}".partition(".")
        names.append(f"q{whole:0>2}{point}{rest}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError("quantiles", "must differ", f"two that are called {twice}", "Leave one out.")
    return names


class _Bins(NamedTuple):
    """Counts of scores. Bin i is for scores from (first + i) * 2**exponent to below (first + i + 1) * 2**exponent."""

    exponent: int
    first: int
    counts: np.ndarray  # int64[n], one for each bin


def _coarser(bins: _Bins, exponent: int) -> _Bins:
    """Return the counts in bins of width 2**exponent, at least as wide as those of `bins`."""
    shift = exponent - bins.exponent
    if not shift:
        return bins
    wide_bin = (bins.first + np.arange(len(bins.counts))) >> min(shift, 62)
    counts = np.zeros(int(wide_bin[-1] - wide_bin[0]) + 1, np.int64)
    np.add.at(counts, wide_bin - wide_bin[0], bins.counts)
    return _Bins(exponent, int(wide_bin[0]), counts)


def _added_bins(a: _Bins, b: _Bins) -> _Bins:
    """Return the sum of two histograms, with bins as wide as the wider ones, or wider if more than `BINS` result."""
    from metric_oracle.kernels._distribution import BINS

    exponent = max(a.exponent, b.exponent)
    while True:
        a, b = _coarser(a, exponent), _coarser(b, exponent)
        first = min(a.first, b.first)
        n = max(a.first + len(a.counts), b.first + len(b.counts)) - first
        if n <= BINS:
            counts = np.zeros(n, np.int64)
            for bins in (a, b):
                counts[bins.first - first : bins.first - first + len(bins.counts)] += bins.counts
            return _Bins(exponent, first, counts)
        exponent += 1


def _histogram(bins: _Bins, least: float, greatest: float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return edges, float64[B + 1], and counts, int64[B], of at most `most` bins for scores from `least` to `greatest`.

    The last bin includes its upper edge, as in NumPy.
    """
    exponent = max(bins.exponent, FINEST)
    while True:
        scale = math.ldexp(1.0, -exponent)
        first = math.floor(least * scale)
        n = max(math.ceil(greatest * scale) - first, 1)
        if n <= most:
            break
        exponent += 1
    counts = _coarser(bins, exponent).counts
    if len(counts) > n:
        counts = np.append(counts[: n - 1], counts[n - 1 :].sum())
    return np.ldexp(np.arange(first, first + n + 1, dtype=np.float64), exponent), counts


@public
def expectation(
    index: AnyIndex,
    queries: Queries,
    metric: Annotated[
        str | GivenJudge | Sequence[str | GivenJudge],
        Doc(
            "Metric of the scores, such as bleu, rouge-l or radgraph, see "
            "[`list_metrics`][metric_oracle.list_metrics]; no sum. Or a judge: its name in oracle.toml, in Python what "
            "``judge`` returns; and with it, after commas, metrics whose exact means correct the estimate."
        ),
        option_types.METRIC,
    ],
    *,
    draws: Annotated[
        Annotated[int, Interval(ge=2, le=10_000)] | None,
        Doc(f"With a judge: most random reports that it scores for each test report. By default {DRAWS}."),
    ] = None,
    error: Annotated[
        Annotated[float, Gt(0)] | None,
        Doc(
            "With a judge: standard error of the mean over all test reports at which no more random reports are drawn. "
            "By default there are `draws` for each."
        ),
        Flag(metavar="E"),
    ] = None,
    seed: option_types.Seed | None = None,
    quantiles: Annotated[
        Sequence[float],
        Doc(
            "Quantiles to compute under a metric, from 0 to 1; under a judge there are none. The p-quantile is the "
            'lowest score that a share p of the reports does not exceed: NumPy\'s method "inverted_cdf".'
        ),
        IN_PYTHON,
    ] = QUANTILES,
    bins: Annotated[
        option_types.Bins,
        Doc(
            "Largest number of bins of the histogram. The width of a bin is the smallest power of two with so many "
            "bins."
        ),
        IN_PYTHON,
    ] = BINS_OF_STUDY,
    options: Annotated[
        SearchOptions | None,
        Doc("Options that change scores, such as `idf` and `rescale`, and `threads`."),
        Uses("threads", *SETTINGS),
    ] = None,
    progress: Progress | None = None,
) -> Expectation:
    """Compute exact statistics of random retrieval: mean, standard deviation and quantiles of the scores.

    The statistics of a test report are over its scores with all reports of the corpus, so that nothing is drawn. The
    scores of a judge cannot be computed for the whole corpus: their means are estimated from random reports, and
    corrected by the exact means of metrics; `draws`, `error` and `seed` are for this sample.

    Returns
    -------
    Expectation
        For each query the mean, standard deviation, minimum, quantiles and maximum of the scores; and a histogram of
        the scores of all pairs.

    Raises
    ------
    InputError
        If an argument is wrong, or the test reports do not fit the index or lack what the metric reads.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> index = mo.build_index(["small effusion", "clear"], metrics="rouge-l")
    >>> mo.expectation(index, ["small effusion"], "rouge-l").table["mean"].to_pylist()
    [0.5]
    """
    _quantile_names(quantiles)  # before a file is opened
    names, unopened_judge = one_judge(metric, "metric")
    if unopened_judge is None:
        check_left_out({"draws": draws, "error": error, "seed": seed}, "without a judge")
        if names is None or len(names) != 1:
            got = len(names or ())
            raise InputError("metric", "must be a single one", got, "Ask for one at a time.")
        plan = plan_scores(index, names[0], options or DEFAULTS, progress)
        asked = loaded(queries, plan.index, progress, metrics=[plan.metric])
        return expectation_of(plan, asked, quantiles=quantiles, bins=bins, progress=progress)
    with unopened_judge.opened() as judge:
        corpus = corpus_of(index, map(get_metric, names or ()), progress)
        controls = [Control(plan_scores(corpus, name, options or DEFAULTS)) for name in names or ()]
        asked = loaded(queries, corpus, progress, metrics=[control.plan.metric for control in controls])
        pairs = RandomPairs.of(corpus, asked, draws or DRAWS, seed or SEED)
        pairs.check_cost(judge, attached(queries).models.get("tell"))
        return judged_expectation(pairs, judge, controls, error=error or 0.0, bins=bins, progress=progress)
