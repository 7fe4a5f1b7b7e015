import csv
import json
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.base.option_types import ResamplesOfRaters
from metric_oracle.findings.figures import write_figure
from metric_oracle.findings.printed_tables import markdown
from metric_oracle.raters.alignment import align
from metric_oracle.raters.interrater import RADIOLOGISTS, draw_raters, other_raters
from metric_oracle.raters.metric_agreement import MEAN
from metric_oracle.raters.metric_comparison import (
    ABLATION,
    AGREEMENT,
    CEILING,
    CHANGE,
    DIFFERENCE,
    TIME,
    RatedFiles,
    compare_metrics,
)
from metric_oracle.raters.rank_correlation import draw, sum_of_raters
from metric_oracle.raters.ratings import Ratings
from support import rule_of

POOR = {"poor": "higher"}
FEWER = {"directions": POOR, "resamples": 100}


@pytest.fixture(scope="module")
def found(rated):
    files = {"ReXVal": RatedFiles(rated.long, [rated.scores], rated.samples)}
    return compare_metrics(files, directions=POOR, resamples=200)


def one(records):
    (record,) = records
    return record


def value(found, what, **keys):
    keys = {"statistic": "tau-b", "errors": "total", **keys}
    return one([r for r in found.select(what, **keys) if r["versus"] == keys.get("versus")])


def numbers(record):
    return [record[name] for name in ("value", "low", "high", "bca_low", "bca_high", "degenerate")]


def test_agreement_is_that_of_align(rated, found):
    """On all pairs, with intervals, differences and ceiling; adjusted p-values have another family."""
    aligned = align(rated.long, rated.scores, directions=POOR, resamples=200)
    for record in aligned.metrics.to_pylist():
        if record["rater"] == MEAN:
            keys = {name: record[name] for name in ("metric", "errors", "statistic")}
            assert numbers(value(found, AGREEMENT, set="ReXVal", **keys)) == pytest.approx(numbers(record), abs=1e-12)
    of_align = {(r["statistic"], r["errors"], r["a"], r["b"]): r for r in aligned.differences.to_pylist()}
    mine = found.select(DIFFERENCE, set="ReXVal")
    assert len(mine) == len(of_align) == 4 * 2 * 6
    for record in mine:
        other = of_align[record["statistic"], record["errors"], record["metric"], record["versus"]]
        assert record["value"] == pytest.approx(other["difference"], abs=1e-12)
        assert [record["low"], record["high"], record["p_value"]] == [other["low"], other["high"], other["p_value"]]
    among = {(r["statistic"], r["errors"]): r["value"] for r in aligned.raters.to_pylist()}
    for kind in ("total", "significant"):
        record = one(found.select(CEILING, set="ReXVal", metric=RADIOLOGISTS, errors=kind))
        assert record["value"] == pytest.approx(among["leave-one-rater-out tau-b", kind], abs=1e-12)


def test_the_family_is_all_sets(found):
    for statistic in ("tau-b", "spearman"):
        family = found.select(DIFFERENCE, statistic=statistic)
        assert {r["set"] for r in family} == {"ReXVal", "ReXVal*"}
        expected = stats.false_discovery_control([r["p_value"] for r in family])
        assert [r["p_adjusted"] for r in family] == pytest.approx(expected)


def kept_pairs(rated):
    with rated.samples.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    names = ("bleu", "s_emb", "bertscore", "radgraph")
    return np.array([row["gt_report"].split() != row[name].split() for row in rows for name in names])


