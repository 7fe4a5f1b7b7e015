"""Helpers that several commands share: checks of models and libraries, and reading of test reports."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle.commands.command import given, used
from metric_oracle.commands.options import CrepeFiles, Files, Models, Reading, SamplesReading
from metric_oracle.commands.output import note, progress
from metric_oracle.errors import not_installed


def check_installed(files: Any, *models: object) -> None:
    """Raise BackendError if a model that the command runs needs PyTorch or transformers, and it is not installed."""
    from metric_oracle import api

    api.check_installed([*api.named_models(given(files)), *models])


def check_device(files: Any, models: Models) -> None:
    """Raise BackendError if --device cuda is given, a model would run on it, and this machine has no GPU."""
    from metric_oracle import api

    api.check_device(models.device, [models.encoder, *api.named_models(given(files))])


def check_web() -> None:
    """Raise BackendError if a library of the web pages is not installed."""
    missing = [library for library in ("starlette", "uvicorn", "jinja2") if find_spec(library) is None]
    if missing:
        raise not_installed("a page", missing[0], "web")


def load_tests(
    queries: Path | str, files: Files, models: Models, reading: Reading, *others: Any, keep: Sequence[str] = ()
) -> Any:
    """Read test reports, from a file or one text, with their sources; print what was recognised and left out."""
    from metric_oracle import api

    check_device(files, models)
    read: Any = queries
    options = {**used(files), **used(models)}
    kept = {"keep": keep} if keep else {}
    if isinstance(queries, str):
        read = [queries]
        options |= {"section": reading.section} if reading.section else {}
    elif api.is_prepared(queries):
        options |= used(reading, Reading())
    else:
        like = api.section_of(*others)
        read = api.read_reports(queries, **({"section": like} if like else {}) | used(reading) | kept)
        if not read.left_out:  # that line says it, too
            note(f"test reports: {read.source}")
    tests = api.reports(read, **options, tell=note)
    if not api.named_models(given(files)):
        return tests.load()
    with progress("test reports") as step:
        return tests.load(progress=step)


def attached(reports: Path, files: Files, models: Models, reading: Reading | SamplesReading, **more: Any) -> Any:
    """Return a file of reports with its sources and the options for reading it; `more` are options of `api.reports`."""
    from metric_oracle import api

    return api.reports(reports, **given(files), **used(models), **used(reading), tell=note, **more)


def checkpoint(crepe: Path | None, files: CrepeFiles, models: Models) -> dict[str, Any]:
    """Return a checkpoint of CREPE in the form of the public functions, an empty dict if no file of it is given."""
    named = {"path": crepe, **{name.removeprefix("crepe_"): path for name, path in given(files).items()}}
    return {**named, "device": models.device} if any(named.values()) else {}


def with_ids(vectors: Path | None, ids: Path | None) -> Any:
    """Return a file of vectors or, if the file of their ids is given, the pair of both paths."""
    return vectors if ids is None else (vectors, ids)
