"""Open an index that `indexes.build.build_index` made."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.shown import html_table
from metric_oracle.errors import DamagedIndexError, InputError, MetricOracleError
from metric_oracle.indexes.contract import Representation
from metric_oracle.indexes.manifest import Files
from metric_oracle.indexes.store import (
    DISTINCT,
    REPORTS,
    check_ids,
    check_offsets,
    checked_strings,
    read_table,
    take_strings,
    to_numpy,
)
from metric_oracle.metrics import METRICS, REPRESENTATIONS, Metric, check_searched

if TYPE_CHECKING:
    from metric_oracle.indexes.cider import Frequencies

# What reading damaged bytes may raise.
_DAMAGE = (pa.ArrowException, OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Index:
    """An opened index: memory-mapped, read-only; its answers are those of the files that were there when it was opened.

    Attributes
    ----------
    folder : Path
    manifest : dict
    first_row : int
        Row of the whole corpus that its first one is: above 0 in a shard of a set.
    """

    first_row = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = Files(folder)
        self.manifest = self._files.manifest
        self._opened: dict[str, Any] = {}
        self._counted: Index | None = None

    def __repr__(self) -> str:
        return f"<Index {self.folder}: {self.n_reports:,} reports, {self.fingerprint[:12]}>"

    def _repr_html_(self) -> str:
        held = {"reports": f"{self.n_reports:,}", "fingerprint": self.fingerprint, "metrics": ", ".join(self.metrics)}
        return html_table(f"Index {self.folder}", ("holds", ""), held.items())

    @property
    def content(self) -> dict[str, Any]:
        """What the fingerprint covers."""
        return self.manifest["content"]

    @property
    def fingerprint(self) -> str:
        """The identity of the index."""
        return self.manifest["fingerprint"]

    @property
    def section(self) -> tuple[str | None, str]:
        """The section of the reports and what says so, see `corpora.reports`; (None, "") where nothing does."""
        name, by = self.content.get("section") or (None, "")
        return name, by

    @property
    def n_reports(self) -> int:
        """Number of corpus rows."""
        return self.content["counts"]["reports"]

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that can be searched."""
        return [m.name for m in METRICS.values() if self._holds(m)]

    def _holds(self, metric: Metric) -> bool:
        return set(metric.representations) <= self.content["representations"].keys()

    @cached_property
    def reports(self) -> pa.Table:
        """Columns row, study_id, text, distinct_id; whether texts are UTF-8 is seen by those who take them."""

        def read() -> pa.Table:
            table = read_table(self._files["reports.arrow"], REPORTS)
            check_ids(to_numpy(table["distinct_id"]), self.content["counts"]["distinct_texts"])
            return table

        return self._read("reports.arrow", read)

    @cached_property
    def distinct(self) -> pa.Table:
        """Columns text, first_row, multiplicity."""
        return self._read("distinct.arrow", lambda: read_table(self._files["distinct.arrow"], DISTINCT))

    @property
    def n_shards(self) -> int:
        """Number of indexes that the corpus lies in."""
        return 1

    def shards(self, places: Sequence[int] | None = None) -> Iterator["Index"]:
        """Yield the indexes that the corpus lies in, or those at some places, in the order of its rows: this one."""
        yield self

    def take(self, column: str, rows: np.ndarray) -> pa.ChunkedArray:
        """Return the "study_id" or the "text" of some rows."""
        return self._read("reports.arrow", lambda: checked_strings(take_strings(self.reports[column], rows)))

    def strings(self, column: str) -> pa.ChunkedArray:
        """Return the "study_id" or the "text" of all rows."""
        return self._read("reports.arrow", lambda: checked_strings(self.reports[column]))

    def _read(self, what: str, read: Callable[[], Any]) -> Any:
        """Read files whose damage, where it kept size and time, may show now."""
        try:
            return read()
        except MetricOracleError:
            raise
        except _DAMAGE as error:
            msg = (
                f"open_index: {what} must hold the arrays that were written; got damaged ones in {self.folder}. "
                "Rebuild the index."
            )
            raise DamagedIndexError(msg) from error

    def representation(self, metric: Metric) -> Representation:
        """Return the opened representation that a metric reads; a composite reads several, see `part`."""
        self.check_holds(metric)
        return self.part(metric.representation)

    def check_holds(self, metric: Metric) -> None:
        """Raise unless the index has all parts that a metric reads."""
        check_searched(metric, "retrieve")
        if not self._holds(metric):
            sources = [REPRESENTATIONS[kind].source for kind in metric.representations]
            options = [source.option for source in sources if source is not None]
            names = [metric.name] if metric.name in METRICS else list(metric.terms)
            build = " ".join(filter(None, ["--metrics", ",".join(names), *options]))
            msg = (
                f"retrieve: metric must be one of {', '.join(self.metrics)} (what {self.folder} holds); got "
                f"{metric.name!r}. Build an index with {build}."
            )
            raise InputError(msg)

    @property
    def counted(self) -> "Index":
        """The corpus whose document frequencies weight the scores: this one, the set it is a shard of, or another."""
        return self._counted or self

    def counted_in(self, corpus: "Index") -> "Index":
        """Return the same reports, weighted by the document frequencies of a corpus."""
        found = copy(self)
        found._opened, found._counted = {}, corpus
        return found

    def part(self, kind: str) -> Any:
        """Return a representation by name, opened at its first use."""
        if kind not in self._opened:
            record = REPRESENTATIONS[kind]
            if record.parts:
                opened = record.load_class().join({name: self.part(name) for name in record.parts})
            else:
                opened = self._read(kind, partial(self._load, kind))
            self._opened[kind] = opened if self._counted is None else self._weighted(kind, opened, self._counted)
        return self._opened[kind]

    def _weighted(self, kind: str, opened: Any, corpus: "Index") -> Any:
        """Return a representation with the document frequencies of a corpus, where it reads them and that has them."""
        record = REPRESENTATIONS[kind]
        if not {kind, *record.parts} & corpus.content["representations"].keys():
            return opened
        if record.counts_corpus:
            return replace(opened, whole=corpus.gram_frequency)
        if record.is_encoded:
            n_counted, frequency = corpus.token_frequency(kind)
            missing = max(len(opened.frequency) - len(frequency), 0)  # tokens that no report of the corpus has
            return replace(opened, frequency=np.pad(frequency, (0, missing)), n_counted=n_counted)
        return opened

    @cached_property
    def gram_frequency(self) -> "Frequencies":
        """In how many rows each n-gram occurs."""
        from metric_oracle.indexes.cider import Frequencies

        return Frequencies(self.part("coco"))

    def token_frequency(self, kind: str) -> tuple[int, np.ndarray]:
        """Return how many rows have token states, and in how many of them each token id occurs: int64[ids]."""
        part = self.part(kind)
        return len(part.row_id), part.frequency

    def _load(self, kind: str) -> Any:
        """Open a representation, whose units stand for rows of this corpus."""
        opened = REPRESENTATIONS[kind].load_class().load(kind, self._files.of(kind))
        check_offsets(opened.row_ptr, opened.row_id)
        check_ids(opened.row_id, self.n_reports)
        return opened

    def faiss(self, name: str) -> Any:
        """Return a faiss.IndexFlatIP over the vectors of a representation, such as "chexbert"; number i is its unit i.

        Raises
        ------
        InputError
            If the index has no vectors of that name; a BackendError if FAISS is not installed.
        """
        held = [
            kind for kind in self.content["representations"] if hasattr(REPRESENTATIONS[kind].load_class(), "faiss")
        ]
        if name not in held:
            msg = (
                f"Index.faiss: name must be one of {', '.join(held) or 'none'} (the vectors that {self.folder} holds); "
                f"got {name!r}. Build an index with --chexbert, --chexbert-labels or --embeddings."
            )
            raise InputError(msg)
        return self.part(name).faiss()

    def verify_files(self) -> None:
        """Read every file and compare it with its checksum."""
        self._files.verify()


def open_index(path: str | Path) -> Index:
    """Open an index that [`build_index`][metric_oracle.build_index] made.

    Parameters
    ----------
    path : path
        Folder.

    Raises
    ------
    IndexFormatError
        If the folder is no index, unfinished, or of another format version; a DamagedIndexError if one of its files was
        cut or altered.
    """
    return Index(Path(path))
