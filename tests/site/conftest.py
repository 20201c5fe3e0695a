"""Tests of the documentation site run where its generator and a browser are installed; CI requires
them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
import tomllib
from support.optional import ignored

if TYPE_CHECKING:
    pass

collect_ignore_glob = ignored(
    "site",
    "zensical and playwright, of tox -e browser",
    is_installed=all(find_spec(name) is not None for name in ("zensical", "playwright")),
)

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, from a copy of the pages, so that nothing of an earlier build is left."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / SETTINGS["site_dir"]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line on standard error for each request."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """The address of the built site on a server of this test."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
