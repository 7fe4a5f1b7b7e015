"""Training of CREPE: a BERT encoder, pairs of reports and their error counts -> a checkpoint that `crepe` reads.

The loss is the dual loss of Cho et al. (EMNLP 2025). The count heads are trained with the mean squared error of the
counts, the presence heads with the binary cross-entropy of "at least one error". Both are means over pairs and the six
categories, and the loss is (1 - w) times the first plus w times the second. The presence heads are not used after the
training.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_new_folder
from metric_oracle.base.checksum import sign
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import json_text, new_folder
from metric_oracle.base.progress import Progress
from metric_oracle.base.validation import check_declared
from metric_oracle.encoders import model_files
from metric_oracle.encoders.crepe import CATEGORIES, VOCABULARIES, build_network, load_tokenizer, run_network
from metric_oracle.encoders.libraries import choose_device, import_libraries, quiet

_WARM_UP = 0.1  # share of the steps in which the learning rate rises; then it falls to 0
_DECAY = 0.01  # weight decay; biases and norms have none
_LARGEST_GRADIENT = 1.0  # norm to which gradients are clipped
_SORTED_BATCHES = 50  # number of batches whose pairs are sorted by length together, so that there is little padding


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the training of CREPE. Epochs, batch size and weight of the loss are those of the paper.

    The paper chose its learning rate on validation pairs and does not print it.
    """

    epochs: Annotated[option_types.Positive, Doc("Number of passes over the training pairs.")] = 10
    batch_size: Annotated[option_types.Positive, Doc("Number of pairs in each optimization step.")] = 64
    learning_rate: Annotated[
        option_types.LearningRate, Doc("Peak learning rate of the optimizer, AdamW, which is reached after a warm-up.")
    ] = 2e-5
    presence_weight: Annotated[
        option_types.Share,
        Doc(
            "Weight of the loss for the presence of errors, from 0 to 1. The loss for the number of errors has the "
            "rest of the weight."
        ),
        Flag(metavar="W"),
    ] = 0.5
    seed: option_types.Seed = 0  # of the initial heads, the dropout and the order of the pairs


