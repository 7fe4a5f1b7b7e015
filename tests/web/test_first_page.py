"""The first page: its numbers are those of `oracle table`, and its test reports are chosen by their rules."""

import csv
import html
import io
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.explorer.cases import read_cases
from metric_oracle.explorer.first_page import (
    Mark,
    Strip,
    alone,
    copies_of,
    oracle_texts,
    signed_distance,
    strips,
    telling,
)
from metric_oracle.explorer.first_page_view import places, position, verdict, verdicts
from metric_oracle.findings.results import Scores
from metric_oracle.tables.compare import compare
from metric_oracle.tables.systems import scores_of_results
from support.pages import NASTY, bare, client_of, made_up, written


@pytest.fixture(scope="module")
def whole(prepared):
    return read_cases(prepared.files, prepared.index, prepared.queries)


@pytest.fixture(scope="module")
def found(whole):
    return strips(whole, copies_of(whole))


def test_the_numbers_are_those_of_the_table(prepared, found, oracle, tmp_path):
    folder = prepared.folder
    for strip in found[:2]:
        own = f"{strip.metric} oracle"
        files = {own: f"{strip.metric}.parquet"}
        files |= {"random": "random.parquet"} if strip.metric == "bleu-2" else {}
        files |= {"model": "model.parquet"}
        out = tmp_path / "table.csv"
        given = [f"{name}={folder / file}" for name, file in files.items()]
        oracle("table", *given, "--paired", f"model,{own}", "--out", out)
        rows = {(row["system"], row["versus"]): row for row in csv.DictReader(io.StringIO(out.read_text()))}
        out.unlink()
        (tmp_path / "table.csv.signature.json").unlink()
        assert {mark.name for mark in strip.marks} == set(files)
        for mark in strip.marks:
            row = rows[mark.name, ""]
            assert [mark.mean, *mark.ends[:2]] == [float(row[key]) for key in ("mean", "interval_low", "interval_high")]
            assert strip.n == int(row["n"])
            if mark.name == "model":
                row = rows["model", own]
                paired = [mark.difference.difference, *mark.difference.interval[:2]]
                assert paired == [float(row[key]) for key in ("mean", "interval_low", "interval_high")]


def test_the_page_shows_them(whole, found):
    page = html.unescape(client_of(whole).get("/").text)
    for strip in found:
        assert f"<bdi>{strip.title}</bdi>" in page
        for mark in strip.marks:
            assert f"<bdi>{mark.name}</bdi> <strong>{mark.mean:.3f}</strong>" in page
            assert 0 <= position(strip, mark.mean) <= 100
        assert [one["role"] for one in places(strip)["marks"]] == [mark.role for mark in strip.marks]
    assert len(re.findall(r'<svg class="dots"', page)) == len(found)
    systems = html.unescape(client_of(whole).get("/systems").text)
    assert len(re.findall(r'<svg class="dots"', systems)) == len(found)
    for strip in found:
        assert f"<bdi>{strip.title}</bdi>" in systems
        for mark in strip.marks:
            assert f'{mark.mean:.4f}</td><td class="interval"> <span class="soft">[{mark.ends[0]:.3f}' in systems


def test_copies_are_counted(whole, found, prepared):
    """Equal but for case and white space; without the index, by the texts of the oracles."""
    corpus = {" ".join(text.lower().split()) for text in prepared.index.reports["text"].to_pylist()}
    expected = [" ".join(text.lower().split()) in corpus for text in prepared.queries.texts]
    place = {study: i for i, study in enumerate(prepared.queries.ids)}
    copies = copies_of(whole)
    assert copies.tolist() == [expected[place[study]] for study in whole.ids]
    assert 0 < copies.sum() < len(copies)
    without = found[0].without_copies
    assert without.mean == pytest.approx(whole.columns[0].values[~copies].mean())
    page = client_of(whole).get("/").text
    assert f">{copies.sum():,} of {len(copies):,} test reports are word for word in the corpus." in page
    by_texts = copies_of(read_cases(prepared.files))
    assert by_texts is None or (by_texts <= copies).all()


