"""A tiny CREPE in the published layout, and what the published package makes of a pair with it."""

import json
import string

import numpy as np

PIECES = [*string.ascii_lowercase, *string.digits, *".,;:/()-_'"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *PIECES, *(f"##{piece}" for piece in PIECES if piece.isalnum()), "no", "acute", "##fusion"]


def tiny_config(**changes):
    """Return the content of a config.json as the published one has it, of a tiny BERT."""
    content = {
        "architectures": ["BertForCategoryErrorRegression"], "model_type": "bert", "hidden_act": "gelu",
        "vocab_size": len(VOCABULARY), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "num_error_categories": 6, "use_poisson_loss": False, "use_presence_loss": True, "presence_loss_weight": 0.5,
    }  # fmt: skip
    return {**content, **changes}


def tiny_tensors(config, seed=7):
    """Return random tensors under their published names, large enough to tell texts apart."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    bert = BertModel(
        BertConfig(**{k: v for k, v in config.items() if not k.startswith(("num_error", "use_p", "pres"))})
    )
    tensors = {f"bert.{name}": torch.randn_like(value) * 0.3 for name, value in bert.state_dict().items()}
    for name in ("error_regressors", "error_presence"):
        for place in range(6):
            tensors[f"{name}.{place}.weight"] = torch.randn(1, config["hidden_size"]) * 0.5
            tensors[f"{name}.{place}.bias"] = torch.randn(1) * 0.5
    return tensors


def write_tiny(folder, tensors=None, config=None, *, weights="model.safetensors"):
    """Write a checkpoint: weights, config.json, vocab.txt, tokenizer_config.json."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    config = config or tiny_config()
    tensors = tensors or tiny_tensors(config)
    if weights.endswith(".safetensors"):
        save_file({name: value.contiguous() for name, value in tensors.items()}, folder / weights)
    else:
        torch.save(tensors, folder / weights)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}', encoding="utf-8")
    return folder


def published_counts(folder, tensors, config, reference, candidate):
    """Return the six counts as the published package documents them: float32, padded to 512 pieces, clipped at 0."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(folder)
    bert = BertModel(BertConfig.from_dict(config)).eval()
    bert.load_state_dict({name[5:]: value for name, value in tensors.items() if name.startswith("bert.")})
    limit = config["max_position_embeddings"]
    batch = tokenizer(
        reference, candidate, return_tensors="pt", padding="max_length", truncation=True, max_length=limit
    )
    with torch.no_grad():
        pooled = bert(**batch).pooler_output[0]
        heads = [(tensors[f"error_regressors.{i}.weight"][0], tensors[f"error_regressors.{i}.bias"]) for i in range(6)]
        found = torch.stack([pooled @ weight + bias[0] for weight, bias in heads])
        if config["use_poisson_loss"]:
            found = torch.nn.functional.softplus(found)
    return np.maximum(found.numpy().astype(np.float64), 0.0)
