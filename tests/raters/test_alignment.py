import csv
import dataclasses
import io
import json
import sys
from itertools import combinations

import numpy as np
import pyarrow.compute as pc
import pytest
from rich.console import Console
from scipy import stats

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, InputError
from metric_oracle.base.option_types import ResamplesOfRaters
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.printed_tables import latex, markdown
from metric_oracle.raters.alignment import align
from metric_oracle.raters.interrater import intraclass
from metric_oracle.raters.metric_agreement import MEAN
from metric_oracle.raters.rank_correlation import accuracy, draw, interval_row, side, spearman, tau_b, tau_within
from metric_oracle.raters.ratings import Ratings, read_ratings
from metric_oracle.raters.scatter import least_squares
from metric_oracle.statistics import bootstrap_p
from support import rule_of

POOR = {"poor": "higher"}  # a name that no tool owns
CANDIDATES = ("bleu", "s_emb", "bertscore", "radgraph")


@pytest.fixture(scope="module")
def aligned(rated):
    return align(rated.long, rated.scores, directions=POOR)


def record(found, metric, errors, rater, statistic):
    keys = {"metric": metric, "errors": errors, "rater": rater, "statistic": statistic}
    (row,) = [r for r in found.metrics.to_pylist() if all(r[key] == value for key, value in keys.items())]
    return row


def scores_of(rated, name):
    """Read a column of the made-up scores without our reader: float64[200], by study, then candidate."""
    with rated.scores.open(newline="") as file:
        rows = {(int(row["study_number"]), row["candidate_type"]): float(row[name]) for row in csv.DictReader(file)}
    return np.array([rows[s, c] for s in range(50) for c in CANDIDATES])


def small(tmp_path, counts, scores, studies=None, **options):
    """Align scores with one rater's counts of one category; `studies` names the study of each pair."""
    n = len(counts)
    studies = studies or [f"s{i // 2:02}" for i in range(n)]
    lines = ["pair_id,study_id,rater,category,significant,count"]
    for i, (study, count) in enumerate(zip(studies, counts, strict=True)):
        lines += [f"p{i},{study},R,1,1,{count}", f"p{i},{study},R,1,0,0"]
    (tmp_path / "r.csv").write_text("\n".join(lines))
    (tmp_path / "s.csv").write_text("\n".join(["pair_id,x", *(f"p{i},{score}" for i, score in enumerate(scores))]))
    return align(tmp_path / "r.csv", tmp_path / "s.csv", **{"resamples": 200, "directions": {"x": "higher"}, **options})


# The statistic


def test_values_are_those_of_scipy(rated, aligned):
    total, significant = rated.counts.sum(axis=(3, 4)).reshape(200, 6), rated.counts[..., 1].sum(3).reshape(200, 6)
    assert list(aligned.scores) == ["bleu", "poor", "RadCliQ-v1", "crepe"]
    for name, sign in (("bleu", -1), ("poor", -1), ("RadCliQ-v1", 1), ("crepe", 1)):
        x = scores_of(rated, name)
        assert np.array_equal(aligned.scores[name], x)
        for kind, errors in (("total", total), ("significant", significant)):
            for rater in range(6):
                expected = stats.kendalltau(x, sign * errors[:, rater], variant="b").statistic
                assert record(aligned, name, kind, str(rater), "tau-b")["value"] == expected
                expected = stats.spearmanr(x, sign * errors[:, rater]).statistic
                assert record(aligned, name, kind, str(rater), "spearman")["value"] == expected
            expected = stats.kendalltau(x, sign * errors.mean(axis=1)).statistic
            assert record(aligned, name, kind, MEAN, "tau-b")["value"] == expected
            assert np.allclose(aligned.errors[kind], errors.mean(axis=1), rtol=1e-15)
    assert aligned.metrics.num_rows == 4 * 2 * 7 * 4


def test_agreement_is_positive_in_either_direction(aligned):
    values = [record(aligned, name, "total", MEAN, "tau-b")["value"] for name in ("bleu", "RadCliQ-v1", "crepe")]
    assert values[0] > 0.3
    assert values == [values[0]] * 3
    assert aligned.signature["lower_is_better"] == ["RadCliQ-v1", "crepe"]
    assert np.array_equal(aligned.scores["crepe"], -aligned.scores["bleu"])  # as read


# The bootstrap


