"""Text of deleted tenants, of retracted facts before a purge, and of purges in deleted tenants
leaves the disk.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.links import Link, catch_up, following, node
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import Conflict, StorageFull
from kbcore.node.runtime import Runtime
from kbcore.state.changes import ChangeSet, PurgeMemory
from kbcore.state.facts import Fact, FactRows
from kbcore.upkeep.purge import PurgeTarget

SECRET = "zebulon"
MINUTES = 15

backends = pytest.mark.parametrize("backend", ["wal", "sqlite"])


def holds_secret(folder: Path) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def stop_like_a_kill(served: Runtime) -> None:
    """Make the stop that follows take no snapshot."""
    served.system.committer.bytes = 0
    served.system.snapshots._at_bytes = 0


@backends
def test_a_purge_erases_facts_that_were_retracted_before(tmp_path: Path, backend: str) -> None:
    with runtime(tmp_path, storage_backend=backend) as served:
        kb = served.knowledge_base()
        kb.assert_facts([Fact("likes", (SECRET,)), Fact("likes", ("ann",))])
        kb.retract_fact("likes", (SECRET,))
        assert holds_secret(tmp_path) != []
        purged = kb.purge(PurgeTarget(subject=SECRET))
        assert (purged.fact_count, purged.erased) == (0, True)
        assert holds_secret(tmp_path) == []


@backends
def test_a_purge_in_a_tenant_that_is_deleted_is_carried_out(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runtime(tmp_path, storage_backend=backend) as served:
        served.knowledge_base(tenant="other").assert_facts([Fact("p", ("a",))])
        kb = served.knowledge_base(tenant="gone")
        kb.assert_facts([Fact("likes", (SECRET,))])
        rows = (FactRows("likes", 1, [SECRET]),)
        served.commit(ChangeSet("default", "gone", (PurgeMemory("purge-1", "subject", rows),)))
        served.admin().drop_tenant("default", "gone")
        # A snapshot has neither the tenant nor its purge, but the log still has the text.
        served.system.snapshots.take()
        assert holds_secret(tmp_path) != []
        stop_like_a_kill(served)
    monkeypatch.setattr(Runtime, "_keep", lambda served: None)  # the thread that would do it now
    with runtime(tmp_path, storage_backend=backend) as served:
        assert served.system.to_erase > 0
        served.system.keep()
        assert served.system.to_erase == 0
        assert holds_secret(tmp_path) == []


@backends
@pytest.mark.parametrize("what", ["tenant", "database", "nuke"])
def test_deleted_text_goes_with_the_next_snapshot(tmp_path: Path, backend: str, what: str) -> None:
    clock = ManualClock()
    with runtime(
        tmp_path, clock=clock, storage_backend=backend, snapshot_minutes=MINUTES
    ) as served:
        served.knowledge_base().assert_facts([Fact("p", ("a",))])
        served.admin().create_database("d")
        served.knowledge_base("d", "t").assert_facts([Fact("likes", (SECRET,))])
        served.system.snapshots.take()
        if what == "tenant":
            served.admin().drop_tenant("d", "t")
        elif what == "database":
            served.admin().drop_database("d")
        else:
            served.admin().nuke_tenant("d", "t")
        served.system.keep()
        assert holds_secret(tmp_path) != []  # a deletion alone takes no snapshot
        stop_like_a_kill(served)
    with runtime(
        tmp_path, clock=clock, storage_backend=backend, snapshot_minutes=MINUTES
    ) as served:
        assert served.system.erasure().waits_for == "work"
        clock.advance(MINUTES * 60_000)
        served.system.keep()
        assert holds_secret(tmp_path) == []
        assert served.system.erasure().waits_for is None
        assert len(served.knowledge_base().query_rows("p", ("a",))) == 1


def test_a_snapshot_on_request_erases_deleted_text(tmp_path: Path) -> None:
    with runtime(tmp_path) as served:
        served.knowledge_base(tenant="gone").assert_facts([Fact("likes", (SECRET,))])
        served.knowledge_base().assert_facts([Fact("p", ("a",))])
        served.admin().drop_tenant("default", "gone")
        assert served.snapshot() == served.log_head()
        assert holds_secret(tmp_path) == []


def test_the_text_of_a_deleted_tenant_goes_where_it_was_the_last_one(tmp_path: Path) -> None:
    with node(tmp_path / "leader") as leader:
        link = Link(leader)
        with following(tmp_path / "follower", link) as follower:
            leader.knowledge_base().assert_facts([Fact("likes", (SECRET,))])
            leader.admin().drop_tenant("default", "default")
            catch_up(follower)
            assert not leader.system.try_erase(deleted=True)
            assert leader.system.erasure().waits_for == "followers"
            leader.knowledge_base().assert_facts([Fact("likes", ("ann",))])
            leader.system.snapshots.begin_apart()
            leader.knowledge_base().assert_facts([Fact("likes", ("bob",))])
            catch_up(follower)
            follower.replication.follower.step()
            assert leader.system.try_erase(deleted=True)
            assert holds_secret(tmp_path / "leader") == []


def test_a_failed_removal_is_reported_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runtime(tmp_path) as served:
        kb = served.knowledge_base()
        kb.assert_facts([Fact("likes", (SECRET,))])

        def full(*args: object) -> None:
            raise StorageFull("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(served.system.store, "save_snapshot", full)
            assert not kb.purge(PurgeTarget(subject=SECRET)).erased
            assert [state.waits_for for state in kb.purges()] == ["retry"]
            assert served.system.erasure().problem == "the disk is full"
        served.system.keep()
        assert [(state.erased, state.waits_for) for state in kb.purges()] == [(True, None)]
        assert holds_secret(tmp_path) == []


def test_a_follower_reports_its_own_removal(tmp_path: Path) -> None:
    with node(tmp_path / "leader") as leader:
        link = Link(leader)
        with following(tmp_path / "follower", link) as follower:
            kb = leader.knowledge_base()
            kb.assert_facts([Fact("likes", (SECRET,))])
            catch_up(follower)
            kb.purge(PurgeTarget(subject=SECRET))
            assert [state.waits_for for state in kb.purges()] == ["followers"]
            catch_up(follower)
            assert follower.system.erasure().pending > 0
            follower.system.keep()
            assert follower.system.erasure().waits_for is None


def test_no_change_before_a_purge_that_is_not_erased_yet_can_be_undone(tmp_path: Path) -> None:
    with runtime(tmp_path) as served:
        kb = served.knowledge_base()
        kb.assert_facts([Fact("likes", (SECRET,))])
        kb.retract_fact("likes", (SECRET,))
        retraction = served.log_head()
        purged = kb.purge(PurgeTarget(subject=SECRET), wait=False)
        with pytest.raises(Conflict) as caught:
            kb.undo(seq=retraction)
        assert (caught.value.details or {})["reason"] == "purged"
        assert (purged.undo_from or 0) > retraction
        kb.assert_facts([Fact("likes", ("ann",))])
        assert kb.undo(seq=served.log_head()).change.retracted == 1
