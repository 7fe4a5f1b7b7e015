"""The rows of a table, read from files of scores, of retrieved reports or of baselines, and joined on ids."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.base.errors import InputError, shown
from metric_oracle.findings.corpus_bleu import counts_in
from metric_oracle.findings.results import Results, Scores, read_results, read_scores
from metric_oracle.judges.judge import judge_entry
from metric_oracle.metrics import METRICS, find_metric, get_metric
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import counted_entry
from metric_oracle.scores.expectation import Expectation, read_expectation
from metric_oracle.scores.pair_scores import MADE, SETTINGS

# Entries of the signature that must be equal for all systems of a table.
_SHARED = ("section", "references", "version")
ReadResults = Scores | Results | Expectation
GivenResults = str | Path | ReadResults
RANDOM, MOST_FREQUENT, IDENTITY = "random (expected)", "most frequent", "identity"
BASELINES = (MOST_FREQUENT, IDENTITY, RANDOM)  # rows of a study that need no search, the last of the table
YARDSTICKS = (*BASELINES, "random", "expectation", "most-frequent")  # no models; the last three from `baseline`
CHANCE = (RANDOM, "random", "expectation")
POOL = " of a pool"
_BEST_OF = re.compile(r"best of \d+")


def oracle_name(metric: str) -> str:
    """Return the name of the row of a metric's oracle."""
    return f"{metric} oracle"


def name_of_results(signature: Mapping[str, Any]) -> str:
    """Return the name of the row of retrieved reports: their baseline, or the metric with " oracle" or " of a pool"."""
    metric = str(signature.get("metric"))
    return str(signature.get("baseline") or (oracle_name(metric) if is_oracle(signature) else f"{metric}{POOL}"))


def best_of_name(n: int) -> str:
    """Return the name of the row of the expected best of n samples."""
    return f"best of {n}"


def read_system(name: str, results: GivenResults | Sequence[GivenResults]) -> Scores:
    """Return the scores of the row `name`, from scores, results, an expectation, or a file of one of these.

    The items of a sequence are joined on the ids; they must have different metrics. For results and expectations see
    `scores_of_results`.
    """
    if isinstance(results, Sequence) and not isinstance(results, str):
        if not results:
            raise InputError(f"{shown(name)} has no scores.", "Give each system its scores, or a file of them.")
        first, *more = [read_system(name, file) for file in results]
        for scores in more:
            first = _join_scores(name, first, scores)
        return first
    if isinstance(results, str | Path):
        path = Path(results)
        try:
            results = read_scores(path)
        except InputError as error:
            results = _read_answers(path, error)
    results = Results(results.table, results.signature) if isinstance(results, Expectation) else results
    return scores_of_results(results) if isinstance(results, Results) else results


def is_yardstick(scores: Scores) -> bool:
    """Return whether a row is an oracle, the best of pools, a baseline, perfect answers or the best of n samples.

    Its entry ``system`` says so, with the name of a metric or of a judge that the row has.
    """
    system = str(scores.signature.get("system"))
    is_best = _BEST_OF.fullmatch(system) is not None
    metric = system.removesuffix(POOL).removesuffix(oracle_name(""))
    return system in YARDSTICKS or is_best or (metric != system and (metric in METRICS or metric in scores.metrics))


def is_bound(system: str) -> bool:
    """Return whether scores are those of an oracle, or of the best of a pool or of samples, which bounds one.

    `system` is the entry of that name in the signature of the scores.
    """
    return system.endswith((oracle_name(""), POOL)) or _BEST_OF.fullmatch(system) is not None


def is_oracle(signature: Mapping[str, Any]) -> bool:
    """Return whether results come from a search of the whole corpus, not from a baseline or a reranked smaller pool."""
    return signature.get("baseline") is None and signature.get("pool", {"size": "all"})["size"] == "all"


def _read_answers(path: Path, error: InputError) -> Results | Expectation:
    """Read a file that ``oracle retrieve`` or ``oracle baseline`` wrote; raise `error` for any other file."""
    for read in (read_results, read_expectation):
        try:
            return read(path)
        except InputError:
            continue
    if path.is_file():
        error.step += " A table with columns of its own, such as published names, goes with `mo.read_foreign`."
    raise error


