"""The best of a pool: equal to brute force over its rows, and honest about what lies outside."""

import json
import re

import numpy as np
import pytest
from scipy.stats import binomtest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.encoders.crepe import Crepe
from metric_oracle.findings.results import read_results
from metric_oracle.judges.given import crepe_judge
from metric_oracle.judges.pair_models import totals
from metric_oracle.pools import rerank as module
from metric_oracle.pools.candidate_pools import Audit, planned_pool
from metric_oracle.pools.rerank import Reranking, binomial_interval, conformal_pool
from metric_oracle.tables.systems import is_oracle, read_system
from support import assert_refused, write
from support.crepe import write_tiny
from support.made_up import JUDGE, MIRRORED, worth

CORPUS = {
    "5": "no acute process", "6": "small left effusion", "7": "no acute process", "8": "small right effusion .",
    "9": "large effusion and edema", "10": "edema", "11": "no effusion , no edema", "12": "stable heart",
    "13": "small left effusion", "14": "the heart is normal",
}  # fmt: skip
TESTS = {"1": "small left effusion", "2": "no acute process", "3": "edema is stable", "4": "small left effusion"}


OTHER = mo.judge(worth, name="other", direction="higher")


class Words:
    """A stand-in: a candidate's errors are the reference's words that it lacks (B) and its own that are new (A)."""

    def __init__(self, planted=()):
        self.asked = []
        self.planted = dict(planted)
        self.signature = {"model": "words"}

    def count_errors(self, pairs, *, progress=None):
        self.asked += pairs
        counts = np.zeros((len(pairs), 6))
        for i, (reference, candidate) in enumerate(pairs):
            if self.planted.get(reference) != candidate:
                one, other = set(reference.split()), set(candidate.split())
                counts[i, 0], counts[i, 1] = len(other - one), len(one - other)
        return counts, 0


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rerank")
    return mo.build_index(write(folder / "corpus.csv", CORPUS), folder / "INDEX", metrics="bleu,rouge-l")


@pytest.fixture(scope="module", params=["index", "shards"])
def either(tmp_path_factory, request, index):
    """Return the index, or a set of shards of the same reports."""
    if request.param == "index":
        return index
    return mo.build_index(CORPUS, tmp_path_factory.mktemp("rerank") / "SET", metrics="bleu,rouge-l", shard_rows=3)


@pytest.fixture(scope="module")
def queries():
    return mo.reports(TESTS).load()


def rerank(index, queries, model, pool, k=1, audit=0, recall=None, seed=0):
    """Return what CREPE finds with a stand-in for its model."""
    planned = planned_pool(index, pool, mo.SearchOptions(k=k), seed=seed, audit=Audit(audit, recall))
    return Reranking(planned, crepe_judge(model), queries).results()


def brute(model, reference, rows, k):
    texts = list(CORPUS.values())
    scores = totals(model.count_errors([(reference, texts[row]) for row in rows])[0])
    order = sorted(range(len(rows)), key=lambda i: (scores[i], rows[i]))[:k]
    return [(rows[i], scores[i], int((scores == scores[i]).sum())) for i in order]


@pytest.mark.parametrize("k", [1, 3, 10])
def test_the_whole_corpus_is_brute_force(either, queries, k):
    found = rerank(either, queries, Words(), "all", k=k)
    table = found.table.to_pylist()
    assert [(r["query_id"], r["rank"]) for r in table] == [(q, rank) for q in TESTS for rank in range(1, k + 1)]
    wanted = [row for text in TESTS.values() for row in brute(Words(), text, range(len(CORPUS)), k)]
    assert [(r["row"], r["score"], r["n_ties"]) for r in table] == wanted
    assert all(r["exact"] and r["certified"] and not r["fallback"] for r in table)
    assert [r["text"] for r in table] == [list(CORPUS.values())[row] for row, *_ in wanted]
    assert [r["candidate_id"] for r in table] == [list(CORPUS)[row] for row, *_ in wanted]
    assert [r["nA"] + r["nB"] for r in table] == [score for _, score, _ in wanted]
    assert found.components == ["nA", "nB", "nC", "nD", "nE", "nF"]
    assert all(r["pool"] == len(CORPUS) for r in table)
    assert found.signature["pool"] == {"size": "all", "pairs": 3 * len({*CORPUS.values()})}
    assert found.oracle is None
    assert is_oracle(found.signature)


