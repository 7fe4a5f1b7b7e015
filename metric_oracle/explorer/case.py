"""One test report: its candidates, grouped by text, with scores, evidence and error counts; samples; copies."""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from metric_oracle.copies.overlap import HUMAN
from metric_oracle.explorer.addresses import ROWS, Address, choose, link
from metric_oracle.explorer.cases import Candidate, Cases
from metric_oracle.explorer.evidence import WHOLE, Evidence, Segment, step_of
from metric_oracle.explorer.exhibits import DIFF, exhibit, kinds_of, opposites
from metric_oracle.explorer.images import Images
from metric_oracle.explorer.rated_cases import Counted, plain_text
from metric_oracle.explorer.scores import cross_scores
from metric_oracle.raters.names import candidate_name, category_title, rater_name
from metric_oracle.web.render import templates

_LETTER = re.compile(r"\w")


def details(cases: Cases, q: int, rank: int = 1, kind: str | None = None, *, cross: bool = True) -> dict[str, Any]:
    """Return what pages, downloads and the report have of test report `q`, with its candidates at a rank from 1.

    The candidates of all files and the rated ones are grouped by text. `kind` is the metric whose evidence they have,
    or "diff"; by default these are the metrics that chose them. With `cross`, reports of the corpus are scored under
    every metric that index and queries allow.
    """
    study, reference = cases.ids[q], cases.reference(q)
    content: dict[str, Any] = {"query_id": study, "rank": rank, "reference": reference}
    if cases.sampled is not None:
        samples = cases.sampled.of(study, reference, [column.metric for column in cases.columns])
        content |= {"samples": samples} if samples else {}
    if cases.copied is not None:
        texts = {HUMAN: reference}
        for candidate in cases.candidates(q):
            if candidate.row < 0:
                texts |= {cases.columns[c].system: candidate.text for c in candidate.columns}
        copies = cases.copied.of(study, texts, cases.index)
        content |= {"copies": copies} if copies else {}
    return {**content, "candidates": _candidates(cases, q, rank, kind, cross)}