def test_change_without_equal_texts(rated, found):
    kept = kept_pairs(rated)
    assert (~kept).sum() == 11
    assert [(view.name, view.base, len(view.errors["total"])) for view in found.views] == [
        ("ReXVal", "ReXVal", 200),
        ("ReXVal*", "ReXVal", 189),
    ]
    errors = rated.counts.sum(axis=(3, 4)).reshape(200, 6).sum(axis=1)
    studies = [str(s) for s in range(50) for _ in range(4)]
    drawn = draw(studies, 200, 0)
    scores = found.views[0].scores["bleu"]
    of_all, of_fewer = (stats.kendalltau(scores[some], -errors[some]).statistic for some in (kept | True, kept))
    assert value(found, AGREEMENT, set="ReXVal*", metric="bleu")["value"] == pytest.approx(of_fewer, abs=1e-12)
    record = value(found, CHANGE, metric="bleu", versus="ReXVal*")
    assert record["value"] == pytest.approx(of_fewer - of_all, abs=1e-12)
    changes = []  # the same studies are drawn on both sides
    for times in drawn.pairs[:200].astype(int):
        rows = np.arange(200).repeat(times)
        of_both = (stats.kendalltau(scores[some], -errors[some]).statistic for some in (rows, rows[kept[rows]]))
        changes.append(-next(of_both) + next(of_both))
    assert [record["low"], record["high"]] == pytest.approx(np.quantile(changes, [0.025, 0.975]), abs=1e-12)


def test_metrics_beside_one_radiologist(rated, found):
    """Of a metric as of a rater: tau-b with the mean of all raters but one, averaged over these."""
    total = rated.counts.sum(axis=(3, 4)).reshape(200, 6)
    scores = found.views[0].scores["bleu"]
    others = [total.sum(axis=1) - total[:, r] for r in range(6)]
    taus = [stats.kendalltau(scores, -some).statistic for some in others]
    raters = [stats.kendalltau(total[:, r], some).statistic for r, some in enumerate(others)]
    assert value(found, CEILING, set="ReXVal", metric="bleu")["value"] == pytest.approx(np.mean(taus), abs=1e-12)
    below = value(found, CEILING, set="ReXVal", metric="bleu", versus=RADIOLOGISTS)
    assert below["value"] == pytest.approx(np.mean(taus) - np.mean(raters), abs=1e-12)
    assert below["low"] < below["value"] < below["high"]


def rated_by_four(n_raters=4):
    """Return a set of 30 studies x 2 rated by some of four, and the errors that each counted, int64[60, R].

    The counts of the last run against the texts.
    """
    rng = np.random.default_rng(6)
    rate = rng.gamma(1, 1, (30, 2, 1))
    total = rng.poisson(3 * rate ** [1, 1, 1, -0.3]).reshape(60, 4)[:, :n_raters]
    counts = np.zeros((60, n_raters, 1, 2), np.int64)
    counts[:, :, 0, 1] = total
    studies = [f"s{i // 2}" for i in range(60)]
    places, added = rng.integers(0, 9, 60), rng.poisson(3 * rate.ravel())
    words = [["w"] * a + ["x"] * n + ["w"] * (8 - a) for a, n in zip(places, added, strict=True)]
    texts = [["w " * 8] * 60, [" ".join(some) for some in words]]
    pairs = [f"p{i}" for i in range(60)]
    return Ratings(pairs, studies, None, list("abcd"[:n_raters]), ["1"], counts, "made up", None, *texts), total


def test_raters_have_random_numbers_of_their_own():
    """The seed is that of the studies: one stream for both would tie the raters to the studies."""
    draws = draw_raters(4, 100, 2)
    normal = np.random.default_rng(2).standard_normal((100, 4))
    ratio = draws / normal  # of one stream each rater's normal numbers, over one factor in a row
    assert (ratio.std(axis=1) > 1e-3 * np.abs(ratio).mean(axis=1)).all()


