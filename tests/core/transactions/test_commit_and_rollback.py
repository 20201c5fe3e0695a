"""Commit, rollback and expiry of transactions, and their records after a restart."""

from __future__ import annotations

import pytest
from support.transactions import Handle, Node, fact

from kbcore.errors import (
    Conflict,
    InvalidInput,
    RateLimited,
    StorageFull,
    TooLarge,
    UnknownTransaction,
)
from kbcore.operations.transaction import WRITES, TransactionKB
from kbcore.reason.aggregate import AggregateQuery
from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeSet
from kbplanner.syntax.parser import parse_rule

# -- how they end ----------------------------------------------------------------------------------


def test_rolled_back(node):
    inside = node.begin()
    inside.tell("p(a)")
    inside.roll_back()
    assert inside.state() == "rolled_back"
    assert node.ask("p(?x)") == []


def test_a_write_that_fails_rolls_back(node):
    node.teach("@r: q(?x) :- p(?x).")
    inside = node.begin()
    inside.tell("p(a)")
    with pytest.raises(Conflict, match="belongs to another rule"):
        inside.do(lambda kb: kb.assert_rules([parse_rule("@r: q(?x) :- other(?x).")]))
    assert inside.state() == "rolled_back"


def test_a_read_that_fails_does_not(node):
    inside = node.begin()
    inside.tell("p(a)")
    with pytest.raises(InvalidInput):
        inside.do(lambda kb: kb.aggregate(AggregateQuery("p", "SUM", arg_index=0)), writes=False)
    inside.commit()
    assert node.ask("p(?x)") == [["a"]]


def test_every_method_that_writes_is_listed():
    assert all(callable(getattr(TransactionKB, name)) for name in WRITES)
    prefixes = (
        "assert_",
        "retract_",
        "execute",
        "ingest",
        "commit",
        "add_episode",
        "correct",
    )
    assert {name for name in dir(TransactionKB) if name.startswith(prefixes)} == WRITES


def test_a_conflict_strategy_sees_what_is_staged(node):
    inside = node.begin()
    inside.tell("p(a)")
    with pytest.raises(Conflict, match="opposite"):
        inside.do(lambda kb: kb.assert_facts([fact("p(a)", positive=False)], conflict="REJECT"))
    assert inside.state() == "rolled_back"


def test_transaction_ids_of_other_tenants_are_unknown(node):
    inside = node.begin()
    for database, tenant, id in (("default", "other", inside.id), ("default", "default", "nope")):
        with pytest.raises(UnknownTransaction):
            node.runtime.in_transaction(database, tenant, id)


def test_idle_transactions_expire(node):
    inside, used = node.begin(), node.begin()
    inside.tell("p(a)")
    node.clock.advance(40_000)
    used.ask("p(?x)")
    node.clock.advance(40_000)
    assert inside.state() == "expired"
    used.commit()
    assert node.ask("p(?x)") == []


def test_old_transactions_expire_even_if_used(node):
    inside = node.begin()
    for _ in range(11):
        node.clock.advance(50_000)
        inside.tell("p(a)")
    node.clock.advance(50_000)
    assert inside.state() == "expired"


def test_setting_the_wall_clock_expires_no_transaction(node):
    inside = node.begin()
    node.clock.step(10_000_000)
    inside.tell("p(a)")
    node.clock.step(-20_000_000)
    inside.commit()
    assert node.ask("p(?x)") == [["a"]]


def test_limits():
    node = Node(tx_max_operations=3, tx_max_bytes=2000, tx_max_open=2)
    one = node.begin()
    for name in "abc":
        one.tell(f"p({name})")
    with pytest.raises(TooLarge, match="3 operations"):
        one.tell("p(d)")
    assert one.state() == "rolled_back"
    two, _ = node.begin(), node.begin()
    with pytest.raises(RateLimited):
        node.begin()
    with pytest.raises(TooLarge, match="2,000 bytes"):
        two.tell(f"p({'x' * 2000})")
    node.begin()
    node.runtime.close()


def test_a_goal_cannot_fill_memory_with_names(node):
    inside = node.begin()
    for number in range(10, 27):
        inside.do(lambda kb, n=number: kb.query_rows("p", [f"{n}" * 30_000]), writes=False)
    with pytest.raises(TooLarge):
        inside.do(lambda kb: kb.query_rows("p", ["x" * 60_000]), writes=False)


def test_a_commit_refused_by_a_full_disk_leaves_the_transaction_open(node, monkeypatch):
    inside = node.begin()
    inside.tell("p(a)")
    with monkeypatch.context() as patch:

        def full(records):
            raise StorageFull("no room")

        patch.setattr(node.runtime.system.store, "append", full)
        with pytest.raises(StorageFull):
            inside.commit()
    inside.commit()
    assert node.ask("p(?x)") == [["a"]]


@pytest.mark.parametrize(
    "action", [CatalogAction.NUKE_TENANT, CatalogAction.DROP_TENANT, CatalogAction.NUKE_DATABASE]
)
def test_emptying_a_tenant_ends_its_transactions(node, action):
    node.tell("p(a)")
    inside = node.begin()
    inside.ask("p(?x)")
    tenant = "" if action is CatalogAction.NUKE_DATABASE else "default"
    node.runtime.commit(ChangeSet("default", tenant, (ChangeCatalog(action),)))
    assert inside.state() == "rolled_back"
    assert node.ask("p(?x)") == []


# -- after a restart -------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_remembers_committed_transactions(tmp_path, clean):
    node = Node(tmp_path)
    done, left = node.begin(), node.begin()
    done.tell("p(a)")
    left.tell("p(b)")
    done.commit()
    if clean:
        node.runtime.snapshot()
    node.runtime.system.store.close(clean=False)
    again = Node(tmp_path, clock=node.clock)
    assert again.ask("p(?x)") == [["a"]]
    assert Handle(again, done.id).state() == "committed"
    with pytest.raises(UnknownTransaction):
        Handle(again, left.id).commit()
    again.clock.advance(11 * 60_000)
    again.tell("p(c)")
    with pytest.raises(UnknownTransaction):
        Handle(again, done.id).commit()
    again.runtime.close()
