"""Writes that wait for a confirmation: order, visibility, dependent checks, and unknown
outcomes.
"""

from __future__ import annotations

import threading

import pytest
from support.commits import Log, committer, rows, run_all, tell

from kbcore.errors import Conflict, NotReady, Unconfirmed
from kbcore.state.changes import AssertFacts, ChangeSet
from kbcore.state.facts import Fact
from kbcore.state.idempotency import RequestKey


def held(log):
    catalog, writes = committer(log)
    writes.held = True
    return catalog, writes


def until(condition):
    waiting, tries = threading.Event(), 0
    while not condition():
        waiting.wait(0.001)
        tries += 1
        assert tries < 20_000, "the condition did not hold in time"


def in_log(writes, count):
    """Wait until `count` change sets are in the log, and those after the last confirmation wait."""
    until(lambda: writes.records == count == writes._confirmed + writes.unconfirmed)


def ended(threads):
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_later_batches_are_written_while_earlier_ones_wait():
    log = Log()
    catalog, writes = held(log)
    threads, results = [], []
    for n in range(3):
        more, result = run_all([lambda n=n: writes.commit(tell(n))])
        threads += more
        results.append(result)
        in_log(writes, n + 1)
    assert catalog.tenant("default", "t") is None
    assert (writes.visible, writes.unconfirmed) == (0, 3)
    writes.confirm(2)
    ended(threads[:2])
    assert rows(catalog) == ["0", "1"]
    assert (writes.visible, writes.unconfirmed, log.syncs) == (2, 1, 3)
    assert results[2] == [None]
    writes.confirm(3)
    ended(threads)
    assert [result[0].seq for result in results] == [1, 2, 3]


def test_a_confirmation_before_the_writer_looks_counts():
    log = Log()
    catalog, writes = held(log)
    writes.wrote = lambda seq, size: writes.confirm(seq)
    assert writes.commit(tell(1)).seq == 1
    assert rows(catalog) == ["1"]


def test_a_check_waits_for_the_changes_it_depends_on():
    log = Log()
    catalog, writes = held(log)
    first, _ = run_all([lambda: writes.commit(tell(1))])
    in_log(writes, 1)
    seen = []
    second, _ = run_all([lambda: writes.commit(tell(2, check=lambda: seen.append(rows(catalog))))])
    until(lambda: writes._stalled)
    third, _ = run_all([lambda: writes.commit(tell(3))])
    until(lambda: writes.waiting == 2)
    assert (len(log.records), seen) == (1, [])
    writes.confirm(1)
    in_log(writes, 3)
    assert seen == [["1"]]
    writes.confirm(3)
    ended(first + second + third)
    assert rows(catalog) == ["1", "2", "3"]


def test_work_between_batches_sees_confirmed_changes_only_and_does_not_wait():
    log = Log()
    catalog, writes = held(log)
    threads, _ = run_all([lambda: writes.commit(tell(1))])
    in_log(writes, 1)
    dependent, _ = run_all([lambda: writes.commit(tell(2, check=lambda: None))])
    until(lambda: writes._stalled)
    assert writes.exclusively(lambda seq: (seq, catalog.tenant("default", "t"))) == (0, None)
    writes.confirm(1)
    in_log(writes, 2)
    writes.confirm(2)
    ended(threads + dependent)
    assert writes.exclusively(lambda seq: seq) == 2


def test_an_unknown_outcome_is_applied_if_it_is_confirmed_later():
    log = Log()
    catalog, writes = held(log)
    late = []
    writes.applied_late = lambda changes, delta: late.append(delta.seq)
    threads, results = run_all([lambda: writes.commit(tell(1))])
    in_log(writes, 1)
    writes.give_up_waiting("no follower confirms")
    ended(threads)
    assert isinstance(results[0], Unconfirmed)
    assert results[0].details["outcome"] == "unknown"
    assert catalog.tenant("default", "t") is None
    writes.confirm(1)
    until(lambda: late == [1])
    assert rows(catalog) == ["1"]


def test_a_repetition_is_not_written_while_the_first_one_may_take_effect():
    log = Log()
    catalog, writes = held(log)
    changes = ChangeSet(
        "default", "t", (AssertFacts((Fact("p", ("1",)),)),), request=RequestKey("k", "d")
    )
    threads, _ = run_all([lambda: writes.commit(changes)])
    in_log(writes, 1)
    writes.give_up_waiting("no follower confirms")
    ended(threads)
    with pytest.raises(Unconfirmed, match="not confirmed yet"):
        writes.commit(changes)
    assert len(log.records) == 1
    late = []
    writes.applied_late = lambda changes, delta: late.append(delta.seq)
    writes.confirm(1)
    until(lambda: late)
    assert rows(catalog) == ["1"]
    assert catalog.tenant("default", "t").answered.get("k", 0) is not None


def test_a_stop_ends_every_wait():
    log = Log()
    _, writes = held(log)
    threads, results = run_all([lambda: writes.commit(tell(1))])
    in_log(writes, 1)
    dependent, refused = run_all([lambda: writes.commit(tell(2, check=lambda: None))])
    until(lambda: writes._stalled)
    writes.end_waiting("the server stops")
    ended(threads + dependent)
    assert isinstance(results[0], Unconfirmed)
    assert type(refused[0]) is NotReady
    assert len(log.records) == 1
    assert not writes.waiting


def test_a_batch_that_is_written_during_a_stop_does_not_wait():
    log = Log()
    log.gate = threading.Event()
    _, writes = held(log)
    threads, results = run_all([lambda: writes.commit(tell(1))])
    assert log.at_gate.wait(20)
    assert not writes.is_idle
    writes.end_waiting("the server stops")
    log.gate.set()
    ended(threads)
    assert isinstance(results[0], Unconfirmed)


def test_a_replaced_log_ends_the_wait():
    log = Log()
    catalog, writes = held(log)
    threads, results = run_all([lambda: writes.commit(tell(1))])
    in_log(writes, 1)
    writes.exclusively(lambda _: writes.drop_unconfirmed())
    ended(threads)
    assert isinstance(results[0], Unconfirmed)
    writes.confirm(1)
    assert catalog.tenant("default", "t") is None


def test_a_failing_check_after_the_wait_is_for_its_own_writer():
    log = Log()
    catalog, writes = held(log)
    first, _ = run_all([lambda: writes.commit(tell(1))])
    in_log(writes, 1)

    def refuse():
        raise Conflict("no")

    second, results = run_all([lambda: writes.commit(tell(2, check=refuse))])
    until(lambda: writes._stalled)
    writes.confirm(1)
    ended(first + second)
    assert isinstance(results[0], Conflict)
    assert rows(catalog) == ["1"]
