"""jaccard:N: the coefficient of sets of word N-grams, by hand, by Python sets and by nltk."""

import random

import pytest

import metric_oracle as mo
from metric_oracle.indexes.gram_sets import grams_of
from metric_oracle.indexes.ngrams import tokenize_rouge
from metric_oracle.kernels.jaccard.reference import score
from metric_oracle.metrics import METRICS, get_metric

ORDERS = (1, 2, 3, 4)


def drawn(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(("no", "new", "Lung", "clear.", "effusion"), k=rng.randrange(1, 9))) for _ in range(n)]


def sets_of(texts: list[str], order: int) -> list[frozenset]:
    return [grams_of(tokenize_rouge(text), order) for text in texts]


@pytest.mark.parametrize(
    ("order", "candidate", "reference", "expected"),
    [
        (1, "no acute process", "No acute disease.", 2 / 4),
        (3, "heart size is normal today", "The heart size is normal", 2 / 4),
        (3, "a b c a b c", "a b c", 1 / 3),  # how often an n-gram occurs does not count: abc, bca, cab
        (2, "a b a", "b a b", 1.0),  # nor their order
        (3, "no change", "no change", 0.0),  # no n-gram on either side
        (3, "no change", "no acute change", 0.0),
        (1, "", "", 0.0),
        (1, "...", "no", 0.0),
    ],
)
def test_values_by_hand(order, candidate, reference, expected):
    name = f"jaccard:{order}"
    one, two = sets_of([candidate, reference], order)
    assert score(one, two)[0] == expected
    if candidate.strip("."):  # `compute` refuses a call without any report
        found = mo.compute(predictions=[candidate], references=[reference], metrics=name)
        assert found == {name: expected}


def test_the_scorer_is_one_minus_the_distance_of_nltk():
    distance = pytest.importorskip("nltk.metrics.distance").jaccard_distance
    for order in ORDERS:
        sets = [one for one in sets_of(drawn(60, 1), order) if one]
        for one in sets[:20]:
            for two in sets:
                assert score(one, two)[0] == pytest.approx(1 - distance(one, two), abs=1e-15)


@pytest.mark.parametrize("shard_rows", [None, 37])
@pytest.mark.parametrize("order", ORDERS)
def test_search_equals_python_sets(order, shard_rows, tmp_path):
    texts, asked = drawn(150, 2), ["no", "lung clear effusion", "unheard of words", *drawn(30, 3)]
    corpus = mo.build_index(texts, tmp_path / "I", metrics="rouge-l", shard_rows=shard_rows)
    results = mo.retrieve(corpus, asked, f"jaccard:{order}", k=7)
    sets = sets_of(texts, order)
    for q, reference in enumerate(sets_of(asked, order)):
        scores = [score(candidate, reference)[0] for candidate in sets]
        best = sorted(range(len(texts)), key=lambda row: (-scores[row], row))[:7]
        some = results.table.slice(7 * q, 7)
        assert some["row"].to_pylist() == best
        assert some["score"].to_pylist() == [scores[row] for row in best]
        assert some["n_ties"].to_pylist() == [scores.count(scores[row]) for row in best]


def test_an_index_of_words_holds_it_without_a_file_of_its_own(tmp_path):
    index = mo.build_index(["a b c"], tmp_path / "I", metrics="jaccard:3")
    assert index.metrics == ["rouge-l", *(f"jaccard:{order}" for order in ORDERS)]
    assert [path.name for path in sorted((tmp_path / "I").iterdir()) if path.is_dir()] == ["words"]


def test_reports_with_equal_sets_are_one_document(tmp_path):
    texts = ["a b a b", "b a b a b", "No change", "Stable", "New"]
    index = mo.build_index(texts, tmp_path / "I", metrics="rouge-l")
    part = index.representation(METRICS["jaccard:2"])
    assert [sorted(part.item(document)) for document in range(len(part.row_ptr) - 1)] == [
        [],
        [("no", "change")],
        [("a", "b"), ("b", "a")],
    ]
    assert part.document_of_row.tolist() == [2, 2, 1, 0, 0]


def test_the_family_alone_is_no_metric():
    with pytest.raises(mo.MetricOracleError, match="Did you mean 'jaccard:1' or 'jaccard:2' or 'jaccard:3'"):
        get_metric("jaccard")
