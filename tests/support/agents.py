"""A client of the tool protocol for applications without the SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from werkzeug.test import TestResponse

from kbserver.mcp.versions import CAPABILITIES_KEY, LEGACY, NAMED, VERSION_KEY
from support.http import Client

MODERN = "2026-07-28"
META = {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}}
BOTH = "application/json, text/event-stream"


class Agent:
    """Speaks the protocol to an application."""

    def __init__(self, client: Client, capabilities: dict[str, Any] | None = None) -> None:
        self.flask = client.flask
        self.session: str | None = None
        self.capabilities = capabilities or {}

    def send(self, message: Any, path: str = "/mcp", **headers: str) -> TestResponse:
        found = {
            "Accept": BOTH,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if self.session is not None:
            found.setdefault("Mcp-Session-Id", self.session)
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.flask.post(path, data=body, content_type="application/json", headers=found)

    def legacy(self, method: str, params: Any = None, **headers: str) -> dict[str, Any]:
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            **({"params": params} if params is not None else {}),
        }
        response = self.send(message, **headers)
        assert response.content_type == "application/json", response.text
        found: dict[str, Any] = response.get_json()
        return found

    def modern(
        self, method: str, params: dict[str, Any] | None = None, **headers: str
    ) -> TestResponse:
        name = NAMED.get(method)
        said = {"MCP_Protocol_Version": MODERN, "Mcp_Method": method}
        if name is not None and params is not None:
            said["Mcp_Name"] = str(params.get(name))
        message = {
            "jsonrpc": "2.0",
            "id": "a",
            "method": method,
            "params": {
                **(params or {}),
                "_meta": {
                    **META,
                    CAPABILITIES_KEY: self.capabilities,
                    **(params or {}).get("_meta", {}),
                },
            },
        }
        return self.send(message, **{**said, **headers})

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """A call without a session; the result."""
        found = self.legacy("tools/call", {"name": name, "arguments": arguments})
        result: dict[str, Any] = found["result"]
        return result

    def open(self, version: str = LEGACY[0]) -> dict[str, Any]:
        params = {
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "t", "version": "1"},
        }
        response = self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.session = response.headers["Mcp-Session-Id"]
        found: dict[str, Any] = response.get_json()["result"]
        return found


def failed(response: TestResponse, status: int, code: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.get_json()
    assert found["error"]["code"] == code, found
    assert "result" not in found
    return found


def frames(response: TestResponse) -> Iterator[dict[str, Any]]:
    """The messages of a stream, as they come."""
    assert response.content_type.startswith("text/event-stream"), response.text
    for part in response.response:
        for line in part.decode().split("\n") if isinstance(part, bytes) else part.split("\n"):
            if line.startswith("data: {"):
                yield json.loads(line[6:])
