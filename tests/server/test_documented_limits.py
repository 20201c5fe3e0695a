"""Documented limits over HTTP, each tested at its edge."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from support.http import Client, error_of, serve_in_memory
from support.sockets import Running

FACT = {"predicate": "p", "args": ["a"]}
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def fact(name: str, **more: Any) -> dict[str, Any]:
    return {"predicate": "p", "args": [name], **more}


@pytest.mark.parametrize(
    ("setting", "most", "requests"),
    [
        ("tenant_max_facts", 1, [("/tell", fact("a")), ("/tell", fact("b"))]),
        (
            "tenant_max_facts",
            1,
            [("/assert/facts", {"facts": [fact("a")]}), ("/assert/facts", {"facts": [fact("b")]})],
        ),
        (
            "tenant_max_bytes",
            1,
            [("/tell", fact("a")), ("/tell", fact("b"))],
        ),
        (
            "tenant_max_bytes",
            400,
            [("/teach", {"text": f"{name}(?x) :- p(?x)."}) for name in "qr"],
        ),
        ("tenant_max_rules", 1, [("/teach", {"text": f"{name}(?x) :- p(?x)."}) for name in "qr"]),
        ("tenant_max_scopes", 1, [("/tell", fact("a", scope=scope)) for scope in "st"]),
        ("tx_max_open", 1, [("/tx/begin", None), ("/tx/begin", None)]),
    ],
)
@pytest.mark.parametrize("headers", [{}, {"Prefer": "handling=strict"}])
def test_tenant_limits_answer_429_and_name_the_limit(
    setting: str, most: int, requests: list[tuple[str, Any]], headers: dict[str, str]
) -> None:
    with serve_in_memory(**{setting: most}) as served:
        answers = [served.client.post(path, body, headers) for path, body in requests]
        refused = next(answer for answer in answers if answer.status_code != 200)
        error = error_of(refused, 429, "RATE_LIMITED")
        assert error["details"]["limit"] == setting.upper()
        assert error["details"]["value"] == most
        assert int(refused.headers["Retry-After"]) >= 1
        assert answers[0].status_code == 200
        path, body = requests[0]
        assert (
            served.client.post(path, body, {**headers, "X-Tenant-ID": "other"}).status_code == 200
        )


def test_too_many_sessions_end_the_least_recently_used() -> None:
    with serve_in_memory(tenant_max_sessions=2) as served:
        client = served.client
        client.tell("p", "a")
        for name in ("one", "two", "one", "three"):
            assert client.post("/memory/context", {"sessionId": name}).status_code == 200
        assert (
            client.post("/memory/context", {"sessionId": "two"}, {"X-Tenant-ID": "u"}).status_code
            == 200
        )
        known = {}
        for name in ("one", "two", "three"):
            known[name] = (
                client.post("/context/diff", {"sessionId": name}).get_json()["currentWindowId"]
                != "none"
            )
        assert known == {"one": True, "two": False, "three": True}


def test_connections_over_the_limit_wait() -> None:
    with serve_in_memory() as served:
        running = Running(served.app, connections=1)
        try:
            first = running.connection()
            first.request("GET", "/health")
            assert first.getresponse().read()
            with socket.create_connection(("127.0.0.1", running.port), timeout=10) as second:
                second.sendall(HEALTH)
                first.request("GET", "/health/ready")  # answered while the other waits
                assert first.getresponse().read()
                second.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    second.recv(1)
                first.close()
                second.settimeout(10)
                assert second.recv(12) == b"HTTP/1.1 200"
        finally:
            running.stop()


def deep(levels: int) -> bytes:
    inner = b"[" * (levels - 1) + b"]" * (levels - 1)
    return b'{"predicate": "p", "args": ["a"], "ignored": ' + inner + b"}"


def post(client: Client, raw: bytes) -> Any:
    return client.post("/tell", data=raw, headers={"Content-Type": "application/json"})


EDGES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("/tell", {"predicate": "p" * 255, "args": []}, {"predicate": "p" * 256, "args": []}),
    ("/tell", {"predicate": "p", "args": ["a"] * 64}, {"predicate": "p", "args": ["a"] * 65}),
    ("/query", fact("x" * 65_536), fact("x" * 65_537)),
    ("/tell", fact("x" * 65_536), fact("x" * 65_537)),
    ("/tell", fact("é" * 32_768), fact("é" * 32_768 + "x")),
    (
        "/tell",
        fact("a", metadata={"k": "v" * (32_768 - 8)}),
        fact("a", metadata={"k": "v" * (32_768 - 7)}),
    ),
    ("/teach", {"head": FACT, "body": [FACT] * 64}, {"head": FACT, "body": [FACT] * 65}),
    ("/tell", fact("a", scope="s" * 128), fact("a", scope="s" * 129)),
]


@pytest.mark.parametrize(("path", "largest", "over"), EDGES)
def test_limits_accept_their_value_and_refuse_one_more(
    path: str, largest: dict[str, Any], over: dict[str, Any]
) -> None:
    with serve_in_memory() as served:
        assert served.client.post(path, largest).status_code == 200, json.dumps(largest)[:80]
        before = len(served.store.records)
        error_of(served.client.post(path, over), 400, "VALIDATION_ERROR")
        assert len(served.store.records) == before


def test_bodies_bulks_and_depth_are_accepted_up_to_their_settings() -> None:
    with serve_in_memory(max_bulk_facts=3, max_body_bytes=400) as served:
        facts = [fact(name) for name in "abcd"]
        assert served.client.post("/assert/facts", {"facts": facts[:3]}).status_code == 200
        error_of(served.client.post("/assert/facts", {"facts": facts}), 413, "PAYLOAD_TOO_LARGE")
        raw = json.dumps(FACT).encode()
        assert post(served.client, raw.ljust(400)).status_code == 200
        assert (
            error_of(post(served.client, raw.ljust(401)), 413, "PAYLOAD_TOO_LARGE")["details"][
                "limit"
            ]
            == "MAX_BODY_BYTES"
        )
        assert post(served.client, deep(64)).status_code == 200
        assert (
            error_of(post(served.client, deep(65)), 400, "VALIDATION_ERROR")["details"]["limit"]
            == "MAX_JSON_DEPTH"
        )


def test_names_are_case_sensitive() -> None:
    with serve_in_memory() as served:
        served.client.tell("p", "a", scope="S")
        pattern = {"predicate": "p", "args": ["?x"]}
        for tenant, scope, found in (("t", "S", 1), ("T", "S", 0), ("t", "s", 0)):
            answer = served.client.post(
                "/query", {**pattern, "scope": scope}, {"X-Tenant-ID": tenant}
            )
            assert len(answer.get_json()) == found


def test_static_pages_serve_nothing_else() -> None:
    with serve_in_memory() as served:
        for path in ("/docs", "/docs/docs.js", "/docs/docs.css", "/openapi.json"):
            headers = served.client.get(path).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'self'" in headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert "Set-Cookie" not in headers


def test_metrics_have_no_tenant_labels() -> None:
    with serve_in_memory(rate_limit_tenant=(5, 60)) as served:
        for _ in range(7):
            served.client.post("/tell", FACT, {"X-Tenant-ID": "whose-name-is-nobodys-business"})
        text = served.client.get("/metrics").text
        assert "svc_http_requests_total" in text
        assert "nobodys-business" not in text
