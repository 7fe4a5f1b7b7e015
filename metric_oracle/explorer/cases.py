"""Test reports with everything that result files say of each: the rows of the explorer, sorted and filtered.

A file of `retrieve` or of a baseline is one column of scores with the candidates behind them; a file of `score` is one
column for each of its metrics, with the candidate's text where the file has it; that of `baseline expectation` is one
column of means. Columns are NaN where a file has nothing for a report. Nothing here knows pages.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metric_oracle.corpora.sections import check_sections
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError
from metric_oracle.explorer.rated_cases import RatedCases
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import METRICS, REPRESENTATIONS, get_metric
from metric_oracle.retrieval.expectation import Expectation, read_expectation
from metric_oracle.retrieval.pairs import score_rows
from metric_oracle.retrieval.results import Results, Scores, read_results, read_scores
from metric_oracle.retrieval.search import digest
from metric_oracle.sources.inputs import Inputs
from metric_oracle.tables.systems import is_oracle

Read = Results | Scores | Expectation
Given = str | Path | Read


@dataclass(frozen=True)
class Column:
    """Scores of all test reports under one metric, by one file.

    Attributes
    ----------
    name : str
        Shown: the metric of an oracle; metric and baseline, or metric and system, of others.
    system : str
        "oracle", the kind of a baseline, or the system's name.
    metric : str
    source : int
        Place of the file.
    is_higher_better : bool
    values : float64[Q]
    """

    name: str
    system: str
    metric: str
    source: int
    is_higher_better: bool
    values: np.ndarray


@dataclass(frozen=True)
class Candidate:
    """What one file gives for a test report; `row` is -1 for what is no row of the corpus, `text` None if unknown."""

    source: int
    columns: tuple[int, ...]
    rank: int
    row: int
    candidate_id: str
    score: float | None
    text: str | None
    n_ties: int = 0
    is_fallback: bool = False
    is_exact: bool = True


@dataclass(frozen=True)
class Chosen:
    """Which test reports are shown, in which order.

    Attributes
    ----------
    sort : int or None
        Column; None for the order of the files.
    minus : int or None
        Sort by how far this column is from `sort` instead.
    is_disagreement : bool
        Sort by the number of different reports that the oracles chose.
    is_reversed : bool
    only_fallback, only_inexact, only_rated : bool
    ties_over : int or None
        Only where a best score is shared by more corpus rows.
    column, low, high
        Only where this column lies in [low, high].
    words : str
        Only where a report or a candidate contains this, whatever its case.
    label : int or None
        Only where this CheXbert label of the test report is positive.
    """

    sort: int | None = None
    minus: int | None = None
    is_disagreement: bool = False
    is_reversed: bool = False
    only_fallback: bool = False
    only_inexact: bool = False
    only_rated: bool = False
    ties_over: int | None = None
    column: int | None = None
    low: float | None = None
    high: float | None = None
    words: str = ""
    label: int | None = None


@dataclass(frozen=True)
class _Source:
    """A file: its table, and where each test report begins in it (-1: nowhere)."""

    table: pa.Table
    signature: dict[str, Any]
    first: np.ndarray
    last: np.ndarray
    columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cases:
    """Test reports and what the files say of them.

    Attributes
    ----------
    ids : list of str
    columns : list of Column
    index : Index or None
        Of the candidates.
    queries : Inputs or None
        The test reports with what belongs to them.
    files : list of Results, Scores or Expectation
    rated : RatedCases or None
        What radiologists counted in candidates for these test reports.
    """

    ids: list[str]
    columns: list[Column]
    sources: list[_Source]
    index: Index | None = None
    queries: Inputs | None = None
    files: list[Read] = field(default_factory=list)
    rated: RatedCases | None = None
    _place: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def signatures(self) -> list[dict[str, Any]]:
        """The signatures of the files."""
        return [source.signature for source in self.sources]

    def reference(self, q: int) -> str | None:
        """Return the text of a test report, None where no file has it."""
        if self.queries is not None:
            place = self._place.get(self.ids[q])
            return None if place is None else self.queries.texts[place]
        for source in self.sources:
            if "reference" in source.table.column_names and source.first[q] >= 0:
                return source.table["reference"][int(source.first[q])].as_py()
        return None

    def query(self, q: int) -> int | None:
        """Return the place of a test report among the queries, None where they lack it."""
        return self._place.get(self.ids[q])

    def candidates(self, q: int, rank: int = 1) -> list[Candidate]:
        """Return what the files give for a test report at a rank; of random draws the rank is the draw."""
        return [found for s in range(len(self.sources)) if (found := self._candidate(s, q, rank)) is not None]

    def ranks(self, q: int) -> int:
        """Return how many candidates the longest file has for a test report."""
        return max((int(source.last[q] - source.first[q]) for source in self.sources), default=0)

    def _candidate(self, s: int, q: int, rank: int) -> Candidate | None:
        source = self.sources[s]
        i = int(source.first[q]) + rank - 1
        if source.first[q] < 0 or i >= source.last[q] or source.signature.get("baseline") == "expectation":
            return None
        table = source.table
        if "row" not in table.column_names:
            text = table["prediction"][i].as_py() if "prediction" in table.column_names else None
            return Candidate(s, source.columns, rank, -1, "", None, text)
        row = table["row"][i].as_py()
        if "text" in table.column_names:
            text = table["text"][i].as_py()
        elif self.index is not None and row >= 0:
            text = self.index.take("text", np.array([row]))[0].as_py()
        else:
            text = None
        named = [table[name][i].as_py() for name in ("candidate_id", "score", "n_ties", "fallback", "exact")]
        return Candidate(s, source.columns, rank, row, named[0], named[1], text, *named[2:])

    @cached_property
    def ties(self) -> np.ndarray:
        """Corpus rows that share the best score of each column, int64[columns, Q]; 0 where there is none."""
        return self._of_best("n_ties", np.int64)

    @cached_property
    def is_fallback(self) -> np.ndarray:
        """Whether the best candidate of each column is a fallback, bool[columns, Q]."""
        return self._of_best("fallback", bool)

    @cached_property
    def is_inexact(self) -> np.ndarray:
        """Whether the best candidate of each column is not proven, bool[columns, Q]."""
        return self._of_best("exact", bool, absent=True) == False  # noqa: E712

    def _of_best(self, name: str, kind: Any, absent: Any = 0) -> np.ndarray:
        found = np.full((len(self.columns), len(self.ids)), absent, kind)
        for source in self.sources:
            if name in source.table.column_names:
                values = source.table[name].to_numpy()
                found[list(source.columns)] = np.where(source.first >= 0, values[source.first], absent)
        return found

    @cached_property
    def disagreement(self) -> np.ndarray:
        """Number of different reports that the oracles chose for each test report, int64[Q]; equal texts are one."""
        chosen = []
        for source in self.sources:
            if "row" in source.table.column_names and source.signature.get("baseline") is None and source.columns:
                if "text" in source.table.column_names:
                    keys = source.table["text"].combine_chunks().dictionary_encode()
                    words = np.array([hash(text) for text in keys.dictionary.to_pylist()], np.int64)
                    values = words[keys.indices.to_numpy(zero_copy_only=False)]
                elif self.index is not None:
                    texts = self.index.reports["distinct_id"].to_numpy()
                    values = texts[source.table["row"].to_numpy()]
                else:
                    values = source.table["row"].to_numpy()
                chosen.append(np.where(source.first >= 0, values[source.first], -1))
        if not chosen:
            return np.zeros(len(self.ids), np.int64)
        ordered = np.sort(np.array(chosen), axis=0)
        return 1 + (ordered[1:] != ordered[:-1]).sum(axis=0)

    @cached_property
    def is_rated(self) -> np.ndarray:
        """Whether radiologists rated a candidate for each test report, bool[Q]."""
        return np.zeros(len(self.ids), bool) if self.rated is None else self.rated.has(self.ids)

    @cached_property
    def positive(self) -> np.ndarray | None:
        """Whether each CheXbert label of each test report is positive, bool[14, Q]; None without labels of them."""
        held = None if self.queries is None else self.queries.attached.get("labels")
        if held is None:
            return None
        classes, of_row = held.both
        found = np.zeros((classes.shape[1], len(self.ids)), bool)
        for q, key in enumerate(self.ids):
            row = of_row[self._place[key]] if key in self._place else -1
            if row >= 0:
                found[:, q] = classes[row] == 1
        return found

    def prepare(self) -> None:
        """Compute what sorting and filtering read."""
        for name in ("ties", "is_fallback", "is_inexact", "disagreement", "is_rated", "positive"):
            getattr(self, name)

    def choose(self, chosen: Chosen) -> np.ndarray:
        """Return the places of the test reports that are shown, in their order: int64[...]."""
        kept = np.ones(len(self.ids), bool)
        if chosen.only_fallback:
            kept &= self.is_fallback.any(axis=0)
        if chosen.only_inexact:
            kept &= self.is_inexact.any(axis=0)
        if chosen.only_rated:
            kept &= self.is_rated
        if chosen.ties_over is not None:
            kept &= (self.ties > chosen.ties_over).any(axis=0)
        if chosen.column is not None:
            values = self.columns[chosen.column].values
            kept &= (values >= (-np.inf if chosen.low is None else chosen.low)) & (
                values <= (np.inf if chosen.high is None else chosen.high)
            )
        if chosen.words:
            kept &= self._contains(chosen.words)
        if chosen.label is not None and self.positive is not None:
            kept &= self.positive[chosen.label]
        keys = np.arange(len(self.ids), dtype=float)
        if chosen.is_disagreement:
            keys = -self.disagreement.astype(float)
        elif chosen.sort is not None and chosen.minus is not None:
            keys = -np.abs(self.columns[chosen.sort].values - self.columns[chosen.minus].values)
        elif chosen.sort is not None:
            column = self.columns[chosen.sort]
            keys = -column.values if column.is_higher_better else column.values
        # Equal keys stay in the order of the files; NaN comes last either way.
        order = np.argsort(-keys if chosen.is_reversed else keys, kind="stable")
        return order[kept[order]]

    def _contains(self, words: str) -> np.ndarray:
        """Return whether a text of each test report contains some words, whatever their case: bool[Q]."""
        found = np.zeros(len(self.ids), bool)
        if self.queries is not None:
            wanted = words.casefold()
            has_them = np.array([wanted in text.casefold() for text in self.queries.texts], bool)
            known = [(q, place) for q, key in enumerate(self.ids) if (place := self._place.get(key)) is not None]
            for q, place in known:
                found[q] = has_them[place]
        for source in self.sources:
            here = source.first >= 0
            for name in {"text", "reference", "prediction"} & set(source.table.column_names):
                texts = source.table[name].take(pa.array(source.first[here]))
                matched = pc.match_substring(texts, words, ignore_case=True)
                found[here] |= pc.fill_null(matched, False).to_numpy()
        return found

    def cross_scores(self, q: int, rows: Sequence[int]) -> dict[int, dict[str, float | None]]:
        """Return the scores of corpus rows against a test report under every metric that index and queries allow.

        Token states of a report are not made here: BERTScore counts where they are stored, without idf weights.
        """
        place = self.query(q)
        if self.index is None or self.queries is None or place is None or not rows:
            return {}
        names = self.metrics
        batch = self.queries.take(np.full(len(rows), place))
        scores = score_rows(self.index, batch, list(rows), names, system="pages").table
        return {row: {name: scores[name][i].as_py() for name in names} for i, row in enumerate(rows)}

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics under which any row can be scored here: the usual ones, and those of the files."""
        if self.index is None or self.queries is None:
            return []
        held = self.queries.attached
        asked = {column.metric for column in self.columns} | {
            name for name, record in METRICS.items() if "score" in record.shown_in
        }
        weighted = any(signature.get("idf") not in (None, "off") for signature in self.signatures)
        return [
            name
            for name in self.index.metrics
            if name in asked
            and all(REPRESENTATIONS[kind].is_of_texts or kind in held for kind in METRICS[name].representations)
            and not (weighted and "bertscore" in METRICS[name].representations)
        ]

    def systems(self) -> Iterator[tuple[int, int | None]]:
        """Yield each column with the oracle's column of its metric, None where there is none."""
        oracles = {column.metric: i for i, column in enumerate(self.columns) if column.system == "oracle"}
        for i, column in enumerate(self.columns):
            oracle = oracles.get(column.metric)
            yield i, None if oracle == i else oracle


