"""Build an index beside its place and rename it; a killed build resumes.

A part is made in `NAME.building` and named in `build.json` with its checksums, so that the next build keeps what is
right. All files and their folders are synced before the rename, the folder above after it, and only then does
`build.json` go: a cut of the power leaves the whole index or what the next build resumes.
"""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.errors import InputError
from metric_oracle.files import exclusive, sync, write_json
from metric_oracle.indexes import manifest
from metric_oracle.indexes.contract import StoredRepresentation
from metric_oracle.indexes.index import Index, open_index
from metric_oracle.indexes.store import (
    DISTINCT,
    REPORTS,
    Strings,
    hash_strings,
    map_file,
    read_table,
    release,
    write_table,
)
from metric_oracle.metrics import ATTACHED, REPRESENTATIONS, check_searched, get_metric
from metric_oracle.progress import Progress, silent
from metric_oracle.sources.inputs import Inputs

BUILDING = ".building"
# Files of a build under way: the lock that one process holds, and what is finished.
LOCK = ".lock"
PROGRESS = "build.json"
# Folder of what an encoder has finished of its work, and what it may hold.
SCRATCH = "encoding"
_SCRATCH_FILES = ("states.raw", "states.json")
# Finished parts of a model's run, see `sources.contract.Source.run`.
_MODEL_PART = re.compile(rf"{SCRATCH}/({'|'.join(s.name for s in ATTACHED if s.model)})-\d+\.part(\.\d+\.tmp)?")
_TEMPORARY = re.compile(rf"(build|manifest|stamps|{SCRATCH}/states)\.json\.\d+\.tmp")  # of `write_json`
# Representations with files of their own.
STORED = tuple(kind for kind, record in REPRESENTATIONS.items() if not (record.parts or record.is_pair))
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def build_index(
    inputs: Inputs,
    out: str | Path,
    *,
    metrics: Sequence[str] | None = None,
    source: str = "",
    states: dict[str, int] | None = None,
    section: tuple[str | None, str] = (None, ""),
    progress: Progress | None = None,
) -> Index:
    """Build an index beside `out` and rename it; a killed build resumes.

    Parameters
    ----------
    inputs : Inputs
        The corpus, see `sources.inputs.load_inputs`. Ids and texts may be
        `indexes.store.Strings`, which take a third of the memory of lists.
    out : path
        New folder.
    metrics : sequence of str
        What to build for; by default everything that the inputs allow.
    source : str
        What was read, for people.
    states : dict
        Counts of missing, empty and token-less reports.
    section : (str or None, str)
        Which section the reports are, and what says so, see [`Reports`][metric_oracle.Reports].
    progress : function
        Called as ``progress(name, None, None)`` for each part before it is built.

    Raises
    ------
    InputError
        If `out` exists, the inputs lack what a metric needs, or the disk is full.
    """
    out = Path(out)
    kinds = _kinds(inputs, metrics)
    _check_new(out)
    if not len(inputs.ids):
        msg = "build_index: reports must be at least one; got 0. Check the file and the section."
        raise InputError(msg)
    building = out.with_name(out.name + BUILDING)
    _check_own(building)
    try:
        building.mkdir(parents=True, exist_ok=True)
        with exclusive(building, LOCK, "build_index", "build"):
            _check_new(out)  # another build may just have ended
            _build(inputs, building, kinds, (source, section), states or {}, silent if progress is None else progress)
            building.rename(out)
            sync(out.parent)
            _finish(out)
    except OSError as error:
        if error.errno not in _NO_ROOM and not any(
            _is_near(out, name) for name in (error.filename, error.filename2) if name is not None
        ):
            raise  # an input or a model that vanished, a network
        step = "Make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Repair it"
        msg = (
            f"build_index: out must be a place with room to write; got {out} ({error.strerror or error}). "
            f"{step} and run the same command again: finished parts are kept."
        )
        raise InputError(msg) from error
    return open_index(out)


def _is_near(out: Path, name: Any) -> bool:
    """Tell whether a path of an OSError is the new index, the folder that it is built in, or one above."""
    path, out = Path(os.path.abspath(os.fsdecode(name))), Path(os.path.abspath(out))
    building = out.with_name(out.name + BUILDING)
    return path.is_relative_to(out) or path.is_relative_to(building) or out.is_relative_to(path)


def _finish(out: Path) -> None:
    """Remove from a finished index what only its build needed."""
    for name in (PROGRESS, LOCK):
        (out / name).unlink(missing_ok=True)


def _check_new(out: Path) -> None:
    """Raise where a file or folder, or a link to nowhere, has the name; clean an index whose build died at its end."""
    manifest.check_name(out, "build_index", "out")
    if out.exists() or out.is_symlink():
        if all((out / name).is_file() for name in (manifest.NAME, LOCK)):
            with suppress(OSError, InputError), exclusive(out, LOCK, "build_index", "build"):
                _finish(out)
        msg = f"build_index: out must be a new folder; got {out}, which exists. Remove it or name another."
        raise InputError(msg)


