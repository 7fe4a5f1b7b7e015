import math
import resource
import shutil

import pyarrow as pa
import pytest

from metric_oracle import api
from metric_oracle.errors import ExactnessError, IndexFormatError, InputError
from metric_oracle.retrieval.results import Results
from support import inputs

K = 3


@pytest.fixture(scope="module")
def index(corpus, tmp_path_factory):
    return api.build_index(corpus["train"], tmp_path_factory.mktemp("index") / "I", radgraph=corpus["train_graphs"])


@pytest.fixture(scope="module")
def queries(corpus):
    return api.load_queries(corpus["test"], radgraph=corpus["test_graphs"])


@pytest.fixture(scope="module", params=["bleu", "rouge-l", "radgraph"])
def results(index, queries, request):
    return api.retrieve(index, queries, request.param, k=K)


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
    assert api.verify(index, tmp_path / f"r{ending}", queries) == {"pairs": 12 * K, "queries": 12}


@pytest.mark.parametrize(("sample", "n"), [(0, 0), (5, 5), (10**9, 12)])
def test_sample(index, queries, results, sample, n):
    assert api.verify(index, results, queries, sample=sample)["queries"] == n


def test_order_of_lines_does_not_count(index, queries, results):
    table = results.table.take(list(range(results.table.num_rows))[::-1])
    api.verify(index, Results(table, results.signature), queries)


@pytest.mark.parametrize("name", ["sample", "seed"])
@pytest.mark.parametrize("value", [-1, True, 1.5, None])
def test_sample_and_seed(index, queries, results, name, value):
    match = rf"^verify: {name} must be an int of at least 0; got {value!r}\. Choose one\.$"
    with pytest.raises(InputError, match=match):
        api.verify(index, results, queries, **{name: value})


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
        api.verify(index, changed(results, "score", lambda scores: scores.__setitem__(7, change(scores[7]))), queries)


@pytest.mark.parametrize("row", [-1, -120, 120, 10**12])
def test_row_outside_the_index(index, queries, results, row):
    with pytest.raises(ExactnessError, match=SCORE):
        api.verify(index, changed(results, "row", lambda rows: rows.__setitem__(4, row)), queries)


@pytest.mark.parametrize("sample", [0, 20])
def test_changed_row(index, queries, results, sample):
    for row in range(0, 120, 13):
        other = changed(results, "row", lambda rows: rows.__setitem__(4, row))  # noqa: B023
        if other.table["row"].equals(results.table["row"]):
            continue
        with pytest.raises(
            ExactnessError, match=SCORE + r"|^verify: candidate_id must be that of the index's row; got an"
        ):
            api.verify(index, other, queries, sample=sample)


RANKED = (
    r"^verify: the answers of query '\d+' must be 3, ranked by score, then row; got others\. The results were cut or al"
)


def test_changed_order(index, queries, results):
    def swap(ranks):
        ranks[0], ranks[2] = ranks[2], ranks[0]

    with pytest.raises(ExactnessError, match=RANKED):
        api.verify(index, changed(results, "rank", swap), queries, sample=0)


@pytest.mark.parametrize("rows", [[0, 1], [0, 1, 2, 2], [0, 0, 2]])
def test_answers_lost_or_doubled(index, queries, results, rows):
    table = results.table.take([*rows, *range(3, results.table.num_rows)])
    with pytest.raises(ExactnessError, match=RANKED):
        api.verify(index, Results(table, results.signature), queries, sample=0)


BRUTE = (
    r"^verify: the answers of query '\d+' must be those of a brute-force search; got others\. The results were altered"
)


def test_changed_ties(index, queries, results):
    with pytest.raises(ExactnessError, match=BRUTE):
        api.verify(index, changed(results, "n_ties", lambda ties: ties.__setitem__(5, ties[5] + 1)), queries)


def test_fallback_invented(index, queries, results):
    with pytest.raises(ExactnessError, match=BRUTE):
        api.verify(index, changed(results, "fallback", lambda flags: flags.__setitem__(1, True)), queries)


