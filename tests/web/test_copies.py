"""Pages of copies: from `oracle overlap --pairs` to the list and to the marked run on a report's page."""

import html
import re

import numpy as np
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.explorer.cases import read_cases
from metric_oracle.explorer.copied_cases import CopiedCases, read_copies
from metric_oracle.findings.results import Results
from metric_oracle.indexes.ngrams import tokenize_rouge
from metric_oracle.web.render import visible
from support.pages import NASTY, bare, client_of, made_up, written

TRAIN = [
    "No acute cardiopulmonary process. Heart size is normal",
    "Small left effusion, unchanged since the prior study of the chest XXXX today.",
    "A small right pleural and stable effusion is unchanged since a prior study.",
    "Stable.",
]
HUMAN = ["Stable.", "A small right pleural effusion unchanged since the prior study", "New nodule"]
MODEL = ["stable", "Small left effusion since the prior XXXX study of the chest", "no acute cardiopulmonary process"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copied")
    for name, texts in (("train", TRAIN), ("test", HUMAN), ("model", MODEL)):
        lines = [f'{name if name == "train" else "s"}{i},"{text}"' for i, text in enumerate(texts)]
        (folder / f"{name}.csv").write_text("\n".join(["study_id,report", *lines]), "utf-8")
    mo.build_index(folder / "train.csv", folder / "INDEX", metrics="rouge-l,bleu-2")
    return folder


def runs_of(words: list[str], n: int) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def marked(side: str) -> list[str]:
    """Return the words of the one marked phrase of a text on the page."""
    phrases = re.findall(r'<span class="matched" data-p="1">(.*?)</span>', side, re.DOTALL)
    assert len(phrases) <= 1
    return tokenize_rouge(html.unescape("".join(phrases)))


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("mask", [False, True])
def test_from_the_command_to_the_page(files, oracle, tmp_path, ending, mask):
    copies, scores = tmp_path / f"copies.{ending}", tmp_path / "model.parquet"
    options = ("--with-text",) * (ending == "csv") + ("--mask",) * mask
    sets = f"model={files / 'model.csv'}", "--references", files / "test.csv"
    code, _, err = oracle("overlap", files / "INDEX", *sets, "--resamples", 200, "--pairs", copies, *options)
    assert code == 0, err
    mo.score(files / "test.csv", files / "model.csv", "rouge-l", system="model", text=True).write(scores)
    index, queries = mo.open_index(files / "INDEX"), mo.reports(files / "test.csv").load()
    cases = read_cases([scores], index, queries, copied=read_copies(copies))
    client = client_of(cases)
    listed = client.get("/copies").text
    rows = cases.copied.table.to_pylist()
    lines = re.findall(r'<tr><th scope="row"><a href="/case/(\d)#copies">.*?</tr>', listed, re.DOTALL)
    assert [f"s{place}" for place in lines] == [row["query_id"] for row in rows]
    assert [row["longest_run"] for row in rows] == sorted((row["longest_run"] for row in rows), reverse=True)
    nearest_has_it = []
    for q in range(3):
        page = client.get(f"/case/{q}").text
        section = page[page.index('<h2 id="copies">') :]
        sections = re.findall(r'<article aria-labelledby="c\d">.*?</article>', section, re.DOTALL)
        of_study = [row for row in rows if row["query_id"] == f"s{q}"]
        assert len(sections) == len(of_study) == 2
        for shown, row in zip(sections, of_study, strict=True):
            text = {"human": HUMAN, "model": MODEL}[row["set"]][q]
            texts = [text, TRAIN[row["run_row"]]] if row["longest_run"] else [text]
            texts = [re.sub("XXXX", " ", one) for one in texts] if mask else texts
            sides = re.findall(r'<p class="text" dir="auto">(.*?)</p>', shown, re.DOTALL)
            assert list(map(bare, sides)) == texts
            words = [marked(side) for side in sides]
            n = row["longest_run"]
            assert [len(one) for one in words] == [n] * len(words)
            assert len({tuple(one) for one in words}) == 1
            tokens = [tokenize_rouge(one.replace("XXXX", " ") if mask else one) for one in (text, *TRAIN)]
            longer = [bool(runs_of(tokens[0], n + 1) & runs_of(other, n + 1)) for other in tokens[1:]]
            assert not any(longer)
            if n:
                has_it = [bool(runs_of(tokens[0], n) & runs_of(other, n)) for other in tokens[1:]]
                assert row["run_row"] == has_it.index(True)
                assert row["run_id"] == f"train{row['run_row']}"
                nearest_has_it.append(has_it[row["row"]])
            assert f"{n} word{'s' if n != 1 else ''} in a row" in shown
    assert False in nearest_has_it  # the nearest report by ROUGE-L need not have the longest run
    record = client.get("/case/1.json").json()["copies"]
    assert [one["set"] for one in record] == [row["set"] for row in rows if row["query_id"] == "s1"]


def test_sets_are_counted_and_chosen(files):
    tests = mo.reports(files / "test.csv")
    found = mo.overlap(files / "INDEX", {"model": files / "model.csv"}, tests, resamples=200)
    copied = CopiedCases(found.pairs(), found.signature)
    human, model = copied.summary()
    assert (human["name"], human["n"], human["copies"], human["near"]) == ("human", 3, 1, 1)
    assert (model["name"], model["copies"], model["near"]) == ("model", 0, 1)
    for one in (human, model):
        assert one["copies"] / 3 == found.cells[one["name"], "copy: text"].value
        assert one["near"] / 3 == found.cells[one["name"], "rouge-l ≥ 0.9"].value
        assert one["median"] == found.cells[one["name"], "longest run, median"].value
        assert one["long"] / 3 == found.cells[one["name"], "longest run ≥ 30"].value
    client = client_of(read_cases([mo.score(tests, files / "model.csv", "rouge-l")], copied=copied))
    for chosen, name in enumerate(copied.sets):
        page = client.get(f"/copies?set={chosen}").text
        assert set(re.findall(r'</th><td class="name"><bdi>(\w+)</bdi></td>', page)) == {name}
    page = client.get("/copies?set=7")
    assert (page.status_code, "set is not a whole number from 0 to 1" in page.text) == (400, True)
    # Without index and texts, the page says what to pass.
    page = client.get("/case/1").text
    assert "The text of this report is not known: write the file of copies with --with-text." in page
    assert "The text of the training report is not known: pass --index." in client_of(
        read_cases([mo.score(tests, files / "model.csv", "rouge-l", system="model", text=True)], copied=copied)
    ).get("/case/1").text  # fmt: skip


def test_the_page_and_the_table_have_the_same_numbers(tmp_path):
    """Of sets whose reports differ much in length, so that the share of all 4-grams is not the mean of shares."""
    long = " ".join(["no acute cardiopulmonary process", *map(str, range(40))])
    models = {"a": [long, "No acute cardiopulmonary process.", "clear"], "b": ["clear", "stable", "no edema"]}
    index = mo.build_index(TRAIN, tmp_path / "I", metrics="rouge-l,bleu-2")
    found = mo.overlap(index, {name: dict(enumerate(texts)) for name, texts in models.items()}, resamples=200)
    copied = CopiedCases(found.pairs(), found.signature)
    page = {row["name"]: row for row in copied.summary()}
    assert page["a"]["new"] == pytest.approx(found.cells["a", "new 4-grams"].value, abs=1e-15)
    assert page["a"]["new"] == pytest.approx(40 / 42)
    assert page["b"]["new"] is None
    for name, row in page.items():
        values = {line: found.cells[name, line].value for line in found.lines}
        assert row["copies"] / row["n"] == pytest.approx(values["copy: text"])
        assert row["near"] / row["n"] == pytest.approx(values["rouge-l ≥ 0.9"])
        assert row["long"] / row["n"] == pytest.approx(values["longest run ≥ 30"])
        assert row["median"] == values["longest run, median"]


def test_pages_of_hostile_texts():
    ids = [f"{NASTY[i % len(NASTY)]}{i}" for i in range(120)]
    n = len(ids)
    table = pa.table(
        {
            "set": ["<b>set</b>"] * n, "query_id": ids, "candidate_id": [NASTY[0]] * n, "row": np.zeros(n, np.int64),
            "n_ties": np.ones(n, np.int64), "rouge-l": np.ones(n), "bleu-2": np.ones(n), "jaccard:3": np.ones(n),
            "longest_run": np.zeros(n, np.int64), "run_id": [NASTY[1]] * n, "run_row": np.full(n, -1),
            "n_4grams": np.zeros(n, np.int64), "new_4grams": pa.nulls(n, pa.float64()),
            "copy": [True] * n, "same_id": [True] * n, "text": [NASTY[i % len(NASTY)] for i in range(n)],
        }
    )  # fmt: skip
    copied = CopiedCases(table, {"command": "overlap", "index": "f" * 64})
    client = client_of(read_cases([made_up(ids), written(ids, NASTY, NASTY[:1] * n)], copied=copied))
    for path in ("/copies", "/copies?page=3", "/copies?page=99", "/copies?set=0", "/case/3"):
        text = client.get(path).text
        assert "<script>alert" not in text
        assert "<b>set" not in text
        assert "\0" not in text
    assert html.escape(visible(ids[4]), quote=False) in client.get("/copies").text
    assert len(re.findall("#copies", client.get("/copies?page=3").text)) == 20
    assert client_of(read_cases([made_up(ids)])).get("/copies").status_code == 404


def test_files_that_do_not_belong_together(files, tmp_path, fails):
    tests = mo.reports(files / "test.csv")
    index, queries = mo.open_index(files / "INDEX"), tests.load()
    found = mo.overlap(index, {"model": files / "model.csv"}, tests, resamples=200)
    scores = mo.score(tests, files / "model.csv", "rouge-l")
    other = CopiedCases(found.pairs(), {**found.signature, "index": "f" * 64})
    with pytest.raises(
        InputError, match=r"copies must be made with index .*; got one made with ffffffffffff\. Pass the"
    ):
        read_cases([scores], index, queries, copied=other)
    with pytest.raises(
        InputError, match=r"copies must have the ids of the test reports; got none of them\. Check that"
    ):
        read_cases([made_up(["x"])], copied=other)
    scores.write(tmp_path / "scores.parquet")
    Results(found.pairs().drop(["run_row"]), found.signature).write(tmp_path / "old.parquet")
    for name, words in (("scores.parquet", "another file or damaged"), ("old.parquet", "another file or damaged")):
        with pytest.raises(
            InputError, match=rf"copies must be a file that `pairs` of `mo\.overlap` wrote, with its .*; got .*{words}"
        ):
            read_copies(tmp_path / name)
    match = "explore: --copies must be an existing file; got none.csv. Write one with --pairs of oracle overlap."
    fails("explore", tmp_path / "scores.parquet", "--copies", "none.csv", match=match)
    # A text of the result file that is not the one that was compared has no mark.
    scores = mo.score(tests, {"s0": "x", "s1": "a study", "s2": "y"}, "rouge-l", system="model", text=True)
    copied = CopiedCases(found.pairs(), found.signature)
    page = client_of(read_cases([scores], index, queries, copied=copied)).get("/case/1").text
    assert "These texts share 1 words in a row, not" in page
