"""The answers of a search and the scores of pairs: fixed columns, the signature, and the files they go to."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.choices import RESULTS
from metric_oracle.corpora.shown import html_table
from metric_oracle.errors import InputError, called
from metric_oracle.files import json_text, replacing, sha256
from metric_oracle.indexes.manifest import check_outside
from metric_oracle.metrics import METRICS, get_metric
from metric_oracle.retrieval import sealed
from metric_oracle.retrieval.sealed import hash_table
from metric_oracle.statistics import LEVEL, Interval, intervals

FIXED = ("query_id", "rank", "row", "candidate_id", "score")
AFTER = ("n_ties", "fallback", "exact")
OF_POOL = ("pool", "certified")  # of a reranking, after these
SIGNATURE = b"metric_oracle.signature"
# Types of the columns as read back; CSV does not say them.
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
# Columns of scores that are no numbers.
_TEXTS = ("query_id", "reference", "prediction")
# Names of the columns in report_scores.csv of CXR-Report-Metric, in its order.
PUBLISHED_NAMES = {
    "query_id": "study_id",
    "prediction": "report",
    **{name: METRICS[name].column for name in ("bleu-2", "bertscore", "chexbert", "radgraph", "radcliq:v0", "radcliq")},
}


def check_out(
    path: Path,
    inputs: Sequence[str | Path | None] = (),
    *,
    function: str = "retrieve",
    argument: str = "out",
    endings: Sequence[str] = RESULTS,
) -> None:
    """Raise unless a result can be written there without harm to the `inputs`, before the work is done.

    Parameters
    ----------
    path : Path
    inputs : sequence of path or None
        Everything that the command was given, whatever it is: words and None are no files and harm nothing. The
        signature file of an input counts as one, and the one that a result gets as a result.
    function, argument : str
        For error lines.
    endings : sequence of str
        What `path` may end with.
    """
    if path.suffix.lower() not in endings:
        named = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        step = "Name one of these formats" if len(endings) > 1 else "Name such a file"
        msg = f"{function}: {argument} must end with {named}; got {path}. {step}."
        raise InputError(msg)
    if not path.parent.is_dir():
        msg = f"{function}: {argument} must be in an existing folder; got {path}. Make the folder first."
        raise InputError(msg)
    check_outside(path, function, argument)
    if path.is_dir():
        msg = f"{function}: {argument} must be a file; got the folder {path}. Name a file in it."
        raise InputError(msg)
    outputs = [path, _signature_path(path)] if path.suffix.lower() in (".csv", ".jsonl") else [path]
    for out in outputs:
        for given in [Path(given) for given in inputs if given]:
            # "." and "/" have no name, and no signature file.
            if _is_same(out, given) or (given.name and _is_same(out, _signature_path(given))):
                msg = (
                    f"{function}: {argument} must be another file than the inputs; got {path}, which is one"
                    f"{'' if out == path else f' by its signature file {out}'}. Name another file."
                )
                raise InputError(msg)
        if out.is_symlink() or (out.exists() and not out.is_file()):
            msg = (
                f"{function}: {argument} must be a new name or a regular file; got {out}, a link, pipe or device. "
                "Name another file."
            )
            raise InputError(msg)


def _signature_path(path: Path) -> Path:
    return path.with_name(path.name + ".signature.json")


def _is_same(one: Path, other: Path) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


class _Frames:
    """A table that becomes a frame of other libraries."""

    table: pa.Table

    def to_polars(self) -> Any:
        """Return the table as a Polars frame."""
        import polars

        return polars.from_arrow(self.table)

    def to_pandas(self) -> Any:
        """Return the table as a pandas frame."""
        return self.table.to_pandas()


@dataclass(frozen=True)
class Results(_Frames):
    """Ranked candidates of every query.

    Attributes
    ----------
    table : pyarrow.Table
        Columns query_id, rank (from 1), row, candidate_id, score, the components of the metric, n_ties (corpus rows
        with that very score), fallback, exact, and text unless switched off.
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
        """Return the mean score of the best answers."""
        return float(np.mean(self.table["score"].to_numpy()[self.table["rank"].to_numpy() == 1]))

    @property
    def _title(self) -> str:
        import pyarrow.compute as pc

        queries = pc.count_distinct(self.table["query_id"]).as_py()
        best = f", mean of the best {self.mean():.4f}" if queries else ""
        return f"Results: {self.signature.get('metric')}, {self.table.num_rows:,} answers to {queries:,} queries{best}"

    def __repr__(self) -> str:
        return f"<{self._title}>"

    def _repr_html_(self) -> str:
        rows = self.table.select(FIXED).slice(0, 10).to_pylist()
        return html_table(self._title, FIXED, (row.values() for row in rows))

    def write(self, path: str | Path, *, function: str = "retrieve") -> None:
        """Write Parquet, CSV or JSON Lines by the ending of `path`; the signature goes into Parquet's metadata.

        CSV and JSON Lines have none: there it lies beside the file as ``<path>.signature.json``. In a file it has two
        fields more, the checksums of the table and of itself: ``table_sha256``, ``signature_sha256``.
        """
        _write(Path(path), self.table, self.signature, function)

    def json_lines(self) -> Iterator[str]:
        """Yield one line an answer."""
        return _json_lines(self.table)


