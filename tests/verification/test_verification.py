import math
import re
import shutil
from dataclasses import replace
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, ExactnessError, IndexFormatError, InputError
from metric_oracle.findings.results import Results
from metric_oracle.indexes import bertscore
from metric_oracle.indexes.build import build_index
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.document_pairs import Pairs
from metric_oracle.retrieval.kernels import load_reference
from metric_oracle.sources.token_states import load_encoder
from metric_oracle.verification import brute_force
from support import inputs

K = 3


@pytest.fixture(scope="module")
def index(corpus, tmp_path_factory):
    return mo.build_index(
        mo.reports(corpus["train"], radgraph=corpus["train_graphs"]), tmp_path_factory.mktemp("index") / "I"
    )


@pytest.fixture(scope="module")
def queries(corpus):
    return mo.reports(corpus["test"], radgraph=corpus["test_graphs"]).load()


@pytest.fixture(scope="module", params=["bleu", "rouge-l", "radgraph"])
def results(index, queries, request):
    return mo.retrieve(index, queries, request.param, k=K)


def changed(results, column, change):
    """Return the results with one column changed by a function of its list."""
    values = results.table[column].to_pylist()
    change(values)
    place = results.table.column_names.index(column)
    table = results.table.set_column(place, column, pa.array(values, results.table[column].type))
    return Results(table, results.signature)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_right_results(index, queries, results, tmp_path, ending):
    results.write(tmp_path / f"r{ending}")
    assert mo.verify(index, tmp_path / f"r{ending}", queries) == {"pairs": 12 * K, "queries": 12}


@pytest.mark.parametrize(("sample", "n"), [(0, 0), (5, 5), (10**9, 12)])
def test_sample(index, queries, results, sample, n):
    assert mo.verify(index, results, queries, sample=sample)["queries"] == n


def test_order_of_lines_does_not_count(index, queries, results):
    table = results.table.take(list(range(results.table.num_rows))[::-1])
    mo.verify(index, Results(table, results.signature), queries)


@pytest.mark.parametrize("name", ["sample", "seed"])
@pytest.mark.parametrize("value", [-1, True])
def test_sample_and_seed(index, queries, results, name, value):
    match = rf"^verify: {name} must be an int of at least 0; got {value!r}\. Choose another number\.$"
    with pytest.raises(InputError, match=match):
        mo.verify(index, results, queries, **{name: value})


SCORE = (
    r"^verify: the score of query '\d+' and row -?\d+ must be .*; got .*\. The results were altered, or are of another"
)


@pytest.mark.parametrize(
    "change",
    [lambda s: math.nextafter(s, 2), lambda s: math.nextafter(s, -1), lambda s: s + 1, lambda s: math.nan],
    ids=["up", "down", "one", "nan"],
)
def test_changed_score(index, queries, results, change):
    with pytest.raises(ExactnessError, match=SCORE):
        mo.verify(index, changed(results, "score", lambda scores: scores.__setitem__(7, change(scores[7]))), queries)


@pytest.mark.parametrize("row", [-1, -120, 120, 10**12])
def test_row_outside_the_index(index, queries, results, row):
    with pytest.raises(ExactnessError, match=SCORE):
        mo.verify(index, changed(results, "row", lambda rows: rows.__setitem__(4, row)), queries)


@pytest.mark.parametrize("sample", [0, 20])
def test_changed_row(index, queries, results, sample):
    for row in range(0, 120, 13):
        other = changed(results, "row", lambda rows: rows.__setitem__(4, row))  # noqa: B023
        if other.table["row"].equals(results.table["row"]):
            continue
        with pytest.raises(ExactnessError, match=SCORE + r"|^verify: \w+ of query '\d+' and row \d+ (must|differs)"):
            mo.verify(index, other, queries, sample=sample)


RANKED = r"^verify: the answers of query '\d+' must be 3 different rows, ordered by score, then by row, and are not\. "
CUT = r"^verify: the answers of query '\d+' must have the ranks 1 to 3, each once; got \d from \d to \d\. "


def test_changed_order(index, queries, results):
    def swap(ranks):
        ranks[0], ranks[2] = ranks[2], ranks[0]

    with pytest.raises(ExactnessError, match=RANKED):
        mo.verify(index, changed(results, "rank", swap), queries, sample=0)


