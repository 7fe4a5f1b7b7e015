import csv
import json
import sys
from itertools import combinations, permutations, product

import numpy as np
import pytest
from scipy import stats

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, InputError
from metric_oracle.findings.cells import scientific
from metric_oracle.raters.failure_modes import failure_modes, pooled_t_tests, study_test
from metric_oracle.raters.ratings import read_ratings
from metric_oracle.statistics import benjamini_hochberg

CANDIDATES = ("bleu", "s_emb", "bertscore", "radgraph")
# Table S4 of Yu et al., Patterns 2023: p-value, critical value and decision as printed, for BLEU > CheXbert, BLEU >
# BERTScore, BLEU > RadGraph, CheXbert > BLEU, ... in (a) and (b), and with < in (c) and (d).
TABLE_S4 = {
    "a": """
        3.79e-3 2.50e-3 N  9.50e-6 1.67e-3 Y  1.07e-7 8.33e-4 Y  9.96e-1 8.33e-3 N
        7.65e-2 4.17e-3 N  6.39e-3 3.33e-3 N  1.00e0 9.17e-3 N  9.51e-1 6.67e-3 N
        2.24e-1 5.00e-3 N  1.00e0 1.00e-2 N  9.94e-1 7.50e-3 N  7.76e-1 5.83e-3 N
    """,
    "b": """
        3.68e-3 2.50e-3 N  1.48e-4 1.67e-3 Y  6.44e-7 8.33e-4 Y  9.96e-1 8.33e-3 N
        1.34e-1 5.00e-3 N  9.77e-3 3.33e-3 N  1.00e0 9.17e-3 N  8.66e-1 5.83e-3 N
        1.33e-1 4.17e-3 N  1.00e0 1.00e-2 N  9.90e-1 7.50e-3 N  8.67e-1 6.67e-3 N
    """,
    "c": """
        4.83e-4 8.33e-4 Y  1.60e-2 2.50e-3 N  1.51e-1 5.00e-3 N  1.00e0 1.00e-2 N
        8.90e-1 7.50e-3 N  9.89e-1 9.17e-3 N  9.84e-1 8.33e-3 N  1.10e-1 3.33e-3 N
        8.63e-1 6.67e-3 N  8.49e-1 5.83e-3 N  1.14e-2 1.67e-3 N  1.37e-1 4.17e-3 N
    """,
    "d": """
        2.74e-4 8.33e-4 Y  2.07e-2 1.67e-3 N  5.75e-2 3.33e-3 N  1.00e0 1.00e-2 N
        9.25e-1 6.67e-3 N  9.67e-1 8.33e-3 N  9.79e-1 9.17e-3 N  7.53e-2 4.17e-3 N
        6.65e-1 5.83e-3 N  9.42e-1 7.50e-3 N  3.32e-2 2.50e-3 N  3.35e-1 5.00e-3 N
    """,
}


@pytest.fixture(scope="module")
def found(rated):
    return failure_modes(rated.long)


def points(rated, kind, candidate, category):
    """Return the 300 counts of one candidate type, radiologist x study, from what was drawn."""
    counts = rated.counts[:, CANDIDATES.index(candidate), :, int(category) - 1]
    return (counts.sum(axis=-1) if kind == "total" else counts[..., 1]).ravel()


# Benjamini and Hochberg


@pytest.mark.parametrize("table", TABLE_S4)
def test_published_critical_values_and_decisions(table):
    cells = TABLE_S4[table].split()
    p_values, critical, decisions = [float(p) for p in cells[::3]], cells[1::3], cells[2::3]
    computed, significant = benjamini_hochberg(p_values, 0.01)
    assert [scientific(value) for value in computed] == critical
    assert ["NY"[int(some)] for some in significant] == decisions
    assert [scientific(p) for p in p_values] == cells[::3]


def test_the_misprint_of_table_s4a():
    """CheXbert > BERTScore is printed 7.65e-2, but its reverse 9.51e-1: the two sum to 1, so it is 4.9e-2."""
    cells = TABLE_S4["a"].split()
    printed = [float(p) for p in cells[::3]]
    pairs = list(permutations(range(4), 2))
    off = [i for i, (a, b) in enumerate(pairs) if abs(printed[i] + printed[pairs.index((b, a))] - 1) > 2e-3]
    assert [pairs[i] for i in off] == [(1, 2), (2, 1)]
    right = [*printed]
    right[off[0]] = 1 - printed[off[1]]
    assert right[off[0]] == pytest.approx(4.91e-2, abs=5e-4)
    for computed, expected in zip(benjamini_hochberg(right, 0.01), benjamini_hochberg(printed, 0.01), strict=True):
        assert np.array_equal(computed, expected)


