"""Building an index of a corpus, or a set of shards from a file that is read in pieces or from reports in memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_given, check_left_out, check_new_folder, given_of
from metric_oracle.base.declarations import READING, Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress, say
from metric_oracle.base.validation import public
from metric_oracle.corpora.kept_columns import check_kept
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.streams import STREAMED, can_stream, n_rows, stream_reports
from metric_oracle.corpora.texts import remarks
from metric_oracle.indexes.build import inputs_digest
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shard_build import SharedInputs, Slice, build_set
from metric_oracle.indexes.shards import ShardSet
from metric_oracle.metrics import get_metric, names_of
from metric_oracle.reading import AttachedReports, Given, attached
from metric_oracle.retrieval.corpus_index import STATES, described, states_of, with_sources
from metric_oracle.retrieval.plan import open_runner
from metric_oracle.sources.attaching import attach_sources, is_model, piece_of, read_sources
from metric_oracle.sources.token_states import OpenedEncoder, load_encoder


def may_stream(reports: Any, read: Read) -> bool:
    """Return whether reports are a file that can be read in pieces with the options `read`."""
    if not isinstance(reports, str | Path) or read.given.keys() - {*STREAMED}:
        return False
    return can_stream(Path(reports), read)


class SharedSources:
    """Sources that all shards share, read once; each worker opens the encoder itself.

    `files` are sources by the name of the argument, `models` further arguments of `attach_sources`, `encoder` those of
    `load_encoder`, empty for none.
    """

    def __init__(self, files: dict[str, Any], models: dict[str, Any], encoder: dict[str, Any]) -> None:
        self._files, self._models, self._encoder = files, models, encoder
        self._opened_encoder: OpenedEncoder | None = None

    @cached_property
    def read(self) -> dict[str, Any]:
        """Contents of the files of sources, by argument; the files are read once."""
        return read_sources(self._files)

    def opened_encoder(self) -> OpenedEncoder | None:
        """Return the encoder of token states, which is opened once, or None if none was given."""
        if self._encoder and self._opened_encoder is None:
            self._opened_encoder = load_encoder(**self._encoder)
        return self._opened_encoder

    def inputs(self, reports: Reports, is_first: bool) -> Reports:
        """Return the reports of a shard with their part of the sources; `is_first` if it is the first shard."""
        inputs = attach_sources(
            reports, is_piece=True, opened_encoder=self.opened_encoder(), **self._models, **self.read
        )
        return piece_of(inputs, is_first=is_first)

    def __getstate__(self) -> dict[str, Any]:
        silent = {name: value for name, value in self._models.items() if name not in ("tell", "progress")}
        encoder = {name: value for name, value in self._encoder.items() if name not in ("tell", "progress")}
        return {"_files": {}, "read": self.read, "_models": silent, "_encoder": encoder, "_opened_encoder": None}


def _inputs_of(reports: Reports, is_first: bool, shared: SharedSources) -> Reports:
    """Return `shared.inputs`, by a function that can be pickled."""
    return shared.inputs(reports, is_first)


def _shared_sources(
    attached_reports: AttachedReports, max_memory: float | None, progress: Progress | None
) -> SharedSources:
    """Return the sources that were given with reports; `max_memory` limits what encoding for BERTScore may use."""
    further, encoder = given_of({"progress": progress}), {}
    if attached_reports.of_encoder:
        of_models = given_of(attached_reports.models, ("device", "tell"))
        encoder = {**attached_reports.of_encoder, **given_of({"max_memory": max_memory}), **further, **of_models}
    return SharedSources(dict(attached_reports.sources), {**attached_reports.models, **further}, encoder)


def build_streamed(
    attached_reports: AttachedReports,
    out: str | Path,
    n: int,
    keep: Sequence[str],
    metrics: Sequence[str] | None,
    max_memory: float | None,
    progress: Progress | None,
    runner: Any,
) -> ShardSet:
    """Build a shard set, with n reports to a shard, from reports in a file that is read in pieces.

    Files of sources are read once; each shard gets its part. `runner` runs the work on the shards in other processes,
    None for this one. Words for missing reports and marks within texts are told.
    """
    path, read, models = Path(attached_reports.data), attached_reports.options, attached_reports.models
    sources = _shared_sources(attached_reports, max_memory, progress)
    opened_encoder = sources.opened_encoder()
    plan = {
        "reports": _identity_of(path),
        "rows": n,
        "reading": {**read.given, **({"keep": list(keep)} if keep else {})},
        "files": {name: _identity_of(value) for name, value in attached_reports.sources.items()},
        "models": {name: str(value) for name, value in models.items() if name not in ("tell", "device")},
        "encoding": None if opened_encoder is None else _settings(opened_encoder),
        "metrics": metrics,
    }
    words: Counter[str] = Counter()
    marks: Counter[str] = Counter()

    def slices() -> Iterator[Slice]:
        """Yield the reports of each shard, and count words for missing reports and marks in texts."""
        words.clear()  # the file is read again where other processes build shards, too
        marks.clear()
        for number, reports in enumerate(stream_reports(path, n, read, keep=keep)):
            words.update(reports.words)
            marks.update(reports.marks)
            yield Slice(
                reports.ids,
                reports.texts,
                partial(_inputs_of, reports, number == 0),
                reports.source,
                states_of(reports),
                reports.known_section,
            )

    make_all = None
    if runner is not None:
        from metric_oracle.indexes.remote_build import make_remote

        rows_in_file = n_rows(path)
        make_all = partial(make_remote, runner=runner, expected=None if rows_in_file is None else -(-rows_in_file // n))
    built = build_set(slices, out, plan, SharedInputs(sources, metrics), progress=progress, make_all=make_all)
    if words or marks:
        say(f"{path}: {remarks(words, marks)}", models.get("tell"))
    return built


def build_cut(
    inputs: Reports,
    out: str | Path,
    n: int,
    files: Mapping[str, Any],
    metrics: Sequence[str] | None,
    progress: Progress | None,
) -> ShardSet:
    """Build a shard set, with n reports to a shard, from `inputs`, reports in memory with their sources.

    `files` are the sources as they were given, by the name of the argument.
    """
    of_models = {name: _identity_of(value) for name, value in files.items() if is_model(name, value)}
    plan = {"inputs": inputs_digest(inputs), "rows": n, "models": of_models, "metrics": metrics}

    def make(first: int, sources: Any) -> Reports:
        """Return the reports of the shard that begins at position `first`, with their sources."""
        of_shard = inputs.take(np.arange(first, min(first + n, len(inputs.ids))))
        return piece_of(of_shard, is_first=first == 0)

    def slices() -> Iterator[Slice]:
        """Yield the reports of each shard."""
        for first in range(0, len(inputs.ids), n):
            states = states_of(inputs) if first == 0 else dict.fromkeys(STATES, 0)
            run = slice(first, first + n)
            yield Slice(
                inputs.ids[run], inputs.texts[run], partial(make, first), inputs.source, states, inputs.known_section
            )

    return build_set(slices, out, plan, SharedInputs(metrics=metrics), progress=progress)


def _identity_of(value: Any) -> Any:
    """Return what tells an argument of one build from that of another: path, size and modification time of a file.

    For an object in memory it is only its type.
    """
    if not isinstance(value, str | Path):
        return repr(type(value))
    path = Path(value)
    status = path.stat() if path.exists() else None
    return [str(path.resolve()), *([status.st_size, status.st_mtime_ns] if status else [])]


def _settings(opened_encoder: OpenedEncoder) -> list[Any]:
    """Return what tells an encoder from another: its signature without its name, type of its states, and baseline."""
    signature = {name: value for name, value in opened_encoder.encoder.signature.items() if name != "model"}
    return [signature, opened_encoder.storage.name, opened_encoder.baseline]


def _refuse_runner(attached_reports: AttachedReports, shard_rows: int | None) -> NoReturn:
    """Raise InputError for a runner with reports that cannot be read in pieces, or without `shard_rows`."""
    step = "Write the wanted reports to a CSV file."
    check_left_out(
        attached_reports.options.given, "with a runner, which reads a file in pieces", step, allowed=STREAMED
    )
    raise InputError(
        "reports",
        "must be a file of Parquet, CSV, TSV or JSON Lines that can be read in pieces, and given with "
        "`shard_rows`, for a runner",
        f"{attached_reports.described} {'without it' if shard_rows is None else 'with it'}",
        "Add `shard_rows=N`." if shard_rows is None else step,
    )


@public
def build_index(
    reports: Annotated[
        Given,
        Doc(
            "Reports of the corpus, or test reports to prepare, in any form that [`reports`][metric_oracle.reports] "
            "takes."
        ),
    ],
    out: Annotated[
        str | Path | None,
        Doc(
            "Folder to write. It must not exist yet, unless it is a set of shards that the same call began and now "
            "goes on with. In Python it may be left out: the index is then in memory."
        ),
        option_types.OUT,
    ] = None,
    *,
    metrics: Annotated[
        str | Sequence[str] | None,
        Doc(
            "Metrics that the index is built for, such as bleu, rouge-l or radgraph, see "
            "[`list_metrics`][metric_oracle.list_metrics]; several with commas. By default all whose inputs are given."
        ),
        option_types.METRIC,
    ] = None,
    keep: Annotated[
        str | Sequence[str],
        Doc(
            "Columns of the table to store with the reports, such as subject_id; several with commas. `exclude` of a "
            "search can name them. By default none is stored."
        ),
        Flag(panel=READING),
    ] = (),
    shard_rows: Annotated[
        option_types.Positive | None,
        Doc(
            "Build a set of shards with N reports each instead of one index, for corpora that do not fit into memory: "
            "Parquet, CSV and JSON Lines are read in pieces; other files, and a split, are read as a whole. By default "
            "one index is built."
        ),
    ] = None,
    max_memory: Annotated[
        option_types.Memory | None,
        Doc(
            "Memory in GB that encoding for BERTScore may use, in addition to the model and to mapped files. By "
            "default there is no limit."
        ),
        Flag(metavar="GB"),
    ] = None,
    runner: option_types.Runner | None = None,
    address: option_types.Address | None = None,
    num_gpus: option_types.Gpus | None = None,
    progress: Progress | None = None,
) -> Index:
    """Build the index of a corpus of reports, which searches read.

    An interrupted build resumes when the same call is made again. With `shard_rows` the corpus becomes a set of shards;
    several processes that make the same call share the work.

    Returns
    -------
    Index
        The opened index, a `ShardSet` with `shard_rows`. Every function that takes test reports, references or
        predictions takes it, or its folder, as well.

    Raises
    ------
    InputError
        If an argument is wrong, a file cannot be read or does not belong to the reports, or `out` exists.

    Notes
    -----
    An index in memory, without ``out``, gives the answers and has the fingerprint of one in a folder, which stands in
    the signature of results; its ``folder`` is ``Path("memory")``. Nothing is left on the disk.

    Predictions are read with [`read_predictions`][metric_oracle.read_predictions] first, which keeps empty ones. With a
    runner, ``progress`` gets the number of finished shards and of all, which is None while it is unknown.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["no acute process", "small effusion"], f"{folder}/INDEX", metrics="bleu")
    >>> index.n_reports
    2
    >>> in_memory = mo.build_index(["no acute process", "small effusion"], metrics="bleu")
    >>> in_memory.fingerprint == index.fingerprint
    True
    """
    from metric_oracle.indexes import build
    from metric_oracle.indexes.held import index_in_memory
    from metric_oracle.indexes.store import Strings

    attached_reports = attached(reports)
    names, columns = names_of(metrics), check_kept(keep)
    for name in names or ():
        get_metric(name)
    if max_memory is not None:
        step = "Add `mo.reports(..., encoder=NAME)` or a folder."
        check_given("encoder", attached_reports.of_encoder or None, "with `max_memory`", step)
    where = open_runner(runner, address, num_gpus)
    if shard_rows is not None:
        check_given("out", out, "with `shard_rows`", "Name a folder: a set of shards is on the disk.")
    elif out is not None:
        check_new_folder("out", Path(out))
    if shard_rows is not None and out is not None and may_stream(attached_reports.data, attached_reports.options):
        return build_streamed(attached_reports, out, shard_rows, columns, names, max_memory, progress, where)
    if where is not None:
        _refuse_runner(attached_reports, shard_rows)
    corpus = attached_reports.read(keep=columns)
    listener = attached_reports.models.get("tell")
    if listener is not None or corpus.words or corpus.marks or corpus.chosen:  # what is left out stands in the index
        say(f"reports: {corpus.source}", listener)
    inputs = with_sources(attached_reports, corpus, names, progress, max_memory)
    if shard_rows is not None and out is not None:
        return build_cut(inputs, out, shard_rows, attached_reports.sources, names, progress)
    inputs = replace(inputs, ids=Strings(inputs.ids), texts=Strings(inputs.texts))
    noted = described(corpus)
    del corpus  # lists of strings take three times the memory of Arrow's
    if out is None:
        return index_in_memory(inputs, metrics=names, **noted, progress=progress)
    return build.build_index(inputs, out, metrics=names, **noted, progress=progress)
