"""A study with a judge: each cell equals the plain computation, and no pair is judged twice."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.retrieval.search import Search
from metric_oracle.scores.baselines import drawn_rows
from metric_oracle.tables.judged_study import default_pool
from metric_oracle.tables.systems import IDENTITY, MOST_FREQUENT, RANDOM, is_yardstick

WORDS = ("no", "acute", "small", "effusion", "edema", "left", "stable", "heart")
RNG = np.random.default_rng(11)
CORPUS = {str(i): " ".join(RNG.choice(WORDS, RNG.integers(2, 6))) for i in range(60)} | {"60": "no acute edema"}
TESTS = {f"t{i}": " ".join(RNG.choice(WORDS, RNG.integers(2, 6))) for i in range(11)}
TESTS["t10"] = TESTS["t0"]  # equal texts
MODELS = {
    "good": {study: f"{text} stable" for study, text in TESTS.items()},
    "poor": dict.fromkeys(TESTS, "heart"),
}
SCRIPT = """
import json, sys
for line in sys.stdin:
    pair = json.loads(line)
    a, b = {*pair["reference"].split()}, {*pair["candidate"].split()}
    print(json.dumps({"pair": pair["pair"], "score": len(a & b) / len(a | b), "common": len(a & b)}), flush=True)
"""
POOLED = "words_in_common of a pool"


def words(a, b):
    return len({*a.split()} & {*b.split()}) / len({*a.split()} | {*b.split()})


class Judge:
    """A judge of words in common; it notes what it is asked."""

    def __init__(self, sign=1):
        self.asked, self.sign = [], sign

    def __call__(self, pairs):
        self.asked += pairs
        return [{"score": self.sign * words(a, b), "common": len({*a.split()} & {*b.split()})} for a, b in pairs]

    def named(self, **options):
        """Return the judge for the metrics of a call."""
        return mo.judge(self, **{"name": "words_in_common", "direction": "higher", **options})


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return mo.build_index(CORPUS, tmp_path_factory.mktemp("judged") / "INDEX", metrics="bleu,rouge-l,jaccard:2")


def run(index, judge, **more):
    return mo.study(index, TESTS, MODELS, metrics=["bleu", "rouge-l", judge], **more)


@pytest.fixture(scope="module")
def judged(index):
    """Return a judge, the rows of a study under it, and what it told."""
    judge, told = Judge(), []
    systems = run(index, judge.named(), pool="bleu:4,rouge-l:3,random:6", tell=told.append)
    return judge, systems, told


def column(systems, row):
    return systems[row].table["words_in_common"].to_numpy()


def test_each_cell_is_the_plain_computation(index, judged):
    _, systems, _ = judged
    order = ["good", "poor", "bleu-2 oracle", "rouge-l oracle", POOLED, MOST_FREQUENT, IDENTITY, RANDOM]
    assert list(systems) == order
    for model, texts in MODELS.items():
        assert column(systems, model).tolist() == [words(text, texts[study]) for study, text in TESTS.items()]
        common = [len({*text.split()} & {*texts[study].split()}) for study, text in TESTS.items()]
        assert systems[model].table["words_in_common.common"].to_pylist() == common
    for metric in ("bleu-2", "rouge-l"):
        found = mo.retrieve(index, TESTS, metric).table["text"].to_pylist()
        expected = [words(*pair) for pair in zip(TESTS.values(), found, strict=True)]
        assert column(systems, f"{metric} oracle").tolist() == expected
    frequent = mo.baseline(index, TESTS, "most-frequent", "bleu").table["text"].to_pylist()
    assert column(systems, MOST_FREQUENT).tolist() == [
        words(*pair) for pair in zip(TESTS.values(), frequent, strict=True)
    ]
    assert column(systems, IDENTITY).tolist() == [1.0] * len(TESTS)
    best = []
    texts = [*CORPUS.values()]
    drawn = drawn_rows(np.arange(len(texts)), len(TESTS), 0, 6)
    lists = [
        mo.retrieve(index, TESTS, metric, k=k).table["text"].to_pylist() for metric, k in (("bleu", 4), ("rouge-l", 3))
    ]
    for q, text in enumerate(TESTS.values()):
        pool = [*lists[0][4 * q : 4 * q + 4], *lists[1][3 * q : 3 * q + 3], *(texts[row] for row in drawn[q])]
        best.append(max(words(text, candidate) for candidate in pool))
    assert column(systems, POOLED).tolist() == best
    found = {name: scores.metrics for name, scores in systems.items()}
    assert all(metrics == ["bleu-2", "rouge-l", "words_in_common"] for metrics in found.values())


def test_chance_is_that_of_a_baseline_with_the_draws_of_the_pool(index, judged):
    systems = judged[1]
    expected = mo.expectation(index, TESTS, ["bleu", "rouge-l", Judge().named()], draws=6)
    assert column(systems, RANDOM).tolist() == pytest.approx(expected.table["mean"].to_pylist(), abs=1e-12)
    sampled = systems[RANDOM].signature["averaged"]["sampled"]["words_in_common"]
    assert sampled == {
        "standard_error": pytest.approx(expected.signature["sampled"]["standard_error"]),
        "rows": 6,
        "seed": 0,
    }
    truth = np.mean([words(a, b) for a in TESTS.values() for b in CORPUS.values()])
    assert abs(column(systems, RANDOM).mean() - truth) < 3 * sampled["standard_error"]


def test_the_price_is_that_of_the_distinct_pairs_of_the_whole_study(judged):
    judge, systems, told = judged
    assert len({*judge.asked}) == len(judge.asked)
    assert told[0] == f"words_in_common: {len(judge.asked):,} distinct pairs to judge"
    assert told[1].startswith(f"{POOLED}: mean best score ")
    assert "a lower bound of the oracle under words_in_common" in told[1]
    of_pool = systems[POOLED].signature["pool"]
    assert of_pool["of_study"] == len(judge.asked) > of_pool["pairs"]


def test_the_best_of_a_pool_is_no_oracle_and_no_model(judged):
    systems = judged[1]
    assert is_yardstick(systems[POOLED])
    table = mo.compare_study(systems, resamples=200)
    assert table.competing == ["good", "poor"]
    assert {(test.a, test.b) for test in table.differences} == {("good", "poor")}
    assert "words_in_common" not in table.signature["oracles"]
    assert table.cells["good", "words_in_common"].share is None
    assert table.cells["good", "words_in_common"].percent_change > 0
    of_pool = systems[POOLED].signature["pool"]
    notes = table.tables()[-1].notes
    line = (
        f"{POOLED}: for each study the best under words_in_common of a pool (bleu-2:4, rouge-l:3, random:6). Others "
        "were not judged, so that the average is a lower bound of the oracle's. "
        f"{of_pool['pairs']:,} distinct pairs were judged for it, and {of_pool['of_study']:,} for all rows of the "
        f"study. {100 * of_pool['late']:.1f} % of the best are in the last tenth of the pool."
    )
    assert line in notes
    bound = "words_in_common of a pool: the best of a pool under words_in_common, where it is a lower bound of the"
    legend = table.text("tex").replace(r"\_", "_").split(r"\label")[0]
    assert bound in legend
    models = mo.compare_study(systems, resamples=200, layout=mo.Layout(rows=["good", "poor"])).text("tex")
    assert "of a pool" not in models.split(r"\label")[0]
    assert any("under words_in_common an estimate from 6 of them for each test report" in note for note in notes)


def test_lower_scores_may_be_better(index):
    systems = run(index, Judge(sign=-1).named(direction="lower"), pool="bleu:4,random:3")
    every = [*CORPUS.values()]
    drawn = drawn_rows(np.arange(len(every)), len(TESTS), 0, 3)
    found = mo.retrieve(index, TESTS, "bleu", k=4).table["text"].to_pylist()
    pools = [[*found[4 * q : 4 * q + 4], *(every[row] for row in drawn[q])] for q in range(len(TESTS))]
    best = [-max(words(text, one) for one in pool) for text, pool in zip(TESTS.values(), pools, strict=True)]
    assert column(systems, POOLED).tolist() == best
    notes = mo.compare_study(systems, resamples=200).tables()[-1].notes
    assert any("so that the average is an upper bound of the oracle's" in note for note in notes)


def test_a_pool_of_the_whole_corpus_is_the_oracle(index):
    systems = run(index, Judge().named(), pool="all")
    best = [max(words(text, one) for one in CORPUS.values()) for text in TESTS.values()]
    assert column(systems, "words_in_common oracle").tolist() == best
    assert is_yardstick(systems["words_in_common oracle"])
    table = mo.compare_study(systems, resamples=200)
    assert table.competing == ["good", "poor"]
    assert "pools" not in table.signature
    assert table.signature["oracles"]["words_in_common"] == "words_in_common oracle"
    assert table.cells["words_in_common oracle", "words_in_common"].share == 1


def test_by_default_the_pool_has_the_best_under_each_metric(index):
    assert default_pool(["bleu-2", "rouge-l"]) == "bleu-2:20,rouge-l:20,random:10"
    systems = run(index, Judge().named())
    pool = systems[POOLED].signature["pool"]
    assert [(one["metric"], one["size"]) for one in pool["lists"]] == [("bleu-2", 20), ("rouge-l", 20)]
    assert pool["random"] == 10
    for row in ("bleu-2 oracle", "rouge-l oracle"):  # whose reports are in the pool
        assert (column(systems, POOLED) >= column(systems, row)).all()


def test_a_study_that_goes_on_judges_no_pair_twice(index, tmp_path):
    out, keep = tmp_path / "study", tmp_path / "kept"
    judge = Judge()
    with pytest.raises(
        InputError, match=r"^study: most of the judge \w+ must be at least \d+, the pairs to judge; got 5"
    ):
        run(index, judge.named(keep=keep, most=5), pool="bleu:3", out=out)
    assert judge.asked == []
    first = run(index, judge.named(keep=keep), pool="bleu:3", out=out)
    again = Judge()
    second = run(index, again.named(keep=keep), pool="bleu:3", out=out)  # the folder was not finished
    assert again.asked == []
    assert {name: scores.table for name, scores in first.items()} == {name: s.table for name, s in second.items()}
    other = Judge()
    third = run(index, other.named(version="2", keep=keep), pool="bleu:3", out=out)
    assert len(other.asked) == len(judge.asked)
    assert third["good"].signature["metrics"]["words_in_common"]["version"] == "2"
    mo.write_study(third, mo.compare_study(third, resamples=200), out)
    for name in ("words_in_common-of-a-pool", "good", "random-expected"):
        assert "words_in_common" in mo.read_scores(out / f"{name}.parquet").metrics
    reports = mo.read_results(out / "words_in_common-of-a-pool-reports.parquet")
    assert reports.table["score"].to_pylist() == column(third, POOLED).tolist()
    assert not list(out.glob("*unfinished*"))


def test_each_metric_is_searched_once(index, tmp_path, monkeypatch):
    """The best of the list that the pool has is the oracle's report; one that it lacks has its own search."""
    sizes, results = [], Search.results

    def counted(search, progress=None):
        sizes.append((search.metric.name, search.options.k))
        return results(search, progress)

    monkeypatch.setattr(Search, "results", counted)
    pool, out, metrics = "bleu:4,jaccard:2:3,random:3", tmp_path / "study", ("bleu-2", "rouge-l")
    expected = [("bleu-2", 4), ("rouge-l", 1), ("jaccard:2", 3)]
    judge = Judge()
    systems = run(index, judge.named(), pool=pool, out=out)
    assert sizes == expected
    sizes.clear()
    pairs = mo.study_pairs(index, TESTS, MODELS, metrics=[*metrics], pool=pool)
    assert sizes == expected
    assert pairs.table.num_rows == len(judge.asked)
    mo.write_study(systems, mo.compare_study(systems, resamples=200), out)
    monkeypatch.undo()
    for metric in metrics:
        alone, kept = mo.retrieve(index, TESTS, metric), mo.read_results(out / f"{metric}-oracle-reports.parquet")
        assert kept.table.equals(alone.table)
        own = {"stages", "closest_call"}  # of the search of the whole list
        assert all(kept.signature[name] == value for name, value in alone.signature.items() if name not in own)


