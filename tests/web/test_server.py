"""The guard: who may ask, what every answer carries, what is never said."""

import json
import re
import socket
import threading

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from metric_oracle.base.errors import InputError
from metric_oracle.web import server
from metric_oracle.web.render import page, templates, visible
from support import HANG, SECRET

PORT, TOKEN = 8123, "t" * 43
OWN = f"http://127.0.0.1:{PORT}"
POST = {"sec-fetch-site": "same-origin", "origin": OWN}


def hello(request):
    return PlainTextResponse(f"{SECRET} for {request.state.guest}")


async def echo(request):
    return PlainTextResponse(json.dumps(await server.posted(request)))


def broken(request):
    raise ValueError(SECRET)


def refused(request):
    msg = 'explore: <script>alert("x")</script> must be escaped; got it. Look.'
    raise InputError(msg)


@pytest.fixture
def client():
    routes = [
        Route("/", hello),
        Route("/echo", echo, methods=["POST"]),
        Route("/broken", broken),
        Route("/refused", refused),
    ]
    app = server.guarded(routes, port=PORT, guests={TOKEN: "anna", "u" * 43: "ben"})
    with TestClient(app, base_url=OWN) as client:
        yield client


@pytest.fixture
def inside(client):
    assert client.get(f"/?token={TOKEN}").status_code == 200
    return client


def test_a_token_becomes_a_cookie(client):
    assert client.get("/").status_code == 403
    first = client.get("/", params={"token": TOKEN})
    cookie = first.headers["set-cookie"].lower()
    assert all(word in cookie for word in (f"oracle-{PORT}=", "httponly", "samesite=strict", "path=/"))
    assert TOKEN not in first.text
    assert 'content="0; url=/"' in first.text
    assert client.get("/").text == f"{SECRET} for anna"
    client.get("/", params={"token": "u" * 43})
    assert client.get("/").text == f"{SECRET} for ben"


def test_every_answer_is_guarded(inside):
    for path in ("/", "/nothing", "/broken", "/refused", "/static/page.css", "/?token=wrong", f"/?token={TOKEN}"):
        headers = inside.get(path).headers
        assert {name: headers[name] for name in server.HEADERS} == server.HEADERS, path
        assert "unsafe" not in headers["content-security-policy"]
        assert "http" not in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", {"host": f"evil.example:{PORT}"}),
        ("GET", "/", {"host": "127.0.0.1"}),
        ("GET", "/", {"host": f"127.0.0.1:{PORT + 1}"}),
        ("GET", "/", {"host": f"127.0.0.1.evil.example:{PORT}"}),
        ("GET", f"/?token={TOKEN}", {"host": f"evil.example:{PORT}"}),
        ("GET", "/", {"origin": "http://evil.example"}),
        ("GET", "/", {"origin": "null"}),
        ("GET", "/", {"origin": f"http://127.0.0.1:{PORT + 1}"}),
        ("GET", "/", {"sec-fetch-site": "cross-site"}),
        ("GET", "/", {"sec-fetch-site": "same-site"}),
        ("GET", "/", {"cookie": f"oracle-{PORT}=wrong"}),
        ("GET", "/", {"cookie": "oracle-1=x; \x7f=="}),
        ("GET", "/?token=", {}),
        ("GET", "/?token=%FF%00", {}),
        ("GET", f"/other?token={TOKEN}", {"cookie": ""}),
        ("GET", "/static/page.css", {"cookie": ""}),
        ("GET", "/static/../server.py", {"cookie": ""}),
        ("PUT", "/", POST),
        ("DELETE", "/echo", POST),
        ("OPTIONS", "/", POST),
        ("TRACE", "/", POST),
        ("POST", "/echo", {}),
        ("POST", "/echo", {"sec-fetch-site": "none"}),
        ("POST", "/echo", {"sec-fetch-site": "cross-site", "origin": OWN}),
        ("POST", "/echo", {"sec-fetch-site": "same-origin", "origin": "http://evil.example"}),
        ("POST", "/echo", {**POST, "content-type": "text/plain"}),
        ("POST", "/echo", {**POST, "content-type": "multipart/form-data"}),
        ("POST", f"/echo?token={TOKEN}", {**POST, "cookie": ""}),
    ],
)
def test_others_get_403_and_no_text(inside, method, path, headers):
    given = {"content-type": "application/json", **headers} if method == "POST" else headers
    answer = inside.request(method, path, headers=given, content=b"{}" if method == "POST" else None)
    assert answer.status_code == 403
    is_page = method == "GET" and "host" not in headers
    assert ("This page needs its token" in answer.text) if is_page else (answer.text == "403\n")
    assert SECRET not in answer.text