def test_test_reports_are_chosen_by_their_rules(whole, found):
    cards = telling(whole, found)
    assert len({card.q for card in cards}) == len(cards) >= 2
    assert whole.frame["differ"][cards[0].q] == whole.frame["differ"].max()
    by_rule = {card.rule.partition(":")[0]: card for card in cards}
    for side, words in ((-1, "below"), (1, "above")):
        card = by_rule.get(f"model is furthest {words} its oracle")
        away = [side * signed_distance(whole, strip, strip.models[0]) for strip in found if strip.models]
        assert (card is not None) == bool(np.nanmax(away) > 0)
        if card is not None:
            free = [q for q in range(len(whole.ids)) if q not in {one.q for one in cards[: cards.index(card)]}]
            assert np.nanmax(np.array(away)[:, card.q]) == np.nanmax(np.array(away)[:, free])
    counts = dict(alone(whole))
    chosen = dict(oracle_texts(whole))
    for i, texts in chosen.items():
        others = [other for at, other in chosen.items() if at != i]
        expected = sum(all(text != other[q] for other in others) for q, text in enumerate(texts))
        assert counts[whole.columns[i].metric] == expected


def test_an_oracle_that_contradicts(whole):
    ids = ["a", "b", "c"]
    texts = ["Small left effusion.", "No effusion.", "Effusion on the right side."]
    references = ["Small right effusion.", "No effusion.", "Right effusion."]
    cases = read_cases([made_up(ids, texts=texts), written(ids, texts, references)])
    (card,) = [
        one for one in telling(cases, strips(cases, None)) if one.rule.startswith("An oracle seems to contradict")
    ]
    assert (card.q, card.texts[0][1]) == (0, texts[0])
    assert "“right” there, “left” in the oracle" in card.rule


def test_what_the_overview_says_the_page_of_the_report_marks(whole):
    """By words, where neither graphs nor labels are known; of an oracle that contradicts nothing neither page does."""
    ids, references = ["a", "b"], ["Small right effusion.", "Opacity at the left lung base."]
    texts = ["Small left effusion.", "Opacity at the lung base, enlarged right ventricle."]
    client = client_of(read_cases([made_up(ids, texts=texts), written(ids, texts, references)]))
    overview, pages = client.get("/").text, [client.get(f"/case/{q}").text for q in range(2)]
    assert overview.count("An oracle seems to contradict its test report") == 1
    assert "effusion: “right” there, “left” in the oracle" in overview
    said = re.compile(r'<li class="tag warn">words: <bdi>(.*?)</bdi> (.*?)</li>')
    marked = re.compile(r'<sup class="opposite">≠ (\w+)</sup>')
    assert set(said.findall(pages[0])) == {("effusion", "right ≠ left")}
    assert set(marked.findall(pages[0])) == {"right", "left"}
    assert (said.findall(pages[1]), marked.findall(pages[1])) == ([], [])


def test_the_card_of_a_contradiction_shows_it(whole):
    """The words are marked in texts that are not cut after some lines; those of another sentence are not."""
    before = "The heart is normal in size. " * 30
    ids, references = ["a", "b"], [before + "Small right effusion.", "No effusion."]
    texts = [before + "Small left effusion. The left hand.", "No effusion."]
    cases = read_cases([made_up(ids, texts=texts), written(ids, texts, references)])
    page = client_of(cases).get("/").text
    (card,) = re.findall(r'<li class="paper">(?:(?!</li>).)*An oracle seems to contradict.*?</li>', page, re.DOTALL)
    assert '<a href="/case/0"><bdi>a</bdi></a>' in card
    marks = re.findall(r'<span class="opposite">(\w+)</span><sup class="opposite">≠ (\w+)</sup>', card)
    assert marks == [("right", "left"), ("left", "right")]
    assert "clamp" not in card
    assert [bare(text) for text in re.findall(r'<p class="text" dir="auto">(.*?)</p>', card)] == [
        references[0],
        texts[0],
    ]


def answered(metric, scores, texts, direction="higher"):
    """Return an oracle's results with these scores and texts."""
    found = made_up([f"s{i}" for i in range(len(scores))], metric, texts=texts, direction=direction)
    place = found.table.column_names.index("score")
    return replace(found, table=found.table.set_column(place, "score", pa.array(scores, pa.float64())))


