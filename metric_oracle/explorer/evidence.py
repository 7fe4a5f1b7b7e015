"""What a metric saw in a pair of reports: the texts cut into segments, and the counts that its score is made of.

The segments of a text, joined, are that text, character for character. The counts, put into the metric's own formula,
give its score again; where the places in a text are not known, or would be a guess, nothing is marked and the note
says so. Nothing here knows pages or terminals.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

import numpy as np

from metric_oracle.corpora.vectors import FIVE_LABELS, LABELS
from metric_oracle.indexes.ngrams import tokenize_bleu, tokenize_coco, tokenize_rouge
from metric_oracle.indexes.radgraph import FAMILIES, Graph
from metric_oracle.indexes.temporal import KEYWORDS, mask_of
from metric_oracle.kernels.bertscore.reference import precision_recall
from metric_oracle.kernels.bertscore.score import f1, rescale
from metric_oracle.metrics import Metric
from metric_oracle.retrieval.composite.score import term
from metric_oracle.retrieval.kernels import load_reference

WHOLE, PARTLY, LACKING = "matched", "partly", "lacking"
_BLEU_TOKEN = re.compile(r"\.[^ .]*|[^ .]+")
_COCO_TOKEN = re.compile(r"\.[^\s.]*|[^\s.]+")
_ROUGE_TOKEN = re.compile(r"[a-z0-9]+")
_WORD = re.compile(r"\s+|\w+|[^\w\s]")

Span = tuple[int, int]


@dataclass(frozen=True)
class Segment:
    """A piece of a text.

    Attributes
    ----------
    text : str
    kind : str
        "" for what no metric reads or marks; `WHOLE`, `PARTLY`, `LACKING`; of a diff "same", "only".
    partner : int or None
        Number that the piece shares with its partners on the other side, from 1.
    weight : float or None
        Of BERTScore: the cosine with the best partner.
    """

    text: str
    kind: str = ""
    partner: int | None = None
    weight: float | None = None


@dataclass(frozen=True)
class Evidence:
    """What a metric saw in a pair.

    Attributes
    ----------
    reference, candidate : list of Segment
    score : float or None
        By the metric's own formula from the counts; of a diff none.
    counts : dict of str to number
        What the formula takes.
    rows : list of tuple
        What is no place in a text: entities and relations, labels, terms of a composite, pairs of words.
    header : tuple of str
        Of `rows`.
    note : str
    """

    reference: list[Segment]
    candidate: list[Segment]
    score: float | None = None
    counts: dict[str, float] = field(default_factory=dict)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    header: tuple[str, ...] = ()
    note: str = ""


def cut(text: str, marks: Iterable[tuple[Span, Segment]]) -> list[Segment]:
    """Return the segments of a text: the marked spans, which do not overlap, and what lies between them."""
    found, end = [], 0
    for (begin, stop), mark in sorted(marks, key=lambda one: one[0]):
        if begin > end:
            found.append(Segment(text[end:begin]))
        found.append(Segment(text[begin:stop], mark.kind, mark.partner, mark.weight))
        end = stop
    return [*found, Segment(text[end:])] if end < len(text) else found


# Words in a row: BLEU and ROUGE-L


def bleu_spans(text: str) -> list[Span] | None:
    """Return where the tokens of BLEU are; None where lower case looks at neighbours, as a final sigma does."""
    return _spans(text, _BLEU_TOKEN, tokenize_bleu)


def coco_spans(text: str) -> list[Span] | None:
    """Return where pycocoevalcap's tokens are; None as for `bleu_spans`."""
    return _spans(text, _COCO_TOKEN, tokenize_coco)


def _spans(text: str, token: re.Pattern[str], tokenize: Callable[[str], list[str]]) -> list[Span] | None:
    spans = [found.span() for found in token.finditer(text)]
    return spans if [text[a:b].lower() for a, b in spans] == tokenize(text) else None


def rouge_spans(text: str) -> list[Span] | None:
    """Return where the tokens of ROUGE-L are; None where two would share a character."""
    lowered = [character.lower() for character in text]
    place = [i for i, piece in enumerate(lowered) for _ in piece]
    spans = [(place[a], place[b - 1] + 1) for a, b in (m.span() for m in _ROUGE_TOKEN.finditer("".join(lowered)))]
    apart = all(one[1] <= other[0] for one, other in pairwise(spans))
    return spans if apart and len(spans) == len(tokenize_rouge(text)) else None