def read_cases(
    files: Sequence[Given],
    index: Index | None = None,
    queries: Inputs | None = None,
    function: str = "explore",
    rated: RatedCases | None = None,
) -> Cases:
    """Read result files and join them on the ids of the test reports.

    Parameters
    ----------
    files : sequence of paths, Results, Scores or Expectation
        Of `retrieve`, a baseline, or `score`.
    index : Index
        That all answers come from.
    queries : Inputs
        The test reports.
    function : str
        For error lines.
    rated : RatedCases
        Of some of the test reports.

    Raises
    ------
    InputError
        If a file is no result, or the files, the index and the test reports do not belong together.
    """
    read = [read_result(given, function) for given in files]
    _check_same(read, index, queries, function)
    place: dict[str, int] = {}
    blocks = []
    for given in read:
        keys = given.table["query_id"].to_pylist()
        firsts = np.flatnonzero(given.table["rank"].to_numpy() == 1) if isinstance(given, Results) else range(len(keys))
        blocks.append((np.asarray(firsts, np.int64), [place.setdefault(keys[i], len(place)) for i in firsts]))
    _check_foreign(read, queries, function)
    columns: list[Column] = []
    sources = []
    for s, (given, (firsts, places)) in enumerate(zip(read, blocks, strict=True)):
        first, last = np.full(len(place), -1, np.int64), np.full(len(place), -1, np.int64)
        first[places] = firsts
        last[places] = np.append(firsts[1:], given.table.num_rows)
        own = _columns(given, s, first, [column.name for column in columns], function)
        numbers = tuple(range(len(columns), len(columns) + len(own)))
        columns += own
        sources.append(_Source(given.table, given.signature, first, last, numbers))
    ids = list(place)
    if not files and queries is not None:
        ids = list(queries.ids)
    known = {} if queries is None else {key: i for i, key in enumerate(queries.ids)}
    if rated is not None:
        rated.check(ids, function)
    return Cases(ids, columns, sources, index, queries, read, rated, known)


