"""Operations: one record makes the route, its permission, its MCP tool and its documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Response
from support.http import Served, error_of, serve_in_memory
from support.keys import keyed

from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.keys import READER, WRITER
from kbserver import operations
from kbserver.answers import as_json
from kbserver.mcp import tools
from kbserver.openapi.document import document
from kbserver.operations import Tool, as_object, operation
from kbserver.schemas.base import Answer, Body
from kbserver.schemas.fields import Count, Json, Text

ROUTE = "POST /count-scopes"


class CountScopesBody(Body):
    """Scopes to count: those whose name starts with `prefix`."""

    prefix = Text()


class ScopeCount(Answer):
    """A number of scopes."""

    scope_count = Count(of=len)


def count_scopes(kb: TenantKB, *, prefix: str = "") -> list[str]:
    return [name for name in kb.scopes() if name.startswith(prefix)]


@pytest.fixture
def declared() -> Iterator[None]:
    """One more operation: a record, a method of the core, and the tests below."""

    @operation(
        ROUTE,
        role=READER,
        replies=(as_object("How many there are.", ScopeCount),),
        body=CountScopesBody,
        core=count_scopes,
        asks=True,
        tool=Tool(
            name="count_scopes",
            description="Count the scopes.",
            takes=("prefix",),
            gives=("scopeCount",),
        ),
    )
    def count(outcome: list[str], arguments: Json) -> Response:
        """Count the scopes of the tenant."""
        return as_json(ScopeCount.write(outcome))

    tools.all_tools.cache_clear()
    yield
    del operations._BY_ROUTE["POST", "/count-scopes"]
    tools.all_tools.cache_clear()


@pytest.mark.usefixtures("declared")
def test_a_record_makes_the_route() -> None:
    with serve_in_memory() as served:
        fork(served, "blue", "green")
        assert served.client.post("/count-scopes", {}).get_json() == {"scopeCount": 2}
        counted = served.client.post("/count-scopes", {"prefix": "b"})
        assert counted.get_json() == {"scopeCount": 1}
        error = error_of(
            served.client.post("/count-scopes", {"prefix": 1}), 400, "VALIDATION_ERROR"
        )
        assert error["details"]["fields"] == {"prefix": ["must be a text"]}


@pytest.mark.usefixtures("declared")
def test_a_record_makes_the_permission() -> None:
    with keyed() as node:
        key = node.make("replica", [], [])
        assert node.send("POST", "/count-scopes", key.secret, {}).status_code == 403
        key = node.make("reader", [], ["other"])
        assert node.send("POST", "/count-scopes", key.secret, {}, tenant="a").status_code == 403
        key = node.make("reader", [], ["a"])
        assert node.send("POST", "/count-scopes", key.secret, {}, tenant="a").status_code == 200


@pytest.mark.usefixtures("declared")
def test_a_record_makes_the_tool_and_the_documentation() -> None:
    with serve_in_memory() as served:
        fork(served, "blue", "green")
        tool = tools.tools_of("all")["count_scopes"]
        assert tool.shown["inputSchema"]["properties"] == {"prefix": {"type": "string"}}
        kb = served.runtime.knowledge_base("default", "t")
        assert tool.work(kb, {"prefix": "g"}, False, 0) == {"scopeCount": 1}
        shown = document(served.app)
        path = shown["paths"]["/count-scopes"]["post"]
        assert (path["summary"], path["x-role"]) == ("Count the scopes of the tenant", "reader")
        assert {"CountScopes", "ScopeCount"} <= shown["components"]["schemas"].keys()


def fork(served: Served, *names: str) -> None:
    served.client.post("/tell", {"predicate": "p", "args": ["a"]})
    for name in names:
        assert served.client.post("/scope/fork", {"target": name}).status_code == 200


def test_two_operations_never_share_a_route() -> None:
    with pytest.raises(ValueError, match="POST /tell"):
        operation("POST /tell", role=WRITER)(lambda: Response())


@pytest.mark.parametrize("declared", operations.operations(), ids=lambda each: each.routes[0])
def test_what_an_operation_says_fits_together(declared: Any) -> None:
    summary, _ = declared.documentation
    assert summary, "the docstring of its function is its summary"
    if declared.core is not None and declared.body is not None:
        assert declared.replies, "a documented operation has replies"
    for each in declared.tools:
        tool = tools.McpTool(declared, each)
        keys = tool.shown["inputSchema"]["properties"].keys()
        assert set(each.takes) <= keys
        assert set(tool.shown["outputSchema"]["required"]) <= set(each.gives)
    if declared.role == WRITER:
        assert declared.needs_leader or declared.checked_inside, "a follower refuses writes"