def test_intervals_for_other_raters():
    """A resample of studies, moved by what leaving out each rater changes, less what comes from single studies."""
    ratings, total = rated_by_four()
    files, asked = {"S": RatedFiles(ratings)}, {"metrics": ["bleu-1", "bleu-2"], "resamples": 100, "seed": 2}
    fixed, both = (compare_metrics(files, **asked, resample_raters=is_asked) for is_asked in (False, True))
    assert both.signature["bootstrap"]["unit"] == "study, and raters by the jackknife"
    assert both.select(CEILING) == fixed.select(CEILING)
    draws = draw_raters(4, 100, 2)
    drawn = draw(ratings.studies, 100, 2).pairs.astype(int)
    columns = [both.views[0].scores[name] for name in asked["metrics"]]

    def tau(scores, times, raters):
        return stats.kendalltau(scores.repeat(times), -total[:, raters].sum(axis=1).repeat(times)).statistic

    everyone = [0, 1, 2, 3]
    found = []
    for scores in columns:
        panels = [everyone, *(np.delete(everyone, rater) for rater in everyone)]
        found.append([np.array([tau(scores, times, some) for times in drawn]) for some in panels])
    for values, keys in (
        (found[0], {"what": AGREEMENT, "metric": "bleu-1"}),
        ([a - b for a, b in zip(*found, strict=True)], {"what": DIFFERENCE, "metric": "bleu-1", "versus": "bleu-2"}),
    ):
        deviations = np.array([some[-1] for some in values[1:]])
        deviations -= deviations.mean()
        cells = np.array([some[100:130] for some in values[1:]]) - values[0][100:130]
        cells = cells - cells.mean(axis=0) - cells.mean(axis=1)[:, None] + cells.mean()
        between, single = 3 / 4 * (deviations**2).sum(), 29 * 3 / (30 * 4) * (cells**2).sum()
        share = max(0, 1 - single / between)
        expected = values[0][:100] + np.sqrt(share * 3 / 4) * (draws @ deviations)
        widest = 1 if keys["what"] == AGREEMENT else 2
        ends = np.quantile(np.clip(expected, -widest, widest), [0.025, 0.975])
        record, before = (value(some, set="S", **keys) for some in (both, fixed))
        assert [record["low"], record["high"]] == pytest.approx(ends, abs=1e-12)
        assert record["value"] == before["value"]
        assert record["bca_low"] is None
        assert single > 0
        if keys["what"] == AGREEMENT:
            assert share > 0.1
            assert record["high"] - record["low"] > before["high"] - before["low"]


def test_raters_vary_as_an_analysis_of_variance_says():
    """Of a mean, which leaves nothing to approximate: the component of raters, and nothing where there is none."""
    rng = np.random.default_rng(3)
    n_studies, n_raters = 12, 5
    for of_raters in (1.0, 0.0):
        x = rng.normal(0, 1, (n_raters, n_studies)) + of_raters * rng.normal(0, 1, (n_raters, 1))
        without = [*(np.delete(np.arange(n_studies), s) for s in range(n_studies)), np.arange(n_studies)]
        tails = [[np.delete(x, r, axis=0)[:, some].mean() for some in without] for r in range(n_raters)]
        values = np.concatenate([np.zeros(n_raters), [x[:, some].mean() for some in without], *tails])
        moved = other_raters(values, np.eye(n_raters), n_studies)  # one rater's part in each resample
        assert (moved[n_raters:] == values[n_raters:][: n_studies + 1]).all()
        of_rater, of_study = x.mean(axis=1), x.mean(axis=0)
        rest = x - of_rater[:, None] - of_study + x.mean()
        errors = (rest**2).sum() / ((n_studies - 1) * (n_raters - 1))
        component = n_studies * of_rater.var(ddof=1) - errors
        assert (component > 0) == (of_raters > 0)
        assert (moved[:n_raters] ** 2).sum() == pytest.approx(max(component, 0) / (n_studies * n_raters), rel=1e-9)


def test_two_raters_vary_widely_within_bounds():
    """With one degree of freedom t has no bounds; agreement has."""
    files = {"S": RatedFiles(rated_by_four(2)[0])}
    both = compare_metrics(files, metrics=["bleu-1", "rouge-l"], resamples=100, resample_raters=True)
    for record in both.select(AGREEMENT):
        low = 0 if record["statistic"] == "pairwise accuracy" else -1
        assert low <= record["low"] <= record["value"] <= record["high"] <= 1
    assert all(-2 <= record["low"] <= record["high"] <= 2 for record in both.select(DIFFERENCE))


def test_no_interval_where_one_rater_says_all():
    """Without the only rater who saw an error there is nothing to rank."""
    ratings, _ = rated_by_four(2)
    ratings.counts[:, 1] = 0
    both = compare_metrics({"S": RatedFiles(ratings)}, metrics=["bleu-1"], resamples=100, resample_raters=True)
    record = value(both, AGREEMENT, set="S", metric="bleu-1")
    assert record["value"] > 0.2
    assert record["low"] is record["high"] is None
    assert record["degenerate"] == 100


