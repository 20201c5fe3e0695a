"""Which tests a run takes and in which order, what it counts and measures; fixtures of several
folders: PostgreSQL servers and a browser, made only where a test asks for one.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import examples  # noqa: F401  (sets the profile of hypothesis)
from support.optional import LEFT_OUT
from support.postgres import OwnServer, answering, schema
from support.share import read_share, relative, seconds_by_file, summary, write_costs

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With KB_TEST_SHARE, leave out the items of expensive tests whose turn is in another run. Of
    several processes, none works alone at the end: the most expensive files are first. A process
    takes whole files (`--dist loadfile`), as some tests build on the state that others leave.
    """
    if text := os.environ.get("KB_TEST_SHARE"):
        share = read_share(text)
        left_out = [item for item in items if not share.takes(relative(item.nodeid))]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            _note(summary((relative(item.nodeid) for item in left_out), len(items)))
            items[:] = [item for item in items if share.takes(relative(item.nodeid))]
    if "PYTEST_XDIST_WORKER" in os.environ:
        seconds = seconds_by_file()
        items.sort(key=lambda item: -seconds.get(relative(item.nodeid).partition("::")[0], 0))


def _note(line: str) -> None:
    """Add a line to the file KB_TEST_COUNTS, once for all processes of a run."""
    path = os.environ.get("KB_TEST_COUNTS")
    if path and os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        with Path(path).open("a") as counts:
            counts.write(f"{os.environ.get('TOX_ENV_NAME', 'pytest')}: {line}\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which folders were left out; add the counts of this run to the file KB_TEST_COUNTS, as
    tox hides what its environments print. Write the costs of this run's tests to KB_TEST_COSTS.
    """
    for folder, needs in LEFT_OUT.items():
        terminalreporter.write_line(f"LEFT OUT tests/{folder}: needs {needs}")
    passed, skipped = (len(terminalreporter.stats.get(k, ())) for k in ("passed", "skipped"))
    _note(f"{passed} passed, {skipped} skipped")
    if path := os.environ.get("KB_TEST_COSTS"):
        seconds: defaultdict[str, float] = defaultdict(float)
        for category in ("passed", ""):  # tests; their fixtures
            for report in terminalreporter.stats.get(category, ()):
                seconds[relative(report.nodeid).partition("[")[0]] += report.duration
        write_costs(Path(path), seconds)


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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser of the tests of the console and of the site."""
    path = os.environ.get("KB_TEST_CHROMIUM") or shutil.which("chromium")
    assert path, "chromium is not installed; on Debian or Ubuntu run: apt-get install chromium"
    sync_playwright = import_module("playwright.sync_api").sync_playwright
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()
