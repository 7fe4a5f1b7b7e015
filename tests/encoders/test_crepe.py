import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from math import erf

import numpy as np
import pytest

from metric_oracle.base.errors import BackendError, InputError, install_command
from metric_oracle.encoders.crepe import CATEGORIES, Crepe
from support.crepe import VOCABULARY, published_counts, tiny_config, tiny_tensors, write_tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PAIRS = [
    ("Normal chest radiograph", "Bilateral pleural effusions noted"),
    ("No acute cardiopulmonary process.", "No acute cardiopulmonary process."),
    ("", "Mild edema."),
    ("Mild edema.", ""),
    ("", ""),
    ("Mild\n  EDEMA ___, (1/2).", "mild edema ___, (1/2)."),
    ("No acute effusion. " * 120, "small"),
    ("small", "No acute effusion. " * 120),
    ("Zebra 7! Ünbekannt", "no acute fusion"),
    ("Normal chest radiograph", "Bilateral pleural effusions noted"),
]


@pytest.fixture(scope="module")
def tensors():
    return tiny_tensors(tiny_config())


@pytest.fixture
def folder(tmp_path, tensors):
    return write_tiny(tmp_path / "crepe", tensors)


def load(path, **options):
    return Crepe(path, device="cpu", **options)


def refused(path, line, **options):
    with pytest.raises(InputError) as caught:
        load(path, **options)
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("changes", "weights"),
    [
        ({}, "model.safetensors"),
        ({"use_poisson_loss": True}, "pytorch_model.bin"),
        ({"max_position_embeddings": 40, "use_presence_loss": False}, "model.safetensors"),
    ],
)
def test_counts_are_the_published_ones(tmp_path, changes, weights):
    config = tiny_config(**changes)
    tensors = tiny_tensors(config, seed=11)
    path = write_tiny(tmp_path / "crepe", tensors, config, weights=weights)
    counts, n_cut = load(path).count_errors(PAIRS)
    wanted = np.array([published_counts(path, tensors, config, *pair) for pair in PAIRS])
    assert counts.shape == (len(PAIRS), 6)
    assert counts.dtype == np.float64
    np.testing.assert_allclose(counts, wanted, atol=1e-6, rtol=0)
    assert (counts >= 0).all()
    assert len(np.unique(counts.sum(1))) > 4  # the pairs are told apart
    assert (counts == 0).any() != config["use_poisson_loss"]  # softplus is never 0
    tokenizer = transformers.BertTokenizer.from_pretrained(path)
    whole = [tokenizer(*pair, verbose=False)["input_ids"] for pair in PAIRS]
    assert n_cut == sum(len(ids) > config["max_position_embeddings"] for ids in whole) > 1


def test_an_encoder_without_a_pooler(tmp_path):
    """The state of [CLS] stands for the pooled one, and token types stay out, as with DistilBERT."""
    config = {
        "model_type": "distilbert", "vocab_size": len(VOCABULARY), "dim": 16, "n_layers": 2, "n_heads": 2,
        "hidden_dim": 24, "max_position_embeddings": 64, "num_error_categories": 6, "use_poisson_loss": False,
    }  # fmt: skip
    torch.manual_seed(3)
    encoder = transformers.DistilBertModel(transformers.DistilBertConfig.from_dict(config)).eval()
    tensors = {f"bert.{name}": torch.randn_like(value) * 0.3 for name, value in encoder.state_dict().items()}
    heads = {f"error_{name}.{i}.{part}": torch.randn(shape) for name in ("regressors", "presence") for i in range(6)
             for part, shape in (("weight", (1, 16)), ("bias", (1,)))}  # fmt: skip
    path = write_tiny(tmp_path / "crepe", {**tensors, **heads}, config)
    encoder.load_state_dict({name[5:]: value for name, value in tensors.items()})
    batch = transformers.BertTokenizer.from_pretrained(path)("a b.", "no acute ed", return_tensors="pt")
    with torch.no_grad():
        state = encoder(batch["input_ids"]).last_hidden_state[0, 0]
    wanted = [float(heads[f"error_regressors.{i}.weight"][0] @ state + heads[f"error_regressors.{i}.bias"])
              for i in range(6)]  # fmt: skip
    counts, _ = load(path).count_errors([("a b.", "no acute ed")])
    np.testing.assert_allclose(counts[0], np.maximum(wanted, 0), atol=1e-6, rtol=0)


