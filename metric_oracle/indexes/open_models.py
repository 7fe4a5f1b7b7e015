"""Models that are opened once: functions from texts to what belongs to them, and what reads two reports at once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metric_oracle.errors import InputError

if TYPE_CHECKING:  # models are imported by what opens them
    from metric_oracle.encoders.crepe import Crepe


def open_model(
    name: str, value: str | Path, function: str, *, radgraph_encoder: str | Path | None = None,
    vocabulary: str | Path | None = None, entity_encoder: str | Path | None = None, device: str | None = None,
) -> Callable[[list[str]], Any]:  # fmt: skip
    """Open a model as a function from texts to graphs ("radgraph"), "entities", embeddings ("chexbert") or classes."""
    if name == "radgraph":
        from metric_oracle.encoders.radgraph import RadGraph

        return RadGraph(value, encoder=radgraph_encoder, device=device or "auto", function=function).annotate
    if name == "entities":
        from metric_oracle.encoders.ratescore import EntityModels

        finder = EntityModels(value, encoder=entity_encoder, device=device or "auto", function=function)
        return lambda texts: finder.recognise(texts).records()
    from metric_oracle.encoders.chexbert import CheXbert

    model = CheXbert(value, vocabulary=vocabulary, device=device or "auto", function=function)
    place = 0 if name == "chexbert" else 1
    return lambda texts: model.encode(texts)[place]


def open_pair_models(
    given: Mapping[str, str | Path], function: str, device: str | None = None
) -> "dict[str, Crepe]":  # fmt: skip
    """Open the models that read both reports at once, by representation, from what is given by the registry's names."""
    if given and "crepe" not in given:
        msg = f"{function}: crepe must be given with {', '.join(given)}; got None. Add --crepe FOLDER."
        raise InputError(msg)
    if not given:
        return {}
    from metric_oracle.encoders.crepe import Crepe

    named = {name.removeprefix("crepe_"): path for name, path in given.items() if name != "crepe"}
    return {"crepe": Crepe(given["crepe"], **named, device=device or "auto", function=function)}
