"""Search of a corpus against itself, in blocks of anchors that are stored as they are finished."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.api.searching import chosen
from metric_oracle.corpora.shown import OneLine
from metric_oracle.corpora.tables import existing_file, shown_names
from metric_oracle.corpora.vectors import read_ids
from metric_oracle.errors import InputError, called
from metric_oracle.files import checksum, exclusive, identify, replacing, write_json
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.prepared import prepared_inputs
from metric_oracle.indexes.store import Strings
from metric_oracle.metrics import REPRESENTATIONS
from metric_oracle.progress import Progress, silent
from metric_oracle.retrieval.answers import n_scorable
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import SearchPlan, plan
from metric_oracle.retrieval.results import SIGNATURE, Results, check_out
from metric_oracle.retrieval.sealed import SIGNATURE as SEALED
from metric_oracle.retrieval.sealed import TABLE, hash_table, seal

BLOCK = 8192  # anchors of a block, which is a row group of the file
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
# Entries of a search's signature that are of its block alone.
_OF_BLOCK = ("references", "stages", "closest_call", "truncated_queries")
_UNUSED = ("part", "runner", "address", "num_gpus", "prevalence")
_USED = tuple(field.name for field in fields(SearchOptions) if field.name not in _UNUSED)


@dataclass(frozen=True, repr=False)
class Mined(OneLine):
    """What `mine` wrote.

    Attributes
    ----------
    path : Path
        The file.
    counts : dict of str to int
        ``anchors``, ``pairs``, anchors with ``fewer than k`` candidates, those ``without any`` among them, and reports
        of the index that the metric cannot score (``not scored``); with `self_score` also anchors that were left out
        (``not sound``).
    quantiles : dict of float to float
        Quantiles of the scores of all pairs, by their share: minimum, quartiles and maximum. The p-quantile is the
        lowest score that a share p of the pairs does not exceed. Empty where there are no pairs.
    signature : dict
        What is needed to compute the same pairs again.
    """

    path: Path
    counts: dict[str, int]
    quantiles: dict[float, float]
    signature: dict[str, Any]

    def summary(self) -> str:
        """Return one line: pairs and anchors."""
        counts = self.counts
        return (
            f"{counts['pairs']:,} pairs of {counts['anchors']:,} anchors; {counts['fewer than k']:,} anchors have "
            f"fewer than {self.signature['k']}, {counts['without any']:,} have none"
        )

    @property
    def lines(self) -> dict[str, float]:
        """Every count and quantile by its name."""
        return {**self.counts, **{f"score, quantile {share}": score for share, score in self.quantiles.items()}}


@called("mine")
def mine(
    index: str | Path | Index,
    metric: str,
    out: str | Path,
    *,
    k: int | None = None,
    anchors: Sequence[str] | str | Path | None = None,
    range_min: int = 0,
    self_score: bool = False,
    text: bool = False,
    options: SearchOptions | None = None,
    progress: Progress | None = None,
) -> Mined:
    """Find, for every report of an index, the k other reports of the index that score best under a metric.

    Every report is an anchor: the reference of the metric, as the test report is in a search. The reports that it is
    compared with are the candidates. A report is never its own candidate.

    Anchors are searched in blocks, which are stored next to the file as they are finished. The same call resumes a run
    that was interrupted. Memory depends on the size of the index and of a block; the quantiles of the scores take 8
    bytes for each pair.

    Parameters
    ----------
    index : path or Index
        Index or shard set.
    metric : str
        Name of a metric, such as ``"radgraph"``; a sum, such as ``"radgraph+chexbert:agreement"``; or ``"composite"``,
        with its weights in ``options.weights``. Its score of a pair must not depend on the other anchors.
    out : path
        Parquet file to write. An existing one is replaced only when the new one is complete.
    k : int, optional
        Candidates of each anchor; replaces that of `options`.
    anchors : sequence of str or path, optional
        Ids of the anchors, or a file that has them: a table with an id column, or a text file with an id a line. By
        default all reports that the metric can score.
    range_min : int, default 0
        Number of the best candidates of each anchor to leave out; the k that follow are listed, with their ranks.
    self_score : bool, default False
        Whether anchors are left out whose score with themselves is not the best that any report of the index has with
        itself, up to a relative difference of 1e-6. Under RadGraph F1 these are reports without entities or without
        relations.
    text : bool, default False
        Whether the file has the texts of anchors and candidates.
    options : SearchOptions, optional
        Other options of the search: `exclude`, `min_score`, `where` and so on, see
        [`SearchOptions`][metric_oracle.SearchOptions]. ``exclude="self"`` always applies.
    progress : function, optional
        Called with the number of finished anchors and of all.

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

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["no edema", "edema", "no edema now"], f"{folder}/INDEX", metrics="rouge-l")
    >>> mo.mine(index, "rouge-l", f"{folder}/pairs.parquet", k=1)
    <Mined: 3 pairs of 3 anchors; 0 anchors have fewer than 1, 0 have none>
    """
    given = chosen(options, k=k, text=text)
    given.check_used(_USED, "mining")
    path = Path(out)
    check_out(path, endings=(".parquet",))
    exclude = given.exclude.split(",") if isinstance(given.exclude, str) else list(given.exclude)
    if range_min < 0:
        raise InputError(
            argument="range_min",
            rule="must be an int of at least 0",
            value=repr(range_min),
            step="Choose another number.",
        )
    planned = plan(index, metric, replace(given, exclude=("self", *filter(None, exclude))))
    ranks = {"k": planned.options.k, "range_min": int(range_min)}
    last = min(sum(ranks.values()), n_scorable(planned.index, planned.metric))
    planned = replace(planned, options=replace(planned.options, k=last))
    _check_metric(planned)
    ids = read_ids(existing_file(Path(anchors), "anchors")) if isinstance(anchors, str | Path) else anchors
    rows, n_left_out = _rows(planned, ids)
    counts = {"not scored": n_left_out}
    if self_score:
        n_anchors, rows = len(rows), np.intersect1d(rows, _sound(planned))
        counts["not sound"] = n_anchors - len(rows)
        if not len(rows):
            raise InputError("no anchor scores with itself as well as the best does.", "Give other anchors.")
    work = path.with_name(f".{path.name}.unfinished")
    work.mkdir(exist_ok=True)
    with exclusive(work, "lock", "run of mine"):
        _check_same(work, path, _identity(planned, rows, ranks, text))
        parts = list(_searched(planned, rows, ranks, work, text, silent if progress is None else progress))
        found = _joined(path, parts, rows, counts, ranks["k"])
        shutil.rmtree(work)
    return found


def _check_metric(planned: SearchPlan) -> None:
    """Raise if the score of a pair depends on the other anchors, which are searched in blocks."""
    record = planned.metric
    read = [term.metric for term in record.terms.values()] or [record]
    counting = [metric.name for metric in read if REPRESENTATIONS[metric.representation].counts_queries]
    if counting:
        raise InputError(
            argument="metric",
            rule="must be such that the score of a pair depends on this pair alone, as must the metrics of where",
            value=repr(counting[0]),
            step="Choose another metric.",
        )
    if planned.options.idf == "tests":
        raise InputError(
            argument="idf",
            rule="must be off, corpus or a table of weights for mining",
            value="'tests'",
            step="The anchors are the corpus.",
        )


def _rows(planned: SearchPlan, anchors: Sequence[str] | None) -> tuple[np.ndarray, int]:
    """Return the rows of the anchors, ascending, and how many reports the metric cannot score."""
    import pyarrow.compute as pc

    shards = [(shard, representation_of(shard, planned.metric).row_id) for shard in planned.index.shards()]
    scored = np.unique(np.concatenate([row_id + shard.first_row for shard, row_id in shards]))
    n_left_out = planned.index.n_reports - len(scored)
    if anchors is None:
        return scored, n_left_out
    ids = Strings(list(anchors)).arrow
    rows = np.full(len(ids), -1, np.int64)
    for shard, _ in shards:
        place = np.asarray(pc.fill_null(pc.index_in(ids, value_set=shard.strings("study_id")), -1)).astype(np.int64)
        rows = np.where(place >= 0, place + shard.first_row, rows)
    wrong = np.flatnonzero(~np.isin(rows, scored))
    if len(wrong) or not len(rows):
        raise InputError(
            argument="anchors",
            rule="must be ids of reports of the index that the metric can score",
            value=shown_names([ids[int(place)].as_py() for place in wrong[:3]]) or "none",
            step="Correct them.",
        )
    return np.unique(rows), n_left_out


def _sound(planned: SearchPlan) -> np.ndarray:
    """Return the rows whose score with themselves is the best of all, ascending."""
    rows, scores = [np.empty(0, np.int64)], [np.empty(0)]
    for shard in planned.index.shards():
        representation, inputs = representation_of(shard, planned.metric), prepared_inputs(shard)
        kernel = load_kernel(planned.metric, "cpu")
        own = np.sort(representation.row_id)
        for begin in range(0, len(own), BLOCK):
            of_block = own[begin : begin + BLOCK]
            encoded = representation.encode(inputs.take(of_block), **planned.options.settings)
            documents = representation.document_of_row[of_block].astype(np.int64)
            corpus = representation.corpus(planned.metric, encoded)
            scores.append(kernel.score_pairs(corpus, encoded.batch, encoded.which, documents)[0])
            rows.append(of_block + shard.first_row)
    every = np.concatenate(scores)
    best = every.max() if planned.metric.higher_is_better else every.min()
    return np.concatenate(rows)[np.abs(every - best) <= 1e-6 * abs(best)]


def _identity(planned: SearchPlan, rows: np.ndarray, ranks: dict[str, int], text: bool) -> dict[str, Any]:
    """Return what the finished blocks of a run depend on, as JSON holds it."""
    options = planned.options
    settings = {
        name: identify(Path(value)) if isinstance(value, str | Path) and Path(value).is_file() else value
        for name, value in options.settings.items()
    }
    return json.loads(
        json.dumps(
            {
                "index": planned.index.fingerprint,
                "metric": planned.metric.name,
                "options": planned.metric.recorded,
                "settings": settings,
                "restrictions": options.restrictions,
                **ranks,
                "backend": options.backend,
                "text": text,
                "anchors": checksum(rows.tolist()),
                "block": BLOCK,
                "version": version("metric-oracle"),
            }
        )
    )


def _check_same(work: Path, path: Path, identity: dict[str, Any]) -> None:
    """Raise if a folder contains blocks of another search; store in it what this search is."""
    description = work / "search.json"
    if not description.exists():
        write_json(description, identity)
    elif json.loads(description.read_text(encoding="utf-8")) != identity:
        raise InputError(
            argument="out",
            rule="must be a name for which no other search is unfinished",
            value=f"{path}, with blocks of another search in {work}",
            step="Remove that folder, or name another file.",
        )


def _searched(
    planned: SearchPlan, rows: np.ndarray, ranks: dict[str, int], work: Path, text: bool, progress: Progress
) -> Iterator[Path]:
    """Yield the file of each block, without the first ranks; search those that do not exist yet."""
    import pyarrow.compute as pc

    done = number = 0
    for shard in planned.index.shards():
        first, last = np.searchsorted(rows, [shard.first_row, shard.first_row + shard.n_reports])
        inputs = None
        for begin in range(first, last, BLOCK):
            of_block = rows[begin : min(begin + BLOCK, last)]
            part = work / f"{number:06d}.parquet"
            if not part.exists():
                inputs = inputs or prepared_inputs(shard)
                queries = inputs.take(of_block - shard.first_row)
                before = done
                found = planned.run(queries, lambda _, n, __, b=before: progress("", b + (n or 0), len(rows)))  # type: ignore[misc]
                laid_out = _laid_out(found, queries.ids, of_block, planned.index, text)
                is_listed = pc.greater(laid_out["rank"], ranks["range_min"])
                _write(part, laid_out.filter(is_listed).combine_chunks(), {**found.signature, **ranks})
            yield part
            done, number = done + len(of_block), number + 1
            progress("", done, len(rows))


def _laid_out(found: Results, ids: Sequence[str], rows: np.ndarray, index: Index, text: bool) -> pa.Table:
    """Return the table of a block."""
    import pyarrow.compute as pc

    table = found.table
    anchor = rows[np.asarray(pc.index_in(table["query_id"], value_set=Strings(ids).arrow)).astype(np.int64)]
    candidate = table["row"].to_numpy()
    columns: dict[str, Any] = {
        "anchor_id": table["query_id"],
        "anchor_row": anchor,
        "candidate_id": table["candidate_id"],
        "candidate_row": candidate,
        "rank": table["rank"],
        "score": table["score"],
        **{name: table[name] for name in found.components},
        "n_ties": table["n_ties"],
    }
    for name in index.columns:
        for side, of_side in (("anchor", anchor), ("candidate", candidate)):
            if f"{side}_{name}" not in columns:
                columns[f"{side}_{name}"] = index.take(name, of_side)
    if text:
        columns |= {"anchor_text": index.take("text", anchor), "candidate_text": table["text"]}
    return pa.table(columns).combine_chunks()


def _write(part: Path, table: pa.Table, signature: dict[str, Any]) -> None:
    """Write a block, so that it exists only when it is complete."""
    from pyarrow import parquet

    own = {name: value for name, value in signature.items() if name not in _OF_BLOCK}
    with replacing(part) as (temporary,), temporary.open("wb") as file:
        described = table.replace_schema_metadata({SIGNATURE: json.dumps(seal(own, hash_table(table)))})
        parquet.write_table(described, file, row_group_size=max(table.num_rows, 1), write_page_checksum=True)


def _joined(path: Path, parts: Sequence[Path], rows: np.ndarray, left_out: dict[str, int], k: int) -> Mined:
    """Write all blocks to one file, each as a row group, and count."""
    from pyarrow import parquet

    schemas = [parquet.read_schema(part) for part in parts if parquet.read_metadata(part).num_rows]
    records = [json.loads(schema.metadata[SIGNATURE]) for schema in schemas]
    schema = parquet.read_schema(parts[0])
    of_search = json.loads(schema.metadata[SIGNATURE])
    signature = {name: value for name, value in of_search.items() if name not in (TABLE, SEALED)}
    signature |= {"kind": "mined", "anchors": len(rows), "anchors_sha256": checksum(rows.tolist())}
    if "not sound" in left_out:
        signature["self_score"] = True
    signature["row_groups"] = [record[TABLE] for record in records]
    sealed = json.dumps(seal(signature, checksum(signature["row_groups"])))
    scores, n_full, n_any = [np.empty(0)], 0, 0
    with replacing(path) as (temporary,), temporary.open("wb") as file:
        described = schema.with_metadata({SIGNATURE: sealed})
        with parquet.ParquetWriter(file, described, write_page_checksum=True) as writer:
            for part in parts:
                table = parquet.ParquetFile(str(part), page_checksum_verification=True).read()
                _, sizes = np.unique(table["anchor_row"].to_numpy(), return_counts=True)
                n_full, n_any = n_full + int((sizes == k).sum()), n_any + len(sizes)
                scores.append(table["score"].to_numpy())
                if table.num_rows:
                    writer.write_table(table.cast(described), row_group_size=table.num_rows)
    joined = np.concatenate(scores)
    counts = {
        "anchors": len(rows),
        "pairs": len(joined),
        "fewer than k": len(rows) - n_full,
        "without any": len(rows) - n_any,
        **left_out,
    }
    values = np.quantile(joined, QUANTILES, method="inverted_cdf").tolist() if len(joined) else []
    return Mined(path, counts, dict(zip(QUANTILES, values, strict=False)), signature)