_SPANS = {
    "ngrams": (tokenize_bleu, bleu_spans),
    "coco": (tokenize_coco, coco_spans),
    "words": (tokenize_rouge, rouge_spans),
}
_UNMARKED = "The places of words are not marked here: lower case changes with the neighbours of a letter."


def _places(tokens: Sequence[str], n: int) -> dict[tuple[str, ...], list[int]]:
    """Return where each n-gram begins."""
    found: dict[tuple[str, ...], list[int]] = {}
    for i in range(len(tokens) - n + 1):
        found.setdefault(tuple(tokens[i : i + n]), []).append(i)
    return found


def bleu(reference: str, candidate: str, metric: Metric) -> Evidence:
    """Return the n-gram occurrences that count after clipping: as many as both sides have.

    Of an n-gram that one side repeats more often, the occurrences in longer counted n-grams come first, then the first
    ones. A word is matched where it lies in a counted n-gram of order 2 or more, partly where it counts alone; for
    BLEU-1 every counted word is matched. Words with a partner are the counted unigrams. Counts: ``matched_n``,
    ``candidate_length``, ``reference_length``.
    """
    order = int(str(metric.options["order"]))
    tokenize, spans_of = _SPANS[metric.representation]
    sides = [tokenize(text) for text in (reference, candidate)]
    highest = [[0] * len(tokens) for tokens in sides]
    partners: list[dict[int, int]] = [{}, {}]
    counts: dict[str, float] = {}
    for n in range(order, 0, -1):
        places = [_places(tokens, n) for tokens in sides]
        before = [list(level) for level in highest]
        shared = {gram: min(len(places[0][gram]), len(places[1][gram])) for gram in places[0] if gram in places[1]}
        counts[f"matched_{n}"] = sum(shared.values())
        for gram, count in shared.items():
            chosen = [
                sorted(sorted(of[gram], key=lambda i, level=level: -sum(level[i : i + n]))[:count])  # type: ignore[misc]
                for of, level in zip(places, before, strict=True)
            ]
            for starts, level in zip(chosen, highest, strict=True):
                for i in starts:
                    level[i : i + n] = [max(n, old) for old in level[i : i + n]]
            if n == 1:
                partners[0] |= {i: i for i in chosen[0]}
                partners[1] |= dict(zip(chosen[1], chosen[0], strict=True))
    counts = dict(sorted(counts.items()))
    counts |= {"candidate_length": len(sides[1]), "reference_length": len(sides[0])}
    score, components = load_reference(metric)(tuple(sides[1]), tuple(sides[0]))
    number = {place: n for n, place in enumerate(sorted(partners[0]), 1)}
    spans = [spans_of(text) for text in (reference, candidate)]
    marked = []
    for text, level, of_side, own in zip((reference, candidate), highest, spans, partners, strict=True):
        kinds = [LACKING if not n else WHOLE if n > 1 or order == 1 else PARTLY for n in level]
        marked.append(_marked(text, of_side, kinds, [number[own[i]] if i in own else None for i in range(len(level))]))
    return Evidence(marked[0], marked[1], score, {**counts, **components}, note=_UNMARKED if None in spans else "")


def _marked(
    text: str, spans: Sequence[Span] | None, kinds: Sequence[str], partners: Sequence[int | None]
) -> list[Segment]:
    if spans is None:
        return cut(text, ())
    marks = [Segment("", kind, partner) for kind, partner in zip(kinds, partners, strict=True)]
    return cut(text, zip(spans, marks, strict=True))


def rouge_l(reference: str, candidate: str, metric: Metric) -> Evidence:
    """Return one longest common subsequence, the leftmost in the candidate, its words numbered.

    Counts: ``common``, ``candidate_length``, ``reference_length``.
    """
    tokenize, spans_of = _SPANS[metric.representation]
    asked, found = tokenize(reference), tokenize(candidate)
    pairs = _common(found, asked)
    score, components = load_reference(metric)(tuple(found), tuple(asked))
    counts = {"common": len(pairs), "candidate_length": len(found), "reference_length": len(asked)}
    sides = []
    for text, tokens, places in ((reference, asked, 1), (candidate, found, 0)):
        number = {pair[places]: i for i, pair in enumerate(pairs, 1)}
        kinds = [WHOLE if i in number else LACKING for i in range(len(tokens))]
        sides.append(_marked(text, spans_of(text), kinds, [number.get(i) for i in range(len(tokens))]))
    mirrored = _common(found[::-1], asked[::-1])
    others = [(len(found) - 1 - i, len(asked) - 1 - j) for i, j in reversed(mirrored)]
    notes = ["Other words in a row are as long; the leftmost are marked."] * (others != pairs)
    notes += [_UNMARKED] * (spans_of(reference) is None or spans_of(candidate) is None)
    return Evidence(sides[0], sides[1], score, {**counts, **components}, note=" ".join(notes))


