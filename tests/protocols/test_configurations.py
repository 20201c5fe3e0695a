"""The configurations of MCP clients that the documentation shows: each starts or reaches a server,
in its tenant.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.servers import Server

pytest.importorskip("mcp", reason="the official SDK is not installed; tox -e full has it")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.filterwarnings("ignore")

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = ("connect-an-mcp-client",)
LOCAL = "http://localhost:9300"


def configurations() -> Iterator[Any]:
    """Yield the entry of each server in the pages, with the page as id."""
    for page in PAGES:
        text = (HOW_TO / f"{page}.md").read_text("utf-8")
        for language, block in re.findall(r"```(json|toml)\n(.*?)```", text, re.DOTALL):
            whole = json.loads(block) if language == "json" else tomllib.loads(block)
            (servers,) = whole.values()
            (entry,) = servers.values()
            yield pytest.param(entry, id=f"{page}-{next(iter(whole))}-{'-'.join(entry)}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Server(tmp_path_factory.mktemp("mcp")) as found:
        yield f"http://{found.address[0]}:{found.address[1]}"


@asynccontextmanager
async def opened(entry: dict[str, Any], server: str, folder: Path) -> AsyncIterator[Client]:
    """A client that is connected as an entry says, to the test's server."""
    if "command" in entry:
        assert entry["command"] == "kbcore"
        assert entry.keys() == {"command", "args"}
        args = [arg.replace(LOCAL, server) for arg in entry["args"]]
        program = StdioServerParameters(
            command=sys.executable, args=["-m", "kbserver.cli", *args], cwd=folder
        )
        with open(os.devnull, "w") as nowhere:
            async with Client(stdio_client(program, errlog=nowhere)) as client:
                yield client
        return
    url = entry.get("url") or entry["httpUrl"]
    assert url.startswith(LOCAL)
    async with create_mcp_http_client(headers=entry.get("headers")) as http:
        transport = streamable_http_client(url.replace(LOCAL, server), http_client=http)
        async with Client(transport) as client:
            yield client


@pytest.mark.parametrize("entry", [*configurations()])
def test_a_configuration_reaches_the_tools(entry, server, tmp_path):
    async def use() -> None:
        async with opened(entry, server, tmp_path) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"ask", "tell", "context"} < names
            await client.call_tool("tell", {"text": "chosen(parser, lark)"})
            result = await client.call_tool("ask", {"text": "chosen(parser, ?what)"})
            assert result.structured_content["count"] == 1

    asyncio.run(use())
    words = entry.get("args", [])
    if "--storage-dir" in words:
        assert (tmp_path / words[-1]).is_dir()
        return
    tenant = words[-1] if words else entry["headers"]["X-Tenant-ID"]
    asked = {"predicate": "chosen", "args": ["?x", "?y"]}
    reply = httpx.post(f"{server}/query", json=asked, headers={"X-Tenant-ID": tenant})
    assert len(reply.json()) == 1
