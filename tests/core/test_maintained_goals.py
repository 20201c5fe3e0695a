"""Goals that follow changes instead of being evaluated again: values in other texts, warnings,
limits, and what threads and held answers may do at the same time.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

import kbcore
from kbcore.errors import BudgetExceeded
from kbcore.reason.maintained_table import MaintainedTable
from kbcore.state import partition
from kbcore.subscriptions.registry import StandingGoals
from kbplanner.pacing import yielding


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


def test_changes_that_no_goal_can_follow_are_not_recorded(kb):
    kb.tell("off", ["a"])
    stored = kb._runtime.read_tenant("default", "default").partition(None).named("off")[0]
    many = 2 * partition.MAX_RECORDED + 1
    journal = stored.journal(needs_all=False)
    kb.tell_many("off", [(f"x{n}",) for n in range(many)])
    assert journal.is_lost
    assert len(stored.record.changes) == partition.MAX_RECORDED
    kb.tell("off", ["b"])
    assert not stored.record.changes
    later = stored.journal(needs_all=False)
    kb.tell("off", ["c"])
    assert (journal.is_lost, later.is_lost) == (True, False)
    assert len(later.take()[0]) == 1
    watched = stored.journal(needs_all=True)
    kb.tell_many("off", [(f"y{n}",) for n in range(many)])
    assert len(watched.take()[0]) == many


def test_journals_that_begin_at_once_see_the_same_changes(kb, monkeypatch):
    kb.tell("n", ["a"])
    stored = kb._runtime.read_tenant("default", "default").partition(None).named("n")[0]
    begun, journals = threading.Barrier(2), []

    class Slow(partition.RowRecord):
        def __init__(self, arity):
            super().__init__(arity)
            with suppress(threading.BrokenBarrierError):
                begun.wait(0.2)  # for another thread that makes a record too

    monkeypatch.setattr(partition, "RowRecord", Slow)
    threads = [
        threading.Thread(target=lambda: journals.append(stored.journal(needs_all=True)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kb.tell("n", ["b"])
    assert [len(each.take()[0]) for each in journals] == [1, 1]


def goal_of(kb):
    return StandingGoals.of(kb._runtime.read_tenant("default", "default")).all()[0]


def test_the_memory_of_a_standing_goal_that_grows_is_counted():
    config = replace(kbcore.Config(), engine_verify=True, goal_table_mb=1)
    with kbcore.open_kb(config=config) as kb:
        kb.teach("path(?x, ?y) :- edge(?x, ?y). path(?x, ?z) :- edge(?x, ?y), path(?y, ?z).")
        kb.tell("edge", [0, 1])
        with kb.follow("path(?x, ?y)") as goal:
            tables = kb._runtime.reasoner(kb._runtime.read_tenant("default", "default")).tables
            assert tables.kept_bytes == goal_of(kb).maintained_bytes[0] > 0
            before = tables.kept_bytes
            kb.tell_many("edge", [(n, n + 1) for n in range(1, 100)])
            assert tables.kept_bytes == goal_of(kb).maintained_bytes[0] > before
            kb.tell_many("edge", [(n, n + 1) for n in range(100, 400)])
            assert tables.kept_bytes == goal_of(kb).maintained_bytes[0] == 0
            goal.changes()
            assert len(goal) == 400 * 401 // 2
        assert tables.kept_bytes == 0


def test_memory_is_reported_while_a_standing_goal_is_evaluated(kb):
    kb.teach("free(?x) :- n(?x), not off(?x).")
    kb.tell("n", ["a"])
    with kb.follow("free(?x)"):
        goal, found = goal_of(kb), []
        reader = threading.Thread(target=lambda: found.append(goal.maintained_bytes))
        with goal._busy:  # as a reader does, who brings a goal up to date
            reader.start()
            reader.join(10)
            assert found
            assert found[0][0] > 0
        reader.join()


def test_held_answers_and_rows_are_let_go_when_a_request_has_no_time():
    def end():
        raise BudgetExceeded("no time", "timeMs", 0)

    with kbcore.open_kb() as kb:  # a comparison with fresh answers would read them
        kb.teach("path(?x, ?y) :- edge(?x, ?y). path(?x, ?z) :- edge(?x, ?y), path(?y, ?z).")
        kb.tell_many("edge", [(n, (n + 1) % 400) for n in range(400)])
        for node in ("x", "y"):
            kb.tell("edge", [node, node])
            assert len(kb.ask("path(?x, ?y)")) > 160_000
            kb.retract("edge", [node, node])
        held = kb.ask("path(?x, ?y)")
        tables = kb._runtime.reasoner(kb._runtime.read_tenant("default", "default")).tables
        table = next(iter(tables._tables.values()))
        assert isinstance(table, MaintainedTable)
        with yielding(end):
            tables.clear()
        assert not table._kept._program.rows
        assert len(set(held)) == 160_000
