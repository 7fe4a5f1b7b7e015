"""Sentences of clinical text as medspaCy 1.3.1 finds them, by the rules of RuSH (Shi et al., AMIA 2016).

A rule is a pattern of characters. It says where a sentence begins or ends, or that a position is not a begin or an end.
The rules are in a file of medspaCy, `rush_rules.tsv`. This module finds the sentences that PyRuSH 1.0.13 finds with
these rules. It was written anew, takes less than half the time, and needs none of PyRuSH's libraries: on Python 3.11,
PyRuSH needs a spaCy that requires an older NumPy than ours. Two things differ. If a match overlaps several others,
PyRuSH compares it with one of them that depends on random numbers; this module compares it with the last. And in
PyRuSH, spaCy's tokenizer decides where a sentence may begin inside a word; here a short rule decides, see
`_word_starts`. On 4,317 texts of IU X-ray, neither difference changes a sentence.
"""

import csv
import re
import string
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from metric_oracle.base.errors import BackendError, InputError

RULES = "rush_rules.tsv"
_BEGIN, _END = "stbegin", "stend"
# What a rule does at a character: read it, read the run that a "+" allows, end with a match, require the start of the
# text, begin or end the matched part ("(" and ")"), or go on at the same character after a "+".
_READ, _RUN, _MATCH, _AT_START, _OPEN, _CLOSE, _STAY = range(7)
_ALWAYS_KEPT = (_READ, _RUN, _MATCH, _AT_START)
_MAX_RUN = 50  # longest run of characters that a "+" matches
_MAX_SHORT_GAP = 5  # a gap of at most so many characters after a sentence belongs to that sentence
_ENDS_GAP = frozenset('.!?)]"')
# What spaCy 3.7 splits off the beginning and the end of an English word, and where it splits inside.
_MARKS = r"[,:;!?()\[\]{}<>_#*&%\"'`´‘’“”«»…¿¡$£€]"
_PREFIX = re.compile(rf"{_MARKS}|[§=—–]|\+(?![0-9])|\.\.+")
_SUFFIX = re.compile(
    rf"{_MARKS}|[—–]|\.\.+|'[sS]|(?<=[0-9])\+|(?<=[0-9])(?:[ckm]?m[²³23]?|[mk]?g|ft|hPa|Pa|[kKmMgGtT][bB])"
    rf"|(?<=[0-9a-zß-ÿ%²+\-,:;!?()\[\]{{}}<>_#*&\"'’”…])\.|(?<=[A-Z][A-Z])\."
)
_INFIX = re.compile(
    r"\.\.+|…|(?<=[0-9])[+\-*^](?=[0-9-])|(?<=[a-zß-öø-ÿœ\"'])\.(?=[A-ZÀ-ÖØ-ÞŒ\"'])|(?<=[^\W\d_]),(?=[^\W\d_])"
    r"|(?<=[^\W\d_])(?:-{1,3}|[–—~])(?=[^\W\d_])|(?<=[^\W_])[:<>=/](?=[^\W\d_])"
)
_RUN_OF_BLANKS_OR_LETTERS = re.compile(r"\s+|\S+")


class Sentences:
    """Splits texts into sentences by a file of rules, by default the English rules of the installed medspaCy."""

    def __init__(self, rules: Path | None = None) -> None:
        self.path = _find_rules() if rules is None else rules
        self._rules = _read_rules(self.path)

    def split(self, text: str) -> list[str]:
        """Return the sentences of a text in order, stripped of blanks; sentences of blanks only are left out."""
        starts = sorted({0, *_sentence_starts(text, self._spans(text))})
        parts = (text[begin:end].strip() for begin, end in zip(starts, [*starts[1:], len(text)], strict=True))
        return [part for part in parts if part]

    def _spans(self, text: str) -> list[list[int]]:
        """Return [begin, end] of each sentence that the rules find. They may lie inside a word."""
        matches = _Matches(text)
        for position in range(len(text)):
            matches.match(self._rules, position, 0, position, (False, " "))
        return _sentence_spans(text, matches.positive(_BEGIN), matches.positive(_END))


