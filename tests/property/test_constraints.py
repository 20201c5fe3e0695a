"""Declared constraints against a direct definition of their violations, with retractions in
between.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import programs
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner.engine.engine import Engine
from kbplanner.evaluate.evaluate import RuleSet
from kbplanner.ir.terms import Atom, Variable
from kbplanner.syntax.constraints import fact_text
from kbplanner.syntax.parser import parse_atom, parse_program

DECLARED = """
@key owns(?car, _).
@key seat(?row, _, ?place, _).
@key pair(?first_fact, _).
@disjoint cat, dog, 'guinea pig'.
@disjoint likes/2, hates/2.
@total cat(?x), age(?x, _).
@total seat(?r, _, _, _), row(?r), likes(?r, _).
@equivalence same/2.
"""
GOAL = Atom("contradiction", tuple(map(Variable, ("kind", "first", "second"))))
ARITIES = {
    "owns": 2, "seat": 4, "pair": 2, "cat": 1, "dog": 1, "guinea pig": 1, "likes": 2, "hates": 2,
    "age": 2, "row": 1, "same": 2, "different": 2,
}  # fmt: skip
constants = st.sampled_from(["a", "b", "1", "New York", 'x"y\\', "größe", "not", ""])
facts = st.sampled_from(sorted(ARITIES)).flatmap(
    lambda name: st.tuples(*[constants] * ARITIES[name]).map(lambda args: Atom(name, args))
)


def rules():
    return [statement.rule for statement in parse_program(DECLARED)]


def violations(known):
    """All violations of DECLARED, from the definition of each kind."""
    rows = {name: [fact for fact in known if fact.predicate == name] for name in ARITIES}
    found = set()
    for name, places in (("owns", (0,)), ("seat", (0, 2)), ("pair", (0,))):
        for one, other in combinations(rows[name], 2):
            if all(one.args[place] == other.args[place] for place in places):
                found.add(("key", *sorted((fact_text(one), fact_text(other)))))
    for group in (("cat", "dog", "guinea pig"), ("likes", "hates")):
        for one, other in combinations(group, 2):
            both = {fact.args for fact in rows[one]} & {fact.args for fact in rows[other]}
            found |= {
                ("disjoint", fact_text(Atom(one, args)), fact_text(Atom(other, args)))
                for args in both
            }
    classes = {name: {name} for fact in rows["same"] for name in fact.args}
    for fact in rows["same"]:
        united = classes[fact.args[0]] | classes[fact.args[1]]
        classes |= dict.fromkeys(united, united)
    for fact in rows["different"]:
        if fact.args[1] in classes.get(fact.args[0], ()):
            found.add(("different", *fact.args))
    aged = {fact.args[0] for fact in rows["age"]}
    for cat in rows["cat"]:
        if cat.args[0] not in aged:
            missing = fact_text(Atom("age", (*cat.args, "_"))).replace('"_"', "_")
            found.add(("total", fact_text(cat), missing))
    for seat in rows["seat"]:
        row = seat.args[0]
        if Atom("row", (row,)) not in known:
            found.add(("total", fact_text(seat), fact_text(Atom("row", (row,)))))
        if not any(fact.args[0] == row for fact in rows["likes"]):
            missing = fact_text(Atom("likes", (row, "_"))).replace('"_")', "_)")
            found.add(("total", fact_text(seat), missing))
    return found


@pytest.mark.parametrize("engine", [Engine, ReferenceEngine])
@examples(100)
@given(st.lists(facts, max_size=14, unique=True), st.data())
def test_violations_are_those_of_the_definition(engine, listed, data):
    world = programs.World(engine(), RuleSet(rules()))
    world.tell(listed)
    assert world.ask(GOAL) == violations(set(listed))
    gone = data.draw(st.lists(st.sampled_from(listed), unique=True)) if listed else []
    for fact in gone:
        world.retract(fact)
    assert world.ask(GOAL) == violations(set(listed) - set(gone))


@given(facts)
def test_the_text_of_a_fact_is_read_as_the_fact(fact):
    assert parse_atom(fact_text(fact)) == fact
