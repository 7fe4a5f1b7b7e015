"""Training of CREPE: a BERT encoder, pairs of reports and their counts of errors -> a checkpoint in its layout.

The dual loss of Cho et al. (EMNLP 2025): the heads of counts have the mean squared error of the counts, the heads of
presence the binary cross-entropy of "at least one"; both are means over pairs and the six categories, and the loss is
(1 - w) of the first and w of the second. The presence heads help the encoder and are not asked afterwards.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.encoders import model_files
from metric_oracle.encoders.crepe import (
    CATEGORIES,
    MAX_PIECES,
    VOCABULARIES,
    build_network,
    load_tokenizer,
    run_network,
)
from metric_oracle.encoders.libraries import choose_device, import_libraries, quiet
from metric_oracle.errors import InputError
from metric_oracle.files import json_text, new_folder
from metric_oracle.progress import Progress

_WARM_UP = 0.1  # share of the steps in which the learning rate rises; then it falls to 0
_DECAY = 0.01  # of the weights, biases and norms apart
_LARGEST_GRADIENT = 1.0
_LIKE = 50  # batches whose pairs are sorted by length together, so that little is padding


@dataclass(frozen=True)
class Settings:
    """How CREPE is trained: epochs, batch and weight of the loss as the paper has them.

    Its learning rate was chosen on validation pairs and is not printed.

    Attributes
    ----------
    epochs : int
    batch_size : int
    learning_rate : float
        The highest.
    presence_weight : float
        w of the loss, from 0 to 1.
    seed : int
        Of the new heads, dropout and the order of the pairs.
    """

    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 2e-5
    presence_weight: float = 0.5
    seed: int = 0


def train(
    pairs: Sequence[tuple[str, str]],
    counts: np.ndarray,
    base: str | Path,
    out: Path,
    settings: Settings,
    *,
    device: str = "auto",
    function: str = "train_crepe",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train CREPE and write its checkpoint.

    Parameters
    ----------
    pairs : sequence of (reference, candidate)
    counts : float64[n, 6]
        Errors by category.
    base : str or path
        Encoder of BERT's kind: a folder, or a name of the Hugging Face hub.
    out : path
        New folder.
    settings : Settings
    device : {"auto", "cpu", "cuda"}
    function : str
        Name for error messages.
    progress : function
        Called with the epoch, finished pairs of it and all.

    Returns
    -------
    dict
        What training.json of the checkpoint has: settings, pairs, and the mean loss of each epoch.

    Raises
    ------
    InputError
        If pairs, settings or the base cannot be used, or the loss is no finite number.
    """
    torch, transformers = import_libraries(function, "CREPE")
    _check(pairs, counts, out, settings, function)
    device = choose_device(device, function)
    folder, name = model_files.find(base, function)
    # The caller's random numbers stay as they are.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(settings.seed)
        network, words = _start(folder, function)
        config = network["bert"].config
        tokenizer = load_tokenizer(words, config.vocab_size, function)
        tokenizer.enable_truncation(min(MAX_PIECES, config.max_position_embeddings), strategy="longest_first")
        encoded = tokenizer.encode_batch(list(pairs))
        losses = _fit(network.to(device), encoded, counts, settings, function, progress)
    described = {
        "base": name,
        "pairs": len(pairs),
        "settings": {**asdict(settings), "warm_up": _WARM_UP, "weight_decay": _DECAY},
        "losses": losses,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }
    _write(out, network, words, described)
    return described


def _check(pairs: Sequence[Any], counts: np.ndarray, out: Path, settings: Settings, function: str) -> None:
    """Raise unless there is something to learn from, and a place for it."""
    if counts.shape != (len(pairs), len(CATEGORIES)) or not len(pairs) or not (counts >= 0).all():
        msg = (
            f"{function}: counts must be numbers from 0, six for each of {len(pairs)} pairs (at least one); got others "
            f"of shape {counts.shape}. Pass the errors of categories A to F."
        )
        raise InputError(msg)
    if out.exists():
        msg = f"{function}: out must be a new folder; got {out}, which exists. Remove it or name another."
        raise InputError(msg)
    for name, rule, is_right in (
        ("epochs", "at least 1", settings.epochs >= 1),
        ("batch_size", "at least 1", settings.batch_size >= 1),
        ("learning_rate", "above 0 and below 1", 0 < settings.learning_rate < 1),
        ("presence_weight", "from 0 to 1", 0 <= settings.presence_weight <= 1),
    ):
        if not is_right:
            msg = f"{function}: {name} must be {rule}; got {getattr(settings, name)}. Choose one."
            raise InputError(msg)


