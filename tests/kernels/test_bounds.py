"""Attacks on the screens: whatever a bound drops, a dense brute force would have dropped too.

The brute force scores every unit: clipped matches from dense count tables, common subsequences by the textbook table,
Python sets for graphs. Only `score.py` is shared, and that has its own test. Hypothesis draws small corpora in which
nearly everything ties, long reports (several 64-bit blocks of the common subsequence, more than 255 equal features) and
corpora with enough postings for the search to score units before all lists are read.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metric_oracle.base.errors import ExactnessError
from metric_oracle.corpora.radgraph_json import GraphTable
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.cider import WeightedIndex
from metric_oracle.indexes.ngrams import TOKENIZERS, build_ngrams
from metric_oracle.indexes.radgraph import build_graphs
from metric_oracle.indexes.stems import StemIndex
from metric_oracle.kernels import _overlap_counts as counts_of
from metric_oracle.kernels import _overlap_search as driver
from metric_oracle.kernels._bitmaps import new_bitmaps
from metric_oracle.kernels._errors import sample_of, sample_size
from metric_oracle.kernels._jit import compiled_for, jit
from metric_oracle.kernels._overlap import SLACK, Features, by_rarity
from metric_oracle.kernels._pairs import begin_query
from metric_oracle.kernels.bleu import cpu as bleu_cpu
from metric_oracle.kernels.bleu.score import bleu
from metric_oracle.kernels.cider_d import cpu as cider_cpu
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.radgraph import cpu as radgraph_cpu
from metric_oracle.kernels.radgraph.score import f1, mean_f1
from metric_oracle.kernels.rouge_l import cpu as rouge_cpu
from metric_oracle.kernels.rouge_l.score import rouge_l
from metric_oracle.kernels.topk.cpu import expand, insert, new_best, reset, threshold
from metric_oracle.kernels.topk.reference import select
from metric_oracle.metrics import METRICS
from metric_oracle.retrieval.kernels import arrays_of, load_kernel
from metric_oracle.sources.contract import Attachment
from metric_oracle.synthetic.corpus import synthesize
from support import examples

BLEUS = [(order, coco) for order in (1, 2, 3, 4) for coco in (False, True)]
GRAPH_METRICS = [(0, 1), (0, -1), (2, -1), (3, -1)]
KS = (1, 2, 3, 7, 40)

# What searches compile into themselves, compiled to be called by a test.
find_best, check_dropped = jit(driver.find_best), jit(driver.check_dropped)


RADGRAPH = {
    (m.options["family_a"], m.options["family_b"]): m.name for m in METRICS.values() if m.representation == "radgraph"
}


# ---- searches and their brute force ----------------------------------------------------------------------------------


def searched(kernel: Any, index: Any, encoded: Any, n: int, k: int, name: str) -> list[list[tuple]]:
    """Return (row, score, ties) of each distinct query with a positive score, in two blocks with one work space."""
    found = Answers(np.full((n, k), -7), np.full((n, k), np.nan), np.full((n, k), -7), np.full(n, -np.inf))
    metric = METRICS[name]
    (corpus, batch), backend = arrays_of(metric, index, encoded), kernel.Backend(**metric.options)
    work = backend.new_workspace(corpus)
    for queries in (range(n // 2), range(n // 2, n)):
        backend.search(corpus, batch, queries, k, found, work)
    answers = []
    for q in range(n):
        m = int(np.count_nonzero(found.rows[q] >= 0))
        assert (found.rows[q, m:] == -1).all()
        assert (found.scores[q, m:] == 0).all()
        assert (found.ties[q, m:] == 0).all()
        answers.append(list(zip(*(a[q, :m].tolist() for a in (found.rows, found.scores, found.ties)), strict=True)))
    return answers


def listed(scores_of_rows: list[float], k: int) -> list[tuple]:
    """Return what a search must answer when the rows have these scores."""
    ties = Counter(scores_of_rows)
    order = sorted((-score, row) for row, score in enumerate(scores_of_rows) if score > 0)
    return [(row, -score, ties[-score]) for score, row in order[:k]]


def clipped(reports: list[list[str]], query: list[str], order: int) -> np.ndarray:
    """Return the clipped n-gram matches of each report with the query."""

    def grams(words: list[str]) -> Counter:
        return Counter(tuple(words[i : i + order]) for i in range(len(words) - order + 1))

    asked = grams(query)
    counts = [grams(report) for report in reports]
    table = np.array([[count[gram] for gram in asked] for count in counts], np.int64).reshape(len(reports), len(asked))
    return np.minimum(table, np.array(list(asked.values()), np.int64)).sum(axis=1)


def subsequences(reports: list[list[str]], query: list[str]) -> np.ndarray:
    """Return the longest common subsequence of each report with the query: the textbook table, all reports at once."""
    number = {word: i for i, word in enumerate(query)}
    width = max(map(len, reports))
    words = np.full((len(reports), width), -1)
    for i, report in enumerate(reports):
        words[i, : len(report)] = [number.get(word, -1) for word in report]
    row = np.zeros((len(reports), width + 1), np.int64)
    for word in query:
        row[:, 1:] = np.maximum(row[:, 1:], (row[:, :-1] + 1) * (words == number[word]))
        np.maximum.accumulate(row, axis=1, out=row)
    return row[:, -1]


def check_texts(corpus: list[list[str]], queries: list[list[str]], ks: tuple[int, ...]) -> None:
    """Compare BLEU of every order and form, and ROUGE-L, with the brute force for every query."""
    row_text: dict[tuple, int] = {}
    which = np.array([row_text.setdefault(tuple(report), len(row_text)) for report in corpus])
    texts = [" ".join(report) for report in row_text]
    reports = [list(report) for report in row_text]
    inputs = Reports([str(i) for i in range(len(queries))], [" ".join(query) for query in queries])
    ngrams, words = (build_ngrams(kind, texts, which) for kind in ("ngrams", "words"))
    by_ngrams, by_words = ngrams.encode(inputs), words.encode(inputs)
    distinct = by_ngrams.items
    matches = [np.stack([clipped(reports, list(q), n) for n in (1, 2, 3, 4)]).T.tolist() for q in distinct]
    lengths = [len(report) for report in reports]
    for order, coco in BLEUS:
        scores = [
            [
                bleu(*found, length, len(q), order, coco) if found[0] else 0.0
                for found, length in zip(of_query, lengths, strict=True)
            ]
            for q, of_query in zip(distinct, matches, strict=True)
        ]
        for k in ks:
            name = f"bleu-{order}:coco" if coco else f"bleu-{order}"
            got = searched(bleu_cpu, ngrams, by_ngrams, len(distinct), k, name)
            assert got == [listed(np.array(s)[which].tolist(), k) for s in scores], (order, coco, k)
    assert list(by_words.items) == list(distinct)  # plain words: both tokenisers agree
    scores = [
        [rouge_l(lcs, length, len(q)) for lcs, length in zip(subsequences(reports, list(q)), lengths, strict=True)]
        for q in distinct
    ]
    for k in ks:
        got = searched(rouge_cpu, words, by_words, len(distinct), k, "rouge-l")
        assert got == [listed(np.array(s)[which].tolist(), k) for s in scores], k


# ---- BLEU and ROUGE-L ------------------------------------------------------------------------------------------------

word = st.sampled_from("abcd")
report = st.lists(word, max_size=12)
query = st.lists(st.sampled_from(["a", "b", "c", "d", "unknown"]), max_size=12)


@examples(250)
@given(st.lists(report, min_size=1, max_size=30), st.lists(query, min_size=1, max_size=5), st.sampled_from(KS))
def test_small_corpora(corpus, queries, k):
    check_texts(corpus, [*queries, corpus[0]], (k,))


@examples(80)
@given(st.lists(st.lists(st.sampled_from("ab"), max_size=7), min_size=20, max_size=150), st.sampled_from(KS))
def test_two_words_only(corpus, k):
    check_texts(corpus, corpus[:6], (k,))


@pytest.mark.parametrize("longest", [20, 60])
def test_best_reports_share_no_bigram(longest):
    words = [f"w{i}" for i in range(20)]
    backwards = [*words[::-1], *["other"] * 40]
    corpus = [backwards[:length] for length in range(5, longest + 1)]
    check_texts([*corpus, [*words[:3], *["other"] * 37]], [words, words[:9]], (1, 3, 30))


def edited(rng: random.Random, words: list[str], vocabulary: str) -> list[str]:
    """Return a report that differs in a few places: a close competitor."""
    out = list(words)
    for _ in range(rng.choice((0, 1, 1, 2, 5, 9))):
        i = rng.randrange(len(out) + 1)
        out[i : i + rng.randrange(2)] = rng.choices(vocabulary, k=rng.randrange(3))
    return out


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(("a", "ab", "abcd", "abcdefghijklmnopqrstuvwxyz")), st.sampled_from(KS))
def test_long_reports(seed, vocabulary, k):
    rng = random.Random(seed)
    stems = [
        rng.choices(vocabulary, k=rng.choice((62, 63, 64, 65, 66, 127, 128, 129, 190, 254, 256, 300))) for _ in "xyz"
    ]
    corpus = [edited(rng, rng.choice(stems), vocabulary) for _ in range(17)]
    corpus += [rng.choices(vocabulary, k=rng.randrange(13)) for _ in range(6)]
    check_texts(corpus, [*(edited(rng, stem, vocabulary) for stem in stems), corpus[-1]], (k,))


def zipf_reports(rng: random.Random, n: int, n_words: int, longest: int) -> list[list[str]]:
    vocabulary = [f"w{i}" for i in range(n_words)]
    weights = [1 / (i + 1) for i in range(n_words)]
    return [rng.choices(vocabulary, weights, k=rng.randint(0, rng.choice((3, longest)))) for _ in range(n)]


@pytest.mark.parametrize(("n", "n_words", "longest"), [(1501, 5, 9), (2600, 40, 12), (1300, 300, 40)])
def test_corpora_with_enough_postings_to_score_units_early(n, n_words, longest):
    rng = random.Random(n)
    corpus = zipf_reports(rng, n, n_words, longest)
    vocabulary = [f"w{i}" for i in range(n_words)]
    queries = rng.sample(corpus, 8) + [edited(rng, r, vocabulary) for r in rng.sample(corpus, 8)]
    check_texts(corpus, queries, (1, 6))


def test_a_unit_scored_early_is_listed_once():
    """Later lists make the unit that was scored first the most promising one again; it counted twice once."""
    filler = ["p", "q", "r", "s", "t", "u"]
    corpus = [["x", "y", "a", "b"]] + [[c, f"n{i}", *filler] for i in range(600) for c in ("a", "b")]
    check_texts(corpus, [corpus[0]], (1, 2, 5))
    graphs = [
        ([("x", 0), ("y", 0), ("a", 0), ("b", 0)], [(0, 1, 0), (2, 3, 0)]),
        *(([(c, 0), (f"n{i}", 0), *((w, 0) for w in filler)], []) for i in range(600) for c in ("a", "b")),
    ]
    check_graphs(graphs, graphs[:1], (1, 2, 5))


def test_bounds_reach_into_saturated_counts():
    """More than 255 matches: the best report is the one with the most, which saturated counts cannot tell apart."""
    corpus = [["a"] * n for n in (300, 256, 255, 254, 310, 299, 301, 1)] + [["a", "b"] * 140, ["a"] * 150 + ["b"] * 150]
    check_texts(corpus, [["a"] * 300, ["a"] * 257, ["b", "a"] * 150, ["a"] * 255], (1, 2, 7))


# ---- RadGraph --------------------------------------------------------------------------------------------------------

LABELS = ["ANAT-DP", "OBS-DP", "OBS-DA"]
KINDS = ["modify", "located_at"]
DrawnGraph = tuple[list[tuple[str, int]], list[tuple[int, int, int]]]


def table_of(graphs: list[DrawnGraph]) -> GraphTable:
    tokens = sorted({token for entities, _ in graphs for token, _ in entities})
    place = {token: i for i, token in enumerate(tokens)}
    entities = [entity for graph in graphs for entity in graph[0]]
    relations = np.array([relation for graph in graphs for relation in graph[1]], np.int32).reshape(-1, 3)
    return GraphTable(
        keys=[f"g{i}" for i in range(len(graphs))],
        keyed_by="study",
        schema="radgraph",
        texts=[None] * len(graphs),
        tokens=tokens,
        labels=LABELS,
        relation_types=KINDS,
        entity_ptr=np.cumsum([0] + [len(graph[0]) for graph in graphs]),
        entity_token=np.array([place[token] for token, _ in entities], np.int32),
        entity_label=np.array([label for _, label in entities], np.int32),
        relation_ptr=np.cumsum([0] + [len(graph[1]) for graph in graphs]),
        relation_source=relations[:, 0],
        relation_target=relations[:, 1],
        relation_type=relations[:, 2],
        n_dangling=0,
    )


def sets_of(graph: DrawnGraph) -> tuple[set, set, set, set]:
    entities, relations = graph
    sources = {source for source, _, _ in relations}
    lower = [token.lower() for token, _ in entities]
    return (
        set(entities),
        {(entities[s], entities[t], kind) for s, t, kind in relations},
        {(entity, i in sources) for i, entity in enumerate(entities)},
        {entity for i, entity in enumerate(entities) if i not in sources}
        | {(lower[s], entities[s][1], kind, lower[t]) for s, t, kind in relations},
    )


def check_graphs(corpus: list[DrawnGraph], queries: list[DrawnGraph], ks: tuple[int, ...]) -> None:
    """Compare RadGraph F1 and its variants with Python sets."""
    index = build_graphs(table_of(corpus), np.arange(len(corpus)))
    encoded = index.encode(
        Reports(
            [str(i) for i in range(len(queries))],
            [""] * len(queries),
            attached={"radgraph": Attachment(table_of(queries), np.arange(len(queries)))},
        )
    )
    candidates, references = [sets_of(g) for g in corpus], [sets_of(g) for g in queries]
    for a, b in GRAPH_METRICS:
        expected = []
        for reference in references:
            counts = [
                [(len(c[f] & reference[f]), len(c[f]), len(reference[f])) for c in candidates] for f in (a, b) if f >= 0
            ]
            expected.append(
                [mean_f1(m, s + n, o, t + p) for (m, s, n), (o, t, p) in zip(*counts, strict=True)]
                if b >= 0
                else [f1(*count) for count in counts[0]]
            )
        for k in ks:
            k = min(k, len(corpus))
            got = searched(radgraph_cpu, index, encoded, int(encoded.document_of_row.max()) + 1, k, RADGRAPH[a, b])
            assert [got[q] for q in encoded.document_of_row] == [listed(scores, k) for scores in expected], (a, b, k)


@st.composite
def drawn_graph(draw: Callable, tokens: tuple[str, ...] = ("a", "A", "b")) -> DrawnGraph:
    entities = draw(st.lists(st.tuples(st.sampled_from(tokens), st.integers(0, 2)), max_size=6))
    if not entities:
        return entities, []
    end = st.integers(0, len(entities) - 1)
    return entities, draw(st.lists(st.tuples(end, end, st.integers(0, 1)), max_size=6))


@examples(300)
@given(
    st.lists(drawn_graph(), min_size=1, max_size=25),
    st.lists(drawn_graph(("a", "A", "b", "unknown")), min_size=1, max_size=4),
    st.sampled_from(KS),
)
def test_small_graphs(corpus, queries, k):
    check_graphs(corpus, [*queries, corpus[0]], (k,))


def random_graph(rng: random.Random, n_tokens: int, n_entities: int, n_relations: int) -> DrawnGraph:
    entities = [(f"t{rng.randrange(n_tokens)}", rng.randrange(3)) for _ in range(n_entities)]
    ends = range(len(entities))
    relations = [(rng.choice(ends), rng.choice(ends), rng.randrange(2)) for _ in range(n_relations if entities else 0)]
    return entities, relations


def edited_graph(rng: random.Random, graph: DrawnGraph) -> DrawnGraph:
    """Return a graph with a few other entities and relations."""
    entities, relations = list(graph[0]), list(graph[1])
    for _ in range(rng.randrange(6)):
        entities[rng.randrange(len(entities))] = (f"t{rng.randrange(9)}", rng.randrange(3))
    for _ in range(rng.randrange(6)):
        relations[rng.randrange(len(relations)) :][:1] = []
        relations.append((rng.randrange(len(entities)), rng.randrange(len(entities)), rng.randrange(2)))
    return entities, relations[rng.randrange(3) :]


@examples(100)
@given(st.integers(0, 2**32), st.sampled_from((30, 300, 3000)), st.sampled_from(KS))
def test_large_graphs(seed, n_tokens, k):
    rng = random.Random(seed)
    stems = [random_graph(rng, n_tokens, rng.choice((1, 40, 254, 300)), rng.choice((1, 60, 300))) for _ in range(3)]
    corpus = [edited_graph(rng, rng.choice(stems)) for _ in range(25)]
    corpus += [random_graph(rng, 4, rng.randrange(5), rng.randrange(4)) for _ in range(5)]
    check_graphs(corpus, [*(edited_graph(rng, stem) for stem in stems), corpus[-1]], (k,))


@pytest.mark.parametrize(("n", "n_tokens"), [(1500, 4), (2500, 12), (1200, 150)])
def test_graph_corpora_with_enough_postings_to_score_units_early(n, n_tokens):
    rng = random.Random(n)
    corpus = [random_graph(rng, rng.randint(1, n_tokens), rng.randrange(9), rng.randrange(9)) for _ in range(n)]
    queries = rng.sample(corpus, 12) + [random_graph(rng, n_tokens, 6, 4) for _ in range(12)]
    check_graphs(corpus, queries, (1, 6))


# ---- bounds that are checked wherever an exact score becomes known ---------------------------------------------------


class Tabled(NamedTuple):
    """A policy in tables, so that the driver is compiled once for all metrics, and bounds can be what they should not.

    Attributes
    ----------
    most : float64[C, A, B]
        Bound of each length bucket by the matches in both families.
    exact : float64[D]
    """

    most: np.ndarray
    exact: np.ndarray
    index: Features  # type: ignore[assignment]
    buckets: np.ndarray


@compiled_for(counts_of.bound, Tabled)
def _(policy, j, a, b):
    return policy.most[j, min(a, policy.most.shape[1] - 1), min(b, policy.most.shape[2] - 1)]


@compiled_for(driver.score, Tabled)
def _(policy, d, j):
    return policy.exact[d]


@jit
def prepared(form, corpus, batch, space):
    """Return a metric's scorer of the first query, and the ids of its features."""
    return driver.scorer_of(form, begin_query(space, batch, 0), corpus, batch, 0)


