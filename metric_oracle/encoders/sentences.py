"""Sentences of clinical text as medspaCy 1.3.1 finds them, by the rules of RuSH (Shi et al., AMIA 2016).

A rule is a pattern of characters that tells where a sentence begins or ends, or that something is no such place. The
rules are not here: they are a file of medspaCy, `rush_rules.tsv`. What is here gives the sentences of PyRuSH 1.0.13
under these rules, written anew, in less than half the time and without its libraries: on Python 3.11 PyRuSH wants a
spaCy whose NumPy is older than ours. Two things differ. Where a match overlaps several others, PyRuSH compares it with
one that depends on random numbers; here it is the last of them. And spaCy's tokenizer decides where a sentence may be
cut inside a word; here a short rule does, see `_word_starts`. On 4,317 texts of IU X-ray both choices change nothing.
"""

import csv
import re
import string
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from metric_oracle.errors import BackendError, InputError

RULES = "rush_rules.tsv"
_BEGIN, _END = "stbegin", "stend"
_READ, _RUN, _TELL, _AT_START, _OPEN, _CLOSE, _STAY = range(7)
_MOVING = (_READ, _RUN, _TELL, _AT_START)
_REPEATS = 50  # the longest run that a "+" takes
_LEAST = 5  # a gap between sentences of so many characters, or fewer, belongs to the sentence before it
_ENDS_GAP = frozenset('.!?)]"')
# What spaCy 3.7 parts from the beginning and the end of an English word, and what it parts it at.
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
_BLANKS_OR_NONE = re.compile(r"\s+|\S+")


class Sentences:
    """The rules, ready to find sentences.

    Parameters
    ----------
    rules : path
        By default the English rules of the medspaCy that is installed.
    function : str
        Name for error messages.
    """

    def __init__(self, rules: Path | None = None, function: str = "annotate") -> None:
        self.path = _find_rules(function) if rules is None else rules
        self._rules = _read_rules(self.path, function)

    def split(self, text: str) -> list[str]:
        """Return the sentences of a text, in their order, without blanks around them and those of blanks alone."""
        starts = sorted({0, *_sentence_starts(text, self._spans(text))})
        parts = (text[begin:end].strip() for begin, end in zip(starts, [*starts[1:], len(text)], strict=True))
        return [part for part in parts if part]

    def _spans(self, text: str) -> list[list[int]]:
        """Return begin and end of each sentence, before words are thought of."""
        found = _Matches(text)
        for place in range(len(text)):
            found.match(self._rules, place, 0, place, (False, " "))
        return _joined(text, found.places(_BEGIN), found.places(_END))


class _Rules:
    """A node of the tree of rules: what may come next.

    Attributes
    ----------
    after : dict
        By the next character of the rule.
    ends : dict
        What a rule that ends here tells, and whether that is a place, or the lack of one.
    """

    __slots__ = ("_steps", "after", "ends")

    def __init__(self) -> None:
        self.after: dict[str, _Rules] = {}
        self.ends: dict[str, bool] = {}
        self._steps: dict[str, list[_Step]] = {}

    def add(self, rule: str, told: str, is_place: bool) -> None:
        """Add a rule below this node."""
        node = self
        for character in rule:
            node = node.after.setdefault(character, _Rules())
        node.ends[told] = is_place

    def steps(self, character: str) -> "list[_Step]":
        """Return what rules do at a character, or at the end of the text (""), in PyRuSH's order."""
        found = self._steps.get(character)
        if found is None:
            found = [*self._at(character)] if character else [*self._at_end()]
            # A step that stays where it is leads nowhere if nothing follows it there.
            found = [(step, node, read) for step, node, read in found if step in _MOVING or node.steps(character)]
            self._steps[character] = found
        return found

    def _at(self, character: str) -> "Iterator[_Step]":
        classes = self.after["\\"].after if "\\" in self.after else {}
        for kind, node in classes.items():
            if kind == "b" or kind in _kinds(character):
                yield _AT_START if kind == "b" else _READ, node, (True, kind)
        if "(" in self.after:
            yield _OPEN, self.after["("], (False, "(")
        if ")" in self.after:
            yield _CLOSE, self.after[")"], (False, ")")
        if self.ends:
            yield _TELL, self, (False, "")
        if character in self.after and character not in "()":
            yield _READ, self.after[character], (False, character)
        if "+" in self.after:
            yield _STAY, self.after["+"], (False, "+")
            yield _RUN, self.after["+"], (False, "+")

    def _at_end(self) -> "Iterator[_Step]":
        classes = self.after["\\"].after if "\\" in self.after else {}
        if self.ends:
            yield _TELL, self, (False, "")
        elif "e" in classes:
            yield _TELL, classes["e"], (False, "")
        elif ")" in self.after:
            if self.after[")"].ends:
                yield _CLOSE, self.after[")"], (False, ")")
        elif "+" in self.after:
            yield _STAY, self.after["+"], (False, "+")


