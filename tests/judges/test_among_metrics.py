"""Judges among the metrics of a call: alone, beside metrics and beside other judges they give the same."""

import pytest

import metric_oracle as mo
from support.made_up import JUDGE, MIRRORED, reports, worth

TESTS, WRITTEN = reports(12, 2), reports(12, 3)
SAMPLES = {study: [reports(12, seed)[study] for seed in range(10, 15)] for study in TESTS}
POOL = "rouge-l:3,random:3"


def length(pairs):
    """Judge pairs by how much longer or shorter the candidate is, and whether it is longer."""
    return [{"score": abs(len(a) - len(b)), "longer": len(b) > len(a) and 1} for a, b in pairs]


LENGTH = mo.judge(length, direction="lower", best=0)
JUDGES = [JUDGE, LENGTH]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return mo.build_index(reports(60, 1, "c"), tmp_path_factory.mktemp("judges") / "INDEX", metrics="rouge-l,bleu-2")


def of_score(metrics, name):
    table = mo.score(TESTS, WRITTEN, metrics).table
    return {column: table[column].to_pylist() for column in table.column_names if column.partition(".")[0] == name}


def of_best_of(metrics, name):
    rows = mo.best_of(SAMPLES, TESTS, metrics).records()
    own = [row for row in rows if row["metric"] == name and row["selector"] != "consensus under rouge-l"]
    return [{**row, "p_adjusted": None} for row in own]  # which is for all tests of the call


def of_consensus(metrics, name):
    found = mo.consensus(SAMPLES, metrics)
    utilities = [utility.tolist() for utility in found.utilities[name]]
    return found.chosen[name], utilities, [matrix.tolist() for matrix in found.matrices[name]]


@pytest.mark.parametrize("columns", [of_score, of_best_of, of_consensus])
@pytest.mark.parametrize("judge", JUDGES, ids=str)
def test_a_judge_gives_the_same_alone_and_beside_others(columns, judge):
    alone = columns(judge, judge.name)
    assert alone
    for metrics in ([judge], ["rouge-l", judge], JUDGES, JUDGES[::-1], ["rouge-l", *JUDGES]):
        assert columns(metrics, judge.name) == alone


def test_judges_of_a_study_give_the_same_alone(index):
    both = mo.study(index, TESTS, {"model": WRITTEN}, metrics=["rouge-l", *JUDGES], pool=POOL)
    pooled = [f"{judge.name} of a pool" for judge in JUDGES]
    assert [*both] == ["model", "rouge-l oracle", *pooled, "most frequent", "identity", "random (expected)"]
    assert all(scores.metrics == ["rouge-l", "worth", "length"] for scores in both.values())
    for judge in JUDGES:
        alone = mo.study(index, TESTS, {"model": WRITTEN}, metrics=["rouge-l", judge], pool=POOL)
        for row, scores in alone.items():
            assert both[row].table.select(scores.table.column_names) == scores.table
            assert both[row].signature.get("pool") == scores.signature.get("pool")
    best = mo.rerank(index, TESTS, JUDGE, pool=POOL).table["text"].to_pylist()  # under one, and scored by the other
    expected = [answer["score"] for answer in length(zip(TESTS.values(), best, strict=True))]
    assert both[pooled[0]].table["length"].to_pylist() == expected


def test_the_mean_under_a_judge_alone_is_not_corrected(index):
    alone, corrected = (mo.expectation(index, TESTS, metrics, draws=6) for metrics in (JUDGE, ["rouge-l", JUDGE]))
    plain = corrected.signature["sampled"]["plain_mean"]
    assert alone.table["mean"].to_numpy().mean() == pytest.approx(plain)
    assert alone.signature["sampled"]["slopes"] == {}


