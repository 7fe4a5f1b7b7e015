"""Share of equal labels and F1 of sets of them against brute force: on tied random corpora, on real labels."""

import csv

import numpy as np
import polars as pl
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import FIVE_LABELS, LABELS, read_labels
from metric_oracle.corpora.reports import Reports
from metric_oracle.kernels.chexbert_labels import cpu
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from support import write_srr

POSITIVE = {"positive": (1, 3), "negative": (1,), "blank": (1,)}
METRICS = {"chexbert:agreement": LABELS, "chexbert:agreement-5": FIVE_LABELS}


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["study_id", *LABELS])
        writer.writerows([f"r{i}", *(("", "1", "0", "-1")[c] for c in row)] for i, row in enumerate(rows.tolist()))
    return path


def reports(n):
    return Reports([f"r{i}" for i in range(n)], [f"report {i}" for i in range(n)], "made up")


def check(corpus, tests, uncertain, folder, k):
    """Compare the best k of every test report with brute force; ties go to the lowest row."""
    index = build_index(
        mo.reports(reports(len(corpus)), chexbert_labels=write(folder / "c.csv", corpus), uncertain=uncertain),
        folder / "I",
        metrics=[*METRICS],
    )
    queries = mo.reports(
        reports(len(tests)), chexbert_labels=write(folder / "t.csv", tests), uncertain=uncertain
    ).load()
    for metric, labels in METRICS.items():
        places = [LABELS.index(label) for label in labels]
        sides = [np.isin(rows[:, places], POSITIVE[uncertain]) for rows in (tests, corpus)]
        share = (sides[0][:, None] == sides[1]).mean(axis=2)
        table = retrieve(index, queries, metric, k=k).table
        rows, scores = (table[name].to_numpy().reshape(len(tests), k) for name in ("row", "score"))
        expected = np.argsort(-share, axis=1, kind="stable")[:, :k]
        assert np.array_equal(rows, expected)
        assert np.array_equal(scores, np.take_along_axis(share, expected, axis=1))  # k / n, to the last bit
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


N_LABELS = 50
SHARES = [7, 14, 17, 28, 34, 47]  # of 50: sqrt(k^2 / n^2) is not k / n


def labelled(ids, positives):
    """Return reports that have the first labels of a table of `N_LABELS`, as many as `positives` says."""
    columns = {f"l{j}": [float(j < n) for n in positives] for j in range(N_LABELS)}
    return mo.reports(dict.fromkeys(ids, "a report"), labels=pl.DataFrame({"study_id": list(ids)} | columns))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_share_at_a_threshold_is_the_number_that_people_type(backend, tmp_path):
    """`--min-score 0.56` and `--where "...>=0.56"` keep 28 of 50; the next greater number leaves it out."""
    index = mo.build_index(labelled(["all"], [N_LABELS]), tmp_path / "I", metrics="labels:agreement,rouge-l")
    for k in SHARES:
        share, own = float(f"{k / N_LABELS:.2f}"), labelled(["q"], [k])
        for least, n in ((share, 1), (np.nextafter(share, 1), 0)):
            options = mo.SearchOptions(min_score=float(least), backend=backend)
            found = mo.retrieve(index, own, "labels:agreement", options=options).table
            assert found["score"].to_pylist() == [share] * n
            if backend == "cpu":
                where = mo.SearchOptions(where=f"labels:agreement>={float(least)!r}")
                assert mo.retrieve(index, own, "rouge-l", options=where).table.num_rows == n


def test_blocks_of_queries_score_as_pairs():
    """In any order of more queries than a block has; blank vectors and opposite ones among them."""
    vectors = np.random.default_rng(4).integers(-1, 2, (90, 14)).astype(np.int8)
    vectors[::9] = 0
    vectors[1] = -vectors[2]
    corpus = cpu.LabelVectors(vectors, np.arange(91), np.arange(90))
    batch = cpu.LabelVectors(vectors[:70], np.arange(71), np.arange(70))
    chosen = [*range(69, 0, -2), *range(0, 70, 2)]
    kernel = cpu.Backend()
    for q, scores in zip(chosen, kernel.score_all(corpus, batch, chosen), strict=True):
        expected, _ = kernel.score_pairs(corpus, batch, np.full(90, q), np.arange(90))
        assert np.array_equal(scores, expected)
        assert not np.signbit(scores[scores == 0]).any()
        assert scores[q] == vectors[q].any()


def f1_of(one, other):
    sizes = one.sum() + other.sum()
    return 2 * float((one & other).sum()) / float(sizes) if sizes else 0.0


