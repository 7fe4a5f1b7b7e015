"""RaTEScore's models: sentences, entities and scores are those of the published package, from the texts on."""

import csv
import hashlib
import importlib.util
import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import BackendError, InputError
from metric_oracle.encoders import sentences
from metric_oracle.encoders.packed_layers import can_pack
from metric_oracle.encoders.ratescore import EntityModels, find_entities
from metric_oracle.encoders.sentences import Sentences
from support import SECRET, lacking, write

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE.parent / "golden/ratescore_models.json").read_text(encoding="utf-8"))
MADE_UP, IU_XRAY = GOLDEN["made_up"], GOLDEN["iu_xray"]


def module(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


tiny = module("tiny_ratescore")
TEXTS = tiny.made_up()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folders of the two tiny models."""
    home = tmp_path_factory.mktemp("models")
    recogniser, encoder = home / "ner", home / "biolord"
    assert [tiny.write_recogniser(recogniser), tiny.write_encoder(encoder)] == GOLDEN["weights"]
    return recogniser, encoder


@pytest.fixture(scope="module")
def model(folders):
    return EntityModels(folders[0], encoder=folders[1], device="cpu")


@pytest.fixture(scope="module")
def found(model):
    return model.recognise(TEXTS)


@pytest.fixture(scope="module")
def rules():
    """Return the published rules, of medspaCy's wheel; nothing of it is imported."""
    package = find_spec("medspacy")
    if package is None:
        lacking("there is no medspacy: pip install --no-deps medspacy")
    return sentences._find_rules()


@pytest.fixture
def real(iu_xray):
    with (iu_xray / "indiana_reports.csv").open(encoding="utf-8", newline="") as file:
        texts = {(row["uid"], s): row[s] for row in csv.DictReader(file) for s in ("findings", "impression")}
    return [texts[uid, section] for uid, section in IU_XRAY["places"]]


def entities_of(found):
    """Return words and type in capitals of each text's entities."""
    made = found.by_position().values()
    return [[[w, k.upper()] for w, k in zip(one["entities"], one["types"], strict=True)] for one in made]


def is_plain(entities):
    """Tell whether no words stand under two types: of equal vectors the package takes one by float32's noise."""
    kinds = {}
    for words, kind in entities:
        kinds.setdefault(" ".join(words.lower().split()), set()).add(kind)
    return all(len(some) == 1 for some in kinds.values())


def check_scores(texts, entities, expected, folders, least):
    """Score each text with the next but one as the golden script does."""
    keys = [f"r{i}" for i in range(len(texts))]
    sides = [dict(zip(keys, some, strict=True)) for some in (texts, texts[2:] + texts[:2])]
    asked = mo.reports(sides[0], entities=folders[0], entity_encoder=folders[1], device="cpu")
    scores = mo.score(asked, sides[1], "ratescore")
    plain = [is_plain(some) for some in entities]
    is_compared = np.array(plain) & np.array(plain[2:] + plain[:2])
    assert is_compared.sum() >= least
    assert np.abs(scores.values("ratescore") - expected)[is_compared].max() < 2e-6
    assert len({round(value, 5) for value in expected}) > 0.6 * len(texts)
    return scores


def test_sentences_are_medspacys_under_made_up_rules(folders):
    split = Sentences(folders[0] / "rush_rules.tsv").split
    assert [split(text) for text in TEXTS] == MADE_UP["sentences"]
    assert max(map(len, MADE_UP["sentences"])) > 5


def test_sentences_are_medspacys_under_its_own(rules, real):
    split = Sentences(rules).split
    made = [split(text) for text in real]
    hashes = [hashlib.sha256("\n".join(some).encode()).hexdigest()[:12] for some in made]
    assert [[len(some), h] for some, h in zip(made, hashes, strict=True)] == IU_XRAY["sentences"]
    assert max(map(len, made)) > 9


def test_entities_are_the_packages(found):
    expected = iter(MADE_UP["entities"])
    made = entities_of(found)
    assert made == [next(expected) if is_read else [] for is_read in MADE_UP["is_read"]]
    assert {kind for some in made for _, kind in some} == set(tiny.TYPES)
    assert sum(map(len, made)) > 2_000
    assert MADE_UP["is_read"].count(False) > 4  # to which the package gives the entities of the next text
    assert found.n_truncated == 1
    assert np.isfinite(found.table.vectors).all()


def test_scores_are_the_packages(found, folders):
    made = entities_of(found)
    places = np.flatnonzero(MADE_UP["is_read"]).tolist()
    check_scores([TEXTS[i] for i in places], [made[i] for i in places], MADE_UP["scores"], folders, 200)
    # What it has no sentence of has no entities.
    nothing = mo.score(
        mo.reports({"a": "A"}, entities=folders[0], entity_encoder=folders[1]), {"a": TEXTS[0]}, "ratescore"
    )
    assert nothing.values("ratescore").tolist() == [0.5]


@pytest.mark.filterwarnings("ignore:.*marks that count as words:UserWarning")
def test_scores_of_real_reports_are_the_packages(real, rules, folders, tmp_path):
    recogniser = tmp_path / "ner"
    recogniser.mkdir()
    for path in folders[0].iterdir():
        if path.name != "rush_rules.tsv":  # then medspaCy's are taken
            (recogniser / path.name).write_bytes(path.read_bytes())
    made = EntityModels(recogniser, encoder=folders[1], device="cpu")
    assert made.signature["rules_sha256"] == hashlib.sha256(rules.read_bytes()).hexdigest()
    real = real[: len(IU_XRAY["scores"])]
    entities = entities_of(made.recognise(real))
    assert [len(some) for some in entities] == IU_XRAY["n_entities"]
    check_scores(real, entities, IU_XRAY["scores"], (recogniser, folders[1]), 50)


def test_vectors_are_first_states(model, found, folders):
    """By transformers, words alone: [CLS], at most 30 word pieces."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[1])
    encoder = transformers.AutoModel.from_pretrained(folders[1]).eval()
    long = "no effusion " * 20
    assert len(tokenizer(long)["input_ids"]) == 42
    of_words = {**model._embed([long]), **{found.words[i]: found.table.vectors[i] for i in range(0, 900, 100)}}
    for words, vector in of_words.items():
        with torch.inference_mode():
            call = tokenizer(words, return_tensors="pt", truncation=True, max_length=30)
            state = encoder(call["input_ids"]).last_hidden_state[0, 0].numpy()
        assert np.allclose(vector, state, rtol=0, atol=1e-5)


LABELLED = [
    ("O O O O", []),
    ("O B I O", [(1, 2)]),
    ("O B O O", [(1, 1)]),
    ("O B B O", [(1, 1), (2, 2)]),
    ("O B I B I O", [(1, 2), (3, 4)]),
    ("O I I O", []),  # never begun
    ("O I B O", [(2, 2)]),
    ("O B I I I", [(1, 3)]),  # [SEP] goes on: up to the end
    ("O B B I I I", [(1, 1)]),  # but not after a B that follows another
    ("O B B I O B I I", [(1, 1), (2, 3), (5, 6)]),
    ("B O B I B", [(2, 3)]),
]


@pytest.mark.parametrize(("labels", "expected"), LABELLED)
def test_entities_of_labels(labels, expected):
    names = [label if label == "O" else f"{label}-DISEASE" for label in labels.split()]
    pieces = ["[CLS]", *"abcdefghij"[: len(names) - 2], "[SEP]"]
    assert find_entities(pieces, names) == [(first, last, "DISEASE") for first, last in expected]


def test_company_and_threads_change_no_bit(model, found):
    alone = [model.recognise([text]) for text in TEXTS[:25]]
    n_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        backwards = model.recognise(TEXTS[::-1])
    finally:
        torch.set_num_threads(n_threads)
    for row, text in enumerate(TEXTS[:25]):
        for other, place in ((alone[row], 0), (backwards, len(TEXTS) - 1 - row)):
            sides = [some.table.take(some.of_row[[at]]) for some, at in ((found, row), (other, place))]
            assert sides[0].kinds.tobytes() == sides[1].kinds.tobytes(), text
            assert sides[0].vectors.tobytes() == sides[1].vectors.tobytes(), text


@pytest.mark.parametrize("kind", ["_label", "_first_states"])
def test_packed_batches_mix_lengths_and_repeat_nothing(folders, monkeypatch, kind):
    if not can_pack("cpu", "float32"):
        pytest.skip("this machine cannot pack layers")
    batches, run = [], getattr(EntityModels, kind)
    monkeypatch.setattr(EntityModels, kind, lambda self, blocks: batches.append(blocks) or run(self, blocks))
    model = EntityModels(folders[0], encoder=folders[1], device="cpu")
    found = model.recognise(["No effusion.", "Heart size is normal.", "Mild edema of the left lung.", "No effusion."])
    n_texts = 3 if kind == "_label" else len({*found.words})
    lengths = {block.shape[1] for blocks in batches for block in blocks}
    assert sum(len(block) for blocks in batches for block in blocks) == n_texts
    assert len(batches) < len(lengths)


def test_a_stopped_run_resumes(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(EntityModels, "part_size", {"cpu": 700})
    model = EntityModels(folders[0], encoder=folders[1], device="cpu")
    done = []

    def stop(n):
        done.append(n)
        if sum(done) > 50:
            raise KeyboardInterrupt

    some = [*TEXTS[:90], TEXTS[-2], TEXTS[-2]]
    expected = EntityModels(folders[0], encoder=folders[1], device="cpu").recognise(some)
    with pytest.raises(KeyboardInterrupt):
        model.recognise(some, progress=stop, scratch=tmp_path)
    kept = sorted(tmp_path.glob("*.part"))
    assert len(kept) > 5
    kept[1].write_bytes(kept[1].read_bytes()[:-1])  # made anew
    asked, run = [], model._label
    monkeypatch.setattr(model, "_label", lambda ids: asked.append(len(ids)) or run(ids))
    done.clear()
    again = model.recognise(some, progress=done.append, scratch=tmp_path)
    assert sum(done) == len(some)
    n_resumed = len(asked)
    assert again.words == expected.words
    assert again.n_truncated == 2  # reports, not texts
    assert again.table.vectors.tobytes() == expected.table.vectors.tobytes()
    asked.clear()
    model.recognise(some)
    assert 0 < n_resumed < len(asked)


def test_files_memory_and_models_have_the_same_numbers(folders, oracle, named, tmp_path):
    texts = [" ".join(text.split()) for text in TEXTS if text.strip()][:40]
    sides = [{f"r{i}": text for i, text in enumerate(some)} for some in (texts, texts[3:] + texts[:3])]
    models = ("--entities", folders[0], "--entity-encoder", folders[1], "--device", "cpu")
    given = {"entities": folders[0], "entity_encoder": folders[1], "device": "cpu"}
    expected = mo.score(mo.reports(sides[0], **given), sides[1], "ratescore,ratescore:short")
    paths = [write(tmp_path / f"{name}.csv", side) for name, side in zip("rp", sides, strict=True)]
    files = []
    for path in paths:
        files.append(path.with_suffix(".parquet"))
        code, out, err = oracle("annotate", path, *models, "--out", files[-1])
        assert (code, out, err.splitlines()[-1]) == (0, "", f"{files[-1]}: 40 reports")
    signature = json.loads((tmp_path / "r.parquet.signature.json").read_text())
    assert {"sha256", "entity_encoder_sha256", "rules_sha256", "torch", "transformers"} < set(signature)
    assert pq.read_table(files[0]).column_names == ["study_id", "entities", "types", "vectors"]
    named("of-model", paths[0], **given)
    of_files = [named(name, path, entities=file) for name, path, file in zip("rp", paths, files, strict=True)]
    for sides_named in (("of-model", paths[1]), of_files):
        out = tmp_path / "scores.csv"
        code, _, err = oracle("score", *sides_named, "-m", "ratescore,ratescore:short", "--out", out)
        assert code == 0, err
        with out.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for name in ("ratescore", "ratescore:short"):
            assert [float(row[name]) for row in rows] == expected.values(name).tolist()
    # An index of the models' entities is that of the files, but for its signature; and so are the answers.
    answers = []
    named("queries-of-model", paths[1], **given)
    for option, query in ((models, "queries-of-model"), (("--entities", files[0]), "p")):
        index = tmp_path / f"I{len(answers)}"
        code, _, err = oracle("build-index", paths[0], "--out", index, "-m", "ratescore", *option)
        assert code == 0, err
        code, out, err = oracle("retrieve", index, query, "-m", "ratescore", "-k", "3", "--format", "csv")
        assert code == 0, err
        answers.append(out)
    assert answers[0] == answers[1]
    made_by = mo.open_index(tmp_path / "I0").content
    assert signature["entity_encoder_sha256"] in json.dumps(made_by)
    table = mo.retrieve(
        mo.build_index(mo.reports(sides[0], **given), tmp_path / "M", metrics="ratescore"),
        mo.reports(sides[1], **given),
        "ratescore",
        k=3,
    ).table
    with (tmp_path / "a.csv").open("w", newline="") as file:
        file.write(answers[0])
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["score"]) for row in rows] == table["score"].to_pylist()
    # The reward of a trainer.
    rewarded = mo.reward("ratescore", sources=given)
    values = rewarded(completions=list(sides[1].values()), reference=list(sides[0].values()))
    assert values == expected.values("ratescore").tolist()


def test_index_and_queries_are_of_the_same_models(folders, tmp_path):
    """Each of the three: the recogniser, the encoder, the rules."""
    texts = {f"r{i}": text for i, text in enumerate(TEXTS[:9]) if text.strip()}
    given = {"entities": folders[0], "entity_encoder": folders[1], "device": "cpu"}
    index = mo.build_index(mo.reports(texts, **given), tmp_path / "I", metrics="ratescore")
    # A prepared set keeps what made it.
    assert (
        mo.reports(index).load().attached["entities"].made_by == EntityModels(folders[0], encoder=folders[1]).signature
    )
    others = copied(folders[0], tmp_path / "rules"), tmp_path / "recogniser", tmp_path / "encoder"
    tiny.write_rules(others[0] / "rush_rules.tsv", tiny.RULES[:-1])
    tiny.write_recogniser(others[1], seed=9)
    tiny.write_encoder(others[2], seed=9)
    match = r"^retrieve: entities must come from the model of the index, sha256 [0-9a-f]{12}; got [0-9a-f]{12}\. Pass"
    for recogniser, encoder in ((others[0], folders[1]), (others[1], folders[1]), (folders[0], others[2])):
        with pytest.raises(InputError, match=match):
            mo.retrieve(
                index, mo.reports(texts, entities=recogniser, entity_encoder=encoder, device="cpu"), "ratescore"
            )
    assert (mo.retrieve(index, mo.reports(texts, **given), "ratescore").table["score"].to_numpy() >= 0.5).all()


def test_what_is_cut_off_is_told(folders, oracle, tmp_path):
    reports = write(tmp_path / "r.csv", {"a": "no effusion " * 300, "b": "No effusion."})
    models = ("--entities", folders[0], "--entity-encoder", folders[1], "--device", "cpu")
    line = "1 of 2 reports have sentences longer than RaTE-NER takes: their ends are cut off"
    assert line in oracle("annotate", reports, *models, "--out", tmp_path / "e.parquet")[2]
    assert line in oracle("build-index", reports, *models, "--out", tmp_path / "I", "-m", "ratescore")[2]


def copied(folder, to, **changed):
    """Copy a model's folder, files by their stem replaced, or left out for None."""
    to.mkdir()
    for path in folder.iterdir():
        content = changed.get(path.stem, path.read_bytes())
        if content is not None:
            (to / path.name).write_bytes(content)
    return to


def refuses(match, recogniser, encoder, error=InputError):
    with pytest.raises(error, match=match) as caught:
        EntityModels(recogniser, encoder=encoder, device="cpu")
    assert "\n" not in str(caught.value)


def test_folders_that_are_none(folders, tmp_path, monkeypatch):
    recogniser, encoder = folders
    refuses(
        r"^entity_encoder must be given if entities names a model; got None\. Add ",
        recogniser,
        None,
    )
    refuses(
        r"^entities must be a folder with config\.json; got none in .*nowhere\. Save",
        tmp_path / "nowhere",
        encoder,
    )
    refuses(r"^entity_encoder must be a folder with config\.json; got none in ", recogniser, tmp_path)
    bare = copied(recogniser, tmp_path / "bare", model=None)
    refuses(r"entities must be a folder with model\.safetensors or pytorch_model\.bin; got none in ", bare, encoder)
    damaged = copied(recogniser, tmp_path / "damaged", model=b"no weights")
    refuses(
        r"entities must be a model and a tokenizer that transformers can load .code in the folder", damaged, encoder
    )
    refuses(
        r"entities must have weights for every tensor it uses; got none for \d+ \(",
        encoder_as_recogniser(folders, tmp_path),
        encoder,
    )
    # Without rules in the folder or an installed medspaCy.
    lone = copied(recogniser, tmp_path / "lone", rush_rules=None)
    monkeypatch.setattr(sentences, "find_spec", lambda name: None)
    match = r"into sentences for `entities` must have medspaCy's .* got none\. Install it: pip install --no-deps"
    refuses(match, lone, encoder, BackendError)
    for number, content in enumerate((b"", b"a\tb\tc", b"\xff\xfe", b"\\a\t0\tstbegin\n", b"\t2\tstend\n")):
        foreign = copied(recogniser, tmp_path / f"foreign{number}", rush_rules=content)
        refuses(
            r"into sentences for `entities` must have rules with .* stbegin or stend, .* Pass medspaCy's",
            foreign,
            encoder,
        )


def encoder_as_recogniser(folders, tmp_path):
    """Return a folder whose weights lack the classifier."""
    from safetensors.torch import load_file, save_file

    folder = copied(folders[0], tmp_path / "headless")
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {n: t for n, t in tensors.items() if "classifier" not in n}, folder / "model.safetensors", {"format": "pt"}
    )
    return folder


