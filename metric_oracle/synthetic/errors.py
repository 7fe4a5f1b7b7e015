"""Synthetic candidates with gold counts of errors: the reports of a synthetic split, rewritten with errors put in.

A candidate says what its report says in a generator's words: sentences change places, equal words stand for one
another, and statements without a finding (no pneumothorax, advice) come and go, which no radiologist counts. Into that
go zero to six errors of the categories of ReXVal and CREPE, at most one of a category's in a sentence:

A  a finding that the report does not have is made up;
B  a finding is left out;
C  a finding lies elsewhere (left for right, upper for lower);
D  a finding is of another severity (small for large, mild for severe);
E  a comparison with an earlier study is made up;
F  a comparison is left out.

Counts are what was done, so they are gold. The rest of the grammar makes sure that one change is one error: only
sentences of one comparison lose it, and a finding that goes or comes has none.
"""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from metric_oracle.progress import Count
from metric_oracle.synthetic.corpus import (
    Draft,
    assemble,
    compose,
    drafts_of,
    write_split,
)
from metric_oracle.synthetic.notation import Sentence, compile_sentence

CATEGORIES = "ABCDEF"
MOST, MADE_UP = 6, 2  # errors of a candidate, and of them findings, which else every short report would fill up with
_HEADER = ("study_id", "error_category", "rater_index", "clinically_significant", "num_errors")

# Words of the notation that say a place, and the place that is wrong for it.
_ELSEWHERE = {
    "left:a": "right:a", "left-sided:a": "right-sided:a", "upper:a": "lower:a", "superior:a": "inferior:a",
    "anterior:a": "posterior:a", "medial:a": "lateral:a", "central:a": "peripheral:a", "bibasilar:A": "biapical:A",
    "basilar:A": "perihilar:A", "apical:A": "basilar:A", "proximal:a": "distal:a",
}  # fmt: skip
_ELSEWHERE |= {wrong: right for right, wrong in [*_ELSEWHERE.items()] if wrong not in _ELSEWHERE}
# Slight and grave words of the same use.
_SEVERITIES = (
    (("small:o", "tiny:o", "trace:o"), ("large:o", "massive:o", "sizable:o")),
    (("mild:o", "minimal:o", "slight:o", "subtle:o"), ("severe:o", "marked:o", "extensive:o", "gross:o")),
)  # fmt: skip
_TRENDS = (
    "unchanged:o", "stable:o", "improved:o", "increased:o", "decreased:o", "persistent:o", "new:o", "worsening:o",
    "increasing:o", "improving:o", "decreasing:o", "enlarging:o",
)  # fmt: skip
_AGAINST = (
    "from prior", "since the prior study", "compared to ___", "since ___", "relative to ___",
    "as compared to the previous radiograph",
)  # fmt: skip
# Any of these words, less its mark, speaks of an earlier study.
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
# Words and phrases of one meaning.
_SAME = (
    ("mild:o", "slight:o"), ("marked:o", "substantial:o"), ("large:o", "sizable:o"), ("unchanged:o", "stable:o"),
    ("increased:o", "increasing:o"),
    ("decreased:o", "decreasing:o"), ("improved:o", "improving:o"), ("no evidence of", "no", "there is no"),
    ("may represent", "could represent"), (", possibly", ", potentially reflecting"), ("possible", "question of"),
    ("compatible with", "consistent with", "diagnostic of"), ("adjacent:o", "associated:o", "accompanying:o"),
    ("opacity:O", "opacification:O"), ("bibasilar:A", "basal:A"), ("in standard:o position:o", "in place:o"),
    _AGAINST,
)  # fmt: skip
_SHARES_OF_COUNTS = (0.1, 0.15, 0.2, 0.2, 0.15, 0.12, 0.08)  # of candidates for which 0, 1, ... errors are tried
_GIVEN_UP = (
    0.3  # where a sentence for the error lacks; a finding can be made up whatever the sentences, most others not
)
_REWORDED, _LEFT_OUT, _ADDED, _SHUFFLED, _NUMBERED = 0.6, 0.35, 0.5, 0.6, 0.2

_Draw = Callable[[], float]


class Candidate(NamedTuple):
    """A candidate, and how many errors of A to F it has."""

    draft: Draft
    counts: tuple[int, ...]


