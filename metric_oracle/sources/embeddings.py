"""The source of report vectors: CheXbert's embeddings, and those of any other model."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.arrays import as_array
from metric_oracle.corpora.containers import in_order
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.corpora.tables import canonical_ids
from metric_oracle.corpora.vectors import Vectors, checked_vectors, read_embeddings
from metric_oracle.sources.contract import Attachment, Source, name_of

_CELL = {0: "", 1: "1", 2: "0", 3: "-1"}  # of CheXbert's classes, as its label files have them


def as_vectors(file_or_data: Any, ids: Any) -> Vectors:
    """Return vectors with ids, from a file, a dict id -> vector, or an array float[n, d].

    `ids` has the ids of the rows of an array, by default their places from 0. For a file of vectors without ids, it is
    the file with the ids. Raise InputError for anything else.
    """
    if isinstance(file_or_data, Vectors):
        return file_or_data
    if isinstance(file_or_data, str | Path):
        return read_embeddings(file_or_data, ids=ids)
    rows = file_or_data
    if isinstance(rows, Mapping):
        check_left_out({"ids": ids}, "for a dict of id -> vector", "Leave out the ids.")
        ids, rows = list(rows), list(rows.values())
    try:
        values = as_array(rows)
        keys = list(map(str, range(len(values)))) if ids is None else canonical_ids(_list_of_ids(ids), "ids")
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "vectors", "must be an array of one row a report", name_of(rows), "Stack the vectors."
        ) from None
    return Vectors(keys, checked_vectors(values, keys, "memory", "ids"))


def _list_of_ids(ids: Any) -> list[Any]:
    """Return ids in memory as a list; raise InputError for a path, or for an object that is not iterable."""
    if isinstance(ids, str | Path) or not isinstance(ids, Iterable):
        raise InputError(
            "ids of the vectors",
            "must be a list, one a vector, where vectors are in memory",
            name_of(ids),
            "Pass the ids themselves.",
        )
    return list(in_order(ids))


class VectorSource(Source):
    """Vectors of reports, from any model, as files or in memory."""

    def read(self, file_or_data: Any, data_ids: Any) -> Vectors:
        """Return vectors with ids; see `as_vectors`."""
        return as_vectors(file_or_data, data_ids)

    def restore(
        self, representation: Any, document_of_row: np.ndarray, manifest_entry: Mapping[str, Any], index: Any
    ) -> Attachment:
        """Return the unit vectors of the documents.

        They are copied, because the mapped file is closed with the index.
        """
        made_by = manifest_entry.get("encoder", {})
        return Attachment(np.array(representation.vectors), document_of_row, made_by=made_by, are_unit=True)


def _npz(output: Any, ids: Sequence[str]) -> bytes:
    """Return the content of an .npz file of the embeddings in CheXbert's output, with ids."""
    buffer = io.BytesIO()
    np.savez(buffer, ids=np.array(list(ids)), embeddings=output[0])
    return buffer.getvalue()


def _csv_bytes(output: Any, ids: Sequence[str]) -> bytes:
    """Return the content of a CSV file of the label classes in CheXbert's output, with ids; `read_labels` reads it."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["study_id", *LABELS])
    writer.writerows([study, *(_CELL[c] for c in row)] for study, row in zip(ids, output[1].tolist(), strict=True))
    return buffer.getvalue().encode()


class CheXbertSource(VectorSource):
    """CheXbert's embeddings, from files or computed by its checkpoint, which also predicts labels.

    The output of `run` is embeddings float32[n, d], classes uint8[n, 14] and the number of texts that were cut off.
    """

    endings: ClassVar[Mapping[str, Callable[[Any, Sequence[str]], bytes]]] = {".npz": _npz, ".csv": _csv_bytes}

    def is_model(self, file_or_model: Any) -> bool:
        """Return whether it is a path that ends with .pth, that of a checkpoint."""
        return isinstance(file_or_model, str | Path) and Path(file_or_model).suffix.lower() == ".pth"

    def open(self, model_path: Any, model_options: Mapping[str, Any]) -> Any:
        """Open the checkpoint chexbert.pth; `model_options` may have `vocabulary` and `device`."""
        from metric_oracle.encoders.chexbert import CheXbert

        device = model_options.get("device") or "auto"
        return CheXbert(model_path, vocabulary=model_options.get("vocabulary"), device=device)

    def call(self, model: Any, texts: Sequence[str], **keywords: Any) -> tuple[np.ndarray, np.ndarray, int]:
        """Return embeddings, label classes and the number of texts that were cut off; see the class."""
        return model.encode(texts, **keywords)

    def cut_off(self, output: Any, n_texts: int) -> str:
        """Return a line with the number of texts that were cut off, "" for none."""
        n = output[2]
        return f"{n:,} of {n_texts:,} reports are longer than CheXbert takes: their ends are cut off" if n else ""

    def attachment(
        self, output: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return the embeddings, one for each text."""
        return Attachment(output[0], np.arange(n_texts), made_by=signature)

    def answer(self, output: Any) -> Any:
        """Return the embeddings, float32[n, d]."""
        return output[0]
