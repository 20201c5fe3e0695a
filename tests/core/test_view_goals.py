"""Standing goals under a view: what they see, how long their states stay, and their ids."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.http import NOW
from support.runtimes import runtime

import kbcore
from kbcore.clock import ManualClock
from kbcore.errors import AlreadyExists, NotFound, RateLimited
from kbcore.operations.history.fact_history import FactPattern
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbcore.state.views import MAX_OBSERVED, ViewStates
from kbplanner.syntax.parser import parse_body

DECLARED = "@levels trust: web < user. @groups team: hr, eng."
HR, ENG = {"team": ["hr"]}, {"team": ["eng"]}
GOAL = parse_body("p(?x), not q(?x)")
KEEP = DurableSubscription()


@pytest.fixture
def kb() -> Iterator[kbcore.KnowledgeBase]:
    with kbcore.open_kb() as kb:
        kb.teach(DECLARED)
        yield kb


def answers(kb: kbcore.KnowledgeBase, id: str = "g") -> list[str]:
    return sorted(row["bindings"]["?x"] for row in kb.kb.goal_answers(id).answers)


def changes(kb: kbcore.KnowledgeBase, since: str, id: str = "g") -> list[tuple[Any, Any]]:
    known = kb.kb.goal_changes(id, since)
    assert known is not None
    return [
        tuple([row["bindings"]["?x"] for row in part] for part in (each.appeared, each.disappeared))
        for each in known
    ]


def states(kb: kbcore.KnowledgeBase) -> ViewStates:
    known = kb._runtime.read_tenant("default", "default").attached.get(ViewStates)
    assert known is not None
    return known


# -- what a goal sees ------------------------------------------------------------------------------


def test_what_the_view_does_not_admit_gives_no_event(kb: kbcore.KnowledgeBase) -> None:
    eng = kb.viewed(ENG)
    since = eng.kb.subscribe_goal(GOAL, id="g").event_id
    kb.viewed(labels=HR).tell("p(zebra)")
    kb.viewed(labels=ENG).tell("p(a)")
    kb.viewed(labels=HR).tell("q(a)")
    kb.viewed(labels=HR).teach("q(?x) :- p(?x).")
    kb.tell("q(a)")
    assert changes(eng, since) == [(["a"], []), ([], ["a"])]
    assert kb.kb.standing_goals() == []
    with pytest.raises(NotFound):
        kb.viewed(HR).kb.goal_answers("g")


def test_a_goal_follows_expiry_in_its_view() -> None:
    clock = ManualClock()
    with runtime(clock=clock) as node:
        kb = node.open()
        kb.teach(DECLARED)
        eng = kb.viewed(ENG)
        since = eng.kb.subscribe_goal(GOAL, id="g").event_id
        kb.viewed(labels=ENG).tell("p(a)", ttl="10s")
        kb.viewed(labels=HR).tell("p(zebra)", ttl="5s")
        assert eng.kb.next_due_seconds() == 10
        clock.advance(10_000)
        assert changes(eng, since) == [(["a"], []), ([], ["a"])]


def test_a_goal_goes_on_when_the_state_is_copied_again(kb: kbcore.KnowledgeBase) -> None:
    eng = kb.viewed(ENG)
    kb.tell("p(a)")
    since = eng.kb.subscribe_goal(GOAL, id="g").event_id
    before = eng.kb._read_tenant()
    kb.fork("draft")
    kb.tell("p(b)")
    kb.viewed(labels=HR).tell("p(zebra)")
    assert answers(eng) == ["a", "b"]
    assert eng.kb._read_tenant() is not before
    kb.tell("q(a)")
    assert changes(eng, since) == [(["b"], []), ([], ["a"])]


def test_a_change_during_a_long_read_is_followed_afterwards(kb: kbcore.KnowledgeBase) -> None:
    eng = kb.viewed(ENG)
    since = eng.kb.subscribe_goal(GOAL, id="g").event_id
    woken = threading.Event()
    eng.kb.standing_goal("g").listen(woken.set)
    with eng.kb._read_tenant().lock.read():  # a goal that takes long
        kb.tell("p(a)")
        assert woken.is_set()
        kb.tell("p(b)")
    assert changes(eng, since) == [(["a", "b"], [])]


def test_many_changed_facts_are_followed_by_the_next_reader(kb: kbcore.KnowledgeBase) -> None:
    eng = kb.viewed(ENG)
    since = eng.kb.subscribe_goal(GOAL, id="g").event_id
    woken = threading.Event()
    eng.kb.standing_goal("g").listen(woken.set)
    kb.tell_many("p", [(str(index),) for index in range(15_000)])
    assert woken.is_set()
    (change,) = changes(eng, since)
    assert len(change[0]) == 15_000


# -- ids and limits --------------------------------------------------------------------------------


def test_an_id_that_another_view_has_is_in_use(kb: kbcore.KnowledgeBase) -> None:
    kb.viewed(HR).kb.subscribe_goal(parse_body("zebra(?x)"), id="g", keep=KEEP)
    for handle in (kb, kb.viewed(ENG)):
        with pytest.raises(AlreadyExists) as error:
            handle.kb.subscribe_goal(GOAL, id="g", keep=KEEP)
        assert "zebra" not in str(error.value)
        assert handle.kb.standing_goals() == []
        assert not handle.kb.end_goal("g")
    assert kb.viewed(HR).kb.end_goal("g")
    kb.viewed(ENG).kb.subscribe_goal(GOAL, id="g", keep=KEEP)


def test_an_ended_goal_takes_no_goal_of_another_view_with_it(kb: kbcore.KnowledgeBase) -> None:
    hr, eng = kb.viewed(HR).kb, kb.viewed(ENG).kb
    for id in ("g", "other"):
        hr.subscribe_goal(GOAL, id=id, keep=KEEP)
    assert hr.end_goal("g")
    eng.subscribe_goal(GOAL, id="g", keep=KEEP)
    hr.keep_goals()
    assert eng.find_goal("g") is not None
    eng.end_goal("g")
    assert eng.find_goal("g") is None


def test_changes_from_the_log_are_those_of_the_goal_that_has_the_id_now(
    kb: kbcore.KnowledgeBase,
) -> None:
    kb.tell("p(a). q(b).")
    for handle in (kb, kb.viewed(ENG)):
        for goal, answer in (("p(?x), not r(?x)", "a"), ("q(?x), not r(?x)", "b")):
            handle.kb.subscribe_goal(parse_body(goal), id="g")
            assert changes(handle, "0") == [([answer], [])]
            handle.kb.end_goal("g")


def test_a_level_of_now_admits_nothing_below_it_before_it_was_declared(
    kb: kbcore.KnowledgeBase,
) -> None:
    kb.tell("p(zebra) [trust=web]. p(a).")
    kb.tell("p(zebra2) [trust=web]")
    kb.teach("@levels trust: web < tool < user.")
    kb.tell("p(b)")
    tool = kb.viewed({"trust": "tool"})
    tool.kb.subscribe_goal(GOAL, id="g")
    assert changes(tool, "0") == [(["a"], []), (["b"], [])]
    events = tool.kb.fact_history(FactPattern("p")).events
    assert [each.after and each.after["args"] for each in events] == [["b"], ["a"]]


def test_a_view_with_goals_stays_in_memory_and_there_is_a_limit(
    kb: kbcore.KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbcore.state.views.MAX_STATES", 16)
    groups = [f"g{index}" for index in range(16 + MAX_OBSERVED)]
    kb.teach(f"@groups many: {', '.join(groups)}.")
    views = [kb.viewed({"many": [each]}) for each in groups]
    for view in views[:MAX_OBSERVED]:
        view.kb.subscribe_goal(GOAL, id="g")
    followed = [view.kb._read_tenant() for view in views[:MAX_OBSERVED]]
    for view in views[MAX_OBSERVED:]:
        assert view.ask("p(?x)").count() == 0
    assert len(states(kb)) == 16
    assert [view.kb._read_tenant() for view in views[:MAX_OBSERVED]] == followed
    for keep in (None, KEEP):
        with pytest.raises(RateLimited) as error:
            views[-1].kb.subscribe_goal(GOAL, id="g", keep=keep)
        assert error.value.details is not None
        assert error.value.details["limit"] == "viewsWithGoals"
    assert views[-1].kb.standing_goals() == []
    views[0].kb.end_goal("g")
    kb.tell("p(a)")
    views[-1].kb.subscribe_goal(GOAL, id="g")
    assert answers(views[-1]) == ["a"]


# -- restarts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_subscription_keeps_its_view_after_a_restart(tmp_path: Any, snapshot: bool) -> None:
    with kbcore.open_kb(path=tmp_path) as kb:
        kb.teach(DECLARED)
        since = kb.viewed(ENG).kb.subscribe_goal(GOAL, id="g", keep=KEEP).event_id
        kb.viewed(labels=HR).tell("p(zebra)")
        kb.viewed(labels=ENG).tell("p(a)")
        if snapshot:
            kb._runtime.snapshot()
    with kbcore.open_kb(path=tmp_path) as kb:
        assert kb.kb.standing_goals() == []
        (goal,) = kb.viewed(ENG).kb.standing_goals()
        assert goal.is_durable
        kb.viewed(labels=HR).tell("q(a)")
        kb.viewed(labels=ENG).tell("p(b)")
        assert changes(kb.viewed(ENG), since) == [(["a"], []), (["b"], [])]


def test_upkeep_evaluates_goals_of_views_and_ends_them() -> None:
    clock = ManualClock(NOW)
    with runtime(clock=clock) as node:
        kb = node.open()
        kb.teach(DECLARED)
        eng = kb.viewed(ENG)
        eng.kb.subscribe_goal(GOAL, id="g", keep=KEEP, ttl_ms=60_000)
        eng.kb.subscribe_goal(GOAL, id="memory", ttl_ms=60_000)
        clock.advance(40_000)
        answers(eng)
        node._keep_goals()
        clock.advance(40_000)
        node._keep_goals()
        stored = node.read_tenant("default", "default")
        assert [each.id for each in stored.subscriptions] == ["g"]
        clock.advance(60_000)
        node._keep_goals()
        assert not len(stored.subscriptions)
        assert eng.kb.standing_goals() == []
        assert kb.kb.views_with_goals() == []


def test_a_purge_ends_the_goals_of_views_that_mention_the_subject(kb: kbcore.KnowledgeBase) -> None:
    for view, id in ((HR, "hr"), (ENG, "eng")):
        for subject in ("mia", "ann"):
            goal = parse_body(f"p({subject}, ?x)")
            kb.viewed(view).kb.subscribe_goal(goal, id=f"{id}-{subject}", keep=KEEP)
            kb.viewed(view).kb.subscribe_goal(goal, id=f"memory-{subject}")
    kb.viewed(labels=HR).tell("p(mia, 1)")
    ended = kb.purge(subject="mia")
    assert {goal.id for goal in ended.goals} == {"hr-mia", "eng-mia", "memory-mia"}
    for view, id in ((HR, "hr"), (ENG, "eng")):
        left = [goal.id for goal in kb.viewed(view).kb.standing_goals()]
        assert left == [f"{id}-ann", "memory-ann"]
    assert kb.viewed(HR).kb.fact_history(FactPattern("p")).events == []