def test_rows_of_scores_have_the_judge(index):
    row = mo.score(TESTS, MODELS["good"], "bleu,rouge-l")
    with pytest.raises(InputError, match=r"the scores of 'mine' lack words_in_common, which the study has"):
        run(index, Judge().named(), scores={"mine": row})
    row = mo.score(TESTS, MODELS["good"], ["bleu", "rouge-l", Judge().named()])
    systems = run(index, Judge().named(), pool="bleu:2", scores={"mine": row})
    assert column(systems, "mine").tolist() == column(systems, "good").tolist()
    assert mo.compare_study(systems, resamples=200).competing == ["good", "poor", "mine"]


def test_names_of_rows_and_options_without_a_judge(index):
    for name in (POOLED, "words_in_common oracle", "words_in_common-of-a-pool"):
        with pytest.raises(InputError, match=r"^study: models must have names that"):
            mo.study(index, TESTS, {name: TESTS}, metrics=["bleu", Judge().named()])
    with pytest.raises(InputError, match=r"^study: pool must be left out without a judge; got a value"):
        mo.study(index, TESTS, metrics="bleu", pool="bleu:3")
    with pytest.raises(
        InputError, match=r"^study: the judge words_in_common has neither a command nor files\. A comma"
    ):
        mo.study(index, "nothing.csv", metrics=["bleu", mo.judge(name="words_in_common", direction="higher")])


