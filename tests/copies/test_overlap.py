"""The report on copies: cases by hand, equality with brute force, planted near duplicates, the command."""

import io
import json
import random

import numpy as np
import pytest
from pyarrow import parquet
from rich.console import Console

import metric_oracle as mo
from metric_oracle.base.option_types import Resamples
from metric_oracle.copies import runs
from metric_oracle.copies.measure import NEAR, masked
from metric_oracle.copies.runs import shared_runs
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.corpora.texts import folded
from metric_oracle.indexes.ngrams import tokenize_rouge
from metric_oracle.metrics import METRICS
from metric_oracle.retrieval.kernels import load_reference
from support import rule_of

TRAIN = [
    "No acute cardiopulmonary process.",
    "Small left effusion, unchanged since the prior study of the chest.",
    "Heart size is normal. XXXX placed on 01/02/2019 in the right atrium.",
    "Stable.",
]


def few(**sets):
    return {name: Reports([f"s{i}" for i in range(len(texts))], texts, name) for name, texts in sets.items()}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return mo.build_index(TRAIN, tmp_path_factory.mktemp("copies") / "I", metrics="rouge-l,bleu-2")


def test_lines_by_hand(index):
    human = ["NO  acute cardiopulmonary process.", "no acute cardiopulmonary process", "New edema in both lungs today"]
    model = ["Stable.", "Small left effusion, unchanged since the prior study", "Stable."]
    sets = few(human=human, model=model)
    found = mo.overlap(index, {"model": sets["model"]}, sets["human"], resamples=200)
    value = {key: cell.value for key, cell in found.cells.items()}
    assert value["human", "copy: text"] == pytest.approx(1 / 3)  # the second lacks a full stop
    assert value["human", "copy: tokens"] == pytest.approx(2 / 3)
    assert value["model", "copy: text"] == value["model", "copy: tokens"] == pytest.approx(2 / 3)
    assert found.cells["model", "copy: text"].difference == pytest.approx(1 / 3)
    assert found.sets["human"].run.tolist() == [4, 4, 1]  # "in" is a word of the third training report
    assert found.sets["model"].run.tolist() == [1, 8, 1]
    assert value["model", "longest run, median"] == 1
    assert (found.sets["human"].n_grams.tolist(), found.sets["human"].n_new.tolist()) == ([1, 1, 3], [0, 0, 3])
    assert value["human", "new 4-grams"] == pytest.approx(3 / 5)
    assert value["model", "new 4-grams"] == 0
    assert value["model", "most frequent report"] == pytest.approx(2 / 3)
    assert found.distinct == {"human": 3, "model": 2}
    assert value["model", "nearer to training: rouge-l"] == 1
    assert ("human", "nearer to training: rouge-l") not in value
    assert value["human", "same id"] == 0
    pairs = found.pairs().to_pylist()
    assert [pair["query_id"] for pair in pairs[:2]] == ["s1", "s0"]
    assert [(pair["run_id"], pair["run_row"]) for pair in pairs] == [
        ("1", 1),
        *[("0", 0)] * 2,
        *[("3", 3)] * 2,
        ("2", 2),
    ]
    assert [pair["new_4grams"] for pair in pairs] == [0, 0, 0, None, None, 1]
    assert "text" not in found.pairs().column_names
    assert found.pairs(text=True)["text"][0].as_py() == model[1]
    assert found.sentences().to_pylist()[-2:] == [
        {"set": "model", "reports": 2, "share": 2 / 3, "sentence": "stable."},
        {"set": "model", "reports": 1, "share": 1 / 3, "sentence": folded(model[1])},
    ]


def test_near_copies_exactly_at_a_limit_count(tmp_path):
    """Scores of 9, 8 and 7 tenths: with a report of 10 words, and with one of 12, which has 10 runs of three words."""
    words = {"rouge-l": [f"v{i}" for i in range(10)], "jaccard:3": [f"w{i}" for i in range(12)]}
    index = mo.build_index([*map(" ".join, words.values())], tmp_path / "I", metrics="rouge-l,bleu-2,jaccard:3")
    tenths = (9, 8, 7)
    texts = {
        "rouge-l": [" ".join([*words["rouge-l"][:n], *"xyz"[: 10 - n]]) for n in tenths],
        "jaccard:3": [" ".join(words["jaccard:3"][: n + 2]) for n in tenths],
    }
    for name, of_set in texts.items():
        found = mo.overlap(index, few(model=of_set), resamples=100)
        assert found.sets["model"].best[name].tolist() == [0.9, 0.8, 0.7]
        for n, limit in enumerate((0.9, 0.8, 0.7), 1):
            assert found.cells["model", f"{name} ≥ {limit}"].value == pytest.approx(n / 3)


