"""METEOR is nltk's and CIDEr-D pycocoevalcap's, from the raw text on; values of `golden/make_meteor_cider.py`.

What WordNet says stands in the golden file too (`wordnet` in `conftest.py`).
"""

import json
import math
import random
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import nltk
import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, ExactnessError
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.indexes import stems
from metric_oracle.indexes.cider import Frequencies, JoinedFrequencies
from metric_oracle.indexes.ngrams import tokenize_coco
from metric_oracle.kernels.cider_d import cpu
from metric_oracle.kernels.cider_d.score import cider_d, inverse_frequency, length_penalty, similarity, split
from metric_oracle.kernels.meteor.score import meteor
from support import published

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/meteor_cider.json").read_text(encoding="utf-8"))
METRICS = ("meteor:nltk", "meteor:nltk-stems", "cider-d")
real_wordnet_synonyms = stems.wordnet_synonyms  # before the stand-in takes its place


def reports(texts):
    texts = list(texts)
    return Reports([f"r{i}" for i in range(len(texts))], texts, "made up")


@pytest.mark.parametrize("name", GOLDEN["sets"])
def test_the_published_values(name, request):
    if name == "published":
        made = json.loads((Path(__file__).parents[1] / "golden/published.json").read_text(encoding="utf-8"))
        by_id = {i: text for i, (text, *_) in enumerate(made["texts"])}
    else:
        read = read_reports(request.getfixturevalue("iu_xray") / "indiana_reports.csv", mo.Read(section=name))
        by_id = dict(zip(read.ids, read.texts, strict=True))
    pairs = GOLDEN["sets"][name]
    assert len(pairs) > 200
    sides = [reports(by_id[pair[side]] for pair in pairs) for side in (1, 0)]
    table = mo.score(*sides, METRICS).table
    found = np.stack([table[metric].to_numpy() for metric in METRICS], axis=1)
    values = np.array([pair[2:] for pair in pairs])
    assert np.abs(found - values).max() < 1e-12
    assert (values[:, 0] > values[:, 1]).sum() >= 5  # synonyms count
    assert (values > 0).sum(axis=0).min() > 100


def test_nltk_gives_the_golden_values():
    """With what the golden file says of WordNet, asked as nltk asks it."""
    tool = published("nltk.translate.meteor_score")
    synonyms = GOLDEN["synonyms"]
    lemma = lambda name: SimpleNamespace(name=lambda: name)  # noqa: E731
    wordnet = SimpleNamespace(
        synsets=lambda word: [SimpleNamespace(lemmas=lambda: [lemma(name) for name in synonyms.get(word, ())])]
    )
    made = json.loads((Path(__file__).parents[1] / "golden/published.json").read_text(encoding="utf-8"))
    for i, j, value, *_ in GOLDEN["sets"]["published"][::3]:
        candidate, reference = (made["texts"][n][1] for n in (i, j))
        assert tool.single_meteor_score(reference, candidate, wordnet=wordnet) == value


def test_pycocoevalcap_gives_the_golden_values():
    tool = published("pycocoevalcap.cider.cider")
    made = json.loads((Path(__file__).parents[1] / "golden/published.json").read_text(encoding="utf-8"))
    sides = ({}, {})
    for n, (*pair, _, _, _) in enumerate(GOLDEN["sets"]["published"]):
        for side, i in zip(sides, pair, strict=True):
            side[n] = [made["texts"][i][0].lower().replace(".", " .")]
    found = tool.Cider().compute_score(sides[1], sides[0])[1]
    assert found.tolist() == [pair[-1] for pair in GOLDEN["sets"]["published"]]


# By hand


def test_meteor_by_hand():
    assert meteor(0, 0, 3, 3) == 0.0
    assert meteor(0, 0, 0, 0) == 0.0
    precision, recall = 4 / 5, 4 / 7
    mean = precision * recall / (0.9 * precision + 0.1 * recall)
    assert meteor(4, 2, 5, 7) == pytest.approx((1 - 0.5 * (2 / 4) ** 3) * mean, rel=1e-15)
    assert meteor(3, 1, 5, 5) == meteor(6, 2, 10, 10)  # equal fractions are equal floats


