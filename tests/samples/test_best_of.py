import itertools
import math
import random

import numpy as np
import pytest
from scipy.stats import false_discovery_control

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.samples.best_of import MEAN, points
from metric_oracle.statistics import bca, expected_best, resample_means, weights_of_best
from metric_oracle.synthetic.example import write_example

WORDS = ("no", "acute", "edema", "small", "left", "effusion", "clear", ".")


# The column of ids of the example's samples is called id.
pytestmark = pytest.mark.filterwarnings("ignore:ids. study_id of the references is joined with id of the samples")


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Return the folder of the example."""
    folder = tmp_path_factory.mktemp("best") / "try"
    write_example(folder)
    return folder


@pytest.mark.parametrize("size", range(1, 11))
def test_the_expected_best_is_the_mean_over_all_subsets(size):
    draw = random.Random(size)
    scores = [draw.choice((0.0, 0.25, 0.25, 1.0, draw.random())) for _ in range(size)]
    for n in range(1, size + 1):
        best = [max(subset) for subset in itertools.combinations(scores, n)]
        least = [min(subset) for subset in itertools.combinations(scores, n)]
        assert expected_best(np.array(scores), n) == pytest.approx(math.fsum(best) / len(best), abs=1e-14)
        found = expected_best(np.array(scores), n, -1.0)
        assert found == pytest.approx(math.fsum(least) / len(least), abs=1e-14)


@pytest.mark.parametrize(("size", "n"), [(16, 5), (300, 1), (300, 7), (300, 150), (300, 300), (999, 500)])
def test_weights_are_those_of_binomials(size, n):
    exact = [math.comb(i - 1, n - 1) / math.comb(size, n) for i in range(1, size + 1)]
    np.testing.assert_allclose(weights_of_best(size, n), exact, rtol=1e-12, atol=0)
    assert math.fsum(weights_of_best(size, n)) == pytest.approx(1, abs=1e-12)


def test_points_of_the_curve():
    assert [points(size) for size in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def groups_of(seed, n=9):
    """Return references and ragged groups, full of ties, empty and repeated samples."""
    draw = random.Random(seed)

    def text():
        return " ".join(draw.choices(WORDS, k=draw.randint(0, 6)))

    references = {f"s{i}": f"edema {text()}" for i in range(n)}
    rows = []
    for study, reference in references.items():
        group = [draw.choice((reference, text(), "")) for _ in range(draw.choice((1, 2, 3, 5)))]
        rows.append(
            {
                "id": study,
                "candidates": group,
                "logprobs": [draw.choice((-1.0, -2.0)) for _ in group],
                "judge": [draw.choice((0, 1)) for _ in group],
            }
        )
    draw.shuffle(rows)
    return references, rows


@pytest.mark.parametrize("seed", range(2))
def test_numbers_equal_plain_code(seed):
    references, rows = groups_of(seed)
    found = mo.best_of(rows, references, "rouge-l,bleu", column="judge")
    of_study = {row["id"]: row for row in rows}
    assert found.samples.ids == list(references)
    chosen = mo.consensus(rows, "rouge-l,bleu")
    place_of = {study: place for place, study in enumerate(chosen.samples.ids)}
    for metric in ("rouge-l", "bleu-2"):
        scores = {
            study: [mo.score([reference], [text], metric).values(metric)[0] for text in of_study[study]["candidates"]]
            for study, reference in references.items()
        }
        assert [of.tolist() for of in found.scores[metric]] == [*scores.values()]
        curve = [row for row in found.curve.to_pylist() if row["metric"] == metric]
        for row in curve:
            means = []
            for of in scores.values():
                if len(of) >= row["n"]:
                    subsets = [max(subset) for subset in itertools.combinations(of, row["n"])]
                    means.append(math.fsum(subsets) / len(subsets))
            assert row["studies"] == len(means)
            assert row["mean"] == pytest.approx(math.fsum(means) / len(means), abs=1e-13)
            low, high, _ = mo.interval(means) if max(means) > min(means) else (means[0], means[0], True)
            assert (row["low"], row["high"]) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))

        def first(values):
            return list(values).index(max(values))

        expected = {
            MEAN: [np.mean(of) for of in scores.values()],
            "first sample": [of[0] for of in scores.values()],
            "highest log-probability": [of[first(of_study[s]["logprobs"])] for s, of in scores.items()],
            "longest": [of[first([len(t.split()) for t in of_study[s]["candidates"]])] for s, of in scores.items()],
            "consensus under rouge-l": [of[chosen.chosen["rouge-l"][place_of[s]]] for s, of in scores.items()],
            "consensus under bleu-2": [of[chosen.chosen["bleu-2"][place_of[s]]] for s, of in scores.items()],
            "highest judge": [of[first(of_study[s]["judge"])] for s, of in scores.items()],
            "best of all samples": [max(of) for of in scores.values()],
        }
        selectors = [row for row in found.selectors.to_pylist() if row["metric"] == metric]
        assert [row["selector"] for row in selectors] == list(expected)
        mean, best = np.mean(expected[MEAN]), np.mean(expected["best of all samples"])
        for row in selectors:
            own = np.mean(expected[row["selector"]])
            assert row["mean"] == pytest.approx(own, abs=1e-13)
            assert row["share"] == pytest.approx((own - mean) / (best - mean), abs=1e-12)
            assert row["difference"] == (None if row["selector"] == MEAN else pytest.approx(own - mean, abs=1e-13))
            assert (row["p_value"] is None) == (row["selector"] in (MEAN, "best of all samples"))
            assert row["p_value"] is None or row["p_adjusted"] >= row["p_value"]
    tested = [row for row in found.selectors.to_pylist() if row["p_value"] is not None]  # one family, of both metrics
    expected = false_discovery_control([row["p_value"] for row in tested])
    assert len({row["metric"] for row in tested}) == 2
    assert [row["p_adjusted"] for row in tested] == pytest.approx(expected.tolist())


def test_lower_is_better():
    samples = {study: [f"x {study}", f"y {study}", f"z {study}"] for study in ("a", "b", "c")}
    rng = np.random.default_rng(0)
    vectors = {f"{study}/{place}": rng.normal(size=(2, 4)) for study in samples for place in range(3)}
    of_truth = {study: rng.normal(size=(1, 4)) for study in samples}
    truth = mo.reports(dict.fromkeys(samples, "t"), sentences=of_truth)
    found = mo.best_of(mo.reports(samples, sentences=vectors), truth, "sentences")
    curve = found.curve["mean"].to_pylist()
    assert curve == sorted(curve, reverse=True)
    assert curve[-1] == pytest.approx(np.mean([of.min() for of in found.scores["sentences"]]))
    rows = {row["selector"]: row for row in found.selectors.to_pylist()}
    assert (rows[MEAN]["share"], rows["best of all samples"]["share"]) == (0, 1)
    chosen = mo.consensus(mo.reports(samples, sentences=vectors), "sentences").chosen["sentences"]
    of_chosen = [of[place] for of, place in zip(found.scores["sentences"], chosen, strict=True)]
    assert rows["consensus under sentences"]["mean"] == pytest.approx(np.mean(of_chosen))


def test_no_share_where_there_is_no_headroom():
    found = mo.best_of({"a": ["x", "x"], "b": ["y"]}, {"a": "x", "b": "z"}, "rouge-l")
    assert found.selectors["share"].null_count == found.selectors.num_rows
    assert found.curve.to_pylist()[0]["studies"] == 2
    assert found.curve["n"].to_pylist() == [1]  # one study alone has two samples: no interval


@pytest.mark.parametrize("metric", ["bleu", "rouge-l", "meteor:nltk-stems", "jaccard:3"])
@pytest.mark.parametrize("n", [3, 7])
def test_samples_of_greedy_decoding_differ_by_nothing(metric, n):
    """All samples of a study are equal: their mean is the score of each but for rounding."""
    if metric.startswith("meteor"):
        pytest.importorskip("nltk")
    draw = random.Random(1)
    references = {f"s{i}": " ".join(draw.choices(WORDS, k=7)) for i in range(12)}
    samples = {study: [" ".join(draw.choices(WORDS, k=6))] * n for study in references}
    found = mo.best_of(samples, references, metric)
    for row in found.selectors.to_pylist()[1:]:
        assert (row["difference"], row["difference_low"], row["difference_high"]) == (0, 0, 0), row
        assert row["p_value"] in (1, None)
        assert row["p_adjusted"] in (1, None)
        assert row["share"] is row["share_low"] is row["share_high"] is None
    one = mo.score(references, {study: texts[0] for study, texts in samples.items()}, metric)
    rows = {"mean": found.to_scores(1), "best": found.to_scores(), "one": one}
    for (difference,) in (
        mo.compare(rows, paired=[pair], resamples=500).differences for pair in itertools.permutations(rows, 2)
    ):
        assert (difference.difference, difference.interval, difference.p_value) == (0, (0, 0, True), 1)
        assert difference.overlap


def test_intervals_cover_the_truth():
    """In 93 to 97 % of 400 simulated test sets the interval of the expected best of 4 of 8 holds the true value."""
    rng = np.random.default_rng(7)
    # A study's scores are uniform on [0, u], u uniform on [0, 1]: the best of 4 is expected at 0.5 * 4 / 5.
    held, n_sets = 0, 400
    for place in range(n_sets):
        scores = rng.uniform(size=(80, 1)) * rng.uniform(size=(80, 8))
        values = np.array([expected_best(of, 4) for of in scores])
        means = resample_means(values[None], 1000, place)
        low, high = bca(float(means.value[0]), means.resampled[:, 0], means.left_out[:, 0], np.array([0.025, 0.975]))
        held += low <= 0.4 <= high
    assert 0.93 <= held / n_sets <= 0.97


def test_sources_of_both_sides_through_python_and_the_command_line(oracle, example, tmp_path, monkeypatch):
    monkeypatch.chdir(example)
    found = mo.best_of(
        mo.reports("samples.jsonl", radgraph="samples_graphs.json"),
        mo.reports("test.csv", radgraph="test_graphs.json"),
        "radgraph,rouge-l",
    )
    words = ["best-of", "samples", "test", "-m", "radgraph,rouge-l"]
    code, out, err = oracle(*words, "--format", "csv")
    assert code == 0, err
    assert out.splitlines()[0].startswith('"metric","n","selector","level","studies","mean"')
    for ending in ("md", "tex", "csv", "parquet"):
        code, _, err = oracle(*words, "--out", str(tmp_path / f"best.{ending}"), "--plot", str(tmp_path / "curve.png"))
        assert code == 0, err
        assert (tmp_path / f"best.{ending}").stat().st_size > 100
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert "best of all samples" in (tmp_path / "best.md").read_text()
    code, out, err = oracle(*words, "--format", "table")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert found.curve["n"].to_pylist() == [1, 2, 4, 8] * 2


@pytest.fixture(scope="module")
def measured(example):
    """Return the best of the example's samples, and sources of both sides."""
    samples = mo.reports(example / "samples.jsonl", radgraph=example / "samples_graphs.json")
    truth = mo.reports(example / "test.csv", radgraph=example / "test_graphs.json")
    return mo.best_of(samples, truth, "radgraph,rouge-l,bleu"), truth


