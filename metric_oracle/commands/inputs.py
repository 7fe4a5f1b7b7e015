"""What several commands do with what they are given: check what it takes, and read test reports."""

from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle.commands.command import given, used
from metric_oracle.commands.options import Files, Models, Reading
from metric_oracle.commands.output import note, progress
from metric_oracle.errors import BackendError
from metric_oracle.metrics import REPRESENTATIONS, Metric


def is_model(path: str | Path) -> bool:
    """Tell a model from what it makes: RadGraph's archive or folder, CheXbert's checkpoint, RaTE-NER's folder."""
    return str(path).lower().endswith((".pth", ".tar.gz", ".tgz")) or (Path(path) / "config.json").is_file()


def check_installed(function: str, files: Any, records: Iterable[Metric] = ()) -> None:
    """Raise where a file is a model, or a metric reads what one makes, and the libraries for that are lacking."""
    asked = [str(path) for path in given(files).values() if path is not None and is_model(path)]
    for record in records:
        needs = [REPRESENTATIONS[kind] for kind in record.representations]
        # What nobody gives is no checkpoint of these libraries.
        if record.needs_encoder or any(kind.source == "pair" and kind.arguments for kind in needs):
            asked.append(f"metric {record.name!r}")
    lacking = [library for library in ("torch", "transformers") if find_spec(library) is None]
    if asked and lacking:
        msg = (
            f"{function}: {asked[0]} must have PyTorch and transformers installed; got no module {lacking[0]}. "
            'Install the extra: pip install "metric-oracle[encoders]".'
        )
        raise BackendError(msg)


def check_device(function: str, files: Any, models: Models) -> None:
    """Raise where a GPU is named for a model and there is none; what loads PyTorch, for nothing else."""
    given_files = [path for path in given(files).values() if path is not None]
    if models.device == "cuda" and (models.encoder is not None or any(map(is_model, given_files))):
        from metric_oracle.encoders.libraries import choose_device

        choose_device(models.device, function)


def check_web(function: str) -> None:
    """Raise where the libraries of the pages are lacking."""
    lacking = [library for library in ("starlette", "uvicorn", "jinja2") if find_spec(library) is None]
    if lacking:
        msg = (
            f"{function}: pages must have Starlette, uvicorn and Jinja2 installed; got no module {lacking[0]}. "
            'Install the extra: pip install "metric-oracle[web]".'
        )
        raise BackendError(msg)


def load_tests(queries: Path | str, files: Files, models: Models, reading: Reading) -> Any:
    """Read test reports, a file or one text, with what belongs to them, and say what was recognised and left out."""
    from metric_oracle import api
    from metric_oracle.corpora.reports import read_reports

    check_device("retrieve", files, models)
    read: Any = queries
    options = {**used(files), **used(models)}
    if isinstance(queries, str):
        read = [queries]
    elif any((queries / name).is_file() for name in ("manifest.json", "set.json")):
        options |= used(reading, Reading())
    else:
        read = read_reports(queries, **given(reading))
        if not read.left_out:  # that line says it, too
            note(f"test reports: {read.source}")
    if not any(is_model(path) for path in given(files).values() if path is not None):
        return api.load_queries(read, **options, tell=note)
    with progress("test reports") as step:
        return api.load_queries(read, **options, tell=note, advance=partial(step, "model"))
