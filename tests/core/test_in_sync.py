"""The in-sync set: which followers join and leave, and what is confirmed."""

from __future__ import annotations

import pytest

from kbcore.clock import ManualClock
from kbcore.errors import NotReady
from kbcore.replication.in_sync import InSync


class Confirmations:
    """Stands for the committer: the positions that were confirmed, and how often waits ended."""

    def __init__(self):
        self.positions = []
        self.given_up = 0

    def confirm(self, seq):
        self.positions.append(seq)

    def give_up_waiting(self, reason):
        self.given_up += 1


class Set:
    """An in-sync set whose thread does not run, with a record of it that can fail."""

    def __init__(self, start=0, members=()):
        self.clock = ManualClock()
        self.committer = Confirmations()
        self.recorded = []
        self.fails = False
        self.in_sync = InSync(
            self.committer,
            self.clock,
            2.0,
            start=start,
            members=members,
            record=self.record,
            progressed=lambda: None,
        )

    def record(self, names):
        if self.fails:
            raise NotReady("no coordinator")
        self.recorded.append((list(names), list(self.committer.positions)))

    def ask(self, name, seq):
        with self.in_sync.asking(name, seq):
            pass

    def join(self, *names, seq=0):
        for name in names:
            self.ask(name, seq)
        assert self.in_sync.review()
        assert self.in_sync.members >= set(names)

    @property
    def confirmed(self):
        return self.committer.positions[-1:]


def test_without_a_follower_nothing_is_admitted():
    made = Set()
    with pytest.raises(NotReady, match="not carried out") as raised:
        made.in_sync.admit()
    assert raised.value.details["outcome"] == "not_done"
    made.join("a")
    made.in_sync.admit()
    assert made.recorded == [(["a"], [])]


def test_every_member_confirms():
    made = Set()
    made.join("a", "b")
    made.in_sync.wrote(5)
    made.ask("a", 5)
    assert made.confirmed == []
    made.ask("b", 3)
    assert made.confirmed == [3]
    made.ask("b", 5)
    assert made.confirmed == [5]


def test_a_follower_joins_when_it_has_everything_visible():
    made = Set()
    made.join("a")
    made.in_sync.wrote(10)
    made.ask("b", 0)
    made.in_sync.wrote(20)
    made.ask("a", 10)
    made.ask("b", 5)
    made.in_sync.review()
    assert made.in_sync.members == {"a"}
    made.ask("b", 20)  # everything there was at its previous request: from now on it counts
    made.in_sync.wrote(30)
    made.ask("a", 30)
    assert made.confirmed == [20]
    made.in_sync.review()
    assert made.in_sync.members == {"a", "b"}
    made.ask("b", 30)
    assert made.confirmed == [30]


def test_a_silent_follower_leaves_before_anything_is_confirmed_without_it():
    made = Set()
    made.join("a", "b")
    made.in_sync.wrote(1)
    made.ask("a", 1)
    made.clock.advance(1900)
    made.in_sync.review()
    assert made.confirmed == []
    made.clock.advance(200)
    made.ask("a", 1)
    made.fails = True
    assert not made.in_sync.review()
    assert made.confirmed == []
    made.fails = False
    assert made.in_sync.review()
    assert made.recorded[-1] == (["a"], [])
    assert made.confirmed == [1]


def test_a_follower_that_waits_for_records_is_not_silent():
    made = Set()
    made.join("a")
    with made.in_sync.asking("a", 0):
        made.clock.advance(60_000)
        made.in_sync.review()
        assert made.in_sync.members == {"a"}
        made.in_sync.wrote(1)
        made.clock.advance(2100)
        made.in_sync.review()
        assert made.in_sync.members == frozenset()


def test_a_follower_that_is_always_one_record_behind_stays():
    made = Set()
    made.join("a")
    for n in range(1, 10):
        made.in_sync.wrote(n + 1)
        made.clock.advance(1000)
        made.ask("a", n)
        made.in_sync.review()
    assert made.in_sync.members == {"a"}
    assert made.confirmed == [9]


def test_waits_end_when_the_last_member_leaves():
    made = Set()
    made.join("a")
    made.in_sync.wrote(1)
    made.clock.advance(2100)
    made.in_sync.review()
    assert made.committer.given_up == 1
    made.in_sync.review()  # a write that was admitted just before ends as well
    assert made.committer.given_up == 2
    made.ask("a", 1)
    made.in_sync.review()
    assert made.confirmed == [1]


@pytest.mark.parametrize("how", ["records", "snapshot"])
def test_a_follower_that_lost_its_data_leaves_before_it_is_served(how):
    made = Set()
    made.join("a", seq=0)
    made.in_sync.wrote(5)
    made.ask("a", 5)

    def comes_back():
        if how == "records":
            made.ask("a", 2)
        else:
            made.in_sync.restarts("a")

    with pytest.raises(NotReady, match="lost"):
        comes_back()
    made.fails = True
    made.in_sync.review()
    with pytest.raises(NotReady, match="lost"):
        comes_back()
    made.fails = False
    made.in_sync.review()
    assert made.in_sync.members == frozenset()
    comes_back()


def test_members_of_an_earlier_term_count_until_they_leave():
    made = Set(start=7, members=("a", "b"))
    assert not made.in_sync.is_settled
    made.ask("a", 7)
    made.in_sync.wrote(8)
    made.ask("a", 8)
    assert made.confirmed == []
    made.clock.advance(2100)
    made.ask("a", 8)
    made.in_sync.review()
    assert made.recorded == [(["a"], [])]
    assert made.in_sync.is_settled
    assert made.confirmed == [8]


def test_nothing_is_confirmed_after_the_term_ends():
    made = Set()
    made.join("a")
    made.in_sync.wrote(1)
    made.in_sync.close()
    made.ask("a", 1)
    assert made.confirmed == []