@jit
def find(scorer, ids, k, work):
    """Search with a metric's scorer."""
    return driver.find(scorer, ids, k, work)


@jit
def tabulate(policy, buckets, most, exact):
    """Write what a metric's own policy answers."""
    for j in range(len(buckets)):
        for a in range(most.shape[1]):
            for b in range(most.shape[2]):
                most[j, a, b] = counts_of.bound(policy, j, a, b)
        for d in range(buckets[j, 0], buckets[j, 1]):
            exact[d] = driver.score(policy, d, j)


# Of BLEU beyond order 1 the second search too, for documents without a bigram of the query. What `agreement`, CRG,
# RaTEScore and Temporal F1 score whole, no bound drops; composites: retrieval/test_composite.py.
WITHOUT_BIGRAM = "bleu-2 without a bigram"
PLANTED = [
    "bleu-1", "bleu-2", WITHOUT_BIGRAM, "bleu-4:coco", "rouge-l", "rouge-l:coco", "meteor:nltk-stems", "cider-d",
    "radgraph", "radgraph:rg_e",
]  # fmt: skip


def graph_of(words: list[str]) -> DrawnGraph:
    return [(word, 0) for word in words], [(i, i + 1, 0) for i in range(len(words) - 1)]


def planted_index(name: str, documents: list[list[str]], query: list[str]) -> tuple[Any, Reports]:
    n, metric = len(documents), METRICS[name]
    if metric.kernel == "radgraph":
        index: Any = build_graphs(table_of([graph_of(words) for words in documents]), np.arange(n))
        return index, inputs_of(name, query)
    kind = "ngrams" if metric.representation not in TOKENIZERS else metric.representation
    index = build_ngrams(kind, [" ".join(words) for words in documents], np.arange(n))
    if metric.kernel == "meteor":
        index = StemIndex.join({"ngrams": index})
    elif metric.kernel == "cider_d":
        index = WeightedIndex.join({"coco": index})
    return index, inputs_of(name, query)


