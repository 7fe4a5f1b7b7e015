"""Draws synthetic chest X-ray impressions from the grammar, with gold RadGraph graphs and gold CheXbert labels.

A report is either drawn from a *stock* of whole impressions, with Zipf-like frequencies, or newly composed. Stock items
depend on the seed alone, so train and test share them; everything else also depends on the split.
"""

from __future__ import annotations

import json
import math
from bisect import bisect
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from random import Random
from typing import NamedTuple

from metric_oracle.synthetic.notation import (
    BLANK,
    IMPRESSIONS,
    POSITIVE,
    PRIORITY,
    SUPPORT_DEVICES,
    UNCERTAIN,
    Part,
    Sentence,
    alternatives_of,
    compile_sentence,
    expand,
    table_of,
)

# Properties of the corpus. The stock has the hand-written impressions first, then composed ones.
_STOCK_SHARE = 0.40
_STOCK_SIZE = 40_000
_COMMONEST_SHARE = 0.06
_STOCK_EXPONENT = 1.0
_STOCK_LENGTHS = (0.16, 0.32, 0.30, 0.16, 0.06)  # shares of reports with 1, 2, ... sentences
_FREE_LENGTHS = (0.08, 0.24, 0.27, 0.20, 0.11, 0.06, 0.03, 0.01)
# Sentence tables, each with its share of the sentences and its position in a report.
_SECTIONS = (
    ("compare", 0.08, 1),
    ("airway", 0.035, 0),
    ("gastric", 0.035, 0),
    ("venous", 0.045, 0),
    ("drained", 0.03, 0),
    ("implanted", 0.03, 1),
    ("finding", 0.385, 1),
    ("uncertain", 0.10, 2),
    ("negative", 0.15, 3),
    ("normal", 0.06, 3),
    ("advice", 0.035, 4),
    ("notice", 0.015, 5),
)
_REPEATABLE_SECTIONS = ("finding", "uncertain", "negative")
_NUMBERED_SHARE = 0.13
_WRAPPED_SHARE = 0.30
_UPPER_SHARE = 0.01
_UNSTOPPED_SHARE = 0.03
_TYPO_SHARE = 0.02
_LINE_WIDTH = 79

Draw = Callable[[], float]  # returns random numbers in [0, 1)


class Draft(NamedTuple):
    """One report before it has an id."""

    text: str
    graph: str  # JSON as in PhysioNet's files, without its end: the split and the closing brace
    labels: tuple[int, ...]  # the 14 CheXbert classes, in the order of `corpora.label_tables.LABELS`
    sentences: tuple[Sentence, ...]


@cache
def _section_tables() -> tuple[list[float], list[tuple[str, int, list[tuple[Part, ...]]]]]:
    """Return the cumulative shares of the sections, and the name, position and alternatives of each."""
    shares = list(accumulate(share for _, share, _ in _SECTIONS))
    return shares, [(name, position, table_of(name, "")) for name, _, position in _SECTIONS]


@cache
def _stock_shares() -> list[float]:
    """Return the cumulative shares of the stock items among all reports, the most frequent item first."""
    tail = [(rank + 2) ** -_STOCK_EXPONENT for rank in range(_STOCK_SIZE - 1)]
    scale = (_STOCK_SHARE - _COMMONEST_SHARE) / math.fsum(tail)
    return list(accumulate([_COMMONEST_SHARE, *(scale * weight for weight in tail)]))


def drafts_of(seed: int, split: str) -> Iterator[Draft]:
    """Yield reports without end; the same seed and split give the same reports."""
    draw = Random(f"{seed}/{split}").random
    shares = _stock_shares()
    common = [impression.split(" . ") for impression in alternatives_of(IMPRESSIONS)]
    stock: dict[int, Draft] = {}  # at most _STOCK_SIZE items, made when first drawn
    while True:
        rank = bisect(shares, draw())
        if rank >= _STOCK_SIZE:
            yield compose(draw, _FREE_LENGTHS)
            continue
        if rank not in stock:
            if rank < len(common):
                stock[rank] = assemble([compile_sentence(notation) for notation in common[rank]])
            else:
                stock[rank] = compose(Random(f"{seed}/stock/{rank}").random, _STOCK_LENGTHS)
        yield stock[rank]


