"""CRG: the paper's equations and Table 2, trivial answers, empty classes; the contributions against all assignments."""

import io
import itertools
from fractions import Fraction

import numpy as np
import pytest
from rich.console import Console

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.views import answers_table
from metric_oracle.indexes.shards import open_index
from metric_oracle.kernels.crg.reference import score
from metric_oracle.kernels.crg.score import contribution, crg
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.sources.contract import Attachment
from metric_oracle.verification.verify import verify

# Table 2 of Hamamci et al. (MIDL 2025): TP, FN, FP, TN, CRG printed, CRG of these counts.
TABLE_2 = {
    "RadFM": (550, 9985, 1766, 42401, 0.335, 0.3361),
    "CT2Rep": (1561, 8974, 1804, 42363, 0.359, 0.3590),
    "CT-CHAT": (2224, 8311, 3081, 41086, 0.368, 0.3680),
    "Merlin": (1504, 9031, 2694, 41473, 0.352, 0.3526),
}


def by_the_paper(tp: int, fn: int, fp: int, tn: int) -> Fraction:
    """Return CRG as equations 2 and 3 have it, in fractions."""
    t, a = tp + fn + fp + tn, tp + fn
    w = Fraction(t - a, 2 * a)
    s_max = a * w
    return s_max / (2 * s_max - (tp * w - fn * w - fp))


@pytest.mark.parametrize("model", TABLE_2)
def test_table_2(model):
    tp, fn, fp, tn, printed, recomputed = TABLE_2[model]
    value = crg(fn, fp, tp + fn, tp + fn + fp + tn)
    assert value == pytest.approx(printed, abs=0.0015)
    assert value == pytest.approx(recomputed, abs=5e-5)


def test_the_equations():
    for tp, fn, fp, tn in itertools.product((0, 1, 2, 7), (0, 1, 5), (0, 1, 3, 40), (0, 1, 9)):
        if tp + fn and fp + tn:
            assert crg(fn, fp, tp + fn, tp + fn + fp + tn) == float(by_the_paper(tp, fn, fp, tn))


@pytest.mark.parametrize(("positives", "labels"), [(1, 2), (3, 7), (10535, 54702), (2, 3), (999, 1000)])
def test_trivial_reports_have_a_third(positives, labels):
    always_normal = crg(positives, 0, positives, labels)
    always_abnormal = crg(0, labels - positives, positives, labels)
    assert always_normal == always_abnormal == 1 / 3
    assert crg(0, 0, positives, labels) == 1.0
    assert crg(positives, labels - positives, positives, labels) == 1 / 5


def test_youden():
    tp, fn, fp, tn, *_ = TABLE_2["CT-CHAT"]
    j = tp / (tp + fn) + tn / (tn + fp) - 1
    assert crg(fn, fp, tp + fn, tp + fn + fp + tn) == pytest.approx(1 / (3 - 2 * j), rel=1e-12)


def test_an_empty_class_has_no_errors():
    assert [crg(0, fp, 0, 8) for fp in (0, 4, 8)] == [1.0, 0.5, 1 / 3]  # A = 0: nothing to miss
    assert [crg(fn, 0, 8, 8) for fn in (0, 4, 8)] == [1.0, 0.5, 1 / 3]  # T = A: nothing to invent
    assert contribution(0, 3, 0, 8, 2) == 1 - 2 * 2 * 3 / 8
    assert contribution(3, 0, 8, 8, 2) == 1 - 2 * 2 * 3 / 8


def test_the_reference_scorer():
    value, counts = score(({1, 2, 5}, None), ({2, 3, 4}, {"positives": 4, "labels": 10, "reports": 2}))
    assert counts == {"tp": 1, "fn": 2, "fp": 2}
    assert value == pytest.approx(1 - 2 * 2 * (2 / 4 + 2 / 6), rel=1e-15)


# The oracle: labels as the index has them


def inputs(rows: np.ndarray, prefix: str) -> Reports:
    """Return reports with the given classes (0 blank, 1 positive, 2 negative, 3 uncertain), uint8[n, 14]."""
    ids = [f"{prefix}{i}" for i in range(len(rows))]
    return Reports(
        ids,
        [f"report {i}" for i in ids],
        attached={"labels": Attachment(rows, np.arange(len(rows)), {"uncertain": "positive"})},
    )


