"""What the searches over sets of features are made of, each against its definition: small, and easy to break."""

import random
from itertools import pairwise

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.ngrams import build_ngrams
from metric_oracle.kernels._build import distinct_lists, invert_lists, note_buckets, posting_offsets
from metric_oracle.kernels._overlap import by_rarity, count_shared, lower_bound
from metric_oracle.kernels.rouge_l.cpu import Backend as RougeL
from metric_oracle.kernels.rouge_l.reference import score as rouge_l_reference
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.kernels import arrays_of, load_kernel, load_reference


def lists_of(sequences):
    """Return lists of integers as offsets and values."""
    ptr = np.cumsum([0, *map(len, sequences)])
    return ptr, np.array([x for sequence in sequences for x in sequence], np.int32)


def reports(seed, n, vocabulary, lengths):
    rng = random.Random(seed)
    return [" ".join(rng.choices(vocabulary, k=rng.choice(lengths))) for _ in range(n)]


def test_an_empty_list_equals_no_other_whatever_its_slot():
    for value in range(64):  # some of them have the slot of the empty list
        which, first = distinct_lists(*lists_of([[value], [], [value], [value, value], []]))
        assert (which.tolist(), first.tolist()) == ([0, 1, 0, 2, 1], [0, 1, 3])


@pytest.mark.parametrize("n_ranges", [1, 2, 7])
def test_cells_begin_where_their_first_unit_stands(n_ranges):
    rng = np.random.default_rng(n_ranges)
    n_features, bucket_of_document = 7, np.sort(rng.integers(0, 9, 60))
    bucket_of_document -= bucket_of_document[0]
    units = [np.flatnonzero(rng.random(60) < share) for share in (0, 0.05, 0.2, 0.5, 0.9, 1, 0.5)]
    forward = [[v for v in range(n_features) if u in units[v]] for u in range(60)]
    ptr, values = lists_of(forward)
    post_ptr = posting_offsets(values, n_features)
    assert np.diff(post_ptr).tolist() == [len(own) for own in units]
    slot = np.array([-1, 0, 1, -1, 2, 3, 4], np.int32)
    skip = np.full((5, bucket_of_document[-1] + 2), -7, np.int32)
    edges = np.linspace(0, n_features, n_ranges + 1).astype(int).tolist()
    for first, last in pairwise(edges):
        postings = invert_lists(ptr, values, post_ptr, first, last)
        assert postings.tolist() == [u for v in range(first, last) for u in units[v].tolist()]
        note_buckets(post_ptr, postings, first, last, bucket_of_document, slot, skip)
    for v in range(n_features):
        if slot[v] >= 0:
            begins = np.searchsorted(bucket_of_document[units[v]], np.arange(skip.shape[1]))
            assert skip[slot[v]].tolist() == begins.tolist()


@pytest.mark.parametrize("n", [0, 1, 5, 64, 65, 150])
def test_rare_features_come_first_and_ties_by_id(n):
    rng = np.random.default_rng(n)
    post_ptr = np.concatenate([[0], np.cumsum(rng.integers(0, 4, 200))])
    ids = np.sort(rng.permutation(200)[:n]).astype(np.int32)
    expected = sorted(ids.tolist(), key=lambda v: (post_ptr[v + 1] - post_ptr[v], v))
    assert by_rarity(ids, post_ptr).tolist() == expected


def test_the_lower_bound_is_the_first_that_is_not_below():
    values = np.array([1, 1, 3, 3, 3, 8], np.int32)
    for begin in range(7):
        for end in range(begin, 7):
            for x in range(10):
                expected = begin + int(np.searchsorted(values[begin:end], x, side="left"))
                assert lower_bound(values, begin, end, x) == expected


