"""Proposals against all sets of changes, evaluated by the naive evaluator: those of the least size
are all found, and every proposal is enough and has no part that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, count, product
from math import comb

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive
from support.examples import examples
from support.runtimes import runtime_on

from kbcore.errors import InvalidInput
from kbcore.node.runtime import Runtime
from kbcore.operations.tenant_kb import TenantKB
from kbcore.proofs.how_to import MAX_CHANGES, HowToOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Aggregate, Atom, Comparison, Literal, Rule, Variable
from kbplanner.syntax.parser import parse_goal, parse_rule
from kbplanner.syntax.printer import print_atom, print_rule

NUMBER = count()
CONSTANTS = ["a", "b"]
INPUTS = [("e", 2), ("n", 1), ("flag", 0)]
DERIVED = [("p", 1), ("q", 2), ("on", 0)]
VARIABLES = [Variable(name) for name in "xyz"]
ALL, MOST_SETS = 100, 3000

terms = st.sampled_from([*VARIABLES, *VARIABLES, *CONSTANTS])


@st.composite
def literals(draw, predicates, signs=True):
    name, arity = draw(st.sampled_from(predicates))
    positive = not signs or draw(st.integers(0, 5)) > 0
    return Atom(name, tuple(draw(terms) for _ in range(arity)), positive)


@st.composite
def rules(draw):
    body = [
        Literal(draw(literals(INPUTS + INPUTS + DERIVED))) for _ in range(draw(st.integers(1, 3)))
    ]
    bound = sorted({v.name for item in body for v in item.variables()})
    own = st.sampled_from([*map(Variable, bound), *map(Variable, bound), *CONSTANTS])
    if draw(st.integers(0, 2)) == 0:
        name, arity = draw(st.sampled_from(INPUTS + DERIVED))
        args = tuple(draw(st.one_of(own, st.just(Variable("_")))) for _ in range(arity))
        body.append(Literal(Atom(name, args), negated=True))
    if draw(st.integers(0, 4)) == 0:
        body.append(
            Comparison(
                draw(st.sampled_from(["=", "!=", "<"])), draw(own), draw(own), draw(st.booleans())
            )
        )
    name, arity = draw(st.sampled_from(DERIVED))
    args = [draw(own) for _ in range(arity)]
    if arity == 2 and bound and draw(st.integers(0, 5)) == 0:
        args[1] = Aggregate("count", Variable(draw(st.sampled_from(bound))))
    positive = draw(st.integers(0, 7)) > 0
    return Rule(Atom(name, tuple(args), positive), tuple(draw(st.permutations(body))))


@st.composite
def facts(draw):
    name, arity = draw(st.sampled_from(INPUTS * 3 + DERIVED))
    args = tuple(draw(st.sampled_from(CONSTANTS)) for _ in range(arity))
    return Atom(name, args, draw(st.integers(0, 7)) > 0)


@st.composite
def goals(draw):
    name, arity = draw(st.sampled_from(DERIVED))
    return Literal(
        Atom(name, tuple(draw(st.sampled_from(CONSTANTS)) for _ in range(arity))),
        draw(st.integers(0, 3)) == 0,
    )


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with runtime_on("c") as runtime:
        yield runtime


def stored(runtime: Runtime, rules: list[Rule], facts: list[Atom]) -> TenantKB:
    kb = runtime.knowledge_base(tenant=f"t{next(NUMBER)}")
    try:
        kb.assert_rules(rules)
    except InvalidInput:
        assume(False)
    kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts])
    return kb


def constants_in(rules: list[Rule], facts: list[Atom], goal: Literal) -> list[str]:
    constants = {arg for atom in [*facts, goal.atom] for arg in atom.args}
    for rule in rules:
        constants |= {arg for arg in rule.head.args if isinstance(arg, str)}
        for item in rule.body:
            sides = item.atom.args if isinstance(item, Literal) else (item.left, item.right)
            constants |= {side for side in sides if isinstance(side, str)}
    return sorted(constants)


def universe(
    rules: list[Rule], facts: list[Atom], goal: Literal, changing: tuple[str, ...]
) -> list[Atom]:
    """Every fact that may be added or removed."""
    constants = constants_in(rules, facts, goal)
    heads = {naive.key(rule.head) for rule in rules}
    read = {
        naive.key(item.atom) for rule in rules for item in rule.body if isinstance(item, Literal)
    }
    known = heads | read | {naive.key(goal.atom)} | {naive.key(fact) for fact in facts}
    keys = [
        (name, arity, positive)
        for name, arity in {(name, arity) for name, arity, _ in known}
        for positive in (True, False)
        if (positive or (name, arity, False) in known)
        and ((name, arity, positive) not in heads or name in changing)
    ]
    return [
        Atom(name, args, positive)
        for name, arity, positive in keys
        for args in product(constants, repeat=arity)
    ]


def is_enough(rules, facts: set[Atom], goal: Literal, make: str) -> bool:
    model = naive.model(rules, facts)
    return (
        naive.holds(goal, {}, model) == (make == "true")
        if goal.negated
        else bool(naive.answers(model, goal.atom)) == (make == "true")
    )


def texts(changes, facts: set[Atom]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (
        tuple(sorted(print_atom(atom) for atom in changes if atom not in facts)),
        tuple(sorted(print_atom(atom) for atom in changes if atom in facts)),
    )


def parse_fact(text: str) -> Atom:
    (item,) = parse_goal(text).body
    assert isinstance(item, Literal)
    return item.atom


@examples(150)
@given(
    st.lists(rules(), min_size=1, max_size=4),
    st.lists(facts(), max_size=6),
    goals(),
    st.sampled_from(["true", "false"]),
    st.sampled_from([(), (), ("p",), ("q",)]),
    st.sampled_from([ALL, ALL, 1, 3]),
)
def test_proposals_against_all_sets_of_changes(runtime, rules, facts, goal, make, changing, limit):
    rules = [parse_rule(print_rule(rule)) for rule in rules]
    assume(naive.stratified(rules))
    names = {atom.predicate for atom in [*facts, goal.atom, *(rule.head for rule in rules)]}
    changing = tuple(name for name in changing if name in names)
    base = set(facts)
    atoms = universe(rules, facts, goal, changing)
    result = stored(runtime, rules, facts).how_to([goal], HowToOptions(make, changing, limit))
    if result.truth == make:
        assert is_enough(rules, base, goal, make)
        assert not result.proposals
        return
    assert not is_enough(rules, base, goal, make)
    proposals = [(proposal.add, proposal.remove) for proposal in result.proposals]
    for add, remove in proposals:
        changes = {parse_fact(text) for text in chain(add, remove)}
        assert {naive.key(atom) for atom in changes} <= {naive.key(atom) for atom in atoms}
        assert texts(changes, base) == (add, remove)
        for size in range(len(changes) + 1):
            for part in combinations(changes, size):
                assert is_enough(rules, base ^ set(part), goal, make) == (size == len(changes))
    assert proposals == sorted(proposals, key=lambda each: (len(each[0]) + len(each[1]), each))
    if result.truncated:
        return
    known = set(map(print_atom, atoms))
    for size in range(1, MAX_CHANGES + 1):
        assume(comb(len(atoms), size) <= MOST_SETS)
        expected = {
            texts(part, base)
            for part in combinations(atoms, size)
            if is_enough(rules, base ^ set(part), goal, make)
        }
        least = {
            (add, remove)
            for add, remove in proposals
            if len(add) + len(remove) == size and known.issuperset((*add, *remove))
        }  # others have a value that a rule computes
        if expected:
            assert least <= expected
            assert len(least) == min(len(expected), limit) or len(least) < len(proposals) == limit
            return
        assert not least