def inputs_of(metric: str, query: list[str]) -> Reports:
    if METRICS[metric].kernel == "radgraph":
        return Reports(["q"], [""], attached={"radgraph": Attachment(table_of([graph_of(query)]), np.arange(1))})
    if METRICS[metric].kernel == "cider_d":  # queries that share nothing: every n-gram weighs the same
        return Reports([str(i) for i in range(10)], [" ".join(query), *(f"asked{i}" for i in range(9))])
    return Reports(["q"], [" ".join(query)])


def search_with(name: str, documents: list[list[str]], query: list[str], k: int, factor: Callable) -> Any:
    """Search for one query with bounds times ``factor(buckets)`` and return the workspace."""
    metric = METRICS["bleu-2" if name == WITHOUT_BIGRAM else name]
    if name == WITHOUT_BIGRAM:  # backwards no two words stand as in the query
        documents = [words[::-1] for words in documents]
    return search_in(*planted_index(metric.name, documents, query), name, k, factor)


def search_in(index: Any, inputs: Reports, name: str, k: int, factor: Callable) -> Any:
    """Do what `search_with` does in an index, for the first query, and check the sample of a search of one query."""
    metric = METRICS["bleu-2" if name == WITHOUT_BIGRAM else name]
    encoded = index.encode(inputs)
    corpus, batch = arrays_of(metric, index, encoded)
    queries = getattr(batch, "queries", None)
    features, buckets = corpus.features, corpus.buckets
    factors = factor(buckets).astype(np.float64)
    backend = load_kernel(metric, "cpu")
    work: Any = backend.new_workspace(corpus)
    if metric.kernel == "cider_d":
        return search_weighted(corpus, batch, k, factors, work)

    def of_family(f: int) -> np.ndarray:
        return queries.id[queries.ptr[f] : queries.ptr[f + 1]]

    size = int(queries.sizes[0, 0])
    policy: Any = prepared(backend.form, corpus, batch, work.space)[0]
    ids = every = of_family(0)
    if metric.kernel == "bleu":
        family = 1 if name == WITHOUT_BIGRAM else min(metric.options["order"], 2)
        policy = policy._replace(family=family)
        ids, every = of_family(family - 1), queries.id[queries.ptr[0] : queries.ptr[metric.options["order"]]]
    elif name == "radgraph":
        ids = every = queries.id[queries.ptr[0] : queries.ptr[2]]
    ids = by_rarity(ids, features.post_ptr)
    none_met = work.counts[1, :0]
    counts: Any = counts_of.OneFamily(
        work.counts[0], np.ones(len(buckets), np.int64), len(ids), size, np.full(len(buckets), -1.0), none_met
    )
    if name == "radgraph":
        counts = radgraph_cpu._two_families(ids, of_family(0), of_family(1), policy, work.counts)
        counts = counts._replace(weight=(counts.weight * factors).astype(np.uint16))
    work = work._replace(visits=driver.new_visits(buckets[:, 2].copy()))
    n_lists = len(ids) + 1
    most = np.empty((len(buckets), n_lists, n_lists if name == "radgraph" else 1))
    planted = Tabled(most, np.empty(len(features.fwd_ptr) - 1), features, buckets)
    tabulate(policy, buckets, planted.most, planted.exact)
    planted.most[:] *= factors[:, None, None]
    find_best(planted, counts, ids, size, k, work)
    of_bound = (of_family(0), of_family(1)) if name == "radgraph" else (ids, ids[:0])
    check_dropped(planted, 0, 1, driver.Shared(every, *of_bound), k, work)
    return work