@pytest.mark.parametrize("rows", [[0, 1], [0, 1, 2, 2], [0, 0, 2]])
def test_answers_lost_or_doubled(index, queries, results, rows):
    table = results.table.take([*rows, *range(3, results.table.num_rows)])
    with pytest.raises(ExactnessError, match=CUT):
        mo.verify(index, Results(table, results.signature), queries, sample=0)


BRUTE = r"^verify: the answers of query '\d+' differ from those of a brute-force search\. The results were altered"


def test_changed_ties(index, queries, results):
    one = rf"{BRUTE}|^verify: n_ties of query '\d+' and row \d+ must be \d+; got \d+\. The results were altered"
    with pytest.raises(ExactnessError, match=one):
        mo.verify(index, changed(results, "n_ties", lambda ties: ties.__setitem__(5, ties[5] + 1)), queries)


def test_one_row_listed_twice_is_found_without_a_search(index, queries, results):
    twice = results.table.take([0, 1, 1, *range(3, results.table.num_rows)])
    place = twice.column_names.index("rank")
    twice = twice.set_column(place, "rank", results.table["rank"])
    with pytest.raises(ExactnessError, match=RANKED):
        mo.verify(index, Results(twice, results.signature), queries, sample=0)


def test_ties_of_the_last_score_are_no_fewer_than_the_rows_of_its_reports(index, queries, results):
    scores = results.table["score"].to_pylist()[:K]

    def none(ties):
        ties[:K] = [0 if score == scores[-1] else n for score, n in zip(scores, ties, strict=False)]

    with pytest.raises(ExactnessError, match=r"^verify: n_ties of query '\d+' and row \d+ must be \d+; got 0\. "):
        mo.verify(index, changed(results, "n_ties", none), queries, sample=0)


def test_rows_of_a_listed_text_tie_whether_they_are_listed_or_not(tmp_path):
    """Of three rows of one text two are listed: three tie, which is known without a search."""
    given = mo.build_index(["small effusion", "clear", "small effusion", "small effusion"], tmp_path / "I")
    asked = mo.reports(["small effusion"]).load()
    found = mo.retrieve(given, asked, "bleu", k=2)
    assert found.table["n_ties"].to_pylist() == [3, 3]
    assert mo.verify(given, found, asked, sample=0)["pairs"] == 2
    fewer = changed(found, "n_ties", lambda ties: ties.__setitem__(slice(None), [2, 2]))
    with pytest.raises(ExactnessError, match=r"^verify: n_ties of query '\d+' and row \d+ must be 3; got 2"):
        mo.verify(given, fewer, asked, sample=0)


def test_ties_above_the_last_score_are_counted_without_a_search(index, queries, results):
    """All rows with a score above the last listed one are listed, in whatever query."""
    table = results.table.to_pydict()
    found = 0
    for line, (rank, score) in enumerate(zip(table["rank"], table["score"], strict=True)):
        if score != table["score"][line + K - rank]:
            found += 1
            other = changed(results, "n_ties", lambda ties: ties.__setitem__(line, ties[line] + 1))  # noqa: B023
            with pytest.raises(
                ExactnessError, match=r"^verify: n_ties of query '\d+' and row \d+ must be \d+; got \d+"
            ):
                mo.verify(index, other, queries, sample=0)
    assert found > 3


def test_fallback_invented(index, queries, results):
    match = r"^verify: fallback of query '\d+' and row \d+ must be False; got True\. The results were altered"
    with pytest.raises(ExactnessError, match=match):
        mo.verify(index, changed(results, "fallback", lambda flags: flags.__setitem__(1, True)), queries, sample=0)


def test_best_answer_left_out(index, queries, results):
    """Every listed pair is right, but a better one is not listed."""
    wide = mo.retrieve(index, queries, results.signature["metric"], k=K + 1).table
    lines = wide.to_pylist()
    # Where the best is alone with its score, no count of ties tells that it was there.
    lost = {line["query_id"] for line in lines if line["rank"] == 1 == line["n_ties"]}
    lost -= {line["query_id"] for line in lines if line["rank"] == 2 and line["score"] == 0}  # a fall-back would lead
    assert lost
    keep = [i for i, line in enumerate(lines) if line["rank"] != (1 if line["query_id"] in lost else K + 1)]
    table = wide.take(keep)
    table = table.set_column(1, "rank", pa.array([*range(1, K + 1)] * 12))
    with pytest.raises(ExactnessError, match=BRUTE):
        mo.verify(index, Results(table, results.signature), queries)


