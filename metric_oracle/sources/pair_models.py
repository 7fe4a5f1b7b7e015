"""Models that read two reports at once, which nothing is stored of."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from metric_oracle.errors import InputError

if TYPE_CHECKING:  # models are imported by what opens them
    from metric_oracle.encoders.crepe import Crepe


def open_pair_models(given: Mapping[str, str | Path], function: str, device: str | None = None) -> "dict[str, Crepe]":
    """Open the models that read both reports at once, by representation, from what is given by the registry's names."""
    if given and "crepe" not in given:
        msg = f"{function}: crepe must be given with {', '.join(given)}; got None. Add --crepe FOLDER."
        raise InputError(msg)
    if not given:
        return {}
    from metric_oracle.encoders.crepe import Crepe

    named = {name.removeprefix("crepe_"): path for name, path in given.items() if name != "crepe"}
    return {"crepe": Crepe(given["crepe"], **named, device=device or "auto", function=function)}
