"""A signature as one line for a paper, such as ``bleu-2|cxr-report-metric|impression|idx:e25f61e3|v0.3.0``."""

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from metric_oracle.statistics import LEVEL

_SETTINGS = ("idf", "rescaled", "uncertain", "frequencies")
_HEX = 8  # characters of a checksum


def short_signature(signature: Mapping[str, Any]) -> str:
    """Return the one-line form of the full signature of any result, which is in its file.

    Its parts, joined by ``|``, are metric or command, published tool with equal numbers, settings, pool of a judge,
    section, the first 8 characters of the checksums of index, references and ratings, bootstrap, and version.
    """
    return "|".join(re.sub(r"[\s|]+", "-", part) for part in _parts(signature) if part)


def signature_line(signature: Mapping[str, Any]) -> str:
    """Return the line with the short signature that stands below a table."""
    return f"signature: {short_signature(signature)}"


def signed(**fields: Any) -> dict[str, Any]:
    """Return a signature: what reproduces a result, and the version of this package."""
    return {**fields, "version": version("metric-oracle")}


def bootstrap(unit: str, resamples: int, seed: int) -> dict[str, Any]:
    """Return the entry of a signature for intervals of the level 0.95 from resamples of a unit, such as "study"."""
    return {"unit": unit, "resamples": resamples, "seed": seed, "level": LEVEL}


def _parts(signature: Mapping[str, Any]) -> Iterator[str]:
    metrics = signature.get("metrics")
    if isinstance(signature.get("metric"), str):  # a search, a baseline, a CRG of two label files
        yield signature["metric"]
        yield _tool(signature)
        yield from _settings(signature)
        yield str(signature.get("baseline", ""))
    elif isinstance(metrics, Mapping):  # scores and tables
        yield "+".join(metrics)
        if len(metrics) == 1:
            yield from map(_tool, metrics.values())
        yield from dict.fromkeys(part for entry in metrics.values() for part in _settings(entry))
    else:
        yield str(signature.get("command", signature.get("kind", "")))
        yield "+".join(map(str, metrics or ()))
    if isinstance(signature.get("pool"), Mapping):
        yield f"pool:{'+'.join(pool_parts(signature['pool']))}"
    if isinstance(signature.get("section"), str):
        yield signature["section"]
    for name, key in (("idx", "index"), ("refs", "references")):
        if isinstance(signature.get(key), str):
            yield f"{name}:{signature[key][:_HEX]}"
    for name in ("ratings", "samples", "reference", "predicted"):
        if isinstance(signature.get(name), Mapping) and "sha256" in signature[name]:
            yield f"{name}:{signature[name]['sha256'][:_HEX]}"
    for name, files in signature.get("sets", {}).items():
        if isinstance(files["ratings"], Mapping):
            yield f"{name}:{files['ratings']['sha256'][:_HEX]}"
    if isinstance(signature.get("interval"), Mapping):
        yield ":".join(str(signature["interval"].get(name)) for name in ("method", "resamples", "seed"))
    if isinstance(signature.get("bootstrap"), Mapping):
        yield ":".join(["studies", *(str(signature["bootstrap"].get(name)) for name in ("resamples", "seed"))])
    if "rate" in signature:
        yield f"fdr:{signature['rate']:g}"
    yield f"v{signature.get('version', '?')}"


def pool_parts(pool: Mapping[str, Any]) -> list[str]:
    """Return which reports a judge scored, from their entry in a signature: "bleu-2:50" and "random:20", or "all"."""
    if pool["size"] == "all":
        return ["all"]
    lists = [f"{of_list['metric']}:{of_list['size']}" for of_list in pool.get("lists", ())]
    return [*lists, *([f"random:{pool['random']}"] if "random" in pool else [])]


def _tool(entry: Mapping[str, Any]) -> str:
    """Return the published tool in the signature entry of a metric, which has equal numbers; "" if there is none."""
    return str(entry.get("tool") or "")


def _settings(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield, as texts such as "idf:corpus", the settings in the signature entry of a metric that change its scores.

    These are those of the search and those of the representation, and the encoder.
    """
    representation = entry.get("representation")
    kinds = representation.values() if isinstance(representation, Mapping) else ()
    settings = {**{k: v for kind in kinds if isinstance(kind, Mapping) for k, v in kind.items()}, **entry}
    encoder = settings.get("encoder")
    if isinstance(encoder, Mapping):
        name = str(encoder.get("name") or encoder.get("model") or "encoder").rpartition("/")[2]
        layer = encoder.get("layer")
        yield name if layer is None else f"{name}:L{layer}"
    for name in _SETTINGS:
        value = settings.get(name)
        if name == "frequencies" and isinstance(value, str):  # the fingerprint of a corpus
            value = value[:_HEX]
        if isinstance(value, Mapping):
            value = value.get("name", value.get("sha256", ""))[:_HEX] or "+".join(value)
        if value is not None:
            yield f"{name}:{'yes' if value is True else 'no' if value is False else value}"


def sources_line(signature: dict[str, Any]) -> str:
    """Return one line that names the input files of a result by name and checksum, and the version."""
    sets = signature["sets"].values() if "sets" in signature else [signature]
    files = [file for each in sets for file in (each["ratings"], each.get("samples"), *each.get("scores", [])) if file]
    names = [f"{file['file']} ({file['sha256'][:12]})" if isinstance(file, dict) else file for file in files]
    return "; ".join([*names, f"metric-oracle {signature['version']}"])
