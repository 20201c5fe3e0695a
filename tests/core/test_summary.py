"""The summary of a knowledge base, whose parts are cached between requests."""

from __future__ import annotations

import pytest
from support.runtimes import runtime_on

from kbcore.clock import ManualClock
from kbcore.state.facts import Fact
from kbplanner.syntax.printer import print_row


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["c", "python"])
def kb(clock, request):
    with runtime_on(request.param, clock=clock) as node:
        yield node.knowledge_base()


def chars(facts):
    return sum(len(print_row(fact.predicate, list(fact.args), not fact.positive)) for fact in facts)


def test_texts_are_tokenized_once(kb, monkeypatch):
    facts = [Fact("p", (f"a name {i}", str(i % 7))) for i in range(300)] + [
        Fact("q", ("a name 3",), positive=False)
    ]
    kb.assert_facts(facts)
    engine, read = kb._read_tenant().engine, []
    texts = engine.texts
    monkeypatch.setattr(engine, "texts", lambda symbols: read.extend(symbols) or texts(symbols))
    assert kb.context_summary().chars == chars(facts)
    first = len(read)
    assert first >= 300
    read.clear()
    assert kb.context_summary().chars == chars(facts)
    again = len(read)
    assert again <= 10  # those of the facts it shows
    kb.retract_fact("p", ("a name 0", "0"))
    kb.assert_facts([Fact("p", ("new", "0"))])
    read.clear()
    found = kb.context_summary()
    assert (found.facts, found.chars) == (301, chars([*facts[1:], Fact("p", ("new", "0"))]))
    assert len(read) <= again + 1


def test_scopes_share_token_counts_and_nothing_else(kb):
    kb.assert_facts([Fact("p", ("a",)), Fact("p", ("bb",), scope="s")])
    assert kb.context_summary().chars == len("p(a)")
    assert kb.context_summary("s").chars == len("p(bb)")
    assert kb.context_summary("*").chars == len("p(a)") + len("p(bb)")


def test_facts_that_are_not_valid_are_not_counted(kb, clock):
    kb.assert_facts([Fact("p", ("a",), ttl=5), Fact("p", ("b",))])
    assert (kb.context_summary().with_ttl, kb.context_summary().expiring) == (1, 1)
    clock.advance(6)
    found = kb.context_summary()
    assert (found.facts, found.with_ttl, found.expiring, found.chars) == (1, 0, 0, len("p(b)"))
