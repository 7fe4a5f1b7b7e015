"""Results of a search and scores of pairs: their tables, their signatures, and reading and writing their files.

The signature of a table is a dictionary that records everything needed to compute the same numbers again.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.base import option_types
from metric_oracle.base.checksum import (
    SIGNATURE,
    TABLE,
    hash_table,
    opened,
    read_signature,
    record_of,
    signature_path,
)
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.validation import public
from metric_oracle.findings.finding import Frames
from metric_oracle.findings.notebook import html
from metric_oracle.findings.writing import check_out, write_numbers
from metric_oracle.indexes.store import to_numpy
from metric_oracle.metrics import METRICS, get_metric
from metric_oracle.statistics import LEVEL, Interval, intervals

FIXED = ("query_id", "rank", "row", "candidate_id", "score")
AFTER = ("n_ties", "fallback", "exact")
OF_POOL = ("pool", "certified")  # further columns of a reranking
# Types of the columns, which a CSV file does not record.
_KINDS = {
    "query_id": pa.large_string(),
    "rank": pa.int64(),
    "row": pa.int64(),
    "candidate_id": pa.large_string(),
    "score": pa.float64(),
    "n_ties": pa.int64(),
    "fallback": pa.bool_(),
    "exact": pa.bool_(),
}
_STRINGS = ("query_id", "candidate_id", "text")
# Columns of score files that contain text.
_TEXTS = ("query_id", "reference", "prediction")
# Types of the fields that other modules read, also within the entry of one metric. A field may be absent or None.
_TYPES: dict[str, type] = {
    **dict.fromkeys(("metric", "baseline", "index", "direction", "references", "version", "system", "kind"), str),
    **dict.fromkeys(
        ("options", "representation", "metrics", "stages", "left_out", "noted", "averaged", "pool", "judge"), dict
    ),
    **dict.fromkeys(("environment", "part", "histogram", "closest_call"), dict),
    **dict.fromkeys(("draws", "seed", "distinct_texts"), int),
    "foreign": list,
}
_OF_DICTS = ("metrics", "representation")  # dicts of dicts
_OF_NUMBERS = ("stages", "closest_call", "left_out")  # dicts of numbers
# Names of the columns in report_scores.csv of CXR-Report-Metric, in its order.
PUBLISHED_NAMES = {
    "query_id": "study_id",
    "prediction": "report",
    **{name: METRICS[name].column for name in ("bleu-2", "bertscore", "chexbert", "radgraph", "radcliq:v0", "radcliq")},
}


@dataclass(frozen=True)
class Results(Frames):
    """Ranked candidates of every query.

    Attributes
    ----------
    table : pyarrow.Table
        Columns query_id, rank (from 1), row (in the corpus, from 0), candidate_id, score, the components of the metric,
        n_ties (number of corpus rows with exactly that score), fallback, exact, and text unless switched off.
    signature : dict
        What is needed to compute the same numbers again.
    """

    table: pa.Table
    signature: dict[str, Any]

    @property
    def components(self) -> list[str]:
        """Names of the component columns."""
        return [name for name in self.table.column_names if name not in (*FIXED, *AFTER, *OF_POOL, "text")]

    def mean(self) -> float:
        """Return the mean score of the best candidates of all queries."""
        return float(np.mean(self.table["score"].to_numpy()[self.table["rank"].to_numpy() == 1]))

    def mean_of_rows(self) -> float:
        """Return the mean score of all lines, of every rank; NaN if there are none."""
        return float(to_numpy(self.table["score"]).mean()) if self.table.num_rows else float("nan")

    def __repr__(self) -> str:
        import pyarrow.compute as pc

        queries, what = pc.count_distinct(self.table["query_id"]).as_py(), self.signature.get("metric")
        best = f", mean of the best {self.mean():z.4f}" if queries else ""
        return f"<Results: {what}, {self.table.num_rows:,} answers to {queries:,} queries{best}>"

    def shown(self, texts: Mapping[str, str] | None = None, components: bool = False) -> list[Any]:
        """Return what a terminal shows; see `views.answers_table`."""
        from metric_oracle.findings.views import answers_table

        return [answers_table(self, texts, components)]

    def _repr_html_(self) -> str:
        """Return what a terminal shows without the texts of reports: notebooks are kept and passed on."""
        without = [name for name in self.table.column_names if name != "text"]
        return html(replace(self, table=self.table.select(without)).shown())

    @public
    def write(self, path: str | Path) -> None:
        """Write Parquet, CSV or JSON Lines by the ending of `path`.

        Parquet stores the signature in its metadata. For CSV and JSON Lines it is written to a second file,
        ``<path>.signature.json``. In files the signature has two more fields, the checksums of the table and of itself:
        ``table_sha256`` and ``signature_sha256``.
        """
        write_numbers(Path(path), self.table, self.signature)


@dataclass(frozen=True)
class Scores(Frames):
    """Scores of pairs of reports under several metrics, one row per pair.

    Attributes
    ----------
    table : pyarrow.Table
        Columns query_id; one float64 column per metric, named as in the registry; the components of the metrics as
        ``<metric>.<component>``; and, if requested, the texts of reference and prediction. A null stands for a pair
        that cannot be scored.
    signature : dict
        ``kind`` "scores", ``system``, ``metrics`` (name -> what reproduces it, whatever the system), ``references``
        (SHA-256 over the sorted ids and texts), ``n`` and ``version``.
    """

    table: pa.Table
    signature: dict[str, Any]

    @property
    def metrics(self) -> list[str]:
        """Names of the metric columns."""
        return list(self.signature["metrics"])

    @public
    def values(self, metric: str) -> np.ndarray:
        """Return the scores under a metric, float64[...]; pairs that cannot be scored are left out."""
        # Columns of other tools (`read_foreign`) are not in the registry.
        name = metric if metric in self.metrics else get_metric(metric).name
        if name not in self.metrics:
            raise InputError("metric", f"must be one of {', '.join(self.metrics)}", shown(metric), "Score it too.")
        return self.table[name].drop_null().to_numpy()

    def mean(self) -> dict[str, float]:
        """Return the mean under each metric over the pairs that it can score; NaN if it can score none."""
        values = {name: self.values(name) for name in self.metrics}
        return {name: float(scores.mean()) if len(scores) else float("nan") for name, scores in values.items()}

    @public
    def interval(
        self,
        method: option_types.Method = "bca",
        level: option_types.Level = LEVEL,
        resamples: option_types.Resamples | None = None,
        seed: option_types.Seed = 0,
    ) -> dict[str, Interval]:
        """Return an interval of each mean over the studies that have a score; see `statistics.interval`.

        It is NaN, and marked as degenerate, for a metric with scores of fewer than two pairs. Metrics that can score
        the same pairs are resampled together.
        """
        of_metrics = {name: Interval(float("nan"), float("nan"), degenerate=True) for name in self.metrics}
        alike: dict[tuple[bool, ...], list[str]] = {}
        for name in self.metrics:
            alike.setdefault(tuple(self.table[name].is_valid().to_pylist()), []).append(name)
        for has_score, names in alike.items():
            columns = np.array([self.values(name) for name in names])
            if sum(has_score) > 1:
                of_metrics |= zip(names, intervals(columns, method, level, resamples, seed), strict=True)
        return of_metrics

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {mean:z.4f}" for name, mean in self.mean().items())
        return f"<Scores: {self.signature.get('system')}, {self.table.num_rows:,} pairs: {means}>"

    def shown(self) -> list[Any]:
        """Return what a terminal shows; see `views.scores_table`."""
        from metric_oracle.findings.views import scores_table

        return [scores_table(self)]

    @public
    def write(self, path: str | Path, *, published_names: bool = False) -> None:
        """Write Parquet, CSV or JSON Lines by the ending of `path`, with the signature as `Results.write` does.

        `published_names` gives the columns of a CSV file the names of CXR-Report-Metric's report_scores.csv.
        `read_scores` cannot read such a file.
        """
        path = Path(path)
        table = self.table
        if published_names:
            check_out(path, endings=(".csv",))
            names = [*(name for name in PUBLISHED_NAMES if name in table.column_names)]
            table = table.select([*names, *(name for name in table.column_names if name not in names)])
            table = table.rename_columns([PUBLISHED_NAMES.get(name, name) for name in table.column_names])
        write_numbers(path, table, self.signature)


def bound_under(judge: Mapping[str, Any]) -> str:
    """Return what the best scores of pools are to the oracle under a judge: numbers on the worse side of it.

    `judge` is its entry in a signature.
    """
    return f"{'a lower' if judge['direction'] == 'higher' else 'an upper'} bound of the oracle under {judge['name']}"


@public
def read_results(path: str | Path) -> Results:
    """Read the results of a search from a file.

    Parameters
    ----------
    path : str or path
        File that `Results.write` or ``oracle retrieve --out`` wrote, with its signature.

    Returns
    -------
    Results
        The table of answers and the signature.

    Raises
    ------
    InputError
        If the file does not exist, holds no results, or only those of a part of the shards.

    Examples
    --------
    >>> index = mo.build_index("train.csv", "INDEX")
    >>> mo.retrieve(index, "test.csv", "bleu").write("oracle.parquet")
    >>> mo.read_results("oracle.parquet")
    <Results: bleu-2, 24 answers to 24 queries, mean of the best 0.3880>
    """
    return Results(*read_signed(Path(path), ("results", "`mo.retrieve`"), _STRINGS, _result_columns))


def read_part(path: str | Path) -> Results:
    """Read the result of a search of some shards of a set; raise InputError for another file."""
    checked = partial(_part_columns, path)
    return Results(*read_signed(Path(path), ("parts", "`mo.retrieve`"), _STRINGS, checked))


@public
def read_scores(path: str | Path) -> Scores:
    """Read the scores of pairs of reports from a file.

    Parameters
    ----------
    path : str or path
        File that `Scores.write` or ``oracle score --out`` wrote, with its signature.

    Returns
    -------
    Scores
        The table of scores and the signature.

    Raises
    ------
    InputError
        If the file does not exist or holds no scores.

    Examples
    --------
    >>> mo.score("test.csv", "strong.csv", "rouge-l").write("strong.parquet")
    >>> mo.read_scores("strong.parquet").metrics
    ['rouge-l']
    """
    return Scores(*read_signed(Path(path), ("scores", "`mo.score`"), _TEXTS, _score_columns))


def _result_columns(table: pa.Table, signature: dict[str, Any]) -> pa.Table:
    """Return the table with the column types of a result.

    Raise InputError if it is a part of one, ValueError or KeyError if it is another table.
    """
    if "part" in signature:
        raise InputError("results", "must be whole", "a part of a search", "Join all parts first, with `mo.merge`.")
    typed = _typed(table)
    ranks, draws = typed["rank"].to_numpy(), signature.get("draws")
    if draws is not None and len(ranks) and (ranks.max() != draws or len(ranks) % draws):
        raise ValueError
    return typed


def _part_columns(path: str | Path, table: pa.Table, signature: dict[str, Any]) -> pa.Table:
    """Return the table in the file `path` with the column types of a result.

    Raise InputError if it is a whole result, ValueError or KeyError if it is another table.
    """
    if "part" not in signature:
        raise InputError("parts", "must be files of parts of a search", f"{path}, a whole result", "Leave it out.")
    numbers = [signature["part"][name] for name in ("place", "of", "documents")] + [signature["k"]]
    if any(type(n) is not int or n < 0 for n in numbers) or not 1 <= numbers[0] <= numbers[1]:
        raise ValueError
    if not table.num_columns:  # JSON Lines of shards without a row that can be scored
        table = pa.schema(list(_KINDS.items())).empty_table()
    return _typed(table)


def _typed(table: pa.Table) -> pa.Table:
    """Return a table with the column types of a result; raise ValueError if a column is absent or a value null."""
    for name, kind in _KINDS.items():
        position = table.column_names.index(name)
        table = table.set_column(position, pa.field(name, kind), table.column(position).cast(kind))
    if any(table[name].null_count for name in _KINDS):
        raise ValueError
    return table


def _score_columns(table: pa.Table, signature: dict[str, Any]) -> pa.Table:
    """Return the table with the column types of scores; raise ValueError or KeyError if it does not contain scores."""
    import pyarrow.compute as pc

    names = ["query_id", *signature["metrics"]]
    if signature["kind"] != "scores" or table.column_names[: len(names)] != names:
        raise ValueError
    for position, name in enumerate(table.column_names):
        kind = pa.large_string() if name in _TEXTS else pa.float64()
        column = table.column(position).cast(kind)
        # A score that is not there is null; NaN would enter a mean.
        if kind == pa.float64() and not pc.all(pc.is_finite(column), min_count=0).as_py():
            raise ValueError
        table = table.set_column(position, pa.field(name, kind), column)
    if table["query_id"].null_count:
        raise ValueError
    return table


def mistyped(signature: Mapping[str, Any]) -> str | None:
    """Return the name of a field of the signature with a type that no version writes; None if all types are right."""
    for name, kind in _TYPES.items():
        value = signature.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            return name
        inside = [*value.values()] if isinstance(value, dict) else []
        if name in _OF_DICTS and not all(isinstance(item, dict) for item in inside):
            return name
        if name == "metrics" and any(map(mistyped, inside)):  # those of a representation are its own
            return name
        if name in _OF_NUMBERS and any(isinstance(n, bool) or not isinstance(n, int | float) for n in inside):
            return name
    return None


def read_signed(
    path: Path, names: tuple[str, str], texts: Sequence[str], checked: Callable[[pa.Table, dict[str, Any]], pa.Table]
) -> tuple[pa.Table, dict[str, Any]]:
    """Read a table and its signature; raise InputError if the file is absent, another one, altered or damaged.

    `names` are those of the argument and of what writes such files, such as "`mo.retrieve`", for messages. `texts` are
    the columns of strings, which CSV does not record. `checked` returns the table with the right column types, or
    raises an error if table and signature are of another kind.
    """
    argument, writer = names
    rule = f"must be a file that {writer} wrote, with its signature"
    if not path.is_file():
        got = f"the folder {path}" if path.is_dir() else shown(path)
        raise InputError(argument, "must be an existing file", got, f"Write one with {writer}.")
    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            # Pass the path, not a Python file: a reader thread of Arrow that outlives the interpreter would abort it.
            table = parquet.ParquetFile(str(path), page_checksum_verification=True).read()
            stored = record_of(table.schema)
            signature = opened(stored, hash_table(table))
            altered = f"{argument} must be as {writer} wrote it; got {path}, which was altered"
            if (TABLE in stored) != (SIGNATURE in stored):  # no version writes one without the other
                raise ValueError
        else:
            raw = path.read_bytes()
            if path.suffix.lower() == ".csv":
                table = _csv_table(raw, texts)
            else:  # not splitlines, because a JSON string may contain U+2028
                table = pa.Table.from_pylist([json.loads(line) for line in raw.decode().split("\n") if line])
            other = signature_path(path)
            if not other.exists():
                raise InputError(argument, rule, f"{path} without {other.name}", "Copy both, or write it again.")
            signature = opened(read_signature(other), hashlib.sha256(raw).hexdigest())
            altered = (
                f"{argument} must be the table that its signature was written for; got {path}, altered or of another "
                f"time than {other.name}"
            )
        if signature is None:
            raise InputError(f"{altered}.", "Write it again.")
        wrong = mistyped(signature)
        if wrong is not None:
            got = f"{path}, in whose signature {wrong!r} has another type"
            raise InputError(argument, rule, got, "Write it again.")
        table = checked(table, signature)
    except (PermissionError, InputError):
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, pa.ArrowException) as error:
        raise InputError(
            argument, rule, f"{path}, which is another file or damaged", f"Write it again with {writer}."
        ) from error
    return table, signature


def _csv_table(raw: bytes, texts: Sequence[str]) -> pa.Table:
    """Return the table in the bytes of a CSV file, in which the columns `texts` are strings."""
    from pyarrow import csv

    options = csv.ConvertOptions(
        column_types=dict.fromkeys(texts, pa.string()), null_values=[""], strings_can_be_null=False
    )
    # A single block, so that a report of any length fits. One thread: another might still hold `raw` when the process
    # ends, and the interpreter aborts where a thread gives an object back so late.
    reading = csv.ReadOptions(use_threads=False, block_size=min(len(raw) + 1, 1 << 30))
    return csv.read_csv(pa.BufferReader(raw), reading, csv.ParseOptions(newlines_in_values=True), options)
