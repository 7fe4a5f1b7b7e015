"""Fitting a composite: RadCliQ's constants from data made with them, the statistics by hand, every error line."""

import io
import json
import re
import sys
from fractions import Fraction
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from metric_oracle import cli
from metric_oracle.base.errors import InputError
from metric_oracle.metrics import get_metric
from metric_oracle.raters.fit_composite import _signs_held_out, fit_composite
from metric_oracle.raters.rank_correlation import draw, of_signs, side, tau_b
from metric_oracle.raters.ratings import read_ratings
from metric_oracle.retrieval.weights import read_weights

V0 = get_metric("radcliq:v0").recorded
N, STUDIES = 200, 50  # ReXVal's: four candidates for each of 50 studies


def write(path, columns):
    names = list(columns)
    lines = [",".join(names)]
    lines += [
        ",".join("" if cell is None else str(cell) for cell in row) for row in zip(*columns.values(), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def made_with_v0(noise=0.0, seed=0):
    """Return pairs whose metrics have v0's means and scales exactly, and errors by v0's weights."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(N, 4)) @ rng.normal(size=(4, 4))  # correlated, as metrics are
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    columns = {"pair_id": range(N), "study_id": np.arange(N) // 4}
    errors = np.full(N, V0["intercept"])
    for (name, t), column in zip(V0["terms"].items(), z.T, strict=True):
        columns[name] = [repr(float(x)) for x in t["mean"] + t["scale"] * column]
        errors += t["weight"] * column
    columns["errors"] = [repr(float(x)) for x in errors + rng.normal(0, noise, N)]
    return columns


def test_v0_comes_back(tmp_path):
    fitted = fit_composite(write(tmp_path / "pairs.csv", made_with_v0())).content
    assert list(fitted["terms"]) == ["radgraph", "bertscore", "chexbert", "bleu-2"]
    for name, expected in V0["terms"].items():
        assert fitted["terms"][name] == pytest.approx(expected, rel=1e-9)
    assert fitted["intercept"] == pytest.approx(V0["intercept"], rel=1e-12)
    assert fitted["fit"]["r2"] == pytest.approx(1.0)
    assert (fitted["fit"]["pairs"], fitted["fit"]["studies"]) == (200, 50)
    for name in ("tau_b", "tau_b_held_out"):
        assert [fitted["fit"][name + end] for end in ("", "_low", "_high")] == pytest.approx([1.0] * 3, abs=1e-12)
    assert list(fitted["fit"]["standard_errors"].values()) == pytest.approx([0.0] * 4, abs=1e-12)
    assert fitted["fit"]["bootstrap"] == {"unit": "study", "resamples": 1000, "seed": 0, "level": 0.95}


def test_the_statistics_by_hand(tmp_path):
    columns = made_with_v0(noise=1.0, seed=1)
    columns["errors"] = [round(float(e)) for e in columns["errors"]]  # counts, with ties
    fit = fit_composite(write(tmp_path / "pairs.csv", columns)).content["fit"]
    x = np.array([[float(v) for v in columns[name]] for name in V0["terms"]]).T
    x, y, study = np.c_[np.ones(N), x], np.array(columns["errors"], float), columns["study_id"]
    inside = x @ np.linalg.lstsq(x, y)[0]
    outside = np.zeros((N, N))  # of two reports, the difference of predictions without the studies of both
    for one, other in combinations_with_replacement(range(STUDIES), 2):
        kept = (study != one) & (study != other)
        predicted = x @ np.linalg.lstsq(x[kept], y[kept])[0]
        rows, columns = np.ix_(study == one, study == other)
        outside[rows, columns] = np.subtract.outer(predicted[study == one], predicted[study == other])
        outside[columns.T, rows.T] = -outside[rows, columns].T
    assert fit["r2"] == pytest.approx(1 - ((y - inside) ** 2).sum() / ((y - y.mean()) ** 2).sum())
    of_errors = np.sign(np.subtract.outer(y, y))
    for name, differences in (("tau_b", np.subtract.outer(inside, inside)), ("tau_b_held_out", outside)):
        signs = np.sign(differences)
        untied = np.count_nonzero(signs), np.count_nonzero(of_errors)
        assert fit[name] == pytest.approx((signs * of_errors).sum() / np.sqrt(float(untied[0]) * untied[1]))
        taus = []
        for studies in np.random.default_rng(0).integers(0, STUDIES, (1000, STUDIES)):
            times = np.bincount(studies, minlength=STUDIES).repeat(4)
            both, one, other = (times @ m @ times for m in (signs * of_errors, signs**2, of_errors**2))
            taus.append(both / np.sqrt(one * other))
        ends = np.quantile(taus, [0.025, 0.975])
        assert [fit[f"{name}_low"], fit[f"{name}_high"]] == pytest.approx(ends, rel=1e-9)
    assert 0.2 < fit["tau_b_held_out"] < fit["tau_b"] < 0.9
    assert fit["tau_b_held_out_low"] < fit["tau_b_held_out"] < fit["tau_b_held_out_high"]


def test_standard_errors_are_clustered_by_study(tmp_path):
    """The sandwich of Liang and Zeger over the whole design, intercept and all, and against a simulation."""
    columns = made_with_v0(noise=1.0, seed=1)
    rng = np.random.default_rng(2)
    columns["errors"] = [
        float(e) + s for e, s in zip(columns["errors"], rng.normal(0, 2, STUDIES).repeat(4), strict=True)
    ]
    fitted = fit_composite(write(tmp_path / "pairs.csv", columns))
    x = np.array([[float(v) for v in columns[name]] for name in V0["terms"]]).T
    design = np.c_[np.ones(N), (x - x.mean(axis=0)) / x.std(axis=0)]
    y = np.array(columns["errors"])
    inverse = np.linalg.inv(design.T @ design)
    residuals = y - design @ (inverse @ (design.T @ y))
    middle = np.zeros((5, 5))
    for one in range(STUDIES):
        of_study = design[columns["study_id"] == one].T @ residuals[columns["study_id"] == one]
        middle += np.outer(of_study, of_study)
    covariance = inverse @ middle @ inverse * 50 / 49 * 199 / 195
    expected = np.sqrt(np.diag(covariance))[1:]
    assert list(fitted.content["fit"]["standard_errors"].values()) == pytest.approx(expected, rel=1e-9)
    assert [record["standard_error"] for record in fitted.records()] == pytest.approx(expected, rel=1e-9)


def test_held_out_is_0_where_nothing_predicts():
    """20 studies of two reports, two metrics; the pooled predictions of fits without one study are below 0."""
    member = np.eye(20).repeat(2, axis=0)
    drawn = draw([str(study) for study in range(20) for _ in range(2)], 0, 0)
    rng = np.random.default_rng(3)
    held_out, pooled = [], []
    for _ in range(120):
        z, y = rng.normal(size=(40, 2)), rng.normal(size=40) + rng.normal(size=20).repeat(2)
        found = tau_b(of_signs(_signs_held_out(z, y, member), drawn), side(y, drawn), drawn)
        held_out.append(found[-1])
        of_one = np.empty(40)
        for rows in member.T.astype(bool):
            design = np.c_[np.ones(40), z]
            of_one[rows] = design[rows] @ np.linalg.lstsq(design[~rows], y[~rows])[0]
        pooled.append(stats.kendalltau(of_one, y).statistic)
    assert np.mean(pooled) < -0.1
    assert abs(np.mean(held_out)) < 3 * np.std(held_out) / np.sqrt(120) < 0.06


def test_chosen_columns_under_other_names_in_another_format(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    columns = made_with_v0(noise=0.3)
    table = {
        "study": [f"s{i}" for i in columns["study_id"]],
        "total": [float(e) for e in columns["errors"]],
        "bleu": [float(v) for v in columns["bleu-2"]],
        "bleu-4": [0.0] * N,  # constant, but not asked for
        "radgraph": [float(v) for v in columns["radgraph"]],
    }
    parquet.write_table(pa.table(table), tmp_path / "pairs.parquet")
    fitted = fit_composite(
        tmp_path / "pairs.parquet", metrics=["radgraph", "bleu"], errors="total", study="study", name="two of them"
    )
    fitted.write(tmp_path / "w.json")
    assert list(fitted.content["terms"]) == ["radgraph", "bleu-2"]
    assert fitted.content["source"] | {"sha256": "", "fitted_by": ""} == {
        "table": "pairs.parquet", "errors": "total", "study": "study", "sha256": "", "fitted_by": "",
    }  # fmt: skip
    record = read_weights(tmp_path / "w.json")
    assert record.recorded == {"terms": fitted.content["terms"], "intercept": fitted.content["intercept"]}
    assert record.citation.startswith("two of them, weights file sha256 ")
    written = json.loads((tmp_path / "w.json").read_text())
    assert len(written.pop("signature_sha256")) == 64
    assert written == fitted.content
    assert [path.name for path in tmp_path.iterdir() if path.suffix not in (".json", ".parquet")] == []


def test_the_command_line(tmp_path, monkeypatch, capsys):
    path = write(tmp_path / "pairs.csv", made_with_v0(noise=0.3))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["oracle", "fit-composite", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        return code, capsys.readouterr()

    code, captured = run(path)
    assert (code, captured.err) == (0, "")
    assert json.loads(captured.out) == fit_composite(path).content
    lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{lines[0]},rougeL,site", *(f"{line},{i},0" for i, line in enumerate(lines[1:]))]))
    assert run(path)[1].err == "not used, as no composite takes them: rougeL\n"
    code, captured = run(path, "--out", tmp_path / "w.json", "--metrics", "bertscore, radgraph", "--name", "x")
    assert (code, captured.out) == (0, "")
    assert captured.err.startswith(f"{tmp_path / 'w.json'}: 2 metrics, 200 pairs, R2 ")
    assert list(read_weights(tmp_path / "w.json").terms) == ["bertscore", "radgraph"]
    for out, line in (
        ("w.csv", "--out must end with .json; got"),
        ("no/w.json", "--out must be in an existing folder; got"),
    ):
        code, captured = run(path, "--out", tmp_path / out)
        assert code == 2
        assert captured.err.startswith(f"error: fit-composite: {line}")


def test_the_table_for_people(tmp_path):
    fitted = fit_composite(write(tmp_path / "pairs.csv", made_with_v0()), name="[red]v0")
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(*fitted.tables())
    text = console.export_text()
    assert "[red]v0" in text
    assert re.search(r"bleu-2 +0\.4607 +0\.3034 +0\.2166 +0\.0000", text)
    assert (
        "intercept 1.6417; 200 pairs of 50 studies; R2 1.000, Kendall tau-b 1.000 [1.000 1.000], held out 1.000 [1.000 "
        "1.000]; lower is better" in " ".join(text.split())
    )
    assert "so 0 is no skill; 95 % percentile intervals, 1,000 resamples of studies, seed 0" in " ".join(text.split())
    columns = {name: list(column)[:40] for name, column in made_with_v0(noise=1.0).items()}
    few = fit_composite(write(tmp_path / "few.csv", columns))
    assert few.warnings() == ["Fewer than 20 studies (10): intervals and standard errors are too small."]
    console.print(*few.tables())
    assert few.warnings()[0] in " ".join(console.export_text().split())


def test_out_without_room(tmp_path, monkeypatch):
    fitted = fit_composite(write(tmp_path / "pairs.csv", made_with_v0()))
    fitted.write(tmp_path / "w.json")
    before = (tmp_path / "w.json").read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    match = r"^.*w\.json cannot be written \(No space left on device\)\. Name an"
    with pytest.raises(InputError, match=match):
        fitted.write(tmp_path / "w.json")
    assert (tmp_path / "w.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.csv", "w.json"]


# Tables that determine no composite


def refused(tmp_path, columns, match, **options):
    with pytest.raises(InputError, match=match):
        fit_composite(write(tmp_path / "pairs.csv", columns), **options)


def test_a_constant_column(tmp_path):
    match = r"^fit_composite: columns must vary between pairs; got one value in '{}' of .*\. Leave these columns out\.$"
    refused(tmp_path, made_with_v0() | {"radgraph": [0.1] * N}, match.format("radgraph"))
    refused(tmp_path, made_with_v0() | {"errors": [3] * N}, match.format("errors"))


@pytest.mark.parametrize("factor", [1.0, -2.5])
def test_a_column_that_follows_from_the_others(tmp_path, factor):
    columns = made_with_v0()
    values = np.array([[float(v) for v in columns[name]] for name in ("radgraph", "bertscore")])
    match = r"^fit_composite: the metrics radgraph, .*, rouge-l in .* are linearly dependent, so that their weights are"
    refused(tmp_path, columns | {"rouge-l": (values[0] + factor * values[1]).tolist()}, match)


def test_one_study_only(tmp_path):
    match = r"^fit_composite: pairs must be of at least two studies, because each is .*; got 1 in .*\. Add pairs, or"
    refused(tmp_path, made_with_v0() | {"study_id": ["a"] * N}, match)


@pytest.mark.parametrize("n", [2, 5])
def test_fewer_pairs_than_columns(tmp_path, n):
    columns = {name: list(column)[-n - 1 : -1] for name, column in made_with_v0().items()} | {"study_id": range(n)}
    match = (
        rf"^fit_composite: pairs must be more than the metrics and the intercept, 5; got {n} in .*\. Add pairs, or fit"
    )
    refused(tmp_path, columns, match)


@pytest.mark.parametrize("column", ["bertscore", "errors"])
@pytest.mark.parametrize("cell", [None, "nan", "inf", "x", "1e999"])
def test_cells_that_are_no_finite_number(tmp_path, column, cell):
    columns = made_with_v0()
    columns[column] = [*columns[column][:6], cell, *columns[column][7:]]
    match = (
        rf"^fit_composite: column '{column}' must hold a finite number in every row; got none in row 7 of .*\. Complete"
    )
    refused(tmp_path, columns, match)


def test_a_pair_without_a_study(tmp_path):
    columns = made_with_v0()
    columns["study_id"] = [*columns["study_id"][:3].tolist(), None, *columns["study_id"][4:].tolist()]
    refused(tmp_path, columns, r"^fit_composite: there is no id in row 4 of column 'study_id' of .*\. Each")


@pytest.mark.parametrize(
    ("metrics", "got"),
    [
        (["bleu", "bluu"], "'bluu'"),
        (["crg"], "'crg'"),
        (["radcliq"], "'radcliq'"),
        ([], "none"),
        (["bleu", "bleu-2"], "'bleu-2' twice"),
    ],
)
def test_metrics_that_cannot_be(tmp_path, metrics, got):
    match = rf"^fit_composite: metrics must be columns called bleu-1, .*, each once; got {got} for .*\. Columns: "
    refused(tmp_path, made_with_v0(), match, metrics=metrics)


def test_columns_that_are_not_there(tmp_path):
    columns = {name: column for name, column in made_with_v0().items() if name in ("study_id", "errors")}
    refused(tmp_path, columns, r"^fit_composite: metrics must be columns called .*; got none for ")
    columns = made_with_v0()
    match = r"^fit_composite: .* has no column '{}'\. Columns: 'pair_id', "
    refused(tmp_path, columns, match.format("reader"), study="reader")
    refused(tmp_path, columns, match.format("total"), errors="total")
    refused(tmp_path, columns, match.format("rouge-l"), metrics=["rouge-l"])


def test_no_table(tmp_path):
    with pytest.raises(InputError, match=r"^fit_composite: there is no file .*none\.csv\. Check the name\.$"):
        fit_composite(tmp_path / "none.csv")


# Ratings and scores, without a script between


def test_ratings_and_scores_are_the_table_that_a_script_would_make(rated, tmp_path):
    ratings = read_ratings(rated.long)
    scores = {tuple(line.split(",")[:2]): line.split(",")[2:4] for line in rated.scores.read_text().splitlines()[1:]}
    columns = {name: [] for name in ("study_id", "bleu-2", "chexbert", "errors")}
    for study, candidate, errors in zip(
        ratings.studies, ratings.candidates, ratings.errors("significant").sum(axis=2).mean(axis=1), strict=True
    ):
        bleu, poor = scores[study, candidate]
        for name, cell in zip(columns, (study, bleu, poor, repr(float(errors))), strict=True):
            columns[name].append(cell)
    by_script = fit_composite(write(tmp_path / "pairs.csv", columns)).content
    renamed = tmp_path / "scores.csv"
    renamed.write_text(rated.scores.read_text().replace("bleu,poor,", "bleu_score,semb_score,", 1))
    fitted = fit_composite(rated.long, renamed, errors="significant", name="x").content
    assert list(fitted["terms"]) == ["bleu-2", "chexbert"]
    for name, term in by_script["terms"].items():
        assert fitted["terms"][name] == pytest.approx(term, rel=1e-12)
    for name in ("pairs", "studies", "r2", "tau_b", "tau_b_held_out", "tau_b_held_out_low"):
        assert fitted["fit"][name] == pytest.approx(by_script["fit"][name], rel=1e-9)
    assert fitted["fit"]["standard_errors"] == pytest.approx(by_script["fit"]["standard_errors"], rel=1e-9)
    assert fitted["source"]["errors"] == "significant"
    assert [one["file"] for one in fitted["source"]["scores"]] == ["scores.csv"]
    assert fitted["source"]["unused"] == ["RadCliQ-v1", "crepe"]
    chosen = fit_composite(rated.long, renamed, metrics=["chexbert"]).content
    assert "unused" not in chosen["source"]
    assert list(chosen["terms"]) == ["chexbert"]
    with pytest.raises(
        InputError, match=r"^fit_composite: errors must be one of total, significant of ratings; got 'x'"
    ):
        fit_composite(rated.long, renamed, errors="x")


def test_texts_of_the_samples_file_are_scored(oracle, rated, tmp_path):
    given = ["fit-composite", rated.long, "--samples", rated.samples, "--metrics", "bleu-1"]
    code, out, err = oracle(*given, "--out", tmp_path / "w.json")
    assert (code, out) == (0, "")
    assert err.startswith(f"{tmp_path / 'w.json'}: 1 metrics, 200 pairs, R2 ")
    record = read_weights(tmp_path / "w.json")
    assert list(record.terms) == ["bleu-1"]
    fitted = fit_composite(rated.long, samples=rated.samples, metrics=["bleu-1"])
    assert fitted.records()[0]["weight"] == record.terms["bleu-1"].weight
    assert fitted.signature["command"] == "fit-composite"
    assert fitted.summary() == f"1 metrics, 200 pairs, R2 {fitted.content['fit']['r2']:.3f}"


def test_held_out_predictions_that_are_equal_have_no_order(tmp_path, oracle):
    """Without the one report whose score differs there is no weight; the others have equal scores."""
    metric, errors = [0.3, 0.3, 0.3, 0.7], [1.1, 2.3, 1.7, 0.4]
    columns = {"study_id": range(4), "bleu-2": metric, "errors": errors}
    fitted = fit_composite(write(tmp_path / "pairs.csv", columns))
    fit = fitted.content["fit"]
    assert fit["tau_b_held_out"] is fit["tau_b_held_out_low"] is fit["tau_b_held_out_high"] is None
    assert "held out is undefined" in " ".join(fitted.warnings())
    assert fit["tau_b"] == pytest.approx(-stats.kendalltau(metric, errors).statistic)
    code, printed, _ = oracle("fit-composite", tmp_path / "pairs.csv", "--format", "jsonl")
    assert code == 0
    assert json.loads(printed)["fit"]["tau_b_held_out"] is None
    _, shown, _ = oracle("fit-composite", tmp_path / "pairs.csv", "--format", "table")
    assert "held out undefined" in " ".join(shown.split())


@pytest.mark.parametrize("seed", range(40))
def test_ties_of_predictions_are_those_of_fractions(seed, tmp_path):
    """Coarse scores of few studies, against the same fit in exact arithmetic."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 9))
    values = rng.choice([0.0, 0.1, 0.3, 0.7], n)
    errors = rng.choice([0, 1, 2], n)
    if len({*values}) < 2 or len({*errors.tolist()}) < 2:
        return
    columns = {"study_id": range(n), "bleu-2": values, "errors": errors}
    fit = fit_composite(write(tmp_path / "pairs.csv", columns)).content["fit"]
    x, y = [Fraction(str(v)) for v in values], [Fraction(int(e)) for e in errors]
    agreeing = ordered = of_errors = 0
    for i, j in permutations(range(n), 2):
        kept = [k for k in range(n) if k not in (i, j)]
        mean_x, mean_y = (sum(side[k] for k in kept) / len(kept) for side in (x, y))
        slope = sum((x[k] - mean_x) * (y[k] - mean_y) for k in kept)
        predicted, wanted = (x[i] - x[j]) * slope, y[i] - y[j]
        predicted, wanted = ((v > 0) - (v < 0) for v in (predicted, wanted))
        agreeing, ordered, of_errors = agreeing + predicted * wanted, ordered + abs(predicted), of_errors + abs(wanted)
    if ordered:
        assert fit["tau_b_held_out"] == pytest.approx(agreeing / np.sqrt(float(ordered * of_errors)))
    else:
        assert fit["tau_b_held_out"] is None
