"""Checks of queries, and their encoding, before a search begins."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from metric_oracle.corpora.reports import check_left_out
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError
from metric_oracle.indexes.contract import EncodedQueries
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.metrics import REPRESENTATIONS, Metric
from metric_oracle.retrieval.composite.representation import representation_of


def encode_queries(index: Index, queries: Inputs, record: Metric, settings: Mapping[str, Any]) -> EncodedQueries:
    """Return the distinct queries as the kernels of a metric take them, after all checks."""
    check_search(index, queries, record, settings)
    return representation_of(index, record).encode(queries, **settings)


def check_search(index: Index, queries: Inputs, record: Metric, settings: Mapping[str, Any]) -> None:
    """Raise unless queries and settings are such that a metric can be searched in an index."""
    check_queries(queries, record, index)
    check_left_out(settings, record.settings, "retrieve", f"metric {record.name!r}")


def check_queries(queries: Inputs, record: Metric, index: Index) -> None:
    """Raise unless every query has what the metric reads."""
    if not queries.ids:
        msg = "retrieve: queries must be at least one report; got 0. Check the file and the section."
        raise InputError(msg)
    index.check_holds(record)
    for kind in record.representations:
        _check_queries(queries, record, index, kind)


def _check_queries(queries: Inputs, record: Metric, index: Index, kind: str) -> None:
    """Raise unless every query has what one representation is made from."""
    needs = REPRESENTATIONS[kind]
    if needs.source != "attachment":
        return
    attachment = queries.attached.get(kind)
    if attachment is None:
        msg = f"retrieve: queries must have {needs.what} each for metric {record.name!r}; got none. Add {needs.option}."
        raise InputError(msg)
    lacking = [queries.ids[i] for i in np.flatnonzero(attachment.of_row < 0).tolist()]
    if lacking:
        shown = shown_names(lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        msg = (
            f"retrieve: queries must have {needs.what} each for metric {record.name!r}; got {len(lacking)} of "
            f"{len(queries.ids)} without ({shown}). Add them to the file or leave these queries out."
        )
        raise InputError(msg)
    recorded = index.content["representations"][kind].get("encoder", {})
    given = attachment.made_by
    if {"sha256"} <= recorded.keys() & given.keys() and recorded["sha256"] != given["sha256"]:
        msg = (
            f"retrieve: {needs.plural} must come from the model of the index, sha256 {recorded['sha256'][:12]}; got "
            f"{given['sha256'][:12]}. Pass that model, or build another index."
        )
        raise InputError(msg)
    for name, value in attachment.settings.items():
        wanted = index.content["representations"][kind].get(name)
        if value != wanted:
            msg = (
                f"retrieve: {name} must be {wanted!r} as in the index; got {value!r}. "
                "Pass the same value or build another index."
            )
            raise InputError(msg)