def _common(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Return a longest common subsequence as places on both sides, the leftmost in `one`, then in `other`."""
    number: dict[str, int] = {}
    ids = [np.array([number.setdefault(word, len(number)) for word in side], np.int64) for side in (one, other)]
    # length[i, j]: of the subsequences of one[i:] and other[j:]. A row follows from the one below: what a word can add
    # counts at its place, and so at every place before it.
    length = np.zeros((len(one) + 1, len(other) + 1), np.int32)
    for i in range(len(one) - 1, -1, -1):
        with_this = np.where(ids[1] == ids[0][i], length[i + 1, 1:] + 1, length[i + 1, :-1])
        length[i, :-1] = np.maximum.accumulate(with_this[::-1])[::-1]
    pairs, i, j = [], 0, 0
    while i < len(one) and j < len(other) and length[i, j]:
        if ids[0][i] == ids[1][j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif length[i, j + 1] == length[i, j]:
            j += 1
        else:
            i += 1
    return pairs


# Sets: keywords of change, entities and relations, labels


def temporal(reference: str, candidate: str, metric: Metric) -> Evidence:
    """Return the keywords of change of both sides. Counts: ``shared``, ``in_candidate``, ``in_reference``."""
    asked, found = (
        frozenset(word for i, word in enumerate(KEYWORDS) if int(mask_of(text)) >> i & 1)
        for text in (reference, candidate)
    )
    score, components = load_reference(metric)(found, asked)
    shared = sorted(asked & found)
    number = {word: i for i, word in enumerate(shared, 1)}

    def side(text: str, words: Iterable[str]) -> list[Segment]:
        return cut(
            text, _located(text, {w: Segment("", WHOLE if w in number else LACKING, number.get(w)) for w in words})
        )

    counts = {"shared": len(shared), "in_candidate": len(found), "in_reference": len(asked)}
    return Evidence(side(reference, asked), side(candidate, found), score, {**counts, **components})


def radgraph(reference: str, candidate: str, metric: Metric, graphs: tuple[Graph, Graph]) -> Evidence:
    """Return the entities and relations that a RadGraph F1 compares, and the words of entities where they occur.

    Parameters
    ----------
    reference, candidate : str
    metric : Metric
    graphs : of the reference and of the candidate

    Returns
    -------
    Evidence
        Counts: ``shared``, ``in_candidate`` and ``in_reference`` of each family, such as ``entities shared``. Rows: the
        features of both sides, those in both first. A stored graph has sets and no places: every occurrence of an
        entity's words is marked, partly matched where only some entities of these words are.
    """
    asked, found = graphs
    families = [int(str(metric.options[name])) for name in ("family_a", "family_b")]
    counts: dict[str, float] = {}
    rows = []
    for name, one, other in ((FAMILIES[f], asked[f], found[f]) for f in families if f >= 0):
        counts |= {f"{name} shared": len(one & other), f"{name} in_candidate": len(other)}
        counts[f"{name} in_reference"] = len(one)
        for where, features in (("both", one & other), ("reference", one - other), ("candidate", other - one)):
            rows += sorted((name, _spelled(feature), where) for feature in features)
    score, components = load_reference(metric)(found, asked)
    sides = []
    both = asked.entities & found.entities
    number = {words: i for i, words in enumerate(sorted({words for words, _ in both}), 1)}
    for text, graph in ((reference, asked), (candidate, found)):
        by_words: dict[str, set[bool]] = {}
        for entity in graph.entities:
            by_words.setdefault(entity[0], set()).add(entity in both)
        kinds = {words: WHOLE if of == {True} else PARTLY if True in of else LACKING for words, of in by_words.items()}
        sides.append(cut(text, _located(text, {w: Segment("", kind, number.get(w)) for w, kind in kinds.items()})))
    note = "Graphs are sets without places: every occurrence of an entity's words is marked."
    return Evidence(sides[0], sides[1], score, {**counts, **components}, rows, ("kind", "feature", "in"), note)


def _spelled(feature: tuple[Any, ...]) -> str:
    """Return a feature of any family as words: "effusion (Observation::definitely present)"."""
    if isinstance(feature[0], tuple):
        source, target, kind = feature
        return f"{_spelled(source)} {kind} {_spelled(target)}"
    words, label, *more = feature
    if len(more) == 2:
        return f"{words} ({label}) {more[0]} {more[1]}"
    related = {(): "", (True,): ", with a relation", (False,): ", without a relation"}[tuple(more)]
    return f"{words} ({label}{related})"


def _located(text: str, marks: Mapping[str, Segment]) -> list[tuple[Span, Segment]]:
    """Return where phrases occur as whole words, whatever their case and blanks; the longest win."""
    taken: list[tuple[Span, Segment]] = []
    is_free = np.ones(len(text), bool)
    for phrase in sorted(marks, key=lambda phrase: (-len(phrase), phrase)):
        words = r"\s*".join(map(re.escape, phrase.split()))
        for found in re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE) if words else ():
            begin, end = found.span()
            if is_free[begin:end].all():
                is_free[begin:end] = False
                taken.append(((begin, end), marks[phrase]))
    return taken


def labels(reference: np.ndarray, candidate: np.ndarray, metric: Metric) -> Evidence:
    """Return CheXbert's 14 findings on both sides.

    Parameters
    ----------
    reference, candidate : int8[14]
        Positive 1, negative -1, blank 0; uncertain as the index counts it.

    Returns
    -------
    Evidence
        Without texts. Counts: ``product``, and the ``squares`` of each side. Rows: finding, both values in words, and
        whether they are equal.
    """
    one, other = reference.astype(np.int64), candidate.astype(np.int64)
    words = {1: "positive", -1: "negative", 0: "blank"}
    rows = [
        (name, words[a], words[b], "agree" if a == b else "differ")
        for name, a, b in zip(LABELS, one.tolist(), other.tolist(), strict=True)
    ]
    score, _ = load_reference(metric)(candidate, reference)
    counts = {"product": int(one @ other), "squares in_candidate": int(other @ other)}
    counts["squares in_reference"] = int(one @ one)
    return Evidence([], [], score, dict(counts), rows, ("finding", "reference", "candidate", "agreement"))


def agreement(reference: np.ndarray, candidate: np.ndarray, metric: Metric) -> Evidence:
    """Return on which labels two reports agree.

    Parameters
    ----------
    reference, candidate : int8[2 L]
        As `indexes.agreement.AgreementIndex` has them.

    Returns
    -------
    Evidence
        Without texts. Counts: ``equal`` labels, of all ``labels``. Rows: finding, both values in words, and whether
        they are equal.
    """
    n = len(reference) // 2
    words = ("not positive", "positive")
    rows = [
        (name, words[a], words[b], "agree" if a == b else "differ")
        for name, a, b in zip(
            LABELS if n == len(LABELS) else FIVE_LABELS, reference[:n].tolist(), candidate[:n].tolist(), strict=True
        )
    ]
    score, _ = load_reference(metric)(candidate, reference)
    counts = {"equal": sum(row[3] == "agree" for row in rows), "labels": n}
    return Evidence([], [], score, dict(counts), rows, ("finding", "reference", "candidate", ""))


# Numbers: token states, composites


def bertscore(
    reference: str,
    candidate: str,
    items: tuple[Any, Any],
    spans: tuple[Sequence[Span], Sequence[Span]] | None,
    part: int,
) -> Evidence:
    """Return for each word piece the cosine with its best partner on the other side; words that are each other's best.

    Parameters
    ----------
    reference, candidate : str
    items : of the reference and of the candidate
        Token states and weights, as the plain scorer takes them.
    spans : of both sides, a span for each token, empty ones for the special tokens; or None where they are not known
    part : {0, 1, 2}
        Precision, recall or F1.

    Returns
    -------
    Evidence
        Counts: ``precision``, ``recall`` and ``f1``, before rescaling. Rows: each word piece of the candidate with its
        best partner and the cosine, the lowest first.
    """
    asked, found = items
    plain = precision_recall(found.states, found.weights, asked.states, asked.weights)
    counts = dict(zip(("precision", "recall", "f1"), [*plain, f1(*plain)], strict=True))
    values = list(counts.values())
    if asked.baseline is not None:
        values = [rescale(value, base) for value, base in zip(values, asked.baseline, strict=True)]
    if spans is None:
        note = "The words of the states are not known here: give the encoder (--encoder)."
        return Evidence(cut(reference, ()), cut(candidate, ()), values[part], counts, note=note)
    directions = [_directions(item.states) for item in items]
    cosines = directions[0] @ directions[1].T
    words = [_words(text, of_side) for text, of_side in zip((reference, candidate), spans, strict=True)]
    closest = np.array([[cosines[np.ix_(one, other)].max() for other in words[1]] for one in words[0]])
    pairs = _best_pairs(closest) if closest.size else []
    sides = []
    for place, text in enumerate((reference, candidate)):
        best = cosines.max(axis=1 - place)
        number = {i: n for n, pair in enumerate(pairs, 1) for i in words[place][pair[place]]}
        marks = [
            (spans[place][i], Segment("", WHOLE, number.get(i), float(best[i]))) for word in words[place] for i in word
        ]
        sides.append(cut(text, _apart(marks)))
    rows = [
        (candidate[b:e], reference[slice(*spans[0][int(cosines[:, j].argmax())])], float(cosines[:, j].max()))
        for j, (b, e) in enumerate(spans[1])
        if e > b
    ]
    rows.sort(key=lambda row: row[2])
    return Evidence(
        sides[0], sides[1], values[part], counts, list(rows), ("word", "best partner in the test report", "cosine")
    )


def _directions(states: np.ndarray) -> np.ndarray:
    wide = states.astype(np.float64)
    return wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True))


def _words(text: str, spans: Sequence[Span]) -> list[list[int]]:
    """Return the tokens of each word: pieces of letters and digits that nothing parts; special tokens are none."""
    found: list[list[int]] = []
    end = -1
    for i, (begin, stop) in enumerate(spans):
        if stop > begin:
            is_same = begin <= end and text[begin].isalnum() and text[end - 1].isalnum()
            found[-1].append(i) if is_same else found.append([i])
            end = stop
    return found


def _best_pairs(cosines: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs that are each other's best."""
    best = cosines.argmax(axis=1)
    return [(i, int(j)) for i, j in enumerate(best) if int(cosines[:, j].argmax()) == i]


def _apart(marks: Iterable[tuple[Span, Segment]]) -> list[tuple[Span, Segment]]:
    """Leave out marks that would overlap: pieces of one character that a tokenizer cut into bytes."""
    found: list[tuple[Span, Segment]] = []
    for mark in sorted(marks, key=lambda one: one[0]):
        if not found or mark[0][0] >= found[-1][0][1]:
            found.append(mark)
    return found


def composite(values: Mapping[str, float], metric: Metric) -> Evidence:
    """Return what each part of a composite adds to its score.

    Parameters
    ----------
    values : mapping of str to float
        Score of the pair under each part.
    metric : Metric

    Returns
    -------
    Evidence
        Without texts. Counts: ``intercept``, then what each part adds, in their order; their sum is the score. Rows:
        part, value, what it adds.
    """
    counts = {"intercept": float(str(metric.options["intercept"]))}
    counts |= {name: term(values[name], t.mean, t.scale, t.weight) for name, t in metric.terms.items()}
    rows = [(name, values[name], counts[name]) for name in metric.terms]
    return Evidence([], [], sum(counts.values()), counts, rows, ("part", "value", "adds"))


# Any metric


def diff(reference: str, candidate: str) -> Evidence:
    """Return both texts with the words that a plain comparison of words keeps ("same") and those of one side."""
    words = [_WORD.findall(text) for text in (reference, candidate)]
    sides: tuple[list[Segment], list[Segment]] = ([], [])
    for tag, a, b, c, d in SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes():
        for side, piece in zip(sides, ("".join(words[0][a:b]), "".join(words[1][c:d])), strict=True):
            if piece:
                side.append(Segment(piece, "same" if tag == "equal" else "only"))
    return Evidence(sides[0], sides[1])
