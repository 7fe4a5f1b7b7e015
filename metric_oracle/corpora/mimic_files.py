"""MIMIC-CXR's report files, one per study, in a folder or a zip archive."""

import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.text_files import check_unpacked

_MIMIC_FILE = re.compile(r"s5\d{7}\.txt")


def has_report_files(folder: Path) -> bool:
    """Return whether a folder has report files of MIMIC-CXR in it, at any depth."""
    return any(_MIMIC_FILE.fullmatch(name) for _, _, names in os.walk(folder) for name in names)


def find_report_files(path: Path) -> dict[str, str]:
    """Return name -> path of each report file in a folder, or name -> name in a zip archive, sorted by name.

    Names are relative to the folder. Raise InputError if there is no report file, the archive is damaged, or one of its
    members leads out of it.
    """
    if path.is_dir():
        files = {
            Path(folder, name).relative_to(path).as_posix(): str(Path(folder, name))
            for folder, _, names in os.walk(path)
            for name in names
            if _MIMIC_FILE.fullmatch(name)
        }
    else:
        with _open_zip(path) as archive:
            members = archive.namelist()
        for member in members:
            parts = PurePosixPath(member.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", member):
                raise InputError(
                    f"{path} has a member whose path leads out of the archive.", "Fetch the archive again."
                )
        # Programs of Windows may write names with backslashes.
        reports = [(member.replace("\\", "/"), member) for member in members]
        reports = [(name, member) for name, member in reports if _MIMIC_FILE.fullmatch(PurePosixPath(name).name)]
        files, names = dict(reports), [name for name, _ in reports]
        if len(files) < len(names):
            doubled = next(member for member, count in Counter(names).items() if count > 1)
            raise InputError(f"{path} has two members called {doubled}.", "Fetch the archive again.")
    if not files:
        step = "Name a file, or a folder with a text file for each report, called by its id."
        if not path.is_dir():
            step = "Unpack it, and name the file or folder with the reports."
        raise InputError(f"{path} holds no report files such as p10/p10000032/s50414267.txt.", step)
    return dict(sorted(files.items()))


def read_report_files(path: Path, members: list[str]) -> Iterator[str]:
    """Yield the texts of members of a folder or archive, which are values of the dict of `find_report_files`.

    Bytes that are not UTF-8 become replacement characters. Raise InputError for a member that cannot be read.
    """
    if path.is_dir():
        for name in members:
            if not os.path.isfile(name):
                raise InputError(f"{name} is not a regular file.", "Remove it.")
            yield Path(name).read_bytes().decode("utf-8", "replace")
        return
    with _open_zip(path) as archive:
        for name in members:
            try:
                member = archive.getinfo(name)
                check_unpacked(member.compress_size, member.file_size, path)
                raw = archive.read(name)
            except InputError:
                raise
            except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, NotImplementedError, OSError):
                raise InputError(
                    f"{path} has a member that cannot be unpacked, {name}: it is damaged or encrypted.",
                    "Fetch the archive again, or unpack it and name the folder.",
                ) from None
            yield raw.decode("utf-8", "replace")


def _open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip archive; raise InputError if it is damaged."""
    try:
        return zipfile.ZipFile(path)
    except PermissionError:
        raise
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise InputError(
            f"{path} is not a whole zip file: it is damaged, cut short or of another format.", "Fetch it again."
        ) from None
