"""Quotas of a tenant."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from support.http import make_runtime

from kbcore.errors import RateLimited
from kbcore.operations.subscriptions.subscribing import DurableSubscription
from kbcore.state.changes import AssertFacts, AssertRows, ChangeSet, ForkScope, MergeScope
from kbcore.state.episodes.episodes import episode_bytes
from kbcore.state.facts import Fact, FactRows
from kbcore.upkeep.purge import PurgeTarget
from kbplanner.ir.phrases import Phrase
from kbplanner.syntax.parser import parse_body, parse_rule


def facts(*names, scope=None, predicate="p"):
    return [Fact(predicate, (name,), scope=scope) for name in names]


def limit_of(refused):
    assert refused.value.retry_after > 0
    return refused.value.details["limit"]


def test_facts_up_to_the_limit_and_repeated_facts_are_accepted():
    runtime, store, _ = make_runtime(tenant_max_facts=3)
    with runtime:
        kb = runtime.knowledge_base(tenant="t")
        kb.assert_facts(facts("a", "b"))
        with pytest.raises(RateLimited) as refused:
            kb.assert_facts(facts("c", "d"))
        assert limit_of(refused) == "TENANT_MAX_FACTS"
        assert len(store.records) == 1
        kb.assert_facts(facts("a", "b", "c", "c"))
        kb.assert_facts(facts("a", "c"))
        kb.assert_rows([FactRows("p", 1, ["a", "b"])])
        for more in (facts("d"), facts("a", scope="s"), facts("a", predicate="q")):
            with pytest.raises(RateLimited):
                kb.assert_facts(more)
        with pytest.raises(RateLimited):
            kb.assert_rows([FactRows("p", 1, ["a", "z"])])
        runtime.knowledge_base(tenant="other").assert_facts(facts("a", "b", "c"))
        kb.retract_fact("p", ("a",))
        kb.assert_facts(facts("d"))


def test_facts_of_forked_scopes_count():
    runtime, _, _ = make_runtime(tenant_max_facts=5, tenant_max_scopes=2)
    with runtime:
        kb = runtime.knowledge_base(tenant="t")
        kb.assert_facts(facts("a", "b"))
        kb.fork_scope(None, "one")
        with pytest.raises(RateLimited) as refused:
            kb.fork_scope(None, "two")
        assert limit_of(refused) == "TENANT_MAX_FACTS"
        kb.assert_facts(facts("x", scope="two"))
        with pytest.raises(RateLimited) as refused:
            kb.assert_facts(facts("x", scope="three"))
        assert limit_of(refused) in ("TENANT_MAX_FACTS", "TENANT_MAX_SCOPES")
        kb.drop_scope("one")
        kb.assert_facts(facts("c", "d"))
        with pytest.raises(RateLimited):
            kb.merge_scope("two")
        kb.drop_scope("two")
        kb.assert_facts(facts("y", scope="three"))


def test_rules_and_bytes():
    runtime, _, _ = make_runtime(tenant_max_rules=1)
    with runtime:
        kb = runtime.knowledge_base(tenant="t")
        kb.assert_rules([parse_rule("q(?x) :- p(?x).")])
        kb.assert_rules([parse_rule("q(?x) :- p(?x).")])
        with pytest.raises(RateLimited) as refused:
            kb.assert_rules([parse_rule("r(?x) :- p(?x).")])
        assert limit_of(refused) == "TENANT_MAX_RULES"
    runtime, _, _ = make_runtime(tenant_max_bytes=1)
    with runtime:
        kb = runtime.knowledge_base(tenant="t")
        kb.assert_facts(facts("a"))
        with pytest.raises(RateLimited) as refused:
            kb.assert_facts(facts("b"))
        assert limit_of(refused) == "TENANT_MAX_BYTES"
        kb.retract_fact("p", ("a",))


RULE = parse_rule("q(?x) :- p(?x).")


def test_scopes_that_have_only_rules_count():
    runtime, _, _ = make_runtime(tenant_max_scopes=1)
    with runtime:
        kb = runtime.knowledge_base(tenant="t")
        kb.assert_rules([RULE, replace(RULE, scope="s")])
        kb.assert_rules([replace(RULE, scope="s")])
        for definition in (replace(RULE, scope="u"), Phrase("p", 1, "{0} is p", scope="u")):
            with pytest.raises(RateLimited) as refused:
                kb.assert_rules([definition])
            assert limit_of(refused) == "TENANT_MAX_SCOPES"
        assert kb.scopes() == ["s"]


def test_limits_apply_to_a_transaction_as_a_whole():
    runtime, _, _ = make_runtime(tenant_max_facts=2)
    with runtime:
        id = runtime.begin(tenant="t")
        for name in "abc":
            with runtime.in_transaction("default", "t", id) as kb:
                kb.assert_facts(facts(name))
        with pytest.raises(RateLimited), runtime.in_transaction("default", "t", id) as kb:
            kb.commit()
        assert runtime.knowledge_base(tenant="t").predicates()["totalFacts"] == 0


def test_concurrent_writers_cannot_exceed_a_limit():
    runtime, _, _ = make_runtime(tenant_max_facts=10)
    with runtime:
        kb = runtime.knowledge_base(tenant="t")
        refused = []

        def write(number):
            try:
                kb.assert_facts(facts(f"n{number}"))
            except RateLimited:
                refused.append(number)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stored = kb.predicates()["totalFacts"]
        assert stored == 30 - len(refused)
        assert 1 <= stored <= 10
        for number in range(10 - stored):
            kb.assert_facts(facts(f"later{number}"))
        with pytest.raises(RateLimited):
            kb.assert_facts(facts("last"))


@pytest.mark.parametrize(
    "first",
    [
        ForkScope(None, "s"),
        MergeScope(None, "s", 0),
        AssertFacts(tuple(facts("c", "d", scope="s"))),
        AssertRows((FactRows("p", 1, ["c", "d"], scope="s"),)),
    ],
)
def test_a_copy_of_what_is_being_written_counts(first):
    runtime, _, _ = make_runtime(tenant_max_facts=5)
    with runtime:
        runtime.knowledge_base(tenant="t").assert_facts(facts("a", "b"))
        catalog = runtime.shard("default", "t").catalog

        def room(change):
            return runtime._quotas.room(catalog, ChangeSet("default", "t", (change,)))

        with room(first):
            with room(ForkScope("elsewhere", "u")):
                pass
            with pytest.raises(RateLimited) as refused, room(ForkScope("s", "u")):
                pass
        assert limit_of(refused) == "TENANT_MAX_FACTS"
        assert refused.value.details["wanted"] == 2
        with room(ForkScope("s", "u")):
            pass


def sizes(runtime, tenant="t"):
    """The size of the entries of a tenant as it is kept, and as a recount gives it."""
    state = runtime.find_tenant("default", tenant)
    rules = [*state.rules.all(), *state.rules.declarations()]
    recount = sum(each.bytes for each in (*rules, *state.subscriptions))
    recount += sum(map(episode_bytes, state.episodes))
    return state.stored_bytes - state.engine.bytes, recount


LONG = "x" * 2000


def add_episode(kb, number):
    kb.add_episode("ann", f"{number} {LONG}")


def add_rule(kb, number):
    kb.assert_rules([parse_rule(f'q{number}(?x) :- p(?x), ?x != "{LONG}".')])


def add_goal(kb, number):
    body = parse_body(f'p(?x), ?x != "{LONG}"')
    kb.subscribe_goal(body, id=f"g{number}", keep=DurableSubscription())


@pytest.mark.parametrize("add", [add_episode, add_rule, add_goal])
def test_bytes_count_episodes_rules_and_subscriptions(add):
    limit = 60_000
    runtime, _, _ = make_runtime(tenant_max_bytes=limit)
    with runtime:
        kb = runtime.knowledge_base(tenant="t")
        added = 0

        def fill():
            nonlocal added
            for added in range(100):
                add(kb, added)

        with pytest.raises(RateLimited) as refused:
            fill()
        assert limit_of(refused) == "TENANT_MAX_BYTES"
        assert 5 < added < 30
        kept, recount = sizes(runtime)
        assert kept == recount > 2000 * added
        assert runtime.find_tenant("default", "t").stored_bytes <= limit
        for number in range(added):  # what is stored already adds nothing
            add(kb, number)
        kb.assert_facts(facts(*map(str, range(5000))))
        with pytest.raises(RateLimited):
            kb.assert_facts(facts("one more"))
        add(runtime.knowledge_base(tenant="other"), 0)


def test_bytes_are_free_again_after_removals():
    runtime, _, _ = make_runtime(tenant_max_bytes=60_000)
    with runtime:
        kb = runtime.knowledge_base(tenant="t")
        for number in range(3):
            add_episode(kb, number)
            add_rule(kb, number)
            add_goal(kb, number)
        before = sizes(runtime)[0]
        kb.purge(PurgeTarget(episode=next(iter(runtime.find_tenant("default", "t").episodes)).id))
        kb.retract_rule(id=kb.rules()[0].id)
        kb.end_goal("g0")
        kept, recount = sizes(runtime)
        assert kept == recount
        assert before - kept > 6000