def search_weighted(corpus: Any, batch: Any, k: int, factors: np.ndarray, work: Any) -> Any:
    """Search under CIDEr-D: what was found of a document, and with it its bound, times the factor of its bucket."""
    n_documents = corpus.buckets[:, 1] - corpus.buckets[:, 0]
    inverse = corpus.inverse * np.repeat(factors, n_documents).astype(np.float32)
    policy, ids = prepared(cider_cpu.Backend.form, corpus._replace(inverse=inverse), batch, work.space)
    check_dropped(policy, 0, 1, find(policy, ids, k, work), k, work)
    return work


def competitors() -> tuple[list[list[str]], list[str]]:
    """Return documents and a query: few documents of its length have little of it, longer ones have nearly all."""
    query = [f"w{i}" for i in range(10)]
    poor = [[*query[:3], *(f"poor{n}x{i}" for i in range(7))] for n in range(4)]
    good = [[*query, f"good{n}", *(f"more{n}x{i}" for i in range(n % 3))] for n in range(30)]
    return poor + good, query


@pytest.mark.parametrize("size", [1, 2, 10, 254, 255, 256, 400, 70_000])
def test_weighted_counts_of_graphs_fit_16_bits_and_are_no_less_than_their_share(size):
    """A count stops at 255, and is no more than the features of the query."""
    least = np.arange(300)
    buckets = np.stack([least] * 8, axis=1)
    policy: Any = SimpleNamespace(buckets=buckets, size_a=size, size_b=size)
    ids = np.arange(4, dtype=np.int32)
    weight = radgraph_cpu._two_families.py_func(ids, ids[:2], ids[2:], policy, np.zeros((2, 1), np.uint8)).weight
    assert (weight.astype(int) * min(size, 255)).sum(axis=0).max() < 1 << 16
    assert (weight * (least + size) > counts_of.ONE).all()


