"""Facts that are not valid now are invisible to every read and rule."""

from __future__ import annotations

import json
from array import array

import orjson
import pytest
from support.reference.engine import ReferenceEngine
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.durable.snapshot import Restorer
from kbcore.reason.aggregate import AggregateQuery
from kbcore.reason.options import AnswerOptions
from kbcore.state.catalog import Catalog
from kbcore.state.facts import Fact
from kbplanner.engine.backend import FOREVER
from kbplanner.ir.terms import ANONYMOUS, Atom, Literal, Variable
from kbplanner.syntax.parser import parse_rule

T0 = 1_700_000_000_000


@pytest.fixture
def clock():
    return ManualClock(T0)


@pytest.fixture
def kb(clock):
    with runtime(clock=clock, engine_verify=True) as node:
        yield node.knowledge_base()


def drivers(kb, **more):
    return [
        row["args"][0]
        for row in kb.infer(Literal(Atom("may_drive", (Variable("who"),))), AnswerOptions(**more))
    ]


def test_answers_follow_validity_without_anyone_asking_for_decay(kb, clock):
    kb.assert_rules([parse_rule("may_drive(?x) :- licensed(?x), on_duty(?x).")])
    kb.assert_facts(
        [
            Fact("licensed", ("d",), valid_until=T0 + 100),
            Fact("on_duty", ("d",), valid_from=T0 + 50, valid_until=T0 + 200),
        ]
    )
    seen = []
    for _ in range(5):
        seen.append(drivers(kb))
        clock.advance(30)
    assert seen == [[], [], ["d"], ["d"], []]
    assert drivers(kb, as_of=T0 + 60) == ["d"]
    assert drivers(kb, as_of=T0 + 120) == []
    assert kb.query_rows("on_duty", [ANONYMOUS])[0]["validUntil"] == T0 + 200


def test_a_heartbeat_keeps_a_fact_alive_and_its_creation_time(kb, clock):
    for beat in range(5):
        kb.assert_facts(
            [
                Fact("alive", ("a",), ttl=1000, valid_until=T0 + 1_000_000),
                Fact("other", (str(beat),)),
            ]
        )
        row = kb.query_rows("alive", [ANONYMOUS])[0]
        assert (row["createdAt"], row["ttl"], row["validUntil"]) == (
            T0,
            1000,
            clock.now_ms() + 1000,
        )
        assert row["validFrom"] == T0
        clock.advance(900)
    clock.advance(99)
    assert len(kb.infer(Literal(Atom("alive", (Variable("who"),))))) == 1
    clock.advance(1)
    assert kb.infer(Literal(Atom("alive", (Variable("who"),)))) == []
    kb.assert_facts([Fact("alive", ("a",), ttl=1000)])
    assert kb.query_rows("alive", [ANONYMOUS])[0]["createdAt"] == clock.now_ms()


def test_a_renewed_ttl_never_exceeds_valid_until_and_may_shorten_validity(kb, clock):
    kb.assert_facts(
        [Fact("p", ("a",), ttl=1000), Fact("p", ("b",), ttl=1000), Fact("p", ("c",), ttl=1000)]
    )
    clock.advance(500)
    kb.assert_facts(
        [
            Fact("p", ("a",), ttl=1000, valid_until=T0 + 600),
            Fact("p", ("b",), ttl=10),
            Fact("p", ("c",)),
        ]
    )
    ends = {row["args"][0]: row["validUntil"] for row in kb.query_rows("p", [ANONYMOUS])}
    assert ends == {"a": T0 + 600, "b": T0 + 510, "c": None}
    clock.advance(10)
    assert sorted(row["args"][0] for row in kb.query_rows("p", [ANONYMOUS])) == ["a", "c"]
    clock.advance(90)
    assert [row["args"][0] for row in kb.query_rows("p", [ANONYMOUS])] == ["c"]
    clock.advance(10_000)
    assert [row["args"][0] for row in kb.query_rows("p", [ANONYMOUS])] == ["c"]


