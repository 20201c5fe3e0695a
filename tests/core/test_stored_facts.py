"""The cache of sorted facts: when it is used, and when its entries go."""

from __future__ import annotations

import pytest
from support.engines import clock, kb, node  # noqa: F401  fixtures

from kbcore.errors import BudgetExceeded
from kbcore.reason import stored_facts
from kbcore.reason.budget import Notes, RequestLimits
from kbcore.reason.options import FactOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, Variable

ALL = Atom("p", (Variable("x"),))


@pytest.fixture
def sorted_counts(node, kb, monkeypatch):  # noqa: F811
    """The numbers of rows that were sorted, with every order cached."""
    monkeypatch.setattr(stored_facts, "MIN_CACHED_ROWS", 0)
    counts = []
    kb.assert_facts([Fact("p", (f"n{number}",)) for number in range(9)])
    original = stored_facts.FactSearch._sorted

    def counting(self, facts, stored, before, budget):
        counts.append(facts.row_count)
        return original(self, facts, stored, before, budget)

    monkeypatch.setattr(stored_facts.FactSearch, "_sorted", counting)
    return counts


def page(kb, **options):  # noqa: F811
    return [row["args"][0] for row in kb.query_page(ALL, FactOptions(**options))]


def test_the_pages_of_a_relation_are_sorted_once_until_it_changes(kb, sorted_counts):  # noqa: F811
    assert page(kb, limit=2) == ["n0", "n1"]
    assert page(kb, limit=2, offset=7) == ["n7", "n8"]
    assert page(kb, limit=3, contains="N3") == ["n3"]
    assert sorted_counts == [9]
    kb.assert_facts([Fact("p", ("n10",))])
    assert page(kb, limit=2, offset=1) == ["n1", "n10"]
    kb.retract_fact("p", ["n0"])
    assert page(kb, limit=2, offset=1) == ["n10", "n2"]
    assert sorted_counts == [9, 10, 9]


def test_a_whole_answer_is_not_cached(kb, sorted_counts):  # noqa: F811
    assert len(page(kb)) == 9
    assert page(kb, contains="3") == ["n3"]
    assert sorted_counts == [9, 1]


def test_the_cache_is_bounded(kb, sorted_counts, monkeypatch):  # noqa: F811
    monkeypatch.setattr(stored_facts, "MAX_CACHED_SYMBOLS", 8)
    assert page(kb, limit=1) == page(kb, limit=1) == ["n0"]
    assert sorted_counts == [9, 9]
    monkeypatch.setattr(stored_facts, "MAX_CACHED_SYMBOLS", 12)
    assert page(kb, limit=1) == page(kb, limit=1) == ["n0"]
    assert sorted_counts == [9, 9, 9]
    assert page(kb, limit=1, contains="n") == ["n0"]  # 9 more symbols, so the first 9 are evicted
    assert page(kb, limit=1, contains="n") == page(kb, limit=1) == ["n0"]
    assert sorted_counts == [9, 9, 9, 9]


def test_a_deleted_scope_leaves_no_order(kb, node, sorted_counts):  # noqa: F811
    kb.assert_facts([Fact("p", (name,), scope="s") for name in "ab"])
    assert page(kb, limit=1, scope="s") == ["a"]
    kb.drop_scope("s")
    assert page(kb, limit=1, scope="s") == []
    kb.assert_facts([Fact("p", (name,), scope="s") for name in "cd"])
    assert page(kb, limit=1, scope="s") == ["c"]
    assert sorted_counts[-1] == 2


def test_only_the_facts_that_are_returned_count_as_answers(kb):  # noqa: F811
    kb.assert_facts([Fact("p", (f"n{number}",)) for number in range(9)])
    limits = RequestLimits(None, None, None, None, 3)
    with pytest.raises(BudgetExceeded):
        page(kb, request_limits=limits)
    assert len(page(kb, request_limits=limits, offset=6)) == 3
    assert page(kb, request_limits=limits, contains="N4") == ["n4"]
    notes = Notes()
    assert len(kb.query_page(ALL, FactOptions(limit=5), notes=notes)) == 5
    assert notes.total == 9
