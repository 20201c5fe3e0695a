"""Rule files in an editor: what is known about declared inputs, types, and files of fixtures."""

from __future__ import annotations

import pytest

from kbplanner.authoring.outline import outline_of
from kbserver.cli.lsp.project import Project

RULES = """@module access.
@strict.
@input stored(path: text, owner, size: number) "a file on a share".
% files of more than a gigabyte
large(?p) :- stored(?p, _, ?n), ?n > 1e9.
"""
TESTS = """fixture "files" from "files.csv" as stored.
test "large" at "2026-03-01" with "files" { ?- large(?p) = [a]. }
"""


def project(more: str = "") -> Project:
    return Project({"rules.kb": RULES + more, "rules_test.kb": TESTS})


def test_hover_shows_the_names_and_types_of_arguments():
    text = project().description("rules.kb", RULES.index("stored(?p"))
    assert text == (
        "**stored/3**: 0 facts, 0 rules\n\n"
        "`stored(path: text, owner, size: number)`\n\na file on a share"
    )


def test_the_definition_of_an_input_is_its_declaration():
    (place,) = project().definitions("rules.kb", RULES.index("stored(?p"))
    assert (place.file, place.start) == ("rules.kb", RULES.index("stored(path"))
    with_fact = project("stored(a, ann, 1).\n")
    (place,) = with_fact.definitions("rules.kb", RULES.index("stored(?p"))
    assert place.start == len(RULES)


def completed(text: str) -> list[tuple[str, str, int]]:
    items = project(text).completions("rules.kb", len(RULES + text))
    return [(each.text, each.remark, each.size) for each in items]


@pytest.mark.parametrize(
    ("text", "texts", "size"),
    [
        ("@input p(a: ", ["text", "number", "integer", "instant", "boolean"], 0),
        ("@input p(a, b: nu", ["text", "number", "integer", "instant", "boolean"], 2),
        ("@input p(a:nu", ["text", "number", "integer", "instant", "boolean"], 2),
        ("@st", ["input", "levels", "groups", "requires", "phrase", "mask", "equivalence"], 2),
    ],
)
def test_completion_of_declarations(text, texts, size):
    items = completed(text)
    assert [each[0] for each in items][: len(texts)] == texts
    assert {each[2] for each in items} == {size}
    assert text != "@st" or [each[0] for each in items][-2:] == ["module", "strict"]


def test_completion_shows_the_arguments_of_inputs():
    remarks = {text: remark for text, remark, _ in completed("q(?x) :- ")}
    assert remarks["stored"] == "stored(path: text, owner, size: number): a file on a share"
    assert remarks["large"] == "large/1"
    remarks = {text: remark for text, remark, _ in completed("stored(a).\nq(?x) :- ")}
    assert remarks["stored"] == "stored/1, 3"


def test_nothing_is_reported_about_the_files():
    assert project().findings() == {"rules.kb": [], "rules_test.kb": []}


def test_the_outline_has_fixtures_of_files():
    blocks = [(each.kind, each.name) for each in outline_of(TESTS).blocks]
    assert blocks == [("fixture", "files"), ("test", "large")]
    assert [each.name for each in outline_of(TESTS).occurrences if each.name != "?p"] == ["large"]
