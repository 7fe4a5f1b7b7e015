"""Temporal F1: keywords and scores are RadEval's, but for its 1e-10; the search is what Python sets give."""

import json
from pathlib import Path

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.temporal import KEYWORDS, mask_of
from metric_oracle.kernels.temporal.cpu import Backend, Masks
from metric_oracle.kernels.temporal.reference import score

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/temporal.json").read_text(encoding="utf-8"))


def words_of(text: str) -> frozenset[str]:
    mask = mask_of(text)
    return frozenset(word for bit, word in enumerate(KEYWORDS) if int(mask) >> bit & 1)


def test_keywords_are_those_of_the_published_tool():
    assert len(set(KEYWORDS)) == 44
    assert {text: sorted(words_of(text)) for text, _ in GOLDEN["texts"]} == dict(GOLDEN["texts"])
    assert len({tuple(words) for _, words in GOLDEN["texts"]}) > 20


def test_scores_are_those_of_the_published_tool():
    """Within what its 1e-10 in denominators, and as the least score, can move."""
    words = [frozenset(found) for _, found in GOLDEN["texts"]]
    for i, j, expected in GOLDEN["pairs"]:
        assert score(words[i], words[j])[0] == pytest.approx(expected, abs=3e-10)


def test_search_equals_python_sets(tmp_path):
    texts = [text for text, _ in GOLDEN["texts"]] * 2
    corpus = Reports([f"r{i}" for i in range(len(texts))], texts, "made up")
    index = mo.build_index(corpus, tmp_path / "I", metrics=["temporal"])
    asked = ["no word", "stable", "new stable worse", "unchanged, unchanged", "improved but enlarged"]
    results = mo.retrieve(index, asked, "temporal", k=9)
    words = [words_of(text) for text in texts]
    for q, text in enumerate(asked):
        scores = [score(candidate, words_of(text))[0] for candidate in words]
        best = sorted(range(len(texts)), key=lambda row: (-scores[row], row))[:9]
        some = results.table.slice(9 * q, 9)
        assert some["row"].to_pylist() == best
        assert some["score"].to_pylist() == [scores[row] for row in best]
        assert some["n_ties"].to_pylist() == [scores.count(scores[row]) for row in best]


def test_two_reports_without_a_keyword_agree_as_in_the_published_tool():
    """RadEval gives an F1 of 1; precision and recall say the same."""
    words = [frozenset(found) for _, found in GOLDEN["texts"]]
    assert any(expected == 1.0 for i, j, expected in GOLDEN["pairs"] if not words[i] and not words[j])
    assert score(frozenset(), frozenset()) == (1.0, {"precision": 1.0, "recall": 1.0})
    assert score(frozenset(), frozenset(["new"])) == (0.0, {"precision": 0.0, "recall": 0.0})
    plain = [score(frozenset(), frozenset()), score(frozenset(["new"]), frozenset())]
    masks = np.array([mask_of("clear lungs"), mask_of("new effusion")])
    corpus, batch = Masks(masks, np.arange(3), np.arange(2)), Masks(masks[:1], np.arange(2), np.arange(1))
    found, parts = Backend().score_pairs(corpus, batch, np.zeros(2, np.int64), np.arange(2))
    assert [(f1, {name: values[i] for name, values in parts.items()}) for i, f1 in enumerate(found)] == plain