def index_of(rows: np.ndarray, folder):
    import csv

    path = folder / "labels.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["study_id", *LABELS])
        writer.writerows([f"c{i}", *(("", "1", "0", "-1")[c] for c in row)] for i, row in enumerate(rows.tolist()))
    reports = Reports([f"c{i}" for i in range(len(rows))], [f"report {i}" for i in range(len(rows))], "made up")
    return build_index(mo.reports(reports, chexbert_labels=path, uncertain="positive"), folder / "I", metrics=["crg"])


def draw(rng: np.random.Generator, n: int, n_used: int) -> np.ndarray:
    """Draw classes of the first labels; the others stay blank. "No Finding" is positive where nothing else is."""
    rows = np.zeros((n, 14), np.uint8)
    rows[:, :n_used] = rng.choice(4, (n, n_used), p=(0.5, 0.25, 0.15, 0.1))
    rows[:, 13] = ~np.isin(rows[:, :13], (1, 3)).any(axis=1)
    return rows


def data_set_crg(truth: np.ndarray, given: np.ndarray) -> Fraction:
    tp, fn, fp, tn = (int(np.sum(x)) for x in (truth & given, truth & ~given, ~truth & given, ~truth & ~given))
    return by_the_paper(tp, fn, fp, tn)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_contributions_are_the_greatest_crg_of_all_assignments(seed, tmp_path):
    rng = np.random.default_rng(seed)
    corpus, tests = draw(rng, 5, 4), draw(rng, 4, 4)
    tests[0, 0], tests[1, 0] = 1, 2  # both classes are there
    candidates, truth = (np.isin(rows[:, :13], (1, 3)) for rows in (corpus, tests))
    every = [data_set_crg(truth, candidates[list(chosen)]) for chosen in itertools.product(range(5), repeat=len(tests))]
    results = retrieve(index_of(corpus, tmp_path), inputs(tests, "t"), "crg")
    rows, scores = results.table["row"].to_numpy(), results.table["score"].to_numpy()
    assert data_set_crg(truth, candidates[rows]) == max(every)
    assert 1 / (2 - scores.mean()) == pytest.approx(float(max(every)), rel=1e-12)
    assert results.signature["prevalence"] == {"positives": int(truth.sum()), "labels": 52, "reports": 4}
    assert results.signature["counted"] == list(LABELS[:13])


def test_the_mean_of_any_answer_is_its_crg(tmp_path):
    rng = np.random.default_rng(9)
    corpus, tests = draw(rng, 30, 13), draw(rng, 17, 13)
    candidates, truth = (np.isin(rows[:, :13], (1, 3)) for rows in (corpus, tests))
    table = retrieve(index_of(corpus, tmp_path), inputs(tests, "t"), "crg", k=30).table.to_pylist()
    for rank in (1, 2, 15, 30):
        answers = [answer for answer in table if answer["rank"] == rank]
        mean = np.mean([answer["score"] for answer in answers])
        expected = data_set_crg(truth, candidates[[answer["row"] for answer in answers]])
        assert 1 / (2 - mean) == pytest.approx(float(expected), rel=1e-12)
        fn, fp = (sum(answer[name] for answer in answers) for name in ("fn", "fp"))
        assert crg(fn, fp, int(truth.sum()), truth.size) == float(expected)


def test_trivial_candidates_have_a_third(tmp_path):
    tests = draw(np.random.default_rng(2), 12, 13)
    corpus = np.zeros((2, 14), np.uint8)
    corpus[0, 13], corpus[1, :13] = 1, 1
    index = index_of(corpus, tmp_path)
    table = retrieve(index, inputs(tests, "t"), "crg", k=2).table.to_pylist()
    for row in (0, 1):
        mean = np.mean([answer["score"] for answer in table if answer["row"] == row])
        assert 1 / (2 - mean) == pytest.approx(1 / 3, rel=1e-12)


