"""The evidence for a score: which words of two reports a metric counted as matches, and the counts in its formula.

Each text is cut into segments that, joined, give the text again. The counts, put into the metric's formula, give the
score. If the positions of words are not known, nothing is marked and the note says so. This module knows nothing about
pages or terminals.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from metric_oracle.corpora.label_tables import FIVE_LABELS, LABELS
from metric_oracle.indexes.ngrams import TOKENIZERS, Span, token_spans
from metric_oracle.indexes.radgraph import FAMILIES, Graph
from metric_oracle.indexes.temporal import keyword_spans
from metric_oracle.kernels.bertscore.reference import precision_recall
from metric_oracle.kernels.bertscore.reference import sides as plain_sides
from metric_oracle.kernels.bertscore.score import f1, rescale
from metric_oracle.kernels.sum.score import term
from metric_oracle.records import Metric
from metric_oracle.retrieval.kernels import load_reference

WHOLE, PARTLY, LACKING = "matched", "partly", "lacking"
STEPS = 5  # of the colour scale for cosines
_WORD = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True)
class Segment:
    """A piece of a text."""

    text: str
    kind: str = ""  # `WHOLE`, `PARTLY` or `LACKING`; in a diff "same" or "only"; "" for text that is not marked
    # Number of the match, from 1; the same in both texts. Under metrics of sequences (BLEU, ROUGE-L, BERTScore) words
    # that follow one another in both texts have one number.
    partner: int | None = None
    weight: float | None = None  # for BERTScore, the cosine with the best partner
    opposite: str = ""  # what the other text says instead, such as "absent" or "right"; "" if it does not contradict


@dataclass(frozen=True)
class Evidence:
    """The evidence for the score of a pair."""

    reference: list[Segment]
    candidate: list[Segment]
    score: float | None = None  # score by the metric's formula from the counts; None for a diff
    counts: dict[str, float] = field(default_factory=dict)  # inputs of the formula
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # of a table of what has no position, such as labels
    header: tuple[str, ...] = ()  # column names of `rows`
    note: str = ""  # sentence for the reader, such as why nothing is marked
    scale: tuple[float, ...] = ()  # cosines at which the steps of the colour scale begin; empty but for BERTScore


def cut(text: str, marks: Iterable[tuple[Span, Segment]]) -> list[Segment]:
    """Return the segments of a text: the marked spans, which must not overlap, and the text between them.

    The segment that comes with a span says how it is marked; its own text is not used.
    """
    segments, end = [], 0
    for (begin, stop), mark in sorted(marks, key=lambda item: item[0]):
        if begin > end:
            segments.append(Segment(text[end:begin]))
        segments.append(Segment(text[begin:stop], mark.kind, mark.partner, mark.weight, mark.opposite))
        end = stop
    return [*segments, Segment(text[end:])] if end < len(text) else segments


# Sequences of words: BLEU and ROUGE-L


def _starts(tokens: Sequence[str], n: int) -> dict[tuple[str, ...], list[int]]:
    """Return n-gram -> the positions at which it begins."""
    starts: dict[tuple[str, ...], list[int]] = {}
    for i in range(len(tokens) - n + 1):
        starts.setdefault(tuple(tokens[i : i + n]), []).append(i)
    return starts


def _numbered(*sides: Sequence[str]) -> list[np.ndarray]:
    """Replace the words of each text by numbers, int64: equal words have equal numbers in all texts."""
    number: dict[str, int] = {}
    return [np.array([number.setdefault(word, len(number)) for word in side], np.int64) for side in sides]


def common_runs(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return the runs of words that two texts share as (position in `a`, position in `b`, length).

    The longest run is taken first, of equally long ones that with the most characters, then the leftmost; and so on
    among the words that are left, down to single words. So a word is paired as often as the text that has it less often
    contains it. The runs are returned in the order of their positions in `a`.
    """
    ids = _numbered(a, b)
    length = np.zeros((len(a) + 1, len(b) + 1), np.int64)  # of the run that begins at both positions
    for i in range(len(a) - 1, -1, -1):
        length[i, :-1] = np.where(ids[1] == ids[0][i], length[i + 1, 1:] + 1, 0)
    is_free = np.ones(len(a), bool), np.ones(len(b), bool)
    characters = np.cumsum([0, *map(len, a)])
    runs = []
    for n in range(int(length.max()), 0, -1):
        starts = np.argwhere(length >= n)
        shortest = characters[starts[:, 0]] - characters[starts[:, 0] + n]  # below 0: the longest comes first
        for i, j in starts[np.argsort(shortest, kind="stable")].tolist():
            if is_free[0][i : i + n].all() and is_free[1][j : j + n].all():
                is_free[0][i : i + n] = is_free[1][j : j + n] = False
                runs.append((i, j, n))
    return sorted(runs)


