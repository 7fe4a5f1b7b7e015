"""One HTML file: the overview, an index of all test reports and, unless left out, their texts and evidence."""

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metric_oracle.base.files import replacing
from metric_oracle.explorer.case import details, has_report
from metric_oracle.explorer.cases import Cases
from metric_oracle.explorer.figures import sections
from metric_oracle.explorer.page_views import overview
from metric_oracle.explorer.table import whole_table
from metric_oracle.findings.signature import short_signature
from metric_oracle.findings.writing import check_out
from metric_oracle.web.render import STATIC, templates

# What stands in a row of the index in the place of its texts, if the page is to have none.
_NO_TEXT: dict[str, Any] = {"link": "", "reference": None, "oracle": None, "is_same": False, "labels": []}


def write_report(cases: Cases, out: Path, *, text: bool = True) -> None:
    """Write overview, index, texts and evidence of all test reports as one HTML page that loads nothing from elsewhere.

    Only its owner may read it, because it contains report text; its first line says so. Without `text` it has positions
    and scores only: no reports, evidence or ids.
    """
    check_out(out, endings=(".html",))
    first, index = overview(cases), whole_table(cases)
    contents = [_case(cases, row["q"]) for row in index["rows"]] if text else []
    # Ids, texts, labels and candidates are not on the page unless they may be.
    if not text:
        first["cards"] = index["labels"] = []
    rows = [
        {**row, "link": f"#report-{row['q']}"} if text else {**row, **_NO_TEXT, "id": str(row["q"] + 1)}
        for row in index["rows"]
    ]
    script, style = ((STATIC / name).read_text("utf-8") for name in ("report.js", "page.css"))
    figures = [section for section in sections(cases) if section.key not in {one.key for one in first["pools"]}]
    images = "img-src data:; " if any(section.svg for section in figures) else ""
    content_policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; {images}base-uri 'none'; "
        "form-action 'none'"
    )
    page = templates.get_template("report.html").render(
        **{**first, **index, "all_link": "#reports", "case_link": "#report-%d", "rows": rows},
        script=script,
        style=style,
        policy=content_policy,
        contents=contents,
        marked_bodies=_packed(contents),
        has_text=text,
        signatures=list(map(short_signature, cases.signatures)),
        sections=figures,
    )
    with replacing(out) as temporary:
        # Permissions are set before the text is written, so that no other user can ever read it.
        os.chmod(temporary, 0o600)
        temporary.write_bytes(page.encode("utf-8", "replace"))


def _hash(content: str) -> str:
    """Return the hash by which a content security policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _packed(contents: Sequence[dict[str, Any]]) -> str:
    """Return the cases with marks and evidence, by their positions, as JSON, compressed and in letters.

    Of a page that has them as they are, they would be nine tenths.
    """
    macros: Any = templates.get_template("report_case.html").module
    bodies = {content["q"]: macros.body(content, True) for content in contents}
    return base64.b64encode(gzip.compress(json.dumps(bodies).encode(), mtime=0)).decode()


def _case(cases: Cases, q: int) -> dict[str, Any]:
    """Return what the page shows of test report `q`: it leaves out candidates without reports."""
    content = details(cases, q, cross=False)
    return {**content, "q": q, "candidates": [one for one in content["candidates"] if has_report(one)]}