@pytest.mark.parametrize("metric", PLANTED)
def test_honest_bounds_pass_the_checks(metric):
    documents, query = competitors()
    for k in (1, 3, 50):
        work = search_with(metric, documents, query, k, lambda buckets: np.ones(len(buckets)))
        driver.require_bounds(work)
        assert work.closest[:2].min() >= SLACK
        assert work.closest[2] > 1
        calls = driver.stages([work])["closest_call"]
        assert set(calls) <= set(driver.STAGES)
        assert calls["warm start"] > -1e-12


@pytest.mark.parametrize("metric", PLANTED)
def test_a_broken_bound_of_a_document_that_survives_is_an_error(metric):
    """It is scored all the same, as the first of all or because nothing is dropped yet."""
    documents, query = competitors()
    work = search_with(metric, documents, query, len(documents), lambda buckets: np.full(len(buckets), 0.5))
    for stage in (driver.WARM_START, driver.FILTER):
        assert work.closest[stage] < SLACK
        alone = work._replace(closest=np.where(np.arange(3) == stage, work.closest, np.inf))
        name = driver.STAGES[stage]
        rule = (
            rf"^the bound of a document must be at least its score; got 0\.\d+ times its score \({name}\)\. This is a "
        )
        with pytest.raises(ExactnessError, match=rule):
            driver.require_bounds(alone)