class _Edit(NamedTuple):
    """A sentence of the candidate: its notation, and whether an error is in it."""

    notation: str
    is_wrong: bool = False


def with_errors(drafts: Iterator[Draft], seed: int, split: str) -> Iterator[Candidate]:
    """Yield a candidate for each report; the same seed and split give the same ones."""
    draw = Random(f"{seed}/errors/{split}").random
    for draft in drafts:
        yield _candidate(draft, draw)


def write_candidates(
    folder: Path, split: str, seed: int, n_reports: int, first_id: int, progress: Count | None
) -> dict[str, str]:
    """Write the candidates of a split like its reports, and their counts; return what is written: name -> file.

    The counts are ratings of one rater, all of them significant: align, fit-composite and train-crepe read them.
    """
    name = f"{split}_errors"
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_HEADER)

        def drafts() -> Iterator[Draft]:
            for study_id, candidate in enumerate(with_errors(drafts_of(seed, split), seed, split), start=first_id):
                for category, n in enumerate(candidate.counts, start=1):
                    writer.writerows(
                        ((study_id, category, "gold", "true", n), (study_id, category, "gold", "false", 0))
                    )
                yield candidate.draft

        files = write_split(folder, f"{split}_candidates", split, drafts(), n_reports, first_id, progress)
    return {**files, name: f"{name}.csv"}


def _candidate(draft: Draft, draw: _Draw) -> Candidate:
    """Rewrite a report, and put errors in."""
    sentences = [_Edit(sentence.notation) for sentence in draft.sentences]
    topics = set().union(*(sentence.topics for sentence in draft.sentences))
    counts = [0] * len(CATEGORIES)
    u, wanted = draw(), 0
    while wanted < MOST and u >= _SHARES_OF_COUNTS[wanted]:
        u -= _SHARES_OF_COUNTS[wanted]
        wanted += 1
    for _ in range(wanted):
        for category in sorted(range(len(CATEGORIES)), key=lambda _: draw()):
            may_be = category or counts[0] < MADE_UP
            if may_be and _ERRORS[category](sentences, topics, draw):
                counts[category] += 1
                break
            if draw() < _GIVEN_UP:
                break
    kept = [edit for edit in sentences if edit.is_wrong or not _is_idle(edit.notation) or draw() >= _LEFT_OUT]
    kept = [edit if edit.is_wrong and draw() < 0.5 else _Edit(_reword(edit.notation, draw)) for edit in kept]
    if draw() < _ADDED or not kept:
        kept.append(_Edit(_idle_sentence(topics, draw)))
    if draw() < _SHUFFLED:
        kept.sort(key=lambda _: draw())
    compiled = [compile_sentence(edit.notation) for edit in kept]
    is_numbered = len(compiled) > 1 and draw() < _NUMBERED
    return Candidate(assemble(compiled, is_numbered=is_numbered), tuple(counts))


# ---- what a sentence says --------------------------------------------------------------------------------------------


def _plain(word: str) -> str:
    return word.partition(":")[0].lower()


def _is_idle(notation: str) -> bool:
    """Tell whether a sentence says nothing that is an error to leave out: no finding, device or comparison."""
    says = any(
        word[-2:] in (":O", ":U", ":o", ":u") or (word[0] == "#" and word[3:] != "!") for word in notation.split()
    )
    return not says and not _compares(notation)


def _has_finding(sentence: Sentence) -> bool:
    """Tell whether a sentence has a finding of CheXbert's, present or uncertain, that is no device."""
    words = sentence.notation.split()
    return bool(sentence.topics) and any(word[0] == "#" and word[1:3] != "SD" and word[3:] != "!" for word in words)


def _compares(notation: str) -> bool:
    return not _COMPARING.isdisjoint(_plain(word) for word in notation.split())


def _findings(sentences: list[_Edit], draw: _Draw) -> list[int]:
    """Return the places of sentences with a finding and without an error, in an order that is drawn."""
    places = [i for i, s in enumerate(sentences) if not s.is_wrong and _has_finding(compile_sentence(s.notation))]
    return sorted(places, key=lambda _: draw())


# ---- the errors: each changes the sentences and returns True, or finds nothing to change -----------------------------

_Topics = set[int]