def test_a_sentence_counts_once_for_each_report(index):
    texts = ["No edema. No edema.", "no  edema.", "Stable. No edema. Stable."]
    found = mo.overlap(index, few(model=texts), resamples=100).sentences().to_pylist()
    assert [(row["sentence"], row["reports"]) for row in found] == [("no edema.", 3), ("stable.", 1)]
    assert [row["share"] for row in found] == [1, 1 / 3]
    for texts in (["c. b.", "a. d."], ["d. a.", "b. c."]):  # of equal counts, whatever the order of the reports
        found = mo.overlap(index, few(model=texts), resamples=100).sentences()
        assert found["sentence"].to_pylist() == ["a.", "b.", "c.", "d."]


def test_the_median_of_an_even_number_is_the_lower_one(tmp_path):
    index = mo.build_index({"a": "one two three four five six"}, tmp_path / "I", metrics="rouge-l,bleu-2")
    texts = ["one two three four", "one", "one two three four five six", "one two"]
    found = mo.overlap(index, few(model=texts), resamples=200)
    assert found.sets["model"].run.tolist() == [4, 1, 6, 2]
    assert found.cells["model", "longest run, median"].value == 2


def test_distinct_texts_are_those_that_differ_after_folding(index):
    found = mo.overlap(index, few(model=["Stable.", "STABLE.", " stable.\n", "Stable"]), resamples=200)
    assert found.distinct == {"model": 2}


def test_an_id_of_the_corpus_is_counted(tmp_path):
    index = mo.build_index({"a": "no change", "b": "new edema"}, tmp_path / "I", metrics="rouge-l,bleu-2")
    found = mo.overlap(index, {"model": {"b": "edema", "c": "normal heart"}}, resamples=200)
    assert found.sets["model"].is_same["id"].tolist() == [True, False]
    assert found.cells["model", "same id"].difference is None


@pytest.mark.parametrize("form", ["file", "frame", "index", "reports"])
@pytest.mark.parametrize("shard_rows", [None, 2])
def test_values_of_columns_that_both_sides_have_are_counted(tmp_path, form, shard_rows):
    header = "study_id,report,subject_id,view,ward\n"
    (tmp_path / "train.csv").write_text(f"{header}a,no change,p1,AP,1\nb,new edema,p2,,1\nc,edema,p3,,1\n", "utf-8")
    (tmp_path / "test.csv").write_text(f"{header}d,normal,p2,,1\ne,no edema,p4,AP,1\nf,clear,,,1\n", "utf-8")
    train = mo.build_index(
        tmp_path / "train.csv", tmp_path / "I", metrics="rouge-l,bleu-2", keep="subject_id,view", shard_rows=shard_rows
    )
    human = {
        "file": lambda: tmp_path / "test.csv",
        "frame": lambda: pytest.importorskip("polars").read_csv(tmp_path / "test.csv"),
        "index": lambda: mo.build_index(
            tmp_path / "test.csv", tmp_path / "T", metrics="bleu-2", keep="subject_id,view"
        ),
        "reports": lambda: read_reports(tmp_path / "test.csv", keep="subject_id,view"),
    }[form]()
    for mask in (False, True) if form == "file" else (False,):
        found = mo.overlap(
            train, {"model": {"f": "edema", "d": "normal", "e": "edema"}}, human, mask=mask, resamples=200
        )
        for name in ("human", "model"):
            assert found.sets[name].is_same["subject_id"].tolist() == [True, False, False]
            assert found.sets[name].is_same["view"].tolist() == [False, True, False]
            assert found.cells[name, "same subject_id"].value == pytest.approx(1 / 3)
        assert found.pairs().filter(found.pairs()["same_subject_id"])["query_id"].to_pylist() == ["d", "d"]
        assert not any("ward" in line for line in found.lines)


def test_copies_are_those_of_folded_texts(tmp_path):
    """Anagrams, other characters than ASCII on either side, every kind of white space, and no report twice."""
    train = ["No  edema.", "no edema .", "ok \u00e9", "\uff2e\uff2f lines", "one\x1ctwo", "ab ba", "Stra\u00dfe"]
    asked = [
        "NO EDEMA.",
        "on edema.",
        "OK e\u0301",
        "no lines",
        "one two",
        "ba ab",
        "STRASSE",
        "onetwo",
        "no\u00a0edema.",
    ]
    for shard_rows in (None, 3):
        index = mo.build_index(train, tmp_path / f"I{shard_rows}", metrics="rouge-l,bleu-2", shard_rows=shard_rows)
        found = mo.overlap(index, few(model=asked), resamples=200).sets["model"].is_copy
        assert found.tolist() == [folded(text) in set(map(folded, train)) for text in asked]
        assert found.tolist() == [True, False, True, True, True, False, True, False, True]


