"""Search a corpus against itself, in blocks of anchors, each of which is stored when it is finished.

An anchor is a report of the corpus that is used as a test report; its candidates are the other reports.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.checksum import METADATA, SIGNATURE, TABLE, record_of, seal, write_parquet
from metric_oracle.base.declarations import Uses
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import checksum, identify, replacing
from metric_oracle.base.job import Job
from metric_oracle.base.progress import Progress, silent
from metric_oracle.base.reprs import OneLine
from metric_oracle.base.validation import public
from metric_oracle.cluster import Beat, Task, WorkerProgress, run_tasks
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import existing_file
from metric_oracle.corpora.vectors import read_ids
from metric_oracle.findings.cells import number
from metric_oracle.findings.notebook import InNotebook
from metric_oracle.findings.printed_tables import named
from metric_oracle.findings.results import AFTER, FIXED
from metric_oracle.findings.writing import check_out
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.indexes.prepared import prepared_reports
from metric_oracle.indexes.store import Strings, to_arrow
from metric_oracle.mining.mined_files import KIND, MinedFile
from metric_oracle.mining.scored import left_out, sampled, worst_positive
from metric_oracle.mining.selection import Selection, allowed, check_selection, choose_lines, pairs_of
from metric_oracle.retrieval.checks import check_alone
from metric_oracle.retrieval.document_pairs import Pairs, scorable_rows
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.retrieval.options import SearchOptions, with_arguments
from metric_oracle.retrieval.part_files import members_of
from metric_oracle.retrieval.plan import Plan, plan
from metric_oracle.retrieval.remote_search import opened_set
from metric_oracle.retrieval.result_table import n_scorable

BLOCK = 8192  # anchors of a block, which is a row group of the file
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
# Entries of a search's signature that are of its block alone.
_OF_BLOCK = ("references", "stages", "closest_call", "truncated_queries")
# Entries of the signature of a file that are of its part alone, and counts that each part has of all anchors.
_OF_PART = ("part", "counts", "skipped", "row_groups", TABLE, SIGNATURE)
_OF_WHOLE = ("not scored", "self-score below the best", "without a positive")
_COUNTED = "counted"  # entry of a block
# Options of a search that mining takes. `prevalence` is missing: the counts of a whole test set are for a part of one.
_USED = (
    *("k", "backend", "threads", "text", "max_memory", "idf", "rescale", "weights", "exclude", "min_score", "where"),
    *("part", "runner", "address", "num_gpus"),
)
MOST = 1 << 22  # lines of the lists that are in memory at a time, where lists are searched deeper
DEEPER = 4  # how many times as long a list is searched next
NO_PAIRS = np.empty(0, np.int64), np.empty(0, np.int64)


@dataclass(frozen=True, repr=False)
class Mined(OneLine, InNotebook):
    """Counts and quantiles of the pairs that `mine` wrote to a file.

    Attributes
    ----------
    path : Path
        The file.
    counts : dict of str to int
        ``anchors``, ``pairs``, anchors with ``fewer than k`` candidates, those ``without any`` among them, and reports
        of the index that the metric cannot score (``not scored``); with `self_score` also anchors that were left out
        (``self-score below the best``), and with a margin those ``without a positive``.
    quantiles : dict of float to float
        Quantiles of the scores of all pairs, by their probability: minimum, quartiles and maximum. The p-quantile is
        the lowest score that a share p of the pairs does not exceed. Empty if there are no pairs.
    skipped : dict of str to int
        Numbers of candidates that each rule left out, among all ``candidates`` of a sample of ``anchors``: a candidate
        is counted under the first rule that it breaks, in the order of the entries. The last are those ``after the k
        best`` (``not drawn`` at random), and those ``listed``. In a corpus of up to 1,000 reports the sample is all
        anchors.
    signature : dict
        What is needed to compute the same pairs again.
    """

    path: Path
    counts: dict[str, int]
    quantiles: dict[float, float]
    skipped: dict[str, int]
    signature: dict[str, Any]

    def summary(self) -> str:
        """Return one line with the numbers of pairs and anchors."""
        counts = self.counts
        return (
            f"{counts['pairs']:,} pairs of {counts['anchors']:,} anchors; {counts['fewer than k']:,} anchors have "
            f"fewer than {self.signature['k']}, {counts['without any']:,} have none"
        )

    @property
    def scores(self) -> dict[str, float]:
        """The quantiles of the scores by name, such as "score, quantile 0.5"."""
        return {f"score, quantile {share}": score for share, score in self.quantiles.items()}

    @property
    def lines(self) -> dict[str, float]:
        """Every count and quantile by name; the names of counts of the sample begin with ``sample:``."""
        return {**self.counts, **self.scores, **{f"sample: {name}": n for name, n in self.skipped.items()}}

    def shown(self) -> list[Any]:
        """Return what a terminal shows: counts and quantiles, and how many candidates each rule left out."""
        of_sample = dict(self.skipped)
        n, whole = of_sample.pop("anchors", 0), of_sample.pop("candidates", 0)
        counts = {name: (f"{count:,}",) for name, count in self.counts.items()}
        scores = {name: (number(score),) for name, score in self.scores.items()}
        shares = {name: (f"{count:,}", f"{count / whole:.2%}") for name, count in of_sample.items()}
        left = named("Candidates left out", ["candidates", "share"], shares)
        left.notes.append(f"{whole:,} candidates of {n:,} anchors, by the first rule that leaves them out.")
        return [named("Mined pairs", ["number"], {**counts, **scores}), left]


@public
def mine(
    index: AnyIndex,
    metric: option_types.OneMetric,
    out: Annotated[
        str | Path,
        Doc("Parquet file to write. An existing one is replaced only when the new one is complete."),
    ],
    *,
    k: option_types.K | None = None,
    anchors: Annotated[
        Sequence[str] | str | Path | None,
        Doc(
            "Ids of the reports to find others for: a table with an id column, or a text file with one id per line. By "
            "default all reports of the index that the metric can score."
        ),
    ] = None,
    self_score: Annotated[
        bool,
        Doc(
            "Find nothing for a report whose score with itself is worse than the best that any report has with itself, "
            "up to a relative difference of 1e-6, such as one without a graph. By default candidates are found for all."
        ),
    ] = False,
    text: option_types.WithText = False,
    selection: Annotated[
        Selection | None,
        Doc("Which candidates of a list are kept, see [`Selection`][metric_oracle.Selection]; by default the best."),
    ] = None,
    options: Annotated[
        SearchOptions | None,
        Doc(
            'All other options of the search, see [`SearchOptions`][metric_oracle.SearchOptions]. ``exclude="self"`` '
            "always applies. With `part`, [`merge_mined`][metric_oracle.merge_mined] joins the files."
        ),
        Uses(*_USED),
    ] = None,
    progress: Progress | None = None,
) -> Mined:
    """Find, for every report of an index, the best-scoring other reports of this index, as pairs to train on.

    A report is never its own candidate. An interrupted run resumes when the same call is made again.

    Returns
    -------
    Mined
        Counts and quantiles of the scores. The file has the columns ``anchor_id``, ``anchor_row``, ``candidate_id``,
        ``candidate_row``, ``rank``, ``score``, a column for each component of the metric and each metric of
        `options.where`, ``n_ties``, and for each column that the index keeps one with the prefix ``anchor_`` and one
        with the prefix ``candidate_``. Anchors are in the order of their rows; best score first, equal scores by
        ascending row.

    Raises
    ------
    InputError
        If an argument is wrong, an anchor is not in the index, or another search of `out` is unfinished.
    BackendError
        If the backend cannot be used here.
    ExactnessError
        If the result is not exact.

    Notes
    -----
    Every report is an anchor: the reference of the metric, as the test report is in a search. The reports that it is
    compared with are the candidates. The score of a pair must not depend on the other anchors.

    Anchors are searched in blocks, which are stored next to the file as they are finished. Memory depends on the size
    of the index and of a block; the quantiles of the scores take 8 bytes for each pair.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["no edema", "edema", "no edema now"], f"{folder}/INDEX", metrics="rouge-l")
    >>> mo.mine(index, "rouge-l", f"{folder}/pairs.parquet", k=1)
    <Mined: 3 pairs of 3 anchors; 0 anchors have fewer than 1, 0 have none>
    """
    settings = with_arguments(options, k=k, text=text)
    settings.check_used(_USED, "mining")
    path, selection = Path(out), selection or Selection()
    check_out(path, endings=(".parquet",))
    planned = _planned(index, metric, settings, progress)
    check_selection(selection, planned.options.k)
    # Anchors are searched in blocks.
    check_alone("metric", planned.metric.order, planned.options.idf, "mining")
    check_alone("where", planned.metric, planned.options.idf, "mining")
    ids = read_ids(existing_file(Path(anchors))) if isinstance(anchors, str | Path) else anchors
    chosen, positives = _anchors(planned, ids), NO_PAIRS
    if selection.positives is not None:
        positives = pairs_of(selection.positives, planned.index.fingerprint)
        step = "Give other anchors, or mine their positives."
        chosen = chosen.among(positives[0], "without a positive", "no anchor has a positive.", step)
    if self_score:
        message = "no anchor scores with itself as well as the best does."
        best = _best_with_themselves(planned)
        chosen = chosen.among(best, "self-score below the best", message, "Give other anchors.")
    search = _Search(planned.settled(len(chosen.rows)), selection, text, positives)
    part = _OwnBlocks.of_option(settings.part, _blocks(planned.index, chosen.rows))
    with Job.open(path.with_name(f".{path.name}.unfinished"), "search.json", "run of `mo.mine`") as job:
        _claim(job, part.blocks, checksum(_identity(search, chosen.rows, settings.part)), path)
        run = _searched_here if planned.runner is None else _searched_by_workers
        run(search, part.blocks, job, silent if progress is None else progress)
        described = {
            "kind": KIND,
            "anchors": len(chosen.rows),
            "anchors_sha256": checksum(chosen.rows.tolist()),
            "counts": chosen.counts,
            "skipped": _skipped(search, chosen.rows, part),
            **({"self_score": True} if self_score else {}),
            **part.entry,
        }
        mined = _join_blocks(path, [job.folder / name for name in part.blocks], described)
        shutil.rmtree(job.folder)
    return mined


def _planned(index: AnyIndex, metric: Any, settings: SearchOptions, progress: Progress | None) -> Plan:
    """Return the plan of the search: a report is not its own candidate, and `part` is one of anchors, not of shards."""
    exclude = settings.exclude.split(",") if isinstance(settings.exclude, str) else list(settings.exclude)
    if settings.runner is not None:
        step = "Leave `part` or `runner` out."
        check_left_out({"part": settings.part}, "with a runner", step, got="both")
    return plan(index, metric, replace(settings, exclude=("self", *filter(None, exclude)), part=None), progress)


class _Anchors(NamedTuple):
    """The reports to find others for."""

    rows: np.ndarray  # int64[n], their corpus rows, ascending
    counts: dict[str, int]  # reports that were left out, by the reason

    def among(self, rows: np.ndarray, reason: str, message: str, step: str) -> "_Anchors":
        """Return the anchors that are among `rows`, and count the others under `reason`.

        Raise InputError with this message and next step if no anchor is among them.
        """
        common = np.intersect1d(self.rows, rows)
        if not len(common):
            raise InputError(message, step)
        return _Anchors(common, {**self.counts, reason: len(self.rows) - len(common)})


class _OwnBlocks(NamedTuple):
    """What one run searches: all blocks of anchors, or those of one of several parts."""

    blocks: dict[str, tuple[int, np.ndarray]]  # name of the file -> number of the shard, rows of the anchors, ascending
    place: int | None  # number of the part, from 1; None if all blocks are searched
    of: int | None  # number of parts

    @classmethod
    def of_option(cls, part: str | None, blocks: Sequence[tuple[int, np.ndarray]]) -> "_OwnBlocks":
        """Return the part, such as "3/16", of all blocks."""
        place, n_parts, numbers = None, None, list(range(len(blocks)))
        if part is not None:
            place, n_parts, numbers = members_of(part, len(blocks), "blocks of anchors")
        return cls({f"{number:06d}.parquet": blocks[number] for number in numbers}, place, n_parts)

    @property
    def rows(self) -> list[np.ndarray]:
        """The rows of the anchors of each block."""
        return [of_block for _, of_block in self.blocks.values()]

    @property
    def entry(self) -> dict[str, Any]:
        """Entry of the signature; empty if all blocks are searched."""
        if self.place is None:
            return {}
        return {"part": {"place": self.place, "of": self.of, "anchors": sum(map(len, self.rows))}}


def _claim(job: Job, blocks: Iterable[str], made_of: str, out: Path) -> None:
    """Begin or resume a run that writes `blocks`; raise InputError if the job has blocks of another search.

    `made_of` is the checksum of what the blocks depend on; `out` is for the message.
    """
    if any(piece.made_of != made_of for piece in job.pieces.values()):
        raise InputError(
            "out",
            "must be a name for which no other search is unfinished",
            f"{out}, with blocks of another search in {job.folder}",
            "Remove that folder, or name another file.",
        )
    job.claim(*blocks, made_of=made_of)


def _skipped(search: "_Search", rows: np.ndarray, part: _OwnBlocks) -> dict[str, int]:
    """Return how many candidates each rule left out, for a sample of all anchors `rows`: those of it in this part."""
    planned, selection = search.planned, search.selection
    sample = sampled(rows, n_scorable(planned.index, planned.metric))
    sample = sample[(sample >= part.rows[0][0]) & (sample <= part.rows[-1][-1])]
    out = left_out(planned, selection, planned.options.k, sample, search.positives)
    return {"anchors": len(sample), **out}


def _blocks(index: Index, rows: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Cut anchors, ascending rows, into blocks of at most BLOCK within a shard: (number of the shard, rows)."""
    blocks = []
    for place, shard in enumerate(index.shards()):
        first, last = np.searchsorted(rows, [shard.first_row, shard.first_row + shard.n_reports])
        blocks += [(place, rows[begin : min(begin + BLOCK, last)]) for begin in range(first, last, BLOCK)]
    return blocks


