"""Cosines of vectors: bounds by codes and float32 products, what happens when one is broken, tiles, labels."""

from functools import partial

import numpy as np
import pytest

from metric_oracle.base.errors import ExactnessError, InputError
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Corpus
from metric_oracle.indexes.embeddings import EmbeddingDocuments
from metric_oracle.indexes.labels import LabelDocuments
from metric_oracle.indexes.store import map_file, write_files
from metric_oracle.kernels._errors import check_bounds
from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._simd import dot
from metric_oracle.kernels.chexbert_labels import cpu as labels_cpu
from metric_oracle.kernels.chexbert_labels.reference import score as label_score
from metric_oracle.kernels.contract import Answers, read_only
from metric_oracle.kernels.cosine import cpu, cuda
from metric_oracle.kernels.cosine.codes import (
    BLOCK,
    WIDEST,
    code_error,
    make_codes,
    off_unit,
    pack_codes,
    principal_directions,
    skew_of,
    unit_vectors,
)
from metric_oracle.kernels.cosine.reference import score
from metric_oracle.metrics import METRICS
from metric_oracle.retrieval.kernels import arrays_of
from metric_oracle.sources.contract import Attachment

CHEXBERT = METRICS["chexbert"]


def adversarial_vectors(rng: np.random.Generator, width: int) -> np.ndarray:
    """Return vectors whose products round badly: cancelling parts, single axes, wild ranges, near-equal directions."""
    base = rng.standard_normal(width)
    signs = np.where(np.arange(width) % 2, -1.0, 1.0)
    wild = np.exp(rng.uniform(-30, 30, (4, width))) * rng.choice((-1, 1), (4, width))
    near = base + rng.standard_normal((12, width)) * 10.0 ** -rng.integers(1, 9, (12, 1))
    rows = [base, -base, base * signs, signs, np.ones(width), np.full(width, 1 / 3), base * 1e-30, base * 1e30]
    return np.vstack([*rows, *wild, *near, *np.eye(width)[:3], *(np.eye(width)[:3] + 1e-4 * base)]).astype(np.float32)


def inputs(vectors: np.ndarray, of_row: np.ndarray | None = None, kind: str = "chexbert") -> Reports:
    return Reports([], [], attached={kind: Attachment(vectors, np.arange(len(vectors)) if of_row is None else of_row)})


def stored(given: Reports, folder, kind: str = "chexbert") -> EmbeddingDocuments:
    """Return the index of vectors, saved and opened."""
    (folder / kind).mkdir()
    write_files(folder / kind, EmbeddingDocuments.build(kind, Corpus(given, [], np.empty(0))).files())
    return EmbeddingDocuments.load(kind, {path.name: map_file(path) for path in (folder / kind).iterdir()})


def searched(corpus, batch, k, blocks=4):
    """Return the answers for all queries, some at a time with one workspace, and the stages."""
    n = len(batch.vectors)
    answers = Answers(np.full((n, k), -7), np.full((n, k), np.nan), np.full((n, k), -7), np.full(n, -np.inf))
    backend = cpu.Backend()
    workspace = backend.new_workspace(corpus)
    for first in range(0, n, blocks):
        backend.search(corpus, batch, range(n)[first : first + blocks], k, answers, workspace)
    return answers, backend.stages([workspace])


def expected(index, query, n_rows, k):
    """Return rows, scores and ties of one query by brute force."""
    scores = np.empty(len(index.vectors))
    cpu.score_documents(np.arange(len(scores)), query, index.vectors, scores)
    of_row = scores[index.document_of_row]
    assert len(of_row) == n_rows
    order = np.lexsort((np.arange(n_rows), -of_row))[:k]
    return order.tolist(), of_row[order].tolist(), [int((of_row == of_row[row]).sum()) for row in order]