def test_other_raters_want_two():
    match = (
        r"^compare_metrics: resample_raters must be left out for sets with fewer than 2 raters; got 1 in S\. Leave out"
    )
    with pytest.raises(InputError, match=match):
        compare_metrics({"S": RatedFiles(rated_by_four(1)[0])}, metrics=["bleu-1"], resample_raters=True)


REFISCO = "id,indication,impression_original,impression_edited,score,annotator,source"
SEVERITIES = ("No error", "Not actionable", "Actionable nonurgent error", "Urgent error", "Emergent error")


@pytest.fixture(scope="module")
def refisco(tmp_path_factory):
    """Write annotated reports of two lines, and scores of them that fall with the severity."""
    folder, rng = tmp_path_factory.mktemp("refisco"), np.random.default_rng(5)
    lines, scores = [REFISCO], ["pair_id,bleu,green"]
    for s, source in [(s, source) for s in range(25) for source in ("XREM", "Expert")]:
        worst = rng.integers(0, 5, 2)
        lines += [f"s{s},why,Line {s} {k}.,{'[no edit]' if not w else 'Other.'},{SEVERITIES[w]},{s % 4},{source}"
                  for k, w in enumerate(worst)]  # fmt: skip
        noise = np.round(rng.normal(0, 1, 2), 1)
        scores.append(f"s{s}/{source}/{s % 4},{-worst.max() + noise[0]},{-worst.max() + 3 * noise[1]}")
    paths = folder / "refisco.csv", folder / "scores.csv"
    for path, content in zip(paths, (lines, scores), strict=True):
        path.write_text("\n".join(content) + "\n")
    return paths


def test_several_sets(rated, refisco):
    files = {"ReXVal": RatedFiles(rated.green, [rated.scores]), "ReFiSco": RatedFiles(refisco[0], [refisco[1]])}
    found = compare_metrics(files, **FEWER)
    assert found.metrics == ["bleu", "poor", "RadCliQ-v1", "crepe", "green"]
    assert [view.name for view in found.views] == ["ReXVal", "ReFiSco", "ReFiSco*"]  # its texts lie in its file
    assert found.views[1].kinds == ("lines with an error", "maximum severity", "average severity")
    record = value(found, AGREEMENT, set="ReFiSco", metric="green", errors="average severity")
    errors, scores = found.views[1].errors["average severity"], found.views[1].scores["green"]
    assert record["value"] == pytest.approx(stats.kendalltau(scores, -errors).statistic, abs=1e-12)
    sets = {(r["metric"], r["versus"]): r["set"] for r in found.select(DIFFERENCE, errors="total", statistic="tau-b")}
    assert sets == dict.fromkeys(combinations(["bleu", "poor", "RadCliQ-v1", "crepe"], 2), "ReXVal")
    pairs = {(r["metric"], r["versus"]) for r in found.select(DIFFERENCE, set="ReFiSco")}
    assert pairs == {("bleu", "green")}
    assert {r["set"] for r in found.select(CEILING)} == {"ReXVal"}  # ReFiSco has one rater a report
    first, *_ = tables = found.tables()
    assert [cell.lines for cell in dict(first.rows)["green"]][:2] == [("–",), ("–",)]
    assert first.columns == ["ReXVal τ", "ReXVal ρ", "ReFiSco τ", "ReFiSco ρ"]
    with_ends = [table for table in tables if table.title.endswith("confidence intervals")]
    assert [len(table.columns) for table in with_ends] == [6, 6, 4]
    assert with_ends[0].notes == [
        "With the mean of raters of sig. and insig. errors: ReXVal; lines with an error: ReFiSco, ReFiSco*."
    ]


