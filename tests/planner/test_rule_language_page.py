"""The reference page of the language: examples load, messages and codes match the parser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbplanner.errors import RuleSyntaxError
from kbplanner.passes.check import check_statements
from kbplanner.syntax.parser import parse_program

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "rule-language.md").read_text(encoding="utf-8")
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
    assert used <= set(re.findall(r"`([a-z-]+)`", PAGE))


def test_the_codes_on_the_page_are_used() -> None:
    code = "".join(
        (ROOT / "planner" / "kbplanner" / name).read_text(encoding="utf-8") for name in SOURCES
    )
    table = PAGE.split("| code | what happened |")[1].split("Warnings do not")[0]
    for name in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", table):
        assert f'"{name}"' in code, name