def test_alignment_by_hand(tmp_path):
    """Words first, then stems, then synonyms, each from the end with the last free place."""
    index = mo.build_index(reports(["w0 edemas new", "edema edemas", "w0 w0"]), tmp_path / "I", metrics=["meteor:nltk"])
    table = mo.retrieve(index, ["stable edema edemas w1"], "meteor:nltk", k=3).table
    by_row = {row["row"]: row for row in table.to_pylist()}
    # "edemas" by word, "w1" by "new" (a synonym), "w0" takes "stable" (its stem is a synonym): 3 of 3, in order but for
    # "edema", which stands between the first two.
    assert by_row[0]["score"] == pytest.approx(meteor(3, 2, 3, 4))
    assert by_row[1]["score"] == meteor(2, 1, 2, 4)
    assert by_row[2]["score"] == meteor(2, 2, 2, 4)  # w1, the last place, then stable: no neighbours in order
    plain = mo.retrieve(index, ["stable edema edemas w1"], "meteor:nltk-stems", k=3).table.to_pylist()
    assert [(row["row"], row["score"]) for row in plain] == [(1, meteor(2, 1, 2, 4)), (0, meteor(1, 1, 3, 4)), (2, 0.0)]


def test_cider_d_by_hand(tmp_path):
    texts = ["a b", "a c", "a b b"]
    a, b = (inverse_frequency(3, n) for n in (3, 2))
    ab, bb, unknown = inverse_frequency(3, 2), inverse_frequency(3, 1), inverse_frequency(3, 0)
    assert (a, b, bb) == (0.0, math.log(3) - math.log(2), math.log(3))
    index = mo.build_index(reports(texts), tmp_path / "I", metrics=["cider-d"])
    table = mo.retrieve(index, ["a b d"], "cider-d:corpus", k=3).table
    by_row = {row["row"]: row["score"] for row in table.to_pylist()}
    ones = similarity(b * b, b * b, b * b + unknown**2)
    twos = similarity(ab * ab, ab * ab, ab * ab + unknown**2)
    assert by_row[0] == pytest.approx(cider_d(ones, twos, 0, 0, length_penalty(2, 3)), rel=1e-14)
    ones = similarity(b * b, 4 * b * b, b * b + unknown**2)
    twos = similarity(ab * ab, ab * ab + bb * bb, ab * ab + unknown**2)
    assert by_row[2] == pytest.approx(cider_d(ones, twos, 0, 0, 1.0), rel=1e-14)
    assert by_row[1] == 0.0  # of "a", which every text has


@pytest.mark.parametrize("metric", ["cider-d", "cider-d:corpus"])
@pytest.mark.parametrize("seed", range(6))
def test_equal_vectors_in_another_order_tie(metric, seed, tmp_path):
    """Blocks between equal runs of three words change places: the same n-grams up to order 4, in another order."""
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(30)]

    def some(n):
        return " ".join(rng.choices(words, range(1, 31), k=n))

    run, blocks = some(3), [some(rng.randint(1, 9)) for _ in range(5)]
    orders = [rng.sample(blocks, 5) for _ in range(8)]
    twins = [f"{run} " + f" {run} ".join(order) + f" {run}" for order in orders]
    corpus = [text for twin in twins for text in (some(rng.randint(4, 40)), twin)]
    index = mo.build_index(reports(corpus), tmp_path / "I", metrics=["cider-d"])
    asked = [some(50), f"{run} {blocks[0]} {run} {blocks[3]} {run}", twins[3]]
    for backend in ("cpu", "reference"):
        table = mo.retrieve(index, asked, metric, k=len(corpus), backend=backend, text=False).table.to_pylist()
        for query in map(str, range(len(asked))):
            of_twins = [line for line in table if line["query_id"] == query and line["row"] % 2]
            assert len({line["score"] for line in of_twins}) == 1
            assert [line["row"] for line in of_twins] == sorted(line["row"] for line in of_twins)
            assert {line["n_ties"] for line in of_twins} == {len(twins)}
    if metric == "cider-d":
        one = mo.pairwise(twins, metric, [*asked, *twins])
        assert (one == one[0]).all()


