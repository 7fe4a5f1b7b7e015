"""Reports, graphs, vectors and labels in memory; matrices, numbers and rewards."""

import io
import json
import pickle
import re

import numpy as np
import polars
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import LABELS, Labels
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.vectors import Vectors
from metric_oracle.findings.results import Scores
from metric_oracle.metrics import SEARCHED
from metric_oracle.sources.contract import Attachment
from metric_oracle.sources.embeddings import as_vectors
from metric_oracle.sources.labels import as_labels
from metric_oracle.sources.radgraph import as_graphs

pytestmark = pytest.mark.usefixtures("fake_encoder")

HYPOTHESES = ["mild edema", "", "no acute edema", "mild edema", "no stable improved edema", "large left effusion"]
REFERENCES = ["no edema", "mild edema stable", "", "no edema"]


def graphs(texts):
    """Every word an entity, absent after "no"; a word after "no" or "mild" is the target of its relation."""
    found = {}
    for place, text in enumerate(texts):
        words = text.split()
        entities = {
            str(i): {
                "tokens": word,
                "label": "OBS-DA" if words[i - 1] == "no" else "OBS-DP",
                "relations": [["modify", str(i + 1)]] if word in ("no", "mild") else [],
            }
            for i, word in enumerate(words)
        }
        found[str(place)] = {"text": text, "entities": entities}
    return found


def vectors(texts):
    return np.array([[len(text) + 1.0, text.count("e"), 1 + text.count("m")] for text in texts])


def classes(texts):
    return [[1 + (len(text) * place + text.count("e")) % 3 for place in range(14)] for text in texts]


def srr(texts):
    return [{f"label {n}": (len(text) * n + text.count("e")) % 3 % 2 for n in range(1, 8)} for text in texts]


def stated(texts):
    return [
        {f"finding {n}": (1, 0, None)[(len(text) * n + text.count("e")) % 3] for n in range(1, 8)} for text in texts
    ]


def entities(texts):
    types = ("anatomy", "disease", "non-disease")
    return [
        {
            "types": [types[len(word) % 3] for word in text.split()],
            "vectors": [[len(word), word.count("e"), 1.5] for word in text.split()],
        }
        for text in texts
    ]


def sentences(texts):
    return [{"vectors": row["vectors"]} for row in entities(texts)]


MODELS = {
    "entities": entities,
    "sentences": sentences,
    "srr_labels": srr,
    "labels": stated,
    "radgraph": graphs,
    "chexbert": vectors,
    "embeddings": vectors,
    "chexbert_labels": classes,
    "uncertain": "positive",
}


@pytest.mark.parametrize("metric", SEARCHED)
def test_pairwise_is_the_reference(metric, tmp_path):
    counted = {}
    if metric == "cider-d:corpus":
        counted["index"] = mo.build_index([*REFERENCES, *HYPOTHESES], tmp_path / "I", metrics=metric)
    found = mo.pairwise(
        mo.reports(HYPOTHESES, **MODELS), metric, mo.reports(REFERENCES, encoder="bert", **MODELS), **counted
    )
    assert found.shape == (6, 4)
    assert found.dtype == np.float64

    # `score` goes through the plain scorers. CRG's weights are those of all references, as CIDEr-D's.
    def scores(*sides):
        one, other = (Reports.from_texts(side, keep_empty=True) for side in sides)
        asked, written = mo.reports(one, encoder="bert", **MODELS), mo.reports(other, **MODELS)
        return mo.score(asked, written, metric, **counted).table[metric].to_numpy()

    wanted = np.stack([scores(REFERENCES, [hypothesis] * 4) for hypothesis in HYPOTHESES])
    assert np.array_equal(found, wanted)
    # The reports share few bigrams and no longer n-grams.
    assert len(np.unique(found)) > {"jaccard:2": 1, "jaccard:3": 0, "jaccard:4": 0}.get(metric, 2)