def test_labels_that_are_others(folders, tmp_path):
    of_models = {"'B-ORGAN'": ("O", "B-ORGAN", "I-ORGAN"), "no O": ("B-DISEASE", "I-DISEASE")}
    for number, (got, labels) in enumerate(of_models.items()):
        tiny.write_recogniser(tmp_path / str(number), labels)
        match = rf"entities must be a model with the labels O, B-TYPE and I-TYPE, types abnormality, .*; got {got} in "
        refuses(match, tmp_path / str(number), folders[1])


def test_weights_that_run_code_or_give_nan(folders, tmp_path):
    class Code:
        def __reduce__(self):
            return (Path(tmp_path / "ran").touch, ())

    recogniser = copied(folders[0], tmp_path / "code", model=None)
    torch.save({"x": Code()}, recogniser / "pytorch_model.bin")
    refuses(r"entities must be a model and a tokenizer that transformers can load", recogniser, folders[1])
    assert not (tmp_path / "ran").exists()
    from safetensors.torch import load_file, save_file

    for place, argument in enumerate(("entities", "entity_encoder")):
        broken = copied(folders[place], tmp_path / argument)
        tensors = {n: t * float("nan") for n, t in load_file(broken / "model.safetensors").items()}
        save_file(tensors, broken / "model.safetensors", {"format": "pt"})
        both = [broken if at == place else folder for at, folder in enumerate(folders)]
        model = EntityModels(both[0], encoder=both[1], device="cpu")
        with pytest.raises(InputError, match=rf"^{argument} must give finite numbers; got NaN.* infinity") as caught:
            model.recognise([f"{SECRET} effusion.", *TEXTS[:3]])
        assert SECRET not in str(caught.value)


def test_bad_folders_end_in_one_line(folders, fails, tmp_path):
    reports = write(tmp_path / "r.csv", {"a": "No effusion."})
    out = ("--out", tmp_path / "e.parquet")
    match = r"annotate: --entity-encoder must be given if entities names a model; got none\."
    fails("annotate", reports, "--entities", folders[0], *out, match=match)
    match = re.escape(f"annotate: --entities must be a folder with config.json; got none in {tmp_path}.")
    fails("annotate", reports, "--entities", tmp_path, "--entity-encoder", folders[1], *out, match=match)
    match = r"annotate: --entities must be the folder of the model RaTE-NER; got .*r\.csv\. Pass the model itself"
    fails("annotate", reports, "--entities", tmp_path / "r.csv", *out, match=match)
    match = r"annotate: --out must end with \.parquet for this model; got .*e\.json\. Name such a file\."
    fails("annotate", reports, "--entities", folders[0], "--out", tmp_path / "e.json", match=match)
    match = re.escape(f"build-index: --entities must be a folder with config.json; got none in {tmp_path}.")
    fails(
        "build-index",
        reports,
        "--entities",
        tmp_path,
        "--entity-encoder",
        folders[1],
        "--out",
        tmp_path / "I",
        match=match,
    )