class _Rules:
    """A node of the prefix tree of the rules."""

    __slots__ = ("_steps", "children", "ends")

    def __init__(self) -> None:
        self.children: dict[str, _Rules] = {}  # next character of a rule -> node
        # Of the rules that end at this node: "stbegin" or "stend" -> whether there is one, or there is none.
        self.ends: dict[str, bool] = {}
        self._steps: dict[str, list[_Step]] = {}  # character of a text -> steps, see `steps`

    def add(self, rule: str, kind: str, is_positive: bool) -> None:
        """Add a rule below this node: `kind` is "stbegin" or "stend", which a negative rule denies."""
        node = self
        for character in rule:
            node = node.children.setdefault(character, _Rules())
        node.ends[kind] = is_positive

    def steps(self, character: str) -> "list[_Step]":
        """Return what the rules do at a character, or at the end of the text (""), in PyRuSH's order."""
        steps = self._steps.get(character)
        if steps is None:
            steps = [*self._at(character)] if character else [*self._at_end()]
            # A step that stays at the character is left out if no step can follow it there.
            steps = [(step, node, read) for step, node, read in steps if step in _ALWAYS_KEPT or node.steps(character)]
            self._steps[character] = steps
        return steps

    def _at(self, character: str) -> "Iterator[_Step]":
        """Yield the steps at a character, also those after which no step can follow."""
        classes = self.children["\\"].children if "\\" in self.children else {}
        for kind, node in classes.items():
            if kind == "b" or kind in _kinds(character):
                yield _AT_START if kind == "b" else _READ, node, (True, kind)
        if "(" in self.children:
            yield _OPEN, self.children["("], (False, "(")
        if ")" in self.children:
            yield _CLOSE, self.children[")"], (False, ")")
        if self.ends:
            yield _MATCH, self, (False, "")
        if character in self.children and character not in "()":
            yield _READ, self.children[character], (False, character)
        if "+" in self.children:
            yield _STAY, self.children["+"], (False, "+")
            yield _RUN, self.children["+"], (False, "+")

    def _at_end(self) -> "Iterator[_Step]":
        """Yield the step at the end of the text, if there is one."""
        classes = self.children["\\"].children if "\\" in self.children else {}
        if self.ends:
            yield _MATCH, self, (False, "")
        elif "e" in classes:
            yield _MATCH, classes["e"], (False, "")
        elif ")" in self.children:
            if self.children[")"].ends:
                yield _CLOSE, self.children[")"], (False, ")")
        elif "+" in self.children:
            yield _STAY, self.children["+"], (False, "+")


# What a rule does next (_READ, ...), the node after it, and what it reads: whether it is a class, and the character.
_Step = tuple[int, _Rules, tuple[bool, str]]


class _Match:
    """A part of a text that a rule marks as a begin or an end of a sentence or, with a negative rule, as neither."""

    __slots__ = ("begin", "end", "is_positive")

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end, self.is_positive = begin, end, False


