"""Answers under every kind of write, in any order: always those of a fresh evaluation of what is there now."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import naive, programs
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.state.facts import Fact
from kbcore.state.rulebook import stored_rule
from kbplanner.terms import Atom, Rule, Variable

SCOPES = [None, "s"]
START = 1_700_000_000_000

scopes = st.sampled_from(SCOPES)
windows = st.tuples(
    st.sampled_from([None, None, 5]),
    st.sampled_from([None, None, 0, 10]),
    st.sampled_from([None, None, 10, 20]),
)


@dataclass(frozen=True)
class Step:
    verb: str
    atom: Atom
    goal: Atom
    rule: Rule
    scope: str | None
    window: tuple[int | None, ...]


VERBS = ["tell"] * 4 + ["retract"] * 2 + ["pattern", "teach", "forget", "wait"] + ["ask"] * 5
steps = st.lists(
    st.builds(
        Step, st.sampled_from(VERBS), programs.facts(), programs.goals(), programs.rules(), scopes, windows
    ),
    max_size=16,
)


class Shadow:
    """What should be stored: facts with their windows, and rules, by scope."""

    def __init__(self):
        self.now = START
        self.facts = {}
        self.rules = {}

    def tell(self, atom, scope, window):
        ttl, start, end = window
        known = self.facts.get((scope, atom))
        created = known[0] if known and known[2] > self.now else self.now
        begin = created if start is None else START + start
        until = min(
            created + ttl if ttl is not None else float("inf"), START + end if end is not None else float("inf")
        )
        self.facts[scope, atom] = (created, begin, until)

    def teach(self, rule, scope):
        self.rules.setdefault((scope, stored_rule(rule).id), rule)

    def valid(self, scope):
        return [
            atom for (where, atom), (_, begin, end) in self.facts.items() if where == scope and begin <= self.now < end
        ]

    def visible(self, scope):
        return [rule for (where, _), rule in self.rules.items() if where in (None, scope)]

    def answers(self, goal, scope):
        rules, facts = self.visible(scope), self.valid(scope)
        true = naive.model(rules, facts) if naive.stratified(rules) else naive.well_founded(rules, facts)[0]
        return naive.answers(true, goal)


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(programs.rules(), min_size=1, max_size=3), steps)
def test_answers_follow_every_kind_of_write(rules, steps):
    assume(evaluable(rules))
    clock, shadow = ManualClock(START), Shadow()
    with runtime(clock=clock, engine_verify=True) as node:
        kb = node.knowledge_base()
        kb.assert_rules(rules)
        for rule in rules:
            shadow.teach(rule, None)
        for step in steps:
            play(kb, clock, shadow, step)
        for scope in SCOPES:
            for step in steps:
                assert set(kb.tuples(step.goal, scope=scope)) == shadow.answers(step.goal, scope)


def evaluable(rules):
    """Whether the oracle evaluates these together: it does not know aggregates beside recursion through negation."""
    return naive.stratified(rules) or not any(naive.aggregates(rule) for rule in rules)


def play(kb, clock, shadow, step):
    atom, scope = step.atom, step.scope
    if step.verb == "tell":
        ttl, start, end = step.window
        times = {
            "ttl": ttl,
            "valid_from": None if start is None else START + start,
            "valid_until": None if end is None else START + end,
        }
        kb.assert_facts([Fact(atom.predicate, atom.args, atom.positive, scope, **times)])
        shadow.tell(atom, scope, step.window)
    elif step.verb == "retract":
        kb.retract_fact(atom.predicate, atom.args, positive=atom.positive, scope=scope)
        shadow.facts.pop((scope, atom), None)
    elif step.verb == "pattern":
        pattern = [Variable(f"v{i}") for i in range(atom.arity)]
        kb.retract_pattern(atom.predicate, pattern, scope=scope)
        for where, other in list(shadow.facts):
            if where == scope and (other.predicate, other.arity) == (atom.predicate, atom.arity):
                del shadow.facts[where, other]
    elif step.verb == "teach":
        rule = Rule(step.rule.head, step.rule.body, scope=scope)
        if evaluable([*shadow.rules.values(), rule]):
            kb.assert_rules([rule])
            shadow.teach(rule, scope)
    elif step.verb == "forget":
        if shadow.rules:
            where, name = next(iter(shadow.rules))
            kb.retract_rule(id=name, scope=where)
            del shadow.rules[where, name]
    elif step.verb == "wait":
        clock.advance(5)
        shadow.now += 5
    else:
        assert set(kb.tuples(step.goal, scope=scope)) == shadow.answers(step.goal, scope)
