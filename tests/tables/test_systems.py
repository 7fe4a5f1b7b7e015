"""Rows of a table from every command that writes scores, and CRG in a table."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.reports import read_reports
from metric_oracle.findings.results import Scores, read_results
from metric_oracle.kernels.crg.score import contribution, crg
from metric_oracle.reading import reports
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.scores.baselines import baseline
from metric_oracle.scores.expectation import expectation, read_expectation
from metric_oracle.synthetic.corpus import write_synthetic
from metric_oracle.tables.compare import compare
from metric_oracle.tables.crg import score_crg
from support.orders import in_another_order

N_LABELS = 13


@pytest.fixture(scope="module")
def files(corpus, tmp_path_factory):
    """Return files of `score`, `retrieve` and each baseline on one index, and the oracle's scores."""
    folder = tmp_path_factory.mktemp("rows")
    index = build_index(corpus["train"], folder / "I")
    queries = reports(corpus["test"]).load()
    made = {
        "random": baseline(index, queries, "random", "bleu", draws=4, seed=2),
        "random-rouge": baseline(index, queries, "random", "rouge-l", draws=4, seed=2),
        "one": baseline(index, queries, "random", "bleu", draws=1),
        "identity": baseline(index, queries, "identity", "bleu"),
        "oracle": retrieve(index, queries, "bleu", k=3),
        "model": mo.score(corpus["test"], corpus["test"], ["bleu", "rouge-l"], system="model"),
        "chance": expectation(index, queries, "bleu"),
    }
    paths = {}
    for place, (name, result) in enumerate(made.items()):
        paths[name] = folder / f"{name}.{('parquet', 'csv', 'jsonl')[place % 3]}"
        result.write(paths[name])
    return paths


def test_files_of_every_command_are_rows(files):
    names = ("model", "oracle", "identity", "one", "random")
    table = compare({name: files[name] for name in names}, random="random", oracles={"bleu": "oracle"}, resamples=200)
    assert [column.metric for column in table.columns] == ["bleu-2"]
    assert table.left_out == {"model": ["rouge-l"]}
    cell = {name: table.cells[name, "bleu-2"] for name in names}
    best = read_results(files["oracle"]).table
    top = best["score"].to_numpy()[best["rank"].to_numpy() == 1]
    assert cell["oracle"].mean == pytest.approx(top.mean(), rel=1e-14)
    assert cell["model"].mean == cell["identity"].mean
    draws = read_results(files["random"]).table["score"].to_numpy().reshape(12, 4)
    assert cell["random"].mean == pytest.approx(draws.mean(), rel=1e-14)
    assert (cell["random"].minimum, cell["random"].maximum) == (draws.min(), draws.max())
    assert draws.mean(axis=1).max() < draws.max()  # the range is that of the scores, not of their means
    assert table.averaged == {"random": "4 random reports"}
    notes = " ".join(table.tables()[-1].notes)
    assert "random: the score of a study is its mean over 4 random reports; the range is that of the single" in notes
    assert "one: the score" not in notes
    assert cell["oracle"].share == 1


def test_the_exact_expectation_is_a_row(files):
    table = compare({"oracle": files["oracle"], "chance": files["chance"]}, random="chance", resamples=200)
    found = read_expectation(files["chance"]).table
    cell = table.cells["chance", "bleu-2"]
    assert cell.mean == pytest.approx(found["mean"].to_numpy().mean(), rel=1e-14)
    assert (cell.minimum, cell.maximum) == (found["min"].to_numpy().min(), found["max"].to_numpy().max())
    assert table.averaged == {"chance": "all reports of the corpus"}
    assert table.cells["oracle", "bleu-2"].percent_change > 0


def test_published_names_go_with_foreign(oracle, corpus, files, tmp_path):
    path = tmp_path / "report_scores.csv"
    scores = mo.score(corpus["test"], corpus["test"], ["bleu"], system="x", text=True)
    scores.write(path, published_names=True)
    match = (
        r"Write it again with `mo\.score`\. A table with columns of its own, such as published names, "
        r"goes with `mo\.read_foreign`\.$"
    )
    with pytest.raises(InputError, match=match):
        compare({"x": path})
    code, out, err = oracle(
        "table", f"x={files['model']}", "--foreign", f"x={path}", "--resamples", 100, "--format", "csv"
    )
    assert code == 0, err
    assert "bleu_score" in out


