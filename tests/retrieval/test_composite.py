"""Searching under a composite whose weights are in a file: RadCliQ's own as such a file, verification, error lines."""

import hashlib
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from metric_oracle.base.errors import BackendError, ExactnessError, InputError
from metric_oracle.findings.results import Results, read_results
from metric_oracle.kernels.contract import read_only
from metric_oracle.kernels.sum.cpu import Backend
from metric_oracle.kernels.sum.weighted import WeightedSearch
from metric_oracle.metrics import get_metric
from metric_oracle.reading import reports
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.retrieval.weights import FORMAT, VERSION, read_weights
from metric_oracle.verification.verify import verify

TERMS = {
    "bertscore": {"mean": 0.5, "scale": 0.25, "weight": -0.5},
    "chexbert:labels": {"mean": 0.4, "scale": 0.5, "weight": -0.25},
    "rouge-l": {"mean": 0.3, "scale": 0.2, "weight": 0.125},
}


def content(terms=TERMS, **changes):
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "name": "ours",
        "direction": "lower",
        "terms": terms,
        "intercept": 1.5,
    }
    return {name: value for name, value in {**whole, **changes}.items() if value is not None}


def write(folder, **changes):
    path = folder / "weights.json"
    path.write_text(json.dumps(content(**changes)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def files(corpus):
    return {
        side: {
            "radgraph": corpus[f"{side}_graphs"],
            "chexbert": corpus[f"{side}_embeddings"],
            "chexbert_labels": corpus[f"{side}_labels"],
            "uncertain": "positive",
            "encoder": "fake",
        }
        for side in ("train", "test")
    }


@pytest.fixture(scope="module", params=[False, True], ids=["raw", "rescaled"])
def index(request, corpus, files, tmp_path_factory, fake_encoder):
    folder = tmp_path_factory.mktemp("index")
    (folder / "baseline.tsv").write_text("LAYER,P,R,F\n1,0.3,0.25,0.4\n")
    baseline = {"rescale_table": folder / "baseline.tsv"} if request.param else {}
    return build_index(reports(corpus["train"], **files["train"], **baseline), folder / "I")


@pytest.fixture(scope="module")
def queries(corpus, files):
    return reports(corpus["test"], **files["test"]).load()


@pytest.mark.parametrize("metric", ["radcliq", "radcliq:v0", "radcliq:preprint"])
def test_radcliq_written_as_a_file_is_radcliq(index, queries, metric, tmp_path):
    recorded = get_metric(metric).recorded
    path = write(tmp_path, terms=recorded["terms"], intercept=recorded["intercept"])
    own, published = (
        retrieve(index, queries, m, k=9, options=SearchOptions(**w))
        for m, w in (("composite", {"weights": path}), (metric, {}))
    )
    assert own.table.equals(published.table)
    assert own.signature["options"] == published.signature["options"] == recorded
    differ = {name for name in own.signature if own.signature[name] != published.signature[name]}
    assert differ == {"metric", "source", "tool"}


def test_the_signature_has_the_weights_and_the_hash_of_the_file(index, queries, tmp_path):
    path = write(tmp_path)
    signature = retrieve(index, queries, "composite", options=SearchOptions(weights=path)).signature
    assert signature["metric"] == "composite"
    assert signature["direction"] == "lower"
    assert signature["options"] == {"terms": TERMS, "intercept": 1.5}
    assert signature["source"] == f"ours, weights file sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert list(signature["representation"]) == ["bertscore", "labels", "words"]
    assert json.loads(json.dumps(signature)) == signature


@pytest.mark.parametrize("sign", [1, -1])
def test_the_reference_backend_agrees_on_another_file_in_the_same_index(index, queries, tmp_path, sign):
    """Two composites over the same parts are told apart; BERTScore may be a merit or a fault."""
    for weight in (0.5, 2.0):
        terms = {**TERMS, "bertscore": {"mean": 0.5, "scale": 0.25, "weight": -sign * weight}}
        path = write(tmp_path, terms=terms)
        fast, slow = (
            retrieve(index, queries, "composite", k=7, backend=b, options=SearchOptions(weights=path))
            for b in ("cpu", "reference")
        )
        assert fast.table.equals(slow.table)
        by_hand = 1.5
        for part, t in terms.items():
            by_hand = by_hand + t["weight"] * ((fast.table[part].to_numpy() - t["mean"]) / t["scale"])
        np.testing.assert_array_equal(fast.table["score"].to_numpy(), by_hand)


COSINES = {
    "bleu-2": {"mean": 0.0, "scale": 1.0, "weight": -1.0},
    "chexbert": {"mean": 0.0, "scale": 1.0, "weight": -1.0},
}


@pytest.mark.parametrize(("metric", "k"), [("composite", 1), ("composite", 50), ("radcliq", 1)])
def test_cosines_beyond_their_margin_are_an_error(index, queries, tmp_path, monkeypatch, metric, k):
    """Of items that survive, and, where none is wrong among them, of the dropped ones that are scored."""
    options = SearchOptions(k=k, weights=write(tmp_path, terms=COSINES) if metric == "composite" else None)
    found = retrieve(index, queries, metric, options=options)
    assert 0.0 < found.signature["closest_call"]["cosine"] < 1e-3
    honest = WeightedSearch._similarities
    for planted in (lambda x: x - 1e-3, lambda x: np.where(x > 0.9, 0.0, x)):
        monkeypatch.setattr(
            WeightedSearch, "_similarities", lambda *given, planted=planted: map(planted, honest(*given))
        )
        with pytest.raises(
            ExactnessError, match=r"^retrieve: the bound of stage 'cosine' must not lie below a score; got"
        ):
            retrieve(index, queries, metric, options=options)


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("metric", ["composite", "radcliq", "radcliq:v0"])
def test_bonuses_below_what_the_other_parts_add_are_an_error(index, queries, tmp_path, monkeypatch, metric, dropped):
    """Of all items, which are listed all the same; or of all that no query lists, where only the sample can tell."""
    options = SearchOptions(threads=1, weights=write(tmp_path) if metric == "composite" else None)
    found = retrieve(index, queries, metric, options=options)
    assert 0.0 < found.signature["closest_call"]["bonus"] < 1e-3
    listed, honest = found.table["row"].to_numpy(), WeightedSearch.bonuses

    def lowered(self, *given):
        added, corpus = honest(self, *given), self.corpus
        item_of_row = np.empty(len(corpus.row_id), np.int64)
        item_of_row[corpus.row_id] = np.repeat(np.arange(len(corpus.row_ptr) - 1), np.diff(corpus.row_ptr))
        falls = np.ones(len(added.items.offset), bool)
        falls[item_of_row[listed]] = not dropped
        bonus = np.where(falls, added.items.offset - np.float32(1), added.items.offset)
        return added._replace(items=read_only(added.items._replace(offset=bonus)))

    monkeypatch.setattr(WeightedSearch, "bonuses", lowered)
    with pytest.raises(ExactnessError, match=r"^retrieve: the bound of stage 'bonus' must not lie below a score; got"):
        retrieve(index, queries, metric, options=options)


@pytest.mark.parametrize("k", [1, 5])
def test_items_that_are_dropped_wrongly_are_an_error(index, queries, tmp_path, monkeypatch, k):
    honest = WeightedSearch._candidates_of

    def worst(self, q, k, values):
        item, _ = honest(self, q, len(self.corpus.row_ptr) - 1, values)
        sums, _ = self._sums(values)
        return item[np.argsort(sums[item], kind="stable")[-k:]], None

    monkeypatch.setattr(WeightedSearch, "_candidates_of", worst)
    with pytest.raises(ExactnessError, match=r"^retrieve: no dropped candidate must score among the best; got \d+ of "):
        retrieve(index, queries, "composite", k=k, options=SearchOptions(weights=write(tmp_path, terms=COSINES)))


def test_a_search_of_one_query_scores_64_items_that_may_be_dropped(index, queries, monkeypatch):
    """Those among them that were not dropped are left out."""
    attached = {kind: replace(given, of_row=given.of_row[:1]) for kind, given in queries.attached.items()}
    alone = replace(queries, ids=queries.ids[:1], texts=queries.texts[:1], attached=attached)
    sizes, honest = [], Backend.scores
    monkeypatch.setattr(
        Backend, "scores", lambda self, exact: sizes.append(len(exact["bertscore"])) or honest(self, exact)
    )
    retrieve(index, alone, "radcliq", threads=1)
    n_listed, n_checked = sizes[:2]
    assert 64 - n_listed <= n_checked <= 64
    assert n_checked > 32


@pytest.mark.parametrize("sign", [0, 1])
def test_a_composite_that_leaves_nothing_to_a_gpu(index, queries, tmp_path, monkeypatch, sign):
    monkeypatch.setattr("metric_oracle.kernels.sum.cuda.Backend.lacking", lambda self: "")
    metric, weights = "radcliq:preprint", {}
    if sign:  # a high BERTScore is no merit: its bounds say nothing
        terms = {"bertscore": {"mean": 0, "scale": 1, "weight": 1}}
        metric, weights = "composite", {"weights": write(tmp_path, terms=terms)}
    match = (
        r"^retrieve: a composite is searched on a GPU only if BERTScore is one of its terms and has a weight below 0\. "
        r'Use backend "cpu"\.$'
    )
    with pytest.raises(BackendError, match=match):
        retrieve(index, queries, metric, backend="cuda", options=SearchOptions(**weights))


@pytest.mark.parametrize("idf", ["off", "tests"])
def test_results_are_verified_without_the_file(index, queries, tmp_path, idf):
    path = write(tmp_path)
    results = retrieve(index, queries, "composite", k=3, options=SearchOptions(weights=path, idf=idf))
    path.unlink()
    for ending in ("parquet", "csv", "jsonl"):
        results.write(tmp_path / f"r.{ending}")
        assert verify(index, tmp_path / f"r.{ending}", queries, sample=4) == {"pairs": 36, "queries": 4}


def test_other_weights_in_the_signature(index, queries, tmp_path):
    results = retrieve(index, queries, "composite", options=SearchOptions(weights=write(tmp_path)))
    options = json.loads(json.dumps(results.signature["options"]))
    options["terms"]["rouge-l"]["weight"] *= 2
    with pytest.raises(ExactnessError, match=r"^verify: the score of query '\d+' and row \d+ must be .*; got "):
        verify(index, Results(results.table, {**results.signature, "options": options}), queries)
    match = (
        r"^verify: weights must have terms with a mean, a scale and a weight each, and an intercept, all numbers; got"
    )
    for broken in (None, {}, {"terms": {}}, {"terms": {"bleu": 1}, "intercept": 0}, {"terms": 3, "intercept": 0}):
        with pytest.raises(InputError, match=match):
            verify(index, Results(results.table, {**results.signature, "options": broken}), queries)


def test_a_fitted_composite_is_searched(index, queries, tmp_path):
    from metric_oracle.raters.fit_composite import fit_composite

    answers = retrieve(index, queries, "radcliq:v0", k=20).table
    rng = np.random.default_rng(0)
    names = ("radgraph", "bertscore", "chexbert", "bleu-2")
    lines = [",".join(["study_id", "errors", *names])]
    for row in answers.to_pylist():
        noisy = row["score"] + rng.normal(0, 0.2)
        lines.append(",".join([row["query_id"], repr(noisy), *(repr(row[name]) for name in names)]))
    (tmp_path / "pairs.csv").write_text("\n".join(lines))
    fit_composite(tmp_path / "pairs.csv").write(tmp_path / "weights.json")
    fast, slow = (
        retrieve(index, queries, "composite", k=4, backend=b, options=SearchOptions(weights=tmp_path / "weights.json"))
        for b in ("cpu", "reference")
    )
    assert fast.table.equals(slow.table)
    assert fast.signature["source"].startswith("pairs, weights file sha256 ")


def test_the_command_line(corpus, index, files, tmp_path, oracle, named):
    terms = {name: term for name, term in TERMS.items() if name != "bertscore"}
    path = write(tmp_path, terms=terms)
    tests = named("humans", corpus["test"], chexbert_labels=corpus["test_labels"], uncertain="positive")

    given = ["retrieve", index.folder, tests, "--metric", "composite"]
    code, out, _ = oracle(*given, "--weights", path, "--out", tmp_path / "r.parquet")
    assert (code, out) == (0, "")
    assert read_results(tmp_path / "r.parquet").signature["options"]["terms"] == terms
    code, out, _ = oracle("verify", index.folder, tmp_path / "r.parquet", tests)
    assert (code, out) == (0, "right: 12 pairs scored again, 12 queries searched by brute force\n")
    for more, line in (
        ([], "error: retrieve: --weights must be given for metric 'composite'; got none. Pass the file"),
        (["--weights", tmp_path / "none.json"], "error: retrieve: there is no file "),
    ):
        code, out, err = oracle(*given, *more)
        assert (code, out) == (2, "")
        assert err.startswith(line)
    asked = ["retrieve", index.folder, tests, "--metric", "bleu"]
    code, _, err = oracle(*asked, "--weights", path, "--out", tmp_path / "w.jsonl")
    assert code == 2
    assert err.startswith("error: retrieve: --weights must be left out for metric 'bleu'; got ")


# Files that are no weights


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"3", b"{}", b'{"format": "other"}', b"\xff\xfe", b"PK\x03\x04", b"[" * 100_000,
     json.dumps(content(name=None)).encode(), json.dumps(content(name=7)).encode(),
     json.dumps(content(direction=None)).encode(), json.dumps(content(version=None)).encode()],
)  # fmt: skip
def test_files_of_another_kind(tmp_path, raw):
    path = tmp_path / "w.json"
    path.write_bytes(raw)
    match = (
        rf"^weights must be a JSON file that `mo\.fit_composite` writes, of format '{FORMAT}'; got another file, "
        rf"{re.escape(str(path))}\. Fit one with `mo\.fit_composite`\.$"
    )
    with pytest.raises(InputError, match=match):
        read_weights(path)


