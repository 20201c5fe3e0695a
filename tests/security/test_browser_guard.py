"""Web pages against a server without keys: every route, with each thing that a browser can send.

The routes come from the URL map of the application, so a new route is tested without being named.
"""

from __future__ import annotations

import io
import json
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, Flask
from support.http import ForgetfulPlugin, Served, error_of, hookimpl, serve_in_memory
from support.keys import BOOTSTRAP, ONE
from support.servers import Server
from support.workers import SHARDS, owner, tenants_of
from werkzeug.test import EnvironBuilder, TestResponse, run_wsgi_app
from werkzeug.wrappers import Request

from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbserver import create_app, wsgi
from kbserver.flask import KBCore
from kbserver.operations import need_of
from kbserver.process.shared_runtime import SharedRuntime
from kbserver.security.permissions import PUBLIC

EVIL = "https://evil.example"
FACT = b'{"predicate": "p", "args": ["planted"]}'

FOREIGN_HOSTS = (
    "evil.example",
    "evil.example:9300",
    "EVIL.EXAMPLE.",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.localhost",
    "localhost@evil.example",
    "localhost,evil.example",
    "",
    " ",
    "0.0.0.0",
    "10.0.0.1",
    "[fe80::1%25eth0]",
    "[::1",
    "localhost:",
    "localhost:x",
    "127.1",
)
PAGES: tuple[dict[str, str], ...] = (
    {"Origin": EVIL},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://localhost.evil.example"},
    {"Origin": "http://evil@localhost"},
    {"Origin": "file://"},
    {"Origin": "chrome-extension://localhost"},
    {"Origin": "http://localhost, https://evil.example"},
    {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"},
    {"Origin": EVIL, "Sec-Fetch-Site": "same-origin"},
    {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "Cross-Site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "same-origin,cross-site"},
    {"Sec-Fetch-Site": "unknown"},
)
"""Headers of requests that pages of other origins send, with and without Fetch Metadata."""

BODIES: tuple[tuple[str | None, bytes], ...] = (
    (None, b""),
    (None, FACT),
    ("application/x-www-form-urlencoded", b"predicate=p&args=planted"),
    (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--',
    ),
    ("text/plain", FACT),
    ("application/json", FACT),
)
"""The simple requests, which need no preflight, and one that does."""

UNKNOWN = (
    "/nope",
    "//tell",
    "/tell/",
    "/admin/databases/default//nuke",
    "/-/directory",
    "/%2d/tenants",
    "/x/nope",
    "/console/../tell",
    "*",
    "/kb/tell",
    "/TELL",
)
METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get")
VALUES = {"name": "default", "tenant": "t"}


class Blueprints:
    """A plugin whose route counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    @hookimpl
    def kb_http_blueprints(self, runtime: Any) -> list[Blueprint]:
        blueprint = Blueprint("counting", __name__)

        @blueprint.route("/count", methods=["GET", "POST"])
        def count() -> str:
            self.calls += 1
            return str(self.calls)

        return [blueprint]


class Target:
    """A server without keys whose tenant `t` has one fact, and everything that could change in
    it.
    """

    def __init__(self, **settings: Any) -> None:
        self.storage, self.plugin = ForgetfulPlugin(), Blueprints()
        config = Config(storage_backend="forgetful", **settings)
        self.runtime = open_runtime(config, plugins=(self.storage, self.plugin))
        self.app = create_app(self.runtime)
        self.runtime.open("t").tell("p(kept)")
        self.before = self.state()

    def state(self) -> tuple[Any, ...]:
        mcp = self.app.extensions["kbcore.mcp"]
        facts = self.runtime.open("t").ask("p(?x)")
        return (
            len(self.storage.store.records),
            sorted(facts),
            self.plugin.calls,
            len(mcp.streams),
            len(self.app.extensions["kbcore.events"]),
        )

    def requests(self) -> Iterator[tuple[str, str]]:
        """Every method and path of the URL map, further methods, and unknown paths."""
        paths = {path_of(rule.rule) for rule in self.app.url_map.iter_rules()}
        for path in sorted(paths) + list(UNKNOWN):
            for method in ("GET", "HEAD", *METHODS):
                yield method, path

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str | None],
        body: tuple[str | None, bytes] = BODIES[0],
    ) -> TestResponse:
        """Send a request, with Host `localhost` unless the headers have another, or None."""
        kind, data = body
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_LENGTH": str(len(data)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(data),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        if kind is not None:
            environ["CONTENT_TYPE"] = kind
        for name, value in {"Host": "localhost", **headers}.items():
            if value is not None:
                environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
        parts, status, answer = run_wsgi_app(self.app, environ)
        return TestResponse(parts, status, answer, Request(environ))


def path_of(template: str) -> str:
    """A path that matches a template."""
    return re.sub(r"<(?:\w+:)?(\w+)>", lambda match: VALUES.get(match[1], "x"), template)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.runtime.close()


def check_refused(response: TestResponse, method: str, header: str | None = None) -> None:
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    if method == "HEAD":
        assert (response.status_code, response.data) == (403, b"")
        assert response.headers["X-Request-ID"]
        return
    details = error_of(response, 403, "FORBIDDEN")["details"]
    assert header is None or details == {"header": header}


def test_the_matrix_covers_all_kinds_of_routes(target: Target) -> None:
    requests = set(target.requests())
    for known in (
        *(
            ("POST", path)
            for path in ("/tell", "/query", "/mcp", "/a2a", "/x/count", "/-/directory")
        ),
        *(("GET", path) for path in ("/health", "/metrics", "/admin/backup", "/console/", "/nope")),
        ("POST", "/admin/databases/default/nuke"),
        ("POST", "/admin/databases/default/tenants/t/nuke"),
    ):
        assert known in requests


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_is_refused_everywhere(target: Target, host: str) -> None:
    for method, path in target.requests():
        body = BODIES[0] if method in ("GET", "HEAD") else BODIES[-1]
        headers = {"Host": host, "X-Tenant-ID": "t", "X-Request-ID": "mine"}
        response = target.send(method, path, headers, body)
        check_refused(response, method, "Host")
        assert response.headers["X-Request-ID"] == "mine"
    assert target.state() == target.before


def test_a_missing_host_is_refused_everywhere(target: Target) -> None:
    for method, path in target.requests():
        check_refused(target.send(method, path, {"Host": None}), method, "Host")
    assert target.state() == target.before


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_of_another_origin_changes_nothing(target: Target, page: dict[str, str]) -> None:
    header = (
        "Sec-Fetch-Site"
        if page.get("Origin", "http://localhost") == "http://localhost"
        else "Origin"
    )
    for method, path in target.requests():
        if method in ("GET", "HEAD"):
            continue
        for body in BODIES:
            check_refused(target.send(method, path, page, body), method, header)
    assert target.state() == target.before


@pytest.mark.parametrize("path", ["/admin/backup", "/mcp", "/mcp/sse", "/replication/snapshot"])
def test_a_page_does_not_start_reads_with_an_effect(target: Target, path: str) -> None:
    for page in PAGES:
        for method in ("GET", "HEAD"):
            check_refused(target.send(method, path, page), method)
    assert target.state() == target.before


def test_a_cross_site_form_does_not_empty_the_database(target: Target) -> None:
    form = {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    nuke = "/admin/databases/default/nuke"
    error_of(target.send("POST", nuke, form, BODIES[2]), 403, "FORBIDDEN")
    assert list(target.runtime.open("t").ask("p(?x)")) == [("kept",)]


OWN: tuple[dict[str, str], ...] = (
    {},
    {"Host": "localhost:9300"},
    {"Host": "127.0.0.1:9300", "Origin": "http://127.0.0.1:9300", "Sec-Fetch-Site": "same-origin"},
    {"Host": "[::1]:9300", "Origin": "http://[::1]:9300"},
    {"Host": "LOCALHOST.:80", "Origin": "http://localhost"},
    {"Host": "localhost", "Origin": "https://localhost:443"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
)


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_programs_and_the_pages_of_the_server_are_served(headers: dict[str, str]) -> None:
    target = Target()
    try:
        for method, path in target.requests():
            with target.send(method, path, {"X-Tenant-ID": "t", **headers}) as response:
                assert response.status_code != 403, (method, path, response.text)
                assert response.headers["X-Content-Type-Options"] == "nosniff"
        told = target.send("POST", "/tell", {"X-Tenant-ID": "t", **headers}, BODIES[-1])
        assert told.status_code == 200
    finally:
        target.runtime.close()


def test_pages_of_other_origins_may_still_navigate(target: Target) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for path in ("/", "/console/", "/docs", "/health"):
        assert target.send("GET", path, link).status_code == 200


# -- settings --------------------------------------------------------------------------------------


def status(served: Served, headers: dict[str, str], path: str = "/tell") -> int:
    body = json.loads(FACT) if path == "/tell" else {}
    return served.client.post(path, body, headers).status_code


@pytest.mark.parametrize(
    ("settings", "accepted", "refused"),
    [
        ({"host": "10.0.0.5"}, ["10.0.0.5:9300", "localhost"], ["10.0.0.6", "evil.example"]),
        ({"host": "kb.local"}, ["KB.local.", "127.0.0.1"], ["10.0.0.5", "x.kb.local", "kb.localx"]),
        *(
            ({"host": host}, ["10.0.0.5", "[fd00::1]:9300", "0.0.0.0", "localhost"], ["evil.example", ""])
            for host in ("0.0.0.0", "::", "")
        ),
        ({"host": "::1"}, ["[::1]:9300"], ["[::2]", "::1"]),
        (
            {"allowed_hosts": ("KB.example", "10.0.0.9", "fd00::9")},
            ["kb.example", "kb.EXAMPLE.:80", "10.0.0.9", "[FD00:0::9]:1"],
            ["a.kb.example", "kb.example.evil.example", "10.0.0.8", "evil.example"],
        ),
        ({"allowed_hosts": ("*",)}, ["evil.example", "10.0.0.5:1"], ["", "a b", "x@y"]),
        ({"public_url": "https://kb.example:8443/base"}, ["kb.example"], ["example"]),
        ({"advertise_url": "http://node1:9300"}, ["node1:9300"], ["node2:9300"]),
    ],
)  # fmt: skip
def test_accepted_hosts(settings: dict[str, Any], accepted: list[str], refused: list[str]) -> None:
    with serve_in_memory(**settings) as served:
        assert [status(served, {"Host": host}) for host in accepted] == [200] * len(accepted)
        assert [status(served, {"Host": host}) for host in refused] == [403] * len(refused)


def test_configured_origins_may_write() -> None:
    page = "https://app.example"
    with serve_in_memory(cors_origins=(page,), public_url="https://kb.example:8443/base") as served:
        for headers in (
            {"Origin": page, "Sec-Fetch-Site": "cross-site"},
            {"Origin": "https://APP.example", "Sec-Fetch-Site": "same-site"},
            {"Host": "kb.example", "Origin": "https://kb.example:8443"},
        ):
            assert status(served, headers) == 200
        for headers in (
            {"Origin": page, "Host": "evil.example"},
            {"Origin": "https://app.example.evil.example"},
            {"Origin": "http://app.example"},
            {"Origin": "https://kb.example"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            assert status(served, headers) == 403
    with serve_in_memory(cors_origins=("*",)) as served:
        assert status(served, {"Origin": "null", "Sec-Fetch-Site": "cross-site"}) == 200
        assert status(served, {"Origin": EVIL, "Host": "evil.example"}) == 403


def test_with_a_key_a_page_is_refused_for_want_of_the_key() -> None:
    with serve_in_memory(api_key=ONE) as served:
        records = len(served.store.records)
        for rule in served.app.url_map.iter_rules():
            for method in sorted((rule.methods or set()) - {"OPTIONS"}):
                need = need_of(method, rule.rule)
                response = served.app.test_client().open(
                    path_of(rule.rule),
                    method=method,
                    headers={"Host": "evil.example", "Origin": EVIL},
                    buffered=False,
                )
                if rule.rule.startswith(("/mcp", "/a2a")):
                    assert response.status_code == 403
                elif need.role != PUBLIC:
                    assert response.status_code == 401, (method, rule.rule)
                assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert len(served.store.records) == records
        own = {"Host": "evil.example", "Origin": EVIL, "X-API-Key": ONE}
        assert status(served, own) == 200


def test_managed_keys_protect_from_the_first_key_on() -> None:
    foreign = {"Host": "kb.example"}
    with serve_in_memory(auth_enabled=True, bootstrap_token=BOOTSTRAP) as served:
        flask = served.app.test_client()
        body = {"token": BOOTSTRAP, "name": "first"}
        for headers in (foreign, {"Origin": EVIL}):
            refused = flask.post("/auth/bootstrap", json=body, headers=headers)
            error_of(refused, 403, "FORBIDDEN")
        first = flask.post("/auth/bootstrap", json=body)
        assert first.status_code in (200, 201), first.text
        assert flask.get("/health", headers=foreign).status_code == 200
        error_of(flask.get("/scopes", headers=foreign), 401, "UNAUTHORIZED")
    with serve_in_memory(auth_enabled=True, api_key=ONE) as served:
        assert served.app.test_client().get("/health", headers=foreign).status_code == 200


# -- other servers ---------------------------------------------------------------------------------


def statuses(application: Callable[..., Iterable[bytes]], path: str) -> list[int]:
    """The statuses of a program, a foreign Host, a missing one, and a page, under another
    server.
    """
    found: list[int] = []
    for headers in ({}, {"Host": "evil.example"}, None, {"Origin": EVIL}):
        builder = EnvironBuilder(path, method="POST", data=FACT, content_type="application/json")
        builder.headers.update({"X-Tenant-ID": "t", **(headers or {})})
        environ = builder.get_environ()
        if headers is None:
            del environ["HTTP_HOST"]

        def start(status: str, headers: Any, error: Any = None) -> None:
            assert ("X-Content-Type-Options", "nosniff") in headers
            found.append(int(status[:3]))

        b"".join(application(environ, start))
    return found


def test_the_wsgi_entry_point_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_in_memory() as served:
        monkeypatch.setattr(SharedRuntime, "get", lambda shared: served.runtime)
        monkeypatch.setattr(wsgi, "_apps", [])
        for path in ("/tell", "/assert/facts", "/nope"):
            own, *foreign = statuses(wsgi.application, path)
            assert own != 403
            assert foreign == [403, 403, 403]


def test_the_flask_extension_is_guarded() -> None:
    host = Flask("host")
    host.config.update({"KBCORE_STORAGE_BACKEND": "memory", "KBCORE_URL_PREFIX": "/kb"})
    kb = KBCore(host)
    try:
        assert statuses(host.wsgi_app, "/kb/tell") == [200, 403, 403, 403]
    finally:
        kb.close()


# -- real sockets ----------------------------------------------------------------------------------


def raw(server: Server, *requests: bytes) -> list[bytes]:
    """Send requests one after the other on one connection; return the answers, each read to its
    end.
    """
    answers = []
    with socket.create_connection(server.address, timeout=60) as sock, sock.makefile("rb") as file:
        for request in requests:
            sock.sendall(request)
            head = b"".join(iter(file.readline, b"\r\n"))
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            answers.append(head + (file.read(int(length[1])) if length else b""))
            if not head:
                break
    return answers


def request(line: str, *headers: str, tenant: str = "t", body: bytes = FACT) -> bytes:
    own = (
        f"X-Tenant-ID: {tenant}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((line, *headers, *own, "", "")).encode() + body


def facts(server: Server, tenant: str = "t") -> Any:
    answer = server.post("/query", {"predicate": "p", "args": ["?x"]}, X_Tenant_ID=tenant)
    return [row["args"] for row in json.loads(answer[1])]


def test_requests_over_a_socket(tmp_path: Path) -> None:
    with Server(tmp_path / "kb") as server:
        here = f"127.0.0.1:{server.address[1]}"
        for line, headers, expected in (
            ("POST /tell HTTP/1.1", ("Host: evil.example",), 403),
            ("POST /tell HTTP/1.1", (), 403),
            ("POST /tell HTTP/1.0", (), 403),
            ("POST /tell HTTP/1.1", ("Host:",), 403),
            ("POST /tell HTTP/1.1", (f"Host: {here}", "Host: evil.example"), 400),
            ("POST /tell HTTP/1.1", ("Host: localhost@evil.example",), 403),
            ("POST http://evil.example/tell HTTP/1.1", (f"Host: {here}",), 403),
            ("POST http://localhost@evil.example/tell HTTP/1.1", (f"Host: {here}",), 403),
            ("POST http:///tell HTTP/1.1", (f"Host: {here}",), 403),
            ("POST /tell HTTP/1.1", (f"Host: {here}", f"Origin: {EVIL}"), 403),
            ("POST /tell HTTP/1.1", (f"Host: {here}", f"Origin: http://{here}", f"Origin: {EVIL}"), 403),
            ("POST /tell HTTP/1.1", (f"Host: {here}", "Sec-Fetch-Site: cross-site"), 403),
            ("POST /admin/databases/default/nuke HTTP/1.1", (f"Host: {here}", "Origin: null"), 403),
            ("OPTIONS * HTTP/1.1", ("Host: evil.example",), 403),
            ("GET /health HTTP/1.1", ("Host: evil.example",), 403),
            ("GET bad", (f"Host: {here}",), 400),
        ):  # fmt: skip
            (answer,) = raw(server, request(line, *headers))
            assert answer.startswith(f"HTTP/1.1 {expected} ".encode()), (line, headers, answer)
            assert b"\r\nX-Content-Type-Options: nosniff\r\n" in answer
            assert b"\r\nX-Request-ID: " in answer
        assert facts(server) == []
        for line, *headers in (
            ("POST /tell HTTP/1.1", f"Host: {here}", f"Origin: http://{here}"),
            (f"POST http://{here}/tell HTTP/1.1", "Host: evil.example"),
        ):
            (answer,) = raw(server, request(line, *headers))
            assert answer.startswith(b"HTTP/1.1 200 ")
        assert facts(server) == [["planted"]]


def test_workers_check_each_request_before_it_moves(tmp_path: Path) -> None:
    with Server(tmp_path / "kb", "--workers", "2", STORAGE_SHARDS=str(SHARDS)) as server:
        mine, other = tenants_of(0)[0], tenants_of(1)[0]
        assert {owner(mine), owner(other)} == {0, 1}
        foreign = ("Host: evil.example", f"Origin: {EVIL}")
        padding = tuple(f"X-Pad-{number}: {'x' * 4000}" for number in range(4))
        for tenant in (mine, other):
            for more in ((), padding):
                (answer,) = raw(
                    server, request("POST /tell HTTP/1.1", foreign[0], *more, tenant=tenant)
                )
                assert answer.startswith(b"HTTP/1.1 403 ")
                assert b"\r\nX-Content-Type-Options: nosniff\r\n" in answer
            # The first request moves the connection to the owner, which checks the later ones.
            good = request(
                "POST /query HTTP/1.1",
                "Host: localhost",
                tenant=tenant,
                body=b'{"predicate": "p", "args": ["?x"]}',
            )
            for bad in (foreign[0], f"Host: localhost\r\n{foreign[1]}"):
                answers = raw(
                    server, good, good, request("POST /tell HTTP/1.1", bad, tenant=tenant)
                )
                assert [answer[9:12] for answer in answers] == [b"200", b"200", b"403"]
            assert facts(server, tenant) == []
            assert server.post("/tell", json.loads(FACT), X_Tenant_ID=tenant)[0] == 200
            assert facts(server, tenant) == [["planted"]]
