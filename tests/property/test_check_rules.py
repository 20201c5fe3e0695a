"""Shadowed rules add nothing, and rules that never fire conclude nothing, by the naive
evaluator.
"""

from __future__ import annotations

from hypothesis import assume, event, given
from hypothesis import strategies as st
from support import naive
from support.examples import examples

from kbplanner.check.rules import contradiction, is_trivial, never_fire, shadowed
from kbplanner.ir.terms import ANONYMOUS, Atom, Comparison, Literal, Rule, Variable
from kbplanner.passes.check import rule_errors

CONSTANTS = ("a", "b", "1", "2", "1.0")
X, Y = Variable("x"), Variable("y")

constants = st.sampled_from(CONSTANTS)
terms = st.sampled_from((X, X, Y, ANONYMOUS, "a", "1"))
derived = st.builds(lambda name, term: Literal(Atom(name, (term,))), st.sampled_from("pq"), terms)
stored = st.builds(
    lambda first, second, negated: Literal(Atom("e", (first, second)), negated),
    terms,
    terms,
    st.booleans(),
)
compared = st.builds(
    Comparison,
    st.sampled_from(("=", "!=", "==", "!==", "<", "<=", ">", ">=")),
    st.sampled_from((X, Y, "1")),
    st.sampled_from((X, "a", "1", "2", "1.0")),
)
rules = st.builds(
    lambda name, body: Rule(Atom(name, (X,)), tuple(body)),
    st.sampled_from("pq"),
    st.lists(st.one_of(stored, stored, derived, compared), min_size=1, max_size=3),
).filter(lambda rule: not rule_errors(rule))
facts = st.lists(
    st.one_of(
        st.builds(lambda *args: Atom("e", args), constants, constants),
        st.builds(lambda name, arg: Atom(name, (arg,)), st.sampled_from("pq"), constants),
    ),
    max_size=6,
)


def rows(rules: list[Rule], facts: list[Atom]) -> naive.Model:
    return {key: values for key, values in naive.model(rules, facts).items() if values}


@examples(400)
@given(st.lists(rules, min_size=2, max_size=5), facts)
def test_shadowed_rules_add_nothing(rules, facts):
    hidden = {index for index, _ in shadowed(rules)}
    hidden |= {index for index, rule in enumerate(rules) if is_trivial(rule)}
    assume(hidden)
    event(f"{len(hidden)} shadowed")
    others = [rule for index, rule in enumerate(rules) if index not in hidden]
    assert rows(others, facts) == rows(rules, facts)


@examples(400)
@given(st.lists(rules, min_size=1, max_size=4), facts)
def test_rules_that_never_fire_conclude_nothing(rules, facts):
    with_facts = {(fact.predicate, fact.arity) for fact in facts}
    never = {index for index, _ in never_fire(rules, with_facts)}
    never |= {index for index, rule in enumerate(rules) if contradiction(rule)}
    assume(never)
    event(f"{len(never)} never fire")
    model = naive.model(rules, facts)
    for index in never:
        assert list(naive.envs(rules[index], model)) == []
