"""PyTorch and transformers, which are imported when an encoder is created, and the choice of the device."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metric_oracle.base.argument_checks import check_one_of
from metric_oracle.base.errors import BackendError, not_installed
from metric_oracle.base.option_types import DEVICES


def import_libraries(model: str) -> tuple[Any, Any]:
    """Return the modules torch and transformers; raise BackendError, with the model's name, if one is not installed."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise not_installed(model, error.name, "encoders") from error
    return torch, transformers


def choose_device(device: str) -> str:
    """Return "cpu" or "cuda" for one of them or "auto", which means "cuda" if there is a GPU.

    Raise InputError for another device, and BackendError for "cuda" without a GPU.
    """
    import torch

    check_one_of("device", device, ("auto", *DEVICES), 'Use "auto".')
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise BackendError('device "cuda" is not usable: no CUDA device found.', 'Use "cpu" or "auto".')
    return device if device != "auto" else "cuda" if has_cuda else "cpu"


def has_bf16(device: str) -> bool:
    """Return whether a device has bfloat16 instructions. Without them PyTorch is slower in bfloat16 than in float32."""
    import torch

    # PyTorch says yes from AVX-512 on, where an emulation is about as fast as float32.
    return device == "cuda" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextmanager
def quiet() -> Iterator[None]:
    """Turn off Python's warnings, and log messages and progress bars of transformers; restore all afterwards."""
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