def test_sums_do_not_depend_on_the_order():
    rng = random.Random(0)
    for size in (1, 3, 40, 700):
        terms = [math.exp(rng.uniform(-20, 9)) for _ in range(size)]
        parts = np.array([split(term) for term in terms])
        found = {tuple(parts[rng.sample(range(size), size)].cumsum(axis=0)[-1]) for _ in range(20)}
        assert len(found) == 1
        assert sum(found.pop()) == pytest.approx(math.fsum(terms), rel=1e-15)
        assert all(sum(split(term)) == term for term in terms)


def test_weights_of_a_text_are_those_of_its_features(tmp_path):
    """N-grams that a collection does not have weigh as those of no text; a text of its own as its features do."""
    texts = ["a b", "a b a b a b", "b c . a", "", "c c c"]
    index = mo.build_index(reports(texts), tmp_path / "I", metrics=["cider-d"]).part("coco")
    counts = Counter(
        gram
        for words in map(tokenize_coco, texts)
        for gram in {tuple(words[i : i + n]) for n in range(1, 5) for i in range(len(words) - n + 1)}
    )
    for of_texts in (Frequencies(index), JoinedFrequencies.of([index, index])):
        times = of_texts.texts // len(texts)
        for text in [*texts, "a b x a b", "x", "c c c c c a b a b a b a b"]:
            words = tuple(tokenize_coco(text))
            expected = {
                words[i : i + n]: inverse_frequency(of_texts.texts, times * counts[words[i : i + n]])
                for n in range(1, 5)
                for i in range(len(words) - n + 1)
            }
            assert of_texts.weights_of(words) == expected


def test_one_reference_weighs_nothing(tmp_path):
    index = mo.build_index(reports(["a b", "a c"]), tmp_path / "I", metrics=["cider-d"])
    assert mo.retrieve(index, ["a b"], "cider-d").table["score"].to_pylist() == [0.0]
    assert mo.score(reports(["a b"]), reports(["a b"]), "cider-d").table["cider-d"].to_pylist() == [0.0]


# Tied corpora of other shapes than those of `test_search.py`, and IU X-ray


@pytest.mark.parametrize("metric", ["meteor:nltk", "cider-d", "cider-d:corpus"])
@pytest.mark.parametrize("seed", range(3))
def test_tied_corpora(tmp_path, metric, seed):
    rng = random.Random(seed)
    words = [f"x{i}" for i in range((4, 25, 300)[seed])] + ["w0", "new", "."]
    weights = [1 / (i + 1) for i in range(len(words))]

    def text():
        return " ".join(rng.choices(words, weights, k=rng.choice((0, 1, 3, 4, 5, 6, 8, 9, 30, 300 if seed else 40))))

    corpus = [text() for _ in range(150)]
    corpus += rng.choices(corpus, k=50)
    edited = [" ".join(w for w in rng.choice(corpus).split() if rng.random() < 0.9) for _ in range(12)]
    asked = [*edited, *rng.choices(corpus, k=4), "nowhere", "", *(text() for _ in range(4))]
    index = mo.build_index(reports(corpus), tmp_path / "I", metrics=[metric])
    whole = mo.retrieve(
        index, mo.reports(asked, mo.Read(keep_empty=True)), metric, k=len(corpus), backend="reference", text=False
    ).table
    for k in (1, 2, 7):
        found = mo.retrieve(index, mo.reports(asked, mo.Read(keep_empty=True)), metric, k=k, text=False).table
        for name in ("row", "score", "n_ties"):
            assert (
                found[name].to_numpy().reshape(-1, k) == whole[name].to_numpy().reshape(len(asked), -1)[:, :k]
            ).all()


