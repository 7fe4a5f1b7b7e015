"""Pictures: checked before the work, drawn without a window, written beside their place and renamed."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metric_oracle.errors import not_installed
from metric_oracle.files import replacing
from metric_oracle.retrieval.results import check_out

ENDINGS = (".png", ".svg", ".pdf")


def check_plot(path: Path, function: str, inputs: Sequence[Path] = ()) -> None:
    """Raise unless a picture can be drawn and written there without harm to the `inputs`, before the work is done."""
    check_out(path, inputs, function=function, argument="plot", endings=ENDINGS)
    new_figure(function, 1, 1)


def new_figure(function: str, width: float, height: float) -> Any:
    """Return an empty Matplotlib figure of a size in inches; no window, no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise not_installed(function, "a plot", error.name, "plots") from error
    return Figure(figsize=(width, height), layout="constrained")


def literal(text: str) -> str:
    """Return a name as Matplotlib shows it to the letter: what stands between dollars would be a formula."""
    return text.replace("$", r"\$")


def write_figure(path: Path, figure: Any, function: str) -> None:
    """Write a figure by the ending of `path`; equal figures are equal bytes."""
    check_plot(path, function)
    content = picture(figure, path.suffix.lower().removeprefix("."))
    with replacing(function, path) as (beside,):
        beside.write_bytes(content)


def picture(figure: Any, kind: str) -> bytes:
    """Return a figure as a file of a kind: "png", "svg" or "pdf"."""
    held = io.BytesIO()
    with warnings.catch_warnings():
        # A name in a script that the font lacks: the picture shows boxes, which says enough.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(held, format=kind, dpi=150, metadata={} if kind == "png" else _UNDATED[kind])
    return held.getvalue()


_UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