# What a rule does next, the node after it, and what is read by it: whether a class, and which character.
_Step = tuple[int, _Rules, tuple[bool, str]]


class _Match:
    """A stretch of text that a rule takes for a begin or an end, or for neither."""

    __slots__ = ("begin", "end", "is_place")

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end, self.is_place = begin, end, False


class _Matches:
    """Matches of rules in a text; of two that overlap the wider counts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[str, list[_Match]] = {}
        self._taken: dict[str, list[tuple[int, int, int]]] = {}  # begin, end, place among the found

    def places(self, told: str) -> list[_Match]:
        """Return the matches that count."""
        return [match for match in self._found.get(told, ()) if match.is_place]

    def match(self, rules: _Rules, begin: int, end: int, place: int, before: tuple[bool, str]) -> None:
        """Follow the rules from a place on; `before` is what was read last."""
        text = self._text
        for step, node, read in rules.steps(text[place : place + 1]):
            if step == _READ:
                if node.steps(text[place + 1 : place + 2]):
                    self.match(node, begin, end, place + 1, read)
            elif step == _OPEN:
                self.match(node, place, end, place, read)
            elif step == _CLOSE:
                self.match(node, begin, place, place, read)
            elif step == _TELL:
                self._add(node, begin, end or place)
            elif step == _STAY or (step == _AT_START and place == 0):
                self.match(node, begin, end, place, read)
            elif step == _RUN and (not before[0] or before[1] in _CLASSES):
                stop = self._run_end(place, *before)
                if stop > place:  # else it was followed
                    self.match(node, begin, end, stop, read)

    def _run_end(self, place: int, is_class: bool, character: str) -> int:
        """Return where a run of a class or character ends, at most so many characters further."""
        stop = min(place + _REPEATS, len(self._text))
        while place < stop and (character in _kinds(self._text[place]) if is_class else character == self._text[place]):
            place += 1
        return place

    def _add(self, rules: _Rules, begin: int, end: int) -> None:
        begin, end = min(begin, end), max(begin, end)
        match = _Match(begin, end)
        matches: list[_Match] = []
        for told, is_place in rules.ends.items():
            match.is_place = is_place
            if told not in self._found:
                # The first one is one character shorter to those that come.
                self._found[told], self._taken[told] = matches, [(begin, end - 1, len(matches))]
                matches.append(match)
                continue
            matches, taken = self._found[told], self._taken[told]
            overlapped = [
                (first, number)
                for number, (first, last, _) in enumerate(taken)
                if (last > begin and first < end) or begin == end == first or first == last == begin
            ]
            if not overlapped:
                taken.append((begin, end, len(matches)))
                matches.append(match)
                continue
            where = taken[max(overlapped)[1]][2]
            if end - begin > matches[where].end - matches[where].begin:
                matches[where] = match
                taken.append((begin, end, where))


_CLASSES = "sndCcpauw"


@cache
def _kinds(character: str) -> frozenset[str]:
    """Return the letters of the classes that a character is of, and itself where a rule escapes it."""
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


def _joined(text: str, begins: list[_Match], ends: list[_Match]) -> list[list[int]]:
    """Return sentences, each from a begin to the end that belongs to it; what lies between joins them."""
    found: list[list[int]] = []
    begin = end = first = 0
    is_open = False
    for i, match in enumerate(begins):
        if match.begin < end:
            continue
        if not is_open:
            begin, is_open = match.begin, True
        _fill_gap(text, found, begin)
        after = begins[i + 1].begin if i + 1 < len(begins) else len(text) + 1
        for k in range(first, len(ends)):
            if after <= ends[k].begin and k + 1 < len(ends):
                break
            first, end = k, len(text[: ends[k].begin + 1].rstrip())
            if end < begin:
                continue
            if not is_open:
                found[-1] = [begin, end]
                continue
            found.append([begin, end])
            is_open = False
            if i + 1 < len(begins) and (k + 1 == len(ends) or after <= ends[k + 1].end):
                break
    if not found:
        _fill_gap(text, found, len(text))
        return found
    gap = _gap(text, 0, found[0][0])
    if gap is not None and found[0][0] <= ends[0].begin:
        found[0][0] = gap[0]
    elif gap is not None:
        found.insert(0, gap)
    _fill_gap(text, found, len(text))
    return found


def _fill_gap(text: str, found: list[list[int]], end: int) -> None:
    """Make what lies between the last sentence and a place a sentence, or, where it is short, a part of the last."""
    gap = _gap(text, found[-1][1] if found else 0, end)
    if gap is None:
        return
    if gap[1] - gap[0] > _LEAST:
        found.append(gap)
    elif found:
        found[-1][1] = gap[1]


def _gap(text: str, begin: int, end: int) -> list[int] | None:
    """Return what is left of a gap from its first character that is no blank to its last that may end a sentence."""
    first = next((place for place in range(begin, end) if not text[place].isspace()), end)
    last = next((p for p in range(end - 1, first, -1) if text[p].isalnum() or text[p] in _ENDS_GAP), None)
    return None if last is None else [first, last + 1]


def _sentence_starts(text: str, spans: list[list[int]]) -> Iterator[int]:
    """Return the words that sentences start with: the first of each, and the first after each."""
    words = list(_words(text))
    t = s = 0
    while t < len(words):
        place = words[t]
        following = spans[s + 1][0] if s + 1 < len(spans) else -1
        if s < len(spans) and spans[s][1] <= place < following:
            gap = range(t, next((u for u in range(t, len(words)) if words[u] >= following), len(words)))
            yield words[next((u for u in gap if text[words[u]].isspace()), t)]
            t = gap.stop
            continue
        while s < len(spans) and place >= spans[s][1]:
            s += 1
        if s == len(spans):
            if text[place].isspace():
                yield place
        elif place >= spans[s][0]:
            if place == spans[s][0]:
                yield place
            if t + 1 < len(words) and words[t + 1] >= spans[s][1]:
                yield words[t + 1]
        t += 1


def _words(text: str) -> Iterator[int]:
    """Return where words begin, as spaCy parts them; further blanks after the one that ends a word are a word."""
    for run in _BLANKS_OR_NONE.finditer(text):
        begin, end = run.span()
        if not run[0].isspace():
            yield from _word_starts(text, begin, end)
        elif begin == 0 or run[0][0] != " ":
            yield begin
        elif end - begin > 1:
            yield begin + 1


def _word_starts(text: str, begin: int, end: int) -> Iterator[int]:
    """Return where the parts of a word begin that spaCy makes of one without blanks."""
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
    starts.update(place for m in _INFIX.finditer(text, begin, end) for place in m.span())
    return iter(sorted(starts - {stop}))


def _find_rules(function: str) -> Path:
    """Return the rules of the medspaCy that is installed, which is not imported."""
    package = find_spec("medspacy")
    places = package.submodule_search_locations if package is not None else None
    found = [path for place in places or () if (path := Path(place).parent / "resources/en" / RULES).is_file()]
    if not found:
        msg = (
            f"{function}: sentences must have medspaCy's {RULES}, in the folder of the model or of an installed "
            "medspaCy; got none. Install it: pip install --no-deps medspacy."
        )
        raise BackendError(msg)
    return found[0]


def _read_rules(path: Path, function: str) -> _Rules:
    """Read the rules: pattern, score, what it tells; an odd score says that it is none."""
    root = _Rules()
    try:
        rows = list(csv.reader(path.read_text("utf-8").splitlines(), delimiter="\t"))
        rules = [
            (row[0], row[2].strip(), float(row[1]) % 2 == 0) for row in rows if len(row) > 2 and row[0][0] not in "#@"
        ]
    except (OSError, ValueError, IndexError, csv.Error):
        rules = []
    if {told for _, told, _ in rules} != {_BEGIN, _END}:
        msg = (
            f"{function}: sentences must have rules with a pattern, a score and {_BEGIN} or {_END}, tabs between; got "
            f"another file, {path}. Pass medspaCy's {RULES}."
        )
        raise InputError(msg)
    for rule in rules:
        root.add(*rule)
    return root
