"""The corpus of a call: an index that is open or in a folder, or reports, of which an index in memory is built."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from metric_oracle.base.argument_checks import given_of
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress
from metric_oracle.corpora.kept import RESERVED
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
    given = attached(index)
    is_alone = not (given.options.given or given.sources or given.of_encoder)
    if is_alone and (isinstance(given.data, Index) or is_prepared(given.data)):
        return corpus_of(given.data, metrics)
    names = tuple(dict.fromkeys(name for metric in metrics for name in metric.metrics))
    listed = exclude.split(",") if isinstance(exclude, str) else exclude
    wanted = [name for name in map(str.strip, listed) if name and name not in RESERVED]
    known = given.column_names() if wanted else []  # another name is an error of the search
    columns = tuple(name for name in wanted if name in known)
    if (names, columns) not in given._indexes:
        built = given._indexes[names, columns] = _in_memory(given, names, columns, progress, usual)
        built.is_of_call = True
    return given._indexes[names, columns]


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
    given: AttachedReports, names: Sequence[str], columns: Sequence[str], progress: Progress | None, usual: bool
) -> Index:
    """Return an index in memory of reports, and tell what reading left out; the arguments are those of `corpus_of`."""
    from metric_oracle.indexes.held import index_in_memory

    corpus = given.read(keep=columns)
    given.tell_of("corpus", corpus)
    inputs = with_sources(given, corpus, names, progress)
    if usual:
        names = [name for name in names if all(can_make(inputs, kind) for kind in METRICS[name].representations)]
    return index_in_memory(inputs, metrics=names, **described(corpus), progress=progress)


def with_sources(
    given: AttachedReports,
    corpus: Reports,
    names: Sequence[str] | None,
    progress: Progress | None,
    max_memory: float | None = None,
) -> Reports:
    """Return the reports of a corpus, read of `given`, with the sources and the encoder that were given for them.

    Texts without a word are told if one of the metrics with these names, or of all for None, reads words.
    """
    opened_encoder = given.open_encoder(progress, **given_of({"max_memory": max_memory}))
    read = [METRICS["rouge-l"], METRICS["jaccard:1"]] if names is None else [get_metric(name) for name in names]
    say_wordless(read, {"reports": corpus.texts}, given.models.get("tell"))
    return attach_sources(corpus, opened_encoder=opened_encoder, **given.models, **given.sources)


def described(corpus: Reports) -> dict[str, Any]:
    """Return what the manifest of an index says of the reports, by the arguments of `indexes.build.build_index`."""
    return {"source": corpus.source, "states": states_of(corpus), "section": corpus.known_section}
