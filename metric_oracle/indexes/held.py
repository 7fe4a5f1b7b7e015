"""An index in memory: the files that an index has in a folder, held as bytes. It leaves nothing on the disk."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from metric_oracle.base.progress import Progress, silent
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes import manifest
from metric_oracle.indexes.build import (
    check_some,
    checked_reports,
    content_of,
    files_of,
    kinds_of,
    make,
    table_of_columns,
    tables_of,
)
from metric_oracle.indexes.contract import Corpus
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.store import COLUMNS, Strings, arrays_in_memory, hash_content, table_in_memory, to_numpy
from metric_oracle.metrics import REPRESENTATIONS
from metric_oracle.sources.attaching import run_models


class HeldFiles:
    """The files of an index in memory, by name, with its manifest; the counterpart of `manifest.IndexFiles`."""

    def __init__(self, described: dict[str, Any], content_of_file: Mapping[str, pa.Buffer]) -> None:
        self.manifest = described
        self.held = content_of_file

    def __getitem__(self, name: str) -> pa.Buffer:
        return self.held[name]

    def of(self, kind: str) -> dict[str, pa.Buffer]:
        """Return the files of a representation, keyed by their names in its folder."""
        return {name.removeprefix(f"{kind}/"): held for name, held in self.held.items() if name.startswith(f"{kind}/")}

    def verify(self) -> None:
        """Do nothing: what this process holds is what it has built."""


class HeldIndex(Index):
    """An index in memory, as `index_in_memory` builds it. It can be used in place of one in a folder."""

    def __init__(self, files: HeldFiles) -> None:
        self._of_files(Path("memory"), files)

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldIndex, (self._files,)  # another process gets the files themselves

    def __repr__(self) -> str:
        return f"<Index in memory: {self.n_reports:,} reports, {self.fingerprint[:12]}>"


def index_in_memory(
    reports: Reports,
    *,
    metrics: Sequence[str] | None = None,
    source: str = "",
    states: Mapping[str, int] | None = None,
    section: tuple[str | None, str] = (None, ""),
    progress: Progress | None = None,
) -> HeldIndex:
    """Build an index in memory; its arrays and its fingerprint are those of an index that `build_index` writes.

    The arguments are those of `build.build_index`, without `out`. An encoder writes token states as they are made, to a
    temporary folder of this user alone, which is removed before the function returns, also with an error.

    Raise InputError if there are no reports, or they lack what a metric needs.
    """
    kinds, tell = kinds_of(reports, metrics), silent if progress is None else progress
    check_some(reports)
    checked_reports(reports)
    reports = run_models(reports)
    held: dict[str, pa.Buffer] = {}
    tell("reports", None, None)
    distinct, rows = tables_of(reports)
    counts: dict[str, dict[str, Any]] = {"reports": {"reports": rows.num_rows, "distinct_texts": distinct.num_rows}}
    held |= {"reports.arrow": table_in_memory(rows), "distinct.arrow": table_in_memory(distinct)}
    if reports.columns:
        tell("columns", None, None)
        held[COLUMNS] = table_in_memory(table_of_columns(reports))
    corpus = Corpus(reports, Strings(distinct["text"]), to_numpy(rows["distinct_id"]))
    for kind in kinds:
        tell(kind, None, None)
        if REPRESENTATIONS[kind].is_encoded:
            with tempfile.TemporaryDirectory() as folder:
                scratch = replace(reports, scratch=Path(folder))
                counts[kind] = _hold(held, kind, corpus._replace(reports=scratch))
        else:
            counts[kind] = _hold(held, kind, corpus)
    is_data = {name: data for part in ("reports", "columns", *kinds) for name, data in files_of(part).items()}
    files = {
        name: {"bytes": stored.size, **({"content": hash_content(stored)} if is_data[name] else {})}
        for name, stored in held.items()
    }
    content = content_of(reports, counts, kinds, (source, section), states or {}, files)
    built_by = f"metric-oracle {version('metric-oracle')}"
    built_at = datetime.now(UTC).isoformat(timespec="seconds")
    return HeldIndex(HeldFiles(manifest.made_manifest(content, built_by=built_by, built_at=built_at), held))


def _hold(held: dict[str, pa.Buffer], kind: str, corpus: Corpus) -> dict[str, Any]:
    """Build a representation, put its files into `held`, and return what the manifest records of it."""
    built, described = make(kind, corpus)
    for name, columns in built.files():
        held[f"{kind}/{name}"] = arrays_in_memory(columns)
    return described