@pytest.mark.parametrize("kind", ["ngrams", "words"])
def test_a_report_as_a_query_has_its_own_features(kind):
    texts = list(dict.fromkeys(["", "a", *reports(3, 40, "abc", (0, 1, 2, 3, 5, 8)), "b b b b b b b b b b b"]))
    index = build_ngrams(kind, texts, np.arange(len(texts)))
    encoded = index.encode(Reports(texts, texts))
    metric = get_metric("bleu-4" if kind == "ngrams" else "rouge-l")
    features, queries = index.features, index.translate(metric, encoded).queries
    units = index.document_of_row
    n_families = queries.sizes.shape[1]
    own = []
    for q, unit in zip(encoded.document_of_row.tolist(), units.tolist(), strict=True):
        own.append(set(features.fwd_id[features.fwd_ptr[unit] : features.fwd_ptr[unit + 1]].tolist()))
        assert set(queries.id[queries.ptr[q * n_families] : queries.ptr[(q + 1) * n_families]].tolist()) == own[-1]
        assert queries.sizes[q].tolist() == features.sizes[:, unit].tolist()
    pairs = [(i, j) for i in range(0, len(texts), 3) for j in range(len(texts))]
    query, unit = encoded.document_of_row[[i for i, _ in pairs]], units[[j for _, j in pairs]]
    found = count_shared(*arrays_of(metric, index, encoded), query, unit, 0, n_families)
    assert found[::3].sum(axis=0).tolist() == [len(own[i] & own[j]) for i, j in pairs]


def test_all_documents_have_the_scores_of_the_plain_scorer(tmp_path):
    """Queries of more features than a byte can count are among them, and reports without a word."""
    vocabulary = [f"w{i}" for i in range(300)]
    texts = ["", "w0", *reports(5, 50, vocabulary[:12], (1, 2, 3, 9, 70)), " ".join(vocabulary), "w1 " * 290]
    asked = [
        "",
        "unknown",
        "w1 " * 300,
        " ".join(vocabulary[::-1]),
        *reports(6, 9, vocabulary[:14], (1, 4, 30, 64, 65)),
    ]
    metrics = [*(f"bleu-{n}" for n in (1, 2, 3, 4)), "bleu-2:coco", "rouge-l", "rouge-l:coco", "jaccard:1"]
    corpus = Reports([f"r{i}" for i in range(len(texts))], texts, "made up")
    index = mo.build_index(corpus, tmp_path / "I", metrics=metrics)
    for metric in map(get_metric, metrics):
        representation, score = index.representation(metric), load_reference(metric)
        encoded = representation.encode(Reports(asked, asked))
        arrays = arrays_of(metric, representation, encoded)
        documents = [representation.item(int(d)) for d in range(len(arrays[0].row_ptr) - 1)]
        which = encoded.document_of_row.tolist()
        for q, scores in zip(which, load_kernel(metric, "cpu").score_all(*arrays, which), strict=True):
            assert scores.tolist() == [score(document, encoded.item(q))[0] for document in documents]


def check_subsequences(texts, asked):
    """Compare ROUGE-L of all pairs with the plain scorer's."""
    index = build_ngrams("words", texts, np.arange(len(texts)))
    encoded = index.encode(Reports(asked, asked))
    pairs = [(i, j) for i in range(len(asked)) for j in range(len(texts))]
    query, unit = encoded.document_of_row[[i for i, _ in pairs]], index.document_of_row[[j for _, j in pairs]]
    found, _ = RougeL().score_pairs(*arrays_of(get_metric("rouge-l"), index, encoded), query, unit)
    assert found.tolist() == [rouge_l_reference(texts[j].split(), asked[i].split())[0] for i, j in pairs]


@pytest.mark.parametrize("vocabulary", ["ab", "abcdefgh"])
def test_subsequences_that_cross_blocks_of_64_words(vocabulary):
    texts = [*dict.fromkeys(reports(7, 14, vocabulary, (1, 60, 63, 64, 65, 128, 129, 200))), "a" + " a" * 129]
    check_subsequences(texts, texts)


def test_subsequences_across_blocks_without_a_common_word():
    """A carry goes through whole blocks: of two words in the wrong order one counts, whatever lies between."""
    places = [(i, j) for i in (0, 5, 63, 64, 127) for j in (64, 127, 128, 130, 191, 199) if i != j]
    check_subsequences([f"w{j} w{i}" for i, j in places], [" ".join(f"w{i}" for i in range(200))])
