"""Subscriptions to goals on a follower, and after it was promoted."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.links import Link, catch_up, following, node

from kbcore.errors import ReadOnlyFollower
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbcore.state.facts import Fact
from kbplanner.syntax.parser import parse_body

GOAL = parse_body("p(?x)")


def tell(kb, arg: str) -> None:
    kb.assert_facts([Fact("p", (arg,))])


def appeared(changes) -> list[str]:
    return [row["args"][0] for change in changes for row in change.appeared]


def test_a_reader_changes_nodes_and_misses_nothing(tmp_path: Path) -> None:
    with node(tmp_path / "leader") as leader:
        kb = leader.knowledge_base()
        first = kb.subscribe_goal(GOAL, id="g", keep=DurableSubscription())
        tell(kb, "1")
        with following(tmp_path / "follower", Link(leader)) as follower:
            catch_up(follower)
            there = follower.knowledge_base()
            assert appeared(there.goal_changes("g", first.event_id)) == ["1"]
            tell(kb, "2")
            catch_up(follower)
            changes = there.goal_changes("g", first.event_id)
            assert appeared(changes) == ["1", "2"]
            with pytest.raises(ReadOnlyFollower):
                there.subscribe_goal(GOAL, id="h", keep=DurableSubscription())
            with pytest.raises(ReadOnlyFollower):
                there.end_goal("g")
            assert there.subscribe_goal(GOAL, id="memory").answers == [
                *there.goal_answers("g").answers
            ]
            follower.replication.promote(force=True)
            tell(there, "3")
            later = there.goal_changes("g", changes[0].event_id)
            assert appeared(later) == ["2", "3"]
            assert there.end_goal("g")
            assert [goal.id for goal in there.standing_goals()] == ["memory"]


def test_a_goal_that_the_leader_ends_ends_on_the_follower(tmp_path: Path) -> None:
    with node(tmp_path / "leader") as leader:
        kb = leader.knowledge_base()
        kb.subscribe_goal(GOAL, id="g", keep=DurableSubscription())
        with following(tmp_path / "follower", Link(leader)) as follower:
            catch_up(follower)
            there = follower.knowledge_base()
            goal = there.goal_answers("g").goal
            kb.end_goal("g")
            catch_up(follower)
            assert there.standing_goals() == []
            assert goal.ended is not None


def test_a_promoted_follower_shows_a_goal_what_its_view_admits(tmp_path: Path) -> None:
    eng, hr = {"team": ["eng"]}, {"team": ["hr"]}
    with node(tmp_path / "leader") as leader:
        kb = leader.open()
        kb.teach("@groups team: hr, eng.")
        first = kb.viewed(eng).kb.subscribe_goal(GOAL, id="g", keep=DurableSubscription())
        kb.viewed(labels=hr).tell("p(zebra)")
        with following(tmp_path / "follower", Link(leader)) as follower:
            catch_up(follower)
            there = follower.open()
            kb.viewed(labels=eng).tell("p(1)")
            catch_up(follower)
            follower.replication.promote(force=True)
            there.viewed(labels=hr).tell("p(zebra2)")
            there.viewed(labels=eng).tell("p(2)")
            assert there.kb.standing_goals() == []
            later = there.viewed(eng).kb.goal_changes("g", first.event_id)
            assert appeared(later) == ["1", "2"]