@pytest.mark.parametrize("largest", [0, runs.LARGEST_TABLE])
def test_runs_with_and_without_a_table(index, monkeypatch, largest):
    monkeypatch.setattr(runs, "LARGEST_TABLE", largest)
    asked = [
        tuple(tokenize_rouge(text)) for text in (*TRAIN, "the prior study in both lungs of the chest", "", "edema")
    ]
    found = shared_runs(asked, [index.part("words")], 2)
    assert found.longest.tolist() == [4, 11, 14, 1, 3, 0, 0]
    assert found.row.tolist() == [0, 1, 2, 3, 1, -1, -1]
    assert found.shared.sum() == 3 + 10 + 13 + 4


def words(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices("abcde", (5, 3, 2, 1, 1), k=rng.randrange(1, 14))) for _ in range(n)]


@pytest.mark.parametrize("shard_rows", [None, 17])
def test_equal_to_brute_force(tmp_path, shard_rows):
    train, asked = words(60, 1), [*words(50, 2), "unheard", "a", "a unheard b c d e"]
    index = mo.build_index(train, tmp_path / "I", metrics="rouge-l,bleu-2", shard_rows=shard_rows)
    found = mo.overlap(index, few(model=asked), resamples=200).sets["model"]
    corpus = [text.split() for text in train]

    def within(run, other):
        return any(run == other[i : i + len(run)] for i in range(len(other) - len(run) + 1))

    def has(run):
        return any(within(run, other) for other in corpus)

    for q, text in enumerate(asked):
        own = text.split()
        runs = [own[i:j] for i in range(len(own)) for j in range(i + 1, len(own) + 1)]
        longest = max((len(run) for run in runs if has(run)), default=0)
        assert found.run[q] == longest
        with_it = [
            row for row, other in enumerate(corpus) if any(len(run) == longest and within(run, other) for run in runs)
        ]
        assert found.run_report["run_row"][q].as_py() == (with_it[0] if longest else -1)
        grams = [run for run in runs if len(run) == 4]
        assert found.n_grams[q] == len(grams)
        assert found.n_new[q] == sum(not has(run) for run in grams)
        assert found.is_copy[q] == (text in train)
    for name in NEAR:
        plain = load_reference(METRICS[name])
        parts = [shard.representation(METRICS[name]) for shard in index.shards()]
        documents = [part.item(document) for part in parts for document in range(len(part.row_ptr) - 1)]
        encoded = parts[0].encode(Reports([str(q) for q in range(len(asked))], asked))
        for q in range(len(asked)):
            reference = encoded.item(int(encoded.document_of_row[q]))
            assert found.best[name][q] == max(plain(document, reference)[0] for document in documents)


def test_planted_near_duplicates_are_all_found(tmp_path):
    """Reports of ten words with a word changed, moved to the end or added: recall 1.000 at a ROUGE-L of 0.8."""
    rng = random.Random(3)
    vocabulary = [f"w{i}" for i in range(300)]
    train = [" ".join(rng.sample(vocabulary, 10)) for _ in range(400)]
    planted = []
    for text in rng.sample(train, 100):
        one = text.split()
        place = rng.randrange(10)
        change = rng.randrange(3)
        if change == 0:
            one[place] = "planted"
        elif change == 1:
            one.append(one.pop(place))
        else:
            one.insert(place, "planted")
        planted.append(" ".join(one))
    others = [" ".join(rng.sample(vocabulary, 10)) for _ in range(100)]
    index = mo.build_index(train, tmp_path / "I", metrics="rouge-l,bleu-2")
    best = mo.overlap(index, few(model=[*planted, *others]), resamples=200).sets["model"].best["rouge-l"]
    assert (best[:100] >= 0.8).all()
    assert not (best[100:] >= 0.8).any()


def test_runs_of_no_report_and_of_no_known_word(index):
    corpora = [index.part("words")]
    assert shared_runs([], corpora, 4).longest.tolist() == []
    runs = shared_runs([(), ("unheard", "foreign")], corpora, 2)
    assert (runs.longest.tolist(), runs.row.tolist(), runs.shared.tolist()) == ([0, 0], [-1, -1], [False])


