"""Commands over a set of shards against those over one index, and the parts of a search."""

import json

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.findings.results import Results, read_part
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.scores.pair_scores import score_rows

KINDS = ("identity", "random", "most-frequent")


@pytest.fixture(scope="module")
def made(corpus, tmp_path_factory):
    """Return one index, a set of four shards of the same files, the last one ragged, and loaded queries."""
    folder = tmp_path_factory.mktemp("sets")
    # The last shard has no graph at all.
    graphs = json.loads(corpus["train_graphs"].read_text())
    ids = mo.read_reports(corpus["train"]).ids
    kept = {key: graph for key, graph in graphs.items() if key not in set(ids[105:])}
    (folder / "graphs.json").write_text(json.dumps(kept))
    files = {"radgraph": folder / "graphs.json", "chexbert_labels": corpus["train_labels"], "uncertain": "positive"}
    metrics = "radgraph,chexbert:labels,temporal"
    one = mo.build_index(mo.reports(corpus["train"], **files), folder / "one", metrics=metrics)
    many = mo.build_index(mo.reports(corpus["train"], **files), folder / "set", metrics=metrics, shard_rows=35)
    asked = {"radgraph": corpus["test_graphs"], "chexbert_labels": corpus["test_labels"], "uncertain": "positive"}
    return one, many, mo.reports(corpus["test"], **asked).load()


@pytest.mark.parametrize("metric", ["radgraph", "chexbert:labels", "crg"])
def test_baselines_and_checks_are_those_of_the_index(made, metric):
    one, many, queries = made
    assert many.n_shards == 4
    for kind in KINDS:
        of_one, of_set = (mo.baseline(index, queries, kind, metric) for index in (one, many))
        assert of_set.table.equals(of_one.table)
        assert mo.verify(many, of_set, queries)["pairs"] == of_set.table.num_rows
    found = mo.retrieve(many, queries, metric, k=3)
    assert found.table.equals(mo.retrieve(one, queries, metric, k=3).table)
    assert mo.verify(many, found, queries) == {"pairs": 36, "queries": 12}
    ties = found.table.column_names.index("n_ties")
    altered = found.table.set_column(ties, "n_ties", [found.table["n_ties"].to_numpy() + 1])
    with pytest.raises(mo.MetricOracleError, match=r"^verify: (n_ties|the answers) of query"):
        mo.verify(many, Results(altered, found.signature), queries)


def test_expectation_over_a_set(made):
    one, many, queries = made
    of_one, of_set = (mo.expectation(index, queries, "radgraph") for index in (one, many))
    for name in of_one.table.column_names:
        if name in ("mean", "sd"):  # sums in another order
            assert of_set.table[name].to_numpy() == pytest.approx(of_one.table[name].to_numpy(), rel=1e-13, abs=0)
        else:
            assert of_set.table[name].equals(of_one.table[name])
    assert np.array_equal(of_one.counts, of_set.counts)


def test_the_error_of_an_expectation_is_that_of_the_worst_shard(made, monkeypatch):
    _, many, queries = made
    errors = iter([1e-9, 3e-9, 2e-9, 2e-9])
    kernel = load_kernel(get_metric("radgraph"), "cpu")
    monkeypatch.setattr(type(kernel), "score_error", lambda *sides: next(errors))
    assert mo.expectation(many, queries, "radgraph").signature["error"] == 3e-9


def test_queries_that_one_shard_cannot_tell_apart_are_told_apart_in_another(tmp_path):
    """The first shard has neither feature of the two queries, which are one query for it, and two for the second."""
    for side, words in (("corpus", ["edema", "effusion"]), ("asked", ["effusion", "nodule"])):
        graphs = {}
        for i, word in enumerate(words):
            entity = {"tokens": word, "label": "OBS-DP", "start_ix": 0, "end_ix": 0, "relations": []}
            graphs[str(i)] = {"text": word, "entities": {"1": entity}}
        (tmp_path / f"{side}.json").write_text(json.dumps(graphs))
    reports = mo.reports({"0": "edema", "1": "effusion"}, radgraph=tmp_path / "corpus.json")
    many = mo.build_index(reports, tmp_path / "set", metrics="radgraph:rg_e", shard_rows=1)
    queries = mo.reports({"0": "effusion", "1": "nodule"}, radgraph=tmp_path / "asked.json").load()
    rows = np.array([1, 1])
    assert score_rows(many, queries, rows, ["radgraph:rg_e"], system="x").table["radgraph:rg_e"].to_pylist() == [1, 0]
    found = mo.retrieve(many, queries, "radgraph:rg_e", k=2)
    assert found.table["score"].to_pylist() == [1.0, 0.0, 0.0, 0.0]
    assert mo.verify(many, found, queries) == {"pairs": 4, "queries": 2}
    drawn = mo.baseline(many, queries, "random", "radgraph:rg_e")
    assert drawn.table["score"].to_pylist()[:10] == drawn.table["row"].to_pylist()[:10]
    assert mo.verify(many, drawn, queries)["pairs"] == 20


def parts_of(made, folder, n, k, metric="radgraph", ending="parquet", **options):
    paths = [folder / f"{metric}-{place}-of-{n}.{ending}" for place in range(1, n + 1)]
    for place, path in enumerate(paths, 1):
        mo.retrieve(made[1], made[2], metric, k=k, options=mo.SearchOptions(part=f"{place}/{n}", **options)).write(path)
    return paths


