"""Health, required headers, media types, request ids and error responses of all routes."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest
from support.http import ALONE, READS, SCOPES, WRITES, Client, Served, error_of

from kbcore.errors import (
    KBError,
    LogCorrupted,
    NotReady,
    RateLimited,
    SnapshotFailed,
    StorageFailed,
    StorageFull,
)
from kbserver.app import stop_process

GOAL = {"predicate": "p", "args": ["a"]}


def test_health_touches_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(served.runtime), "health", None)
    served.clock.advance(2500)
    response = served.client.flask.get("/health")
    assert response.status_code == 200
    found = response.get_json()
    assert list(found) == ["status", "version", "uptimeSeconds"]
    assert (found["status"], found["uptimeSeconds"]) == ("healthy", 2.5)


@pytest.mark.parametrize(
    ("status", "code"), [("healthy", 200), ("degraded", 200), ("unhealthy", 503)]
)
def test_readiness(served: Served, monkeypatch: pytest.MonkeyPatch, status: str, code: int) -> None:
    checks = {"storage": {"status": "pass", "message": "fine"}}
    found = {"status": status, "checks": checks, "writable": True}
    monkeypatch.setattr(type(served.runtime), "health", lambda self: found)
    response = served.client.flask.get("/health/ready")
    assert (response.status_code, response.get_json()) == (code, found)


@pytest.mark.parametrize("path", [*WRITES, *READS, *ALONE, *SCOPES])
def test_a_tenant_is_required(served: Served, path: str) -> None:
    error = error_of(served.client.flask.post(path, json=GOAL), 400, "VALIDATION_ERROR")
    assert "X-Tenant-ID" in error["message"]
    assert error["details"] == {"header": "X-Tenant-ID"}


@pytest.mark.parametrize("header", ["X-Tenant-ID", "X-Database"])
@pytest.mark.parametrize("name", ["a b", "a/b", "..", ".", "x" * 129, "a,b", "\xe4", "%2e"])
def test_names_are_checked(client: Client, header: str, name: str) -> None:
    error = error_of(client.post("/ask", GOAL, {header: name}), 400, "VALIDATION_ERROR")
    assert error["details"] == {"header": header}


@pytest.mark.parametrize("name", ["a", "A-b_c.d:e@f", "x" * 128, "..."])
def test_good_names(client: Client, name: str) -> None:
    assert client.post("/ask", GOAL, {"X-Tenant-ID": name}).status_code == 200


@pytest.mark.parametrize("path", [*WRITES, *READS, *ALONE, "/predicates", "/rules"])
def test_an_unknown_database(client: Client, path: str) -> None:
    body = {**GOAL, "op": "COUNT", "facts": [], "id": "x"}
    if path in ("/assert/rule", "/teach"):
        body = {"text": "p(a)."}
    other = {"X-Database": "none"}
    response = (
        client.get(path, other)
        if path in ("/predicates", "/rules")
        else client.post(path, body, other)
    )
    error_of(response, 404, "NOT_FOUND")


def test_tenants_are_separate(client: Client) -> None:
    client.tell("p", "a")
    assert client.post("/ask", GOAL, {"X-Tenant-ID": "other"}).get_json() == []
    assert client.post("/ask", GOAL, {"X-Database": "default"}).get_json() != []


@pytest.mark.parametrize("path", [*WRITES, *READS])
def test_an_unknown_transaction(client: Client, path: str) -> None:
    body: dict[str, Any] = {**GOAL, "op": "COUNT", "facts": [GOAL], "id": "x"}
    if path in ("/assert/rule", "/teach"):
        body = {"text": "p(a). p(?x) :- q(?x)."}
    error = error_of(client.post(path, body, {"X-Transaction-ID": "nope"}), 404, "NOT_FOUND")
    assert error["details"] == {"transaction": "nope"}
    assert client.get("/predicates").get_json()["totalPredicates"] == 0


@pytest.mark.parametrize("path", ALONE)
def test_routes_outside_transactions_refuse_the_header(client: Client, path: str) -> None:
    client.tell("p", "a")
    id = client.post("/tx/begin").text
    for transaction in (id, "nope"):
        body = {**GOAL, "threshold": 1, "priority": 1}
        error = error_of(
            client.post(path, body, {"X-Transaction-ID": transaction}), 400, "VALIDATION_ERROR"
        )
        assert error["details"] == {"header": "X-Transaction-ID"}
    assert client.ask("p", "?x") == [["a"]]
    assert client.post(f"/tx/rollback/{id}").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/", 405, "VALIDATION_ERROR"),
        ("GET", "/nope", 404, "NOT_FOUND"),
        ("POST", "/tell/", 404, "NOT_FOUND"),
        ("POST", "//tell", 404, "NOT_FOUND"),
        ("POST", "/TELL", 404, "NOT_FOUND"),
        ("POST", "/a/../tell", 404, "NOT_FOUND"),
        ("GET", "/tell", 405, "VALIDATION_ERROR"),
        ("PUT", "/ask", 405, "VALIDATION_ERROR"),
        ("DELETE", "/health", 405, "VALIDATION_ERROR"),
        ("OPTIONS", "/ask", 405, "VALIDATION_ERROR"),
        ("BREW", "/ask", 405, "VALIDATION_ERROR"),
        ("POST", "/static/x", 404, "NOT_FOUND"),
    ],
)
def test_paths_and_methods(client: Client, method: str, path: str, status: int, code: str) -> None:
    # The client of the tests takes `//tell` for a host.
    environ = {"PATH_INFO": path.partition("?")[0]}
    error_of(client.flask.open("/", method=method, environ_overrides=environ), status, code)


def test_a_wrong_method_names_the_right_one(client: Client) -> None:
    response = client.flask.get("/tell")
    assert response.headers["Allow"] == "POST"
    assert response.get_json()["details"] == {"allowed": ["POST"]}


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/json; charset=latin-1",
        "application/json, application/json",
    ],
)
def test_unsupported_media_types(client: Client, content_type: str | None) -> None:
    response = client.post(
        "/tell", data=b'{"predicate": "p", "args": ["a"]}', content_type=content_type
    )
    error_of(response, 415, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON ; charset=UTF-8",
        'application/json; charset="utf-8"; x=y',
    ],
)
def test_supported_media_types(client: Client, content_type: str) -> None:
    assert (
        client.post(
            "/tell", data=b'{"predicate": "p", "args": ["a"]}', content_type=content_type
        ).status_code
        == 200
    )


def test_compressed_bodies_are_refused(client: Client) -> None:
    error_of(client.post("/tell", GOAL, {"Content-Encoding": "gzip"}), 415, "VALIDATION_ERROR")


def test_an_empty_body_is_an_empty_object(client: Client) -> None:
    error = error_of(client.post("/tell"), 400, "VALIDATION_ERROR")
    assert set(error["details"]["fields"]) == {"predicate", "args"}


def test_request_ids(client: Client) -> None:
    assert (
        client.get("/health", {"X-Request-ID": "my-Id_1.2"}).headers["X-Request-ID"] == "my-Id_1.2"
    )
    assert client.get("/nope", {"X-Request-ID": "my-id"}).headers["X-Request-ID"] == "my-id"
    for bad in ("a b", "x" * 129, "a;b"):
        assert uuid.UUID(client.get("/health", {"X-Request-ID": bad}).headers["X-Request-ID"])


def test_each_request_has_one_access_line(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kbserver.access"):
        client.post("/tell", {"predicate": "secret", "args": []}, {"X-Request-ID": "r1"})
        client.get("/nope")
    fields = [record.fields for record in caplog.records]
    assert fields[0] == {
        "method": "POST",
        "path": "/tell",
        "status": 200,
        "ms": 0.0,
        "id": "r1",
        "tenant": "t",
        "address": "127.0.0.1",
    }
    assert fields[1]["status"] == 404
    assert "secret" not in str(fields)


@pytest.mark.parametrize(
    ("error", "status", "code", "headers"),
    [
        (NotReady("stopping"), 503, "NOT_READY", {"Retry-After": "1"}),
        (RateLimited("too many", 1.2), 429, "RATE_LIMITED", {"Retry-After": "2"}),
        (StorageFull("no room", {"freeBytes": 0}), 507, "STORAGE_FULL", {}),
        (RuntimeError("bug"), 500, "INTERNAL_ERROR", {}),
    ],
)
def test_errors_of_the_core(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    code: str,
    headers: dict[str, str],
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(type(served.runtime), "knowledge_base", fail)
    response = served.client.post("/ask", GOAL)
    error_of(response, status, code)
    assert headers.items() <= dict(response.headers).items()
    assert "Traceback" not in response.text
    assert served.stopped == []


SERVER_PATH = "/srv/kb/secret-folder"


@pytest.mark.parametrize(
    "error",
    [
        StorageFull(
            f"the disk of {SERVER_PATH} is full",
            {"file": f"{SERVER_PATH}/x.wal", "errno": 28, "freeBytes": 0},
        ),
        StorageFailed(f"fsync of {SERVER_PATH}/x.wal failed", {"file": f"{SERVER_PATH}/x.wal"}),
        SnapshotFailed(f"snapshot {SERVER_PATH}/s was not stored", {"file": f"{SERVER_PATH}/s"}),
        LogCorrupted("bad checksum", directory=SERVER_PATH, segment="x.wal", offset=7),
    ],
)
def test_storage_errors_show_no_server_path(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: KBError,
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(type(served.runtime), "knowledge_base", fail)
    response = served.client.post("/ask", GOAL)
    assert response.status_code == (507 if isinstance(error, StorageFull) else 500)
    assert "secret-folder" not in response.text
    assert "x.wal" not in response.text
    assert response.get_json()["details"] == (
        {"freeBytes": 0} if isinstance(error, StorageFull) else None
    )
    assert error.message in caplog.text


def test_stopping_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []
    monkeypatch.setattr("kbserver.app.os._exit", stopped.append)
    monkeypatch.setattr("kbserver.app.logging.shutdown", lambda: None)
    stop_process(StorageFailed("fsync failed"))
    assert stopped == [74]


def test_a_failed_sync_stops_the_process(served: Served) -> None:
    served.store.broken = StorageFailed("fsync failed")
    response = served.client.post("/tell", GOAL)
    error_of(response, 500, "INTERNAL_ERROR")
    assert [type(error) for error in served.stopped] == [StorageFailed]