def test_several_files_make_one_row(files):
    row = {"model": files["model"], "random": [files["random"], files["random-rouge"]]}
    table = compare(row, random="random", resamples=200)
    assert [column.metric for column in table.columns] == ["bleu-2", "rouge-l"]
    rouge = read_results(files["random-rouge"]).table["score"].to_numpy()
    assert table.cells["random", "rouge-l"].maximum == rouge.max()
    with pytest.raises(InputError, match=r"^compare: the files of 'x' have metric bleu-2 twice\."):
        compare({"x": [files["random"], files["one"]]})
    few = read_results(files["random-rouge"])
    few = type(few)(few.table.slice(0, 8), few.signature)
    with pytest.raises(InputError, match=r"^compare: the files of 'x' have different ids\. Make"):
        compare({"x": [files["random"], few]})
    with pytest.raises(InputError, match=r"^compare: the files of 'x' have different ids\. Make"):
        compare({"x": [few, files["random"]]})


def test_the_order_of_a_file_says_nothing(tmp_path):
    """Rows and columns of every second file stand in another order: all numbers of the table are the same."""
    paths = write_synthetic(tmp_path / "corpus", 30, 16, seed=4, models=True)
    moved = {
        name: in_another_order(paths[name])
        for model in ("test", "strong", "weak")
        for name in (model, f"{model}_labels")
    }

    def scores(model, metrics, files):
        sides = (
            reports(files[name], chexbert_labels=files[f"{name}_labels"], uncertain="positive")
            for name in ("test", model)
        )
        return mo.score(*sides, metrics, system=model)

    parts = (["bleu-4:coco", "crg"], ["rouge-l"])  # of each system two files
    tables = []
    for orders in ((paths, paths, paths, paths), (paths, moved, moved, paths)):
        of_file = iter(orders)
        systems = {model: [scores(model, metrics, next(of_file)) for metrics in parts] for model in ("strong", "weak")}
        tables.append(compare(systems, paired=[("strong", "weak")], resamples=300))
    assert [column.metric for column in tables[0].columns] == ["bleu-4:coco", "bleu-4:coco (corpus)", "crg", "rouge-l"]
    assert all(difference.difference > 0 for difference in tables[0].differences)
    assert tables[0].records() == tables[1].records()


def test_other_test_reports_are_refused(files, corpus):
    """The signature of a search says the texts that it was asked, so that equal ids do not pass for equal reports."""
    read = read_reports(corpus["test"])
    other = dataclasses.replace(read, texts=["No effusion."] * len(read.texts))
    scores = mo.score(other, other, ["bleu"], system="x")
    match = r"^compare: 'oracle' and 'x' are scored on the same studies against different reference texts\. Score both "
    with pytest.raises(InputError, match=match):
        compare({"oracle": files["oracle"], "x": scores})
    old = read_results(files["oracle"])
    del old.signature["references"]
    assert compare({"oracle": old, "x": scores}, resamples=100)


def test_the_command_joins_files_of_one_name(oracle, files):
    given = [f"model={files['model']}", f"random={files['random']}", f"random={files['random-rouge']}"]
    code, out, err = oracle("table", *given, "--random", "random", "--resamples", 100, "--format", "md")
    assert (code, err) == (0, "")
    assert "| | BLEU-2 ↑ | ROUGE-L ↑ |" in out.replace("|  |", "| |")
    assert "mean over 4 random reports" in out


# CRG


