"""Rerank by any judge: the pooled oracle equals the exact one where the pool has it, and costs what it says."""

import re
import sys

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.findings.results import read_results
from metric_oracle.findings.views import pool_lines
from metric_oracle.pools import rerank as module
from metric_oracle.pools.candidate_pools import planned_pool
from metric_oracle.scores.baselines import drawn_rows
from metric_oracle.tables.systems import is_oracle
from support import assert_refused, write

WORDS = ("no", "acute", "small", "effusion", "edema", "left", "stable", "heart")
RNG = np.random.default_rng(4)
CORPUS = {str(i): " ".join(RNG.choice(WORDS, RNG.integers(2, 6))) for i in range(60)}
TESTS = {f"t{i}": " ".join(RNG.choice(WORDS, RNG.integers(2, 6))) for i in range(9)} | {"t9": "no acute edema"}
TESTS["t8"] = TESTS["t0"]  # equal texts
SCRIPT = """
import json, sys
def common(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        last = 0
        for j, y in enumerate(b):
            row[j + 1], last = (last + 1 if x == y else max(row[j + 1], row[j])), row[j + 1]
    return row[-1]
for line in sys.stdin:
    pair = json.loads(line)
    a, b = pair["reference"].split(), pair["candidate"].split()
    n = common(a, b)
    p, r = n / len(b), n / len(a)
    print(json.dumps({"pair": pair["pair"], "score": 2 * p * r / (p + r) if n else 0.0, "common": n}), flush=True)
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    return mo.build_index(CORPUS, folder / "INDEX", metrics="bleu,rouge-l,jaccard:2")


@pytest.fixture
def command(tmp_path):
    (tmp_path / "judge.py").write_text(SCRIPT, encoding="utf-8")
    return f"{sys.executable} {tmp_path / 'judge.py'}"


class Counted:
    """A judge that counts words in common; it notes what it is asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, pairs):
        self.asked += pairs
        return [len({*a.split()} & {*b.split()}) - 0.1 * abs(len(a) - len(b)) for a, b in pairs]

    def named(self, **options):
        """Return the judge for the metric of a call."""
        return mo.judge(self, **{"name": "words", "direction": "higher", **options})


def test_the_pooled_oracle_is_the_exact_one_where_the_pool_has_it(index, command):
    """The judge is ROUGE-L itself, computed by a script."""
    exact = mo.retrieve(index, TESTS, "rouge-l", k=3)
    found = mo.rerank(
        index, TESTS, mo.judge(command, direction="higher", best=1), pool="rouge-l:20,bleu:5,random:5", k=3
    )
    assert found.table["score"].to_numpy() == pytest.approx(exact.table["score"].to_numpy(), abs=1e-12)
    first = found.table["rank"].to_numpy() == 1
    assert found.oracle.reports["best"].to_numpy() == pytest.approx(found.table["score"].to_numpy()[first], abs=0)
    certified = found.table["certified"].to_numpy(zero_copy_only=False)
    assert certified.tolist() == (found.table["score"].to_numpy() == 1).tolist()
    assert certified.any()
    assert not is_oracle(found.signature)
    assert found.components == ["common"]
    assert found.signature["judge"] == {
        "name": "judge", "version": "", "direction": "higher", "best": 1.0, "judge": "command",
    }  # fmt: skip
    lists = {row["list"]: row for row in found.oracle.lists.to_pylist()}
    assert lists["rouge-l"]["has_best"] == 1.0
    assert lists["rouge-l"]["tau"] > 0.9


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_pool_is_brute_force_over_its_rows(index, direction):
    text, k, seed = "bleu:4,rouge-l:6,random:3", 2, 5
    judge = Counted()
    found = mo.rerank(index, TESTS, judge.named(direction=direction), pool=text, k=k, seed=seed)
    pools = planned_pool(index, text, mo.SearchOptions(k=k), seed=seed).rows(mo.reports(TESTS).load())
    rows = iter(found.table.to_pylist())
    texts = [*CORPUS.values()]
    for reference, pool in zip(TESTS.values(), pools, strict=True):
        scores = dict(zip(pool.rows.tolist(), Counted()([(reference, texts[row]) for row in pool.rows]), strict=True))
        order = sorted(scores, key=lambda row: (-scores[row] if direction == "higher" else scores[row], row))[:k]
        for row in order:
            answer = next(rows)
            assert (answer["row"], answer["score"], answer["pool"]) == (row, scores[row], len(scores))
            assert answer["n_ties"] == [*scores.values()].count(scores[row])
            assert not answer["exact"]
    assert len(judge.asked) == len({*judge.asked}) == found.signature["pool"]["pairs"]


