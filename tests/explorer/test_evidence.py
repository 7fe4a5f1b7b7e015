"""Evidence: joined segments are the text, and the counts give the metric's own score again."""

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metric_oracle.corpora.label_tables import FIVE_LABELS, LABELS
from metric_oracle.explorer import evidence, opposites
from metric_oracle.explorer.case import phrases
from metric_oracle.explorer.evidence import LACKING, PARTLY, WHOLE, Evidence, Segment, cut
from metric_oracle.indexes.bertscore import TokenItem
from metric_oracle.indexes.ngrams import TOKENIZERS, tokenize_bleu, tokenize_rouge
from metric_oracle.indexes.radgraph import Graph
from metric_oracle.indexes.temporal import KEYWORDS, mask_of
from metric_oracle.kernels.bertscore import reference as plain_bertscore
from metric_oracle.kernels.bleu.reference import score as plain_bleu
from metric_oracle.kernels.bleu.score import bleu
from metric_oracle.kernels.cosine.score import integer_cosine
from metric_oracle.kernels.radgraph.reference import score as plain_radgraph
from metric_oracle.kernels.radgraph.score import f1, mean_f1
from metric_oracle.kernels.rouge_l.reference import score as plain_rouge
from metric_oracle.kernels.rouge_l.score import rouge_l
from metric_oracle.kernels.sum.score import composite
from metric_oracle.kernels.temporal.score import temporal_f1
from metric_oracle.metrics import METRICS
from support import examples

# Few words, so that n-grams repeat and clip; letters whose lower case is longer, or looks at its neighbours.
WORDS = (
    "no",
    "No",
    "effusion",
    "effusion.",
    "new",
    "stable",
    ".",
    "..",
    "İ",
    "ΑΣ",
    "ſ",
    "K",
    "a.b",
    "<b>",
    "\n",
    "\u2028",
)
words = st.lists(st.sampled_from(WORDS), max_size=14)
texts = st.builds(lambda parts, gap: gap.join(parts), words, st.sampled_from((" ", "  ", "\n", ""))) | st.text(
    max_size=20
)
BLEUS = [name for name in METRICS if name.startswith("bleu")]


def joined(segments):
    return "".join(segment.text for segment in segments)


def check_texts(found, reference, candidate):
    assert (joined(found.reference), joined(found.candidate)) == (reference, candidate)
    assert all(segment.text for segment in (*found.reference, *found.candidate))


def runs(segments, tokens):
    """Return the tokens of each numbered run, which follow one another in the text; all `tokens` are marked."""
    marked = [segment for segment in segments if segment.kind]
    numbered = [(segment.partner, token) for segment, token in zip(marked, tokens, strict=True)]
    together = [(number, [word for _, word in run]) for number, run in groupby(numbered, key=lambda one: one[0])]
    runs_of_text = {number: words for number, words in together if number}
    assert sum(number is not None for number, _ in together) == len(runs_of_text)  # each run stands in one place
    return runs_of_text


def counted(segments, tokens, n):
    """Count the n-grams of marked tokens that follow one another; of single tokens, those with a number."""
    kinds = [(segment.partner, segment.kind) for segment in segments if segment.kind]
    marked = [
        token if partner or (n > 1 and kind != LACKING) else None
        for token, (partner, kind) in zip(tokens, kinds, strict=True)
    ]
    grams = [tuple(marked[i : i + n]) for i in range(len(marked) - n + 1)]
    return Counter(gram for gram in grams if None not in gram)


def partners(segments):
    return sorted(segment.partner for segment in segments if segment.partner is not None)