def _kinds(inputs: Inputs, metrics: Sequence[str] | None) -> list[str]:
    """Return the representations to build."""
    lacking = [kind for kind in STORED if not inputs.has(kind)]
    if metrics is None:
        return [kind for kind in STORED if kind not in lacking]
    for name in metrics:
        check_searched(get_metric(name, "build_index"), "build_index")
    kinds = {kind: name for name in metrics for kind in get_metric(name, "build_index").representations}
    for kind, name in kinds.items():
        if kind in lacking:
            needs = REPRESENTATIONS[kind].source
            assert needs is not None  # what is made of the texts is never lacking
            msg = f"build_index: {needs.plural} must be given for metric {name!r}; got none. Add {needs.option}."
            raise InputError(msg)
    return [kind for kind in STORED if kind in kinds]


def _files_of(part: str) -> dict[str, bool]:
    """Return the files of a part, and whether each is data: covered by the fingerprint."""
    if part == "reports":
        return {"reports.arrow": True, "distinct.arrow": False}
    made = REPRESENTATIONS[part].load_class()
    named = [(name, True) for name in made.data_files] + [(name, False) for name in made.derived_files]
    return {f"{part}/{name}": is_data for name, is_data in named}


def _contents(building: Path) -> tuple[list[str], list[str]]:
    """Return the files of builds and their folders, the deepest last, and what no build makes; links lead nowhere."""
    modes: dict[str, int] = {}
    for folder in ("", *STORED, SCRATCH):
        if folder and not stat.S_ISDIR(modes.get(folder, 0)):
            continue
        with suppress(FileNotFoundError), os.scandir(building / folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another build is at work
                    modes[f"{folder}/{entry.name}".lstrip("/")] = entry.stat(follow_symlinks=False).st_mode
    known = {LOCK, PROGRESS, manifest.NAME, manifest.STAMPS, *(f"{SCRATCH}/{name}" for name in _SCRATCH_FILES)}
    for part in ("reports", *(kind for kind in STORED if kind in modes)):
        known |= _files_of(part).keys()
    own: list[str] = []
    foreign: list[str] = []
    for name, mode in modes.items():
        is_file = stat.S_ISREG(mode) and (name in known or _TEMPORARY.fullmatch(name) or _MODEL_PART.fullmatch(name))
        is_folder = stat.S_ISDIR(mode) and (name in STORED or name == SCRATCH)
        (own if is_file or is_folder else foreign).append(name)
    return own, foreign


def _check_own(building: Path) -> None:
    """Raise where a build folder holds what no build makes: nothing of it may be deleted or written over."""
    if building.is_symlink():
        got = "a link"
    elif not building.is_dir():
        return
    else:
        own, foreign = _contents(building)
        if not foreign and (not own or LOCK in own):
            return
        got = f"one with {foreign[0]}" if foreign else f"one without {LOCK}"
    msg = f"build_index: {building} must be what an earlier build left; got {got}. Move it, or name another out."
    raise InputError(msg)


def _build(
    inputs: Inputs,
    building: Path,
    kinds: list[str],
    said: tuple[str, tuple[str | None, str]],
    states: dict[str, int],
    progress: Progress,
) -> None:
    # Models run here, where what they have finished outlives a kill.
    inputs = inputs.completed(building / SCRATCH)
    digest = inputs_digest(inputs)
    done = _resume(building, digest, kinds)
    inputs = replace(inputs, scratch=building / SCRATCH)

    def part(name: str, make: Callable[[Path], dict[str, Any]]) -> None:
        """Build one part unless an earlier, killed build finished it."""
        if name in done:
            return
        progress(name, None, None)
        folder = building / name if name in STORED else building
        folder.mkdir(exist_ok=True)
        counts = make(folder)
        done[name] = {"counts": counts, "files": _describe(building, name)}
        write_json(building / PROGRESS, {"inputs": digest, "done": done})

    part("reports", lambda folder: _write_reports(folder, inputs))
    pa.default_memory_pool().release_unused()
    texts = Strings(read_table(map_file(building / "distinct.arrow"), DISTINCT)["text"])
    text_of_row = read_table(map_file(building / "reports.arrow"), REPORTS)["distinct_id"].chunk(0).to_numpy()
    for kind in kinds:
        part(kind, partial(_write_representation, kind, inputs=inputs, texts=texts, text_of_row=text_of_row))
    content = {
        "counts": {**done["reports"]["counts"], **{state: states[state] for state in sorted(states)}},
        "source": said[0],
        "section": list(said[1]),
        "representations": {kind: done[kind]["counts"] for kind in kinds},
        "files": {name: entry for part_name in ("reports", *kinds) for name, entry in done[part_name]["files"].items()},
    }
    stamps = {name: (building / name).stat() for name in content["files"]}
    write_json(building / manifest.STAMPS, {name: [s.st_size, s.st_mtime_ns] for name, s in stamps.items()})
    built_by = f"metric-oracle {version('metric-oracle')}"
    built_at = datetime.now(UTC).isoformat(timespec="seconds")
    manifest.write_manifest(building, content, built_by=built_by, built_at=built_at)
    folders = {(building / name).parent for name in content["files"]} | {building}
    for path in (*(building / name for name in content["files"]), building / manifest.NAME, *folders):
        sync(path)
    for name in [name for name in _contents(building)[0] if name.startswith(f"{SCRATCH}/")]:
        (building / name).unlink(missing_ok=True)
    if (building / SCRATCH).is_dir():
        (building / SCRATCH).rmdir()


def _describe(building: Path, part: str) -> dict[str, Any]:
    """Return the description of the files of a part as they are now."""
    files = _files_of(part)
    return manifest.describe(building, files, [name for name, is_data in files.items() if is_data])


def _resume(building: Path, digest: str, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the finished parts of an earlier build of the same inputs; clear away what else it made."""
    try:
        state = json.loads((building / PROGRESS).read_text(encoding="utf-8"))
        finished = state["done"] if state["inputs"] == digest else {}
        done = {name: finished[name] for name in ("reports", *kinds) if _is_right(building, name, finished.get(name))}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        done = {}
    kept = {LOCK, SCRATCH, *([PROGRESS, *done] if done else []), *(f for part in done for f in _files_of(part))}
    for name in reversed(_contents(building)[0]):
        # The encoder knows itself what it can keep.
        if name not in kept and not name.startswith(f"{SCRATCH}/"):
            if (building / name).is_dir():
                (building / name).rmdir()
            else:
                (building / name).unlink()
    return done


def _is_right(building: Path, part: str, entry: Any) -> bool:
    """Tell whether the files of a part are those that an earlier build described; a cut of the power spares no file."""
    try:
        return bool(isinstance(entry["counts"], dict) and entry["files"] == _describe(building, part))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return False


def inputs_digest(inputs: Inputs) -> str:
    """Return a hash of everything that goes into an index."""
    hasher = hashlib.sha256(version("metric-oracle").encode())
    for name in ("ids", "texts"):
        strings = Strings(getattr(inputs, name)).arrow
        if strings.null_count:
            msg = f"build_index: {name} must be strings; got {strings.null_count} missing. Leave these reports out."
            raise InputError(msg)
        hasher.update(hash_strings(strings))
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


def _write_reports(folder: Path, inputs: Inputs) -> dict[str, int]:
    """Write the distinct texts, which Arrow finds in the order of their first rows, and then the rows."""
    texts = Strings(inputs.texts).arrow
    distinct_id, n_distinct = _write_distinct(folder, texts)
    columns = {
        "row": np.arange(len(texts)),
        "study_id": Strings(inputs.ids).arrow.combine_chunks(),
        "text": texts.combine_chunks(),
        "distinct_id": distinct_id,
    }
    write_table(folder / "reports.arrow", pa.table(columns, REPORTS))
    return {"reports": len(texts), "distinct_texts": n_distinct}


def _write_distinct(folder: Path, texts: pa.ChunkedArray) -> tuple[np.ndarray, int]:
    """Write the distinct texts; return which of them each row has, int64[N], and how many there are."""
    encoded = texts.dictionary_encode()  # of one dictionary, which the last chunk has whole
    dictionary = encoded.chunk(encoded.num_chunks - 1).dictionary
    distinct_id = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]).astype(np.int64)
    n_distinct = len(dictionary)
    first = np.zeros(n_distinct, np.int64)
    first[distinct_id[::-1]] = np.arange(len(texts))[::-1]
    multiplicity = np.bincount(distinct_id, minlength=n_distinct)
    distinct = {"text": dictionary, "first_row": first, "multiplicity": multiplicity}
    write_table(folder / "distinct.arrow", pa.table(distinct, DISTINCT))
    return distinct_id, n_distinct


def _write_representation(
    kind: str, folder: Path, inputs: Inputs, texts: Strings, text_of_row: np.ndarray
) -> dict[str, Any]:
    built: StoredRepresentation = REPRESENTATIONS[kind].load_class().build(kind, inputs, texts, text_of_row)
    release()
    built.save(folder)
    attachment = inputs.attached.get(kind)
    made_by = {"encoder": attachment.made_by} if attachment is not None and attachment.made_by else {}
    return {"units": len(built.row_ptr) - 1, "rows": len(built.row_id), **built.counts(), **made_by}
