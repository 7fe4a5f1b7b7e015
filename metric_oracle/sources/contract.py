"""The base class of sources, and `Attachment`: the values of a source joined to reports.

What a method takes, gives and promises is said in the base class. A source says only what is particular to it. N is the
number of reports.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.progress import Advance
from metric_oracle.corpora.tables import canonical_ids, ids_hint
from metric_oracle.metrics import SOURCES
from metric_oracle.records import SourceRecord


def ignore(*values: Any) -> None:
    """Do nothing; it is the default of optional callbacks."""


@dataclass(frozen=True)
class Attachment:
    """The values of a source, and for each report the index of its value."""

    # GraphTable, EntityTable, SentenceTable, StateDocuments, vectors float32[n, d], or labels uint8[n, L]: of CheXbert
    # 0 blank, 1 positive, 2 negative, 3 uncertain; of a set, 1 for the labels in it. They need not be distinct.
    values: Any
    of_row: np.ndarray  # int64[N], index in `values` of each report's value, -1 for none
    # What changes the meaning of the values, such as `uncertain` of CheXbert labels and `schema` of sets of labels.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Signature of the model that computed the values from the texts; empty if the values were given without it.
    made_by: Mapping[str, Any] = field(default_factory=dict)
    are_unit: bool = False  # whether the values are vectors from an index, which have length 1 up to rounding
    stored_in: str = ""  # checksum of the index whose documents, in their order, the values are; empty for none

    @property
    def both(self) -> tuple[Any, np.ndarray]:
        """The pair of `values` and `of_row`."""
        return self.values, self.of_row

    def take(self, positions: np.ndarray) -> "Attachment":
        """Return the attachment of the reports at these positions."""
        return replace(self, of_row=self.of_row[positions])

    def parts(self) -> list[Any]:
        """Return what a checksum of the attachment covers: all arrays and lists, the settings and what made it."""
        values = (
            [getattr(self.values, f.name) for f in fields(self.values)] if is_dataclass(self.values) else [self.values]
        )
        return [self.of_row, *values, dict(self.settings), dict(self.made_by)]


class Source:
    """A source: data that metrics read in addition to the text, such as graphs, labels or vectors.

    A subclass reads them from files and from memory. If a model can compute them, the subclass also opens and runs that
    model. Its `records.SourceRecord` has the names: arguments, nouns, options.
    """

    # File endings that ``oracle annotate`` can write. The function of each gets the output of `run` and the ids of the
    # reports, and returns the content of the file.
    endings: ClassVar[Mapping[str, Callable[[Any, Sequence[str]], bytes]]] = {}

    def __init__(self, record: SourceRecord) -> None:
        self.record = record
        self.name = record.name
        self.argument = record.arguments[0]

    # Files and containers

    def read(self, file_or_data: Any, data_ids: Any) -> Any:
        """Return the table in a file or a container in memory; one that was read before is returned unchanged.

        `data_ids`, a file or a container, has the ids of its values if it has none itself; None if the source has no
        argument for ids, or no ids were given. Raise InputError if the layout is not one of the source's.
        """
        raise NotImplementedError

    def attach(
        self,
        file_or_data: Any,
        data_ids: Any,
        reports: tuple[Sequence[str], Sequence[str]],
        settings: Mapping[str, Any],
        *,
        is_piece: bool = False,
    ) -> Attachment:
        """Read a file or a container, see `read`, and join its values to reports, given by their ids and texts.

        `settings` has the options that the record's `settings` names. With `is_piece`, the reports are only a part of
        those that the values belong to, so that none of them need have a value.
        """
        table = self.read(file_or_data, data_ids)
        of_row = self.join(table, reports, name_of(file_or_data), is_piece)
        return Attachment(self.values_of(table, settings), of_row, self.settings_of(table, settings))

    def join(
        self, table: Any, reports: tuple[Sequence[str], Sequence[str]], table_name: str, is_piece: bool
    ) -> np.ndarray:
        """Return the index in a table of the value of each report, found by its id, -1 for none: int64[N].

        Raise InputError if no id matches, unless `is_piece`; see `attach`. `table_name` is for the message.
        """
        ids = reports[0]
        place = {key: i for i, key in enumerate(table.ids)}
        joined = np.array([place.get(i, -1) for i in canonical_ids(ids, "ids")], np.int64)
        if len(joined) and joined.max() < 0 and not is_piece:
            raise InputError(
                self.argument,
                "must share ids with the reports",
                f"none of {len(ids)} report ids among {len(table.ids)} in {table_name}",
                f"Pass the file that belongs to these reports.{ids_hint(ids, table.ids)}",
            )
        return joined

    def values_of(self, table: Any, settings: Mapping[str, Any]) -> Any:
        """Return the values of a table of `read`, as `Attachment.values` has them under these settings."""
        return table.values

    def settings_of(self, table: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return what changes the meaning of a table's values, for `Attachment.settings`."""
        return {name: settings.get(name) for name in self.record.settings}

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise InputError unless the options that the source requires were given."""

    # Functions of texts

    def attach_answer(self, answer: Any, n_texts: int, settings: Mapping[str, Any]) -> Attachment:
        """Return the values that a user's function returned, one for each text in their order, as their attachment.

        Raise InputError if they are not as many as the texts.
        """
        answer = list(answer) if isinstance(answer, Iterator) else answer  # of a generator
        if not hasattr(answer, "__len__"):
            raise InputError(
                f"{self.record.plural} that a function returned",
                "must be one for each text, in their order",
                name_of(answer),
                "Return a list or an array.",
            )
        if len(answer) != n_texts:
            raise InputError(
                f"{self.record.plural} that a function returned",
                f"must be as many as the texts, {n_texts}",
                len(answer),
                "Return one for each text, in their order.",
            )
        places = [str(place) for place in range(n_texts)]
        return self.attach(answer, None, (places, [""] * n_texts), settings)

    # Models

    def is_model(self, file_or_model: Any) -> bool:
        """Return whether what was given for the source names a model to run, not a file or container of values."""
        return False

    def open(self, model_path: Any, model_options: Mapping[str, Any]) -> Any:
        """Open the model at a path for which `is_model` is true.

        `model_options` may have `device` and further files of the model, by the names in the record's
        `model_arguments`; other entries are ignored.
        """
        raise NotImplementedError

    def run(
        self,
        model: Any,
        texts: Sequence[str],
        *,
        tell: Callable[[str], None] = ignore,
        progress: Advance | None = None,
        scratch: Path | None = None,
    ) -> Any:
        """Run a model that `open` returned on texts; `attachment`, `answer` and `endings` take its output.

        `tell` is called with a line for the user if texts were too long and cut off, and `progress` with the number of
        texts finished since its last call. `scratch` is a folder for the output of finished blocks of texts, in files
        called ``NAME-000000.part`` with the name of this source; the same call after an interruption resumes from them.
        """
        output = self.call(model, texts, progress=progress, scratch=scratch)
        note = self.cut_off(output, len(texts))
        if note:
            tell(note)
        return output

    def call(self, model: Any, texts: Sequence[str], **keywords: Any) -> Any:
        """Return the output of a model for texts; the keywords are `progress` and `scratch` of `run`."""
        raise NotImplementedError

    def cut_off(self, output: Any, n_texts: int) -> str:
        """Return a line for the user if texts were too long for the model and cut off; otherwise an empty string."""
        return ""

    def attachment(
        self, output: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return the output of a model for texts, with the model's signature, as their attachment.

        The model may be that of another source, which the record's `made_by` names.
        """
        raise NotImplementedError

    def answer(self, output: Any) -> Any:
        """Return the output of a model for texts in the form in which a user's function would return it."""
        raise NotImplementedError

    # Prepared folders, and pieces of reports

    def restore(
        self, representation: Any, document_of_row: np.ndarray, manifest_entry: Mapping[str, Any], index: Any
    ) -> Attachment | None:
        """Return the attachment from which an opened representation of an index was built, or an equivalent one.

        `document_of_row` has the document of each report in it, -1 for none: int64[N]. `manifest_entry` is what the
        manifest records of the representation. None means that the index does not hold enough, so that a model has to
        run again.
        """
        raise NotImplementedError

    def piece(self, attachment: Attachment, *, is_first: bool) -> Attachment:
        """Return an attachment with only the values that its reports use, each once, for one shard of a corpus.

        `is_first` is true for the first shard, which gets the counts that belong to the whole file.
        """
        entries, place = np.unique(attachment.of_row[attachment.of_row >= 0], return_inverse=True)
        of_row = np.full(len(attachment.of_row), -1, np.int64)
        of_row[attachment.of_row >= 0] = place.reshape(-1)
        values = attachment.values
        taken = values[entries] if isinstance(values, np.ndarray) else values.take(entries)
        return replace(attachment, values=taken, of_row=of_row)


@cache
def source_of(name: str) -> Source:
    """Return the source with this name in the registry, one object for all calls."""
    record = SOURCES[name]
    return record.load_class()(record)


def name_of(file_or_data: Any) -> str:
    """Return how an error message names a file or a container: its path, or its type and that it is in memory."""
    return str(file_or_data) if isinstance(file_or_data, str | Path) else f"the {type(file_or_data).__name__} in memory"


def check_unicode(strings: Sequence[str], ids: Sequence[str] | None, what: str) -> None:
    """Raise InputError if a string contains half of a surrogate pair, which the files of an index cannot hold.

    The message names the strings by `what`, and the wrong one by its report if `ids` has the ids of the reports.
    """
    if all(map(str.isascii, strings)):
        return
    for place, string in enumerate(strings):
        try:
            string.encode()
        except UnicodeEncodeError:
            where = "one" if ids is None else f"that of report {shown(ids[place])}"
            raise InputError(
                what, "must be valid Unicode", f"half of a surrogate pair in {where}", "Repair the file."
            ) from None
