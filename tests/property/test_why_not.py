"""Explanations of goals without answers, against the naive evaluator: what is missing is really
missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.runtimes import runtime_on

from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.node.runtime import Runtime
from kbcore.operations.tenant_kb import TenantKB
from kbcore.proofs.candidates import WhyNot, WhyNotCandidate
from kbcore.reason.budget import RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    BodyItem,
    Comparison,
    Literal,
    Rule,
    Variable,
    extremum_of,
)
from kbplanner.ir.unify import substituted, unify
from kbplanner.syntax.parser import parse_goal, parse_rule
from kbplanner.syntax.printer import print_item, print_rule

from .test_programs import computing_rules, random_rules, wide_rules
from .test_well_founded import random_rules as negative_rules

NUMBER = count()
ALL = AnswerOptions(limit=100)


def as_written(rules: list[Rule]) -> list[Rule]:
    return [parse_rule(print_rule(rule)) for rule in rules]


written_rules = st.one_of(random_rules, computing_rules, wide_rules).map(as_written)
literals = st.builds(Literal, programs.goals(), st.booleans()).filter(
    lambda literal: not literal.negated or literal.atom.positive or literal.atom.ground
)


@pytest.fixture(scope="module", params=["python", "c"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with runtime_on(request.param) as runtime:
        yield runtime


def stored(runtime: Runtime, rules: list[Rule], facts: list[Atom]) -> TenantKB:
    kb = runtime.knowledge_base(tenant=f"t{next(NUMBER)}")
    try:
        kb.assert_rules(rules)
    except InvalidInput:
        assume(False)
    kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts])
    return kb


class World:
    """The true and the possible atoms, and the truth of premises in them."""

    def __init__(self, true: naive.Model, possible: naive.Model) -> None:
        self.true = true
        self.possible = possible

    def truth(self, item: BodyItem) -> str:
        """The truth value of a premise; variables in an atom stand for any value."""
        if self._holds(item, self.true, self.possible):
            return "true"
        return "undefined" if self._holds(item, self.possible, self.true) else "false"

    def _holds(self, item: BodyItem, model: naive.Model, assumed: naive.Model) -> bool:
        if isinstance(item, Literal) and not item.negated:
            return bool(naive.answers(model, item.atom))
        if isinstance(item, Comparison):
            unbound = [side for side in (item.left, item.right) if isinstance(side, Variable)]
            if unbound:  # an equation that has nothing to give the variable
                assert item.op == "="
                (other,) = (side for side in (item.left, item.right) if side not in unbound)
                return value_of(other) is not None
        return naive.holds(item, {}, model, assumed)

    def instances(self, rule: Rule, goal: Atom, body: list[BodyItem]) -> list[dict]:
        """The bindings for which premises of a rule are true and its head matches the goal."""
        values = unify(rule.head, goal)
        assert values is not None
        part = Rule(rule.head, tuple(substituted(item, values) for item in body))
        return list(naive.envs(part, self.true, self.possible))


def value_of(expr) -> str | None:
    assert not isinstance(expr, Apply) or not any(isinstance(arg, Variable) for arg in expr.args)
    return naive._value(expr, {})


def check_candidate(world: World, rules: list[Rule], candidate: WhyNotCandidate) -> None:
    for item in candidate.satisfied:
        assert world.truth(item) == "true", print_item(item)
    missing = candidate.missing
    if isinstance(missing, Comparison) and any(
        isinstance(side, Apply) and side.function in ("sum", "min", "max", "avg", "count")
        for side in (missing.left, missing.right)
        if not ground(side)
    ):
        return  # an aggregate without a value: `sum(?x) = 3`
    truth = world.truth(missing)
    assert truth != "true", print_item(missing)
    assert candidate.undefined == (truth == "undefined" and isinstance(missing, Literal))
    if candidate.blocked_by is not None:
        assert isinstance(missing, Literal)
        assert missing.negated
        assert world.truth(Literal(candidate.blocked_by)) == "true"
        assert world.truth(Literal(candidate.blocked_by, negated=True)) == "false"
        assert naive._unify(missing.atom.args, candidate.blocked_by.args, {}) is not None
    elif isinstance(missing, Literal) and missing.negated:
        assert candidate.undefined
    if candidate.rule is not None:
        assert candidate.rule.rule in rules
        check_shape(candidate)


def ground(expr) -> bool:
    if isinstance(expr, Apply):
        return all(ground(arg) for arg in expr.args)
    return not isinstance(expr, Variable)


def check_shape(candidate: WhyNotCandidate) -> None:
    """The premises of a candidate are those of its rule, with its bindings."""
    rule = candidate.rule.rule
    bindings = {Variable(name[1:]): value for name, value in candidate.bindings.items()}
    body = [substituted(item, bindings) for item in rule.body]
    shown = [*candidate.satisfied]
    if len(shown) < len(body):
        shown.append(candidate.missing)
    else:
        assert naive.aggregates(rule) or extremum_of(rule.head) is not None
    texts = sorted(blank(item) for item in body)
    for item in shown:
        assert blank(item) in texts
        texts.remove(blank(item))


def blank(item: BodyItem) -> str:
    """The text of a premise without the names of variables, which unification may change."""
    return print_item(substituted(item, {v: Variable("v") for v in item.variables()}))


def concludes(rule: Rule, goal: Atom, constants: set[str]) -> bool:
    """Whether some row is an instance of the head of a rule and of the goal."""
    if naive.key(rule.head) != naive.key(goal):
        return False
    free = (
        Variable(f"free{index}") if isinstance(arg, Aggregate) else arg
        for index, arg in enumerate(naive.terms(rule.head))
    )
    head = tuple(free)
    return any(
        naive._unify(head, row, {}) is not None and naive._unify(goal.args, row, {}) is not None
        for row in product(sorted(constants), repeat=len(head))
    )


def constants_of(rules: list[Rule], goal: Atom) -> set[str]:
    atoms = [goal, *(rule.head for rule in rules)]
    return {arg for atom in atoms for arg in atom.args if isinstance(arg, str)} | {"other"}


def check(world: World, rules: list[Rule], literal: Literal, result: WhyNot) -> None:
    for candidate in result.candidates:
        check_candidate(world, rules, candidate)
    lengths = [len(candidate.satisfied) for candidate in result.candidates]
    assert lengths == sorted(lengths, reverse=True)
    if literal.negated and literal.atom.ground:
        (candidate,) = result.candidates
        assert candidate.missing == literal
        return
    atom = literal.atom
    goal = Atom(atom.predicate, atom.args, atom.positive is not literal.negated)
    constants = constants_of(rules, goal)
    by_rule: dict[Rule, list[WhyNotCandidate]] = {}
    for candidate in result.candidates:
        by_rule.setdefault(candidate.rule.rule, []).append(candidate)
    matching = {rule for rule in rules if concludes(rule, goal, constants)}
    if not result.truncated and len(result.candidates) < ALL.limit:
        assert set(by_rule) == matching
    for rule, candidates in by_rule.items():
        (length,) = {len(candidate.satisfied) for candidate in candidates}
        if length < len(rule.body):
            items = in_order(rule, goal)
            assert world.instances(rule, goal, items[:length]) or not length
            assert not world.instances(rule, goal, items[: length + 1])
            every = {
                tuple(sorted((str(v), t) for v, t in env.items()))
                for env in world.instances(rule, goal, items[:length])
            }
            if len(result.candidates) < ALL.limit:
                assert len(candidates) == max(len(every), 1)
    if goal.ground:
        opposite = Atom(goal.predicate, goal.args, not goal.positive)
        denied = world.truth(Literal(opposite)) == "true"
        assert result.denied_by == (opposite if denied else None)


def in_order(rule: Rule, goal: Atom) -> list[BodyItem]:
    """The premises as they are documented to be taken: in the order of the text, but comparisons
    and negated literals as soon as their variables have values.
    """
    values = unify(rule.head, goal)
    assert values is not None
    known = {variable for variable, value in values.items() if isinstance(value, str)}
    alias = {v: value for v, value in values.items() if isinstance(value, Variable)}
    waiting, taken = list(rule.body), []

    def named(item) -> set[Variable]:
        return {alias.get(v, v) for v in item.variables() if not v.anonymous} - known

    while waiting:
        for item in waiting:
            free = named(item)
            if isinstance(item, Literal) and not item.negated:
                break
            if not free:
                break
            if isinstance(item, Comparison) and item.op == "=" and not item.negated:
                sides = ((item.left, item.right), (item.right, item.left))
                if any(
                    isinstance(target, Variable)
                    and free == {alias.get(target, target)}
                    and alias.get(target, target) not in named(Comparison("=", source, source))
                    for target, source in sides
                ):
                    break
        waiting.remove(item)
        taken.append(item)
        known |= named(item)
    return taken


@examples(400)
@given(
    written_rules,
    st.lists(programs.facts(), max_size=14),
    st.lists(literals, min_size=1, max_size=4),
)
def test_candidates_of_stratified_programs(runtime, rules, facts, goals):
    assume(naive.stratified(rules))
    try:
        model = naive.model(rules, facts, most=100)
    except naive.TooLarge:
        assume(False)
    kb = stored(runtime, rules, facts)
    world = World(model, model)
    for literal in goals:
        result = kb.why_not([literal], ALL)
        assert result.holds == bool(kb.infer(literal))
        assert not result.truncated
        if result.holds:
            assert not result.candidates
        else:
            check(world, rules, literal, result)


@examples(300)
@given(
    negative_rules.map(as_written),
    st.lists(programs.facts(), max_size=14),
    st.lists(literals, min_size=1, max_size=4),
)
def test_candidates_under_recursion_through_negation(runtime, rules, facts, goals):
    kb = stored(runtime, rules, facts)
    world = World(*naive.well_founded(rules, facts))
    for literal in goals:
        result = kb.why_not([literal], ALL)
        if not literal.negated or literal.atom.ground:
            assert result.truth == world.truth(literal)
        if not result.holds:
            check(world, rules, literal, result)


@examples(200)
@given(written_rules, st.lists(programs.facts(), max_size=14), st.data())
def test_goals_of_several_literals(runtime, rules, facts, data):
    assume(naive.stratified(rules))
    try:
        model = naive.model(rules, facts, most=100)
    except naive.TooLarge:
        assume(False)
    kb = stored(runtime, rules, facts)
    world = World(model, model)
    body = parse_goal(", ".join(map(print_item, data.draw(programs.rules()).body))).body
    assume(len(body) > 1)
    result = kb.why_not(body, ALL)
    answers = list(naive.envs(Rule(Atom("goal"), tuple(body)), model))
    assert result.holds == bool(answers)
    assert result.holds == (not result.candidates)
    for candidate in result.candidates:
        check_candidate(world, rules, candidate)
        assert candidate.rule is None


@examples(150)
@given(
    written_rules,
    st.lists(programs.facts(), max_size=14),
    programs.goals(),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_a_search_with_a_small_budget_is_still_right(runtime, rules, facts, goal, rows, depth):
    assume(naive.stratified(rules))
    try:
        model = naive.model(rules, facts, most=100)
    except naive.TooLarge:
        assume(False)
    kb = stored(runtime, rules, facts)
    assume(not kb.infer(Literal(goal)))
    world = World(model, model)
    options = AnswerOptions(limit=3, request_limits=RequestLimits(steps=rows * 20))
    try:
        result = kb.why_not([Literal(goal)], options, depth=depth)
    except BudgetExceeded:  # not enough to decide that the goal has no answer
        assume(False)
    candidates = list(result.candidates)
    assert len(candidates) <= 3
    while candidates:
        candidate = candidates.pop()
        if candidate.because is not None:
            assert isinstance(candidate.missing, Literal)
            assert unify(candidate.because.rule.rule.head, candidate.missing.atom) is not None
            candidates.append(candidate.because)
        check_candidate(world, rules, candidate)
