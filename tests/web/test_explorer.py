"""The explorer's pages, without a browser."""

import csv
import dataclasses
import html
import io
import json
import re

import numpy as np
import pytest
from starlette.testclient import TestClient

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import LABELS, read_labels
from metric_oracle.explorer.cases import read_cases
from metric_oracle.explorer.images import Images
from metric_oracle.explorer.pages import Explorer
from metric_oracle.explorer.report import write_report
from metric_oracle.explorer.sampled_cases import SampledCases
from metric_oracle.explorer.scores import cross_scores, scored_metrics
from metric_oracle.web import server
from metric_oracle.web.render import visible
from support.pages import NASTY, OWN, PORT, POST, TOKEN, bare, client_of, made_up, written


@pytest.fixture(scope="module")
def client(nasty) -> TestClient:
    return client_of(nasty)


@pytest.fixture(scope="module")
def real(prepared) -> TestClient:
    return client_of(read_cases(prepared.files, prepared.index, prepared.queries))


def links(text):
    return [html.unescape(link) for link in re.findall(r'(?:href|src|action)="([^"]*)"', text)]


def places(text):
    """Return the positions, from 1, of the test reports of a list, by the addresses of their pages."""
    return [int(q) + 1 for q in re.findall(r'<th scope="row" class="id"><a href="/case/(\d+)[^"]*"><bdi>', text)]


PATHS = [
    "/",
    "/cases",
    "/cases?page=3",
    "/cases?sort=1&turn=1",
    "/systems",
    "/rows.csv",
    *(f"/case/{q}?show={s}" for q in range(7) for s in range(4)),
    "/case/3?pick=2",
]


