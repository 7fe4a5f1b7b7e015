"""What the signature of a search has: everything that is needed to reproduce its results."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from metric_oracle.base.files import package_version
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.store import BATCH
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import section_entry


def signature(index: Index, queries: Reports, metric: Metric, backend: str, k: int) -> dict[str, Any]:
    """Return the signature of a search, without options and without what the search records of its work."""
    return {
        "metric": metric.name,
        "options": metric.recorded,
        "source": metric.citation,
        "tool": metric.tool,
        "direction": metric.direction,
        "representation": {kind: index.content["representations"][kind] for kind in metric.representations},
        "index": index.fingerprint,
        **section_entry(index, queries),
        "backend": backend,
        "k": k,
        "ties": "lowest row first",
        "version": package_version(),
    }


def digest(queries: Reports) -> str:
    """Return a SHA-256 of the sorted pairs of id and text, in hexadecimal."""
    hasher = hashlib.sha256()
    pairs = sorted(zip(queries.ids, queries.texts, strict=True))
    for first in range(0, len(pairs), BATCH):
        raw = [string.encode("utf-8", "surrogatepass") for pair in pairs[first : first + BATCH] for string in pair]
        hasher.update(b"".join([b"%d:%b" % (len(string), string) for string in raw]))
    return hasher.hexdigest()


def joined_stages(stages: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[str, Any]:
    """Join the signature entries of several searches, each with the number of documents that were searched.

    Shares are averaged, weighted by the number of documents; of closest calls (least distances between bound and score)
    the least is kept.
    """
    if len(stages) < 2:
        return {**stages[0][1]} if stages else {}
    joined: dict[str, Any] = {}
    shares = [(n, part["stages"]) for n, part in stages if "stages" in part]
    if shares:
        total = sum(n for n, _ in shares)
        names = dict.fromkeys(name for _, share in shares for name in share)
        joined["stages"] = {name: sum(n * share.get(name, 0.0) for n, share in shares) / total for name in names}
    calls = [part["closest_call"] for _, part in stages if "closest_call" in part]
    if calls:
        names = dict.fromkeys(name for call in calls for name in call)
        joined["closest_call"] = {name: min(call[name] for call in calls if name in call) for name in names}
    return joined
