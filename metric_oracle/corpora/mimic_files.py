"""MIMIC-CXR's report files, one a study: the folder, or the zip that holds them."""

import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from metric_oracle.corpora.text_files import check_unpacked
from metric_oracle.errors import InputError

_MIMIC_FILE = re.compile(r"s5\d{7}\.txt")


def find_report_files(path: Path) -> dict[str, str]:
    """Return relative name -> place of every study's report file, in name order."""
    if path.is_dir():
        found = {
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
                msg = (
                    f"read_reports: members of {path} must stay inside it; got a path that climbs out. "
                    "Fetch the archive again."
                )
                raise InputError(msg)
        names = [member for member in members if _MIMIC_FILE.fullmatch(PurePosixPath(member).name)]
        found = {member: member for member in names}
        if len(found) < len(names):
            doubled = next(member for member, count in Counter(names).items() if count > 1)
            msg = (
                f"read_reports: members of {path} must have different names; got two called {doubled}. "
                "Fetch the archive again."
            )
            raise InputError(msg)
    if not found:
        msg = (
            f"read_reports: path must hold report files like p10/p10000032/s50414267.txt; got none in {path}. "
            "Check the name."
        )
        raise InputError(msg)
    return dict(sorted(found.items()))


def read_report_files(path: Path, places: list[str]) -> Iterator[str]:
    """Yield the whole reports at some places that `find_report_files` returned."""
    if path.is_dir():
        for place in places:
            if not os.path.isfile(place):
                msg = f"read_reports: report files must be regular files; got {place}, which is none. Remove it."
                raise InputError(msg)
            yield Path(place).read_bytes().decode("utf-8", "replace")
        return
    with _open_zip(path) as archive:
        for place in places:
            try:
                member = archive.getinfo(place)
                check_unpacked(member.compress_size, member.file_size, path, "read_reports")
                raw = archive.read(place)
            except InputError:
                raise
            except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, NotImplementedError, OSError):
                msg = (
                    f"read_reports: path must be a whole zip file; got a damaged member {place} in {path}. "
                    "Fetch it again."
                )
                raise InputError(msg) from None
            yield raw.decode("utf-8", "replace")


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except PermissionError:
        raise
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        msg = f"read_reports: path must be a whole zip file; got a damaged, cut or foreign one, {path}. Fetch it again."
        raise InputError(msg) from None
