"""Confidence, validity and marks of answers of random programs, against an oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.inherited_confidence import FOREVER, Oracle, Told
from support.runtimes import runtime_on

from kbcore.errors import InvalidInput
from kbcore.node.runtime import Runtime
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, Literal
from kbplanner.syntax.parser import parse_rule

from . import test_equivalence as equivalence
from .test_programs import computing_rules, random_rules, wide_rules
from .test_proofs import small

NUMBER = count()
CONFIDENCES = [None, None, 0.25, 0.5, 1.0]

told = st.tuples(
    programs.facts(),
    st.sampled_from(CONFIDENCES),
    st.sampled_from([None, None, -300, -200, 50]),
    st.sampled_from([None, None, 100, 200, -10]),
)


@pytest.fixture(scope="module", params=["python", "c"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with runtime_on(request.param) as runtime:
        yield runtime


@examples(400)
@given(
    st.one_of(random_rules, computing_rules, wide_rules),
    st.lists(st.sampled_from([None, None, None, 0.4, 0.8]), min_size=6, max_size=6),
    st.lists(told, max_size=12, unique_by=lambda one: one[0]),
    st.lists(programs.goals(), min_size=1, max_size=4),
    st.sampled_from([None, 60]),
)
def test_rows_have_the_confidence_of_the_best_proofs(runtime, rules, factors, facts, goals, later):
    check_rows(runtime, rules, factors, facts, goals, later)


closure_facts = st.tuples(
    equivalence.facts,
    st.sampled_from(CONFIDENCES),
    st.sampled_from([None, None, -300, -200, 50]),
    st.sampled_from([None, None, 100, 200, -10]),
)


@examples(200)
@given(
    st.sampled_from(
        [equivalence.PROGRAMS[name] for name in ("rules", "congruence", "closures", "two")]
    ).map(lambda texts: [parse_rule(text) for text in texts]),
    st.lists(st.sampled_from([None, None, None, 0.4, 0.8]), min_size=7, max_size=7),
    st.lists(closure_facts, max_size=9, unique_by=lambda one: one[0]),
    st.lists(equivalence.goals, min_size=1, max_size=3),
    st.sampled_from([None, 60]),
)
def test_pairs_of_closures_have_the_confidence_of_the_best_paths(
    runtime, rules, factors, facts, goals, later
):
    check_rows(runtime, rules, factors, facts, goals, later)


def check_rows(runtime, rules, factors, facts, goals, later):
    """Compare the values of the answers of goals with those of the oracle."""
    assume(naive.stratified(rules))
    rules = [replace(rule, confidence=factor) for rule, factor in zip(rules, factors, strict=False)]
    kb = runtime.knowledge_base(tenant=f"t{next(NUMBER)}")
    try:
        kb.assert_rules(rules)
    except InvalidInput:
        assume(False)
    now = runtime.clock.now_ms()
    at = now + (later or 0)
    valid: dict[Atom, Told] = {}
    for atom, confidence, start, end in facts:
        if end is not None and end <= (start or 0):
            start = end - 10  # an empty interval is an error
        valid_from, until = (None if offset is None else now + offset for offset in (start, end))
        kb.assert_facts(
            [
                Fact(
                    atom.predicate,
                    atom.args,
                    atom.positive,
                    None,
                    None,
                    valid_from,
                    until,
                    confidence,
                )
            ]
        )
        one = Told(confidence, valid_from or 0, until or FOREVER)
        if one.start <= at < one.end:
            valid[atom] = one
    assume(small(rules, list(valid)))
    oracle = Oracle(rules, valid)
    confidences, windows = oracle.confidences(), oracle.windows()
    for goal in goals:
        rows = kb.infer(Literal(goal), AnswerOptions(as_of=None if later is None else at))
        assert {tuple(row["args"]) for row in rows} == naive.answers(oracle.model, goal)
        for row in rows:
            atom = Atom(goal.predicate, tuple(row["args"]), goal.positive)
            own = valid.get(atom)
            start, end, firm = windows[atom]
            confidence = confidences[atom]
            inherits = own is None or (own.end != FOREVER and end > own.end)
            if own is not None and own.confidence is None:
                confidence = None
            assert row["confidence"] == confidence
            if inherits:
                assert row["validFrom"] == (start or None)
                assert row["validUntil"] == (None if end == FOREVER else end)
            assert row["metadata"].get("nonMonotonic", False) is (inherits and not firm)
            contradicted = atom.args in oracle.model.get(
                (goal.predicate, goal.arity, not goal.positive), ()
            )
            assert row["metadata"].get("contradicted", False) is contradicted
