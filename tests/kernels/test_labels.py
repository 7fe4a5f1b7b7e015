"""Agreement and F1 of tables of labels with missing cells: the definition, scikit-learn, and the special cases."""

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.kernels.labels.reference import score
from support import published, write
from support.orders import in_another_order

MEASURES = ("agreement", "f1")


def tables(rng, n, n_labels, missing, folder, name):
    """Return cells 1, 0 and -9 (missing), int[n, L], many rows equal, and a file of them."""
    pool = rng.integers(0, 2, (max(n // 3, 1), n_labels))
    cells = pool[rng.integers(0, len(pool), n)]
    cells[rng.random(cells.shape) < missing] = -9
    rows = [[f"r{i}", *("" if c == -9 else c for c in row)] for i, row in enumerate(cells.tolist())]
    return cells, write(folder / f"{name}.csv", rows, ("study_id", *(f"label {i:03d}" for i in range(n_labels))))


def reports(n):
    return mo.Reports.from_texts([f"text {i}" for i in range(n)], [f"r{i}" for i in range(n)])


def expected(one, other, measure):
    """Return the score by its definition, with plain division."""
    both = (one != -9) & (other != -9)
    a, b = one[both] == 1, other[both] == 1
    if measure == "agreement":
        return float((a == b).sum() / both.sum()) if both.any() else 0.0
    return float(2 * (a & b).sum() / (a.sum() + b.sum())) if (a & b).any() else 0.0


@pytest.mark.parametrize("missing", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("n_labels", [1, 14, 137])
def test_the_search_is_brute_force(tmp_path, missing, n_labels):
    rng = np.random.default_rng([n_labels, int(10 * missing)])
    corpus, train = tables(rng, 60, n_labels, missing, tmp_path, "train")
    asked, test = tables(rng, 11, n_labels, missing, tmp_path, "test")
    index = mo.build_index(mo.reports(reports(60), labels=train), tmp_path / "I", metrics="labels:f1")
    queries = mo.reports(reports(11), labels=in_another_order(test)).load()
    assert {"labels:agreement", "labels:f1"} <= {*index.metrics}
    for measure in MEASURES:
        wanted = np.array([[expected(a, b, measure) for b in corpus] for a in asked])
        found = mo.retrieve(index, queries, f"labels:{measure}", k=60).table
        assert np.allclose(found["score"].to_numpy().reshape(11, 60), -np.sort(-wanted, axis=1), rtol=1e-15, atol=0)
        slow = mo.retrieve(index, queries, f"labels:{measure}", k=60, backend="reference").table
        assert found.equals(slow)
        n_best = [(row == row.max()).sum() for row in wanted]
        assert found["n_ties"].to_numpy()[::60].tolist() == n_best
        compared = ((asked != -9)[:, None] & (corpus != -9)).sum(axis=2)
        rows = found["row"].to_numpy().reshape(11, 60)
        shown = found["compared"].to_numpy().reshape(11, 60)
        assert np.array_equal(shown, np.take_along_axis(compared, rows, axis=1))


def test_scikit_learn(tmp_path):
    metrics = published("sklearn.metrics")
    rng = np.random.default_rng(5)
    for _ in range(50):
        one, other = rng.integers(-1, 2, (2, 12)).astype(np.int8)
        both = (one != 0) & (other != 0)
        if not both.any():
            continue
        a, b = one[both] == 1, other[both] == 1
        assert score(other, one, measure="agreement")[0] == pytest.approx(metrics.accuracy_score(a, b), rel=1e-15)
        assert score(other, one, measure="f1")[0] == pytest.approx(
            metrics.f1_score(a, b, zero_division=0.0), rel=1e-15
        )  # fmt: skip
        assert score(other, one, measure="f1")[1] == {"compared": both.sum()}


def test_without_missing_cells_they_are_the_metrics_of_srr_bert_and_chexbert(tmp_path):
    """Bit for bit: scores, rows, ties."""
    rng = np.random.default_rng(6)
    sides = {}
    for name, n in (("train", 80), ("test", 15)):
        cells, table = tables(rng, n, len(LABELS), 0.0, tmp_path, name)
        rows = [[f"r{i}", *("" if label == "No Finding" and not c else c for label, c in zip(LABELS, row, strict=True))]
                for i, row in enumerate(cells.tolist())]  # fmt: skip
        chexbert = write(tmp_path / f"{name}_chexbert.csv", rows, ("study_id", *LABELS))
        given = {"labels": table, "srr_labels": table, "chexbert_labels": chexbert, "uncertain": "blank"}
        sides[name] = reports(n), given
    index = mo.build_index(mo.reports(sides["train"][0], **sides["train"][1]), tmp_path / "I")
    queries = mo.reports(sides["test"][0], **sides["test"][1]).load()
    columns = ("query_id", "rank", "row", "score", "n_ties")
    for general, special in (
        ("labels:agreement", "srr-bert:agreement"),
        ("labels:f1", "srr-bert"),
        ("labels:agreement", "chexbert:agreement"),
    ):  # fmt: skip
        found, wanted = (
            mo.retrieve(index, queries, metric, k=20).table.select(columns) for metric in (general, special)
        )
        assert found.equals(wanted), (general, special)


def test_uncertain_labels_count_as_said(tmp_path):
    table = write(tmp_path / "t.csv", [["r0", 1, -1, ""], ["r1", 0, 1, -1]], ("study_id", "a", "b", "c"))
    wanted = {"positive": [1, 1, 0], "negative": [1, -1, 0], "blank": [1, 0, 0]}
    for uncertain, values in wanted.items():
        index = mo.build_index(
            mo.reports(reports(2), labels=table, uncertain=uncertain), tmp_path / uncertain, metrics="labels:f1"
        )
        assert index.part("label_table").item(0).tolist() == values
        again = mo.reports(index.folder).load().attached["label_table"]
        assert (
            again.settings
            == mo.reports(reports(2), labels=table, uncertain=uncertain).load().attached["label_table"].settings
        )
    match = (
        r"^AttachedReports\.load: uncertain must be positive, negative or blank where labels are "
        r"uncertain \(-1\); got None\."
    )
    with pytest.raises(InputError, match=match):
        mo.reports(reports(2), labels=table).load()
    match = r"^retrieve: schema must be '3 labels, sha256 \w+, uncertain blank' as in the index; got '3 labels, sha256 "
    with pytest.raises(InputError, match=match):
        mo.retrieve(index, mo.reports(reports(2), labels=table, uncertain="positive"), "labels:f1")
    other = write(tmp_path / "o.csv", [["r0", 1, 1], ["r1", 0, 1]], ("study_id", "a", "x"))
    with pytest.raises(InputError, match=r"^retrieve: schema must be '3 labels, .*; got '2 labels, "):
        mo.retrieve(index, mo.reports(reports(2), labels=other), "labels:f1")
    match = r"^AttachedReports\.load: labels must be a table with a column for each label; got the list in mem"
    with pytest.raises(InputError, match=match):
        mo.reports(reports(2), labels=[1, 2]).load()


def test_labels_from_the_command_line(tmp_path, oracle, named):
    truth = write(tmp_path / "t.csv", [["1", 1, 0, ""], ["2", "", "", 1]], ("study_id", "nodule", "mass", "cyst"))
    given = write(tmp_path / "g.csv", [["1", 1, 1, 1], ["2", 1, 1, ""]], ("study_id", "nodule", "mass", "cyst"))
    texts = write(tmp_path / "r.csv", {"1": "one.", "2": "two."})
    out = tmp_path / "s.csv"
    both = named("truth", texts, labels=truth), named("given", texts, labels=given)
    code, _, err = oracle("score", *both, "-m", "labels:agreement,labels:f1", "--out", out)
    assert code == 0, err
    table = mo.read_scores(out).table
    assert table["labels:agreement"].to_pylist() == [0.5, 0.0]
    assert table["labels:f1"].to_pylist() == [pytest.approx(2 / 3), 0.0]
    assert table["labels:f1.compared"].to_pylist() == [2, 0]


@pytest.mark.parametrize("n", [1, 3])
def test_labels_without_ids_are_as_many_as_the_reports(n):
    labels = np.ones((n, 14), np.uint8)
    match = rf"^AttachedReports\.load: labels without ids must be as many as the reports, 2; got {n} in "
    with pytest.raises(InputError, match=match):
        mo.reports(["a", "b"], chexbert_labels=labels, uncertain="blank").load()