def bleu(reference: str, candidate: str, metric: Metric) -> Evidence:
    """Return the n-gram occurrences that BLEU counts after clipping.

    If one text repeats an n-gram more often than the other, only some of its occurrences count: first those within the
    runs of words that both texts share, then those inside longer counted n-grams, then the leftmost. A word is
    "matched" if it lies in a counted n-gram of order 2 or more, and "partly" matched if it only counts as a unigram;
    for BLEU-1 every counted word is "matched". The words of a run have its number, and there are as many numbered words
    as counted unigrams. Counts: ``matched_n``, ``candidate_length``, ``reference_length``.
    """
    order = int(str(metric.options["order"]))
    kind = metric.representation
    sides = [TOKENIZERS[kind](text) for text in (reference, candidate)]
    runs = common_runs(*sides)
    highest = [[0] * len(tokens) for tokens in sides]
    counts: dict[str, float] = {}
    for n in range(order, 0, -1):
        starts_by_gram = [_starts(tokens, n) for tokens in sides]
        in_runs = [{run[side] + at for run in runs for at in range(run[2] - n + 1)} for side in (0, 1)]
        before = [list(level) for level in highest]
        shared = {
            gram: min(len(starts_by_gram[0][gram]), len(starts_by_gram[1][gram]))
            for gram in starts_by_gram[0]
            if gram in starts_by_gram[1]
        }
        counts[f"matched_{n}"] = sum(shared.values())
        for gram, count in shared.items():
            for begins, level, new, inside in zip(starts_by_gram, before, highest, in_runs, strict=True):
                ranked = sorted((i not in inside, -sum(level[i : i + n]), i) for i in begins[gram])
                for _, _, i in ranked[:count]:
                    new[i : i + n] = [max(n, old) for old in new[i : i + n]]
    counts = dict(sorted(counts.items()))
    counts |= {"candidate_length": len(sides[1]), "reference_length": len(sides[0])}
    score, components = load_reference(metric)(tuple(sides[1]), tuple(sides[0]))
    marked = []
    for side, (text, level) in enumerate(zip((reference, candidate), highest, strict=True)):
        number = {run[side] + at: n for n, run in enumerate(runs, 1) for at in range(run[2])}
        kinds = [LACKING if not n else WHOLE if n > 1 or order == 1 else PARTLY for n in level]
        marks = [Segment("", of_token, number.get(i)) for i, of_token in enumerate(kinds)]
        marked.append(cut(text, zip(token_spans(text, kind), marks, strict=True)))
    return Evidence(marked[0], marked[1], score, {**counts, **components})


