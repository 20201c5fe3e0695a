"""A purge with a follower: both nodes erase the text, and the leader waits for a follower that is
behind.
"""

from __future__ import annotations

from pathlib import Path

from support.links import Link, catch_up, following, node

from kbcore.state.facts import Fact
from kbcore.upkeep.purge import PurgeTarget
from kbplanner.ir.terms import Variable

SECRET = "zebulon"
X = Variable("x")


def holds_secret(folder: Path) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def test_leader_and_follower_erase_what_was_purged(tmp_path: Path) -> None:
    with node(tmp_path / "leader") as leader:
        link = Link(leader)
        with following(tmp_path / "follower", link) as follower:
            kb = leader.knowledge_base()
            kb.add_episode(SECRET, f"{SECRET} was here")
            kb.assert_facts([Fact("likes", (SECRET,)), Fact("likes", ("ann",))])
            catch_up(follower)
            purged = kb.purge(PurgeTarget(subject=SECRET))
            assert (purged.fact_count, purged.erased) == (1, False)
            assert [state.erased for state in kb.purges()] == [False]
            assert holds_secret(tmp_path / "leader") != []
            catch_up(follower)
            follower.replication.follower.step()  # tells the leader how far it is
            leader.system.keep()
            assert [state.erased for state in kb.purges()] == [True]
            assert holds_secret(tmp_path / "leader") == []

            there = follower.knowledge_base()
            assert [row["args"] for row in there.query_rows("likes", (X,))] == [["ann"]]
            follower.system.keep()
            assert [state.erased for state in there.purges()] == [True]
            assert holds_secret(tmp_path / "follower") == []
            kb.assert_facts([Fact("likes", ("bob",))])
            catch_up(follower)
            assert len(there.query_rows("likes", (X,))) == 2
