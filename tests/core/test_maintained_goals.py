"""Goals that follow changes instead of being evaluated again: values in other texts, warnings,
limits, and what threads and held answers may do meanwhile.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import kbcore


@pytest.fixture
def kb():
    """A knowledge base that keeps every goal, and compares its answers with fresh ones."""
    with kbcore.open_kb(config=replace(kbcore.Config(), engine_verify=True)) as found:
        yield found


def test_the_first_answers_of_a_kept_goal(kb):
    kb.teach("free(?x) :- n(?x), not off(?x).")
    kb.tell_many("n", [(name,) for name in "abcd"])
    for name in "dcb":
        assert len(kb.ask("free(?x)")) > 1
        assert kb.ask("free(?x)", limit=1) == [("a",)]
        kb.tell("off", [name])
    assert kb.ask("free(?x)", limit=1) == [("a",)]


BEST = "least(?x, min ?v) :- value(?x, ?v). most(?x, max ?v) :- value(?x, ?v)."


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("2.50", "2.5"),
        ("1.0", "1"),
        ("1e0", "1"),
        ("98765432109876543210.0", "9.876543210987654e+19"),
        ("98765432109876543210", "98765432109876543210"),
        ("2026-05-01T02:00+02:00", "2026-05-01T02:00+02:00"),
    ],
)
def test_best_values_in_another_text_than_their_facts(kb, text, kept):
    kb.teach(BEST)
    kb.tell_many("value", [("a", text), ("b", "1"), ("b", "2")])
    for name in ("least", "most"):
        assert (("a", kept) in kb.ask(f"{name}(?x, ?v)")) is True
    kb.retract("value", ["b", "1"])
    kb.retract("value", ["b", "2"])  # from here on the goals follow changes
    for name in ("least", "most"):
        assert kb.ask(f"{name}(?x, ?v)") == [("a", kept)]
    kb.retract("value", ["a", text])
    for name in ("least", "most"):
        assert kb.ask(f"{name}(?x, ?v)") == []
    kb.tell("value", ["a", text])
    for name in ("least", "most"):
        assert kb.ask(f"{name}(?x, ?v)") == [("a", kept)]


VALUES = [
    "2026-05-01",
    "2026-05-01T02:00+02:00",
    "2026-05-01T00:00Z",
    "98765432109876543210",
    "5",
    "7",
]


@pytest.mark.parametrize("first", VALUES)
@pytest.mark.parametrize("second", VALUES)
def test_equal_and_unlike_best_values(kb, first, second):
    kb.teach(BEST)
    kb.tell_many("value", [("a", first), ("b", "3")])
    assert len(kb.ask("least(?x, ?v)")) == len(kb.ask("most(?x, ?v)")) == 2
    kb.retract("value", ["b", "3"])
    assert len(kb.ask("least(?x, ?v)")) == len(kb.ask("most(?x, ?v)")) == 1
    kb.tell("value", ["a", second])
    assert len(kb.ask("least(?x, ?v)")) == len(kb.ask("most(?x, ?v)")) == 1
    kb.retract("value", ["a", first])
    assert len(kb.ask("least(?x, ?v)")) == len(kb.ask("most(?x, ?v)")) == (first != second)


def test_a_best_value_that_is_no_number_is_counted(kb):
    kb.teach(BEST)
    kb.tell_many("value", [("a", "5"), ("b", "3")])
    for row in (["b", "4"], ["b", "3"]):
        kb.retract("value", row)
        answers = kb.ask("least(?x, ?v)")
        assert (len(answers), answers.warnings) == (1 if row[1] == "3" else 2, 0)
    kb.tell("value", ["a", "heavy"])
    answers = kb.ask("least(?x, ?v)")
    assert answers == [("a", "5")]
    assert answers.warnings == 1


RECURSIONS = [
    "path(?x, ?z) :- path(?x, ?y), path(?y, ?z). path(?y, ?x) :- path(?x, ?y), both(?x).",
    "path(?x, ?z) :- step(?x, ?y), path(?y, ?z). step(?x, ?y) :- path(?x, ?y), both(?x).",
]


@pytest.mark.parametrize("rules", RECURSIONS)
def test_a_goal_with_another_constant_asks_a_kept_recursion_for_more(kb, rules, monkeypatch):
    monkeypatch.setattr("kbcore.reason.tables.MIN_TABLE_BYTES", 0)
    kb.teach(f"path(?x, ?y) :- edge(?x, ?y). step(?x, ?y) :- edge(?x, ?y). {rules}")
    kb.tell_many("edge", [("a", "b"), ("b", "c"), ("x", "y"), ("y", "z"), ("z", "x")])
    for _ in range(2):
        assert len(kb.ask("path(a, ?y)")) == 2
        kb.retract("edge", ["b", "c"])
        assert len(kb.ask("path(a, ?y)")) == 1
        kb.tell("edge", ["b", "c"])
    assert len(kb.ask("path(a, ?y)")) == 2
    assert len(kb.ask("path(x, ?y)")) == 3  # nothing else has changed
    kb.tell("edge", ["y", "w"])
    assert len(kb.ask("path(y, ?z)")) == 4
    kb.retract("edge", ["z", "x"])
    assert len(kb.ask("path(z, ?z)")) == 0
    assert len(kb.ask("path(x, ?z)")) == 3