@pytest.mark.parametrize("path", PATHS)
def test_hostile_texts_go_through_every_page(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    text = answer.text
    if path != "/rows.csv":
        assert "<script>alert" not in text
        assert "\0" not in text
        assert "\x1b" not in text
        assert "49 {% raw" not in text
        assert re.findall(r"<script[^>]*>", text) == ['<script type="module" src="/static/page.js">']
        assert not re.search(r"<[^>]+\s(style|on\w+)\s*=", text)
        for link in links(text):
            assert re.fullmatch(r"(/static/[\w.]+|/[\w/.]*(\?[\w=&.+-]*)?(#g\d+)?|#main)", link), link


def test_texts_are_shown_as_they_are(client, nasty):
    for q in range(7):
        for show in range(4):
            text = client.get(f"/case/{q}?show={show}").text
            blocks = re.findall(r'<p class="text" dir="auto">(.*?)</p>', text, re.DOTALL)
            plain = set(map(bare, blocks))
            assert visible(nasty.reference(q)) in plain
            for candidate in nasty.candidates(q):
                known = visible(candidate.text) in plain
                assert known or "is shown for corpus rows" in text


def test_samples_stand_on_the_page_of_their_study(nasty):
    texts = [nasty.reference(0), *NASTY[:3], ""]
    samples = mo.read_samples([{"id": nasty.ids[0], "candidates": texts, "logprobs": [-1.0, -2, -3, -4, -5]}])
    client = client_of(dataclasses.replace(nasty, sampled=SampledCases(samples)))
    text = client.get("/case/0").text
    assert "<script>alert" not in text
    assert re.search(r'<section class="paper" aria-labelledby="samples">', text)
    table = text[text.index('<h2 id="samples">') :]
    rows = re.findall(r'<tr><th scope="row"><bdi>(\d)</bdi>(.*?)</tr>', table, re.DOTALL)
    assert [name for name, _ in rows] == ["0", "1", "2", "3", "4"]
    plain = [re.findall(r'<td><p class="text.*?">(.*?)</p>', row, re.DOTALL)[0] for _, row in rows]
    assert list(map(bare, plain)) == [visible(shown) or "(empty report)" for shown in texts]
    # Metrics that read nothing but the texts are scored; the best is in bold.
    metrics = [
        name for name in dict.fromkeys(column.metric for column in nasty.columns) if name in ("bleu-2", "rouge-l")
    ]
    assert metrics
    # The page does not say again what these calls do.
    with pytest.warns(UserWarning, match="marks that count as words"):
        wanted = {name: mo.pairwise(texts, name, texts[:1])[:, 0] for name in metrics}
    with pytest.warns(UserWarning, match="marks that count as words"):
        chosen = mo.consensus({"s": texts}, metrics)
    for name in metrics:
        tagged = [i for i, (_, row) in enumerate(rows) if f">consensus of {name}</span>" in row]
        assert tagged == chosen.chosen[name]
    bold = [f"<strong>{wanted[name].max():.4f}</strong>" for name in metrics]
    assert all(value in rows[0][1] for value in bold)
    answer = client.get("/case/0.json").json()
    assert [row["text"] for row in answer["samples"]] == texts
    assert [row["scores"]["bleu-2"] for row in answer["samples"]] == wanted["bleu-2"].tolist()
    assert '<h2 id="samples">' not in client.get("/case/1").text
    assert "samples" not in client.get("/case/1.json").json()
    with pytest.raises(
        InputError, match=r"sampled must have the ids of the test reports; got none of them\. Check that"
    ):
        SampledCases(mo.read_samples({"other": ["x"]})).check(nasty.ids)


def test_the_overview_has_fifty_rows_a_page(client):
    assert places(client.get("/cases?files=1").text) == list(range(1, 51))
    assert places(client.get("/cases?files=1&page=3").text) == list(range(101, 121))
    assert places(client.get("/cases?files=1&page=99").text) == list(range(101, 121))


def test_the_first_rows_are_those_on_which_the_oracles_disagree(client, nasty):
    shown = [place - 1 for page in (1, 2, 3) for place in places(client.get(f"/cases?page={page}").text)]
    assert sorted(shown) == list(range(120))
    keys = []
    for q in shown:
        texts = {nasty.candidate_of(source, q).text for source in (0, 1, 2)}  # the oracles' files
        words = [set(text.lower().split()) for text in texts]
        shares = [1 - len(a & b) / len(a | b) for i, a in enumerate(words) for b in words[:i]]
        keys.append((len(texts), sum(shares) / len(shares) if shares else 0))
        assert nasty.frame["differ"][q] == keys[-1][0]
        assert nasty.frame["distance"][q] == pytest.approx(keys[-1][1])
    assert keys == sorted(keys, key=lambda key: (-key[0], round(-key[1], 12)))
    assert len({key[0] for key in keys}) > 1


def groups_of(text):
    """Return the metrics in the headings of a list, and their numbers of columns."""
    found = re.findall(r'<th scope="colgroup" colspan="(\d)"[^>]*><bdi class="name">(.*?)</bdi>', text)
    return [(name, int(n)) for n, name in found]


def heads_of(text):
    """Return the systems in the headings of a list, in order."""
    return [
        re.sub("<.*?>", "", name)
        for name in re.findall(r'<th scope="col" class="number[^>]*><a[^>]*><bdi>(.*?)</bdi>', text)
    ]


def test_a_row_is_read_without_a_click(client, nasty, real, prepared):
    for query, oracle in (("files=1", 0), ("sort=1", 1)):
        text = client.get(f"/cases?{query}").text
        assert groups_of(text) == [("bleu-2", 3), ("rouge-l", 1), ("radgraph", 1)]
        assert heads_of(text) == [
            "&lt;model&gt;",
            *("bleu-2 oracle", "random"),
            "rouge-l oracle",
            "radgraph oracle",
        ]
        for row in re.findall(r'<tr><th scope="row" class="id"><a .*?</tr>', text, re.DOTALL):
            q = int(re.findall(r"/case/(\d+)", row)[0])
            assert bare(re.findall(r"<bdi>(.*?)</bdi></a></th>", row, re.DOTALL)[0]) == visible(nasty.ids[q])
            lines = [bare(line) for line in re.findall(r'<div class="cut[^>]*>(.*?)</div>', row)]
            best, reference = nasty.candidate_of(oracle, q).text, nasty.reference(q)
            shown = "the same text" if best == reference else visible(" ".join(best.split()))
            assert lines == [visible(" ".join(reference.split())), f"{nasty.columns[oracle].system}: {shown}"]
            cells = re.findall(r'<td class="number(?: score s-(\d+))?">(.*?)</td>', row)
            values = [nasty.columns[i].values[q] for i in (4, 0, 3, 1, 2)]
            assert [cell for _, cell in cells] == ["none" if v != v else f"{v:.2f}" for v in values]
            assert [steps for steps, _ in cells] == ["" if v != v else str(round(20 * v)) for v in values]
            assert ("fallback</span>" in row) == any(c.is_fallback for c in nasty.candidates(q))
            assert ("not proven</span>" in row) == any(not c.is_exact for c in nasty.candidates(q))


def test_the_first_pages_of_a_whole_study_stay_small():
    """2,192 test reports and five files: pages of at most 200 kB. `benchmarks.pages` measures their seconds."""
    ids = [f"s{i}" for i in range(2192)]
    files = [
        made_up(ids, metric, texts=NASTY, k=2, seed=seed)
        for seed, metric in enumerate(("bleu-2", "rouge-l", "radgraph"))
    ]
    files += [made_up(ids, "bleu-2", kind, texts=NASTY, seed=9) for kind in ("most-frequent", "nearest")]
    client = client_of(read_cases(files))
    for path, words in (("/", "All 2,192 test reports<"), ("/cases", ">2,192 of 2,192 test reports<")):
        answer = client.get(path)
        assert words in answer.text
        assert len(answer.content) < 200_000


def test_sorting(client, nasty):
    for i, column in enumerate(nasty.columns):
        for turn in (0, 1):
            shown = [
                place - 1
                for page in (1, 2, 3)
                for place in places(client.get(f"/cases?sort={i}&turn={turn}&page={page}").text)
            ]
            values = column.values[shown]
            known = values[np.isfinite(values)]
            assert len(shown) == 120
            assert np.isfinite(values[: len(known)]).all()
            steps = np.diff(known)
            assert (steps >= 0).all() if turn else (steps <= 0).all()
    shown = [place - 1 for place in places(client.get("/cases?sort=0&minus=4").text)]
    gap = np.abs(nasty.columns[0].values - nasty.columns[4].values)[shown]
    assert (np.diff(gap) <= 0).all()


def test_filters(client, nasty):
    def shown(query):
        return {p - 1 for page in (1, 2, 3) for p in places(client.get(f"/cases?{query}&page={page}").text)}

    values = nasty.columns[1].values
    assert shown("column=1&low=0.3&high=0.6") == set(np.flatnonzero((values >= 0.3) & (values <= 0.6)))
    best = [nasty.candidates(q) for q in range(120)]
    assert shown("fallback=1") == {q for q, of_q in enumerate(best) if any(c.is_fallback for c in of_q)}
    assert shown("inexact=1") == {q for q, of_q in enumerate(best) if not all(c.is_exact for c in of_q)}
    assert shown("ties=1900") == {q for q, of_q in enumerate(best) if max(c.n_ties for c in of_q) > 1900}
    assert shown("fallback=1&column=1&low=0.3") == shown("fallback=1") & set(np.flatnonzero(values >= 0.3))
    assert 0 < len(shown("fallback=1")) < 120
    histogram_link = next(link for link in links(client.get("/cases").text) if "high=" in link)
    assert client.get(histogram_link).status_code == 200


def test_words_are_not_in_the_address(client, nasty):
    answer = client.post("/words", data={"text": "GNP.exe", "sort": "1"}, headers=POST)
    assert answer.status_code == 200
    assert "gnp" not in str(answer.url).lower()
    found = {place - 1 for place in places(answer.text)}
    assert found
    for q in found:
        assert any("gnp.exe" in (text or "") for text in [nasty.reference(q), *(c.text for c in nasty.candidates(q))])
    for words in ('"QUOTES"', "{{ 7 * 7 }}", "a\u2028B", "(1)</script> EFFUSION"):
        found = {
            place - 1 for place in places(client.post("/words", data={"text": words, "files": "1"}, headers=POST).text)
        }
        texts = [[nasty.reference(q), *(c.text for c in nasty.candidates(q))] for q in range(120)]
        expected = [q for q, of_q in enumerate(texts) if any(words.lower() in text.lower() for text in of_q)]
        assert found == set(expected[:50]) != set()
    long = client.post("/words", data={"text": "x" * 900_000}, headers=POST)
    assert (long.status_code, ">0 of 120 test reports<" in long.text) == (200, True)
    nothing = client.post("/words", data={"text": "no such word"}, headers=POST)
    assert ">0 of 120 test reports<" in nothing.text
    assert client.post("/words", data={"text": " "}, headers=POST).text.count("/case/") >= 50


def test_rows_as_csv(client, nasty):
    answer = client.get("/rows.csv?sort=0&column=0&low=0.5")
    rows = list(csv.reader(io.StringIO(answer.text, newline="")))
    assert rows[0][:2] == ["query_id", "bleu-2 oracle"]
    order = [nasty.ids.index(row[0]) for row in rows[1:]]
    assert sorted(order) == np.flatnonzero(nasty.columns[0].values >= 0.5).tolist()
    assert [float(row[1]) for row in rows[1:]] == nasty.columns[0].values[order].tolist()


def test_what_is_shown_is_taken_home(client, nasty):
    rows = list(csv.reader(io.StringIO(client.get("/systems.csv").text, newline="")))
    assert [row[:2] for row in rows[1:]] == [[column.system, column.metric] for column in nasty.columns]
    assert float(rows[1][4]) == pytest.approx(nasty.columns[0].values.mean())
    for q in range(7):
        answer = client.get(f"/case/{q}.json?rank=2")
        name = re.fullmatch(r'attachment; filename="report-([\w.-]+)\.json"', answer.headers["content-disposition"])[1]
        assert name == re.sub(r"[^A-Za-z0-9._-]", "_", nasty.ids[q])[:80]
        record = answer.json()
        assert (record["query_id"], record["reference"]) == (nasty.ids[q], nasty.reference(q))
        assert {one["text"] for one in record["candidates"]} == {c.text for c in nasty.candidates(q, 2)}
        for one in record["candidates"]:
            for evidence in one["evidence"].values():
                if not isinstance(evidence, str) and evidence["candidate"]:
                    assert "".join(piece["text"] for piece in evidence["candidate"]) == one["text"]
    assert client.get("/case/120.json").status_code == 404
    assert "rank is not a whole number" in client.get("/case/0.json?rank=x").text


def test_a_candidate_is_read_without_the_test_report():
    client = client_of(read_cases([made_up(["a", "b"], texts=["Large effusion."])]))
    page = client.get("/case/0").text
    assert "because the page was made without the test reports" in page
    assert '<p class="text" dir="auto">Large effusion.</p>' in page


def test_a_model_without_texts_is_told_how_to_keep_them(prepared):
    scores = mo.score(
        prepared.folder / "TESTS",
        dict(zip(prepared.queries.ids, prepared.queries.texts, strict=True)),
        ["bleu-2"],
        system="model",
    )
    client = client_of(read_cases([scores], prepared.index, prepared.queries))
    page = client.get("/case/0").text
    assert "These files have no texts; <code>--with-text</code> of <code>oracle score</code> keeps those" in page
    assert 'class="card' not in page
    evidence = client.get("/case/0.json").json()["candidates"][0]["evidence"]
    assert "The text of this candidate is not in the file; --with-text of oracle score keeps it." in evidence.values()


def test_scores_of_an_oracle_are_shown_once(prepared):
    """`study` writes each oracle as reports and as scores; the second has no report, and is the same system."""
    found = mo.retrieve(prepared.index, prepared.queries, "bleu-2")
    texts = dict(zip(found.table["query_id"].to_pylist(), found.table["text"].to_pylist(), strict=True))
    scores = mo.score(prepared.folder / "TESTS", texts, ["bleu-2"], system="bleu-2 oracle")
    client = client_of(read_cases([found, scores], prepared.index, prepared.queries))
    assert [line.split(",")[0] for line in client.get("/systems.csv").text.splitlines()[1:]] == ["bleu-2 oracle"]
    page = client.get("/case/0").text
    assert page.count('class="card') == 1
    assert "Scores without reports" not in page
    assert len(set(lines := re.findall(r"<div><bdi>(.*?)</bdi></div>", page))) == len(lines) == 2


@pytest.fixture(scope="module")
def studied(prepared, tmp_path_factory):
    """Return the cases of all files that `study` writes, given in the order of their names."""
    folder = tmp_path_factory.mktemp("studied")
    model = dict(zip(prepared.queries.ids, prepared.index.reports["text"].to_pylist(), strict=False))
    model[prepared.queries.ids[4]] = ""
    mo.study(prepared.index, prepared.queries, {"own": model}, metrics=["bleu", "rouge-l"], out=folder / "study")
    files = sorted((folder / "study.unfinished").glob("*.parquet"))
    return read_cases(files, prepared.index, prepared.queries)


def test_each_oracle_of_a_study_is_shown_once_under_one_name(studied):
    names = [(column.system, column.metric) for column in studied.columns]
    assert len(set(names)) == len(names)
    assert {system for system, _ in names} >= {"own", "bleu-2 oracle", "rouge-l oracle", "identity", "most frequent"}
    for q in range(3):
        of = {  # the scores of the other file belong to the report that was found
            tuple(sorted({studied.columns[c].system for c in candidate.columns})): candidate
            for candidate in studied.candidates(q)
        }
        assert all(len(systems) == 1 for systems in of)
        found = of["rouge-l oracle",]
        assert [studied.columns[c].metric for c in found.columns] == ["rouge-l", "bleu-2"]
        (score,) = mo.score({"x": studied.reference(q)}, {"x": found.text}, "bleu-2").values("bleu-2")
        assert studied.columns[found.columns[1]].values[q] == score
    turned = read_cases(studied.files[::-1], studied.index, studied.queries)  # whatever the order of the files
    assert {(c.system, c.metric) for c in turned.columns} == set(names)
    assert len(turned.columns) == len(names)
    client = client_of(studied)
    for path in ("/", "/cases?all=1", "/case/0", "/systems"):
        shown = re.sub(r"<footer.*", "", client.get(path).text, flags=re.DOTALL)
        assert "bleu-2 oracle" in shown
        assert not re.search(r"bleu-2 of bleu-2 oracle|<bdi>oracle</bdi>|oracle of [A-Z]|\(2\)", shown), path


def test_the_list_fits_and_leaves_out_what_is_the_same_in_every_row(studied):
    client = client_of(studied)

    text = client.get("/cases").text
    assert groups_of(text) == [("bleu-2", 2), ("rouge-l", 2)]
    assert heads_of(text) == ["own", "bleu-2 oracle", "own", "rouge-l oracle"]
    text = client.get("/cases?under=1").text
    assert groups_of(text) == [("rouge-l", 5)]
    assert heads_of(text) == ["own", "rouge-l oracle", "bleu-2 oracle", "most frequent", "random (expected)"]
    text = client.get("/cases?all=1").text
    assert groups_of(text) == [("bleu-2", 5), ("rouge-l", 5)]
    assert heads_of(text)[:5] == ["own", "bleu-2 oracle", "rouge-l oracle", "most frequent", "random (expected)"]
    text = client.get("/cases").text
    assert "Left out, as all test reports have the same score: bleu-2 of identity, rouge-l of identity." in text
    chosen = re.findall(r'aria-current="true">([^<]*)</a>', text[text.index('aria-label="Columns"') :])
    assert chosen == ["models and oracles"]
    assert ">all 10 columns</a>" in text
    under = client.get("/cases?under=1").text
    assert re.findall(r'aria-current="true">([^<]*)</a>', under[under.index('aria-label="Columns"') :]) == ["rouge-l"]
    assert client.get("/rows.csv").text.partition("\n")[0].count("identity") == 2  # the download has all


def test_an_empty_report_says_so(studied, prepared, tmp_path):
    q = studied.ids.index(prepared.queries.ids[4])
    client = client_of(studied)
    page = client.get(f"/case/{q}?show=0").text
    assert '<p class="text soft">(empty report)</p>' in page
    write_report(studied, tmp_path / "page.html")
    assert '<p class="text soft">(empty report)</p>' in (tmp_path / "page.html").read_text()
    empty = read_cases([made_up(["a", "b"], texts=["", "Clear."]), written(["a", "b"], [" "], ["", "Clear."])])
    rows = client_of(empty).get("/cases?files=1").text
    assert '<div class="cut" dir="auto">(empty report)</div>' in rows
    assert "bleu-2 oracle: the same text" in rows
    assert "(empty report)" in client_of(empty).get("/").text


def test_a_study_is_found_by_its_id(nasty, client):
    for q in (0, 57, 119):
        for typed in (nasty.ids[q], f" {nasty.ids[q]}\n"):
            answer = client.post("/study", data={"study": typed}, headers=POST)
            assert (answer.status_code, answer.url.path, answer.url.query) == (200, f"/case/{q}", b"")
        heading = re.findall(r"<h1[^>]*>Test report <bdi>(.*?)</bdi></h1>", answer.text, re.DOTALL)
        assert [html.unescape(one) for one in heading] == [visible(nasty.ids[q])]
        assert visible(nasty.ids[q]) not in html.unescape(re.findall(r"<title>(.*?)</title>", answer.text)[0])
    for typed in ("no such study", nasty.ids[0][:-1], "<b>1</b>", ""):
        answer = client.post("/study", data={"study": typed}, headers=POST)
        assert answer.status_code == 404
        assert f'<p role="status">No test report has the id “{html.escape(typed)}”.</p>' in answer.text
        assert "<b>1" not in answer.text
        assert len(places(answer.text)) == 50
    for path in ("/", "/cases", "/case/3", "/systems"):
        assert '<form class="go" method="post" action="/study">' in client.get(path).text
    assert client.post("/study", data={"study": nasty.ids[0]}).status_code == 403


def test_the_keys_of_a_page_are_those_that_do_something(client, real):
    def keys(client, path):
        listed = re.findall(r'<dialog id="keys".*?</dialog>', client.get(path).text, re.DOTALL)[0]
        return re.findall(r"<kbd>(.*?)</kbd>", listed)

    assert keys(client, "/") == ["g", "?"]
    assert keys(client, "/systems") == ["g", "?"]
    assert keys(client, "/cases") == ["j", "g", "?"]
    assert keys(client, "/cases?page=2") == ["j", "k", "g", "?"]
    assert keys(client, "/case/3?files=1") == ["j", "k", "0", "1", "2", "3", "d", "←", "→", "g", "?"]
    assert keys(client, "/case/0?files=1&rank=9") == ["j", "0", "1", "2", "3", "d", "g", "?"]
    assert keys(real, "/live") == ["g", "?"]
    page = client.get("/case/3?files=1").text
    assert all(f'data-key="{key}"' in page for key in "jk0123dg")


def test_steps_follow_the_filters(client, nasty):
    shown = places(client.get("/cases?sort=1&fallback=1").text)
    text = client.get(f"/case/{shown[1] - 1}?sort=1&fallback=1").text
    assert f'href="/case/{shown[0] - 1}?' in text
    assert f'href="/case/{shown[2] - 1}?' in text
    assert f">2 of {nasty.frame['fallback'].sum()}<" in text


def test_equal_texts_stand_together(client, nasty):
    for q in range(20):
        texts = {candidate.text for candidate in nasty.candidates(q)}
        assert client.get(f"/case/{q}").text.count('<section class="card') == len(texts)
    second = client.get("/case/3?rank=2").text
    assert second.count('<section class="card') == len({c.text for c in nasty.candidates(3, 2)})
    assert "No file has a candidate at this rank" in client.get("/case/3?rank=9").text


def test_the_test_report_has_the_marks_of_the_candidate_that_is_picked(client, nasty):
    q = next(q for q in range(20) if len({c.text for c in nasty.candidates(q)} - {nasty.reference(q)}) > 2)
    n = len({candidate.text for candidate in nasty.candidates(q)})
    for pick in (1, 2, n, 99):
        text = client.get(f"/case/{q}?pick={pick}").text
        views = re.findall(r'<div data-of="(\d+)"( hidden)?>', text)
        assert [number for number, _ in views] == [str(i + 1) for i in range(n)]
        assert [int(number) for number, is_hidden in views if not is_hidden] == [min(pick, n)]
        assert re.findall(r'<section class="card picked" id="g(\d+)"', text) == [str(min(pick, n))]
    same = next(q for q in range(120) if nasty.reference(q) in {c.text for c in nasty.candidates(q)})
    assert "Identical to the test report." in client.get(f"/case/{same}").text


PNG = b"\x89PNG\r\n\x1a\n"


def test_images_are_read_from_their_folder_only(tmp_path):
    folder, ids = (
        tmp_path / "images",
        ["a", "several", "p1/s2", "../secret", str(tmp_path / "secret"), "link", "none", ""],
    )
    (folder / "several").mkdir(parents=True)
    (folder / "p1").mkdir()
    for path in ("images/a.png", "images/p1/s2.JPG", "images/several/2.png", "images/several/1.jpg", "secret.png"):
        (tmp_path / path.replace("JPG", "jpg")).write_bytes(PNG + path.encode())
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "a.svg").write_text("<svg/>")
    cases = read_cases([made_up(ids, texts=["Clear."]), written(ids, ["Clear."], ["Clear."] * len(ids))])
    app = server.guarded(Explorer(cases, images=Images(folder)).routes(), port=PORT, guests={TOKEN: "reader"})
    client = TestClient(app, base_url=OWN)
    client.get(f"/?token={TOKEN}")
    shown = {"a": ("images/a.png", "image/png"), "several": ("images/several/1.jpg", "image/jpeg"),
             "p1/s2": ("images/p1/s2.JPG", "image/jpeg")}  # fmt: skip
    for q, study in enumerate(ids):
        answer, page = client.get(f"/case/{q}/image"), client.get(f"/case/{q}").text
        if study in shown:
            path, kind = shown[study]
            assert (answer.content, answer.headers["content-type"]) == (PNG + path.encode(), kind)
            assert answer.headers["cache-control"] == "no-store"
        else:
            assert answer.status_code == 404
        assert (f'src="/case/{q}/image"' in page) == (study in shown)
    # Candidates have the ids of the corpus.
    (folder / "c<0>.png").write_bytes(PNG)
    assert 'src="/case/0/image/0/1"' in client.get("/case/0").text
    assert client.get("/case/0/image/0/1").content == PNG
    for path in ("/case/0/image/0/2", "/case/0/image/1/1", "/case/0/image/9/1", "/case/99/image", "/case/0/image/0/0"):
        assert client.get(path).status_code == 404
    assert client_of(cases).get("/case/0/image").status_code == 404
    with pytest.raises(InputError, match=r"images must be an existing folder; got .*missing"):
        Images(tmp_path / "missing")


