"""Scores of aligned pairs against the plain scorers, the search, and arithmetic by hand."""

import json
import math
import re
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.indexes.ngrams import tokenize_coco, tokenize_rouge
from metric_oracle.indexes.radgraph import spell_graph
from metric_oracle.kernels.bleu import reference as bleu
from metric_oracle.kernels.bleu.cpu import Backend
from metric_oracle.kernels.cosine import reference as cosine
from metric_oracle.kernels.radgraph import reference as radgraph
from metric_oracle.kernels.rouge_l import reference as rouge_l
from metric_oracle.metrics import METRICS, SEARCHED
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.scores import scoring
from metric_oracle.scores.pair_scores import DEFAULT_METRICS, score_rows
from metric_oracle.scores.scoring import score
from metric_oracle.sources.contract import Attachment
from metric_oracle.tables.compare import compare
from support import beside
from support.calls import Calls
from support.inputs import changed

pytestmark = pytest.mark.usefixtures("fake_encoder")
USUAL = [name for name in DEFAULT_METRICS if name in SEARCHED]  # CREPE wants a checkpoint


def reports(texts, ids=None, **states):
    ids = [str(i) for i in range(len(texts))] if ids is None else ids
    states = {"missing": [], "empty": [], "tokenless": [], **states}
    return Reports(list(ids), list(texts), "made up", {}, states)


def sides(corpus, side):
    return beside(corpus, side, "negative")