def labelled(seed, n=60, rate=0.25, wrong=0.2):
    """Return positive labels of references, and of a model that is wrong on some, bool[n, 13]."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, N_LABELS)) < rate * rng.gamma(1, 1, (n, 1))
    return truth, truth ^ (rng.random((n, N_LABELS)) < wrong)


def crg_scores(truth, given, *, counts=True):
    """Return scores of pairs under CRG as `oracle score` writes them."""
    n = len(truth)
    prevalence = {"positives": int(truth.sum()), "labels": truth.size, "reports": n}
    tp, fn, fp = (cells.sum(axis=1) for cells in (truth & given, truth & ~given, ~truth & given))
    values = [contribution(int(a), int(b), **prevalence) for a, b in zip(fn, fp, strict=True)]
    columns = {"query_id": [f"s{i}" for i in range(n)], "crg": values}
    if counts:
        columns |= {f"crg.{name}": part.astype(float) for name, part in (("tp", tp), ("fn", fn), ("fp", fp))}
    signature = {
        "kind": "scores", "system": "x", "metrics": {"crg": {"prevalence": prevalence}}, "references": "abc",
        "n": n, "version": "0.1.0",
    }  # fmt: skip
    return Scores(pa.table(columns), signature)


def test_crg_in_a_table_is_crg():
    truth, fair = labelled(1)
    weak = truth ^ (np.random.default_rng(2).random(truth.shape) < 0.4)
    systems = {"fair": crg_scores(truth, fair), "weak": crg_scores(truth, weak), "perfect": crg_scores(truth, truth)}
    table = compare(systems, random="weak", paired=[("fair", "weak")], resamples=300, seed=3)

    def score(given, rows):
        t, g = truth[rows], given[rows]
        return crg(int((t & ~g).sum()), int((~t & g).sum()), int(t.sum()), t.size)

    everything = np.arange(60)
    cells = {name: table.cells[name, "crg"] for name in systems}
    assert cells["fair"].mean == pytest.approx(score(fair, everything), rel=1e-12)
    assert (cells["perfect"].mean, cells["perfect"].interval) == (1, (1, 1, True))
    assert cells["fair"].minimum is cells["fair"].maximum is None
    drawn = np.random.default_rng(3).integers(0, 60, (300, 60))
    resampled = np.array([[score(given, rows) for given in (fair, weak)] for rows in drawn])
    table = compare(systems, resamples=300, seed=3, method="percentile", paired=[("fair", "weak")])
    assert table.cells["fair", "crg"].interval[:2] == pytest.approx(np.quantile(resampled[:, 0], [0.025, 0.975]))
    (difference,) = table.differences
    assert difference.difference == pytest.approx(score(fair, everything) - score(weak, everything))
    (low, high), ends = np.quantile(resampled[:, 0] - resampled[:, 1], [0.025, 0.975]), difference.interval
    assert ends[:2] == pytest.approx((low, high), abs=0.25 * (high - low))  # BCa beside percentile
    notes = " ".join(table.tables()[-1].notes)
    assert "CRG: of the whole test set, 1 / (2 - average contribution of a report)" in notes
    assert "Range –" in table.tables()[0].rows[0][1][0].lines


def test_crg_without_counts_says_so():
    truth, fair = labelled(4)
    systems = {"fair": crg_scores(truth, fair), "bare": crg_scores(truth, fair, counts=False)}
    table = compare(systems, resamples=200)
    a, b = (table.cells[name, "crg"] for name in systems)
    assert a.mean == pytest.approx(b.mean, rel=1e-12)
    assert a.interval != b.interval
    assert table.fixed_weights == ["bare"]
    assert "CRG without counts of labels, the prevalence fixed in each resample: bare." in table.tables()[-1].notes


def test_coverage_of_crg():
    """Abnormality clusters in reports. CRG of very many reports is the truth that 93 of 100 intervals should hold."""
    truth, given = labelled(5, n=200_000)
    known = crg(int((truth & ~given).sum()), int((~truth & given).sum()), int(truth.sum()), truth.size)
    held = 0
    for seed in range(200):
        rows = np.random.default_rng(seed).integers(0, 200_000, 60)
        cell = compare({"x": crg_scores(truth[rows], given[rows])}, resamples=300, seed=seed).cells["x", "crg"]
        held += cell.interval.low <= known <= cell.interval.high
    assert 178 <= held <= 198  # 190 expected, with a standard error of 3


def test_oracle_crg_has_the_interval_of_the_table(tmp_path):
    truth, fair = labelled(6, n=40)
    names = [f"x{i}" for i in range(N_LABELS)]
    for name, labels in (("r", truth), ("p", fair)):
        lines = [",".join(["study_id", *names])]
        lines += [",".join([f"s{i}", *map(str, row.astype(int))]) for i, row in enumerate(labels)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    found = score_crg(tmp_path / "r.csv", tmp_path / "p.csv", uncertain="positive", resamples=400, seed=7)
    cell = compare({"x": crg_scores(truth, fair)}, resamples=400, seed=7).cells["x", "crg"]
    assert found.score == pytest.approx(cell.mean, rel=1e-12)
    assert found.interval[:2] == pytest.approx(cell.interval[:2], rel=1e-10)
    assert found.levels[0].interval[:2] == pytest.approx(found.interval[:2])
    last = found.records()[-1]
    assert (last["low"], last["high"]) == found.levels[0].interval[:2]
    assert found.summary().startswith(f"CRG {found.score:.4f} [{found.interval.low:.4f} ")