def test_a_composite_of_ones_own_has_a_bar_for_each_term(prepared, tmp_path):
    terms = {"bleu-2": (0.3, 0.2, -0.8), "radgraph": (0.4, 0.25, -1.5)}
    content = {
        "format": "metric-oracle composite", "version": 1, "name": "own", "direction": "lower", "intercept": 2.0,
        "terms": {name: {"mean": mean, "scale": scale, "weight": w} for name, (mean, scale, w) in terms.items()},
    }  # fmt: skip
    (tmp_path / "own.json").write_text(json.dumps(content))
    options = mo.SearchOptions(weights=tmp_path / "own.json")
    found = mo.retrieve(prepared.index, prepared.queries, "composite", options=options)
    page = client_of(read_cases([found], prepared.index, prepared.queries)).get("/case/1").text
    rows = re.findall(
        r"<tr><td><bdi>(\S+)</bdi></td>" + r'<td class="number">(\S+)</td>' * 2 + r"\s*<td>\s*<svg.*?<rect (.*?)/>",
        page,
        re.DOTALL,
    )
    assert [row[0] for row in rows] == list(terms)
    best = found.table["score"][1].as_py()
    adds = [
        weight * (float(row[1]) - mean) / scale for row, (mean, scale, weight) in zip(rows, terms.values(), strict=True)
    ]
    assert [float(row[2]) for row in rows] == pytest.approx(adds, abs=1e-3)
    assert 2.0 + sum(adds) == pytest.approx(best, abs=1e-3)
    widths = [float(re.findall(r'width="(\S+)"', row[3])[0]) for row in rows]
    assert widths == pytest.approx([50 * abs(value) / max(map(abs, adds)) for value in adds], abs=0.05)


