"""The threat model names a test for each measure, and each of these tests exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "server/kbserver/security/THREAT_MODEL.md").read_text(encoding="utf-8")
ATTACKERS = PAGE.partition("\n## Where text is kept\n")[0]


def test_each_measure_names_a_test() -> None:
    rows = re.findall(r"^\| (?!attack \||---).*\|$", ATTACKERS, re.M)
    assert len(rows) > 50
    assert [row for row in rows if not re.search(r"\| `tests/[^|]+ \|$", row)] == []


def test_each_attacker_has_a_table() -> None:
    _, *sections = re.split(r"^## ", ATTACKERS, flags=re.M)
    assert len(sections) >= 12
    assert [section.partition("\n")[0] for section in sections if "| attack |" not in section] == []


def test_the_tests_that_are_named_exist() -> None:
    named = set(re.findall(r"`(tests/[^`]+)`", PAGE))
    assert len(named) > 40
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
