"""Restart from the log, from a snapshot, and from both."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import StorageBusy
from kbcore.reason.aggregate import AggregateQuery
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import ANONYMOUS, Variable
from kbplanner.syntax.parser import parse_rule

RULES = ["r(?x) :- p(?x, ?y), not q(?y).", "r(?x) :- q(?x).", "s(?x, ?y) :- p(?x, ?y), p(?y, ?x) ."]
constants = st.sampled_from(["a", "b", "ü", "7", "", "x y"])
scopes = st.sampled_from([None, None, "s1"])
confidences = st.sampled_from([None, 0.25, 1.0])
instants = st.sampled_from([None, 1_700_000_050_000, 1_700_000_000_000 - 5, 1_700_000_900_000])


@st.composite
def facts(draw):
    name, arity = draw(st.sampled_from([("p", 2), ("q", 1), ("on", 0)]))
    start, end = draw(instants), draw(instants)
    if end is not None and (start is None or end <= start):
        start = end - 1000  # an empty interval is an error
    return Fact(
        name,
        tuple(draw(constants) for _ in range(arity)),
        draw(st.booleans()),
        draw(scopes),
        draw(st.sampled_from([None, None, 60_000])),
        start,
        end,
        draw(confidences),
        draw(st.sampled_from([{}, {}, {"k": [1, {"n": None}]}])),
    )


actions = st.one_of(
    st.tuples(st.just("tell"), st.lists(facts(), min_size=1, max_size=4)),
    st.tuples(st.just("retract"), facts()),
    st.tuples(st.just("pattern"), st.sampled_from([("p", 2), ("q", 1)]), scopes),
    st.tuples(st.just("teach"), st.sampled_from(RULES), scopes),
    st.tuples(st.just("unteach"), st.sampled_from(RULES), scopes),
    st.tuples(st.just("snapshot"), st.none()),
    st.tuples(st.just("advance"), st.sampled_from([1, 30_000, 60_000])),
)


def act(node, clock, action):
    kb = node.knowledge_base()
    verb, what = action[0], action[1]
    if verb == "tell":
        kb.assert_facts(what)
    elif verb == "retract":
        kb.retract_fact(what.predicate, what.args, positive=what.positive, scope=what.scope)
    elif verb == "pattern":
        kb.retract_pattern(what[0], [ANONYMOUS] * what[1], scope=action[2])
    elif verb in ("teach", "unteach"):
        rule = parse_rule(what)
        rule = type(rule)(rule.head, rule.body, None, None, action[2])
        if verb == "teach":
            kb.assert_rules([rule])
        elif any(
            stored.text == what.replace(" .", ".") and stored.scope == action[2]
            for stored in kb.rules()
        ):
            kb.retract_rule(rule=rule)
    elif verb == "snapshot":
        node.snapshot()
    else:
        clock.advance(what)


def state(node):
    """Everything a client can see."""
    kb = node.knowledge_base()
    tenant = node.read_tenant("default", "default")
    stored = [
        (row, accesses)
        for _, relation in tenant.stored()
        for row, accesses in zip(
            relation.rows(
                tenant.engine, *relation.relation.match([0] * relation.schema.arity, hidden=True)
            ),
            relation.relation.attributes(
                5, relation.relation.match([0] * relation.schema.arity, hidden=True)[1]
            ),
            strict=True,
        )
    ]
    visible = kb.query_rows("p", [Variable("x"), Variable("y")], scope="*")
    derived = kb.tuples(parse_rule("g(?x) :- r(?x).").body[0].atom, AnswerOptions(scope="*"))
    rules = [(rule.id, rule.text, rule.scope) for rule in kb.rules()]
    return sorted(stored, key=repr), visible, derived, rules, tenant.generation


@examples(60)
@given(st.lists(actions, max_size=14), st.booleans())
def test_a_restart_restores_the_state(actions, clean):
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock()
        node = runtime(Path(folder), clock=clock)
        for action in actions:
            act(node, clock, action)
        before = state(node)
        if clean:
            node.close()
        else:
            node.system.store.close(clean=False)
        again = runtime(Path(folder), clock=clock)
        assert state(again) == before
        again.close()


def test_a_restart_after_the_clock_went_back_keeps_the_order_of_times(tmp_path):
    clock = ManualClock()
    with runtime(tmp_path, clock=clock) as node:
        node.knowledge_base().assert_facts([Fact("p", ("a",))])
        first = node.knowledge_base().query_rows("p", [ANONYMOUS])[0]["createdAt"]
    clock.step(-3_600_000)
    with runtime(tmp_path, clock=clock) as node:
        node.knowledge_base().assert_facts([Fact("p", ("b",))])
        rows = node.knowledge_base().query_rows("p", [ANONYMOUS])
        assert [row["createdAt"] >= first for row in rows] == [True, True]


def test_a_snapshot_drops_the_log_it_covers_and_the_second_start_reads_it(tmp_path):
    with runtime(tmp_path) as node:
        kb = node.knowledge_base()
        for n in range(20):
            kb.assert_facts([Fact("p", (str(n),))])
    with runtime(tmp_path) as node:
        assert (node.recovered.snapshot, node.recovered.records) == (20, 0)
        assert node.knowledge_base().aggregate(AggregateQuery("p", "COUNT")).matched == 20


def test_a_folder_has_one_owner(tmp_path):
    with runtime(tmp_path), pytest.raises(StorageBusy):
        runtime(tmp_path)
