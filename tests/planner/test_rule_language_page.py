"""The reference page of the language: examples load and messages match the parser, whose codes are
on the page of the diagnostics.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbplanner.errors import RuleSyntaxError
from kbplanner.passes.check import check_statements
from kbplanner.syntax.parser import parse_program

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "rule-language.md").read_text(encoding="utf-8")
DIAGNOSTICS = (ROOT / "docs" / "reference" / "diagnostics.md").read_text(encoding="utf-8")
SOURCES = (
    "syntax/lowering.py",
    "syntax/expected.py",
    "syntax/reader.py",
    "passes/check.py",
    "syntax/arity.py",
)


def blocks(tag: str) -> list[str]:
    return re.findall(rf"```{tag}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", blocks("kb"), ids=[text.split("\n")[0] for text in blocks("kb")])
def test_examples_load(text: str) -> None:
    statements = parse_program(text, labelled=True)
    assert statements
    assert check_statements(statements) == []


@pytest.mark.parametrize(
    "shown", blocks("text"), ids=[text.split("\n")[0] for text in blocks("text")]
)
def test_messages_match_the_parser(shown: str) -> None:
    line, source = re.findall(r"^  (\d+) \| (.*)$", shown, re.MULTILINE)[0]
    with pytest.raises(RuleSyntaxError) as caught:
        check_statements(parse_program("\n" * (int(line) - 1) + source))
    assert caught.value.message == shown.rstrip("\n")


def test_every_code_is_on_the_page() -> None:
    code = "".join(
        (ROOT / "planner" / "kbplanner" / name).read_text(encoding="utf-8") for name in SOURCES
    )
    used = set(re.findall(r"""(?:Problem|_at|_add|RuleWarning)\(\s*"([a-z-]+)",""", code)) | {
        "unsafe",
        "invalid",
    }
    assert len(used) > 30
    assert used <= set(re.findall(r"`([a-z-]+)`", DIAGNOSTICS))


def test_the_codes_on_the_page_are_used() -> None:
    sources = (ROOT / "planner" / "kbplanner").rglob("*.py")
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    codes = re.findall(r"^### K0\d+: .*\n\n`([a-z-]+)`", DIAGNOSTICS, re.MULTILINE)
    assert len(codes) > 30
    assert [name for name in codes if f'"{name}"' not in code] == []
