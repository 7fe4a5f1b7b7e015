"""The histogram of an expectation as a picture."""

import os
from collections.abc import Sequence
from pathlib import Path

from metric_oracle.errors import BackendError, InputError
from metric_oracle.retrieval.expectation import Expectation

SIZE = (6.4, 3.6)  # inches


def check_plot(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Raise unless a picture can be drawn and written there without harm to the `inputs`, before the work is done."""
    if path.suffix.lower() not in (".png", ".svg"):
        msg = f"baseline: plot must end with .png or .svg; got {path}. Name one of these formats."
        raise InputError(msg)
    if path.is_dir() or not path.parent.is_dir():
        msg = f"baseline: plot must be a file in an existing folder; got {path}. Make the folder, or name another file."
        raise InputError(msg)
    if any(path.exists() and given.exists() and path.samefile(given) for given in inputs):
        msg = f"baseline: plot must be another file than the inputs; got {path}, which is one. Name another file."
        raise InputError(msg)
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        msg = (
            "baseline: plot must have matplotlib installed; got no module matplotlib. "
            'Install the extra: pip install "metric-oracle[plots]".'
        )
        raise BackendError(msg) from None


def plot_histogram(expectation: Expectation, path: str | Path) -> None:
    """Draw the share of all pairs in each bin of scores, and the mean; PNG or SVG by the ending of `path`."""
    path = Path(path)
    check_plot(path)
    from matplotlib.figure import Figure

    signature = expectation.signature
    means = expectation.table["mean"].to_numpy()
    n_rows = expectation.table["n"][0].as_py()
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    shares = 100 * expectation.counts / expectation.counts.sum()
    axes.stairs(shares, expectation.edges, fill=True, color="0.65")
    axes.axvline(means.mean(), color="C3", label=f"mean {means.mean():.4f}")
    axes.set_xlim(expectation.edges[0], expectation.edges[-1])
    axes.set_xlabel(f"{signature['metric']} of a test report and a random report of the corpus")
    axes.set_ylabel("pairs (%)")
    axes.set_title(f"{len(means):,} test reports x {n_rows:,} reports", fontsize="medium", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    kind = path.suffix.lower()[1:]
    try:
        figure.savefig(beside, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else None)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