def test_the_best_of_n_is_a_row_of_a_table(measured, example, tmp_path):
    best, truth = measured
    model = mo.score(truth, mo.reports(example / "weak.csv", radgraph=example / "weak_graphs.json"), "bleu,radgraph")
    best.to_scores().write(tmp_path / "best.parquet")
    rows = {"model": model, "best": tmp_path / "best.parquet", "mean": best.to_scores(1)}
    table = mo.compare(rows, resamples=200)
    assert [column.metric for column in table.columns] == ["bleu-2", "radgraph"]
    curve = {(row["metric"], row["n"]): row["mean"] for row in best.curve.to_pylist()}
    for metric in ("bleu-2", "radgraph"):
        cells = [table.cells[name, metric] for name in rows]
        assert cells[1].mean == pytest.approx(curve[metric, 8], abs=1e-13)
        assert cells[2].mean == pytest.approx(curve[metric, 1], abs=1e-13)
        assert [cell.best for cell in cells] == [True, False, False]  # a ceiling does not compete
    assert mo.read_scores(tmp_path / "best.parquet").signature["system"] == "best of 8"
    # Each study has the greatest of its scores.
    expected = [of.max() for of in best.scores["radgraph"]]
    assert best.to_scores().table["radgraph"].to_pylist() == pytest.approx(expected, abs=1e-14)
    assert best.to_scores().table["query_id"].to_pylist() == best.samples.ids