@pytest.mark.parametrize(("size", "k"), [(1, 1), (3, 1), (4, 4), (10, 2)])
def test_a_pool_is_brute_force_over_its_rows(either, queries, size, k):
    found = rerank(either, queries, Words(), f"bleu:{size}", k=k)
    ranked = mo.retrieve(either, queries, "bleu", k=size).table["row"].to_numpy().reshape(-1, size).tolist()
    wanted = [row for text, rows in zip(TESTS.values(), ranked, strict=True) for row in brute(Words(), text, rows, k)]
    table = found.table.to_pylist()
    assert [(r["row"], r["score"], r["n_ties"]) for r in table] == wanted
    whole = size == len(CORPUS)  # a pool may hold every row
    assert [r["certified"] for r in table] == [whole or r["score"] == 0 for r in table]
    assert all(r["exact"] == whole and r["pool"] == size for r in table)
    assert found.signature["pool"]["size"] == size
    assert found.signature["pool"]["lists"][0]["metric"] == "bleu-2"
    assert not is_oracle(found.signature)


def test_certified_answers_are_those_of_the_corpus(index, queries):
    whole = rerank(index, queries, Words(), "all").table
    pooled = rerank(index, queries, Words(), "bleu:2").table
    certified = pooled["certified"].to_numpy(zero_copy_only=False)
    assert 0 < certified.sum() < len(certified)
    best = whole["score"].to_numpy()
    assert np.array_equal(pooled["score"].to_numpy()[certified], best[certified])
    assert (pooled["score"].to_numpy() >= best).all()


def test_equal_texts_are_read_once(index, queries):
    model = Words()
    rerank(index, queries, model, "all")
    assert len(model.asked) == 3 * len({*CORPUS.values()})  # three distinct references


def test_an_audit_counts_a_planted_winner_outside_the_pool(index, queries):
    """`planted` has no word of the reference: every word metric ranks it last, and it is the best."""
    model = Words({TESTS["3"]: CORPUS["5"]})
    none = rerank(index, queries, Words(), "bleu:5", audit=4).signature["pool"]["audit"]
    assert (none["queries"], none["missed"], none["regret"]) == (4, 0, {"mean": 0.0, "max": 0.0})
    found = rerank(index, queries, model, "bleu:5", audit=4).signature["pool"]["audit"]
    ranked = mo.retrieve(index, queries.take(np.array([2])), "bleu", k=10).table["row"].to_pylist()
    place = 1 + min(ranked.index(0), ranked.index(2))  # two rows have that text
    assert place > 5
    assert found["missed"] == 1
    assert found["places"][-1] == place
    pooled = min(score for _, score, _ in brute(model, TESTS["3"], ranked[:5], 5))
    assert found["regret"] == {"mean": pooled / 4, "max": pooled}
    wanted = binomtest(3, 4).proportion_ci(0.95, "exact")
    recall = found["recall_at_1"]
    assert (recall["value"], recall["level"]) == (0.75, 0.95)
    assert (recall["low"], recall["high"]) == pytest.approx((wanted.low, wanted.high), abs=1e-12)
    reached = rerank(index, queries, model, f"bleu:{place}", audit=4).signature["pool"]["audit"]
    assert reached["missed"] == 0
    sizes = [rerank(index, queries, model, f"bleu:{size}", audit=4).signature["pool"]["audit"] for size in range(1, 11)]
    missed = [audit["missed"] for audit in sizes]
    assert missed == sorted(missed, reverse=True)  # a larger pool loses nothing
    assert missed[-1] == 0


def test_audited_queries_are_exact(either, queries):
    """Their whole corpus was scored: it is given, marked, and the others are of the pool."""
    model = Words({TESTS["3"]: CORPUS["5"]})
    whole = rerank(either, queries, model, "all", k=2).table.to_pylist()
    pooled = rerank(either, queries, model, "bleu:3", k=2).table.to_pylist()
    for seed in range(6):
        found = rerank(either, queries, model, "bleu:3", audit=2, seed=seed, k=2).table.to_pylist()
        audited = {r["query_id"] for r in found if r["exact"]}
        assert len(audited) == 2
        for row, of_whole, of_pool in zip(found, whole, pooled, strict=True):
            assert row == (of_whole if row["query_id"] in audited else of_pool)


