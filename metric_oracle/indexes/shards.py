"""A set of shards: contiguous runs of the rows of one corpus, each an ordinary index, and a manifest over them.

What must agree between shards is what answers depend on: the order of the rows, the model and how it stored its states,
what an uncertain label counts as. Vocabularies and bounds need not: queries are encoded for each shard, and features
that it does not know count in their sizes, so that every pair has the score that it has in one index.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import IndexFormatError, InputError
from metric_oracle.files import checksum, sync, write_json
from metric_oracle.indexes import manifest
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.index import open_index as open_one
from metric_oracle.indexes.store import to_arrow

if TYPE_CHECKING:
    from metric_oracle.indexes.cider import JoinedFrequencies

FORMAT, NAME = manifest.SET_FORMAT, manifest.SET_NAME
FORMAT_VERSION = 1
PLAN = "plan.json"  # of a set under way: what it is built of, see `indexes.shard_build`
OPEN = 16  # shards that a set keeps open
# Of a representation in the manifest: what may differ between shards.
_FREE = ("model",)  # where the model lay


def shard_name(place: int) -> str:
    """Return the folder of a shard."""
    return f"shard-{place:05}"


class Shard(Index):
    """An index that is a part of a set."""

    def __init__(self, of: "ShardSet", place: int) -> None:
        record = of.content["shards"][place]
        super().__init__(of.folder / record["path"])
        self.first_row = record["first_row"]
        self._counted = of
        if self.fingerprint != record["fingerprint"] or self.n_reports != record["reports"]:
            msg = (
                f"open_index: {record['path']} must be the shard that {of.folder} was made of, fingerprint "
                f"{record['fingerprint'][:12]}; got {self.fingerprint[:12]}. Build the set again."
            )
            raise IndexFormatError(msg)


class ShardSet(Index):
    """An opened set: stands where an index does, and opens a shard when it is needed.

    What looks at the arrays of one index, as `part`, `reports` and `distinct` give them, has none here, and says so.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = _read_set(folder)
        self._counted = None
        self._frequencies: dict[str, tuple[int, np.ndarray]] = {}
        self._kept: OrderedDict[int, Shard] = OrderedDict()
        lacking = [record["path"] for record in self.content["shards"] if not _is_index(folder / record["path"])]
        if lacking:
            msg = f"open_index: {lacking[0]} must be in the set; got no such index in {folder}. Build it again."
            raise IndexFormatError(msg)

    def __repr__(self) -> str:
        held = f"{self.n_reports:,} reports in {self.n_shards} shards"
        return f"<ShardSet {self.folder}: {held}, {self.fingerprint[:12]}>"

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self.content["shards"])

    def shards(self, places: Sequence[int] | None = None) -> Iterator[Index]:
        """Yield the shards, or some of them, in the order of their rows."""
        for place in range(self.n_shards) if places is None else places:
            yield self.shard(place)

    def shard(self, place: int) -> Shard:
        """Return a shard; the ones that were used last stay open."""
        if place not in self._kept:
            self._kept[place] = Shard(self, place)
        self._kept.move_to_end(place)
        if len(self._kept) > OPEN:
            self._kept.popitem(last=False)
        return self._kept[place]

    @cached_property
    def first_rows(self) -> np.ndarray:
        """The first row of each shard, ascending: int64[S]."""
        return np.array([record["first_row"] for record in self.content["shards"]], np.int64)

    def take(self, column: str, rows: np.ndarray) -> pa.ChunkedArray:
        """Return the "study_id" or the "text" of some rows."""
        rows = np.asarray(rows, np.int64)
        which = np.searchsorted(self.first_rows, rows, side="right") - 1
        found, places = [pa.chunked_array([], pa.large_string())], [np.empty(0, np.int64)]
        for place in np.unique(which).tolist():
            some = np.flatnonzero(which == place)
            found.append(self.shard(place).take(column, rows[some] - self.first_rows[place]))
            places.append(some)
        order = np.argsort(np.concatenate(places), kind="stable")
        return pa.chunked_array([chunk for part in found for chunk in part.chunks], pa.large_string()).take(
            to_arrow(order)
        )

    @cached_property
    def gram_frequency(self) -> "JoinedFrequencies":
        """In how many rows each n-gram occurs."""
        from metric_oracle.indexes.cider import JoinedFrequencies

        paths = [self.folder / record["path"] for record in self.content["shards"]]
        return JoinedFrequencies.of(open_one(path).part("coco") for path in paths)

    def token_frequency(self, kind: str) -> tuple[int, np.ndarray]:
        """Return how many rows have token states, and in how many of them each token id occurs: int64[ids]."""
        if kind not in self._frequencies:
            n_rows, total = 0, np.zeros(0, np.int64)
            for record in self.content["shards"]:
                part = open_one(self.folder / record["path"]).part(kind)
                n_rows += len(part.row_id)
                longest = np.zeros(max(len(total), len(part.frequency)), np.int64)
                longest[: len(total)] += total
                longest[: len(part.frequency)] += part.frequency
                total = longest
            self._frequencies[kind] = n_rows, total
        return self._frequencies[kind]

    def verify_files(self) -> None:
        """Read every file of every shard and compare it with its checksum."""
        for shard in self.shards():
            shard.verify_files()

    @property
    def reports(self) -> pa.Table:
        """A set has none: its texts lie in its shards."""
        self._refuse()

    @property
    def distinct(self) -> pa.Table:
        """A set has none either."""
        self._refuse()

    def part(self, kind: str) -> Any:
        """Raise: a set has no arrays of its own."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InputError(one_index(self.folder, "open_index"))


def one_index(folder: Path, function: str) -> str:
    """Return the line for what takes one index and no set."""
    return (
        f"{function}: index must be one index here, not a set of shards; got {folder}. Build one index of these "
        "reports, or pass one of its shards."
    )


def is_set(path: Path) -> bool:
    """Tell whether a folder is a set, finished or not."""
    return any((path / name).is_file() for name in (NAME, PLAN))


def open_index(path: str | Path) -> Index:
    """Open an index, or a set of shards, that [`build_index`][metric_oracle.build_index] made.

    Parameters
    ----------
    path : str or path
        Folder of the index or of the set.

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


