"""The role of a node in replication: settings, refusals, readiness, terms, and the retained log."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from support.links import Link, catch_up, following, node
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.durable.snapshot import Restorer
from kbcore.errors import BadShipment, ConfigError, Conflict, NotReady, ReadOnlyFollower
from kbcore.offline.rescue import running_backup
from kbcore.plug.ports import LogSeed
from kbcore.replication.follower import FIRST_REST, LONGEST_REST, NewState
from kbcore.replication.role import check_settings, raise_term
from kbcore.replication.wire_format import Unpacking, packed
from kbcore.state.access import Uncounted
from kbcore.state.changes import AssertFacts, ChangeSet
from kbcore.state.facts import Fact


def tell(made, *names):
    for name in names:
        made.commit(ChangeSet("default", "t", (AssertFacts((Fact("p", (name,)),)),)))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def leader(tmp_path):
    with node(tmp_path / "leader") as made:
        tell(made, "a")
        yield made


@pytest.fixture
def follower(tmp_path, leader, clock):
    with following(tmp_path / "follower", Link(leader), clock=clock) as made:
        yield made


def replicated(made):
    return made.health()["checks"]["replication"]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"replication_mode": "LEADER", "replication_token": "x" * 15}, "REPLICATION_TOKEN"),
        ({"replication_mode": "FOLLOWER"}, "LEADER_URL"),
        (
            {
                "replication_mode": "LEADER",
                "replication_token": "x" * 16,
                "storage_backend": "memory",
            },
            "STORAGE_BACKEND",
        ),
        (
            {
                "replication_mode": "LEADER",
                "replication_token": "x" * 16,
                "fsync_policy": "interval",
            },
            "FSYNC_POLICY",
        ),
    ],
)
def test_inconsistent_settings_are_named(settings, named):
    with pytest.raises(ConfigError, match=named):
        check_settings(replace(Config(), **settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"replication_mode": "LEADER"},
        {"replication_mode": "FOLLOWER", "leader_url": "http://leader.test:9300"},
    ],
)
def test_a_role_needs_no_secret(settings):
    check_settings(replace(Config(), **settings))


def test_the_token_is_not_shown():
    assert "secret" not in repr(Config().updated({"REPLICATION_TOKEN": "a-secret-of-all-nodes"}))
    with pytest.raises(ConfigError) as caught:
        Config().updated({"REPLICATION_TOKEN": "a secret"})
    assert "a secret" not in str(caught.value)


def test_a_follower_refuses_writes(follower):
    catch_up(follower)
    kb = follower.knowledge_base("default", "t")
    for write in (
        lambda: tell(follower, "b"),
        lambda: follower.begin("default", "t"),
        lambda: follower.admin().create_tenant("default", "new"),
        lambda: kb.assert_facts([Fact("p", ("b",))]),
    ):
        with pytest.raises(ReadOnlyFollower) as caught:
            write()
        assert caught.value.details == {"leader": "http://leader.test:9300"}
    assert follower.log_head() == 1
    assert follower.sweeper._thread is None


def test_reads_on_a_follower_count_no_accesses_until_it_leads(leader, follower):
    catch_up(follower)
    assert isinstance(follower.find_tenant("default", "t").accesses, Uncounted)
    leader.commit(ChangeSet("default", "new", (AssertFacts((Fact("p", ("a",)),)),)))
    catch_up(follower)
    assert isinstance(follower.find_tenant("default", "new").accesses, Uncounted)
    follower.replication.promote(force=True)
    assert not isinstance(follower.find_tenant("default", "new").accesses, Uncounted)


def test_readiness_depends_on_the_time_since_contact(leader, follower, clock):
    link = follower.replication.follower._source
    assert replicated(follower)["status"] == "fail"
    catch_up(follower)
    assert replicated(follower) == {
        "status": "pass",
        "message": "follower of http://leader.test:9300: at 1",
    }
    link.down = True
    follower.replication.follower.step()
    assert replicated(follower)["status"] == "warn"
    clock.advance(299_000)
    assert (replicated(follower)["status"], follower.health()["status"]) == ("warn", "degraded")
    assert follower.replication.lag_ms() == 299_000
    clock.advance(2_000)
    assert (replicated(follower)["status"], follower.health()["status"]) == ("fail", "unhealthy")
    link.down = False
    catch_up(follower)
    assert replicated(follower)["status"] == "pass"
    assert follower.replication.lag_ms() == 0


def test_back_off_grows_up_to_a_limit(follower):
    link = follower.replication.follower._source
    link.down = True
    rests = [follower.replication.follower.step() for _ in range(9)]
    assert rests == sorted(rests)
    assert (rests[0], rests[-1]) == (FIRST_REST, LONGEST_REST)
    assert LONGEST_REST <= 2, "everything is to be here within 5 seconds"
    link.down = False
    assert follower.replication.follower.step() == 0.0


def test_waiting_for_an_unreached_position_times_out(leader):
    leader.replication.wait_for(1, 0.0)
    with pytest.raises(NotReady) as caught:
        leader.replication.wait_for(2, 0.0)
    assert caught.value.details == {"reason": "not caught up", "wanted": 2, "applied": 1}


def test_a_promoted_follower_leads_in_a_later_term(leader, follower, tmp_path):
    catch_up(follower)
    with pytest.raises(Conflict, match="still answers"):
        follower.replication.promote()
    follower.replication.follower._source.down = True
    follower.replication.follower.step()
    assert follower.replication.promote().epoch == 2
    tell(follower, "b")
    # The old leader is ahead in its own way, and gives in to the later term.
    tell(leader, "x", "y")
    leader.close()
    with following(tmp_path / "leader", Link(follower)) as old:
        catch_up(old)
        assert old.log_status().epoch == 2
        assert old.log_head() == follower.log_head() == 2
        assert old.replication.follower.standing.divergences == 1
    with pytest.raises(Conflict):
        follower.replication.promote()


def test_a_leader_of_an_earlier_term_is_refused(leader, follower, tmp_path):
    catch_up(follower)
    follower.close()
    config = replace(Config(), storage_dir=str(tmp_path / "follower"), min_free_mb=0)
    assert raise_term(config).epoch == 2
    with following(tmp_path / "follower", Link(leader)) as ahead:
        tell(leader, "b")
        ahead.replication.follower.step()
        assert ahead.replication.follower.standing.refused
        assert replicated(ahead)["status"] == "fail"
        assert ahead.log_head() == 1


def test_records_for_followers_are_kept_up_to_a_limit(leader):
    part = leader.replication.leader
    tell(leader, *map(str, range(9)))
    assert part.droppable(10) == 10
    part._note("f", 4)
    assert part.droppable(10) == 3
    part._retain_bytes = 0
    part._marks.append((8, part._written))
    assert part.droppable(10) >= 3
    part._retain_seconds = -1
    assert part.followers() == []


def test_a_transferred_snapshot_is_verified():
    seed = LogSeed("ab" * 16, 3, 7)
    data = b"".join(packed(seed, [b"one", b"", b"three" * 50]))
    for size in (1, 7, len(data)):
        reading = Unpacking(1000)
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert [chunk for piece in pieces for chunk in reading.feed(piece)] == [
            b"one",
            b"",
            b"three" * 50,
        ]
        assert (reading.seed, reading.whole) == (seed, True)
    for place in range(len(data)):
        reading = Unpacking(1000)
        damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            list(reading.feed(damaged))
        except BadShipment:
            continue
        assert not reading.whole, f"byte {place}"
    with pytest.raises(BadShipment, match="more than"):
        list(Unpacking(100).feed(data))


def test_a_standalone_node_passes_the_replication_check():
    with runtime() as alone:
        assert list(alone.health()["checks"]) == [
            "storage",
            "recovery",
            "replication",
            "llm",
            "search",
        ]
        assert alone.health()["checks"]["replication"] == {
            "status": "pass",
            "message": "this node does not replicate",
        }
        assert alone.replication.lag_ms() is None
        with pytest.raises(Conflict):
            alone.replication.promote(force=True)


def shown(made):
    told = made.replication.values()
    return {
        (spec.name.removeprefix("svc_replication_"), *labels): value for spec, labels, value in told
    }


def test_follower_metrics_show_a_lost_connection_and_end_on_promotion(leader, follower, clock):
    link = follower.replication.follower._source
    link.down = True
    clock.advance(90_000)
    follower.replication.follower.step()
    assert (shown(follower)["last_contact_seconds",], shown(follower)["lag_seconds",]) == (90, 90)
    link.down = False
    catch_up(follower)
    found = shown(follower)
    assert (found["lag_records",], found["lag_seconds",], found["last_contact_seconds",]) == (
        0,
        0,
        0,
    )
    assert found["leader_head",] == found["applied",] == 1
    follower.replication.follower.step()  # its leader hears how far it is when it asks again
    tell(leader, "b", "c")
    assert shown(leader)["follower_lag_records", "f"] == 2
    link.down = True
    clock.advance(30_000)
    follower.replication.follower.step()
    assert shown(follower)["last_contact_seconds",] == 30
    follower.replication.promote()
    found = shown(follower)
    assert (found["lag_records",], found["lag_seconds",], found["last_contact_seconds",]) == (
        0,
        0,
        0,
    )


def test_a_forgotten_follower_has_no_lag_metric(tmp_path, clock):
    with node(tmp_path / "leader", clock=clock) as leader:
        tell(leader, "a")
        leader.replication.leader._note("gone", 0)
        assert shown(leader)["follower_lag_records", "gone"] == 1
        clock.advance(leader.config.wal_retain_hours * 3_600_000 + 1)
        assert shown(leader)["follower_lag_records", "gone"] == 0
        assert ("follower_lag_records", "gone") not in shown(leader)


def test_a_diverged_log_is_counted(tmp_path, leader):
    with node(tmp_path / "astray") as other:
        tell(other, "x", "y")
    with following(tmp_path / "astray", Link(leader)) as astray:
        astray.replication.follower.step()
        assert shown(astray)["divergences_total",] == 1


def another_state(leader, follower):
    """What a follower is to become: as far as it is itself, but other records of a later term."""
    tell(leader, *"bcd")
    leader.snapshot()
    _, pieces = leader.replication.leader.snapshot("other")
    reading = Unpacking(1 << 20)
    chunks = [chunk for piece in pieces for chunk in reading.feed(piece)]
    catalog = follower.replication.empty_catalog()
    restorer = Restorer(catalog)
    for chunk in chunks:
        restorer.feed(chunk)
    return replace(reading.seed, seq=1, epoch=reading.seed.epoch + 1), chunks, catalog


def test_a_snapshot_of_a_replaced_log_is_not_stored(tmp_path, leader, follower, monkeypatch):
    """It would stand for a moment of the leader's log, and hold something else."""
    catch_up(follower)
    seed, chunks, catalog = another_state(leader, follower)
    replaced = threading.Event()

    def replace_all():
        follower.replication.become(NewState(seed, chunks, catalog, 0), lambda: True)
        replaced.set()

    thread, save = threading.Thread(target=replace_all), follower.system.store.save_snapshot

    def save_late(*snapshot):
        thread.start()
        replaced.wait(0.1)
        save(*snapshot)

    monkeypatch.setattr(follower.system.store, "save_snapshot", save_late)
    follower.snapshot()
    thread.join(20)
    assert replaced.is_set()
    assert follower.log_status().epoch == seed.epoch
    _, kept = follower.system.store.load_snapshot()
    assert list(kept) == chunks


def test_a_backup_says_whose_state_it_holds(leader, follower, monkeypatch):
    catch_up(follower)
    before, captured = follower.log_status(), follower.captured
    seed, chunks, catalog = another_state(leader, follower)

    def replaced_then():
        found = captured()
        follower.replication.become(
            NewState(replace(seed, seq=9), chunks, catalog, 0), lambda: True
        )
        return found

    monkeypatch.setattr(follower, "captured", replaced_then)
    info, parts = running_backup(follower)
    assert len(list(parts)) > 2
    assert (info.logs[0].epoch, info.seq) == (before.epoch, before.head)
    assert follower.log_status().epoch == seed.epoch
