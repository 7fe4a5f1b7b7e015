"""The data of a page about one test report: its candidates, grouped by text, with scores, evidence and error counts."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from metric_oracle.explorer.cases import Candidate, Cases
from metric_oracle.explorer.evidence import WHOLE, Evidence, Segment, step_of
from metric_oracle.explorer.exhibits import DIFF, exhibit, opposites
from metric_oracle.explorer.rated_cases import Counted, plain_text
from metric_oracle.raters.names import candidate_name, category_title, rater_name

_LETTER = re.compile(r"\w")


def groups(cases: Cases, q: int, rank: int = 1, kind: str | None = None, *, cross: bool = True) -> list[dict[str, Any]]:
    """Return the candidates of all files for test report `q` at a rank from 1, and the rated ones, grouped by text.

    Each group is what a page shows of one text. `kind` is the metric whose evidence it has, or "diff"; by default these
    are the metrics that chose the candidate. With `cross`, reports of the corpus are scored under every metric that
    index and queries allow.
    """
    together: dict[Any, list[Candidate]] = {}
    for candidate in cases.candidates(q, rank):
        key: Any = candidate.text if candidate.text is not None else (candidate.row, candidate.file)
        together.setdefault(key, []).append(candidate)
    rated: dict[Any, list[Counted]] = {}
    key_of_text = {plain_text(key): key for key in together if isinstance(key, str)}
    for counted in cases.rated.of(cases.ids[q]) if cases.rated is not None else ():
        key = key_of_text.setdefault(plain_text(counted.text), counted.text)
        together.setdefault(key, [])
        rated.setdefault(key, []).append(counted)
    rows = list(dict.fromkeys(c.row for group in together.values() for c in group if c.row >= 0))
    scores = cases.cross_scores(q, rows) if cross else {}
    return [_group(cases, q, group, scores, kind, rated.get(key, [])) for key, group in together.items()]


def without_reports(shown: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split the groups of `groups` into those with a text or a corpus row, and those with scores only."""
    is_known = [group["text"] is not None or group["row"] >= 0 for group in shown]
    return (
        [group for group, known in zip(shown, is_known, strict=True) if known],
        [group for group, known in zip(shown, is_known, strict=True) if not known],
    )


def _group(
    cases: Cases, q: int, group: Sequence[Candidate], scores: dict[int, Any], kind: str | None, rated: list[Counted]
) -> dict[str, Any]:
    """Return what the page shows of candidates and rated candidates for test report `q` that have the same text.

    `scores` are by corpus row, as `Cases.cross_scores` returns them; `kind` is that of `groups`.
    """
    columns = cases.columns
    row = next((candidate.row for candidate in group if candidate.row >= 0), -1)
    first = next((candidate for candidate in group if candidate.row == row), None)
    text = rated[0].text if first is None else first.text
    from_files = {columns[c].metric: float(columns[c].values[q]) for one in group for c in one.columns}
    # A report that was searched for was chosen by its first score; a report that a model wrote has all of its scores.
    searched = {columns[one.columns[0]].metric: one.score for one in group if one.score is not None}
    from_files |= searched
    own = [*searched, *(columns[c].metric for one in group if one.score is None for c in one.columns)]
    names = list(dict.fromkeys(columns[one.columns[0]].system for one in group))
    names_of_rated = [f"{candidate_name(counted.name)}, as rated" for counted in rated]
    evidence = [(kind, exhibit(cases, q, text, row, kind))] if kind else _evidence_of_files(cases, q, text, row, own)
    contradicting = opposites(cases, q, row, text)
    return {
        "names": names or names_of_rated,
        "row": row,
        "file": None if first is None else first.file,
        "candidate_id": "" if first is None else first.candidate_id,
        "text": text,
        "ties": [f"{columns[c.columns[0]].metric}: {c.n_ties:,} rows tie" for c in group if c.n_ties > 1],
        "is_fallback": any(candidate.is_fallback for candidate in group),
        "is_exact": all(candidate.is_exact for candidate in group),
        "scores": [(name, value, name in own) for name, value in {**scores.get(row, {}), **from_files}.items()],
        **display(cases.reference(q), text, [(name, contradicting.mark(one)) for name, one in evidence]),
        "opposites": contradicting.known,
        "rated": [_counts(cases, counted) for counted in rated],
    }


