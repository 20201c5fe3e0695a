"""Subscriptions to goals that are part of a tenant's state."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import AlreadyExists, Forbidden, NotFound
from kbcore.operations.base import Actor
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbcore.state.changes import ChangeSet, Delta
from kbcore.state.facts import Fact
from kbcore.state.subscriptions import StatePosition
from kbcore.subscriptions.goal import StandingGoal
from kbcore.subscriptions.registry import GRACE_MS
from kbcore.upkeep.purge import PurgeTarget
from kbplanner.syntax.parser import parse_body

GOAL = parse_body("p(?x)")


def tell(kb, *args):
    kb.assert_facts([Fact("p", (arg,)) for arg in args])


def args(rows):
    return sorted(row["args"][0] for row in rows)


def as_key(node, name, is_admin=False):
    kb = node.knowledge_base()
    kb.actor = Actor(name, is_admin)
    return kb


def test_a_subscription_survives_restarts_with_and_without_a_snapshot(tmp_path: Path) -> None:
    clock = ManualClock()
    with runtime(tmp_path, clock=clock) as node:
        kb = node.knowledge_base()
        first = kb.subscribe_goal(GOAL, id="g", keep=DurableSubscription())
        kb.subscribe_goal(GOAL, id="memory")
        tell(kb, "1")
    for number in (2, 3):
        with runtime(tmp_path, clock=clock) as node:
            kb = node.knowledge_base()
            assert [goal.id for goal in kb.standing_goals()] == ["g"]
            tell(kb, str(number))
            changes = kb.goal_changes("g", first.event_id)
            assert [args(change.appeared) for change in changes] == [
                [str(each)] for each in range(1, number + 1)
            ]
            last = changes[-1]
            assert kb.goal_changes("g", str(last.seq)) == []
            assert kb.goal_changes("g", str(last.previous_seq))[0].seq == last.seq


def test_a_used_subscription_is_renewed_and_an_unused_one_is_removed(tmp_path: Path) -> None:
    clock = ManualClock()
    with runtime(tmp_path, clock=clock) as node:
        kb = node.knowledge_base()
        for id in ("used", "unused"):
            kb.subscribe_goal(GOAL, id=id, ttl_ms=10_000, keep=DurableSubscription())
        tenant = node.find_tenant("default", "default")
        clock.advance(6000)
        kb.standing_goal("used")
        kb.keep_goals()
        assert tenant.subscriptions.get("used").expires_at == clock.now_ms() + 10_000
        clock.advance(5000)
        kb.keep_goals()
        assert [each.id for each in tenant.subscriptions] == ["used"]
        assert kb.end_goal("used")
        assert not len(tenant.subscriptions)


def test_time_without_a_server_does_not_end_a_subscription(tmp_path: Path) -> None:
    clock = ManualClock()
    with runtime(tmp_path, clock=clock) as node:
        node.knowledge_base().subscribe_goal(GOAL, id="g", ttl_ms=2000, keep=DurableSubscription())
    clock.advance(GRACE_MS)
    with runtime(tmp_path, clock=clock) as node:
        kb = node.knowledge_base()
        assert [goal.id for goal in kb.standing_goals()] == ["g"]
        clock.advance(2001)
        assert kb.standing_goals() == []
        with pytest.raises(NotFound):
            kb.goal_answers("g")


@pytest.mark.parametrize("keep", [None, DurableSubscription()])
def test_only_the_owner_or_an_administrator_ends_a_goal(keep) -> None:
    with runtime() as node:
        owner, other, admin = (as_key(node, name, name == "admin") for name in ("a", "b", "admin"))
        owner.subscribe_goal(GOAL, id="g", keep=keep)
        with pytest.raises(Forbidden):
            other.end_goal("g")
        with pytest.raises(Forbidden):
            other.subscribe_goal(GOAL, id="g", ttl_ms=1000, keep=keep)
        assert other.goal_answers("g").goal.ttl_ms > 1000
        assert owner.subscribe_goal(GOAL, id="g", keep=keep)
        assert owner.end_goal("g")
        owner.subscribe_goal(GOAL, id="g", keep=keep)
        assert admin.end_goal("g")
        assert not admin.end_goal("g")


def test_a_purge_lists_and_ends_the_goals_that_mention_the_subject(tmp_path: Path) -> None:
    with runtime(tmp_path) as node:
        kb = node.knowledge_base()
        about = parse_body("likes(zebulon, ?x)")
        kb.subscribe_goal(about, id="kept", keep=DurableSubscription())
        kb.subscribe_goal(about, id="memory")
        kb.subscribe_goal(GOAL, id="other", keep=DurableSubscription())
        target = PurgeTarget(subject="Zebulon")
        assert [goal.id for goal in kb.purge(target, dry_run=True).goals] == ["kept", "memory"]
        assert len(kb.standing_goals()) == 3
        outcome = kb.purge(target)
        assert outcome.erased
        assert [goal.id for goal in kb.standing_goals()] == ["other"]
        files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert not any(b"zebulon" in content for content in files)


def test_changes_before_a_purge_are_not_computed_from_the_log(tmp_path: Path) -> None:
    with runtime(tmp_path) as node:
        kb = node.knowledge_base()
        first = kb.subscribe_goal(GOAL, id="g", keep=DurableSubscription())
        tell(kb, "zebulon")
        kb.purge(PurgeTarget(subject="zebulon"), wait=False)
        assert kb.goal_changes("g", first.event_id) is None


def test_a_slow_first_evaluation_does_not_hold_up_other_goals(monkeypatch) -> None:
    begin, begun, go_on = StandingGoal.begin, threading.Event(), threading.Event()

    def slow(self, *arguments):
        if self.id == "late":
            begun.set()
            assert go_on.wait(30)
        begin(self, *arguments)

    monkeypatch.setattr(StandingGoal, "begin", slow)
    with runtime() as node:
        kb = node.knowledge_base()
        thread = threading.Thread(target=kb.subscribe_goal, args=(GOAL,), kwargs={"id": "late"})
        thread.start()
        assert begun.wait(30)
        kb.subscribe_goal(GOAL, id="quick")
        assert kb.goal_answers("quick").answers == []
        assert kb.end_goal("quick")
        go_on.set()
        thread.join()
        assert [goal.id for goal in kb.standing_goals()] == ["late"]


def test_an_id_belongs_to_one_goal_across_restarts(tmp_path: Path) -> None:
    with runtime(tmp_path) as node:
        node.knowledge_base().subscribe_goal(GOAL, id="g", keep=DurableSubscription())
    with runtime(tmp_path) as node, pytest.raises(AlreadyExists):
        node.knowledge_base().subscribe_goal(
            parse_body("q(?x)"), id="g", keep=DurableSubscription()
        )


@pytest.mark.parametrize("keep", [None, DurableSubscription()])
@pytest.mark.parametrize("action", ["nuke_tenant", "drop_tenant", "nuke_database"])
def test_those_who_wait_are_told_that_the_tenant_has_ended(
    tmp_path: Path, action: str, keep: DurableSubscription | None
) -> None:
    with runtime(tmp_path) as node:
        node.admin().create_database("d")
        kb = node.knowledge_base("d", "t")
        goal = kb.subscribe_goal(GOAL, id="g", keep=keep).goal
        goals: list[list[StandingGoal]] = []
        goal.listen(lambda: goals.append(kb.standing_goals()))
        getattr(node.admin(), action)(*("d", "t")[: 1 + action.endswith("tenant")])
        assert goals == [[]]  # told once, when the tenant was already empty
        assert isinstance(goal.ended, NotFound)


@pytest.mark.parametrize("action", ["end", "drop"])
@pytest.mark.parametrize("upkeep", ["renew", "note"])
def test_upkeep_brings_back_no_goal_that_ends_meanwhile(
    tmp_path: Path, action: str, upkeep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    with runtime(tmp_path, clock=clock) as node:
        kb = node.knowledge_base("default", "t")
        goal = kb.subscribe_goal(GOAL, id="g", ttl_ms=10_000, keep=DurableSubscription()).goal
        clock.advance(6000)
        kb.standing_goal("g")
        commit = node.commit

        def end_first(changes: ChangeSet) -> Delta:
            monkeypatch.setattr(node, "commit", commit)
            if action == "end":
                kb.end_goal("g")
            else:
                node.admin().drop_tenant("default", "t")
            return commit(changes)

        monkeypatch.setattr(node, "commit", end_first)
        if upkeep == "renew":
            kb.keep_goals()
        else:
            kb.note_delivery(goal, StatePosition(1, 1))
        assert kb.standing_goals() == []
        tenant = node.find_tenant("default", "t")
        assert tenant is None if action == "drop" else tenant is not None
        assert tenant is None or len(tenant.subscriptions) == 0


def test_a_nuke_ends_subscriptions(tmp_path: Path) -> None:
    with runtime(tmp_path) as node:
        kb = node.knowledge_base()
        first = kb.subscribe_goal(GOAL, id="g", keep=DurableSubscription())
        tell(kb, "1")
        node.admin().nuke_tenant("default", "default")
        assert kb.standing_goals() == []
        kb.subscribe_goal(GOAL, id="g", keep=DurableSubscription())
        assert kb.goal_changes("g", first.event_id) is None
