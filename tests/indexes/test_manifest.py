import errno
import json
import os
import re
import shutil

import numpy as np
import pytest

from metric_oracle.base.errors import IndexFormatError, InputError
from metric_oracle.base.files import checksum, sha256, write_json
from metric_oracle.indexes import manifest
from metric_oracle.indexes.manifest import IndexFiles, describe, fingerprint, write_manifest
from metric_oracle.indexes.store import write_arrays
from support import AT_ONCE

CONTENT = {"counts": {}, "representations": {}, "files": {}}


def folder_with(tmp_path, **changes):
    """Return a folder whose manifest is right but for the changes."""
    content = changes.pop("content", CONTENT)
    folder = tmp_path / "I"
    folder.mkdir()
    whole = {
        "format": manifest.FORMAT,
        "format_version": manifest.FORMAT_VERSION,
        "fingerprint": checksum({}),
        "checksum": checksum(content),
        "content": content,
        **changes,
    }
    (folder / "manifest.json").write_text(json.dumps(whole))
    return folder


def sums(folder, names):
    return {name: sha256(folder / name) for name in names}


def index_of(folder, stamped=True, **contents):
    """Write an index of files, with stamps as a build leaves them."""
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    files = describe(folder, sums(folder, contents))
    if stamped:
        stamps = {name: [s.st_size, s.st_mtime_ns] for name in files for s in [(folder / name).stat()]}
        write_json(folder / "stamps.json", stamps)
    write_manifest(folder, {**CONTENT, "files": files})
    return folder


def test_round_trip(tmp_path):
    folder = folder_with(tmp_path)
    assert IndexFiles(folder).manifest["content"] == CONTENT


def test_a_json_file_is_whole_or_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def full(file):
        (temporary,) = tmp_path.glob(".a.json.*.tmp")
        os.truncate(temporary, 4)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"a": 2})
    assert os.listdir(tmp_path) == ["a.json"]
    assert json.loads(path.read_bytes()) == {"a": 1}


def test_folder_without_manifest(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        match = rf"^index must be a folder with manifest.json; got {folder}\. Build one with"
        with pytest.raises(IndexFormatError, match=match):
            IndexFiles(folder)


def test_build_under_way(tmp_path):
    folder = folder_with(tmp_path)
    building = folder.rename(folder.with_name("I.building"))
    with pytest.raises(IndexFormatError, match=r"^index must be finished; got .*I.building, .* to resume"):
        IndexFiles(building)


def test_name_that_is_not_utf_8(tmp_path):
    match = r"^index must be a name in UTF-8; got .*\. Rename the folder\.$"
    with pytest.raises(InputError, match=match):
        IndexFiles(tmp_path / "caf\udce9")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "null", '"metric-oracle index"', "{}", '{"format": "other"}', "[" * 10_000, "\ufeff{}"]
)
def test_manifest_of_something_else(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    match = rf"^manifest.json in {tmp_path} is not that of a metric-oracle index\. Build"
    with pytest.raises(IndexFormatError, match=match):
        IndexFiles(tmp_path)


def test_manifest_that_is_binary(tmp_path):
    (tmp_path / "manifest.json").write_bytes(bytes(range(256)))
    with pytest.raises(IndexFormatError, match=r"is not that of a metric-oracle index"):
        IndexFiles(tmp_path)


@pytest.mark.parametrize(
    ("version", "step"),
    [(4, "Upgrade metric-oracle"), (2, "Rebuild it"), (1, "Rebuild it"), ("3", "Rebuild it"), (None, "Rebuild it")],
)
def test_other_format_version(tmp_path, version, step):
    folder = folder_with(tmp_path, format_version=version)
    match = rf"^format_version must be 3; got {version!r} in {folder}\. {step}\.$"
    with pytest.raises(IndexFormatError, match=match):
        IndexFiles(folder)


@pytest.mark.parametrize(("key", "what"), [("checksum", "checksum"), ("fingerprint", "fingerprint")])
def test_altered_manifest(tmp_path, key, what):
    folder = folder_with(tmp_path, **{key: checksum({**CONTENT, "source": "x"})})
    match = rf"^manifest.json must match its own {what}; got an altered one in .*\. Rebuild the index\.$"
    with pytest.raises(IndexFormatError, match=match):
        IndexFiles(folder)


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        5,
        {},
        {**CONTENT, "files": []},
        {**CONTENT, "files": {"a": 1}},
        {**CONTENT, "files": {"a": {"bytes": 1}}},
        {**CONTENT, "files": {"a": {"bytes": "1", "sha256": "x"}}},
        {**CONTENT, "files": {"a": {"bytes": 0, "sha256": "x"}}},
    ],
)
def test_manifest_with_other_parts(tmp_path, content):
    folder = folder_with(tmp_path, content=content)
    match = r"^manifest.json in .* does not describe counts, representations and files\. Build"
    with pytest.raises(IndexFormatError, match=match):
        IndexFiles(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "sub/../../secret"])