def test_another_version(tmp_path):
    with pytest.raises(InputError, match=r"^the version of weights must be 1; got 2 in .*\. Fit them again\.$"):
        read_weights(write(tmp_path, version=2))


def test_another_direction(tmp_path):
    match = r"^the direction of weights must be 'lower', as .*; got 'higher' in .*\. Change the signs"
    with pytest.raises(InputError, match=match):
        read_weights(write(tmp_path, direction="higher"))


@pytest.mark.parametrize(
    "changes",
    [
        {"intercept": "1"},
        {"intercept": True},
        {"terms": []},
        {"terms": {"bleu": {"mean": 0, "scale": 1}}},
        {"terms": {"bleu": {"mean": 0, "scale": 1, "weight": None}}},
        {"terms": {"bleu": {"mean": 0, "scale": 1, "weight": 10**400}}},
        {"terms": {"bleu": [0, 1, 1]}},
    ],
)
def test_terms_of_another_kind(tmp_path, changes):
    match = (
        r"^weights must have terms with a mean, a scale and a weight each, and an intercept, all numbers; "
        r"got a file without them\. Fit them again with `mo\.fit_composite`\.$"
    )
    with pytest.raises(InputError, match=match):
        read_weights(write(tmp_path, **changes))


def test_a_name_that_cannot_be_printed(tmp_path):
    with pytest.raises(InputError, match=r"^weights must be a JSON file that `mo\.fit_composite` writes, of format"):
        read_weights(write(tmp_path, name="\ud800"))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_not_finite(tmp_path, number):
    path = write(tmp_path, terms={"bleu": {"mean": 12345, "scale": 1, "weight": 1}})
    path.write_text(path.read_text().replace("12345", number))
    match = r"^mean, scale and weight must be below 1e\+100 .*; got .* for 'bleu-2'\. Fit it again"
    with pytest.raises(InputError, match=match):
        read_weights(path)
    path = write(tmp_path, intercept=12345)
    path.write_text(path.read_text().replace("12345", number))
    with pytest.raises(InputError, match=r"^intercept must be below 1e\+100; got "):
        read_weights(path)