def test_texts_are_scored_beside_the_files_and_timed(rated, tmp_path):
    times = tmp_path / "times.csv"
    times.write_text("metric,ms_per_pair,device\ncrepe,9.5,A6000\n")
    files = {"S": RatedFiles(rated.long, [rated.scores], rated.samples)}
    found = compare_metrics(files, metrics=["crepe", "rouge-l"], times=times, resamples=100)
    assert found.metrics == ["crepe", "rouge-l"]
    record = {r["metric"]: (r["value"], r["device"]) for r in found.select(TIME)}
    assert record["crepe"] == (9.5, "A6000")
    assert 0 < record["rouge-l"][0] < 1000
    assert record["rouge-l"][1].endswith(" cores")
    assert found.signature["machine"]["cores"] > 0
    assert "scored" in found.signature["sets"]["S"]
    aligned = align(rated.long, rated.scores, samples=rated.samples, metrics=["crepe", "rouge-l"], resamples=100)
    assert list(aligned.scores) == ["crepe", "rouge-l"]
    assert np.array_equal(aligned.scores["rouge-l"], found.views[0].scores["rouge-l"])
    (table,) = (table for table in found.tables() if table.title == "Time")
    assert [cell.lines for cell in dict(table.rows)["crepe"]] == [("9.50",), ("A6000",)]


def test_ablations(rated, tmp_path):
    """A variant is compared with the metric on the same resampled studies, all variants one family."""
    with rated.scores.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    rng = np.random.default_rng(1)
    paths = {}
    for name, noise in (("no pretraining", 0.05), ("no dual loss", 3)):
        lines = ["study_number,candidate_type,crepe"]
        for row in rows:
            score = float(row["crepe"]) + rng.normal(0, noise)
            lines.append(f"{row['study_number']},{row['candidate_type']},{score}")
        paths[name] = tmp_path / f"{name}.csv"
        paths[name].write_text("\n".join(lines))
    files = {"S": RatedFiles(rated.long, [rated.scores], rated.samples)}
    found = compare_metrics(files, metrics=["crepe", "bleu"], ablations=paths, resamples=200)
    own = value(found, AGREEMENT, set="S*", metric="crepe")
    differences = []
    for name in paths:
        record = value(found, ABLATION, set="S*", metric=name)
        test = value(found, ABLATION, set="S*", metric=name, versus="crepe")
        assert test["value"] == pytest.approx(record["value"] - own["value"], abs=1e-12)
        differences.append(test)
    assert differences[1]["p_adjusted"] < 0.02 < 0.2 < abs(differences[1]["value"])
    family = [r for r in found.select(ABLATION) if r["versus"]]
    assert [r["p_adjusted"] for r in family] == pytest.approx(
        stats.false_discovery_control([r["p_value"] for r in family])
    )
    (table,) = (table for table in found.tables() if table.title == "Ablations")
    assert [name for name, _ in table.rows] == ["crepe", "no pretraining", "no dual loss"]
    assert table.notes[0].endswith("adjusted by Benjamini and Hochberg over these 4 tests.")

    match = r"^compare_metrics: ablations must have one of the metrics as a column \('bleu', 'poor'\); got none in "
    with pytest.raises(InputError, match=match + r".*\. Give the column of the variant the name of the metric\.$"):
        compare_metrics(files, metrics=["poor", "bleu"], ablations=paths, **FEWER)
    with pytest.raises(InputError, match=r"must have one of the metrics .*; got 'bleu', 'crepe' in"):
        compare_metrics(files, metrics=["crepe", "bleu"], ablations={"x": rated.scores}, **{**FEWER, "directions": {}})


