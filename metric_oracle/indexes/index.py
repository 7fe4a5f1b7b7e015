"""Build an index from reports, and open it again."""

import errno
import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.shown import html_table
from metric_oracle.errors import IndexFormatError, InputError
from metric_oracle.indexes import manifest
from metric_oracle.indexes.contract import Representation, StoredRepresentation
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.indexes.store import read_table, write_table
from metric_oracle.metrics import METRICS, REPRESENTATIONS, Metric, get_metric

# Files of a build under way: the lock that one process holds, and what is finished.
LOCK = ".lock"
PROGRESS = "build.json"
# Folder of what an encoder has finished of its work.
SCRATCH = "encoding"


class Index:
    """An opened index: memory-mapped, read-only.

    Attributes
    ----------
    folder : Path
    manifest : dict
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = manifest.read_manifest(folder)
        manifest.check_files(folder, self.content["files"])
        self._opened: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<Index {self.folder}: {self.n_reports:,} reports, {self.fingerprint[:12]}>"

    def _repr_html_(self) -> str:
        held = {"reports": f"{self.n_reports:,}", "fingerprint": self.fingerprint, "metrics": ", ".join(self.metrics)}
        return html_table(f"Index {self.folder}", ("holds", ""), held.items())

    @property
    def content(self) -> dict[str, Any]:
        """What the fingerprint covers."""
        return self.manifest["content"]

    @property
    def fingerprint(self) -> str:
        """The identity of the index."""
        return self.manifest["fingerprint"]

    @property
    def n_reports(self) -> int:
        """Number of corpus rows."""
        return self.content["counts"]["reports"]

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that can be searched."""
        return [m.name for m in METRICS.values() if self._holds(m)]

    def _holds(self, metric: Metric) -> bool:
        return set(metric.representations) <= self.content["representations"].keys()

    @cached_property
    def reports(self) -> pa.Table:
        """Columns row, study_id, text, distinct_id."""
        return read_table(self.folder / "reports.arrow")

    @cached_property
    def distinct(self) -> pa.Table:
        """Columns text, first_row, multiplicity."""
        return read_table(self.folder / "distinct.arrow")

    def representation(self, metric: Metric) -> Representation:
        """Return the opened representation that a metric reads; a composite reads several, see :meth:`part`."""
        self.check_holds(metric)
        return self.part(metric.representation)

    def check_holds(self, metric: Metric) -> None:
        """Raise unless the index has all parts that a metric reads."""
        if not self._holds(metric):
            options = [REPRESENTATIONS[kind].option for kind in metric.representations]
            names = [metric.name] if metric.name in METRICS else list(metric.terms)
            build = " ".join(filter(None, ["--metrics", ",".join(names), *options]))
            msg = (
                f"retrieve: metric must be one of {', '.join(self.metrics)} (what {self.folder} holds); got "
                f"{metric.name!r}. Build an index with {build}."
            )
            raise InputError(msg)

    def part(self, kind: str) -> Any:
        """Return a representation by name, opened at its first use."""
        if kind not in self._opened:
            record = REPRESENTATIONS[kind]
            if record.parts:
                self._opened[kind] = record.load_class().join({name: self.part(name) for name in record.parts})
            else:
                self._opened[kind] = record.load_class().load(self.folder / kind)
        return self._opened[kind]

    def verify_files(self) -> None:
        """Read every file and compare it with its checksum."""
        manifest.check_files(self.folder, self.content["files"], full=True)


def open_index(path: str | Path) -> Index:
    """Open an index that :func:`build_index` made.

    Parameters
    ----------
    path : path
        Folder.

    Raises
    ------
    IndexFormatError
        If the folder is no index, unfinished, of another format version, or one of its files was cut or altered.
    """
    return Index(Path(path))


