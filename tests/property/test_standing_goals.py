"""Standing goals: their changes, one after the other, are those of fresh evaluations after each
write.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import InvalidInput, KBError
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbcore.state.rulebook import stored_rule
from kbcore.subscriptions import evaluation as goals
from kbplanner.ir.terms import Atom, Literal, Variable
from kbplanner.syntax.parser import parse_goal, parse_rule

START = 1_700_000_000_000

scopes = st.sampled_from([None, None, None, "s"])
VERBS = ["tell"] * 6 + ["retract"] * 3 + ["pattern", "teach", "forget", "wait", "wait"]
VERBS += ["fork", "drop", "merge", "transaction"]
FORMS = [
    parse_rule(text)
    for text in (
        "p(?x, ?y) :- e(?x, ?y).",
        "p(?x, ?z) :- p(?x, ?y), e(?y, ?z).",
        "q(?x, ?y) :- p(?x, ?y), not n(?y).",
        "s(?x, count(?y)) :- f(?x, ?y).",
        "f(?x, ?y) :- q(?y, ?x), not ~n(?x).",
        "r(?x) :- e(?x, ?y), not r(?y).",
    )
]
CONJUNCTIONS = [
    parse_goal(text).body
    for text in ("e(?x, ?y), not n(?y)", "p(?x, a), f(?x, ?z)", "not n(a)", "e(a, ?x), ?x != b")
]
NAMES = st.sampled_from("abcd")
FACTS = st.one_of(
    st.builds(
        Atom,
        st.sampled_from(["e", "e", "f"]),
        st.tuples(NAMES, NAMES),
        st.sampled_from([True, True, True, False]),
    ),
    st.builds(Atom, st.just("n"), st.tuples(NAMES), st.booleans()),
    programs.facts(),
)
GOALS = st.one_of(
    st.sampled_from(
        [
            parse_goal(text).body
            for text in ("p(?x, ?y)", "p(a, ?x)", "q(?x, ?x)", "f(?x, ?y)", "s(?x, ?n)", "~n(?x)")
        ]
    ),
    st.sampled_from(CONJUNCTIONS),
    programs.goals().map(lambda atom: (Literal(atom),)),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(VERBS),
        FACTS,
        st.one_of(programs.rules(), st.sampled_from(FORMS)),
        scopes,
        scopes,
        st.sampled_from([None, None, None, 5]),
        st.sampled_from([None, None, None, 10, 20]),
    ),
    min_size=4,
    max_size=30,
)


def fresh(kb, body, scope):
    """The answers of a goal, as a set."""
    item = body[0]
    if len(body) == 1 and isinstance(item, Literal) and not item.negated:
        return set(kb.tuples(item.atom, AnswerOptions(scope)))
    variables = list(dict.fromkeys(v for each in body for v in each.variables() if not v.anonymous))
    return set(kb.bindings(body, variables, AnswerOptions(scope)))


def texts(rows):
    return [tuple(row["args"] if "args" in row else row["bindings"].values()) for row in rows]


class Reader:
    """A client of a standing goal: it knows the answers from the changes alone."""

    def __init__(self, kb, body, scope):
        self.body, self.scope = body, scope
        answers = kb.subscribe_goal(body, scope=scope)
        self.id, self.event_id = answers.goal.id, answers.event_id
        self.answers = set(texts(answers.answers))

    def read(self, kb):
        """Apply the new changes; return their number."""
        changes = kb.goal_changes(self.id, self.event_id, limit=None)
        for change in changes:
            self.event_id = change.event_id
            gone, new = set(texts(change.disappeared)), set(texts(change.appeared))
            assert gone <= self.answers
            assert not new & self.answers
            assert not new & gone
            self.answers = self.answers - gone | new
        return len(changes)


def take(kb, node, clock, step, rules):
    verb, fact, rule, scope, other, ttl, until = step
    fact_to_store = Fact(
        fact.predicate,
        fact.args,
        fact.positive,
        scope,
        ttl=ttl,
        valid_until=None if until is None else clock.now_ms() + until,
    )
    if verb == "tell":
        kb.assert_facts([fact_to_store])
    elif verb == "retract":
        kb.retract_fact(fact.predicate, fact.args, positive=fact.positive, scope=scope)
    elif verb == "pattern":
        pattern = (*fact.args[:-1], Variable("any")) if fact.args else ()
        kb.retract_pattern(fact.predicate, pattern, scope=scope)
    elif verb == "teach":
        kb.assert_rules([rule])
        rules.append(rule)
    elif verb == "forget":
        if rules:
            kb.retract_rule(id=stored_rule(rules.pop(0)).id)
    elif verb == "wait":
        clock.advance(6)
    elif verb == "fork":
        kb.fork_scope(None, "s", overwrite=True)
    elif verb == "drop":
        kb.drop_scope("s")
    elif verb == "merge" and scope != other:
        kb.merge_scope(scope, other, strategy="SOURCE_WINS")
    elif verb == "transaction":
        tx = node.begin()
        inside = node.in_transaction("default", "default", tx)
        inside.assert_facts([fact_to_store])
        inside.retract_fact(fact.predicate, fact.args[::-1], positive=fact.positive, scope=scope)
        inside.commit()


@pytest.mark.parametrize("cheap", [-1, 500])
@examples(300)
@given(
    st.lists(
        st.one_of(st.sampled_from(FORMS), st.sampled_from(FORMS), programs.rules()),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.lists(GOALS, min_size=1, max_size=3),
    scopes,
    steps,
)
def test_changes_are_those_of_fresh_evaluations(cheap, rules, bodies, scope, steps):
    assume(naive.stratified(rules) or not any(naive.aggregates(rule) for rule in rules))
    goals.CHEAP_ROWS = cheap
    clock = ManualClock(START)
    with runtime(clock=clock, engine_verify=True) as node:
        kb = node.knowledge_base()
        known = []
        for rule in rules:
            with suppress(KBError):
                kb.assert_rules([rule])
                known.append(rule)
        readers = [Reader(kb, body, scope) for body in bodies]
        for step in steps:
            with suppress(KBError):  # such as a rule that the engine does not evaluate
                take(kb, node, clock, step, known)
            for reader in readers:
                expected = fresh(kb, reader.body, reader.scope)
                count = reader.read(kb)
                assert reader.answers == expected
                assert count <= 2 if step[0] in ("transaction", "fork") else count <= 1
                again = kb.goal_answers(reader.id)
                assert set(texts(again.answers)) == expected
                assert kb.goal_changes(reader.id, again.event_id) == []


def test_goals_that_change_without_commits_are_refused():
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule("late(?x) :- due(?x, ?t), before(?t, now()).")])
        with pytest.raises(InvalidInput, match=r"now\(\)"):
            kb.subscribe_goal(parse_goal("late(?x)").body)
