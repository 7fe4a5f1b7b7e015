"""Build an index in a temporary folder next to its final path, then rename the folder; an interrupted build resumes.

The folder, `NAME.building`, is that of a job (see `job`), whose pieces are the files of the index. They are recorded
part by part: the reports, then each representation. Its state is deleted last, so that a power cut leaves either the
whole index or a folder that the next build resumes. What the folder may hold is known by name: if its state is lost or
of an earlier version, the build starts again.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.base.argument_checks import check_new_folder
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import move_folder, write_json
from metric_oracle.base.job import Job, working
from metric_oracle.base.locks import LOCK, exclusive
from metric_oracle.base.progress import Progress, silent
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes import manifest
from metric_oracle.indexes.contract import Corpus, StoredDocuments
from metric_oracle.indexes.index import Index, open_index
from metric_oracle.indexes.store import (
    COLUMNS,
    DISTINCT,
    REPORTS,
    Strings,
    hash_strings,
    map_file,
    read_table,
    release,
    write_files,
    write_table,
)
from metric_oracle.metrics import ATTACHED, REPRESENTATIONS, check_searched, get_metric
from metric_oracle.sources.attaching import can_make, run_models

BUILDING = ".building"
PROGRESS = "build.json"  # the state of the job, see `job`
# Folder for the finished work of an encoder, and the names of its files.
SCRATCH = "encoding"
_SCRATCH_FILES = ("states.raw", "states.json")
# Files with the output of a model so far and their state, see `sources.contract.Source.run`.
_MODELS = "|".join(source.name for source in ATTACHED if source.model)
_MODEL_FILE = re.compile(rf"{SCRATCH}/\.?({_MODELS})(-\d+\.part|\.json)(\.\d+\.tmp)?")
_TEMPORARY = re.compile(rf"({SCRATCH}/)?\.?(build|manifest|stamps|states)\.json\.\d+\.tmp")  # of `write_bytes`
# Representations with files of their own.
STORED = tuple(one.name for one in REPRESENTATIONS.values() if one.is_stored)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def build_index(
    reports: Reports,
    out: str | Path,
    *,
    metrics: Sequence[str] | None = None,
    source: str = "",
    states: dict[str, int] | None = None,
    section: tuple[str | None, str] = (None, ""),
    progress: Progress | None = None,
) -> Index:
    """Build an index in a temporary folder next to `out`, then rename the folder; an interrupted build resumes.

    Ids and texts of the corpus may be `indexes.store.Strings`, which need a third of the memory of lists. By default
    the index supports all `metrics` that the reports allow. The manifest records `source`, a description of the
    files for people; `states`, the numbers of missing, empty and tokenless reports by name; and `section`, that of the
    reports and how it is known. `progress` is called as ``progress(name, None, None)`` before each part is built.

    Raise InputError if `out` exists or cannot be written, there are no reports, they lack what a metric needs, or the
    temporary folder has files that are not those of a build; InUseError if another process is building in it.
    """
    out = Path(out)
    kinds = kinds_of(reports, metrics)
    _check_new(out)
    check_some(reports)
    building = out.with_name(out.name + BUILDING)
    _check_own(building)
    try:
        with working(building, "build"):
            _check_new(out)  # another build may have finished in the meantime
            _build(reports, building, kinds, (source, section), states or {}, silent if progress is None else progress)
            move_folder(building, out)
            _remove_build_files(out)
    except OSError as error:
        if error.errno not in _NO_ROOM and not any(
            _is_near(out, name) for name in (error.filename, error.filename2) if name is not None
        ):
            raise  # the error concerns an input file, a model or the network, not `out`
        step = "Make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Repair it"
        raise InputError(
            "out",
            "must be a folder that can be written",
            f"{out} ({error.strerror or error})",
            f"{step} and run the same command again: finished parts are kept.",
        ) from error
    return open_index(out)


def _is_near(out: Path, error_path: Any) -> bool:
    """Return whether a path of an OSError is in the new index or the folder that it is built in, or above them."""
    path, out = Path(os.path.abspath(os.fsdecode(error_path))), Path(os.path.abspath(out))
    building = out.with_name(out.name + BUILDING)
    return path.is_relative_to(out) or path.is_relative_to(building) or out.is_relative_to(path)


def _remove_build_files(out: Path) -> None:
    """Remove the files that only the build needed from a finished index."""
    for name in (PROGRESS, LOCK):
        (out / name).unlink(missing_ok=True)


def _check_new(out: Path) -> None:
    """Raise InputError if `out` exists, also as a broken link.

    If it is an index whose build was interrupted just before its end, first remove what only the build needed.
    """
    manifest.check_name(out, "out")
    if all((out / name).is_file() for name in (manifest.NAME, LOCK)):
        with suppress(OSError, InputError), exclusive(out, "build"):
            _remove_build_files(out)
    check_new_folder("out", out)


def check_some(reports: Reports) -> None:
    """Raise InputError if there is no report."""
    if not len(reports.ids):
        raise InputError("reports", "must be at least one", "0", "Check the file and the section.")


def kinds_of(reports: Reports, metrics: Sequence[str] | None) -> list[str]:
    """Return the names of the representations to build for metrics, by name.

    For None they are those that an index has by default, as far as the reports have their sources.

    Raise InputError if the reports lack what a metric needs, or a metric is not known or has no exact search.
    """
    lacking = [kind for kind in STORED if not can_make(reports, kind)]
    if metrics is None:
        return [kind for kind in STORED if kind not in lacking and REPRESENTATIONS[kind].by_default]
    for name in metrics:
        check_searched(get_metric(name))
    kinds = {kind: name for name in metrics for kind in get_metric(name).representations}
    for kind, name in kinds.items():
        if kind in lacking:
            needs = REPRESENTATIONS[kind].source
            assert needs is not None  # a representation without a source is made of the texts, which are always there
            whose = f"{needs.plural} of the reports"
            raise InputError(whose, f"must be given for metric {name!r}", "none", f"Add {needs.option}.")
    return [kind for kind in STORED if kind in kinds]


def files_of(part: str) -> dict[str, bool]:
    """Return the names of the files of a part of an index, and for each whether the fingerprint covers it.

    A part is "reports", "columns" or a representation. The fingerprint covers files of data, not those derived from
    them.
    """
    if part == "reports":
        return {"reports.arrow": True, "distinct.arrow": False}
    if part == "columns":
        return {COLUMNS: True}
    stored = REPRESENTATIONS[part].load_class()
    names = [(name, True) for name in stored.data_files] + [(name, False) for name in stored.derived_files]
    return {f"{part}/{name}": is_data for name, is_data in names}


def _contents(building: Path) -> tuple[list[str], list[str]]:
    """Return the paths in a build folder that a build may have made, files after their folders, and all other paths.

    Paths are relative to `building`. Other folders are not looked into, and links are not followed.
    """
    modes: dict[str, int] = {}
    for folder in ("", *STORED, SCRATCH):
        if folder and not stat.S_ISDIR(modes.get(folder, 0)):
            continue
        with suppress(FileNotFoundError), os.scandir(building / folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process is building
                    modes[f"{folder}/{entry.name}".lstrip("/")] = entry.stat(follow_symlinks=False).st_mode
    names = {LOCK, PROGRESS, manifest.NAME, manifest.STAMPS, *(f"{SCRATCH}/{name}" for name in _SCRATCH_FILES)}
    for part in ("reports", "columns", *(kind for kind in STORED if kind in modes)):
        names |= files_of(part).keys()
    of_builds: list[str] = []
    foreign: list[str] = []
    for name, mode in modes.items():
        is_file = stat.S_ISREG(mode) and (name in names or _TEMPORARY.fullmatch(name) or _MODEL_FILE.fullmatch(name))
        is_folder = stat.S_ISDIR(mode) and (name in STORED or name == SCRATCH)
        (of_builds if is_file or is_folder else foreign).append(name)
    return of_builds, foreign


def _check_own(building: Path) -> None:
    """Raise InputError if a build folder is a link, or has other files than those of a build, or files but no lock.

    They must not be deleted. A folder that does not exist passes.
    """
    if building.is_symlink():
        got = "a link"
    elif not building.is_dir():
        return
    else:
        of_builds, foreign = _contents(building)
        if not foreign and (not of_builds or LOCK in of_builds):
            return
        got = f"one with {foreign[0]}" if foreign else f"one without {LOCK}"
    raise InputError(
        str(building), "must be what an earlier build left", got, "Move it, or name another folder for the index."
    )


def _build(
    reports: Reports,
    building: Path,
    kinds: list[str],
    origin: tuple[str, tuple[str | None, str]],
    states: dict[str, int],
    progress: Progress,
) -> None:
    """Build all parts of an index in a build folder, then its manifest, and remove what models left in `SCRATCH`.

    `kinds` names the representations, `states` has the numbers of missing, empty and tokenless reports, and `origin` is
    `source` and `section` of `build_index`.
    """
    # Models write their output into this folder, so that it is kept if the build is interrupted.
    reports = run_models(reports, building / SCRATCH)
    digest = inputs_digest(reports)
    parts = ["reports", *(["columns"] if reports.columns else []), *kinds]
    job = _resumed(building, digest, parts)
    reports = replace(reports, scratch=building / SCRATCH)
    counts: dict[str, Any] = {}

    def part(name: str, make: Callable[[Path], dict[str, Any]]) -> None:
        """Build a part unless it is done; `make` writes its files into a folder and returns counts for the manifest."""
        files = [*files_of(name)]
        if not all(map(job.holds, files)):
            progress(name, None, None)
            folder = building / name if name in STORED else building
            folder.mkdir(exist_ok=True)
            job.record(*files, note=make(folder))
        counts[name] = job.pieces[files[0]].note

    part("reports", lambda folder: _write_reports(folder, reports))
    if reports.columns:
        part("columns", lambda folder: _write_columns(folder, reports))
    pa.default_memory_pool().release_unused()
    texts = Strings(read_table(map_file(building / "distinct.arrow"), DISTINCT)["text"])
    text_of_row = read_table(map_file(building / "reports.arrow"), REPORTS)["distinct_id"].chunk(0).to_numpy()
    for kind in kinds:
        part(kind, partial(_write_representation, kind, corpus=Corpus(reports, texts, text_of_row)))
    files = {name: is_data for name_of_part in parts for name, is_data in sorted(files_of(name_of_part).items())}
    sums = {name: job.pieces[name].sha256 for name in files}
    described = manifest.describe(building, sums, [name for name, is_data in files.items() if is_data])
    content = content_of(reports, counts, kinds, origin, states, described)
    stamps = {name: manifest.stamp((building / name).stat()) for name in content["files"]}
    write_json(building / manifest.STAMPS, stamps)
    built_by = f"metric-oracle {version('metric-oracle')}"
    built_at = datetime.now(UTC).isoformat(timespec="seconds")
    manifest.write_manifest(building, content, built_by=built_by, built_at=built_at)
    for name in [name for name in _contents(building)[0] if name.startswith(f"{SCRATCH}/")]:
        (building / name).unlink(missing_ok=True)
    if (building / SCRATCH).is_dir():
        (building / SCRATCH).rmdir()


def content_of(
    reports: Reports,
    counts: Mapping[str, dict[str, Any]],
    kinds: Sequence[str],
    origin: tuple[str, tuple[str | None, str]],
    states: Mapping[str, int],
    files: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the content of a manifest; `counts` has the entry of each part of the index, and `files` of each file."""
    return {
        "counts": {**counts["reports"], **{state: states[state] for state in sorted(states)}},
        "source": origin[0],
        "section": list(origin[1]),
        "representations": {kind: counts[kind] for kind in kinds},
        "files": dict(files),
        **({"columns": list(reports.columns)} if reports.columns else {}),
    }