def test_texts_are_compared_without_case_space_and_unicode_form():
    assert folded("No\u00a0 ACUTE\n process") == folded("no acute process") == "no acute process"
    assert folded("e\u0301") == folded("\u00e9")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("___ year old", "year old"),
        ("XXXX and xxxx", "and"),
        ("seen [**2019-1-2**] again", "seen again"),
        ("on 01/02/2019 and 2019-01-02 and 1/2/19", "on and and"),
        ("a 1-2 mm nodule, ribs 5/6, T11-12, exx, one _ mark", "a 1-2 mm nodule, ribs 5/6, T11-12, exx, one _ mark"),
    ],
)
def test_markers(text, expected):
    assert masked(text).split() == expected.split()


@pytest.mark.parametrize("shard_rows", [None, 1])
def test_markers_are_removed_on_request_and_counted_either_way(tmp_path, shard_rows):
    index = mo.build_index(TRAIN, tmp_path / "I", metrics="rouge-l,bleu-2", shard_rows=shard_rows)
    model = ["Heart size is normal. XXXX placed on 03/04/2020 in the right atrium.", "Stable"]
    kept, removed = (mo.overlap(index, few(model=model), mask=mask, resamples=200) for mask in (False, True))
    assert [one.cells["model", "marker"].value for one in (kept, removed)] == [0.5, 0.5]
    assert [one.cells["model", "copy: text"].value for one in (kept, removed)] == [0, 0.5]
    assert [one.signature["masked"] for one in (kept, removed)] == [False, True]
    assert removed.pairs().sort_by("query_id")["row"].to_pylist() == [2, 3]


def test_intervals_and_differences_are_paired(index):
    """A set that is the human reports differs from them by nothing, whatever the width of the intervals."""
    human = [*TRAIN[:2], *words(12, 4)]
    found = mo.overlap(index, few(same=human), few(human=human)["human"], resamples=200)
    for line in found.lines:
        cell = found.cells["same", line]
        if not line.startswith("nearer"):
            assert (cell.difference, cell.difference_interval) == (0, (0, 0, True))
            assert cell.interval == found.cells["human", line].interval
    low, high, is_degenerate = found.cells["human", "copy: text"].interval
    assert low < 2 / 14 < high
    assert not is_degenerate


@pytest.mark.parametrize("n", [1, 2])
def test_few_reports(index, n):
    found = mo.overlap(index, few(model=["new edema", "stable"][:n]), resamples=200)
    assert np.isnan(found.cells["model", "new 4-grams"].value)
    assert found.cells["model", "new 4-grams"].interval is None


def test_what_is_not_defined_is_null_in_files(index, oracle, tmp_path):
    """Reports of fewer than four words have no 4-grams."""

    def refused(constant):
        raise AssertionError(constant)

    (tmp_path / "short.csv").write_text("study_id,report\n1,Stable.\n2,No edema.\n", encoding="utf-8")
    sets = index.folder, f"m={tmp_path / 'short.csv'}", "--references", tmp_path / "short.csv", "--resamples", 200
    _, printed, _ = oracle("overlap", *sets)
    _, as_csv, _ = oracle("overlap", *sets, "--format", "csv")
    for ending in ("csv", "jsonl", "parquet"):
        assert oracle("overlap", *sets, "--out", tmp_path / f"o.{ending}", "--pairs", tmp_path / f"p.{ending}")[0] == 0
    for text in (printed, *((tmp_path / f"{name}.jsonl").read_text("utf-8") for name in "op")):
        records = [json.loads(line, parse_constant=refused) for line in text.splitlines()]
        undefined = [r for r in records if r.get("line") == "new 4-grams" or "new_4grams" in r]
        assert undefined
        assert {r.get("value", r.get("new_4grams")) for r in undefined} == {None}
    for text in (as_csv, *((tmp_path / f"{name}.csv").read_text("utf-8") for name in "op")):
        assert "nan" not in text.lower()
    for name, column in (("o", "value"), ("p", "new_4grams")):
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert table[column].null_count == 2 + 2 * (name == "p")