def test_equal_scores_have_no_known_error(index):
    half = mo.judge(lambda pairs: [0.5] * len(pairs), name="words_in_common", direction="higher")
    systems = run(index, half, pool="bleu:2,random:3")
    assert column(systems, RANDOM) == pytest.approx(0.5)
    notes = mo.compare_study(systems, resamples=200).tables()[-1].notes
    assert any("(standard error of the average not known, as scores are equal, seed 0)" in note for note in notes)


def judged_file(pairs, path, stop=None):
    """Write what a judge gives to the pairs of a file."""
    table = parquet.read_table(pairs)
    scores = [words(a, b) for a, b in zip(table["reference"].to_pylist(), table["candidate"].to_pylist(), strict=True)]
    parquet.write_table(pa.table({"pair": table["pair"], "score": scores}).slice(0, stop), path)


def test_the_command_and_files(index, tmp_path, oracle, fails, named):
    for name, reports in {"test": TESTS, **MODELS}.items():
        lines = [f"{study},{text}\n" for study, text in reports.items()]
        (tmp_path / f"{name}.csv").write_text("".join(["study_id,report\n", *lines]), encoding="utf-8")
    (tmp_path / "judge.py").write_text(SCRIPT, encoding="utf-8")
    models = [f"{tmp_path / name}.csv" for name in MODELS]
    study = ["study", index.folder, tmp_path / "test.csv", *models, "--pool", "bleu:4,random:3"]
    line = [*study, "-m", "bleu,rouge-l,words_in_common"]

    def name(**said):
        named("words_in_common", kind="judges", direction="higher", **said)

    name(command=f"{sys.executable} {tmp_path / 'judge.py'}", best=1)
    _, shown, told = oracle(*line, "--out", tmp_path / "S")
    assert "words_in_common: " in told
    assert " distinct pairs to judge" in told
    assert "words_in_common of a pool" in shown

    pairs, scores, rest, more = (tmp_path / f"{name}.parquet" for name in ("pairs", "scores", "rest", "more"))
    _, _, written = oracle(*study, "-m", "bleu,rouge-l", "--pairs", pairs)
    n = parquet.read_metadata(pairs).num_rows
    assert f"pairs.parquet: {n} distinct pairs" in written
    assert f"words_in_common: {n} distinct pairs to judge" in told
    table = parquet.read_table(pairs)
    assert table.column_names == ["pair", "query_id", "system", "row", "reference", "candidate"]
    assert {*table["system"].to_pylist()} == {"good", "poor", "bleu-2 oracle", "rouge-l oracle", MOST_FREQUENT} | {
        IDENTITY,
        "pool",
        "random",
    }
    rows = [(row, text) for row, text in zip(table["row"].to_pylist(), table["candidate"].to_pylist(), strict=True)]
    every = [*CORPUS.values()]
    assert all(row is None or every[row] == text for row, text in rows)
    judged_file(pairs, scores, n - 7)
    match = rf"study: files of the judge words_in_common must have a score for each pair; got none for 7 of {n}, such a"
    name(files=str(scores))
    fails(*line, match=match)
    _, _, told = oracle(*line, "--pairs", rest)
    assert f"rest.parquet: 7 distinct pairs; {n - 7} others are judged" in told
    assert parquet.read_metadata(rest).num_rows == 7
    judged_file(rest, more)
    name(files=str(scores), keep=tmp_path / "kept")
    fails(*line, match=match)  # which keeps these scores
    name(keep=tmp_path / "kept")
    _, _, told = oracle(*line, "--pairs", tmp_path / "again.parquet")
    assert f"again.parquet: 7 distinct pairs; {n - 7} others are judged" in told
    name(files=[str(scores), str(more)])
    oracle(*line, "--out", tmp_path / "F")
    for row in ("good", "words_in_common-of-a-pool", "random-expected", "identity"):
        a, b = (mo.read_scores(tmp_path / folder / f"{row}.parquet").table for folder in ("S", "F"))
        assert a["words_in_common"].to_pylist() == b["words_in_common"].to_pylist()
    match = r"study: --pairs must end with \.parquet, \.csv or \.jsonl; got .*pairs\.txt"
    fails(*line, "--pairs", tmp_path / "pairs.txt", match=match)

    page = tmp_path / "page.html"
    oracle("report", *(tmp_path / "S").glob("*.parquet"), "--queries", tmp_path / "test.csv", "--out", page)
    shown = page.read_text(encoding="utf-8")
    assert ">bleu-2 of words_in_common of a pool<" in shown
    assert ">words_in_common of a pool<" in shown
    assert "of a pool (2)" not in shown
    assert "a lower bound of the oracle under words_in_common" in shown

    rows = [
        f"{name}={tmp_path / 'S' / file}.parquet"
        for name, file in {"good": "good", "P": POOLED.replace(" ", "-")}.items()
    ]
    oracle("table", *rows, "--out", tmp_path / "table.jsonl")
    records = [json.loads(line) for line in (tmp_path / "table.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {record["metric"] for record in records} >= {"words_in_common"}
    assert {record["system"] for record in records if record["best"]} == {"good"}


def test_pairs_of_a_study_from_python(index, tmp_path):
    judge = Judge()
    run(index, judge.named(), pool="bleu:4")
    pairs = mo.study_pairs(index, TESTS, MODELS, metrics="bleu,rouge-l", pool="bleu:4")
    found = zip(pairs.table["reference"].to_pylist(), pairs.table["candidate"].to_pylist(), strict=True)
    assert sorted(found) == sorted(judge.asked)
    # Where a pair occurs first: in a row of the table, else in the pool, else among the random reports.
    best = {
        f"{name} oracle": mo.retrieve(index, TESTS, name).table["text"].to_pylist() for name in ("bleu-2", "rouge-l")
    }
    listed = mo.retrieve(index, TESTS, "bleu", k=4).table["row"].to_numpy().reshape(-1, 4)
    drawn, rows = drawn_rows(np.arange(len(CORPUS)), len(TESTS), 0, 10), [*CORPUS.values()]
    expected = {}
    for q, reference in enumerate(TESTS.values()):
        in_pool, at_random = ([(rows[row], row) for row in of_query[q].tolist()] for of_query in (listed, drawn))
        for system, candidates in (("pool", in_pool), ("random", at_random)):
            for text, row in candidates:
                expected.setdefault((reference, text), (system, row))
    shown = pairs.table.select(["reference", "candidate", "system", "row"]).to_pylist()
    shown = {(one["reference"], one["candidate"]): (one["system"], one["row"]) for one in shown}
    of_pool = {pair: of for pair, of in shown.items() if of[0] in ("pool", "random")}
    assert {of[0] for of in of_pool.values()} == {"pool", "random"}
    assert of_pool == {pair: expected[pair] for pair in of_pool}
    assert {of[0] for of in shown.values()} >= {*MODELS, *best}
    with pytest.raises(InputError, match=r"^study_pairs: pool must be METRIC:N or all"):
        mo.study_pairs(index, TESTS, metrics="bleu", pool="bleu")
