"""Figures and ratings: what is drawn of the files and of radiologists' counts, and where it is shown."""

import html
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.explorer.cases import read_cases
from metric_oracle.explorer.figures import sections
from metric_oracle.explorer.rated_cases import RatedCases
from metric_oracle.explorer.report import write_report
from metric_oracle.raters.ratings import CATEGORIES, Ratings
from metric_oracle.scores.expectation import expectation, read_expectation
from metric_oracle.web.render import visible
from support.pages import NASTY, bare, client_of, made_up

TYPES = ("bleu", "radgraph")
ONLY_RATED = "Only  radiologists <b>saw</b> this \u202e effusion"


def counted(cases, studies=12, seed=3) -> RatedCases:
    """Return made-up counts: of the first candidate of each test report, and of a text that no file has."""
    ids = cases.ids[:studies]
    counts = np.random.default_rng(seed).poisson(0.8, (len(ids) * 2, 3, len(CATEGORIES), 2))
    shown = [cases.candidates(q)[0].text for q in range(len(ids))]
    predictions = [text for one in shown for text in (f" {one}\n", ONLY_RATED)]
    return RatedCases(
        Ratings(
            [f"{study}/{kind}" for study in ids for kind in TYPES], [study for study in ids for _ in TYPES],
            list(TYPES) * len(ids), ["anna", "ben", "carl"], list(CATEGORIES), counts, "made up",
            references=[cases.reference(q) for q in range(len(ids)) for _ in TYPES], predictions=predictions,
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def rated_cases(nasty):
    return read_cases([*nasty.files], rated=counted(nasty))


@pytest.fixture(scope="module")
def chance(prepared):
    found = expectation(prepared.index, prepared.queries, "rouge-l")
    path = prepared.folder / "chance.parquet"
    found.write(path)
    return found, path


@pytest.fixture(scope="module")
def whole(prepared, chance):
    return read_cases([*prepared.files, chance[1]], prepared.index, prepared.queries)


@pytest.fixture(scope="module")
def client(whole):
    return client_of(whole)


def test_figures_of_files(client, whole):
    page = client.get("/systems").text
    assert ">Chance under rouge-l</h2>" in page
    assert '<img class="figure" src="/systems/chance-1.svg" alt="' in page
    picture = client.get("/systems/chance-1.svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "<svg" in picture.text
    assert "http://evil" not in picture.text
    assert client.get("/systems/align.svg").status_code == 404
    assert client.get("/systems/..%2fserver.svg").status_code == 404


def test_an_expectation_is_a_column(chance, whole, tmp_path):
    found, _ = chance
    column = next(column for column in whole.columns if column.system == "expectation")
    assert column.name == "rouge-l of expectation"
    assert column.values.tolist() == found.table["mean"].to_pylist()
    assert all(candidate.text != "" for candidate in whole.candidates(0))
    assert len(whole.candidates(0)) == len(whole.files) - 1
    for ending in ("csv", "jsonl"):
        found.write(tmp_path / f"chance.{ending}")
        again = read_expectation(tmp_path / f"chance.{ending}")
        assert again.table["mean"].to_pylist() == found.table["mean"].to_pylist()
        assert (again.edges.tolist(), again.counts.tolist()) == (found.edges.tolist(), found.counts.tolist())
        assert "histogram" not in again.signature
    with pytest.raises(InputError, match=r"^expectation must be a file that `mo\.expectation` wrote"):
        read_expectation(made_up_file(tmp_path))
    with pytest.raises(InputError, match=r"^expectation must be an existing file; got"):
        read_expectation(tmp_path / "none.csv")


def made_up_file(folder):
    made_up(["a", "b"]).write(folder / "answers.csv")
    return folder / "answers.csv"


def test_without_matplotlib_the_numbers_are_there(whole, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    found = sections(whole)
    assert [one.svg for one in found] == [b""]
    assert all("a plot needs the Python package matplotlib" in one.lines[0] and one.tables for one in found)


# Radiologists


def test_figures_of_ratings(rated_cases):
    client = client_of(rated_cases)
    page = client.get("/systems").text
    for key, words in (("align", "Scatter plots of counted errors"), ("failure-modes", "Bars of mean errors by cat")):
        assert words in page
        assert "<svg" in client.get(f"/systems/{key}.svg").text
    assert "Kendall tau-b of metric scores and counted errors" in page
    assert re.search(
        r'<th scope="row" class="lines"><bdi>[^<]*</bdi><br><bdi>sig\. and</bdi><br><bdi>insig\. errors', page
    )
    assert "Radiologist evaluation in terms of total number of errors" in page


def test_names_are_no_formulas(nasty):
    """What Matplotlib would take for one, and could not read, is drawn to the letter."""
    rated = counted(nasty).ratings
    odd = {"bleu": "$_{", "radgraph": "a$^$"}
    names = [odd[kind] for kind in rated.candidates]
    given = replace(rated, candidates=names, categories=["$_{$", *rated.categories[1:]])
    figures = {one.key: one for one in sections(read_cases(nasty.files, rated=RatedCases(given)))}
    assert figures["failure-modes"].svg
    assert figures["align"].svg


def test_counts_stand_at_their_candidate(rated_cases):
    client = client_of(rated_cases)
    ratings = rated_cases.rated.ratings
    for q in (0, 7, 11):
        text = client.get(f"/case/{q}").text
        found = re.findall(r'<section class="card.*?</section>', text, re.DOTALL)
        assert len(found) == len({candidate.text for candidate in rated_cases.candidates(q)}) + 1
        first, last = found[0], found[-1]
        assert "counted in it as the candidate of BLEU" in first
        assert "RadGraph, as rated" in last
        assert visible(ONLY_RATED) in bare(last)
        for section, pair in ((first, 2 * q), (last, 2 * q + 1)):
            cells = re.findall(r'<td class="number">([\d.]+) <span class="soft">\(([\d, ]+)\)', section)
            counts = ratings.counts[pair][..., ::-1]
            expected = [*counts.transpose(1, 2, 0).reshape(-1, 3), *counts.sum(axis=1).T]
            assert [(f"{one.mean():.2f}", ", ".join(map(str, one))) for one in expected] == cells
    assert "as rated" not in client.get("/case/12").text


def test_rated_test_reports_are_found(rated_cases, nasty):
    client = client_of(rated_cases)
    page = client.get("/cases?rated=1&sort=1").text
    assert ">12 of 120 test reports<" in page
    assert len(re.findall(r">rated</span>", page)) == 12
    assert 'name="rated" value="1" checked' in page
    assert 'name="rated"' not in client_of(nasty).get("/cases").text


def test_ratings_are_taken_home(rated_cases):
    record = client_of(rated_cases).get("/case/7.json").json()
    (one,) = record["candidates"][-1]["rated"]
    assert one["raters"] == ["anna", "ben", "carl"]
    assert [name for name, _ in one["rows"]][-1] == "All"
    assert record["candidates"][-1]["text"] == ONLY_RATED


def test_the_report_has_figures_and_ratings(rated_cases, tmp_path):
    for with_text in (True, False):
        write_report(rated_cases, tmp_path / "page.html", text=with_text)
        page = (tmp_path / "page.html").read_text("utf-8")
        assert page.count('src="data:image/svg+xml;base64,') == 2
        assert page.count('<svg class="dots"') == len({column.metric for column in rated_cases.columns})
        assert "was not scored as" in page
        assert "img-src data:;" in html.unescape(page)
        assert ("as rated" in page) == ("radiologists <" in html.unescape(page)) == with_text
        assert "Kendall tau-b" in page


def test_what_is_no_rating_of_these(nasty):
    rated = counted(nasty).ratings
    textless = RatedCases(Ratings(*(getattr(rated, name) for name in (
        "pairs", "studies", "candidates", "raters", "categories", "counts", "source"))))  # fmt: skip
    with pytest.raises(InputError, match=r"^ratings need the texts that were rated\. Add `samples=FILE`"):
        read_cases(nasty.files, rated=textless)
    with pytest.raises(InputError, match=r"^none of the 12 rated studies is among the 2 test reports"):
        read_cases([made_up(["a", "b"], texts=NASTY)], rated=counted(nasty))


def test_ratings_are_asked_for_by_name(fails):
    match = "explore: --ratings must be given with --samples or --scores; got none"
    fails("explore", "x.parquet", "--samples", "s.csv", match=match)


def test_options_of_test_reports_ask_for_these(fails):
    match = r"explore: --queries must be given with --section, --split; got none\. Add the file of reports that they"
    fails("explore", "x.parquet", "--section", "findings", "--split", "test", match=match)
