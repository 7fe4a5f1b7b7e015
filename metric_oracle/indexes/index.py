"""Open an index that :func:`metric_oracle.indexes.build.build_index` made."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from metric_oracle.errors import IndexFormatError, InputError, MetricOracleError
from metric_oracle.indexes.manifest import Files
from metric_oracle.indexes.store import DISTINCT, REPORTS, read_table
from metric_oracle.metrics import METRICS, Metric


@dataclass(frozen=True)
class Representation:
    """Where a representation is made, and what it takes besides the texts.

    Attributes
    ----------
    home : str
        Module and class; imported when needed, so that an index without embeddings opens without FAISS. The class has
        `build`, `save`, `load`, `encode`, `item`, `counts`, `data_files` and `derived_files`.
    needs : pair of str, or None
        Attribute of `Inputs` that must be given, and the attribute with each report's place in it, None where it is
        made from the texts.
    what, plural, option : str
        The same for people.
    """

    home: tuple[str, str]
    needs: tuple[str, str | None] | None = None
    what: str = ""
    plural: str = ""
    option: str = ""

    def load_class(self) -> Any:
        """Import the class."""
        return getattr(import_module(self.home[0]), self.home[1])


_NGRAMS = Representation(("metric_oracle.indexes.ngrams", "NgramIndex"))
REPRESENTATIONS = {
    "ngrams": _NGRAMS,
    "words": _NGRAMS,
    "radgraph": Representation(
        ("metric_oracle.indexes.radgraph", "GraphIndex"),
        ("graphs", "graph_of_row"),
        "a graph",
        "graphs",
        "--radgraph GRAPHS.json",
    ),
    "chexbert": Representation(
        ("metric_oracle.indexes.chexbert", "EmbeddingIndex"),
        ("embeddings", "embedding_of_row"),
        "an embedding",
        "embeddings",
        "--chexbert FILE",
    ),
    "labels": Representation(
        ("metric_oracle.indexes.chexbert", "LabelIndex"),
        ("labels", "label_of_row"),
        "labels",
        "labels",
        "--chexbert-labels FILE --uncertain positive|negative|blank",
    ),
    "bertscore": Representation(
        ("metric_oracle.indexes.bertscore", "TokenStateIndex"),
        ("encoding", None),
        "token states",
        "token states",
        "--encoder NAME|FOLDER",
    ),
}
# Representations without files of their own -> the class that makes them from others: `join`, `encode`, `item`.
DERIVED = {
    "composite": ("metric_oracle.indexes.composite", "CompositeIndex"),
    "crg": ("metric_oracle.indexes.crg", "PositiveIndex"),
}


# What reading damaged bytes may raise.
_DAMAGE = (pa.ArrowException, OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Index:
    """An opened index: memory-mapped, read-only; its answers are those of the files that were there when it was opened.

    Attributes
    ----------
    folder : Path
    manifest : dict
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = Files(folder)
        self.manifest = self._files.manifest
        self._opened: dict[str | tuple[str, ...], Any] = {}

    @property
    def content(self) -> dict[str, Any]:
        """What the fingerprint covers."""
        return self.manifest["content"]

    @property
    def fingerprint(self) -> str:
        """The identity of the index."""
        return self.manifest["fingerprint"]

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
        """Columns row, study_id, text, distinct_id."""
        return self._read("reports.arrow", lambda: read_table(self._files["reports.arrow"], REPORTS))

    @cached_property
    def distinct(self) -> pa.Table:
        """Columns text, first_row, multiplicity."""
        return self._read("distinct.arrow", lambda: read_table(self._files["distinct.arrow"], DISTINCT))

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
            raise IndexFormatError(msg) from error

    def representation(self, metric: Metric) -> Any:
        """Return the opened representation that a metric reads."""
        if not self._holds(metric):
            options = [REPRESENTATIONS[kind].option for kind in metric.representations]
            names = [metric.name] if metric.name in METRICS else metric.recorded["terms"]
            build = " ".join(filter(None, ["--metrics", ",".join(names), *options]))
            msg = (
                f"retrieve: metric must be one of {', '.join(self.metrics)} (what {self.folder} holds); got "
                f"{metric.name!r}. Build an index with {build}."
            )
            raise InputError(msg)
        for kind in metric.representations:
            if kind not in self._opened:
                load = partial(REPRESENTATIONS[kind].load_class().load, kind, self._files.of(kind))
                self._opened[kind] = self._read(kind, load)
        if not metric.reads:
            return self._opened[metric.representation]
        key = (metric.representation, *metric.reads)
        if key not in self._opened:
            home, name = DERIVED[metric.representation]
            derived = getattr(import_module(home), name)
            self._opened[key] = derived.join({kind: self._opened[kind] for kind in metric.reads})
        return self._opened[key]

    def verify_files(self) -> None:
        """Read every file and compare it with its checksum."""
        self._files.verify()


def open_index(path: str | Path) -> Index:
    """Open an index that :func:`metric_oracle.indexes.build.build_index` made.

    Parameters
    ----------
    path : path
        Folder.

    Raises
    ------
    IndexFormatError
        If the folder is no index, unfinished, of another format version, or one of its files was cut or altered.
    """
    return Index(Path(path))
