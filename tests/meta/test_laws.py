"""Checks of the rules in CONTRIBUTING.md that apply to the whole tree."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "clients/python/kbtypes", "kbcore", "planner/kbplanner", "plugins/kbplugins", "server/kbserver",
)  # fmt: skip
PYTHON = sorted(path for source_folder in SOURCES for path in (ROOT / source_folder).rglob("*.py"))
C = [path for path in sorted((ROOT / "csrc").rglob("*.[ch]")) if path.parent.name != "python"]
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(source(path))


def code(path: Path) -> str:
    """A C file without its comments."""
    return re.sub(r"/\*.*?\*/", "", source(path), flags=re.S)


@cache
def imports(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def importers(library: str) -> set[str]:
    return {
        name(p)
        for p in PYTHON
        if any(i == library or i.startswith(library + ".") for i in imports(p))
    }


def test_no_file_is_longer_than_1200_lines():
    lengths = {name(path): len(source(path).splitlines()) for path in [*PYTHON, *C, *TESTS]}
    assert {path: lines for path, lines in lengths.items() if lines > 1200} == {}


def test_no_package_has_more_than_25_modules():
    packages = {path.parent for path in PYTHON}
    modules = {name(package): len([*package.glob("*.py")]) - 1 for package in packages}
    assert {package: count for package, count in modules.items() if count > 25} == {}


def test_every_module_has_a_docstring():
    undocumented = [name(path) for path in PYTHON if not ast.get_docstring(tree(path))]
    assert undocumented == []


def test_every_package_is_documented():
    pages = [
        "ARCHITECTURE.md",
        *(f"{folder}/README.md" for folder in ("planner", "plugins", "server")),
    ]
    maps = "".join(source(ROOT / page) for page in pages)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", maps))))
    missing = [
        name(path.parent)
        for path in PYTHON
        if path.stem == "__init__" and path.parent.name not in named
    ]
    c_files = "".join(source(ROOT / page) for page in ("csrc/README.md",))
    missing += [
        name(path)
        for path in C
        if f"`{path.name}`" not in c_files and f"`{path.stem}`" not in c_files
    ]
    assert missing == []


def test_one_package_imports_each_library():
    assert importers("kbplanner._engine") == {"planner/kbplanner/engine/binding.py"}
    assert importers("kbplanner._answers") == {"planner/kbplanner/engine/columns.py"}
    assert importers("kbplanner._proofs") == {"planner/kbplanner/engine/proof_nodes.py"}
    assert importers("lark") == {"planner/kbplanner/syntax/parser.py"}
    assert importers("Stemmer") == {"kbcore/search/tokens.py"}
    assert {path.split("/")[0] for path in importers("pluggy")} == {"kbcore"}
    assert importers("opentelemetry") == {
        "kbcore/tracing/otel.py",
        "kbcore/tracing/otel_logs.py",
    }
    for library in ("flask", "marshmallow", "gevent", "click", "werkzeug"):
        assert {path.split("/")[0] for path in importers(library)} <= {"server"}, library
    assert importers("jwt") == {"server/kbserver/security/issuer_keys.py"}
    assert importers("psycopg") == set()  # imported by name when it is needed
    transports = {
        "server/kbserver/cli/shared/stdio_bridge.py",
        "plugins/kbplugins/coordinator_etcd.py",
        "plugins/kbplugins/llm_http/transport.py",
        "plugins/kbplugins/webhooks/sender.py",
        "plugins/kbplugins/webhooks/transport.py",
        "server/kbserver/replication/log_client.py",
        "server/kbserver/security/issuer_keys.py",
    }
    assert importers("httpx") == transports


def test_one_reader_of_the_environment():
    readers = [name(path) for path in PYTHON if re.search(r"os\.environ|getenv", source(path))]
    assert readers == ["kbcore/config/settings.py"]


def test_one_allocator():
    calls = {
        name(path) for path in C if re.search(r"\b(malloc|calloc|realloc|free)\s*\(", code(path))
    }
    assert calls == {"csrc/store/memory.c"}


def test_every_c_file_documents_what_it_owns_and_never_does():
    undocumented = [
        name(path)
        for path in C
        if not re.match(rf"/\* {path.name} - .*?Owns:.*?Never:.*?\*/", source(path), re.S)
    ]
    assert undocumented == []


def test_c_comments_are_at_most_100_columns_wide():
    wide = []
    for path in sorted((ROOT / "csrc").rglob("*.[ch]")):
        text = source(path)
        for comment in re.finditer(
            r"""/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", text, re.S
        ):
            if not comment[0].startswith("/*"):
                continue
            first = text.count("\n", 0, comment.start()) + 1
            line_start = text.rfind("\n", 0, comment.start()) + 1
            lines = text[line_start : comment.end()].split("\n")
            wide += [f"{name(path)}:{first + i}" for i, line in enumerate(lines) if len(line) > 100]
    assert wide == []


def test_one_write_path_and_one_table_of_statuses():
    callers = {
        name(path)
        for path in PYTHON
        if any(i.startswith("kbcore.state.apply") for i in imports(path))
    }
    # Overlays have the changes that no other request sees.
    assert callers == {
        f"kbcore/{each}.py" for each in ("durable/commit", "durable/replay", "state/overlay")
    }
    appends = {
        name(path)
        for path in PYTHON
        if re.search(r"_store\.append\(|\bstore\.append\(", source(path))
    }
    # Salvage fills a new log, which has no state yet.
    tests = {f"kbcore/plug/conformance/{each}.py" for each in ("log_store", "log_store_faults")}
    filling = {*tests, "plugins/kbplugins/storage_wal/offline/tools.py"}
    assert appends - filling == {"kbcore/durable/commit.py"}
    assert {name(path) for path in PYTHON if re.search(r"^STATUS\b", source(path), re.M)} == {
        "clients/python/kbtypes/errors.py"
    }


