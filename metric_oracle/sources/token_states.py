"""The source of token states, which an encoder computes when an index is built or searched."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress, silent
from metric_oracle.corpora.tables import existing_file
from metric_oracle.corpora.text_files import read_text
from metric_oracle.sources.contract import Attachment, Source, ignore

if TYPE_CHECKING:  # models are imported by what opens them
    from metric_oracle.encoders.token_states import TokenEncoder


@dataclass(frozen=True)
class OpenedEncoder:
    """An opened encoder of token states, and how these are stored."""

    encoder: "TokenEncoder"
    storage: np.dtype = field(default_factory=lambda: np.dtype(np.float32))  # dtype of the stored states, or float16
    baseline: tuple[float, float, float] | None = None  # (precision, recall, f1) of random pairs of reports, if known
    # Memory in GB that a build may use in addition to the model and mapped files; None for no limit.
    max_memory: float | None = None
    # Called with lines for the user, such as the expected size of the work, or how many texts were cut off.
    tell: Callable[[str], None] = ignore
    progress: Progress = silent  # called as ``progress("token states", done, total)`` with numbers of tokens


def load_encoder(
    encoder: str | Path,
    *,
    layer: int | None = None,
    states: str | None = None,
    bf16: bool = False,
    rescale_table: str | Path | None = None,
    device: str | None = None,
    max_memory: float | None = None,
    tell: Callable[[str], None] = ignore,
    progress: Progress = silent,
) -> OpenedEncoder:
    """Open an encoder of token states by its Hugging Face name or local folder.

    By default `layer` is 5 for distilroberta-base, as bert_score publishes; any other encoder needs it. `states`, the
    dtype in which the states are stored, is "float32", and `device` is "cuda" if there is a GPU. Raise InputError for
    wrong options, and BackendError if torch, transformers or the device is missing.

    With `bf16` the encoder runs in bfloat16, which gives other states. This is faster on a GPU or with bfloat16
    instructions, and several times slower without. `rescale_table` is bert_score's table of baselines of this encoder,
    with the columns LAYER, P, R and F; the published one of distilroberta-base is
    built in. The rest is as in `OpenedEncoder`.
    """
    states = states or "float32"
    from metric_oracle.encoders.libraries import has_bf16
    from metric_oracle.encoders.token_states import PUBLISHED, TokenEncoder

    opened = TokenEncoder(encoder, layer=layer, device=device or "auto", dtype="bfloat16" if bf16 else "float32")
    if bf16 and not has_bf16(opened.device):
        tell(
            "this processor has no bfloat16 instructions, so the encoder runs several times slower than in float32. "
            "Leave out `bf16` unless scores must equal those of another index that was built with it."
        )
    published = PUBLISHED.get(str(encoder), (0, {}))[1].get(opened.layer)
    baseline = published if rescale_table is None else _read_baseline(Path(rescale_table), opened.layer)
    return OpenedEncoder(opened, np.dtype(states), baseline, max_memory=max_memory, tell=tell, progress=progress)


def _read_baseline(path: Path, layer: int) -> tuple[float, float, float]:
    """Return the baselines of precision, recall and f1 of a layer from a table of the package bert_score.

    Raise InputError if it has none.
    """
    lines = read_text(existing_file(path))[0].splitlines()
    # bert_score's .tsv files have commas.
    for row in csv.DictReader(lines, delimiter="\t" if lines and "\t" in lines[0] else ","):
        try:
            number, *values = (float(row[name]) for name in ("LAYER", "P", "R", "F"))
        except (KeyError, TypeError, ValueError):
            continue
        if number == layer and all(-1 < value < 1 for value in values):
            return values[0], values[1], values[2]
    raise InputError(
        "rescale_table",
        f"must have numbers between -1 and 1 for layer {layer} in columns LAYER, P, R, F",
        f"none in {path}",
        "Pass bert_score's table of this encoder.",
    )


class TokenStateSource(Source):
    """Token states. `load_encoder` opens the encoder, which runs when an index is built."""

    def restore(
        self, representation: Any, document_of_row: np.ndarray, manifest_entry: Mapping[str, Any], index: Any
    ) -> Attachment | None:
        """Return the token states of the documents; None if it is not known which texts the encoder cut off.

        It is known if the encoder cut off all texts of the greatest length, or none of them.
        """
        lengths = np.diff(representation.ptr)[document_of_row]
        longest = int(lengths.max()) if manifest_entry["truncated"] else -1
        cut = len(np.unique(index.reports["distinct_id"].to_numpy()[lengths == longest]))
        if cut != manifest_entry["truncated"]:
            return None
        return Attachment(representation, document_of_row, {"cut_length": longest}, manifest_entry["encoder"])

    def piece(self, attachment: Attachment, *, is_first: bool) -> Attachment:
        """Return the attachment unchanged: the states of all reports stay in their file."""
        return attachment
