"""The folders of tests that a change touches: `python tests/support/changed.py BASE` prints them.

A change is everything between the commit BASE and the working tree, new files included. A test file
that changed is run with the folders of the sources that changed; what no row names, such as the
build, touches the quick folders.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]

TOUCHED = {
    "csrc/": ("engine", "planner", "property"),
    "planner/": ("planner", "engine", "property", "core"),
    "kbcore/durable/": ("core", "durability"),
    "kbcore/replication/": ("core", "durability", "server"),
    "kbcore/cluster/": ("core", "server", "security"),
    "kbcore/plug/": ("core", "plugins"),
    "kbcore/": ("core", "property", "contract"),
    "plugins/kbplugins/storage_": ("plugins", "durability"),
    "plugins/": ("plugins",),
    "server/kbserver/workers/": ("server", "security"),
    "server/kbserver/cluster/": ("server", "security"),
    "server/kbserver/security/": ("server", "security"),
    "server/console/": ("console",),
    "server/": ("server", "contract"),
    "clients/python/": ("client",),
    "clients/typescript/": ("typescript",),
    "clients/vscode/": ("vscode",),
    "docs/": ("docs",),
    "deploy/": ("docs",),
}
"""Folders of tests by the beginning of a path; the first row that fits counts."""

QUICK = ("planner", "engine", "contract")

NOT_TESTS = ("support", "bench", "fuzz", "audit")


def changed_paths(base: str) -> list[str]:
    """Return the paths of files that differ from a commit, relative to the root of the project."""
    commands = (
        ["git", "diff", "--name-only", base],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    lines: list[str] = []
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        lines += done.stdout.splitlines()
    return lines


def touched(paths: Iterable[str]) -> set[str]:
    """Return the test files and folders of tests for changed paths, relative to `tests`."""
    found: set[str] = set()
    for path in paths:
        top, _, rest = path.partition("/")
        if top == "tests" and rest.split("/")[0] not in NOT_TESTS:
            is_test = Path(path).name.startswith("test_") and (ROOT / path).is_file()
            found.add(rest if is_test else rest.split("/")[0] if "/" in rest else "meta")
        else:
            rows = (folders for prefix, folders in TOUCHED.items() if path.startswith(prefix))
            found.update(next(rows, QUICK))
    folders = {each for each in found if "/" not in each}
    return folders | {each for each in found if each.partition("/")[0] not in folders}


if __name__ == "__main__":
    base = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    print(*(f"tests/{each}" for each in sorted(touched(changed_paths(base)) | {"meta"})))
