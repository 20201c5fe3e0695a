"""Under random faults a follower has its leader's state at some log position, never an earlier one
again.
"""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.content import digest
from support.examples import examples
from support.links import LINK_FAULTS, Link, catch_up, following, node

from kbcore.state.changes import (
    AddEpisodes,
    AssertFacts,
    ChangeSet,
    PurgeMemory,
    RetractPattern,
)
from kbcore.state.episodes.episodes import NewEpisode
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact, FactRows
from kbplanner.ir.terms import Variable

STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 9)),
    st.tuples(st.just("big"), st.integers(1, 2)),
    st.tuples(st.just("retract"), st.integers(0, 5)),
    st.tuples(st.just("teach"), st.integers(0, 5)),
    st.tuples(st.just("say"), st.integers(0, 5)),
    st.tuples(st.just("purge"), st.integers(0, 5)),
    st.tuples(st.just("nuke"), st.just(0)),
    st.tuples(st.just("snapshot"), st.just(0)),
    st.tuples(st.just("forget"), st.just(0)),
    st.tuples(st.just("fault"), st.sampled_from(LINK_FAULTS)),
    st.tuples(st.just("step"), st.integers(1, 3)),
    st.tuples(st.just("restart follower"), st.booleans()),
    st.tuples(st.just("restart leader"), st.booleans()),
)


def act(leader, kind, what, number):
    if kind == "write":
        for n in range(what):
            leader.commit(
                ChangeSet("default", "t", (AssertFacts((Fact("p", (str(n), str(number))),)),))
            )
            yield
    elif kind == "big":
        facts = tuple(Fact("big", (f"{number}-{n}", "x" * 200)) for n in range(200 * what))
        leader.commit(ChangeSet("default", "u", (AssertFacts(facts),)))
        yield
    elif kind == "retract":
        leader.commit(
            ChangeSet(
                "default", "t", (RetractPattern("p", (str(what), Variable("x")), True, None),)
            )
        )
        yield
    elif kind == "teach":
        leader.admin().create_tenant("default", f"n{what}")
        yield
    elif kind == "say":
        episode = NewEpisode(f"e{what}", "ann", f"said {what} " * 20, session="s")
        fact = Fact("q", (str(what),), evidence=(Evidence(f"e{what}", 0, 4), Evidence("e0")))
        changes = (AddEpisodes((episode,)), AssertFacts((fact,)))
        leader.commit(ChangeSet("default", "t", changes))
        yield
    elif kind == "purge":
        rows = (FactRows("q", 1, [str(what)]), FactRows("p", 2, ["1", str(number)]))
        purge = PurgeMemory(f"purge-{number}", "episode", rows, (f"e{what}",))
        leader.commit(ChangeSet("default", "t", (purge,)))
        yield
    elif kind == "nuke":
        leader.admin().nuke_database("default")
        yield


def close(runtime, clean):
    """Let go of the folder, with a snapshot or as a killed process would."""
    if clean:
        runtime.close()
    else:
        runtime.replication.close()
        runtime.system.store.close(clean=False)


@examples(12)
@given(st.lists(STEPS, min_size=3, max_size=25))
def test_a_follower_equals_its_leader_at_some_log_position(steps):
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        leader = node(folder / "leader")
        link = Link(leader)
        follower = following(folder / "follower", link)
        known = {0: digest(leader)}
        reached = 0
        for number, (kind, what) in enumerate(steps):
            if kind == "fault":
                link.fault = what
            elif kind == "step":
                for _ in range(what):
                    follower.replication.follower.step()
            elif kind == "snapshot":
                leader.snapshot()
            elif kind == "forget":  # the leader keeps nothing for a follower it does not remember
                leader.replication.leader._followers.clear()
                leader.snapshot()
            elif kind == "restart follower":
                close(follower, what)
                follower = following(folder / "follower", link)
            elif kind == "restart leader":
                close(leader, what)
                leader = node(folder / "leader")
                link.leader = leader
            else:
                for _ in act(leader, kind, what, number):
                    known[leader.log_head()] = digest(leader)
            head = follower.log_head()
            assert head >= reached, "it went back"
            assert digest(follower) == known[head], f"at {head} it is not what the leader was"
            reached = head
        link.fault = ""
        catch_up(follower)
        assert follower.log_head() == leader.log_head()
        assert digest(follower) == digest(leader)
        follower.close()
        leader.close()
