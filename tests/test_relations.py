"""Relations: what must follow when the input changes, with no expected value written down.

Whole commands, those of the sessions of `frozen`, and public functions get the same input in another form: mirrored,
in another order, split, renamed, at a limit, repeated. A new session is covered as it is, and so is a function that
asks a judge.
"""

import functools
import inspect
import itertools
import json
import math
import random
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pyarrow.parquet
import pytest

import frozen
import metric_oracle as mo
from metric_oracle import Read, SearchOptions
from metric_oracle.base import files
from metric_oracle.explorer.cases import read_cases
from metric_oracle.findings import cells, views
from metric_oracle.judges.judge import Asked, Judge
from metric_oracle.pools import rerank
from metric_oracle.pools.candidate_pools import planned_pool
from metric_oracle.raters.counted_pairs import read_counted_pairs
from metric_oracle.survey.folder import open_survey
from support import sessions, write
from support.made_up import JUDGE, MIRRORED, SENTENCES, mirrored, plain, reports, worth
from support.pages import client_of


@functools.cache
def played(name):
    """Play a session, and each kind of command in it twice: the second time it says the same, or is refused.

    Returns
    -------
    What `sessions.play` returns, with what commands said the first time, and the files as the second left them.
    """
    repeated = set()

    def again(words, outcome):
        kind = words[0], "--out" in words
        if kind not in repeated:
            repeated.add(kind)
            second = frozen.run(words, is_terminal=True)
            same = [sessions.masked("\n".join(map(str, one))) for one in (outcome, second)]
            assert same[0] == same[1] or (second[0] == 2 and second[2].count("error: ") == 1), words

    for package in frozen.SESSIONS[name][0]:
        pytest.importorskip(package)
    return sessions.play(name, after=again)


def texts(outcome):
    """Return what a session says and its files as texts, by command and path."""
    said, files = outcome
    return said | {path: text for path, (_, text) in files.items()}


def assert_same(expected, found):
    """Assert that two dicts of texts are equal, with the first text that differs."""
    assert found.keys() == expected.keys()
    for key, text in expected.items():
        assert found[key].splitlines() == text.splitlines(), key


of_sessions = pytest.mark.parametrize("name", frozen.SESSIONS)


@of_sessions
def test_a_session_joins_by_ids_and_ignores_what_says_nothing(name):
    """Ids are renamed one to one, columns added, each file but the first is reversed, and defaults are stated."""

    def before(folder, words):
        return sessions.with_defaults(sessions.reverse_others(folder, words))

    found = texts(sessions.play(name, sessions.rename, before))
    assert_same(texts(played(name)), {key: sessions.named_back(text) for key, text in found.items()})


@of_sessions
def test_a_session_has_the_same_numbers_by_id_in_any_order(name):
    if re.search(r"^ *rate ", frozen.SESSIONS[name][1], re.MULTILINE):
        pytest.skip("the studies of a survey are drawn by row")
    said, expected = played(name)
    of_shuffled, found = sessions.play(name, sessions.shuffle)
    assert [text[:1] for text in of_shuffled.values()] == [text[:1] for text in said.values()]  # exit codes
    assert found.keys() == expected.keys()
    for path in expected:
        assert sessions.numbers_by_id(found, path) == sessions.numbers_by_id(expected, path), path


@of_sessions
def test_a_session_over_shards_is_that_over_one_index(name):
    expected = texts(played(name))
    found = texts(sessions.play(name, before=sessions.into_shards))
    of_index = {key for key in expected if key.endswith(("manifest.json", "set.json")) or "build-index" in key}
    of_index |= {key for key in expected if " info " in key}
    kept = [key for key in expected if key not in of_index]
    assert_same(*({key: sessions.OF_SHARDS.sub("", side[key]) for key in kept} for side in (expected, found)))


# Python functions, on made-up reports


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """Return an index of made-up reports, test reports, reports of two models, samples, and a folder."""
    folder = tmp_path_factory.mktemp("relations")
    tests = reports(12, 2)
    drawn = [reports(12, seed) for seed in range(10, 15)]
    return SimpleNamespace(
        folder=folder,
        corpus=reports(60, 1, "c"),
        index=mo.build_index(reports(60, 1, "c"), folder / "INDEX", metrics="rouge-l,bleu-2"),
        tests=tests,
        models={"a": reports(12, 3), "b": reports(12, 4)},
        samples={study: [of_model[study] for of_model in drawn] for study in tests},
    )


def study_of(made_up, judge, out=None, pool=None):
    """Return the table of a study; with `out` its folder is written."""
    metrics = ["rouge-l", judge]
    systems = mo.study(made_up.index, made_up.tests, made_up.models, metrics=metrics, pool=pool, out=out)
    table = mo.compare_study(systems, resamples=200)
    if out is not None:
        mo.write_study(systems, table, out)
    return table


