"""The base class of sources, and what they attach to reports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.corpora.tables import canonical_ids, shown_names, zeros_hint
from metric_oracle.errors import InputError
from metric_oracle.metrics import SOURCES, SourceRecord
from metric_oracle.progress import Count


def ignore(*values: Any) -> None:
    """Do nothing: the default of callbacks."""


@dataclass(frozen=True)
class Attachment:
    """The values of a source and the place of each report among them.

    Attributes
    ----------
    values : GraphTable, EntityTable, float32[n, d], uint8[n, L] or TokenStateIndex
        Of CheXbert labels: 0 blank, 1 positive, 2 negative, 3 uncertain; of sets of labels: 1 for those in the set.
    of_row : int64[N]
        Place of each report among the values, -1 for none.
    settings : dict
        How the values count, such as `uncertain` of CheXbert labels and `schema` of sets of labels.
    made_by : dict
        Signature of the model that made them from the texts here; empty where they were given.
    are_unit : bool
        Whether vectors are those of an index, of length 1 but for rounding.
    stored_in : str
        Checksum of the index whose documents the values are, in their order; empty where they are others.
    """

    values: Any
    of_row: np.ndarray
    settings: Mapping[str, Any] = field(default_factory=dict)
    made_by: Mapping[str, Any] = field(default_factory=dict)
    are_unit: bool = False
    stored_in: str = ""

    @property
    def both(self) -> tuple[Any, np.ndarray]:
        """Values and each report's place among them."""
        return self.values, self.of_row

    def take(self, chosen: np.ndarray) -> "Attachment":
        """Return the attachment of the reports at some places."""
        return replace(self, of_row=self.of_row[chosen])

    def parts(self) -> list[Any]:
        """Return all arrays, and lists and strings, that it consists of, for a digest."""
        values = (
            [getattr(self.values, f.name) for f in fields(self.values)] if is_dataclass(self.values) else [self.values]
        )
        return [self.of_row, *values, dict(self.settings), dict(self.made_by)]


