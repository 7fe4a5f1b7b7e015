"""The sources of labels: CheXbert's 14 classes, and labels with any names, such as SRR-BERT's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.option_types import UNCERTAIN
from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.label_tables import (
    LABELS,
    Labels,
    LabelTable,
    classes_of,
    label_table_of,
    labels_of_table,
    read_label_table,
    read_labels,
)
from metric_oracle.corpora.tables import canonical_ids, check_unique
from metric_oracle.sources.contract import Attachment, Source, name_of


@dataclass(frozen=True)
class LabelSets:
    """For each report, the set of labels that it has."""

    ids: list[str]
    # uint8[n, L], 1 for the labels that a report has; columns are in the order of the label names.
    values: npt.NDArray[np.uint8]
    schema: str  # identifies the list of label names: equal for equal names


def as_labels(file_or_data: Any) -> Labels:
    """Return CheXbert labels from a file or table, or from 14 numbers for each report in a dict by id or an array.

    They mean the same as in a file, or are classes; see `label_tables.classes_of`. Rows of an array belong to the
    reports in their order. Raise InputError for anything else.
    """
    if isinstance(file_or_data, Labels):
        return file_or_data
    if isinstance(file_or_data, str | Path):
        return read_labels(file_or_data)
    ids, values = None, file_or_data
    if _is_table(file_or_data):
        table, _ = in_memory(file_or_data)
        if table is not None:
            return labels_of_table(table)
    elif isinstance(file_or_data, Mapping):
        ids = canonical_ids(list(file_or_data), "the ids of the labels")
        check_unique(ids, "the ids of the labels")
        values = list(file_or_data.values())
    classes = classes_of(values)
    if classes is None:
        raise InputError(
            "labels",
            f"must be a file, a table or {len(LABELS)} classes from 0 to 3 for each report, or 1, 0, -1 and NaN",
            f"{name_of(file_or_data)} with other values",
            "Pass 0 blank, 1 positive, 2 negative, 3 uncertain; or 1 positive, 0 negative, -1 uncertain, NaN blank.",
        )
    return Labels(ids, classes)


def _is_table(data: Any) -> bool:
    """Return whether labels in memory have the names of their columns."""
    if isinstance(data, Mapping):
        return set(LABELS) <= data.keys() or any(isinstance(value, Mapping) for value in data.values())
    are_rows = isinstance(data, list | tuple) and any(isinstance(row, Mapping) for row in data)
    return are_rows or hasattr(data, "columns")


def as_label_table(file_or_data: Any, plural: str = "labels") -> LabelTable:
    """Return labels with any names, columns sorted by name, from a table in a file or in memory.

    It has a column for each label, whose cells are 1, 0, -1 (uncertain) or empty. Rows without ids belong to the
    reports in their order. Raise InputError for anything else, which calls these labels `plural`.
    """
    if isinstance(file_or_data, LabelTable):
        return file_or_data
    if isinstance(file_or_data, str | Path):
        table = read_label_table(file_or_data)
    else:
        container, _ = in_memory(file_or_data)
        if container is None:
            raise InputError(plural, "must be a table with a column for each label", name_of(file_or_data), "Pass one.")
        table = label_table_of(container, by_place=True)
    order = sorted(range(len(table.names)), key=table.names.__getitem__)
    return LabelTable(table.ids, [table.names[place] for place in order], table.values[:, order])


def _schema(names: Sequence[str]) -> str:
    """Return a short text that identifies a list of label names: equal for equal names."""
    digest = sha256("\n".join(names).encode()).hexdigest()
    return f"{len(names)} labels, sha256 {digest[:12]}"


def as_label_sets(file_or_data: Any) -> LabelSets:
    """Return the set of labels of each report, from a table with a column for each label, 1 or 0, such as SRR-BERT's.

    An empty cell counts as 0. Raise InputError for an uncertain label, and as `as_label_table` does.
    """
    if isinstance(file_or_data, LabelSets):
        return file_or_data
    table = as_label_table(file_or_data, "SRR labels")
    is_uncertain = (table.values == 3).any(axis=0)
    if is_uncertain.any():
        raise InputError(
            "SRR labels",
            "must be 1, 0 or empty",
            f"-1 in {int(is_uncertain.sum())} of {len(table.names)} columns of {name_of(file_or_data)}",
            "Write a column of 1 and 0 for each finding and status, such as Edema (Uncertain).",
        )
    return LabelSets(table.ids, (table.values == 1).astype(np.uint8), _schema(table.names))


class CheXbertLabelSource(Source):
    """CheXbert's labels, from files, or predicted by the checkpoint that the argument `chexbert` names."""

    def read(self, file_or_data: Any, data_ids: Any) -> Labels:
        """Return labels; see `as_labels`."""
        return as_labels(file_or_data)

    def join(
        self, table: Any, reports: tuple[Sequence[str], Sequence[str]], table_name: str, is_piece: bool
    ) -> np.ndarray:
        """Join labels to reports on their ids; labels without ids row by row, InputError unless they are as many."""
        if table.ids is not None:
            return super().join(table, reports, table_name, is_piece)
        n_reports = len(reports[0])
        if len(table.values) != n_reports:
            raise InputError(
                "labels without ids",
                f"must be as many as the reports, {n_reports}",
                f"{len(table.values)} in {table_name}",
                "Add a study_id column.",
            )
        return np.arange(n_reports)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise InputError unless the option `uncertain`, the value of uncertain labels, was given."""
        uncertain = settings.get("uncertain")
        if uncertain not in UNCERTAIN:
            raise InputError(
                "uncertain",
                "must be positive, negative or blank where labels are given",
                shown(uncertain),
                "Say what an uncertain label counts as: it changes the score and is recorded.",
            )

    def attachment(
        self, output: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return the classes in the output of `sources.embeddings.CheXbertSource`, a row for each text."""
        return Attachment(output[1], np.arange(n_texts), self.settings_of(None, settings), signature)

    def answer(self, output: Any) -> Any:
        """Return the classes that CheXbert predicted, uint8[n, 14]."""
        return output[1]

    def restore(
        self, representation: Any, document_of_row: np.ndarray, manifest_entry: Mapping[str, Any], index: Any
    ) -> Attachment:
        """Return the classes of the documents; none is uncertain, because `uncertain` gave such labels a value."""
        vectors, settings = representation.vectors, {representation.setting: representation.meaning}
        classes = np.select([vectors == 1, vectors == -1], [1, 2], 0).astype(np.uint8)
        return Attachment(classes, document_of_row, settings, manifest_entry.get("encoder", {}))