def scores_of_results(results: Results) -> Scores:
    """Return one score per query from results: of the best report, the mean of random draws, or the expectation.

    For means, the entry ``averaged`` of the signature says over what, and has the range of the single scores.
    """
    signature, table = results.signature, results.table
    name = str(signature.get("metric"))
    metric = None if "judge" in signature and find_metric(name) is None else get_metric(name)
    name = name if metric is None else metric.name
    draws = int(signature.get("draws", 1)) if signature.get("baseline") == "random" else 1
    is_pooled = "lists" in signature.get("pool", {}) and not is_oracle(signature)  # older files do not list it
    is_expected = signature.get("baseline") == "expectation"
    first = np.arange(table.num_rows) if is_expected else np.flatnonzero(table["rank"].to_numpy() == 1)
    columns: dict[str, Any] = {"query_id": table["query_id"].take(pa.array(first))}
    scores = table["mean" if is_expected else "score"].to_numpy()
    averaged = None
    if is_expected:
        columns[name] = scores
        averaged = {"over": "all reports of the corpus", "ranges": {name: None}}
        if "sampled" in signature:
            averaged["sampled"] = {name: signature["sampled"]}
        else:
            averaged["ranges"] = {name: [table["min"].to_numpy().min(), table["max"].to_numpy().max()]}
    elif draws > 1:
        by_query = scores.reshape(-1, draws)
        columns[name] = by_query.mean(axis=1)
        averaged = {"over": f"{draws:,} random reports", "ranges": {name: [by_query.min(), by_query.max()]}}
    else:
        columns[name] = scores[first]
        for part in results.components:
            columns[f"{name}.{part}"] = table[part].take(pa.array(first)).cast(pa.float64())
    return Scores(
        pa.table(columns),
        {
            "kind": "scores",
            "system": name_of_results(signature),
            "metrics": {name: _metric_entry(metric, signature)},
            "references": signature.get("references"),
            **{key: signature[key] for key in ("section",) if key in signature},
            "n": len(first),
            "version": signature.get("version"),
            **({"averaged": averaged} if averaged else {}),
            **({"pool": {**signature["pool"], "metric": name}} if is_pooled else {}),
        },
    )


