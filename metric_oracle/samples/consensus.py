"""Consensus: of several reports of a study, the one that agrees best with the others (minimum Bayes risk decoding)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base.argument_checks import check_left_out, check_one_of
from metric_oracle.base.progress import Progress, silent
from metric_oracle.base.validation import public
from metric_oracle.corpora.samples import Samples
from metric_oracle.findings.cells import Format, number_of, text_of
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, listing
from metric_oracle.findings.signature import signed
from metric_oracle.findings.writing import check_out, write_numbers
from metric_oracle.judges.given import opened_judges, parted
from metric_oracle.judges.judge import Judge
from metric_oracle.metrics import get_metric
from metric_oracle.records import Metric
from metric_oracle.retrieval.options import DEFAULTS
from metric_oracle.samples.matrices import (
    CountedIndex,
    MetricsOfSamples,
    OptionsOfSamples,
    SampledGroups,
    SampledReports,
    checked_metrics,
    judged_matrices,
    made_by,
    signature_of,
)
from metric_oracle.scores.groups import expected_scores
from metric_oracle.sides import Sides
from metric_oracle.statistics import Array, first_best

# The columns of the printed table.
_COLUMNS: dict[str, Format] = {
    "chosen samples": number_of("chosen"),
    "all samples": number_of("all"),
    "not the first": number_of("changed", ","),
    "better": text_of("direction"),
}


@dataclass(frozen=True, repr=False)
class Consensus(Finding):
    """The chosen sample of each study, for each metric. Made by [`consensus`][metric_oracle.consensus].

    Parameters
    ----------
    samples : Samples
        The samples from which the reports were chosen.
    chosen : dict of str to list of int
        Metric -> index of the chosen sample among the samples of each study.
    utilities : dict of str to list of numpy.ndarray
        Metric -> for each study the expected score of each sample, float64[N]; NaN for the only sample of a study.
    matrices : dict of str to list of numpy.ndarray
        Metric -> for each study the scores of all pairs, float64[N, N]: row i, column j is sample i with sample j as
        the reference.
    signature : dict
        What is needed to make the same choice again.

    Examples
    --------
    >>> chosen = mo.consensus({"s1": ["no edema", "no edema seen", "clear"]}, "rouge-l")
    >>> chosen.predictions("rouge-l")
    {'s1': 'no edema'}
    """

    samples: Samples
    chosen: dict[str, list[int]]
    utilities: dict[str, list[Array]]
    matrices: dict[str, list[Array]]
    signature: dict[str, Any]

    def summary(self) -> str:
        """Return one line without ids and texts.

        Returns
        -------
        str
            Numbers of studies and samples, and the metrics.
        """
        n = len(self.samples.ids)
        return f"{n:,} studies, {sum(self.samples.sizes):,} samples: {', '.join(self.chosen)}"

    @public
    def predictions(self, metric: str) -> dict[str, str]:
        """Return the chosen report of each study under a metric.

        Parameters
        ----------
        metric : str
            One of the metrics of the consensus.

        Returns
        -------
        dict of str to str
            Study id -> report; [`score`][metric_oracle.score] takes it as predictions.
        """
        texts = self.samples.texts
        places = self.chosen[self._name(metric)]
        return {study: group[place] for study, group, place in zip(self.samples.ids, texts, places, strict=True)}

    @public
    def table_of(self, metric: str) -> pa.Table:
        """Return the chosen reports under a metric, in the columns of the file that `write` writes.

        Parameters
        ----------
        metric : str
            One of the metrics of the consensus.

        Returns
        -------
        pyarrow.Table
            ``study_id``, ``report``, ``sample`` (its name), ``samples`` (their number), ``metric`` and ``utility``, the
            expected score, null for the only sample of a study.
        """
        name, samples = self._name(metric), self.samples
        places = self.chosen[name]
        utilities = [values[place] for values, place in zip(self.utilities[name], places, strict=True)]
        return pa.table(
            {
                "study_id": pa.array(samples.ids, pa.large_string()),
                "report": pa.array([*self.predictions(name).values()], pa.large_string()),
                "sample": pa.array([values[place] for values, place in zip(samples.names, places, strict=True)]),
                "samples": pa.array(samples.sizes, pa.int64()),
                "metric": pa.array([name] * len(places)),
                "utility": pa.array(utilities, pa.float64(), from_pandas=True),
            }
        )

    @property
    def table(self) -> pa.Table:
        """The rows of `table_of` for each metric, in the order of the metrics."""
        return pa.concat_tables([self.table_of(metric) for metric in self.chosen])

    def tables(self) -> list[PaperTable]:
        """Return, for each metric, the mean expected score of the chosen samples and of all samples.

        Returns
        -------
        list of PaperTable
            One table.
        """
        sizes = self.samples.sizes
        rows = []
        for metric, how in self.signature["metrics"].items():
            utilities = [values for values in self.utilities[metric] if len(values) > 1]
            places = [place for place, size in zip(self.chosen[metric], sizes, strict=True) if size > 1]
            pairs = list(zip(utilities, places, strict=True))
            row = {
                "metric": metric,
                "chosen": np.mean([values[place] for values, place in pairs]) if pairs else None,
                "all": np.mean([values.mean() for values, _ in pairs]) if pairs else None,
                "changed": sum(place > 0 for place in self.chosen[metric]),
                "direction": how["direction"],
            }
            rows.append(row)
        notes = [f"{self.summary()}; expected scores are with the other samples of a study as references"]
        single = sum(size == 1 for size in sizes)
        if single:
            notes.append(f"studies with one sample, which is chosen and has no expected score: {single:,}")
        if self.signature["weights"] != "equal":
            notes.append(f"weights of the other samples: {self.signature['weights']}")
        return [listing("Mean expected score", rows, "metric", _COLUMNS, notes, "metric")]

    def utility_table(self) -> pa.Table:
        """Return the expected score of every sample under every metric.

        Returns
        -------
        pyarrow.Table
            ``study_id``, ``sample``, ``metric``, ``utility`` (null for the only sample of a study) and ``chosen``, one
            row for each sample and metric.
        """
        rows = [
            {"study_id": study, "sample": name, "metric": metric, "utility": value, "chosen": place == best}
            for metric, groups in self.utilities.items()
            for study, names, values, best in zip(
                self.samples.ids, self.samples.names, groups, self.chosen[metric], strict=True
            )
            for place, (name, value) in enumerate(zip(names, values.tolist(), strict=True))
        ]
        columns = {name: [row[name] for row in rows] for name in ("study_id", "sample", "metric", "chosen")}
        utilities = pa.array([row["utility"] for row in rows], pa.float64(), from_pandas=True)
        return pa.table({**columns, "utility": utilities})

    def pair_table(self) -> pa.Table:
        """Return the score of every pair of samples of a study under every metric.

        Returns
        -------
        pyarrow.Table
            ``study_id``, ``sample``, ``reference`` (names of two samples), ``metric`` and ``score``, one row for each
            ordered pair, a sample with itself included.
        """
        rows = [
            (study, names[i], names[j], metric, score)
            for metric, groups in self.matrices.items()
            for study, names, matrix in zip(self.samples.ids, self.samples.names, groups, strict=True)
            for (i, j), score in np.ndenumerate(matrix)
        ]
        names = ("study_id", "sample", "reference", "metric", "score")
        return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})

    @public
    def write(self, path: str | Path, metric: str | None = None) -> list[Path]:  # type: ignore[override]
        """Write the chosen reports as predictions: Parquet, CSV or JSON Lines by the ending of the path.

        Parameters
        ----------
        path : str or path
            File to write. Of several metrics each has a file of its own: ``chosen.csv`` becomes ``chosen-rouge-l.csv``.
        metric : str, optional
            Write this metric alone, to `path` itself.

        Returns
        -------
        list of path
            The files.
        """
        if metric is not None:
            paths = {self._name(metric): Path(path)}
        else:
            paths = dict(zip(self.chosen, paths_of(Path(path), list(self.chosen)), strict=True))
        for file in paths.values():
            check_out(file)
        for name, file in paths.items():
            write_numbers(file, self.table_of(name), self.signature_of(name))
        return list(paths.values())

    def signature_of(self, metric: str) -> dict[str, Any]:
        """Return what is needed to make the choice under one metric again.

        Parameters
        ----------
        metric : str
            One of the metrics of the consensus.

        Returns
        -------
        dict
            Its signature.
        """
        name = self._name(metric)
        return {**self.signature, "metrics": {name: self.signature["metrics"][name]}}

    def _name(self, metric: str) -> str:
        """Return the registry's name of a metric of the consensus; raise InputError for any other metric."""
        name = metric if metric in self.chosen else get_metric(metric).name  # a judge has no record
        check_one_of("metric", name, self.chosen)
        return name


