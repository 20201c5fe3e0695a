"""Comparison of scopes."""

from __future__ import annotations

import pytest
from support.forks import START, names, told
from support.runtimes import runtime

from kbcore.errors import BudgetExceeded, InvalidInput, NotFound
from kbcore.state.facts import Fact


def test_a_diff_has_every_kind_of_difference(kb, clock):
    kb.assert_facts(
        [
            Fact("p", ("same",), confidence=0.5, metadata={"k": 1}),
            Fact("p", ("removed",)),
            Fact("p", ("sign",)),
            Fact("p", ("both",)),
            Fact("p", ("sure",), confidence=0.5),
            Fact("p", ("noted",), metadata={"k": 1}),
            Fact("p", ("until",)),
            Fact("p", ("later",)),
            Fact("p", ("lives",), ttl=100),
            Fact("on", ()),
            Fact("off", ()),
        ]
    )
    kb.fork_scope(None, "s")
    empty = kb.diff_scopes(None, "s")
    assert (empty.added, empty.removed, empty.modified, empty.unchanged) == ([], [], [], 11)
    clock.advance(1)
    kb.retract_fact("p", ("removed",), scope="s")
    kb.retract_fact("p", ("sign",), scope="s")
    kb.retract_fact("off", (), scope="s")
    kb.assert_facts(
        [
            Fact("p", ("added",), scope="s"),
            Fact(
                "p", ("same",), scope="s", confidence=0.5, metadata={"k": 1}
            ),  # told again: nothing new
            Fact("p", ("sign",), scope="s", positive=False),
            Fact("p", ("both",), scope="s", positive=False),
            Fact("p", ("sure",), scope="s", confidence=0.6),
            Fact("p", ("noted",), scope="s", metadata={"k": 2}),
            Fact("p", ("until",), scope="s", valid_until=START + 500),
            Fact(
                "p", ("later",), scope="s", valid_from=START + 500
            ),  # not valid now: it does not exist
            Fact("p", ("lives",), scope="s", ttl=50),
            Fact("off", (), scope="s", positive=False),
            Fact("new", ("x", "y"), scope="s"),
        ]
    )
    found = kb.diff_scopes(None, "s")
    assert names(found.added) == [["x", "y"], ["added"], ["both"]]
    assert names(found.removed) == [["later"], ["removed"]]
    pairs = {tuple(pair.before["args"]): pair for pair in found.modified}
    assert set(pairs) == {("sign",), ("sure",), ("noted",), ("until",), ("lives",), ()}
    assert all(
        (pair.before["scope"], pair.after["scope"]) == (None, "s") for pair in found.modified
    )
    assert (pairs["sign",].before["negated"], pairs["sign",].after["negated"]) == (False, True)
    assert found.unchanged == 3
    back = kb.diff_scopes("s", None)
    assert (names(back.added), names(back.removed)) == (names(found.removed), names(found.added))
    assert [
        (p.after, p.before)
        for p in back.modified
        if p.before["args"] != ["sign"] and p.before["args"]
    ] == [
        (p.before, p.after)
        for p in found.modified
        if p.before["args"] != ["sign"] and p.before["args"]
    ]


def test_the_same_ttl_asserted_at_another_time_is_a_difference(kb, clock):
    told(kb, ttl=100)
    clock.advance(1)
    told(kb, "s", ttl=100)
    assert len(kb.diff_scopes(None, "s").modified) == 2


def test_a_diff_over_the_limit_is_refused():
    with runtime(query_max_answers=10) as node:
        kb = node.knowledge_base()
        kb.fork_scope(None, "s")
        kb.assert_facts([Fact("p", (str(n),), scope="s") for n in range(11)])
        with pytest.raises(BudgetExceeded) as caught:
            kb.diff_scopes(None, "s")
        assert (caught.value.details or {})["limit"] == "answers"
        kb.retract_fact("p", ("0",), scope="s")
        assert len(kb.diff_scopes(None, "s").added) == 10


def test_unknown_scopes_are_not_compared(kb):
    for call in (kb.diff_scopes, kb.merge_scope):
        with pytest.raises(NotFound):
            call("nowhere", None)
        with pytest.raises(NotFound):
            call(None, "nowhere")
        with pytest.raises(InvalidInput):
            call("*", None)
    with pytest.raises(InvalidInput, match="KEEP_BOTH, REJECT, SOURCE_WINS, TARGET_WINS"):
        kb.merge_scope("s", None, strategy="MINE")


def test_a_long_diff_and_a_long_merge_release_their_slots(monkeypatch):
    monkeypatch.setattr("kbcore.reason.admission.LONG_SECONDS", 0.0)
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("p", (str(n),), scope="s") for n in range(2000)])
        assert len(kb.diff_scopes(None, "s").added) == 2000
        assert node.slots.all_working() == 0
        kb.merge_scope("s", strategy="REJECT")
        assert node.slots.all_working() == 0