@pytest.mark.parametrize("k", [1, 2])
def test_certified_answers_where_lower_is_better(k, tmp_path):
    """A judge of errors and its mirror certify the same answers: those that reach 0, in the table and in each line."""
    twice = {str(i): text for i, text in enumerate(2 * [*TESTS.values()][:4])}  # both copies are certified
    index = mo.build_index({**twice, **{f"c{i}": text for i, text in CORPUS.items()}}, tmp_path / "I", metrics="bleu")

    def errors(pairs):
        return [float(len({*a.split()} ^ {*b.split()})) for a, b in pairs]

    def hits(pairs):
        return [-number for number in errors(pairs)]

    lower, higher = (
        mo.rerank(index, TESTS, mo.judge(judge, direction=direction, best=0), pool="bleu:4,random:2", k=k)
        for judge, direction in ((errors, "lower"), (hits, "higher"))
    )
    scores = lower.table["score"].to_numpy()
    assert lower.table["row"].equals(higher.table["row"])
    assert (scores == -higher.table["score"].to_numpy()).all()
    certified = scores[::k] == 0
    assert 0 < certified.sum() < len(TESTS)
    assert k == 1 or (scores[1::k] == 0).any()
    for found, beyond in ((lower, "below"), (higher, "above")):
        assert found.table["certified"].to_pylist() == (scores == 0).tolist()
        assert found.oracle.reports["certified"].to_pylist() == certified.tolist()
        notes = found.oracle.tables()[-1].notes
        assert f"Certified: {certified.sum()} of {len(TESTS)} test reports reach 0, the best score." in notes
        line = f"certified, as no score is {beyond} 0: {certified.sum()} of {len(TESTS)} best answers"
        assert line in pool_lines(found)


def test_a_pool_of_all_reports_is_certified_and_does_not_reach_the_best_score(tmp_path):
    def errors(pairs):
        return [float(len({*a.split()} ^ {*b.split()})) for a, b in pairs]

    index = mo.build_index(["no acute process", "small effusion", "mild edema"], tmp_path / "I", metrics="bleu")
    for pool in ("bleu:3", "bleu:2,random:1"):
        judge = mo.judge(errors, direction="lower", best=0)
        found = mo.rerank(index, ["no edema today", "small effusion"], judge, pool=pool)
        is_whole = [n == 3 for n in found.table["pool"].to_pylist()]
        assert found.table["exact"].to_pylist() == is_whole
        assert found.table["certified"].to_pylist() == [is_whole[0], True]
        assert found.oracle.reports["certified"].to_pylist() == [is_whole[0], True]
        notes = found.oracle.tables()[-1].notes
        assert "Certified: 1 of 2 test reports reach 0, the best score." in notes
        more = ", and 1 more, as the whole corpus was judged" if is_whole[0] else ""
        assert f"certified, as no score is below 0: 1 of 2 best answers{more}" in pool_lines(found)


def test_a_pool_has_the_lists_by_their_places_and_random_rows(index):
    queries = mo.reports(TESTS).load()
    lists = {name: mo.retrieve(index, TESTS, name, k=4).table["row"].to_numpy().reshape(-1, 4) for name in
             ("bleu", "rouge-l")}  # fmt: skip
    pools = planned_pool(index, "bleu:4,rouge-l:4,random:6", mo.SearchOptions(), seed=1).rows(queries)
    for q, pool in enumerate(pools):
        both = [list_[q].tolist() for list_ in lists.values()]
        wanted = [*dict.fromkeys(row for pair in zip(*both, strict=True) for row in pair)]
        assert pool.listed.tolist() == wanted
        assert pool.places.tolist() == [[of.index(row) + 1 if row in of else 0 for row in wanted] for of in both]
        assert pool.drawn.tolist() == drawn_rows(np.arange(60), len(pools), 1, 6)[q].tolist()
    again = planned_pool(index, "random:6", mo.SearchOptions(), seed=1).rows(queries)
    assert [pool.drawn.tolist() for pool in again] == [pool.drawn.tolist() for pool in pools]
    other = planned_pool(index, "random:6", mo.SearchOptions(), seed=2).rows(queries)
    assert [pool.drawn.tolist() for pool in other] != [pool.drawn.tolist() for pool in pools]