def build_index(
    inputs: Inputs,
    out: str | Path,
    *,
    metrics: Sequence[str] | None = None,
    source: str = "",
    states: dict[str, int] | None = None,
    section: tuple[str | None, str] = (None, ""),
    progress: Callable[[str], None] | None = None,
) -> Index:
    """Build an index beside `out` and rename it; a killed build resumes.

    Parameters
    ----------
    inputs : Inputs
        The corpus, see :func:`metric_oracle.indexes.inputs.load_inputs`.
    out : path
        New folder.
    metrics : sequence of str
        What to build for; by default everything that the inputs allow.
    source : str
        What was read, for people.
    states : dict
        Counts of missing, empty and token-less reports.
    section : (str or None, str)
        Which section the reports are, and what says so, see :class:`metric_oracle.corpora.reports.Reports`.
    progress : function
        Called with the name of each part before it is built.

    Raises
    ------
    InputError
        If `out` exists, the inputs lack what a metric needs, or the disk is full.
    """
    out = Path(out)
    kinds = _kinds(inputs, metrics)
    _check_new(out)
    if not inputs.ids:
        msg = "build_index: reports must be at least one; got 0. Check the file and the section."
        raise InputError(msg)
    building = out.with_name(out.name + ".building")
    if building.is_dir() and any(building.iterdir()) and not (building / LOCK).is_file():
        msg = (
            f"build_index: {building} must be what an earlier build left; got a folder with other files. "
            "Move it, or name another out."
        )
        raise InputError(msg)
    try:
        building.mkdir(parents=True, exist_ok=True)
        with _alone(building):
            _check_new(out)  # another build may just have ended
            _build(inputs, building, kinds, (source, section), states or {}, progress or (lambda part: None))
            building.rename(out)
    except OSError as error:
        step = "Make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Repair it"
        msg = (
            f"build_index: out must be a place with room to write; got {out} ({error.strerror or error}). "
            f"{step} and run the same command again: finished parts are kept."
        )
        raise InputError(msg) from error
    for name in (PROGRESS, LOCK):
        (out / name).unlink(missing_ok=True)
    return open_index(out)


def _check_new(out: Path) -> None:
    """Raise where a file or folder, or a link to nowhere, has the name."""
    manifest.check_name(out, "build_index", "out")
    if out.exists() or out.is_symlink():
        msg = f"build_index: out must be a new folder; got {out}, which exists. Remove it or name another."
        raise InputError(msg)


def _kinds(inputs: Inputs, metrics: Sequence[str] | None) -> list[str]:
    """Return the representations to build."""
    stored = [kind for kind, record in REPRESENTATIONS.items() if not record.parts]
    lacking = [kind for kind in stored if not inputs.has(kind)]
    if metrics is None:
        return [kind for kind in stored if kind not in lacking]
    kinds = {kind: name for name in metrics for kind in get_metric(name, "build_index").representations}
    for kind, name in kinds.items():
        if kind in lacking:
            needs = REPRESENTATIONS[kind]
            msg = f"build_index: {needs.plural} must be given for metric {name!r}; got none. Add {needs.option}."
            raise InputError(msg)
    return [kind for kind in stored if kind in kinds]


