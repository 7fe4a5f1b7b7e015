"""Tiny RadGraph archives in the published format, for the tests and for `golden/make_radgraph_annotations.py`.

Weights are drawn by NumPy, tensor by tensor in alphabetical order, so they are the same on every machine. It is loaded
from its path, in environments without metric_oracle too, and imports nothing of it.
"""

import hashlib
import io
import json
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np

LABELS = {
    "radgraph": ["ANAT-DP", "OBS-DP", "OBS-DA", "OBS-U"],
    "radgraph-xl": [
        "Anatomy::definitely present", "Observation::definitely present", "Observation::definitely absent",
        "Observation::uncertain", "Observation::measurement::definitely present", "Anatomy::uncertain",
        "Anatomy::definitely absent", "Anatomy::measurement::definitely present",
        "Observation::measurement::definitely absent", "Observation::measurement::uncertain",
        "Anatomy::measurement::uncertain",
    ],
}  # fmt: skip
LABELS["modern-radgraph-xl"] = LABELS["echograph"] = LABELS["radgraph-xl"]
RELATION_TYPES = ["modify", "located_at", "suggestive_of"]
TYPES = tuple(LABELS)
# Small windows, so that common reports need several; v1 has those of the published archive.
WINDOWS = {"radgraph": 512, "radgraph-xl": 64, "modern-radgraph-xl": 48, "echograph": 64}
ENCODER = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
# Seed and bias of the entity labels, with which each model finds some entities and relations but not too many.
DRAWS = {"radgraph": (14, -3), "radgraph-xl": (3, -2), "modern-radgraph-xl": (30, -2), "echograph": (15, -3)}
DIM, HIDDEN, FEATURES, MAX_WIDTH = 16, 12, 4, 6

WORD_PIECES = (
    "no the of and is are in with lung lungs clear left right base effusion pleural edema heart normal size mild "
    "pneumo ##thorax ##ia cardio ##megaly ##diastin me ##al ##um tube tip opacity stable without acute "
    "##es ##ing ##ed ##s"
)
MERGES = ["i n", "e r", "a l", "o n", "l u", "n g", "lu ng", "e f", "ef f", "r i", "g h", "gh t", "t h", "in g"]


def write_encoder(folder: Path, model_type: str) -> Path:
    """Write configuration and tokenizer of a tiny BERT, or ModernBERT, as the hub has them."""
    folder.mkdir(parents=True, exist_ok=True)
    modern = model_type.startswith("modern")
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{char}" for char in characters)]
    pieces += [piece for piece in dict.fromkeys(WORD_PIECES.split()) if piece not in pieces]
    config = {
        "model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": len(pieces), "hidden_size": DIM,
        "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 512,
        "type_vocab_size": 2, "pad_token_id": 0,
    }  # fmt: skip
    tokenizer_config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512}
    if modern:
        vocabulary = _write_byte_pairs(folder)
        config = {
            "model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], "vocab_size": len(vocabulary),
            "hidden_size": DIM, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 24,
            "max_position_embeddings": 8192, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
            "local_attention": 8, "local_rope_theta": 10000.0, "position_embedding_type": "absolute",
            "pad_token_id": vocabulary["[PAD]"], "cls_token_id": vocabulary["[CLS]"],
            "sep_token_id": vocabulary["[SEP]"], "bos_token_id": vocabulary["[CLS]"],
            "eos_token_id": vocabulary["[SEP]"], "norm_bias": False, "attention_bias": False, "mlp_bias": False,
        }  # fmt: skip
        names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
        tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True, **names}
    else:
        (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), "utf-8")
    return folder


def _write_byte_pairs(folder: Path) -> dict[str, int]:
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet()) + [merge.replace(" ", "") for merge in MERGES]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split()) for merge in MERGES]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special])
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0", special_tokens=ids
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer.get_vocab()


def config_of(model_type: str, encoder: str) -> dict:
    """Return config.json; `encoder` is the name of the transformer."""
    bert = {"model_name": encoder, "max_length": WINDOWS[model_type]}
    return {
        "dataset_reader": {"type": "dygie", "max_span_width": MAX_WIDTH, "token_indexers": {"bert": bert}},
        "model": {
            "type": "dygie", "embedder": {"token_embedders": {"bert": bert}}, "initializer": {},
            "module_initializer": {}, "feature_size": FEATURES, "max_span_width": MAX_WIDTH, "target_task": "relation",
            "feedforward_params": {"num_layers": 2, "hidden_dims": HIDDEN, "dropout": 0.4},
            "loss_weights": {"ner": 0.2, "relation": 1.0, "coref": 0.0, "events": 0.0},
            "modules": {
                "ner": {}, "relation": {"spans_per_word": 0.5},
                "coref": {"spans_per_word": 0.3, "max_antecedents": 100, "coref_prop": 0},
                "events": {
                    "trigger_spans_per_word": 0.3, "argument_spans_per_word": 0.8,
                    "loss_weights": {"trigger": 1.0, "arguments": 1.0},
                },
            },
        },
    }  # fmt: skip