@dataclass(frozen=True)
class Scores(_Frames):
    """Scores of pairs under several metrics, one row a pair.

    Attributes
    ----------
    table : pyarrow.Table
        Columns query_id; one float64 column a metric, named as in the registry; the components of the metrics as
        ``<metric>.<component>``; and, where asked for, the texts of reference and prediction. A null stands where a
        pair cannot be scored.
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

    def values(self, metric: str) -> np.ndarray:
        """Return the scores under a metric, float64[...]; pairs that cannot be scored are left out."""
        # Columns of other tools (`read_foreign`) are not in the registry.
        name = metric if metric in self.metrics else get_metric(metric, "values").name
        if name not in self.metrics:
            msg = f"values: metric must be one of {', '.join(self.metrics)}; got {metric!r}. Score it too."
            raise InputError(msg)
        return self.table[name].drop_null().to_numpy()

    def mean(self) -> dict[str, float]:
        """Return the mean under each metric over the pairs that it can score; NaN where there is none."""
        values = {name: self.values(name) for name in self.metrics}
        return {name: float(found.mean()) if len(found) else float("nan") for name, found in values.items()}

    @called("interval")
    def interval(
        self, method: str = "bca", level: float = LEVEL, resamples: int | None = None, seed: int = 0
    ) -> dict[str, Interval]:
        """Return an interval of each mean over the studies that have a score: see `interval`.

        NaN, and degenerate, under a metric that fewer than two pairs have. Metrics that the same pairs have are
        resampled together.
        """
        found = {name: Interval(float("nan"), float("nan"), degenerate=True) for name in self.metrics}
        alike: dict[tuple[bool, ...], list[str]] = {}
        for name in self.metrics:
            alike.setdefault(tuple(self.table[name].is_valid().to_pylist()), []).append(name)
        for has_score, names in alike.items():
            columns = np.array([self.values(name) for name in names])
            if sum(has_score) > 1:
                found |= zip(names, intervals(columns, method, level, resamples, seed), strict=True)
        return found

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {mean:.4f}" for name, mean in self.mean().items())
        return f"<Scores: {self.signature.get('system')}, {self.table.num_rows:,} pairs: {means}>"

    def _repr_html_(self) -> str:
        title = f"Scores: {self.signature.get('system')}, {self.table.num_rows:,} pairs"
        rows = ((name, f"{mean:.4f}", len(self.values(name))) for name, mean in self.mean().items())
        return html_table(title, ("metric", "mean", "pairs"), rows)

    def write(self, path: str | Path, *, published_names: bool = False) -> None:
        """Write Parquet, CSV or JSON Lines by the ending of `path`, with the signature as `Results.write` has it.

        `published_names` gives the columns of a CSV file the names that CXR-Report-Metric's report_scores.csv has;
        `read_scores` takes the registry's names only.
        """
        path = Path(path)
        table = self.table
        if published_names:
            check_out(path, function="score", endings=(".csv",))
            names = [*(name for name in PUBLISHED_NAMES if name in table.column_names)]
            table = table.select([*names, *(name for name in table.column_names if name not in names)])
            table = table.rename_columns([PUBLISHED_NAMES.get(name, name) for name in table.column_names])
        _write(path, table, self.signature, "score")

    def json_lines(self) -> Iterator[str]:
        """Yield one line a pair."""
        return _json_lines(self.table)


def _write(path: Path, table: pa.Table, signature: dict[str, Any], function: str) -> None:
    """Write a table and its signature."""
    check_out(path, function=function)
    ending = path.suffix.lower()
    if ending == ".parquet":
        from pyarrow import parquet

        described = table.replace_schema_metadata({SIGNATURE: json.dumps(sealed.seal(signature, hash_table(table)))})
        with replacing(function, path) as (beside,), beside.open("wb") as file:
            parquet.write_table(described, file, write_page_checksum=True)
        return
    with replacing_signed(function, path, signature) as beside, beside.open("wb") as file:
        if ending == ".csv":
            from pyarrow import csv

            csv.write_csv(table, file)
        else:
            file.writelines(f"{line}\n".encode() for line in _json_lines(table))


@contextmanager
def replacing_signed(function: str, path: Path, signature: dict[str, Any]) -> Iterator[Path]:
    """Yield a file beside `path` for a table; it takes its place with a signature that knows it by its checksum.

    Two files cannot be renamed at once. The signature goes first and holds the one that it replaces, so that after a
    kill between the renames the old table still has its signature.
    """
    beside_path = _signature_path(path)
    replaced = None
    if path.is_file():
        with suppress(OSError, ValueError):
            replaced = sealed.opened(_read_signature(beside_path), sha256(path))
    with replacing(function, path, beside_path) as (beside, signature_beside):
        yield beside
        record = transient = sealed.seal(signature, sha256(beside))
        if replaced is not None:
            transient = {**record, sealed.REPLACES: sealed.seal(replaced, sha256(path))}
        signature_beside.write_text(json_text(transient), encoding="utf-8")
    if replaced is not None:
        with suppress(InputError), replacing(function, beside_path) as (signature_beside,):
            signature_beside.write_text(json_text(record), encoding="utf-8")


def _read_signature(path: Path) -> dict[str, Any]:
    """Read the file beside a CSV file; what is no signature raises a ValueError or OSError."""
    if not path.is_file():  # nothing is read from a pipe
        raise FileNotFoundError
    signature = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(signature, dict):
        raise ValueError
    return signature


def _json_lines(table: pa.Table) -> Iterator[str]:
    for batch in table.to_batches(max_chunksize=4096):
        for record in batch.to_pylist():
            yield json.dumps(record, ensure_ascii=False)


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
    return Results(*read_signed(Path(path), ("verify", "results", "retrieve"), _STRINGS, _result_columns))


def read_part(path: str | Path) -> Results:
    """Read what `retrieve` wrote for some shards of a set, see `retrieval.parts`."""
    checked = partial(_part_columns, path)
    return Results(*read_signed(Path(path), ("merge", "parts", "retrieve --part"), _STRINGS, checked))


def read_scores(path: str | Path, function: str = "read_scores") -> Scores:
    """Read the scores of pairs of reports from a file.

    Parameters
    ----------
    path : str or path
        File that `Scores.write` or ``oracle score --out`` wrote, with its signature.
    function : str
        Name of the caller, with which error messages begin.

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
    return Scores(*read_signed(Path(path), (function, "scores", "score"), _TEXTS, _score_columns))