def write_set(folder: Path, n_shards: int) -> None:
    """Write the manifest over finished shards: last of all, synced, renamed.

    Raises
    ------
    InputError
        If the shards were built in different ways, or a study is in two of them.
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
    # The same text may be distinct in several shards.
    counts["distinct_texts_of_shards"] = counts.pop("distinct_texts")
    kinds = list(contents[0]["representations"])
    for shard, content in zip(shards, contents, strict=True):
        if list(content["representations"]) != kinds:
            _differ(folder, "representations", shard)
    records = {
        kind: _joined(folder, kind, shards, [content["representations"][kind] for content in contents])
        for kind in kinds
    }
    content = {
        "counts": counts,
        "source": contents[0]["source"] if n_shards == 1 else f"{contents[0]['source']}; {n_shards} shards",
        "section": list(shards[0].section),
        "representations": records,
        "shards": [
            {"path": shard.folder.name, "fingerprint": shard.fingerprint, "first_row": first, "reports": n}
            for shard, first, n in zip(shards, first_rows, reports, strict=True)
        ],
        "files": {
            shard.folder.name: {"bytes": sum(entry["bytes"] for entry in shard.content["files"].values())}
            for shard in shards
        },
    }
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
    }
    write_json(folder / NAME, {**head, **built, "checksum": checksum(content), "content": content})
    sync(folder)


def most_frequent(shards: Sequence[tuple[Index, int, np.ndarray]]) -> int:
    """Return the lowest scorable row of the most frequent text that has one; -1 where no row is scorable.

    Parameters
    ----------
    shards : sequence of (Index, int, int64[...])
        Each with its first row, and the rows in it that can be scored, from its own 0 on.

    Notes
    -----
    Some shard has the winner at least ``1 / S`` times as often as the winner of any one shard occurs there: only such
    texts are counted over all shards.
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
    often = [
        shard.distinct["text"].take(pa.array(np.flatnonzero(shard.distinct["multiplicity"].to_numpy() >= least)))
        for shard, _, _ in shards
    ]
    wanted = pa.chunked_array([chunk for texts in often for chunk in texts.chunks], pa.large_string()).unique()
    total = np.zeros(len(wanted), np.int64)
    lowest = np.full(len(wanted), np.iinfo(np.int64).max)
    for shard, first, rows in shards:
        place = pc.fill_null(pc.index_in(shard.distinct["text"], wanted), -1).to_numpy()
        known = place >= 0
        np.add.at(total, place[known], shard.distinct["multiplicity"].to_numpy()[known])
        of_row = place[shard.reports["distinct_id"].to_numpy()[rows]]
        some = of_row >= 0
        np.minimum.at(lowest, of_row[some], rows[some] + first)
    total[lowest == np.iinfo(np.int64).max] = 0
    return int(lowest[total == total.max()].min())


