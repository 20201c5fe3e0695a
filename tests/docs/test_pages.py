"""Pages are true: their examples run, their links lead somewhere, and what they list is all there is."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.servers import Server

from kbplanner.parser import parse_program
from kbplanner.passes.check import check_statements

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.M | re.S)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, kind: str) -> list[str]:
    return [body for found, body in FENCE.findall(page.read_text(encoding="utf-8")) if found == kind]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    subprocess.run([sys.executable, "-W", "error", str(script)], check=True, cwd=tmp_path, timeout=60)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "kb")], ids=name)
def test_rule_examples_are_accepted(page):
    for body in blocks(page, "kb"):
        check_statements(parse_program(body))


def test_the_commands_of_the_readme_answer_as_shown(tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    session = "\n".join(blocks(ROOT / "README.md", "console"))
    with Server(tmp_path) as server:
        url = f"http://127.0.0.1:{server.address[1]}"
        prelude = f"kbcore() {{ {sys.executable} -m kbserver.cli \"$@\"; }}\n"
        for step in re.split(r"^\$ ", session, flags=re.M)[1:]:
            command, _, expected = step.partition("\n")
            command = command.replace("localhost:9300", url)
            if "() {" in command:
                prelude += command + "\n"
                continue
            done = subprocess.run(
                ["bash", "-c", prelude + command],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env={**os.environ, "KBCORE_URL": url},
            )
            assert done.stdout.strip() == expected.strip(), command


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{name(page)}: {target}")
    assert broken == []


def test_pages_made_from_the_code_are_current():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for page, make in module.GENERATED.items():
        assert (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8") == f"{module.NOTE}\n\n{make()}\n", page


def test_every_opcode_is_documented():
    from kbplanner.bytecode import Opcode
    from kbplanner.engine import opcodes

    page = (ROOT / "docs" / "reference" / "bytecode.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)", page, re.M))
    assert documented == {opcode.name for opcode in Opcode}
    assert dict(enumerate(opcodes())) == {opcode.value: opcode.name for opcode in Opcode}
