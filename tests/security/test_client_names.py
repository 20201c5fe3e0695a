"""Names of tenants that a reader makes up take no memory: nothing is kept for a tenant that does
not exist.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from support.permission_matrix import body_of

import kbserver.routes.every  # noqa: F401  declares the operations
from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbcore.state.keys import READER
from kbserver import create_app
from kbserver.operations import operations

WARM, NAMES = 5, 30

STORED = frozenset(("/goals/subscribe",))
"""Paths on which a reader stores something, which limits of tenants bound."""


def reads() -> list[tuple[str, Any]]:
    """Paths of POST requests of readers with bodies, also about an earlier state."""
    requests = []
    for operation in operations():
        for method, path in (route.split(" ") for route in operation.routes):
            if method == "POST" and operation.role == READER and "<" not in path:
                body = body_of(operation)
                requests += [(path, body)]
                if isinstance(body, dict):
                    requests += [(path, {**body, "knownAt": 1})]
    return [request for request in requests if request[0] not in STORED]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FlaskClient]:
    runtime = open_runtime(Config(storage_dir=str(tmp_path), min_free_mb=0))
    runtime.open("t").tell("p(a)")
    yield create_app(runtime).test_client()
    runtime.close()


def test_questions_about_unknown_tenants_leave_nothing(client: FlaskClient) -> None:
    number, grown, requests = 0, [], reads()
    assert len(requests) > 20

    def ask(path: str, body: Any, count: int) -> int:
        """Ask about a number of new tenants; return the number of objects in memory after that."""
        nonlocal number
        for _ in range(count):
            number += 1
            client.post(path, json=body, headers={"X-Tenant-ID": f"unknown-{number}"}).close()
        gc.collect()
        return len(gc.get_objects())

    for path, body in requests:
        before = ask(path, body, WARM)
        if ask(path, body, NAMES) - before >= NAMES:
            grown.append((path, body))
    assert grown == []