def test_without_the_token_a_page_says_what_to_open(client):
    for path in ("/", "/case/3", "/?token=wrong"):
        answer = client.get(path)
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
        assert "Open the whole address, up to the end of <code>?token=…</code>" in answer.text
        assert not re.search(r"(src|href)=", answer.text)  # nothing else may be asked for without the token


def test_two_hosts_are_none(inside):
    request = inside.build_request("GET", "/", headers=[("host", f"127.0.0.1:{PORT}"), ("host", "evil.example")])
    assert inside.send(request).status_code == 403


@pytest.mark.parametrize("headers", [POST, {"sec-fetch-site": "same-origin"}, {"origin": OWN}])
def test_posts(inside, headers):
    text = "a&b=<script>\u2028\0 ü"
    assert inside.post("/echo", json={"text": text}, headers=headers).json() == {"text": text}
    assert inside.post("/echo", data={"text": text, "empty": ""}, headers=headers).json() == {"text": text, "empty": ""}


@pytest.mark.parametrize(
    ("kind", "body", "match"),
    [
        ("application/json", b"[1]", "a form is not an object in application/json"),
        ("application/json", b"{", "a form is not an object in application/json"),
        ("application/json", b"[" * 100_000, "a form is not an object in application/json"),
        ("application/json", b"\xff\xfe\xfd", "a form is not an object in application/json"),
        ("application/x-www-form-urlencoded", b"novalue", "is not an object in application/x-www-form-urlencoded"),
        ("application/json", b'"' + b"x" * (1 << 20) + b'"', "a form has more than 1,048,576 bytes"),
    ],
)
def test_other_posts(inside, kind, body, match):
    answer = inside.post("/echo", content=body, headers={**POST, "content-type": kind})
    assert answer.status_code == 400
    assert match in answer.text


def test_errors_say_no_text(inside, capsys):
    answer = inside.get("/broken")
    assert answer.status_code == 500
    said = capsys.readouterr()
    assert SECRET not in answer.text + said.out + said.err
    assert said.err.startswith("oracle: ValueError in test_server.py:")
    answer = inside.get("/refused")
    assert answer.status_code == 400
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; must be escaped" in answer.text


def test_a_debugger_sees_more(inside, capsys, monkeypatch):
    monkeypatch.setenv("ORACLE_DEBUG", "1")
    inside.get("/broken")
    assert "Traceback" in capsys.readouterr().err


def test_control_characters_are_seen():
    assert visible("a\0b\x1b\x7f\t\r\n\ud800\u202e") == "a␀b␛␡\t\r\n\ufffd\u202e"
    answer = page("refused.html", 400, line='\0<b>"\ud800')
    assert "␀&lt;b&gt;&#34;\ufffd" in answer.body.decode()
    assert templates.autoescape is True


def test_a_port_that_is_taken():
    with server.listen(0) as taken:
        assert taken.getsockname()[0] == "127.0.0.1"
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"^port must be free, from 1024 to 65535; got {port}\."):
            server.listen(port)
    with pytest.raises(InputError, match=r"^port must be free, .* got 70000\."):
        server.listen(70000)


def test_a_real_server_says_nothing(capfd):
    entered, left = threading.Event(), threading.Event()

    async def heard(request):
        entered.set()
        try:
            return await echo(request)
        finally:
            left.set()

    with server.listen(0) as at:
        port = at.getsockname()[1]
        routes = [Route("/", hello), Route("/echo", heard, methods=["POST"])]
        silent = server.silent(server.guarded(routes, port=port, guests={TOKEN: "anna"}))
        thread = threading.Thread(target=silent.run, kwargs={"sockets": [at]})
        thread.start()

        def ask(path, cookie=""):
            with socket.create_connection((server.HOST, port), timeout=HANG) as end:
                end.sendall(
                    f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{cookie}Connection: close\r\n\r\n".encode()
                )
                return b"".join(iter(lambda: end.recv(65536), b"")).decode()

        assert server.address(port, TOKEN).startswith(f"http://127.0.0.1:{port}/?token=")
        assert ask(f"/?token={TOKEN}").startswith("HTTP/1.1 200")
        answer = ask("/", f"Cookie: oracle-{port}={TOKEN}\r\n")
        assert answer.endswith(f"{SECRET} for anna")
        assert "server:" not in answer.lower()
        assert ask("/").startswith("HTTP/1.1 403")
        # A tab that is closed while it sends.
        with socket.create_connection((server.HOST, port), timeout=HANG) as end:
            end.sendall(
                f"POST /echo HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: oracle-{port}={TOKEN}\r\n"
                "Sec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{".encode()
            )
            assert entered.wait(HANG)
        assert left.wait(HANG)
        silent.should_exit = True
        thread.join(HANG)
        assert not thread.is_alive()
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
