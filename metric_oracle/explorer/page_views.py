"""The pages about all test reports: overview, systems, copies, and live queries, each as a dict of what it shows."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.copies.measure import LONG, NOVELTY
from metric_oracle.copies.overlap import LIMITS
from metric_oracle.explorer.addresses import ROWS, Address, choose, link, read_address
from metric_oracle.explorer.case import shown_evidence
from metric_oracle.explorer.cases import ORACLE, Cases
from metric_oracle.explorer.copied_cases import shown_copy
from metric_oracle.explorer.evidence import Segment
from metric_oracle.explorer.exhibits import exhibit_texts
from metric_oracle.explorer.figures import pools, sections
from metric_oracle.explorer.first_page import Strip, Telling, alone, copies_of, strips, telling
from metric_oracle.explorer.first_page_view import SHAPES, alone_sentence, copies_sentence, places, verdicts
from metric_oracle.explorer.opposites import marked
from metric_oracle.metrics import METRICS, REPRESENTATIONS
from metric_oracle.reading import reports
from metric_oracle.retrieval.plan import retrieve

FURTHEST = 3  # test reports that are named for each system, on either side of the oracle
_NUMBERS = (
    "system", "metric", "better", "reports", "mean", "mean_low", "mean_high", "difference", "difference_low",
    "difference_high",
)  # fmt: skip


def overview(cases: Cases) -> dict[str, Any]:
    """Return what the files say about each metric, and up to four test reports that `first_page.telling` chooses."""
    copies = copies_of(cases)
    on_axes = strips(cases, copies)
    titles = {strip.metric: strip.title for strip in on_axes}
    n_differ = int((cases.frame["differ"] > 1).sum())
    return {
        "n_all": len(cases.ids),
        "verdicts": verdicts(on_axes),
        "copies": copies_sentence(copies, on_axes, cases.index is not None and cases.queries is not None),
        "differ": alone_sentence(alone(cases), titles, n_differ, len(cases.ids)),
        "cards": [_card(cases, card) for card in telling(cases, on_axes)],
        "pools": pools(cases),
        "all_link": "/cases",
        "case_link": "/case/%d",
        **drawn(on_axes),
    }


def drawn(on_axes: Iterable[Strip]) -> dict[str, Any]:
    """Return the systems of each metric with their places on its axis, and the shapes of the marks."""
    return {"strips": [(strip, places(strip)) for strip in on_axes], "shapes": SHAPES}


def _card(cases: Cases, card: Telling) -> dict[str, Any]:
    """Return what the first page shows of a test report; with segments if words of both texts are marked."""
    reference, texts = cases.reference(card.q), card.texts
    sides = zip((reference, texts[0][1]), card.places or (), strict=False)
    return {
        "rule": card.rule,
        "id": cases.ids[card.q],
        "q": card.q,
        "reference": reference,
        "texts": texts,
        "marked": [marked([Segment(text or "")], places_of_text) for text, places_of_text in sides],
    }


def systems(cases: Cases, on_axes: Iterable[Strip]) -> dict[str, Any]:
    """Return each metric's systems with their differences from the oracle, and the other figures."""
    marks = {mark.column: mark for strip in on_axes for mark in strip.marks}
    oracles = {column.metric: i for i, column in enumerate(cases.columns) if column.role == ORACLE}
    rows = []
    for i, column in enumerate(cases.columns):
        oracle, mark = oracles.get(column.metric), marks.get(i)
        scored = column.values[np.isfinite(column.values)]
        row: dict[str, Any] = {
            "system": column.system,
            "metric": column.metric,
            "better": column.direction,
            "reports": len(scored),
            "mean": float(scored.mean()) if len(scored) else None,
            **_ends("mean", mark and mark.ends),
            "difference": None,
            **_ends("difference", None),
            "role": column.role,
            "below": [],
            "above": [],
        }
        if oracle is not None and oracle != i:
            differences = column.values - cases.columns[oracle].values
            if np.isfinite(differences).any():
                row["difference"] = float(np.nanmean(differences))
            row |= _ends("difference", mark and mark.difference and mark.difference.interval)
            better = column.sign * differences
            parameters = {"sort": str(oracle), "minus": str(i)}
            row["below"], row["below_link"] = _furthest(cases, parameters, int((better < 0).sum()))
            row["above"], row["above_link"] = _furthest(cases, {**parameters, "turn": "1"}, int((better > 0).sum()))
        rows.append(row)
    content = drawn(on_axes)
    content["strips"] = [(strip, at, _by_mean(strip, rows)) for strip, at in content["strips"]]
    return {**content, "rows": rows, "sections": sections(cases)}


