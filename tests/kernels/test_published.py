"""Our plain scorers give the numbers of the published tools, on real reports where these may be used.

The tools are run here where they are installed (fast-bleu 0.0.90, NLTK 3.10, rouge-score 0.1.2, pycocoevalcap 1.2);
the values of radgraph 0.1.18 come from `tests/golden/make_radgraph_rewards.py`. The fast kernels answer to the plain
scorers, see `test_search.py`.
"""

import json
import random
from pathlib import Path

import pytest

from metric_oracle.corpora.radgraph_json import read_graphs
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import read_reports
from metric_oracle.indexes.ngrams import tokenize_bleu, tokenize_rouge
from metric_oracle.indexes.radgraph import spell_graph
from metric_oracle.kernels.bleu.reference import score as bleu
from metric_oracle.kernels.radgraph.reference import score as radgraph
from metric_oracle.kernels.rouge_l.reference import score as rouge_l
from metric_oracle.metrics import get_metric
from support import published

GOLDEN = Path(__file__).parents[1] / "golden/radgraph_rewards.json"
ORDERS = (1, 2, 3, 4)
WEIGHTS = {order: (1 / order,) * order for order in ORDERS}


@pytest.fixture(scope="module")
def groups(iu_xray) -> list[tuple[str, list[str]]]:
    """Return references, each with random candidates, likely ones (close in the alphabet) and itself."""
    rng = random.Random(4)
    chosen = []
    for section, n in (("impression", 170), ("findings", 80)):
        texts = read_reports(iu_xray / "indiana_reports.csv", Read(section=section)).texts
        in_order = sorted(texts)
        for _ in range(n):
            place = rng.randrange(len(in_order) - 9)
            chosen.append((in_order[place], rng.sample(texts, 6) + in_order[place : place + 6]))
    return chosen


@pytest.fixture(scope="module")
def pairs(groups) -> list[tuple[str, str]]:
    return [(candidate, reference) for reference, candidates in groups for candidate in candidates]


@pytest.fixture(scope="module")
def tokens(pairs) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(tuple(tokenize_bleu(candidate)), tuple(tokenize_bleu(reference))) for candidate, reference in pairs]


def test_the_pairs_are_many_and_mixed(tokens):
    scores = [bleu(*pair, order=2, coco=False)[0] for pair in tokens]
    assert len(scores) == 3000
    assert sum(score == 0 for score in scores) > 30
    assert sum(score == 1 for score in scores) > 250
    assert sum(0 < score < 1 for score in scores) > 1500
    assert min(len(candidate) for candidate, _ in tokens) < 4


def test_bleu_equals_fast_bleu(groups):
    fast_bleu = published("fast_bleu")
    weights = WEIGHTS | {1: (1.0, 0.0)}  # it takes no single weight
    for reference, candidates in groups:
        words = [tokenize_bleu(candidate) for candidate in candidates]
        expected = fast_bleu.BLEU([tokenize_bleu(reference)], weights).get_score(words)
        for order in ORDERS:
            tolerance = 1e-6 if order == 3 else 1e-12  # its weights are float32, which holds 1/3 to eight digits
            for candidate, value in zip(words, expected[order], strict=True):
                ours = bleu(tuple(candidate), tuple(tokenize_bleu(reference)), order=order, coco=False)[0]
                assert ours == pytest.approx(value, abs=tolerance, rel=0)


@pytest.mark.parametrize("order", ORDERS)
def test_bleu_equals_nltk_with_smoothing_method_1(tokens, order):
    nltk = published("nltk.translate.bleu_score")
    smooth = nltk.SmoothingFunction().method1
    for candidate, reference in tokens:
        expected = nltk.sentence_bleu([reference], candidate, WEIGHTS[order], smoothing_function=smooth)
        assert bleu(candidate, reference, order=order, coco=False)[0] == pytest.approx(expected, abs=1e-12, rel=0)


def test_coco_bleu_equals_pycocoevalcap(tokens):
    coco = published("pycocoevalcap.bleu.bleu_scorer")
    n_unmatched = 0
    for candidate, reference in tokens:
        scorer = coco.BleuScorer(n=4)
        scorer += (" ".join(candidate), [" ".join(reference)])
        _, per_pair = scorer.compute_score(option="closest", verbose=0)
        for order in ORDERS:
            ours, expected = bleu(candidate, reference, order=order, coco=True)[0], per_pair[order - 1][0]
            if set(candidate) & set(reference):
                assert ours == pytest.approx(expected, abs=1e-12, rel=0)
            else:  # the documented difference: what it gives there is rounding noise of its constants
                assert ours == 0.0
                assert expected < 1e-3
                n_unmatched += 1
    assert n_unmatched > 4 * 30


def test_rouge_l_equals_rouge_score(pairs):
    rouge_scorer = published("rouge_score.rouge_scorer")
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
    for candidate, reference in pairs:
        expected = scorer.score(reference, candidate)["rougeL"]
        ours, components = rouge_l(tuple(tokenize_rouge(candidate)), tuple(tokenize_rouge(reference)))
        assert ours == pytest.approx(expected.fmeasure, abs=1e-12, rel=0)
        assert components == {"precision": expected.precision, "recall": expected.recall}


def test_coco_rouge_l_equals_pycocoevalcap(tokens):
    """On BLEU's tokens joined by blanks, which is what a caller of pycocoevalcap hands over in this field."""
    scorer = published("pycocoevalcap.rouge.rouge").Rouge()
    for candidate, reference in tokens:
        expected = scorer.calc_score([" ".join(candidate)], [" ".join(reference)])
        ours, components = rouge_l(candidate, reference, coco=True)
        if candidate or reference:
            assert ours == pytest.approx(expected, abs=1e-12, rel=0)
        else:  # the documented difference: it takes nothing for a word
            assert (ours, expected) == (0.0, 1.0)
        if ours:
            p, r = components["precision"], components["recall"]
            assert ours == pytest.approx(2.44 * p * r / (r + 1.44 * p), rel=1e-14)


def test_radgraph_variants_equal_the_package(tmp_path):
    """Values of radgraph 0.1.18 (`rewards.compute_reward`), made by `tests/golden/make_radgraph_rewards.py`."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    (tmp_path / "graphs.json").write_text(json.dumps(golden["graphs"]), encoding="utf-8")
    table = read_graphs(tmp_path / "graphs.json")
    assert table.keys == [f"g{i}" for i in range(len(table.keys))]
    graphs = [spell_graph(table, g) for g in range(len(table.keys))]
    assert len(golden["pairs"]) == 900
    differing = 0
    for hypothesis, reference, *expected in golden["pairs"]:
        for variant, value in zip(("rg_e", "rg_er", "rg_er-bar"), expected, strict=True):
            options = get_metric(f"radgraph:{variant}").options
            ours = radgraph(graphs[hypothesis], graphs[reference], **options)[0]
            assert ours == pytest.approx(value, abs=1e-12, rel=0)
        differing += len(set(expected)) == 3
    assert differing > 100
