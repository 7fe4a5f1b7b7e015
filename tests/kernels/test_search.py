"""Every metric of the registry, the fast search against the plain scorer: one body, a row of parameters each.

The corpus is small and full of what breaks searches: tiny vocabularies, repeated reports, equal token sequences and
equal graphs behind different texts, empty and one-token reports, words that only one side knows, graphs without
entities, vectors that differ in length only, all-blank labels, and rows without any graph, embedding or labels. Token
states come from the stand-in of `conftest.py`, whose states repeat as the words do.
"""

import csv
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numba import config

import metric_oracle as mo
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Results
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.ngrams import tokenize_rouge
from metric_oracle.indexes.shard_build import SharedInputs, Slice, build_set
from metric_oracle.kernels.sum.score import composite
from metric_oracle.metrics import COMPOSABLE, METRICS, SEARCHED, get_metric
from metric_oracle.metrics import composite as composite_of
from metric_oracle.records import Metric
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.kernels import arrays_of, home, load_kernel, load_reference
from metric_oracle.retrieval.limit import Limit
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import plan, retrieve
from metric_oracle.retrieval.search import Search
from metric_oracle.sources.attaching import attach_sources
from metric_oracle.sources.token_states import load_encoder
from metric_oracle.synthetic.corpus import synthesize
from support import write_entities, write_partial, write_sentences, write_srr

COLUMNS = ("row", "score", "n_ties", "fallback")
N_CORPUS, N_QUERIES = 187, 143
FREQUENT = "w0 w1 ."  # more frequent than any other report: the fallback
N_FREQUENT = 25
BARE_EVERY = 10  # corpus rows without graph, embedding and labels
WIDTH = 19


@dataclass(frozen=True)
class Item:
    """One report with everything that a metric may read; None where it has none."""

    text: str
    graph: dict | None
    vector: np.ndarray | None
    labels: tuple[int, ...] | None


# ---- made-up reports -------------------------------------------------------------------------------------------------


def make_text(rng: random.Random, words: list[str]) -> str:
    return " ".join(rng.choices(words, k=rng.choice((0, 1, 1, 2, 3, 4, 5, 7, 12, 30))))


def make_graph(rng: random.Random, tokens: list[str]) -> dict:
    size = rng.choice((0, 1, 1, 2, 3, 5, 9))
    relations = [
        [[rng.choice(("modify", "located_at")), str(rng.randrange(size))] for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        for _ in range(size)
    ]
    return {
        "entities": {
            str(i): {
                "tokens": rng.choice(tokens),
                "label": rng.choice(("ANAT-DP", "OBS-DP", "OBS-DA")),
                "relations": relations[i],
            }
            for i in range(size)
        }
    }


def make_items(rng: random.Random, n: int, known: str, pool: list[Item], bare_every: int | None) -> list[Item]:
    """Draw reports: new ones, repeated ones, and new pairings of the parts of old ones."""
    words = ["w0", "w1", "new", "stable", f"only-{known}", "."]
    tokens = ["a", "A", "b", "c d", f"only-{known}"]
    gold = [{"entities": report.graph["entities"]} for report in synthesize(60, seed=5)]
    noise = np.random.default_rng(rng.randrange(2**32))
    items: list[Item] = []
    for i in range(n):
        old = rng.choice(pool) if pool else None
        if old is not None and rng.random() < 0.3:
            items.append(old)
            continue
        text = old.text + rng.choice(("", " ")) if old is not None and rng.random() < 0.2 else make_text(rng, words)
        vector = noise.standard_normal(WIDTH).astype(np.float32)
        if old is not None and old.vector is not None and rng.random() < 0.5:
            vector = old.vector * np.float32(rng.choice((0.25, 2.0, 3.7, -1.0)))
            if rng.random() < 0.3:
                vector[0] = np.nextafter(vector[0], np.float32(9))
        labels = (*rng.choices(range(4), (12, 1, 1, 1), k=13), rng.randrange(2))
        if rng.random() < 0.1:
            labels = (0,) * 14
        graph = rng.choice(gold) if rng.random() < 0.3 else make_graph(rng, tokens)
        items.append(Item(text, graph, vector, labels))
        if bare_every and i % bare_every == 0:
            items[-1] = Item(text, None, None, None)
        else:
            pool.append(items[-1])
    return items


def store(items: list[Item], folder: Path, prefix: str) -> tuple[Reports, dict[str, object]]:
    """Write the files of a batch and return it as the public functions take it."""
    folder.mkdir(parents=True)
    ids = [f"{prefix}{i}" for i in range(len(items))]
    graphs = {i: item.graph for i, item in zip(ids, items, strict=True) if item.graph is not None}
    (folder / "graphs.json").write_text(json.dumps(graphs), encoding="utf-8")
    vectors = {i: item.vector for i, item in zip(ids, items, strict=True) if item.vector is not None}
    np.savez(folder / "vectors.npz", ids=np.array(list(vectors)), vectors=np.stack(list(vectors.values())))
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["study_id", *LABELS])
        cells = ("", "1", "0", "-1")
        rows.writerows([i, *(cells[c] for c in item.labels)] for i, item in zip(ids, items, strict=True) if item.labels)
    labelled = [(i, item.labels) for i, item in zip(ids, items, strict=True) if item.labels]
    files = {
        "srr_labels": write_srr(folder / "srr.csv", *zip(*labelled, strict=True)),
        "labels": write_partial(folder / "partial.csv", *zip(*labelled, strict=True)),
        "entities": write_entities(folder / "entities.json", *zip(*labelled, strict=True)),
        "sentences": write_sentences(folder / "sentences.json", *zip(*labelled, strict=True)),
        "radgraph": folder / "graphs.json",
        "chexbert": folder / "vectors.npz",
        "embeddings": folder / "vectors.npz",
        "chexbert_labels": folder / "labels.csv",
        "uncertain": "positive",
        "encoder": "fake",
    }
    patients = [f"p{i % 31}" if i % 7 else "" for i in range(len(items))]
    return Reports(ids, [item.text for item in items], "made up", columns={"patient": patients}), files