def _run_numbers(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the number of the run that each pair belongs to; a run goes on while both positions increase by one."""
    numbers: list[int] = []
    for at, (i, j) in enumerate(pairs):
        is_next = at > 0 and pairs[at - 1] == (i - 1, j - 1)
        numbers.append(numbers[-1] if is_next else numbers[-1] + 1 if numbers else 1)
    return numbers


def rouge_l(reference: str, candidate: str, metric: Metric) -> Evidence:
    """Return a longest common subsequence, the leftmost in the candidate, with numbered runs of words.

    Counts: ``common``, ``candidate_length``, ``reference_length``.
    """
    kind = metric.representation
    reference_tokens, candidate_tokens = map(TOKENIZERS[kind], (reference, candidate))
    pairs = _common_subsequence(candidate_tokens, reference_tokens)
    score, components = load_reference(metric)(tuple(candidate_tokens), tuple(reference_tokens))
    counts = {
        "common": len(pairs),
        "candidate_length": len(candidate_tokens),
        "reference_length": len(reference_tokens),
    }
    sides = []
    for text, tokens, side in ((reference, reference_tokens, 1), (candidate, candidate_tokens, 0)):
        number = {pair[side]: n for pair, n in zip(pairs, _run_numbers(pairs), strict=True)}
        marks = [Segment("", WHOLE if i in number else LACKING, number.get(i)) for i in range(len(tokens))]
        sides.append(cut(text, zip(token_spans(text, kind), marks, strict=True)))
    mirrored = _common_subsequence(candidate_tokens[::-1], reference_tokens[::-1])
    rightmost = [(len(candidate_tokens) - 1 - i, len(reference_tokens) - 1 - j) for i, j in reversed(mirrored)]
    note = "" if rightmost == pairs else "Other common subsequences are as long; the leftmost is marked."
    return Evidence(sides[0], sides[1], score, {**counts, **components}, note=note)


def _common_subsequence(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Return a longest common subsequence as pairs of positions, the leftmost in `a`, then in `b`."""
    ids = _numbered(a, b)
    # length[i, j] is the length of the longest common subsequence of a[i:] and b[j:]. Each row follows from the next: a
    # match at j lengthens the subsequences at j and before.
    length = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    for i in range(len(a) - 1, -1, -1):
        with_this = np.where(ids[1] == ids[0][i], length[i + 1, 1:] + 1, length[i + 1, :-1])
        length[i, :-1] = np.maximum.accumulate(with_this[::-1])[::-1]
    pairs, i, j = [], 0, 0
    while i < len(a) and j < len(b) and length[i, j]:
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
    """Return the keywords of change in both texts. Counts: ``shared``, ``in_candidate``, ``in_reference``."""
    located = [keyword_spans(text) for text in (reference, candidate)]
    in_reference, in_candidate = (frozenset(word for _, word in side) for side in located)
    score, components = load_reference(metric)(in_candidate, in_reference)
    shared = in_reference & in_candidate
    number = {word: i for i, word in enumerate(sorted(shared), 1)}
    sides = [
        cut(text, [(span, Segment("", WHOLE if word in shared else LACKING, number.get(word))) for span, word in side])
        for text, side in zip((reference, candidate), located, strict=True)
    ]
    counts = {"shared": len(shared), "in_candidate": len(in_candidate), "in_reference": len(in_reference)}
    return Evidence(sides[0], sides[1], score, {**counts, **components})


def radgraph(reference: str, candidate: str, metric: Metric, graphs: tuple[Graph, Graph]) -> Evidence:
    """Return the entities and relations that a RadGraph F1 compares, and mark the words of the entities.

    `graphs` are those of the reference and of the candidate. A stored graph has no positions, so every occurrence of an
    entity's words is marked; it is "partly" matched if only some of the entities with these words are shared. Counts:
    ``shared``, ``in_candidate`` and ``in_reference`` of each family, such as ``entities shared``. Rows: the features of
    both graphs, shared ones first.
    """
    reference_graph, candidate_graph = graphs
    families = [int(str(metric.options[name])) for name in ("family_a", "family_b")]
    counts: dict[str, float] = {}
    rows = []
    for name, of_reference, of_candidate in (
        (FAMILIES[f], reference_graph[f], candidate_graph[f]) for f in families if f >= 0
    ):
        counts |= {f"{name} shared": len(of_reference & of_candidate), f"{name} in_candidate": len(of_candidate)}
        counts[f"{name} in_reference"] = len(of_reference)
        for where, features in (
            ("both", of_reference & of_candidate),
            ("reference", of_reference - of_candidate),
            ("candidate", of_candidate - of_reference),
        ):
            rows += sorted((name, _feature_text(feature), where) for feature in features)
    score, components = load_reference(metric)(candidate_graph, reference_graph)
    sides: list[list[Segment]] = []
    both = reference_graph.entities & candidate_graph.entities
    number = {words: i for i, words in enumerate(sorted({words for words, _ in both}), 1)}
    for text, graph in ((reference, reference_graph), (candidate, candidate_graph)):
        by_words: dict[str, set[bool]] = {}
        for entity in graph.entities:
            by_words.setdefault(entity[0], set()).add(entity in both)
        kinds = {
            words: WHOLE if matches == {True} else PARTLY if True in matches else LACKING
            for words, matches in by_words.items()
        }
        sides.append(cut(text, find_phrases(text, {w: Segment("", kind, number.get(w)) for w, kind in kinds.items()})))
    note = "Graphs have no positions in the text: every occurrence of an entity's words is marked."
    return Evidence(sides[0], sides[1], score, {**counts, **components}, rows, ("kind", "feature", "in"), note)


def _feature_text(feature: tuple[Any, ...]) -> str:
    """Return a feature of any family as text, such as "effusion (Observation::definitely present)"."""
    if isinstance(feature[0], tuple):
        source, target, kind = feature
        return f"{_feature_text(source)} {kind} {_feature_text(target)}"
    words, label, *more = feature
    if len(more) == 2:
        return f"{words} ({label}) {more[0]} {more[1]}"
    related = {(): "", (True,): ", with a relation", (False,): ", without a relation"}[tuple(more)]
    return f"{words} ({label}{related})"


def find_phrases(text: str, marks: Mapping[str, Segment]) -> list[tuple[Span, Segment]]:
    """Return the spans of phrases, whole words in any case, with their segments; longer phrases take precedence."""
    located: list[tuple[Span, Segment]] = []
    is_free = np.ones(len(text), bool)
    for phrase in sorted(marks, key=lambda phrase: (-len(phrase), phrase)):
        words = r"\s*".join(map(re.escape, phrase.split()))
        for match in re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE) if words else ():
            begin, end = match.span()
            if is_free[begin:end].all():
                is_free[begin:end] = False
                located.append(((begin, end), marks[phrase]))
    return located