def test_decisions_are_those_of_scipy():
    rng = np.random.default_rng(1)
    mixed = 0
    for _ in range(300):
        p_values = np.round(rng.beta(0.3, 1, rng.integers(1, 15)), rng.integers(1, 5))  # many ties, zeros and ones
        for rate in (0.01, 0.1, 0.3):
            critical, significant = benjamini_hochberg(p_values, rate)
            adjusted = stats.false_discovery_control(p_values)
            clear = np.abs(adjusted - rate) > 1e-12
            assert np.array_equal(significant[clear], (adjusted <= rate)[clear])
            assert np.array_equal(np.sort(critical), np.arange(1, len(p_values) + 1) * rate / len(p_values))
            mixed += 0 < significant.sum() < len(significant)
    assert mixed > 100


def test_a_later_p_value_carries_earlier_ones():
    """The procedure steps up: 0.018 alone exceeds its critical value, 0.01, and 0.02 carries it."""
    critical, significant = benjamini_hochberg([0.02, 0.9, 0.018], 0.03)
    assert critical == pytest.approx([0.02, 0.03, 0.01])
    assert significant.tolist() == [True, False, True]
    assert not benjamini_hochberg([0.5, 0.6], 0.01)[1].any()


# The tests


def test_all_tests_are_those_of_scipy(rated, found):
    assert found.table.num_rows == 2 * 6 * 12
    for r in found.table.to_pylist():
        a, b = (points(rated, r["errors"], r[side], r["category"]) for side in ("a", "b"))
        expected = stats.ttest_ind(a, b, equal_var=True, alternative="greater")
        assert [r["t"], r["p_value"]] == pytest.approx([expected.statistic, expected.pvalue], rel=1e-9)
        assert [r["mean_a"], r["mean_b"]] == pytest.approx([a.mean(), b.mean()])
        assert (r["n_a"], r["n_b"], r["direction"]) == (300, 300, ">")
    for kind in ("total", "significant"):
        for category in "123456":
            family = [r for r in found.table.to_pylist() if (r["errors"], r["category"]) == (kind, category)]
            assert [(r["a"], r["b"]) for r in family] == list(permutations(CANDIDATES, 2))
            critical, significant = benjamini_hochberg([r["p_value"] for r in family], 0.01)
            assert [r["critical_value"] for r in family] == list(critical)
            assert [r["significant"] for r in family] == list(significant)
    assert 10 < sum(found.table["significant"].to_pylist()) < 60


def test_less_is_more_read_backwards(rated, found):
    less = failure_modes(rated.green, direction="less")
    more = {(r["errors"], r["category"], r["a"], r["b"]): r for r in found.table.to_pylist()}
    for r in less.table.to_pylist():
        mirrored = more[r["errors"], r["category"], r["b"], r["a"]]
        assert r["direction"] == "<"
        assert r["p_value"] == pytest.approx(mirrored["p_value"], rel=1e-12)
        assert r["t"] == -mirrored["t"]
        assert r["significant"] == mirrored["significant"]
    assert "BLEU < CheXbert" in [row[0] for row in less.tables()[2].rows]


def test_both_layouts_give_one_result(rated, found):
    again = failure_modes(read_ratings(rated.green))
    assert again.table.equals(found.table)
    assert all(np.array_equal(again.means[kind], found.means[kind]) for kind in found.means)


def test_samples_without_variation():
    zeros, ones, mixed = np.zeros(5), np.ones(5), np.arange(5.0)
    other = mixed[::-1] / 3
    t, p_values = pooled_t_tests([zeros, ones, zeros, mixed], [zeros, zeros, ones, other], "more")
    assert p_values[:3].tolist() == [1.0, 0.0, 1.0]
    assert (t[0], t[1], t[2]) == (0, np.inf, -np.inf)
    assert p_values[3] == pytest.approx(stats.ttest_ind(mixed, other, alternative="greater").pvalue)


