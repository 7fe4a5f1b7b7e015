"""The pairs that a judge is to score, as a file: it runs where it must, and `rerank` reads its scores back."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import Flag, Uses
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import package_version
from metric_oracle.base.progress import Progress
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.finding import Frames
from metric_oracle.findings.printed_tables import named
from metric_oracle.findings.writing import write_numbers
from metric_oracle.indexes.index import AnyIndex
from metric_oracle.indexes.store import to_arrow
from metric_oracle.judges.given import GivenJudge, one_judge
from metric_oracle.judges.judged_files import RANK
from metric_oracle.judges.judgements import pair_ids
from metric_oracle.pools.candidate_pools import DEFAULT, CandidatePool, PoolRows, planned_pool
from metric_oracle.reading import Queries, loaded
from metric_oracle.retrieval.checks import check_section, section_entry
from metric_oracle.retrieval.options import SETTINGS, SearchOptions, with_arguments
from metric_oracle.retrieval.search_signature import digest

SHOWN_PAIRS = 10


@dataclass(frozen=True)
class PairsToJudge(Frames):
    """The distinct pairs of texts of pools.

    Attributes
    ----------
    table : pyarrow.Table
        Columns pair (an id made of the checksums of both texts), query_id, candidate_id and row (of the first test
        report and the first report of its pool with these texts), reference, candidate, and ``rank.`` with the name of
        a metric: the place of that report in the metric's list, null where it is not in it. Of a study, in place of
        candidate_id and the ranks, system: the row of its table that has the report first, or pool, or random.
    signature : dict
        What is needed to make the same pairs again.
    """

    table: pa.Table
    signature: dict[str, Any]

    def __repr__(self) -> str:
        return f"<PairsToJudge: {self.table.num_rows:,}>"

    def shown(self) -> list[Any]:
        """Return what a notebook shows: the first pairs, without the texts of reports."""
        pair, *columns = [name for name in self.table.column_names if name not in ("reference", "candidate")]
        first = self.table.slice(0, SHOWN_PAIRS).to_pylist()
        rows = {row[pair]: ["" if row[name] is None else str(row[name]) for name in columns] for row in first}
        judged = self.signature["pool"]["judged"]
        title = f"{self.table.num_rows:,} distinct pairs to judge; {judged:,} others are judged"
        return [replace(named(title, columns, rows), first=pair)]

    @public
    def write(self, path: str | Path) -> None:
        """Write Parquet, CSV or JSON Lines by the ending of `path`, with the signature as `Results.write` does."""
        write_numbers(Path(path), self.table, self.signature)


@public
def pool(
    index: AnyIndex,
    queries: Queries,
    metric: Annotated[
        str | GivenJudge | Sequence[str | GivenJudge] | None,
        Doc(
            "Judge that has scored some of the pairs: its name in oracle.toml, in Python what ``judge`` returns. Pairs "
            "that its files or the folder of its answers have are left out. By default all pairs are written."
        ),
        option_types.METRIC,
    ] = None,
    *,
    pool: Annotated[
        str,
        Doc(
            "Reports to pair with each test report: METRIC:N, the N best under a metric; composite:N, those under "
            "`weights`; random:N, N drawn at random; several of these with commas; or all, the whole corpus."
        ),
        Flag(metavar="METRIC:N"),
    ] = DEFAULT,
    seed: option_types.Seed = 0,
    options: Annotated[
        SearchOptions | None,
        Doc("The options of the searches for the pool."),
        Uses("weights", *SETTINGS),
    ] = None,
    progress: Progress | None = None,
) -> PairsToJudge:
    """Pair test reports with the reports of their pools, for a judge that runs elsewhere.

    The judge adds a column ``score`` to the file, which is then one of the files of the judge that
    [`rerank`][metric_oracle.rerank] takes. Equal texts are one pair.

    Returns
    -------
    PairsToJudge
        One row for each distinct pair of texts that has no score.

    Raises
    ------
    InputError
        If an argument is wrong, or does not fit index and queries.

    Examples
    --------
    >>> index = mo.build_index("train.csv", "INDEX")
    >>> mo.pool(index, "test.csv", pool="bleu:5,random:2").write("pairs.parquet")
    """
    names, unopened_judge = one_judge(metric, "metric")
    if names:
        raise InputError("metric", "must be a judge", shown(*names), "Name a judge of oracle.toml, or leave it out.")
    known_pairs = set[str]() if unopened_judge is None else unopened_judge.known_pairs()
    planned = planned_pool(index, pool, with_arguments(options), seed=seed, progress=progress)
    reports = loaded(queries, planned.index, progress)
    check_section(reports, planned.index)
    nothing = np.empty(0, np.int64)
    every = PoolRows(np.arange(planned.index.n_reports), np.empty((0, planned.index.n_reports), np.int64), nothing)
    pools = [every] * len(reports.ids) if planned.is_whole else planned.rows(reports)
    query = np.repeat(np.arange(len(pools)), [len(p.listed) + len(p.drawn) for p in pools])
    row = np.concatenate([nothing, *(rows for p in pools for rows in (p.listed, p.drawn))])
    texts = planned.index.take("text", row).to_pylist()
    of_candidate = {"candidate_id": planned.index.take("study_id", row), "row": pa.array(row)}
    ranks = {}
    for m, metric in enumerate(planned.signs):
        places = np.concatenate([np.concatenate([p.places[m], np.zeros(len(p.drawn), np.int64)]) for p in pools])
        ranks[f"{RANK}{metric}"] = pa.array(places, mask=places == 0)
    return pairs_to_judge(planned, reports, known_pairs, query.tolist(), texts, of_candidate, ranks)


def pairs_to_judge(
    pool: CandidatePool,
    queries: Reports,
    known_pairs: Set[str],
    query: Sequence[int],
    candidates: Sequence[str],
    of_candidate: Mapping[str, pa.ChunkedArray | pa.Array],
    further: Mapping[str, pa.Array],
    **described: Any,
) -> PairsToJudge:
    """Return the first of each distinct pair of texts that is not known, in the order of the pairs.

    `known_pairs` has ids of pairs; `query` is the number of the test report of each pair, `candidates` its other text;
    `of_candidate` and `further` are more columns of all pairs, which stand before and after the texts; `described` are
    more entries of the signature.
    """
    ids = pair_ids(zip((queries.texts[q] for q in query), candidates, strict=True))
    place = {pair: i for i, pair in reversed([*enumerate(ids)]) if pair not in known_pairs}
    some = pa.array(sorted(place.values()), pa.int64())
    places = some.to_pylist()
    columns = {
        "pair": to_arrow([ids[i] for i in places]),
        "query_id": to_arrow([queries.ids[query[i]] for i in places]),
        **{name: column.take(some) for name, column in of_candidate.items()},
        "reference": to_arrow([queries.texts[query[i]] for i in places]),
        "candidate": to_arrow([candidates[i] for i in places]),
        **{name: column.take(some) for name, column in further.items()},
    }
    signature = {
        "kind": "pairs",
        "index": pool.index.fingerprint,
        **section_entry(pool.index, queries),
        "references": digest(queries),
        **described,
        "pool": {**pool.recorded(), "pairs": len(places), "judged": len({*ids} & known_pairs)},
        "version": package_version(),
    }
    return PairsToJudge(pa.table(columns), signature)