def test_best_answer_left_out(index, queries, results):
    """Every listed pair is right, but a better one is not listed."""
    wide = api.retrieve(index, queries, results.signature["metric"], k=K + 1).table
    keep = [i for i, rank in enumerate(wide["rank"].to_pylist()) if rank > 1]
    table = wide.take(keep)
    table = table.set_column(1, "rank", pa.array([rank - 1 for rank in table["rank"].to_pylist()]))
    with pytest.raises(ExactnessError, match=BRUTE):
        api.verify(index, Results(table, results.signature), queries)


@pytest.mark.parametrize("column", ["candidate_id", "text"])
def test_changed_candidate(index, queries, results, column):
    other = changed(results, column, lambda values: values.__setitem__(4, "Other"))
    match = (
        rf"^verify: {column} must be that of the index's row; got another at query '\d+', row \d+\. The results were"
    )
    with pytest.raises(ExactnessError, match=match):
        api.verify(index, other, queries, sample=0)


def test_results_without_text(index, queries, results):
    api.verify(index, Results(results.table.drop_columns(["text"]), results.signature), queries)


def test_other_index(index, queries, results, corpus, tmp_path):
    other = api.build_index(corpus["test"], tmp_path / "I")
    match = (
        rf"^verify: results must belong to this index, fingerprint {other.fingerprint[:12]}; got "
        rf"{index.fingerprint[:12]}\. Pass the index that they were made with\.$"
    )
    with pytest.raises(InputError, match=match):
        api.verify(other, results, queries)


def test_altered_index(index, queries, results, tmp_path):
    folder = shutil.copytree(index.folder, tmp_path / "I")
    path = folder / "ngrams/features.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(IndexFormatError, match=r"^open_index: ngrams/features.arrow must have the checksum"):
        api.verify(folder, results, queries)


def test_other_queries(index, results, corpus):
    match = (
        r"^verify: results must be of these queries; got 12 query ids that are not among them "
        r"\('\d+', '\d+', '\d+'\)\. Pass the queries that they were made with\.$"
    )
    with pytest.raises(InputError, match=match):
        api.verify(index, results, corpus["train"], radgraph=corpus["train_graphs"])


def test_queries_with_other_texts(index, queries, results):
    from dataclasses import replace

    turned = inputs.changed(queries, "radgraph", of_row=queries.attached["radgraph"].of_row[::-1].copy())
    turned = replace(turned, texts=queries.texts[::-1])
    with pytest.raises(ExactnessError, match=SCORE):
        api.verify(index, results, turned)


@pytest.mark.parametrize("kept", [0, 1, 11])
def test_lines_lost_at_the_end(index, queries, results, kept):
    match = rf"^verify: results must answer every query; got none for {12 - kept} of 12 \('\d+'.*\)\. The file was cut,"
    with pytest.raises(InputError, match=match):
        api.verify(index, Results(results.table.slice(0, kept * K), results.signature), queries)


@pytest.mark.parametrize("k", [None, 0, "3", True, 2.0])
def test_signature_with_another_k(index, queries, results, k):
    match = rf"^verify: k in the signature must be an int of at least 1; got {k!r}\. Retrieve again\.$"
    with pytest.raises(InputError, match=match):
        api.verify(index, Results(results.table, {**results.signature, "k": k}), queries)


@pytest.mark.parametrize("baseline", [None, "random"])
def test_signature_with_a_huge_k_takes_no_memory(index, queries, results, baseline):
    signature = {**results.signature, "k": 10**9, "baseline": baseline}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        ExactnessError, match=r"^verify: the answers of query '\d+' must (be|have the ranks 1 to) 10{9}"
    ):
        api.verify(index, Results(results.table, signature), queries)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


@pytest.mark.parametrize("baseline", ["x", "", 0, ["random"]])
def test_signature_with_another_baseline(index, queries, results, baseline):
    signature = {**results.signature, "baseline": baseline}
    with pytest.raises(
        InputError, match=r"^verify: baseline in the signature must be one of random, most-frequent, id"
    ):
        api.verify(index, Results(results.table, signature), queries)


def test_signature_with_another_metric(index, queries, results):
    match = r"^verify: metric must be one of bleu, .*; got 'bluu'\. Did you mean 'bleu'\?$"
    with pytest.raises(InputError, match=match):
        api.verify(index, Results(results.table, {**results.signature, "metric": "bluu"}), queries)
    with pytest.raises(ExactnessError, match=SCORE):
        api.verify(index, Results(results.table, {**results.signature, "metric": "bleu-3"}), queries)