@pytest.fixture(scope="module")
def index(corpus, fake_encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("pairs") / "I"
    return build_index(mo.reports(corpus["train"], encoder="bert", **sides(corpus, "train")), out)


@pytest.fixture(scope="module")
def queries(corpus):
    return mo.reports(corpus["test"], **sides(corpus, "test")).load()


@pytest.fixture(scope="module")
def rows(index, queries):
    drawn = np.random.default_rng(5).integers(index.n_reports, size=len(queries.ids))
    drawn[-1] = drawn[0]
    return drawn


@pytest.fixture(scope="module")
def scores(index, queries, rows):
    return score_rows(index, queries, rows, list(SEARCHED), system="random")


def column(scores, name):
    return scores.table[name].to_pylist()


# Against the plain scorers


def test_scores_are_the_plain_scorers(index, queries, rows, scores, corpus):
    training = mo.reports(corpus["train"], **sides(corpus, "train")).load()
    texts = [training.texts[row] for row in rows]
    for place, (candidate, reference) in enumerate(zip(texts, queries.texts, strict=True)):
        expected = bleu.score(tuple(tokenize_coco(candidate)), tuple(tokenize_coco(reference)), order=4, coco=True)
        assert (column(scores, "bleu-4:coco")[place], expected[1]["precision_3"]) == (
            expected[0], column(scores, "bleu-4:coco.precision_3")[place],
        )  # fmt: skip
        words = tuple(tokenize_rouge(candidate)), tuple(tokenize_rouge(reference))
        assert column(scores, "rouge-l")[place] == rouge_l.score(*words)[0]
        both = [(side.attached, i) for side, i in ((training, rows[place]), (queries, place))]
        graphs = [spell_graph(a["radgraph"].values, a["radgraph"].of_row[i]) for a, i in both]
        assert column(scores, "radgraph:rg_er")[place] == radgraph.score(*graphs, family_a=2, family_b=-1)[0]
        expected = radgraph.score(*graphs, family_a=0, family_b=1)
        assert column(scores, "radgraph")[place] == expected[0]
        assert column(scores, "radgraph.relations_f1")[place] == expected[1]["relations_f1"]
        vectors = [a["chexbert"].values[a["chexbert"].of_row[i]] for a, i in both]
        # The index holds unit vectors, rounded to float32: by half of 2 ** -23 in each of two factors and two lengths.
        assert column(scores, "chexbert")[place] == pytest.approx(cosine.score(*vectors)[0], rel=0, abs=2.0**-22)
    assert len(set(column(scores, "radgraph"))) > 3


def test_bertscore_and_its_parts(scores):
    parts = {name: column(scores, name) for name in ("bertscore:precision", "bertscore:recall", "bertscore")}
    assert column(scores, "bertscore.f1") == parts["bertscore"]
    assert column(scores, "bertscore:recall.precision") == parts["bertscore:precision"]
    for precision, recall, f1 in zip(*parts.values(), strict=True):
        assert f1 == 2 * precision * recall / (precision + recall)
        assert precision != recall


@pytest.mark.parametrize("name", ["radcliq", "radcliq:v0", "radcliq:preprint"])
def test_radcliq_is_its_components(scores, name):
    terms, intercept = METRICS[name].terms, METRICS[name].intercept
    for place, value in enumerate(column(scores, name)):
        by_hand = intercept
        for part, term in terms.items():
            component = column(scores, f"{name}.{part}")[place]
            assert component == column(scores, part)[place]
            by_hand += term.weight * ((component - term.mean) / term.scale)
        assert value == by_hand


def test_radcliq_needs_no_column_of_its_parts(index, queries, rows, scores):
    alone = score_rows(index, queries, rows, ["radcliq:v1"], system="random", text=True)
    assert alone.table.column_names == [
        "query_id", "radcliq", "radcliq.radgraph", "radcliq.bertscore", "radcliq.chexbert", "reference", "prediction",
    ]  # fmt: skip
    assert column(alone, "radcliq") == column(scores, "radcliq")
    assert column(alone, "reference") == queries.texts
    assert column(alone, "prediction") == [index.reports["text"][int(row)].as_py() for row in rows]


@pytest.mark.parametrize("metric", sorted(SEARCHED))
def test_scores_are_those_of_the_search(index, queries, metric):
    results = retrieve(index, queries, metric)
    winners = results.table["row"].to_numpy()
    scores = score_rows(index, queries, winners, [metric], system="oracle")
    assert column(scores, metric) == results.table["score"].to_pylist()
    for name in results.components:
        fallback = results.table["fallback"].to_pylist()
        got = [value for value, moved in zip(column(scores, f"{metric}.{name}"), fallback, strict=True) if not moved]
        expected = [v for v, moved in zip(results.table[name].to_pylist(), fallback, strict=True) if not moved]
        assert got == expected


def test_scores_are_those_of_the_search_on_iu_xray(iu_xray, tmp_path):
    train, test = (
        read_reports(iu_xray / "indiana_reports.csv", mo.Read(split=split, split_file=iu_xray / "r2gen_split.csv"))
        for split in ("train+val", "test")
    )
    with pytest.warns(
        UserWarning, match=r"marks that count as words of the reports: .*1 with a heading \(Findings:\)$"
    ):
        index = build_index(train, tmp_path / "I", metrics=["bleu", "rouge-l"])
    for metric in ("bleu-2", "rouge-l"):
        with pytest.warns(UserWarning, match="^test reports: IU X-ray CSV, .*, findings not taken, 590 of 590 rows$"):
            results = retrieve(index, test, metric)
        chosen = reports(results.table["text"].to_pylist(), test.ids)
        with pytest.warns(UserWarning, match="^references: IU X-ray CSV, .*, findings not taken, 590 of 590 rows$"):
            scores = score(test, chosen, [metric])
        assert column(scores, "query_id") == test.ids
        assert column(scores, metric) == results.table["score"].to_pylist()


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_wrong_kernel_is_found(monkeypatch, place):
    texts = ["no acute process", "small effusion", "clear lungs", "edema", "no edema", "heart size is normal", "rib"]
    real = Backend.scores

    def wrong(self, counts):
        scores = real(self, counts)
        scores[place] += 1e-12
        return scores

    monkeypatch.setattr(Backend, "scores", wrong)
    match = r"^score: bleu-2 of row \d must be \(.*\) for query '\d', as the plain scorer computes it; got \("
    with pytest.raises(mo.MetricOracleError, match=match):
        score(reports(texts), reports(texts[::-1]), ["bleu"])


@pytest.mark.parametrize("idf", ["tests", "corpus"])
def test_idf_is_that_of_the_search(index, queries, idf):
    results = retrieve(index, queries, "bertscore", options=SearchOptions(idf=idf))
    rows = results.table["row"].to_numpy()
    scores = score_rows(index, queries, rows, ["bertscore", "radcliq"], system="oracle", options=SearchOptions(idf=idf))
    assert column(scores, "bertscore") == results.table["score"].to_pylist()
    assert column(scores, "radcliq.bertscore") == column(scores, "bertscore")
    assert scores.signature["metrics"]["bertscore"]["idf"] == scores.signature["metrics"]["radcliq"]["idf"] == idf


# What a pair lacks


@pytest.fixture
def graph_files(tmp_path):
    """Write RadGraph JSON of studies by id; a blank report is left out, as "c", and so is "d"."""
    entity = {"tokens": "edema", "label": "OBS-DP", "start_ix": 0, "end_ix": 0, "relations": []}
    graph = {"text": "edema", "entities": {"1": entity}}
    (tmp_path / "g.json").write_text(json.dumps({"a": graph, "b": {"text": "clear", "entities": {}}}))
    return tmp_path / "g.json"


def test_blank_and_lacking_sides(graph_files, tmp_path):
    np.savez(tmp_path / "e.npz", ids=np.array(["a", "b"]), embeddings=np.eye(2, dtype=np.float32))
    files = {"radgraph": graph_files, "chexbert": tmp_path / "e.npz"}
    corpus = reports(["edema", "clear", " ", "edema"], "abcd")
    index = build_index(mo.reports(corpus, encoder="bert", **files), tmp_path / "I")
    queries = mo.reports(reports(["edema"] * 4, "abde"), **files).load()
    queries = changed(queries, "radgraph", of_row=np.array([0, 1, 0, -1]))
    scores = score_rows(index, queries, [0, 1, 2, 3], system="x")
    assert column(scores, "radgraph") == [0.5, 0.0, 0.0, None]  # no relation, so half; no entity; blank; no graph
    assert column(scores, "radgraph.entities_f1") == [1.0, 0.0, 0.0, None]
    assert column(scores, "bleu-2")[2:] == [0.0, math.sqrt(0.1)]
    assert column(scores, "rouge-l") == [1.0, 0.0, 0.0, 1.0]
    assert column(scores, "bertscore")[2] == 0.0
    assert column(scores, "chexbert") == [1.0, 1.0, None, None]
    assert [value is None for value in column(scores, "radcliq")] == [False, False, True, True]
    assert column(scores, "radcliq.bertscore")[2] is None
    assert scores.table["radcliq"].null_count == 2

    blank = changed(queries, "radgraph", of_row=np.array([-1, 0, -1, 0]))
    blank = replace(blank, texts=["", "edema", " ", "edema"])
    scores = score_rows(index, blank, [0, 1, 2, 3], ["bleu", "radgraph", "bertscore"], system="x")
    assert column(scores, "radgraph") == [0.0, 0.0, 0.0, None]
    assert column(scores, "bleu-2")[::2] == [0.0, 0.0]
    assert column(scores, "bertscore")[::2] == [0.0, 0.0]


def test_nothing_to_score_is_null_without_components(graph_files, tmp_path):
    index = build_index(mo.reports(reports(["edema", "clear"], "ab"), radgraph=graph_files), tmp_path / "I")
    graphs = mo.reports(reports(["edema"], "a"), radgraph=graph_files).load().attached["radgraph"].values
    queries = replace(mo.reports(["edema"]).load(), attached={"radgraph": Attachment(graphs, np.array([-1]))})
    scores = score_rows(index, queries, [0], ["radgraph"], system="x")
    assert scores.table.to_pydict() == {"query_id": ["0"], "radgraph": [None]}
    assert scores.table.schema.field("radgraph").type == pa.float64()


def test_blank_prediction_is_rescaled_as_bert_score_does(tmp_path):
    table = tmp_path / "baseline.tsv"
    table.write_text("LAYER,P,R,F\n1,0.5,0.5,0.75\n")
    predictions = reports(["", "clear lungs"])
    scores = score(
        mo.reports(reports(["clear lungs"] * 2), encoder="bert", rescale_table=table), predictions, ["bertscore"]
    )
    assert column(scores, "bertscore")[0] == -3.0  # (0 - 0.75) / (1 - 0.75)
    assert column(scores, "bertscore")[1] == 1.0
    assert scores.signature["metrics"]["bertscore"]["rescaled"] is True
    raw = score(
        mo.reports(reports(["clear lungs"] * 2), encoder="bert", rescale_table=table),
        predictions,
        ["bertscore"],
        options=SearchOptions(rescale=False),
    )
    assert column(raw, "bertscore")[0] == 0.0


# Columns and signature


def test_columns_and_default_metrics(index, queries, rows):
    scores = score_rows(index, queries, rows, system="random")
    assert scores.metrics == USUAL
    names = scores.table.column_names
    assert names[: len(USUAL) + 1] == ["query_id", *USUAL]
    assert all(name.rpartition(".")[0] in USUAL for name in names[len(USUAL) + 1 :])
    assert [scores.table.schema.field(name).type for name in names] == [pa.large_string()] + [pa.float64()] * (
        len(names) - 1
    )
    plain = mo.reports(list(queries.texts)).load()
    assert score_rows(index, plain, rows, system="x").metrics == ["bleu-2", "bleu-4", "rouge-l", "bertscore"]


def test_signature(index, queries, rows, scores):
    signature = scores.signature
    assert list(signature) == ["kind", "system", "metrics", "references", "n", "version"]
    assert (signature["kind"], signature["system"], signature["n"]) == ("scores", "random", len(queries.ids))
    assert json.loads(json.dumps(signature)) == signature
    assert signature["metrics"]["radcliq"]["direction"] == "lower"
    assert signature["metrics"]["bleu-2"]["representation"] == {"ngrams": {}}
    assert signature["metrics"]["chexbert:labels"]["representation"] == {"labels": {"uncertain": "negative"}}
    entry = signature["metrics"]["radcliq:v0"]
    assert list(entry["representation"]) == ["radgraph", "bertscore", "chexbert", "ngrams"]
    assert entry["representation"]["bertscore"]["encoder"]["model"] == "bert"
    assert (entry["idf"], entry["rescaled"]) == ("off", False)
    assert "idf" not in signature["metrics"]["radgraph"]

    # The same whatever the system, and in whatever order the references come.
    order = np.arange(len(rows))[::-1]
    turned = queries.take(order)
    other = score_rows(index, turned, rows, list(SEARCHED), system="other").signature
    assert {**other, "system": "random"} == signature
    other_texts = replace(queries, texts=["x", *queries.texts[1:]])
    assert score_rows(index, other_texts, rows, ["bleu"], system="x").signature["references"] != signature["references"]


def test_systems_of_different_size_have_equal_signatures():
    references = reports(["clear lungs", "edema"])
    signatures = [
        score(mo.reports(references, encoder="bert"), reports(texts), ["bleu", "bertscore"]).signature
        for texts in (["clear", "clear"], ["no edema in the lungs", "heart"])
    ]
    assert signatures[0] == signatures[1]


# Two sides


def test_what_the_encoder_cuts_off_is_told():
    told = []
    references, predictions = reports(["clear " * 40, "clear"]), reports(["edema " * 30, "edema"])
    scores = score(mo.reports(references, encoder="bert", tell=told.append), predictions, ["bertscore"])
    assert scores.signature["metrics"]["bertscore"]["truncated_queries"] == 1
    assert told[-1] == "cut off at the encoder's longest input: 1 references"
    assert any(re.match("1 of 2 distinct texts are longer than the 26 tokens that bert takes", line) for line in told)


def test_join_on_ids_in_any_order():
    references = reports(["a b", "c d", "e f"], ["1", "2", "3"])
    predictions = reports(["e f", "x", "c d"], ["3", "1", "2"])
    scores = score(references, predictions, ["rouge-l"], text=True)
    assert scores.table.select(["query_id", "rouge-l", "prediction"]).to_pydict() == {
        "query_id": ["1", "2", "3"], "rouge-l": [0.0, 1.0, 1.0], "prediction": ["x", "c d", "e f"],
    }  # fmt: skip
    assert scores.signature["left_out"] == {}
    assert scores.signature["system"] == "predictions"


def test_labels_without_ids_lie_in_the_order_of_the_predictions(tmp_path):
    """The predictions come in another order than the references, and every pair has equal labels."""
    classes = np.random.default_rng(1).integers(0, 2, (4, len(LABELS)))
    assert len({tuple(row) for row in classes}) == 4
    order = [3, 2, 0, 1]
    for name, rows in (("r", range(4)), ("p", order)):
        lines = [",".join(map(str, classes[row])) for row in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join(LABELS), *lines]) + "\n")
    ids = list("abcd")
    scores = score(
        mo.reports(reports(ids, ids), chexbert_labels=tmp_path / "r.csv", uncertain="negative"),
        mo.reports(
            reports([ids[row] for row in order], [ids[row] for row in order]), chexbert_labels=tmp_path / "p.csv"
        ),
        ["chexbert:agreement", "bleu"],
    )
    assert scores.table["query_id"].to_pylist() == ids
    assert scores.values("chexbert:agreement").tolist() == [1.0] * 4


