"""Every source by every route: the same answers, whichever way what a metric reads in addition to the text comes."""

import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.bench import timing as bench
from metric_oracle.metrics import METRICS, SOURCES
from metric_oracle.retrieval.building import SharedSources
from metric_oracle.sources import availability
from metric_oracle.tables.study import oracle_name
from support import write
from support.sources import CASES, Case, stand_in

pytestmark = pytest.mark.usefixtures("fake_encoder", "models")

WORDS = ("no", "mild", "edema", "effusion", "stable", "left")
STATES = "bertscore"  # token states: an encoder makes them, and no file holds them
MADE = [name for name, case in CASES.items() if case.model]
QUIET = {"tell": lambda line: None}


@pytest.fixture(scope="module")
def models():
    """Put stand-ins in the place of RadGraph, CheXbert and RaTEScore's models."""
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        patch.setattr(availability, "find_spec", lambda library: library)  # the stand-ins need none
        yield


def reports(n, seed):
    """Return texts by id, many of them equal; ids in another order than places."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, size)) for size in rng.integers(1, 6, max(n // 2, 1))]
    return {f"s{7 * i % n}": texts[int(which)] for i, which in enumerate(rng.integers(0, len(texts), n))}


TRAIN, TEST = reports(61, 1), reports(9, 2)


class World:
    """A source with the index of its corpus, made in memory, and its files."""

    def __init__(self, case: Case, folder: Path):
        self.case, self.metric = case, case.metric
        self.folder = folder
        self.train = write(folder / "train.csv", TRAIN)
        self.test = write(folder / "test.csv", TEST)
        # Dicts of functions' values by id are what is in memory.
        self.memory = [{**self._by_id(side), **case.settings} for side in (TRAIN, TEST)]
        self.files = [
            case.file(folder / name, [*side], [*side.values()]) for name, side in (("train", TRAIN), ("test", TEST))
        ]
        self.index = mo.build_index(mo.reports(TRAIN, **self.memory[0], **QUIET), folder / "I", metrics=self.metric)
        self.queries = mo.reports(TEST, **self.memory[1]).load()
        self.wanted = self.answers(self.index, self.queries)

    def _by_id(self, side):
        made = self.case.make([*side.values()])
        if self.case.argument in ("labels", "srr_labels"):
            return {self.case.argument: [{"study_id": i, **row} for i, row in zip(side, made, strict=True)]}
        rows = made.values() if isinstance(made, dict) else made
        return {self.case.argument: dict(zip(side, rows, strict=True))}

    def answers(self, index, queries):
        return mo.retrieve(index, queries, self.metric, k=5, text=False).table

    def is_right(self, index, queries=None):
        assert self.answers(index, self.queries if queries is None else queries).equals(self.wanted)


@pytest.fixture(scope="module", params=CASES)
def world(request, tmp_path_factory):
    return World(CASES[request.param], tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module", params=MADE)
def made(request, tmp_path_factory):
    return World(CASES[request.param], tmp_path_factory.mktemp(request.param))


def test_every_source_is_here():
    assert {*CASES, STATES} == {source.name for source in SOURCES.values() if source.made != "pairs"}


def test_answers_say_something(world):
    scores = world.wanted["score"].to_numpy()
    assert len(np.unique(scores)) > 1
    assert (world.wanted["n_ties"].to_numpy() > 1).any()


def test_files(world, tmp_path):
    train, test = world.files
    index = mo.build_index(mo.reports(world.train, **train, **QUIET), tmp_path / "I", metrics=world.metric)
    assert index.fingerprint == world.index.fingerprint
    world.is_right(index, mo.reports(world.test, **test).load())


def test_functions(world, tmp_path):
    given = world.case.function()
    world.is_right(
        mo.build_index(mo.reports(world.train, **given, **QUIET), tmp_path / "I", metrics=world.metric),
        mo.reports(world.test, **given).load(),
    )


def test_models(made, tmp_path):
    given = made.case.models(tmp_path)
    index = mo.build_index(mo.reports(made.train, **given, **QUIET), tmp_path / "I", metrics=made.metric)
    made.is_right(index, mo.reports(made.test, **given).load())
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".part")]


def test_a_prepared_folder(world, tmp_path):
    prepared = mo.build_index(world.queries, tmp_path / "TESTS", metrics=world.metric).folder
    world.is_right(world.index, mo.reports(prepared).load())
    again = mo.build_index(mo.reports(world.index, **QUIET), tmp_path / "I", metrics=world.metric)
    world.is_right(again)


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "cut"])
def test_shard_sets(world, tmp_path, is_streamed):
    """A file of reports is read in pieces; reports in memory are cut."""
    corpus = world.train if is_streamed else mo.read_reports(world.train)
    many = mo.build_index(
        mo.reports(corpus, **world.files[0], **QUIET), tmp_path / "SET", metrics=world.metric, shard_rows=17
    )
    assert many.n_shards == 4
    world.is_right(many)


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "cut"])
def test_shard_sets_by_a_model(made, tmp_path, is_streamed):
    corpus = made.train if is_streamed else mo.read_reports(made.train)
    given = made.case.models(tmp_path)
    many = mo.build_index(mo.reports(corpus, **given, **QUIET), tmp_path / "SET", metrics=made.metric, shard_rows=17)
    made.is_right(many, mo.reports(made.test, **given).load())


def test_what_a_worker_gets(world):
    """Files are read once, in the process that asks; a worker on another machine need not see them."""
    models = dict(world.case.settings)
    files = {name: value for name, value in world.files[0].items() if name not in models}
    shared = pickle.loads(pickle.dumps(SharedSources(files, models, {})))
    some = mo.read_reports(world.train)
    run = mo.Reports(some.ids[5:9], some.texts[5:9], "")
    found = shared.inputs(run, True).attached
    wanted = mo.reports(TRAIN, **world.memory[0]).load().take(np.arange(5, 9)).attached
    assert found.keys() == wanted.keys()
    for kind, attachment in found.items():
        assert len(attachment.of_row) == 4
        assert attachment.settings == wanted[kind].settings
        own = getattr(attachment.values, "ids", getattr(attachment.values, "keys", attachment.values))
        assert len(own() if callable(own) else own) <= 4


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_ray(world, tmp_path):
    corpus, ray = mo.reports(world.train, **world.files[0], **QUIET), {"runner": "ray", "address": "local"}
    many = mo.build_index(corpus, tmp_path / "SET", metrics=world.metric, shard_rows=17, **ray)
    world.is_right(many)
    found = mo.retrieve(
        many, world.queries, world.metric, k=5, text=False, options=mo.SearchOptions(runner="ray", address="local")
    ).table
    assert found.equals(world.wanted)


def test_scores_of_both_sides(world):
    train, test = world.files
    some = dict(zip(TEST, TRAIN.values(), strict=False))
    (argument,) = {*train} - {*world.case.settings}
    predicted = world.case.file(world.folder / "predicted", [*some], [*some.values()])[argument]
    found = mo.score(mo.reports(world.test, **test), mo.reports(some, **{argument: predicted}), world.metric)
    wanted = _matrix(world.case, some, TEST, world.metric)
    assert found.table[world.metric].to_pylist() == np.diag(wanted).tolist()


def _matrix(case, hypotheses, references, metric):
    written, truth = mo.reports(hypotheses, **{case.argument: case.make}), mo.reports(references, **case.function())
    return mo.pairwise(written, metric, truth)


def test_rewards(world):
    truth, written = [*TEST.values()], [*TRAIN.values()][: len(TEST)]
    sign = 1 if METRICS[world.metric].higher_is_better else -1
    wanted = (sign * np.diag(_matrix(world.case, written, truth, world.metric))).tolist()
    rewarded = mo.reward(world.metric, sources=world.case.function())
    for _ in range(2):  # what was made of references is kept
        assert rewarded(completions=written, reference=truth) == wanted


def test_rewards_by_a_model(made, tmp_path):
    truth, written = [*TEST.values()], [*TRAIN.values()][: len(TEST)]
    wanted = mo.reward(made.metric, sources=made.case.function())(completions=written, reference=truth)
    assert mo.reward(made.metric, sources=made.case.models(tmp_path))(completions=written, reference=truth) == wanted


def test_studies(world):
    """What a model wrote comes with its source, under the names of one side."""
    some = dict(zip(TEST, TRAIN.values(), strict=False))
    files = world.case.file(world.folder / "model", [*some], [*some.values()])
    files = {name: value for name, value in files.items() if name not in world.case.settings}
    found = mo.study(world.index, world.queries, {"m": mo.reports(some, **files)}, metrics=world.metric)
    wanted = _matrix(world.case, some, TEST, world.metric)
    assert found["m"].table[world.metric].to_pylist() == np.diag(wanted).tolist()
    best = found[oracle_name(world.metric)].table[world.metric].to_numpy()
    assert np.array_equal(best, world.wanted["score"].to_numpy()[::5])


def test_studies_from_the_command_line(world, oracle, named, tmp_path):
    some = dict(zip(TEST, TRAIN.values(), strict=False))
    (argument,) = {*world.files[1]} - {*world.case.settings}
    own = world.case.file(tmp_path / "model", [*some], [*some.values()])[argument]
    written = write(tmp_path / "model.csv", some)
    named("humans", world.test, **{argument: world.files[1][argument]}, **world.case.settings)
    named("m", written, **{argument: own})
    code, _, err = oracle("study", world.index.folder, "humans", "m", "-m", world.metric, "--out", tmp_path / "STUDY")
    assert code == 0, err
    found = mo.read_scores(tmp_path / "STUDY/m.parquet").table[world.metric].to_pylist()
    assert found == np.diag(_matrix(world.case, some, TEST, world.metric)).tolist()


def test_one_query_of_the_benchmark(world):
    for i in (0, len(TEST) - 1):
        alone = bench.alone(world.queries, i)
        wanted = world.answers(world.index, world.queries.take(np.array([i])))
        assert world.answers(world.index, alone).equals(wanted)
        attachment = alone.attached[next(iter(alone.attached))]
        assert attachment.of_row.tolist() == [0]


def test_annotations(made, tmp_path):
    """The file that a model's answers are written into stands in its place."""
    given = made.case.models(tmp_path)
    name = next(name for name in given if name not in made.case.settings)
    ending = {"entities": ".parquet"}.get(name, made.case.ending)
    out = tmp_path / f"test{ending}"
    own = {name: given[name]}
    mo.annotate(mo.reports(made.test, **own, **QUIET), out)
    files = {made.case.argument: out, **made.case.settings}
    made.is_right(made.index, mo.reports(made.test, **files).load())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [out.name, f"{out.name}.signature.json", given[name].name]
    )