def train(
    pairs: Sequence[tuple[str, str]],
    counts: np.ndarray,
    base: str | Path,
    out: Path,
    settings: TrainingSettings,
    *,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train CREPE on pairs (reference, candidate) with errors by category, float64[n, 6], and write its checkpoint.

    `base` is the BERT encoder to begin with: a folder, or a name on the Hugging Face hub. `out` is a new folder. Return
    the content of training.json in it: settings, number of pairs, and the mean loss of each epoch. `progress` is called
    with the name of the epoch, the number of its finished pairs, and the number of all pairs. Raise InputError if an
    argument cannot be used, or the loss is not a finite number.
    """
    torch, transformers = import_libraries("CREPE")
    _check_training(pairs, counts, out, settings)
    device = choose_device(device)
    folder, name = model_files.find(base)
    # Leave the state of the caller's random generator unchanged.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(settings.seed)
        network, vocabulary = _initial_network(folder)
        encoded = load_tokenizer(vocabulary, network["bert"].config).encode_batch(list(pairs))
        losses = _fit(network.to(device), encoded, counts, settings, progress)
    description = {
        "base": name,
        "pairs": len(pairs),
        "settings": {**asdict(settings), "warm_up": _WARM_UP, "weight_decay": _DECAY},
        "losses": losses,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }
    _write(out, network, vocabulary, description)
    return description


def _check_training(pairs: Sequence[Any], counts: np.ndarray, out: Path, settings: TrainingSettings) -> None:
    """Raise InputError unless pairs, counts and settings are valid and `out` does not exist."""
    if counts.shape != (len(pairs), len(CATEGORIES)) or not len(pairs) or not (counts >= 0).all():
        raise InputError(
            "counts",
            f"must be numbers from 0, six for each of {len(pairs)} pairs (at least one)",
            f"shape {counts.shape}{'' if (counts >= 0).all() else ', with numbers below 0 or NaN'}",
            "Pass the errors of categories A to F.",
        )
    check_new_folder("out", out)
    for field in fields(settings):
        check_declared(field.name, getattr(settings, field.name), field.type)


def _initial_network(folder: Path) -> tuple[Any, Path]:
    """Return the network with random heads for the encoder in a folder, and the path of the encoder's vocabulary.

    Raise InputError unless it is a BERT model with a vocabulary.
    """
    from transformers import AutoConfig, BertModel

    vocabularies = [folder / name for name in VOCABULARIES if (folder / name).is_file()]
    try:
        with quiet():
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            kind = config.model_type
            bert = BertModel.from_pretrained(folder, local_files_only=True, config=config) if kind == "bert" else None
    # The errors that transformers and its libraries raise for damaged files have no narrower common class.
    except Exception as error:
        kind, bert = type(error).__name__, None
    if bert is None or not vocabularies:
        raise InputError(
            "base",
            "must be a BERT encoder with tokenizer.json or vocab.txt",
            f"{kind if bert is None else 'no vocabulary'} in {folder}",
            "Pass the folder of a BERT model, such as BiomedBERT.",
        )
    network = build_network(config)
    network["bert"] = bert.float()
    for name in ("error_regressors", "error_presence"):
        for head in network[name]:
            head.weight.data.normal_(std=config.initializer_range)
            head.bias.data.zero_()
    return network, vocabularies[0]


def _fit(
    network: Any, encodings: Sequence[Any], counts: np.ndarray, settings: TrainingSettings, progress: Progress | None
) -> list[float]:
    """Train the network in place on encodings of pairs and their counts; return the mean loss of each epoch.

    Raise InputError as soon as that is not finite.
    """
    import torch

    n = len(encodings)
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
        for batch in _batches([len(encoding.ids) for encoding in encodings], settings.batch_size, rng):
            ids, kinds, mask = _padded([encodings[i] for i in batch], device)
            targets = torch.tensor(counts[batch], dtype=torch.float32, device=device)
            predicted, presence = run_network(network, ids, kinds, mask, drop)
            loss = dual_loss(predicted, presence, targets, settings.presence_weight)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), _LARGEST_GRADIENT)
            optimizer.step()
            schedule.step()
            total, done = total + float(loss.detach()) * len(batch), done + len(batch)
            if progress is not None:
                progress(f"epoch {epoch + 1}", done, n)
        losses.append(total / n)
        if not np.isfinite(losses[-1]):
            raise InputError(
                "loss", "must stay finite", f"{losses[-1]} in epoch {epoch + 1}", "Lower the learning rate."
            )
    network.eval()
    return losses


def dual_loss(predicted: Any, presence: Any, targets: Any, weight: float) -> Any:
    """Return the loss of a batch: (1 - w) mean squared error of the counts + w cross-entropy of the presence of errors.

    `predicted` and `presence`, float32[B, 6], are the outputs of the count heads and of the presence heads, `targets`
    the error counts of the pairs, and `weight` is w.
    """
    from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

    presence_loss = binary_cross_entropy_with_logits(presence, (targets > 0).to(presence.dtype))
    return (1 - weight) * mse_loss(predicted, targets) + weight * presence_loss


def _batches(n_pieces: Sequence[int], size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the positions of pairs in batches of at most `size` and of similar `n_pieces`, in random order."""
    order = rng.permutation(len(n_pieces))
    batches: list[np.ndarray] = []
    for first in range(0, len(order), size * _SORTED_BATCHES):
        positions = order[first : first + size * _SORTED_BATCHES]
        positions = positions[np.argsort(np.array(n_pieces)[positions], kind="stable")]
        batches += [positions[start : start + size] for start in range(0, len(positions), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def _padded(encodings: Sequence[Any], device: Any) -> list[Any]:
    """Return ids, type ids and masks of encodings, padded with zeros, as three tensors int64[B, L] on a device."""
    import torch

    length = max(len(encoding.ids) for encoding in encodings)
    cells = np.zeros((3, len(encodings), length), np.int64)
    for row, encoding in enumerate(encodings):
        cells[:, row, : len(encoding.ids)] = encoding.ids, encoding.type_ids, encoding.attention_mask
    return list(torch.from_numpy(cells).to(device))


def _write(out: Path, network: Any, vocabulary: Path, description: dict[str, Any]) -> None:
    """Write a checkpoint as the folder `out`, which appears only when it is complete.

    `vocabulary` is the file of the encoder's, and `description` the content of training.json.
    """
    from safetensors.torch import save_file

    out.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(out) as folder:
        config = {
            **network["bert"].config.to_dict(),
            "architectures": ["BertForCategoryErrorRegression"],
            "num_error_categories": len(CATEGORIES),
            "use_poisson_loss": False,
            "use_presence_loss": True,
            "presence_loss_weight": description["settings"]["presence_weight"],
        }
        tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        for name, content in (("config.json", config), ("training.json", description)):
            (folder / name).write_text(json_text(content), encoding="utf-8")
        for path in (vocabulary, vocabulary.with_name("tokenizer_config.json")):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
        for path in [*folder.iterdir()]:
            sign(path, {"command": "train-crepe", "version": version("metric-oracle")})