def test_files_of_both_sides(corpus, index, queries, tmp_path):
    train = read_reports(corpus["train"])
    rows = np.random.default_rng(2).permutation(index.n_reports)[: len(queries.ids)]
    wanted = score_rows(index, queries, rows, system="x")
    # The corpus reports under the ids of the tests, with files that have these ids.
    predictions = reports([train.texts[row] for row in rows][::-1], queries.ids[::-1])
    from_index = mo.reports(corpus["train"], **sides(corpus, "train")).load()
    graphs = json.loads(corpus["train_graphs"].read_text())
    keys = list(graphs)
    of_test = json.loads(corpus["test_graphs"].read_text())
    assert len(of_test) == len(queries.ids)
    renamed = {
        q: graphs[keys[from_index.attached["radgraph"].of_row[row]]] for q, row in zip(queries.ids, rows, strict=True)
    }
    (tmp_path / "p.json").write_text(json.dumps(renamed))
    vectors = from_index.attached["chexbert"].values[from_index.attached["chexbert"].of_row[rows]]
    np.savez(tmp_path / "p.npz", ids=np.array(queries.ids), embeddings=vectors)
    lines = corpus["train_labels"].read_text().splitlines()
    header, cells = lines[0].split(","), [line.split(",") for line in lines[1:]]
    at = header.index(next(name for name in header if name.lower() in ("study_id", "id", "uid", "study")))
    of_id = {row[at]: row for row in cells}
    chosen = [
        [*row[:at], q, *row[at + 1 :]] for q, r in zip(queries.ids, rows, strict=True) for row in [of_id[train.ids[r]]]
    ]
    (tmp_path / "p.csv").write_text("\n".join(",".join(row) for row in [header, *chosen]) + "\n")
    scores = score(
        mo.reports(
            corpus["test"],
            encoder="bert",
            radgraph=corpus["test_graphs"],
            chexbert=corpus["test_embeddings"],
            uncertain="negative",
            chexbert_labels=corpus["test_labels"],
        ),
        mo.reports(
            predictions, radgraph=tmp_path / "p.json", chexbert=tmp_path / "p.npz", chexbert_labels=tmp_path / "p.csv"
        ),
        system="x",
    )
    assert scores.metrics == USUAL
    assert scores.table.equals(wanted.table)
    assert {**scores.signature, "left_out": None} == {**wanted.signature, "left_out": None}


