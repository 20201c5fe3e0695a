"""Every answer of a random program has a proof, and an independent checker agrees with every node of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import naive, programs
from support.proofs import Checker

from kbcore.config import Config
from kbcore.errors import InvalidInput
from kbcore.kb import KnowledgeBase
from kbcore.runtime import Runtime, open_runtime
from kbcore.state.facts import Fact
from kbplanner.terms import Atom, Literal, Rule

from .test_programs import random_rules

NUMBER = count()


@pytest.fixture(scope="module", params=["python", "c"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with open_runtime(Config(storage_backend="memory", engine=request.param)) as runtime:
        yield runtime


def told(runtime: Runtime, rules: list[Rule], facts: list[Atom]) -> KnowledgeBase:
    kb = runtime.knowledge_base(tenant=f"t{next(NUMBER)}")
    assume(naive.stratified(rules))
    try:
        kb.assert_rules(rules)
    except InvalidInput:
        assume(False)
    kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts])
    return kb


programs_with_goals = given(
    random_rules,
    st.lists(programs.facts(), max_size=14),
    st.lists(st.builds(Literal, programs.goals(), st.booleans()), min_size=1, max_size=4),
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@programs_with_goals
def test_every_answer_has_a_proof_that_holds(runtime, rules, facts, literals):
    kb = told(runtime, rules, facts)
    checker = Checker(rules, facts)
    for literal in literals:
        rows = kb.infer(literal)
        found = kb.prove(literal, form="dag", nodes=10_000)
        assert [proof["result"] for proof in found] == rows
        for proof in found:
            assert not proof["proof"]["truncated"]
            checker.dag(proof, 10_000)
        for proof, row in zip(kb.prove(literal, nodes=200), rows, strict=True):
            assert proof["result"] == row
            checker.tree(proof, 200, 100)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@programs_with_goals
def test_a_proof_that_is_cut_is_still_sound(runtime, rules, facts, literals):
    kb = told(runtime, rules, facts)
    checker = Checker(rules, facts)
    for literal in literals:
        for proof in kb.prove(literal, form="dag", nodes=3):
            checker.dag(proof, 3)
        for proof in kb.prove(literal, nodes=4, depth=2):
            checker.tree(proof, 4, 2)
