import hashlib
import importlib.util
import io
import json
import pickle
import shutil
import socket
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from metric_oracle.base.errors import BackendError, InputError  # noqa: E402
from metric_oracle.corpora.radgraph_json import read_graphs  # noqa: E402
from metric_oracle.encoders import base, radgraph, radgraph_archive  # noqa: E402
from metric_oracle.encoders.packed_layers import can_pack  # noqa: E402
from metric_oracle.encoders.radgraph import RadGraph, split_words  # noqa: E402

# With transformers 4, loading ModernBERT compiles something in a way that PyTorch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
HERE = Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("tiny_radgraph", HERE / "tiny_radgraph.py")
tiny = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tiny)
GOLDEN = json.loads((HERE.parent / "golden/radgraph_annotations.json").read_text("utf-8"))
TEXTS = GOLDEN["texts"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Let PyTorch use one thread: for models this small, others only wait for each other."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Refuse every connection: nothing is downloaded."""

    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the transformer TYPE and the archive TYPE.tar.gz of each model type."""
    folder = tmp_path_factory.mktemp("radgraph")
    for model_type in tiny.TYPES:
        encoder = tiny.write_encoder(folder / model_type, model_type)
        tiny.write_archive(folder / f"{model_type}.tar.gz", tiny.files_of(model_type, encoder))
    return folder


@pytest.fixture(scope="module")
def models(folder):
    return {name: RadGraph(folder / f"{name}.tar.gz", encoder=folder / name, device="cpu") for name in tiny.TYPES}


@pytest.fixture(scope="module")
def files(folder):
    return tiny.files_of("radgraph", folder / "radgraph")


def load(folder, archive, **options):
    return RadGraph(archive, encoder=folder / "radgraph", device="cpu", **options)


# Against the package


@pytest.mark.parametrize("model_type", tiny.TYPES)
def test_annotations_are_those_of_the_package(folder, models, model_type):
    weights = tiny.weights_of(model_type, folder / model_type)
    assert tiny.hash_of(weights) == GOLDEN["weights"][model_type]
    finished = []
    annotations = models[model_type].annotate(TEXTS, progress=finished.append)
    assert annotations == GOLDEN["annotations"][model_type]
    assert list(annotations) == [str(row) for row in range(len(TEXTS))]
    assert sum(finished) == len(TEXTS)


def test_golden_values_cover_what_matters(models):
    for model_type, graphs in GOLDEN["annotations"].items():
        entities = [entity for graph in graphs.values() for entity in graph["entities"].values()]
        assert len(entities) > 40
        assert len({entity["label"] for entity in entities}) > 1
        assert any(entity["start_ix"] < entity["end_ix"] for entity in entities)
        assert sum(len(entity["relations"]) for entity in entities) > 20
        pieces = models[model_type]._split_pieces(TEXTS[-1].split())
        n_pieces = sum(len(pieces[word]) for word in TEXTS[-1].split())
        assert n_pieces > max(512, 1.2 * tiny.WINDOWS[model_type])


@pytest.mark.parametrize(
    ("text", "v1", "xl"),
    [
        ("", "None", "None"),
        (" \n\t\u2003", "None", "None"),
        ("No effusion.", "No effusion .", "No effusion ."),
        ("left-sided 1.5cm", "left-sided 1 . 5cm", "left - sided 1 . 5cm"),
        ("(g): and/or?!", "( g ) : and / or ? !", "( g ): and / or ?!"),
        ("a;b 'c' \"d\" ___", "a;b 'c' \"d\" ___", "a ; b ' c ' \" d \" ___"),
        ("one\ntwo\u00a0three", "one two three", "one two three"),
        ('x\\ny\\fz\\u2122 \\"q', 'x\\ny\\fz\\u2122 \\"q', "x y z `` q"),
        ("\\n", "\\n", "None"),
        ("(5%). 5%, (5%)", "( 5% ) . 5% , ( 5% )", "( 5 % ) . 5 % , ( 5 % )"),
        ("end.' end)..", "end . ' end ) . .", "end . ' end ) .."),
        ("x/. y/?", "x / . y / ?", "x /. y /?"),
        ("2cm² a\u0301b", "2cm² a\u0301b", "2cm² a \u0301 b"),
    ],
)
def test_text_rules(text, v1, xl):
    assert split_words(text, "radgraph") == v1.split()
    for model_type in tiny.TYPES[1:]:
        assert split_words(text, model_type) == xl.split()


# Batches


@pytest.mark.parametrize("model_type", tiny.TYPES)
def test_the_batch_changes_nothing(models, monkeypatch, model_type):
    annotations = models[model_type].annotate(TEXTS)
    monkeypatch.setattr(radgraph, "_PAIRS_PER_BATCH", 97)
    for n_pieces in (1, 1 << 12):
        monkeypatch.setattr(RadGraph, "batch_tokens", {"cpu": n_pieces})
        monkeypatch.setattr(base, "BATCH_TOKENS", n_pieces)
        assert models[model_type].annotate(TEXTS) == annotations
    monkeypatch.setattr(RadGraph, "part_size", {"cpu": 100})
    assert models[model_type].annotate(TEXTS) == annotations
    backwards = models[model_type].annotate(TEXTS[:7:-1])
    assert list(backwards.values()) == list(annotations.values())[:7:-1]


@pytest.mark.parametrize("model_type", tiny.TYPES)
def test_scores_are_the_same_bits_in_any_company(models, monkeypatch, model_type):
    """All scores of all heads, before the best class hides them: alone, in blocks, at once, with 1 and 2 threads."""
    model, scores, finite = models[model_type], {}, RadGraph._finite
    of_report, run = {}, RadGraph._entities_of_report

    def note(self, found):
        scores[threading.get_ident()].append(found.numpy().tobytes())
        return finite(self, found)

    def begin(self, words, n_pieces, states):
        scores[threading.get_ident()] = []
        entities = run(self, words, n_pieces, states)
        of_report.setdefault(" ".join(words), set()).add(b"".join(scores[threading.get_ident()]))
        return entities

    monkeypatch.setattr(RadGraph, "_finite", note)
    monkeypatch.setattr(RadGraph, "_entities_of_report", begin)
    texts = TEXTS[-14:]
    for n_threads in (1, 2):
        torch.set_num_threads(n_threads)
        for size in (1, 5, len(texts)):
            for first in range(0, len(texts), size):
                model.annotate(texts[first : first + size])
    torch.set_num_threads(1)
    assert {len(seen) for seen in of_report.values()} == {1}
    assert len(of_report) == len({" ".join(split_words(text, model_type)) for text in texts})


def test_packed_batches_mix_lengths_and_repeat_nothing(models, monkeypatch):
    if not can_pack("cpu", "float32"):
        pytest.skip("this machine cannot pack layers")
    batches, encode = [], RadGraph._encode
    monkeypatch.setattr(RadGraph, "_encode", lambda self, blocks: batches.append(blocks) or encode(self, blocks))
    texts = ["Lung clear.", "Left lung.", "No acute effusion is in the left lung.", "", "Lung clear."]
    models["radgraph"].annotate(texts)
    assert [[block.shape[0] for block in blocks] for blocks in batches] == [[1, 3]]


def test_equal_texts_are_computed_once(models, monkeypatch):
    seen = []
    run = RadGraph._entities_of_report
    monkeypatch.setattr(
        RadGraph,
        "_entities_of_report",
        lambda self, words, n_pieces, states: seen.append(words) or run(self, words, n_pieces, states),
    )
    finished = []
    texts = ["Lung clear.", "Left lung.", "Lung  clear .", "Lung clear.", "", "None", " \n "]
    annotations = models["radgraph"].annotate(texts, progress=finished.append)
    assert sorted(seen) == [["Left", "lung", "."], ["Lung", "clear", "."], ["None"]]
    assert [graph["text"] for graph in annotations.values()] == [
        "Lung clear .", "Left lung .", "Lung clear .", "Lung clear .", "None", "None", "None"
    ]  # fmt: skip
    assert sum(finished) == len(texts)
    assert models["radgraph"].annotate([]) == {}


def test_a_report_without_a_word_is_read_as_an_empty_one(models):
    for model in models.values():
        empty, blank, breaks = model.annotate(["", "   ", "\r\n\n"]).values()
        assert empty == blank == breaks


@pytest.mark.parametrize("window", [5, 6, 9])
@pytest.mark.parametrize("n", range(1, 24))
def test_windows_fold_and_unfold(window, n):
    # With special tokens, each piece comes once and in order, between the first start and the last end token.
    pieces = [*range(100, 100 + n)]
    folded = [pieces[first : first + window - 2] for first in range(0, n, window - 2)]
    ids = [piece for inner in folded for piece in (1, *inner, 2)]
    assert [ids[place] for place in radgraph._kept_states(len(ids), window)] == [1, *pieces, 2]


def test_annotations_are_a_radgraph_file(models, tmp_path):
    path = tmp_path / "graphs.json"
    for model_type, schema in (("radgraph", "radgraph"), ("modern-radgraph-xl", "radgraph-xl")):
        annotations = models[model_type].annotate(TEXTS[:-1])
        path.write_text(json.dumps(annotations), "utf-8")
        graphs = read_graphs(path)
        assert (graphs.keyed_by, graphs.schema, graphs.n_dangling) == ("position", schema, 0)
        assert graphs.texts == [graph["text"] for graph in annotations.values()]
        assert graphs.entity_ptr[-1] == sum(len(graph["entities"]) for graph in annotations.values())


# Archives


def test_signature(folder, models):
    import transformers

    for model_type, model in models.items():
        path = folder / f"{model_type}.tar.gz"
        assert model.signature == {
            "model": model_type,
            "archive": path.name,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "special_tokens": "legacy" if model_type == "modern-radgraph-xl" else "added",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }


def test_the_package_is_not_needed(models):
    assert models
    assert "radgraph" not in sys.modules


def test_extracted_folder(folder, files, models, tmp_path):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "vocabulary" / ".lock").touch()
    model = load(folder, tmp_path)
    assert model.annotate(TEXTS[:5]) == models["radgraph"].annotate(TEXTS[:5])
    assert model.signature["sha256"] == hashlib.sha256(files["weights.th"]).hexdigest()


def test_members_with_a_leading_dot_and_others(folder, files, models, tmp_path):
    more = {**files, "meta.json": b"{}", "vocabulary/.lock": b"", "vocabulary/a/radgraph-xl__ner_labels.txt": b""}
    archive = tiny.write_archive(tmp_path / "any.tar.gz", more, prefix="./")
    assert load(folder, archive).annotate(TEXTS[:5]) == models["radgraph"].annotate(TEXTS[:5])


def test_old_tensors_and_unused_tasks_are_known(folder, files, tmp_path):
    weights = torch.load(io.BytesIO(files["weights.th"]), weights_only=True)
    weights = {name: value for name, value in weights.items() if not name.startswith(("_coref.", "_events."))}
    weights[f"{tiny.ENCODER}embeddings.position_ids"] = torch.arange(512)[None]
    load(folder, tiny.write_archive(tmp_path / "a.tar.gz", {**files, "weights.th": saved(weights)}))


def test_nothing_outside_is_read_or_written(folder, files, models, tmp_path):
    (tmp_path / "in").mkdir()
    archive = tmp_path / "in" / "a.tar.gz"
    climbing = {"../config.json": b"{}", "/weights.th": b"", "x/../config.json": b"{", "../../evil": b"x"}
    tiny.write_archive(archive, {**climbing, **files, **{f"{name}/": b"" for name in climbing}})
    assert load(folder, archive).annotate(TEXTS[:2]) == models["radgraph"].annotate(TEXTS[:2])
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "a.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_links_are_not_followed(folder, files, tmp_path, kind):
    (tmp_path / "config.json").write_bytes(files["config.json"])
    archive = tiny.write_archive(tmp_path / "a.tar.gz", files)
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("config.json")
        member.type, member.linkname = kind, str(tmp_path / "config.json")
        tar.addfile(member)
    with pytest.raises(
        InputError, match=r"must hold config\.json as a plain file; got a link or folder in .*a\.tar\.gz"
    ):
        load(folder, archive)


def saved(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


class Code:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("save", [saved, pickle.dumps])
def test_pickled_code_is_not_run(folder, files, tmp_path, save):
    weights = save({"_ner": Code(tmp_path / "ran")})
    archive = tiny.write_archive(tmp_path / "a.tar.gz", {**files, "weights.th": weights})
    with pytest.raises(
        InputError, match=r"a PyTorch file of tensors without code as weights\.th; got a damaged or foreig"
    ):
        load(folder, archive)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("damage", ["cut", "flipped", "plain", "empty"])
def test_damaged_archive(folder, tmp_path, damage):
    content = bytearray((folder / "radgraph.tar.gz").read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        # The checksum itself, which only a reader of the whole file compares.
        content[-8] ^= 1
    else:
        content = bytearray(b"no archive" if damage == "plain" else b"")
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(
        InputError, match=r"must be a whole \.tar\.gz file; got a damaged, cut or foreign one, .*a\.tar\.gz"
    ):
        load(folder, tmp_path / "a.tar.gz")


def test_absent_archive(folder, tmp_path):
    with pytest.raises(InputError, match=r"^archive must be an existing \.tar\.gz file or folder; got .*absent"):
        load(folder, tmp_path / "absent")
    with pytest.raises(InputError, match=r"archive must hold config\.json; got none in"):
        load(folder, tmp_path)


def test_oversized_member(folder, files, monkeypatch, tmp_path):
    archive = tiny.write_archive(tmp_path / "a.tar.gz", files)
    monkeypatch.setattr(radgraph_archive, "_MOST_BYTES", 10)
    with pytest.raises(InputError, match=r"archive must have at most 10 bytes in config\.json; got \d+ in"):
        load(folder, archive)


@pytest.mark.parametrize("name", ["config.json", "weights.th"])
def test_missing_member(folder, files, tmp_path, name):
    archive = tiny.write_archive(tmp_path / "a.tar.gz", {key: files[key] for key in files if key != name})
    with pytest.raises(InputError, match=rf"archive must hold {name}; got none in .* Pass a published RadGraph"):
        load(folder, archive)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"radgraph__ner_labels.txt": None}, r"vocabulary/TYPE__ner_labels\.txt for one TYPE of .*; got none in"),
        (
            {"radgraph__ner_labels.txt": None, "None__ner_labels.txt": b"\nA\n"},
            r"for one TYPE of radgraph, radgraph-xl, modern-radgraph-xl, echograph; got 'None' in",
        ),
        ({"echograph__ner_labels.txt": b"\nA\n"}, "got 'echograph', 'radgraph' in"),
        (
            {"radgraph__ner_labels.txt": b"ANAT-DP\nOBS-DP\n"},
            "one name per line in its vocabulary, after an empty",
        ),
        ({"radgraph__ner_labels.txt": b"\n"}, "one name per line"),
        ({"radgraph__ner_labels.txt": b"\n\xff\n"}, "one name per line"),
        ({"radgraph__relation_labels.txt": None}, "one name per line"),
        ({"radgraph__relation_labels.txt": b"\nmodify\n"}, "one name per line"),
    ],
)
def test_foreign_vocabulary(folder, files, tmp_path, changed, match):
    changed = {**files, **{f"vocabulary/{name}": content for name, content in changed.items()}}
    archive = tiny.write_archive(
        tmp_path / "a.tar.gz", {key: text for key, text in changed.items() if text is not None}
    )
    with pytest.raises(InputError, match=match):
        load(folder, archive)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("model.feature_size", None, r"an int of at least 1 as model\.feature_size in config\.json; got None in"),
        ("model.feature_size", "4", "got '4' in"),
        ("model.feature_size", True, "got True in"),
        ("model", [], r"a name as model\.embedder\.token_embedders\.bert\.model_name in config\.json; got None"),
        ("dataset_reader.token_indexers.bert.model_name", "x", "must have the same name 'tiny/encoder' as dataset_"),
        ("dataset_reader.token_indexers.bert.max_length", 9, "must have the same 512 as dataset_reader"),
        ("model.embedder.token_embedders.bert.max_length", 2, "an int of at least 3 as model"),
        ("dataset_reader.max_span_width", 7, r"an int of at least 7 as model\.max_span_width in config\.json; got 6"),
        ("model.loss_weights.relation", 0, r"a number above 0 as model\.loss_weights\.relation"),
        ("model.modules.relation.spans_per_word", "x", r"a number above 0 as model\.modules\.relation\.spans_per_word"),
        ("model.modules.coref.coref_prop", 1, r"0 as model\.modules\.coref\.coref_prop in config\.json; got 1"),
        ("model.feedforward_params.hidden_dims", [8], r"an int or 2 of them as model\.feedforward_params\.hidden_dims"),
    ],
)
def test_foreign_settings(folder, files, tmp_path, key, value, match):
    config = json.loads(files["config.json"])
    inner = config
    *path, last = key.split(".")
    for part in path:
        inner = inner[part]
    inner[last] = value
    archive = tiny.write_archive(tmp_path / "a.tar.gz", {**files, "config.json": json.dumps(config).encode()})
    with pytest.raises(InputError, match=match):
        load(folder, archive)


def test_settings_that_are_no_json(folder, files, tmp_path):
    for content in (b"{", b"\xff", b"[" * 100_000):
        archive = tiny.write_archive(tmp_path / "a.tar.gz", {**files, "config.json": content})
        with pytest.raises(InputError, match=r"a name as model\.embedder.* in config\.json; got None in"):
            load(folder, archive)


def test_sizes_of_each_hidden_layer(folder, files, models, tmp_path):
    config = json.loads(files["config.json"])
    config["model"]["feedforward_params"]["hidden_dims"] = [tiny.HIDDEN, tiny.HIDDEN]
    archive = tiny.write_archive(tmp_path / "a.tar.gz", {**files, "config.json": json.dumps(config).encode()})
    assert load(folder, archive).annotate(TEXTS[:5]) == models["radgraph"].annotate(TEXTS[:5])


WIDTHS = "_endpoint_span_extractor._span_width_embedding.weight"
FIRST = f"{tiny.ENCODER}embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda tensors: tensors.pop(WIDTHS),
            rf"got 1 missing \('{WIDTHS}'\) in .* Pass a published archive and the enc",
        ),
        (lambda tensors: tensors.pop(FIRST), r"got 1 missing \('_embedder.*embeddings\.wor\.\.\.'\)"),
        (lambda tensors: tensors.update(more=torch.ones(1)), r"got 1 unexpected \('more'\)"),
        (lambda tensors: tensors.update({WIDTHS: torch.ones(3, 4)}), r"got 1 misshapen \('_endpoint_span"),
        (
            lambda tensors: tensors.clear() or tensors.update(a=torch.ones(1)),
            r"missing \(.*, \.\.\.\), 1 unexpected \('a'\)",
        ),
        (lambda tensors: tensors.update(a="text"), "a PyTorch file of tensors without code"),
    ],
)
def test_foreign_tensors(folder, files, tmp_path, change, match):
    tensors = dict(torch.load(io.BytesIO(files["weights.th"]), weights_only=True))
    change(tensors)
    archive = tiny.write_archive(tmp_path / "a.tar.gz", {**files, "weights.th": saved(tensors)})
    with pytest.raises(InputError, match=match):
        load(folder, archive)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name",
    [
        FIRST,
        "_ner._ner_scorers.radgraph__ner_labels.1._module.bias",
        "_relation._mention_pruners.radgraph__relation_labels._scorer.1._module.bias",
        "_relation._relation_scorers.radgraph__relation_labels.bias",
    ],
)
def test_scores_that_are_no_numbers(folder, files, tmp_path, name, value):
    tensors = dict(torch.load(io.BytesIO(files["weights.th"]), weights_only=True))
    tensors[name] = torch.full_like(tensors[name], value)
    model = load(folder, tiny.write_archive(tmp_path / "a.tar.gz", {**files, "weights.th": saved(tensors)}))
    with pytest.raises(
        InputError, match=r"archive must give finite numbers; got NaN or infinity from .*a\.tar\.gz\. Fetch"
    ):
        model.annotate(TEXTS)


# The transformer's own files


def test_encoder_is_found_by_its_name(folder, models, monkeypatch, tmp_path):
    archive = folder / "radgraph.tar.gz"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError,
        match=r"encoder must be a folder with config\.json and tokenizer\.json or vocab\.txt of tiny/encoder; got "
        r"nothing of that name here or in the Hugging Face cache\. Fetch these files and pass their folder\.$",
    ):
        RadGraph(archive)
    expected = models["radgraph"].annotate(TEXTS[:5])

    cached = tmp_path / "hub/models--tiny--encoder"
    shutil.copytree(folder / "radgraph", cached / "snapshots/1234")
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text("1234")
    assert RadGraph(archive, device="cpu").annotate(TEXTS[:5]) == expected
    (cached / "snapshots/1234/vocab.txt").unlink()
    with pytest.raises(InputError, match=r"encoder must be a folder with .*; got .*snapshots/1234\. Fetch"):
        RadGraph(archive)

    shutil.copytree(folder / "radgraph", tmp_path / "tiny/encoder")
    assert RadGraph(archive, device="cpu").annotate(TEXTS[:5]) == expected


@pytest.mark.parametrize("name", ["config.json", "vocab.txt"])
def test_incomplete_encoder(folder, tmp_path, name):
    shutil.copytree(folder / "radgraph", tmp_path / "encoder")
    (tmp_path / "encoder" / name).unlink()
    with pytest.raises(
        InputError, match=r"encoder must be a folder with .* of tiny/encoder; got .*encoder\. Fetch these"
    ):
        RadGraph(folder / "radgraph.tar.gz", encoder=tmp_path / "encoder")


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", "{"), ("config.json", '{"model_type": "unheard-of"}'), ("tokenizer.json", "{}")],
)
def test_unreadable_encoder(folder, tmp_path, name, content):
    shutil.copytree(folder / "modern-radgraph-xl", tmp_path / "encoder")
    (tmp_path / "encoder" / name).write_text(content)
    with pytest.raises(
        InputError, match=r"encoder must hold files that transformers [\d.]+ reads; got \w+ from .*encoder"
    ):
        RadGraph(folder / "modern-radgraph-xl.tar.gz", encoder=tmp_path / "encoder")


def test_no_code_of_an_encoder_is_run(folder, tmp_path):
    shutil.copytree(folder / "radgraph", tmp_path / "encoder")
    config = json.loads((tmp_path / "encoder/config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (tmp_path / "encoder/config.json").write_text(json.dumps(config))
    (tmp_path / "encoder/own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InputError, match="encoder must hold files that transformers"):
        RadGraph(folder / "radgraph.tar.gz", encoder=tmp_path / "encoder")
    assert not (tmp_path / "ran").exists()


def test_another_encoder(folder, tmp_path):
    with pytest.raises(
        InputError, match=r"tensors of its config\.json and its encoder tiny/encoder and no other; got \d+ missin"
    ):
        RadGraph(folder / "radgraph.tar.gz", encoder=folder / "modern-radgraph-xl")
    shutil.copytree(folder / "radgraph", tmp_path / "encoder")
    with (tmp_path / "encoder/vocab.txt").open("a") as file:
        file.write("one\ntwo\n")
    with pytest.raises(
        InputError, match="encoder must have a tokenizer that adds a start and an end token and has no mor"
    ):
        RadGraph(folder / "radgraph.tar.gz", encoder=tmp_path / "encoder")


# Arguments and machines


@pytest.mark.parametrize(
    ("texts", "match"),
    [
        ("Lung clear.", "texts must be a list of texts; got one text"),
        (["Lung clear.", None], "texts must all be str; got NoneType at position 1"),
        (["Lung clear.", "\ud800"], "texts must be valid Unicode; got half of a surrogate pair in text 1"),
    ],
)
def test_bad_texts(models, texts, match):
    with pytest.raises(InputError, match=match) as caught:
        models["radgraph"].annotate(texts)
    assert "clear" not in str(caught.value)


def test_devices(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    archive, encoder = folder / "radgraph.tar.gz", folder / "radgraph"
    with pytest.raises(InputError, match="device must be one of auto, cpu, cuda; got 'mps'"):
        RadGraph(archive, encoder=encoder, device="mps")
    with pytest.raises(BackendError, match='device "cuda" is not usable: no CUDA device found'):
        RadGraph(archive, encoder=encoder, device="cuda")


@pytest.mark.parametrize("module", ["torch", "transformers"])
def test_missing_libraries(folder, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        BackendError, match=rf'RadGraph needs the Python package {module}, .*pip install "torch'
    ) as caught:
        RadGraph(folder / "radgraph.tar.gz")
    assert "\n" not in str(caught.value)


def test_cuda_gives_the_same(folder, models):
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    for model_type, model in models.items():
        on_device = RadGraph(folder / f"{model_type}.tar.gz", encoder=folder / model_type, device="cuda")
        assert on_device.annotate(TEXTS) == model.annotate(TEXTS)
