"""Pages of files that were made with a judge: they say that a pool bounds the oracle, and that chance is estimated."""

import csv
import io
import math
from html import unescape

import pytest

import metric_oracle as mo
from metric_oracle.explorer.cases import read_cases
from metric_oracle.explorer.report import write_report
from metric_oracle.findings.signature import short_signature
from support.pages import client_of

NAME = "<i>org/judge</i> $\\frac"  # no formula for Matplotlib, no markup for a page
POOL = "bleu:3,rouge-l:2,random:2"


def common(pairs):
    """Return the share of common words of each pair."""
    words = [({*reference.split()}, {*candidate.split()}) for reference, candidate in pairs]
    return [{"score": len(a & b) / max(1, len(a | b)), "common": len(a & b)} for a, b in words]


@pytest.fixture(scope="module")
def judged(prepared):
    """Write a reranked pool, chance, and scores of the test reports themselves, all under a judge."""
    judge = mo.judge(common, name=NAME, direction="higher", best=1)
    files = [prepared.folder / f"judged-{name}.parquet" for name in ("pool", "chance", "model")]
    texts = dict(zip(prepared.queries.ids, prepared.queries.texts, strict=True))
    mo.rerank(prepared.index, prepared.queries, judge, pool=POOL).write(files[0])
    mo.expectation(prepared.index, prepared.queries, ["bleu", judge], draws=4).write(files[1])
    mo.score(prepared.folder / "TESTS", texts, ["bleu", judge], system="copy").write(files[2])
    return files


@pytest.fixture(scope="module")
def cases(prepared, judged):
    return read_cases([*judged, *prepared.files], prepared.index, prepared.queries)


@pytest.fixture(scope="module")
def client(cases):
    return client_of(cases)


def test_pages_say_that_a_pool_is_a_bound(client, cases):
    pool = cases.joined[0]
    n, certified = len(cases.ids), sum(pool.table["certified"].to_pylist())
    for page in (client.get("/").text, client.get("/systems").text):
        assert NAME not in page
        text = unescape(page)
        assert f"{NAME} of a pool" in text
        assert f"a lower bound of the oracle under {NAME}, as reports outside the pool were not scored; " in text
        assert f"2 at random; {pool.signature['pool']['pairs']} distinct pairs; certified, " in text
        assert f"as no score is above 1: {certified} of {n} best answers" in text


def test_pages_say_that_chance_is_estimated(client, cases):
    text = unescape(client.get("/systems").text)
    sampled = cases.joined[1].signature["sampled"]
    assert "estimated from 4 random ones each" in text
    assert f"; {sampled['pairs']} pairs were judged; without the correction by the exact means of bleu-2 " in text
    picture = client.get("/systems/chance-1.svg")
    assert picture.status_code == 200
    assert "x 4 random reports" in picture.text


def test_a_pool_is_no_oracle_and_a_certified_report_is_proven(client, cases):
    alone = read_cases(cases.files[2:], cases.index, cases.queries)
    assert cases.frame["differ"].to_list() == alone.frame["differ"].to_list()
    certified = cases.joined[0].table["certified"].to_pylist()
    assert 0 < sum(certified) < len(certified)
    assert cases.frame["inexact"].to_list() == [not one for one in certified]
    for q in (certified.index(True), certified.index(False)):
        page = unescape(client.get(f"/case/{q}").text)
        assert ("not proven" in page) is not certified[q]


def test_downloads_have_the_scores_of_a_judge(client, cases):
    rows = [*csv.DictReader(io.StringIO(client.get("/systems.csv").text))]
    of_judge = {row["system"]: row for row in rows if row["metric"] == NAME}
    assert {*of_judge} == {f"{NAME} of a pool", "expectation", "copy"}
    assert {row["better"] for row in of_judge.values()} == {"higher"}
    best = cases.joined[0].table["score"].to_pylist()
    assert float(of_judge[f"{NAME} of a pool"]["mean"]) == pytest.approx(math.fsum(best) / len(best))
    assert float(of_judge["copy"]["mean"]) == 1


def test_the_report_without_a_server_says_the_same(cases, tmp_path):
    write_report(cases, tmp_path / "page.html", text=False)
    page = (tmp_path / "page.html").read_text()
    assert NAME not in page
    assert f"a lower bound of the oracle under {NAME}, as reports outside" in unescape(page)


def test_the_short_signature_names_the_pool(cases):
    assert "|pool:bleu-2:3+rouge-l:2+random:2|" in short_signature(cases.joined[0].signature)


def test_a_pool_that_is_the_whole_corpus_is_an_oracle(prepared, tmp_path):
    path = tmp_path / "whole.parquet"
    some = prepared.queries.take([0, 1])
    mo.rerank(prepared.index, some, mo.judge(common, direction="higher"), pool="all").write(path)
    cases = read_cases([path], prepared.index, some)
    assert cases.columns[0].role == "oracle"
    assert not any(cases.frame["inexact"])
    assert "|pool:all|" in short_signature(cases.joined[0].signature)
    text = unescape(client_of(cases).get("/").text)
    assert "pool: the whole corpus, so the answers are exact" in text