def index_of(items: list[Item], folder: Path) -> Index:
    reports, files = store(items, folder, "train")
    return build_index(mo.reports(reports, **files), folder / "index")


def inputs_of(items: list[Item], folder: Path, prefix: str = "test") -> Reports:
    reports, files = store(items, folder, prefix)
    return mo.reports(reports, **files).load()


@dataclass(frozen=True)
class World:
    items: list[Item]
    index: Index
    queries: Reports
    folder: Path


pytestmark = pytest.mark.usefixtures("fake_encoder")


@pytest.fixture(scope="module")
def world(tmp_path_factory, fake_encoder) -> World:
    rng = random.Random(20)
    folder = tmp_path_factory.mktemp("search")
    pool: list[Item] = []
    items = make_items(rng, N_CORPUS - N_FREQUENT, "train", pool, BARE_EVERY)
    example = pool[0]
    items += [Item(FREQUENT, example.graph, example.vector, example.labels)] * N_FREQUENT
    rng.shuffle(items)
    items[0] = Item(FREQUENT, None, None, None)  # the fallback must be a row that the metric can score
    asked = make_items(rng, N_QUERIES - 2, "test", list(pool), None)
    asked.append(Item("", {"entities": {}}, pool[1].vector, (0,) * 14))
    asked.append(Item("only-test", make_graph(rng, ["nowhere"]), -pool[2].vector, (0,) * 14))
    return World(items, index_of(items, folder / "corpus"), inputs_of(asked, folder / "queries"), folder)


def scorable(items: list[Item], metric: str | Metric) -> list[int]:
    """Return the rows that a metric can score."""
    known = {"radgraph": "graph", "chexbert": "vector", "embedding": "vector", "labels": "labels", "srr": "labels"}
    known |= {"entities": "labels", "label_table": "labels", "sentences": "labels"}
    parts = [known[kind] for kind in get_metric(metric).representations if kind in known]
    return [row for row, item in enumerate(items) if all(getattr(item, part) is not None for part in parts)]


def asked(queries: Reports, metric: str | Metric) -> Reports:
    """Return the queries that a metric takes: BERTScore refuses those without a token besides the special ones."""
    if "bertscore" not in get_metric(metric).representations:
        return queries
    return queries.take(np.flatnonzero([bool(text.split()) for text in queries.texts]))


def answers(
    index: Index,
    queries: Reports,
    metric: str | Metric,
    k: int,
    backend: str = "cpu",
    threads: int | None = 1,
    **settings: object,
) -> list[list]:
    """Return one list of (row, score, n_ties, fallback) a query; the answer's other columns are checked on the way."""
    options = mo.SearchOptions(k=k, backend=backend, threads=threads, **settings)
    if isinstance(metric, Metric):  # a private type, which `retrieve` refuses
        table = plan(index, metric, options).search(queries).table
    else:
        table = retrieve(index, queries, metric, options=options).table
    assert table["query_id"].to_pylist() == [i for i in queries.ids for _ in range(k)]
    assert table["rank"].to_pylist() == list(range(1, k + 1)) * len(queries.ids)
    assert table["candidate_id"].to_pylist() == [f"train{row}" for row in table["row"].to_pylist()]
    flat = list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))
    return [flat[i : i + k] for i in range(0, len(flat), k)]


def agree_with_other_machines(metric: str, found: list[list]) -> None:
    """Compare answers and bits of scores with those that another machine wrote to ORACLE_ANSWERS, or write them."""
    if not (folder := os.environ.get("ORACLE_ANSWERS")):
        return
    file = Path(folder) / f"{metric}.json"
    exact = [[[row, score.hex(), n_ties, fallback] for row, score, n_ties, fallback in answer] for answer in found]
    if not file.exists():
        file.write_text(json.dumps(exact), encoding="utf-8")
    assert exact == json.loads(file.read_text(encoding="utf-8"))


# ---- the shared body -------------------------------------------------------------------------------------------------

every_metric = pytest.mark.parametrize("metric", SEARCHED)
# One of the metrics that differ in options alone.
OF_A_KIND = {(METRICS[m].kernel, METRICS[m].representations): m for m in SEARCHED}.values()
INTERPRETED = bool(os.environ.get("TRITON_INTERPRET"))
ON_GPU = [
    m for m, record in METRICS.items()
    if m != "radcliq:preprint"  # it has no BERTScore
    and record.is_searched
    and find_spec(f"{home(record)}.cuda")
]  # fmt: skip
every_backend = pytest.mark.parametrize(
    ("metric", "backend"),
    [
        *((metric, "cpu") for metric in SEARCHED),
        *(pytest.param(metric, "cuda", marks=pytest.mark.gpu) for metric in ON_GPU),
    ],
)


backend_of_a_kind = pytest.mark.parametrize(
    ("metric", "backend"),
    [
        *((metric, "cpu") for metric in OF_A_KIND),
        *(pytest.param(metric, "cuda", marks=pytest.mark.gpu) for metric in ON_GPU),
    ],
)