def test_every_hook_has_a_test():
    tests = [path for path in TESTS if "meta" not in path.parts]
    tested = "".join(
        source(path) for path in [*tests, ROOT / "docs/how-to/write-a-storage-plugin.md"]
    )
    specs = source(ROOT / "kbcore/plug/hookspecs.py") + source(
        ROOT / "server/kbserver/hookspecs.py"
    )
    hooks = re.findall(r"^def (kb_\w+)", specs, re.M)
    assert hooks
    assert [hook for hook in hooks if hook not in tested] == []


def test_no_import_inside_a_function_hides_a_cycle():
    importers_in_functions = set()
    for path in PYTHON:
        for function in ast.walk(tree(path)):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom) and (
                        node.level or (node.module or "").startswith("kb")
                    ):
                        importers_in_functions.add(name(path))
    # These import late, because gevent must be imported before the modules it patches, or only
    # where gevent is in use.
    allowed = {"server/kbserver/__init__.py", "server/kbserver/process/shared_runtime.py"}
    # So do these, because sqlglot is installed with an extra only.
    allowed |= {"plugins/kbplugins/bulk_duckdb.py", "plugins/kbplugins/bulk_spark.py"}
    # And this, because an HTTP client and PyJWT are for servers with OAUTH_ISSUER only.
    allowed |= {"server/kbserver/security/guard.py"}
    # Commands import what they need when they run, so that the others start quickly.
    late = {path for path in importers_in_functions if not path.startswith("server/kbserver/cli/")}
    assert late <= allowed


def test_the_engine_uses_no_io_or_clock_and_threads_in_one_place():
    for path in C:
        used = set(re.findall(r"#include\s*<(stdio|time|pthread|Python)\b", code(path)))
        assert used <= ({"pthread"} if path.name == "team.h" else set()), name(path)


def test_nothing_is_unpickled_or_evaluated():
    for path in PYTHON:
        assert "pickle" not in imports(path), name(path)
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), name(path)


def test_no_test_sleeps():
    sleepers = [
        name(path)
        for path in TESTS
        if re.search(r"\btime\.sleep\(|\bgevent\.sleep\((?!0\))", source(path))
    ]
    assert [path for path in sleepers if not path.startswith("tests/meta")] == []


def test_no_unfinished_code_markers():
    marks = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    assert [name(path) for path in [*PYTHON, *C] if marks.search(source(path))] == []


def test_no_machine_path_or_package_host_in_the_tree():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    words = re.compile(r"/(?:root|work|home/\w+)/|pypi\.org|npmjs|deb\.debian")
    matching = []
    for line in listed.stdout.splitlines():
        path = ROOT / line
        if line == "LICENSE" or line.startswith("tests/meta/") or not path.is_file():
            continue
        if words.search(path.read_bytes().decode("utf-8", "replace")):
            matching.append(line)
    assert matching == []


def module_of(path: Path) -> str:
    folder = next(each for each in SOURCES if name(path).startswith(each))
    parts = path.relative_to(ROOT / folder).with_suffix("").parts
    return ".".join([folder.split("/")[-1], *parts]).removesuffix(".__init__")


def loaded_first(node: ast.AST) -> Iterator[str]:
    """The modules that must be loaded before the code below a node, functions and type checking
    aside.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                yield f"{child.module}.{alias.name}"
                yield child.module
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from loaded_first(child)


def test_modules_can_be_imported_in_any_order():
    """Without a cycle among them each module imports alone, as importing each in a process would
    show.

    An import of a name from a package depends on the package, one of a module in it on the module.
    """
    paths = {module_of(path): path for path in PYTHON}
    needs = {}
    for module, path in paths.items():
        found = list(loaded_first(tree(path)))
        modules = {each for each in found if each in paths}
        # `from package import module` names the package too, which then needs not be complete.
        packages = {each.rpartition(".")[0] for each in modules}
        named = {
            each.rpartition(".")[0]
            for each in found
            if each not in paths and each.rpartition(".")[0] in paths
        }
        needs[module] = (modules - packages) | named
        needs[module].discard(module)
    order = list(TopologicalSorter(needs).static_order())  # raises CycleError with the cycle
    assert len(order) == len(paths)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_modules_import_with_warnings_as_errors(tmp_path, is_reversed):
    modules = [module_of(path) for path in PYTHON]
    skipped = ("__main__", "kbserver.serve", "kbserver.wsgi")
    modules = [module for module in modules if not module.endswith(skipped)]
    modules = [module for module in modules if not module.startswith("kbcore.plug.conformance")]
    if find_spec("opentelemetry") is None:  # of the extra `otel`
        modules = [each for each in modules if not each.startswith("kbcore.tracing.otel")]
    script = "import importlib, sys\nfor module in sys.argv[1:]: importlib.import_module(module)"
    command = [sys.executable, "-W", "error", "-c", script]
    command += reversed(modules) if is_reversed else modules
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr


def test_the_import_rule():
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("import-linter is not installed here; the imports environment runs it")
    done = subprocess.run(
        [command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
