"""Agreement of metrics with each radiologist on one rated set: tables S2 and figure 3 of Yu et al. (Patterns 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.validation import public
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, listing, pivot
from metric_oracle.findings.signature import bootstrap, signed
from metric_oracle.raters.interrater import RESAMPLES, raters_among_themselves
from metric_oracle.raters.metric_agreement import (
    INTERVAL,
    MEAN,
    SCHEMA,
    PairedMetrics,
    ScoredRatings,
    check_varied,
    differences_of,
    draw_resamples,
    notes_on,
    pairs_to_compare,
    view_of,
)
from metric_oracle.raters.names import (
    ACCURACY_NOTE,
    MORE_NOTES,
    TEST,
    TITLES,
    agreement_cell,
    kind_in_line,
    kind_name,
    rater_name,
    statistic_name,
)
from metric_oracle.raters.rank_correlation import ACCURACY, SPEARMAN, TAU, TIES, WHOLE, WITHIN
from metric_oracle.raters.rated_scores import MetricsOfPairs, ScoreFiles, Texts, lower_is_better, read_rated
from metric_oracle.raters.ratings import AnyRated
from metric_oracle.raters.scatter import scatter
from metric_oracle.statistics import Array, few_studies

AMONG = "raters among themselves"
_COMMAND = "align"


@dataclass(frozen=True, repr=False)
class Alignment(Finding):
    """Agreement of every metric with each radiologist and with their mean.

    Attributes
    ----------
    table : pyarrow.Table
        All numbers, as they are written to a file: the rows of `metrics`, of `raters` (without a metric), and of
        `differences` (``versus`` is the second metric, ``value`` the difference).
    signature : dict
        What is needed to compute the same numbers again.
    scores : dict of float64[P]
        Scores of each metric, as they were read.
    errors : dict of float64[P]
        Mean of the raters for each kind of errors.
    """

    table: pa.Table
    signature: dict[str, Any]
    scores: dict[str, Array]
    errors: dict[str, Array]

    @property
    def metrics(self) -> pa.Table:
        """One row for each metric, kind of errors, rater and statistic: the value and its percentile and BCa intervals.

        ``degenerate`` is the number of resamples without a value. A value or an end that does not exist is null.
        """
        import pyarrow.compute as pc

        rows = self.table.filter(pc.field("metric").is_valid() & pc.field("versus").is_null())
        return rows.select(["metric", "errors", "rater", "statistic", *INTERVAL, "degenerate"])

    @property
    def raters(self) -> pa.Table:
        """One row for each kind of errors and statistic of the raters' agreement with one another.

        It is empty for one rater.
        """
        import pyarrow.compute as pc

        rows = self.table.filter(pc.field("metric").is_null())
        return rows.select(["errors", "statistic", "value", "low", "high", "degenerate"])

    @property
    def differences(self) -> pa.Table:
        """One row for each statistic, kind of errors and pair of metrics, with the mean of raters.

        ``difference`` is a - b (positive: a agrees more), with its percentile interval, its two-sided p-value from the
        same resamples, and the p-value adjusted over the pairs and kinds of that statistic (Benjamini and Hochberg).
        """
        import pyarrow.compute as pc

        name_of = {"metric": "a", "versus": "b", "value": "difference"}
        names = [
            "statistic",
            "errors",
            "metric",
            "versus",
            "value",
            "low",
            "high",
            "p_value",
            "p_adjusted",
            "degenerate",
        ]
        rows = self.table.filter(pc.field("versus").is_valid()).select(names)
        return rows.rename_columns([name_of.get(name, name) for name in names])

    def summary(self) -> str:
        """Return one line that says what was compared."""
        counts = f"{self.signature['pairs']:,} pairs of {self.signature['studies']:,} studies"
        return f"{counts}, {self.signature['raters']} raters: {', '.join(self.scores)}"

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        return few_studies({"": self.signature["studies"]})

    def tables(self) -> list[PaperTable]:
        """Return agreement by rater and within studies, that of the raters, and differences of metrics."""
        rows = [{**r, "row": _name(r["metric"], r["errors"])} for r in self.metrics.to_pylist()]
        statistics = list(dict.fromkeys(r["statistic"] for r in rows))
        subject = "metric scores and counted errors" if TAU in statistics else "metrics"
        tables = [
            pivot(
                f"{TITLES[statistic]} of {subject}, by radiologist",
                [r for r in rows if r["statistic"] == statistic],
                "row",
                "rater",
                agreement_cell,
                named=lambda rater: "Mean of raters" if rater == MEAN else rater_name(rater),
            )
            for statistic in [s for s in (TAU, SPEARMAN) if s in statistics] or statistics[:1]
        ]
        within = [statistic for statistic in (WITHIN, ACCURACY, TIES, WHOLE) if statistic in statistics]
        with_mean = [r for name in within for r in rows if (r["rater"], r["statistic"]) == (MEAN, name)]
        if any(r["value"] is not None for r in with_mean if r["statistic"] == within[0]):
            notes = [
                (
                    "Within studies: between candidates for one reference alone, where a metric cannot gain by telling "
                    f"easy studies from hard ones. {ACCURACY_NOTE}"
                ),
                *(text for name, text in MORE_NOTES.items() if name in within),
            ]
            title = "Agreement within studies, with the mean of raters"
            tables.append(pivot(title, with_mean, "row", "statistic", agreement_cell, notes, named=TITLES.__getitem__))
        if self.raters.num_rows:
            tables.append(self._raters_table())
        differences = [r for r in self.records() if r["versus"] and r["statistic"] == statistics[0]]
        if differences:
            note = (
                "Both metrics on the same resampled studies, with the mean of raters. p: two-sided, from the "
                f"bootstrap; adjusted by Benjamini and Hochberg over one family, these {len(differences)} tests: each "
                "pair of metrics once, for each count of errors. So it depends on how many metrics are compared. A "
                "result file, such as CSV, has the other statistics, each with a family of its own."
            )
            title = f"Difference of two metrics in {statistic_name(statistics[0])}"
            tables.append(listing(title, differences, _difference_name, TEST, [note]))
        tables[0].notes.extend(self._notes())
        return tables

    def _raters_table(self) -> PaperTable:
        """Return the table of the raters' agreement with one another."""
        rows = self.raters.to_pylist()
        note = (
            "Leave-one-rater-out: a rater against the mean of the others, averaged over raters: about the most that a "
            "metric can reach with one rater."
        )
        if any(r["statistic"].startswith("ICC") for r in rows):
            note = f"ICC(A,1), ICC(A,k): absolute agreement of one rater and of the mean of all. {note}"
        title = "Agreement of the radiologists with one another"
        return pivot(title, rows, "statistic", "errors", agreement_cell, [note], named=kind_in_line)

    def _notes(self) -> list[str]:
        """Return the notes on pairs, resamples and directions."""
        signature, resampled = self.signature, self.signature["bootstrap"]
        left_out = f" ({signature['left_out']:,} identical pairs left out)" if signature["left_out"] else ""
        return [
            (
                f"{signature['pairs']:,} pairs of {signature['studies']:,} studies{left_out}; 95 % percentile "
                f"intervals from {resampled['resamples']:,} resamples of studies, seed {resampled['seed']}, the raters "
                "fixed; positive: a better score goes with fewer errors."
            ),
            *self.warnings(),
            *notes_on(signature, sum(self.metrics["degenerate"].to_pylist()), "counts"),
        ]

    def figure(self, width: float | None = None) -> Any:
        """Return a Matplotlib figure: mean errors against scores with the least-squares line, figure 3 of Yu et al.

        By default it is at most 180 millimetres wide.
        """
        row_of = {
            (r["metric"], r["errors"]): r
            for r in self.metrics.to_pylist()
            if (r["rater"], r["statistic"]) == (MEAN, TAU)
        }
        return scatter(self.scores, self.errors, row_of, self.signature["lower_is_better"], width)


