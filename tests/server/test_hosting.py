"""The server inside another application and under another WSGI server."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from support.http import Served, error_of
from werkzeug.test import EnvironBuilder

from kbcore.config import Config
from kbserver import create_app, wsgi

EXAMPLE = Path(__file__).parents[2] / "server" / "examples" / "host_app.py"


def test_the_example_host(served: Served) -> None:
    host = runpy.run_path(str(EXAMPLE))["make_host"](served.runtime).test_client()
    assert host.get("/visit/ann").get_json() == {"visitors": ["ann"]}
    goal = {"predicate": "visited", "args": ["?who"]}
    found = host.post("/kb/ask", json=goal, headers={"X-Tenant-ID": "visitors"}).get_json()
    assert [row["args"] for row in found] == [["ann"]]
    error_of(host.get("/kb/nope"), 404, "NOT_FOUND")
    assert "X-Request-ID" not in host.get("/nope").headers


def test_the_wsgi_entry_point_opens_with_the_first_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Config] = []

    def open_once(config: Config, **more: Any) -> Any:
        opened.append(config)
        return served.runtime

    monkeypatch.setattr(wsgi, "open_runtime", open_once)
    monkeypatch.setattr(wsgi, "_apps", [])
    answers: list[str] = []
    environ = EnvironBuilder("/health").get_environ()
    for _ in range(2):
        b"".join(
            wsgi.application(
                dict(environ), lambda status, headers, error=None: answers.append(status)
            )
        )
    assert answers == ["200 OK", "200 OK"]
    assert len(opened) == 1


@pytest.mark.parametrize("fast_path", [True, False])
def test_an_empty_path_may_be_missing(served: Served, fast_path: bool) -> None:
    """As WSGI allows; so a host may ask for the place itself where the knowledge base is mounted."""
    environ = EnvironBuilder("/kb").get_environ()
    environ["SCRIPT_NAME"] = environ.pop("PATH_INFO")
    answers: list[str] = []
    body = create_app(served.runtime, fast_path=fast_path)(
        environ, lambda status, headers, error=None: answers.append(status)
    )
    assert b'"NOT_FOUND"' in b"".join(body)
    assert answers == ["404 NOT FOUND"]
