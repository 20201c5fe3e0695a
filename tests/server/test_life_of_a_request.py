"""The way of a request through the code: how many files it enters and how many functions it calls.

Each call costs a little on every request, and each file is one more to read for a developer who
follows one. `kbserver.http.request` describes the way.
"""

from __future__ import annotations

import gc
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from flask import Flask

import kbcore
import kbplanner
import kbplugins
import kbserver
from kbcore.config.settings import Config
from kbserver.app import create_app

ROOTS = {
    str(Path(folder).resolve()) + "/": Path(folder).name
    for package in (kbcore, kbplanner, kbplugins, kbserver)
    for folder in package.__path__
}

TELL, ASK = "/tell", "/ask"
LIMITS = {TELL: (45, 200), ASK: (40, 170)}
"""Most files and calls of a request."""

Call = tuple[str, str]
"""The file of a function, and its name."""


@pytest.fixture(scope="module")
def app() -> Iterator[Flask]:
    # On a busy machine any goal may be slow, and then it is logged.
    with kbcore.open_runtime(Config(storage_backend="memory", slow_query_ms=0)) as runtime:
        app = create_app(runtime)
        taught = app.test_client().post(
            "/teach",
            json={
                "head": {"predicate": "ancestor", "args": ["?x", "?y"]},
                "body": [{"predicate": "parent", "args": ["?x", "?y"]}],
            },
            headers={"X-Tenant-ID": "t"},
        )
        assert taught.status_code == 200
        for child in ("bob", "cid"):  # the first ones compile plans and bind metrics
            send(app, TELL, {"predicate": "parent", "args": ["ann", child]})
            send(app, ASK, {"predicate": "ancestor", "args": ["ann", "?who"]})
        yield app


def send(app: Flask, path: str, body: dict[str, Any], calls: list[Call] | None = None) -> bytes:
    """Send a request; with `calls`, note there which functions of the product are called for it."""
    sent = json.dumps(body).encode()
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SCRIPT_NAME": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "9300",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "127.0.0.1:9300",
        "HTTP_X_TENANT_ID": "t",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(sent)),
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.input": io.BytesIO(sent),
        "wsgi.errors": sys.stderr,
        "wsgi.url_scheme": "http",
    }
    lines: list[str] = []

    def start(status: str, headers: list[tuple[str, str]], error: Any = None) -> None:
        lines.append(status)

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and calls is not None:
            file = frame.f_code.co_filename
            for root, package in ROOTS.items():
                if file.startswith(root):
                    calls.append((f"{package}/{file[len(root) :]}", frame.f_code.co_qualname))

    before = sys.getprofile()
    gc.disable()  # or it may free an older run in between, which calls a function
    if calls is not None:
        sys.setprofile(note)
    try:
        answer = b"".join(app(environ, start))
    finally:
        sys.setprofile(before)
        gc.enable()
    assert lines == ["200 OK"], answer
    return answer


@pytest.mark.parametrize(
    ("path", "body", "answer", "entered"),
    [
        (
            TELL,
            {"predicate": "parent", "args": ["ann", "dan"]},
            b"Fact Asserted: parent(ann, dan)",
            {"kbserver/fast_path.py", "kbcore/durable/commit.py", "kbcore/state/apply.py"},
        ),
        (
            ASK,
            {"predicate": "ancestor", "args": ["ann", "?who"]},
            b'"args":["ann","cid"]',
            {"kbserver/fast_path.py", "kbcore/reason/ask.py", "kbplanner/evaluate/evaluate.py"},
        ),
    ],
)
def test_a_request_enters_few_files_and_functions(
    app: Flask, path: str, body: dict[str, Any], answer: bytes, entered: set[str]
) -> None:
    # As in use: a fact was stored since the goal was asked the last time.
    send(app, TELL, {"predicate": "parent", "args": ["ann", f"child{path[1:]}"]})
    calls: list[Call] = []
    assert answer in send(app, path, body, calls)
    files = {file for file, _ in calls}
    assert entered <= files, "what is counted is the way of the request"
    most_files, most_calls = LIMITS[path]
    way = "\n".join(f"{file} {name}" for file, name in calls)
    assert len(files) <= most_files, f"{len(files)} files:\n{way}"
    assert len(calls) <= most_calls, f"{len(calls)} calls:\n{way}"
