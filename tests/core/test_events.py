"""Events of change sets: content, order and filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbcore
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.embed import EmbeddedKB
from kbcore.errors import InvalidInput
from kbcore.events.events import KINDS, ChangeEvent, Place, Wanted
from kbcore.node.opening import open_runtime

NOW = 1_700_000_000_000


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def kb(clock):
    with EmbeddedKB(
        open_runtime(Config(storage_backend="memory", sweep_interval_ms=0), clock=clock), "t"
    ) as found:
        yield found


def heard(kb, **wanted):
    events = []
    kb.subscribe(events.append, **{"scope": "*", **wanted})
    return events


def brief(events):
    return [
        (e["type"], e["atom"]["predicate"], *e["atom"]["args"]) if "atom" in e else (e["type"],)
        for e in events
    ]


def test_an_event_has_the_validity_from_1970(kb):
    events = heard(kb)
    kb.tell("p", ["a"], valid_from=0)
    assert events[0]["atom"] == kb.query("p", ["?x"]).rows()[0]
    assert events[0]["atom"]["validFrom"] == 0


def test_the_event_of_a_heartbeat_has_the_new_end(kb, clock):
    events = heard(kb)
    kb.tell("p", ["a"], ttl=500)
    clock.advance(100)
    kb.tell("p", ["a"], ttl=500)
    assert events[1]["atom"] == kb.query("p", ["?x"]).rows()[0]
    assert (events[1]["atom"]["createdAt"], events[1]["atom"]["validUntil"]) == (NOW, NOW + 600)


def test_an_asserted_fact_event_has_its_row_and_whether_it_is_new(kb, clock):
    events = heard(kb)
    kb.tell("p", ["a"], ttl=500, confidence=0.5, metadata={"k": 1})
    clock.advance(100)
    kb.tell("p", ["a"])
    row = {
        "predicate": "p",
        "args": ["a"],
        "negated": False,
        "scope": None,
        "metadata": {"k": 1},
        "createdAt": NOW,
    }
    row |= {"validFrom": NOW, "validUntil": NOW + 500, "ttl": 500, "confidence": 0.5}
    first, second = events
    assert first == {
        "type": "fact_asserted",
        "eventId": first["eventId"],
        "timestamp": NOW,
        "scope": None,
        "updated": False,
        "atom": row,
    }
    assert (second["updated"], second["timestamp"], second["atom"]["createdAt"]) == (
        True,
        NOW + 100,
        NOW,
    )
    assert second["atom"] == kb.query("p", ["?x"]).rows()[0] | {"metadata": {}}


def test_the_rows_of_events_are_the_rows_of_answers(kb):
    events = heard(kb)
    kb.tell_many("p", [("a", "b"), ("c", "d")])
    kb.tell("p", ["e", "f"], valid_until=NOW + 10)
    assert [e["atom"] for e in events] == kb.query("p", ["?x", "?y"]).rows()


def test_bulk_facts_asserted_again_are_marked_individually(kb):
    kb.tell_many("p", [("a",)])
    events = heard(kb)
    kb.tell_many("p", [("a",), ("b",)])
    assert [(e["atom"]["args"], e["updated"]) for e in events] == [(["a"], True), (["b"], False)]


def test_events_of_one_transaction_are_in_order(kb):
    kb.tell("p", ["old"])
    events = heard(kb)
    with kb.transaction() as inside:
        inside.tell("p", ["a"])
        inside.retract("p", ["a"])
        inside.retract("p", ["?x"])
        inside.tell("p", ["b"])
    assert brief(events) == [
        ("fact_asserted", "p", "a"),
        ("fact_retracted", "p", "a"),
        ("fact_retracted", "p", "old"),
        ("fact_asserted", "p", "b"),
    ]
    assert len({e["eventId"] for e in events}) == 4


def test_events_of_rules_scopes_summaries_and_evictions(kb, clock):
    events = heard(kb)
    kb.teach("q(?x) :- p(?x, ?y).")
    kb.teach("q(?x) :- p(?x, ?y).")
    for n in range(3):
        kb.tell("p", ["a", n], scope="s")
    kb.consolidate(min_group_size=3, scope="s")
    kb.tell("p", ["a", 9], scope="s")
    kb.consolidate(min_group_size=3, scope="s")
    kb.tell("r", ["x"], ttl=10)
    clock.advance(20)
    kb.fork("u", "s")
    kb.merge("s", "u")
    kb.drop_scope("u")
    kb.decay(0.0)
    kinds = [e["type"] for e in events]
    assert kinds.count("rule_asserted") == 1
    assert events[0]["rule"]["text"] == "q(?x) :- p(?x, ?y)."
    sums = [e["atom"]["args"] for e in events if e["type"] == "consolidation"]
    assert sums == [["a", "3"], ["a", "4"]]
    replaced = [e for e in events if e["type"] == "fact_retracted"]
    assert [(e["reason"], e["atom"]["args"]) for e in replaced] == [("replaced", ["a", "3"])]
    scopes = [
        (e["change"], e["scope"], e.get("sourceScope"))
        for e in events
        if e["type"] == "scope_changed"
    ]
    assert scopes == [("fork", "u", "s"), ("merge", "u", "s"), ("drop", "u", None)]
    assert [e["atom"]["args"] for e in events if e["type"] == "fact_expired"] == [["x"]]
    kb.kb.retract_rule(rule=kb.rules()[0].rule)
    assert events[-1]["type"] == "rule_retracted"


def test_an_empty_retraction_is_no_event_and_emptying_a_tenant_is_one(kb):
    kb.tell("p", ["b"])
    events = heard(kb)
    kb.retract("p", ["a"])
    kb.admin().nuke_tenant("default", "t")
    assert [(e["type"], e["scope"], e["change"]) for e in events] == [
        ("scope_changed", "*", "nuke")
    ]


def test_filters_take_a_predicate_a_prefix_types_and_a_scope(kb):
    exact, prefix = heard(kb, predicate="pa"), heard(kb, predicate="pa*")
    base, scoped = heard(kb, scope=None), heard(kb, scope="s")
    rules = heard(kb, events=["rule_asserted"])
    kb.tell("pa", ["1"])
    kb.tell("pab", ["2"], scope="s")
    kb.tell("q", ["3"])
    kb.teach("pa(?x) :- q(?x).")
    assert [e["atom"]["args"] for e in exact if "atom" in e] == [["1"]]
    assert [e["atom"]["args"] for e in prefix if "atom" in e] == [["1"], ["2"]]
    assert brief(base) == [
        ("fact_asserted", "pa", "1"),
        ("fact_asserted", "q", "3"),
        ("rule_asserted",),
    ]
    assert brief(scoped) == [("fact_asserted", "pab", "2"), ("rule_asserted",)], (
        "a rule without scope holds in every one"
    )
    assert brief(rules) == [("rule_asserted",)]
    assert exact[-1]["type"] == prefix[-1]["type"] == "rule_asserted"


def test_an_unknown_type_is_refused_with_the_choices(kb):
    with pytest.raises(
        InvalidInput, match=r"'fact_told' is not one of fact_asserted, .*scope_changed"
    ):
        kb.subscribe(print, events=["fact_told"])
    with pytest.raises(InvalidInput, match="predicate"):
        kb.subscribe(print, predicate="")


def test_no_event_comes_after_unsubscribing_or_from_another_tenant(kb):
    events = []
    end = kb.subscribe(events.append)
    EmbeddedKB(kb._runtime, "other").tell("p", ["a"])
    end()
    kb.tell("p", ["a"])
    assert events == []


@given(st.integers(0, 10**17), st.one_of(st.none(), st.integers(0, 10**8)))
def test_an_event_id_reads_back(seq, number):
    place = Place("0123abcd", seq) if number is None else Place("0123abcd", seq, number)
    assert Place.read(place.text) == place


@given(st.text(max_size=30))
def test_any_text_is_an_event_id_or_none(text):
    place = Place.read(text)
    assert place is None or place.text.split(".")[0] == text.split(".")[0]


NAMES = st.sampled_from(["p", "pa", "pab", "q"])
SCOPES = st.sampled_from([None, "s", "*"])


@given(
    st.builds(ChangeEvent, st.sampled_from(KINDS), st.just(0), SCOPES, NAMES, st.just({})),
    st.one_of(st.none(), NAMES),
    st.one_of(st.none(), st.frozensets(st.sampled_from(KINDS))),
)
def test_filters_only_ever_narrow(event, predicate, kinds):
    assert Wanted(scope="*").select(event)
    if Wanted(predicate, kinds, "*").select(event):
        assert Wanted(predicate, None, "*").select(event)
        assert Wanted(None, kinds, "*").select(event)
        assert Wanted(predicate and predicate + "*", kinds, "*").select(event)


def test_events_survive_a_restart_in_their_order(tmp_path):
    with kbcore.open_kb(path=tmp_path) as kb:
        first = heard(kb)
        kb.tell("p", ["a"])
    with kbcore.open_kb(path=tmp_path) as kb:
        second = heard(kb)
        kb.tell("p", ["b"])
    before, after = Place.read(first[0]["eventId"]), Place.read(second[0]["eventId"])
    assert before.log == after.log
    assert before.seq < after.seq
