"""The permission matrix: every route and tool with every kind of key, against what the pages say.

What a route or tool needs is read from `docs/reference/http.md#keys` and `docs/reference/tools.md`,
never from the code under test. The routes and tools themselves come from the code, so that a new
one that the pages do not name fails.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import kbserver.openapi
from kbserver.mcp.tools import all_tools
from kbserver.operations import Operation, routes
from kbserver.security.guard import MAX_WRONG_KEYS
from support.issuer import Issuer
from support.replicas import until

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
EXAMPLES = Path(kbserver.openapi.__file__).with_name("examples.json")

ROOT_KEY = "the-key-of-the-setting-API_KEY"
BOOTSTRAP_TOKEN = "the-right-token-of-the-first-key"
REPLICATION_TOKEN = "the-right-token-of-all-replicas"
SETTINGS = {
    "AUTH_ENABLED": "true",
    "API_KEY": ROOT_KEY,
    "BOOTSTRAP_TOKEN": BOOTSTRAP_TOKEN,
    "REPLICATION_TOKEN": REPLICATION_TOKEN,
    "MCP_TOOLS": "all",
    # A connection is unused while the requests of another one are sent.
    "IDLE_TIMEOUT_MS": "600000",
    # A model that cannot be reached: its tools are offered, and an admitted call is a 502.
    "LLM_PROVIDER": "ollama",
    "LLM_MODEL": "none",
    "LLM_BASE_URL": "http://127.0.0.1:9",
    "LLM_RETRIES": "0",
}
"""Settings of a server for the matrix, in every deployment shape."""

NO_KEY, BOOTSTRAP, ANY_KEY = "no key", "the bootstrap token", "any key"
MAY = {
    "reader": {ANY_KEY, "reader"},
    "writer": {ANY_KEY, "reader", "writer"},
    "admin": {ANY_KEY, "reader", "writer", "admin", "replica or admin"},
    "replica": {ANY_KEY, "replica or admin"},
    "none": set(),
}
"""What each role may do, in the words of the page."""

DATABASE, OTHER_DATABASE, SPARE_DATABASE = "default", "shop", "spare"
SUBSCRIBE, GOAL_ID = "/goals/subscribe", "family"
EVERYWHERE: tuple[str, ...] = ()


# -- what the pages say ----------------------------------------------------------------------------


class Need(NamedTuple):
    """A row of the page: the role, and where a key must be valid (`""`: anywhere)."""

    role: str
    place: str


def _section(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def documented_routes() -> dict[tuple[str, str], Need]:
    """Return what the page says of each method and path, such as ("GET", "/goals/{id}")."""
    needs: dict[tuple[str, str], Need] = {}
    page = (REFERENCE / "http.md").read_text(encoding="utf-8")
    for role, place, cell in re.findall(
        r"^\| ([^|`]+) \| *([^|`]*) \| (`[A-Z]+ /.*) \|$", _section(page, "Keys"), re.M
    ):
        for method, path in re.findall(r"`([A-Z]+) (/[^`]*)`", cell):
            assert (method, path) not in needs, f"{method} {path} is in two rows"
            needs[method, path] = Need(role, place.strip())
    return needs


def documented_tools() -> dict[str, str]:
    """Return the role of each tool, as the page says."""
    page = (REFERENCE / "tools.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([a-z_]+)` \|[^|]*\|[^|]*\| ([a-z]+) \|", _section(page, "Tools"), re.M
    )
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def in_page_form(template: str) -> str:
    """Return the path template of a route as the page writes it."""
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", template)


# -- callers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Caller:
    """A kind of client: its headers, and what its key is (role None: no valid key)."""

    name: str
    headers: dict[str, str] = field(hash=False)
    role: str | None = None
    databases: tuple[str, ...] = EVERYWHERE
    tenants: tuple[str, ...] = EVERYWHERE
    is_try: bool = False
    """True if each request counts as a wrong key of its address."""
    is_token: bool = False
    """True for an access token: a tool beyond its scope is refused with a status of HTTP."""

    @property
    def goal(self) -> str:
        """The id of a subscription of this caller."""
        return self.name.replace(" ", "-")

    def refusal(self, need: Need, tenant: str, database: str = DATABASE) -> int | None:
        """Return the status with which a request about a tenant is refused, or None."""
        if need.role == NO_KEY:
            return None
        if self.role is None:
            return 401
        if need.role not in MAY[self.role]:
            return 403
        reaches = {
            "": True,
            "the tenant": self._reaches(database, tenant),
            "the path": self._reaches(database, tenant),
            "the database": self._reaches(database, None),
            "everything": not self.databases and not self.tenants,
        }
        return None if reaches[need.place] else 403

    def _reaches(self, database: str, tenant: str | None) -> bool:
        return (not self.databases or database in self.databases) and (
            not self.tenants or tenant in self.tenants
        )


def bearer(key: str) -> dict[str, str]:
    """Return the header with a key."""
    return {"Authorization": f"Bearer {key}"}


# -- a server --------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """The answer to a request; the body of a stream is not read."""

    status: int
    body: bytes
    headers: http.client.HTTPMessage

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


_NUMBERS = itertools.count()
_ADDRESSES = itertools.count(2)


class Entry:
    """A way into a server: keep-alive connections from loopback addresses of its own.

    `connect` makes a connection from an address; `before` is called before each request.
    """

    def __init__(
        self,
        connect: Callable[[str], http.client.HTTPConnection],
        before: Callable[[http.client.HTTPConnection], None] | None = None,
    ) -> None:
        self._connect, self._before = connect, before
        self._connection: http.client.HTTPConnection | None = None
        self._tries = 0

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next one comes from another address."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._tries = None, 0

    @property
    def port(self) -> int:
        """The port of the open connection."""
        assert self._connection is not None
        return int(self._connection.sock.getsockname()[1])

    def send(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: Any = None,
        *,
        is_try: bool = False,
    ) -> Answer:
        """Send a request; `is_try`: its key is wrong, so that an address has only a few of them."""
        if self._tries >= MAX_WRONG_KEYS - 1:
            self.close()
        self._tries += is_try
        if self._connection is None:
            number = next(_ADDRESSES)
            self._connection = self._connect(
                f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
            )
        connection = self._connection
        if self._before is not None:
            self._before(connection)
        data = None if body is None else json.dumps(body)
        if data is not None:
            headers = {"Content-Type": "application/json", **headers}
        connection.request(method, target, data, headers)
        answer = connection.getresponse()
        is_stream = answer.headers.get_content_type() == "text/event-stream"
        text = b"" if is_stream else answer.read()
        if is_stream:
            answer.close()
        if is_stream or answer.will_close:
            connection.close()
            self._connection = None
        return Answer(answer.status, text, answer.headers)


def direct(address: tuple[str, int]) -> Callable[[str], http.client.HTTPConnection]:
    """Return a function that connects to a server."""
    return lambda source: http.client.HTTPConnection(
        *address, timeout=60, source_address=(source, 0)
    )


# -- the matrix ------------------------------------------------------------------------------------


class Subject:
    """A server with content and keys of every kind, whose `tenant` the requests are about.

    Its tokens are those of `issuer`.
    """

    def __init__(self, entry: Entry, tenant: str, other_tenant: str, issuer: Issuer) -> None:
        self.tenant, self.other_tenant = tenant, other_tenant
        self._issuer = issuer
        self._entry = entry
        self._root = bearer(ROOT_KEY)
        self._fill()
        self.callers = self._callers()

    def ask(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        """Send a request as the administrator, which must succeed."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self._entry.send(
            method, target, {"X-Tenant-ID": self.tenant, **self._root, **named}, body
        )
        assert answer.status < 300, (method, target, answer)
        return answer

    def _fill(self) -> None:
        """Store something that each route can read, change or delete."""
        for database in (OTHER_DATABASE, SPARE_DATABASE):
            self.ask("POST", "/admin/databases", {"name": database})
        fact = {"predicate": "parent", "args": ["ann", "bob"]}
        for database, tenant in (
            (DATABASE, self.tenant),
            (DATABASE, self.other_tenant),
            (OTHER_DATABASE, self.tenant),
            (SPARE_DATABASE, self.tenant),
        ):
            place = {"X_Database": database, "X_Tenant_ID": tenant}
            self.ask("POST", "/tell", fact, **place)
            rule = "ancestor(?x, ?y) :- parent(?x, ?y)."
            self.ask("POST", "/teach", {"text": rule}, **place)
        self.ask("POST", "/tell", {"text": "wrong(x)"})
        undone = self.ask("POST", "/tell", {"text": "undone(x)"})
        self.commit = int(undone.headers["X-Commit-Seq"])
        self.ask("POST", "/goals/subscribe", self.body("POST", SUBSCRIBE, GOAL_ID))
        for scope in ("draft", "merged"):
            self.ask("POST", "/scope/fork", {"targetScope": scope})
        self.ask("PUT", "/rulesets/access", {"text": "row(0)."})
        self.ask("POST", "/episodes", {"speaker": "ann", "text": "Bob likes tea.", "id": "m-1"})
        self.transactions = [self.ask("POST", "/tx/begin", {}).body.decode() for _ in range(2)]
        for id in self.transactions:
            self.ask("POST", "/tell", {"text": "staged(x)"}, X_Transaction_ID=id)

    def _key(self, role: str, **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = self.ask(
            "POST", "/auth/keys", {"name": f"a {role}", "role": role, **more}
        ).json
        return made

    def _callers(self) -> list[Caller]:
        here = {"databases": [DATABASE], "tenants": [self.tenant]}
        places = {
            "": {},
            " of this tenant": here,
            " of another tenant": {"tenants": [self.other_tenant]},
            " of another database": {"databases": [OTHER_DATABASE]},
        }
        callers = [
            Caller("no key", {}),
            Caller("malformed header", {"Authorization": f"Token {ROOT_KEY}"}),
            Caller("malformed key", bearer("kb_00_x"), is_try=True),
            Caller("wrong key", bearer(f"kb_{'0' * 16}_{'0' * 64}"), is_try=True),
            Caller("the key of the setting", bearer(ROOT_KEY), "admin"),
            Caller("replication token", bearer(REPLICATION_TOKEN), "replica"),
            Caller("replica key", bearer(self._key("replica")["key"]), "replica"),
        ]
        for role, (place, limits) in itertools.product(
            ("reader", "writer", "admin"), places.items()
        ):
            key = self._key(role, **limits)["key"]
            databases, tenants = (tuple(limits.get(kind, ())) for kind in ("databases", "tenants"))
            headers = {"X-API-Key": key} if role == "reader" and not place else bearer(key)
            callers.append(Caller(f"{role}{place}", headers, role, databases, tenants))
        revoked, expired, victim = (self._key("admin") for _ in range(3))
        self.ask("DELETE", f"/auth/keys/{revoked['id']}")
        self.ask("POST", f"/auth/keys/{expired['id']}/rotate", {"overlapSeconds": 0})
        callers += [
            Caller("revoked key", bearer(revoked["key"]), is_try=True),
            Caller("expired key", bearer(expired["key"]), is_try=True),
        ]
        self.victim = str(victim["id"])
        return [*callers, *self._token_callers()]

    def _token_callers(self) -> Iterator[Caller]:
        """Yield a client for each kind of access token."""

        def token(name: str, scope: str, role: str | None, **claims: Any) -> Caller:
            claims = {"sub": name.replace(" ", "-"), "exp": int(time.time()) + 7200, **claims}
            tenant = claims.get("tenant")
            where = (DATABASE,) if tenant else EVERYWHERE
            tenants = (tenant,) if tenant else EVERYWHERE
            headers = bearer(self._issuer.token(scope, **claims))
            return Caller(name, headers, role, where, tenants, is_token=True)

        here = {"tenant": self.tenant}
        for role, scope in (("reader", "read"), ("writer", "write"), ("admin", "admin")):
            yield token(f"{role} token", f"kbcore:{scope}", role, **here)
        yield token("other token", "kbcore:write", "writer", tenant=self.other_tenant)
        yield token("admin token everywhere", "kbcore:admin", "admin", tenant=None)
        yield token("reader token without a tenant", "kbcore:read", "none", tenant=None)
        yield token("token without a scope", "openid", "none", **here)
        yield token("expired token", "kbcore:admin", None, exp=int(time.time()) - 100, **here)
        wrong = token("token of another audience", "kbcore:admin", None, aud="x", **here)
        yield replace(wrong, is_try=True)

    # -- what must not change ----------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what is stored, as the administrator sees it."""
        seen = {}
        databases = (DATABASE, OTHER_DATABASE, SPARE_DATABASE)
        listings = [f"/admin/databases/{name}/tenants" for name in databases]
        for path in ("/admin/databases", "/auth/keys", *listings):
            seen[path] = self.ask("GET", path).json
        for tenant, database in itertools.product(
            (self.tenant, self.other_tenant), (DATABASE, OTHER_DATABASE)
        ):
            place = {"X_Tenant_ID": tenant, "X_Database": database}
            for path in (
                "/predicates",
                "/rules",
                "/scopes",
                "/goals",
                "/episodes",
                "/memory/purges",
                "/facts/history?predicate=parent",
            ):
                seen[f"{database} {tenant} {path}"] = self.ask("GET", path, **place).json
            rows = self.ask(
                "POST", "/query", {"predicate": "parent", "args": ["?x", "?y"]}, **place
            )
            seen[f"{database} {tenant} parents"] = rows.json
        return seen

    # -- requests ----------------------------------------------------------------------------------

    def request(self, method: str, template: str, caller: Caller | None = None) -> tuple[str, Any]:
        """Return target and body of a request to a route, such that an admitted one does its work.

        Only the key that subscribed to a goal may change it, so that an admitted `caller` changes
        its own.
        """
        changes_goal = caller is not None and (method == "DELETE" or template == SUBSCRIBE)
        goal = caller.goal if caller is not None and changes_goal else GOAL_ID
        values = {
            "/auth/keys/": {"<id>": self.victim},
            "/goals/": {"<id>": goal},
            "/episodes/": {"<id>": "m-1"},
            "/tx/": {"<id>": self.transactions[template.startswith("/tx/commit")]},
            "/scope/": {"<name>": "draft"},
            "/rulesets/": {"<name>": "access"},
            "/docs/": {"<name>": "docs.css"},
            "/console/": {"<path:name>": "facts"},
            "/admin/databases/": {
                "<name>": SPARE_DATABASE if template.endswith("<name>") else DATABASE,
                "<tenant>": self.tenant,
            },
        }
        target = template
        for prefix, names in values.items():
            if template.startswith(prefix):
                for name, value in names.items():
                    target = target.replace(name, value)
        assert "<" not in target, f"{template} needs a value for its path"
        target += QUERIES.get(template, "")
        if method in ("GET", "HEAD", "DELETE"):
            return target, None
        return target, self.body(method, template, goal)

    def body(self, method: str, template: str, goal: str) -> Any:
        """Return a valid body; `goal` is the id of a subscription."""
        bodies = {
            SUBSCRIBE: {"goal": "ancestor(ann, ?who)", "id": goal},
            "/mcp": INITIALIZE,
            "/mcp/messages": INITIALIZE,
            "/a2a": a2a_call({"op": "ask", "text": "ancestor(ann, ?who)"}),
            "/auth/bootstrap": {"name": "mallory", "token": BOOTSTRAP_TOKEN},
            "/scope/merge": {"sourceScope": "merged", "strategy": "TARGET_WINS"},
            "/scope/fork": {"targetScope": f"fork-{next(_NUMBERS)}"},
            "/rulesets/<name>": {"text": f"row({next(_NUMBERS)})."},
            "/rulesets/<name>/rollback": {"version": 1},
            "/memory/undo": {"commitSeq": self.commit},
            "/memory/purge": {"subject": "ann"},
            "/admin/databases": {"name": "created"},
            "/admin/databases/<name>/tenants": {"tenantId": "created"},
            "/admin/cluster/move": {"shard": 0, "node": "none"},
            "/admin/cluster/drain": {"node": "none"},
            "/admin/promote": {},
            "/memory/compress": {"minGroupSize": 2},
            "/memory/consolidate": {"minGroupSize": 2},
            "/memory/decay": {"threshold": 1},
            "/memory/cleanup": {"threshold": 1},
            "/retract/rule": {"text": "ancestor(?x, ?y) :- parent(?x, ?y)."},
            "/memory/correct": {"old": "wrong(x)", "new": "right(x)", "reason": "x"},
        }
        if template in bodies:
            return bodies[template]
        return body_of(routes()[method, template])

    def order(self, cells: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return routes so that those come last that take away what others need."""
        return sorted(cells, key=lambda cell: (_harm(*cell), cell[1], cell[0]))

    def headers(self, caller: Caller) -> dict[str, str]:
        """Return the headers of a request of a caller about the tenant."""
        return {
            "X-Tenant-ID": self.tenant,
            "Accept": "application/json, text/event-stream",
            **caller.headers,
        }


DOCUMENTED = documented_routes()
DOCUMENTED_TOOLS = documented_tools()

AGENT_TEXTS = {"ask": "ancestor(ann, ?who)", "ingest": "likes(ann, tea)."}
"""Texts that agents send in place of the name of a tool."""


def documented_need(method: str, template: str) -> Need:
    """Return what the page says of a route; raise KeyError if it does not name the route."""
    need = DOCUMENTED["GET" if method == "HEAD" else method, in_page_form(template)]
    is_of_database = need.place == "the path" and "<tenant>" not in template
    return need._replace(place="the database") if is_of_database else need


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "matrix", "version": "1"},
    },
}
QUERIES = {
    "/facts/history": "?predicate=parent",
    "/memory/history": "?about=parent",
    "/goals/<id>/changes": "?since=0",
    "/rulesets/<name>/diff": "?from=0&to=1",
    "/replication/log": f"?log_id={'0' * 32}&epoch=0&from=1&wait_ms=0",
}


def a2a_call(part: dict[str, Any]) -> dict[str, Any]:
    """Return an A2A message with one part, the data of an operation or a text."""
    shown = {"data": part} if "op" in part else part
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [shown]}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}


def mcp_call(tool: str, arguments: Any) -> dict[str, Any]:
    """Return a message that calls a tool."""
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def body_of(declared: Operation) -> Any:
    """Return a valid body of an operation, from the examples of the documentation."""
    examples = json.loads(EXAMPLES.read_text(encoding="utf-8"))["operations"]
    for route in declared.routes:
        method, _, template = route.partition(" ")
        request = examples.get(f"{method} {in_page_form(template)}", {}).get("request")
        if request is not None:
            return request
    return declared.example or {}


_HARMS = (
    "/retract",
    "/forget",
    "/memory/correct",
    "/memory/undo",
    "/scope/merge",
    "/tx/commit",
    "/tx/rollback",
    "/admin/promote",
)
_GREATER_HARMS = ("/memory/decay", "/memory/cleanup", "/memory/purge")


def _harm(method: str, template: str) -> int:
    if method == "DELETE":
        return 3 if template.startswith("/admin/") else 1
    if template.endswith("/nuke") or template in _GREATER_HARMS:
        return 2
    return int(template.startswith(_HARMS))


def _difference(caller: Caller, request: str, expected: int | str, answer: Answer) -> str:
    """Return how the server differs from the page."""
    return f"{caller.name}: {request}: not {expected} but {answer.status} {answer.body[:200]!r}"


def _decided(
    entry: Entry, method: str, target: str, subject: Subject, caller: Caller, body: Any
) -> Answer:
    """Return the answer to a request, sent again while no process is ready for its tenant."""

    def sent() -> Answer | None:
        headers = subject.headers(caller)
        answer = entry.send(method, target, headers, body, is_try=caller.is_try)
        return None if answer.status == 503 else answer

    answer: Answer = until(sent)
    return answer


def refused_cells(
    subject: Subject, entry: Entry, cells: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Send what the page refuses; yield the requests that are not refused exactly as it says."""
    for caller in subject.callers:
        for method, template in cells:
            need = documented_need(method, template)
            if need.role == BOOTSTRAP:
                continue
            expected = caller.refusal(need, subject.tenant)
            if expected is None:
                continue
            target, body = subject.request(method, template)
            answer = _decided(entry, method, target, subject, caller, body)
            if answer.status != expected or not _is_refusal(answer, method):
                yield _difference(caller, f"{method} {template}", expected, answer)


def _is_refusal(answer: Answer, method: str) -> bool:
    """Return True if an answer is an error in the one shape; that of HEAD has no body."""
    code = {401: "UNAUTHORIZED", 403: "FORBIDDEN"}[answer.status]
    return method == "HEAD" or (
        set(answer.json) == {"code", "message", "details"} and answer.json["code"] == code
    )


def allowed_cells(
    subject: Subject, entry: Entry, cells: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Send what the page allows; yield the requests that are refused."""
    for method, template in subject.order(cells):
        need = documented_need(method, template)
        for caller in subject.callers:
            if need.role == BOOTSTRAP or caller.refusal(need, subject.tenant) is not None:
                continue
            target, body = subject.request(method, template, caller)
            answer = entry.send(method, target, subject.headers(caller), body)
            if answer.status in (401, 403, 429):
                yield _difference(caller, f"{method} {template}", "allowed", answer)


# -- tools and agents ------------------------------------------------------------------------------


def tool_arguments(
    declared: Operation, takes: Iterable[str], subject: Subject, goal: str
) -> dict[str, Any]:
    """Return arguments with which a tool does its work; `goal` is the id of a subscription."""
    method, _, template = declared.routes[0].partition(" ")
    body = subject.body(method, template, goal) if method == "POST" else {}
    more = {"scope": "draft", "id": goal, "since": "0", "predicate": "parent"}
    arguments = {name: body[name] for name in takes if name in body}
    return arguments or {name: more[name] for name in takes if name in more}


def expected_of_tool(caller: Caller, role: str, subject: Subject) -> int | None:
    """Return the HTTP status of a refused call, 200 for a tool error FORBIDDEN, None if allowed.

    On /mcp a token without the scope of a tool is refused with 403 instead of 200.
    """
    at_door = caller.refusal(Need("reader", "the tenant"), subject.tenant)
    if at_door is not None:
        return at_door
    return None if role in MAY[caller.role or ""] else 200


def is_forbidden(answer: Answer) -> bool:
    """Return True if a tool was refused inside an answer of the protocol."""
    return answer.status == 200 and b"FORBIDDEN" in answer.body


def tool_cells(subject: Subject, entry: Entry, *, allowed: bool) -> Iterator[str]:
    """Send the allowed or the refused calls of tools; yield those with another outcome.

    Every tool is called through /mcp and through /a2a, which also takes texts.
    """
    for name, role in DOCUMENTED_TOOLS.items():
        for caller in subject.callers:
            expected = expected_of_tool(caller, role, subject)
            if (expected is None) != allowed:
                continue
            for path, message in _calls(name, subject, caller.goal if allowed else GOAL_ID):
                answer = _decided(entry, "POST", path, subject, caller, message)
                lacks_scope = expected == 200 and caller.is_token and path == "/mcp"
                is_right = (
                    answer.status not in (401, 403, 429) and not is_forbidden(answer)
                    if expected is None
                    else answer.status == 403 if lacks_scope
                    else is_forbidden(answer) if expected == 200
                    else answer.status == expected
                )  # fmt: skip
                if not is_right:
                    yield _difference(caller, f"{path} {name}", expected or "allowed", answer)


def _calls(name: str, subject: Subject, goal: str) -> Iterator[tuple[str, Any]]:
    tool = all_tools()[name]
    arguments = tool_arguments(tool.operation, tool.declared.takes, subject, goal)
    yield "/mcp", mcp_call(name, arguments)
    yield "/a2a", a2a_call({"op": name, **arguments})
    if name in AGENT_TEXTS:
        yield "/a2a", a2a_call({"text": AGENT_TEXTS[name]})


def pinned(
    address: tuple[str, int], opened: Callable[[Callable[[], Any]], Any]
) -> Callable[[str], http.client.HTTPConnection]:
    """Return a function that connects so that `opened` decides which worker accepts.

    The first request of the connection is one that every worker answers, so that the worker keeps
    the connection.
    """

    def connect(source: str) -> http.client.HTTPConnection:
        connection = direct(address)(source)

        def first() -> None:
            connection.connect()
            health(connection)

        opened(first)
        return connection

    return connect


def health(connection: http.client.HTTPConnection) -> None:
    """Send the request that every process answers itself, after which a connection stays there."""
    connection.request("GET", "/health")
    with closing(connection.getresponse()) as answer:
        answer.read()
