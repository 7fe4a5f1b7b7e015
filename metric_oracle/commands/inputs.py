"""What several commands do with what they are given: check what it takes, and read test reports."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle.commands.command import given, used
from metric_oracle.commands.options import CrepeFiles, Files, Models, Reading
from metric_oracle.commands.output import note, progress
from metric_oracle.errors import not_installed


def models_of(files: Any) -> list[Path]:
    """Return the models among the files of an option group."""
    paths = {name: path for name, path in given(files).items() if path is not None}
    if not paths:
        return []
    from metric_oracle.sources.inputs import is_model

    return [path for name, path in paths.items() if is_model(name, path)]


def check_installed(function: str, files: Any, *models: object) -> None:
    """Raise if a model is named and PyTorch or transformers is missing.

    Parameters
    ----------
    function : str
        The public function, for the error.
    files : option group
        Options whose values are files; some of them may be models.
    *models : object
        Other models that the command runs, such as an encoder; None is ignored.
    """
    named: list[object] = [*models_of(files)]
    named += [model for model in models if model is not None]
    missing = [library for library in ("torch", "transformers") if find_spec(library) is None]
    if named and missing:
        raise not_installed(function, str(named[0]), missing[0], "encoders")


def check_device(function: str, files: Any, models: Models) -> None:
    """Raise where a GPU is named for a model and there is none; what loads PyTorch, for nothing else."""
    if models.device == "cuda" and (models.encoder is not None or models_of(files)):
        from metric_oracle.encoders.libraries import choose_device

        choose_device(models.device, function)


def check_web(function: str) -> None:
    """Raise where the libraries of the pages are lacking."""
    lacking = [library for library in ("starlette", "uvicorn", "jinja2") if find_spec(library) is None]
    if lacking:
        raise not_installed(function, "a page", lacking[0], "web")


def load_tests(queries: Path | str, files: Files, models: Models, reading: Reading, *others: Any) -> Any:
    """Read test reports, a file or one text, with what belongs to them, and say what was recognised and left out.

    Their section is the one asked for, or else that of the `others`, indexes or results that they belong to.
    """
    from metric_oracle import api
    from metric_oracle.api.given import is_prepared, section_of
    from metric_oracle.corpora.reports import read_reports

    check_device("retrieve", files, models)
    read: Any = queries
    options = {**used(files), **used(models)}
    if isinstance(queries, str):
        read = [queries]
        options |= {"section": reading.section} if reading.section else {}
    elif is_prepared(queries):
        options |= used(reading, Reading())
    else:
        like = section_of(*others)
        read = read_reports(queries, **({"section": like} if like else {}) | used(reading))
        if not read.left_out:  # that line says it, too
            note(f"test reports: {read.source}")
    tests = api.reports(read, **options, tell=note)
    if not models_of(files):
        return tests.load()
    with progress("test reports") as step:
        return tests.load(progress=step)


def checkpoint(crepe: Path | None, files: CrepeFiles, models: Models) -> dict[str, Any]:
    """Return a checkpoint of CREPE as the public functions take it; nothing where no file of it is given."""
    named = {"path": crepe, **{name.removeprefix("crepe_"): path for name, path in given(files).items()}}
    return {**named, "device": models.device} if any(named.values()) else {}


def with_ids(vectors: Path | None, ids: Path | None) -> Any:
    """Return a file of vectors, with that of their ids where it is given."""
    return vectors if ids is None else (vectors, ids)