def test_draws_have_their_mean(nasty):
    table = nasty.joined[3].table
    assert nasty.columns[3].values == pytest.approx(table["score"].to_numpy().reshape(-1, 3).mean(axis=1))
    assert nasty.columns[3].name == "bleu-2 of random"


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("/cases?sort=99", "sort is not a whole number from 0 to 4"),
        ("/cases?sort=x", "sort is not a whole number from 0 to 4"),
        ("/cases?column=0&low=nan", "low is not a finite number"),
        ("/cases?words=x", "words is not a whole number from"),
        ("/case/0?show=40", "show is not a whole number from"),
        ("/cases?page=-1", "page is not a whole number from"),
        ("/cases?ties=²", "ties is not a whole number from"),
    ],
)
def test_other_addresses(client, path, match):
    answer = client.get(path)
    assert answer.status_code == 400
    assert match in html.unescape(answer.text)


def test_reports_that_are_not_there(client):
    for path in ("/case/120", "/case/x", "/live", "/static/none.css"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "There is no page at this address." in answer.text
        assert '<a href="/">' in answer.text


def test_words_of_an_earlier_server_are_forgotten_and_other_filters_stay(client, nasty):
    page = client.get("/cases?words=3000&column=0&low=0.5").text
    assert "no longer has the words" in page
    n = int((nasty.columns[0].values >= 0.5).sum())
    assert f">{n} of {len(nasty.ids)} test reports<" in page
    assert client.get("/case/3?words=3000").status_code == 200


def test_systems_are_compared_with_the_oracle_by_sign(client, nasty):
    header, *lines = csv.reader(io.StringIO(client.get("/systems.csv").text, newline=""))
    compared = 0
    for (i, column), line in zip(enumerate(nasty.columns), lines, strict=True):
        row = dict(zip(header, line, strict=True))
        oracle = {"bleu-2": 0, "rouge-l": 1, "radgraph": 2}[column.metric]
        if oracle == i:
            assert {row[name] for name in header if name.startswith(("difference", "furthest"))} == {""}
            continue
        differences = column.values - nasty.columns[oracle].values
        assert float(row["difference"]) == pytest.approx(np.nanmean(differences))
        better = differences if column.higher_is_better else -differences
        for name, side in (("furthest_below", -better), ("furthest_above", better)):
            positions = [nasty.ids.index(study) for i in (1, 2, 3) if (study := row[f"{name}_{i}"])]
            assert len(positions) == min(3, (side > 0).sum())
            assert [side[q] for q in positions] == sorted(side[side > 0], reverse=True)[:3]
        compared += 1
    assert compared


def test_a_real_index(real, prepared):
    text = real.get("/cases").text
    assert "index " + prepared.index.fingerprint[:12] in text
    for show in range(5):
        page = real.get(f"/case/1?show={show}")
        assert page.status_code == 200
        assert 'data-card="1"' in page.text
    radgraph = real.get("/case/1?show=2").text
    assert "entities" in radgraph
    assert "Graphs have no positions in the text" in radgraph
    assert "Atelectasis" in real.get("/case/1?show=3").text
    assert "furthest" in real.get("/systems").text.lower()


def test_a_label_chooses_test_reports(real, prepared, corpus):
    labels = read_labels(corpus["test_labels"])
    ids = read_cases(prepared.files, prepared.index, prepared.queries).ids
    place = {study: row for row, study in enumerate(labels.ids)}
    assert "Pleural Effusion</option>" in real.get("/cases").text
    for label in range(len(LABELS)):
        shown = {ids[p - 1] for p in places(real.get(f"/cases?label={label}").text)}
        assert shown == {study for study in ids if labels.values[place[study], label] == 1}
    assert "label is not a whole number from 0 to 13" in real.get("/cases?label=14").text


def test_scores_under_every_metric(prepared):
    cases = read_cases(prepared.files, prepared.index, prepared.queries)
    for q in (0, 5):
        found = {c.row: c for c in cases.candidates(q) if c.row >= 0}
        scores = cross_scores(cases, q, list(found))
        assert {"bleu-2", "rouge-l", "radgraph", "chexbert:labels"} <= set(scored_metrics(cases))
        for candidate in cases.candidates(q):
            if candidate.row >= 0:
                metric = cases.columns[candidate.columns[0]].metric
                assert scores[candidate.row][metric] == candidate.score
        best = {cases.columns[i].metric: cases.columns[i].values[q] for i in range(4)}
        for of_row in scores.values():
            assert all(of_row[name] <= value for name, value in best.items() if of_row[name] is not None)


def test_a_live_query(real, prepared):
    page = real.get("/live")
    assert page.status_code == 200
    assert 'name="metric:bleu-2"' in page.text
    assert 'name="metric:radgraph"' not in page.text
    text = prepared.index.reports["text"][7].as_py()
    answer = real.post("/live", data={"text": text, "metric:rouge-l": "1"}, headers=POST)
    assert answer.status_code == 200
    assert "rouge-l 1.0000" in answer.text
    asked = [f"metric:{name}" for name in ("bleu-2", "rouge-l", "temporal", "cider-d:corpus", "meteor:nltk-stems")]
    assert set(asked) <= set(re.findall(r'name="(metric:[^"]+)"', page.text))
    each = real.post("/live", data={"text": text, **dict.fromkeys(asked, "1")}, headers=POST)
    assert each.status_code == 200
    assert each.text.count('class="paper"') == len(asked)
    assert 'name="metric:cider-d"' not in page.text
    assert "cider-d:corpus has no evidence in words here." in each.text
    record = real.post("/live.json", data={"text": text, "metric:rouge-l": "1"}, headers=POST).json()
    assert (record["query"], record["candidates"][0]["scores"]) == (text, {"rouge-l": 1.0})
    assert real.get("/live.json").status_code == 405
    hostile = real.post("/live", data={"text": NASTY[0] + "\0", "metric:bleu-2": "1"}, headers=POST)
    assert "<script>alert" not in hostile.text
    assert "alert(1)&lt;/script&gt; effusion␀" in hostile.text
    none = real.post("/live", data={"text": "effusion"}, headers=POST)
    assert "no metric is ticked" in none.text
    assert "\neffusion</textarea>" in none.text  # what was typed stays


def test_an_index_alone(prepared):
    client = client_of(read_cases([], prepared.index))
    assert "Live query" in client.get("/").text
    assert "with the label" not in client.get("/").text
    assert client.post("/live", data={"text": "No effusion.", "metric:bleu-2": "1"}, headers=POST).status_code == 200
    assert client.get("/case/0").status_code == 404


def test_posts_need_the_pages(real):
    for headers in ({}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site", "origin": OWN}):
        answer = real.post("/live", data={"text": "x", "metric:bleu-2": "1"}, headers=headers)
        assert (answer.status_code, answer.text) == (403, "403\n")


def test_files_that_do_not_belong_together(prepared, tmp_path, fails):
    for files, options, match in (
        ([prepared.folder / "nothing.parquet"], {}, "results must be an existing file"),
        (
            [made_up(["a"], references="1"), made_up(["a"], references="2")],
            {},
            "results and queries are of 2 different sets of test reports",
        ),
        (
            [made_up(["a"], index="f" * 64)],
            {"index": prepared.index},
            "results file 1 was made with index ffffffffffff, not with ",
        ),
        ([made_up([])], {}, "results file 1 has no test report"),
    ):
        with pytest.raises(Exception, match=match):
            read_cases(files, **options)
    fails("explore", match="explore: results or --index must be given; got neither")


def test_a_port_of_another(fails, prepared):
    fails(
        "explore",
        prepared.files[0],
        "--port",
        "99999",
        match="explore: --port must be free, from 1024 to 65535; got 99999",
    )


def test_pages_need_their_libraries(fails, monkeypatch):
    monkeypatch.setattr("metric_oracle.commands.inputs.find_spec", lambda name: None if name == "uvicorn" else name)
    fails("explore", "x.parquet", match="explore: a page needs the Python package ")