@pytest.mark.parametrize("metric", PLANTED)
def test_broken_bounds_of_documents_that_are_dropped_are_an_error(metric):
    """All longer documents are dropped, though most are better; only the sample of what was dropped can tell."""
    documents, query = competitors()
    # Buckets are by ascending size: the first one holds the poor documents, where the bounds are honest.
    work = search_with(metric, documents, query, 3, lambda buckets: np.arange(len(buckets)) == 0)
    kept = set(work.best.document[: work.best.state[0]].tolist())
    assert len(kept) < 10
    work.closest[: driver.DROPPED] = np.inf
    rule = (
        r"^a dropped document must score below the last one listed; "
        r"got one whose score times \d\.\d+(e-05)? is that of the last one listed\. "
    )
    with pytest.raises(ExactnessError, match=rule):
        driver.require_bounds(work)


@pytest.mark.parametrize(
    ("metric", "n_stopped"),
    [
        ("bleu-2", 21),
        ("bleu-4:coco", 13),
        ("rouge-l", 60),
        ("meteor:nltk-stems", 60),
        ("cider-d", 39),
        ("radgraph", 60),
    ],
)
def test_a_search_of_one_query_notices_bounds_that_are_a_tenth_too_low(metric, n_stopped):
    """Of 60 searches of one query each none may end with a wrong list and without an error; most have an error.

    A search of one query has few scores of its own to compare with bounds: the sample has to make up for it.
    """
    texts = [report.text.replace(".", " ").lower() for report in synthesize(5000, seed=4)]
    texts = [text.split() for text in dict.fromkeys(texts)][:1260]  # nobody has a twin, which would score highest
    stopped, silent = 0, []
    index, _ = planted_index(metric, texts[60:], texts[0])
    record = METRICS[metric]
    for query in texts[:60]:
        inputs = inputs_of(metric, query)
        work = search_in(index, inputs, metric, 1, lambda buckets: np.full(len(buckets), 0.9))
        try:
            driver.require_bounds(work)
        except ExactnessError:
            stopped += 1
            continue
        encoded = index.encode(inputs)
        corpus, batch = arrays_of(record, index, encoded)
        scores = next(load_kernel(record, "cpu").score_all(corpus, batch, [0]))
        kept = sorted(work.best.document[: work.best.state[0]].tolist())
        if max(scores) > 0 and kept != np.flatnonzero(scores == max(scores)).tolist():
            silent.append(query)
    assert not silent
    assert stopped == n_stopped  # bounds of BLEU and CIDEr-D are seldom close: the other lists are right all the same


@examples(200)
@given(st.data())
def test_every_bucket_of_a_group_has_read_the_same_lists(data):
    sizes = data.draw(st.lists(st.integers(1, 3 * driver.GROUP // 4), min_size=1, max_size=9))
    ends = np.cumsum(sizes)
    buckets = np.stack([ends - sizes, ends] + [np.arange(len(sizes))] * 6, axis=1).astype(np.int64)
    n_left = data.draw(st.integers(0, len(sizes)))
    stops = data.draw(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)))
    stop = np.array(sorted(stops[:n_left]) + sorted(stops[n_left:], reverse=True), np.int64)
    reachable = np.array(data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))))
    n_lists = 6
    # One posting for each document in each list; matches beyond 255 stay 255, so few lists are counted exactly.
    every = np.arange(ends[-1], dtype=np.int32)
    posted = np.arange(n_lists + 1, dtype=np.int64) * len(every)
    nothing = np.zeros(0, np.int64)
    features = Features(
        posted, np.tile(every, n_lists), nothing, nothing.astype(np.int32), np.zeros((1, 0), np.int32),
        np.full(n_lists, -1, np.int32), np.zeros((0, 1), np.int32), nothing, nothing,
    )  # fmt: skip
    minimum = np.where(reachable, 1, n_lists + 1).astype(np.int64)
    demanded = np.zeros(len(sizes))  # the minimum of each bucket is that of the threshold 0
    count = np.repeat(stop, sizes).astype(np.uint8)
    counts = counts_of.OneFamily(count, minimum, n_lists, 3, demanded, count[:0])
    scorer = Tabled(np.zeros((len(sizes), n_lists + 1, 1)), np.zeros(len(every)), features, buckets)
    bitmaps = new_bitmaps(features)
    finished = []
    for near in data.draw(st.permutations(range(len(sizes)))):
        if stop[near] < 0 or not reachable[near]:
            continue
        lo, hi = grouped(counts, scorer, near, stop, buckets)
        assert lo <= near < hi
        assert reachable[lo]
        assert reachable[hi - 1]
        assert (stop[lo:hi] >= 0).all()
        lists = counts_of.Lists(np.arange(n_lists, dtype=np.int32), features, buckets, bitmaps)
        n_read = read_up(counts, lists, lo, hi, stop)
        assert n_read == stop[lo:hi].max()
        assert (counts.matched[buckets[lo, 0] : buckets[hi - 1, 1]] == n_read).all()
        finished += range(lo, hi)
        stop[lo:hi] = -1
    assert len(set(finished)) == len(finished)
    assert set(np.flatnonzero(reachable)) <= set(finished)


