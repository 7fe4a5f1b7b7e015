"""Test reports joined with the scores and candidates of result files, for the explorer.

A file of `retrieve` or of a baseline gives one column of scores, with candidates. A file of `score` gives one column
per metric, with the candidate's text if it has one. A file of `baseline expectation` gives one column of means. A value
is NaN if the file lacks the report. This module knows nothing about pages.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from metric_oracle.base.errors import InputError, MetricOracleError, shown
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.sections import check_sections
from metric_oracle.explorer.copied_cases import CopiedCases
from metric_oracle.explorer.rated_cases import RatedCases
from metric_oracle.explorer.sampled_cases import SampledCases
from metric_oracle.findings.results import Results, Scores, read_results, read_scores
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import METRICS, get_metric, is_higher_better
from metric_oracle.records import COMPOSITE, Directed, Metric
from metric_oracle.retrieval.search_signature import digest
from metric_oracle.retrieval.weights import metric_of
from metric_oracle.scores.expectation import Expectation, read_expectation
from metric_oracle.tables.systems import (
    CHANCE,
    IDENTITY,
    MOST_FREQUENT,
    POOL,
    YARDSTICKS,
    GivenResults,
    ReadResults,
    is_oracle,
    name_of_results,
    oracle_name,
)

MODEL, ORACLE, OTHER = "model", "oracle", "other"  # roles of a column


@dataclass(frozen=True)
class ScoreColumn(Directed):
    """Scores of all test reports under one metric, by one file."""

    # The metric and the system, or the system alone if it names the metric. No two columns have the same name.
    name: str
    system: str  # name of the system, as in the table of a study, such as "bleu-2 oracle"; or the kind of a baseline
    metric: str
    file: int  # position of the file in `Cases.joined` and `Cases.files`
    higher_is_better: bool
    values: np.ndarray  # float64[Q], score of each test report, NaN if the file has none

    @property
    def role(self) -> str:
        """What the system is under the metric: "chance", "frequent", "model", "oracle", "perfect" or "other".

        An oracle of another metric is "other".
        """
        system = self.system
        if system in CHANCE:
            return "chance"
        if system in (MOST_FREQUENT, "most-frequent"):
            return "frequent"
        if system == IDENTITY:
            return "perfect"
        if system in ("oracle", oracle_name(self.metric)):
            return ORACLE
        of_metric, _, rest = system.rpartition(" ")
        is_other = (rest == "oracle" and of_metric in METRICS) or system in (*YARDSTICKS, "nearest")
        return OTHER if is_other or system.startswith("best of ") or system.endswith(POOL) else MODEL


@dataclass(frozen=True)
class Candidate:
    """The candidate of one file for one test report."""

    file: int  # position of the file in `Cases.joined`
    # Positions in `Cases.columns` of its scores. The first is that of the metric by which it was chosen.
    columns: tuple[int, ...]
    rank: int  # rank from 1; for random retrieval, the number of the draw
    row: int  # corpus row, -1 if the candidate is not from the corpus
    candidate_id: str  # "" if it is not from the corpus
    score: float | None  # score in a file of `retrieve` or a baseline; None in a file of `score`
    text: str | None  # None if not known
    n_ties: int = 0  # number of corpus rows with this score
    is_fallback: bool = False  # whether it is the most frequent report, because no report scores above 0
    is_exact: bool = True  # whether it is proven to be the best


@dataclass(frozen=True)
class JoinedFile:
    """A result file, with the rows of each test report in it."""

    table: pa.Table
    signature: dict[str, Any]
    first: np.ndarray  # int64[Q], first row of each test report; -1 if it has none
    last: np.ndarray  # int64[Q], one after its last row; -1 if it has none
    # Positions in `Cases.columns` of the scores of its candidates, also of an oracle's scores in another file.
    columns: tuple[int, ...] = ()

    @property
    def proof(self) -> str:
        """The column that says whether a candidate is proven to be the best."""
        return "certified" if "certified" in self.table.column_names else "exact"

    def of_best(self, name: str) -> pa.ChunkedArray:
        """Return a column of the table at each test report's best candidate, null where it has none."""
        return self.table[name].take(pa.array(self.first, mask=self.first < 0))


