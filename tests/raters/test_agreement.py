"""Agreement between raters and of raters with themselves, against numbers worked out elsewhere."""

import json
import shutil

import numpy as np
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.raters.interrater import ALL, BETWEEN, EXACT, ICC, SHIFT, agreement
from metric_oracle.raters.ratings import Ratings, read_ratings
from metric_oracle.statistics import effective_studies
from support.orders import in_another_order

# Table 2 of Shrout and Fleiss, Psychological Bulletin 1979: six targets, four judges; ICC(2,1) .29, ICC(2,4) .62.
JUDGES = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]])


def ratings(by_pair, candidates=None):
    """Return ratings of one category whose errors, all insignificant, are int[P, R]."""
    counts = np.zeros((*by_pair.shape, 1, 2), np.int64)
    counts[..., 0, 0] = by_pair
    names = [f"p{i}" for i in range(len(by_pair))]
    return Ratings(names, names, candidates, [f"r{j}" for j in range(by_pair.shape[1])], ["1"], counts, "made up")


def value(found, statistic, *, candidate=ALL, errors="total", rater=BETWEEN):
    (record,) = (
        r
        for r in found.records()
        if (r["statistic"], r["candidate"], r["errors"], r["rater"]) == (statistic, candidate, errors, rater)
    )
    return record["value"]


def test_the_form_is_that_of_shrout_and_fleiss():
    found = agreement(ratings(JUDGES), resamples=100)
    assert value(found, ICC[0]) == pytest.approx(0.29, abs=0.005)
    assert value(found, ICC[1]) == pytest.approx(0.62, abs=0.005)
    assert value(found, ICC[0], errors="significant") is None  # nothing varies
    assert value(found, EXACT, errors="significant") == 1
    same = [(a == b) for row in JUDGES for i, a in enumerate(row) for b in row[:i]]
    assert value(found, EXACT) == pytest.approx(np.mean(same))
    assert "ICC(2,1)" in found.signature["icc"]


def test_by_candidate_type(rated):
    found = agreement(rated.long, resamples=100)
    assert found.table.num_rows == 5 * 2 * 3
    whole = read_ratings(rated.long)
    for name in ("bleu", "radgraph"):
        some = whole.subset(np.array([candidate == name for candidate in whole.candidates]))
        alone = agreement(some, resamples=100)
        for statistic in (*ICC, EXACT):
            assert value(found, statistic, candidate=name) == value(alone, statistic)
    assert found.summary() == "200 pairs of 50 studies, 6 raters"
    few = [n for n in found.table["effective"].to_pylist() if n is not None and 0 < n < 20]
    assert found.warnings() == [
        f"{len(few)} intervals rest on fewer than 20 effective studies (the least on {min(few):.0f}, see the column "
        "`effective`) and are too short: a few studies with many errors decide them."
    ]
    for record in found.records():
        assert record["low"] <= record["value"] <= record["high"]


def test_studies_that_an_interval_rests_on():
    """Of one pair a study, exact agreement is a mean of studies, and the criterion that of a mean."""
    counts = np.random.default_rng(5).integers(0, 6, (60, 2))
    same = (counts[:, 0] == counts[:, 1]).astype(float)
    for record in agreement(ratings(counts), resamples=100).records():
        if (record["statistic"], record["errors"]) == (EXACT, "total"):
            assert record["effective"] == pytest.approx(effective_studies(same - same.mean()))
    outlier = counts.copy()
    outlier[0] = 90, 90
    few = agreement(ratings(outlier), resamples=100)
    assert 0 < next(r["effective"] for r in few.records() if r["statistic"] == ICC[0]) < 2
    assert "a few studies with many errors decide them" in few.warnings()[0]


def test_raters_with_themselves():
    first = ratings(np.array([[0, 3], [1, 1], [4, 0], [2, 2], [0, 1]]))
    second = ratings(np.array([[0, 4], [1, 3], [4, 1]]))
    found = agreement(first, second, resamples=100)
    assert [value(found, name, rater="r0") for name in (ICC[0], EXACT, SHIFT)] == [1, 1, 0]
    assert value(found, EXACT, rater="r1") == 0
    assert value(found, SHIFT, rater="r1") == pytest.approx(4 / 3)
    assert not any(r["statistic"] == ICC[1] for r in found.records() if r["rater"] != BETWEEN)
    assert found.summary() == "5 pairs of 5 studies, 2 raters; 3 pairs rated twice"
    assert found.warnings() == ["Fewer than 20 studies (5): the intervals are too short."]
    alone = agreement(ratings(np.array([[0], [1], [4]])), ratings(np.array([[0], [1], [4]])), resamples=100)
    assert {record["rater"] for record in alone.records()} == {"r0"}


@pytest.mark.parametrize("some", [1, 3])
def test_some_raters_again_in_another_order(rated, tmp_path, some):
    """Who repeats the own counts agrees with oneself, wherever the rater and the pairs stand; also of every third."""
    shutil.copy(rated.long, tmp_path)

    def is_again(row):
        return row["rater_index"] in ("1", "4") and int(row["study_number"]) % some == some - 1

    again = in_another_order(tmp_path / rated.long.name, keep=is_again)
    found = agreement(rated.long, again, resamples=100)
    assert {record["rater"] for record in found.records()} == {BETWEEN, "1", "4"}
    for rater in ("1", "4"):
        assert [value(found, name, rater=rater) for name in (ICC[0], EXACT, SHIFT)] == [1, 1, 0]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([ratings(JUDGES[:, :1])], r"ratings must be of at least 2 raters; got 1\. Add raters, or `repeated`\."),
        (
            [ratings(JUDGES[:2]), ratings(JUDGES)],
            r"repeated must be pairs of the ratings; got .*\. Give",
        ),
        ([ratings(JUDGES[:, :2]), ratings(JUDGES)], r"repeated must be raters of the ratings; got .*\. Give"),
    ],
)
def test_what_cannot_agree(given, match):
    with pytest.raises(InputError, match=f"^agreement: {match}"):
        agreement(*given, resamples=100)


def test_one_pair_has_no_correlation():
    found = agreement(ratings(JUDGES[:1]), resamples=100)
    assert value(found, ICC[0]) is None
    assert value(found, EXACT) == 0


def test_the_command(oracle, rated, tmp_path):
    code, out, err = oracle("agreement", rated.long, "--resamples", 100, "--seed", 3)
    assert (code, err) == (0, "")
    records = [json.loads(line) for line in out.splitlines()]
    assert len(records) == 30
    path = tmp_path / "t.md"
    code, out, err = oracle("agreement", rated.long, "--repeated", rated.long, "--resamples", 100, "--out", path)
    assert (code, out) == (0, "")
    assert err == f"{path}: 200 pairs of 50 studies, 6 raters; 200 pairs rated twice\n"
    text = path.read_text()
    assert "ICC(2,1)" in text
    assert "| RadGraph sig. and insig. errors |" in text
    assert "Rater 5" in text