def test_blank_reports_without_graphs_share_nothing():
    some = {"0": graphs(["no edema"])["0"]}
    hypotheses, references = mo.reports(["no edema", " "], radgraph=some), mo.reports(["no edema", ""], radgraph=some)
    assert mo.pairwise(hypotheses, "radgraph", references).tolist() == [[1, 0], [0, 0]]
    match = r"^pairwise: every report must have a graph for metric 'radgraph'; got 1 without \('1'\)\."
    with pytest.raises(InputError, match=match):
        mo.pairwise(mo.reports(["no edema", "x"], radgraph=some), "radgraph", mo.reports(["no edema"], radgraph=some))
    with pytest.raises(InputError, match=r"^pairwise: reports must be texts; got 1 missing\. Leave them out\.$"):
        mo.pairwise(["a", None], "bleu", ["a"])


def test_compute():
    found = mo.compute(predictions=["a b", "c"], references=["a b", "d"], metrics=["bleu-2", "rouge-l"])
    assert found == {"bleu-2": 0.5, "rouge-l": 0.5}
    frame = polars.DataFrame({"study_id": [5, 3], "report": ["c", "a b"]})
    assert mo.compute(predictions=frame, references={"3": "a b", "5": "c d"}, metrics="rouge-l") == {
        "rouge-l": pytest.approx(5 / 6)
    }


def test_rewards():
    asked = []

    def counted(texts):
        asked.append(list(texts))
        return graphs(texts)

    rewarded = mo.reward("radgraph", sources={"radgraph": counted})
    chat = [[{"role": "user", "content": "?"}, {"role": "assistant", "content": text}] for text in HYPOTHESES]
    reference = ["no edema"] * 5 + ["mild edema"]
    first = rewarded(["?"] * 6, HYPOTHESES, reference=reference, other=[0] * 6)
    assert all(type(value) is float for value in first)
    assert rewarded(prompts=["?"] * 6, completions=chat, reference=reference) == first
    matrix = mo.pairwise(mo.reports(HYPOTHESES, radgraph=graphs), "radgraph", mo.reports(reference, radgraph=graphs))
    assert first == np.diag(matrix).tolist()
    assert len({*first}) > 2
    # References once, completions at each call, equal ones once.
    distinct = [*dict.fromkeys(HYPOTHESES)]
    assert asked == [["no edema", "mild edema"], distinct, distinct]
    assert rewarded.__name__ == "radgraph"
    worse = mo.reward("radcliq", column="truth", sources={**MODELS, "encoder": "bert"})
    values = worse(completions=["no edema", "large left effusion"], truth=["no edema", "no edema"])
    wanted = mo.pairwise(
        mo.reports(["no edema", "large left effusion"], **MODELS),
        "radcliq",
        mo.reports(["no edema"], encoder="bert", **MODELS),
    )
    assert values == (-wanted[:, 0]).tolist()
    assert values[0] > values[1]
    assert worse.__name__ == "negative radcliq"


def test_a_completion_that_is_a_word_for_a_missing_report():
    """A policy may write it: training goes on, and it earns what an empty report does."""
    rewarded = mo.reward("bleu")
    completions = ["No edema.", "", "None", " nan\n"]
    assert rewarded(completions=completions, reference=["No edema."] * 4) == [1.0, 0.0, 0.0, 0.0]


def test_rewards_as_a_trainer_asks_for_them():
    """Rows of other tasks have no reference; references may be chat messages; contents may have parts."""
    rewarded = mo.reward("rouge-l")
    reference = [[{"role": "assistant", "content": "no edema"}], None, "no edema", float("nan"), ""]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "no "}, {"type": "text", "text": "edema"}]}]
    completions = ["edema", "clear", parts, "clear", ""]
    given = {"prompts": ["?"] * 5, "completions": completions, "completion_ids": [[1]] * 5, "trainer_state": None}
    assert rewarded(**given, ground_truth=reference, log_extra=print) == [2 / 3, None, 1.0, None, 0.0]
    assert rewarded(**given, reference=reference, ground_truth=["x"] * 5) == [2 / 3, None, 1.0, None, 0.0]
    assert mo.reward("rouge-l", column="answer")(**given, answer=[None] * 5) == [None] * 5
    assert rewarded(completions=[], reference=[]) == []