@examples(100)
@given(reference=texts, candidate=texts, name=st.sampled_from(BLEUS))
def test_bleu(reference, candidate, name):
    metric = METRICS[name]
    order, coco = metric.options["order"], metric.options["coco"]
    found = evidence.bleu(reference, candidate, metric)
    check_texts(found, reference, candidate)
    tokenize = TOKENIZERS[metric.representation]
    a, b = tuple(tokenize(candidate)), tuple(tokenize(reference))
    assert found.score == plain_bleu(a, b, order=order, coco=coco)[0]
    matches = [found.counts.get(f"matched_{n}", 0) for n in (1, 2, 3, 4)]
    lengths = found.counts["candidate_length"], found.counts["reference_length"]
    assert bleu(*matches, *lengths, order, coco) == found.score
    for side, length in ((found.candidate, lengths[0]), (found.reference, lengths[1])):
        marked = [segment for segment in side if segment.kind]
        assert len(marked) == length
        assert all(segment.kind in (WHOLE, PARTLY) for segment in marked if segment.partner)
        assert (order == 1 or any(s.kind == WHOLE for s in marked)) == (order == 1 or matches[1] > 0)
        assert len(partners(side)) == matches[0]
    one, other = runs(found.reference, b), runs(found.candidate, a)
    assert one == other
    assert list(one) == list(range(1, len(one) + 1))
    for n in range(1, order + 1):
        grams = [counted(found.reference, b, n), counted(found.candidate, a, n)]
        assert sum((grams[0] & grams[1]).values()) == matches[n - 1]


def test_bleu_by_hand():
    found = evidence.bleu("No effusion. No effusion", "no EFFUSION no  new", METRICS["bleu-2"])
    assert found.candidate == [
        Segment("no", WHOLE, 1),
        Segment(" "),
        Segment("EFFUSION", WHOLE, 1),
        Segment(" "),
        Segment("no", PARTLY, 2),
        Segment("  "),
        Segment("new", LACKING),
    ]
    assert [s.kind for s in found.reference if s.kind] == [WHOLE, WHOLE, LACKING, PARTLY, LACKING]
    assert (found.counts["matched_1"], found.counts["matched_2"]) == (3, 1)
    # The second "no" is the one that counts: it begins a counted pair of words.
    again = evidence.bleu("no effusion", "no no effusion", METRICS["bleu-2"])
    assert [s.kind for s in again.candidate if s.kind] == [LACKING, WHOLE, WHOLE]
    # The lower case of a final sigma depends on its neighbours, so the first words differ.
    sigma = evidence.bleu("ΑΣ Α", "ΑΣ.Α Α", METRICS["bleu-1"])
    assert [(s.text, s.kind) for s in sigma.candidate if s.kind] == [("ΑΣ", LACKING), (".Α", LACKING), ("Α", WHOLE)]
    assert [(s.text, s.kind) for s in sigma.reference if s.kind] == [("ΑΣ", LACKING), ("Α", WHOLE)]


@examples(100)
@given(reference=texts, candidate=texts, name=st.sampled_from(("rouge-l", "rouge-l:coco")))
def test_rouge_l(reference, candidate, name):
    metric = METRICS[name]
    found = evidence.rouge_l(reference, candidate, metric)
    check_texts(found, reference, candidate)
    tokenize = tokenize_bleu if metric.options else tokenize_rouge
    a, b = tokenize(candidate), tokenize(reference)
    assert found.score == plain_rouge(tuple(a), tuple(b), **metric.options)[0]
    assert found.score == rouge_l(found.counts["common"], len(a), len(b), bool(metric.options))
    for side in (found.reference, found.candidate):
        numbers = [segment.partner for segment in side if segment.partner is not None]
        assert len(numbers) == found.counts["common"]
        assert list(dict.fromkeys(numbers)) == list(range(1, len(set(numbers)) + 1))
    assert runs(found.reference, b) == runs(found.candidate, a)


def test_rouge_l_by_hand():
    found = evidence.rouge_l("b a c", "a b c", METRICS["rouge-l"])
    assert [(s.text, s.kind, s.partner) for s in found.candidate if s.kind] == [
        ("a", WHOLE, 1),
        ("b", LACKING, None),
        ("c", WHOLE, 2),
    ]
    assert found.note.startswith("Other common subsequences")
    assert evidence.rouge_l("a b", "a b", METRICS["rouge-l"]).note == ""
    assert [s.text for s in evidence.rouge_l("x", "-İs-", METRICS["rouge-l"]).candidate] == ["-", "İ", "s", "-"]


