import json
import math
import random
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.scores.groups import expected_scores
from metric_oracle.synthetic.example import write_example

WORDS = ("no", "acute", "edema", "small", "left", "effusion", "clear", ".")


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Return the folder of the example."""
    folder = tmp_path_factory.mktemp("samples") / "try"
    write_example(folder)
    return folder


def groups_of(seed, n=12):
    """Return ragged groups full of ties: repeated, empty and single samples, with log-probabilities."""
    draw = random.Random(seed)
    found, logprobs = {}, {}
    for study in range(n):
        size = draw.choice((1, 2, 2, 3, 4, 7))
        pool = [" ".join(draw.choices(WORDS, k=draw.randint(0, 6))) for _ in range(max(1, size - 1))]
        found[f"s{study}"] = [draw.choice(pool) for _ in range(size)]
        logprobs[f"s{study}"] = [draw.choice((-0.5, -2.0, -40.0, -900.0)) for _ in range(size)]
    return found, logprobs


def plain_choice(matrix, logprobs=None, *, lower=False):
    """Return the chosen place, and the expected scores by exact arithmetic on floats."""
    n = len(matrix)
    found = []
    for i in range(n if n > 1 else 0):
        others = [j for j in range(n) if j != i]
        top = max(logprobs[j] for j in others) if logprobs else 0
        weights = [math.exp(logprobs[j] - top) if logprobs else 1.0 for j in others]
        products = [Fraction(w * matrix[i][j]) for w, j in zip(weights, others, strict=True)]
        found.append(float(sum(products)) / float(sum(map(Fraction, weights))))
    signed = [-value if lower else value for value in found]
    ties = [abs(value - max(signed)) <= 1e-12 * abs(max(signed)) for value in signed]
    return ties.index(True) if found else 0, found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighted", [False, True])
def test_choices_equal_plain_code(seed, weighted):
    groups, logprobs = groups_of(seed)
    rows = [{"id": study, "candidates": group, "logprobs": logprobs[study]} for study, group in groups.items()]
    found = mo.consensus(rows, "rouge-l,bleu", weighted=weighted)
    assert list(found.chosen) == ["rouge-l", "bleu-2"]
    for metric, places in found.chosen.items():
        for (study, group), place, matrix, utilities in zip(
            groups.items(), places, found.matrices[metric], found.utilities[metric], strict=True
        ):
            scores = mo.pairwise(group, metric)
            np.testing.assert_array_equal(matrix, scores)
            expected, values = plain_choice(scores.tolist(), logprobs[study] if weighted else None)
            assert place == expected
            assert utilities.tolist() == values or len(group) == 1
            assert len(utilities) == len(group)
            # Equal texts have equal expected scores; with weights, those of equal weights have.
            of_text = {}
            for i, text in enumerate(group):
                of_text.setdefault((text, logprobs[study][i] if weighted else 0), set()).add(utilities[i])
            assert len(group) == 1 or all(len(values) == 1 for values in of_text.values())


@pytest.mark.parametrize(
    ("group", "chosen"),
    [  # their expected scores are equal: 22/45, 5/12 and 209/462, and differ in the last bit of float64
        (["b c b", "b b d c b b b", "b c a", "c a d d a d c"], 0),
        (["b b a", "c b b c c", "d d a", "c b d", "c b a a a b c"], 1),
        (["c d c a d d", "b a c a d", "a b a d c", "d a", "b b", "a a a b d c"], 1),
    ],
)
def test_of_equal_expected_scores_the_first_sample_wins(group, chosen):
    found = mo.consensus({"s1": group}, "rouge-l")
    best = found.utilities["rouge-l"][0]
    assert np.argmax(best) > chosen  # by rounding
    assert best.max() == pytest.approx(best[chosen], rel=1e-15)
    assert found.chosen["rouge-l"] == [chosen]
    of_best = mo.best_of({"s1": group, "s2": ["a"]}, {"s1": group[chosen], "s2": "a"}, "rouge-l")
    (row,) = [row for row in of_best.selectors.to_pylist() if row["selector"] == "consensus under rouge-l"]
    assert row["mean"] == 1


@pytest.mark.parametrize("name", ["{}", "s{}", "run-{}"])
def test_numbers_do_not_depend_on_the_order_of_rows(name, tmp_path):
    groups, logprobs = groups_of(5, 20)
    rows = [
        {"study_id": study, "sample": name.format(i), "report": text, "logprob": logprobs[study][i], "judge": i % 3}
        for study, group in groups.items()
        for i, text in enumerate([*group, *group])  # more than 10 samples, of which 10 follows 9
        if i < len(logprobs[study])
    ]
    rows += [{"study_id": "long", "sample": name.format(i), "report": f"{i % 4} edema", "logprob": -i % 5, "judge": 0}
             for i in range(12)]  # fmt: skip
    references = dict.fromkeys((*groups, "long"), "no acute edema")

    def numbers(rows, ending):
        path = tmp_path / f"samples.{ending}"
        frame = pl.DataFrame(rows, schema_overrides={"sample": pl.String})
        getattr(frame, f"write_{ending}")(path)
        best = mo.best_of(path, references, "rouge-l,bleu", column="judge")
        chosen = mo.consensus(path, "rouge-l,bleu", weighted=True)
        return (
            best.table,
            best.samples.names,
            {of["study_id"] + of["metric"]: of for of in chosen.table.to_pylist()},
        )

    expected = numbers(rows, "csv")
    assert expected[1][-1] == [name.format(i) for i in range(12)]
    for seed, ending in ((0, "csv"), (1, "parquet"), (2, "csv")):
        again = random.Random(seed).sample(rows, len(rows))
        assert numbers(rows[::-1] if seed == 0 else again, ending) == expected


def test_expected_scores():
    matrix = np.array([[9.0, 0.5, 0.25], [0.5, 9.0, 1.0], [0.0, 0.5, 9.0]])
    assert expected_scores(matrix).tolist() == [0.375, 0.75, 0.25]  # the diagonal is left out
    assert expected_scores(matrix, [math.log(0.5), math.log(0.25), math.log(0.25)]) == pytest.approx(
        [0.375, (0.5 * 0.5 + 0.25) / 0.75, 0.5 * 0.25 / 0.75]
    )
    # The probability of the sample itself does not count, however large; nor does a common factor.
    assert expected_scores(matrix, [0.0, -5000.0, -5000.0])[0] == 0.375
    assert np.isnan(expected_scores(np.ones((1, 1)))).all()


def test_lower_is_better_metrics_choose_the_least():
    samples = {"a": ["x", "y", "z"]}
    vectors = {"a/0": [[1.0, 0.0]], "a/1": [[0.8, 0.6]], "a/2": [[0.6, 0.8]]}
    given = mo.reports(samples, sentences=vectors)
    found = mo.consensus(given, "sentences")
    assert found.chosen["sentences"] == [1]
    assert plain_choice(found.matrices["sentences"][0].tolist(), lower=True)[0] == 1


def test_the_first_of_ties_and_the_only_sample_are_chosen():
    found = mo.consensus({"a": ["clear", "edema"], "b": ["edema"], "c": ["", "", ""], "d": ["", "x", "x"]}, "rouge-l")
    assert found.chosen == {"rouge-l": [0, 0, 0, 1]}
    assert found.table_of("rouge-l")["utility"].to_pylist() == [0.0, None, 0.0, 0.5]
    assert repr(found) == "<Consensus: 4 studies, 9 samples: rouge-l>"


def test_sources_by_id_by_text_and_by_function(example):
    rows = [json.loads(line) for line in (example / "samples.jsonl").read_text().splitlines()]
    graphs = json.loads((example / "samples_graphs.json").read_text())
    of_text = {}
    for row in rows:
        for place, text in enumerate(row["candidates"]):
            if text:  # a failure has no graph
                of_text.setdefault(text, graphs[f"{row['id']}/{place}"])
    assert any("" in row["candidates"] for row in rows)
    by_text = {str(place): {**graph, "text": text} for place, (text, graph) in enumerate(of_text.items())}
    calls = []

    def annotate(texts):
        calls.append(texts)
        return {str(place): of_text[text] for place, text in enumerate(texts) if text}

    found = [
        mo.consensus(mo.reports(example / "samples.jsonl", radgraph=given), "radgraph")
        for given in (example / "samples_graphs.json", by_text, annotate)
    ]
    assert found[0].chosen == found[1].chosen == found[2].chosen
    assert [sorted(texts) for texts in calls] == [["", *sorted(of_text)]]  # once for each distinct text
    study, group = rows[0]["id"], rows[0]["candidates"]
    assert "" not in group
    own = mo.reports(group, radgraph={str(i): graphs[f"{study}/{i}"] for i in range(len(group))})
    np.testing.assert_array_equal(found[0].matrices["radgraph"][0], mo.pairwise(own, "radgraph"))


def test_the_chosen_file_is_a_file_of_predictions(oracle, example, tmp_path, monkeypatch):
    monkeypatch.chdir(example)
    out = tmp_path / "chosen.csv"
    words = ["consensus", "samples", "-m", "rouge-l,radgraph"]
    code, _, err = oracle(
        *words, "--out", str(out), "--utilities", str(tmp_path / "u.jsonl"), "--matrix", str(tmp_path / "m.csv")
    )
    assert code == 0, err
    assert not out.exists()
    expected = mo.consensus(mo.reports("samples.jsonl", radgraph="samples_graphs.json"), "rouge-l,radgraph")
    for metric in ("rouge-l", "radgraph"):
        written = mo.read_predictions(tmp_path / f"chosen-{metric}.csv")
        assert dict(zip(written.ids, written.texts, strict=True)) == expected.predictions(metric)
        code, _, err = oracle(
            "score", "test.csv", str(tmp_path / f"chosen-{metric}.csv"), "-m", "bleu,rouge-l",
            "--out", str(tmp_path / f"{metric}.parquet"),
        )  # fmt: skip
        assert code == 0, err
    code, _, err = oracle("table", *(f"{metric}={tmp_path / metric}.parquet" for metric in ("rouge-l", "radgraph")))
    assert code == 0, err
    utilities = [json.loads(line) for line in (tmp_path / "u.jsonl").read_text().splitlines()]
    assert len(utilities) == 2 * sum(expected.samples.sizes)
    assert sum(row["chosen"] for row in utilities) == 2 * len(expected.samples.ids)
    n_pairs = 2 * sum(size**2 for size in expected.samples.sizes)
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 1 + n_pairs
    assert expected.pair_table().num_rows == n_pairs


def test_one_metric_has_the_file_that_was_named(oracle, example, tmp_path, monkeypatch):
    monkeypatch.chdir(example)
    code, out_text, err = oracle(
        "consensus", "samples.jsonl", "-m", "bleu", "--weighted", "--out", str(tmp_path / "chosen.jsonl")
    )
    assert code == 0, err
    expected = mo.consensus("samples.jsonl", "bleu", weighted=True)
    written = mo.read_predictions(tmp_path / "chosen.jsonl")
    assert dict(zip(written.ids, written.texts, strict=True)) == expected.predictions("bleu")
    assert expected.signature["weights"] == "exp(logprob)"
    signature = json.loads((tmp_path / "chosen.jsonl.signature.json").read_text())
    assert signature["samples"] == expected.signature["samples"]
    code, out_text, err = oracle("consensus", "samples.jsonl", "-m", "bleu", "--weighted", "--format", "jsonl")
    assert [json.loads(line)["report"] for line in out_text.splitlines()] == [*expected.predictions("bleu").values()]


def test_files_are_named_by_the_metrics_and_named_as_inputs_are_not_replaced(oracle, example, tmp_path, monkeypatch):
    monkeypatch.chdir(example)
    given = ["consensus", "samples.jsonl", "-m", "bleu,rouge-l", "--quiet"]
    code, _, err = oracle(*given[:-1], "--out", str(tmp_path / "chosen.csv"))
    assert (code, err) == (0, f"{tmp_path}/chosen-bleu-2.csv: 24 reports, also {tmp_path}/chosen-rouge-l.csv\n")
    assert {path.name for path in tmp_path.glob("*.csv")} == {"chosen-bleu-2.csv", "chosen-rouge-l.csv"}
    samples = tmp_path / "again-bleu-2.jsonl"
    samples.write_bytes((example / "samples.jsonl").read_bytes())
    given[1] = str(samples)
    code, _, err = oracle(*given, "--out", str(tmp_path / "again.jsonl"))
    assert (code, "must be another file than the inputs" in err) == (2, True)
    assert samples.read_bytes() == (example / "samples.jsonl").read_bytes()


def test_bertscore_reads_an_encoder(fake_encoder):
    samples = {"a": ["no edema", "edema", "no edema seen"], "b": ["clear", "clear lungs"]}
    given = mo.reports(samples, encoder="ENCODER", layer=1)
    found = mo.consensus(given, "bertscore")
    own = mo.reports(samples["a"], encoder="ENCODER", layer=1)
    np.testing.assert_array_equal(found.matrices["bertscore"][0], mo.pairwise(own, "bertscore"))
    scored = mo.score(own, mo.reports(samples["a"], encoder="ENCODER", layer=1), "bertscore")
    of_scores = scored.signature["metrics"]["bertscore"]["representation"]["bertscore"]["encoder"]
    assert found.signature["metrics"]["bertscore"]["representation"] == {"bertscore": {"encoder": of_scores}}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"metrics": "cider-d"}, r"metrics must be such that the score of a pair depends on this pair alone; got 'ci"),
        ({"metrics": []}, r"metrics must be at least one; got none\. Name one\."),
        ({"metrics": "nothing"}, r"metric must be one of those"),
        ({"metrics": "crepe"}, r"metric must be one with an exact search; got 'crepe'"),
        ({"metrics": "radgraph"}, r"graphs of the reports must be given for metric 'radgraph'; got none"),
        ({"metrics": "cider-d:corpus"}, r"index must be given for metric 'cider-d:corpus'"),
        ({"metrics": "bleu", "weighted": True},
         r"weighted must be left out for samples without log-probabilities; got True\. Add the column logprobs"),
        ({"metrics": "bleu", "options": mo.SearchOptions(k=3)}, r"k must be left out for samples"),
        ({"metrics": "bertscore", "options": mo.SearchOptions(idf="tests")},
         r"idf must be off, corpus or a table of weights for samples; got 'tests'\. Use one of these: with tests"),
    ],
)  # fmt: skip
def test_misuse_is_one_line(options, match):
    with pytest.raises(InputError, match=rf"^consensus: {match}"):
        mo.consensus({"a": ["x", "y"]}, **options)


def test_other_errors():
    with pytest.raises(InputError, match=r"^consensus: split must be left out for samples"):
        mo.consensus(mo.reports({"a": ["x"]}, mo.Read(split="test")), "bleu")
    with pytest.raises(
        InputError, match=r"^consensus: row 1 of the dict in memory has no list of candidates for id 'a'\. "
    ):
        mo.consensus({"a": []}, "bleu")
    found = mo.consensus({"a": ["x", "y"]}, "bleu")
    with pytest.raises(InputError, match=r"metric must be one of bleu-2; got 'rouge-l'\. Choose one\."):
        found.predictions("rouge-l")


def test_words_for_missing_reports_are_told():
    with pytest.warns(UserWarning, match="1 words for a missing report count as empty reports"):
        found = mo.consensus({"a": ["nan", "x"]}, "bleu")
    assert found.predictions("bleu") == {"a": ""}