def test_paths_that_climb_out(tmp_path, name):
    (tmp_path / "secret").write_bytes(b"x")
    files = {name: {"bytes": 1, "sha256": sha256(tmp_path / "secret")}}
    folder = folder_with(tmp_path, content={**CONTENT, "files": files})
    (folder / "sub").mkdir()
    match = rf"^{re.escape(name)} must be in the index; got no such file in .*\. Rebuild the index\.$"
    with pytest.raises(IndexFormatError, match=match):
        IndexFiles(folder)


@pytest.mark.parametrize("make", ["nothing", "folder", "pipe"])
def test_missing_file(tmp_path, make):
    folder = index_of(tmp_path / "I", a=b"1", b=b"2")
    (folder / "b").unlink()
    if make == "folder":
        (folder / "b").mkdir()
    elif make == "pipe":
        os.mkfifo(folder / "b")  # to open one would wait for its other end
    with pytest.raises(IndexFormatError, match=r"^b must be in the index; got no such file in .*\. Rebuild"):
        IndexFiles(folder)


@AT_ONCE
def test_manifest_that_is_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(IndexFormatError, match=r"^index must be a folder with manifest.json; got"):
        IndexFiles(tmp_path)


@pytest.mark.parametrize("content", [b"", b"12", b"1234"])
def test_file_of_another_size(tmp_path, content):
    folder = index_of(tmp_path / "I", a=b"123")
    (folder / "a").write_bytes(content)
    match = rf"^a must have 3 bytes; got {len(content)} in .*\. The file was cut or replaced: rebuild the in"
    with pytest.raises(IndexFormatError, match=match):
        IndexFiles(folder)


ALTERED = r"^a in .* does not have its checksum in manifest.json: the file was altered\. Build"


def test_altered_byte_with_another_time_is_found_at_first_use(tmp_path):
    folder = index_of(tmp_path / "I", a=b"123", b=b"4")
    stamps = (folder / "stamps.json").read_bytes()
    (folder / "a").write_bytes(b"124")
    os.utime(folder / "a", ns=(1, 1))
    files = IndexFiles(folder)
    assert files["b"][:] == b"4"
    for _ in range(2):
        with pytest.raises(IndexFormatError, match=ALTERED):
            files["a"]
    with pytest.raises(IndexFormatError, match=ALTERED):
        files.verify()
    assert (folder / "stamps.json").read_bytes() == stamps


