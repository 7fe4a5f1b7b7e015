"""One test report: its candidates, those with equal texts together, with scores, evidence and what raters counted."""

from collections.abc import Sequence
from typing import Any

from metric_oracle.explorer.cases import Candidate, Cases
from metric_oracle.explorer.exhibits import DIFF, exhibit
from metric_oracle.explorer.rated_cases import Counted, plain_text
from metric_oracle.metrics import METRICS
from metric_oracle.raters.layout import candidate_name, category_title, rater_name


def groups(cases: Cases, q: int, rank: int = 1, kind: str | None = None, *, cross: bool = True) -> list[dict[str, Any]]:
    """Return the candidates of all files for a test report, and those that radiologists rated.

    Parameters
    ----------
    cases : Cases
    q : int
    rank : int
    kind : str or None
        Metric whose evidence is shown, or "diff"; None for that of every metric that chose the candidate.
    cross : bool
        Whether each is scored under every metric that index and queries allow.
    """
    together: dict[Any, list[Candidate]] = {}
    for candidate in cases.candidates(q, rank):
        key: Any = candidate.text if candidate.text is not None else (candidate.row, candidate.source)
        together.setdefault(key, []).append(candidate)
    rated: dict[Any, list[Counted]] = {}
    known = {plain_text(key): key for key in together if isinstance(key, str)}
    for one in cases.rated.of(cases.ids[q]) if cases.rated is not None else ():
        key = known.setdefault(plain_text(one.text), one.text)
        together.setdefault(key, [])
        rated.setdefault(key, []).append(one)
    rows = list(dict.fromkeys(one.row for group in together.values() for one in group if one.row >= 0))
    scores = cases.cross_scores(q, rows) if cross else {}
    return [_group(cases, q, group, scores, kind, rated.get(key, [])) for key, group in together.items()]


def _group(
    cases: Cases, q: int, group: Sequence[Candidate], scores: dict[int, Any], kind: str | None, rated: list[Counted]
) -> dict[str, Any]:
    columns = cases.columns
    row = next((one.row for one in group if one.row >= 0), -1)
    first = next((one for one in group if one.row == row), None)
    text = rated[0].text if first is None else first.text
    own = {
        columns[c].metric: one.score if one.score is not None else float(columns[c].values[q])
        for one in group
        for c in one.columns
    }
    names = [columns[c].name for one in group for c in one.columns[:1]]
    if first is not None and first.score is None:
        names = list(dict.fromkeys(columns[c].system for one in group for c in one.columns))
    of_raters = [f"{candidate_name(one.name)}, as rated" for one in rated]
    return {
        "names": names or of_raters,
        "row": row,
        "candidate_id": "" if first is None else first.candidate_id,
        "text": text,
        "ties": [f"{columns[one.columns[0]].metric}: {one.n_ties:,} rows tie" for one in group if one.n_ties > 1],
        "is_fallback": any(one.is_fallback for one in group),
        "is_exact": all(one.is_exact for one in group),
        "scores": [(name, value, name in own) for name, value in {**scores.get(row, {}), **own}.items()],
        "evidence": [(kind, exhibit(cases, q, text, row, kind))] if kind else _own_evidence(cases, q, text, row, own),
        "rated": [_counts(cases, one) for one in rated],
    }


def _own_evidence(cases: Cases, q: int, text: str | None, row: int, own: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the evidence of the metrics that chose a candidate; where there is none of them, what words differ."""
    found = [(name, exhibit(cases, q, text, row, name)) for name in own if name in METRICS]
    shown = [(name, one) for name, one in found if not isinstance(one, str)]
    return shown or [(DIFF, exhibit(cases, q, text, row, DIFF))]


def _counts(cases: Cases, one: Counted) -> dict[str, Any]:
    """Return what raters counted in one candidate: for each category and all, the mean and each rater's number."""
    ratings = cases.rated.ratings  # type: ignore[union-attr]
    cells = [*one.counts.transpose(1, 2, 0), one.counts.sum(axis=1).T]
    names = [*map(category_title, ratings.categories), "All"]
    return {
        "name": candidate_name(one.name),
        "raters": list(map(rater_name, ratings.raters)),
        "rows": [
            (name, [(float(side.mean()), side.tolist()) for side in sides])
            for name, sides in zip(names, cells, strict=True)
        ],
    }
