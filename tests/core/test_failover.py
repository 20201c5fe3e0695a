"""The election of a leader: which node may lead, in which order, and the loss of the lease."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from support.links import Link, catch_up, node

from kbcore import open_coordinator
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import ConfigError, Conflict, NotReady, ReadOnlyFollower, Unconfirmed
from kbcore.plug.ports import LogStatus
from kbcore.replication import failover
from kbcore.replication.failover import Failover
from kbcore.replication.leadership import LEADER_LEASE, Leadership, node_name
from kbcore.replication.role import check_settings
from kbcore.state.changes import AssertFacts, ChangeSet
from kbcore.state.facts import Fact

LOG = "ab" * 16


class FakeNode:
    """Stands for the node: it notes what the election decides."""

    def __init__(self, epoch=1, marked=False, writable=True, log_id=LOG):
        self.status = LogStatus(5, 5, log_id, epoch, 0, 0, writable)
        self.marked = marked
        self.replacing = False
        self.done = []
        self.record = None
        self.coordinator = None

    def log_status(self):
        return self.status

    def was_coordinated(self):
        return self.marked

    def is_replacing(self):
        return self.replacing

    def lead(self, term, members, record):
        stored = self.coordinator.stored(LEADER_LEASE)
        assert Leadership.decode(stored).term == term, "the term was not recorded before"
        self.done.append(("lead", term, tuple(members)))
        self.status = replace(self.status, epoch=term)
        self.record, self.marked = record, True

    def step_down(self, age):
        assert age >= 0
        self.done.append(("step down",))

    def follow_leader(self, leader, source):
        self.done.append(("follow", leader, source))

    def lose_leader(self):
        if self.done[-1:] != [("no leader",)]:
            self.done.append(("no leader",))


class Elections:
    """Elections of several nodes on one coordinator, whose steps the test takes."""

    def __init__(self, folder):
        self.url = f"file:{folder}/coordinator"
        self.now = 1000.0
        self.opened = []

    def node(self, name, mode="FOLLOWER", made=None):
        made = made or FakeNode()
        config = Config(
            replication_mode=mode,
            coordinator_url=self.url,
            advertise_url=f"http://{name}",
            cluster_ttl_ms=60_000,
        )

        def open_one():
            made.coordinator = open_coordinator(self.url)
            self.opened.append(made.coordinator)
            return made.coordinator

        election = Failover(
            made, config, open_one, lambda config: config.leader_url, lambda call: call()
        )
        return election, made

    def stored(self):
        return Leadership.decode(self.opened[-1].stored(LEADER_LEASE))


@pytest.fixture
def elections(tmp_path, monkeypatch):
    made = Elections(tmp_path)
    monkeypatch.setattr(failover, "boot_seconds", lambda: made.now)
    yield made
    for coordinator in made.opened:
        coordinator.close()


def test_the_first_leader_is_the_node_with_that_mode(elections):
    other, follower = elections.node("b")
    other.step()
    assert follower.done == [("no leader",)]
    election, leader = elections.node("a", "LEADER")
    election.step()
    assert leader.done == [("no leader",), ("lead", 2, ())]
    assert elections.stored() == Leadership(2, LOG, "a-80", ())
    election.check_lease("not_done")
    other.step()
    other.step()
    assert follower.done == [("no leader",), ("follow", "http://a", "http://a")]


def test_a_node_outside_the_set_does_not_lead(elections):
    election, leader = elections.node("a", "LEADER")
    election.step()
    leader.record(["b-80"])
    assert elections.stored() == Leadership(2, LOG, "a-80", ("b-80",))
    election.close()
    outside, third = elections.node("c")
    outside.step()
    assert third.done == [("no leader",)]
    inside, second = elections.node("b", made=FakeNode(epoch=2))
    inside.step()
    assert second.done == [("no leader",), ("lead", 3, ())]
    outside.step()
    assert third.done[-1] == ("follow", "http://b", "http://b")


@pytest.mark.parametrize(
    "unfit",
    [
        FakeNode(epoch=3),  # it has led in a term that no record names
        FakeNode(epoch=2, log_id="cd" * 16),
        FakeNode(epoch=2, writable=False),
    ],
)
def test_a_member_without_the_right_log_does_not_lead(elections, unfit):
    election, leader = elections.node("a", "LEADER")
    election.step()
    leader.record(["b-80"])
    election.close()
    member, made = elections.node("b", made=unfit)
    member.step()
    assert made.done == [("no leader",)]


def test_the_new_term_is_later_than_every_recorded_one(elections):
    election, leader = elections.node("a", "LEADER", FakeNode(epoch=7))
    election.step()
    leader.record(["b-80", "c-80"])
    election.close()
    # The member has not learned of the last term.
    member, made = elections.node("b", made=FakeNode(epoch=3))
    member.step()
    assert made.done[-1] == ("lead", 9, ("c-80",))
    assert elections.stored() == Leadership(9, LOG, "b-80", ("c-80",))


def test_a_leader_that_lost_its_lease_follows_and_changes_no_record(elections):
    election, leader = elections.node("a", "LEADER")
    election.step()
    leader.record(["b-80"])
    lease = election._lease
    assert lease is not None
    leader.coordinator.release(lease)  # as if its time to live had passed
    with pytest.raises(NotReady, match="lease is lost"):
        leader.record([])
    assert elections.stored().in_sync == ("b-80",)
    election.step()
    assert leader.done[-1] == ("step down",)
    assert (election.token, election.remaining()) == (None, 0.0)
    with pytest.raises(NotReady, match="may not be the leader"):
        election.check_lease(None)


def test_the_lease_counts_from_before_its_renewal_and_ends_early(elections):
    election, _ = elections.node("a", "LEADER")
    election.step()
    elections.now += 30
    election.step()
    elections.now += 53
    election.check_lease("not_done")
    elections.now += 2
    with pytest.raises(NotReady) as refused:
        election.check_lease("not_done")
    assert refused.value.details["outcome"] == "not_done"


def test_a_leader_that_restarts_waits_for_its_old_lease(elections):
    election, leader = elections.node("a", "LEADER")
    election.step()
    again, restarted = elections.node("a", made=FakeNode(epoch=2, marked=True))
    again.step()
    assert restarted.done == []
    leader.coordinator.release(election._lease)
    again.step()
    assert restarted.done == [("no leader",), ("lead", 3, ())]


def test_a_cluster_without_its_record_is_not_begun_again(elections):
    election, made = elections.node("a", "LEADER", FakeNode(marked=True))
    with pytest.raises(NotReady, match="no record of this cluster"):
        election.step()
    assert ("lead", 2, ()) not in made.done


def test_the_data_of_a_new_cluster_are_not_replaced_by_those_of_another(elections):
    election, _ = elections.node("a", "LEADER")
    election.step()
    other, made = elections.node("b", "LEADER", FakeNode(log_id="cd" * 16))
    with pytest.raises(NotReady, match="record of another cluster"):
        other.step()
    assert made.done == []
    follower, made = elections.node("c", "FOLLOWER", FakeNode(log_id="cd" * 16))
    follower.step()
    assert made.done == [("follow", "http://a", "http://a")]


def test_names_of_nodes_are_their_addresses():
    assert node_name("https://a.example") == "a-example-443"
    assert node_name("http://[::1]:9300/kb") == "--1-9300-kb"
    assert node_name("http://a:1") != node_name("http://a:2")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "REPLICATION_MODE"),
        ({"replication_mode": "LEADER"}, "ADVERTISE_URL"),
        (
            {
                "replication_mode": "FOLLOWER",
                "advertise_url": "http://a",
                "fsync_policy": "interval",
            },
            "FSYNC_POLICY",
        ),
    ],
)
def test_settings_that_do_not_fit_a_coordinator_are_named(settings, named):
    with pytest.raises(ConfigError, match=named):
        check_settings(Config(coordinator_url="file:/x", **settings))
    check_settings(
        Config(coordinator_url="file:/x", replication_mode="FOLLOWER", advertise_url="http://a")
    )


# -- the node that changes its role ----------------------------------------------------------------


def member(folder, name, clock):
    return node(
        folder / name,
        "LEADER",
        coordinator_url="file:/unused",
        advertise_url=f"http://{name}",
        clock=clock,
    )


def tell(made, text):
    return made.commit(ChangeSet("default", "t", (AssertFacts((Fact("p", (text,)),)),)))


def texts(made):
    return sorted(text for (text,) in made.open("t").ask("p(?x)"))


def follow(made, leader, name):
    """Follow a leader whose steps the test takes."""
    made.replication._committer.leader = f"http://{name}"
    made.replication.follow(Link(leader, name), start=False)


@pytest.fixture
def two(tmp_path):
    """A leader, and a follower that has everything and is in sync."""
    clock = ManualClock()
    with member(tmp_path, "a", clock) as first, member(tmp_path, "b", clock) as second:
        first.replication.lead(2, (), lambda names: None)
        follow(second, first, "b")
        catch_up(second)
        assert first.replication.leader.in_sync.review()
        yield first, second


def write(made, text):
    """Write in a thread, which waits for a follower; return it and its outcome, when there is
    one.
    """
    outcomes = []

    def run():
        try:
            outcomes.append(tell(made, text))
        except NotReady as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    waiting = threading.Event()
    while not made.system.committer.unconfirmed:
        assert not outcomes
        waiting.wait(0.001)
    return thread, outcomes


def test_a_write_is_visible_when_the_follower_has_asked_for_more(two):
    first, second = two
    thread, outcomes = write(first, "x")
    second.replication.follower.step()
    assert texts(second) == ["x"]
    assert texts(first) == []
    second.replication.follower.step()
    thread.join(20)
    assert outcomes[0].seq == 1
    assert texts(first) == ["x"]


def test_an_old_leader_applies_what_the_new_one_has(two):
    first, second = two
    thread, outcomes = write(first, "x")
    second.replication.follower.step()
    first.replication.step_down(1.0)
    thread.join(20)
    assert isinstance(outcomes[0], Unconfirmed)
    assert (first.replication.role, texts(first)) == ("FOLLOWER", [])
    assert first.replication.lag_ms() == 1000
    second.replication.lead(3, (), lambda names: None)
    follow(first, second, "a")
    catch_up(first)
    assert texts(first) == texts(second) == ["x"]
    assert first.replication.follower.standing.bootstraps == 0


def test_an_old_leader_drops_what_the_new_one_does_not_have(two):
    first, second = two
    thread, outcomes = write(first, "x")
    first.replication.step_down(0.0)
    thread.join(20)
    assert isinstance(outcomes[0], Unconfirmed)
    second.replication.lead(3, (), lambda names: None)
    follow(first, second, "a")
    catch_up(first)
    assert first.replication.follower.standing.bootstraps == 1
    assert texts(first) == texts(second) == []
    first.replication.follower.step()
    assert second.replication.leader.in_sync.review()
    thread, outcomes = write(second, "y")
    first.replication.follower.step()
    first.replication.follower.step()
    thread.join(20)
    assert texts(first) == texts(second) == ["y"]


def test_records_of_a_leader_that_is_not_followed_any_more_are_refused(two):
    first, second = two
    earlier = second.replication.follower
    thread, _ = write(first, "x")
    follow(second, first, "b")
    earlier.stop()
    earlier.step()
    assert second.log_head() == 0
    catch_up(second)
    second.replication.follower.step()
    thread.join(20)
    assert texts(second) == ["x"]


def test_the_coordinator_decides_about_the_role(two):
    first, second = two
    assert first.replication.role == "LEADER"
    assert second.health()["writable"] is False
    with pytest.raises(Conflict, match="coordinator decides"):
        second.replication.promote(force=True)
    with pytest.raises(ReadOnlyFollower):
        tell(second, "x")
    second.replication.lose_leader()
    with pytest.raises(NotReady, match="no leader at present") as refused:
        tell(second, "x")
    assert refused.value.details["outcome"] == "not_done"