@pytest.mark.parametrize(
    ("n", "k", "ending"), [(1, 2, "parquet"), (2, 2, "csv"), (4, 60, "jsonl"), (3, 105, "parquet")]
)
def test_parts_are_the_whole(made, tmp_path, n, k, ending):
    whole = mo.retrieve(made[1], made[2], "radgraph", k=k)
    paths = parts_of(made, tmp_path, n, k, ending=ending)
    for some in (paths, paths[::-1]):
        merged = mo.merge(some)
        assert merged.table.to_pydict() == whole.table.to_pydict()
        assert merged.signature.keys() == whole.signature.keys()
        # Thresholds travel within a part alone, so that more is bounded and scored.
        differ = {name for name in whole.signature if merged.signature[name] != whole.signature[name]}
        assert differ <= {"stages", "closest_call"}
    assert any(whole.table["fallback"].to_pylist())
    assert mo.verify(made[1], merged, made[2])["queries"] == 12


def test_parts_that_do_not_fit_are_refused(made, tmp_path):
    one, two, *rest = paths = parts_of(made, tmp_path, 4, 2)

    def refused(some, match):
        with pytest.raises(InputError, match=match):
            mo.merge(some)

    refused([], r"^merge: parts must be at least one file; got none\.")
    refused(paths[:2], r"^merge: all 4 parts must be given; got 2, without 3/4, 4/4\. Search these parts, too\.")
    refused([*paths, one], r"^merge: each part must come once; got part 1/4 in .* and .*\. Leave one of them out\.")
    (tmp_path / "other").mkdir()
    foreign = parts_of(made, tmp_path / "other", 4, 3)
    refused(
        [*paths[:3], foreign[3]], r"^merge: parts must be of one search; got .*, which differs from .* in k\. Leave"
    )
    foreign = parts_of(made, tmp_path / "other", 2, 2)
    refused([*paths[:3], foreign[1]], r"^merge: parts must be of one search; got .* in the number of parts\. Leave")
    foreign = parts_of(made, tmp_path / "other", 4, 2, "temporal")
    refused([*paths[:3], foreign[3]], r"^merge: parts must be of one search; got .* in metric, options, representation")
    cut = read_part(two)
    Results(cut.table.slice(1), cut.signature).write(tmp_path / "cut.parquet")
    refused(
        [one, tmp_path / "cut.parquet", *rest],
        r"^merge: parts must be unchanged since `mo\.retrieve` wrote them; got .*cut\.p",
    )
    whole = tmp_path / "whole.parquet"
    mo.retrieve(made[1], made[2], "radgraph").write(whole)
    refused([whole], r"^merge: parts must be files of parts of a search; got .*, a whole result\. Leave it out\.")
    with pytest.raises(
        InputError, match=r"^read_results: results must be whole; got a part of a search\. Join all parts first"
    ):
        mo.read_results(one)


def test_part_is_checked(made):
    for wrong in ("0/4", "5/4", "1/5", "x", "1", "1/0", ""):
        with pytest.raises(
            InputError, match=r"^retrieve: part must be I/N, I from 1 to N and N at most the 4 shards; g"
        ):
            mo.retrieve(made[1], made[2], "temporal", options=mo.SearchOptions(part=wrong))
    with pytest.raises(
        InputError, match=r"^retrieve: part must be left out for an index that is no set of shards; got"
    ):
        mo.retrieve(made[0], made[2], "temporal", options=mo.SearchOptions(part="1/1"))


def test_commands(made, corpus, tmp_path, oracle, fails):
    folder = made[1].folder
    lacking = r"retrieve: --out must be given with --part; got none\. Add --out FILE, which oracle merge takes\."
    fails("retrieve", folder, corpus["test"], "-m", "temporal", "--part", "1/2", match=lacking)
    for place in (1, 2):
        out = tmp_path / f"part-{place}.parquet"
        code, _, err = oracle(
            "retrieve", folder, corpus["test"], "-m", "temporal", "--part", f"{place}/2", "--out", out
        )
        assert code == 0, err
        assert f"part {place}/2" in err
    code, _, err = oracle("merge", *tmp_path.glob("part-*.parquet"), "--out", tmp_path / "whole.parquet")
    assert code == 0, err
    code, out, err = oracle("verify", folder, tmp_path / "whole.parquet", corpus["test"])
    assert (code, out[:6]) == (0, "right:"), err
    code, out, err = oracle("info", folder, "--check", "--format", "jsonl")
    assert (code, json.loads(out)["content"]["counts"]["reports"]) == (0, 120), err
    code, out, _ = oracle("info", folder, "--format", "table")
    assert (code, "120" in out) == (0, True)
    code, out, err = oracle("build-index", corpus["train"], "--shard-rows", "60", "-m", "temporal", "--out",
                            tmp_path / "built", "--format", "jsonl")  # fmt: skip
    assert (code, len(json.loads(out)["content"]["shards"])) == (0, 2), err
    code, out, err = oracle("study", folder, corpus["test"], "-m", "temporal", "--format", "jsonl")
    assert code == 0, err
