"""Checks of queries before they are compared with an index."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.argument_checks import check_given
from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.sections import check_sections
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import METRICS, REPRESENTATIONS, get_metric
from metric_oracle.records import Metric


def check_queries(queries: Reports, metric: Metric, index: Index) -> None:
    """Raise InputError if there is no query, one lacks a source of the metric, or the index has another section."""
    if not queries.ids:
        raise InputError("queries", "must be at least one report", "0", "Check the file and the section.")
    check_section(queries, index)
    for kind in metric.representations:
        _check_queries(queries, metric, index, kind)


def check_section(queries: Reports, index: Index) -> None:
    """Raise InputError if queries and index are known to be of different sections."""
    passed = f"`mo.reports(..., mo.Read(section={index.section[0]!r}))`"
    step = f"Pass {passed}, or search an index of section {queries.section}"
    check_sections(queries.known_section, index.section, ("test reports", "index"), step)


def with_frequencies(index: Index, corpus: Index | None, metrics: Iterable[Metric], idf: Any) -> Index:
    """Return `index`, whose reports are scored, with the document frequencies of `corpus` instead of its own.

    Document frequencies are the numbers of reports that contain each word or n-gram, from which idf weights follow.
    Without a corpus the index is returned as it is. Raise InputError if one of the metrics, `metrics`, or `idf`, see
    `SearchOptions.idf`, needs a corpus that is None or lacks the frequencies, or if BERTScore is to be weighted by a
    corpus of another encoder.
    """
    check_counted(corpus, metrics, idf)
    if corpus is None:
        return index
    kind = "bertscore"
    encoders = [one.content["representations"].get(kind, {}).get("encoder", {}) for one in (index, corpus)]
    if counts(idf) and any(encoders[0].get(name) != encoders[1].get(name) for name in ("sha256", "layer", "compute")):
        raise InputError(
            "encoder",
            f"must be the one of the index whose frequencies count, {encoders[1].get('model')}",
            encoders[0].get("model"),
            "Pass that encoder, or an index that was built with this one.",
        )
    return index.counted_in(corpus)


def check_counted(corpus: Index | None, metrics: Iterable[Metric], idf: Any) -> None:
    """Raise InputError if a metric or `idf` needs the document frequencies of a corpus that is None or lacks them."""
    counting = [(f"metric {metric.name!r}", metric) for metric in metrics if metric.counts_corpus]
    if counts(idf):
        counting.append(("idf 'corpus'", get_metric("bertscore")))
    for what, metric in counting:
        where = f"for {what}, which counts the documents of a corpus"
        step = "Add `index=INDEX`, the corpus whose frequencies count."
        check_given("index", corpus, where, step, got="none").check_holds(metric)


def counts(idf: Any) -> bool:
    """Return whether `idf`, of `SearchOptions`, is "corpus": BERTScore's token weights come from a corpus."""
    return isinstance(idf, str | Path) and str(idf) == "corpus"


def check_alone(argument: str, metric: Metric, idf: Any, use: str) -> None:
    """Raise InputError if the score of a pair depends on the other test reports of a call.

    That is so for some metrics, and for all if `idf`, see `SearchOptions.idf`, is "tests". `argument` is what named the
    metric, and `use`, such as "mining", what the scores are for.
    """
    counting = [one.name for one in metric.metrics.values() if one.reads.counts_queries]
    if counting:
        of_corpus = f"{counting[0]}:corpus"
        step = f"Use {of_corpus}, which counts the reports of an index." if of_corpus in METRICS else "Choose another."
        rule = "must be such that the score of a pair depends on this pair alone"
        raise InputError(argument, rule, shown(counting[0]), step)
    if idf == "tests":
        rule = f"must be off, corpus or a table of weights for {use}"
        raise InputError("idf", rule, "'tests'", "Use one of these: with tests, the test reports weight one another.")


def counted_entry(metric: Metric, idf: Any, fingerprint: Any) -> dict[str, str]:
    """Return the signature entry for the corpus whose document frequencies a metric or `idf` reads; empty if none does.

    `fingerprint` is that of the corpus.
    """
    return {"frequencies": str(fingerprint)} if metric.counts_corpus or counts(idf) else {}


def section_entry(index: Index, queries: Reports) -> dict[str, str]:
    """Return the signature entry for the section of the reports; empty if it is known for neither index nor queries."""
    section = index.section[0] or queries.section
    return {} if section is None else {"section": section}


def _check_queries(queries: Reports, metric: Metric, index: Index, kind: str) -> None:
    """Raise InputError unless every query has the source of the representation `kind`, made as in the index."""
    needs = REPRESENTATIONS[kind].source
    if needs is None or not REPRESENTATIONS[kind].is_attached:
        return
    attachment = queries.attached.get(kind)
    if attachment is None:
        raise InputError(
            "queries", f"must have {needs.noun} each for metric {metric.name!r}", "none", f"Add {needs.option}."
        )
    lacking = [queries.ids[i] for i in np.flatnonzero(attachment.of_row < 0).tolist()]
    if lacking:
        some = shown(*lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        raise InputError(
            "queries",
            f"must have {needs.noun} each for metric {metric.name!r}",
            f"{len(lacking)} of {len(queries.ids)} without ({some})",
            "Add them to the file or leave these queries out.",
        )
    recorded = index.content["representations"][kind].get("encoder", {})
    made_by = attachment.made_by
    if {"sha256"} <= recorded.keys() & made_by.keys() and recorded["sha256"] != made_by["sha256"]:
        raise InputError(
            needs.plural,
            f"must come from the model of the index, sha256 {recorded['sha256'][:12]}",
            made_by["sha256"][:12],
            "Pass that model, or build another index.",
        )
    for name, value in attachment.settings.items():
        wanted = index.content["representations"][kind].get(name)
        if value != wanted:
            raise InputError(
                name, f"must be {wanted!r} as in the index", shown(value), "Pass the same value or build another index."
            )
