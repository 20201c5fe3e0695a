"""Conclusions that no longer hold with a group, a grant or a folder: many, with a common
constant.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import naive
from support.examples import examples
from support.runtimes import runtime

from kbcore.retraction import changes
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom
from kbplanner.syntax.parser import parse_rule

RULES = [
    parse_rule(text)
    for text in (
        "belongs(?who, ?group) :- member(?who, ?group).",
        "belongs(?who, ?group) :- member(?who, ?inner), belongs(?inner, ?group).",
        "granted(?group, ?right, ?thing) :- grant(?group, ?right, ?thing).",
        "granted(?group, ?right, ?thing) :- inside(?thing, ?box), grant(?group, ?right, ?box).",
        "may(?who, ?right, ?it) :- belongs(?who, ?g), granted(?g, ?right, ?it), not banned(?who, ?it).",
    )
]


def names(letter, count):
    return st.sampled_from([f"{letter}{number}" for number in range(count)])


FACTS = st.one_of(
    st.tuples(st.just("member"), st.tuples(names("u", 6), names("g", 4))),
    st.tuples(st.just("member"), st.tuples(names("g", 4), names("g", 4))),
    st.tuples(st.just("grant"), st.tuples(names("g", 4), st.just("read"), names("b", 3))),
    st.tuples(st.just("inside"), st.tuples(names("t", 6), names("b", 3))),
    st.tuples(st.just("banned"), st.tuples(names("u", 6), names("t", 6))),
)
LIMITS = {
    "each": {},
    "groups": {"TEST_STEPS_PER_CANDIDATE": 0, "TEST_STEPS": 1},
    "each, without a limit": {
        "TEST_STEPS_PER_CANDIDATE": 0,
        "TEST_STEPS": 1,
        "GROUP_ROWS_PER_CANDIDATE": 0,
        "GROUP_ROWS": 1,
    },
}


def crowd(users=12, things=12):
    """Users of the group g0, which is in g1, which may read a box of things; one user may
    anyway.
    """
    facts = [("member", (f"u{n}", "g0")) for n in range(users)]
    facts += [("inside", (f"t{n}", "b0")) for n in range(things)]
    facts += [("member", ("g0", "g1")), ("grant", ("g1", "read", "b0"))]
    facts += [("member", ("u0", "g1")), ("grant", ("g0", "read", "t1")), ("banned", ("u2", "t2"))]
    return facts


def check(facts, gone):
    """Retract facts one after the other; compare each answer with the models before and after."""
    left = set(facts)

    def conclusions():
        held = [Atom(*fact) for fact in left]
        model = naive.model(RULES, held)
        rows = {(key[0], row) for key, found in model.items() for row in found}
        return {row for row in rows if row[0] in ("belongs", "granted", "may")}

    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules(RULES)
        kb.assert_facts([Fact(*fact) for fact in sorted(left)])
        before = conclusions()
        for fact in gone:
            left.discard(fact)
            outcome = kb.retract_fact(*fact)
            after = conclusions()
            shown = {(row["predicate"], tuple(row["args"])) for row in outcome.cascaded_atoms}
            assert shown == before - after
            assert outcome.cascaded == len(before - after)
            assert outcome.newly_derivable == len(after - before)
            assert not outcome.truncated
            before = after


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize(
    "fact",
    [("member", ("g0", "g1")), ("grant", ("g1", "read", "b0")), ("banned", ("u2", "t2"))],
    ids=lambda fact: fact[0],
)
def test_every_test_of_candidates_counts_the_same(monkeypatch, limits, fact):
    for name, value in limits.items():
        monkeypatch.setattr(changes, name, value)
    check(crowd(), [fact])


@pytest.mark.parametrize(("name", "asks_groups"), [("each", False), ("groups", True)])
def test_goals_for_groups_come_after_tests_that_reach_their_limit(monkeypatch, name, asks_groups):
    for limit, value in LIMITS[name].items():
        monkeypatch.setattr(changes, limit, value)
    asked = []
    answers = changes.ComponentChanges._answers

    def counted(self, schema, patterns, budget):
        asked.append(schema.predicate)
        return answers(self, schema, patterns, budget)

    monkeypatch.setattr(changes.ComponentChanges, "_answers", counted)
    check(crowd(), [("member", ("g0", "g1"))])
    assert ("may" in asked) == asks_groups


@examples(100)
@given(
    st.lists(FACTS, min_size=12, max_size=40, unique=True),
    st.sampled_from(sorted(LIMITS)),
    st.data(),
)
def test_random_groups(facts, name, data):
    gone = data.draw(st.lists(st.sampled_from(facts), min_size=1, max_size=4, unique=True))
    with pytest.MonkeyPatch.context() as patch:
        for limit, value in LIMITS[name].items():
            patch.setattr(changes, limit, value)
        check(facts, gone)
