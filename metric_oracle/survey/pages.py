"""The pages of a survey: an overview for each rater, and one page per study. Each change is saved before the response.

The server reads the texts and the logs, never the key, so that no page can reveal the origin of a candidate.
"""

import uuid
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from metric_oracle.base.checksum import read_sealed, write_sealed
from metric_oracle.base.errors import InputError, MetricOracleError
from metric_oracle.survey.folder import Survey, open_cells
from metric_oracle.survey.log import MAX_ERRORS, ConflictError, Counts, Event, Log, SaveError
from metric_oracle.web.render import page
from metric_oracle.web.server import address, guarded, listen, posted, serve


class Pages:
    """The handlers of one survey."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.logs = {rater: survey.log(rater) for rater in survey.raters}

    def app(self, port: int) -> Starlette:
        """Return the web application that serves the pages on a port."""
        routes = [
            Route("/", self.overview),
            Route("/study/{number:number}", self.study),
            Route("/study/{number:number}", self.form, methods=["POST"]),
            Route("/save", self.save, methods=["POST"]),
        ]
        guests = {link: rater for rater, link in self.survey.links().items()}
        return guarded(routes, port=port, guests=guests)

    def overview(self, request: Request) -> Response:
        """Show the rater's progress and links to all studies."""
        rater = request.state.guest
        history = self.logs[rater].read()
        studies = [
            {"position": position, "open": sum(self._open(history.latest.get((position, i))) for i in candidates)}
            for position, candidates in self.survey.order(rater)
        ]
        first = next((number for number, study in enumerate(studies, 1) if study["open"]), None)
        left = open_cells(self.survey, history)
        return page("survey.html", rater=rater, survey=self.survey, studies=studies, first=first, left=left)

    def study(self, request: Request) -> Response:
        """Show a study with the counts that the rater has saved."""
        rater, (number, position, order) = request.state.guest, self._study(request)
        history = self.logs[rater].read()
        texts = self.survey.studies[position].candidates
        candidates = [
            {"position": i, "text": texts[i], **_saved(history.latest.get((position, i)), self.survey)} for i in order
        ]
        values: dict[str, Any] = {"number": number, "position": position, "candidates": candidates}
        return page("survey_study.html", rater=rater, survey=self.survey, **values)

    async def save(self, request: Request) -> Response:
        """Save a change from the page's script: 200 once it is on the disk, 409 with a newer save, or an error."""
        try:
            sent = await posted(request)
            event = await run_in_threadpool(self._log(request, sent).save, sent)
        except ConflictError as error:
            return JSONResponse({"line": str(error), **_saved(error.event, self.survey)}, 409)
        except SaveError as error:
            return JSONResponse({"line": str(error)}, 507)
        except MetricOracleError as error:
            return JSONResponse({"line": str(error)}, 400)
        return JSONResponse(_saved(event, self.survey))

    async def form(self, request: Request) -> Response:
        """Save a page that was sent without JavaScript; redirect to the next one if all its cells are answered."""
        (number, position, order), sent = self._study(request), await posted(request)
        log = self._log(request, sent)
        is_complete = True
        for i in order:
            counts = [
                [_cell(sent.get(f"c{i}-{row}-{side}", "")) for side in range(2)]
                for row in range(len(self.survey.categories))
            ]
            last = (await run_in_threadpool(log.read)).latest.get((position, i))
            if last.counts != counts if last else any(cell is not None for cells in counts for cell in cells):
                base = _cell(sent.get(f"base-{i}", ""), None)
                cells = {"id": str(uuid.uuid4()), "study": position, "candidate": i, "counts": counts, "base": base}
                await run_in_threadpool(log.save, {**cells, "survey": sent.get("survey")})
            is_complete &= all(cell is not None for cells in counts for cell in cells)
        onward = "/" if number == len(self.survey.studies) else f"/study/{number + 1}"
        return RedirectResponse(onward if is_complete else f"/study/{number}", 303)

    def _study(self, request: Request) -> tuple[int, int, list[int]]:
        """Return the page number of a study, its index in `Survey.studies`, and the order of its candidates.

        Raise InputError if there is no page of the number that was asked for. Page numbers count from 1, in the order
        in which the rater sees the studies.
        """
        number = request.path_params["number"]
        if not 1 <= number <= len(self.survey.studies):
            raise InputError("study", f"must be from 1 to {len(self.survey.studies)}", number, "Go to the first page.")
        return number, *self.survey.order(request.state.guest)[number - 1]

    def _log(self, request: Request, sent: dict[str, Any]) -> Log:
        """Return the rater's log; raise InputError if what was `sent` is from the page of another rater."""
        if sent.get("rater") != request.state.guest:
            raise InputError("another rater's address was opened last in this browser.", "Open your own address again.")
        return self.logs[request.state.guest]

    def _open(self, event: Event | None) -> int:
        """Return the number of cells of a candidate without an answer; `event` is its last save, or None."""
        return event.open_cells if event else 2 * len(self.survey.categories)


def _saved(event: Event | None, survey: Survey) -> dict[str, Any]:
    """Return what a page shows of a save: ``seq`` and ``counts``, or 0 and empty counts if there is none (None)."""
    empty: Counts = [[None, None] for _ in survey.categories]
    return {"seq": event.seq if event else 0, "counts": event.counts if event else empty}


def _cell(text: str, maximum: int | None = MAX_ERRORS) -> int | None:
    """Return the number in a cell, None if it is empty; raise InputError if it is no number or above `maximum`.

    Any number of up to nine digits passes if `maximum` is None.
    """
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and (maximum is None or int(text) <= maximum)):
        raise InputError(f"a cell is neither empty nor a number from 0 to {MAX_ERRORS}.", "Go back and correct it.")
    return int(text)


def serve_survey(survey: Survey, port: int, tell: Callable[[str], object]) -> None:
    """Serve a survey until Ctrl-C, after removing lines of the logs that a kill left torn.

    The port 0 chooses that of the last call, which port.json in the survey's folder keeps, because browsers keep unsent
    counts by port; if there is none, a free one. Raise InputError if the port is taken. `tell` is called with lines for
    the researcher: torn lines that were cut off, the address of each rater, and how to open it from another machine.
    """
    pages = Pages(survey)
    for rater, log in pages.logs.items():
        if log.read().is_unsure:
            tell(f"{log.unsure}; it is written anew")
        torn = log.recover()
        if torn:
            tell(f"{rater}: a torn line of {torn} bytes was cut off; it had not been saved")
    links = survey.links()
    last = survey.folder / "port.json"
    if not port and last.is_file():
        last_port = read_sealed(last, "Remove it.").get("port")
        port = last_port if isinstance(last_port, int) else 0
    with listen(port) as at:
        port = at.getsockname()[1]
        write_sealed(last, {"port": port})
        for rater, link in links.items():
            tell(f"{rater}: {address(port, link)}")
        tell(f"From another machine: ssh -L {port}:127.0.0.1:{port} THIS-HOST, then the same address. Ctrl-C ends it.")
        serve(pages.app(port), at)