def test_the_audit_draws_by_its_seed(index, queries):
    def audited(seed):
        table = rerank(index, queries, Words(), "bleu:1", audit=1, seed=seed).table.to_pylist()
        return next(r["query_id"] for r in table if r["exact"])

    assert audited(3) == audited(3)
    assert len({audited(seed) for seed in range(20)}) == 4


def test_the_recall_asked_for_chooses_the_pool(index, queries):
    model = Words({TESTS["3"]: CORPUS["5"]})
    places = rerank(index, queries, model, "bleu:1", audit=4).signature["pool"]["audit"]["places"]
    found = rerank(index, queries, model, "bleu", audit=4, recall=0.6)
    assert found.signature["pool"]["size"] == places[2]  # the ceil(5 x 0.6)-th
    audit = found.signature["pool"]["audit"]
    assert audit["asked_recall"] == 0.6
    assert audit["missed"] == 1  # the fourth
    assert "recall_at_1" not in audit  # of the queries that chose the pool it says nothing
    every = rerank(index, queries, model, "bleu", audit=4, recall=0.9)  # four cannot promise that
    assert every.signature["pool"]["size"] == "all"
    assert every.table == rerank(index, queries, model, "all").table


@pytest.mark.parametrize("block", [module.BLOCK, 3])
def test_pairs_that_are_cut_are_counted(index, queries, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)  # of several blocks, the notes are added up

    class Short(Words):
        def count_errors(self, pairs, *, progress=None):
            return super().count_errors(pairs)[0], sum(len(f"{a} {b}".split()) > 7 for a, b in pairs)

    found = rerank(index, queries, Short(), "all").signature["truncated_pairs"]
    distinct = dict.fromkeys(TESTS.values())
    assert found == sum(len(f"{a} {b}".split()) > 7 for a in distinct for b in CORPUS.values()) > 0
    assert "truncated_pairs" not in rerank(index, queries, Words(), "all").signature


def test_a_conformal_pool_holds():
    """The share of further queries whose place is in the pool is at least the recall, whatever the places are like."""
    rng = np.random.default_rng(5)
    for recall, m in ((0.5, 9), (0.8, 24), (0.9, 49), (0.95, 99)):
        for draw in (
            lambda n: np.ceil(rng.pareto(0.7, n) * 5 + 1).astype(np.int64),
            lambda n: rng.integers(1, 4, n),
            lambda n: np.where(rng.random(n) < 0.7, 1, rng.integers(2, 10_000, n)),
        ):
            runs = 3000
            held = 0
            for _ in range(runs):
                places = draw(m + 1)
                pool = conformal_pool(places[:m], recall)
                held += pool is None or places[m] <= pool
            assert held / runs >= recall - 3 * np.sqrt(recall * (1 - recall) / runs)