def _make_up(sentences: list[_Edit], topics: _Topics, draw: _Draw) -> bool:
    for _ in range(40):
        sentence = compose(draw, (1.0,)).sentences[0]
        is_new = _has_finding(sentence) and sentence.topics.isdisjoint(topics)
        if is_new and len(sentence.topics) == 1 and not _compares(sentence.notation):
            topics |= sentence.topics
            sentences.insert(int(draw() * (len(sentences) + 1)), _Edit(sentence.notation, True))
            return True
    return False


def _leave_out(sentences: list[_Edit], topics: _Topics, draw: _Draw) -> bool:
    for place in _findings(sentences, draw):
        notation = sentences[place].notation
        if not _compares(notation) and len(compile_sentence(notation).topics) == 1 and len(sentences) > 1:
            del sentences[place]
            return True
    return False


def _misplace(sentences: list[_Edit], topics: _Topics, draw: _Draw) -> bool:
    return _change_word(sentences, draw, _ELSEWHERE.get)


def _misjudge(sentences: list[_Edit], topics: _Topics, draw: _Draw) -> bool:
    def other(word: str) -> str | None:
        for slight, grave in _SEVERITIES:
            if word in slight or word in grave:
                words = grave if word in slight else slight
                return words[int(draw() * len(words))]
        return None

    return _change_word(sentences, draw, other)


def _change_word(sentences: list[_Edit], draw: _Draw, other: Callable[[str], str | None]) -> bool:
    """Change the only word of a sentence that has another."""
    for place in _findings(sentences, draw):
        words = sentences[place].notation.split()
        changes = [(i, changed) for i, word in enumerate(words) if (changed := other(word)) is not None]
        if len(changes) == 1:
            words[changes[0][0]] = changes[0][1]
            sentences[place] = _Edit(" ".join(words), True)
            return True
    return False


def _make_up_comparison(sentences: list[_Edit], topics: _Topics, draw: _Draw) -> bool:
    for place in _findings(sentences, draw):
        notation = sentences[place].notation
        if not _compares(notation) and "=>" not in notation:
            trend, against = (some[int(draw() * len(some))] for some in (_TRENDS, _AGAINST))
            sentences[place] = _Edit(f"{notation} , {trend} {against}", True)
            return True
    return False


def _leave_out_comparison(sentences: list[_Edit], topics: _Topics, draw: _Draw) -> bool:
    for place in _findings(sentences, draw):
        words = sentences[place].notation.split()
        kept = _without_tail(words) or words[1:] if words[0] in _TRENDS else _without_tail(words)
        if kept and not _compares(" ".join(kept)):
            sentences[place] = _Edit(" ".join(kept), True)
            return True
    return False


def _without_tail(words: list[str]) -> list[str] | None:
    """Return the words before the last comma if all that follows it compares, else None."""
    if "," not in words:
        return None
    cut = len(words) - 1 - words[::-1].index(",")
    tail = words[cut + 1 :]
    says_finding = any(word[0] == "#" or word in ("|", "=>") for word in tail)
    return words[:cut] if cut and not says_finding and _compares(" ".join(tail)) else None


_ERRORS = (_make_up, _leave_out, _misplace, _misjudge, _make_up_comparison, _leave_out_comparison)


# ---- what is no error ------------------------------------------------------------------------------------------------


def _reword(notation: str, draw: _Draw) -> str:
    """Put words of the same meaning in place of some."""
    words = notation.split()
    for phrases in _SAME:
        if draw() >= _REWORDED:
            continue
        found = [(start, phrase) for phrase in phrases if (start := _find(words, phrase.split())) >= 0]
        if found:
            start, phrase = max(found, key=lambda one: len(one[1]))
            words[start : start + len(phrase.split())] = phrases[int(draw() * len(phrases))].split()
    return " ".join(words)


def _find(words: list[str], phrase: list[str]) -> int:
    """Return where a phrase stands among words, -1 where it does not."""
    return next((i for i in range(len(words)) if words[i : i + len(phrase)] == phrase), -1)


def _idle_sentence(topics: _Topics, draw: _Draw) -> str:
    """Return a sentence without a finding that speaks of none of the topics."""
    while True:
        sentence = compose(draw, (1.0,)).sentences[0]
        if _is_idle(sentence.notation) and sentence.topics.isdisjoint(topics):
            return sentence.notation