def test_tables(found):
    tables = found.tables()
    assert [table.title for table in tables] == [
        "Correlation with radiologists: Kendall τ-b and Spearman ρ",
        "Change from ReXVal to ReXVal*",
        "Correlation with radiologists and 95 % confidence intervals",
        "Correlation with radiologists and 95 % confidence intervals",
        "Agreement within references",
        "Metrics beside one radiologist",
        "Difference of two metrics in Kendall tau-b",
    ]
    plain, change, ends, _, within, ceiling, differences = tables
    assert [name for name, _ in plain.rows] == ["bleu", "poor", "RadCliQ-v1", "crepe"]
    assert [name for name, cells in plain.rows if cells[0].best] == ["bleu", "RadCliQ-v1", "crepe"]  # one column thrice
    assert [name for name, cells in plain.rows if cells[0].second] == ["poor"]
    assert (plain.columns, ends.columns) == (
        ["ReXVal τ", "ReXVal ρ"], ["ReXVal τ", "ReXVal ρ", "ReXVal* τ", "ReXVal* ρ"]
    )  # fmt: skip
    record = value(found, AGREEMENT, set="ReXVal", metric="bleu")
    assert plain.rows[0][1][0].lines == (f"{record['value']:.3f}",)
    assert ends.rows[0][1][0].lines == (f"{record['value']:.3f}", f"[{record['low']:.3f} {record['high']:.3f}]")
    assert change.columns == ["ReXVal τ", "ReXVal* τ", "Δτ"]
    assert change.notes[0].startswith("Kendall τ-b; ReXVal*: without 11 pairs of equal texts")
    assert within.columns[:2] == ["ReXVal sig. and insig. errors, accuracy", "ReXVal sig. and insig. errors, tau-b"]
    assert ceiling.rows[0][0] == "one radiologist"
    assert ceiling.rows[0][1][1].lines == ("–",)
    assert len(differences.rows) == 2 * 2 * 6
    assert plain.notes[1].startswith(
        "ReXVal: 200 pairs of 50 studies, 6 raters; ReXVal*: 189 pairs of 50 studies, 6 raters. 95 % percentile "
    )
    text = markdown(tables, found.signature)
    assert "Signature: compare-metrics\\|bleu+poor+RadCliQ-v1+crepe\\|ReXVal:" in text
    assert found.summary() == "bleu, poor, RadCliQ-v1, crepe on ReXVal (200 pairs), ReXVal* (189 pairs)"
    assert all(found.view(view.name) is view for view in found.views)
    match = r"^MetricComparison\.view: name must be one of ReXVal, ReXVal\*; got 'Other'\. Choose a rated set\.$"
    with pytest.raises(InputError, match=match):
        found.view("Other")


def test_one_command(oracle, rated, refisco, tmp_path):
    """From the files of a rated set to the tables and figures."""
    out, bars, scatter = tmp_path / "t.tex", tmp_path / "bars.png", tmp_path / "scatter.svg"
    times = tmp_path / "times.csv"
    times.write_text("metric,ms_per_pair\ncrepe,9.5\n")
    code, printed, err = oracle(
        "compare-metrics", f"ReXVal={rated.long}", f"ReFiSco={refisco[0]}", "--scores", f"ReXVal={rated.scores}",
        "--scores", f"ReFiSco={refisco[1]}", "--samples", f"ReXVal={rated.samples}", "--direction", "poor=higher",
        "--paired", "bleu,crepe", "--times", times, "--ablation", f"as it is={rated.scores}", "-m", "bleu,rouge-l",
        "--resamples", 100,
    )  # fmt: skip
    assert (code, printed) == (2, "")
    assert err.startswith("error: compare-metrics: --direction must be higher or lower for columns of the scores")
    given = [
        "compare-metrics", f"ReXVal={rated.long}", f"ReFiSco={refisco[0]}", "--scores", f"ReXVal={rated.scores}",
        "--scores", f"ReFiSco={refisco[1]}", "--samples", f"ReXVal={rated.samples}", "--resamples", 100,
    ]  # fmt: skip
    code, printed, err = oracle(*given, "-m", "bleu,rouge-l", "--out", out, "--plot", bars, "--scatter", scatter)
    assert (code, printed) == (0, "")
    with refisco[0].open(newline="") as file:
        edits = [(row["id"], row["source"], row["impression_edited"]) for row in csv.DictReader(file)]
    differ = len({(study, source) for study, source, edited in edits if edited != "[no edit]"})
    assert 0 < differ < 50
    compared = (
        f"bleu, rouge-l on ReXVal (200 pairs), ReXVal* (189 pairs), ReFiSco (50 pairs), ReFiSco* ({differ} pairs)"
    )
    assert err == (f"{scatter}: errors against scores of 2 metrics\n{bars}: {compared}\n{out}: {compared}\n")
    assert out.read_text().count(r"\begin{table}") == 10
    assert r"\underline{" in out.read_text()
    assert bars.stat().st_size > 10_000
    assert b"<svg" in scatter.read_bytes()[:500]
    code, printed, _ = oracle(*given, "-m", "bleu", "--format", "jsonl")
    assert {record["what"] for record in map(json.loads, printed.splitlines())} == {AGREEMENT, CHANGE, CEILING}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"sets": {}}, r"sets must be at least one rated set; got none\. Give one as `sets=\{NAME: RATINGS\}`\.$"),
        ({"resamples": 5}, rf"resamples {rule_of(ResamplesOfRaters)}; got 5\."),
        ({"seed": -1}, r"seed must be an int of at least 0; got -1\."),
        ({"directions": {}}, r"directions must be given for columns whose names do not tell it; got none for 'poor'\."),
        ({"paired": [("bleu", "x")]}, r"paired must name two metrics of 'bleu', .*; got 'bleu' and 'x'\."),
        (
            {"metrics": ["green"]},
            r"scores must have a column of numbers for each metric; got no 'green' in .*scores\.csv",
        ),
    ],
)
def test_refused(rated, change, match):
    given = {"sets": {"S": RatedFiles(rated.long, [rated.scores])}, **FEWER, **change}
    with pytest.raises(InputError, match=f"^compare_metrics: {match}"):
        mo.compare_metrics(given.pop("sets"), **given)