# ---- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3, 13, 64, 768, 1027])
def test_screen_error_bounds_the_float32_product(width):
    rng = np.random.default_rng(width)
    units = unit_vectors(np.vstack([adversarial_vectors(rng, width) for _ in range(3)]))
    wide = units.astype(np.longdouble)  # products of float32 are exact in it, sums nearly so
    norms = np.sqrt((wide * wide).sum(axis=1))
    assert np.abs(norms - 1).max() <= off_unit(width)
    exact = (wide @ wide.T) / np.outer(norms, norms)
    forwards = np.zeros((len(units), len(units)), np.float32)
    for j in range(width):  # plain float32 sums from the left, the worst order
        forwards += np.outer(units[:, j], units[:, j])
    in_lanes = np.array([[product(a, b) for b in units] for a in units[:9]])
    for products in (forwards, units @ units.T, (units[:1] @ units.T), in_lanes):
        assert np.abs(products - exact[: len(products)]).max() <= cpu.screen_error(width)
    scored = np.empty(len(units))
    cpu.score_documents(np.arange(len(units)), units[0], units, scored)
    assert np.abs(scored - exact[0]).max() < 1e-13
    assert cpu.screen_error(width) < 1.2e-6 + width * 6.1e-8  # a bound that lets everything pass would screen nothing