def plain_cider(candidates, references):
    """Return CIDEr-D of all pairs, vectors and dots as the paper writes them."""

    def grams(tokens, n):
        return Counter(tokens[i : i + n] for i in range(len(tokens) - n + 1))

    count = Counter(gram for text in references for n in range(1, 5) for gram in grams(text, n))
    weigh = lambda gram: math.log(len(references) / max(1, count[gram]))  # noqa: E731
    matrix = np.zeros((len(references), len(candidates)))
    delta = np.array([max(len(t) - 1, 0) for t in candidates]) - np.array([[max(len(t) - 1, 0)] for t in references])
    for n in range(1, 5):
        ours, theirs = (
            [{g: c * weigh(g) for g, c in grams(t, n).items()} for t in side] for side in (candidates, references)
        )
        lengths = [np.array([math.sqrt(sum(v * v for v in text.values())) for text in side]) for side in (ours, theirs)]
        having = {}
        for c, text in enumerate(ours):
            for gram, value in text.items():
                having.setdefault(gram, []).append((c, value))
        for r, text in enumerate(theirs):
            for gram, value in text.items():
                for c, other in having.get(gram, ()):
                    if value:
                        matrix[r, c] += min(value, other) * value / (lengths[0][c] * lengths[1][r])
    return 2.5 * matrix * np.exp(-(delta**2) / 72)


@pytest.mark.filterwarnings("ignore:.*marks that count as words")  # one impression has a heading
@pytest.mark.parametrize("section", ["impression", "findings"])
def test_iu_xray(section, iu_xray, tmp_path):
    """The oracles of real reports: CIDEr-D against a brute force of its own, METEOR against scores of all pairs."""
    train, test = (
        read_reports(
            iu_xray / "indiana_reports.csv",
            mo.Read(section=section, split=split, split_file=iu_xray / "r2gen_split.csv"),
        )
        for split in ("train", "test")
    )
    index = mo.build_index(train, tmp_path / "I", metrics=["cider-d", "meteor:nltk"])
    asked = test.texts[::8]
    expected = plain_cider(*([tuple(tokenize_coco(text)) for text in side] for side in (train.texts, asked)))
    table = mo.retrieve(index, asked, "cider-d", text=False).table
    rows, scores = table["row"].to_numpy(), table["score"].to_numpy()
    assert np.abs(scores - expected.max(axis=1)).max() < 1e-9
    assert np.abs(scores - expected[np.arange(len(rows)), rows]).max() < 1e-9
    assert (np.abs(expected - scores[:, None]) < 1e-9).sum(axis=1).tolist() == table["n_ties"].to_pylist()
    some = test.texts[::80]
    found = mo.retrieve(index, some, "meteor:nltk", text=False).table
    matrix = mo.pairwise(train.texts, "meteor:nltk", some)
    assert found["row"].to_pylist() == matrix.argmax(axis=0).tolist()
    assert found["score"].to_pylist() == matrix.max(axis=0).tolist()


# What is refused


@pytest.fixture
def index(tmp_path):
    return mo.build_index(reports(["no edema", "new edema", "stable"]), tmp_path / "I", metrics=["bleu", "cider-d"])


def test_a_broken_bound_stops_the_search(index, monkeypatch):
    def too_tight(*values):
        return cpu.WeightedBatch(*values[:-1], values[-1] / 2)

    monkeypatch.setattr("metric_oracle.indexes.cider.WeightedBatch", too_tight)
    with pytest.raises(ExactnessError, match="the bound of a document must be at least its score"):
        mo.retrieve(index, ["no edema new", "new edema"], "cider-d:corpus")


def test_no_nltk(index, monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk.stem.porter", None)
    match = r'^retrieve: METEOR needs the Python package nltk, which is not installed\. Run: pip install "nltk>=\S+"$'
    with pytest.raises(BackendError, match=match):
        mo.retrieve(index, ["edema"], "meteor:nltk-stems")


def test_no_wordnet(index, monkeypatch):
    monkeypatch.setattr(stems, "wordnet_synonyms", real_wordnet_synonyms)
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(
        nltk.corpus, "wordnet", nltk.corpus.LazyCorpusLoader("wordnet", nltk.corpus.WordNetCorpusReader, None)
    )
    match = (
        r"^retrieve: METEOR with synonyms must have WordNet where nltk finds it; got none\. Run .* meteor:nltk-stems\.$"
    )
    with pytest.raises(BackendError, match=match):
        mo.retrieve(index, ["edema"], "meteor:nltk")