OF_JUDGES = {
    "score": lambda at, judge: mo.score(at.tests, at.models["a"], ["rouge-l", judge]),
    "rerank": lambda at, judge: mo.rerank(at.index, at.tests, judge, pool="rouge-l:3,random:3", k=2, audit=3),
    "rerank, the pool": lambda at, judge: mo.rerank(at.index, at.tests, judge, pool="rouge-l:3,random:3").oracle,
    "expectation": lambda at, judge: mo.expectation(at.index, at.tests, ["rouge-l", judge], draws=6),
    "study": study_of,
    "consensus": lambda at, judge: mo.consensus(at.samples, ["rouge-l", judge]),
    "best_of": lambda at, judge: mo.best_of(at.samples, at.tests, ["rouge-l", judge]),
}


def assert_close(found, expected):
    """Assert that two rows of numbers are equal but for rounding."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        is_number = isinstance(value, float) and isinstance(found[name], float)
        assert math.isclose(found[name], value, rel_tol=1e-9, abs_tol=1e-12) if is_number else found[name] == value, (
            name
        )


def test_every_function_that_asks_a_judge_is_mirrored():
    taking = {name for name in mo.__all__ if "GivenJudge" in str(inspect.signature(getattr(mo, name)).parameters)}
    asking = taking - {"compute", "pool", "study_pairs"}  # the means of score, and two that write pairs
    assert asking == {name.partition(",")[0] for name in OF_JUDGES}


@pytest.mark.parametrize("name", OF_JUDGES)
def test_a_judge_in_a_mirror_has_the_same_answers(made_up, name):
    found, turned = (OF_JUDGES[name](made_up, judge) for judge in (JUDGE, MIRRORED))
    rows, expected = [plain(row) for row in turned.records()], [mirrored(row) for row in found.records()]
    assert len(rows) == len(expected)
    for row, of_judge in zip(rows, expected, strict=True):
        assert_close(row, of_judge)
    for name in ("pool", "limit", "left_out", "n"):  # regret and recall are no scores
        assert found.signature.get(name) == turned.signature.get(name)


def foreign(path, sign):
    """Write scores of another tool: of a random row of its own, of models, of an oracle; some are 0, or nearly."""
    values = {
        "a": (1, 2, 2, 4, 0, 3),
        "b": (2, 2, 2, 3, 1, 0),
        "c": (1e-6, 0, 0, 0, 0, 0),
        "random": (1, 1, 0, 2, 0, 1),
        "oracle": (4, 4, 3, 4, 2, 4),
    }
    for name, scores in values.items():
        write(path / f"{name}.csv", [[f"s{i}", sign * score] for i, score in enumerate(scores)], ("study_id", "worth"))
    way = {"worth": "higher" if sign > 0 else "lower"}
    return {name: mo.read_foreign(name, path / f"{name}.csv", way) for name in values}


def table_of(rows, **options):
    named = {"random": "random", "oracles": {"worth": "oracle"}, "paired": [("a", "b"), ("a", "c")]}
    return mo.compare(rows, **named, resamples=200, **options)


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_a_table_in_a_mirror(tmp_path, method):
    tables = []
    for sign in (1, -1):
        (tmp_path / str(sign)).mkdir()
        tables.append(table_of(foreign(tmp_path / str(sign), sign), method=method))
    for row, of_table in zip(tables[1].records(), tables[0].records(), strict=True):
        assert_close(plain(row), mirrored(of_table))
    texts = [table.text("md") for table in tables]
    marked = [[line.split("|")[1] for line in text.splitlines() if "|" in line and "**" in line] for text in texts]
    assert marked[0] == marked[1]
    assert not re.search(r"-0\.0+(?!\d)", texts[1])


def test_a_yardstick_has_no_part_in_the_marks_of_others(tmp_path):
    rows = foreign(tmp_path, 1)
    marks = []
    for factor in (0.0, 1.0, 1000.0):
        table = rows["random"].table
        scaled = table.set_column(1, "worth", [table["worth"].to_numpy() * factor])
        found = table_of({**rows, "random": replace(rows["random"], table=scaled)})
        marks.append({key: cell.best for key, cell in found.cells.items()})
    assert marks[0] == marks[1] == marks[2]
    assert sum(marks[0].values()) == 1


def test_radiologists_agree_with_scores_in_a_mirror(tmp_path):
    rng = random.Random(1)
    pairs = [(f"s{i}", candidate) for i in range(12) for candidate in "ab"]
    counts = [[*pair, category, rater, flag, rng.choice((0, 0, 1, 2))] for pair in pairs for category in range(1, 7)
              for rater in (0, 1) for flag in (True, False)]  # fmt: skip
    pair, found = ("study_id", "candidate_type"), []
    ratings = write(
        tmp_path / "ratings.csv",
        counts,
        (*pair, "error_category", "rater_index", "clinically_significant", "num_errors"),
    )
    scores = [(*of_pair, rng.randrange(5) / 4, rng.randrange(5) / 4) for of_pair in pairs]
    for sign, way in ((1, "higher"), (-1, "lower")):
        rows = [[*of_pair, sign * worth_of, sign * other] for *of_pair, worth_of, other in scores]
        path = write(tmp_path / f"{way}.csv", rows, (*pair, "worth", "other"))
        options = {"directions": {"worth": way, "other": way}, "paired": [("worth", "other")], "resamples": 100}
        found.append([
            mo.align(ratings, path, **options).records(),
            mo.compare_metrics({"set": mo.RatedFiles(ratings, path)}, **options).records(),
        ])  # fmt: skip
    assert found[0] == found[1]


def pages_of(made_up, folder, judge):
    """Return a function from the address of a page of a study to its HTML."""
    study_of(made_up, judge, folder, pool="all")
    files = [path for path in sorted(folder.glob("*.parquet")) if "reports" not in path.name]
    client = client_of(read_cases(files, made_up.index, mo.reports(made_up.tests).load()))
    return lambda address: client.get(address).text


def test_pages_in_a_mirror(made_up, tmp_path):
    pytest.importorskip("matplotlib")
    pages, mirror = (pages_of(made_up, tmp_path / name, judge) for name, judge in (("up", JUDGE), ("down", MIRRORED)))

    def marks(page):
        return re.findall(r'<text class="name [^>]*>([^<]*)<|<text class="tick[^>]*>[^<]*<', page)

    def studies(page):
        return re.findall(r'<th scope="row" class="id"><a href="/case/(\d+)', page)

    def order(page):
        """Return the order that each heading states."""
        return re.findall(r' aria-sort="(\w+)"', page)

    def words(page):
        """Return what a page says, without numbers and directions, and the classes of what it shows."""
        text, last = page, ""
        while text != last:  # the innermost picture first
            text, last = re.sub(r"<svg(?:(?!<svg).)*?</svg>", "", text, flags=re.DOTALL), text
        shown = re.sub(r"[-+−]?\d[\d.,]*%?|higher|lower|[↑↓]", "", re.sub(r"<[^>]*>", " ", text))
        return shown.split(), re.findall(r'class="([^"]*)"', text)

    # The axis has 0 and 1 on it in both, so that other labels have room of their own: those that have it in both.
    drawn = [re.findall(r'<section class="strip".*?</section>', page("/"), flags=re.DOTALL) for page in (pages, mirror)]
    n_common = 0
    for axes in zip(*drawn, strict=True):
        labels = [[name for name in marks(axis) if name] for axis in axes]
        common = [[name for name in some if name in labels[0] and name in labels[1]] for some in labels]
        assert common[0] == common[1]
        n_common += len(common[0])
    assert n_common > 3
    turned = {"ascending": "descending", "descending": "ascending"}
    n_turned = 0
    for address in [f"/cases?sort={sort}{turn}" for sort in range(6) for turn in ("", "&turn=1")]:
        page, mirrored_page = pages(address), mirror(address)
        assert studies(mirrored_page) == studies(page)
        stated, of_mirror = order(page), order(mirrored_page)
        is_judged = of_mirror != stated
        assert not is_judged or of_mirror == [turned[one] for one in stated]
        n_turned += is_judged
    assert n_turned > 1
    for address in ("/", "/systems", *(f"/case/{q}" for q in range(12))):
        assert words(mirror(address)) == words(pages(address)), address
    for page in map(mirror, ("/", "/cases", "/systems", "/case/0", "/case/3")):
        assert not re.search(r"-0\.0+(?!\d)", re.sub(r"<[^>]*>", " ", page))


def test_pages_over_shards_are_those_over_one_index(corpus, tmp_path):
    pages = []
    for name, rows in (("one", None), ("shards", 37)):
        folder = tmp_path / name
        mo.build_index(
            mo.reports(corpus["train"], radgraph=corpus["train_graphs"], chexbert_labels=corpus["train_labels"],
                       uncertain="negative"), folder / "INDEX", shard_rows=rows)  # fmt: skip
        tests = mo.reports(corpus["test"], radgraph=corpus["test_graphs"], chexbert_labels=corpus["test_labels"],
                           uncertain="negative").load()  # fmt: skip
        index = mo.open_index(folder / "INDEX")
        files = [mo.retrieve(index, tests, metric, k=2) for metric in ("rouge-l", "radgraph", "chexbert:labels")]
        client = client_of(read_cases(files, index, tests))
        addresses = ["/", "/cases", *(f"/case/{q}?show={show}" for q in range(len(tests.ids)) for show in range(3))]
        texts = {address: sessions.masked(client.get(address).text) for address in addresses}
        pages.append({address: re.sub(r"index [0-9a-f]{12}", "index", text) for address, text in texts.items()})
    assert_same(*pages)


# Order, parts and names


def test_the_files_of_a_row_are_joined_in_any_order(made_up, tmp_path):
    read = {}
    for tool, n in itertools.product(("first", "second"), (12, 9)):
        rows = [[study, score] for study, score in zip([*made_up.tests][:n], range(n), strict=False)]
        path = write(tmp_path / f"{tool}{n}.csv", rows, ("study_id", tool))
        read[tool, n] = mo.read_foreign("a", path, {tool: "higher"})

    def outcome(*pair):
        try:
            return sorted(map(str, mo.compare({"a": pair}, resamples=100).records()))
        except mo.MetricOracleError as error:
            return type(error)

    for sizes in itertools.product((12, 9), repeat=2):
        pair = [read["first", sizes[0]], read["second", sizes[1]]]
        assert outcome(*pair) == outcome(*pair[::-1]), sizes
        assert isinstance(outcome(*pair), list) == (sizes[0] == sizes[1])


def test_a_judge_is_noted_whatever_the_blocks(made_up, monkeypatch):
    def ask(pairs, take):
        for place, score in enumerate(worth(pairs)):
            take(place, score)
        return Asked({"truncated_pairs": len(pairs)})

    judge = Judge("worth", "", True, 1.0, ask, {})
    planned = planned_pool(made_up.index, "rouge-l:3,random:2", SearchOptions(k=2))
    found = []
    for size in (1, 7, 1 << 20):
        monkeypatch.setattr(rerank, "BLOCK", size)
        found.append(rerank.Reranking(planned, judge, mo.reports(made_up.tests).load()).results())
    for one in found[:2]:
        assert one.signature == found[2].signature
        assert one.records() == found[2].records()


@pytest.mark.parametrize("k", [2, 5])
def test_what_is_said_of_a_pool_is_said_of_the_best_reports(made_up, k):
    pool = "rouge-l:4,random:2"
    lines = [views.pool_lines(mo.rerank(made_up.index, made_up.tests, JUDGE, pool=pool, k=n)) for n in (1, k)]
    assert lines[0] == lines[1]


def test_the_pool_of_a_study_is_that_of_its_lists(made_up):
    lists = mo.retrieve(made_up.index, made_up.tests, "rouge-l", k=2).table
    listed = {*zip(lists["query_id"].to_pylist(), lists["row"].to_pylist(), strict=True)}
    for draws in (2, 5):
        pairs = mo.study_pairs(made_up.index, made_up.tests, made_up.models, metrics="rouge-l",
                               pool=f"rouge-l:2,random:{draws}")  # fmt: skip
        of_pool = {(row["query_id"], row["row"]) for row in pairs.records() if row["system"] == "pool"}
        assert of_pool <= listed


def test_chance_under_a_judge_that_is_the_metric_is_that_of_the_metric(tmp_path):
    rng = random.Random(3)
    names = [f"finding {i}" for i in range(4)]

    def labelled(n, seed, name):
        path = tmp_path / f"{name}.csv"
        rows = [[i, *(rng.choice(("", 0, 1)) for _ in names)] for i in reports(n, seed, name)]
        texts = {row[0]: f"{name} {' '.join(map(str, row))}" for row in rows}  # every pair of texts is another
        labels = write(path, rows[5 if name == "c" else 0 :], ("study_id", *names))  # some have none
        return texts, mo.reports(texts, labels=labels)

    corpus, in_index = labelled(40, 1, "c")
    tests, asked = labelled(8, 2, "t")
    index = mo.build_index(in_index, tmp_path / "INDEX", metrics="labels:agreement")
    exact = mo.expectation(index, asked, "labels:agreement").table
    n_scored = {*exact["n"].to_pylist()}
    mean = dict(zip(exact["query_id"].to_pylist(), exact["mean"].to_pylist(), strict=True))
    every = mo.retrieve(index, asked, "labels:agreement", k=min(n_scored)).table
    score = dict(zip(zip(*(every[name].to_pylist() for name in ("query_id", "candidate_id")), strict=True),
                     every["score"].to_pylist(), strict=True))  # fmt: skip
    study_of = {text: study for texts in (corpus, tests) for study, text in texts.items()}

    def as_the_metric(pairs):
        """Judge as the metric does; where it has no score, by its mean, which leaves the mean as it is."""
        ids = [(study_of[reference], study_of[candidate]) for reference, candidate in pairs]
        return [score.get(pair, mean[pair[0]]) for pair in ids]

    assert len(score) < len(corpus) * len(mean)
    judge = mo.judge(as_the_metric, direction="higher")
    found = mo.expectation(index, asked, ["labels:agreement", judge], draws=15).table
    assert dict(zip(found["query_id"].to_pylist(), found["mean"].to_pylist(), strict=True)) == pytest.approx(mean)


def test_places_in_a_list_are_no_ids(made_up, tmp_path):
    texts = [*made_up.tests.values()]
    found = []
    of_places = mo.build_index([*made_up.corpus.values()], tmp_path / "INDEX", metrics="rouge-l,bleu-2")
    for index in (made_up.index, of_places):
        found.append(mo.overlap(index, {"model": texts}, resamples=100).records())
    assert found[0] == found[1]


def test_a_sentence_counts_once_in_a_report(made_up):
    twice = {study: f"{text} {text}" for study, text in made_up.tests.items()}
    tables = [mo.overlap(made_up.index, {"model": one}, resamples=100).sentences() for one in (made_up.tests, twice)]
    assert tables[0].to_pylist() == tables[1].to_pylist()


def test_a_column_of_images_does_not_join_what_a_column_of_studies_joins():
    ids = [f"A{i}" for i in range(6)]
    texts = [SENTENCES[i] for i in range(6)]
    references = {"study_id": [f"s{i}" for i in range(6)], "accession": ids, "report": texts}
    predictions = {"accession": ids[::-1], "report": texts}
    expected = mo.score(pl.DataFrame(references), pl.DataFrame(predictions), "rouge-l").table
    images = [{"dicom_id": [f"d{i + shift}" for i in range(6)]} for shift in (0, 3)]
    for turn in (1, -1):
        sides = [{**dict([*{**side, **image}.items()][::turn])}
                 for side, image in zip((references, predictions), images, strict=True)]  # fmt: skip
        found = mo.score(*map(pl.DataFrame, sides), "rouge-l").table
        assert found["rouge-l"].to_pylist() == expected["rouge-l"].to_pylist()


@pytest.mark.filterwarnings("ignore:left out")
def test_counted_errors_follow_their_pair(tmp_path):
    rng = random.Random(5)
    tests, model = reports(9, 2), reports(9, 3)
    cells = [(study, category, rater) for study in [*tests][2:8] for category in "ABCDEF" for rater in ("x", "y")]
    rows = [
        [study, category, rater, flag, rng.randrange(3)] for study, category, rater in cells for flag in (True, False)
    ]
    header = ("pair_id", "error_category", "rater_id", "clinically_significant", "num_errors")
    found = []
    for turn in (1, -1):
        ratings = write(tmp_path / f"ratings{turn}.csv", rows[::turn], header)
        references, predictions = (dict([*side.items()][::way]) for side, way in ((tests, turn), (model, -turn)))
        pairs, counts = read_counted_pairs(references, predictions, ratings)
        found.append(sorted((pair, of_pair.tolist()) for pair, of_pair in zip(pairs, counts, strict=True)))
    assert found[0] == found[1]
    # A study alone has the counts that it has among others.
    for study in [*tests][2:8]:
        own = write(tmp_path / "own.csv", [row for row in rows if row[0] == study], header)
        (pair,), counts = read_counted_pairs(tests, model, own)
        assert (pair, counts[0].tolist()) in found[0]


def test_equal_texts_of_different_studies_contradict_nothing(tmp_path):
    texts = ["Small effusion.", "Small effusion.", "No change."]
    found = []
    for name, own in (("equal", ["", "", ""]), ("distinct", [" One.", " Two.", " Three."])):
        studies = [f"s{i}" for i in range(3)]
        candidates = {
            model: {study: text + end for study, text, end in zip(studies, of_model, own, strict=True)}
            for model, of_model in (("a", texts), ("b", [texts[0].replace(" ", "  "), "Clear.", "Clear."]))
        }
        references = {study: f"Reference {study}." for study in studies}
        folder = tmp_path / name
        mo.create_survey(
            references, candidates, folder, raters=["anna"], options=mo.SurveyOptions(studies=3, identical="show")
        )
        key = json.loads((folder / "key.json").read_text())
        survey = open_survey(folder)
        for position, of_study in enumerate(key["studies"]):
            for candidate, place in of_study["positions"].items():
                n = int(of_study["study_id"][1:]) + (candidate == "b")  # the counts of a pair, wherever it stands
                asked = {"id": f"answer-{position}-{place}", "study": position, "candidate": place}
                survey.log("anna").save({**asked, "counts": [[n, 0]] * 6, "base": 0, "survey": survey.fingerprint})
        found.append(mo.export_survey(folder, tmp_path / f"{name}-export").notes["contradictions"])
    assert found[0] == found[1]
    assert found[0]


def test_a_user_file_beside_ours_stays(made_up, monkeypatch, tmp_path):
    """What our names of unfinished work begin and end with, and no number between: it is not ours."""
    patterns = []

    def noted(place, before, after):
        patterns.append((place, before, after))
        remove(place, before, after)

    remove = files.remove_leftovers
    monkeypatch.setattr(files, "remove_leftovers", noted)

    def written():
        mo.build_index(made_up.corpus, tmp_path / "INDEX", metrics="rouge-l", shard_rows=25)
        mo.retrieve(tmp_path / "INDEX", made_up.tests, "rouge-l").write(tmp_path / "oracle.parquet")
        mo.mine(tmp_path / "INDEX", "rouge-l", tmp_path / "mined.parquet")
        mo.score(made_up.tests, made_up.models["a"], "rouge-l").write(tmp_path / "scores.csv")

    written()
    shutil.rmtree(tmp_path / "INDEX")
    (tmp_path / "mined.parquet").unlink()
    kept = [place.parent / f"{before}{own}{after}" for place, before, after in patterns for own in ("mine", "1a", "")]
    kept = [path for path in dict.fromkeys(kept) if path.parent.is_dir()]
    assert len(kept) > 3
    for path in kept:
        path.write_text("mine")
    written()
    assert [path.read_text() for path in kept] == ["mine"] * len(kept)


# At the limit


def neighbours(value):
    """Return a float64 and those next to it."""
    return float(np.nextafter(value, -np.inf)), value, float(np.nextafter(value, np.inf))


@pytest.mark.parametrize("metric", ["rouge-l", "bleu-2"])
def test_a_search_lists_what_reaches_a_score(made_up, metric):
    index = made_up.index
    rows = mo.retrieve(index, made_up.tests, metric, k=60).records()
    for score in sorted({row["score"] for row in rows})[1:-1:9]:
        for limit in neighbours(score):
            for options in (SearchOptions(min_score=limit), SearchOptions(where=f"{metric}>={limit!r}")):
                found = mo.retrieve(index, made_up.tests, metric, k=60, options=options).records()
                names = ("query_id", "row", "score")
                assert [[row[name] for name in names] for row in found] == [
                    [row[name] for name in names] for row in rows if row["score"] >= limit
                ]


def test_mining_counts_what_it_leaves_out_at_the_limit(made_up, tmp_path):
    def mined(name, **options):
        path = tmp_path / f"{name}.parquet"
        selection = options.pop("selection", None)
        counts = mo.mine(made_up.index, "rouge-l", path, k=60, selection=selection,
                         options=SearchOptions(**options)).signature["skipped"]  # fmt: skip
        table = pyarrow.parquet.read_table(path)
        return counts, table

    _, table = mined("every")
    scores = sorted({*table["score"].to_pylist()})
    for place, score in enumerate(scores[1:-1:12]):
        for side, limit in enumerate(neighbours(score)):
            counts, found = mined(f"min-{place}-{side}", min_score=limit)
            assert counts["listed"] == found.num_rows == sum(one >= limit for one in table["score"].to_pylist())
            assert sum(n for name, n in counts.items() if name not in ("anchors", "candidates")) == counts["candidates"]
            counts, found = mined(f"max-{place}-{side}", selection=mo.Selection(max_score=limit))
            assert counts["listed"] == found.num_rows == sum(one <= limit for one in table["score"].to_pylist())
            counts, found = mined(f"where-{place}-{side}", where=f"rouge-l<={limit!r}")
            assert counts["listed"] == found.num_rows == sum(one <= limit for one in table["score"].to_pylist())


@pytest.mark.parametrize("margin", ["absolute_margin", "relative_margin"])
def test_a_margin_and_its_neighbours_leave_the_same(made_up, tmp_path, margin):
    """A margin is compared with a difference, which is rounded: its last bit is no matter."""
    best, every = tmp_path / "best.parquet", tmp_path / "every.parquet"
    mo.mine(made_up.index, "rouge-l", best, k=1, options=SearchOptions(exclude="text"))
    mo.mine(made_up.index, "rouge-l", every, k=60)
    positive = {row["anchor_row"]: row["score"] for row in pyarrow.parquet.read_table(best).to_pylist()}
    rows = pyarrow.parquet.read_table(every).to_pylist()
    gaps = {positive[row["anchor_row"]] - row["score"] for row in rows if row["anchor_row"] in positive}
    gaps = sorted(round(gap, 12) for gap in gaps if 0 < gap < 0.9)
    for gap in dict.fromkeys(gaps[:: len(gaps) // 4]):
        found = []
        for number, limit in enumerate(neighbours(gap)):
            path = tmp_path / f"{gap}-{number}.parquet"
            selection = mo.Selection(positives=best, **{margin: limit})
            counts = mo.mine(made_up.index, "rouge-l", path, k=60, selection=selection).signature["skipped"]
            found.append(pyarrow.parquet.read_table(path)["candidate_row"].to_pylist())
            assert counts["listed"] == len(found[-1])
        assert found[0] == found[1] == found[2]


def test_near_copies_are_those_that_reach_the_limit(tmp_path):
    words = "abcdefghijklmnopqrstuvwxyz"
    corpus = {"c0": " ".join(words[:10]), "c1": " ".join(words[10:15]), "c2": " ".join(words[15:25])}
    near = {f"s{n}": " ".join([*words[:n], *(f"w{i}" for i in range(10 - n))]) for n in range(5, 11)}
    near |= {f"t{n}": " ".join([*words[15 : 15 + n], *(f"w{i}" for i in range(10 - n))]) for n in range(5, 11)}
    index = mo.build_index(corpus, tmp_path / "INDEX", metrics="rouge-l,bleu-2")
    found = mo.overlap(index, {"model": near}, resamples=100)
    n_at_limit = 0
    for (name, line), cell in found.cells.items():
        metric, sign, limit = line.partition(" ≥ ")
        if sign and metric in found.sets[name].best:
            best = found.sets[name].best[metric]
            reached = [float(f"{score:.12g}") >= float(limit) for score in best]
            n_at_limit += sum(abs(score - float(limit)) < 1e-12 for score in best)
            assert cell.value == np.mean(reached), line
    assert n_at_limit


@pytest.mark.parametrize("limit", [0.0, 0.0005, 0.001, 0.0012, 0.0015, 0.01, 0.05, 0.0505, 0.5, 1.0])
def test_a_printed_p_value_is_the_number(limit):
    for value in neighbours(limit):
        text = cells.p_value(max(value, 0.0))
        below, _, bound = text.rpartition("<")
        assert not below
        if text.startswith("<"):
            assert value < float(bound)
        else:
            assert abs(value - float(text)) <= 0.0005 * (1 + 1e-9)
            assert value >= 0.001


@pytest.mark.parametrize("value", [0.0, 4e-5, 5e-5, 0.12345, 0.99995, 1.0])
def test_a_printed_number_has_the_sign_of_what_it_shows(value):
    for one in neighbours(value):
        text, turned = cells.number(one), cells.number(-one)
        assert {text.lstrip("-"), turned.lstrip("-")} == {text.lstrip("-")}
        assert (text[0] == "-") + (turned[0] == "-") == (float(text) != 0)
        assert cells.ends(-one, one).count("-") == (float(text) != 0)


# Repeated, and together


def test_tests_of_one_family_are_adjusted_together(made_up):
    found = mo.best_of(made_up.samples, made_up.tests, ["rouge-l", "bleu", JUDGE])
    tested = sorted((row["p_value"], row["p_adjusted"]) for row in found.records() if row["p_value"] is not None)
    assert len(tested) > 6
    assert [adjusted for _, adjusted in tested] == sorted(adjusted for _, adjusted in tested)
    # The greatest p-value of a family is not changed, and the least at most times their number.
    assert tested[-1][0] == tested[-1][1]
    assert all(p <= adjusted <= min(1.0, p * len(tested)) + 1e-12 for p, adjusted in tested)


def test_a_long_report_has_the_same_scores_alone_and_in_a_batch(tmp_path):
    """More features than a byte counts, in lists so dense and so often read that bits stand for them."""
    rng = random.Random(0)
    words = [f"w{i}" for i in range(320)]
    corpus, queries = ([" ".join(rng.sample(words, 290)) for _ in range(n)] for n in (150, 16))
    index = mo.build_index(corpus, tmp_path / "INDEX", metrics="jaccard:1")
    options = {"k": 3, "threads": 1, "text": False}
    together = mo.retrieve(index, queries, "jaccard:1", **options).table
    for q, query in enumerate(queries):
        alone = mo.retrieve(index, [query], "jaccard:1", **options).table
        for name in ("row", "score", "n_ties"):
            assert alone[name].to_pylist() == together[name].slice(3 * q, 3).to_pylist(), name


def test_a_corpus_twice_has_each_answer_twice(made_up, tmp_path):
    again = {f"z{study}": text for study, text in made_up.corpus.items()}
    twice = mo.build_index(made_up.corpus | again, tmp_path / "INDEX", metrics="rouge-l,bleu-2")
    one, two = (mo.retrieve(index, made_up.tests, "rouge-l").records() for index in (made_up.index, twice))
    assert two == [{**row, "n_ties": 2 * row["n_ties"]} for row in one]
    one, two = (mo.expectation(index, made_up.tests, "rouge-l").records() for index in (made_up.index, twice))
    for row, of_one in zip(two, one, strict=True):
        assert_close(row, {**of_one, "n": 2 * of_one["n"]})
    one, two = (mo.overlap(index, {"model": made_up.models["a"]}, resamples=100) for index in (made_up.index, twice))
    assert two.records() == one.records()


@pytest.mark.parametrize("k", [2, 60])
def test_a_list_of_k_begins_with_the_list_of_one(made_up, k):
    one, more = (mo.retrieve(made_up.index, made_up.tests, "rouge-l", k=n).records() for n in (1, k))
    assert [row for row in more if row["rank"] == 1] == one
    assert len(more) == k * len(one)


def test_queries_alone_have_the_answers_of_a_batch(made_up):
    together = mo.retrieve(made_up.index, made_up.tests, "rouge-l", k=3).records()
    alone = [
        row
        for study, text in made_up.tests.items()
        for row in mo.retrieve(made_up.index, {study: text}, "rouge-l", k=3).records()
    ]
    assert alone == together


def test_a_study_twice_is_refused_or_told(made_up):
    """Two reports of one id are no two studies, in whatever function."""
    twice = pl.DataFrame({"study_id": ["s000", "s000", "s001"], "report": list(SENTENCES[:3])})
    one = pl.DataFrame({"study_id": ["s000", "s001"], "report": list(SENTENCES[1:3])})
    for call in (
        lambda: mo.score(twice, one, "rouge-l"),
        lambda: mo.score(one, twice, "rouge-l"),
        lambda: mo.retrieve(made_up.index, twice, "rouge-l"),
        lambda: mo.study(made_up.index, twice, metrics="rouge-l"),
        lambda: mo.best_of(made_up.samples, twice, "rouge-l"),
    ):
        with pytest.raises(mo.MetricOracleError, match="s000"):
            call()


# Two options at once: each says what it says alone.
RESTRICTIONS = {
    "exclude": ("text", lambda row: row["text_of_query"] != row["text"]),
    "min_score": (0.25, lambda row: row["score"] >= 0.25),
    "where": ("bleu-2<=0.5", lambda row: row["bleu-2"] <= 0.5),
}
CHANGES = {"threads": (1, 3), "backend": ("cpu", "reference"), "text": (True, False), "k": (1, 60)}


@pytest.mark.parametrize("pair", [*itertools.combinations([*RESTRICTIONS, *CHANGES], 2)], ids="-".join)
def test_two_options_of_a_search_together(made_up, pair):
    index = made_up.index
    scored = mo.retrieve(index, made_up.tests, "rouge-l", k=60, options=SearchOptions(where="bleu-2>=0")).records()
    for row in scored:
        row["text_of_query"] = made_up.tests[row["query_id"]]
    options, k = {}, 60
    for name in pair:
        if name in RESTRICTIONS:
            options[name], fits = RESTRICTIONS[name]
            scored = [row for row in scored if fits(row)]
    if pair == ("where", "backend"):
        with pytest.raises(mo.MetricOracleError, match="where must be left out"):
            mo.retrieve(index, made_up.tests, "rouge-l", options=SearchOptions(**options, backend="reference"))
        return
    for values in itertools.product(*(CHANGES[name] for name in pair if name in CHANGES)):
        chosen = options | dict(zip([name for name in pair if name in CHANGES], values, strict=True))
        k = chosen.setdefault("k", 60)
        found = mo.retrieve(index, made_up.tests, "rouge-l", options=SearchOptions(**chosen)).records()
        expected = [
            (row["query_id"], row["row"], row["score"])
            for _, of_query in itertools.groupby(scored, key=lambda row: row["query_id"])
            for row in itertools.islice(of_query, k)
        ]
        assert [(row["query_id"], row["row"], row["score"]) for row in found] == expected
        assert all(("text" in row) == chosen.get("text", True) for row in found)


# What mining leaves out, by itself: which of the lines of a search with no limit it keeps.
KEPT_BY = {
    "min_score": (0.25, lambda row: row["score"] >= 0.25),
    "where": ("bleu-2<=0.5", lambda row: row["bleu-2"] <= 0.5),
    "exclude": ("text", lambda row: row["anchor_text"] != row["candidate_text"]),
    "max_score": (0.5, lambda row: row["score"] <= 0.5),
}


@pytest.mark.parametrize("pair", [*itertools.combinations(KEPT_BY, 2)], ids="-".join)
def test_two_limits_of_mining_together(made_up, tmp_path, pair):
    def mined(name, **options):
        selection = mo.Selection(**{key: options.pop(key) for key in ("max_score", "range_min") if key in options})
        path = tmp_path / f"{name}.parquet"
        counts = mo.mine(made_up.index, "rouge-l", path, k=60, text=True, selection=selection,
                         options=SearchOptions(**options)).signature["skipped"]  # fmt: skip
        rows = pyarrow.parquet.read_table(path).to_pylist()
        assert counts["listed"] == len(rows)
        return rows

    def lines(rows):
        return [(row["anchor_row"], row["candidate_row"], row["score"]) for row in rows]

    every = mined("every", where="bleu-2>=0")
    allowed = [row for row in every if all(KEPT_BY[name][1](row) for name in pair)]
    limits = {name: KEPT_BY[name][0] for name in pair}
    assert lines(mined("both", **limits)) == lines(allowed)
    # Without its best lines, a list begins with the next; a limit of the best score counts after that.
    ranked = [row for row in every if all(KEPT_BY[name][1](row) for name in pair if name != "max_score")]
    of_anchors = itertools.groupby(ranked, key=lambda row: row["anchor_row"])
    rest = [row for _, of_anchor in of_anchors for row in itertools.islice(of_anchor, 2, None)]
    rest = [row for row in rest if "max_score" not in pair or KEPT_BY["max_score"][1](row)]
    assert lines(mined("rest", **limits, range_min=2)) == lines(rest)


def test_named_columns_are_those_of_usual_names(made_up, tmp_path):
    usual, named = (
        {name: write(tmp_path / f"{name}-{kind}.csv", texts, header)
         for name, texts in {"tests": made_up.tests, **made_up.models}.items()}
        for kind, header in (("usual", ("study_id", "report")), ("named", ("Fall Nr", "der Text")))
    )  # fmt: skip
    read = Read(id_column="Fall Nr", text_column="der Text")

    def outcomes(sides):
        tests, a, b = sides["tests"], sides["a"], sides["b"]
        yield mo.score(tests, a, "rouge-l").records()
        yield mo.retrieve(made_up.index, tests, "rouge-l", k=2).records()
        yield mo.rerank(made_up.index, tests, JUDGE, pool="rouge-l:3").records()
        systems = mo.study(made_up.index, tests, {"a": a, "b": b}, metrics="rouge-l")
        yield mo.compare_study(systems, resamples=100).records()
        yield mo.expectation(made_up.index, tests, "rouge-l").records()
        yield mo.study_pairs(made_up.index, tests, {"a": a}, metrics="rouge-l").records()
        yield mo.pool(made_up.index, tests, pool="rouge-l:2").records()
        yield mo.best_of(made_up.samples, tests, "rouge-l").records()

    of_named = {name: mo.reports(path, read=read) for name, path in named.items()}
    for expected, found in zip(outcomes(usual), outcomes(of_named), strict=True):
        assert found == expected
