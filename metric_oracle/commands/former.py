"""Options of 0.2 that an entry of oracle.toml says now, and what to type instead. To be deleted after 0.3."""

import json
import shlex
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise

from metric_oracle.base.errors import shown
from metric_oracle.commands.inputs import ENTRY

_PREFIXES = ("--predicted-", "--model-")
_OF_ENCODER = ("--layer", "--states", "--bf16", "--rescale-table")
_SWITCHES = ("--after-impression", "--bf16")
# Of judges: the key of an entry, and whether its value is a number.
_OF_JUDGE = {
    "--judge": ("command", False),
    "--judged": ("files", False),
    "--direction": ("direction", False),
    "--best": ("best", True),
    "--judge-version": ("version", False),
    "--keep": ("keep", False),
    "--timeout": ("timeout", True),
    "--most": ("most", True),
    "--seconds-per-pair": ("seconds-per-pair", True),
}


def instead(words: Sequence[str], known: Container[str]) -> str:
    """Return a sentence that says what to type in place of the former options of a command line, or "".

    `words` are the words that were typed, and `known` has the options of the command.
    """
    entries: dict[str, list[str]] = {}
    of_encoder, models, of_crepe = [], [], []
    given = [*_unknown_options(words, known)]
    for option, value in given:
        prefix = next((prefix for prefix in _PREFIXES if option.startswith(prefix)), "")
        bare = f"--{option[len(prefix) or 2 :]}"
        name, mark, of_name = value.partition("=")
        is_named = prefix == "--model-" and mark
        if option == "--model":
            models.append(_typed(value))
        elif option in ("--crepe-config", "--crepe-vocabulary"):
            of_crepe = ["put the file beside the weights of CREPE"]
        elif bare in _OF_ENCODER:
            of_encoder.append(f"{bare[2:]} = {'true' if bare in _SWITCHES else _typed(value)}")
        elif bare[2:].replace("-", "_") in ENTRY.options:
            said = bare if bare in _SWITCHES else f"{bare} {_typed(of_name if is_named else value)}"
            entries.setdefault(name if is_named else "NAME", []).append(said)
    steps = [f"oracle reports {_typed(name)} FILE {' '.join(said)}" for name, said in entries.items()]
    steps += [f"write {', '.join(of_encoder)} below [encoders.NAME] in oracle.toml"] * bool(of_encoder)
    steps += [f"give {' '.join(models)} after the test reports"] * bool(models)
    steps += [*_of_judge(given), *of_crepe]
    last = ", and give the name in the place of the file" * bool(entries)
    return f"It is said once now: {'; '.join(steps)}{last}." if steps else ""


def _of_judge(given: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield what to write for the former options of a judge, if there are any."""
    name = _typed(dict(given).get("--name", "NAME"))
    values: dict[str, list[str]] = {}
    for option, value in given:
        if option in _OF_JUDGE:
            key, is_number = _OF_JUDGE[option]
            values.setdefault(key, []).append(_typed(value) if is_number else json.dumps(_shown(value)))
    if values:
        said = [
            f"{key} = {', '.join(of)}" if len(of) == 1 else f"{key} = [{', '.join(of)}]" for key, of in values.items()
        ]
        yield f"write {', '.join(said)} below [judges.{name}] in oracle.toml, and give -m METRIC,{name}"


def _shown(value: str) -> str:
    """Return a value that was typed, or "VALUE" in the place of one that may be a report."""
    return value if shown(value) == repr(value) else "VALUE"


def _typed(value: str) -> str:
    """Return what was typed as a word of a shell, see `_shown`."""
    return shlex.quote(_shown(value))


def _unknown_options(words: Sequence[str], known: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield each option among words that a command does not have, with its value.

    The value follows "=", or is the next word, "" after the last. --keep counts as unknown beside --judge or --judged,
    to which it belonged.
    """
    is_judged = any(word.partition("=")[0] in ("--judge", "--judged") for word in words)  # its --keep is meant, too
    for word, after in pairwise([*words, ""]):
        option, mark, value = word.partition("=")
        if option.startswith("--") and (option not in known or (is_judged and option == "--keep")):
            yield option, value if mark else after
