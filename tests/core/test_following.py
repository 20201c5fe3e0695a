"""Goals that Python programs follow."""

from __future__ import annotations

import threading

import pytest

from kbcore import open_kb
from kbcore.errors import CallerLeft, InvalidInput
from kbcore.operations.tenant_kb import TenantKB
from kbcore.subscriptions.goal import StandingGoal
from kbcore.subscriptions.registry import StandingGoals
from kbplanner.syntax.parser import parse_body


@pytest.fixture
def kb():
    with open_kb() as kb:
        yield kb


def test_answers_and_their_changes(kb):
    kb.teach("grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).")
    with kb.follow("grandparent(?who, ?child)") as goal:
        assert goal.answers == frozenset()
        kb.tell("parent(ann, bob)")
        kb.tell("parent(bob, cid)")
        kb.tell("parent(bob, dee)")
        one, two = goal.changes()
        assert (one.appeared, two.appeared) == ([("ann", "cid")], [("ann", "dee")])
        assert goal.answers == {("ann", "cid"), ("ann", "dee")}
        assert goal.changes() == []
        kb.retract("parent(ann, bob)")
        change = goal.wait(5)
        assert sorted(change.disappeared) == [("ann", "cid"), ("ann", "dee")]
        assert goal.answers == frozenset()


def test_waiting_ends_with_a_change_a_timeout_or_the_end(kb):
    goal = kb.follow("p(?x)")
    assert goal.wait(0) is None
    writer = threading.Timer(0.05, kb.tell, ["p(1)"])
    writer.start()
    assert next(iter(goal)).appeared == [("1",)]
    writer.join()
    closer = threading.Timer(0.05, goal.close)
    closer.start()
    assert goal.wait() is None
    closer.join()


def test_a_fact_that_expires_is_a_change(kb):
    with kb.follow("p(?x)") as goal:
        kb.tell("p(1)", ttl=100)
        assert goal.wait(5).appeared == [("1",)]
        assert goal.wait(5).disappeared == [("1",)]


def test_changes_that_are_not_kept_become_one_difference(kb, monkeypatch):
    monkeypatch.setattr("kbcore.subscriptions.history.MAX_CHANGES", 2)
    monkeypatch.setattr("kbplugins.storage_memory.KEPT_BYTES", 0)  # no history to read them from
    with kb.follow("p(?x)") as goal:
        for number in range(5):
            kb.tell("p", [number])
        kb.retract("p(0)")
        (change,) = goal.changes()
        assert change.appeared == [("1",), ("2",), ("3",), ("4",)]
        assert change.disappeared == []


def test_a_scope_that_is_forked_dropped_and_forked_again(kb):
    kb.tell("p(1)")
    with kb.follow("p(?x)", scope="draft") as goal:
        kb.fork("draft")
        kb.tell("p(2)", scope="draft")
        kb.drop_scope("draft")
        one, two, three = goal.changes()
        assert (one.appeared, two.appeared) == ([("1",)], [("2",)])
        assert sorted(three.disappeared) == [("1",), ("2",)]


def test_rules_change_answers(kb):
    kb.tell("p(1). p(2).")
    with kb.follow("q(?x)") as goal:
        rule = kb.teach("q(?x) :- p(?x), ?x > 1.")
        assert goal.wait(5).appeared == [("2",)]
        assert rule


def test_a_goal_beyond_the_budget_of_a_write_is_brought_up_to_date_by_its_reader(kb):
    with kb.follow("p(?x, ?y)") as goal:
        registry = kb.kb._read_tenant().attached.get(StandingGoals)
        node = registry._node

        def spent():
            budget = node.new_budget()
            budget.deadline = 0
            return budget

        registry._node = node._replace(new_budget=spent)
        kb.teach("p(?x, ?y) :- n(?x), n(?y).")
        kb.tell_many("n", [[number] for number in range(700)])
        assert kb.kb.standing_goals()[0].is_behind
        registry._node = node
        (change,) = goal.changes()
        assert len(change.appeared) == 490_000
        kb.retract("n(0)")
        (change,) = goal.changes()
        assert len(change.disappeared) == 1399


def test_goals_that_cannot_be_kept_current(kb):
    for goal in ("p(?x), before(?x, now())", "p(?x"):
        with pytest.raises(InvalidInput):
            kb.follow(goal)


def test_a_goal_is_not_ended_by_another_thread_while_a_commit_updates_it(kb, monkeypatch):
    goal = kb.follow("p(?x)")
    update, seen = StandingGoal.update, []

    def ended_meanwhile(self, *arguments):
        ending = threading.Thread(target=goal.close)
        ending.start()
        ending.join(0.2)
        seen.append((ending, ending.is_alive(), self.ended))
        update(self, *arguments)

    monkeypatch.setattr(StandingGoal, "update", ended_meanwhile)
    kb.tell("p(1)")
    ((ending, was_waiting, ended),) = seen
    ending.join(10)
    assert (was_waiting, ended, ending.is_alive()) == (True, None, False)
    assert kb.kb.standing_goals() == []
    kb.tell("p(2)")
    assert sorted(kb.ask("p(?x)")) == [("1",), ("2",)]


class _Gone:
    """A client that has disconnected: it cancels all work for it."""

    def watch(self, stop):
        stop(CallerLeft())
        return lambda: None


def test_a_goal_outlives_the_client_that_subscribed(kb):
    """Its answers are kept current on behalf of no client, also where that takes several slices."""
    gone = TenantKB(kb._runtime, "default", "default", _Gone())
    kb.teach("p(?x, ?y) :- n(?x), n(?y).")
    goal = gone.subscribe_goal(parse_body("p(?x, ?y)"), id="mine").goal
    kb.tell_many("n", [[number] for number in range(700)])
    assert goal.ended is None
    assert kb.kb.goal_answers("mine").goal.count == 490_000
