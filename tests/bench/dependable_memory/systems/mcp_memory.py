"""The reference memory server of the Model Context Protocol, a process that speaks over its pipes.

Entities are the names, relations the facts. A relation with one value is deleted before the new one
is created, since the server has no update. Each user has a server and a file, as its documentation
configures one with MEMORY_FILE_PATH.
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ..interface import NotAvailable
from ..model import Case
from .walking import Walking

PACKAGE = "@modelcontextprotocol/server-memory@2026.8.31"
COMMAND = "MCP_MEMORY_COMMAND"
"""Variable with the command of an installed server, instead of `npx`."""
PROTOCOL = "2025-06-18"
START_SECONDS, CALL_SECONDS = 120, 30


class _Server:
    """A process of the server; requests are JSON-RPC messages, one on a line."""

    def __init__(self, command: list[str], file: Path) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MEMORY_FILE_PATH": str(file)},
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._buffer = b""
        self._number = 0
        client = {"name": "dependable-memory", "version": "1"}
        start = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
        self.info = self._request("initialize", start, START_SECONDS)["serverInfo"]
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured content; raise RuntimeError for errors."""
        result = self._request("tools/call", {"name": tool, "arguments": arguments}, CALL_SECONDS)
        if result.get("isError"):
            raise RuntimeError(result["content"][0]["text"])
        content: dict[str, Any] = result["structuredContent"]
        return content

    def close(self) -> None:
        """End the process."""
        self._selector.close()
        self._process.terminate()
        self._process.communicate()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _request(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while True:
            message = json.loads(self._line(seconds))
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(message["error"]["message"])
                result: dict[str, Any] = message["result"]
                return result

    def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._buffer:
            if not self._selector.select(seconds):
                raise TimeoutError(f"the server did not answer within {seconds} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise RuntimeError("the server ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class MCPMemory(Walking):
    """The server with entities and relations."""

    def __init__(self) -> None:
        command = os.environ.get(COMMAND, "")
        if not command and not shutil.which("npx"):
            raise NotAvailable(f"npx of Node.js, or {COMMAND} with the command of the server")
        self._command = shlex.split(command) or ["npx", "-y", PACKAGE]
        self._servers: dict[str, _Server] = {}
        self._folder = tempfile.TemporaryDirectory()
        self._files = 0
        try:
            version = str(self._server("probe").info["version"])
        except (OSError, RuntimeError, TimeoutError) as error:
            self._end()
            self._folder.cleanup()
            raise NotAvailable(f"{self._command[0]} does not start the server: {error}") from error
        super().__init__("mcp-memory", version, {"package": PACKAGE})
        self._end()

    def open(self, case: Case) -> None:
        """End the servers of the last case; the next ones begin with empty files."""
        super().open(case)
        self._end()

    def close(self) -> None:
        """End the servers and remove their files."""
        self._end()
        self._folder.cleanup()

    def _end(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def _server(self, user: str) -> _Server:
        if user not in self._servers:
            self._files += 1
            file = Path(self._folder.name) / f"memory-{self._files}.jsonl"
            self._servers[user] = _Server(self._command, file)
        return self._servers[user]

    def _relations(self, user: str, subject: str) -> list[dict[str, str]]:
        graph = self._server(user).call("open_nodes", names=[subject])
        return [each for each in graph["relations"] if each["from"] == subject]

    def put(self, user: str, subject: str, relation: str, value: str, only: bool) -> None:
        """Create the entities and the relation."""
        server = self._server(user)
        names = [
            {"name": name, "entityType": "name", "observations": []} for name in (subject, value)
        ]
        server.call("create_entities", entities=names)
        if only:
            self.delete(user, subject, relation, "")
        edge = {"from": subject, "to": value, "relationType": relation}
        server.call("create_relations", relations=[edge])

    def values(self, user: str, subject: str, relation: str) -> set[str]:
        """Return the ends of the relations of a type."""
        relations = self._relations(user, subject)
        return {each["to"] for each in relations if each["relationType"] == relation}

    def subjects(self, user: str) -> set[str]:
        """Return the names of the entities."""
        graph = self._server(user).call("read_graph")
        return {each["name"] for each in graph["entities"]}

    def delete(self, user: str, subject: str, relation: str, value: str) -> None:
        """Delete the relations that match; without both, the entity with all its relations."""
        server = self._server(user)
        if not relation and not value:
            server.call("delete_entities", entityNames=[subject])
            return
        old = [
            {key: each[key] for key in ("from", "to", "relationType")}
            for each in self._relations(user, subject)
            if relation in ("", each["relationType"]) and value in ("", each["to"])
        ]
        if old:
            server.call("delete_relations", relations=old)
