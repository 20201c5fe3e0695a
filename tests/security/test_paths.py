"""Spellings of paths: none reaches a handler that the same caller may not use by its plain path.

Requests without a key, and with a reader's key for one tenant, go to every route with its path
spelled in other ways: percent-encodings, doubled slashes, dot segments, other case, path
parameters, overlong UTF-8, absolute form, and headers and methods that some servers rewrite
requests by. The handlers themselves report what ran.
"""

from __future__ import annotations

import functools
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.keys import keyed
from support.permission_matrix import (
    BOOTSTRAP,
    DOCUMENTED,
    Caller,
    bearer,
    body_of,
    in_page_form,
)
from support.sockets import Running

from kbserver.accounting import Accounting
from kbserver.operations import operations, routes

ADMITTED = DOCUMENTED | {
    (route.split()[0], path): DOCUMENTED[route.split()[0], path]._replace(role="reader")
    for each in operations()
    if each.dry_runs
    for route in each.routes
    for path in [in_page_form(route.split()[1])]
}
"""Need of each route for its handler to run: where readers may send a dry run, it looks at the body
and then demands the role.
"""

TENANT, OTHER_TENANT = "a", "b"
MARK = "secret-of-another-tenant"

METHODS = ("GET", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "get", "QUERY")
OVERLONG = {"/": ("%c0%af", "%e0%80%af"), ".": ("%c0%ae", "%e0%80%ae"), "a": ("%c1%a1",)}
WIDE = {"/": "%ef%bc%8f", ".": "%ef%bc%8e", "a": "%ef%bd%81"}
REWRITING = (
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Forwarded-Prefix",
    "X-Script-Name",
    "X-Forwarded-Uri",
    "X-HTTP-Method-Override",
    "X-Method-Override",
    "X-HTTP-Method",
)


# -- spellings -------------------------------------------------------------------------------------


def encoded(rng: random.Random, path: str) -> str:
    """Percent-encode some characters, once or twice."""
    often = rng.choice((0.1, 0.5, 1.0))
    parts = []
    for char in path:
        if rng.random() < often and char != "/":
            code = f"%{ord(char):02{rng.choice('xX')}}"
            char = code.replace("%", "%25") if rng.random() < 0.1 else code
        parts.append(char)
    return "".join(parts)


def with_slashes(rng: random.Random, path: str) -> str:
    at = rng.choice([index for index, char in enumerate(path) if char == "/"] or [0])
    other = rng.choice(
        ("//", "///", "/./", "/x/../", "/%2e/", "/%2e%2e/", "/../", "%2f", "%5c", "\\", "/;/")
    )
    return path[:at] + other + path[at + 1 :]


ENDS = (
    *("/", "//", ".", "/.", "/..", "%20", "%00", "%0a", ";", ";a=b", "?", "#", "%23", "%3f", "/*"),
    "~",
    ".json",
    "..;/",
    "%09",
    "+",
)


def with_end(rng: random.Random, path: str) -> str:
    return path + rng.choice(ENDS)


def in_other_case(rng: random.Random, path: str) -> str:
    return "".join(rng.choice((char.upper(), char)) for char in path)


def overlong(rng: random.Random, path: str) -> str:
    char = rng.choice([each for each in OVERLONG if each in path] or ["/"])
    spelled = WIDE[char] if rng.random() < 0.3 else rng.choice(OVERLONG[char])
    return (
        path.replace(char, spelled)
        if rng.random() < 0.5
        else path[0] + path[1:].replace(char, spelled, 1)
    )


def in_absolute_form(rng: random.Random, path: str) -> str:
    start = rng.choice(
        (
            "http://127.0.0.1",
            "HTTP://x",
            "https://a@b:1",
            "//127.0.0.1",
            "http://",
            "x:",
            "http://x/..",
        )
    )
    return start + path