class _Matches:
    """Matches of rules in a text; of two matches that overlap, the longer one counts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._matches: dict[str, list[_Match]] = {}
        self._intervals: dict[str, list[tuple[int, int, int]]] = {}  # begin, end, position in the list of matches

    def positive(self, kind: str) -> list[_Match]:
        """Return the matches of positive rules of a kind, "stbegin" or "stend"."""
        return [match for match in self._matches.get(kind, ()) if match.is_positive]

    def match(self, rules: _Rules, begin: int, end: int, position: int, before: tuple[bool, str]) -> None:
        """Follow the rules below a node from a position on, and add their matches.

        `begin` and `end` are those of the matched part as far as known, and `before` is what was read last, as in
        `_Step`.
        """
        text = self._text
        for step, node, read in rules.steps(text[position : position + 1]):
            if step == _READ:
                if node.steps(text[position + 1 : position + 2]):
                    self.match(node, begin, end, position + 1, read)
            elif step == _OPEN:
                self.match(node, position, end, position, read)
            elif step == _CLOSE:
                self.match(node, begin, position, position, read)
            elif step == _MATCH:
                self._add(node, begin, end or position)
            elif step == _STAY or (step == _AT_START and position == 0):
                self.match(node, begin, end, position, read)
            elif step == _RUN and (not before[0] or before[1] in _CLASSES):
                stop = self._run_end(position, *before)
                if stop > position:  # otherwise _STAY has followed the rule
                    self.match(node, begin, end, stop, read)

    def _run_end(self, begin: int, is_class: bool, character: str) -> int:
        """Return the end of the run of a class, or of one character, from `begin` on: at most `_MAX_RUN` characters."""
        end, stop = begin, min(begin + _MAX_RUN, len(self._text))
        while end < stop and (character in _kinds(self._text[end]) if is_class else character == self._text[end]):
            end += 1
        return end

    def _add(self, rules: _Rules, begin: int, end: int) -> None:
        """Add the match of the rules that end at a node; if it overlaps others, only in place of a shorter last one."""
        begin, end = min(begin, end), max(begin, end)
        match = _Match(begin, end)
        matches: list[_Match] = []
        for kind, is_positive in rules.ends.items():
            match.is_positive = is_positive
            if kind not in self._matches:
                # As in PyRuSH, the interval of the first match is one character too short.
                self._matches[kind], self._intervals[kind] = matches, [(begin, end - 1, len(matches))]
                matches.append(match)
                continue
            matches, intervals = self._matches[kind], self._intervals[kind]
            overlapped = [
                (first, number)
                for number, (first, last, _) in enumerate(intervals)
                if (last > begin and first < end) or begin == end == first or first == last == begin
            ]
            if not overlapped:
                intervals.append((begin, end, len(matches)))
                matches.append(match)
                continue
            last_overlapped = intervals[max(overlapped)[1]][2]
            if end - begin > matches[last_overlapped].end - matches[last_overlapped].begin:
                matches[last_overlapped] = match
                intervals.append((begin, end, last_overlapped))


_CLASSES = "sndCcpauw"


@cache
def _kinds(character: str) -> frozenset[str]:
    """Return the letters of the classes that a character is of, and itself if rules must escape it."""
    is_wide = character > "~"
    is_blank = character in " \t\xa0"
    tests = {
        "s": is_blank,
        "n": character in "\n\r",
        "d": character.isdigit(),
        "C": character.isupper(),
        "c": character.islower(),
        "p": character in string.punctuation,
        "a": not character.isspace(),
        "u": is_wide and character != "\xa0",
        "w": is_wide or character.isspace(),
    }
    return frozenset({kind for kind, holds in tests.items() if holds} | ({character} & {*"()\\+"}))


def _sentence_spans(text: str, begins: list[_Match], ends: list[_Match]) -> list[list[int]]:
    """Return [begin, end] of each sentence, from the matches of begins and ends and from the gaps between them."""
    spans: list[list[int]] = []
    begin = end = first = 0
    is_open = False
    for i, match in enumerate(begins):
        if match.begin < end:
            continue
        if not is_open:
            begin, is_open = match.begin, True
        _fill_gap(text, spans, begin)
        after = begins[i + 1].begin if i + 1 < len(begins) else len(text) + 1
        for k in range(first, len(ends)):
            if after <= ends[k].begin and k + 1 < len(ends):
                break
            first, end = k, len(text[: ends[k].begin + 1].rstrip())
            if end < begin:
                continue
            if not is_open:
                spans[-1] = [begin, end]
                continue
            spans.append([begin, end])
            is_open = False
            if i + 1 < len(begins) and (k + 1 == len(ends) or after <= ends[k + 1].end):
                break
    if not spans:
        _fill_gap(text, spans, len(text))
        return spans
    gap = _gap(text, 0, spans[0][0])
    if gap is not None and spans[0][0] <= ends[0].begin:
        spans[0][0] = gap[0]
    elif gap is not None:
        spans.insert(0, gap)
    _fill_gap(text, spans, len(text))
    return spans


def _fill_gap(text: str, spans: list[list[int]], end: int) -> None:
    """Add the gap between the last of the spans and `end` to them or, if it is short, to the last span."""
    gap = _gap(text, spans[-1][1] if spans else 0, end)
    if gap is None:
        return
    if gap[1] - gap[0] > _MAX_SHORT_GAP:
        spans.append(gap)
    elif spans:
        spans[-1][1] = gap[1]


def _gap(text: str, begin: int, end: int) -> list[int] | None:
    """Return [first, last + 1] of the text from `begin` to `end`, without what no sentence begins or ends with.

    It begins with a character that is not a blank. Return None if none behind it may end a sentence.
    """
    first = next((i for i in range(begin, end) if not text[i].isspace()), end)
    last = next((i for i in range(end - 1, first, -1) if text[i].isalnum() or text[i] in _ENDS_GAP), None)
    return None if last is None else [first, last + 1]


def _sentence_starts(text: str, spans: list[list[int]]) -> Iterator[int]:
    """Yield the offset in `text` of each word that begins a sentence: the first in each span, and the first after it.

    Spans are the begin and end of the sentences that the rules found. Words are those of `_words`, where a run of
    blanks may be a word.
    """
    words = list(_words(text))
    t = s = 0
    while t < len(words):
        word = words[t]
        following = spans[s + 1][0] if s + 1 < len(spans) else -1
        if s < len(spans) and spans[s][1] <= word < following:
            gap = range(t, next((u for u in range(t, len(words)) if words[u] >= following), len(words)))
            yield words[next((u for u in gap if text[words[u]].isspace()), t)]
            t = gap.stop
            continue
        while s < len(spans) and word >= spans[s][1]:
            s += 1
        if s == len(spans):
            if text[word].isspace():
                yield word
        elif word >= spans[s][0]:
            if word == spans[s][0]:
                yield word
            if t + 1 < len(words) and words[t + 1] >= spans[s][1]:
                yield words[t + 1]
        t += 1


def _words(text: str) -> Iterator[int]:
    """Yield where words begin, as in spaCy: if several blanks follow a word, all but the first are a word."""
    for run in _RUN_OF_BLANKS_OR_LETTERS.finditer(text):
        begin, end = run.span()
        if not run[0].isspace():
            yield from _word_starts(text, begin, end)
        elif begin == 0 or run[0][0] != " ":
            yield begin
        elif end - begin > 1:
            yield begin + 1


def _word_starts(text: str, begin: int, end: int) -> Iterator[int]:
    """Return where the tokens begin into which spaCy splits a word without blanks, from `begin` to `end` of a text."""
    starts, stop = {begin}, end
    while begin < end:
        before = _PREFIX.match(text, begin, end)
        after = next((m for m in _SUFFIX.finditer(text, begin, end) if m.end() == end), None)
        if before is None and after is None:
            break
        if before is not None:
            begin = before.end()
            starts.add(begin)
        if after is not None and after.start() >= begin:
            end = after.start()
            starts.add(end)
    starts.update(edge for match in _INFIX.finditer(text, begin, end) for edge in match.span())
    return iter(sorted(starts - {stop}))


def _find_rules() -> Path:
    """Return the path of the rules of the installed medspaCy, without importing it; raise BackendError without it."""
    package = find_spec("medspacy")
    folders = package.submodule_search_locations if package is not None else None
    paths = [path for folder in folders or () if (path := Path(folder).parent / "resources/en" / RULES).is_file()]
    if not paths:
        raise BackendError(
            "the splitting into sentences for `entities`",
            f"must have medspaCy's {RULES}, in the folder of the model or of an installed medspaCy",
            "none",
            "Install it: pip install --no-deps medspacy.",
        )
    return paths[0]


def _read_rules(path: Path) -> _Rules:
    """Return the tree of the rules in a file: pattern, score, "stbegin" or "stend"; odd scores make negative rules.

    Raise InputError for a file of another form.
    """
    root = _Rules()
    try:
        rows = list(csv.reader(path.read_text("utf-8").splitlines(), delimiter="\t"))
        rules = [
            (row[0], row[2].strip(), float(row[1]) % 2 == 0) for row in rows if len(row) > 2 and row[0][0] not in "#@"
        ]
    except (OSError, ValueError, IndexError, csv.Error):
        rules = []
    if {kind for _, kind, _ in rules} != {_BEGIN, _END}:
        raise InputError(
            "the splitting into sentences for `entities`",
            f"must have rules with a pattern, a score and {_BEGIN} or {_END}, separated by tabs",
            f"another file, {path}",
            f"Pass medspaCy's {RULES}.",
        )
    for rule in rules:
        root.add(*rule)
    return root