def test_token_states(tmp_path):
    """An encoder makes them: of the corpus, of queries, of a prepared set, of each shard, and for a reward."""
    index = mo.build_index(mo.reports(TRAIN, encoder="fake", **QUIET), tmp_path / "I", metrics=STATES)
    queries = mo.reports(TEST).load()

    def answers(index, queries):
        return mo.retrieve(index, queries, STATES, k=5, text=False).table

    wanted = answers(index, queries)
    prepared = mo.reports(
        mo.build_index(mo.reports(TEST, encoder="fake", **QUIET), tmp_path / "T", metrics=STATES).folder
    ).load()
    assert answers(index, prepared).equals(wanted)
    one = answers(index, queries.take(np.array([3])))
    for some in (queries, prepared):
        assert answers(index, bench.alone(some, 3)).equals(one)
    corpus = write(tmp_path / "train.csv", TRAIN)
    for reports in (corpus, mo.read_reports(corpus)):
        out = tmp_path / type(reports).__name__
        many = mo.build_index(mo.reports(reports, encoder="fake", **QUIET), out, metrics=STATES, shard_rows=17)
        assert answers(many, queries).equals(wanted)
    truth, written = [*TEST.values()], [*TRAIN.values()][: len(TEST)]
    pairs = np.diag(mo.pairwise(written, STATES, mo.reports(truth, encoder="fake"))).tolist()
    assert mo.reward(STATES, sources={"encoder": "fake"})(completions=written, reference=truth) == pairs
    found = mo.study(index, queries, {"m": mo.reports(dict(zip(TEST, written, strict=True)))}, metrics=STATES)
    assert found["m"].table[STATES].to_pylist() == pairs
