"""The compiled files of the console belong to its sources, and are small."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2] / "server"
SOURCES = ROOT / "console"
COMPILED = ROOT / "kbserver" / "console"
FIRST_LOAD_BYTES = 120 * 1024
ALL_BYTES = 450 * 1024
"""Limits of the compressed sizes."""


def test_the_compiled_files_belong_to_the_sources():
    """The same digest as server/console/scripts/sources_digest.mjs; a test with Node compiles
    again.
    """
    names = ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"]
    for folder in ("public", "src"):
        names += [
            path.relative_to(SOURCES).as_posix()
            for path in (SOURCES / folder).rglob("*")
            if path.is_file()
            and not path.name.endswith(".test.ts")
            and "kb.grammar." not in path.name
            and path.name != "schema.d.ts"
        ]
    names += ["src/language/kb.grammar", "../../docs/operations/runbook.md"]
    digest = hashlib.sha256()
    for name in sorted(set(names)):
        content = hashlib.sha256((SOURCES / name).read_bytes()).digest()
        digest.update(f"{name}\n".encode() + content)
    recorded = (COMPILED / "sources.sha256").read_text().strip()
    assert recorded == digest.hexdigest(), "run `make console` and commit the compiled files"


def test_the_console_is_small():
    sizes = {
        path.relative_to(COMPILED).as_posix(): len(gzip.compress(path.read_bytes(), 9))
        for path in COMPILED.rglob("*")
        if path.suffix in (".html", ".js", ".css", ".svg")
    }
    assert sum(sizes.values()) <= ALL_BYTES
    first = {
        "index.html",
        "icon.svg",
        *re.findall(r'(?:src|href)="\./([^"]+)"', _text("index.html")),
    }
    queue = [name for name in first if name.endswith(".js")]
    while queue:
        imported = re.findall(r'(?:from|import)\s*"\./([^"]+\.js)"', _text(queue.pop()))
        new = {f"assets/{name}" for name in imported} - first
        first |= new
        queue += new
    assert sum(sizes[name] for name in first) <= FIRST_LOAD_BYTES, sorted(first)


def test_the_console_names_no_other_host():
    for path in COMPILED.rglob("*.*"):
        for address in re.findall(r'https?://[^\s"\'`)]+', path.read_text(errors="replace")):
            assert address.startswith(
                ("http://www.w3.org/", "https://react.dev/errors", "https://reactjs.org/")
            ), f"{path.name}: {address}"


def _text(name: str) -> str:
    return (COMPILED / name).read_text()
