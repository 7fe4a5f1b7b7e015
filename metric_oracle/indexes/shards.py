"""A shard set: consecutive slices of the rows of one corpus, each an ordinary index, and a manifest over them.

Shards must agree in everything that scores depend on, such as the model, the dtype of its states, and the value of
uncertain labels. Their vocabularies and bounds may differ. Queries are encoded for each shard. Features that a shard
lacks still count in the sizes of queries, so that every pair has the same score as in a single index.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from metric_oracle.base import option_types
from metric_oracle.base.errors import IndexFormatError, InputError, shown
from metric_oracle.base.files import checksum, sync, write_json
from metric_oracle.base.validation import public
from metric_oracle.indexes import manifest
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.index import open_index as open_one
from metric_oracle.indexes.store import to_arrow
from metric_oracle.records import Metric

if TYPE_CHECKING:
    from metric_oracle.indexes.cider import JoinedFrequencies

FORMAT, NAME = manifest.SET_FORMAT, manifest.SET_NAME
FORMAT_VERSION = 1
PLAN = "plan.json"  # in an unfinished set: what it is built from, see `indexes.shard_build`
OPEN = 16  # shards that a set keeps open
# Entries of a representation in the manifest that may differ between shards.
_FREE = ("model",)  # the path of the model


def shard_name(place: int) -> str:
    """Return the name of the folder of shard number `place`, from 0."""
    return f"shard-{place:05}"


class Shard(Index):
    """An index that is part of a shard set; `place` is its number there. It must be the one that the set records."""

    def __init__(self, shard_set: "ShardSet", place: int) -> None:
        entry, self._of = shard_set.content["shards"][place], (shard_set, place)
        super().__init__(shard_set.folder / entry["path"])
        self.first_row = entry["first_row"]
        self._counted = shard_set
        if self.fingerprint != entry["fingerprint"] or self.n_reports != entry["reports"]:
            raise IndexFormatError(
                entry["path"],
                f"must be the shard that {shard_set.folder} was made of, fingerprint {entry['fingerprint'][:12]}",
                self.fingerprint[:12],
                "Build the set again.",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Shard, self._of


class ShardSet(Index):
    """An opened shard set, which can be used in place of an index. Shards are opened when they are needed.

    It has no arrays of its own: `part`, `reports` and `distinct` raise InputError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = _read_set(folder)
        self._counted = None
        self._frequencies: dict[str, tuple[int, np.ndarray]] = {}
        self._parts_of_shards: dict[str, Any] = {}
        self._open_shards: OrderedDict[int, Shard] = OrderedDict()
        paths = [entry["path"] for entry in self.content["shards"]]
        lacking = [path for path in paths if not (folder / path / manifest.NAME).is_file()]
        if lacking:
            raise IndexFormatError(lacking[0], "must be in the set", f"no such index in {folder}", "Build it again.")

    def __repr__(self) -> str:
        size = f"{self.n_reports:,} reports in {self.n_shards} shards"
        return f"<ShardSet {self.folder}: {size}, {self.fingerprint[:12]}>"

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self.content["shards"])

    def check_is_set(self, arguments: Mapping[str, Any], step: str = "", *, got: str) -> None:
        """Return, because it is a set of shards."""

    def shards(self, places: Sequence[int] | None = None) -> Iterator[Index]:
        """Yield the shards with the given numbers, in the given order; by default all, in the order of their rows."""
        for place in range(self.n_shards) if places is None else places:
            yield self.shard(place)

    def shard(self, place: int) -> Shard:
        """Return a shard by its number; the `OPEN` shards that were used last stay open."""
        if place not in self._open_shards:
            self._open_shards[place] = Shard(self, place)
        self._open_shards.move_to_end(place)
        if len(self._open_shards) > OPEN:
            self._open_shards.popitem(last=False)
        return self._open_shards[place]

    @cached_property
    def first_rows(self) -> np.ndarray:
        """The first row of each shard, ascending: int64[S]."""
        return np.array([entry["first_row"] for entry in self.content["shards"]], np.int64)

    def take(self, column: str, rows: np.ndarray) -> pa.ChunkedArray:
        """Return "study_id", "text" or a kept column of some rows of the whole corpus, integers in any order."""
        rows = np.asarray(rows, np.int64)
        shard_of_row = np.searchsorted(self.first_rows, rows, side="right") - 1
        chunks, places = [pa.chunked_array([], pa.large_string())], [np.empty(0, np.int64)]
        for shard in np.unique(shard_of_row).tolist():
            positions = np.flatnonzero(shard_of_row == shard)
            chunks.append(self.shard(shard).take(column, rows[positions] - self.first_rows[shard]))
            places.append(positions)
        order = np.argsort(np.concatenate(places), kind="stable")
        return pa.chunked_array([chunk for part in chunks for chunk in part.chunks], pa.large_string()).take(
            to_arrow(order)
        )

    @cached_property
    def gram_frequency(self) -> "JoinedFrequencies":
        """The number of corpus rows in which each n-gram occurs."""
        from metric_oracle.indexes.cider import JoinedFrequencies

        paths = [self.folder / entry["path"] for entry in self.content["shards"]]
        return JoinedFrequencies.of(open_one(path).part("coco") for path in paths)

    def token_frequency(self, kind: str) -> tuple[int, np.ndarray]:
        """Return the number of rows with token states, and the number of these with each token id, over all shards."""
        if kind not in self._frequencies:
            n_rows, total = 0, np.zeros(0, np.int64)
            for entry in self.content["shards"]:
                part = open_one(self.folder / entry["path"]).part(kind)
                n_rows += len(part.row_id)
                longest = np.zeros(max(len(total), len(part.frequency)), np.int64)
                longest[: len(total)] += total
                longest[: len(part.frequency)] += part.frequency
                total = longest
            self._frequencies[kind] = n_rows, total
        return self._frequencies[kind]

    def representation(self, metric: Metric) -> Any:
        """Return the documents that a metric compares of all shards, joined as in a single index; they are joined once.

        Raise InputError unless the set holds them and they are joined, see `is_joined`.
        """
        self.check_holds(metric)
        if not self.is_joined(metric):
            self._refuse()
        kind = metric.representation
        if kind not in self._parts_of_shards:
            parts = [(shard.first_row, shard.representation(metric)) for shard in self.shards()]
            self._parts_of_shards[kind] = metric.reads.load_class().of_shards(parts)
        return self._parts_of_shards[kind]

    def is_joined(self, metric: Metric) -> bool:
        """Return whether the documents that a metric compares are joined into those of a single index.

        CheXbert's label vectors are: they are few, and every shard has most of them.
        """
        return hasattr(metric.reads.load_class(), "of_shards")

    def verify_files(self) -> None:
        """Read every file of every shard; raise DamagedIndexError if one does not have its checksum."""
        for shard in self.shards():
            shard.verify_files()

    @property
    def reports(self) -> pa.Table:
        """Raise InputError: only the shards have texts."""
        self._refuse()

    @property
    def distinct(self) -> pa.Table:
        """Raise InputError: only the shards have texts."""
        self._refuse()

    def part(self, kind: str) -> Any:
        """Raise InputError: only the shards have arrays."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        """Raise InputError: only the shards of a set have texts and arrays."""
        raise not_one_index(self.folder)


def not_one_index(folder: Path) -> InputError:
    """Return the error of a call that takes one index and no set."""
    return InputError(
        f"an index here must be a single one, not a set of shards; got {folder}.",
        "Build one index of these reports, or pass one of its shards.",
    )


def is_set(path: Path) -> bool:
    """Return whether a path is the folder of a shard set, finished or not."""
    return any((path / name).is_file() for name in (NAME, PLAN))


@public
def open_index(path: option_types.IndexFolder) -> Index:
    """Open an index, or a set of shards, that [`build_index`][metric_oracle.build_index] made.

    Returns
    -------
    Index
        The index; its arrays are mapped from the files, and nothing is read before it is used.

    Raises
    ------
    IndexFormatError
        If the folder is neither, is unfinished, has another format version, or one of its files was cut or altered.

    Examples
    --------
    >>> index = mo.build_index("train.csv", "INDEX")
    >>> mo.open_index("INDEX").n_reports
    398
    """
    path = Path(path)
    return ShardSet(path) if is_set(path) else open_one(path)


def write_set(folder: Path, n_shards: int, plan_sum: str) -> None:
    """Write the manifest over finished shards, the last step of a build.

    `plan_sum` is the checksum of what the set is built from, by which a worker that starts late recognises it. Raise
    InputError if the shards were built in different ways, or a study is in two of them.
    """
    shards = [open_one(folder / shard_name(place)) for place in range(n_shards)]
    _check_studies(shards)
    reports = [shard.n_reports for shard in shards]
    first_rows = np.cumsum([0, *reports[:-1]]).tolist()
    contents = [shard.content for shard in shards]
    counts: dict[str, int] = {}
    for content in contents:
        for name, n in content["counts"].items():
            counts[name] = counts.get(name, 0) + n
    # A text that occurs in several shards is counted once for each.
    counts["distinct_texts_of_shards"] = counts.pop("distinct_texts")
    kinds = list(contents[0]["representations"])
    for shard, content in zip(shards, contents, strict=True):
        if list(content["representations"]) != kinds:
            _differ(folder, "representations", shard)
        if shard.columns != shards[0].columns:
            _differ(folder, "kept columns", shard)
    representations = {
        kind: _representation_entry(folder, kind, shards, [content["representations"][kind] for content in contents])
        for kind in kinds
    }
    content = {
        "counts": counts,
        "source": contents[0]["source"] if n_shards == 1 else f"{contents[0]['source']}; {n_shards} shards",
        "section": list(shards[0].section),
        "representations": representations,
        "shards": [
            {"path": shard.folder.name, "fingerprint": shard.fingerprint, "first_row": first, "reports": n}
            for shard, first, n in zip(shards, first_rows, reports, strict=True)
        ],
        "files": {
            shard.folder.name: {"bytes": sum(entry["bytes"] for entry in shard.content["files"].values())}
            for shard in shards
        },
    }
    if shards[0].columns:
        content["columns"] = shards[0].columns
    content["most_frequent"] = {
        kind: most_frequent(
            [(shard, first, shard.part(kind).row_id) for shard, first in zip(shards, first_rows, strict=True)]
        )
        for kind in kinds
    }
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "fingerprint": _fingerprint(content)}
    built = {
        "built_by": f"metric-oracle {version('metric-oracle')}",
        "built_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "plan": plan_sum,
    }
    write_json(folder / NAME, {**head, **built, "checksum": checksum(content), "content": content})
    sync(folder)


def most_frequent(shards: Sequence[tuple[Index, int, np.ndarray]]) -> int:
    """Return the lowest row of the most frequent text, among rows that a metric can score; -1 if it can score none.

    Each shard comes with its first row in the corpus, and with its rows that can be scored, int64[...], counted from 0
    in the shard.

    If the most frequent text of a single shard occurs n times, the most frequent text of the set occurs at least n
    times in all, so at least ``n / S`` times in one of the S shards. Only such texts are counted over all shards.
    """
    import pyarrow.compute as pc

    best = 0
    for shard, _, rows in shards:
        if len(rows):
            texts = shard.reports["distinct_id"].to_numpy()[rows]
            best = max(best, int(shard.distinct["multiplicity"].to_numpy()[texts].max()))
    if not best:
        return -1
    least = -(-best // len(shards))
    candidates = [
        shard.distinct["text"].take(pa.array(np.flatnonzero(shard.distinct["multiplicity"].to_numpy() >= least)))
        for shard, _, _ in shards
    ]
    frequent = pa.chunked_array([chunk for texts in candidates for chunk in texts.chunks], pa.large_string()).unique()
    total = np.zeros(len(frequent), np.int64)
    lowest = np.full(len(frequent), np.iinfo(np.int64).max)
    for shard, first, rows in shards:
        text = pc.fill_null(pc.index_in(shard.distinct["text"], frequent), -1).to_numpy()
        is_frequent = text >= 0
        np.add.at(total, text[is_frequent], shard.distinct["multiplicity"].to_numpy()[is_frequent])
        text_of_row = text[shard.reports["distinct_id"].to_numpy()[rows]]
        has_frequent = text_of_row >= 0
        np.minimum.at(lowest, text_of_row[has_frequent], rows[has_frequent] + first)
    total[lowest == np.iinfo(np.int64).max] = 0
    return int(lowest[total == total.max()].min())


def _check_studies(shards: Sequence[Index]) -> None:
    """Raise InputError if two shards have the same study id."""
    import polars as pl

    frames = [
        pl.DataFrame({"shard": place, "id": pl.from_arrow(shard.strings("study_id"))})
        for place, shard in enumerate(shards)
    ]
    hashes = pl.concat([frame.select("shard", pl.col("id").hash(1).alias("hash")) for frame in frames])
    doubled = hashes.filter(pl.col("hash").is_duplicated())["hash"].unique()
    if not len(doubled):
        return
    suspects = pl.concat([frame.filter(pl.col("id").hash(1).is_in(doubled.implode())) for frame in frames])
    twice = suspects.filter(pl.col("id").is_duplicated())
    if len(twice):
        study = twice["id"][0]
        places = sorted(set(twice.filter(pl.col("id") == study)["shard"].to_list()))
        where = " and ".join(shard_name(place) for place in places[:2])
        raise InputError(
            "reports",
            "must have unique ids over all shards",
            f"{shown(study)} in {where}",
            "Keep one row each and build the set again.",
        )


def _representation_entry(
    folder: Path, kind: str, shards: Sequence[Index], entries: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return what the set's manifest records of the representation `kind`; `entries` are those of the shards.

    Ints are added; InputError is raised unless all other values are equal, but for those of `_FREE`.
    """
    joined: dict[str, Any] = {}
    for name, value in entries[0].items():
        values = [entry.get(name) for entry in entries]
        if type(value) is int:
            joined[name] = sum(values)
            continue
        for shard, other in zip(shards, values, strict=True):
            if _compared(other) != _compared(value):
                _differ(folder, f"{name} of {kind}", shard)
        joined[name] = value
    return joined