@dataclass(frozen=True)
class Cases:
    """Test reports, joined with the result files. Methods name a test report by its position `q` in `ids`."""

    ids: list[str]  # ids of the Q test reports
    columns: list[ScoreColumn]
    joined: list[JoinedFile]  # the files with the rows of each test report
    index: Index | None = None  # index of the candidates
    queries: Reports | None = None  # the test reports with their sources
    files: list[ReadResults] = field(default_factory=list)  # the files as they were read, in the order of `joined`
    rated: RatedCases | None = None  # error counts of radiologists for candidates of these test reports
    _position: dict[str, int] = field(default_factory=dict, repr=False)  # of each id in `queries`
    sampled: SampledCases | None = None  # several reports of a model for these test reports
    # What these test reports and reports of models for them share with training reports.
    copied: CopiedCases | None = None
    say: Callable[[MetricOracleError], str] = str  # how a page shows an error; the command line has words of its own

    @property
    def metric_names(self) -> list[str]:
        """The metrics of the columns, in the order of the files."""
        return list(dict.fromkeys(column.metric for column in self.columns))

    @property
    def signatures(self) -> list[dict[str, Any]]:
        """The signatures of the files."""
        return [file.signature for file in self.joined]

    def reference(self, q: int) -> str | None:
        """Return the text of test report `q`, None if it is not known."""
        if self.queries is not None:
            position = self._position.get(self.ids[q])
            return None if position is None else self.queries.texts[position]
        for file in self.joined:
            if "reference" in file.table.column_names and file.first[q] >= 0:
                return file.table["reference"][int(file.first[q])].as_py()
        return None

    def query(self, q: int) -> int | None:
        """Return the position in `queries` of test report `q`, None if it is not there."""
        return self._position.get(self.ids[q])

    def candidates(self, q: int, rank: int = 1) -> list[Candidate]:
        """Return each file's candidate for test report `q` at a rank; for random retrieval the rank is the draw."""
        candidates = (self.candidate_of(number, q, rank) for number, file in enumerate(self.joined) if file.columns)
        return [candidate for candidate in candidates if candidate is not None]

    def best_texts(self, file: JoinedFile) -> list[str | None]:
        """Return the text of each test report's best candidate in a file, None if it is not known."""
        if "text" in file.table.column_names:
            return file.of_best("text").to_pylist()
        texts = np.full(len(self.ids), None, object)
        rows = file.of_best("row").fill_null(-1).to_numpy()
        if self.index is not None:
            texts[rows >= 0] = self.index.take("text", rows[rows >= 0]).to_pylist()
        return texts.tolist()

    def ranks(self, q: int) -> int:
        """Return the largest number of candidates that any file has for test report `q`."""
        return max((int(file.last[q] - file.first[q]) for file in self.joined), default=0)

    def candidate_of(self, number: int, q: int, rank: int = 1) -> Candidate | None:
        """Return the candidate for test report `q` at a rank in the file at position `number`; None without one."""
        file = self.joined[number]
        i = int(file.first[q]) + rank - 1
        if file.first[q] < 0 or i >= file.last[q] or file.signature.get("baseline") == "expectation":
            return None
        table = file.table
        if "row" not in table.column_names:
            text = table["prediction"][i].as_py() if "prediction" in table.column_names else None
            return Candidate(number, file.columns, rank, -1, "", None, text)
        row = table["row"][i].as_py()
        if "text" in table.column_names:
            text = table["text"][i].as_py()
        elif self.index is not None and row >= 0:
            text = self.index.take("text", np.array([row]))[0].as_py()
        else:
            text = None
        named = [table[name][i].as_py() for name in ("candidate_id", "score", "n_ties", "fallback", file.proof)]
        columns = file.columns if rank == 1 else file.columns[:1]
        return Candidate(number, columns, rank, row, named[0], named[1], text, *named[2:])

    @cached_property
    def frame(self) -> pl.DataFrame:
        """What sorting and filtering read: a row for each test report, with its position `q`.

        The scores have the names of `columns`, and are null where a file has none. Of the best candidates of all files
        it has the most `ties`, and whether one is a `fallback` or `inexact`; and whether a candidate is `rated`, how
        many different reports the oracles chose (`differ`) and their `distance`, and whether each CheXbert label is
        positive, by its name, if the test reports have labels.
        """
        ties, fallback = (
            [pl.Series(file.of_best(name)) for file in self.joined if file.columns and name in file.table.column_names]
            for name in ("n_ties", "fallback")
        )
        proven = [
            pl.Series(file.of_best(file.proof))
            for file in self.joined
            if file.columns and file.proof in file.table.column_names
        ]
        differ, distance = _disagreement(*_of_oracles(self))
        scores = {column.name: pl.Series(column.values, nan_to_null=True) for column in self.columns}
        rated = np.zeros(len(self.ids), bool) if self.rated is None else self.rated.has(self.ids)
        others = {"differ": differ, "distance": distance, "rated": rated, **_positive_labels(self)}
        return pl.DataFrame({"q": np.arange(len(self.ids)), **scores, **others}).with_columns(
            ties=pl.max_horizontal(pl.lit(0), *ties),
            fallback=pl.any_horizontal(pl.lit(False), *(one.fill_null(False) for one in fallback)),
            inexact=pl.any_horizontal(pl.lit(False), *(~one.fill_null(True) for one in proven)),
        )

    def metric(self, name: str) -> Metric | None:
        """Return the metric of a name in the files, None if the metric is unknown.

        For a user's composite it is made from the weights in the file.
        """
        if name != COMPOSITE:
            return METRICS.get(name)
        signatures = [signature for signature in self.signatures if signature.get("metric") == COMPOSITE]
        return get_metric(metric_of(signatures[0])) if signatures else None


