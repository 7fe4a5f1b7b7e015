"""Folders of plain text files, one report in each, whose names are the ids."""

from pathlib import Path

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.joining import IdSource
from metric_oracle.corpora.tables import canonical_ids, check_unique
from metric_oracle.corpora.text_files import read_text

IDS_FROM = IdSource("file name", "key")
WHAT = "folder of text files, id file name"
_OF_SYSTEMS = {"thumbs.db", "desktop.ini"}
_NO_REPORTS = {"readme", "license", "licence", "changelog", "index", "requirements"}


def find_text_files(path: Path) -> dict[str, Path]:
    """Return id -> path of the reports in a folder, sorted by name; empty if they have other endings than .txt.

    Raise InputError where the name of a file may be no id: beside folders and files of other kinds, or a README.
    """
    inside = sorted(
        file for file in path.iterdir() if not file.name.startswith(".") and file.name.lower() not in _OF_SYSTEMS
    )
    files = [file for file in inside if file.suffix.lower() == ".txt" and file.is_file()]
    if not files:
        return {}
    others = [file for file in inside if file not in files or file.stem.lower() in _NO_REPORTS]
    if others:
        raise InputError(
            f"{path} has text files and {len(others):,} other files or folders, such as {others[0].name}.",
            "Leave a text file for each report alone in the folder, called by its id.",
        )
    ids = canonical_ids([file.stem for file in files], f"the names of the files in {path}")
    check_unique(ids, f"the names of the files in {path}")
    return dict(zip(ids, files, strict=True))


def read_text_files(files: list[Path]) -> list[str | None]:
    """Return the text of each file without white space around it; "" for an empty one."""
    return [read_text(file, may_be_empty=True)[0].strip() for file in files]