@examples(80)
@given(reference=texts, candidate=texts)
def test_temporal(reference, candidate):
    found = evidence.temporal(reference, candidate, METRICS["temporal"])
    check_texts(found, reference, candidate)
    counts = [found.counts[name] for name in ("shared", "in_candidate", "in_reference")]
    assert found.score == temporal_f1(*counts)
    for text, side in ((reference, found.reference), (candidate, found.candidate)):
        marked = {"".join(re.findall(r"\w", segment.text)).lower() for segment in side if segment.kind}
        assert marked == {word for i, word in enumerate(KEYWORDS) if int(mask_of(text)) >> i & 1}
        assert len(set(partners(side))) == counts[0]


def test_temporal_by_hand():
    """Marked are the words that the metric counts: it deletes most signs, and takes "_" and "-" for blanks."""
    found = evidence.temporal("new_line wor'se, stable/new _stable", "NEW-ish! İnew worse", METRICS["temporal"])
    assert [s.text for s in found.reference if s.kind] == ["new", "wor'se", "stable"]
    assert [s.text for s in found.candidate if s.kind] == ["NEW", "new", "worse"]


ENTITIES = [("effusion", "P"), ("effusion", "A"), ("pleural effusion", "P"), ("heart", "P"), ("a.b", "P"), ("", "P")]
entities = st.frozensets(st.sampled_from(ENTITIES), max_size=4)


def graph(chosen):
    ordered = sorted(chosen)
    relations = {(ordered[0], other, "modify") for other in ordered[1:]}
    partial = {(*entity, entity == ordered[0] and bool(relations)) for entity in ordered}
    complete = {(one[0], one[1], kind, other[0]) for one, other, kind in relations} | set(ordered[1:])
    return Graph(frozenset(chosen), frozenset(relations), frozenset(partial), frozenset(complete))


@examples(80)
@given(
    one=entities,
    other=entities,
    reference=texts,
    name=st.sampled_from([n for n in METRICS if n.startswith("radgraph")]),
)
def test_radgraph(one, other, reference, name):
    metric, candidate = METRICS[name], "Pleural\neffusion, effusion; heart a.b axb"
    found = evidence.radgraph(reference, candidate, metric, (graph(one), graph(other)))
    check_texts(found, reference, candidate)
    assert found.score == plain_radgraph(graph(other), graph(one), **metric.options)[0]
    values = [found.counts[f"{family} {what}"] for family in ("entities", "relations", "partial", "complete")
              for what in ("shared", "in_candidate", "in_reference") if f"{family} {what}" in found.counts]  # fmt: skip
    if len(values) == 3:
        assert found.score == f1(*values)
    else:
        assert found.score == mean_f1(values[0], values[1] + values[2], values[3], values[4] + values[5])
    assert sum(row[2] == "both" for row in found.rows) == sum(values[::3])
    assert sum(row[2] != "reference" for row in found.rows) == sum(values[1::3])
    marked = {s.text.lower() for s in found.candidate if s.kind}
    assert marked <= {"pleural\neffusion", "effusion", "heart", "a.b"}
    assert ("heart" in marked) == (("heart", "P") in other)


def test_radgraph_by_hand():
    asked, answered = graph({("effusion", "P"), ("heart", "P")}), graph({("effusion", "A"), ("effusion", "P")})
    found = evidence.radgraph("effusion, heart", "Effusion. No effusion", METRICS["radgraph"], (asked, answered))
    assert [(s.text, s.kind) for s in found.candidate if s.kind] == [("Effusion", PARTLY), ("effusion", PARTLY)]
    assert [(s.text, s.kind) for s in found.reference if s.kind] == [("effusion", WHOLE), ("heart", LACKING)]
    assert found.rows[0] == ("entities", "effusion (P)", "both")
    assert ("relations", "effusion (P) modify heart (P)", "reference") in found.rows