def test_the_signature_of_a_row_is_that_of_scores(measured, example, fake_encoder):
    best, truth = measured
    model = mo.score(truth, mo.reports(example / "weak.csv", radgraph=example / "weak_graphs.json"), "bleu,radgraph")
    for metric, entry in model.signature["metrics"].items():
        assert best.signature["metrics"][metric] == entry
    samples = {"a": ["no edema", "", "edema"], "b": ["", "clear lungs"], "c": ["clear"]}
    texts = {"a": "no edema seen", "b": "clear", "c": "effusion"}
    of_labels = {"chexbert_labels": {study: [0] * 12 + [-1, 1] for study in texts}, "uncertain": "positive"}
    labels = {f"{study}/{place}": [1] * 14 for study, group in samples.items() for place in range(len(group))}
    references = mo.reports(texts, encoder="ENCODER", layer=1, **of_labels)
    names = "bertscore,chexbert:labels"
    # Equal texts share the labels of the first.
    own = mo.best_of(mo.reports(samples, chexbert_labels=labels, uncertain="positive"), references, names)
    predictions = mo.reports(dict.fromkeys(texts, "edema"), chexbert_labels=dict.fromkeys(texts, [1] * 14))
    scores = mo.score(references, predictions, names)
    assert own.signature["metrics"] == scores.signature["metrics"]
    assert own.signature["metrics"]["bertscore"]["representation"]["bertscore"]["encoder"]
    mo.compare({"model": scores, "mean": own.to_scores(1)}, resamples=200)


