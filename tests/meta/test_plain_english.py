"""The check of names and prose in `plain_english.py`, and the tree against it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from meta import plain_english


def findings(text: str, in_product: bool = True) -> list[str]:
    return [
        wording
        for _, wording, _ in (*plain_english.wordings(text), *plain_english.names(text, in_product))
    ]


@pytest.mark.parametrize(
    ("text", "wording"),
    [
        ("# Whoever waits goes first.", "whoever"),
        ("# The conclusion rests on it.", "rests on"),
        ('def f():\n    """What the caller sees."""', "What"),
        ('class Rows:\n    """How rows are read."""', "How"),
        ("found = read()", "found"),
        ("for one in rows: pass", "one"),
        ("def f(given): pass", "given"),
        ("if (made := build()): pass", "made"),
        ("MOST = 3", "MOST"),
        ("def test_a_guest_fails(): pass", "test_a_guest_fails"),
    ],
)
def test_a_discouraged_wording_is_found(text, wording):
    assert findings(text) == [wording]


@pytest.mark.parametrize(
    "text",
    [
        '"""Read the rows that no other process writes."""',
        "rows = read()",
        "row.found = True",
        "MAX_PAGE_SIZE = 3",
        "# The client asked whether the tenant exists.",
    ],
)
def test_plain_text_passes(text):
    assert findings(text) == []


def test_tests_may_name_their_variables_as_they_like():
    assert findings("found = read()", in_product=False) == []


def test_a_finding_names_file_line_and_advice(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("A page.\n\nHence this.\n")
    assert plain_english.check(page) == [("page.md", 3, "hence", "use a present-day word")]


def test_an_allowed_wording_is_not_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    monkeypatch.setattr(plain_english, "ALLOWED", {("page.md", "hence"): "a quotation"})
    page = tmp_path / "page.md"
    page.write_text("Hence this.\n")
    assert plain_english.check(page) == []


def test_the_tree_is_in_plain_english():
    done = subprocess.run(
        [sys.executable, plain_english.__file__], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
