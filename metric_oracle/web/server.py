"""The server of the pages: on this machine only, for those who have a token, with nothing left behind.

Every account of a machine can reach 127.0.0.1, and so can every page that a browser has open. Therefore each request
must carry a token as a cookie, name this very host and port, and come from these pages themselves; anything else gets
403 and no text. No answer is kept by the browser, and nothing is loaded from elsewhere. Addresses hold positions,
never an id or a text, and no request is logged.
"""

import hmac
import json
import os
import secrets
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metric_oracle.errors import InputError, MetricOracleError, option
from metric_oracle.web.render import STATIC, page

HOST = "127.0.0.1"
LARGEST_POST = 1 << 20  # bytes
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
# The referrer stays within the pages: with "no-referrer" browsers send forms with the origin "null", like a foreign
# page's sandbox. Addresses hold nothing that must be hidden from these pages.
HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def new_token() -> str:
    """Return a token that nobody guesses."""
    return secrets.token_urlsafe(32)


def guarded(routes: Sequence[BaseRoute], *, port: int, guests: Mapping[str, str]) -> Starlette:
    """Return an app whose every route stands behind the checks of this module; ``/static`` is served too.

    Parameters
    ----------
    routes : sequence of Starlette routes
        A handler reads who asks from ``request.state.guest``.
    port : int
        That the server listens on: the only one a request may name.
    guests : mapping of str to str
        Token -> name of who has it. The address ``/?token=...`` turns it into a cookie.
    """
    static = Mount("/static", StaticFiles(directory=STATIC))
    return Starlette(
        routes=[*routes, static],
        middleware=[Middleware(_Guard, port=port, guests=dict(guests))],
        exception_handlers={MetricOracleError: _refusal},
    )


def _refusal(request: Request, error: Exception) -> Response:
    """Show the one line of an expected error, which holds no report text."""
    return page("refused.html", 400, line=str(error))


class _Guard:
    """Lets requests through that carry a token and come from the pages themselves."""

    def __init__(self, app: ASGIApp, port: int, guests: dict[str, str]) -> None:
        self._app, self._guests = app, guests
        self._hosts = (f"{HOST}:{port}", f"localhost:{port}")
        self._cookie = f"oracle-{port}"  # browsers send cookies to every port of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            await self._answer(scope, receive, send_guarded)
        except ClientDisconnect:
            return  # a tab that was closed: nobody waits for the answer
        except Exception as error:
            # The words of an unexpected error may quote a report: the type and the place are enough.
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(f"oracle: {type(error).__name__} in {Path(place.filename).name}:{place.lineno}", file=sys.stderr)
            if os.environ.get("ORACLE_DEBUG"):
                traceback.print_exception(error)
            if not begun:
                text = "Something went wrong here. The terminal of the server names the place.\n"
                await PlainTextResponse(text, 500)(scope, receive, send_guarded)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        token = QueryParams(scope["query_string"]).get("token")
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            response = _forbidden()
        elif scope["method"] == "GET" and scope["path"] == "/" and token is not None:
            response = self._welcome(token)
        else:
            guest = self._guest(headers)
            if guest is not None and _is_own(scope["method"], headers):
                scope.setdefault("state", {})["guest"] = guest
                await self._app(scope, receive, send)
                return
            response = _forbidden()
        await response(scope, receive, send)

    def _named(self, token: str) -> str | None:
        """Return whose token it is, in a time that does not depend on how much of it is right."""
        given = token.encode("utf-8", "replace")
        found = [name for known, name in self._guests.items() if hmac.compare_digest(known.encode(), given)]
        return found[0] if found else None

    def _guest(self, headers: Headers) -> str | None:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return None
        return self._named(cookies[self._cookie].value) if self._cookie in cookies else None

    def _welcome(self, token: str) -> Response:
        """Turn the token of an address into a cookie, and leave that address for the first page.

        By a page, not by a redirect: a browser that followed a link of another site sends no strict cookie through one.
        """
        if self._named(token) is None:
            return _forbidden()
        response = page("welcome.html")
        response.set_cookie(self._cookie, token, httponly=True, samesite="strict")
        return response


def _is_own(method: str, headers: Headers) -> bool:
    """Tell whether a request comes from these pages, or, to read one, from the address bar."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if origin not in (None, f"http://{headers['host']}"):
        return False
    if method in ("GET", "HEAD"):
        return site in (None, "same-origin", "none")
    kind = headers.get("content-type", "").partition(";")[0].strip()
    from_here = site == "same-origin" or (site is None and origin is not None)
    return method == "POST" and from_here and kind in _PARSERS


def _forbidden() -> Response:
    return PlainTextResponse("403\n", 403)


def _form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, strict_parsing=bool(body)))


_PARSERS: dict[str, Callable[[bytes], Any]] = {
    "application/json": json.loads,
    "application/x-www-form-urlencoded": _form,
}


async def posted(request: Request) -> dict[str, Any]:
    """Return what a POST carries as JSON or as a form's fields.

    Raises
    ------
    InputError
        If it is larger than 1 MiB, or no object of its kind.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_POST:
            raise InputError(f"a form has more than {LARGEST_POST:,} bytes.", "Send less text.")
    kind = request.headers["content-type"].partition(";")[0].strip()
    try:
        found = _PARSERS[kind](bytes(body))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(f"a form is not an object in {kind}.", "Load the page again.")
    return found


def listen(port: int, function: str) -> socket.socket:
    """Return a socket that listens on this machine only.

    Parameters
    ----------
    port : int
        0 for a free one.
    function : str
        For the error line.
    """
    try:
        if 0 <= port < 1 << 16:
            return socket.create_server((HOST, port))
    except OSError:
        pass
    raise InputError(
        argument="port",
        rule="must be free, from 1024 to 65535",
        value=port,
        step=f"Leave {option('port')} out for a free one.",
    )


def address(port: int, token: str) -> str:
    """Return the address of the first page, for the one whose token it is."""
    return f"http://{HOST}:{port}/?token={token}"


def silent(app: ASGIApp) -> uvicorn.Server:
    """Return a server that writes no line about a request."""
    config = uvicorn.Config(
        app,
        access_log=False,
        log_level="critical",
        http="h11",
        ws="none",
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(app: ASGIApp, at: socket.socket) -> None:
    """Answer requests until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        silent(app).run(sockets=[at])
