"""Excel workbooks (.xlsx) as tables: every cell as the text that CSV would have for it."""

import zipfile
import zlib
from pathlib import Path

from metric_oracle.corpora.tables import Table
from metric_oracle.corpora.text_files import check_unpacked, existing_file
from metric_oracle.errors import InputError, not_installed


def read_workbook(path: Path, function: str) -> Table:
    """Read the first sheet that is not hidden.

    Numbers become text without an exponent or a needless ".0", dates as ``2020-01-31 00:00:00``. A cell without
    content, or with an error such as #N/A, is missing; rows without any content are left out.

    Parameters
    ----------
    path : Path
    function : str
        For error lines.
    """
    existing_file(path, function)
    try:
        import fastexcel
    except ImportError:
        raise not_installed(function, str(path), "fastexcel", "excel") from None
    _check_archive(path, function)
    try:
        workbook = fastexcel.read_excel(path)
        sheets = (workbook.load_sheet(name, header_row=None, dtypes="string") for name in workbook.sheet_names)
        sheet = next((sheet for sheet in sheets if sheet.visible == "visible"), None)
        cells = None if sheet is None else sheet.to_arrow()
    except fastexcel.FastExcelError:
        raise _damaged(path, function) from None
    if sheet is None or cells is None or not cells.num_rows:
        msg = (
            f"{function}: path must be a workbook with a table in its first sheet; got none in {path}. Check the file."
        )
        raise InputError(msg)
    columns = [column.to_pylist() for column in cells.columns]
    rows = [row for row in range(1, cells.num_rows) if any(column[row] is not None for column in columns)]
    names = [column[0] or "" for column in columns]
    # Where there are several, which one was read has to be said; its name may be a patient's.
    note = f"sheet {workbook.sheet_names.index(sheet.name) + 1} of {n}" if (n := len(workbook.sheet_names)) > 1 else ""
    return Table(path, "Excel", names, [[column[row] for row in rows] for column in columns], len(rows), note=note)


def _check_archive(path: Path, function: str) -> None:
    """Raise where the zip archive that a workbook is would fill the memory, or is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                check_unpacked(member.compress_size, member.file_size, path, function)
            if archive.testzip() is None:
                return
    except (PermissionError, InputError):
        raise
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, EOFError, NotImplementedError):
        raise _damaged(path, function) from None
    raise _damaged(path, function)


def _damaged(path: Path, function: str) -> InputError:
    msg = f"{function}: path must be a whole .xlsx file; got a damaged, locked or foreign one, {path}. Save it anew."
    return InputError(msg)