@jit
def grouped(counts, scorer, j, stop, buckets):
    return driver._group(counts, scorer, j, 0.0, stop, buckets)


@jit
def read_up(counts, lists, lo, hi, stop):
    return driver._read_up(counts, lists, lo, hi, stop)


@pytest.mark.parametrize("has_bits", [False, True])  # posting lists are never read as bits, or at once
@pytest.mark.parametrize("metric", ["bleu-2", "rouge-l", "radgraph"])
def test_buckets_of_several_groups_hold_the_best_documents(metric, has_bits):
    rng = np.random.default_rng(8)
    words = [f"w{i}" for i in range(60)]
    lengths = np.minimum(rng.geometric(0.08, 9000), 60)
    documents = list(dict.fromkeys(tuple(rng.choice(words, n, replace=metric != "radgraph")) for n in lengths.tolist()))
    assert len(documents) > 2 * driver.GROUP
    index, _ = planted_index(metric, [list(document) for document in documents], ["w0"])
    record = METRICS[metric]
    backend, n_rows = load_kernel(record, "cpu"), 0
    for document in documents[:: len(documents) // 12]:
        query = [*document[:-1], "w7", "unknown"][: 2 + len(document) // 2 * 2]
        encoded = index.encode(inputs_of(metric, query))
        corpus, batch = arrays_of(record, index, encoded)
        scores = next(backend.score_all(corpus, batch, [0])).copy()
        for k, limit in ((1, -np.inf), (7, -np.inf), (3, float(np.sort(scores)[-5]))):
            found = Answers(
                np.full((1, k), -1, np.int64), np.zeros((1, k)), np.zeros((1, k), np.int64), np.full(1, limit)
            )
            work = backend.new_workspace(corpus)
            work.bitmaps.row[:] = -(2**62)  # as if all had been read very often
            if not has_bits:
                work = work._replace(bitmaps=work.bitmaps._replace(bits=work.bitmaps.bits[:0]))
            backend.search(corpus, batch, range(1), k, found, work)
            n_rows += int(work.bitmaps.n[0])
            rows = np.argsort(-scores[index.document_of_row], kind="stable")[:k]
            expected = scores[index.document_of_row[rows]]
            assert (found.rows[0] == np.where(expected > 0, rows, -1)).all()
            assert (found.scores[0] == expected).all()
    assert (n_rows > 0) == has_bits


def test_the_sample_grows_as_queries_become_fewer():
    assert [sample_size(n) for n in (0, 1, 2, 10, 63, 64, 65, 10**6)] == [64, 64, 32, 7, 2, 1, 1, 1]


@pytest.mark.parametrize(("n", "checked"), [(1, 64), (64, 64), (300, 300), (511, 511), (512, 256), (2192, 274)])
def test_a_large_search_checks_some_of_its_queries(n, checked):
    assert sum(sample_of(q, n) for q in range(n)) == checked


@pytest.mark.parametrize("metric", ["bleu-2", "rouge-l", "meteor:nltk-stems", "cider-d", "radgraph"])
def test_a_search_with_a_broken_bound_raises(metric):
    documents, query = competitors()
    index, inputs = planted_index(metric, documents, query)
    encoded, record = index.encode(inputs), METRICS[metric]
    (corpus, batch), backend = arrays_of(record, index, encoded), load_kernel(record, "cpu")
    work = backend.new_workspace(corpus)
    found = Answers(np.empty((1, 1), np.int64), np.empty((1, 1)), np.empty((1, 1), np.int64), np.full(1, -np.inf))
    backend.search(corpus, batch, range(1), 1, found, work)
    work.closest[driver.FILTER] = 0.875
    with pytest.raises(ExactnessError, match=r"got 0\.875 times its score \(filter\)"):
        backend.search(corpus, batch, range(1), 1, found, work)


@examples(200)
@given(st.lists(st.integers(0, 12), max_size=12), st.integers(0, 14))
def test_buckets_are_visited_by_size_difference_whatever_their_order(sizes, size):
    visits = driver.new_visits(np.array(sizes, np.int64))
    driver.by_size_difference(visits, size)
    assert sorted(visits.order.tolist()) == list(range(len(sizes)))
    differences = [abs(sizes[j] - size) for j in visits.order]
    assert differences == sorted(differences)


# ---- the tie rule ----------------------------------------------------------------------------------------------------


def best_rows(scores: list[float], rows: list[list[int]], k: int) -> list[tuple]:
    """Return the first k of all rows by score and row, each with the number of rows of its score."""
    ties = Counter(score for score, of_document in zip(scores, rows, strict=True) for _ in of_document)
    order = sorted((-score, row) for score, own in zip(scores, rows, strict=True) for row in own)
    return [(row, -score, ties[-score]) for score, row in order[:k]]


def expanded(best, row_ptr, row_id, k: int) -> tuple:
    """Return rows, scores and ties of the list of one query."""
    found = Answers(np.full((1, k), -7), np.full((1, k), np.nan), np.full((1, k), -7), np.full(1, -np.inf))
    expand_list(best, row_ptr, row_id, k, found)
    return found.rows[0], found.scores[0], found.ties[0]


@jit
def expand_list(best, row_ptr, row_id, k, found):
    expand(best, row_ptr, row_id, k, found, 0)


@jit
def insert_one(document, score, row_ptr, k, best):
    insert(document, score, row_ptr, k, best)


def inserted(scores: list[float], rows: list[list[int]], k: int, orders: list[list[int]]) -> list[tuple]:
    """Return what `topk.cpu` lists, after inserting the documents in each of some orders into one and the same list."""
    row_ptr = np.cumsum([0, *map(len, rows)])
    row_id = np.array([row for own in rows for row in own], np.int64)
    best = new_best(len(scores))
    for order in orders:  # a used list is as good as a new one
        reset(best, -np.inf)
        low = -np.inf
        for document in order:
            insert_one(document, scores[document], row_ptr, k, best)
            assert low <= threshold(best, k)
            low = threshold(best, k)
        out = expanded(best, row_ptr, row_id, k)
        m = min(k, len(row_id))
        assert low == (out[1][k - 1] if m == k else -np.inf)
        for got, empty in zip(out, (-1, 0.0, 0), strict=True):
            assert (got[m:] == empty).all()
    return list(zip(*(a[:m].tolist() for a in out), strict=True))


@examples(250)
@given(
    st.lists(
        st.tuples(st.sampled_from([1.0, 0.75, 0.5, 0.5 + 2**-53, 0.1, -0.5]), st.sampled_from([1, 1, 1, 2, 3, 9])),
        max_size=40,
    ),
    st.integers(1, 90),
    st.randoms(use_true_random=False),
)
def test_documents_inserted_in_any_order_give_the_tie_rule(documents, k, rng):
    scores = [score for score, _ in documents]
    n_rows = sum(count for _, count in documents)
    shuffled = iter(rng.sample(range(2 * n_rows + 1), n_rows))
    rows = [sorted(next(shuffled) for _ in range(count)) for _, count in documents]
    orders = [rng.sample(range(len(documents)), len(documents)) for _ in range(2)]
    assert inserted(scores, rows, k, orders) == best_rows(scores, rows, k)


def test_a_floor_keeps_what_reaches_it():
    scores, row_ptr, row_id = np.array([0.5, 0.25, 0.75, 0.5, 0.25]), np.array([0, 1, 3, 4, 6, 7]), np.arange(7)
    best = new_best(5)
    for floor, listed in ((-np.inf, [3, 0, 4, 5]), (0.5, [3, 0, 4, 5]), (0.6, [3]), (0.8, [])):
        reset(best, floor)
        insert_all(scores, row_ptr, 4, best)
        assert threshold(best, 4) == max(floor, 0.5)
        out = expanded(best, row_ptr, row_id, 4)
        assert out[0].tolist() == listed + [-1] * (4 - len(listed))
        assert out[2].tolist() == [1, 3, 3, 3][: len(listed)] + [0] * (4 - len(listed))


def test_a_document_of_many_rows_puts_out_all_that_it_beats():
    best = new_best(4)
    reset(best, -np.inf)
    insert_all(np.array([0.25, 0.5, 0.75, 1.0]), np.array([0, 1, 2, 3, 6]), 3, best)
    assert threshold(best, 3) == 1.0


@pytest.mark.parametrize("n_scores", [1, 3, 200_000])
@pytest.mark.parametrize("k", [1, 1000, 150_000, 185_538])
def test_long_lists_and_many_ties_cost_n_log_n(k, n_scores):
    """Shifting an array took 7 s for k = n of 185,538; this takes tens of milliseconds, compiled."""
    n = 185_538
    rng = np.random.default_rng(k)
    scores = rng.integers(n_scores, size=n).astype(np.float64)
    row_ptr, row_id = np.arange(n + 1), rng.permutation(n)
    best = new_best(n)
    insert_all(scores[:9], row_ptr, k, best)
    reset(best, -np.inf)
    started = time.thread_time()
    insert_all(scores, row_ptr, k, best)
    out = expanded(best, row_ptr, row_id, k)
    assert time.thread_time() - started < 2
    order = sorted(zip((-scores).tolist(), row_id.tolist(), strict=True))[:k]
    assert out[0].tolist() == [row for _, row in order]
    assert out[1].tolist() == [-score for score, _ in order]


@jit
def insert_all(scores, row_ptr, k, best):
    for document in range(len(scores)):
        insert(document, scores[document], row_ptr, k, best)


@examples(150)
@given(st.lists(st.tuples(st.sampled_from([1.0, 0.5, 0.0, -0.5]), st.integers(1, 4)), max_size=30), st.integers(1, 70))
def test_select_sorts_rows_by_score_then_row(units, k):
    row_ptr = np.cumsum([0] + [count for _, count in units])
    rows = random.Random(k).sample(range(200), int(row_ptr[-1]))
    row_id = np.array([row for u in range(len(units)) for row in sorted(rows[row_ptr[u] : row_ptr[u + 1]])], np.int64)
    scores = np.array([score for score, _ in units])
    score_of = {int(row_id[p]): units[u][0] for u in range(len(units)) for p in range(row_ptr[u], row_ptr[u + 1])}
    order = sorted(score_of, key=lambda row: (-score_of[row], row))[:k]
    ties = Counter(score_of.values())
    got_rows, got_scores, got_ties = select(np.arange(len(units)), scores, row_ptr, row_id, k)
    assert got_rows.tolist() == order
    assert got_scores.tolist() == [score_of[row] for row in order]
    assert got_ties.tolist() == [ties[score_of[row]] for row in order]