def _check_studies(shards: Sequence[Index]) -> None:
    """Raise where an id is in two shards."""
    import polars as pl

    frames = [
        pl.DataFrame({"shard": place, "id": pl.from_arrow(shard.strings("study_id"))})
        for place, shard in enumerate(shards)
    ]
    hashes = pl.concat([frame.select("shard", pl.col("id").hash(1).alias("hash")) for frame in frames])
    doubled = hashes.filter(pl.col("hash").is_duplicated())["hash"].unique()
    if not len(doubled):
        return
    alike = pl.concat([frame.filter(pl.col("id").hash(1).is_in(doubled.implode())) for frame in frames])
    twice = alike.filter(pl.col("id").is_duplicated())
    if len(twice):
        study = twice["id"][0]
        places = sorted(set(twice.filter(pl.col("id") == study)["shard"].to_list()))
        where = " and ".join(shard_name(place) for place in places[:2])
        msg = (
            f"build_index: reports must have unique ids over all shards; got {shown_names([study])} in {where}. Keep "
            "one row each and build the set again."
        )
        raise InputError(msg)


def _joined(folder: Path, kind: str, shards: Sequence[Index], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the manifests say of a representation: counts added, everything else one for all."""
    found: dict[str, Any] = {}
    for name, value in records[0].items():
        values = [record.get(name) for record in records]
        if type(value) is int:
            found[name] = sum(values)
            continue
        for shard, other in zip(shards, values, strict=True):
            if _without(other) != _without(value):
                _differ(folder, f"{name} of {kind}", shard)
        found[name] = value
    return found


def _without(value: Any) -> Any:
    return {name: v for name, v in value.items() if name not in _FREE} if isinstance(value, dict) else value


def _differ(folder: Path, what: str, shard: Index) -> NoReturn:
    msg = (
        f"build_index: shards of {folder} must be built in one way; got other {what} in {shard.folder.name} than in "
        f"{shard_name(0)}. Remove that shard and build again."
    )
    raise InputError(msg)


def _fingerprint(content: dict[str, Any]) -> str:
    """Return the identity of a set: what its shards hold, in their order."""
    return checksum([[record["fingerprint"], record["reports"]] for record in content["shards"]])


def _is_index(folder: Path) -> bool:
    return (folder / manifest.NAME).is_file()


def _read_set(folder: Path) -> dict[str, Any]:
    """Return the manifest of a set once this version can use it."""
    manifest.check_name(folder, "open_index", "index")
    if not (folder / NAME).is_file():
        msg = (
            f"open_index: index must be finished; got {folder}, a set of shards under way or killed. Run build-index "
            "again to resume it."
        )
        raise IndexFormatError(msg)
    found = manifest.parse((folder / NAME).read_bytes(), FORMAT)
    if found is None:
        msg = f"open_index: {NAME} must be that of a set of shards; got something else in {folder}. Build it again."
        raise IndexFormatError(msg)
    if found.get("format_version") != FORMAT_VERSION:
        msg = (
            f"open_index: format_version of a set must be {FORMAT_VERSION}; got {found.get('format_version')!r} in "
            f"{folder}. Build it again, or upgrade metric-oracle."
        )
        raise IndexFormatError(msg)
    content: Any = found.get("content")
    if found.get("checksum") != checksum(content) or found.get("fingerprint") != _fingerprint(content):
        msg = f"open_index: {NAME} must match its own checksum; got an altered one in {folder}. Build the set again."
        raise IndexFormatError(msg)
    return found
