"""Counts in messages: `1 fact` and `2 facts`, never `1 facts`; the source is searched for fixed
plurals.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kbcore
import kbplanner
import kbplugins
import kbserver
from kbplanner.syntax.diagnostics import counted

CLIENT = Path(__file__).parents[2] / "clients" / "python" / "kbcore_client"
FOLDERS = (
    CLIENT,
    *(Path(each.__file__ or "").parent for each in (kbcore, kbplanner, kbplugins, kbserver)),
)
NOUNS = (
    "answer|argument|change|chunk|conclusion|conflict|database|episode|error|event|fact|file|follower|goal|"
    "key|line|node|plugin|problem|record|request|row|rule|scope|shard|statement|tenant|test|token|value|warning|worker"
)
COUNTED = rf" (?:(?:contradicted|further|long|more|new|valid) )?(?:{NOUNS})s\b(?! the\b)"
PLURAL = re.compile(COUNTED)
LOGGED = re.compile("%d" + COUNTED)
NEVER_ONE = {
    "kbcore/context/text/drafts.py": "one answer has another text",
    "kbcore/context/text/notes.py": "a summary has several sources",
    "kbcore/node/shard.py": "the storage has several shards",
    "kbcore/plug/manager.py": "the storage has several shards",
    "kbcore/python_api/answers.py": "the goal has no answer or several",
    "kbcore_client/answers.py": "the goal has no answer or several",
    "kbcore/reason/budget.py": "more answers than a limit of at least 1",
    "kbplanner/ir/limits.py": "a limit has several arguments",
    "kbplanner/syntax/jsonform.py": "a builtin takes several arguments",
    "kbplanner/syntax/lowering.py": "a builtin takes several arguments",
    "kbserver/cli/storage/storage.py": "only several shards are named",
    "kbserver/process/shared_runtime.py": "the server has several workers",
}


def is_limit(value: ast.expr) -> bool:
    """True for a constant of the source, whose value is more than one."""
    text = ast.unparse(value)
    return text.isupper() or text.startswith("DEFAULT_LIMITS.")


def fixed_plurals(module: ast.Module) -> Iterator[ast.expr]:
    """Yield the texts that have a fixed plural after a number."""
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and LOGGED.search(node.value)
        ):
            yield node
        if not isinstance(node, ast.JoinedStr):
            continue
        for part, after in zip(node.values, [*node.values[1:], None], strict=True):
            if (
                isinstance(part, ast.FormattedValue)
                and isinstance(after, ast.Constant)
                and PLURAL.match(str(after.value))
                and not is_limit(part.value)
            ):
                yield node


@pytest.mark.parametrize("root", FOLDERS, ids=lambda root: root.name)
def test_no_message_has_a_fixed_plural(root: Path) -> None:
    wrong = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted(root.rglob("*.py"))
        if (name := str(path.relative_to(root.parent))) not in NEVER_ONE
        for node in fixed_plurals(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 facts"), (1, "1 fact"), (2, "2 facts"), (1234, "1,234 facts")]
)
def test_a_number_has_the_form_of_its_noun(count: int, text: str) -> None:
    assert counted(count, "fact") == text
