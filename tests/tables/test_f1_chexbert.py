"""`oracle f1-chexbert`: label files to scikit-learn's F1, and the golden values of real labels."""

import json
from pathlib import Path

import numpy as np
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import FIVE_LABELS, LABELS, read_labels
from metric_oracle.tables.f1_chexbert import (
    AVERAGES,
    LABEL_SETS,
    POLICIES,
    SRR_AVERAGES,
    score_f1_chexbert,
    score_f1_srr,
)
from support import published, write_srr
from support.orders import in_another_order

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/f1_chexbert.json").read_text(encoding="utf-8"))
CELLS = np.array(["", "1", "0", "-1"])


def write(path, classes, ids=None):
    """Write CheXbert labels, classes 0 blank, 1 positive, 2 negative, 3 uncertain."""
    ids = [f"s{i}" for i in range(len(classes))] if ids is None else ids
    lines = [",".join(["study_id", *LABELS])]
    lines += [",".join([i, *CELLS[row]]) for i, row in zip(ids, classes, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def drawn(rng, n, weights):
    classes = rng.choice(4, (n, len(LABELS)), p=weights)
    classes[:, LABELS.index("No Finding")] %= 2  # CheXbert knows two there
    return classes


@pytest.mark.parametrize("seed", range(6))
def test_scikit_learns_f1(tmp_path, seed):
    metrics = published("sklearn.metrics")
    rng = np.random.default_rng(seed)
    n = (1, 2, 7, 40, 200, 300)[seed]
    truth, given = (drawn(rng, n, weights) for weights in ([0.7, 0.15, 0.05, 0.1], [0.5, 0.3, 0.1, 0.1]))
    truth[:, 2] = given[:, 2] = 0  # a label that nobody has
    reference = write(tmp_path / "r.csv", truth)
    order = rng.permutation(n)
    predicted = write(tmp_path / "p.csv", given[order], [f"s{i}" for i in order])
    scored = score_f1_chexbert(reference, predicted, resamples=100)
    assert list(scored.values) == [(s, u, a) for s in ("14", "5") for u in POLICIES for a in AVERAGES]
    for (labels, uncertain, average), (value, ends) in scored.values.items():
        columns = [LABELS.index(label) for label in (FIVE_LABELS if labels == "5" else LABELS)]
        sides = [(side == 1) | ((side == 3) & (uncertain == "positive")) for side in (truth, given)]
        expected = metrics.f1_score(*(side[:, columns] for side in sides), average=average, zero_division=0)
        assert value == pytest.approx(expected, abs=1e-12)
        assert ends.low <= value + 1e-12
        assert value <= ends.high + 1e-12


def test_the_published_values(iu_xray, tmp_path):
    """Of real labels, each study scored with another's, by ids: see `golden/make_f1_chexbert.py`."""
    lines = (iu_xray / "chexbert_labels_organ.csv").read_text(encoding="utf-8").splitlines()
    rows = {line.split(",")[1]: line.split(",")[2:] for line in lines[1:]}
    for side, name in enumerate("rp"):
        text = [",".join(["Id", *LABELS])]
        text += [",".join([pair[0], *rows[pair[side]]]) for pair in GOLDEN["pairs"]]
        (tmp_path / name).with_suffix(".csv").write_text("\n".join(text) + "\n", encoding="utf-8")
    scored = score_f1_chexbert(tmp_path / "r.csv", tmp_path / "p.csv", resamples=100, id_column="Id")
    assert scored.reports == len(GOLDEN["pairs"]) > 300
    for labels, uncertain, average, value in GOLDEN["scores"]:
        assert scored.values[labels, uncertain, average][0] == pytest.approx(value, abs=1e-12)
    assert len(GOLDEN["scores"]) == len(scored.values)


def test_the_interval_is_of_resampled_studies(tmp_path):
    rng = np.random.default_rng(3)
    truth = drawn(rng, 60, [0.6, 0.3, 0.05, 0.05])
    given = np.where(rng.random(truth.shape) < 0.8, truth, drawn(rng, 60, [0.6, 0.3, 0.05, 0.05]))
    files = write(tmp_path / "r.csv", truth), write(tmp_path / "p.csv", given)
    scored = score_f1_chexbert(*files, resamples=2000, seed=5)
    _, ends = scored.values["14", "negative", "micro"]
    means = []
    for _ in range(2000):
        rows = rng.integers(0, 60, 60)
        a, b = truth[rows] == 1, given[rows] == 1
        means.append(2 * (a & b).sum() / (a.sum() + b.sum()))
    assert ends[:2] == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.015)
    assert score_f1_chexbert(*files, resamples=2000, seed=5).values == scored.values
    rows = scored.table.to_pylist()
    assert len(rows) == 18
    assert (rows[3]["labels"], rows[3]["uncertain"], rows[3]["average"]) == ("14", "negative", "micro")
    assert (rows[3]["low"], rows[3]["high"]) == ends[:2]
    assert scored.summary().startswith("F1-CheXbert-14, uncertain as positive micro ")
    assert scored.signature["labels"]["5"] == list(FIVE_LABELS)
    assert len(LABEL_SETS["14"]) == 14


def test_refusals(tmp_path):
    reference = write(tmp_path / "r.csv", np.ones((3, 14), int))
    write(tmp_path / "p.csv", np.ones((2, 14), int))
    match = r"^.* has no labels for 1 of 3 reference reports"
    with pytest.raises(InputError, match=match):
        score_f1_chexbert(reference, tmp_path / "p.csv")
    (tmp_path / "x.csv").write_text("study_id,Edema\ns0,1\n", encoding="utf-8")
    match = r"^.*x\.csv lacks 13 of CheXbert's 14 labels .*\. Pass what CheXbert wrote; `mo\.score_crg` takes"
    with pytest.raises(InputError, match=match):
        score_f1_chexbert(reference, tmp_path / "x.csv")


def test_the_command(tmp_path, oracle):
    reference = write(tmp_path / "r.csv", np.ones((3, 14), int))
    predicted = write(tmp_path / "p.csv", np.ones((4, 14), int))
    code, out, err = oracle("f1-chexbert", reference, predicted, "--format", "jsonl")
    assert code == 0
    assert [row["f1"] for row in map(json.loads, out.splitlines()) if "f1" in row] == [1.0] * 18
    assert "predictions without a reference, not used: 1" in err
    code, out, _ = oracle("f1-chexbert", reference, predicted, "--format", "table")
    assert code == 0
    assert out.count("[1.0000 1.0000]") == 18
    assert "14 labels" in out


# ---- SRR-BERT --------------------------------------------------------------------------------------------------------


def sets(classes):
    return np.stack([classes == n for n in (1, 2, 3)], axis=2).reshape(len(classes), -1)


def test_scikit_learns_report_of_srr_labels(iu_xray, tmp_path):
    """Of real labels, each study with a neighbour's; RadEval 2.2.1 calls this, too, and prints the weighted F1."""
    report = published("sklearn.metrics").classification_report
    labels = read_labels(iu_xray / "chexbert_labels_organ.csv").values
    truth, given = labels[0:600:2], np.where(np.arange(300)[:, None] % 4, labels[1:601:2], labels[0:600:2])
    ids = [f"s{i}" for i in range(300)]
    order = np.random.default_rng(4).permutation(300)
    reference = write_srr(tmp_path / "r.csv", ids, truth)
    predicted = write_srr(tmp_path / "p.csv", [ids[i] for i in order], given[order])
    scored = score_f1_srr(reference, predicted, resamples=200)
    found = report(sets(truth), sets(given), output_dict=True, zero_division=0)
    assert list(scored.values) == [("42", "a label", average) for average in SRR_AVERAGES]
    for (_, _, average), (value, ends) in scored.values.items():
        assert value == pytest.approx(found[f"{average} avg"]["f1-score"], abs=1e-12)
        assert ends.low < value < ends.high
    assert 0.2 < scored.values["42", "a label", "weighted"][0] < 0.95
    assert scored.summary().startswith("F1-SRR-BERT-42, uncertain as a label weighted 0.")


def test_the_command_for_srr_labels(tmp_path, oracle, fails):
    classes = drawn(np.random.default_rng(6), 25, [0.6, 0.2, 0.1, 0.1])
    files = [write_srr(tmp_path / f"{name}.csv", [f"s{i}" for i in range(25)], classes) for name in "rp"]
    files[1] = in_another_order(files[1])
    code, out, err = oracle("f1-srr-bert", *files, "--format", "jsonl")
    assert code == 0, err
    rows = [row for row in map(json.loads, out.splitlines()) if "f1" in row]
    assert [(row["average"], row["f1"]) for row in rows][::3] == [("weighted", 1.0), ("samples", rows[3]["f1"])]
    code, out, _ = oracle("f1-srr-bert", *files, "--format", "table")
    assert code == 0
    assert "F1-SRR-BERT" in out
    assert "42 labels, uncertain" in out
    (tmp_path / "o.csv").write_text("study_id,Edema (Present)\ns0,1\n")
    fails("f1-srr-bert", files[0], tmp_path / "o.csv", match=(
        r"f1-srr-bert: .* and .* have different labels \(42 labels, .*; 1 labels, .*\. Make both with one model"
    ))  # fmt: skip


def test_two_systems_with_no_labels(tmp_path):
    """Nothing to find, nothing found: no number is divided by 0."""
    files = [write_srr(tmp_path / f"{name}.csv", ["a", "b"], np.zeros((2, 14), int)) for name in "rp"]
    assert {value for value, _ in score_f1_srr(*files, resamples=100).values.values()} == {0.0}


def test_few_reports_and_rare_labels_are_named(tmp_path):
    """Nine positive references of the first label, none of the last four; an uncertain one is not positive."""
    classes = np.zeros((40, len(LABELS)), int)
    classes[:12] = 1
    classes[:9, 0] = classes[:10, 1] = 1
    classes[9:, 0] = 3
    classes[:, -4:] = 2
    scored = score_f1_chexbert(write(tmp_path / "r.csv", classes), write(tmp_path / "p.csv", classes), resamples=100)
    rare_of_five = 1 + sum(LABELS.index(label) >= 10 for label in FIVE_LABELS) - (LABELS[0] not in FIVE_LABELS)
    assert scored.rare == {"14": 5, "5": rare_of_five}
    shown = "5 of 14 labels" + (f", {rare_of_five} of 5 labels" if rare_of_five else "")
    assert scored.warnings() == [
        f"Fewer than 10 reference reports have {shown}: the intervals of the macro average are too short."
    ]
    few = score_f1_chexbert(
        write(tmp_path / "r.csv", classes[:19]), write(tmp_path / "p.csv", classes[:19]), resamples=100
    )
    assert few.warnings()[0] == "Fewer than 20 reports (19): the intervals are too short."
    classes[:] = 1
    assert not score_f1_chexbert(write(tmp_path / "r.csv", classes), tmp_path / "r.csv", resamples=100).warnings()
