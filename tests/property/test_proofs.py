"""Every answer of a random program has a proof that an independent checker accepts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.proofs import Checker, row_atom
from support.runtimes import runtime_on

from kbcore.errors import InvalidInput
from kbcore.node.runtime import Runtime
from kbcore.operations.tenant_kb import TenantKB
from kbcore.proofs import prover
from kbcore.proofs.shapes import ProofOptions
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.engine.backend import RunLimits
from kbplanner.evaluate import race
from kbplanner.ir.terms import Atom, Literal, Rule
from kbplanner.syntax.parser import parse_rule
from kbplanner.syntax.printer import print_rule

from .test_programs import computing_rules, random_rules, wide_rules

NUMBER = count()

written_rules = st.one_of(random_rules, computing_rules, wide_rules).map(
    lambda rules: [parse_rule(print_rule(rule)) for rule in rules]
)
"""As people write them: the text of `not ?x = a` is `?x != a`."""


@pytest.fixture(scope="module", params=["python", "c"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with runtime_on(request.param) as runtime:
        yield runtime


def small(rules: list[Rule], facts: list[Atom]) -> bool:
    """Whether the oracle can try all instances in reasonable time."""
    try:
        naive.model(rules, facts, most=100)
    except naive.TooLarge:
        return False
    return True


def told(runtime: Runtime, rules: list[Rule], facts: list[Atom]) -> TenantKB:
    kb = runtime.knowledge_base(tenant=f"t{next(NUMBER)}")
    assume(naive.stratified(rules))
    assume(small(rules, facts))
    try:
        kb.assert_rules(rules)
    except InvalidInput:
        assume(False)
    kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts])
    return kb


literals = st.builds(Literal, programs.goals(), st.booleans()).filter(
    lambda literal: not literal.negated or literal.atom.positive or literal.atom.ground
)
"""Goals; `not ~p(?x)` is none that anything could list."""

programs_with_goals = given(
    written_rules,
    st.lists(programs.facts(), max_size=14),
    st.lists(literals, min_size=1, max_size=4),
)


def checked_proofs(kb, checker, literal):
    """The proofs of the answers of a goal, one for each, whole and checked."""
    proofs = kb.prove(literal, proof=ProofOptions(form="dag", nodes=10_000))
    assert [proof["result"] for proof in proofs] == kb.infer(literal)
    for proof in proofs:
        assert not proof["proof"]["truncated"]
        checker.dag(proof, 10_000)
    return proofs


@examples(400)
@programs_with_goals
def test_every_answer_has_a_proof_that_holds(runtime, rules, facts, literals):
    kb = told(runtime, rules, facts)
    checker = Checker(rules, facts)
    for literal in literals:
        proofs = checked_proofs(kb, checker, literal)
        rows = [proof["result"] for proof in proofs]
        for proof, row in zip(kb.prove(literal, proof=ProofOptions(nodes=200)), rows, strict=True):
            assert proof["result"] == row
            checker.tree(proof, 200, 100)


BRANCHING = [
    parse_rule(text)
    for text in (
        "p(?x, ?z) :- q(?x, ?y), p(?y, ?z).",
        "p(?x, ?z) :- q(?x, ?y), q(?y, ?z).",
        "q(?x, ?z) :- p(?x, ?y), q(?z, ?y).",
        "q(?y, ?x) :- p(?x, ?y), q(?y, ?_).",
        "q(?x, ?y) :- e(?x, ?y), p(?y, ?_), not n(?x).",
        "p(?x, ?y) :- f(?x, ?u), p(?u, ?v), q(?v, ?w), p(?w, ?y).",
        "p(?x, ?y) :- s(?x, ?u, ?y), e(?u, ?v), ?v != ?x.",
        "s(?x, ?y, ?z) :- p(?x, ?y), p(?y, ?z), t(?z, ?_, ?_).",
        "s(?x, ?x, ?z) :- s(?x, ?y, ?z), s(?y, ?x, ?z), q(?y, a).",
        "r(?x) :- r(?y), r(?z), p(?y, ?z), e(?x, ?y).",
        "on :- on, r(?x), p(?x, ?x).",
        "r(?x) :- on, n(?x), r(?y).",
        "p(?x, ?y) :- e(?x, ?y).",
        "q(?x, ?y) :- f(?x, ?y).",
        "r(?x) :- n(?x).",
    )
]
"""Recursions with several recursive atoms, and what begins them."""

branching_rules = st.builds(
    lambda branching, others: [*branching, *others],
    st.lists(st.sampled_from(BRANCHING), min_size=3, max_size=9, unique=True),
    st.one_of(st.just([]), written_rules.map(lambda found: found[:2])),
)


@pytest.mark.parametrize("full", [False, True])
@examples(300)
@given(
    branching_rules,
    st.lists(programs.facts(), min_size=4, max_size=20),
    st.lists(literals, min_size=1, max_size=4),
)
def test_proofs_from_first_instances_hold(runtime, full, rules, facts, literals):
    kb = told(runtime, rules, facts)
    checker = Checker(rules, facts, lowest=False)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(prover, "LOWEST_LIMITS", RunLimits(rows=1)))
        if full:
            patches.enter_context(mock.patch.object(race, "HEAD_START_STEPS", 1))
            patches.enter_context(mock.patch.object(race, "HEAD_START_STEPS_PER_FACT", 0))
            patches.enter_context(mock.patch.object(race, "FIRST_TURN_STEPS", 1))
        for literal in literals:
            for proof in checked_proofs(kb, checker, literal):
                for node in proof["proof"]["nodes"].values():
                    assert node["kind"] != "derived" or row_atom(node["fact"]) not in checker.facts
            for proof in kb.prove(literal, proof=ProofOptions(nodes=200)):
                checker.tree(proof, 200, 100)


@examples(100)
@programs_with_goals
def test_a_truncated_proof_is_still_valid(runtime, rules, facts, literals):
    kb = told(runtime, rules, facts)
    checker = Checker(rules, facts)
    for literal in literals:
        for proof in kb.prove(literal, proof=ProofOptions(form="dag", nodes=3)):
            checker.dag(proof, 3)
        for proof in kb.prove(literal, proof=ProofOptions(nodes=4, depth=2)):
            checker.tree(proof, 4, 2)


@examples(200)
@given(
    written_rules,
    st.lists(
        st.tuples(programs.facts(), st.sampled_from([None, (-100, 50), (20, 200), (-50, -10)])),
        max_size=12,
    ),
    st.lists(literals, min_size=1, max_size=3),
    st.sampled_from([None, 30, 100]),
)
def test_proofs_use_the_facts_valid_at_that_time(runtime, rules, facts, literals, later):
    kb = told(runtime, rules, [])
    now = runtime.clock.now_ms()
    at = now + (later or 0)
    valid: dict[Atom, bool] = {}
    for atom, window in facts:
        start, end = (now + edge for edge in window) if window else (None, None)
        kb.assert_facts([Fact(atom.predicate, atom.args, atom.positive, None, None, start, end)])
        valid[atom] = window is None or start <= at < end
    held = [atom for atom, holds in valid.items() if holds]
    assume(small(rules, held))
    checker = Checker(rules, held)
    for literal in literals:
        rows = kb.infer(literal, AnswerOptions(as_of=None if later is None else at))
        found = kb.prove(
            literal,
            AnswerOptions(as_of=None if later is None else at),
            ProofOptions(form="dag", nodes=10_000),
        )
        assert [proof["result"] for proof in found] == rows
        for proof in found:
            checker.dag(proof, 10_000)