def read_result(given: Given, function: str) -> Read:
    """Read the answers or scores in a file that `retrieve`, `baseline` or `score` wrote."""
    if isinstance(given, Read):
        return given
    try:
        return read_scores(given, function)
    except InputError as error:
        for read in (read_results, read_expectation):
            with suppress(InputError):
                return read(given)
        raise error from None


def _columns(given: Read, source: int, first: np.ndarray, taken: list[str], function: str) -> list[Column]:
    signature = given.signature
    found: list[Column] = []
    if isinstance(given, Scores):
        system = str(signature.get("system"))
        named = [(f"{name} of {system}", system, name, how, name) for name, how in signature["metrics"].items()]
    else:
        metric, baseline = str(signature.get("metric")), signature.get("baseline")
        name = metric if baseline is None else f"{metric} of {baseline}"
        stored = "mean" if isinstance(given, Expectation) else "score"
        system = baseline or ("oracle" if is_oracle(signature) else "of a pool")
        named = [(name, str(system), metric, signature, stored)]
    draws = int(signature.get("draws", 1)) if signature.get("baseline") == "random" else 1
    for name, system, metric, how, stored in named:
        values = given.table[stored].cast(pa.float64()).to_numpy(zero_copy_only=False)
        if draws > 1:  # the mean of all draws stands at the first of them
            values = values.reshape(-1, draws).mean(axis=1).repeat(draws)
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name} ({number})"
        taken = [*taken, free]
        direction = how.get("direction")
        is_higher = direction == "higher" if direction else get_metric(metric, function).higher_is_better
        found.append(Column(free, system, metric, source, is_higher, np.where(first >= 0, values[first], np.nan)))
    return found