def display(reference: str | None, text: str | None, evidence: list[tuple[str, Evidence | str]]) -> dict[str, Any]:
    """Return what a page shows of the evidence of a pair, a list of metrics with their evidence or why there is none.

    The dict has `evidence` as passed; `is_same`, whether both texts are identical; and `marks` of the first metric with
    marked words: its name, its colour scale and the phrases of both sides; None if nothing is marked or `is_same`.
    """
    is_same = text is not None and text == reference
    marks = None
    for name, one in () if is_same else evidence:
        if marks is None and not isinstance(one, str) and (one.candidate or one.reference):
            sides = {"reference": phrases(one.reference, one.scale), "candidate": phrases(one.candidate, one.scale)}
            marks = {"metric": name, "scale": one.scale, **sides}
    return {"evidence": evidence, "is_same": is_same, "marks": marks}


def phrases(side: Sequence[Segment], scale: Sequence[float] = ()) -> list[dict[str, Any]]:
    """Merge segments into phrases: neighbours with the same match number, and the blanks and signs between them.

    A phrase has its kind, its match number or None, its opposite, and pieces: pairs of a text and its step on the
    colour scale, or 0. The pieces of all phrases, joined, are the text.
    """
    merged: list[dict[str, Any]] = []
    for segment in side:
        step = step_of(segment.weight, scale) if segment.kind == WHOLE and segment.weight is not None else 0
        is_gap = len(merged) > 1 and not merged[-1]["kind"] and not _LETTER.search(merged[-1]["pieces"][0][0])
        last = merged[-2] if is_gap else merged[-1] if merged else {}
        this = segment.kind, segment.partner, segment.opposite
        if (segment.partner or segment.opposite) and (
            last.get("kind"),
            last.get("number"),
            last.get("opposite"),
        ) == this:
            last["pieces"] += [*(merged.pop()["pieces"] if is_gap else ()), (segment.text, step)]
        else:
            pieces = [(segment.text, step)]
            merged.append(
                {"kind": segment.kind, "number": segment.partner, "opposite": segment.opposite, "pieces": pieces}
            )
    return merged


def _evidence_of_files(
    cases: Cases, q: int, text: str | None, row: int, chosen_by: Iterable[str]
) -> list[tuple[str, Any]]:
    """Return the metrics among `chosen_by` that have evidence for a candidate, with it; or else a diff of the words."""
    names = [name for name in dict.fromkeys(chosen_by) if cases.record(name) is not None]
    exhibits = [(name, exhibit(cases, q, text, row, name)) for name in names]
    shown = [(name, evidence) for name, evidence in exhibits if not isinstance(evidence, str)]
    return shown or [(DIFF, exhibit(cases, q, text, row, DIFF))]


def _counts(cases: Cases, counted: Counted) -> dict[str, Any]:
    """Return the errors counted in a candidate, as a page shows them: its name, the raters, and rows.

    A row has a category or "All", then the mean and each rater's count of significant errors, and of insignificant.
    """
    ratings = cases.rated.ratings  # type: ignore[union-attr]
    cells = [*counted.counts.transpose(1, 2, 0), counted.counts.sum(axis=1).T]
    names = [*map(category_title, ratings.categories), "All"]
    return {
        "name": candidate_name(counted.name),
        "raters": list(map(rater_name, ratings.raters)),
        "rows": [
            (name, [(float(side.mean()), side.tolist()) for side in sides])
            for name, sides in zip(names, cells, strict=True)
        ],
    }
