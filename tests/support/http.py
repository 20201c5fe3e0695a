"""A runtime without storage, and a client that sends requests like published clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from pluggy import HookimplMarker
from werkzeug.test import TestResponse

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.plug.ports import LogRecord, LogStatus
from kbcore.scheduling import Scheduling
from kbcore.state.keys import READER, WRITER
from kbserver import create_app
from kbserver.operations import routes

hookimpl = HookimplMarker("kbcore")

NOW = 1_700_000_000_000

ROW_KEYS = [
    "predicate",
    "args",
    "negated",
    "scope",
    "metadata",
    "createdAt",
    "validFrom",
    "validUntil",
    "ttl",
    "confidence",
]
"""The keys of a row, in their order."""

WRITES = (
    "/tell",
    "/assert/fact",
    "/assert/facts",
    "/assert/rule",
    "/teach",
    "/retract",
    "/forget",
    "/retract/pattern",
    "/retract/rule",
    "/execute",
)
READS = (
    "/infer",
    "/ask",
    "/query",
    "/neighbours",
    "/aggregate",
    "/memory/query/salient",
    "/memory/query/temporal",
    "/memory/recall",
)
ALONE = (
    "/memory/decay",
    "/memory/cleanup",
    "/memory/consolidate",
    "/memory/compress",
    "/memory/priority",
    "/memory/prioritize",
)
"""Writes that are no part of a transaction."""
CONTEXT = (
    "/memory/context",
    "/context/optimize",
    "/context/diff",
    "/context/session/clear",
    "/context/summary",
)
TEXTS = ("/context/ingest", "/context", "/extract", "/synthesize")
"""Routes that read texts."""
SCOPES = ("/scope/fork", "/scope/diff", "/scope/merge")
OTHERS = tuple(
    sorted(
        path
        for (method, path), declared in routes().items()
        if method == "POST"
        and declared.role in (READER, WRITER)
        and declared.body is not None
        and not (declared.on_leader or "<" in path)
        and path not in (*WRITES, *READS, *ALONE, *CONTEXT, *TEXTS, *SCOPES)
    )
)
"""What other operations take a body: new ones are tested like these without being named here."""

ADMIN = ("/admin/databases", "/admin/databases/none/tenants", "/auth/keys")


class Forgetful:
    """A log that forgets; `broken` is raised by the next writes where it is set."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.broken: Exception | None = None

    def append(self, records: Iterable[tuple[int, int, bytes]]) -> int:
        if self.broken is not None:
            raise self.broken
        for kind, version, payload in records:
            self.records.append(LogRecord(len(self.records) + 1, kind, version, payload))
        return len(self.records)

    def sync(self) -> None:
        pass

    def read(self, after: int) -> Iterator[LogRecord]:
        return iter(self.records[after:])

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        pass

    def load_snapshot(self) -> None:
        return None

    def drop_before(self, seq: int) -> None:
        pass

    def status(self) -> LogStatus:
        return LogStatus(len(self.records), len(self.records), "test", 1, 0, 0, True)

    def close(self, *, clean: bool = True) -> None:
        pass


class ForgetfulPlugin:
    """Offers the forgetful log as backend `forgetful`."""

    def __init__(self) -> None:
        self.store = Forgetful()

    @hookimpl
    def kb_storage_backends(self, config: Config) -> Mapping[str, Any]:
        return {"forgetful": lambda config: self.store}


FORGETFUL = ForgetfulPlugin()
"""For processes that load it as the entry point of a third-party plugin."""


def make_runtime(
    scheduling: Scheduling | None = None, **settings: Any
) -> tuple[Runtime, Forgetful, ManualClock]:
    """Open a runtime on a manual clock, with settings given by the names of the fields of
    Config.
    """
    plugin, clock = ForgetfulPlugin(), ManualClock(NOW)
    runtime = open_runtime(
        Config(storage_backend="forgetful", **settings),
        plugins=(plugin,),
        clock=clock,
        scheduling=scheduling,
    )
    return runtime, plugin.store, clock


class Client:
    """Sends JSON as tenant `t`; `last` is the last response."""

    def __init__(self, flask: FlaskClient) -> None:
        self.flask = flask

    def post(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> TestResponse:
        if body is not None:
            more["json"] = body
        return self.flask.post(path, headers={"X-Tenant-ID": "t", **(headers or {})}, **more)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> TestResponse:
        return self.flask.get(path, headers={"X-Tenant-ID": "t", **(headers or {})})

    def tell(self, predicate: str, *args: Any, **more: Any) -> None:
        response = self.post("/tell", {"predicate": predicate, "args": list(args), **more})
        assert response.status_code == 200, response.text

    def ask(self, predicate: str, *args: Any, **more: Any) -> list[list[str]]:
        response = self.post("/ask", {"predicate": predicate, "args": list(args), **more})
        assert response.status_code == 200, response.text
        return [row["args"] for row in response.get_json()]


@dataclass
class Served:
    """An application, what is under it, and a client of it."""

    app: Flask
    runtime: Runtime
    store: Forgetful
    clock: ManualClock
    client: Client
    stopped: list[Exception]


@contextmanager
def serve_in_memory(**settings: Any) -> Iterator[Served]:
    """Make an application over a fresh runtime; `stopped` collects what would have stopped the
    process.
    """
    runtime, store, clock = make_runtime(**settings)
    stopped: list[Exception] = []
    app = create_app(runtime, on_storage_failed=stopped.append)
    try:
        yield Served(app, runtime, store, clock, Client(app.test_client()), stopped)
    finally:
        runtime.close()


def error_of(response: TestResponse, status: int, code: str) -> dict[str, Any]:
    """Check that a response is an error in the one shape, and give it."""
    assert response.status_code == status, (response.status_code, response.text)
    found: dict[str, Any] = response.get_json()
    assert list(found) == ["code", "message", "details"]
    assert found["code"] == code
    assert isinstance(found["message"], str)
    assert found["message"]
    assert found["details"] is None or isinstance(found["details"], dict)
    assert response.headers["X-Request-ID"]
    assert response.content_type == "application/json"
    return found
