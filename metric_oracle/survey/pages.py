"""The pages of a survey: for each rater an overview and a page a study; every change is saved before it is answered.

The server reads what raters may see and their logs, never the key, so that no answer can name an origin.
"""

import uuid
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from metric_oracle.errors import InputError, MetricOracleError
from metric_oracle.files import write_json
from metric_oracle.survey.folder import Survey, open_cells, read_json
from metric_oracle.survey.log import MOST, ConflictError, Counts, Event, Log, SaveError
from metric_oracle.web.render import page
from metric_oracle.web.server import address, guarded, listen, posted, serve

_FUNCTION = "survey"


class Pages:
    """The handlers of one survey.

    Parameters
    ----------
    survey : Survey
    """

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.logs = {rater: survey.log(rater) for rater in survey.raters}

    def app(self, port: int) -> Starlette:
        """Return the app that serves them on a port."""
        routes = [
            Route("/", self.overview),
            Route("/study/{number:int}", self.study),
            Route("/study/{number:int}", self.form, methods=["POST"]),
            Route("/save", self.save, methods=["POST"]),
        ]
        guests = {link: rater for rater, link in self.survey.links().items()}
        return guarded(routes, port=port, guests=guests)

    def overview(self, request: Request) -> Response:
        """Show how far the rater is, and the way to every study."""
        rater = request.state.guest
        history = self.logs[rater].read()
        studies = [
            {"place": place, "open": sum(self._open(history.latest.get((place, i))) for i in candidates)}
            for place, candidates in self.survey.order(rater)
        ]
        first = next((number for number, study in enumerate(studies, 1) if study["open"]), None)
        left = open_cells(self.survey, history)
        return page("survey.html", rater=rater, survey=self.survey, studies=studies, first=first, left=left)

    def study(self, request: Request) -> Response:
        """Show a study with what the rater saved."""
        rater, (number, place, order) = request.state.guest, self._study(request)
        history = self.logs[rater].read()
        texts = self.survey.studies[place].candidates
        candidates = [
            {"place": i, "text": texts[i], **_shown(history.latest.get((place, i)), self.survey)} for i in order
        ]
        return page(
            "survey_study.html", rater=rater, survey=self.survey, number=number, place=place, candidates=candidates
        )

    async def save(self, request: Request) -> Response:
        """Save what the script sends: 200 once it is on the disk, 409 with the other version, or why not."""
        try:
            given = await posted(request)
            event = await run_in_threadpool(self._log(request, given).save, given)
        except ConflictError as error:
            return JSONResponse({"line": str(error), **_shown(error.event, self.survey)}, 409)
        except SaveError as error:
            return JSONResponse({"line": str(error)}, 507)
        except MetricOracleError as error:
            return JSONResponse({"line": str(error)}, 400)
        return JSONResponse(_shown(event, self.survey))

    async def form(self, request: Request) -> Response:
        """Save a page that was sent without the script, and go on where it is complete."""
        (number, place, order), given = self._study(request), await posted(request)
        log = self._log(request, given)
        is_complete = True
        for i in order:
            counts = [
                [_cell(given.get(f"c{i}-{row}-{side}", "")) for side in range(2)]
                for row in range(len(self.survey.categories))
            ]
            last = (await run_in_threadpool(log.read)).latest.get((place, i))
            if last.counts != counts if last else any(cell is not None for cells in counts for cell in cells):
                base = _cell(given.get(f"base-{i}", ""), None)
                asked = {"id": str(uuid.uuid4()), "study": place, "candidate": i, "counts": counts, "base": base}
                await run_in_threadpool(log.save, {**asked, "survey": given.get("survey")})
            is_complete &= all(cell is not None for cells in counts for cell in cells)
        onward = "/" if number == len(self.survey.studies) else f"/study/{number + 1}"
        return RedirectResponse(onward if is_complete else f"/study/{number}", 303)

    def _study(self, request: Request) -> tuple[int, int, list[int]]:
        """Return the number of a study in the rater's order, its position, and the order of its candidates."""
        number = request.path_params["number"]
        if not 1 <= number <= len(self.survey.studies):
            raise InputError(
                argument="study",
                rule=f"must be from 1 to {len(self.survey.studies)}",
                value=number,
                step="Go to the first page.",
            )
        return number, *self.survey.order(request.state.guest)[number - 1]

    def _log(self, request: Request, given: dict[str, Any]) -> Log:
        """Return the rater's log; a page that another rater's address has taken the browser from saves nothing."""
        if given.get("rater") != request.state.guest:
            raise InputError("another rater's address was opened last in this browser.", "Open your own address again.")
        return self.logs[request.state.guest]

    def _open(self, event: Event | None) -> int:
        return event.open_cells if event else 2 * len(self.survey.categories)


def _shown(event: Event | None, survey: Survey) -> dict[str, Any]:
    """Return what a page must know of an event; of none that nothing is answered."""
    empty: Counts = [[None, None] for _ in survey.categories]
    return {"seq": event.seq if event else 0, "counts": event.counts if event else empty}


def _cell(text: str, most: int | None = MOST) -> int | None:
    """Return the number of a cell, None of an empty one."""
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and (most is None or int(text) <= most)):
        raise InputError(f"a cell is neither empty nor a number from 0 to {MOST}.", "Go back and correct it.")
    return int(text)


def serve_survey(survey: Survey, port: int, tell: Callable[[str], object]) -> None:
    """Serve a survey until Ctrl-C; what a kill left torn in a log is cut off before.

    Parameters
    ----------
    survey : Survey
    port : int
        0 for that of the last time, under which browsers keep counts that they could not send; else a free one.
    tell : function
        Called with lines for the researcher: the address of each rater.
    """
    pages = Pages(survey)
    for rater, log in pages.logs.items():
        torn = log.recover()
        if torn:
            tell(f"{rater}: a torn line of {torn} bytes was cut off; it had not been saved")
    links = survey.links()
    with listen(port or _last_port(survey), _FUNCTION) as at:
        port = at.getsockname()[1]
        write_json(survey.folder / "port.json", {"port": port})
        for rater, link in links.items():
            tell(f"{rater}: {address(port, link)}")
        tell(f"From another machine: ssh -L {port}:127.0.0.1:{port} THIS-HOST, then the same address. Ctrl-C ends it.")
        serve(pages.app(port), at)


def _last_port(survey: Survey) -> int:
    path = survey.folder / "port.json"
    return int(read_json(path)["port"]) if path.is_file() else 0
