"""Renders templates as pages. All text is escaped, and control characters are shown as visible symbols."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

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