def test_references_are_kept_within_bounds(monkeypatch):
    monkeypatch.setattr("metric_oracle.scores.rewards.KEPT", 2)
    asked = []

    def counted(texts):
        asked.extend(texts)
        return graphs(texts)

    rewarded = mo.reward("radgraph", sources={"radgraph": counted})
    for reference in (["a", "b", "c"], ["b", "c", "c"], ["a", "a", "a"]):
        assert len(rewarded(completions=["x"] * 3, reference=reference)) == 3
    assert [text for text in asked if text != "x"] == ["a", "b", "c", "a"]


@pytest.mark.parametrize("metric", ["rouge-l", "bleu-2", "radgraph", "radcliq", "sentences"])
def test_rewards_by_consensus(metric):
    sources = {**MODELS, **({"encoder": "bert"} if metric == "radcliq" else {})}
    rewarded = mo.consensus_reward(metric, sources=sources)
    prompts = ["a", [{"role": "user", "content": "b"}], "a", "a", "alone", [{"role": "user", "content": "b"}]]
    completions = ["no edema", "mild edema", "no edema", "mild edema stable", "clear", "no acute edema"]
    found = rewarded(prompts=prompts, completions=completions, reference=["x"] * 6)
    sign = 1 if metric not in ("radcliq", "sentences") else -1
    for group in ([0, 2, 3], [1, 5]):
        texts = [completions[place] for place in group]
        matrix = sign * mo.pairwise(mo.reports(texts, encoder="bert", **MODELS), metric)
        for place, row in enumerate(matrix.tolist()):
            others = [value for other, value in enumerate(row) if other != place]
            assert found[group[place]] == pytest.approx(sum(others) / len(others), abs=1e-15)
    assert found[4] is None
    assert rewarded.__name__ == f"{'' if sign > 0 else 'negative '}consensus {metric}"
    study = mo.consensus_reward(metric, column="study", sources=sources)
    assert study(prompts=["?"] * 6, completions=completions, study=[1, 2, 1, 1, 3, 2]) == found
    with pytest.raises(InputError, match=r"^prompts must be one value for each of 1 completion"):
        rewarded(completions=["a"])
    with pytest.raises(InputError, match=r"^completions must be texts, or lists of chat messages .* got"):
        mo.reward("bleu")(completions=[5], reference=["a"])


def image(shade=3, mode="L"):
    """Return an image that was decoded from a file, an object of its own at each call."""
    pillow, buffer = pytest.importorskip("PIL.Image"), io.BytesIO()
    pillow.new(mode, (8, 8), shade).save(buffer, "PNG")
    return pillow.open(io.BytesIO(buffer.getvalue()))


def message(part, text="Report."):
    return [{"role": "user", "content": [part, {"type": "text", "text": text}]}]


@pytest.mark.parametrize(
    ("equal", "other"),
    [
        (lambda: message({"type": "image", "image": image()}), lambda: message({"type": "image", "image": image(4)})),
        (image, lambda: image(3, "P")),
        (lambda: np.arange(2000.0), lambda: np.where(np.arange(2000) == 1000, -1, np.arange(2000.0))),
        (lambda: {"pixels": np.ones((70, 70))}, lambda: {"pixels": np.ones((70, 71))}),
        (lambda: np.array(message("x"), object), lambda: message("y")),
        (lambda: pa.scalar(message({"type": "text", "text": "x"})), lambda: message({"type": "text", "text": "y"})),
        (lambda: polars.Series([1, 2]), lambda: polars.Series([1, 3])),
        (lambda: pytest.importorskip("torch").ones(3), lambda: pytest.importorskip("torch").zeros(3)),
        (lambda: b"12", lambda: "12"),
        (lambda: 1.0, lambda: True),
        (lambda: ("a", None), lambda: ("a", "None")),
    ],
)
def test_prompts_of_equal_content_are_one_group(equal, other):
    rewarded = mo.consensus_reward("rouge-l")
    completions = ["no edema", "no edema", "edema", "clear"]
    found = rewarded(prompts=[equal(), equal(), equal(), other()], completions=completions)
    assert found == [pytest.approx((1 + 2 / 3) / 2)] * 2 + [pytest.approx(2 / 3), None]