def test_scores_of_the_lists_are_those_of_the_metrics(index):
    queries = mo.reports(TESTS).load()
    pool = planned_pool(index, "bleu:3,rouge-l:3", mo.SearchOptions())
    rows = [of_query.listed for of_query in pool.rows(queries)]
    texts = [*CORPUS.values()]
    for reference, of_query, scores in zip(TESTS.values(), rows, pool.scores(queries, rows), strict=True):
        for m, name in enumerate(("bleu", "rouge-l")):
            wanted = [mo.compute(predictions=[texts[row]], references=[reference], metrics=name) for row in of_query]
            assert scores[m].tolist() == [next(iter(each.values())) for each in wanted]


def test_an_audit_under_any_judge(index):
    """Audited answers are exact; the pool's regret is how much better the corpus is."""
    whole = mo.rerank(index, TESTS, Counted().named(), pool="all")
    judge = Counted()
    found = mo.rerank(index, TESTS, judge.named(), pool="bleu:2,rouge-l:2", audit=len(TESTS))
    assert found.table.drop_columns("pool").equals(whole.table.drop_columns("pool"))
    assert is_oracle(whole.signature)
    audit = found.signature["pool"]["audit"]
    pooled = mo.rerank(index, TESTS, Counted().named(), pool="bleu:2,rouge-l:2")
    loss = whole.table["score"].to_numpy() - pooled.table["score"].to_numpy()
    assert audit["regret"] == pytest.approx({"mean": loss.mean(), "max": loss.max()})
    assert audit["missed"] == int((loss > 0).sum()) > 0
    assert found.oracle.reports["best"].equals(pooled.oracle.reports["best"])  # of the pool alone
    assert len(judge.asked) == len({*judge.asked})


def test_a_query_with_the_text_of_an_audited_one_is_judged_once(index):
    for seed in range(8):
        judge = Counted()
        found = mo.rerank(index, TESTS, judge.named(), pool="bleu:3", audit=3, seed=seed)
        assert len(judge.asked) == len({*judge.asked}) == found.signature["pool"]["pairs"]


def test_blocks_do_not_change_the_answers(index, monkeypatch):
    one = mo.rerank(index, TESTS, Counted().named(), pool="bleu:3,random:4", audit=2)
    monkeypatch.setattr(module, "BLOCK", 10)
    other = mo.rerank(index, TESTS, Counted().named(), pool="bleu:3,random:4", audit=2)
    assert one.table == other.table
    assert one.signature == other.signature


