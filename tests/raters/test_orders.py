"""Rated sets given as preferences between two candidates, and as chains in a stated order."""

import json
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.raters.interrater import PERFECT, RADIOLOGISTS
from metric_oracle.raters.metric_comparison import AGREEMENT, CEILING, DIFFERENCE
from metric_oracle.raters.rank_correlation import JUDGEMENTS, TIES, WHOLE
from metric_oracle.raters.rated_sets import read_rated_set

OUTCOMES = ("a", "b", "tie")
SIGN = {"a": 1, "b": -1, "tie": 0}


def write(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture
def preferred(tmp_path):
    """Write 30 studies of three candidates, all three compared by three raters, in either direction, with many ties.

    Return the files, the signs of each rater (a comparison by rater: 1 where the first is better) and the scores.
    """
    rng = np.random.default_rng(1)
    rows, signs, sides = [], [], []
    for study in range(30):
        for a, b in combinations("xyz", 2):
            words = rng.choice(OUTCOMES, 3, p=[0.5, 0.2, 0.3])
            signs.append([SIGN[word] for word in words])
            sides.append(((study, a), (study, b)))
            for rater, word in zip("ABC", words, strict=True):
                swapped = {"a": "b", "b": "a", "tie": "Tie"}[word]
                turned = rng.random() < 0.5
                rows.append([f"s{study}", rater, *((b, a, swapped) if turned else (a, b, word))])
    order = rng.permutation(len(rows))
    ratings = write(tmp_path / "p.csv", "study_id,rater,candidate_a,candidate_b,preference", [rows[i] for i in order])
    scores = {(study, name): rng.integers(0, 4) for study in range(30) for name in "xyz"}
    shuffled = rng.permutation(len(scores))
    lines = [[f"s{s}", name, value, -value] for (s, name), value in scores.items()]
    files = write(tmp_path / "s.csv", "study_id,candidate_type,good,bad", [lines[i] for i in shuffled])
    metric = np.array([np.sign(scores[a] - scores[b]) for a, b in sides])
    return mo.RatedFiles(ratings, [files]), np.array(signs), metric


def compare(files, **options):
    given = {"directions": {"good": "higher", "bad": "lower"}, "resamples": 100, **options}
    return mo.compare_metrics({"S": files}, **given)


def value(result, what, metric, statistic):
    (record,) = [r for r in result.select(what, metric=metric, statistic=statistic) if r["versus"] is None]
    return record["value"]


def accuracy(metric, rated):
    kept = rated != 0
    return ((1 + metric * rated) / 2)[kept].mean()


def test_accuracy_by_hand(preferred):
    files, signs, metric = preferred
    result = compare(files)
    majority = np.sign(signs.sum(axis=1))
    assert value(result, AGREEMENT, "good", "pairwise accuracy") == pytest.approx(accuracy(metric, majority))
    assert value(result, AGREEMENT, "good", TIES) == pytest.approx((metric == majority).mean())
    assert value(result, AGREEMENT, "bad", TIES) == value(result, AGREEMENT, "good", TIES)
    assert {r["statistic"] for r in result.select(AGREEMENT)} == {"pairwise accuracy", TIES}  # none between studies
    assert (metric == 0).any()
    assert (majority == 0).any()
    assert result.views[0].studies == 30
    (record,) = result.select(DIFFERENCE, statistic=TIES)
    assert (record["value"], record["p_value"]) == (0, 1)


def test_ceilings_by_hand(preferred):
    files, signs, metric = preferred
    result = compare(files)
    others = [np.sign(np.delete(signs, rater, axis=1).sum(axis=1)) for rater in range(3)]
    of_metric = np.mean([accuracy(metric, panel) for panel in others])
    of_raters = np.mean([accuracy(signs[:, rater], panel) for rater, panel in enumerate(others)])
    assert value(result, CEILING, "good", "pairwise accuracy") == pytest.approx(of_metric)
    assert value(result, CEILING, RADIOLOGISTS, "pairwise accuracy") == pytest.approx(of_raters)
    (below,) = result.select(CEILING, metric="good", versus=RADIOLOGISTS)
    assert below["value"] == pytest.approx(of_metric - of_raters)
    single = [
        accuracy(signs[:, a], signs[:, b]) * (signs[:, b] != 0).sum() for a in range(3) for b in range(3) if a != b
    ]
    judgements = (signs != 0).sum()
    assert value(result, CEILING, RADIOLOGISTS, JUDGEMENTS) == pytest.approx(sum(single) / (2 * judgements))
    flat = np.concatenate([accuracy(metric, rated) * (rated != 0).sum(keepdims=True) for rated in signs.T])
    assert value(result, CEILING, "good", JUDGEMENTS) == pytest.approx(flat.sum() / judgements)
    sides = np.array([[-1], [0], [1]])  # the best answer to each comparison, tried out
    best = ((1 + sides[:, :, None] * signs) / 2 * (signs != 0)).sum(axis=2).max(axis=0).sum() / judgements
    assert value(result, CEILING, PERFECT, JUDGEMENTS) == pytest.approx(best)
    assert best < 1


def test_intervals_resample_studies(preferred):
    """All comparisons of a study are drawn together."""
    files, signs, metric = preferred
    result = compare(files, seed=5)
    order = list(dict.fromkeys(read_rated_set(files.ratings).studies))  # studies are numbered as they occur
    studies = np.repeat([order.index(f"s{study}") for study in range(30)], 3)
    majority = np.sign(signs.sum(axis=1))

    def of(drawn):
        rows = np.concatenate([np.flatnonzero(studies == s) for s in np.ravel(drawn)])
        return accuracy(metric[rows], majority[rows])

    (record,) = result.select(AGREEMENT, metric="good", statistic="pairwise accuracy")
    expected = stats.bootstrap(
        (np.arange(30),), of, n_resamples=100, vectorized=False, method="percentile", rng=np.random.default_rng(5)
    ).confidence_interval
    assert [record["low"], record["high"]] == pytest.approx(list(expected))


def test_intervals_for_other_raters(preferred):
    files, *_ = preferred
    fixed, both = (compare(files, resample_raters=is_asked) for is_asked in (False, True))
    for before, after in zip(fixed.select(AGREEMENT), both.select(AGREEMENT), strict=True):
        assert after["value"] == before["value"]
        assert 0 <= after["low"] <= after["value"] <= after["high"] <= 1
    assert both.select(CEILING) == fixed.select(CEILING)
    assert both.select(AGREEMENT) != fixed.select(AGREEMENT)


def test_tables_and_figures(preferred, tmp_path, oracle):
    files, *_ = preferred
    tables = compare(files).tables()
    assert [table.title for table in tables] == [
        "Agreement within references",
        "Metrics beside one radiologist",
        "Accuracy on single judgements",
        "Difference of two metrics in pairwise accuracy",
    ]
    assert tables[0].columns == ["S preference, accuracy", "S preference, accuracy with ties"]
    assert [name for name, _ in tables[2].rows] == ["a perfect metric", "one radiologist", "good", "bad"]
    given = ["compare-metrics", f"S={files.ratings}", "--scores", f"S={files.scores[0]}", "--direction", "good=higher",
             "--direction", "bad=lower", "--resamples", 100]  # fmt: skip
    code, printed, err = oracle(*given, "--plot", tmp_path / "bars.png")
    assert (code, err) == (0, f"{tmp_path / 'bars.png'}: good, bad on S (180 pairs)\n")
    assert {json.loads(line)["statistic"] for line in printed.splitlines()} == {"pairwise accuracy", TIES, JUDGEMENTS}
    code, _, err = oracle(*given, "--scatter", tmp_path / "scatter.png")
    assert code == 2
    assert err == (
        "error: compare-metrics: ratings must be counts or grades for a figure of errors against scores; got "
        "preferences or orders. Leave the figure out.\n"
    )
    aligned = mo.align(files.ratings, files.scores, directions={"good": "higher", "bad": "lower"}, resamples=100)
    assert [table.title for table in aligned.tables()] == [
        "Pairwise accuracy within studies of metrics, by radiologist",
        "Agreement within studies, with the mean of raters",
        "Agreement of the radiologists with one another",
        "Difference of two metrics in pairwise accuracy",
    ]
    with pytest.raises(
        InputError,
        match=r"^fit_composite: ratings must be counts or grades for a composite, which predicts a number; got pr",
    ):
        mo.fit_composite(read_rated_set(files.ratings), write(tmp_path / "b.csv", "study_id,candidate_type,bleu",
                         [[f"s{s}", c, s] for s in range(30) for c in "xyz"]))  # fmt: skip


def test_one_rater_and_texts(tmp_path):
    """Candidates without names; an empty report is a text, two equal candidates are a tie of the metric."""
    header = "study_id,preference,reference,prediction_a,prediction_b"
    rows = [
        ["s0", "a", "no effusion", "no effusion", "large effusion"],
        ["s1", "b", "no effusion", '""', "no effusion"],
        ["s2", "tie", "heart is normal", "heart is normal", "heart is normal"],
        ["s3", "a", "heart is normal", "large heart", "large heart"],
    ]
    result = mo.compare_metrics(
        {"S": mo.RatedFiles(write(tmp_path / "p.csv", header, rows))}, metrics=["rouge-l"], resamples=100
    )
    assert [view.name for view in result.views] == ["S", "S*"]
    assert value_of(result, "S", "pairwise accuracy") == pytest.approx((1 + 1 + 0.5) / 3)
    assert value_of(result, "S", TIES) == 3 / 4
    assert result.select(CEILING) == []
    assert value_of(result, "S*", "pairwise accuracy") == 0.5  # of s3 alone: elsewhere a candidate is the reference
    rows[1][3] = ""
    lacking = mo.RatedFiles(write(tmp_path / "p.csv", header, rows))
    with pytest.raises(
        InputError, match=r"^compare_metrics: samples must hold both texts of every pair to score them; "
    ):
        mo.compare_metrics({"S": lacking}, metrics=["rouge-l"], resamples=100)


def value_of(result, view, statistic):
    (record,) = result.select(AGREEMENT, set=view, statistic=statistic)
    return record["value"]


@pytest.fixture
def graded(tmp_path):
    """Write chains of different lengths with ties, two in some studies; return the files, and the chains."""
    rng = np.random.default_rng(2)
    rows, lines, chains = [], [], []
    for study in range(25):
        for chain in ("false", "missed")[: 1 + study % 2]:
            levels = np.sort(rng.integers(0, 4, rng.integers(2, 6)))
            scores = np.round(-levels + rng.normal(0, 0.8, len(levels)))
            chains.append((study, levels, scores))
            for i, (level, score) in enumerate(zip(levels, scores, strict=True)):
                rows.append([f"s{study}", chain, f"{chain}{i}", level])
                lines.append([f"s{study}", f"{chain}{i}", score])
    ratings = write(
        tmp_path / "o.csv", "study_id,chain,candidate_type,order", [rows[i] for i in rng.permutation(len(rows))]
    )
    return mo.RatedFiles(ratings, [write(tmp_path / "s.csv", "study_id,candidate_type,good", lines)]), chains


def test_chains_by_hand(graded):
    files, chains = graded
    result = compare(files, directions={"good": "higher"})
    right, comparisons = [], []
    for _, levels, scores in chains:
        pairs = [
            (np.sign(b - a), np.sign(s - t)) for (a, s), (b, t) in combinations(zip(levels, scores, strict=True), 2)
        ]
        comparisons += pairs
        told_apart = [(rated, metric) for rated, metric in pairs if rated]
        right += [all(rated == metric for rated, metric in told_apart)] if told_apart else []
    rated, metric = np.array(comparisons).T
    assert value(result, AGREEMENT, "good", "pairwise accuracy") == pytest.approx(accuracy(metric, rated))
    tau = (rated * metric).sum() / np.sqrt((rated**2).sum() * (metric**2).sum())
    assert value(result, AGREEMENT, "good", "tau-b within studies") == pytest.approx(tau)
    assert value(result, AGREEMENT, "good", WHOLE) == pytest.approx(np.mean(right))
    assert 0 < np.mean(right) < 1
    assert result.views[0].studies == 25
    (table, *_) = result.tables()
    assert table.columns == ["S order, accuracy", "S order, tau-b", "S order, groups in order"]
    assert result.select(CEILING) == []


def test_one_chain_is_scipys_tau(tmp_path):
    """Levels without names; a second study without a comparison changes nothing."""
    rows = [["s0", level] for level in (0, 1, 2, 3.5)] + [["s1", 0]]
    ratings = write(tmp_path / "o.csv", "study_id,order", rows)
    scores = [3, 1, 1, 2, 9]
    names = ["level 0", "level 1", "level 2", "level 3.5", "level 0"]
    lines = [[f"{study}/{name}", score] for (study, _), name, score in zip(rows, names, scores, strict=True)]
    result = compare(mo.RatedFiles(ratings, [write(tmp_path / "s.csv", "pair_id,good", lines)]),
                     directions={"good": "higher"})  # fmt: skip
    tau = stats.kendalltau(scores[:4], [0, -1, -2, -3.5]).statistic
    assert value(result, AGREEMENT, "good", "tau-b within studies") == pytest.approx(tau)
    assert value(result, AGREEMENT, "good", WHOLE) == 0


def test_many_chains_need_little_memory(tmp_path):
    """2,448 chains of five candidates: a matrix of all pairs would have 1.2 GB."""
    rng = np.random.default_rng(3)
    scores = rng.integers(0, 5, (2448, 5))
    ratings = write(tmp_path / "o.csv", "study_id,order", [[f"s{s}", level] for s, level in np.ndindex(scores.shape)])
    lines = [[f"s{s}", f"level {level}", score] for (s, level), score in np.ndenumerate(scores)]
    scored = write(tmp_path / "s.csv", "study_id,candidate_type,good", lines)
    result = compare(mo.RatedFiles(ratings, [scored]), directions={"good": "higher"})
    signs = np.sign(scores[:, :, None] - scores[:, None])[:, *np.triu_indices(5, 1)]
    assert value(result, AGREEMENT, "good", "pairwise accuracy") == pytest.approx((1 + signs).mean() / 2)
    assert value(result, AGREEMENT, "good", WHOLE) == pytest.approx((signs == 1).all(axis=1).mean())


def test_beside_a_set_of_counts(rated, graded):
    """Each set has the statistics that its ratings allow."""
    sets = {"ReXVal": mo.RatedFiles(rated.long, [rated.scores]), "Chains": graded[0]}
    result = mo.compare_metrics(sets, directions={"good": "higher", "poor": "higher"}, resamples=100)
    assert {r["set"] for r in result.select(AGREEMENT, statistic="tau-b")} == {"ReXVal"}
    assert {r["set"] for r in result.select(AGREEMENT, statistic="pairwise accuracy")} == {"ReXVal", "Chains"}
    tables = result.tables()
    assert tables[0].columns == ["ReXVal τ", "ReXVal ρ"]
    within = next(table for table in tables if table.title == "Agreement within references")
    assert within.columns[-3:] == ["Chains order, accuracy", "Chains order, tau-b", "Chains order, groups in order"]


PAIRS = "study_id,rater,candidate_a,candidate_b,preference"


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        ([PAIRS, "s,A,x,y,a", "s,B,x,y,left"], r"column 'preference' of .*r\.csv must hold a, b or tie in every row; "
         r"got none of them in row 2\. Repair it\.$"),
        ([PAIRS, "s,A,x,x,a"], r"column 'candidate_b' of .* must name another candidate than candidate_a; got the same "
         r"in row 1\. Repair it\.$"),
        ([PAIRS, "s,A,x,y,a", "s,A,y,x,b"], r"column 'preference' of .* must give each rater's preference between two "
         r"candidates once; got the one of row 1 again in row 2\. Repair it\.$"),
        ([PAIRS, "s,A,x,y,a", "s,B,x,y,a", "t,A,x,y,a"], r"must have one row for each comparison and rater \(2 x 2\); "
         r"got 3\. Complete it, or leave out what not all raters judged\.$"),
        (["study_id,candidate_a,preference", "s,x,a"], r"must have both columns candidate_a and candidate_b, or neit"
         r"her; got candidate_a\. Add the other one\.$"),
        (["rater,preference", "A,a"], r"must have a column study_id, as candidates are compared within a study; got "
         r"columns 'rater', 'preference'\. Add or rename one\.$"),
        ([PAIRS], r"must have rows; got none\. Fetch the file again\.$"),
        (["study_id,order", "s,0", "s,worse"], r"column 'order' must hold a finite number in every row; got "
         r"none in row 2 of .*\. Complete the column, or leave the row out\.$"),
        (["study_id,order", "s,0", "s,0"], r"column 'order' of .* must give each candidate of a chain once for each "
         r"rater; got the one of row 1 again in row 2\. Name the candidates in a column candidate_type, or keep one"),
        (["study_id,rater,order", "s,A,0", "s,A,1", "s,B,0"], r"must have one row for each candidate and rater "
         r"\(2 x 2\); got 3\. Complete it"),
        (["study_id,rater,preference,reference,prediction_a,prediction_b", "s,A,a,no,one,two", "s,B,a,no,one,three"],
         r"the prediction of each pair in .* must be the same in all its rows; got two for pair 's/b/a', the second in "
         r"row 2\. Repair it\.$"),
        (["candidate_type,order", "x,0"], r"must have a column study_id, as candidates are compared within a study"),
    ],
)  # fmt: skip
def test_refused(tmp_path, lines, match):
    path = tmp_path / "r.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=f"^read_rated_set: .*{match}"):
        read_rated_set(path)


def test_json_lines(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(json.dumps({"study_id": f"s{i}", "preference": OUTCOMES[i]}) for i in range(3)))
    rated = read_rated_set(path)
    assert rated.pairs == ["s0/a/b", "s0/b/a", "s1/a/b", "s1/b/a", "s2/a/b", "s2/b/a"]
    assert rated.by_rater("preference").tolist() == [[0, 1, 1, 0, 0.5, 0.5]]
    fewer = rated.subset(np.array([True, True, False, False, True, False]))
    assert (fewer.groups, fewer.statistics) == (["s0/a/b", "s0/a/b", "s2/a/b"], ("pairwise accuracy", TIES))
