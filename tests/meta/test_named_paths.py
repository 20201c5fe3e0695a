"""Paths and modules that pages for contributors and examples in docstrings name: all exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path, PurePosixPath

import pytest
import tomllib

ROOT = Path(__file__).parents[2]
ENTRY_POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "entry-points"
]
PAGES = ("README.md", "DESIGN.md", "BYTECODE.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
PACKAGES = ("kbcore", "planner", "plugins", "server", "clients/python")
ENDINGS = ("py", "c", "h", "md", "kb", "ts", "toml", "json", "yml", "ini", "sh", "lark")
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"[\w.@{},*/-]+")
_DOTTED = re.compile(
    r"kb(?:core|planner|plugins|server)(?:\.\w+)+(?<!\.service)(?<!\.example)(?<!\.env)"
)
_ROW = re.compile(r"^\| *(?P<first>[^|]*?) *\|", re.MULTILINE)
_BRACES = re.compile(r"\{([^{}]*)\}")
_IMPORT = re.compile(r"^\s+from (kb\w[\w.]*) import (.+)$|^\s+import (kb\w[\w.]*)$", re.MULTILINE)

NOT_HERE = {
    "application/json",
    "application/yaml",
    "text/html",
    "text/csv",
    "text/event-stream",
}
"""Names with a slash that are no paths."""

ELSEWHERE = {"Python.h"}
"""Files of other projects."""

MADE = {"node_modules/", "dist/", "build/", ".venv/", "tests/server/test_scope_size.py"}
"""Folders that commands make, and the file that an example adds."""


@cache
def tracked() -> frozenset[str]:
    """Every tracked file and folder, and each end of its path."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = set()
    for line in listed.stdout.splitlines():
        path = PurePosixPath(line)
        for each in (path, *path.parents):
            names |= {"/".join(each.parts[start:]) for start in range(len(each.parts))}
    return frozenset(names)


def pages() -> list[Path]:
    names = [path for path in sorted(tracked()) if path.rpartition("/")[2] in PAGES]
    return [ROOT / path for path in names if (ROOT / path).is_file()]


def variants(text: str) -> Iterator[str]:
    """The paths of `a/{b,c}.py`."""
    parts = _BRACES.split(text)
    choices = [part.split(",") if index % 2 else [part] for index, part in enumerate(parts)]
    yield from map("".join, product(*choices))


def is_path(text: str) -> bool:
    """A text of a page is meant as a path: it has a slash inside or at its end, or ends as a file
    does.
    """
    if not _PATH.fullmatch(text) or text.startswith(("/", "-", "@", ".")) or text in NOT_HERE:
        return False
    return "/" in text or (text.rpartition(".")[2] in ENDINGS and text.count(".") == 1)


def exists(text: str) -> bool:
    name = text.rstrip("/")
    if "*" in name:
        pattern = re.compile(re.escape(name).replace(r"\*", "[^/]*"))
        return any(map(pattern.fullmatch, tracked()))
    return name in tracked()


def named(page: Path) -> Iterator[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for span in _SPAN.findall(text):
        if is_path(span):
            yield from variants(span)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_a_page_names_exist(page: Path) -> None:
    missing = {text for text in named(page) if text not in MADE | ELSEWHERE and not exists(text)}
    links = {link for link in _LINK.findall(page.read_text("utf-8")) if "://" not in link}
    missing |= {link for link in links if not (page.parent / link).exists()}
    assert missing == set()


def is_importable(name: str) -> bool:
    """A dotted name is a module, or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        return False
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return bool(module) and is_importable(module) and attribute_exists(module, attribute)
    return True


def attribute_exists(module: str, attribute: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        outer, _, name = module.rpartition(".")
        return hasattr(getattr(importlib.import_module(outer), name), attribute)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_a_page_names_exist(page: Path) -> None:
    names = {span for span in _SPAN.findall(page.read_text("utf-8")) if _DOTTED.fullmatch(span)}
    assert {name for name in names if not is_importable(name)} == set()


def docstrings() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "node_modules" in path.parts or "example" in path.parts:
                continue
            tree = ast.parse(path.read_text("utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    text = ast.get_docstring(node, clean=False) or ""
                    if _IMPORT.search(text):
                        yield str(path.relative_to(ROOT)), text


def test_imports_in_docstrings_exist() -> None:
    missing = []
    examples = list(docstrings())
    for path, text in examples:
        for module, names, whole in _IMPORT.findall(text):
            if (module or whole).startswith("kbcore_client"):
                continue
            if not is_importable(module or whole):
                missing.append((path, module or whole))
                continue
            imported = [name.split(" as ")[0].strip(" ()") for name in names.split(",") if name]
            missing += [
                (path, f"{module}.{name}")
                for name in imported
                if not is_importable(f"{module}.{name}")
            ]
    assert len(examples) >= 5
    assert missing == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_rows_about_packages_and_files_begin_with_a_path(page: Path) -> None:
    """A word such as `syntax` sends a reader searching; `syntax/` or `engine/binding.py` does
    not.
    """
    text = page.read_text("utf-8")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        first, *rows = [match["first"] for match in _ROW.finditer(table)]
        if not re.match(r"(package|module|file|folder|plugin)\b", first):
            continue
        for row in rows[1:]:
            spans = [path for span in _SPAN.findall(row) for path in variants(span)]
            assert spans, f"{row} is no path"
            assert all(map(exists, spans)), f"{row} is no path"
            files = [span for span in spans if (page.parent / span).is_file()]
            assert all("/" in span or "." in span or span in files for span in spans), row


def test_every_design_page_is_listed() -> None:
    """A page is linked from ARCHITECTURE.md, or from the README of its folder."""
    designs = {page for page in pages() if page.name == "DESIGN.md"}
    listed = {
        (page.parent / link).resolve()
        for page in [ROOT / "ARCHITECTURE.md", *(each.with_name("README.md") for each in designs)]
        if page.exists()
        for link in _LINK.findall(page.read_text("utf-8"))
    }
    assert len(designs) >= 10
    assert designs - listed == set()


def test_every_built_in_plugin_is_listed() -> None:
    listed = set(named(ROOT / "plugins" / "README.md"))
    for name, module in ENTRY_POINTS["kbcore"].items():
        path = module.replace(".", "/")
        assert {path + "/", path + ".py"} & listed, f"{name} is not in plugins/README.md"


def test_every_folder_of_tests_is_listed() -> None:
    listed = {path.partition("/")[0] for path in named(ROOT / "tests" / "README.md")}
    folders = {path.split("/")[1] for path in tracked() if re.match(r"tests/[^/]+/", path)}
    assert folders - listed == set()