@pytest.mark.parametrize(
    ("rows", "got"),
    [
        ("x,1", "another metric in row 1"),
        ("bleu,0", "no time above 0 in row 1"),
        ("bleu,word", "no time above 0 in row 1"),
        ("bleu,1\nbleu,2", "a second time of 'bleu' in row 2"),
        ("bleu,inf", "no time above 0 in row 1"),
    ],
)
def test_times_refused(rated, tmp_path, rows, got):
    path = tmp_path / "times.csv"
    path.write_text(f"metric,ms_per_pair\n{rows}\n")
    match = (
        r"^compare_metrics: times must have each metric \('bleu'.*\) at most once, with milliseconds above 0 in ms_per"
        rf"_pair; got {got} of "
    )
    with pytest.raises(InputError, match=match):
        compare_metrics({"S": RatedFiles(rated.long, [rated.scores])}, times=path, **FEWER)


def test_of_sets_refused(fails, rated):
    given = ["compare-metrics", f"A={rated.long}", f"B={rated.long}"]
    for option in ("scores", "samples"):
        refused = rf"compare-metrics: --{option} must name a set of 'A', 'B'; got 'C'\. Add NAME=RATINGS\."
        fails(*given, f"--{option}", f"C={rated.scores}", match=refused)
        fails(*given, f"--{option}", rated.scores, match=rf"compare-metrics: --{option} must be NAME=FILE; got ")


def test_plots(found, tmp_path):
    found.write(tmp_path / "b.png")
    write_figure(tmp_path / "s.pdf", found.scatter())
    assert (tmp_path / "b.png").stat().st_size > 10_000
    assert (tmp_path / "s.pdf").read_bytes().startswith(b"%PDF")


def test_grades_tie_whatever_the_order_of_the_raters():
    """Sums of thirds in another order differ by rounding, which would break ties."""
    thirds = np.array([[1 / 3, 2 / 3, 4 / 3], [4 / 3, 1 / 3, 2 / 3], [2 / 3, 4 / 3, 1 / 3]])
    assert len(set(thirds.sum(axis=0).tolist())) > 1
    assert len(set(sum_of_raters(thirds).tolist())) == 1


def test_ratings_in_memory(rated):
    names = [f"p{i}" for i in range(40)]
    rng = np.random.default_rng(0)
    counts = rng.poisson(1, (40, 3, 2, 2))
    texts = [[f"text {i % n}" for i in range(40)] for n in (7, 5)]
    source = (list("abc"), ["1", "2"], counts, "made up", None)
    ratings = Ratings(names, [name[:-1] for name in names], None, *source, *texts)
    found = compare_metrics({"M": RatedFiles(ratings)}, metrics=["bleu-1", "rouge-l"], resamples=100)
    assert [view.name for view in found.views] == ["M", "M*"]
    assert found.warnings() == ["Fewer than 20 studies (M 4, M* 4): the intervals are too short."]