def test_a_conformal_pool_is_no_larger_than_it_must_be():
    places = np.arange(1, 100)
    assert conformal_pool(places, 0.95) == 95
    assert conformal_pool(places, 0.55) == 55  # 100 * 0.55 is a little more than 55
    assert conformal_pool(places, 0.951) == 96
    assert conformal_pool(places, 0.99) == 99
    assert conformal_pool(places, 0.991) is None
    assert conformal_pool(np.array([1]), 0.5) == 1
    assert conformal_pool(np.array([np.iinfo(np.int64).max, 3]), 0.6) is None  # not in any pool
    rng = np.random.default_rng(1)
    held = [(lambda p: p[-1] <= conformal_pool(p[:-1], 0.9))(rng.permutation(10_000)[:50]) for _ in range(4000)]
    assert np.mean(held) < 0.9 + 1 / 50 + 3 * np.sqrt(0.09 / 4000)


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (0, 40), (3, 40), (40, 40), (1, 1)])
def test_the_interval_is_exact(hits, n):
    wanted = binomtest(hits, n).proportion_ci(0.95, "exact")
    assert binomial_interval(hits, n) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"pool": "bleu:0", "k": 1},
            "pool must be all, or an int from 1 to 10 (reports that bleu-2 can score); got 0.",
        ),
        (
            {"pool": "bleu:11", "k": 1},
            "pool must be all, or an int from 1 to 10 (reports that bleu-2 can score); got 11.",
        ),
        ({"pool": "bleu:3", "k": 4}, "k must be an int from 1 to 3 (reports of the pool); got 4."),
        ({"pool": "all", "k": 11}, "k must be an int from 1 to 10 (reports of the pool); got 11."),
        ({"pool": "bleu:3", "k": True}, "SearchOptions: k must be an int of at least 1; got True."),
        (
            {"pool": "all", "audit": 2, "k": 1},
            "audit must be left out where the pool is the whole corpus; got 2. Leave out `audit`.",
        ),
        ({"pool": "bleu:3", "audit": 5, "k": 1}, "audit must be an int from 0 to 4 (test reports); got 5."),
        (
            {"pool": "bleu", "recall": 0.5, "k": 1},
            "recall must be given with `audit` and without the size of a pool; got no ",
        ),
        (
            {"pool": "bleu:3", "audit": 2, "recall": 0.5, "k": 1},
            "recall must be given with `audit` and without the size of a pool; got ",
        ),
    ],
)
def test_what_does_not_go_together(index, queries, given, line):
    with pytest.raises(InputError, match=f"^{re.escape(line)}"):
        rerank(index, queries, Words(), **given)


@pytest.mark.parametrize("pool", ["bleu:3", "all"])
@pytest.mark.parametrize(
    ("name", "value"), [("exclude", "self"), ("min_score", 0.5), ("where", "rouge-l>=0.5"), ("part", "1/2")]
)
def test_a_pool_is_not_restricted(index, queries, pool, name, value):
    """The audit scores the whole corpus, and the signature of a pool has no restriction."""
    options = mo.SearchOptions(**{name: value})
    match = f"^rerank: {name} must be left out for a pool; got a value. Leave out `{name}`"
    with pytest.raises(InputError, match=match):
        mo.rerank(index, queries, "crepe", crepe="none", pool=pool, options=options)


# ---- with a checkpoint, through the public function and the command --------------------------------------------------


@pytest.fixture(scope="module")
def crepe(tmp_path_factory):
    pytest.importorskip("torch")
    return write_tiny(tmp_path_factory.mktemp("model") / "crepe")


def test_with_a_checkpoint_the_whole_corpus_is_brute_force(index, queries, crepe):
    found = mo.rerank(index, queries, "crepe", crepe={"path": crepe, "device": "cpu"}, pool="all", k=10)
    model = Crepe(crepe, device="cpu")
    wanted = [row for text in TESTS.values() for row in brute(model, text, range(len(CORPUS)), 10)]
    table = found.table.to_pylist()
    assert [(r["row"], r["score"], r["n_ties"]) for r in table] == wanted
    assert found.signature["representation"] == {"crepe": {"encoder": model.signature}}
    counts, _ = model.count_errors([(TESTS["1"], r["text"]) for r in table[:10]])
    assert [[r[f"n{name}"] for name in "ABCDEF"] for r in table[:10]] == counts.tolist()


