"""Token states on disk and queries against them, with the stand-in for an encoder of `conftest.py`: no model."""

import json
import math
import os
import re
import shutil
import signal
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, IndexFormatError, InputError
from metric_oracle.corpora.reports import Reports
from metric_oracle.encoders.token_states import encode, write_states
from metric_oracle.indexes import bertscore
from metric_oracle.indexes import build as index_module
from metric_oracle.indexes.bertscore import StateDocuments
from metric_oracle.indexes.shards import open_index
from metric_oracle.indexes.store import map_file, write_files
from metric_oracle.kernels.bertscore.reference import score
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.sources.token_states import OpenedEncoder, load_encoder
from metric_oracle.verification.verify import verify

pytestmark = pytest.mark.usefixtures("fake_encoder")
WORDS = ["no", "acute", "process", "heart", "normal", "lungs", "clear", ".", "effusion", "left", "right", "small"]


def made_up(n, seed=0):
    """Return texts with repeats, equal words in other spaces, an empty one and one that is too long."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(n)]
    texts[1::5] = texts[: len(texts[1::5])]
    texts[2] = texts[3].replace(" ", "  ")
    texts[4] = ""
    texts[5] = " ".join(WORDS * 3)
    return texts


TEXTS = made_up(60)
QUERIES = [text for text in made_up(12, seed=1) if text]


def corpus(**encoding):
    """Return a corpus to build for BERTScore."""
    encoder = encoding.pop("encoder", "fake")
    opened = load_encoder(encoder, **encoding)
    return Reports([f"r{i}" for i in range(len(TEXTS))], TEXTS, opened_encoder=opened)


def build(inputs, out):
    return index_module.build_index(inputs, out, metrics=["bertscore"])


@pytest.fixture(scope="module")
def built(fake_encoder, tmp_path_factory):
    """Return an index that no test may change."""
    return build(corpus(), tmp_path_factory.mktemp("built") / "I")


def queries(*texts, encoder=None):
    return Reports([f"q{i}" for i in range(len(texts))], list(texts), encoder=encoder)


def everything(folder):
    """Return the content of all files under a folder."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def opened(index) -> StateDocuments:
    return index.representation(get_metric("bertscore"))


# What an index holds


def test_states_are_those_of_the_encoder(built, fake_encoder):
    index = opened(built)
    encoder = fake_encoder("fake")
    tokens = encoder.tokenize(TEXTS)
    states = encode(encoder, tokens)
    for row in range(len(TEXTS)):
        some, unit = slice(tokens.ptr[row], tokens.ptr[row + 1]), index.document_of_row[row]
        of_unit = slice(index.ptr[unit], index.ptr[unit + 1])
        assert index.ids[of_unit].tolist() == tokens.ids[some].tolist()
        assert index.states[of_unit].tobytes() == states[some].tobytes()
        item = index.item(unit)
        assert item.states.tobytes() == states[some].tobytes()
        assert item.ids.tolist() == tokens.ids[some].tolist()
        weight_of_id = index.encode(queries(TEXTS[row]), wordless=True).weight_of_id
        assert weight_of_id[item.ids].tolist() == [float(i > 1) for i in tokens.ids[some]]
        assert item.baseline is None
    sequences = {tuple(tokens.ids[tokens.ptr[i] : tokens.ptr[i + 1]]) for i in range(len(TEXTS))}
    assert len(index.ptr) - 1 == len(sequences) < len(set(TEXTS))
    assert (np.diff(np.diff(index.ptr)) <= 0).all()  # longest first
    assert sorted(index.row_id.tolist()) == list(range(len(TEXTS)))
    assert all(np.diff(index.row_id[a:b]).min(initial=1) > 0 for a, b in pairwise(index.row_ptr))
    having = Counter(
        i for row in range(len(TEXTS)) for i in set(tokens.ids[tokens.ptr[row] : tokens.ptr[row + 1]].tolist())
    )
    assert {i: n for i, n in enumerate(index.frequency.tolist()) if n} == having


def test_save_and_load(built, tmp_path):
    index = opened(built)
    (tmp_path / "b").mkdir()
    write_files(tmp_path / "b", index.files())
    again = StateDocuments.load("bertscore", {path.name: map_file(path) for path in (tmp_path / "b").iterdir()})
    assert again.description == index.description
    assert index.screens.keys() == again.screens.keys()
    pairs = [(getattr(index, name), getattr(again, name)) for name in StateDocuments.__dataclass_fields__]
    for one, two in [*pairs, *((index.screens[name], again.screens[name]) for name in index.screens)]:
        assert type(one) is type(two)
        if isinstance(one, np.ndarray):
            assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
    assert everything(tmp_path / "b") == everything(built.folder / "bertscore")


