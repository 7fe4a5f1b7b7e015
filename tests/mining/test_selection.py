"""Windows of ranks, limits of scores, margins, draws and parts of `mine`, against plain code on all pairs."""

import json
import random

import numpy as np
import polars as pl
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.mining import mine as module
from metric_oracle.mining import scored
from support import assert_refused

N = 80


def corpus() -> pl.DataFrame:
    rng = random.Random(3)
    usual = ["No acute process.", "no  acute process.", "small effusion", "clear"]
    texts = [rng.choice(usual) if rng.random() < 0.4 else " ".join(rng.choices("abcde", k=4)) for _ in range(N)]
    subjects = [rng.choice(["", *map(str, range(N // 6))]) for _ in range(N)]
    return pl.DataFrame({"study_id": [f"s{i}" for i in range(N)], "report": texts, "subject_id": subjects})


def vectors(texts):
    """Return a sentence vector for each word, so that `sentences`, of which lower is better, scores every pair."""
    pool = np.random.default_rng(7).standard_normal((13, 3)).round(2)
    return [{"vectors": [pool[(len(word) + ord(word[0])) % 13].tolist() for word in text.split()]} for text in texts]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("selection") / "SET"
    return mo.build_index(
        mo.reports(corpus(), sentences=vectors),
        folder,
        metrics="rouge-l,bleu-2,sentences",
        keep="subject_id",
        shard_rows=33,
    )


@pytest.fixture(scope="module")
def scores():
    texts = corpus()["report"].to_list()
    sides = [b for b in texts for _ in texts], [a for _ in texts for a in texts]
    every = {}
    for name in ("rouge-l", "bleu-2", "sentences"):
        pairs = mo.score(*(mo.reports(side, sentences=vectors) for side in sides), name)
        every[name] = pairs.table[name].to_numpy().reshape(N, N)
    return every


@pytest.fixture(scope="module")
def positives(index, tmp_path_factory):
    out = tmp_path_factory.mktemp("selection") / "positives.parquet"
    return mo.mine(index, "bleu-2", out, k=2, options=mo.SearchOptions(min_score=0.6)).path


def rows_of(path):
    table = parquet.read_table(path)
    return list(zip(*(table[x].to_pylist() for x in ("anchor_row", "candidate_row", "rank", "score")), strict=True))


def by_hand(matrix, allowed, selection, limit, k):
    """Return the lines of each anchor under each rule, and how many candidates each rule leaves out."""
    lines, out = [], dict.fromkeys(("range_min", "range_max", *limit, "listed", "rest"), 0)
    for anchor, row in enumerate(matrix):
        if any(np.isnan(values[anchor]) for values in limit.values()):
            continue
        order = [c for c in np.lexsort((np.arange(N), -row)) if allowed[anchor, c]]
        kept = []
        for rank, c in enumerate(order, 1):
            # what differs from a margin by rounding alone is worse by the margin
            broken = [name for name, values in limit.items() if row[c] > values[anchor] + 1e-12]
            if rank <= selection.range_min:
                out["range_min"] += 1
            elif selection.range_max is not None and rank > selection.range_max:
                out["range_max"] += 1
            elif broken:
                out[broken[0]] += 1
            else:
                kept.append((anchor, int(c), rank, row[c]))
        out["listed"] += min(len(kept), k)
        out["rest"] += len(kept) - min(len(kept), k)
        lines.append(kept)
    return lines, out


SELECTIONS = [
    {"range_min": 3, "max_score": 0.5},
    {"range_max": 20, "max_score": 0.7},
    {"absolute_margin": 0.2},
    {"relative_margin": 0.5, "range_min": 1},
    {"absolute_margin": 0.1, "relative_margin": 0.2, "max_score": 0.45, "range_max": 40},
    {"max_score": -1.0},
]


@pytest.mark.parametrize(
    ("k", "chosen"), [*((6, chosen) for chosen in SELECTIONS), (1, SELECTIONS[0]), (1, SELECTIONS[4])]
)
@pytest.mark.parametrize("metric", ["rouge-l", "sentences"])
def test_kept_candidates_are_those_of_brute_force(index, scores, positives, metric, chosen, k, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 19)
    monkeypatch.setattr(module, "MOST", 40)
    sign = -1 if metric == "sentences" else 1
    matrix, subjects = sign * scores[metric], corpus()["subject_id"].to_numpy()
    allowed = ~np.eye(N, dtype=bool) & ((subjects[:, None] != subjects) | (subjects == "")) & (scores["bleu-2"] < 0.9)
    limit = {}
    worst = np.full(N, np.nan)
    for anchor, row, *_ in rows_of(positives):
        worst[anchor] = np.nanmin([worst[anchor], matrix[anchor, row]])
    if "absolute_margin" in chosen:
        limit["absolute_margin"] = worst - chosen["absolute_margin"]
    if "relative_margin" in chosen:
        limit["relative_margin"] = worst - chosen["relative_margin"] * np.abs(worst)
    if limit:
        chosen = {**chosen, "positives": positives}
    if "max_score" in chosen:
        limit["max_score"] = np.full(N, sign * chosen["max_score"])
    selection = mo.Selection(**chosen)
    options = mo.SearchOptions(k=k, exclude="subject_id", where="bleu-2<0.9")
    found = mo.mine(index, metric, tmp_path / "p.parquet", selection=selection, options=options)
    lines, out = by_hand(matrix, allowed, selection, limit, k)
    kept = [(*line, sign * score) for *line, score in rows_of(found.path)]
    assert kept == [line for of_anchor in lines for line in of_anchor[:k]]
    anchors = len(lines)
    assert found.counts["anchors"] == found.skipped["anchors"] == anchors
    assert found.counts.get("without a positive", 0) == N - anchors
    asked = np.flatnonzero(~np.isnan(worst)) if "positives" in chosen else np.arange(N)
    same_subject = (subjects[asked, None] == subjects) & (subjects != "") & ~np.eye(N, dtype=bool)[asked]
    excluded = np.eye(N, dtype=bool)[asked] | same_subject
    expected = {
        "candidates": anchors * N,
        "exclude self": anchors,
        "exclude subject_id": int(same_subject.sum()),
        "where bleu-2<0.9": int((~excluded & (scores["bleu-2"][asked] >= 0.9)).sum()),
        **{name: out[name] for name in ("range_min", "range_max") if name in chosen},
        **{name: out[name] for name in limit},
        "after the k best": out["rest"],
        "listed": out["listed"],
    }
    assert {name: n for name, n in found.skipped.items() if name != "anchors"} == expected
    assert sum(expected.values()) == 2 * expected["candidates"]
    assert found.signature["skipped"] == found.skipped


TENTHS = 10


@pytest.fixture(scope="module")
def tenths(tmp_path_factory):
    """Return an index whose first report shares n words and sentences, n tenths of all, with the n-th of the others."""
    own = [f"w{i}" for i in range(TENTHS)]
    others = [[*own[:n], *(f"x{n}n{i}" for i in range(TENTHS - n))] for n in range(1, TENTHS)]
    texts = [" ".join(words) for words in (own, *others)]
    place = {word: i for i, word in enumerate(sorted({word for text in texts for word in text.split()}))}
    units = np.eye(len(place)).tolist()

    def of_words(texts):
        return [{"vectors": [units[place[word]] for word in text.split()]} for text in texts]

    reports = pl.DataFrame({"study_id": [f"{n}" for n in (TENTHS, *range(1, TENTHS))], "report": texts})
    folder = tmp_path_factory.mktemp("tenths") / "I"
    return mo.build_index(mo.reports(reports, sentences=of_words), folder, metrics="rouge-l,sentences")


@pytest.mark.parametrize("worst", [3, 6, 7, 8, 9])
@pytest.mark.parametrize("metric", ["rouge-l", "sentences"])
def test_a_score_exactly_at_a_limit_is_kept(tenths, metric, worst, tmp_path):
    """All scores are tenths. Limits are decimals, as people type them, and what they keep follows from integers."""
    is_higher = metric == "rouge-l"
    anchor = [f"{TENTHS}"]

    def mined(least, **chosen):
        # the distance of sentences is 1 - n / 10
        score = mo.mine(tenths, metric, tmp_path / "all.parquet", k=TENTHS, anchors=anchor)
        score = dict(
            zip(*(parquet.read_table(score.path)[x].to_pylist() for x in ("candidate_id", "score")), strict=True)
        )
        options = mo.SearchOptions(k=TENTHS, min_score=score[f"{least}"])
        out = tmp_path / "found.parquet"
        found = mo.mine(tenths, metric, out, anchors=anchor, options=options, selection=mo.Selection(**chosen))
        ids = parquet.read_table(out)["candidate_id"].to_pylist()
        assert found.skipped["listed"] == len(ids)
        assert found.skipped["min_score"] == least - 1
        assert sum(n for name, n in found.skipped.items() if name not in ("anchors", "candidates")) == TENTHS
        return sorted(map(int, ids))

    assert mined(worst) == [*range(worst, TENTHS)]
    positives = (tmp_path / "found.parquet").rename(tmp_path / "positives.parquet")
    for n in range(1, worst):
        absolute = mined(1, positives=positives, absolute_margin=float(f"0.{n}"))
        assert absolute == [*range(1, worst - n + 1)]
        # a share of the positive's score, n tenths or n tenths more of the distance
        value = worst if is_higher else TENTHS - worst
        relative = mined(1, positives=positives, relative_margin=n / value)
        assert relative == [*range(1, worst - n + 1)]


def test_draws_are_of_the_window_and_repeat(index, scores, tmp_path, monkeypatch):
    drawn = {}
    for seed, block in ((1, 19), (1, 80), (2, 80)):
        monkeypatch.setattr(module, "BLOCK", block)
        selection = mo.Selection(range_min=2, range_max=30, max_score=0.6, sampling_strategy="random", seed=seed)
        found = mo.mine(index, "rouge-l", tmp_path / f"{seed}-{block}.parquet", k=4, selection=selection)
        drawn[seed, block] = rows_of(found.path)
    assert drawn[1, 19] == drawn[1, 80] != drawn[2, 80]
    limit = {"max_score": np.full(N, 0.6)}
    lines, out = by_hand(scores["rouge-l"], ~np.eye(N, dtype=bool), selection, limit, 4)
    possible = dict(enumerate(lines))
    for of_seed in drawn.values():
        for anchor in range(N):
            of_anchor = [line for line in of_seed if line[0] == anchor]
            assert len(of_anchor) == min(4, len(possible[anchor]))
            assert of_anchor == sorted(set(of_anchor), key=lambda line: line[2])
            assert set(of_anchor) <= set(possible[anchor])
    assert found.skipped["not drawn"] == out["rest"]
    ranks = [rank for _, _, rank, _ in drawn[1, 80]]
    assert np.mean(ranks) > np.mean([rank for of_anchor in lines for _, _, rank, _ in of_anchor[:4]]) + 2


@pytest.mark.parametrize("more", [{}, {"min_score": 1.9}, {"absolute_margin": 0.1}])
def test_parts_are_joined_to_the_file_of_one_run(index, positives, oracle, tmp_path, monkeypatch, more):
    """Some parts have no pairs under a least score that no pair reaches. Anchors without a positive have no margin."""
    monkeypatch.setattr(module, "BLOCK", 11)
    monkeypatch.setattr(scored, "PAIRS", 5 * N)
    monkeypatch.setattr(scored, "LEAST", 1)
    margin = {"selection": mo.Selection(positives=positives, **more)} if "absolute_margin" in more else {}
    given = {"k": 3, "exclude": "text", **({} if margin else more)}
    whole = mo.mine(index, "rouge-l", tmp_path / "whole.parquet", options=mo.SearchOptions(**given), **margin)
    parts = []
    for place in (3, 1, 2):
        parts.append(tmp_path / f"{place}.parquet")
        found = mo.mine(index, "rouge-l", parts[-1], options=mo.SearchOptions(**given, part=f"{place}/3"), **margin)
        assert found.counts["anchors"] == found.signature["part"]["anchors"] < N
    merged = mo.merge_mined(parts, tmp_path / "merged.parquet")
    assert merged.path.read_bytes() == whole.path.read_bytes()
    assert (merged.counts, merged.quantiles, merged.skipped) == (whole.counts, whole.quantiles, whole.skipped)
    assert (0 < whole.counts.get("without a positive", 0) < N) == bool(margin)
    assert margin or whole.skipped["anchors"] == 5
    out = tmp_path / "command.parquet"
    code, printed, err = oracle("merge", *parts, "--out", out)
    assert (code, err) == (0, f"{out}: {whole.summary()}\n")
    assert out.read_bytes() == whole.path.read_bytes()
    assert max(map(len, printed.splitlines())) <= 80
    for wrong, line in (
        (parts[:2], r"parts must be all of 1/3 to 3/3, each once; got 1/3, 3/3\. Mine the others, too\."),
        ([*parts, parts[0]], "parts must be all of 1/3 to 3/3, each once"),
        ([whole.path], r"parts must be of one search by `mo\.mine`; got files that differ in part"),
        ([], "parts must be at least one file; got none"),
    ):
        with pytest.raises(mo.MetricOracleError, match=line):
            mo.merge_mined(wrong, tmp_path / "x.parquet")
    other = mo.mine(index, "rouge-l", tmp_path / "o.parquet", options=mo.SearchOptions(**{**given, "k": 2}, part="1/3"))
    with pytest.raises(mo.MetricOracleError, match=r"parts must be of one search by `mo\.mine`; got files that differ"):
        mo.merge_mined([other.path, *parts[1:]], tmp_path / "x.parquet")
    wanted = "merge: parts must be of one search by oracle mine; got files that differ"
    assert_refused(oracle("merge", other.path, *parts[1:], "--out", tmp_path / "x.parquet"), wanted)


def test_the_command_takes_a_selection(index, positives, oracle, tmp_path):
    out = tmp_path / "pairs.parquet"
    given = ("--range-min", 1, "--range-max", 30, "--positives", positives, "--absolute-margin", 0.1)
    draw = ("--relative-margin", 0.2, "--max-score", 0.7, "--sampling-strategy", "random", "--seed", 5)
    search = ("-m", "rouge-l", "-k", 2, "--part", "1/1")
    code, printed, err = oracle("mine", index.folder, *search, *given, *draw, "--out", out)
    selection = mo.Selection(1, 30, 0.7, positives, 0.1, 0.2, "random", 5)
    options = mo.SearchOptions(k=2, part="1/1")
    found = mo.mine(index, "rouge-l", tmp_path / "p.parquet", selection=selection, options=options)
    assert (code, err) == (0, f"{out}: {found.summary()}\n")
    assert out.read_bytes() == found.path.read_bytes()
    shown = dict(line.split("  ", 1) for line in printed.splitlines() if "%" in line)
    assert [name.strip() for name in shown] == [*found.skipped][2:]
    assert max(map(len, printed.splitlines())) <= 80
    code, printed, _ = oracle("mine", index.folder, *search, "--out", out, "--format", "jsonl")
    assert json.loads(printed)["sample: candidates"] == N * N


@pytest.mark.parametrize(
    ("chosen", "line"),
    [
        ({"range_max": 3}, r"range_max must be an int of at least 4 \(`range_min` \+ `k`\); got 3"),
        ({"max_score": True}, "max_score must be a number; got True"),
        ({"absolute_margin": -0.1}, "absolute_margin must be a number of at least 0; got -0.1"),
        ({"relative_margin": 0.1}, "positives must be given with a margin, and only then; got None"),
        ({"positives": "p.parquet"}, "positives must be given with a margin, and only then; got no margin"),
        ({"positives": "p.parquet", "absolute_margin": 0.1}, "positives must be an existing file; got p.parquet"),
        ({"sampling_strategy": "best"}, "sampling_strategy must be one of top, random; got 'best'"),
        ({"sampling_strategy": "random"}, "range_max must be given for random sampling; got None"),
        ({"seed": -1}, "seed must be an int of at least 0; got -1"),
    ],
)
def test_wrong_selections(index, chosen, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mo.MetricOracleError, match=line):
        mo.mine(index, "rouge-l", "q.parquet", k=4, selection=mo.Selection(**chosen))


def test_wrong_parts_and_positives_of_another_index(index, positives, tmp_path):
    for part in ("3/2", "1/4000", "x"):
        with pytest.raises(mo.MetricOracleError, match="part must be I/N, I from 1 to N and N at most the 3 blocks"):
            mo.mine(index, "rouge-l", tmp_path / "q.parquet", options=mo.SearchOptions(part=part))
    other = mo.build_index(["a b", "a c"], tmp_path / "OTHER", metrics="rouge-l")
    selection = mo.Selection(positives=positives, absolute_margin=0.1)
    with pytest.raises(mo.MetricOracleError, match="positives must be mined in the index that is searched"):
        mo.mine(other, "rouge-l", tmp_path / "q.parquet", selection=selection)
    options = mo.SearchOptions(min_score=2)
    selection = mo.Selection(
        positives=mo.mine(index, "bleu-2", tmp_path / "none.parquet", options=options).path, absolute_margin=0.1
    )
    with pytest.raises(mo.MetricOracleError, match=r"positives must have a pair; got .*none\.parquet, which is empty"):
        mo.mine(index, "rouge-l", tmp_path / "q.parquet", selection=selection)