def paths_of(path: Path, metrics: Sequence[str]) -> list[Path]:
    """Return the path of each metric's file: `path` for one metric, else with "-" and its name before the ending."""
    if len(metrics) == 1:
        return [path]
    names = [re.sub(r"[:/\s]", "-", metric) for metric in metrics]  # that of a judge may be one such as org/model
    return [path.with_name(f"{path.stem}-{name}{path.suffix}") for name in names]


_NAME = "samples"


@public
def consensus(
    candidates: SampledReports,
    metrics: MetricsOfSamples,
    *,
    weighted: Annotated[
        bool,
        Doc(
            "Weigh the other samples by their probability, exp(log-probability), normalised over them. Needs the "
            "log-probabilities, in the column logprobs or logprob of `candidates`. By default all count equally."
        ),
    ] = False,
    index: CountedIndex | None = None,
    options: OptionsOfSamples | None = None,
    progress: Progress | None = None,
) -> Consensus:
    """Choose, of several reports of a model for each study, the one that agrees best with the others.

    The expected score of a sample is its mean score with the other samples of its study as references (minimum Bayes
    risk decoding). The sample itself is left out; another sample with the same text counts. The chosen reports are
    predictions; of several metrics each has a file of its own, such as chosen-radgraph.csv. A judge reads all pairs of
    the samples of a study.

    Returns
    -------
    Consensus
        The chosen samples; of equal expected scores the first sample wins, and the only sample of a study is chosen.

    Raises
    ------
    InputError
        If the candidates cannot be read, a study has none, a metric is unknown or lacks what it reads, or weights are
        asked for and there are no log-probabilities.

    Notes
    -----
    [`reports`][metric_oracle.reports] attaches to the candidates what a metric reads in addition to the texts: files by
    text or by ids such as "50000001/0" (study, then sample), or a model, which runs once for each distinct text.

    Examples
    --------
    >>> chosen = mo.consensus("samples.jsonl", "rouge-l,bleu")
    >>> chosen
    <Consensus: 24 studies, 192 samples: rouge-l, bleu-2>
    """
    options, step = options or DEFAULTS, silent if progress is None else progress
    names, judges = parted(metrics)
    searched, counted = checked_metrics(names or (), options, index, progress, may_be_none=bool(judges))
    with opened_judges(judges) as asked:
        sides = Sides.of(None, {_NAME: candidates}).read(as_written=lambda side, _: side.read_samples())
        predicted, samples = sides.predictions[_NAME], sides.written[_NAME]
        if samples.logprobs is None:
            advice = "Add the column logprobs, or logprob in a table with one row for each sample."
            check_left_out({"weighted": weighted or None}, "for samples without log-probabilities", advice, got="True")
        distinct = predicted.with_sources(samples.distinct(), step)
        sides.tell_wordless(searched)
        groups = SampledGroups.of(samples, distinct, options, counted)
        of_metric: dict[str, list[Array]] = {}
        utilities: dict[str, list[Array]] = {}
        chosen: dict[str, list[int]] = {}
        logprobs = samples.logprobs if weighted else None
        for place, metric in enumerate(searched):
            step(metric.name, place, len(searched))
            of_metric[metric.name] = groups.matrices(metric)
        of_metric |= judged_matrices(asked, samples.texts, samples.texts, sides.listener, step)
        scorers: list[Metric | Judge] = [*searched, *asked]
        sign = {one.name: one.sign for one in scorers}
        for name, of_studies in of_metric.items():
            utilities[name] = [
                expected_scores(matrix, None if logprobs is None else logprobs[study])
                for study, matrix in enumerate(of_studies)
            ]
            chosen[name] = [first_best(sign[name] * of_study) for of_study in utilities[name]]
        signature = {
            "kind": "consensus",
            "metrics": {
                metric.name: {
                    "options": metric.recorded,
                    "source": metric.citation,
                    "tool": metric.tool,
                    "direction": metric.direction,
                    **{name: str(value) for name, value in options.settings.items() if name in metric.settings},
                    **(
                        {"representation": representation}
                        if (representation := made_by(groups.reports, metric))
                        else {}
                    ),
                    **({"frequencies": counted.fingerprint} if counted is not None and metric.counts_corpus else {}),
                }
                for metric in searched
            }
            | {judge.name: judge.entry for judge in asked},
            "weights": "exp(logprob)" if weighted else "equal",
            "samples": signature_of(samples, predicted.data),
            **({"section": samples.section[0]} if samples.section[0] else {}),
            "n": len(samples.ids),
        }
        return Consensus(samples, chosen, utilities, of_metric, signed(**signature))