def test_manifest(built, fake_encoder, tmp_path):
    entry = json.loads((built.folder / "manifest.json").read_text())["content"]["representations"]["bertscore"]
    assert entry["encoder"] == fake_encoder("fake").signature
    assert {"layer", "sha256", "model"} <= entry["encoder"].keys()
    assert entry["storage"] == "float32"
    assert entry["baseline"] is None
    assert entry["truncated"] == 1
    assert entry["special_only"] == 1
    assert entry["rows"] == len(TEXTS)
    assert entry["units"] == len(opened(built).ptr) - 1
    assert entry["tokens"] == len(opened(built).ids)
    other = build(corpus(layer=3, states="float16"), tmp_path / "I")
    entry = other.content["representations"]["bertscore"]
    assert (entry["encoder"]["layer"], entry["storage"]) == (3, "float16")
    assert opened(other).states.dtype == np.float16
    assert other.fingerprint != built.fingerprint
    assert other.metrics == ["bertscore", "bertscore:precision", "bertscore:recall"]


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_answers_of_an_opened_index(tmp_path, storage):
    index = open_index(build(corpus(states=storage), tmp_path / "I").folder)
    for metric in ("bertscore", "bertscore:precision", "bertscore:recall"):
        got, expected = (
            retrieve(index, queries(*QUERIES), metric, k=5, backend=backend) for backend in ("cpu", "reference")
        )
        assert got.table.equals(expected.table)
        assert got.signature["idf"] == "off"
        assert got.signature["rescaled"] is False
        assert got.signature["truncated_queries"] == 1
        assert sum(got.signature["stages"].values()) == pytest.approx(1.0)
        assert got.signature["representation"]["bertscore"]["storage"] == storage


def test_building_says_what_it_takes(tmp_path):
    told, steps = [], []
    inputs = corpus(tell=told.append, progress=lambda *step: steps.append(step))
    index = build(inputs, tmp_path / "I")
    n_units, n_tokens = len(opened(index).ptr) - 1, len(opened(index).ids)
    assert re.match(rf"token states: {n_units} distinct reports, {n_tokens} tokens x 16 float32; 0\.00 GB on", told[0])
    assert told[1:] == [
        f"1 of {len(set(TEXTS))} distinct texts are longer than the 26 tokens that fake takes: their ends are cut off"
    ]
    assert steps == [("token states", n_tokens, n_tokens)]


def test_building_within_a_limit(built, tmp_path):
    """The blocks get smaller, the states stay the same, and so do the answers."""
    n_tokens = len(opened(built).ids)
    least = bertscore._memory(n_tokens, 16, bertscore.LEAST_BLOCK) / 1e9
    assert bertscore._block_tokens(n_tokens, 16, None) == bertscore.BLOCK
    assert bertscore._block_tokens(n_tokens, 16, least) == bertscore.LEAST_BLOCK
    index = build(corpus(max_memory=least), tmp_path / "I")
    assert opened(index).states.tobytes() == opened(built).states.tobytes()
    answers = [retrieve(some, queries(*QUERIES), "bertscore", k=5).table for some in (index, built)]
    assert answers[0].equals(answers[1])


def test_limits_of_building_that_cannot_be(tmp_path):
    match = (
        r"^max_memory must be at least 0\.\d\d GB for [0-9,]+ tokens x 16; "
        r"got 0\.001\. Give more, or index fewer reports\.$"
    )
    with pytest.raises(InputError, match=match):
        build(corpus(max_memory=0.001), tmp_path / "I")
    for value in (0, -1.0, float("inf"), float("nan"), True):
        match = rf"^build_index: max_memory must be a number of GB above 0; got {value!r}\. Choose one, or"
        with pytest.raises(InputError, match=match):
            mo.build_index(["no edema"], tmp_path / "J", max_memory=value)


# Killed builds


class Killed(BaseException):
    """A death that no handler of the package may take for an error."""


@pytest.fixture
def in_parts(monkeypatch):
    """Let states be written in many small parts."""
    monkeypatch.setitem(write_states.__kwdefaults__, "part_tokens", 40)