def test_files_of_one_side(corpus):
    references = reports(["a"])
    for name, option in (("radgraph", "graphs"), ("chexbert", "embeddings"), ("chexbert_labels", "labels")):
        given = mo.reports(references, **{name: "x.json"})
        for sides, lacking in (((given, references), "predictions"), ((references, given), "references")):
            match = (
                f"^score: {option} must be given for both sides; got none for the {lacking}. "
                rf"Add `mo\.reports\(\.\.\., {name}="
            )
            with pytest.raises(InputError, match=match):
                score(*sides)


@pytest.mark.parametrize(
    ("metric", "match"),
    [
        (
            "radgraph",
            r"graphs of both sides must be given for metric 'radgraph'; got none. "
            r"Add `mo\.reports\(\.\.\., radgraph=GRAPHS.json\)`, for each",
        ),
        (
            "chexbert",
            r"embeddings of both sides must be given for metric 'chexbert'; got none. "
            r"Add `mo\.reports\(\.\.\., chexbert=FILE\)`, for each",
        ),
        (
            "chexbert:labels",
            r"labels of both sides must be .* 'chexbert:labels'; got none. "
            r"Add `mo\.reports\(\.\.\., chexbert_labels=FILE, uncertain=positive\|negative\|blank\)`, for each side\.$",
        ),
        (
            "bertscore",
            r"token states of both sides must be given for metric 'bertscore'; got none. "
            r"Add `mo\.reports\(\.\.\., encoder=NAME",
        ),
        (
            "radcliq",
            r"graphs of both sides must be given for metric 'radcliq'; got none. Add `mo\.reports\(\.\.\., radgraph=",
        ),
        ("blue", r"metric must be one of .*; got 'blue'. Did you mean 'bleu'"),
    ],
)
def test_metrics_that_lack_something(metric, match):
    with pytest.raises(InputError, match=f"^score: {match}"):
        score(reports(["a"]), reports(["a"]), [metric])


