"""One HTML file with the scores of all test reports and, unless left out, their texts and evidence."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.explorer.case import groups, without_reports
from metric_oracle.explorer.cases import Cases
from metric_oracle.explorer.figures import sections
from metric_oracle.explorer.first_page import copies_of, strips
from metric_oracle.explorer.first_page_view import SHAPES, places
from metric_oracle.explorer.rows import informative
from metric_oracle.files import replacing
from metric_oracle.findings.signature import short_signature
from metric_oracle.findings.writing import check_out
from metric_oracle.web.render import STATIC, templates


def write_report(cases: Cases, out: Path, *, text: bool = True) -> None:
    """Write the scores and texts of all test reports as one HTML page, an .html file that loads nothing from elsewhere.

    Only its owner may read it, because it contains report text; its first line says so. Without `text` it has positions
    and scores only: no reports, evidence or ids.
    """
    check_out(out, endings=(".html",))
    rows = [_row(cases, q, text) for q in range(len(cases.ids))]
    script, style = ((STATIC / name).read_text("utf-8") for name in ("report.js", "page.css"))
    figures = sections(cases)
    images = "img-src data:; " if any(section.svg for section in figures) else ""
    content_policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; {images}base-uri 'none'; "
        "form-action 'none'"
    )
    columns = [cases.columns[i] for i in informative(cases)]
    means = [float(np.nanmean(column.values)) for column in columns]
    page = templates.get_template("report.html").render(
        script=script,
        style=style,
        policy=content_policy,
        rows=rows,
        columns=columns,
        means=means,
        has_text=text,
        signatures=list(map(short_signature, cases.signatures)),
        strips=[(strip, places(strip)) for strip in strips(cases, copies_of(cases))],
        shapes=SHAPES,
        sections=figures,
    )
    with replacing(out) as temporary:
        # Permissions are set before the text is written, so that no other user can ever read it.
        os.chmod(temporary, 0o600)
        temporary.write_bytes(page.encode("utf-8", "replace"))


def _hash(content: str) -> str:
    """Return the hash by which a content security policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _row(cases: Cases, q: int, text: bool) -> dict[str, Any]:
    """Return the data of test report `q` on the page; its id, text and candidates only if `text` is true."""
    scores = [float(cases.columns[i].values[q]) for i in informative(cases)]
    row: dict[str, Any] = {"place": q + 1, "scores": scores}
    row["differ"] = int(cases.disagreement[q]) or ""
    if text:
        shown, _ = without_reports(groups(cases, q, cross=False))
        row |= {"id": cases.ids[q], "reference": cases.reference(q), "groups": shown}
    return row
