"""Exclusion and least scores through the public doors; every metric is compared in `kernels/test_search.py`."""

import io
import json
import random

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

import metric_oracle as mo
from metric_oracle.base.errors import ExactnessError, InputError
from metric_oracle.base.option_types import RESTRICTIONS
from metric_oracle.cli import app
from metric_oracle.findings.views import answers_table
from metric_oracle.retrieval import restrictions
from metric_oracle.retrieval.plan import plan


def corpus(n: int, seed: int = 0) -> pl.DataFrame:
    """Return reports of a few words, most of them of two sentences that are written in several ways."""
    rng = random.Random(seed)
    usual = ["No acute process.", "no  acute process.", "NO ACUTE PROCESS.", "small effusion", "small effusion."]
    texts = [rng.choice(usual) if rng.random() < 0.7 else " ".join(rng.choices("abcde", k=4)) for _ in range(n)]
    subjects = [rng.choice(["", *map(str, range(n // 6))]) for _ in range(n)]
    return pl.DataFrame({"study_id": [f"s{i}" for i in range(n)], "report": texts, "subject_id": subjects})


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return mo.build_index(corpus(300), tmp_path_factory.mktemp("index") / "INDEX", metrics="bleu", keep="subject_id")


def pairs_of(results) -> list[tuple[str, str]]:
    return list(zip(*(results.table[name].to_pylist() for name in ("query_id", "candidate_id")), strict=True))


def test_a_file_of_queries_brings_its_column(index, tmp_path):
    asked = corpus(300).sample(40, seed=1).with_columns(study_id="q" + pl.col("study_id"))
    asked.write_csv(tmp_path / "test.csv")
    subject = dict(corpus(300).select("study_id", "subject_id").rows())
    own = dict(asked.select("study_id", "subject_id").rows())
    options = mo.SearchOptions(k=20, exclude="subject_id")
    found = [
        mo.retrieve(index, queries, "bleu", options=options)
        for queries in (asked, tmp_path / "test.csv", mo.reports(tmp_path / "test.csv"))
    ]
    assert found[0].table.equals(found[1].table)
    assert found[0].table.equals(found[2].table)
    assert found[0].table.num_rows == 800
    assert all(subject[candidate] != own[query] or not own[query] for query, candidate in pairs_of(found[0]))
    prepared = mo.build_index(asked, tmp_path / "TESTS", metrics="bleu", keep="subject_id")
    assert mo.retrieve(index, prepared, "bleu", options=options).table.equals(found[0].table)
    with pytest.raises(InputError, match="has no column 'subject_id'"):
        mo.retrieve(index, asked.drop("subject_id"), "bleu", options=options)
    bare = mo.build_index(asked, tmp_path / "BARE", metrics="bleu")
    with pytest.raises(InputError, match="the reports, which were read before, have no column 'subject_id'"):
        mo.retrieve(index, bare, "bleu", options=options)
    with pytest.raises(InputError, match="the test reports have no column 'subject_id'"):
        mo.retrieve(index, mo.reports(asked).load(), "bleu", options=options)


def test_lists_shared_by_many_queries_are_those_of_each_alone(index, monkeypatch):
    """One representation of more than a hundred reports, with an own list each, in rounds of any size."""
    options = mo.SearchOptions(k=30, exclude=("self", "subject_id"))
    found = mo.retrieve(index, index, "bleu", options=options).table
    for at_once in (1, 3):
        monkeypatch.setattr(restrictions, "AT_ONCE", at_once)
        assert mo.retrieve(index, index, "bleu", options=options).table.equals(found)
    queries = mo.reports(index).load()
    for place in (0, 7, 150):
        alone = mo.retrieve(index, queries.take([place]), "bleu", options=options).table
        assert alone.equals(found.slice(place * 30, 30).combine_chunks())


def test_equal_texts_are_left_out_in_every_spelling(index):
    queries = ["no acute PROCESS.", "unheard of"]
    found = mo.retrieve(index, queries, "bleu", k=300, options=mo.SearchOptions(exclude="text")).table
    listed = found.filter(pl.Series(found["query_id"].to_pylist()).eq("0").to_arrow())["text"].to_pylist()
    n_equal = sum(text.lower().split() == ["no", "acute", "process."] for text in corpus(300)["report"])
    assert n_equal > 50
    assert len(listed) == 300 - n_equal
    assert not any(text.lower().startswith("no") for text in listed)
    assert found.num_rows - len(listed) == 300  # the other text is nobody's


def test_same_needs_rows_of_the_index(index):
    options = mo.SearchOptions(exclude="same")
    for queries in (["no acute process."], {"s0": "another text"}):
        with pytest.raises(InputError, match="exclude must be other than same for test reports that are no rows"):
            mo.retrieve(index, queries, "bleu", options=options)


@pytest.mark.parametrize("shard_rows", [None, 2])
def test_same_excludes_nothing_for_a_row_that_the_metric_cannot_score(tmp_path, shard_rows):
    """The row of the index has no vector, while the test report, the same one, has that of another row."""
    texts = {f"s{i}": text for i, text in enumerate(["no edema", "small effusion", "clear", "no pneumothorax"])}
    vectors = {"s0": [1.0, 0.0], "s1": [0.0, 1.0], "s2": [1.0, 0.0]}
    corpus = mo.reports(texts, embeddings=vectors)
    index = mo.build_index(corpus, tmp_path / "INDEX", metrics="embedding", shard_rows=shard_rows)
    queries = mo.reports({"s3": texts["s3"], "s0": texts["s0"]}, embeddings={"s3": [0.0, 1.0], "s0": [1.0, 0.0]})
    found = mo.retrieve(index, queries, "embedding", options=mo.SearchOptions(k=3, exclude="same"))
    assert pairs_of(found) == [("s3", "s1"), ("s3", "s0"), ("s3", "s2"), ("s0", "s1")]
    assert mo.verify(index, found, queries) == {"pairs": 4, "queries": 2}


def test_options_are_checked_before_the_queries_are_read(index):
    with pytest.raises(InputError, match="exclude must be among self, text, same, subject_id; got 'patient'"):
        plan(index, "bleu", mo.SearchOptions(exclude=["self", "patient"]))
    for least in ("high", float("nan"), True):
        with pytest.raises(InputError, match="min_score must be a number"):
            plan(index, "bleu", mo.SearchOptions(min_score=least))
    with pytest.raises(InputError, match="exclude must be left out"):
        mo.baseline(index, ["small effusion"], "identity", "bleu", options=mo.SearchOptions(exclude="self"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index") / "SET"
    return mo.build_index(corpus(300), folder, metrics="bleu", keep="subject_id", shard_rows=110)


VERIFIED = [
    ("bleu-2", {"min_score": 0.5}),
    ("bleu-2", {"exclude": "self,subject_id"}),
    ("bleu-2", {"exclude": "text", "min_score": 0.2}),
    ("bleu-1+bleu-2", {}),
    ("bleu-1+bleu-2", {"exclude": "same", "where": "bleu-3>=0.1,bleu-1<1", "min_score": 0.6}),
    ("bleu-2", {"exclude": "same,subject_id", "where": "bleu-1<=0.6"}),
]


def changed(results, table):
    return type(results)(table, results.signature)


@pytest.mark.parametrize(("metric", "given"), VERIFIED)
@pytest.mark.parametrize("name", ["index", "shards"])
def test_results_with_restrictions_and_sums_are_verified(name, metric, given, request):
    searched = request.getfixturevalue(name)
    queries = mo.reports(request.getfixturevalue("index")).load().take(range(0, 300, 11))
    results = mo.retrieve(searched, queries, metric, k=4, options=mo.SearchOptions(**given))
    n, table = results.table.num_rows, results.table
    assert 20 < n <= 4 * len(queries.ids)
    assert mo.verify(searched, results, queries, sample=9) == {"pairs": n, "queries": 9}
    answered = table["query_id"].to_pylist()
    without_one = table.filter(pl.Series(answered).ne(answered[0]).to_arrow())
    error = ExactnessError if given else InputError
    with pytest.raises(error, match=rf"the answers of query '{answered[0]}' differ|results must answer every query"):
        mo.verify(searched, changed(results, without_one), queries, sample=100)
    last = [i for i in range(n) if i + 1 == n or answered[i + 1] != answered[i]]
    shorter = table.filter(pl.Series([i not in last for i in range(n)]).to_arrow())
    with pytest.raises(ExactnessError, match=r"the answers of query|n_ties of query"):
        mo.verify(searched, changed(results, shorter), queries, sample=100)


def test_queries_without_a_value_are_verified(tmp_path):
    """A report without a subject is not of the subject of another one: neither is left out."""
    reports = corpus(30).with_columns(subject_id=pl.Series(["", "p1"] * 15))
    index = mo.build_index(reports, tmp_path / "I", metrics="bleu", keep="subject_id")
    queries = mo.reports(index).load()
    options = mo.SearchOptions(k=4, exclude="self,subject_id")
    results = mo.retrieve(index, queries, "bleu-2", options=options)
    of_report = dict(reports.select("study_id", "subject_id").rows())
    answered = {(of_report[query], of_report[candidate]) for query, candidate in pairs_of(results)}
    assert answered == {("", ""), ("", "p1"), ("p1", "")}
    assert mo.verify(index, results, queries, sample=100) == {"pairs": results.table.num_rows, "queries": 30}


def test_a_row_that_a_rule_leaves_out_is_noticed(index):
    """Each result is of a search without a rule, under the signature of one with it."""
    queries = mo.reports(index).load().take(range(0, 300, 11))
    for rule in ({"exclude": "self"}, {"exclude": "subject_id"}, {"where": "bleu-1<=0.6"}, {"min_score": 0.9}):
        right = mo.retrieve(index, queries, "bleu-2", k=4, options=mo.SearchOptions(**rule))
        wrong = mo.retrieve(index, queries, "bleu-2", k=4, options=mo.SearchOptions(where="bleu-1<=2"))
        if "where" not in rule:
            wrong = mo.retrieve(index, queries, "bleu-2", k=4, options=mo.SearchOptions(min_score=0.0))
        with pytest.raises(ExactnessError, match="differ from those of a brute-force search"):
            mo.verify(index, changed(right, wrong.table), queries, sample=100)


def test_lists_of_any_length_are_shown(index):
    queries = mo.reports(index).load().take([0, 7, 150])
    for least in (0.5, 2.0):
        options = mo.SearchOptions(k=200, exclude="text", min_score=least)
        results = mo.retrieve(index, queries, "bleu", options=options)
        console = Console(file=io.StringIO(), width=100)
        console.print(answers_table(results))
        best = [row["score"] for row in results.table.to_pylist() if row["rank"] == 1]
        line = f"{len(best)} test reports with answers, mean best score" if best else "no test report has an answer"
        assert line in console.file.getvalue()
    assert results.table.num_rows == 0


def test_a_sum_of_metrics(index):
    queries = mo.reports(index).load().take([0, 7, 150])
    found = mo.retrieve(index, queries, "bleu-1 + bleu-2", k=300)
    assert found.signature["metric"] == "bleu-1+bleu-2"
    table = found.table
    assert table["score"].to_pylist() == [
        sum(pair) for pair in zip(table["bleu-1"].to_pylist(), table["bleu-2"].to_pylist(), strict=True)
    ]
    alone = mo.retrieve(index, queries, "bleu-2", k=300).table
    key = [("query_id", "ascending"), ("row", "ascending")]
    assert table.sort_by(key)["bleu-2"].equals(alone.sort_by(key)["score"])
    slow = mo.retrieve(index, queries, "bleu-1+bleu-2", k=300, backend="reference").table
    assert slow.equals(table)
    assert mo.verify(index, found, queries, sample=2)["queries"] == 2


def test_radgraph_does_not_fall_back_on_an_excluded_report(tmp_path):
    graph = {"entities": {"0": {"tokens": "lungs", "label": "ANAT-DP", "relations": []}}}
    other = {"entities": {"0": {"tokens": "heart", "label": "ANAT-DP", "relations": []}}}
    reports = {"a": "lungs", "b": "lungs", "c": "heart"}
    of_reports = mo.reports(reports, radgraph={"a": graph, "b": graph, "c": graph})
    index = mo.build_index(of_reports, tmp_path / "INDEX", metrics="radgraph")
    asked = mo.reports({"q": "lungs"}, radgraph={"q": other})
    found = mo.retrieve(index, asked, "radgraph", k=2, options=mo.SearchOptions(exclude="text")).table
    assert found.select(["candidate_id", "score", "n_ties", "fallback"]).to_pylist() == [
        {"candidate_id": "c", "score": 0.0, "n_ties": 1, "fallback": False}
    ]


def test_the_command_keeps_columns_and_leaves_rows_out(tmp_path):
    corpus(60).write_csv(tmp_path / "train.csv")
    folder, run = str(tmp_path / "INDEX"), CliRunner().invoke
    built = run(
        app, ["build-index", str(tmp_path / "train.csv"), "-m", "bleu", "--keep", "subject_id", "--out", folder]
    )
    assert built.exit_code == 0, built.output
    assert "subject_id" in run(app, ["info", folder]).output
    asked = ["retrieve", folder, folder, "-k", "3", "--exclude", "self,subject_id", "--format", "jsonl", "--no-text"]
    lines = [json.loads(line) for line in run(app, [*asked, "--quiet"]).stdout.splitlines()]
    assert len(lines) == 180
    assert not any(line["query_id"] == line["candidate_id"] for line in lines)
    some = run(app, [*asked, "--min-score", "0.9", "--quiet"]).stdout.splitlines()
    assert 0 < len(some) < 180
    out = str(tmp_path / "results.parquet")
    run(app, ["retrieve", folder, str(tmp_path / "train.csv"), "--exclude", "subject_id", "--out", out])
    checked = run(app, ["verify", folder, out, str(tmp_path / "train.csv"), "--sample", "5"])
    assert "right: 60 pairs scored again, 5 queries searched by brute force" in checked.output
    wrong = run(app, [*asked[:3], "--exclude", "patient"])
    assert isinstance(wrong.exception, InputError)


def test_conditions_are_checked_before_the_queries_are_read(index):
    for where, match in (
        ("rouge-l", "where must be METRIC, one of >=, >, <=, <, and a number; got 'rouge-l'"),
        ("rouge-l>=high", "where must be METRIC"),
        ("rouge-l>=nan", "where must be METRIC"),
        ("rouge-l=1", "where must be METRIC"),
        ("no-such>1", "metric must be one of those that `mo.list_metrics` lists; got 'no-such'"),
        ("radcliq<1", "where must have no composite, nor must the metric of the search; got 'radcliq'"),
        (
            "radgraph>=0.4",
            r"metric must be one of .*; got 'radgraph'\. Build an index with `metrics='radgraph'` and "
            r"`mo\.reports\(\.\.\., radgraph=GRAPHS.json\)`",
        ),
    ):
        with pytest.raises(InputError, match=match):
            plan(index, "bleu", mo.SearchOptions(where=where))
    for metric, match in (
        ("bleu-1+bleu-1", "metric must be a sum of different metrics with .*; got 'bleu-1\\+bleu-1'"),
        ("bleu-1+sentences", "metric must be a sum of different metrics with the same better direction"),
        (
            "bleu-1+radcliq",
            "metric must have no composite in a sum; got 'radcliq'. Use the metrics that the composite sums",
        ),
        ("bleu-1+", "metric must be one of those that `mo.list_metrics` lists; got ''"),
    ):
        with pytest.raises(InputError, match=match):
            plan(index, metric)
    with pytest.raises(InputError, match='where must be left out with backend "reference"'):
        plan(index, "bleu", mo.SearchOptions(where="bleu-2>0.5", backend="reference"))
    for metric, where in (("bleu", "bleu-2>0.5"), ("bleu-1+bleu-2", ())):
        with pytest.raises(InputError, match='backend must be "cpu" or "auto" for a sum of metrics and for conditions'):
            plan(index, metric, mo.SearchOptions(where=where, backend="cuda"))


def test_the_command_takes_several_conditions(index):
    folder = str(index.folder)
    asked = ["retrieve", folder, folder, "-k", "4", "--exclude", "text", "--format", "jsonl", "--quiet"]
    every = CliRunner().invoke(app, asked).stdout.splitlines()
    found = CliRunner().invoke(app, [*asked, "--where", "bleu-1>0.2", "--where", "bleu-1 < 0.6"]).stdout.splitlines()
    assert 0 < len(found) < len(every)
    assert all(0.2 < json.loads(line)["bleu-1"] < 0.6 for line in found)


# ---- every restriction ----------------------------------------------------------------------------------------------

EXAMPLES = {"exclude": "self,text", "min_score": 0.4, "where": "rouge-l:coco<0.9"}


@pytest.mark.parametrize("name", RESTRICTIONS)
def test_a_restriction_is_known_to_search_verification_and_mining(index, tmp_path, name):
    """A new restriction needs its example here, and is then demanded of all three."""
    options = mo.SearchOptions(k=8, **{name: EXAMPLES[name]})
    results, free = (mo.retrieve(index, index, "bleu", options=one) for one in (options, mo.SearchOptions(k=8)))
    assert set(pairs_of(results)) != set(pairs_of(free))
    assert mo.verify(index, results, index, sample=40)["queries"] == 40
    recorded = {**free.signature, name: results.signature[name]}
    columns = [column for column in results.table.column_names if column in free.table.column_names]
    pretended = type(free)(free.table.select(columns), recorded)
    with pytest.raises(ExactnessError):
        mo.verify(index, pretended, index, sample=300)
    counts = mo.mine(index, "bleu", tmp_path / "mined.parquet", options=options).skipped
    left_out = {rule: n for rule, n in counts.items() if rule.startswith(name)}
    assert all(n > 0 for n in left_out.values())
    assert left_out
    n_rules = sum(n for rule, n in counts.items() if rule not in ("anchors", "candidates"))
    assert n_rules == counts["candidates"]