def test_ids_on_one_side():
    references = reports(list("abcdefg"), list("1234567"), empty=["8"], tokenless=["9"])
    predictions = reports(list("abcxy8"), ["1", "2", "3", "x", "y", "8"], missing=["4", "z"])
    match = (
        r"^score: 7 references and 6 predictions must have the same ids; got 3 without a prediction \('5', '6', '7'\) "
        r"and 1 with a missing prediction \('4'\) and 2 without a reference \('x', 'y'\) and 1 with a missing or empty "
        r"reference \('8'\)\. Complete them, or pass `inner=True` to score the ids that have both\.$"
    )
    noted = (
        "^(references: made up; 1 empty, left out; 1 tokenless, left out|predictions: made up; 2 missing, left out)$"
    )
    with pytest.raises(InputError, match=match), pytest.warns(UserWarning, match=noted):
        score(references, predictions)
    told = []
    scores = score(mo.reports(references, tell=told.append), predictions, inner=True)
    assert column(scores, "query_id") == ["1", "2", "3"]
    counts = {
        "without a prediction": 3, "with a missing prediction": 1, "without a reference": 2,
        "with a missing or empty reference": 1,
    }  # fmt: skip
    assert scores.signature["left_out"] == counts
    assert scores.signature["n"] == 3
    assert told[-1] == "left out: " + ", ".join(f"{n} {what}" for what, n in counts.items())