class LabelSetSource(CheXbertLabelSource):
    """Sets of labels with any names, from tables with a column for each label."""

    def read(self, file_or_data: Any, data_ids: Any) -> Any:
        """Return sets of labels; see `as_label_sets`."""
        return as_label_sets(file_or_data)

    def settings_of(self, table: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of the label names."""
        return {"schema": table.schema}

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Do nothing: this source requires no option."""


class LabelTableSource(CheXbertLabelSource):
    """Labels with any names whose cells may be missing."""

    def read(self, file_or_data: Any, data_ids: Any) -> Any:
        """Return a table of labels; see `as_label_table`."""
        return as_label_table(file_or_data)

    def values_of(self, table: Any, settings: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
        """Return the classes, uint8[n, L]; an uncertain one becomes what `uncertain` says, missing if "blank".

        Raise InputError if `uncertain` has another value, or none where a label is uncertain.
        """
        uncertain = settings.get("uncertain")
        if uncertain not in UNCERTAIN and (uncertain is not None or (table.values == 3).any()):
            raise InputError(
                "uncertain",
                "must be positive, negative or blank where labels are uncertain (-1)",
                shown(uncertain),
                "Say what such a label counts as; blank leaves it out.",
            )
        meaning = {"positive": 1, "negative": 2}.get(uncertain or "", 0)
        return np.array([0, 1, 2, meaning], np.uint8)[table.values]

    def settings_of(self, table: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of the label names, with the value of uncertain labels."""
        uncertain = settings.get("uncertain")
        return {"schema": _schema(table.names) + ("" if uncertain is None else f", uncertain {uncertain}")}

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Do nothing: `uncertain` is required only if a label is uncertain, which `values_of` checks."""
