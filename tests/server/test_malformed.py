"""Hostile bodies, headers and paths on every route: always 4xx, and nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.http import (
    ADMIN,
    ALONE,
    CONTEXT,
    OTHERS,
    READS,
    SCOPES,
    TEXTS,
    WRITES,
    Client,
    Served,
    serve_in_memory,
)

SESSIONS = ("/context/diff", "/context/session/clear")
GETS = ("/", "/predicates", "/rules", "/scopes", "/admin/databases", "/health", "/health/ready")


@pytest.fixture(scope="module")
def hall() -> Iterator[Served]:
    with serve_in_memory(max_body_bytes=100_000, max_bulk_facts=50) as found:
        yield found


@contextmanager
def naming(case: object) -> Iterator[None]:
    """Add the input to the report of a failure, since one test sends many."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"input {case!r}: {error}") from error


def refused(served: Served, response: Any) -> None:
    """Check the shape of an error, and that nothing was logged, that is stored."""
    prose = (
        response.status_code == 501
    )  # what is a mistake in the rule language may be a sound text for a model
    assert prose or 400 <= response.status_code < 500, (response.status_code, response.text)
    found = response.get_json()
    assert list(found) == ["code", "message", "details"]
    assert found["message"]
    assert found["details"] is None or isinstance(found["details"], dict)
    assert response.headers["X-Request-ID"]
    assert served.store.records == []


WHOLE_PREDICATE = b'{"predicate": "p"}'
"""A malformed fact, which `/retract/pattern` takes as a pattern for every fact of the predicate."""

FAULTY_RULE = b'{"text": "p(?x) :- "}'
"""A rule with a syntax error, about which `/check` answers, with status 200."""

BODIES: list[bytes] = [
    b"",
    b" ",
    b"{}",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"{",
    b'{"predicate"',
    WHOLE_PREDICATE,
    b'{"args": []}',
    b'{"predicate": "p", "args": {}}',
    b'{"predicate": {}, "args": []}',
    b'{"predicate": "p", "args": [[]]}',
    b'{"predicate": "p", "args": [{"a": 1}]}',
    b'{"predicate": "p", "args": ["a"], "predicate": "q"}',
    b'{"predicate": "p", "args": [NaN]}',
    b'{"predicate": "p", "args": [1e999]}',
    b'{"predicate": "p", "args": [' + b"9" * 5000 + b"]}",
    b'{"predicate": "p\\u0000", "args": []}',
    b'{"predicate": "\\ud800", "args": []}',
    b'{"predicate": "\xff", "args": []}',
    b'\xef\xbb\xbf{"predicate": "p", "args": []}',
    b'{"predicate": "p", "args": []} trailing',
    b'{"predicate": "p", "args": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"predicate": "p", "args": ' + json.dumps(["x"] * 65).encode() + b"}",
    b'{"predicate": "' + b"p" * 256 + b'", "args": []}',
    b'{"predicate": "p", "args": ["a"], "scope": "../../etc"}',
    b'{"predicate": "p", "args": ["a"], "scope": {}}',
    b'{"facts": [{"predicate": "p", "args": ["a"]}, {}]}',
    b'{"facts": {"0": {}}}',
    b'{"facts": [' + b",".join([b'{"predicate":"p","args":[]}'] * 51) + b"]}",
    b'{"facts": [[[[]]]]}',
    FAULTY_RULE,
    b'{"text": {"content": "p(a)."}}',
    b'{"text": [{"content": "p(a)."}]}',
    b'{"head": [], "body": []}',
    b'{"head": {"predicate": "p", "args": ["?x"]}, "body": [5]}',
    b'{"id": {}}',
    b'{"id": "nope"}',
    b"x" * 100_001,
    b'{"predicate": "p", "args": ["' + b"x" * 100_000 + b'"]}',
]


NEED_NOTHING = (
    "/memory/decay",
    "/memory/cleanup",
    "/memory/consolidate",
    "/memory/compress",
    "/memory/query/salient",
)
"""Routes that take an empty object."""


@pytest.mark.parametrize(
    "path",
    sorted(
        {*WRITES, *READS, *ALONE, *SCOPES, *ADMIN, *SESSIONS, *TEXTS, *OTHERS} - {*NEED_NOTHING}
    ),
)
def test_bodies(hall: Served, path: str) -> None:
    for body in BODIES:
        if (path, body) in (("/retract/pattern", WHOLE_PREDICATE), ("/check", FAULTY_RULE)):
            continue
        with naming(body[:80]):
            refused(hall, hall.client.post(path, data=body, content_type="application/json"))


@pytest.mark.parametrize("path", NEED_NOTHING)
def test_bodies_of_routes_without_required_fields(hall: Served, path: str) -> None:
    for body in BODIES:
        with naming(body[:80]):
            response = hall.client.post(path, data=body, content_type="application/json")
            if response.status_code != 200:
                refused(hall, response)
                continue
            assert not body.strip() or type(json.loads(body)) is dict
            assert hall.store.records == []


