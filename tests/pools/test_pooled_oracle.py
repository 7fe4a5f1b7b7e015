"""What judged pools say of a corpus, against plain code, and against corpora whose truth is known."""

import itertools
import statistics

import numpy as np
import pytest
from scipy.stats import beta, kendalltau

from metric_oracle.pools.pooled_oracle import JudgedPool, PooledOracle, points, pooled_oracle, upper_limit
from metric_oracle.pools.pooled_oracle import tau_within as tau_of_pools
from metric_oracle.raters.rank_correlation import draw, side, tau_within
from metric_oracle.statistics import intervals

JUDGE = {"name": "green", "version": "1", "direction": "higher", "best": 1.0}


def made_up(seed, n=30, draws=6):
    """Return pools of different sizes, full of ties; some reports cannot be scored by the second metric."""
    rng = np.random.default_rng(seed)
    pools = []
    for _ in range(n):
        size = int(rng.integers(5, 24))
        scores = rng.integers(0, 12, size) / 12
        cheap = np.stack([scores + rng.normal(0, 0.3, size), rng.normal(0, 0.6, size) - scores]).round(1)
        cheap[1][rng.random(size) < 0.1] = np.nan
        is_listed = rng.random((2, size)) < 0.6
        is_listed[0] |= ~is_listed.any(axis=0)
        pools.append(JudgedPool(scores, rng.integers(0, 13, draws) / 12, is_listed, cheap))
    return pools


def found_of(pools, metrics=None, **judge):
    names = {"bleu-2": 1.0, "errors": -1.0} if metrics is None else metrics
    return pooled_oracle([f"s{i}" for i in range(len(pools))], pools, names, JUDGE | judge)


def mirrored(pools):
    return [pool._replace(scores=-pool.scores, drawn=-pool.drawn) for pool in pools]


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_the_curve_equals_plain_code(direction):
    pools = made_up(0)
    given = pools if direction == "higher" else mirrored(pools)
    sign, best = (1, max) if direction == "higher" else (-1, min)
    found = found_of(given, direction=direction, best=sign * 1.0)
    of_pool = [row for row in found.curve.to_pylist() if not row["drawn"]]
    largest = max(len(pool.scores) + len(pool.drawn) for pool in pools)
    assert [row["n"] for row in of_pool] == [n for n in (1, 2, 5, 10, 20) if n < largest] + [largest]
    for row in of_pool:
        values = [best([*pool.scores.tolist(), *pool.drawn.tolist()][: row["n"]]) for pool in given]
        assert row["mean"] == pytest.approx(statistics.fmean(values), abs=1e-12)
        assert (row["low"], row["high"]) == pytest.approx(intervals(np.array([values]))[0][:2], abs=1e-12)
    drawn = [row for row in found.curve.to_pylist() if row["drawn"]]
    assert [row["n"] for row in drawn] == [1, 2, 5, 6]
    for row in drawn:
        values = [statistics.fmean(map(best, itertools.combinations(pool.drawn.tolist(), row["n"]))) for pool in given]
        assert row["mean"] == pytest.approx(statistics.fmean(values), abs=1e-12)


def test_each_test_report_and_each_list_equal_plain_code():
    pools = made_up(1)
    found = found_of(pools)
    n_late = n_has = n_alone = 0
    for row, pool in zip(found.reports.to_pylist(), pools, strict=True):
        whole = [*pool.scores.tolist(), *pool.drawn.tolist()]
        assert (row["best"], row["place"], row["pool"]) == (max(whole), whole.index(max(whole)) + 1, len(whole))
        assert row["certified"] is (max(whole) == 1.0)
        assert row["beating"] == sum(score > max(pool.scores) for score in pool.drawn.tolist())
        assert row["limit"] == upper_limit(row["beating"], 6)
        n_late += row["place"] > 0.9 * len(whole)
        in_first, in_second = (max(pool.scores[is_in].tolist(), default=-1) for is_in in pool.is_listed)
        n_has += in_first == max(whole)
        n_alone += in_first == max(whole) > max(in_second, *pool.drawn.tolist())
    assert found.late == n_late / len(pools)
    first, _, random = found.lists.to_pylist()
    assert (first["list"], first["has_best"], first["alone"]) == ("bleu-2", n_has / 30, n_alone / 30)
    assert random["list"] == "random"
    assert random["tau"] is None
    assert random["mean"] == pytest.approx(statistics.fmean(max(pool.drawn.tolist()) for pool in pools))
    assert found.signature["limit"] == upper_limit(sum(found.reports["beating"].to_pylist()), 180)


