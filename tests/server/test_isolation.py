"""Every route with every role in every place: callers get their own data and nothing else.

What the routes need is read from the page on HTTP, so that the records of the operations are
compared with something they were not made from.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from support.http import NOW, error_of
from support.keys import Keyed, keyed
from support.permission_matrix import BOOTSTRAP, NO_KEY, Caller, documented_need

from kbserver import operations
from kbserver.mcp.tools import tools_of
from kbserver.operations import need_of
from kbserver.security.permissions import About

ROLES = ("reader", "writer", "admin", "replica")
PLACES = (("default", "a"), ("default", "b"), ("shop", "a"), ("shop", "b"))
LIMITS = (((), ()), ((), ("a",)), (("shop",), ()), (("shop",), ("a",)))

GOAL = {"predicate": "owner", "args": ["?who"]}
BODIES = {
    "/rulesets/<name>": {"text": "p(a)."},
    **dict.fromkeys(
        ("/ask", "/infer", "/query", "/explain", "/memory/query/salient", "/memory/query/temporal"),
        GOAL,
    ),
    "/memory/recall": {**GOAL, "timestamp": NOW},
    "/memory/context": {"maxFacts": 5, "sessionId": "s"},
    "/context/diff": {"sessionId": "s"},
    "/neighbours": {"constant": "x"},
    "/tell": {"predicate": "told", "args": ["x"]},
}
CONTENT = (
    "/ask",
    "/infer",
    "/query",
    "/memory/recall",
    "/memory/query/salient",
    "/memory/context",
    "/explain",
)
"""Routes that must show a caller what is theirs, so that nothing here passes because nothing is
ever shown.
"""

STREAMS = ("/memory/events", "/mcp/sse", "/admin/backup")
"""Asked for their heads only: they have no end, or no text."""


@pytest.fixture(scope="module")
def node() -> Iterator[Keyed]:
    with keyed() as found:
        found.served.runtime.admin().create_database("shop")
        for database, tenant in PLACES:
            told = {"predicate": "owner", "args": [mark(database, tenant)]}
            admin = found.make("writer", [database], [tenant])
            assert (
                found.send(
                    "POST", "/tell", admin.secret, told, tenant=tenant, database=database
                ).status_code
                == 200
            )
        yield found


def mark(database: str, tenant: str) -> str:
    return f"mark-of-{database}-{tenant}"


def routes() -> list[tuple[str, str]]:
    """Every route there is, the streams asked for their heads only."""
    return sorted(operations.routes())


def allowed(
    role: str,
    method: str,
    template: str,
    databases: tuple[str, ...],
    tenants: tuple[str, ...],
    place: tuple[str, str],
) -> bool:
    caller = Caller(role, {}, role, databases, tenants)
    database, tenant = place
    return caller.refusal(documented_need(method, template), tenant, database) is None


def is_public(method: str, template: str) -> bool:
    return documented_need(method, template).role in (NO_KEY, BOOTSTRAP)


def address(template: str, place: tuple[str, str]) -> str:
    named = place[0] if template.startswith("/admin/databases/<name>/") else "none"
    return template.replace("<name>", named).replace("<tenant>", place[1]).replace("<id>", "0" * 16)


def ask(node: Keyed, method: str, template: str, key: str | None, place: tuple[str, str]):
    if template in STREAMS:
        method = "HEAD"
    found = node.send(
        method,
        address(template, place),
        key,
        BODIES.get(template),
        tenant=place[1],
        database=place[0],
    )
    if method == "HEAD":
        found.close()
    return found


def test_every_route_has_a_row_and_every_row_a_route(node):
    there = {
        (method, rule.rule)
        for rule in node.served.app.url_map.iter_rules()
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    assert there == set(operations.routes())


def test_an_unlisted_route_requires_admin():
    assert (need_of("GET", "/brand/new").role, need_of("GET", "/brand/new").about) == (
        "admin",
        About.NODE,
    )
    assert need_of("HEAD", "/ask/../x").role == "admin"
    assert need_of("HEAD", "/x/plugin").role == "reader"
    assert need_of("DELETE", "/x/plugin").role == "writer"


def test_requests_without_a_key_are_refused(node):
    gone = node.make("admin")
    node.served.runtime.keys().revoke(gone.key.id)
    good = node.make("admin").secret
    checked = 0
    for method, template in routes():
        for place in PLACES:
            for key in (None, "x", gone.secret, good[:-1], good + "0", good.upper(), ""):
                answer = ask(node, method, template, key, place)
                if is_public(method, template):
                    assert answer.status_code != 401 or template == "/auth/bootstrap", (
                        template,
                        answer.text,
                    )
                elif template in STREAMS:
                    assert answer.status_code == 401
                else:
                    error_of(answer, 401, "UNAUTHORIZED")
                    assert answer.headers["WWW-Authenticate"] == "Bearer"
                checked += 1
    assert checked >= 1000


@pytest.mark.parametrize(
    ("role", "limits"), [*itertools.product(ROLES[:3], LIMITS), ("replica", LIMITS[0])]
)
def test_every_route_with_every_key_on_every_tenant(role, limits):
    with keyed() as node:
        node.served.runtime.admin().create_database("shop")
        writer = node.make("writer").secret
        for database, tenant in PLACES:
            told = {"predicate": "owner", "args": [mark(database, tenant)]}
            node.send("POST", "/tell", writer, told, tenant=tenant, database=database)
        key = node.make(role, *limits).secret
        checked = 0
        for (method, template), place in itertools.product(routes(), PLACES):
            if (
                is_public(method, template)
                or template.endswith("/nuke")
                or (method == "DELETE" and "<tenant>" in template)
            ):
                continue
            answer = ask(node, method, template, key, place)
            may = allowed(role, method, template, *limits, place)
            assert (answer.status_code not in (401, 403)) == may, (
                method,
                template,
                place,
                answer.text,
            )
            for other in PLACES:
                assert other == place or mark(*other) not in answer.text, (template, place, other)
            if not may and template not in STREAMS:
                error_of(answer, 403, "FORBIDDEN")
                assert mark(*place) not in answer.text
            elif template in CONTENT and may:
                assert mark(*place) in answer.text, (template, answer.text)
            checked += 1
        assert checked >= 150


@pytest.mark.parametrize(
    "template", [path for _, path in routes() if path.endswith("/nuke") or "<tenant>" in path]
)
def test_irreversible_actions_need_a_key_for_the_tenant(template):
    method = "POST" if template.endswith("/nuke") else "DELETE"
    with keyed() as node:
        node.served.runtime.admin().create_database("shop")
        whole = node.make("admin").secret
        for database, tenant in PLACES:
            node.send(
                "POST",
                "/tell",
                whole,
                {"predicate": "p", "args": ["x"]},
                tenant=tenant,
                database=database,
            )
        before = facts(node, whole)
        for role, limits, place in itertools.product(ROLES[:3], LIMITS, PLACES):
            key = node.make(role, *limits).secret
            if not allowed(role, method, template, *limits, place):
                assert ask(node, method, template, key, place).status_code == 403
                assert facts(node, whole) == before
        assert ask(node, method, template, whole, PLACES[0]).status_code == 200
        assert facts(node, whole) != before


def facts(node: Keyed, key: str) -> dict[str, int]:
    return {
        row["name"]: row["facts"] for row in node.send("GET", "/admin/databases", key).get_json()
    }


# -- what hangs on a tenant hangs on the key -------------------------------------------------------


def test_a_transaction_is_open_to_keys_of_its_tenant_only(node):
    ours, theirs = (
        node.make("writer", tenants=["a"]).secret,
        node.make("writer", tenants=["b"]).secret,
    )
    reader = node.make("reader", tenants=["a"]).secret
    id = node.send("POST", "/tx/begin", ours).text
    told = {"predicate": "in_tx", "args": ["x"]}
    assert node.send("POST", "/tell", ours, told, X_Transaction_ID=id).status_code == 200
    for key, tenant, status in ((theirs, "a", 403), (theirs, "b", 404), (reader, "a", 403)):
        for path in ("/tell", "/retract"):
            assert (
                node.send("POST", path, key, told, tenant=tenant, X_Transaction_ID=id).status_code
                == status
            )
        for path in (f"/tx/commit/{id}", f"/tx/rollback/{id}"):
            assert node.send("POST", path, key, tenant=tenant).status_code == status
    assert node.send("POST", f"/tx/commit/{id}", ours).status_code == 200
    assert "x" in node.send("POST", "/query", reader, {"predicate": "in_tx", "args": ["?x"]}).text


def test_sessions_of_other_tenants_are_invisible(node):
    ours, theirs = (
        node.make("reader", tenants=["a"]).secret,
        node.make("reader", tenants=["b"]).secret,
    )
    node.send("POST", "/memory/context", ours, {"sessionId": "mine", "maxFacts": 5})
    found = node.send("POST", "/context/diff", theirs, {"sessionId": "mine"}, tenant="b").get_json()
    assert found["previousWindowId"] is None
    assert (
        node.send("POST", "/context/diff", theirs, {"sessionId": "mine"}, tenant="a").status_code
        == 403
    )
    node.send("POST", "/context/session/clear", theirs, {"sessionId": "mine"}, tenant="b")
    assert node.send("POST", "/context/diff", ours, {"sessionId": "mine"}).get_json()[
        "previousWindowId"
    ]


def test_an_idempotency_key_does_not_bypass_permissions(node):
    ours, theirs = (
        node.make("writer", tenants=["a"]).secret,
        node.make("writer", tenants=["b"]).secret,
    )
    reader = node.make("reader", tenants=["a"]).secret
    told = {"predicate": "once", "args": ["x"]}
    assert node.send("POST", "/tell", ours, told, Idempotency_Key="k-1").status_code == 200
    replayed = node.send("POST", "/tell", ours, told, Idempotency_Key="k-1")
    assert replayed.headers["Idempotency-Replayed"] == "true"
    for key, tenant in ((theirs, "a"), (reader, "a")):
        refused = node.send("POST", "/tell", key, told, tenant=tenant, Idempotency_Key="k-1")
        error_of(refused, 403, "FORBIDDEN")
        assert "Idempotency-Replayed" not in refused.headers
    first = node.send("POST", "/tell", theirs, told, tenant="b", Idempotency_Key="k-1")
    assert "Idempotency-Replayed" not in first.headers


def test_a_stream_ends_when_its_key_does():
    with keyed() as node:
        key = node.make("reader", tenants=["a"])
        writer = node.make("writer").secret
        stream = node.send("GET", "/memory/events", key.secret)
        parts = iter(stream.response)
        next(parts)
        node.send("POST", "/tell", writer, {"predicate": "seen", "args": ["x"]})
        assert b"seen" in next(parts)
        node.served.runtime.keys().revoke(key.key.id)
        node.send("POST", "/tell", writer, {"predicate": "unseen", "args": ["x"]})
        assert [part for part in parts if b"unseen" in part] == []
        stream.close()
        assert (
            node.send(
                "GET", "/memory/events", node.make("reader", tenants=["b"]).secret
            ).status_code
            == 403
        )


# -- tools and agents ------------------------------------------------------------------------------


def called(node: Keyed, key: str, tool: str, arguments: dict, **more) -> dict:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    return node.send("POST", "/mcp", key, message, Accept="application/json", **more)


def test_tools_require_their_roles():
    with keyed(mcp_tools="all") as node:
        keys = {
            role: node.make(role, tenants=["a"] if role != "replica" else []).secret
            for role in ROLES
        }
        for name, tool in tools_of("all", False).items():
            for role, key in keys.items():
                answer = called(
                    node, key, name, {"predicate": "p", "args": ["x"], "transactionId": "none"}
                )
                if role == "replica":
                    error_of(answer, 403, "FORBIDDEN")
                    continue
                found = answer.get_json()
                refused = found.get("result", {}).get(
                    "isError"
                ) and '"FORBIDDEN"' in answer.text.replace("\\", "")
                may = {"reader": ["reader"], "writer": ["reader", "writer"]}.get(role, [tool.needs])
                assert bool(refused) == (tool.needs not in may), (
                    name,
                    role,
                    found,
                )


def test_a_key_of_one_tenant_implies_it_for_tools_and_agents():
    with keyed() as node:
        one, two = (
            node.make("writer", tenants=["a"]).secret,
            node.make("writer", tenants=["a", "b"]).secret,
        )
        told = called(node, one, "tell", {"predicate": "p", "args": ["x"]}, tenant=None).get_json()
        assert told["result"]["isError"] is False
        assert node.send("POST", "/query", one, {"predicate": "p", "args": ["?x"]}).get_json()[0][
            "args"
        ] == ["x"]
        assert (
            called(node, two, "tell", {"predicate": "p", "args": ["x"]}, tenant=None).status_code
            == 403
        )
        assert (
            called(node, one, "query", {"predicate": "p", "args": ["?x"]}, tenant="b").status_code
            == 403
        )


def test_the_card_requires_a_key(node, client):
    shown = node.send("GET", "/.well-known/agent.json").get_json()
    assert shown["securitySchemes"] == {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
    assert "securitySchemes" not in client.get("/.well-known/agent.json").get_json()


@pytest.mark.parametrize(("tenant", "status"), [("a", 200), ("b", 403), (None, 200)])
def test_agents_cannot_name_tenants_outside_their_key(tenant, status):
    with keyed() as node:
        key = node.make("writer", tenants=["a"]).secret
        parts = [{"data": {"op": "tell", **GOAL, "args": ["x"]}}]
        said = {"message": {"messageId": "1", "role": "ROLE_USER", "parts": parts}}
        if tenant:
            said["tenant"] = tenant
        message = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": said}
        answer = node.send("POST", "/a2a", key, message, tenant=None)
        assert answer.status_code == status, answer.text
        reader = node.make("reader", tenants=["a"]).secret
        assert "FORBIDDEN" in node.send("POST", "/a2a", reader, message, tenant=None).text