def _compared(recorded: Any) -> Any:
    """Return a value of a manifest; of a dict, only the entries that must be equal in all shards."""
    if not isinstance(recorded, dict):
        return recorded
    return {name: value for name, value in recorded.items() if name not in _FREE}


def _differ(folder: Path, what: str, shard: Index) -> NoReturn:
    """Raise InputError: `shard` of the set in `folder` was built in another way than the first; `what` differs."""
    raise InputError(
        f"shards of {folder}",
        "must be built from the same kind of files with the same options",
        f"other {what} in {shard.folder.name} than in {shard_name(0)}",
        "Remove that shard and build again.",
    )


def _fingerprint(content: dict[str, Any]) -> str:
    """Return the fingerprint of a set from the content of its manifest: a SHA-256 over those of its shards."""
    return checksum([[entry["fingerprint"], entry["reports"]] for entry in content["shards"]])


def _read_set(folder: Path) -> dict[str, Any]:
    """Return the manifest of a set; raise IndexFormatError unless it is finished, unaltered and of this format."""
    manifest.check_name(folder, "index")
    if not (folder / NAME).is_file():
        raise IndexFormatError(
            "index",
            "must be finished",
            f"{folder}, a set of shards whose build is running or was stopped",
            "Run `mo.build_index` again to resume it.",
        )
    written = manifest.parse((folder / NAME).read_bytes(), FORMAT)
    if written is None:
        raise IndexFormatError(f"{NAME} in {folder} is not that of a set of shards.", "Build the set again.")
    if written.get("format_version") != FORMAT_VERSION:
        raise IndexFormatError(
            "format_version of a set",
            f"must be {FORMAT_VERSION}",
            f"{written.get('format_version')!r} in {folder}",
            "Build it again, or upgrade metric-oracle.",
        )
    content: Any = written.get("content")
    if written.get("checksum") != checksum(content) or written.get("fingerprint") != _fingerprint(content):
        raise IndexFormatError(
            NAME, "must match its own checksum", f"an altered one in {folder}", "Build the set again."
        )
    return written


def opened(index: str | Path | Index) -> Index:
    """Return an index: the argument itself if it is open, else the index opened from the path."""
    return index if isinstance(index, Index) else open_index(index)


def is_prepared(value: Any) -> bool:
    """Return whether a value is the path of a folder with an index or shard set, as `build_index` writes it."""
    return isinstance(value, str | Path) and (is_set(Path(value)) or (Path(value) / manifest.NAME).is_file())


def section_of(*others: Any) -> str | None:
    """Return the section of the first of `others` (index, prepared folder or result) that has one, else None."""
    for other in others:
        if is_prepared(other):
            other = open_index(other)
        section = other.section[0] if isinstance(other, Index) else getattr(other, "signature", {}).get("section")
        if isinstance(section, str):
            return section
    return None