HEADERS: list[dict[str, str]] = [
    {"X-Tenant-ID": ""},
    {"X-Tenant-ID": "a/b"},
    {"X-Tenant-ID": "\xff\xfe"},
    {"X-Tenant-ID": "a" * 10_000},
    {"X-Tenant-ID": "t", "X-Database": "../default"},
    {"X-Tenant-ID": "t", "X-Database": "nowhere"},
    {"X-Tenant-ID": "t", "X-Transaction-ID": "\xe4" * 1000},
    {"X-Tenant-ID": "t", "Content-Type": "text/xml"},
    {"X-Tenant-ID": "t", "Content-Type": ";;;=;"},
    {"X-Tenant-ID": "t", "Content-Type": "application/json; charset=utf-16"},
    {"X-Tenant-ID": "t", "Content-Encoding": "br"},
]


@pytest.mark.parametrize("path", [*WRITES, *READS, *ALONE, *SCOPES, *CONTEXT, *TEXTS, *OTHERS])
def test_headers(hall: Served, path: str) -> None:
    body = b'{"predicate": "p", "args": ["a"], "op": "COUNT", "facts": [], "id": "x"}'
    if path in ("/assert/rule", "/teach"):
        body = b'{"text": "p(a)."}'
    for headers in HEADERS:
        with naming(headers):
            response = hall.client.flask.post(
                path, data=body, headers={"Content-Type": "application/json", **headers}
            )
            refused(hall, response)


@pytest.mark.parametrize(
    "path", [*WRITES, *READS, *ALONE, *SCOPES, *ADMIN, *CONTEXT, *TEXTS, *OTHERS]
)
def test_lengths(hall: Served, path: str) -> None:
    for length in ("nine", "-1", "99", "9" * 30):
        environ = {
            "CONTENT_LENGTH": length,
            "CONTENT_TYPE": "application/json",
            "HTTP_X_TENANT_ID": "t",
        }
        with naming(length):
            refused(hall, hall.client.flask.post(path, data=b"{}", environ_overrides=environ))


@pytest.mark.parametrize("host", ["", "a b", "\xff", "x" * 5000, "[::1", "a:b:c", "..", "xn--\xe4"])
def test_hosts_do_not_matter(hall: Served, host: str) -> None:
    response = hall.client.get("/health", {"Host": host})
    if response.status_code != 200:
        refused(hall, response)


texts = st.text(max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "predicate",
    "args",
    "negated",
    "truthVal",
    "scope",
    "ttl",
    "validFrom",
    "validUntil",
    "confidence",
    "metadata",
    "conflictStrategy",
    "facts",
    "head",
    "body",
    "text",
    "id",
    "op",
    "operation",
    "argIndex",
    "asOf",
    "limit",
    "sourceScope",
    "target",
    "scopeA",
    "overwrite",
    "strategy",
    "name",
    "tenantId",
    "offset",
    "minConfidence",
    "timeoutMs",
    "polarity",
    "withProof",
    "skipNonNumeric",
    "goals",
    "sessionId",
    "maxFacts",
    "maxTokens",
    "relevanceBuckets",
    "format",
    "query",
    "turns",
    "text",
    "explain",
    "whyNot",
    "depth",
    "threshold",
    "dryRun",
    "minGroupSize",
    "predicates",
    "priority",
    "minSalience",
    "timestamp",
]
bodies = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)


@examples(150)
@given(
    path=st.sampled_from([*WRITES, *READS, *ALONE, *SCOPES, *ADMIN, *CONTEXT, *TEXTS, *OTHERS]),
    body=bodies,
    strict=st.booleans(),
)
def test_any_body(path: str, body: dict[str, Any], strict: bool) -> None:
    with serve_in_memory() as served:
        raw = json.dumps(body).encode()
        headers = {"Prefer": "handling=strict"} if strict else {}
        response = served.client.post(
            path, data=raw, headers=headers, content_type="application/json"
        )
        if response.status_code == 501:  # a text that is no predicate syntax
            assert response.get_json()["code"] == "LLM_NOT_CONFIGURED"
            assert served.store.records == []
        elif response.status_code not in (200, 201):
            refused(served, response)


@examples(200)
@given(
    path=st.text(max_size=30),
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "TRACE"]),
    query=texts,
)
def test_any_path(hall: Served, path: str, method: str, query: str) -> None:
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": "/" + path.encode("utf-8", "replace").decode("latin-1"),
        "QUERY_STRING": query.encode("utf-8", "replace").decode("latin-1"),
        "HTTP_X_TENANT_ID": "t",
    }
    response = hall.client.flask.open(environ_overrides=environ)
    if f"/{path}" not in GETS:
        refused(hall, response)


@examples(150)
@given(
    name=st.sampled_from(
        [
            "X-Tenant-ID",
            "X-Database",
            "X-Transaction-ID",
            "X-Request-ID",
            "Prefer",
            "Content-Type",
            "Host",
        ]
    ),
    value=st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=40),
)
def test_any_header(hall: Served, name: str, value: str) -> None:
    client = Client(hall.app.test_client())
    headers = {"Content-Type": "application/json", name: value}
    response = client.post("/ask", data=b'{"predicate": "p", "args": []}', headers=headers)
    assert response.headers["X-Request-ID"].isascii()
    if response.status_code != 200:
        refused(hall, response)
