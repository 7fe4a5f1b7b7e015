"""The explorer: test reports, one report with its oracles and their evidence, systems, live queries.

Addresses contain positions and numbers only. Ids to go to, words to search for and reports to query are sent as forms,
so that they do not appear in logs or in the history of a browser; the server keeps the words in memory, and addresses
refer to them by number. Pages name test reports by their ids.
"""

import csv
import dataclasses
import io
import json
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from time import perf_counter
from typing import Any
from urllib.parse import urlencode

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from metric_oracle.copies.measure import LONG, NOVELTY
from metric_oracle.copies.overlap import LIMITS
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.errors import InputError, MetricOracleError
from metric_oracle.explorer.case import display, groups, phrases, without_reports
from metric_oracle.explorer.cases import Cases, Chosen
from metric_oracle.explorer.evidence import Segment
from metric_oracle.explorer.exhibits import DIFF, exhibit_texts, kinds_of
from metric_oracle.explorer.figures import PageSection, sections
from metric_oracle.explorer.first_page import Strip, Telling, alone, copies_of, telling
from metric_oracle.explorer.first_page import strips as find_strips
from metric_oracle.explorer.first_page_view import SHAPES, alone_sentence, copies_sentence, places, verdicts
from metric_oracle.explorer.images import TYPES, Images
from metric_oracle.explorer.opposites import marked
from metric_oracle.explorer.rows import fits, headings, informative, main_metric, rows, shown_columns
from metric_oracle.findings.signature import short_signature
from metric_oracle.metrics import METRICS, REPRESENTATIONS
from metric_oracle.reading import reports
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.web.render import page, templates
from metric_oracle.web.server import posted

ROWS = 50  # test reports per page
FURTHEST = 3  # test reports that are named for each system, on either side of the oracle
BARS = 20  # bars per histogram
_FLAGS = {
    "files": "is_file_order", "turn": "is_reversed", "fallback": "only_fallback", "inexact": "only_inexact",
    "rated": "only_rated", "all": "is_every_column",
}  # fmt: skip
_COUNTS = {"ties": "ties_over"}
_COLUMNS = {"sort": "sort", "minus": "minus", "column": "column"}
_VIEW = {"sort", "minus", "files", "turn", "under", "all"}  # which order and which columns; the others are filters
_NUMBERS = {"low": "low", "high": "high"}
_FORGOTTEN = "The server was started again and no longer has the words that were searched for. Search for them again."
FILTERS = (*_FLAGS, *_COUNTS, *_COLUMNS, *_NUMBERS, "words", "label", "under")