def _resumed(building: Path, digest: str, parts: Sequence[str]) -> Job:
    """Return the job of a build of reports with this digest; files that earlier builds left and it has no use for go.

    What models have made so far is kept, for the encoder itself decides which of its files can be.
    """
    job = Job(building, PROGRESS)
    files = [file for part in parts for file in files_of(part)]
    job.keep(dict.fromkeys(files, digest))
    needed = {LOCK, SCRATCH, *parts, *job.pieces, *([PROGRESS] if job.pieces else [])}
    for name in reversed(_contents(building)[0]):
        if name not in needed and not name.startswith(f"{SCRATCH}/"):
            if (building / name).is_dir():
                (building / name).rmdir()
            else:
                (building / name).unlink()
    job.claim(*files, made_of=digest)
    return job


def checked_reports(reports: Reports) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the ids and the texts; raise InputError if one is missing."""
    columns = Strings(reports.ids).arrow, Strings(reports.texts).arrow
    for name, strings in zip(("ids", "texts"), columns, strict=True):
        if strings.null_count:
            raise InputError(name, "must be strings", f"{strings.null_count} missing", "Leave these reports out.")
    return columns


def inputs_digest(reports: Reports) -> str:
    """Return a SHA-256 of everything that an index is built from, in hexadecimal, with the version of this package.

    Raise InputError if an id or a text is missing.
    """
    hasher = hashlib.sha256(version("metric-oracle").encode())
    for strings in checked_reports(reports):
        hasher.update(hash_strings(strings))
    for name, values in reports.columns.items():
        hasher.update(name.encode() + hash_strings(Strings(values).arrow))
    for kind, attachment in sorted(reports.attached.items()):
        hasher.update(kind.encode())
        for part in attachment.parts():
            if isinstance(part, np.ndarray):
                hasher.update(f"{part.dtype}{part.shape}".encode())
                hasher.update(np.ascontiguousarray(part).data)
            else:
                hasher.update(repr(part).encode())
    opened = reports.opened_encoder
    if opened is not None:
        settings = (opened.encoder.signature, opened.storage.name, opened.baseline)
        hasher.update(repr(settings).encode())
    return hasher.hexdigest()


def _write_reports(folder: Path, reports: Reports) -> dict[str, int]:
    """Write the distinct texts and the rows; return both numbers, by name."""
    distinct, rows = tables_of(reports)
    write_table(folder / "distinct.arrow", distinct)
    write_table(folder / "reports.arrow", rows)
    return {"reports": rows.num_rows, "distinct_texts": distinct.num_rows}


def tables_of(reports: Reports) -> tuple[pa.Table, pa.Table]:
    """Return the tables of the distinct texts, in the order of their first rows, and of the rows."""
    texts = Strings(reports.texts).arrow
    encoded = texts.dictionary_encode()  # the chunks share one dictionary, which is complete in the last chunk
    dictionary = encoded.chunk(encoded.num_chunks - 1).dictionary
    distinct_id = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]).astype(np.int64)
    n_distinct = len(dictionary)
    first = np.zeros(n_distinct, np.int64)
    first[distinct_id[::-1]] = np.arange(len(texts))[::-1]
    multiplicity = np.bincount(distinct_id, minlength=n_distinct)
    distinct = {"text": dictionary, "first_row": first, "multiplicity": multiplicity}
    columns = {
        "row": np.arange(len(texts)),
        "study_id": Strings(reports.ids).arrow.combine_chunks(),
        "text": texts.combine_chunks(),
        "distinct_id": distinct_id,
    }
    return pa.table(distinct, DISTINCT), pa.table(columns, REPORTS)


def _write_columns(folder: Path, reports: Reports) -> dict[str, int]:
    """Write the columns that are kept with the reports; return an empty dict, no counts."""
    write_table(folder / COLUMNS, table_of_columns(reports))
    return {}


def table_of_columns(reports: Reports) -> pa.Table:
    """Return the table of the columns that are kept with the reports."""
    return pa.table({name: Strings(values).arrow.combine_chunks() for name, values in reports.columns.items()})


def _write_representation(kind: str, folder: Path, corpus: Corpus) -> dict[str, Any]:
    """Build a representation, write it into `folder`, and return what the manifest records of it."""
    built, described = make(kind, corpus)
    release()
    write_files(folder, built.files())
    return described


def make(kind: str, corpus: Corpus) -> tuple[Any, dict[str, Any]]:
    """Build a representation; return it, and what the manifest of an index records of it."""
    built: StoredDocuments = REPRESENTATIONS[kind].load_class().build(kind, corpus)
    attachment = corpus.reports.attached.get(kind)
    made_by = {"encoder": attachment.made_by} if attachment is not None and attachment.made_by else {}
    return built, {"units": len(built.row_ptr) - 1, "rows": len(built.row_id), **built.counts(), **made_by}
