"""Checks of queries before they are compared with an index."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.sections import check_sections
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError, option
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.metrics import REPRESENTATIONS, Metric, get_metric


def check_queries(queries: Inputs, record: Metric, index: Index) -> None:
    """Raise unless every query has what the metric reads; that the index holds it was checked."""
    if not queries.ids:
        msg = "retrieve: queries must be at least one report; got 0. Check the file and the section."
        raise InputError(msg)
    check_section(queries, index)
    for kind in record.representations:
        _check_queries(queries, record, index, kind)


def check_section(queries: Inputs, index: Index) -> None:
    """Raise where test reports and index are known to be of different sections."""
    step = f"Pass {option('section', str(index.section[0]))}, or search an index of section {queries.section[0]}"
    check_sections("retrieve", queries.section, index.section, ("test reports", "index"), step)


def with_frequencies(index: Index, corpus: Index | None, records: Iterable[Metric], idf: Any, function: str) -> Index:
    """Return reports that are scored, weighted by the document frequencies of a corpus where a metric counts them.

    Parameters
    ----------
    index : Index
        Of predictions or other reports that are no corpus.
    corpus : Index or None
    records : iterable of Metric
    idf
        Of BERTScore.
    function : str
        For error lines.
    """
    check_counted(corpus, records, idf, function)
    if corpus is None:
        return index
    kind = "bertscore"
    made = [one.content["representations"].get(kind, {}).get("encoder", {}) for one in (index, corpus)]
    if _counts(idf) and any(made[0].get(name) != made[1].get(name) for name in ("sha256", "layer", "compute")):
        msg = (
            f"{function}: encoder must be the one of the index whose frequencies count, {made[1].get('model')}; got "
            f"{made[0].get('model')}. Pass that encoder, or an index of this one."
        )
        raise InputError(msg)
    return index.counted_in(corpus)


def check_counted(corpus: Index | None, records: Iterable[Metric], idf: Any, function: str) -> None:
    """Raise if a metric reads the document frequencies of a corpus, and no corpus that has them is given."""
    asked = [(f"metric {record.name!r}", record) for record in records if record.counts_corpus]
    if _counts(idf):
        asked.append(("idf 'corpus'", get_metric("bertscore")))
    for what, record in asked:
        if corpus is None:
            msg = (
                f"{function}: index must be given for {what}, which counts the documents of a corpus; got none. Add "
                "--index INDEX, the corpus whose frequencies count."
            )
            raise InputError(msg)
        corpus.check_holds(record)


def _counts(idf: Any) -> bool:
    return isinstance(idf, str | Path) and str(idf) == "corpus"


def counted_entry(record: Metric, idf: Any, fingerprint: Any) -> dict[str, str]:
    """Return the signature entry for the corpus whose document frequencies a metric reads; empty if it reads none."""
    return {"frequencies": str(fingerprint)} if record.counts_corpus or _counts(idf) else {}


def section_entry(index: Index, queries: Inputs) -> dict[str, str]:
    """Return what a signature records of the section that is compared; nothing where neither side says it."""
    section = index.section[0] or queries.section[0]
    return {} if section is None else {"section": section}


def _check_queries(queries: Inputs, record: Metric, index: Index, kind: str) -> None:
    """Raise unless every query has what one representation is made from."""
    needs = REPRESENTATIONS[kind].source
    if needs is None or not REPRESENTATIONS[kind].is_attached:
        return
    attachment = queries.attached.get(kind)
    if attachment is None:
        msg = f"retrieve: queries must have {needs.noun} each for metric {record.name!r}; got none. Add {needs.option}."
        raise InputError(msg)
    lacking = [queries.ids[i] for i in np.flatnonzero(attachment.of_row < 0).tolist()]
    if lacking:
        shown = shown_names(lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        msg = (
            f"retrieve: queries must have {needs.noun} each for metric {record.name!r}; got {len(lacking)} of "
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
