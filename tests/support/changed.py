"""The tests that a change needs.

    python tests/support/changed.py BASE
    python tests/support/changed.py --environments

A change is everything between a base commit and the working tree, new files included.

The first form prints folders and files of tests, for `make test-changed`. A test file that changed
is run with the folders of the sources that changed; what no row names, such as the build, touches
the quick folders.

The second form prints the environments of tox that CI runs, separated by commas; standard error
says which base was used, what is left out and why. The base is the commit CI_BASE, by default the
newest commit of the first-parent line that is older than four hours: what was added since then is
tested together. Every environment runs if CI_FULL is set and not 0, if the version of the
project changes, if a file changes that all environments depend on, or if no base is known.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

TOUCHED = {
    "csrc/": ("engine", "planner", "property", "durability"),
    "planner/": ("planner", "engine", "property", "core"),
    "kbcore/durable/": ("core", "durability"),
    "kbcore/replication/": ("core", "durability", "server"),
    "kbcore/cluster/": ("core", "server", "security", "durability"),
    "kbcore/plug/": ("core", "plugins"),
    "kbcore/": ("core", "property", "contract"),
    "plugins/kbplugins/storage_": ("plugins", "durability"),
    "plugins/kbplugins/coordinator_": ("plugins", "durability"),
    "plugins/": ("plugins",),
    "server/kbserver/workers/": ("server", "security", "durability"),
    "server/kbserver/cluster/": ("server", "security", "durability"),
    "server/kbserver/forwarding/": ("server", "security", "durability"),
    "server/kbserver/security/": ("server", "security"),
    "server/console/": ("console",),
    "server/": ("server", "contract"),
    "clients/python/kbtypes/": ("client", "core", "planner", "server", "contract"),
    "clients/python/": ("client",),
    "clients/typescript/": ("typescript",),
    "clients/vscode/": ("vscode",),
    "docs/": ("docs",),
    "deploy/": ("docs",),
}
"""Folders of tests by the beginning of a path; the first row that fits counts."""

QUICK = ("planner", "engine", "contract")

NOT_TESTS = ("support", "bench", "fuzz", "audit")


FAULTS = "durability"
"""The fault tests: kills, torn logs, failing and full disks, cut networks."""

KILLS = ("server/test_cluster.py", "server/test_handover.py", "server/test_workers.py")
"""Tests of the server that kill workers and nodes."""

FAULT_PATHS = (
    "csrc/",
    "kbcore/cluster/",
    "kbcore/durable/",
    "kbcore/replication/",
    "plugins/kbplugins/coordinator_",
    "plugins/kbplugins/storage_",
    "server/kbserver/cluster/",
    "server/kbserver/forwarding/",
    "server/kbserver/workers/",
)
"""The engine, workers, clusters and storage: a change of any of them runs the fault tests."""

ALWAYS = ("full", "py310", "py313", "static")
"""Environments of tox that CI runs for every change."""

BY_PATH = {
    "extras-spark": (
        "clients/python/",
        "kbcore/bulk/",
        "kbcore/columns/",
        "kbcore/python_api/",
        "kbcore/plug/",
        "kbcore/reason/",
        "planner/",
        "plugins/kbplugins/bulk_",
        "plugins/kbplugins/embedders/",
        "plugins/kbplugins/tables/",
        "server/kbserver/answers.py",
        "server/kbserver/cli/bulk/",
        "server/kbserver/fast_path",
        "server/kbserver/routes/",
        "server/kbserver/schemas/",
        "server/kbserver/mcp/",
        "tests/client/",
        "tests/core/test_arrow.py",
        "tests/plugins/",
        "tests/spark/",
        "tests/server/test_arrow_answers.py",
        "tests/server/test_table_commands.py",
    ),
    "browser": (
        "clients/typescript/",
        "clients/vscode/",
        "docs/",
        "server/console/",
        "zensical.toml",
        "server/kbserver/app",
        "server/kbserver/cli/lsp",
        "server/kbserver/openapi",
        "server/kbserver/routes/",
        "server/kbserver/schemas/",
        "server/kbserver/security/",
        "tests/console/",
        "tests/site/",
        "tests/support/console.py",
        "tests/typescript/",
        "tests/vscode/",
    ),
    "asan": (
        "clients/python/kbtypes/",
        "csrc/",
        "planner/kbplanner/engine/",
        "setup.py",
        "tests/engine/",
    ),
    "release": (
        "LICENSE",
        "MANIFEST.in",
        "README.md",
        "clients/python/README.md",
        "clients/python/pyproject.toml",
        "csrc/build_engine.py",
        "csrc/python/",
        "deploy/",
        "setup.py",
        "tests/durability/upgrades/",
        "tests/release/",
    ),
}
"""Beginnings of the paths whose change runs an environment; otherwise CI leaves the environment
out.
"""

LONGEST_FIRST = (
    "full",
    "browser",
    "extras-spark",
    "static",
    "py310",
    "py313",
    "asan",
    "release",
)
"""Every environment, in the order in which tox starts them."""

EVERYTHING = (
    ".ci/",
    ".python-version",
    "Makefile",
    "pyproject.toml",
    "tox.ini",
    "tests/conftest.py",
    "tests/support/changed.py",
    "tests/support/examples.py",
    "tests/support/optional.py",
    "tests/support/servers.py",
)
"""Beginnings of the paths that every environment depends on."""

BASE_AGE_HOURS = 4
"""Longer than commits usually wait before they are tested."""

MAX_NAMED_PATHS = 3


class Selection(NamedTuple):
    """The environments of tox that run, and one line for each decision."""

    environments: tuple[str, ...]
    reasons: tuple[str, ...]


def git(*arguments: str) -> str:
    """Return the output of a git command in the root of the project."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def changed_paths(base: str) -> list[str]:
    """Return the paths of files that differ from a commit, relative to the root of the project.

    A file that moved counts with both paths.
    """
    differing = git("diff", "--name-only", "--no-renames", "-z", base)
    untracked = git("ls-files", "--others", "--exclude-standard", "-z")
    return [path for path in (differing + untracked).split("\0") if path]


