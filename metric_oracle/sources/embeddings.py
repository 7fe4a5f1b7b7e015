"""The source of report vectors: CheXbert's embeddings, and those of any other model."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.corpora.containers import in_order
from metric_oracle.corpora.tables import canonical_ids
from metric_oracle.corpora.vectors import Vectors, checked_vectors, read_embeddings
from metric_oracle.errors import InputError
from metric_oracle.sources.contract import Attachment, Source, name_of
from metric_oracle.sources.labels import labels_csv


def as_vectors(given: Any, ids: Any) -> Vectors:
    """Return vectors with ids, from a file, a dict id -> vector, or an array float[n, d] with its ids in `ids`."""
    if isinstance(given, Vectors):
        return given
    if isinstance(given, str | Path):
        return read_embeddings(given, ids=ids)
    if isinstance(given, Mapping):
        if ids is not None:
            raise InputError("ids", "must be left out for a dict of id -> vector", "a value", "Drop them.")
        ids, given = list(given), list(given.values())
    try:
        values = np.asarray(given)
        keys = list(map(str, range(len(values)))) if ids is None else canonical_ids(_listed(ids), "ids")
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "vectors", "must be an array of one row a report", name_of(given), "Stack the vectors."
        ) from None
    return Vectors(keys, checked_vectors(values, keys, "memory", "ids"))


def _listed(ids: Any) -> list[Any]:
    """Return ids in memory as a list; raise TypeError for a path, or for an object that is not iterable."""
    if isinstance(ids, str | Path) or not isinstance(ids, Iterable):
        raise TypeError
    return list(in_order(ids))


class VectorSource(Source):
    """Vectors of reports, from any model, as files or in memory."""

    def read(self, value: Any, value_ids: Any) -> Vectors:
        """Read vectors; see `as_vectors`."""
        return as_vectors(value, value_ids)

    def restore(self, part: Any, of_row: np.ndarray, recorded: Mapping[str, Any], index: Any) -> Attachment:
        """Return the unit vectors that an index stores.

        They are copied, because the mapped file is closed with the index.
        """
        return Attachment(np.array(part.vectors), of_row, made_by=recorded.get("encoder", {}), are_unit=True)


def _npz(made: Any, ids: Sequence[str]) -> bytes:
    """Return the content of an .npz file of CheXbert embeddings with their ids."""
    buffer = io.BytesIO()
    np.savez(buffer, ids=np.array(list(ids)), embeddings=made[0])
    return buffer.getvalue()


def _csv(made: Any, ids: Sequence[str]) -> bytes:
    """Return the content of a CSV file of CheXbert embeddings with their ids."""
    return labels_csv(made[1], ids)


class CheXbertSource(VectorSource):
    """CheXbert's embeddings, from files or computed by its checkpoint, which also predicts labels.

    `run` returns embeddings float32[n, d], classes uint8[n, 14] and the number of texts that were cut off.
    """

    endings: ClassVar[Mapping[str, Callable[[Any, Sequence[str]], bytes]]] = {".npz": _npz, ".csv": _csv}

    def is_model(self, value: Any) -> bool:
        """Return whether a value is the checkpoint chexbert.pth, not a file of embeddings."""
        return isinstance(value, str | Path) and Path(value).suffix.lower() == ".pth"

    def open(self, value: Any, files: Mapping[str, Any]) -> Any:
        """Open the checkpoint chexbert.pth."""
        from metric_oracle.encoders.chexbert import CheXbert

        device = files.get("device") or "auto"
        return CheXbert(value, vocabulary=files.get("vocabulary"), device=device)

    def call(self, model: Any, texts: Sequence[str], **keywords: Any) -> tuple[np.ndarray, np.ndarray, int]:
        """Return embeddings, label classes and the number of texts that were cut off; see the class."""
        return model.encode(texts, **keywords)

    def cut_off(self, made: Any, n_texts: int) -> str:
        """Return a line for the user if texts were cut off."""
        n = made[2]
        return f"{n:,} of {n_texts:,} reports are longer than CheXbert takes: their ends are cut off" if n else ""

    def attachment(
        self, made: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return the embeddings that the model computed as the attachment of the texts."""
        return Attachment(made[0], np.arange(n_texts), made_by=signature)

    def answer(self, made: Any) -> Any:
        """Return the embeddings that the model computed, float32[n, d]."""
        return made[0]