def killed_at(part):
    """Return a `progress` that kills the build after some parts."""
    seen = []

    def progress(step, done, total):
        seen.append(done)
        if len(seen) == part:
            raise Killed

    return progress


def same_files(index, built):
    assert index.fingerprint == built.fingerprint
    assert index.content["files"] == built.content["files"]
    assert set(everything(index.folder)) == set(everything(built.folder))
    assert os.listdir(index.folder.parent) == ["I"]


@pytest.mark.parametrize("part", [1, 2, 5])
def test_killed_build_resumes_to_the_same_bytes(built, tmp_path, in_parts, part):
    steps = []
    with pytest.raises(Killed):
        build(corpus(progress=killed_at(part)), tmp_path / "I")
    assert (tmp_path / "I.building/encoding/states.raw").is_file()
    with pytest.raises(IndexFormatError, match=r"^open_index: index must be finished; got"):
        open_index(tmp_path / "I.building")
    inputs = corpus(progress=lambda _, done, total: steps.append(done))
    same_files(build(inputs, tmp_path / "I"), built)
    assert steps == sorted(steps)
    assert len(steps) > 8
    first = [step for step in steps if step <= steps[part - 1]]
    assert len(first) == part
    whole = corpus()
    build(whole, tmp_path / "J")
    assert inputs.opened_encoder.encoder.runs < whole.opened_encoder.encoder.runs


def test_killed_build_of_another_kind_starts_anew(built, tmp_path, in_parts):
    for other in ({"layer": 2}, {"states": "float16"}, {"encoder": "another"}):
        with pytest.raises(Killed):
            build(corpus(progress=killed_at(4), **other), tmp_path / "I")
        same_files(build(corpus(), tmp_path / "I"), built)
        shutil.rmtree(tmp_path / "I")


def test_what_makes_token_states_is_part_of_the_inputs(fake_encoder):
    """A finished part of a killed build is taken up by this digest alone; the states' own record is gone by then."""
    others = ({}, {"layer": 2}, {"states": "float16"}, {"encoder": "another"})
    assert len({index_module.inputs_digest(corpus(**other)) for other in others}) == len(others)


def test_altered_part_of_a_killed_build_is_made_again(built, tmp_path, in_parts):
    with pytest.raises(Killed):
        build(corpus(progress=killed_at(6)), tmp_path / "I")
    raw = tmp_path / "I.building/encoding/states.raw"
    content = bytearray(raw.read_bytes())
    content[4000] ^= 1
    raw.write_bytes(content)
    same_files(build(corpus(), tmp_path / "I"), built)


def test_record_of_a_killed_build_that_is_no_record(built, tmp_path, in_parts):
    for content in ("", "[]", "{}", '{"digest": 1, "parts": 2}', "[" * 100_000):
        with pytest.raises(Killed):
            build(corpus(progress=killed_at(3)), tmp_path / "I")
        (tmp_path / "I.building/encoding/states.json").write_text(content)
        same_files(build(corpus(), tmp_path / "I"), built)
        shutil.rmtree(tmp_path / "I")


