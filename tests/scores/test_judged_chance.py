"""The mean score of random reports under a judge: near the truth, and the nearer by what is known of cheap metrics."""

import csv
import random
import sys

import numpy as np
import polars as pl
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.retrieval.plan import plan_scores
from metric_oracle.scores.baselines import drawn_rows
from metric_oracle.scores.controlled import controlled_means
from metric_oracle.scores.expectation import read_expectation
from metric_oracle.tables.systems import read_system


class Judge:
    """A judge whose score is a function of both texts; it counts the pairs that it read."""

    def __init__(self, score):
        self.score, self.asked = score, []

    def __call__(self, pairs):
        self.asked += pairs
        return [self.score(*pair) for pair in pairs]

    def named(self, **options):
        """Return the judge for the metrics of a call."""
        return mo.judge(self, **{"name": "words", "direction": "higher", **options})


def shared(reference, candidate):
    """Return the share of distinct words that two texts have in common, of all their words, as a judge's score."""
    one, other = set(reference.split()), set(candidate.split())
    return len(one & other) / max(len(one | other), 1)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return an index with texts that repeat, and test reports, of which two are equal."""
    rng = random.Random(0)
    words = ["no", "acute", "edema", "small", "left", "effusion", "clear", "lungs", "normal", "heart", "stable"]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(160)]
    corpus = [rng.choice(texts) for _ in range(400)]
    tests = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(39)]
    index = mo.build_index(corpus, tmp_path_factory.mktemp("judged") / "INDEX", metrics="rouge-l,bleu")
    return index, [*tests, tests[0]], corpus


def judged(world, judge, *metrics, **options):
    index, tests, _ = world
    return mo.expectation(index, tests, [*(metrics or ["rouge-l"]), judge.named()], **options)


def test_means_are_within_three_standard_errors_in_20_of_20_seeds(world):
    _, tests, corpus = world
    truth, shares = np.mean([shared(test, report) for test in tests for report in corpus]), []
    for seed in range(20):
        found = judged(world, Judge(shared), "rouge-l", "bleu", draws=6, seed=seed)
        sampled = found.signature["sampled"]
        assert abs(found.table["mean"].to_numpy().mean() - truth) <= 3 * sampled["standard_error"]
        assert abs(sampled["plain_mean"] - truth) <= 3.5 * sampled["plain_error"]
        shares.append(sampled["standard_error"] / sampled["plain_error"])
        assert set(sampled["slopes"]) == {"rouge-l", "bleu-2"}
    assert np.mean(shares) < 0.6  # that of the errors themselves is 0.58
    assert max(shares) < 0.7


def correlated(rng, scores):
    """Return scores of a judge that correlates at 0.9 with `scores`: with independent noise for each pair."""
    return scores + rng.normal(0, scores.std() * np.sqrt(1 / 0.9**2 - 1), scores.shape)


def test_a_control_of_correlation_090_halves_the_error_on_iu_xray(iu_xray, tmp_path):
    """The judge is ROUGE-L with noise, known for all pairs, and the control is ROUGE-L, whose exact means are known."""
    with (iu_xray / "indiana_reports.csv").open(encoding="utf-8", newline="") as file:
        texts = [row["impression"] for row in csv.DictReader(file) if row["impression"].strip()]
    random.Random(0).shuffle(texts)
    index = mo.build_index(mo.reports(texts[200:1200], tell=lambda line: None), tmp_path / "I", metrics="rouge-l")
    pairs = plan_scores(index, "rouge-l").pairs(mo.reports(texts[:200], tell=lambda line: None).load(index))
    distinct = np.array([row.copy() for row in pairs.scan(range(pairs.which.max() + 1))])
    metric = distinct[pairs.which][:, pairs.document_of_row]
    judge = correlated(np.random.default_rng(1), metric)
    assert np.corrcoef(judge.ravel(), metric.ravel())[0, 1] == pytest.approx(0.9, abs=0.005)
    distances, plain, inside = [], [], 0
    for seed in range(200):
        rows = drawn_rows(np.arange(1000), 200, seed, 4)
        scores, deviations = (np.take_along_axis(of, rows, 1) for of in (judge, metric - metric.mean(1)[:, None]))
        found = controlled_means(scores, deviations[None])
        distances.append((found.means.mean() - judge.mean()) / found.standard_error)
        plain.append((found.plain.mean() - judge.mean()) / found.standard_error)
        inside += seed < 20 and abs(distances[-1]) <= 3
    assert inside == 20
    assert 0.85 < np.std(distances) < 1.15  # the standard error is that of many samples
    assert np.std(distances) <= 0.5 * np.std(plain)


def test_each_mean_is_unbiased(world):
    _, tests, corpus = world
    truth = np.array([np.mean([shared(test, report) for report in corpus]) for test in tests])
    found = np.array([judged(world, Judge(shared), draws=4, seed=s).table["mean"].to_numpy() for s in range(30)])
    distance = (found - truth).mean(axis=0) / (found.std(axis=0) / 30**0.5)
    assert np.abs(distance).max() < 4.5
    assert found[:, 0].tolist() != found[:, -1].tolist()  # of equal test reports, drawn independently


def test_a_control_says_nothing_of_reports_that_it_cannot_score(tmp_path):
    """A third of the corpus has no labels: the metric's deviation from its mean is 0 for these reports."""
    rng = np.random.default_rng(5)
    ids = [f"c{i}" for i in range(60)], [f"q{i}" for i in range(20)]
    values = [rng.integers(0, 2, (len(of), 6)).astype(float) for of in ids]
    texts = [{name: " ".join(rng.choice(["no", "edema", "left", "clear"], 3)) for name in of} for of in ids]
    has_labels = rng.random(60) < 0.7

    def labelled(side, chosen):
        columns = {f"l{j}": values[side][chosen, j] for j in range(6)}
        return mo.reports(
            texts[side], labels=pl.DataFrame({"study_id": np.array(ids[side])[chosen].tolist()} | columns)
        )

    index = mo.build_index(labelled(0, has_labels), tmp_path / "I", metrics="labels:agreement")
    tests = labelled(1, np.ones(20, bool))
    found = mo.expectation(index, tests, ["labels:agreement", Judge(shared).named()], draws=5, seed=3)
    rows = drawn_rows(np.arange(60), 20, 3, 5)
    assert not has_labels[rows].all()
    agreement = (values[1][:, None] == values[0]).mean(axis=2)
    deviations = np.where(has_labels, agreement - agreement[:, has_labels].mean(axis=1, keepdims=True), 0)
    corpus = [*texts[0].values()]
    scores = np.array(
        [[shared(text, corpus[row]) for row in of] for text, of in zip(texts[1].values(), rows, strict=True)]
    )
    expected = controlled_means(scores, np.take_along_axis(deviations, rows, 1)[None])
    np.testing.assert_allclose(found.table["mean"].to_numpy(), expected.means, rtol=1e-12)
    assert found.signature["sampled"]["standard_error"] == pytest.approx(expected.standard_error)


