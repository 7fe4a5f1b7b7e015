"""Contradictions between two reports: one list of words by kind, for graphs, for labels and for plain words."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from metric_oracle.explorer.evidence import Evidence, Segment, find_phrases
from metric_oracle.indexes.ngrams import Span
from metric_oracle.indexes.radgraph import Graph

# Words of one kind that exclude one another: each set against the others.
CONTRARY = {
    "negation": ({"absent", "no", "without", "negative"}, {"present", "positive"}),
    "side": ({"left", "left-sided", "leftward"}, {"right", "right-sided", "rightward"}),
    "severity": (
        {"mild", "mildly", "minimal", "minimally", "small", "smaller", "slight", "slightly", "trace", "tiny", "minor"},
        {"moderate", "moderately"},
        {"severe", "severely", "large", "larger", "massive", "marked", "markedly", "extensive"},
    ),
    "change": (
        {"new", "increased", "increasing", "worsened", "worsening", "worse", "enlarging", "progressed"},
        {"decreased", "decreasing", "improved", "improving", "resolved", "resolving", "cleared"},
        {"stable", "unchanged", "persistent", "unaltered"},
    ),
}
_KIND_OF = {word: (kind, i) for kind, groups in CONTRARY.items() for i, words in enumerate(groups) for word in words}
_TOKEN = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_SENTENCE = re.compile(r"[.;:!?\n]")
_CLAUSE = re.compile(r"[^,()]+")
_SHORT = 3  # letters of words such as "the" and "of", which two sentences may share by chance
# Words that end what a word modifies, and places that are none: "on the left side".
_ENDS = {
    "a", "again", "an", "and", "are", "as", "at", "but", "by", "for", "from", "has", "have", "in", "is", "may",
    "noted", "of", "on", "or", "over", "per", "seen", "that", "the", "this", "to", "under", "was", "were", "which",
    "with", "within",
}  # fmt: skip
_SIDES = {"side", "sides"}
# Words for places in the chest. Two sentences that name the same place speak of one finding only if they have another
# word in common.
_PLACES = {
    "apex", "apices", "base", "bases", "chest", "field", "fields", "hemidiaphragm", "hemithorax", "hilum", "lobe",
    "lobes", "lower", "lung", "lungs", "middle", "region", "thorax", "upper", "zone", "zones",
}  # fmt: skip


class Opposite(NamedTuple):
    """A contradiction between two reports."""

    about: str  # the words that both reports speak of, such as "effusion"
    in_reference: str  # what each report says of these words, such as "present" and "absent", or "left" and "right"
    in_candidate: str


def _excludes(reference: set[str], candidate: set[str]) -> bool:
    """Return whether words of one kind in two reports exclude one another.

    They do if both have words of `CONTRARY`, and no set of it has words of both.
    """
    classes = [{_KIND_OF[word] for word in words if word in _KIND_OF} for words in (reference, candidate)]
    return bool(classes[0] and classes[1]) and not classes[0] & classes[1]


def of_graphs(reference: Graph, candidate: Graph) -> list[Opposite]:
    """Return the contradictions between the graphs of two reports.

    An entity is present in one and absent in the other; or words of side, severity or change that exclude one another
    modify the same entity. If one graph says both, there is no contradiction; nor if the side of a place differs, such
    as a lobe, at which the graphs locate different observations.
    """
    sides = [_statements(graph) for graph in (reference, candidate)]
    located = [_located(graph) for graph in (reference, candidate)]
    return [
        Opposite(target, *(", ".join(sorted(side[target, kind])) for side in sides))
        for target, kind in sorted(sides[0].keys() & sides[1].keys(), key=lambda one: (one[0] in located[0], one))
        if _excludes(*(side[target, kind] for side in sides))
        and not (kind == "side" and _differ(*(one.get(target) for one in located)))
    ]


def _located(graph: Graph) -> dict[str, set[str]]:
    """Return the observations that a graph locates at each place, in lower case."""
    located: dict[str, set[str]] = {words.lower(): set() for words, label in graph.entities if "ANAT" in label.upper()}
    for (words, label), (target, _), _ in graph.relations:
        if "OBS" in label.upper() and target.lower() in located and words.lower() not in _KIND_OF:
            located[target.lower()].add(words.lower())
    return located


def _differ(one: set[str] | None, other: set[str] | None) -> bool:
    """Return whether two graphs locate no observation in common at a place; None is of an entity that is no place."""
    return one is not None and other is not None and not one & other


def _statements(graph: Graph) -> dict[tuple[str, str], set[str]]:
    """Return the words that a graph says of each entity, by the entity in lower case and the kind of these words.

    The kind "negation" has "present" or "absent" of each observation that is not uncertain.
    """
    statements: dict[tuple[str, str], set[str]] = {}
    uncertain = set()
    for words, label in graph.entities:
        if "OBS" in label.upper():
            is_absent = label.endswith(("DA", "definitely absent"))
            is_present = label.endswith(("DP", "definitely present"))
            presence = "absent" if is_absent else "present" if is_present else "uncertain"
            statements.setdefault((words.lower(), "negation"), set()).add(presence)
            if presence == "uncertain":
                uncertain.add((words.lower(), "negation"))
    for (words, _), (target, _), _ in graph.relations:
        kind, _ = _KIND_OF.get(words.lower(), ("", 0))
        if kind and kind != "negation":
            statements.setdefault((target.lower(), kind), set()).add(words.lower())
    return {key: words for key, words in statements.items() if key not in uncertain}


def of_texts(reference: str, candidate: str) -> list[Opposite]:
    """Return the words of both texts that exclude one another and modify the same word.

    Where one text has words of two sets of a kind, nothing is a contradiction; nor where the word is a place, such as
    "lobe", and the sentences have no other word in common.
    """
    sides = [list(_listed_words(text)) for text in (reference, candidate)]
    contradicting = []
    for kind in CONTRARY:
        of_kind = [[one for one in side if _KIND_OF[one[0]][0] == kind] for side in sides]
        words = [{word for word, *_ in side} for side in of_kind]
        if not _excludes(*words) or any(len({_KIND_OF[word] for word in side}) > 1 for side in words):
            continue
        pairs = (
            (a, b, one)
            for a, here, near_a in of_kind[0]
            for b, there, near_b in of_kind[1]
            for one in here
            if one in there and (one not in _PLACES or near_a & near_b)
        )
        first = next(pairs, None)
        if first is not None:
            contradicting.append(Opposite(first[2], first[0], first[1]))
    return contradicting


def _listed_words(text: str) -> Iterator[tuple[str, list[str], set[str]]]:
    """Yield each word of the list with what it modifies, and the words of its sentence that name no place.

    It modifies the last word of the phrase behind it, "left lung base". Where there is none, "effusion on the left
    side", these are the words of its sentence in front of it.
    """
    for sentence in _SENTENCE.split(text.lower()):
        near = (
            {word for word in _TOKEN.findall(sentence) if len(word) > _SHORT}
            - _PLACES
            - _SIDES
            - _ENDS
            - _KIND_OF.keys()
        )
        before: list[str] = []
        for clause in _CLAUSE.findall(sentence):
            words = _TOKEN.findall(clause)
            for i, word in enumerate(words):
                if word in _KIND_OF:
                    phrase = _phrase(words[i + 1 :])
                    yield word, phrase[-1:] or [one for one in before[::-1] if len(one) > _SHORT], near
                else:
                    before.append(word)


def _phrase(words: Sequence[str]) -> list[str]:
    """Return the phrase that "left" or the like modifies, such as "lung base"; `words` follow it in its clause."""
    phrase: list[str] = []
    for word in words:
        if word in _ENDS or (phrase and word in _KIND_OF):
            break
        if word not in _KIND_OF:
            phrase.append(word)
    return [] if _SIDES.issuperset(phrase) else phrase


# Places in the text


def places_of_graphs(texts: tuple[str, str], graphs: tuple[Graph, Graph]) -> list[dict[Span, str]]:
    """Return, for reference and candidate, the spans of words that the other side contradicts, and what it says.

    A graph does not say where in the text its words are. So words that also modify something else are left out, and
    words that occur twice.
    """
    contradicting = of_graphs(*graphs)
    if not contradicting:
        return [{}, {}]
    places = []
    for side, (text, graph) in enumerate(zip(texts, graphs, strict=True)):
        targets: dict[str, set[str]] = {}
        for (words, _), (target, _), _ in graph.relations:
            targets.setdefault(words.lower(), set()).add(target.lower())
        other_of: dict[str, str] = {}
        for opposite in contradicting:
            own_words, other_words = opposite[1 + side], opposite[2 - side]
            names = [opposite.about] if own_words in ("present", "absent") else own_words.split(", ")
            other_of |= {
                name: other_words for name in names if name == opposite.about or targets.get(name) == {opposite.about}
            }
        located = find_phrases(text, {words: Segment(words) for words, _ in graph.entities})
        times = Counter(mark.text for _, mark in located)
        places.append(
            {
                span: other_of[mark.text.lower()]
                for span, mark in located
                if mark.text.lower() in other_of and times[mark.text] == 1
            }
        )
    return places


def places_of_labels(texts: tuple[str, str], rows: Iterable[Sequence[str]]) -> list[dict[Span, str]]:
    """Return, for reference and candidate, the spans of findings with opposite labels, and the other side's label.

    `rows` are those of `evidence.labels`. A finding is marked by its name or its last word, where that occurs once.
    """
    places: list[dict[Span, str]] = [{}, {}]
    for name, in_reference, in_candidate, agreement in rows:
        if agreement != "opposite":
            continue
        last = name.split()[-1]
        plural = f"{last[:-1]}ies" if last.endswith("y") else f"{last}s"
        phrases = (name,) if last in ("Other", "Devices", "Finding") else (name, last, plural)
        for side, text, other in zip(places, texts, (in_candidate, in_reference), strict=True):
            located = find_phrases(text, dict.fromkeys(phrases, Segment("")))
            if len(located) == 1:
                side[located[0][0]] = other
    return places


def places_of_words(texts: tuple[str, str], opposite: Opposite) -> list[dict[Span, str]]:
    """Return, for reference and candidate, the spans of a word of `of_texts`, and the word of the other side."""
    places = []
    for text, own, other in zip(texts, opposite[1:], opposite[:0:-1], strict=True):
        spans: dict[Span, str] = {}
        begin = 0
        for sentence in _SENTENCE.split(text):
            words = {match.span(): match[0].lower() for match in _TOKEN.finditer(sentence)}
            if opposite.about in words.values():
                spans |= {(begin + a, begin + b): other for (a, b), word in words.items() if word == own}
            begin += len(sentence) + 1
        places.append(spans)
    return places


def mark(evidence: Evidence, places: Sequence[Mapping[Span, str]]) -> Evidence:
    """Return evidence whose segments have the opposites at these places, of reference and of candidate."""
    sides = [
        marked(side, of_side) for side, of_side in zip((evidence.reference, evidence.candidate), places, strict=True)
    ]
    return replace(evidence, reference=sides[0], candidate=sides[1])


def marked(side: Sequence[Segment], places: Mapping[Span, str]) -> list[Segment]:
    """Return segments with opposites. Words that a metric marks stay in one piece; other text is cut at the places."""
    cut, begin = [], 0
    for segment in side:
        end = begin + len(segment.text)
        inside = [
            (max(a, begin), min(b, end), other) for (a, b), other in sorted(places.items()) if a < end and begin < b
        ]
        if segment.kind in ("", "same", "only"):
            at = begin
            for first, last, other in inside:
                if segment.text[first - begin : last - begin].strip():
                    cut.append(replace(segment, text=segment.text[at - begin : first - begin]))
                    cut.append(replace(segment, text=segment.text[first - begin : last - begin], opposite=other))
                    at = last
            cut.append(replace(segment, text=segment.text[at - begin :]))
        else:
            cut.append(replace(segment, opposite=inside[0][2] if inside else ""))
        begin = end
    return [segment for segment in cut if segment.text]
