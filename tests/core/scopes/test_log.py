"""Forks, merges and deletions of scopes after a restart, from the log and from a snapshot."""

from __future__ import annotations

from support.content import content
from support.forks import RULE, START, contested, scoped, stored, told
from support.runtimes import runtime

from kbcore.durable.records import CHANGES, VERSION, decode_changes, encode_changes, stamp
from kbcore.plug.ports import ConflictingFact, Keep
from kbcore.state.changes import ChangeSet, Decision, DropScope, ForkScope, MergeScope
from kbcore.state.facts import Fact
from kbplanner.ir.terms import ANONYMOUS


def test_changes_of_scopes_come_back_from_the_log():
    facts = (ConflictingFact(False, 1, 2, None, 0.5, {"k": [1]}), ConflictingFact(True, 3, 3, 4))
    others = (("p", ("a", "b"), Decision(Keep.FACTS, facts)), ("on", (), Decision(Keep.TARGET)))
    changes = (
        ForkScope(None, "s", True),
        ForkScope("s", "t"),
        DropScope("s"),
        MergeScope("s", None, 7, Keep.BOTH, others),
        MergeScope(None, "s", 7),
    )
    sent = ChangeSet("d", "t", changes)
    assert decode_changes(CHANGES, VERSION, stamp(encode_changes(sent), 9)) == (9, sent)


def everything(kb, clock):
    told(kb)
    contested(kb)
    kb.assert_rules([RULE, scoped("only(?x) :- p(?x), not q(?x).", "s")])
    kb.fork_scope("s", "gone")
    kb.fork_scope(None, "what.if")
    kb.assert_facts(
        [Fact("p", ("later",), scope="what.if", valid_from=START + 500, metadata={"x": 1})]
    )
    clock.advance(20)
    kb.fork_scope("what.if", "copy")
    kb.merge_scope("s", "copy", strategy="KEEP_BOTH")
    kb.merge_scope("s", "what.if", strategy="TARGET_WINS")
    kb.merge_scope("what.if")
    kb.drop_scope("gone")
    kb.fork_scope("copy", "s", overwrite=True)
    kb.fork_scope(None, "empty")
    kb.retract_pattern("p", [ANONYMOUS], scope="empty")


def test_log_and_snapshot_restore_the_same_scopes(tmp_path, clock):
    with runtime(tmp_path, clock=clock) as node:
        everything(node.knowledge_base(), clock)
        before = content(node)
        node.system.store.close(clean=False)
        node.system.committer._closed = None
    with runtime(tmp_path, clock=clock) as node:
        assert node.recovered.snapshot == 0
        assert node.recovered.records > 10
        assert content(node) == before
    with runtime(tmp_path, clock=clock) as node:
        assert node.recovered.records == 0 or node.snapshot()
        assert content(node) == before
    with runtime(tmp_path, clock=clock) as node:
        assert node.knowledge_base().scopes() == ["copy", "empty", "s", "what.if"]
        clock.advance(1000)
        assert ("later", False) in stored(node.knowledge_base(), "copy")
