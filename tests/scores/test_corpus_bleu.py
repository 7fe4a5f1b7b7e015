"""BLEU of a whole set is pycocoevalcap's, from the raw text on; its interval adds counts in each resample."""

import json
from pathlib import Path

import numpy as np
import pytest

from metric_oracle.base.option_types import LEGACY
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.findings.corpus_bleu import corpus_bleu, counts_in, of_scores
from metric_oracle.scores.scoring import score
from metric_oracle.tables.compare import compare
from support import published

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = [f"bleu-{order}:coco" for order in (1, 2, 3, 4)]


def reports(texts):
    texts = list(texts)
    return Reports([f"r{i}" for i in range(len(texts))], texts, "made up")


@pytest.mark.parametrize("name", ["published", "impression", "findings"])
def test_the_published_values(name, request):
    pairs = json.loads((GOLDEN / "meteor_cider.json").read_text(encoding="utf-8"))["sets"][name]
    if name == "published":
        made = json.loads((GOLDEN / "published.json").read_text(encoding="utf-8"))
        by_id = {i: text for i, (text, *_) in enumerate(made["texts"])}
    else:
        read = read_reports(request.getfixturevalue("iu_xray") / "indiana_reports.csv", Read(section=name))
        by_id = dict(zip(read.ids, read.texts, strict=True))
    assert len(pairs) > 200
    truth, candidates = (reports(by_id[pair[side]] for pair in pairs) for side in (1, 0))
    table = score(truth, candidates, NAMES).table
    expected = json.loads((GOLDEN / "corpus_bleu.json").read_text(encoding="utf-8"))["sets"][name]
    assert [of_scores(table, metric) for metric in NAMES] == pytest.approx(expected, abs=1e-12)
    assert max(abs(of_scores(table, m) - np.mean(table[m].to_numpy())) for m in NAMES) > 0.01  # no mean of sentences


def test_pycocoevalcap_gives_the_golden_values():
    tool = published("pycocoevalcap.bleu.bleu")
    made = json.loads((GOLDEN / "published.json").read_text(encoding="utf-8"))
    pairs = json.loads((GOLDEN / "meteor_cider.json").read_text(encoding="utf-8"))["sets"]["published"]
    sides = ({}, {})
    for n, pair in enumerate(pairs):
        for side, i in zip(sides, (pair[1], pair[0]), strict=True):
            side[n] = [made["texts"][i][0].lower().replace(".", " .")]
    expected = json.loads((GOLDEN / "corpus_bleu.json").read_text(encoding="utf-8"))["sets"]["published"]
    assert tool.Bleu(4).compute_score(*sides, verbose=0)[0] == expected


@pytest.fixture(scope="module")
def systems():
    rng = np.random.default_rng(3)
    words = np.array(["no", "acute", "effusion", "heart", "is", "normal", "in", "size", "small", "left", "."])
    texts = [" ".join(rng.choice(words, n)) for n in rng.integers(1, 14, 40)]
    found = {}
    for name, share in (("good", 0.2), ("poor", 0.6)):
        changed = [
            " ".join(word if rng.random() > share else str(rng.choice(words)) for word in text.split())
            for text in texts
        ]
        changed[5], changed[6] = "", "xyz"  # no token; no match
        found[name] = score(reports(texts), reports(changed), ["bleu-4:coco", "bleu-2"], system=name)
    return found


def test_a_column_of_the_table(systems):
    found = compare(systems, paired=[("good", "poor")], resamples=300, seed=4)
    assert [column.metric for column in found.columns] == ["bleu-4:coco", "bleu-4:coco (corpus)", "bleu-2"]
    assert found.columns[1].n == 40
    counts = {name: counts_in(one.table, "bleu-4:coco") for name, one in systems.items()}
    drawn = np.random.default_rng(4).integers(0, 40, (300, 40))
    for name, some in counts.items():
        cell = found.cells[name, "bleu-4:coco (corpus)"]
        assert cell.mean == pytest.approx(of_scores(systems[name].table, "bleu-4:coco"), rel=1e-12)
        assert cell.minimum is cell.maximum is None
        resampled = [float(corpus_bleu(some[:, rows].sum(axis=1))) for rows in drawn]
        low, high = np.quantile(resampled, [0.001, 0.999])
        assert low <= cell.interval.low < cell.mean < cell.interval.high <= high
    by_percentile = compare(systems, method="percentile", resamples=300, seed=4).cells["good", "bleu-4:coco (corpus)"]
    resampled = [float(corpus_bleu(counts["good"][:, rows].sum(axis=1))) for rows in drawn]
    assert by_percentile.interval[:2] == pytest.approx(np.quantile(resampled, [0.025, 0.975]), rel=1e-10)
    difference = next(d for d in found.differences if d.metric == "bleu-4:coco (corpus)")
    assert difference.p_value < 0.05
    assert difference.difference == pytest.approx(
        found.cells["good", difference.metric].mean - found.cells["poor", difference.metric].mean
    )
    assert "BLEU-4 of the corpus (pycocoevalcap) ↑" in found.tables()[0].columns
    assert [c.metric for c in compare(systems, method=LEGACY).columns] == ["bleu-4:coco", "bleu-2"]


def test_the_paired_interval_is_the_percentile_bootstrap_of_corpus_scores(systems):
    found = compare(systems, paired=[("good", "poor")], resamples=200, seed=3)
    (difference,) = (d for d in found.differences if d.metric == "bleu-4:coco (corpus)")
    good, poor = (counts_in(one.table, "bleu-4:coco") for one in systems.values())
    n = good.shape[1]
    drawn = np.random.default_rng(3).integers(0, n, (200, n))
    moved = np.sort(
        [float(corpus_bleu(good[:, rows].sum(axis=1)) - corpus_bleu(poor[:, rows].sum(axis=1))) for rows in drawn]
    )
    assert difference.interval[:2] == pytest.approx((moved[4], moved[-5]), abs=1e-12)  # 5 of 200 + 1 on either side
    assert difference.p_value == pytest.approx(min(1, 2 * ((moved <= 0).sum() + 1) / 201))
    same = compare({"a": systems["good"], "b": systems["good"]}, paired=[("a", "b")], resamples=200)
    assert [(d.difference, d.p_value, d.interval.degenerate) for d in same.differences] == [(0, 1, True)] * 3


def test_oracle_score_prints_it(systems, oracle, tmp_path):
    for side in ("test", "made"):
        (tmp_path / f"{side}.csv").write_text(f"id,report\na,no acute effusion .\nb,heart {side} size .\n")
    code, out, _ = oracle(
        "score", tmp_path / "test.csv", tmp_path / "made.csv", "-m", "bleu-2:coco", "--format", "table"
    )
    assert code == 0
    assert "bleu-2:coco of the" in " ".join(out.split())


def test_no_match_is_zero():
    assert float(corpus_bleu(np.array([0, 0, 5, 4, 5, 6.0]))) == 0.0
    assert float(corpus_bleu(np.array([5, 4, 5, 4, 5, 5.0]))) == pytest.approx(1, abs=1e-9)