class Source:
    """Something that a metric reads in addition to the text.

    A subclass reads it, and where a model makes it, opens and runs that model. The record in `metrics.SOURCES` has the
    names: arguments, nouns, options.

    Attributes
    ----------
    record : SourceRecord
    endings : mapping of str to function
        File endings that `annotate` can write, each with a function ``(made, ids) -> bytes``, where
        `made` is what `run` returned.
    """

    endings: ClassVar[Mapping[str, Callable[[Any, Sequence[str]], bytes]]] = {}

    def __init__(self, record: SourceRecord) -> None:
        self.record = record
        self.name = record.name
        self.argument = record.arguments[0]

    # Files and containers

    def read(self, value: Any, value_ids: Any) -> Any:
        """Read a file or a container; a table that was read before is returned as it is.

        Parameters
        ----------
        value : path or container
        value_ids : path, sequence or None
            Ids of the values where they carry none; only of sources with an argument for them.
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
        """Read a file or a container and join it to reports on their ids.

        Parameters
        ----------
        value, value_ids
            See `read`.
        reports : (ids, texts)
        settings : mapping
            Values of the record's `settings`.
        is_piece : bool
            Whether the reports are a part of those that the values belong to: none of them need be among the values.
        """
        table = self.read(value, value_ids)
        of_row = self._join(reports[0], table.ids, value, is_piece)
        return Attachment(self.values_of(table), of_row, self.settings_of(table, settings))

    def values_of(self, table: Any) -> Any:
        """Return what an attachment keeps of a table."""
        return table.values

    def settings_of(self, table: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return how the values of a table count."""
        return {name: settings.get(name) for name in self.record.settings}

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise unless the settings that the source needs are given."""

    def _join(self, ids: Sequence[str], keys: Sequence[str], value: Any, is_piece: bool) -> np.ndarray:
        """Return the place of each report among `keys`, -1 for none: int64[N]."""
        place = {key: i for i, key in enumerate(keys)}
        joined = np.array([place.get(i, -1) for i in canonical_ids(ids, "ids")], np.int64)
        if len(joined) and joined.max() < 0 and not is_piece:
            raise InputError(
                argument=self.record.plural,
                rule="must share ids with the reports",
                value=f"none of {len(ids)} report ids among {len(keys)} in {name_of(value)}",
                step=f"Pass the file that belongs to these reports.{zeros_hint(ids, keys)}",
            )
        return joined

    # Functions of texts

    def attach_answer(self, answer: Any, n_texts: int, settings: Mapping[str, Any]) -> Attachment:
        """Return what a function of the caller answered for texts, one value for each, in their order."""
        if len(answer) != n_texts:
            raise InputError(
                argument=f"{self.record.plural} of a function",
                rule=f"must be as many as the texts, {n_texts}",
                value=len(answer),
                step="Return one row for each, in their order.",
            )
        places = [str(place) for place in range(n_texts)]
        return self.attach(answer, None, (places, [""] * n_texts), settings)

    # Models

    def is_model(self, value: Any) -> bool:
        """Tell a model from what a model made."""
        return False

    def open(self, value: Any, files: Mapping[str, Any]) -> Any:
        """Open a model.

        Parameters
        ----------
        value : path
            For which `is_model` is true.
        files : mapping
            Values of the record's `model_arguments`, and `device`.
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
        """Run a model over texts; `attachment`, `answer` and `endings` take what it returns.

        Parameters
        ----------
        model : object
            What `open` returned.
        texts : sequence of str
        tell : function
            Called with a line about texts that were cut off.
        progress : function
            Called with the number of texts finished since the last call.
        scratch : path
            Folder for finished parts, files called ``NAME-000000.part`` with the name of this source: the same call
            after a kill resumes with them.
        """
        raise NotImplementedError

    def attachment(
        self, made: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return what a model made of texts as their attachment; `made` may be of the model that `made_by` names."""
        raise NotImplementedError

    def answer(self, made: Any) -> Any:
        """Return what a model made of texts as a function of the caller would."""
        raise NotImplementedError

    # Prepared folders, and pieces of reports

    def restore(self, part: Any, of_row: np.ndarray, recorded: Mapping[str, Any], index: Any) -> Attachment | None:
        """Return the values that a stored representation was built of, or such as give the same representation.

        Parameters
        ----------
        part : Representation
            The opened representation.
        of_row : int64[N]
            Its unit of each report, -1 for none.
        recorded : mapping
            What the manifest records of it.
        index : Index
            The opened folder.

        Returns
        -------
        Attachment or None
            None where the folder does not say enough: then a model has to make them again.
        """
        raise NotImplementedError

    def piece(self, attachment: Attachment, *, is_first: bool) -> Attachment:
        """Return an attachment with the values that its reports use and no others.

        `is_first` tells the first piece of a whole: what is counted of a whole file counts there.
        """
        chosen, place = np.unique(attachment.of_row[attachment.of_row >= 0], return_inverse=True)
        of_row = np.full(len(attachment.of_row), -1, np.int64)
        of_row[attachment.of_row >= 0] = place.reshape(-1)
        values = attachment.values
        taken = values[chosen] if isinstance(values, np.ndarray) else values.take(chosen)
        return replace(attachment, values=taken, of_row=of_row)


@cache
def source_of(name: str) -> Source:
    """Return the source of a name in the registry."""
    record = SOURCES[name]
    return record.load_class()(record)


def name_of(value: Any) -> str:
    """Return what an error line calls something that was given: its path, or that it is in memory."""
    return str(value) if isinstance(value, str | Path) else f"the {type(value).__name__} in memory"


def check_unicode(strings: Sequence[str], ids: Sequence[str] | None, what: str) -> None:
    """Raise where a string holds half of a surrogate pair, which JSON allows and no file of an index can hold."""
    for place, string in enumerate(strings):
        try:
            string.encode()
        except UnicodeEncodeError:
            where = "one" if ids is None else f"that of report {shown_names([ids[place]])}"
            raise InputError(
                argument=what,
                rule="must be valid Unicode",
                value=f"half of a surrogate pair in {where}",
                step="Repair the file.",
            ) from None