def _by_mean(strip: Strip, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a strip's metric, the best mean first, those without a mean last."""
    of_metric = [row for row in rows if row["metric"] == strip.metric]
    return sorted(of_metric, key=lambda row: (row["mean"] is None, -strip.sign * (row["mean"] or 0)))


def _ends(name: str, interval: Any) -> dict[str, float | None]:
    low, high = interval[:2] if interval else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _furthest(cases: Cases, parameters: dict[str, str], n: int) -> tuple[list[tuple[str, str]], str]:
    """Return ids and links of the first of `n` test reports in the order of an address, and its link."""
    order = choose(cases, read_address(parameters, cases).choice)["q"].head(min(n, FURTHEST)).to_list()
    return [(cases.ids[q], link(f"/case/{q}", parameters)) for q in order], link("/cases", parameters)


def rows_of_systems(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of a table of the rows of `systems`."""
    table = {name: [row[name] for row in rows] for name in _NUMBERS}
    for side in ("below", "above"):
        for i in range(FURTHEST):
            ids = [[study for study, _ in row[side]] for row in rows]
            table[f"furthest_{side}_{i + 1}"] = [studies[i] if i < len(studies) else "" for studies in ids]
    return table


def copies(cases: Cases, address: Address) -> dict[str, Any]:
    """Return what each set of reports shares with training reports, the longest shared runs first."""
    copied = cases.copied
    assert copied is not None
    sets = copied.sets
    number = address.integer("set", len(sets) - 1)
    name, filters = (None, {}) if number is None else (sets[number], {"set": str(number)})
    table = copied.of_set(name)
    paged = address.page("/copies", filters, table.num_rows)
    rows = map(shown_copy, table.slice((paged["page"] - 1) * ROWS, ROWS).to_pylist())
    place = {study: q for q, study in enumerate(cases.ids)}
    return {
        "summary": copied.summary(),
        "is_masked": bool(copied.signature.get("masked")),
        "limits": (LIMITS[0], LONG, NOVELTY),
        "total": table.num_rows,
        "rows": [{**row, "place": place.get(row["query_id"])} for row in rows],
        "sets": [
            ("all", "/copies", number is None),
            *((one, link("/copies", {}, set=i), number == i) for i, one in enumerate(sets)),
        ],
        **paged,
    }


def live(cases: Cases, text: str = "", asked: Iterable[str] = ()) -> dict[str, Any]:
    """Return the form of a live query, as it was filled in."""
    index = cases.index
    return {
        "query": text,
        "asked": list(asked),
        "metrics": live_metrics(cases),
        "candidates": None,
        "n_reports": 0 if index is None else index.n_reports,
        "took": "",
        "error": "",
    }


def live_metrics(cases: Cases) -> list[str]:
    """Return the metrics of the index that read only texts.

    Metrics with weights from the set of references (CIDEr-D) are left out: with one reference, all weights are 0.
    """
    kinds = {kind for kind, representation in REPRESENTATIONS.items() if representation.is_of_texts}
    available = [] if cases.index is None else cases.index.metrics
    return [name for name in available if set(METRICS[name].representations) <= kinds and METRICS[name].composable]


def found_live(cases: Cases, text: str, asked: list[str]) -> list[dict[str, Any]]:
    """Search for the best report to a text under each of some metrics; return them as the candidates of `live`."""
    if cases.index is None or not asked:
        raise InputError("no metric is ticked.", "Tick at least one.")
    batch = reports([text]).load()
    candidates = []
    for name in asked:
        best = retrieve(cases.index, batch, name).table.to_pylist()[0]
        evidence = {name: exhibit_texts(text, best["text"], METRICS[name])}
        candidates.append(
            {
                "names": [name],
                "row": best["row"],
                "candidate_id": best["candidate_id"],
                "text": best["text"],
                "ties": [f"{best['n_ties']:,} rows tie"] if best["n_ties"] > 1 else [],
                "scores": {name: best["score"]},
                **shown_evidence(text, best["text"], evidence),
                "rated": [],
                "chosen_by": [name],
                "is_fallback": best["fallback"],
                "is_exact": best["exact"],
                "opposites": [],
            }
        )
    return candidates