def labels(reference: np.ndarray, candidate: np.ndarray, metric: Metric) -> Evidence:
    """Return CheXbert's 14 findings on both sides, given as int8[14]: 1 positive, -1 negative, 0 blank.

    There are no segments. Counts: ``product``, the dot product of both, and ``squares``, the sum of squares of each.
    Rows: finding, both values in words, and whether they agree, differ, or are opposite: one positive, one negative.
    """
    of_reference, of_candidate = reference.astype(np.int64), candidate.astype(np.int64)
    words = {1: "positive", -1: "negative", 0: "blank"}
    rows = [
        (name, words[a], words[b], "agree" if a == b else "opposite" if a == -b else "differ")
        for name, a, b in zip(LABELS, of_reference.tolist(), of_candidate.tolist(), strict=True)
    ]
    score, _ = load_reference(metric)(candidate, reference)
    counts = {"product": int(of_reference @ of_candidate), "squares in_candidate": int(of_candidate @ of_candidate)}
    counts["squares in_reference"] = int(of_reference @ of_reference)
    return Evidence([], [], score, dict(counts), rows, ("finding", "reference", "candidate", "agreement"))


def agreement(reference: np.ndarray, candidate: np.ndarray, metric: Metric) -> Evidence:
    """Return the labels on which two reports agree and differ, two documents of `AgreementDocuments`: int8[2 L].

    The first L numbers tell whether each label is positive. There are no segments. Counts: ``equal`` labels, and the
    number of all ``labels``. Rows: finding, both values in words, and whether they agree or differ.
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
    """Return each token's highest cosine with the other text, and number the words that are each other's best match.

    Words are "matched" if they are each other's best match with at least the mean cosine of all pairs of words; the
    others are "lacking". Each token's cosine counts in the score, whatever its mark. `items` have the token states and
    weights of reference and candidate, as the reference scorer takes them; `spans` is the span of each token in both
    texts, empty for special tokens, or None if that is not known; `part` is 0 for precision, 1 for recall, 2 for F1.
    Counts: ``precision``, ``recall`` and ``f1``, before rescaling. Rows: each token of the candidate with its best
    partner and their cosine, lowest first.
    """
    of_reference, of_candidate = items
    plain = precision_recall(*plain_sides(of_candidate, of_reference))
    counts = dict(zip(("precision", "recall", "f1"), [*plain, f1(*plain)], strict=True))
    values = list(counts.values())
    if of_reference.baseline is not None:
        values = [rescale(value, base) for value, base in zip(values, of_reference.baseline, strict=True)]
    if spans is None:
        note = "The words of the token states are not known, because the page was made without the encoder."
        return Evidence(cut(reference, ()), cut(candidate, ()), values[part], counts, note=note)
    directions = [_directions(item.states) for item in items]
    cosines = directions[0] @ directions[1].T
    words = [_words(text, of_side) for text, of_side in zip((reference, candidate), spans, strict=True)]
    closest = np.array(
        [
            [cosines[np.ix_(reference_word, candidate_word)].max() for candidate_word in words[1]]
            for reference_word in words[0]
        ]
    )
    scale = _scale(closest)
    pairs = [(i, j) for i, j in (_best_pairs(closest) if closest.size else []) if closest[i, j] >= scale[0]]
    numbers = _run_numbers(pairs)
    sides = []
    for side_number, text in enumerate((reference, candidate)):
        best = cosines.max(axis=1 - side_number)
        number = {i: n for n, pair in zip(numbers, pairs, strict=True) for i in words[side_number][pair[side_number]]}
        marks = [
            (spans[side_number][i], Segment("", WHOLE if i in number else LACKING, number.get(i), float(best[i])))
            for word in words[side_number]
            for i in word
        ]
        sides.append(cut(text, _without_overlaps(marks)))
    rows = [
        (candidate[b:e], reference[slice(*spans[0][int(cosines[:, j].argmax())])], float(cosines[:, j].max()))
        for j, (b, e) in enumerate(spans[1])
        if e > b
    ]
    rows.sort(key=lambda row: row[2])
    header = ("word", "best partner in the test report", "cosine")
    return Evidence(sides[0], sides[1], values[part], counts, list(rows), header, scale=scale)


def _scale(cosines: np.ndarray) -> tuple[float, ...]:
    """Return the cosines at which the steps of the colour scale begin: equal steps from the mean of all pairs to 1."""
    lowest = min(float(cosines.mean()), 0.99) if cosines.size else 0.0
    return tuple(lowest + (1 - lowest) * step / STEPS for step in range(STEPS))


def step_of(weight: float, scale: Sequence[float]) -> int:
    """Return the step of the colour scale that a cosine lies in, from 1; 0 if it is below the scale."""
    return sum(weight >= begin for begin in scale)


def _directions(states: np.ndarray) -> np.ndarray:
    """Return token states with length 1, in float64."""
    wide = states.astype(np.float64)
    return wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True))


def _words(text: str, spans: Sequence[Span]) -> list[list[int]]:
    """Return the positions of each word's tokens; a word is a run of letters and digits."""
    words: list[list[int]] = []
    end = -1
    for i, (begin, stop) in enumerate(spans):
        if stop > begin:
            is_same = begin <= end and text[begin].isalnum() and text[end - 1].isalnum()
            words[-1].append(i) if is_same else words.append([i])
            end = stop
    return words