def test_what_is_kept_is_not_asked_again(index, tmp_path):
    judge, said, steps = Counted(), [], []
    kept = judge.named(keep=tmp_path / "kept")
    first = mo.rerank(index, TESTS, kept, pool="bleu:5", tell=said.append)
    n = len(judge.asked)
    again = mo.rerank(index, TESTS, kept, pool="bleu:5", tell=said.append, progress=lambda *step: steps.append(step))
    assert len(judge.asked) == n
    assert again.table == first.table
    assert steps[-1] == ("rerank", n, n)
    mo.rerank(index, TESTS, kept, pool="bleu:5,rouge-l:5", tell=said.append)
    assert len(judge.asked) == len({*judge.asked}) > n
    assert said == [
        f"words: {n} distinct pairs to judge",
        f"words: 0 distinct pairs to judge, and {n} that are kept",
        f"words: {len(judge.asked) - n} distinct pairs to judge, and {n} that are kept",
    ]
    line = r"^rerank: most of the judge words must be at least \d+, the pairs to judge; got 3\. Judge fewer, or .*\.$"
    with pytest.raises(InputError, match=line):
        mo.rerank(index, TESTS, judge.named(keep=tmp_path / "kept", most=3), pool="random:50")


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_by_files(oracle, named, tmp_path, index, ending):
    """The pairs are written, judged elsewhere in two parts, and read back."""
    tests, pairs, pool = write(tmp_path / "test.csv", TESTS), tmp_path / f"pairs.{ending}", "bleu:4,rouge-l:4,random:3"
    code, _, err = oracle("pool", index.folder, tests, "--pool", pool, "--out", pairs)
    assert code == 0, err
    table = mo.pool(index, TESTS, pool=pool).table
    assert f"{pairs}: {table.num_rows} distinct pairs" in err
    assert len({*zip(table["reference"].to_pylist(), table["candidate"].to_pylist(), strict=True)}) == table.num_rows
    whole = mo.rerank(index, TESTS, Counted().named(), pool=pool)
    assert whole.signature["pool"]["pairs"] == table.num_rows
    first = table.slice(0, 20)
    one = judged(first, tmp_path / "one.csv")
    named("words", kind="judges", files=str(one), direction="higher")
    common = (index.folder, tests, "-m", "words", "--pool", pool)
    line = (
        rf"rerank: files of the judge words must have a score for each pair; got none for {table.num_rows - 20} of "
        rf"{table.num_rows}, such as pair [0-9a-f]{{64}}\. Have the others judged, and "
        r"add their file: oracle pool with the judge as metric writes those of a pool, "
    )
    assert_refused(oracle("rerank", *common), line, notes=".*")
    code, _, err = oracle("pool", *common, "--out", pairs)
    assert code == 0, err
    assert f"{pairs}: {table.num_rows - 20} distinct pairs; 20 others are judged" in err
    rest = mo.pool(index, TESTS, mo.judge(files=one, direction="higher"), pool=pool).table
    assert rest["pair"].to_pylist() == table["pair"].to_pylist()[20:]
    out = tmp_path / "best.parquet"
    two = judged(rest, tmp_path / "two.csv")
    named("words", kind="judges", files=[str(one), str(two)], direction="higher")
    code, _, err = oracle("rerank", *common, "--out", out)
    assert code == 0, err
    assert read_results(out).table == whole.table


def test_pairs_that_are_kept_are_not_written(oracle, named, tmp_path, index):
    """Of a larger pool, those pairs are left to judge elsewhere that a folder does not have; then nothing is left."""
    tests, pairs, kept = write(tmp_path / "test.csv", TESTS), tmp_path / "pairs.csv", tmp_path / "kept"
    of_folder = Counted().named(version="1", keep=kept)
    small = mo.rerank(index, TESTS, of_folder, pool="bleu:4")
    n_kept, every = small.signature["pool"]["pairs"], mo.pool(index, TESTS, pool="bleu:9").table
    common = ("pool", index.folder, tests, "-m", "words", "--pool", "bleu:9", "--out", pairs)
    named("words", kind="judges", direction="higher", keep=kept, version="1")
    code, _, err = oracle(*common)
    assert code == 0, err
    assert f"{pairs}: {every.num_rows - n_kept} distinct pairs; {n_kept} others are judged" in err
    named("words", kind="judges", direction="higher", keep=kept)  # of another version
    code, _, err = oracle(*common)
    assert code == 0, err
    assert err.endswith(f"{pairs}: {every.num_rows} distinct pairs\n")
    rest = judged(mo.pool(index, TESTS, of_folder, pool="bleu:9").table, tmp_path / "rest.csv")
    of_file = mo.judge(files=rest, name="words", direction="higher", version="1", keep=kept)
    found = mo.rerank(index, TESTS, of_file, pool="bleu:9")
    whole = mo.rerank(index, TESTS, Counted().named(), pool="bleu:9")
    assert found.table == whole.table
    assert mo.pool(index, TESTS, of_folder, pool="bleu:9").table.num_rows == 0


def judged(table, path):
    """Write the pairs of a table with the scores of `Counted`, without their texts, and return the path."""
    scores = Counted()([*zip(table["reference"].to_pylist(), table["candidate"].to_pylist(), strict=True)])
    return write(path, zip(table["pair"].to_pylist(), scores, strict=True), ("pair", "score"))