def _of_oracles(cases: Cases) -> tuple[np.ndarray, list[Any]]:
    """Return the number of the text that each oracle chose, int64[oracles, Q], -1 for none; and the texts.

    Equal texts have one number. Where texts are not known, they are the corpus rows.
    """
    number: dict[Any, int] = {None: -1}
    of_files = []
    for file in cases.joined:
        if "row" in file.table.column_names and is_oracle(file.signature) and file.columns:
            is_known = "text" in file.table.column_names or cases.index is not None
            texts = cases.best_texts(file) if is_known else file.of_best("row").to_pylist()
            of_files.append([number.setdefault(text, len(number) - 1) for text in texts])
    return np.array(of_files, np.int64).reshape(len(of_files), len(cases.ids)), list(number)[1:]


def _disagreement(numbers: np.ndarray, texts: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return how many different reports oracles chose for each test report, int64[Q], and how different: float64[Q].

    The arguments are as `_of_oracles` returns them. Of two texts the difference is the share of their words that only
    one of them has; it is the mean over all pairs of different texts, 0 if there are none.
    """
    ordered = np.sort(numbers, axis=0)
    differ = (ordered[1:] != ordered[:-1]).sum(axis=0) + 1 if len(numbers) else np.zeros(numbers.shape[1], np.int64)
    words = [frozenset(text.lower().split()) if isinstance(text, str) else frozenset() for text in texts]
    distance = np.zeros(numbers.shape[1])
    for q in np.flatnonzero(differ > 1):
        pairs = [(words[a], words[b]) for a, b in combinations(sorted({*numbers[:, q].tolist()} - {-1}), 2)]
        shares = [1 - len(a & b) / len(a | b) for a, b in pairs if a | b]
        distance[q] = sum(shares) / len(shares) if shares else 0
    return differ, distance


def _positive_labels(cases: Cases) -> dict[str, np.ndarray]:
    """Return whether each CheXbert label is positive, by its name, bool[Q]; nothing if there are no labels."""
    labels = None if cases.queries is None else cases.queries.attached.get("labels")
    if labels is None:
        return {}
    classes, of_row = labels.both
    rows = np.array([-1 if (at := cases.query(q)) is None else of_row[at] for q in range(len(cases.ids))], np.int64)
    is_positive = (
        (classes == 1)[rows] & (rows >= 0)[:, None] if len(classes) else np.zeros((len(rows), len(LABELS)), bool)
    )
    return dict(zip(LABELS, is_positive.T, strict=True))


def read_cases(
    files: Sequence[GivenResults],
    index: Index | None = None,
    queries: Reports | None = None,
    rated: RatedCases | None = None,
    sampled: SampledCases | None = None,
    copied: CopiedCases | None = None,
    say: Callable[[MetricOracleError], str] = str,
) -> Cases:
    """Read files of `retrieve`, `baseline` or `score`, and join them on the ids of the test reports, `queries`.

    All candidates come from `index`; `say` writes errors on the pages. Raise InputError if a file is no result, or the
    arguments do not belong together.
    """
    read = [read_result(file) for file in files]
    _check_fit(read, index, queries)
    position: dict[str, int] = {}
    blocks = []
    for file in read:
        keys = file.table["query_id"].to_pylist()
        firsts = np.flatnonzero(file.table["rank"].to_numpy() == 1) if isinstance(file, Results) else range(len(keys))
        blocks.append((np.asarray(firsts, np.int64), [position.setdefault(keys[i], len(position)) for i in firsts]))
    _check_foreign(read, queries)
    joined, columns_of = [], []
    for number, (file, (firsts, positions)) in enumerate(zip(read, blocks, strict=True)):
        first, last = np.full(len(position), -1, np.int64), np.full(len(position), -1, np.int64)
        first[positions] = firsts
        last[positions] = np.append(firsts[1:], file.table.num_rows)
        columns_of.append(_columns(file, number, first))
        joined.append(JoinedFile(file.table, file.signature, first, last))
    columns, numbers = _numbered(columns_of, [isinstance(file, Results) for file in read])
    joined = [replace(file, columns=of_file) for file, of_file in zip(joined, numbers, strict=True)]
    ids = list(position)
    if not files and queries is not None:
        ids = list(queries.ids)
    position_in_queries = {} if queries is None else {key: i for i, key in enumerate(queries.ids)}
    if rated is not None:
        rated.check(ids)
    if sampled is not None:
        sampled.check(ids)
    if copied is not None:
        copied.check(ids, index)
    return Cases(ids, columns, joined, index, queries, read, rated, position_in_queries, sampled, copied, say)


def read_result(file: GivenResults) -> ReadResults:
    """Read a file that `retrieve`, `baseline` or `score` wrote; return objects in memory as they are."""
    if isinstance(file, ReadResults):
        return file
    try:
        return read_results(file)  # first, because its errors name the argument of the commands
    except InputError as error:
        for read in (read_scores, read_expectation):
            with suppress(InputError):
                return read(file)
        raise error from None


def _columns(file: ReadResults, number: int, first: np.ndarray) -> list[ScoreColumn]:
    """Return the columns of the file at position `number`; `first` is that of its `JoinedFile`."""
    signature = file.signature
    if isinstance(file, Scores):
        system = str(signature.get("system"))
        named = [(system, name, entry, name) for name, entry in signature["metrics"].items()]
    else:
        metric = str(signature.get("metric"))
        stored = "mean" if isinstance(file, Expectation) else "score"
        named = [(name_of_results(signature), metric, signature, stored)]
    draws = int(signature.get("draws", 1)) if signature.get("baseline") == "random" else 1
    columns = []
    for system, metric, entry, stored in named:
        values = file.table[stored].cast(pa.float64()).to_numpy(zero_copy_only=False)
        if draws > 1:  # each draw's row gets the mean of all draws
            values = values.reshape(-1, draws).mean(axis=1).repeat(draws)
        is_higher = is_higher_better(entry, metric)
        column = ScoreColumn("", system, metric, number, is_higher, np.where(first >= 0, values[first], np.nan))
        names_metric = column.role == ORACLE or system == f"{metric}{POOL}"
        columns.append(replace(column, name=system if names_metric else f"{metric} of {system}"))
    return columns


def _numbered(
    columns_of: Sequence[list[ScoreColumn]], has_reports: Sequence[bool]
) -> tuple[list[ScoreColumn], list[Any]]:
    """Return the columns of all files with different names, and the positions of those that each file's reports have.

    `columns_of` has the columns of each file, `has_reports` whether it is one of `retrieve` or a baseline.

    `oracle study` writes an oracle, and the best of a pool, twice: the reports, and their scores under all metrics. The
    scores by which reports were chosen are kept once, and the reports get the others.
    """
    columns: list[ScoreColumn] = []
    numbers: list[list[int]] = [[] for _ in columns_of]
    for s, of_file in enumerate(columns_of):
        twins = [
            (own, t)
            for own in (() if has_reports[s] else of_file)
            for t, others in enumerate(columns_of)
            if has_reports[t] and own.system == others[0].system and _is_same(own, others[0])
        ]
        own, owner = twins[0] if twins else (None, s)
        for column in of_file:
            if column is own:
                continue
            number, name = 1, column.name
            while any(name == other.name for other in columns):
                number += 1
                name = f"{column.name} ({number})"
            numbers[owner].append(len(columns))
            columns.append(replace(column, name=name))
    # The score by which a report was chosen comes first.
    return columns, [tuple(sorted(mine, key=lambda i: columns[i].file != s)) for s, mine in enumerate(numbers)]


def _is_same(one: ScoreColumn, other: ScoreColumn) -> bool:
    """Return whether two columns of a metric have equal values, where both have one."""
    both = np.isfinite(one.values) & np.isfinite(other.values)
    return one.metric == other.metric and bool(both.any()) and np.array_equal(one.values[both], other.values[both])


def _check_foreign(read: Sequence[ReadResults], queries: Reports | None) -> None:
    """Raise InputError if a table of another tool, which names no test reports, shares no id with the others."""
    ids = [set(file.table["query_id"].to_pylist()) for file in read]
    is_foreign = ["foreign" in file.signature for file in read]
    usual_ids = set(queries.ids if queries is not None else ()).union(
        *(ids_of_file for ids_of_file, foreign in zip(ids, is_foreign, strict=True) if not foreign)
    )
    for ids_of_file, foreign in zip(ids, is_foreign, strict=True):
        if foreign and usual_ids and usual_ids.isdisjoint(ids_of_file):
            raise InputError(
                f"foreign scores have none of the ids of {len(usual_ids):,} test reports: ids here are like "
                f"{shown(*sorted(usual_ids)[:1])}, theirs like {shown(*sorted(ids_of_file)[:1])}.",
                "Join them by the same ids.",
            )


def _check_fit(read: Sequence[ReadResults], index: Index | None, queries: Reports | None) -> None:
    """Raise InputError unless the files fit the index, the test reports and one another.

    Each must have rows, the index and the section that are given, and the same test reports. Of files that were scored
    with `inner` the test reports are not compared, and neither is what a file does not record.
    """
    for number, file in enumerate(read, 1):
        if not file.table.num_rows:
            raise InputError(f"results file {number} has no test report.", "Leave the file out.")
        made_with = file.signature.get("index")
        if index is not None and made_with is not None and made_with != index.fingerprint:
            raise InputError(
                f"results file {number} was made with index {made_with[:12]}, not with {index.fingerprint[:12]} "
                f"({index.folder}).",
                "Pass the other index.",
            )
    if queries is not None:
        section_of_index = [] if index is None else [index.section]
        for section, by in [*section_of_index, *((file.signature.get("section"), "a signature") for file in read)]:
            check_sections(queries.known_section, (section, by), ("test reports", "results"))
    # A file scored with --inner has only some of the test reports, so its checksum may differ.
    whole = [file.signature for file in read if not file.signature.get("left_out")]
    references = {str(signature["references"]) for signature in whole if signature.get("references")}
    if queries is not None:
        references |= {digest(queries)}
    if len(references) > 1:
        raise InputError(
            f"results and queries are of {len(references)} different sets of test reports.",
            "Pass files that were made with the same file and section.",
        )