def modelled(references=None, **values):
    """Return a model's scores of metrics under which higher is better."""
    n = len(next(iter(values.values())))
    table = {"query_id": [f"s{i}" for i in range(n)], **{name.replace("_", "-"): of for name, of in values.items()}}
    if references is not None:
        table |= {"reference": references, "prediction": ["Stable."] * n}
    metrics = {name.replace("_", "-"): {"direction": "higher", "source": "as in a tool"} for name in values}
    return Scores(pa.table(table), {"kind": "scores", "system": "model", "metrics": metrics})


def card_of(files, rule):
    """Return the card whose heading begins so."""
    cases = read_cases(files)
    (card,) = [one for one in telling(cases, strips(cases, None)) if one.rule.startswith(rule)]
    return card


def test_of_equal_disagreement_the_one_whose_texts_share_least():
    one = answered("bleu-2", [0.5, 0.5, 0.5], ["No edema of lungs.", "No edema.", "Stable."])
    other = answered("rouge-l", [0.5, 0.5, 0.5], ["No edema of chest.", "Left effusion.", "Stable."])
    card = card_of([one, other], "Metrics disagree most")
    assert (card.q, [text for _, text in card.texts]) == (1, ["No edema.", "Left effusion."])


@pytest.mark.parametrize(("metric", "direction", "q"), [("bleu-2", "higher", 1), ("sentences", "lower", 2)])
def test_the_contradiction_of_the_best_score(metric, direction, q):
    texts = ["Stable.", "Small left effusion.", "Effusion on the left side."]
    found = answered(metric, [0.5, 0.8, 0.2], texts, direction)
    references = ["Stable.", "Small right effusion.", "Right effusion."]
    card = card_of([found, modelled(references, bleu_2=[0.1, 0.2, 0.3])], "An oracle seems to contradict")
    assert (card.q, card.texts[0][1]) == (q, texts[q])


def test_the_furthest_from_its_oracle_is_a_share_of_the_axis():
    """CIDEr-D's axis ends at the mean of its oracle: 2 of 8 is less than 0.9 of 1."""
    files = [answered("bleu-2", [0.9, 0.9], ["a", "b"]), answered("cider-d", [8.0, 8.0], ["a", "b"])]
    card = card_of([*files, modelled(bleu_2=[0.0, 0.8], cider_d=[7.9, 6.0])], "model is furthest below")
    assert card.q == 0
    assert [name for name, _ in card.texts] == ["model, BLEU-2 0.00", "bleu-2 oracle 0.90"]


def test_a_verdict_is_that_of_the_interval():
    ids = [f"s{i}" for i in range(60)]
    oracle = made_up(ids, texts=NASTY)
    own, rng = scores_of_results(oracle), np.random.default_rng(7)

    def model(name, change):
        values = own.table["bleu-2"].to_numpy() + change
        return replace(
            own, table=own.table.set_column(1, "bleu-2", [values]), signature={**own.signature, "system": name}
        )

    cases = read_cases([oracle, model("high", 0.6), model("low", -0.1), model("open", rng.choice([-0.1, 0.1], 60))])
    (strip,) = strips(cases, None)
    assert {mark.name: verdict(mark, strip) for mark in strip.models} == {
        "high": "better",
        "low": "worse",
        "open": "open",
    }
    assert strip.high > 1
    assert verdicts([strip]) == [
        ("high", "is above the best possible copying under BLEU-2."),
        ("low", "is below the best possible copying under BLEU-2."),
        ("open", "is neither above nor below the best possible copying under BLEU-2, as far as 60 test reports show."),
    ]
    renamed = [replace(mark, name="one") for mark in strip.models]
    others = [replace(strip, metric=name, marks=[mark]) for name, mark in zip("abc", renamed, strict=True)]
    assert verdicts(others) == [
        (
            "one",
            "is above the best possible copying under a. Under b it is below. "
            "Under c it is neither above nor below, as far as 60 test reports show.",
        )
    ]


