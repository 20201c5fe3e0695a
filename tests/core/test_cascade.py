"""Conclusions that no longer hold after a retraction: the model before minus the model after."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.runtimes import runtime

import kbcore
from kbcore.reason.budget import RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.retraction import cascade, changes
from kbcore.retraction.rows import MAX_GROUPS, MIN_GROUP_SIZE, RowSet
from kbcore.state.facts import Fact
from kbplanner.engine.engine import Engine
from kbplanner.ir.terms import Atom
from kbplanner.syntax.parser import parse_goal, parse_rule


def conclusions(model, facts):
    asserted = {(naive.key(fact), fact.args) for fact in facts}
    return {(key, row) for key, rows in model.items() for row in rows} - asserted


@examples(150)
@given(
    st.lists(programs.rules(signs=False, negation=False), min_size=1, max_size=4),
    st.lists(programs.facts(signs=False), min_size=1, max_size=10, unique=True),
)
def test_positive_programs_lose_exactly_what_no_longer_follows(rules, facts):
    assume(naive.stratified(rules))
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules(rules)
        kb.assert_facts([Fact(fact.predicate, fact.args) for fact in facts])
        gone, rest = facts[0], facts[1:]
        outcome = kb.retract_fact(gone.predicate, gone.args)
        before, after = naive.model(rules, facts), naive.model(rules, rest)
        fallen = conclusions(before, facts) - conclusions(after, rest)
        shown = {(naive.key(atom), atom.args) for atom in _atoms(outcome.cascaded_atoms)}
        assert shown == fallen
        assert outcome.cascaded == len(fallen)
        assert not outcome.truncated
        assert outcome.still_derivable == (gone.args in after.get(naive.key(gone), ()))


@examples(300)
@given(
    st.lists(programs.rules(), min_size=1, max_size=5),
    st.lists(programs.facts(), min_size=1, max_size=10, unique=True),
)
def test_with_negation_conclusions_disappear_and_appear(rules, facts):
    assume(naive.stratified(rules))
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules(rules)
        kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts])
        gone, rest = facts[0], facts[1:]
        outcome = kb.retract_fact(gone.predicate, gone.args, positive=gone.positive)
        before, after = naive.model(rules, facts), naive.model(rules, rest)
        fallen = conclusions(before, facts) - conclusions(after, rest)
        assert {(naive.key(atom), atom.args) for atom in _atoms(outcome.cascaded_atoms)} == fallen
        assert outcome.cascaded == len(fallen)
        assert outcome.newly_derivable == len(conclusions(after, ()) - conclusions(before, ()))
        assert not outcome.truncated


FORMS = [
    parse_rule(text)
    for text in (
        "p(?x, count(?y)) :- e(?x, ?y), not n(?y).",
        "s(?x, min(?y), max(?y)) :- f(?x, ?y).",
        "r(?x) :- p(?x, ?n), ?n < 2.",
        "q(?x, ?y) :- e(?x, ?y), not q(?y, ?x).",
        "on :- not r(_).",
        "r(?x) :- e(?x, ?y), not r(?y).",
    )
]


@pytest.mark.parametrize(
    "text",
    [
        "on :- not r(_). r(a). r(b).",
        "on(?x) :- z(?x), not r(_). r(a). r(b). z(z).",
        "on :- not q(_). q(?x) :- s(?x), not r(?x). s(a). s(c). r(a).",
    ],
)
def test_a_negated_literal_with_a_wildcard_may_be_false_on_both_sides(text):
    """Whatever matched `not r(_)` beside the removed fact still does."""
    with kbcore.open_kb() as kb:
        kb.teach(text)
        outcome = kb.retract("r", ["a"])
        assert kb.ask("on" if "on(" not in text else "on(?x)") == []
        assert (outcome.cascaded, outcome.newly_derivable) == (0, 1 if "q(" in text else 0)


@examples(300)
@given(
    st.lists(st.sampled_from(FORMS), min_size=1, max_size=4, unique=True),
    st.lists(programs.rules().filter(lambda rule: not naive.aggregates(rule)), max_size=2),
    st.lists(programs.facts(), min_size=1, max_size=10, unique=True),
)
def test_aggregates_and_recursion_through_negation_are_compared_whole(forms, others, facts):
    rules = [*forms, *others]
    model = naive.model if naive.stratified(rules) else true_of
    assume(model is naive.model or not any(naive.aggregates(rule) for rule in rules))
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules(rules)
        kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts])
        gone, rest = facts[0], facts[1:]
        outcome = kb.retract_fact(gone.predicate, gone.args, positive=gone.positive)
        before, after = model(rules, facts), model(rules, rest)
        fallen = conclusions(before, facts) - conclusions(after, rest)
        assert {(naive.key(atom), atom.args) for atom in _atoms(outcome.cascaded_atoms)} == fallen
        assert outcome.cascaded == len(fallen)
        assert outcome.newly_derivable == len(conclusions(after, ()) - conclusions(before, ()))
        assert not outcome.truncated


@pytest.mark.parametrize(
    "rule",
    [
        "p(?x) :- on, e(?x).",
        "p(?x) :- e(?x), not r(?x).",
        "p(?x) :- on, i(?x). i(?x) :- e(?x).",
        "p(?x) :- i(?x), e(?x). i(?x) :- on, f(?x).",
    ],
)
def test_an_undefined_conclusion_is_not_counted(rule):
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule(text) for text in ("on :- not r(_).", "r(a) :- on.")])
        kb.assert_rules(
            [parse_rule(f"{text.strip()}.") for text in rule.split(".") if text.strip()]
        )
        kb.assert_facts([Fact(name, ("a",)) for name in "ef"])
        goal = parse_goal("p(?x)").body[0]
        assert kb.infer(goal) == []
        assert [row["args"] for row in kb.infer(goal, AnswerOptions(include_undefined=True))] == [
            ["a"]
        ]
        outcome = kb.retract_fact("e", ["a"])
        assert (outcome.retracted, outcome.newly_derivable, outcome.truncated) == (1, 0, False)
        assert [row for row in outcome.cascaded_atoms if row["predicate"] == "p"] == []
        assert outcome.cascaded == len(outcome.cascaded_atoms) == rule.count("i(?x) :- e")


def true_of(rules, facts):
    return naive.well_founded(rules, facts)[0]


def _atoms(rows):
    return [Atom(row["predicate"], tuple(row["args"]), not row["negated"]) for row in rows]


def test_a_conclusion_does_not_support_itself_through_a_cycle():
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules(
            [
                parse_rule("reach(?x, ?y) :- edge(?x, ?y)."),
                parse_rule("reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z)."),
            ]
        )
        kb.assert_facts([Fact("edge", pair) for pair in (("a", "b"), ("b", "c"), ("c", "b"))])
        outcome = kb.retract_fact("edge", ["a", "b"])
        assert sorted(row["args"] for row in outcome.cascaded_atoms) == [["a", "b"], ["a", "c"]]


def test_two_supports():
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule("ancestor(?x, ?y) :- parent(?x, ?y).")])
        kb.assert_facts([Fact("parent", ("a", "b")), Fact("ancestor", ("a", "b"))])
        first = kb.retract_fact("ancestor", ["a", "b"])
        assert (first.retracted, first.still_derivable, first.cascaded) == (1, True, 0)
        second = kb.retract_fact("parent", ["a", "b"])
        assert (second.cascaded, second.still_derivable) == (1, False)
        third = kb.retract_fact("ancestor", ["a", "b"])
        assert (third.retracted, third.cascaded) == (0, 0)


@pytest.mark.parametrize(
    "form",
    ["edge(?x, ?y), path(?y, ?z)", "path(?x, ?y), edge(?y, ?z)", "path(?x, ?y), path(?y, ?z)"],
)
def test_an_edge_without_dependents_is_retracted_cheaply(form):
    """On a ring with chords 200,000 pairs are affected by every edge; but each of them has another
    path.
    """
    size = 450
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules(
            [parse_rule("path(?x, ?y) :- edge(?x, ?y)."), parse_rule(f"path(?x, ?z) :- {form}.")]
        )
        edges = [(n, (n + step) % size) for n in range(size) for step in (1, 2, 7)]
        kb.assert_facts([Fact("edge", (f"n{a}", f"n{b}")) for a, b in edges])
        outcome = kb.retract_fact("edge", ["n3", "n10"])
        assert (outcome.cascaded, outcome.newly_derivable, outcome.still_derivable) == (0, 0, False)
        assert not outcome.truncated


def test_a_removed_exception_is_evaluated_from_the_exception():
    """A closure of two million pairs stands in the same rule, and takes no part."""
    size = 2000
    with runtime() as node:
        kb = node.knowledge_base()
        rules = (
            "belongs(?x, ?y) :- member(?x, ?y).",
            "belongs(?x, ?z) :- member(?x, ?y), belongs(?y, ?z).",
            "may(?x, ?thing) :- belongs(?x, ?y), grant(?y, ?thing), not banned(?x, ?thing).",
        )
        kb.assert_rules([parse_rule(rule) for rule in rules])
        kb.assert_facts([Fact("member", (f"n{n}", f"n{n + 1}")) for n in range(size)])
        kb.assert_facts(
            [Fact("grant", (f"n{size}", "door")), Fact("banned", (f"n{size - 9}", "door"))]
        )
        outcome = kb.retract_fact(
            "banned", [f"n{size - 9}", "door"], request_limits=RequestLimits(steps=1000)
        )
        assert (outcome.cascaded, outcome.newly_derivable, outcome.truncated) == (0, 1, False)


@pytest.mark.parametrize(
    "rules",
    [
        ("path(?x, ?y) :- edge(?x, ?y).", "path(?x, ?z) :- edge(?x, ?y), path(?y, ?z)."),
        (
            "path(?x, ?y) :- edge(?x, ?y).",
            "path(?x, ?z) :- path(?x, ?y), edge(?y, ?z).",
            "lost(?x, ?y) :- node(?x), node(?y), not path(?x, ?y).",
        ),
    ],
)
@pytest.mark.parametrize("sources", [1, MIN_GROUP_SIZE, MAX_GROUPS, MAX_GROUPS + 1])
def test_candidates_with_a_common_constant_are_asked_together(rules, sources):
    """From some sources over one edge to many targets, some of which can be reached another way."""
    targets = MIN_GROUP_SIZE * (MAX_GROUPS + 1) // sources + MIN_GROUP_SIZE
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule(rule) for rule in rules])
        edges = [(f"s{n}", "here") for n in range(sources)] + [("here", "there")]
        edges += [("there", f"t{n}") for n in range(targets)]
        edges += [(f"s{n}", f"t{n}") for n in range(sources) if n % 2] + [
            ("s0", "t1"),
            ("here", "t2"),
        ]
        kb.assert_facts([Fact("edge", edge) for edge in edges])
        kb.assert_facts(
            [Fact("node", (name,)) for name in ("s0", "here", "there", "t1", "t2", "t3")]
        )
        goals = [parse_goal(f"{name}(?x, ?y)").body[0] for name in ("path", "lost")]

        def model():
            return {(row["predicate"], *row["args"]) for goal in goals for row in kb.infer(goal)}

        before = model()
        outcome = kb.retract_fact("edge", ["here", "there"])
        after = model()
        fallen = {(row["predicate"], *row["args"]) for row in outcome.cascaded_atoms}
        assert fallen == before - after
        assert (outcome.cascaded, outcome.newly_derivable) == (
            len(before - after),
            len(after - before),
        )
        assert len(fallen) > targets
        assert not outcome.truncated


GRAPH = [Fact("edge", (f"n{a}", f"n{b}")) for a, b in [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]]
CLOSURE = "path(?x, ?y) :- edge(?x, ?y). path(?x, ?z) :- path(?x, ?y), edge(?y, ?z)."


def outcome_of(monkeypatch, limits, edge, facts=GRAPH):
    """What a retraction of an edge says with these limits of the two ways to count."""
    for name, value in limits.items():
        monkeypatch.setattr(cascade, name, value)
    with runtime() as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule(f"{text}.") for text in CLOSURE.split(".") if text.strip()])
        kb.assert_facts(facts)
        return kb.retract_fact("edge", edge)


@pytest.mark.parametrize("edge", [("n0", "n1"), ("n2", "n3"), ("n3", "n1"), ("n3", "n4")])
def test_many_affected_conclusions_are_counted_by_comparing_all(monkeypatch, edge):
    exact = outcome_of(monkeypatch, {}, edge)
    few = {"MAX_ROWS": 1, "MAX_STEPS": 1}
    compared = outcome_of(monkeypatch, few, edge)
    assert (exact.truncated, compared.truncated) == (False, False)
    assert exact.cascaded == compared.cascaded > 0
    assert set(_atoms(exact.cascaded_atoms)) == set(_atoms(compared.cascaded_atoms))
    none = outcome_of(monkeypatch, {**few, "MAX_FULL_ROWS": 1, "MAX_FULL_STEPS": 1}, edge)
    assert none.truncated
    assert none.cascaded <= exact.cascaded


RECURSIONS = (
    ("path(?x, ?y) :- edge(?x, ?y).", "path(?x, ?z) :- edge(?x, ?y), path(?y, ?z)."),
    ("path(?x, ?y) :- edge(?x, ?y).", "path(?x, ?z) :- path(?x, ?y), edge(?y, ?z)."),
    (
        "path(?x, ?y) :- edge(?x, ?y), not shut(?y).",
        "path(?x, ?z) :- edge(?x, ?y), path(?y, ?z), not shut(?z).",
        "shut(?y) :- lock(?y), not key(?y).",
        "shut(?y) :- edge(?y, ?z), edge(?z, ?y), lock(?z).",
        "lost(?x) :- lock(?x), not path(n0, ?x).",
    ),
    (
        "odd(?x, ?y) :- edge(?x, ?y).",
        "odd(?x, ?z) :- even(?x, ?y), edge(?y, ?z).",
        "even(?x, ?z) :- odd(?x, ?y), edge(?y, ?z).",
        "path(?x, ?y) :- even(?x, ?y), odd(?x, ?y).",
    ),
    (
        "path(?x, ?y, 1) :- edge(?x, ?y).",
        "path(?x, ?z, ?n) :- path(?x, ?y, ?m), edge(?y, ?z), ?m < 5, ?n = ?m + 1.",
    ),
    (
        "path(?x, ?y) :- edge(?x, ?y).",
        "path(?x, ?z) :- path(?x, ?y), path(?y, ?z), not lock(?y).",
    ),
)
LIMITS = (
    {},
    {"ROUNDS": 1},
    {"MAX_CLOSURE_ROWS": 1},
    {"MAX_CLOSURE_ROWS": 1, "MAX_ROUNDS": 2},
    {"GROUP_ROWS_PER_CANDIDATE": 0, "GROUP_ROWS": 1},
    {"TEST_STEPS_PER_CANDIDATE": 0, "TEST_STEPS": 1},
)


@pytest.mark.parametrize("rules", RECURSIONS)
@pytest.mark.parametrize("limits", LIMITS, ids=lambda limits: "-".join(limits) or "defaults")
def test_recursions_are_followed_in_rounds_and_at_once(monkeypatch, rules, limits):
    """Sparse graphs with long paths, in which several facts go one after the other."""
    for name, value in limits.items():
        monkeypatch.setattr(changes, name, value)
    draw = random.Random(str((rules, limits)))
    parsed = [parse_rule(text) for text in rules]
    counted = 0
    for size in (5, 12):
        facts = {("edge", (f"n{n}", f"n{n + 1}")) for n in range(size - 1)}
        facts |= {
            ("edge", (f"n{draw.randrange(size)}", f"n{draw.randrange(size)}")) for _ in range(3)
        }
        facts |= {(name, (f"n{draw.randrange(size)}",)) for name in ("lock", "key") for _ in "123"}
        with runtime() as node:
            kb = node.knowledge_base()
            kb.assert_rules(parsed)
            kb.assert_facts([Fact(*fact) for fact in sorted(facts)])
            before = naive.model(parsed, [Atom(*fact) for fact in facts])
            for name, args in draw.sample(sorted(facts), 5):
                held = [Atom(*fact) for fact in facts]
                facts.discard((name, args))
                rest = [Atom(*fact) for fact in facts]
                outcome = kb.retract_fact(name, args)
                after = naive.model(parsed, rest)
                fallen = conclusions(before, held) - conclusions(after, rest)
                shown = [(naive.key(atom), atom.args) for atom in _atoms(outcome.cascaded_atoms)]
                assert set(shown) == fallen
                assert len(shown) == outcome.cascaded == len(fallen)
                added = conclusions(after, ()) - conclusions(before, ())
                assert outcome.newly_derivable == len(added)
                assert not outcome.truncated
                counted += len(fallen)
                before = after
    assert counted > 10


def test_groups_of_rows_share_their_constants():
    engine = Engine()
    engine.intern_many([f"n{n:02}" for n in range(60)])
    draw = random.Random(5)
    grouped = 0
    for _ in range(60):
        arity, count = draw.randrange(1, 4), draw.randrange(1, 120)
        spans = [draw.choice([1, 1, 3, 59]) for _ in range(arity)]
        rows = sorted({tuple(1 + draw.randrange(span) for span in spans) for _ in range(count)})
        candidates = RowSet.of(rows, arity)
        patterns = candidates.patterns(engine)
        sizes = [len({row[column] for row in rows}) for column in range(arity)]
        fewest = min(sizes)
        if fewest > MAX_GROUPS or fewest * MIN_GROUP_SIZE > len(rows):
            assert patterns == []
            continue
        column = sizes.index(fewest)
        groups = {
            value: [row for row in rows if row[column] == value]
            for _, value in sorted((row[column], row[column]) for row in rows)
        }
        expected = [
            [
                values.pop() if len(values) == 1 else 0
                for values in map(set, zip(*group, strict=True))
            ]
            for group in groups.values()
        ]
        assert patterns == expected
        grouped += len(patterns) > 1
        flags = [draw.random() < 0.5 for _ in rows]
        kept = [row for row, flag in zip(rows, flags, strict=True) if flag]
        assert candidates.chosen(flags) == RowSet.of(kept, arity)
    assert grouped > 2