def _integer(text: str, name: str, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= most:
        return int(text)
    raise InputError(f"{name} is not a whole number from 0 to {most}.", "Follow a link of the pages.")


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise InputError(f"{name} is not a finite number.", "Correct it.")
    return value


@dataclass
class Explorer:
    """The explorer's pages."""

    cases: Cases  # without files there are only live queries, which need an index
    searched: list[str] = field(default_factory=list)  # words that were searched for; addresses have their positions
    images: Images | None = None  # images of the studies
    _working: threading.Lock = field(default_factory=threading.Lock)  # one request at a time: kernels use every core

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the server, after the data of the first page is prepared."""
        for name in templates.list_templates(["html"]):
            templates.get_template(name)
        self.cases.prepare()
        for name in ("_strips", "_alone", "_telling") if self.cases.columns else ():
            getattr(self, name)
        if not self.cases.columns:
            return [Route("/", self.live), *self._live_routes()]
        paths: list[BaseRoute] = [
            Route("/", self.overview),
            Route("/cases", self.list_cases),
            Route("/rows.csv", self.rows_csv),
            Route("/words", self.words_post, methods=["POST"]),
            Route("/study", self.study_post, methods=["POST"]),
            Route("/case/{q:int}", self.case),
            Route("/case/{q:int}.json", self.case_json),
            Route("/case/{q:int}/image", self.image),
            Route("/case/{q:int}/image/{file:int}/{rank:int}", self.image),
            *([] if self.cases.copied is None else [Route("/copies", self.copies)]),
            Route("/systems", self.systems),
            Route("/systems.csv", self.systems_csv),
            Route("/systems/{key}.svg", self.figure),
        ]
        if self.cases.index is not None:
            paths += [Route("/live", self.live), *self._live_routes()]
        return paths

    def _live_routes(self) -> list[BaseRoute]:
        return [Route(path, self.live_post, methods=["POST"]) for path in ("/live", "/live.json")]

    @cached_property
    def _frame(self) -> dict[str, Any]:
        """Values of the page template that all pages share: tabs, signatures of the files, and the index."""
        tabs = [("Overview", "/"), ("Test reports", "/cases"), ("Systems", "/systems")]
        tabs += [("Copies", "/copies")] * (self.cases.copied is not None)
        tabs = tabs if self.cases.columns else []
        index = self.cases.index
        if index is not None:
            tabs.append(("Live query", "/live" if tabs else "/"))
        line = "" if index is None else f"index {index.fingerprint[:12]}, {index.n_reports:,} reports"
        signatures = list(dict.fromkeys(map(short_signature, self.cases.signatures)))
        return {"tabs": tabs, "has_studies": bool(self.cases.columns), "signatures": signatures, "index_line": line}

    def _page(self, name: str, tab: str, **values: Any) -> Response:
        return page(name, tab=tab, **self._frame, **values)

    # List of test reports

    def _read_filters(self, query: dict[str, str]) -> Chosen:
        """Return the filters and the order from the parameters of an address; raise InputError for a wrong value."""
        last = len(self.cases.columns) - 1
        filters: dict[str, Any] = {name: query.get(key) == "1" for key, name in _FLAGS.items()}
        filters |= {name: _integer(query[key], key, last) for key, name in _COLUMNS.items() if query.get(key)}
        filters |= {name: _integer(query[key], key, 1 << 60) for key, name in _COUNTS.items() if query.get(key)}
        filters |= {name: _number(query[key], key) for key, name in _NUMBERS.items() if query.get(key)}
        if query.get("under"):
            filters["under"] = _integer(query["under"], "under", len(self.cases.metric_names) - 1)
        if query.get("label"):
            filters["label"] = _integer(query["label"], "label", len(LABELS) - 1)
        if query.get("words"):
            filters["words"] = self.searched[_integer(query["words"], "words", len(self.searched) - 1)]
        return Chosen(**filters)

    def _read_query(self, request: Request) -> tuple[dict[str, str], Chosen]:
        query = {key: value for key, value in request.query_params.items() if value}
        words = query.get("words", "")
        if words.isascii() and words.isdigit() and int(words[:18]) >= len(self.searched):
            del query["words"]  # of a server that ran earlier
        return query, self._read_filters(query)

    def overview(self, request: Request) -> Response:
        """Show what the files say about each metric, and up to four test reports that `finding.telling` chooses."""
        cases, strips = self.cases, self._strips
        differ = int((cases.disagreement > 1).sum())
        titles = {strip.metric: strip.title for strip in strips}
        return self._page(
            "overview.html",
            "Overview",
            n_all=len(cases.ids),
            verdicts=verdicts(strips),
            copies=copies_sentence(self._copies, strips, cases.index is not None and cases.queries is not None),
            differ=alone_sentence(self._alone, titles, differ, len(cases.ids)),
            strips=[(strip, places(strip)) for strip in strips],
            shapes=SHAPES,
            cards=[self._card(card) for card in self._telling],
        )

    def _card(self, card: Telling) -> dict[str, Any]:
        """Return what the first page shows of a test report; with `phrases` if words of both texts are marked."""
        reference, texts = self.cases.reference(card.q), card.texts
        return {
            "rule": card.rule,
            "id": self.cases.ids[card.q],
            "link": f"/case/{card.q}",
            "reference": reference,
            "texts": texts,
            "phrases": None
            if card.places is None
            else [
                phrases(marked([Segment(text or "")], places))
                for text, places in zip((reference, texts[0][1]), card.places, strict=True)
            ],
        }

    @cached_property
    def _strips(self) -> list[Strip]:
        return find_strips(self.cases, self._copies)

    @cached_property
    def _copies(self) -> np.ndarray | None:
        return copies_of(self.cases)

    @cached_property
    def _alone(self) -> list[tuple[str, int]]:
        return alone(self.cases)

    @cached_property
    def _telling(self) -> list[Telling]:
        return telling(self.cases, self._strips)

    def list_cases(self, request: Request) -> Response:
        """Show a page of the list of test reports, with the filters and in the order of the address."""
        query, chosen = self._read_query(request)
        forgotten = "words" in request.query_params and not chosen.words
        return self._list(query, chosen, _FORGOTTEN if forgotten else "")

    def _list(self, query: dict[str, str], chosen: Chosen, message: str = "", status: int = 200) -> Response:
        order = self.cases.choose(chosen)
        pages = max(1, -(-len(order) // ROWS))
        number = min(_integer(query.get("page", "1"), "page", 1 << 60), pages) or 1
        shown = order[(number - 1) * ROWS : number * ROWS]
        filters = {key: query[key] for key in FILTERS if key in query}
        columns, known = shown_columns(self.cases, chosen), informative(self.cases)
        constant = [column.name for i, column in enumerate(self.cases.columns) if i not in known]
        page = self._page(
            "cases.html",
            "Test reports",
            total=len(order),
            n_all=len(self.cases.ids),
            message=message,
            is_filtered=bool(set(filters) - _VIEW),
            kept=[(key, value) for key, value in filters.items() if key in {*_VIEW, "words"}],
            all_kept=list(filters.items()),
            chosen=chosen,
            has_ratings=self.cases.rated is not None,
            labels=[] if self.cases.positive is None else LABELS,
            columns=self.cases.columns,
            headings=headings(self.cases, chosen, partial(_link, "/cases", filters)),
            histograms=[self._histogram(i, order, filters) for i in columns],
            views=[] if fits(self.cases, known) else self._views(chosen, filters, len(known)),
            constant=constant,
            rows=rows(self.cases, shown.tolist(), chosen, lambda q: _link(f"/case/{q}", filters)),
            page=number,
            pages=pages,
            previous=_link("/cases", filters, page=number - 1) if number > 1 else "",
            next=_link("/cases", filters, page=number + 1) if number < pages else "",
            csv_link=_link("/rows.csv", filters),
            orders=[
                ("disagreement", _link("/cases", filters, sort=None, minus=None, turn=None, files=None)),
                ("order of the files", _link("/cases", filters, sort=None, minus=None, turn=None, files=1)),
            ],
        )
        page.status_code = status
        return page

    def _views(self, chosen: Chosen, filters: dict[str, str], n: int) -> list[tuple[str, str, bool]]:
        """Return the choices of columns: name, address, and whether it is shown; `n` is the number of all columns."""
        usual = shown_columns(self.cases, Chosen())
        has_usual = len({self.cases.columns[i].metric for i in usual}) > 1
        is_usual = has_usual and chosen.under is None and not chosen.is_every_column
        only = "" if is_usual or chosen.is_every_column else main_metric(self.cases, chosen)
        return [
            *([("models and oracles", _link("/cases", filters, under=None, all=None), is_usual)] if has_usual else []),
            *(
                (metric, _link("/cases", filters, under=i, all=None), metric == only)
                for i, metric in enumerate(self.cases.metric_names)
            ),
            (f"all {n} columns", _link("/cases", filters, under=None, all=1), chosen.is_every_column),
        ]

    def _histogram(self, i: int, order: np.ndarray, filters: dict[str, str]) -> dict[str, Any]:
        column = self.cases.columns[i]
        scored = column.values[order]
        scored = scored[np.isfinite(scored)]
        low, high = (float(scored.min()), float(scored.max())) if len(scored) else (0.0, 1.0)
        counts, edges = np.histogram(scored, BARS, (low, high if high > low else low + 1e-9))
        most = max(int(counts.max()), 1)
        bars = [
            {
                "x": round(5 * b + 0.3, 2),
                "height": round(38 * int(n) / most, 2),
                "n": int(n),
                "low": float(edges[b]),
                "high": float(edges[b + 1]),
                "link": _link("/cases", filters, column=i, low=repr(float(edges[b])), high=repr(float(edges[b + 1]))),
            }
            for b, n in enumerate(counts)
        ]
        mean = float(scored.mean()) if len(scored) else None
        return {"name": column.name, "n": len(scored), "mean": mean, "low": low, "high": high, "bars": bars}

    def rows_csv(self, request: Request) -> Response:
        """Return all rows of the list as CSV, with the filters and in the order of the address."""
        _, chosen = self._read_query(request)
        rows: list[list[Any]] = [["query_id", *(c.name for c in self.cases.columns), "oracles_differ"]]
        for q in self.cases.choose(chosen).tolist():
            values = [_or_none(float(column.values[q])) for column in self.cases.columns]
            rows.append([self.cases.ids[q], *values, int(self.cases.disagreement[q])])
        return _csv(rows, "rows.csv")

    async def words_post(self, request: Request) -> Response:
        """Store words to search for, and redirect to the list of test reports that contain them."""
        form = {key: str(value) for key, value in (await posted(request)).items()}
        filters = {key: form[key] for key in FILTERS if form.get(key)}
        words = form.get("text", "").strip()
        if words and words not in self.searched:
            self.searched.append(words)
        position = self.searched.index(words) if words else None
        return RedirectResponse(_link("/cases", filters, words=position), 303)

    async def study_post(self, request: Request) -> Response:
        """Redirect to the page of the test report with the id that was typed in, or say that there is none."""
        typed = str((await posted(request)).get("study", ""))
        for study in (typed, typed.strip()):
            if study in self._place:
                return RedirectResponse(f"/case/{self._place[study]}", 303)
        return await run_in_threadpool(self._list, {}, Chosen(), f"No test report has the id “{typed[:60]}”.", 404)

    # One test report

    def case(self, request: Request) -> Response:
        """Show a test report next to the candidates of all files."""
        cases, q = self.cases, request.path_params["q"]
        if q >= len(cases.ids):
            raise HTTPException(404)
        query, chosen = self._read_query(request)
        filters = {key: query[key] for key in FILTERS if key in query}
        kinds = kinds_of(cases)
        kind = kinds[_integer(query["show"], "show", len(kinds) - 1)] if "show" in query else None
        rank = self._rank(query.get("rank", ""))
        kept_query = {key: query[key] for key in (*FILTERS, "show", "rank") if key in query}
        picked = _integer(query.get("pick", "1"), "pick", 1 << 60)
        order = cases.choose(chosen)
        positions = np.flatnonzero(order == q)
        at = int(positions[0]) if len(positions) else None
        with self._working:
            shown_groups, scores_only = without_reports(groups(cases, q, rank, kind))
            samples = cases.samples_of(q)
            copies = cases.copies_of(q)
        keys = [DIFF[0] if name == DIFF else str(i + 1) if i < 9 else "" for i, name in enumerate(kinds)]
        titles = ["plain words" if name == DIFF else name for name in kinds]
        return self._page(
            "case.html",
            "",
            id=cases.ids[q],
            reference=cases.reference(q),
            groups=shown_groups,
            unread_metrics=list(dict.fromkeys(name for group in scores_only for name, *_ in group["scores"])),
            unread=[
                (", ".join(group["names"]), {name: score for name, score, _ in group["scores"]})
                for group in scores_only
            ],
            image=self._image_link(q, cases.ids[q]),
            images=[
                self._image_link(q, g["candidate_id"], f"/{g['file']}/{rank}") if g["row"] >= 0 else ""
                for g in shown_groups
            ],
            picked=min(max(picked, 1), len(shown_groups)),
            pick_links=[_link(f"/case/{q}", kept_query, pick=i + 1) for i in range(len(shown_groups))],
            samples=samples,
            copies=[
                {**copied, "report": phrases(copied["report"]), "training": phrases(copied["training"])}
                for copied in copies
            ],
            kinds=[
                {
                    "title": "each by its own metric",
                    "key": "0",
                    "link": _link(f"/case/{q}", kept_query, show=None),
                    "is_shown": kind is None,
                },
                *(
                    {
                        "title": title,
                        "key": key,
                        "link": _link(f"/case/{q}", kept_query, show=i),
                        "is_shown": name == kind,
                    }
                    for i, (name, title, key) in enumerate(zip(kinds, titles, keys, strict=True))
                ),
            ],
            rank=rank,
            ranks=[
                {"rank": r, "link": _link(f"/case/{q}", kept_query, rank=r)}
                for r in range(1, min(cases.ranks(q), 20) + 1)
            ],
            at="" if at is None else f"{at + 1:,} of {len(order):,}",
            previous=_link(f"/case/{order[at - 1]}", kept_query) if at else "",
            next=_link(f"/case/{order[at + 1]}", kept_query) if at is not None and at + 1 < len(order) else "",
            back=_link("/cases", filters, page=None if at is None else at // ROWS + 1),
            json_link=_link(f"/case/{q}.json", {"rank": str(rank)}),
        )

    def copies(self, request: Request) -> Response:
        """Show what each set of reports shares with training reports, the longest shared runs first."""
        copied: Any = self.cases.copied
        sets, query = copied.sets, {key: value for key, value in request.query_params.items() if value}
        chosen = _integer(query["set"], "set", len(sets) - 1) if "set" in query else None
        filters = {} if chosen is None else {"set": str(chosen)}
        number = _integer(query.get("page", "1"), "page", 1 << 60) or 1
        total, _ = copied.worst(None if chosen is None else sets[chosen], 0, 0)
        pages = max(1, -(-total // ROWS))
        number = min(number, pages)
        _, shown = copied.worst(None if chosen is None else sets[chosen], (number - 1) * ROWS, ROWS)
        for row in shown:
            row["place"] = self._place.get(row["query_id"])
        return self._page(
            "copies.html",
            "Copies",
            summary=copied.summary(),
            is_masked=bool(copied.signature.get("masked")),
            limits=(LIMITS[0], LONG, NOVELTY),
            total=total,
            rows=shown,
            sets=[("all", _link("/copies", {}), chosen is None)]
            + [(name, _link("/copies", {}, set=i), chosen == i) for i, name in enumerate(sets)],
            page=number,
            pages=pages,
            previous=_link("/copies", filters, page=number - 1) if number > 1 else "",
            next=_link("/copies", filters, page=number + 1) if number < pages else "",
        )

    @cached_property
    def _place(self) -> dict[str, int]:
        """The position of each test report, by its id."""
        return {study: q for q, study in enumerate(self.cases.ids)}

    def _image_link(self, q: int, study: str, which: str = "") -> str:
        """Return the address of the image of `study` on the page of test report `q`, "" if there is none.

        `which` is the end of the address: "" for the test report's own image, "/file/rank" for a candidate's.
        """
        is_there = self.images is not None and self.images.of(study) is not None
        return f"/case/{q}/image{which}" if is_there else ""

    def image(self, request: Request) -> Response:
        """Return the image of a test report, or of a candidate for it."""
        cases, at = self.cases, request.path_params
        study, path = "", None
        if at["q"] < len(cases.ids) and "file" not in at:
            study = cases.ids[at["q"]]
        elif at["q"] < len(cases.ids) and at["file"] < len(cases.joined) and at["rank"]:
            best = cases.candidate_of(at["file"], at["q"], at["rank"])
            study = "" if best is None else best.candidate_id
        if self.images is not None:
            path = self.images.of(study)
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type=TYPES[path.suffix.lower()])

    def _rank(self, text: str) -> int:
        return max(1, _integer(text or "1", "rank", 1 << 60))

    def case_json(self, request: Request) -> Response:
        """Return the content of a test report's page as JSON."""
        cases, q = self.cases, request.path_params["q"]
        if q >= len(cases.ids):
            raise HTTPException(404)
        rank = self._rank(request.query_params.get("rank", ""))
        with self._working:
            candidates = groups(cases, q, rank)
            samples = cases.samples_of(q)
            copies = cases.copies_of(q)
        record = {"query_id": cases.ids[q], "rank": rank, "reference": cases.reference(q)}
        if samples is not None:
            record["samples"] = [
                {
                    **row,
                    "scores": {name: score for name, (score, _) in zip(samples["metrics"], row["scores"], strict=True)},
                }
                for row in samples["rows"]
            ]
        if copies:
            record["copies"] = [
                {
                    **copied,
                    "scores": dict(copied["scores"]),
                    **{
                        side: [dataclasses.asdict(segment) for segment in copied[side]]
                        for side in ("report", "training")
                    },
                }
                for copied in copies
            ]
        name = re.sub(r"[^A-Za-z0-9._-]", "_", cases.ids[q])[:80]
        return _download({**record, "candidates": [_plain(group) for group in candidates]}, f"report-{name}.json")

    # Systems

    def systems(self, request: Request) -> Response:
        """Show each metric's systems on one axis, their differences from the oracle, and the other figures.

        The figures are computed on the first request only.
        """
        with self._working:
            figures = self._sections
        rows = self._systems()
        strips = [
            (strip, places(strip), [row for row in rows if row["metric"] == strip.metric]) for strip in self._strips
        ]
        return self._page("systems.html", "Systems", strips=strips, shapes=SHAPES, sections=figures)

    def systems_csv(self, request: Request) -> Response:
        """Return the content of the page of systems as CSV."""
        names = "system metric better reports mean mean_low mean_high difference difference_low difference_high"
        furthest_names = [f"furthest_{side}_{i}" for side in ("below", "above") for i in range(1, FURTHEST + 1)]
        rows: list[list[Any]] = [[*names.split(), *furthest_names]]
        for row in self._systems():
            ends = [*(row["ends"] or (None, None)), row["difference"], *(row["difference_ends"] or (None, None))]
            furthest = []
            for side in ("below", "above"):
                studies = [study for study, _ in row[side]]
                furthest += [*studies, *[""] * (FURTHEST - len(studies))]
            better = "higher" if row["is_higher_better"] else "lower"
            rows.append([row["system"], row["metric"], better, row["n"], row["mean"], *ends, *furthest])
        return _csv(rows, "systems.csv")

    def _systems(self) -> list[dict[str, Any]]:
        marks = {mark.column: mark for strip in self._strips for mark in strip.marks}
        rows = []
        for i, oracle in self.cases.systems():
            column, mark = self.cases.columns[i], marks.get(i)
            scored = column.values[np.isfinite(column.values)]
            row: dict[str, Any] = {
                "system": column.system, "metric": column.metric, "role": column.role,
                "is_higher_better": column.is_higher_better,
                "n": len(scored), "mean": float(scored.mean()) if len(scored) else None,
                "ends": mark.ends[:2] if mark and mark.ends else None,
                "difference": None, "difference_ends": None, "below": [], "above": [],
                "below_link": "", "above_link": "",
            }  # fmt: skip
            if oracle is not None:
                differences = column.values - self.cases.columns[oracle].values
                if np.isfinite(differences).any():
                    row["difference"] = float(np.nanmean(differences))
                if mark and mark.difference and mark.difference.interval:
                    row["difference_ends"] = mark.difference.interval[:2]
                better = differences if column.is_higher_better else -differences
                for side, filters, count in (
                    ("below", {"sort": str(oracle), "minus": str(i)}, int((better < 0).sum())),
                    ("above", {"sort": str(oracle), "minus": str(i), "turn": "1"}, int((better > 0).sum())),
                ):
                    furthest = self.cases.choose(self._read_filters(filters))[: min(count, FURTHEST)].tolist()
                    row[side] = [(self.cases.ids[q], _link(f"/case/{q}", filters)) for q in furthest]
                    row[f"{side}_link"] = _link("/cases", filters)
            rows.append(row)
        return rows

    @cached_property
    def _sections(self) -> list[PageSection]:
        return sections(self.cases)

    def figure(self, request: Request) -> Response:
        """Return one figure as SVG."""
        with self._working:
            figures = {section.key: section.svg for section in self._sections if section.svg}
        svg = figures.get(request.path_params["key"])
        if svg is None:
            raise HTTPException(404)
        return Response(svg, media_type="image/svg+xml")

    # Live queries

    @cached_property
    def _live_metrics(self) -> list[str]:
        """Metrics of the index that read only texts.

        Metrics with weights from the set of references (CIDEr-D) are left out: with one reference, all weights are 0.
        """
        kinds = {kind for kind, record in REPRESENTATIONS.items() if record.is_of_texts}
        available = self.cases.index.metrics if self.cases.index is not None else []
        return [name for name in available if set(METRICS[name].representations) <= kinds and METRICS[name].composable]

    def _live_page(
        self,
        text: str,
        names: Sequence[str],
        groups: list[dict[str, Any]] | None = None,
        took: str = "",
        error: str = "",
    ) -> Response:
        index = self.cases.index
        return self._page(
            "live.html",
            "Live query",
            text=text,
            asked=names,
            groups=groups,
            took=took,
            error=error,
            metrics=self._live_metrics,
            n_reports=0 if index is None else index.n_reports,
        )

    def live(self, request: Request) -> Response:
        """Show the form of a live query."""
        return self._live_page("", [name for name in ("bleu-2", "rouge-l") if name in self._live_metrics])

    async def live_post(self, request: Request) -> Response:
        """Search for the best reports to a text that was typed in."""
        form = await posted(request)
        is_page = request.url.path == "/live"
        return await run_in_threadpool(self._search, form, is_page)

    def _search(self, form: dict[str, Any], is_page: bool) -> Response:
        index = self.cases.index
        names = [name for name in self._live_metrics if form.get(f"metric:{name}")]
        text = str(form.get("text", "")).replace("\r\n", "\n")
        begun = perf_counter()
        try:
            if index is None or not names:
                raise InputError("no metric is ticked.", "Tick at least one.")
            with self._working:
                batch = reports([text]).load()
                answers = [self._answer(batch, name, text) for name in names]
        except MetricOracleError as error:
            if not is_page:
                raise
            return self._live_page(text, names, error=str(error))
        if not is_page:
            return _download({"query": text, "candidates": [_plain(group) for group in answers]}, "live.json")
        took = f"{len(names)} searches of {index.n_reports:,} reports in {1000 * (perf_counter() - begun):.0f} ms"
        return self._live_page(text, names, answers, took)

    def _answer(self, batch: Any, name: str, text: str) -> dict[str, Any]:
        best = retrieve(self.cases.index, batch, name).table.to_pylist()[0]  # type: ignore[arg-type]
        ties = [f"{best['n_ties']:,} rows tie"] if best["n_ties"] > 1 else []
        return {
            "names": [name],
            "row": best["row"],
            "candidate_id": best["candidate_id"],
            "text": best["text"],
            "ties": ties,
            "is_fallback": best["fallback"],
            "is_exact": best["exact"],
            "scores": [(name, best["score"], True)],
            "rated": [],
            "opposites": [],
            **display(text, best["text"], [(name, exhibit_texts(text, best["text"], METRICS[name]))]),
        }


def _link(path: str, filters: dict[str, str], **changes: Any) -> str:
    """Return an address whose parameters are `filters` with `changes`; None removes a parameter."""
    parameters = {**filters, **changes}
    query = urlencode({key: value for key, value in parameters.items() if value is not None})
    return f"{path}?{query}" if query else path


# Downloads


def _or_none(value: float | None) -> float | None:
    return None if value is None or value != value else value


def _csv(rows: Iterable[Sequence[Any]], name: str) -> Response:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return _attachment(buffer.getvalue(), name, "text/csv")


def _download(record: dict[str, Any], name: str) -> Response:
    return _attachment(
        json.dumps(record, ensure_ascii=False, indent=2, default=np.generic.item), name, "application/json"
    )


def _attachment(text: str, name: str, kind: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "replace"), 200, headers, f"{kind}; charset=utf-8")


def _plain(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group of candidates as a JSON record; a score that is not known is None."""
    scores = {name: _or_none(value) for name, value, _ in group["scores"]}
    evidence = {
        kind: shown if isinstance(shown, str) else dataclasses.asdict(shown) for kind, shown in group["evidence"]
    }
    fields = {name: group[name] for name in ("names", "row", "candidate_id", "text", "ties")}
    return {**fields, "scores": scores, "evidence": evidence, "rated": group["rated"]}
