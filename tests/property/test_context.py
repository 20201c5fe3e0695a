"""Windows of random knowledge: they prove the goals, respect budgets, and have exact diffs."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.context.request import WindowRequest
from kbcore.context.text.tokens import tokens
from kbcore.context.window import GOAL_RELEVANT
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, Literal, Variable
from kbplanner.syntax.parser import parse_rule
from kbtypes.windows import Bucket, Entry

RULES = [
    parse_rule(text)
    for text in (
        "path(?x, ?y) :- edge(?x, ?y).",
        "path(?x, ?z) :- edge(?x, ?y), path(?y, ?z).",
        "both(?x) :- path(?x, ?y), path(?y, ?x), ?x != ?y.",
        "~open(?x) :- shut(?x).",
        "lone(?x) :- node(?x), not path(?x, ?x).",
        "degree(?x, count(?y)) :- edge(?x, ?y).",
    )
]
X, Y = Variable("x"), Variable("y")
NAMES = st.sampled_from("abcd")
FACTS = st.one_of(
    st.builds(lambda x, y: Fact("edge", (x, y)), NAMES, NAMES),
    st.builds(
        lambda p, x, sign: Fact(p, (x,), sign),
        st.sampled_from(("node", "open", "shut")),
        NAMES,
        st.booleans(),
    ),
    st.builds(lambda x, ttl: Fact("edge", (x, "d"), ttl=ttl), NAMES, st.integers(1, 3000)),
)
GOALS = st.lists(
    st.one_of(
        st.builds(lambda x: Literal(Atom("path", (x, Y))), NAMES),
        st.sampled_from([Literal(Atom(p, (X,))) for p in ("both", "open", "lone", "node")]),
        st.just(Literal(Atom("degree", (X, Y)))),
        st.builds(lambda x: Literal(Atom("open", (x,)), negated=True), NAMES),
    ),
    max_size=3,
)
BUCKETS = st.sampled_from([(), (Bucket("e", ("edge",), 2.0), Bucket("rest", None, 1.0))])
NAMED = st.sampled_from([None, None, ("edge", "both"), ("open",), ()])
WRITES = st.lists(st.tuples(st.booleans(), FACTS, st.integers(0, 2000)), min_size=1, max_size=12)


def write(kb, clock, writes):
    for told, fact, pause in writes:
        if told:
            kb.assert_facts([fact])
        else:
            kb.retract_fact(fact.predicate, fact.args, positive=fact.positive)
        clock.advance(pause)


def atoms(entries: Iterable[Entry]) -> set[tuple[str, tuple[str, ...], bool]]:
    return {(entry.predicate, entry.args, entry.negated) for entry in entries}


def told(entry: Entry) -> Entry:
    """An entry without what a diff does not report: salience, category, the goal it was selected
    for, and when something was concluded.
    """
    created_at = 0 if entry.provenance else entry.created_at
    return entry._replace(salience=0.0, category="", goal=None, created_at=created_at)


@examples(60)
@given(WRITES, GOALS)
def test_what_a_window_holds_proves_its_goals(writes, goals):
    clock = ManualClock()
    with runtime(clock=clock) as node, runtime(clock=clock) as other:
        kb, again = node.knowledge_base(), other.knowledge_base()
        kb.assert_rules(RULES)
        write(kb, clock, writes)
        found = kb.context(WindowRequest(max_facts=1000, goals=goals, auto_resolve=False))
        needed = [entry for entry in found.entries if entry.category == GOAL_RELEVANT]
        again.assert_rules(RULES)
        stored = [entry for entry in needed if entry.provenance is None]
        again.assert_facts([Fact(e.predicate, e.args, not e.negated) for e in stored])
        for goal in goals:
            answers = {
                (row["predicate"], tuple(row["args"]), row["negated"]) for row in kb.infer(goal)
            }
            assert answers <= atoms(needed)
            if goal.atom.predicate != "lone" and not goal.negated:
                assert answers == {
                    (r["predicate"], tuple(r["args"]), r["negated"]) for r in again.infer(goal)
                }


@examples(80)
@given(
    WRITES,
    GOALS,
    st.integers(1, 8),
    st.integers(1, 30),
    st.sampled_from([None, 1, 2]),
    BUCKETS,
    NAMED,
)
def test_windows_respect_their_guarantees(writes, goals, most, most_tokens, alike, buckets, named):
    clock = ManualClock()
    with runtime(clock=clock) as node:
        kb = node.knowledge_base()
        kb.assert_rules(RULES)
        write(kb, clock, writes)
        limits = {
            "max_facts": most,
            "max_tokens": most_tokens,
            "max_per_predicate": alike,
            "predicates": named,
        }
        asked = WindowRequest(goals=goals, buckets=buckets, **limits)
        found = kb.context(asked)
        assert kb.context(asked) == found
        assert len(found.entries) <= most
        assert tokens(found.chars) <= most_tokens
        held = atoms(found.entries)
        assert len(held) == len(found.entries)
        assert not [one for one in held if (one[0], one[1], not one[2]) in held]
        assert named is None or {entry.predicate for entry in found.entries} <= set(named)
        if alike is not None:
            for name in {entry.predicate for entry in found.entries}:
                assert sum(entry.predicate == name for entry in found.entries) <= alike
        for share in found.buckets.values():
            assert share.facts_included <= share.max_allocation
        for entry in found.entries:
            if entry.provenance is None:
                rows = kb.query_rows(entry.predicate, entry.args, positive=not entry.negated)
                assert len(rows) == 1  # stored, and valid now


@examples(60)
@given(st.lists(WRITES, min_size=1, max_size=4), GOALS, st.integers(1, 8))
def test_a_window_and_its_diffs_are_the_next_window(turns, goals, most):
    clock = ManualClock()
    with runtime(clock=clock) as node:
        kb = node.knowledge_base()
        kb.assert_rules(RULES)
        write(kb, clock, turns[0])
        asked = WindowRequest(max_facts=most, goals=goals, session="s")
        first = kb.context(asked)
        known, last = {e.key: told(e) for e in first.entries}, first.id
        for writes in turns[1:]:
            write(kb, clock, writes)
            diff = kb.context_diff("s", {})
            assert diff.previous == last
            for entry in diff.removed:
                del known[entry.key]
            assert len(known) == diff.unchanged
            known.update((e.key, told(e)) for e in diff.added)
            last = diff.current
            now = kb.context(asked)
            assert (now.id, {e.key: told(e) for e in now.entries}) == (last, known)