def _metric_entry(metric: Metric | None, signature: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of the metric of results, as scores of the same metric have it; `metric` is None for a judge."""
    if metric is None:
        return judge_entry(str(signature["direction"]), str(signature["judge"]["version"]))
    content = signature.get("representation") or {}
    representations = {
        kind: {key: content[kind][key] for key in MADE if content.get(kind, {}).get(key) is not None}
        for kind in metric.representations
    }
    return {
        "options": signature.get("options"),
        "source": signature.get("source"),
        "tool": signature.get("tool"),
        "direction": signature.get("direction"),
        "representation": representations,
        **{key: signature[key] for key in SETTINGS if key in signature},
        **counted_entry(metric, signature.get("idf"), signature.get("index")),
    }


def _join_scores(name: str, a: Scores, b: Scores) -> Scores:
    """Join two files of the row `name` on the ids, in the order of `a`; raise InputError if they share a metric."""
    twice = [metric for metric in b.signature["metrics"] if metric in a.signature["metrics"]]
    if twice:
        raise InputError(f"the files of {shown(name)} have metric {twice[0]} twice.", "Leave one of them out.")
    check_signatures({name: a, f"{name} (another file)": b}, [])
    row_of_id = {study: row for row, study in enumerate(b.table["query_id"].to_pylist())}
    rows = [row_of_id.get(study) for study in a.table["query_id"].to_pylist()]
    if None in rows or len(row_of_id) != len(rows):
        raise InputError(f"the files of {shown(name)} have different ids.", "Make them from one file of reports.")
    table = a.table
    for column in b.table.column_names:
        if column not in table.column_names:
            table = table.append_column(column, b.table[column].take(pa.array(rows)))
    signature = {**a.signature, "metrics": {**a.signature["metrics"], **b.signature["metrics"]}}
    foreign = [file for part in (a, b) for file in part.signature.get("foreign", [])]
    if foreign:
        signature["foreign"] = foreign
    noted = {**a.signature.get("noted", {}), **b.signature.get("noted", {})}
    if noted:
        signature["noted"] = noted
    averages = [part.signature["averaged"] for part in (a, b) if "averaged" in part.signature]
    if averages:
        ranges = {metric: ends for part in averages for metric, ends in part["ranges"].items()}
        signature["averaged"] = {"over": averages[0]["over"], "ranges": ranges}
        sampled = {metric: entry for part in averages for metric, entry in part.get("sampled", {}).items()}
        if sampled:
            signature["averaged"]["sampled"] = sampled
    return replace(a, table=table, signature=signature)


def common_metrics(scores: Mapping[str, Scores], oracles: Mapping[str, str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the metrics that all systems have, and for each system its metrics that other systems lack.

    Raise InputError if there are none of the former, or `oracles` names another metric.
    """
    for name, system in scores.items():
        if system.signature.get("kind") != "scores" or not isinstance(system.signature.get("metrics"), dict):
            raise InputError(
                f"the file of {shown(name)} is not a file of scores; its kind is "
                f"{shown(system.signature.get('kind'))}.",
                "Write one with `mo.score`.",
            )
        lacking = [
            column
            for column in ("query_id", *system.signature["metrics"])
            if system.table.column_names.count(column) != 1
        ]
        if lacking:
            raise InputError(
                f"the file of {shown(name)} has no column, or several, for {', '.join(lacking)}.",
                "Write the file again with `mo.score`.",
            )
    metrics_of = {name: list(system.signature["metrics"]) for name, system in scores.items()}
    common = [
        metric
        for metric in next(iter(metrics_of.values()))
        if all(metric in available for available in metrics_of.values())
    ]
    if not common:
        listed = "; ".join(f"{name}: {', '.join(metrics) or 'none'}" for name, metrics in metrics_of.items())
        raise InputError(f"the systems have no metric in common: {listed}.", "Score them under the same metrics.")
    for metric in oracles:
        if metric not in common:
            raise InputError(
                "oracles",
                f"must name metrics that all systems have, {', '.join(common)}",
                shown(metric),
                "Leave this oracle out.",
            )
    left_out = {name: [metric for metric in metrics if metric not in common] for name, metrics in metrics_of.items()}
    return common, {name: metrics for name, metrics in left_out.items() if metrics}


def check_signatures(scores: Mapping[str, Scores], metrics: list[str]) -> None:
    """Raise InputError unless all systems have the same section, references and version, and options of the metrics.

    A file may lack the first three, as files of other tools do.
    """
    (first, first_scores), *more = scores.items()
    for name, more_scores in more:
        pairs = [(key, first_scores.signature.get(key), more_scores.signature.get(key)) for key in _SHARED]
        pairs += [(m, first_scores.signature["metrics"][m], more_scores.signature["metrics"][m]) for m in metrics]
        for what, expected, actual in pairs:
            where, a, b = _difference(what, expected, actual)
            # Old files lack the section and the checksum of the test reports; files of other tools lack all entries.
            if a != b and not (what in _SHARED and None in (a, b)):
                if what == "references":
                    _check_studies((first, first_scores), (name, more_scores))
                    raise InputError(
                        f"{shown(first)} and {shown(name)} are scored on the same studies against different reference "
                        "texts.",
                        "Score both against the same file of references, read in the same way.",
                    )
                raise InputError(
                    f"{shown(name)} was not scored as {shown(first)}: {where} is {_text_of(b)}, not {_text_of(a)}.",
                    "Score both again in the same way.",
                )


def _ids(scores: Scores) -> list[str]:
    """Return the ids of the studies that a system was scored on, in the order of its file."""
    return [str(i) for i in scores.table["query_id"].to_pylist()]


def _check_studies(one: tuple[str, Scores], other: tuple[str, Scores]) -> None:
    """Raise InputError unless two systems, name and scores each, have the same studies."""
    (a, ids_of_a), (b, ids_of_b) = ((name, dict.fromkeys(_ids(scores))) for name, scores in (one, other))
    if ids_of_a.keys() == ids_of_b.keys():
        return
    only = [[i for i in ids_of_a if i not in ids_of_b], [i for i in ids_of_b if i not in ids_of_a]]
    counted = [
        f"{len(some):,} only in {shown(name)}" + (f" ({shown(*some[:3])})" if some else "")
        for name, some in zip((a, b), only, strict=True)
    ]
    n_common = len(ids_of_a) - len(only[0])
    raise InputError(
        f"{shown(a)} has scores of {len(ids_of_a):,} studies and {shown(b)} of {len(ids_of_b):,}: "
        f"{n_common:,} in both, {counted[0]}, {counted[1]}.",
        f"Write the references of the {n_common:,} to a file, and score both against it with `inner=True`."
        if n_common
        else "Check that both have the ids of the same studies.",
    )


def _difference(what: str, a: Any, b: Any) -> tuple[str, Any, Any]:
    """Return where two nested values first differ: the path of the entry, and its two values."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if a.get(key) != b.get(key):
                return _difference(f"{what}, {key}", a.get(key), b.get(key))
    return what, a, b


def _text_of(value: Any) -> str:
    """Return a value of a signature, shortened for a message."""
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def aligned_counts(scores: Mapping[str, Scores], metric: str, complete: np.ndarray) -> dict[str, np.ndarray] | None:
    """Return the counts for corpus BLEU of each system, float64[2 order + 2, n]; None if a file has none.

    The systems must be those that `aligned` has joined; `complete`, bool[studies] in its order, marks the n studies to
    return.
    """
    order = next(iter(scores.values())).table["query_id"].to_pylist()
    counts_of = {}
    for name, system in scores.items():
        counts = counts_in(system.table, metric)
        if counts is None:
            return None
        row_of_id = {study: row for row, study in enumerate(system.table["query_id"].to_pylist())}
        counts_of[name] = counts[:, [row_of_id[study] for study in order]][:, complete]
    return counts_of


def aligned(
    scores: Mapping[str, Scores], metrics: list[str]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray | None]]:
    """Join the scores of all systems on the ids of the studies, in the first system's order; NaN where there is none.

    Return metric -> scores, float64[systems, studies], and system -> CRG's true positives, false negatives and false
    positives, float64[3, studies], or None if its file has no counts. Raise InputError unless all have the same two or
    more studies, each once, and finite scores.
    """
    order: dict[str, int] | None = None
    first = next(iter(scores))
    rows: dict[str, list[np.ndarray]] = {metric: [] for metric in metrics}
    counts: dict[str, np.ndarray | None] = {}
    for name, system in scores.items():
        ids = _ids(system)
        row_of_id = {i: row for row, i in enumerate(ids)}
        if len(row_of_id) < len(ids):
            seen: set[str] = set()
            twice = [i for i in ids if i in seen or seen.add(i)]  # type: ignore[func-returns-value]
            raise InputError(
                f"the scores of {shown(name)} have {len(twice)} ids more than once ({shown(*twice[:3])}).",
                "Drop the repetitions.",
            )
        order = row_of_id if order is None else order
        _check_studies((first, scores[first]), (name, system))
        where = np.array([row_of_id[i] for i in order], np.int64)
        for metric in metrics:
            column = system.table[metric]
            values = column.to_numpy().astype(np.float64)
            if not np.isfinite(values[~np.isnan(values)]).all() or np.isnan(values).sum() > column.null_count:
                raise InputError(
                    f"the scores of {shown(name)} under {metric} have NaN or infinity.",
                    "Score it again; the score of an unscorable study must be missing.",
                )
            rows[metric].append(values[where])
        parts = [f"crg.{part}" for part in ("tp", "fn", "fp")]
        columns = [system.table[part].to_numpy()[where] for part in parts if part in system.table.column_names]
        counts[name] = np.array(columns, np.float64) if len(columns) == len(parts) else None
    if order is None or len(order) < 2:
        raise InputError(
            f"the systems have {len(order or ())} studies.", "One study has no interval; score at least 2."
        )
    return {metric: np.array(columns) for metric, columns in rows.items()}, counts