@contextmanager
def _alone(building: Path) -> Iterator[None]:
    """Hold the build folder; the system lets go of it when the process ends, however it ends."""
    with (building / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"build_index: {building} must not be in use; got another build at work there. Wait for it to end."
            raise InputError(msg) from error
        yield


def _build(
    inputs: Inputs,
    building: Path,
    kinds: list[str],
    said: tuple[str, tuple[str | None, str]],
    states: dict[str, int],
    progress: Callable[[str], None],
) -> None:
    # Models run here, where what they have finished outlives a kill.
    inputs = inputs.completed(building / SCRATCH)
    digest = _digest(inputs)
    done = _resume(building, digest, kinds)
    if inputs.encoding is not None:
        inputs = replace(inputs, encoding=replace(inputs.encoding, scratch=building / SCRATCH))

    def part(name: str, make: Callable[[Path], dict[str, Any]]) -> None:
        """Build one part unless an earlier, killed build finished it."""
        if name in done:
            return
        progress(name)
        folder = building / name if name in REPRESENTATIONS else building
        folder.mkdir(exist_ok=True)
        before = set(_files(building))
        counts = make(folder)
        done[name] = {"counts": counts, "files": manifest.describe(building, set(_files(building)) - before)}
        manifest.write_json(building / PROGRESS, {"inputs": digest, "done": done})

    distinct: dict[str, int] = {}
    distinct_id = np.fromiter((distinct.setdefault(t, len(distinct)) for t in inputs.texts), np.int64, len(inputs.ids))
    texts = list(distinct)
    part("reports", lambda folder: _write_reports(folder, inputs, texts, distinct_id))
    for kind in kinds:
        part(kind, partial(_write_representation, kind, inputs=inputs, texts=texts, distinct_id=distinct_id))
    content = {
        "counts": {**done["reports"]["counts"], **{state: states[state] for state in sorted(states)}},
        "source": said[0],
        "section": list(said[1]),
        "representations": {kind: done[kind]["counts"] for kind in kinds},
        "files": {
            name: entry for part_name in ("reports", *kinds) for name, entry in sorted(done[part_name]["files"].items())
        },
    }
    shutil.rmtree(building / SCRATCH, ignore_errors=True)
    manifest.write_json(
        building / manifest.STAMPS,
        {name: [s.st_size, s.st_mtime_ns] for name in content["files"] for s in [(building / name).stat()]},
    )
    manifest.write_json(
        building / manifest.NAME,
        {
            "format": manifest.FORMAT,
            "format_version": manifest.FORMAT_VERSION,
            "fingerprint": manifest.fingerprint(content),
            "built_by": f"metric-oracle {version('metric-oracle')}",
            "built_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "content": content,
        },
    )


def _files(building: Path) -> list[str]:
    """Return the data files of an index, relative to it."""
    paths = [*building.glob("*.arrow"), *building.glob("*/*")]
    return [path.relative_to(building).as_posix() for path in paths if path.parent.name != SCRATCH]


def _resume(building: Path, digest: str, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the finished parts of an earlier build of the same inputs; clear away everything else."""
    try:
        state = json.loads((building / PROGRESS).read_text(encoding="utf-8"))
        finished = state["done"] if state["inputs"] == digest else {}
        done = {name: finished[name] for name in ("reports", *kinds) if name in finished}
        for entry in done.values():
            manifest.check_files(building, entry["files"], full=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, IndexFormatError):
        done = {}
    kept = {LOCK, *([PROGRESS, *done] if done else []), *(name for entry in done.values() for name in entry["files"])}
    for path in [*building.glob("*/*"), *building.glob("*")]:
        # The encoder knows itself what it can keep.
        if SCRATCH not in (path.name, path.parent.name) and path.relative_to(building).as_posix() not in kept:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    return done


def _digest(inputs: Inputs) -> str:
    """Return a hash of everything that goes into an index."""
    hasher = hashlib.sha256(version("metric-oracle").encode())
    for strings in (inputs.ids, inputs.texts):
        for s in strings:
            hasher.update(b"%d:" % len(s))
            hasher.update(s.encode("utf-8", "surrogatepass"))
    for kind, attachment in sorted(inputs.attached.items()):
        hasher.update(kind.encode())
        for part in attachment.parts():
            if isinstance(part, np.ndarray):
                hasher.update(f"{part.dtype}{part.shape}".encode())
                hasher.update(np.ascontiguousarray(part).data)
            else:
                hasher.update(repr(part).encode())
    if inputs.encoding is not None:
        settings = (inputs.encoding.encoder.signature, inputs.encoding.storage.name, inputs.encoding.baseline)
        hasher.update(repr(settings).encode())
    return hasher.hexdigest()


def _write_reports(folder: Path, inputs: Inputs, texts: list[str], distinct_id: np.ndarray) -> dict[str, int]:
    rows = np.arange(len(inputs.ids))
    first = np.zeros(len(texts), np.int64)
    first[distinct_id[::-1]] = rows[::-1]
    multiplicity = np.bincount(distinct_id, minlength=len(texts))
    ids = pa.array(inputs.ids, pa.large_string())
    columns = {
        "row": rows,
        "study_id": ids,
        "text": pa.array(inputs.texts, pa.large_string()),
        "distinct_id": distinct_id,
    }
    write_table(folder / "reports.arrow", pa.table(columns))
    distinct = {"text": pa.array(texts, pa.large_string()), "first_row": first, "multiplicity": multiplicity}
    write_table(folder / "distinct.arrow", pa.table(distinct))
    return {"reports": len(inputs.ids), "distinct_texts": len(texts)}


def _write_representation(
    kind: str, folder: Path, inputs: Inputs, texts: list[str], distinct_id: np.ndarray
) -> dict[str, Any]:
    built: StoredRepresentation = REPRESENTATIONS[kind].load_class().build(kind, inputs, texts, distinct_id)
    built.save(folder)
    attachment = inputs.attached.get(kind)
    made_by = {"encoder": attachment.made_by} if attachment is not None and attachment.made_by else {}
    return {"units": len(built.row_ptr) - 1, "rows": len(built.row_id), **built.counts(), **made_by}
