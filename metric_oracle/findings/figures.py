"""Matplotlib figures: options are checked early, figures are drawn without a window and written atomically."""

import io
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import not_installed
from metric_oracle.base.files import replacing
from metric_oracle.base.option_types import FIGURES
from metric_oracle.findings.writing import check_out


def check_plot(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Raise InputError unless a figure can be written to `path`, which must not be one of the `inputs`.

    Raise BackendError if Matplotlib is not installed.
    """
    check_out(path, inputs, argument="plot", endings=FIGURES)
    new_figure(1, 1)


def new_figure(width: float, height: float) -> Any:
    """Return an empty Matplotlib figure of a size in inches, without a window and without global state.

    Raise BackendError if Matplotlib is not installed.
    """
    try:
        return _figure_class()(figsize=(width, height), layout="constrained")
    except ImportError as error:
        raise not_installed(subject="a plot", module=error.name, extra="plots") from error


def _figure_class() -> Any:
    """Import Matplotlib and return its class of figures, which need no backend, whatever the environment names.

    A notebook's kernel names one, MPLBACKEND, that may not be installed here; Matplotlib's import fails on it.
    """
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with suppress(ValueError):
            mpl.rcParams["backend"] = backend  # as Matplotlib does
    return Figure


def literal(text: str) -> str:
    """Return a text with escaped dollar signs, so that Matplotlib reads no formula."""
    return text.replace("$", r"\$")


def write_figure(path: Path, figure: Any) -> None:
    """Write a figure in the format of the ending of `path`, see `check_plot`. Equal figures give equal bytes."""
    check_plot(path)
    content = picture(figure, path.suffix.lower().removeprefix("."))
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def picture(figure: Any, kind: str) -> bytes:
    """Return the bytes of a figure's file; `kind` is "png", "svg" or "pdf"."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # If the font lacks a letter of a name, the figure shows a box. That needs no warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(buffer, format=kind, dpi=150, metadata=_METADATA[kind])
    return buffer.getvalue()


# The program's name, by which `checksum.is_ours` knows the file; no date, so that equal figures give equal bytes.
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": "metric-oracle"},
    "svg": {"Creator": "metric-oracle", "Date": None},
    "pdf": {"Creator": "metric-oracle", "CreationDate": None},
}
