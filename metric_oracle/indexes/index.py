"""An opened index: reports, representations and vectors, mapped from the files that `indexes.build` wrote."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base.argument_checks import check_left_out, check_one_of
from metric_oracle.base.declarations import listed
from metric_oracle.base.errors import DamagedIndexError, InputError, MetricOracleError
from metric_oracle.base.reprs import html_block
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.manifest import IndexFiles
from metric_oracle.indexes.store import (
    COLUMNS,
    DISTINCT,
    REPORTS,
    check_ids,
    check_offsets,
    checked_strings,
    read_table,
    take_strings,
    to_numpy,
)
from metric_oracle.metrics import METRICS, REPRESENTATIONS, check_searched
from metric_oracle.records import Metric

if TYPE_CHECKING:
    from metric_oracle.indexes.cider import Frequencies

# Exceptions that reading damaged files may raise.
_DAMAGE = (pa.ArrowException, OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Index:
    """An opened index, memory-mapped and read-only. It keeps reading the files that it opened if they are replaced.

    Attributes
    ----------
    folder : Path
        ``Path("memory")`` for an index in memory, which is in no folder.
    manifest : dict
    first_row : int
        Row of its first report in the whole corpus; above 0 for shards of a set.
    """

    first_row = 0
    is_of_call = False  # whether it was built of reports that a call got in the place of an index

    def __init__(self, folder: Path) -> None:
        self._of_files(folder, IndexFiles(folder))

    def _of_files(self, folder: Path, files: Any) -> None:
        """Set the fields of an index that has these files: `IndexFiles`, or those of an index in memory."""
        self.folder = folder
        self._files = files
        self.manifest = files.manifest
        self._opened: dict[str, Any] = {}
        self._combined: dict[tuple[str, ...], Any] = {}  # by the names of the representations
        self._counted: Index | None = None

    def __reduce__(self) -> str | tuple[Any, ...]:
        return type(self), (self.folder.absolute(),)  # another process opens the files itself

    def __repr__(self) -> str:
        return f"<Index {self.folder}: {self.n_reports:,} reports, {self.fingerprint[:12]}>"

    def _repr_html_(self) -> str:
        return html_block(f"Index {self.folder}", self.facts)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What it contains, by name: source, counts, representations with their models, metrics, size."""
        content = self.content
        facts = [("source", content["source"])]
        facts += [(name.replace("_", " "), f"{value:,}") for name, value in content["counts"].items()]
        for kind, counts in content["representations"].items():
            names = {"units": "distinct", "rows": "reports"}
            parts = ", ".join(_named(names.get(name, name), value) for name, value in counts.items())
            facts.append((kind, parts.replace("_", " ")))
        if self.columns:
            facts.append(("columns", ", ".join(self.columns)))
        return [
            *facts,
            ("metrics", ", ".join(self.metrics)),
            ("on disk", f"{sum(f['bytes'] for f in content['files'].values()) / 2**20:,.1f} MiB"),
            ("built by", f"{self.manifest['built_by']} at {self.manifest['built_at']}"),
            ("fingerprint", self.fingerprint),
        ]

    @property
    def content(self) -> dict[str, Any]:
        """The part of the manifest that the checksum covers: counts, section, representations and files."""
        return self.manifest["content"]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the data of the index, in hexadecimal; two indexes with equal data have the same."""
        return self.manifest["fingerprint"]

    @property
    def checksum(self) -> str:
        """Checksum of the manifest's content, in hexadecimal; two indexes with equal files have the same."""
        return self.manifest["checksum"]

    @property
    def section(self) -> tuple[str | None, str]:
        """The section of the reports and how it is known, see `corpora.reports`; (None, "") if it is not known."""
        name, by = self.content.get("section") or (None, "")
        return name, by

    @property
    def n_reports(self) -> int:
        """Number of corpus rows."""
        return self.content["counts"]["reports"]

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics for which the index has the representations."""
        return [m.name for m in METRICS.values() if self._holds(m)]

    def _holds(self, metric: Metric) -> bool:
        """Return whether the index stores all that a metric reads."""
        return set(metric.representations) <= self.content["representations"].keys()

    @cached_property
    def reports(self) -> pa.Table:
        """The corpus rows: columns row, study_id, text, distinct_id. UTF-8 is checked when strings are read."""

        def read() -> pa.Table:
            """Read the table of reports."""
            table = read_table(self._files["reports.arrow"], REPORTS)
            check_ids(to_numpy(table["distinct_id"]), self.content["counts"]["distinct_texts"])
            return table

        return self._read_undamaged("reports.arrow", read)

    @cached_property
    def distinct(self) -> pa.Table:
        """The distinct texts: columns text, first_row, multiplicity."""
        return self._read_undamaged("distinct.arrow", lambda: read_table(self._files["distinct.arrow"], DISTINCT))

    @property
    def columns(self) -> list[str]:
        """Names of the columns that are kept with the reports."""
        return self.content.get("columns", [])

    @cached_property
    def _kept_columns(self) -> pa.Table:
        """The columns that are kept with the reports."""
        schema = pa.schema({name: pa.large_string() for name in self.columns})
        return self._read_undamaged(COLUMNS, lambda: read_table(self._files[COLUMNS], schema))

    def _unchecked_column(self, name: str) -> pa.ChunkedArray:
        """Return "study_id", "text" or a kept column of all rows, unchecked."""
        return (self._kept_columns if name in self.columns else self.reports)[name]

    @property
    def n_shards(self) -> int:
        """Number of indexes that the corpus consists of."""
        return 1

    def shards(self, places: Sequence[int] | None = None) -> Iterator["Index"]:
        """Yield the indexes that the corpus consists of: this one, whatever `places`."""
        yield self

    def take(self, column: str, rows: np.ndarray) -> pa.ChunkedArray:
        """Return "study_id", "text" or a kept column of some rows, integers in any order."""
        return self._read_undamaged(
            "reports.arrow", lambda: checked_strings(take_strings(self._unchecked_column(column), rows))
        )

    def strings(self, column: str) -> pa.ChunkedArray:
        """Return "study_id", "text" or a kept column of all rows."""
        return self._read_undamaged("reports.arrow", lambda: checked_strings(self._unchecked_column(column)))

    def _read_undamaged(self, what: str, read: Callable[[], Any]) -> Any:
        """Return what `read` returns; raise DamagedIndexError if damage makes it fail. `what` names the file."""
        try:
            return read()
        except MetricOracleError:
            raise
        except _DAMAGE as error:
            raise DamagedIndexError(
                what,
                "must be unchanged since the index was built",
                f"a damaged file in {self.folder}",
                "Rebuild the index.",
            ) from error

    def representation(self, metric: Metric) -> Documents:
        """Return the opened representation that a metric reads; raise InputError unless the index holds it.

        That of a sum is combined from those of its metrics, once for the index.
        """
        self.check_holds(metric)
        kinds = tuple(dict.fromkeys(one.representation for one in metric.metrics.values()))
        if kinds == (metric.representation,):
            return self.part(metric.representation)
        if kinds not in self._combined:
            self._combined[kinds] = metric.reads.load_class().join({kind: self.part(kind) for kind in kinds})
        return self._combined[kinds]

    def check_is_set(self, arguments: Mapping[str, Any], step: str = "", *, got: str) -> None:
        """Raise InputError if arguments were given that only a set of shards takes; see `check_left_out`."""
        check_left_out(arguments, "for an index that is no set of shards", step, got=got)

    def is_joined(self, metric: Metric) -> bool:
        """Return whether this is a set of shards whose documents under a metric `representation` joins."""
        return False

    def check_holds(self, metric: Metric) -> None:
        """Raise InputError unless the index has all representations that a metric reads, and it can be searched."""
        check_searched(metric)
        if not self._holds(metric):
            lacking = [one for one in metric.named if not self._holds(one)]
            names = [name for one in lacking for name in one.metrics]
            sources = [REPRESENTATIONS[kind].source for name in names for kind in METRICS[name].representations]
            options = dict.fromkeys(source.option for source in sources if source is not None)
            needed = f"`metrics={','.join(names)!r}`"
            raise InputError(
                "metric",
                f"must be one of {', '.join(self.metrics)} (what {self.folder} holds)",
                repr(", ".join(one.name for one in lacking)),
                f"Build an index with {listed([needed, *options], 'and')}.",
            )

    @property
    def counted(self) -> "Index":
        """The corpus whose document frequencies weight the scores: this one, its shard set, or another corpus."""
        return self._counted or self

    def counted_in(self, corpus: "Index") -> "Index":
        """Return an index of the same reports whose scores are weighted by the document frequencies of `corpus`."""
        weighted = copy(self)
        weighted._opened, weighted._combined, weighted._counted = {}, {}, corpus
        return weighted

    def part(self, kind: str) -> Any:
        """Return a representation by its name in the registry; it is opened or made at its first use.

        Raise InputError for another name, and DamagedIndexError if its files are damaged or not in the index.
        """
        if kind not in self._opened:
            check_one_of("kind", kind, REPRESENTATIONS, "Choose one that the index holds.")
            representation = REPRESENTATIONS[kind]
            if representation.parts:
                opened = representation.load_class().join(
                    {part.name: self.part(part.name) for part in representation.parts}
                )
            else:
                opened = self._read_undamaged(kind, partial(self._load, kind))
            self._opened[kind] = opened if self._counted is None else self._weighted(kind, opened, self._counted)
        return self._opened[kind]

    def _weighted(self, kind: str, opened: Any, corpus: "Index") -> Any:
        """Return a representation with the document frequencies of `corpus` in place of its own.

        A representation that uses no document frequencies, or that `corpus` lacks, is returned unchanged.
        """
        representation = REPRESENTATIONS[kind]
        if not {part.name for part in representation.stored} & corpus.content["representations"].keys():
            return opened
        if representation.counts_corpus:
            return replace(opened, whole=corpus.gram_frequency)
        if representation.is_encoded:
            n_counted, frequency = corpus.token_frequency(kind)
            missing = max(len(opened.frequency) - len(frequency), 0)  # tokens that no report of the corpus has
            return replace(opened, frequency=np.pad(frequency, (0, missing)), n_counted=n_counted)
        return opened

    @cached_property
    def gram_frequency(self) -> "Frequencies":
        """The number of corpus rows in which each n-gram occurs."""
        from metric_oracle.indexes.cider import Frequencies

        return Frequencies(self.part("coco"))

    def token_frequency(self, kind: str) -> tuple[int, np.ndarray]:
        """Return the number of rows with token states, and the number of these with each token id: int64[ids].

        `kind` is the name of the representation with the states.
        """
        part = self.part(kind)
        return len(part.row_id), part.frequency

    def _load(self, kind: str) -> Any:
        """Open a representation from its files; raise ValueError unless all its rows are in the corpus."""
        opened = REPRESENTATIONS[kind].load_class().load(kind, self._files.of(kind))
        check_offsets(opened.row_ptr, opened.row_id)
        check_ids(opened.row_id, self.n_reports)
        return opened

    def faiss(self, name: str) -> Any:
        """Return a faiss.IndexFlatIP over the vectors of a representation, such as "chexbert"; vector i is document i.

        Raises
        ------
        InputError
            If the index has no vectors of that name; a BackendError if FAISS is not installed.
        """
        kinds = [
            kind for kind in self.content["representations"] if hasattr(REPRESENTATIONS[kind].load_class(), "faiss")
        ]
        check_one_of(
            "name",
            name,
            kinds,
            "Build an index of `mo.reports(..., chexbert=FILE)`, or with `chexbert_labels` or `embeddings`.",
            note=f" (the vectors that {self.folder} holds)",
        )
        return self.part(name).faiss()

    def verify_files(self) -> None:
        """Read every file; raise DamagedIndexError if one does not have its checksum."""
        self._files.verify()


def _named(name: str, value: Any) -> str:
    """Return a count with what is counted, or a model with its checksum."""
    if isinstance(value, int):
        return f"{value:,} {name}"
    if isinstance(value, dict):  # the model that computed the data
        return f"{name} {value['model']} {value['sha256'][:12]}" + (
            f", layer {value['layer']}" if "layer" in value else ""
        )
    return f"{name} {value}"


def open_index(path: str | Path) -> Index:
    """Open an index, no set of shards, by its folder.

    Raise IndexFormatError if the folder is no index, unfinished, or of another format version, and DamagedIndexError if
    one of its files was cut or altered.
    """
    return Index(Path(path))


# An index as users give it, or reports in its place; `retrieval.corpus_index.corpus_of` returns the index.
AnyIndex: TypeAlias = Annotated[
    str | Path | Index | Any,
    Doc(
        "Index or shard set of the corpus: a folder that [`build_index`][metric_oracle.build_index] wrote; in Python "
        "also an opened index, or reports."
    ),
]