def test_altered_byte_with_the_old_time_needs_the_full_check(tmp_path):
    folder = index_of(tmp_path / "I", a=b"123")
    stat = (folder / "a").stat()
    (folder / "a").write_bytes(b"124")
    os.utime(folder / "a", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    files = IndexFiles(folder)
    assert files["a"][:] == b"124"
    with pytest.raises(IndexFormatError, match=ALTERED):
        files.verify()


def read_files(monkeypatch):
    """Return a list that gets the name of each file that is compared with its checksum."""
    read, compare = [], IndexFiles._compare_checksum
    monkeypatch.setattr(IndexFiles, "_compare_checksum", lambda self, name: read.append(name) or compare(self, name))
    return read


def test_stamps_spare_the_reading(tmp_path, monkeypatch):
    folder = index_of(tmp_path / "I", a=b"123", b=b"4")
    read = read_files(monkeypatch)
    files = IndexFiles(folder)
    assert [files["a"][:], files["b"][:]] == [b"123", b"4"]
    assert read == []
    files.verify()
    assert read == ["a", "b"]


def copied(tmp_path, **contents):
    """Return a copy of an index, whose files have other times than those that the build recorded."""
    folder = index_of(tmp_path / "I", **contents)
    for name in contents:
        os.utime(folder / name, ns=(1, 1))
    return folder


def test_a_copy_is_read_once(tmp_path, monkeypatch):
    folder = copied(tmp_path, a=b"123", b=b"4")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    read = read_files(monkeypatch)
    IndexFiles(folder)
    assert read == []
    for _ in range(3):
        assert IndexFiles(folder)["a"][:] == b"123"
        assert read == ["a"]
    assert IndexFiles(folder)["b"][:] == b"4"
    assert read == ["a", "b"]
    # Beside the data, and nowhere else, is what spares the reading; the data stay as they are.
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert json.loads(after.pop("stamps.json")) == {"a": [3, 1], "b": [1, 1]}
    assert after == {name: content for name, content in before.items() if name != "stamps.json"}
    assert os.listdir(tmp_path) == ["I"]
    # A file in its place is another file.
    content = (folder / "a").read_bytes()
    (folder / "a").rename(tmp_path / "old")
    (folder / "a").write_bytes(content)
    os.utime(folder / "a", ns=(2, 2))
    assert IndexFiles(folder)["a"][:] == b"123"
    assert read == ["a", "b", "a"]


def test_a_full_check_spares_the_reading(tmp_path, monkeypatch):
    folder = copied(tmp_path, a=b"123", b=b"4")
    IndexFiles(folder).verify()
    read = read_files(monkeypatch)
    files = IndexFiles(folder)
    assert [files["a"][:], files["b"][:]] == [b"123", b"4"]
    assert read == []
    written = (folder / "stamps.json").stat().st_ino
    files.verify()
    assert (folder / "stamps.json").stat().st_ino == written


@pytest.mark.parametrize("obstacle", ["read-only", "full", "folder", "pipe"])
@AT_ONCE
def test_a_folder_that_cannot_be_written_is_read_again(tmp_path, monkeypatch, obstacle):
    folder = copied(tmp_path, a=b"123")
    if obstacle in ("folder", "pipe"):
        (folder / "stamps.json").unlink()
        (os.mkdir if obstacle == "folder" else os.mkfifo)(folder / "stamps.json")
    read, open_file = read_files(monkeypatch), os.open

    def refuse(path, flags, *arguments, **options):
        if flags & os.O_CREAT:
            number = {"read-only": errno.EROFS, "full": errno.ENOSPC}[obstacle]
            raise OSError(number, os.strerror(number))
        return open_file(path, flags, *arguments, **options)

    if obstacle in ("read-only", "full"):
        monkeypatch.setattr(os, "open", refuse)
    assert IndexFiles(folder)["a"][:] == b"123"
    assert IndexFiles(folder)["a"][:] == b"123"
    assert read == (["a"] if obstacle == "pipe" else ["a", "a"])  # a pipe gives way
    assert sorted(os.listdir(folder)) == ["a", "manifest.json", "stamps.json"]


def test_nothing_is_recorded_of_a_file_that_changed_since(tmp_path):
    """Neither in an index that took the name of the opened one, nor of a file that was written while it was read."""
    folder = copied(tmp_path, a=b"old")
    files = IndexFiles(folder)
    folder.rename(tmp_path / "gone")
    index_of(tmp_path / "I", a=b"new")
    stamps = (folder / "stamps.json").read_bytes()
    assert files["a"][:] == b"old"
    assert (folder / "stamps.json").read_bytes() == stamps
    shutil.rmtree(folder)
    files.verify()
    assert os.listdir(tmp_path) == ["gone"]


@pytest.mark.parametrize("text", ["", "[]", "[1]", "5", "null", '{"a": 5}', '{"a": [3]}', "{", "\x80"])
def test_damaged_stamps_cost_a_reading(tmp_path, monkeypatch, text):
    folder = index_of(tmp_path / "I", a=b"123")
    (folder / "stamps.json").write_bytes(text.encode("latin-1"))
    read = read_files(monkeypatch)
    assert IndexFiles(folder)["a"][:] == b"123"
    assert read == ["a"]


def test_files_are_those_of_the_opening(tmp_path):
    folder = index_of(tmp_path / "I", a=b"old")
    files = IndexFiles(folder)
    folder.rename(tmp_path / "gone")
    index_of(tmp_path / "I", a=b"new")
    assert files["a"][:] == b"old"
    files.verify()
    (tmp_path / "gone" / "a").unlink()
    assert files["a"][:] == b"old"


def test_no_descriptor_stays_open_but_those_of_maps(tmp_path):
    folder = index_of(tmp_path / "I", a=b"1", b=b"2")
    before = len(os.listdir("/proc/self/fd"))
    files = IndexFiles(folder)
    assert len(os.listdir("/proc/self/fd")) == before + 2
    del files
    assert len(os.listdir("/proc/self/fd")) == before
    (folder / "b").unlink()
    with pytest.raises(IndexFormatError, match="b must be in the index"):
        IndexFiles(folder)
    assert len(os.listdir("/proc/self/fd")) == before


def test_fingerprint_is_that_of_the_data(tmp_path):
    def described(*names):
        return describe(tmp_path, sums(tmp_path, names), ["data.arrow"])

    both = "data.arrow", "codes.arrow"
    write_arrays(tmp_path / "data.arrow", {"x": np.arange(5)})
    write_arrays(tmp_path / "codes.arrow", {"x": np.arange(5)})
    content = {"source": "CSV", "files": described(*both)}
    wanted = fingerprint(content)
    write_arrays(tmp_path / "codes.arrow", {"x": np.arange(6)})
    other = {"source": "Parquet", "files": described(*both)}
    assert other["files"] != content["files"]
    assert fingerprint(other) == wanted
    write_arrays(tmp_path / "data.arrow", {"x": np.arange(6)})
    assert fingerprint({"files": described("data.arrow")}) != wanted