def compose(draw: Draw, length_shares: tuple[float, ...]) -> Draft:
    """Compose a report of sentences on different topics; `draw` returns random numbers from 0 to 1.

    `length_shares` are the shares of reports with 1, 2, ... sentences; a report has fewer where too few topics fit.
    """
    u = draw()
    length = 1
    for share in length_shares[:-1]:
        u -= share
        if u < 0:
            break
        length += 1
    is_upper, has_typo = draw() < _UPPER_SHARE, draw() < _TYPO_SHARE
    shares, sections = _section_tables()
    placed: list[tuple[int, Sentence]] = []
    used: set[str | int] = set()  # sections and labels that occur
    for _ in range(4 * length):
        name, position, table = sections[bisect(shares, draw() * shares[-1])]
        if name in used:
            continue
        words: list[str] = []
        expand(table[int(draw() * len(table))], draw, words)
        if has_typo:
            has_typo = not _misspell(words, draw)
        if is_upper:  # the mark after a colon keeps its case
            words = [word[:-2].upper() + word[-2:] if word[-2:-1] == ":" else word.upper() for word in words]
        sentence = compile_sentence(" ".join(words))
        if not sentence.topics.isdisjoint(used):
            continue
        used |= sentence.topics
        if name not in _REPEATABLE_SECTIONS:
            used.add(name)
        placed.append((position, sentence))
        if len(placed) == length:
            break
    placed.sort(key=lambda item: item[0])
    sentences = [sentence for _, sentence in placed]
    return assemble(
        sentences,
        is_numbered=len(sentences) > 1 and draw() < _NUMBERED_SHARE,
        is_wrapped=draw() < _WRAPPED_SHARE,
        is_stopped=draw() >= _UNSTOPPED_SHARE,
    )


def _misspell(words: list[str], draw: Draw) -> bool:
    """Swap two inner letters of a random word in place; return False if it is no plain word of six letters or more."""
    w = int(draw() * len(words))
    word = words[w]
    letters = word.partition(":")[0]
    if len(letters) < 6 or not letters.isalpha():
        return False
    i = 1 + int(draw() * (len(letters) - 3))
    words[w] = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    return True


def assemble(
    sentences: list[Sentence], *, is_numbered: bool = False, is_wrapped: bool = False, is_stopped: bool = True
) -> Draft:
    """Join sentences, at least one, into a report; with `is_stopped` the last one gets a full stop, as all others do.

    With `is_numbered` they begin with "1. ", "2. ", ...; with `is_wrapped` long lines are broken, and numbered
    sentences begin a line.
    Token numbers and entity keys are shifted. Of each label the strongest class counts: positive, uncertain, negative.
    No Finding follows from the other labels.
    """
    texts: list[str] = []
    tokens: list[str] = []
    entities: list[str] = []
    labels = list(sentences[0].labels)
    n_tokens, next_key = 0, 1
    for i, sentence in enumerate(sentences):
        number = f"{i + 1}. " if is_numbered else ""
        if number:
            tokens.append(f"{i + 1} .")
            n_tokens += 2
        texts.append(number + sentence.text)
        if sentence.n_entities:
            numbers = tuple([n + (next_key if is_key else n_tokens) for n, is_key in sentence.numbers])
            entities.append(sentence.entities % numbers)
        tokens.append(sentence.tokens)
        n_tokens += sentence.n_tokens + 1
        next_key += sentence.n_entities
        if i:
            labels = [a if PRIORITY[a] >= PRIORITY[b] else b for a, b in zip(labels, sentence.labels, strict=True)]
        # A sentence that ends in "a.m." needs no further full stop.
        if sentence.text.endswith("."):
            n_tokens -= 1
        elif is_stopped or i + 1 < len(sentences):
            texts[-1] += "."
            tokens.append(".")
    has_finding = any(state in (POSITIVE, UNCERTAIN) for state in labels[:SUPPORT_DEVICES])
    labels[-1] = BLANK if has_finding else POSITIVE
    text = ("\n" if is_numbered and is_wrapped else " ").join(texts)
    graph = f'{{"text": {json.dumps(" ".join(tokens))}, "entities": {{{", ".join(entities)}}}, "data_source": null, '
    return Draft(_wrap(text) if is_wrapped else text, graph, tuple(labels), tuple(sentences))


def edited(draft: Draft, share: float, draw: Draw) -> Draft:
    """Return a report in which each sentence is kept with probability `share`, and otherwise replaced or left out.

    A report of which nothing is left gets one new sentence. `draw` returns random numbers from 0 to 1.
    """
    sentences = []
    for sentence in draft.sentences:
        if draw() < share:
            sentences.append(sentence)
        elif draw() < 0.5:
            sentences += compose(draw, (1.0,)).sentences
    return assemble(sentences or list(compose(draw, (1.0,)).sentences))


def _wrap(text: str) -> str:
    """Break lines of over `_LINE_WIDTH` characters at blanks; no word of the grammar is longer than a line."""
    lines = []
    for line in text.split("\n"):
        while len(line) > _LINE_WIDTH:
            cut = line.rfind(" ", 0, _LINE_WIDTH + 1)
            lines.append(line[:cut])
            line = line[cut + 1 :]
        lines.append(line)
    return "\n".join(lines)