def test_prompts_that_differ_in_form_alone_are_one_group():
    part = {"type": "text", "text": "Report."}
    prompts = [
        [{"role": "user", "content": [part]}],
        ({"content": (dict(reversed(part.items())),), "role": "user"},),
        [{"role": "user", "content": [{**part, "image": None}], "name": None}],
    ]
    found = mo.consensus_reward("bleu")(prompts=prompts, completions=["no edema"] * 3)
    assert found == [1.0] * 3


def test_prompts_without_content_that_can_be_compared():
    rewarded, closed = mo.consensus_reward("rouge-l"), image()
    closed.close()
    for given in (object(), [{"image": object()}], closed, {1}):
        with pytest.raises(
            InputError,
            match=r"^prompts must hold texts, numbers, messages or arrays, whose content says which "
            r"completions belong together; got \w+\. Name a column with the id of the study, with `column=NAME`\.$",
        ):
            rewarded(prompts=[given] * 2, completions=["a", "a"])
    study = mo.consensus_reward("rouge-l", column="study")
    assert study(prompts=[object()] * 4, completions=["a"] * 4, study=["1", "1", None, None]) == [1, 1, None, None]


@pytest.mark.parametrize("metric", ["bleu", "rouge-l", "cider-d:corpus", "meteor:nltk", "sentences", "radgraph"])
def test_equal_completions_have_equal_rewards(metric, tmp_path):
    if metric == "meteor:nltk":
        pytest.importorskip("nltk")
    rng = np.random.default_rng(0)
    words = ["no", "edema", "mild", "left", "effusion", "stable", "clear", "lungs", "."]
    texts = [" ".join(rng.choice(words, rng.integers(2, 9))) for _ in range(60)]
    index = mo.build_index(texts, tmp_path / "I", metrics=metric) if metric == "cider-d:corpus" else None
    rewarded = mo.consensus_reward(metric, index=index, sources=MODELS if metric in ("sentences", "radgraph") else None)
    for _ in range(40):
        completions = rng.choice(texts, 7).tolist() * 2
        found = rewarded(prompts=["?"] * 14, completions=rng.permutation(completions).tolist())
        of_text = rewarded(prompts=["?"] * 14, completions=completions)
        assert of_text[:7] == of_text[7:]
        assert sorted(found) == sorted(of_text)


def test_rewards_that_lack_something():
    match = (
        r"^reward: radgraph must be a model or a function of texts for metric 'radgraph'; got NoneType\. "
        r"Add it to `sources`: its file"
    )
    with pytest.raises(InputError, match=match):
        mo.reward("radgraph")
    match = (
        r"^reward: encoder must be given for metric 'bertscore'; got None\. "
        r"Add its name or folder: `sources=\{'encoder': NAME\}`\.$"
    )
    with pytest.raises(InputError, match=match):
        mo.reward("bertscore")
    for columns, got in (({}, "none"), ({"reference": ["a"]}, "1")):
        match = rf"^reference must be one value for each of 2 completions; got {got}\. Name the column"
        with pytest.raises(InputError, match=match):
            mo.reward("bleu")(completions=["a", "b"], **columns)


