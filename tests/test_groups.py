"""All pairs of the reports of groups."""

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.reports import Reports
from metric_oracle.metrics import METRICS, SEARCHED
from test_memory import MODELS, graphs, vectors

pytestmark = pytest.mark.usefixtures("fake_encoder")

WORDS = ("no", "mild", "edema", "effusion", "stable", "left", "improved", "worse", "new")


def texts(rng, n):
    """Return reports, many of them equal, some of them empty."""
    return [" ".join(rng.choice(WORDS, size)) for size in rng.choice([0, 1, 1, 2, 2, 3, 70], n)]


def ragged(seed):
    """Return groups of candidates and of references: of different sizes, of one, of none, with repeated texts."""
    rng = np.random.default_rng(seed)
    sizes = [(3, 2), (1, 1), (0, 2), (2, 0), (0, 0), (5, 4), (1, 3)]
    pool = texts(rng, 12)
    draw = [tuple([pool[i] for i in rng.integers(0, 12, n)] for n in size) for size in sizes]
    return [one for one, _ in draw], [other for _, other in draw]


def scored(candidates, references, metric, **given):
    """Return what `mo.score` gives of every pair. Each call has all references, which some metrics count."""
    wanted = [np.full((len(c), len(r)), np.nan) for c, r in zip(candidates, references, strict=True)]
    for place in range(max(map(len, candidates))):
        written = [
            c[place] if place < len(c) else ""
            for c, r in zip(candidates, references, strict=True)
            for _ in range(len(r))
        ]
        truth = [text for group in references for text in group]
        one, other = (Reports.from_texts(side, keep_empty=True) for side in (truth, written))
        table = mo.score(mo.reports(one, encoder="bert", **MODELS), mo.reports(other, **MODELS), metric, **given).table
        values, column = table[metric].to_numpy(), 0
        for matrix in wanted:
            if place < len(matrix):
                matrix[place] = values[column : column + matrix.shape[1]]
            column += matrix.shape[1]
    return wanted


@pytest.mark.parametrize("metric", SEARCHED)
def test_every_pair_is_scored_as_alone(metric, tmp_path):
    candidates, references = ragged(4)
    counted = {}
    if metric == "cider-d:corpus":
        counted["index"] = mo.build_index(["no edema", "mild edema stable"], tmp_path / "I", metrics=metric)
    for sides in ((candidates, references), (candidates, candidates)):
        wanted = scored(*sides, metric, **counted)
        for threads in (1, 2):
            given = mo.reports(sides[1], encoder="bert", **MODELS)
            found = mo.pairwise(
                *((mo.reports(sides[0], **MODELS), metric, given) if sides[1] is references else (given, metric)),
                options=mo.SearchOptions(threads=threads),
                **counted,
            )
            assert [matrix.dtype for matrix in found] == [np.float64] * 7
            for matrix, expected in zip(found, wanted, strict=True):
                assert np.array_equal(matrix, expected)
    assert len(np.unique(np.concatenate([matrix.ravel() for matrix in wanted]))) > 1


def test_many_groups_go_through_several_threads():
    rng = np.random.default_rng(8)
    candidates = [texts(rng, n) for n in rng.integers(0, 40, 60)]
    references = [texts(rng, n) for n in rng.integers(0, 40, 60)]
    for metric in ("bleu-2", "rouge-l"):
        alone = mo.pairwise(candidates, metric, references, options=mo.SearchOptions(threads=1))
        shared = mo.pairwise(candidates, metric, references, options=mo.SearchOptions(threads=3))
        for one, other, written, truth in zip(alone, shared, candidates, references, strict=True):
            assert one.shape == (len(written), len(truth))
            assert np.array_equal(one, other)
            assert np.array_equal(one, mo.pairwise([written], metric, [truth])[0])


@pytest.mark.parametrize("metric", [name for name in SEARCHED if METRICS[name].is_symmetric])
def test_symmetric_metrics_are_symmetric(metric):
    rng = np.random.default_rng(3)
    one, other = texts(rng, 40), texts(rng, 40)
    there = mo.pairwise(mo.reports(one, **MODELS), metric, mo.reports(other, **MODELS))
    back = mo.pairwise(mo.reports(other, **MODELS), metric, mo.reports(one, **MODELS))
    assert np.array_equal(there, back.T)
    assert len(np.unique(there)) > 2
    both = mo.pairwise(mo.reports(one + other, **MODELS), metric)
    assert np.array_equal(both[:40, 40:], there)
    assert np.array_equal(both[40:, :40], back)


def test_one_group_is_a_matrix():
    candidates, references = ["no edema", "", "mild edema"], ["no edema", "edema"]
    matrix = mo.pairwise(candidates, "rouge-l", references)
    assert matrix.tolist() == [[1, 2 / 3], [0, 0], [0.5, 2 / 3]]
    assert np.array_equal(mo.pairwise([candidates], "rouge-l", [references])[0], matrix)
    assert mo.pairwise(candidates, "rouge-l").tolist() == [[1, 0, 0.5], [0, 0, 0], [0.5, 0, 1]]
    assert mo.pairwise([], "rouge-l") == []
    assert [m.shape for m in mo.pairwise([[], ["a"]], "rouge-l", [["b"], []])] == [(0, 1), (1, 0)]


