"""A new read, as CONTRIBUTING.md shows it, added to a copy of the tree: it has every door."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kbplanner

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "kbcore",
    "planner",
    "plugins",
    "server",
    "clients/python",
    "clients/typescript/src",
    "docs",
    "tests",
    "CHANGELOG.md",
    "pyproject.toml",
)
MAX_FILES = 8
"""The files that a read takes by hand."""

_PATH = re.compile(r"`([\w./]+\.(?:py|md))`")
_BLOCK = re.compile(r"^```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
_IMPORT = re.compile(r"^from \S+ import .*\n", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"

DOORS = """
import asyncio
import kbcore, kbserver
from kbcore_client import connect, connect_async
from kbserver.mcp.tools import all_tools

with kbcore.open_runtime(kbcore.Config(storage_backend="memory")) as runtime:
    app = kbserver.create_app(runtime).test_client()
    document = app.get("/openapi.json").json
    print("openapi", document["paths"]["/scope/size"]["post"]["x-role"])
    print("properties", sorted(document["components"]["schemas"]["ScopeSize"]["properties"]))
    kb = runtime.knowledge_base("default", "default")
    print("tool", all_tools()["scope_size"].work(kb, {}, True, 0))

with kbcore.open_kb() as kb:
    kb.tell("likes(ann, tea)")
    print("embedded", kb.scope_size())

with connect("memory:") as kb:
    kb.tell("likes(ann, tea)")
    print("client", kb.scope_size("*"))

async def ask():
    async with connect_async("memory:") as kb:
        print("async", await kb.scope_size(scope="*"))

asyncio.run(ask())
"""


def steps() -> dict[str, str]:
    """The text to add to each file that the section names, by path."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", page, flags=re.MULTILINE)
    (own,) = (each for each in section if each.startswith("A read, from nothing to all doors"))
    added = {}
    for step in re.split(r"^\d+\. ", own, flags=re.MULTILINE)[1:]:
        path, block = _PATH.search(step), _BLOCK.search(step)
        assert path is not None, step
        added[path[1]] = "" if block is None else block[1]
    return added


def add(path: Path, block: str) -> None:
    """Put a block at the end of a file, and its imports to the top."""
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    if _FUTURE in known:
        imports = "".join(_IMPORT.findall(block))
        known = known.replace(_FUTURE, _FUTURE + imports, 1)
        block = _IMPORT.sub("", block)
    path.write_text(known + "\n" + block if known else block, encoding="utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the read of the section."""
    copy = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "node_modules", "*.egg-info")
    for name in COPIED:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=ignored)
        else:
            shutil.copy(ROOT / name, target)
    for library in Path(kbplanner.__file__).parent.glob("_*.so"):
        shutil.copy(library, copy / "planner" / "kbplanner" / library.name)
    for path, block in steps().items():
        add(copy / path, block)
    script = "import client_methods; [p.write_text(make()) for p, make in client_methods.MODULES.items()]"
    run(copy, "-c", f"import sys; sys.path.insert(0, 'docs'); {script}")
    run(copy, "clients/python/tools/make_sync.py")
    return copy


def run(tree: Path, *arguments: str, **more: str) -> str:
    """Run Python in a copy of the tree and return its output."""
    folders = ("", "planner", "plugins", "server", "clients/python", "tests")
    path = os.pathsep.join(str(tree / folder) for folder in folders)
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_read_takes_few_files() -> None:
    paths = steps()
    assert list(paths)[-1] == "CHANGELOG.md"
    assert 5 <= len(paths) <= MAX_FILES
    assert len([block for block in paths.values() if block]) == len(paths) - 1


def test_a_read_has_every_door(tree: Path) -> None:
    assert run(tree, "-c", DOORS).splitlines() == [
        "openapi reader",
        "properties ['facts', 'scope']",
        "tool {'scope': None, 'facts': 0}",
        "embedded ScopeSize(scope=None, facts=1)",
        "client ScopeSize(scope='*', facts=1)",
        "async ScopeSize(scope='*', facts=0)",
    ]
    methods = (tree / "clients/typescript/src/operations.ts").read_text(encoding="utf-8")
    assert (
        """async scopeSize(options: Body<"CountedScope"> = {}): Promise<Schemas["ScopeSize"]> {"""
        in methods
    )
    assert '"/scope/size",' in methods.partition("export const HISTORIC")[0], (
        "a path that only reads"
    )


def test_the_tests_of_a_read_pass(tree: Path) -> None:
    tests = (
        "server/test_scope_size.py",
        "contract/test_records.py",
        "docs/test_http_page.py",
        "client/test_signatures.py",
    )
    paths = [f"tests/{each}" for each in tests]
    run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths, KB_GOLDEN="write")