def _anchors(planned: Plan, anchors: Sequence[str] | None) -> _Anchors:
    """Return the anchors with these ids, and how many reports the metric cannot score.

    None stands for all reports that it can score. Raise InputError if an id is not of these, or there is none.
    """
    import pyarrow.compute as pc

    shards = [(shard, shard.representation(planned.metric).row_id) for shard in planned.index.shards()]
    scored = np.unique(np.concatenate([row_id + shard.first_row for shard, row_id in shards]))
    counts = {"not scored": planned.index.n_reports - len(scored)}
    if anchors is None:
        return _Anchors(scored, counts)
    ids = Strings(list(anchors)).arrow
    rows = np.full(len(ids), -1, np.int64)
    for shard, _ in shards:
        place = np.asarray(pc.fill_null(pc.index_in(ids, value_set=shard.strings("study_id")), -1)).astype(np.int64)
        rows = np.where(place >= 0, place + shard.first_row, rows)
    wrong = np.flatnonzero(~np.isin(rows, scored))
    if len(wrong) or not len(rows):
        raise InputError(
            "anchors",
            "must be ids of reports of the index that the metric can score",
            shown(*[ids[int(place)].as_py() for place in wrong[:3]]) or "none",
            "Correct them.",
        )
    return _Anchors(np.unique(rows), counts)


