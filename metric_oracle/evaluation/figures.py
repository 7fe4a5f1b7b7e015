"""Pictures: checked before the work, drawn without a window, written beside their place and renamed."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metric_oracle.errors import BackendError, InputError
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
        msg = (
            f"{function}: plot must have matplotlib installed; got no module matplotlib. "
            'Install the extra: pip install "metric-oracle[plots]".'
        )
        raise BackendError(msg) from error
    return Figure(figsize=(width, height), layout="constrained")


def write_figure(path: Path, figure: Any, function: str) -> None:
    """Write a figure by the ending of `path`; equal figures are equal bytes."""
    check_plot(path, function)
    held = io.BytesIO()
    kind = path.suffix.lower().removeprefix(".")
    figure.savefig(held, format=kind, dpi=150, metadata={} if kind == "png" else _UNDATED[kind])
    replace_file(path, held.getvalue(), function)


_UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def replace_file(path: Path, content: bytes, function: str) -> None:
    """Write a file beside `path` and rename it: an old file stays until the new one is whole."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        msg = (
            f"{function}: out must be a place with room to write; got {path} ({error.strerror or error}). "
            "Name another file."
        )
        raise InputError(msg) from error
    finally:
        beside.unlink(missing_ok=True)