def test_no_id_in_common():
    match = (
        r"^score: references and predictions must share at least half of the ids of the side with fewer; "
        r"got none in common, such as '1' and 'x'\. "
        r"Name the column of the ids: `mo\.reports\(\.\.\., mo\.Read\(id_column=NAME\)\)` for the references, or "
        r"`mo\.reports\(predictions, mo\.Read\(id_column=NAME\)\)` for the predictions\.$"
    )
    for inner in (False, True):
        with pytest.raises(InputError, match=match):
            score(reports(["a"], ["1"]), reports(["a"], ["x"]), inner=inner)
    match = (
        r"^score: references and predictions must both have a text for at least one id; got none for the 1 in common\. "
        r"Check which columns the texts are read from\.$"
    )
    noted = "^references: dict, id object key, column text, 1 of 2 rows; 1 missing, left out$"
    with pytest.raises(InputError, match=match), pytest.warns(UserWarning, match=noted):
        mo.score({"1": "a", "2": None}, {"2": "b"}, "bleu")


def test_iu_xray_ids_of_r2gen():
    told = []
    references = reports(["a b", "c d"], ["4", "3030"], empty=["5"])
    predictions = reports(["c d", "a b", "x"], ["CXR3030_IM-1405", "CXR4_IM-2050", "CXR5_IM-2117"])
    scores = score(mo.reports(references, tell=told.append), predictions, ["rouge-l"], inner=True)
    assert scores.table.to_pydict()["rouge-l"] == [1.0, 1.0]
    assert column(scores, "query_id") == ["4", "3030"]
    assert scores.signature["left_out"] == {"with a missing or empty reference": 1}
    assert "ids such as CXR1_IM-0001 are read as 1" in told


