"""Excel workbooks (.xlsx): the cells of a sheet. Each becomes the text that a CSV file would have."""

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from metric_oracle.base.errors import InputError, not_installed
from metric_oracle.corpora.text_files import check_unpacked, existing_file

if TYPE_CHECKING:
    import polars as pl


def read_sheet(path: Path) -> tuple[list[str], list["pl.Series"], str]:
    """Return header, columns and a note ("" or "sheet 1 of 2") of the first visible sheet of a workbook.

    Numbers become text without an exponent or a needless ".0", dates as ``2020-01-31 00:00:00``. A cell without
    content, or with an error such as #N/A, is None; rows without any content are left out.
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
    filled = cells[1:].filter(~pl.all_horizontal(pl.all().is_null()))
    # The note says which of several sheets was read, by number: its name may be that of a patient.
    note = f"sheet {workbook.sheet_names.index(sheet.name) + 1} of {n}" if (n := len(workbook.sheet_names)) > 1 else ""
    return [name or "" for name in cells.row(0)], filled.get_columns(), note


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