def test_no_pair_is_judged_twice_and_draws_end_at_the_error(world):
    judge = Judge(shared)
    found = judged(world, judge, draws=200, error=0.004)
    sampled = found.signature["sampled"]
    assert sampled["standard_error"] <= 0.004
    assert 2 < sampled["rows"] < 200
    assert len(judge.asked) == len(set(judge.asked)) == sampled["pairs"]
    few = judged(world, Judge(shared), draws=3, error=1e-9).signature["sampled"]
    assert (few["rows"], few["standard_error"] > 1e-9) == (3, True)
    assert judged(world, Judge(shared), draws=2, error=1.0).signature["sampled"]["rows"] == 2


def test_a_sample_ends_with_enough_degrees_of_freedom(world):
    index, tests, _ = world
    few = mo.expectation(index, tests[:4], ["bleu", Judge(shared).named()], draws=200, error=1.0)
    assert few.signature["sampled"]["rows"] == 101  # 4 times 100


@pytest.mark.parametrize("metrics", [["bleu"], ["bleu", "rouge-l"]])
def test_a_sample_that_ends_early_covers_the_truth(tmp_path, metrics):
    """On a tiny corpus, where BLEU is mostly 0, the standard error at which a sample ends is that of many samples."""
    rng = random.Random(0)
    words = ["effusion", "edema,", "no", "new", "acute", "process", "mild", "small", "pneumonia", "left", "right"]
    corpus, tests = ([" ".join(rng.choices(words, k=rng.randint(1, 4))) for _ in range(n)] for n in (36, 8))
    index = mo.build_index(mo.reports(corpus, tell=lambda line: None), tmp_path / "I", metrics="rouge-l,bleu")
    truth = np.mean([shared(test, report) for test in tests for report in corpus])
    metrics = [*metrics, Judge(shared).named()]
    distances = []
    for seed in range(100):
        told = mo.reports(tests, tell=lambda line: None)
        found = mo.expectation(index, told, metrics, error=0.01, draws=400, seed=seed)
        error = found.signature["sampled"]["standard_error"]
        assert 0 < error <= 0.01
        distances.append(abs(found.table["mean"].to_numpy().mean() - truth) / error)
    assert np.mean(np.array(distances) > 2) <= 0.08  # 0.05 of a normal distribution
    assert np.mean(np.array(distances) > 3) <= 0.01


def test_equal_scores_do_not_end_a_sample(world):
    index, tests, _ = world
    found = mo.expectation(index, tests, ["bleu", Judge(lambda a, b: 0.3).named()], error=0.01, draws=30)
    assert (found.signature["sampled"]["rows"], found.signature["sampled"]["standard_error"]) == (30, 0)
    assert found.table["mean"].to_pylist() == pytest.approx([0.3] * len(tests), abs=1e-15)
    assert "standard error not known, as the random reports of each test report have equal scores" in found.sample


