"""Fixtures that several test folders share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def iu_xray() -> Path:
    """Return the folder of the public IU X-ray files, which lie beside the repository and never in it."""
    folder = Path(__file__).parents[1].parent / "shared/data/iu_xray"
    if not folder.is_dir():
        pytest.skip(f"the IU X-ray files are not at {folder}")
    return folder