@pytest.mark.parametrize(
    "call",
    [
        lambda index, judges: mo.score(TESTS, WRITTEN, judges),
        lambda index, judges: mo.best_of(SAMPLES, TESTS, judges),
        lambda index, judges: mo.consensus(SAMPLES, judges),
        lambda index, judges: mo.study(index, TESTS, metrics=["rouge-l", *judges], pool=POOL),
    ],
    ids=["score", "best_of", "consensus", "study"],
)
def test_no_judge_is_asked_before_the_pairs_of_all_are_counted(index, call):
    asked = []
    first = mo.judge(lambda pairs: asked.extend(pairs) or worth(pairs), name="first", direction="higher")
    second = mo.judge(worth, name="second", direction="higher", most=1)
    with pytest.raises(
        mo.MetricOracleError, match=r"^\w+: most of the judge \w+ must be at least \d+, the pairs to judge; got 1\. Ju"
    ):
        call(index, [first, second])
    assert asked == []


ONCE = r"metrics? must have each judge once; got 'worth'\. Leave one out, or name it otherwise\.$"
ONE = r"metrics? must have one judge; got 2\. Make one call for each judge\.$"
IS_NAME = r"metric must be a string; got a GivenJudge\. The call is "
ARE_NAMES = (
    r"metrics must be a string,? (or )?a list of strings or None; got a list of GivenJudge or str\. The call is "
)
IS_JUDGE = r"metric must be a judge; got 'bleu'\. Name a judge of oracle\.toml, or leave it out\.$"
WRONG = {
    "a judge twice, score": (lambda i: mo.score(TESTS, WRITTEN, [JUDGE, JUDGE]), ONCE),
    "a judge twice, compute": (lambda i: mo.compute(references=TESTS, predictions=WRITTEN, metrics=[JUDGE] * 2), ONCE),
    "a judge twice, best_of": (lambda i: mo.best_of(SAMPLES, TESTS, [JUDGE, "rouge-l", JUDGE]), ONCE),
    "a judge twice, consensus": (lambda i: mo.consensus(SAMPLES, [JUDGE, MIRRORED]), ONCE),  # another, of one name
    "a judge twice, study": (lambda i: mo.study(i, TESTS, metrics=[JUDGE, MIRRORED]), ONCE),
    "a judge twice, expectation": (lambda i: mo.expectation(i, TESTS, [JUDGE, JUDGE]), ONCE),
    "two judges, expectation": (lambda i: mo.expectation(i, TESTS, ["bleu", *JUDGES]), ONE),
    "two judges, pool": (lambda i: mo.pool(i, TESTS, JUDGES, pool=POOL), ONE),
    "two judges, study_pairs": (lambda i: mo.study_pairs(i, TESTS, metrics=["bleu", *JUDGES]), ONE),
    "a metric, pool": (lambda i: mo.pool(i, TESTS, "bleu", pool=POOL), IS_JUDGE),
    "a metric beside a judge, pool": (lambda i: mo.pool(i, TESTS, ["bleu", JUDGE], pool=POOL), IS_JUDGE),
    "a function, score": (
        lambda i: mo.score(TESTS, WRITTEN, ["bleu", worth]),
        r"metrics must be a string, a GivenJudge or a list or None; got a list of function or str\. The call is ",
    ),
    "mine": (lambda i: mo.mine(i, JUDGE, "mined.parquet"), IS_NAME),
    "retrieve": (lambda i: mo.retrieve(i, TESTS, JUDGE), IS_NAME),
    "baseline": (lambda i: mo.baseline(i, TESTS, "random", JUDGE), IS_NAME),
    "pairwise": (lambda i: mo.pairwise([["edema"]], JUDGE), IS_NAME),
    "reward": (lambda i: mo.reward(JUDGE), IS_NAME),
    "build_index": (lambda i: mo.build_index(TESTS, "INDEX", metrics=["bleu", JUDGE]), ARE_NAMES),
    "align": (lambda i: mo.align("ratings.csv", metrics=["bleu", JUDGE]), ARE_NAMES),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_judge_that_a_call_does_not_take_is_one_line(index, case):
    call, line = WRONG[case]
    function = case.split(", ")[-1]
    with pytest.raises(mo.MetricOracleError, match=f"^{function}: {line}") as caught:
        call(index)
    assert "\n" not in str(caught.value)
