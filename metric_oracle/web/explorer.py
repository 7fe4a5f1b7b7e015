"""The explorer: test reports, one report with its oracles and their evidence, systems, live queries.

Addresses hold positions and numbers. Words to search for and reports to query come as forms; the words are kept here
under a number while the server runs.
"""

import csv
import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any
from urllib.parse import urlencode

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from metric_oracle import api
from metric_oracle.errors import InputError
from metric_oracle.evaluation.cases import Candidate, Cases, Chosen
from metric_oracle.evaluation.exhibits import DIFF, exhibit, exhibit_texts, kinds_of
from metric_oracle.metrics import METRICS, REPRESENTATIONS
from metric_oracle.presentation.short_signature import short_signature
from metric_oracle.web.render import page
from metric_oracle.web.server import posted

ROWS = 50  # of a page
BARS = 20  # of a histogram
_FLAGS = {"disagree": "is_disagreement", "turn": "is_reversed", "fallback": "only_fallback", "inexact": "only_inexact"}
_COUNTS = {"ties": "ties_over"}
_PLACES = {"sort": "sort", "minus": "minus", "column": "column"}
_NUMBERS = {"low": "low", "high": "high"}
FILTERS = (*_FLAGS, *_COUNTS, *_PLACES, *_NUMBERS, "words")


