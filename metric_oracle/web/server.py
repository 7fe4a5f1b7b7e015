"""The server of the pages: reachable from this machine only, and only with a token.

Every account of a machine can reach 127.0.0.1, and so can every page that a browser has open. Therefore each request
must carry a token as a cookie, name this very host and port, and come from these pages themselves; anything else gets
403 and no report, and a reader who has no token is told where it is. No answer is kept by the browser, and nothing is
loaded from elsewhere. Addresses hold positions, never an id or a text, and no request is logged.
"""

import gc
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
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metric_oracle.base.errors import InputError, MetricOracleError
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


class _NumberConvertor(IntegerConvertor):
    """Numbers of an address: of the digits 0 to 9, and no more of them than Python reads."""

    regex = "[0-9]{1,9}"


register_url_convertor("number", _NumberConvertor())


def new_token() -> str:
    """Return a random token, long enough that it cannot be guessed."""
    return secrets.token_urlsafe(32)


def guarded(
    routes: Sequence[BaseRoute],
    *,
    port: int,
    guests: Mapping[str, str],
    say: Callable[[MetricOracleError], str] = str,
) -> Starlette:
    """Return an application that applies the checks of this module to every route, and serves ``/static``.

    Requests must name this port, and carry a token of `guests`, token -> name of its owner; handlers find the name in
    ``request.state.guest``. The address ``/?token=...`` stores the token in a cookie. `say` writes the line of an
    expected error.
    """

    def refusal(request: Request, error: Any) -> Response:
        """Show the message of an expected error. It contains no report text."""
        return page("refused.html", 400, line=say(error))

    static = Mount("/static", StaticFiles(directory=STATIC))
    return Starlette(
        routes=[*routes, static],
        middleware=[Middleware(_Guard, port=port, guests=dict(guests))],
        exception_handlers={MetricOracleError: refusal, 404: _missing},
    )


def _missing(request: Request, error: Exception) -> Response:
    """Show that an address has no page, with a link to the first page."""
    return page("refused.html", 404, line="There is no page at this address.")


class _Guard:
    """Middleware that accepts only requests that have a token and come from these pages."""

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
            return  # the tab was closed, so nobody waits for the response
        except Exception as error:
            # The message of an unexpected error may quote a report. Print only its type and position.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            print(f"oracle: {type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}", file=sys.stderr)
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
            response = _locked() if scope["method"] == "GET" else _forbidden()
        await response(scope, receive, send)

    def _owner(self, token: str) -> str | None:
        """Return the owner of a token, in constant time, so that response times reveal nothing about tokens."""
        encoded = token.encode("utf-8", "replace")
        owners = [name for own, name in self._guests.items() if hmac.compare_digest(own.encode(), encoded)]
        return owners[0] if owners else None

    def _guest(self, headers: Headers) -> str | None:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return None
        return self._owner(cookies[self._cookie].value) if self._cookie in cookies else None

    def _welcome(self, token: str) -> Response:
        """Store the token of an address in a cookie, and redirect to the first page without the token.

        The response is a page that opens the first page, not an HTTP redirect: after a link from another site, browsers
        do not send strict cookies with redirected requests.
        """
        if self._owner(token) is None:
            return _locked()
        response = page("welcome.html")
        response.set_cookie(self._cookie, token, httponly=True, samesite="strict")
        return response


def _is_own(method: str, headers: Headers) -> bool:
    """Return whether a request comes from these pages or, if it only reads, from the address bar."""
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


def _locked() -> Response:
    """Tell a reader without a valid token which address has one."""
    return page("locked.html", 403)


def _form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, strict_parsing=bool(body)))


_PARSERS: dict[str, Callable[[bytes], Any]] = {
    "application/json": json.loads,
    "application/x-www-form-urlencoded": _form,
}


async def posted(request: Request) -> dict[str, Any]:
    """Return the content of a POST request: a JSON object, or the fields of a form.

    Raise InputError if it is larger than 1 MiB, or not of one of these kinds.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_POST:
            raise InputError(f"a form has more than {LARGEST_POST:,} bytes.", "Send less text.")
    kind = request.headers["content-type"].partition(";")[0].strip()
    try:
        content = _PARSERS[kind](bytes(body))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError(f"a form is not an object in {kind}.", "Load the page again.")
    return content


def listen(port: int) -> socket.socket:
    """Return a socket that listens on the loopback address only, at a port or, for 0, at a free one.

    Raise InputError if the port is taken.
    """
    try:
        if 0 <= port < 1 << 16:
            return socket.create_server((HOST, port))
    except OSError:
        pass
    raise InputError(
        "port",
        "must be free, from 1024 to 65535",
        port,
        "Stop what uses it, or name another with `port=N`.",
    )


def address(port: int, token: str) -> str:
    """Return the address of the first page, with a token."""
    return f"http://{HOST}:{port}/?token={token}"


def silent(app: ASGIApp) -> uvicorn.Server:
    """Return a server that does not log requests."""
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
    """Serve requests at the socket `at` until Ctrl-C."""
    gc.collect()
    gc.freeze()  # what was read so far stays; to walk through it once more would delay single pages by 100 ms
    with suppress(KeyboardInterrupt):
        silent(app).run(sockets=[at])
