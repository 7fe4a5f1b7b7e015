"""Read files of mined pairs. Each has one row group for each block of anchors, with its checksum in the signature.

An anchor is a report of the corpus for which similar reports, its candidates, were searched.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.base.checksum import hash_table, opened, record_of
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import checksum
from metric_oracle.indexes.store import to_numpy

KIND = "mined"
NEEDED = ("anchor_id", "anchor_row", "candidate_id", "candidate_row", "rank", "score")
TEXTS = ("anchor_text", "candidate_text")


def is_mined(path: str | Path) -> bool:
    """Return whether `mine` wrote a file; False if the file cannot be read."""
    from pyarrow import parquet

    try:
        return record_of(parquet.read_schema(path))["kind"] == KIND
    except (OSError, LookupError, TypeError, pa.ArrowException):
        return False


class MinedFile:
    """A file that `mine` wrote: its signature, and its blocks of anchors, which are read one at a time."""

    def __init__(self, path: Path, argument: str) -> None:
        from pyarrow import parquet

        self._path, self._argument = path, argument
        if not path.is_file():
            got = f"the folder {path}" if path.is_dir() else shown(path)
            raise InputError(argument, "must be an existing file", got, "Write one with `mo.mine`.")
        try:
            self._file = parquet.ParquetFile(str(path), page_checksum_verification=True)
            stored = record_of(self._file.schema_arrow)
            self.signature: Any = opened(stored, checksum(stored["row_groups"]))
            self.columns: list[str] = self._file.schema_arrow.names
            if stored["kind"] != KIND or not {*NEEDED} <= {*self.columns}:
                raise ValueError
        except (OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
            raise self._wrong("another file or damaged") from error
        if self.signature is None or len(self.signature["row_groups"]) != len(self):
            raise self._wrong("altered")
        self.has_texts = {*TEXTS} <= {*self.columns}

    def __len__(self) -> int:
        return self._file.num_row_groups

    @property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        return self._file.schema_arrow.remove_metadata()

    def _wrong(self, how: str) -> InputError:
        """Return the error for this file; `how` says what is wrong with it, such as "altered"."""
        return InputError(
            self._argument,
            "must be a file that `mo.mine` wrote",
            f"{self._path}, which is {how}",
            "Write it again.",
        )

    def block(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return columns of block `number`, from 0, by default those of the pairs: `NEEDED` and, where stored, `TEXTS`.

        Raise InputError if the block was changed or cannot be read.
        """
        try:
            table = self._file.read_row_group(number)
        except (OSError, pa.ArrowException) as error:
            raise self._wrong("damaged") from error
        if hash_table(table) != self.signature["row_groups"][number]:
            raise self._wrong("altered")
        return table.select([*NEEDED, *(TEXTS if self.has_texts else ())] if columns is None else columns)

    def of_anchors(self, first: int, last: int) -> pa.Table:
        """Return the pairs whose anchors are the corpus rows `first` to `last`, both included."""
        parts = [self._file.schema_arrow.empty_table().select([*NEEDED, *(TEXTS if self.has_texts else ())])]
        parts[0] = parts[0].replace_schema_metadata(None)
        for number, (low, high) in enumerate(self._ranges):
            if low <= last and high >= first:
                block = self.block(number)
                ends = np.searchsorted(to_numpy(block["anchor_row"]), [first, last + 1])
                parts.append(block.slice(ends[0], ends[1] - ends[0]).replace_schema_metadata(None))
        return pa.concat_tables(parts)

    @cached_property
    def _ranges(self) -> list[tuple[int, int]]:
        """Corpus rows of the first and of the last anchor of each block, for all blocks."""
        column = self._file.schema_arrow.names.index("anchor_row")
        groups = [self._file.metadata.row_group(number).column(column) for number in range(len(self))]
        return [(group.statistics.min, group.statistics.max) for group in groups]