def weights_of(model_type: str, encoder: Path) -> dict[str, np.ndarray]:
    """Return every tensor of an archive, those of unused tasks too."""
    from transformers import AutoConfig, AutoModel

    model = AutoModel.from_config(AutoConfig.from_pretrained(encoder))
    shapes = {ENCODER + name: tuple(value.shape) for name, value in model.state_dict().items()}
    span = 2 * DIM + FEATURES
    ner, relation = f"{model_type}__ner_labels", f"{model_type}__relation_labels"
    shapes["_endpoint_span_extractor._span_width_embedding.weight"] = (MAX_WIDTH, FEATURES)
    shapes["_coref._distance_embedding.weight"] = shapes["_events._distance_embedding.weight"] = (10, FEATURES)
    chains = {
        f"_ner._ner_scorers.{ner}.0._module._linear_layers": (span, HIDDEN, HIDDEN),
        f"_ner._ner_scorers.{ner}.1._module": (HIDDEN, len(LABELS[model_type])),
        f"_relation._mention_pruners.{relation}._scorer.0._module._linear_layers": (span, HIDDEN, HIDDEN),
        f"_relation._mention_pruners.{relation}._scorer.1._module": (HIDDEN, 1),
        f"_relation._relation_feedforwards.{relation}._linear_layers": (3 * span, HIDDEN, HIDDEN),
        f"_relation._relation_scorers.{relation}": (HIDDEN, len(RELATION_TYPES)),
        "_coref._antecedent_feedforward._module._linear_layers": (3 * span + FEATURES, HIDDEN, HIDDEN),
        "_coref._mention_pruner._scorer.0._module._linear_layers": (span, HIDDEN, HIDDEN),
        "_coref._mention_pruner._scorer.1._module": (HIDDEN, 1),
        "_coref._antecedent_scorer._module": (HIDDEN, 1),
        "_coref._f_network._linear_layers": (2 * span, span),
    }
    for prefix, sizes in chains.items():
        for number, (n_in, n_out) in enumerate(pairwise(sizes)):
            name = f"{prefix}.{number}" if prefix.endswith("_linear_layers") else prefix
            shapes |= {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}

    seed, entity_bias = DRAWS[model_type]
    biases = {
        f"_ner._ner_scorers.{ner}.1._module.bias": entity_bias,
        f"_relation._relation_scorers.{relation}.bias": -1,
    }
    rng = np.random.default_rng(seed)
    weights = {}
    for name in sorted(shapes):
        values = rng.normal(size=shapes[name])
        if name.lower().endswith("norm.weight"):
            values = 1 + 0.1 * values
        elif name.endswith("bias"):
            values = 0.1 * values + biases.get(name, 0)
        elif "embedding" not in name:
            values *= 1.5 / np.sqrt(shapes[name][-1])
        weights[name] = values.astype(np.float32)
    return weights


def hash_of(weights: dict[str, np.ndarray]) -> str:
    """Return a hash of names and values; that of the file would change with PyTorch."""
    digest = hashlib.sha256()
    for name, values in weights.items():
        digest.update(name.encode() + values.tobytes())
    return digest.hexdigest()


def files_of(model_type: str, encoder: Path, name: str = "tiny/encoder") -> dict[str, bytes]:
    """Return the files of an archive."""
    import torch

    weights = io.BytesIO()
    torch.save({key: torch.from_numpy(value) for key, value in weights_of(model_type, encoder).items()}, weights)
    return {
        "config.json": json.dumps(config_of(model_type, name)).encode(),
        "weights.th": weights.getvalue(),
        "vocabulary/non_padded_namespaces.txt": b"*labels\n*tags\n",
        f"vocabulary/{model_type}__ner_labels.txt": "\n".join(["", *LABELS[model_type], ""]).encode(),
        f"vocabulary/{model_type}__relation_labels.txt": "\n".join([*RELATION_TYPES, ""]).encode(),
    }


def write_archive(path: Path, files: dict[str, bytes], prefix: str = "") -> Path:
    """Write files as .tar.gz."""
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path