def _integer(text: str, name: str, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= most:
        return int(text)
    msg = f"explore: {name} must be an int from 0 to {most}; got something else. Follow a link of the pages."
    raise InputError(msg)


def _number(text: str, name: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not np.isfinite(found):
        msg = f"explore: {name} must be a finite number; got something else. Correct it."
        raise InputError(msg)
    return found


@dataclass
class Explorer:
    """Pages over test reports and what files say of them.

    Attributes
    ----------
    cases : Cases
        Without files only live queries, which need its index.
    searched : list of str
        Words that were searched for; an address has their place.
    """

    cases: Cases
    searched: list[str] = field(default_factory=list)
    _working: threading.Lock = field(default_factory=threading.Lock)  # kernels use every core already

    def routes(self) -> list[BaseRoute]:
        """Return what the server serves."""
        if not self.cases.columns:
            return [Route("/", self.live), Route("/live", self.live_post, methods=["POST"])]
        found: list[BaseRoute] = [
            Route("/", self.overview),
            Route("/rows.csv", self.rows_csv),
            Route("/words", self.words_post, methods=["POST"]),
            Route("/case/{q:int}", self.case),
            Route("/systems", self.systems),
        ]
        if self.cases.index is not None:
            found += [Route("/live", self.live), Route("/live", self.live_post, methods=["POST"])]
        return found

    @cached_property
    def _frame(self) -> dict[str, Any]:
        """What every page shows: its tabs and the signatures."""
        tabs = [("Test reports", "/"), ("Systems", "/systems")] if self.cases.columns else []
        index = self.cases.index
        if index is not None:
            tabs.append(("Live query", "/live" if tabs else "/"))
        line = "" if index is None else f"index {index.fingerprint[:12]}, {index.n_reports:,} reports"
        return {"tabs": tabs, "signatures": list(map(short_signature, self.cases.signatures)), "index_line": line}

    def _page(self, name: str, tab: str, **values: Any) -> Response:
        return page(name, tab=tab, **self._frame, **values)

    # Which test reports

    def _chosen(self, given: dict[str, str]) -> Chosen:
        """Return the filters of an address."""
        last = len(self.cases.columns) - 1
        found: dict[str, Any] = {name: given.get(key) == "1" for key, name in _FLAGS.items()}
        found |= {name: _integer(given[key], key, last) for key, name in _PLACES.items() if given.get(key)}
        found |= {name: _integer(given[key], key, 1 << 60) for key, name in _COUNTS.items() if given.get(key)}
        found |= {name: _number(given[key], key) for key, name in _NUMBERS.items() if given.get(key)}
        if given.get("words"):
            found["words"] = self.searched[_integer(given["words"], "words", len(self.searched) - 1)]
        return Chosen(**found)

    def _asked(self, request: Request) -> tuple[dict[str, str], Chosen]:
        given = {key: value for key, value in request.query_params.items() if value}
        return given, self._chosen(given)

    def overview(self, request: Request) -> Response:
        """Show the rows of one page, in the order and with the filters of the address."""
        given, chosen = self._asked(request)
        order = self.cases.choose(chosen)
        pages = max(1, -(-len(order) // ROWS))
        number = min(_integer(given.get("page", "1"), "page", 1 << 60), pages) or 1
        shown = order[(number - 1) * ROWS : number * ROWS]
        filters = {key: given[key] for key in FILTERS if key in given}
        hidden = [
            (key, value) for key, value in filters.items() if key in ("sort", "minus", "disagree", "turn", "words")
        ]
        return self._page(
            "overview.html",
            "Test reports",
            total=len(order),
            n_all=len(self.cases.ids),
            message="",
            is_filtered=bool(set(filters) - {"sort", "minus", "disagree", "turn"}),
            kept=hidden,
            all_kept=list(filters.items()),
            chosen=chosen,
            columns=[self._heading(i, chosen, filters) for i in range(len(self.cases.columns))],
            histograms=[self._histogram(i, order, filters) for i in range(len(self.cases.columns))],
            rows=[self._row(int(q), filters) for q in shown],
            page=number,
            pages=pages,
            previous=_link("/", filters, page=number - 1) if number > 1 else "",
            next=_link("/", filters, page=number + 1) if number < pages else "",
            csv_link=_link("/rows.csv", filters),
            disagree_link=_link("/", filters, sort=None, minus=None, turn=None, disagree=1),
        )

    def _heading(self, i: int, chosen: Chosen, filters: dict[str, str]) -> dict[str, Any]:
        column = self.cases.columns[i]
        is_here = chosen.sort == i and chosen.minus is None and not chosen.is_disagreement
        rises = column.is_higher_better == chosen.is_reversed
        turn = 1 if is_here and not chosen.is_reversed else None
        link = _link("/", filters, sort=i, minus=None, disagree=None, turn=turn)
        return {
            "name": column.name,
            "sorted": ("ascending" if rises else "descending") if is_here else "",
            "link": link,
        }

    def _row(self, q: int, filters: dict[str, str]) -> dict[str, Any]:
        cases = self.cases
        notes = ["fallback"] * bool(cases.is_fallback[:, q].any()) + ["not proven"] * bool(cases.is_inexact[:, q].any())
        most = int(cases.ties[:, q].max(initial=0))
        notes += [f"{most:,} ties"] * (most > 1)
        return {
            "place": q + 1,
            "id": cases.ids[q],
            "scores": [float(column.values[q]) for column in cases.columns],
            "differ": int(cases.disagreement[q]) or "",
            "notes": ", ".join(notes),
            "link": _link(f"/case/{q}", filters),
        }

    def _histogram(self, i: int, order: np.ndarray, filters: dict[str, str]) -> dict[str, Any]:
        column = self.cases.columns[i]
        known = column.values[order]
        known = known[np.isfinite(known)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        counts, edges = np.histogram(known, BARS, (low, high if high > low else low + 1e-9))
        most = max(int(counts.max()), 1)
        bars = [
            {
                "x": round(5 * b + 0.3, 2),
                "height": round(38 * int(n) / most, 2),
                "n": int(n),
                "low": float(edges[b]),
                "high": float(edges[b + 1]),
                "link": _link("/", filters, column=i, low=repr(float(edges[b])), high=repr(float(edges[b + 1]))),
            }
            for b, n in enumerate(counts)
        ]
        mean = float(known.mean()) if len(known) else None
        return {"name": column.name, "n": len(known), "mean": mean, "low": low, "high": high, "bars": bars}

    def rows_csv(self, request: Request) -> Response:
        """Give the rows of the address as CSV, all pages."""
        _, chosen = self._asked(request)
        held = io.StringIO()
        writer = csv.writer(held, lineterminator="\n")
        writer.writerow(["position", "query_id", *(column.name for column in self.cases.columns), "oracles_differ"])
        for q in self.cases.choose(chosen).tolist():
            values = [float(column.values[q]) for column in self.cases.columns]
            shown = ["" if value != value else repr(value) for value in values]
            writer.writerow([q + 1, self.cases.ids[q], *shown, int(self.cases.disagreement[q])])
        headers = {"content-disposition": 'attachment; filename="rows.csv"'}
        return Response(held.getvalue().encode("utf-8", "replace"), 200, headers, "text/csv; charset=utf-8")

    async def words_post(self, request: Request) -> Response:
        """Keep words that are searched for, and lead to the rows with them."""
        given = {key: str(value) for key, value in (await posted(request)).items()}
        filters = {key: given[key] for key in FILTERS if given.get(key)}
        words = given.get("text", "").strip()
        if words and words not in self.searched:
            self.searched.append(words)
        place = self.searched.index(words) if words else None
        return RedirectResponse(_link("/", filters, words=place), 303)

    # One test report

    def case(self, request: Request) -> Response:
        """Show a test report beside what the files give for it."""
        cases, q = self.cases, request.path_params["q"]
        if q >= len(cases.ids):
            return PlainTextResponse("404\n", 404)
        given, chosen = self._asked(request)
        filters = {key: given[key] for key in FILTERS if key in given}
        kinds = kinds_of(cases)
        kind = kinds[_integer(given.get("show", "0"), "show", len(kinds) - 1)]
        rank = max(1, _integer(given.get("rank", "1"), "rank", 1 << 60))
        beside = {key: given[key] for key in (*FILTERS, "show", "rank") if key in given}
        order = cases.choose(chosen)
        found = np.flatnonzero(order == q)
        at = int(found[0]) if len(found) else None
        with self._working:
            groups = self._groups(q, rank, kind)
        keys = [DIFF[0] if name == DIFF else str(i + 1) for i, name in enumerate(kinds)]
        titles = ["plain words" if name == DIFF else name for name in kinds]
        return self._page(
            "case.html",
            "",
            place=q + 1,
            id=cases.ids[q],
            reference=cases.reference(q),
            groups=groups,
            kind=kind,
            kinds=[
                {"name": name, "title": title, "key": key, "link": _link(f"/case/{q}", beside, show=i)}
                for i, (name, title, key) in enumerate(zip(kinds, titles, keys, strict=True))
            ],
            rank=rank,
            ranks=[
                {"rank": r, "link": _link(f"/case/{q}", beside, rank=r)} for r in range(1, min(cases.ranks(q), 20) + 1)
            ],
            at="" if at is None else f"{at + 1:,} of {len(order):,}",
            previous=_link(f"/case/{order[at - 1]}", beside) if at else "",
            next=_link(f"/case/{order[at + 1]}", beside) if at is not None and at + 1 < len(order) else "",
            back=_link("/", filters, page=None if at is None else at // ROWS + 1),
        )

    def _groups(self, q: int, rank: int, kind: str) -> list[dict[str, Any]]:
        """Return the candidates of all files, those with equal texts together."""
        together: dict[Any, list[Candidate]] = {}
        for candidate in self.cases.candidates(q, rank):
            key: Any = candidate.text if candidate.text is not None else (candidate.row, candidate.source)
            together.setdefault(key, []).append(candidate)
        rows = list(dict.fromkeys(one.row for group in together.values() for one in group if one.row >= 0))
        scores = self.cases.cross_scores(q, rows)
        return [self._group(q, group, scores, kind) for group in together.values()]

    def _group(self, q: int, group: Sequence[Candidate], scores: dict[int, Any], kind: str) -> dict[str, Any]:
        columns = self.cases.columns
        row = next((one.row for one in group if one.row >= 0), -1)
        first = next((one for one in group if one.row == row), group[0])
        own = {
            columns[c].metric: one.score if one.score is not None else float(columns[c].values[q])
            for one in group
            for c in one.columns
        }
        found = {**scores.get(row, {}), **own}
        names = [columns[c].name for one in group for c in one.columns[:1]]
        if first.score is None:
            names = list(dict.fromkeys(columns[c].system for one in group for c in one.columns))
        return {
            "names": names,
            "row": row,
            "candidate_id": first.candidate_id,
            "ties": [f"{columns[one.columns[0]].metric}: {one.n_ties:,} rows tie" for one in group if one.n_ties > 1],
            "is_fallback": any(one.is_fallback for one in group),
            "is_exact": all(one.is_exact for one in group),
            "scores": [(name, value, name in own) for name, value in found.items()],
            "evidence": exhibit(self.cases, q, first.text, row, kind),
        }

    # Systems

    def systems(self, request: Request) -> Response:
        """Show the mean of every file, and where each is furthest from the oracle of its metric."""
        rows = []
        for i, oracle in self.cases.systems():
            column = self.cases.columns[i]
            known = column.values[np.isfinite(column.values)]
            row = {
                "system": column.system, "metric": column.metric, "is_higher_better": column.is_higher_better,
                "n": len(known), "mean": float(known.mean()) if len(known) else None, "link": "", "gap": None,
                "worst": [],
            }  # fmt: skip
            if oracle is not None:
                gap = np.abs(self.cases.columns[oracle].values - column.values)
                filters = {"sort": str(oracle), "minus": str(i)}
                worst = self.cases.choose(Chosen(sort=oracle, minus=i))[:5].tolist()
                row |= {"link": _link("/", filters), "gap": float(np.nanmean(gap)) if np.isfinite(gap).any() else None}
                row["worst"] = [(q + 1, _link(f"/case/{q}", filters)) for q in worst]
            rows.append(row)
        return self._page("systems.html", "Systems", systems=rows, has_figure=False, figure_note="")

    # Live queries

    @cached_property
    def _live_metrics(self) -> list[str]:
        """Metrics of the index that read nothing but the text."""
        kinds = {kind for kind, record in REPRESENTATIONS.items() if record.source == "text"}
        held = self.cases.index.metrics if self.cases.index is not None else []
        return [name for name in held if set(METRICS[name].representations) <= kinds]

    def _live_page(self, text: str, asked: Sequence[str], groups: list[dict[str, Any]] | None, took: str) -> Response:
        index = self.cases.index
        return self._page(
            "live.html", "Live query", text=text, asked=asked, groups=groups, took=took, metrics=self._live_metrics,
            n_reports=0 if index is None else index.n_reports,
        )  # fmt: skip

    def live(self, request: Request) -> Response:
        """Show the form of a live query."""
        return self._live_page("", [name for name in ("bleu-2", "rouge-l") if name in self._live_metrics], None, "")

    async def live_post(self, request: Request) -> Response:
        """Search the oracles of a report that was typed."""
        given = await posted(request)
        return await run_in_threadpool(self._search, given)

    def _search(self, given: dict[str, Any]) -> Response:
        index = self.cases.index
        asked = [name for name in self._live_metrics if given.get(f"metric:{name}")]
        text = str(given.get("text", "")).replace("\r\n", "\n")
        if index is None or not asked:
            msg = "explore: metrics must be at least one of those shown; got none. Tick one."
            raise InputError(msg)
        begun = perf_counter()
        with self._working:
            batch = api.load_queries([text])
            groups = [self._answer(batch, name, text) for name in asked]
        took = f"{len(asked)} searches of {index.n_reports:,} reports in {1000 * (perf_counter() - begun):.0f} ms"
        return self._live_page(text, asked, groups, took)

    def _answer(self, batch: Any, name: str, text: str) -> dict[str, Any]:
        best = api.retrieve(self.cases.index, batch, name).table.to_pylist()[0]  # type: ignore[arg-type]
        ties = [f"{best['n_ties']:,} rows tie"] if best["n_ties"] > 1 else []
        return {
            "names": [f"{name} {best['score']:.4f}"],
            "row": best["row"],
            "candidate_id": best["candidate_id"],
            "ties": ties,
            "evidence": [(name, exhibit_texts(text, best["text"], METRICS[name]))],
        }


def _link(path: str, filters: dict[str, str], **changes: Any) -> str:
    """Return an address with some of its numbers changed; None takes one away."""
    found = {**filters, **changes}
    query = urlencode({key: value for key, value in found.items() if value is not None})
    return f"{path}?{query}" if query else path
