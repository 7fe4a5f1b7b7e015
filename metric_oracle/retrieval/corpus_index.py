"""The corpus of a call: an index that is open or in a folder, or reports, of which an index in memory is built."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from metric_oracle.base.argument_checks import given_of
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress
from metric_oracle.corpora.kept_columns import RESERVED
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.indexes.shards import is_prepared, open_index
from metric_oracle.metrics import METRICS, get_metric
from metric_oracle.reading import AttachedReports, attached, say_wordless
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import check_counted, counts
from metric_oracle.sources.attaching import attach_sources, can_make

STATES = ("missing", "empty", "tokenless")


def states_of(reports: Reports) -> dict[str, int]:
    """Return how many reports are missing, empty and without a token, by the names `STATES`."""
    return {name: reports.counts.get(name, 0) for name in STATES}


def corpus_of(
    index: AnyIndex,
    metrics: Iterable[Metric],
    progress: Progress | None = None,
    *,
    exclude: str | Sequence[str] = (),
    usual: bool = False,
) -> Index:
    """Return the index that was given for a corpus: an opened one, one in a folder, or one in memory, of reports.

    A path to a file is one of reports, any other the folder of an index; a folder of reports is given by `reports`. An
    index in memory has what `metrics` read, if `usual` of those metrics for which the reports have everything, and the
    columns that `exclude` names; the object that `reports` returns keeps it for further calls.

    Raise IndexFormatError if a folder is no index, and InputError if reports cannot be read or lack what a metric
    reads.
    """
    if isinstance(index, Index):
        return index
    if index is None:
        raise InputError("index", "must be an index or reports", None, "Name the folder of one, or pass texts.")
    if isinstance(index, str | Path) and not Path(index).is_file():
        return open_index(index)
    attached_reports = attached(index)
    is_alone = not (attached_reports.options.given or attached_reports.sources or attached_reports.of_encoder)
    if is_alone and (isinstance(attached_reports.data, Index) or is_prepared(attached_reports.data)):
        return corpus_of(attached_reports.data, metrics)
    names = tuple(dict.fromkeys(name for metric in metrics for name in metric.metrics))
    listed = exclude.split(",") if isinstance(exclude, str) else exclude
    wanted = [name for name in map(str.strip, listed) if name and name not in RESERVED]
    stored = attached_reports.column_names() if wanted else []  # another name is an error of the search
    columns = tuple(name for name in wanted if name in stored)
    if (names, columns) not in attached_reports._indexes:
        built = attached_reports._indexes[names, columns] = _in_memory(
            attached_reports, names, columns, progress, usual
        )
        built.is_of_call = True
    return attached_reports._indexes[names, columns]


def counted_of(
    index: AnyIndex | None, metrics: Iterable[Metric], idf: Any, progress: Progress | None = None
) -> Index | None:
    """Return the corpus whose document frequencies count under `metrics` or `idf`, see `check_counted`; None for none.

    Raise InputError if one of them needs a corpus that is None or lacks the frequencies; see `corpus_of`, too.
    """
    if index is None:
        check_counted(None, metrics, idf)
        return None
    all_metrics = [*metrics]
    counting = [metric for metric in all_metrics if metric.counts_corpus]
    corpus = corpus_of(index, [*counting, *([get_metric("bertscore")] if counts(idf) else [])], progress)
    check_counted(corpus, all_metrics, idf)
    return corpus


def _in_memory(
    attached_reports: AttachedReports,
    names: Sequence[str],
    columns: Sequence[str],
    progress: Progress | None,
    usual: bool,
) -> Index:
    """Return an index in memory of reports, and tell what reading left out; the arguments are those of `corpus_of`."""
    from metric_oracle.indexes.held import index_in_memory

    corpus = attached_reports.read(keep=columns)
    attached_reports.tell_of("corpus", corpus)
    inputs = with_sources(attached_reports, corpus, names, progress)
    if usual:
        names = [name for name in names if all(can_make(inputs, kind) for kind in METRICS[name].representations)]
    return index_in_memory(inputs, metrics=names, **described(corpus), progress=progress)


def with_sources(
    attached_reports: AttachedReports,
    corpus: Reports,
    names: Sequence[str] | None,
    progress: Progress | None,
    max_memory: float | None = None,
) -> Reports:
    """Return the reports of a corpus, read of `attached_reports`, with the sources and the encoder given for them.

    Texts without a word are told if one of the metrics with these names, or of all for None, reads words.
    """
    opened_encoder = attached_reports.open_encoder(progress, **given_of({"max_memory": max_memory}))
    read = [METRICS["rouge-l"], METRICS["jaccard:1"]] if names is None else [get_metric(name) for name in names]
    say_wordless(read, {"reports": corpus.texts}, attached_reports.models.get("tell"))
    return attach_sources(corpus, opened_encoder=opened_encoder, **attached_reports.models, **attached_reports.sources)


def described(corpus: Reports) -> dict[str, Any]:
    """Return what the manifest of an index says of the reports, by the arguments of `indexes.build.build_index`."""
    return {"source": corpus.source, "states": states_of(corpus), "section": corpus.known_section}
