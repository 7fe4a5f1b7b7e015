"""Matplotlib figures: options are checked early, figures are drawn without a window and written atomically."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metric_oracle.errors import not_installed
from metric_oracle.files import replacing
from metric_oracle.retrieval.results import check_out

ENDINGS = (".png", ".svg", ".pdf")


def check_plot(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Raise an error unless a figure can be drawn and written to `path`, which must not be one of the `inputs`."""
    check_out(path, inputs, argument="plot", endings=ENDINGS)
    new_figure(1, 1)


def new_figure(width: float, height: float) -> Any:
    """Return an empty Matplotlib figure of a size in inches, without a window and without global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise not_installed(subject="a plot", module=error.name, extra="plots") from error
    return Figure(figsize=(width, height), layout="constrained")


def literal(text: str) -> str:
    """Return a text with escaped dollar signs, so that Matplotlib reads no formula."""
    return text.replace("$", r"\$")


def write_figure(path: Path, figure: Any) -> None:
    """Write a figure in the format of the ending of `path`. Equal figures give equal bytes."""
    check_plot(path)
    content = picture(figure, path.suffix.lower().removeprefix("."))
    with replacing(path) as (temporary,):
        temporary.write_bytes(content)


def picture(figure: Any, kind: str) -> bytes:
    """Return the bytes of a figure's file; `kind` is "png", "svg" or "pdf"."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # If the font lacks a letter of a name, the figure shows a box. That needs no warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(buffer, format=kind, dpi=150, metadata={} if kind == "png" else _UNDATED[kind])
    return buffer.getvalue()


_UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
