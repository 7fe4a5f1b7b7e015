"""Searches where every score lies below the least normal number: the list is that of the plain scorer on all pairs.

Two factors decay exponentially: CIDEr-D's for length, exp(-d * d / 72) with d the difference in words, and BLEU's
brevity penalty, exp(1 - r / c). Products of them lose their last bits there, and many become equal.
"""

import random

import pyarrow.compute as pc
import pytest

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports

LEAST_NORMAL = 2.0**-1022


def reports(texts):
    return Reports([f"r{i}" for i in range(len(texts))], texts, "made up")


def check(tmp_path, corpus, asked, metric):
    """Compare the search with the plain scorer on all pairs; return the number of scores below the normal ones."""
    index = mo.build_index(reports(corpus), tmp_path / "I", metrics=[metric])
    n_subnormal = 0
    # Some queries alone and all together: the checks of a search differ.
    for queries in (*([text] for text in asked[::3]), asked):
        whole = search(index, queries, metric, 21, "reference")
        for k in (1, 2, 21):
            found = search(index, queries, metric, k, "cpu")
            best = whole.filter(pc.less_equal(whole["rank"], k))
            for name in ("row", "score", "n_ties"):
                assert found[name].to_pylist() == best[name].to_pylist(), (metric, k, name)
            n_subnormal += sum(0.0 < score < LEAST_NORMAL for score in found["score"].to_pylist())
    return n_subnormal


def search(index, queries, metric, k, backend):
    return mo.retrieve(
        index, mo.reports(queries, mo.Read(keep_empty=True)), metric, k=k, backend=backend, text=False
    ).table


@pytest.mark.parametrize("metric", ["cider-d:corpus", "cider-d"])
@pytest.mark.parametrize("seed", range(4))
def test_cider_d_of_texts_of_very_unequal_lengths(tmp_path, metric, seed):
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(300)]
    lengths = (243,) if seed < 2 else range(236, 247)
    corpus = [" ".join(rng.choices(words, k=rng.choice(lengths))) for _ in range((60, 120)[seed % 2])]
    asked = [" ".join(rng.choices(words, k=12)) for _ in range(8)]
    assert check(tmp_path, corpus, asked, metric) > 25


@pytest.mark.parametrize("metric", ["bleu-1", "bleu-2", "bleu-3", "bleu-2:coco", "bleu-4:coco"])
def test_bleu_of_very_short_candidates(tmp_path, metric):
    rng = random.Random(3)
    words = [f"w{i}" for i in range(40)]
    corpus = [" ".join(rng.choices(words, k=rng.choice((1, 2)))) for _ in range(150)]
    asked = [" ".join(rng.choices(words, k=n)) for n in (712, 725, 735, 1420, 1440, 1470)]
    assert check(tmp_path, corpus, asked, metric) > 25