def known_base(environ: Mapping[str, str]) -> str | None:
    """Return the commit that CI compares the working tree with, or None if no such commit is known.

    Without CI_BASE, no base is known in a history that begins later, and in one without a commit of
    the last hours: there, nothing tells which commits were tested.
    """
    named = environ.get("CI_BASE")
    try:
        if named:
            return git("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}").strip()
        age = f"--before={BASE_AGE_HOURS} hours ago"
        older = git("rev-list", "-1", "--first-parent", age, "HEAD").strip()
        return older if older != git("rev-parse", "HEAD").strip() else None
    except subprocess.CalledProcessError:
        return None


def version(text: str) -> str:
    """Return the version that a text of `pyproject.toml` states."""
    stated = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    return stated[1] if stated else ""


def select(paths: Iterable[str], because: str | None = None) -> Selection:
    """Return the environments for changed paths; all of them if there is a reason, `because`."""
    changed = sorted(set(paths))
    shared = [path for path in changed if path.startswith(EVERYTHING)]
    if because is None and shared:
        because = f"every environment depends on {_named(shared)}"
    if because is not None:
        return Selection(LONGEST_FIRST, (f"every environment runs: {because}",))
    environments, reasons = set(ALWAYS), []
    for environment, prefixes in BY_PATH.items():
        matching = [path for path in changed if path.startswith(prefixes)]
        if matching:
            environments.add(environment)
            reasons.append(f"{environment} runs: {_named(matching)} changed")
        else:
            reasons.append(f"{environment} is left out: nothing changed in {' '.join(prefixes)}")
    ordered = tuple(each for each in LONGEST_FIRST if each in environments)
    return Selection(ordered, tuple(reasons))


def _named(paths: list[str]) -> str:
    more = len(paths) - MAX_NAMED_PATHS
    return ", ".join(paths[:MAX_NAMED_PATHS]) + (f" and {more} more" if more > 0 else "")


def base_of(environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the commit that CI compares the working tree with, or None to test everything; and
    the reason.
    """
    if environ.get("CI_FULL", "0") not in ("", "0"):
        return None, "CI_FULL is set"
    base = known_base(environ)
    if base is None:
        named = environ.get("CI_BASE")
        unknown = (
            f"CI_BASE={named} is no commit"
            if named
            else (
                f"no base is known, as not both a commit of the last {BASE_AGE_HOURS} hours and an older one exist"
            )
        )
        return None, unknown
    before = version(git("show", f"{base}:pyproject.toml"))
    after = version((ROOT / "pyproject.toml").read_text("utf-8"))
    if before != after:
        return None, f"the version changes from {before} to {after}"
    return base, f"compared with commit {base[:8]}"


def environments(environ: Mapping[str, str]) -> Selection:
    """Return what CI runs for the working tree."""
    base, reason = base_of(environ)
    if base is None:
        return select((), reason)
    chosen = select(changed_paths(base))
    return Selection(chosen.environments, (reason, *chosen.reasons))


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
    if sys.argv[1:] == ["--environments"]:
        selection = environments(os.environ)
        print(*selection.reasons, sep="\n", file=sys.stderr)
        print(*selection.environments, sep=",")
    else:
        base = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
        print(*(f"tests/{each}" for each in sorted(touched(changed_paths(base)) | {"meta"})))
