import json
import os
import re
from pathlib import Path

import pytest

from metric_oracle.errors import IndexFormatError, InputError
from metric_oracle.indexes import manifest
from metric_oracle.indexes.manifest import check_files, describe, fingerprint, read_manifest, write_json

CONTENT = {"counts": {}, "representations": {}, "files": {}}


def folder_with(tmp_path, **changes):
    """Return a folder whose manifest is right but for the changes."""
    content = changes.pop("content", CONTENT)
    whole = {
        "format": manifest.FORMAT,
        "format_version": manifest.FORMAT_VERSION,
        "fingerprint": fingerprint(content),
        "content": content,
        **changes,
    }
    folder = tmp_path / "I"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(whole))
    return folder


def files_of(folder, **contents):
    """Write files and return their description."""
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return describe(folder, contents)


def test_round_trip(tmp_path):
    folder = folder_with(tmp_path)
    assert read_manifest(folder)["content"] == CONTENT


def test_a_json_file_is_whole_or_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def full(self, *args, **kwargs):
        self.write_bytes(b'{"a"')
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"a": 2})
    assert os.listdir(tmp_path) == ["a.json"]
    assert json.loads(path.read_bytes()) == {"a": 1}


def test_folder_without_manifest(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        match = rf"^open_index: index must be a folder with manifest.json; got {folder}\. Build one with"
        with pytest.raises(IndexFormatError, match=match):
            read_manifest(folder)


def test_build_under_way(tmp_path):
    folder = folder_with(tmp_path)
    building = folder.rename(folder.with_name("I.building"))
    with pytest.raises(IndexFormatError, match=r"^open_index: index must be finished; got .*I.building, .* to resume"):
        read_manifest(building)


def test_name_that_is_not_utf_8(tmp_path):
    match = r"^open_index: index must be a name in UTF-8; got .*\. Rename the folder\.$"
    with pytest.raises(InputError, match=match):
        read_manifest(tmp_path / "caf\udce9")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "null", '"metric-oracle index"', "{}", '{"format": "other"}', "[" * 10_000, "\ufeff{}"]
)
def test_manifest_of_something_else(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    match = rf"^open_index: manifest.json must be that of a metric-oracle index; got something else in {tmp_path}\. Reb"
    with pytest.raises(IndexFormatError, match=match):
        read_manifest(tmp_path)


def test_manifest_that_is_binary(tmp_path):
    (tmp_path / "manifest.json").write_bytes(bytes(range(256)))
    with pytest.raises(IndexFormatError, match=r"must be that of a metric-oracle index"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("version", "step"), [(3, "Upgrade metric-oracle"), (1, "Rebuild it"), ("2", "Rebuild it"), (None, "Rebuild it")]
)
def test_other_format_version(tmp_path, version, step):
    folder = folder_with(tmp_path, format_version=version)
    match = rf"^open_index: format_version must be 2; got {version!r} in {folder}\. {step}\.$"
    with pytest.raises(IndexFormatError, match=match):
        read_manifest(folder)


def test_altered_manifest(tmp_path):
    folder = folder_with(tmp_path, fingerprint=fingerprint({**CONTENT, "source": "x"}))
    match = (
        r"^open_index: manifest.json must match its own fingerprint; got an altered one in .*\. Rebuild the index\.$"
    )
    with pytest.raises(IndexFormatError, match=match):
        read_manifest(folder)


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
    ],
)
def test_manifest_with_other_parts(tmp_path, content):
    folder = folder_with(tmp_path, content=content)
    match = r"^open_index: manifest.json must describe counts, representations and files; got others in .*\. Rebuild it"
    with pytest.raises(IndexFormatError, match=match):
        read_manifest(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "sub/../../secret"])
def test_paths_that_climb_out(tmp_path, name):
    (tmp_path / "secret").write_bytes(b"x")
    folder = tmp_path / "I"
    (folder / "sub").mkdir(parents=True)
    files = {name: {"bytes": 1, "sha256": manifest.sha256(tmp_path / "secret")}}
    match = rf"^open_index: {re.escape(name)} must be in the index; got no such file in .*\. Rebuild the index\.$"
    with pytest.raises(IndexFormatError, match=match):
        check_files(folder, files)


def test_missing_file(tmp_path):
    files = files_of(tmp_path, a=b"1", b=b"2")
    (tmp_path / "b").unlink()
    with pytest.raises(
        IndexFormatError, match=r"^open_index: b must be in the index; got no such file in .*\. Rebuild"
    ):
        check_files(tmp_path, files)


@pytest.mark.parametrize("content", [b"", b"12", b"1234"])
def test_file_of_another_size(tmp_path, content):
    files = files_of(tmp_path, a=b"123")
    (tmp_path / "a").write_bytes(content)
    match = (
        rf"^open_index: a must have 3 bytes; got {len(content)} in .*\. The file was cut or replaced: rebuild the in"
    )
    with pytest.raises(IndexFormatError, match=match):
        check_files(tmp_path, files)


ALTERED = (
    r"^open_index: a must have the checksum in manifest.json; got another one in .*\. The file was altered: rebuild"
)


def test_altered_byte_with_another_time(tmp_path):
    files = files_of(tmp_path, a=b"123")
    check_files(tmp_path, files)
    (tmp_path / "a").write_bytes(b"124")
    os.utime(tmp_path / "a", ns=(1, 1))
    with pytest.raises(IndexFormatError, match=ALTERED):
        check_files(tmp_path, files)


def test_altered_byte_with_the_old_time_needs_the_full_check(tmp_path):
    files = files_of(tmp_path, a=b"123")
    check_files(tmp_path, files)
    stat = (tmp_path / "a").stat()
    (tmp_path / "a").write_bytes(b"124")
    os.utime(tmp_path / "a", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    check_files(tmp_path, files)
    with pytest.raises(IndexFormatError, match=ALTERED):
        check_files(tmp_path, files, full=True)


def test_stamps_spare_the_reading(tmp_path, monkeypatch):
    files = files_of(tmp_path, a=b"123", b=b"4")
    read = []
    checksum = manifest.sha256
    monkeypatch.setattr(manifest, "sha256", lambda path: read.append(path.name) or checksum(path))
    check_files(tmp_path, files)
    assert read == ["a", "b"]
    check_files(tmp_path, files)
    assert read == ["a", "b"]
    os.utime(tmp_path / "b", ns=(1, 1))  # as after a copy
    check_files(tmp_path, files)
    check_files(tmp_path, files)
    assert read == ["a", "b", "b"]
    check_files(tmp_path, files, full=True)
    assert read == ["a", "b", "b", "a", "b"]


@pytest.mark.parametrize("text", ["", "[]", "[1]", "5", "null", '{"a": 5}', '{"a": [3]}', "{"])
def test_damaged_stamps_are_made_anew(tmp_path, text):
    files = files_of(tmp_path, a=b"123")
    (tmp_path / "stamps.json").write_text(text)
    check_files(tmp_path, files)
    assert json.loads((tmp_path / "stamps.json").read_text())["a"][0] == 3


def test_stamps_that_find_no_room_do_not_stop_a_reader(tmp_path, monkeypatch):
    files = files_of(tmp_path, a=b"123")

    def full(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    check_files(tmp_path, files)
    assert sorted(os.listdir(tmp_path)) == ["a"]
