"""Open models that read both reports of a pair at once, such as CREPE. An index stores nothing for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # models are imported by what opens them
    from metric_oracle.encoders.crepe import Crepe


def open_pair_models(model_paths: Mapping[str, str | Path], device: str | None = None) -> "dict[str, Crepe]":
    """Open the models that read both reports of a pair at once; return them by the name of their representation.

    `model_paths` has the path of a model, and of its further files, by the arguments of its source; it may be empty.
    """
    if not model_paths:
        return {}
    from metric_oracle.encoders.crepe import Crepe

    named = {name.removeprefix("crepe_"): path for name, path in model_paths.items() if name != "crepe"}
    return {"crepe": Crepe(model_paths["crepe"], **named, device=device or "auto")}
