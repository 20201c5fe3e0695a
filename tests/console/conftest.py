"""A browser on the console of a real server.

The browser is Debian's chromium. Every page fails its test if it writes an error to its console,
raises an exception, or sends a request to another host.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from support.console import Console
from support.optional import ignored
from support.servers import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

collect_ignore_glob = ignored(
    "console", "playwright, of tox -e browser", is_installed=find_spec("playwright") is not None
)

TOKEN = "a-token-for-the-first-key-of-the-server"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without keys; each test uses tenants of its own."""
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="session")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with managed keys."""
    folder = tmp_path_factory.mktemp("keyed")
    with Server(folder, AUTH_ENABLED="true", BOOTSTRAP_TOKEN=TOKEN) as running:
        yield running


@pytest.fixture(scope="session")
def keys(keyed_server: Server) -> dict[str, str]:
    """A key of each role."""
    base = f"http://{keyed_server.address[0]}:{keyed_server.address[1]}"
    first = httpx.post(f"{base}/auth/bootstrap", json={"token": TOKEN, "name": "root"})
    headers = {"Authorization": f"Bearer {first.json()['key']}"}
    roles = ("reader", "writer")
    answers = {
        role: httpx.post(f"{base}/auth/keys", json={"name": role, "role": role}, headers=headers)
        for role in roles
    }
    return {role: answer.json()["key"] for role, answer in answers.items()}


@pytest.fixture
def new_console(
    browser: Browser, server: Server, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Console]]:
    """Open consoles with options of the browser context, such as `color_scheme` or `viewport`."""
    contexts: list[BrowserContext] = []
    consoles: list[Console] = []

    def create(on: Server = server, **options: Any) -> Console:
        context = browser.new_context(accept_downloads=True, **options)
        contexts.append(context)
        # The bar shows the tenant: its name has no words that a test looks for on the page.
        tenant = f"t{zlib.crc32(request.node.nodeid.encode())}"
        consoles.append(Console(context.new_page(), on, tenant))
        return consoles[-1]

    yield create
    for context in contexts:
        context.close()
    assert [problem for console in consoles for problem in console.problems()] == []


@pytest.fixture
def console(new_console: Callable[..., Console]) -> Console:
    return new_console()