@pytest.mark.parametrize("width", [1, 2, 13, 63, 64, 768])
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_codes_bound_cosines(width, turned):
    rng = np.random.default_rng(width)
    units = unit_vectors(np.vstack([adversarial_vectors(rng, width) for _ in range(9)]))
    corpus = unit_vectors(rng.standard_normal((300, width)).astype(np.float32)) if turned else units
    basis = principal_directions(corpus)  # for the turned ones of other vectors, so that much is left out
    assert basis.shape == (width, min(width, 63))
    codes, measured = make_codes(units, basis)
    packed, of_packed = pack_codes(units, basis)
    assert of_packed == measured
    assert packed.shape == (-(-len(units) // BLOCK), codes.shape[1], BLOCK)
    np.testing.assert_array_equal(packed.transpose(0, 2, 1).reshape(-1, codes.shape[1])[: len(units)], codes)
    assert not packed.transpose(0, 2, 1).reshape(-1, codes.shape[1])[len(units) :].any()
    assert measured.leak < 1e-6
    assert 1 - 1e-6 < measured.length < 1 + 1e-6
    wide_basis = basis.astype(np.longdouble)
    residual = units.astype(np.longdouble) - codes[:, :-1].astype(np.longdouble) @ wide_basis.T
    assert (np.sqrt((residual * residual).sum(axis=1)) <= codes[:, -1]).all()
    assert np.sqrt(((residual @ wide_basis) ** 2).sum(axis=1)).max() <= measured.leak
    assert np.linalg.norm((wide_basis.T @ wide_basis - np.eye(basis.shape[1])).astype(float), 2) <= skew_of(basis)
    both = np.array([skew_of(basis), *measured])
    sides = (cpu.UnitVectors(units, some, both, None, None) for some in (packed, codes))
    error = cpu.screen_errors(*sides)
    assert code_error(skew_of(basis), measured, measured) < error[0] < 1e-5
    wide = units.astype(np.longdouble)
    norms = np.sqrt((wide * wide).sum(axis=1))
    exact = (wide @ wide.T) / np.outer(norms, norms)
    n_blocks = len(packed)
    for n in (1, 5, 6, 7, 32):
        bounds = np.full((n, n_blocks + 1, BLOCK), np.nan, np.float32)
        greatest = np.full((n_blocks, n + 2), np.nan, np.float32)
        cpu.multiply_codes(packed, codes[:n], bounds, greatest)
        assert (greatest[:, :n] == bounds[:, :n_blocks].max(axis=2).T).all()
        above = bounds[:, :n_blocks].reshape(n, -1)[:, : len(units)] - exact[:n]
        assert above.min() >= -error[0]
        if width <= 63:
            assert above.max() <= error[0]  # nothing is left out
    for n in (1, 3, 15, 16, 63, 64, 65, width):
        a, b = units[:2, :n].copy() if n <= width else rng.standard_normal((2, n)).astype(np.float32)
        assert abs(product(a, b) - (a.astype(np.longdouble) * b).sum()) <= (n + 2) * 2.0**-24 * np.abs(a * b).sum()


@jit
def product(a, b):
    return dot(a.ctypes.data, b.ctypes.data, len(a))


# ---- searches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 13, 768])
@pytest.mark.parametrize("spread", [1e-7, 3e-7, 1e-5, 1.0])
def test_screened_search_among_vectors_too_close_for_float32(width, spread, tmp_path):
    rng = np.random.default_rng(7)
    base = rng.standard_normal(width)
    vectors = (base + spread * rng.standard_normal((900, width))).astype(np.float32)
    vectors[850:] = vectors[:50]
    vectors[800:850] *= 2
    asked = np.vstack([vectors[:5], base + spread * rng.standard_normal((5, width)), -vectors[:1]]).astype(np.float32)
    index = stored(inputs(vectors), tmp_path)
    encoded = index.encode(inputs(asked))
    for k in (1, 3, 40):
        answers, stages = searched(*arrays_of(CHEXBERT, index, encoded), k)
        closest = stages.pop("closest_call")
        assert sum(stages.values()) == pytest.approx(1)
        assert closest.keys() == {"codes", "float32"}
        assert min(closest.values()) >= 0
        assert closest["float32"] <= 2 * cpu.screen_error(width)
        for q, query in enumerate(encoded.vectors):
            got = [a[q].tolist() for a in answers[:3]]
            assert got == list(expected(index, query, 900, k))


@pytest.mark.parametrize(("tile", "waiting"), [(1, 1), (2, 70), (3, 1 << 10)])
def test_tiles_and_queues_of_any_size_give_the_same_answers(tile, waiting, tmp_path, monkeypatch):
    new_workspace = cpu.new_workspace
    rng = np.random.default_rng(3)
    vectors = np.round(rng.standard_normal((700, 5))).astype(np.float32)
    vectors[~vectors.any(axis=1)] = 1
    of_row = rng.integers(-1, 700, 900)
    index = stored(inputs(vectors, of_row), tmp_path)
    encoded = index.encode(inputs(rng.standard_normal((70, 5)).astype(np.float32)))
    corpus, batch = arrays_of(CHEXBERT, index, encoded)
    assert 64 < len(corpus.vectors) < 700
    for k in (1, 4, len(corpus.row_id)):
        whole, _ = searched(corpus, batch, k, 70)  # more queries than share a pass
        with monkeypatch.context() as patch:
            small = partial(new_workspace, tile=tile, waiting=waiting)
            patch.setattr(cpu, "new_workspace", small)
            tiled, _ = searched(corpus, batch, k, 7)
        for one, two in zip(whole[:3], tiled[:3], strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("width", [1, 5, 2500])
def test_embeddings_of_any_width(width, tmp_path):
    rng = np.random.default_rng(width)
    vectors = rng.standard_normal((150, width)).astype(np.float32)
    of_row = np.r_[np.arange(150), -1, 3, 3]
    index = stored(inputs(vectors, of_row, "embedding"), tmp_path, "embedding")
    assert index.kind == "embedding"
    assert index.basis.shape == (width, min(width, 63))
    encoded = index.encode(inputs(np.vstack([vectors[:3], -vectors[:1]]), kind="embedding"))
    rows = np.flatnonzero(of_row >= 0)
    for k in (1, 9):
        answers, _ = searched(*arrays_of(CHEXBERT, index, encoded), k)
        for q, query in enumerate(encoded.vectors):
            exact = np.empty(len(index.vectors))
            cpu.score_documents(np.arange(len(exact)), query, index.vectors, exact)
            assert exact[-1] == score(index.vectors[-1], query)[0]
            scores = exact[index.document_of_row[rows]]
            order = np.lexsort((rows, -scores))[:k]
            assert answers.rows[q].tolist() == rows[order].tolist()
            assert answers.scores[q].tolist() == scores[order].tolist()


def test_score_all_is_within_its_error(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    vectors = adversarial_vectors(rng, 300)
    index = stored(inputs(vectors), tmp_path)
    encoded = index.encode(inputs(vectors[::-1]))
    (corpus, batch), backend = arrays_of(CHEXBERT, index, encoded), cpu.Backend()
    chosen = np.r_[3, np.arange(len(encoded.vectors))]
    monkeypatch.setattr(cpu, "CELLS", 0)
    monkeypatch.setattr(cpu, "CHUNK", 7)
    for q, scores in zip(chosen, backend.score_all(corpus, batch, chosen), strict=True):
        pairs = np.full(len(vectors := index.vectors), q), np.arange(len(vectors))
        exact = backend.score_pairs(corpus, batch, *pairs)[0]
        assert exact.tolist() == [score(v, encoded.item(q))[0] for v in index.vectors]
        assert np.abs(scores - exact).max() <= backend.score_error(corpus, batch) < 1e-12


def test_the_workspace_does_not_grow_with_the_corpus():
    sizes = [sum(a.nbytes for a in cpu.new_workspace(n)[0]) for n in (1, 10_000_000)]
    assert sizes[0] == sizes[1] < 2e6


def test_vectors_too_wide_for_the_bounds():
    wide = np.ones((1, WIDEST + 1), np.float32)
    rule = (
        r"^embeddings must have at most 65536 numbers each, for which the bounds of a search are proven; "
        r"got 65537\. Reduce their width"
    )
    with pytest.raises(InputError, match=rule):
        EmbeddingDocuments.build("chexbert", Corpus(inputs(wide), [], np.empty(0)))


# ---- broken bounds ---------------------------------------------------------------------------------------------------


@pytest.fixture
def planted(tmp_path):
    """Return a corpus, queries that are its vectors, and the codes of the corpus, which can be changed."""
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((600, 40)).astype(np.float32)
    index = stored(inputs(vectors), tmp_path)
    encoded = index.encode(inputs(vectors[:20]))
    corpus, batch = arrays_of(CHEXBERT, index, encoded)
    codes = corpus.codes.copy()
    return corpus._replace(codes=read_only(codes)), batch, codes


def broken(stage):
    advice = r"\. This is a defect: please report it with the index fingerprint\.$"
    return rf"^the bound of stage '{stage}' must not lie below a score; got one \S+ below" + advice


def test_bound_by_codes_below_the_score_of_a_document_that_is_scored_all_the_same(planted):
    corpus, batch, codes = planted
    searched(corpus, batch, 600)
    codes[2, :, 7] *= 0.99  # of one document of 600, while fewer than k rows are known
    with pytest.raises(ExactnessError, match=broken("codes")):
        searched(corpus, batch, 600)


def test_bound_by_codes_below_the_scores_of_many_dropped_documents(planted):
    corpus, batch, codes = planted
    rows = searched(corpus, batch, 1)[0].rows
    codes[:, :, ::2] = 0
    with pytest.raises(ExactnessError, match=broken("codes")):
        searched(corpus, batch, 1)
    assert (rows[:, 0] == np.arange(20)).all()


def test_a_search_of_one_query_notices_bounds_of_a_tenth_of_the_documents(planted):
    """Each of 20 queries alone: of 64 documents in the sample one of these is, but once in 1,000 searches."""
    corpus, batch, codes = planted
    codes[:, :, ::10] = 0
    for q in range(20):
        alone = batch._replace(vectors=batch.vectors[q : q + 1], codes=batch.codes[q : q + 1])
        with pytest.raises(ExactnessError, match=broken("codes")):
            searched(corpus, alone, 1)


def test_float32_bound_below_the_score_of_a_document_that_is_scored_all_the_same(planted, monkeypatch):
    corpus, batch, _ = planted
    error = cpu.screen_errors(corpus, batch)
    monkeypatch.setattr(cpu, "screen_errors", lambda *_: error - [0, 1e-3])
    with pytest.raises(ExactnessError, match=broken("float32")):
        searched(corpus, batch, 1)


def test_documents_dropped_by_float32_products_are_scored_in_a_sample(planted):
    corpus, batch, _ = planted
    error = cpu.screen_errors(corpus, batch)
    workspace, bests = cpu.new_workspace(len(corpus.vectors))
    one = cpu.OneQuery(0, 0, batch.vectors[0], batch.codes[0], cpu.best_of(bests, 0))
    screen = cpu.Screen(corpus, error, 8, 1)
    dropped = workspace._replace(least=np.full(cpu.QUERIES, 0.99), dropped=np.zeros((cpu.QUERIES, 2), np.int64))
    for document, n_missed in ((1, 0), (0, 1)):  # document 0 is query 0 itself
        dropped.dropped[0] = 1, document
        cpu._check_dropped(one, screen, dropped)
        assert dropped.missed[0] == n_missed
    assert dropped.closest.min() >= 0
    dropped.dropped[:] = 0
    dropped.least[:] = -2.0  # everything should have been listed, and nothing was
    cpu._check_dropped(one, screen, dropped)
    assert dropped.missed[0] == 1 + 8
    n_sampled = len(corpus.vectors) // cpu.PAIRS + 8
    sampled = [cpu._random(s) % len(corpus.vectors) for s in range(n_sampled)]
    scores = [cpu.exact_cosine(document, batch.vectors[0], corpus.vectors) for document in sampled]
    dropped.least[:] = max(scores)  # a tie of the k-th best row is listed too
    n_missed = int(dropped.missed[0])
    cpu._check_dropped(one, screen, dropped)
    assert dropped.missed[0] == n_missed + scores.count(max(scores))
    dropped.missed[0] = n_missed
    with pytest.raises(ExactnessError, match=r"^no dropped candidate must score among the best; got 9 of a "):
        check_bounds({}, int(dropped.missed[0]))


def test_bounds_that_are_no_numbers_are_broken():
    check_bounds({"a": 0.0, "b": 1.0})
    with pytest.raises(ExactnessError, match=r"^the bound of stage 'b' must not lie below a score; got one nan"):
        check_bounds({"a": 0.0, "b": float("nan")})


@pytest.mark.parametrize("part", ["product", "document"])
def test_broken_products_of_a_gpu(planted, monkeypatch, part):
    corpus, batch, _ = planted

    def nearest(corpus, queries, n):
        products = queries @ corpus.vectors.T
        if part == "product":
            products[:, 3] -= 0.5
            products[:, 3] = np.maximum(products[:, 3], 0.9)  # document 3 is listed with too low a product for itself
        else:
            products[:, :590] = -1  # most documents are never returned
        order = np.argsort(-products, axis=1, kind="stable")[:, :n]
        return np.take_along_axis(products, order, axis=1), order

    monkeypatch.setattr(cuda, "nearest", nearest)
    n = len(batch.vectors)
    answers = Answers(np.full((n, 1), -7), np.full((n, 1), np.nan), np.full((n, 1), -7), np.full(n, -np.inf))
    rule = broken("float32") if part == "product" else r"^no dropped candidate must score among the best; got"
    with pytest.raises(ExactnessError, match=rule):
        cuda.Backend().search(corpus, batch, range(n), 1, answers, None)


# ---- labels ----------------------------------------------------------------------------------------------------------


def labels(classes, uncertain: str) -> Reports:
    classes = np.array(classes, np.uint8)
    return Reports([], [], attached={"labels": Attachment(classes, np.arange(len(classes)), {"uncertain": uncertain})})


@pytest.mark.parametrize(
    ("uncertain", "values"), [("positive", [0, 1, -1, 1]), ("negative", [0, 1, -1, -1]), ("blank", [0, 1, -1, 0])]
)
def test_what_the_four_classes_count_as(uncertain, values):
    classes = np.zeros((4, 14), np.uint8)
    classes[:, 0], classes[:, 13] = (0, 1, 2, 3), 1  # blank, positive, negative, uncertain; one that differs from all
    index = LabelDocuments.build("labels", Corpus(labels(classes, uncertain), [], np.empty(0)))
    assert index.vectors[index.document_of_row][:, 0].tolist() == values
    assert index.vectors[index.document_of_row][:, 13].tolist() == [1, 1, 1, 1]
    assert len(index.vectors) == 3
    encoded = index.encode(labels(classes[::-1], uncertain))
    assert encoded.vectors[encoded.document_of_row][:, 0].tolist() == values[::-1]


def test_equal_cosines_of_labels_are_equal_numbers():
    corpus = np.zeros((4, 14), np.uint8)
    corpus[0, :9], corpus[1, 0], corpus[2, :9], corpus[3, 0] = 1, 1, 2, 2  # 3 / sqrt(27) = 1 / sqrt(3), and negative
    query = np.zeros((2, 14), np.uint8)
    query[0, :3] = 1
    index = LabelDocuments.build("labels", Corpus(labels(corpus, "blank"), [], np.empty(0)))
    encoded = index.encode(labels(query, "blank"))
    backend = labels_cpu.Backend()
    given, batch = arrays_of(METRICS["chexbert:labels"], index, encoded)
    answers = Answers(np.full((2, 4), -7), np.full((2, 4), np.nan), np.full((2, 4), -7), np.full(2, -np.inf))
    backend.search(given, batch, range(2), 4, answers, backend.new_workspace(given))
    root = np.sqrt(1 / 3)
    assert answers.rows[0].tolist() == [0, 1, 2, 3]
    assert answers.scores[0].tolist() == [root, root, -root, -root]
    assert answers.ties[0].tolist() == [2] * 4
    assert answers.scores[1].tolist() == [0.0] * 4  # all blank
    assert not np.signbit(answers.scores[1]).any()
    for q in range(2):
        documents = np.arange(4)
        expected = [label_score(index.item(d), encoded.item(q))[0] for d in documents]
        assert backend.score_pairs(given, batch, np.full(4, q), documents)[0].tolist() == expected
        assert next(backend.score_all(given, batch, [q])).tolist() == expected