def _start(folder: Path, function: str) -> tuple[Any, Path]:
    """Return the network with the encoder's weights and new heads, and the encoder's vocabulary."""
    from transformers import AutoConfig, BertModel

    words = [folder / name for name in VOCABULARIES if (folder / name).is_file()]
    try:
        with quiet():
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            kind = config.model_type
            bert = BertModel.from_pretrained(folder, local_files_only=True, config=config) if kind == "bert" else None
    # What the libraries under transformers raise at a damaged file has no narrower parent.
    except Exception as error:
        kind, bert = type(error).__name__, None
    if bert is None or not words:
        msg = (
            f"{function}: base must be an encoder of BERT's kind, with tokenizer.json or vocab.txt; got "
            f"{kind if bert is None else 'no vocabulary'} in {folder}. Pass BiomedBERT, for one."
        )
        raise InputError(msg)
    network = build_network(config)
    network["bert"] = bert.float()
    for name in ("error_regressors", "error_presence"):
        for head in network[name]:
            head.weight.data.normal_(std=config.initializer_range)
            head.bias.data.zero_()
    return network, words[0]


def _fit(
    network: Any,
    encoded: Sequence[Any],
    counts: np.ndarray,
    settings: Settings,
    function: str,
    progress: Progress | None,
) -> list[float]:
    """Train the network; return the mean loss of each epoch."""
    import torch

    n = len(encoded)
    rng = np.random.default_rng(settings.seed)
    device = next(network.parameters()).device
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": _DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate)
    n_steps = settings.epochs * -(-n // settings.batch_size)
    n_warm = max(1, int(_WARM_UP * n_steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / n_warm, (n_steps - step) / max(1, n_steps - n_warm))
    )
    drop = torch.nn.Dropout(network["bert"].config.hidden_dropout_prob)
    network.train()
    losses = []
    for epoch in range(settings.epochs):
        total, done = 0.0, 0
        for some in _batches([len(one.ids) for one in encoded], settings.batch_size, rng):
            ids, kinds, mask = _padded([encoded[i] for i in some], device)
            wanted = torch.tensor(counts[some], dtype=torch.float32, device=device)
            found, presence = run_network(network, ids, kinds, mask, drop)
            loss = dual_loss(found, presence, wanted, settings.presence_weight)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), _LARGEST_GRADIENT)
            optimizer.step()
            schedule.step()
            total, done = total + float(loss.detach()) * len(some), done + len(some)
            if progress is not None:
                progress(f"epoch {epoch + 1}", done, n)
        losses.append(total / n)
        if not np.isfinite(losses[-1]):
            msg = f"{function}: loss must stay finite; got {losses[-1]} in epoch {epoch + 1}. Lower the learning rate."
            raise InputError(msg)
    network.eval()
    return losses


def dual_loss(found: Any, presence: Any, wanted: Any, weight: float) -> Any:
    """Return the loss of a batch: (1 - w) MSE of the counts + w cross-entropy of their presence, means over all cells.

    Parameters
    ----------
    found, presence, wanted : float32[B, 6]
        What the heads of counts and of presence gave, and the counts.
    weight : float
    """
    from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

    of_presence = binary_cross_entropy_with_logits(presence, (wanted > 0).to(presence.dtype))
    return (1 - weight) * mse_loss(found, wanted) + weight * of_presence


def _batches(lengths: Sequence[int], size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the places of each batch, in an order that is drawn; those of a batch are of like lengths."""
    order = rng.permutation(len(lengths))
    batches: list[np.ndarray] = []
    for first in range(0, len(order), size * _LIKE):
        some = order[first : first + size * _LIKE]
        some = some[np.argsort(np.array(lengths)[some], kind="stable")]
        batches += [some[start : start + size] for start in range(0, len(some), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def _padded(some: Sequence[Any], device: Any) -> list[Any]:
    """Return ids, type ids and mask of encodings as int64[B, L]."""
    import torch

    length = max(len(one.ids) for one in some)
    cells = np.zeros((3, len(some), length), np.int64)
    for row, one in enumerate(some):
        cells[:, row, : len(one.ids)] = one.ids, one.type_ids, one.attention_mask
    return list(torch.from_numpy(cells).to(device))


def _write(out: Path, network: Any, words: Path, described: dict[str, Any]) -> None:
    """Write the checkpoint beside its place, and rename it."""
    from safetensors.torch import save_file

    out.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(out) as folder:
        config = {
            **network["bert"].config.to_dict(),
            "architectures": ["BertForCategoryErrorRegression"],
            "num_error_categories": len(CATEGORIES),
            "use_poisson_loss": False,
            "use_presence_loss": True,
            "presence_loss_weight": described["settings"]["presence_weight"],
        }
        tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        for name, content in (("config.json", config), ("training.json", described)):
            (folder / name).write_text(json_text(content), encoding="utf-8")
        for path in (words, words.with_name("tokenizer_config.json")):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