def _result_columns(table: pa.Table, signature: dict[str, Any]) -> pa.Table:
    """Return the table with the types of its columns, or raise where it is no result."""
    if "part" in signature:
        msg = "verify: results must be whole; got a part of a search. Join all parts with oracle merge first."
        raise InputError(msg)
    typed = _typed(table)
    ranks, draws = typed["rank"].to_numpy(), signature.get("draws")
    if draws is not None and len(ranks) and (ranks.max() != draws or len(ranks) % draws):
        raise ValueError
    return typed


def _part_columns(path: str | Path, table: pa.Table, signature: dict[str, Any]) -> pa.Table:
    """Do the same for a part of a result."""
    if "part" not in signature:
        msg = f"merge: parts must be files that retrieve --part wrote; got {path}, a whole result. Leave it out."
        raise InputError(msg)
    numbers = [signature["part"][name] for name in ("place", "of", "documents")] + [signature["k"]]
    if any(type(n) is not int or n < 0 for n in numbers) or not 1 <= numbers[0] <= numbers[1]:
        raise ValueError
    if not table.num_columns:  # JSON Lines of shards without a row that can be scored
        table = pa.schema(list(_KINDS.items())).empty_table()
    return _typed(table)


def _typed(table: pa.Table) -> pa.Table:
    for name, kind in _KINDS.items():
        place = table.column_names.index(name)
        table = table.set_column(place, pa.field(name, kind), table.column(place).cast(kind))
    if any(table[name].null_count for name in _KINDS):
        raise ValueError
    return table