@pytest.mark.parametrize("column", ["candidate_id", "text"])
def test_changed_candidate(index, queries, results, column):
    other = changed(results, column, lambda values: values.__setitem__(4, "Other"))
    match = rf"^verify: {column} of query '\d+' and row \d+ differs from that of the index\. The results were al"
    with pytest.raises(ExactnessError, match=match):
        mo.verify(index, other, queries, sample=0)


def test_results_without_text(index, queries, results):
    mo.verify(index, Results(results.table.drop_columns(["text"]), results.signature), queries)


def test_other_index(index, queries, results, corpus, tmp_path):
    other = mo.build_index(corpus["test"], tmp_path / "I")
    match = (
        rf"^verify: results must belong to this index, fingerprint {other.fingerprint[:12]}; got "
        rf"{index.fingerprint[:12]}\. Pass the index that they were made with\.$"
    )
    with pytest.raises(InputError, match=match):
        mo.verify(other, results, queries)


def test_altered_index(index, queries, results, tmp_path):
    folder = shutil.copytree(index.folder, tmp_path / "I")
    read = {"bleu-2": "ngrams/features", "rouge-l": "words/features", "radgraph": "radgraph/postings"}
    path = folder / f"{read[results.signature['metric']]}.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    name = path.relative_to(folder)
    with pytest.raises(IndexFormatError, match=rf"^verify: {name} in .* does not have its checksum"):
        mo.verify(folder, results, queries)


def test_other_queries(index, results, corpus):
    match = (
        r"^verify: results must be of these queries; got 12 query ids that are not among them "
        r"\('\d+', '\d+', '\d+'\)\. Pass the queries that they were made with\.$"
    )
    with pytest.raises(InputError, match=match):
        mo.verify(index, results, mo.reports(corpus["train"], radgraph=corpus["train_graphs"]))


def test_queries_with_other_texts(index, queries, results):
    turned = inputs.changed(queries, "radgraph", of_row=queries.attached["radgraph"].of_row[::-1].copy())
    turned = replace(turned, texts=queries.texts[::-1])
    match = (
        r"^verify: results must be of these queries, SHA-256 \w{12}; got \w{12}: other texts under the same ids\. Pass"
    )
    with pytest.raises(InputError, match=match):
        mo.verify(index, results, turned)
    before = {name: value for name, value in results.signature.items() if name != "references"}  # of version 0.1
    with pytest.raises(ExactnessError, match=SCORE):
        mo.verify(index, Results(results.table, before), turned)


@pytest.mark.parametrize("kept", [0, 1, 11])
def test_lines_lost_at_the_end(index, queries, results, kept):
    match = rf"^verify: results must answer every query; got none for {12 - kept} of 12 \('\d+'.*\)\. The file was cut,"
    with pytest.raises(InputError, match=match):
        mo.verify(index, Results(results.table.slice(0, kept * K), results.signature), queries)


@pytest.mark.parametrize("k", [None, 0, "3", True, 2.0])
def test_signature_with_another_k(index, queries, results, k):
    match = rf"^verify: k in the signature must be an int of at least 1; got {k!r}\. Retrieve again\.$"
    with pytest.raises(InputError, match=match):
        mo.verify(index, Results(results.table, {**results.signature, "k": k}), queries)


@pytest.mark.parametrize("baseline", [None, "random"])
def test_signature_with_a_huge_k_takes_no_memory(index, queries, results, baseline):
    signature = {**results.signature, "k": 10**15, "baseline": baseline}  # an array of so many fits no address space
    with pytest.raises(
        ExactnessError, match=r"^verify: the answers of query '\d+' must have the ranks 1 to 10{15}, each once; got "
    ):
        mo.verify(index, Results(results.table, signature), queries)


@pytest.mark.parametrize("baseline", ["x", "", 0, ["random"]])
def test_signature_with_another_baseline(index, queries, results, baseline):
    signature = {**results.signature, "baseline": baseline}
    with pytest.raises(
        InputError, match=r"^verify: baseline in the signature must be one of random, most-frequent, id"
    ):
        mo.verify(index, Results(results.table, signature), queries)


def test_signature_with_another_metric(index, queries, results):
    match = r"^verify: metric must be one of .*; got 'bluu'\. Did you mean 'bleu'\?$"
    with pytest.raises(InputError, match=match):
        mo.verify(index, Results(results.table, {**results.signature, "metric": "bluu"}), queries)
    with pytest.raises(ExactnessError, match=SCORE):
        mo.verify(index, Results(results.table, {**results.signature, "metric": "bleu-3"}), queries)


