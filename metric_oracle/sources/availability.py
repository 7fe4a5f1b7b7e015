"""Check, before any file is read, that the models that a user names can run on this machine."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle.errors import not_installed


def named_models(sources: Mapping[str, Any]) -> list[Path]:
    """Return the paths of models among the values of sources.

    Parameters
    ----------
    sources : mapping of str to path
        Argument of a source -> its file, or the model that computes it. Values of None are ignored.

    Returns
    -------
    list of Path
        The models, in the order of the arguments.
    """
    given = {argument: value for argument, value in sources.items() if value is not None}
    if not given:
        return []
    from metric_oracle.sources.inputs import is_model

    return [value for argument, value in given.items() if is_model(argument, value)]


def check_installed(models: Sequence[object]) -> None:
    """Raise BackendError if a model is to run and a library that runs it is not installed.

    Parameters
    ----------
    models : sequence
        Models that the function runs; None entries are ignored.

    Raises
    ------
    BackendError
        If PyTorch or transformers is missing.
    """
    given = [model for model in models if model is not None]
    missing = [library for library in ("torch", "transformers") if find_spec(library) is None]
    if given and missing:
        raise not_installed(str(given[0]), missing[0], "encoders")


def check_device(device: str | None, models: Sequence[object]) -> None:
    """Raise BackendError if models are to run on a GPU and this machine has none.

    PyTorch, which takes seconds to import, is imported only if `device` is "cuda" and there is a model.

    Parameters
    ----------
    device : {"cpu", "cuda"} or None
        Requested device; None means a GPU if there is one.
    models : sequence
        Models that the function runs; None entries are ignored.

    Raises
    ------
    BackendError
        If PyTorch finds no GPU.
    """
    if device == "cuda" and any(model is not None for model in models):
        from metric_oracle.encoders.libraries import choose_device

        choose_device(device)