def test_counts_that_are_kept_are_not_made_again(index, queries, crepe, tmp_path, monkeypatch):
    found = mo.rerank(index, queries, "crepe", crepe=crepe, pool="bleu:3", keep=tmp_path / "kept")
    monkeypatch.setattr(Crepe, "count_errors", lambda *_, **__: pytest.fail("the model ran"))
    again = mo.rerank(index, queries, "crepe", crepe=crepe, pool="bleu:3", keep=tmp_path / "kept")
    assert again.table == found.table


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_the_command(oracle, tmp_path, index, queries, crepe, ending):
    tests, out = write(tmp_path / "test.csv", TESTS), tmp_path / f"best.{ending}"
    code, shown, err = oracle(
        "rerank", index.folder, tests, "-m", "crepe", "--crepe", crepe,
        "--pool", "rouge-l:4", "-k", "2", "--audit", "3", "--out", out
    )  # fmt: skip
    assert (code, shown) == (0, ""), err
    model = {"path": crepe, "device": "cpu"}
    wanted = mo.rerank(index, queries, "crepe", crepe=model, pool="rouge-l:4", k=2, audit=3)
    found = read_results(out)
    assert found.table.to_pylist() == wanted.table.to_pylist()
    assert found.components == wanted.components
    assert {**found.signature, "version": ""} == {**json.loads(json.dumps(wanted.signature)), "version": ""}
    row = read_system("pool", found)
    assert row.signature["system"] == "crepe of a pool"
    assert row.table["crepe"].to_pylist() == wanted.table["score"].to_pylist()[::2]
    # A pool has no exact search to be checked by.
    code, _, err = oracle("verify", index.folder, out, tests)
    assert code == 2
    assert "verify: metric must be one with an exact search; got 'crepe'" in err


def test_what_a_terminal_shows(oracle, tmp_path, index, crepe):
    tests = write(tmp_path / "test.csv", TESTS)
    common = ("rerank", index.folder, tests, "-m", "crepe", "--crepe", crepe, "--format", "table")

    def view(*words):
        code, shown, err = oracle(*common, *words)
        assert code == 0, err
        assert max(map(len, shown.splitlines()[:-1])) <= 80
        return " ".join(shown.split())

    shown = view("--pool", "bleu:4", "--audit", "2", "--components")
    assert shown.startswith("crepe, best of a pool 4 test reports, mean best score ")
    assert " 1 small left effusion " in shown
    assert "nA" in shown
    assert "pool: the first 4 under bleu-2; 19 distinct pairs; " in shown
    line = "; certified, as no score is below 0: 0 of 4 best answers, and 2 more, as the whole corpus was judged;"
    assert line in shown
    assert "An upper bound of the oracle under crepe: reports outside the pool were not scored." in shown
    assert re.search(r"audit of 2: \d without a best report in the pool, regret \d\.\d{4}, at most \d\.\d{4};", shown)
    assert re.search(r"recall \d+\.0%, 95 % interval \d+\.\d% to \d+\.\d%", shown)
    shown = view("--pool", "bleu:4")
    assert "what the pool misses is not known; --audit M measures it" in shown
    shown = view("--pool", "bleu", "--audit", "4", "--recall", "0.5")
    assert "for a further test report, the pool has a best report with probability 0.5" in shown
    shown = view("--pool", "all")
    assert shown.startswith("crepe oracle")
    assert "pool: the whole corpus, so the answers are exact" in shown


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--pool", "some"], "--pool must be METRIC:N or all; got 'some'. Pass radcliq:200."),
        (["--pool", "7"], "--pool must be METRIC:N or all; got '7'. Pass radcliq:200."),
        (["--pool", "all", "--weights", "w.json"], "--weights must be left out for a pool that is the whole "),
        (["--pool", "bleu:3", "--recall", "0.5", "--audit", "2"], "--recall must be given with --audit and without"),
        (["--pool", "bleu", "--recall", "0.5"], "--recall must be given with --audit and without"),
        (["--pool", "crepe:3"], "a metric of --pool must be one with an exact search; got 'crepe', "),
        (["--pool", "bleu:11"], "--pool must be all, or an int from 1 to 10 (reports that bleu-2 can score); got 11."),
        (["--pool", "bleu:3", "-k", "4"], "-k must be an int from 1 to 3 (reports of the pool); got 4."),
        (["--pool", "all", "--audit", "2"], "--audit must be left out where the pool is the whole corpus; got 2."),
        (["--pool", "bleu:3", "--idf", "tests"], "--idf must be left out for metric 'bleu-2'; got a value. Leave out"),
        (["--pool", "all", "--no-rescale"], "--rescale must be left out for a pool that is the whole corpus"),
        (["--pool", "bleu:3", "--crepe", "none"], "there is no file none. Check the name."),
        ([], "a metric of --pool must be one of "),  # RadCliQ, which the index does not hold
    ],
)  # fmt: skip
def test_wrong_use_of_the_command(oracle, tmp_path, index, crepe, words, line):
    tests = write(tmp_path / "test.csv", TESTS)
    outcome = oracle("rerank", index.folder, tests, "-m", "crepe", "--crepe", crepe, *words)
    assert_refused(outcome, f"rerank: {re.escape(line)}")  # and nothing was read before


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], r"oracle rerank: --metrics is missing\. See \"oracle rerank --help\"\.$"),
        (["-m", "crepe"], r"rerank: --crepe must name a checkpoint; got none\. Add --crepe FOLDER\.$"),
        (["-m", "bleu"], r"rerank: --metric must be one judge or crepe; got 'bleu'\. Search for the best under a "
                         r"metric with oracle retrieve, and name a judge in oracle\.toml\.$"),
        (["-m", "crepe,bleu"], r"rerank: --metric must be one judge or crepe; got 'crepe', 'bleu'\. Search"),
    ],
)  # fmt: skip
def test_without_a_judge(oracle, tmp_path, index, words, line):
    tests = write(tmp_path / "test.csv", TESTS)
    assert_refused(oracle("rerank", index.folder, tests, "--pool", "bleu:3", *words), line)


