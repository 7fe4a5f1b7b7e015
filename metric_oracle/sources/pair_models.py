"""Open models that read both reports of a pair at once, such as CREPE. An index stores nothing for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # models are imported by what opens them
    from metric_oracle.encoders.crepe import Crepe


def open_pair_models(given: Mapping[str, str | Path], device: str | None = None) -> "dict[str, Crepe]":
    """Open the models that read both reports of a pair at once; return them by the name of their representation.

    `given` has the path of each model, by the argument of its source.
    """
    if not given:
        return {}
    from metric_oracle.encoders.crepe import Crepe

    named = {name.removeprefix("crepe_"): path for name, path in given.items() if name != "crepe"}
    return {"crepe": Crepe(given["crepe"], **named, device=device or "auto")}