def test_a_heartbeat_survives_a_restart_with_and_without_a_snapshot(tmp_path, clock):
    with runtime(tmp_path, clock=clock) as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("p", ("a",), ttl=1000)])
        clock.advance(900)
        kb.assert_facts([Fact("p", ("a",), ttl=1000)])
        kb._services.system.committer.bytes = (
            0  # no snapshot at this stop: the log alone is replayed
        )
    for _ in range(2):
        with runtime(tmp_path, clock=clock) as node:
            row = node.knowledge_base().query_rows("p", [ANONYMOUS])[0]
            assert (row["createdAt"], row["validUntil"], row["ttl"]) == (T0, T0 + 1900, 1000)
            node.snapshot()
    clock.advance(1000)
    with runtime(tmp_path, clock=clock) as node:
        assert node.knowledge_base().query_rows("p", [ANONYMOUS]) == []


def test_heartbeats_schedule_one_expiry_check_per_fact(clock):
    with runtime(clock=clock) as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("p", ("a",), scope="s", ttl=1000)])
        for _ in range(200):
            clock.advance(100)
            kb.assert_facts([Fact("p", ("a",), scope="s", ttl=1000)])
        tenant = node.read_tenant("default", "default")
        assert len(tenant._moments) == 1
        kb.fork_scope("s", "copy")
        kb.assert_facts([Fact("p", ("a",), scope="s", ttl=50)])
        clock.advance(50)
        assert kb.query_rows("p", [ANONYMOUS], scope="s") == []
        assert len(kb.query_rows("p", [ANONYMOUS], scope="copy")) == 1
        clock.advance(950)
        assert kb.query_rows("p", [ANONYMOUS], scope="copy") == []


def test_a_snapshot_from_before_ends_included_the_ttl_is_read():
    catalog = Catalog(ReferenceEngine)
    restorer = Restorer(catalog)
    head = {
        "kind": "tenant",
        "db": "default",
        "tenant": "t",
        "createdAt": 1,
        "generation": 1,
        "now": 10,
        "rules": [],
    }
    facts = {
        "kind": "facts",
        "scope": None,
        "predicate": "p",
        "arity": 1,
        "positive": True,
        "count": 3,
    }
    columns = {
        "CREATED_AT": [1, 2, 3],
        "TTL": [100, 0, 100],
        "VALID_UNTIL": [FOREVER, FOREVER, 50],
        "limited": [0, 2],
    }
    for chunk in (head, facts | {"args": ["a", "b", "c"]} | columns):
        restorer.feed(orjson.dumps(chunk))
    tenant = catalog.need_tenant("default", "t", 0)
    stored = tenant.partition(None).named("p")[0]
    assert [end for _, end in stored.windows(array("I", [0, 1, 2]))] == [101, FOREVER, 50]


def test_ttl_counts_from_the_assertion_and_is_shown_as_an_end(kb, clock):
    kb.assert_facts([Fact("p", ("a",), ttl=1000)])
    assert kb.query_rows("p", [ANONYMOUS])[0]["validUntil"] == T0 + 1000
    clock.advance(999)
    assert kb.aggregate(AggregateQuery("p", "COUNT")).result == 1
    clock.advance(1)
    assert kb.query_rows("p", [ANONYMOUS]) == []
    assert kb.aggregate(AggregateQuery("p", "COUNT")).result == 0
    assert kb.predicates()["totalFacts"] == 0


def test_an_expired_fact_can_be_asserted_again_and_a_future_one_retracted(kb, clock):
    kb.assert_facts([Fact("p", ("a",), ttl=10), Fact("p", ("f",), valid_from=T0 + 500)])
    clock.advance(20)
    kb.assert_facts([Fact("p", ("a",))])
    row = kb.query_rows("p", [ANONYMOUS])[0]
    assert (row["args"], row["createdAt"], row["ttl"], row["validUntil"]) == (
        ["a"],
        T0 + 20,
        None,
        None,
    )
    assert kb.retract_fact("p", ["f"]).retracted == 1
    clock.advance(1000)
    assert [row["args"] for row in kb.query_rows("p", [ANONYMOUS])] == [["a"]]


def test_a_fact_becoming_valid_changes_negation(kb, clock):
    kb.assert_rules([parse_rule("open(?d) :- door(?d), not locked(?d).")])
    kb.assert_facts(
        [Fact("door", ("d",)), Fact("locked", ("d",), valid_from=T0 + 10, valid_until=T0 + 20)]
    )
    goal = Atom("open", (Variable("d"),))
    seen = []
    for _ in range(3):
        seen.append(len(kb.tuples(goal)))
        clock.advance(10)
    assert seen == [1, 0, 1]