def case(cases: Cases, q: int, address: Address, images: Images | None = None) -> dict[str, Any]:
    """Return the page of test report `q`, with links to those before and after it in the order of an address."""
    kinds = kinds_of(cases)
    show, rank, pick = (
        address.integer(name, most) for name, most in (("show", len(kinds) - 1), ("rank", 1 << 60), ("pick", 1 << 60))
    )
    rank = max(1, rank or 1)
    kind = None if show is None else kinds[show]
    content = details(cases, q, rank, kind)
    with_report = [one for one in content["candidates"] if has_report(one)]
    without_report = [one for one in content["candidates"] if not has_report(one)]
    order = choose(cases, address.choice)["q"].to_list()
    at = order.index(q) if q in order else None
    parameters = {
        **address.filters,
        **{name: address.parameters[name] for name in ("show", "rank") if name in address.parameters},
    }
    here = partial(link, f"/case/{q}", parameters)
    keys = [DIFF[0] if name == DIFF else str(i + 1) if i < 9 else "" for i, name in enumerate(kinds)]
    titles = ["plain words" if name == DIFF else name for name in kinds]
    choices = [("each by its own metric", "0", None), *zip(titles, keys, range(len(kinds)), strict=True)]

    def image(study: str, which: str = "") -> str:
        is_there = images is not None and images.of(study) is not None
        return f"/case/{q}/image{which}" if is_there else ""

    return {
        "samples": [],
        "copies": [],
        **content,
        "groups": with_report,
        "unread": without_report,
        "unread_metrics": list(dict.fromkeys(name for one in without_report for name in one["scores"])),
        "image": image(content["query_id"]),
        "images": [
            image(one["candidate_id"], f"/{one['file']}/{rank}") if one["row"] >= 0 else "" for one in with_report
        ],
        "picked": min(max(1 if pick is None else pick, 1), len(with_report)),
        "pick_links": [here(pick=i + 1) for i in range(len(with_report))],
        "kinds": [
            {"title": title, "key": key, "link": here(show=i), "is_shown": i == show} for title, key, i in choices
        ],
        "ranks": [{"rank": r, "link": here(rank=r)} for r in range(1, min(cases.ranks(q), 20) + 1)],
        "at": "" if at is None else f"{at + 1:,} of {len(order):,}",
        "previous": link(f"/case/{order[at - 1]}", parameters) if at else "",
        "next": link(f"/case/{order[at + 1]}", parameters) if at is not None and at + 1 < len(order) else "",
        "back": link("/cases", address.filters, page=None if at is None else at // ROWS + 1),
        "json_link": link(f"/case/{q}.json", {"rank": str(rank)}),
    }


def has_report(candidate: dict[str, Any]) -> bool:
    """Return whether a candidate of `details` has a text or a corpus row, or scores only."""
    return candidate["text"] is not None or candidate["row"] >= 0


def _candidates(cases: Cases, q: int, rank: int, kind: str | None, cross: bool) -> list[dict[str, Any]]:
    """Return the candidates of `details`."""
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
    scores = cross_scores(cases, q, rows) if cross else {}
    return [_candidate(cases, q, group, scores, kind, rated.get(key, [])) for key, group in together.items()]


def _candidate(
    cases: Cases, q: int, group: Sequence[Candidate], scores: dict[int, Any], kind: str | None, rated: list[Counted]
) -> dict[str, Any]:
    """Return what is shown of candidates and rated candidates for test report `q` that have the same text.

    `scores` are by corpus row, as `cross_scores` returns them; `kind` is that of `details`.
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
    evidence = {kind: exhibit(cases, q, text, row, kind)} if kind else _evidence_of_files(cases, q, text, row, own)
    contradicting = opposites(cases, q, row, text)
    all_scores = {**scores.get(row, {}), **from_files}
    return {
        "names": names or names_of_rated,
        "row": row,
        "candidate_id": "" if first is None else first.candidate_id,
        "text": text,
        "ties": [f"{columns[c.columns[0]].metric}: {c.n_ties:,} rows tie" for c in group if c.n_ties > 1],
        "scores": {name: None if value is None or np.isnan(value) else value for name, value in all_scores.items()},
        **shown_evidence(cases.reference(q), text, {name: contradicting.mark(one) for name, one in evidence.items()}),
        "rated": [_counts(cases, counted) for counted in rated],
        "chosen_by": [name for name in all_scores if name in own],
        "file": None if first is None else first.file,
        "is_fallback": any(candidate.is_fallback for candidate in group),
        "is_exact": all(candidate.is_exact for candidate in group),
        "opposites": contradicting.pairs,
    }


def shown_evidence(reference: str | None, text: str | None, evidence: dict[str, Evidence | str]) -> dict[str, Any]:
    """Return what is shown of the evidence of a pair, which is by metric, each with its evidence or why there is none.

    The dict has `evidence` as passed; `is_same`, whether both texts are identical; and `marks`, the first metric that
    marks words, whose marks the texts have. It is empty if nothing is marked or `is_same`.
    """
    is_same = text is not None and text == reference
    marking = [name for name, one in evidence.items() if not isinstance(one, str) and (one.candidate or one.reference)]
    return {"evidence": evidence, "is_same": is_same, "marks": "" if is_same else "".join(marking[:1])}


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


templates.globals["phrases"] = phrases


def _evidence_of_files(cases: Cases, q: int, text: str | None, row: int, chosen_by: Iterable[str]) -> dict[str, Any]:
    """Return the metrics among `chosen_by` that have evidence for a candidate, with it; or else a diff of the words."""
    names = [name for name in dict.fromkeys(chosen_by) if cases.metric(name) is not None]
    exhibits = {name: exhibit(cases, q, text, row, name) for name in names}
    of_metric = {name: evidence for name, evidence in exhibits.items() if not isinstance(evidence, str)}
    return of_metric or {DIFF: exhibit(cases, q, text, row, DIFF)}


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
