"""A refused write, or one that stores nothing, does not create its tenant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbcore import Config, hookimpl
from kbcore.durable.commit import _Pending
from kbcore.durable.records import encode_changes
from kbcore.durable.request_key import carrying_out
from kbcore.errors import Conflict, InvalidInput, KBError, NotFound
from kbcore.node.opening import open_runtime
from kbcore.state.changes import AssertFacts, ChangeSet, RetractFact
from kbcore.state.facts import Fact, FactRows
from kbcore.state.idempotency import RequestKey
from kbcore.state.rulebook import stored_rule
from kbplanner.ir.terms import Variable
from kbplanner.syntax.parser import parse_rule

GROWN = "grown(?x) :- age(?x, ?n), ?n >= 18."


class InitialRules:
    @hookimpl
    def kb_rule_texts(self, database, tenant):
        return [GROWN]


@pytest.fixture(params=["memory", "wal", "initial rules"])
def node(request, tmp_path):
    plugins = [InitialRules()] if request.param == "initial rules" else []
    backend = "wal" if request.param == "wal" else "memory"
    config = Config(
        storage_backend=backend, storage_dir=str(tmp_path), min_free_mb=0, tenant_max_facts=2
    )
    with open_runtime(config, plugins=plugins) as runtime:
        yield runtime


def named(text):
    return replace(parse_rule(text), name="r")


NO_OPS = {
    "no facts": lambda kb: kb.assert_facts([]),
    "no facts, a strategy": lambda kb: kb.assert_facts([], conflict="REJECT"),
    "no rows": lambda kb: kb.assert_rows([]),
    "rows without a row": lambda kb: kb.assert_rows([FactRows("p", 1, [])]),
    "no rules": lambda kb: kb.assert_rules([]),
    "an absent fact": lambda kb: kb.retract_fact("p", ["a"]),
    "an absent pattern": lambda kb: kb.retract_pattern("p", [Variable("x")]),
    "decay": lambda kb: kb.decay(0.5),
    "consolidation": lambda kb: kb.consolidate(),
    "an empty text": lambda kb: kb.execute(""),
}

REFUSED = {
    "an absent rule": (lambda kb: kb.retract_rule(id="r1"), NotFound),
    "an absent scope": (lambda kb: kb.drop_scope("s"), NotFound),
    "a fork of an absent scope": (lambda kb: kb.fork_scope("s", "t"), NotFound),
    "a merge of an absent scope": (lambda kb: kb.merge_scope("s", "t"), NotFound),
    "the priority of an absent fact": (lambda kb: kb.prioritize("p", ["a"], 0.9), NotFound),
    "a scope of every scope": (
        lambda kb: kb.assert_facts([Fact("p", ("a",), scope="*")]),
        InvalidInput,
    ),
    "more than the tenant may have": (
        lambda kb: kb.assert_facts([Fact("p", (str(i),)) for i in range(3)]),
        KBError,
    ),
    "two rules of one id": (
        lambda kb: kb.assert_rules([named("p(?x) :- q(?x)."), named("p(?x) :- r(?x).")]),
        Conflict,
    ),
}


def names(node):
    return node.admin().tenants("default")


@pytest.mark.parametrize("case", NO_OPS)
def test_a_write_that_stores_nothing_creates_no_tenant(node, case):
    head = node.log_head()
    NO_OPS[case](node.knowledge_base(tenant="t"))
    assert names(node) == []
    assert node.log_head() == head


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_write_creates_no_tenant(node, case):
    action, error = REFUSED[case]
    with pytest.raises(error):
        action(node.knowledge_base(tenant="t"))
    assert names(node) == []


def test_a_rule_that_contradicts_an_initial_rule_is_refused_without_a_tenant():
    taken = stored_rule(parse_rule(GROWN)).id
    with open_runtime(Config(storage_backend="memory"), plugins=[InitialRules()]) as node:
        kb = node.knowledge_base(tenant="t")
        with pytest.raises(Conflict):
            kb.assert_rules([replace(parse_rule("p(?x) :- q(?x)."), name=taken)])
        assert names(node) == []
        kb.assert_rules([parse_rule("p(?x) :- q(?x).")])
        assert len(kb.rules()) == 2


def test_a_write_that_stores_something_creates_the_tenant(node):
    kb = node.knowledge_base(tenant="t")
    kb.retract_fact("p", ["a"])
    assert kb.assert_facts([Fact("p", ("a",))]).asserted == 1
    assert names(node) == ["t"]
    assert kb.retract_fact("p", ["a"]).retracted == 1
    assert kb.assert_facts([]).asserted == 0
    assert names(node) == ["t"]


def test_a_no_op_with_an_idempotency_key_is_remembered(node):
    with carrying_out("default", "t", RequestKey("k", "digest")):
        node.knowledge_base(tenant="t").retract_fact("p", ["a"])
    assert names(node) == ["t"]


def test_a_retraction_queued_behind_the_first_write_of_its_tenant_is_carried_out():
    with open_runtime(Config(storage_backend="memory")) as node:
        assert_one = ChangeSet("default", "t", (AssertFacts((Fact("p", ("a",)),)),))
        retract_one = ChangeSet("default", "t", (RetractFact("p", ("a",)),))
        batch = [
            _Pending(changes, encode_changes(changes))
            for changes in (retract_one, assert_one, retract_one)
        ]
        node.system.committer._write(batch)
        deltas = [node.system.committer._finish(pending) for pending in batch]
        assert [sum(len(gone.rows) for gone in delta.removed) for delta in deltas] == [0, 0, 1]
        assert node.log_head() == 2
