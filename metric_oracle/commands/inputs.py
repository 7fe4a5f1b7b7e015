"""Helpers that several commands share: checks of models and libraries, and reading of test reports."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle.commands.command import given, used
from metric_oracle.commands.options import CrepeFiles, Inputs, Models, Reading, SampleInputs
from metric_oracle.commands.output import note, progress
from metric_oracle.errors import not_installed


def check_installed(files: Any, *models: object) -> None:
    """Raise BackendError if a model that the command runs needs PyTorch or transformers, and it is not installed."""
    from metric_oracle import api

    api.check_installed([*api.named_models(given(files)), *models])


def check_device(inputs: Inputs | SampleInputs) -> None:
    """Raise BackendError if --device cuda is given, a model would run on it, and this machine has no GPU."""
    from metric_oracle import api

    api.check_device(inputs.models.device, [inputs.models.encoder, *api.named_models(given(inputs.files))])


def check_models(inputs: Inputs | SampleInputs, *others: object) -> None:
    """Raise BackendError if a library or device of the models that `inputs` or `others` name is missing."""
    check_installed(inputs.files, inputs.models.encoder, *others)
    check_device(inputs)


def check_web() -> None:
    """Raise BackendError if a library of the web pages is not installed."""
    missing = [library for library in ("starlette", "uvicorn", "jinja2") if find_spec(library) is None]
    if missing:
        raise not_installed("a page", missing[0], "web")


def load_tests(queries: Path | str, inputs: Inputs, *results: Any, keep: Sequence[str] = ()) -> Any:
    """Read test reports, from a file or one text, with their sources; print what was recognised and left out.

    By default their section is that of `results`, which are indexes or results.
    """
    from metric_oracle import api

    check_device(inputs)
    reading = inputs.reading
    read: Any = queries
    options = {**used(inputs.files), **used(inputs.models)}
    kept = {"keep": keep} if keep else {}
    if isinstance(queries, str):
        read = [queries]
        options |= {"section": reading.section} if reading.section else {}
    elif api.is_prepared(queries):
        options |= used(reading, Reading())
    else:
        of_file = api.reports(queries, **used(reading), tell=note)
        read = of_file.read(default_section=api.section_of(*results), is_shown=True, **kept)[0]
        if not read.left_out:  # that line says it, too
            note(f"test reports: {read.source}")
    tests = api.reports(read, **options, tell=note)
    if not api.named_models(given(inputs.files)):
        return tests.load()
    with progress("test reports") as step:
        return tests.load(progress=step)


def attached(reports: Path, inputs: Inputs | SampleInputs, **options: Any) -> Any:
    """Return a file of reports with its sources and `options` of `api.reports`."""
    from metric_oracle import api

    of_models = used(inputs.models)
    return api.reports(reports, **given(inputs.files), **of_models, **used(inputs.reading), tell=note, **options)


def given_options(inputs: Inputs) -> dict[str, Any]:
    """Return the options of a file of reports that were given, by the names of their arguments in Python."""
    return {**used(inputs.files), **used(inputs.models), **used(inputs.reading, Reading())}


def checkpoint(crepe: Path | None, files: CrepeFiles, models: Models) -> dict[str, Any]:
    """Return a checkpoint of CREPE in the form of the public functions, an empty dict if no file of it is given."""
    named = {"path": crepe, **{name.removeprefix("crepe_"): path for name, path in given(files).items()}}
    return {**named, "device": models.device} if any(named.values()) else {}


def with_ids(vectors: Path | None, ids: Path | None) -> Any:
    """Return a file of vectors or, if the file of their ids is given, the pair of both paths."""
    return vectors if ids is None else (vectors, ids)