@examples(60)
@given(vectors=st.lists(st.lists(st.sampled_from((-1, 0, 1)), min_size=14, max_size=14), min_size=2, max_size=2))
def test_labels(vectors):
    one, other = np.array(vectors, np.int8)
    found = evidence.labels(one, other, METRICS["chexbert:labels"])
    assert found.score == integer_cosine(*found.counts.values())
    assert len(found.rows) == 14
    assert sum(row[3] == "agree" for row in found.rows) == (one == other).sum()
    assert sum(row[3] == "opposite" for row in found.rows) == (one * other == -1).sum()


def stated(*statements):
    """Return a graph of "words label" and "words > target" statements."""
    entities = {tuple(one.split(" ", 1)) for one in statements if ">" not in one}
    label = dict(entities)
    pairs = [one.split(" > ") for one in statements if ">" in one]
    entities |= {(words, label.get(words, "OBS-DP")) for words, _ in pairs}
    relations = {((words, label.get(words, "OBS-DP")), (target, label[target]), "modify") for words, target in pairs}
    return Graph(frozenset(entities), frozenset(relations), frozenset(), frozenset())


def test_opposites_of_graphs():
    asked = stated(
        "effusion OBS-DP", "edema OBS-DA", "lung ANAT-DP", "Left > effusion", "mild > effusion", "new > edema"
    )
    answered = stated(
        "effusion OBS-DP", "edema OBS-DP", "lung ANAT-DA", "right > effusion", "right > lung", "severe > effusion",
        "stable > edema", "increased > edema",
    )  # fmt: skip
    assert opposites.of_graphs(asked, answered) == [
        ("edema", "absent", "present"),
        ("effusion", "mild", "severe"),
        ("effusion", "left", "right"),
    ]
    assert opposites.of_graphs(asked, asked) == []
    # What both say, and what is uncertain, is no contradiction.
    assert opposites.of_graphs(stated("edema OBS-DA", "edema OBS-DP"), stated("edema OBS-DP")) == []
    assert opposites.of_graphs(stated("edema OBS-U"), stated("edema OBS-DA")) == []
    # The side of a place contradicts only what both locate there.
    left, right = (
        stated("lobe ANAT-DP", "opacity OBS-DP", "opacity > lobe", f"{side} > lobe") for side in ("left", "right")
    )
    stent = stated("lobe ANAT-DP", "stent OBS-DP", "stent > lobe", "left > lobe")
    assert opposites.of_graphs(left, right) == [("lobe", "left", "right")]
    assert opposites.of_graphs(stent, right) == []
    spelt = stated("edema Observation::definitely absent"), stated("edema Observation::definitely present")
    assert opposites.of_graphs(*spelt) == [("edema", "absent", "present")]


def contradicted(side):
    return {segment.text.strip(" ,."): segment.opposite for segment in side if segment.opposite}


def test_opposites_are_marked_in_the_evidence_of_every_metric():
    asked = stated("effusion OBS-DP", "edema OBS-DA", "Left > effusion", "mild > effusion")
    asked = asked._replace(entities=asked.entities | {("pleural fluid", "OBS-DA")})
    answered = stated("effusion OBS-DP", "edema OBS-DP", "lung ANAT-DP", "right > effusion", "right > lung",
                      "severe > effusion")  # fmt: skip
    answered = answered._replace(entities=answered.entities | {("pleural fluid", "OBS-DP")})
    texts = "Left mild effusion, no edema.\nNo pleural fluid", "Severe right effusion. Edema. Some pleural fluid."
    graphs = asked, answered
    places = opposites.places_of_graphs(texts, graphs)
    # "right" modifies the lung too, so that its place in the text is not known.
    spelt = [{text[slice(*at)]: other for at, other in side.items()} for text, side in zip(texts, places, strict=True)]
    assert spelt == [
        {"Left": "right", "mild": "severe", "edema": "present", "pleural fluid": "present"},
        {"Severe": "mild", "Edema": "absent", "pleural fluid": "absent"},
    ]
    for shown in (
        evidence.bleu(*texts, METRICS["bleu-2"]),
        evidence.rouge_l(*texts, METRICS["rouge-l"]),
        evidence.radgraph(*texts, METRICS["radgraph"], graphs),
        evidence.diff(*texts),
        Evidence([Segment(texts[0])], [Segment(texts[1])]),
    ):
        marked = opposites.mark(shown, places)
        for text, side, of_side in zip(texts, (marked.reference, marked.candidate), places, strict=True):
            assert "".join(segment.text for segment in side) == text
            begin, letters = 0, set()
            for segment in side:
                letters |= {begin + i for i, c in enumerate(segment.text) if segment.opposite and c.isalpha()}
                begin += len(segment.text)
            assert letters == {i for at in of_side for i in range(*at) if text[i].isalpha()}
            shown_phrases = [phrase["opposite"] for phrase in phrases(side) if phrase["opposite"]]
            assert sorted(shown_phrases) == sorted(of_side.values())  # a phrase of two words has one mark
        assert (marked.counts, marked.score) == (shown.counts, shown.score)
    twice = opposites.places_of_graphs(("Left effusion. Left rib.", ""), graphs)
    assert [text for side in twice for text in side.values()] == []


