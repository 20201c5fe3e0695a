"""Fixtures of several folders: PostgreSQL servers, made only where a test asks for one."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import examples  # noqa: F401  (sets the profile of hypothesis)
from support.optional import LEFT_OUT
from support.postgres import OwnServer, answering, schema


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which folders were left out; add the counts of this run to the file KB_TEST_COUNTS, as
    tox hides what its environments print.
    """
    for folder, needs in LEFT_OUT.items():
        terminalreporter.write_line(f"LEFT OUT tests/{folder}: needs {needs}")
    path = os.environ.get("KB_TEST_COUNTS")
    if path and "PYTEST_XDIST_WORKER" not in os.environ:
        passed, skipped = (len(terminalreporter.stats.get(k, ())) for k in ("passed", "skipped"))
        with Path(path).open("a") as counts:
            counts.write(f"{passed} passed, {skipped} skipped\n")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo what a test, or a server inside this process, has set for the log of the process."""
    root, audit = logging.getLogger(), logging.getLogger("kbserver.audit")
    handlers, levels = list(root.handlers), (root.level, audit.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    audit.setLevel(levels[1])


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
