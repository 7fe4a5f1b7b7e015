"""Synthetic candidates with exact error counts: the reports of a synthetic split, rewritten and with inserted errors.

Zero to six errors of the categories of ReXVal and CREPE are inserted, at most one per sentence:

A  a finding is added that the report does not have;
B  a finding is left out;
C  a finding has the wrong location (left for right, upper for lower);
D  a finding has the wrong severity (small for large, mild for severe);
E  a comparison with an earlier study is added;
F  a comparison is left out.

The counts are exact, because they count the insertions. Each insertion is exactly one error: a comparison is removed
only from sentences with a single comparison, and a finding that is added or left out has no comparison.

The candidate also paraphrases its report: sentences are reordered, words are replaced by synonyms, and statements
without a finding (no pneumothorax, advice) are added or left out, which radiologists do not count as errors.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from metric_oracle.synthetic.drafts import Draft, Draw, assemble, compose
from metric_oracle.synthetic.notation import Sentence, compile_sentence

CATEGORIES = "ABCDEF"
MAX_ERRORS = 6  # per candidate
MAX_ADDED = 2  # errors of category A per candidate; short reports allow few errors of other kinds

# Words for a location, and the wrong location that replaces each of them.
_WRONG_LOCATIONS = {
    "left:a": "right:a", "left-sided:a": "right-sided:a", "upper:a": "lower:a", "superior:a": "inferior:a",
    "anterior:a": "posterior:a", "medial:a": "lateral:a", "central:a": "peripheral:a", "bibasilar:A": "biapical:A",
    "basilar:A": "perihilar:A", "apical:A": "basilar:A", "proximal:a": "distal:a",
}  # fmt: skip
_WRONG_LOCATIONS |= {wrong: right for right, wrong in [*_WRONG_LOCATIONS.items()] if wrong not in _WRONG_LOCATIONS}
# Words for low and for high severity that can replace each other.
_SEVERITIES = (
    (("small:o", "tiny:o", "trace:o"), ("large:o", "massive:o", "sizable:o")),
    (("mild:o", "minimal:o", "slight:o", "subtle:o"), ("severe:o", "marked:o", "extensive:o", "gross:o")),
)  # fmt: skip
_TRENDS = (
    "unchanged:o", "stable:o", "improved:o", "increased:o", "decreased:o", "persistent:o", "new:o", "worsening:o",
    "increasing:o", "improving:o", "decreasing:o", "enlarging:o",
)  # fmt: skip
_PRIOR_STUDIES = (
    "from prior", "since the prior study", "compared to ___", "since ___", "relative to ___",
    "as compared to the previous radiograph",
)  # fmt: skip
# Words of a comparison with an earlier study.
_COMPARING = frozenset(
    (
        *(word.removesuffix(":o") for word in _TRENDS),
        *("worse", "resolving", "resolved", "residual", "known", "chronic", "evolving", "waxing", "recurrent"),
        *("longstanding", "progressive", "re-demonstrated", "interval", "change", "changed", "prior", "previous"),
        *("since", "compared", "comparison", "relative", "again", "similar", "progressed", "less", "more", "last"),
        *(
            "continued",
            "clearing",
            "regression",
            "past",
            "little",
            "slow",
            "removal",
            "placement",
            "extubation",
            "pulled",
        ),
    )
)
# Words and phrases with the same meaning.
_SYNONYMS = (
    ("mild:o", "slight:o"), ("marked:o", "substantial:o"), ("large:o", "sizable:o"), ("unchanged:o", "stable:o"),
    ("increased:o", "increasing:o"),
    ("decreased:o", "decreasing:o"), ("improved:o", "improving:o"), ("no evidence of", "no", "there is no"),
    ("may represent", "could represent"), (", possibly", ", potentially reflecting"), ("possible", "question of"),
    ("compatible with", "consistent with", "diagnostic of"), ("adjacent:o", "associated:o", "accompanying:o"),
    ("opacity:O", "opacification:O"), ("bibasilar:A", "basal:A"), ("in standard:o position:o", "in place:o"),
    _PRIOR_STUDIES,
)  # fmt: skip
_SHARES_OF_COUNTS = (0.1, 0.15, 0.2, 0.2, 0.15, 0.12, 0.08)  # shares of candidates with 0, 1, ... attempted errors
# Probability of giving up after a failed attempt. Otherwise the next category is tried, which would favour A: a finding
# can be added to any report, while most other errors need a suitable sentence.
_GIVEN_UP = 0.3
_REWORDED, _LEFT_OUT, _ADDED, _SHUFFLED, _NUMBERED = 0.6, 0.35, 0.5, 0.6, 0.2


class ReportWithErrors(NamedTuple):
    """A report with errors."""

    draft: Draft
    counts: tuple[int, ...]  # numbers of errors of the categories A to F


class _Edit(NamedTuple):
    """A sentence of a candidate."""

    notation: str  # its words with their marks such as left:a, see `grammar.toml`
    is_wrong: bool = False  # whether it contains an error


def with_errors(drafts: Iterator[Draft], seed: int, split: str) -> Iterator[ReportWithErrors]:
    """Yield a candidate for each report; the same reports, seed and split give the same candidates."""
    draw = Random(f"{seed}/errors/{split}").random
    for draft in drafts:
        yield _candidate(draft, draw)


def _candidate(draft: Draft, draw: Draw) -> ReportWithErrors:
    """Return a report with inserted errors and other words; `draw` returns random numbers from 0 to 1."""
    sentences = [_Edit(sentence.notation) for sentence in draft.sentences]
    topics = set().union(*(sentence.topics for sentence in draft.sentences))
    counts = [0] * len(CATEGORIES)
    u, n_attempts = draw(), 0
    while n_attempts < MAX_ERRORS and u >= _SHARES_OF_COUNTS[n_attempts]:
        u -= _SHARES_OF_COUNTS[n_attempts]
        n_attempts += 1
    for _ in range(n_attempts):
        for category in sorted(range(len(CATEGORIES)), key=lambda _: draw()):
            is_allowed = category or counts[0] < MAX_ADDED
            if is_allowed and _ERRORS[category](sentences, topics, draw):
                counts[category] += 1
                break
            if draw() < _GIVEN_UP:
                break
    edits = [edit for edit in sentences if edit.is_wrong or not _is_idle(edit.notation) or draw() >= _LEFT_OUT]
    edits = [edit if edit.is_wrong and draw() < 0.5 else _Edit(_reword(edit.notation, draw)) for edit in edits]
    if draw() < _ADDED or not edits:
        edits.append(_Edit(_idle_sentence(topics, draw)))
    if draw() < _SHUFFLED:
        edits.sort(key=lambda _: draw())
    compiled = [compile_sentence(edit.notation) for edit in edits]
    is_numbered = len(compiled) > 1 and draw() < _NUMBERED
    return ReportWithErrors(assemble(compiled, is_numbered=is_numbered), tuple(counts))


# ---- content of a sentence -------------------------------------------------------------------------------------------


def _is_idle(notation: str) -> bool:
    """Return whether a sentence may be left out without an error: it has no finding, device or comparison."""
    has_content = any(
        word[-2:] in (":O", ":U", ":o", ":u") or (word[0] == "#" and word[3:] != "!") for word in notation.split()
    )
    return not has_content and not _compares(notation)


def _has_finding(sentence: Sentence) -> bool:
    """Return whether a sentence has a CheXbert finding other than a device, present or uncertain."""
    words = sentence.notation.split()
    return bool(sentence.topics) and any(word[0] == "#" and word[1:3] != "SD" and word[3:] != "!" for word in words)


def _compares(notation: str) -> bool:
    """Return whether a sentence has a word of a comparison with an earlier study."""
    return not _COMPARING.isdisjoint(word.partition(":")[0].lower() for word in notation.split())


def _findings(sentences: list[_Edit], draw: Draw) -> list[int]:
    """Return the positions of the sentences that have a finding and no error yet, in random order."""
    positions = [i for i, s in enumerate(sentences) if not s.is_wrong and _has_finding(compile_sentence(s.notation))]
    return sorted(positions, key=lambda _: draw())


# ---- errors: each function changes `sentences` and returns True, or returns False if no sentence allows the error ----

_Topics = set[int]  # the labels of the report and of the findings that were added


def _make_up(sentences: list[_Edit], topics: _Topics, draw: Draw) -> bool:
    for _ in range(40):
        sentence = compose(draw, (1.0,)).sentences[0]
        is_new = _has_finding(sentence) and sentence.topics.isdisjoint(topics)
        if is_new and len(sentence.topics) == 1 and not _compares(sentence.notation):
            topics |= sentence.topics
            sentences.insert(int(draw() * (len(sentences) + 1)), _Edit(sentence.notation, True))
            return True
    return False


def _leave_out(sentences: list[_Edit], topics: _Topics, draw: Draw) -> bool:
    for i in _findings(sentences, draw):
        notation = sentences[i].notation
        if not _compares(notation) and len(compile_sentence(notation).topics) == 1 and len(sentences) > 1:
            del sentences[i]
            return True
    return False


def _misplace(sentences: list[_Edit], topics: _Topics, draw: Draw) -> bool:
    return _change_word(sentences, draw, _WRONG_LOCATIONS.get)


def _misjudge(sentences: list[_Edit], topics: _Topics, draw: Draw) -> bool:
    def opposite(word: str) -> str | None:
        for low, high in _SEVERITIES:
            if word in low or word in high:
                words = high if word in low else low
                return words[int(draw() * len(words))]
        return None

    return _change_word(sentences, draw, opposite)


def _change_word(sentences: list[_Edit], draw: Draw, replace: Callable[[str], str | None]) -> bool:
    """Replace the word of a sentence that has exactly one for which `replace` returns another one, not None.

    Return whether a sentence was changed, which then counts as wrong. Only sentences of `_findings` are.
    """
    for i in _findings(sentences, draw):
        words = sentences[i].notation.split()
        changes = [(w, changed) for w, word in enumerate(words) if (changed := replace(word)) is not None]
        if len(changes) == 1:
            words[changes[0][0]] = changes[0][1]
            sentences[i] = _Edit(" ".join(words), True)
            return True
    return False


def _make_up_comparison(sentences: list[_Edit], topics: _Topics, draw: Draw) -> bool:
    for i in _findings(sentences, draw):
        notation = sentences[i].notation
        if not _compares(notation) and "=>" not in notation:
            trend, prior = (words[int(draw() * len(words))] for words in (_TRENDS, _PRIOR_STUDIES))
            sentences[i] = _Edit(f"{notation} , {trend} {prior}", True)
            return True
    return False


def _leave_out_comparison(sentences: list[_Edit], topics: _Topics, draw: Draw) -> bool:
    for i in _findings(sentences, draw):
        words = sentences[i].notation.split()
        rest = _without_tail(words) or words[1:] if words[0] in _TRENDS else _without_tail(words)
        if rest and not _compares(" ".join(rest)):
            sentences[i] = _Edit(" ".join(rest), True)
            return True
    return False


def _without_tail(words: list[str]) -> list[str] | None:
    """Return the words before the last comma if what follows it only compares with an earlier study, else None."""
    if "," not in words:
        return None
    cut = len(words) - 1 - words[::-1].index(",")
    tail = words[cut + 1 :]
    says_finding = any(word[0] == "#" or word in ("|", "=>") for word in tail)
    return words[:cut] if cut and not says_finding and _compares(" ".join(tail)) else None


_ERRORS = (_make_up, _leave_out, _misplace, _misjudge, _make_up_comparison, _leave_out_comparison)


# ---- changes that are not errors -------------------------------------------------------------------------------------


def _reword(notation: str, draw: Draw) -> str:
    """Return a sentence with some words replaced by synonyms, both chosen at random."""
    words = notation.split()
    for phrases in _SYNONYMS:
        if draw() >= _REWORDED:
            continue
        matches = [(start, phrase) for phrase in phrases if (start := _find(words, phrase.split())) >= 0]
        if matches:
            start, phrase = max(matches, key=lambda match: len(match[1]))
            words[start : start + len(phrase.split())] = phrases[int(draw() * len(phrases))].split()
    return " ".join(words)


def _find(words: list[str], phrase: list[str]) -> int:
    """Return the position of a phrase in a list of words, -1 if it does not occur."""
    return next((i for i in range(len(words)) if words[i : i + len(phrase)] == phrase), -1)


def _idle_sentence(topics: _Topics, draw: Draw) -> str:
    """Return the notation of a random sentence without a finding, device or comparison, and with none of the topics.

    `draw` returns random numbers from 0 to 1. It is called until there is such a sentence.
    """
    while True:
        sentence = compose(draw, (1.0,)).sentences[0]
        if _is_idle(sentence.notation) and sentence.topics.isdisjoint(topics):
            return sentence.notation