def test_blank_and_negative_are_one_and_no_finding_does_not_count(tmp_path):
    corpus = np.zeros((4, 14), np.uint8)
    corpus[1, :13] = 2
    corpus[2, 13] = 1
    corpus[3, 0] = 3
    index = index_of(corpus, tmp_path)
    tests = np.zeros((2, 14), np.uint8)
    tests[1, 0] = 1
    table = retrieve(index, inputs(tests, "t"), "crg", k=4).table
    assert table["n_ties"].to_pylist() == [3, 3, 3, 1, 1, 3, 3, 3]
    assert table["row"].to_pylist() == [0, 1, 2, 3, 3, 0, 1, 2]
    assert table["score"].to_pylist()[:3] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("value", [0, 1])
def test_tests_of_one_class(tmp_path, value):
    corpus, tests = draw(np.random.default_rng(4), 20, 13), np.zeros((3, 14), np.uint8)
    tests[:, :13] = value
    results = retrieve(index_of(corpus, tmp_path), inputs(tests, "t"), "crg", k=20)
    assert np.isfinite(results.table["score"].to_numpy()).all()
    slow = retrieve(open_index(tmp_path / "I"), inputs(tests, "t"), "crg", k=20, backend="reference")
    assert results.table.equals(slow.table)


def test_a_part_of_the_tests_with_the_counts_of_the_whole(tmp_path):
    rng = np.random.default_rng(6)
    corpus, tests = draw(rng, 40, 13), draw(rng, 9, 13)
    index = index_of(corpus, tmp_path)
    whole = retrieve(index, inputs(tests, "t"), "crg", k=3)
    part = retrieve(
        index, inputs(tests[:4], "t"), "crg", k=3, options=SearchOptions(prevalence=whole.signature["prevalence"])
    )
    assert part.table.equals(whole.table.slice(0, 12))
    assert verify(index, part, inputs(tests[:4], "t"), sample=2) == {"pairs": 12, "queries": 2}
    assert verify(index, whole, inputs(tests, "t"), sample=5) == {"pairs": 27, "queries": 5}


@pytest.mark.parametrize(
    "prevalence",
    [
        {},
        {"positives": 1, "labels": 13},
        {"positives": 1, "labels": 14, "reports": 1},
        {"positives": -1, "labels": 13, "reports": 1},
        {"positives": 14, "labels": 13, "reports": 1},
        {"positives": 0, "labels": 0, "reports": 0},
        {"positives": True, "labels": 13, "reports": 1},
        {"positives": 1, "labels": 13, "reports": 1, "more": 1},
    ],
)
def test_counts_that_cannot_be(tmp_path_factory, prevalence):
    index = index_of(np.ones((1, 14), np.uint8), tmp_path_factory.mktemp("i"))
    match = (
        r"^retrieve: prevalence must be a dict of the ints positives, labels and reports, where labels is 13 times "
        r"reports; got .*\. "
        r"Copy it from the signature of the whole test set, or leave it out\.$"
    )
    with pytest.raises(InputError, match=match):
        retrieve(index, inputs(np.ones((1, 14), np.uint8), "t"), "crg", options=SearchOptions(prevalence=prevalence))


def test_counts_of_other_types():
    for prevalence, got in (([1, 13, 1], "a list of int"), ({"positives": 1.0}, "a dict from str to float")):
        with pytest.raises(InputError, match=rf"^SearchOptions: prevalence must be a dict .*; got {got}\."):
            mo.SearchOptions(prevalence=prevalence)


def test_counts_for_another_metric(tmp_path):
    index = index_of(np.ones((1, 14), np.uint8), tmp_path)
    match = (
        r"^retrieve: prevalence must be left out for metric 'chexbert:labels'; got a value\. Leave out `prevalence`\.$"
    )
    with pytest.raises(InputError, match=match):
        retrieve(
            index, inputs(np.ones((1, 14), np.uint8), "t"), "chexbert:labels", options=SearchOptions(prevalence={})
        )


def test_the_table_tells_the_crg_of_the_best_answers(tmp_path):
    rng = np.random.default_rng(1)
    corpus, tests = draw(rng, 9, 13), draw(rng, 5, 13)
    results = retrieve(index_of(corpus, tmp_path), inputs(tests, "t"), "crg")
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(answers_table(results))
    best = 1 / (2 - results.table["score"].to_numpy().mean())
    assert best < 1
    assert f"CRG of the best answers {best:.4f}" in console.export_text()