def test_resampled_values_are_those_of_scipy_on_repeated_rows():
    rng = np.random.default_rng(4)
    x, y = rng.integers(0, 5, 30).astype(float), rng.integers(0, 4, 30)
    studies = [str(s) for s in rng.integers(0, 9, 30)]
    drawn = draw(studies, 50, 1)
    sides = side(x, drawn), side(y, drawn)
    n = len(set(studies))
    assert drawn.pairs.shape == (50 + n + 1, 30)
    for function, of_scipy in ((tau_b, stats.kendalltau), (spearman, stats.spearmanr)):
        values = function(*sides, drawn)
        for value, times in zip(values, drawn.pairs.astype(int), strict=True):
            assert value == pytest.approx(of_scipy(x.repeat(times), y.repeat(times)).statistic, abs=1e-13)
    assert (drawn.pairs[:50].sum(axis=1) != 30).any()  # studies have different numbers of pairs
    for times in drawn.pairs:  # all pairs of a study are drawn together
        assert all(len({t for t, study in zip(times, studies, strict=True) if study == one}) == 1 for one in studies)
    assert (drawn.pairs[50:-1] == 0).any(axis=1).all()
    assert (drawn.pairs[-1] == 1).all()


@pytest.mark.parametrize("statistic", ["tau-b", "spearman"])
def test_intervals_are_those_of_scipy(tmp_path, statistic):
    rng = np.random.default_rng(5)
    counts = rng.poisson(2, 28)
    scores = np.round(-counts + rng.normal(0, 2, 28), 0)
    found = record(small(tmp_path, counts, scores, seed=6), "x", "total", "R", statistic)
    of_scipy = stats.kendalltau if statistic == "tau-b" else stats.spearmanr

    def of_studies(studies):
        pairs = np.concatenate([[2 * int(s), 2 * int(s) + 1] for s in studies])
        return of_scipy(scores[pairs], -counts[pairs]).statistic

    for method, prefix in (("percentile", ""), ("bca", "bca_")):
        expected = stats.bootstrap(
            (np.arange(14),), of_studies, n_resamples=200, vectorized=False, method=method, rng=np.random.default_rng(6)
        ).confidence_interval
        assert [found[f"{prefix}low"], found[f"{prefix}high"]] == pytest.approx(list(expected), abs=1e-12)
    assert found["degenerate"] == 0


def test_intervals_cover_the_known_value():
    """Correlated normal scores and errors, with a part that a study shares: tau is 2 / pi * arcsin(r) throughout."""
    r, n_studies, k = 0.6, 25, 8
    known = 2 / np.pi * np.arcsin(r)
    rng = np.random.default_rng(7)
    studies = [str(s) for s in range(n_studies) for _ in range(k)]
    covered, naive = [], []
    for seed in range(40):
        mix = np.array([[1, 0], [r, np.sqrt(1 - r * r)]])
        of_study = np.repeat(rng.normal(size=(n_studies, 2)) @ mix.T, k, axis=0) * np.sqrt(0.9)
        x, y = (of_study + rng.normal(size=(n_studies * k, 2)) @ mix.T * np.sqrt(0.1)).T
        errors = np.round(y * 1e6).astype(np.int64)
        for found, units in ((covered, studies), (naive, [str(i) for i in range(n_studies * k)])):
            drawn = draw(units, 200, seed)
            sides = side(x, drawn), side(errors, drawn)
            tau = interval_row("tau-b", tau_b(*sides, drawn), drawn)
            found.append(tau["low"] <= known <= tau["high"])
    assert np.mean(covered) >= 0.85
    assert np.mean(naive) < 0.75  # drawing pairs instead of studies promises too much


def test_degenerate_resamples_are_counted(tmp_path):
    """All pairs of the second study have the same count: a resample of it alone has no correlation."""
    counts, scores = [0, 2, 1, 1], [3, 1, 2, 5]
    found = small(tmp_path, counts, scores, resamples=400, seed=1)
    draws = np.random.default_rng(1).integers(0, 2, (400, 2))
    expected = int((draws == 1).all(axis=1).sum())
    assert expected > 50
    for rater in ("R", MEAN):
        row = record(found, "x", "total", rater, "tau-b")
        assert row["degenerate"] == expected
        assert row["low"] is not None
        assert (row["bca_low"], row["bca_high"]) == (None, None)  # without the first study there is no value either
    shown = " ".join(found.tables()[0].notes)
    n = sum(found.metrics["degenerate"].to_pylist())
    assert n > 8 * expected  # tau-b and Spearman; within studies more
    assert f"Degenerate resamples, in which all scores or all counts are equal: {n:,} over all cells" in shown


