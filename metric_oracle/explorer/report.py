"""The report in one file: scores, and where wanted the texts with their evidence, for a colleague or a supplement."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.explorer.case import groups
from metric_oracle.explorer.cases import Cases
from metric_oracle.explorer.figures import sections
from metric_oracle.files import replacing
from metric_oracle.presentation.short_signature import short_signature
from metric_oracle.retrieval.results import check_out
from metric_oracle.web.render import STATIC, templates


def write_report(cases: Cases, out: Path, *, text: bool = True) -> None:
    """Write the report of all test reports as one page that loads nothing and runs no foreign script.

    Parameters
    ----------
    cases : Cases
    out : Path
        Ends with .html. Only its owner may read it: it holds report text, which its first line says.
    text : bool
        Whether reports, their evidence and ids are in it; without them: positions and scores.
    """
    check_out(out, function="report", endings=(".html",))
    rows = [_row(cases, q, text) for q in range(len(cases.ids))]
    script, style = ((STATIC / name).read_text("utf-8") for name in ("report.js", "page.css"))
    figures = sections(cases)
    images = "img-src data:; " if any(section.svg for section in figures) else ""
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; {images}base-uri 'none'; "
        "form-action 'none'"
    )
    means = [float(np.nanmean(c.values)) if np.isfinite(c.values).any() else None for c in cases.columns]
    page = templates.get_template("report.html").render(
        script=script,
        style=style,
        policy=policy,
        rows=rows,
        columns=cases.columns,
        means=means,
        has_text=text,
        signatures=list(map(short_signature, cases.signatures)),
        sections=figures,
    )
    with replacing("report", out) as (beside,):
        # Nobody else may read it at any time, not even while it is written.
        os.chmod(beside, 0o600)
        beside.write_bytes(page.encode("utf-8", "replace"))


def _hash(content: str) -> str:
    """Return what a policy calls an inline script or style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _row(cases: Cases, q: int, text: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"place": q + 1, "scores": [float(column.values[q]) for column in cases.columns]}
    found["differ"] = int(cases.disagreement[q]) or ""
    if text:
        found |= {"id": cases.ids[q], "reference": cases.reference(q), "groups": groups(cases, q, cross=False)}
    return found