def _score_columns(table: pa.Table, signature: dict[str, Any]) -> pa.Table:
    """Return the table with the types of its columns, or raise where it holds no scores."""
    import pyarrow.compute as pc

    names = ["query_id", *signature["metrics"]]
    if signature["kind"] != "scores" or table.column_names[: len(names)] != names:
        raise ValueError
    for place, name in enumerate(table.column_names):
        kind = pa.large_string() if name in _TEXTS else pa.float64()
        column = table.column(place).cast(kind)
        # A score that is not there is null; NaN would enter a mean.
        if kind == pa.float64() and not pc.all(pc.is_finite(column), min_count=0).as_py():
            raise ValueError
        table = table.set_column(place, pa.field(name, kind), column)
    if table["query_id"].null_count:
        raise ValueError
    return table


def read_signed(
    path: Path,
    names: tuple[str, str, str],
    texts: Sequence[str],
    checked: Callable[[pa.Table, dict[str, Any]], pa.Table],
) -> tuple[pa.Table, dict[str, Any]]:
    """Read a table and its signature.

    Parameters
    ----------
    path : Path
    names : of the function and the argument in error lines, and of the command that writes such files
    texts : columns of strings; CSV does not say which
    checked : gives the columns their types, and raises for another table
    """
    function, argument, command = names
    rule = f"{function}: {argument} must be a file that {command} --out wrote, with its signature"
    if not path.is_file():
        msg = f"{function}: {argument} must be an existing file; got {path}. Write one with {command} --out."
        raise InputError(msg)
    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            # By path: of a Python file, a reader thread of Arrow may outlive the interpreter, which aborts it.
            table = parquet.ParquetFile(str(path), page_checksum_verification=True).read()
            record = json.loads((table.schema.metadata or {})[SIGNATURE])
            signature = sealed.opened(record, hash_table(table))
            altered = f"{argument} must be as {command} --out wrote it; got {path}, which was altered"
            if (sealed.TABLE in record) != (sealed.SIGNATURE in record):  # no version writes one without the other
                raise ValueError
        else:
            raw = path.read_bytes()
            table = _csv_table(raw, texts) if path.suffix.lower() == ".csv" else _json_table(raw)
            other = _signature_path(path)
            if not other.exists():
                msg = f"{rule}; got {path} without {other.name}. Copy both, or write it again."
                raise InputError(msg)
            signature = sealed.opened(_read_signature(other), hashlib.sha256(raw).hexdigest())
            altered = (
                f"{argument} must be the table that its signature was written for; got {path}, altered or of another "
                f"time than {other.name}"
            )
        if signature is None:
            msg = f"{function}: {altered}. Write it again."
            raise InputError(msg)
        wrong = sealed.mistyped(signature)
        if wrong is not None:
            msg = f"{rule}; got one whose {wrong!r} has another type in {path}. Write it again."
            raise InputError(msg)
        table = checked(table, signature)
    except (PermissionError, InputError):
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, pa.ArrowException) as error:
        msg = f"{rule}; got {path}, which is another file or damaged. Write it again."
        raise InputError(msg) from error
    return table, signature


def _csv_table(raw: bytes, texts: Sequence[str]) -> pa.Table:
    from pyarrow import csv

    options = csv.ConvertOptions(
        column_types=dict.fromkeys(texts, pa.string()), null_values=[""], strings_can_be_null=False
    )
    # One block, so that no report is too long.
    reading = csv.ReadOptions(block_size=min(len(raw) + 1, 1 << 30))
    return csv.read_csv(pa.BufferReader(raw), reading, csv.ParseOptions(newlines_in_values=True), options)


def _json_table(raw: bytes) -> pa.Table:
    # Not splitlines: a JSON string may hold U+2028 as it is.
    return pa.Table.from_pylist([json.loads(line) for line in raw.decode().split("\n") if line])
