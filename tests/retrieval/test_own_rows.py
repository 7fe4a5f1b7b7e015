"""Rows of an index as its queries: the documents of the index, instead of texts and graphs that are looked up again."""

import random

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.indexes.prepared import prepared_reports
from metric_oracle.metrics import get_metric
from support.sources import graphs, label_sets

N = 90


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = random.Random(5)
    return [rng.choice(["No edema.", "no edema ."]) if rng.random() < 0.3 else words(rng) for _ in range(N)]


def words(rng: random.Random) -> str:
    return " ".join(rng.choices(["edema", "Edema", "effusion", "a", "b"], k=rng.randrange(1, 9)))


@pytest.fixture(scope="module")
def index(texts, tmp_path_factory):
    reports = mo.reports(texts, radgraph=graphs(texts), srr_labels=label_sets)
    return mo.build_index(reports, tmp_path_factory.mktemp("own") / "I", metrics="bleu,rouge-l,radgraph,srr-bert")


@pytest.mark.parametrize("metric", ["rouge-l", "bleu-4", "radgraph", "radgraph:rg_er-lower", "srr-bert"])
@pytest.mark.parametrize("chosen", [[], [7, 3, 7, 0, *range(80, 20, -1)]])
def test_rows_are_encoded_as_their_reports_are(index, metric, chosen):
    record = get_metric(metric)
    part, queries = index.representation(record), prepared_reports(index).take(np.array(chosen, np.int64))
    sides = part.encode(queries), part.own(queries.stored[1])
    usual, own = ([of_query(part.translate(record, side), q) for q in side.document_of_row] for side in sides)
    assert own == usual
    usual, own = ([side.item(q) for q in side.document_of_row] for side in sides)
    assert own == usual
    assert len({len(side.row_ptr) for side in sides}) == 1, "equally many are distinct"


def of_query(batch, q):
    """Return the arrays of a distinct query with their dtypes: its features, and its words if it has some."""
    queries, n = batch.queries, batch.queries.sizes.shape[1]
    lists = [queries.id[queries.ptr[q * n + f] : queries.ptr[q * n + f + 1]] for f in range(n)]
    words = [batch.words[batch.words_ptr[q] : batch.words_ptr[q + 1]]] if len(batch) > 1 else []
    return [(some.dtype, some.tolist()) for some in (queries.sizes[q], *lists, *words)]


@pytest.mark.parametrize("metric", ["bleu", "rouge-l", "radgraph", "radgraph+rouge-l"])
def test_an_index_against_itself_is_its_reports_against_it(index, texts, metric):
    ids = index.strings("study_id").to_pylist()
    reports = mo.reports(
        dict(zip(ids, texts, strict=True)), radgraph=dict(zip(ids, graphs(texts).values(), strict=True))
    )
    options = mo.SearchOptions(k=5, exclude="self")
    wanted = mo.retrieve(index, reports, metric, options=options)
    for own in (index, index.folder, mo.reports(mo.open_index(index.folder))):
        found = mo.retrieve(index, own, metric, options=options)
        assert found.table.equals(wanted.table)
        assert found.signature["references"] == wanted.signature["references"]


def test_graphs_that_replace_those_of_the_index_are_read(index, texts):
    ids, made = index.strings("study_id").to_pylist(), graphs(["effusion"] * N).values()
    other = {name: {"entities": graph["entities"]} for name, graph in zip(ids, made, strict=True)}
    reports = dict(zip(ids, texts, strict=True))
    wanted = mo.retrieve(index, mo.reports(reports, radgraph=other), "radgraph").table
    assert mo.retrieve(index, mo.reports(index.folder, radgraph=other), "radgraph").table.equals(wanted)
    assert not mo.retrieve(index, index, "radgraph").table.equals(wanted)


def test_another_index_is_searched_by_its_reports(index, texts, tmp_path):
    asked = mo.build_index(texts[20:50], tmp_path / "OTHER", metrics="bleu")
    found, wanted = (mo.retrieve(index, queries, "bleu", k=3).table for queries in (asked, texts[20:50]))
    assert found.drop(["query_id"]).equals(wanted.drop(["query_id"]))
