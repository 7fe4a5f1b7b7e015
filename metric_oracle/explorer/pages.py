"""The explorer: test reports, one report with its oracles and their evidence, systems, live queries.

Addresses contain positions and numbers only. Ids to go to, words to search for and reports to query are sent as forms,
so that they do not appear in logs or in the history of a browser; the server keeps the words in memory, and addresses
refer to them by number. Pages name test reports by their ids.

Each page is a view, a dict of what it shows, which its template renders and its download gives.
"""

import re
import threading
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from metric_oracle.base.errors import MetricOracleError
from metric_oracle.explorer import page_views
from metric_oracle.explorer.addresses import FILTERS, Address, link, read_address
from metric_oracle.explorer.case import case, details
from metric_oracle.explorer.cases import Cases
from metric_oracle.explorer.images import TYPES, Images
from metric_oracle.explorer.table import rows_of_table, table
from metric_oracle.findings.signature import short_signature
from metric_oracle.web.render import export, page, templates
from metric_oracle.web.server import posted

_FORGOTTEN = "The server was started again and no longer has the words that were searched for. Search for them again."


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
        asked = [Route(path, self.live_post, methods=["POST"]) for path in ("/live", "/live.json")]
        if not self.cases.columns:
            return [Route("/", self.live), *asked]
        _ = self._overview  # found before the first request
        paths: list[BaseRoute] = [
            Route("/", self.overview),
            Route("/cases", self.table),
            Route("/rows.csv", self.rows_csv),
            Route("/words", self.words_post, methods=["POST"]),
            Route("/study", self.study_post, methods=["POST"]),
            Route("/case/{q:number}", self.case),
            Route("/case/{q:number}.json", self.case_json),
            Route("/case/{q:number}/image", self.image),
            Route("/case/{q:number}/image/{file:number}/{rank:number}", self.image),
            *([] if self.cases.copied is None else [Route("/copies", self.copies)]),
            Route("/systems", self.systems),
            Route("/systems.csv", self.systems_csv),
            Route("/systems/{key}.svg", self.figure),
        ]
        return [*paths, *([] if self.cases.index is None else [Route("/live", self.live), *asked])]

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

    def _page(self, name: str, tab: str, view: dict[str, Any], status: int = 200) -> Response:
        return page(name, status, tab=tab, **self._frame, **view)

    def _address(self, request: Request) -> Address:
        return read_address(request.query_params, self.cases, self.searched)

    def overview(self, request: Request) -> Response:
        """Show the first page."""
        return self._page("overview.html", "Overview", self._overview)

    @cached_property
    def _overview(self) -> dict[str, Any]:
        return page_views.overview(self.cases)

    # List of test reports

    def table(self, request: Request) -> Response:
        """Show a page of the list of test reports, with the filters and in the order of the address."""
        address = self._address(request)
        is_forgotten = request.query_params.get("words") and "words" not in address.parameters
        return self._table(address, _FORGOTTEN if is_forgotten else "")

    def _table(self, address: Address, message: str = "", status: int = 200) -> Response:
        return self._page("cases.html", "Test reports", {**table(self.cases, address), "message": message}, status)

    def rows_csv(self, request: Request) -> Response:
        """Return all rows of the list as CSV, with the filters and in the order of the address."""
        return export(rows_of_table(self.cases, self._address(request)), "rows.csv")

    async def words_post(self, request: Request) -> Response:
        """Store words to search for, and redirect to the list of test reports that contain them."""
        form = {key: str(value) for key, value in (await posted(request)).items()}
        filters = {key: form[key] for key in FILTERS if form.get(key)}
        words = form.get("text", "").strip()[:1000]  # the field takes no more
        if words and words not in self.searched:
            self.searched.append(words)
        position = self.searched.index(words) if words else None
        return RedirectResponse(link("/cases", filters, words=position), 303)

    async def study_post(self, request: Request) -> Response:
        """Redirect to the page of the test report with the id that was typed in, or say that there is none."""
        typed = str((await posted(request)).get("study", ""))
        for study in (typed, typed.strip()):
            if study in self.cases.ids:
                return RedirectResponse(f"/case/{self.cases.ids.index(study)}", 303)
        message = f"No test report has the id “{typed[:60]}”."
        return await run_in_threadpool(self._table, Address(), message, 404)

    # One test report

    def case(self, request: Request) -> Response:
        """Show a test report next to the candidates of all files."""
        q = self._position(request)
        address = self._address(request)
        with self._working:
            view = case(self.cases, q, address, self.images)
        return self._page("case.html", "", view)

    def case_json(self, request: Request) -> Response:
        """Return what a test report's page shows as JSON."""
        q = self._position(request)
        rank = self._address(request).integer("rank", 1 << 60)
        with self._working:
            content = details(self.cases, q, max(1, rank or 1))
        name = re.sub(r"[^A-Za-z0-9._-]", "_", self.cases.ids[q])[:80]
        return export(content, f"report-{name}.json")

    def _position(self, request: Request) -> int:
        """Return the position of the test report that an address names."""
        q: int = request.path_params["q"]
        if q >= len(self.cases.ids):
            raise HTTPException(404)
        return q

    def image(self, request: Request) -> Response:
        """Return the image of a test report, or of a candidate for it."""
        cases, q, at = self.cases, self._position(request), request.path_params
        study, path = "", None
        if "file" not in at:
            study = cases.ids[q]
        elif at["file"] < len(cases.joined) and at["rank"]:
            best = cases.candidate_of(at["file"], q, at["rank"])
            study = "" if best is None else best.candidate_id
        if self.images is not None:
            path = self.images.of(study)
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type=TYPES[path.suffix.lower()])

    def copies(self, request: Request) -> Response:
        """Show what each set of reports shares with training reports, the longest shared runs first."""
        return self._page("copies.html", "Copies", page_views.copies(self.cases, self._address(request)))

    # Systems

    def systems(self, request: Request) -> Response:
        """Show each metric's systems on one axis, their differences from the oracle, and the other figures."""
        return self._page("systems.html", "Systems", self._systems())

    def _systems(self) -> dict[str, Any]:
        with self._working:
            return self._found_systems

    @cached_property
    def _found_systems(self) -> dict[str, Any]:
        """The view of the systems; its figures are computed on the first request only."""
        return page_views.systems(self.cases, [strip for strip, _ in self._overview["strips"]])

    def systems_csv(self, request: Request) -> Response:
        """Return the content of the page of systems as CSV."""
        return export(page_views.rows_of_systems(self._systems()["rows"]), "systems.csv")

    def figure(self, request: Request) -> Response:
        """Return one figure as SVG."""
        figures = {section.key: section.svg for section in self._systems()["sections"] if section.svg}
        svg = figures.get(request.path_params["key"])
        if svg is None:
            raise HTTPException(404)
        return Response(svg, media_type="image/svg+xml")

    # Live queries

    def live(self, request: Request) -> Response:
        """Show the form of a live query."""
        ticked = [name for name in ("bleu-2", "rouge-l") if name in page_views.live_metrics(self.cases)]
        return self._page("live.html", "Live query", page_views.live(self.cases, "", ticked))

    async def live_post(self, request: Request) -> Response:
        """Search for the best reports to a text that was typed in."""
        form = await posted(request)
        is_page = request.url.path == "/live"
        return await run_in_threadpool(self._search, form, is_page)

    def _search(self, form: dict[str, Any], is_page: bool) -> Response:
        asked = [name for name in page_views.live_metrics(self.cases) if form.get(f"metric:{name}")]
        view = page_views.live(self.cases, str(form.get("text", "")).replace("\r\n", "\n"), asked)
        begun = perf_counter()
        try:
            with self._working:
                view["candidates"] = page_views.found_live(self.cases, view["query"], asked)
        except MetricOracleError as error:
            if not is_page:
                raise
            view["error"] = self.cases.say(error)
        if not is_page:
            return export({name: view[name] for name in ("query", "candidates")}, "live.json")
        if view["candidates"]:
            took = 1000 * (perf_counter() - begun)
            view["took"] = f"{len(asked)} searches of {view['n_reports']:,} reports in {took:.0f} ms"
        return self._page("live.html", "Live query", view)