def test_a_rater_who_counts_alike_is_undefined(tmp_path):
    pytest.importorskip("matplotlib")
    found = small(tmp_path, [2, 2, 2, 2], [1, 2, 3, 4])
    row = record(found, "x", "significant", "R", "spearman")
    assert [row[name] for name in ("value", "low", "high", "bca_low", "bca_high")] == [None] * 5
    assert row["degenerate"] == 200
    name, cells = found.tables()[0].rows[0]
    assert (name, [cell.lines for cell in cells]) == ("x\nsig. and\ninsig. errors", [("undefined", "(all equal)")] * 2)
    assert least_squares(found.scores["x"], found.errors["total"]) == (0.0, 2.0, None)
    labels = [text.get_text() for axes in found.figure().axes for text in axes.texts]
    assert labels == ["tau-b undefined\n(all equal)\nR² undefined"] * 2


def test_same_seed_same_numbers(rated, aligned):
    again = align(rated.green, [rated.scores], metrics=["crepe"])
    first = aligned.metrics.filter(pc.equal(aligned.metrics["metric"], "crepe"))
    assert again.metrics.equals(first)
    other = align(rated.green, rated.scores, metrics=["crepe"], seed=1)
    assert other.metrics["value"].equals(first["value"])
    assert not other.metrics["low"].equals(first["low"])
    assert aligned.signature["bootstrap"] == {"unit": "study", "resamples": 1000, "seed": 0, "level": 0.95}
    assert again.signature["ratings"] != aligned.signature["ratings"]
    assert aligned.signature["scores"] == again.signature["scores"]
    assert json.loads(json.dumps(aligned.signature)) == aligned.signature


# Which pairs, which columns


def test_without_identical(rated):
    ratings = read_ratings(rated.long, samples=rated.samples)
    found = align(ratings, rated.scores, metrics=["bleu"], without_identical=True, resamples=100)
    fewer = ratings.without_identical()
    kept = np.isin(ratings.pairs, fewer.pairs)
    assert (found.signature["pairs"], found.signature["left_out"]) == (189, 11)
    expected = stats.kendalltau(scores_of(rated, "bleu")[kept], -fewer.errors("total").sum(axis=(1, 2))).statistic
    assert record(found, "bleu", "total", MEAN, "tau-b")["value"] == expected
    assert "189 pairs of 50 studies (11 identical pairs left out)" in found.tables()[0].notes[0]
    options = {"metrics": ["bleu"], "without_identical": True, "resamples": 100}
    assert align(rated.long, rated.scores, samples=rated.samples, **options).metrics.equals(found.metrics)


def test_columns(rated, tmp_path):
    more = tmp_path / "more.jsonl"
    ids = [f"{s}/{c}" for s in range(50) for c in CANDIDATES]
    more.write_text("\n".join(json.dumps({"pair": p, "mine": i % 7, "text": "word"}) for i, p in enumerate(ids)))
    found = align(rated.long, [rated.scores, more], directions={**POOR, "mine": "lower"}, resamples=100)
    assert list(found.scores) == ["bleu", "poor", "RadCliQ-v1", "crepe", "mine"]
    assert found.signature["lower_is_better"] == ["RadCliQ-v1", "crepe", "mine"]
    assert [record["file"] for record in found.signature["scores"]] == ["scores.csv", "more.jsonl"]
    one = align(rated.long, [rated.scores, more], metrics=["mine", "bleu"], directions={"mine": "lower"}, resamples=100)
    assert list(one.scores) == ["bleu", "mine"]


# What people see


