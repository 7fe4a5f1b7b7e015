"""Check, before any file is read, that the models that a user names can run on this machine."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import not_installed, shown


def named_models(files_or_models: Mapping[str, Any]) -> list[Path]:
    """Return the models among what was given by argument of a source, in this order; None is ignored."""
    named = {argument: path for argument, path in files_or_models.items() if path is not None}
    if not named:
        return []
    from metric_oracle.sources.attaching import is_model

    return [path for argument, path in named.items() if is_model(argument, path)]


def check_installed(models: Sequence[object]) -> None:
    """Raise BackendError if a model is to run and PyTorch or transformers is not installed; None is no model."""
    to_run = [model for model in models if model is not None]
    missing = [library for library in ("torch", "transformers") if find_spec(library) is None]
    if to_run and missing:
        raise not_installed(shown(Path(str(to_run[0]))), missing[0], "encoders")


def check_device(device: str | None, models: Sequence[object]) -> None:
    """Raise BackendError if models are to run on the device "cuda" and PyTorch finds no GPU; None is no model.

    PyTorch, which takes seconds to import, is imported only if `device` is "cuda" and there is a model.
    """
    if device == "cuda" and any(model is not None for model in models):
        from metric_oracle.encoders.libraries import choose_device

        choose_device(device)
