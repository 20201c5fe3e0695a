"""Fixtures of several folders: PostgreSQL servers, made only where a test asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import examples  # noqa: F401  (sets the profile of hypothesis)
from support.postgres import OwnServer, answering, schema


@pytest.fixture(scope="session")
def own_postgres() -> Iterator[OwnServer]:
    """A server of our own, for tests that stop it."""
    server = OwnServer()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> str:
    """The URL of a server: one that answers already, else our own."""
    url = answering()
    return url if url is not None else request.getfixturevalue("own_postgres").url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty schema."""
    with schema(postgres_server) as url:
        yield url
