"""A signature as one line for a paper, such as ``bleu-2|cxr-report-metric|impression|idx:e25f61e3|v0.3.0``."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_SETTINGS = ("idf", "rescaled", "uncertain", "frequencies")
_HEX = 8  # characters of a checksum


def short_signature(signature: Mapping[str, Any]) -> str:
    """Return what tells a result apart in one line; the file has the rest.

    Parameters
    ----------
    signature : mapping
        Of a search, a baseline, scores, a table, or a comparison with radiologists.

    Returns
    -------
    str
        Parts joined by ``|``: what it is, the published tool whose numbers it has, what was set, the section, checksums
        of index, references and ratings (their first 8 characters), the bootstrap, the version.
    """
    return "|".join(re.sub(r"[\s|]+", "-", part) for part in _parts(signature) if part)


def _parts(signature: Mapping[str, Any]) -> Iterator[str]:
    metrics = signature.get("metrics")
    if isinstance(signature.get("metric"), str):  # a search, a baseline, a CRG of two label files
        yield signature["metric"]
        yield _tool(signature)
        yield from _set(signature)
        yield str(signature.get("baseline", ""))
    elif isinstance(metrics, Mapping):  # scores and tables
        yield "+".join(metrics)
        if len(metrics) == 1:
            yield from (_tool(how) for how in metrics.values())
        yield from dict.fromkeys(part for how in metrics.values() for part in _set(how))
    else:
        yield str(signature.get("command", signature.get("kind", "")))
        yield "+".join(map(str, metrics or ()))
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


def _tool(how: Mapping[str, Any]) -> str:
    """Return the published program, or nothing where there is none."""
    return str(how.get("tool") or "")


def _set(how: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings that change a score: of the search, and of how the representation was made."""
    made = how.get("representation")
    kinds = made.values() if isinstance(made, Mapping) else ()
    found = {**{k: v for kind in kinds if isinstance(kind, Mapping) for k, v in kind.items()}, **how}
    encoder = found.get("encoder")
    if isinstance(encoder, Mapping):
        name = str(encoder.get("name") or encoder.get("model") or "encoder").rpartition("/")[2]
        layer = encoder.get("layer")
        yield name if layer is None else f"{name}:L{layer}"
    for name in _SETTINGS:
        value = found.get(name)
        if name == "frequencies" and isinstance(value, str):  # the fingerprint of a corpus
            value = value[:_HEX]
        if isinstance(value, Mapping):
            value = value.get("name", value.get("sha256", ""))[:_HEX] or "+".join(value)
        if value is not None:
            yield f"{name}:{'yes' if value is True else 'no' if value is False else value}"
