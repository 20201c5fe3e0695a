"""A server application over a runtime without a disk, and the options by which commands find a
knowledge base.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from support.http import Client, Served, serve_in_memory
from support.servers import Server

TENANTS = count(1)
TARGETS = ("server", "folder")


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory() as found:
        yield found


@pytest.fixture
def client(served: Served) -> Client:
    return served.client


@pytest.fixture(scope="module")
def command_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that the tests of a module share."""
    with Server(tmp_path_factory.mktemp("shared") / "kb") as server:
        yield f"http://127.0.0.1:{server.address[1]}"


@pytest.fixture(params=TARGETS)
def where(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options of a command for an empty knowledge base: a tenant of the shared server, and a
    folder.
    """
    if request.param == "folder":
        return ("--storage-dir", str(request.getfixturevalue("tmp_path") / "kb"))
    address = request.getfixturevalue("command_server")
    return ("--url", address, "--tenant", f"t{next(TENANTS)}")


@pytest.fixture(params=TARGETS)
def own_target(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """The same for commands that see all tenants: a server and a folder that nothing else uses."""
    folder = request.getfixturevalue("tmp_path") / "kb"
    if request.param == "folder":
        yield ("--storage-dir", str(folder))
    else:
        with Server(folder) as server:
            yield ("--url", f"http://127.0.0.1:{server.address[1]}")