def test_what_is_in_memory_is_what_files_say(tmp_path):
    listed = list(graphs(["no edema", "a"]).values())
    bare = [{"entities": graph["entities"]} for graph in listed]
    for given, keyed in ((listed, "position"), (bare, "study"), ({"s1": bare[0], "s2": bare[1]}, "study")):
        table = as_graphs(given)
        assert (table.keyed_by, table.entity_ptr.tolist()) == (keyed, [0, 2, 3])
        assert as_graphs(table) is table
    entity = {"tokens": "edema", "label": "OBS-DP", "start_ix": 0, "end_ix": 0}
    numbered = {1: {**entity, "relations": [("modify", "2"), ("modify", "3")]}, 2: {**entity, "relations": ()}}
    for given in ({7: {"entities": numbered}}, {"7": {"entities": {**numbered, 3: numbered[2]}, "text": "a"}}):
        (tmp_path / "graphs.json").write_text(json.dumps(given))
        table, of_file = as_graphs(given), as_graphs(tmp_path / "graphs.json")
        parts = [Attachment(values, np.arange(1)).parts()[1:-3] for values in (table, of_file)]
        assert [np.asarray(part).tolist() for part in parts[0]] == [np.asarray(part).tolist() for part in parts[1]]
        assert table.n_dangling == 2 - len(table.relation_type)
    told = []
    queries = mo.reports(["", "no edema", "a"], radgraph=[{"entities": {}}, *bare], tell=told.append).load()
    assert told == ["test reports: the reports in memory, 2 of 3 rows; 1 empty, left out"]
    assert queries.ids == ["1", "2"]
    assert queries.attached["radgraph"].of_row.tolist() == [1, 2]
    for given, ids in (({"x": [1.0, 2], "y": [3.0, 4]}, None), (np.array([[1.0, 2], [3, 4]]), ["x", "y"])):
        found = as_vectors(given, ids)
        assert (found.ids, found.values.tolist()) == (["x", "y"], [[1, 2], [3, 4]])
        assert as_vectors(found, None) is found
    assert as_vectors([[1.0], [2.0]], None) == Vectors(["0", "1"], pytest.approx(np.array([[1], [2]])))
    rows = classes(["a", "bb"])
    for given, ids in ((np.array(rows), None), ({"x": rows[0], "y": rows[1]}, ["x", "y"])):
        found = as_labels(given)
        assert (found.ids, found.values.tolist()) == (ids, rows)
        assert as_labels(found) is found
    codes = [{0: None, 1: 1, 2: 0, 3: -1}[one] for one in rows[0]]
    assert {0, -1} <= {*codes}
    for given in (
        [codes],
        {"x": codes},
        np.array([codes], float),
        [dict(zip(LABELS, codes, strict=True))],
        {"x": {label.lower(): code for label, code in zip(LABELS, codes, strict=True)}},
    ):
        found = as_labels(given).values[0, :13].tolist()
        assert found == rows[0][:13]
    blank = [code if place else None for place, code in enumerate(codes)]
    assert as_labels([blank]).values[0, :13].tolist() == [0, *rows[0][1:13]]
    assert as_labels(np.array([[0, 1] * 7], np.uint8)).values.tolist() == [[0, 1] * 7]
    value = {1: 1.0, 2: 0.0, 3: -1.0}
    columns = {name: [value[rows[0][place]]] for place, name in enumerate(LABELS[:-1])}
    table = polars.DataFrame({"study_id": ["x"], **columns, "No Finding": [1.0]})
    assert as_labels(table).ids == ["x"]
    assert as_labels(table).values[0, :13].tolist() == rows[0][:13]
    assert isinstance(as_labels(table), Labels)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: as_graphs({"a": {1j}}),
            r"^graphs must be a RadGraph file, a dict .* got the dict in memory\.",
        ),
        (lambda: as_graphs(5), r"^graphs must be a RadGraph file, .* got the int in memory\. Pass what"),
        (lambda: as_graphs({"a": {}}), r"^each graph must have entities .* in the dict in memory\."),
        (
            lambda: as_vectors({"a": [1.0]}, ["a"]),
            r"^ids must be left out for a dict of id -> vector; got a v",
        ),
        (
            lambda: as_vectors([[1.0], [1, 2]], None),
            r"^vectors must be an array of one row a report; got the l",
        ),
        (
            lambda: as_vectors([[1.0]], 5),
            r"^ids of the vectors must be a list, one a vector, .*; got the int in memory\. Pass the ids",
        ),
        (
            lambda: as_vectors([[1.0]], "ids.txt"),
            r"^ids of the vectors must be a list, one a vector, .*; got ids\.txt\.",
        ),
        (
            lambda: as_vectors(np.ones((2, 1)), ["a", "a"]),
            r"^an id occurs more than once in ids: 'a'\. Keep one row for each id\.$",
        ),
        (lambda: as_vectors(np.ones((2, 1)), ["a"]), r"^ids of the vectors must be as many as vectors; got 1"),
        (
            lambda: as_labels([[4] * 14]),
            r"^labels must be a file, a table or 14 classes from 0 to 3 for each r",
        ),
        (lambda: as_labels([[2, None] * 7]), r"^labels must be a file, .* or 1, 0, -1 and NaN; got the list"),
        (lambda: as_labels([[0, 1] * 7]), r"^labels must show whether 0 means negative .*; got 0 and 1 alone\."),
        (lambda: as_labels({"a": [0, 1] * 7}), r"^labels must show whether 0 means negative .* numpy\.uint8"),
        (lambda: as_labels({"a": [1] * 13}), r"^labels must be a file, a table or 14 classes .* got the dict"),
        (lambda: as_labels("abc"[1:1] or [[1], [1, 2]]), r"^labels must be a file, a table or 14 classes"),
        (
            lambda: mo.reports(["a", "b"], chexbert=lambda texts: vectors(texts)[:1]).load(),
            r"^AttachedReports\.load: embeddings that a function returned must be as many as the texts, 2; "
            r"got 1\. Return one for",
        ),
        (
            lambda: mo.reports(["a"], chexbert_ids=["a"]).load(),
            r"^AttachedReports\.load: chexbert must be given with `chexbert_ids`; got None\. Add the "
            r"embeddings of the list",
        ),
        (
            lambda: mo.reports(["a"], chexbert_labels=classes).load(),
            r"^AttachedReports\.load: uncertain must be positive, negative or blank where labels are given; got None\.",
        ),
        (
            lambda: mo.score(["a"], ["a"], "bleu").values("rouge-l"),
            r"^Scores.values: metric must be one of bleu-2; got 'roug",
        ),
    ],
)
def test_what_cannot_be_taken(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_shown_without_texts(tmp_path):
    texts = ["secret edema <b>", "secret nodule <b>"]
    reports = Reports.from_texts(texts, ["p1", "p2"])

    def made():
        index = mo.build_index(reports, tmp_path / "I", metrics="bleu")
        scores = mo.score(texts, [texts[0], "secret"], "bleu", text=True)
        return index, mo.retrieve(index, texts, "bleu", k=2), scores, mo.reports(texts).load()

    with pytest.warns(UserWarning, match=r": [12] with HTML \(&amp;\)$") as notes:
        index, results, scores, queries = made()
    assert not any("edema" in str(note.message) for note in notes)
    for shown in (reports, index, results, scores, queries):
        line = repr(shown)
        assert "\n" not in line
        assert len(line) < 300
        html = shown._repr_html_() if hasattr(shown, "_repr_html_") else ""
        for text in (line, html):
            assert "edema" not in text
            assert "<b>" not in text
    assert repr(results) == "<Results: bleu-2, 4 answers to 2 queries, mean of the best 1.0000>"
    assert repr(scores) == f"<Scores: predictions, 2 pairs: bleu-2 {scores.mean()['bleu-2']:.4f}>"
    assert re.search(r"<span [^>]*>1\.0000</span>  1 tie  p1\n", results._repr_html_())
    assert results.to_polars()["score"].to_list() == results.table["score"].to_pylist()
    assert scores.to_polars().columns == scores.table.column_names
    assert results.mean() == 1.0
    assert pickle.loads(pickle.dumps(scores)).table.equals(scores.table)


def test_a_mean_of_nothing_is_no_number():
    some = {"0": graphs(["a"])["0"]}
    other = {"5": some["0"], "1": {**some["0"], "text": "b"}}
    scores = mo.score(
        mo.reports(["a", "b"], radgraph=some), mo.reports(["a", "b"], radgraph=other), "rouge-l, radgraph"
    )
    assert scores.mean() == {"rouge-l": 1.0, "radgraph": pytest.approx(float("nan"), nan_ok=True)}
    assert scores.interval()["rouge-l"] == (1.0, 1.0, True)
    low, high, is_degenerate = scores.interval()["radgraph"]
    assert is_degenerate
    assert np.isnan([low, high]).all()


def test_intervals_of_means_are_those_of_a_table():
    rng = np.random.default_rng(6)
    texts = [" ".join(rng.choice(list("abcd"), 5)) for _ in range(40)]
    scores = mo.score(texts, texts[1:] + texts[:1], "rouge-l, bleu-1, bleu-2")
    holes = pa.array([None, None, *scores.table["bleu-1"].to_pylist()[2:]])
    scores = Scores(scores.table.set_column(2, "bleu-1", holes), scores.signature)
    found = scores.interval(resamples=500, seed=3)
    assert list(found) == ["rouge-l", "bleu-1", "bleu-2"] == scores.metrics
    for name, ends in found.items():
        assert ends[:2] == pytest.approx(mo.interval(scores.values(name), resamples=500, seed=3)[:2], abs=1e-14)
        assert ends.low < scores.mean()[name] < ends.high
    table = mo.compare({"a": scores}, resamples=500, seed=3)
    assert found["rouge-l"][:2] == pytest.approx(table.cells["a", "rouge-l"].interval[:2], abs=1e-14)
    other = scores.interval("percentile", 0.5, 500)
    assert other["bleu-2"].high - other["bleu-2"].low < found["bleu-2"].high - found["bleu-2"].low
    with pytest.raises(InputError, match=r"^Scores\.interval: method must be one of bca, .*; got 'normal'\."):
        scores.interval("normal")


def test_the_package_is_typed():
    from pathlib import Path

    assert (Path(mo.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize(
    "use",
    [
        lambda twice, texts, index: mo.score(twice, texts, "bleu"),
        lambda twice, texts, index: mo.score(texts, twice, "bleu"),
        lambda twice, texts, index: mo.build_index(twice, index.with_name("TWICE"), metrics="bleu"),
        lambda twice, texts, index: mo.study(index, twice, metrics="bleu"),
    ],
    ids=["references", "predictions", "build_index", "study"],
)
def test_reports_are_joined_and_indexed_by_ids_that_do_not_repeat(tmp_path, use):
    """Loaded reports may repeat, as test reports of a search, but pairs, rows and tables have one for each id."""
    texts, index = {"a": "no edema", "b": "small effusion"}, tmp_path / "INDEX"
    mo.build_index(texts, index, metrics="bleu")
    twice = mo.reports(texts).load().take([0, 0, 1])
    assert mo.retrieve(index, twice, "bleu").table["query_id"].to_pylist() == ["a", "a", "b"]
    with pytest.raises(InputError, match=r"an id occurs more than once in ids: 'a'\. Keep one row for each id\.$"):
        use(twice, texts, index)


class Tensor:
    """A tensor that needs a gradient, which NumPy refuses, on a device."""

    dtype = "torch.float32"

    def __init__(self, values):
        self._values = np.array(values, np.float32)

    def __len__(self):
        return len(self._values)

    def __getitem__(self, place):
        return Tensor(self._values[place])

    def __array__(self, *_, **__):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self):
        made = Tensor(self._values)
        made.numpy = lambda: made._values
        return made

    def cpu(self):
        return self


@pytest.mark.parametrize(
    "answer",
    [Tensor, lambda rows: [Tensor(row) for row in rows], lambda rows: (Tensor(row) for row in rows), iter],
    ids=["tensor", "list", "generator", "iterator"],
)
def test_vectors_from_functions_of_tensors_and_generators(answer):
    texts = ["no edema", "mild edema", "effusion"]
    vectors = np.random.default_rng(1).random((3, 4)).astype(np.float32)

    def embed(given):
        """Return a vector for each text."""
        return answer([vectors[texts.index(text)].tolist() for text in given])

    expected = mo.score(*[mo.reports(side, chexbert=vectors) for side in (texts, texts)], "chexbert").mean()
    made = mo.score(*[mo.reports(side, chexbert=embed) for side in (texts, texts)], "chexbert").mean()
    assert made == expected
    rewarded = mo.reward("chexbert", sources={"chexbert": embed})
    assert rewarded(completions=texts, reference=texts) == pytest.approx([1.0] * 3)
    found = as_vectors(answer(vectors.tolist()), None)
    assert found.values.tolist() == vectors.tolist()


def test_a_function_that_returns_no_list_is_named():
    with pytest.raises(
        InputError, match=r"that a function returned must be one for each text, .*; got the NoneType in memory\."
    ):
        mo.reports(["a", "b"], chexbert=lambda texts: None).load()