def _best_with_themselves(planned: Plan) -> np.ndarray:
    """Return the corpus rows, ascending, whose score with themselves is the best one, up to a relative 1e-6.

    These are the anchors that `self_score` keeps.
    """
    rows, scores = [np.empty(0, np.int64)], [np.empty(0)]
    for shard in planned.index.shards():
        reports, corpus_rows = prepared_reports(shard), scorable_rows(shard, planned.metric)
        for begin in range(0, len(corpus_rows), BLOCK):
            of_block = corpus_rows[begin : begin + BLOCK]
            anchors = reports.take(of_block - shard.first_row)
            pairs = Pairs.of(shard, planned.metric, anchors, planned.options.settings)
            scores.append(pairs.score(pairs.which, pairs.document_of_row[of_block]))
            rows.append(of_block)
    every = np.concatenate(scores)
    best = planned.metric.best_of(every)
    return np.concatenate(rows)[np.abs(every - best) <= 1e-6 * abs(best)]


def _identity(search: "_Search", rows: np.ndarray, part: str | None) -> dict[str, Any]:
    """Return everything that the finished blocks of a run depend on, as JSON values."""
    planned, options = search.planned, search.planned.options
    settings = {
        name: identify(Path(value)) if isinstance(value, str | Path) and Path(value).is_file() else value
        for name, value in options.settings.items()
    }
    return {
        "index": planned.index.fingerprint,
        "metric": planned.metric.name,
        "options": planned.metric.recorded,
        "settings": settings,
        "restrictions": options.restrictions,
        **search.ranks,
        "backend": options.backend,
        "text": search.text,
        "anchors": checksum(rows.tolist()),
        "part": part,
        "block": BLOCK,
        "version": version("metric-oracle"),
    }