@pytest.mark.parametrize(
    ("metric", "more", "line"),
    [
        (
            [JUDGE, MIRRORED],
            {},
            r"^rerank: metric must have each judge once; got 'worth'\. Leave one out, or name it o",
        ),
        ([JUDGE, OTHER], {}, r"^rerank: metric must have one judge; got 2\. Make one call for each judge\.$"),
        (
            [JUDGE, "bleu"],
            {},
            r"^rerank: metric must be one judge or crepe; got 'bleu'\. Search for the best under a met",
        ),
        (
            [],
            {},
            r"^rerank: metric must be one judge or crepe; got 'none'\. Search for the best under a metric with `mo\.",
        ),
        (
            JUDGE,
            {"crepe": "none"},
            r"^rerank: crepe must be left out for the judge worth; got a value\. Leave out `crepe`",
        ),
        (
            JUDGE,
            {"keep": "K"},
            r"^rerank: keep must be left out for the judge worth; got a value\. Leave out `keep`\.$",
        ),
    ],
)
def test_one_judge_is_asked(index, metric, more, line):
    with pytest.raises(InputError, match=line):
        mo.rerank(index, TESTS, metric, pool="bleu:3", **more)


def test_a_composite_fitted_to_crepe_ranks_the_pool(oracle, tmp_path, index, crepe):
    """Scores of CREPE beside cheap metrics, a composite fitted to them, and the pool that it ranks."""
    tests = write(tmp_path / "test.csv", TESTS)
    texts = list(CORPUS.values())
    references = {str(i): text for i, text in enumerate([*TESTS.values()] * 5)}
    made = {str(i): texts[(3 * i + i // 4) % len(texts)] for i in range(len(references))}
    sides = write(tmp_path / "references.csv", references), write(tmp_path / "made.csv", made)
    scores, weights = tmp_path / "scores.csv", tmp_path / "weights.json"
    code, _, err = oracle("score", *sides, "-m", "bleu,rouge-l,crepe", "--crepe", crepe, "--out", scores)
    assert code == 0, err
    code, _, err = oracle(
        "fit-composite", scores, "-m", "bleu,rouge-l", "--errors", "crepe", "--study", "query_id", "--out", weights
    )
    assert code == 0, err
    out = tmp_path / "best.parquet"
    code, _, err = oracle(
        "rerank", index.folder, tests, "-m", "crepe", "--crepe", crepe,
        "--pool", "composite:3", "--weights", weights, "--out", out
    )  # fmt: skip
    assert code == 0, err
    found = read_results(out)
    ranked = (
        mo.retrieve(index, TESTS, "composite", k=3, options=mo.SearchOptions(weights=weights))
        .table["row"]
        .to_numpy()
        .reshape(-1, 3)
    )
    model = Crepe(crepe, device="cpu")
    wanted = [brute(model, text, rows, 1)[0][0] for text, rows in zip(TESTS.values(), ranked.tolist(), strict=True)]
    assert found.table["row"].to_pylist() == wanted
    assert found.signature["pool"]["lists"][0]["metric"] == "composite"
