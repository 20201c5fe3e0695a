"""`now()` in rules: the instant of the request, with tables, models, proofs, retraction and
`asOf`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.programs import Slices
from support.runtimes import runtime_on

from kbcore.clock import ManualClock
from kbcore.reason.ask import body_variables
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.compile.bulkplan import bulk_plan
from kbplanner.compile.rules import RuleSet
from kbplanner.errors import EngineFault
from kbplanner.evaluate.evaluate import GoalRun
from kbplanner.ir.terms import Literal
from kbplanner.ir.values.instants import instant, instant_text
from kbplanner.syntax.parser import parse_atom, parse_goal, parse_program, parse_rule

T0 = 1_700_000_000_000  # 2023-11-14T22:13:20Z
DAY = 86_400_000

RULES = [
    "overdue(?i) :- due(?i, ?when), before(?when, now()).",
    "soon(?i, ?days) :- due(?i, ?when), ?days = days_between(now(), ?when), ?days >= 0, ?days < 2.",
    "open(?i) :- due(?i, _), not overdue(?i).",
    "alarm(?i) :- overdue(?i), not muted(?i).",
    "muted(?i) :- overdue(?i), quiet(?i), not alarm(?i).",
    "late(count(?i)) :- overdue(?i).",
    "asked(?t) :- due(_, _), ?t = now().",
]


@pytest.fixture
def clock():
    return ManualClock(T0)


@pytest.fixture(params=["c", "python"])
def kb(request, clock):
    with runtime_on(request.param, clock=clock, engine_verify=True) as node:
        made = node.knowledge_base()
        made.assert_rules([parse_rule(text) for text in RULES])
        made.assert_facts(
            [
                Fact("due", ("a", "2023-11-14T22:00Z")),
                Fact("due", ("b", "2023-11-15T23:13:20+01:00")),
                Fact("due", ("c", "2023-12-24")),
                Fact("due", ("d", "some day")),
                Fact("quiet", ("b",)),
            ]
        )
        yield made


def ask(kb, text, **more):
    goal = parse_goal(text).body
    if len(goal) == 1 and isinstance(goal[0], Literal):
        return [tuple(row["args"]) for row in kb.infer(goal[0], AnswerOptions(**more))]
    return kb.bindings(goal, body_variables(goal), AnswerOptions(**more))


def test_answers_are_those_of_the_instant_of_each_request(kb, clock):
    for _ in range(2):
        assert ask(kb, "overdue(?i)") == [("a",)]
        assert ask(kb, "overdue(b)") == []
        assert ask(kb, "soon(?i, ?d)") == [("b", "1")]
        assert ask(kb, "open(?i)") == [("b",), ("c",), ("d",)]
        assert ask(kb, "late(?n)") == [("1",)]
        assert ask(kb, "asked(?t)") == [("2023-11-14T22:13:20.000Z",)]
    clock.advance(DAY + 1)
    for _ in range(2):
        assert ask(kb, "overdue(?i)") == [("a",), ("b",)]
        assert ask(kb, "overdue(b)") == [("b",)]
        assert ask(kb, "soon(?i, ?d)") == []
        assert ask(kb, "open(?i)") == [("c",), ("d",)]
        assert ask(kb, "late(?n)") == [("2",)]
        assert ask(kb, "asked(?t)") == [("2023-11-15T22:13:20.001Z",)]


def test_a_table_of_other_rules_stays(kb, clock):
    kb.assert_rules([parse_rule("pair(?x, ?y) :- due(?x, _), due(?y, _).")])
    tables = kb._services.reasoner(kb._services.read_tenant(kb.database, kb.tenant)).tables
    ask(kb, "pair(?x, ?y)")
    kept = len(tables)
    ask(kb, "overdue(?i)")
    assert len(tables) == kept > 0


def test_models_of_recursion_through_negation_follow_the_clock(kb, clock):
    assert ask(kb, "alarm(?i)") == [("a",)]
    assert ask(kb, "alarm(?i)", include_undefined=True) == [("a",)]
    clock.advance(DAY + 1)
    assert ask(kb, "alarm(?i)") == [("a",)]
    assert ask(kb, "alarm(?i)", include_undefined=True) == [("a",), ("b",)]
    assert ask(kb, "muted(?i)", include_undefined=True) == [("b",)]


def test_as_of_is_the_instant(kb, clock):
    assert ask(kb, "overdue(?i)", as_of=T0 + 60 * DAY) == [("a",), ("b",), ("c",)]
    assert ask(kb, "alarm(?i)", as_of=T0 + 60 * DAY, include_undefined=True) == [
        ("a",),
        ("b",),
        ("c",),
    ]
    assert ask(kb, "asked(?t)", as_of=0) == []  # no fact was stored then
    assert ask(kb, "overdue(?i)") == [("a",)]
    body = "due(?i, ?when), before(?when, now())"
    assert ask(kb, body, as_of=T0 + 60 * DAY) == [
        ("a", "2023-11-14T22:00Z"),
        ("b", "2023-11-15T23:13:20+01:00"),
        ("c", "2023-12-24"),
    ]
    assert ask(kb, body) == [("a", "2023-11-14T22:00Z")]


def texts_of(node):
    yield node["step"].get("text")
    for below in node["step"]["bodyProofs"] or ():
        yield from texts_of(below)


def test_proofs_show_the_instant(kb, clock):
    goal = Literal(parse_atom("overdue(?i)"))
    for as_of, text in ((None, "2023-11-14T22:13:20.000Z"), (T0 + 5, "2023-11-14T22:13:20.005Z")):
        (proof,) = kb.prove(goal, AnswerOptions(as_of=as_of))
        assert f'before("2023-11-14T22:00Z", "{text}")' in texts_of(proof["proof"])
        assert proof["proof"]["step"]["rule"] == RULES[0]
    (proof,) = kb.prove(Literal(parse_atom("soon(b, ?d)")), AnswerOptions())
    assert '1 = days_between("2023-11-14T22:13:20.000Z", "2023-11-15T23:13:20+01:00")' in texts_of(
        proof["proof"]
    )
    (proof,) = kb.prove(Literal(parse_atom("asked(?t)")), AnswerOptions(limit=1))
    assert '"2023-11-14T22:13:20.000Z" = "2023-11-14T22:13:20.000Z"' in texts_of(proof["proof"])


def test_confidence_is_inherited_through_a_condition_of_time(kb, clock):
    kb.assert_facts([Fact("due", ("e", "2020-01-01"), confidence=0.5)])
    rows = kb.infer(Literal(parse_atom("overdue(?i)")), AnswerOptions())
    assert {row["args"][0]: row["confidence"] for row in rows} == {"a": None, "e": 0.5}


def test_a_retraction_counts_conclusions_of_its_instant(kb, clock):
    clock.advance(DAY + 1)
    outcome = kb.retract_fact("due", ("b", "2023-11-15T23:13:20+01:00"))
    fallen = {(row["predicate"], *row["args"]) for row in outcome.cascaded_atoms}
    assert ("overdue", "b") in fallen
    assert ("late", "2") in fallen
    assert ask(kb, "late(?n)") == [("1",)]


def test_a_dated_plan_needs_an_instant(kb):
    tenant = kb._services.read_tenant(kb.database, kb.tenant)
    partition = tenant.partitions(None)[0]
    rules = tenant.rules.visible(None)
    schema = next(s for s in rules.derived if s.predicate == "overdue")
    goal = tenant.plans.get(rules, schema, "f", frozenset(), partition)
    with pytest.raises(EngineFault, match="without an instant"):
        GoalRun(tenant.engine, goal, partition.bind, replace(kb._services.limits))


def test_a_bulk_run_has_the_instant_of_its_clock():
    rules = RuleSet(parse_rule(text) for text in RULES)
    plan = bulk_plan(rules, parse_atom("open(?i)"))
    assert plan.dated
    dated = plan.at("2024-01-01T00:00:00.000Z")
    assert not dated.dated
    assert "2024-01-01T00:00:00.000Z" in dated.constants


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (T0, "2023-11-14T22:13:20.000Z"),
        (8_640_000_000_000_000, "9999-12-31T23:59:59.999Z"),
        (-8_640_000_000_000_000, "0001-01-01T00:00:00.000Z"),
    ],
)
def test_the_text_of_an_instant(at, text):
    assert instant_text(at) == text
    assert instant(text) is not None


def test_now_takes_no_argument():
    with pytest.raises(Exception, match="now takes 0 arguments, found 1"):
        parse_program("p(?x) :- q(?x), ?y = now(?x).")


@pytest.mark.parametrize("kb", ["c"], indirect=True)
def test_requests_leave_no_symbol_of_their_instant(kb, clock):
    """The value of `now()` that no row has takes one symbol for all requests."""
    texts = ("overdue(?i)", "open(?i)", "late(?n)")
    first = [ask(kb, text) for text in texts]
    engine = kb._services.read_tenant(kb.database, kb.tenant).engine
    before = engine.symbols
    for _ in range(50):
        clock.advance(1)
        assert [ask(kb, text) for text in texts] == first
    assert engine.symbols == before


def test_runs_at_the_same_time_have_their_own_instants(kb):
    tenant = kb._services.read_tenant(kb.database, kb.tenant)
    partition = tenant.partitions(None)[0]
    rules = tenant.rules.visible(None)
    plans = {}
    for name in ("overdue", "asked"):
        schema = next(s for s in rules.derived if s.predicate == name)
        plans[name] = tenant.plans.get(rules, schema, "f", frozenset(), partition)
    assert plans["overdue"].plan.hides_now
    assert not plans["asked"].plan.hides_now  # its rows have the instant
    limits = kb._services.limits

    def count(run):
        return run.ask([0], Slices(1))[1]

    for _ in range(2):
        runs = [
            GoalRun(tenant.engine, plans["overdue"], partition.bind, limits, now)
            for now in (T0 - DAY, T0 + 2 * DAY, T0 + 100 * DAY)
        ]
        assert [count(run) for run in runs] == [0, 2, 3]
        for run in runs[::-1]:
            run.close()
