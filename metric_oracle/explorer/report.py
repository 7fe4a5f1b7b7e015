"""One HTML file with the scores of all test reports and, unless left out, their texts and evidence."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.files import replacing
from metric_oracle.explorer.case import details, has_report
from metric_oracle.explorer.cases import Cases
from metric_oracle.explorer.figures import sections
from metric_oracle.explorer.first_page import copies_of, strips
from metric_oracle.explorer.page_views import drawn
from metric_oracle.explorer.table import informative
from metric_oracle.findings.signature import short_signature
from metric_oracle.findings.writing import check_out
from metric_oracle.web.render import STATIC, templates


def write_report(cases: Cases, out: Path, *, text: bool = True) -> None:
    """Write the scores and texts of all test reports as one HTML page, an .html file that loads nothing from elsewhere.

    Only its owner may read it, because it contains report text; its first line says so. Without `text` it has positions
    and scores only: no reports, evidence or ids.
    """
    check_out(out, endings=(".html",))
    columns = [cases.columns[i] for i in informative(cases)]
    rows = [
        {
            "place": row["q"] + 1,
            "scores": [row[column.name] for column in columns],
            "differ": row["differ"] or "",
            # The id, the text and the candidates are not on the page unless they may be.
            **(_case(cases, row["q"]) if text else {}),
        }
        for row in cases.frame.to_dicts()
    ]
    script, style = ((STATIC / name).read_text("utf-8") for name in ("report.js", "page.css"))
    figures = sections(cases)
    images = "img-src data:; " if any(section.svg for section in figures) else ""
    content_policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; {images}base-uri 'none'; "
        "form-action 'none'"
    )
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
        sections=figures,
        **drawn(strips(cases, copies_of(cases))),
    )
    with replacing(out) as temporary:
        # Permissions are set before the text is written, so that no other user can ever read it.
        os.chmod(temporary, 0o600)
        temporary.write_bytes(page.encode("utf-8", "replace"))


def _hash(content: str) -> str:
    """Return the hash by which a content security policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _case(cases: Cases, q: int) -> dict[str, Any]:
    """Return what the page shows of test report `q`: it leaves out candidates without reports."""
    content = details(cases, q, cross=False)
    return {**content, "candidates": [one for one in content["candidates"] if has_report(one)]}
