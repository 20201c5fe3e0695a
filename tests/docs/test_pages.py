"""Documentation pages: examples run, links work, and lists are complete."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.clusters import replacements_of_ports, with_ports
from support.loaded_processes import run_script
from support.servers import Server
from support.stand_in import StandIn

import kbcore
from kbcore.config import SETTINGS
from kbcore.plug import hookspecs
from kbplanner.errors import KBError
from kbplanner.passes.check import check_statements
from kbplanner.syntax.parser import parse_program
from kbtypes.errors import STATUS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "",
    "docs/**/",
    "planner/",
    "csrc/",
    "tests/bench/",
    "kbcore/durable/",
    "server/kbserver/security/",
)
PATTERNS = ["*/README.md", *(f"{folder}*.md" for folder in FOLDERS)]
PAGES = sorted({page for pattern in PATTERNS for page in ROOT.glob(pattern)})
CLUSTER = "replication.md"
KEYED, KEYS = "turn-on-keys.md", {"AUTH_ENABLED": "true", "BOOTSTRAP_TOKEN": "a-long-random-text"}
"""The page whose server asks for keys, and the settings it tells of."""
MODELLED = ("swap-the-model.md",)
"""Pages whose server has a language model: the stand-in."""

FENCE = re.compile(r"^([ \t]*)```(\w*)[^\n]*\n(.*?)^\1```[ \t]*$", re.M | re.S)
"""A fenced block, also one in a list: its indentation, its language and its content."""

GENERATED = "<!-- Written by docs/generate.py"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, kind: str) -> list[str]:
    fences = FENCE.findall(page.read_text(encoding="utf-8"))
    return [textwrap.dedent(body) for _, language, body in fences if language == kind]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    run_script(script, seconds=60)


CONFORMING = [page for page in PAGES if "Conformance):" in "".join(blocks(page, "python"))]
"""Pages whose example is tested with the conformance tests that the page shows."""


@pytest.mark.parametrize("page", CONFORMING, ids=name)
def test_the_plugin_of_a_page_passes_the_tests_it_shows(page, tmp_path):
    (tmp_path / "test_page.py").write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "test_page.py",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout
    least = 25 if page.stem == "write-a-storage-plugin" else 3
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) >= least
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    optional = (
        "does not take over other logs",
        "does not erase",
        "reads only its newest snapshot",
        "keeps no older snapshots",
    )
    assert all(any(ability in line for ability in optional) for line in skipped), done.stdout


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_names_its_language(page):
    text = page.read_text(encoding="utf-8")
    assert [body for _, language, body in FENCE.findall(text) if not language] == []
    if not text.startswith(GENERATED):
        rest = FENCE.sub("", text)
        assert re.findall(r"(?:^|\n)\n {4,}[^\s*-].*", rest) == []


def test_blocks_in_lists_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("- one\n\n  ```python\n  if x:\n      y()\n  ```\n\n```kb\np(a).\n```\n")
    assert blocks(page, "python") == ["if x:\n    y()\n"]
    assert blocks(page, "kb") == ["p(a).\n"]


TAUGHT = [page for folder in ("tutorial", "how-to") for page in ROOT.glob(f"docs/{folder}/*.md")]
"""Pages for programs that use kbcore."""


@pytest.mark.parametrize("page", TAUGHT, ids=name)
def test_examples_import_from_kbcore_only(page):
    code = "\n".join(blocks(page, "python"))
    assert re.findall(r"^\s*(?:from|import) kb(?:planner|core\.)\S*", code, re.M) == []
    assert "kb.kb" not in code


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "kb")], ids=name)
def test_rule_examples_are_accepted(page):
    for body in blocks(page, "kb"):
        check_statements(parse_program(body, labelled=True))


def steps(page: Path) -> list[tuple[str, str]]:
    """Each command of a page that talks to a server, with what it prints. A line that ends in a
    backslash goes on.
    """
    found = []
    for step in re.split(r"^\$ ", "\n".join(blocks(page, "console")), flags=re.M)[1:]:
        lines = step.splitlines()
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\")) + 1
        found.append(("\n".join(lines[:end]), "\n".join(lines[end:]).strip()))
    # Port 5000 is that of `flask run`; tests/server/test_hosting.py asks the same.
    known = r"curl(?!.*:5000)|kbcore|post\b|export\b|REPLICATION_|openssl|until curl|kill|echo .*\| kbcore"
    return [(command, shown) for command, shown in found if re.match(known, command)]


def run_as_shown(server: Server, page: Path, here: Path | None = None) -> None:
    """Run the commands of a page, in order, against a server in place of localhost:9300; `here` is
    for files they make.
    """
    url = f"http://127.0.0.1:{server.address[1]}"
    prelude = f'kbcore() {{ {sys.executable} -m kbserver.cli "$@"; }}\n'
    ports = replacements_of_ports(page.read_text(encoding="utf-8"))
    for command, shown in steps(page):
        there = with_ports(command.replace("localhost:9300", url), ports)
        if "() {" in there or there.startswith("export "):
            prelude += there + "\n"
            continue
        done = subprocess.run(
            ["bash", "-c", prelude + there],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KBCORE_URL": url},
            cwd=here,
        )
        assert done.stdout.strip() == with_ports(shown, ports), f"{command}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if steps(page)], ids=name)
def test_commands_answer_as_shown(page, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    writes_files = any(" -o " in command for command, _ in steps(page))
    in_folder = page.parent.name == "operations" or page.name in (KEYED, CLUSTER)
    here = tmp_path / "here" if writes_files or in_folder else None
    if here:
        here.mkdir()
    with StandIn() as standin:
        more = (
            standin.environment() if page.name in MODELLED else KEYS if page.name == KEYED else {}
        )
        with Server(tmp_path / "data", **more) as server:
            run_as_shown(server, page, here)


def test_what_the_readme_stored_survives_a_kill(tmp_path):
    with Server(tmp_path) as server:
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        run_as_shown(server, ROOT / "README.md")
        server.kill()
    asked, shown = steps(ROOT / "README.md")[-1]
    assert asked.startswith("kbcore ask")
    with Server(tmp_path) as server:
        command = [sys.executable, "-m", "kbserver.cli", *shlex.split(asked)[1:]]
        url = f"http://127.0.0.1:{server.address[1]}"
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "KBCORE_URL": url},
        )
        assert done.stdout.strip() == shown


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if target.startswith("?"):  # an adorned atom such as p[bf](?x), not a link
                continue
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{name(page)}: {target}")
    assert broken == []


def test_pages_made_from_the_code_are_current(monkeypatch):
    module = script_of_docs("generate", monkeypatch)
    for page, make in module.GENERATED.items():
        assert (
            page.read_text(encoding="utf-8")
            == f"{module.NOTE}\n\n{module.with_related(page, make())}\n"
        )


def test_every_opcode_is_documented():
    from kbplanner.compile.bytecode import Opcode
    from kbplanner.engine.engine import opcodes

    page = (ROOT / "planner" / "BYTECODE.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)", page, re.M))
    assert documented == {opcode.name for opcode in Opcode}
    assert dict(enumerate(opcodes())) == {opcode.value: opcode.name for opcode in Opcode}


def script_of_docs(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a script of the folder `docs` as a module."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_page_leads_into_each_path_and_shows_three_pictures(monkeypatch):
    index = ROOT / "docs" / "index.md"
    text = index.read_text(encoding="utf-8")
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    paths = re.findall(r'^  \{ "([^"]+)" = \[$', settings, re.M)
    assert re.findall(r"^## (.+)$", text, re.M) == [path for path in paths if path != "Look up"]
    assert len(blocks(index, "python")) == 3
    pictures = script_of_docs("pictures", monkeypatch)
    assert re.findall(r"\]\(images/([^)]+)\)", text) == list(pictures.PICTURES)


def test_pictures_of_the_first_page_show_what_its_code_returns(monkeypatch):
    pictures = script_of_docs("pictures", monkeypatch)
    names = pictures.run_page()
    for picture, draw in pictures.PICTURES.items():
        assert (ROOT / "docs" / "images" / picture).read_text(encoding="utf-8") == draw(names)


def test_every_method_of_a_knowledge_base_is_documented():
    page = (ROOT / "docs" / "reference" / "python-api.md").read_text(encoding="utf-8")
    for kind in (kbcore.KnowledgeBase, kbcore.AnswerSet, kbcore.Runtime, kbcore.Window):
        own = {
            key
            for base in kind.__mro__
            if base.__module__.startswith(("kbcore.", "kbtypes."))
            for key, value in vars(base).items()
            if not key.startswith("_") and (callable(value) or isinstance(value, property))
        }
        assert own
        names = {key: rf"\b{kind.__name__}\.{key}\b" for key in own}
        assert [key for key, each in names.items() if not re.search(each, page)] == []


SITE = sorted((ROOT / "docs").glob("**/*.md"))


@pytest.mark.parametrize("page", SITE, ids=name)
def test_the_first_sentence_says_who_the_page_is_for(page):
    _, _, text = page.read_text(encoding="utf-8").partition("\n# ")
    first = (text or page.read_text(encoding="utf-8")).partition("\n\n")[2]
    sentence = re.split(r"(?<=[.:])\s", " ".join(first.split()))[0]
    assert re.search(r"\b[Ff]or \w", sentence), sentence


def test_every_setting_error_code_and_hook_is_documented():
    pages = ROOT / "docs" / "reference"
    settings = (pages / "configuration.md").read_text(encoding="utf-8")
    assert [setting.name for setting in SETTINGS if f"| `{setting.name}` |" not in settings] == []
    http = (pages / "http.md").read_text(encoding="utf-8")
    assert [code for code in STATUS if f"`{code}`" not in http] == []
    raised = {error.code for error in _below(KBError)}
    text = (pages / "errors.md").read_text(encoding="utf-8")
    assert [code for code in raised if f"`{code}`" not in text] == []
    hooks = (pages / "plugin-protocols.md").read_text(encoding="utf-8")
    assert [
        hook for hook in vars(hookspecs) if hook.startswith("kb_") and f"## {hook}\n" not in hooks
    ] == []


def test_every_setting_is_used():
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for room in ("kbcore", "plugins/kbplugins", "server/kbserver")
        for path in (ROOT / room).rglob("*.py")
    )
    assert [
        setting.name for setting in SETTINGS if not re.search(rf"\.{setting.field}\b", code)
    ] == []


def _below(kind: type[KBError]) -> Iterator[type[KBError]]:
    for below in kind.__subclasses__():
        if below.__module__.startswith(("kbtypes.", "kbplanner.", "kbcore.", "kbserver.")):
            yield below
            yield from _below(below)


def test_the_glossary_has_each_term_once_in_order():
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    sections = [re.findall(r"^\| \*\*(.+?)\*\* \|", part, re.M) for part in text.split("\n## ")[1:]]
    assert [terms for terms in sections if terms != sorted(terms, key=str.lower)] == []
    terms = [term for terms in sections for term in terms]
    assert len(terms) == len(set(terms)) > 100