def test_studies_with_fewer_samples_cannot_be_scored():
    best = mo.best_of({"a": ["x", "y"], "b": ["y"], "c": ["x", "z", "x"]}, {"a": "x", "b": "y", "c": "x"}, "rouge-l")
    assert best.to_scores().table["rouge-l"].to_pylist() == [None, None, 1.0]
    assert best.to_scores(2).table["rouge-l"].to_pylist() == [1.0, None, 1.0]
    for n in (0, 4, 1.0, True):
        with pytest.raises(InputError, match=rf"n must be an int (from 1 to 3|or None); got {n}\. "):
            best.to_scores(n)


def test_results_are_levels_of_the_curve(oracle, measured, example, tmp_path, monkeypatch):
    best, _ = measured
    monkeypatch.chdir(example)
    index = mo.build_index("train.csv", tmp_path / "INDEX", metrics="rouge-l")
    top, chance = mo.retrieve(index, "test.csv", "rouge-l"), mo.expectation(index, "test.csv", "rouge-l")
    top.write(tmp_path / "top.parquet")
    model = mo.score("test.csv", "weak.csv", "rouge-l,bleu")
    found = mo.best_of("samples.jsonl", "test.csv", "rouge-l,bleu", results=[tmp_path / "top.parquet", chance, model])
    means = {(row["metric"], row["level"]): row["mean"] for row in found.levels.to_pylist()}
    first = top.table["rank"].to_numpy() == 1
    assert means == {
        ("rouge-l", "corpus oracle"): pytest.approx(top.table["score"].to_numpy()[first].mean(), abs=1e-13),
        ("rouge-l", "chance"): pytest.approx(chance.table["mean"].to_numpy().mean(), abs=1e-13),
        ("rouge-l", "weak"): pytest.approx(model.mean()["rouge-l"], abs=1e-13),
        ("bleu-2", "weak"): pytest.approx(model.mean()["bleu-2"], abs=1e-13),
    }
    figure = found.figure()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["corpus oracle", "chance", "weak"]
    assert not any(axes.texts for axes in figure.axes)  # names beside lines would lie on the curve
    styles = {(line.get_color(), line.get_linestyle()) for axes in figure.axes for line in axes.lines[-1:]}
    assert len(styles) == 1  # that of "weak" under both metrics
    figure.draw_without_rendering()
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert best.levels.num_rows == 0
    assert found.table["level"].drop_null().to_pylist() == [level for _, level in means]
    words = ["best-of", "samples.jsonl", "test.csv", "-m", "rouge-l", "--results", str(tmp_path / "top.parquet")]
    scores = tmp_path / "best.csv"
    code, out, err = oracle(*words, "--scores", str(scores), "--plot", str(tmp_path / "c.svg"), "--format", "md")
    assert code == 0, err
    assert "corpus oracle" in out
    assert "corpus oracle" in (tmp_path / "c.svg").read_text()
    assert mo.read_scores(scores).table.num_rows == 24
    code, _, err = oracle("table", f"best={scores}", f"oracle={tmp_path / 'top.parquet'}")
    assert code == 0, err
    code, _, err = oracle(*words, "--scores", "best.txt")
    assert code == 2
    assert "scores must end with" in err


