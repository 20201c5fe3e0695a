"""Text search: words of facts, and results right after a write."""

from __future__ import annotations

import pytest
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import BudgetExceeded
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.tokens import words
from kbcore.state.facts import Fact


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("works_at", ["work"]),
        ("worksFor", ["work"]),
        ("lives-in-cities", ["live", "citi"]),
        ("HTTPServer2Request", ["http", "server", "2", "request"]),
        ("Café Noël", ["cafe", "noel"]),
        ("STRASSE Straße", ["strass", "strass"]),
        ("Alice's brother", ["alic", "brother"]),
        ("what is the of", []),
        (
            "I told you that my cup and our pot are theirs",
            ["i", "tell", "you", "my", "cup", "our", "pot", "their"],
        ),
        ("see D1:3, msg_0042 and session_1_msg_7.", ["see", "d1:3", "msg_0042", "session_1_msg_7"]),
        ("level_2_support tea7 at 10:30", ["level", "2", "support", "tea", "7", "10", "30"]),
        ("東京都", ["東京", "京都"]),
        ("", []),
        ("!? _ -", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


def search(kb, text, k=10, scope=None):
    with kb._reads(None) as (tenant, budget):
        hits = LexicalIndex.of(tenant).search(tenant.partition(scope), text, k, budget)
        found = [
            (
                stored.schema.predicate,
                *tenant.engine.texts(stored.relation.match([0] * stored.schema.arity)[0]),
            )
            for stored, _, _ in hits
        ]
        return found, [score for _, _, score in hits]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def kb(clock):
    with runtime(clock=clock) as node:
        yield node.knowledge_base()


def test_removed_and_expired_facts_are_not_found(kb, clock):
    kb.assert_facts([Fact("likes", ("ann", "green tea")), Fact("drinks", ("bob", "tea"), ttl=5)])
    assert [hit[0] for hit in search(kb, "teas")[0]] == ["drinks", "likes"]
    clock.advance(6)
    assert [hit[0] for hit in search(kb, "teas")[0]] == ["likes"]
    kb.retract_fact("likes", ("ann", "green tea"))
    assert search(kb, "teas") == ([], [])
    kb.assert_facts([Fact("likes", ("ann", "green tea"))])
    assert [hit[0] for hit in search(kb, "teas")[0]] == ["likes"]


def test_an_identifier_is_found_as_a_whole_and_a_predicate_also_by_its_parts(kb):
    kb.assert_facts([Fact("turn", (f"D1:{at}", f"msg_{at:04}")) for at in range(20)])
    kb.assert_facts([Fact("revenue_2024", ("acme", "5"))])
    assert [hit[1] for hit in search(kb, "what was said in D1:3?")[0]] == [
        "D1:0"
    ]  # the first text of the relation
    assert len(search(kb, "d1:3")[0]) == len(search(kb, "msg_0003")[0]) == 1
    assert search(kb, "msg")[0] == search(kb, "D1:99")[0] == []
    for text in ("revenue_2024", "revenues", "2024"):
        assert [hit[0] for hit in search(kb, text)[0]] == ["revenue_2024"]


def test_rows_after_compaction(kb):
    kb.assert_facts([Fact("p", (f"tea{i}", "cup")) for i in range(3000)])
    search(kb, "tea")
    for i in range(2990):
        kb.retract_fact("p", (f"tea{i}", "cup"))
    kb.assert_facts([Fact("p", ("coffee", "mug"))])
    assert len(search(kb, "tea", 100)[0]) == 10
    assert len(search(kb, "mug", 100)[0]) == 1


def test_only_the_transaction_itself_sees_its_facts(kb):
    kb.assert_facts([Fact("likes", ("ann", "tea")), Fact("sells", ("shop", "tea"))])
    node, id = kb._services, kb._services.begin()
    with node.in_transaction("default", "default", id) as inside:
        inside.assert_facts([Fact("drinks", ("bob", "tea")), Fact("likes", ("cid", "tea"))])
    with node.in_transaction("default", "default", id, writes=False) as inside:
        found, scores = search(inside, "tea")
        assert [hit[0] for hit in found] == ["drinks", "likes", "likes", "sells"]
        assert len(search(inside, "tea", 2)[0]) == 2
    assert len(search(kb, "tea")[0]) == 2
    with node.in_transaction("default", "default", id) as inside:
        inside.commit()
    found, later = search(kb, "tea")
    assert len(found) == 4
    assert later == pytest.approx(scores)


def test_freed_rows_are_indexed_again(kb, monkeypatch):
    monkeypatch.setattr("kbcore.search.postings.MIN_UNUSED_PLACES", 10)
    kb.assert_facts([Fact("stays", (f"tea{i}", "pot")) for i in range(5)])
    for turn in range(4):
        kb.assert_facts([Fact("state", (f"tea{i}", f"turn{turn}")) for i in range(40)])
        assert len(search(kb, "tea", 100)[0]) == 45
        for i in range(40):
            kb.retract_fact("state", (f"tea{i}", f"turn{turn}"))
        assert len(search(kb, "tea", 100)[0]) == 5
    index = LexicalIndex.of(kb._read_tenant())
    (shelf,) = index._shelves.values()
    assert len(shelf.postings.shown) < 100


def test_a_search_without_a_known_word_finds_nothing(kb):
    kb.assert_facts([Fact("likes", ("ann", "tea"))])
    assert search(kb, "zebra") == search(kb, "") == search(kb, "what is the") == ([], [])
    assert search(kb, "tea", 0) == ([], [])


def test_indexing_stops_at_its_budget_and_continues_later(kb, clock):
    kb.assert_facts([Fact("p", (f"word{i}", "tea")) for i in range(5000)])
    kb.retract_fact("p", ("word4999", "tea"))
    with kb._reads(None) as (tenant, budget):
        budget.deadline = 0.0
        with pytest.raises(BudgetExceeded):
            LexicalIndex.of(tenant).search(tenant.partition(None), "tea", 10, budget)
    assert len(search(kb, "tea", 6000)[0]) == 4999


def test_equal_scores_are_in_order_of_assertion(kb):
    kb.assert_facts([Fact("q", (f"cup{i}", "tea")) for i in range(30)])
    with kb._reads(None) as (tenant, budget):
        hits = LexicalIndex.of(tenant).search(tenant.partition(None), "tea", 5, budget)
    assert [row for _, row, _ in hits] == [0, 1, 2, 3, 4]