def check_srr(corpus, tests, folder, k):
    """Compare SRR-BERT's metrics of the best k with brute force, and what score says of these pairs."""
    sides = {"c": corpus, "t": tests}
    files = {name: write_srr(folder / f"{name}.csv", [f"r{i}" for i in range(len(c))], c) for name, c in sides.items()}
    metrics = ["srr-bert", "srr-bert:agreement"]
    index = build_index(mo.reports(reports(len(corpus)), srr_labels=files["c"]), folder / "I", metrics=metrics)
    queries = mo.reports(reports(len(tests)), srr_labels=files["t"]).load()
    asked, held = (np.stack([c == n for n in (1, 2, 3)], axis=2).reshape(len(c), -1) for c in (tests, corpus))
    expected = {
        "srr-bert": np.array([[f1_of(one, other) for other in held] for one in asked]),
        "srr-bert:agreement": (asked[:, None] == held).mean(axis=2),
    }
    for metric in metrics:
        table = retrieve(index, queries, metric, k=k).table
        rows, scores = (table[name].to_numpy().reshape(len(tests), k) for name in ("row", "score"))
        wanted = expected[metric]
        best = np.argsort(-np.round(wanted, 12), axis=1, kind="stable")[:, :k]
        assert np.array_equal(rows, best)
        assert np.array_equal(scores, np.take_along_axis(wanted, best, axis=1))
        assert len(np.unique(wanted)) > 2


@pytest.mark.parametrize("n_used", [2, 14])
def test_srr_on_random_corpora_full_of_ties(n_used, tmp_path):
    rng = np.random.default_rng(n_used)
    corpus, tests = (np.zeros((n, 14), np.uint8) for n in (211, 37))
    for rows in (corpus, tests):
        rows[:, :n_used] = rng.choice(4, (len(rows), n_used), p=(0.5, 0.25, 0.15, 0.1))
        rows[::9] = 0
    check_srr(corpus, tests, tmp_path, 9)


def test_srr_of_real_labels(iu_xray, tmp_path):
    labels = read_labels(iu_xray / "chexbert_labels_organ.csv").values
    check_srr(labels[300:1300], labels[:120], tmp_path, 5)


def test_labels_that_do_not_fit(tmp_path, fails):
    classes = np.ones((3, 14), int)
    files = [write_srr(tmp_path / f"{name}.csv", ["r0", "r1", "r2"], classes) for name in "cd"]
    other = tmp_path / "other.csv"
    other.write_text("study_id,Edema (Present)\nr0,1\nr1,0\nr2,\n")
    index = build_index(mo.reports(reports(3), srr_labels=files[0]), tmp_path / "I", metrics=["srr-bert"])
    match = r"^retrieve: schema must be '42 labels, sha256 \w{12}' as in the index; got '1 labels, sha256 \w{12}'\."
    with pytest.raises(InputError, match=match):
        retrieve(index, mo.reports(reports(3), srr_labels=other).load(), "srr-bert")
    other.write_text("study_id,Edema (Present)\nr0,1\nr1,-1\nr2,\n")
    match = (
        r"^AttachedReports\.load: SRR labels must be 1, 0 or empty; got -1 in 1 of 1 columns of .*\. "
        r"Write a column of 1"
    )
    with pytest.raises(InputError, match=match):
        mo.reports(reports(3), srr_labels=other).load()
    match = (
        r"^AttachedReports\.load: SRR labels must be a table with a column for each label; got the list "
        r"in memory\. Pass one"
    )
    with pytest.raises(InputError, match=match):
        mo.reports(reports(3), srr_labels=[1, 2, 3]).load()
    (tmp_path / "r.csv").write_text("study_id,report\nr0,a b\n")
    fails("score", tmp_path / "r.csv", tmp_path / "r.csv", "-m", "srr-bert", match=(
        r"score: SRR labels of both sides must be given for metric 'srr-bert'; got none\. Add --srr-labels FILE by "
        r"oracle reports NAME FILE, for each side\.$"
    ), notes="(references|predictions): ")  # fmt: skip


def test_srr_is_a_column(tmp_path, oracle, named):
    rng = np.random.default_rng(2)
    ids = [f"r{i}" for i in range(9)]
    classes = rng.choice(4, (2, 9, 14))
    truth, given = (write_srr(tmp_path / f"{name}.csv", ids, c) for name, c in zip("tg", classes, strict=True))
    (tmp_path / "r.csv").write_text("study_id,report\n" + "".join(f"{i},text {i}\n" for i in ids))
    both = [named(name, tmp_path / "r.csv", srr_labels=labels) for name, labels in (("t", truth), ("g", given))]
    code, shown, err = oracle("score", *both, "-m", "srr-bert,srr-bert:agreement", "--format", "csv")
    assert code == 0, err
    sides = [np.stack([c == n for n in (1, 2, 3)], axis=2).reshape(9, -1) for c in classes]
    rows = list(csv.DictReader(shown.splitlines()))
    assert [float(row["srr-bert"]) for row in rows] == pytest.approx([*map(f1_of, *sides)], rel=1e-15)
    assert [float(row["srr-bert:agreement"]) for row in rows] == (sides[0] == sides[1]).mean(axis=1).tolist()
