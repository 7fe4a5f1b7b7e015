"""Renders templates as pages. All text is escaped, and control characters are shown as visible symbols."""

import csv
import io
import json
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

STATIC = Path(__file__).parent / "static"

# Browsers drop NUL or show U+FFFD, and show nothing for the other control characters. Line ends and tabs stay.
_SIGNS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n\r"} | {127: "\u2421"}


def visible(text: str) -> str:
    """Return a text with control characters replaced by symbols (U+2400...), and lone surrogates by U+FFFD."""
    return text.translate(_SIGNS).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _finalised(value: Any) -> Any:
    return visible(value) if type(value) is str else value


templates = Environment(
    loader=PackageLoader("metric_oracle.web"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalised,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _inline(content: str) -> Markup:
    """Return a script or style of this package without escaping; the content security policy has its hash."""
    return Markup(content)  # noqa: S704 - the content is not from users


templates.globals["inline"] = _inline


def page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return the template `name`, rendered with `values`, as a page with an HTTP status."""
    return HTMLResponse(templates.get_template(name).render(values), status)


def export(values: dict[str, Any], name: str) -> Response:
    """Return values as a file to download: as JSON, or the columns of a table as CSV, by the ending of its name."""
    if name.endswith(".json"):
        text, kind = json.dumps(values, ensure_ascii=False, indent=2, default=_plain), "application/json"
    else:
        buffer, kind = io.StringIO(), "text/csv"
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(values)
        writer.writerows(zip(*values.values(), strict=True))
        text = buffer.getvalue()
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "replace"), 200, headers, f"{kind}; charset=utf-8")


def _plain(value: Any) -> Any:
    """Return a dataclass or a number of NumPy as what JSON has."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value.item()
