"""Mining through the public doors: equality with brute force, resuming, counts, the command, error lines."""

import json
import random
import re

import numpy as np
import polars as pl
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.mining import mine as module
from metric_oracle.synthetic.corpus import write_synthetic

LETTERS = "abcde"


def corpus(n: int = 90, seed: int = 0) -> pl.DataFrame:
    """Return short reports, many of them equal up to case and white space, some of one word."""
    rng = random.Random(seed)
    usual = ["No acute process.", "no  acute process.", "small effusion", "clear"]
    texts = [rng.choice(usual) if rng.random() < 0.5 else " ".join(rng.choices(LETTERS, k=4)) for _ in range(n)]
    subjects = [rng.choice(["", *map(str, range(n // 6))]) for _ in range(n)]
    return pl.DataFrame({"study_id": [f"s{i}" for i in range(n)], "report": texts, "subject_id": subjects})


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mine") / "INDEX"
    return mo.build_index(corpus(), folder, metrics="rouge-l,bleu-2", keep="subject_id")


@pytest.fixture(scope="module")
def scores():
    """Return the score of each pair under two metrics: anchor by candidate."""
    texts = corpus()["report"].to_list()
    every = {}
    for name in ("rouge-l", "bleu-2"):
        pairs = mo.score([b for b in texts for _ in texts], [a for _ in texts for a in texts], name)
        every[name] = pairs.table[name].to_numpy().reshape(len(texts), -1)
    return every


def brute_force(matrix, allowed, k):
    """Return (anchor row, candidate row, rank, score, n_ties) of every pair."""
    expected = []
    for anchor, (row, may) in enumerate(zip(matrix, allowed, strict=True)):
        order = [c for c in np.lexsort((np.arange(len(row)), -row)) if may[c]][:k]
        expected += [(anchor, int(c), rank, row[c], int((row[may] == row[c]).sum())) for rank, c in enumerate(order, 1)]
    return expected


def rows_of(path):
    table = parquet.read_table(path)
    names = ("anchor_row", "candidate_row", "rank", "score", "n_ties")
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def folded(text):
    return " ".join(text.casefold().split())


@pytest.mark.parametrize("exclude", [(), "text", "self,subject_id", ("text", "subject_id")])
@pytest.mark.parametrize("k", [1, 7, 90])
@pytest.mark.parametrize("more", [{}, {"min_score": 0.4}, {"where": "bleu-2<0.5"}])
def test_pairs_are_those_of_brute_force(index, scores, exclude, k, more, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 37)
    reports, n = corpus(), 90
    matrix = scores["rouge-l"]
    allowed = ~np.eye(n, dtype=bool)
    if "text" in exclude:
        texts = np.array([folded(text) for text in reports["report"]])
        allowed &= texts[:, None] != texts
    if "subject_id" in exclude:
        subjects = reports["subject_id"].to_numpy()
        allowed &= (subjects[:, None] != subjects) | (subjects == "")
    if "min_score" in more:
        allowed &= matrix >= 0.4
    if "where" in more:
        allowed &= scores["bleu-2"] < 0.5
    found = mo.mine(index, "rouge-l", tmp_path / "p.parquet", k=k, options=mo.SearchOptions(exclude=exclude, **more))
    expected = brute_force(matrix, allowed, k)
    assert rows_of(found.path) == expected
    possible = allowed.sum(1)
    listed = [score for *_, score, _ in expected]
    assert found.counts == {
        "anchors": n,
        "pairs": len(expected),
        "fewer than k": int((possible < k).sum()),
        "without any": int((possible == 0).sum()),
        "not scored": 0,
    }
    assert list(found.quantiles.values()) == [*np.quantile(listed, module.QUANTILES, method="inverted_cdf")]
    if k == 7 and not more:
        assert found.counts["pairs"] == n * k  # lists are k long where there are k candidates


def test_columns_ids_texts_and_row_groups(index, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 40)
    options = mo.SearchOptions(k=2, where="bleu-2>=0")
    found = mo.mine(index, "rouge-l", tmp_path / "p.parquet", text=True, options=options)
    file = parquet.ParquetFile(found.path)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [80, 80, 20]
    table, reports = file.read(), corpus()
    assert table.column_names == [
        "anchor_id", "anchor_row", "candidate_id", "candidate_row", "rank", "score", "bleu-2", "n_ties",
        "anchor_subject_id", "candidate_subject_id", "anchor_text", "candidate_text",
    ]  # fmt: skip
    for side in ("anchor", "candidate"):
        of_side = reports[table[f"{side}_row"].to_pylist()]
        for name, column in (("id", "study_id"), ("subject_id", "subject_id"), ("text", "report")):
            assert table[f"{side}_{name}"].to_pylist() == of_side[column].to_list()
    mo.mine(index, "rouge-l", tmp_path / "q.parquet", options=options)
    assert parquet.read_table(tmp_path / "q.parquet").equals(table.drop_columns(["anchor_text", "candidate_text"]))


def test_a_killed_run_resumes_to_the_identical_file(index, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 20)
    whole, out = tmp_path / "whole.parquet", tmp_path / "p.parquet"
    mo.mine(index, "rouge-l", whole, k=3)
    searched, search = [], module.Plan.search

    def dying(plan, queries, *rest):
        if len(searched) == 2:
            raise KeyboardInterrupt
        searched.append(queries.ids[0])
        return search(plan, queries, *rest)

    monkeypatch.setattr(module.Plan, "search", dying)
    with pytest.raises(KeyboardInterrupt):
        mo.mine(index, "rouge-l", out, k=3)
    assert not out.exists()
    with pytest.raises(mo.MetricOracleError, match="out must be a name for which no other search is unfinished"):
        mo.mine(index, "rouge-l", out, k=2)
    assert searched == ["s0", "s20"]
    searched.clear()
    searched.append("")
    with pytest.raises(KeyboardInterrupt):
        mo.mine(index, "rouge-l", out, k=3)
    assert searched == ["", "s40"]
    monkeypatch.setattr(module.Plan, "search", search)
    steps = []
    mo.mine(index, "rouge-l", out, k=3, progress=lambda *step: steps.append(step))
    assert out.read_bytes() == whole.read_bytes()
    assert steps[-1] == ("", 90, 90)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_set_of_shards_and_some_anchors(index, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 17)
    options = mo.SearchOptions(k=5, exclude="subject_id")
    shards = mo.build_index(corpus(), tmp_path / "SET", metrics="rouge-l,bleu-2", keep="subject_id", shard_rows=25)
    mo.mine(index, "rouge-l", tmp_path / "p.parquet", options=options)
    mo.mine(shards, "rouge-l", tmp_path / "q.parquet", options=options)
    every = rows_of(tmp_path / "p.parquet")
    assert rows_of(tmp_path / "q.parquet") == every
    few = mo.mine(shards, "rouge-l", tmp_path / "r.parquet", options=options, anchors=["s70", "s3", "s3"])
    assert rows_of(few.path) == [row for row in every if row[0] in (3, 70)]


def test_the_signature_is_in_the_file(index, tmp_path):
    found = mo.mine(index, "rouge-l", tmp_path / "p.parquet", k=2)
    stored = json.loads(parquet.read_schema(found.path).metadata[b"metric_oracle.signature"])
    assert found.signature.items() <= stored.items()
    assert (stored["kind"], stored["exclude"], stored["k"], stored["anchors"]) == ("mined", ["self"], 2, 90)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"anchors": ["s1", "zz"]}, "anchors must be ids of reports of the index that the metric can score; got 'zz'"),
        ({"anchors": []}, "anchors must be ids of reports of the index that the metric can score; got none"),
        ({"out": "p.csv"}, r"out must end with \.parquet"),
        ({"options": mo.SearchOptions(part="1/2")}, "part"),
        ({"metric": "cider-d"}, "metric must be such that the score of a pair depends on this pair alone"),
        ({"metric": "cider-d", "options": mo.SearchOptions(idf="tests")}, "idf"),
        ({"options": mo.SearchOptions(where="cider-d>=1")}, "where must be such that .* alone; got 'cider-d'"),
        ({"options": mo.SearchOptions(exclude="zz")}, "exclude must be among self, text, same, subject_id"),
        ({"options": mo.SearchOptions(prevalence={"reports": 1})}, "prevalence must be left out for mining"),
    ],
)
def test_wrong_arguments(index, given, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    searched = index
    if "cider-d" in str(given):
        searched = mo.build_index(corpus(), tmp_path / "C", metrics="rouge-l,cider-d")
    with pytest.raises(mo.MetricOracleError, match=line):
        mo.mine(**{"index": searched, "metric": "rouge-l", "out": "p.parquet", **given})
    assert not list(tmp_path.glob("*.parquet"))


def test_the_command_writes_and_reports(index, oracle, tmp_path):
    out = tmp_path / "pairs.parquet"
    options = ("-k", 3, "--exclude", "text", "--min-score", 0.2, "--where", "bleu-2<=0.9", "--with-text")
    code, printed, err = oracle("mine", index.folder, "-m", "rouge-l", *options, "--out", out, "--format", "jsonl")
    given = mo.SearchOptions(k=3, exclude="text", min_score=0.2, where="bleu-2<=0.9")
    found = mo.mine(index, "rouge-l", tmp_path / "p.parquet", text=True, options=given)
    assert code == 0
    assert out.read_bytes() == found.path.read_bytes()
    assert err == f"{out}: {found.summary()}\n"
    assert json.loads(printed) == found.lines
    code, printed, _ = oracle("mine", index.folder, "-m", "rouge-l", "--out", out)
    assert code == 0
    counts = dict(re.findall(r"^ (\w+) +(\d+) *$", printed, re.MULTILINE))
    assert (counts["anchors"], counts["pairs"]) == ("90", "90")
    code, _, err = oracle("mine", index.folder)
    assert (code, err) == (2, "error: mine: --out must be given; got none. Add --out FILE.\n")


def test_anchors_of_a_file(index, oracle, tmp_path):
    expected = mo.mine(index, "rouge-l", tmp_path / "p.parquet", k=2, anchors=["s3", "s70"])
    corpus()[[70, 3]].write_csv(tmp_path / "split.csv")
    (tmp_path / "split.txt").write_text("s70\ns3\n", encoding="utf-8")
    for name in ("split.csv", "split.txt"):
        out = tmp_path / f"{name}.parquet"
        code, _, err = oracle(
            "mine", index.folder, "-m", "rouge-l", "-k", 2, "--anchors", tmp_path / name, "--range-min", 0, "--out", out
        )
        assert (code, err) == (0, f"{out}: {expected.summary()}\n")
        assert out.read_bytes() == expected.path.read_bytes()
    with pytest.raises(mo.MetricOracleError, match="anchors"):
        mo.mine(index, "rouge-l", tmp_path / "q.parquet", anchors=tmp_path / "no-such.csv")


@pytest.mark.parametrize("range_min", [1, 4, 88, 89])
def test_the_best_candidates_are_left_out(index, scores, range_min, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 37)
    found = mo.mine(index, "rouge-l", tmp_path / "p.parquet", k=3, selection=mo.Selection(range_min))
    expected = brute_force(scores["rouge-l"], ~np.eye(90, dtype=bool), 90)
    assert rows_of(found.path) == [row for row in expected if range_min < row[2] <= range_min + 3]
    assert (found.signature["k"], found.signature["range_min"]) == (3, range_min)
    assert found.counts["fewer than k"] == (90 if range_min > 86 else 0)
    assert found.counts["without any"] == (90 if range_min == 89 else 0)


def test_a_wrong_range_min(index, tmp_path):
    with pytest.raises(mo.MetricOracleError, match="range_min must be an int of at least 0; got -1"):
        mo.mine(index, "rouge-l", tmp_path / "p.parquet", selection=mo.Selection(-1))


def test_pairs_under_a_composite(index, scores, oracle, tmp_path, monkeypatch):
    """A composite has no positives to begin with, and lower is better."""
    monkeypatch.setattr(module, "BLOCK", 37)
    weights = tmp_path / "w.json"
    terms = {"bleu-2": {"mean": 0.5, "scale": 2.0, "weight": -1.5}, "rouge-l": {"mean": 0, "scale": 1, "weight": -1}}
    head = {"format": "metric-oracle composite", "version": 1, "name": "mine", "direction": "lower"}
    weights.write_text(json.dumps({**head, "intercept": 3.0, "terms": terms}), encoding="utf-8")
    matrix = 3.0 + -1.5 * (scores["bleu-2"] - 0.5) / 2.0 + -1.0 * (scores["rouge-l"] - 0) / 1
    expected = [
        (*pair[:3], pytest.approx(-pair[3], abs=1e-12), pair[4])
        for pair in brute_force(-np.round(matrix, 12), ~np.eye(90, dtype=bool), 3)
    ]
    options = mo.SearchOptions(k=3, weights=weights)
    found = mo.mine(index, "composite", tmp_path / "p.parquet", options=options)
    assert rows_of(found.path) == expected
    shards = mo.build_index(corpus(), tmp_path / "SET", metrics="rouge-l,bleu-2", shard_rows=25)
    of_set = mo.mine(shards, "composite", tmp_path / "q.parquet", options=options)
    assert rows_of(of_set.path) == rows_of(found.path)
    out, given = tmp_path / "r.parquet", ("-m", "composite", "--weights", weights, "-k", 3)
    code, _, err = oracle("mine", index.folder, *given, "--out", out)
    assert (code, err) == (0, f"{out}: {found.summary()}\n")
    assert rows_of(out) == rows_of(found.path)


def test_pairs_under_radcliq(tmp_path):
    files = write_synthetic(tmp_path / "corpus", 40, 1, seed=4)
    index = mo.build_index(
        mo.reports(files["train"], radgraph=files["train_graphs"]), tmp_path / "INDEX", metrics="radgraph,bleu-2"
    )
    found = mo.mine(index, "radcliq:preprint", tmp_path / "p.parquet", k=2)
    rows = rows_of(found.path)
    pairs = parquet.read_table(found.path, columns=["anchor_id", "candidate_id"])
    assert [row[2] for row in rows] == [1, 2] * 40
    texts = dict(zip(*(index.strings(name).to_pylist() for name in ("study_id", "text")), strict=True))
    graphs = {**json.loads(files["train_graphs"].read_text(encoding="utf-8"))}
    of_side = []
    for side in ("anchor_id", "candidate_id"):
        ids = pairs[side].to_pylist()
        keys = [str(i) for i in range(len(ids))]
        of_side.append(
            mo.reports(
                {key: texts[study] for key, study in zip(keys, ids, strict=True)},
                radgraph={key: graphs[study] for key, study in zip(keys, ids, strict=True)},
            )
        )
    assert [row[3] for row in rows] == mo.score(*of_side, "radcliq:preprint").table["radcliq:preprint"].to_pylist()
