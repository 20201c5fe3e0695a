"""The write path: order, shared syncs, refusals, and failures of the log."""

from __future__ import annotations

import threading

import pytest
from support.commits import Log, committer, rows, run_all, tell, waiting

from kbcore.clock import LoggedClock, ManualClock
from kbcore.config import Config
from kbcore.durable import records
from kbcore.durable.capture import capture
from kbcore.durable.commit import Committer
from kbcore.durable.records import decode_changes
from kbcore.durable.snapshot import encode
from kbcore.errors import (
    Conflict,
    EngineFault,
    NotReady,
    RateLimited,
    SnapshotFailed,
    StorageFailed,
    StorageFull,
)
from kbcore.scheduling import Scheduling
from kbcore.state.catalog import Catalog
from kbcore.state.changes import ChangeSet, RetractFact
from kbplanner.engine.engine import Engine


def test_a_change_is_synced_and_applied():
    log = Log()
    catalog, writes = committer(log)
    delta = writes.commit(tell(1))
    assert (delta.asserted, delta.generation, log.syncs) == (1, 1, 1)
    assert rows(catalog) == ["1"]


def test_writers_that_wait_share_one_sync_and_keep_their_order():
    log = Log()
    catalog, writes = committer(log)
    log.gate = threading.Event()
    first, _ = run_all([lambda: writes.commit(tell(0))])
    assert log.at_gate.wait(20)
    others, results = run_all(
        [lambda n=n: writes.commit(tell(n, tenant=f"t{n % 3}")) for n in range(1, 31)]
    )
    waiting(writes, 30)
    log.gate.set()
    for thread in first + others:
        thread.join(20)
    assert all(delta.asserted == 1 for delta in results)
    assert log.syncs == 2
    logged = [decode_changes(*record)[1].changes[0].facts[0].args[0] for record in log.records]
    for tenant in ("t0", "t1", "t2"):
        own = [n for n in logged if f"t{int(n) % 3}" == tenant and n != "0"]
        assert rows(catalog, tenant) == own


def test_a_conditional_change_sees_everything_before_it():
    log = Log()
    catalog, writes = committer(log)
    log.gate = threading.Event()
    first, _ = run_all([lambda: writes.commit(tell(0))])
    assert log.at_gate.wait(20)
    log.at_gate.clear()

    def check():
        seen.append(rows(catalog))
        raise Conflict("no")

    seen = []
    second, plain = run_all([lambda: writes.commit(tell(1))])
    waiting(writes, 1)
    third, refused = run_all([lambda: writes.commit(tell(2, check=check))])
    waiting(writes, 2)
    fourth, after = run_all([lambda: writes.commit(tell(3))])
    waiting(writes, 3)
    log.gate.set()
    for thread in first + second + third + fourth:
        thread.join(20)
    assert seen == [["0", "1"]]
    assert isinstance(refused[0], Conflict)
    assert plain[0].asserted == after[0].asserted == 1
    assert rows(catalog) == ["0", "1", "3"]
    assert len(log.records) == 3


def test_a_full_disk_refuses_and_recovers():
    log = Log()
    catalog, writes = committer(log)
    writes.commit(tell(1))
    log.error = StorageFull("no room")
    with pytest.raises(StorageFull):
        writes.commit(tell(2))
    log.error = None
    writes.commit(tell(3))
    assert rows(catalog) == ["1", "3"]


def test_a_failed_sync_ends_all_writing_with_one_report_per_batch():
    log, told = Log(), []
    catalog = Catalog(Engine)
    writes = Committer(
        log,
        catalog,
        LoggedClock(ManualClock()),
        Config(),
        scheduling=Scheduling(),
        on_failure=told.append,
    )
    log.error = StorageFailed("fdatasync: EIO")
    with pytest.raises(StorageFailed):
        writes.commit(tell(1))
    log.error = None
    with pytest.raises(StorageFailed):
        writes.commit(tell(2))
    assert catalog.tenant("default", "t") is None
    assert len(told) == 1


def test_a_failing_check_affects_only_its_own_writer():
    """Nothing was written when a check runs, so a bug in one must not end all writing."""
    log = Log()
    catalog, writes = committer(log)
    with pytest.raises(ZeroDivisionError):
        writes.commit(tell(1, check=lambda: 1 / 0))
    writes.commit(tell(2))
    assert rows(catalog) == ["2"]
    assert len(log.records) == 1