def test_arguments_of_rows(index, queries, rows):
    match = rf"^rows must be an int from 0 to 119 for each of {len(rows)} queries; got "
    for bad, got in (
        (rows[:-1], r"int64 of shape \(11,\)"),
        (rows.astype(float), r"float64 of shape \(12,\)"),
        (rows - 120, r"-\d+ to -\d+"),
        (rows + 120, r"1\d\d to 2\d\d"),
    ):
        with pytest.raises(InputError, match=match + got + r"\. Pass rows of this index\.$"):
            score_rows(index, queries, bad, system="x")
    with pytest.raises(InputError, match=r"^score: metrics must be at least one; got none\. Name at least one"):
        mo.score(["a"], ["b"], [])
    for settings in ({"idf": "off"}, {"rescale": False}):
        match = rf"^{next(iter(settings))} must be left out without BERTScore among the metrics; got a value"
        with pytest.raises(InputError, match=match):
            score_rows(index, queries, rows, ["bleu"], system="x", options=SearchOptions(**settings))
    with pytest.raises(InputError, match=r"^queries must have a graph each for metric 'radgraph'; got none"):
        score_rows(index, mo.reports(queries.texts).load(), rows, ["radgraph"], system="x")


def test_encoder_options_need_an_encoder():
    match = r"^reports: encoder must be given with `layer`; got None\. Add `mo\.reports\(\.\.\., encoder=NAME"
    with pytest.raises(InputError, match=match):
        score(mo.reports(reports(["a"]), layer=3), reports(["a"]))


def test_progress_names_the_steps(corpus):
    steps, told = Calls(), []
    score(mo.reports(corpus["test"], tell=told.append), read_reports(corpus["test"]), progress=steps)
    assert steps.steps == ["ngrams", "words", "ngrams", "words"]
    assert [line.partition(":")[0] for line in told] == ["references", "predictions"]


def test_sides_without_files():
    scores = score(reports(["a b"]), reports(["a b"]), system="x")
    assert scores.metrics == ["bleu-2", "bleu-4", "rouge-l"]


class Cut:
    """A stand-in for CREPE that counts an error a word that is new, and cuts some pairs."""

    signature: ClassVar = {"model": "words"}

    def __init__(self, n_cut):
        self.n_cut = n_cut

    def count_errors(self, pairs, *, progress=None):
        counts = np.zeros((len(pairs), 6))
        counts[:, 0] = [len({*candidate.split()} - {*reference.split()}) for reference, candidate in pairs]
        return counts, self.n_cut


def test_pairs_that_were_cut_keep_no_system_out_of_a_table(monkeypatch):
    """How many were cut is of each system; what a table's systems share is the model."""
    monkeypatch.setattr(scoring, "open_pair_models", lambda named, _: {"crepe": Cut(int(named["crepe"]))})
    told, found = [], {}
    references = mo.reports(reports(["no edema", "small effusion", "clear"]), tell=told.append)
    for name, texts, n_cut in (("A", ["edema", "large effusion", "x"], 2), ("B", ["a", "small effusion", "b"], 0)):
        found[name] = score(references, reports(texts), ["crepe"], system=name, crepe=str(n_cut))
    assert [line for line in told if "cut off" in line] == [
        "cut off at the longest input of a model that reads both reports: 2 pairs"
    ]
    assert [one.signature.get("noted") for one in found.values()] == [{"crepe": {"truncated_pairs": 2}}, None]
    table = compare(found, resamples=200)
    assert [table.cells[name, "crepe"].mean for name in found] == pytest.approx([2 / 3, 2 / 3])
