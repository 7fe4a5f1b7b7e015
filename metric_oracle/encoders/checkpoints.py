"""Checkpoints, read without running their code and taken only where every tensor fits."""

import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError


def read_torch(path: Path, function: str, step: str) -> Any:
    """Read a file of torch.save that holds tensors and no code; `step` says what to do about another."""
    import torch

    try:
        with warnings.catch_warnings(action="ignore"):
            # PyTorch before 1.6 wrote files that cannot be mapped.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    # At a damaged byte PyTorch's reader fails with whatever that byte leads it to: IndexError, AttributeError, ...
    except Exception:
        msg = (
            f"{function}: checkpoint must be a whole PyTorch file of tensors without code; "
            f"got a damaged or foreign one, {path}. {step}."
        )
        raise InputError(msg) from None


def load_strictly(model: Any, tensors: Mapping[str, Any], path: Path, function: str, called: tuple[str, str]) -> None:
    """Give a module its tensors: all of them, and no other, must fit; `called` has its name and the file to pass."""
    expected = model.state_dict()
    check_names(
        function,
        path,
        called,
        missing=[name for name in expected if name not in tensors],
        unexpected=[name for name in tensors if name not in expected],
        misshapen=[name for name in expected if name in tensors and tensors[name].shape != expected[name].shape],
    )
    model.load_state_dict(tensors)


def check_names(function: str, path: Path, called: tuple[str, str], **problems: list[str]) -> None:
    """Raise where a list of tensor names is not empty; the first three of each are named."""
    found = [
        f"{len(names)} {kind} ({shown_names(names[:3])}{', ...' if len(names) > 3 else ''})"
        for kind, names in problems.items()
        if names
    ]
    if found:
        msg = (
            f"{function}: checkpoint must hold the tensors of {called[0]} and no other; got {', '.join(found)} in "
            f"{path}. Pass {called[1]}."
        )
        raise InputError(msg)
