"""A judge is one more metric of samples: of the best of n, and of the consensus."""

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError

SAMPLES = {
    "1": ["small effusion", "small left effusion", "no effusion", "small effusion"],
    "2": ["no acute process", "acute process", "edema"],
    "3": ["edema"],
}
TRUTH = {"1": "small left effusion", "2": "no acute process", "3": "stable edema"}


class Judge:
    """Counts the words of the reference that the candidate lacks, and remembers the pairs."""

    def __init__(self):
        self.asked = []

    def __call__(self, pairs):
        self.asked += pairs
        return [missing(*pair) for pair in pairs]


def missing(reference, candidate):
    return float(len({*reference.split()} - {*candidate.split()}))


def test_best_of_n_under_a_judge():
    judge = Judge()
    errors = mo.judge(judge, name="errors", direction="lower")
    found = mo.best_of(SAMPLES, TRUTH, ["rouge-l", errors])
    assert [of.tolist() for of in found.scores["errors"]] == [
        [missing(TRUTH[study], sample) for sample in group] for study, group in SAMPLES.items()
    ]
    assert len(judge.asked) == 7  # two samples are equal
    first, *_ = (row for row in found.curve.to_pylist() if row["metric"] == "errors")
    assert first["mean"] == np.mean([of.mean() for of in found.scores["errors"]])
    of_judge = [row for row in found.selectors.to_pylist() if row["metric"] == "errors"]
    assert of_judge[-1]["selector"] == "best of all samples"
    assert of_judge[-1]["mean"] == np.mean([0, 0, 1])
    assert "consensus under errors" not in [row["selector"] for row in of_judge]
    assert found.signature["metrics"]["errors"]["direction"] == "lower"
    alone = mo.best_of(SAMPLES, TRUTH, "rouge-l").scores["rouge-l"]
    assert [of.tolist() for of in found.scores["rouge-l"]] == [of.tolist() for of in alone]


def test_consensus_under_a_judge(tmp_path):
    judge = Judge()
    found = mo.consensus(SAMPLES, ["rouge-l", mo.judge(judge, name="errors", direction="lower")])
    for study, group, matrix, chosen in zip(
        SAMPLES, SAMPLES.values(), found.matrices["errors"], found.chosen["errors"], strict=True
    ):
        assert matrix.tolist() == [[missing(other, sample) for other in group] for sample in group], study
        if len(group) > 1:
            means = [(sum(row) - row[i]) / (len(group) - 1) for i, row in enumerate(matrix.tolist())]
            assert chosen == means.index(min(means))
    assert len(judge.asked) == len(set(judge.asked)) == 9 + 9  # "edema" with itself is in two studies
    assert found.chosen["rouge-l"] == mo.consensus(SAMPLES, "rouge-l").chosen["rouge-l"]
    assert [path.name for path in found.write(tmp_path / "chosen.csv")] == ["chosen-rouge-l.csv", "chosen-errors.csv"]
    assert found.predictions("errors")["3"] == "edema"
    named = mo.consensus(SAMPLES, ["rouge-l", mo.judge(judge, name="org/the model", direction="lower")])
    assert [path.name for path in named.write(tmp_path / "b.csv")] == ["b-rouge-l.csv", "b-org-the-model.csv"]


@pytest.mark.parametrize("call", ["best_of", "consensus"])
def test_too_many_pairs_of_samples_are_refused(call):
    judge = Judge()
    arguments = (SAMPLES, TRUTH) if call == "best_of" else (SAMPLES,)
    with pytest.raises(InputError, match=r"most of the judge \w+ must be at least (7|18), the pairs to judge; got 5"):
        getattr(mo, call)(*arguments, ["rouge-l", mo.judge(judge, name="green_score", most=5)])
    assert judge.asked == []