def test_an_interrupted_write_stops_the_committer():
    """It may be in the log or not, so memory must not go on as if it were not."""
    log = Log()
    _, writes = committer(log)
    log.error = KeyboardInterrupt()
    with pytest.raises(StorageFailed):
        writes.commit(tell(1))
    log.error = None
    with pytest.raises(StorageFailed):
        writes.commit(tell(2))


def test_a_change_that_cannot_be_applied_closes_only_its_tenant(monkeypatch):
    catalog, writes = committer(Log())
    writes.commit(tell(1))
    monkeypatch.setattr(catalog.tenant("default", "t").engine, "intern_many", lambda texts: 1 / 0)
    for _ in range(2):
        with pytest.raises(EngineFault):
            writes.commit(tell(2))
    assert catalog.tenant("default", "t").failed is not None
    assert writes.commit(tell(3, tenant="other")).asserted == 1


@pytest.mark.parametrize(
    ("limits", "about"),
    [
        ({"write_queue_records": 2}, {"limit": "WRITE_QUEUE_RECORDS", "value": 2}),
        ({"write_queue_bytes": 200}, {"limit": "WRITE_QUEUE_BYTES", "value": 200}),
    ],
)
def test_the_queue_is_bounded(limits, about):
    log = Log()
    _, writes = committer(log, **limits)
    log.gate = threading.Event()
    first, _ = run_all([lambda: writes.commit(tell(0))])
    assert log.at_gate.wait(20)
    others, _ = run_all([lambda n=n: writes.commit(tell(n)) for n in (1, 2)])
    waiting(writes, 2)
    with pytest.raises(RateLimited) as refused:
        writes.commit(tell(3))
    assert refused.value.details == {"retryAfterSeconds": 1.0, **about, "waiting": 2}
    log.gate.set()
    for thread in first + others:
        thread.join(20)


def test_exclusively_runs_between_batches_with_everything_applied():
    log = Log()
    catalog, writes = committer(log)
    log.gate = threading.Event()
    first, _ = run_all([lambda: writes.commit(tell(0))])
    assert log.at_gate.wait(20)
    others, _ = run_all([lambda n=n: writes.commit(tell(n)) for n in (1, 2, 3)])
    waiting(writes, 3)
    gate, seen = run_all([lambda: writes.exclusively(lambda head: (head, len(rows(catalog))))])
    waiting(writes, 4)
    log.gate.set()
    for thread in first + others + gate:
        thread.join(20)
    head, applied = seen[0]
    assert head == applied
    assert rows(catalog)[:1] == ["0"]
    assert sorted(rows(catalog)) == ["0", "1", "2", "3"]


def test_a_closed_committer_refuses_writes():
    _, writes = committer(Log())
    writes.close()
    with pytest.raises(NotReady):
        writes.commit(tell(1))


def test_many_threads_lose_nothing():
    log = Log()
    catalog, writes = committer(log)

    def work(worker):
        for n in range(50):
            writes.commit(tell(f"{worker}-{n}"))
            if n % 5 == 0:
                writes.commit(ChangeSet("default", "t", (RetractFact("p", (f"{worker}-{n}",)),)))

    threads, _ = run_all([lambda w=w: work(w) for w in range(8)])
    for thread in threads:
        thread.join(60)
    assert len(rows(catalog)) == 8 * 40
    assert catalog.tenant("default", "t").generation == 8 * 60 == len(log.records)


def test_a_check_that_has_to_see_an_earlier_write_waits_for_readers_alone():
    """The earlier write cannot be applied while there is a reader; other tenants can be written."""
    catalog, commits = committer(Log())
    commits.commit(tell(1))
    commits.commit(tell(1, "u"))
    seen = []
    tenant = catalog.tenant("default", "t")
    with tenant.lock.read():
        writers = [threading.Thread(target=commits.commit, args=(tell(2),))]
        writers[0].start()
        while not tenant.backlog:
            writers[0].join(0.001)
        for number in (3, 4):
            check = lambda: seen.append(rows(catalog))  # noqa: E731
            writers.append(
                threading.Thread(target=commits.commit, args=(tell(number, check=check),))
            )
            writers[-1].start()
        others = [
            threading.Thread(target=commits.commit, args=(tell(number, "u"),))
            for number in range(2, 6)
        ]
        for other in others:
            other.start()
        for other in others:
            other.join(20)
        assert sorted(rows(catalog, "u")) == ["1", "2", "3", "4", "5"]
        assert not commits.is_idle
        assert seen == []
    for writer in writers:
        writer.join(20)
    assert [len(each) for each in seen] == [2, 3]
    assert sorted(rows(catalog)) == ["1", "2", "3", "4"]
    assert commits.is_idle