def test_opposites_of_labels():
    one, other = np.zeros(14, np.int8), np.zeros(14, np.int8)
    names = {"Pleural Effusion": (1, -1), "Lung Opacity": (-1, 1), "Edema": (1, 0), "Pleural Other": (1, -1)}
    for name, (a, b) in names.items():
        one[LABELS.index(name)], other[LABELS.index(name)] = a, b
    rows = evidence.labels(one, other, METRICS["chexbert:labels"]).rows
    texts = "Effusions. No opacity; edema, other", "No pleural effusion. Opacities. Another opacity."
    places = opposites.places_of_labels(texts, rows)
    spelt = [{text[slice(*at)]: other for at, other in side.items()} for text, side in zip(texts, places, strict=True)]
    assert spelt == [{"Effusions": "negative", "opacity": "positive"}, {"pleural effusion": "positive"}]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Small left effusion.", "Small right effusion.", [("effusion", "left", "right")]),
        ("Effusion is absent", "An effusion is present.", [("effusion", "absent", "present")]),
        ("Mild edema. Stable heart.", "Severe edema! Enlarging heart", [("edema", "mild", "severe"),
                                                                        ("heart", "stable", "enlarging")]),
        ("Opacity in the left lower lobe.", "Opacity in the right lower lobe.", [("lobe", "left", "right")]),
        ("Effusion on the left side.", "Right pleural effusion.", [("effusion", "left", "right")]),
        ("Left effusion.", "Right rib fracture.", []),  # no word in common
        ("Opacity at the left lung base.", "Lung base opacity, enlarged right ventricle.", []),  # of other things
        ("The left lung base is clear.", "Clear. Pacer lead to the right ventricle over the lung base.", []),
        ("Mild edema of the lungs.", "Edema, large hernia, clear lungs.", []),
        ("Stent over the left upper lobe.", "Opacity in the right lower lobe.", []),  # of two findings in a lobe
        ("Left effusion.", "Left and right effusion.", []),  # one text says both
        ("No effusion.", "Small effusion.", []),  # a word of another kind
        ("Small effusion.", "Minimal effusion.", []),
        ("", "Left", []),
    ],
)  # fmt: skip
def test_opposites_of_words(one, other, expected):
    assert opposites.of_texts(one, other) == expected
    assert opposites.of_texts(other, one) == [(about, b, a) for about, a, b in expected]


@examples(30)
@given(
    positive=st.lists(st.lists(st.booleans(), min_size=14, max_size=14), min_size=2, max_size=2),
    n=st.sampled_from((14, 5)),
)
def test_agreement(positive, n):
    one, other = (np.r_[some[:n], np.logical_not(some[:n])].astype(np.int8) for some in positive)
    found = evidence.agreement(one, other, METRICS["chexbert:agreement" if n == 14 else "chexbert:agreement-5"])
    assert found.score == pytest.approx(found.counts["equal"] / found.counts["labels"], rel=1e-15)
    equal = sum(a == b for a, b in zip(*(some[:n] for some in positive), strict=True))
    assert found.counts == {"equal": equal, "labels": n}
    assert [row[0] for row in found.rows] == list(LABELS if n == 14 else FIVE_LABELS)


