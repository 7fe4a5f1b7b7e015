"""Every source that is given in addition to the texts, by every route: the same answers as from files and one index."""

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.bench import search as bench
from metric_oracle.indexes.inputs import ATTACHED
from support import beside

METRIC_OF = {
    "radgraph": "radgraph", "chexbert": "chexbert", "embedding": "embedding", "labels": "chexbert:labels",
    "srr": "srr-bert", "entities": "ratescore",
}  # fmt: skip


@pytest.fixture(scope="module", params=[record.name for record in ATTACHED])
def source(request, corpus, tmp_path_factory):
    """Return a metric, the files of both sides that it reads, an index of the files, and loaded test reports."""
    (record,) = (record for record in ATTACHED if record.name == request.param)
    names = {*record.arguments, *(("uncertain",) if record.name == "labels" else ())}
    train, test = ({n: v for n, v in beside(corpus, side).items() if n in names} for side in ("train", "test"))
    metric = METRIC_OF[record.name]
    index = mo.build_index(corpus["train"], tmp_path_factory.mktemp("one") / "I", metrics=metric, **train)
    return metric, train, index, mo.load_queries(corpus["test"], **test)


def answers(index, queries, metric):
    return mo.retrieve(index, queries, metric, k=4).table


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "cut"])
def test_shard_sets(source, corpus, tmp_path, is_streamed):
    """A file of reports is read in pieces; reports in memory are cut."""
    metric, files, index, queries = source
    reports = corpus["train"] if is_streamed else mo.read_reports(corpus["train"])
    many = mo.build_index(reports, tmp_path / "SET", metrics=metric, shard_rows=35, **files)
    assert many.n_shards == 4
    assert answers(many, queries, metric).equals(answers(index, queries, metric))


def test_prepared_folder(source, tmp_path):
    metric, _, index, queries = source
    prepared = mo.load_queries(mo.build_index(queries, tmp_path / "TESTS", metrics=metric).folder)
    assert answers(index, prepared, metric).equals(answers(index, queries, metric))


def test_one_query_of_the_benchmark(source):
    metric, _, index, queries = source
    for i in (0, len(queries.ids) - 1):
        alone = bench.alone(queries, i)
        assert answers(index, alone, metric).equals(answers(index, queries.take(np.array([i])), metric))
