"""Logins of the official MCP client, unmodified, at an issuer of the test."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.clusters import free_ports
from support.issuer import CLIENT, SECRET, Issuer, redirected
from support.servers import Server

pytest.importorskip("mcp", reason="the official SDK is not installed; tox -e full has it")

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

pytestmark = pytest.mark.filterwarnings("ignore")

MODES = ("2026-07-28", "legacy")
CALLBACK = "http://127.0.0.1/callback"


class Storage:
    """The memory of a client."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer("/realm") as running:
        yield running


@pytest.fixture
def url(issuer: Issuer, tmp_path: Path) -> Iterator[str]:
    """The address of MCP of a server that trusts the issuer."""
    (port,) = free_ports(1)
    public = f"http://127.0.0.1:{port}"
    settings = {"OAUTH_ISSUER": issuer.url, "PUBLIC_URL": public}
    issuer.audience = f"{public}/mcp"
    with Server(tmp_path, "--port", str(port), **settings):
        yield f"{public}/mcp"


@asynccontextmanager
async def connected(
    url: str, mode: str, auth: Any = None, token: str = ""
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(auth=auth, headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as agent,
    ):
        yield agent


def run(work: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(asyncio.wait_for(work, 60))


async def use(agent: Client) -> None:
    """List the tools, store a fact and find it."""
    assert {"ask", "tell"} <= {tool.name for tool in (await agent.list_tools()).tools}
    stored = await agent.call_tool("tell", {"predicate": "likes", "args": ["ann", "tea"]})
    assert not stored.is_error
    answer = await agent.call_tool("ask", {"predicate": "likes", "args": ["ann", "?what"]})
    assert answer.structured_content is not None
    assert [row["args"] for row in answer.structured_content["results"]] == [["ann", "tea"]]


@pytest.mark.parametrize("mode", MODES)
def test_a_client_with_a_token(url: str, issuer: Issuer, mode: str) -> None:
    async def work() -> None:
        async with connected(url, mode, token=issuer.token()) as agent:
            await use(agent)

    run(work())


@pytest.mark.parametrize("mode", MODES)
def test_a_program_logs_in_with_its_own_credentials(url: str, issuer: Issuer, mode: str) -> None:
    async def work() -> None:
        storage = Storage()
        login = ClientCredentialsOAuthProvider(
            url, storage, CLIENT, SECRET, "client_secret_post", issuer=issuer.url
        )
        async with connected(url, mode, login) as agent:
            await use(agent)
        assert storage.tokens is not None

    run(work())


@pytest.mark.parametrize("mode", MODES)
def test_a_user_logs_in_in_a_browser(url: str, issuer: Issuer, mode: str) -> None:
    """The client registers itself, and a handler in the place of the browser follows the login."""
    answered: dict[str, str] = {}

    async def browse(address: str) -> None:
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(address)
        answered.update(redirected(answer.headers["Location"]))

    async def returned() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(
            code=answered["code"], state=answered["state"], iss=answered["iss"]
        )

    async def work() -> None:
        metadata = OAuthClientMetadata(
            redirect_uris=[CALLBACK], client_name="test", token_endpoint_auth_method="none"
        )
        login = OAuthClientProvider(url, metadata, Storage(), browse, returned)
        async with connected(url, mode, login) as agent:
            await use(agent)

    run(work())
    assert issuer.scopes == ["kbcore:read kbcore:write"], "administrators' rights are not asked for"


@pytest.mark.parametrize("mode", MODES)
def test_a_client_requests_the_scope_that_a_tool_needs(url: str, issuer: Issuer, mode: str) -> None:
    """The first token may only read; the 403 of `tell` makes the client request one that writes."""
    issuer.granted = "kbcore:read"

    async def work() -> None:
        login = ClientCredentialsOAuthProvider(
            url, Storage(), CLIENT, SECRET, "client_secret_post", issuer=issuer.url
        )
        async with connected(url, mode, login) as agent:
            await agent.list_tools()
            issuer.granted = None
            await use(agent)

    run(work())
    assert len(issuer.scopes) == 2
    assert "kbcore:write" in issuer.scopes[1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("progress", [False, True])
def test_a_token_that_only_reads_is_refused_for_tell(
    url: str, issuer: Issuer, mode: str, progress: bool
) -> None:
    refused: list[httpx2.Response] = []

    async def note(response: httpx2.Response) -> None:
        if response.status_code >= 400:
            refused.append(response)

    async def report(progress: float, total: float | None, message: str | None) -> None:
        """Want progress, so that the call would run in the background."""

    async def work() -> None:
        headers = {"Authorization": f"Bearer {issuer.token('kbcore:read')}"}
        async with (
            httpx2.AsyncClient(headers=headers, event_hooks={"response": [note]}) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as agent,
        ):
            assert (await agent.list_tools()).tools
            more = {"progress_callback": report} if progress else {}
            with pytest.raises(Exception):  # noqa: B017 - its class is not documented
                await agent.call_tool("tell", {"predicate": "p", "args": ["a"]}, **more)
            answer = await agent.call_tool("ask", {"predicate": "p", "args": ["?x"]})
            assert answer.structured_content is not None
            assert answer.structured_content["results"] == []

    run(work())
    (answer,) = [each for each in refused if each.request.method == "POST"]
    assert answer.status_code == 403
    challenge = answer.headers["WWW-Authenticate"]
    assert 'error="insufficient_scope", scope="kbcore:write"' in challenge


@pytest.mark.parametrize("mode", MODES)
def test_a_client_with_a_token_for_another_server_is_not_connected(
    url: str, issuer: Issuer, mode: str
) -> None:
    listed: list[Any] = []

    async def work() -> None:
        async with connected(url, mode, token=issuer.token(aud="https://other.example")) as agent:
            listed.append(await agent.list_tools())

    with pytest.raises(BaseException) as caught:
        run(work())
    assert listed == []
    assert not isinstance(caught.value, TimeoutError)