def test_tables_in_the_layout_of_table_s2(aligned, tmp_path):
    tau, rho, within, raters, differences = aligned.tables()
    assert tau.title.startswith("Kendall tau-b")
    assert rho.title.startswith("Spearman")
    assert tau.columns == [*(f"Rater {i}" for i in range(6)), "Mean of raters"]
    names = ["bleu\nsig. and\ninsig. errors", "bleu\nsig. errors", "poor\nsig. and\ninsig. errors"]
    assert [name for name, _ in tau.rows[:3]] == names
    row = record(aligned, "bleu", "significant", "2", "tau-b")
    assert tau.rows[1][1][2].lines == (f"{row['value']:.3f}", f"[{row['low']:.3f} {row['high']:.3f}]")
    assert "1,000 resamples of studies, seed 0, the raters fixed" in tau.notes[0]
    assert tau.notes[1] == "Lower is better: RadCliQ-v1, crepe."
    row = record(aligned, "poor", "total", MEAN, "pairwise accuracy")
    assert within.rows[2][1][1].lines[0] == f"{row['value']:.3f}"
    assert [name for name, _ in raters.rows[:2]] == ["ICC(A,1)", "ICC(A,k)"]
    assert len(differences.rows) == 2 * 6
    family = "over one family, these 12 tests: each pair of metrics once, for each count of errors."
    assert family in differences.notes[0]

    aligned.write(tmp_path / "t.md")
    lines = (tmp_path / "t.md").read_text().splitlines()
    assert lines[0] == f"**{tau.title}**"
    assert lines[2].split("|")[2].strip() == "Rater 0"
    assert lines[4].startswith(f"| bleu sig. and insig. errors | {' '.join(tau.rows[0][1][0].lines)} | ")
    assert lines[-1] == f"<!-- signature: {json.dumps(aligned.signature)} -->"
    assert lines[-3].startswith("Signature: align\\|bleu+poor+RadCliQ-v1+crepe\\|ratings:")
    aligned.write(tmp_path / "t.tex")
    text = (tmp_path / "t.tex").read_text()
    assert text.count(r"\begin{tabular}{lrrrrrrr}") == 2
    assert r"95 \% percentile" in text
    aligned.write(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    n = aligned.metrics.num_rows
    assert [float(row["value"]) for row in rows[:n]] == aligned.metrics["value"].to_pylist()
    assert {row["rater"] for row in rows[n : n + aligned.raters.num_rows]} == {"raters among themselves"}
    assert [float(row["p_adjusted"]) for row in rows if row["versus"]] == aligned.differences["p_adjusted"].to_pylist()
    signature = json.loads((tmp_path / "t.csv.signature.json").read_text())
    assert {name: signature[name] for name in aligned.signature} == aligned.signature
    with pytest.raises(
        InputError,
        match=r"out must end with \.md, \.tex, \.csv, \.parquet, \.jsonl, \.png, \.svg or \.pdf; got .*t\.doc",
    ):
        aligned.write(tmp_path / "t.doc")
    (tmp_path / "read-only.md").mkdir()
    with pytest.raises(InputError, match=r"out must be a file; got the folder .*read-only\.md"):
        aligned.write(tmp_path / "read-only.md")


def test_names_of_columns_do_no_harm(tmp_path):
    (tmp_path / "r.csv").write_text(
        "pair_id,rater,category,significant,count\n"
        + "".join(f"{p},\x1b[31mA|[b],1,{s},{n}\n" for n, p in enumerate("ab") for s in (0, 1))
    )
    (tmp_path / "s.csv").write_text("pair_id,x_\x1b[2J&|[red]\na,1\nb,2\n")
    name = "x_\x1b[2J&|[red]"
    found = align(tmp_path / "r.csv", tmp_path / "s.csv", directions={name: "higher"}, resamples=100)
    console = Console(width=150, file=io.StringIO())
    console.print(*found.tables())
    shown = console.file.getvalue()
    assert "\x1b" not in shown
    assert "x_\ufffd[2J&|[red]" in shown
    assert r"x\_?\[2J&amp;\|\[red\]".replace("?", "\ufffd") in markdown(found.tables(), found.signature)
    assert r"x\_" in latex(found.tables(), found.signature)


def test_picture(aligned, rated, tmp_path):
    pytest.importorskip("matplotlib")
    aligned.write(tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    x, y = aligned.scores["bleu"], aligned.errors["total"]
    slope, intercept, r_squared = least_squares(x, y)
    assert r_squared == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    assert [slope, intercept] == pytest.approx(list(np.polyfit(x, y, 1)))
    with pytest.raises(
        InputError,
        match=r"out must end with \.md, \.tex, \.csv, \.parquet, \.jsonl, \.png, \.svg or \.pdf; got .*p\.gif",
    ):
        aligned.write(tmp_path / "p.gif")


def test_picture_without_matplotlib(aligned, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    match = r'^Alignment\.write: a plot needs the Python package matplotlib, .* pip install "matplotlib>=\S+"$'
    with pytest.raises(BackendError, match=match):
        aligned.write(tmp_path / "p.png")


# Errors


def test_too_little_data(tmp_path):
    match = r"^align: ratings must hold at least 2 studies, which the bootstrap resamples; got 1\. Rate more studies\.$"
    with pytest.raises(InputError, match=match):
        small(tmp_path, [0, 1, 2], [3, 2, 1], studies=["s"] * 3)
    match = (
        r"^align: scores must differ between pairs; got one value for all 4 in every column\. Choose other columns with"
    )
    with pytest.raises(InputError, match=match):
        small(tmp_path, [0, 1, 2, 3], [0.5] * 4)


def test_a_constant_column_marks_its_cells(rated, tmp_path):
    lines = rated.scores.read_text().splitlines()
    flat = tmp_path / "flat.csv"
    flat.write_text("\n".join([f"{lines[0]},GREEN", *(f"{line},0.5" for line in lines[1:])]))
    found = align(rated.long, flat, metrics=["bleu", "GREEN"], resamples=100)
    assert align(rated.long, flat, metrics="bleu, GREEN", resamples=100).table.equals(found.table)
    assert record(found, "GREEN", "total", MEAN, "tau-b")["value"] is None
    assert record(found, "bleu", "total", MEAN, "tau-b")["value"] > 0
    assert found.differences.num_rows == 2 * 1  # accuracy alone, which a constant metric has: one half
    tau = found.tables()[0]
    assert tau.rows[2][1][0].lines == ("undefined", "(all equal)")


@pytest.mark.parametrize("missing", ["", "nan", "inf", "n/a"])
def test_scores_that_are_missing(tmp_path, missing):
    match = (
        r"^align: scores must be a finite number for every pair; got none in column 'x' of .*s\.csv for 1 of "
        r"\d+ pairs, first 'p2'\."
        r" Complete the column, or name the columns to use with `metrics`\.$"
    )
    with pytest.raises(InputError, match=match):
        small(tmp_path, [0, 1, 2, 3], [1, 2, missing, 3])


@pytest.mark.parametrize(
    ("cells", "kind", "row"),
    [
        (["1", "2", "word", "3"], "text", 3),
        (['"0,5"', '"0,2"', '"0,1"', '"0,3"'], "a decimal comma", 1),
        (["50%", "20%", "10%", "30%"], "a percent sign", 1),
    ],
)
def test_text_among_scores(tmp_path, cells, kind, row):
    match = (
        rf"^align: column 'x' must hold numbers such as 0\.25, .*; got {kind} in row {row} of .*s\.csv\. Write 0\.25"
    )
    with pytest.raises(InputError, match=match):
        small(tmp_path, [0, 1, 2, 3], cells)


def test_columns_that_do_not_fit(rated, tmp_path):
    match = (
        r"^align: scores must have each column in one file; got 'bleu' twice, the second time in .*scores\.csv\. Rename"
    )
    with pytest.raises(InputError, match=match):
        align(rated.long, [rated.scores, rated.scores], directions=POOR)
    match = r"^align: scores must have a column of numbers for each metric; got no 'GREEN' in .*scores\.csv\."
    with pytest.raises(InputError, match=match):
        align(rated.long, rated.scores, metrics=["bleu", "GREEN"])
    (tmp_path / "s.csv").write_text("pair_id,x\np0,word\np1,word\n")
    match = r"^align: scores must have a column of numbers for each metric; got none in .*s\.csv\."
    with pytest.raises(InputError, match=match):
        small(tmp_path, [1, 2], ["word", "word"])
    with pytest.raises(InputError, match=match.replace(r".*s\.csv", "no file")):
        align(rated.long, [])


def test_directions_are_known_or_given_and_never_guessed(rated, tmp_path):
    match = (
        r"^align: directions must be given for columns whose names do not tell it; got none for 'poor'\. Add "
        r"`directions=\{'poor': 'higher'\}`, or 'lower', or choose columns with `metrics`\.$"
    )
    with pytest.raises(InputError, match=match):
        align(rated.long, rated.scores)
    match = (
        r"^align: directions must be higher or lower for columns of the scores \('bleu', 'poor', .*\); got "
        r"{}\. Correct it\.$"
    )
    with pytest.raises(InputError, match=match.format("'CREPE'=lower")):
        align(rated.long, rated.scores, directions={**POOR, "CREPE": "lower"})
    with pytest.raises(InputError, match=match.format("'poor'=down")):
        align(rated.long, rated.scores, directions={"poor": "down"})
    match = (
        r"^align: directions must be left out for columns .* their name; got 'bleu'=lower, of which higher is better\. "
    )
    with pytest.raises(InputError, match=match):
        align(rated.long, rated.scores, directions={**POOR, "bleu": "lower"})
    name = "RadCliQ-v1"  # says what is known
    assert align(rated.long, rated.scores, metrics=[name], directions={name: "lower"}, resamples=100)
    values = []
    for name in ("RadCliQ", "radcliq_v1", "RadCliQ_v1", "RadCliQ-V1", "crepe_score", "bleu_score"):
        other = tmp_path / "o.csv"
        other.write_text(rated.scores.read_text().replace("RadCliQ-v1", name))
        found = align(rated.long, other, metrics=[name], resamples=100)
        values.append(record(found, name, "total", MEAN, "tau-b")["value"])
    assert values == [values[0]] * 5 + [-values[0]]
    assert values[0] > 0.3


def test_scores_of_other_pairs(rated, tmp_path):
    text = rated.scores.read_text()
    other = tmp_path / "other.csv"
    for old, new, match in (
        (
            "\n49,",
            "\n50,",
            r"the pairs of .*other\.csv must be among the rated ones; got 4 that are not, first "
            r"'50/bertscore', '50/bleu', '50/radgraph'\.",
        ),
        (
            "\n49,radgraph",
            "\n48,radgraph",
            r"an id occurs more than once in the pairs of .*other\.csv: '48/radgraph'\. Keep one row for each id\.$",
        ),
        (
            "radgraph",
            "RadGraph",
            r"the pairs of .*other\.csv must be among the rated ones; got 50 that are not, first '0/RadGraph'",
        ),
        (
            "candidate_type",
            "kind",
            r"an id occurs more than once in the pairs of .*other\.csv: '49', '48', '47'\. Keep one row for each id\.$",
        ),
    ):
        other.write_text(text.replace(old, new))
        with pytest.raises(InputError, match=rf"^align: {match}"):
            align(rated.long, other, directions=POOR)
    other.write_text("\n".join(line for line in text.splitlines() if not line.startswith("3,")))
    with pytest.raises(InputError, match=r"must be all the rated ones; got none for 4 of them, first '3/bleu'"):
        align(rated.long, other, directions=POOR)
    with pytest.raises(InputError, match=r"^align: there is no file .*none\.csv"):
        align(rated.long, tmp_path / "none.csv")


@pytest.mark.parametrize("name", ["radgraph", "chexbert", "bertscore", "crepe"])
def test_a_metric_that_reads_more_than_texts_is_scored_first(rated, name):
    match = rf"^align: metrics must read texts alone, .*; got '{name}'\. Score them with `mo\.score`, and pass the file"
    with pytest.raises(InputError, match=match):
        align(rated.long, samples=rated.samples, metrics=[name])


def test_options(rated):
    for resamples in (99, True):
        match = rf"^align: resamples {rule_of(ResamplesOfRaters)}; got .*\. The default is 1000\.$"
        with pytest.raises(InputError, match=match):
            mo.align(rated.long, rated.scores, resamples=resamples)
    for seed in (-1, True):
        with pytest.raises(InputError, match=r"^align: seed must be an int of at least 0; got .*\. Choose"):
            mo.align(rated.long, rated.scores, seed=seed)
    ratings = read_ratings(rated.long)
    assert isinstance(ratings, Ratings)
    with pytest.raises(
        InputError, match=r"^align: samples must be left out with Ratings; got both\. Give them to `mo\.read_rat"
    ):
        align(ratings, rated.scores, samples=rated.samples)


# Within studies, between metrics, between raters


def test_agreement_within_studies_by_hand():
    """Resample by resample: the pairs of candidates of one study, each study as often as it was drawn."""
    rng = np.random.default_rng(12)
    x, y = rng.integers(0, 4, 24), rng.integers(0, 3, 24)
    studies = [str(s) for s in rng.integers(0, 7, 24)]
    drawn = draw(studies, 30, 2)
    found = {f: f(side(x, drawn), side(y, drawn), drawn) for f in (tau_within, accuracy)}
    names = list(dict.fromkeys(studies))
    for b, times in enumerate(drawn.studies):
        both = untied_x = untied_y = right = 0.0
        for i, j in [pair for pair in combinations(range(24), 2) if studies[pair[0]] == studies[pair[1]]]:
            w, dx, dy = times[names.index(studies[i])], np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
            both, untied_x, untied_y = both + w * dx * dy, untied_x + w * abs(dx), untied_y + w * abs(dy)
            right += w * abs(dy) * (1.0 if dx == dy else 0.5 if dx == 0 else 0.0)
        for function, value, exists in (
            (tau_within, both / np.sqrt(untied_x * untied_y or 1), untied_x * untied_y),
            (accuracy, right / (untied_y or 1), untied_y),
        ):
            assert np.isnan(found[function][b]) if not exists else found[function][b] == pytest.approx(value)
    assert np.isfinite(found[tau_within]).any()


def test_what_pools_studies_and_what_does_not(tmp_path):
    """A metric that only tells hard studies from easy ones agrees over all pairs, and not within studies."""
    rng = np.random.default_rng(13)
    hard = np.repeat(rng.integers(0, 9, 25), 4)
    counts = hard + rng.integers(0, 3, 100)
    scores = -hard + rng.normal(0, 0.1, 100)
    found = small(tmp_path, counts, scores, studies=[f"s{i // 4:02}" for i in range(100)])
    of = {name: record(found, "x", "total", MEAN, name) for name in ("tau-b", "tau-b within studies")}
    assert of["tau-b"]["low"] > 0.5
    assert of["tau-b within studies"]["low"] < 0 < of["tau-b within studies"]["high"]
    accurate = record(found, "x", "total", MEAN, "pairwise accuracy")
    assert accurate["low"] < 0.5 < accurate["high"]
    # One pair a study: nothing to compare within.
    alone = small(tmp_path, counts[:8], scores[:8], studies=[f"s{i}" for i in range(8)])
    assert record(alone, "x", "total", MEAN, "pairwise accuracy")["value"] is None
    assert len(alone.tables()) == 2


@pytest.mark.parametrize("n_studies", [4, 14])
def test_bca_of_few_studies_is_scipys(n_studies):
    """Of four studies a tenth of the resamples ties with the sample: the mid-rank decides."""
    rng = np.random.default_rng(14)
    x, y = rng.permutation(2.0 * np.arange(2 * n_studies)), rng.permutation(2 * n_studies)
    drawn = draw([str(i // 2) for i in range(2 * n_studies)], 400, 3)
    values = tau_b(side(x, drawn), side(y, drawn), drawn)
    found = interval_row("tau-b", values, drawn)
    assert found["degenerate"] == 0
    assert (np.abs(values[:400] - values[-1]) < 1e-12).sum() > (20 if n_studies == 4 else -1)

    def of_studies(studies):
        pairs = np.concatenate([[2 * int(s), 2 * int(s) + 1] for s in studies])
        return np.round(stats.kendalltau(x[pairs], y[pairs]).statistic, 12)

    theirs = stats.bootstrap(
        (np.arange(n_studies),), of_studies, n_resamples=400, vectorized=False, method="bca",
        rng=np.random.default_rng(3),
    ).confidence_interval  # fmt: skip
    assert [found["bca_low"], found["bca_high"]] == pytest.approx(list(theirs), abs=1e-10)


def worlds(n, noise_a, noise_b, seed):
    """Yield signs of two metrics and of errors of 50 studies x 4, all sharing a part that a study has."""
    rng = np.random.default_rng(seed)
    studies = [str(i // 4) for i in range(200)]
    for repetition in range(n):
        errors = np.repeat(rng.gamma(2, 1, 50), 4) + rng.gamma(1, 1, 200)
        common = rng.normal(0, 1.2, 200)
        a, b = (-errors + common + rng.normal(0, noise, 200) for noise in (noise_a, noise_b))
        drawn = draw(studies, 400, repetition)
        yield [tau_b(side(one, drawn), side(-errors, drawn), drawn) for one in (a, b)]


def test_the_difference_of_two_metrics_is_found_where_intervals_overlap():
    """Two metrics that share what they miss: their intervals overlap, the paired difference is plain."""
    found = overlapping = 0
    for a, b in worlds(40, 0.5, 1.1, seed=15):
        ends = [np.quantile(one[:400], [0.025, 0.975]) for one in (a, b)]
        overlapping += ends[0][0] <= ends[1][1]
        found += bootstrap_p(a[:400] - b[:400]) < 0.05
    assert found >= 28  # of 40
    assert overlapping >= 36


def test_equal_metrics_are_seldom_called_different():
    found = sum(bootstrap_p(a[:400] - b[:400]) < 0.05 for a, b in worlds(100, 0.8, 0.8, seed=16))
    assert found <= 10  # 5 expected, with a standard error of 2.2


def test_differences_are_those_of_the_resampled_values(rated, aligned):
    rows = aligned.differences.to_pylist()
    assert len(rows) == 4 * 2 * 6
    columns = {"bleu": scores_of(rated, "bleu"), "poor": scores_of(rated, "poor")}
    ratings = read_ratings(rated.long)
    drawn = draw(ratings.studies, 1000, 0)
    errors = side(-ratings.errors("significant").sum(axis=(1, 2)), drawn)
    between = np.subtract(*(tau_b(side(x, drawn), errors, drawn) for x in columns.values()))
    keys = {"statistic": "tau-b", "errors": "significant", "a": "bleu", "b": "poor"}
    (row,) = [r for r in rows if all(r[key] == value for key, value in keys.items())]
    assert row["difference"] == pytest.approx(between[-1], abs=1e-12)
    assert [row["low"], row["high"]] == pytest.approx(np.quantile(between[:1000], [0.025, 0.975]), abs=1e-12)
    assert row["p_value"] == 2 / 1001
    same = [r for r in rows if (r["a"], r["b"]) == ("RadCliQ-v1", "crepe")]  # one column twice
    assert {(r["difference"], r["p_value"]) for r in same} == {(0.0, 1.0)}
    for statistic in ("tau-b", "spearman", "tau-b within studies", "pairwise accuracy"):
        family = [r for r in rows if r["statistic"] == statistic]
        assert len({(r["errors"], frozenset((r["a"], r["b"]))) for r in family}) == len(family) == 12
        assert [r["p_adjusted"] for r in family] == pytest.approx(
            stats.false_discovery_control([r["p_value"] for r in family])
        )
    one = align(rated.long, rated.scores, directions=POOR, paired=[("poor", "bleu")], resamples=100)
    assert one.differences["a"].to_pylist() == ["poor"] * 8
    for paired, match in (
        ([("bleu", "GREEN")], r"^align: paired must name two metrics of 'bleu', 'poor', .*; got 'bleu' and 'GREEN'\."),
        ([("bleu", "bleu")], r"^align: paired must name two metrics of .*; got 'bleu' and 'bleu'\. Correct"),
        (
            [("bleu", "poor"), ("poor", "bleu")],
            r"^align: paired must name each pair once; got 'bleu' and 'poor' twice\.",
        ),
    ):
        with pytest.raises(InputError, match=match):
            align(rated.long, rated.scores, directions=POOR, paired=paired)


def test_intraclass_correlations_by_hand():
    """Shrout and Fleiss (1979), table 2: six targets, four judges; ICC(2,1) = .29, ICC(2,4) = .62 in table 4."""
    counts = np.array([[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7]])
    one, mean = intraclass(counts, np.ones((1, 6)))
    # Mean squares of their table 3: targets 11.24, judges 32.49, error 1.02.
    rows, raters, rest = 56.208333333 / 5, 97.458333333 / 3, 15.291666667 / 15
    assert one[0] == pytest.approx((rows - rest) / (rows + 3 * rest + 4 * (raters - rest) / 6), rel=1e-9)
    assert mean[0] == pytest.approx((rows - rest) / (rows + (raters - rest) / 6), rel=1e-9)
    assert (round(one[0], 2), round(mean[0], 2)) == (0.29, 0.62)
    repeated = intraclass(counts.repeat([2, 0, 1, 1, 3, 1], axis=1), np.ones((1, 8)))
    assert np.ravel(intraclass(counts, np.array([[2.0, 0, 1, 1, 3, 1]]))) == pytest.approx(np.ravel(repeated))
    assert np.isnan(np.ravel(intraclass(np.full((3, 4), 2), np.ones((1, 4))))).all()


def test_raters_among_themselves(rated, aligned):
    rows = {(r["errors"], r["statistic"]): r for r in aligned.raters.to_pylist()}
    assert len(rows) == 2 * 6
    counts = rated.counts.sum(axis=(3, 4)).reshape(200, 6)
    left_out = [stats.kendalltau(counts[:, r], np.delete(counts, r, axis=1).sum(axis=1)).statistic for r in range(6)]
    found = rows["total", "leave-one-rater-out tau-b"]
    assert found["value"] == pytest.approx(np.mean(left_out), abs=1e-12)
    assert found["low"] < found["value"] < found["high"]
    assert rows["total", "ICC(A,1)"]["value"] < rows["total", "ICC(A,k)"]["value"]
    assert "raters among themselves" in {r["rater"] for r in aligned.records()}


def test_one_rater_has_no_agreement(tmp_path):
    found = small(tmp_path, [0, 1, 2, 3], [4, 3, 2, 1])
    assert found.raters.num_rows == 0
    assert found.warnings() == ["Fewer than 20 studies (2): the intervals are too short."]
    assert found.warnings()[0] in found.tables()[0].notes


# Files of `oracle score`, and the texts themselves


def test_a_file_of_scores_gives_its_metrics_and_not_their_components(rated, tmp_path):
    ratings = read_ratings(rated.long, samples=rated.samples)
    sides = [Reports(ratings.pairs, texts, "") for texts in (ratings.references, ratings.predictions)]
    made = mo.score(*sides, ["bleu", "rouge-l"], system="x")
    for ending in ("parquet", "csv"):
        made.write(tmp_path / f"s.{ending}")
        found = align(rated.long, tmp_path / f"s.{ending}", resamples=100)
        assert list(found.scores) == ["bleu-2", "rouge-l"]
    aliased = align(rated.long, tmp_path / "s.parquet", metrics=["bleu"], resamples=100)
    assert list(aliased.scores) == ["bleu-2"]
    part = "bleu-2.precision_1"
    asked = align(rated.long, tmp_path / "s.csv", metrics=[part], directions={part: "higher"}, resamples=100)
    assert list(asked.scores) == [part]
    # The same from the texts.
    again = align(rated.long, samples=rated.samples, metrics=["bleu", "rouge-l"], resamples=100)
    assert all(np.array_equal(again.scores[name], found.scores[name]) for name in found.scores)
    assert again.metrics.equals(found.metrics)
    assert again.signature["scored"]["bleu-2"] == made.signature["metrics"]["bleu-2"]
    lacking = dataclasses.replace(ratings, predictions=[None, *ratings.predictions[1:]])
    match = r"^align: samples must hold both texts of every pair to score them; got 1 without, first '0/bleu'\."
    with pytest.raises(InputError, match=match):
        align(lacking)