def test_where_lower_is_better_all_is_mirrored():
    higher, lower = found_of(made_up(6)), found_of(mirrored(made_up(6)), direction="lower", best=-1.0)
    assert 0 < sum(higher.reports["certified"].to_pylist()) < 30
    for name in higher.reports.column_names:
        one, other = (found.reports[name].to_pylist() for found in (higher, lower))
        assert other == ([-value for value in one] if name == "best" else one)
    for ours, theirs in ((higher.lists, lower.lists), (higher.curve, lower.curve)):
        for one, other in zip(ours.to_pylist(), theirs.to_pylist(), strict=True):
            mirrored_row = one | {"mean": -one["mean"]}
            if "low" in one:
                mirrored_row |= {"low": pytest.approx(-one["high"]), "high": pytest.approx(-one["low"])}
            assert other == mirrored_row


def test_tau_is_that_of_studies():
    pools = made_up(2)
    study = [str(i) for i, pool in enumerate(pools) for _ in pool.scores]
    drawn = draw(study, 1, 0)
    columns = [np.concatenate([pool.cheap[0] for pool in pools]), np.concatenate([pool.scores for pool in pools])]
    wanted = tau_within(*(side(column, drawn) for column in columns), drawn)[-1]
    assert tau_of_pools(pools, 0, 1) == pytest.approx(wanted, abs=1e-12)
    for pool in pools[:5]:  # the second metric is better where it is lower, and cannot score all reports
        wanted = kendalltau(pool.scores, -pool.cheap[1], nan_policy="omit").statistic
        assert tau_of_pools([pool], 1, -1) == pytest.approx(wanted, abs=1e-12)
    assert found_of(pools).lists["tau"].to_pylist()[1] > 0
    constant = pools[0]._replace(cheap=np.zeros_like(pools[0].cheap))
    assert tau_of_pools([constant], 0, 1) is None


def test_limits_hold_their_level_in_made_up_corpora():
    """In 1,000 corpora, the share that beats the lists is above its limit in no more than 5 %, for all and for one."""
    rng = np.random.default_rng(3)
    n_corpora, n_reports, n_tests, draws = 1000, 400, 12, 15
    held = np.zeros((n_corpora, 2), bool)
    limits = {}
    for corpus in range(n_corpora):
        scores = rng.random((n_tests, n_reports)) ** rng.uniform(0.2, 5, (n_tests, 1))
        lists = scores[:, : int(rng.integers(2, 20))]
        share = (scores > lists.max(axis=1)[:, None]).mean(axis=1)
        drawn = np.take_along_axis(scores, rng.integers(0, n_reports, (n_tests, draws)), axis=1)
        hits = (drawn > lists.max(axis=1)[:, None]).sum(axis=1).tolist()
        for k, n in ((sum(hits), n_tests * draws), (hits[0], draws)):
            limits.setdefault((k, n), upper_limit(k, n))
        held[corpus] = share.mean() <= limits[sum(hits), n_tests * draws], share[0] <= limits[hits[0], draws]
    allowed = beta.ppf(1e-4, 950, 51)  # of 1,000 at the level 0.95, once in ten thousand tests
    assert (held.mean(axis=0) >= allowed).all(), held.mean(axis=0)
    assert (held.mean(axis=0) < 1).all()  # a limit that always holds would say nothing