def _best_pairs(cosines: np.ndarray) -> list[tuple[int, int]]:
    """Return the (row, column) pairs that are each other's best match."""
    best = cosines.argmax(axis=1)
    return [(i, int(j)) for i, j in enumerate(best) if int(cosines[:, j].argmax()) == i]


def _without_overlaps(marks: Iterable[tuple[Span, Segment]]) -> list[tuple[Span, Segment]]:
    """Return the marks in the order of the text, without those that overlap an earlier mark.

    Marks overlap where one character consists of several tokens, because a token may be a single byte.
    """
    disjoint: list[tuple[Span, Segment]] = []
    for mark in sorted(marks, key=lambda one: one[0]):
        if not disjoint or mark[0][0] >= disjoint[-1][0][1]:
            disjoint.append(mark)
    return disjoint


def composite(values: Mapping[str, float], metric: Metric) -> Evidence:
    """Return the contribution of each term to the score of a composite; `values` has the pair's score under each term.

    There are no segments. Counts: ``intercept``, then the contribution of each term; their sum is the score. Rows: name
    of the term, its value, its contribution.
    """
    counts = {"intercept": metric.intercept}
    counts |= {name: term(values[name], t.mean, t.scale, t.weight) for name, t in metric.terms.items()}
    rows = [(name, values[name], counts[name]) for name in metric.terms]
    return Evidence([], [], sum(counts.values()), counts, rows, ("part", "value", "adds"))


# Any metric


def diff(reference: str, candidate: str) -> Evidence:
    """Return a diff of the words of both texts: "same" words are in both, "only" words in one."""
    words = [_WORD.findall(text) for text in (reference, candidate)]
    sides: tuple[list[Segment], list[Segment]] = ([], [])
    for tag, a, b, c, d in SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes():
        for side, piece in zip(sides, ("".join(words[0][a:b]), "".join(words[1][c:d])), strict=True):
            if piece:
                side.append(Segment(piece, "same" if tag == "equal" else "only"))
    return Evidence(sides[0], sides[1])
