"""The base class of sources, and `Attachment`: the values of a source joined to reports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.corpora.tables import canonical_ids, ids_hint, shown_names
from metric_oracle.errors import InputError
from metric_oracle.metrics import SOURCES, SourceRecord
from metric_oracle.progress import Count


def ignore(*values: Any) -> None:
    """Do nothing; it is the default of optional callbacks."""


@dataclass(frozen=True)
class Attachment:
    """The values of a source, and for each report the index of its value."""

    # GraphTable, EntityTable, float32[n, d], uint8[n, L] or TokenStateIndex. The distinct or listed values.
    # CheXbert labels: 0 blank, 1 positive, 2 negative, 3 uncertain. Sets of labels: 1 for labels in the set.
    values: Any
    of_row: np.ndarray  # int64[N], index in `values` of each report's value, -1 for none
    # Options that change the meaning of the values, such as `uncertain` of CheXbert labels and `schema` of sets
    # of labels.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Signature of the model that computed the values from the texts in this run; empty if the values were given.
    made_by: Mapping[str, Any] = field(default_factory=dict)
    are_unit: bool = False  # whether the values are vectors from an index, which have length 1 up to rounding
    # Checksum of the index whose documents, in their order, the values are; empty if they come from elsewhere.
    stored_in: str = ""

    @property
    def both(self) -> tuple[Any, np.ndarray]:
        """`values` and `of_row`: the values, and for each report the index of its value, -1 for none."""
        return self.values, self.of_row

    def take(self, chosen: np.ndarray) -> "Attachment":
        """Return the attachment of the reports at these positions."""
        return replace(self, of_row=self.of_row[chosen])

    def parts(self) -> list[Any]:
        """Return all arrays, and lists of strings, of the attachment, for a checksum of it."""
        values = (
            [getattr(self.values, f.name) for f in fields(self.values)] if is_dataclass(self.values) else [self.values]
        )
        return [self.of_row, *values, dict(self.settings), dict(self.made_by)]


class Source:
    """A source: data that metrics read in addition to the text, such as graphs, labels or vectors.

    A subclass reads them from files and from memory. If a model can compute them, the subclass also opens and runs that
    model. The record in `metrics.SOURCES` has the names: arguments, nouns, options.

    Attributes
    ----------
    record : SourceRecord
    endings : mapping of str to function
        File endings that ``oracle annotate`` can write. The function of each, ``(made, ids) -> bytes``, gets the return
        value of `run` and returns the content of the file.
    """

    endings: ClassVar[Mapping[str, Callable[[Any, Sequence[str]], bytes]]] = {}

    def __init__(self, record: SourceRecord) -> None:
        self.record = record
        self.name = record.name
        self.argument = record.arguments[0]

    # Files and containers

    def read(self, value: Any, value_ids: Any) -> Any:
        """Read a file or a container; a table that was read before is returned unchanged.

        Parameters
        ----------
        value : path or container
        value_ids : path, sequence or None
            Ids of the values if `value` has none; only for sources with an argument for ids.
        """
        raise NotImplementedError

    def attach(
        self,
        value: Any,
        value_ids: Any,
        reports: tuple[Sequence[str], Sequence[str]],
        settings: Mapping[str, Any],
        *,
        is_piece: bool = False,
    ) -> Attachment:
        """Read a file or a container and join its values to reports on their ids.

        Parameters
        ----------
        value, value_ids
            See `read`.
        reports : (ids, texts)
        settings : mapping
            Values of the options that the record's `settings` names.
        is_piece : bool
            Whether the reports are only a part of those that the values belong to, so that none of them need have a
            value.
        """
        table = self.read(value, value_ids)
        of_row = self.join(table, reports, name_of(value), is_piece)
        return Attachment(self.values_of(table, settings), of_row, self.settings_of(table, settings))

    def join(self, table: Any, reports: tuple[Sequence[str], Sequence[str]], name: str, is_piece: bool) -> np.ndarray:
        """Return the index in a table of the value of each report, -1 for none: int64[N].

        Raise InputError if no id matches, unless `is_piece`. `name` is that of the table in the message.
        """
        ids = reports[0]
        place = {key: i for i, key in enumerate(table.ids)}
        joined = np.array([place.get(i, -1) for i in canonical_ids(ids, "ids")], np.int64)
        if len(joined) and joined.max() < 0 and not is_piece:
            raise InputError(
                self.record.plural,
                "must share ids with the reports",
                f"none of {len(ids)} report ids among {len(table.ids)} in {name}",
                f"Pass the file that belongs to these reports.{ids_hint(ids, table.ids)}",
            )
        return joined

    def values_of(self, table: Any, settings: Mapping[str, Any]) -> Any:
        """Return the values of a table that `read` returned, as `Attachment.values` has them."""
        return table.values

    def settings_of(self, table: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that change the meaning of a table's values, for `Attachment.settings`."""
        return {name: settings.get(name) for name in self.record.settings}

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise InputError unless the options that the source requires were given."""

    # Functions of texts

    def attach_answer(self, answer: Any, n_texts: int, settings: Mapping[str, Any]) -> Attachment:
        """Return as attachment the values that a user's function returned, one for each text in their order."""
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

    def is_model(self, value: Any) -> bool:
        """Return whether a value of the argument names a model to run, not a file of values."""
        return False

    def open(self, value: Any, files: Mapping[str, Any]) -> Any:
        """Open the model that a path names.

        Parameters
        ----------
        value : path
            A path for which `is_model` is true.
        files : mapping
            Further files of the model, by the names in the record's `model_arguments`, and `device`.
        """
        raise NotImplementedError

    def run(
        self,
        model: Any,
        texts: Sequence[str],
        *,
        tell: Callable[[str], None] = ignore,
        progress: Count | None = None,
        scratch: Path | None = None,
    ) -> Any:
        """Run a model on texts. `attachment`, `answer` and `endings` take the return value.

        Parameters
        ----------
        model : object
            Return value of `open`.
        texts : sequence of str
        tell : function
            Called with a line for the user if texts were too long and cut off.
        progress : function
            Called with the number of texts finished since the last call.
        scratch : path
            Folder for results of finished blocks of texts, files called ``NAME-000000.part`` with the name of this
            source. The same call after an interruption resumes from them.
        """
        made = self.call(model, texts, progress=progress, scratch=scratch)
        note = self.cut_off(made, len(texts))
        if note:
            tell(note)
        return made

    def call(self, model: Any, texts: Sequence[str], **keywords: Any) -> Any:
        """Call the method of an opened model; the keywords are `progress` and `scratch`, see `run`."""
        raise NotImplementedError

    def cut_off(self, made: Any, n_texts: int) -> str:
        """Return a line for the user if texts were too long for the model and cut off; otherwise an empty string."""
        return ""

    def attachment(
        self, made: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return what a model returned for texts as their attachment.

        One model may compute several sources, see `made_by`.
        """
        raise NotImplementedError

    def answer(self, made: Any) -> Any:
        """Return what a model returned for texts in the form in which a user's function would return it."""
        raise NotImplementedError

    # Prepared folders, and pieces of reports

    def restore(self, part: Any, of_row: np.ndarray, recorded: Mapping[str, Any], index: Any) -> Attachment | None:
        """Return the attachment from which a stored representation was built, or an equivalent one.

        Parameters
        ----------
        part : Representation
            The opened representation.
        of_row : int64[N]
            Document of each report in it, -1 for none.
        recorded : mapping
            The manifest's entry for the representation.
        index : Index
            The opened index.

        Returns
        -------
        Attachment or None
            None if the index does not hold enough, so that a model has to run again.
        """
        raise NotImplementedError

    def piece(self, attachment: Attachment, *, is_first: bool) -> Attachment:
        """Return an attachment with only the values that its reports use; for one shard of a corpus.

        `is_first` is true for the first shard, which gets the counts that belong to the whole file.
        """
        chosen, place = np.unique(attachment.of_row[attachment.of_row >= 0], return_inverse=True)
        of_row = np.full(len(attachment.of_row), -1, np.int64)
        of_row[attachment.of_row >= 0] = place.reshape(-1)
        values = attachment.values
        taken = values[chosen] if isinstance(values, np.ndarray) else values.take(chosen)
        return replace(attachment, values=taken, of_row=of_row)


@cache
def source_of(name: str) -> Source:
    """Return the source with this name in the registry."""
    record = SOURCES[name]
    return record.load_class()(record)


def name_of(value: Any) -> str:
    """Return how an error message names a value: its path, or that it is in memory."""
    return str(value) if isinstance(value, str | Path) else f"the {type(value).__name__} in memory"


def check_unicode(strings: Sequence[str], ids: Sequence[str] | None, what: str) -> None:
    """Raise InputError if a string contains half of a surrogate pair, which the files of an index cannot hold.

    `ids` and `what` name the string in the message.
    """
    if all(map(str.isascii, strings)):
        return
    for place, string in enumerate(strings):
        try:
            string.encode()
        except UnicodeEncodeError:
            where = "one" if ids is None else f"that of report {shown_names([ids[place]])}"
            raise InputError(
                what, "must be valid Unicode", f"half of a surrogate pair in {where}", "Repair the file."
            ) from None
