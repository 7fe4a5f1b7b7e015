"""An index in memory, and reports in the place of an index: the answers are those of an index in a folder."""

import pickle
import re
import stat
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.metrics import METRICS, SEARCHED
from support import write
from support.made_up import JUDGE, reports
from support.sources import CASES

pytestmark = pytest.mark.usefixtures("fake_encoder")

SOURCES = {case.argument: case.make for case in CASES.values()} | {"uncertain": "blank"}
CORPUS = reports(40, 1)
CORPUS = CORPUS | {"copy": CORPUS["s003"], "words": "mild edema no effusion", "one": "edema", "mark": "."}
TESTS = reports(9, 2, "t") | {"t-copy": CORPUS["s003"], "t-none": "quite other words"}
TEXTS = [*CORPUS.values()]
METRIC = "rouge-l"


def given(texts, **more):
    return mo.reports(texts, mo.Read(section="impression", keep_empty=True), **SOURCES, **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return an index of all sources in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        return mo.build_index(given(CORPUS, encoder="bert"), tmp_path_factory.mktemp("in-memory") / "I")


@pytest.fixture(scope="module")
def memory(folder):
    return mo.build_index(given(CORPUS, encoder="bert"))


@pytest.fixture(scope="module")
def asked():
    return given(TESTS)


def test_an_index_in_memory_says_what_one_in_a_folder_says(folder, memory):
    assert memory.fingerprint == folder.fingerprint
    assert memory.metrics == folder.metrics == [name for name in SEARCHED if METRICS[name].representations]
    for name, value in folder.content.items():
        if name != "files":
            assert memory.content[name] == value
    assert memory.content["files"].keys() == folder.content["files"].keys()
    for name, file in memory.content["files"].items():
        assert file.items() <= folder.content["files"][name].items()
    assert repr(memory) == f"<Index in memory: 44 reports, {memory.fingerprint[:12]}>"
    assert memory.reports.equals(folder.reports)
    assert memory.distinct.equals(folder.distinct)
    memory.verify_files()


@pytest.mark.parametrize("metric", SEARCHED)
def test_answers_are_those_of_a_folder(folder, memory, asked, metric):
    wanted = mo.retrieve(folder, asked, metric, k=7)
    found = mo.retrieve(memory, asked, metric, k=7)
    assert found.table.equals(wanted.table)
    assert found.signature == wanted.signature
    direct = mo.retrieve(given(CORPUS, encoder="bert"), asked, metric, k=7)
    assert direct.table.equals(wanted.table)
    # The fingerprint covers the sources that the index has, and this one has those of the metric.
    alone = mo.build_index(given(CORPUS, encoder="bert"), metrics=metric)
    assert direct.signature == wanted.signature | {"index": alone.fingerprint}
    assert mo.verify(memory, found, asked, sample=3)["pairs"] == found.table.num_rows


@pytest.mark.parametrize("metric", ["bleu", "radgraph", "chexbert:labels", "radgraph+rouge-l"])
def test_answers_are_those_of_a_set_of_shards(asked, metric, tmp_path):
    shards = mo.build_index(given(CORPUS), tmp_path / "SET", metrics=metric.split("+"), shard_rows=15)
    wanted = mo.retrieve(shards, asked, metric, k=7).table
    assert mo.retrieve(given(CORPUS), asked, metric, k=7).table.equals(wanted)


FORMS = {
    "list": lambda folder: TEXTS,
    "tuple": lambda folder: tuple(TEXTS),
    "dict": lambda folder: CORPUS,
    "pandas": lambda folder: pytest.importorskip("pandas").DataFrame({"study_id": [*CORPUS], "report": TEXTS}),
    "Series": lambda folder: pytest.importorskip("pandas").Series(CORPUS),
    "polars": lambda folder: pl.DataFrame({"study_id": [*CORPUS], "report": TEXTS}),
    "arrow": lambda folder: pa.table({"study_id": [*CORPUS], "report": TEXTS}),
    "CSV": lambda folder: write(folder / "a.csv", CORPUS.items(), ("study_id", "report")),
    "text of a path": lambda folder: str(write(folder / "a.csv", CORPUS.items(), ("study_id", "report"))),
    "reports": lambda folder: mo.reports(CORPUS),
    "Reports": lambda folder: mo.reports(CORPUS).load(),
    "index in reports": lambda folder: mo.reports(mo.build_index(CORPUS, metrics=METRIC)),
    "folder": lambda folder: mo.build_index(CORPUS, folder / "I", metrics=METRIC).folder,
}


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_reports_has_the_same_answers(form, tmp_path):
    wanted = mo.retrieve(mo.build_index(CORPUS, tmp_path / "WANTED", metrics=METRIC), TESTS, METRIC, k=5).table
    found = mo.retrieve(FORMS[form](tmp_path), TESTS, METRIC, k=5).table
    names = [name for name in wanted.column_names if name != "candidate_id" or form not in ("list", "tuple")]
    assert found.select(names).equals(wanted.select(names))


def test_left_out_reports_are_told_and_ids_are_places():
    texts = ["no edema", "", None, "edema", "no edema"]
    with pytest.warns(
        UserWarning, match=r"^corpus: the reports in memory, 3 of 5 rows; 1 missing, left out; 1 empty, left out$"
    ):
        found = mo.retrieve(texts, ["no edema"], METRIC, k=3).table
    assert found["row"].to_pylist() == [0, 2, 1]
    assert found["candidate_id"].to_pylist() == ["0", "4", "3"]
    assert found["n_ties"].to_pylist() == [2, 2, 1]


@pytest.mark.filterwarnings("ignore:.*left out")
def test_columns_that_a_search_excludes_by_are_kept(tmp_path):
    table = pl.DataFrame(
        {"study_id": [*CORPUS], "report": TEXTS, "subject_id": [f"p{i % 5}" for i in range(len(TEXTS))], "other": 1}
    )
    options = mo.SearchOptions(k=4, exclude="self,subject_id")
    index = mo.build_index(table, tmp_path / "I", metrics=METRIC, keep="subject_id")
    wanted = mo.retrieve(index, table, METRIC, options=options)
    found = mo.retrieve(table, table, METRIC, options=options)
    assert found.table.equals(wanted.table)
    assert found.signature == wanted.signature
    mo.verify(table, found, table, sample=3)
    held = mo.build_index(table, metrics=METRIC, keep="subject_id")
    assert held.columns == ["subject_id"]
    assert mo.retrieve(held, table, METRIC, options=options).table.equals(wanted.table)
    match = r"^retrieve: exclude must be among self, text, same; got 'nobody'"
    with pytest.raises(mo.MetricOracleError, match=match):
        mo.retrieve(table, table, METRIC, options=mo.SearchOptions(exclude="nobody"))


def calls(folder):
    """Return calls with a corpus, by function; each returns what can be compared."""
    samples = {study: [text, "no edema", text] for study, text in TESTS.items()}
    pool = "bleu:3,random:2"

    def mined(corpus):
        mo.mine(corpus, "bleu", folder / "mined.parquet", k=2)
        mo.pairs(folder / "mined.parquet", shape="labeled-pair", out=folder / "pairs.parquet", index=corpus)
        return [pl.read_parquet(folder / name).rows() for name in ("mined.parquet", "pairs.parquet")]

    def study(corpus):
        rows = mo.study(corpus, TESTS, {"model": TESTS}, metrics=["bleu", "rouge-l", JUDGE], pool="jaccard:1:3")
        return {name: row.table for name, row in rows.items()}

    return {
        "random": lambda corpus: mo.baseline(corpus, TESTS, "random", "bleu").table,
        "most frequent": lambda corpus: mo.baseline(corpus, TESTS, "most-frequent", "bleu").table,
        "expectation": lambda corpus: mo.expectation(corpus, TESTS, "rouge-l").table,
        "judged expectation": lambda corpus: mo.expectation(corpus, TESTS, ["rouge-l", "bleu", JUDGE], draws=4).table,
        "rerank": lambda corpus: mo.rerank(corpus, TESTS, JUDGE, pool=pool, audit=3).table,
        "rerank all": lambda corpus: mo.rerank(corpus, TESTS, JUDGE, pool="all").table,
        "pool": lambda corpus: mo.pool(corpus, TESTS, pool=f"{pool},rouge-l+bleu:2").table,
        "verify": lambda corpus: mo.verify(corpus, mo.retrieve(corpus, TESTS, "bleu"), TESTS),
        "where": lambda corpus: (
            mo.retrieve(corpus, TESTS, "bleu", options=mo.SearchOptions(where="rouge-l>=0.2", k=3)).table
        ),
        "mine and pairs": mined,
        "study": study,
        "study of usual metrics": lambda corpus: mo.study(corpus, TESTS)["random (expected)"].table["bleu-2"],
        "study_pairs": lambda corpus: mo.study_pairs(corpus, TESTS, metrics="bleu", pool=pool).table,
        "overlap": lambda corpus: [
            line.value for line in mo.overlap(corpus, {"model": TESTS}, TESTS, resamples=100).cells.values()
        ],
        "score": lambda corpus: mo.score(TESTS, TESTS, "cider-d:corpus", index=corpus).table,
        "compute": lambda corpus: mo.compute(
            predictions=TESTS, references=TESTS, metrics="cider-d:corpus", index=corpus
        ),
        "pairwise": lambda corpus: mo.pairwise(TEXTS[:4], "cider-d:corpus", index=corpus).tolist(),
        "consensus": lambda corpus: mo.consensus(samples, "cider-d:corpus", index=corpus).table,
        "best_of": lambda corpus: mo.best_of(samples, TESTS, "cider-d:corpus", index=corpus).tables()[0].rows,
        "reward": lambda corpus: mo.reward("cider-d:corpus", index=corpus)(completions=TEXTS[:2], reference=TEXTS[1:3]),
        "consensus_reward": lambda corpus: mo.consensus_reward("cider-d:corpus", index=corpus)(
            prompts=["a", "a"], completions=TEXTS[:2]
        ),
    }


NAMES = [*calls(Path())]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return an index of the texts alone in a folder."""
    return mo.build_index(CORPUS, tmp_path_factory.mktemp("plain") / "I")


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("name", NAMES)
def test_every_function_takes_reports_in_the_place_of_an_index(plain, name, tmp_path):
    call = calls(tmp_path)[name]
    wanted = call(plain)
    assert call(CORPUS) == wanted
    assert call(mo.build_index(CORPUS)) == wanted


def test_no_function_that_takes_an_index_is_missing():
    import inspect

    taking = {name for name in dir(mo) if "index" in getattr(inspect.unwrap(getattr(mo, name)), "__annotations__", {})}
    covered = "retrieve baseline expectation rerank pool verify mine pairs study study_pairs score compute pairwise"
    assert taking - {"Results"} == {*covered.split(), "consensus", "best_of", "reward", "consensus_reward"}


def test_an_index_in_memory_stands_for_its_reports(folder, memory):
    wanted = mo.retrieve(folder, folder, "radgraph", k=3).table
    for corpus in (folder, memory):
        assert mo.retrieve(corpus, memory, "radgraph", k=3).table.equals(wanted)
    tests = mo.reports(TESTS, **SOURCES)
    held = mo.build_index(tests)
    wanted = mo.score(tests, tests, "bleu,radgraph").table
    assert mo.score(held, held, "bleu,radgraph").table.equals(wanted)


def test_reports_keep_the_index_that_is_made_of_them(asked):
    made = []

    def graphs(texts):
        made.append(len(texts))
        return SOURCES["radgraph"](texts)

    corpus = mo.reports(TEXTS, mo.Read(section="impression"), radgraph=graphs)
    with pytest.warns(UserWarning, match="^corpus: .* left out$"):
        first = mo.retrieve(corpus, asked, "radgraph", k=3)
    assert mo.retrieve(corpus, asked, "radgraph", k=3).table.equals(first.table)
    assert len(made) == 1


def test_another_process_gets_the_index(memory, asked):
    sent = pickle.loads(pickle.dumps(memory))
    assert mo.retrieve(sent, asked, "radgraph").table.equals(mo.retrieve(memory, asked, "radgraph").table)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_on_the_disk(tmp_path, monkeypatch, fails):
    """Token states are written as they are made, to a folder of this user alone."""
    from metric_oracle.indexes import bertscore

    seen, write_states = [], bertscore.write_states

    def watched(encoder, distinct, path, **more):
        seen.extend(stat.S_IMODE(place.stat().st_mode) for place in tmp_path.iterdir())
        if fails:
            raise OSError(28, "No space left on device")
        return write_states(encoder, distinct, path, **more)

    monkeypatch.setattr(bertscore, "write_states", watched)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    if fails:
        with pytest.raises(OSError, match="No space left"):
            mo.build_index(given(CORPUS, encoder="bert"))
    else:
        assert "bertscore" in mo.build_index(given(CORPUS, encoder="bert")).metrics
    assert seen == [0o700]
    assert not [*tmp_path.iterdir()]


def test_texts_alone_touch_no_folder(monkeypatch):
    monkeypatch.setattr(tempfile, "mkdtemp", None)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", None)
    assert mo.build_index(CORPUS, metrics="bleu,rouge-l,cider-d:corpus").n_reports == 43


WRONG = {
    "no folder": (
        "nowhere",
        "index must be a folder with manifest.json; got nowhere. Build one with `mo.build_index`.",
    ),
    "empty folder": (".", r"index must be a folder with manifest.json; got \.. Build one with `mo.build_index`."),
    "unfinished": (
        Path("I.building"),
        "index must be finished; got I.building, whose build is running or was stopped.",
    ),
    "no table": (Path("a.pdf"), "a.pdf is not a table by its ending, which must be one of "),
    "no text": (Path("n.csv"), "n.csv has no column that is clearly the impression."),
    "None": (None, "index must be an index or reports; got None. Name the folder of one, or pass texts."),
    "number": (5, "reports must be a path, texts, .*; got int. Make a list or a table of it."),
    "set": ({"a", "b"}, "reports must be in an order; got a set. Pass a list, or a dict of id -> text."),
    "nothing": ([], "there is no row in the reports in memory. Check what wrote or filtered it."),
    "empty reports": (["", None], "there is no usable report in the reports in memory .* Check the texts."),
    "numbers": ([3], "the reports in memory must be text or None; got int at position 0."),
    "same ids": (
        pl.DataFrame({"study_id": ["1", "1"], "report": ["a", "b"]}),
        "the polars.DataFrame in memory has 1 ids with several texts: '1'.",
    ),
}


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("case", WRONG)
def test_what_is_neither_is_one_clear_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("I.building").mkdir()
    Path("a.pdf").write_text("no table")
    Path("n.csv").write_text("study_id,age\n1,2\n")
    corpus, match = WRONG[case]
    with pytest.raises(mo.MetricOracleError, match=rf"^retrieve: {match}") as caught:
        mo.retrieve(corpus, TESTS, METRIC)
    assert "\n" not in str(caught.value)
    assert not re.search("quite other words|effusion", str(caught.value))


@pytest.mark.filterwarnings("ignore:.*left out")
def test_what_an_index_lacks_is_named():
    held = mo.build_index(CORPUS, metrics="bleu")
    assert "radgraph" not in held.metrics
    with pytest.raises(
        mo.MetricOracleError, match=r"^retrieve: metric must be one of bleu-1, .* \(what memory holds\)"
    ):
        mo.retrieve(held, TESTS, "radgraph")
    with pytest.raises(
        mo.MetricOracleError, match=r"^retrieve: graphs of the reports must be given for metric 'radgraph'; got none"
    ):
        mo.retrieve(CORPUS, TESTS, "radgraph")
    with pytest.raises(mo.MetricOracleError, match=r"^build_index: out must be given with `shard_rows`; got None"):
        mo.build_index(CORPUS, shard_rows=3)
    with pytest.raises(mo.MetricOracleError, match=r"^retrieve: .* of sections? "):
        mo.retrieve(
            mo.reports(CORPUS, mo.Read(section="findings")), mo.reports(TESTS, mo.Read(section="impression")), METRIC
        )


def test_arrays_are_aligned_and_read_only(memory):
    features = memory.part("words").features
    for array in features:
        if isinstance(array, np.ndarray) and array.size:
            assert array.ctypes.data % 64 == 0
            assert not array.flags.writeable


def test_commands_take_the_folder_of_an_index(fails, tmp_path):
    """A file in its place may be that of the test reports, which are then searched."""
    file = write(tmp_path / "a.csv", CORPUS.items(), ("study_id", "report"))
    match = r"index must be a folder with manifest.json; got .*a\.csv\. Build one with oracle build-index"
    fails("retrieve", file, file, "-m", METRIC, match=f"retrieve: {match}")
    fails("baseline", "random", file, file, "-m", METRIC, match=f"baseline random: {match}")
    fails("mine", file, "-m", METRIC, "--out", tmp_path / "m.parquet", match=f"mine: {match}")
    fails("score", file, file, "-m", "cider-d:corpus", "--index", file, match=f"score: --{match}")
    fails("overlap", file, file, match=f"overlap: {match}")
    fails("build-index", file, match="oracle build-index: --out is missing")