AT_ANY_K = [(metric, "cpu") for metric in ("bleu-2", "radgraph", "chexbert", "radcliq")]


def test_the_corpus_is_as_awkward_as_promised(world):
    texts = Counter(item.text for item in world.items)
    lengths = {len(item.text.split()) for item in world.items}
    assert {0, 1} <= lengths
    assert len(texts) < 0.9 * N_CORPUS
    assert texts.most_common(2)[0][0] == FREQUENT
    assert texts.most_common(2)[1][1] < texts[FREQUENT]
    assert len({tuple(text.split()) for text in texts}) < len(texts)
    assert N_CORPUS * 0.8 < len(scorable(world.items, "radgraph")) < N_CORPUS
    assert any(item.graph == {"entities": {}} for item in world.items)
    assert (0,) * 14 in {item.labels for item in world.items}
    assert world.index.metrics == list(SEARCHED)
    for metric in map(
        METRICS.get, SEARCHED
    ):  # three blocks of queries for three threads; FAISS has something to leave out
        representation = world.index.representation(metric)
        encoded = representation.encode(asked(world.queries, metric.name))
        few = {"labels", "label_table", "srr", "entities", "sentences", "temporal"} & set(metric.representations)
        # Most of the short reports have the same set of n-grams, or none.
        assert few or metric.representation in SETS or encoded.document_of_row.max() >= 64
        assert (
            metric.representation in ("temporal", "agreement_5", "word_sets", "fourgram_sets")
            or len(getattr(representation, "features", representation).row_ptr) > 40
        )


@every_backend
@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")  # of words of 64 bits, in the simulator
def test_search_equals_the_plain_scorer(world, metric, backend, cuda_lane):
    n = len(scorable(world.items, metric))
    queries = asked(world.queries, metric)
    runs: list[tuple[int, int | None]] = [(k, threads) for k in (1, 2, 5, n) for threads in (1, 3)]
    if backend == "cuda":
        cuda_lane(import_module(type(load_kernel(METRICS[metric], "cuda")).__module__))
        if config.ENABLE_CUDASIM or INTERPRETED:  # slow: a few queries, the awkward two at the end among them
            runs = [(3, 1), (n, 1)]
            queries = queries.take(np.r_[0 : len(queries.ids) - 2 : 24, -2:0] % len(queries.ids))
    if load_kernel(METRICS[metric], backend).capabilities.batched:  # it takes all queries at once, whatever the threads
        runs = [(k, None) for k in dict.fromkeys(k for k, _ in runs)]
    expected = answers(world.index, queries, metric, n, "reference")
    for k, threads in runs:
        assert answers(world.index, queries, metric, k, backend, threads) == [e[:k] for e in expected]
    if (metric, backend) in AT_ANY_K:  # what k means does not depend on the metric: one with a fallback, signed, lower
        assert answers(world.index, queries, metric, 2, "reference") == [e[:2] for e in expected]


