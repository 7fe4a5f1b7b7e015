"""PyTorch and transformers, which encoders import when they are made, and the device that they run on."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metric_oracle.choices import DEVICES
from metric_oracle.errors import BackendError, InputError, not_installed


def import_libraries(function: str, model: str) -> tuple[Any, Any]:
    """Import PyTorch and transformers, or say which extra is lacking for a model of some kind."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise not_installed(function, model, error.name, "encoders") from error
    return torch, transformers


def choose_device(device: str, function: str) -> str:
    """Return "cpu" or "cuda"; for "auto" the latter where there is one."""
    import torch

    if device not in ("auto", *DEVICES):
        msg = f'{function}: device must be auto, cpu or cuda; got {device!r}. Use "auto".'
        raise InputError(msg)
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        msg = f'{function}: device "cuda" is not usable: no CUDA device found. Use "cpu" or "auto".'
        raise BackendError(msg)
    return device if device != "auto" else "cuda" if has_cuda else "cpu"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep notes and bars of transformers off the terminal, and leave its settings as they were."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars
    from transformers.utils import logging

    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    has_hub_bars = not are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if has_bars:
                logging.enable_progress_bar()
            if not has_hub_bars:
                disable_progress_bars()