def test_ranks_in_a_file_of_pairs(index):
    table = mo.pool(index, TESTS, pool="bleu:4,rouge-l:2,random:2").table
    assert table.column_names[-2:] == ["rank.bleu-2", "rank.rouge-l"]
    of_first = [row for row in table.to_pylist() if row["query_id"] == "t1"]
    ranked = mo.retrieve(index, TESTS, "bleu", k=4).table.to_pylist()
    of_list = {row["row"]: row["rank"] for row in ranked if row["query_id"] == "t1"}
    known = {row["row"]: row["rank.bleu-2"] for row in of_first if row["rank.bleu-2"] is not None}
    assert known.items() <= of_list.items()
    assert {CORPUS[str(row)] for row in known} == {CORPUS[str(row)] for row in of_list}
    assert mo.pool(index, TESTS, pool="all").table.num_rows == len({*TESTS.values()}) * len({*CORPUS.values()})


def test_the_command_with_a_judge(oracle, named, tmp_path, index, command):
    tests, out, plot = write(tmp_path / "test.csv", TESTS), tmp_path / "best.csv", tmp_path / "curve.svg"
    named("lcs", kind="judges", command=command, direction="higher", best=1, keep=tmp_path / "kept", seconds_per_pair=2)
    common = ("rerank", index.folder, tests, "-m", "lcs", "--pool", "bleu:3,random:2")
    code, _, err = oracle(*common, "--out", out, "--plot", plot)
    assert code == 0, err
    assert re.search(r"lcs: \d+ distinct pairs to judge; about \d+ s\n|min\n", err)
    assert "a lower bound of the oracle under lcs" in err
    assert plot.read_text().startswith("<?xml")
    code, shown, err = oracle(*common, "--format", "table")
    assert code == 0, err
    assert re.search(r"lcs: 0 distinct pairs to judge, and \d+ that are kept; about 0 s", err)
    shown = " ".join(shown.split())
    assert shown.startswith("lcs, best of a pool")
    assert "pool: the first 3 under bleu-2, 2 at random; " in shown
    assert "certified, as no score is above 1: " in shown
    outcome = oracle(*common[:-1], "all", "--plot", plot)
    assert_refused(outcome, r"rerank: --plot must be given for a pool, not the whole corpus; got one", notes=".*")


@pytest.mark.parametrize(
    ("pool", "line"),
    [
        ("bleu:3,bleu:4", r"pool must have each list once; got 'bleu' twice\. Leave one out\.$"),
        ("bleu:3,rouge-l", r"pool must be METRIC:N or all; got 'bleu:3,rouge-l'\. Pass radcliq:200\.$"),
        ("random:0", r"pool random must be an int from 1 to 60 \(reports of the corpus\); got 0\."),
        ("bleu:3,random:61", r"pool random must be an int from 1 to 60 \(reports of the corpus\); got 61\."),
        ("bleu:3,rouge-l:99", r"pool must be all, or an int from 1 to 60 \(reports that rouge-l can score\); got 99\."),
        ("bleu:3,nothing:4", r"a metric of `pool` must be one of those that `mo\.list_metrics` lists; got 'nothing'"),
        ("bleu:1,rouge-l:1", r"k must be an int from 1 to 1 \(reports of the pool\); got 2\."),
    ],
)
def test_pools_that_are_wrong(index, pool, line):
    with pytest.raises(InputError, match=f"^rerank: {line}"):
        mo.rerank(index, TESTS, Counted().named(), pool=pool, k=2)


def test_random_rows_have_no_options(index):
    line = r"^rerank: rescale must be left out for a pool without lists; got a value"
    options = mo.SearchOptions(rescale=False)
    with pytest.raises(InputError, match=line):
        mo.rerank(index, TESTS, Counted().named(), pool="random:3", options=options)


def test_an_option_of_no_list_is_refused(index):
    options = mo.SearchOptions(idf="tests")
    with pytest.raises(InputError, match=r"^pool: idf must be left out for metric 'bleu-2'; got a value"):
        mo.pool(index, TESTS, pool="bleu:3,rouge-l:3", options=options)