def test_a_category_without_errors(tmp_path):
    rows = [(s, c, k, g) for s in range(3) for c in "xy" for k in (1, 2) for g in (0, 1)]
    lines = [f"{s},{c},R,{k},{g},{(k == 1) * g * (c == 'x')}" for s, c, k, g in rows]
    (tmp_path / "r.csv").write_text("\n".join(["study,system,rater,category,significant,count", *lines]))
    found = failure_modes(tmp_path / "r.csv")
    records = {(r["errors"], r["category"], r["a"]): r for r in found.table.to_pylist()}
    assert records["total", "2", "x"]["p_value"] == records["total", "2", "y"]["p_value"] == 1
    assert (records["total", "1", "x"]["p_value"], records["total", "1", "x"]["t"]) == (0, None)
    assert records["total", "1", "x"]["significant"]
    assert not records["total", "2", "x"]["significant"]
    found.write(tmp_path / "p.svg")


# What people see


def test_sheets_in_the_layout_of_tables_s3_and_s4(rated, found, tmp_path):
    total, significant, *families = found.tables()
    assert total.columns == [*(f"Error {i}" for i in range(1, 7)), "Total"]
    assert [row[0] for row in total.rows] == ["BLEU", "CheXbert", "BERTScore", "RadGraph"]
    errors = rated.counts.sum(axis=(2, 4)) / 6
    assert total.rows[2][1][2].lines[0] == f"{errors[:, 2, 2].mean():.3f}"
    assert [cells[-1].lines[0] for _, cells in total.rows] == [
        f"{errors[:, c].sum(axis=-1).mean():.3f}" for c in range(4)
    ]
    assert significant.rows[0][1][0].lines[0] == f"{rated.counts[:, 0, :, 0, 1].mean():.3f}"
    assert total.notes[0] == "Mean over 6 radiologists and 50 studies."
    assert "Error 1: false prediction of finding; Error 2: omission of finding" in total.notes[1]
    assert len(families) == 12
    assert families[1].title == "Error 1 (false prediction of finding): number of clinically significant errors"
    assert families[0].columns == [
        "p-value", "critical value, FDR 0.01", "significant", "rate ratio", "p by study", "significant by study",
    ]  # fmt: skip
    assert [row[0] for row in families[0].rows[:4]] == [
        "BLEU > CheXbert", "BLEU > BERTScore", "BLEU > RadGraph", "CheXbert > BLEU",
    ]  # fmt: skip
    first = found.table.to_pylist()[0]
    assert [cell.lines[0] for cell in families[0].rows[0][1][:3]] == [
        scientific(first["p_value"]), scientific(first["critical_value"]), "Y" if first["significant"] else "N",
    ]  # fmt: skip
    short = found.brief()[-1]
    n = sum(found.table["significant"].to_pylist())
    assert sum(cells[6].lines == ("Y",) for _, cells in short.rows) == n
    assert f"{n} of 144 one-sided t tests, by study " in short.notes[0]
    assert " of 72, at a false discovery rate of 0.01 in each family. Benjamini" in short.notes[0]

    found.write(tmp_path / "t.md")
    assert (tmp_path / "t.md").read_text().count("|---|--:|") == 14
    found.write(tmp_path / "t.tex")
    text = (tmp_path / "t.tex").read_text()
    assert r"BLEU \textgreater{} CheXbert & " in text
    assert text.splitlines()[-1] == f"% signature: {json.dumps(found.signature)}"
    found.write(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        assert [float(row["p_value"]) for row in csv.DictReader(file)] == found.table["p_value"].to_pylist()
    signature = json.loads((tmp_path / "t.csv.signature.json").read_text())
    assert {name: signature[name] for name in found.signature} == found.signature


def test_chosen_categories_and_rate(rated, found):
    some = failure_modes(rated.long, categories=["3", "1", "3"], rate=0.2)
    assert some.signature["categories"] == ["3", "1"]
    assert some.table.num_rows == 48
    assert [table.title.split(" (")[0] for table in some.tables()[2:]] == ["Error 3", "Error 3", "Error 1", "Error 1"]
    assert some.tables()[2].columns[1] == "critical value, FDR 0.2"
    assert len(some.tables()[0].columns) == 7
    wide = {(r["errors"], r["category"], r["a"], r["b"]): r["significant"] for r in some.table.to_pylist()}
    strict = {key: s for r in found.table.to_pylist() if (key := (r["errors"], r["category"], r["a"], r["b"])) in wide
              for s in [r["significant"]]}  # fmt: skip
    assert all(wide[key] for key, significant in strict.items() if significant)
    assert sum(wide.values()) > sum(strict.values())


def test_picture(found, tmp_path):
    pytest.importorskip("matplotlib")
    found.write(tmp_path / "p.pdf")
    assert (tmp_path / "p.pdf").read_bytes()[:5] == b"%PDF-"
    with pytest.raises(
        InputError,
        match=r"out must end with \.md, \.tex, \.csv, \.parquet, \.jsonl, \.png, \.svg or \.pdf; got .*p\.jpg",
    ):
        found.write(tmp_path / "p.jpg")


def test_picture_without_matplotlib(found, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendError, match=r"^FailureModes\.write: a plot needs the Python package matplotlib, "):
        found.write(tmp_path / "p.png")


# Errors


def test_errors(rated, tmp_path):
    with pytest.raises(
        InputError, match=r"^failure_modes: direction must be one of more, less; got '>'\. Choose one\.$"
    ):
        mo.failure_modes(rated.long, direction=">")
    for rate in (0, 1, float("nan")):
        with pytest.raises(
            InputError, match=r"^failure_modes: rate must be a number between 0 and 1; got .*\. Yu et al\. take 0\.01"
        ):
            mo.failure_modes(rated.long, rate=rate)
    match = r"^failure_modes: categories must be among '1', .*, '6'; got '7'\. Correct `categories`\.$"
    with pytest.raises(InputError, match=match):
        failure_modes(rated.long, categories=["1", "7"])
    with pytest.raises(InputError, match=match.replace("'7'", "none")):
        failure_modes(rated.long, categories=[])
    header = "study,system,rater,category,significant,count\n"
    path = tmp_path / "r.csv"
    match = r"^failure_modes: ratings must hold at least 2 candidate types to compare; got {}\. Add a column"
    path.write_text(header + "".join(f"{s},x,R,1,{g},1\n" for s in (1, 2) for g in (0, 1)))
    with pytest.raises(InputError, match=match.format(1)):
        failure_modes(path)
    path.write_text(path.read_text().replace("system", "team"))
    with pytest.raises(InputError, match=match.format(0)):
        failure_modes(path)
    path.write_text(header + "".join(f"1,{c},R,1,{g},1\n" for c in "xy" for g in (0, 1)))
    match = r"^failure_modes: ratings must hold at least 2 points \(rater x study\) of each candidate type; got 1\."
    with pytest.raises(InputError, match=match):
        failure_modes(path)


# By study


def test_the_test_by_study_is_scipys(rated, found):
    for r in found.table.to_pylist():
        a, b = (points(rated, r["errors"], r[side], r["category"]).reshape(50, 6).mean(axis=1) for side in ("a", "b"))
        expected = stats.ttest_rel(a, b)
        assert [r["study_t"], r["study_p_value"]] == pytest.approx([expected.statistic, expected.pvalue], rel=1e-9)
        assert r["rate_ratio"] == pytest.approx(a.mean() / b.mean())
        assert r["ratio_low"] < r["rate_ratio"] < r["ratio_high"]
        assert r["study_significant"] == (r["study_p_adjusted"] <= 0.01 and a.sum() > b.sum())
    assert "by study" in found.summary()


def test_no_family_by_study_holds_two_directions_of_one_difference(rated, found):
    less = failure_modes(rated.long, direction="less")
    n_significant = 0
    for kind, category in product(("total", "significant"), "123456"):
        rows, backwards = (
            {(r["a"], r["b"]): r for r in one.table.to_pylist() if (r["errors"], r["category"]) == (kind, category)}
            for one in (found, less)
        )
        pairs = [*combinations(CANDIDATES, 2)]
        expected = stats.false_discovery_control([rows[pair]["study_p_value"] for pair in pairs])
        for (a, b), p in zip(pairs, expected, strict=True):
            assert rows[a, b]["study_p_adjusted"] == rows[b, a]["study_p_adjusted"] == pytest.approx(p)
            assert rows[a, b]["study_significant"] + rows[b, a]["study_significant"] == (p <= 0.01)
            assert [backwards[b, a][name] for name in ("study_p_adjusted", "study_significant")] == [
                rows[a, b][name] for name in ("study_p_adjusted", "study_significant")
            ]
            n_significant += p <= 0.01
    assert n_significant > 5
    assert found.signature["tests_in_family"] == {"paper": 12, "by_study": 6}
    family = (
        "Benjamini-Hochberg within 12 families, one for each category and kind of errors: of the paper's tests 12 in "
        "each, both directions of a difference with p and 1 - p; by study 6, each difference once."
    )
    assert found.tables()[2].notes[0].endswith(family)
    assert family in found.brief()[-1].notes[0]


def test_the_interval_of_a_rate_ratio_by_hand():
    """The variance of log(a / b) is that of a sum over studies: (a_s / a - b_s / b) / S."""
    a, b = np.array([2.0, 0, 1, 3]), np.array([1.0, 1, 0, 2])
    found = study_test(a, b)
    influence = np.array([2 / 1.5 - 1, -1.0, 1 / 1.5, 2 - 2])
    half = 3.182446305284263 * np.sqrt((influence**2).sum() / 12)  # the 97.5 % point of Student's t, 3 degrees
    assert [found["rate_ratio"], found["ratio_low"], found["ratio_high"]] == pytest.approx(
        [1.5, 1.5 * np.exp(-half), 1.5 * np.exp(half)]
    )


def test_studies_without_variation():
    zeros, ones = np.zeros(4), np.ones(4)
    assert study_test(zeros, zeros) == {
        "study_t": 0.0, "study_p_value": 1.0, "rate_ratio": None, "ratio_low": None, "ratio_high": None,
    }  # fmt: skip
    assert study_test(ones, zeros)["study_p_value"] == study_test(zeros, ones)["study_p_value"] == 0
    assert set(study_test(ones[:1], zeros[:1]).values()) == {None}


def test_size_where_raters_agree_and_where_studies_differ():
    """Equal candidates: the paper's test errs in both directions, the one by study does not. 5 % is nominal."""
    rng = np.random.default_rng(17)
    sizes = {}
    for name, (of_study, of_candidate) in {"raters agree": (0.0, 1.0), "studies differ": (1.0, 0.0)}.items():
        rejected = np.zeros(2)
        for _ in range(400):
            shared = rng.normal(0, 1, (50, 1, 1)) * of_study + rng.normal(0, 1, (50, 2, 1)) * of_candidate
            counts = rng.poisson(np.exp(shared - 0.5).repeat(6, axis=2)).astype(float)
            a, b = counts[:, 0], counts[:, 1]
            _, p = pooled_t_tests([a.ravel()], [b.ravel()], "more")
            by_study = study_test(a.mean(axis=1), b.mean(axis=1))["study_p_value"]
            rejected += [p[0] < 0.05, by_study < 0.05]
        sizes[name] = rejected / 400
    assert sizes["raters agree"][0] > 0.12
    assert sizes["studies differ"][0] < 0.03
    assert all(0.02 < by_study < 0.08 for _, by_study in sizes.values())


def test_coverage_of_the_rate_ratio():
    rng = np.random.default_rng(18)
    held = 0
    for _ in range(400):
        shared = np.exp(rng.normal(-0.2, 0.6, (50, 1)))
        a, b = (rng.poisson(rate * shared.repeat(6, axis=1)).mean(axis=1) for rate in (1.5, 1.0))
        found = study_test(a, b)
        held += found["ratio_low"] <= 1.5 <= found["ratio_high"]
    assert 368 <= held <= 392  # 380 expected, with a standard error of 4.4


def test_candidates_that_share_one_study(tmp_path):
    lines = ["study,system,rater,category,significant,count"]
    lines += [f"1,{c},{r},1,{g},{r * (c == 'x')}" for c in "xy" for r in (0, 1, 2) for g in (0, 1)]
    (tmp_path / "r.csv").write_text("\n".join(lines))
    found = failure_modes(tmp_path / "r.csv")
    row = found.table.to_pylist()[0]
    assert row["p_value"] < 1
    assert row["study_p_value"] is row["rate_ratio"] is row["study_p_adjusted"] is None
    assert [cell.lines for cell in found.tables()[2].rows[0][1][3:]] == [("–",)] * 3
    assert found.warnings()[0] in found.tables()[0].notes