def test_the_sample_of_the_published_checkpoint():
    """With ORACLE_CREPE=folder of gihuncho/crepe-biomedbert: what its example prints."""
    if "ORACLE_CREPE" not in os.environ:
        pytest.skip("ORACLE_CREPE names no checkpoint")
    counts, _ = load(os.environ["ORACLE_CREPE"]).count_errors([PAIRS[0]])
    wanted = [1.5391030311584473, 0.7975516319274902, 0, 0.026526600122451782, 0, 0]
    np.testing.assert_allclose(counts[0], wanted, atol=1e-3, rtol=0)  # its device is not recorded


def test_the_order_of_a_pair_counts(folder):
    """Equal reports score the same in both orders; different ones are not symmetric."""
    model, (one, other) = load(folder), PAIRS[0]
    counts, _ = model.count_errors([(one, one), (one, other), (other, one)])
    assert np.array_equal(model.count_errors([(one, one)])[0][0], counts[0])
    assert not np.array_equal(counts[1], counts[2])


def bert_by_hand(tensors, config, ids, kinds):
    """Return the pooled state in float64, from the definition of BERT."""
    w = {name: value.double().numpy() for name, value in tensors.items()}

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    home = "bert.embeddings"
    x = w[f"{home}.word_embeddings.weight"][ids] + w[f"{home}.token_type_embeddings.weight"][kinds]
    x = norm(x + w[f"{home}.position_embeddings.weight"][: len(ids)], f"{home}.LayerNorm")
    n_heads = config["num_attention_heads"]
    for layer in range(config["num_hidden_layers"]):
        home = f"bert.encoder.layer.{layer}"
        q, k, v = (
            linear(x, f"{home}.attention.self.{name}").reshape(len(ids), n_heads, -1).swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2])
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ v
        x = norm(x + linear(mixed.swapaxes(0, 1).reshape(x.shape), f"{home}.attention.output.dense"),
                 f"{home}.attention.output.LayerNorm")  # fmt: skip
        inner = linear(x, f"{home}.intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(erf)(inner / np.sqrt(2)))
        x = norm(x + linear(inner, f"{home}.output.dense"), f"{home}.output.LayerNorm")
    return np.tanh(linear(x[0], "bert.pooler.dense"))


def test_counts_are_those_of_float64(folder, tensors):
    config, pair = tiny_config(), ("a b.", "no acute ed")
    words = ["[CLS]", "a", "b", ".", "[SEP]", "no", "acute", "e", "##d", "[SEP]"]
    ids, kinds = [VOCABULARY.index(word) for word in words], [0] * 5 + [1] * 5
    pooled = bert_by_hand(tensors, config, ids, kinds)
    wanted = [
        float((tensors[f"error_regressors.{i}.weight"].double().numpy() @ pooled)[0])
        + float(tensors[f"error_regressors.{i}.bias"])
        for i in range(6)
    ]
    counts, _ = load(folder).count_errors([pair])
    np.testing.assert_allclose(counts[0], np.maximum(wanted, 0), atol=1e-12, rtol=0)
    assert CATEGORIES == ("A", "B", "C", "D", "E", "F")


def test_a_pair_scores_alone(folder):
    """The same bits whatever the company, the order and the number of threads; each distinct pair is read once."""
    model = load(folder)
    told = []
    counts, n_cut = model.count_errors(PAIRS, progress=told.append)
    assert sum(told) == len(PAIRS) - 1
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        backwards, _ = model.count_errors(PAIRS[::-1])
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(backwards[::-1], counts)
    for pair, row in zip(PAIRS, counts, strict=True):
        assert np.array_equal(model.count_errors([pair])[0][0], row)
    assert n_cut == 2
    nothing, n_cut = model.count_errors([])
    assert nothing.shape == (0, 6)
    assert n_cut == 0


def test_files_that_lie_elsewhere(tmp_path, folder):
    counts, _ = load(folder).count_errors(PAIRS)
    alone, beside = tmp_path / "alone", tmp_path / "beside"
    for path in (alone, beside):
        path.mkdir()
    (folder / "model.safetensors").rename(alone / "crepe.safetensors")
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(beside)
    assert (beside / "tokenizer.json").is_file()
    path = alone / "crepe.safetensors"
    model = load(path, config=folder / "config.json", vocabulary=beside / "tokenizer.json")
    assert np.array_equal(model.count_errors(PAIRS)[0], counts)
    model = load(path, config=str(folder / "config.json"), vocabulary=str(folder / "vocab.txt"))
    assert np.array_equal(model.count_errors(PAIRS)[0], counts)
    refused(path, f"crepe must have config.json; got none in {alone}. Put it there.")
    (alone / "config.json").write_bytes((folder / "config.json").read_bytes())
    refused(path, f"crepe must have tokenizer.json or vocab.txt; got none in {alone}. Put it there.")
    refused(folder, f"crepe must have model.safetensors or pytorch_model.bin; got none in {folder}. Put it there.")
    refused(tmp_path / "none", f"there is no file {tmp_path / 'none'}. Check the name.")


def test_a_vocabulary_may_keep_its_case(tmp_path, folder):
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = load(folder).count_errors([("MILD", "x"), ("mild", "x"), ("[UNK]", "x")])[0]
    assert np.array_equal(cased[0], cased[2])
    assert not np.array_equal(cased[0], cased[1])


def test_the_signature_names_every_file(folder):
    found = load(folder).signature
    assert found == {
        "model": "crepe",
        "checkpoint": "model.safetensors",
        "sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "config_sha256": hashlib.sha256((folder / "config.json").read_bytes()).hexdigest(),
        "vocabulary_sha256": hashlib.sha256((folder / "vocab.txt").read_bytes()).hexdigest(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    assert load(folder).environment["threads_of_a_product"] == 1


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda t: t.pop("error_presence.5.bias"), "1 missing ('error_presence.5.bias')"),
        (lambda t: t.pop("bert.pooler.dense.weight"), "1 missing ('bert.pooler.dense.weight')"),
        (lambda t: t.update(extra=torch.ones(1)), "1 unexpected ('extra')"),
        (lambda t: t.update({"error_regressors.6.bias": torch.ones(1)}), "1 unexpected ('error_regressors.6.bias')"),
        (
            lambda t: t.update({"error_regressors.0.weight": torch.ones(2, 16)}),
            "1 misshapen ('error_regressors.0.weight')",
        ),
    ],
)
def test_every_tensor_must_fit(tmp_path, tensors, weights, change, got):
    changed = dict(tensors)
    change(changed)
    path = write_tiny(tmp_path / "crepe", changed, weights=weights)
    refused(
        path,
        f"checkpoint must hold the tensors of CREPE and no other; got {got} in {path / weights}. "
        "Pass the folder of gihuncho/crepe-biomedbert, or one that oracle train-crepe wrote.",
    )