# Every column, of oracles and baselines, under every family of metrics

FAMILIES = [
    "bleu-2", "bleu-4:coco", "rouge-l", "radgraph", "radgraph:rg_er", "chexbert", "chexbert:labels", "crg", "bertscore",
    "bertscore:recall", "radcliq", "radcliq:preprint",
]  # fmt: skip
KINDS = ["oracle", "random", "most-frequent", "identity"]


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory, fake_encoder):
    """Return an index of every representation and five queries, the last of which shares no entity with a report."""
    folder = tmp_path_factory.mktemp("whole")

    def files(side):
        names = {"radgraph": "graphs", "chexbert": "embeddings", "chexbert_labels": "labels"}
        return {option: corpus[f"{side}_{name}"] for option, name in names.items()} | {"uncertain": "positive"}

    index = mo.build_index(mo.reports(corpus["train"], encoder="fake", **files("train")), folder / "I")
    batch = mo.reports(corpus["test"], **files("test")).load()
    return index, batch.take(np.arange(5)[::-1])


def made(whole, metric, kind):
    index, batch = whole
    if kind == "oracle":
        return mo.retrieve(index, batch, metric, k=K)
    options = {"draws": 4, "seed": 3} if kind == "random" else {}
    return mo.baseline(index, batch, kind, metric, **options)


