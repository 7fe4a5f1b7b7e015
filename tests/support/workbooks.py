"""Excel workbooks, cell by cell, without a package that writes them."""

import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
DAY = 's="1"'  # the style of a date, which is a number of days


def _cell(place: str, value: Any) -> str:
    """Return a cell: nothing for None; text, even empty; a number, a truth value, or (attributes, value)."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
    attributes, value = value if isinstance(value, tuple) else ("t='b'" if isinstance(value, bool) else "", value)
    return f'<c r="{place}" {attributes}><v>{int(value) if isinstance(value, bool) else value}</v></c>'


def _sheet(rows: Sequence[Sequence[Any]]) -> str:
    body = ""
    for number, row in enumerate(rows, start=1):
        cells = "".join(_cell(f"{chr(65 + column)}{number}", value) for column, value in enumerate(row))
        body += f'<row r="{number}">{cells}</row>'
    return f'<worksheet xmlns="{_MAIN}"><sheetData>{body}</sheetData></worksheet>'


def write_workbook(path: Path, sheets: Mapping[str, Sequence[Sequence[Any]]], hidden: Collection[str] = ()) -> Path:
    """Write sheets, name -> rows of cells, see `_cell`."""
    listed = "".join(
        f'<sheet name="{name}" sheetId="{n}" {"state=" + repr("hidden") if name in hidden else ""} r:id="r{n}"/>'
        for n, name in enumerate(sheets, start=1)
    )
    related = "".join(
        f'<Relationship Id="r{n}" Type="{_OFFICE}/worksheet" Target="sheet{n}.xml"/>' for n in range(1, len(sheets) + 1)
    )
    members = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" '
        'ContentType="application/xml"/><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{related}<Relationship '
        f'Id="styles" Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}"><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/>'
        "</cellXfs></styleSheet>",
        **{f"xl/sheet{n}.xml": _sheet(rows) for n, rows in enumerate(sheets.values(), start=1)},
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{content}')
    return path