def test_errors(index, tmp_path):
    with pytest.raises(mo.MetricOracleError, match=r"set 'm' has no report for 1 of 2 references \('b'\)"):
        mo.overlap(index, {"m": {"a": "no change"}}, {"a": "no", "b": "new"})
    with pytest.raises(mo.MetricOracleError, match="there must be a set of reports; got none"):
        mo.overlap(index, {})
    with pytest.raises(mo.MetricOracleError, match="sets must not contain 'human'"):
        mo.overlap(index, {"human": ["no"]}, ["no"])
    lacking = mo.build_index(TRAIN, tmp_path / "I", metrics="bleu-2")
    with pytest.raises(mo.MetricOracleError, match="rouge-l"):
        mo.overlap(lacking, {"m": ["no change"]})
    with pytest.raises(mo.MetricOracleError, match=rf"resamples {rule_of(Resamples)}; got 7\."):
        mo.overlap(index, {"m": ["no change"]}, resamples=7)


@pytest.mark.parametrize("width", [60, 80])
def test_the_view_fits_and_shows_no_text(index, width):
    found = mo.overlap(index, few(model=[*TRAIN[:2], "patient text"]), few(h=words(3, 5))["h"], resamples=200)
    for text in (False, True):
        out = io.StringIO()
        console = Console(width=width, file=out)
        for part in found.shown(pairs=found.pairs(text)):
            console.print(part)
        assert max(map(len, out.getvalue().splitlines())) <= width
        assert ("patient text" in out.getvalue()) == text
        # The report with the run need not be the nearest one.
        (worst, *_) = found.pairs().to_pylist()
        line = f"{worst['longest_run']} words in a row of {worst['run_id']}; nearest {worst['candidate_id']}, rouge-l"
        assert line in " ".join(out.getvalue().split())
    assert [len(table.rows) for table in found.tables()] == [20, 17]


def test_the_command(oracle, index, tmp_path):
    (tmp_path / "test.csv").write_text("study_id,report\na,Stable.\nb,New edema\n", "utf-8")
    (tmp_path / "model.csv").write_text("study_id,report\nb,Stable.\na,Stable.\n", "utf-8")
    arguments = ("overlap", index.folder, tmp_path / "model.csv", "--references", tmp_path / "test.csv")
    code, out, err = oracle(*arguments, "--resamples", 200, "--pairs", tmp_path / "p.csv", "--plot", tmp_path / "p.png")
    assert code == 0, err
    assert '"set": "model", "line": "copy: text", "value": 1.0' in out
    assert "Stable" not in out + (tmp_path / "p.csv").read_text("utf-8")
    assert (tmp_path / "p.png").stat().st_size > 1000
    for ending in ("md", "tex", "csv", "parquet"):
        code, _, err = oracle(*arguments, "--resamples", 200, "--out", tmp_path / f"t.{ending}")
        assert (code, "exact copies human 50.0%, model 100.0%; 2 reports each" in err) == (0, True)
    assert "| copy: text |" in (tmp_path / "t.md").read_text("utf-8")
    code, _, err = oracle(*arguments, tmp_path / "model.csv")
    assert code == 2
    assert err == "error: overlap: two files have the name 'model'. Write NAME=FILE with another name.\n"


def test_a_study_writes_the_report_on_copies_of_its_models(oracle, tmp_path):
    train, tests = "study_id,report,subject_id\n", "study_id,report,subject_id\n"
    train += "".join(f"t{i},{text},p{i}\n" for i, text in enumerate(TRAIN[:1] + words(9, 7)))
    (tmp_path / "train.csv").write_text(train, "utf-8")
    (tmp_path / "test.csv").write_text(f"{tests}a,{TRAIN[0]},p1\nb,New edema,p99\nc,no change,p2\n", "utf-8")
    (tmp_path / "model.csv").write_text(f"study_id,report\nb,{TRAIN[0]}\na,{TRAIN[0]}\n", "utf-8")
    index = mo.build_index(tmp_path / "train.csv", tmp_path / "I", metrics="rouge-l,bleu-2", keep="subject_id")
    arguments = (
        "study",
        index.folder,
        tmp_path / "test.csv",
        f"m={tmp_path / 'model.csv'}",
        "-m",
        "rouge-l",
    )
    code, _, err = oracle(*arguments, "--overlap")
    assert code == 2
    assert "out must be given with --overlap; got none" in err
    code, _, err = oracle(*arguments, "--overlap", "--inner", "--out", tmp_path / "S")
    assert code == 0, err
    assert "exact copies human 50.0%, m 100.0%; 2 reports each" in err
    assert "| copy: text |" in (tmp_path / "S" / "overlap.md").read_text("utf-8")
    assert "human,same subject_id,0.5" in (tmp_path / "S" / "overlap.csv").read_text("utf-8").replace('"', "")
    assert (tmp_path / "S" / "table.md").is_file()


def test_words_are_those_of_rouge():
    assert tokenize_rouge("Heart-size: NORMAL") == ["heart", "size", "normal"]