def test_killed_after_the_encoding(built, tmp_path, in_parts, monkeypatch):
    """The states are done, and the screen is not."""

    def die(*arguments, **options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("metric_oracle.indexes.bertscore.screen", die)
        with pytest.raises(Killed):
            build(corpus(), tmp_path / "I")
    inputs = corpus()
    same_files(build(inputs, tmp_path / "I"), built)
    assert inputs.opened_encoder.encoder.runs == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_sigkill(built, tmp_path, in_parts):
    pid = os.fork()
    if pid == 0:
        seen = []

        def progress(step, done, total):
            seen.append(done)
            if len(seen) == 5:
                os.kill(os.getpid(), signal.SIGKILL)

        build(corpus(progress=progress), tmp_path / "I")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    inputs = corpus()
    same_files(build(inputs, tmp_path / "I"), built)
    assert inputs.opened_encoder.encoder.runs > 0


@pytest.mark.skipif(find_spec("torch") is None, reason="the digest has torch's number of threads")
def test_other_machine_settings_start_anew(built, tmp_path, in_parts, monkeypatch):
    """Products are summed in another order there: parts of both would make an index that neither gives."""
    with monkeypatch.context() as patch:
        patch.setitem(write_states.__globals__["_BATCH_TOKENS"], "cpu", 64)
        with pytest.raises(Killed):
            build(corpus(progress=killed_at(8)), tmp_path / "I")
    inputs, whole = corpus(), corpus()
    same_files(build(inputs, tmp_path / "I"), built)
    build(whole, tmp_path / "J")
    assert inputs.opened_encoder.encoder.runs == whole.opened_encoder.encoder.runs


# Damage


def test_states_cut_short(built, tmp_path):
    folder = shutil.copytree(built.folder, tmp_path / "I")
    path = folder / "bertscore/states.arrow"
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    match = rf"^open_index: bertscore/states\.arrow must have {len(content)} bytes; got {len(content) - 7} in "
    with pytest.raises(IndexFormatError, match=match) as error:
        open_index(folder)
    assert "\n" not in str(error.value)


def test_not_a_text(tmp_path):
    """One report without a token besides the special ones is counted, and scores 0 against everything."""
    texts = ["", "heart normal", "lungs"]
    inputs = replace(corpus(), ids=list("abc"), texts=texts)
    index = build(inputs, tmp_path / "I")
    assert index.content["representations"]["bertscore"]["special_only"] == 1
    table = retrieve(index, ["heart normal"], "bertscore", k=3).table
    assert table["score"].to_pylist()[0] == 1.0
    assert {row["row"]: row["score"] for row in table.to_pylist()}[0] == 0.0


# Queries


def fails(error, match, index, *texts, metric="bertscore", encoder=None, **settings):
    with pytest.raises(error, match=match) as caught:
        retrieve(index, queries(*texts, encoder=encoder), metric, options=SearchOptions(**settings))
    assert "\n" not in str(caught.value)


def test_encoder_elsewhere_and_another_one(built):
    index = open_index(built.folder)
    expected = retrieve(index, queries(*QUERIES), "bertscore")
    got = retrieve(index, queries(*QUERIES, encoder="fake@elsewhere"), "bertscore")
    assert got.table.equals(expected.table)
    hashes = [opened(index).description["encoder"]["sha256"][:12], "[0-9a-f]{12}"]
    match = (
        rf"^retrieve: encoder must be the one of the index, fake, sha256 {hashes[0]}; got other, sha256 {hashes[1]}\. "
        r"Pass `mo\.reports\(\.\.\., encoder=FOLDER\)` with it, or build another index\.$"
    )
    fails(BackendError, match, index, "heart", encoder="other")


def test_queries_without_words(built):
    match = (
        r"^retrieve: queries must have at least one ordinary token each for BERTScore; got 2 of 3 without "
        r"\('q0', 'q2'\)\. Remove these reports"
    )
    fails(InputError, match, built, "", "heart", " \n")


def test_settings_of_a_metric_that_takes_none(tmp_path):
    index = build_index(Reports(["a", "b"], ["heart", "lungs"], "test"), tmp_path / "I", metrics=["bleu"])
    match = r"^retrieve: idf must be left out for metric 'bleu-2'; got a value\. Leave out `idf`\.$"
    fails(InputError, match, index, "heart", metric="bleu", idf="off")
    match = r"^retrieve: idf, rescale must be left out for metric 'bleu-2'; got a value\. Leave out `idf`, `rescale`\.$"
    fails(InputError, match, index, "heart", metric="bleu", idf="corpus", rescale=False)


# Weights of tokens


def idf_of(texts, encoder):
    """Return bert_score's weights: log((N + 1) / (n + 1)), and log(N + 1) of a token that no text has."""
    tokens = encoder.tokenize(texts)
    n = Counter(i for a, b in pairwise(tokens.ptr) for i in set(tokens.ids[a:b].tolist()))
    return {i: math.log((len(texts) + 1) / (n[i] + 1)) for i in range(97)}


@pytest.mark.parametrize("idf", ["tests", "corpus"])
def test_idf(built, fake_encoder, idf):
    encoder = fake_encoder("fake")
    asked = [*QUERIES, "nowhere else", QUERIES[0]]
    expected = idf_of(asked if idf == "tests" else TEXTS, encoder)
    assert expected[0] == expected[1] == 0.0
    assert encoder.tokenize(["nowhere"]).ids[1] not in opened(built).ids
    encoded = opened(built).encode(queries(*asked), idf=idf)
    assert encoded.weights.tolist() == pytest.approx([expected[i] for i in encoded.ids.tolist()], rel=1e-15)
    of_id = dict(enumerate(encoded.weight_of_id.tolist()))
    assert of_id == pytest.approx({i: expected[i] for i in of_id}, rel=1e-15)
    rarest = math.log(len(asked if idf == "tests" else TEXTS) + 1)
    assert max(of_id.values()) == pytest.approx(rarest, rel=1e-15)  # a token of no text
    for unit in range(len(opened(built).ptr) - 1):
        ids = opened(built).ids[opened(built).ptr[unit] : opened(built).ptr[unit + 1]]
        weights = encoded.weight_of_id[opened(built).item(unit).ids].tolist()
        assert weights == pytest.approx([expected[i] for i in ids.tolist()], rel=1e-15)
    check_answers(built, asked, idf)


def check_answers(index, asked, idf, **settings):
    """Compare the search with the plain scorer on its own items."""
    for metric in ("bertscore", "bertscore:precision", "bertscore:recall"):
        got, expected = (
            retrieve(index, queries(*asked), metric, k=7, backend=backend, options=SearchOptions(idf=idf, **settings))
            for backend in ("cpu", "reference")
        )
        assert got.table.equals(expected.table)
        assert got.signature["idf"] == str(idf)
        assert verify(index, got, queries(*asked), sample=100)["pairs"] == 7 * len(asked)


@pytest.mark.parametrize("idf", ["off", "tests", "corpus"])
def test_verify_takes_a_sample_with_the_weights_of_all_queries(built, idf):
    results = retrieve(built, queries(*QUERIES), "bertscore", k=4, options=SearchOptions(idf=idf))
    assert verify(built, results, queries(*QUERIES), sample=3)["queries"] == 3


def test_idf_off_is_the_default(built):
    one, two = (
        retrieve(built, queries(*QUERIES), "bertscore", k=3, options=SearchOptions(**s)) for s in ({}, {"idf": "off"})
    )
    assert one.table.equals(two.table)
    assert one.signature == two.signature


def test_idf_of_a_file(built, fake_encoder, tmp_path):
    encoder = fake_encoder("fake")
    path = tmp_path / "idf.csv"
    weights = {int(i): float(i % 7) / 2 for i in encoder.tokenize([" ".join(WORDS)]).ids if i > 3}
    path.write_text("token_id,idf\n0,0\n1,0\n" + "".join(f"{i},{w}\n" for i, w in weights.items()))
    asked = [*QUERIES, "nowhere else"]
    encoded = opened(built).encode(queries(*asked), idf=path)
    most = max(weights.values())
    expected = {0: 0.0, 1: 0.0, **weights}
    assert encoded.weights.tolist() == [expected.get(i, most) for i in encoded.ids.tolist()]
    check_answers(built, asked, path)
    path.write_text("idf,token_id\n0,0\n0,1\n1.5,999\n")  # ids that nothing has; the others weigh the most
    encoded = opened(built).encode(queries(*asked), idf=str(path))
    assert set(encoded.weights.tolist()) == {0.0, 1.5}


def test_idf_that_is_none(built, tmp_path):
    match = r"^retrieve: idf must be off, tests, corpus or a file; got 'test', which is none\. Check the name\.$"
    fails(InputError, match, built, "heart", idf="test")
    fails(InputError, match.replace("test'", r".*/no\.csv'"), built, "heart", idf=str(tmp_path / "no.csv"))
    fails(InputError, match.replace("'test'", repr(str(tmp_path))), built, "heart", idf=tmp_path)
    path = tmp_path / "idf.csv"
    rule = (
        rf"^retrieve: {path} must have token ids from 0, and weights that are 0 or from 1e-30 to 1e30, in every row\. "
        r"Correct the table\.$"
    )
    for rows in ("a,1\n", "2,\n", "2,x\n", "-1,1\n", "2,-0.5\n", "2,inf\n", "2,nan\n", "2.5,1\n"):
        path.write_text("token_id,idf\n" + rows)
        fails(InputError, rule, built, "heart", idf=path)
    path.write_text("token_id,idf\n2,1\n7,1\n3,0.5\n7,1\n")
    match = r"^retrieve: idf must have each token id once; got 7 more than once in .*idf\.csv\. Keep one row of each\.$"
    fails(InputError, match, built, "heart", idf=path)
    path.write_text("token,idf\n2,1\n")
    match = r"^retrieve: .*idf\.csv has no column 'token_id'\. Columns: 'token', 'idf'\.$"
    fails(InputError, match, built, "heart", idf=path)


def test_idf_that_leaves_a_query_without_weight(built, tmp_path):
    rule = "retrieve: idf must give each query a token with a weight above 0; got"
    step = r"Pass more queries, or `mo\.SearchOptions\(idf='corpus'\)`\.$"
    fails(InputError, rf"^{rule} 1 without \('q0'\)\. {step}", built, "heart", idf="tests")
    path = tmp_path / "idf.csv"
    path.write_text("token_id,idf\n" + "".join(f"{i},0\n" for i in range(97)))
    fails(InputError, rf"^{rule} 2 without \('q0', 'q1'\)\. {step}", built, "heart", "lungs", idf=path)


# Baselines


BASELINE = "LAYER,P,R,F\n0,0.1,0.2,0.15\n1,0.25,0.5,0.375\n2,0.7,0.7,0.7\n"


@pytest.mark.parametrize("name", ["b.tsv", "b.csv"])
def test_baseline_of_bert_score(built, tmp_path, name):
    """The tables of bert_score are called .tsv and hold commas."""
    (tmp_path / name).write_text(BASELINE)
    assert load_encoder("fake", rescale_table=tmp_path / name).baseline == (0.25, 0.5, 0.375)
    assert load_encoder("fake", layer=2, rescale_table=str(tmp_path / name)).baseline == (0.7, 0.7, 0.7)


def test_rescaled(built, tmp_path):
    (tmp_path / "b.csv").write_text(BASELINE)
    index = build(corpus(rescale_table=tmp_path / "b.csv"), tmp_path / "I")
    assert index.content["representations"]["bertscore"]["baseline"] == [0.25, 0.5, 0.375]
    assert index.fingerprint != built.fingerprint
    for place, (metric, base) in enumerate(
        {"bertscore:precision": 0.25, "bertscore:recall": 0.5, "bertscore": 0.375}.items()
    ):
        plain = retrieve(built, queries(*QUERIES), metric, k=4)
        for settings, is_rescaled in (({}, True), ({"rescale": True}, True), ({"rescale": False}, False)):
            got = retrieve(index, queries(*QUERIES), metric, k=4, options=SearchOptions(**settings))
            assert got.signature["rescaled"] is is_rescaled
            assert got.table["row"].to_pylist() == plain.table["row"].to_pylist()
            expected = [(s - base) / (1 - base) if is_rescaled else s for s in plain.table["score"].to_pylist()]
            assert got.table["score"].to_pylist() == expected
            for name, b in (("precision", 0.25), ("recall", 0.5), ("f1", 0.375)):
                values = plain.table[name].to_pylist()
                assert got.table[name].to_pylist() == [(v - b) / (1 - b) if is_rescaled else v for v in values]
        encoded = opened(index).encode(queries(*QUERIES))
        value, parts = score(opened(index).item(3), encoded.item(0), place)
        assert value == list(parts.values())[place]
    check_answers(index, QUERIES, "corpus")
    check_answers(index, QUERIES, "off", rescale=False)


def test_rescaling_without_a_baseline(built):
    match = (
        r"^retrieve: rescale must be left out where the encoder has no baseline; got True for fake\. Leave it out, or "
        r"build the index with `mo\.reports\(\.\.\., rescale_table=FILE\)`\.$"
    )
    fails(InputError, match, built, "heart", rescale=True)
    assert (
        retrieve(built, queries("heart"), "bertscore", options=SearchOptions(rescale=False)).signature["rescaled"]
        is False
    )


def test_baselines_that_are_none(tmp_path):
    path = tmp_path / "b.csv"

    def refused(match, **options):
        with pytest.raises(InputError, match=match):
            load_encoder("fake", rescale_table=path, **options)

    refused(r"^there is no file .*b\.csv\. Check the name\.$")
    path.write_text(BASELINE)
    none = r"^rescale_table must have numbers between -1 and 1 for layer \d in columns LAYER, P, R, F; got none in"
    refused(none, layer=7)
    for row in ("1,1.0,0.5,0.5", "1,x,0.5,0.5", "1,,0.5,0.5", "1,nan,0.5,0.5", "1,-1.0,0.5,0.5", "x,0.5,0.5,0.5"):
        path.write_text(f"LAYER,P,R,F\n{row}\n")
        refused(none)
    path.write_text("LAYER,P,R\n1,0.5,0.5\n")
    refused(r"^rescale_table must have numbers between -1 and 1 for layer \d in columns LAYER, P, R, F; got none in")


@pytest.mark.parametrize("has", [True, False])
def test_a_note_where_bfloat16_is_slow(monkeypatch, has):
    monkeypatch.setattr("metric_oracle.encoders.libraries.has_bf16", lambda device: has)
    notes = []
    assert load_encoder("fake", tell=notes.append).encoder.dtype == "float32"
    assert notes == []
    assert load_encoder("fake", bf16=True, tell=notes.append).encoder.dtype == "bfloat16"
    assert (
        notes
        == [
            "this processor has no bfloat16 instructions, so the encoder runs several times slower than in float32. "
            "Leave out `bf16` unless scores must equal those of another index that was built with it."
        ][has:]
    )


def test_storage_that_is_none():
    match = r"^reports: states must be one of float32, float16; got 'float8'\. Choose one\.$"
    with pytest.raises(InputError, match=match):
        mo.reports(["no edema"], states="float8")


def test_encoding_is_asked_for(tmp_path):
    match = (
        r"^token states of the reports must be given for metric 'bertscore:recall'; got none\. "
        r"Add `mo\.reports\(\.\.\., encoder=NAME\|FOLDER\)`\.$"
    )
    with pytest.raises(InputError, match=match):
        index_module.build_index(Reports(["a"], ["b"]), tmp_path / "I", metrics=["bertscore:recall"])
    assert not os.listdir(tmp_path)
    index = index_module.build_index(Reports(["a"], ["b"]), tmp_path / "I")
    match = r"Build an index with `metrics='bertscore'` and `mo\.reports\(\.\.\., encoder=NAME\|FOLDER\)`\.$"
    with pytest.raises(InputError, match=match):
        index.representation(get_metric("bertscore"))


def test_published_baseline_is_known_by_name(fake_encoder):
    known = load_encoder("distilroberta-base", layer=5)
    assert isinstance(known, OpenedEncoder)
    assert known.baseline == (0.84732, 0.84759504, 0.8473319)
    assert load_encoder("distilroberta-base", layer=4).baseline is None
    assert load_encoder(Path("somewhere"), layer=5).baseline is None


# Weights as an array, sizes beyond the proof


def test_an_array_of_weights_is_checked(built):
    index = opened(built)
    n = len(index.frequency)
    rule = f"must be a one-dimensional array of at least {n:,} weights, each 0 or from 1e-30 to 1e30"
    form = "^" + re.escape(f"idf {rule}; got ")
    good = np.ones(n)
    for place, value in ((3, -1.0), (1, np.nan), (2, np.inf), (0, 1e-31), (4, 1e31)):
        wrong = good.copy()
        wrong[place] = value
        got = rf"{re.escape(str(value))} for token {place}\. Repair it\.$"
        with pytest.raises(InputError, match=form + got):
            index.encode(queries("heart"), idf=wrong)
    for wrong in (good[:-1], good[None], good.astype(str), good > 0):
        got = rf"{re.escape(f'{wrong.dtype}{list(wrong.shape)}')}\. Give one weight for each token id\.$"
        with pytest.raises(InputError, match=form + got):
            index.encode(queries("heart"), idf=wrong)


def test_arrays_of_weights_are_told_apart_in_the_signature(built):
    index = opened(built)
    one = np.linspace(0.5, 2, 5000)
    other = one.copy()
    other[2500] += 1e-9  # beyond what NumPy prints of it
    names = [index.encode(queries("heart"), idf=idf).settings["idf"] for idf in (one, other, one.copy())]
    assert names[0] == names[2] != names[1]
    assert all(re.fullmatch("array [0-9a-f]{64}", name) for name in names)


def test_states_beyond_the_proof_are_refused():
    rule = (
        r"^token states must have at most 8,192 components and a report at most 16,384 tokens; got 9,000 "
        r"and 70\. Take another layer or encoder, or cut reports"
    )
    with pytest.raises(InputError, match=rule):
        bertscore.check_size(9000, 70)
    with pytest.raises(InputError, match="got 8 and 16,385"):
        bertscore.check_size(8, 16_385)
    bertscore.check_size(8192, 16_384)
