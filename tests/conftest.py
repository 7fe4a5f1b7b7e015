"""Fixtures that several test folders share."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from metric_oracle.corpora.synthetic import write_synthetic
from metric_oracle.corpora.vectors import read_labels


@pytest.fixture(scope="session")
def iu_xray() -> Path:
    """Return the folder of the public IU X-ray files, which lie beside the repository and never in it."""
    folder = Path(__file__).parents[1].parent / "shared/data/iu_xray"
    if not folder.is_dir():
        pytest.skip(f"the IU X-ray files are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> dict[str, Path]:
    """Return the files of a small synthetic corpus: reports, graphs, labels and stand-in embeddings of both splits."""
    folder = tmp_path_factory.mktemp("synthetic")
    paths = write_synthetic(folder / "corpus", 120, 12, seed=3)
    rng = np.random.default_rng(3)
    for side in ("train", "test"):
        labels = read_labels(paths[f"{side}_labels"])
        # Few distinct vectors, so that scores tie; the last component keeps them from zero.
        vectors = np.c_[labels.values[:, :6], np.ones(len(labels.ids))].astype(np.float32)
        paths[f"{side}_embeddings"] = folder / f"{side}.npz"
        np.savez(
            paths[f"{side}_embeddings"], ids=np.array(labels.ids), embeddings=vectors[rng.permutation(len(vectors))]
        )
    return paths


@pytest.fixture
def unprivileged():
    """Let file permissions count for the super-user too."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """Return a folder that every user of the machine can enter; those of tmp_path are closed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)