def _check_foreign(read: Sequence[Read], queries: Inputs | None, function: str) -> None:
    """Raise where a table of another tool, which says nothing of its test reports, shares no id with the rest."""
    ids = [set(given.table["query_id"].to_pylist()) for given in read]
    is_foreign = ["foreign" in given.signature for given in read]
    known = set(queries.ids if queries is not None else ()).union(
        *(some for some, foreign in zip(ids, is_foreign, strict=True) if not foreign)
    )
    for some, foreign in zip(ids, is_foreign, strict=True):
        if foreign and known and known.isdisjoint(some):
            raise InputError(
                f"foreign scores have none of the ids of {len(known):,} test reports: ids here are like "
                f"{shown_names(sorted(known)[:1])}, theirs like {shown_names(sorted(some)[:1])}.",
                "Join them by the same ids.",
            )


def _check_same(read: Sequence[Read], index: Index | None, queries: Inputs | None, function: str) -> None:
    """Raise unless the files are of one set of test reports and, where it is given, of this index."""
    for number, given in enumerate(read, 1):
        if not given.table.num_rows:
            raise InputError(f"results file {number} has no test report.", "Leave the file out.")
        made_with = given.signature.get("index")
        if index is not None and made_with is not None and made_with != index.fingerprint:
            raise InputError(
                f"results file {number} was made with index {made_with[:12]}, not with {index.fingerprint[:12]} "
                f"({index.folder}).",
                "Pass the other index.",
            )
    if queries is not None:
        said = [] if index is None else [index.section]
        for section, by in [*said, *((given.signature.get("section"), "a signature") for given in read)]:
            check_sections(function, queries.section, (section, by), ("test reports", "results"))
    # What was scored with --inner is a part of the test reports.
    whole = [given.signature for given in read if not given.signature.get("left_out")]
    known = {str(signature["references"]) for signature in whole if signature.get("references")}
    if queries is not None:
        known |= {digest(queries)}
    if len(known) > 1:
        raise InputError(
            f"results and queries are of {len(known)} different sets of test reports.",
            "Pass files that were made with the same file and section.",
        )