def test_judgements_of_the_pairs_are_told_and_kept(world, tmp_path):
    index, tests, _ = world
    lines, judge = [], Judge(shared)
    given = mo.reports(tests, tell=lines.append)
    kept = judge.named(keep=tmp_path / "kept", seconds_per_pair=3600.0)
    first = mo.expectation(index, given, ["bleu", kept], draws=2)
    n = len(judge.asked)
    assert f"words: {n} distinct pairs to judge; about {n / 24:.1f} days" in lines
    again = mo.expectation(index, given, ["bleu", kept], draws=2)
    assert (again.table, len(judge.asked)) == (first.table, n)
    with pytest.raises(InputError, match=r"most of the judge \w+ must be at least 79, the pairs to judge; got 5"):
        mo.expectation(index, tests, ["rouge-l", Judge(shared).named(most=5)], draws=2, seed=5)


def test_what_is_shown_written_and_compared(world, tmp_path):
    index, tests, _ = world
    found = judged(world, Judge(shared), "rouge-l", "bleu", draws=5)
    (table,) = found.tables()
    assert table.title == "words of a random report: from 5 for each test report"
    sampled = found.signature["sampled"]
    (note,) = table.notes
    assert f"standard error {sampled['standard_error']:.1g}" in note
    assert f"without the correction by the exact means of rouge-l, bleu-2 the mean would be {sampled['plain_mean']:.4f}" in note  # fmt: skip  # noqa: E501
    for ending in ("md", "csv", "parquet", "jsonl", "svg"):
        found.write(tmp_path / f"chance.{ending}")
    again = read_expectation(tmp_path / "chance.csv")
    assert again.table["mean"].to_pylist() == found.table["mean"].to_pylist()
    assert again.counts.sum() == 5 * len(tests)
    row = read_system("chance", tmp_path / "chance.parquet")
    assert row.signature["averaged"]["sampled"]["words"]["rows"] == 5
    (tmp_path / "other.csv").write_text("id,words\n" + "".join(f"{i},0.5\n" for i in range(len(tests))))
    ids = {str(i): text for i, text in enumerate(tests)}
    chance = mo.expectation(index, ids, ["bleu", Judge(shared).named()], draws=2)
    compared = mo.compare(
        {"model": mo.read_foreign("model", tmp_path / "other.csv", {"words": "higher"}), "chance": chance},
        random="chance",
        resamples=100,
    )
    assert compared.cells["model", "words"].mean == 0.5


def test_the_command_is_the_function(world, tmp_path, oracle, named):
    index, tests, _ = world
    (tmp_path / "judge.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    pair = json.loads(line)\n"
        "    one, other = (set(pair[side].split()) for side in ('reference', 'candidate'))\n"
        "    score = len(one & other) / max(len(one | other), 1)\n"
        "    print(json.dumps({'pair': pair['pair'], 'score': score}), flush=True)\n"
    )
    (tmp_path / "test.csv").write_text("id,report\n" + "".join(f"{i},{text}\n" for i, text in enumerate(tests)))
    named("words", kind="judges", command=f"{sys.executable} {tmp_path / 'judge.py'}", direction="higher")
    arguments = ["-m", "bleu,rouge-l,words", "--draws", "4", "--seed", "3", "--out", str(tmp_path / "chance.parquet")]
    code, _, err = oracle("baseline", "expectation", str(index.folder), str(tmp_path / "test.csv"), *arguments)
    assert code == 0, err
    found = read_expectation(tmp_path / "chance.parquet")
    wanted = judged(world, Judge(shared), "bleu", "rouge-l", draws=4, seed=3)
    assert found.table["mean"].to_pylist() == wanted.table["mean"].to_pylist()
    assert found.signature["sampled"] == wanted.signature["sampled"]


def test_the_scores_of_a_pool_say_what_chance_gives(world, tmp_path):
    """The random reports of a pool are those of the expectation, so that no further pair is judged."""
    index, tests, _ = world
    pairs = mo.pool(index, tests, pool="bleu:3,random:6", seed=4).table
    csv_rows = [f"{row['pair']},{shared(row['reference'], row['candidate'])}\n" for row in pairs.to_pylist()]
    (tmp_path / "scores.csv").write_text("pair,words\n" + "".join(csv_rows))
    of_files = mo.judge(files=tmp_path / "scores.csv", name="words", direction="higher")
    found = mo.expectation(index, tests, ["rouge-l", of_files], draws=6, seed=4)
    assert found.table == judged(world, Judge(shared), draws=6, seed=4).table
    match = r"files of the judge words must have a score for each pair; got none for \d+ of \d+"
    with pytest.raises(InputError, match=match):
        mo.expectation(index, tests, ["rouge-l", of_files], draws=7, seed=4)


def test_options_of_a_sample_need_a_judge(world):
    index, tests, _ = world
    for option in ({"draws": 3}, {"error": 0.1}, {"seed": 1}):
        (name,) = option
        with pytest.raises(InputError, match=rf"{name} must be left out without a judge"):
            mo.expectation(index, tests, "bleu", **option)
    with pytest.raises(InputError, match=r"metric must be a single one; got 2. Ask for one at a time"):
        mo.expectation(index, tests, ["bleu", "rouge-l"])