def other(value):
    """Return another value of the same type, as near as there is."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return math.nextafter(value, 2)
    return value + (1 if isinstance(value, int) else "x")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", FAMILIES)
def test_every_altered_value_is_found(whole, metric, kind):
    index, batch = whole
    results = made(whole, metric, kind)
    calls = []
    n = len(batch.ids) if kind == "oracle" else 0
    found = mo.verify(index, results, batch, progress=lambda *call: calls.append(call))
    assert found == {"pairs": results.table.num_rows, "queries": n}
    assert calls == sorted(calls)
    assert calls[0][:2] == ("pairs", 0)
    assert calls[-1][1] == calls[-1][2]
    rng = np.random.default_rng(FAMILIES.index(metric))
    for column in results.table.column_names:
        line = int(rng.integers(results.table.num_rows))
        altered = changed(results, column, lambda values: values.__setitem__(line, other(values[line])))  # noqa: B023
        errors = (ExactnessError, InputError) if column == "query_id" else ExactnessError
        with pytest.raises(errors, match=r"^verify: ") as caught:
            mo.verify(index, altered, batch, sample=100 if column == "n_ties" else 0)
        if isinstance(caught.value, ExactnessError):
            assert re.search(r"query '\d+'", str(caught.value))
        assert not any(text in str(caught.value) for text in (*batch.texts, *index.reports["text"].to_pylist()))
    for column in results.components[:1]:
        with pytest.raises(
            ExactnessError, match=r"^verify: the components of query '\d+' and row -?\d+ must be .*; got "
        ):
            mo.verify(index, Results(results.table.drop_columns([column]), results.signature), batch, sample=0)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_one_of_equal_queries_is_compared(tmp_path, place):
    """Another row of the tie has the same score: only a search says that it is not the first."""
    index = mo.build_index(["no effusion", "edema", "no effusion now", "no effusion"], tmp_path / "I", metrics="bleu")
    results = mo.retrieve(index, {"a": "no effusion", "b": "no effusion", "c": "no effusion"}, "bleu")
    assert results.table["row"].to_pylist() == [0, 0, 0]
    assert mo.verify(index, results, dict.fromkeys("abc", "no effusion")) == {"pairs": 3, "queries": 3}
    changes = {"row": 3, "candidate_id": index.reports["study_id"][3].as_py()}
    altered = results
    for column, value in changes.items():
        altered = changed(altered, column, lambda values, value=value: values.__setitem__(place, value))
    with pytest.raises(
        ExactnessError, match=rf"^verify: the answers of query '{'abc'[place]}' differ from those of a brute"
    ):
        mo.verify(index, altered, dict.fromkeys("abc", "no effusion"))


def test_texts_in_a_column_of_numbers_are_not_shown(whole):
    index, batch = whole
    results = made(whole, "bleu-2", "oracle")
    for column in ("score", "precision_1"):
        place = results.table.column_names.index(column)
        table = results.table.set_column(place, column, results.table["text"])
        with pytest.raises(ExactnessError, match=r"must be \d\.\d+; got a str\. The results were altered"):
            mo.verify(index, Results(table, results.signature), batch)


def test_rows_of_one_baseline_under_the_name_of_another(whole):
    index, batch = whole
    drawn = mo.baseline(index, batch, "random", "bleu", draws=1)
    match = r"^verify: the rows of query '\d+' differ from those of baseline 'most-frequent'\. The results were alt"
    with pytest.raises(ExactnessError, match=match):
        mo.verify(index, Results(drawn.table, {**drawn.signature, "baseline": "most-frequent"}), batch)
    other = mo.baseline(index, batch, "random", "bleu", draws=1, seed=1)
    match = r"^verify: the rows of query '\d+' differ from those of baseline 'random'\. The results were altered"
    with pytest.raises(ExactnessError, match=match):
        mo.verify(index, Results(drawn.table, {**drawn.signature, "seed": 1}), batch)
    assert mo.verify(index, other, batch)["pairs"] == 5
    match = r"^verify: seed in the signature must be an int of at least 0; got 'x'\. Make the baseline again\.$"
    with pytest.raises(InputError, match=match):
        mo.verify(index, Results(drawn.table, {**drawn.signature, "seed": "x"}), batch)


def test_draws_are_checked_whatever_the_order_of_the_queries(whole):
    index, batch = whole
    drawn = made(whole, "bleu-2", "random")
    assert mo.verify(index, drawn, batch.take(np.array([3, 0, 4, 1, 2])))["pairs"] == 20


# Token states


def test_states_are_made_once_for_all_queries(whole, monkeypatch):
    index, batch = whole
    results = made(whole, "bertscore", "oracle")
    encode, calls = bertscore.encode, []
    monkeypatch.setattr(bertscore, "encode", lambda *call, **named: (calls.append(call), encode(*call, **named))[1])
    assert mo.verify(index, results, batch)["queries"] == 5
    assert len(calls) == 1


@pytest.mark.parametrize("metric", ["bertscore", "radcliq"])
def test_other_states_are_not_the_fault_of_the_file(whole, monkeypatch, fake_encoder, metric):
    index, batch = whole
    results = made(whole, metric, "oracle")
    assert results.signature["environment"] == fake_encoder.environment
    encode = bertscore.encode

    def elsewhere(encoder, tokens, storage):
        states = encode(encoder, tokens, storage)
        states[7] = np.nextafter(states[7], 1)
        return states

    monkeypatch.setattr(bertscore, "encode", elsewhere)
    begin = (
        r"^verify: token states of the queries must be those that the results were made of, SHA-256 \w{12}; got \w{12} "
    )
    with pytest.raises(
        BackendError, match=begin + r"\(in the same environment\)\. The file is not to blame: verify it"
    ):
        mo.verify(index, results, batch)
    monkeypatch.setattr(fake_encoder, "environment", {"device": "cuda", "torch": "3"})
    with pytest.raises(
        BackendError, match=begin + r"\(device 'cpu' then, 'cuda' now; torch 'none' then, '3' now\)\. The"
    ):
        mo.verify(index, results, batch)


def test_order_of_the_queries_does_not_change_what_is_known_of_their_states(whole):
    index, batch = whole
    results = made(whole, "bertscore", "oracle")
    assert mo.verify(index, results, batch.take(np.array([4, 2, 0, 1, 3])))["queries"] == 5


# The search by brute force


@pytest.mark.parametrize(
    "metric", ["bertscore", "bertscore:precision", "bertscore:recall", "chexbert", "radcliq", "crg"]
)
def test_brute_force_is_the_plain_search(whole, metric):
    """Rows, scores to the last bit and ties are those of a sort of all plain scores."""
    index, batch = whole
    record = get_metric(metric)
    pairs = Pairs.of(index, record, batch, {})
    n_documents = len(pairs.row_ptr) - 1
    chosen = sorted(set(pairs.which.tolist()))[1:]
    score = load_reference(record)
    plain = {(q, unit): score(*pairs.items(q, unit))[0] for q in chosen for unit in range(n_documents)}
    told = []
    for k in (1, 3, len(pairs.row_id)):
        found = brute_force.answers_of(pairs, chosen, k, told.append)
        for place, q in enumerate(chosen):
            rows = sorted(
                (-plain[q, unit] if record.higher_is_better else plain[q, unit], int(row))
                for unit in range(n_documents)
                for row in pairs.row_id[pairs.row_ptr[unit] : pairs.row_ptr[unit + 1]]
            )
            assert found.rows[place].tolist() == [row for _, row in rows[:k]]
            assert [abs(score) for score in found.scores[place]] == [abs(score) for score, _ in rows[:k]]
            assert found.ties[place].tolist() == [sum(s == score for s, _ in rows) for score, _ in rows[:k]]
        if k == 1 and metric != "crg":  # but for a few, products decide
            assert 0 < len(pairs.plain_scores) < len(plain) / 4
    assert sum(told) == 3 * brute_force.n_pairs(pairs, chosen)


def test_brute_force_of_reports_without_words(tmp_path, fake_encoder):
    """The special tokens of a report without words are near those of a query, but its score is 0."""
    reports = mo.Reports(list("abc"), ["", "heart normal", "no effusion"], opened_encoder=load_encoder("fake"))
    index = build_index(reports, tmp_path / "I", metrics=["bertscore"])
    metric = get_metric("bertscore:recall")
    pairs = Pairs.of(index, metric, mo.Reports.from_texts([f"word{i}" for i in range(20)]), {})
    for q in set(pairs.which.tolist()):
        scores = [load_reference(metric)(*pairs.items(q, unit))[0] for unit in range(3)]
        assert brute_force.answers_of(pairs, [q], 1, lambda n: None).scores[0, 0] == max(scores)


def test_candidates_within_the_error_of_products_are_scored(whole, monkeypatch):
    index, batch = whole
    pairs = Pairs.of(index, get_metric("chexbert"), batch, {})
    approximate = brute_force._scores

    def rough(*arguments):
        scores, _ = approximate(*arguments)
        return scores + np.random.default_rng(0).uniform(-1.0, 1.0, scores.shape), 1.0

    chosen = np.unique(pairs.which).tolist()
    found = brute_force.answers_of(pairs, chosen, 2, lambda n: None)[:3]
    monkeypatch.setattr(brute_force, "_scores", rough)
    for one, other in zip(brute_force.answers_of(pairs, chosen, 2, lambda n: None)[:3], found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_error_of_products_is_bounded(whole):
    """Scores of products lie within their bound of the plain ones; the bound is far below what is searched for."""
    index, batch = whole
    for metric in ("bertscore", "bertscore:recall", "chexbert", "radcliq"):
        record = get_metric(metric)
        pairs = Pairs.of(index, record, batch, {})
        approximate, error = brute_force._sum_of_scores(
            record, brute_force._scores_by_metric(pairs, [0, 2], lambda n: None)
        )
        assert 0 < error < 1e-10
        for place, q in enumerate((0, 2)):
            for unit in range(0, approximate.shape[1], 3):
                right = pairs.plain(q, unit)[0]
                assert abs(approximate[place, unit] - right) <= error


def test_errors_of_the_self_check_name_query_and_row_and_no_text(index, queries, monkeypatch):
    cpu = import_module("metric_oracle.kernels.bleu.cpu")
    search = cpu.Backend.search

    def wrong(self, corpus, batch, queries, k, answers, workspace):
        search(self, corpus, batch, queries, k, answers, workspace)
        answers.scores[queries] += 0.25

    monkeypatch.setattr(cpu.Backend, "search", wrong)
    match = (
        r"^retrieve: bleu-2 of row \d+ must be \(.*\) for query '\d+', as the plain .*; got \(.*\)\. This is a defect"
    )
    with pytest.raises(ExactnessError, match=match) as caught:
        mo.retrieve(index, queries, "bleu", k=2)
    assert not any(text in str(caught.value) for text in (*queries.texts, *index.reports["text"].to_pylist()))


def test_a_difference_ends_the_command_with_code_1(oracle, corpus, index, queries, tmp_path):
    results = mo.retrieve(index, queries, "bleu", k=K)
    changed(results, "score", lambda scores: scores.__setitem__(7, 0.125)).write(tmp_path / "r.parquet")
    code, out, err = oracle("verify", index.folder, tmp_path / "r.parquet", corpus["test"])
    assert (code, out) == (1, "")
    assert re.match(
        r"error: verify: the score of query '\d+' and row \d+ must be .*; got 0\.125\. The results",
        err.splitlines()[-1],
    )