@every_metric
def test_components_are_those_of_the_plain_scorer(world, metric):
    record = get_metric(metric)
    queries = asked(world.queries, metric)
    results = retrieve(world.index, queries, metric, k=6)
    representation = world.index.representation(record)
    encoded = representation.encode(queries)
    rows = getattr(representation, "features", representation)
    document_of_row = dict(
        zip(rows.row_id.tolist(), np.repeat(range(len(rows.row_ptr) - 1), np.diff(rows.row_ptr)), strict=True)
    )
    score = load_reference(record)
    for i, answer in enumerate(results.table.to_pylist()):
        candidate = representation.item(int(document_of_row[answer["row"]]))
        expected = score(candidate, encoded.item(int(encoded.document_of_row[i // 6])))
        assert (answer["score"], {name: answer[name] for name in results.components}) == expected


@every_metric
def test_a_scan_of_all_documents_has_the_scores_of_pairs(world, metric):
    record = get_metric(metric)
    kernel, representation = load_kernel(record, "cpu"), world.index.representation(record)
    encoded = representation.encode(asked(world.queries, metric))
    corpus, batch = arrays_of(record, representation, encoded)
    documents, error = np.arange(len(corpus.row_ptr) - 1), kernel.score_error(corpus, batch)
    chosen = np.unique(encoded.document_of_row)[::-7].tolist()
    for q, scores in zip(chosen, kernel.score_all(corpus, batch, chosen), strict=True):
        expected, _ = kernel.score_pairs(corpus, batch, np.full(len(documents), q), documents)
        assert (np.abs(scores - expected) <= error).all()


@every_metric
def test_answers_are_whole_and_in_order(world, metric):
    rows = scorable(world.items, metric)
    found = answers(world.index, asked(world.queries, metric), metric, len(rows))
    agree_with_other_machines(metric, found)
    for answer in found:
        assert sorted(row for row, *_ in answer) == rows
        scores = Counter(score for _, score, *_ in answer)
        assert all(n_ties == scores[score] for _, score, n_ties, _ in answer)
        in_order = answer[1:] if answer[0][3] else answer  # a fallback stands before the rows it ties with
        sign = -1 if METRICS[metric].higher_is_better else 1
        assert in_order == sorted(in_order, key=lambda a: (sign * a[1], a[0]))
        assert [a[3] for a in answer[1:]] == [False] * (len(rows) - 1)


def test_fallback_is_the_most_frequent_report_where_nothing_matches(world):
    frequent = min(row for row in scorable(world.items, "radgraph") if world.items[row].text == FREQUENT)
    assert frequent > 0
    for metric in SEARCHED:
        n_fallbacks = 0
        for answer in answers(world.index, asked(world.queries, metric), metric, 1):
            row, score, _, fallback = answer[0]
            assert fallback == (metric.startswith("radgraph") and score == 0)
            assert not fallback or row == frequent
            n_fallbacks += fallback
        assert (n_fallbacks > 1) == metric.startswith("radgraph")


# Representations that are sets of n-grams, and n: a report with one scores 1 with itself.
SETS = {"word_sets": 1, "bigram_sets": 2, "trigram_sets": 3, "fourgram_sets": 4}


def own_score(metric: str, item: Item) -> float:
    """Return the score of a report against itself: 1, with the rules for what it may lack written out."""
    name, _, variant = metric.partition(":")
    if name.startswith("bleu"):
        # An order that the report is too short for has a precision of 0.1 (coco: 1e-15 / 1e-9); no token, no score.
        order = int(name[-1])
        length = len(item.text.replace(".", " .").split())
        lacking = max(order - length, 0)
        return (1e-6 if variant else 0.1) ** (lacking / order) if length else 0.0
    if metric == "rouge-l:coco":  # of BLEU's tokens
        return 1.0 if item.text.split() else 0.0
    if name in ("meteor", "cider-d"):
        length = len(item.text.replace(".", " .").split())
        if name == "cider-d":  # a quarter for each order that the report is long enough for
            return 2.5 * min(length, 4)
        return 1.0 - 0.5 / length**3 if length else 0.0  # one chunk
    if name == "rouge-l":
        return 1.0 if any(c.isalnum() for c in item.text) else 0.0
    if get_metric(metric).representation in SETS:
        return 1.0 if len(tokenize_rouge(item.text)) >= SETS[get_metric(metric).representation] else 0.0
    if name == "radgraph":
        entities = item.graph["entities"].values()
        related = any(entity["relations"] for entity in entities)
        # The mean of the entity and the relation F1: a graph without relations reaches one half.
        return (1.0 if related or variant else 0.5) if entities else 0.0
    if name == "radcliq":
        record = get_metric(metric)
        values = [own_score(part, item) for part in record.terms]
        return composite(values, record.terms.values(), record.intercept)
    if name == "ratescore":
        return 1.0 if any(item.labels) else 0.5
    if name == "sentences":  # a distance; a report without a sentence matches nothing
        return 0.0 if any(item.labels) else 1.0
    if name == "labels":  # of the labels that are stated, classes 1 and 2, or those that are positive
        return float(any(c in (1, 2) for c in item.labels) if variant == "agreement" else 1 in item.labels)
    if metric == "srr-bert":
        return float(any(item.labels))
    if name == "crg" or variant.startswith("agreement"):
        return 1.0
    if name == "bertscore":
        return 1.0  # of a report with a token: others are no queries
    return 1.0 if variant == "" or any(item.labels) else 0.0


def rounding(metric: str) -> float:
    """Return how far the score of a report against itself may be from what is written out, relative to it.

    pycocoevalcap's BLEU divides by one n-gram and 1e-9 more at least, in its precisions and in its penalty; the other
    form by n-grams as they are, but the fourth root is taken in two steps. All other metrics are exact.
    """
    name, _, variant = metric.partition(":")
    return 0.0 if not name.startswith("bleu") else 2.01e-9 if variant else 2.0**-52


@pytest.fixture(scope="module")
def as_queries(world, tmp_path_factory) -> Callable[[tuple[int, ...]], Reports]:
    """Return the corpus's own reports as queries, the files of the same rows written once."""
    return cache(lambda rows: inputs_of([world.items[row] for row in rows], tmp_path_factory.mktemp("own") / "files"))


@every_metric
def test_a_report_is_its_own_best_match(world, as_queries, metric):
    rows = scorable(world.items, metric)
    queries = asked(as_queries(tuple(rows)), metric)
    for name, answer in zip(queries.ids, answers(world.index, queries, metric, len(rows)), strict=True):
        own = rows[int(name.removeprefix("test"))]
        of_row = {row: score for row, score, *_ in answer}
        assert of_row[own] == pytest.approx(own_score(metric, world.items[own]), rel=rounding(metric), abs=0)
        if metric == "radcliq:v0":  # takes a high BLEU for a fault
            continue
        assert of_row[own] == answer[0][1]
        assert answer[0][0] <= own or answer[0][3]


@pytest.fixture(scope="module")
def permuted(world) -> tuple[Index, np.ndarray]:
    """Return an index of the corpus in another order, and the row that each of its rows was."""
    order = np.random.default_rng(8).permutation(N_CORPUS)
    return index_of([world.items[old] for old in order], world.folder / "permuted"), order


@every_metric
def test_permuting_the_corpus_permutes_the_answers(world, permuted, metric):
    index, order = permuted
    n = len(scorable(world.items, metric))
    queries = asked(world.queries, metric)
    before, after = answers(world.index, queries, metric, n), answers(index, queries, metric, n)
    for one, two in zip(before, after, strict=True):
        assert [a[1:3] for a in one] == [a[1:3] for a in two]
        groups: tuple[dict, dict] = ({}, {})
        for answer, group, row_of in ((one, groups[0], range(N_CORPUS)), (two, groups[1], order)):
            for row, score, _, fallback in answer:
                old = row_of[row]
                group.setdefault((score, fallback), set()).add(world.items[old].text if fallback else old)
        if not one[0][3]:
            assert groups[0] == groups[1]
        else:  # another row of the most frequent report may be the lowest now
            assert groups[0][0.0, True] == groups[1][0.0, True] == {FREQUENT}


@every_metric
def test_a_batch_equals_its_queries_one_at_a_time(world, metric):
    queries = asked(world.queries, metric)
    n = len(queries.ids)
    whole = answers(world.index, queries, metric, 4)
    # CRG counts the whole test set.
    encoded = world.index.representation(get_metric(metric)).encode(queries)
    settings = {"prevalence": encoded.prevalence} if metric == "crg" else {}
    alone = () if metric == "cider-d" else (*range(0, n, 13), n - 2, n - 1)  # it is weighted by the whole test set
    for q in alone:
        assert answers(world.index, queries.take(np.array([q])), metric, 4, **settings) == [whole[q]]
    assert answers(world.index, queries.take(np.arange(n)[::-1]), metric, 4) == whole[::-1]


@pytest.fixture(scope="module")
def doubled(world) -> Index:
    return index_of(world.items * 2, world.folder / "doubled")


@every_metric
def test_a_corpus_twice_doubles_the_ties(world, doubled, metric):
    k = 5
    queries = asked(world.queries, metric)
    once, twice = answers(world.index, queries, metric, k), answers(doubled, queries, metric, 2 * k)
    for one, two in zip(once, twice, strict=True):
        if metric == "cider-d:corpus":  # n-grams that the corpus lacks weigh more in a larger one
            assert {a[2] % 2 for a in two} == {0}
            continue
        assert two[0] == (one[0][0], one[0][1], 2 * one[0][2], one[0][3])
        assert [a[1] for a in two] == [score for _, score, *_ in one for _ in range(2)]
        assert [a[2] for a in two] == [2 * n_ties for _, _, n_ties, _ in one for _ in range(2)]


# ---- composites of any weights ---------------------------------------------------------------------------------------

BLEU, GRAPH = (0.4, 0.3, -0.5), (0.5, 0.3, -0.4)
COMPOSITES = {
    "bertscore alone": {"bertscore": (0.6, 0.2, -0.7)},
    "bertscore a fault": {"bertscore": (0.6, 0.2, 0.7), "bleu-2": BLEU},
    "bertscore a fault, cosines": {"chexbert": (0.7, 0.2, -0.5), "bertscore": (0.6, 0.2, 0.7)},
    "bertscore hardly counts": {"radgraph": GRAPH, "bertscore": (0.6, 0.2, -1e-7), "chexbert": (0.7, 0.2, -0.5)},
    "bertscore beyond float32": {"radgraph": GRAPH, "bertscore": (0.6, 0.2, -1e-40)},
    # Bonuses of about 1e9 that differ by about 1: float32 cannot tell them apart.
    "bertscore beside large sums": {
        "radgraph:rg_e": (0, 1, -1),
        "bleu-1": (0, 1, 1),
        "bleu-1:coco": (0, 1, -1),
        "bertscore": (0, 1, -1e-9),
    },
    "bertscore above all": {"radgraph": GRAPH, "bertscore": (0.6, 0.2, -1e9), "rouge-l": BLEU},
    "cosines alone": {"chexbert": (0.7, 0.2, -0.5)},
    "cosines a fault": {"chexbert": (0.7, 0.2, 0.5), "radgraph:rg_e": GRAPH},
    "cosines hardly count": {"bleu-1": BLEU, "chexbert": (0.7, 0.2, 1e-12)},
    "few values": {"chexbert:labels": (0.0, 1.0, 1.0), "radgraph:rg_er": (0.0, 1.0, 1.0)},
    "cancelling": {"bleu-1": (0.0, 1.0, 1e9), "bleu-1:coco": (0.0, 1.0, -1e9), "chexbert": (0.0, 1.0, 1.0)},
    "cancelling, bertscore": {"rouge-l": (0, 1, 1e8), "radgraph:rg_er-bar": (0, 1, -1e8), "bertscore": (0, 1, -1)},
}


def drawn_terms(seed: int) -> dict[str, tuple[float, float, float]]:
    rng = random.Random(seed)
    return {
        part: (rng.uniform(-1, 1), rng.choice((0.2, 0.3, 1.0)), rng.choice((-1, 1)) * rng.choice((0.01, 0.2, 0.5, 3.0)))
        for part in rng.sample(COMPOSABLE, rng.randint(1, 6))
    }


@pytest.mark.parametrize("terms", [*COMPOSITES.values(), *map(drawn_terms, range(20))], ids=[*COMPOSITES, *range(20)])
def test_composites_of_any_weights_equal_the_plain_scorer(world, terms):
    metric = composite_of("composite", terms, 0.25, "made up")
    n = len(scorable(world.items, metric))
    queries = asked(world.queries, metric)
    queries = queries.take(np.arange(0, len(queries.ids), 9))
    expected = answers(world.index, queries, metric, n, "reference")
    for k in (1, 3, 20, 60, n):
        assert answers(world.index, queries, metric, k) == [e[:k] for e in expected]


# ---- shards ----------------------------------------------------------------------------------------------------------


def set_of(world: World, ends: list[int], folder: Path) -> Index:
    """Build the corpus as a set of shards that end at some rows."""
    reports, files = store(world.items, folder / "files", "train")
    opened_encoder = load_encoder("fake")
    inputs = attach_sources(reports, opened_encoder=opened_encoder, **{**files, "encoder": None})
    inputs = replace(inputs, columns=reports.columns)

    def slices() -> Iterator[Slice]:
        for begin, end in pairwise([0, *ends, len(world.items)]):
            some = inputs.take(np.arange(begin, end))
            yield Slice(some.ids, some.texts, lambda *beside, some=some: some)

    return build_set(slices, folder / "set", ends, SharedInputs())


# Rows where shards end: of about equal size; ragged, the first of one row, which lacks all files.
CUTS = {"one": [], "three": [60, 120], "seven": [27, 54, 81, 108, 135, 162], "ragged": [1, 11, 12, 150]}


@pytest.fixture(scope="module")
def sets(world, tmp_path_factory) -> Callable[[str], Index]:
    """Return the set of shards of each cut, built once."""
    return cache(lambda cut: set_of(world, CUTS[cut], tmp_path_factory.mktemp("set")))


@pytest.fixture(params=CUTS)
def shards(request, sets) -> Index:
    return sets(request.param)


def some_asked(queries: Reports, metric: str) -> Reports:
    """Return the queries that a metric takes; under BERTScore, whose every pair takes long, each fifth of them."""
    queries = asked(queries, metric)
    if "bertscore" not in get_metric(metric).representations:
        return queries
    return queries.take(np.r_[0 : len(queries.ids) : 5])


@pytest.fixture(scope="module")
def whole(world) -> Callable[..., Results]:
    """Return the search of the one index, each done once."""
    return cache(lambda metric, k, queries=asked: retrieve(world.index, queries(world.queries, metric), metric, k=k))


# All metrics on the set with most shards. On the others those of a kind: shards see no options.
@pytest.mark.parametrize(
    ("cut", "metric"), [(cut, m) for cut in CUTS for m in (SEARCHED if cut == "seven" else OF_A_KIND)]
)
def test_a_set_of_shards_equals_the_index(world, whole, sets, cut, metric):
    shards = sets(cut)
    for k in (1, 2, 40, len(scorable(world.items, metric))):  # 40: more than most shards have; then all
        one, other = (
            whole(metric, k, some_asked),
            retrieve(shards, some_asked(world.queries, metric), metric, k=k),
        )
        assert one.table.equals(other.table)
    assert other.signature["index"] == shards.fingerprint != one.signature["index"]
    differ = {name for name in one.signature if one.signature[name] != other.signature.get(name)}
    assert differ <= {"index", "representation", "stages", "closest_call"}


def test_labels_of_a_set_are_joined_to_those_of_the_index(world, shards):
    single, joined = (index.representation(get_metric("chexbert:labels")) for index in (world.index, shards))
    for name in ("vectors", "row_ptr", "row_id"):
        assert np.array_equal(getattr(joined, name), getattr(single, name))


@pytest.fixture(scope="module")
def alike(world, tmp_path_factory) -> tuple[Index, Index]:
    """Return an index and a set of five shards of one report over and over, and of one that is like no query."""
    folder = tmp_path_factory.mktemp("alike")
    usual = next(item for item in world.items if item.graph and item.labels and item.text == FREQUENT)
    strange = Item("zz yy xx", {"entities": {}}, -usual.vector, (0,) * 14)
    items = [usual] * 40 + [strange] * 25
    alike = World(items, index_of(items, folder / "one"), world.queries, folder)
    return alike.index, set_of(alike, [1, 20, 40, 60], folder)


@every_metric
def test_a_set_of_equal_rows_and_of_zeros_equals_the_index(world, alike, metric):
    queries = some_asked(world.queries, metric)
    for k in (1, 7, 45, 65):
        one, other = (retrieve(index, queries, metric, k=k).table for index in alike)
        assert one.equals(other)


@every_metric
def test_a_limit_drops_only_what_is_worse(world, whole, metric):
    """The k-th best scores of other shards: ties of a limit stay, with all that is better and every count of ties."""
    queries, record, rng = asked(world.queries, metric), get_metric(metric), np.random.default_rng(3)
    n_kept = n_dropped = 0
    for k in (1, 5, 60):
        listed = whole(metric, len(scorable(world.items, metric))).table
        shape = len(queries.ids), -1
        scores, rows, ties = (listed[name].to_numpy().reshape(shape) for name in ("score", "row", "n_ties"))
        at = rng.integers(0, 2 * k, len(scores)) % scores.shape[1]
        limit = scores[np.arange(len(scores)), at]
        beyond = rng.random(len(limit)) < 0.2  # better than all by the least step there is
        limit[beyond] = np.nextafter(scores[beyond, 0], np.inf if record.higher_is_better else -np.inf)
        found = Search(world.index, queries, record, SearchOptions(k, "cpu")).best_rows(limit=limit)
        reaches = scores >= limit[:, None] if record.higher_is_better else scores <= limit[:, None]
        for q in range(len(scores)):
            m = min(int(reaches[q].sum()), k)
            n_kept, n_dropped = n_kept + m, n_dropped + k - m
            if not listed["fallback"].to_numpy().reshape(shape)[q].any():
                assert found.rows[q, :m].tolist() == rows[q, :m].tolist()
            assert found.scores[q, :m].tolist() == scores[q, :m].tolist()
            assert found.ties[q, :m].tolist() == ties[q, :m].tolist()
            others = found.scores[q, m:][found.rows[q, m:] >= 0]
            assert (others < limit[q] if record.higher_is_better else others > limit[q]).all()
            assert np.isinf(found.scores[q][found.rows[q] < 0]).all()
    assert n_kept > 1000
    assert n_dropped > 100


def test_scores_so_far_go_to_the_shards_that_follow(world, shards, monkeypatch):
    """A shard is asked for what reaches the k-th best row of those before it, and searches less for it."""
    limits, real = [], Limit.of_distinct

    def noted(limit, *arguments):
        limits.append(limit.scores)
        return real(limit, *arguments)

    monkeypatch.setattr(Limit, "of_distinct", noted)
    found = retrieve(shards, world.queries, "bleu-2", k=3)
    assert len(limits) == shards.n_shards
    assert limits[0] is None
    last = found.table["score"].to_numpy().reshape(-1, 3)[:, -1]
    seen = [limit for limit in limits if limit is not None]
    for one, two in pairwise([*seen, last]):
        assert (one <= two).all()
    assert all((limit > 0).any() for limit in seen)


# ---- excluded rows ---------------------------------------------------------------------------------------------------

RULES = ["self", "text", "same", "patient", "self,text,patient", ("same", "patient")]


@pytest.fixture(scope="module")
def anchors(world) -> Callable[[str], Reports]:
    """Return the reports of the index that a metric takes as queries."""
    prepared = mo.reports(world.index).load()

    def of_metric(metric: str) -> Reports:
        known = np.zeros(N_CORPUS, bool)
        known[scorable(world.items, metric)] = True
        return some_asked(prepared.take(np.flatnonzero(known)), metric)

    return cache(of_metric)


@dataclass(frozen=True)
class Kept:
    """The best rows of each anchor under a rule and a least score or conditions."""

    options: mo.SearchOptions
    expected: list[list[tuple[int, float, int]]]


@pytest.fixture(scope="module")
def kept(world, anchors, ranked) -> Callable[[str], list[Kept]]:
    """Return what is left of a metric's lists under three rules, checked on the one index, on a CPU and plainly."""

    def of_metric(metric: str) -> list[Kept]:
        queries, pairs = anchors(metric), ranked(metric)
        sign = 1 if METRICS[metric].higher_is_better else -1
        rows = [int(study.removeprefix("train")) for study in queries.ids]
        fifths = sorted(
            sign * expected_of(one, out, 5)[-1][1]
            for one, out in zip(pairs, left_out(world.index, metric, "self", rows), strict=True)
        )
        least = sign * fifths[3 * len(fifths) // 4]  # most lists get shorter
        lists = []
        for rules in ("self", "text,patient", "same"):
            excluded = left_out(world.index, metric, rules, rows)
            expected = [
                expected_of([(row, score) for row, score in one if sign * score >= sign * least], out, 5)
                for one, out in zip(pairs, excluded, strict=True)
            ]
            options = mo.SearchOptions(k=5, exclude=rules, min_score=least)
            assert any(len(one) < 5 for one in expected)
            for backend in ("cpu", "reference"):
                found = retrieve(world.index, queries, metric, backend=backend, options=options)
                assert lists_of(found, queries) == expected
            lists.append(Kept(options, expected))
        return lists

    return cache(of_metric)


@pytest.fixture(scope="module")
def ranked(world, anchors) -> Callable[[str], list[list[tuple[int, float]]]]:
    """Return row and score of all rows for each anchor, best first, equal scores by row, by the plain scorer."""

    def of_metric(metric: str) -> list[list[tuple[int, float]]]:
        lists = answers(world.index, anchors(metric), metric, len(scorable(world.items, metric)), "reference")
        sign = -1 if METRICS[metric].higher_is_better else 1
        return [sorted(((row, score) for row, score, *_ in one), key=lambda a: (sign * a[1], a[0])) for one in lists]

    return cache(of_metric)


def left_out(index: Index, metric: str, rules: str | tuple[str, ...], rows: list[int]) -> list[set[int]]:
    """Return the rows that each anchor, a row itself, excludes, by the definition of each rule."""
    representation = index.representation(get_metric(metric))
    documents = representation.document_of_row.tolist()
    known: dict[str, Callable[[], list]] = {
        "self": lambda: list(range(N_CORPUS)),
        "text": lambda: [" ".join(text.lower().split()) for text in index.strings("text").to_pylist()],
        "same": lambda: [
            ("document", representation.key(documents[row])) if row < len(documents) and documents[row] >= 0 else row
            for row in range(N_CORPUS)
        ],
        "patient": lambda: [patient or None for patient in index.strings("patient").to_pylist()],
    }
    found: list[set[int]] = [set() for _ in rows]
    for rule in rules.split(",") if isinstance(rules, str) else rules:
        values = known[rule]()
        for row, excluded in zip(rows, found, strict=True):
            if values[row] is not None:
                excluded.update(other for other, value in enumerate(values) if value == values[row])
    return found


def expected_of(pairs: list[tuple[int, float]], excluded: set[int], k: int) -> list[tuple[int, float, int]]:
    kept = [(row, score) for row, score in pairs if row not in excluded]
    ties = Counter(score for _, score in kept)
    return [(row, score, ties[score]) for row, score in kept[:k]]


def lists_of(results: Results, queries: Reports) -> list[list[tuple[int, float, int]]]:
    found: dict[str, list[tuple[int, float, int]]] = {study: [] for study in queries.ids}
    columns = (results.table[name].to_pylist() for name in ("query_id", "rank", "row", "score", "n_ties", "fallback"))
    for study, rank, *line, fallback in zip(*columns, strict=True):
        found[study].append(tuple(line))
        assert rank == len(found[study])
        assert not fallback
    return list(found.values())


@backend_of_a_kind
@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")  # of words of 64 bits, in the simulator
def test_excluded_rows_are_as_if_they_were_not_there(world, anchors, ranked, metric, backend, cuda_lane):
    queries, pairs, n = anchors(metric), ranked(metric), len(scorable(world.items, metric))
    # Every rule alone, with lists of all lengths for the one that leaves out most.
    runs: list[tuple[str | tuple[str, ...], tuple[int, ...]]] = [(rules, (4,)) for rules in RULES]
    runs.append(("self,text,patient", (1, n)))
    if backend == "cuda":
        cuda_lane(import_module(type(load_kernel(METRICS[metric], "cuda")).__module__))
        if config.ENABLE_CUDASIM or INTERPRETED:  # slow: a few anchors and rules
            runs = [("self,text,patient", (4,)), ("same", (n,))]
            pairs, queries = pairs[::48], queries.take(np.r_[0 : len(queries.ids) : 48])
    rows = [int(study.removeprefix("train")) for study in queries.ids]
    for rules, ks in runs:
        excluded = left_out(world.index, metric, rules, rows)
        expected = [expected_of(*one, n) for one in zip(pairs, excluded, strict=True)]
        options = mo.SearchOptions(exclude=rules)
        for k in ks:
            found = lists_of(retrieve(world.index, queries, metric, k=k, backend=backend, options=options), queries)
            assert found == [one[:k] for one in expected]


@pytest.mark.parametrize("metric", ["bleu-2", "radgraph", "chexbert", "chexbert:labels", "bertscore", "radcliq", "crg"])
def test_excluded_rows_and_least_scores_on_sets_parts_and_the_plain_scorer(anchors, kept, shards, metric, tmp_path):
    queries = anchors(metric)
    for number, (options, expected) in enumerate((one.options, one.expected) for one in kept(metric)):
        assert lists_of(retrieve(shards, queries, metric, options=options), queries) == expected
        if shards.n_shards > 2:
            for part in "123":
                made = retrieve(shards, queries, metric, options=replace(options, part=f"{part}/3"))
                made.write(tmp_path / f"{number}-{part}.parquet")
            merged = mo.merge([tmp_path / f"{number}-{part}.parquet" for part in "123"])
            assert lists_of(merged, queries) == expected
            assert merged.signature["exclude"] == options.exclude.split(",")
            assert merged.signature["min_score"] == options.min_score


WHERE = [
    ("radgraph", ["chexbert:agreement>=1"]),
    ("radgraph", ["chexbert:agreement>=0.8", "bleu-2<0.5"]),
    ("bleu-2", ["chexbert>0.25", "rouge-l<=0.75"]),
    ("chexbert", ["radgraph>0.1", "chexbert<0.9"]),
    ("rouge-l", ["bertscore>=0.5"]),
    ("sentences", ["radgraph<0.3"]),
    ("bleu-2", ["rouge-l>2"]),
    ("radgraph+chexbert:agreement", ["chexbert:agreement>=1", "radgraph>=0.4"]),
    ("rouge-l+chexbert", []),
]


@pytest.fixture(scope="module")
def fulfilling(world) -> Callable[[str, tuple[str, ...]], tuple[Reports, list[Kept]]]:
    """Return queries and their best rows under conditions and two rules, checked on the one index.

    Every condition is read off the whole ranking by its metric; then the k best of those that fulfil all.
    """

    def of_metric(metric: str, where: tuple[str, ...]) -> tuple[Reports, list[Kept]]:
        parts = [re.fullmatch(r"([^<>=]+)(>=|<=|>|<)(.+)", one).groups() for one in where]
        holds = {">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, "<": lambda a, b: a < b}
        scored = set(range(N_CORPUS))
        summed = metric.split("+")
        for name in (*summed, *(name for name, *_ in parts)):
            scored &= set(scorable(world.items, name))
        known = np.array(sorted(scored))
        queries = mo.reports(world.index).load()
        queries = queries.take(known[[bool(world.items[row].text.split()) for row in known]][::5])
        values = {}
        for name in {*summed, *(name for name, *_ in parts)}:
            lists = answers(world.index, queries, name, len(scorable(world.items, name)), "reference")
            values[name] = [{row: score for row, score, *_ in one} for one in lists]
        sign = -1 if METRICS[summed[0]].higher_is_better else 1
        kept = []
        for rules in ((), "self,patient" if len(summed) > 1 else "same,patient"):
            expected = []
            rows = [int(study.removeprefix("train")) for study in queries.ids]
            for i, out in enumerate(left_out(world.index, summed[0], rules, rows)):
                fulfil = [
                    row
                    for row in sorted(scored)
                    if all(holds[symbol](values[name][i][row], float(value)) for name, symbol, value in parts)
                ]
                pairs = [(row, sum(values[name][i][row] for name in summed)) for row in fulfil]
                pairs.sort(key=lambda pair: (sign * pair[1], pair[0]))
                expected.append(expected_of(pairs, out, 4))
            options = mo.SearchOptions(k=4, exclude=rules, where=list(where))
            found = retrieve(world.index, queries, metric, options=options)
            assert lists_of(found, queries) == expected
            place = {study: i for i, study in enumerate(queries.ids)}
            for line in found.table.to_pylist():
                for name, *_ in parts:
                    assert line[name] == values[name][place[line["query_id"]]][line["row"]]
            kept.append(Kept(options, expected))
        return queries, kept

    return cache(of_metric)


@pytest.mark.parametrize(("metric", "where"), WHERE)
def test_conditions_on_other_metrics_are_those_of_brute_force(fulfilling, shards, metric, where):
    queries, kept = fulfilling(metric, tuple(where))
    for one in kept:
        assert lists_of(retrieve(shards, queries, metric, options=one.options), queries) == one.expected