def test_expired_facts_stay_expired_if_the_clock_jumps_back(kb, clock):
    kb.assert_facts([Fact("p", ("a",), ttl=10)])
    clock.advance(20)
    assert kb.query_rows("p", [ANONYMOUS]) == []
    clock.step(-15)
    assert kb.query_rows("p", [ANONYMOUS]) == []


def test_a_fact_asserted_again_keeps_its_creation_time_and_takes_the_new_metadata(kb, clock):
    kb.assert_facts([Fact("p", ("a",), metadata={"v": 1}, confidence=0.5)])
    clock.advance(5)
    assert kb.assert_facts([Fact("p", ("a",), metadata={"v": 2})]).updated == 1
    row = kb.query_rows("p", [ANONYMOUS])[0]
    assert (row["createdAt"], row["metadata"], row["confidence"]) == (T0, {"v": 2}, None)
    outcome = kb.assert_facts(
        [Fact("p", ("b",), metadata={"v": 1}), Fact("p", ("b",), metadata={"v": 2})]
    )
    assert (outcome.asserted, outcome.updated) == (1, 1)
    assert kb.query_rows("p", ["b"])[0]["metadata"] == {"v": 2}


OLD = Literal(Atom("old", (Variable("x"),)))
FIRST_INSTANTS = [0, 1, -1, -86_400_000]


@pytest.mark.parametrize("start", FIRST_INSTANTS)
def test_a_fact_may_hold_since_1970_began_or_before(kb, start):
    kb.assert_rules([parse_rule("old(?x) :- p(?x).")])
    kb.assert_facts([Fact("p", ("a",))])
    kb.assert_facts([Fact("p", ("a",), valid_from=start)])
    written = kb.infer_json(
        Literal(Atom("p", (Variable("x"),))), lambda rows, yield_now: json.dumps(rows).encode()
    )
    for row in (*kb.query_rows("p", [ANONYMOUS]), *json.loads(b"".join(written))):
        assert (row["validFrom"], row["createdAt"]) == (start, T0)
    for at, there in ((start - 1, 0), (start, 1), (T0 - 1, 1)):
        assert len(kb.query_rows("p", [ANONYMOUS], as_of=at)) == there
        assert len(kb.infer(OLD, AnswerOptions(as_of=at))) == there
    assert [row["validFrom"] for row in kb.infer(OLD)] == [start]
    kb.assert_facts([Fact("p", ("a",))])
    assert kb.query_rows("p", [ANONYMOUS])[0]["validFrom"] == T0


@pytest.mark.parametrize("start", FIRST_INSTANTS)
def test_scopes_carry_a_beginning_in_1970_or_before(kb, start):
    kb.assert_facts([Fact("p", ("a",), valid_from=start), Fact("p", ("b",))])
    kb.fork_scope(None, "copy")
    assert kb.diff_scopes(None, "copy").unchanged == 2
    kb.assert_facts(
        [Fact("p", ("a",), scope="copy"), Fact("p", ("b",), valid_from=start, scope="copy")]
    )
    pairs = kb.diff_scopes(None, "copy").modified
    assert [(pair.before["validFrom"], pair.after["validFrom"]) for pair in pairs] == [
        (start, T0),
        (T0, start),
    ]
    kb.merge_scope("copy", None, strategy="KEEP_BOTH")
    assert [row["validFrom"] for row in kb.query_rows("p", [ANONYMOUS])] == [start, start]


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_beginning_in_1970_survives_a_restart(tmp_path, snapshot):
    with runtime(tmp_path, clock=ManualClock(T0)) as node:
        node.knowledge_base().assert_facts(
            [Fact("p", (str(start),), valid_from=start) for start in FIRST_INSTANTS]
        )
        if snapshot:
            node.snapshot()
    with runtime(tmp_path, clock=ManualClock(T0)) as node:
        rows = node.knowledge_base().query_rows("p", [ANONYMOUS])
        assert {row["args"][0]: row["validFrom"] for row in rows} == {
            str(start): start for start in FIRST_INSTANTS
        }