def test_metrics_that_are_not_known(tmp_path):
    with pytest.raises(InputError, match=r"^metric must be one of .*; got 'meteor'\."):
        read_weights(write(tmp_path, terms={"meteor": {"mean": 0, "scale": 1, "weight": 1}}))
    with pytest.raises(InputError, match=r"^terms must be among .*, each once; got 'crg'\. Choose others\.$"):
        read_weights(write(tmp_path, terms={"crg": {"mean": 0, "scale": 1, "weight": 1}}))


def test_parts_that_the_index_lacks(corpus, tmp_path):
    index = build_index(corpus["train"], tmp_path / "I", metrics=["bleu"])
    match = (
        r"^retrieve: metric must be one of bleu-1, .* \(what .* holds\); got 'composite'\. Build an index with "
        r"`metrics='bertscore,chexbert:labels,rouge-l'`, `mo\.reports\(\.\.\., encoder=NAME\|FOLDER\)` and "
        r"`mo\.reports\(\.\.\., chexbert_labels=FILE, uncertain=positive\|negative\|blank\)`\.$"
    )
    with pytest.raises(InputError, match=match):
        retrieve(index, corpus["test"], "composite", options=SearchOptions(weights=write(tmp_path)))


def test_queries_without_a_part(index, corpus, tmp_path):
    with pytest.raises(
        InputError, match=r"^retrieve: queries must have labels each for metric 'composite'; got none\."
    ):
        retrieve(index, corpus["test"], "composite", options=SearchOptions(weights=write(tmp_path)))


def test_settings_of_a_part_that_is_not_there(index, queries, tmp_path):
    terms = {name: term for name, term in TERMS.items() if name != "bertscore"}
    with pytest.raises(
        InputError, match=r"^retrieve: idf must be left out for metric 'composite'; got a value\. Leave out `idf`"
    ):
        retrieve(index, queries, "composite", options=SearchOptions(weights=write(tmp_path, terms=terms), idf="tests"))


def test_the_table_says_nothing_of_bounds_where_there_are_none(index, queries, tmp_path):
    from rich.console import Console

    from metric_oracle.findings.views import answers_table

    for terms, expected in ((TERMS, True), ({"rouge-l": TERMS["rouge-l"]}, False)):
        console = Console(width=150, record=True, file=io.StringIO())
        console.print(
            answers_table(
                retrieve(index, queries, "composite", options=SearchOptions(weights=write(tmp_path, terms=terms)))
            )
        )
        assert ("pairs skipped" in console.export_text()) == expected