def test_a_check_does_not_wait_for_the_readers_of_its_tenant():
    """The leader runs it, and the writers of all other tenants would wait too."""
    catalog, commits = committer(Log())
    commits.commit(tell(1))
    commits.commit(tell(1, "u"))
    checked = threading.Event()
    writer = threading.Thread(target=commits.commit, args=(tell(2, check=checked.set),))
    with catalog.tenant("default", "t").lock.read():
        writer.start()
        assert checked.wait(20)
        commits.commit(tell(2, "u"))
        assert rows(catalog, "u") == ["1", "2"]
    writer.join(20)
    assert rows(catalog) == ["1", "2"]


def captured(commits):
    """Begin a snapshot as a node does."""
    return commits.between_batches(lambda head: (head, encode(capture(commits.catalog))))


def read_while_written(commits, numbers):
    """Return a tenant with a reader and durable changes that wait for it, and their writers."""
    tenant = commits.catalog.tenant("default", "t")
    reading = tenant.lock.read()
    reading.__enter__()
    writers = []
    for number in numbers:
        waiting_before = len(tenant.backlog)
        writers.append(threading.Thread(target=commits.commit, args=(tell(number),)))
        writers[-1].start()
        while len(tenant.backlog) == waiting_before:
            writers[-1].join(0.001)

    def end():
        reading.__exit__(None, None, None)
        for writer in writers:
            writer.join(20)

    return tenant, end


def test_a_snapshot_begins_while_changes_of_a_tenant_wait_for_readers(monkeypatch):
    """It has the changes up to its number, and no later ones; all other tenants can be written."""
    monkeypatch.setattr(records, "_salts", [bytes(16)] * 100)  # the same salt in both logs
    catalog, commits = committer(Log())
    commits.commit(tell(1))
    commits.commit(tell(1, "u"))
    tenant, end = read_while_written(commits, [2, 3])
    head, chunks = captured(commits)
    assert head == 4
    commits.commit(tell(2, "u"))
    later = threading.Thread(target=commits.commit, args=(tell(4),))
    later.start()
    while len(tenant.backlog) < 4:  # two changes, the capture, and the later change
        later.join(0.001)
    end()
    later.join(20)
    assert rows(catalog) == ["1", "2", "3", "4"]
    assert rows(catalog, "u") == ["1", "2"]
    same, commits_then = committer(Log())
    for number, name in (1, "t"), (1, "u"), (2, "t"), (3, "t"):
        commits_then.commit(tell(number, name))
    assert list(chunks) == list(encode(capture(same)))


def test_a_snapshot_applies_the_changes_that_its_tenants_wait_for():
    """A capture that no writer has run runs when the snapshot reaches the tenant."""
    catalog, commits = committer(Log())
    commits.commit(tell(1))
    tenant = catalog.tenant("default", "t")
    applied = []
    tenant.backlog.append(lambda: applied.append(len(tenant.backlog)))
    _, chunks = captured(commits)
    list(chunks)
    assert applied == [1]
    assert not tenant.backlog
    _, dropped = captured(commits)
    tenant.backlog.append(lambda: applied.append(len(tenant.backlog)))
    _, dropped_later = captured(commits)
    del dropped, dropped_later
    assert (len(tenant.backlog), tenant.lock.before) == (1, [])


def test_a_snapshot_lacks_no_change_that_could_not_be_applied(monkeypatch):
    catalog, commits = committer(Log())
    commits.commit(tell(1))
    tenant = catalog.tenant("default", "t")
    monkeypatch.setattr(tenant.engine, "intern_many", lambda texts: 1 / 0)
    reading = tenant.lock.read()
    with reading:
        threads, _ = run_all([lambda: commits.commit(tell(2))])
        while not tenant.backlog:
            threads[0].join(0.001)
        _, chunks = captured(commits)
    threads[0].join(20)
    with pytest.raises(SnapshotFailed, match="default/t"):
        list(chunks)
