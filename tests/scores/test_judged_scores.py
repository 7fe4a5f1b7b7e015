"""A judge is one more metric of scores: the same numbers as its function gives, and no pair is judged twice."""

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError

TRUTH = {"1": "small left effusion", "2": "no acute process", "3": "edema is stable", "4": "small left effusion"}
WRITTEN = {"1": "small effusion", "2": "no acute disease", "3": "edema", "4": "small effusion"}


class Judge:
    """A judge that counts the words that two reports share and those that differ, and remembers the pairs."""

    def __init__(self):
        self.asked = []

    def __call__(self, pairs):
        self.asked += pairs
        sets = [(set(reference.split()), set(candidate.split())) for reference, candidate in pairs]
        return [{"score": len(a & b) / len(a | b), "missing": len(a - b), "remark": "text"} for a, b in sets]


def test_a_judge_is_one_more_metric():
    judge = Judge()
    green = mo.judge(judge, name="green_score")
    found = mo.score(TRUTH, WRITTEN, ["rouge-l", green])
    assert found.metrics == ["rouge-l", "green_score"]
    assert found.table["green_score"].to_pylist() == [2 / 3, 2 / 4, 1 / 3, 2 / 3]
    assert found.table["green_score.missing"].to_pylist() == [1, 1, 2, 1]
    assert len(judge.asked) == 3  # the first and the last pair are equal
    assert found.table["rouge-l"].to_pylist() == mo.score(TRUTH, WRITTEN, "rouge-l").table["rouge-l"].to_pylist()
    assert found.signature["metrics"]["green_score"] == {"source": "a column of another tool", "direction": "higher"}
    alone = mo.score(TRUTH, WRITTEN, green)
    assert alone.metrics == ["green_score"]
    assert alone.table == found.table.select(alone.table.column_names)


def test_judgements_are_kept_and_files_are_read(tmp_path):
    judge = Judge()
    words = mo.judge(judge, name="words", direction="higher", version="2", keep=tmp_path / "kept")
    first, again = (mo.score(TRUTH, WRITTEN, ["bleu", words]) for _ in range(2))
    assert again.table == first.table
    assert len(judge.asked) == 3
    assert first.signature["metrics"]["words"]["version"] == "2"
    first.write(tmp_path / "scores.csv")
    assert mo.read_scores(tmp_path / "scores.csv").mean() == first.mean()


def test_rows_of_a_judge_make_a_table(tmp_path):
    lines = []
    truth = mo.reports(TRUTH, tell=lines.append)
    metrics = ["bleu", mo.judge(Judge(), name="errors", direction="lower")]
    rows = {name: mo.score(truth, written, metrics) for name, written in (("a", WRITTEN), ("b", TRUTH))}
    assert "errors: 3 distinct pairs to judge" in lines
    table = mo.compare(rows, paired=[("a", "b")], resamples=100)
    assert [column.metric for column in table.columns] == ["bleu-2", "errors"]
    assert table.cells["a", "errors"].best  # lower is better
    (tmp_path / "other.csv").write_text("study_id,errors\n1,0\n2,0\n3,0\n4,0.5\n")
    foreign = mo.read_foreign("c", tmp_path / "other.csv", {"errors": "lower"})
    assert mo.compare({"a": rows["a"], "c": foreign}, resamples=100).cells["c", "errors"].mean == 0.125


def test_too_many_pairs_are_refused_before_any_is_judged():
    judge = Judge()
    with pytest.raises(InputError, match=r"most of the judge \w+ must be at least 3, the pairs to judge; got 2"):
        mo.score(TRUTH, WRITTEN, ["bleu", mo.judge(judge, name="green_score", most=2)])
    assert judge.asked == []


@pytest.mark.parametrize(
    "call",
    [
        lambda metrics: mo.score("none.csv", "none.csv", metrics),
        lambda metrics: mo.best_of("none.jsonl", "none.csv", metrics),
        lambda metrics: mo.consensus("none.jsonl", metrics),
        lambda metrics: mo.expectation("NONE", "none.csv", metrics),
        lambda metrics: mo.study("NONE", "none.csv", metrics=metrics),
        lambda metrics: mo.study_pairs("NONE", "none.csv", metrics=metrics),
    ],
)
def test_a_judge_is_opened_before_reports_are_read(call):
    with pytest.raises(InputError, match=r"^\w+: there is no file scores\.csv"):
        call(["bleu", mo.judge(files="scores.csv", name="green_score")])