def test_positions_of_old_files_count_for_nothing(tmp_path, tensors):
    path = write_tiny(tmp_path / "crepe", {**tensors, "bert.embeddings.position_ids": torch.arange(512)[None]})
    assert load(path).count_errors(PAIRS[:1])[0].shape == (1, 6)


def test_damaged_weights(folder, tensors):
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    for damaged in (raw[:-9], raw[:5], b"", b"\xff" * 64):
        path.write_bytes(damaged)
        refused(folder, f"crepe must be a whole safetensors file; got a damaged one, {path}. Fetch it again.")
    path.unlink()
    path = folder / "pytorch_model.bin"
    path.write_bytes(pickle.dumps(print))
    refused(
        folder,
        f"checkpoint must be a whole PyTorch file of tensors without code; got a damaged or foreign one, "
        f"{path}. Fetch it again.",
    )
    for content in ([1], {"model_state_dict": tensors}):
        torch.save(content, path)
        refused(
            folder,
            f"crepe must hold tensors by their names; got another content in {path}. Pass pytorch_model.bin.",
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none(tmp_path, tensors, value):
    changed = {**tensors, "error_regressors.2.bias": torch.tensor([value])}
    path = write_tiny(tmp_path / "crepe", changed)
    line = f"crepe must give finite numbers; got NaN or infinity from {path / 'model.safetensors'}. Fetch it again."
    with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
        load(path).count_errors(PAIRS[:1])


@pytest.mark.parametrize(
    "content",
    [
        "{", "[]", "{}",
        json.dumps(tiny_config(model_type=3)),
        json.dumps(tiny_config(num_error_categories=5)),
        json.dumps(tiny_config(use_poisson_loss="no")),
        json.dumps({k: v for k, v in tiny_config().items() if k != "use_poisson_loss"}),
    ],
)  # fmt: skip
def test_a_config_of_another_model(folder, content):
    path = folder / "config.json"
    path.write_text(content)
    refused(
        folder,
        "config of crepe must be a config.json of CREPE, with model_type, num_error_categories 6 and "
        f"use_poisson_loss; got another one, {path}. Pass the config.json of the checkpoint.",
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "zebra"}, {"hidden_size": "many"},
        {"num_attention_heads": 3}, {"num_attention_heads": 0}, {"hidden_act": "zebra"},
        {"max_position_embeddings": 2}, {"hidden_size": -16}, {"num_hidden_layers": "x"},
    ],
)  # fmt: skip
def test_sizes_that_no_bert_has(tmp_path, tensors, changes):
    path = write_tiny(tmp_path / "crepe", tensors, tiny_config(**changes))
    refused(
        path,
        f"config of crepe must have a model_type and sizes that an encoder can have; got model_type "
        f"{changes.get('model_type', 'bert')!r} with its sizes in {path / 'config.json'}. "
        "Fetch it again.",
    )


