"""Excel workbooks (.xlsx): the cells of a sheet. Each becomes the text that a CSV file would have."""

import re
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from metric_oracle.base.errors import InputError, not_installed
from metric_oracle.corpora.text_files import check_unpacked, existing_file
from metric_oracle.corpora.usual_names import IDS, TEXTS, matching

if TYPE_CHECKING:
    import polars as pl


_TITLES = 10  # rows above a header, at most


def read_sheet(path: Path) -> tuple[list[str], list["pl.Series"], str]:
    """Return header, columns and a note ("" or "sheet 1 of 2") of the first visible sheet of a workbook.

    Numbers become text without an exponent or a needless ".0", dates as ``2020-01-31 00:00:00``. A cell without
    content, or with an error such as #N/A, is None; rows without any content, and titles above the header, are left
    out. Raise InputError for a formula without its result.
    """
    import polars as pl

    existing_file(path)
    try:
        import fastexcel
    except ImportError:
        raise not_installed(str(path), "fastexcel", "excel") from None
    _check_archive(path)
    try:
        workbook = fastexcel.read_excel(path)
        sheets = (workbook.load_sheet(name, header_row=None, dtypes="string") for name in workbook.sheet_names)
        sheet = next((sheet for sheet in sheets if sheet.visible == "visible"), None)
        cells = None if sheet is None else sheet.to_polars()
    except fastexcel.FastExcelError:
        raise _damaged(path) from None
    if sheet is None or cells is None or not cells.height:
        raise InputError(f"{path} has no table in its first visible sheet.", "Put the table there, or show its sheet.")
    number = workbook.sheet_names.index(sheet.name)
    content = _content(path, number)
    _check_formulas(path, content)
    cells = cells.with_columns(pl.all().replace(_long_numbers(content)))
    n_above = _n_above_header(cells)
    filled = cells[n_above + 1 :].filter(~pl.all_horizontal(pl.all().is_null()))
    # The note says which of several sheets was read, by number: its name may be that of a patient.
    notes = [f"sheet {number + 1} of {n}"] if (n := len(workbook.sheet_names)) > 1 else []
    notes += [f"without {n_above} row{'s' * (n_above > 1)} above the header"] if n_above else []
    return [name or "" for name in cells.row(n_above)], filled.get_columns(), ", ".join(notes)


def _n_above_header(cells: "pl.DataFrame") -> int:
    """Return the number of rows above the header: titles, of one cell each, if usual names of columns follow them."""
    for number, row in enumerate(cells.head(_TITLES + 1).iter_rows()):
        names = [name for name in row if name]
        if len(names) > 1:
            return number if number and matching(names, IDS | TEXTS) else 0
    return 0


def _content(path: Path, number: int) -> str:
    """Return the XML of the sheet of a number, "" if it is not found."""
    with zipfile.ZipFile(path) as archive:
        members = {PurePosixPath(name).as_posix(): name for name in archive.namelist()}
        listed = re.findall(r"<(?:\w+:)?sheet\s[^>]*?\w+:id=[\"']([^\"']+)", archive.read("xl/workbook.xml").decode())
        related = archive.read("xl/_rels/workbook.xml.rels").decode()
        targets: dict[str, str] = {}
        for relation in re.findall(r"<(?:\w+:)?Relationship\s[^>]*>", related):
            attributes = dict(re.findall(r"\b(Id|Target)=[\"']([^\"']+)", relation))
            targets[attributes.get("Id", "")] = attributes.get("Target", "")
        target = targets.get(listed[number], "") if number < len(listed) else ""
        member = members.get(target.lstrip("/") if target.startswith("/") else f"xl/{target}")
        return "" if member is None else archive.read(member).decode("utf-8", "replace")


def _long_numbers(sheet: str) -> dict[str, str]:
    """Return the whole numbers beyond those that floats hold, as they are read: as they are, and as floats.

    Excel keeps 15 digits. Ids of more, which were no text, have lost the others.
    """
    cells = re.findall(r"<(?:\w+:)?c(\s[^>]*)?>\s*<(?:\w+:)?v>([\d.]+(?:[eE]\+?\d+)?)<", sheet)
    numbers = [float(number) for kind, number in cells if not re.search(r"\bt=[\"'](?!n)", kind)]
    return {str(int(number)): repr(number) for number in numbers if 2.0**53 <= number < float("inf")}


def _check_formulas(path: Path, sheet: str) -> None:
    """Raise InputError if the XML of a sheet has a formula whose result it lacks: it would be an empty cell.

    Programs that write formulas without computing them leave such files.
    """
    cells = re.findall(r"<(?:\w+:)?c\s([^>]*)>\s*(<(?:\w+:)?f\b.*?)</(?:\w+:)?c>", sheet, re.DOTALL)
    without = [
        re.sub(r".*\br=[\"'](\w+).*", r"\1", attributes, flags=re.DOTALL)
        for attributes, content in cells
        if not re.search(r"<(?:\w+:)?v>[^<]", content) and not re.search(r"\bt=[\"']str", attributes)  # "" is a result
    ]
    if without:
        raise InputError(
            f"{path} has formulas without their results ({len(without):,}, the first in cell {without[0]}).",
            "Open it in Excel or LibreOffice and save it, or write the values.",
        )


def _check_archive(path: Path) -> None:
    """Raise InputError if the zip archive of a workbook is damaged, or unpacks to far more than tables do."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                check_unpacked(member.compress_size, member.file_size, path)
            if archive.testzip() is None:
                return
    except (PermissionError, InputError):
        raise
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, EOFError, NotImplementedError):
        raise _damaged(path) from None
    raise _damaged(path)


def _damaged(path: Path) -> InputError:
    """Return the error for a damaged workbook."""
    return InputError(
        f"{path} is not a whole .xlsx file: it is damaged, locked or of another format.", "Save it again."
    )