@pytest.mark.parametrize("n", [1, 20, 500])
def test_without_a_hit_the_limit_is_the_rule_of_three(n):
    assert upper_limit(0, n) == pytest.approx(1 - 0.05 ** (1 / n), abs=1e-12)
    assert upper_limit(n, n) == 1.0
    assert n < 20 or upper_limit(0, n) == pytest.approx(3 / n, rel=0.1)


def test_sizes_of_the_curve():
    assert [points(n) for n in (0, 1, 2, 7, 10, 120)] == [
        [], [1], [1, 2], [1, 2, 5, 7], [1, 2, 5, 10], [1, 2, 5, 10, 20, 50, 100, 120]
    ]  # fmt: skip


def test_a_pool_that_is_too_small_is_named():
    pools = made_up(4)
    sorted_pools = [pool._replace(scores=np.sort(pool.scores), drawn=pool.drawn[:0]) for pool in pools]
    small = found_of(sorted_pools)
    assert small.warnings() == [
        f"The pool is too small: {100 * small.late:.0f} % of the best scores are first reached in its last tenth."
    ]
    enough = found_of([pool._replace(scores=-np.sort(-pool.scores)) for pool in sorted_pools])
    assert enough.warnings() == []


def test_no_number_is_minus_zero():
    pools = [pool._replace(scores=0.0 * pool.scores - 1e-7, drawn=0.0 * pool.drawn - 2e-7) for pool in made_up(7)]
    texts = [
        " ".join(" ".join(cell.lines) for cell in cells)
        for table in found_of(pools).tables()
        for _, cells in table.rows
    ]
    assert any("0.0000" in text for text in texts)
    assert not any("-0.0000" in text for text in texts)


def test_what_is_printed(tmp_path):
    found = found_of(made_up(5))
    curve, lists = found.tables()
    assert curve.title == "Best score of the pool, green ↑"
    assert [name for name, _ in curve.rows][-2:] == ["best of 5 random", "best of 6 random"]
    assert [name for name, _ in lists.rows] == ["bleu-2", "errors", "random"]
    notes = "\n".join(lists.notes)
    assert "A lower bound of the oracle under green: reports outside the pool were not scored." in notes
    certified = sum(found.reports["certified"].to_pylist())
    assert f"Certified: {certified} of 30 test reports reach 1, the best score." in notes
    assert f"of 180 random reports score better than all reports of the lists. So, at 95 %, at most {100 * found.signature['limit']:.2g} %" in notes  # fmt: skip  # noqa: E501
    assert found.summary().endswith("over 30 test reports, a lower bound of the oracle under green")
    for ending in ("md", "tex", "csv", "parquet", "svg"):
        found.write(tmp_path / f"pool.{ending}")
    assert "first 20" in (tmp_path / "pool.md").read_text("utf-8")
    assert isinstance(found, PooledOracle)
    assert found.table.num_rows == found.curve.num_rows + 3 + 30


def test_pools_of_random_reports_alone_and_of_lists_alone():
    pools = made_up(6)
    alone = found_of([pool._replace(drawn=pool.drawn[:0]) for pool in pools], best=None)
    assert alone.signature["limit"] is None
    assert set(alone.reports["limit"].to_pylist()) == {None}
    assert alone.lists["list"].to_pylist() == ["bleu-2", "errors"]
    assert not any("random" in note or "Certified" in note for note in alone.tables()[1].notes)
    none = np.zeros((0, 0))
    drawn = found_of([JudgedPool(none[0:0].ravel(), pool.drawn, none.astype(bool), none) for pool in pools], {})
    assert drawn.lists["list"].to_pylist() == ["random"]
    assert set(drawn.reports["limit"].to_pylist()) == {upper_limit(0, 6)}
    assert drawn.signature["limit"] is None