@pytest.mark.parametrize("baseline", [None, (0.2, 0.3, 0.4)])
def test_bertscore(baseline):
    rng = np.random.default_rng(4)
    sides = []
    for n in (7, 5):
        states = rng.standard_normal((n, 8)).astype(np.float32)
        weights = np.r_[0.0, rng.random(n - 2), 0.0]
        ids = np.arange(n)
        sides.append(TokenItem(states / np.linalg.norm(states, axis=1, keepdims=True), ids, weights, None, baseline))
    sides[0] = replace(sides[0], weight_of_id=sides[1].weights)
    reference, candidate = "Small left effusion", "No effusion"
    spans = [(0, 0), (0, 5), (6, 10), (11, 13), (13, 17), (17, 19), (0, 0)], [(0, 0), (0, 2), (3, 7), (6, 11), (0, 0)]
    for part in (0, 1, 2):
        found = evidence.bertscore(reference, candidate, tuple(sides), spans, part)
        check_texts(found, reference, candidate)
        assert found.score == plain_bertscore.score(sides[1], sides[0], part)[0]
    # The marks of the words give precision and recall again; the overlapping piece stands in the rows alone.
    best = [s.weight for s in found.reference if s.kind]
    dots = sides[0].states.astype(float) @ sides[1].states.astype(float).T
    assert best == pytest.approx(dots.max(axis=1)[1:6])
    recall = sum(w * v for w, v in zip(sides[0].weights[1:6], best, strict=True)) / sides[0].weights.sum()
    assert recall == pytest.approx(found.counts["recall"], abs=1e-6)
    precision = (
        sum(w * v for w, v in zip(sides[1].weights[1:4], dots.max(axis=0)[1:4], strict=True)) / sides[1].weights.sum()
    )
    assert precision == pytest.approx(found.counts["precision"], abs=1e-6)
    assert [row[2] for row in found.rows] == pytest.approx(sorted(dots.max(axis=0)[1:4]))
    assert len([s for s in found.candidate if s.kind]) == 2
    # Only words that are each other's best match are matched; the colour scale begins at the mean of all pairs.
    assert all(
        (s.kind == WHOLE) == bool(s.partner) for side in (found.reference, found.candidate) for s in side if s.kind
    )
    assert {s.kind for s in found.reference if s.kind} == {WHOLE, LACKING}
    assert len(found.scale) == 5
    steps = [evidence.step_of(weight, found.scale) for weight in (found.scale[0] - 1e-9, *found.scale, 1.0)]
    assert steps == [0, 1, 2, 3, 4, 5, 5]
    assert len({s.partner for s in found.reference[-3:]}) == 1  # a word of three pieces
    one, other = ({s.partner for s in side if s.partner} for side in (found.reference, found.candidate))
    assert one == other == set(range(1, len(one) + 1)) != set()
    unknown = evidence.bertscore(reference, candidate, tuple(sides), None, 2)
    check_texts(unknown, reference, candidate)
    assert unknown.score == found.score
    assert unknown.note.startswith("The words of the token states are not known")


def test_composite():
    metric = METRICS["radcliq:v0"]
    values = {name: 0.1 * place for place, name in enumerate(metric.terms)}
    found = evidence.composite(values, metric)
    assert found.score == composite(values.values(), metric.terms.values(), metric.intercept)
    assert found.score == sum(found.counts.values())
    assert math.isclose(found.counts["intercept"] + sum(row[2] for row in found.rows), found.score)


@examples(100)
@given(reference=texts, candidate=texts)
def test_diff(reference, candidate):
    found = evidence.diff(reference, candidate)
    check_texts(found, reference, candidate)
    same = [["".join(s.text for s in side if s.kind == "same")] for side in (found.reference, found.candidate)]
    assert same[0] == same[1]


@examples(50)
@given(text=texts, places=st.lists(st.integers(0, 20), unique=True))
def test_cut(text, places):
    ends = sorted(place for place in places if place <= len(text))
    spans = [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=False)]
    assert joined(cut(text, [(span, Segment("", WHOLE)) for span in spans])) == text
