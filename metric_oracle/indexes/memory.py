"""An index in memory of reports whose pairs are scored. Arrays that only a search reads are not made."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.base.progress import Progress, silent
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.build import kinds_of, make
from metric_oracle.indexes.contract import Corpus
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.lists import documents_of_rows
from metric_oracle.indexes.store import REPORTS, Strings
from metric_oracle.metrics import REPRESENTATIONS, get_metric
from metric_oracle.sources.contract import Attachment


class MemoryIndex(Index):
    """An index without files, of one report or more, for scores of pairs; they equal those of an index with files.

    It holds what the metrics with these names read, and is not searched. InputError is raised if the reports lack
    something. `progress` is called as ``progress(name, None, None)`` before each representation is built.
    """

    __reduce__ = object.__reduce__

    def __init__(self, reports: Reports, metrics: Sequence[str], *, progress: Progress = silent) -> None:
        self.folder = Path("memory")
        self._reports = reports
        self._opened: dict[str, Any] = {}
        self._combined: dict[tuple[str, ...], Any] = {}
        self._counted: Index | None = None
        place: dict[str, int] = {}
        text_of_row = np.fromiter(
            (place.setdefault(text, len(place)) for text in reports.texts), np.int64, len(reports.texts)
        )
        texts, described = list(place), {}
        single = [one for name in metrics for one in get_metric(name).metrics.values()]
        for kind in kinds_of(reports, metrics):
            progress(kind, None, None)
            readers = [metric for metric in single if kind in metric.representations]
            corpus = Corpus(reports, texts, text_of_row, readers)
            if REPRESENTATIONS[kind].is_encoded and reports.scratch is None:
                # Token states are written as they are made. The file is mapped, and stays until the mapping is gone.
                with tempfile.TemporaryDirectory() as folder:
                    scratch = replace(reports, scratch=Path(folder))
                    self._opened[kind], described[kind] = make(kind, corpus._replace(reports=scratch))
            else:
                self._opened[kind], described[kind] = make(kind, corpus)
        self._built = dict(self._opened)
        counts = {"reports": len(reports.ids), "distinct_texts": len(texts)}
        content = {"counts": counts, "representations": described}
        self.manifest = {"content": content, "fingerprint": "", "checksum": f"memory {id(self._built)}"}

    def own_reports(self, reports: Reports, rows: np.ndarray) -> Reports:
        """Return reports, which are these rows, int64[n], as queries of this index that need no encoding of their own.

        What models computed of them for the index is used again.
        """
        attached = {kind: replace(attachment, stored_in=self.checksum) for kind, attachment in reports.attached.items()}
        for kind in self.content["representations"]:
            if REPRESENTATIONS[kind].is_encoded:
                part = self.part(kind)
                documents = documents_of_rows(part.row_ptr, part.row_id, self.n_reports)
                attached[kind] = Attachment(part, documents[rows], {"cut_length": -1})
        return replace(reports, attached=attached, stored=(self.checksum, rows))

    @cached_property
    def reports(self) -> pa.Table:
        """The reports, with the columns study_id and text alone."""
        columns = {"study_id": Strings(self._reports.ids).arrow, "text": Strings(self._reports.texts).arrow}
        return pa.table(columns, pa.schema([REPORTS.field(name) for name in columns]))

    def _load(self, kind: str) -> Any:
        """Return the representation that was built under a name."""
        return self._built[kind]
