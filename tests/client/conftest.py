"""Knowledge bases for tests of the client: in this process, over HTTP, and over HTTP with keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.optional import ignored
from support.servers import Server

if TYPE_CHECKING:
    from kbcore_client import KnowledgeBase, Settings

collect_ignore_glob = ignored(
    "client",
    "the client: pip install -e clients/python",
    is_installed=find_spec("kbcore_client") is not None,
)

KEY = "the-key-of-the-client-tests"
TARGETS = ("embedded", "http", "keys")


@pytest.fixture(scope="session")
def http_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server without keys."""
    with Server(tmp_path_factory.mktemp("client")) as server:
        yield "http://{}:{}".format(*server.address)


@pytest.fixture(scope="session")
def keyed_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that needs a key."""
    with Server(tmp_path_factory.mktemp("keyed"), API_KEY=KEY) as server:
        yield "http://{}:{}".format(*server.address)


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of `connect` for each kind of knowledge base."""
    if request.param == "embedded":
        return {"target": "memory:"}
    if request.param == "http":
        return {"target": request.getfixturevalue("http_url")}
    return {"target": request.getfixturevalue("keyed_url"), "api_key": KEY}


_TENANTS = itertools.count()


@pytest.fixture
def place(target: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `connect` for an empty tenant."""
    return {**target, "tenant": f"t{next(_TENANTS)}"}


@pytest.fixture
def kb(place: dict[str, Any]) -> Iterator[KnowledgeBase]:
    """An empty knowledge base."""
    from kbcore_client import connect

    with connect(**place) as opened:
        yield opened


@pytest.fixture
def impatient() -> Settings:
    """Settings without retries."""
    from kbcore_client import Retries, Settings

    return Settings(retries=Retries(attempts=0))


@pytest.fixture
def root() -> Path:
    """The folder of the client's distribution."""
    return Path(__file__).resolve().parents[2] / "clients" / "python"