def behind_public(rng: random.Random, path: str) -> str:
    """A path that begins like one that needs no key."""
    public = rng.choice(
        ("/health", "/console", "/docs", "/.well-known", "/auth/status", "/favicon.ico")
    )
    return public + rng.choice(("/..", "/../..", "%2f..", "/.%2e", "/..;", "", ";")) + path


SPELLINGS = (
    encoded,
    with_slashes,
    with_end,
    in_other_case,
    overlong,
    in_absolute_form,
    behind_public,
    lambda rng, path: path,
)


def spelled(rng: random.Random, path: str) -> str:
    """Return another spelling of a path, visible ASCII."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path = rng.choice(SPELLINGS)(rng, path)
    return path


def test_spellings_are_of_every_kind() -> None:
    rng = random.Random(0)
    made = {spelled(rng, "/admin/databases") for _ in range(300)}
    assert len(made) > 200
    for part in ("//", "/../", "%2f", "%C0%AF".lower(), "http://", ";", "%61", "DATA"):
        assert any(part in each for each in made), part


# -- the server ------------------------------------------------------------------------------------


@dataclass
class Target:
    """A server that notes which handlers run."""

    running: Running
    callers: list[Caller]
    writer: str
    ran: list[tuple[str, str]] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    reached: set[tuple[str, str]] = field(default_factory=set)

    def send(
        self, caller: Caller, method: str, path: str, more: dict[str, str], body: bytes
    ) -> None:
        """Send a request, and check that only handlers ran that the page allows the caller."""
        self.ran.clear()
        headers = {
            "Host": "127.0.0.1",
            "X-Tenant-ID": TENANT,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **caller.headers,
            **more,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        raw = self.running.raw(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        request = f"{caller.name}: {method} {path} {more}"
        assert MARK.encode() not in raw, request
        self.statuses[int(raw.split(b" ", 2)[1])] += 1
        for route in self.ran:
            need = ADMITTED[route]
            assert caller.refusal(need, TENANT) is None or need.role == BOOTSTRAP, (request, route)
        self.reached.update(self.ran)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with keyed(mcp_tools="all") as node:
        node.served.runtime.admin().create_database("shop")
        writer = node.make("writer").secret
        for tenant, database in ((OTHER_TENANT, "default"), (TENANT, "shop")):
            told = {"predicate": "p", "args": [MARK]}
            sent = node.send("POST", "/tell", writer, told, tenant=tenant, database=database)
            assert sent.status_code == 200, sent.text
        key = node.make("reader", ["default"], [TENANT]).secret
        callers = [
            Caller("no key", {}),
            Caller("reader", bearer(key), "reader", ("default",), (TENANT,)),
        ]
        app = node.served.app
        running = Running(app)
        made = Target(running, callers, writer)
        for endpoint, view in list(app.view_functions.items()):
            app.view_functions[endpoint] = noting(made, endpoint, view)
        finish = Accounting.finish

        def noted(self: Any, request: Any, route: str | None, status: int) -> None:
            """Note what the fast path has answered, which calls no view."""
            if route is not None and status < 400:
                method = request.environ["REQUEST_METHOD"].upper().replace("HEAD", "GET")
                made.ran.append((method, in_page_form(route)))
            finish(self, request, route, status)

        patch = pytest.MonkeyPatch()
        patch.setattr(Accounting, "finish", noted)
        try:
            yield made
        finally:
            patch.undo()
            running.stop()


def noting(target: Target, endpoint: str, view: Any) -> Any:
    """Return a view that notes that it ran."""
    method, _, template = endpoint.partition(" ")

    @functools.wraps(view)
    def noted(**path: str) -> Any:
        target.ran.append((method, in_page_form(template)))
        return view(**path)

    return noted


STREAMS = ("/memory/events", "/mcp/sse", "/goals/<id>/events")


def run(target: Target, seed: int, count: int) -> None:
    """Send requests; each is made from the seed and its number."""
    known = sorted(each for each in routes() if each[1] not in STREAMS)
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        method, template = rng.choice(known)
        path = template.replace("<name>", "default").replace("<tenant>", TENANT)
        path = path.replace("<id>", "0" * 16).replace("<path:name>", "facts")
        body = b"" if method != "POST" else json.dumps(body_of(routes()[method, template])).encode()
        if rng.random() < 0.2:
            method = rng.choice(METHODS)
        more = {}
        if rng.random() < 0.15:
            name = rng.choice(REWRITING)
            more[name] = rng.choice(("POST", "DELETE")) if "Method" in name else path
            path = rng.choice(("/health", "/", "/auth/whoami", path))
        target.send(rng.choice(target.callers), method, spelled(rng, path), more, body)


def test_no_spelling_reaches_what_the_plain_path_refuses(target: Target) -> None:
    run(target, 1, 2500)
    assert target.statuses[401] > 300
    assert target.statuses[403] > 50
    assert sum(target.statuses[status] for status in range(200, 300)) > 100
    assert len(target.reached) > 30  # many handlers run for those who may use them


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_no_spelling_of_many(target: Target, part: int) -> None:
    run(target, int(os.environ.get("KB_SEED", "7")) + part, 10_000)


def test_the_plain_path_runs_a_handler_exactly_where_the_page_allows_it(target: Target) -> None:
    for method, template in sorted(each for each in routes() if each[1] not in STREAMS):
        path = template.replace("<name>", "default").replace("<tenant>", TENANT)
        path = path.replace("<id>", "0" * 16).replace("<path:name>", "facts")
        need = ADMITTED[method, in_page_form(template)]
        for caller in target.callers:
            target.send(caller, method, path, {}, b"{}" if method == "POST" else b"")
            allowed = need.role == BOOTSTRAP or caller.refusal(need, TENANT) is None
            assert bool(target.ran) == allowed, (caller.name, method, path)


TENANT_HEADERS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("X-Tenant-ID", OTHER_TENANT),),
    (("X-Tenant-ID", TENANT), ("X-Tenant-ID", OTHER_TENANT)),
    (("X-Tenant-ID", OTHER_TENANT), ("X-Tenant-ID", TENANT)),
    (("X-Tenant-ID", TENANT), ("x_tenant_id", OTHER_TENANT)),
    (("X-Tenant-ID", TENANT), ("X-Tenant_ID", OTHER_TENANT)),
    (("X-Tenant-ID", f"{TENANT}, {OTHER_TENANT}"),),
    (("X-Tenant-ID", f"{OTHER_TENANT}%00"),),
    (("X-Tenant-ID", f" {OTHER_TENANT}"),),
    (("X-Tenant-ID", TENANT), ("X-Database", "shop")),
    (("X-Tenant-ID", TENANT), ("X-Database", "default"), ("X-Database", "shop")),
    (("X-Tenant-ID", TENANT), ("X_Database", "shop")),
    (("X-Database", "shop"),),
    (),
)


@pytest.mark.parametrize("names", TENANT_HEADERS)
def test_no_spelling_of_the_headers_reaches_another_tenant(
    target: Target, names: tuple[tuple[str, str], ...]
) -> None:
    goal = json.dumps({"predicate": "p", "args": ["?x"]}).encode()
    (_, reader) = target.callers
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
               "params": {"name": "query", "arguments": {"predicate": "p", "args": ["?x"]}}}  # fmt: skip
    for path, body in (
        ("/query", goal),
        ("/ask?limit=5", goal),
        ("/mcp", json.dumps(message).encode()),
    ):
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in (*names, *reader.headers.items()))
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        assert MARK.encode() not in target.running.raw(head.encode() + body)


def test_the_mark_is_what_its_own_tenant_reads(target: Target) -> None:
    """The tests above look for something that would be seen."""
    goal = b'{"predicate": "p", "args": ["?x"]}'
    head = f"POST /query HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Tenant-ID: {OTHER_TENANT}\r\n"
    head += f"Authorization: Bearer {target.writer}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(goal)}\r\nConnection: close\r\n\r\n"
    assert MARK.encode() in target.running.raw(head.encode() + goal)
