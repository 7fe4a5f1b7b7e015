"""Check a result file: every pair scored again by the reference, a sample of queries searched by brute force."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import ExactnessError, InputError
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.baselines import KINDS
from metric_oracle.retrieval.checks import check_queries
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.composite.weights import metric_of
from metric_oracle.retrieval.kernels import load_reference
from metric_oracle.retrieval.results import Results
from metric_oracle.retrieval.search import retrieve

# Settings of a search by their names in the signature.
_SETTINGS = {"idf": "idf", "rescale": "rescaled", "prevalence": "prevalence"}
_ANSWER = ("rank", "row", "score", "n_ties", "fallback")


def verify(index: Index, results: Results, queries: Inputs, *, sample: int = 20, seed: int = 0) -> dict[str, int]:
    """Score all pairs of a result again and search `sample` of its queries with the reference backend.

    Of a baseline's result, which claims no search, the pairs are scored again, and the ids, texts and ranks compared.
    The candidate of "identity" is the query itself.

    Raises
    ------
    InputError
        If the result belongs to another index, or to other queries.
    ExactnessError
        If a score, a row, a tie count or the order differs.
    """
    signature = results.signature
    if signature.get("index") != index.fingerprint:
        msg = (
            f"verify: results must belong to this index, fingerprint {index.fingerprint[:12]}; got "
            f"{str(signature.get('index'))[:12]}. Pass the index that they were made with."
        )
        raise InputError(msg)
    record = get_metric(metric_of(signature, "verify"), "verify")
    k = signature.get("k")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        msg = f"verify: k in the signature must be an int of at least 1; got {k!r}. Retrieve again."
        raise InputError(msg)
    baseline = signature.get("baseline")
    if baseline is not None and baseline not in tuple(KINDS):
        msg = f"verify: baseline in the signature must be one of {', '.join(KINDS)}; got {baseline!r}. Retrieve again."
        raise InputError(msg)
    for name, value in (("sample", sample), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            msg = f"verify: {name} must be an int of at least 0; got {value!r}. Choose one."
            raise InputError(msg)
    position = {query: i for i, query in enumerate(queries.ids)}
    columns = {name: results.table[name].to_pylist() for name in ("query_id", *_ANSWER)}
    answers: dict[str, list[tuple]] = {}
    for query, *answer in zip(*columns.values(), strict=True):
        answers.setdefault(query, []).append(tuple(answer))
    unknown = sorted(answers.keys() - position.keys())
    if unknown:
        msg = (
            f"verify: results must be of these queries; got {len(unknown)} query ids that are not among them "
            f"({shown_names(unknown[:3])}). Pass the queries that they were made with."
        )
        raise InputError(msg)
    lacking = [query for query in queries.ids if query not in answers]
    if lacking:
        msg = (
            f"verify: results must answer every query; got none for {len(lacking)} of {len(queries.ids)} "
            f"({shown_names(lacking[:3])}). The file was cut, or made with other queries: retrieve again."
        )
        raise InputError(msg)
    check_queries(queries, record, index)

    representation = representation_of(index, record)
    unit_of_row = representation.unit_of_row
    settings = {name: signature[_SETTINGS[name]] for name in record.settings if _SETTINGS[name] in signature}
    encoded = representation.encode(queries, **settings)
    score = load_reference(record)
    for query, row, value in zip(columns["query_id"], columns["row"], columns["score"], strict=True):
        unit = int(unit_of_row[row]) if 0 <= row < len(unit_of_row) else -1
        asked = encoded.item(int(encoded.which[position[query]]))
        again = None
        if baseline == "identity" and row == -1:
            again = score(encoded.own(int(encoded.which[position[query]])), asked)[0]
        elif unit >= 0:
            again = score(representation.candidate(unit, encoded), asked)[0]
        if again != value:
            msg = (
                f"verify: the score of query {shown_names([query])} and row {row} must be {again!r}; got {value!r}. "
                "The results were altered, or are of another version: retrieve again."
            )
            raise ExactnessError(msg)
    rows = pa.array(columns["row"], pa.int64())
    of_query = {"study_id": queries.ids, "text": queries.texts}
    for name, column in (("candidate_id", "study_id"), ("text", "text")):
        if name in results.table.column_names:
            if baseline == "identity":
                right = pa.array(
                    [of_query[column][position[query]] for query in columns["query_id"]], pa.large_string()
                )
            else:
                right = index.reports[column].take(rows)
            wrong = pc.invert(pc.equal(results.table[name].cast(pa.large_string()), right))
            place = pc.index(wrong, True).as_py()
            if place >= 0:
                msg = (
                    f"verify: {name} must be that of the index's row; got another at query "
                    f"{shown_names([columns['query_id'][place]])}, row {columns['row'][place]}. "
                    "The results were altered: retrieve again."
                )
                raise ExactnessError(msg)
    for query, listed in answers.items():
        listed.sort()
        if baseline is not None:
            if len(listed) != k or [rank for rank, *_ in listed] != list(range(1, k + 1)):
                msg = (
                    f"verify: the answers of query {shown_names([query])} must have the ranks 1 to {k}; got others. "
                    "The results were cut or altered: make them again."
                )
                raise ExactnessError(msg)
        elif not _is_ranked(listed, k, record.higher_is_better):
            msg = (
                f"verify: the answers of query {shown_names([query])} must be {k}, ranked by score, then row; got "
                "others. The results were cut or altered: retrieve again."
            )
            raise ExactnessError(msg)

    if baseline is not None:
        return {"pairs": len(columns["row"]), "queries": 0}
    if settings.get("idf") == "tests":  # the weights are those of all tests, not of a sample
        corpus = representation.corpus(record, encoded)
        states = corpus.parts["bertscore"] if record.terms else corpus
        settings["idf"] = states.weight_of_id
    chosen = np.sort(np.random.default_rng(seed).permutation(len(queries.ids))[:sample])
    if len(chosen):
        table = retrieve(index, queries.take(chosen), record, k=k, backend="reference", text=False, **settings).table
        expected = list(zip(*(table[name].to_pylist() for name in _ANSWER), strict=True))
        for n, query in enumerate(queries.ids[i] for i in chosen):
            if answers[query] != expected[n * k : (n + 1) * k]:
                msg = (
                    f"verify: the answers of query {shown_names([query])} must be those of a brute-force search; got "
                    "others. The results were altered, or are of another version: retrieve again."
                )
                raise ExactnessError(msg)
    return {"pairs": len(columns["row"]), "queries": len(chosen)}


def _is_ranked(answers: list[tuple], k: int, higher_is_better: bool) -> bool:
    """Tell whether the answers of one query have ranks 1 to k, best score first, then row; a fallback leads."""
    ranks, rows, scores, _, fallback = zip(*answers, strict=True)
    order = [(-score if higher_is_better else score, row) for score, row in zip(scores, rows, strict=True)]
    order = order[1:] if fallback[0] else order
    return len(ranks) == k and ranks == tuple(range(1, k + 1)) and len(set(rows)) == k and order == sorted(order)
