"""The sources of the console: unit tests, and compiled files that match."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.console import SOURCES

COMPILED = SOURCES.parent / "kbserver" / "console"


def npm(folder: Path, *arguments: str) -> None:
    finished = subprocess.run(
        ["npm", "--silent", *arguments],
        cwd=folder,
        env=os.environ | {"CI": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that a test writes nothing into the tree."""
    tree = tmp_path_factory.mktemp("tree")
    folder = tree / "server" / "console"
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("node_modules"))
    # The runbook is compiled into the console, and its unit tests read the alert rules.
    operations = Path("docs", "operations")
    shutil.copytree(SOURCES.parents[1] / operations, tree / operations)
    (folder / "node_modules").symlink_to((SOURCES / "node_modules").resolve())
    npm(folder, "run", "types", "--", "openapi.json")
    return folder


def test_unit_tests(copy: Path):
    npm(copy, "test")


def test_the_compiled_files_are_what_the_sources_compile_to(copy: Path):
    npm(copy, "run", "build")
    compiled = copy.parent / "kbserver" / "console"
    assert contents(compiled) == contents(COMPILED)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