def test_groups_by_name_belong_together():
    found = mo.pairwise({"a": ["no edema"], 2: ["clear", ""]}, "rouge-l", {2: ["clear"], "a": ["no", "edema"]})
    assert {key: matrix.tolist() for key, matrix in found.items()} == {"a": [[2 / 3, 2 / 3]], 2: [[1], [0]]}


def test_blank_references_without_graphs_before_others():
    """They share nothing; the references after them, in their group and the next one, keep their own scores."""
    text = "no edema"
    graph = graphs([text])["0"]
    candidates = mo.reports([[text], [text, "mild"]], radgraph={text: graph, "mild": graphs(["mild"])["0"]})
    references = mo.reports([["", text, "left"], [" ", text]], radgraph={text: graph, "left": graphs(["left"])["0"]})
    found = mo.pairwise(candidates, "radgraph", references)
    assert [matrix.tolist() for matrix in found] == [[[0, 1, 0]], [[0, 1], [0, 0]]]


def test_every_distinct_text_is_prepared_once():
    asked = []

    def prepared(given):
        asked.append(given)
        return graphs(given)

    groups = [["no edema", "edema", "no edema"], ["edema"], ["mild edema", "no edema"]]
    found = mo.pairwise(mo.reports(groups, radgraph=prepared), "radgraph")
    assert asked == [["no edema", "edema", "mild edema"]]
    by_id = {f"{g}/{place}": graphs([text])["0"] for g, group in enumerate(groups) for place, text in enumerate(group)}
    by_text = {text: graphs([text])["0"] for group in groups for text in group}
    for given in (by_id, by_text):
        again = mo.pairwise(mo.reports(groups, radgraph=given), "radgraph")
        assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))
    of_text = dict(zip(by_text, vectors([*by_text]), strict=True))
    found = mo.pairwise(mo.reports(groups, chexbert=of_text), "chexbert", mo.reports(groups, chexbert=vectors))
    again = mo.pairwise(mo.reports(groups, chexbert=vectors), "chexbert")
    assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: mo.pairwise([["a"], "b"], "bleu"),
            r"^pairwise: groups must be lists of texts; got another type in group \S+\.",
        ),
        (
            lambda: mo.pairwise([["a", 5]], "bleu"),
            r"^pairwise: groups must be lists of texts; got another type in group \S+\.",
        ),
        (
            lambda: mo.pairwise([["a"]], "bleu", [["a"], ["b"]]),
            r"^pairwise: references must be 1 groups with the same keys; got 2 groups\. Pass candidates and references",
        ),
        (
            lambda: mo.pairwise({"a": ["a"]}, "bleu", {"b": ["a"]}),
            r"^pairwise: references must be 1 groups with the same keys; got 1 groups\.",
        ),
        (lambda: mo.pairwise(["a"], "bleu", [["a"]]), r"^pairwise: references must be one group; got 1 groups\."),
        (
            lambda: mo.pairwise([["a", None]], "bleu"),
            r"^pairwise: reports must be texts; got 1 missing\. Leave them out",
        ),
        (
            lambda: mo.pairwise(mo.reports([["a", "b"], ["c"]], radgraph={"0/0": graphs(["a"])["0"]}), "radgraph"),
            r"^pairwise: every report must have a graph for metric 'radgraph'; got 2 without \('0/1', '1/0'\)\. Give",
        ),
        (lambda: mo.pairwise([["a"]], "crepe"), r"^pairwise: metric must be one with an exact search; got 'crepe'"),
        (
            lambda: mo.pairwise(["a"], ["a"], "bleu"),
            r"^pairwise: metric must be a string; got a list of str\. The call is",
        ),
        (
            lambda: mo.pairwise([["a"]], "bleu", options=mo.SearchOptions(k=2)),
            r"^pairwise: k must be left out for scores of given reports",
        ),
    ],
)
def test_groups_that_cannot_be_scored(call, match):
    with pytest.raises((InputError, TypeError), match=match):
        call()


@pytest.mark.parametrize(
    ("metric", "rewards"),  # of equal reports of one, two, three and four words, as the pages say
    [
        ("bleu-4", [0.18, 0.32, 0.56, 1]),
        ("bleu-4:coco", [0, 0, 0.03, 1]),
        ("bleu-2", [0.32, 1, 1, 1]),
        ("rouge-l", [1] * 4),
    ],
)
def test_the_right_short_report_does_not_earn_1_under_every_metric(metric, rewards):
    texts = ["edema", "no edema", "no edema.", "no acute edema."]
    found = mo.reward(metric)(completions=texts, reference=texts)
    assert [round(value, 2) for value in found] == rewards
