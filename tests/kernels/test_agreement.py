"""Share of equal labels against brute force: on tied random corpora and on real labels of IU X-ray."""

import csv

import numpy as np
import pytest

from metric_oracle import api
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.vectors import FIVE_LABELS, LABELS, read_labels

POSITIVE = {"positive": (1, 3), "negative": (1,), "blank": (1,)}
METRICS = {"chexbert:agreement": LABELS, "chexbert:agreement-5": FIVE_LABELS}


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["study_id", *LABELS])
        writer.writerows([f"r{i}", *(("", "1", "0", "-1")[c] for c in row)] for i, row in enumerate(rows.tolist()))
    return path


def reports(n):
    return Reports([f"r{i}" for i in range(n)], [f"report {i}" for i in range(n)], "made up", {}, {})


def check(corpus, tests, uncertain, folder, k):
    """Compare the best k of every test report with brute force; ties go to the lowest row."""
    index = api.build_index(
        reports(len(corpus)), folder / "I", metrics=[*METRICS], chexbert_labels=write(folder / "c.csv", corpus),
        uncertain=uncertain,
    )  # fmt: skip
    queries = api.load_queries(reports(len(tests)), chexbert_labels=write(folder / "t.csv", tests), uncertain=uncertain)
    for metric, labels in METRICS.items():
        places = [LABELS.index(label) for label in labels]
        sides = [np.isin(rows[:, places], POSITIVE[uncertain]) for rows in (tests, corpus)]
        share = (sides[0][:, None] == sides[1]).mean(axis=2)
        table = api.retrieve(index, queries, metric, k=k).table
        rows, scores = (table[name].to_numpy().reshape(len(tests), k) for name in ("row", "score"))
        expected = np.argsort(-share, axis=1, kind="stable")[:, :k]
        assert np.array_equal(rows, expected)
        assert scores == pytest.approx(np.take_along_axis(share, expected, axis=1), rel=1e-15, abs=0)
        best = table["n_ties"].to_numpy().reshape(len(tests), k)[:, 0]
        assert np.array_equal(best, (share == share.max(axis=1, keepdims=True)).sum(axis=1))


@pytest.mark.parametrize("uncertain", POSITIVE)
@pytest.mark.parametrize("n_used", [2, 14])
def test_random_corpora_full_of_ties(uncertain, n_used, tmp_path):
    rng = np.random.default_rng(n_used)
    corpus, tests = (np.zeros((n, 14), np.uint8) for n in (211, 37))
    for rows in (corpus, tests):
        rows[:, :n_used] = rng.choice(4, (len(rows), n_used), p=(0.5, 0.25, 0.15, 0.1))
        rows[:, 13] %= 2  # CheXbert has two classes of No Finding
    check(corpus, tests, uncertain, tmp_path, 9)


def test_real_labels(iu_xray, tmp_path):
    labels = read_labels(iu_xray / "chexbert_labels_organ.csv").values
    check(labels[300:], labels[:300], "positive", tmp_path, 5)
