"""The calls of other tools and ours, side by side on three pairs, as docs/coming-from.md has them.

What the published tools compute in general is compared in kernels/test_published.py; here a user replaces one call by
another. A tool that is not installed is skipped.
"""

import pytest

import metric_oracle as mo

REFERENCES = [
    "No acute cardiopulmonary process.",
    "Small left pleural effusion. No pneumothorax.",
    "Heart size is normal. Lungs are clear.",
]
PREDICTIONS = [
    "No acute cardiopulmonary abnormality.",
    "Small left pleural effusion. No pneumothorax.",
    "The heart size is mildly enlarged.",
]


def ours(metric):
    return mo.score(REFERENCES, PREDICTIONS, metric).table[metric].to_pylist()


def prepared(texts):
    """Return texts as captioning papers prepare them."""
    return {str(row): [text.lower().replace(".", " .")] for row, text in enumerate(texts)}


@pytest.mark.parametrize("metric", ["cider-d", "rouge-l:coco", "bleu-4:coco"])
def test_pycocoevalcap(metric):
    pytest.importorskip("pycocoevalcap")
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    scorer = {"cider-d": Cider, "rouge-l:coco": Rouge, "bleu-4:coco": Bleu}[metric]()
    settings = {"verbose": 0} if metric == "bleu-4:coco" else {}
    _, theirs = scorer.compute_score(prepared(REFERENCES), prepared(PREDICTIONS), **settings)
    theirs = theirs[-1] if metric == "bleu-4:coco" else theirs
    assert ours(metric) == pytest.approx(list(theirs), rel=1e-12)


def test_rouge_score_which_evaluate_calls():
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rougeL"])
    theirs = [scorer.score(*pair)["rougeL"].fmeasure for pair in zip(REFERENCES, PREDICTIONS, strict=True)]
    assert ours("rouge-l") == pytest.approx(theirs, rel=1e-12)
    assert mo.compute(predictions=PREDICTIONS, references=REFERENCES, metrics="rouge-l")["rouge-l"] == pytest.approx(
        sum(theirs) / 3, rel=1e-12
    )


def test_sacrebleu():
    """Sentence BLEU is ours with its tokens, two orders and the floor of 0.1; its default is another number."""
    sacrebleu = pytest.importorskip("sacrebleu")
    settings = {"smooth_method": "floor", "smooth_value": 0.1, "max_ngram_order": 2, "effective_order": False}
    scorer = sacrebleu.BLEU(tokenize="none", **settings)
    texts = [[line for (line,) in prepared(side).values()] for side in (PREDICTIONS, REFERENCES)]
    theirs = [
        scorer.sentence_score(*(prediction, [reference])).score / 100
        for prediction, reference in zip(*texts, strict=True)
    ]
    assert ours("bleu-2") == pytest.approx(theirs, rel=1e-6)  # fast_bleu's weights are float32
    default = [
        sacrebleu.sentence_bleu(*pair).score / 100 for pair in zip(PREDICTIONS, ([x] for x in REFERENCES), strict=True)
    ]
    assert default != pytest.approx(theirs, rel=0.01)


def test_nltk_meteor():
    meteor = pytest.importorskip("nltk.translate.meteor_score")

    class NoWord:
        """A WordNet without a word."""

        def synsets(self, word):
            return []

    tokens = [[line.split() for (line,) in prepared(side).values()] for side in (REFERENCES, PREDICTIONS)]
    theirs = [meteor.single_meteor_score(*pair, wordnet=NoWord()) for pair in zip(*tokens, strict=True)]
    assert ours("meteor:nltk-stems") == pytest.approx(theirs, rel=1e-12)
