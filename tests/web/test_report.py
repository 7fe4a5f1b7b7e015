"""The report in one file: hostile texts, the policy's hashes, who may read it, what --no-text leaves out."""

import base64
import gzip
import hashlib
import html
import json
import re
import stat

import polars as pl
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.explorer.report import write_report
from metric_oracle.web.render import visible
from support.pages import bare


@pytest.fixture(scope="module")
def page(nasty, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "page.html"
    write_report(nasty, out)
    return out


def test_the_policy_lets_only_its_own_script_run(page):
    text = page.read_text("utf-8")
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (found,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(found.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r'(src|href)="(?!#)', text)
    assert not re.search(r"<[^>]+\s(style|on\w+)\s*=", text)


def test_texts_are_in_it_and_only_its_owner_reads_it(page, nasty):
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text("utf-8")
    assert text.startswith("<!-- This file holds the text of reports")
    assert "<script>alert" not in text
    assert "\0" not in text
    assert html.escape(visible(nasty.ids[4]), quote=False) in text
    blocks = re.findall(r'<p class="text" dir="auto">(.*?)</p>', text, re.DOTALL)
    plain = set(map(bare, blocks))
    for q in range(14):
        assert visible(nasty.reference(q)) in plain
        assert all(visible(candidate.text) in plain for candidate in nasty.candidates(q))


def test_the_overview_is_first_then_an_index_then_cases(page, nasty):
    text = page.read_text("utf-8")
    order = [
        text.index(part)
        for part in ('<div class="lead">', 'class="dots"', 'class="cards"', 'id="reports"', 'id="cases"')
    ]
    assert order == sorted(order)
    linked = re.findall(r'href="#report-(\d+)"', text)
    assert {f"report-{q}" for q in linked} <= set(re.findall(r'<details class="paper folded" id="(.*?)">', text))
    assert len(set(linked)) == len(nasty.ids)


def test_opened_cases_have_the_same_texts_with_marks(page, nasty):
    packed = re.search(r'<script type="application/gzip" id="marked">(.*?)</script>', page.read_text("utf-8"))[1]
    bodies = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert list(map(int, bodies)) != list(range(len(nasty.ids)))  # in the order of the index
    assert len(bodies) == len(nasty.ids)
    for q in range(14):
        body = bodies[str(q)]
        assert "<script" not in body
        assert not re.search(r"<[^>]+\s(style|on\w+)\s*=", body)
        blocks = set(map(bare, re.findall(r'<p class="text" dir="auto">(.*?)</p>', body, re.DOTALL)))
        assert {visible(nasty.reference(q)), *(visible(one.text) for one in nasty.candidates(q))} <= blocks
    assert sum('class="sides"' in body for body in bodies.values()) > 60


def test_without_text(nasty, tmp_path):
    out = tmp_path / "scores.html"
    write_report(nasty, out, text=False)
    text = out.read_text("utf-8")
    assert "effusion" not in text
    assert "alert(1)" not in text
    assert re.findall(r'<tr data-q="(\d+)"[^>]*><th scope="row" class="id">(\d+)</th>', text) == [
        (str(q), str(q + 1))
        for q in nasty.frame.sort(-pl.col("differ") - 0.5 * pl.col("distance"), maintain_order=True)["q"]
    ]
    assert "<details class" not in text
    assert 'id="marked"' not in text
    assert f"{nasty.columns[1].values[5]:.4f}" in text
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_other_files(nasty, tmp_path, fails):
    with pytest.raises(InputError, match=r"^out must end with \.html; got"):
        write_report(nasty, tmp_path / "page.txt")
    fails("report", match="report: results and --out must be given; got one of them or none")
    fails("report", "x.parquet", "--out", tmp_path / "p.html", match="report: results must be an existing file; got x")
