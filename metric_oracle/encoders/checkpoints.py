"""Checkpoints of PyTorch: they are read without running code in them, and rejected unless every tensor fits."""

import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from metric_oracle.base.errors import InputError, shown


class Published(NamedTuple):
    """Words of error messages about a published checkpoint."""

    argument: str
    model: str
    file: str  # what users should pass


def read_torch(path: Path, step: str) -> Any:
    """Return the content of a file of torch.save; raise InputError, with this step, if it is damaged or has code."""
    import torch

    try:
        with warnings.catch_warnings(action="ignore"):
            # PyTorch before 1.6 wrote files that cannot be mapped.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    # A damaged file can raise any error in PyTorch's reader: IndexError, AttributeError, ...
    except Exception:
        raise InputError(
            "checkpoint",
            "must be a whole PyTorch file of tensors without code",
            f"a damaged or foreign one, {path}",
            f"{step}.",
        ) from None


def named_tensors(content: Any) -> dict[str, Any] | None:
    """Return the tensors of a checkpoint by name, or None if `content` is not a dict of tensors."""
    import torch

    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        return None
    return {str(name): value for name, value in content.items()}


def load_strictly(model: Any, tensors: dict[str, Any], path: Path, published: Published) -> None:
    """Load tensors, by name, into a module; raise InputError unless names and shapes are exactly the module's.

    The constant ``bert.embeddings.position_ids``, which old versions of transformers saved, is ignored.
    """
    tensors = {name: value for name, value in tensors.items() if name != "bert.embeddings.position_ids"}
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    check_tensors(tensors, expected, path, published)
    model.load_state_dict(tensors)


def check_tensors(
    tensors: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]], path: Path, published: Published
) -> None:
    """Raise InputError unless tensors, by name, have exactly the expected names and shapes."""
    check_names(
        path,
        published,
        missing=[name for name in expected if name not in tensors],
        unexpected=[name for name in tensors if name not in expected],
        misshapen=[name for name in expected if name in tensors and tuple(tensors[name].shape) != expected[name]],
    )


def check_names(path: Path, published: Published, **problems: list[str]) -> None:
    """Raise InputError if any list of tensor names, by problem, is not empty; the message has three of each list."""
    lists = [
        f"{len(names)} {problem} ({shown(*names[:3])}{', ...' if len(names) > 3 else ''})"
        for problem, names in problems.items()
        if names
    ]
    if lists:
        raise InputError(
            published.argument,
            f"must hold the tensors of {published.model} and no other",
            f"{', '.join(lists)} in {path}",
            f"Pass {published.file}.",
        )