def test_a_foreign_vocabulary(tmp_path, folder):
    n = len(VOCABULARY)
    lines = {
        "short": (VOCABULARY[:-1], n - 1),
        "without": ([word.replace("[SEP]", "[sep]") for word in VOCABULARY], 0),
        "empty": ([], 0),
    }
    for name, (words, got) in lines.items():
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(f"{word}\n" for word in words))
        refused(
            folder,
            f"vocabulary of crepe must have {n} word pieces as in the checkpoint, with [UNK] [CLS] [SEP], and join "
            f"pairs of texts as BERT does; got {got} in {path}. Pass the tokenizer.json or vocab.txt of the "
            "checkpoint.",
            vocabulary=path,
        )
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(InputError, match=r"got 0 in .*tokenizer\.json\. Pass the"):
        load(folder, vocabulary=path)
    from tokenizers import Tokenizer, models

    for words, wrong in (
        (VOCABULARY, "joined in another way"),
        ([word.replace("[SEP]", "[sep]") for word in VOCABULARY], r"without \[SEP\]"),
    ):
        Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")).save(str(path))
        with pytest.raises(InputError, match=rf"and join pairs of texts as BERT does; got {n} {wrong} in"):
            load(folder, vocabulary=path)


def test_without_torch(folder):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from metric_oracle.encoders.crepe import Crepe\nfrom metric_oracle.base.errors import BackendError\n"
        f"try: Crepe({str(folder)!r}, function='score')\nexcept BackendError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    command = f"Run: {install_command('encoders')}"
    assert done.stdout == f"CREPE needs the Python package torch, which is not installed. {command}\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(folder):
    with pytest.raises(BackendError, match=r'^device "cuda" is not usable'):
        Crepe(folder, device="cuda")