def test_files_that_make_no_table_have_means(nasty):
    (strip, *_) = strips(nasty, None)
    assert strip.reason == "" or all(mark.ends is None for mark in strip.marks)
    cases = read_cases([made_up(["a", "b", "c"]), made_up(["a", "b"], baseline="random")])
    (strip,) = strips(cases, None)
    assert strip.reason.startswith("compare: ")
    for path in ("/", "/systems"):
        assert strip.reason in html.unescape(client_of(cases).get(path).text)


def test_a_page_of_a_command_shows_errors_in_its_words(oracle, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise InputError("index", "must be given with `queries`", None, "Pass `queries=FILE`, see `mo.build_index`.")

    monkeypatch.setattr("metric_oracle.explorer.first_page.compare", refused)
    file, cases = made_up(["a", "b", "c"]), read_cases([made_up(["a", "b", "c"])])
    file.write(tmp_path / "r.parquet")
    assert strips(cases, None)[0].reason.endswith("Pass `queries=FILE`, see `mo.build_index`.")
    assert oracle("report", tmp_path / "r.parquet", "--out", tmp_path / "page.html")[0] == 0
    page = html.unescape((tmp_path / "page.html").read_text("utf-8"))
    assert "--index must be given with --queries; got none. Pass --queries FILE, see oracle build-index." in page


def test_systems_are_compared_once(whole, monkeypatch):
    """The pages of the overview and of the systems read one comparison of each metric."""
    calls = []
    monkeypatch.setattr(
        "metric_oracle.explorer.first_page.compare", lambda *a, **k: calls.append(a) or compare(*a, **k)
    )
    client = client_of(whole)
    for path in ("/", "/systems", "/systems.csv", "/"):
        assert client.get(path).status_code == 200
    assert len(calls) == len({column.metric for column in whole.columns})


@pytest.mark.parametrize("seed", range(20))
def test_labels_of_an_axis_stand_apart_and_name_or_count_all_marks(seed):
    rng = np.random.default_rng(seed)
    roles = ["chance", "frequent", "perfect", "oracle", *["other"] * 4, *["model"] * 3]
    names = [f"a {role} {i}" * int(rng.integers(1, 3)) for i, role in enumerate(roles)]
    means = rng.random(len(roles)) ** 2
    marks = [Mark(name, role, i, mean) for i, (name, role, mean) in enumerate(zip(names, roles, means, strict=True))]
    strip = Strip("bleu-2", bool(seed % 2), 9, sorted(marks, key=lambda one: (1 if seed % 2 else -1) * one.mean), 0, 1)
    labels = places(strip)["labels"]
    assert len({one["y"] for one in labels}) == 2
    number_of = {word: number for number, word in enumerate(["two", "three", "four", "five", "six", "seven"], start=2)}
    form = re.compile(r"(\w+) (?:models|oracles|baselines|systems) (0\.\d\d) to (0\.\d\d)")
    numbers = [form.fullmatch(one["text"]) for one in labels]
    named = [len(one["text"].split(", ")) for one in labels]
    shown = [number_of[found[1]] if found else n for found, n in zip(numbers, named, strict=True)]
    assert sum(shown) == len(marks)
    for found in filter(None, numbers):
        assert {found[2], found[3]} <= {f"{mean:.2f}" for mean in means}
    for y in (52, 68):
        ends = []
        for one in (one for one in labels if one["y"] == y):
            width, x = 7.4 * len(one["text"]), 11.5 * float(one["x"].rstrip("%"))
            left = {"start": x, "middle": x - width / 2, "end": x - width}[one["anchor"]]
            ends += [left, left + width]
        assert ends == sorted(ends)


def test_the_systems_are_sorted_by_their_means(whole):
    page = client_of(whole).get("/systems").text
    tables = re.findall(r'aria-label="Systems under .*?</table>', page, re.DOTALL)
    means = re.compile(r'</th><td class="number">[\d,]+</td><td class="number">([\d.]+)')
    for strip, table in zip(strips(whole, copies_of(whole)), tables, strict=True):
        shown = list(map(float, means.findall(table)))
        assert len(shown) == len(strip.marks)
        assert shown == sorted(shown, reverse=strip.higher_is_better)
