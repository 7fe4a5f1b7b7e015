"""The tables from which synthetic impressions are drawn, `grammar.toml`, and sentences in its notation.

Sentences are parsed into words, RadGraph entities and CheXbert labels.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from metric_oracle.corpora.label_tables import LABELS

# In the order of metric_oracle.corpora.label_tables.LABELS.
LABEL_CODES = ("EC", "CM", "LO", "LL", "ED", "CO", "PN", "AT", "PT", "PE", "PO", "FX", "SD", "NF")

_CONTENT = tomllib.loads((files("metric_oracle.synthetic") / "grammar.toml").read_text("utf-8"))
TABLES: dict[str, str] = _CONTENT["tables"]
IMPRESSIONS: str = _CONTENT["impressions"]

# Tables whose alternatives are equally likely and too regular to write out. Times stop at 12:59 and lengths at 12.9 cm.
NUMBER_TABLES = {
    "num": [str(n) for n in range(2, 13)],
    "cm": [f"{whole}.{part}+cm:o" for whole in range(1, 13) for part in range(10)],
    "mm": [f"{n}+mm:o" for n in [*range(3, 30), *range(3, 16), *range(4, 10)]],
    "dist": [f"{whole}.{part}+cm:o" for whole in range(1, 8) for part in range(10)]
    + [f"{n}+cm:o" for n in range(2, 8)] * 10,
    "time": [f"{h}:{m:02d} {half}" for h in range(1, 13) for m in range(60) for half in ("a.m.", "p.m.")],
}

# CheXbert's classes.
BLANK, POSITIVE, NEGATIVE, UNCERTAIN = range(4)
PRIORITY = (0, 3, 1, 2)  # positive > uncertain > negative > blank
SUPPORT_DEVICES = LABEL_CODES.index("SD")

_GRAPH_LABELS = {"A": "ANAT-DP", "O": "OBS-DP", "U": "OBS-U", "N": "OBS-DA"}
# A certainty mark turns the present findings of a table into uncertain or absent ones.
_MARKED_KINDS = {"": "Oo", "?": "Uu", "!": "Nn"}
_MARKED_CLASSES = {"": POSITIVE, "?": UNCERTAIN, "!": NEGATIVE}

_TABLE_EXPONENT = 0.75
_TABLE_SLOTS = 2048


class _Word(NamedTuple):
    """One word of the notation."""

    text: str
    tokens: str  # RadGraph's tokens, joined with blanks
    n_tokens: int
    kind: str  # one of "OoUuNnAa", or "" for a word that is not an entity
    entity: str  # start of the entity's JSON, up to the number of its first token


class Sentence(NamedTuple):
    """One compiled sentence, without its full stop."""

    notation: str
    text: str
    tokens: str  # RadGraph's tokens, joined with blanks
    n_tokens: int
    n_entities: int
    entities: str  # JSON with one %d for each of `numbers`
    # Each number from 0, and whether it is the key of an entity; otherwise it is that of a token.
    numbers: tuple[tuple[int, bool], ...]
    labels: tuple[int, ...]  # the 14 CheXbert classes, in the order of `corpora.label_tables.LABELS`
    topics: frozenset[int]  # labels that occur, but for support devices, which may occur in several sentences


Part = str | list[Any]  # a word of the notation, or the table from which the next words are drawn


@cache
def table_of(name: str, mark: str) -> list[tuple[Part, ...]]:
    """Return the alternatives of the table `name`, each repeated in proportion to its frequency.

    With the certainty mark "?" or "!" its present findings are uncertain or absent; "" changes nothing.
    """
    if name in NUMBER_TABLES:
        return [_parse(text, mark) for text in NUMBER_TABLES[name]]
    alternatives = [_parse(text, mark) for text in alternatives_of(TABLES[name])]
    weights = [(rank + 1) ** -_TABLE_EXPONENT for rank in range(len(alternatives))]
    scale = _TABLE_SLOTS / math.fsum(weights)
    return [a for a, weight in zip(alternatives, weights, strict=True) for _ in range(max(1, round(weight * scale)))]


def alternatives_of(text: str) -> list[str]:
    """Split the text of a table into its alternatives, which " ; " separates."""
    return " ".join(text.split()).split(" ; ")


def _parse(text: str, mark: str) -> tuple[Part, ...]:
    """Split an alternative into words and tables; `mark` is the certainty mark of the table to which it belongs."""
    parts: list[Part] = []
    for word in text.split():
        slot = re.fullmatch(r"\{(\w+)([?!]?)\}", word)
        if slot:
            parts.append(table_of(slot[1], slot[2] or mark))
        elif word.startswith("#") and word[-1] not in "?!":
            parts.append(word + mark)
        elif word.endswith((":O", ":o")):
            parts.append(word[:-1] + _MARKED_KINDS[mark][word[-1] == "o"])
        elif word != "-":
            parts.append(word)
    return tuple(parts)


def expand(parts: tuple[Part, ...], draw: Callable[[], float], words: list[str]) -> None:
    """Append the words of an alternative to `words`; one of each table in it is drawn by `draw`, numbers in [0, 1)."""
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        else:
            expand(part[int(draw() * len(part))], draw, words)


@lru_cache(1 << 14)
def _word(raw: str) -> _Word:
    """Return text, tokens, kind and entity of a word of the notation, such as left:a; 3+cm:o stands for two words."""
    text, kind = (raw[:-2], raw[-1]) if raw[-2:-1] == ":" and raw[-1] in "OoUuNnAa" else (raw, "")
    text = text.replace("+", " ")
    tokens = re.sub(r"([/,:.!?()])", r" \1 ", text).split()
    label = _GRAPH_LABELS[kind.upper()] if kind else ""
    entity = f'{{"tokens": {json.dumps(" ".join(tokens))}, "label": "{label}", "start_ix": '.replace("%", "%%")
    return _Word(text, " ".join(tokens), len(tokens), kind, entity)


@lru_cache(1 << 14)
def compile_sentence(notation: str) -> Sentence:
    """Compile words of the notation, separated by single blanks, into a sentence with entities and labels."""
    labels = [BLANK] * len(LABELS)
    entities: list[tuple[_Word, int]] = []  # word and its first token
    relations: list[list[tuple[str, int]]] = []  # of each entity: kind and target
    group: list[tuple[int, str]] = []  # entities since the last divider, with their kinds
    cause_of: int | None = None  # the observation before "=>"
    text: list[str] = []
    tokens: list[str] = []
    n_tokens = 0
    for raw in [*notation.split(" "), "|"]:
        if raw in ("|", "=>"):
            head = _link(group, relations)
            if cause_of is not None and head is not None:
                relations[cause_of].append(("suggestive_of", head))
            cause_of = head if raw == "=>" else None
            group = []
            continue
        if raw[0] == "#":
            label, state = LABEL_CODES.index(raw[1:3]), _MARKED_CLASSES[raw[3:]]
            labels[label] = max(labels[label], state, key=PRIORITY.__getitem__)
            continue
        word = _word(raw if text else raw[0].upper() + raw[1:])
        if word.kind:
            group.append((len(entities), word.kind))
            entities.append((word, n_tokens))
            relations.append([])
        text.append(word.text if word.text == "," or not text else " " + word.text)
        tokens.append(word.tokens)
        n_tokens += word.n_tokens

    items: list[str] = []
    numbers: list[tuple[int, bool]] = []
    for e, ((word, start), links) in enumerate(zip(entities, relations, strict=True)):
        pairs = ", ".join(f'["{kind}", "%d"]' for kind, _ in links)
        items.append(f'"%d": {word.entity}%d, "end_ix": %d, "relations": [{pairs}]}}')
        numbers += [(e, True), (start, False), (start + word.n_tokens - 1, False)]
        numbers += [(target, True) for _, target in links]
    topics = frozenset(label for label, state in enumerate(labels) if state and label != SUPPORT_DEVICES)
    return Sentence(
        notation,
        "".join(text),
        " ".join(tokens),
        n_tokens,
        len(entities),
        ", ".join(items),
        tuple(numbers),
        tuple(labels),
        topics,
    )


def _link(group: list[tuple[int, str]], relations: list[list[tuple[str, int]]]) -> int | None:
    """Relate the entities of one group, (number, kind) each, as RadGraph does; return its first observation or None.

    A modifier of an observation modifies the next observation, or the last one if none follows; likewise a modifier of
    an anatomy. Observations are located at every anatomy. `relations` are those of all entities and get the new ones.
    """
    anatomies = [e for e, kind in group if kind == "A"]
    observations = [e for e, kind in group if kind in "OUN"]
    # "left pneumothorax" has only a modifier of an anatomy, which then is the location.
    locations = anatomies or [e for e, kind in group if kind == "a"]
    for e, kind in group:
        if kind in "OUN":
            relations[e] += [("located_at", location) for location in locations]
        elif kind == "a":
            _modify(e, anatomies, relations)
        elif kind != "A":
            _modify(e, observations or anatomies, relations)
    return observations[0] if observations else None


def _modify(entity: int, targets: list[int], relations: list[list[tuple[str, int]]]) -> None:
    """Let an entity modify the first of the ascending targets behind it, else the last one; nothing without targets."""
    if targets:
        target = next((target for target in targets if target > entity), targets[-1])
        relations[entity].append(("modify", target))