def _name(metric: str, kind: str) -> str:
    return f"{metric}\n{kind_name(kind)}"


def _difference_name(row: Mapping[str, Any]) -> str:
    return _name(f"{row['metric']} − {row['versus']}", row["errors"])


@public
def align(
    ratings: AnyRated,
    scores: ScoreFiles = (),
    *,
    samples: Texts | None = None,
    metrics: MetricsOfPairs | None = None,
    directions: option_types.Directions | None = None,
    paired: PairedMetrics | None = None,
    without_identical: Annotated[
        bool,
        Doc(
            "Leave out pairs whose two reports are equal (ReXVal* of Cho et al. 2025), for which the texts must be "
            "known. By default all pairs are used."
        ),
    ] = False,
    resamples: option_types.ResamplesOfRaters = RESAMPLES,
    seed: option_types.Seed = 0,
) -> Alignment:
    """Measure how well metrics agree with the errors that radiologists counted: Kendall's tau-b and Spearman's rho.

    Agreement is computed with each radiologist and with their mean. Without `scores`, the texts of the pairs are scored
    under the metrics that need no other file. A table of scores names a pair by pair_id, or by study_id (or
    study_number) and candidate_type. Intervals are from resampled studies.

    Returns
    -------
    Alignment
        Agreement of each metric with each rater, with its intervals, and the tests between metrics.

    Raises
    ------
    InputError
        If a file breaks its format, scores lack pairs, a direction is unknown, every column is constant, or fewer than
        two studies are left.

    See Also
    --------
    compare_metrics : The same statistics with the mean of raters, on several rated sets.

    Examples
    --------
    >>> mo.align("ratings.csv", samples="samples.csv", metrics=["bleu", "rouge-l"], resamples=200)
    <Alignment: 96 pairs of 24 studies, 3 raters: bleu-2, rouge-l>
    """
    resamples, seed = int(resamples), int(seed)
    rated, columns, sources = read_rated(ratings, scores, samples, metrics)
    lower = lower_is_better(list(columns), directions or {})
    pairs = pairs_to_compare(list(columns), paired)
    left_out = 0
    if without_identical:
        differing = rated.differing()
        rated, columns = rated.subset(differing), {name: values[differing] for name, values in columns.items()}
        left_out = int((~differing).sum())
    check_varied(rated, columns)
    part = ScoredRatings(rated, columns, lower, draw_resamples(rated, resamples, seed))
    rows, values = part.agreement("rater")
    rows += [
        {"errors": kind, "rater": AMONG, **row, "bca_low": None, "bca_high": None}
        for kind in rated.kinds
        if len(rated.raters) > 1
        for row in raters_among_themselves(rated.by_rater(kind), part.drawn, rated.statistics)
    ]
    differences = differences_of({"": part}, {"": values}, pairs)
    rows += [{**row, "rater": MEAN} for row in sorted(differences, key=part.place)]
    signature = signed(
        command=_COMMAND,
        **sources,
        metrics=list(columns),
        lower_is_better=[name for name in columns if name in lower],
        paired=[list(pair) for pair in pairs],
        left_out=left_out,
        pairs=len(rated.pairs),
        studies=len(set(rated.studies)),
        raters=len(rated.raters),
        bootstrap=bootstrap("study", resamples, seed),
    )
    table = pa.Table.from_pylist(rows, SCHEMA).drop_columns(["what", "set", "device"])
    return Alignment(table, signature, columns, view_of("", "", part).errors)