@pytest.mark.parametrize(
    ("results", "match"),
    [
        (lambda truth: [mo.score(truth, truth, "bleu")], r"the systems have no metric in common"),
        (lambda truth: [mo.score(truth, truth, "rouge-l")] * 2,
         r"results must have each row once under each metric; got 'predictions' twice under rouge-l\. Leave one"),
        (lambda truth: [mo.score({**truth, "b": "z"}, truth, "rouge-l")],
         r"'samples' and 'predictions' are .* against different"),
        (lambda truth: ["none.parquet"], r".*none\.parquet"),
    ],
)  # fmt: skip
def test_other_results_are_refused(results, match):
    truth = {"a": "x", "b": "y"}
    with pytest.raises(InputError, match=rf"^(best_of|read_scores|read_results): {match}"):
        mo.best_of({"a": ["x", "y"], "b": ["y"]}, truth, "rouge-l", results=results(truth))


def test_the_best_of_n_is_a_row_of_a_study(oracle, example, tmp_path, monkeypatch):
    monkeypatch.chdir(example)
    mo.build_index("train.csv", tmp_path / "INDEX", metrics="rouge-l")
    best = mo.best_of("samples.jsonl", "test.csv", "rouge-l,bleu")
    best.to_scores().write(tmp_path / "best.parquet")
    words = ["study", str(tmp_path / "INDEX"), "test.csv", "weak.csv", "-m", "rouge-l"]
    words += ["--out", str(tmp_path / "study")]
    code, _, err = oracle(*words, "--scores", f"best of 8={tmp_path / 'best.parquet'}")
    assert code == 0, err
    lines = (tmp_path / "study" / "table.csv").read_text().splitlines()
    row = next(line for line in lines if line.startswith('"best of 8",'))
    assert f"{best.curve['mean'].to_pylist()[3]:.10f}"[:10] in row
    assert not any(line.startswith('"weak","best of 8"') for line in lines)  # no test against a ceiling
    with pytest.raises(InputError, match=r"^study: the scores of 'x' lack rouge-l, which the study has\. Score these"):
        mo.study(tmp_path / "INDEX", "test.csv", scores={"x": mo.score("test.csv", "weak.csv", "bleu")})
    own = mo.score({"1": "a"}, {"1": "a"}, "rouge-l")
    with pytest.raises(InputError, match=r"^study: the scores of 'x' are of other test reports than the study's\. Sc"):
        mo.study(tmp_path / "INDEX", "test.csv", metrics="rouge-l", scores={"x": own})
    with pytest.raises(InputError, match=r"^study: models must have names that give different file names; got 'x'"):
        mo.study(tmp_path / "INDEX", "test.csv", {"x": "weak.csv"}, metrics="rouge-l", scores={"x": best.to_scores()})


@pytest.mark.parametrize(
    ("candidates", "references", "options", "match"),
    [
        ({"a": ["x"]}, {"a": "x"}, {}, r"1 studies have samples and a reference\. One study has no interval; pass"),
        ({"a": ["x"], "b": ["y"], "c": ["z"]}, {"a": "x", "b": "y"}, {}, r"2 references and 3 predictions|.*without"),
        (
            {"a": ["x"], "b": ["y"]},
            {"a": "x", "b": "y"},
            {"metrics": "radgraph"},
            r"graphs of the reports must be given",
        ),
        ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "y"}, {"metrics": "cider-d"}, r"metrics must be such that"),
        ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": "y"}, {"column": "judge"}, r".*has no column 'judge'"),
    ],
)
def test_misuse_is_one_line(candidates, references, options, match):
    with pytest.raises(InputError, match=rf"^(best_of|read_samples): {match}"):
        mo.best_of(candidates, references, **{"metrics": "rouge-l", **options})


def test_studies_without_a_reference_are_left_out_where_asked_for():
    with pytest.warns(UserWarning, match="^left out: 1 without a prediction, 1 without a reference$"):
        found = mo.best_of({"a": ["x"], "b": ["y"], "c": ["z"]}, {"b": "y", "a": "x", "d": "w"}, "rouge-l", inner=True)
    assert found.samples.ids == ["b", "a"]
    assert found.signature["left_out"] == {"without a prediction": 1, "without a reference": 1}