class _Search(NamedTuple):
    """The search of blocks of anchors, with everything that a worker of a cluster needs."""

    planned: Plan
    selection: Selection
    text: bool  # whether the table has the texts
    positives: tuple[np.ndarray, np.ndarray]  # rows of anchors, ascending, and of a positive of each: int64[n] each

    @property
    def ranks(self) -> dict[str, Any]:
        """Signature entry with the choice of candidates: their number, and the window of ranks, limits and sampling."""
        return {"k": self.planned.options.k, **self.selection.recorded}

    def block(self, rows: np.ndarray, anchors: Reports, progress: Progress) -> tuple[pa.Table, dict[str, Any]]:
        """Return the table of pairs of some anchors, which are rows of one shard, and the signature of their search.

        `rows` are their corpus rows, ascending int64[n], and `anchors` their reports. If there is an upper limit of
        scores, lists are searched deeper until each has k candidates below its limit.
        """
        planned, selection = self.planned, self.selection
        k, sign = planned.options.k, planned.metric.sign
        last = n_scorable(planned.index, planned.metric)
        last = last if selection.range_max is None else min(selection.range_max, last)
        depth = last if selection.sampling_strategy == "random" else min(selection.range_min + k, last)
        worst = self._worst_positives(rows, anchors, sign)
        left, tables = np.arange(len(rows)), list[pa.Table]()
        signature: dict[str, Any] = {}
        while len(left):
            options = replace(planned.options, k=depth, text=False)
            size, deeper = max(MOST // depth, 1), []
            for begin in range(0, len(left), size):
                some = left[begin : begin + size]
                results = replace(planned, options=options).search(anchors.take(some), progress)
                progress = silent  # what follows is of the same anchors
                signature = signature or results.signature
                number = _positions(results.table["query_id"], anchors.take(some).ids)
                rank, score = (results.table[name].to_numpy() for name in ("rank", "score"))
                allows = allowed(selection, worst[some][number], sign * score, sign).values()
                fits = np.logical_and.reduce([np.ones(len(score), bool), *allows])
                is_kept = choose_lines(selection, rows[some][number], results.table["row"].to_numpy(), rank, fits, k)
                n_kept = np.bincount(number[is_kept], minlength=len(some))
                n_listed = np.bincount(number, minlength=len(some))
                is_short = (n_kept < k) & (n_listed == depth) & (depth < last)
                tables.append(results.table.filter(pa.array(is_kept & ~is_short[number])))
                deeper.append(some[is_short])
            left, depth = np.concatenate(deeper), min(depth * DEEPER, last)
        table = pa.concat_tables(tables)
        anchor = rows[_positions(table["query_id"], anchors.ids)]
        order = np.lexsort((table["rank"].to_numpy(), anchor))
        table = table.take(to_arrow(order)) if len(tables) > 1 else table
        return _laid_out(table, anchor[order], planned.index, self.text), {**signature, **self.ranks}

    def _worst_positives(self, rows: np.ndarray, anchors: Reports, sign: float) -> np.ndarray:
        """Return the score of the worst positive of each anchor, multiplied by `sign`: float64[n], inf without margins.

        `sign` is -1.0 where lower scores are better, so that greater values are better.
        """
        if not self.selection.margins:
            return np.full(len(rows), np.inf)
        begin, end = np.searchsorted(self.positives[0], [rows[0], rows[-1] + 1])
        anchor, row = (column[begin:end] for column in self.positives)
        is_asked = np.isin(anchor, rows)
        anchor = np.searchsorted(rows, anchor[is_asked])
        planned = self.planned
        pairs = Pairs.of(planned.index, planned.metric, anchors, planned.options.settings)
        return worst_positive(pairs, anchor, row[is_asked], sign)


def _positions(ids: Any, all_ids: Sequence[str]) -> np.ndarray:
    """Return the index of each of `ids`, an Arrow array, in `all_ids`, which has all of them: int64[n]."""
    import pyarrow.compute as pc

    return np.asarray(pc.index_in(ids, value_set=Strings(all_ids).arrow)).astype(np.int64)


def _searched_here(search: _Search, blocks: Mapping[str, tuple[int, np.ndarray]], job: Job, progress: Progress) -> None:
    """Search the blocks that are not finished yet in this process, and write each.

    `blocks` has the shard's number and the anchors' rows, ascending, of each block, by the name of its file in `job`.
    """
    done, total = 0, sum(len(rows) for _, rows in blocks.values())
    reports: tuple[int, Index, Reports] | None = None
    for name, (place, rows) in blocks.items():
        if not job.holds(name):
            if reports is None or reports[0] != place:
                (shard,) = search.planned.index.shards([place])
                reports = place, shard, prepared_reports(shard)
            anchors = reports[2].take(rows - reports[1].first_row)

            def tell(_: str, n: int | None, __: int | None, before: int = done) -> None:
                progress("", before + (n or 0), total)

            _write_block(job, name, len(rows), *search.block(rows, anchors, tell))
        done += len(rows)
        progress("", done, total)


def _searched_by_workers(
    search: _Search, blocks: Mapping[str, tuple[int, np.ndarray]], job: Job, progress: Progress
) -> None:
    """Have the workers of a cluster search the blocks that are not finished yet; write each as it arrives.

    The arguments are those of `_searched_here`.
    """
    planned, total = search.planned, sum(len(rows) for _, rows in blocks.values())
    missing = [name for name in blocks if not job.holds(name)]
    n_before = total - sum(len(blocks[name][1]) for name in missing)
    n_done = n_before
    is_batched = load_kernel(planned.metric, planned.options.backend).capabilities.batched
    threads = None if is_batched else planned.options.threads or 1
    options = replace(planned.options, threads=threads, runner=None, address=None, num_gpus=None)
    shared = planned.metric, options, search.selection, search.text, search.positives

    def tasks() -> Iterator[Task]:
        """Yield one task for each block that is not finished."""
        for name in missing:
            place, rows = blocks[name]
            yield Task(name, (str(Path(planned.index.folder).resolve()), planned.index.fingerprint, place, rows))

    def take(task: Task, result: tuple[pa.Table, dict[str, Any]]) -> None:
        """Write a finished block."""
        nonlocal n_done
        n = len(blocks[task.name][1])
        _write_block(job, task.name, n, *result)
        n_done += n

    def look(finished: int, beats: dict[str, Beat]) -> None:
        """Report the progress of the workers."""
        progress("", min(n_done + sum(beat.done for beat in beats.values()), total), total)

    run_tasks(planned.runner, "metric_oracle.mining.mine:search_block", shared, tasks(), take=take, look=look)
    progress("", total, total)


def search_block(
    shared: tuple[Any, ...], reporter: WorkerProgress, folder: str, fingerprint: str, place: int, rows: np.ndarray
) -> tuple[pa.Table, dict[str, Any]]:
    """Search a block of anchors in a worker; return its table and the signature of the search.

    `shared` has the metric, the options of the search and the other fields of `_Search`. `folder` and `fingerprint` are
    those of the index, `place` is the number of the shard, and `rows` are the anchors' corpus rows.
    """
    metric, options, *rest = shared
    index = opened_set(folder, fingerprint)

    def tell(step: str, done: int | None, total: int | None) -> None:
        """Report the number of anchors of the block that are searched so far."""
        reporter.done = done or 0

    first_row, reports = _reports(folder, fingerprint, place)
    return _Search(Plan(index, metric, options), *rest).block(rows, reports.take(rows - first_row), tell)


@lru_cache(maxsize=1)
def _reports(folder: str, fingerprint: str, place: int) -> tuple[int, Reports]:
    """Return the first corpus row and the reports of shard number `place` of the index in `folder`.

    The result is cached, so that a worker reads the shard once for all blocks of it.
    """
    (shard,) = opened_set(folder, fingerprint).shards([place])
    return shard.first_row, prepared_reports(shard)


def _laid_out(table: pa.Table, anchor: np.ndarray, index: Index, text: bool) -> pa.Table:
    """Return the table of a block, with ids, kept columns and, if `text` is true, texts.

    `table` has lines of a search, `anchor`, int64[n], the corpus row of each line's query.
    """
    candidate = table["row"].to_numpy()
    columns: dict[str, Any] = {
        "anchor_id": table["query_id"],
        "anchor_row": anchor,
        "candidate_id": table["candidate_id"],
        "candidate_row": candidate,
        "rank": table["rank"],
        "score": table["score"],
        **{name: table[name] for name in table.column_names if name not in (*FIXED, *AFTER)},
        "n_ties": table["n_ties"],
    }
    for name in index.columns:
        for side, of_side in (("anchor", anchor), ("candidate", candidate)):
            if f"{side}_{name}" not in columns:
                columns[f"{side}_{name}"] = index.take(name, of_side)
    if text:
        columns |= {"anchor_text": index.take("text", anchor), "candidate_text": index.take("text", candidate)}
    return pa.table(columns).combine_chunks()


def _write_block(job: Job, name: str, n: int, table: pa.Table, signature: dict[str, Any]) -> None:
    """Write the pairs of a block of n anchors as the piece `name` of the job.

    Entries of `signature` that are of this block alone are left out, and its counts are added.
    """
    shared = {name: value for name, value in signature.items() if name not in _OF_BLOCK}
    _, sizes = np.unique(table["anchor_row"].to_numpy(), return_counts=True)
    n_full, n_any = int((sizes == signature["k"]).sum()), len(sizes)
    shared[_COUNTED] = {"pairs": table.num_rows, "fewer than k": n - n_full, "without any": n - n_any}
    write_parquet(job.folder / name, table, shared)
    job.record(name)


def _join_blocks(path: Path, files: Sequence[Path], described: dict[str, Any]) -> Mined:
    """Join the finished blocks of a run, `files`, into one file; return its counts and quantiles.

    `described` has the entries of the signature that are of the whole run.
    """
    from pyarrow import parquet

    schemas = [parquet.read_schema(file) for file in files]
    of_files = [record_of(schema) for schema in schemas]
    counts = {
        "anchors": described["part"]["anchors"] if "part" in described else described["anchors"],
        "pairs": sum(stored[_COUNTED]["pairs"] for stored in of_files),
        "fewer than k": sum(stored[_COUNTED]["fewer than k"] for stored in of_files),
        "without any": sum(stored[_COUNTED]["without any"] for stored in of_files),
        **described["counts"],
    }
    signature = {name: value for name, value in of_files[0].items() if name not in (TABLE, SIGNATURE, _COUNTED)}
    signature |= {**described, "counts": counts}
    signature["row_groups"] = [stored[TABLE] for stored in of_files if stored[_COUNTED]["pairs"]]
    tables = (parquet.ParquetFile(str(file), page_checksum_verification=True).read() for file in files)
    return _write_file(path, signature, schemas[0], tables)


def _write_file(path: Path, signature: dict[str, Any], schema: pa.Schema, tables: Iterable[pa.Table]) -> Mined:
    """Write a file with one row group for each table that has pairs; return its counts and quantiles.

    The counts are those in `signature`, whose `row_groups` has the checksums of these tables.
    """
    from pyarrow import parquet

    scores = [np.empty(0)]
    with replacing(path) as temporary, temporary.open("wb") as file:
        described = schema.with_metadata({METADATA: json.dumps(seal(signature, checksum(signature["row_groups"])))})
        with parquet.ParquetWriter(file, described, write_page_checksum=True) as writer:
            for table in tables:
                scores.append(table["score"].to_numpy())
                if table.num_rows:
                    writer.write_table(table.cast(described), row_group_size=table.num_rows)
    every = np.concatenate(scores)
    values = np.quantile(every, QUANTILES, method="inverted_cdf").tolist() if len(every) else []
    quantiles = dict(zip(QUANTILES, values, strict=False))
    return Mined(path, signature["counts"], quantiles, signature["skipped"], signature)


@public
def merge_mined(
    parts: option_types.Parts,
    out: Annotated[str | Path, Doc("Parquet file to write: the one that `mine` writes without parts.")],
) -> Mined:
    """Join the files of all parts of one search by [`mine`][metric_oracle.mine], in any order.

    Returns
    -------
    Mined
        Counts and quantiles of the scores of all parts.

    Raises
    ------
    InputError
        If a part is missing, is given twice, belongs to another search, or is damaged.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> index = mo.build_index("train.csv", "SET", metrics="bleu", shard_rows=100)
    >>> for part in ("1/2", "2/2"):
    ...     found = mo.mine(index, "bleu", f"mined-{part[0]}.parquet", options=mo.SearchOptions(part=part))
    >>> mo.merge_mined(["mined-1.parquet", "mined-2.parquet"], "mined.parquet").counts["anchors"]
    398
    """
    if not parts:
        raise InputError("parts", "must be at least one file", "none", "Name the files of all parts.")
    path, files = Path(out), [MinedFile(Path(part), "parts") for part in parts]
    check_out(path, parts, endings=(".parquet",))
    signatures = [file.signature for file in files]
    parts_given, signature = [one.get("part") for one in signatures], signatures[0]
    shared = [{name: value for name, value in one.items() if name not in _OF_PART} for one in signatures]
    if any(one != shared[0] for one in shared) or None in parts_given or len({one["of"] for one in parts_given}) > 1:
        names = sorted({name for one in shared for name in one if one[name] != shared[0].get(name)}) or ["part"]
        raise InputError(
            "parts",
            "must be of one search by `mo.mine`",
            f"files that differ in {', '.join(names)}",
            "Leave the others out, or mine them again.",
        )
    order = sorted(range(len(files)), key=lambda number: parts_given[number]["place"])
    places, n = [parts_given[number]["place"] for number in order], parts_given[0]["of"]
    if places != list(range(1, n + 1)):
        raise InputError(
            "parts",
            f"must be all of 1/{n} to {n}/{n}, each once",
            ", ".join(f"{place}/{n}" for place in places[:9]),
            "Mine the others, too.",
        )
    joined = {**signature}
    for name in ("counts", "skipped"):
        joined[name] = {}
        for one in signatures:
            for key, value in one[name].items():
                joined[name][key] = value if key in _OF_WHOLE else joined[name].get(key, 0) + value
    joined = {name: value for name, value in joined.items() if name not in ("part", TABLE, SIGNATURE)}
    joined["row_groups"] = [digest for number in order for digest in signatures[number]["row_groups"]]
    tables = (
        files[number].block(block, files[number].columns) for number in order for block in range(len(files[number]))
    )
    return _write_file(path, joined, files[order[0]].schema, tables)
